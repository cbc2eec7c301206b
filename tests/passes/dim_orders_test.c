/* tests/passes/dim_orders_test.c -- Random nets of transposes, elementwise operations, reductions and dots mean the
 * same with their dimensions in one order, and fewer bytes are transposed. */
#include "eval_compare.h"

#include "hlo/infer.h"
#include "hlo/text.h"
#include "passes/build.h"
#include "passes/passes.h"

enum { MOST_VALUES = 40, LEAST_ELEMS = 33000 };

typedef struct maker {
  pass_build b;
  uint64_t state;
  hlo_instr *values[MOST_VALUES]; /* large arrays, of integers: their sums are the same in any order */
  hlo_instr *results[MOST_VALUES];
  int count, result_count, params;
  hlo_computation *plus;
} maker;

static int pick(maker *m, int count) { return (int)(next_random(&m->state) % (uint64_t)count); }

static hlo_instr *made(maker *m, hlo_instr *x)
{
  T_OK(pass_build_finish(&m->b));
  return x;
}

static hlo_instr *parameter(maker *m, int rank, const int64_t *dims)
{
  hlo_instr *x;

  T_OK(hlo_add_parameter(m->b.comp, m->params++, hlo_shape_array(&m->b.comp->module->arena, WEFT_S32, rank, dims), NULL,
                         &x));
  return x;
}

static void shuffle(maker *m, int count, int64_t *v)
{
  for (int i = count - 1; i > 0; i--) {
    int j = pick(m, i + 1);
    int64_t other = v[i];
    v[i] = v[j];
    v[j] = other;
  }
}

/* The value with its dimensions in the order of `x`, or NULL if it has others. */
static hlo_instr *turned_to(maker *m, hlo_instr *value, const hlo_instr *x)
{
  int64_t perm[HLO_MAX_RANK];
  bool used[HLO_MAX_RANK] = {false};

  if (value->shape->rank != x->shape->rank) return NULL;
  for (int i = 0; i < x->shape->rank; i++) {
    int d = 0;
    while (d < x->shape->rank && (used[d] || value->shape->dims[d] != x->shape->dims[i])) d++;
    if (d == x->shape->rank) return NULL;
    used[d] = true;
    perm[i] = d;
  }
  return made(m, pb_transpose(&m->b, value, perm));
}

/* Another value of the shape of x: of the net, or from outside. */
static hlo_instr *like(maker *m, hlo_instr *x)
{
  int64_t dims[HLO_MAX_RANK], map[HLO_MAX_RANK];
  int kind = pick(m, 12), rank = 0;

  for (int i = 0; kind > 4 && i < m->count; i++) {
    hlo_instr *other = m->values[pick(m, m->count)], *turned = other == x ? NULL : turned_to(m, other, x);
    if (turned) return turned;
  }
  if (kind == 0) return pb_splat_int(&m->b, x, 3);
  if (kind == 1) return parameter(m, x->shape->rank, x->shape->dims);
  if (kind == 2) return made(m, pb_iota(&m->b, x->shape, pick(m, x->shape->rank)));
  for (int d = 0; d < x->shape->rank; d++)
    if (pick(m, 2)) map[rank++] = d;
  shuffle(m, rank, map);
  for (int d = 0; d < rank; d++) dims[d] = x->shape->dims[map[d]];
  return made(m, pb_broadcast(&m->b, parameter(m, rank, dims), x->shape->rank, x->shape->dims, map));
}

/* x less a sum over some of its dimensions. */
static hlo_instr *less_sum(maker *m, hlo_instr *x)
{
  int64_t over[HLO_MAX_RANK], map[HLO_MAX_RANK];
  int n = 0, rank = 0, from = pick(m, 2) ? x->shape->rank - 1 : 0;

  for (int d = 0; d < x->shape->rank; d++)
    if (d >= from && (from || pick(m, 3) == 0)) over[n++] = d;
    else map[rank++] = d;
  hlo_instr *sum = made(m, pb_reduce(&m->b, x, pb_int(&m->b, WEFT_S32, 0), n, over, m->plus));
  if (pick(m, 2)) sum = pb_op1(&m->b, HLO_NEGATE, sum);
  return pb_sub(&m->b, x, made(m, pb_broadcast(&m->b, sum, x->shape->rank, x->shape->dims, map)));
}

/* A dot that reads x, on either side. */
static hlo_instr *dot_of(maker *m, hlo_instr *x)
{
  hlo_module *module = m->b.comp->module;
  hlo_dot_attrs *attrs = WEFT_ARENA_NEW(&module->arena, hlo_dot_attrs);
  int64_t order[HLO_MAX_RANK], places[HLO_MAX_RANK], own[2][HLO_MAX_RANK], other[2][HLO_MAX_RANK], dims[HLO_MAX_RANK];
  int rank = x->shape->rank, batch = pick(m, rank - 1), sums = 1 + pick(m, WEFT_MIN(2, rank - batch)),
      side = pick(m, 2);
  int count[2] = {batch, sums}, all = batch + sums + 1;
  hlo_ints ints[2][2];
  hlo_instr *operands[2], *dot;

  T_TRUE(attrs);
  for (int d = 0; d < rank; d++) order[d] = d;
  for (int d = 0; d < all; d++) places[d] = d;
  if (pick(m, 3)) shuffle(m, rank, order);
  shuffle(m, all, places);
  dims[places[all - 1]] = 1 + pick(m, 3); /* free */
  for (int g = 0, i = 0; g < 2; g++)
    for (int k = 0; k < count[g]; k++, i++) {
      own[g][k] = order[i];
      other[g][k] = places[i];
      dims[places[i]] = x->shape->dims[order[i]];
    }
  for (int g = 0; g < 2; g++) {
    T_OK(hlo_ints_new(module, count[g], own[g], &ints[side][g]));
    T_OK(hlo_ints_new(module, count[g], other[g], &ints[1 - side][g]));
  }
  *attrs = (hlo_dot_attrs){
    .lhs_batch = ints[0][0], .rhs_batch = ints[1][0], .lhs_contracting = ints[0][1], .rhs_contracting = ints[1][1]};
  operands[side] = x;
  operands[1 - side] = parameter(m, all, dims);
  int64_t result[HLO_MAX_RANK];
  int n = 0;
  for (int k = 0; k < batch; k++) result[n++] = x->shape->dims[own[0][k]];
  for (int s = 0; s < 2; s++)
    for (int d = 0; d < operands[s]->shape->rank; d++)
      if (!pass_ints_contain(ints[s][0], d) && !pass_ints_contain(ints[s][1], d))
        result[n++] = operands[s]->shape->dims[d];
  dot = pb_instr(&m->b, HLO_DOT, hlo_shape_array(&module->arena, WEFT_S32, n, result), 2, operands);
  T_TRUE(dot);
  dot->u.dot = attrs;
  return dot;
}

/* A large result of a dot: of [batch, rows, 2] and [batch, 2, columns]. */
static hlo_instr *product(maker *m, int rank, const int64_t *dims)
{
  hlo_module *module = m->b.comp->module;
  hlo_dot_attrs *attrs = WEFT_ARENA_NEW(&module->arena, hlo_dot_attrs);
  int64_t l[HLO_MAX_RANK], r[HLO_MAX_RANK], iota[HLO_MAX_RANK], k[2];
  int batch = pick(m, rank - 1), rows = 1 + pick(m, rank - batch - 1), nl = 0, nr = 0;

  T_TRUE(attrs);
  for (int d = 0; d < batch; d++) l[nl++] = r[nr++] = dims[d], iota[d] = d;
  for (int d = 0; d < rows; d++) l[nl++] = dims[batch + d];
  for (int d = batch + rows; d < rank; d++) r[nr++] = dims[d];
  k[0] = nl, k[1] = nr;
  l[nl++] = r[nr++] = 2;
  T_OK(hlo_ints_new(module, batch, iota, &attrs->lhs_batch));
  attrs->rhs_batch = attrs->lhs_batch;
  T_OK(hlo_ints_new(module, 1, &k[0], &attrs->lhs_contracting));
  T_OK(hlo_ints_new(module, 1, &k[1], &attrs->rhs_contracting));
  hlo_instr *operands[] = {parameter(m, nl, l), parameter(m, nr, r)};
  hlo_instr *dot = pb_instr(&m->b, HLO_DOT, hlo_shape_array(&module->arena, WEFT_S32, rank, dims), 2, operands);
  T_TRUE(dot);
  dot->u.dot = attrs;
  return dot;
}

static hlo_instr *next_value(maker *m)
{
  hlo_instr *x = m->values[m->count - 1 - pick(m, WEFT_MIN(2, m->count))], *y;
  int64_t v[HLO_MAX_RANK];
  int rank = x->shape->rank;

  switch (pick(m, 9)) {
  case 0: case 1: case 2:
    for (int d = 0; d < rank; d++) v[d] = d;
    shuffle(m, rank, v);
    return pb_transpose(&m->b, x, v);
  case 3: return pb_op2(&m->b, HLO_MAXIMUM, x, like(m, x));
  case 4: return pb_op2(&m->b, HLO_SUBTRACT, like(m, x), x);
  case 5: y = pb_compare(&m->b, HLO_LT, x, like(m, x)); return pb_select(&m->b, y, x, like(m, x));
  case 6: return less_sum(m, x);
  case 7: /* a dimension of 1 comes or goes */
    y = x;
    for (int d = 0, k = 0; d <= rank; d++)
      if (d < rank && x->shape->dims[d] != 1) v[k++] = x->shape->dims[d];
      else if (d == rank) y = pb_reshape(&m->b, x, k, v);
    if (y != x || rank > 5) return y;
    v[0] = 1;
    for (int d = 0; d < rank; d++) v[d + 1] = x->shape->dims[d];
    return pb_reshape(&m->b, x, rank + 1, v);
  default: return pb_op1(&m->b, HLO_NEGATE, x);
  }
}

static hlo_module *make_net(uint64_t seed)
{
  hlo_module *module;
  hlo_computation *plus, *entry;
  int64_t dims[HLO_MAX_RANK], elems = 1;
  int rank = 0;

  T_OK(hlo_module_new("net", &module));
  T_OK(hlo_add_reducer(module, HLO_ADD, WEFT_S32, &plus));
  T_OK(hlo_computation_new(module, "e", &entry));
  module->entry = entry;
  maker m = {.b = PASS_BUILD_IN(entry), .state = seed, .plus = plus};
  for (; elems < LEAST_ELEMS && rank < 4; elems *= dims[rank++]) dims[rank] = 1 + pick(&m, 12);
  dims[rank++] = (LEAST_ELEMS + elems - 1) / elems;
  shuffle(&m, rank, dims);
  m.values[m.count++] = made(&m, pick(&m, 5) ? product(&m, rank, dims) : parameter(&m, rank, dims));
  for (int steps = 4 + pick(&m, 10); m.count < steps;) {
    hlo_instr *x = next_value(&m);
    m.values[m.count++] = made(&m, x);
    if (pick(&m, 5) == 0) m.results[m.result_count++] = made(&m, dot_of(&m, x));
  }
  m.results[m.result_count++] = made(&m, dot_of(&m, m.values[m.count - 1]));
  if (pick(&m, 3) == 0) m.results[m.result_count++] = m.values[pick(&m, m.count)];
  entry->root = pb_tuple(&m.b, m.result_count, m.results);
  T_OK(pass_build_finish(&m.b));
  return module;
}

static void note_change(void *changes, const char *pass, bool changed, int64_t ns, const hlo_module *module)
{
  (void)ns;
  (void)module;
  if (strcmp(pass, "dim-orders") == 0) *(int *)changes += changed;
}

static bool moves(const hlo_instr *transpose)
{
  int64_t last = -1;

  for (int i = 0; i < transpose->shape->rank; i++) {
    if (transpose->shape->dims[i] == 1) continue;
    if (transpose->dims.v[i] < last) return true;
    last = transpose->dims.v[i];
  }
  return false;
}

/* The bytes that transposes give, after the dots have got the form in which they run. */
static double transposed_bytes(const hlo_module *module)
{
  double bytes = 0;

  HLO_FOREACH(x, module->entry)
    if (x->op == HLO_TRANSPOSE && moves(x)) bytes += (double)hlo_shape_total_bytes(x->shape);
  return bytes;
}

static double run_passes(hlo_module *module, const char *disabled, int *changes)
{
  static const struct pass_entry entries[] = {
    {.pass = &pass_dce}, {.pass = &pass_dim_orders}, {.pass = &pass_dot_canonicalizer}, {.pass = &pass_cse}, {.pass = &pass_dce}};
  const pass_pipeline pipeline = {"dim-orders", entries, WEFT_COUNT(entries), 1};
  const pass_options options = {.disabled = disabled};

  T_OK(pass_run(&pipeline, module, &options, note_change, changes));
  T_OK(hlo_verify(module));
  return transposed_bytes(module);
}

TEST(random_nets_mean_the_same)
{
  enum { NETS = 250 };
  const char *only = getenv("WEFT_TEST_SEED");
  int changes = 0, none = 0, more = 0;
  double sums[2] = {0};

  for (uint64_t seed = only ? strtoull(only, NULL, 0) : 1; seed <= NETS; seed++) {
    WEFT_AUTO(hlo_module) module = make_net(seed * 977);
    WEFT_AUTO(hlo_module) other = make_net(seed * 977);
    hlo_eval_options eval = HLO_EVAL_DEFAULT;
    const hlo_literal *arguments[8 * MOST_VALUES], *before, *after;
    uint64_t values = seed;
    int changed = 0;
    weft_arena arena;
    char what[32];

    weft_arena_init(&arena);
    snprintf(what, sizeof what, "net %d", (int)seed);
    T_OK(hlo_verify(module));
    T_TRUE(module->entry->param_count <= (int)WEFT_COUNT(arguments));
    double bytes = run_passes(module, NULL, &changed);
    changes += changed;
    if (changed || only) {
      double without = run_passes(other, "dim-orders", &none);
      sums[0] += without;
      sums[1] += bytes;
      more += bytes > without;
      for (int i = 0; i < module->entry->param_count; i++)
        arguments[i] = random_literal(&arena, module->entry->params[i]->shape, &values);
      T_OK(hlo_eval_module(other, arguments, &eval, &arena, &before));
      T_OK(hlo_eval_module(module, arguments, &eval, &arena, &after));
      T_TRUE(literals_same(after, before, what));
    }
    weft_arena_fini(&arena);
    if (only) break;
  }
  print_message("# %d nets changed, %d of them transpose more; bytes in all %.0f, before %.0f\n", changes, more,
                sums[1], sums[0]);
  /* the pass only estimates what becomes of dots, whose other operands may be transposed then */
  T_TRUE(only || (changes > NETS / 8 && more < changes / 8 && sums[1] < 0.75 * sums[0]));
}

TEST_MAIN(UNIT(random_nets_mean_the_same))
