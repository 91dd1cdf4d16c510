#!/bin/sh
# Each public header compiles alone and twice over, without a warning, as C99, C11 and C++17, and says its own name for the
# C linkage of what it declares. gdn_cuda.h needs no toolkit for what it declares.
#   headers_test.sh <include folder> <C compiler> [C++ compiler]
set -eu

include=$1
cc=$2
cxx=${3:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
warnings="-Wall -Wextra -Wpedantic -Wshadow -Wundef -Werror"
count=0

# compile <compiler> <standard> <suffix> <header>
compile() {
    printf '#include <gdn/%s>\n#include <gdn/%s>\nint main(void) { return 0; }\n' "$4" "$4" >"$work/alone.$3"
    # shellcheck disable=SC2086
    "$1" -std="$2" $warnings ${5:-} -I"$include" -fsyntax-only "$work/alone.$3"
    count=$((count + 1))
}

for path in "$include"/gdn/*.h; do
    header=$(basename "$path")
    for standard in c99 c11; do
        compile "$cc" "$standard" c "$header" -Wstrict-prototypes
    done
    if [ -n "$cxx" ]; then
        compile "$cxx" c++17 cpp "$header"
    fi
done

# A function declared with () takes anything in C.
if grep -nE '^[^*/]*\([[:space:]]*\)[[:space:]]*;' "$include"/gdn/*.h; then
    echo "headers_test.sh: a declaration without (void)" >&2
    exit 1
fi
echo "$count compilations of the headers alone"
