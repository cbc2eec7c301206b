/* stablehlo/lower_sdy.c -- Shardy: meshes and shardings become device lists, manual computations become the custom-calls
 * of XLA's partitioner around a region of one partition's shapes:
 *
 *   Sharding {tiles} -> SPMDFullToShardShape -> region -> Sharding {manual} -> SPMDShardToFullShape {tiles}
 *
 * A manual computation may leave axes free.  The tiles at its borders are then those of its manual axes alone: along free
 * axes every partition holds the whole and computes the same.  On one partition all of it says nothing. */
#include <string.h>

#include "hlo/sharding.h"
#include "hlo/text.h"
#include "stablehlo/lower.h"

/* ---- from attributes ---------------------------------------------------------------------------------------------- */

static int array_count(const mlir_attr *a) { return a && a->kind == MLIR_ARRAY ? a->u.array.count : 0; }

/* The dictionary of a mesh: itself, or what the sdy.mesh of that name says. */
static weft_status *mesh_dict(lowering *l, const mlir_attr *a, const mlir_attr **out)
{
  const char *name = mlir_attr_text(a, NULL);
  const mlir_op *module = l->source->op;

  *out = a;
  if (a && a->kind == MLIR_DICT) return NULL;
  if (!name) return WEFT_ERR(INVALID_ARGUMENT, "a sharding without a mesh");
  for (const mlir_op *op = module->region_count && module->regions[0].first ? module->regions[0].first->first : NULL; op;
       op = op->next)
    if (op->dialect == SHLO_SDY && strcmp(op->name, "mesh") == 0 &&
        strcmp(mlir_attr_text(mlir_attr_of(op, "sym_name"), ""), name) == 0) {
      *out = mlir_attr_of(op, "mesh");
      if (*out && (*out)->kind == MLIR_DICT) return NULL;
      break;
    }
  return WEFT_ERR(INVALID_ARGUMENT, "there is no mesh @%s", name);
}

static weft_status *read_mesh(lowering *l, const mlir_attr *a, const hlo_mesh **out)
{
  hlo_mesh *mesh = WEFT_ARENA_NEW(l->arena, hlo_mesh);
  const mlir_attr *list;
  hlo_mesh_axis *axes;

  WEFT_TRY_ALLOC(mesh);
  WEFT_TRY(mesh_dict(l, a, &a));
  list = mlir_dict_get(a, "axes");
  mesh->axis_count = array_count(list);
  mesh->axes = axes = WEFT_ARENA_ARRAY(l->arena, hlo_mesh_axis, mesh->axis_count);
  WEFT_TRY_ALLOC(axes);
  for (int i = 0; i < mesh->axis_count; i++) {
    axes[i].name = weft_arena_strdup(l->arena, mlir_attr_text(mlir_dict_get(list->u.array.items[i], "name"), ""));
    axes[i].size = mlir_attr_int(mlir_dict_get(list->u.array.items[i], "size"), 0);
    WEFT_TRY_ALLOC(axes[i].name);
  }
  WEFT_TRY(mlir_attr_ints(l->program, l->source, l->arena, mlir_dict_get(a, "device_ids"), &mesh->device_ids));
  *out = mesh;
  return NULL;
}

/* Axes of a list; with `only`, those that it names. */
static weft_status *read_axes(lowering *l, const mlir_attr *list, const mlir_attr *only, int *out_count,
                              const hlo_axis_ref **out)
{
  int count = array_count(list);
  hlo_axis_ref *axes = WEFT_ARENA_ARRAY(l->arena, hlo_axis_ref, count);

  WEFT_TRY_ALLOC(axes);
  *out_count = 0;
  *out = axes;
  for (int i = 0; i < count; i++) {
    const mlir_attr *a = list->u.array.items[i], *part = mlir_dict_get(a, "sub_axis_info");
    const char *name = mlir_attr_text(mlir_dict_get(a, "name"), "");
    bool wanted = !only;
    for (int k = 0; k < array_count(only) && !wanted; k++)
      wanted = strcmp(mlir_attr_text(only->u.array.items[k], ""), name) == 0;
    if (!wanted) continue;
    hlo_axis_ref *axis = &axes[(*out_count)++];
    axis->name = weft_arena_strdup(l->arena, name);
    axis->pre_size = mlir_attr_int(mlir_dict_get(part, "pre_size"), 0);
    axis->size = mlir_attr_int(mlir_dict_get(part, "size"), 0);
    WEFT_TRY_ALLOC(axis->name);
  }
  return NULL;
}

static weft_status *read_sharding(lowering *l, const mlir_attr *a, const mlir_attr *only, int rank, const hlo_sharding **out)
{
  const mlir_attr *dims = mlir_dict_get(a, "dims");
  hlo_sharding named = {.kind = HLO_SHARDING_NAMED, .dim_count = array_count(dims)};
  struct hlo_named_dim *list = WEFT_ARENA_ARRAY(l->arena, struct hlo_named_dim, named.dim_count);

  WEFT_TRY_ALLOC(list);
  if (!a || a->kind != MLIR_DICT) return WEFT_ERR(INVALID_ARGUMENT, "a sharding that is none");
  WEFT_TRY(read_mesh(l, mlir_dict_get(a, "mesh"), &named.mesh));
  for (int d = 0; d < named.dim_count; d++)
    WEFT_TRY(read_axes(l, mlir_dict_get(dims->u.array.items[d], "axes"), only, &list[d].axis_count, &list[d].axes));
  named.dims = list;
  WEFT_TRY(read_axes(l, mlir_dict_get(a, "unreduced"), NULL, &named.unreduced_count, &named.unreduced));
  return hlo_sharding_from_named(l->arena, &named, rank, out);
}

weft_status *lower_sharding(lowering *l, const mlir_attr *sharding, int rank, const hlo_sharding **out)
{
  return read_sharding(l, sharding, NULL, rank, out);
}

weft_status *lower_mesh_groups(lowering *l, const mlir_attr *groups, hlo_replica_groups *out)
{
  const mlir_attr *mesh_attr = mlir_dict_get(groups, "mesh");
  const hlo_axis_ref *axes;
  const hlo_mesh *mesh;
  int count;

  WEFT_TRY(read_mesh(l, mesh_attr ? mesh_attr : mlir_dict_get(groups, "mesh_name"), &mesh));
  WEFT_TRY(read_axes(l, mlir_dict_get(groups, "axes"), NULL, &count, &axes));
  return hlo_groups_from_mesh(l->arena, mesh, count, axes, out);
}

/* ---- results ------------------------------------------------------------------------------------------------------ */

/* Shardings by instruction id, as far as they follow: NULL where nothing is known. */
typedef struct known_shardings { const hlo_sharding **by_id; int budget; } known_shardings;

static bool divides(const hlo_sharding *s, const hlo_shape *shape)
{
  if (!hlo_shape_is_array(shape) || s->kind != HLO_SHARDING_TILED || s->tile_dims.count < shape->rank) return false;
  for (int i = 0; i < shape->rank; i++)
    if (shape->dims[i] % s->tile_dims.v[i] != 0) return false;
  return true;
}

static bool same_dims(const hlo_shape *a, const hlo_shape *b)
{
  return hlo_shape_is_array(a) && hlo_shape_is_array(b) && a->rank == b->rank &&
         memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims) == 0;
}

/* Forward through one computation: annotations say it, operations on elements inherit it from their operands, calls
 * follow their function. */
static void follow_shardings(known_shardings *k, const hlo_computation *comp, int depth)
{
  HLO_FOREACH(instr, comp) {
    const hlo_sharding **own = &k->by_id[instr->id];
    bool is_custom = instr->op == HLO_CUSTOM_CALL;
    if (--k->budget < 0) return;
    if (instr->extra && instr->extra->sharding && instr->extra->sharding->kind == HLO_SHARDING_TILED &&
        (instr->op == HLO_PARAMETER || is_custom)) {
      *own = instr->extra->sharding;
    } else if (hlo_opcode_is_elementwise(instr->op)) {
      *own = NULL;
      for (int i = 0; i < instr->operand_count && !*own; i++)
        if (same_dims(instr->operands[i]->shape, instr->shape)) *own = k->by_id[instr->operands[i]->id];
    } else if (instr->op == HLO_CALL && instr->called_count == 1 && depth < 8 && !hlo_shape_is_tuple(instr->shape)) {
      const hlo_computation *callee = instr->called[0];
      for (int i = 0; i < callee->param_count; i++) k->by_id[callee->params[i]->id] = k->by_id[instr->operands[i]->id];
      follow_shardings(k, callee, depth + 1);
      *own = k->by_id[callee->root->id];
    }
    if (*own && !divides(*own, instr->shape)) *own = NULL;
  }
}

/* What the function says of a result, else what follows for it, else replicated. */
static weft_status *result_sharding(lowering *l, const mlir_attr *dict, const hlo_instr *result, const known_shardings *k,
                                    const hlo_sharding **out)
{
  const mlir_attr *sdy = mlir_dict_get(dict, "sdy.sharding");
  const char *text = mlir_attr_text(mlir_dict_get(dict, "mhlo.sharding"), "");
  static const hlo_sharding replicated = {.kind = HLO_SHARDING_REPLICATED};

  if (sdy) return lower_sharding(l, sdy, hlo_shape_is_array(result->shape) ? result->shape->rank : 0, out);
  if (text[0] == '{') return hlo_parse_sharding(l->arena, text, strlen(text), out);
  *out = k->by_id[result->id] ? k->by_id[result->id] : &replicated;
  return NULL;
}

weft_status *lower_result_shardings(lowering *l, const mlir_op *func, int count, hlo_instr *const *results)
{
  const mlir_attr *dicts = mlir_attr_of(func, "res_attrs");
  const hlo_sharding **shardings = WEFT_ARENA_ARRAY(l->arena, const hlo_sharding *, count);
  known_shardings known = {WEFT_ARENA_ARRAY(&l->scratch, const hlo_sharding *, l->module->next_id), 8 * l->module->next_id};
  hlo_sharding *tuple;

  WEFT_TRY_ALLOC(shardings);
  WEFT_TRY_ALLOC(known.by_id);
  if (l->module->num_partitions <= 1 || count == 0) return NULL;
  follow_shardings(&known, l->comp, 0);
  for (int i = 0; i < count; i++)
    WEFT_TRY(result_sharding(l, i < array_count(dicts) ? dicts->u.array.items[i] : NULL, results[i], &known, &shardings[i]));
  l->module->spmd_output_sharding = shardings[0];
  if (!hlo_shape_is_tuple(l->comp->root->shape)) return NULL;
  tuple = WEFT_ARENA_NEW(l->arena, hlo_sharding);
  WEFT_TRY_ALLOC(tuple);
  *tuple = (hlo_sharding){.kind = HLO_SHARDING_TUPLE, .tuple_count = count, .elements = shardings};
  l->module->spmd_output_sharding = tuple;
  return NULL;
}

/* ---- operations --------------------------------------------------------------------------------------------------- */

static weft_status *annotate(lowering *l, const char *target, hlo_instr *x, const hlo_shape *shape,
                             const hlo_sharding *sharding, hlo_instr **out)
{
  hlo_custom_call_attrs *c = WEFT_ARENA_NEW(l->arena, hlo_custom_call_attrs);
  hlo_extra *extra;
  hlo_instr *made;

  WEFT_TRY_ALLOC(c);
  *c = (hlo_custom_call_attrs){.target = weft_arena_strdup(l->arena, target), .api_version = 1};
  WEFT_TRY_ALLOC(c->target);
  WEFT_TRY(lower_emit(l, HLO_CUSTOM_CALL, shape, 1, &x, &made));
  made->u.custom = c;
  WEFT_TRY(lower_new_extra(l, made, &extra));
  extra->sharding = sharding;
  WEFT_TRY(lower_finish(made));
  *out = made;
  return NULL;
}

/* Inside a manual computation only free axes are left to speak of, along which every partition holds the whole. */
weft_status *lower_sharding_constraint(lowering *l, const mlir_op *op)
{
  const hlo_sharding *sharding;
  hlo_instr *x;

  WEFT_TRY(lower_operand(l, op, 0, &x));
  if (l->module->num_partitions > 1 && l->manual == 0 && hlo_shape_is_array(x->shape) && x->shape->rank > 0) {
    WEFT_TRY(lower_sharding(l, mlir_attr_of(op, "sharding"), x->shape->rank, &sharding));
    WEFT_TRY(annotate(l, "Sharding", x, x->shape, sharding, &x));
  }
  return lower_result(l, op, 0, x);
}

weft_status *lower_manual_computation(lowering *l, const mlir_op *op)
{
  static const hlo_sharding manual = {.kind = HLO_SHARDING_MANUAL};
  const mlir_attr *in = mlir_attr_of(op, "in_shardings"), *out = mlir_attr_of(op, "out_shardings");
  const mlir_attr *axes = mlir_attr_of(op, "manual_axes");
  bool one = l->module->num_partitions <= 1;
  const hlo_sharding *sharding;
  const hlo_shape *shape;
  hlo_instr **args, **results, *x;
  int count;

  WEFT_TRY(lower_operands(l, op, &args));
  if (!one && (!axes || axes->kind != MLIR_ARRAY || array_count(in) != op->operand_count ||
               array_count(out) != op->result_count || op->region_count != 1 || !op->regions[0].first ||
               op->regions[0].first->arg_count != op->operand_count))
    return WEFT_ERR(INVALID_ARGUMENT, "%d operands with %d shardings, %d results with %d", op->operand_count,
                    array_count(in), op->result_count, array_count(out));
  for (int i = 0; !one && i < op->operand_count; i++) {
    if (!hlo_shape_is_array(args[i]->shape)) continue;
    WEFT_TRY(read_sharding(l, in->u.array.items[i], axes, args[i]->shape->rank, &sharding));
    WEFT_TRY(lower_shape(l, op->regions[0].first->args[i].type, &shape));
    WEFT_TRY(annotate(l, "Sharding", args[i], args[i]->shape, sharding, &x));
    WEFT_TRY(annotate(l, "SPMDFullToShardShape", x, shape, &manual, &args[i]));
  }
  l->manual++;
  WEFT_TRY(lower_inlined(l, op, args, &count, &results));
  l->manual--;
  for (int i = 0; i < count; i++) {
    x = results[i];
    if (!one && hlo_shape_is_array(x->shape)) {
      WEFT_TRY(read_sharding(l, out->u.array.items[i], axes, x->shape->rank, &sharding));
      WEFT_TRY(lower_shape(l, op->results[i].type, &shape));
      WEFT_TRY(annotate(l, "Sharding", x, x->shape, &manual, &x));
      WEFT_TRY(annotate(l, "SPMDShardToFullShape", x, shape, sharding, &x));
    }
    WEFT_TRY(lower_result(l, op, i, x));
  }
  return NULL;
}
