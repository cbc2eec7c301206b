/* stablehlo/constraints.c -- checks what StableHLO's specification demands and HLO's shape inference does not: types
 * of reducers, replica groups, pairs, layouts and aliases of custom-calls, ... A message ends with the operation and
 * the constraint that it is about: "(all_reduce C5)". Programs with unknown sizes are checked as far as their sizes
 * are known. */
#include <config.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "stablehlo/lower.h"

#define BROKEN(op, constraint, fmt, ...) \
  WEFT_ERR(INVALID_ARGUMENT, fmt " (%s %s)" __VA_OPT__(,) __VA_ARGS__, (op)->name, constraint)

static bool is_tensor(const mlir_type *t) { return t->kind == MLIR_TENSOR || t->kind == MLIR_UNRANKED; }

static weft_status *ints_of(lowering *l, const mlir_op *op, const char *name, hlo_ints *out)
{
  WEFT_TRY_NOTE(mlir_attr_ints(l->program, l->source, &l->scratch, mlir_attr_of(op, name), out), "attribute %s", name);
  return NULL;
}

/* ---- reducers ---------------------------------------------------------------------------------------------------- */

/* The kind of a type, within which an accumulator may be wider: f32 and f64, s8 and s32, ... */
static int kind_of(weft_dtype t) { return weft_dtype_is_complex(t) ? 3 : weft_dtype_is_float(t) ? 2 : 1; }

static bool is_promotable(const mlir_type *from, const mlir_type *to)
{
  if (from->quant || to->quant) return (from->quant != NULL) == (to->quant != NULL);
  if (kind_of(from->dtype) != kind_of(to->dtype)) return false;
  return kind_of(from->dtype) == 2 || weft_dtype_bits(from->dtype) <= weft_dtype_bits(to->dtype);
}

static bool same_type(const mlir_type *a, const mlir_type *b, bool any_float)
{
  if (!is_tensor(a) || !is_tensor(b)) return false;
  if (a->quant || b->quant) return (a->quant != NULL) == (b->quant != NULL);
  if (a->kind == MLIR_TENSOR && b->kind == MLIR_TENSOR && a->rank != b->rank) return false;
  return a->dtype == b->dtype || (any_float && kind_of(a->dtype) == 2 && kind_of(b->dtype) == 2);
}

/* Checks that region `region` accumulates `n` inputs from initial values of these types. Of the inputs only the
 * element types matter. */
static weft_status *reducer(const mlir_op *op, const char *c, int region, int n, const mlir_type *const *inputs,
                            const mlir_type *const *inits)
{
  const mlir_block *block =
    region < op->region_count && op->regions[region].block_count == 1 ? op->regions[region].first : NULL;
  const mlir_op *end = block ? block->last : NULL;

  if (!end) return NULL; /* said elsewhere */
  if (block->arg_count != 2 * n)
    return BROKEN(op, c, "the region takes %d arguments, expected %d", block->arg_count, 2 * n);
  if (end->operand_count != n) return BROKEN(op, c, "the region returns %d values, expected %d", end->operand_count, n);
  for (int i = 0; i < n; i++) {
    const mlir_type *sum = end->operands[i]->type, *first = block->args[i].type, *second = block->args[n + i].type;
    if (!is_tensor(sum)) return BROKEN(op, c, "result %d of the region is no tensor", i);
    if (!is_tensor(first) || !is_tensor(second)) return BROKEN(op, c, "argument %d of the region is no tensor", i);
    if (!same_type(sum, first, false))
      return BROKEN(op, c, "argument %d of the region is of another type than result %d", i, i);
    if (!same_type(sum, second, true))
      return BROKEN(op, c, "argument %d of the region is of another type than result %d", n + i, i);
    if (!is_tensor(inits[i]) || !is_tensor(inputs[i])) return BROKEN(op, c, "operand %d is no tensor", i);
    if (sum->kind == MLIR_TENSOR && sum->rank != 0)
      return BROKEN(op, c, "result %d of the region is of rank %d, expected 0", i, sum->rank);
    if (!is_promotable(inits[i], sum))
      return BROKEN(op, c, "%s of the initial value cannot become %s of result %d of the region",
                    weft_dtype_name(inits[i]->dtype), weft_dtype_name(sum->dtype), i);
    if (!is_promotable(inputs[i], second))
      return BROKEN(op, c, "%s of the input cannot become %s of argument %d of the region",
                    weft_dtype_name(inputs[i]->dtype), weft_dtype_name(second->dtype), n + i);
  }
  return NULL;
}

/* The inputs are the operands from `from` on, the initial values those from `init` on. */
static weft_status *reducer_of_operands(lowering *l, const mlir_op *op, const char *c, int region, int n, int from,
                                        int init)
{
  const mlir_type **types = WEFT_ARENA_ARRAY(&l->scratch, const mlir_type *, 2 * n);

  WEFT_TRY_ALLOC(types);
  if (from + n > op->operand_count || init + n > op->operand_count) return NULL;
  for (int i = 0; i < n; i++) {
    types[i] = op->operands[from + i]->type;
    types[n + i] = op->operands[init + i]->type;
  }
  return reducer(op, c, region, n, types, types + n);
}

static weft_status *check_reduce(lowering *l, const mlir_op *op)
{
  return reducer_of_operands(l, op, "C6", 0, op->operand_count / 2, 0, op->operand_count / 2);
}

/* padding is a list of pairs, in whichever form it is written. */
static weft_status *check_padding(const mlir_op *op, const char *c)
{
  const mlir_attr *a = mlir_attr_of(op, "padding");
  bool pairs = !a || a->kind != MLIR_DENSE || (a->type->rank == 2 && a->type->dims[1] == 2);

  for (int i = 0; a && a->kind == MLIR_ARRAY && i < a->u.array.count; i++)
    pairs &= a->u.array.items[i]->kind != MLIR_ARRAY || a->u.array.items[i]->u.array.count == 2;
  return pairs ? NULL : BROKEN(op, c, "padding is no list of pairs");
}

static weft_status *check_reduce_window(lowering *l, const mlir_op *op)
{
  WEFT_TRY(check_padding(op, "C12"));
  return reducer_of_operands(l, op, "C13", 0, op->operand_count / 2, 0, op->operand_count / 2);
}

static weft_status *check_select_and_scatter(lowering *l, const mlir_op *op)
{
  const mlir_block *select = op->region_count > 0 ? op->regions[0].first : NULL;

  WEFT_TRY(check_padding(op, "C8"));
  if (op->operand_count == 3 && select && select->last) {
    for (int i = 0; i < select->arg_count; i++)
      if (!is_tensor(select->args[i].type) ||
          (!select->args[i].type->quant && select->args[i].type->dtype != op->operands[0]->type->dtype))
        return BROKEN(op, "C9", "argument %d of the selecting region is not of the operand's type", i);
    if (select->last->operand_count != 1 || !is_tensor(select->last->operands[0]->type) ||
        select->last->operands[0]->type->dtype != WEFT_PRED)
      return BROKEN(op, "C9", "the selecting region does not return tensor<i1>");
  }
  return reducer_of_operands(l, op, "C10", 1, 1, 1, 2);
}

static weft_status *is_sorted(lowering *l, const mlir_op *op, const char *c, const char *name)
{
  hlo_ints v;

  WEFT_TRY(ints_of(l, op, name, &v));
  for (int i = 1; i < v.count; i++)
    if (v.v[i] <= v.v[i - 1])
      return BROKEN(op, c, "%s are not sorted or not unique: %" PRId64 " before %" PRId64, name, v.v[i - 1], v.v[i]);
  return NULL;
}

static weft_status *check_scatter(lowering *l, const mlir_op *op)
{
  int n = op->operand_count / 2;

  WEFT_TRY(is_sorted(l, op, "C7", "update_window_dims"));
  return reducer_of_operands(l, op, "C23", 0, n, n + 1, 0);
}

static weft_status *check_gather(lowering *l, const mlir_op *op)
{
  WEFT_TRY(is_sorted(l, op, "C4", "offset_dims"));
  WEFT_TRY(is_sorted(l, op, "C7", "collapsed_slice_dims"));
  return is_sorted(l, op, "C10", "operand_batching_dims");
}

/* ---- communication ----------------------------------------------------------------------------------------------- */

typedef struct group_rules {
  const char *unique, *complete, *rank, *size; /* constraints */
  bool same_size;
  int64_t group_size; /* 0: any */
} group_rules;

static weft_status *check_groups(lowering *l, const mlir_op *op, const group_rules *rules)
{
  const mlir_attr *a = mlir_attr_of(op, "replica_groups");
  hlo_ints ids;
  int64_t named = 0;
  char *seen;

  if (!a || a->kind != MLIR_DENSE) return NULL;
  if (a->type->rank != 2) return BROKEN(op, rules->rank, "replica_groups is of rank %d, expected 2", a->type->rank);
  WEFT_TRY(ints_of(l, op, "replica_groups", &ids));
  if (ids.count == 0 && mlir_attr_bool(mlir_attr_of(op, "use_global_device_ids"), false))
    return BROKEN(op, rules->complete, "use_global_device_ids without replica_groups");
  for (int i = 0; i < ids.count; i++) named += ids.v[i] != -1;
  if (rules->same_size && named < ids.count) return BROKEN(op, rules->complete, "id -1 in replica_groups");
  seen = WEFT_ARENA_ARRAY(&l->scratch, char, named + 1);
  WEFT_TRY_ALLOC(seen);
  for (int i = 0; i < ids.count; i++) {
    int64_t id = ids.v[i];
    if (id < 0 || id >= named) continue; /* then an id in [0, named) is missing */
    if (seen[id]) return BROKEN(op, rules->unique, "id %" PRId64 " is twice in replica_groups", id);
    seen[id] = 1;
  }
  for (int64_t id = 0; id < named; id++)
    if (!seen[id])
      return BROKEN(op, rules->complete, "id %" PRId64 " is not in replica_groups, which have %" PRId64 " ids", id,
                    named);
  if (rules->group_size && (a->type->dims[0] == 0 || a->type->dims[1] != rules->group_size))
    return BROKEN(op, rules->size, "groups of %" PRId64 ", expected %" PRId64, a->type->dims[1], rules->group_size);
  return NULL;
}

/* use_global_device_ids needs a channel id of at least `least`. */
static weft_status *check_channel(const mlir_op *op, const char *c, int64_t least)
{
  int64_t id = mlir_attr_int(mlir_attr_of(op, "channel_id"), 0);

  if (!mlir_attr_bool(mlir_attr_of(op, "use_global_device_ids"), false) || id >= least) return NULL;
  return BROKEN(op, c, "use_global_device_ids with channel %" PRId64, id);
}

static weft_status *check_all_gather(lowering *l, const mlir_op *op)
{
  WEFT_TRY(check_groups(l, op, &(group_rules){"C2", "C4", "I3", "", true, 0}));
  return check_channel(op, "C5", 0);
}

static weft_status *check_all_to_all(lowering *l, const mlir_op *op)
{
  return check_groups(l, op,
                      &(group_rules){"C5", "C7", "I5", "C8", true, mlir_attr_int(mlir_attr_of(op, "split_count"), 0)});
}

/* Requires one reducer for each operand. */
static weft_status *each_reduced(const mlir_op *op, const char *c, int count)
{
  for (int i = 0; i < count; i++) {
    const mlir_type *type = op->operands[i]->type;
    if (is_tensor(type)) WEFT_TRY(reducer(op, c, 0, 1, &type, &type));
  }
  return NULL;
}

static weft_status *check_all_reduce(lowering *l, const mlir_op *op)
{
  WEFT_TRY(check_groups(l, op, &(group_rules){"C1", "C3", "I3", "", false, 0}));
  WEFT_TRY(check_channel(op, "C4", 1));
  return each_reduced(op, "C5", op->operand_count);
}

static weft_status *check_reduce_scatter(lowering *l, const mlir_op *op)
{
  int64_t dim = mlir_attr_int(mlir_attr_of(op, "scatter_dimension"), -1);
  const mlir_type *type = op->operand_count ? op->operands[0]->type : NULL;

  WEFT_TRY(check_groups(l, op, &(group_rules){"C3", "C5", "I3", "", true, 0}));
  WEFT_TRY(check_channel(op, "C6", 1));
  if (type && type->kind == MLIR_TENSOR && dim >= 0 && dim < type->rank && type->dims[dim] == 0)
    return BROKEN(op, "C8", "scatter_dimension %" PRId64 " is of size 0", dim);
  return each_reduced(op, "C7", op->operand_count);
}

/* The last operand names a root for each of the other operands. */
static weft_status *check_roots(const mlir_op *op, const char *c)
{
  const mlir_type *roots = op->operand_count ? op->operands[op->operand_count - 1]->type : NULL;

  if (!mlir_attr_bool(mlir_attr_of(op, "has_dynamic_root"), false)) return NULL;
  if (op->operand_count < 2) return BROKEN(op, c, "has_dynamic_root without an operand that names the roots");
  if (roots->kind != MLIR_TENSOR || roots->rank != 1 || roots->dtype != WEFT_S32)
    return BROKEN(op, c, "the roots are no tensor<Nxi32>");
  if (roots->dims[0] != MLIR_DYNAMIC && roots->dims[0] != op->operand_count - 1)
    return BROKEN(op, c, "%" PRId64 " roots for %d operands", roots->dims[0], op->operand_count - 1);
  return NULL;
}

static weft_status *check_collective_reduce(lowering *l, const mlir_op *op)
{
  bool dynamic = mlir_attr_bool(mlir_attr_of(op, "has_dynamic_root"), false);

  WEFT_TRY(check_groups(l, op, &(group_rules){"C1", "C3", "I3", "", false, 0}));
  WEFT_TRY(check_channel(op, "C4", 1));
  WEFT_TRY(check_roots(op, "C7"));
  return each_reduced(op, "C5", op->operand_count - dynamic);
}

static weft_status *check_collective_broadcast(lowering *l, const mlir_op *op)
{
  (void)l;
  return check_roots(op, "C4");
}

static int by_value(const void *a, const void *b)
{
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

  return (x > y) - (x < y);
}

static weft_status *check_collective_permute(lowering *l, const mlir_op *op)
{
  static const char *const names[] = {"source", "target"}, *const constraints[] = {"C2", "C3"};
  const mlir_attr *a = mlir_attr_of(op, "source_target_pairs");
  hlo_ints pairs;
  int64_t *ids;

  if (!a || a->kind != MLIR_DENSE) return NULL;
  if (a->type->rank != 2) return BROKEN(op, "I2", "source_target_pairs is of rank %d, expected 2", a->type->rank);
  if (a->type->dims[1] != 2 && a->type->dims[0] > 0)
    return BROKEN(op, "C1", "source_target_pairs has rows of %" PRId64, a->type->dims[1]);
  WEFT_TRY(ints_of(l, op, "source_target_pairs", &pairs));
  ids = WEFT_ARENA_ARRAY(&l->scratch, int64_t, pairs.count / 2);
  WEFT_TRY_ALLOC(ids);
  for (int side = 0; side < 2; side++) {
    for (int i = 0; i < pairs.count / 2; i++) ids[i] = pairs.v[2 * i + side];
    qsort(ids, (size_t)pairs.count / 2, sizeof *ids, by_value);
    for (int i = 1; i < pairs.count / 2; i++)
      if (ids[i] == ids[i - 1])
        return BROKEN(op, constraints[side], "%s %" PRId64 " is in two pairs", names[side], ids[i]);
  }
  return NULL;
}

/* 1: between devices; 2: from device to host; 3: from host to device. */
static weft_status *check_transfer(const mlir_op *op, int64_t with_host)
{
  bool is_host = mlir_attr_bool(mlir_attr_of(op, "is_host_transfer"), false);
  int64_t type = mlir_attr_int(mlir_attr_of(op, "channel_type"), is_host ? with_host : 1),
          want = is_host ? with_host : 1;

  if (type != want) return BROKEN(op, "C1", "a channel of type %" PRId64 ", expected %" PRId64, type, want);
  return NULL;
}

/* All results except the last are tensors. */
static weft_status *tensors_first(const mlir_op *op, const char *c)
{
  for (int i = 0; i + 1 < op->result_count; i++)
    if (!is_tensor(op->results[i].type)) return BROKEN(op, c, "result %d is no tensor", i);
  return NULL;
}

static weft_status *check_send(lowering *l, const mlir_op *op)
{
  (void)l;
  return check_transfer(op, 2);
}

static weft_status *check_recv(lowering *l, const mlir_op *op)
{
  (void)l;
  WEFT_TRY(check_transfer(op, 3));
  return tensors_first(op, "C3");
}

static weft_status *check_infeed(lowering *l, const mlir_op *op)
{
  const mlir_attr *layout = mlir_attr_of(op, "layout");

  (void)l;
  WEFT_TRY(tensors_first(op, "C2"));
  if (!layout || layout->kind != MLIR_ARRAY || (op->kind->is_vhlo && layout->u.array.count == 0)) return NULL;
  if (layout->u.array.count != op->result_count - 1)
    return BROKEN(op, "I2", "%d layouts for %d results and a token", layout->u.array.count, op->result_count - 1);
  for (int i = 0; i < layout->u.array.count; i++) {
    const mlir_attr *one = layout->u.array.items[i];
    if (one->kind != MLIR_ARRAY) return BROKEN(op, "I2", "layout %d is no list", i);
    for (int k = 0; k < one->u.array.count; k++)
      if (one->u.array.items[k]->kind != MLIR_INT) return BROKEN(op, "I2", "layout %d is no list of numbers", i);
  }
  return NULL;
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

static weft_status *check_precision(const mlir_op *op, const char *c)
{
  const mlir_attr *a = mlir_attr_of(op, "precision_config");

  if (a && a->kind == MLIR_ARRAY && a->u.array.count > 2)
    return BROKEN(op, c, "%d precisions for two operands", a->u.array.count);
  return NULL;
}

/* The constraints of dot_general and convolution on quantized types, in the order
 * of the former's C14, C15, C17 to C20. */
static weft_status *check_quantized_product(const mlir_op *op, const char *const c[6])
{
  const mlir_type *x = op->operands[0]->type, *y = op->operands[1]->type, *z = op->results[0].type;

  if (!x->quant && !y->quant && !z->quant) return NULL;
  if (!y->quant || (x->quant != NULL) != (z->quant != NULL))
    return BROKEN(op, c[0], "the right operand is not quantized, or the left and not the result");
  for (int i = 0; i < y->quant->count; i++)
    if (c[1] && y->quant->zeros[i] != 0)
      return BROKEN(op, c[1], "zero point %" PRId64 " of the right operand", y->quant->zeros[i]);
  if (!x->quant) {
    if (y->quant->expressed != x->dtype || x->dtype != z->dtype)
      return BROKEN(op, c[5], "the right operand stands for another type");
    return NULL;
  }
  if (x->quant->storage != y->quant->storage) return BROKEN(op, c[2], "operands are stored as different types");
  if (x->quant->expressed != y->quant->expressed || y->quant->expressed != z->quant->expressed)
    return BROKEN(op, c[3], "operands and result stand for different types");
  if (y->quant->axis < 0 && z->quant->axis >= 0)
    return BROKEN(op, c[4], "the result is quantized per axis, the right operand is not");
  return NULL;
}

static weft_status *check_dot_general(lowering *l, const mlir_op *op)
{
  static const char *const quantized[] = {"C14", "C15", "C17", "C18", "C19", "C20"};
  static const char *const counts[] = {"lhs_component_count", "rhs_component_count", "num_primitive_operations"};
  static const char *const constraints[] = {"C22", "C23", "C24"};
  const mlir_attr *type = mlir_attr_of(op, "accumulation_type"), *precision = mlir_attr_of(op, "precision_config");

  WEFT_TRY(check_precision(op, "C11"));
  if (op->operand_count == 2 && op->result_count == 1) {
    const mlir_quant *q = op->operands[1]->type->quant;
    hlo_ints contracting;
    WEFT_TRY(check_quantized_product(op, quantized));
    WEFT_TRY(ints_of(l, op, "rhs_contracting_dimensions", &contracting));
    for (int i = 0; q && i < contracting.count; i++)
      if (q->axis >= 0 && contracting.v[i] == q->axis)
        return BROKEN(op, "C16", "the right operand is quantized along a contracting dimension");
  }
  if (!type || (type->kind == MLIR_TYPE && type->type->kind == MLIR_NONE)) return NULL;
  for (int i = 0; precision && precision->kind == MLIR_ARRAY && i < precision->u.array.count; i++)
    if (strcmp(mlir_attr_text(precision->u.array.items[i], "DEFAULT"), "DEFAULT") != 0)
      return BROKEN(op, "C21", "an algorithm and a precision that is not DEFAULT");
  for (int i = 0; i < 3; i++)
    if (mlir_attr_int(mlir_attr_of(op, counts[i]), 1) <= 0)
      return BROKEN(op, constraints[i], "%s is not positive", counts[i]);
  return NULL;
}

static weft_status *check_convolution(lowering *l, const mlir_op *op)
{
  static const char *const quantized[] = {"C28", NULL, "C31", "C32", "C33", "C34"};
  const mlir_type *x = op->operand_count > 1 ? op->operands[0]->type : NULL, *y = x ? op->operands[1]->type : NULL;

  (void)l;
  WEFT_TRY(check_precision(op, "C24"));
  if (y && op->result_count == 1) {
    const mlir_quant *kernel = y->quant, *result = op->results[0].type->quant;
    WEFT_TRY(check_quantized_product(op, quantized));
    if (kernel && kernel->axis >= 0 &&
        kernel->axis != mlir_attr_int(mlir_attr_of(op, "kernel_output_feature_dimension"), -1))
      return BROKEN(op, "C29", "the kernel is quantized along dimension %d", kernel->axis);
    if (result && result->axis >= 0 && result->axis != mlir_attr_int(mlir_attr_of(op, "output_feature_dimension"), -1))
      return BROKEN(op, "C30", "the result is quantized along dimension %d", result->axis);
  }
  WEFT_TRY(check_padding(op, "C4"));
  if (x && !x->quant && !y->quant && is_tensor(x) && is_tensor(y) && x->dtype != y->dtype)
    return BROKEN(op, "C27", "%s and %s", weft_dtype_name(x->dtype), weft_dtype_name(y->dtype));
  return NULL;
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

/* A name of the form ns.name: letters, digits and underscores between dots, behind the first dot '$' too. */
static bool is_composite_name(const char *s)
{
  int dots = 0;

  if (!((*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z'))) return false;
  for (; *s; s++) {
    bool word = (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || (*s >= '0' && *s <= '9') || *s == '_' ||
                (*s == '$' && dots);
    if (*s == '.' && (s[1] == '.' || s[1] == '\0')) return false;
    if (*s == '.') dots++;
    else if (!word) return false;
  }
  return dots > 0;
}

static weft_status *check_composite(lowering *l, const mlir_op *op)
{
  const char *name = mlir_attr_text(mlir_attr_of(op, "name"), NULL);
  const lower_function *f = lower_find_function(l, mlir_attr_text(mlir_attr_of(op, "decomposition"), ""));
  const mlir_attr *a = f ? mlir_attr_of(f->op, "function_type") : NULL;
  const mlir_type *type = a && a->kind == MLIR_TYPE && a->type->kind == MLIR_FUNCTION ? a->type : NULL;

  if (name && !is_composite_name(name)) return BROKEN(op, "C1", "\"%s\" is no name in a namespace", name);
  if (!type || l->inline_calls) return NULL;
  if (type->count != op->operand_count)
    return BROKEN(op, "C3", "%d operands, the decomposition takes %d", op->operand_count, type->count);
  if (type->result_count != op->result_count)
    return BROKEN(op, "C4", "%d results, the decomposition gives %d", op->result_count, type->result_count);
  for (int i = 0; i < op->operand_count; i++)
    if (!mlir_type_equal(type->elements[i], op->operands[i]->type))
      return BROKEN(op, "C3", "operand %d is of another type than the decomposition's", i);
  for (int i = 0; i < op->result_count; i++)
    if (!mlir_type_equal(type->elements[type->count + i], op->results[i].type))
      return BROKEN(op, "C4", "result %d is of another type than the decomposition's", i);
  return NULL;
}

static weft_status *check_layouts(lowering *l, const mlir_op *op, const char *what, int count,
                                  const mlir_type *const *types, const mlir_attr *layouts)
{
  hlo_ints order;

  if (layouts->u.array.count != count)
    return BROKEN(op, "C1", "%d layouts for %d %ss", layouts->u.array.count, count, what);
  for (int i = 0; i < count; i++) {
    WEFT_TRY(mlir_attr_ints(l->program, l->source, &l->scratch, layouts->u.array.items[i], &order));
    if (types[i]->kind == MLIR_TUPLE) return BROKEN(op, "C1", "%s %d is a tuple, which has no layout", what, i);
    if (types[i]->kind == MLIR_TOKEN && order.count > 0)
      return BROKEN(op, "C1", "%s %d is a token, which has no layout", what, i);
  }
  return NULL;
}

static const mlir_type *part_of(const mlir_type *t, hlo_ints path)
{
  for (int i = 0; t && i < path.count; i++)
    t = t->kind == MLIR_TUPLE && path.v[i] >= 0 && path.v[i] < t->count ? t->elements[path.v[i]] : NULL;
  return t;
}

static bool same_path(hlo_ints a, hlo_ints b)
{
  return a.count == b.count && (a.count == 0 || memcmp(a.v, b.v, (size_t)a.count * sizeof(*a.v)) == 0);
}

static int count_buffers(const mlir_type *t)
{
  int n = t->kind == MLIR_BUFFER;

  for (int i = 0; t->kind == MLIR_TUPLE && i < t->count; i++) n += count_buffers(t->elements[i]);
  return n;
}

/* Aliases are between parts of one type. Aliases of buffers use no part twice, and name all results that are
 * buffers. */
static weft_status *check_aliases(lowering *l, const mlir_op *op, const mlir_type *results, bool makes_buffer)
{
  const mlir_attr *a = mlir_attr_of(op, "output_operand_aliases");
  int n = a && a->kind == MLIR_ARRAY ? a->u.array.count : 0, buffers = 0;
  struct { int64_t operand; hlo_ints in, out; } *seen = weft_arena_alloc_array(&l->scratch, (size_t)n, sizeof *seen);

  WEFT_TRY_ALLOC(seen);
  for (int i = 0; i < n; i++) {
    const mlir_attr *d = a->u.array.items[i];
    int64_t operand = mlir_attr_int(mlir_dict_get(d, "operand_index"), -1);
    hlo_ints in, out;
    WEFT_TRY(mlir_attr_ints(l->program, l->source, &l->scratch, mlir_dict_get(d, "operand_tuple_indices"), &in));
    WEFT_TRY(mlir_attr_ints(l->program, l->source, &l->scratch, mlir_dict_get(d, "output_tuple_indices"), &out));
    if (operand < 0 || operand >= op->operand_count)
      return BROKEN(op, "C2", "an output aliases operand %" PRId64, operand);
    const mlir_type *from = part_of(op->operands[operand]->type, in), *to = part_of(results, out);
    if (!from || !to) return BROKEN(op, "C2", "alias %d names no part of an operand or a result", i);
    if (!mlir_type_equal(from, to)) return BROKEN(op, "C2", "alias %d is between values of different types", i);
    if (to->kind != MLIR_BUFFER) continue;
    for (int k = 0; k < buffers; k++)
      if (same_path(seen[k].out, out) || (seen[k].operand == operand && same_path(seen[k].in, in)))
        return BROKEN(op, "C2", "alias %d is of a buffer that another is of", i);
    seen[buffers].operand = operand;
    seen[buffers].in = in;
    seen[buffers++].out = out;
  }
  if (!makes_buffer && buffers < count_buffers(results))
    return BROKEN(op, "C2", "a buffer that is a result aliases no operand");
  return NULL;
}

/* The calls that turn arrays into buffers, buffers into arrays, or make buffers of nothing. */
static const struct { const char *target; mlir_type_kind operand, result; } buffer_calls[] = {
    {"CreateBuffer", MLIR_NONE, MLIR_BUFFER}, {"Pin", MLIR_TENSOR, MLIR_BUFFER}, {"Unpin", MLIR_BUFFER, MLIR_TENSOR}};

static weft_status *check_buffer_call(const mlir_op *op, const char *target, bool *out_makes_buffer)
{
  *out_makes_buffer = false;
  for (size_t i = 0; i < WEFT_COUNT(buffer_calls); i++) {
    if (strcmp(target, buffer_calls[i].target) != 0) continue;
    int operands = buffer_calls[i].operand != MLIR_NONE;
    if (op->operand_count != operands || op->result_count != 1)
      return BROKEN(op, "C3", "%s with %d operands and %d results", target, op->operand_count, op->result_count);
    const mlir_type *to = op->results[0].type;
    *out_makes_buffer = to->kind == MLIR_BUFFER;
    if (to->kind != buffer_calls[i].result)
      return BROKEN(op, "C3", "%s does not give a %s", target, *out_makes_buffer ? "tensor" : "memref");
    if (!operands) return NULL;
    mlir_type from = *op->operands[0]->type;
    if (from.kind != buffer_calls[i].operand)
      return BROKEN(op, "C3", "%s does not take a %s", target, *out_makes_buffer ? "tensor" : "memref");
    from.kind = to->kind;
    if (!mlir_type_equal(&from, to)) return BROKEN(op, "C3", "operand and result of %s are of different types", target);
  }
  return NULL;
}

static weft_status *check_custom_call(lowering *l, const mlir_op *op)
{
  const mlir_attr *in = mlir_attr_of(op, "operand_layouts"), *out = mlir_attr_of(op, "result_layouts");
  const mlir_attr *config = mlir_attr_of(op, "backend_config"), *version = mlir_attr_of(op, "api_version");
  const mlir_type **types = WEFT_ARENA_ARRAY(&l->scratch, const mlir_type *, op->operand_count + op->result_count);
  const mlir_type **results = types + op->operand_count;
  const char *target = mlir_attr_text(mlir_attr_of(op, "call_target_name"), "");
  mlir_type all = {.kind = MLIR_TUPLE, .count = op->result_count, .elements = results};
  bool typed = mlir_attr_int(version, 1) == 4 || strcmp(mlir_attr_text(version, ""), "API_VERSION_TYPED_FFI") == 0;
  bool makes_buffer, empty = (!in || in->kind != MLIR_ARRAY || in->u.array.count == 0) &&
                             (!out || out->kind != MLIR_ARRAY || out->u.array.count == 0);

  WEFT_TRY_ALLOC(types);
  for (int i = 0; i < op->operand_count; i++) types[i] = op->operands[i]->type;
  for (int i = 0; i < op->result_count; i++) results[i] = op->results[i].type;
  bool one = op->result_count == 1 && results[0]->kind == MLIR_TUPLE;
  int outputs = one ? results[0]->count : op->result_count;
  if (!op->kind->is_vhlo && ((in && !out && outputs > 0) || (out && !in && op->operand_count > 0)))
    return BROKEN(op, "C1", "layouts of operands or results alone");
  if (in && out && in->kind == MLIR_ARRAY && out->kind == MLIR_ARRAY && !(op->kind->is_vhlo && empty)) {
    WEFT_TRY(check_layouts(l, op, "operand", op->operand_count, types, in));
    WEFT_TRY(check_layouts(l, op, "result", outputs, one ? results[0]->elements : results, out));
  }
  WEFT_TRY(check_buffer_call(op, target, &makes_buffer));
  WEFT_TRY(check_aliases(l, op, op->result_count == 1 ? results[0] : &all, makes_buffer));
  if (!config || op->kind->is_vhlo) return NULL;
  if (typed && config->kind != MLIR_DICT) return BROKEN(op, "C4", "backend_config of a typed call is no dictionary");
  if (!typed && config->kind == MLIR_DICT)
    return BROKEN(op, "C4", "backend_config is a dictionary, the call is not typed");
  return NULL;
}

/* ---- the rest ---------------------------------------------------------------------------------------------------- */

static weft_status *check_indices(lowering *l, const mlir_op *op)
{
  bool updates = strcmp(op->name, "dynamic_update_slice") == 0;

  (void)l;
  for (int i = updates ? 3 : 2; i < op->operand_count; i++)
    if (op->operands[i]->type->dtype != op->operands[i - 1]->type->dtype)
      return BROKEN(op, updates ? "C5" : "C3", "start indices are of %s and %s",
                    weft_dtype_name(op->operands[i - 1]->type->dtype), weft_dtype_name(op->operands[i]->type->dtype));
  return NULL;
}

static weft_status *check_constant(lowering *l, const mlir_op *op)
{
  (void)l;
  if (op->result_count == 1 && mlir_type_is_dynamic(op->results[0].type))
    return BROKEN(op, "C1", "the result's shape is not static");
  return NULL;
}

static weft_status *check_rng(lowering *l, const mlir_op *op)
{
  const mlir_type *sizes = op->operand_count == 3 ? op->operands[2]->type : NULL;

  (void)l;
  if (sizes && sizes->kind == MLIR_TENSOR && sizes->rank != 1)
    return BROKEN(op, "I3", "the shape is of rank %d, expected 1", sizes->rank);
  return NULL;
}

/* The attributes of tolerances are allowed with TOLERANCE only. */
static weft_status *check_accuracy(lowering *l, const mlir_op *op)
{
  const mlir_attr *a = mlir_attr_of(op, "result_accuracy");
  const char *mode = mlir_attr_text(mlir_dict_get(a, "mode"), "DEFAULT");

  (void)l;
  if (!a || strcmp(mode, "TOLERANCE") == 0) return NULL;
  if (mlir_attr_double(mlir_dict_get(a, "atol"), 0) != 0 || mlir_attr_double(mlir_dict_get(a, "rtol"), 0) != 0 ||
      mlir_attr_int(mlir_dict_get(a, "ulps"), 0) != 0)
    return BROKEN(op, "I2", "result_accuracy of mode %s has tolerances", mode);
  return NULL;
}

static const char *const collectives_and_slices[] = {"all_gather", "all_reduce", "all_to_all", "collective_broadcast", "collective_permute",
                                                     "collective_reduce", "dynamic_slice", "dynamic_update_slice", "reduce_scatter", "slice"};

/* One operation that may run in the background, on the operands; it gives the one result. */
static weft_status *check_async_start(lowering *l, const mlir_op *op)
{
  const mlir_block *body = op->region_count == 1 ? op->regions[0].first : NULL;
  const mlir_op *first = body ? body->first : NULL, *end = body ? body->last : NULL;
  const mlir_type *future = op->result_count == 1 ? op->results[0].type : NULL;
  bool known = false;

  (void)l;
  if (!end || !future) return NULL; /* said elsewhere */
  if (first->next != end) return BROKEN(op, "C1", "the region has not one operation and a return");
  for (size_t i = 0; i < WEFT_COUNT(collectives_and_slices); i++)
    known |= strcmp(first->name, collectives_and_slices[i]) == 0;
  if (!known || first->dialect != SHLO_STABLEHLO) return BROKEN(op, "C1", "%s is no collective or slice", first->name);
  for (int i = 0; i < WEFT_MIN(body->arg_count, op->operand_count); i++)
    if (!mlir_type_equal(body->args[i].type, op->operands[i]->type))
      return BROKEN(op, "C2", "operand %d and the region's argument are of different types", i);
  if (end->operand_count != 1) return BROKEN(op, "C3", "the region returns %d values, expected 1", end->operand_count);
  if (future->kind != MLIR_FUTURE || future->count != 1 ||
      !mlir_type_equal(future->elements[0], end->operands[0]->type))
    return BROKEN(op, "C3", "the result is no future of what the region returns");
  return NULL;
}

/* ---- quantized types --------------------------------------------------------------------------------------------- */

static bool same_parameters(const mlir_quant *a, const mlir_quant *b)
{
  return a->count == b->count && memcmp(a->scales, b->scales, (size_t)a->count * sizeof(*a->scales)) == 0 &&
         memcmp(a->zeros, b->zeros, (size_t)a->count * sizeof(*a->zeros)) == 0;
}

static bool same_stored(const mlir_quant *a, const mlir_quant *b)
{
  return a->storage == b->storage && a->expressed == b->expressed && a->min == b->min && a->max == b->max;
}

/* All operands and results are quantized, or none is; their types agree except for scales and zero points. */
static weft_status *check_add(lowering *l, const mlir_op *op)
{
  const mlir_quant *sum = op->result_count == 1 ? op->results[0].type->quant : NULL;
  static const char *const axes[] = {"C6", "C7"};
  bool per_axis = false;

  (void)l;
  for (int i = 0; i < op->operand_count; i++)
    if ((op->operands[i]->type->quant != NULL) != (sum != NULL))
      return BROKEN(op, "C2", "operand %d or the result is quantized, the other is not", i);
  for (int i = 0; sum && i < WEFT_MIN(op->operand_count, 2); i++) {
    const mlir_quant *q = op->operands[i]->type->quant;
    if (q->storage != sum->storage) return BROKEN(op, "C3", "operand %d is stored as another type than the result", i);
    if (q->expressed != sum->expressed)
      return BROKEN(op, "C4", "operand %d stands for another type than the result", i);
    if (q->axis < 0) continue;
    if (sum->axis < 0) return BROKEN(op, "C5", "operand %d is quantized per axis, the result is not", i);
    if (q->axis != sum->axis)
      return BROKEN(op, axes[i], "operand %d is quantized along dimension %d, the result along %d", i, q->axis,
                    sum->axis);
    per_axis = true;
  }
  if (sum && sum->axis >= 0 && !per_axis) return BROKEN(op, "C5", "the result is quantized per axis, no operand is");
  return NULL;
}

/* The product of the first `n` dimensions; 0 if one of them is unknown. */
static int64_t product_before(const mlir_type *t, int n)
{
  int64_t product = 1;

  for (int i = 0; i < WEFT_MIN(n, t->rank); i++) product *= t->dims[i] == MLIR_DYNAMIC ? 0 : t->dims[i];
  return product;
}

/* An operation that moves a whole array keeps its quantization, except for the position of the quantized dimension. */
static weft_status *check_moved(lowering *l, const mlir_op *op)
{
  const mlir_type *x = op->operand_count ? op->operands[0]->type : NULL,
                  *y = op->result_count == 1 ? op->results[0].type : NULL;
  const mlir_quant *from = x ? x->quant : NULL, *to = y ? y->quant : NULL;
  bool broadcast = strstr(op->name, "broadcast") != NULL, transpose = strcmp(op->name, "transpose") == 0;
  hlo_ints map;

  if (!from && !to) return NULL;
  if (!from || !to || x->kind != MLIR_TENSOR || y->kind != MLIR_TENSOR || (from->axis < 0) != (to->axis < 0) ||
      !same_stored(from, to))
    return BROKEN(op, "C1", "operand and result are quantized in different ways");
  if (!(broadcast && from->axis >= 0) && !same_parameters(from, to))
    return BROKEN(op, "C1", "operand and result differ in scales or zero points");
  if (from->axis < 0) return NULL;
  if (from->axis >= x->rank || to->axis >= y->rank)
    return BROKEN(op, "C1", "the quantized dimension is not one of the array");
  if (!broadcast && !transpose) {
    int64_t before = product_before(x, from->axis), after = product_before(y, to->axis);
    bool known = x->dims[from->axis] != MLIR_DYNAMIC && y->dims[to->axis] != MLIR_DYNAMIC;
    if ((known && x->dims[from->axis] != y->dims[to->axis]) || (before > 0 && after > 0 && before != after))
      return BROKEN(op, "C3", "the quantized dimension does not stay as it is");
    return NULL;
  }
  WEFT_TRY(ints_of(l, op, transpose ? "permutation" : "broadcast_dimensions", &map));
  const mlir_quant *source = transpose ? to : from, *target = transpose ? from : to;
  if (source->axis >= map.count || map.v[source->axis] != target->axis)
    return BROKEN(op, transpose ? "C4" : "C6", "the quantized dimension is %d of the operand, %d of the result",
                  from->axis, to->axis);
  for (int i = 0; broadcast && from->count == 1 && i < to->count; i++)
    if (from->scales[0] != to->scales[i] || from->zeros[0] != to->zeros[i])
      return BROKEN(op, "C6", "scale or zero point %d of the result is not the operand's", i);
  return NULL;
}

/* HLO knows arrays with several dimensions of unknown size; the static operations of StableHLO allow one. */
static weft_status *check_reshape(lowering *l, const mlir_op *op)
{
  const mlir_type *t = op->result_count == 1 ? op->results[0].type : NULL;
  int bounded = 0;

  for (int i = 0; t && t->kind == MLIR_TENSOR && t->bounds && i < t->rank; i++) bounded += t->bounds[i] != MLIR_DYNAMIC;
  if (bounded > 1) return BROKEN(op, "C2", "%d bounded dimensions, expected at most 1", bounded);
  return check_moved(l, op);
}

static weft_status *check_uniform_quantize(lowering *l, const mlir_op *op)
{
  const mlir_type *x = op->operand_count ? op->operands[0]->type : NULL;
  const mlir_quant *to = op->result_count == 1 ? op->results[0].type->quant : NULL;

  (void)l;
  if (x && to && (x->quant ? x->quant->expressed : x->dtype) != to->expressed)
    return BROKEN(op, "C2", "the result stands for %s, the operand for %s", weft_dtype_name(to->expressed),
                  weft_dtype_name(x->quant ? x->quant->expressed : x->dtype));
  return NULL;
}

/* Only a few operations take types that are quantized per axis. */
weft_status *lower_check_per_axis(const mlir_op *op)
{
  static const char *const allowed[] = {
      "add", "bitcast_convert", "broadcast", "broadcast_in_dim", "constant", "convolution", "custom_call", "dot", "dot_general", "dynamic_broadcast_in_dim",
      "dynamic_conv", "dynamic_reshape", "get_dimension_size", "get_tuple_element", "infeed", "outfeed", "recv", "reshape", "send",
      "transpose", "tuple", "uniform_dequantize", "uniform_quantize"};

  for (size_t i = 0; i < WEFT_COUNT(allowed); i++)
    if (strcmp(op->name, allowed[i]) == 0) return NULL;
  return BROKEN(op, "I1", "an operand or result that is quantized per axis");
}

/* Sorted by name, for bsearch. */
static const lower_constraint table[] = {
    {"add", check_add},
    {"all_gather", check_all_gather},
    {"all_reduce", check_all_reduce},
    {"all_to_all", check_all_to_all},
    {"async_start", check_async_start},
    {"broadcast_in_dim", check_moved},
    {"cbrt", check_accuracy},
    {"collective_broadcast", check_collective_broadcast},
    {"collective_permute", check_collective_permute},
    {"collective_reduce", check_collective_reduce},
    {"composite", check_composite},
    {"constant", check_constant},
    {"convolution", check_convolution},
    {"cosine", check_accuracy},
    {"custom_call", check_custom_call},
    {"dot_general", check_dot_general},
    {"dynamic_broadcast_in_dim", check_moved},
    {"dynamic_conv", check_convolution},
    {"dynamic_reshape", check_moved},
    {"dynamic_slice", check_indices},
    {"dynamic_update_slice", check_indices},
    {"exponential", check_accuracy},
    {"exponential_minus_one", check_accuracy},
    {"gather", check_gather},
    {"infeed", check_infeed},
    {"log", check_accuracy},
    {"log_plus_one", check_accuracy},
    {"logistic", check_accuracy},
    {"recv", check_recv},
    {"reduce", check_reduce},
    {"reduce_scatter", check_reduce_scatter},
    {"reduce_window", check_reduce_window},
    {"reshape", check_reshape},
    {"rng", check_rng},
    {"rsqrt", check_accuracy},
    {"scatter", check_scatter},
    {"select_and_scatter", check_select_and_scatter},
    {"send", check_send},
    {"sine", check_accuracy},
    {"sqrt", check_accuracy},
    {"tan", check_accuracy},
    {"tanh", check_accuracy},
    {"transpose", check_moved},
    {"uniform_quantize", check_uniform_quantize},
};

static int by_name(const void *key, const void *entry) { return strcmp(key, ((const lower_constraint *)entry)->name); }

const lower_constraint *lower_find_constraint(const mlir_op *op)
{
  return op->dialect == SHLO_STABLEHLO ? bsearch(op->name, table, WEFT_COUNT(table), sizeof *table, by_name) : NULL;
}
