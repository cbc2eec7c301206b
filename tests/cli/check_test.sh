#!/bin/sh
# `weft run` of a program that checks itself: 0 if the checks hold, 1 if one fails, naming the element, what came and what
# was wanted.  Prints TAP.
weft=$WEFT_BUILDDIR/weft
folder=$(mktemp -d "${TMPDIR:-/tmp}/weft-check.XXXXXX") || exit 1
trap 'rm -rf "$folder"' EXIT
count=0

# expect EXIT WORDS DESCRIPTION [OPTIONS...]: what `weft run` says of the program
expect()
{
  count=$((count + 1)) exit_code=$1 words=$2 what=$3
  shift 3
  "$weft" run "$folder/program.mlir" "$@" >"$folder/out" 2>&1
  got=$?
  if [ $got -eq "$exit_code" ] && grep -q -e "$words" "$folder/out"; then
    echo "ok $count - $what"
  else
    echo "not ok $count - $what"
    echo "# exit $got, expected $exit_code with \"$words\""
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
# Unknown dimensions follow from the inputs: n = 3 is written by weft itself.
cat >"$folder/program.mlir" <<'END'
func.func @main() -> (tensor<i64>, tensor<3xf32>) {
  %n = stablehlo.constant dense<3> : tensor<i64>
  %a = stablehlo.constant dense<[1.0, 2.0, 3.0]> : tensor<3xf32>
  return %n, %a : tensor<i64>, tensor<3xf32>
}
END
"$weft" run "$folder/program.mlir" --output-dir "$folder/inputs" >/dev/null
cat >"$folder/program.mlir" <<'END'
func.func @main(%n: tensor<i64>, %a: tensor<?xf32>) {
  %c = stablehlo.constant dense<2> : tensor<i64>
  %m = stablehlo.multiply %n, %c : tensor<i64>
  %s = stablehlo.reshape %m : (tensor<i64>) -> tensor<1xi64>
  %i = stablehlo.dynamic_iota %s, dim = 0 : (tensor<1xi64>) -> tensor<?xf32>
  %b = stablehlo.concatenate %a, %i, dim = 0 : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  stablehlo.custom_call @check.expect_eq(%b, %b) {has_side_effect = true} : (tensor<?xf32>, tensor<?xf32>) -> ()
  %w = stablehlo.constant dense<[1.0, 2.0, 3.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0]> : tensor<9xf32>
  stablehlo.custom_call @check.expect_eq(%b, %w) {has_side_effect = true} : (tensor<?xf32>, tensor<9xf32>) -> ()
  return
}
END
expect 0 'module' 'sizes that depend on values of the inputs' --input "$folder/inputs/result_0.npy" --input "$folder/inputs/result_1.npy"
expect 2 'unknown size that no argument' 'a program with unknown sizes, without inputs'
program '%2 = stablehlo.frobnicate %1 : tensor<3xf32>'
expect 2 '"frobnicate" is not supported' 'an operation that is not known is another kind of failure'
echo "1..$count"
