func.func @main(%x: tensor<1x8x8x2xbf16>, %k: tensor<3x3x2x4xbf16>) -> tensor<1x4x8x4xf32> {
  %0 = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [2, 1], pad = [[1, 1], [1, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, true]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision HIGH>]} : (tensor<1x8x8x2xbf16>, tensor<3x3x2x4xbf16>) -> tensor<1x4x8x4xf32>
  %1 = stablehlo.custom_call @f(%0) {api_version = 4 : i32, backend_config = {a = 1 : i32, b = "x", c = array<i64: 1, 2>, d = [1.5 : f32, unit]}, operand_layouts = [dense<[3, 2, 1, 0]> : tensor<4xindex>], result_layouts = [dense<[3, 2, 1, 0]> : tensor<4xindex>]} : (tensor<1x4x8x4xf32>) -> tensor<1x4x8x4xf32>
  return %1 : tensor<1x4x8x4xf32>
}
{-# dialect_resources: { builtin: { blob: "0x040000000000803F" } } #-}
