/* tests/gpu/parallel_steps_test.c -- programs on the emulated platform "cuda" whose steps must be taken in an order
 * that a grid of threads does not have by itself. They run in parallel, and their results have the evaluator's bits. */
#include "cpu/run.h"

#include "hlo/eval.h"
#include "hlo/infer.h"
#include "passes/eval_compare.h"

/* A program with up to three parameters and one result. `step`: a step that it has; `no_step`: one that it has not. */
typedef struct program {
  const char *what, *step, *no_step, *text;
} program;

static void check(const program *p, uint64_t *seed)
{
  const hlo_literal *args[3], *want;
  const void *inputs[3];
  hlo_module *module;
  hlo_literal *got;
  weft_arena arena;
  weft_platform *platform = test_platform(1, 2);

  weft_arena_init(&arena);
  weft_status *st = hlo_parse(p->text, strlen(p->text), &module);
  if (st) fail_msg("%s: %s", p->what, weft_status_message(st));
  T_OK(hlo_verify(module));
  for (int i = 0; i < module->entry->param_count; i++) {
    args[i] = random_literal(&arena, module->entry->params[i]->shape, seed);
    inputs[i] = args[i]->data;
  }
  T_OK(hlo_eval_module(module, args, &HLO_EVAL_DEFAULT, &arena, &want));
  T_OK(hlo_literal_new(&arena, module->entry->root->shape, &got));
  weft_executable *exe = test_compile(platform, p->text, BUF_SEQUENTIAL);
  char *steps = test_steps_of(exe);
  if ((p->step && !strstr(steps, p->step)) || (p->no_step && strstr(steps, p->no_step)) || strstr(steps, "reference"))
    fail_msg("%s: steps are\n%s", p->what, steps);
  T_OK(test_run(exe, inputs, (void *[]){got->data}));
  if (memcmp(got->data, want->data, (size_t)hlo_shape_bytes(want->shape)) != 0)
    fail_msg("%s: other bits\n%s", p->what, steps);
  free(steps);
  weft_executable_release(exe);
  weft_platform_release(platform);
  hlo_module_free(module);
  weft_arena_fini(&arena);
}

#define ADD \
  "add {\n" \
  "  a = f32[] parameter(0)\n" \
  "  b = f32[] parameter(1)\n" \
  "  ROOT c = f32[] add(a, b)\n" \
  "}\n"
/* Indices from -3 to 60, most of them several times. */
#define SOME(shape) \
  "  m = s32" shape " broadcast(s32[] constant(63)), dimensions={}\n" \
  "  o = s32" shape " broadcast(s32[] constant(3)), dimensions={}\n" \
  "  n = s32" shape " and(i, m)\n" \
  "  k = s32" shape " subtract(n, o)\n"

static const program scatters[] = {
  {"sums of rows", "sort", NULL,
   "HloModule m\n"
   ADD
   "ENTRY e {\n"
   "  x = f32[37,5] parameter(0)\n"
   "  i = s32[200,1] parameter(1)\n"
   "  u = f32[200,5] parameter(2)\n"
   SOME("[200,1]")
   "  ROOT r = f32[37,5] scatter(x, k, u), update_window_dims={1}, "
   "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add\n"
   "}\n"},
  {"sums of elements, in many places", "sort", NULL,
   "HloModule m\n"
   ADD
   "ENTRY e {\n"
   "  x = f32[61] parameter(0)\n"
   "  i = s32[3000] parameter(1)\n"
   "  u = f32[3000] parameter(2)\n"
   SOME("[3000]")
   "  ROOT r = f32[61] scatter(x, k, u), update_window_dims={}, "
   "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add\n"
   "}\n"},
  {"pairs of indices along the first dimension, windows first", "sort", NULL,
   "HloModule m\n"
   ADD
   "ENTRY e {\n"
   "  x = f32[40,3,50] parameter(0)\n"
   "  i = s32[2,30,20] parameter(1)\n"
   "  u = f32[3,30,20] parameter(2)\n"
   SOME("[2,30,20]")
   "  ROOT r = f32[40,3,50] scatter(x, k, u), update_window_dims={0}, "
   "inserted_window_dims={0,2}, scatter_dims_to_operand_dims={2,0}, index_vector_dim=0, to_apply=add\n"
   "}\n"},
  {"a batch of scatters", "sort", NULL,
   "HloModule m\n"
   ADD
   "ENTRY e {\n"
   "  x = f32[7,20] parameter(0)\n"
   "  i = s32[50,7,1] parameter(1)\n"
   "  u = f32[50,7] parameter(2)\n"
   SOME("[50,7,1]")
   "  ROOT r = f32[7,20] scatter(x, k, u), update_window_dims={}, "
   "inserted_window_dims={1}, scatter_dims_to_operand_dims={1}, "
   "input_batching_dims={0}, scatter_indices_batching_dims={1}, index_vector_dim=2, to_apply=add\n"
   "}\n"},
  {"the last of narrow updates", "sort", NULL,
   "HloModule m\n"
   "last {\n"
   "  a = u8[] parameter(0)\n"
   "  ROOT b = u8[] parameter(1)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = u8[50] parameter(0)\n"
   "  i = s32[500,1] parameter(1)\n"
   "  u = u8[500] parameter(2)\n"
   SOME("[500,1]")
   "  ROOT r = u8[50] scatter(x, k, u), update_window_dims={}, inserted_window_dims={0}, "
   "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=last\n"
   "}\n"},
  {"two arrays at once", "sort", NULL,
   "HloModule m\n"
   "two {\n"
   "  a = f32[] parameter(0)\n"
   "  p = s32[] parameter(1)\n"
   "  b = f32[] parameter(2)\n"
   "  q = s32[] parameter(3)\n"
   "  h = f32[] multiply(a, b)\n"
   "  c = f32[] subtract(b, h)\n"
   "  s = s32[] subtract(q, p)\n"
   "  ROOT t = (f32[], s32[]) tuple(c, s)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = f32[50] parameter(0)\n"
   "  i = s32[500,1] parameter(1)\n"
   "  u = f32[500] parameter(2)\n"
   "  z = s32[50] iota(), iota_dimension=0\n"
   "  w = s32[500] iota(), iota_dimension=0 " SOME("[500,1]")
   "  r = (f32[50], s32[50]) scatter(x, z, k, u, w), update_window_dims={}, "
   "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=two\n"
   "  r0 = f32[50] get-tuple-element(r), index=0\n"
   "  r1 = s32[50] get-tuple-element(r), index=1\n"
   "  v = f32[50] convert(r1)\n"
   "  ROOT y = f32[50] add(r0, v)\n"
   "}\n"},
  {"indices that are sorted", NULL, "sort",
   "HloModule m\n"
   ADD
   "ENTRY e {\n"
   "  x = f32[37,5] parameter(0)\n"
   "  u = f32[200,5] parameter(1)\n"
   "  n = s32[200,1] iota(), iota_dimension=0\n"
   "  t = s32[200,1] broadcast(s32[] constant(5)), dimensions={}\n"
   "  k = s32[200,1] divide(n, t)\n"
   "  ROOT r = f32[37,5] scatter(x, k, u), update_window_dims={1}, "
   "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, indices_are_sorted=true, "
   "to_apply=add\n"
   "}\n"},
  {"counts", NULL, "sort",
   "HloModule m\n"
   "add {\n"
   "  a = s32[] parameter(0)\n"
   "  b = s32[] parameter(1)\n"
   "  ROOT c = s32[] add(a, b)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = s32[50] parameter(0)\n"
   "  i = s32[500,1] parameter(1)\n"
   SOME("[500,1]")
   "  u = s32[500] broadcast(s32[] constant(1)), dimensions={}\n"
   "  ROOT r = s32[50] scatter(x, k, u), update_window_dims={}, "
   "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add\n"
   "}\n"},
  {"greatest of windows that overlap", NULL, "sort",
   "HloModule m\n"
   "max {\n"
   "  a = u64[] parameter(0)\n"
   "  b = u64[] parameter(1)\n"
   "  ROOT c = u64[] maximum(a, b)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = u64[50] parameter(0)\n"
   "  i = s32[90,1] parameter(1)\n"
   "  u = u64[90,4] parameter(2)\n"
   SOME("[90,1]")
   "  ROOT r = u64[50] scatter(x, k, u), update_window_dims={1}, "
   "inserted_window_dims={}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=max\n"
   "}\n"},
  {"sums of windows that overlap", NULL, "sort",
   "HloModule m\n"
   ADD
   "ENTRY e {\n"
   "  x = f32[50] parameter(0)\n"
   "  i = s32[90,1] parameter(1)\n"
   "  u = f32[90,4] parameter(2)\n"
   SOME("[90,1]")
   "  ROOT r = f32[50] scatter(x, k, u), update_window_dims={1}, "
   "inserted_window_dims={}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add\n"
   "}\n"},
};

TEST(scatters_have_the_evaluators_bits)
{
  uint64_t seed = 1;

  for (size_t i = 0; i < WEFT_COUNT(scatters); i++) check(&scatters[i], &seed);
}

#define SCAN(type, shape, window, pad) \
  "HloModule m\n" \
  "add {\n" \
  "  a = " type "[] parameter(0)\n" \
  "  b = " type "[] parameter(1)\n" \
  "  ROOT c = " type "[] add(a, b)\n" \
  "}\n" \
  "ENTRY e {\n" \
  "  i = s32" shape " parameter(0)\n" \
  "  m = s32" shape " broadcast(s32[] constant(7)), dimensions={}\n" \
  "  n = s32" shape " and(i, m)\n" \
  "  x = " type shape " convert(n)\n" \
  "  y = " type shape " negate(x)\n" \
  "  z = " type "[] constant(0)\n" \
  "  w = " type shape " reduce-window(y, z), window={size=" window " pad=" pad "}, to_apply=add\n" \
  "  ROOT r = " type shape " subtract(w, x)\n" \
  "}\n"
/* The last number that is not 0, or the first one: the order of a reducer's operands matters. */
#define NONZERO(shape, window, pad, tested, otherwise) \
  "HloModule m\n" \
  "f {\n" \
  "  a = f32[] parameter(0)\n" \
  "  b = f32[] parameter(1)\n" \
  "  o = f32[] constant(0)\n" \
  "  p = pred[] compare(" tested ", o), direction=EQ\n" \
  "  ROOT c = f32[] select(p, " otherwise ", " tested ")\n" \
  "}\n" \
  "ENTRY e {\n" \
  "  i = s32" shape " parameter(0)\n" \
  "  m = s32" shape " broadcast(s32[] constant(1028)), dimensions={}\n" \
  "  n = s32" shape " and(i, m)\n" \
  "  l = s32" shape " iota(), iota_dimension=0\n" \
  "  q = s32" shape " multiply(n, l)\n" \
  "  x = f32" shape " convert(q)\n" \
  "  z = f32[] constant(0)\n" \
  "  w = f32" shape " reduce-window(x, z), window={size=" window " pad=" pad "}, to_apply=f\n" \
  "  ROOT r = f32" shape " negate(w)\n" \
  "}\n"
static const program scans[] = {
  {"sums along rows", " w  ", NULL, SCAN("f32", "[3,500]", "1x500", "0_0x499_0")},
  {"sums along columns, from the end", " w  ", NULL, SCAN("s32", "[400,30]", "400x1", "0_399x0_0")},
  {"one long sum", " w  ", NULL, SCAN("f64", "[2500]", "2500", "2499_0")},
  {"the last number along a row", " w  ", NULL, NONZERO("[600,100]", "1x100", "0_0x99_0", "b", "a")},
  {"the first number along a row", " w  ", NULL, NONZERO("[7,301]", "1x301", "0_0x300_0", "a", "b")},
  {"the last number along a row, from the end", " w  ", NULL, NONZERO("[3,1024]", "1x1024", "0_0x0_1023", "b", "a")},
  {"the first number along a row, from the end", " w  ", NULL, NONZERO("[5,1023]", "1x1023", "0_0x0_1022", "a", "b")},
  {"the last number along columns", " w  ", NULL, NONZERO("[200,70]", "200x1", "199_0x0_0", "b", "a")},
  {"the first number along columns, from the end", " w  ", NULL, NONZERO("[333,9]", "333x1", "0_332x0_0", "a", "b")},
  {"the last number of a long array", " w  ", NULL, NONZERO("[6001]", "6001", "6000_0", "b", "a")},
  {"the first number of a long array, from the end", " w  ", NULL, NONZERO("[6001]", "6001", "0_6000", "a", "b")},
  {"short windows are reduced one by one", "fusion", " w  ", SCAN("f32", "[30,40]", "1x40", "0_0x39_0")},
};

TEST(scans_are_steps_of_their_own)
{
  uint64_t seed = 1;

  for (size_t i = 0; i < WEFT_COUNT(scans); i++) check(&scans[i], &seed);
}

TEST_MAIN(UNIT(scans_are_steps_of_their_own), UNIT(scatters_have_the_evaluators_bits))
