#!/usr/bin/env bash
# Checks the CUDA backend on the machine's own GPU: builds for its architecture, runs every test of label gpu, runs the
# smoke test under each tool of compute-sanitizer, and measures a little. Prints a table last; exits with 0 only
# if nothing failed. About five minutes with 16 cores.
#   gpu_check.sh [build folder]      default build/gpu; made if need be
# CMAKE_ARGS in the environment is given to cmake.
set -u
cd "$(dirname "$0")/.." || exit 1
build=${1:-build/gpu}
mkdir -p "$build"
log=$build/gpu_check
mkdir -p "$log"
table=$log/table
: >"$table"
: >"$log/failures"
failed=0
start=$SECONDS

row() { # row <name> <verdict> <detail>
    printf '%-34s %-8s %s\n' "$1" "$2" "$3" >>"$table"
    [ "$2" = FAILED ] && failed=1
    printf '[%4d s] %s: %s %s\n' "$((SECONDS - start))" "$1" "$2" "$3"
}

# Last of all what failed: its own words first, then the table.
finish() {
    echo
    cat "$log/failures" "$table"
    echo "total: $((SECONDS - start)) s, logs in $log"
    exit $failed
}

if ! command -v nvidia-smi >/dev/null || ! nvidia-smi -L >/dev/null 2>&1; then
    echo "gpu_check.sh: no NVIDIA device (nvidia-smi finds none)" >&2
    exit 77
fi
row device ok "$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1)"

# Only what this device runs: 9.0 has instructions of its own, which need the "a" of 90a.
arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d '.')
[ "$arch" = 90 ] && arch=90a

# Ninja where it is: one configure step less of waiting. With debugging information the sanitizers name source lines;
# the device's code is the same. Word splitting of CMAKE_ARGS is meant.
command -v ninja >/dev/null && [ ! -f "$build/CMakeCache.txt" ] && export CMAKE_GENERATOR=Ninja
configure() {
    # shellcheck disable=SC2086
    cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DGDN_CUDA=ON -DGDN_CUDA_ARCHS="$arch" \
        ${CMAKE_ARGS:-} >"$log/configure" 2>&1
}
# Packages that are missing are installed where the machine has a way to; else what CMake asks for is said.
if ! configure; then
    timeout 300 scripts/setup.sh test >"$log/setup" 2>&1
    if ! configure; then
        grep -A4 'CMake Error' "$log/configure"
        grep 'missing' "$log/setup"
        row build FAILED "CMake does not configure, and scripts/setup.sh test could not mend it; see $log"
        finish
    fi
fi
if ! cmake --build "$build" --parallel "$(nproc)" --target all gdn_cuda_racecheck >"$log/build" 2>&1; then
    tail -20 "$log/build"
    row build FAILED "see $log/build"
    finish
fi
row build ok "sm_$arch, $((SECONDS - start)) s"

if (cd "$build" && timeout 420 ctest -L gpu -j 8 --output-on-failure) >"$log/tests" 2>&1; then
    verdict=ok
else
    verdict=FAILED
    # Their names, then what they printed, without a word of those that passed.
    {
        sed -n '/The following tests FAILED/,/^$/p' "$log/tests"
        grep -vE '^ *Start | (Passed|\*\*\*Skipped) +[0-9.]+ sec$|^\[ +(RUN|OK) +\]|^$' "$log/tests"
    } | head -c 6000 >"$log/failures"
fi
skipped=$(grep -c '(Skipped)' "$log/tests")
row "tests, label gpu" $verdict "$(grep 'tests passed' "$log/tests" | head -1), $skipped skipped"

smoke=$(find "$build/tests/gpu" -name test_cuda_smoke -type f | head -1)
for tool in memcheck racecheck initcheck synccheck; do
    if ! command -v compute-sanitizer >/dev/null; then
        row "compute-sanitizer $tool" skipped "compute-sanitizer is not installed"
        continue
    fi
    # racecheck needs a module of its own (backend_cuda/CMakeLists.txt).
    module=$build
    [ $tool = racecheck ] && module=$build/racecheck
    GDN_BACKEND_PATH=$module GDN_TEST_SMALL=1 timeout 150 compute-sanitizer --tool $tool --error-exitcode 86 \
        "$smoke" >"$log/$tool" 2>&1
    status=$?
    detail=$(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$log/$tool" | tail -1 | sed 's/^=* *//')
    if grep -q 'Device not supported' "$log/$tool"; then
        row "compute-sanitizer $tool" skipped "the runtime here does not let it watch the device"
    elif [ $status = 0 ]; then
        row "compute-sanitizer $tool" ok "$detail"
    else
        row "compute-sanitizer $tool" FAILED "exit $status, $detail"
        grep -v '^\[' "$log/$tool" | head -20
    fi
done

gdn=$(find "$build/tools" -maxdepth 1 -name gdn -type f | head -1)
if [ -n "$gdn" ]; then
    # A process that loads the library, makes a context and a plan, and calls: nothing is compiled on the way.
    begin=$(date +%s%N)
    if first=$("$gdn" bench --backend cuda --backend-path "$build" --no-ceilings --repeat 1 --judge 0 \
        'heads=16/32 seqs=64 dtype=bf16' 2>&1); then
        row "a process with one call" ok "$((($(date +%s%N) - begin) / 1000000)) ms from start to end"
    else
        row "a process with one call" FAILED "$(echo "$first" | tail -1)"
    fi

    problems=()
    for regime in weak strong; do
        problems+=("heads=16/32 seqs=4096 dtype=bf16 final=f32 decay=$regime"
            "heads=16/32 seqs=8x4096 dtype=bf16 final=f32 decay=$regime"
            "heads=4/8 seqs=32x1024 dtype=bf16 final=f32 norm=rsqrt decay=$regime")
    done
    problems+=('heads=16/32 seqs=4096 dtype=f32' 'heads=16/32 seqs=16384 dtype=f32')
    for rows in 1 32 128 512; do
        problems+=("op=decode heads=16/32 rows=$rows dtype=bf16 state=pool:f32")
    done
    if timeout 150 "$gdn" bench --backend cuda --backend-path "$build" --min-time 0.1 --judge 1 "${problems[@]}" \
        >"$log/bench" 2>&1; then
        row "gdn bench" ok "below"
    else
        row "gdn bench" FAILED "$(tail -1 "$log/bench")"
    fi
    cat "$log/bench"
fi
finish
