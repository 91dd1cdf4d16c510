# Sourced by test.sh and check_all.sh: named steps that all run, and a summary that names what failed.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
mkdir -p build/log
jobs=$(nproc)
# Tests run side by side, so threads that wait must not spin.
export OMP_WAIT_POLICY=passive
summary=()
failed=0
started=$SECONDS

# step <name> <command>...: runs it with its output shown and kept in build/log; a failure does not stop the others.
step() {
    local name=$1 log before=$SECONDS result
    shift
    log=build/log/${name//[^a-zA-Z0-9.]/_}.log
    echo
    echo "==== $name"
    if ("$@") 2>&1 | tee "$log"; then
        result=ok
    else
        result=FAILED
        failed=$((failed + 1))
    fi
    summary+=("$(printf '%-6s %5d s  %s' "$result" $((SECONDS - before)) "$name")")
    # CTest's own closing line, for the summary.
    local closing
    closing=$(grep -E '^[0-9]+% tests passed' "$log" | tail -n 1 || true)
    if [ -n "$closing" ]; then summary+=("                 $closing"); fi
}

# skip <name> <why>: what cannot run here is said, not left out silently.
skip() {
    summary+=("$(printf '%-6s          %s: %s' skip "$1" "$2")")
}

# build_and_test <preset> [configure options...]: the three steps of a preset; tests run in parallel, GPU ones skip
# themselves.
build_and_test() {
    local preset=$1
    shift
    cmake --preset "$preset" "$@" && cmake --build --preset "$preset" && ctest --preset "$preset" -j "$jobs"
}

finish() {
    echo
    echo "==== summary, $((SECONDS - started)) s"
    printf '%s\n' "${summary[@]}"
    if [ "$failed" -gt 0 ]; then
        echo "$failed steps failed; their output is in build/log"
        exit 1
    fi
}
