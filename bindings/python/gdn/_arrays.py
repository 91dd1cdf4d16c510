"""What the library needs to know of a tensor: pointer, dtype, shape, strides and device, from PyTorch or NumPy."""

import ctypes
import sys
from typing import Any, NamedTuple

from gdn._errors import InvalidArgumentError
from gdn._native import DTYPES, MAX_RANK, WORKSPACE_ALIGNMENT, Tensor


class View(NamedTuple):
    """A tensor as the library takes it. `owner` keeps its memory alive."""

    tensor: Tensor
    owner: Any
    backend: str
    device: int


class Torch:
    """PyTorch tensors on the CPU or a CUDA device."""

    def __init__(self, torch):
        self.torch = torch

    def view(self, name, x, in_place):
        torch = self.torch
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"{name}: {type(x).__name__}, must be a torch.Tensor as the other arguments are")
        if x.layout is not torch.strided or x.device.type not in ("cpu", "cuda"):
            raise TypeError(f"{name}: {x.layout} on {x.device}, must be a strided tensor on the CPU or a CUDA device")
        if x.requires_grad and torch.is_grad_enabled():
            raise RuntimeError(f"{name}: requires grad, and there is no backward pass; call under torch.no_grad()")
        dtype = str(x.dtype).replace("torch.", "")
        if not in_place:
            x = x.resolve_neg()
            if x.dim() > 0 and x.stride(-1) != 1:
                x = x.contiguous()
        device = x.device.index or 0 if x.device.type == "cuda" else 0
        return make_view(name, x, x.data_ptr(), dtype, x.shape, x.stride(), x.device.type, device)

    def empty_like(self, x):
        return self.torch.empty(x.shape, dtype=x.dtype, device=x.device)

    def bytes(self, count, like):
        return self.torch.empty(count, dtype=self.torch.uint8, device=like.device)

    def stream(self, view):
        if view.backend != "cuda":
            return None
        return ctypes.c_void_p(self.torch.cuda.current_stream(view.device).cuda_stream)


class Numpy:
    """NumPy arrays; bfloat16 as the ml_dtypes package names it."""

    def __init__(self, numpy):
        self.numpy = numpy

    def view(self, name, x, in_place):
        if not isinstance(x, self.numpy.ndarray):
            raise TypeError(f"{name}: {type(x).__name__}, must be a numpy.ndarray as the other arguments are")
        if not x.dtype.isnative:
            raise TypeError(f"{name}: byte order {x.dtype.str}, must be the machine's own")
        if in_place and not x.flags.writeable:
            raise TypeError(f"{name}: a read-only array, must be writable")
        item = x.itemsize
        regular = all(stride % item == 0 and stride >= 0 for stride in x.strides) and x.flags.aligned
        if in_place and not regular:
            raise TypeError(
                f"{name}: strides of {x.strides} bytes, must be positive multiples of {item}, and the array aligned"
            )
        if not in_place and (not regular or (x.ndim > 0 and x.strides[-1] != item)):
            x = self.numpy.array(x, order="C")
        strides = [stride // item for stride in x.strides]
        return make_view(name, x, x.ctypes.data, x.dtype.name, x.shape, strides, "cpu", 0)

    def empty_like(self, x):
        return self.numpy.empty(x.shape, dtype=x.dtype)

    def bytes(self, count, like):
        return self.numpy.empty(count, dtype=self.numpy.uint8)

    def stream(self, view):
        return None


def framework_of(name, x):
    """The adapter of the library that x belongs to. Neither is imported for the sake of asking."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        return Torch(torch)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(x, numpy.ndarray):
        return Numpy(numpy)
    raise TypeError(f"{name}: {type(x).__name__}, must be a torch.Tensor or a numpy.ndarray")


def make_view(name, owner, data, dtype, shape, strides, backend, device):
    if dtype not in DTYPES:
        allowed = {"cache_indices": "int64", "cu_seqlens": "int64", "workspace": "uint8"}
        floats = "float32" if name in ("A_log", "dt_bias", "state_pool") else "bfloat16, float16 or float32"
        raise TypeError(f"{name}: dtype {dtype}, must be {allowed.get(name, floats)}")
    rank = len(shape)
    if not 1 <= rank <= MAX_RANK:
        raise InvalidArgumentError(f"{name}: {rank} dimensions, must be in 1..{MAX_RANK}")
    tensor = Tensor(data=data or None, dtype=DTYPES[dtype], rank=rank)
    dense = 1
    for i in reversed(range(rank)):
        tensor.size[i] = shape[i]
        # The stride of a dimension of one element, or of a tensor of none, says nothing: frameworks put anything there.
        tensor.stride[i] = dense if shape[i] == 1 or 0 in shape else strides[i]
        dense = tensor.stride[i] * max(shape[i], 1)
    return View(tensor, owner, backend, device)


def aligned(workspace):
    """The address and size of a tensor of bytes from its first aligned byte on."""
    if workspace.dtype != DTYPES["uint8"] or workspace.rank != 1 or workspace.stride[0] != 1:
        raise TypeError("workspace: must be one-dimensional, dense and of dtype uint8")
    address, size = workspace.data or 0, workspace.size[0]
    skip = min(-address % WORKSPACE_ALIGNMENT, size)
    return ctypes.c_void_p(address + skip if size > skip else None), size - skip
