/* passes/scan_expander.c -- scan-expander: a scan becomes a loop over its slices, whose computation is called in the
 * body (and inlined later).
 *
 *   (ys..., last...) = scan(xs..., inits...), to_apply=f
 *   for i in 0..n: (y..., carries...) = f(x[i]..., carries...); ys[i]... = y...
 *
 * A scan may have carries without outputs and without inputs. A single result may or may not be wrapped in a tuple, in
 * f and in the scan.
 *
 * A map whose computation is more than elementwise (it branches, loops, reduces) is a scan over all elements that
 * carries nothing. */
#include <config.h>

#include "passes/build.h"
#include "passes/passes.h"
#include "passes/util.h"

typedef struct scan {
  const hlo_instr *instr;
  int carries, inputs, outputs;
  int64_t dim, length;
} scan;

static hlo_instr *element(pass_build *b, hlo_instr *x, int i)
{
  return x && hlo_shape_is_tuple(x->shape) ? pb_gte(b, x, i) : x;
}

/* The state of the loop: carries, inputs, outputs. */
static void scan_body(pass_build *in, const void *context, hlo_instr *i, hlo_instr *const *state, hlo_instr **next)
{
  const scan *s = context;
  hlo_computation *f = s->instr->called[0];
  hlo_instr **args = WEFT_ARENA_ARRAY(&f->module->arena, hlo_instr *, WEFT_MAX(1, f->param_count)), *call;
  hlo_instr *at = s->instr->u.scan.is_reverse ? pb_sub(in, pb_int(in, i->shape->type, s->length - 1), i) : i;

  if (!in->error && !args) in->error = WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  if (in->error) return;
  for (int k = 0; k < s->inputs; k++) {
    hlo_instr *x = next[s->carries + k] = state[s->carries + k];
    args[k] = pb_reshape_like(in, pb_slice_at(in, x, s->dim, at, 1), f->params[k]->shape);
  }
  for (int k = 0; k < s->carries; k++) args[s->inputs + k] = state[k];
  if ((call = pb_instr(in, HLO_CALL, f->root->shape, f->param_count, args))) in->error = hlo_set_called(call, 1, &f);
  for (int k = 0; k < s->outputs; k++) {
    hlo_instr *whole = state[s->carries + s->inputs + k], *part = element(in, call, k);
    int64_t dims[HLO_MAX_RANK];
    for (int d = 0; d < whole->shape->rank; d++) dims[d] = d == s->dim ? 1 : whole->shape->dims[d];
    next[s->carries + s->inputs + k] =
      pb_update_at(in, whole, pb_reshape(in, part, whole->shape->rank, dims), s->dim, at);
  }
  for (int k = 0; k < s->carries; k++) next[k] = element(in, call, s->outputs + k);
}

static weft_status *expand(hlo_instr *instr)
{
  pass_build b = PASS_BUILD_AT(instr);
  const hlo_shape *shape = instr->shape;
  bool is_tuple = hlo_shape_is_tuple(shape);
  scan s = {.instr = instr, .carries = (int)instr->u.scan.num_carries, .dim = instr->dims.v[0]};
  int results = is_tuple ? shape->rank : 1, count;

  s.inputs = instr->operand_count - s.carries;
  s.outputs = results - s.carries;
  count = s.carries + s.inputs + s.outputs;
  hlo_instr **state = WEFT_ARENA_ARRAY(&instr->parent->module->arena, hlo_instr *, (size_t)count + (size_t)results);
  WEFT_TRY_ALLOC(state);
  hlo_instr **all = state + count;
  for (int k = 0; k < s.carries; k++) state[k] = instr->operands[s.inputs + k];
  for (int k = 0; k < s.inputs; k++) state[s.carries + k] = instr->operands[k];
  for (int k = 0; k < s.outputs; k++) {
    const hlo_shape *whole = is_tuple ? shape->elements[k] : shape;
    state[s.carries + s.inputs + k] = pb_fill(&b, pb_scalar(&b, whole->type, 0), whole);
  }
  s.length = (s.inputs ? instr->operands[0]->shape : is_tuple ? shape->elements[0] : shape)->dims[s.dim];
  if (s.length > 0 && count > 0) { /* otherwise the outputs are empty, and the last carries are the initial ones */
    hlo_instr *loop = pb_loop(&b, "scan", s.length, count, state, scan_body, &s);
    for (int k = 0; loop && k < count; k++) state[k] = pb_gte(&b, loop, k + 1);
  }
  for (int k = 0; k < s.outputs; k++) all[k] = state[s.carries + s.inputs + k];
  for (int k = 0; k < s.carries; k++) all[s.outputs + k] = state[k];
  hlo_instr *with = is_tuple ? pb_tuple(&b, results, all) : all[0];
  if (with && is_tuple && instr->extra && instr->extra->sharding) {
    hlo_extra *extra;
    WEFT_TRY(hlo_mutable_extra(with, &extra));
    extra->sharding = instr->extra->sharding;
  }
  return pass_build_replace(&b, instr, with);
}

static weft_status *expand_map(hlo_instr *map)
{
  pass_build b = PASS_BUILD_AT(map);
  int64_t count = hlo_shape_elems(map->shape), dim = 0;
  hlo_instr **flat = WEFT_ARENA_ARRAY(&map->parent->module->arena, hlo_instr *, WEFT_MAX(1, map->operand_count)), *scan;

  WEFT_TRY_ALLOC(flat);
  for (int i = 0; i < map->operand_count; i++) flat[i] = pb_reshape(&b, map->operands[i], 1, &count);
  const hlo_shape *shape = hlo_shape_array(&map->parent->module->arena, map->shape->type, 1, &count);
  WEFT_TRY_ALLOC(shape);
  if ((scan = pb_instr(&b, HLO_SCAN, shape, map->operand_count, flat))) {
    b.error = hlo_set_called(scan, 1, &map->called[0]);
    scan->dims = pb_ints(&b, 1, &dim);
  }
  hlo_instr *whole = pb_reshape_like(&b, scan, map->shape);
  WEFT_TRY(pass_build_replace(&b, map, whole));
  return expand(scan);
}

/* True if `instr` is a parameter, a constant, elementwise, or a call or map of a computation of such instructions. */
static bool is_pointwise(const hlo_instr *instr, const bool *loops)
{
  if (instr->op == HLO_CALL || instr->op == HLO_MAP) return !loops[instr->called[0]->id];
  return instr->op == HLO_PARAMETER || instr->op == HLO_CONSTANT || hlo_opcode_is_elementwise(instr->op);
}

/* Computations stand before those that call them. */
static weft_status *scan_expander_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  int count = module->next_computation_id; /* those behind are loops made here */
  bool *loops = WEFT_ARENA_ARRAY(ctx->scratch, bool, count);

  WEFT_TRY_ALLOC(loops);
  HLO_FOREACH_COMPUTATION(comp, module) {
    if (comp->id >= count) continue;
    for (hlo_instr *instr = comp->first, *next; instr; instr = next) {
      next = instr->next;
      loops[comp->id] |= !is_pointwise(instr, loops);
      bool map = instr->op == HLO_MAP && instr->operand_count > 0 && loops[instr->called[0]->id];
      if (instr->op != HLO_SCAN && !map) continue;
      WEFT_TRY((map ? expand_map : expand)(instr));
      *changed = true;
    }
  }
  return *changed ? hlo_module_gc(module) : NULL;
}
const hlo_pass pass_scan_expander = {"scan-expander", scan_expander_run};
