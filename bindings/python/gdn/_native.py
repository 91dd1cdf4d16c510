"""libgdn itself: where it is, its structs as ctypes sees them, and one context a device."""

import ctypes
import os
import pathlib
import threading
from typing import NamedTuple

from gdn._errors import BY_STATUS, GdnError

MAX_RANK = 5
DTYPES = {"float32": 1, "bfloat16": 2, "float16": 3, "int32": 4, "int64": 5, "uint8": 6}
WORKSPACE_ALIGNMENT = 256

# What the structs below were written after. A library of another minor version may differ.
EXPECTED_VERSION = (0, 1)


class Tensor(ctypes.Structure):
    """gdn_tensor"""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int),
        ("rank", ctypes.c_int32),
        ("size", ctypes.c_int64 * MAX_RANK),
        ("stride", ctypes.c_int64 * MAX_RANK),
    ]


class BackendReport(ctypes.Structure):
    """gdn_backend_report"""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("usable", ctypes.c_int32),
        ("num_devices", ctypes.c_int32),
        ("name", ctypes.c_char * 32),
        ("description", ctypes.c_char * 224),
        ("reason", ctypes.c_char * 256),
    ]


class Allocator(ctypes.Structure):
    """gdn_allocator"""

    _fields_ = [("alloc", ctypes.c_void_p), ("free", ctypes.c_void_p), ("user", ctypes.c_void_p)]


class ContextOptions(ctypes.Structure):
    """gdn_context_options"""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("backend", ctypes.c_char_p),
        ("device", ctypes.c_int32),
        ("num_threads", ctypes.c_int32),
        ("blas", ctypes.c_int),
        ("ignore_environment", ctypes.c_int32),
        ("implementations", ctypes.c_char_p),
        ("cpu_isa", ctypes.c_char_p),
        ("backend_path", ctypes.c_char_p),
        ("allocator", Allocator),
        ("log", ctypes.c_void_p),
        ("log_user", ctypes.c_void_p),
    ]


def _load():
    """The library named by GDN_LIBRARY, else the one packed with this module, else the system's."""
    named = os.environ.get("GDN_LIBRARY")
    packed = pathlib.Path(__file__).with_name("lib") / "libgdn.so.0"
    path = named or (str(packed) if packed.exists() else "libgdn.so.0")
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"{error}; install libgdn, or set GDN_LIBRARY to the path of libgdn.so.0") from error
    library.gdn_version_string.restype = ctypes.c_char_p
    found = library.gdn_version_string().decode()
    if tuple(int(part) for part in found.split(".")[:2]) != EXPECTED_VERSION:
        wanted = ".".join(str(part) for part in EXPECTED_VERSION)
        raise ImportError(f"{path} is libgdn {found}; this module needs {wanted}")
    return library


_library = _load()
_TENSOR = ctypes.POINTER(Tensor)
_SIZE = ctypes.POINTER(ctypes.c_size_t)


def _function(name, result, *arguments):
    function = getattr(_library, name)
    function.restype = result
    function.argtypes = arguments
    return function


_version_string = _function("gdn_version_string", ctypes.c_char_p)
_features = _function("gdn_features", ctypes.c_char_p)
_status_string = _function("gdn_status_string", ctypes.c_char_p, ctypes.c_int)
_last_error = _function("gdn_last_error", ctypes.c_char_p)
_backend_count = _function("gdn_backend_count", ctypes.c_int32)
_backend_info = _function("gdn_backend_info", ctypes.c_int, ctypes.c_int32, ctypes.POINTER(BackendReport))
_options_init = _function(
    "gdn_context_options_init_sized", ctypes.c_int, ctypes.POINTER(ContextOptions), ctypes.c_size_t
)
_context_create = _function(
    "gdn_context_create", ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ContextOptions)
)
# context; q k v a b state_pool cache_indices; chunk_size, bytes
extend_workspace = _function(
    "gdn_extend_chunkwise_workspace", ctypes.c_int, ctypes.c_void_p, *[_TENSOR] * 7, ctypes.c_int32, _SIZE
)
# context; q k v a b A_log dt_bias state_pool cache_indices cu_seqlens; chunk_size; o; workspace, size, stream
extend = _function(
    "gdn_extend_chunkwise",
    ctypes.c_int,
    ctypes.c_void_p,
    *[_TENSOR] * 10,
    ctypes.c_int32,
    _TENSOR,
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_void_p,
)


def check(status):
    """Raises the exception of a status that is not GDN_OK, with the message of this thread's failing call."""
    if status != 0:
        name = _status_string(status).decode()
        raise BY_STATUS.get(name, GdnError)(_last_error().decode(errors="replace"), name)


def version():
    """The library's version, "0.1.0"."""
    return _version_string().decode()


def features():
    """What the library was built with, as words: ["cpu", "openblas", "openmp"]."""
    return _features().decode().split()


class Backend(NamedTuple):
    """A backend the library knows, usable or not. `reason` says why it is not usable."""

    name: str
    usable: bool
    num_devices: int
    description: str
    reason: str


def backends():
    """All backends, best first. Loads a backend's module to ask it, and creates no device context."""
    found = []
    for index in range(_backend_count()):
        report = BackendReport(struct_size=ctypes.sizeof(BackendReport))
        check(_backend_info(index, ctypes.byref(report)))
        text = [value.decode(errors="replace") for value in (report.name, report.description, report.reason)]
        found.append(Backend(text[0], bool(report.usable), report.num_devices, text[1], text[2]))
    return found


_contexts = {}
_lock = threading.Lock()


def context(backend, device):
    """This process's context on a device, made at its first call; a forked child makes its own. None is destroyed: at
    the interpreter's end the device's driver may be gone already."""
    key = (os.getpid(), backend, device)
    with _lock:
        if key not in _contexts:
            options = ContextOptions()
            check(_options_init(ctypes.byref(options), ctypes.sizeof(options)))
            options.backend = backend.encode()
            options.device = device
            created = ctypes.c_void_p()
            check(_context_create(ctypes.byref(created), ctypes.byref(options)))
            _contexts[key] = created
        return _contexts[key]


def _renew_lock():
    global _lock
    _lock = threading.Lock()


# Another thread may have held the lock when the process forked.
os.register_at_fork(after_in_child=_renew_lock)
