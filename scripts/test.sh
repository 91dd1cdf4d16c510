#!/bin/bash
# Every check that a change must pass, from a bare Debian 12 machine: format, a release build with all of CTest (the
# install tests among them), AddressSanitizer and UndefinedBehaviorSanitizer, the fuzz targets, and the CUDA module
# where nvcc is found. About 20 minutes on two cores. check_all.sh has the slower ones.
#   test.sh [seconds for each fuzz target, default 30]
set -uo pipefail

"$(dirname "$0")/setup.sh" test || exit 1
. "$(dirname "${BASH_SOURCE[0]}")/steps.sh"

# The module for two architectures, which is enough to see that it compiles, and the tests of it that need no GPU; with
# one, all its tests.
cuda_module() {
    cmake --preset cuda "-DGDN_CUDA_ARCHS=80;90a" -DGDN_BUILD_TOOLS=OFF -DGDN_BUILD_EXAMPLES=OFF \
        -DGDN_BUILD_BENCH=OFF || return 1
    if nvidia-smi -L >/dev/null 2>&1; then
        cmake --build --preset cuda && ctest --preset cuda -L gpu -j 1 || return 1
    else
        cmake --build --preset cuda --target gdn_cuda test_cuda_chooser test_cuda_driver gdn_driver_fake gdn_driver_ancient ||
            return 1
    fi
    ctest --preset cuda -R '^(test_cuda_chooser|test_cuda_driver\..*|cuda_module_is_loadable_anywhere)$'
}

step format scripts/check_format.sh
step release build_and_test release -DGDN_CUDA=OFF
step "address and undefined behaviour sanitizers" build_and_test asan
step fuzz scripts/fuzz.sh "${1:-30}"
if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then
    step "CUDA module" cuda_module
else
    skip "CUDA module" "no nvcc on this machine"
fi
finish
