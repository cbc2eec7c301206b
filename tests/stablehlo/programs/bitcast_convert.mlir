// i1 is one bit; a complex value is its two parts, the real one first.
func.func @bits_to_words() {
  %0 = stablehlo.constant dense<[[false, true, false, true], [true, true, false, false]]> : tensor<2x4xi1>
  %1 = stablehlo.bitcast_convert %0 : (tensor<2x4xi1>) -> tensor<2xui4>
  check.expect_eq_const %1, dense<[10, 3]> : tensor<2xui4>
  func.return
}

// -----

func.func @words_to_bits() {
  %0 = stablehlo.constant dense<[10, 131]> : tensor<2xui8>
  %1 = stablehlo.bitcast_convert %0 : (tensor<2xui8>) -> tensor<2x8xi1>
  check.expect_eq_const %1, dense<[[false, true, false, true, false, false, false, false],
                                   [true, true, false, false, false, false, false, true]]> : tensor<2x8xi1>
  %2 = stablehlo.bitcast_convert %1 : (tensor<2x8xi1>) -> tensor<2xui8>
  check.expect_eq %0, %2 : tensor<2xui8>
  func.return
}

// -----

func.func @floats_and_bits() {
  %0 = stablehlo.constant dense<[1.0, -2.0]> : tensor<2xf16>
  %1 = stablehlo.bitcast_convert %0 : (tensor<2xf16>) -> tensor<2x16xi1>
  %2 = stablehlo.bitcast_convert %1 : (tensor<2x16xi1>) -> tensor<2xui16>
  check.expect_eq_const %2, dense<[0x3C00, 0xC000]> : tensor<2xui16>
  %3 = stablehlo.bitcast_convert %1 : (tensor<2x16xi1>) -> tensor<2xf16>
  check.expect_eq %0, %3 : tensor<2xf16>
  func.return
}

// -----

func.func @complex_values() {
  %0 = stablehlo.constant dense<[[(1.0, -2.0), (0.5, 3.0)], [(4.0, 5.0), (-6.0, 7.0)]]> : tensor<2x2xcomplex<f32>>
  %1 = stablehlo.bitcast_convert %0 : (tensor<2x2xcomplex<f32>>) -> tensor<2xcomplex<f64>>
  %2 = stablehlo.real %1 : (tensor<2xcomplex<f64>>) -> tensor<2xf64>
  %3 = stablehlo.bitcast_convert %2 : (tensor<2xf64>) -> tensor<2xui64>
  check.expect_eq_const %3, dense<[0xC00000003F800000, 0x40A0000040800000]> : tensor<2xui64>
  %4 = stablehlo.bitcast_convert %1 : (tensor<2xcomplex<f64>>) -> tensor<2x2xcomplex<f32>>
  check.expect_eq %0, %4 : tensor<2x2xcomplex<f32>>
  func.return
}
