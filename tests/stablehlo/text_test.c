/* tests/stablehlo/text_test.c -- StableHLO text: both assemblies of an operation mean the same, constants in every
 * spelling, regions and what they see, choice and refinement of functions, and errors that point at the fault. */
#include "test.h"

#include "hlo/eval.h"
#include "hlo/infer.h"
#include "hlo/text.h"
#include "stablehlo/stablehlo.h"

#include <math.h>

/* The module as HLO text; the caller frees it. */
static char *lower_text(const char *program, const shlo_options *options)
{
  WEFT_AUTO(hlo_module) module = NULL;
  char *text;
  size_t size;

  T_OK(shlo_parse(program, strlen(program), options, &module));
  T_OK(hlo_verify(module));
  T_OK(hlo_print_to_string(module, HLO_PRINT_DEFAULT, &text, &size));
  return text;
}

static weft_status *parse(const char *program)
{
  WEFT_AUTO(hlo_module) module = NULL;
  return shlo_parse(program, strlen(program), NULL, &module);
}

static const char head[] =
  "func.func @main(%a: tensor<4x6xf32>, %b: tensor<6x3xf32>, %i: tensor<i32>, %p: tensor<4x6xi1>, %z: tensor<6xf32>) {\n";
static const char foot[] = "\n  return\n}\n";

TEST(custom_and_generic_assembly_mean_the_same)
{
  static const struct { const char *custom, *generic; } pairs[] = {
      {"%0 = arith.constant dense<1.0> : tensor<2xf32>",
       "%0 = \"stablehlo.constant\"() {value = dense<1.0> : tensor<2xf32>} : () -> tensor<2xf32>"},
      {"%0 = builtin.unrealized_conversion_cast %a : tensor<4x6xf32> to tensor<4x6xf32>\n  %1 = stablehlo.abs %0 : tensor<4x6xf32>",
       "%0 = \"stablehlo.abs\"(%a) : (tensor<4x6xf32>) -> tensor<4x6xf32>"},
      {"%0 = stablehlo.uniform_quantize %a : (tensor<4x6xf32>) -> tensor<4x6x!quant.uniform<ui8:f32, 34.0:16>>",
       "%0 = \"stablehlo.uniform_quantize\"(%a) : (tensor<4x6xf32>) -> tensor<4x6x!quant.uniform<u8:f32, 34.0:16>>"},
      {"%0:2 = chlo.scan(%a) inits(%z) dimension=0 {\n  ^b(%x: tensor<6xf32>, %y: tensor<6xf32>):\n    %s = stablehlo.add %x, %y : "
       "tensor<6xf32>\n    stablehlo.return %s, %s : tensor<6xf32>, tensor<6xf32>\n  } : (tensor<4x6xf32>, tensor<6xf32>) -> "
       "(tensor<4x6xf32>, tensor<6xf32>)",
       "%0:2 = \"chlo.scan\"(%a, %z) <{dimension = 0 : i64, operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = "
       "array<i32: 1, 1>}> ({\n  ^b(%x: tensor<6xf32>, %y: tensor<6xf32>):\n    %s = stablehlo.add %x, %y : "
       "tensor<6xf32>\n    stablehlo.return %s, %s : tensor<6xf32>, tensor<6xf32>\n  }) : (tensor<4x6xf32>, tensor<6xf32>) -> "
       "(tensor<4x6xf32>, tensor<6xf32>)"},
      {"%0 = sdy.constant dense<1.0> : tensor<2xf32>",
       "%0 = \"stablehlo.constant\"() {value = dense<1.0> : tensor<2xf32>} : () -> tensor<2xf32>"},
      {"%0 = mhlo.xla.rng_get_and_update_state {delta = 3 : i64}", "%0 = \"mhlo.xla.rng_get_and_update_state\"() {delta = 3 : i64} : () -> tensor<2xui64>"},
      {"%0 = stablehlo.add %a, %a : tensor<4x6xf32>",
       "%0 = \"stablehlo.add\"(%a, %a) : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>"},
      {"%0 = stablehlo.compare  LT, %a, %a,  TOTALORDER : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xi1>",
       "%0 = \"stablehlo.compare\"(%a, %a) <{comparison_direction = #stablehlo<comparison_direction LT>, compare_type = "
       "#stablehlo<comparison_type TOTALORDER>}> : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xi1>"},
      {"%0 = stablehlo.slice %a [0:4:2, 1:3] : (tensor<4x6xf32>) -> tensor<2x2xf32>",
       "%0 = \"stablehlo.slice\"(%a) {start_indices = array<i64: 0, 1>, limit_indices = dense<[4, 3]> : tensor<2xi64>, "
       "strides = array<i64: 2, 1>} : (tensor<4x6xf32>) -> tensor<2x2xf32>"},
      {"%0 = stablehlo.transpose %a, dims = [1, 0] : (tensor<4x6xf32>) -> tensor<6x4xf32>",
       "%0 = \"stablehlo.transpose\"(%a) {permutation = dense<[1, 0]> : tensor<2xi64>} : (tensor<4x6xf32>) -> tensor<6x4xf32>"},
      {"%0 = stablehlo.dynamic_slice %a, %i, %i, sizes = [1, 4] : (tensor<4x6xf32>, tensor<i32>, tensor<i32>) -> "
       "tensor<1x4xf32>",
       "%0 = \"stablehlo.dynamic_slice\"(%a, %i, %i) <{slice_sizes = array<i64: 1, 4>}> : (tensor<4x6xf32>, tensor<i32>, "
       "tensor<i32>) -> tensor<1x4xf32>"},
      {"%0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0], precision = [HIGH, DEFAULT] : (tensor<4x6xf32>, "
       "tensor<6x3xf32>) -> tensor<4x3xf32>",
       "%0 = \"stablehlo.dot_general\"(%a, %b) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], "
       "rhs_contracting_dimensions = [0]>, precision_config = [#stablehlo<precision HIGH>, #stablehlo<precision DEFAULT>]}> "
       ": (tensor<4x6xf32>, tensor<6x3xf32>) -> tensor<4x3xf32>"},
      {"%c = stablehlo.constant dense<0.0> : tensor<f32>\n"
       "%0 = stablehlo.reduce(%a init: %c) applies stablehlo.maximum across dimensions = [1] : (tensor<4x6xf32>, tensor<f32>) "
       "-> tensor<4xf32>",
       "%c = stablehlo.constant dense<0.0> : tensor<f32>\n"
       "%0 = \"stablehlo.reduce\"(%a, %c) ({\n^bb0(%x: tensor<f32>, %y: tensor<f32>):\n%m = stablehlo.maximum %x, %y : "
       "tensor<f32>\nstablehlo.return %m : tensor<f32>\n}) {dimensions = dense<1> : tensor<1xi64>} : (tensor<4x6xf32>, "
       "tensor<f32>) -> tensor<4xf32>"},
      {"%0 = stablehlo.select %p, %a, %a : tensor<4x6xi1>, tensor<4x6xf32>",
       "%0 = \"stablehlo.select\"(%p, %a, %a) : (tensor<4x6xi1>, tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>"},
      {"%0 = stablehlo.reduce_precision %a, format = e5m10 : tensor<4x6xf32>",
       "%0 = \"stablehlo.reduce_precision\"(%a) <{exponent_bits = 5 : i32, mantissa_bits = 10 : i32}> : (tensor<4x6xf32>) -> "
       "tensor<4x6xf32>"},
      {"%0 = stablehlo.abs %a : tensor<4x6xf32>", /* VHLO in its own spelling */
       "%0 = \"vhlo.abs_v1\"(%a) : (tensor<4x6xf32>) -> tensor<4x6xf32>"},
  };
  char program[2][2048];

  for (size_t i = 0; i < WEFT_COUNT(pairs); i++) {
    snprintf(program[0], sizeof *program, "%s%s%s", head, pairs[i].custom, foot);
    snprintf(program[1], sizeof *program, "%s%s%s", head, pairs[i].generic, foot);
    WEFT_AUTO_STR custom = lower_text(program[0], NULL);
    WEFT_AUTO_STR generic = lower_text(program[1], NULL);
    T_EQ_STR(custom, generic);
  }
}

TEST(a_body_may_name_the_arguments)
{
  WEFT_AUTO_STR named = lower_text(
    "func.func @main(%x: tensor<2xf32>, %y: tensor<f32>) -> tensor<f32> {\n  return %y : tensor<f32>\n}\n", NULL);
  WEFT_AUTO_STR labelled = lower_text(
    "func.func @main(tensor<2xf32>, tensor<f32>) -> tensor<f32> {\n^bb0(%x: tensor<2xf32>, %y: tensor<f32>):\n"
    "  return %y : tensor<f32>\n}\n",
    NULL);

  T_EQ_STR(named, labelled);
  T_FAILS(parse("func.func @main(tensor<2xf32>) {\n^bb0(%x: tensor<2xf32>, %y: tensor<f32>):\n  return\n}\n"),
          "2 arguments, the function 1");
  T_FAILS(parse("func.func @main(tensor<2xf32>) {\n^bb0(%x: tensor<3xf32>):\n  return\n}\n"),
          "argument 0 of the body's block is of another type");
  T_FAILS(parse("func.func @main(tensor<2xf32>) {\n  return\n}\n"), "0 arguments, the function 1");
}

/* What jaxlib makes of these. */
TEST(declared_types_say_what_operands_do_not)
{
  static const struct { const char *program, *made; } cases[] = {
      {"func.func @main(%x: tensor<4x8xf32>, %s: tensor<2xi64>) -> tensor<1x3xf32> {\n"
       "  %d = stablehlo.constant dense<[1, 3]> : tensor<2xi64>\n  %e = stablehlo.add %s, %d : tensor<2xi64>\n"
       "  %o = stablehlo.constant dense<1> : tensor<2xi64>\n"
       "  %0 = stablehlo.real_dynamic_slice %x, %s, %e, %o : (tensor<4x8xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> "
       "tensor<1x3xf32>\n  return %0 : tensor<1x3xf32>\n}\n",
       "dynamic_slice_sizes={1,3}"},
      {"func.func @main(%x: tensor<f32>) -> tensor<10xf32> {\n"
       "  %0:2 = mhlo.scan () inits (%x) dimension=0 {\n  ^b(%c: tensor<f32>):\n    mhlo.return %c, %c : tensor<f32>, tensor<f32>\n"
       "  } : (tensor<f32>) -> (tensor<10xf32>, tensor<f32>)\n  return %0#0 : tensor<10xf32>\n}\n",
       "= (f32[10], f32[]) scan(arg0), dimensions={0}, num_carries=1"},
      {"func.func @main(%x: tensor<2xf32>, %y: tensor<2xf32>) -> tensor<2xf32> {\n"
       "  %0:2 = \"mhlo.all_to_all\"(%x, %y) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<2xf32>, tensor<2xf32>) -> "
       "(tensor<2xf32>, tensor<2xf32>)\n  return %0#1 : tensor<2xf32>\n}\n",
       "= (f32[2], f32[2]) all-to-all(arg0, arg1), replica_groups={{0,1}}"},
  };

  for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
    WEFT_AUTO_STR text = lower_text(cases[i].program, NULL);
    if (!strstr(text, cases[i].made)) T_EQ_STR(text, cases[i].made);
  }
  T_FAILS(
    parse(
      "func.func @main(%x: tensor<4xf32>, %s: tensor<1xi64>, %o: tensor<1xi64>) -> tensor<?xf32> {\n"
      "  %0 = stablehlo.real_dynamic_slice %x, %s, %s, %o : (tensor<4xf32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> "
      "tensor<?xf32>\n  return %0 : tensor<?xf32>\n}\n"),
    "depends on the value of an argument");
}

/* The first `count` elements of what a program without arguments gives. */
static void evaluate(const char *program, int count, double *out)
{
  WEFT_AUTO(hlo_module) module = NULL;
  hlo_eval_options options = HLO_EVAL_DEFAULT;
  const hlo_literal *result; /* may share memory with the module */
  weft_arena arena;

  weft_arena_init(&arena);
  T_OK(shlo_parse(program, strlen(program), NULL, &module));
  T_OK(hlo_verify(module));
  T_OK(hlo_eval_module(module, NULL, &options, &arena, &result));
  for (int i = 0; i < count; i++) out[i] = hlo_literal_get_f64(result, i);
  weft_arena_fini(&arena);
}

TEST(constants_in_every_spelling)
{
  static const struct { const char *constant, *type; double first, second; } cases[] = {
      {"dense<1.5>", "tensor<2xf32>", 1.5, 1.5},
      {"dense<[1.5, -2.0e-1]>", "tensor<2xf64>", 1.5, -0.2},
      {"dense<\"0x0000803F000000C0\">", "tensor<2xf32>", 1, -2},
      {"dense<\"0x0000803F\">", "tensor<2xf32>", 1, 1},
      {"dense<[0x3F800000, 0xC0000000]>", "tensor<2xf32>", 1, -2},
      {"dense<[0x3F80, 2.0]>", "tensor<2xbf16>", 1, 2},
      {"dense<[true, false]>", "tensor<2xi1>", 1, 0},
      {"dense<\"0x0100\">", "tensor<2xi1>", 1, 0},
      {"dense<[-8, 7]>", "tensor<2xi4>", -8, 7},
      {"dense<[255, 0]>", "tensor<2xui8>", 255, 0},
      {"dense<[(1.0, 2.0), (3.0, 4.0)]>", "tensor<2xcomplex<f32>>", 1, 3},
      {"dense<[1.0, 2.0]>", "tensor<2xf8E4M3FN>", 1, 2},
      {"dense_resource<blob>", "tensor<2xf32>", 1, -2},
      {"dense_resource<\"a \\22b\\22\">", "tensor<2xi8>", 1, -1},
  };
  char program[512];

  for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
    double got[2];
    snprintf(program, sizeof program,
             "func.func @main() -> %s {\n  %%0 = stablehlo.constant %s : %s\n  return %%0 : %s\n}\n"
             "{-# dialect_resources: { builtin: { blob: \"0x040000000000803F000000C0\",\n"
             "\"a \\22b\\22\": \"0x0100000001FF\" } } #-}",
             cases[i].type, cases[i].constant, cases[i].type, cases[i].type);
    evaluate(program, 2, got);
    if (got[0] != cases[i].first || got[1] != cases[i].second)
      fail_msg("%s: got %g, %g", cases[i].constant, got[0], got[1]);
  }
}

TEST(a_splat_is_a_broadcast_of_a_scalar)
{
  WEFT_AUTO_STR text = lower_text("func.func @main() -> tensor<1000x1000xf32> {\n"
                                  "  %0 = stablehlo.constant dense<2.0> : tensor<1000x1000xf32>\n"
                                  "  return %0 : tensor<1000x1000xf32>\n}",
                                  NULL);
  T_TRUE(strstr(text, "f32[] constant(2)") != NULL);
  T_TRUE(strstr(text, "f32[1000,1000] broadcast(") != NULL);
}

/* The loop uses %n and %k from outside: one a value, one a constant. */
TEST(loops_see_values_from_outside)
{
  double r;

  evaluate("func.func @main() -> tensor<i32> {\n"
           "  %k = stablehlo.constant dense<3> : tensor<i32>\n"
           "  %z = stablehlo.constant dense<0> : tensor<i32>\n"
           "  %n = stablehlo.multiply %k, %k : tensor<i32>\n"
           "  %0:2 = stablehlo.while(%i = %z, %s = %z) : tensor<i32>, tensor<i32> cond {\n"
           "    %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
           "    stablehlo.return %p : tensor<i1>\n"
           "  } do {\n"
           "    %j = stablehlo.add %i, %k : tensor<i32>\n"
           "    %t = stablehlo.add %s, %n : tensor<i32>\n"
           "    stablehlo.return %j, %t : tensor<i32>, tensor<i32>\n"
           "  }\n"
           "  return %0#1 : tensor<i32>\n}",
           1, &r);
  T_EQ_INT(r, 27);
}

TEST(a_function_is_chosen_and_its_shapes_refined)
{
  static const char program[] =
    "module @m {\n"
    "  func.func private @helper(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }\n"
    "  func.func public @f(%x: tensor<?x2xf32>) -> tensor<?xf32> {\n"
    "    %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x2xf32>) -> tensor<i32>\n"
    "    %two = stablehlo.constant dense<2> : tensor<i32>\n"
    "    %m = stablehlo.multiply %n, %two : tensor<i32>\n"
    "    %s = stablehlo.reshape %m : (tensor<i32>) -> tensor<1xi32>\n"
    "    %0 = stablehlo.dynamic_reshape %x, %s : (tensor<?x2xf32>, tensor<1xi32>) -> tensor<?xf32>\n"
    "    return %0 : tensor<?xf32>\n  }\n}";
  WEFT_AUTO(shlo_program) p = NULL;
  WEFT_AUTO(hlo_module) module = NULL;
  hlo_shape shape = {.type = WEFT_F32, .rank = 2, .dims = (const int64_t[]){5, 2}};
  const hlo_shape *shapes[] = {&shape};
  char buf[64];

  T_OK(shlo_read(program, sizeof program - 1, &p));
  T_EQ_INT(shlo_module_count(p), 1);
  T_EQ_INT(shlo_function_count(p, 0), 2);
  T_EQ_STR(shlo_function_name(p, 0, 1), "f");
  T_TRUE(!shlo_function_is_public(p, 0, 0) && shlo_function_is_public(p, 0, 1));
  T_CODE(shlo_lower(p, NULL, &module), WEFT_UNIMPLEMENTED); /* the first public function, whose shape is open */
  T_CODE(shlo_lower(p, &(shlo_options){.function = "g"}, &module), WEFT_NOT_FOUND);
  T_OK(shlo_lower(p, &(shlo_options){.argument_count = 1, .argument_shapes = shapes}, &module));
  T_EQ_STR(hlo_shape_format(module->entry->root->shape, buf, sizeof buf), "f32[10]");
}

TEST(donated_and_aliased_arguments)
{
  WEFT_AUTO_STR text = lower_text(
    "func.func public @main(%a: tensor<4xf32> {tf.aliasing_output = 0 : i32}, %b: tensor<4xf32> {jax.buffer_donor = true}) "
    "-> tensor<4xf32> {\n  %0 = stablehlo.add %a, %b : tensor<4xf32>\n  return %0 : tensor<4xf32>\n}",
    NULL);
  T_TRUE(strstr(text, "input_output_alias={ {}: (0, {}, may-alias) }") != NULL);
  T_TRUE(strstr(text, "buffer_donor={ (1, {}) }") != NULL);
}

/* What XLA's metadata says of the same locations: names joined, call sites as stack frames, the last place. */
TEST(locations_become_metadata)
{
  static const struct { const char *location, *metadata; } cases[] = {
      {"loc(unknown)", NULL},
      {"loc(\"a.py\":3:7)",
       "metadata={source_file=\"a.py\" source_line=3 source_end_line=3 source_column=7 source_end_column=7}"},
      {"loc(\"a.py\":3:7 to :9)", "source_line=3 source_end_line=3 source_column=7 source_end_column=9"},
      {"loc(\"a.py\":3:7 to 4:9)", "source_line=3 source_end_line=4 source_column=7 source_end_column=9"},
      {"loc(\"jit(f)/sin\")", "metadata={op_name=\"jit(f)/sin\"}"},
      {"loc(\"jit(f)/sin\"(callsite(\"g\"(\"a.py\":3:7) at callsite(\"b.py\":1:2 at \"c.py\":3:4))))",
       "metadata={op_name=\"jit(f)/sin\" stack_frame_id=1}"},
      {"loc(\"s\"(callsite(\"f\"(\"a.py\":3:7) at callsite(\"g\"(\"a.py\":5:1 to :4) at \"h\"(\"c.py\":3:4)))))",
       "metadata={op_name=\"s\" stack_frame_id=3}"},
      {"loc(\"s\"(callsite(callsite(\"f\"(\"a.py\":3:7) at \"g\"(\"a.py\":5:1)) at \"h\"(\"c.py\":3:4))))",
       "metadata={op_name=\"s\" stack_frame_id=3}"},
      {"loc(callsite(\"f\"(\"a.py\":3:7) at #circle))", "metadata={op_name=\"f\" stack_frame_id="},
      {"loc(\"Sin:\"(\"x@f\"(\"a.py\":3:7)))", "metadata={op_type=\"Sin\" op_name=\"x\" stack_frame_id=1}"},
      {"loc(fused[\"Sin:\", \"x\", \"a.py\":3:7])", "metadata={op_type=\"Sin\" op_name=\"x\" source_file=\"a.py\""},
      {"loc(fused[\"x\", \"a.py\":3:7, fused[\"b.py\":4:7]])", "metadata={op_name=\"x\" source_file=\"b.py\" source_line=4"},
      {"loc(fused[\"x\", \"y\"(\"a.py\":3:7)])", "metadata={op_name=\"x;y\" source_file=\"a.py\""},
      {"loc(fused<{k = \"v\"}>[unknown, \"a.py\":3:7])", "metadata={source_file=\"a.py\""},
      {"loc(#late)", "metadata={op_name=\"late\" stack_frame_id=1}"},
      {"loc(#missing)", NULL},
      {"loc(#cycle)", "metadata={op_name=\"cycle\"}"},
  };
  char program[1024];

  for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
    snprintf(program, sizeof program,
             "func.func @main(%%a: tensor<2xf32> loc(\"argument\")) -> tensor<2xf32> {\n"
             "  %%0 = stablehlo.sine %%a : tensor<2xf32> %s\n  return %%0 : tensor<2xf32> loc(#late)\n}\n"
             "#late = loc(\"late\"(#file))\n"
             "#file = loc(\"a.py\":9:1)\n"
             "#cycle = loc(\"cycle\"(#cycle))\n"
             "#circle = loc(callsite(\"g\"(#file) at #circle))\n",
             cases[i].location);
    WEFT_AUTO_STR text = lower_text(program, NULL);
    const char *sine = strstr(text, "sine(");
    T_TRUE(strstr(text, "parameter(0), metadata={op_name=\"argument\"}") != NULL);
    T_TRUE(sine != NULL);
    if (cases[i].metadata ? !strstr(sine, cases[i].metadata) : strstr(sine, "metadata") != NULL)
      fail_msg("%s gives %s", cases[i].location, sine);
  }
}

TEST(call_stacks_are_shared_and_name_the_place)
{
  static const char program[] =
    "func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {\n"
    "  %0 = stablehlo.sine %a : tensor<2xf32> loc(\"s\"(#inner))\n"
    "  %1 = stablehlo.cosine %0 : tensor<2xf32> loc(\"c\"(callsite(\"h\"(\"b.py\":7:2) at #outer)))\n"
    "  return %1 : tensor<2xf32>\n}\n"
    "#outer = loc(callsite(\"f\"(\"a.py\":20:3) at \"main\"(\"a.py\":30:1)))\n"
    "#inner = loc(callsite(\"g\"(\"a.py\":10:5 to :9) at #outer))\n";
  static const char tables[] =
    "\nFileNames\n1 \"a.py\"\n2 \"b.py\"\n\nFunctionNames\n1 \"main\"\n2 \"f\"\n3 \"g\"\n4 \"h\"\n\nFileLocations\n"
    "1 {file_name_id=1 function_name_id=1 line=30 end_line=30 column=1 end_column=1}\n"
    "2 {file_name_id=1 function_name_id=2 line=20 end_line=20 column=3 end_column=3}\n"
    "3 {file_name_id=1 function_name_id=3 line=10 end_line=10 column=5 end_column=9}\n"
    "4 {file_name_id=2 function_name_id=4 line=7 end_line=7 column=2 end_column=2}\n\nStackFrames\n"
    "1 {file_location_id=1 parent_frame_id=1}\n2 {file_location_id=2 parent_frame_id=2}\n"
    "3 {file_location_id=3 parent_frame_id=3}\n4 {file_location_id=4 parent_frame_id=3}\n";
  WEFT_AUTO(hlo_module) module = NULL;
  WEFT_AUTO(hlo_module) again = NULL;
  char buf[100], *text, *raised = NULL, *back;
  size_t size;
  FILE *out;

  T_OK(shlo_parse(program, strlen(program), NULL, &module));
  T_EQ_STR(hlo_describe(module->entry->root->operands[0], buf, sizeof buf) + strlen("%sine.0"), " (s, a.py:10)");
  T_OK(hlo_print_to_string(module, HLO_PRINT_DEFAULT, &text, &size));
  T_TRUE(strstr(text, tables) != NULL);
  out = open_memstream(&raised, &size);
  T_OK(shlo_print_hlo(module, out));
  fclose(out);
  T_OK(shlo_parse(raised, size, NULL, &again));
  T_OK(hlo_print_to_string(again, HLO_PRINT_DEFAULT, &back, &size));
  T_TRUE(strstr(back, tables) != NULL);
  free(text);
  free(raised);
  free(back);
}

TEST(errors_point_at_the_fault)
{
  static const struct { const char *program, *error; } cases[] = {
      {"func.func @main() {\n  %0 = stablehlo.add %x, %x : tensor<f32>\n  return\n}", "2:22: %x is not defined"},
      {"func.func @main(%a: tensor<2xf33>) {\n  return\n}", "1:30: \"f33\" is not a type"},
      {"func.func @main(%a: tensor<2xf32>) {\n  %a = stablehlo.abs %a : tensor<2xf32>\n  return\n}", "defined twice"},
      {"func.func @main() -> tensor<2xf32> {\n  %0 = stablehlo.constant dense<[1.0]> : tensor<2xf32>\n  return %0 : "
       "tensor<2xf32>\n}", "2:37: dense constant: expected ',': too few elements"},
      {"func.func @main() -> tensor<2xi8> {\n  %0 = stablehlo.constant dense<[1, 300]> : tensor<2xi8>\n  return %0 : "
       "tensor<2xi8>\n}", "out of the range of its type"},
      {"func.func @main() {\n  %0 = stablehlo.constant dense<\"0x00\"> : tensor<99999999999xf32>\n  return\n}",
       "too few elements"},
      {"func.func @main(%a: tensor<4xf32>) -> tensor<3xf32> {\n  %0 = stablehlo.slice %a [0:2] : (tensor<4xf32>) -> "
       "tensor<3xf32>\n  return %0 : tensor<3xf32>\n}", "result 0 is declared f32[3], its operands give f32[2]"},
      {"func.func @main(%a: tensor<4xf32>) {\n  %0 = stablehlo.frobnicate %a : tensor<4xf32>\n  return\n}",
       "operation \"frobnicate\" is not supported"},
      {"func.func @main(%a: tensor<4x2xf32>, %z: tensor<f32>) {\n  %0 = \"stablehlo.reduce_window\"(%a, %z) <{window_dimensions = "
       "array<i64: 2, 2>, window_strides = array<i64: 2>}> ({\n  ^b(%x: tensor<f32>, %y: tensor<f32>):\n    %s = stablehlo.add %x, %y : "
       "tensor<f32>\n    stablehlo.return %s : tensor<f32>\n  }) : (tensor<4x2xf32>, tensor<f32>) -> tensor<2x1xf32>\n  return\n}",
       "window_strides has 1 numbers, expected 2"},
      {"func.func @main(%a: tensor<2xf32>) {\n  %0 = \"stablehlo.while\"(%a) ({\n  ^b(%x: tensor<3xf32>):\n    %t = stablehlo.constant "
       "dense<false> : tensor<i1>\n    stablehlo.return %t : tensor<i1>\n  }, {\n  ^b(%x: tensor<2xf32>):\n    stablehlo.return %x : "
       "tensor<2xf32>\n  }) : (tensor<2xf32>) -> tensor<2xf32>\n  return\n}",
       "argument 0 of region 0 is declared f32[3], but gets f32[2]"},
      {"func.func @main() {\n  call @main() : () -> ()\n  return\n}", "function \"main\" calls itself"},
      {"func.func @main(%x: tensor<i32>) -> tensor<i32> {\n"
       "  %0 = stablehlo.custom_call @mhlo.fusion(%x) {mhlo.attributes = {}, called_computations = [@main]} : (tensor<i32>) -> tensor<i32>\n"
       "  return %0 : tensor<i32>\n}", "function \"main\" calls itself"},
      {"func.func @main() {\n  call @gone() : () -> ()\n  return\n}", "there is no function \"gone\""},
      {"func.func @main(%a: tensor<4xf32>) {", "found the end"},
      {"// nothing", "there is no function"},
      {"func.func @main(%a: tensor<2x3xf32>, %i: tensor<3xf32>) {\n  %0:2 = chlo.scan(%a) inits(%i) dimension = 1 {\n"
       "  ^b(%x: tensor<3xf32>, %y: tensor<3xf32>):\n    stablehlo.return %x, %y : tensor<3xf32>, tensor<3xf32>\n  } : "
       "(tensor<2x3xf32>, tensor<3xf32>) -> (tensor<2x3xf32>, tensor<3xf32>)\n  return\n}",
       "scan: the computation takes slices of f32[3,3], not of f32[2,3] (operand 0)"},
      {"func.func @main() {\n  \"stablehlo.reduce_window\"() ({\n  ^b(%x: tensor<f32>):\n    stablehlo.return %x : tensor<f32>\n"
       "  }) : () -> ()\n  return\n}", "reduce_window at 2:3"},
      {"func.func @main(%a: tuple<tensor<2xf32>>, %i: tensor<1xi32>) {\n  %0 = \"stablehlo.torch_index_select\"(%a, %i) {dim = 0 : "
       "i64, batch_dims = 0 : i64} : (tuple<tensor<2xf32>>, tensor<1xi32>) -> tensor<1xf32>\n  return\n}", "is no array"},
      {"func.func @main(%a: tensor<4xf32>, %b: tensor<5xf32>) {\n  %0 = stablehlo.add %a, %b : (tensor<4xf32>, tensor<5xf32>) "
       "-> tensor<4xf32>\n  return\n}", "add: dimensions differ: f32[4] (operand 0), f32[5] (operand 1)"},
  };

  for (size_t i = 0; i < WEFT_COUNT(cases); i++) T_FAILS(parse(cases[i].program), cases[i].error);
  T_FAILS(parse(cases[7].program), "frobnicate at 2:8");
}

/* Forty functions, each of which calls the next one twice: 2^40 operations that would make no instruction. */
TEST(regions_that_multiply_end)
{
  char program[16384];
  size_t at = 0;

  for (int i = 0; i < 40; i++)
    at += (size_t)snprintf(
      program + at, sizeof program - at,
      "func.func @f%d(%%x: tensor<i32>) -> tensor<i32> {\n"
      "  %%0 = stablehlo.custom_call @mhlo.fusion(%%x) {mhlo.attributes = {}, called_computations = [@f%d]} : (tensor<i32>) -> tensor<i32>\n"
      "  %%1 = stablehlo.custom_call @mhlo.fusion(%%0) {mhlo.attributes = {}, called_computations = [@f%d]} : (tensor<i32>) -> tensor<i32>\n"
      "  return %%1 : tensor<i32>\n}\n",
      i, i + 1, i + 1);
  snprintf(program + at, sizeof program - at,
           "func.func @f40(%%x: tensor<i32>) -> tensor<i32> {\n  return %%x : tensor<i32>\n}\n");
  T_FAILS(parse(program), "RESOURCE_EXHAUSTED");
}

/* What jaxlib's verifier refuses of programs that refused_jaxlib_test.py draws, each kind once. */
TEST(operands_are_counted_and_dimensions_named_once)
{
  static const struct { const char *body, *error; } cases[] = {
      {"%0 = \"stablehlo.convert\"(%z, %z) : (tensor<6xf32>, tensor<6xf32>) -> tensor<6xf64>", "2 operands, expected 1"},
      {"%0 = \"stablehlo.reshape\"(%z, %i) : (tensor<6xf32>, tensor<i32>) -> tensor<2x3xf32>", "2 operands, expected 1"},
      {"%0 = \"chlo.is_inf\"(%z, %z) : (tensor<6xf32>, tensor<6xf32>) -> tensor<6xi1>", "2 operands, expected 1"},
      {"%0 = \"stablehlo.iota\"(%i) {iota_dimension = 0 : i64} : (tensor<i32>) -> tensor<6xf32>", "1 operands, expected 0"},
      {"%0 = \"stablehlo.case\"(%i, %i) ({\n  stablehlo.return %z : tensor<6xf32>\n}) : (tensor<i32>, tensor<i32>) -> tensor<6xf32>",
       "2 operands, expected 1"},
      {"%0 = \"stablehlo.broadcast_in_dim\"(%s) {broadcast_dimensions = array<i64: 0, 0>} : (tensor<6x6xf32>) -> tensor<6x6xf32>",
       "broadcast dimension 0 twice"},
      {"%0 = stablehlo.convert %s : (tensor<6x6xf32>) -> tensor<6x6xf64>\n%1 = \"stablehlo.convolution\"(%0, %s) {dimension_numbers = "
       "#stablehlo.conv<[b, f]x[i, o]->[b, f]>, batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<6x6xf64>, "
       "tensor<6x6xf32>) -> tensor<6x6xf32>", "f64 and f32 (convolution C27)"},
  };

  for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
    char program[1024];
    snprintf(program, sizeof program,
             "func.func @main(%%z: tensor<6xf32>, %%s: tensor<6x6xf32>, %%i: tensor<i32>) {\n%s\n  return\n}\n",
             cases[i].body);
    T_FAILS(parse(program), cases[i].error);
  }
}

TEST(nesting_is_bounded)
{
  enum { DEEP = 100000 };
  static char program[DEEP + 64];

  strcpy(program, "func.func @main() attributes {a = ");
  memset(program + strlen(program), '[', DEEP);
  T_FAILS(parse(program), "nested deeper than");
}

TEST(programs_are_told_from_hlo_by_their_content)
{
  T_TRUE(shlo_is_program("ML\xefR\x0d", 5));
  T_TRUE(shlo_is_program("// comment\nmodule @m {}", 23));
  T_TRUE(shlo_is_program("#loc = loc(unknown)\n", 20));
  T_TRUE(!shlo_is_program("HloModule m", 11));
  T_TRUE(!shlo_is_program("\x0a\x03jit", 5));
  T_TRUE(!shlo_is_program("", 0));
}

/* What the specification demands beyond shapes: each message names operation and constraint. */
TEST(broken_constraints_are_named)
{
#define ADD(t) "({\n^bb0(%x: tensor<" t ">, %y: tensor<" t ">):\n  %z = stablehlo.add %x, %y : tensor<" t ">\n" \
               "  stablehlo.return %z : tensor<" t ">\n})"
#define Q(storage, scale) "tensor<4x!quant.uniform<" storage ":f32, " scale ">>"
  static const struct { const char *body, *error; } cases[] = {
      {"%0 = \"stablehlo.all_reduce\"(%a) " ADD("f32") " {replica_groups = dense<[[0, 1, 1, 3]]> : tensor<1x4xi64>} : "
       "(tensor<4xf32>) -> tensor<4xf32>", "id 1 is twice in replica_groups (all_reduce C1)"},
      {"%0 = \"stablehlo.all_reduce\"(%a) " ADD("f32") " {replica_groups = dense<[[0, 3]]> : tensor<1x2xi64>} : "
       "(tensor<4xf32>) -> tensor<4xf32>", "id 1 is not in replica_groups, which have 2 ids (all_reduce C3)"},
      {"%0 = \"stablehlo.all_reduce\"(%a) " ADD("i32") " {replica_groups = dense<0> : tensor<1x1xi64>} : "
       "(tensor<4xf32>) -> tensor<4xf32>", "(all_reduce C5)"},
      {"%0 = \"stablehlo.all_gather\"(%a) {all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2], [3, -1, -1]]> : "
       "tensor<2x3xi64>} : (tensor<4xf32>) -> tensor<12xf32>", "(all_gather C4)"},
      {"%0 = \"stablehlo.collective_permute\"(%a) {source_target_pairs = dense<[[0, 1], [0, 2]]> : tensor<2x2xi64>} : "
       "(tensor<4xf32>) -> tensor<4xf32>", "source 0 is in two pairs (collective_permute C2)"},
      {"%0 = \"stablehlo.collective_permute\"(%a) {source_target_pairs = dense<[[0, 1], [2, 1]]> : tensor<2x2xi64>} : "
       "(tensor<4xf32>) -> tensor<4xf32>", "target 1 is in two pairs (collective_permute C3)"},
      {"%0 = \"stablehlo.all_to_all\"(%a) {split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = 2 : i64, "
       "replica_groups = dense<[[0, 1, 2]]> : tensor<1x3xi64>} : (tensor<4xf32>) -> tensor<4xf32>", "(all_to_all C8)"},
      {"%i = stablehlo.constant dense<0> : tensor<i32>\n%0 = \"stablehlo.reduce\"(%a, %i) " ADD("f32") " {dimensions = array<i64: 0>} : "
       "(tensor<4xf32>, tensor<i32>) -> tensor<f32>", "s32 of the initial value cannot become f32 of result 0 of the region (reduce C6)"},
      {"%0 = \"stablehlo.custom_call\"(%a) {call_target_name = \"t\", operand_layouts = [dense<0> : tensor<1xindex>]} : "
       "(tensor<4xf32>) -> tensor<4xf32>", "(custom_call C1)"},
      {"%0 = \"stablehlo.custom_call\"(%a) {call_target_name = \"t\", output_operand_aliases = [#stablehlo.output_operand_alias<"
       "output_tuple_indices = [], operand_index = 0, operand_tuple_indices = []>]} : (tensor<4xf32>) -> tensor<5xf32>",
       "alias 0 is between values of different types (custom_call C2)"},
      {"%0 = \"stablehlo.custom_call\"(%a) {call_target_name = \"t\", backend_config = \"s\", api_version = 4 : i32} : "
       "(tensor<4xf32>) -> tensor<4xf32>", "(custom_call C4)"},
      {"%0 = stablehlo.composite \"nameless\" %a {decomposition = @f} : (tensor<4xf32>) -> tensor<4xf32>", "(composite C1)"},
      {"%0 = stablehlo.composite \"a.b\" %a {decomposition = @g} : (tensor<4xf32>) -> tensor<4xf32>", "(composite C3)"},
      {"%0 = \"stablehlo.tanh\"(%a) {result_accuracy = #stablehlo.result_accuracy<atol = 1.0, rtol = 0.0, ulps = 0, mode = "
       "#stablehlo.result_accuracy_mode<HIGHEST>>} : (tensor<4xf32>) -> tensor<4xf32>", "mode HIGHEST has tolerances (tanh I2)"},
      {"%i = stablehlo.constant dense<0> : tensor<i32>\n%j = stablehlo.constant dense<0> : tensor<i64>\n"
       "%b = stablehlo.reshape %a : (tensor<4xf32>) -> tensor<2x2xf32>\n%0 = \"stablehlo.dynamic_slice\"(%b, %i, %j) "
       "{slice_sizes = array<i64: 1, 1>} : (tensor<2x2xf32>, tensor<i32>, tensor<i64>) -> tensor<1x1xf32>", "(dynamic_slice C3)"},
      {"%q = \"stablehlo.uniform_quantize\"(%a) : (tensor<4xf32>) -> tensor<4x!quant.uniform<i8:f32:0, {0.1, 0.2, 0.3, 0.4}>>\n"
       "%0 = \"stablehlo.abs\"(%q) : (tensor<4x!quant.uniform<i8:f32:0, {0.1, 0.2, 0.3, 0.4}>>) -> "
       "tensor<4x!quant.uniform<i8:f32:0, {0.1, 0.2, 0.3, 0.4}>>", "quantized per axis (abs I1)"},
      {"%q = stablehlo.uniform_quantize %a : (tensor<4xf32>) -> " Q("i8", "0.5") "\n%0 = \"stablehlo.add\"(%q, %q) : "
       "(" Q("i8", "0.5") ", " Q("i8", "0.5") ") -> tensor<4xf32>", "(add C2)"},
      {"%q = stablehlo.uniform_quantize %a : (tensor<4xf32>) -> " Q("i8", "0.5") "\n%0 = \"stablehlo.add\"(%q, %q) : "
       "(" Q("i8", "0.5") ", " Q("i8", "0.5") ") -> " Q("i4", "0.5"), "(add C3)"},
      {"%q = stablehlo.uniform_quantize %a : (tensor<4xf32>) -> " Q("i8", "0.5") "\n%0 = \"stablehlo.transpose\"(%q) "
       "{permutation = array<i64: 0>} : (" Q("i8", "0.5") ") -> " Q("i8", "0.25"), "differ in scales or zero points (transpose C1)"},
      {"%q = stablehlo.uniform_quantize %a : (tensor<4xf32>) -> " Q("i8", "0.5") "\n%0 = \"stablehlo.reshape\"(%q) : "
       "(" Q("i8", "0.5") ") -> " Q("i8", "0.5:1"), "(reshape C1)"},
      {"%q = stablehlo.uniform_quantize %a : (tensor<4xf32>) -> tensor<4x!quant.uniform<i8:f32:0, {0.1, 0.2, 0.3, 0.4}>>\n"
       "%0 = \"stablehlo.reshape\"(%q) : (tensor<4x!quant.uniform<i8:f32:0, {0.1, 0.2, 0.3, 0.4}>>) -> "
       "tensor<2x2x!quant.uniform<i8:f32:1, {0.1, 0.2}>>", "(reshape C1)"},
      {"%0 = stablehlo.uniform_quantize %a : (tensor<4xf32>) -> tensor<4x!quant.uniform<i8:f64, 0.5>>", "(uniform_quantize C2)"},
      {"%0 = stablehlo.uniform_quantize %a : (tensor<4xf32>) -> " Q("i8", "0.5:300"), "zero point 300 is not from -128 to 127 (quantized_type C7)"},
      {"%0 = stablehlo.uniform_quantize %a : (tensor<4xf32>) -> tensor<4x!quant.uniform<i8:f16, 1.0e5>>", "(quantized_type C4)"},
      {"%0 = stablehlo.uniform_quantize %a : (tensor<4xf32>) -> " Q("i8<-8:8000>", "0.5"), "(quantized_type C3)"},
      {"%0 = stablehlo.uniform_quantize %a : (tensor<4xf32>) -> " Q("si8", "0.5"), "not a storage type"},
      {"%s = stablehlo.constant dense<[2, 3]> : tensor<2xi64>\n%0 = stablehlo.dynamic_reshape %a, %s : (tensor<4xf32>, "
       "tensor<2xi64>) -> tensor<2x2xf32>", "dimension 1 of the result is declared 2, its operand gives 3"},
      {"%s = stablehlo.constant dense<4> : tensor<1xi64>\n%0 = stablehlo.dynamic_iota %s, dim = 0 : (tensor<1xi64>) -> "
       "tensor<5xf32>", "is declared 5, its operand gives 4"},
      {"%0 = stablehlo.dot %a, %a, precision = [BEST] : (tensor<4xf32>, tensor<4xf32>) -> tensor<f32>", "precision \"BEST\""},
      {"%0 = stablehlo.dot_general %a, %a, contracting_dims = [0] x [0], algorithm = <lhs_precision_type = f32, rhs_precision_type = f32, "
       "accumulation_type = f32, lhs_component_count = 3, rhs_component_count = 1, num_primitive_operations = 1, "
       "allow_imprecise_accumulation = false> : (tensor<4xf32>, tensor<4xf32>) -> tensor<f32>", "of 3 and 1 components in 1 operations"},
      {"%0 = \"stablehlo.async_start\"(%a) ({\n^bb0(%x: tensor<4xf32>):\n  %y = stablehlo.negate %x : tensor<4xf32>\n"
       "  stablehlo.return %y : tensor<4xf32>\n}) : (tensor<4xf32>) -> !stablehlo.future<tensor<4xf32>>", "negate is no collective or slice"},
      {"%0 = \"stablehlo.async_start\"(%a) ({\n^bb0(%x: tensor<4xf32>):\n  %y = stablehlo.slice %x [0:2] : (tensor<4xf32>) -> tensor<2xf32>\n"
       "  stablehlo.return %y : tensor<2xf32>\n}) : (tensor<4xf32>) -> !stablehlo.future<tensor<4xf32>>", "(async_start C3)"},
      {"%0 = \"stablehlo.custom_call\"(%a) {call_target_name = \"Pin\", api_version = 4 : i32} : (tensor<4xf32>) -> tensor<4xf32>",
       "Pin does not give a memref (custom_call C3)"},
      {"%0 = \"stablehlo.custom_call\"(%a) {call_target_name = \"t\", api_version = 4 : i32} : (tensor<4xf32>) -> memref<4xf32>",
       "a buffer that is a result aliases no operand (custom_call C2)"},
      {"%b = stablehlo.iota dim = 0 : tensor<4x4xf32>\n%0 = \"chlo.broadcast_add\"(%a, %b) {broadcast_dimensions = array<i64: 0, 1>} : "
       "(tensor<4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>", "2 broadcast_dimensions for an operand of rank 1"},
      {"\"interpreter.run_parallel\"() {programs = []} : () -> ()", "no programs"},
      {"\"interpreter.run_parallel\"(%a, %a) {programs = [[@f]]} : (tensor<4xf32>, tensor<4xf32>) -> ()",
       "2 operands and 0 results, the programs have 1 and 1"},
      {"%0 = \"interpreter.run_parallel\"(%a) {infeed = [], programs = [[@f]]} : (tensor<4xf32>) -> tensor<4xf32>", "an empty infeed"},
      {"%p = stablehlo.constant dense<true> : tensor<i1>\n%0 = stablehlo.select %p, %a, %a : tensor<i1>, tensor<4xf32>, tensor<4xf32>",
       "expected the types of predicate and result, got 3"},
      {"%0 = stablehlo.dot %a, %a, [HIGH] : (tensor<4xf32>, tensor<4xf32>) -> tensor<f32>", "expected an operand or an attribute by name"},
      {"%0 = stablehlo.slice %a [0:1] : (tensor<4xf32>) -> tensor<1xf32, #stablehlo.bounds<1>>", "dimension 0 of size 1 has a bound"},
  };

  for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
    char program[2048];
    snprintf(program, sizeof program,
             "func.func @main(%%a: tensor<4xf32>) {\n%s\nreturn\n}\n"
             "func.func private @f(%%a: tensor<4xf32>) -> tensor<4xf32> {\n  return %%a : tensor<4xf32>\n}\n"
             "func.func private @g(%%a: tensor<5xf32>) -> tensor<5xf32> {\n  return %%a : tensor<5xf32>\n}\n",
             cases[i].body);
    T_FAILS(parse(program), cases[i].error);
    snprintf(program, sizeof program,
             "func.func @main() {\n  return\n}\nfunc.func @uncalled(%%a: tensor<4xf32>) {\n%s\nreturn\n}\n"
             "func.func private @g(%%a: tensor<5xf32>) -> tensor<5xf32> {\n  return %%a : tensor<5xf32>\n}\n",
             cases[i].body);
    if (strstr(cases[i].error, " C"))
      T_FAILS(parse(program), strchr(cases[i].error, '(')); /* constraints hold for what nobody calls */
  }
#undef ADD
#undef Q
}

/* An operation that cannot be lowered is not an error if nothing reads it or its readers (jaxlib removes them:
 * taken_jaxlib_test.py). */
TEST(what_nothing_reads_may_be_what_cannot_be_lowered)
{
#define SLICE "%0 = stablehlo.real_dynamic_slice %a, %i, %i, %i : (tensor<4xf32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<?xf32>\n"
#define MAP "%0 = \"stablehlo.map\"(%a) ({\n^bb0(%x: tensor<f32>):\n  %y = stablehlo.add %x, %f : tensor<f32>\n  stablehlo.return %y : tensor<f32>\n}) " \
            "{dimensions = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>\n"
  static const struct { const char *body, *error; } cases[] = {
      {SLICE "return %a : tensor<4xf32>", NULL},
      {SLICE "%1 = stablehlo.add %0, %0 : tensor<?xf32>\n%2 = stablehlo.sine %1 : tensor<?xf32>\nreturn %a : tensor<4xf32>", NULL},
      {SLICE "%1 = \"stablehlo.if\"(%p) ({\n  stablehlo.return %0 : tensor<?xf32>\n}, {\n  stablehlo.return %0 : tensor<?xf32>\n}) : (tensor<i1>) -> tensor<?xf32>\n"
       "return %a : tensor<4xf32>", NULL},
      {SLICE "%1 = stablehlo.nonesuch %0 : tensor<?xf32>\nreturn %a : tensor<4xf32>", "a size depends on the value of an argument"},
      {MAP "return %a : tensor<4xf32>", NULL},
      {MAP "%1 = stablehlo.add %0, %0 : tensor<4xf32>\nreturn %a : tensor<4xf32>", NULL},
      {MAP "%1 = stablehlo.add %0, %0 : tensor<4xf32>\nreturn %1 : tensor<4xf32>", "the region uses %arg1 from outside"},
      {MAP "%1 = stablehlo.custom_call @f(%0) {has_side_effect = true} : (tensor<4xf32>) -> tensor<4xf32>\nreturn %a : tensor<4xf32>",
       "the region uses %arg1 from outside"},
      {"%0 = stablehlo.nonesuch %a : tensor<4xf32>\nreturn %a : tensor<4xf32>", "\"nonesuch\" is not supported"},
      {"%0:2 = \"stablehlo.reduce\"(%a, %a, %f, %f) ({\n^bb0(%w: tensor<f32>, %x: tensor<f32>, %y: tensor<f32>, %z: tensor<f32>):\n"
       "  stablehlo.return %f : tensor<f32>\n}) {dimensions = array<i64: 0>} : (tensor<4xf32>, tensor<4xf32>, tensor<f32>, tensor<f32>) -> "
       "(tensor<f32>, tensor<f32>)\n%1 = stablehlo.add %0#0, %0#1 : tensor<f32>\n%2 = stablehlo.broadcast_in_dim %1, dims = [] : (tensor<f32>) -> tensor<4xf32>\n"
       "return %2 : tensor<4xf32>", "reduce"},
      {"%0 = \"stablehlo.reduce\"(%a, %f) ({\n^bb0(%x: tensor<f32>, %y: tensor<f32>):\n  stablehlo.return %f : tensor<f32>\n}) "
       "{dimensions = array<i64: 0, 0>} : (tensor<4xf32>, tensor<f32>) -> tensor<f32>\n%2 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<4xf32>\n"
       "return %2 : tensor<4xf32>", ""},
      {"%0 = arith.constant 4 : memref<4xf32>\nreturn %0 : memref<4xf32>", "a constant that is no number"},
      {"%0 = \"shape.to_extent_tensor\"(%t) : (!stablehlo.token) -> tensor<2xindex>\nreturn %a : tensor<4xf32>", "operand 0 is no array"},
  };

  for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
    char program[2048];
    snprintf(
      program, sizeof program,
      "func.func @main(%%a: tensor<4xf32>, %%f: tensor<f32>, %%i: tensor<1xi64>, %%p: tensor<i1>, %%t: !stablehlo.token) -> tensor<4xf32> {\n%s\n}\n",
      cases[i].body);
    if (cases[i].error) T_FAILS(parse(program), cases[i].error);
    else T_OK(parse(program));
  }
#undef SLICE
#undef MAP
}

TEST(dictionaries_of_vhlo_have_keys_of_vhlo)
{
  WEFT_AUTO(hlo_module) module = NULL;
  static const char head[] = "func.func @main() attributes {a = #vhlo.dict_v1<{", tail[] = "}>} {\n  return\n}";
  char text[256];

  snprintf(text, sizeof text,
           "%s#vhlo.string_v1<\"k\"> = #vhlo.integer_v1<1 : i32>, #vhlo.string_v1<\"l\"> = #vhlo.array_v1<[]>%s", head,
           tail);
  T_OK(shlo_parse(text, strlen(text), NULL, &module));
  snprintf(text, sizeof text, "%s\"k\" = #vhlo.array_v1<[]>%s", head, tail);
  T_FAILS(parse(text), "expected a key of VHLO");
  snprintf(
    text, sizeof text,
    "%s#vhlo.string_v1<\"k\"> = #vhlo.result_accuracy_v1<ulps = 0, mode = #stablehlo.result_accuracy_mode<DEFAULT>>%s",
    head, tail);
  T_FAILS(parse(text), "mode of VHLO is of another dialect");
}

/* The second operation of a kind is lowered by the pattern of the first. Here the pattern does not fit: the first has
 * one value as both operands and the second has two values, or the other way round. */
TEST(operations_like_earlier_ones_have_operands_of_their_own)
{
  double got[1];

  evaluate(
    "func.func @main() -> tensor<1xf32> {\n"
    "  %x = stablehlo.constant dense<[3.0]> : tensor<1xf32>\n  %y = stablehlo.constant dense<[5.0]> : tensor<1xf32>\n"
    "  %xx = stablehlo.subtract %x, %x : tensor<1xf32>\n  %xy = stablehlo.subtract %x, %y : tensor<1xf32>\n"
    "  %yx = stablehlo.subtract %y, %x : tensor<1xf32>\n  %yy = stablehlo.subtract %y, %y : tensor<1xf32>\n"
    "  %rx = stablehlo.reshape %yx : (tensor<1xf32>) -> tensor<1xf32>\n" /* nothing at all, twice */
    "  %ry = stablehlo.reshape %xy : (tensor<1xf32>) -> tensor<1xf32>\n"
    "  %p = stablehlo.power %rx, %ry : tensor<1xf32>\n" /* 2 to the -2 */
    "  %q = stablehlo.power %y, %x : tensor<1xf32>\n"   /* 125 */
    "  %a = stablehlo.add %p, %q : tensor<1xf32>\n  %b = stablehlo.add %xx, %yy : tensor<1xf32>\n"
    "  %r = stablehlo.subtract %a, %b : tensor<1xf32>\n  return %r : tensor<1xf32>\n}\n",
    1, got);
  T_TRUE(got[0] == 125.25);
}

/* Against the C library's erfc, in units of the last place: XLA's expression has 1.2, 3.7, 5.3 and 11 at worst in these
 * ranges. Beyond, rounding x^2 costs more than the fit. */
TEST(erfc_of_f32_is_as_exact_as_xla)
{
  static const struct { double below, ulp; } budgets[] = {{-1, 1}, {0, 1.1}, {0.5, 1.5}, {1, 6}, {2, 8}, {4, 13}, {10.1, 80}};
  enum { N = 16384 };
  static double got[N];
  double ends[5];
  size_t range = 0;

  evaluate("func.func @main() -> tensor<16384xf32> {\n"
           "  %i = stablehlo.iota dim = 0 : tensor<16384xf32>\n"
           "  %s = stablehlo.constant dense<9.765625e-04> : tensor<16384xf32>\n"
           "  %l = stablehlo.constant dense<-6.0> : tensor<16384xf32>\n"
           "  %m = stablehlo.multiply %i, %s : tensor<16384xf32>\n  %x = stablehlo.add %m, %l : tensor<16384xf32>\n"
           "  %r = chlo.erfc %x : tensor<16384xf32> -> tensor<16384xf32>\n  return %r : tensor<16384xf32>\n}\n",
           N, got);
  for (int i = 0; i < N; i++) {
    double x = i * 0x1p-10 - 6, want = erfc(x),
           error = fabs(got[i] - want) / fmax(ldexp(1, ilogb(want) - 23), 0x1p-149);
    while (range + 1 < WEFT_COUNT(budgets) && x >= budgets[range].below) range++;
    if (!(error <= budgets[range].ulp)) fail_msg("erfc(%g): got %a, want %a (%g ULP)", x, got[i], want, error);
  }
  evaluate("func.func @main() -> tensor<5xf32> {\n"
           "  %x = stablehlo.constant dense<[0.0, -0.0, 0x7F800000, 0xFF800000, 0x7FC00000]> : tensor<5xf32>\n"
           "  %r = chlo.erfc %x : tensor<5xf32> -> tensor<5xf32>\n  return %r : tensor<5xf32>\n}\n",
           5, ends);
  T_TRUE(ends[0] == 1 && ends[1] == 1 && ends[2] == 0 && ends[3] == 2 && isnan(ends[4]));
}

/* v rounded to bf16, to even where two are as near. */
static double nearest_bf16(double v)
{
  if (v == 0 || isinf(v) || isnan(v)) return v;
  double unit = ldexp(1, (ilogb(v) < -126 ? -126 : ilogb(v)) - 7);
  return nearbyint(v / unit) * unit;
}

TEST(erfc_of_every_bf16_is_rounded_right)
{
  enum { N = 1 << 16 };
  static double in[N], out[N];
  static const char bits[] = "func.func @main() -> tensor<65536xbf16> {\n"
                             "  %i = stablehlo.iota dim = 0 : tensor<65536xui16>\n"
                             "  %x = stablehlo.bitcast_convert %i : (tensor<65536xui16>) -> tensor<65536xbf16>\n";
  char text[1024];

  snprintf(text, sizeof text, "%s  return %%x : tensor<65536xbf16>\n}\n", bits);
  evaluate(text, N, in);
  snprintf(text, sizeof text,
           "%s  %%r = chlo.erfc %%x : tensor<65536xbf16> -> tensor<65536xbf16>\n  return %%r : tensor<65536xbf16>\n}\n",
           bits);
  evaluate(text, N, out);
  for (int i = 0; i < N; i++) {
    double want = nearest_bf16(erfc(in[i]));
    if (isnan(want) ? !isnan(out[i]) : out[i] != want) fail_msg("erfc(%a): got %a, want %a", in[i], out[i], want);
  }
}

TEST_MAIN(UNIT(erfc_of_f32_is_as_exact_as_xla), UNIT(erfc_of_every_bf16_is_rounded_right), UNIT(custom_and_generic_assembly_mean_the_same), UNIT(a_body_may_name_the_arguments), UNIT(declared_types_say_what_operands_do_not), UNIT(constants_in_every_spelling),
          UNIT(a_splat_is_a_broadcast_of_a_scalar), UNIT(loops_see_values_from_outside),
          UNIT(a_function_is_chosen_and_its_shapes_refined), UNIT(donated_and_aliased_arguments),
          UNIT(locations_become_metadata), UNIT(call_stacks_are_shared_and_name_the_place), UNIT(errors_point_at_the_fault), UNIT(regions_that_multiply_end),
          UNIT(operands_are_counted_and_dimensions_named_once), UNIT(nesting_is_bounded), UNIT(programs_are_told_from_hlo_by_their_content),
          UNIT(broken_constraints_are_named), UNIT(what_nothing_reads_may_be_what_cannot_be_lowered), UNIT(dictionaries_of_vhlo_have_keys_of_vhlo),
          UNIT(operations_like_earlier_ones_have_operands_of_their_own))
