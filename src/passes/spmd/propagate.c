/* passes/spmd/propagate.c -- finds a sharding for every array of a module (propagate.h). */
#include <config.h>

#include "passes/spmd/propagate.h"

#include <string.h>

enum { MAX_NESTING = 200, MAX_ROUNDS = 64 };

bool spmd_is_call_to(const hlo_instr *instr, const char *target)
{
  return instr->op == HLO_CUSTOM_CALL && instr->operand_count == 1 && strcmp(instr->u.custom->target, target) == 0;
}

static const hlo_sharding *given_sharding(const hlo_instr *instr)
{
  return instr->extra ? instr->extra->sharding : NULL;
}

/* ---- objects ----------------------------------------------------------------------------------------------------- */

static weft_status *new_leaves(spmd_program *p, int count, spmd_leaves **out)
{
  *out = WEFT_ARENA_NEW(p->scratch, spmd_leaves);
  WEFT_TRY_ALLOC(*out);
  (*out)->count = count;
  (*out)->v = WEFT_ARENA_ARRAY(p->scratch, spmd_sharding *, count);
  WEFT_TRY_ALLOC((*out)->v);
  return NULL;
}

/* A replicated and open sharding for each leaf. */
static weft_status *fill_leaves(spmd_program *p, const hlo_shape *shape, spmd_leaves *leaves, int *at)
{
  if (!hlo_shape_is_tuple(shape))
    return spmd_sharding_new(p->scratch, hlo_shape_is_array(shape) ? shape->rank : 0, &leaves->v[(*at)++]);
  for (int i = 0; i < shape->rank; i++) WEFT_TRY(fill_leaves(p, shape->elements[i], leaves, at));
  return NULL;
}

static weft_status *fresh_leaves(spmd_program *p, const hlo_shape *shape, spmd_leaves **out)
{
  int at = 0;

  WEFT_TRY(new_leaves(p, hlo_shape_leaf_count(shape), out));
  return fill_leaves(p, shape, *out, &at);
}

static const hlo_shape *leaf_shape(const hlo_shape *shape, int *number)
{
  if (!hlo_shape_is_tuple(shape)) return (*number)-- == 0 ? shape : NULL;
  for (int i = 0; i < shape->rank; i++) {
    const hlo_shape *found = leaf_shape(shape->elements[i], number);
    if (found) return found;
  }
  return NULL;
}

static weft_status *new_edge(spmd_program *p, const spmd_factors *factors, spmd_edge **out)
{
  spmd_edge *e;

  WEFT_TRY_ALLOC(WEFT_ARENA_RESERVE(p->scratch, p->edges, p->edge_capacity, p->edge_count + 1, 256));
  e = &p->edges[p->edge_count++];
  *e = (spmd_edge){.factors = *factors};
  e->s = WEFT_ARENA_ARRAY(p->scratch, spmd_sharding *, factors->tensor_count);
  e->axes = WEFT_ARENA_ARRAY(p->scratch, spmd_axes, (size_t)factors->tensor_count * (size_t)factors->count);
  WEFT_TRY_ALLOC(e->s);
  WEFT_TRY_ALLOC(e->axes);
  *out = e;
  return NULL;
}

/* Asks for two values of one shape to be cut alike, leaf by leaf. */
static weft_status *alike(spmd_program *p, const hlo_shape *shape, const spmd_leaves *a, const spmd_leaves *b)
{
  for (int i = 0; i < a->count; i++) {
    int number = i;
    const hlo_shape *leaf = leaf_shape(shape, &number);
    spmd_factors factors;
    spmd_edge *e;
    if (a->v[i] == b->v[i] || !hlo_shape_is_array(leaf) || leaf->rank == 0) continue;
    WEFT_TRY(spmd_factors_alike(leaf, 2, p->scratch, &factors));
    WEFT_TRY(new_edge(p, &factors, &e));
    e->s[0] = a->v[i];
    e->s[1] = b->v[i];
  }
  return NULL;
}

/* ---- one visitor for each kind of instruction ------------------------------------------------------------------ */

static weft_status *visit(spmd_program *p, const hlo_computation *comp, int depth);

static weft_status *bind(spmd_program *p, const hlo_instr *instr, const spmd_leaves *leaves)
{
  return pass_map_set(&p->leaves, instr->id, (void *)(uintptr_t)leaves);
}

static weft_status *require_root(spmd_program *p, const hlo_computation *comp, const spmd_leaves *leaves)
{
  WEFT_TRY(alike(p, comp->root->shape, leaves, spmd_leaves_of(p, comp->root)));
  return pass_map_set(&p->roots, comp->id, (void *)(uintptr_t)leaves);
}

static weft_status *visit_while(spmd_program *p, const hlo_instr *instr, int depth)
{
  const hlo_computation *body = instr->called[0], *condition = instr->called[1];
  spmd_leaves *carry, *whole;

  WEFT_TRY(fresh_leaves(p, instr->shape, &carry));
  WEFT_TRY(bind(p, instr, carry));
  WEFT_TRY(bind(p, body->params[0], carry));
  WEFT_TRY(bind(p, condition->params[0], carry));
  WEFT_TRY(alike(p, instr->shape, spmd_leaves_of(p, instr->operands[0]), carry));
  WEFT_TRY(visit(p, condition, depth + 1));
  WEFT_TRY(visit(p, body, depth + 1));
  for (int i = 0; i < carry->count; i++) /* sums that enter the loop as sums and stay sums on every turn */
    if (!carry->v[i]->fixed)
      carry->v[i]->unreduced = spmd_leaves_of(p, instr->operands[0])->v[i]->unreduced &
                               spmd_leaves_of(p, body->root)->v[i]->unreduced;
  WEFT_TRY(fresh_leaves(p, condition->root->shape, &whole));
  WEFT_TRY(require_root(p, condition, whole));
  return require_root(p, body, carry);
}

static weft_status *visit_calls(spmd_program *p, const hlo_instr *instr, int depth)
{
  bool is_call = instr->op == HLO_CALL;
  spmd_leaves *result;

  WEFT_TRY(fresh_leaves(p, instr->shape, &result));
  WEFT_TRY(bind(p, instr, result));
  for (int i = 0; i < instr->called_count; i++) {
    const hlo_computation *callee = instr->called[i];
    for (int k = 0; k < callee->param_count; k++)
      WEFT_TRY(bind(p, callee->params[k], spmd_leaves_of(p, instr->operands[is_call ? k : i + 1])));
    WEFT_TRY(visit(p, callee, depth + 1));
    WEFT_TRY(require_root(p, callee, result));
  }
  return NULL;
}

static weft_status *visit_tuple(spmd_program *p, const hlo_instr *instr)
{
  spmd_leaves *leaves;
  int at = 0;

  WEFT_TRY(new_leaves(p, hlo_shape_leaf_count(instr->shape), &leaves));
  for (int i = 0; i < instr->operand_count; i++) {
    const spmd_leaves *from = spmd_leaves_of(p, instr->operands[i]);
    for (int k = 0; k < from->count; k++) leaves->v[at++] = from->v[k];
  }
  return bind(p, instr, leaves);
}

static weft_status *visit_element(spmd_program *p, const hlo_instr *instr)
{
  const hlo_instr *tuple = instr->operands[0];
  const spmd_leaves *from = spmd_leaves_of(p, tuple);
  spmd_leaves *leaves;
  int at = 0;

  for (int i = 0; i < instr->u.tuple_index; i++) at += hlo_shape_leaf_count(tuple->shape->elements[i]);
  WEFT_TRY(new_leaves(p, hlo_shape_leaf_count(instr->shape), &leaves));
  for (int i = 0; i < leaves->count; i++) leaves->v[i] = from->v[at + i];
  return bind(p, instr, leaves);
}

/* A constraint. A value that only the constraint uses gets its sharding at once. */
static weft_status *visit_constraint(spmd_program *p, const hlo_instr *instr)
{
  const hlo_sharding *given = given_sharding(instr);
  const spmd_leaves *operand = spmd_leaves_of(p, instr->operands[0]);
  spmd_leaves *leaves;
  spmd_sharding s;
  bool fits;

  WEFT_TRY(fresh_leaves(p, instr->shape, &leaves));
  WEFT_TRY(bind(p, instr, leaves));
  if (given && given->shard_group) {
    spmd_sharding *shared = pass_map_get(&p->groups, (int)(given->shard_group_id & 0xffff));
    if (shared && shared->rank == leaves->v[0]->rank) leaves->v[0] = shared;
    else WEFT_TRY(pass_map_set(&p->groups, (int)(given->shard_group_id & 0xffff), leaves->v[0]));
  } else if (given && given->kind != HLO_SHARDING_MANUAL) {
    WEFT_TRY(spmd_sharding_of(&p->grid, given, instr->shape, p->scratch, &s, &fits));
    if (fits) {
      *leaves->v[0] = s;
      if (!operand->v[0]->fixed && instr->operands[0]->user_count == 1 && instr->operands[0]->op != HLO_PARAMETER &&
          instr->operands[0]->op != HLO_GET_TUPLE_ELEMENT) /* those share their sharding with other values */
        WEFT_TRY(spmd_sharding_copy(p->scratch, &s, operand->v[0]));
    }
  }
  return alike(p, instr->shape, operand, leaves);
}

/* The sharding of a border stands on the border itself or, before a region, on the Sharding call there. */
static weft_status *visit_border(spmd_program *p, const hlo_instr *instr, bool enters)
{
  const hlo_instr *from = instr;
  const hlo_shape *full = enters ? instr->operands[0]->shape : instr->shape,
                  *tile = enters ? instr->shape : instr->operands[0]->shape;
  spmd_border *border = WEFT_ARENA_NEW(p->scratch, spmd_border);
  spmd_factors factors = {.operand_count = 1, .tensor_count = 2, .passes_through = true};
  spmd_leaves *leaves;
  spmd_edge *e;

  WEFT_TRY_ALLOC(border);
  while (enters && from && (!given_sharding(from) || given_sharding(from)->kind == HLO_SHARDING_MANUAL))
    from = from == instr || spmd_is_call_to(from, "Sharding") ? from->operands[0] : NULL;
  border->enters = enters;
  border->given = from ? given_sharding(from) : NULL;
  WEFT_TRY(spmd_sharding_of(&p->grid, border->given, full, p->scratch, &border->manual, &border->fits));
  WEFT_TRY(spmd_manual_axes(&p->grid, border->given, p->scratch, &border->axes));
  for (int d = 0; border->fits && d < full->rank; d++)
    if (full->dims[d] != tile->dims[d] * spmd_axes_size(&p->grid, &border->manual.dims[d], 0))
      return WEFT_ERR(
        UNIMPLEMENTED,
        "a manual region whose border cuts dimension %d of %lld into %lld where its sharding has %lld tiles", d,
        (long long)full->dims[d], (long long)tile->dims[d],
        (long long)spmd_axes_size(&p->grid, &border->manual.dims[d], 0));
  WEFT_TRY(pass_map_set(&p->borders, instr->id, border));
  WEFT_TRY(fresh_leaves(p, instr->shape, &leaves));
  WEFT_TRY(bind(p, instr, leaves));
  if (!border->fits) return NULL;
  if (!enters) WEFT_TRY(spmd_sharding_copy(p->scratch, &border->manual, leaves->v[0]));
  if (!enters) leaves->v[0]->closed = 0;
  /* each dimension has the region's axes, which only the whole array has, then the others */
  WEFT_TRY(spmd_factors_alike(tile, 2, p->scratch, &factors));
  {
    spmd_tensor *outside = &factors.tensors[enters ? 0 : 1];
    outside->shape = full;
    outside->use_count = 0;
    for (int d = 0; d < full->rank; d++) {
      factors.factor[factors.count] = (spmd_factor){.size = spmd_axes_size(&p->grid, &border->manual.dims[d], 0)};
      outside->uses[outside->use_count++] = (spmd_use){(uint8_t)d, (uint8_t)factors.count++};
      outside->uses[outside->use_count++] = (spmd_use){(uint8_t)d, (uint8_t)d};
    }
  }
  WEFT_TRY(new_edge(p, &factors, &e));
  e->s[0] = spmd_leaves_of(p, instr->operands[0])->v[0];
  e->s[1] = leaves->v[0];
  e->forbidden = border->axes;
  return NULL;
}

/* Instructions whose value is that of their operand. */
static bool is_same_value(const hlo_instr *instr)
{
  return instr->op == HLO_OPT_BARRIER || instr->op == HLO_ADD_DEPENDENCY || instr->op == HLO_DOMAIN;
}

static weft_status *visit_array(spmd_program *p, const hlo_instr *instr)
{
  spmd_factors factors;
  spmd_leaves *leaves;
  spmd_edge *e;

  WEFT_TRY(fresh_leaves(p, instr->shape, &leaves));
  WEFT_TRY(bind(p, instr, leaves));
  WEFT_TRY(spmd_factors_of(instr, p->scratch, &factors));
  if (factors.count == 0 || factors.tensor_count != instr->operand_count + leaves->count) return NULL;
  WEFT_TRY(new_edge(p, &factors, &e));
  for (int i = 0; i < instr->operand_count; i++) e->s[i] = spmd_leaves_of(p, instr->operands[i])->v[0];
  for (int i = 0; i < leaves->count; i++) e->s[instr->operand_count + i] = leaves->v[i];
  return NULL;
}

static weft_status *visit_instr(spmd_program *p, const hlo_instr *instr, int depth)
{
  bool calls = instr->op == HLO_CALL || instr->op == HLO_CONDITIONAL;

  if (spmd_leaves_of(p, instr)) return NULL; /* a parameter that the caller has bound */
  if (instr->op == HLO_TUPLE) return visit_tuple(p, instr);
  if (instr->op == HLO_GET_TUPLE_ELEMENT) return visit_element(p, instr);
  if (is_same_value(instr)) return bind(p, instr, spmd_leaves_of(p, instr->operands[0]));
  if (instr->op == HLO_WHILE) return visit_while(p, instr, depth);
  if (calls) return visit_calls(p, instr, depth);
  if (spmd_is_call_to(instr, "Sharding") && hlo_shape_is_array(instr->shape)) return visit_constraint(p, instr);
  if (spmd_is_call_to(instr, "SPMDFullToShardShape")) return visit_border(p, instr, true);
  if (spmd_is_call_to(instr, "SPMDShardToFullShape")) return visit_border(p, instr, false);
  return visit_array(p, instr);
}

static weft_status *visit(spmd_program *p, const hlo_computation *comp, int depth)
{
  if (depth > MAX_NESTING)
    return WEFT_ERR(UNIMPLEMENTED, "computations nested over %d deep in a program over partitions", MAX_NESTING);
  HLO_FOREACH(instr, comp) WEFT_TRY(visit_instr(p, instr, depth));
  return NULL;
}

/* ---- the entry's parameters and results -------------------------------------------------------------------------- */

static const hlo_sharding *element_sharding(const hlo_sharding *s, int i)
{
  if (!s || s->kind != HLO_SHARDING_TUPLE) return s;
  return i < s->tuple_count ? s->elements[i] : NULL;
}

/* True if the compile options leave the sharding of parameter or result `i` (counted in leaves) to the compiler. A
 * single flag counts for all of them. */
static bool may_choose(hlo_ints flags, int i) { return flags.count == 1 ? flags.v[0] : i < flags.count && flags.v[i]; }

static bool says_nothing(const hlo_sharding *s) { return !s || s->kind == HLO_SHARDING_UNKNOWN; }

static weft_status *bind_parameters(spmd_program *p)
{
  const hlo_computation *entry = p->module->entry;
  int number = 0;

  p->params_fit = WEFT_ARENA_ARRAY(p->scratch, bool, entry->param_count);
  WEFT_TRY_ALLOC(p->params_fit);
  for (int i = 0; i < entry->param_count; i++) {
    const hlo_instr *param = entry->params[i];
    const hlo_sharding *given = given_sharding(param);
    spmd_leaves *leaves;
    WEFT_TRY(fresh_leaves(p, param->shape, &leaves));
    WEFT_TRY(bind(p, param, leaves));
    p->params_fit[i] = true;
    for (int k = 0; k < leaves->count; k++, number++) {
      int at = k;
      const hlo_sharding *s = hlo_shape_is_tuple(param->shape) ? element_sharding(given, k) : given;
      if (says_nothing(s) && may_choose(p->module->propagate_to_parameters, number)) continue;
      if (says_nothing(s)) s = NULL;
      WEFT_TRY_NOTE(
        spmd_sharding_of(&p->grid, s, leaf_shape(param->shape, &at), p->scratch, leaves->v[k], &p->params_fit[i]),
        "parameter %d", i);
    }
  }
  return NULL;
}

static weft_status *bind_results(spmd_program *p)
{
  const hlo_computation *entry = p->module->entry;
  const hlo_sharding *given = p->module->spmd_output_sharding ? p->module->spmd_output_sharding
                                                              : given_sharding(entry->root);
  spmd_leaves *leaves;

  WEFT_TRY(fresh_leaves(p, entry->root->shape, &leaves));
  p->results_open = WEFT_ARENA_ARRAY(p->scratch, bool, leaves->count);
  p->results_fit = WEFT_ARENA_ARRAY(p->scratch, bool, leaves->count);
  WEFT_TRY_ALLOC(p->results_open);
  WEFT_TRY_ALLOC(p->results_fit);
  for (int i = 0; i < leaves->count; i++) {
    int at = i;
    const hlo_shape *shape = leaf_shape(entry->root->shape, &at);
    const hlo_sharding *s = element_sharding(given, i);
    p->results_fit[i] = true;
    p->results_open[i] = says_nothing(s) && may_choose(p->module->propagate_to_output, i);
    if (p->results_open[i]) continue;
    WEFT_TRY_NOTE(
      spmd_sharding_of(&p->grid, says_nothing(s) ? NULL : s, shape, p->scratch, leaves->v[i], &p->results_fit[i]),
      "result %d", i);
  }
  p->results = *leaves;
  return require_root(p, entry, leaves);
}

/* ---- growing ----------------------------------------------------------------------------------------------------- */

/* The best axes that any tensor has for each factor: those of the largest tensor, or a list that continues them. */
static void best_axes(const spmd_edge *e, spmd_axes *best, int64_t *weight)
{
  const spmd_factors *f = &e->factors;

  for (int i = 0; i < f->count; i++) {
    best[i].count = 0;
    weight[i] = -1;
    for (int t = 0; t < f->tensor_count; t++) {
      const spmd_axes *axes = &e->axes[t * f->count + i];
      int64_t elems = hlo_shape_is_array(f->tensors[t].shape) ? hlo_shape_elems(f->tensors[t].shape) : 0;
      int common = spmd_axes_common(axes, &best[i]);
      if (!axes->count) continue;
      if (common == best[i].count ? axes->count > common || elems > weight[i]
                                  : common < axes->count && elems > weight[i]) {
        best[i] = *axes;
        weight[i] = WEFT_MAX(elems, weight[i]);
      }
    }
  }
}

/* Adds to tensor t's factor what `best` has in addition. True: it grew. */
static bool grow(const spmd_grid *grid, spmd_edge *e, int t, int factor, const spmd_axes *best)
{
  const spmd_factors *f = &e->factors;
  spmd_sharding *s = e->s[t];
  spmd_axes *axes = &e->axes[t * f->count], had = axes[factor];
  spmd_mask used = spmd_sharding_axes(s) | e->forbidden;
  const spmd_tensor *tensor = &f->tensors[t];
  int64_t left = f->factor[factor].size / spmd_axes_size(grid, &had, 0);
  int dim = -1, listed = 0;

  if (best->count <= had.count || spmd_axes_common(best, &had) != had.count) return false;
  for (int u = 0; u < tensor->use_count; u++)
    if (tensor->uses[u].factor == factor) dim = tensor->uses[u].dim;
  if (dim < 0 || s->closed >> dim & 1) return false;
  for (int u = 0; u < tensor->use_count; u++)
    if (tensor->uses[u].dim == dim) listed += axes[tensor->uses[u].factor].count;
  if (listed != s->dims[dim].count) return false; /* cut by more than factors can express */
  for (int i = had.count; i < best->count; i++) {
    int a = best->v[i];
    if (used >> a & 1 || left % grid->sizes[a]) break;
    left /= grid->sizes[a];
    spmd_axes_push(&axes[factor], a);
  }
  /* sizes differ along a moved factor: it takes all of `best` or nothing, so that no part of a mesh axis is taken */
  if (f->factor[factor].is_moved && axes[factor].count < best->count) axes[factor] = had;
  if (axes[factor].count > had.count) {
    spmd_axes dims[HLO_MAX_RANK];
    spmd_sharding made = {.rank = s->rank, .dims = dims};
    int wrong;
    if (spmd_factor_sharding(grid, f, t, axes, &made, &wrong)) {
      s->dims[dim] = dims[dim];
      return true;
    }
    axes[factor] = had;
  }
  return false;
}

static bool propagate_edge(const spmd_grid *grid, spmd_edge *e)
{
  const spmd_factors *f = &e->factors;
  spmd_axes best[SPMD_MAX_FACTORS];
  int64_t weight[SPMD_MAX_FACTORS];
  bool any = false, changed = false;

  for (int t = 0; t < f->tensor_count && !any; t++) any = spmd_sharding_axes(e->s[t]) != 0;
  if (!any) return false;
  for (int t = 0; t < f->tensor_count; t++) spmd_factor_axes(grid, f, t, e->s[t], &e->axes[t * f->count]);
  best_axes(e, best, weight);
  for (;;) { /* factors that the largest tensors determine come first */
    int next = -1;
    for (int i = 0; i < f->count; i++)
      if (weight[i] >= 0 && (next < 0 || weight[i] > weight[next])) next = i;
    if (next < 0) return changed;
    weight[next] = -1;
    for (int t = 0; t < f->tensor_count; t++) changed |= grow(grid, e, t, next, &best[next]);
  }
}

static void propagate_edges(spmd_program *p, bool all)
{
  bool changed = true;

  for (int round = 0; changed && round < MAX_ROUNDS; round++) {
    changed = false;
    for (int i = 0; i < p->edge_count; i++)
      if (all || p->edges[i].factors.passes_through) changed |= propagate_edge(&p->grid, &p->edges[i]);
    for (int i = p->edge_count - 1; i >= 0; i--)
      if (all || p->edges[i].factors.passes_through) changed |= propagate_edge(&p->grid, &p->edges[i]);
  }
}

weft_status *spmd_propagate(spmd_program *p)
{
  p->leaves.arena = p->borders.arena = p->roots.arena = p->groups.arena = p->scratch;
  WEFT_TRY(spmd_grid_of(p->module, p->scratch, &p->grid));
  WEFT_TRY(bind_parameters(p));
  WEFT_TRY(visit(p, p->module->entry, 0));
  WEFT_TRY(bind_results(p));
  propagate_edges(p, false);
  propagate_edges(p, true);
  for (int i = 0; i < p->results.count; i++)
    if (p->results_open[i]) {
      WEFT_TRY(spmd_sharding_copy(p->scratch, spmd_leaves_of(p, p->module->entry->root)->v[i], p->results.v[i]));
      spmd_sharding_drop_parts(&p->grid, p->results.v[i]);
    }
  for (int i = 0; i < p->module->entry->param_count; i++) {
    const spmd_leaves *leaves = spmd_leaves_of(p, p->module->entry->params[i]);
    for (int k = 0; k < leaves->count; k++)
      if (!leaves->v[k]->fixed) spmd_sharding_drop_parts(&p->grid, leaves->v[k]);
  }
  return NULL;
}
