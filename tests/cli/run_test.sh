#!/bin/sh
# The weft command from outside: exit codes, comparisons, files, JSON, traces, the cache of kernels.
# Small programs stand in tests/cli/programs; each agrees with the reference evaluator.
weft=$WEFT_BUILDDIR/weft
programs=$WEFT_SRCDIR/tests/cli/programs
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
cases=0

ok() { # STATUS DESCRIPTION
  cases=$((cases + 1))
  if [ "$1" -eq 0 ]; then echo "ok $cases - $2"; return; fi
  echo "not ok $cases - $2"
  sed 's/^/# /' "$tmp/out" "$tmp/err"
}
# exits WANTED DESCRIPTION COMMAND...: its output is in $tmp/out and $tmp/err
exits() {
  wanted=$1 what=$2
  shift 2
  timeout 300 "$@" >"$tmp/out" 2>"$tmp/err"
  code=$?
  [ $code -eq "$wanted" ] || echo "# exit code $code, wanted $wanted: $*"
  ok "$((code != wanted))" "$what"
}
says() { grep -q -e "$1" "$tmp/out" "$tmp/err"; ok $? "... and says \"$1\""; }
json() { # an expression on the object `d`
  if ! command -v python3 >/dev/null; then cases=$((cases + 1)); echo "ok $cases - $1 # SKIP no python3"; return; fi
  python3 -c "import json, sys; d = json.load(open(sys.argv[1])); assert $1" "$2" 2>>"$tmp/err"
  ok $? "$1"
}

for program in "$programs"/*.hlo; do
  exits 0 "$(basename "$program") agrees with the reference" "$weft" run "$program" --quiet --compare reference
done

add=$programs/add.hlo
exits 0 "results and inputs are written" "$weft" run "$add" --output-dir "$tmp/results" --save-inputs "$tmp/inputs"
exits 0 "what was written is what is expected" \
  "$weft" run "$add" --input "$tmp/inputs/input_0.npy" --input "$tmp/inputs/input_1.npy" --expect "$tmp/results"
exits 1 "other inputs give other results" "$weft" run "$add" --seed 3 --expect "$tmp/results"
says "result 0: 6 of 6 elements differ from .*result_0.npy; worst at \[[0-9],[0-9]\]: got .*, want .* times the tolerance"
exits 0 "a tolerance as large as the differences" "$weft" run "$add" --seed 3 --expect "$tmp/results" --atol 100
exits 1 "differences beside JSON" "$weft" run "$add" --seed 3 --expect "$tmp/results" --json
json 'd["differences"] == 1 and d["results"][0]["shape"] == "f32[2,3]"' "$tmp/out"
exits 0 "JSON of timed runs" "$weft" run "$add" --repeat 3 --json
json 'd["repeat"] == 3 and d["median_ms"] > 0 and d["compile_ms"] > 0 and d["peak_rss_mb"] > 0 and d["temp_bytes"] == 0' "$tmp/out"

exits 0 "a profile and a timeline" "$weft" run "$programs/scan.hlo" --quiet --profile --timeline "$tmp/timeline.svg"
says "self ms .* step"
exits 0 "the timeline is XML" python3 -c 'import sys, xml.dom.minidom as x; assert x.parse(sys.argv[1]).getElementsByTagName("g")' "$tmp/timeline.svg"
exits 0 "a profile in JSON" "$weft" run "$programs/scan.hlo" --json --profile
json 'd["profile"] and all(s["count"] > 0 and s["self_ms"] >= 0 and s["kind"] and s["name"] for s in d["profile"])' "$tmp/out"
cat >"$tmp/named.hlo" <<'END'
e { x = f32[40,40] parameter(0)
 ROOT d = f32[40,40] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(step)/dot_general" source_file="step.py" source_line=41} }
END
exits 0 "the profile of a program that tells its source" "$weft" run "$tmp/named.hlo" --profile
says "dot .*(jit(step)/dot_general, step.py:41)"
exits 0 "the memory plan and the steps, drawn" "$weft" inspect "$programs/scan.hlo" --memory --svg "$tmp/plan.svg"
exits 0 "..." "$weft" inspect "$programs/scan.hlo" --thunks --svg "$tmp/steps.svg"
exits 0 "they are XML with a legend" python3 -c '
import sys, xml.dom.minidom as x
for path in sys.argv[1:]: assert any(t.firstChild.data in ("fusion", "kernel") for t in x.parse(path).getElementsByTagName("text"))' \
  "$tmp/steps.svg" "$tmp/timeline.svg"
exits 0 "a program from standard input" sh -c "'$weft' run - <'$add'"
exits 0 "XLA_FLAGS are read" env XLA_FLAGS="--xla_dump_to=$tmp/dump --xla_dump_hlo_as_text --xla_no_such_flag=1" "$weft" run "$add" --quiet
says "xla_no_such_flag is no flag"
ls "$tmp"/dump/*before_optimizations.txt >/dev/null; ok $? "... and files are dumped"
exits 2 "a flag with a bad value" env XLA_FLAGS=--xla_dump_hlo_as_text=maybe "$weft" run "$add" --quiet
says "not a valid bool"
exits 0 "a level of the log that is none" env WEFT_LOG=coll:verbose,debug "$weft" run "$add" --quiet
says 'WEFT_LOG: expected .* got "coll:verbose"'
exits 2 "a file that is no program" "$weft" run "$tmp/inputs/input_0.npy"
says "no program: expected HLO text"
echo 'module { func.func @main(%a: tensor<f33>) { return } }' >"$tmp/bad.mlir"
exits 2 "an error in StableHLO" "$weft" run "$tmp/bad.mlir"
says '^ *^$'
exits 2 "a timeline that cannot be written" "$weft" run "$add" --timeline "$tmp/none/timeline.svg"
says "cannot write"

exits 2 "no program" "$weft" run
exits 2 "an unknown option" "$weft" run "$add" --bogus
exits 2 "a file that is not there" "$weft" run "$tmp/none.hlo"
says "no such file"
exits 2 "an expectation that is not there" "$weft" run "$add" --expect "$tmp/none"
echo 'e { x = f32[4' >"$tmp/bad.hlo"
exits 2 "text that ends early" "$weft" run "$tmp/bad.hlo"
says "2:1: expected ',', got the end of the text"
exits 2 "more inputs than parameters" \
  "$weft" run "$add" --input "$tmp/inputs/input_0.npy" --input "$tmp/inputs/input_0.npy" --input "$tmp/inputs/input_0.npy"
says "3 inputs given, the program has 2 parameters"
awk 'BEGIN {
  print "c0 { p = f32[] parameter(0) q = f32[] parameter(1) ROOT s = f32[] add(p, q) }"
  for (i = 1; i < 3000; i++) print "c" i " { p = f32[] parameter(0) q = f32[] parameter(1) a = f32[1] broadcast(p), dimensions={}" \
    " ROOT r = f32[] reduce(a, q), dimensions={0}, to_apply=c" i - 1 " }"
  print "ENTRY e { x = f32[4] parameter(0) z = f32[] constant(0) ROOT r = f32[] reduce(x, z), dimensions={0}, to_apply=c2999 }"
}' >"$tmp/deep.hlo"
exits 2 "reducers that nest 3000 deep" "$weft" run "$tmp/deep.hlo"
says "nested too deeply"
head -c 40 "$tmp/inputs/input_0.npy" >"$tmp/short.npy"
exits 2 "an array file cut short" "$weft" run "$add" --input "$tmp/short.npy"
echo 'e { x = f32[4611686018427387904] parameter(0) }' >"$tmp/huge.hlo"
exits 2 "2^62 elements" "$weft" run "$tmp/huge.hlo"
echo 'e { x = f32[1099511627776] parameter(0) }' >"$tmp/big.hlo"
exits 3 "an array larger than the machine" "$weft" run "$tmp/big.hlo"

mkdir "$tmp/dumps"
printf 'module @"../../evil" { func.func @main(%%a: tensor<f32>) -> tensor<f32> { return %%a : tensor<f32> } }' >"$tmp/evil.mlir"
exits 0 "a dump of each pass" env WEFT_DUMP_HLO="$tmp/dumps/here" "$weft" run "$tmp/evil.mlir"
[ "$(ls "$tmp/dumps")" = here ] && grep -q HloModule "$tmp"/dumps/here/*.hlo
ok $? "a module's name leads nowhere else"

exits 0 "a trace" env WEFT_TRACE="$tmp/trace.json" "$weft" run "$add"
json 'all(e["ph"] for e in d["traceEvents"])' "$tmp/trace.json"

# The cache: filled by the first run, used by the second, damaged files are made anew, an unusable folder only warns.
cached() { WEFT_CACHE_DIR=$tmp/cache "$weft" run "$add" --quiet --compare reference >"$tmp/out" 2>"$tmp/err"; }
cached
ok $? "a run that fills the cache"
[ "$(stat -c %a "$tmp/cache")" = 700 ]
ok $? "the folder is the user's alone"
file=$(ls "$tmp/cache"/*.o)
cp "$file" "$tmp/object"
touch -d '2 days ago' "$file"
cached
[ -n "$(find "$file" -mtime +0)" ]
ok $? "a run that takes the kernel from the cache"
for damage in "head -c 300 $tmp/object" "head -c 700 /dev/urandom" true; do
  $damage >"$file"
  cached && cmp -s "$file" "$tmp/object"
  ok $? "a damaged file is made anew ($damage)"
done
touch "$tmp/file"
exits 0 "a cache that cannot be" env WEFT_CACHE_DIR="$tmp/file" "$weft" run "$add"
says "WARN codegen"

exits 0 "weft info" "$weft" info
says "WEFT_CACHE_DIR"
exits 0 "the plan" "$weft" inspect "$programs/tiles.hlo" --memory --svg "$tmp/plan.svg"
says "lower bound .*fragmentation"
head -c 4 "$tmp/plan.svg" | grep -q "<svg"
ok $? "a picture of it"
exits 0 "the steps" "$weft" inspect "$programs/tiles.hlo" --thunks --svg "$tmp/steps.svg"
says "thunks"
exits 0 "the passes" "$weft" inspect "$programs/tiles.hlo" --passes
says "fusion .*changed"
exits 0 "the module after a pass" "$weft" inspect "$programs/tiles.hlo" --after fusion
says "kind=kLoop"
exits 0 "the executed module" "$weft" inspect "$programs/tiles.hlo" --optimized
kernel=$(sed -n 's/^.* \([a-z_.0-9-]*fusion[.0-9]*\) = .*/\1/p' "$tmp/out" | head -n 1)
exits 0 "a kernel's code" "$weft" inspect "$programs/tiles.hlo" --kernel "$kernel"
says "define .*ptr"
exits 0 "the kernels' strategies" "$weft" inspect "$programs/tiles.hlo" --kernels
says "fusion.* loop "
exits 0 "what it costs" "$weft" inspect "$programs/tiles.hlo" --cost
cat >"$tmp/gather.hlo" <<END
HloModule gather
ENTRY e { a = f32[4] parameter(0) ROOT b = f32[32] all-gather(a), dimensions={0}, replica_groups=[1,8]<=[8] }
END
exits 0 "a program of eight devices" "$weft" inspect "$tmp/gather.hlo" --devices 8 --memory
exits 2 "no devices" "$weft" inspect "$tmp/gather.hlo" --devices 0
exits 2 "a kernel that is not there" "$weft" inspect "$programs/tiles.hlo" --kernel none
"$weft" inspect "$programs/tiles.hlo" --emit=hlo-proto >"$tmp/tiles.pb"
exits 0 "a proto, told by its content" "$weft" run "$tmp/tiles.pb" --quiet --compare reference
# Its first byte is a newline's and it goes on for kilobytes without a byte of zeros.
{
  echo "HloModule a_module"
  echo "ENTRY main { x = f32[] parameter(0)"
  echo "y0 = f32[] add(x, x)"
  for i in $(seq 1 200); do echo "y$i = f32[] add(x, y$((i - 1)))"; done
  echo "ROOT z = f32[] negate(y200) }"
} >"$tmp/chain.hlo"
"$weft" inspect "$tmp/chain.hlo" --emit=hlo-proto >"$tmp/chain.pb"
exits 0 "a proto that begins with a newline" "$weft" run "$tmp/chain.pb" --quiet --compare reference
# Estimates: the memory plan and the steps say the same, and a loop counts by its rounds.
loop() { # ROUNDS
  echo "HloModule loop"
  echo "cond { p = (s32[], f32[64,64]) parameter(0)  i = s32[] get-tuple-element(p), index=0  n = s32[] constant($1)"
  echo "  ROOT c = pred[] compare(i, n), direction=LT }"
  echo "body { p = (s32[], f32[64,64]) parameter(0)  i = s32[] get-tuple-element(p), index=0  one = s32[] constant(1)"
  echo "  j = s32[] add(i, one)  a = f32[64,64] get-tuple-element(p), index=1"
  echo "  d = f32[64,64] dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}  s = f32[64,64] sine(d)"
  echo "  ROOT r = (s32[], f32[64,64]) tuple(j, s) }"
  echo "ENTRY main { x = f32[64,64] parameter(0)  z = s32[] constant(0)  t = (s32[], f32[64,64]) tuple(z, x)"
  echo "  w = (s32[], f32[64,64]) while(t), condition=cond, body=body  ROOT y = f32[64,64] get-tuple-element(w), index=1 }"
}
# estimates FILE: "PATH WORK" of the memory plan, then of the entry's steps
estimates() {
  "$weft" inspect "$1" --memory | sed -n 's/^critical path .* by data, \([0-9.]*\) us with the plan; all steps \([0-9.]*\) us/\1 \2/p'
  "$weft" inspect "$1" --thunks | sed -n 's/^entry .* \([0-9.]*\) us of work, longest path \([0-9.]*\) us/\2 \1/p'
}
loop 200 >"$tmp/many.hlo"
loop 20 >"$tmp/few.hlo"
estimates "$tmp/many.hlo" >"$tmp/out"
[ "$(wc -l <"$tmp/out")" -eq 2 ] && [ "$(sort -u "$tmp/out" | wc -l)" -eq 1 ]
ok $? "the memory plan's estimates are those of the steps"
{ head -n 1 "$tmp/out"; estimates "$tmp/few.hlo" | head -n 1; } | tr '\n' ' ' >"$tmp/err"
awk '{ exit !($1 > 8 * $3 && $2 > 8 * $4) }' "$tmp/err"
ok $? "ten times the rounds take about ten times as long"
echo "1..$cases"
