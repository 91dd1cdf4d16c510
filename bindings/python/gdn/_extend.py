"""gdn_extend_chunkwise: pymllm's call, on the caller's tensors."""

import ctypes
import operator

from gdn import _native
from gdn._arrays import aligned, framework_of
from gdn._errors import InvalidArgumentError

# What the two calls of the library take, in their order.
_SIZED = ("q", "k", "v", "a", "b", "state_pool", "cache_indices")
_CALLED = ("q", "k", "v", "a", "b", "A_log", "dt_bias", "state_pool", "cache_indices", "cu_seqlens")
_IN_PLACE = ("state_pool", "out", "workspace")


def _views(framework, tensors, home=None):
    """A view of each tensor, all of them on one device: that of `home`, else of the first."""
    views = {}
    for name, tensor in tensors.items():
        view = framework.view(name, tensor, name in _IN_PLACE)
        home = home or view
        if (view.backend, view.device) != (home.backend, home.device):
            here, there = f"{view.backend}:{view.device}", f"{home.backend}:{home.device}"
            raise InvalidArgumentError(f"{name}: on {here}, must be where q is, on {there}")
        views[name] = view
    return views


def _pointers(views, names):
    return [ctypes.byref(views[name].tensor) for name in names]


def _chunk_size(value):
    """As the library takes it: ctypes would cut a larger number to 32 bits."""
    value = operator.index(value)
    if not 1 <= value < 2**31:
        raise InvalidArgumentError(f"chunk_size: {value}, must be in 1..{2**31 - 1}")
    return value


def _workspace_size(context, views, chunk_size):
    needed = ctypes.c_size_t()
    _native.check(_native.extend_workspace(context, *_pointers(views, _SIZED), chunk_size, ctypes.byref(needed)))
    return needed.value + _native.WORKSPACE_ALIGNMENT - 1


def workspace_size(q, k, v, a, b, state_pool, cache_indices, chunk_size=64):
    """Bytes of a `workspace` that serves gdn_extend_chunkwise on tensors of these shapes, strides and device."""
    chunk_size = _chunk_size(chunk_size)
    views = _views(framework_of("q", q), dict(zip(_SIZED, (q, k, v, a, b, state_pool, cache_indices))))
    return _workspace_size(_native.context(views["q"].backend, views["q"].device), views, chunk_size)


def gdn_extend_chunkwise(
    q, k, v, a, b, A_log, dt_bias, state_pool, cache_indices, cu_seqlens, chunk_size=64, *, out=None, workspace=None
):
    """Chunkwise Gated DeltaNet extend (prefill) over packed sequences. The states in state_pool are updated in place.

    q, k            [total_tokens, H, K]    bfloat16, float16 or float32; not normalised, the call does it
    v               [total_tokens, HV, V]   q's dtype
    a, b            [total_tokens, HV]      raw gates, q's dtype or float32
    A_log, dt_bias  [HV]                    float32
    state_pool      [pool_size, HV, V, K]   float32
    cache_indices   [batch_size]            int64: each sequence's row of state_pool. A sequence whose index is negative
                                            is skipped, and its rows of the result are not written
    cu_seqlens      [batch_size + 1]        int64; rows of the result past its last are not written
    chunk_size                              a hint
    out             [total_tokens, HV, V]   where to write the result; made anew if None
    workspace       [workspace_size()]      uint8, for callers who want nothing allocated

    All are PyTorch tensors on one device, or all NumPy arrays. Strides are free; an input whose last dimension is not
    dense is copied first, state_pool and out must be dense there. On a CUDA device the call queues on PyTorch's current
    stream and returns; a sequence whose index or cu_seqlens is out of range is left out there, without an error.

    Returns the result, of v's dtype. There is no backward pass.
    """
    chunk_size = _chunk_size(chunk_size)
    framework = framework_of("q", q)
    arguments = (q, k, v, a, b, A_log, dt_bias, state_pool, cache_indices, cu_seqlens)
    views = _views(framework, dict(zip(_CALLED, arguments)))
    home = views["q"]
    context = _native.context(home.backend, home.device)
    if out is None:
        out = framework.empty_like(v)
    if workspace is None:
        workspace = framework.bytes(_workspace_size(context, views, chunk_size), q)
    written = _views(framework, {"out": out, "workspace": workspace}, home)
    address, size = aligned(written["workspace"].tensor)
    try:
        _native.check(
            _native.extend(
                context,
                *_pointers(views, _CALLED),
                chunk_size,
                *_pointers(written, ["out"]),
                address,
                size,
                framework.stream(home),
            )
        )
    except InvalidArgumentError as error:
        if error.status != "GDN_ERROR_WORKSPACE_TOO_SMALL":
            raise
        # The library saw what is left of it from the first aligned byte on.
        given, needed = written["workspace"].tensor.size[0], _workspace_size(context, views, chunk_size)
        raise InvalidArgumentError(f"workspace: {given} bytes, must be at least {needed}", error.status) from None
    return out
