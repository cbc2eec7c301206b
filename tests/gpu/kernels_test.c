/* tests/gpu/kernels_test.c -- the grid walker (codegen/nvptx): its PTX, run on the emulated GPU for sm_75, sm_80
 * and sm_90 in each order of blocks and warps with all checks on, gives the bits of the host's kernels; in another
 * order of summation, nearly. WEFT_TEST_SEEDS=N makes N random programs of each kind, from WEFT_TEST_SEED on;
 * WEFT_TEST_TARGETS=all runs each of them for all three processors, with and without excess precision;
 * WEFT_TEST_VERBOSE names them and what is refused, and prints the PTX of kernels that spill registers.
 * WEFT_TEST_FILTER=PATTERN runs the tests of such names. */
#include "random_program.h"

#include "codegen/harness.h"
#include "codegen/nvptx/nvptx.h"
#include "ptx_run.h"

#include <math.h>

static const char *const processors[] = {"sm_75", "sm_80", "sm_90"};
static const ptx_order orders[] = {PTX_NORMAL, PTX_REVERSED, PTX_INTERLEAVED};
static const gen_options options = {.threads = 1};
/* As programs of users have them: narrow floats are rounded where they are stored. */
static const gen_options users_options = {.threads = 1, .allow_excess_precision = true};

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

/* What is done wrong on purpose with the arguments and the launches of an artefact. */
typedef enum damage_kind {
  NO_DAMAGE,
  SHORTER,   /* argument a ends a byte early */
  MISPLACED, /* argument a begins a byte later */
  EXCHANGED, /* arguments a and b */
  SAME,      /* argument a has the address of argument b */
  FREED,     /* argument a has no memory */
  DROPPED,   /* launch a */
  TWICE,     /* launch a */
  BACKWARDS, /* the launches in reverse order */
  FEWER_BLOCKS, FEWER_THREADS, MORE_THREADS, /* of launch a */
} damage_kind;
typedef struct damage { damage_kind kind; int a, b; } damage;

static void damage_arguments(damage d, run_memory *m, uint64_t *params)
{
  uint64_t other = params[d.b];

  for (int n = 0; n < m->count; n++) {
    if (m->ranges[n].base != params[d.a]) continue;
    if (d.kind == SHORTER) m->ranges[n].size--;
    if (d.kind == FREED) m->ranges[n].size = 0;
  }
  if (d.kind == MISPLACED) params[d.a]++;
  if (d.kind == EXCHANGED) params[d.b] = params[d.a];
  if (d.kind == EXCHANGED || d.kind == SAME) params[d.a] = other;
}

static void damage_launch(damage d, ptx_launch *launch)
{
  if (d.kind == FEWER_BLOCKS) launch->grid[0]--;
  if (d.kind == FEWER_THREADS) launch->block[0] -= 32;
  if (d.kind == MORE_THREADS) launch->block[0] += 32;
}

/* Runs the artefact; its results go to `got`. With `stats` the launches run without checks, and their counts are added
 * to *stats. false: the artefact has more arrays than the emulator's harness can hold. A fault fails the test; with
 * `fault`, its number goes to *fault instead. */
static bool run_or_fault(const gen_artefact *a, const hlo_literal *const *inputs, int input_count, hlo_literal *got,
                         int round, damage d, ptx_stats *stats, int *fault, const char *what)
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
  if (count + !!a->scratch_bytes != a->arg_count)
    fail_msg("%s: %d arguments, the artefact has %d", what, count, a->arg_count);
  if (a->arg_count >= RUN_ARRAYS) return false;
  ptx_module *module = run_load(&m, a->text);
  for (int i = 0; i < count; i++)
    arrays[i] = copied(&m, leaves[i]->data, hlo_shape_bytes(leaves[i]->shape), &params[i]);
  void *scratch = NULL;
  if (a->scratch_bytes) {
    scratch = aligned_alloc(256, (size_t)WEFT_ALIGN_UP(a->scratch_bytes, 256));
    memset(scratch, 0xff, (size_t)a->scratch_bytes);
    params[count] = run_add(&m, scratch, (size_t)a->scratch_bytes);
  }
  damage_arguments(d, &m, params);
  for (int n = 0; n < a->launch_count + (d.kind == TWICE); n++) {
    int k = d.kind == BACKWARDS ? a->launch_count - 1 - n : d.kind == TWICE && n > d.a ? n - 1 : n;
    const gen_launch *l = &a->launches[k];
    uint64_t all[RUN_ARRAYS + GEN_LAUNCH_NUMBERS];
    ptx_launch launch = {.grid = {(unsigned)l->blocks}, .block = {(unsigned)l->threads}, .order = orders[round % 3],
                         .seed = (uint64_t)round, .dynamic_shared = (unsigned)l->shared_bytes,
                         .checks = stats ? 0 : PTX_CHECK_RACES | PTX_CHECK_BARRIERS,
                         .count_sectors = stats != NULL};
    if (!l->blocks || (d.kind == DROPPED && k == d.a)) continue;
    if (k == d.a) damage_launch(d, &launch);
    memcpy(all, params, sizeof *all * (size_t)a->arg_count);
    memcpy(all + a->arg_count, l->numbers, sizeof *all * (size_t)l->number_count);
    int rc = run_entry(&m, ptx_find(module, l->entry), launch, all, stats, error, sizeof error);
    if (rc && !fault) fail_msg("%s: %d %s\n%s", what, rc, error, a->text);
    if (rc) *fault = rc;
    if (rc) break;
  }
  for (int i = operands; i < count; i++) memcpy(leaves[i]->data, arrays[i], (size_t)hlo_shape_bytes(leaves[i]->shape));
  for (int i = 0; i < count; i++) free(arrays[i]);
  free(scratch);
  ptx_free(module);
  return true;
}

static bool run_artefact(const gen_artefact *a, const hlo_literal *const *inputs, int input_count, hlo_literal *got,
                         int round, ptx_stats *stats, const char *what)
{
  return run_or_fault(a, inputs, input_count, got, round, (damage){NO_DAMAGE}, stats, NULL, what);
}

/* Are the bits equal? All NaNs count as equal, because processors choose different payloads. */
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

static bool identical(const hlo_literal *a, const hlo_literal *b)
{
  if (!hlo_shape_is_tuple(a->shape)) return memcmp(a->data, b->data, (size_t)hlo_shape_bytes(a->shape)) == 0;
  for (int i = 0; i < a->shape->rank; i++)
    if (!identical(a->elements[i], b->elements[i])) return false;
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
  int same, near, refused, local;
} tally;

static void print_tally(const tally *t)
{
  print_message("# %d the same bits, %d nearly, %d not for the grid yet, %d with arrays in local memory\n", t->same,
                t->near, t->refused, t->local);
}

/* Makes of the target a machine that a small kernel fills: threads make several rows, and blocks
 * have little shared memory. */
static void make_small(gen_target *target)
{
  target->cores = 1;
  target->memory_gb_s = 0.001;
  target->most_shared_bytes = 16 << 10;
}

/* The kernel of the entry's root for one processor and order; `want` is what the host's gives. */
static void compare_on(const hlo_instr *fusion, const gen_options *with, const hlo_literal *const *inputs,
                       const hlo_literal *want, const char *processor, int round, const char *what, weft_arena *arena,
                       tally *t)
{
  gen_target target = *gen_gpu_target(processor);
  gen_artefact a;

  if (round % 2) make_small(&target);
  weft_status *st = gen_nvptx_compile_for(fusion, &target, with, &a);
  if (weft_status_code(st) == WEFT_UNIMPLEMENTED) {
    if (!strstr(weft_status_message(st), "nvptx: ")) fail_msg("%s: %s", what, weft_status_message(st));
    if (getenv("WEFT_TEST_VERBOSE")) print_message("# %s: %s\n", what, weft_status_message(st));
    weft_status_ignore(st);
    t->refused++;
    return;
  }
  T_OK(st);
  bool local = strstr(a.text, "__local_depot") != NULL;
  if (local && getenv("WEFT_TEST_VERBOSE")) print_message("# %s (%s): local memory\n", what, processor);
  t->local += local;
  hlo_literal *got = empty_literal(arena, fusion->shape);
  if (run_artefact(&a, inputs, fusion->operand_count, got, round, NULL, what)) {
    bool same = same_bits(got, want);
    if (!same && !has_sums(fusion->called[0]))
      fail_msg("%s: other bits than the host's kernel's (%s)", what, processor);
    if (!same && !literals_within(got, want, what, 0)) fail_msg("%s: not what the host's kernel gives", what);
    t->same += same, t->near += !same;
  }
  gen_artefact_fini(&a);
}

static void compare_with(const gen_options *with, const hlo_module *module, const hlo_literal *const *inputs, int round,
                         const char *what, tally *t)
{
  WEFT_AUTO(gen_code) code = NULL;
  const hlo_instr *fusion = module->entry->root;
  int count = getenv("WEFT_TEST_TARGETS") ? (int)WEFT_COUNT(processors) : 1;
  weft_arena arena;

  weft_arena_init(&arena);
  T_OK(gen_compile(module, with, &code));
  hlo_literal *want = empty_literal(&arena, fusion->shape);
  run_compiled(gen_code_kernel(code, fusion), fusion, inputs, false, 0, want, what);
  for (int i = 0; i < count; i++)
    compare_on(fusion, with, inputs, want, processors[(round + i) % 3], round / 3 + i, what, &arena, t);
  weft_arena_fini(&arena);
}

/* The same on one processor and with one of the options, which `round` chooses, or, with WEFT_TEST_TARGETS=all, on each
 * and with each. */
static void compare(const hlo_module *module, const hlo_literal *const *inputs, int round, const char *what, tally *t)
{
  bool all = getenv("WEFT_TEST_TARGETS") != NULL;

  if (all || round % 2 == 0) compare_with(&options, module, inputs, round, what, t);
  if (all || round % 2 != 0) compare_with(&users_options, module, inputs, round, what, t);
}

TEST(random_kernels_have_the_bits_of_the_hosts)
{
  static const uint64_t found[] = {303, 641, 1770}; /* bytes that LLVM put into vectors, and these into local memory */
  const char *text = getenv("WEFT_TEST_SEEDS"), *first = getenv("WEFT_TEST_SEED");
  uint64_t kernels = text ? (uint64_t)atoi(text) : 90, from = first ? (uint64_t)atoi(first) : 1;
  tally t = {0};

  for (uint64_t i = 0; i < kernels + WEFT_COUNT(found); i++) {
    uint64_t seed = i < kernels ? from + i : found[i - kernels];
    const hlo_literal *arguments[ARGUMENTS];
    weft_arena arena;
    char what[64];
    weft_arena_init(&arena);
    WEFT_AUTO(hlo_module) module = random_kernel(seed, false, &arena, arguments);
    if (seed == from) skip_without_target(module->entry->root);
    snprintf(what, sizeof what, "seed %d", (int)seed);
    compare(module, arguments, (int)seed, what, &t);
    weft_arena_fini(&arena);
  }
  print_tally(&t);
  T_EQ_INT(t.refused, 0);
  T_EQ_INT(t.local, 0);
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

  snprintf(text, sizeof text,
           "HloModule m\n"
           "add {\n"
           "  a = %1$s[] parameter(0)\n"
           "  b = %1$s[] parameter(1)\n"
           "  ROOT c = %1$s[] add(a, b)\n"
           "}\n"
           "max {\n"
           "  a = %1$s[] parameter(0)\n"
           "  b = %1$s[] parameter(1)\n"
           "  ROOT c = %1$s[] maximum(a, b)\n"
           "}\n"
           "f {\n"
           "  x = %1$s[%3$d,%4$d] parameter(0)\n"
           "  low = %1$s[] constant(%2$s)\n"
           "  zero = %1$s[] constant(0)\n"
           "  m = %1$s[%3$d] reduce(x, low), dimensions={1}, to_apply=max\n"
           "  mb = %1$s[%3$d,%4$d] broadcast(m), dimensions={0}\n"
           "  d = %1$s[%3$d,%4$d] subtract(x, mb)\n"
           "  s = %1$s[%3$d] reduce(d, zero), dimensions={1}, to_apply=add\n"
           "  ROOT t = (%1$s[%3$d,%4$d], %1$s[%3$d]) tuple(d, s)\n"
           "}\n"
           "ENTRY e {\n"
           "  x = %1$s[%3$d,%4$d] parameter(0)\n"
           "  ROOT r = (%1$s[%3$d,%4$d], %1$s[%3$d]) fusion(x), kind=kCustom, calls=f\n"
           "}\n",
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
  T_EQ_INT(t.near, 0); /* the elements are small integers: their sums are exact in any order */
  weft_arena_fini(&arena);
}

TEST(rows_are_reduced_by_blocks)
{
  static const struct { int rows, cols; } sizes[] = {{1, 9}, {7, 31}, {3, 32}, {5, 129}, {4, 1000}, {2, 5000}, {1, 40000}};
  static const struct { const char *type, *low; } types[] = {{"f32", "-inf"}, {"f64", "-inf"}, {"s32", "-2147483648"}, {"s64", "-1000"}};
  int round = 0;

  for (size_t t = 0; t < WEFT_COUNT(types); t++)
    for (size_t s = 0; s < WEFT_COUNT(sizes); s++)
      check_rows(types[t].type, types[t].low, sizes[s].rows, sizes[s].cols, round++);
}

/* ---- kernels of tiles ------------------------------------------------------------------------------------------ */

/* Programs for everything that the grid makes of blocks: text in which @ is the element type, and A, B, C are sizes.
 * Their inputs are small integers, so that every order of summation gives the same bits. */
typedef struct theme {
  const char *name, *text;
  int most[3];       /* the sizes are at most these */
  bool floats;       /* for floats only */
} theme;

#define ADD \
  "add {\n" \
  "  a = @[] parameter(0)\n" \
  "  b = @[] parameter(1)\n" \
  "  ROOT c = @[] add(a, b)\n" \
  "}\n"
#define MAX \
  "max {\n" \
  "  a = @[] parameter(0)\n" \
  "  b = @[] parameter(1)\n" \
  "  ROOT c = @[] maximum(a, b)\n" \
  "}\n"
#define LAST \
  "last {\n" \
  "  a = @[] parameter(0)\n" \
  "  ROOT b = @[] parameter(1)\n" \
  "}\n"
#define LESS \
  "less {\n" \
  "  a = @[] parameter(0)\n" \
  "  b = @[] parameter(1)\n" \
  "  m = @[] multiply(a, b)\n" \
  "  s = @[] subtract(b, a)\n" \
  "  ROOT c = @[] add(m, s)\n" \
  "}\n"
#define BEST \
  "best {\n" \
  "  a = @[] parameter(0)\n" \
  "  i = s32[] parameter(1)\n" \
  "  b = @[] parameter(2)\n" \
  "  j = s32[] parameter(3)\n" \
  "  gt = pred[] compare(a, b), direction=GT\n" \
  "  eq = pred[] compare(a, b), direction=EQ\n" \
  "  nan = pred[] compare(a, a), direction=NE\n" \
  "  low = pred[] compare(i, j), direction=LT\n" \
  "  or1 = pred[] or(gt, nan)\n" \
  "  and1 = pred[] and(eq, low)\n" \
  "  or2 = pred[] or(or1, and1)\n" \
  "  v = @[] select(or1, a, b)\n" \
  "  k = s32[] select(or2, i, j)\n" \
  "  ROOT t = (@[], s32[]) tuple(v, k)\n" \
  "}\n"
static const theme themes[] = {
  {"softmax-like",
   ADD MAX
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  z = @[] constant(0)\n"
   "  m = @[A] reduce(x, z), dimensions={1}, to_apply=max\n"
   "  mb = @[A,B] broadcast(m), dimensions={0}\n"
   "  d = @[A,B] subtract(x, mb)\n"
   "  s = @[A] reduce(d, z), dimensions={1}, to_apply=add\n"
   "  sb = @[A,B] broadcast(s), dimensions={0}\n"
   "  r = @[A,B] add(d, sb)\n"
   "  ROOT t = (@[A,B], @[A]) tuple(r, s)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  ROOT r = (@[A,B], @[A]) fusion(x), kind=kCustom, calls=f\n"
   "}\n", {300, 5000, 0}, false},
  {"norm with weights",
   ADD
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  w = @[B] parameter(1)\n"
   "  z = @[] constant(0)\n"
   "  q = @[A,B] multiply(x, x)\n"
   "  s = @[A] reduce(q, z), dimensions={1}, to_apply=add\n"
   "  sb = @[A,B] broadcast(s), dimensions={0}\n"
   "  wb = @[A,B] broadcast(w), dimensions={1}\n"
   "  y = @[A,B] multiply(x, wb)\n"
   "  ROOT r = @[A,B] subtract(y, sb)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  w = @[B] parameter(1)\n"
   "  ROOT r = @[A,B] fusion(x, w), kind=kCustom, calls=f\n"
   "}\n", {300, 2500, 0}, false},
  {"few long rows",
   ADD
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  z = @[] constant(3)\n"
   "  y = @[A,B] add(x, x)\n"
   "  ROOT s = @[A] reduce(y, z), dimensions={1}, to_apply=add\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  ROOT r = @[A] fusion(x), kind=kCustom, calls=f\n"
   "}\n", {3, 70000, 0}, false},
  {"rows in order",
   LESS
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  z = @[] constant(1)\n"
   "  s = @[A] reduce(x, z), dimensions={1}, to_apply=less\n"
   "  sb = @[A,B] broadcast(s), dimensions={0}\n"
   "  ROOT r = @[A,B] subtract(x, sb)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  ROOT r = @[A,B] fusion(x), kind=kCustom, calls=f\n"
   "}\n", {20, 60, 0}, false},
  {"argmax",
   BEST
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  i = s32[A,B] iota(), iota_dimension=1\n"
   "  z = @[] constant(-inf)\n"
   "  k = s32[] constant(0)\n"
   "  ROOT r = (@[A], s32[A]) reduce(x, i, z, k), dimensions={1}, to_apply=best\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  ROOT r = (@[A], s32[A]) fusion(x), kind=kCustom, calls=f\n"
   "}\n", {300, 2500, 0}, true},
  {"columns",
   ADD
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  z = @[] constant(2)\n"
   "  y = @[A,B] multiply(x, x)\n"
   "  ROOT s = @[B] reduce(y, z), dimensions={0}, to_apply=add\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  ROOT r = @[B] fusion(x), kind=kCustom, calls=f\n"
   "}\n", {4000, 300, 0}, false},
  {"columns of two dimensions",
   ADD MAX
   "f {\n"
   "  x = @[A,C,B] parameter(0)\n"
   "  z = @[] constant(0)\n"
   "  s = @[B] reduce(x, z), dimensions={0,1}, to_apply=add\n"
   "  m = @[B] reduce(x, z), dimensions={0,1}, to_apply=max\n"
   "  ROOT r = @[B] subtract(s, m)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,C,B] parameter(0)\n"
   "  ROOT r = @[B] fusion(x), kind=kCustom, calls=f\n"
   "}\n", {40, 70, 40}, false},
  {"columns between kept dimensions",
   ADD
   "f {\n"
   "  x = @[C,A,B] parameter(0)\n"
   "  z = @[] constant(0)\n"
   "  ROOT s = @[C,B] reduce(x, z), dimensions={1}, to_apply=add\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[C,A,B] parameter(0)\n"
   "  ROOT r = @[C,B] fusion(x), kind=kCustom, calls=f\n"
   "}\n", {90, 70, 9}, false},
  {"columns in order",
   LESS
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  z = @[] constant(1)\n"
   "  ROOT s = @[B] reduce(x, z), dimensions={0}, to_apply=less\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  ROOT r = @[B] fusion(x), kind=kCustom, calls=f\n"
   "}\n", {20, 60, 0}, false},
  {"transpose",
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  y = @[B,A] parameter(1)\n"
   "  t = @[B,A] transpose(x), dimensions={1,0}\n"
   "  ROOT r = @[B,A] subtract(t, y)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  y = @[B,A] parameter(1)\n"
   "  ROOT r = @[B,A] fusion(x, y), kind=kLoop, calls=f\n"
   "}\n", {150, 150, 0}, false},
  {"transpose of three dimensions",
   "f {\n"
   "  x = @[C,A,B] parameter(0)\n"
   "  t = @[B,C,A] transpose(x), dimensions={2,0,1}\n"
   "  n = @[B,C,A] add(t, t)\n"
   "  ROOT r = (@[B,C,A], @[B,C,A]) tuple(n, t)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[C,A,B] parameter(0)\n"
   "  ROOT r = (@[B,C,A], @[B,C,A]) fusion(x), kind=kLoop, calls=f\n"
   "}\n", {70, 70, 5}, false},
  {"two transposes",
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  y = @[A,B] parameter(1)\n"
   "  t = @[B,A] transpose(x), dimensions={1,0}\n"
   "  u = @[B,A] transpose(y), dimensions={1,0}\n"
   "  ROOT r = @[B,A] multiply(t, u)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  y = @[A,B] parameter(1)\n"
   "  ROOT r = @[B,A] fusion(x, y), kind=kLoop, calls=f\n"
   "}\n", {150, 150, 0}, false},
  {"elements",
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  w = @[B] parameter(1)\n"
   "  wb = @[A,B] broadcast(w), dimensions={1}\n"
   "  ROOT r = @[A,B] add(x, wb)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  w = @[B] parameter(1)\n"
   "  ROOT r = @[A,B] fusion(x, w), kind=kLoop, calls=f\n"
   "}\n", {400, 400, 0}, false},
  {"concatenate and pad",
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  y = @[A,C] parameter(1)\n"
   "  z = @[] constant(1)\n"
   "  q = @[A,B] pad(x, z), padding=0_0x-1_1\n"
   "  c = @[A,B] negate(q)\n"
   "  n = @[A,C] add(y, y)\n"
   "  i = s32[] constant(1)\n"
   "  k = @[A,C] dynamic-update-slice(n, y, i, i)\n"
   "  ROOT r = (@[A,B], @[A,C]) tuple(c, k)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  y = @[A,C] parameter(1)\n"
   "  ROOT r = (@[A,B], @[A,C]) fusion(x, y), kind=kLoop, calls=f\n"
   "}\n", {100, 100, 50}, false},
  {"update of a slice",
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  u = @[1,B] parameter(1)\n"
   "  i = s32[] parameter(2)\n"
   "  z = s32[] constant(0)\n"
   "  n = @[1,B] add(u, u)\n"
   "  ROOT r = @[A,B] dynamic-update-slice(x, n, i, z)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  u = @[1,B] parameter(1)\n"
   "  i = s32[] parameter(2)\n"
   "  ROOT r = @[A,B] fusion(x, u, i), kind=kCustom, calls=f, output_to_operand_aliasing={{}: (0, {})}\n"
   "}\n", {60, 300, 0}, false},
  {"scatter of rows",
   ADD
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  i = s32[C,1] parameter(1)\n"
   "  u = @[C,B] parameter(2)\n"
   "  ROOT r = @[A,B] scatter(x, i, u), update_window_dims={1}, "
   "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  i = s32[C,1] parameter(1)\n"
   "  u = @[C,B] parameter(2)\n"
   "  ROOT r = @[A,B] fusion(x, i, u), kind=kCustom, calls=f, output_to_operand_aliasing={{}: (0, {})}\n"
   "}\n", {60, 200, 60}, false},
  {"scatter of the last elements",
   LAST
   "f {\n"
   "  x = @[A] parameter(0)\n"
   "  i = s32[C,1] parameter(1)\n"
   "  u = @[C] parameter(2)\n"
   "  ROOT r = @[A] scatter(x, i, u), update_window_dims={}, inserted_window_dims={0}, "
   "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=last\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A] parameter(0)\n"
   "  i = s32[C,1] parameter(1)\n"
   "  u = @[C] parameter(2)\n"
   "  ROOT r = @[A] fusion(x, i, u), kind=kCustom, calls=f\n"
   "}\n", {60, 0, 200}, false},
  {"scatter of squares",
   LESS
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  i = s32[C,2] parameter(1)\n"
   "  u = @[C,2,3] parameter(2)\n"
   "  ROOT r = @[A,B] scatter(x, i, u), update_window_dims={1,2}, "
   "inserted_window_dims={}, scatter_dims_to_operand_dims={0,1}, index_vector_dim=1, to_apply=less\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  i = s32[C,2] parameter(1)\n"
   "  u = @[C,2,3] parameter(2)\n"
   "  ROOT r = @[A,B] fusion(x, i, u), kind=kCustom, calls=f\n"
   "}\n", {12, 12, 30}, false},
  {"scatter of sorted rows",
   ADD
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  u = @[C,B] parameter(1)\n"
   "  n = s32[C,1] iota(), iota_dimension=0\n"
   "  t = s32[] constant(3)\n"
   "  tb = s32[C,1] broadcast(t), dimensions={}\n"
   "  i = s32[C,1] divide(n, tb)\n"
   "  ROOT r = @[A,B] scatter(x, i, u), update_window_dims={1}, "
   "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, indices_are_sorted=true, "
   "to_apply=add\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  u = @[C,B] parameter(1)\n"
   "  ROOT r = @[A,B] fusion(x, u), kind=kCustom, calls=f, output_to_operand_aliasing={{}: (0, {})}\n"
   "}\n", {60, 200, 160}, false},
  {"gather of rows",
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  i = s32[C,1] parameter(1)\n"
   "  ROOT r = @[C,B] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, "
   "index_vector_dim=1, slice_sizes={1,B}\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  i = s32[C,1] parameter(1)\n"
   "  ROOT r = @[C,B] fusion(x, i), kind=kCustom, calls=f\n"
   "}\n", {60, 200, 60}, false},
  {"windows",
   ADD
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  z = @[] constant(0)\n"
   "  ROOT r = @[A,B] reduce-window(x, z), window={size=3x5 pad=1_1x4_0}, to_apply=add\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  ROOT r = @[A,B] fusion(x), kind=kLoop, calls=f\n"
   "}\n", {60, 100, 0}, false},
  {"scatter of windows that overlap",
   ADD
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  i = s32[C,1] parameter(1)\n"
   "  u = @[C,5,B] parameter(2)\n"
   "  ROOT r = @[A,B] scatter(x, i, u), update_window_dims={1,2}, "
   "inserted_window_dims={}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  i = s32[C,1] parameter(1)\n"
   "  u = @[C,5,B] parameter(2)\n"
   "  ROOT r = @[A,B] fusion(x, i, u), kind=kCustom, calls=f\n"
   "}\n", {60, 80, 600}, false},
  {"scatter of pieces of rows",
   LESS
   "f {\n"
   "  x = @[A,70] parameter(0)\n"
   "  i = s32[C,2] parameter(1)\n"
   "  u = @[C,9] parameter(2)\n"
   "  ROOT r = @[A,70] scatter(x, i, u), update_window_dims={1}, "
   "inserted_window_dims={0}, scatter_dims_to_operand_dims={0,1}, index_vector_dim=1, to_apply=less\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,70] parameter(0)\n"
   "  i = s32[C,2] parameter(1)\n"
   "  u = @[C,9] parameter(2)\n"
   "  ROOT r = @[A,70] fusion(x, i, u), kind=kCustom, calls=f, output_to_operand_aliasing={{}: (0, {})}\n"
   "}\n", {400, 0, 300}, false},
  {"elements with weights",
   "f {\n"
   "  x = @[A,C,B] parameter(0)\n"
   "  w = @[B] parameter(1)\n"
   "  p = @[C,B] parameter(2)\n"
   "  wb = @[A,C,B] broadcast(w), dimensions={2}\n"
   "  pb = @[A,C,B] broadcast(p), dimensions={1,2}\n"
   "  y = @[A,C,B] multiply(x, wb)\n"
   "  z = @[A,C,B] add(y, pb)\n"
   "  ROOT r = (@[A,C,B], @[A,C,B]) tuple(z, y)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,C,B] parameter(0)\n"
   "  w = @[B] parameter(1)\n"
   "  p = @[C,B] parameter(2)\n"
   "  ROOT r = (@[A,C,B], @[A,C,B]) fusion(x, w, p), kind=kLoop, calls=f\n"
   "}\n", {50, 130, 20}, false},
  {"norm with two weights",
   ADD MAX
   "f {\n"
   "  x = @[A,C,B] parameter(0)\n"
   "  w = @[C,B] parameter(1)\n"
   "  v = @[B] parameter(2)\n"
   "  z = @[] constant(0)\n"
   "  m = @[A] reduce(x, z), dimensions={1,2}, to_apply=max\n"
   "  mb = @[A,C,B] broadcast(m), dimensions={0}\n"
   "  d = @[A,C,B] subtract(x, mb)\n"
   "  s = @[A] reduce(d, z), dimensions={1,2}, to_apply=add\n"
   "  sb = @[A,C,B] broadcast(s), dimensions={0}\n"
   "  wb = @[A,C,B] broadcast(w), dimensions={1,2}\n"
   "  vb = @[A,C,B] broadcast(v), dimensions={2}\n"
   "  y = @[A,C,B] multiply(d, wb)\n"
   "  u = @[A,C,B] add(y, vb)\n"
   "  q = @[A,C,B] add(u, sb)\n"
   "  ROOT t = (@[A,C,B], @[A]) tuple(q, s)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,C,B] parameter(0)\n"
   "  w = @[C,B] parameter(1)\n"
   "  v = @[B] parameter(2)\n"
   "  ROOT r = (@[A,C,B], @[A]) fusion(x, w, v), kind=kCustom, calls=f\n"
   "}\n", {200, 300, 9}, false},
  {"long rows",
   ADD MAX
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  y = @[A,B] parameter(1)\n"
   "  w = @[B] parameter(2)\n"
   "  z = @[] constant(0)\n"
   "  h = @[A,B] add(x, y)\n"
   "  m = @[A] reduce(h, z), dimensions={1}, to_apply=max\n"
   "  mb = @[A,B] broadcast(m), dimensions={0}\n"
   "  d = @[A,B] subtract(x, mb)\n"
   "  s = @[A] reduce(d, z), dimensions={1}, to_apply=add\n"
   "  sb = @[A,B] broadcast(s), dimensions={0}\n"
   "  wb = @[A,B] broadcast(w), dimensions={1}\n"
   "  u = @[A,B] multiply(y, wb)\n"
   "  r = @[A,B] add(u, sb)\n"
   "  ROOT t = (@[A,B], @[A]) tuple(r, m)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  y = @[A,B] parameter(1)\n"
   "  w = @[B] parameter(2)\n"
   "  ROOT r = (@[A,B], @[A]) fusion(x, y, w), kind=kCustom, calls=f\n"
   "}\n", {3, 100000, 0}, false},
};

static const char *const theme_types[] = {"f32", "s32", "bf16", "f64", "s8", "f32", "u16", "f16", "s64", "c64"};

/* A size around one that matters: a warp, a block, what a thread keeps, what a part of a long row has. */
static int some_size(uint64_t *state, int most)
{
  static const int sizes[] = {8, 31, 32, 33, 64, 100, 127, 128, 129, 256, 1000, 1023, 1024, 1025, 2048, 4096, 12288, 16384, 65536};
  int around = sizes[next_random(state) % WEFT_COUNT(sizes)];

  if (most < sizes[0]) return WEFT_MAX(1 + (int)(next_random(state) % (uint64_t)most), 4);
  while (around > most) around = sizes[next_random(state) % WEFT_COUNT(sizes)];
  return WEFT_MIN(WEFT_MAX(around + (int)(next_random(state) % 5) - 2, 4), most);
}

static void write_theme(const theme *t, const char *type, const int *sizes, char *out, size_t size)
{
  size_t at = (size_t)snprintf(out, size, "HloModule m\n");

  for (const char *c = t->text; *c && at + 16 < size; c++) {
    bool is_size = *c >= 'A' && *c <= 'C' && (c[1] == ',' || c[1] == ']' || c[1] == '}');
    if (*c == '@') at += (size_t)snprintf(out + at, size - at, "%s", type);
    else if (is_size) at += (size_t)snprintf(out + at, size - at, "%d", sizes[*c - 'A']);
    else out[at++] = *c, out[at] = 0;
  }
}

static void fill_theme(hlo_literal *x, uint64_t *state, bool is_index)
{
  for (int64_t i = 0; i < hlo_shape_elems(x->shape); i++) {
    int v = (int)(next_random(state) % (is_index ? 64 : 5)) - (is_index                               ? 2
                                                               : weft_dtype_is_signed(x->shape->type) ? 2
                                                                                                      : 0);
    hlo_literal_set_f64(x, i, v, weft_dtype_is_complex(x->shape->type) ? v / 2 : 0);
  }
}

static void run_theme(uint64_t seed, tally *t)
{
  uint64_t state = seed * 2654435761u;
  const theme *theme = &themes[seed % WEFT_COUNT(themes)];
  const char *type = theme_types[next_random(&state) % WEFT_COUNT(theme_types)];
  const hlo_literal *inputs[4];
  WEFT_AUTO(hlo_module) module = NULL;
  char text[4096], what[128];
  weft_arena arena;
  int sizes[3];

  next_random(&state);
  if (theme->floats || (type[0] == 'c' && strstr(theme->text, "maximum"))) type = "f32";
  for (int i = 0; i < 3; i++) sizes[i] = some_size(&state, WEFT_MAX(theme->most[i], 5));
  if (theme->most[0] == 3) sizes[0] = 1 + (int)(seed / WEFT_COUNT(themes) % 3);
  write_theme(theme, type, sizes, text, sizeof text);
  snprintf(what, sizeof what, "seed %d: %s of %s, %dx%dx%d", (int)seed, theme->name, type, sizes[0], sizes[1],
           sizes[2]);
  weft_arena_init(&arena);
  weft_status *st = hlo_parse(text, strlen(text), &module);
  if (st) fail_msg("%s: %s\n%s", what, weft_status_message(st), text);
  for (int i = 0; i < module->entry->param_count; i++) {
    hlo_literal *x;
    const hlo_shape *shape = module->entry->params[i]->shape;
    T_OK(hlo_literal_new(&arena, shape, &x));
    fill_theme(x, &state,
               i > 0 && shape->type == WEFT_S32 && i == module->entry->param_count - (shape->rank == 0 ? 1 : 2));
    inputs[i] = x;
  }
  if (getenv("WEFT_TEST_VERBOSE")) print_message("# %s\n", what);
  compare(module, inputs, (int)(seed / WEFT_COUNT(themes)), what, t);
  weft_arena_fini(&arena);
}

TEST(kernels_of_tiles_have_the_bits_of_the_hosts)
{
  const char *text = getenv("WEFT_TEST_SEEDS"), *first = getenv("WEFT_TEST_SEED");
  uint64_t seeds = text ? (uint64_t)atoi(text) : 4 * WEFT_COUNT(themes), from = first ? (uint64_t)atoi(first) : 0;
  tally t = {0};

  for (uint64_t seed = from; seed < from + seeds; seed++) run_theme(seed, &t);
  print_tally(&t);
  T_EQ_INT(t.refused, 0);
  T_EQ_INT(t.local, 0);
}

/* ---- exponentials and quotients ---------------------------------------------------------------------------------- */

/* Fusions whose first operand is [A,B]. */
static const struct { const char *name, *text, *type; } exact_ones[] = {
  {"exponential",
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  ROOT r = @[A,B] exponential(x)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  ROOT r = @[A,B] fusion(x), kind=kLoop, calls=f\n"
   "}\n", "f32"},
  {"exponential of bf16",
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  ROOT r = @[A,B] exponential(x)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  ROOT r = @[A,B] fusion(x), kind=kLoop, calls=f\n"
   "}\n", "bf16"},
  {"sine of f32",
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  ROOT r = @[A,B] sine(x)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  ROOT r = @[A,B] fusion(x), kind=kLoop, calls=f\n"
   "}\n", "f32"},
  {"sine of bf16",
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  ROOT r = @[A,B] sine(x)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  ROOT r = @[A,B] fusion(x), kind=kLoop, calls=f\n"
   "}\n", "bf16"},
  {"cosine of f32",
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  ROOT r = @[A,B] cosine(x)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  ROOT r = @[A,B] fusion(x), kind=kLoop, calls=f\n"
   "}\n", "f32"},
  {"cosine of bf16",
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  ROOT r = @[A,B] cosine(x)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  ROOT r = @[A,B] fusion(x), kind=kLoop, calls=f\n"
   "}\n", "bf16"},
  {"exponential of differences of bf16",
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  y = @[A,B] reverse(x), dimensions={1}\n"
   "  d = @[A,B] subtract(x, y)\n"
   "  ROOT r = @[A,B] exponential(d)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  ROOT r = @[A,B] fusion(x), kind=kLoop, calls=f\n"
   "}\n", "bf16"},
  {"quotients by rows of bf16",
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  c = @[A,1] slice(x), slice={[0:A], [77:78]}\n"
   "  v = @[A] reshape(c)\n"
   "  b = @[A,B] broadcast(v), dimensions={0}\n"
   "  ROOT r = @[A,B] divide(x, b)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  ROOT r = @[A,B] fusion(x), kind=kLoop, calls=f\n"
   "}\n", "bf16"},
};

/* All bf16; of the f32, one of each 65537 and those around the ends of exp's range. */
static void fill_all(hlo_literal *x)
{
  static const uint32_t ends[] = {0x42b17200 /* 88.7 */, 0xc2aeac00 /* -87.3 */, 0xc2cff000 /* -104 */};
  int64_t n = hlo_shape_elems(x->shape);

  for (int64_t i = 0; i < n; i++) {
    if (x->shape->type == WEFT_BF16) ((uint16_t *)x->data)[i] = (uint16_t)i;
    else ((uint32_t *)x->data)[i] = i % 2 ? (uint32_t)i * 65537u : ends[i / 2 % 3] + (uint32_t)i;
  }
}

TEST(functions_and_quotients_have_the_bits_of_the_hosts)
{
  int sizes[3] = {256, 256, 0};
  tally t = {0};

  for (int k = 0; k < (int)WEFT_COUNT(exact_ones); k++)
    for (int round = 0; round < 6; round++) {
      WEFT_AUTO(hlo_module) module = NULL;
      weft_arena arena;
      hlo_literal *x;
      char text[4096];
      weft_arena_init(&arena);
      write_theme(&(theme){.text = exact_ones[k].text}, exact_ones[k].type, sizes, text, sizeof text);
      T_OK(hlo_parse(text, strlen(text), &module));
      skip_without_target(module->entry->root);
      T_OK(hlo_literal_new(&arena, module->entry->params[0]->shape, &x));
      fill_all(x);
      compare(module, (const hlo_literal *const[]){x}, round, exact_ones[k].name, &t);
      weft_arena_fini(&arena);
    }
  print_tally(&t);
  T_EQ_INT(t.near + t.refused + t.local, 0);
}

/* ---- sorts ------------------------------------------------------------------------------------------------------ */

#define SORT_OF(shape) \
  "p {\n" \
  "  a = @[] parameter(0)\n" \
  "  b = @[] parameter(1)\n" \
  "  i = s32[] parameter(2)\n" \
  "  j = s32[] parameter(3)\n" \
  "  ROOT r = pred[] compare(a, b), direction=LT\n" \
  "}\n" \
  "ENTRY e {\n" \
  "  x = @" shape " parameter(0)\n" \
  "  i = s32" shape " parameter(1)\n" \
  "  ROOT r = (@" shape ", s32" shape ") sort(x, i), dimensions={0}, is_stable=true, to_apply=p\n" \
  "}\n"
static const struct { const char *text, *types[6]; int a[6], b; } sorts[] = {
  /* keys of few values with their positions: only a stable sort gives the reference's */
  {SORT_OF("[A]"), {"f32", "s8", "f64", "u16", "bf16", "s64"}, {1, 2, 37, 1024, 1025, 9000}, 1},
  {SORT_OF("[A,B]"), {"f32", "s8", "f64", "u16", "bf16", "s64"}, {2, 33, 100, 511, 1500, 3000}, 5},
  /* a comparator that is no comparison of keys, along the last dimension */
  {"p {\n"
   "  a = @[] parameter(0)\n"
   "  b = @[] parameter(1)\n"
   "  x = @[] abs(a)\n"
   "  y = @[] abs(b)\n"
   "  ROOT r = pred[] compare(x, y), direction=GT\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[B,A] parameter(0)\n"
   "  ROOT r = @[B,A] sort(x), dimensions={1}, to_apply=p\n"
   "}\n",
   {"s32", "f32", "s16", "f64", "s8", "f16"}, {1, 7, 64, 130, 1023, 2100}, 40},
  {"ENTRY e {\n"
   "  x = @[B,A] parameter(0)\n"
   "  ROOT r = (@[B,3], s32[B,3]) topk(x), k=3, largest=true\n"
   "}\n",
   {"f32", "s32", "u8", "f64", "bf16", "f32"}, {3, 8, 100, 1024, 2000, 5000}, 6},
  {"ENTRY e {\n"
   "  x = @[B,A] parameter(0)\n"
   "  ROOT r = (@[B,3], s32[B,3]) topk(x), k=3, largest=false\n"
   "}\n",
   {"f32", "s32", "u8", "f64", "bf16", "f32"}, {3, 8, 100, 1024, 2000, 5000}, 6},
};

TEST(sorts_are_stable_and_those_of_the_reference)
{
  for (size_t k = 0; k < 6 * WEFT_COUNT(sorts); k += T_STRIDE(5)) {
    int sizes[3] = {sorts[k / 6].a[k % 6], sorts[k / 6].b, 0};
    const hlo_literal *inputs[2], *want;
    WEFT_AUTO(hlo_module) module = NULL;
    gen_artefact a;
    weft_arena arena;
    char text[2048], what[64];
    uint64_t numbers = k;

    write_theme(&(theme){.text = sorts[k / 6].text}, sorts[k / 6].types[k % 6], sizes, text, sizeof text);
    snprintf(what, sizeof what, "sort %d, %s[%d,%d]", (int)(k / 6), sorts[k / 6].types[k % 6], sizes[0], sizes[1]);
    weft_arena_init(&arena);
    weft_status *st = hlo_parse(text, strlen(text), &module);
    if (st) fail_msg("%s: %s", what, weft_status_message(st));
    for (int i = 0; i < module->entry->param_count; i++) {
      hlo_literal *x;
      T_OK(hlo_literal_new(&arena, module->entry->params[i]->shape, &x));
      if (i == 0) fill_theme(x, &numbers, false);
      else
        for (int64_t n = 0; n < hlo_shape_elems(x->shape); n++) hlo_literal_set_f64(x, n, (double)n, 0);
      if (i == 0 && weft_dtype_is_float(x->shape->type)) hlo_literal_set_f64(x, 0, -0.0, 0);
      if (i == 0 && weft_dtype_is_float(x->shape->type) && module->entry->root->op == HLO_TOPK)
        hlo_literal_set_f64(x, 1, __builtin_nan(""), 0);
      inputs[i] = x;
    }
    st = gen_nvptx_compile(module->entry->root, processors[k % 3], &options, &a);
    if (st && strstr(weft_status_message(st), "no NVPTX target")) {
      weft_status_ignore(st);
      T_SKIP("the LLVM that tests are linked with has no NVPTX target");
    }
    if (st) fail_msg("%s: %s", what, weft_status_message(st));
    T_OK(hlo_eval_module(module, inputs, &HLO_EVAL_DEFAULT, &arena, &want));
    hlo_literal *got = empty_literal(&arena, module->entry->root->shape);
    run_artefact(&a, inputs, module->entry->param_count, got, (int)k, NULL, what);
    if (!same_bits(got, want)) fail_msg("%s: not the reference's", what);
    gen_artefact_fini(&a);
    weft_arena_fini(&arena);
  }
}

/* NaNs have no place in the order that LT is. They come last, as on the CPU, and every element is there once. */
TEST(sorts_by_a_plain_comparison_keep_nans_and_zeros)
{
  static const char text[] = "p {\n"
                             "  a = f32[] parameter(0)\n"
                             "  b = f32[] parameter(1)\n"
                             "  ROOT r = pred[] compare(a, b), direction=LT\n"
                             "}\n"
                             "ENTRY e {\n"
                             "  x = f32[6] parameter(0)\n"
                             "  ROOT r = f32[6] sort(x), dimensions={0}, to_apply=p\n"
                             "}\n";
  static const float in[] = {3, NAN, 0.0f, -0.0f, -1, 2}, want[] = {-1, 0.0f, -0.0f, 2, 3, NAN};
  WEFT_AUTO(hlo_module) module = NULL;
  weft_arena arena;
  gen_artefact a;
  hlo_literal *x;

  weft_arena_init(&arena);
  T_OK(hlo_parse(text, strlen(text), &module));
  T_OK(hlo_literal_new(&arena, module->entry->params[0]->shape, &x));
  memcpy(x->data, in, sizeof in);
  weft_status *st = gen_nvptx_compile(module->entry->root, "L4", &options, &a);
  if (st && strstr(weft_status_message(st), "no NVPTX target")) {
    weft_status_ignore(st);
    T_SKIP("the LLVM that tests are linked with has no NVPTX target");
  }
  T_OK(st);
  hlo_literal *got = empty_literal(&arena, module->entry->root->shape);
  run_artefact(&a, (const hlo_literal *const[]){x}, 1, got, 0, NULL, "six floats");
  assert_memory_equal(got->data, want, sizeof want);
  gen_artefact_fini(&a);
  weft_arena_fini(&arena);
}

/* How long the processor issues instructions, by its figures, over how long its memory takes to move `bytes`. A
 * multiprocessor issues an instruction a clock for each of its four groups of warps. The instructions are those of the
 * machine, as the emulator counts them. */
static double issue_time(const gen_target *target, const ptx_stats *stats, double bytes)
{
  double issued = (double)stats->slots / (target->cores * 4.0 * target->clock_mhz * 1e6);

  return issued / (bytes / (target->memory_gb_s * 1e9));
}

/* Replaces every `from` of the artefact's text. false: there is none. */
static bool break_text(gen_artefact *a, const char *from, const char *to)
{
  size_t size = strlen(a->text) * 2 + 1, at = 0;
  char *broken = malloc(size);
  bool found = false;

  for (const char *c = a->text; *c;) {
    if (strncmp(c, from, strlen(from)) == 0) {
      found = true;
      at += (size_t)snprintf(broken + at, size - at, "%s", to);
      c += strlen(from);
    } else {
      broken[at++] = *c++;
    }
  }
  broken[at] = 0;
  free(a->text);
  a->text = broken;
  return found;
}

/* ---- sorts by radix ---------------------------------------------------------------------------------------------- */

/* Sorts of a key with payloads: `key` has a comparator in which JAX's order of floats is %3$s. opaque: the same
 * comparator in a form that is not read as one by keys, so that the sort is by merging. moved: at most so many times
 * the sectors that operands and results have, 0 for small sorts; launches: of the sort by radix. key: the operand that
 * is the key; the payloads are the others. */
typedef struct radix_sort { const char *type, *payloads[3], *direction; int outer, n, inner; bool is_jax; double moved; int launches, key; } radix_sort;
static const radix_sort radix_sorts[] = {
  {"f32", {NULL}, "LT", 1, 32768, 1, true, 10.3, 12}, {"f32", {"s32"}, "LT", 1, 32768, 1, true, 7.0, 12},
  {"f32", {"s32", "f64"}, "GT", 2, 20001, 1, true, 0, 14}, {"s8", {"s32"}, "LT", 2, 10241, 1, false, 0, 6},
  {"u8", {NULL}, "GT", 1, 30000, 1, false, 5.8, 6}, {"bf16", {"u16"}, "LT", 2, 12288, 1, true, 0, 6},
  {"f16", {"f64"}, "GT", 1, 11000, 1, true, 0, 6}, {"s64", {"s32"}, "LT", 1, 40000, 1, false, 0, 24},
  {"f64", {NULL}, "GT", 2, 16500, 1, true, 0, 24}, {"u16", {"pred"}, "GT", 1, 10300, 1, false, 0, 6},
  {"pred", {"s32"}, "LT", 2, 10500, 1, false, 0, 6}, {"s32", {"c128"}, "GT", 1, 16500, 1, false, 0, 14},
  {"f32", {"s32"}, "GT", 1, 10300, 3, true, 0, 12}, {"u64", {"u64"}, "LT", 1, 33000, 1, false, 0, 24},
  {"s16", {"f32", "u8", "s64"}, "LT", 1, 10300, 2, false, 0, 8}, {"s4", {"s32"}, "LT", 1, 10500, 1, false, 0, 6},
  {"u32", {NULL}, "LT", 1, 30000, 1, false, 0, 12}, {"f64", {NULL}, "LT", 6, 6017, 1, true, 0, 24},
  /* in one launch */
  {"f32", {NULL}, "LT", 8, 8000, 1, true, 1.2, 1}, {"f32", {"s32"}, "LT", 9, 2048, 1, true, 1.2, 1},
  {"f32", {"s32"}, "GT", 1, 2500, 7, true, 0, 1}, {"f32", {"s32", "f64"}, "GT", 2, 10240, 1, true, 0, 1},
  {"s8", {"s32"}, "LT", 3, 4097, 1, false, 0, 1}, {"u8", {NULL}, "GT", 1, 10000, 1, false, 0, 1},
  {"bf16", {"u16"}, "LT", 5, 2048, 1, true, 0, 1}, {"f16", {"f64"}, "GT", 1, 9000, 1, true, 0, 1},
  {"s64", {"s32"}, "LT", 1, 6016, 1, false, 0, 1}, {"f64", {NULL}, "GT", 2, 5000, 1, true, 0, 1},
  {"u16", {"pred"}, "GT", 3, 3000, 1, false, 0, 1}, {"pred", {"s32"}, "LT", 2, 5000, 1, false, 0, 1},
  {"s32", {"c128"}, "GT", 1, 10239, 1, false, 0, 1}, {"u64", {"u64"}, "LT", 1, 1025, 1, false, 0, 1},
  {"s16", {"f32", "u8", "s64"}, "LT", 2, 2300, 2, false, 0, 1}, {"s4", {"s32"}, "LT", 1, 4500, 1, false, 0, 1},
  {"u32", {NULL}, "GT", 3, 1537, 1, false, 0, 1}, {"u64", {"c128"}, "GT", 2, 6016, 1, false, 0, 1},
  {"f32", {"s32"}, "LT", 3, 4099, 1, true, 1.2, 1, 1}, {"bf16", {"f64", "s32"}, "GT", 2, 2050, 3, true, 0, 1, 1},
  {"s64", {"u8", "f32", "c128"}, "LT", 1, 6000, 1, false, 0, 1, 3}, {"f32", {"s32"}, "LT", 1, 16500, 1, true, 0, 12, 1},
};

/* The type of operand number `operand` of the sort; NULL: there is none. */
static const char *operand_type(const radix_sort *s, int operand)
{
  if (operand == s->key) return s->type;
  int payload = operand - (operand > s->key);
  return payload < 3 ? s->payloads[payload] : NULL;
}

static void write_radix(const radix_sort *s, bool opaque, char *out, size_t size)
{
  char shape[64], fields[256] = "", types[256] = "";
  size_t at = (size_t)snprintf(out, size,
                               "HloModule m\n"
                               "p {\n");
  int count = 0;

  snprintf(shape, sizeof shape, "[%d,%d,%d]", s->outer, s->n, s->inner);
  for (const char *type; (type = operand_type(s, count)); count++) {
    if (count == s->key)
      at += (size_t)snprintf(out + at, size - at,
                             "a = %1$s[] parameter(%2$d)\n"
                             "b = %1$s[] parameter(%3$d)\n",
                             type, 2 * count, 2 * count + 1);
    else
      at += (size_t)snprintf(out + at, size - at, "c%1$d = %2$s[] parameter(%3$d) d%1$d = %2$s[] parameter(%4$d) ",
                             count, type, 2 * count, 2 * count + 1);
    snprintf(fields + strlen(fields), sizeof fields - strlen(fields), "%sx%d", count ? ", " : "", count);
    snprintf(types + strlen(types), sizeof types - strlen(types), "%s%s%s", count ? ", " : "", type, shape);
  }
  if (s->is_jax)
    at += (size_t)snprintf(out + at, size - at,
                           "nan = %1$s[] constant(nan)\n"
                           "zero = %1$s[] constant(0)\n"
                           "az = pred[] compare(a, zero), direction=EQ\n"
                           "as = %1$s[] select(az, zero, a)\n"
                           "an = pred[] compare(a, a), direction=NE\n"
                           "x = %1$s[] select(an, nan, as)\n"
                           "bz = pred[] compare(b, zero), direction=EQ\n"
                           "bs = %1$s[] select(bz, zero, b)\n"
                           "bn = pred[] compare(b, b), direction=NE\n"
                           "y = %1$s[] select(bn, nan, bs)\n"
                           "l = pred[] compare(x, y), direction=%2$s, type=TOTALORDER ",
                           s->type, s->direction);
  else at += (size_t)snprintf(out + at, size - at, "l = pred[] compare(a, b), direction=%s ", s->direction);
  at += (size_t)snprintf(out + at, size - at,
                         opaque ? "n = pred[] not(l)\n"
                                  "ROOT r = pred[] not(n)\n"
                                  "}\n"
                                : "ROOT r = pred[] or(l, l) }\n");
  if (!opaque) { /* the root is the compare itself */
    char *or = strstr(out, "ROOT r = pred[] or(l, l)"), *less = strstr(out, "l = pred[] compare");
    memmove(or, or +strlen("ROOT r = pred[] or(l, l)"), strlen(or +strlen("ROOT r = pred[] or(l, l)")) + 1);
    memmove(less + 5, less, strlen(less) + 1);
    memcpy(less, "ROOT ", 5);
    at = strlen(out);
  }
  at += (size_t)snprintf(out + at, size - at, "ENTRY e { ");
  for (int i = 0; i < count; i++)
    at += (size_t)snprintf(out + at, size - at, "x%d = %s%s parameter(%d) ", i, operand_type(s, i), shape, i);
  snprintf(out + at, size - at, "ROOT r = %s%s%s sort(%s), dimensions={1}, is_stable=true, to_apply=p }\n",
           count > 1 ? "(" : "", types, count > 1 ? ")" : "", fields);
}

/* Keys of all magnitudes, equal ones among them; of floats, both zeros, infinities and NaNs of both signs. */
static void fill_keys(hlo_literal *x, uint64_t *state, bool with_nans)
{
  weft_dtype type = x->shape->type;
  size_t size = weft_dtype_bytes(type);

  for (int64_t i = 0; i < hlo_shape_elems(x->shape); i++) {
    uint64_t bits = next_random(state) >> (next_random(state) % 64);
    if (next_random(state) % 4 == 0)
      hlo_literal_set_f64(x, i, (double)(next_random(state) % 7) - (weft_dtype_is_signed(type) ? 3 : 0), 0);
    else if (type == WEFT_PRED || weft_dtype_bits(type) < 8) hlo_literal_set_f64(x, i, (double)(bits % 2), 0);
    else memcpy((char *)x->data + size * (size_t)i, &bits, size);
    if (!weft_dtype_is_float(type)) continue;
    double v = hlo_literal_get_f64(x, i);
    int special = (int)(next_random(state) % 40);
    if (v != v && !with_nans) hlo_literal_set_f64(x, i, -1, 0);
    if (special < 2) hlo_literal_set_f64(x, i, special ? -0.0 : 0.0, 0);
    if (special >= 2 && special < 4) hlo_literal_set_f64(x, i, special == 2 ? INFINITY : -INFINITY, 0);
    if (special == 4 && with_nans) memset((char *)x->data + size * (size_t)i, 0xff, size); /* a negative NaN */
  }
}

/* Makes the kernel and runs it: in each order of blocks, or once without checks for `stats`, or once
 * with each `from` of its text replaced. */
static int run_radix(const radix_sort *s, bool opaque, size_t k, weft_arena *arena, ptx_stats *stats, const char *from,
                     const char *to, int *fault, hlo_literal **out, double *out_must)
{
  const hlo_literal *inputs[4];
  WEFT_AUTO(hlo_module) module = NULL;
  uint64_t numbers = k + 1;
  char text[4096], what[128];
  gen_artefact a;

  write_radix(s, opaque, text, sizeof text);
  snprintf(what, sizeof what, "radix sort %d of %s[%d,%d,%d]%s", (int)k, s->type, s->outer, s->n, s->inner,
           opaque ? ", by merging" : "");
  weft_status *st = hlo_parse(text, strlen(text), &module);
  if (st) fail_msg("%s: %s\n%s", what, weft_status_message(st), text);
  const hlo_instr *root = module->entry->root;
  skip_without_target(root);
  *out_must = (double)hlo_shape_total_bytes(root->shape) * 2;
  for (int i = 0; i < module->entry->param_count; i++) {
    hlo_literal *x;
    T_OK(hlo_literal_new(arena, module->entry->params[i]->shape, &x));
    if (i == s->key) fill_keys(x, &numbers, s->is_jax);
    else
      for (int64_t n = 0; n < hlo_shape_elems(x->shape); n++)
        hlo_literal_set_f64(x, n, x->shape->type == WEFT_PRED ? (double)(n % 2) : (double)(n % 120), 0);
    if (i != s->key && x->shape->type == WEFT_S32)
      for (int64_t n = 0; n < hlo_shape_elems(x->shape); n++) ((int32_t *)x->data)[n] = (int32_t)n;
    inputs[i] = x;
  }
  gen_target target = *gen_gpu_target(processors[k % 3]);
  if (k % 2) target.cores = 1; /* parts of several tiles */
  T_OK(gen_nvptx_compile_for(root, &target, &options, &a));
  if (from && !break_text(&a, from, to)) fail_msg("%s: the text has no \"%s\"", what, from);
  *out = empty_literal(arena, hlo_shape_copy(arena, root->shape));
  if (from) run_or_fault(&a, inputs, module->entry->param_count, *out, 0, (damage){NO_DAMAGE}, NULL, fault, what);
  for (int order = (int)k % 3; order <= (k < 4 ? 2 : (int)k % 3) && !stats && !from; order++) {
    hlo_literal *got = empty_literal(arena, (*out)->shape);
    run_artefact(&a, inputs, module->entry->param_count, got, order, NULL, what);
    if (order > (int)k % 3 && !identical(got, *out)) fail_msg("%s: other bits in another order of blocks", what);
    *out = got;
  }
  if (stats) run_artefact(&a, inputs, module->entry->param_count, *out, 0, stats, what);
  int launches = a.launch_count;
  gen_artefact_fini(&a);
  return launches;
}

TEST(sorts_by_radix_have_the_bits_of_those_by_merging)
{
  for (size_t k = 0; k < WEFT_COUNT(radix_sorts); k += T_STRIDE(3)) {
    const radix_sort *s = &radix_sorts[k];
    hlo_literal *got, *want;
    ptx_stats stats = {0}, unused = {0};
    weft_arena arena;
    double must;

    weft_arena_init(&arena);
    int launches = run_radix(s, false, k, &arena, NULL, NULL, NULL, NULL, &got, &must);
    run_radix(s, true, k, &arena, &unused, NULL, NULL, NULL, &want, &must);
    if (!identical(got, want))
      fail_msg("radix sort %d of %s[%d,%d,%d]: not what merging gives", (int)k, s->type, s->outer, s->n, s->inner);
    if (launches != s->launches) fail_msg("radix sort %d: %d launches, expected %d", (int)k, launches, s->launches);
    if (s->moved > 0) {
      run_radix(s, false, k, &arena, &stats, NULL, NULL, NULL, &got, &must);
      double moved = (double)stats.sectors * 32 / must;
      print_message(
        "# radix sort %2d of %-5s[%d,%d,%d] %d launches, %.2f times the sectors, %.2f of the memory's time\n", (int)k,
        s->type, s->outer, s->n, s->inner, launches, moved, issue_time(gen_gpu_target("H200"), &stats, must * moved));
      if (moved > s->moved) fail_msg("radix sort %d: %.2f times the sectors", (int)k, moved);
    }
    weft_arena_fini(&arena);
  }
}

typedef struct broken_line { const char *from, *to; } broken_line;

static void notice_broken(const radix_sort *sort, const broken_line *broken, size_t count)
{
  ptx_stats unused = {0};
  hlo_literal *want, *got;
  weft_arena arena;
  double must;

  weft_arena_init(&arena);
  run_radix(sort, true, 1, &arena, &unused, NULL, NULL, NULL, &want, &must);
  for (size_t b = 0; b < count; b++) {
    int fault = 0;
    run_radix(sort, false, 1, &arena, NULL, broken[b].from, broken[b].to, &fault, &got, &must);
    if (!fault && identical(got, want)) fail_msg("\"%s\" for \"%s\": nobody noticed", broken[b].to, broken[b].from);
  }
  weft_arena_fini(&arena);
}

TEST(broken_sorts_by_radix_are_noticed)
{
  static const broken_line broken[] = {
    {"bar.warp.sync", "// "}, {"bar.sync \t0;", ""}, {"popc.b32", "clz.b32"}, {"shfl.sync.up.b32", "shfl.sync.down.b32"},
    {"shfl.sync.idx.b32", "shfl.sync.up.b32"}, {"atom.shared.add.u32", "atom.shared.max.u32"}, {"shr.u32", "shl.b32"},
    {"st.shared.u32", "st.shared.u16"}, {"and.b32", "or.b32"}, {"xor.b32", "and.b32"}, {"min.u64", "max.u64"},
  };
  static const broken_line broken_block[] = {
    {"bar.warp.sync", "// "}, {"bar.sync \t0;", ""}, {"popc.b32", "clz.b32"}, {"shfl.sync.up.b32", "shfl.sync.down.b32"},
    {"match.any.sync.b32", "// "}, {"shr.u32", "shl.b32"}, {"st.shared.u32", "st.shared.u16"}, {"and.b32", "or.b32"},
    {"xor.b32", "and.b32"}, {"ld.shared.u32", "ld.shared.u16"},
  };
  static const radix_sort sort = {"f32", {"s32"}, "LT", 2, 10301, 1, true, 0, 12}, block = {"f32", {"s32"}, "LT", 2, 4500, 1, true, 0, 1};

  notice_broken(&sort, broken, WEFT_COUNT(broken));
  notice_broken(&block, broken_block, WEFT_COUNT(broken_block));
}

/* ---- concatenates ----------------------------------------------------------------------------------------------- */

/* `count` operands [before, n, after] of which operand i has n = least + i % steps along the joined dimension. moved:
 * at most so many times the sectors that hold operands and result; 0: the arrays are too small to be held to that. */
static const struct { const char *type; int count, before, least, steps, after; double moved; } joins[] = {
  {"bf16", 64, 1, 1, 1, 768 * 8, 1.05}, {"f32", 10, 40, 16, 1, 32, 1.1}, {"f32", 9, 30, 3, 4, 7, 0}, {"pred", 33, 5, 1, 7, 13, 0},
  {"c128", 12, 9, 0, 3, 11, 1.1}, {"s8", 100, 1, 0, 5, 1000, 0}, {"f64", 9, 129, 8, 3, 2, 1.4}, {"u16", 17, 3, 0, 2, 401, 0},
};

static void check_join(size_t k)
{
  const hlo_literal *inputs[RUN_ARRAYS], *want;
  WEFT_AUTO(hlo_module) module = NULL;
  int total = 0, count = joins[k].count;
  size_t size = 1 << 15, at = 0;
  char *text = malloc(size), what[64];
  ptx_stats stats = {0};
  uint64_t numbers = k;
  weft_arena arena;
  gen_artefact a;

  at += (size_t)snprintf(text, size, "HloModule m\nENTRY e { ");
  for (int i = 0; i < count; i++) {
    int n = joins[k].least + i % joins[k].steps;
    at += (size_t)snprintf(text + at, size - at, "x%d = %s[%d,%d,%d] parameter(%d) ", i, joins[k].type, joins[k].before,
                           n, joins[k].after, i);
    total += n;
  }
  at += (size_t)snprintf(text + at, size - at, "ROOT r = %s[%d,%d,%d] concatenate(", joins[k].type, joins[k].before,
                         total, joins[k].after);
  for (int i = 0; i < count; i++) at += (size_t)snprintf(text + at, size - at, "%sx%d", i ? ", " : "", i);
  snprintf(text + at, size - at, "), dimensions={1} }\n");
  weft_arena_init(&arena);
  T_OK(hlo_parse(text, strlen(text), &module));
  free(text);
  const hlo_instr *root = module->entry->root;
  skip_without_target(root);
  T_TRUE(gen_nvptx_takes(root));
  snprintf(what, sizeof what, "concatenate %d, of %d arrays of %s", (int)k, count, joins[k].type);
  for (int i = 0; i < count; i++) {
    hlo_literal *x;
    T_OK(hlo_literal_new(&arena, module->entry->params[i]->shape, &x));
    fill_theme(x, &numbers, false);
    inputs[i] = x;
  }
  T_OK(hlo_eval_module(module, inputs, &HLO_EVAL_DEFAULT, &arena, &want));
  hlo_literal *got = empty_literal(&arena, root->shape);
  for (size_t p = 0; p < WEFT_COUNT(processors); p++) {
    T_OK(gen_nvptx_compile(root, processors[p], &options, &a));
    memset(got->data, 0x55, (size_t)hlo_shape_bytes(root->shape));
    T_TRUE(run_artefact(&a, inputs, count, got, (int)p, NULL, what));
    if (!same_bits(got, want)) fail_msg("%s: not the arrays\n%s", what, a.text);
    if (p == 0) run_artefact(&a, inputs, count, got, 0, &stats, what);
    gen_artefact_fini(&a);
  }
  double bytes = 2 * (double)hlo_shape_bytes(root->shape), moved = (double)stats.sectors * 32 / bytes;
  double issue = issue_time(gen_gpu_target("H200"), &stats, bytes);
  print_message("# %-44s %.2f times the sectors, %.2f of the memory's time\n", what, moved, issue);
  if (joins[k].moved > 0 && moved > joins[k].moved)
    fail_msg("%s: %.2f times the sectors that it must move", what, moved);
  if (joins[k].moved > 0 && issue > 1) fail_msg("%s: %.2f of the memory's time", what, issue);
  weft_arena_fini(&arena);
}

TEST(concatenates_of_many_arrays_move_them_once)
{
  for (size_t k = 0; k < WEFT_COUNT(joins); k++) check_join(k);
}

/* ---- scans ------------------------------------------------------------------------------------------------------ */

/* `moved`: at most so many times the sectors that hold the operand and the result; 0: the scan is too small to be
 * held to that. launches: of the kernel. */
static const struct { const char *type, *op; int outer, n, inner; bool is_reverse; double moved; int launches; } scans[] = {
  {"f32", "add", 1, 64, 1, false, 0, 1}, {"f32", "add", 7, 1000, 1, false, 0, 1}, {"f32", "add", 3, 1023, 1, true, 0, 1},
  {"s32", "add", 700, 100, 1, false, 1.1, 1}, {"f32", "add", 1000, 2048, 1, false, 1.1, 1}, {"f32", "add", 1, 300000, 1, false, 1.6, 2},
  {"f64", "add", 2, 70001, 1, true, 1.8, 2}, {"bf16", "maximum", 5, 3001, 1, false, 0, 1}, {"s64", "minimum", 1, 50000, 1, true, 0, 2},
  {"u8", "or", 9, 777, 1, false, 0, 1}, {"pred", "and", 2, 300, 1, false, 0, 1}, {"c64", "add", 3, 500, 1, false, 0, 1},
  {"f32", "add", 4, 100, 33, false, 0, 1}, {"f32", "add", 1, 5003, 70, true, 2.3, 2}, {"s16", "xor", 2, 129, 300, false, 0, 2},
  {"f16", "maximum", 1, 64, 2000, true, 1.1, 1}, {"f32", "multiply", 3, 80, 5, false, 0, 1}, {"f32", "add", 100, 64, 600, false, 1.1, 1},
  {"c64", "add", 2, 20000, 1, true, 0, 2},
};

static double apply_op(const char *op, double a, double b)
{
  if (strcmp(op, "add") == 0) return a + b;
  if (strcmp(op, "multiply") == 0) return a * b;
  if (strcmp(op, "maximum") == 0) return a > b ? a : b;
  if (strcmp(op, "minimum") == 0) return a < b ? a : b;
  if (strcmp(op, "xor") == 0) return (double)((int)a ^ (int)b);
  return strcmp(op, "or") == 0 ? (double)((int)a | (int)b) : (double)((int)a & (int)b);
}

/* The loop that a scan stands for, of small integers, which are exact in any order. */
static void scan_by_loop(size_t k, const hlo_literal *x, double init, hlo_literal *want)
{
  for (int o = 0; o < scans[k].outer; o++)
    for (int i = 0; i < scans[k].inner; i++) {
      double re = init, im = 0;
      for (int t = 0; t < scans[k].n; t++) {
        int at = scans[k].is_reverse ? scans[k].n - 1 - t : t;
        int64_t place = ((int64_t)o * scans[k].n + at) * scans[k].inner + i;
        re = apply_op(scans[k].op, re, hlo_literal_get_f64(x, place));
        if (weft_dtype_is_complex(x->shape->type)) im += hlo_literal_get_imag(x, place);
        hlo_literal_set_f64(want, place, re, im);
      }
    }
}

static void write_scan(size_t k, char *out, size_t size)
{
  int n = scans[k].n, before = scans[k].is_reverse ? 0 : n - 1;

  snprintf(
    out, size,
    "HloModule m\n"
    "f {\n"
    "  a = %1$s[] parameter(0)\n"
    "  b = %1$s[] parameter(1) ROOT c = %1$s[] %2$s(a, b)\n"
    "}\n"
    "ENTRY e {\n"
    "  x = %1$s[%3$d,%4$d,%5$d] parameter(0)\n"
    "  z = %1$s[] parameter(1)\n"
    "  ROOT r = %1$s[%3$d,%4$d,%5$d] reduce-window(x, z), window={size=1x%4$dx1 pad=0_0x%6$d_%7$dx0_0}, to_apply=f\n"
    "}\n",
    scans[k].type, scans[k].op, scans[k].outer, n, scans[k].inner, before, n - 1 - before);
}

static void check_scan(size_t k)
{
  const char *type = scans[k].type;
  bool is_product = strcmp(scans[k].op, "multiply") == 0;
  int n = scans[k].n;
  double init = is_product || strcmp(scans[k].op, "and") == 0 ? 1 : strcmp(scans[k].op, "minimum") == 0 ? 9 : 0;
  char text[1024], what[128];
  WEFT_AUTO(hlo_module) module = NULL;
  hlo_literal *x, *first, *want;
  uint64_t state = k + 1;
  ptx_stats stats = {0};
  weft_arena arena;
  gen_artefact a;

  write_scan(k, text, sizeof text);
  snprintf(what, sizeof what, "scan %d, %s of %s[%d,%d,%d]", (int)k, scans[k].op, type, scans[k].outer, n,
           scans[k].inner);
  weft_arena_init(&arena);
  weft_status *st = hlo_parse(text, strlen(text), &module);
  if (st) fail_msg("%s: %s", what, weft_status_message(st));
  const hlo_instr *root = module->entry->root;
  skip_without_target(root);
  T_TRUE(gen_nvptx_takes(root));
  T_OK(hlo_literal_new(&arena, root->shape, &x));
  T_OK(hlo_literal_new(&arena, root->shape, &want));
  T_OK(hlo_literal_new(&arena, module->entry->params[1]->shape, &first));
  for (int64_t i = 0; i < hlo_shape_elems(x->shape); i++) {
    double v = (double)(next_random(&state) % 2);
    hlo_literal_set_f64(x, i, is_product ? 1 - 2 * v : v, weft_dtype_is_complex(x->shape->type) ? 1 - v : 0);
  }
  hlo_literal_set_f64(first, 0, init, 0);
  scan_by_loop(k, x, init, want);
  const hlo_literal *const inputs[] = {x, first};
  T_OK(gen_nvptx_compile(root, processors[k % 3], &options, &a));
  hlo_literal *got = empty_literal(&arena, root->shape);
  run_artefact(&a, inputs, 2, got, (int)(k / 3), NULL, what);
  if (!same_bits(got, want)) fail_msg("%s: not the sums\n%s", what, a.text);
  T_EQ_INT(a.launch_count, scans[k].launches);
  run_artefact(&a, inputs, 2, got, 0, &stats, what);
  double bytes = 2 * (double)hlo_shape_bytes(root->shape), moved = (double)stats.sectors * 32 / bytes;
  double issue = issue_time(gen_gpu_target("H200"), &stats, bytes);
  print_message("# %-44s %d launches, %.2f times the sectors, %.2f of the memory's time\n", what, a.launch_count, moved,
                issue);
  if (scans[k].moved > 0 && moved > scans[k].moved)
    fail_msg("%s: %.2f times the sectors that it must move", what, moved);
  gen_artefact_fini(&a);
  weft_arena_fini(&arena);
}

TEST(scans_read_each_element_once_or_twice)
{
  for (size_t k = 0; k < WEFT_COUNT(scans); k++) check_scan(k);
}

/* ---- permutations ------------------------------------------------------------------------------------------------ */

/* The permutation of the rows after exchanges that are done one after another. A pivot that is no row, of which there
 * are a few, exchanges nothing and reaches no memory. */
static void check_permutation(int matrices, int pivots, int rows, int round)
{
  char text[512], what[64];
  WEFT_AUTO(hlo_module) module = NULL;
  uint64_t state = (uint64_t)rows;
  hlo_literal *x, *want;
  weft_arena arena;
  gen_artefact a;

  snprintf(text, sizeof text,
           "HloModule m\n"
           "ENTRY e {\n"
           "  x = s32[%d,%d] parameter(0)\n"
           "  ROOT r = s32[%d,%d] custom-call(x), custom_call_target=\"cu_lu_pivots_to_permutation\"\n"
           "}\n",
           matrices, pivots, matrices, rows);
  snprintf(what, sizeof what, "%d exchanges of %d rows", pivots, rows);
  weft_arena_init(&arena);
  T_OK(hlo_parse(text, strlen(text), &module));
  const hlo_instr *root = module->entry->root;
  skip_without_target(root);
  T_OK(hlo_literal_new(&arena, root->operands[0]->shape, &x));
  T_OK(hlo_literal_new(&arena, root->shape, &want));
  for (int m = 0; m < matrices; m++) {
    int32_t *exchange = (int32_t *)x->data + m * pivots, *row = (int32_t *)want->data + m * rows;
    for (int i = 0; i < rows; i++) row[i] = i;
    for (int i = 0; i < pivots; i++) {
      int32_t mine = row[i], other = i + (int32_t)(next_random(&state) % (uint64_t)(rows - i));
      exchange[i] = i % 7 == 3 ? (i % 2 ? -1 - i : rows + i) : other;
      if (i % 7 == 3) continue;
      row[i] = row[other];
      row[other] = mine;
    }
  }
  T_OK(gen_nvptx_compile(root, processors[round % 3], &options, &a));
  hlo_literal *got = empty_literal(&arena, root->shape);
  run_artefact(&a, (const hlo_literal *const[]){x}, 1, got, round, NULL, what);
  T_TRUE(identical(got, want));
  gen_artefact_fini(&a);
  weft_arena_fini(&arena);
}

TEST(rows_are_permuted_by_their_exchanges)
{
  static const int sizes[][3] = {{1, 1, 1}, {3, 5, 5}, {2, 7, 300}, {1, 0, 9}, {5, 129, 129}, {2, 50, 20000}};

  for (int k = 0; k < (int)WEFT_COUNT(sizes); k++) check_permutation(sizes[k][0], sizes[k][1], sizes[k][2], k);
}

/* ---- what kernels move ----------------------------------------------------------------------------------------- */

#define SUM \
  "add {\n" \
  "  a = @[] parameter(0)\n" \
  "  b = @[] parameter(1)\n" \
  "  ROOT c = @[] add(a, b)\n" \
  "}\n"
/* Fusions of arrays of A x B elements, and of rows of weights: each operand is to be read once, and each result written
 * once, but for a tenth more. `sectors`: at most so many times the sectors that hold these bytes. type: NULL is f32.
 * issue: the instructions may take so many times as long as the memory; 0 is 1. */
static const struct { const char *name, *text; int a, b; double bytes, sectors; int least_blocks; const char *type; double issue; } movers[] = {
  {"elements",
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  y = @[A,B] parameter(1)\n"
   "  ROOT r = @[A,B] add(x, y)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  y = @[A,B] parameter(1)\n"
   "  ROOT r = @[A,B] fusion(x, y), kind=kLoop, calls=f\n"
   "}\n", 512, 512, 1.1, 1.0, 132},
  {"elements with a row of weights",
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  w = @[B] parameter(1)\n"
   "  b = @[A,B] broadcast(w), dimensions={1}\n"
   "  ROOT r = @[A,B] multiply(x, b)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  w = @[B] parameter(1)\n"
   "  ROOT r = @[A,B] fusion(x, w), kind=kLoop, calls=f\n"
   "}\n", 4096, 1024, 1.1, 1.1, 132},
  {"elements with a scale and a bias",
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  w = @[B] parameter(1)\n"
   "  v = @[B] parameter(2)\n"
   "  wb = @[A,B] broadcast(w), dimensions={1}\n"
   "  vb = @[A,B] broadcast(v), dimensions={1}\n"
   "  y = @[A,B] multiply(x, wb)\n"
   "  ROOT r = @[A,B] add(y, vb)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  w = @[B] parameter(1)\n"
   "  v = @[B] parameter(2)\n"
   "  ROOT r = @[A,B] fusion(x, w, v), kind=kLoop, calls=f\n"
   "}\n", 8192, 1024, 1.1, 1.1, 132},
  {"elements with weights of odd rows",
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  w = @[B] parameter(1)\n"
   "  v = @[B] parameter(2)\n"
   "  wb = @[A,B] broadcast(w), dimensions={1}\n"
   "  vb = @[A,B] broadcast(v), dimensions={1}\n"
   "  y = @[A,B] multiply(x, wb)\n"
   "  ROOT r = @[A,B] add(y, vb)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  w = @[B] parameter(1)\n"
   "  v = @[B] parameter(2)\n"
   "  ROOT r = @[A,B] fusion(x, w, v), kind=kLoop, calls=f\n"
   "}\n", 8195, 1001, 1.4, 1.4, 132},
  {"elements with weights of bf16",
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  w = @[B] parameter(1)\n"
   "  v = @[B] parameter(2)\n"
   "  wb = @[A,B] broadcast(w), dimensions={1}\n"
   "  vb = @[A,B] broadcast(v), dimensions={1}\n"
   "  y = @[A,B] multiply(x, wb)\n"
   "  ROOT r = @[A,B] add(y, vb)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  w = @[B] parameter(1)\n"
   "  v = @[B] parameter(2)\n"
   "  ROOT r = @[A,B] fusion(x, w, v), kind=kLoop, calls=f\n"
   "}\n", 16384, 640, 1.1, 1.1, 132, "bf16"},
  {"sums of rows",
   SUM
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  z = @[] constant(0)\n"
   "  ROOT s = @[A] reduce(x, z), dimensions={1}, to_apply=add\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  ROOT r = @[A] fusion(x), kind=kCustom, calls=f\n"
   "}\n", 512, 1000, 1.1, 1.1, 132},
  {"softmax",
   SUM MAX
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  z = @[] constant(0)\n"
   "  l = @[] constant(-inf)\n"
   "  m = @[A] reduce(x, l), dimensions={1}, to_apply=max\n"
   "  mb = @[A,B] broadcast(m), dimensions={0}\n"
   "  d = @[A,B] subtract(x, mb)\n"
   "  e = @[A,B] exponential(d)\n"
   "  s = @[A] reduce(e, z), dimensions={1}, to_apply=add\n"
   "  sb = @[A,B] broadcast(s), dimensions={0}\n"
   "  ROOT r = @[A,B] divide(e, sb)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  ROOT r = @[A,B] fusion(x), kind=kCustom, calls=f\n"
   "}\n", 256, 3000, 1.1, 1.1, 132},
  {"softmax of rows in registers",
   SUM MAX
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  z = @[] constant(0)\n"
   "  l = @[] constant(-inf)\n"
   "  m = @[A] reduce(x, l), dimensions={1}, to_apply=max\n"
   "  mb = @[A,B] broadcast(m), dimensions={0}\n"
   "  d = @[A,B] subtract(x, mb)\n"
   "  e = @[A,B] exponential(d)\n"
   "  s = @[A] reduce(e, z), dimensions={1}, to_apply=add\n"
   "  sb = @[A,B] broadcast(s), dimensions={0}\n"
   "  ROOT r = @[A,B] divide(e, sb)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  ROOT r = @[A,B] fusion(x), kind=kCustom, calls=f\n"
   "}\n", 4, 32768, 1.1, 1.1, 4},
  {"softmax of rows partly in shared memory",
   SUM MAX
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  z = @[] constant(0)\n"
   "  l = @[] constant(-inf)\n"
   "  m = @[A] reduce(x, l), dimensions={1}, to_apply=max\n"
   "  mb = @[A,B] broadcast(m), dimensions={0}\n"
   "  d = @[A,B] subtract(x, mb)\n"
   "  e = @[A,B] exponential(d)\n"
   "  s = @[A] reduce(e, z), dimensions={1}, to_apply=add\n"
   "  sb = @[A,B] broadcast(s), dimensions={0}\n"
   "  ROOT r = @[A,B] divide(e, sb)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  ROOT r = @[A,B] fusion(x), kind=kCustom, calls=f\n"
   "}\n", 4, 131072, 1.4, 1.4, 4},
  {"softmax of a vocabulary of 32000",
   SUM MAX
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  z = @[] constant(0)\n"
   "  l = @[] constant(-inf)\n"
   "  m = @[A] reduce(x, l), dimensions={1}, to_apply=max\n"
   "  mb = @[A,B] broadcast(m), dimensions={0}\n"
   "  d = @[A,B] subtract(x, mb)\n"
   "  e = @[A,B] exponential(d)\n"
   "  s = @[A] reduce(e, z), dimensions={1}, to_apply=add\n"
   "  sb = @[A,B] broadcast(s), dimensions={0}\n"
   "  ROOT r = @[A,B] divide(e, sb)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  ROOT r = @[A,B] fusion(x), kind=kCustom, calls=f\n"
   "}\n", 2, 32000, 1.1, 1.1, 2},
  {"softmax of a vocabulary of 50257",
   SUM MAX
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  z = @[] constant(0)\n"
   "  l = @[] constant(-inf)\n"
   "  m = @[A] reduce(x, l), dimensions={1}, to_apply=max\n"
   "  mb = @[A,B] broadcast(m), dimensions={0}\n"
   "  d = @[A,B] subtract(x, mb)\n"
   "  e = @[A,B] exponential(d)\n"
   "  s = @[A] reduce(e, z), dimensions={1}, to_apply=add\n"
   "  sb = @[A,B] broadcast(s), dimensions={0}\n"
   "  ROOT r = @[A,B] divide(e, sb)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  ROOT r = @[A,B] fusion(x), kind=kCustom, calls=f\n"
   "}\n", 2, 50257, 1.1, 1.3, 2},
  {"softmax of 32000 in bf16",
   SUM MAX
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  z = @[] constant(0)\n"
   "  l = @[] constant(-inf)\n"
   "  m = @[A] reduce(x, l), dimensions={1}, to_apply=max\n"
   "  mb = @[A,B] broadcast(m), dimensions={0}\n"
   "  d = @[A,B] subtract(x, mb)\n"
   "  e = @[A,B] exponential(d)\n"
   "  s = @[A] reduce(e, z), dimensions={1}, to_apply=add\n"
   "  sb = @[A,B] broadcast(s), dimensions={0}\n"
   "  ROOT r = @[A,B] divide(e, sb)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  ROOT r = @[A,B] fusion(x), kind=kCustom, calls=f\n"
   "}\n", 2, 32000, 1.1, 1.1, 2, "bf16"},
  {"softmax of 50257 in bf16",
   SUM MAX
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  z = @[] constant(0)\n"
   "  l = @[] constant(-inf)\n"
   "  m = @[A] reduce(x, l), dimensions={1}, to_apply=max\n"
   "  mb = @[A,B] broadcast(m), dimensions={0}\n"
   "  d = @[A,B] subtract(x, mb)\n"
   "  e = @[A,B] exponential(d)\n"
   "  s = @[A] reduce(e, z), dimensions={1}, to_apply=add\n"
   "  sb = @[A,B] broadcast(s), dimensions={0}\n"
   "  ROOT r = @[A,B] divide(e, sb)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  ROOT r = @[A,B] fusion(x), kind=kCustom, calls=f\n"
   "}\n", 2, 50257, 1.1, 1.3, 2, "bf16"},
  {"logsumexp of a vocabulary of 50257",
   SUM MAX
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  z = @[] constant(0)\n"
   "  l = @[] constant(-inf)\n"
   "  m = @[A] reduce(x, l), dimensions={1}, to_apply=max\n"
   "  mb = @[A,B] broadcast(m), dimensions={0}\n"
   "  d = @[A,B] subtract(x, mb)\n"
   "  e = @[A,B] exponential(d)\n"
   "  s = @[A] reduce(e, z), dimensions={1}, to_apply=add\n"
   "  g = @[A] log(s)\n"
   "  ROOT r = @[A] add(g, m)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  ROOT r = @[A] fusion(x), kind=kCustom, calls=f\n"
   "}\n", 2, 50257, 1.1, 1.3, 2},
  {"logsumexp of a vocabulary of 50257 in bf16",
   SUM MAX
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  z = @[] constant(0)\n"
   "  l = @[] constant(-inf)\n"
   "  m = @[A] reduce(x, l), dimensions={1}, to_apply=max\n"
   "  mb = @[A,B] broadcast(m), dimensions={0}\n"
   "  d = @[A,B] subtract(x, mb)\n"
   "  e = @[A,B] exponential(d)\n"
   "  s = @[A] reduce(e, z), dimensions={1}, to_apply=add\n"
   "  g = @[A] log(s)\n"
   "  ROOT r = @[A] add(g, m)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  ROOT r = @[A] fusion(x), kind=kCustom, calls=f\n"
   "}\n", 2, 50257, 1.1, 1.3, 2, "bf16", 1.7},
  {"norm of rows of 40000",
   SUM
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  w = @[B] parameter(1)\n"
   "  z = @[] constant(0)\n"
   "  q = @[A,B] multiply(x, x)\n"
   "  s = @[A] reduce(q, z), dimensions={1}, to_apply=add\n"
   "  v = @[A] rsqrt(s)\n"
   "  sb = @[A,B] broadcast(v), dimensions={0}\n"
   "  wb = @[A,B] broadcast(w), dimensions={1}\n"
   "  y = @[A,B] multiply(x, wb)\n"
   "  ROOT r = @[A,B] multiply(y, sb)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  w = @[B] parameter(1)\n"
   "  ROOT r = @[A,B] fusion(x, w), kind=kCustom, calls=f\n"
   "}\n", 3, 40000, 1.55, 1.55, 3},
  {"norm about the mean of rows of 65536", /* on sm_75, loops beside 24 columns of each thread spill registers */
   SUM
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  w = @[B] parameter(1)\n"
   "  z = @[] constant(0)\n"
   "  t = @[A] reduce(x, z), dimensions={1}, to_apply=add\n"
   "  mb = @[A,B] broadcast(t), dimensions={0}\n"
   "  d = @[A,B] subtract(x, mb)\n"
   "  q = @[A,B] multiply(d, d)\n"
   "  s = @[A] reduce(q, z), dimensions={1}, to_apply=add\n"
   "  v = @[A] rsqrt(s)\n"
   "  sb = @[A,B] broadcast(v), dimensions={0}\n"
   "  wb = @[A,B] broadcast(w), dimensions={1}\n"
   "  y = @[A,B] multiply(d, sb)\n"
   "  ROOT r = @[A,B] multiply(y, wb)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  w = @[B] parameter(1)\n"
   "  ROOT r = @[A,B] fusion(x, w), kind=kCustom, calls=f\n"
   "}\n", 2, 65536, 1.25, 1.25, 2},
  {"softmax of short rows",
   SUM MAX
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  z = @[] constant(0)\n"
   "  l = @[] constant(-inf)\n"
   "  m = @[A] reduce(x, l), dimensions={1}, to_apply=max\n"
   "  mb = @[A,B] broadcast(m), dimensions={0}\n"
   "  d = @[A,B] subtract(x, mb)\n"
   "  e = @[A,B] exponential(d)\n"
   "  s = @[A] reduce(e, z), dimensions={1}, to_apply=add\n"
   "  sb = @[A,B] broadcast(s), dimensions={0}\n"
   "  ROOT r = @[A,B] divide(e, sb)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  ROOT r = @[A,B] fusion(x), kind=kCustom, calls=f\n"
   "}\n", 4096, 64, 1.1, 1.1, 132},
  {"norm",
   SUM
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  w = @[A,B] parameter(1)\n"
   "  z = @[] constant(0)\n"
   "  q = @[A,B] multiply(x, x)\n"
   "  s = @[A] reduce(q, z), dimensions={1}, to_apply=add\n"
   "  v = @[A] rsqrt(s)\n"
   "  sb = @[A,B] broadcast(v), dimensions={0}\n"
   "  y = @[A,B] multiply(x, w)\n"
   "  ROOT r = @[A,B] multiply(y, sb)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  w = @[A,B] parameter(1)\n"
   "  ROOT r = @[A,B] fusion(x, w), kind=kCustom, calls=f\n"
   "}\n", 256, 4096, 1.1, 1.1, 132},
  {"norm with a row of weights",
   SUM
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  w = @[B] parameter(1)\n"
   "  z = @[] constant(0)\n"
   "  q = @[A,B] multiply(x, x)\n"
   "  s = @[A] reduce(q, z), dimensions={1}, to_apply=add\n"
   "  v = @[A] rsqrt(s)\n"
   "  sb = @[A,B] broadcast(v), dimensions={0}\n"
   "  wb = @[A,B] broadcast(w), dimensions={1}\n"
   "  y = @[A,B] multiply(x, wb)\n"
   "  ROOT r = @[A,B] multiply(y, sb)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  w = @[B] parameter(1)\n"
   "  ROOT r = @[A,B] fusion(x, w), kind=kCustom, calls=f\n"
   "}\n", 16384, 768, 1.1, 1.1, 132},
  {"layer norm with weights",
   SUM
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  w = @[B] parameter(1)\n"
   "  b = @[B] parameter(2)\n"
   "  z = @[] constant(0)\n"
   "  n = @[] constant(0.001)\n"
   "  nb = @[A] broadcast(n), dimensions={}\n"
   "  t = @[A] reduce(x, z), dimensions={1}, to_apply=add\n"
   "  m = @[A] multiply(t, nb)\n"
   "  mb = @[A,B] broadcast(m), dimensions={0}\n"
   "  d = @[A,B] subtract(x, mb)\n"
   "  q = @[A,B] multiply(d, d)\n"
   "  s = @[A] reduce(q, z), dimensions={1}, to_apply=add\n"
   "  v = @[A] rsqrt(s)\n"
   "  sb = @[A,B] broadcast(v), dimensions={0}\n"
   "  wb = @[A,B] broadcast(w), dimensions={1}\n"
   "  bb = @[A,B] broadcast(b), dimensions={1}\n"
   "  y = @[A,B] multiply(d, sb)\n"
   "  u = @[A,B] multiply(y, wb)\n"
   "  ROOT r = @[A,B] add(u, bb)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  w = @[B] parameter(1)\n"
   "  b = @[B] parameter(2)\n"
   "  ROOT r = @[A,B] fusion(x, w, b), kind=kCustom, calls=f\n"
   "}\n", 4096, 4096, 1.1, 1.1, 132},
  {"layer norm of short rows",
   SUM
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  w = @[B] parameter(1)\n"
   "  b = @[B] parameter(2)\n"
   "  z = @[] constant(0)\n"
   "  n = @[] constant(0.001)\n"
   "  nb = @[A] broadcast(n), dimensions={}\n"
   "  t = @[A] reduce(x, z), dimensions={1}, to_apply=add\n"
   "  m = @[A] multiply(t, nb)\n"
   "  mb = @[A,B] broadcast(m), dimensions={0}\n"
   "  d = @[A,B] subtract(x, mb)\n"
   "  q = @[A,B] multiply(d, d)\n"
   "  s = @[A] reduce(q, z), dimensions={1}, to_apply=add\n"
   "  v = @[A] rsqrt(s)\n"
   "  sb = @[A,B] broadcast(v), dimensions={0}\n"
   "  wb = @[A,B] broadcast(w), dimensions={1}\n"
   "  bb = @[A,B] broadcast(b), dimensions={1}\n"
   "  y = @[A,B] multiply(d, sb)\n"
   "  u = @[A,B] multiply(y, wb)\n"
   "  ROOT r = @[A,B] add(u, bb)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  w = @[B] parameter(1)\n"
   "  b = @[B] parameter(2)\n"
   "  ROOT r = @[A,B] fusion(x, w, b), kind=kCustom, calls=f\n"
   "}\n", 30000, 512, 1.1, 1.1, 132},
  {"norm of bf16 with a row of weights",
   SUM
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  w = @[B] parameter(1)\n"
   "  z = @[] constant(0)\n"
   "  q = @[A,B] multiply(x, x)\n"
   "  s = @[A] reduce(q, z), dimensions={1}, to_apply=add\n"
   "  v = @[A] rsqrt(s)\n"
   "  sb = @[A,B] broadcast(v), dimensions={0}\n"
   "  wb = @[A,B] broadcast(w), dimensions={1}\n"
   "  y = @[A,B] multiply(x, wb)\n"
   "  ROOT r = @[A,B] multiply(y, sb)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  w = @[B] parameter(1)\n"
   "  ROOT r = @[A,B] fusion(x, w), kind=kCustom, calls=f\n"
   "}\n", 8192, 2048, 1.1, 1.1, 132, "bf16"},
  {"sums of columns",
   SUM
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  z = @[] constant(0)\n"
   "  ROOT s = @[B] reduce(x, z), dimensions={0}, to_apply=add\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  ROOT r = @[B] fusion(x), kind=kCustom, calls=f\n"
   "}\n", 8192, 128, 1.1, 1.1, 132},
  {"one sum",
   SUM
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  z = @[] constant(0)\n"
   "  ROOT s = @[A] reduce(x, z), dimensions={1}, to_apply=add\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  ROOT r = @[A] fusion(x), kind=kCustom, calls=f\n"
   "}\n", 1, 1 << 21, 1.1, 1.1, 132},
  {"transpose",
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  t = @[B,A] transpose(x), dimensions={1,0}\n"
   "  ROOT r = @[B,A] negate(t)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  ROOT r = @[B,A] fusion(x), kind=kLoop, calls=f\n"
   "}\n", 512, 512, 1.1, 1.5, 132},
  {"elements of bf16",
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  y = @[A,B] parameter(1)\n"
   "  ROOT r = @[A,B] add(x, y)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  y = @[A,B] parameter(1)\n"
   "  ROOT r = @[A,B] fusion(x, y), kind=kLoop, calls=f\n"
   "}\n", 512, 512, 1.1, 1.0, 132, "bf16"},
  {"norm of bf16",
   SUM
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  w = @[A,B] parameter(1)\n"
   "  z = @[] constant(0)\n"
   "  q = @[A,B] multiply(x, x)\n"
   "  s = @[A] reduce(q, z), dimensions={1}, to_apply=add\n"
   "  v = @[A] rsqrt(s)\n"
   "  sb = @[A,B] broadcast(v), dimensions={0}\n"
   "  y = @[A,B] multiply(x, w)\n"
   "  ROOT r = @[A,B] multiply(y, sb)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  w = @[A,B] parameter(1)\n"
   "  ROOT r = @[A,B] fusion(x, w), kind=kCustom, calls=f\n"
   "}\n", 256, 4096, 1.1, 1.1, 132, "bf16"},
  {"sums of columns of bf16",
   SUM
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  z = @[] constant(0)\n"
   "  ROOT s = @[B] reduce(x, z), dimensions={0}, to_apply=add\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  ROOT r = @[B] fusion(x), kind=kCustom, calls=f\n"
   "}\n", 8192, 128, 1.2, 1.2, 132, "bf16"},
  {"transpose of bf16",
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  t = @[B,A] transpose(x), dimensions={1,0}\n"
   "  ROOT r = @[B,A] negate(t)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  ROOT r = @[B,A] fusion(x), kind=kLoop, calls=f\n"
   "}\n", 512, 512, 1.1, 1.5, 132, "bf16"},
  {"scatter of sorted rows",
   SUM
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  u = @[A,B] parameter(1)\n"
   "  n = s32[A,1] iota(), iota_dimension=0\n"
   "  o = s32[A,1] broadcast(s32[] constant(1)), dimensions={}\n"
   "  i = s32[A,1] shift-right-logical(n, o)\n"
   "  ROOT r = @[A,B] scatter(x, i, u), update_window_dims={1}, "
   "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, indices_are_sorted=true, "
   "to_apply=add\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  u = @[A,B] parameter(1)\n"
   "  ROOT r = @[A,B] fusion(x, u), kind=kCustom, calls=f\n"
   "}\n", 2048, 64, 1.7, 1.7, 132},
  {"transpose of odd sizes",
   "f {\n"
   "  x = @[A,B] parameter(0)\n"
   "  t = @[B,A] transpose(x), dimensions={1,0}\n"
   "  ROOT r = @[B,A] negate(t)\n"
   "}\n"
   "ENTRY e {\n"
   "  x = @[A,B] parameter(0)\n"
   "  ROOT r = @[B,A] fusion(x), kind=kLoop, calls=f\n"
   "}\n", 511, 513, 1.1, 1.5, 132},
};

/* ---- NVIDIA's assembler ------------------------------------------------------------------------------------------ */

/* Sums over all kernels that ptxas assembled. */
typedef struct assembled {
  const char *ptxas;
  char folder[64];
  int kernels, most_registers, stack, spilled;
} assembled;

/* Gives the instruction's kernels to ptxas. An error of ptxas fails the test; kernels whose registers are spilled to
 * memory are named and counted. */
static void assemble(const hlo_instr *root, const char *processor, const char *what, assembled *all)
{
  char path[128], command[512], line[512];
  gen_artefact a;

  T_OK(gen_nvptx_compile(root, processor, &options, &a));
  snprintf(path, sizeof path, "%s/kernel.ptx", all->folder);
  FILE *f = fopen(path, "w");
  T_TRUE(f && fputs(a.text, f) >= 0 && fclose(f) == 0);
  snprintf(command, sizeof command, "'%s' -v -arch=%s -o '%s/kernel.cubin' '%s' 2>&1", all->ptxas, processor,
           all->folder, path);
  FILE *log = popen(command, "r");
  T_TRUE(log);
  while (fgets(line, sizeof line, log)) {
    int stack, stores, loads, registers;
    const char *used = strstr(line, "Used ");
    if (strstr(line, "error") || strstr(line, "fatal")) fail_msg("%s (%s): %s\n%s", what, processor, line, a.text);
    if (used && sscanf(used, "Used %d registers", &registers) == 1) {
      all->kernels++;
      all->most_registers = WEFT_MAX(all->most_registers, registers);
    }
    if (sscanf(line, " %d bytes stack frame, %d bytes spill stores, %d bytes spill loads", &stack, &stores, &loads) !=
        3)
      continue;
    if (stores + loads) print_message("# %s (%s): %d bytes of registers spilled\n", what, processor, stores);
    if (stores + loads && getenv("WEFT_TEST_VERBOSE")) print_message("%s\n", a.text);
    all->spilled += stores + loads > 0;
    if (stack) print_message("# %s (%s): %d bytes of stack\n", what, processor, stack);
    all->stack += stack > 0;
  }
  if (pclose(log)) fail_msg("%s (%s): ptxas failed\n%s", what, processor, a.text);
  gen_artefact_fini(&a);
}

static void assemble_text(const char *text, const char *what, assembled *all)
{
  WEFT_AUTO(hlo_module) module = NULL;
  weft_status *st = hlo_parse(text, strlen(text), &module);

  if (st) fail_msg("%s: %s\n%s", what, weft_status_message(st), text);
  for (size_t p = 0; p < WEFT_COUNT(processors); p++) assemble(module->entry->root, processors[p], what, all);
}

/* WEFT_CUDA_PTXAS names the program; else it is looked for where programs are.
 * WEFT_TEST_SEEDS counts the random programs. */
TEST(ptxas_takes_all_kernels_and_spills_no_register)
{
  const char *seeds = getenv("WEFT_TEST_SEEDS"), *first = getenv("WEFT_TEST_SEED"), *named = getenv("WEFT_CUDA_PTXAS");
  assembled all = {.ptxas = named ? named : "ptxas", .folder = "/tmp/weft-ptxas-XXXXXX"};
  int count = seeds ? atoi(seeds) : 4, from = first ? atoi(first) : 1;
  char command[512], what[128], text[4096];

  snprintf(command, sizeof command, "'%s' --version >/dev/null 2>&1", all.ptxas);
  if (getenv("WEFT_SANITIZED")) T_SKIP("the builds without a sanitizer give ptxas the same kernels");
  if (system(command))
    T_SKIP("there is no ptxas: WEFT_CUDA_PTXAS names none, and PATH has none (pip install nvidia-cuda-nvcc-cu12)");
  T_TRUE(mkdtemp(all.folder));
  /* Eight reductions of 31 bytes, and sines in a loop: as straight code, they want more registers than there are.
   * Five reductions inside each other: ptxas spills some of 88 registers where it chooses how many blocks fit. */
  static const int found[] = {271, 47, 338};
  for (int i = 0; i < count + (int)WEFT_COUNT(found); i++) {
    int seed = i < count ? from + i : found[i - count];
    const hlo_literal *arguments[ARGUMENTS];
    weft_arena arena;
    weft_arena_init(&arena);
    WEFT_AUTO(hlo_module) module = random_kernel((uint64_t)seed, false, &arena, arguments);
    if (i == 0) skip_without_target(module->entry->root);
    snprintf(what, sizeof what, "seed %d", seed);
    for (size_t p = 0; p < WEFT_COUNT(processors); p++) assemble(module->entry->root, processors[p], what, &all);
    weft_arena_fini(&arena);
  }
  for (size_t k = 0; k < WEFT_COUNT(themes); k++) {
    int sizes[3] = {themes[k].most[0], themes[k].most[1], themes[k].most[2]};
    for (int i = 0; i < 3; i++) sizes[i] = WEFT_MAX(sizes[i], 5);
    write_theme(&themes[k], themes[k].floats ? "f32" : theme_types[k % 5], sizes, text, sizeof text);
    assemble_text(text, themes[k].name, &all);
  }
  for (size_t k = 0; k < WEFT_COUNT(movers); k++) {
    int sizes[3] = {movers[k].a, movers[k].b, 0};
    write_theme(&(theme){.text = movers[k].text}, movers[k].type ? movers[k].type : "f32", sizes, text, sizeof text);
    assemble_text(text, movers[k].name, &all);
  }
  for (size_t k = 0; k < WEFT_COUNT(radix_sorts); k++) {
    snprintf(what, sizeof what, "radix sort %d", (int)k);
    write_radix(&radix_sorts[k], k % 4 == 3, text, sizeof text);
    assemble_text(text, what, &all);
  }
  for (size_t k = 0; k < WEFT_COUNT(scans); k++) {
    snprintf(what, sizeof what, "scan %d", (int)k);
    write_scan(k, text, sizeof text);
    assemble_text(text, what, &all);
  }
  print_message("# %d kernels, at most %d registers, %d with a stack\n", all.kernels, all.most_registers, all.stack);
  snprintf(command, sizeof command, "rm -r '%s'", all.folder);
  T_EQ_INT(system(command), 0);
  T_EQ_INT(all.spilled, 0);
}

/* ---- broken kernels --------------------------------------------------------------------------------------------- */

enum { WITH_WEIGHTS = 23 }; /* the themes from here on are for small machines */
/* A kernel of the theme number `theme`, in whose text every `from` is `to` instead. */
static const struct { int theme, a, b, c; const char *from, *to; } breaks[] = {
  {0, 5, 300, 1, "bar.sync \t0;", ""}, {0, 5, 300, 1, "add.rn.f32", "sub.rn.f32"}, {0, 5, 300, 1, "max.NaN.f32", "min.NaN.f32"},
  {0, 5, 300, 1, "shfl.sync.bfly.b32", "shfl.sync.down.b32"}, {0, 5, 300, 1, "st.global.f32", "st.global.f64"},
  {1, 7, 200, 1, "mul.rn.f32", "add.rn.f32"}, {1, 7, 200, 1, "shr.u32", "shl.b32"}, {1, 7, 200, 1, ", 16, 31, ", ", 8, 31, "},
  {2, 1, 70000, 1, "add.rn.f32", "sub.rn.f32"}, {2, 1, 70000, 1, "bar.sync \t0;", ""},
  {5, 300, 40, 1, "bar.sync \t0;", ""}, {5, 300, 40, 1, "add.rn.f32", "sub.rn.f32"}, {5, 300, 40, 1, "ld.shared.f32", "ld.shared.f64"},
  {9, 40, 50, 1, "bar.sync \t0;", ""}, {9, 40, 50, 1, "sub.rn.f32", "add.rn.f32"}, {9, 40, 50, 1, "st.shared.f32", "st.shared.f64"},
  {12, 30, 40, 1, "add.rn.f32", "sub.rn.f32"}, {12, 30, 40, 1, "shl.b64", "shr.u64"},
  {14, 20, 50, 1, "add.rn.f32", "sub.rn.f32"}, {15, 30, 40, 20, "add.rn.f32", "sub.rn.f32"}, {19, 30, 40, 20, "shl.b64", "shr.u64"},
  {20, 20, 30, 1, "add.rn.f32", "sub.rn.f32"}, {4, 6, 200, 1, "setp.lt.s32", "setp.gt.s32"}, {4, 6, 200, 1, "bar.sync \t0;", ""},
  {21, 40, 16, 600, "bar.sync \t0;", ""}, {21, 40, 16, 600, "max.s64", "min.s64"}, {21, 40, 16, 600, "popc.b32", "clz.b32"},
  {22, 90, 1, 300, "bar.sync \t0;", ""},
  {23, 37, 100, 12, "add.rn.f32", "sub.rn.f32"}, {23, 37, 100, 12, "mul.rn.f32", "add.rn.f32"},
  {24, 50, 300, 5, "bar.sync \t0;", ""}, {24, 50, 300, 5, "add.rn.f32", "sub.rn.f32"},
  {25, 2, 60000, 1, "st.shared", "// st.shared"}, {25, 2, 60000, 1, "bar.sync \t0;", ""},
};

/* A kernel of the theme number `theme` whose text is right, and whose arguments or launches are not. */
static const struct { int theme, a, b, c; damage damage; } misuses[] = {
  {0, 5, 300, 1, {SHORTER, 0, 0}}, {0, 5, 300, 1, {SHORTER, 1, 0}}, {0, 5, 300, 1, {SHORTER, 2, 0}}, {0, 5, 300, 1, {MISPLACED, 0, 0}},
  {0, 5, 300, 1, {MISPLACED, 2, 0}}, {0, 5, 300, 1, {EXCHANGED, 1, 2}}, {0, 5, 300, 1, {FREED, 0, 0}}, {0, 5, 300, 1, {FREED, 1, 0}},
  {0, 5, 300, 1, {FEWER_BLOCKS, 0, 0}}, {0, 5, 300, 1, {FEWER_THREADS, 0, 0}}, {0, 5, 300, 1, {SAME, 2, 1}},
  {1, 7, 200, 1, {EXCHANGED, 0, 1}},
  {2, 1, 70000, 1, {SHORTER, 1, 0}}, {2, 1, 70000, 1, {FREED, 2, 0}}, {2, 1, 70000, 1, {SAME, 2, 0}}, {2, 1, 70000, 1, {DROPPED, 0, 0}},
  {2, 1, 70000, 1, {DROPPED, 1, 0}}, {2, 1, 70000, 1, {BACKWARDS, 0, 0}}, {2, 1, 70000, 1, {FEWER_BLOCKS, 0, 0}},
  {5, 4000, 40, 1, {BACKWARDS, 0, 0}}, {5, 4000, 40, 1, {MORE_THREADS, 0, 0}},
  {9, 40, 40, 1, {SAME, 1, 0}}, {9, 40, 50, 1, {FEWER_THREADS, 0, 0}}, {9, 40, 50, 1, {MORE_THREADS, 0, 0}},
  {15, 30, 40, 20, {TWICE, 1, 0}}, {15, 30, 40, 20, {DROPPED, 0, 0}}, {15, 30, 40, 20, {BACKWARDS, 0, 0}}, {15, 30, 40, 20, {SAME, 3, 2}},
  {20, 20, 30, 1, {SAME, 1, 0}}, {21, 40, 16, 600, {FEWER_THREADS, 1, 0}}, {21, 40, 16, 600, {TWICE, 1, 0}},
};

/* A kernel of a theme; its text is changed from `from` to `to` if there is one, and it is used as `d` says: that gives
 * a fault, or another result. */
static void check_notices(int number, const int *sizes, const char *from, const char *to, damage d, const char *what)
{
  const theme *theme = &themes[number];
  const hlo_literal *inputs[4];
  WEFT_AUTO(hlo_module) module = NULL;
  weft_arena arena;
  gen_artefact a;
  char text[4096];
  uint64_t numbers = 1;
  int fault = 0;

  write_theme(theme, "f32", sizes, text, sizeof text);
  weft_arena_init(&arena);
  T_OK(hlo_parse(text, strlen(text), &module));
  skip_without_target(module->entry->root);
  for (int i = 0; i < module->entry->param_count; i++) {
    hlo_literal *x;
    const hlo_shape *shape = module->entry->params[i]->shape;
    T_OK(hlo_literal_new(&arena, shape, &x));
    fill_theme(x, &numbers, shape->type == WEFT_S32);
    inputs[i] = x;
  }
  gen_target target = *gen_gpu_target("sm_90");
  if (number >= WITH_WEIGHTS) make_small(&target);
  T_OK(gen_nvptx_compile_for(module->entry->root, &target, &options, &a));
  hlo_literal *want = empty_literal(&arena, module->entry->root->shape),
              *got = empty_literal(&arena, module->entry->root->shape);
  run_artefact(&a, inputs, module->entry->param_count, want, 0, NULL, what);
  if (from && !break_text(&a, from, to)) fail_msg("%s: the text has none", what);
  run_or_fault(&a, inputs, module->entry->param_count, got, 0, d, NULL, &fault, what);
  if (!fault && same_bits(got, want)) fail_msg("%s: nobody noticed", what);
  gen_artefact_fini(&a);
  weft_arena_fini(&arena);
}

TEST(broken_kernels_are_noticed)
{
  for (size_t k = 0; k < WEFT_COUNT(breaks); k++) {
    char what[128];
    snprintf(what, sizeof what, "%s with \"%s\" for \"%s\"", themes[breaks[k].theme].name, breaks[k].to,
             breaks[k].from);
    check_notices(breaks[k].theme, (const int[]){breaks[k].a, breaks[k].b, breaks[k].c}, breaks[k].from, breaks[k].to,
                  (damage){NO_DAMAGE}, what);
  }
}

TEST(wrong_arguments_and_launches_are_noticed)
{
  for (size_t k = 0; k < WEFT_COUNT(misuses); k++) {
    char what[128];
    snprintf(what, sizeof what, "misuse %d, of %s", (int)k, themes[misuses[k].theme].name);
    check_notices(misuses[k].theme, (const int[]){misuses[k].a, misuses[k].b, misuses[k].c}, NULL, NULL,
                  misuses[k].damage, what);
  }
}

TEST(kernels_move_little_more_than_they_must)
{
  for (size_t k = 0; k < WEFT_COUNT(movers); k += T_STRIDE(3)) {
    int sizes[3] = {movers[k].a, movers[k].b, 0};
    const hlo_literal *inputs[4];
    WEFT_AUTO(hlo_module) module = NULL;
    gen_artefact a;
    ptx_stats stats = {0};
    weft_arena arena;
    char text[4096];
    uint64_t numbers = 1;

    write_theme(&(theme){.text = movers[k].text}, movers[k].type ? movers[k].type : "f32", sizes, text, sizeof text);
    weft_arena_init(&arena);
    T_OK(hlo_parse(text, strlen(text), &module));
    skip_without_target(module->entry->root);
    double must = (double)hlo_shape_total_bytes(module->entry->root->shape);
    for (int i = 0; i < module->entry->param_count; i++) {
      hlo_literal *x;
      T_OK(hlo_literal_new(&arena, module->entry->params[i]->shape, &x));
      fill_theme(x, &numbers, false);
      inputs[i] = x;
      must += (double)hlo_shape_bytes(x->shape);
    }
    T_OK(gen_nvptx_compile(module->entry->root, "sm_90", &users_options, &a));
    hlo_literal *got = empty_literal(&arena, module->entry->root->shape);
    run_artefact(&a, inputs, module->entry->param_count, got, 0, &stats, movers[k].name);
    double bytes = (double)(stats.bytes_read + stats.bytes_written) / must, sectors = (double)stats.sectors * 32 / must;
    double issue = issue_time(gen_gpu_target("H200"), &stats, must); /* the GPU whose memory leaves the least time */
    print_message(
      "# %-32s %d launches, %5d blocks of %4d: %.2f times the bytes, %.2f times the sectors, %.2f instructions "
      "an element, %.2f of the memory's time\n",
      movers[k].name, a.launch_count, (int)a.launches[0].blocks, a.launches[0].threads, bytes, sectors,
      (double)stats.slots / (movers[k].a * (double)movers[k].b) * 32, issue);
    if (issue > WEFT_MAX(bytes, WEFT_MAX(movers[k].issue, 1)))
      fail_msg("%s: its instructions take %.2f times as long as the memory", movers[k].name, issue);
    if (bytes > movers[k].bytes || sectors > movers[k].sectors)
      fail_msg("%s: %.2f times the bytes that it must move, %.2f times the sectors", movers[k].name, bytes, sectors);
    if (a.launches[0].blocks < movers[k].least_blocks)
      fail_msg("%s: %d blocks", movers[k].name, (int)a.launches[0].blocks);
    gen_artefact_fini(&a);
    weft_arena_fini(&arena);
  }
}

TEST(what_the_grid_lacks_names_itself)
{
  static const struct { const char *text, *part; } cases[] = {
      {"HloModule m\n"
       "f {\n"
       "  x = f32[8] parameter(0)\n"
       "  y = f32[8] negate(x)\n"
       "  ROOT r = f32[8] copy(y)\n"
       "}\n"
       "ENTRY e {\n"
       "  x = f32[8] parameter(0)\n"
       "  ROOT r = f32[8] fusion(x), kind=kCustom, calls=f, backend_config=\"region\"\n"
       "}", "region"},
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

static __attribute__((constructor)) void choose_tests(void) { cmocka_set_test_filter(getenv("WEFT_TEST_FILTER")); }

TEST_MAIN(UNIT(random_kernels_have_the_bits_of_the_hosts), UNIT(rows_are_reduced_by_blocks),
          UNIT(kernels_of_tiles_have_the_bits_of_the_hosts), UNIT(functions_and_quotients_have_the_bits_of_the_hosts),
          UNIT(kernels_move_little_more_than_they_must),
          UNIT(broken_kernels_are_noticed), UNIT(wrong_arguments_and_launches_are_noticed),
          UNIT(sorts_are_stable_and_those_of_the_reference),
          UNIT(sorts_by_a_plain_comparison_keep_nans_and_zeros), UNIT(sorts_by_radix_have_the_bits_of_those_by_merging),
          UNIT(broken_sorts_by_radix_are_noticed),
          UNIT(concatenates_of_many_arrays_move_them_once), UNIT(scans_read_each_element_once_or_twice),
          UNIT(rows_are_permuted_by_their_exchanges), UNIT(ptxas_takes_all_kernels_and_spills_no_register),
          UNIT(what_the_grid_lacks_names_itself))
