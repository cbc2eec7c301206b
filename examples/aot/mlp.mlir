// Two layers: relu(x . w + b) . v
module @mlp {
  func.func public @main(%x: tensor<2x3xf32>, %w: tensor<3x4xf32>, %b: tensor<4xf32>, %v: tensor<4x1xf32>) -> tensor<2x1xf32> {
    %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
    %1 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<4xf32>) -> tensor<2x4xf32>
    %2 = stablehlo.add %0, %1 : tensor<2x4xf32>
    %3 = stablehlo.constant dense<0.0> : tensor<2x4xf32>
    %4 = stablehlo.maximum %2, %3 : tensor<2x4xf32>
    %5 = stablehlo.dot_general %4, %v, contracting_dims = [1] x [0] : (tensor<2x4xf32>, tensor<4x1xf32>) -> tensor<2x1xf32>
    return %5 : tensor<2x1xf32>
  }
}
