module {
  func.func @main(%x: tensor<?x4xf32>) -> tensor<?xf32> {
    %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x4xf32>) -> tensor<i32>
    %m = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
    %i = stablehlo.dynamic_iota %m, dim = 0 : (tensor<1xi32>) -> tensor<?xf32>
    return %i : tensor<?xf32>
  }
  func.func @bounded(%x: tensor<?xf32, #stablehlo.bounds<3>>) -> tensor<?xf32, #stablehlo.bounds<3>> {
    return %x : tensor<?xf32, #stablehlo.bounds<3>>
  }
}
