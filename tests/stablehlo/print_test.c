/* tests/stablehlo/print_test.c -- StableHLO printed: what is printed reads back and lowers to the same HLO, for every
 * program of the test data and for forms that are not there.  print_jaxlib_test.py shows that MLIR's own parser reads
 * it as what was meant. */
#include "test.h"

#include <dirent.h>

#include "hlo/text.h"
#include "read_file.h"
#include "stablehlo/stablehlo.h"

static char *printed(const shlo_program *program)
{
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);

  T_TRUE(out != NULL);
  weft_status *st = shlo_print(program, out);
  fclose(out);
  if (st) fail_msg("%s", weft_status_text(st, false));
  return text;
}

/* A function as HLO text without metadata; NULL if it does not lower. */
static char *lowered(shlo_program *program, int module, const char *function)
{
  WEFT_AUTO(hlo_module) hlo = NULL;
  char *text = NULL;
  size_t size;
  weft_status *st = shlo_lower(program, &(shlo_options){.module = module, .function = function}, &hlo);

  if (!st) st = hlo_print_to_string(hlo, (hlo_print_options){.large_constants = true}, &text, &size);
  weft_status_free(st);
  return text;
}

/* How many functions were the same. */
static int round_trip(const char *name, const char *bytes, size_t size)
{
  WEFT_AUTO(shlo_program) a = NULL;
  WEFT_AUTO(shlo_program) b = NULL;
  int functions = 0;
  weft_status *st = shlo_read(bytes, size, &a);

  if (st) { /* programs that are meant to be refused */
    weft_status_free(st);
    return 0;
  }
  WEFT_AUTO_STR text = printed(a);
  st = shlo_read(text, strlen(text), &b);
  if (st) fail_msg("%s: %s\nprinted as\n%.20000s", name, weft_status_text(st, false), text);
  T_EQ_INT(shlo_module_count(b), shlo_module_count(a));
  for (int m = 0; m < shlo_module_count(a); m++) {
    T_EQ_INT(shlo_function_count(b, m), shlo_function_count(a, m));
    for (int f = 0; f < shlo_function_count(a, m); f++) {
      WEFT_AUTO_STR want = lowered(a, m, shlo_function_name(a, m, f));
      WEFT_AUTO_STR got = lowered(b, m, shlo_function_name(a, m, f));
      T_EQ_STR(shlo_function_name(b, m, f), shlo_function_name(a, m, f));
      if ((want == NULL) != (got == NULL) || (want && strcmp(want, got) != 0))
        fail_msg("%s: \"%s\" becomes\n%.9000s\nnot\n%.9000s", name, shlo_function_name(a, m, f),
                 got ? got : "(an error)", want ? want : "(an error)");
      functions += want != NULL;
    }
  }
  return functions;
}

TEST(every_program_of_the_test_data_comes_back)
{
  static const char *const groups[] = {"testdata", "interpret", "interpret-chlo", "math", "testdata-quantized",
                                       "testdata-dynamic", "vhlo"};
  const char *root = getenv("WEFT_SRCDIR");
  char folder[512], path[1024];
  struct dirent **files;

  for (size_t g = 0; g < WEFT_COUNT(groups); g++) {
    int functions = 0, programs = 0;
    snprintf(folder, sizeof folder, "%s/../shared/testdata/stablehlo/%s", root ? root : ".", groups[g]);
    int n = scandir(folder, &files, NULL, alphasort);
    if (n < 0) T_SKIP("no %s", folder);
    for (int i = 0; i < n; i++) {
      size_t size = 0;
      snprintf(path, sizeof path, "%s/%s", folder, files[i]->d_name);
      if (strstr(files[i]->d_name, ".mlir")) {
        WEFT_AUTO_STR bytes = read_file(path, &size);
        functions += round_trip(files[i]->d_name, bytes, size);
        programs++;
      }
      free(files[i]);
    }
    free(files);
    print_message("# %s: %d files, %d functions lower to the same\n", groups[g], programs, functions);
  }
}

TEST(forms_that_the_test_data_lacks_come_back)
{
  static const char *const programs[] = {
      "sdy.mesh @mesh = <[\"x\"=2, \"y\"=4]>\n"
      "func.func @main(%a: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{\"x\", ?}, {\"y\":(2)2}], replicated={\"y\":(1)2}>})"
      " -> tensor<8x4xf32> {\n"
      "  %0 = sdy.manual_computation(%a) in_shardings=[<@mesh, [{\"x\"}, {}]>] out_shardings=[<@mesh, [{\"x\"}, {}]>] "
      "manual_axes={\"x\"} (%b: tensor<4x4xf32>) {\n    sdy.return %b : tensor<4x4xf32>\n  } : (tensor<8x4xf32>) -> tensor<8x4xf32>\n"
      "  %1 = sdy.sharding_constraint %0 <@mesh, [{}, {?}]> : tensor<8x4xf32>\n"
      "  %2 = sdy.all_gather [{\"x\"}, {}] %1 out_sharding=<@mesh, [{}, {}]> : tensor<8x4xf32>\n"
      "  return %2 : tensor<8x4xf32>\n}\n",
      "func.func @main(%a: tensor<?x3xf32, #stablehlo.bounds<5, ?>>) -> tensor<?x3xf32, #stablehlo.bounds<5, ?>> {\n"
      "  return %a : tensor<?x3xf32, #stablehlo.bounds<5, ?>>\n}\n",
      "func.func @main(%a: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xi32>) attributes {x.y = \"a\\22b\\0A\", \"odd name\" = unit} {\n"
      "  %0:2 = stablehlo.custom_call @\"t.1\"(%a) {backend_config = {k = 3 : i32, s = \"v\"}, api_version = 4 : i32, "
      "operand_layouts = [dense<0> : tensor<1xindex>], result_layouts = [dense<0> : tensor<1xindex>, dense<0> : tensor<1xindex>]"
      ", output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [0], operand_index = 0, "
      "operand_tuple_indices = []>]} : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xi32>)\n"
      "  return %0#0, %0#1 : tensor<4xf32>, tensor<4xi32>\n}\n",
      "func.func @main(%a: tensor<4x!quant.uniform<i8<-100:100>:f32:0, {0.1:3, 0.2, 0.3:-1, 0.4}>>) -> tensor<4xf32> {\n"
      "  %0 = stablehlo.uniform_dequantize %a : (tensor<4x!quant.uniform<i8<-100:100>:f32:0, {0.1:3, 0.2, 0.3:-1, 0.4}>>) -> "
      "tensor<4xf32>\n  return %0 : tensor<4xf32>\n}\n",
      "func.func @main(%a: tensor<4xf32>) -> tensor<f64> {\n"
      "  %0 = stablehlo.constant dense<[0x7FC00000, 0xFF800000, 1.0e-40, 0.1]> : tensor<4xf32>\n"
      "  %1 = stablehlo.exponential %a {result_accuracy = #stablehlo.result_accuracy<atol = 1.000000e-05, rtol = 0.0, ulps = 1, "
      "mode = #stablehlo.result_accuracy_mode<TOLERANCE>>} : tensor<4xf32>\n"
      "  %2 = \"stablehlo.all_reduce\"(%1) ({\n  ^bb0(%x: tensor<f32>, %y: tensor<f32>):\n"
      "    %z = stablehlo.add %x, %y : tensor<f32>\n    stablehlo.return %z : tensor<f32>\n  }) {replica_groups = "
      "dense<[[0, 1], [2, -1]]> : tensor<2x2xi64>, channel_handle = #stablehlo.channel_handle<handle = 3, type = 1>, "
      "use_global_device_ids} : (tensor<4xf32>) -> tensor<4xf32>\n"
      "  %3 = stablehlo.dot_general %0, %2, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT], algorithm = "
      "<lhs_precision_type = tf32, rhs_precision_type = tf32, accumulation_type = f32, lhs_component_count = 1, "
      "rhs_component_count = 1, num_primitive_operations = 1, allow_imprecise_accumulation = false> : "
      "(tensor<4xf32>, tensor<4xf32>) -> tensor<f64>\n  return %3 : tensor<f64>\n}\n",
  };

  for (size_t i = 0; i < WEFT_COUNT(programs); i++) {
    char name[16];
    snprintf(name, sizeof name, "program %zu", i);
    T_EQ_INT(round_trip(name, programs[i], strlen(programs[i])), 1);
  }
}

TEST_MAIN(UNIT(every_program_of_the_test_data_comes_back), UNIT(forms_that_the_test_data_lacks_come_back))
