#!/bin/sh
# weft run on plugins: --plugin runs on one, --compare shows where two differ.  Prints TAP.
build=${WEFT_BUILDDIR:-build}
weft=$build/weft
plugin=$build/.libs/pjrt_weft.so
faulty=$build/tests/cli/.libs/faulty_plugin.so
tmp=$(mktemp -d) || exit 99
trap 'rm -r "$tmp"' EXIT
export WEFT_TEST_FAULTY_TARGET="$plugin"
cat >"$tmp/p.mlir" <<'M'
module @p { func.func public @main(%x: tensor<4x8xf32>, %y: tensor<8x4xf32>) -> (tensor<4x4xf32>, tensor<4x8xf32>) {
  %z = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  %w = stablehlo.tanh %x : tensor<4x8xf32>
  return %z, %w : tensor<4x4xf32>, tensor<4x8xf32> } }
M
cat >"$tmp/p.hlo" <<'M'
HloModule p
ENTRY main { x = f32[4,8] parameter(0)  ROOT y = f32[4,8] sine(x) }
M
n=0
# is NAME WANTED-EXIT PATTERN COMMAND...: exit status, and a line of the output that matches.
is() {
  n=$((n + 1)) name=$1 want=$2 pattern=$3; shift 3
  out=$("$@" 2>&1); got=$?
  if [ $got = "$want" ] && echo "$out" | grep -q -e "$pattern"; then echo "ok $n - $name"
  else echo "not ok $n - $name"; echo "# exit $got, wanted $want with \"$pattern\""; echo "$out" | sed 's/^/# /'; fi
}
cat >"$tmp/sum.hlo" <<'M'
HloModule sum, replica_count=2
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
ENTRY main { x = f32[8] parameter(0) i = u32[] replica-id() n = f32[] convert(i) v = f32[8] broadcast(n), dimensions={}
  y = f32[8] add(x, v) ROOT r = f32[8] all-reduce(y), replica_groups={}, to_apply=add }
M
cat >"$tmp/cut.hlo" <<'M'
HloModule cut, num_partitions=2
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
ENTRY main { x = f32[8] parameter(0), sharding={devices=[2]0,1} z = f32[] constant(0)
  ROOT r = f32[] reduce(x, z), dimensions={0}, to_apply=add, sharding={replicated} }
M
echo 1..15
is "replicas with a collective, against the reference" 0 '"devices": 2.*"differences": 0' "$weft" run "$tmp/sum.hlo" --compare reference --json
is "a partitioned program, against the reference" 0 '"devices": 2.*"differences": 0' "$weft" run "$tmp/cut.hlo" --compare reference --json
is "a plugin by its file" 0 "result 0  f32\[4,4\]" "$weft" run "$tmp/p.mlir" --plugin "$plugin" --compare reference
is "HLO text on a plugin" 0 "result 0  f32\[4,8\]" "$weft" run "$tmp/p.hlo" --plugin "$plugin" --compare reference
is "two that agree" 0 '"differences": 0' "$weft" run "$tmp/p.mlir" --compare "$plugin" --json
is "every faulty result is counted" 1 '"differences": 2' "$weft" run "$tmp/p.mlir" --compare "$faulty" --json
is "and named" 1 "result 0: 1 of 16 elements differ from .*faulty_plugin.so; worst at \[0,0\]" "$weft" run "$tmp/p.mlir" --compare "$faulty"
is "a faulty plugin against the reference" 1 "elements differ from the reference evaluator" "$weft" run "$tmp/p.mlir" --plugin "$faulty" --compare reference
is "two devices on two plugins" 0 '"devices": 2.*"differences": 0' "$weft" run "$tmp/p.mlir" --devices 2 --compare "$plugin" --json
is "the memory order is a compile option" 0 "temp_lower_bound_bytes" "$weft" run "$tmp/p.mlir" --memory sequential --json
is "a wrong memory order is an error" 2 "expected topological, sequential or budget=BYTES" "$weft" run "$tmp/p.mlir" --memory odd
cat >"$tmp/big.mlir" <<'M'
module @big { func.func public @main(%x: tensor<512x512xf32>) -> tensor<512x512xf32> {
  %y = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0] : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  %z = stablehlo.dot_general %y, %x, contracting_dims = [1] x [0] : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  return %z : tensor<512x512xf32> } }
M
is "a budget that no plan meets is warned of with both numbers" 0 'intermediate results take .* ([0-9]* bytes), over the budget of 1.0 KiB (1024 bytes)' "$weft" run "$tmp/big.mlir" --memory budget=1K
is "by inspect too" 0 "over the budget of 1.0 KiB" "$weft" inspect "$tmp/big.mlir" --memory --order budget=1K
n=$((n + 1))
if "$weft" run "$tmp/big.mlir" --memory budget=1G 2>&1 | grep -q "over the budget"; then echo "not ok $n - a budget that is met is not"; else echo "ok $n - a budget that is met is not"; fi
is "what is no plugin is an error" 2 "cannot load a plugin" "$weft" run "$tmp/p.mlir" --plugin "$tmp/p.mlir"
