/* Random programs give the same results on the reference evaluator before and after the pipeline.
 * WEFT_SEED=n runs one seed and prints its program; WEFT_COUNT=n runs that many; WEFT_DISABLED=pass,... */
#include "eval_compare.h"

#include "hlo/infer.h"
#include "hlo/text.h"
#include "passes/build.h"
#include "passes/passes.h"

enum { POOL = 64, LARGEST = 200 /* elements */ };

typedef struct maker {
  uint64_t state;
  pass_build b;
  weft_arena *arena; /* the module's */
  hlo_instr *pool[POOL];
  int count;
  hlo_computation *adders[WEFT_DTYPE_COUNT], *maxers[WEFT_DTYPE_COUNT];
} maker;

static int64_t pick(maker *m, int64_t below) { return (int64_t)(next_random(&m->state) % (uint64_t)below); }
static hlo_instr *any(maker *m) { return m->pool[pick(m, m->count)]; }

static const weft_dtype types[] = {WEFT_F32, WEFT_F32, WEFT_S32, WEFT_PRED, WEFT_F64, WEFT_U32, WEFT_BF16};
static weft_dtype any_type(maker *m) { return types[pick(m, WEFT_COUNT(types))]; }

static const hlo_shape *any_shape(maker *m, weft_dtype type)
{
  int64_t dims[4];
  int rank = (int)pick(m, 4);

  for (int i = 0; i < rank; i++) dims[i] = 1 + pick(m, 5);
  return hlo_shape_array(m->arena, type, rank, dims);
}

/* Something of that type and shape: from the pool by convert, reshape or broadcast, or a constant. */
static hlo_instr *like(maker *m, const hlo_shape *shape)
{
  pass_build *b = &m->b;

  for (int attempt = 0; attempt < 4; attempt++) {
    hlo_instr *x = any(m);
    if (hlo_shape_elems(x->shape) == hlo_shape_elems(shape))
      return pb_convert(b, pb_reshape_like(b, x, shape), shape->type);
    if (x->shape->rank == 1 && shape->rank > 0)
      for (int64_t d = 0; d < shape->rank; d++)
        if (shape->dims[d] == x->shape->dims[0]) return pb_convert(b, pb_broadcast_1d(b, x, shape, d), shape->type);
    if (x->shape->rank == 0) return pb_convert(b, pb_fill(b, x, shape), shape->type);
  }
  if (pick(m, 2) && shape->rank > 0 && shape->type != WEFT_PRED) return pb_iota(b, shape, pick(m, shape->rank));
  return pb_fill(b, pb_scalar(b, shape->type, (double)pick(m, 4) - (weft_dtype_is_unsigned(shape->type) ? 0 : 1)), shape);
}

static hlo_instr *index_scalar(maker *m) { return like(m, hlo_shape_array(m->arena, WEFT_S32, 0, NULL)); }

static hlo_instr *elementwise(maker *m)
{
  static const hlo_opcode real_ops[] = {HLO_ADD, HLO_SUBTRACT, HLO_MULTIPLY, HLO_MAXIMUM, HLO_MINIMUM};
  static const hlo_opcode bit_ops[] = {HLO_AND, HLO_OR, HLO_XOR};
  hlo_instr *x = any(m);
  pass_build *b = &m->b;

  switch (pick(m, 8)) {
  case 0:
    if (x->shape->type == WEFT_PRED) return pb_op1(b, HLO_NOT, x);
    return weft_dtype_is_unsigned(x->shape->type) ? x : pb_op1(b, pick(m, 2) ? HLO_NEGATE : HLO_ABS, x);
  case 1: return weft_dtype_is_float(x->shape->type) ? pb_op1(b, pick(m, 2) ? HLO_TANH : HLO_COS, x) : x;
  case 2: return pb_compare(b, (hlo_direction)pick(m, 6), x, like(m, x->shape));
  case 3: {
    const hlo_shape *p = hlo_shape_with_type(m->arena, x->shape, WEFT_PRED);
    return pb_select(b, like(m, p), x, like(m, x->shape));
  }
  case 4: return pb_convert(b, x, any_type(m));
  default:
    if (x->shape->type == WEFT_PRED || (weft_dtype_is_integer(x->shape->type) && pick(m, 3) == 0))
      return pb_op2(b, bit_ops[pick(m, 3)], x, like(m, x->shape));
    return pb_op2(b, real_ops[pick(m, 5)], x, like(m, x->shape));
  }
}

static hlo_instr *movement(maker *m)
{
  hlo_instr *x = any(m);
  pass_build *b = &m->b;
  int rank = x->shape->rank;
  int64_t v[HLO_MAX_RANK];

  if (rank == 0) return pb_fill(b, x, any_shape(m, x->shape->type));
  switch (pick(m, 9)) {
  case 0:
    for (int i = 0; i < rank; i++) v[i] = i;
    for (int i = rank - 1; i > 0; i--) {
      int j = (int)pick(m, i + 1);
      int64_t t = v[i];
      v[i] = v[j];
      v[j] = t;
    }
    return pb_transpose(b, x, v);
  case 1: {
    int64_t dim = pick(m, rank), size = x->shape->dims[dim], start = pick(m, size);
    return pb_slice_dim(b, x, dim, start, start + 1 + pick(m, size - start));
  }
  case 2: {
    hlo_instr *parts[3] = {x, pick(m, 2) ? like(m, x->shape) : x, like(m, x->shape)};
    return pb_concat(b, pick(m, rank), 2 + (int)pick(m, 2), parts);
  }
  case 3: {
    hlo_pad_dim pads[HLO_MAX_RANK];
    for (int i = 0; i < rank; i++)
      pads[i] = (hlo_pad_dim){pick(m, 3) - (x->shape->dims[i] > 2), pick(m, 3) - (x->shape->dims[i] > 2), pick(m, 2)};
    return pb_pad(b, x, like(m, hlo_shape_array(m->arena, x->shape->type, 0, NULL)), pads);
  }
  case 4: {
    hlo_instr *r = pb_instr(b, HLO_REVERSE, x->shape, 1, &x);
    v[0] = pick(m, rank);
    if (r) r->dims = pb_ints(b, 1, v);
    return r;
  }
  case 5: { /* drop or add a dimension of 1, or flatten */
    int64_t total = hlo_shape_elems(x->shape);
    return pb_reshape(b, x, 1, &total);
  }
  case 6: {
    hlo_instr *operands[HLO_MAX_RANK + 1] = {x}, *r;
    for (int i = 0; i < rank; i++) {
      v[i] = 1 + pick(m, x->shape->dims[i]);
      operands[i + 1] = index_scalar(m);
    }
    r = pb_instr(b, HLO_DYNAMIC_SLICE, hlo_shape_array(m->arena, x->shape->type, rank, v), rank + 1, operands);
    if (r) r->u.slice_sizes = pb_ints(b, rank, v);
    return r;
  }
  case 7: {
    hlo_instr *operands[HLO_MAX_RANK + 2] = {x};
    for (int i = 0; i < rank; i++) {
      v[i] = 1 + pick(m, x->shape->dims[i]);
      operands[i + 2] = index_scalar(m);
    }
    operands[1] = like(m, hlo_shape_array(m->arena, x->shape->type, rank, v));
    return pb_instr(b, HLO_DYNAMIC_UPDATE_SLICE, x->shape, rank + 2, operands);
  }
  default: {
    int64_t dims[HLO_MAX_RANK], extra = 1 + pick(m, 3);
    for (int i = 0; i < rank; i++) {
      dims[i + 1] = x->shape->dims[i];
      v[i] = i + 1;
    }
    dims[0] = extra;
    return pb_broadcast(b, x, rank + 1, dims, v);
  }
  }
}

static hlo_instr *reduction(maker *m)
{
  hlo_instr *x = any(m);
  pass_build *b = &m->b;
  weft_dtype type;
  int64_t v[HLO_MAX_RANK];
  int count = 0;
  bool is_max = pick(m, 2);

  if (x->shape->type == WEFT_PRED || x->shape->rank == 0) return x;
  if (x->shape->type == WEFT_BF16) x = pb_convert(b, x, WEFT_F32);
  type = x->shape->type;
  for (int i = 0; i < x->shape->rank; i++)
    if (pick(m, 2)) v[count++] = i;
  hlo_computation **reducer = is_max ? &m->maxers[type] : &m->adders[type];
  if (!*reducer) T_OK(hlo_add_reducer(b->comp->module, is_max ? HLO_MAXIMUM : HLO_ADD, type, reducer));
  return pb_reduce(b, x, pb_scalar(b, type, is_max && weft_dtype_is_float(type) ? -INFINITY : 0), count, v, *reducer);
}

static hlo_instr *product(maker *m)
{
  hlo_instr *x = any(m), *y, *r;
  pass_build *b = &m->b;
  int64_t k_dim, dims[2], sizes[2], k, n = 1 + pick(m, 4);
  hlo_dot_attrs *attrs;

  if (x->shape->rank != 2 || !weft_dtype_is_float(x->shape->type)) return x;
  k_dim = pick(m, 2);
  k = x->shape->dims[k_dim];
  sizes[0] = pick(m, 2) ? k : n;
  sizes[1] = sizes[0] == k ? n : k;
  int64_t y_dim = sizes[0] == k ? 0 : 1;
  y = like(m, hlo_shape_array(m->arena, x->shape->type, 2, sizes));
  dims[0] = x->shape->dims[1 - k_dim];
  dims[1] = sizes[1 - y_dim];
  r = pb_instr(b, HLO_DOT, hlo_shape_array(m->arena, x->shape->type, 2, dims), 2, (hlo_instr *[]){x, y});
  attrs = WEFT_ARENA_NEW(m->arena, hlo_dot_attrs);
  attrs->lhs_contracting = pb_ints(b, 1, &k_dim);
  attrs->rhs_contracting = pb_ints(b, 1, &y_dim);
  if (r) r->u.dot = attrs;
  return r;
}

static void grow(maker *m, int count)
{
  for (int i = 0; i < count; i++) {
    hlo_instr *x;
    switch (pick(m, 8)) {
    case 0: case 1: x = movement(m); break;
    case 2: x = reduction(m); break;
    case 3: x = product(m); break;
    default: x = elementwise(m);
    }
    if (m->b.error) T_OK(m->b.error);
    if (hlo_shape_elems(x->shape) == 0 || hlo_shape_elems(x->shape) > LARGEST) continue;
    m->pool[m->count < POOL ? m->count++ : (int)pick(m, POOL)] = x;
  }
}

/* A counted loop over a few values of the pool, whose body is random too. */
static void add_loop(maker *m)
{
  hlo_module *module = m->b.comp->module;
  maker inner = {.state = next_random(&m->state), .arena = m->arena};
  hlo_instr *state[5], *next[5], *tuple, *param, *loop, *test, *limit;
  hlo_computation *body, *cond;
  const char *name;
  int count = 1 + (int)pick(m, 4);

  state[0] = pb_scalar(&m->b, WEFT_S32, 0);
  for (int i = 1; i <= count; i++) state[i] = any(m);
  tuple = pb_tuple(&m->b, count + 1, state);
  T_OK(hlo_unique_name(module, "body", &name));
  T_OK(hlo_computation_new(module, name, &body));
  T_OK(hlo_unique_name(module, "cond", &name));
  T_OK(hlo_computation_new(module, name, &cond));
  T_OK(hlo_add_parameter(body, 0, tuple->shape, NULL, &param));
  inner.b = PASS_BUILD_IN(body);
  for (int i = 0; i <= count; i++) inner.pool[inner.count++] = pb_gte(&inner.b, param, i);
  grow(&inner, 8);
  next[0] = pb_add(&inner.b, pb_gte(&inner.b, param, 0), pb_scalar(&inner.b, WEFT_S32, 1));
  for (int i = 1; i <= count; i++)
    next[i] = pick(m, 3) == 0 ? pb_gte(&inner.b, param, i) : like(&inner, state[i]->shape);
  body->root = pb_tuple(&inner.b, count + 1, next);
  if (inner.b.error) T_OK(inner.b.error);
  T_OK(hlo_add_parameter(cond, 0, tuple->shape, NULL, &param));
  inner.b = PASS_BUILD_IN(cond);
  limit = pb_scalar(&inner.b, WEFT_S32, (double)pick(m, 12));
  test = pb_compare(&inner.b, HLO_LT, pb_gte(&inner.b, param, 0), limit);
  cond->root = test;
  loop = pb_instr(&m->b, HLO_WHILE, tuple->shape, 1, &tuple);
  T_OK(hlo_set_called(loop, 2, (hlo_computation *[]){body, cond}));
  for (int i = 0; i <= count && m->count < POOL; i++) m->pool[m->count++] = pb_gte(&m->b, loop, i);
}

static pass_options options = {.fold_limit_bytes = 1 << 12, .num_threads = 2};

static bool check_seed(uint64_t seed, bool verbose)
{
  WEFT_AUTO(hlo_module) module = NULL;
  maker m = {.state = seed};
  hlo_computation *entry;
  const hlo_literal *arguments[6], *before = NULL, *after = NULL;
  hlo_eval_options eval = HLO_EVAL_DEFAULT;
  hlo_instr *results[8];
  weft_arena arena;
  char what[64];
  bool same;

  weft_arena_init(&arena);
  T_OK(hlo_module_new("random", &module));
  T_OK(hlo_computation_new(module, "entry", &entry));
  module->entry = entry;
  m.arena = &module->arena;
  m.b = PASS_BUILD_IN(entry);
  for (int i = 0; i < 6; i++) {
    T_OK(hlo_add_parameter(entry, i, any_shape(&m, any_type(&m)), NULL, &m.pool[m.count++]));
    arguments[i] = random_literal(&arena, m.pool[i]->shape, &m.state);
  }
  grow(&m, 15);
  if (pick(&m, 2)) add_loop(&m);
  grow(&m, 15);
  if (pick(&m, 3) == 0) add_loop(&m);
  grow(&m, 5);
  for (int i = 0; i < 8; i++) results[i] = any(&m);
  entry->root = pb_tuple(&m.b, 8, results);
  T_OK(pass_build_finish(&m.b));
  T_OK(hlo_module_gc(module));
  T_OK(hlo_verify(module));
  if (verbose) T_OK(hlo_print(module, HLO_PRINT_DEFAULT, stderr));
  T_OK(hlo_eval_module(module, arguments, &eval, &arena, &before));
  T_OK(pass_run(&pass_cpu_pipeline, module, &options, NULL, NULL));
  if (verbose) T_OK(hlo_print(module, HLO_PRINT_DEFAULT, stderr));
  T_OK(hlo_eval_module(module, arguments, &eval, &arena, &after));
  snprintf(what, sizeof what, "seed %" PRIu64, seed);
  same = literals_near(after, before, what);
  weft_arena_fini(&arena);
  return same;
}

TEST(random_programs_mean_the_same_after_the_pipeline)
{
  const char *seed = getenv("WEFT_SEED"), *count = getenv("WEFT_COUNT");
  int failures = 0;

  options.disabled = getenv("WEFT_DISABLED");
  if (seed) {
    T_TRUE(check_seed(strtoull(seed, NULL, 10), true));
    return;
  }
  for (uint64_t i = 1; i <= (count ? strtoull(count, NULL, 10) : 2000); i++) failures += !check_seed(i, false);
  T_EQ_INT(failures, 0);
}

TEST_MAIN(UNIT(random_programs_mean_the_same_after_the_pipeline))
