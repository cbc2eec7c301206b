/* tests/stablehlo/conformance_reasons.h -- {group, file, module in the file (-1: any), reason, met: true from the start
 * where it depends on what the C compiler contracts to fma} */
{"testdata", "fft_complex128_14_15_16_17.mlir", 0, "disabled in openxla/stablehlo as well (its issue 2497): the expected values come from another FFT, more than 3 ULP off", false},
{"testdata", "fft_float32_14_15_16_17.mlir", 0, "disabled in openxla/stablehlo as well (its issue 2497): the expected values come from another FFT, more than 3 ULP off", false},
{"testdata", "fft_float64_14_15_16_17.mlir", 0, "disabled in openxla/stablehlo as well (its issue 2497): the expected values come from another FFT, more than 3 ULP off", false},
{"testdata", "pow_complex64_20_30_complex64_20_30.mlir", 0, "disabled in openxla/stablehlo as well (its issue 2497): an absolute tolerance of 0.001 on values of 56250", false},
{"testdata", "sort_float32_5.mlir", 0, "disabled in openxla/stablehlo as well (its issue 2497): expects NaN == NaN of expect_eq", false},
{"testdata", "top_k_float32_5_chlo.mlir", 0, "disabled in openxla/stablehlo as well (its issue 2497): expects NaN == NaN of expect_eq", false},
{"testdata", "triangular_solve_float32_2_8_8_float32_2_10_8.mlir", 0, "disabled in openxla/stablehlo as well (its issue 2497): an ill-conditioned system solved in another order", false},
{"interpret", "probe.mlir", 7, "probes of single iterations of a loop, a debugging aid of the reference interpreter", false},
#ifdef CONFORMANCE_CPU /* sums are fused or kept in f32: nearer to the exact value than what the file expects */
{"testdata", "conv_general_dilated_float32_2_3_9_float32_12_1_3.mlir", 0, "21.39 - 24.99 + 1.09 cancels: exact -2.4996542, got -2.4996536, expected -2.4996526", true},
{"testdata", "cumlogsumexp_float16_8_9.mlir", 0, "exact -0.0088487, got -0.0088501, expected -0.0088196: f16 after each step", false},
{"testdata", "cumsum_bfloat16_8_9.mlir", 0, "exact 0.1171875, which is what is got; expected 0.1328125: bf16 after each step", false},
#endif
