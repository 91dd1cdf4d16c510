#!/bin/sh
# The exported names are a list: what the shared library exports, what the header declares and gdn.symbols agree;
# the static library defines nothing global outside gdn_*, and nothing but gdn_* is exported.
#   abi_test.sh <source folder> <libgdn.so or ""> <libgdn.a>
set -eu

source_dir=$1
shared=$2
static=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

fail() {
    echo "FAILED: $*"
    failed=1
}

sed -e 's/^#.*//' -e '/^$/d' "$source_dir/tests/abi/gdn.symbols" | sort >"$work/list"
# A declaration starts with GDN_API; the function's name is the word before the first parenthesis.
sed -n 's/^GDN_API [^(]*[ *]\(gdn_[a-z0-9_]*\)(.*/\1/p' "$source_dir/include/gdn/gdn.h" | sort >"$work/header"

diff -u "$work/list" "$work/header" || fail "tests/abi/gdn.symbols and include/gdn/gdn.h differ"
if [ -n "$shared" ]; then
    nm -D --defined-only "$shared" | awk '$2 != "A" { print $3 }' | sed 's/@.*//' | sort >"$work/shared"
    diff -u "$work/list" "$work/shared" || fail "tests/abi/gdn.symbols and the exports of $shared differ"
    readelf -d "$shared" | grep -q 'SONAME.*\[libgdn\.so\.0\]' || fail "the SONAME of $shared is not libgdn.so.0"
    if readelf -d "$shared" | grep -E 'NEEDED.*lib(cuda|cudart|cublas|nv)'; then
        fail "$shared needs NVIDIA software to load"
    fi
fi
nm -g --defined-only "$static" | awk 'NF == 3 && $3 !~ /^gdn_/ { print $3 }' >"$work/stray"
if [ -s "$work/stray" ]; then
    fail "$static defines global names outside gdn_*: $(tr '\n' ' ' <"$work/stray")"
fi
# Embedded in another shared library, the static one must not be exported again.
readelf -sW "$static" | awk '$8 ~ /^gdn_/ && $5 == "GLOBAL" && $7 != "UND" && $6 != "HIDDEN" { print $8 }' >"$work/visible"
if [ -s "$work/visible" ]; then
    fail "$static has names that are not hidden: $(tr '\n' ' ' <"$work/visible")"
fi

[ "$failed" -eq 0 ] && echo "$(wc -l <"$work/list") exported names agree"
