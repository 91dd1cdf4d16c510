#include "cpu_ops.h"

#include "schedule.h"

gdn_status gdn_cpu_schedule(const gdn_device *device, const gdn_prefill_run *run, int32_t chunk_size, gdn_chunk *chunks,
                            int64_t bound, int64_t *used)
{
    (void)device;
    return gdn_schedule_chunks(run->problem, run->args, chunk_size, chunks, bound, used);
}

gdn_status gdn_cpu_begin_wave(const gdn_device *device, const gdn_prefill_run *run, gdn_wave *wave)
{
    (void)device;
    (void)run;
    gdn_schedule_wave(wave);
    return GDN_OK;
}
