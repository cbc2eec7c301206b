/* passes/util.c -- functions that several passes share (util.h). */
#include <config.h>

#include "passes/util.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "codegen/model/library.h"

/* An array in `arena` with at least `need` elements, which holds the first `count` of `old`; the rest is zero. */
static void *grown(weft_arena *arena, const void *old, int count, int need, size_t size, int *out_capacity)
{
  int capacity = WEFT_MAX(need + need / 2, 64);
  void *v = weft_arena_alloc_array(arena, (size_t)capacity, size);

  if (v && count) memcpy(v, old, (size_t)count * size);
  if (v) *out_capacity = capacity;
  return v;
}

/* Makes room for `id`, and on its side for half as much again. */
static weft_status *widen(pass_map *map, int id)
{
  int least = map->capacity ? WEFT_MIN(map->least, id) : id, most = WEFT_MAX(map->least + map->capacity - 1, id);
  int room = (most - least) / 2 + 32;
  void **v;

  if (map->capacity && id < map->least) least = WEFT_MAX(least - room, 0);
  else most += room;
  v = weft_arena_alloc_array(map->arena, (size_t)(most - least + 1), sizeof *v);
  WEFT_TRY_ALLOC(v);
  if (map->capacity) memcpy(v + (map->least - least), map->v, (size_t)map->capacity * sizeof *v);
  map->v = v;
  map->least = least;
  map->capacity = most - least + 1;
  return NULL;
}

weft_status *pass_map_set(pass_map *map, int id, void *value)
{
  if (id < map->least || id - map->least >= map->capacity) {
    if (!value) return NULL; /* it is absent */
    WEFT_TRY(widen(map, id));
  }
  map->v[id - map->least] = value;
  return NULL;
}

weft_status *pass_worklist_push(pass_worklist *list, hlo_instr *instr)
{
  if (instr->id >= list->id_capacity) {
    bool *flags =
      grown(list->arena, list->is_queued, list->id_capacity, instr->id + 1, sizeof *flags, &list->id_capacity);
    WEFT_TRY_ALLOC(flags);
    list->is_queued = flags;
  }
  if (list->is_queued[instr->id]) return NULL;
  if (list->count == list->capacity) {
    hlo_instr **items = grown(list->arena, list->items, list->count, list->count + 1, sizeof *items, &list->capacity);
    WEFT_TRY_ALLOC(items);
    list->items = items;
  }
  list->is_queued[instr->id] = true;
  list->items[list->count++] = instr;
  return NULL;
}

hlo_instr *pass_worklist_pop(pass_worklist *list)
{
  while (list->count > 0) {
    hlo_instr *instr = list->items[--list->count];
    list->is_queued[instr->id] = false;
    if (instr->parent) return instr;
  }
  return NULL;
}

/* ---- computations ------------------------------------------------------------------------------------------------ */

static bool is_control_flow(const hlo_instr *caller)
{
  return caller->op == HLO_WHILE || caller->op == HLO_CONDITIONAL || caller->op == HLO_CALL;
}

/* The kind of a computation, by its callers. A computation that is called in both ways counts as embedded, so that a
 * kernel can still be made of it. */
typedef enum role { UNREACHED, SEQUENTIAL, EMBEDDED } role;

static void find_roles(const hlo_module *module, role *roles)
{
  roles[module->entry->id] = SEQUENTIAL;
  for (const hlo_computation *comp = module->last; comp; comp = comp->prev) { /* callers before callees */
    if (roles[comp->id] == UNREACHED) continue;
    for (const hlo_instr *instr = comp->first; instr; instr = instr->next)
      for (int i = 0; i < instr->called_count; i++) {
        role *callee = &roles[instr->called[i]->id], is = is_control_flow(instr) ? roles[comp->id] : EMBEDDED;
        *callee = WEFT_MAX(*callee, is);
      }
  }
}

weft_status *pass_sequential(const hlo_module *module, weft_arena *arena, pass_comps *out_comps)
{
  role *roles = WEFT_ARENA_ARRAY(arena, role, module->next_computation_id);

  *out_comps = (pass_comps){.v = WEFT_ARENA_ARRAY(arena, hlo_computation *, module->computation_count)};
  WEFT_TRY_ALLOC(roles);
  WEFT_TRY_ALLOC(out_comps->v);
  find_roles(module, roles);
  HLO_FOREACH_COMPUTATION(comp, module)
    if (roles[comp->id] == SEQUENTIAL) out_comps->v[out_comps->count++] = comp;
  return NULL;
}

bool pass_same_but_units(const hlo_shape *a, const hlo_shape *b)
{
  int i = 0, j = 0;

  for (;;) {
    while (i < a->rank && a->dims[i] == 1) i++;
    while (j < b->rank && b->dims[j] == 1) j++;
    if (i == a->rank || j == b->rank) return i == a->rank && j == b->rank;
    if (a->dims[i++] != b->dims[j++]) return false;
  }
}

void pass_map_units(const hlo_shape *from, const hlo_shape *to, int64_t *map)
{
  int j = 0;

  for (int i = 0; i < from->rank; i++) {
    map[i] = -1;
    if (from->dims[i] == 1) continue;
    while (to->dims[j] == 1) j++;
    map[i] = j++;
  }
}

bool pass_moves(const hlo_shape *shape, const int64_t *permutation)
{
  int64_t last = -1;

  for (int i = 0; i < shape->rank; i++) {
    if (shape->dims[permutation[i]] == 1) continue;
    if (permutation[i] < last) return true;
    last = permutation[i];
  }
  return false;
}

bool pass_is_identity(hlo_opcode op, const hlo_instr *value)
{
  weft_dtype type = value->shape->type;
  bool is_float = weft_dtype_is_float(type), is_pred = type == WEFT_PRED;

  switch (op) {
  case HLO_ADD: case HLO_OR: case HLO_XOR: return hlo_is_constant_scalar(value, 0); /* for sums: -0 + 0 is 0 */
  case HLO_MULTIPLY: return hlo_is_constant_scalar(value, 1);
  case HLO_AND: return hlo_is_constant_scalar(value, is_pred ? 1 : -1) && !weft_dtype_is_unsigned(type);
  case HLO_MAXIMUM:
    return (is_float && hlo_is_constant_scalar(value, -INFINITY)) || (is_pred && hlo_is_constant_scalar(value, 0));
  case HLO_MINIMUM:
    return (is_float && hlo_is_constant_scalar(value, INFINITY)) || (is_pred && hlo_is_constant_scalar(value, 1));
  default: return false;
  }
}

bool pass_has_control_edges(const hlo_instr *instr)
{
  return instr->control->pred_count > 0 || instr->control->succ_count > 0;
}

weft_status *pass_set_trip_count(hlo_instr *loop, int64_t trips)
{
  hlo_extra *extra;

  WEFT_TRY(hlo_mutable_extra(loop, &extra));
  extra->backend_config =
    weft_arena_printf(&loop->parent->module->arena, "{\"known_trip_count\":{\"n\":\"%" PRId64 "\"}}", trips);
  extra->backend_config_is_json = true;
  WEFT_TRY_ALLOC(extra->backend_config);
  return NULL;
}

/* ---- inlining and outlining -------------------------------------------------------------------------------------- */

weft_status *pass_mapped_operands(const hlo_instr *instr, const pass_map *map, hlo_instr ***operands, int *capacity)
{
  if (instr->operand_count > *capacity) {
    *operands = grown(map->arena, NULL, 0, instr->operand_count, sizeof **operands, capacity);
    WEFT_TRY_ALLOC(*operands);
  }
  for (int i = 0; i < instr->operand_count; i++) (*operands)[i] = pass_map_get(map, instr->operands[i]->id);
  return NULL;
}

weft_status *pass_inline(hlo_instr *call, const hlo_computation *callee, pass_map *map, hlo_instr **out_root)
{
  hlo_instr **operands = NULL, *root;
  int capacity = 0;

  for (const hlo_instr *instr = callee->first; instr; instr = instr->next) {
    hlo_instr *copy;
    if (instr->op == HLO_PARAMETER) {
      WEFT_TRY(pass_map_set(map, instr->id, call->operands[instr->u.parameter_number]));
      continue;
    }
    WEFT_TRY(pass_mapped_operands(instr, map, &operands, &capacity));
    WEFT_TRY(hlo_add_clone(call->parent, call, instr, operands, &copy));
    WEFT_TRY(pass_map_set(map, instr->id, copy));
    for (int i = 0; i < instr->control->pred_count; i++)
      WEFT_TRY(hlo_add_control_edge(pass_map_get(map, instr->control->preds[i]->id), copy));
    /* Instructions with an effect still run after the call's control predecessors and before its successors. */
    if (!pass_has_control_edges(call) || !hlo_has_side_effect(instr)) continue;
    for (int i = 0; i < call->control->pred_count; i++) WEFT_TRY(hlo_add_control_edge(call->control->preds[i], copy));
    for (int i = 0; i < call->control->succ_count; i++) WEFT_TRY(hlo_add_control_edge(copy, call->control->succs[i]));
  }
  root = pass_map_get(map, callee->root->id);
  /* the replacement is an operand, which runs before all of `call` and must not take over its control edges */
  if (callee->root->op == HLO_PARAMETER) hlo_remove_control_edges(call);
  WEFT_TRY(hlo_replace(call, root));
  if (out_root) *out_root = root;
  return NULL;
}

/* The copy inside `body` of an operand from outside: a parameter, or the constant itself. */
static weft_status *bring_in(hlo_computation *body, hlo_instr *operand, pass_map *map, hlo_instr **outside,
                             int *outside_count)
{
  hlo_instr *inside;

  if (operand->op == HLO_CONSTANT && hlo_shape_is_scalar(operand->shape))
    WEFT_TRY(hlo_add_clone(body, NULL, operand, NULL, &inside));
  else {
    WEFT_TRY(hlo_add_parameter(body, *outside_count, operand->shape, NULL, &inside));
    outside[(*outside_count)++] = operand;
  }
  return pass_map_set(map, operand->id, inside);
}

static weft_status *move_control_edges(hlo_instr *from, hlo_instr *to, const pass_map *members)
{
  for (int i = 0; i < from->control->pred_count; i++)
    if (!pass_map_get(members, from->control->preds[i]->id))
      WEFT_TRY(hlo_add_control_edge(from->control->preds[i], to));
  for (int i = 0; i < from->control->succ_count; i++)
    if (!pass_map_get(members, from->control->succs[i]->id))
      WEFT_TRY(hlo_add_control_edge(to, from->control->succs[i]));
  hlo_remove_control_edges(from);
  return NULL;
}

weft_status *pass_outline(hlo_instr *const *members, int count, hlo_instr *const *outputs, int output_count,
                          pass_map *map, const char *name, hlo_instr **out_fusion)
{
  hlo_computation *comp = members[0]->parent, *body;
  hlo_instr *last = members[count - 1], *fusion, **outside, **operands = NULL;
  const hlo_shape *shape;
  const char *body_name;
  int outside_count = 0, capacity = 0, operand_total = 0;

  for (int i = 0; i < count; i++) operand_total += members[i]->operand_count;
  outside = WEFT_ARENA_ARRAY(map->arena, hlo_instr *, operand_total);
  WEFT_TRY_ALLOC(outside);
  WEFT_TRY(hlo_unique_name(comp->module, "fused_computation", &body_name));
  WEFT_TRY(hlo_computation_new(comp->module, body_name, &body));

  /* Members are visited in order, so an operand without a copy comes from outside. */
  for (int i = 0; i < count; i++) {
    hlo_instr *copy;
    for (int k = 0; k < members[i]->operand_count; k++)
      if (!pass_map_get(map, members[i]->operands[k]->id))
        WEFT_TRY(bring_in(body, members[i]->operands[k], map, outside, &outside_count));
    WEFT_TRY(pass_mapped_operands(members[i], map, &operands, &capacity));
    WEFT_TRY(hlo_add_clone(body, NULL, members[i], operands, &copy));
    WEFT_TRY(pass_map_set(map, members[i]->id, copy));
  }

  if (output_count == 1) {
    body->root = pass_map_get(map, outputs[0]->id);
    shape = outputs[0]->shape;
  } else {
    hlo_instr **roots = WEFT_ARENA_ARRAY(map->arena, hlo_instr *, output_count);
    WEFT_TRY_ALLOC(roots);
    for (int i = 0; i < output_count; i++) roots[i] = pass_map_get(map, outputs[i]->id);
    WEFT_TRY(hlo_add_tuple(body, NULL, output_count, roots, &body->root));
    shape = body->root->shape;
  }

  WEFT_TRY(hlo_unique_name(comp->module, name, &name));
  WEFT_TRY(hlo_add(comp, last, HLO_FUSION, shape, outside_count, outside, name, &fusion));
  fusion->metadata = outputs[0]->metadata;
  WEFT_TRY(hlo_set_called(fusion, 1, &body));
  for (int i = 0; i < output_count; i++) WEFT_TRY(move_control_edges(outputs[i], fusion, map));
  for (int i = 0; i < output_count; i++) {
    hlo_instr *value = fusion;
    if (output_count > 1) WEFT_TRY(hlo_add_gte(comp, last, fusion, i, &value));
    WEFT_TRY(hlo_replace_uses(outputs[i], value));
  }
  for (int i = 0; i < count; i++)
    for (int k = 0; k < members[i]->operand_count; k++) WEFT_TRY(pass_map_set(map, members[i]->operands[k]->id, NULL));
  for (int i = count - 1; i >= 0; i--) {
    WEFT_TRY(pass_map_set(map, members[i]->id, NULL));
    if (hlo_is_dead(members[i])) WEFT_TRY(hlo_remove(members[i]));
  }
  *out_fusion = fusion;
  return NULL;
}

bool pass_compares_two(const hlo_computation *order, bool *out_largest)
{
  const hlo_instr *root = order->root;

  if (root->op != HLO_COMPARE || order->param_count < 2) return false;
  bool turned = root->operands[0] == order->params[1], greater = root->u.compare.direction == HLO_GT;
  *out_largest = greater != turned;
  return root->operands[turned] == order->params[0] && root->operands[!turned] == order->params[1] &&
         (greater || root->u.compare.direction == HLO_LT);
}

bool pass_is_canonical_dot(const hlo_instr *dot)
{
  const hlo_dot_attrs *a = dot->u.dot;
  int rank = a->lhs_batch.count + 2;

  return dot->operand_count == 2 && !a->sparsity && a->lhs_batch.count <= 1 && a->lhs_contracting.count == 1 &&
         dot->operands[0]->shape->rank == rank && dot->operands[1]->shape->rank == rank;
}

bool pass_is_in_memory(const hlo_instr *x)
{
  switch (x->op) {
  case HLO_PARAMETER: case HLO_CONSTANT: case HLO_GET_TUPLE_ELEMENT: case HLO_DOT: case HLO_CONVOLUTION:
  case HLO_CUSTOM_CALL: case HLO_DYNAMIC_UPDATE_SLICE: case HLO_SCATTER: return true;
  case HLO_FUSION: return gen_is_library_fusion(x);
  default: return false;
  }
}
