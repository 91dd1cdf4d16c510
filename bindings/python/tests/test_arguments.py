"""What is refused, by which exception, and that nothing is written then."""

import gdn
import numpy as np
import pytest
from reference import random_inputs


def refused(exception, match, **changes):
    inputs = random_inputs(1, [10, 20])
    inputs.update(changes)
    before = np.array(inputs["state_pool"])
    with pytest.raises(exception, match=match):
        gdn.gdn_extend_chunkwise(**inputs)
    assert np.array_equal(inputs["state_pool"], before)


def test_dtypes():
    refused(TypeError, "q: dtype float64", q=np.zeros((30, 2, 32)))
    refused(TypeError, "k: byte order", k=np.zeros((30, 2, 32), ">f4"))
    refused(ValueError, "k", k=np.zeros((30, 2, 32), np.float16))
    refused(ValueError, "cache_indices", cache_indices=np.zeros(2, np.int32))
    refused(ValueError, "cu_seqlens", cu_seqlens=np.array([0, 10, 30], np.int32))
    refused(ValueError, "A_log", A_log=np.zeros(4, np.float16))
    refused(ValueError, "state_pool", state_pool=np.zeros((4, 4, 48, 32), np.float16))


def test_types():
    refused(TypeError, "q: list", q=[1.0])
    refused(TypeError, "v: list", v=[1.0])
    refused(TypeError, "state_pool: list", state_pool=[1.0])
    refused(TypeError, "A_log: NoneType", A_log=None)


def test_shapes():
    refused(ValueError, "k", k=np.zeros((30, 2, 31), np.float32))
    refused(ValueError, "v", v=np.zeros((29, 4, 48), np.float32))
    refused(ValueError, "a", v=np.zeros((30, 3, 48), np.float32))
    refused(ValueError, "a", a=np.zeros((30, 2), np.float32))
    refused(ValueError, "q: 0 dimensions", q=np.zeros((), np.float32))
    refused(ValueError, "q: 6 dimensions", q=np.zeros((1,) * 6, np.float32))
    refused(ValueError, "state_pool", state_pool=np.zeros((4, 4, 32, 48), np.float32))


def test_indices():
    refused(gdn.SlotConflictError, "slot", cache_indices=np.array([1, 1]))
    refused(ValueError, "slot|cache_indices", cache_indices=np.array([1, 4]))
    refused(ValueError, "cu_seqlens", cu_seqlens=np.array([0, 20, 10]))
    refused(ValueError, "cu_seqlens", cu_seqlens=np.array([0, 20, 31]))
    refused(ValueError, "cu_seqlens", cu_seqlens=np.array([0, 30]))


@pytest.mark.parametrize("value", [0, -1, 2**31, 2**40])
def test_chunk_size(value):
    refused(ValueError, "chunk_size", chunk_size=value)


def test_chunk_size_is_a_whole_number():
    refused(TypeError, "float", chunk_size=64.0)


def test_a_pool_that_cannot_be_updated_in_place():
    pool = np.zeros((4, 4, 48, 32), np.float32)
    pool.flags.writeable = False
    refused(TypeError, "state_pool: a read-only array", state_pool=pool)
    refused(ValueError, "state_pool", state_pool=np.zeros((4, 4, 32, 48), np.float32).transpose(0, 1, 3, 2))
    refused(TypeError, "state_pool: strides", state_pool=np.zeros((4, 4, 48, 32), np.float32)[::-1])


def test_overlap():
    inputs = random_inputs(2, [10])
    with pytest.raises(ValueError, match="overlap"):
        gdn.gdn_extend_chunkwise(**inputs, out=inputs["v"])


def test_the_status_is_kept():
    with pytest.raises(gdn.GdnError) as caught:
        gdn.gdn_extend_chunkwise(**dict(random_inputs(1, [4, 4]), cache_indices=np.array([0, 0])))
    assert caught.value.status == "GDN_ERROR_SLOT_CONFLICT"
