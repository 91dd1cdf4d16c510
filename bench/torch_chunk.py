#!/usr/bin/env python3
"""The straightforward chunked gated delta rule in PyTorch, timed: what `gdn bench` is compared with.

The W/U form with one inverse a chunk, as models in PyTorch write it: every chunk's L, A, U and W at once, A by forward
substitution row by row, then a loop over the chunks for the state. float32 on the CPU; docs/algorithm.md derives the
formulas. `--check` compares with a float64 token recurrence.

    torch_chunk.py --threads 2 --heads 16/32 --dim 128 --tokens 64,512,2048,8192
"""

import argparse
import json
import math
import statistics
import time

import torch


def chunked(q, k, v, log_decay, beta, state, chunk):
    """q, k [T, H, K]; v [T, HV, V]; log_decay, beta [T, HV]; state [HV, K, V]. Returns o [T, HV, V] and the state."""
    tokens, ratio = v.shape[0], v.shape[1] // q.shape[1]
    q = q * torch.rsqrt((q * q).sum(-1, keepdim=True) + 1e-6)
    k = k * torch.rsqrt((k * k).sum(-1, keepdim=True) + 1e-6)
    q, k = q.repeat_interleave(ratio, 1) * q.shape[-1] ** -0.5, k.repeat_interleave(ratio, 1)

    # [HV, chunks, C, ...], padded with tokens that change nothing: beta 0, log decay 0.
    def split(x):
        x = x.transpose(0, 1)
        pad = -tokens % chunk
        x = torch.nn.functional.pad(x, (0, 0) * (x.dim() - 2) + (0, pad))
        return x.reshape(x.shape[0], -1, chunk, *x.shape[2:]).contiguous()

    q, k, v = split(q), split(k), split(v)
    G, beta = split(log_decay).cumsum(-1), split(beta)
    D = (G[..., :, None] - G[..., None, :]).tril().exp().tril()

    # A = (I + L)^-1, row by row: A_i = e_i - L_i A.
    kb = k * beta[..., None]
    L = (kb @ k.transpose(-1, -2) * D).tril(-1)
    A = torch.eye(chunk).expand(L.shape).clone()
    for i in range(1, chunk):
        A[..., i, :i] = -(L[..., i, None, :i] @ A[..., :i, :i]).squeeze(-2)
    U = A @ (v * beta[..., None])
    W = A @ (kb * G.exp()[..., None])

    o = torch.empty_like(v)
    for c in range(v.shape[1]):
        Gc = G[:, c]
        V_new = U[:, c] - W[:, c] @ state
        P = q[:, c] @ k[:, c].transpose(-1, -2) * D[:, c]
        o[:, c] = (q[:, c] * Gc.exp()[..., None]) @ state + P @ V_new
        tail = (Gc[:, -1:] - Gc).exp()[..., None]
        state = state * Gc[:, -1, None, None].exp() + (k[:, c] * tail).transpose(-1, -2) @ V_new
    return o.flatten(1, 2)[:, :tokens].transpose(0, 1), state


def recurrence(q, k, v, log_decay, beta, state):
    """The definition, one token after another, in float64."""
    q, k, v, log_decay, beta, state = (x.double() for x in (q, k, v, log_decay, beta, state))
    ratio, o = v.shape[1] // q.shape[1], torch.empty_like(v)
    q = q * torch.rsqrt((q * q).sum(-1, keepdim=True) + 1e-6)
    k = k * torch.rsqrt((k * k).sum(-1, keepdim=True) + 1e-6)
    q, k = q.repeat_interleave(ratio, 1) * q.shape[-1] ** -0.5, k.repeat_interleave(ratio, 1)
    for t in range(v.shape[0]):
        state = state * log_decay[t].exp()[:, None, None]
        u = beta[t, :, None] * (v[t] - torch.einsum("hk,hkv->hv", k[t], state))
        state = state + k[t, :, :, None] * u[:, None, :]
        o[t] = torch.einsum("hk,hkv->hv", q[t], state)
    return o, state


def inputs(tokens, num_k_heads, num_v_heads, head_k_dim, head_v_dim):
    """The standard inputs of `gdn bench`: a model's initialisation."""
    torch.manual_seed(1)
    A = torch.empty(num_v_heads).uniform_(1, 16)
    dt = torch.empty(num_v_heads).uniform_(math.log(1e-3), math.log(0.1)).exp()
    dt_bias = dt + torch.log(-torch.expm1(-dt))
    log_decay = -A * torch.nn.functional.softplus(torch.randn(tokens, num_v_heads) + dt_bias)
    return (
        torch.randn(tokens, num_k_heads, head_k_dim),
        torch.randn(tokens, num_k_heads, head_k_dim),
        torch.randn(tokens, num_v_heads, head_v_dim),
        log_decay,
        torch.sigmoid(torch.randn(tokens, num_v_heads)),
        0.2 * torch.randn(num_v_heads, head_k_dim, head_v_dim),
    )


def pair(text):
    first, _, second = text.partition("/")
    return int(first), int(second or first)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--heads", type=pair, default=(16, 32), help="k heads / v heads (default 16/32)")
    parser.add_argument("--dim", type=pair, default=(128, 128), help="K / V (default 128)")
    parser.add_argument("--tokens", default="64,512,2048,8192", help="lengths, comma-separated")
    parser.add_argument("--chunk", type=int, default=64)
    parser.add_argument("--min-time", type=float, default=1.0, help="seconds to repeat each length for, at least 3 runs")
    parser.add_argument("--repeat", type=int, default=0, help="runs of each length instead of --min-time")
    parser.add_argument("--cpu-time", action="store_true", help="count processor time; for one thread on a busy machine")
    parser.add_argument("--check", action="store_true", help="compare with the float64 recurrence")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    clock = time.process_time if args.cpu_time else time.perf_counter

    for tokens in map(int, args.tokens.split(",")):
        data = inputs(tokens, *args.heads, *args.dim)
        with torch.inference_mode():
            o, state = chunked(*data, args.chunk)
            times, start = [], time.perf_counter()
            while len(times) < (args.repeat or 3) or (not args.repeat and time.perf_counter() - start < args.min_time):
                before = clock()
                chunked(*data, args.chunk)
                times.append(clock() - before)
        row = dict(
            tokens=tokens,
            threads=args.threads,
            median_ms=1e3 * statistics.median(times),
            best_ms=1e3 * min(times),
            tokens_per_second=tokens / statistics.median(times),
            runs=len(times),
            torch=torch.__version__,
        )
        if args.check:
            ref_o, ref_state = recurrence(*data)
            row["o_error"] = float((o - ref_o).norm() / ref_o.norm())
            row["state_error"] = float((state - ref_state).norm() / ref_state.norm())
        if args.json:
            print(json.dumps(row), flush=True)
        else:
            print("  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()), flush=True)


if __name__ == "__main__":
    main()
