#!/bin/sh
# Nothing outside the files made for an instruction set may need it: the library starts on any machine of the
# architecture and chooses at run time. Looks at the machine code of each member of libgdn.a.
#   check_isa.sh <libgdn.a> [objdump, default objdump]
set -eu

archive=$(realpath "$1")
objdump=${2:-objdump}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# refuse <pattern of members> <what they must not have> <its name>
refuse() {
    for member in $(ar t "$archive" | grep -E "$1" || true); do
        checked=$((checked + 1))
        "$objdump" -d --no-show-raw-insn "$work/$member" >"$work/code"
        if grep -m 3 -E "$2" "$work/code"; then
            echo "FAILED: $member has $3"
            failed=1
        fi
    done
}

checked=0
(cd "$work" && ar x "$archive")
case $("$objdump" -f "$work"/error.c.o | sed -n 's/^architecture: \([^,]*\).*/\1/p') in
i386:x86-64)
    # AVX and later are the mnemonics with a v; masks and registers above 15 are AVX-512. Of SSE, the baseline ends at 2.
    avx='	v[a-z0-9]+ .*%[xyz]mm'
    avx512='%zmm|%[xy]mm(1[6-9]|2[0-9]|3[01])|\{%k[0-7]\}|%k[1-7]'
    refuse '^avx2_' "$avx512" "AVX-512 instructions"
    for member in $(ar t "$archive" | grep -vE '^(avx2|avx512|amx)_'); do
        refuse "^$member\$" "$avx|$avx512|	(tile|tdp|crc32|popcnt|pshufb|blendv|round[sp][sd]|dpps|pmull[dq])" "instructions above the x86-64 baseline"
    done
    ;;
aarch64)
    for member in $(ar t "$archive" | grep -vE '^(neon|sve)_'); do
        refuse "^$member\$" '	(ptrue|whilelo|sdot|udot|bfdot|bfmmla|smmla)	' "instructions above the armv8-a baseline"
    done
    ;;
*)
    echo "check_isa.sh: no rule for this architecture"
    exit 77
    ;;
esac
[ "$failed" -eq 0 ] && echo "$checked objects keep to their instruction set"
