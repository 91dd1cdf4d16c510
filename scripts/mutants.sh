#!/bin/sh
# Builds the library once as it is and once with each deliberate fault of tests/mutants/faults.txt, in a copy. The suite must
# pass on the first and fail on all the others.
#   mutants.sh [fault to try alone]
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
faults=$root/tests/mutants/faults.txt
only=${1:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The tests that judge values; none of them knows of the faults.
suite='test_prefill_values|test_decode_options|test_laws|test_tails|test_formulas|test_golden'

copy() {
    mkdir "$work/source"
    (cd "$root" && tar c --exclude=./build --exclude=./.git .) | tar x -C "$work/source"
}

# build_and_run: the status of the suite; a build that fails ends this script.
build_and_run() {
    cmake -G Ninja -S "$work/source" -B "$work/build" -DCMAKE_BUILD_TYPE=Release -DGDN_CUDA=OFF -DGDN_WERROR=OFF \
        -DGDN_BUILD_EXAMPLES=OFF >"$work/log" 2>&1 && cmake --build "$work/build" >>"$work/log" 2>&1 || {
        tail -n 30 "$work/log" >&2
        echo "mutants.sh: $1 does not build" >&2
        exit 1
    }
    ctest --test-dir "$work/build" -j 2 -L cpu -R "$suite" >"$work/log" 2>&1
}

# edit <file> <what it says> <what it says instead>: fails where the line is not there any more.
edit() {
    sed "s|$2|$3|" "$work/source/$1" >"$work/edited"
    if cmp -s "$work/edited" "$work/source/$1"; then
        echo "mutants.sh: $1 has no \"$2\" any more; mend tests/mutants/faults.txt" >&2
        exit 1
    fi
    cp "$work/edited" "$work/source/$1"
}

copy
if ! build_and_run "the library as it is"; then
    grep -E 'Failed|Passed' "$work/log" >&2
    echo "mutants.sh: the suite fails on the library as it is" >&2
    exit 1
fi
echo "no fault: the suite passes"

missed=0
for fault in $(sed -n 's/^\([a-z_]*\) |.*/\1/p' "$faults" | uniq); do
    if [ -n "$only" ] && [ "$fault" != "$only" ]; then continue; fi
    grep "^$fault |" "$faults" >"$work/edits"
    while IFS='|' read -r _ file says instead; do
        file=$(echo "$file" | tr -d ' ')
        says=${says# }
        edit "$file" "${says% }" "${instead# }"
    done <"$work/edits"
    if build_and_run "$fault"; then
        echo "$fault: NOT NOTICED"
        missed=$((missed + 1))
    else
        echo "$fault: noticed by $(sed -n 's/.*- \([a-z_.0-9]*\) (Failed).*/\1/p' "$work/log" | tr '\n' ' ')"
    fi
    while IFS='|' read -r _ file says instead; do
        file=$(echo "$file" | tr -d ' ')
        cp "$root/$file" "$work/source/$file"
    done <"$work/edits"
done
[ "$missed" -eq 0 ] || { echo "mutants.sh: $missed faults were not noticed" >&2; exit 1; }
