/* tests/passes/edges_test.c -- Elementwise rules at the edges of every type: x OP c, c OP x and (x OP c) OP d for the
 * constants that rules look for and their neighbours, the same on the reference evaluator before and after the
 * pipeline, bit for bit. */
#include "test.h"

#include "hlo/eval.h"
#include "hlo/text.h"
#include "passes/passes.h"

#include <math.h>

enum { EDGES = 24 };

static const weft_dtype types[] = {
  WEFT_PRED, WEFT_S1, WEFT_U1, WEFT_S2, WEFT_U2, WEFT_S4, WEFT_U4, WEFT_S8, WEFT_U8, WEFT_S16, WEFT_U16, WEFT_S32, WEFT_U32, WEFT_S64, WEFT_U64,
  WEFT_F16, WEFT_BF16, WEFT_F32, WEFT_F64, WEFT_F8E5M2, WEFT_F8E4M3FN,
};

static const double floats[EDGES] = {
  0, -0.0, 1, -1, 2, -2, 0.5, 3, 4096, 0x1p-13, 0x1p-14, 0x1p15, 0x1p-126, 0x1p-149, 0x1p127, -0x1p-1074, INFINITY, -INFINITY, NAN,
  65504, 0.1, 1e300, -3.75, 6,
};

/* Edge `i` of an integer type, as its bits. */
static int64_t integer(weft_dtype type, int i)
{
  int bits = type == WEFT_PRED ? 1 : weft_dtype_bits(type);
  uint64_t ones = ~UINT64_C(0) >> (64 - bits), half = UINT64_C(1) << (bits - 1);
  const uint64_t edges[EDGES] = {
    0, 1, 2, 3, 7, (uint64_t)bits - 1, (uint64_t)bits, ones, ones - 1, ones << (bits / 4), half, half - 1, half + 1, half >> 1,
    (half >> 3) - 1, half >> 3, UINT64_C(1) << (bits / 2), (UINT64_C(1) << (bits / 2)) - 1, ones - 255, ones - 1024, ones / 3, 10, 100,
    UINT64_C(12345678901234567890),
  };
  uint64_t value = edges[i] & ones;

  return weft_dtype_is_signed(type) && value & half ? (int64_t)(value | ~ones) : (int64_t)value;
}

/* Like "3", "-inf": edge `i` of `type` in HLO text. */
static void write_edge(weft_dtype type, int i, char *out, size_t size)
{
  if (type == WEFT_PRED) snprintf(out, size, "%s", integer(type, i) ? "true" : "false");
  else if (weft_dtype_is_float(type)) snprintf(out, size, "%.17g", floats[i]);
  else if (weft_dtype_is_signed(type)) snprintf(out, size, "%" PRId64, integer(type, i));
  else snprintf(out, size, "%" PRIu64, (uint64_t)integer(type, i));
}

static bool applies(const char *op, weft_dtype type)
{
  bool is_float = weft_dtype_is_float(type);

  if (strncmp(op, "shift", 5) == 0) return !is_float && type != WEFT_PRED;
  if (strcmp(op, "and") == 0 || strcmp(op, "or") == 0 || strcmp(op, "xor") == 0) return !is_float;
  if (strcmp(op, "maximum") == 0 || strcmp(op, "minimum") == 0) return true;
  return type != WEFT_PRED;
}

typedef struct text { char *data; size_t size, capacity; } text;

__attribute__((format(printf, 2, 3))) static void add(text *t, const char *format, ...)
{
  va_list args;

  if (t->capacity - t->size < 1024) {
    t->capacity = t->capacity ? 2 * t->capacity : 1 << 16;
    T_TRUE((t->data = realloc(t->data, t->capacity)) != NULL);
  }
  va_start(args, format);
  t->size += (size_t)vsnprintf(t->data + t->size, t->capacity - t->size, format, args);
  va_end(args);
}

static const hlo_literal *edges_of(weft_arena *arena, const hlo_shape *shape)
{
  hlo_literal *x;

  T_OK(hlo_literal_new(arena, shape, &x));
  for (int i = 0; i < EDGES; i++)
    if (weft_dtype_is_float(shape->type)) hlo_literal_set_f64(x, i, floats[i], 0);
    else hlo_literal_set_s64(x, i, integer(shape->type, i));
  return x;
}

/* Are the bits equal? All NaNs count as equal, and `loose` allows small differences of a power. */
static bool is_same(const hlo_literal *a, const hlo_literal *b, int64_t i, bool loose)
{
  double x = hlo_literal_get_f64(a, i), y = hlo_literal_get_f64(b, i);

  if (!weft_dtype_is_float(a->shape->type)) return hlo_literal_get_s64(a, i) == hlo_literal_get_s64(b, i);
  if (isnan(x) || isnan(y)) return isnan(x) && isnan(y);
  if (loose) return x == y || fabs(x - y) <= 0.01 * fabs(y);
  return x == y && signbit(x) == signbit(y);
}

/* Evaluates the program before and after the pipeline; its root is a tuple of arrays. */
static int differences(const char *program, bool loose)
{
  WEFT_AUTO(hlo_module) module = NULL;
  pass_options options = {.fold_limit_bytes = 1 << 12, .num_threads = 1};
  hlo_eval_options eval = HLO_EVAL_DEFAULT;
  const hlo_literal *argument, *before, *after;
  weft_arena arena;
  int wrong = 0;

  weft_arena_init(&arena);
  T_OK(hlo_parse(program, strlen(program), &module));
  WEFT_AUTO(hlo_module) original = NULL;
  T_OK(hlo_parse(program, strlen(program), &original));
  argument = edges_of(&arena, module->entry->params[0]->shape);
  T_OK(hlo_eval_module(module, &argument, &eval, &arena, &before));
  T_OK(pass_run(&pass_cpu_pipeline, module, &options, NULL, NULL));
  T_OK(hlo_eval_module(module, &argument, &eval, &arena, &after));
  for (int k = 0; k < before->shape->rank; k++)
    for (int64_t i = 0; i < EDGES; i++)
      if (!is_same(after->elements[k], before->elements[k], i, loose) && wrong++ < 5)
        print_message("# %s of element %d: %.17g, before the pipeline %.17g\n",
                      original->entry->root->operands[k]->name, (int)i, hlo_literal_get_f64(after->elements[k], i),
                      hlo_literal_get_f64(before->elements[k], i));
  weft_arena_fini(&arena);
  return wrong;
}

static const char *const binary[] = {
  "add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum", "and", "or", "xor", "power", "shift-left",
  "shift-right-logical", "shift-right-arithmetic",
};

static void begin(text *t, weft_dtype type)
{
  char value[64];

  add(t,
      "HloModule edges\n"
      "ENTRY e {\n"
      "  x = %s[%d] parameter(0)\n",
      weft_dtype_name(type), EDGES);
  for (int i = 0; i < EDGES; i++) {
    write_edge(type, i, value, sizeof value);
    add(t,
        "  k%d = %s[] constant(%s)\n"
        "  c%d = %s[%d] broadcast(k%d), dimensions={}\n",
        i, weft_dtype_name(type), value, i, weft_dtype_name(type), EDGES, i);
  }
}

/* The root: all results; of `result` elements' type. */
static int end(text *t, const char *const *names, int count, const char *result, bool loose)
{
  int wrong;

  add(t, "  ROOT all = (");
  for (int i = 0; i < count; i++) add(t, "%s%s[%d]", i ? ", " : "", result, EDGES);
  add(t, ") tuple(");
  for (int i = 0; i < count; i++) add(t, "%s%s", i ? ", " : "", names[i]);
  add(t, ")\n}\n");
  wrong = differences(t->data, loose);
  free(t->data);
  return wrong;
}

static char name_store[4 * EDGES * EDGES][64];
static const char *names[4 * EDGES * EDGES];

static const char *named(int i, const char *op, int a, int b)
{
  snprintf(name_store[i], sizeof name_store[i], "%s_%d_%d_%d", op, i, a, b);
  for (char *p = name_store[i]; *p; p++) *p = *p == '-' ? '_' : *p;
  return names[i] = name_store[i];
}

TEST(one_constant)
{
  int wrong = 0;

  for (size_t t = 0; t < WEFT_COUNT(types); t++)
    for (size_t o = 0; o < WEFT_COUNT(binary); o++) {
      const char *type = weft_dtype_name(types[t]);
      text program = {0};
      int count = 0;
      if (!applies(binary[o], types[t])) continue;
      begin(&program, types[t]);
      for (int i = 0; i < EDGES; i++) {
        add(&program, "  %s = %s[%d] %s(x, c%d)\n", named(count, binary[o], i, -1), type, EDGES, binary[o], i), count++;
        add(&program, "  %s = %s[%d] %s(c%d, x)\n", named(count, binary[o], -1, i), type, EDGES, binary[o], i), count++;
      }
      int here = end(&program, names, count, type, strcmp(binary[o], "power") == 0);
      if (here) print_message("# %s of %s: %d elements differ\n", binary[o], type, here);
      wrong += here;
    }
  T_EQ_INT(wrong, 0);
}

TEST(compares_and_selects)
{
  static const char *const directions[] = {"EQ", "NE", "LT", "LE", "GT", "GE"};
  int wrong = 0;

  for (size_t t = 0; t < WEFT_COUNT(types); t++) {
    const char *type = weft_dtype_name(types[t]);
    text program = {0};
    int count = 0;
    begin(&program, types[t]);
    for (int d = 0; d < 6; d++)
      for (int i = 0; i < EDGES; i++) {
        int at = count++, inverse = count++;
        add(&program, "  %s = pred[%d] compare(x, c%d), direction=%s\n", named(at, directions[d], i, 0), EDGES, i,
            directions[d]);
        add(&program, "  %s = pred[%d] not(%s)\n", named(inverse, "not", i, d), EDGES, names[at]);
      }
    int here = end(&program, names, count, "pred", false);
    program = (text){0}, count = 0;
    begin(&program, types[t]);
    for (int d = 0; d < 6; d++)
      for (int i = 0; i < EDGES; i++) {
        add(&program, "  p%d = pred[%d] compare(x, c%d), direction=%s\n", count, EDGES, i, directions[d]);
        add(&program, "  %s = %s[%d] select(p%d, x, c%d)\n", named(count, "select", i, d), type, EDGES, count, i),
          count++;
      }
    here += end(&program, names, count, type, false);
    if (here) print_message("# compare and select of %s: %d elements differ\n", type, here);
    wrong += here;
  }
  T_EQ_INT(wrong, 0);
}

TEST(two_constants)
{
  int wrong = 0;

  for (size_t t = 0; t < WEFT_COUNT(types); t++)
    for (size_t o = 0; o < WEFT_COUNT(binary); o++) {
      const char *type = weft_dtype_name(types[t]);
      text program = {0};
      int count = 0;
      if (!applies(binary[o], types[t]) || strcmp(binary[o], "power") == 0) continue;
      begin(&program, types[t]);
      for (int i = 0; i < EDGES; i += 1 + i % 2)
        add(&program, "  y%d = %s[%d] %s(x, c%d)\n", i, type, EDGES, binary[o], i);
      for (size_t p = 0; p < WEFT_COUNT(binary); p++)
        for (int i = 0; i < EDGES; i += 1 + i % 2)
          for (int j = (int)(p + (size_t)i) % 4; j < EDGES; j += 4) {
            if (!applies(binary[p], types[t]) || strcmp(binary[p], "power") == 0 || (size_t)count == WEFT_COUNT(names))
              continue;
            add(&program, "  %s = %s[%d] %s(y%d, c%d)\n", named(count, binary[p], i, j), type, EDGES, binary[p], i, j),
              count++;
          }
      int here = end(&program, names, count, type, false);
      if (here) print_message("# two of %s of %s: %d elements differ\n", binary[o], type, here);
      wrong += here;
    }
  T_EQ_INT(wrong, 0);
}

/* x -> via -> back -> and every type, through every third. */
TEST(conversions_in_a_row)
{
  int wrong = 0;

  for (size_t t = 0; t < WEFT_COUNT(types); t++)
    for (size_t u = 0; u < WEFT_COUNT(types); u++) {
      text program = {0};
      add(&program,
          "HloModule conversions\n"
          "ENTRY e {\n"
          "  x = %s[%d] parameter(0)\n",
          weft_dtype_name(types[t]), EDGES);
      for (size_t v = 0; v < WEFT_COUNT(types); v++) {
        add(&program, "  via%zu = %s[%d] convert(x)\n", v, weft_dtype_name(types[v]), EDGES);
        add(&program, "  %s = %s[%d] convert(via%zu)\n", named((int)v, weft_dtype_name(types[v]), (int)t, (int)u),
            weft_dtype_name(types[u]), EDGES, v);
      }
      int here = end(&program, names, (int)WEFT_COUNT(types), weft_dtype_name(types[u]), false);
      if (here)
        print_message("# %s to %s: %d elements differ\n", weft_dtype_name(types[t]), weft_dtype_name(types[u]), here);
      wrong += here;
    }
  T_EQ_INT(wrong, 0);
}

/* Sums of one element, and of one that is repeated: 0 + -0 is 0. */
TEST(sums_of_one_element)
{
  static const char *const sums[] = {"over_one", "window_of_one", "of_two_alike", "product_of_one"};
  int wrong = 0;

  for (size_t t = 0; t < WEFT_COUNT(types); t++) {
    const char *type = weft_dtype_name(types[t]);
    text program = {0};
    if (types[t] == WEFT_PRED) continue;
    add(&program,
        "HloModule sums\n"
        "sum {\n"
        "  a = %s[] parameter(0)\n"
        "  b = %s[] parameter(1)\n"
        "  ROOT c = %s[] add(a, b)\n"
        "}\n"
        "ENTRY e {\n"
        "  x = %s[%d] parameter(0)\n"
        "  zero = %s[] constant(0)\n",
        type, type, type, type, EDGES, type);
    add(&program,
        "  column = %s[%d,1] reshape(x)\n"
        "  twice = %s[%d,2] broadcast(x), dimensions={0}\n",
        type, EDGES, type, EDGES);
    add(&program, "  over_one = %s[%d] reduce(column, zero), dimensions={1}, to_apply=sum\n", type, EDGES);
    add(&program, "  window_of_one = %s[%d] reduce-window(x, zero), window={size=1}, to_apply=sum\n", type, EDGES);
    add(&program, "  of_two_alike = %s[%d] reduce(twice, zero), dimensions={1}, to_apply=sum\n", type, EDGES);
    add(&program,
        "  one = %s[] constant(%s)\n"
        "  row = %s[1,1] broadcast(one), dimensions={}\n"
        "  outer = %s[%d,1] dot(column, row), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
        "  product_of_one = %s[%d] reshape(outer)\n",
        type, types[t] == WEFT_S1 ? "-1" : "1", type, type, EDGES, type, EDGES);
    int here = end(&program, sums, (int)WEFT_COUNT(sums), type, false);
    if (here) print_message("# sums of %s: %d elements differ\n", type, here);
    wrong += here;
  }
  T_EQ_INT(wrong, 0);
}

TEST_MAIN(UNIT(one_constant), UNIT(compares_and_selects), UNIT(two_constants), UNIT(conversions_in_a_row),
          UNIT(sums_of_one_element))
