#!/bin/bash
# Every check that a change must pass, from a bare Debian 12 machine: format, a release build with all of CTest (the
# install tests among them), AddressSanitizer and UndefinedBehaviorSanitizer, the fuzz targets, and the CUDA module
# where nvcc is found. About 20 minutes on two cores. check_all.sh has the slower ones.
#   test.sh [seconds for each fuzz target, default 30]
set -uo pipefail

"$(dirname "$0")/setup.sh" test || exit 1
. "$(dirname "${BASH_SOURCE[0]}")/steps.sh"
set -o pipefail

step format scripts/check_format.sh
step release build_and_test release -DGDN_CUDA=OFF
step "address and undefined behaviour sanitizers" build_and_test asan
step fuzz scripts/fuzz.sh "${1:-30}"
if [ ! -e backend_cuda/CMakeLists.txt ]; then
    skip "CUDA module" "no backend_cuda in this tree"
elif command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then
    step "CUDA module" build_and_test cuda "-DCMAKE_CUDA_ARCHITECTURES=80;90a" -DGDN_BUILD_EXAMPLES=OFF -DGDN_BUILD_BENCH=OFF
else
    skip "CUDA module" "no nvcc on this machine"
fi
finish
