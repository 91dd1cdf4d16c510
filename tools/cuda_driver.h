/* The few CUDA driver calls that timing on a GPU needs, from libcuda.so.1 opened at run time: no toolkit to build, no
 * driver to start. The tool shares the device's primary context with the library's backend. */
#ifndef GDN_TOOLS_CUDA_DRIVER_H
#define GDN_TOOLS_CUDA_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct cuda_driver cuda_driver;
typedef struct cuda_graph cuda_graph;

/* Opens the driver and makes the device's primary context current in this thread. False: `error` holds one line. */
bool cuda_driver_open(cuda_driver **driver, int device, char *error, size_t error_size);
void cuda_driver_close(cuda_driver **driver);

/* A stream of its own, as the `stream` of a call; the bytes of the L2 cache. */
void *cuda_driver_stream(const cuda_driver *driver);
int64_t cuda_driver_l2_bytes(const cuda_driver *driver);

/* What is queued on the stream in between becomes a graph. False: `error` holds one line. */
bool cuda_capture_begin(cuda_driver *driver, char *error, size_t error_size);
bool cuda_capture_end(cuda_driver *driver, cuda_graph **graph, char *error, size_t error_size);
void cuda_graph_free(cuda_driver *driver, cuda_graph **graph);

/* Replays a graph once and waits; seconds between events around it, negative where the device failed. */
double cuda_graph_seconds(cuda_driver *driver, cuda_graph *graph);

/* Bytes a second of a device-to-device copy of 1 GiB, read and written together; 0: it could not be measured. */
double cuda_copy_rate(cuda_driver *driver);

/* Operations a second of a bfloat16 product of 8192^3 on random data by cuBLAS (libcublas.so.13 or .12); 0: there is
 * no cuBLAS, or it failed. */
double cuda_bf16_rate(cuda_driver *driver);

#endif
