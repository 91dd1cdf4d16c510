#!/bin/sh
# Fails where clang-format would change a file. `check_format.sh --fix` changes it.
set -eu

cd "$(dirname "$0")/.."
mode="--dry-run -Werror"
if [ "${1:-}" = --fix ]; then mode=-i; fi
files=$(find . \( -path './build*' -o -path './.?*' \) -prune -o -type f \
    \( -name '*.c' -o -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print | sort)
# shellcheck disable=SC2086
clang-format $mode $files
echo "$(echo "$files" | wc -l) files are formatted"
