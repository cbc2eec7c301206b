// Letters name dimensions; an ellipsis stands for those that have no letter, from the right. By numpy.
func.func @einsum_0() {
  %0 = stablehlo.constant dense<[[[-2.0, 1.0, 4.0], [0.0, 3.0, -1.0]], [[2.0, -2.0, 1.0], [4.0, 0.0, 3.0]]]> : tensor<2x2x3xf32>
  %1 = stablehlo.constant dense<[[[-2.0, 3.0], [1.0, -1.0], [4.0, 2.0]], [[0.0, -2.0], [3.0, 1.0], [-1.0, 4.0]]]> : tensor<2x3x2xf32>
  %r = "stablehlo.einsum"(%0, %1) <{einsum_config = "...ij,...jk->...ik"}> : (tensor<2x2x3xf32>, tensor<2x3x2xf32>) -> tensor<2x2x2xf32>
  check.expect_eq_const %r, dense<[[[21.0, 1.0], [-1.0, -5.0]], [[-7.0, -2.0], [-3.0, 4.0]]]> : tensor<2x2x2xf32>
  func.return
}

// -----

func.func @einsum_1() {
  %0 = stablehlo.constant dense<[[[[-2.0, 1.0], [4.0, 0.0]], [[3.0, -1.0], [2.0, -2.0]], [[1.0, 4.0], [0.0, 3.0]]], [[[-1.0, 2.0], [-2.0, 1.0]], [[4.0, 0.0], [3.0, -1.0]], [[2.0, -2.0], [1.0, 4.0]]]]> : tensor<2x3x2x2xf32>
  %1 = stablehlo.constant dense<[[-2.0, 3.0], [1.0, -1.0], [4.0, 2.0]]> : tensor<3x2xf32>
  %r = "stablehlo.einsum"(%0, %1) <{einsum_config = "b...ij,...j->b...i"}> : (tensor<2x3x2x2xf32>, tensor<3x2xf32>) -> tensor<2x3x2xf32>
  check.expect_eq_const %r, dense<[[[7.0, -8.0], [4.0, 4.0], [12.0, 6.0]], [[8.0, 7.0], [4.0, 4.0], [4.0, 12.0]]]> : tensor<2x3x2xf32>
  func.return
}

// -----

func.func @einsum_2() {
  %0 = stablehlo.constant dense<[[-2.0, 1.0, 4.0], [0.0, 3.0, -1.0]]> : tensor<2x3xf32>
  %1 = stablehlo.constant dense<[[-2.0, 3.0], [1.0, -1.0], [4.0, 2.0]]> : tensor<3x2xf32>
  %r = "stablehlo.einsum"(%0, %1) <{einsum_config = "ij,jk->i"}> : (tensor<2x3xf32>, tensor<3x2xf32>) -> tensor<2xf32>
  check.expect_eq_const %r, dense<[22.0, -6.0]> : tensor<2xf32>
  func.return
}

// -----

func.func @einsum_3() {
  %0 = stablehlo.constant dense<[[-2.0, 1.0], [4.0, 0.0]]> : tensor<2x2xf32>
  %1 = stablehlo.constant dense<[[-2.0, 3.0, 1.0], [-1.0, 4.0, 2.0]]> : tensor<2x3xf32>
  %r = "stablehlo.einsum"(%0, %1) <{einsum_config = "ij,kl->jl"}> : (tensor<2x2xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  check.expect_eq_const %r, dense<[[-6.0, 14.0, 6.0], [-3.0, 7.0, 3.0]]> : tensor<2x3xf32>
  func.return
}

// -----

func.func @einsum_4() {
  %0 = stablehlo.constant dense<[[-2.0, 1.0], [4.0, 0.0], [3.0, -1.0]]> : tensor<3x2xf32>
  %1 = stablehlo.constant dense<[[-2.0, 3.0], [1.0, -1.0], [4.0, 2.0]]> : tensor<3x2xf32>
  %r = "stablehlo.einsum"(%0, %1) <{einsum_config = "i...,i...->..."}> : (tensor<3x2xf32>, tensor<3x2xf32>) -> tensor<2xf32>
  check.expect_eq_const %r, dense<[20.0, 1.0]> : tensor<2xf32>
  func.return
}

// -----

func.func @einsum_5() {
  %0 = stablehlo.constant dense<[[[-2.0, 1.0], [4.0, 0.0], [3.0, -1.0]], [[2.0, -2.0], [1.0, 4.0], [0.0, 3.0]]]> : tensor<2x3x2xf32>
  %1 = stablehlo.constant dense<[-2.0, 3.0, 1.0]> : tensor<3xf32>
  %r = "stablehlo.einsum"(%0, %1) <{einsum_config = "ab...,b->...a"}> : (tensor<2x3x2xf32>, tensor<3xf32>) -> tensor<2x2xf32>
  check.expect_eq_const %r, dense<[[19.0, -1.0], [-3.0, 19.0]]> : tensor<2x2xf32>
  func.return
}

// -----

func.func @einsum_6() {
  %0 = stablehlo.constant dense<[[[-2.0, 1.0, 4.0], [0.0, 3.0, -1.0]], [[2.0, -2.0, 1.0], [4.0, 0.0, 3.0]]]> : tensor<2x2x3xf32>
  %r = "stablehlo.unary_einsum"(%0) <{einsum_config = "...ij->...ji"}> : (tensor<2x2x3xf32>) -> tensor<2x3x2xf32>
  check.expect_eq_const %r, dense<[[[-2.0, 0.0], [1.0, 3.0], [4.0, -1.0]], [[2.0, 4.0], [-2.0, 0.0], [1.0, 3.0]]]> : tensor<2x3x2xf32>
  func.return
}

// -----

func.func @einsum_7() {
  %0 = stablehlo.constant dense<[[[-2.0, 1.0], [4.0, 0.0], [3.0, -1.0]], [[2.0, -2.0], [1.0, 4.0], [0.0, 3.0]]]> : tensor<2x3x2xf32>
  %r = "stablehlo.unary_einsum"(%0) <{einsum_config = "i...j->..."}> : (tensor<2x3x2xf32>) -> tensor<3xf32>
  check.expect_eq_const %r, dense<[-1.0, 9.0, 5.0]> : tensor<3xf32>
  func.return
}
