// What a quantized type is, is stored per axis as well; a bitcast sees what is stored.
func.func @bits_of_per_axis() {
  %0 = stablehlo.constant dense<[[4.0, 15.0], [-1.0, 0.0]]> : tensor<2x2xf32>
  %1 = stablehlo.uniform_quantize %0 : (tensor<2x2xf32>) -> tensor<2x2x!quant.uniform<i8:f32:1, {0.5:-3, 2.0:4}>>
  %2 = stablehlo.bitcast_convert %1 : (tensor<2x2x!quant.uniform<i8:f32:1, {0.5:-3, 2.0:4}>>) -> tensor<2x2xi8>
  check.expect_eq_const %2, dense<[[5, 12], [-5, 4]]> : tensor<2x2xi8>
  func.return
}

// -----

// A reduction may be in a wider type than its operands: 10 + 4 - 2 at a scale of 2 and a zero point of 15.
func.func @reduce_in_a_wider_type() {
  %0 = stablehlo.constant dense<[20, 17, 14]> : tensor<3xi8>
  %1 = stablehlo.bitcast_convert %0 : (tensor<3xi8>) -> tensor<3x!quant.uniform<i8:f32, 2.0:15>>
  %2 = stablehlo.constant dense<15> : tensor<i8>
  %3 = stablehlo.bitcast_convert %2 : (tensor<i8>) -> tensor<!quant.uniform<i8:f32, 2.0:15>>
  %4 = stablehlo.reduce(%1 init: %3) across dimensions = [0] : (tensor<3x!quant.uniform<i8:f32, 2.0:15>>, tensor<!quant.uniform<i8:f32, 2.0:15>>) -> tensor<!quant.uniform<i16:f32, 2.0:15>>
    reducer(%a: tensor<!quant.uniform<i16:f32, 2.0:15>>, %b: tensor<!quant.uniform<i16:f32, 2.0:15>>)  {
      %5 = stablehlo.add %a, %b : tensor<!quant.uniform<i16:f32, 2.0:15>>
      stablehlo.return %5 : tensor<!quant.uniform<i16:f32, 2.0:15>>
    }
  %6 = stablehlo.bitcast_convert %4 : (tensor<!quant.uniform<i16:f32, 2.0:15>>) -> tensor<i16>
  check.expect_eq_const %6, dense<21> : tensor<i16>
  func.return
}

// -----

// 2.5 + 1.5 at a scale of 1/4 and a zero point of 3.
func.func @reduce_in_another_scale() {
  %0 = stablehlo.constant dense<[5, 3]> : tensor<2xi8>
  %1 = stablehlo.bitcast_convert %0 : (tensor<2xi8>) -> tensor<2x!quant.uniform<i8:f32, 0.5>>
  %2 = stablehlo.constant dense<0> : tensor<i8>
  %3 = stablehlo.bitcast_convert %2 : (tensor<i8>) -> tensor<!quant.uniform<i8:f32, 0.5>>
  %4 = stablehlo.reduce(%1 init: %3) applies stablehlo.add across dimensions = [0] : (tensor<2x!quant.uniform<i8:f32, 0.5>>, tensor<!quant.uniform<i8:f32, 0.5>>) -> tensor<!quant.uniform<i8:f32, 0.5>>
  %5 = stablehlo.bitcast_convert %4 : (tensor<!quant.uniform<i8:f32, 0.5>>) -> tensor<i8>
  check.expect_eq_const %5, dense<8> : tensor<i8>
  %6 = stablehlo.reduce(%1 init: %3) across dimensions = [0] : (tensor<2x!quant.uniform<i8:f32, 0.5>>, tensor<!quant.uniform<i8:f32, 0.5>>) -> tensor<!quant.uniform<i16:f32, 0.25:3>>
    reducer(%a: tensor<!quant.uniform<i16:f32, 0.25:3>>, %b: tensor<!quant.uniform<i16:f32, 0.25:3>>)  {
      %7 = stablehlo.add %a, %b : tensor<!quant.uniform<i16:f32, 0.25:3>>
      stablehlo.return %7 : tensor<!quant.uniform<i16:f32, 0.25:3>>
    }
  %8 = stablehlo.bitcast_convert %6 : (tensor<!quant.uniform<i16:f32, 0.25:3>>) -> tensor<i16>
  check.expect_eq_const %8, dense<19> : tensor<i16>
  func.return
}

// -----

// Each operand has a type of its own.
func.func @sort_of_two_types() {
  %0 = stablehlo.constant dense<[3, 1, 2]> : tensor<3xi8>
  %1 = stablehlo.bitcast_convert %0 : (tensor<3xi8>) -> tensor<3x!quant.uniform<i8:f32, 0.5>>
  %2 = stablehlo.constant dense<[7, 8, 9]> : tensor<3xi8>
  %3 = stablehlo.bitcast_convert %2 : (tensor<3xi8>) -> tensor<3x!quant.uniform<i8:f32, 0.25:1>>
  %4:2 = "stablehlo.sort"(%1, %3) <{dimension = 0 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<!quant.uniform<i8:f32, 0.5>>, %b: tensor<!quant.uniform<i8:f32, 0.5>>, %c: tensor<!quant.uniform<i8:f32, 0.25:1>>, %d: tensor<!quant.uniform<i8:f32, 0.25:1>>):
    %p = stablehlo.compare LT, %a, %b : (tensor<!quant.uniform<i8:f32, 0.5>>, tensor<!quant.uniform<i8:f32, 0.5>>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }) : (tensor<3x!quant.uniform<i8:f32, 0.5>>, tensor<3x!quant.uniform<i8:f32, 0.25:1>>) -> (tensor<3x!quant.uniform<i8:f32, 0.5>>, tensor<3x!quant.uniform<i8:f32, 0.25:1>>)
  %5 = stablehlo.bitcast_convert %4#0 : (tensor<3x!quant.uniform<i8:f32, 0.5>>) -> tensor<3xi8>
  %6 = stablehlo.bitcast_convert %4#1 : (tensor<3x!quant.uniform<i8:f32, 0.25:1>>) -> tensor<3xi8>
  check.expect_eq_const %5, dense<[1, 2, 3]> : tensor<3xi8>
  check.expect_eq_const %6, dense<[8, 9, 7]> : tensor<3xi8>
  func.return
}

// -----

func.func @a_tuple_of_two_types() {
  %0 = stablehlo.constant dense<[3, 1]> : tensor<2xi8>
  %1 = stablehlo.bitcast_convert %0 : (tensor<2xi8>) -> tensor<2x!quant.uniform<i8:f32, 0.5>>
  %2 = stablehlo.constant dense<[7, 8]> : tensor<2xi8>
  %3 = stablehlo.bitcast_convert %2 : (tensor<2xi8>) -> tensor<2x!quant.uniform<i8:f32, 0.25:1>>
  %4 = stablehlo.tuple %1, %3 : tuple<tensor<2x!quant.uniform<i8:f32, 0.5>>, tensor<2x!quant.uniform<i8:f32, 0.25:1>>>
  %5 = stablehlo.get_tuple_element %4[1] : (tuple<tensor<2x!quant.uniform<i8:f32, 0.5>>, tensor<2x!quant.uniform<i8:f32, 0.25:1>>>) -> tensor<2x!quant.uniform<i8:f32, 0.25:1>>
  %6:2 = stablehlo.optimization_barrier %1, %5 : tensor<2x!quant.uniform<i8:f32, 0.5>>, tensor<2x!quant.uniform<i8:f32, 0.25:1>>
  %7 = stablehlo.bitcast_convert %6#1 : (tensor<2x!quant.uniform<i8:f32, 0.25:1>>) -> tensor<2xi8>
  check.expect_eq %7, %2 : tensor<2xi8>
  func.return
}
