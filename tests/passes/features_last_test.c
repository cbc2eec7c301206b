/* tests/passes/features_last_test.c -- Random nets of convolutions mean the same with their features last. */
#include "eval_compare.h"

#include "hlo/infer.h"
#include "hlo/text.h"
#include "passes/build.h"
#include "passes/passes.h"

enum { MOST_VALUES = 40 };

typedef struct maker {
  pass_build b;
  uint64_t state;
  hlo_instr *values[MOST_VALUES]; /* arrays [batch, features, pixels...] */
  int count, rank, params;
  hlo_computation *plus, *most;
} maker;

static int pick(maker *m, int count) { return (int)(next_random(&m->state) % (uint64_t)count); }

static hlo_instr *parameter(maker *m, int rank, const int64_t *dims)
{
  hlo_instr *x;

  T_OK(hlo_add_parameter(m->b.comp, m->params++, hlo_shape_array(&m->b.comp->module->arena, WEFT_F32, rank, dims), NULL,
                         &x));
  return x;
}

static hlo_instr *made(maker *m, hlo_instr *x)
{
  T_OK(pass_build_finish(&m->b));
  return x;
}

static hlo_instr *any_value(maker *m) { return m->values[pick(m, m->count)]; }

/* Another value of the shape of x: one of the net, or a broadcast or an array from outside. */
static hlo_instr *like(maker *m, hlo_instr *x)
{
  int64_t dims[HLO_MAX_RANK], map[HLO_MAX_RANK];
  int kind = pick(m, 8), rank = 0;

  for (int i = 0; i < m->count && kind > 4; i++)
    if (m->values[i] != x && hlo_shape_equal(m->values[i]->shape, x->shape, false)) return m->values[i];
  if (kind == 0) return pb_splat(&m->b, x, 0.5);
  if (kind == 1) return parameter(m, m->rank, x->shape->dims);
  if (kind == 2) return made(m, pb_iota(&m->b, x->shape, pick(m, m->rank)));
  for (int d = 0; d < m->rank; d++)
    if (kind == 3 ? d == 1 : pick(m, 2)) {
      dims[rank] = x->shape->dims[d];
      map[rank++] = d;
    }
  if (rank > 1 && pick(m, 4) == 0) { /* dimensions in another order */
    int64_t dim = dims[0], to = map[0];
    dims[0] = dims[rank - 1], map[0] = map[rank - 1];
    dims[rank - 1] = dim, map[rank - 1] = to;
  }
  return made(m, pb_broadcast(&m->b, parameter(m, rank, dims), m->rank, x->shape->dims, map));
}

static hlo_window_dim one_window(void)
{
  return (hlo_window_dim){.size = 1, .stride = 1, .window_dilation = 1, .base_dilation = 1};
}

static hlo_instr *convolution(maker *m, hlo_instr *x)
{
  weft_arena *arena = &m->b.comp->module->arena;
  int64_t kernel[HLO_MAX_RANK], spatial[HLO_MAX_RANK], dims[HLO_MAX_RANK] = {x->shape->dims[0], 30 + pick(m, 6)};
  hlo_conv_attrs *a = WEFT_ARENA_NEW(arena, hlo_conv_attrs);
  hlo_window_dim *window = WEFT_ARENA_ARRAY(arena, hlo_window_dim, m->rank);

  T_TRUE(a && window);
  kernel[0] = dims[1];
  kernel[1] = x->shape->dims[1];
  for (int d = 0; d < m->rank - 2; d++) {
    window[d] = one_window();
    window[d].size = kernel[d + 2] = pick(m, 2) ? 1 : 1 + WEFT_MIN(2, x->shape->dims[d + 2]);
    window[d].stride = 1 + (pick(m, 4) == 0);
    window[d].pad_low = window[d].size / 2;
    window[d].pad_high = window[d].size / 2;
    dims[d + 2] = (x->shape->dims[d + 2] + 2 * (window[d].size / 2) - window[d].size) / window[d].stride + 1;
    spatial[d] = d + 2;
  }
  *a = (hlo_conv_attrs){.window = {m->rank - 2, window},
                        .lhs_feature = 1,
                        .out_feature = 1,
                        .rhs_in_feature = 1,
                        .feature_group_count = 1,
                        .batch_group_count = 1};
  T_OK(hlo_ints_new(m->b.comp->module, m->rank - 2, spatial, &a->lhs_spatial));
  a->rhs_spatial = a->out_spatial = a->lhs_spatial;
  hlo_instr *conv = pb_instr(&m->b, HLO_CONVOLUTION, hlo_shape_array(arena, WEFT_F32, m->rank, dims), 2,
                             (hlo_instr *[]){x, parameter(m, m->rank, kernel)});
  T_TRUE(conv);
  conv->u.conv = a;
  return conv;
}

static hlo_instr *pooling(maker *m, hlo_instr *x)
{
  weft_arena *arena = &m->b.comp->module->arena;
  hlo_window_dim *dims = WEFT_ARENA_ARRAY(arena, hlo_window_dim, m->rank);
  hlo_window *window = WEFT_ARENA_NEW(arena, hlo_window);
  int64_t out[HLO_MAX_RANK];

  T_TRUE(dims && window);
  for (int d = 0; d < m->rank; d++) {
    dims[d] = one_window();
    if (d == 2) dims[d].size = dims[d].stride = WEFT_MIN(2, x->shape->dims[d]);
    if (d == 1 && pick(m, 4) == 0) dims[d].size = 2; /* along the features: this is no pooling */
    out[d] = (x->shape->dims[d] - dims[d].size) / dims[d].stride + 1;
  }
  *window = (hlo_window){m->rank, dims};
  hlo_instr *pool = pb_instr(&m->b, HLO_REDUCE_WINDOW, hlo_shape_array(arena, WEFT_F32, m->rank, out), 2,
                             (hlo_instr *[]){x, pb_scalar(&m->b, WEFT_F32, -4)});
  T_TRUE(pool);
  pool->u.window = window;
  T_OK(hlo_set_called(pool, 1, &m->most));
  return pool;
}

static hlo_instr *next_value(maker *m)
{
  hlo_instr *x = any_value(m), *y;
  hlo_pad_dim pads[HLO_MAX_RANK] = {{0}};
  int d = pick(m, m->rank);

  switch (pick(m, 10)) {
  case 0: case 1: case 2: return convolution(m, x);
  case 3: return pooling(m, x);
  case 4: return pb_op2(&m->b, HLO_MAXIMUM, x, like(m, x));
  case 5: return pb_op2(&m->b, HLO_MULTIPLY, like(m, x), x);
  case 6: /* a scalar condition */
    y = pb_compare(&m->b, HLO_LT, parameter(m, 0, NULL), pb_scalar(&m->b, WEFT_F32, 0));
    return pb_select(&m->b, y, x, like(m, x));
  case 7:
    pads[d] = (hlo_pad_dim){pick(m, 2), pick(m, 2), pick(m, 2)};
    return pb_pad(&m->b, x, pb_scalar(&m->b, WEFT_F32, 0.25), pads);
  case 8: return pb_slice_dim(&m->b, x, d, x->shape->dims[d] / 3, x->shape->dims[d]);
  default: return pb_concat(&m->b, d, 2, (hlo_instr *[]){x, like(m, x)});
  }
}

static hlo_module *make_net(uint64_t seed)
{
  hlo_module *module;
  hlo_computation *plus, *most, *entry;
  int64_t dims[] = {1, 32, 5, 4, 3};
  hlo_instr *results[MOST_VALUES];
  int count = 0;

  T_OK(hlo_module_new("net", &module));
  T_OK(hlo_add_reducer(module, HLO_ADD, WEFT_F32, &plus));
  T_OK(hlo_add_reducer(module, HLO_MAXIMUM, WEFT_F32, &most));
  T_OK(hlo_computation_new(module, "e", &entry));
  module->entry = entry;
  maker m = {.b = PASS_BUILD_IN(entry), .state = seed, .plus = plus, .most = most};
  m.rank = 3 + pick(&m, 3);
  dims[0] = 1 + pick(&m, 2);
  m.values[m.count++] = parameter(&m, m.rank, dims);
  m.values[1] = convolution(&m, m.values[0]), m.count++;
  for (int steps = 4 + pick(&m, 12); m.count < steps;) {
    hlo_instr *x = next_value(&m);
    m.values[m.count++] = made(&m, x);
  }
  for (int i = 1 + pick(&m, 3); i >= 0; i--) {
    hlo_instr *x = i ? any_value(&m) : m.values[m.count - 1];
    int64_t over[HLO_MAX_RANK], n = 0;
    for (int d = 0; d < m.rank; d++)
      if (pick(&m, 2)) over[n++] = d;
    if (pick(&m, 3)) x = pb_reduce(&m.b, x, pb_scalar(&m.b, WEFT_F32, 0), (int)n, over, m.plus);
    results[count++] = x;
  }
  entry->root = pb_tuple(&m.b, count, results);
  T_OK(pass_build_finish(&m.b));
  return module;
}

TEST(random_nets_mean_the_same)
{
  enum { NETS = 300 };
  const char *only = getenv("WEFT_TEST_SEED");
  const struct pass_entry entry = {.pass = &pass_features_last};
  const pass_pipeline pipeline = {"features-last", &entry, 1, 1};
  const pass_options options = {.f32_features_last = true};
  int turned = 0;

  for (uint64_t seed = only ? strtoull(only, NULL, 0) : 1; seed <= NETS; seed++) {
    WEFT_AUTO(hlo_module) module = make_net(seed * 977);
    hlo_eval_options eval = HLO_EVAL_DEFAULT;
    const hlo_literal *arguments[2 * MOST_VALUES], *before, *after;
    uint64_t values = seed;
    weft_arena arena;
    char what[32];

    weft_arena_init(&arena);
    snprintf(what, sizeof what, "net %d", (int)seed);
    T_OK(hlo_verify(module));
    for (int i = 0; i < module->entry->param_count; i++)
      arguments[i] = random_literal(&arena, module->entry->params[i]->shape, &values);
    T_OK(hlo_eval_module(module, arguments, &eval, &arena, &before));
    T_OK(pass_run(&pipeline, module, &options, NULL, NULL));
    T_OK(hlo_verify(module));
    HLO_FOREACH(instr, module->entry)
      if (instr->op == HLO_CONVOLUTION && instr->u.conv->lhs_feature != 1) {
        turned++;
        break;
      }
    T_OK(hlo_eval_module(module, arguments, &eval, &arena, &after));
    T_TRUE(literals_within(after, before, what, 1e-4));
    weft_arena_fini(&arena);
    if (only) break;
  }
  print_message("# %d nets turned\n", turned);
  T_TRUE(only || turned > NETS / 8);
}

TEST_MAIN(UNIT(random_nets_mean_the_same))
