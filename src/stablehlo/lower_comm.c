/* stablehlo/lower_comm.c -- collectives, transfers, custom-calls, and the check and interpreter dialects. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hlo/text.h"
#include "stablehlo/lower.h"

/* ---- attributes of collectives ----------------------------------------------------------------------------------- */

/* A matrix of device numbers with one group in each row; short rows are filled up with -1. */
static weft_status *replica_groups(lowering *l, const mlir_op *op, hlo_replica_groups *out)
{
  const mlir_attr *a = mlir_attr_of(op, "replica_groups");
  hlo_ints flat, *groups;
  int64_t rows, columns;

  if (!a) return NULL;
  if (a->kind == MLIR_DICT) return lower_mesh_groups(l, a, out);
  WEFT_TRY(lower_ints(l, op, "replica_groups", &flat));
  rows = a->kind == MLIR_DENSE && a->type->rank == 2 ? a->type->dims[0] : 1;
  columns = a->kind == MLIR_DENSE && a->type->rank == 2 ? a->type->dims[1] : flat.count;
  if (rows * columns == 0) return NULL;
  groups = WEFT_ARENA_ARRAY(l->arena, hlo_ints, rows);
  WEFT_TRY_ALLOC(groups);
  for (int64_t r = 0; r < rows; r++) {
    int n = (int)columns;
    while (n > 0 && flat.v[r * columns + n - 1] < 0) n--;
    groups[r] = (hlo_ints){n, flat.v + r * columns};
  }
  out->form = HLO_GROUPS_LIST;
  out->group_count = (int)rows;
  out->groups = groups;
  return NULL;
}

static weft_status *collective_attrs(lowering *l, const mlir_op *op, hlo_collective_attrs **out)
{
  hlo_collective_attrs *c = WEFT_ARENA_NEW(l->arena, hlo_collective_attrs);
  hlo_ints pairs;

  WEFT_TRY_ALLOC(c);
  WEFT_TRY(replica_groups(l, op, &c->groups));
  c->channel_id = mlir_attr_int(mlir_attr_of(op, "channel_id"), 0);
  c->use_global_device_ids = mlir_attr_bool(mlir_attr_of(op, "use_global_device_ids"), false);
  c->is_host_transfer = mlir_attr_bool(mlir_attr_of(op, "is_host_transfer"), false);
  c->has_dynamic_root = op->region_count == 0 && mlir_attr_bool(mlir_attr_of(op, "has_dynamic_root"), false);
  WEFT_TRY(lower_ints(l, op, "source_target_pairs", &pairs));
  if (pairs.count % 2) return WEFT_ERR(INVALID_ARGUMENT, "source_target_pairs has %d numbers", pairs.count);
  c->pair_count = pairs.count / 2;
  c->pairs = (const int64_t(*)[2])pairs.v;
  *out = c;
  return NULL;
}

/* Makes one HLO collective of all operands, with the region as its computation if there is one. */
static weft_status *collective_with(lowering *l, const mlir_op *op, hlo_collective_attrs *c, hlo_opcode code,
                                    const char *dim_attr, const hlo_shape *given)
{
  hlo_instr **operands, *in;
  hlo_computation *f = NULL;

  WEFT_TRY(lower_operands(l, op, &operands));
  if (op->region_count > 0) {
    WEFT_TRY(lower_scalar_region(l, op, 0, "reducer", WEFT_INVALID, &f));
    if (f->param_count != 2) return WEFT_ERR(INVALID_ARGUMENT, "the region takes %d arguments", f->param_count);
    for (int i = 0; i < op->operand_count; i++) {
      if (!hlo_shape_is_array(operands[i]->shape)) return WEFT_ERR(INVALID_ARGUMENT, "operand %d is no array", i);
      WEFT_TRY(lower_convert(l, operands[i], f->params[0]->shape->type, &operands[i]));
    }
  } else if (code == HLO_ALL_REDUCE && op->operand_count > 0) { /* cross-replica-sum */
    WEFT_TRY(hlo_add_reducer(l->module, HLO_ADD, operands[0]->shape->type, &f));
  }
  WEFT_TRY(lower_emit(l, code, given, op->operand_count, operands, &in));
  if (f) WEFT_TRY(hlo_set_called(in, 1, &f));
  in->u.collective = c;
  if (dim_attr) {
    int64_t dim = mlir_attr_int(mlir_attr_of(op, dim_attr), -1);
    WEFT_TRY(hlo_ints_new(l->module, 1, &dim, &in->dims));
  }
  WEFT_TRY(lower_finish(in));
  return lower_tuple_results(l, op, in);
}

static weft_status *collective(lowering *l, const mlir_op *op, hlo_opcode code, const char *dim_attr,
                               const hlo_shape *given)
{
  hlo_collective_attrs *c;

  WEFT_TRY(collective_attrs(l, op, &c));
  return collective_with(l, op, c, code, dim_attr, given);
}

/* The declared shapes of all results as one shape. */
static weft_status *declared_results(lowering *l, const mlir_op *op, int count, const hlo_shape **out)
{
  const hlo_shape **shapes = WEFT_ARENA_ARRAY(l->arena, const hlo_shape *, count);

  WEFT_TRY_ALLOC(shapes);
  for (int i = 0; i < count; i++) WEFT_TRY(lower_shape(l, op->results[i].type, &shapes[i]));
  *out = count == 1 ? shapes[0] : hlo_shape_tuple(l->arena, count, shapes);
  WEFT_TRY_ALLOC(*out);
  return NULL;
}

weft_status *lower_all_gather(lowering *l, const mlir_op *op)
{
  const hlo_shape *shape;

  WEFT_TRY(declared_results(l, op, op->result_count, &shape));
  return collective(l, op, HLO_ALL_GATHER, "all_gather_dim", shape);
}

weft_status *lower_reduce_scatter(lowering *l, const mlir_op *op)
{
  const hlo_shape *shape;

  WEFT_TRY(declared_results(l, op, op->result_count, &shape));
  return collective(l, op, HLO_REDUCE_SCATTER, "scatter_dimension", shape);
}

weft_status *lower_all_reduce(lowering *l, const mlir_op *op) { return collective(l, op, HLO_ALL_REDUCE, NULL, NULL); }

/* Groups of partitions, which HLO's all-reduce does not have: they become the flattened ids of each replica's
 * partitions. */
static weft_status *flatten_partition_groups(lowering *l, const hlo_collective_attrs *from, hlo_collective_attrs **out)
{
  int64_t replicas = WEFT_MAX(l->module->replica_count, 1), partitions = WEFT_MAX(l->module->num_partitions, 1);
  int groups = WEFT_MAX(from->groups.group_count, 1), n = 0;
  hlo_collective_attrs *c = weft_arena_memdup(l->arena, from, sizeof *from);
  hlo_ints *lists = WEFT_ARENA_ARRAY(l->arena, hlo_ints, replicas * groups);

  WEFT_TRY_ALLOC(c && lists);
  if (from->groups.form != HLO_GROUPS_LIST) return WEFT_ERR(UNIMPLEMENTED, "groups of partitions along a mesh");
  for (int64_t r = 0; r < replicas; r++)
    for (int g = 0; g < groups; g++) {
      hlo_ints ids = from->groups.group_count ? from->groups.groups[g] : (hlo_ints){(int)partitions, NULL};
      int64_t *flat = WEFT_ARENA_ARRAY(l->arena, int64_t, ids.count);
      WEFT_TRY_ALLOC(flat);
      for (int i = 0; i < ids.count; i++) flat[i] = r * partitions + (ids.v ? ids.v[i] : i);
      lists[n++] = (hlo_ints){ids.count, flat};
    }
  c->groups = (hlo_replica_groups){.form = HLO_GROUPS_LIST, .group_count = n, .groups = lists};
  c->use_global_device_ids = true;
  *out = c;
  return NULL;
}

/* A pred[] that is true at the root of the group. The root broadcasts 1 + its ids, because a rank that receives nothing
 * gets zeros. */
static weft_status *is_root(lowering *l, hlo_collective_attrs *c, hlo_instr *root, hlo_instr **out)
{
  hlo_instr *ids[2], *told, *same[2];

  for (int i = 0; i < 2; i++) {
    WEFT_TRY(lower_simple(l, i ? HLO_PARTITION_ID : HLO_REPLICA_ID, NULL, 0, NULL, &ids[i]));
    WEFT_TRY(lower_like(l, ids[i], 1, &same[i]));
    WEFT_TRY(lower_binary(l, HLO_ADD, ids[i], same[i], &ids[i]));
  }
  WEFT_TRY(lower_emit(l, HLO_COLLECTIVE_BROADCAST, NULL, root ? 3 : 2, (hlo_instr *[]){ids[0], ids[1], root}, &told));
  told->u.collective = c;
  WEFT_TRY(lower_finish(told));
  for (int i = 0; i < 2; i++) {
    WEFT_TRY(hlo_add_gte(l->comp, NULL, told, i, &same[i]));
    WEFT_TRY(hlo_add_compare(l->comp, NULL, HLO_EQ, same[i], ids[i], &same[i]));
  }
  return lower_binary(l, HLO_AND, same[0], same[1], out);
}

/* Only the root gets the result, the others get zeros: an all-reduce whose result the others discard. */
weft_status *lower_collective_reduce(lowering *l, const mlir_op *op)
{
  hlo_instr *roots = NULL, *mine = NULL, *root = NULL, *zero, *in;
  hlo_collective_attrs *c, *reduce;
  mlir_op all = *op;

  WEFT_TRY(collective_attrs(l, op, &c));
  c->use_global_device_ids = false;
  reduce = c;
  if (c->channel_id > 0) WEFT_TRY(flatten_partition_groups(l, c, &reduce));
  c = weft_arena_memdup(l->arena, c, sizeof *c);
  WEFT_TRY_ALLOC(c);
  c->has_dynamic_root = mlir_attr_bool(mlir_attr_of(op, "has_dynamic_root"), false) && op->operand_count > 1;
  if (c->has_dynamic_root) WEFT_TRY(lower_operand(l, op, --all.operand_count, &roots));
  WEFT_TRY(collective_with(l, &all, reduce, HLO_ALL_REDUCE, NULL, NULL));
  for (int i = 0; i < op->result_count; i++) {
    if (c->has_dynamic_root) {
      WEFT_TRY(hlo_add_slice(l->comp, NULL, roots, &(int64_t){i}, &(int64_t){i + 1}, NULL, &root));
      mine = NULL;
    }
    if (!mine) WEFT_TRY(is_root(l, c, root, &mine));
    in = op->results[i].instr;
    WEFT_TRY(lower_like(l, in, 0, &zero));
    WEFT_TRY(lower_emit(l, HLO_SELECT, NULL, 3, (hlo_instr *[]){mine, in, zero}, &in));
    WEFT_TRY(lower_finish(in));
    WEFT_TRY(lower_result(l, op, i, in));
  }
  return NULL;
}

weft_status *lower_collective_permute(lowering *l, const mlir_op *op)
{
  return collective(l, op, HLO_COLLECTIVE_PERMUTE, NULL, NULL);
}

weft_status *lower_collective_broadcast(lowering *l, const mlir_op *op)
{
  return collective(l, op, HLO_COLLECTIVE_BROADCAST, NULL, NULL);
}

/* HLO splits and concatenates along one dimension. If the two dimensions differ, split dimension s of size n*k
 * becomes (n, k), the exchange is along n, and n then moves in front of dimension c, along which the parts are
 * concatenated. */
static weft_status *all_to_all_one(lowering *l, const mlir_op *op, hlo_collective_attrs *c, hlo_instr *x, int result)
{
  int64_t s = mlir_attr_int(mlir_attr_of(op, "split_dimension"), -1);
  int64_t d = mlir_attr_int(mlir_attr_of(op, "concat_dimension"), -1), n = c->split_count;
  int64_t dims[HLO_MAX_RANK + 1], permutation[HLO_MAX_RANK + 1];
  hlo_instr *in;
  int rank = x->shape->rank, at = 0;

  if (s < 0 || s >= rank || d < 0 || d >= rank || n < 1 || x->shape->dims[s] % n || rank == HLO_MAX_RANK)
    return WEFT_ERR(INVALID_ARGUMENT, "split dimension %" PRId64 ", concat dimension %" PRId64 ", %" PRId64 " parts", s,
                    d, n);
  if (s != d) {
    for (int i = 0, k = 0; i < rank; i++) {
      if (i == s) dims[k++] = n;
      dims[k++] = i == s ? x->shape->dims[i] / n : x->shape->dims[i];
    }
    WEFT_TRY(lower_reshape(l, x, rank + 1, dims, &x));
  }
  WEFT_TRY(lower_emit(l, HLO_ALL_TO_ALL, NULL, 1, &x, &in));
  in->u.collective = c;
  WEFT_TRY(hlo_ints_new(l->module, 1, &s, &in->dims));
  WEFT_TRY(lower_finish(in));
  if (s != d) {
    for (int i = 0; i < rank; i++) { /* the old dimension i is i or i + 1 in the reshaped array; dimension s is n */
      if (i == d) permutation[at++] = s;
      permutation[at++] = i < s ? i : i + 1;
    }
    WEFT_TRY(hlo_add_transpose(l->comp, NULL, in, permutation, &in));
    for (int i = 0, k = 0; i < rank; i++) {
      dims[i] = in->shape->dims[k++];
      if (i == d) dims[i] *= in->shape->dims[k++];
    }
    WEFT_TRY(lower_reshape(l, in, rank, dims, &in));
  }
  return lower_result(l, op, result, in);
}

/* MHLO's form: operand i goes to member i of the group, and result i comes from that member. */
static weft_status *all_to_all_operands(lowering *l, const mlir_op *op, hlo_collective_attrs *c)
{
  hlo_instr **operands, *in;

  WEFT_TRY(lower_operands(l, op, &operands));
  WEFT_TRY(lower_emit(l, HLO_ALL_TO_ALL, NULL, op->operand_count, operands, &in));
  in->u.collective = c;
  WEFT_TRY(lower_finish(in));
  return lower_tuple_results(l, op, in);
}

weft_status *lower_all_to_all(lowering *l, const mlir_op *op)
{
  hlo_collective_attrs *c;
  hlo_instr *x;

  WEFT_TRY(collective_attrs(l, op, &c));
  if (!mlir_attr_of(op, "split_dimension") && op->operand_count > 1) return all_to_all_operands(l, op, c);
  c->split_count = mlir_attr_int(mlir_attr_of(op, "split_count"), 0);
  for (int i = 0; i < op->operand_count; i++) {
    WEFT_TRY(lower_operand(l, op, i, &x));
    WEFT_TRY(all_to_all_one(l, op, c, x, i));
  }
  return NULL;
}

/* ---- transfers --------------------------------------------------------------------------------------------------- */

/* All operands except the last (the token) as one value: the operand itself if there is one, otherwise a tuple. */
static weft_status *payload(lowering *l, const mlir_op *op, bool always_tuple, hlo_instr **out, hlo_instr **out_token)
{
  hlo_instr **operands;
  int n = op->operand_count - 1;

  if (n < 0) return WEFT_ERR(INVALID_ARGUMENT, "no token");
  WEFT_TRY(lower_operands(l, op, &operands));
  *out_token = operands[n];
  *out = operands[0];
  return n == 1 && !always_tuple ? NULL : hlo_add_tuple(l->comp, NULL, n, operands, out);
}

/* The results are the elements of `data` (or `data` itself), then `token`. */
static weft_status *data_and_token(lowering *l, const mlir_op *op, hlo_instr *data, hlo_instr *token)
{
  int n = op->result_count - 1;
  hlo_instr *element;

  for (int i = 0; i < n; i++) {
    element = data;
    if (n != 1 || hlo_shape_is_tuple(data->shape)) WEFT_TRY(hlo_add_gte(l->comp, NULL, data, i, &element));
    WEFT_TRY(lower_result(l, op, i, element));
  }
  return lower_result(l, op, n, token);
}

/* Transfers with the host happen in the order of the program, whatever tokens they share. */
static weft_status *after_last_transfer(lowering *l, const hlo_collective_attrs *c, hlo_instr **token)
{
  if (!c->is_host_transfer || !l->transferred || l->transferred->parent != l->comp) return NULL;
  return lower_simple(l, HLO_AFTER_ALL, NULL, 2, (hlo_instr *[]){*token, l->transferred}, token);
}

weft_status *lower_send(lowering *l, const mlir_op *op)
{
  hlo_instr *data, *token, *in;
  hlo_collective_attrs *c;

  WEFT_TRY(payload(l, op, false, &data, &token));
  WEFT_TRY(collective_attrs(l, op, &c));
  WEFT_TRY(after_last_transfer(l, c, &token));
  WEFT_TRY(lower_emit(l, HLO_SEND, NULL, 2, (hlo_instr *[]){data, token}, &in));
  in->u.collective = c;
  WEFT_TRY(lower_finish(in));
  WEFT_TRY(lower_emit(l, HLO_SEND_DONE, NULL, 1, &in, &in));
  in->u.collective = c;
  WEFT_TRY(lower_finish(in));
  if (c->is_host_transfer) l->transferred = in;
  return lower_result(l, op, 0, in);
}

weft_status *lower_recv(lowering *l, const mlir_op *op)
{
  const hlo_shape *data, *shape, *token;
  hlo_instr *in, *from;
  hlo_collective_attrs *c;

  WEFT_TRY(lower_operand(l, op, 0, &from));
  if (op->result_count < 1) return WEFT_ERR(INVALID_ARGUMENT, "no results");
  WEFT_TRY(declared_results(l, op, op->result_count - 1, &data));
  WEFT_TRY(collective_attrs(l, op, &c));
  WEFT_TRY(after_last_transfer(l, c, &from));
  token = hlo_shape_token(l->arena);
  WEFT_TRY_ALLOC(token);
  shape =
    hlo_shape_tuple(l->arena, 3, (const hlo_shape *[]){data, hlo_shape_array(l->arena, WEFT_U32, 0, NULL), token});
  WEFT_TRY_ALLOC(shape);
  WEFT_TRY(lower_emit(l, HLO_RECV, shape, 1, &from, &in));
  in->u.collective = c;
  WEFT_TRY(lower_finish(in));
  WEFT_TRY(lower_emit(l, HLO_RECV_DONE, NULL, 1, &in, &in));
  in->u.collective = c;
  WEFT_TRY(lower_finish(in));
  hlo_instr *value, *done;
  WEFT_TRY(hlo_add_gte(l->comp, NULL, in, 0, &value));
  WEFT_TRY(hlo_add_gte(l->comp, NULL, in, 1, &done));
  if (c->is_host_transfer) l->transferred = done;
  return data_and_token(l, op, value, done);
}

weft_status *lower_infeed(lowering *l, const mlir_op *op)
{
  int n = op->result_count - 1;
  const hlo_shape **shapes, *shape;
  hlo_instr *token, *in, *data, *done;

  if (n < 0) return WEFT_ERR(INVALID_ARGUMENT, "no results");
  shapes = WEFT_ARENA_ARRAY(l->arena, const hlo_shape *, n);
  WEFT_TRY_ALLOC(shapes);
  WEFT_TRY(lower_operand(l, op, 0, &token));
  for (int i = 0; i < n; i++) WEFT_TRY(lower_shape(l, op->results[i].type, &shapes[i]));
  shape = hlo_shape_tuple(l->arena, n, shapes);
  WEFT_TRY_ALLOC(shape);
  shape = hlo_shape_tuple(l->arena, 2, (const hlo_shape *[]){shape, token->shape});
  WEFT_TRY_ALLOC(shape);
  WEFT_TRY(lower_emit(l, HLO_INFEED, shape, 1, &token, &in));
  in->u.feed.config = weft_arena_strdup(l->arena, mlir_attr_text(mlir_attr_of(op, "infeed_config"), ""));
  WEFT_TRY_ALLOC(in->u.feed.config);
  WEFT_TRY(lower_finish(in));
  WEFT_TRY(hlo_add_gte(l->comp, NULL, in, 0, &data));
  WEFT_TRY(hlo_add_gte(l->comp, NULL, in, 1, &done));
  return data_and_token(l, op, data, done);
}

weft_status *lower_outfeed(lowering *l, const mlir_op *op)
{
  hlo_instr *data, *token, *in;

  WEFT_TRY(payload(l, op, true, &data, &token));
  WEFT_TRY(lower_emit(l, HLO_OUTFEED, NULL, 2, (hlo_instr *[]){data, token}, &in));
  in->u.feed.config = weft_arena_strdup(l->arena, mlir_attr_text(mlir_attr_of(op, "outfeed_config"), ""));
  WEFT_TRY_ALLOC(in->u.feed.config);
  in->u.feed.outfeed_shape = data->shape;
  WEFT_TRY(lower_finish(in));
  return lower_result(l, op, 0, in);
}

/* The wrapped operation runs in the place of its start; later passes split the operations that are worth it. The
 * future is what the region returns. */
weft_status *lower_async_start(lowering *l, const mlir_op *op)
{
  const mlir_block *block = op->region_count == 1 ? op->regions[0].first : NULL;
  hlo_instr **args, **results;
  int count;

  WEFT_TRY(lower_operands(l, op, &args));
  if (!block || op->regions[0].block_count != 1 || block->arg_count != op->operand_count || op->result_count != 1)
    return WEFT_ERR(INVALID_ARGUMENT, "expected one region of %d arguments and one result", op->operand_count);
  for (int i = 0; i < block->arg_count; i++) block->args[i].instr = args[i];
  WEFT_TRY(lower_block(l, block, &count, &results));
  if (count == 1) {
    op->results[0].instr = results[0];
    return NULL;
  }
  return hlo_add_tuple(l->comp, NULL, count, results, &op->results[0].instr);
}

weft_status *lower_async_done(lowering *l, const mlir_op *op)
{
  hlo_instr *future;

  WEFT_TRY(lower_operand(l, op, 0, &future));
  return lower_tuple_results(l, op, future);
}

/* ---- custom-calls ------------------------------------------------------------------------------------------------ */

static void print_string(FILE *out, const char *s, size_t n)
{
  fputc('"', out);
  for (size_t i = 0; i < n; i++) {
    unsigned char c = (unsigned char)s[i];
    if (c == '"' || c == '\\') fprintf(out, "\\%c", c);
    else if (c < 32 || c == 127) fprintf(out, "\\%02X", c);
    else fputc(c, out);
  }
  fputc('"', out);
}

static void print_type(FILE *out, const mlir_type *t)
{
  if (!t) return;
  if (t->kind == MLIR_TENSOR) {
    fputs("tensor<", out);
    for (int i = 0; i < t->rank; i++) fprintf(out, "%" PRId64 "x", t->dims[i]);
    fprintf(out, "%s>", weft_dtype_mlir_name(t->dtype));
  } else {
    fputs(t->kind == MLIR_INDEX ? "index" : weft_dtype_mlir_name(t->dtype), out);
  }
}

/* An attribute as MLIR assembly, in the form in which XLA hands a typed FFI call its dictionary. The readers bound
 * its depth. */
static weft_status *print_attr(lowering *l, FILE *out, const mlir_attr *a)
{
  switch (a->kind) {
  case MLIR_UNIT: fputs("unit", out); break;
  case MLIR_BOOL: fputs(a->u.i ? "true" : "false", out); break;
  case MLIR_INT:
    fprintf(out, "%" PRId64, a->u.i);
    if (a->type) {
      fputs(" : ", out);
      print_type(out, a->type);
    }
    break;
  case MLIR_FLOAT: {
    weft_dtype type = a->type ? a->type->dtype : WEFT_F64;
    if (a->u.f - a->u.f != 0) /* infinity and NaN are written as their bits */
      fprintf(out, "0x%" PRIX64,
              type == WEFT_F64 ? ((union {
                                   double d;
                                   uint64_t u;
                                 }){a->u.f})
                                   .u
                               : weft_float_encode_f64(type, a->u.f));
    else fprintf(out, "%.17e", a->u.f);
    fputs(" : ", out);
    fputs(weft_dtype_mlir_name(type), out);
    break;
  }
  case MLIR_STRING: print_string(out, a->u.text.s, a->u.text.size); break;
  case MLIR_SYMBOL: fprintf(out, "@%s", a->u.text.s); break;
  case MLIR_ENUM: case MLIR_OPAQUE: fputs(a->u.text.s, out); break;
  case MLIR_TYPE: print_type(out, a->type); break;
  case MLIR_ARRAY:
    if (a->type) {
      fputs("array<", out);
      print_type(out, a->type);
      if (a->u.array.count) fputs(": ", out);
    } else {
      fputc('[', out);
    }
    for (int i = 0; i < a->u.array.count; i++) {
      if (i) fputs(", ", out);
      WEFT_TRY(print_attr(l, out, a->u.array.items[i]));
    }
    fputc(a->type ? '>' : ']', out);
    break;
  case MLIR_DICT:
    fputc('{', out);
    for (int i = 0; i < a->u.dict.count; i++) {
      fprintf(out, "%s%s", i ? ", " : "", a->u.dict.items[i].name);
      if (a->u.dict.items[i].value->kind == MLIR_UNIT) continue;
      fputs(" = ", out);
      WEFT_TRY(print_attr(l, out, a->u.dict.items[i].value));
    }
    fputc('}', out);
    break;
  case MLIR_DENSE: { /* as a hex string, which every reader of the dictionary can decode */
    int64_t count;
    bool splat;
    WEFT_TRY(mlir_dense_size(l->program, l->source, a, &count, &splat));
    size_t n = weft_dtype_bytes(a->type->dtype) * (size_t)count;
    unsigned char *data = weft_arena_alloc(&l->scratch, n + 16);
    WEFT_TRY_ALLOC(data);
    WEFT_TRY(mlir_dense_read(l->program, l->source, a, data));
    fputs("dense<\"0x", out);
    for (size_t i = 0; i < n; i++) fprintf(out, "%02X", data[i]);
    fputs("\"> : ", out);
    print_type(out, a->type);
    break;
  }
  }
  return NULL;
}

static weft_status *attr_text(lowering *l, const mlir_attr *a, const char **out)
{
  WEFT_AUTO_STR text = NULL;
  size_t size = 0;
  FILE *f = open_memstream(&text, &size);

  WEFT_TRY_ALLOC(f);
  weft_status *st = print_attr(l, f, a);
  if (fclose(f) != 0 && !st) st = WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  WEFT_TRY(st);
  *out = weft_arena_strndup(l->arena, text, size);
  WEFT_TRY_ALLOC(*out);
  return NULL;
}

static weft_status *set_backend_config(lowering *l, hlo_instr *in, const char *text)
{
  hlo_extra *extra;

  WEFT_TRY(lower_new_extra(l, in, &extra));
  extra->backend_config = weft_arena_strdup(l->arena, text);
  WEFT_TRY_ALLOC(extra->backend_config);
  return NULL;
}

/* Bytes that are not text: see hlo_extra. */
static weft_status *set_backend_bytes(lowering *l, hlo_instr *in, const mlir_attr *bytes)
{
  size_t size = bytes->u.text.size;
  char *hex;

  if (!memchr(bytes->u.text.s, 0, size) && strncmp(bytes->u.text.s, "hex:", 4) != 0)
    return set_backend_config(l, in, bytes->u.text.s);
  hex = weft_arena_alloc_array(l->arena, 2 * size + 5, 1);
  WEFT_TRY_ALLOC(hex);
  memcpy(hex, "hex:", 5);
  for (size_t i = 0; i < size; i++) snprintf(hex + 4 + 2 * i, 3, "%02x", (unsigned char)bytes->u.text.s[i]);
  return set_backend_config(l, in, hex);
}

static weft_status *output_aliases(lowering *l, const mlir_op *op, hlo_custom_call_attrs *c)
{
  const mlir_attr *a = mlir_attr_of(op, "output_operand_aliases");
  hlo_output_alias *aliases;

  if (!a || a->kind != MLIR_ARRAY) return NULL;
  aliases = WEFT_ARENA_ARRAY(l->arena, hlo_output_alias, a->u.array.count);
  WEFT_TRY_ALLOC(aliases);
  for (int i = 0; i < a->u.array.count; i++) {
    const mlir_attr *d = a->u.array.items[i];
    WEFT_TRY(mlir_attr_ints(l->program, l->source, l->arena, mlir_dict_get(d, "output_tuple_indices"),
                            &aliases[i].output_index));
    WEFT_TRY(mlir_attr_ints(l->program, l->source, l->arena, mlir_dict_get(d, "operand_tuple_indices"),
                            &aliases[i].operand_index));
    aliases[i].operand = mlir_attr_int(mlir_dict_get(d, "operand_index"), 0);
    if (aliases[i].operand < 0 || aliases[i].operand >= op->operand_count)
      return WEFT_ERR(INVALID_ARGUMENT, "an output aliases operand %" PRId64, aliases[i].operand);
  }
  c->alias_count = a->u.array.count;
  c->aliases = aliases;
  return NULL;
}

/* The shapes with the layouts of attribute `name`: a minor-to-major list for each shape; NULL without the attribute. */
static weft_status *constrained_shapes(lowering *l, const mlir_op *op, const char *name, int count,
                                       const hlo_shape *const *plain, const hlo_shape ***out)
{
  const mlir_attr *a = mlir_attr_of(op, name);

  *out = NULL;
  if (!a || a->kind != MLIR_ARRAY || a->u.array.count != count) return NULL;
  const hlo_shape **shapes = WEFT_ARENA_ARRAY(l->arena, const hlo_shape *, count);
  WEFT_TRY_ALLOC(shapes);
  for (int i = 0; i < count; i++) {
    hlo_ints order;
    uint64_t seen = 0;
    WEFT_TRY(mlir_attr_ints(l->program, l->source, l->arena, a->u.array.items[i], &order));
    shapes[i] = plain[i];
    if (!hlo_shape_is_array(shapes[i])) continue;
    for (int k = 0; k < order.count; k++)
      if (order.v[k] >= 0 && order.v[k] < shapes[i]->rank) seen |= (uint64_t)1 << order.v[k];
    if (order.count != shapes[i]->rank || seen != ((uint64_t)1 << order.count) - 1)
      return WEFT_ERR(INVALID_ARGUMENT, "%s: number %d is no permutation of its dimensions", name, i);
    shapes[i] = hlo_shape_with_layout(l->arena, shapes[i], order.v);
    WEFT_TRY_ALLOC(shapes[i]);
  }
  *out = shapes;
  return NULL;
}

static weft_status *custom_call_layouts(lowering *l, const mlir_op *op, hlo_instr *in, hlo_custom_call_attrs *c)
{
  const hlo_shape **plain = WEFT_ARENA_ARRAY(l->arena, const hlo_shape *, in->operand_count), **shapes;
  bool is_tuple = hlo_shape_is_tuple(in->shape);

  WEFT_TRY_ALLOC(plain);
  for (int i = 0; i < in->operand_count; i++) plain[i] = in->operands[i]->shape;
  WEFT_TRY(constrained_shapes(l, op, "operand_layouts", in->operand_count, plain, &shapes));
  if (shapes) {
    c->layout_count = in->operand_count;
    c->operand_layouts = shapes;
  }
  WEFT_TRY(constrained_shapes(l, op, "result_layouts", is_tuple ? in->shape->rank : 1,
                              is_tuple ? in->shape->elements : &in->shape, &shapes));
  if (!shapes) return NULL;
  in->shape = is_tuple ? hlo_shape_tuple(l->arena, in->shape->rank, shapes) : shapes[0];
  WEFT_TRY_ALLOC(in->shape);
  return NULL;
}

static weft_status *custom_call_literal(lowering *l, const mlir_attr *a, hlo_custom_call_attrs *c)
{
  hlo_literal *literal;
  const hlo_shape *shape;
  int64_t count;
  bool splat;

  if (!a || a->kind != MLIR_DENSE) return NULL;
  WEFT_TRY(mlir_dense_size(l->program, l->source, a, &count, &splat));
  if (splat) return WEFT_ERR(UNIMPLEMENTED, "mhlo.literal of one element for all");
  WEFT_TRY(lower_shape(l, a->type, &shape));
  WEFT_TRY(hlo_literal_new(l->arena, shape, &literal));
  c->literal = literal;
  return mlir_dense_read(l->program, l->source, a, literal->data);
}

static weft_status *called_computations(lowering *l, const mlir_op *op, hlo_instr *in)
{
  const mlir_attr *a = mlir_attr_of(op, "called_computations");
  hlo_computation **called;

  if (!a || a->kind != MLIR_ARRAY || a->u.array.count == 0) return NULL;
  called = WEFT_ARENA_ARRAY(&l->scratch, hlo_computation *, a->u.array.count);
  WEFT_TRY_ALLOC(called);
  for (int i = 0; i < a->u.array.count; i++)
    WEFT_TRY(lower_called_function(l, mlir_attr_text(a->u.array.items[i], ""), &called[i]));
  return hlo_set_called(in, a->u.array.count, called);
}

/* An operation of MHLO that is written as a custom-call of its name: `attrs` are its attributes, and a called
 * function is its region. */
static weft_status *as_operation(lowering *l, const mlir_op *op, const char *spelling, const mlir_attr *attrs)
{
  const mlir_attr *called = mlir_attr_of(op, "called_computations");
  lower_function *f = NULL;
  mlir_op plain = *op;

  WEFT_TRY(mlir_kind((mlir_program *)l->program, spelling, strlen(spelling), &plain.kind));
  plain.name = plain.kind->name;
  plain.dialect = plain.kind->dialect;
  plain.attrs = attrs->u.dict.items;
  plain.attr_count = attrs->u.dict.count;
  plain.shares_attrs = false;
  if (called && called->kind == MLIR_ARRAY && called->u.array.count == 1) {
    const char *name = mlir_attr_text(called->u.array.items[0], "");
    f = lower_find_function(l, name);
    if (!f) return WEFT_ERR(INVALID_ARGUMENT, "there is no function \"%s\"", name);
    if (f->busy) return WEFT_ERR(INVALID_ARGUMENT, "function \"%s\" calls itself", name);
    f->busy = true;
    plain.regions = f->op->regions;
    plain.region_count = f->op->region_count;
  }
  WEFT_TRY_NOTE(lower_op(l, &plain), "%s", spelling);
  if (f) f->busy = false;
  return NULL;
}

/* The same for a collective; its attributes are those of a typed call. */
static weft_status *ragged_all_to_all(lowering *l, const mlir_op *op, const mlir_attr *config)
{
  mlir_op plain = *op;

  if (config->kind != MLIR_DICT) return WEFT_ERR(INVALID_ARGUMENT, "backend_config is no dictionary");
  plain.attrs = config->u.dict.items;
  plain.attr_count = config->u.dict.count;
  return collective(l, &plain, HLO_RAGGED_ALL_TO_ALL, NULL, NULL);
}

/* Annotations that mean nothing on one partition. */
static bool is_annotation(const char *target)
{
  static const char *const names[] = {"Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape",
                                      "xla.sdy.FuncResultSharding", "xla.sdy.GlobalToLocalShape",
                                      "xla.sdy.LocalToGlobalShape", "LayoutConstraint"};

  for (size_t i = 0; i < WEFT_COUNT(names); i++)
    if (strcmp(names[i], target) == 0) return true;
  return false;
}

weft_status *lower_custom_call(lowering *l, const mlir_op *op)
{
  const char *target = mlir_attr_text(mlir_attr_of(op, "call_target_name"), "");
  const mlir_attr *config = mlir_attr_of(op, "backend_config"), *version = mlir_attr_of(op, "api_version");
  const mlir_attr *extension = mlir_attr_of(op, "mhlo.attributes");
  /* JAX marks calls of the typed FFI by this attribute */
  const mlir_attr *typed = mlir_attr_of(op, "mhlo.backend_config");
  static const char *const versions[] = {"API_VERSION_UNSPECIFIED", "API_VERSION_ORIGINAL",
      "API_VERSION_STATUS_RETURNING", "API_VERSION_STATUS_RETURNING_UNIFIED", "API_VERSION_TYPED_FFI"};
  hlo_custom_call_attrs *c = WEFT_ARENA_NEW(l->arena, hlo_custom_call_attrs);
  const hlo_shape *shape, **shapes = WEFT_ARENA_ARRAY(l->arena, const hlo_shape *, op->result_count);
  bool *drop = WEFT_ARENA_ARRAY(&l->scratch, bool, op->operand_count), known;
  hlo_instr **operands, *in;
  int count = 0;

  WEFT_TRY_ALLOC(c);
  WEFT_TRY_ALLOC(shapes);
  WEFT_TRY_ALLOC(drop);
  if (extension && extension->kind == MLIR_DICT && strncmp(target, "mhlo.", 5) == 0)
    return as_operation(l, op, target, extension);
  if (strcmp(target, "ragged_all_to_all") == 0 && config) return ragged_all_to_all(l, op, config);
  WEFT_TRY(lower_dynamic_custom_call(l, op, target, &known));
  if (known) return NULL;
  WEFT_TRY(lower_operands(l, op, &operands));
  if (is_annotation(target) && l->inline_calls && op->operand_count > 0) return lower_result(l, op, 0, operands[0]);
  WEFT_TRY(lower_custom_call_shapes(l, op, shapes, drop));
  bool says_nothing = strcmp(target, "LayoutConstraint") == 0 ||
                      (l->module->num_partitions == 1 && is_annotation(target));
  if (says_nothing && op->operand_count == 1 && op->result_count == 1 &&
      hlo_shape_equal(shapes[0], operands[0]->shape, false))
    return lower_result(l, op, 0, operands[0]);
  shape = op->result_count == 1 ? shapes[0] : hlo_shape_tuple(l->arena, op->result_count, shapes);
  WEFT_TRY_ALLOC(shape);
  for (int i = 0; i < op->operand_count; i++)
    if (!drop[i]) operands[count++] = operands[i];
  WEFT_TRY(lower_emit(l, HLO_CUSTOM_CALL, shape, count, operands, &in));
  c->target = weft_arena_strdup(l->arena, target);
  WEFT_TRY_ALLOC(c->target);
  c->has_side_effect = mlir_attr_bool(mlir_attr_of(op, "has_side_effect"), false);
  c->api_version = (int)mlir_attr_int(version, 1);
  for (size_t i = 0; i < WEFT_COUNT(versions); i++)
    if (strcmp(mlir_attr_text(version, ""), versions[i]) == 0) c->api_version = (int)i;
  if (typed && typed->kind == MLIR_DICT) {
    config = typed;
    c->api_version = 4;
  }
  WEFT_TRY(custom_call_literal(l, mlir_attr_of(op, "mhlo.literal"), c));
  WEFT_TRY(output_aliases(l, op, c));
  WEFT_TRY(custom_call_layouts(l, op, in, c));
  WEFT_TRY(called_computations(l, op, in));
  in->u.custom = c;
  if (config && config->kind == MLIR_STRING && config->u.text.size > 0) {
    WEFT_TRY(set_backend_bytes(l, in, config));
  } else if (config && config->kind == MLIR_DICT && config->u.dict.count > 0) {
    const char *text;
    WEFT_TRY(attr_text(l, config, &text));
    WEFT_TRY(set_backend_config(l, in, text));
  }
  WEFT_TRY(lower_finish(in));
  return lower_tuple_results(l, op, in);
}

static weft_status *side_effect_call(lowering *l, const char *target, const hlo_shape *shape, int count,
                                     hlo_instr *const *operands, hlo_instr **out)
{
  hlo_custom_call_attrs *c = WEFT_ARENA_NEW(l->arena, hlo_custom_call_attrs);

  WEFT_TRY_ALLOC(c);
  *c =
    (hlo_custom_call_attrs){.target = weft_arena_strdup(l->arena, target), .has_side_effect = true, .api_version = 1};
  WEFT_TRY_ALLOC(c->target);
  WEFT_TRY(lower_emit(l, HLO_CUSTOM_CALL, shape, count, operands, out));
  (*out)->u.custom = c;
  return lower_finish(*out);
}

/* ---- check and interpreter --------------------------------------------------------------------------------------- */

static weft_status *find_probe(lowering *l, const mlir_op *op, lower_probe **out)
{
  const char *id = mlir_attr_text(mlir_attr_of(op, "probe_id"), "");
  int64_t wanted = mlir_attr_int(mlir_attr_of(op, "iter"), 0);

  for (int i = 0; i < l->probe_count; i++)
    if (strcmp(l->probes[i].id, id) == 0) {
      if (wanted > 0 || l->probes[i].instr->parent != l->comp)
        return WEFT_ERR(UNIMPLEMENTED, "probe \"%s\" is inside a loop: the values of single iterations are not kept",
                        id);
      *out = &l->probes[i];
      return NULL;
    }
  return WEFT_ERR(INVALID_ARGUMENT, "there is no probe \"%s\"", id);
}

/* check.expect_KIND %actual, %expected and expect_KIND_const %actual, dense<...>: custom-calls named check.expect_KIND
 * with their tolerances in backend_config.  expect_serialized_eq compares with what a probe saw. */
weft_status *lower_check(lowering *l, const mlir_op *op)
{
  char target[64], config[160];
  const mlir_attr *value = mlir_attr_of(op, "value");
  hlo_instr *operands[2], *in;
  const hlo_shape *nothing = hlo_shape_tuple(l->arena, 0, NULL);
  lower_probe *probe = NULL;
  size_t n = strlen(op->name);

  WEFT_TRY_ALLOC(nothing);
  WEFT_TRY(lower_operand(l, op, 0, &operands[0]));
  bool serialized = strcmp(op->name, "expect_serialized_eq") == 0;
  bool constant = n > 6 && n < 48 && strcmp(op->name + n - 6, "_const") == 0;
  if (serialized) {
    WEFT_TRY(find_probe(l, op, &probe));
    operands[1] = probe->instr;
  } else if (constant) {
    if (!value || value->kind != MLIR_DENSE) return WEFT_ERR(INVALID_ARGUMENT, "no dense value");
    WEFT_TRY(lower_dense(l, value, &operands[1]));
  } else {
    WEFT_TRY(lower_operand(l, op, 1, &operands[1]));
  }
  snprintf(target, sizeof target, "check.%.*s", (int)(constant ? n - 6 : n), op->name);
  WEFT_TRY(side_effect_call(l, serialized ? "check.expect_eq" : target, nothing, 2, operands, &in));
  snprintf(config, sizeof config,
           "{\"tolerance\":%.17g,\"min_ulp_difference\":%" PRIu64 ",\"max_ulp_difference\":%" PRIu64 ",\"bitwise\":%s}",
           mlir_attr_double(mlir_attr_of(op, "tolerance"), 1e-4),
           (uint64_t)mlir_attr_int(mlir_attr_of(op, "min_ulp_difference"), 0),
           (uint64_t)mlir_attr_int(mlir_attr_of(op, "max_ulp_difference"), 1), serialized ? "true" : "false");
  return set_backend_config(l, in, config);
}

static weft_status *probe(lowering *l, const mlir_op *op)
{
  hlo_instr *x;

  WEFT_TRY(lower_operand(l, op, 0, &x));
  WEFT_TRY_ALLOC(WEFT_ARENA_RESERVE(&l->scratch, l->probes, l->probe_capacity, l->probe_count + 1, 8));
  l->probes[l->probe_count++] = (lower_probe){mlir_attr_text(mlir_attr_of(op, "probe_id"), ""), x};
  return lower_result(l, op, 0, x);
}

static const mlir_type *function_type(lowering *l, const mlir_attr *name)
{
  const lower_function *f = lower_find_function(l, mlir_attr_text(name, ""));
  const mlir_attr *a = f ? mlir_attr_of(f->op, "function_type") : NULL;

  return a && a->kind == MLIR_TYPE && a->type->kind == MLIR_FUNCTION ? a->type : NULL;
}

/* The operands are those of all programs, one program after the other, and so are the results. Each program that
 * fills the infeed gives one array. */
static weft_status *check_programs(lowering *l, const mlir_op *op, const mlir_attr *programs, const mlir_attr *infeed)
{
  int operands = 0, results = 0;
  const mlir_type *f;

  for (int r = 0; r < programs->u.array.count; r++)
    for (int k = 0; k < programs->u.array.items[r]->u.array.count; k++) {
      /* lower_called_function reports this */
      if (!(f = function_type(l, programs->u.array.items[r]->u.array.items[k]))) return NULL;
      operands += f->count;
      results += f->result_count;
    }
  if (op->operand_count != operands || op->result_count != results)
    return WEFT_ERR(INVALID_ARGUMENT, "%d operands and %d results, the programs have %d and %d", op->operand_count,
                    op->result_count, operands, results);
  if (infeed && infeed->kind == MLIR_ARRAY && infeed->u.array.count == 0)
    return WEFT_ERR(INVALID_ARGUMENT, "an empty infeed");
  for (int i = 0; infeed && infeed->kind == MLIR_ARRAY && i < infeed->u.array.count; i++) {
    if (!(f = function_type(l, infeed->u.array.items[i]))) continue;
    if (f->result_count != 1 || f->elements[f->count]->kind != MLIR_TENSOR)
      return WEFT_ERR(INVALID_ARGUMENT, "infeed function %d does not give one tensor", i);
  }
  return NULL;
}

/* run_parallel programs=[[@f, @g], ...] infeed=[@q...]: a custom-call whose called computations are the programs, row
 * by row, then the infeed queues; backend_config says how many of each: {"replicas":2,"partitions":1,"infeeds":0}. */
static weft_status *run_parallel(lowering *l, const mlir_op *op)
{
  const mlir_attr *programs = mlir_attr_of(op, "programs"), *infeed = mlir_attr_of(op, "infeed");
  int rows = programs && programs->kind == MLIR_ARRAY ? programs->u.array.count : 0, columns = 0, n = 0;
  int feeds = infeed && infeed->kind == MLIR_ARRAY ? infeed->u.array.count : 0;
  hlo_computation **called;
  const hlo_shape *shape;
  hlo_instr **operands, *in;
  char config[96];
  int64_t replicas = l->module->replica_count, partitions = l->module->num_partitions;

  for (int r = 0; r < rows; r++) {
    const mlir_attr *row = programs->u.array.items[r];
    if (row->kind != MLIR_ARRAY || (r > 0 && row->u.array.count != columns))
      return WEFT_ERR(INVALID_ARGUMENT, "programs is no matrix of functions");
    columns = row->u.array.count;
  }
  if (rows == 0 || columns == 0) return WEFT_ERR(INVALID_ARGUMENT, "no programs");
  WEFT_TRY(check_programs(l, op, programs, infeed));
  called = WEFT_ARENA_ARRAY(&l->scratch, hlo_computation *, (size_t)rows * (size_t)columns + (size_t)feeds);
  WEFT_TRY_ALLOC(called);
  l->module->replica_count = rows; /* the devices that the programs run on */
  l->module->num_partitions = columns;
  for (int r = 0; r < rows; r++)
    for (int k = 0; k < columns; k++)
      WEFT_TRY(
        lower_called_function(l, mlir_attr_text(programs->u.array.items[r]->u.array.items[k], ""), &called[n++]));
  l->module->replica_count = replicas;
  l->module->num_partitions = partitions;
  for (int i = 0; i < feeds; i++)
    WEFT_TRY(lower_called_function(l, mlir_attr_text(infeed->u.array.items[i], ""), &called[n++]));
  WEFT_TRY(lower_operands(l, op, &operands));
  WEFT_TRY(declared_results(l, op, op->result_count, &shape));
  WEFT_TRY(side_effect_call(l, "interpreter.run_parallel", shape, op->operand_count, operands, &in));
  WEFT_TRY(hlo_set_called(in, n, called));
  snprintf(config, sizeof config, "{\"replicas\":%d,\"partitions\":%d,\"infeeds\":%d}", rows, columns, feeds);
  WEFT_TRY(set_backend_config(l, in, config));
  return lower_tuple_results(l, op, in);
}

weft_status *lower_interpreter(lowering *l, const mlir_op *op)
{
  hlo_instr **operands, *in;
  const hlo_shape *nothing;

  if (strcmp(op->name, "probe") == 0) return probe(l, op);
  if (strcmp(op->name, "run_parallel") == 0) return run_parallel(l, op);
  if (strcmp(op->name, "print") != 0)
    return WEFT_ERR(UNIMPLEMENTED, "operation \"interpreter.%s\" is not supported", op->name);
  WEFT_TRY(lower_operands(l, op, &operands));
  nothing = hlo_shape_tuple(l->arena, 0, NULL);
  WEFT_TRY_ALLOC(nothing);
  return side_effect_call(l, "interpreter.print", nothing, op->operand_count, operands, &in);
}

/* ---- discardable attributes -------------------------------------------------------------------------------------- */

weft_status *lower_discardable(lowering *l, int count, const mlir_named_attr *attrs, hlo_instr *instr)
{
  hlo_extra *extra;

  if (instr->op == HLO_GET_TUPLE_ELEMENT) instr = instr->operands[0];
  for (int i = 0; i < count; i++) {
    const mlir_attr *a = attrs[i].value;
    if (strncmp(attrs[i].name, "mhlo.", 5) != 0 && strncmp(attrs[i].name, "sdy.", 4) != 0) continue;
    if (strcmp(attrs[i].name, "mhlo.sharding") == 0 && a->kind == MLIR_STRING && a->u.text.s[0] == '{') {
      const hlo_sharding *sharding;
      WEFT_TRY(hlo_parse_sharding(l->arena, a->u.text.s, a->u.text.size, &sharding));
      WEFT_TRY(lower_new_extra(l, instr, &extra));
      extra->sharding = sharding;
    } else if (strcmp(attrs[i].name, "sdy.sharding") == 0 && instr->op == HLO_PARAMETER &&
               l->module->num_partitions > 1) {
      WEFT_TRY(lower_new_extra(l, instr, &extra));
      WEFT_TRY(lower_sharding(l, a, &extra->sharding));
    } else if (strcmp(attrs[i].name, "sdy.sharding") == 0 && instr->op == HLO_CUSTOM_CALL && a->kind == MLIR_ARRAY &&
               a->u.array.count > 0) { /* of a host callback: all its results are on one device */
      const hlo_sharding *one;
      WEFT_TRY(lower_sharding(l, a->u.array.items[0], &one));
      if (one->kind != HLO_SHARDING_NAMED || one->mesh->axis_count > 0 || one->mesh->device_ids.count != 1) continue;
      WEFT_TRY(lower_new_extra(l, instr, &extra));
      extra->sharding = one;
    } else if (strcmp(attrs[i].name, "sdy.sharding_rule") == 0 && l->module->num_partitions > 1) {
      WEFT_TRY(lower_sharding_rule(l, a, instr));
    } else if (strcmp(attrs[i].name, "mhlo.frontend_attributes") == 0 && a->kind == MLIR_DICT && a->u.dict.count > 0) {
      hlo_key_value *pairs = WEFT_ARENA_ARRAY(l->arena, hlo_key_value, a->u.dict.count);
      WEFT_TRY_ALLOC(pairs);
      for (int k = 0; k < a->u.dict.count; k++) {
        pairs[k].key = weft_arena_strdup(l->arena, a->u.dict.items[k].name);
        pairs[k].value = weft_arena_strdup(l->arena, mlir_attr_text(a->u.dict.items[k].value, ""));
        WEFT_TRY_ALLOC(pairs[k].key);
        WEFT_TRY_ALLOC(pairs[k].value);
      }
      WEFT_TRY(lower_frontend_attributes(l, instr, a->u.dict.count, pairs));
    }
  }
  return NULL;
}
