/* stablehlo/raise_comm.c -- the rules of custom-calls and of communication (raise.h). */
#include <config.h>

#include "stablehlo/raise.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "hlo/sharding.h"
#include "hlo/text.h"

/* ---- custom-calls ------------------------------------------------------------------------------------------------ */

/* dense<[1, 0]> : tensor<2xindex> for each shape: minor to major */
static const mlir_attr *layouts(raising *r, int count, const hlo_shape *const *shapes)
{
  const mlir_attr **items = MAKE(r, const mlir_attr *, count);
  static const mlir_type index = {.kind = MLIR_INDEX, .dtype = WEFT_S64};

  for (int i = 0; i < count; i++) {
    mlir_attr *a = raise_new_attr(r, MLIR_DENSE);
    int64_t rank = hlo_shape_is_array(shapes[i]) ? shapes[i]->rank : 0;
    const char *text = "";
    for (int d = 0; d < rank; d++)
      text = TEXT(r, "%s%s%" PRId64, text, d ? ", " : "",
                  shapes[i]->layout && shapes[i]->layout->minor_to_major ? shapes[i]->layout->minor_to_major[d]
                                                                         : rank - 1 - d);
    raise_check(r, mlir_new_tensor(&r->program.arena, &index, 1, &rank, NULL, &a->type));
    a->form = MLIR_DENSE_TEXT;
    a->u.text.s = rank ? TEXT(r, "[%s]", text) : "";
    a->u.text.size = strlen(a->u.text.s);
    items[i] = a;
  }
  return raise_list(r, count, items);
}

static const mlir_attr *output_aliases(raising *r, int count, const hlo_output_alias *aliases)
{
  const mlir_attr **items = MAKE(r, const mlir_attr *, count);

  for (int i = 0; i < count; i++) {
    mlir_named_attr *fields = MAKE(r, mlir_named_attr, 3);
    fields[0] = (mlir_named_attr){"output_tuple_indices",
                                  raise_ints(r, aliases[i].output_index.count, aliases[i].output_index.v)};
    fields[1] = (mlir_named_attr){"operand_index", raise_number(r, WEFT_S64, aliases[i].operand)};
    fields[2] = (mlir_named_attr){"operand_tuple_indices",
                                  raise_ints(r, aliases[i].operand_index.count, aliases[i].operand_index.v)};
    items[i] = raise_dict(r, 3, fields);
  }
  return raise_list(r, count, items);
}

static int hex_value(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : 0; }

/* For a typed call a dictionary, else a string or bytes (see hlo_extra). */
static const mlir_attr *backend_config(raising *r, const char *text, bool typed)
{
  const mlir_attr *a = !typed ? NULL : text[0] ? raise_parsed_dict(r, text) : raise_dict(r, 0, NULL);
  size_t size = strlen(text) / 2;
  char *bytes;

  if (a) return a;
  a = raise_words(r, MLIR_STRING, text);
  if (strncmp(text, "hex:", 4) != 0) return a;
  bytes = MAKE(r, char, size + 1);
  for (size_t i = 2; i < size; i++) bytes[i - 2] = (char)(hex_value(text[2 * i]) << 4 | hex_value(text[2 * i + 1]));
  ((mlir_attr *)(uintptr_t)a)->u.text.s = bytes;
  ((mlir_attr *)(uintptr_t)a)->u.text.size = size - 2;
  return a;
}

void raise_custom_call(raising *r, const hlo_instr *in)
{
  const hlo_custom_call_attrs *c = in->u.custom;
  const char *config = in->extra && in->extra->backend_config ? in->extra->backend_config : "";
  const mlir_attr **callees = MAKE(r, const mlir_attr *, in->called_count);
  bool is_tuple = hlo_shape_is_tuple(in->shape), whole = !is_tuple || raise_gives_elements(in->shape);
  mlir_op *op;

  if (c->conv || c->padding_type)
    REFUSE(r, in, "a custom-call with %s has no StableHLO", c->conv ? "a window" : "a padding type");
  op = raise_as_call(r, in, "stablehlo.custom_call");
  raise_set(r, op, "call_target_name", raise_words(r, MLIR_STRING, c->target));
  if (c->has_side_effect) raise_set(r, op, "has_side_effect", raise_truth(r, true));
  if (config[0] || c->api_version == 4)
    raise_set(r, op, "backend_config", backend_config(r, config, c->api_version == 4));
  if (c->api_version != 1) raise_set(r, op, "api_version", raise_number(r, WEFT_S32, c->api_version));
  for (int i = 0; i < in->called_count; i++)
    callees[i] = raise_words(r, MLIR_SYMBOL, raise_function_name(r, in->called[i]));
  if (in->called_count) raise_set(r, op, "called_computations", raise_list(r, in->called_count, callees));
  for (int i = 0; i < in->operand_count; i++) whole &= !hlo_shape_is_tuple(in->operands[i]->shape);
  if (c->layout_count == in->operand_count && c->operand_layouts && whole) {
    raise_set(r, op, "operand_layouts", layouts(r, c->layout_count, c->operand_layouts));
    raise_set(r, op, "result_layouts",
              is_tuple ? layouts(r, in->shape->rank, in->shape->elements) : layouts(r, 1, &in->shape));
  }
  if (c->literal && hlo_shape_is_array(c->literal->shape)) {
    mlir_attr *literal = (mlir_attr *)(uintptr_t)raise_literal_attr(r, c->literal);
    literal->splat = false; /* all elements, as it is read */
    raise_set(r, op, "mhlo.literal", literal);
  }
  if (c->alias_count) raise_set(r, op, "output_operand_aliases", output_aliases(r, c->alias_count, c->aliases));
  raise_set_extra(r, op, in);
  raise_give_call(r, in, op);
}

/* ---- communication ----------------------------------------------------------------------------------------------- */

/* Groups as lists; *out_size is the size of the largest group. One group of all participants has no list: *out_size is
 * their number. */
static hlo_replica_groups listed_groups(raising *r, const hlo_instr *in, int64_t *out_size)
{
  hlo_replica_groups g = {0};

  raise_check(r, hlo_groups_as_lists(&r->program.arena, &in->u.collective->groups, &g));
  *out_size = 0;
  for (int i = 0; i < g.group_count; i++) *out_size = WEFT_MAX(*out_size, g.groups[i].count);
  if (*out_size > 0) return g;
  bool everybody = in->u.collective->use_global_device_ids;
  *out_size = everybody                          ? r->module->num_partitions * r->module->replica_count
              : in->u.collective->channel_id > 0 ? r->module->num_partitions
                                                 : r->module->replica_count;
  if (everybody || in->op == HLO_ALL_TO_ALL) { /* these operations must name their participants */
    int64_t *ids = MAKE(r, int64_t, *out_size);
    hlo_ints *one = MAKE(r, hlo_ints, 1);
    for (int64_t i = 0; i < *out_size; i++) ids[i] = i;
    *one = (hlo_ints){(int)*out_size, ids};
    g = (hlo_replica_groups){.form = HLO_GROUPS_LIST, .group_count = 1, .groups = one};
  }
  return g;
}

static void set_groups(raising *r, mlir_op *op, const hlo_instr *in)
{
  int64_t size;
  hlo_replica_groups g = listed_groups(r, in, &size);
  int64_t *ids = MAKE(r, int64_t, g.group_count *size);

  for (int i = 0; i < g.group_count; i++) /* short rows are filled up */
    for (int64_t k = 0; k < size; k++) ids[i * size + k] = k < g.groups[i].count ? g.groups[i].v[k] : -1;
  raise_set(r, op, "replica_groups", raise_matrix(r, g.group_count, g.group_count ? size : 0, ids));
}

static void set_channel(raising *r, mlir_op *op, const hlo_instr *in, int64_t type)
{
  const hlo_collective_attrs *c = in->u.collective;

  if (c->channel_id <= 0 && type == 0) return;
  raise_set_int(r, op, "channel_id", c->channel_id);
  raise_set_int(r, op, "channel_type", type);
}

/* Makes the collective as one operation with results of `shape`. A start becomes the same operation; its results are
 * the values that its done takes. */
static const raised *collective(raising *r, const hlo_instr *in, const char *spelling, const char *dim,
                                const hlo_shape *shape)
{
  raised_values operands = raise_operand_leaves(r, in, 0);
  int count;
  const mlir_type **types = raise_leaf_types(r, shape, &count);
  const hlo_collective_attrs *c = in->u.collective;
  mlir_op *op;

  if (c->has_dynamic_root) { /* one root for all, or one each; StableHLO has the latter */
    mlir_value **root = &operands.v[operands.count - 1];
    if ((*root)->type->dims[0] != count) *root = raise_broadcast_to(r, *root, 1, &(int64_t){count}, &(int64_t){0});
  }
  op = raise_emit(r, spelling, operands.count, operands.v, count, types);
  raise_set_extra(r, op, in);
  if (dim) raise_set_int(r, op, dim, in->dims.count ? in->dims.v[0] : 0);
  if (in->op == HLO_COLLECTIVE_PERMUTE || in->op == HLO_COLLECTIVE_PERMUTE_START) {
    if (c->slice_count || operands.count != count) REFUSE(r, in, "a collective-permute in place has no StableHLO");
    raise_set(r, op, "source_target_pairs", raise_matrix(r, c->pair_count, 2, (const int64_t *)c->pairs));
  } else {
    set_groups(r, op, in);
  }
  set_channel(r, op, in, 0);
  if (c->has_dynamic_root) raise_set(r, op, "has_dynamic_root", raise_truth(r, true));
  if (c->use_global_device_ids && strcmp(spelling, "stablehlo.collective_broadcast") != 0 &&
      !strstr(spelling, "permute"))
    raise_set(r, op, "use_global_device_ids", raise_truth(r, true));
  raise_called(r, op, in);
  return raise_results_of(r, op, shape);
}

void raise_all_reduce(raising *r, const hlo_instr *in)
{
  r->at[in->id] = collective(r, in, "stablehlo.all_reduce", NULL, in->shape);
}

void raise_all_gather(raising *r, const hlo_instr *in)
{
  r->at[in->id] = collective(r, in, "stablehlo.all_gather", "all_gather_dim", in->shape);
}

void raise_reduce_scatter(raising *r, const hlo_instr *in)
{
  r->at[in->id] = collective(r, in, "stablehlo.reduce_scatter", "scatter_dimension", in->shape);
}

void raise_collective_permute(raising *r, const hlo_instr *in)
{
  r->at[in->id] = collective(r, in, "stablehlo.collective_permute", NULL, in->shape);
}

void raise_collective_broadcast(raising *r, const hlo_instr *in)
{
  r->at[in->id] = collective(r, in, "stablehlo.collective_broadcast", NULL, in->shape);
}

static mlir_value *exchange(raising *r, const hlo_instr *in, mlir_value *x, int64_t dim, int64_t parts)
{
  mlir_op *op = raise_emit(r, "stablehlo.all_to_all", 1, &x, 1, &x->type);

  raise_set_extra(r, op, in);
  raise_set_int(r, op, "split_dimension", dim);
  raise_set_int(r, op, "concat_dimension", dim);
  raise_set_int(r, op, "split_count", parts);
  set_groups(r, op, in);
  set_channel(r, op, in, 0);
  return op->results;
}

/* One array along a dimension; or an operand for each member of the group, which stack up to such an array. */
void raise_all_to_all(raising *r, const hlo_instr *in)
{
  raised_values operands = raise_operand_leaves(r, in, 0);
  int64_t parts, dims[HLO_MAX_RANK + 1] = {1}, start[HLO_MAX_RANK + 1] = {0}, limit[HLO_MAX_RANK + 1];
  const mlir_type *type = operands.v[0]->type;
  const raised **elements = MAKE(r, const raised *, operands.count);
  mlir_value *x;

  (void)listed_groups(r, in, &parts);
  if (in->dims.count > 0) {
    for (int i = 0; i < operands.count; i++)
      elements[i] = raise_single(r, exchange(r, in, operands.v[i], in->dims.v[0], parts));
    r->at[in->id] = hlo_shape_is_tuple(in->shape) ? raise_tuple_of(r, operands.count, elements) : elements[0];
    return;
  }
  if (type->rank == HLO_MAX_RANK || operands.count != parts)
    REFUSE(r, in, "%d operands for a group of %" PRId64, operands.count, parts);
  for (int i = 0; i < type->rank; i++) dims[i + 1] = limit[i + 1] = type->dims[i];
  for (int i = 0; i < operands.count; i++) operands.v[i] = raise_reshaped(r, operands.v[i], type->rank + 1, dims);
  dims[0] = parts;
  x = raise_make(r, "stablehlo.concatenate", operands.count, operands.v,
                 raise_array_type(r, type->dtype, type->rank + 1, dims));
  raise_set_int(r, r->block->last, "dimension", 0);
  x = exchange(r, in, x, 0, parts);
  for (int i = 0; i < operands.count; i++) {
    start[0] = i;
    limit[0] = i + 1;
    elements[i] = raise_single(r, raise_reshaped(r, raise_slice_of(r, x, start, limit, NULL), type->rank, type->dims));
  }
  r->at[in->id] = hlo_shape_is_tuple(in->shape) ? raise_tuple_of(r, operands.count, elements) : elements[0];
}

static const raised *part_of_start(raising *r, const hlo_shape *shape, const raised *operands, const raised *result);

/* (operands, results, contexts...): all-gather-start, collective-permute-start */
void raise_collective_start(raising *r, const hlo_instr *in)
{
  bool gather = in->op == HLO_ALL_GATHER_START;
  const hlo_shape *shape = hlo_shape_is_tuple(in->shape) && in->shape->rank > 1 ? in->shape->elements[1] : NULL;
  const raised **inputs = MAKE(r, const raised *, in->operand_count), *result;

  if (!shape) REFUSE(r, in, "a start that gives no pair");
  result = collective(r, in, gather ? "stablehlo.all_gather" : "stablehlo.collective_permute",
                      gather ? "all_gather_dim" : NULL, shape);
  for (int i = 0; i < in->operand_count; i++) inputs[i] = raise_operand(r, in, i);
  bool listed = hlo_shape_is_tuple(in->shape->elements[0]) &&
                !(in->operand_count == 1 && hlo_shape_is_tuple(in->operands[0]->shape));
  r->at[in->id] =
    part_of_start(r, in->shape, listed ? raise_tuple_of(r, in->operand_count, inputs) : inputs[0], result);
}

/* A value without meaning: zeros and new tokens. */
static const raised *nothing(raising *r, const hlo_shape *s)
{
  const raised **elements;

  if (hlo_shape_is_token(s))
    return raise_single(r, raise_make(r, "stablehlo.create_token", 0, NULL, raise_type_of(r, s)));
  if (!hlo_shape_is_tuple(s)) {
    mlir_value *zero = raise_scalar(r, s->type, 0);
    return raise_single(r, s->rank ? raise_broadcast_to(r, zero, s->rank, s->dims, NULL) : zero);
  }
  elements = MAKE(r, const raised *, s->rank);
  for (int i = 0; i < s->rank; i++) elements[i] = nothing(r, s->elements[i]);
  return raise_tuple_of(r, s->rank, elements);
}

static const raised *part_of_start(raising *r, const hlo_shape *shape, const raised *operands, const raised *result)
{
  const raised **elements = MAKE(r, const raised *, shape->rank);

  for (int i = 0; i < shape->rank; i++)
    elements[i] = i == 0 ? operands : i == 1 ? result : nothing(r, shape->elements[i]);
  return raise_tuple_of(r, shape->rank, elements);
}

/* ((operands...), result, contexts...): what the wrapped computation gives. */
void raise_async_start(raising *r, const hlo_instr *in)
{
  const hlo_instr *root = in->called[0]->root;
  const raised **inputs = MAKE(r, const raised *, in->operand_count), *result;
  int count;
  const mlir_type **types = raise_function_results(r, root->shape, &count);
  mlir_value **operands = MAKE(r, mlir_value *, in->operand_count);
  mlir_op *op;

  for (int i = 0; i < in->operand_count; i++) {
    inputs[i] = raise_operand(r, in, i);
    operands[i] = raise_value_of(r, inputs[i]);
  }
  op = raise_emit(r, "func.call", in->operand_count, operands, count, types);
  raise_set(r, op, "callee", raise_words(r, MLIR_SYMBOL, raise_function_name(r, in->called[0])));
  result = raise_gives_elements(root->shape) ? raise_results_of(r, op, root->shape) : raise_single(r, op->results);
  r->at[in->id] = part_of_start(r, in->shape, raise_tuple_of(r, in->operand_count, inputs), result);
}

/* (destination, source, context) */
void raise_copy_start(raising *r, const hlo_instr *in)
{
  const raised *x = raise_operand(r, in, 0);

  r->at[in->id] = part_of_start(r, in->shape, x, x);
}

void raise_second_of_start(raising *r, const hlo_instr *in)
{
  r->at[in->id] = raise_element(r, raise_operand(r, in, 0), 1);
}
void raise_first_of_start(raising *r, const hlo_instr *in)
{
  r->at[in->id] = raise_element(r, raise_operand(r, in, 0), 0);
}

/* send gives (data, context, token), recv (data, context, token): their dones take the token, or data and token. */
void raise_send(raising *r, const hlo_instr *in)
{
  raised_values operands = raise_operand_leaves(r, in, 0);
  const hlo_collective_attrs *c = in->u.collective;
  const raised **parts = MAKE(r, const raised *, 3);
  mlir_op *op = raise_emit(r, "stablehlo.send", operands.count, operands.v, 1,
                           (const mlir_type *[]){raise_new_type(r, MLIR_TOKEN, 0, NULL)});

  raise_set_extra(r, op, in);
  set_channel(r, op, in, c->is_host_transfer ? 2 : 1);
  raise_set(r, op, "is_host_transfer", raise_truth(r, c->is_host_transfer));
  if (c->pair_count)
    raise_set(r, op, "source_target_pairs", raise_matrix(r, c->pair_count, 2, (const int64_t *)c->pairs));
  parts[0] = raise_operand(r, in, 0);
  parts[1] = raise_single(r, raise_scalar(r, WEFT_U32, 0));
  parts[2] = raise_single(r, op->results);
  r->at[in->id] = raise_tuple_of(r, 3, parts);
}

void raise_send_done(raising *r, const hlo_instr *in) { r->at[in->id] = raise_element(r, raise_operand(r, in, 0), 2); }

void raise_recv(raising *r, const hlo_instr *in)
{
  const hlo_collective_attrs *c = in->u.collective;
  const raised **parts = MAKE(r, const raised *, 3);
  mlir_value *token = raise_array_operand(r, in, 0);
  int count, at = 0;
  const mlir_type **data = raise_leaf_types(r, in->shape->elements[0], &count),
                  **types = MAKE(r, const mlir_type *, count + 1);

  for (int i = 0; i < count; i++) types[i] = data[i];
  types[count] = token->type;
  mlir_op *op = raise_emit(r, "stablehlo.recv", 1, &token, count + 1, types);
  raise_set_extra(r, op, in);
  set_channel(r, op, in, c->is_host_transfer ? 3 : 1);
  raise_set(r, op, "is_host_transfer", raise_truth(r, c->is_host_transfer));
  if (c->pair_count)
    raise_set(r, op, "source_target_pairs", raise_matrix(r, c->pair_count, 2, (const int64_t *)c->pairs));
  parts[0] = raise_from_leaves(r, in->shape->elements[0], op->results, &at);
  parts[1] = raise_single(r, raise_scalar(r, WEFT_U32, 0));
  parts[2] = raise_single(r, &op->results[count]);
  r->at[in->id] = raise_tuple_of(r, 3, parts);
}

void raise_recv_done(raising *r, const hlo_instr *in)
{
  const raised **parts = MAKE(r, const raised *, 2), *x = raise_operand(r, in, 0);

  parts[0] = raise_element(r, x, 0);
  parts[1] = raise_element(r, x, 2);
  r->at[in->id] = raise_tuple_of(r, 2, parts);
}

void raise_feed(raising *r, const hlo_instr *in)
{
  bool out = in->op == HLO_OUTFEED;
  mlir_op *op = raise_give(r, in, raise_as_op(r, in, out ? "stablehlo.outfeed" : "stablehlo.infeed"));

  raise_set(r, op, out ? "outfeed_config" : "infeed_config",
            raise_words(r, MLIR_STRING, in->u.feed.config ? in->u.feed.config : ""));
}

/* XLA's form: a typed call. */
void raise_ragged_all_to_all(raising *r, const hlo_instr *in)
{
  mlir_op *groups = MAKE(r, mlir_op, 1), *op; /* a list of attributes */

  set_groups(r, groups, in);
  raise_set_int(r, groups, "channel_id", in->u.collective->channel_id);
  op = raise_give(r, in, raise_as_op(r, in, "stablehlo.custom_call"));
  raise_set(r, op, "call_target_name", raise_words(r, MLIR_STRING, "ragged_all_to_all"));
  raise_set(r, op, "api_version", raise_number(r, WEFT_S32, 4));
  raise_set(r, op, "backend_config",
            raise_dict(r, groups->attr_count - (in->u.collective->channel_id <= 0), groups->attrs));
}
