#!/bin/sh
# Builds the fuzz targets and runs each for a while; a crash leaves its input in the build folder and fails.
#   fuzz.sh [seconds for each target, default 30]
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
seconds=${1:-30}
build=$root/build/fuzz

cd "$root"
mkdir -p build
cmake --preset fuzz >"$root/build/fuzz-configure.log" 2>&1 || { cat "$root/build/fuzz-configure.log"; exit 1; }
cmake --build --preset fuzz

count=0
for source in tests/fuzz/*_fuzz.c; do
    name=$(basename "$source" .c)
    corpus=$build/corpus/$name
    mkdir -p "$corpus"
    seeds=""
    if [ -d "tests/fuzz/$name.seeds" ]; then seeds=tests/fuzz/$name.seeds; fi
    echo "+ $name for $seconds s"
    # shellcheck disable=SC2086
    "$build/tests/fuzz/$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 -max_len=65536 -print_final_stats=1 \
        -verbosity=0 -artifact_prefix="$corpus-" "$corpus" $seeds >"$corpus.log" 2>&1 || {
        cat "$corpus.log"
        echo "fuzz.sh: $name found something; its input is beside $corpus.log" >&2
        exit 1
    }
    sed -n 's/^stat::number_of_executed_units: */    inputs tried: /p' "$corpus.log"
    count=$((count + 1))
done
if [ "$count" -eq 0 ]; then
    echo "fuzz.sh: no target found in tests/fuzz" >&2
    exit 1
fi
echo "$count fuzz targets ran $seconds s each without a finding"
