#!/bin/sh
# Installs what a step needs and this machine lacks, by apt, and says what before it does. Needs a shell, and root or
# sudo only where something is missing. Run again, it finds everything there and does nothing.
#   setup.sh [run | test | all]
#     run    build the library and the gdn program (the default)
#     test   also what scripts/test.sh uses
#     all    also what scripts/check_all.sh uses
set -eu

step=${1:-run}
case $step in
run | test | all) ;;
*)
    echo "setup.sh: '$step' is not a step; allowed are run, test and all" >&2
    exit 2
    ;;
esac

missing=""

# command_from <package> <command>: the package is wanted where the command is not on PATH.
command_from() {
    command -v "$2" >/dev/null 2>&1 || missing="$missing $1"
}

# package <package>[:<architecture>]: wanted where it is not installed; the architecture is this machine's unless said.
package() {
    case $1 in
    *:*) name=$1 ;;
    *) name=$1:$(dpkg --print-architecture) ;;
    esac
    case $(dpkg-query -W -f '${Status}' "$name" 2>/dev/null) in
    "install ok installed") ;;
    *) missing="$missing $1" ;;
    esac
}

if ! command -v dpkg-query >/dev/null 2>&1; then
    # Another distribution: its own packages are the user's business; say what is needed and let the build find it.
    echo "setup.sh: no dpkg here, installing nothing. Needed: a C11 compiler, CMake 3.24, ninja, cJSON;" \
        "used where found: OpenBLAS, OpenMP; for the tests also: a C++ compiler, clang, cmocka, python3, pkg-config, valgrind."
    exit 0
fi

command_from gcc gcc
package libc6-dev
command_from cmake cmake
command_from ninja-build ninja
package libopenblas-dev
package libcjson-dev

if [ "$step" != run ]; then
    command_from g++ g++
    command_from clang clang
    package libclang-rt-dev
    command_from clang-format clang-format
    command_from binutils readelf
    package libcmocka-dev
    command_from pkg-config pkg-config
    command_from python3 python3
    package python3-numpy
    package python3-pytest:all
fi

if [ "$step" = all ]; then
    command_from clang-tidy clang-tidy
    package libomp-dev
    command_from valgrind valgrind
    package libc6-dbg
    package libopenblas0-pthread
    package libopenblas0-openmp
    package libopenblas0-serial
    package libblas-dev
    package liblapack-dev
    command_from crossbuild-essential-arm64 aarch64-linux-gnu-gcc
    command_from qemu-user qemu-aarch64
    package libgomp1:arm64
    package libcmocka-dev:arm64
    package libcjson-dev:arm64
    command_from debootstrap debootstrap
    command_from dpkg-dev dpkg-shlibdeps
    command_from fakeroot fakeroot
    command_from file file
fi

if [ -z "$missing" ]; then
    echo "setup.sh: everything that '$step' needs is installed"
    exit 0
fi

as_root=""
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
        echo "setup.sh: root or sudo is needed to install:$missing" >&2
        exit 1
    fi
    as_root=sudo
fi

echo "setup.sh: missing, installing by apt-get:$missing"
case $missing in
*:arm64*)
    echo "setup.sh: adding the architecture arm64 to dpkg for the libraries of the cross build"
    $as_root dpkg --add-architecture arm64
    ;;
esac
$as_root apt-get -q -o DPkg::Lock::Timeout=300 update
# shellcheck disable=SC2086
$as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 install \
    --no-install-recommends $missing
