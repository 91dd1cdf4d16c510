#!/bin/sh
# Installs the built library, moves the tree, and builds and runs consumers against it in every way a user may:
# {find_package, pkg-config} x {shared, static} x {C, C++}, and {add_subdirectory, FetchContent} from the sources.
#   install_test.sh <source folder> <build folder> [options of the build under test for add_subdirectory...]
set -eu

source_dir=$1
build_dir=$2
shift 2
here=$source_dir/tests/install/consumer
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
checks=0

# check <what> <command>...: runs it, shows its output only where it fails.
check() {
    what=$1
    shift
    checks=$((checks + 1))
    if "$@" >"$work/log" 2>&1; then
        echo "ok       $what"
    else
        echo "FAILED   $what: $*"
        cat "$work/log"
        failures=$((failures + 1))
    fi
}

cmake --install "$build_dir" --prefix "$work/first" >/dev/null
mkdir -p "$work/a path with spaces"
mv "$work/first" "$work/a path with spaces/prefix"
prefix="$work/a path with spaces/prefix"
lib_dir=$(dirname "$(find "$prefix" -name libgdn.a -o -name libgdn.so | head -n 1)")
LD_LIBRARY_PATH=$lib_dir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH

kinds=""
if [ -e "$lib_dir/libgdn.so" ]; then kinds="$kinds shared"; fi
if [ -e "$lib_dir/libgdn.a" ]; then kinds="$kinds static"; fi

# No file of the installed tree knows where it was built, installed or what its sources were.
check "the tree names no build path" sh -c "! grep -rIlF -e '$source_dir/' -e '$build_dir/' -e '$work/first' '$prefix/lib' '$prefix/include'"

# run_consumer <program> <library kind>: runs it and checks that it is linked as it says.
run_consumer() {
    "$1" || return 1
    if [ "$2" = static ]; then
        ! readelf -d "$1" | grep -q 'NEEDED.*libgdn'
    else
        readelf -d "$1" | grep -q 'NEEDED.*libgdn\.so\.[0-9]'
    fi
}

with_cmake() {
    way=$1 kind=$2 language=$3
    shift 3
    tree=$work/$way-$kind-$language
    cmake -G "$generator" -S "$here" -B "$tree" -DWAY="$way" -DKIND="$kind" -DLANGUAGE="$language" "$@" &&
        cmake --build "$tree" -j 2 && run_consumer "$tree/consumer" "$kind"
}

with_pkg_config() {
    kind=$1 compiler=$2 file=$3
    package=gdn
    if [ "$kind" = static ]; then package=gdn-static; fi
    PKG_CONFIG_PATH=$lib_dir/pkgconfig
    export PKG_CONFIG_PATH
    # eval, because pkg-config escapes the spaces of its paths for a shell.
    eval "$compiler '$here/$file' -o '$work/consumer' -Wall -Wextra -Werror -Wl,--no-undefined $(pkg-config --cflags --libs $package)" &&
        run_consumer "$work/consumer" "$kind"
}

generator="Unix Makefiles"
if command -v ninja >/dev/null; then generator=Ninja; fi

for kind in $kinds; do
    for language in C CXX; do
        check "find_package $kind $language" with_cmake find_package "$kind" "$language" "-DCMAKE_PREFIX_PATH=$prefix"
    done
    if command -v pkg-config >/dev/null; then
        check "pkg-config $kind C" with_pkg_config "$kind" "${CC:-cc}" consumer.c
        check "pkg-config $kind C++" with_pkg_config "$kind" "${CXX:-c++}" consumer.cpp
    else
        echo "skipped  pkg-config $kind: no pkg-config here"
    fi
    check "add_subdirectory $kind C" with_cmake add_subdirectory "$kind" C "-DGDN_SOURCE=$source_dir" -DCMAKE_BUILD_TYPE=Debug "$@"
done
# From a C++ project: libgdn enables C itself.
check "FetchContent C++" with_cmake FetchContent static CXX "-DGDN_SOURCE=$source_dir" -DCMAKE_BUILD_TYPE=Debug "$@"

# A full static link through `pkg-config --static gdn`.
if command -v pkg-config >/dev/null && [ -e "$lib_dir/libgdn.a" ] && [ -e "$lib_dir/pkgconfig/gdn.pc" ]; then
    static_link() {
        PKG_CONFIG_PATH=$lib_dir/pkgconfig
        export PKG_CONFIG_PATH
        libs=$(pkg-config --static --libs gdn | sed 's/-lgdn\( \|$\)/-l:libgdn.a /')
        eval "${CC:-cc} '$here/consumer.c' -o '$work/consumer' $(pkg-config --cflags gdn) $libs" &&
            run_consumer "$work/consumer" static
    }
    check "pkg-config --static gdn, -l:libgdn.a" static_link
fi

# A version or a component that is not there is refused by name.
refused() {
    if cmake -G "$generator" -S "$work/refused" -B "$work/refused/build" "-DCMAKE_PREFIX_PATH=$prefix" "-DARGUMENTS=$1"; then return 1; fi
}
mkdir "$work/refused"
printf '%s\n' 'cmake_minimum_required(VERSION 3.24)' 'project(refused C)' 'find_package(gdn ${ARGUMENTS} REQUIRED)' \
    >"$work/refused/CMakeLists.txt"
check "version 9 is refused" refused 9
check "component python is refused" refused "COMPONENTS;python"

echo "$((checks - failures)) of $checks install checks passed"
[ "$failures" -eq 0 ]
