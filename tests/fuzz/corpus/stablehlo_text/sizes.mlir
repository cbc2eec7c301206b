func.func @main(%a: tensor<4x3xf32>, %b: tensor<3xf32>, %i: tensor<1xi64>) -> tensor<4x3xf32> {
  %0 = shape.shape_of %a : tensor<4x3xf32> -> tensor<2xindex>
  %1 = shape.const_shape [3] : tensor<1xindex>
  %w = shape.cstr_broadcastable %0, %1 : tensor<2xindex>, tensor<1xindex>
  %t = shape.const_witness true
  %x = shape.assuming_all %w, %t
  %c = arith.constant 1 : index
  %d = tensor.dim %a, %c : tensor<4x3xf32>
  %e = tensor.extract %0[%c] : tensor<2xindex>
  %m = arith.muli %d, %e : index
  %f = tensor.from_elements %m, %d : tensor<2xindex>
  %dead = "stablehlo.real_dynamic_slice"(%b, %i, %i, %i) : (tensor<3xf32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<?xf32>
  %dead2 = stablehlo.add %dead, %dead : tensor<?xf32>
  %r = shape.assuming %x -> (tensor<4x3xf32>) {
    %s = shape.broadcast %0, %1 : tensor<2xindex>, tensor<1xindex> -> tensor<2xindex>
    %y = "stablehlo.dynamic_broadcast_in_dim"(%b, %s) {broadcast_dimensions = array<i64: 1>} : (tensor<3xf32>, tensor<2xindex>) -> tensor<4x3xf32>
    shape.assuming_yield %y : tensor<4x3xf32>
  }
  return %r : tensor<4x3xf32>
}
