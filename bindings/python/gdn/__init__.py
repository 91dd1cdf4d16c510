"""Gated DeltaNet prefill on PyTorch tensors and NumPy arrays, by libgdn.

    import gdn
    o = gdn.gdn_extend_chunkwise(q, k, v, a, b, A_log, dt_bias, state_pool, cache_indices, cu_seqlens)

Importing this module loads the library, nothing else: no device is touched before the first call on one.
"""

from gdn._errors import GdnError, InvalidArgumentError, OutOfMemoryError, SlotConflictError, UnsupportedError
from gdn._extend import gdn_extend_chunkwise, workspace_size
from gdn._native import Backend, backends, features, version

__all__ = [
    "Backend",
    "GdnError",
    "InvalidArgumentError",
    "OutOfMemoryError",
    "SlotConflictError",
    "UnsupportedError",
    "backends",
    "features",
    "gdn_extend_chunkwise",
    "version",
    "workspace_size",
]

__version__ = version()
