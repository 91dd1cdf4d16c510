#!/bin/sh
# From a bare Debian 12 to a result: installs what is missing, builds, and runs a recorded layer of Qwen3-Next through
# the library, beside the outputs that its own model computed. Arguments go to `gdn prefill` instead of that file.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
build=$root/build/run
"$root/scripts/setup.sh" run

# The CUDA module only where it can be used: a compiler and a GPU.
cuda=OFF
if command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L >/dev/null 2>&1; then
    cuda=AUTO
    architectures=-DCMAKE_CUDA_ARCHITECTURES=native
fi

cmake -G Ninja -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release -DGDN_BUILD_TESTS=OFF -DGDN_BUILD_BENCH=OFF \
    "-DGDN_CUDA=$cuda" ${architectures:+"$architectures"}
cmake --build "$build"

if [ $# -eq 0 ]; then
    set -- "$root/examples/data/qwen3_next_layer.safetensors"
fi
echo "+ gdn prefill $*"
exec "$build/tools/gdn" prefill "$@"
