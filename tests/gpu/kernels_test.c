/* tests/gpu/kernels_test.c -- the grid walker (codegen/nvptx): its PTX, run on the emulated GPU for sm_75, sm_80
 * and sm_90 in each order of blocks and warps with all checks on, gives the bits of the host's kernels; in another
 * order of summation, nearly. */
#include "random_program.h"

#include "codegen/harness.h"
#include "codegen/nvptx/nvptx.h"
#include "ptx_run.h"

static const char *const processors[] = {"sm_75", "sm_80", "sm_90"};
static const ptx_order orders[] = {PTX_NORMAL, PTX_REVERSED, PTX_INTERLEAVED};
static const gen_options options = {.threads = 1};

enum { PAD = 64 };

/* The leaf arrays of a literal, appended to leaves[*count]. */
static void leaves_of(const hlo_literal *literal, const hlo_literal **leaves, int *count)
{
  if (!hlo_shape_is_tuple(literal->shape)) {
    leaves[(*count)++] = literal;
    return;
  }
  for (int i = 0; i < literal->shape->rank; i++) leaves_of(literal->elements[i], leaves, count);
}

/* A copy of `bytes` of data in memory whose end is the end of what a kernel may touch. */
static void *copied(run_memory *m, const void *data, int64_t bytes, uint64_t *address)
{
  void *p = aligned_alloc(64, (size_t)WEFT_ALIGN_UP(bytes + 1, PAD));

  memcpy(p, data, (size_t)bytes);
  *address = run_add(m, p, (size_t)bytes);
  return p;
}

/* Runs the artefact; its results go to `got`.  false: more arrays than the emulator's harness has. */
static bool run_artefact(const gen_artefact *a, const hlo_literal *const *inputs, int input_count, hlo_literal *got,
                         int round, const char *what)
{
  const hlo_literal *leaves[256];
  uint64_t params[RUN_ARRAYS];
  void *arrays[RUN_ARRAYS];
  run_memory m = {.count = 0};
  char error[400];
  int count = 0, operands;

  for (int i = 0; i < input_count; i++) leaves_of(inputs[i], leaves, &count);
  operands = count;
  leaves_of(got, leaves, &count);
  if (count != a->arg_count) fail_msg("%s: %d arguments, the artefact has %d", what, count, a->arg_count);
  if (count >= RUN_ARRAYS) return false;
  ptx_module *module = run_load(&m, a->text);
  for (int i = 0; i < count; i++)
    arrays[i] = copied(&m, leaves[i]->data, hlo_shape_bytes(leaves[i]->shape), &params[i]);
  ptx_launch launch = {.grid = {(unsigned)a->blocks}, .block = {(unsigned)a->threads}, .order = orders[round % 3], .seed = (uint64_t)round,
                       .checks = PTX_CHECK_RACES | PTX_CHECK_BARRIERS};
  int rc = a->blocks ? run_kernel(&m, module, launch, params, NULL, error, sizeof error) : 0;
  if (rc) fail_msg("%s: %d %s\n%s", what, rc, error, a->text);
  for (int i = operands; i < count; i++) memcpy(leaves[i]->data, arrays[i], (size_t)hlo_shape_bytes(leaves[i]->shape));
  for (int i = 0; i < count; i++) free(arrays[i]);
  ptx_free(module);
  return true;
}

/* Bit for bit, but that any NaN is like any other: the processors choose different payloads. */
static bool same_bits(const hlo_literal *a, const hlo_literal *b)
{
  weft_dtype type = a->shape->type;
  size_t size = weft_dtype_bytes(type);

  if (hlo_shape_is_tuple(a->shape)) {
    for (int i = 0; i < a->shape->rank; i++)
      if (!same_bits(a->elements[i], b->elements[i])) return false;
    return true;
  }
  for (int64_t i = 0; i < hlo_shape_elems(a->shape); i++) {
    if (memcmp((const char *)a->data + size * (size_t)i, (const char *)b->data + size * (size_t)i, size) == 0) continue;
    if (!weft_dtype_is_float(type) && !weft_dtype_is_complex(type)) return false;
    double re[] = {hlo_literal_get_f64(a, i), hlo_literal_get_f64(b, i)}, im[] = {hlo_literal_get_imag(a, i), hlo_literal_get_imag(b, i)};
    bool same_re = re[0] == re[1] || (re[0] != re[0] && re[1] != re[1]),
         same_im = im[0] == im[1] || (im[0] != im[0] && im[1] != im[1]);
    if (!same_re || !same_im || (re[0] == 0 && im[0] == 0)) return false; /* 0 and -0 are equal but not the same */
  }
  return true;
}

/* A sum of several elements, whose order may differ. */
static bool has_sums(const hlo_computation *comp)
{
  HLO_FOREACH(x, comp) {
    if (x->op == HLO_REDUCE || x->op == HLO_REDUCE_WINDOW || x->op == HLO_DOT) return true;
    for (int i = 0; i < x->called_count; i++)
      if (has_sums(x->called[i])) return true;
  }
  return false;
}

static void skip_without_target(const hlo_instr *fusion)
{
  gen_artefact a;
  weft_status *st = gen_nvptx_compile(fusion, "sm_80", &options, &a);
  bool none = st && strstr(weft_status_message(st), "no NVPTX target");

  weft_status_ignore(st);
  gen_artefact_fini(&a);
  if (none) T_SKIP("the LLVM that tests are linked with has no NVPTX target");
}

typedef struct tally {
  int same, near, refused;
} tally;

/* The kernel of the entry's root on both, for one processor and order. */
static void compare(const hlo_module *module, const hlo_literal *const *inputs, int round, const char *what, tally *t)
{
  WEFT_AUTO(gen_code) code = NULL;
  const hlo_instr *fusion = module->entry->root;
  gen_artefact a;
  weft_arena arena;

  weft_status *st = gen_nvptx_compile(fusion, processors[round % 3], &options, &a);
  if (weft_status_code(st) == WEFT_UNIMPLEMENTED) {
    if (!strstr(weft_status_message(st), "nvptx: ")) fail_msg("%s: %s", what, weft_status_message(st));
    weft_status_ignore(st);
    t->refused++;
    return;
  }
  T_OK(st);
  weft_arena_init(&arena);
  T_OK(gen_compile(module, &options, &code));
  hlo_literal *want = empty_literal(&arena, fusion->shape), *got = empty_literal(&arena, fusion->shape);
  run_compiled(gen_code_kernel(code, fusion), fusion, inputs, false, 0, want, what);
  if (run_artefact(&a, inputs, fusion->operand_count, got, round, what)) {
    bool same = same_bits(got, want);
    if (!same && !has_sums(fusion->called[0]))
      fail_msg("%s: other bits than the host's kernel's (%s)", what, processors[round % 3]);
    if (!same && !literals_within(got, want, what, 0)) fail_msg("%s: not what the host's kernel gives", what);
    t->same += same, t->near += !same;
  }
  gen_artefact_fini(&a);
  weft_arena_fini(&arena);
}

TEST(random_kernels_have_the_bits_of_the_hosts)
{
  enum { KERNELS = 90 };
  tally t = {0};

  for (uint64_t seed = 1; seed <= KERNELS; seed++) {
    const hlo_literal *arguments[ARGUMENTS];
    weft_arena arena;
    char what[64];
    weft_arena_init(&arena);
    WEFT_AUTO(hlo_module) module = random_kernel(seed, false, &arena, arguments);
    if (seed == 1) skip_without_target(module->entry->root);
    snprintf(what, sizeof what, "seed %d", (int)seed);
    compare(module, arguments, (int)seed, what, &t);
    weft_arena_fini(&arena);
  }
  print_message("# %d the same bits, %d nearly, %d not for the grid yet\n", t.same, t.near, t.refused);
  T_TRUE(t.same >= KERNELS / 2);
}

/* Rows of `cols` elements of a type: a sum and a softmax-like quotient, and the greatest element. */
static void check_rows(const char *type, const char *low, int rows, int cols, int round)
{
  char text[2048], what[64];
  weft_arena arena;
  WEFT_AUTO(hlo_module) module = NULL;
  tally t = {0};
  uint64_t state = 1;
  hlo_literal *x;

  snprintf(
    text, sizeof text,
    "HloModule m\nadd { a = %1$s[] parameter(0) b = %1$s[] parameter(1) ROOT c = %1$s[] add(a, b) }\n"
    "max { a = %1$s[] parameter(0) b = %1$s[] parameter(1) ROOT c = %1$s[] maximum(a, b) }\n"
    "f { x = %1$s[%3$d,%4$d] parameter(0) low = %1$s[] constant(%2$s) zero = %1$s[] constant(0) "
    "m = %1$s[%3$d] reduce(x, low), dimensions={1}, to_apply=max mb = %1$s[%3$d,%4$d] broadcast(m), dimensions={0} "
    "d = %1$s[%3$d,%4$d] subtract(x, mb) s = %1$s[%3$d] reduce(d, zero), dimensions={1}, to_apply=add "
    "ROOT t = (%1$s[%3$d,%4$d], %1$s[%3$d]) tuple(d, s) }\n"
    "ENTRY e { x = %1$s[%3$d,%4$d] parameter(0) ROOT r = (%1$s[%3$d,%4$d], %1$s[%3$d]) fusion(x), kind=kCustom, calls=f }\n",
    type, low, rows, cols);
  weft_arena_init(&arena);
  T_OK(hlo_parse(text, strlen(text), &module));
  T_OK(hlo_literal_new(&arena, module->entry->params[0]->shape, &x));
  for (int64_t i = 0; i < (int64_t)rows * cols; i++)
    hlo_literal_set_f64(x, i, (double)(next_random(&state) % 65) - 32, 0);
  skip_without_target(module->entry->root);
  snprintf(what, sizeof what, "%s[%d,%d]", type, rows, cols);
  compare(module, (const hlo_literal *const[]){x}, round, what, &t);
  T_EQ_INT(t.refused, 0);
  T_EQ_INT(t.same, 1); /* the elements are small integers: their sums are exact in any order */
  weft_arena_fini(&arena);
}

TEST(rows_are_reduced_by_blocks)
{
  static const struct { int rows, cols; } sizes[] = {{1, 9}, {7, 31}, {3, 32}, {5, 129}, {4, 1000}, {2, 5000}};
  static const struct { const char *type, *low; } types[] = {{"f32", "-inf"}, {"f64", "-inf"}, {"s32", "-2147483648"}, {"s64", "-1000"}};
  int round = 0;

  for (size_t t = 0; t < WEFT_COUNT(types); t++)
    for (size_t s = 0; s < WEFT_COUNT(sizes); s++)
      check_rows(types[t].type, types[t].low, sizes[s].rows, sizes[s].cols, round++);
}

TEST(what_the_grid_lacks_names_itself)
{
  static const struct { const char *text, *part; } cases[] = {
      {"HloModule m\nf { x = f32[64,128] parameter(0) t = f32[128,64] transpose(x), dimensions={1,0} ROOT r = f32[128,64] negate(t) }\n"
       "ENTRY e { x = f32[64,128] parameter(0) ROOT r = f32[128,64] fusion(x), kind=kLoop, calls=f }", "turn"},
      {"HloModule m\nf { x = f64[64] parameter(0) ROOT r = f64[64] power(x, x) }\n"
       "ENTRY e { x = f64[64] parameter(0) ROOT r = f64[64] fusion(x), kind=kLoop, calls=f }", "pow"},
  };

  for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
    WEFT_AUTO(hlo_module) module = NULL;
    gen_artefact a;
    T_OK(hlo_parse(cases[i].text, strlen(cases[i].text), &module));
    skip_without_target(module->entry->root);
    weft_status *st = gen_nvptx_compile(module->entry->root, "sm_90", &options, &a);
    T_EQ_INT(weft_status_code(st), WEFT_UNIMPLEMENTED);
    if (!strstr(weft_status_message(st), cases[i].part)) fail_msg("%s", weft_status_message(st));
    weft_status_ignore(st);
    st = gen_nvptx_compile(module->entry->root, "sm_1", &options, &a);
    T_EQ_INT(weft_status_code(st), WEFT_INVALID_ARGUMENT);
    weft_status_ignore(st);
  }
}

TEST_MAIN(UNIT(random_kernels_have_the_bits_of_the_hosts), UNIT(rows_are_reduced_by_blocks), UNIT(what_the_grid_lacks_names_itself))
