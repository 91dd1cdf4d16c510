import gc
import threading

import gdn
import numpy as np
import pytest
from reference import error, extend, random_inputs


@pytest.mark.parametrize("lengths", [[1], [65], [3, 0, 130, 64]])
@pytest.mark.parametrize("dims", [(32, 48), (128, 128)])
def test_float32(lengths, dims):
    inputs = random_inputs(1, lengths, dims=dims)
    o, pool = extend(**inputs)
    result = gdn.gdn_extend_chunkwise(**inputs)
    assert result.dtype == np.float32 and result.shape == inputs["v"].shape
    assert error(result, o) < 2e-6
    assert error(inputs["state_pool"], pool) < 2e-6


def test_float16_is_rounded_once():
    inputs = random_inputs(2, [70, 5], dtype=np.float16)
    o, pool = extend(**inputs)
    result = gdn.gdn_extend_chunkwise(**inputs)
    assert result.dtype == np.float16
    assert error(result, o) < 5e-4
    assert error(inputs["state_pool"], pool) < 2e-6


def test_a_negative_index_skips_its_sequence():
    inputs = random_inputs(3, [10, 20])
    inputs["cache_indices"][0] = -1
    o, pool = extend(**inputs)
    out = np.full(inputs["v"].shape, 7, np.float32)
    assert gdn.gdn_extend_chunkwise(**inputs, out=out) is out
    assert (out[:10] == 7).all()
    assert error(out[10:], o[10:]) < 2e-6
    assert error(inputs["state_pool"], pool) < 2e-6


@pytest.mark.parametrize("layout", ["fortran", "reversed", "sliced", "transposed", "unaligned", "read-only"])
def test_any_layout_of_an_input(layout):
    inputs = random_inputs(4, [40, 33])
    o, _ = extend(**inputs)

    def change(x):
        if layout == "fortran":
            return np.asfortranarray(x)
        if layout == "reversed":
            return np.ascontiguousarray(x[::-1])[::-1]
        if layout == "sliced":
            wide = np.full((*x.shape[:-1], 2 * x.shape[-1]), np.nan, x.dtype)
            wide[..., ::2] = x
            return wide[..., ::2]
        if layout == "transposed":
            return np.ascontiguousarray(np.moveaxis(x, 0, -1)).transpose(-1, *range(x.ndim - 1))
        if layout == "unaligned":
            buffer = np.zeros(x.nbytes + 1, np.uint8)
            buffer[1:] = np.frombuffer(x.tobytes(), np.uint8)
            return np.frombuffer(buffer, x.dtype, offset=1).reshape(x.shape)
        x = x.copy()
        x.flags.writeable = False
        return x

    for name in ("q", "k", "v", "a", "b", "A_log", "dt_bias"):
        inputs[name] = change(inputs[name])
    assert error(gdn.gdn_extend_chunkwise(**inputs), o) < 2e-6


def test_a_pool_with_strides_is_updated_in_place():
    inputs = random_inputs(5, [30])
    _, pool = extend(**inputs)
    wide = np.full((inputs["state_pool"].shape[0], 5, 48, 40), 9, np.float32)
    wide[:, :4, :, :32] = inputs["state_pool"]
    inputs["state_pool"] = wide[:, :4, :, :32]
    gdn.gdn_extend_chunkwise(**inputs)
    assert error(inputs["state_pool"], pool) < 2e-6
    assert (wide[:, 4:] == 9).all() and (wide[..., 32:] == 9).all()


def test_temporaries_live_through_the_call():
    """Only the call holds its arguments, while another thread collects garbage and reuses memory."""
    inputs = random_inputs(6, [2000], dims=(64, 64))
    o, _ = extend(**inputs)
    done = threading.Event()

    def churn():
        while not done.is_set():
            gc.collect()
            np.full(inputs["v"].size, np.nan)

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(3):
            temporaries = {name: np.repeat(x, 2, axis=-1)[..., ::2] for name, x in inputs.items()}
            temporaries["state_pool"] = inputs["state_pool"].copy()
            result = gdn.gdn_extend_chunkwise(**{name: temporaries.pop(name) for name in inputs})
            assert error(result, o) < 2e-6
    finally:
        done.set()
        thread.join()


def test_threads_share_a_context():
    calls = [random_inputs(seed, [100, 7], dims=(64, 64)) for seed in range(4)]
    references = [extend(**inputs)[0] for inputs in calls]
    results = [None] * len(calls)

    def call(i):
        results[i] = gdn.gdn_extend_chunkwise(**calls[i])

    threads = [threading.Thread(target=call, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result, reference in zip(results, references):
        assert error(result, reference) < 2e-6


def test_a_workspace_of_the_caller():
    inputs = random_inputs(7, [50])
    o, _ = extend(**inputs)
    shared = {name: inputs[name] for name in ("q", "k", "v", "a", "b", "state_pool", "cache_indices")}
    size = gdn.workspace_size(**shared)
    before = inputs["state_pool"].copy()
    result = gdn.gdn_extend_chunkwise(**inputs, workspace=np.full(size, 0xFF, np.uint8))
    assert error(result, o) < 2e-6
    inputs["state_pool"][:] = before
    for given in (size // 2, 1, 0):
        with pytest.raises(gdn.InvalidArgumentError, match=f"^workspace: {given} bytes, must be at least {size}$"):
            gdn.gdn_extend_chunkwise(**inputs, workspace=np.zeros(given, np.uint8))
    assert (inputs["state_pool"] == before).all()


def test_nothing_to_do():
    inputs = random_inputs(8, [])
    before = inputs["state_pool"].copy()
    assert gdn.gdn_extend_chunkwise(**inputs).shape == (0, 4, 48)
    assert (inputs["state_pool"] == before).all()
