#!/bin/sh
# `weft run` of a program that checks itself: 0 if the checks hold, 1 if one fails, naming the element, what came and what
# was wanted.  Prints TAP.
weft=$WEFT_BUILDDIR/weft
folder=$(mktemp -d "${TMPDIR:-/tmp}/weft-check.XXXXXX") || exit 1
trap 'rm -rf "$folder"' EXIT
count=0

# expect EXIT WORDS -- [PROGRAM]: what `weft run` says of it
expect()
{
  count=$((count + 1))
  "$weft" run "$folder/program.mlir" >"$folder/out" 2>&1
  got=$?
  if [ $got -eq "$1" ] && grep -q -e "$2" "$folder/out"; then
    echo "ok $count - $3"
  else
    echo "not ok $count - $3"
    echo "# exit $got, expected $1 with \"$2\""
    sed 's/^/# /' "$folder/out"
  fi
}

# program OPERATION: checks %1 = [2, 4, 6] with it
program()
{
  printf 'func.func @main() {\n  %%0 = stablehlo.constant dense<[1.0, 2.0, 3.0]> : tensor<3xf32>\n' >"$folder/program.mlir"
  printf '  %%1 = stablehlo.add %%0, %%0 : tensor<3xf32>\n  %s\n  return\n}\n' "$1" >>"$folder/program.mlir"
}

program 'check.expect_eq_const %1, dense<[2.0, 4.0, 6.0]> : tensor<3xf32>'
expect 0 'module' 'checks that hold'
program 'check.expect_eq_const %1, dense<[2.0, 4.5, 6.0]> : tensor<3xf32>'
expect 1 'element \[1\] of f32\[3\]: got 4, want 4.5; 1 of 3 differ' 'an element that differs'
program 'check.expect_almost_eq_const %1, dense<[2.0, 4.0, 6.1]> : tensor<3xf32>'
expect 1 'element \[2\] of f32\[3\]: got 6, want 6.09' 'an element that is not close'
program 'stablehlo.custom_call @check.expect_close(%0, %1) {has_side_effect = true, max_ulp_difference = 3 : i64} : (tensor<3xf32>, tensor<3xf32>) -> ()'
expect 1 'element \[0\] of f32\[3\]: got 1, want 2' 'a check as JAX writes it'
cat >"$folder/program.mlir" <<'END'
func.func @main() {
  %x = arith.constant dense<[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]> : tensor<3x2xf32>
  %c = stablehlo.constant dense<[10.0, 20.0]> : tensor<2xf32>
  %0:2 = chlo.scan(%x) inits(%c) dimension=0 attributes {is_reverse = true} {
  ^bb0(%a: tensor<2xf32>, %b: tensor<2xf32>):
    %s = stablehlo.add %a, %b : tensor<2xf32>
    stablehlo.return %s, %s : tensor<2xf32>, tensor<2xf32>
  } : (tensor<3x2xf32>, tensor<2xf32>) -> (tensor<3x2xf32>, tensor<2xf32>)
  check.expect_eq_const %0#0, dense<[[19.0, 32.0], [18.0, 30.0], [15.0, 26.0]]> : tensor<3x2xf32>
  %1 = "stablehlo.collective_reduce"(%0#1) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) {replica_groups = dense<0> : tensor<1x1xi64>} : (tensor<2xf32>) -> tensor<2xf32>
  check.expect_eq_const %1, dense<[19.0, 32.0]> : tensor<2xf32>
  return
}
END
expect 0 'module' 'a scan and a collective reduction on one device'
program '%2 = stablehlo.frobnicate %1 : tensor<3xf32>'
expect 2 '"frobnicate" is not supported' 'an operation that is not known is another kind of failure'
echo "1..$count"
