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
says "agrees with .*/results: 1 result, no error"
exits 0 "an error within the tolerance is told" "$weft" run "$add" --seed 3 --expect "$tmp/results" --atol 100
says "agrees with .*, largest error [0-9.e-]*, at most [0-9.e-]* of the tolerance"
exits 1 "other inputs give other results" "$weft" run "$add" --seed 3 --expect "$tmp/results"
says "result 0: 6 of 6 elements differ from .*result_0.npy; worst at \[[0-9],[0-9]\]: got .*, want .* times the tolerance"
exits 0 "a tolerance as large as the differences" "$weft" run "$add" --seed 3 --expect "$tmp/results" --atol 100
exits 1 "differences beside JSON" "$weft" run "$add" --seed 3 --expect "$tmp/results" --json
json 'd["differences"] == 1 and d["results"][0]["shape"] == "f32[2,3]"' "$tmp/out"
exits 0 "JSON of timed runs" "$weft" run "$add" --repeat 3 --json
json 'd["repeat"] == 3 and d["median_ms"] > 0 and d["compile_ms"] > 0 and d["peak_rss_mb"] > 0 and d["temp_bytes"] == 0' "$tmp/out"

exits 0 "a profile and a timeline" "$weft" run "$programs/scan.hlo" --quiet --profile --timeline "$tmp/timeline.svg"
says "self ms .* GFLOP/s .* of limit .* step"
says "limits of this machine, measured now: [0-9.]* GFLOP/s"
exits 0 "the timeline is XML" python3 -c 'import sys, xml.dom.minidom as x; assert x.parse(sys.argv[1]).getElementsByTagName("g")' "$tmp/timeline.svg"
exits 0 "a profile in JSON" "$weft" run "$programs/scan.hlo" --json --profile
json 'd["profile"] and all(s["count"] > 0 and s["self_ms"] >= 0 and s["kind"] and s["name"] for s in d["profile"])' "$tmp/out"
json 'd["profiled_run"]["ms"] > 0 and d["profiled_run"]["threads"] > 0 and d["profiled_run"]["limit_gflops"] > 0 and any(s.get("step") for s in d["profile"])' "$tmp/out"
cat >"$tmp/named.hlo" <<'END'
e { x = f32[40,40] parameter(0)
 ROOT d = f32[40,40] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(step)/dot_general" source_file="step.py" source_line=41} }
END
cat >"$tmp/two.hlo" <<'END'
e { x = f32[8,8] parameter(0)
 a = f32[8,8] sine(x)
 d = f32[8,8] dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 ROOT b = f32[8,8] cosine(d) }
END
cat >"$tmp/long.hlo" <<'END'
c { p = (s32[], f32[]) parameter(0) i = s32[] get-tuple-element(p), index=0 n = s32[] constant(2000000000) ROOT r = pred[] compare(i, n), direction=LT }
b { p = (s32[], f32[]) parameter(0) i = s32[] get-tuple-element(p), index=0 x = f32[] get-tuple-element(p), index=1
 s = f32[] sine(x) one = s32[] constant(1) j = s32[] add(i, one) ROOT t = (s32[], f32[]) tuple(j, s) }
e { z = s32[] constant(0) x = f32[] parameter(0) t = (s32[], f32[]) tuple(z, x) ROOT w = (s32[], f32[]) while(t), condition=c, body=b }
END
cat >"$tmp/loop.hlo" <<'END'
c { p = (s32[], f32[300,300]) parameter(0) i = s32[] get-tuple-element(p), index=0 n = s32[] constant(40) ROOT r = pred[] compare(i, n), direction=LT }
b { p = (s32[], f32[300,300]) parameter(0) i = s32[] get-tuple-element(p), index=0 x = f32[300,300] get-tuple-element(p), index=1
 d = f32[300,300] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 one = s32[] constant(1) j = s32[] add(i, one) ROOT t = (s32[], f32[300,300]) tuple(j, d) }
e { z = s32[] constant(0) x = f32[300,300] parameter(0) t = (s32[], f32[300,300]) tuple(z, x) ROOT w = (s32[], f32[300,300]) while(t), condition=c, body=b }
END
cat >"$tmp/unknown.mlir" <<'END'
module { func.func @main(%a: tensor<?x3xf32>) -> tensor<?x3xf32> { %0 = stablehlo.add %a, %a : tensor<?x3xf32> return %0 : tensor<?x3xf32> } }
END
cat >"$tmp/gather.hlo" <<'END'
e { x = f32[2] parameter(0) ROOT g = f32[8] all-gather(x), replica_groups={{0,1,2,3}}, dimensions={0} }
END
cat >"$tmp/large.hlo" <<'END'
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
e { x = f32[1000000] parameter(0)
 b = f32[1000000,1000000] broadcast(x), dimensions={0}
 s = f32[1000000,1000000] sine(b)
 m = f32[1000000,1000000] dot(s, s), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(f)/outer" source_file="f.py" source_line=7}
 z = f32[] constant(0) ROOT r = f32[1000000] reduce(m, z), dimensions={1}, to_apply=add }
END
exits 0 "the profile of a program that tells its source" "$weft" run "$tmp/named.hlo" --profile
says "dot .*(jit(step)/dot_general, step.py:41)"
# A program that overwrites a parameter which the caller keeps copies it first.
cat >"$tmp/donated.hlo" <<'END'
HloModule donated, input_output_alias={ {}: (1, {}, may-alias) }
ENTRY e { x = f32[512,512] parameter(0)  y = f32[512,512] parameter(1)  ROOT r = f32[512,512] add(x, y) }
END
exits 0 "the profile of a program that overwrites a parameter" "$weft" run "$tmp/donated.hlo" --quiet --profile --timeline "$tmp/donated.svg"
says " 1 .* copy  *(parameters that the program overwrites and the caller keeps)"
grep -q "(parameters that the program overwrites and the caller keeps) (copy) on device 0: " "$tmp/donated.svg"; ok $? "the timeline shows the copy"
exits 0 "the memory plan, drawn" "$weft" inspect "$tmp/two.hlo" --memory --svg "$tmp/plan.svg"
grep -q "peak: .* at step" "$tmp/plan.svg" && grep -q "parameter 0: " "$tmp/plan.svg"; ok $? "the drawing marks the peak and shows the parameters"
exits 0 "they are XML with a legend" python3 -c '
import sys, xml.dom.minidom as x
for path in sys.argv[1:]: assert any(t.firstChild.data in ("fusion", "kernel") for t in x.parse(path).getElementsByTagName("text"))' \
  "$tmp/plan.svg" "$tmp/timeline.svg"

exits 0 "the profile of a loop" "$weft" run "$tmp/loop.hlo" --quiet --profile
says " 1 .* while  *%w.*, 40 rounds"
says " 40 .* dot "
exits 0 "what inspect shows, as JSON" "$weft" inspect "$programs/scan.hlo" --passes --diff --memory --thunks --kernels --cost --json
json 'any(p["changed"] and any(l[0] == "+" and "while(" in l for l in p["diff"]) for p in d["passes"])' "$tmp/out"
json 'd["memory"]["peak_bytes"] <= d["memory"]["temp_bytes"] and sum(p["bytes"] for p in d["memory"]["parameters"]) == 132' "$tmp/out"
json 'sum(t["runs"] for t in d["pass_totals"]) == len(d["passes"]) and sum(t["changes"] for t in d["pass_totals"]) == sum(p["changed"] for p in d["passes"])' "$tmp/out"
json 'all(d["memory"][k] >= 0 for k in ("reused_buffers", "added_dependences", "critical_path_by_data_us")) and d["memory"]["critical_path_us"] >= d["memory"]["critical_path_by_data_us"]' "$tmp/out"
json 'd["sequences"][0]["entry"] and all(q["steps"] == sum(t["sequence"] == q["name"] for t in d["steps"]) and 0 < q["longest_path_us"] <= q["work_us"] for q in d["sequences"])' "$tmp/out"
json 'abs(d["sequences"][0]["longest_path_us"] - d["memory"]["critical_path_us"]) < 1e-3' "$tmp/out"
json 'd["steps"] and d["kernels"] and all(k["bytes"] > 0 for k in d["cost"])' "$tmp/out"
exits 0 "passes with what they changed" "$weft" inspect "$programs/scan.hlo" --diff
says "^- .*scan(a, i)"
says "^+ .* while("
says "^total  *runs"
printf 'HloModule odd\n\nENTRY e {\n  x = f32[2] parameter(0), metadata={op_name="\377\303"}\n  ROOT r = f32[2] negate(x), metadata={op_name="n\303\251\300"}\n}\n' >"$tmp/odd.hlo"
exits 0 "names that are no UTF-8, as JSON" "$weft" inspect "$tmp/odd.hlo" --passes --thunks --memory --json
json 'json.dumps(d)' "$tmp/out"
exits 2 "JSON of what is no data" "$weft" inspect "$add" --json --optimized
exits 0 "one kernel alone" "$weft" inspect "$tmp/two.hlo" --kernels
kernels=$(sed -n 's/^\([a-z_.0-9-]*\)  .* us$/\1/p' "$tmp/out")
exits 0 "..." "$weft" inspect "$tmp/two.hlo" --kernel "$(echo "$kernels" | head -n 1)"
[ "$(echo "$kernels" | wc -l)" -eq 2 ] && [ "$(grep -c '^define internal void @k' "$tmp/out")" -eq 1 ]; ok $? "... of two, and its IR holds no other"
printf 'HloModule rows\n\nENTRY e {\n  a = f32[32,31] parameter(0)\n  x = f32[31] parameter(1)\n  ROOT d = f32[32] dot(a, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n}\n' >"$tmp/rows.hlo"
exits 0 "a small matrix by a vector" "$weft" inspect "$tmp/rows.hlo" --kernels
exits 0 "..." "$weft" inspect "$tmp/rows.hlo" --kernel "$(sed -n 's/^\([a-z_.0-9-]*\)  .* us$/\1/p' "$tmp/out")"
grep -q "llvm.fma.v16f32" "$tmp/out" && ! grep -q "masked.gather" "$tmp/out"; ok $? "... is read in vectors along its rows"

exits 0 "a page of a run" "$weft" run "$tmp/named.hlo" --quiet --html "$tmp/run.html"
exits 0 "a page of a program" "$weft" inspect "$programs/scan.hlo" --html "$tmp/inspect.html"
cat >"$tmp/page.py" <<'END'
import json, re, sys
text = open(sys.argv[1], encoding="utf-8").read()
d = json.loads(re.search(r"^const D = (.*);$", text, re.M)[1])
assert len(text) < 5 << 20 and not re.search(r"(src|href)=", text), "one file of at most 5 MB"
for c in d["computations"]:
    for x in c["instructions"]:
        assert all(0 <= o < len(c["instructions"]) for o in x[4]) and all(0 <= k < len(d["computations"]) for k in x[5]) and x[6] < len(d["sources"])
assert d["passes"] and d["steps"] and d["memory"]["parameters"]
if len(sys.argv) > 2:
    step = next(s for s in d["profile"]["steps"] if s[1] == "dot")
    assert step[3] == 1 and step[6] > 0 and step[7] > 0 and d["profile"]["spans"] and ["jit(step)/dot_general", "step.py", 41] in d["sources"]
END
exits 0 "its data is whole" python3 "$tmp/page.py" "$tmp/inspect.html"
exits 0 "... with profile, timeline and source lines" python3 "$tmp/page.py" "$tmp/run.html" profile
browser=$(command -v chromium-headless-shell || command -v chromium || command -v google-chrome)
if [ -n "$browser" ]; then
  for tab in passes graph memory timeline; do
    exits 0 "the page's $tab in a browser" timeout 120 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
      --user-data-dir="$tmp/chromium" --enable-logging=stderr --virtual-time-budget=3000 --dump-dom "file://$tmp/run.html#/$tab"
    ! grep -q "CONSOLE.*\(Error\|Uncaught\)" "$tmp/err"; ok $? "... runs without an error"
    grep -q "id=\"tab_$tab\" class=\"on\"" "$tmp/out"; ok $? "... and shows the tab"
    case $tab in
      passes) grep -q "id=\"passes\".*<td" "$tmp/out"; ok $? "... with a table" ;;
      *) grep -q "id=\"${tab}_canvas\" width=\"[1-9]" "$tmp/out"; ok $? "... with its drawing" ;;
    esac
  done
else
  cases=$((cases + 1)); echo "ok $cases - the pages in a browser # SKIP no chromium-headless-shell, chromium or google-chrome"
fi

exits 3 "a time limit" "$weft" run "$tmp/long.hlo" --timeout 8s
says "DEADLINE_EXCEEDED: --timeout: 8 s have passed while it was running the program"
exits 0 "a time limit that is not reached" "$weft" run "$add" --quiet --timeout 5m
exits 2 "unknown sizes without inputs" "$weft" run "$tmp/unknown.mlir"
says "give .--input FILE.npy. for every argument"
exits 2 "too few devices" "$weft" run "$tmp/gather.hlo"
says "give .--devices 4."
exits 0 "as many devices as the collectives name" "$weft" run "$tmp/gather.hlo" --quiet --devices 4
cat >"$tmp/replicas.hlo" <<'END'
HloModule replicas, replica_count=2, num_partitions=4
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
ENTRY main { x = f32[4] parameter(0)  ROOT y = f32[4] all-reduce(x), replica_groups={}, to_apply=add }
END
exits 0 "fewer devices than the program states" "$weft" run "$tmp/replicas.hlo" --quiet --devices 2
says "written for 8 devices, it runs on 2: give .--devices 8."
exits 0 "the devices that the program states" "$weft" run "$tmp/replicas.hlo" --devices 8
says "device 7 result 0"
! grep -q "device 8 \|weft run:" "$tmp/out"; ok $? "... and no others, without a word"
exits 0 "one device" "$weft" run "$tmp/replicas.hlo" --devices 1
says "runs on 1: give .--devices 8."
exits 3 "a program that is larger than the machine" "$weft" run "$tmp/large.hlo"
says "[0-9.]* TiB asked for, the machine has"
says "temporary of [0-9.]* TiB: f32\[1000000,1000000\] .*(jit(f)/outer, f.py:7)"
cat >"$tmp/large_result.hlo" <<'END'
ENTRY e { x = f32[1000000] parameter(0)
 s = f32[1000000,1000000] broadcast(x), dimensions={0}, metadata={op_name="jit(f)/tile" source_file="g.py" source_line=3}
 ROOT r = (f32[1000000], f32[1000000,1000000]) tuple(x, s) }
END
exits 3 "a result that is larger than the machine" "$weft" run "$tmp/large_result.hlo"
says "result of [0-9.]* TiB: f32\[1000000,1000000\] .*(jit(f)/tile, g.py:3)"
cat >"$tmp/large_results.hlo" <<'END'
ENTRY e { x = f32[1000000] parameter(0)
 b = f32[1000000,1000000] broadcast(x), dimensions={0}
 s = f32[1000000,1000000] sine(b), metadata={op_name="jit(f)/sin" source_file="g.py" source_line=4}
 p = f32[1000000,1000000] multiply(s, s), metadata={op_name="jit(f)/square" source_file="g.py" source_line=5}
 ROOT r = (f32[1000000,1000000], f32[1000000,1000000]) tuple(s, p) }
END
exits 3 "results of one fusion that are larger than the machine" "$weft" run "$tmp/large_results.hlo"
says "result of [0-9.]* TiB: f32\[1000000,1000000\] .*(jit(f)/sin, g.py:4)"
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

exits 0 "what happens, told" env WEFT_LOG=debug "$weft" run "$add" --quiet
for what in 'platform "cpu": 1 device,' 'compiles "add"' 'compiled "add" in' 'launch of "add" on 1 device' '"add" on device 0: ended' 'platform "cpu" ends'; do
  says "DEBUG rt: $what"
done

exits 0 "a trace" env WEFT_TRACE="$tmp/trace.json" "$weft" run "$add"
json 'all(e["ph"] for e in d["traceEvents"])' "$tmp/trace.json"

# Names for perf: each fusion has one, in ranges that do not overlap, of a program that was compiled and of one that was loaded.
cat >"$tmp/two.hlo" <<'HLO'
HloModule two
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[64,64] parameter(0)
  s = f32[64,64] sine(x)
  z = f32[] constant(0)
  r = f32[64] reduce(s, z), dimensions={0}, to_apply=add
  ROOT o = (f32[64,64], f32[64]) tuple(s, r)
}
HLO
"$weft" compile "$tmp/two.hlo" -o "$tmp/two.weft" >/dev/null
for program in two.hlo two.weft; do
  # sh writes its process id, and then becomes the command, which keeps the id
  timeout 60 sh -c 'echo $$ >"$1/pid"; WEFT_PERF_MAP=1 exec "$2" run "$1/$3" --quiet' sh "$tmp" "$weft" $program >"$tmp/out" 2>"$tmp/err"
  map=/tmp/perf-$(cat "$tmp/pid").map
  python3 - "$map" >"$tmp/err" 2>&1 <<'PY'
import os, stat, sys
rows = sorted((int(a, 16), int(b, 16), name) for a, b, name in (line.split() for line in open(sys.argv[1])))
assert rows and all(size > 0 and name.startswith("two:") for _, size, name in rows), rows
assert all(a[0] + a[1] <= b[0] for a, b in zip(rows, rows[1:])), rows
assert stat.S_IMODE(os.stat(sys.argv[1]).st_mode) == 0o600
PY
  ok $? "names for perf: $program"
  rm -f "$map"
done

# The cache: the first run fills it, the second one uses it. A damaged file is written again, and a folder that cannot be used only warns.
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
build=$("$weft" info | sed -n 's/^  build  *//p')
LC_ALL=C sed "s/$build/0123456789abcdef/g" "$weft" >"$tmp/other-weft" && chmod +x "$tmp/other-weft"
WEFT_CACHE_DIR=$tmp/cache "$tmp/other-weft" run "$add" --quiet >"$tmp/out" 2>"$tmp/err" && [ "$(ls "$tmp/cache"/*.o | wc -l)" = 2 ]
ok $? "another build does not take the kernel"
rm -f "$tmp/other-weft"
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
exits 0 "the kernels of a GPU that need not be here" "$weft" inspect "$programs/tiles.hlo" --target h200
says "^H200 (sm_90): 132 multiprocessors"
mkdir "$tmp/assembler"
cat >"$tmp/assembler/ptxas" <<'END'
#!/bin/sh
# Stands for ptxas: prints what ptxas 12.9 prints, or refuses its input.
grep -q 'entry kernel0' "$5" || exit 9
[ -z "$REFUSES" ] || { echo "ptxas /dev/fd/0, line 7; error   : Unknown symbol 'x'"; exit 255; }
echo "ptxas info    : Compiling entry function 'kernel0' for '${2#-arch=}'"
echo "ptxas info    : Function properties for kernel0"
echo "    8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads"
echo "ptxas info    : Used 128 registers, used 1 barriers, 392 bytes cmem[0]"
END
chmod +x "$tmp/assembler/ptxas"
exits 0 "registers by ptxas" env PATH="$tmp/assembler:$PATH" "$weft" inspect "$programs/tiles.hlo" --target h200
says "fusion.* us  *128  *4$"
exits 3 "a kernel that ptxas refuses" env REFUSES=1 PATH="$tmp/assembler:$PATH" "$weft" inspect "$programs/tiles.hlo" --target h200
says "ptxas refuses a kernel: .*Unknown symbol"
exits 0 "the launches of a GPU's kernel" "$weft" inspect "$programs/tiles.hlo" --target sm_75 --optimized
gpu_kernel=$(sed -n 's/.* \([a-z_.0-9]*fusion[.0-9]*\) = .*fusion(.*/\1/p' "$tmp/out" | head -1)
exits 0 "its PTX" "$weft" inspect "$programs/tiles.hlo" --target sm_75 --kernel "$gpu_kernel"
says "\.target sm_75"
printf '# mine\ndevice mine\nprocessor sm_80\nmultiprocessors 10\n' >"$tmp/mine.gpu"
exits 0 "a GPU from a file" "$weft" inspect "$programs/tiles.hlo" --target "$tmp/mine.gpu"
says "^mine (sm_80): 10 multiprocessors, 1555 GB/s"
printf 'multiprocessors 10\nprocessor sm_80\n' >"$tmp/mine.gpu"
exits 2 "a GPU's file whose numbers come first" "$weft" inspect "$programs/tiles.hlo" --target "$tmp/mine.gpu"
exits 2 "a GPU that nobody knows" "$weft" inspect "$programs/tiles.hlo" --target sm_1
exits 2 "a GPU and the CPU's plan" "$weft" inspect "$programs/tiles.hlo" --target H100 --memory
emulator=$WEFT_BUILDDIR/tests/gpu/emulator/.libs
if [ -e "$emulator/libcuda.so" ] && [ -z "$WEFT_SANITIZED" ]; then
  on_gpu="env WEFT_PLATFORM=cuda WEFT_CUDA_LIBDIR=$emulator"
  exits 2 "the kernels of a platform that has none for the host" $on_gpu "$weft" inspect "$programs/tiles.hlo" --kernels
  says "UNIMPLEMENTED.*--kernels lists the CPU's kernels; --thunks lists the steps on platform \"cuda\""
  $on_gpu "$weft" inspect "$programs/tiles.hlo" --optimized >"$tmp/out"
  kernel=$(sed -n 's/^.* \([a-z_.0-9-]*fusion[.0-9]*\) = .*/\1/p' "$tmp/out" | head -n 1)
  exits 2 "one of them" $on_gpu "$weft" inspect "$programs/tiles.hlo" --kernel "$kernel"
  says "UNIMPLEMENTED.*--kernel lists the CPU's kernels"
fi
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
# Estimates: the memory plan and the list of steps give the same figures, and a loop's figure counts all its rounds.
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
# Summaries of results. Each way of reading elements: numbers of one and two bytes, wider ones, complex ones; NaN is counted apart.
summary() { # TYPE MAXIMUM MEAN
  printf 'ENTRY e { i = s32[1001] iota(), iota_dimension=0  c = s32[] constant(7)  b = s32[1001] broadcast(c), dimensions={}
    r = s32[1001] remainder(i, b)  ROOT x = %s[1001] convert(r) }' "$1" >"$tmp/sum.hlo"
  exits 0 "the summary of $1" "$weft" run "$tmp/sum.hlo"
  says "result 0  $1\[1001\]  min 0  max $2  mean $3\$"
}
for type in s8 u8 s4 f8e5m2 s16 u16 bf16 f16 s32 u32 f32 s64 u64 f64 c64 c128; do summary $type 6 3; done
summary pred 1 0.857143
cat >"$tmp/nan.hlo" <<'END'
ENTRY e { i = f32[1001] iota(), iota_dimension=0  c = f32[] constant(500)  b = f32[1001] broadcast(c), dimensions={}
 d = f32[1001] subtract(i, b)  z = f32[1001] subtract(i, i)  g = pred[1001] compare(d, z), direction=GT  q = f32[1001] divide(z, z)
 f = f32[1001] select(g, q, d)  h = bf16[1001] convert(f)  ROOT t = (f32[1001], bf16[1001]) tuple(f, h) }
END
exits 0 "a summary with NaN" "$weft" run "$tmp/nan.hlo"
says "result 0  f32\[1001\]  min -500  max 0  mean -250  NaN 500\$"
says "result 1  bf16\[1001\]  min -500  max 0  mean -2[45][0-9.]*  NaN 500\$"
cat >"$tmp/large.hlo" <<'END'
ENTRY e { a = u8[50000000] iota(), iota_dimension=0  ROOT c = f32[50000000] convert(a) }
END
echo 'ENTRY e { ROOT c = s4[50000000] constant(3) }' >"$tmp/constant.hlo"
cat >"$tmp/user_time.py" <<'END'
import resource, subprocess, sys
subprocess.run(sys.argv[2:], stdout=subprocess.DEVNULL, check=True)
seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
print(f'{seconds:.2f} s of processor time')
sys.exit(seconds > float(sys.argv[1]))
END
if [ -z "$WEFT_SANITIZED" ] && command -v python3 >/dev/null; then
  exits 0 "the summary of fifty million numbers takes little time" python3 "$tmp/user_time.py" 0.6 "$weft" run "$tmp/large.hlo" --threads 1
  exits 0 "a constant of fifty million numbers too" python3 "$tmp/user_time.py" 0.6 "$weft" run "$tmp/constant.hlo" --threads 1
fi
echo "1..$cases"
