/* stablehlo/lower_sdy.c -- Shardy: meshes and shardings become device lists, manual computations become the
 * custom-calls of XLA's partitioner around a region of one partition's shapes:
 *
 *   Sharding -> SPMDFullToShardShape -> region -> SPMDShardToFullShape -> Sharding
 *
 * Shardings stay named, with their open dimensions, for the partitioner to complete.  Those of the
 * borders have the manual axes alone, which they list; a manual computation may leave axes free.  On
 * one partition all of this has no effect. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hlo/sharding.h"
#include "hlo/text.h"
#include "stablehlo/lower.h"

/* ---- from attributes --------------------------------------------------------------------------------------------- */

static int array_count(const mlir_attr *a) { return a && a->kind == MLIR_ARRAY ? a->u.array.count : 0; }

/* The dictionary of a mesh: the attribute itself, or the content of the sdy.mesh of that name. */
static weft_status *mesh_dict(lowering *l, const mlir_attr *a, const mlir_attr **out)
{
  const char *name = mlir_attr_text(a, NULL);
  const mlir_op *module = l->source->op;

  *out = a;
  if (a && a->kind == MLIR_DICT) return NULL;
  if (!name) return WEFT_ERR(INVALID_ARGUMENT, "a sharding without a mesh");
  for (const mlir_op *op = module->region_count && module->regions[0].first ? module->regions[0].first->first : NULL;
       op; op = op->next)
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

/* The axes of a list; with `only`, those of them that `only` names. */
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

/* Makes a named sharding of all axes, or of those in `only`. */
static weft_status *read_sharding(lowering *l, const mlir_attr *a, const mlir_attr *only, const hlo_sharding **out)
{
  const mlir_attr *dims = mlir_dict_get(a, "dims");
  hlo_sharding *named = WEFT_ARENA_NEW(l->arena, hlo_sharding);
  struct hlo_named_dim *list = WEFT_ARENA_ARRAY(l->arena, struct hlo_named_dim, array_count(dims));

  WEFT_TRY_ALLOC(named);
  WEFT_TRY_ALLOC(list);
  if (!a || a->kind != MLIR_DICT) return WEFT_ERR(INVALID_ARGUMENT, "a sharding that is none");
  *named = (hlo_sharding){.kind = HLO_SHARDING_NAMED, .dim_count = array_count(dims), .dims = list};
  WEFT_TRY(read_mesh(l, mlir_dict_get(a, "mesh"), &named->mesh));
  for (int d = 0; d < named->dim_count; d++) {
    const mlir_attr *dim = dims->u.array.items[d];
    WEFT_TRY(read_axes(l, mlir_dict_get(dim, "axes"), only, &list[d].axis_count, &list[d].axes));
    list[d].open = !mlir_attr_int(mlir_dict_get(dim, "is_closed"), 0);
  }
  WEFT_TRY(read_axes(l, mlir_dict_get(a, "unreduced"), NULL, &named->unreduced_count, &named->unreduced));
  *out = named;
  return NULL;
}

weft_status *lower_sharding(lowering *l, const mlir_attr *sharding, const hlo_sharding **out)
{
  return read_sharding(l, sharding, NULL, out);
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

/* ---- results ----------------------------------------------------------------------------------------------------- */

/* What the function says about a result; UNKNOWN leaves it to the partitioner. */
static weft_status *result_sharding(lowering *l, const mlir_attr *dict, const hlo_sharding **out)
{
  const mlir_attr *sdy = mlir_dict_get(dict, "sdy.sharding");
  const char *text = mlir_attr_text(mlir_dict_get(dict, "mhlo.sharding"), "");
  static const hlo_sharding unknown = {.kind = HLO_SHARDING_UNKNOWN};

  *out = &unknown;
  if (sdy) return lower_sharding(l, sdy, out);
  return text[0] == '{' ? hlo_parse_sharding(l->arena, text, strlen(text), out) : NULL;
}

weft_status *lower_result_shardings(lowering *l, const mlir_op *func, int count)
{
  const mlir_attr *dicts = mlir_attr_of(func, "res_attrs");
  const hlo_sharding **shardings = WEFT_ARENA_ARRAY(l->arena, const hlo_sharding *, count);
  hlo_sharding *tuple;

  WEFT_TRY_ALLOC(shardings);
  if (l->module->num_partitions <= 1 || count == 0) return NULL;
  for (int i = 0; i < count; i++)
    WEFT_TRY(result_sharding(l, i < array_count(dicts) ? dicts->u.array.items[i] : NULL, &shardings[i]));
  l->module->spmd_output_sharding = shardings[0];
  if (!hlo_shape_is_tuple(l->comp->root->shape)) return NULL;
  tuple = WEFT_ARENA_NEW(l->arena, hlo_sharding);
  WEFT_TRY_ALLOC(tuple);
  *tuple = (hlo_sharding){.kind = HLO_SHARDING_TUPLE, .tuple_count = count, .elements = shardings};
  l->module->spmd_output_sharding = tuple;
  return NULL;
}

/* ---- sharding rules --------------------------------------------------------------------------------------------- */

/* Factors are letters from i on, then z_1, z_2, ... */
static void put_factor(FILE *f, int64_t n)
{
  if (n < 'z' - 'i' + 1) fputc('i' + (int)n, f);
  else fprintf(f, "z_%" PRId64, n - ('z' - 'i'));
}

static void put_factors(FILE *f, const mlir_attr *factors, const char *between)
{
  for (int i = 0; i < array_count(factors); i++) {
    fputs(i ? between : "", f);
    put_factor(f, mlir_attr_int(factors->u.array.items[i], 0));
  }
}

/* ([i, jk], [j]) */
static void put_mappings(FILE *f, const mlir_attr *tensors)
{
  fputc('(', f);
  for (int t = 0; t < array_count(tensors); t++) {
    const mlir_attr *dims = tensors->u.array.items[t];
    fputs(t ? ", [" : "[", f);
    for (int d = 0; d < array_count(dims); d++) {
      fputs(d ? ", " : "", f);
      put_factors(f, dims->u.array.items[d], "");
    }
    fputc(']', f);
  }
  fputc(')', f);
}

static weft_status *rule_text(lowering *l, const mlir_attr *rule, const char **out)
{
  static const char *const kinds[] = {"reduction", "need_replication", "permutation", "blocked_propagation"};
  const mlir_attr *sizes = mlir_dict_get(rule, "factor_sizes");
  char *text = NULL;
  size_t size;
  FILE *f = open_memstream(&text, &size);

  WEFT_TRY_ALLOC(f);
  put_mappings(f, mlir_dict_get(rule, "operands"));
  fputs("->", f);
  put_mappings(f, mlir_dict_get(rule, "results"));
  fputs(" {", f);
  for (int i = 0; i < array_count(sizes); i++) {
    fputs(i ? ", " : "", f);
    put_factor(f, i);
    fprintf(f, "=%" PRId64, mlir_attr_int(sizes->u.array.items[i], 0));
  }
  fputc('}', f);
  for (size_t k = 0; k < WEFT_COUNT(kinds); k++) {
    if (array_count(mlir_dict_get(rule, kinds[k])) == 0) continue;
    fprintf(f, " %s={", kinds[k]);
    put_factors(f, mlir_dict_get(rule, kinds[k]), ", ");
    fputc('}', f);
  }
  if (fclose(f) == 0 && text) *out = weft_arena_strndup(l->arena, text, size);
  free(text);
  WEFT_TRY_ALLOC(*out);
  return NULL;
}

weft_status *lower_sharding_rule(lowering *l, const mlir_attr *rule, hlo_instr *instr)
{
  const char *text = NULL;

  if (rule->kind == MLIR_OPAQUE) text = weft_arena_strndup(l->arena, rule->u.text.s, rule->u.text.size);
  else if (rule->kind == MLIR_DICT) WEFT_TRY(rule_text(l, rule, &text));
  else return WEFT_ERR(INVALID_ARGUMENT, "sdy.sharding_rule is no sharding rule");
  WEFT_TRY_ALLOC(text);
  return lower_frontend_attributes(l, instr, 1, &(hlo_key_value){"xla.sdy.sharding_rule", text});
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

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

/* A constraint, or a reshard, which is a constraint that must hold. Of a scalar it says something only if the scalar
 * is a sum; the scalars in reducers have constraints too. */
weft_status *lower_sharding_constraint(lowering *l, const mlir_op *op)
{
  const mlir_attr *given = mlir_attr_of(op, "sharding");
  const hlo_sharding *sharding;
  hlo_instr *x;

  WEFT_TRY(lower_operand(l, op, 0, &x));
  if (l->module->num_partitions > 1 && hlo_shape_is_array(x->shape) &&
      (x->shape->rank > 0 || array_count(mlir_dict_get(given, "unreduced")))) {
    WEFT_TRY(lower_sharding(l, given, &sharding));
    WEFT_TRY(annotate(l, "Sharding", x, x->shape, sharding, &x));
  }
  return lower_result(l, op, 0, x);
}

/* A member of a group of values that are to be partitioned alike. */
weft_status *lower_sharding_group(lowering *l, const mlir_op *op)
{
  hlo_sharding *sharding = WEFT_ARENA_NEW(l->arena, hlo_sharding);
  hlo_instr *x;

  WEFT_TRY_ALLOC(sharding);
  *sharding = (hlo_sharding){
    .kind = HLO_SHARDING_UNKNOWN, .shard_group = 1, .shard_group_id = mlir_attr_int(mlir_attr_of(op, "group_id"), 0)};
  WEFT_TRY(lower_operand(l, op, 0, &x));
  if (l->module->num_partitions <= 1 || !hlo_shape_is_array(x->shape)) return NULL;
  return annotate(l, "Sharding", x, x->shape, sharding, &x);
}

/* The annotation at a border: how the manual axes cut the array, and which axes they are. */
static weft_status *border_sharding(lowering *l, const mlir_attr *given, const mlir_attr *axes,
                                    const hlo_sharding **out)
{
  int count = array_count(axes);
  hlo_axis_ref *manual = WEFT_ARENA_ARRAY(l->arena, hlo_axis_ref, count);
  const hlo_sharding *sharding;
  hlo_sharding *named;

  WEFT_TRY_ALLOC(manual);
  WEFT_TRY(read_sharding(l, given, axes, &sharding));
  named = weft_arena_memdup(l->arena, sharding, sizeof *named);
  WEFT_TRY_ALLOC(named);
  for (int i = 0; i < count; i++) {
    manual[i].name = weft_arena_strdup(l->arena, mlir_attr_text(axes->u.array.items[i], ""));
    WEFT_TRY_ALLOC(manual[i].name);
  }
  named->manual = manual;
  named->manual_count = count;
  *out = named;
  return NULL;
}

weft_status *lower_manual_computation(lowering *l, const mlir_op *op)
{
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
  for (int i = 0; !one && array_count(axes) && i < op->operand_count; i++) {
    if (!hlo_shape_is_array(args[i]->shape)) continue;
    WEFT_TRY(lower_sharding(l, in->u.array.items[i], &sharding));
    WEFT_TRY(annotate(l, "Sharding", args[i], args[i]->shape, sharding, &x));
    WEFT_TRY(border_sharding(l, in->u.array.items[i], axes, &sharding));
    WEFT_TRY(lower_shape(l, op->regions[0].first->args[i].type, &shape));
    WEFT_TRY(annotate(l, "SPMDFullToShardShape", x, shape, sharding, &args[i]));
  }
  WEFT_TRY(lower_inlined(l, op, args, &count, &results));
  for (int i = 0; i < count; i++) {
    x = results[i];
    if (!one && array_count(axes) && hlo_shape_is_array(x->shape)) {
      WEFT_TRY(border_sharding(l, out->u.array.items[i], axes, &sharding));
      WEFT_TRY(lower_shape(l, op->results[i].type, &shape));
      WEFT_TRY(annotate(l, "SPMDShardToFullShape", x, shape, sharding, &x));
      WEFT_TRY(lower_sharding(l, out->u.array.items[i], &sharding));
      WEFT_TRY(annotate(l, "Sharding", x, shape, sharding, &x));
    }
    WEFT_TRY(lower_result(l, op, i, x));
  }
  return NULL;
}
