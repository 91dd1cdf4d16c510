#!/usr/bin/env python3
"""Times the CPU prefill over lengths and head counts by `gdn bench` and prints one table for each thread count.

    cpu_grid.py --gdn build/release/tools/gdn --threads 1,2 [--tokens 1,64,...] [--heads 16/32,...] [-- gdn bench options]

A cell is thousands of tokens a second (median of the runs) and, in brackets, the share of the multiply-add peak measured in
the same process, counted at 6 K V + 2 C V + 2 C K / r operations a token and v head: k S, q S, the update, and the
triangles of a chunk, those of k shared by the r v heads of a k head.
"""

import argparse
import json
import re
import subprocess

DIM = 128


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--gdn", default="build/release/tools/gdn")
    parser.add_argument("--threads", default="1")
    parser.add_argument("--tokens", default="1,64,512,2048,8192,32768")
    parser.add_argument("--heads", default="16/16,16/32,32/32,16/64,2/8")
    parser.add_argument("--problem", default="", help="more of each problem, such as numerics=bf16")
    parser.add_argument("--min-time", default="0.3")
    parser.add_argument("options", nargs="*", help="more options of gdn bench, after --")
    return parser.parse_args()


def measure(args, threads, problems):
    command = [args.gdn, "bench", "--json", "--backend", "cpu", "--judge", "0", "--threads", str(threads)]
    command += ["--min-time", args.min_time, *args.options, *problems]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def operations(heads, chunk):
    num_k, num_v = (int(n) for n in heads.split("/"))
    return num_v * (6 * DIM * DIM + 2 * chunk * DIM + 2 * chunk * DIM * num_k / num_v)


def cell(heads, result, peak):
    rate = result["tokens"] / result["median_seconds"]
    chunk = int(re.match(r"\d+", result["chunk"]).group())
    return f"{rate / 1e3:.1f} ({100 * rate * operations(heads, chunk) / peak:.0f}%)"


def main():
    args = arguments()
    tokens, heads = args.tokens.split(","), args.heads.split(",")
    for threads in args.threads.split(","):
        problems = [f"heads={h} dim={DIM} tokens={t} {args.problem}".strip() for t in tokens for h in heads]
        measured = measure(args, threads, problems)
        peak, results = measured["ceiling_flops"], iter(measured["results"])
        print(f"\n{measured['backend']}: {peak / 1e9:.0f} GFLOP/s, {measured['ceiling_bytes'] / 1e9:.0f} GB/s updated in place\n")
        print("| tokens | " + " | ".join(heads) + " |")
        print("|---" * (len(heads) + 1) + "|")
        for t in tokens:
            print(f"| {t} | " + " | ".join(cell(h, next(results), peak) for h in heads) + " |", flush=True)


if __name__ == "__main__":
    main()
