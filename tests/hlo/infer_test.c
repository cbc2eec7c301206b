/* tests/hlo/infer_test.c -- Shape inference and the verifier: what each rule accepts, and that errors give both sides.
 */
#include "test.h"

#include "hlo/infer.h"
#include "hlo/text.h"

#define DIMS(...) (const int64_t[]){__VA_ARGS__}
#define INTS(...) ((hlo_ints){WEFT_COUNT(DIMS(__VA_ARGS__)), DIMS(__VA_ARGS__)})
#define ARRAY(type, ...) hlo_shape_array(&m->arena, WEFT_##type, WEFT_COUNT(DIMS(__VA_ARGS__)), DIMS(__VA_ARGS__))
#define SCALAR(type) hlo_shape_array(&m->arena, WEFT_##type, 0, NULL)

/* An instruction over parameters of `count` shapes.  The module is the caller's. */
static hlo_instr *over(hlo_module *m, hlo_opcode op, const hlo_shape *given, int count, const hlo_shape *const *shapes)
{
  hlo_computation *comp;
  hlo_instr *operands[8], *in;

  T_OK(hlo_computation_new(m, "c", &comp));
  for (int i = 0; i < count; i++) T_OK(hlo_add_parameter(comp, i, shapes[i], "p", &operands[i]));
  T_OK(hlo_add(comp, NULL, op, given, count, operands, NULL, &in));
  return in;
}
#define OVER(op, given, ...)                                                                        \
  over(m, HLO_##op, given, WEFT_COUNT(((const hlo_shape *[]){__VA_ARGS__})), (const hlo_shape *[]){__VA_ARGS__})

static void gives(const hlo_instr *in, const char *want)
{
  const hlo_shape *shape = NULL;
  char got[256];

  T_OK(hlo_infer_shape(in, &shape));
  T_EQ_STR(hlo_shape_format(shape, got, sizeof got), want);
}

static void fails(const hlo_instr *in, const char *message)
{
  const hlo_shape *shape = NULL;
  T_FAILS(hlo_infer_shape(in, &shape), message);
}

static hlo_module *new_module(void)
{
  hlo_module *m;
  T_OK(hlo_module_new("m", &m));
  return m;
}

TEST(elementwise_operands_have_equal_dimensions)
{
  WEFT_AUTO(hlo_module) m = new_module();

  gives(OVER(ADD, NULL, ARRAY(F32, 2, 3), ARRAY(F32, 2, 3)), "f32[2,3]");
  fails(OVER(ADD, NULL, ARRAY(F32, 2, 3), ARRAY(F32, 2, 4)),
        "add: dimensions differ: f32[2,3] (operand 0), f32[2,4] (operand 1)");
  fails(OVER(ADD, NULL, ARRAY(F32, 2), ARRAY(F16, 2)), "element types differ: f32[2] (operand 0), f16[2] (operand 1)");
  fails(OVER(SHIFT_LEFT, NULL, ARRAY(F32, 2), ARRAY(F32, 2)), "shift-left: element type f32 is not allowed");
  gives(OVER(ABS, NULL, ARRAY(C64, 2)), "f32[2]");
  gives(OVER(IS_FINITE, NULL, ARRAY(F32, 2)), "pred[2]");
  gives(OVER(COMPARE, NULL, ARRAY(S8, 2), ARRAY(S8, 2)), "pred[2]");
  gives(OVER(COMPLEX, NULL, ARRAY(F64, 2), ARRAY(F64, 2)), "c128[2]");
  fails(OVER(COMPLEX, NULL, ARRAY(F16, 2), ARRAY(F16, 2)), "no complex type of f16");
  gives(OVER(CONVERT, ARRAY(U8, 9), ARRAY(F32, 2)), "u8[2]");
  gives(OVER(SELECT, NULL, SCALAR(PRED), ARRAY(F32, 2), ARRAY(F32, 2)), "f32[2]");
  fails(OVER(SELECT, NULL, ARRAY(PRED, 3), ARRAY(F32, 2), ARRAY(F32, 2)), "the predicate is pred[3]");
  gives(OVER(CLAMP, NULL, SCALAR(F32), ARRAY(F32, 2), ARRAY(F32, 2)), "f32[2]");
  fails(OVER(TANH, NULL, hlo_shape_token(&m->arena)), "tanh: operand 0 is token[], expected an array");
}

TEST(bitcast_convert_moves_bits_to_a_minor_dimension)
{
  WEFT_AUTO(hlo_module) m = new_module();

  gives(OVER(BITCAST_CONVERT, ARRAY(U8, 2, 4), ARRAY(F32, 2)), "u8[2,4]");
  gives(OVER(BITCAST_CONVERT, ARRAY(F32, 2), ARRAY(U8, 2, 4)), "f32[2]");
  fails(OVER(BITCAST_CONVERT, ARRAY(F32, 2), ARRAY(U8, 2, 3)), "the minor dimension of u8[2,3] is not 4");
}

TEST(data_movement)
{
  WEFT_AUTO(hlo_module) m = new_module();
  hlo_instr *in = OVER(BROADCAST, ARRAY(F32, 2, 3), ARRAY(F32, 3));

  in->dims = INTS(1);
  gives(in, "f32[2,3]");
  in->dims = INTS(0);
  fails(in, "broadcast: sizes differ: 3 (operand dim 0), 2 (result dim 0)");
  in = OVER(TRANSPOSE, NULL, ARRAY(F32, 2, 3));
  in->dims = INTS(1, 0);
  gives(in, "f32[3,2]");
  in->dims = INTS(1, 1);
  fails(in, "transpose: dimensions names dimension 1 twice");
  fails(OVER(RESHAPE, ARRAY(F32, 5), ARRAY(F32, 2, 3)),
        "element counts differ: 6 (operand f32[2,3]), 5 (result f32[5])");
  in = OVER(CONCATENATE, NULL, ARRAY(F32, 2, 3), ARRAY(F32, 2, 4));
  in->dims = INTS(1);
  gives(in, "f32[2,7]");
  in->dims = INTS(0);
  fails(in, "sizes of dimension 1 differ: 3 (operand 0), 4 (operand 1)");
  in = OVER(PAD, NULL, ARRAY(F32, 4), SCALAR(F32));
  in->u.pad.rank = 1;
  in->u.pad.dims = &(hlo_pad_dim){.low = 1, .high = -2, .interior = 2};
  gives(in, "f32[9]");
  in->u.pad.dims = &(hlo_pad_dim){.high = INT64_MAX};
  fails(in, "over 2^63");
  in = OVER(SLICE, NULL, ARRAY(F32, 10));
  in->u.slice = &(hlo_slice_attrs){INTS(1), INTS(8), INTS(3)};
  gives(in, "f32[3]");
  in->u.slice = &(hlo_slice_attrs){INTS(1), INTS(11), INTS(3)};
  fails(in, "slice: [1:11:3] of dimension 0, whose size is 10");
  in = OVER(DYNAMIC_SLICE, NULL, ARRAY(F32, 4, 5), SCALAR(S32), SCALAR(S32));
  in->u.slice_sizes = INTS(2, 5);
  gives(in, "f32[2,5]");
  in->u.slice_sizes = INTS(2, 6);
  fails(in, "slice size 6 of dimension 1, whose size is 5");
  fails(OVER(DYNAMIC_UPDATE_SLICE, NULL, ARRAY(F32, 4), ARRAY(F32, 5), SCALAR(S32)), "does not fit");
  fails(OVER(NEGATE, NULL, ARRAY(F32, HLO_UNBOUNDED)), "without a bound");
}

TEST(reduce_drops_dimensions_and_takes_the_type_of_its_init)
{
  WEFT_AUTO(hlo_module) m = new_module();
  hlo_computation *add;

  T_OK(hlo_add_reducer(m, HLO_ADD, WEFT_F32, &add));
  hlo_instr *in = OVER(REDUCE, NULL, ARRAY(F32, 2, 3, 4), SCALAR(F32));
  T_OK(hlo_set_called(in, 1, &add));
  in->dims = INTS(0, 2);
  gives(in, "f32[3]");
  in->dims = INTS(3);
  fails(in, "reduce: dimensions has 3, outside of rank 3");
  in = OVER(REDUCE, NULL, ARRAY(F16, 2), SCALAR(F16));
  T_OK(hlo_set_called(in, 1, &add));
  in->dims = INTS(0);
  fails(in, "is f32[], expected f16[]");
  in = OVER(REDUCE_WINDOW, NULL, ARRAY(F32, 10), SCALAR(F32));
  T_OK(hlo_set_called(in, 1, &add));
  in->u.window = &(hlo_window){
    1,
    &(hlo_window_dim){.size = 3, .stride = 2, .pad_low = 1, .pad_high = 1, .window_dilation = 2, .base_dilation = 1}};
  gives(in, "f32[4]");
}

TEST(dot_pairs_its_dimensions)
{
  WEFT_AUTO(hlo_module) m = new_module();
  hlo_instr *in = OVER(DOT, NULL, ARRAY(F32, 7, 2, 512), ARRAY(F32, 7, 512, 3));

  in->u.dot = &(hlo_dot_attrs){
    .lhs_batch = INTS(0), .rhs_batch = INTS(0), .lhs_contracting = INTS(2), .rhs_contracting = INTS(1)};
  gives(in, "f32[7,2,3]");
  in = OVER(DOT, NULL, ARRAY(F32, 2, 512), ARRAY(F32, 256, 3));
  in->u.dot = &(hlo_dot_attrs){.lhs_contracting = INTS(1), .rhs_contracting = INTS(0)};
  fails(in, "dot: contracting sizes differ: 512 (lhs dim 1), 256 (rhs dim 0)");
  in = OVER(RAGGED_DOT, NULL, ARRAY(F32, 9, 5), ARRAY(F32, 3, 5, 4), ARRAY(S32, 3));
  in->u.dot = &(hlo_dot_attrs){
    .lhs_contracting = INTS(1), .rhs_contracting = INTS(1), .lhs_ragged = INTS(0), .rhs_group = INTS(0)};
  gives(in, "f32[9,4]");
  in = OVER(RAGGED_DOT, NULL, ARRAY(F32, 19, 17, 11, 5), ARRAY(F32, 3, 19, 5, 7), ARRAY(S32, 19, 17, 3));
  in->u.dot = &(hlo_dot_attrs){.lhs_batch = INTS(0),
                               .rhs_batch = INTS(1),
                               .lhs_contracting = INTS(3),
                               .rhs_contracting = INTS(2),
                               .lhs_ragged = INTS(2),
                               .rhs_group = INTS(0)};
  gives(in, "f32[19,17,11,7]");
  const hlo_dot_attrs *dims = in->u.dot;
  in = OVER(RAGGED_DOT, NULL, ARRAY(F32, 19, 17, 11, 5), ARRAY(F32, 3, 19, 5, 7), ARRAY(S32, 19, 11, 3));
  in->u.dot = dims;
  fails(in, "group sizes are s32[19,11,3], which does not fit f32[19,17,11,5] (lhs)");
  in = OVER(RAGGED_DOT, NULL, ARRAY(F32, 3, 11, 5), ARRAY(F32, 3, 5, 7), ARRAY(S32, 3));
  in->u.dot = &(hlo_dot_attrs){.lhs_batch = INTS(0),
                               .rhs_batch = INTS(0),
                               .lhs_contracting = INTS(2),
                               .rhs_contracting = INTS(1),
                               .lhs_ragged = INTS(1),
                               .rhs_group = INTS(0)};
  fails(in, "dimension 0 of rhs is a group dimension and a batch or contracting one");
}

TEST(convolution_follows_its_dimension_numbers)
{
  WEFT_AUTO(hlo_module) m = new_module();
  hlo_instr *in = OVER(CONVOLUTION, NULL, ARRAY(F32, 2, 8, 8, 3), ARRAY(F32, 3, 3, 3, 16));
  hlo_window_dim dims[2] = {{3, 1, 1, 1, 1, 1, false}, {3, 2, 0, 0, 1, 1, false}};
  hlo_conv_attrs c = {.window = {2, dims}, .lhs_batch = 0, .lhs_feature = 3, .lhs_spatial = INTS(1, 2),
                      .rhs_in_feature = 2, .rhs_out_feature = 3, .rhs_spatial = INTS(0, 1), .out_batch = 0,
                      .out_feature = 1, .out_spatial = INTS(2, 3), .feature_group_count = 1, .batch_group_count = 1};

  in->u.conv = &c;
  gives(in, "f32[2,16,8,3]");
  c.feature_group_count = 3;
  fails(in, "features differ: 3 (lhs), 3 x 3 groups (rhs)");
}

TEST(gather_and_scatter_are_each_others_mirror)
{
  WEFT_AUTO(hlo_module) m = new_module();
  hlo_computation *add;
  hlo_instr *in = OVER(GATHER, NULL, ARRAY(F32, 10, 20), ARRAY(S32, 5, 2));

  in->u.gather = &(hlo_gather_attrs){.offset_dims = INTS(1),
                                     .collapsed_slice_dims = INTS(0),
                                     .start_index_map = INTS(0, 1),
                                     .index_vector_dim = 1,
                                     .slice_sizes = INTS(1, 7)};
  gives(in, "f32[5,7]");
  T_OK(hlo_add_reducer(m, HLO_ADD, WEFT_F32, &add));
  in = OVER(SCATTER, NULL, ARRAY(F32, 10, 20), ARRAY(S32, 5, 2), ARRAY(F32, 5, 7));
  T_OK(hlo_set_called(in, 1, &add));
  in->u.scatter = &(hlo_scatter_attrs){.update_window_dims = INTS(1),
                                       .inserted_window_dims = INTS(0),
                                       .scatter_dims_to_operand_dims = INTS(0, 1),
                                       .index_vector_dim = 1};
  gives(in, "f32[10,20]");
  in = OVER(SCATTER, NULL, ARRAY(F32, 10, 20), ARRAY(S32, 5, 2), ARRAY(F32, 6, 7));
  T_OK(hlo_set_called(in, 1, &add));
  in->u.scatter = &(hlo_scatter_attrs){.update_window_dims = INTS(1),
                                       .inserted_window_dims = INTS(0),
                                       .scatter_dims_to_operand_dims = INTS(0, 1),
                                       .index_vector_dim = 1};
  fails(in, "scatter: dimension 0 of updates f32[6,7] has to be 5");
}

TEST(fft_halves_the_last_dimension_of_real_transforms)
{
  WEFT_AUTO(hlo_module) m = new_module();
  hlo_instr *in = OVER(FFT, NULL, ARRAY(F32, 3, 8));

  in->dims = INTS(8);
  in->u.fft_type = HLO_FFT_RFFT;
  gives(in, "c64[3,5]");
  in = OVER(FFT, NULL, ARRAY(C64, 3, 5));
  in->dims = INTS(8);
  in->u.fft_type = HLO_FFT_IRFFT;
  gives(in, "f32[3,8]");
  in = OVER(FFT, NULL, ARRAY(C64, 3, 1));
  in->dims = INTS(0);
  in->u.fft_type = HLO_FFT_IRFFT;
  gives(in, "f32[3,0]");
  in = OVER(FFT, NULL, ARRAY(C64, 3, 2));
  in->dims = INTS(0);
  in->u.fft_type = HLO_FFT_IRFFT;
  fails(in, "length 0 does not match dimension 1");
}

TEST(collectives_scale_one_dimension)
{
  WEFT_AUTO(hlo_module) m = new_module();
  hlo_instr *in = OVER(ALL_GATHER, ARRAY(F32, 8, 3), ARRAY(F32, 2, 3));

  in->u.collective = &(hlo_collective_attrs){0};
  in->dims = INTS(0);
  gives(in, "f32[8,3]");
  in->dims = INTS(1);
  fails(in, "sizes of dimension 0 do not match: 2 (operand), 8 (result)");
}

TEST(ragged_all_to_all_has_rows_that_fit_and_four_lists_alike)
{
  WEFT_AUTO(hlo_module) m = new_module();
  const hlo_shape *from = ARRAY(F32, 6, 3), *to = ARRAY(F32, 9, 3), *list = ARRAY(S32, 4);
  hlo_collective_attrs none = {0};
  const struct { const hlo_shape *from, *to, *second, *last; const char *error; } cases[] = {
    {from, to, list, list, NULL},
    {from, to, ARRAY(S64, 2, 2), ARRAY(S64, 2, 2), "operand 3 is s32[4], expected rows or a list of 32 or 64 bit integers like operand 2, s64[2,2]"},
    {from, ARRAY(F32, 9, 2), list, list, "rows of f32[6,3] do not fit into f32[9,2]"},
    {SCALAR(F32), SCALAR(F32), list, list, "rows of f32[] do not fit into f32[]"},
    {from, to, list, ARRAY(S32, 3), "operand 5 is s32[3], expected rows or a list of 32 or 64 bit integers like operand 2, s32[4]"},
    {from, to, ARRAY(S16, 4), list, "operand 2 is s16[4], expected"},
    {from, ARRAY(F16, 9, 3), list, list, "element types differ"},
  };

  for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
    hlo_instr *in =
      OVER(RAGGED_ALL_TO_ALL, NULL, cases[i].from, cases[i].to, cases[i].second, list, list, cases[i].last);
    in->u.collective = &none;
    if (cases[i].error) fails(in, cases[i].error);
    else gives(in, "f32[9,3]");
  }
}

TEST(the_root_of_a_broadcast_is_one_number_or_one_for_each_operand)
{
  WEFT_AUTO(hlo_module) m = new_module();
  hlo_collective_attrs dynamic = {.has_dynamic_root = true};
  hlo_instr *in = OVER(COLLECTIVE_BROADCAST, NULL, ARRAY(F32, 2), ARRAY(F32, 3), ARRAY(S32, 2));

  in->u.collective = &dynamic;
  gives(in, "(f32[2], f32[3])");
  in = OVER(COLLECTIVE_BROADCAST, NULL, ARRAY(F32, 2), ARRAY(S32, 0));
  in->u.collective = &dynamic;
  fails(in, "the root is s32[0], expected one s32 or one for each of 1 operands");
  in = OVER(COLLECTIVE_BROADCAST, NULL, ARRAY(S32, 1));
  in->u.collective = &dynamic;
  fails(in, "1 operands, of which the last is the root");
}

/* m: entry(p) = negate(p) */
static hlo_instr *small_module(hlo_module *m)
{
  hlo_computation *comp;
  hlo_instr *p, *n;

  T_OK(hlo_computation_new(m, "main", &comp));
  T_OK(hlo_add_parameter(comp, 0, ARRAY(F32, 4), "p", &p));
  T_OK(hlo_add_unary(comp, NULL, HLO_NEGATE, p, &n));
  comp->root = n;
  m->entry = comp;
  return n;
}

TEST(the_verifier_accepts_a_good_module_and_allocates_nothing_for_its_shapes)
{
  WEFT_AUTO(hlo_module) m = new_module();
  small_module(m);
  char *next = m->arena.next;
  T_OK(hlo_verify(m));
  T_TRUE(m->arena.next == next);
}

TEST(the_verifier_names_module_computation_and_instruction)
{
  WEFT_AUTO(hlo_module) m = new_module();
  hlo_instr *n = small_module(m);

  n->shape = ARRAY(F32, 5);
  T_FAILS(hlo_verify(m), "negate: the shape is f32[5], its operands give f32[4]");
  T_FAILS(hlo_verify(m), "computation \"main\"");
}

TEST(the_verifier_finds_broken_structure)
{
  WEFT_AUTO(hlo_module) m = new_module();
  hlo_instr *n = small_module(m);
  hlo_instr *twice;

  hlo_move_before(n->operands[0], NULL);
  T_FAILS(hlo_verify(m), "operand 0, \"p\", comes after its user");
  hlo_move_before(n->operands[0], n);
  T_OK(hlo_verify(m));
  T_OK(hlo_add_unary(n->parent, NULL, HLO_NEGATE, n, &twice));
  twice->name = n->name;
  T_FAILS(hlo_verify(m), "two instructions are named");
  T_OK(hlo_remove(twice));
  T_OK(hlo_verify(m));
  m->alias_count = 1;
  m->aliases = &(hlo_input_output_alias){.parameter = 1};
  T_FAILS(hlo_verify(m), "input_output_alias names parameter 1 of 1");
}

TEST(an_output_alias_names_parts_of_one_type)
{
  static const struct { const char *aliases, *error; } cases[] = {
    {"{0}: (0, {}), {0}: (1, {})", NULL},
    {"{0}: (0, {}), {1}: (0, {})", NULL},
    {"{}: (0, {})", "operand 0 has f32[4] there, the result (f32[4], f32[4])"},
    {"{5}: (0, {})", "an element that the result, (f32[4], f32[4]), does not have"},
    {"{0}: (0, {3})", "an element that operand 0, f32[4], does not have"},
    {"{0}: (2, {})", "names operand 2 of 2"},
  };

  for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
    WEFT_AUTO(hlo_module) m = NULL;
    char text[512];
    snprintf(text, sizeof text,
             "HloModule m\n"
             "ENTRY e {\n"
             "  p = f32[4] parameter(0)\n"
             "  ROOT c = (f32[4], f32[4]) custom-call(p, p), custom_call_target=\"t\", "
             "output_to_operand_aliasing={%s}\n"
             "}\n",
             cases[i].aliases);
    T_OK(hlo_parse(text, strlen(text), &m));
    if (cases[i].error) T_FAILS(hlo_verify(m), cases[i].error);
    else T_OK(hlo_verify(m));
  }
}

TEST_MAIN(UNIT(an_output_alias_names_parts_of_one_type), UNIT(elementwise_operands_have_equal_dimensions), UNIT(bitcast_convert_moves_bits_to_a_minor_dimension),
          UNIT(data_movement), UNIT(reduce_drops_dimensions_and_takes_the_type_of_its_init),
          UNIT(dot_pairs_its_dimensions), UNIT(convolution_follows_its_dimension_numbers),
          UNIT(gather_and_scatter_are_each_others_mirror), UNIT(fft_halves_the_last_dimension_of_real_transforms),
          UNIT(collectives_scale_one_dimension), UNIT(ragged_all_to_all_has_rows_that_fit_and_four_lists_alike),
          UNIT(the_root_of_a_broadcast_is_one_number_or_one_for_each_operand),
          UNIT(the_verifier_accepts_a_good_module_and_allocates_nothing_for_its_shapes),
          UNIT(the_verifier_names_module_computation_and_instruction), UNIT(the_verifier_finds_broken_structure))
