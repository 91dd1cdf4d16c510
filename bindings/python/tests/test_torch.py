"""The same call on PyTorch tensors, on the CPU and on a CUDA device where the library and PyTorch both have one."""

import gdn
import pytest
from reference import error, extend, random_inputs

torch = pytest.importorskip("torch")

CUDA = torch.cuda.is_available() and any(b.name == "cuda" and b.usable for b in gdn.backends())
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not CUDA, reason="no usable CUDA device"))]
BOUNDS = {torch.float32: (2e-6, 2e-6), torch.bfloat16: (3e-3, 2e-6), torch.float16: (5e-4, 2e-6)}
# On a GPU the operands of products are rounded to the 16-bit type, too.
CUDA_BOUNDS = {torch.float32: (5e-6, 5e-6), torch.bfloat16: (6e-3, 5e-3), torch.float16: (1e-3, 1e-3)}


def tensors(inputs, device, dtype=torch.float32):
    """The inputs as tensors; q, k, v, a and b of `dtype`, and the arrays to what that rounds them to."""
    found = {name: torch.from_numpy(x.copy()).to(device) for name, x in inputs.items()}
    for name in ("q", "k", "v", "a", "b"):
        found[name] = found[name].to(dtype)
        inputs[name] = found[name].double().cpu().numpy()
    return found


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", list(BOUNDS), ids=str)
def test_against_float64(device, dtype):
    inputs = random_inputs(1, [3, 0, 130, 64], dims=(128, 128))
    given = tensors(inputs, device, dtype)
    o, pool = extend(**inputs)
    result = gdn.gdn_extend_chunkwise(**given)
    assert result.dtype == dtype and result.device == given["v"].device
    bounds = (BOUNDS if device == "cpu" else CUDA_BOUNDS)[dtype]
    assert error(result.double().cpu(), o) < bounds[0]
    assert error(given["state_pool"].double().cpu(), pool) < bounds[1]


@pytest.mark.parametrize("device", DEVICES)
def test_slices_of_one_packed_tensor_are_not_copied(device):
    inputs = random_inputs(2, [90], heads=(2, 2), dims=(64, 64))
    given = tensors(inputs, device)
    packed = torch.cat([given[name].flatten(1) for name in "qkv"], dim=1)
    for i, name in enumerate("qkv"):
        given[name] = packed[:, i * 128 : (i + 1) * 128].unflatten(1, (2, 64))
        assert not given[name].is_contiguous()
    o, _ = extend(**inputs)
    assert error(gdn.gdn_extend_chunkwise(**given).double().cpu(), o) < 5e-6


@pytest.mark.parametrize("device", DEVICES)
def test_inputs_freed_right_after_the_call(device):
    inputs = random_inputs(3, [1000], dims=(64, 64))
    given = tensors(inputs, device)
    o, _ = extend(**inputs)
    result = gdn.gdn_extend_chunkwise(**{name: given.pop(name) for name in inputs})
    spoil = [torch.full((1000, 4, 64), float("nan"), device=device) for _ in range(16)]
    assert error(result.double().cpu(), o) < 5e-6
    del spoil


@pytest.mark.parametrize("device", DEVICES)
def test_expanded_and_transposed_inputs(device):
    inputs = random_inputs(4, [50], heads=(2, 2), dims=(32, 32))
    inputs["q"][:, 1] = inputs["q"][:, 0]
    given = tensors(inputs, device)
    given["q"] = given["q"][:, :1].expand(-1, 2, -1)
    given["k"] = given["k"].transpose(1, 2).contiguous().transpose(1, 2)
    o, _ = extend(**inputs)
    assert error(gdn.gdn_extend_chunkwise(**given).double().cpu(), o) < 5e-6


def test_gradients_are_refused_not_dropped():
    given = tensors(random_inputs(5, [5]), "cpu")
    given["A_log"].requires_grad_()
    with pytest.raises(RuntimeError, match="A_log: requires grad"):
        gdn.gdn_extend_chunkwise(**given)
    with torch.no_grad():
        gdn.gdn_extend_chunkwise(**given)
    with torch.inference_mode():
        gdn.gdn_extend_chunkwise(**given)


def test_mixed_arguments_are_refused():
    given = tensors(random_inputs(6, [5]), "cpu")
    with pytest.raises(TypeError, match="k: ndarray"):
        gdn.gdn_extend_chunkwise(**dict(given, k=given["k"].numpy()))
    with pytest.raises(TypeError, match="v: .*meta"):
        gdn.gdn_extend_chunkwise(**dict(given, v=given["v"].to("meta")))
    with pytest.raises(TypeError, match="q: dtype float64"):
        gdn.gdn_extend_chunkwise(**dict(given, q=given["q"].double()))
    with pytest.raises(TypeError, match="q: .*sparse"):
        gdn.gdn_extend_chunkwise(**dict(given, q=given["q"].to_sparse()))


@pytest.mark.skipif(not CUDA, reason="no usable CUDA device")
def test_a_tensor_that_is_not_on_the_cuda_device_is_refused():
    given = tensors(random_inputs(7, [5]), "cuda")
    with pytest.raises(ValueError, match="k: on cpu:0"):
        gdn.gdn_extend_chunkwise(**dict(given, k=given["k"].cpu()))


@pytest.mark.skipif(not CUDA, reason="no usable CUDA device")
def test_a_cuda_graph_of_pytorch():
    inputs = random_inputs(8, [200, 56], dims=(128, 128))
    given = tensors(inputs, "cuda", torch.bfloat16)
    o, pool = extend(**inputs)
    initial = given["state_pool"].clone()
    gdn.gdn_extend_chunkwise(**given)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = gdn.gdn_extend_chunkwise(**given)
    for _ in range(2):
        given["state_pool"].copy_(initial)
        result.fill_(float("nan"))
        graph.replay()
        assert error(result.double().cpu(), o) < 6e-3
        assert error(given["state_pool"].double().cpu(), pool) < 5e-3
