#alias = dense<[0, 1]> : tensor<2xi64>
#loc = loc("a.py":1:2)
module @control attributes {mhlo.num_partitions = 1 : i32} {
  func.func public @main(%a: tensor<4xf32> {tf.aliasing_output = 0 : i32, mhlo.sharding = "{replicated}"}, %n: tensor<i32>) -> (tensor<4xf32> {jax.result_info = ""}) {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %0:2 = stablehlo.while(%i = %zero, %x = %a) : tensor<i32>, tensor<4xf32> cond {
      %p = stablehlo.compare  LT, %i, %n,  SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    } do {
      %j = stablehlo.add %i, %one : tensor<i32>
      %y = func.call @twice(%x) : (tensor<4xf32>) -> tensor<4xf32>
      stablehlo.return %j, %y : tensor<i32>, tensor<4xf32>
    }
    %1 = "stablehlo.case"(%0#0) ({ stablehlo.return %a : tensor<4xf32> }, { stablehlo.return %0#1 : tensor<4xf32> }) : (tensor<i32>) -> tensor<4xf32> loc(#loc)
    %cst0 = stablehlo.constant dense<0.0> : tensor<f32>
    %2 = stablehlo.reduce(%1 init: %cst0) applies stablehlo.add across dimensions = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
    return %1 : tensor<4xf32>
  }
  func.func private @twice(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.add %x, %x {result_accuracy = #stablehlo.result_accuracy<atol = 0.0, rtol = 0.0, ulps = 1, mode = #stablehlo.result_accuracy_mode<TOLERANCE>>} : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
