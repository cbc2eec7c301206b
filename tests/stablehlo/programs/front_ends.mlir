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

// -----

// What XLA writes for operations that StableHLO lacks: attributes in a dictionary, a region as a function.
module @operations_of_mhlo {
  func.func private @sum(%a: tensor<f32>, %b: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.add %a, %b : tensor<f32>
    return %0 : tensor<f32>
  }
  func.func @main() {
    %x = stablehlo.constant dense<[[1.0, 5.0, 3.0], [8.0, 6.0, 9.0]]> : tensor<2x3xf32>
    %z = stablehlo.constant dense<0.0> : tensor<f32>
    %0:2 = stablehlo.custom_call @mhlo.topk(%x) {mhlo.attributes = {k = 2 : i64, largest = true}, mhlo.version = 1 : i64} :
        (tensor<2x3xf32>) -> (tensor<2x2xf32>, tensor<2x2xi32>)
    %1 = stablehlo.custom_call @mhlo.tan(%z) {mhlo.attributes = {}, mhlo.version = 1 : i64} : (tensor<f32>) -> tensor<f32>
    %2 = stablehlo.custom_call @mhlo.reduce(%x, %z) {mhlo.attributes = {dimensions = dense<1> : tensor<1xi64>}, called_computations = [@sum]} :
        (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>
    %3 = stablehlo.custom_call @mhlo.dot(%2, %x) {mhlo.attributes = {precision_config = ["HIGHEST", "DEFAULT"]}} :
        (tensor<2xf32>, tensor<2x3xf32>) -> tensor<3xf32>
    %4 = mhlo.sinh %z : tensor<f32>
    check.expect_eq_const %0#0, dense<[[5.0, 3.0], [9.0, 8.0]]> : tensor<2x2xf32>
    check.expect_eq_const %0#1, dense<[[1, 2], [2, 0]]> : tensor<2x2xi32>
    check.expect_eq_const %1, dense<0.0> : tensor<f32>
    check.expect_eq_const %2, dense<[9.0, 23.0]> : tensor<2xf32>
    check.expect_eq_const %3, dense<[193.0, 183.0, 234.0]> : tensor<3xf32>
    check.expect_eq_const %4, dense<0.0> : tensor<f32>
    return
  }
}

// -----

// What jaxlib makes of HLO: operations of MHLO that say how a program runs.
func.func @operations_of_hlo() {
  %x = stablehlo.constant dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]> : tensor<2x3xf32>
  %0 = mhlo.copy %x : tensor<2x3xf32>
  %1:2 = "mhlo.fusion"(%0, %x) <{fusion_kind = #mhlo<fusion_kind kLoop>}> ({
  ^bb0(%a: tensor<2x3xf32>, %b: tensor<2x3xf32>):
    %5 = mhlo.multiply %a, %b : tensor<2x3xf32>
    mhlo.return %5, %a : tensor<2x3xf32>, tensor<2x3xf32>
  }) : (tensor<2x3xf32>, tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>)
  %2 = "mhlo.bitcast"(%1#0) {source_layout = dense<[1, 0]> : tensor<2xindex>, result_layout = dense<0> : tensor<1xindex>} :
      (tensor<2x3xf32>) -> tensor<6xf32>
  %3 = mhlo.create_token : !mhlo.token
  %4 = "mhlo.add_dependency"(%2, %3) : (tensor<6xf32>, !mhlo.token) -> tensor<6xf32>
  check.expect_eq_const %4, dense<[1.0, 4.0, 9.0, 16.0, 25.0, 36.0]> : tensor<6xf32>
  check.expect_eq_const %1#1, dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]> : tensor<2x3xf32>
  func.return
}
