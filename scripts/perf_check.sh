#!/bin/sh
# Bounds on time, as rows of measured against allowed. Run by hand on an idle machine: no test asserts a time, since a
# shared machine proves nothing by being slow. Exits with 1 where a row is over its bound.
#   perf_check.sh [path of the gdn program, default build/release/tools/gdn or build/run/tools/gdn]
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
gdn=${1:-}
for candidate in "$root/build/release/tools/gdn" "$root/build/run/tools/gdn"; do
    if [ -z "$gdn" ] && [ -x "$candidate" ]; then gdn=$candidate; fi
done
if [ -z "$gdn" ]; then
    echo "perf_check.sh: no gdn program found; build one, or name it as the argument" >&2
    exit 1
fi
unset OPENBLAS_CORETYPE
over=0

# Milliseconds by `gdn bench`. best PROBLEM...: the best run of each on one thread, first: its first call in a process, both in
# processor time; wall THREADS PROBLEM: the best run in wall time.
column() {
    number=$1
    shift
    "$gdn" bench --backend cpu --no-ceilings --judge 0 "$@" | awk -v n="$number" 'NR > 2 { print $n }'
}
best() { column 3 --threads 1 --cpu-time "$@"; }
first() { column 5 --threads 1 --cpu-time "$@"; }
wall() {
    threads=$1
    shift
    column 3 --threads "$threads" "$@"
}

# row NAME MEASURED BOUND [more]: more says that the bound is a least one.
row() {
    verdict=$(awk -v x="$2" -v b="$3" -v more="${4:-}" 'BEGIN { print (more != "" ? x >= b : x <= b) ? "ok" : "OVER" }')
    if [ "$verdict" = OVER ]; then over=1; fi
    printf '%-4s  %8.3f  %s %-6s  %s\n' "$verdict" "$2" "$([ -n "${4:-}" ] && echo '>=' || echo '<=')" "$3" "$1"
}
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { print a / b }'; }

"$gdn" info
echo
heads="heads=16/32 dim=128"

for impl in generic cpu; do
    row "time a token at 8192 tokens over that at 1024, --impl $impl, 1 thread" \
        "$(ratio "$(best --impl $impl "$heads tokens=8192")" "$(best --impl $impl "$heads tokens=1024")" | awk '{ print $1 / 8 }')" 1.1
done

for impl in generic cpu; do
    row "subnormal states over ordinary ones, --impl $impl, 4096 tokens" \
        "$(ratio "$(best --impl $impl "heads=2/4 dim=128 tokens=4096 decay=none initial=tiny")" \
            "$(best --impl $impl "heads=2/4 dim=128 tokens=4096 decay=none")")" 1.5
done

row "32 sequences of 1090 tokens packed over 32 single calls" \
    "$(ratio "$(best "heads=4/8 dim=128 seqs=32x1090")" "$(best "heads=4/8 dim=128 tokens=1090")" | awk '{ print $1 / 32 }')" 1.05
# Without states: 2048 of them are a gigabyte of traffic, which is not the tokens' cost.
row "2048 sequences of 16 tokens over one of 32768, no states" \
    "$(ratio "$(best "heads=2/4 dim=128 seqs=2048x16 initial=zero final=none")" \
        "$(best "heads=2/4 dim=128 tokens=32768 initial=zero final=none")")" 2

# What plans choose; the generic path computes whole chunks, so that 33 tokens cost it two.
set --
for tokens in $(seq 1 300); do set -- "$@" "heads=4/8 dim=128 tokens=$tokens"; done
row "a length over the one before it, at most, 1 to 300 tokens" \
    "$(best --min-time 0.03 "$@" | awk 'NR > 1 && $1 / last > most { most = $1 / last } { last = $1 } END { print most }')" 1.3

for problem in "tokens=1" "tokens=64" "tokens=700" "seqs=5x13" "op=decode rows=4" "op=decode rows=64 tokens_per_row=4"; do
    row "first call of a process over three warm ones and 50 ms: $problem" \
        "$(ratio "$(first "$heads $problem")" "$(best "$heads $problem" | awk '{ print 3 * $1 + 50 }')")" 1
done

cores=$(nproc)
if [ "$cores" -ge 2 ]; then
    row "2 threads over 1: one v head, 2048 tokens" \
        "$(ratio "$(wall 1 "heads=1 dim=128 tokens=2048")" "$(wall 2 "heads=1 dim=128 tokens=2048")")" 1.3 more
    row "2 threads over 1: 16/32 heads, 2048 tokens" \
        "$(ratio "$(wall 1 "$heads tokens=2048")" "$(wall 2 "$heads tokens=2048")")" 1.6 more
    row "$((4 * cores)) threads on $cores cores over $cores" \
        "$(ratio "$(wall $((4 * cores)) "$heads tokens=2048")" "$(wall "$cores" "$heads tokens=2048")")" 3
    row "the default thread count where the process may use one core" \
        "$(taskset -c 0 "$gdn" info | sed -n 's/^ *cpu .* \([0-9]*\) thread.*/\1/p')" 1
fi
exit $over
