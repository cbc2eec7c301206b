/* stablehlo/raise.c -- HLO modules as StableHLO (raise.h): the module, functions, regions, control flow, tuples. */
#include <config.h>

#include "stablehlo/raise.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hlo/sharding.h"
#include "hlo/text.h"
#include "stablehlo/stablehlo.h"

static void without_memory(weft_arena *arena) { longjmp(WEFT_CONTAINER_OF(arena, raising, program.arena)->stop, 1); }

/* ---- regions and functions --------------------------------------------------------------------------------------- */

static void raise_instr(raising *r, const hlo_instr *in);

static void new_regions(raising *r, mlir_op *op, int count)
{
  op->regions = MAKE(r, mlir_region, count);
  op->region_count = count;
}

static mlir_block *new_block(raising *r, mlir_region *region, int arg_count, const mlir_type *const *types)
{
  mlir_block *b = MAKE(r, mlir_block, 1);

  *b = (mlir_block){.arg_count = arg_count, .args = MAKE(r, mlir_value, arg_count)};
  for (int i = 0; i < arg_count; i++) b->args[i] = (mlir_value){.type = types[i]};
  *region = (mlir_region){b, 1};
  return b;
}

static void raise_instructions(raising *r, const hlo_computation *c)
{
  for (const hlo_instr *in = c->first; in; in = in->next) raise_instr(r, in);
}

/* The computation as region `index` of op: its arguments are the leaves of the parameters, or there are none and the
 * one parameter is `given`. */
static void raise_region(raising *r, mlir_op *op, int index, const hlo_computation *c, const raised *given)
{
  mlir_block *outer = r->block;
  const mlir_type **types;
  raised_values results = {0};
  int count = 0, at = 0;

  if (++r->depth > MLIR_MAX_DEPTH)
    raise_give_up(r, WEFT_ERR(INVALID_ARGUMENT, "%s: computations nested deeper than %d", c->name, MLIR_MAX_DEPTH));
  for (int i = 0; !given && i < c->param_count; i++) count += hlo_shape_leaf_count(c->params[i]->shape);
  types = MAKE(r, const mlir_type *, count);
  for (int i = 0, n = 0; !given && i < c->param_count; i++)
    for (int k = 0; k < hlo_shape_leaf_count(c->params[i]->shape); k++)
      types[n++] = raise_type_of(r, hlo_shape_leaf(c->params[i]->shape, k));
  r->block = new_block(r, &op->regions[index], count, types);
  for (int i = 0; i < c->param_count; i++)
    r->at[c->params[i]->id] = given ? given : raise_from_leaves(r, c->params[i]->shape, r->block->args, &at);
  raise_instructions(r, c);
  raise_push_leaves(r, &results, r->at[c->root->id]);
  raise_emit(r, "stablehlo.return", results.count, results.v, 0, NULL);
  r->block = outer;
  r->depth--;
}

void raise_called(raising *r, mlir_op *op, const hlo_instr *in)
{
  new_regions(r, op, in->called_count);
  for (int i = 0; i < in->called_count; i++) raise_region(r, op, i, in->called[i], NULL);
}

/* A function returns the elements of a flat tuple as results of their own, and any other value as one result. The
 * lowering reads functions in the same way. */
bool raise_gives_elements(const hlo_shape *s)
{
  if (!hlo_shape_is_tuple(s) || s->rank == 1) return false;
  for (int i = 0; i < s->rank; i++)
    if (hlo_shape_is_tuple(s->elements[i])) return false;
  return true;
}

const mlir_type **raise_function_results(raising *r, const hlo_shape *s, int *out_count)
{
  const mlir_type **one;

  if (raise_gives_elements(s)) return raise_leaf_types(r, s, out_count);
  one = MAKE(r, const mlir_type *, 1);
  one[0] = raise_type_of(r, s);
  *out_count = 1;
  return one;
}

const char *raise_function_name(raising *r, const hlo_computation *c)
{
  const char *name = c->name;
  bool taken = c != r->module->entry && strcmp(name, "main") == 0;

  if (c == r->module->entry) return "main";
  while (taken) {
    name = TEXT(r, "%s_", name);
    taken = false;
    for (const hlo_computation *o = r->module->first; o; o = o->next) taken |= strcmp(o->name, name) == 0;
  }
  return name;
}

/* The operation that calls functions with whole values: call, custom_call, composite. */
mlir_op *raise_as_call(raising *r, const hlo_instr *in, const char *spelling)
{
  int count;
  const mlir_type **types = raise_function_results(r, in->shape, &count);
  mlir_value **operands = MAKE(r, mlir_value *, in->operand_count);

  for (int i = 0; i < in->operand_count; i++) operands[i] = raise_array_operand(r, in, i);
  return raise_emit(r, spelling, in->operand_count, operands, count, types);
}

void raise_give_call(raising *r, const hlo_instr *in, mlir_op *op)
{
  r->at[in->id] = raise_gives_elements(in->shape) ? raise_results_of(r, op, in->shape) : raise_single(r, op->results);
}

/* ---- tuples and tokens ------------------------------------------------------------------------------------------- */

static void same_value(raising *r, const hlo_instr *in)
{
  const hlo_sharding *sharding = in->extra ? in->extra->sharding : NULL;
  mlir_op *op;

  r->at[in->id] = raise_operand(r, in, 0);
  if (!sharding || in->op != HLO_COPY || !hlo_shape_is_array(in->shape)) return;
  op = raise_give(r, in, raise_as_op(r, in, "stablehlo.custom_call")); /* a copy that only states a sharding */
  raise_set(r, op, "call_target_name", raise_words(r, MLIR_STRING, "Sharding"));
}

static void tuple(raising *r, const hlo_instr *in)
{
  const raised **elements = MAKE(r, const raised *, in->operand_count);

  for (int i = 0; i < in->operand_count; i++) elements[i] = raise_operand(r, in, i);
  r->at[in->id] = raise_tuple_of(r, in->operand_count, elements);
}

static void get_tuple_element(raising *r, const hlo_instr *in)
{
  r->at[in->id] = raise_element(r, raise_operand(r, in, 0), in->u.tuple_index);
}

/* StableHLO's after_all takes tokens only. Other operands are left out, since they are computed in any case. */
static void after_all(raising *r, const hlo_instr *in)
{
  raised_values operands = raise_operand_leaves(r, in, 0);
  const mlir_type **types;
  int count = 0, result_count;

  for (int i = 0; i < operands.count; i++)
    if (operands.v[i]->type->kind == MLIR_TOKEN) operands.v[count++] = operands.v[i];
  types = raise_leaf_types(r, in->shape, &result_count);
  mlir_op *op =
    raise_emit(r, count ? "stablehlo.after_all" : "stablehlo.create_token", count, operands.v, result_count, types);
  raise_set_extra(r, op, in);
  raise_give(r, in, op);
}

/* One barrier for all leaves of the operand; for add-dependency also for the token. */
static void barrier(raising *r, const hlo_instr *in)
{
  raised_values all = raise_operand_leaves(r, in, 0);
  const mlir_type **types = MAKE(r, const mlir_type *, all.count);

  for (int i = 0; i < all.count; i++) types[i] = all.v[i]->type;
  mlir_op *op = raise_emit(r, "stablehlo.optimization_barrier", all.count, all.v, all.count, types);
  raise_set_extra(r, op, in);
  raise_give(r, in, op);
}

/* ---- control flow ------------------------------------------------------------------------------------------------ */

static void while_loop(raising *r, const hlo_instr *in)
{
  mlir_op *op = raise_give(r, in, raise_as_op(r, in, "stablehlo.while"));

  new_regions(r, op, 2);
  raise_region(r, op, 0, in->called[1], NULL);
  raise_region(r, op, 1, in->called[0], NULL);
}

/* The regions of branches have no arguments: they use the conditional's operands as values from outside. */
static void conditional(raising *r, const hlo_instr *in)
{
  mlir_value *which = raise_array_operand(r, in, 0);
  bool is_if = in->operands[0]->shape->type == WEFT_PRED;
  int count;
  const mlir_type **types = raise_leaf_types(r, in->shape, &count);
  mlir_op *op = raise_give(r, in, raise_emit(r, is_if ? "stablehlo.if" : "stablehlo.case", 1, &which, count, types));

  raise_set_extra(r, op, in);
  new_regions(r, op, in->called_count);
  for (int i = 0; i < in->called_count; i++) raise_region(r, op, i, in->called[i], raise_operand(r, in, i + 1));
}

/* The dictionary that MLIR's assembly in `text` is; NULL if it is none. */
const mlir_attr *raise_parsed_dict(raising *r, const char *text)
{
  const mlir_attr *a = NULL;
  weft_status *st = mlir_parse_attr_text(&r->program, text, strlen(text), &a);
  bool good = !st && a->kind == MLIR_DICT;

  weft_status_free(st);
  return good ? a : NULL;
}

/* The name, version and attributes of a composite are in the frontend attributes of the call. */
static bool composite(raising *r, const hlo_instr *in)
{
  const char *name = hlo_frontend_attribute(in, "composite.name"),
             *version = hlo_frontend_attribute(in, "composite.version");
  const char *text = hlo_frontend_attribute(in, "composite.attributes");
  const mlir_attr *attributes = text ? raise_parsed_dict(r, text) : raise_dict(r, 0, NULL);
  mlir_op *op;

  if (in->op != HLO_CALL || !in->u.is_composite || !name || !attributes) return false;
  op = raise_as_call(r, in, "stablehlo.composite");
  raise_set(r, op, "name", raise_words(r, MLIR_STRING, name));
  raise_set(r, op, "composite_attributes", attributes);
  raise_set(r, op, "decomposition", raise_words(r, MLIR_SYMBOL, raise_function_name(r, in->called[0])));
  if (version) raise_set(r, op, "version", raise_number(r, WEFT_S32, atoi(version)));
  raise_give_call(r, in, op);
  return true;
}

static void call(raising *r, const hlo_instr *in)
{
  mlir_op *op;

  if (composite(r, in)) return;
  op = raise_as_call(r, in, "func.call");
  raise_set(r, op, "callee", raise_words(r, MLIR_SYMBOL, raise_function_name(r, in->called[0])));
  raise_set_extra(r, op, in);
  raise_give_call(r, in, op);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static raise_rule *const rules[HLO_OPCODE_COUNT] = {
    [HLO_BITCAST_CONVERT] = raise_elementwise, [HLO_COMPARE] = raise_compare, [HLO_COPY] = same_value,
    [HLO_REDUCE_PRECISION] = raise_reduce_precision, [HLO_STOCHASTIC_CONVERT] = raise_stochastic_convert,
    [HLO_BITCAST] = raise_bitcast, [HLO_BROADCAST] = raise_with_dims, [HLO_CONCATENATE] = raise_with_dims, [HLO_CONSTANT] = raise_constant,
    [HLO_DYNAMIC_RESHAPE] = raise_dynamic_reshape, [HLO_DYNAMIC_SLICE] = raise_dynamic_slice, [HLO_DYNAMIC_UPDATE_SLICE] = raise_dynamic_slice,
    [HLO_GATHER] = raise_gather, [HLO_GET_DIMENSION_SIZE] = raise_with_dims, [HLO_IOTA] = raise_with_dims, [HLO_OPT_BARRIER] = barrier,
    [HLO_PAD] = raise_pad, [HLO_RESHAPE] = raise_elementwise, [HLO_REVERSE] = raise_with_dims, [HLO_SCATTER] = raise_scatter,
    [HLO_SET_DIMENSION_SIZE] = raise_with_dims, [HLO_SLICE] = raise_slice, [HLO_TRANSPOSE] = raise_with_dims,
    [HLO_BATCH_NORM_GRAD] = raise_batch_norm, [HLO_BATCH_NORM_INFERENCE] = raise_batch_norm, [HLO_BATCH_NORM_TRAINING] = raise_batch_norm,
    [HLO_CHOLESKY] = raise_cholesky, [HLO_CONVOLUTION] = raise_convolution, [HLO_DOT] = raise_dot, [HLO_FFT] = raise_fft, [HLO_MAP] = raise_map,
    [HLO_RAGGED_DOT] = raise_ragged_dot, [HLO_REDUCE] = raise_reduce, [HLO_REDUCE_WINDOW] = raise_reduce_window, [HLO_SCALED_DOT] = raise_scaled_dot,
    [HLO_SCAN] = raise_scan, [HLO_SELECT_AND_SCATTER] = raise_select_and_scatter, [HLO_SORT] = raise_sort, [HLO_TOPK] = raise_top_k,
    [HLO_TRIANGULAR_SOLVE] = raise_triangular_solve, [HLO_RNG] = raise_rng, [HLO_RNG_BIT_GENERATOR] = raise_rng_bit_generator,
    [HLO_RNG_GET_AND_UPDATE_STATE] = raise_rng_state, [HLO_ADD_DEPENDENCY] = barrier, [HLO_AFTER_ALL] = after_all,
    [HLO_CALL] = call, [HLO_CONDITIONAL] = conditional, [HLO_CUSTOM_CALL] = raise_custom_call, [HLO_DOMAIN] = same_value,
    [HLO_FUSION] = call, [HLO_GET_TUPLE_ELEMENT] = get_tuple_element, [HLO_TUPLE] = tuple, [HLO_WHILE] = while_loop,
    [HLO_ALL_GATHER] = raise_all_gather, [HLO_ALL_GATHER_START] = raise_collective_start, [HLO_ALL_GATHER_DONE] = raise_second_of_start,
    [HLO_ALL_REDUCE] = raise_all_reduce, [HLO_ALL_REDUCE_START] = raise_all_reduce, [HLO_ALL_REDUCE_DONE] = same_value,
    [HLO_ALL_TO_ALL] = raise_all_to_all, [HLO_ASYNC_START] = raise_async_start, [HLO_ASYNC_UPDATE] = same_value,
    [HLO_ASYNC_DONE] = raise_second_of_start, [HLO_COLLECTIVE_BROADCAST] = raise_collective_broadcast,
    [HLO_COLLECTIVE_PERMUTE] = raise_collective_permute, [HLO_COLLECTIVE_PERMUTE_START] = raise_collective_start,
    [HLO_COLLECTIVE_PERMUTE_DONE] = raise_second_of_start, [HLO_COPY_START] = raise_copy_start, [HLO_COPY_DONE] = raise_first_of_start,
    [HLO_INFEED] = raise_feed, [HLO_OUTFEED] = raise_feed, [HLO_PARTITION_ID] = raise_elementwise, [HLO_REPLICA_ID] = raise_elementwise,
    [HLO_RAGGED_ALL_TO_ALL] = raise_ragged_all_to_all, [HLO_RECV] = raise_recv, [HLO_RECV_DONE] = raise_recv_done,
    [HLO_REDUCE_SCATTER] = raise_reduce_scatter, [HLO_SEND] = raise_send, [HLO_SEND_DONE] = raise_send_done};

static void raise_instr(raising *r, const hlo_instr *in)
{
  const mlir_location *outer = r->location;

  if (in->op == HLO_PARAMETER) return; /* the function that began the computation has set its value */
  r->location = raise_location(r, in);
  if (rules[in->op]) rules[in->op](r, in);
  else if (hlo_opcode_is_elementwise(in->op)) raise_elementwise(r, in);
  else REFUSE(r, in, "%s has no StableHLO", hlo_opcode_name(in->op));
  r->location = outer;
}

/* ---- functions and the module ------------------------------------------------------------------------------------ */

/* The output that an alias names, as a result of the entry function; -1: StableHLO cannot express the alias. */
static int64_t aliased_result(const hlo_module *m, const hlo_input_output_alias *a)
{
  bool elements = raise_gives_elements(m->entry->root->shape);

  if (a->parameter_index.count > 0 || a->output_index.count != (elements ? 1 : 0)) return -1;
  return elements ? a->output_index.v[0] : 0;
}

static const char *layout_text(raising *r, const hlo_shape *given)
{
  const char *text;

  if (!hlo_shape_is_array(given) || !given->layout) return NULL;
  text = strchr(hlo_shape_text(&r->program.arena, given, true), '{');
  return text && !hlo_shape_is_default_layout(given) ? text : NULL;
}

static const mlir_attr *argument_dict(raising *r, const hlo_computation *c, int i)
{
  const hlo_module *m = r->module;
  mlir_op *holder = MAKE(r, mlir_op, 1); /* a list of attributes */
  const char *layout;

  raise_set_extra(r, holder, c->params[i]);
  if (c != m->entry) return raise_dict(r, holder->attr_count, holder->attrs);
  bool donated = false;
  for (int k = 0; r->aliases_by_argument && k < m->alias_count; k++)
    if (m->aliases[k].parameter == i)
      raise_set(r, holder, "tf.aliasing_output", raise_number(r, WEFT_S32, aliased_result(m, &m->aliases[k])));
  for (int k = 0; k < m->donor_count; k++)
    donated |= m->donors[k].parameter == i && m->donors[k].parameter_index.count == 0;
  if (donated) raise_set(r, holder, "jax.buffer_donor", raise_truth(r, true));
  layout = m->has_entry_layout ? layout_text(r, m->entry_param_shapes[i]) : NULL;
  if (layout) raise_set(r, holder, "mhlo.layout_mode", raise_words(r, MLIR_STRING, layout));
  return raise_dict(r, holder->attr_count, holder->attrs);
}

static const mlir_attr *result_dict(raising *r, const hlo_computation *c, int i)
{
  const hlo_module *m = r->module;
  const hlo_sharding *sharding = m->spmd_output_sharding;
  const hlo_shape *given = m->has_entry_layout ? m->entry_result_shape : NULL;
  mlir_op *holder = MAKE(r, mlir_op, 1);

  if (c == m->entry) {
    if (!sharding && c->root->extra) sharding = c->root->extra->sharding;
    if (raise_gives_elements(c->root->shape)) {
      if (sharding && sharding->kind == HLO_SHARDING_TUPLE)
        sharding = i < sharding->tuple_count ? sharding->elements[i] : NULL;
      given = given && hlo_shape_is_tuple(given) && i < given->rank ? given->elements[i] : NULL;
    }
    if (sharding) raise_set(r, holder, "mhlo.sharding", raise_sharding_attr(r, sharding));
    if (given && layout_text(r, given))
      raise_set(r, holder, "mhlo.layout_mode", raise_words(r, MLIR_STRING, layout_text(r, given)));
  }
  return raise_dict(r, holder->attr_count, holder->attrs);
}

static void raise_function(raising *r, const hlo_computation *c)
{
  mlir_block *outer = r->block;
  mlir_op *op = raise_emit(r, "func.func", 0, NULL, 0, NULL);
  const mlir_type **types, **results;
  const mlir_attr **dicts;
  int count;
  raised_values returned = {0};
  mlir_type *type;

  results = raise_function_results(r, c->root->shape, &count);
  types = MAKE(r, const mlir_type *, c->param_count + count);
  dicts = MAKE(r, const mlir_attr *, c->param_count + count);
  for (int i = 0; i < c->param_count; i++) {
    types[i] = raise_type_of(r, c->params[i]->shape);
    dicts[i] = argument_dict(r, c, i);
  }
  for (int i = 0; i < count; i++) {
    types[c->param_count + i] = results[i];
    dicts[c->param_count + i] = result_dict(r, c, i);
  }
  type = (mlir_type *)(uintptr_t)raise_new_type(r, MLIR_FUNCTION, c->param_count, types);
  type->result_count = count;
  raise_set(r, op, "sym_name", raise_words(r, MLIR_STRING, raise_function_name(r, c)));
  if (c != r->module->entry) raise_set(r, op, "sym_visibility", raise_words(r, MLIR_STRING, "private"));
  raise_set(r, op, "function_type", raise_of_type(r, type));
  raise_set(r, op, "arg_attrs", raise_list(r, c->param_count, dicts));
  raise_set(r, op, "res_attrs", raise_list(r, count, dicts + c->param_count));
  new_regions(r, op, 1);
  r->block = new_block(r, &op->regions[0], c->param_count, types);
  r->block->arg_locations = MAKE(r, const mlir_location *, c->param_count);
  for (int i = 0; i < c->param_count; i++) {
    r->block->arg_locations[i] = raise_location(r, c->params[i]);
    r->at[c->params[i]->id] = raise_single(r, &r->block->args[i]);
  }
  raise_instructions(r, c);
  if (raise_gives_elements(c->root->shape)) raise_push_leaves(r, &returned, r->at[c->root->id]);
  else raise_push(r, &returned, raise_value_of(r, r->at[c->root->id]));
  raise_emit(r, "func.return", returned.count, returned.v, 0, NULL);
  r->block = outer;
}

static bool calls_functions(hlo_opcode op)
{
  return op == HLO_CALL || op == HLO_FUSION || op == HLO_CUSTOM_CALL || op == HLO_ASYNC_START;
}

/* kind, where in the parameters, where in the result: XLA's attribute for aliases that attributes of arguments cannot
 * express */
static const mlir_attr *module_aliases(raising *r)
{
  const hlo_module *m = r->module;
  const mlir_attr **items = MAKE(r, const mlir_attr *, m->alias_count);

  for (int i = 0; i < m->alias_count; i++) {
    const hlo_input_output_alias *a = &m->aliases[i];
    mlir_named_attr *alias = MAKE(r, mlir_named_attr, 3), *item = MAKE(r, mlir_named_attr, 2);
    alias[0] = (mlir_named_attr){"kind", raise_words(r, MLIR_STRING, a->must_alias ? "must_alias" : "may_alias")};
    alias[1] = (mlir_named_attr){"parameter_index", raise_ints(r, a->parameter_index.count, a->parameter_index.v)};
    alias[2] = (mlir_named_attr){"parameter_number", raise_number(r, WEFT_S64, a->parameter)};
    item[0] = (mlir_named_attr){"alias", raise_dict(r, 3, alias)};
    item[1] = (mlir_named_attr){"output_index", raise_ints(r, a->output_index.count, a->output_index.v)};
    items[i] = raise_dict(r, 2, item);
  }
  return raise_list(r, m->alias_count, items);
}

static void raise_module(raising *r)
{
  const hlo_module *m = r->module;
  mlir_module *out = MAKE(r, mlir_module, 1);
  mlir_block *top = MAKE(r, mlir_block, 1);
  bool *is_function = MAKE(r, bool, m->next_computation_id);

  *out = (mlir_module){.name = m->name};
  r->at = MAKE(r, const raised *, m->next_id);
  r->left = 1 << 20;
  for (const hlo_computation *c = m->first; c; c = c->next)
    for (const hlo_instr *in = c->first; in; in = in->next) {
      r->left += 64;
      for (int k = 0; calls_functions(in->op) && k < in->called_count; k++) is_function[in->called[k]->id] = true;
    }
  r->block = top;
  out->op = raise_emit(r, "builtin.module", 0, NULL, 0, NULL);
  new_regions(r, out->op, 1);
  raise_set(r, out->op, "sym_name", raise_words(r, MLIR_STRING, m->name));
  raise_set(r, out->op, "mhlo.num_partitions", raise_number(r, WEFT_S32, m->num_partitions));
  raise_set(r, out->op, "mhlo.num_replicas", raise_number(r, WEFT_S32, m->replica_count));
  bool *aliased = MAKE(r, bool, m->entry->param_count);
  r->aliases_by_argument = true;
  for (int i = 0; i < m->alias_count; i++) {
    const hlo_input_output_alias *a = &m->aliases[i];
    bool said = a->must_alias || aliased_result(m, a) < 0 || a->parameter < 0 || a->parameter >= m->entry->param_count;
    r->aliases_by_argument &= !said && !aliased[a->parameter]; /* one output an argument */
    if (!said) aliased[a->parameter] = true;
  }
  if (!r->aliases_by_argument) raise_set(r, out->op, "mhlo.input_output_alias", module_aliases(r));
  r->block = new_block(r, &out->op->regions[0], 0, NULL);
  raise_function(r, m->entry);
  for (const hlo_computation *c = m->first; c; c = c->next)
    if (is_function[c->id] && c != m->entry) raise_function(r, c);
  r->program.modules = out;
  r->program.module_count = 1;
}

weft_status *shlo_print_hlo(const hlo_module *module, FILE *out)
{
  raising *r = calloc(1, sizeof *r);
  weft_status *st = NULL;

  WEFT_TRY_ALLOC(r);
  weft_arena_init(&r->program.arena);
  r->program.arena.exhausted = without_memory;
  r->module = module;
  if (setjmp(r->stop) == 0) {
    raise_module(r);
    r->program.arena.exhausted = NULL;
    st = mlir_print(&r->program, out);
  } else {
    st = r->st ? r->st : WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  }
  weft_arena_fini(&r->program.arena);
  free(r);
  return st;
}
