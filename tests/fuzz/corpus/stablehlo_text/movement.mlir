func.func @main(%x: tensor<4x8xf32>, %i: tensor<3x1xi32>, %u: tensor<3x8xf32>) -> (tensor<3x8xf32>, tensor<4x8xf32>) {
  %0 = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 8>}> : (tensor<4x8xf32>, tensor<3x1xi32>) -> tensor<3x8xf32>
  %1 = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.maximum %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<4x8xf32>, tensor<3x1xi32>, tensor<3x8xf32>) -> tensor<4x8xf32>
  %2 = stablehlo.slice %1 [0:4:2, 1:3] : (tensor<4x8xf32>) -> tensor<2x2xf32>
  %c = stablehlo.constant dense<"0x0000803F"> : tensor<f32>
  %3 = stablehlo.pad %2, %c, low = [1, 0], high = [0, -1], interior = [2, 0] : (tensor<2x2xf32>, tensor<f32>) -> tensor<5x1xf32>
  %4 = stablehlo.transpose %3, dims = [1, 0] : (tensor<5x1xf32>) -> tensor<1x5xf32>
  %5 = stablehlo.reduce_precision %4, format = e5m2 : tensor<1x5xf32>
  %6 = stablehlo.dot_general %5, %3, contracting_dims = [1] x [0], precision = [HIGHEST, DEFAULT], algorithm = <lhs_precision_type = tf32, rhs_precision_type = tf32, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1, allow_imprecise_accumulation = false> : (tensor<1x5xf32>, tensor<5x1xf32>) -> tensor<1x1xf32>
  return %0, %1 : tensor<3x8xf32>, tensor<4x8xf32>
}
