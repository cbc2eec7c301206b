#!/bin/sh
# Profiles and traces of the emulated GPU show how long steps take on the device, not how long the host takes to queue them.
# One launch is made to start 300 ms late.  Prints TAP.
weft=$WEFT_BUILDDIR/weft
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
export WEFT_PLATFORM=cuda WEFT_CUDA_LIBDIR="$WEFT_BUILDDIR/tests/gpu/emulator/.libs"
command -v python3 >/dev/null || { echo "1..0 # SKIP no python3"; exit 0; }
n=0
check() { # NAME COMMAND...
  name=$1
  shift
  n=$((n + 1))
  if "$@" >"$tmp/log" 2>&1; then echo "ok $n - $name"; else echo "not ok $n - $name"; sed 's/^/# /' "$tmp/log"; fi
}
cat >"$tmp/steps.hlo" <<'END'
HloModule steps
lt { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = pred[] compare(a, b), direction=LT }
ENTRY main {
  x = f32[64,32] parameter(0)
  w = f32[32,16] parameter(1)
  d = f32[64,16] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT s = f32[64,16] sort(d), dimensions={1}, to_apply=lt
}
END
# Each run launches one kernel: the second launch is that of the profiled run.
run() { WEFT_EMU_FAULTS=$faults WEFT_TRACE=$tmp/trace.json timeout 120 "$weft" run "$tmp/steps.hlo" --quiet "$@"; }

faults=cuLaunchKernel:2=stall:300ms
check "a profile in JSON" eval 'run --json --profile >"$tmp/json"'
check "the step that starts late takes 300 ms, the other does not, and there is one execution of each" python3 -c '
import json, sys
steps = {s["kind"]: s for s in json.load(open(sys.argv[1]))["profile"]}
assert steps["kernel"]["self_ms"] > 299 and steps["dot"]["self_ms"] < 299, steps
assert steps["kernel"]["count"] == steps["dot"]["count"] == 1, steps' "$tmp/json"
check "a trace has a row of the device; steps there begin after they were queued, and one after the other" python3 -c '
import json, sys
events = json.load(open(sys.argv[1]))["traceEvents"]
rows = {e["tid"] for e in events if e["ph"] == "M" and e["args"]["name"] == "device 0"}
assert len(rows) == 1, rows
steps = [e for e in events if e["ph"] == "X" and e["tid"] in rows]
queued = [e for e in events if e["ph"] == "X" and e["args"]["queues"]]
assert [e["name"] for e in steps] == [e["name"] for e in queued] == ["d", "s"] * 2, (steps, queued)
for step, queue in zip(steps, queued): assert step["ts"] >= queue["ts"] and queue["dur"] < 299e3, (step, queue)
for a, b in zip(steps, steps[1:]): assert a["ts"] + a["dur"] <= b["ts"] + 1, (a, b)
assert steps[3]["dur"] > 299e3, steps' "$tmp/trace.json"
check "a table and a timeline" eval 'run --profile --timeline "$tmp/timeline.svg" >"$tmp/table" 2>&1 && grep -q "1 device and .* queue" "$tmp/table" && grep -q ">device 0<" "$tmp/timeline.svg"'
# The ranks of a collective meet on the device: if one begins late, it takes that time on both.
cat >"$tmp/sum.hlo" <<'END'
HloModule sum, replica_count=2
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
ENTRY main {
  x = f32[64,32] parameter(0)
  e = f32[64,32] exponential(x)
  s = f32[64,32] all-reduce(e), to_apply=add, replica_groups={}
  ROOT n = f32[64,32] negate(s)
}
END
export WEFT_EMU_DEVICES=2
collectives() { WEFT_EMU_FAULTS=$faults WEFT_CUDA_COLLECTIVES=$1 WEFT_TRACE=$tmp/trace.json timeout 120 "$weft" run "$tmp/sum.hlo" --quiet --json --profile >"$tmp/json"; }
faults=ncclAllReduce:3=stall:300ms # of the profiled run
check "a collective by NCCL" collectives nccl
check "takes 300 ms on both devices, after its operand and before its user" python3 -c '
import json, sys
steps = {s["kind"]: s for s in json.load(open(sys.argv[1]))["profile"]}
assert steps["collective"]["count"] == 2 and steps["collective"]["self_ms"] > 599, steps
events = json.load(open(sys.argv[2]))["traceEvents"]
rows = {e["args"]["name"]: e["tid"] for e in events if e["ph"] == "M"}
for d in "01":
    e, s, n = [[x for x in events if x["ph"] == "X" and x["tid"] == rows[row] and x["name"].split(".")[0] == name][-1]
               for row, name in ((f"device {d}", "wrapped_exponential"), (f"device {d} collectives", "s"), (f"device {d}", "wrapped_negate"))]
    assert s["dur"] > 299e3 and e["ts"] + e["dur"] <= s["ts"] + 1 and s["ts"] + s["dur"] <= n["ts"] + 1, (e, s, n)
    assert s["args"]["module"] == "sum", s' "$tmp/json" "$tmp/trace.json"
faults=
check "a collective by peers" collectives peers
check "has a time on both devices" python3 -c '
import json, sys
steps = {s["kind"]: s for s in json.load(open(sys.argv[1]))["profile"]}
assert steps["collective"]["count"] == 2 and steps["collective"]["self_ms"] > 0, steps' "$tmp/json"
# If the driver gives no event or no time of an event, the profile has no times of the device; everything else works.
faults=cuEventElapsedTime:1=1,cuEventElapsedTime:4=1
check "steps whose time the driver does not tell are left out" eval 'run --json --profile >"$tmp/json"'
check "and the others are there" grep -q '"sort\|"kernel\|"dot' "$tmp/json"
echo "1..$n"
