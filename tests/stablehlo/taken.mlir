// Programs for taken_jaxlib_test.py: what jaxlib takes though it looks as if it could not, and what looks the same and is refused.
// ---- reduce_return_captured
func.func @main(%arg0: tensor<4x3xi32>, %arg1: tensor<i32>, %arg2: tensor<i32>) -> tensor<3xi32> {
  %0 = "stablehlo.reduce"(%arg0, %arg1) ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    "stablehlo.return"(%arg2) : (tensor<i32>) -> ()
  }) {dimensions = array<i64: 0>} : (tensor<4x3xi32>, tensor<i32>) -> tensor<3xi32>
  return %0 : tensor<3xi32>
}
// ---- reduce_return_captured_nothing
func.func @main(%arg0: tensor<0x3xi32>, %arg1: tensor<i32>, %arg2: tensor<i32>) -> tensor<3xi32> {
  %0 = "stablehlo.reduce"(%arg0, %arg1) ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    "stablehlo.return"(%arg2) : (tensor<i32>) -> ()
  }) {dimensions = array<i64: 0>} : (tensor<0x3xi32>, tensor<i32>) -> tensor<3xi32>
  return %0 : tensor<3xi32>
}
// ---- reduce_two_both_captured
func.func @main(%arg0: tensor<4x3xi32>, %arg1: tensor<i32>, %arg2: tensor<i32>) -> (tensor<3xi32>, tensor<3xi32>) {
  %0:2 = "stablehlo.reduce"(%arg0, %arg0, %arg1, %arg1) ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>, %e: tensor<i32>, %f: tensor<i32>):
    "stablehlo.return"(%arg1, %arg2) : (tensor<i32>, tensor<i32>) -> ()
  }) {dimensions = array<i64: 0>} : (tensor<4x3xi32>, tensor<4x3xi32>, tensor<i32>, tensor<i32>) -> (tensor<3xi32>, tensor<3xi32>)
  return %0#0, %0#1 : tensor<3xi32>, tensor<3xi32>
}
// ---- reduce_computed_capture
func.func @main(%arg0: tensor<4x3xi32>, %arg1: tensor<i32>, %arg2: tensor<i32>) -> tensor<3xi32> {
  %s = stablehlo.add %arg1, %arg2 : tensor<i32>
  %0 = "stablehlo.reduce"(%arg0, %arg1) ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    "stablehlo.return"(%s) : (tensor<i32>) -> ()
  }) {dimensions = array<i64: 0>} : (tensor<4x3xi32>, tensor<i32>) -> tensor<3xi32>
  return %0 : tensor<3xi32>
}
// ---- reduce_computed_from_constants
func.func @main(%arg0: tensor<4x3xi32>, %arg1: tensor<i32>) -> tensor<3xi32> {
  %k = stablehlo.constant dense<3> : tensor<i32>
  %s = stablehlo.add %k, %k : tensor<i32>
  %0 = "stablehlo.reduce"(%arg0, %arg1) ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %c = stablehlo.add %a, %b : tensor<i32>
    %d = stablehlo.minimum %c, %s : tensor<i32>
    "stablehlo.return"(%d) : (tensor<i32>) -> ()
  }) {dimensions = array<i64: 0>} : (tensor<4x3xi32>, tensor<i32>) -> tensor<3xi32>
  return %0 : tensor<3xi32>
}
// ---- reduce_dead_capture
func.func @main(%arg0: tensor<4x3xi32>, %arg1: tensor<i32>, %arg2: tensor<i32>) -> tensor<i32> {
  %0 = "stablehlo.reduce"(%arg0, %arg1) ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %c = stablehlo.add %a, %b : tensor<i32>
    %d = stablehlo.minimum %c, %arg2 : tensor<i32>
    "stablehlo.return"(%d) : (tensor<i32>) -> ()
  }) {dimensions = array<i64: 0>} : (tensor<4x3xi32>, tensor<i32>) -> tensor<3xi32>
  return %arg1 : tensor<i32>
}
// ---- reduce_dead_use_inside
func.func @main(%arg0: tensor<4x3xi32>, %arg1: tensor<i32>, %arg2: tensor<i32>) -> tensor<3xi32> {
  %0 = "stablehlo.reduce"(%arg0, %arg1) ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %c = stablehlo.add %a, %b : tensor<i32>
    %d = stablehlo.minimum %c, %arg2 : tensor<i32>
    "stablehlo.return"(%c) : (tensor<i32>) -> ()
  }) {dimensions = array<i64: 0>} : (tensor<4x3xi32>, tensor<i32>) -> tensor<3xi32>
  return %0 : tensor<3xi32>
}
// ---- while_body_if_case
func.func @main(%arg0: tensor<i32>, %arg1: tensor<i32>, %arg2: tensor<4xi32>) -> tensor<4xi32> {
  %z = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %0:2 = stablehlo.while(%i = %z, %x = %arg2) : tensor<i32>, tensor<4xi32>
  cond { %c = stablehlo.compare LT, %i, %arg0 : (tensor<i32>, tensor<i32>) -> tensor<i1>
   stablehlo.return %c : tensor<i1>
  } do {
   %p = stablehlo.compare LT, %i, %arg1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
   %y = "stablehlo.if"(%p) ({
     %w = "stablehlo.case"(%i) ({
        %v = stablehlo.add %x, %arg2 : tensor<4xi32>
        stablehlo.return %v : tensor<4xi32>
     }, { stablehlo.return %arg2 : tensor<4xi32> }) : (tensor<i32>) -> tensor<4xi32>
     stablehlo.return %w : tensor<4xi32>
   }, {
     stablehlo.return %x : tensor<4xi32>
   }) : (tensor<i1>) -> tensor<4xi32>
   %j = stablehlo.add %i, %one : tensor<i32>
   stablehlo.return %j, %y : tensor<i32>, tensor<4xi32>
  }
  return %0#1 : tensor<4xi32>
}
// ---- unused_in_loop
func.func @main(%arg0: tensor<4xi32>, %arg3: tensor<i32>) -> tensor<4xi32> {
  %z = stablehlo.constant dense<0> : tensor<i32>
  %0:2 = stablehlo.while(%i = %z, %x = %arg0) : tensor<i32>, tensor<4xi32>
  cond { %c = stablehlo.compare LT, %i, %arg3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
   stablehlo.return %c : tensor<i1>
  } do {
   %y = "stablehlo.map"(%x) ({
    ^bb0(%a: tensor<i32>):
    %c = stablehlo.add %a, %i : tensor<i32>
    "stablehlo.return"(%c) : (tensor<i32>) -> ()
   }) {dimensions = array<i64: 0>} : (tensor<4xi32>) -> tensor<4xi32>
   %u = stablehlo.add %y, %x : tensor<4xi32>
   %w = stablehlo.add %x, %x : tensor<4xi32>
   %one = stablehlo.constant dense<1> : tensor<i32>
   %j = stablehlo.add %i, %one : tensor<i32>
   stablehlo.return %j, %w : tensor<i32>, tensor<4xi32>
  }
  return %0#1 : tensor<4xi32>
}
// ---- dynamic_pad_dead
func.func @main(%arg0: tensor<4xf32>, %arg1: tensor<f32>, %arg2: tensor<1xi64>) -> tensor<f32> {
  %0 = "stablehlo.dynamic_pad"(%arg0, %arg1, %arg2, %arg2, %arg2) : (tensor<4xf32>, tensor<f32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<?xf32>
  return %arg1 : tensor<f32>
}
// ---- dynamic_pad_dead_static
func.func @main(%arg0: tensor<4xf32>, %arg1: tensor<f32>, %arg2: tensor<1xi64>) -> tensor<f32> {
  %0 = "stablehlo.dynamic_pad"(%arg0, %arg1, %arg2, %arg2, %arg2) : (tensor<4xf32>, tensor<f32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<13xf32>
  return %arg1 : tensor<f32>
}
// ---- real_dynamic_slice_dead
func.func @main(%arg0: tensor<4xf32>, %arg1: tensor<f32>, %arg2: tensor<1xi64>) -> tensor<f32> {
  %0 = "stablehlo.real_dynamic_slice"(%arg0, %arg2, %arg2, %arg2) : (tensor<4xf32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<?xf32>
  return %arg1 : tensor<f32>
}
// ---- real_dynamic_slice_dead_chain
func.func @main(%arg0: tensor<4xf32>, %arg1: tensor<f32>, %arg2: tensor<1xi64>) -> tensor<f32> {
  %0 = "stablehlo.real_dynamic_slice"(%arg0, %arg2, %arg2, %arg2) : (tensor<4xf32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<?xf32>
  %1 = stablehlo.add %0, %0 : tensor<?xf32>
  %2 = stablehlo.sine %1 : tensor<?xf32>
  return %arg1 : tensor<f32>
}
// ---- dynamic_gather_dead
func.func @main(%arg0 : tensor<16x11xi32>, %arg1 : tensor<5x2xi32>, %arg2: tensor<2xi32>) -> tensor<2xi32> {
  %0 = "stablehlo.dynamic_gather"(%arg0, %arg1, %arg2) {
    dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], offset_dims = [1], start_index_map = [0, 1], index_vector_dim = 1>, indices_are_sorted = true} : (tensor<16x11xi32>, tensor<5x2xi32>, tensor<2xi32>) -> tensor<5x8xi32>
  return %arg2 : tensor<2xi32>
}
// ---- dynamic_conv_dead
func.func @main(%arg0 : tensor<100x26x26x32xf32>, %arg1 : tensor<3x3x1x32xf32>, %arg2 : tensor<2x2xi32>) -> tensor<2x2xi32> {
  %result = "stablehlo.dynamic_conv"(%arg0, %arg1, %arg2) {
    dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>,
    feature_group_count = 32 : i64, batch_group_count = 1 : i64
  } : (tensor<100x26x26x32xf32>, tensor<3x3x1x32xf32>, tensor<2x2xi32>) -> tensor<?x?x?x?xf32>
  return %arg2 : tensor<2x2xi32>
}
// ---- custom_call_dead
func.func @main(%arg0: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.custom_call @nonesuch(%arg0) : (tensor<4xf32>) -> tensor<4xf32>
  return %arg0 : tensor<4xf32>
}
// ---- custom_call_loop0
func.func @main(%arg0: tensor<4xf32>) -> tensor<4xf32> {
  %z = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %0:2 = stablehlo.while(%i = %z, %x = %arg0) : tensor<i32>, tensor<4xf32>
  cond { %c = stablehlo.compare LT, %i, %z : (tensor<i32>, tensor<i32>) -> tensor<i1>
   stablehlo.return %c : tensor<i1>
  } do {
   %y = stablehlo.custom_call @nonesuch(%x) : (tensor<4xf32>) -> tensor<4xf32>
   %j = stablehlo.add %i, %one : tensor<i32>
   stablehlo.return %j, %y : tensor<i32>, tensor<4xf32>
  }
  return %0#1 : tensor<4xf32>
}
// ---- custom_call_effect_loop0
func.func @main(%arg0: tensor<4xf32>) -> tensor<4xf32> {
  %z = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %0:2 = stablehlo.while(%i = %z, %x = %arg0) : tensor<i32>, tensor<4xf32>
  cond { %c = stablehlo.compare LT, %i, %z : (tensor<i32>, tensor<i32>) -> tensor<i1>
   stablehlo.return %c : tensor<i1>
  } do {
   %y = stablehlo.custom_call @nonesuch(%x) {has_side_effect = true} : (tensor<4xf32>) -> tensor<4xf32>
   %j = stablehlo.add %i, %one : tensor<i32>
   stablehlo.return %j, %y : tensor<i32>, tensor<4xf32>
  }
  return %0#1 : tensor<4xf32>
}
// ---- custom_call_false_loop
func.func @main(%arg0: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.while(%x = %arg0) : tensor<4xf32>
  cond { %c = stablehlo.constant dense<false> : tensor<i1>
   stablehlo.return %c : tensor<i1>
  } do {
   %y = stablehlo.custom_call @nonesuch(%x) : (tensor<4xf32>) -> tensor<4xf32>
   stablehlo.return %y : tensor<4xf32>
  }
  return %0 : tensor<4xf32>
}
// ---- custom_call_if_false
func.func @main(%arg0: tensor<4xf32>) -> tensor<4xf32> {
  %c = stablehlo.constant dense<false> : tensor<i1>
  %0 = "stablehlo.if"(%c) ({
   %y = stablehlo.custom_call @nonesuch(%arg0) : (tensor<4xf32>) -> tensor<4xf32>
   stablehlo.return %y : tensor<4xf32>
   }, {
   stablehlo.return %arg0 : tensor<4xf32> }) : (tensor<i1>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
// ---- rng_bits_u32_state_dead
func.func @main(%arg0: tensor<4xui32>) -> tensor<4xui32> {
  %0, %1 = "stablehlo.rng_bit_generator"(%arg0) {rng_algorithm = #stablehlo<rng_algorithm PHILOX>} : (tensor<4xui32>) -> (tensor<4xui32>, tensor<10xui32>)
  return %arg0 : tensor<4xui32>
}
// ---- bc_few_ones
func.func @main(%arg0: tensor<1x4xi32>, %arg1: tensor<4x1xi32>) -> tensor<4x4xi32> {
  %0 = "chlo.broadcast_add"(%arg0, %arg1) {broadcast_dimensions = array<i64: 1>} : (tensor<1x4xi32>, tensor<4x1xi32>) -> tensor<4x4xi32>
  return %0 : tensor<4x4xi32>
}
// ---- bc_out_of_range
func.func @main(%arg0: tensor<4x4xi32>, %arg1: tensor<4x4xi32>) -> tensor<4x4xi32> {
  %0 = "chlo.broadcast_add"(%arg0, %arg1) {broadcast_dimensions = array<i64: 7>} : (tensor<4x4xi32>, tensor<4x4xi32>) -> tensor<4x4xi32>
  return %0 : tensor<4x4xi32>
}
// ---- bc_many
func.func @main(%arg0: tensor<4xi32>, %arg1: tensor<4xi32>) -> tensor<4xi32> {
  %0 = "chlo.broadcast_add"(%arg0, %arg1) {broadcast_dimensions = array<i64: 0, 1, 2>} : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
  return %0 : tensor<4xi32>
}
// ---- bc_scalars_dims
func.func @main(%arg0: tensor<i32>, %arg1: tensor<i32>) -> tensor<i32> {
  %0 = "chlo.broadcast_add"(%arg0, %arg1) {broadcast_dimensions = array<i64: 0>} : (tensor<i32>, tensor<i32>) -> tensor<i32>
  return %0 : tensor<i32>
}
// ---- bc_compare_few
func.func @main(%arg0: tensor<4x4xf32>, %arg1: tensor<4x4xf32>) -> tensor<4x4xi1> {
  %0 = "chlo.broadcast_compare"(%arg0, %arg1) {broadcast_dimensions = array<i64: 1>, comparison_direction = #chlo<comparison_direction GE>} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xi1>
  return %0 : tensor<4x4xi1>
}
// ---- all_reduce_01
func.func @main(%arg0: tensor<4xi32>) -> tensor<4xi32> {
  %0 = "stablehlo.all_reduce"(%arg0) ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %c = stablehlo.add %a, %b : tensor<i32>
    "stablehlo.return"(%c) : (tensor<i32>) -> ()
  }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<4xi32>) -> tensor<4xi32>
  return %0 : tensor<4xi32>
}
// ---- all_reduce_01_23_channel
func.func @main(%arg0: tensor<4xi32>) -> tensor<4xi32> {
  %0 = "stablehlo.all_reduce"(%arg0) ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %c = stablehlo.add %a, %b : tensor<i32>
    "stablehlo.return"(%c) : (tensor<i32>) -> ()
  }) {replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>} : (tensor<4xi32>) -> tensor<4xi32>
  return %0 : tensor<4xi32>
}
// ---- all_reduce_01_global
func.func @main(%arg0: tensor<4xi32>) -> tensor<4xi32> {
  %0 = "stablehlo.all_reduce"(%arg0) ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %c = stablehlo.add %a, %b : tensor<i32>
    "stablehlo.return"(%c) : (tensor<i32>) -> ()
  }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, use_global_device_ids} : (tensor<4xi32>) -> tensor<4xi32>
  return %0 : tensor<4xi32>
}
// ---- all_gather_0_1
func.func @main(%arg0: tensor<4xi32>) -> tensor<4xi32> {
  %0 = "stablehlo.all_gather"(%arg0)  {all_gather_dim = 0 : i64, replica_groups = dense<[[0], [1]]> : tensor<2x1xi64>} : (tensor<4xi32>) -> tensor<4xi32>
  return %0 : tensor<4xi32>
}
// ---- reduce_scatter_0_1
func.func @main(%arg0: tensor<4xi32>) -> tensor<4xi32> {
  %0 = "stablehlo.reduce_scatter"(%arg0) ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %c = stablehlo.add %a, %b : tensor<i32>
    "stablehlo.return"(%c) : (tensor<i32>) -> ()
  }) {scatter_dimension = 0 : i64, replica_groups = dense<[[0], [1]]> : tensor<2x1xi64>} : (tensor<4xi32>) -> tensor<4xi32>
  return %0 : tensor<4xi32>
}
// ---- all_to_all_0_1_channel
func.func @main(%arg0: tensor<4xi32>) -> tensor<4xi32> {
  %0 = "stablehlo.all_to_all"(%arg0)  {split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = 1 : i64, replica_groups = dense<[[0], [1]]> : tensor<2x1xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>} : (tensor<4xi32>) -> tensor<4xi32>
  return %0 : tensor<4xi32>
}
// ---- collective_permute_01
func.func @main(%arg0: tensor<4xi32>) -> tensor<4xi32> {
  %0 = "stablehlo.collective_permute"(%arg0)  {source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<4xi32>) -> tensor<4xi32>
  return %0 : tensor<4xi32>
}
// ---- collective_permute_11
func.func @main(%arg0: tensor<4xi32>) -> tensor<4xi32> {
  %0 = "stablehlo.collective_permute"(%arg0)  {source_target_pairs = dense<[[1, 1]]> : tensor<1x2xi64>} : (tensor<4xi32>) -> tensor<4xi32>
  return %0 : tensor<4xi32>
}
// ---- shape_of_dead
func.func @main(%arg0: tensor<4x3xf32>) -> tensor<4x3xf32> {
  %0 = shape.shape_of %arg0 : tensor<4x3xf32> -> tensor<2xindex>
  return %arg0 : tensor<4x3xf32>
}
// ---- shape_of_bcast
func.func @main(%arg0: tensor<4x3xf32>, %arg1: tensor<f32>) -> tensor<4x3xf32> {
  %0 = shape.shape_of %arg0 : tensor<4x3xf32> -> tensor<2xindex>
  %1 = "stablehlo.dynamic_broadcast_in_dim"(%arg1, %0) {broadcast_dimensions = array<i64>} : (tensor<f32>, tensor<2xindex>) -> tensor<4x3xf32>
  return %1 : tensor<4x3xf32>
}
// ---- shape_of_bcast_unknown
func.func @main(%arg0: tensor<4x3xf32>, %arg1: tensor<f32>) -> tensor<4x3xf32> {
  %0 = shape.shape_of %arg0 : tensor<4x3xf32> -> tensor<2xindex>
  %1 = "stablehlo.dynamic_broadcast_in_dim"(%arg1, %0) {broadcast_dimensions = array<i64>} : (tensor<f32>, tensor<2xindex>) -> tensor<?x?xf32>
  %2 = stablehlo.convert %1 : (tensor<?x?xf32>) -> tensor<4x3xf32>
  return %2 : tensor<4x3xf32>
}
// ---- shape_of_shape_type
func.func @main(%arg0: tensor<4x3xf32>, %arg1: tensor<f32>) -> tensor<f32> {
  %0 = shape.shape_of %arg0 : tensor<4x3xf32> -> !shape.shape
  return %arg1 : tensor<f32>
}
// ---- const_shape
func.func @main(%arg1: tensor<f32>) -> tensor<4x3xf32> {
  %0 = shape.const_shape [4, 3] : tensor<2xindex>
  %1 = "stablehlo.dynamic_broadcast_in_dim"(%arg1, %0) {broadcast_dimensions = array<i64>} : (tensor<f32>, tensor<2xindex>) -> tensor<4x3xf32>
  return %1 : tensor<4x3xf32>
}
// ---- const_shape_empty
func.func @main(%arg1: tensor<f32>) -> tensor<f32> {
  %0 = shape.const_shape [] : tensor<0xindex>
  %1 = "stablehlo.dynamic_broadcast_in_dim"(%arg1, %0) {broadcast_dimensions = array<i64>} : (tensor<f32>, tensor<0xindex>) -> tensor<f32>
  return %1 : tensor<f32>
}
// ---- const_shape_generic
func.func @main(%arg1: tensor<f32>) -> tensor<4x3xf32> {
  %0 = "shape.const_shape"() {shape = dense<[4, 3]> : tensor<2xindex>} : () -> tensor<2xindex>
  %1 = "stablehlo.dynamic_broadcast_in_dim"(%arg1, %0) {broadcast_dimensions = array<i64>} : (tensor<f32>, tensor<2xindex>) -> tensor<4x3xf32>
  return %1 : tensor<4x3xf32>
}
// ---- num_elements
func.func @main(%arg0: tensor<4x3xf32>) -> tensor<12xf32> {
  %0 = shape.shape_of %arg0 : tensor<4x3xf32> -> tensor<2xindex>
  %1 = shape.num_elements %0 : tensor<2xindex> -> index
  %2 = tensor.from_elements %1 : tensor<1xindex>
  %3 = "stablehlo.dynamic_reshape"(%arg0, %2) : (tensor<4x3xf32>, tensor<1xindex>) -> tensor<12xf32>
  return %3 : tensor<12xf32>
}
// ---- cstr_assuming
func.func @main(%arg0: tensor<4x3xf32>, %arg1: tensor<4x3xf32>) -> tensor<4x3xf32> {
  %0 = shape.shape_of %arg0 : tensor<4x3xf32> -> tensor<2xindex>
  %1 = shape.shape_of %arg1 : tensor<4x3xf32> -> tensor<2xindex>
  %2 = shape.cstr_broadcastable %0, %1 : tensor<2xindex>, tensor<2xindex>
  %3 = shape.assuming %2 -> (tensor<4x3xf32>) {
    %4 = stablehlo.add %arg0, %arg1 : tensor<4x3xf32>
    shape.assuming_yield %4 : tensor<4x3xf32>
  }
  return %3 : tensor<4x3xf32>
}
// ---- cstr_dead
func.func @main(%arg0: tensor<4x3xf32>, %arg1: tensor<4x3xf32>) -> tensor<4x3xf32> {
  %0 = shape.shape_of %arg0 : tensor<4x3xf32> -> tensor<2xindex>
  %1 = shape.shape_of %arg1 : tensor<4x3xf32> -> tensor<2xindex>
  %2 = shape.cstr_broadcastable %0, %1 : tensor<2xindex>, tensor<2xindex>
  return %arg1 : tensor<4x3xf32>
}
// ---- shape_broadcast
func.func @main(%arg0: tensor<4x1xf32>, %arg1: tensor<3xf32>) -> tensor<4x3xf32> {
  %0 = shape.shape_of %arg0 : tensor<4x1xf32> -> tensor<2xindex>
  %1 = shape.shape_of %arg1 : tensor<3xf32> -> tensor<1xindex>
  %2 = shape.broadcast %0, %1 : tensor<2xindex>, tensor<1xindex> -> tensor<2xindex>
  %3 = "stablehlo.dynamic_broadcast_in_dim"(%arg0, %2) {broadcast_dimensions = array<i64: 0, 1>} : (tensor<4x1xf32>, tensor<2xindex>) -> tensor<4x3xf32>
  return %3 : tensor<4x3xf32>
}
// ---- tensor_dim
func.func @main(%arg0: tensor<4x3xf32>, %arg1: tensor<f32>) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %0 = tensor.dim %arg0, %c0 : tensor<4x3xf32>
  %2 = tensor.from_elements %0 : tensor<1xindex>
  %3 = "stablehlo.dynamic_broadcast_in_dim"(%arg1, %2) {broadcast_dimensions = array<i64>} : (tensor<f32>, tensor<1xindex>) -> tensor<4xf32>
  return %3 : tensor<4xf32>
}
// ---- arith_index_cast
func.func @main(%arg0: tensor<4x3xf32>, %arg1: tensor<f32>) -> tensor<4xf32> {
  %c0 = arith.constant 4 : index
  %c1 = arith.index_cast %c0 : index to i64
  %2 = tensor.from_elements %c1 : tensor<1xi64>
  %3 = "stablehlo.dynamic_broadcast_in_dim"(%arg1, %2) {broadcast_dimensions = array<i64>} : (tensor<f32>, tensor<1xi64>) -> tensor<4xf32>
  return %3 : tensor<4xf32>
}
// ---- arith_constant_dead
func.func @main(%arg1: tensor<4xf32>) -> tensor<4xf32> {
  %c0 = arith.constant dense<2.0> : tensor<4xf32>
  %c1 = arith.constant 4 : index
  return %arg1 : tensor<4xf32>
}
// ---- arith_index_cast_tensor
func.func @main(%arg0: tensor<4x3xf32>, %arg1: tensor<f32>) -> tensor<4x3xf32> {
  %0 = shape.shape_of %arg0 : tensor<4x3xf32> -> tensor<2xindex>
  %1 = arith.index_cast %0 : tensor<2xindex> to tensor<2xi32>
  %3 = "stablehlo.dynamic_broadcast_in_dim"(%arg1, %1) {broadcast_dimensions = array<i64>} : (tensor<f32>, tensor<2xi32>) -> tensor<4x3xf32>
  return %3 : tensor<4x3xf32>
}
// ---- to_extent
func.func @main(%arg0: tensor<4x3xf32>) -> tensor<4x3xf32> {
  %0 = shape.shape_of %arg0 : tensor<4x3xf32> -> !shape.shape
  %1 = shape.to_extent_tensor %0 : !shape.shape -> tensor<2xindex>
  return %arg0 : tensor<4x3xf32>
}
// ---- const_extract
func.func @main(%arg0: tensor<f32>) -> tensor<3x5xf32> {
  %c = stablehlo.constant dense<[3, 4, 5]> : tensor<3xi32>
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 2 : index
  %0 = tensor.extract %c[%c0] : tensor<3xi32>
  %1 = tensor.extract %c[%c1] : tensor<3xi32>
  %2 = tensor.from_elements %0, %1 : tensor<2xi32>
  %3 = "stablehlo.dynamic_broadcast_in_dim"(%arg0, %2) {broadcast_dimensions = array<i64>} : (tensor<f32>, tensor<2xi32>) -> tensor<3x5xf32>
  return %3 : tensor<3x5xf32>
}
// ---- arith_index
func.func @main(%arg0: tensor<4x3xf32>) -> tensor<12xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %0 = tensor.dim %arg0, %c0 : tensor<4x3xf32>
  %1 = tensor.dim %arg0, %c1 : tensor<4x3xf32>
  %m = arith.muli %0, %1 : index
  %2 = tensor.from_elements %m : tensor<1xindex>
  %3 = "stablehlo.dynamic_reshape"(%arg0, %2) : (tensor<4x3xf32>, tensor<1xindex>) -> tensor<12xf32>
  return %3 : tensor<12xf32>
}
// ---- arith_more
func.func @main(%arg0: tensor<4x3xf32>) -> tensor<8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %a = tensor.dim %arg0, %c0 : tensor<4x3xf32>
  %b = tensor.dim %arg0, %c1 : tensor<4x3xf32>
  %m = arith.subi %a, %b : index
  %n = arith.addi %m, %b : index
  %o = arith.maxsi %m, %n : index
  %p = arith.divsi %o, %m : index
  %q = arith.addi %p, %n : index
  %c = arith.constant 0.5 : f32
  %2 = tensor.from_elements %q : tensor<1xindex>
  %t = tensor.from_elements %c : tensor<1xf32>
  %s = stablehlo.reshape %t : (tensor<1xf32>) -> tensor<f32>
  %3 = "stablehlo.dynamic_broadcast_in_dim"(%s, %2) {broadcast_dimensions = array<i64>} : (tensor<f32>, tensor<1xindex>) -> tensor<8xf32>
  return %3 : tensor<8xf32>
}
// ---- from_elements_f32
func.func @main(%arg0: tensor<4x3xf32>) -> tensor<2xf32> {
  %c = arith.constant 0.5 : f32
  %t = tensor.from_elements %c, %c : tensor<2xf32>
  return %t : tensor<2xf32>
}
// ---- assuming_two
func.func @main(%arg0: tensor<4x3xf32>, %arg1: tensor<3xf32>) -> (tensor<4x3xf32>, tensor<3xf32>) {
  %0 = shape.shape_of %arg0 : tensor<4x3xf32> -> tensor<2xindex>
  %1 = shape.shape_of %arg1 : tensor<3xf32> -> tensor<1xindex>
  %2 = shape.cstr_broadcastable %0, %1 : tensor<2xindex>, tensor<1xindex>
  %w = shape.const_witness true
  %x = shape.assuming_all %2, %w
  %3:2 = shape.assuming %x -> (tensor<4x3xf32>, tensor<3xf32>) {
    %b = shape.broadcast %0, %1 : tensor<2xindex>, tensor<1xindex> -> tensor<2xindex>
    %4 = "stablehlo.dynamic_broadcast_in_dim"(%arg1, %b) {broadcast_dimensions = array<i64: 1>} : (tensor<3xf32>, tensor<2xindex>) -> tensor<4x3xf32>
    %5 = stablehlo.add %arg0, %4 : tensor<4x3xf32>
    shape.assuming_yield %5, %arg1 : tensor<4x3xf32>, tensor<3xf32>
  }
  return %3#0, %3#1 : tensor<4x3xf32>, tensor<3xf32>
}
// ---- cstr_eq
func.func @main(%arg0: tensor<4x3xf32>, %arg1: tensor<4x3xf32>) -> tensor<4x3xf32> {
  %0 = shape.shape_of %arg0 : tensor<4x3xf32> -> tensor<2xindex>
  %1 = shape.shape_of %arg1 : tensor<4x3xf32> -> tensor<2xindex>
  %2 = shape.cstr_eq %0, %1 : tensor<2xindex>, tensor<2xindex>
  %3 = shape.assuming %2 -> (tensor<4x3xf32>) {
    %4 = stablehlo.add %arg0, %arg1 : tensor<4x3xf32>
    shape.assuming_yield %4 : tensor<4x3xf32>
  }
  return %3 : tensor<4x3xf32>
}
// ---- shapes_types
func.func @main(%arg0: tensor<4x3xf32>, %arg1: tensor<3xf32>) -> tensor<4x3xf32> {
  %0 = shape.shape_of %arg0 : tensor<4x3xf32> -> !shape.shape
  %1 = shape.const_shape [3] : !shape.shape
  %2 = shape.broadcast %0, %1 : !shape.shape, !shape.shape -> !shape.shape
  %n = shape.num_elements %2 : !shape.shape -> !shape.size
  %b = shape.to_extent_tensor %2 : !shape.shape -> tensor<2xindex>
  %4 = "stablehlo.dynamic_broadcast_in_dim"(%arg1, %b) {broadcast_dimensions = array<i64: 1>} : (tensor<3xf32>, tensor<2xindex>) -> tensor<4x3xf32>
  return %4 : tensor<4x3xf32>
}
// ---- get_extent
func.func @main(%arg0: tensor<4x3xf32>, %arg1: tensor<f32>) -> tensor<3xf32> {
  %0 = shape.shape_of %arg0 : tensor<4x3xf32> -> tensor<2xindex>
  %c = shape.const_size 1
  %c1 = arith.constant 1 : index
  %e = shape.get_extent %0, %c1 : tensor<2xindex>, index -> index
  %2 = tensor.from_elements %e : tensor<1xindex>
  %4 = "stablehlo.dynamic_broadcast_in_dim"(%arg1, %2) {broadcast_dimensions = array<i64>} : (tensor<f32>, tensor<1xindex>) -> tensor<3xf32>
  return %4 : tensor<3xf32>
}
// ---- rank_concat
func.func @main(%arg0: tensor<4x3xf32>, %arg1: tensor<f32>) -> tensor<4x3x2xf32> {
  %0 = shape.shape_of %arg0 : tensor<4x3xf32> -> tensor<2xindex>
  %1 = shape.const_shape [2] : tensor<1xindex>
  %2 = shape.concat %0, %1 : tensor<2xindex>, tensor<1xindex> -> tensor<3xindex>
  %4 = "stablehlo.dynamic_broadcast_in_dim"(%arg1, %2) {broadcast_dimensions = array<i64>} : (tensor<f32>, tensor<3xindex>) -> tensor<4x3x2xf32>
  return %4 : tensor<4x3x2xf32>
}
// ---- dynamic_iota_shape
func.func @main(%arg0: tensor<4x3xf32>) -> tensor<4x3xi32> {
  %0 = shape.shape_of %arg0 : tensor<4x3xf32> -> tensor<2xindex>
  %1 = "stablehlo.dynamic_iota"(%0) {iota_dimension = 1 : i64} : (tensor<2xindex>) -> tensor<4x3xi32>
  return %1 : tensor<4x3xi32>
}
// ---- from_extents
func.func @main(%arg0: tensor<4x3xf32>, %arg1: tensor<f32>) -> tensor<4x3xf32> {
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  %0 = shape.from_extents %c4, %c3 : index, index
  %1 = shape.to_extent_tensor %0 : !shape.shape -> tensor<2xindex>
  %4 = "stablehlo.dynamic_broadcast_in_dim"(%arg1, %1) {broadcast_dimensions = array<i64>} : (tensor<f32>, tensor<2xindex>) -> tensor<4x3xf32>
  return %4 : tensor<4x3xf32>
}
// ---- unused_other
func.func @main(%arg0: tensor<4x3xf32>, %arg1: tensor<f32>) -> tensor<f32> {
  %0 = arith.addf %arg0, %arg0 : tensor<4x3xf32>
  return %arg1 : tensor<f32>
}
// ---- reduce_use_captured: refused
func.func @main(%arg0: tensor<4x3xi32>, %arg1: tensor<i32>, %arg2: tensor<i32>) -> tensor<3xi32> {
  %0 = "stablehlo.reduce"(%arg0, %arg1) ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %c = stablehlo.add %a, %b : tensor<i32>
    %d = stablehlo.minimum %c, %arg2 : tensor<i32>
    "stablehlo.return"(%d) : (tensor<i32>) -> ()
  }) {dimensions = array<i64: 0>} : (tensor<4x3xi32>, tensor<i32>) -> tensor<3xi32>
  return %0 : tensor<3xi32>
}
// ---- reduce_two_one_captured: refused
func.func @main(%arg0: tensor<4x3xi32>, %arg1: tensor<i32>, %arg2: tensor<i32>) -> (tensor<3xi32>, tensor<3xi32>) {
  %0:2 = "stablehlo.reduce"(%arg0, %arg0, %arg1, %arg1) ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>, %e: tensor<i32>, %f: tensor<i32>):
    %c = stablehlo.add %a, %e : tensor<i32>
    "stablehlo.return"(%c, %arg2) : (tensor<i32>, tensor<i32>) -> ()
  }) {dimensions = array<i64: 0>} : (tensor<4x3xi32>, tensor<4x3xi32>, tensor<i32>, tensor<i32>) -> (tensor<3xi32>, tensor<3xi32>)
  return %0#0, %0#1 : tensor<3xi32>, tensor<3xi32>
}
// ---- reduce_window_return_captured: refused
func.func @main(%arg0: tensor<4x3xi32>, %arg1: tensor<i32>, %arg2: tensor<i32>) -> tensor<3x3xi32> {
  %0 = "stablehlo.reduce_window"(%arg0, %arg1) ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    "stablehlo.return"(%arg2) : (tensor<i32>) -> ()
  }) {window_dimensions = array<i64: 2, 1>} : (tensor<4x3xi32>, tensor<i32>) -> tensor<3x3xi32>
  return %0 : tensor<3x3xi32>
}
// ---- scatter_use_captured: refused
func.func @main(%arg0: tensor<4xi32>, %arg1: tensor<2x1xi32>, %arg2: tensor<2xi32>, %arg3: tensor<i32>) -> tensor<4xi32> {
  %0 = "stablehlo.scatter"(%arg0, %arg1, %arg2) ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %c = stablehlo.add %a, %arg3 : tensor<i32>
    "stablehlo.return"(%c) : (tensor<i32>) -> ()
  }) {scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>} : (tensor<4xi32>, tensor<2x1xi32>, tensor<2xi32>) -> tensor<4xi32>
  return %0 : tensor<4xi32>
}
// ---- map_return_captured: refused
func.func @main(%arg0: tensor<4xi32>, %arg3: tensor<i32>) -> tensor<4xi32> {
  %0 = "stablehlo.map"(%arg0) ({
  ^bb0(%a: tensor<i32>):
    "stablehlo.return"(%arg3) : (tensor<i32>) -> ()
  }) {dimensions = array<i64: 0>} : (tensor<4xi32>) -> tensor<4xi32>
  return %0 : tensor<4xi32>
}
// ---- sort_use_captured: refused
func.func @main(%arg0: tensor<4xi32>, %arg3: tensor<i32>) -> tensor<4xi32> {
  %0 = "stablehlo.sort"(%arg0) ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %c = stablehlo.add %a, %arg3 : tensor<i32>
    %d = stablehlo.compare LT, %c, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
    "stablehlo.return"(%d) : (tensor<i1>) -> ()
  }) : (tensor<4xi32>) -> tensor<4xi32>
  return %0 : tensor<4xi32>
}
// ---- select_and_scatter_use: refused
func.func @main(%arg0: tensor<4xi32>, %arg1: tensor<2xi32>, %arg2: tensor<i32>, %arg3: tensor<i32>) -> tensor<4xi32> {
  %0 = "stablehlo.select_and_scatter"(%arg0, %arg1, %arg2) ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %d = stablehlo.compare GE, %a, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
    "stablehlo.return"(%d) : (tensor<i1>) -> ()
  }, {
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %c = stablehlo.add %a, %arg3 : tensor<i32>
    "stablehlo.return"(%c) : (tensor<i32>) -> ()
  }) {window_dimensions = array<i64: 2>, window_strides = array<i64: 2>} : (tensor<4xi32>, tensor<2xi32>, tensor<i32>) -> tensor<4xi32>
  return %0 : tensor<4xi32>
}
// ---- all_reduce_capture: refused
func.func @main(%arg0: tensor<4xi32>, %arg3: tensor<i32>) -> tensor<4xi32> {
  %0 = "stablehlo.all_reduce"(%arg0) ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %c = stablehlo.add %a, %arg3 : tensor<i32>
    "stablehlo.return"(%c) : (tensor<i32>) -> ()
  }) {replica_groups = dense<0> : tensor<1x1xi64>} : (tensor<4xi32>) -> tensor<4xi32>
  return %0 : tensor<4xi32>
}
// ---- dynamic_pad_live_static: refused
func.func @main(%arg0: tensor<4xf32>, %arg1: tensor<f32>, %arg2: tensor<1xi64>) -> tensor<9xf32> {
  %0 = "stablehlo.dynamic_pad"(%arg0, %arg1, %arg2, %arg2, %arg2) : (tensor<4xf32>, tensor<f32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<9xf32>
  return %0 : tensor<9xf32>
}
// ---- real_dynamic_slice_live: refused
func.func @main(%arg0: tensor<4xf32>, %arg1: tensor<f32>, %arg2: tensor<1xi64>, %arg3: tensor<1xi64>, %arg4: tensor<1xi64>) -> tensor<2xf32> {
  %0 = "stablehlo.real_dynamic_slice"(%arg0, %arg2, %arg3, %arg4) : (tensor<4xf32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}
// ---- dynamic_gather_live: refused
func.func @main(%arg0 : tensor<16x11xi32>, %arg1 : tensor<5x2xi32>, %arg2: tensor<2xi32>) -> tensor<5x8xi32> {
  %0 = "stablehlo.dynamic_gather"(%arg0, %arg1, %arg2) {
    dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], offset_dims = [1], start_index_map = [0, 1], index_vector_dim = 1>, indices_are_sorted = true} : (tensor<16x11xi32>, tensor<5x2xi32>, tensor<2xi32>) -> tensor<5x8xi32>
  return %0 : tensor<5x8xi32>
}
// ---- custom_call_dead_effect: refused
func.func @main(%arg0: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.custom_call @nonesuch(%arg0) {has_side_effect = true} : (tensor<4xf32>) -> tensor<4xf32>
  return %arg0 : tensor<4xf32>
}
// ---- unused_loop_state: refused
func.func @main(%arg0: tensor<4xi32>, %arg3: tensor<i32>) -> tensor<i32> {
  %z = stablehlo.constant dense<0> : tensor<i32>
  %0:2 = stablehlo.while(%i = %z, %x = %arg0) : tensor<i32>, tensor<4xi32>
  cond { %c = stablehlo.compare LT, %i, %arg3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
   stablehlo.return %c : tensor<i1>
  } do {
   %y = "stablehlo.map"(%x) ({
    ^bb0(%a: tensor<i32>):
    %c = stablehlo.add %a, %i : tensor<i32>
    "stablehlo.return"(%c) : (tensor<i32>) -> ()
   }) {dimensions = array<i64: 0>} : (tensor<4xi32>) -> tensor<4xi32>
   %one = stablehlo.constant dense<1> : tensor<i32>
   %j = stablehlo.add %i, %one : tensor<i32>
   stablehlo.return %j, %y : tensor<i32>, tensor<4xi32>
  }
  return %0#0 : tensor<i32>
}
// ---- all_gather_01: refused
func.func @main(%arg0: tensor<4xi32>) -> tensor<8xi32> {
  %0 = "stablehlo.all_gather"(%arg0)  {all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<4xi32>) -> tensor<8xi32>
  return %0 : tensor<8xi32>
}
// ---- arith_add_tensor: refused
func.func @main(%arg1: tensor<4xf32>) -> tensor<4xf32> {
  %2 = arith.addf %arg1, %arg1 : tensor<4xf32>
  return %2 : tensor<4xf32>
}
// ---- cstr_false: refused
func.func @main(%arg0: tensor<4x3xf32>, %arg1: tensor<2x3xf32>) -> tensor<4x3xf32> {
  %0 = shape.shape_of %arg0 : tensor<4x3xf32> -> tensor<2xindex>
  %1 = shape.shape_of %arg1 : tensor<2x3xf32> -> tensor<2xindex>
  %2 = shape.cstr_broadcastable %0, %1 : tensor<2xindex>, tensor<2xindex>
  %3 = shape.assuming %2 -> (tensor<4x3xf32>) {
    %4 = stablehlo.add %arg0, %arg0 : tensor<4x3xf32>
    shape.assuming_yield %4 : tensor<4x3xf32>
  }
  return %3 : tensor<4x3xf32>
}
// ---- unused_slice_contradicts_its_arguments
func.func @main(%arg0: tensor<4xf32>, %i: tensor<1xi64>, %z: tensor<f32>) -> tensor<4xf32> {
  %0 = "stablehlo.real_dynamic_slice"(%arg0, %i, %i, %i) : (tensor<4xf32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<1xf32>
  %1 = stablehlo.add %arg0, %arg0 : tensor<4xf32>
  return %1 : tensor<4xf32>
}
// ---- unused_slice_contradicts_its_constants
func.func @main(%arg0: tensor<4xf32>, %i: tensor<1xi64>, %z: tensor<f32>) -> tensor<4xf32> {
  %c = stablehlo.constant dense<0> : tensor<1xi64>
  %0 = "stablehlo.real_dynamic_slice"(%arg0, %c, %c, %c) : (tensor<4xf32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<1xf32>
  %1 = stablehlo.add %arg0, %arg0 : tensor<4xf32>
  return %1 : tensor<4xf32>
}
// ---- unused_slice_of_another_rank
func.func @main(%arg0: tensor<4xf32>, %i: tensor<1xi64>, %z: tensor<f32>) -> tensor<4xf32> {
  %c = stablehlo.constant dense<0> : tensor<1xi64>
  %0 = "stablehlo.real_dynamic_slice"(%arg0, %c, %c, %c) : (tensor<4xf32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<1x1xf32>
  %1 = stablehlo.add %arg0, %arg0 : tensor<4xf32>
  return %1 : tensor<4xf32>
}
// ---- unused_slice_of_another_type: refused
func.func @main(%arg0: tensor<4xf32>, %i: tensor<1xi64>, %z: tensor<f32>) -> tensor<4xf32> {
  %c = stablehlo.constant dense<0> : tensor<1xi64>
  %0 = "stablehlo.real_dynamic_slice"(%arg0, %c, %c, %c) : (tensor<4xf32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<1xi32>
  %1 = stablehlo.add %arg0, %arg0 : tensor<4xf32>
  return %1 : tensor<4xf32>
}
// ---- unused_slice_of_other_lists: refused
func.func @main(%arg0: tensor<4xf32>, %i: tensor<1xi64>, %z: tensor<f32>) -> tensor<4xf32> {
  %c = stablehlo.constant dense<0> : tensor<2xi64>
  %0 = "stablehlo.real_dynamic_slice"(%arg0, %c, %c, %c) : (tensor<4xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<1xf32>
  %1 = stablehlo.add %arg0, %arg0 : tensor<4xf32>
  return %1 : tensor<4xf32>
}
// ---- unused_pad_contradicts_its_arguments
func.func @main(%arg0: tensor<4xf32>, %i: tensor<1xi64>, %z: tensor<f32>) -> tensor<4xf32> {
  %0 = "stablehlo.dynamic_pad"(%arg0, %z, %i, %i, %i) : (tensor<4xf32>, tensor<f32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<29xf32>
  %1 = stablehlo.add %arg0, %arg0 : tensor<4xf32>
  return %1 : tensor<4xf32>
}
// ---- unused_pad_contradicts_its_constants: refused
func.func @main(%arg0: tensor<4xf32>, %i: tensor<1xi64>, %z: tensor<f32>) -> tensor<4xf32> {
  %c = stablehlo.constant dense<1> : tensor<1xi64>
  %0 = "stablehlo.dynamic_pad"(%arg0, %z, %c, %c, %c) : (tensor<4xf32>, tensor<f32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<29xf32>
  %1 = stablehlo.add %arg0, %arg0 : tensor<4xf32>
  return %1 : tensor<4xf32>
}
// ---- unused_pad_of_another_rank: refused
func.func @main(%arg0: tensor<4xf32>, %i: tensor<1xi64>, %z: tensor<f32>) -> tensor<4xf32> {
  %c = stablehlo.constant dense<1> : tensor<1xi64>
  %0 = "stablehlo.dynamic_pad"(%arg0, %z, %c, %c, %c) : (tensor<4xf32>, tensor<f32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<29x2xf32>
  %1 = stablehlo.add %arg0, %arg0 : tensor<4xf32>
  return %1 : tensor<4xf32>
}
// ---- used_slice_contradicts_its_constants: refused
func.func @main(%arg0: tensor<4xf32>, %i: tensor<1xi64>, %z: tensor<f32>) -> tensor<1xf32> {
  %c = stablehlo.constant dense<0> : tensor<1xi64>
  %0 = "stablehlo.real_dynamic_slice"(%arg0, %c, %c, %c) : (tensor<4xf32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<1xf32>
  return %0 : tensor<1xf32>
}
