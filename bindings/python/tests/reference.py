"""The call in float64, token by token, straight from its definition."""

import numpy as np


def random_inputs(seed, lengths, heads=(2, 4), dims=(32, 48), pool=None, dtype=np.float32):
    """The ten tensors of a call as NumPy arrays."""
    rng = np.random.default_rng(seed)
    tokens, (h, hv), (k_dim, v_dim) = sum(lengths), heads, dims
    pool = len(lengths) + 2 if pool is None else pool

    def draw(*shape):
        return rng.standard_normal(shape).astype(dtype)

    return {
        "q": draw(tokens, h, k_dim),
        "k": draw(tokens, h, k_dim),
        "v": draw(tokens, hv, v_dim),
        "a": draw(tokens, hv),
        "b": draw(tokens, hv),
        "A_log": np.log(rng.uniform(0.5, 8, hv)).astype(np.float32),
        "dt_bias": rng.standard_normal(hv).astype(np.float32),
        "state_pool": rng.standard_normal((pool, hv, v_dim, k_dim)).astype(np.float32),
        "cache_indices": rng.permutation(pool)[: len(lengths)].astype(np.int64),
        "cu_seqlens": np.cumsum([0, *lengths]).astype(np.int64),
    }


def extend(q, k, v, a, b, A_log, dt_bias, state_pool, cache_indices, cu_seqlens):
    """Returns o and the pool after the call; nothing given is changed."""
    q, k, v, a, b = (np.asarray(x, np.float64) for x in (q, k, v, a, b))
    pool = np.array(state_pool, np.float64)
    o = np.zeros(v.shape)
    q = q / (np.linalg.norm(q, axis=-1, keepdims=True) + 1e-6) * q.shape[-1] ** -0.5
    k = k / (np.linalg.norm(k, axis=-1, keepdims=True) + 1e-6)
    group = v.shape[1] // q.shape[1]
    alpha = np.exp(-np.exp(np.float64(A_log)) * np.logaddexp(0, a + dt_bias))
    beta = 1 / (1 + np.exp(-b))
    for row, slot in enumerate(cache_indices):
        if slot < 0:
            continue
        for t in range(cu_seqlens[row], cu_seqlens[row + 1]):
            for head in range(v.shape[1]):
                key, state = k[t, head // group], pool[slot, head]
                state *= alpha[t, head]
                state += np.outer(beta[t, head] * (v[t, head] - state @ key), key)
                o[t, head] = state @ q[t, head // group]
    return o, pool


def error(x, reference):
    return np.linalg.norm(np.asarray(x, np.float64) - reference) / np.linalg.norm(reference)
