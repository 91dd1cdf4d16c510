#!/bin/sh
# The gdn program from outside: what it computes, its exit codes, and that wrong usage is one line that says what is right.
#   commands_test.sh GDN DATA_FOLDER SCRATCH_FOLDER
set -u
gdn=$1
data=$2
scratch=$3
rm -rf "$scratch"
mkdir -p "$scratch"
failures=0

fail() {
    echo "FAIL: $*"
    failures=$((failures + 1))
}

# expect CODE ARGUMENTS...: runs gdn; output in $scratch/out and $scratch/err.
expect() {
    wanted=$1
    shift
    # Unquoted: the emulator's words, or nothing.
    ${GDN_TEST_EMULATOR:-} "$gdn" "$@" >"$scratch/out" 2>"$scratch/err"
    code=$?
    [ "$code" -eq "$wanted" ] || fail "gdn $*: exit code $code, expected $wanted: $(cat "$scratch/err")"
}

# says TEXT: the last run's standard output has it.
says() { grep -qF -- "$1" "$scratch/out" || fail "no '$1' in: $(cat "$scratch/out")"; }

# refuses TEXT ARGUMENTS...: exit code 2, nothing on stdout, one line on stderr that has the text.
refuses() {
    text=$1
    shift
    expect 2 "$@"
    [ -s "$scratch/out" ] && fail "gdn $*: wrong usage printed to stdout"
    [ "$(wc -l <"$scratch/err")" -eq 1 ] || fail "gdn $*: not one line: $(cat "$scratch/err")"
    grep -qF -- "$text" "$scratch/err" || fail "gdn $*: no '$text' in: $(cat "$scratch/err")"
}

expect 0 --version
says "gdn "
expect 0 --help
for command in info prefill decode verify bench; do
    expect 0 $command --help
    says "usage: gdn $command"
done
expect 0 info --self-test
says "self-test of cpu: PASS"
expect 0 info --json
says '"version"'

# Every recorded layer, within float32 rounding of what its own model computed, by prefill and by decode.
for file in "$data"/*.safetensors; do
    expect 0 prefill "$file" -o "$scratch/prefill.safetensors" --backend cpu --min-time 0 --max-error 2e-6
    says "o against ref.o"
    says "final_state against ref.final_state"
    expect 0 decode "$file" -o "$scratch/decode.safetensors" --backend cpu --tokens-per-row 3 --max-error 2e-6
    says "o against ref.o"
    [ -s "$scratch/decode.safetensors" ] || fail "decode wrote nothing"
    # What was written is a layer file's output, not its input: read again it is refused by name.
    expect 2 prefill "$scratch/prefill.safetensors" --backend cpu
    grep -q "tensors q" "$scratch/err" || fail "an output read as input: $(cat "$scratch/err")"
done
one=$(find "$data" -name '*decode*.safetensors')
expect 0 prefill "$one" --backend cpu --min-time 0 --dtype bf16 --impl generic --chunk 16
says "generic"
# The hint may be whatever the library takes.
expect 0 prefill "$one" --backend cpu --min-time 0 --impl generic --chunk 2147483647 --max-error 2e-6
says "chunk size: 256 tokens"
refuses "--chunk: '2147483648' is not an integer in 0..2147483647" prefill --chunk 2147483648 x
expect 1 prefill "$one" --backend cpu --min-time 0 --max-error 1e-12
python3 - "$one" "$scratch/no_reference.safetensors" <<'PY'
import json, struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
size = struct.unpack("<Q", data[:8])[0]
begin, _ = json.loads(data[8 : 8 + size])["ref.o"]["data_offsets"]
data[8 + size + begin : 8 + size + begin + 4] = struct.pack("<f", float("nan"))
open(sys.argv[2], "wb").write(data)
PY
expect 0 prefill "$scratch/no_reference.safetensors" --backend cpu --min-time 0
expect 1 prefill "$scratch/no_reference.safetensors" --backend cpu --min-time 0 --max-error 1
refuses "no-such-file" prefill "$scratch/no-such-file" --backend cpu
expect 1 prefill "$one" --backend cpu --min-time 0 -o "$scratch/no/such/folder"
head -c 5000 "$one" >"$scratch/cut.safetensors"
refuses "cut.safetensors" prefill "$scratch/cut.safetensors" --backend cpu
refuses "cut.safetensors" decode "$scratch/cut.safetensors" --backend cpu
expect 2 prefill "$one" --backend cpu --impl ,,
[ "$(wc -l <"$scratch/err")" -eq 1 ] || fail "a wrong list: not one line: $(cat "$scratch/err")"

expect 0 verify --backend cpu --count 25 --seed 3 'heads=1/2 dim=16 seqs=70,0,5' --repro
says "PASS: 26 passed, 0 failed, 0 skipped"
says "repro: gdn verify 'heads=1/2 dim=16 seqs=70,0,5'"
expect 0 verify --backend cpu --count 15 --impl generic --quiet
says "0 failed"
# bfloat16 products, where the CPU has them, are held to the bound that docs/numerics.md states.
${GDN_TEST_EMULATOR:-} "$gdn" verify --backend cpu 'heads=2 dim=64 seqs=300 numerics=bf16' >"$scratch/out" 2>&1
grep -q GDN_ERROR_UNSUPPORTED "$scratch/out" || says "(<= 5.0e-03)"
# TF32 products exist on no CPU: what is asked for and cannot be is a failure.
expect 1 verify --backend cpu 'heads=2 dim=16 tokens=20 numerics=tf32'
says "FAIL GDN_ERROR_UNSUPPORTED"
says "repro: gdn verify"

expect 0 bench --backend cpu --no-ceilings --repeat 3 'heads=2 dim=16 tokens=20' 'op=decode heads=2 dim=16 rows=2 state=pool'
says "op=decode"
expect 0 bench --backend cpu --no-ceilings --repeat 3 --json 'heads=2 dim=16 tokens=20'
says '"tokens_per_second"'

# A list that excludes nothing, mistyped, is said to.
expect 0 bench --backend cpu --no-ceilings --repeat 3 --impl=-cpu.scaler 'heads=2 dim=16 tokens=20'
grep -qF 'gdn: warning: implementations: "-cpu.scaler" names nothing' "$scratch/err" || fail "no warning: $(cat "$scratch/err")"
export GDN_VERBOSE=1
expect 0 verify --backend cpu 'heads=2 dim=16 tokens=20'
grep -qF 'gdn: backend cpu: ' "$scratch/err" || fail "GDN_VERBOSE printed nothing: $(cat "$scratch/err")"
unset GDN_VERBOSE

refuses "allowed: info, prefill, decode, verify, bench"
refuses "unknown command 'run'" run
refuses "operand 'x' is not expected" info x
refuses "unknown or ambiguous option '--fast'" bench --fast
refuses "lacks its value" bench --repeat
refuses "--repeat: '0' is not an integer in 1..4096" bench --repeat 0 'tokens=1'
refuses "--threads: 'two' is not an integer" verify --threads two --count 1
refuses "--backend: 'gpu' is not one of auto, cpu, cuda" prefill --backend gpu x
refuses "--dtype: 'f64' is not one of f32, bf16, f16" prefill --dtype f64 x
refuses "exactly one" prefill
refuses "exactly one" decode a b
refuses "--tokens-per-row: '17'" decode -n 17 x
refuses "--cpu-time: allowed with --backend cpu --threads 1" bench --cpu-time 'tokens=1'
refuses "no problem given" verify
refuses "is not a key" verify 'head=1'
refuses "problem 2: tokens: 'x'" bench 'tokens=1' 'tokens=x'

if [ "$failures" -ne 0 ]; then
    echo "$failures failures"
    exit 1
fi
rm -rf "$scratch"
