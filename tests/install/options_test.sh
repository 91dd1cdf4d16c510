#!/bin/sh
# Options of the build: what is asked for and missing is an error that says so, AUTO goes on and says so in one line.
#   options_test.sh <source folder>
set -eu

source_dir=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
generator="Unix Makefiles"
if command -v ninja >/dev/null; then generator=Ninja; fi

# configure <options>...: a library-only configuration that finds nothing installed but the compiler.
configure() {
    rm -rf "$work/build"
    cmake -G "$generator" -S "$source_dir" -B "$work/build" -DGDN_BUILD_TESTS=OFF -DGDN_BUILD_TOOLS=OFF -DGDN_BUILD_EXAMPLES=OFF \
        -DGDN_BUILD_BENCH=OFF -DGDN_OPENMP=OFF "$@" >"$work/log" 2>&1
}

# expect <yes|no> <text> <options>...: configuring works or not, and says the text (on one line of the output).
expect() {
    wanted=$1 text=$2
    shift 2
    if configure "$@"; then result=yes; else result=no; fi
    if [ "$result" != "$wanted" ] || ! tr '\n' ' ' <"$work/log" | sed 's/  */ /g' | grep -qE "$text"; then
        echo "FAILED: $* (configured: $result, wanted: $wanted, with: $text)"
        cat "$work/log"
        failed=1
    else
        echo "ok      $*"
    fi
}

# A prefix with an OpenBLAS of the given header, and no other OpenBLAS to be found.
fake_openblas() {
    mkdir -p "$work/$1/include" "$work/$1/lib"
    printf '%s\n' '#define OPENBLAS_VERSION " OpenBLAS 0.3.99 "' "$2" >"$work/$1/include/openblas_config.h"
    : >"$work/$1/lib/libopenblas.so"
}
# Read after the compiler is found: from there on nothing of the system is.
printf '%s\n' 'set(CMAKE_FIND_USE_CMAKE_SYSTEM_PATH OFF)' 'set(CMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH OFF)' \
    >"$work/hide.cmake"
only="-DCMAKE_PROJECT_gdn_INCLUDE=$work/hide.cmake -DGDN_CUDA=OFF"

fake_openblas lp64 ''
fake_openblas ilp64 '#define OPENBLAS_USE64BITINT'
# shellcheck disable=SC2086
{
    expect yes 'gdn: OpenBLAS 0.3.99 found' $only -DGDN_OPENBLAS=ON "-DOpenBLAS_ROOT=$work/lp64"
    expect no 'GDN_OPENBLAS=ON, but no usable OpenBLAS.*ILP64' $only -DGDN_OPENBLAS=ON "-DOpenBLAS_ROOT=$work/ilp64"
    expect yes 'gdn: no OpenBLAS found: the generic products are plain loops.*ILP64' $only "-DOpenBLAS_ROOT=$work/ilp64"
    expect no 'GDN_OPENBLAS=ON, but no usable OpenBLAS' $only -DGDN_OPENBLAS=ON
    expect yes 'gdn: no OpenBLAS found' $only
}
expect no "GDN_OPENBLAS is 'maybe'; allowed are AUTO, ON and OFF" -DGDN_OPENBLAS=maybe
expect no 'GDN_BUILD_SHARED and GDN_BUILD_STATIC are both OFF' -DGDN_BUILD_SHARED=OFF -DGDN_BUILD_STATIC=OFF -DGDN_CUDA=OFF
if [ -e "$source_dir/backend_cuda/CMakeLists.txt" ]; then
    expect no 'GDN_CUDA=ON, but no nvcc was found' -DGDN_OPENBLAS=OFF -DGDN_CUDA=ON -DCMAKE_CUDA_COMPILER=NOTFOUND
    expect yes 'gdn: no CUDA compiler found: the library is built for the CPU alone' -DGDN_OPENBLAS=OFF \
        -DCMAKE_CUDA_COMPILER=NOTFOUND
fi
[ "$failed" -eq 0 ]
