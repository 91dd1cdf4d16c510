#!/bin/bash
# Everything, by hand before a release: test.sh, then other compilers and their sanitizers, valgrind, mutants, each BLAS
# build and kernel set, each instruction set, other CPUs under emulation, packages on a clean root. Hours on two cores.
#   check_all.sh [name of a step, to run the matching ones alone]
set -uo pipefail

"$(dirname "$0")/setup.sh" all || exit 1
. "$(dirname "${BASH_SOURCE[0]}")/steps.sh"

unset OPENBLAS_CORETYPE OPENBLAS_NUM_THREADS # which kernels and threads, the matrix below says
only=${1:-}
triplet=$(gcc -print-multiarch)

# wanted <name>: whether the step was asked for.
wanted() {
    [[ $1 == *"$only"* ]]
}

maybe() {
    if wanted "$1"; then step "$@"; fi
}

# tests_of <tree> <ctest options>...: the library's own tests in a built tree; not packages and documents again.
tests_of() {
    local tree=$1
    shift
    ctest --test-dir "$tree" --output-on-failure -L cpu -j "$jobs" "$@"
}

# tree <name> <configure options>...: a build tree of its own in build/.
tree() {
    local name=$1
    shift
    cmake -G Ninja -S . -B "build/$name" -DGDN_CUDA=OFF "$@" && cmake --build "build/$name"
}

clang_build() {
    tree clang -DCMAKE_C_COMPILER=clang -DCMAKE_BUILD_TYPE=Release && tests_of build/clang
}

# gcc's is part of test.sh, with its address sanitizer; clang's also knows arithmetic on null pointers.
clang_ubsan() {
    cmake --preset ubsan && cmake --build --preset ubsan && ctest --preset ubsan -L cpu -j "$jobs"
}

tidy() {
    cmake --preset dev >/dev/null && clang-tidy -p build/dev --quiet core/*.c backend_cpu/*.c tools/*.c
}

tsan_openmp() {
    cmake --preset tsan-openmp && cmake --build --preset tsan-openmp &&
        OMP_TOOL_LIBRARIES=$(find /usr/lib/llvm-*/lib -name libarcher.so | head -n 1) ctest --preset tsan-openmp -L cpu -j 1
}

# Where a test takes a hundred times as long: small shapes, and of a program's variants (tests/CMakeLists.txt) those alone that
# are not what NAME.cpu is here.
slowly() {
    GDN_TEST_SMALL=1 tests_of "$1" -LE slow -E "$2"
}

# valgrind knows no AVX-512, so the best it sees is AVX2. The run of plain C has the generic path too, the other the
# AVX2 kernels.
under_valgrind() {
    tree valgrind -DCMAKE_BUILD_TYPE=RelWithDebInfo -DGDN_OPENBLAS=OFF -DGDN_OPENMP=OFF -DGDN_BUILD_EXAMPLES=OFF \
        "-DCMAKE_CROSSCOMPILING_EMULATOR=valgrind;-q;--error-exitcode=99;--leak-check=full;--show-leak-kinds=definite,indirect;--errors-for-leak-kinds=definite,indirect" &&
        GDN_CPU_ISA=$1 slowly build/valgrind "$2"
}

# Tests in the release tree, which is test.sh's or made now; but for those named by the pattern, which the caller's setting does
# not reach.
in_release_tree() {
    tree release -DCMAKE_BUILD_TYPE=Release >/dev/null && tests_of build/release -E "$1"
}

# The OpenBLAS of another build put before the system's. The fused implementations use none.
with_openblas() {
    local folder=/usr/lib/$triplet/openblas-$1
    [ -e "$folder/libopenblas.so.0" ] && LD_LIBRARY_PATH=$folder in_release_tree '\.(scalar|avx2)$'
}

with_coretype() {
    OPENBLAS_CORETYPE=$1 in_release_tree '\.(scalar|avx2)$'
}

with_isa() {
    GDN_CPU_ISA=$1 in_release_tree '\.(generic|scalar|avx2)$'
}

# A root in which netlib's BLAS is the only one: configuring must not take it for OpenBLAS.
netlib_alone() {
    local clean
    clean=$(mktemp -d) && scripts/clean_root.sh "$clean" && mkdir "$clean/src" &&
        tar c --exclude=./build --exclude=./.git . | tar x -C "$clean/src" &&
        chroot "$clean" sh -euc 'export DEBIAN_FRONTEND=noninteractive
            apt-get -qq --no-install-recommends install gcc libc6-dev cmake ninja-build libblas-dev liblapack-dev \
                libcmocka-dev libcjson-dev python3 >/dev/null
            cd /src
            cmake -G Ninja -S . -B build/netlib -DGDN_CUDA=OFF | grep "no OpenBLAS found"
            cmake --build build/netlib
            ctest --test-dir build/netlib --output-on-failure -L cpu -j 2'
    local result=$?
    rm -rf "$clean"
    return $result
}

# x86 CPUs that this machine is not: a build that runs there has no instruction that they lack.
under_qemu() {
    tree qemu -DCMAKE_BUILD_TYPE=Release -DGDN_OPENMP=OFF -DGDN_BUILD_EXAMPLES=OFF \
        "-DCMAKE_CROSSCOMPILING_EMULATOR=qemu-x86_64;-cpu;$1" &&
        slowly build/qemu "$2"
}

arm64() {
    cmake --preset arm64 "-DCMAKE_CROSSCOMPILING_EMULATOR=qemu-aarch64;-cpu;$1" &&
        cmake --build --preset arm64 && slowly build/arm64 "$2"
}

maybe "test.sh" scripts/test.sh
maybe "clang" clang_build
maybe "clang-tidy" tidy
maybe "clang, undefined behaviour sanitizer" clang_ubsan
maybe "without BLAS and OpenMP" build_and_test noblas
maybe "thread sanitizer" build_and_test tsan
maybe "thread sanitizer, OpenMP with archer" tsan_openmp
maybe "valgrind, plain" under_valgrind scalar '\.(scalar|avx2)$'
maybe "valgrind, AVX2" under_valgrind avx2 '\.(generic|scalar|avx2)$|^test_(cpu_fused|formulas)' # the plain run has all of these
maybe "mutants" scripts/mutants.sh

for build in pthread openmp serial; do
    maybe "OpenBLAS $build" with_openblas $build
done
maybe "netlib BLAS alone" netlib_alone
for core in Nehalem Haswell SkylakeX; do
    if [ $core = SkylakeX ] && ! grep -q avx512dq /proc/cpuinfo; then
        skip "OPENBLAS_CORETYPE $core" "this CPU has no AVX-512"
    else
        maybe "OPENBLAS_CORETYPE $core" with_coretype $core
    fi
done
for isa in scalar avx2 avx512; do
    maybe "GDN_CPU_ISA $isa" with_isa $isa
done
# Of two CPUs of an architecture the older one runs the generic path, too.
maybe "x86 under qemu, Nehalem" under_qemu Nehalem '\.(scalar|avx2)$'
# Without what qemu has not and would warn of in each program's output. `gdn verify`, which tool_commands runs, finds qemu's float16
# wrong (tests/harness/emulation.h); under Nehalem it passes.
maybe "x86 under qemu, Haswell" under_qemu Haswell,-pcid,-x2apic,-tsc-deadline,-hle,-invpcid,-rtm \
    '\.(generic|scalar|avx2)$|^tool_commands$'
maybe "arm64 under qemu, cortex-a53" arm64 cortex-a53 '\.(scalar|avx2)$'
maybe "arm64 under qemu, max" arm64 max '\.(generic|scalar|avx2)$'
maybe "Debian packages" scripts/check_deb.sh
finish
