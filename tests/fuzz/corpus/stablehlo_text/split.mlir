func.func @a() {
  %0 = stablehlo.constant dense<[(1.0, -2.0e3), (0x7FC00000, 0.5)]> : tensor<2xcomplex<f32>>
  check.expect_almost_eq_const %0, dense<(0.0, 1.0)> : tensor<2xcomplex<f32>> {tolerance = 0.1 : f64}
  func.return
}
// -----
func.func @q(%x: tensor<2xf32>) -> tensor<2x!quant.uniform<i8<-127:127>:f32:0, {0.5:1, 2.0}>> {
  %0 = stablehlo.uniform_quantize %x : (tensor<2xf32>) -> tensor<2x!quant.uniform<i8<-127:127>:f32:0, {0.5:1, 2.0}>>
  %1 = stablehlo.negate %0 : tensor<2x!quant.uniform<i8<-127:127>:f32:0, {0.5:1, 2.0}>>
  return %1 : tensor<2x!quant.uniform<i8<-127:127>:f32:0, {0.5:1, 2.0}>>
}
// -----
sdy.mesh @mesh = <["x"=2]>
func.func @s(%x: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> tensor<8xf32> {
  %0 = sdy.manual_computation(%x) in_shardings=[<@mesh, [{"x"}]>] out_shardings=[<@mesh, [{"x"}]>] manual_axes={"x"} (%y: tensor<8xf32>) {
    %1 = chlo.erf_inv %y : tensor<8xf32> -> tensor<8xf32>
    sdy.return %1 : tensor<8xf32>
  } : (tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}
