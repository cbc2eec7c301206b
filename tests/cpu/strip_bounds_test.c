/* tests/cpu/strip_bounds_test.c -- kernels of chains of pass strips that end at a bound of columns (gen_row_bound). The
 * bits must be those of the kernel that makes whole rows: of the same kernel outside of a chain, and of programs whose
 * dots and kernel are separate steps. */
#include "cpu/against_evaluator.h"

#include <math.h>

#include "codegen/codegen.h"

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

enum { ROWS = 6, MOST_COLUMNS = 321, ARGS = 8, POISON = 0x5a };

/* A kernel of scores s[rows, columns], where the mask `ok` is false (or true, with `is_unwanted`) in columns behind a
 * row's reach. */
typedef struct kernel {
  const char *name, *body;
  bool takes_bound;
  bool more;           /* rows need columns behind the bound */
  bool is_unwanted;
  bool has_empty_row;  /* the mask takes all of the last row but one */
  const char *only;    /* the only type; NULL: any */
} kernel;

#define CONSTANT(name, value) \
  "  " name "c = f32[] constant(" value ")\n" \
  "  " name " = f32[6,NNN] broadcast(" name "c), dimensions={}\n"
#define CHOSEN(value, yes, no) CONSTANT("none", value) "  u = f32[6,NNN] select(ok, " yes ", " no ")\n"
#define REDUCE(to, from, first, by) \
  "  " to "0 = f32[] constant(" first ")\n" \
  "  " to "r = f32[6] reduce(" from ", " to "0), dimensions={1}, to_apply=" by "\n" \
  "  " to " = f32[6,NNN] broadcast(" to "r), dimensions={0}\n"
#define EXPONENTIALS(from) REDUCE("m", from, "-inf", "max") \
  "  d = f32[6,NNN] subtract(" from ", m)\n" \
  "  x = f32[6,NNN] exponential(d)\n"
#define SOFTMAX(from) EXPONENTIALS(from) REDUCE("sum", "x", "0", "add") "  w = f32[6,NNN] divide(x, sum)\n"
#define END(what) "  ROOT p = TYPE[6,NNN] convert(" what ")\n"
/* How far the wanted scores are from a number of the row. */
#define DISTANCES \
  CONSTANT("zero", "0") \
  "  d = f32[6,NNN] subtract(f, m)\n" \
  "  e = f32[6,NNN] select(ok, d, zero)\n" END("e")

static const kernel kernels[] = {
  {"a softmax", CHOSEN("-inf", "f", "none") SOFTMAX("u") END("w"), true, false},
  {"one of a mask that says what is not wanted", CHOSEN("-inf", "none", "f") SOFTMAX("u") END("w"), true, false, true},
  {"one whose masked scores are finite", CHOSEN("-60000", "f", "none") SOFTMAX("u") END("w"), true, false},
  {"a row without scores: NaN", CHOSEN("-inf", "f", "none") SOFTMAX("u") END("w"), true, true, false, true},
  {"a row without scores: equal shares", CHOSEN("-60000", "f", "none") SOFTMAX("u") END("w"), true, true, false, true},
  {"masked scores near the others", CHOSEN("-3", "f", "none") SOFTMAX("u") END("w"), true, true},
  {"masked scores whose shares are rounded to zero, but which count in the sum", CHOSEN("-17", "f", "none") SOFTMAX("u") END("w"), true, true, .only = "f16"},
  {"masked exponentials that are denormal", CHOSEN("-97", "f", "none") SOFTMAX("u") END("w"), true, true, .only = "bf16"},
  {"masked scores that are NaN", CHOSEN("nan", "f", "none") SOFTMAX("u") END("w"), true, true},
  {"shares chosen by the mask again",
   CHOSEN("-60000", "f", "none")
   SOFTMAX("u")
   CONSTANT("zero", "0")
   "  e = f32[6,NNN] select(ok, w, zero)\n"
   END("e"), true, false},
  {"the same with a row without scores",
   CHOSEN("-60000", "f", "none")
   EXPONENTIALS("u")
   CONSTANT("zero", "0")
   "  e = f32[6,NNN] select(ok, x, zero)\n"
   REDUCE("sum", "e", "1", "add")
   "  w = f32[6,NNN] divide(e, sum)\n"
   END("w"), true, false, false, true},
  {"a result of -0 in masked columns",
   CHOSEN("-inf", "f", "none")
   SOFTMAX("u")
   "  e = f32[6,NNN] negate(w)\n"
   END("e"), true, true},
  {"a maximum alone",
   CHOSEN("-inf", "f", "none")
   REDUCE("m", "u", "-inf", "max")
   DISTANCES, true, false},
  {"a maximum that masked columns have",
   CHOSEN("50", "f", "none")
   REDUCE("m", "u", "-inf", "max")
   DISTANCES, true, false},
  {"a minimum that masked columns have",
   CHOSEN("-50", "f", "none")
   REDUCE("m", "u", "inf", "min")
   DISTANCES, true, false},
  {"a minimum of NaN",
   CHOSEN("nan", "f", "none")
   REDUCE("m", "u", "inf", "min")
   DISTANCES, true, true},
  {"a sum",
   CHOSEN("0", "f", "none")
   REDUCE("m", "u", "0", "add")
   "  d = f32[6,NNN] subtract(f, m)\n"
   "  e = f32[6,NNN] select(ok, d, none)\n"
   END("e"), true, false},
  {"a sum of other numbers than zero",
   CHOSEN("1", "f", "none")
   REDUCE("m", "u", "0", "add")
   DISTANCES, true, true},
#define SIGN_OF_SUM(masked, first) \
  CONSTANT("low", "-0") \
  CHOSEN(masked, "low", "none") \
  REDUCE("m", "u", first, "add") \
  CONSTANT("minus", "-1") \
  CONSTANT("zero", "0") \
  "  a = f32[6,NNN] atan2(m, minus)\n" \
  "  e = f32[6,NNN] select(ok, a, zero)\n" END("e")
  {"a sum of -0, and +0 in masked columns", SIGN_OF_SUM("0", "-0"), true, false},
  {"a sum of -0, and -0 in masked columns", SIGN_OF_SUM("-0", "-0"), true, false},
  {"a sum of -0 that begins with +0", SIGN_OF_SUM("-0", "0"), true, false},
  {"a second sum, which needs the first",
   CHOSEN("0", "f", "none")
   REDUCE("m", "u", "1", "add")
   "  d = f32[6,NNN] subtract(u, m)\n"
   "  sq = f32[6,NNN] multiply(d, d)\n"
   REDUCE("v", "sq", "0", "add")
   "  y = f32[6,NNN] divide(d, v)\n"
   "  e = f32[6,NNN] select(ok, y, none)\n"
   END("e"), true, true},
  {"the same, chosen by the mask again",
   CHOSEN("0", "f", "none")
   REDUCE("m", "u", "1", "add")
   "  d = f32[6,NNN] subtract(u, m)\n"
   "  sq = f32[6,NNN] multiply(d, d)\n"
   "  ch = f32[6,NNN] select(ok, sq, none)\n"
   REDUCE("v", "ch", "1", "add")
   "  y = f32[6,NNN] divide(d, v)\n"
   "  e = f32[6,NNN] select(ok, y, none)\n"
   END("e"), true, false},
  {"a number of each column before the mask",
   "  bb = f32[6,NNN] broadcast(bias), dimensions={1}\n"
   "  b = f32[6,NNN] add(f, bb)\n"
   CHOSEN("-inf", "b", "none")
   SOFTMAX("u")
   END("w"), true, false},
  {"a number of each row behind it",
   CHOSEN("-60000", "f", "none")
   "  rb = f32[6,NNN] broadcast(row), dimensions={0}\n"
   "  b = f32[6,NNN] multiply(u, rb)\n"
   SOFTMAX("b")
   END("w"), true, false},
  {"a row's number that turns masked scores into the greatest ones",
   CHOSEN("-60000", "f", "none")
   "  rb = f32[6,NNN] broadcast(row), dimensions={0}\n"
   "  n = f32[6,NNN] negate(rb)\n"
   "  b = f32[6,NNN] multiply(u, n)\n"
   SOFTMAX("b")
   END("w"), true, true},
  {"the mask as a factor",
   CHOSEN("-60000", "f", "none")
   SOFTMAX("u")
   "  okf = f32[6,NNN] convert(ok)\n"
   "  e = f32[6,NNN] multiply(w, okf)\n"
   END("e"), true, false},
  /* masked columns of a row differ */
  {"no mask", SOFTMAX("f") END("w"), false, false},
  {"a number of each column behind the mask",
   CHOSEN("-60000", "f", "none")
   "  bb = f32[6,NNN] broadcast(bias), dimensions={1}\n"
   "  b = f32[6,NNN] add(u, bb)\n"
   SOFTMAX("b")
   END("w"), false, false},
  {"scores behind the mask",
   CHOSEN("-inf", "f", "none")
   SOFTMAX("u")
   "  e = f32[6,NNN] multiply(w, f)\n"
   END("e"), false, false},
  {"a sum of scores without a mask",
   CHOSEN("-inf", "f", "none")
   SOFTMAX("u")
   REDUCE("all", "f", "0", "add")
   "  e = f32[6,NNN] multiply(w, all)\n"
   END("e"), false, false},
  {"a mask that is computed",
   "  i = s32[6,NNN] iota(), iota_dimension=1\n"
   "  lc = s32[] constant(40)\n"
   "  l = s32[6,NNN] broadcast(lc), dimensions={}\n"
   "  own = pred[6,NNN] compare(i, l), direction=LT\n"
   CONSTANT("none", "-inf")
   "  u = f32[6,NNN] select(own, f, none)\n"
   SOFTMAX("u")
   END("w"), false, false},
  {"a product",
   CHOSEN("1", "f", "none")
   REDUCE("m", "u", "1", "times")
   DISTANCES, false, false},
};

/* Copies `text` to `to` with `type` in the place of TYPE and `columns` in that of NNN. */
static void fill_in(char *to, const char *text, const char *type, int columns)
{
  while (*text) {
    bool is_type = strncmp(text, "TYPE", 4) == 0, is_number = strncmp(text, "NNN", 3) == 0;
    to += is_type ? sprintf(to, "%s", type) : is_number ? sprintf(to, "%d", columns) : (*to = *text, 1);
    text += is_type ? 4 : is_number ? 3 : 1;
  }
  *to = 0;
}

#define REDUCER(name, op) \
  name " {\n" \
  "  a = f32[] parameter(0)\n" \
  "  b = f32[] parameter(1)\n" \
  "  ROOT c = f32[] " op "(a, b)\n" \
  "}\n"
#define KERNEL_OPERANDS \
  "  s = TYPE[6,NNN] parameter(0)\n" \
  "  ok = pred[6,NNN] parameter(1)\n" \
  "  bias = f32[NNN] parameter(2)\n" \
  "  row = f32[6] parameter(3)\n"

/* The kernel in a chain, and alone. */
static const char in_chain[] =
  "chain {\n"
  "  q = TYPE[6,8] parameter(0)\n"
  "  k = TYPE[NNN,8] parameter(1)\n"
  "  v = TYPE[NNN,16] parameter(2)\n"
  "  ok = pred[6,NNN] parameter(3)\n"
  "  bias = f32[NNN] parameter(4)\n"
  "  row = f32[6] parameter(5)\n"
  "  s = TYPE[6,NNN] dot(q, k), lhs_contracting_dims={1}, rhs_contracting_dims={1}\n"
  "  p = TYPE[6,NNN] fusion(s, ok, bias, row), kind=kCustom, calls=kernel, backend_config=\"row\"\n"
  "  ROOT y = TYPE[6,16] dot(p, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
  "}\n"
  "ENTRY e {\n"
  "  q = TYPE[6,8] parameter(0)\n"
  "  k = TYPE[NNN,8] parameter(1)\n"
  "  v = TYPE[NNN,16] parameter(2)\n"
  "  ok = pred[6,NNN] parameter(3)\n"
  "  bias = f32[NNN] parameter(4)\n"
  "  row = f32[6] parameter(5)\n"
  "  ROOT y = TYPE[6,16] fusion(q, k, v, ok, bias, row), kind=kCustom, calls=chain, backend_config=\"strips\"\n"
  "}\n";
static const char alone[] =
  "ENTRY e {\n" KERNEL_OPERANDS
  "  ROOT p = TYPE[6,NNN] fusion(s, ok, bias, row), kind=kCustom, calls=kernel, backend_config=\"row\"\n"
  "}\n";

typedef struct compiled {
  hlo_module *module;
  gen_code *code;
  const gen_kernel *kernel;
} compiled;

static compiled compile(const kernel *k, const char *around, const char *type, int columns)
{
  char generic[8192], text[8192];
  compiled c;
  gen_options options;

  snprintf(generic, sizeof generic, "HloModule m, is_scheduled=true\n%skernel {\n%s%s}\n%s",
           REDUCER("max", "maximum") REDUCER("min", "minimum") REDUCER("add", "add") REDUCER("times", "multiply"),
           KERNEL_OPERANDS "  f = f32[6,NNN] convert(s)\n", k->body, around);
  fill_in(text, generic, type, columns);
  T_OK(hlo_parse(text, strlen(text), &c.module));
  T_OK(gen_options_load(&options));
  T_OK(gen_compile(c.module, &options, &c.code));
  const hlo_instr *root = c.module->entry->root;
  c.kernel = gen_code_kernel(c.code, root);
  HLO_FOREACH(x, root->called[0])
    if (!c.kernel && x->op == HLO_FUSION) c.kernel = gen_code_kernel(c.code, x);
  T_TRUE(c.kernel != NULL);
  return c;
}

static void release(compiled *c)
{
  gen_code_free(c->code);
  hlo_module_free(c->module);
}

typedef struct operands {
  _Alignas(64) char s[ROWS * MOST_COLUMNS * 8];
  _Alignas(64) unsigned char ok[ROWS * MOST_COLUMNS];
  _Alignas(64) float bias[MOST_COLUMNS], row[ROWS];
} operands;

/* Numbers of 1/4 as `type`, by way of its literals. */
static void make_operands(const kernel *k, const compiled *c, int columns, int bound, operands *to)
{
  const hlo_shape *shape = c->module->entry->params[0]->shape;
  hlo_literal *scores;
  weft_arena arena;
  unsigned random = (unsigned)(columns * 31 + bound);

  weft_arena_init(&arena);
  T_OK(hlo_literal_new(&arena, shape, &scores));
  for (int r = 0; r < ROWS; r++) {
    int reach = k->has_empty_row && r == ROWS - 2 ? 0 : r == 0 ? bound - 1 : bound - 1 - (r * 29) % (bound - 1);
    for (int j = 0; j < columns; j++) {
      random = random * 1664525u + 1013904223u;
      hlo_literal_set_f64(scores, r * columns + j, (double)(int)(random >> 16 & 31) / 4 - 4, 0);
      to->ok[r * columns + j] = (j < reach) != k->is_unwanted;
    }
    to->row[r] = 0.5f + (float)r;
  }
  for (int j = 0; j < columns; j++) to->bias[j] = (float)(j % 7) / 2;
  memcpy(to->s, scores->data, (size_t)hlo_shape_bytes(shape));
  weft_arena_fini(&arena);
}

/* Runs the kernel for all rows, as two ranges. Returns gen_row_bound.more of both. */
static bool run_kernel(const gen_kernel *kernel, const operands *from, int columns, int bound, void *result)
{
  _Alignas(64) static char scratch[1 << 16];
  gen_row_bound at = {.columns = bound};
  void *args[ARGS] = {(void *)(uintptr_t)from->s, (void *)(uintptr_t)from->ok, (void *)(uintptr_t)from->bias,
                      (void *)(uintptr_t)from->row, result, scratch};
  bool more = false;

  T_TRUE(kernel->arg_count < ARGS && kernel->scratch_bytes <= (int64_t)sizeof scratch);
  T_EQ_INT(kernel->arg_count, 5 + (kernel->scratch_bytes > 0) + kernel->takes_bound);
  if (kernel->takes_bound) args[kernel->arg_count - 1] = &at;
  else T_EQ_INT(bound, columns);
  for (int first = 0; first < ROWS; first += 4) {
    at.more = 0;
    kernel->phases[0].fn(args, first, first + 4 < ROWS ? first + 4 : ROWS);
    T_EQ_INT(at.columns, bound);
    more = more || at.more;
  }
  return more;
}

static bool is_as_wanted(const kernel *k, const char *type, int columns)
{
  static operands from;
  _Alignas(64) static unsigned char whole[ROWS * MOST_COLUMNS * 8], part[ROWS * MOST_COLUMNS * 8];
  compiled c = compile(k, in_chain, type, columns), other = compile(k, alone, type, columns);
  int bytes = strcmp(type, "f32") == 0 ? 4 : strcmp(type, "f64") == 0 ? 8 : 2;
  bool takes = k->takes_bound && columns >= 256 && bytes < 8, ok = c.kernel->takes_bound == takes;

  if (!ok) print_message("# %s of %s, %d columns: takes %s bound\n", k->name, type, columns, takes ? "no" : "a");
  T_TRUE(!other.kernel->takes_bound);
  for (int bound = 64; ok && takes && bound < columns; bound += 64) {
    make_operands(k, &other, columns, bound, &from);
    run_kernel(other.kernel, &from, columns, columns, whole);
    memset(part, POISON, sizeof part);
    bool more = run_kernel(c.kernel, &from, columns, columns, part);
    ok = !more && memcmp(part, whole, (size_t)(ROWS * columns * bytes)) == 0;
    if (!ok) print_message("# %s of %s, %d columns: whole rows are others\n", k->name, type, columns);
    memset(part, POISON, sizeof part);
    more = run_kernel(c.kernel, &from, columns, bound, part);
    for (int r = 0; r < ROWS && !more; r++)
      for (int j = 0; j < columns * bytes; j++) {
        int at = r * columns * bytes + j;
        bool is_made = j < bound * bytes;
        if (part[at] == (is_made ? whole[at] : POISON) && (is_made || whole[at] == 0)) continue;
        print_message("# %s of %s, %d of %d columns: byte %d of row %d is %d of %d\n", k->name, type, bound, columns, j,
                      r, part[at], whole[at]);
        ok = false;
        break;
      }
    if (more == k->more) continue;
    print_message("# %s of %s, %d of %d columns: %s\n", k->name, type, bound, columns,
                  more ? "needs more" : "needs no more");
    ok = false;
  }
  release(&c);
  release(&other);
  return ok;
}

TEST(kernels_end_at_a_bound_and_say_whether_rows_need_more)
{
  static const char *const types[] = {"f32", "bf16", "f16", "f64"};
  static const int columns[] = {64, 257, 256, 255, MOST_COLUMNS, 300};
  bool ok = true;

  for (size_t i = 0; i < WEFT_COUNT(kernels); i++)
    for (size_t t = 0; t < WEFT_COUNT(types); t++)
      for (size_t n = (i + t) % 3; n < WEFT_COUNT(columns); n += 3 * T_STRIDE(2)) { /* in turns */
        if (kernels[i].only && strcmp(kernels[i].only, types[t]) != 0) continue;
        ok = is_as_wanted(&kernels[i], types[t], columns[n]) && ok;
      }
  T_TRUE(ok);
}

/* ---- chains ------------------------------------------------------------------------------------------------------ */

/* Attention whose scores are exact in any order of sums and whose values pick single shares: then all bits are those of
 * separate steps, in which the shares are a result, too. */
enum { HEADS = 3, LENGTH = 90, DEPTH = 8, WIDE = 321 };

typedef enum masked { CAUSAL, WINDOW, LENGTHS, ALL, NONE, ROWS_OF_NOTHING, HALF, MASKS } masked;

static bool is_seen(masked kind, int row, int column, int columns)
{
  int reach = row * 3 + 1;

  switch (kind) {
  case CAUSAL: return column < reach;
  case WINDOW: return column < reach && column > reach - 50;
  case LENGTHS: return column < 70;
  case ALL: return true;
  case NONE: return false;
  case ROWS_OF_NOTHING: return column < reach && row % 40 > 2;
  default: return column < columns / 2 && (row + column) % 3 != 1;
  }
}

static const char attention[] = "HloModule m\n" REDUCER("max", "maximum") REDUCER(
  "add",
  "add") "ENTRY e {\n"
         "  q = TYPE[3,90,8] parameter(0)\n"
         "  k = TYPE[3,NNN,8] parameter(1)\n"
         "  v = TYPE[3,NNN,NNN] parameter(2)\n"
         "  ok = pred[90,NNN] parameter(3)\n"
         "  s = f32[3,90,NNN] dot(q, k), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={2}\n"
         "  okb = pred[3,90,NNN] broadcast(ok), dimensions={1,2}\n"
         "  none = f32[] constant(%s)\n"
         "  nb = f32[3,90,NNN] broadcast(none), dimensions={}\n"
         "  u = f32[3,90,NNN] select(okb, %s)\n"
         "  low = f32[] constant(-inf)\n"
         "  m = f32[3,90] reduce(u, low), dimensions={2}, to_apply=max\n"
         "  mb = f32[3,90,NNN] broadcast(m), dimensions={0,1}\n"
         "  d = f32[3,90,NNN] subtract(u, mb)\n"
         "  x = f32[3,90,NNN] exponential(d)\n"
         "  zero = f32[] constant(0)\n"
         "  sum = f32[3,90] reduce(x, zero), dimensions={2}, to_apply=add\n"
         "  sb = f32[3,90,NNN] broadcast(sum), dimensions={0,1}\n"
         "  w = f32[3,90,NNN] divide(x, sb)\n"
         "  p = TYPE[3,90,NNN] convert(w)\n"
         "  %sy = f32[3,90,NNN] dot(p, v), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}\n"
         "%s}\n";

/* What is wrong in the operands: a NaN or infinity that some row sees, or none does. */
typedef enum trouble { NO_TROUBLE, NAN_KEY, INFINITE_KEY, INFINITE_QUERY, NAN_VALUE, TROUBLES } trouble;

typedef struct chain {
  const char *type, *none;
  bool is_unwanted;
  int columns;
} chain;

static void make_arguments(const chain *c, masked mask, trouble wrong, const hlo_module *module, weft_arena *arena,
                           hlo_literal **to)
{
  unsigned random = 5;
  int n = c->columns, key = (n + 200) * DEPTH + 3; /* of matrix 1 */

  for (int i = 0; i < 4; i++) T_OK(hlo_literal_new(arena, module->entry->params[i]->shape, &to[i]));
  for (int i = 0; i < 2; i++)
    for (int64_t e = 0; e < hlo_shape_elems(to[i]->shape); e++) {
      random = random * 1664525u + 1013904223u;
      hlo_literal_set_f64(to[i], e, (double)(int)(random >> 16 & 15) / 8 - 0.875, 0);
    }
  for (int b = 0; b < HEADS; b++)
    for (int j = 0; j < n; j++) hlo_literal_set_f64(to[2], ((int64_t)b * n + j) * n + j, 1, 0);
  for (int r = 0; r < LENGTH; r++)
    for (int j = 0; j < n; j++) hlo_literal_set_s64(to[3], r * n + j, is_seen(mask, r, j, n) != c->is_unwanted);
  switch (wrong) {
  case NAN_KEY: hlo_literal_set_f64(to[1], key, NAN, 0); break;
  case INFINITE_KEY: hlo_literal_set_f64(to[1], key, INFINITY, 0); break;
  case INFINITE_QUERY: hlo_literal_set_f64(to[0], (LENGTH + 20) * DEPTH + 2, INFINITY, 0); break;
  case NAN_VALUE: hlo_literal_set_f64(to[2], ((int64_t)n + 200) * n + 10, NAN, 0); break;
  default: break;
  }
}

/* The program as a chain, or as separate steps. */
static void put_program(const chain *c, bool is_chain, char *text)
{
  char generic[4096];

  snprintf(generic, sizeof generic, attention, c->none, c->is_unwanted ? "nb, s" : "s, nb", is_chain ? "ROOT " : "",
           is_chain ? "" : "  ROOT r = (f32[3,90,NNN], TYPE[3,90,NNN]) tuple(y, p)\n");
  fill_in(text, generic, c->type, c->columns);
}

/* The bits of all numbers; NaNs are alike. */
static bool same_numbers(const float *a, const float *b, int64_t count)
{
  for (int64_t i = 0; i < count; i++)
    if (memcmp(&a[i], &b[i], sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i]))) return false;
  return true;
}

/* With any mask and any trouble, by any number of threads. */
static bool is_as_separate_steps(const chain *c)
{
  static float want[HEADS * LENGTH * WIDE], shares[HEADS * LENGTH * WIDE], got[HEADS * LENGTH * WIDE];
  static const int threads[] = {1, 2, 7};
  weft_platform *platforms[WEFT_COUNT(threads)];
  weft_executable *apart, *chains[WEFT_COUNT(threads)];
  char text[4096];
  hlo_module *module;
  bool ok = true;

  for (size_t t = 0; t < WEFT_COUNT(threads); t++) {
    platforms[t] = test_platform(1, threads[t]);
    put_program(c, true, text);
    chains[t] = test_compile(platforms[t], text, BUF_TOPOLOGICAL);
    T_EQ_INT(count_steps(chains[t], "strips"), 1);
  }
  put_program(c, false, text);
  apart = test_compile(platforms[1], text, BUF_TOPOLOGICAL);
  T_EQ_INT(count_steps(apart, "strips"), 0);
  T_OK(hlo_parse(text, strlen(text), &module));
  for (int mask = 0; mask < MASKS; mask++)
    for (int wrong = 0; wrong < TROUBLES; wrong++) {
      weft_arena arena;
      hlo_literal *with[4];
      weft_arena_init(&arena);
      make_arguments(c, (masked)mask, (trouble)wrong, module, &arena, with);
      const void *in[] = {with[0]->data, with[1]->data, with[2]->data, with[3]->data};
      T_OK(test_run(apart, in, (void *[]){want, shares}));
      for (size_t t = 0; t < WEFT_COUNT(threads); t++) {
        memset(got, 0, sizeof got);
        T_OK(test_run(chains[t], in, (void *[]){got}));
        if (same_numbers(got, want, (int64_t)HEADS * LENGTH * c->columns)) continue;
        print_message("# %s, mask %d%s, masked scores %s, trouble %d, %d columns, %d threads\n", c->type, mask,
                      c->is_unwanted ? " of what is not wanted" : "", c->none, wrong, c->columns, threads[t]);
        ok = false;
      }
      weft_arena_fini(&arena);
    }
  hlo_module_free(module);
  weft_executable_release(apart);
  for (size_t t = 0; t < WEFT_COUNT(threads); t++) {
    weft_executable_release(chains[t]);
    weft_platform_release(platforms[t]);
  }
  return ok;
}

TEST(chains_with_any_mask_give_the_bits_of_separate_steps)
{
  static const char *const types[] = {"f32", "bf16", "f16"}, *const nones[] = {"-inf", "-3.38e38", "-2", "-14"};
  static const int columns[] = {WIDE, 256, 300, 272};
  bool ok = true;

  for (size_t n = 0; n < WEFT_COUNT(nones); n++)
    for (size_t t = n % T_STRIDE(3); t < WEFT_COUNT(types); t += T_STRIDE(3)) {
      chain c = {.type = types[t], .none = nones[n], .is_unwanted = (n + t) % 2,
                 .columns = columns[(n + t) % WEFT_COUNT(columns)]};
      ok = is_as_separate_steps(&c) && ok;
    }
  T_TRUE(ok);
}

TEST_MAIN(UNIT(kernels_end_at_a_bound_and_say_whether_rows_need_more),
          UNIT(chains_with_any_mask_give_the_bits_of_separate_steps))
