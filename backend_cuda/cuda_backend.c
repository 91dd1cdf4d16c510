/* The backend's constant: what core sees of this folder. */
#include "cuda_backend.h"

#include "cuda_device.h"

static const gdn_generic_ops ops = {
    .prepare = gdn_cuda_prepare,
    .schedule = gdn_cuda_schedule,
    .begin_wave = gdn_cuda_begin_wave,
    .gates = gdn_cuda_gates,
    .pack = gdn_cuda_pack,
    .matmul = gdn_cuda_matmul,
    .mask = gdn_cuda_mask,
    .inverse = gdn_cuda_inverse,
    .scale_rows = gdn_cuda_scale_rows,
    .load_states = gdn_cuda_load_states,
    .store_states = gdn_cuda_store_states,
    .decay_state = gdn_cuda_decay_state,
    .walk = gdn_cuda_walk,
    .find_checkpoints = gdn_cuda_find_checkpoints,
    .store_checkpoints = gdn_cuda_store_checkpoints,
    .unpack = gdn_cuda_unpack,
};

const gdn_backend gdn_backend_cuda = {
    .abi = GDN_BACKEND_ABI,
    .version = GDN_VERSION_NUMBER,
    .name = "cuda",
    .rank = 10,
    .host_memory = false,
    .probe = gdn_cuda_probe,
    .open = gdn_cuda_open,
    .close = gdn_cuda_close,
    .alloc = gdn_cuda_alloc,
    .free = gdn_cuda_free,
    .copy = gdn_cuda_copy,
    .fill = gdn_cuda_fill,
    .synchronize = gdn_cuda_synchronize,
    .check_pointer = gdn_cuda_check_pointer,
    .owns_pointer = gdn_cuda_owns_pointer,
    .read_fault = gdn_cuda_read_fault,
    .note = gdn_cuda_note,
    .gate = gdn_cuda_gate,
    .implementations = gdn_cuda_implementations,
    .ops = &ops,
};
