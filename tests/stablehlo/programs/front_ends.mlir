// What front ends write beside StableHLO's own operations.
func.func @constant_like_has_the_type_of_its_value() {
  %0 = stablehlo.constant dense<[1, 2]> : tensor<2xi64>
  %1 = "chlo.constant_like"(%0) {value = 3.5 : f32} : (tensor<2xi64>) -> tensor<2xf32>
  check.expect_eq_const %1, dense<3.5> : tensor<2xf32>
  func.return
}

// -----

func.func @tensor_cast() {
  %0 = stablehlo.constant dense<[1, 2]> : tensor<2xi32>
  %1 = tensor.cast %0 : tensor<2xi32> to tensor<?xi32>
  %2 = stablehlo.add %1, %1 : tensor<?xi32>
  %3 = "tensor.cast"(%2) : (tensor<?xi32>) -> tensor<2xi32>
  check.expect_eq_const %3, dense<[2, 4]> : tensor<2xi32>
  func.return
}

// -----

// jax.lax.approx_max_k: the recall of a sort is 1.
module @approx_top_k {
  func.func private @greater(%a: tensor<f32>, %b: tensor<f32>, %i: tensor<i32>, %j: tensor<i32>) -> tensor<i1> {
    %0 = stablehlo.compare GT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    return %0 : tensor<i1>
  }
  func.func @main() {
    %x = stablehlo.constant dense<[[1.0, 5.0, 3.0, 4.0], [8.0, 6.0, 9.0, 7.0]]> : tensor<2x4xf32>
    %i = stablehlo.iota dim = 1 : tensor<2x4xi32>
    %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %none = stablehlo.constant dense<-1> : tensor<i32>
    %0:2 = stablehlo.custom_call @ApproxTopK(%x, %i, %low, %none) {called_computations = [@greater],
        mhlo.backend_config = {aggregate_to_topk = true, is_fallback = true, recall_target = 0.9 : f32,
                               reduction_dim = 1 : i64, reduction_input_size_override = -1 : i64, top_k = 2 : i64}} :
        (tensor<2x4xf32>, tensor<2x4xi32>, tensor<f32>, tensor<i32>) -> (tensor<2x2xf32>, tensor<2x2xi32>)
    check.expect_eq_const %0#0, dense<[[5.0, 4.0], [9.0, 8.0]]> : tensor<2x2xf32>
    check.expect_eq_const %0#1, dense<[[1, 3], [2, 0]]> : tensor<2x2xi32>
    return
  }
}
