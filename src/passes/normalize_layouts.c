/* passes/normalize_layouts.c -- normalize-layouts: afterwards every array is dense row-major, and transposes express
 * what layouts meant.
 *
 *   entry parameter or result with another entry layout    physical row-major shape, transposed from or to the logical
 *                                                          one; module->entry_* keep the logical shape and layout
 *   bitcast between layouts                                transpose to physical, reshape, transpose to logical
 *   bitcast to another element type                        the same around a bitcast-convert of the row of all elements
 *   custom-call with layout constraints                    keeps them (its foreign code relies on them): operands are
 *                                                          transposed and then bitcast to the constrained shape,
 *                                                          results bitcast to their physical shape and transposed
 *   anything else                                          the layout is dropped: HLO's meaning is logical
 *
 * The bitcasts beside custom-calls, and the custom-calls, are the only instructions that still have layouts.
 *
 * normalize-entry-layout: the entry's part of this for programs of several partitions, after the partitioner, which
 * cuts parameters and results by their logical dimensions. */
#include <config.h>

#include "passes/build.h"
#include "passes/passes.h"

/* Buffers, which only custom calls take and give, are not transposed. */
static bool has_other_layout(const hlo_shape *shape)
{
  return (hlo_shape_is_array(shape) || hlo_shape_is_tuple(shape)) && !hlo_shape_is_default_layout(shape);
}

static void physical_order(const hlo_shape *shape, int64_t *major_to_minor)
{
  for (int i = 0; i < shape->rank; i++)
    major_to_minor[i] = shape->layout ? shape->layout->minor_to_major[shape->rank - 1 - i] : i;
}

/* The row-major shape of the bytes of an array. */
static hlo_shape *physical_array(weft_arena *arena, const hlo_shape *shape)
{
  int64_t order[HLO_MAX_RANK], dims[HLO_MAX_RANK];

  physical_order(shape, order);
  for (int i = 0; i < shape->rank; i++) dims[i] = shape->dims[order[i]];
  return hlo_shape_array(arena, shape->type, shape->rank, dims);
}

/* Tuples are no deeper than HLO_MAX_TUPLE_DEPTH. */
static const hlo_shape *physical_shape(weft_arena *arena, const hlo_shape *shape)
{
  const hlo_shape **elements;

  if (!has_other_layout(shape)) return hlo_shape_without_layout(arena, shape);
  if (!hlo_shape_is_tuple(shape)) return physical_array(arena, shape);
  elements = WEFT_ARENA_ARRAY(arena, const hlo_shape *, shape->rank);
  if (!elements) return NULL;
  for (int i = 0; i < shape->rank; i++)
    if (!(elements[i] = physical_shape(arena, shape->elements[i]))) return NULL;
  return hlo_shape_tuple(arena, shape->rank, elements);
}

static hlo_instr *to_physical(pass_build *b, hlo_instr *x, const hlo_shape *shape)
{
  if (b->error || !has_other_layout(shape)) return x;
  if (hlo_shape_is_tuple(shape)) {
    hlo_instr **elements = WEFT_ARENA_ARRAY(&b->comp->module->arena, hlo_instr *, shape->rank);
    for (int i = 0; elements && i < shape->rank; i++) elements[i] = to_physical(b, pb_gte(b, x, i), shape->elements[i]);
    return pb_tuple(b, shape->rank, elements);
  }
  int64_t order[HLO_MAX_RANK];
  physical_order(shape, order);
  return pb_transpose(b, x, order);
}

/* `x` holds `shape` in its physical order. With `is_layouted` its own shape is still the logical one with a layout. */
static hlo_instr *to_logical(pass_build *b, hlo_instr *x, const hlo_shape *shape, bool is_layouted)
{
  if (b->error || !has_other_layout(shape)) return x;
  if (hlo_shape_is_tuple(shape)) {
    hlo_instr **elements = WEFT_ARENA_ARRAY(&b->comp->module->arena, hlo_instr *, shape->rank);
    for (int i = 0; elements && i < shape->rank; i++)
      elements[i] = to_logical(b, pb_gte(b, x, i), shape->elements[i], is_layouted);
    return pb_tuple(b, shape->rank, elements);
  }
  int64_t order[HLO_MAX_RANK], inverse[HLO_MAX_RANK];
  physical_order(shape, order);
  for (int i = 0; i < shape->rank; i++) inverse[order[i]] = i;
  if (is_layouted) x = pb_instr(b, HLO_BITCAST, physical_array(&b->comp->module->arena, shape), 1, &x);
  return pb_transpose(b, x, inverse);
}

/* The users of `from` at the time when the list was made now use `to`. */
static weft_status *redirect(hlo_instr *from, hlo_instr *to, int user_count, hlo_instr *const *users)
{
  for (int i = 0; i < user_count; i++)
    for (int k = 0; k < users[i]->operand_count; k++)
      if (users[i]->operands[k] == from) WEFT_TRY(hlo_set_operand(users[i], k, to));
  if (from->parent->root == from) from->parent->root = to;
  return NULL;
}

/* The bytes of `x` as a row of elements of another type, which may have another width. */
static hlo_instr *convert_row(pass_build *b, hlo_instr *x, weft_dtype to)
{
  int64_t from_bits = weft_dtype_bits(x->shape->type), to_bits = weft_dtype_bits(to), elems = hlo_shape_elems(x->shape);
  int64_t narrow = WEFT_MAX(1, to_bits / from_bits), wide = WEFT_MAX(1, from_bits / to_bits);
  int64_t from[] = {elems / narrow, narrow}, dims[] = {elems / narrow, wide};

  x = pb_reshape(b, x, narrow > 1 ? 2 : 1, from);
  return pb_instr(b, HLO_BITCAST_CONVERT, hlo_shape_array(&b->comp->module->arena, to, wide > 1 ? 2 : 1, dims), 1, &x);
}

static weft_status *expand_bitcast(hlo_instr *bitcast)
{
  hlo_instr *x = bitcast->operands[0];
  pass_build b = PASS_BUILD_AT(bitcast);
  const hlo_shape *bytes;
  int from = weft_dtype_bits(x->shape->type), to;

  if (!hlo_shape_is_array(x->shape) || !hlo_shape_is_array(bitcast->shape)) return NULL;
  bytes = physical_array(&bitcast->parent->module->arena, bitcast->shape);
  WEFT_TRY_ALLOC(bytes);
  to = weft_dtype_bits(bytes->type);
  if (WEFT_MAX(from, to) % WEFT_MIN(from, to) ||
      weft_dtype_is_complex(x->shape->type) != weft_dtype_is_complex(bytes->type))
    return WEFT_ERR(UNIMPLEMENTED, "bitcast %s from %s to %s", bitcast->name, weft_dtype_name(x->shape->type),
                    weft_dtype_name(bytes->type));
  x = to_physical(&b, x, x->shape);
  if (!b.error && x->shape->type != bytes->type) x = convert_row(&b, x, bytes->type);
  x = pb_reshape_like(&b, x, bytes);
  return pass_build_replace(&b, bitcast, to_logical(&b, x, bitcast->shape, false));
}

static weft_status *constrain_custom_call(hlo_instr *call, pass_map *kept, bool *changed)
{
  const hlo_custom_call_attrs *attrs = call->u.custom;
  hlo_module *module = call->parent->module;
  pass_build b = PASS_BUILD_AT(call);

  WEFT_TRY(pass_map_set(kept, call->id, call));
  for (int i = 0; i < attrs->layout_count && i < call->operand_count; i++) {
    const hlo_shape *shape = attrs->operand_layouts[i];
    hlo_instr *operand = call->operands[i];
    if (!hlo_shape_is_array(operand->shape) || !has_other_layout(shape)) continue;
    operand = pb_instr(&b, HLO_BITCAST, hlo_shape_copy(&module->arena, shape), 1,
                       (hlo_instr *[]){to_physical(&b, operand, shape)});
    WEFT_TRY(pass_build_finish(&b));
    WEFT_TRY(pass_map_set(kept, operand->id, operand));
    WEFT_TRY(hlo_set_operand(call, i, operand));
    *changed = true;
  }
  if (!has_other_layout(call->shape)) return NULL;

  int user_count = call->user_count;
  hlo_instr **users = weft_arena_memdup(kept->arena, call->users, (size_t)user_count * sizeof *users);
  hlo_instr *logical;
  WEFT_TRY_ALLOC(users);
  b.before = call->next;
  logical = to_logical(&b, call, call->shape, true);
  WEFT_TRY(pass_build_finish(&b));
  *changed = true;
  return redirect(call, logical, user_count, users);
}

static weft_status *normalize_parameter(hlo_instr *param, const hlo_shape *shape, weft_arena *scratch)
{
  pass_build b = {.comp = param->parent, .before = param->next, .origin = param};
  int user_count = param->user_count;
  hlo_instr **users = weft_arena_memdup(scratch, param->users, (size_t)user_count * sizeof *users);
  hlo_instr *logical;

  WEFT_TRY_ALLOC(users);
  param->shape = physical_shape(&param->parent->module->arena, shape);
  WEFT_TRY_ALLOC(param->shape);
  logical = to_logical(&b, param, shape, false);
  WEFT_TRY(pass_build_finish(&b));
  return redirect(param, logical, user_count, users);
}

/* If the text gave no entry layout, the layouts of the instructions are the entry layout. */
static weft_status *take_entry_layout(hlo_module *module)
{
  hlo_computation *entry = module->entry;

  if (module->has_entry_layout) return NULL;
  module->entry_param_shapes = WEFT_ARENA_ARRAY(&module->arena, const hlo_shape *, entry->param_count);
  WEFT_TRY_ALLOC(module->entry_param_shapes);
  for (int i = 0; i < entry->param_count; i++) module->entry_param_shapes[i] = entry->params[i]->shape;
  module->entry_result_shape = entry->root->shape;
  module->has_entry_layout = true;
  return NULL;
}

static weft_status *normalize_entry(hlo_module *module, weft_arena *scratch, bool *changed)
{
  hlo_computation *entry = module->entry;
  pass_build b = {.comp = entry};
  hlo_instr *root;

  for (int i = 0; i < entry->param_count; i++) {
    if (!has_other_layout(module->entry_param_shapes[i])) continue;
    WEFT_TRY(normalize_parameter(entry->params[i], module->entry_param_shapes[i], scratch));
    *changed = true;
  }
  if (!has_other_layout(module->entry_result_shape)) return NULL;
  root = to_physical(&b, entry->root, module->entry_result_shape);
  WEFT_TRY(pass_build_finish(&b));
  entry->root = root;
  *changed = true;
  return NULL;
}

static bool has_any_layout(const hlo_shape *shape)
{
  if (!hlo_shape_is_tuple(shape)) return shape->layout != NULL;
  for (int i = 0; i < shape->rank; i++)
    if (has_any_layout(shape->elements[i])) return true;
  return false;
}

static weft_status *normalize_layouts_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  pass_map kept = {.arena = ctx->scratch};

  HLO_FOREACH_COMPUTATION(comp, module)
    HLO_FOREACH(instr, comp) {
      if (instr->op == HLO_BITCAST) {
        WEFT_TRY(expand_bitcast(instr));
        *changed = true;
      } else if (instr->op == HLO_CUSTOM_CALL) {
        WEFT_TRY(constrain_custom_call(instr, &kept, changed));
      }
    }
  WEFT_TRY(take_entry_layout(module));
  if (module->num_partitions <= 1) WEFT_TRY(normalize_entry(module, ctx->scratch, changed));
  HLO_FOREACH_COMPUTATION(comp, module)
    HLO_FOREACH(instr, comp) {
      if (!has_any_layout(instr->shape) || pass_map_get(&kept, instr->id)) continue;
      instr->shape = hlo_shape_without_layout(&module->arena, instr->shape);
      WEFT_TRY_ALLOC(instr->shape);
      *changed = true;
    }
  return NULL;
}
const hlo_pass pass_normalize_layouts = {"normalize-layouts", normalize_layouts_run};

static weft_status *normalize_entry_layout_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  return module->num_partitions > 1 ? normalize_entry(module, ctx->scratch, changed) : NULL;
}
const hlo_pass pass_normalize_entry_layout = {"normalize-entry-layout", normalize_entry_layout_run};
