/* stablehlo/raise_build.c -- makes the types, attributes, operations and values of a StableHLO program (raise.h). */
#include <config.h>

#include "stablehlo/raise.h"

#include <stdlib.h>
#include <string.h>

#include "hlo/sharding.h"
#include "hlo/text.h"

_Noreturn void raise_give_up(raising *r, weft_status *st)
{
  r->st = st;
  longjmp(r->stop, 1);
}

void raise_check(raising *r, weft_status *st)
{
  if (st) raise_give_up(r, st);
}

/* ---- types ------------------------------------------------------------------------------------------------------- */

const mlir_type *raise_new_type(raising *r, mlir_type_kind kind, int count, const mlir_type *const *elements)
{
  mlir_type *t = MAKE(r, mlir_type, 1);

  *t = (mlir_type){.kind = kind, .count = count, .elements = elements};
  return t;
}

const mlir_type *raise_array_type(raising *r, weft_dtype type, int rank, const int64_t *dims)
{
  const mlir_type *t = NULL;

  raise_check(r, mlir_new_tensor(&r->program.arena, mlir_element_type(type), rank, dims, NULL, &t));
  return t;
}

const mlir_type *raise_type_of(raising *r, const hlo_shape *s)
{
  int64_t dims[HLO_MAX_RANK], bounds[HLO_MAX_RANK];
  const mlir_type *t = NULL, **elements;
  bool bounded = false;

  if (hlo_shape_is_token(s)) return raise_new_type(r, MLIR_TOKEN, 0, NULL);
  if (hlo_shape_is_tuple(s)) {
    elements = MAKE(r, const mlir_type *, s->rank);
    for (int i = 0; i < s->rank; i++) elements[i] = raise_type_of(r, s->elements[i]);
    return raise_new_type(r, MLIR_TUPLE, s->rank, elements);
  }
  if (!hlo_shape_is_array(s)) raise_give_up(r, WEFT_ERR(UNIMPLEMENTED, "values of type %s", weft_dtype_name(s->type)));
  for (int i = 0; i < s->rank; i++) {
    bool dynamic = s->dims[i] == HLO_UNBOUNDED || (s->dynamic && s->dynamic[i]);
    dims[i] = dynamic ? MLIR_DYNAMIC : s->dims[i];
    bounds[i] = dynamic && s->dims[i] != HLO_UNBOUNDED ? s->dims[i] : MLIR_DYNAMIC;
    bounded |= bounds[i] != MLIR_DYNAMIC;
  }
  raise_check(
    r, mlir_new_tensor(&r->program.arena, mlir_element_type(s->type), s->rank, dims, bounded ? bounds : NULL, &t));
  return t;
}

/* ---- attributes -------------------------------------------------------------------------------------------------- */

mlir_attr *raise_new_attr(raising *r, mlir_attr_kind kind)
{
  mlir_attr *a = MAKE(r, mlir_attr, 1);

  *a = (mlir_attr){.kind = kind};
  return a;
}

const mlir_attr *raise_number(raising *r, weft_dtype type, int64_t v)
{
  mlir_attr *a = raise_new_attr(r, MLIR_INT);

  a->type = mlir_element_type(type);
  a->u.i = v;
  return a;
}

const mlir_attr *raise_truth(raising *r, bool v)
{
  mlir_attr *a = raise_new_attr(r, MLIR_BOOL);

  a->u.i = v;
  return a;
}

const mlir_attr *raise_real(raising *r, weft_dtype type, double v)
{
  mlir_attr *a = raise_new_attr(r, MLIR_FLOAT);

  a->type = mlir_element_type(type);
  a->u.f = v;
  return a;
}

/* A string, symbol or word. */
const mlir_attr *raise_words(raising *r, mlir_attr_kind kind, const char *s)
{
  mlir_attr *a = raise_new_attr(r, kind);

  a->u.text.s = s;
  a->u.text.size = strlen(s);
  return a;
}

const mlir_attr *raise_of_type(raising *r, const mlir_type *type)
{
  mlir_attr *a = raise_new_attr(r, MLIR_TYPE);

  a->type = type;
  return a;
}

const mlir_attr *raise_list(raising *r, int count, const mlir_attr *const *items)
{
  mlir_attr *a = raise_new_attr(r, MLIR_ARRAY);

  a->u.array.count = count;
  a->u.array.items = items;
  return a;
}

const mlir_attr *raise_ints(raising *r, int count, const int64_t *v)
{
  const mlir_attr **items = MAKE(r, const mlir_attr *, count);

  for (int i = 0; i < count; i++) items[i] = raise_number(r, WEFT_S64, v[i]);
  mlir_attr *a = (mlir_attr *)(uintptr_t)raise_list(r, count, items);
  a->type = mlir_element_type(WEFT_S64);
  return a;
}

const mlir_attr *raise_dict(raising *r, int count, const mlir_named_attr *items)
{
  mlir_attr *a = raise_new_attr(r, MLIR_DICT);

  a->u.dict.count = count;
  a->u.dict.items = items;
  return a;
}

const mlir_attr *raise_literal_attr(raising *r, const hlo_literal *l)
{
  mlir_attr *a = raise_new_attr(r, MLIR_DENSE);

  a->type = raise_type_of(r, l->shape);
  a->form = l->elided ? MLIR_DENSE_RESOURCE : MLIR_DENSE_BLOB;
  a->splat = hlo_shape_elems(l->shape) > 1 && hlo_literal_is_splat(l);
  a->u.text.s = l->elided ? "__elided__" : l->data; /* MLIR's own word for it */
  a->u.text.size = l->elided ? strlen(a->u.text.s) : (size_t)hlo_shape_bytes(l->shape);
  return a;
}

/* dense<[[0, 1], ...]> : tensor<ROWSxCOLUMNSxi64> */
const mlir_attr *raise_matrix(raising *r, int64_t rows, int64_t columns, const int64_t *v)
{
  hlo_literal l = {.shape = hlo_shape_array(&r->program.arena, WEFT_S64, 2, (int64_t[]){rows, columns})};

  l.data = weft_arena_memdup(&r->program.arena, v, (size_t)(rows * columns) * sizeof *v);
  return raise_literal_attr(r, &l);
}

const mlir_attr *raise_sharding_attr(raising *r, const hlo_sharding *sharding)
{
  char *text = NULL;
  size_t size;
  FILE *f = open_memstream(&text, &size);
  weft_status *st = f ? hlo_print_sharding(sharding, f) : NULL;
  char *copy = NULL;

  if (f && fclose(f) == 0 && text && !st) {
    void (*leap)(weft_arena *) = r->program.arena.exhausted; /* not with `text` in hand */
    r->program.arena.exhausted = NULL;
    copy = weft_arena_strndup(&r->program.arena, text, size);
    r->program.arena.exhausted = leap;
  }
  free(text);
  if (!copy) raise_give_up(r, st);
  return raise_words(r, MLIR_STRING, copy);
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

enum { MOST_ATTRS = 24 };

void raise_set(raising *r, mlir_op *op, const char *name, const mlir_attr *value)
{
  mlir_named_attr *attrs = (mlir_named_attr *)(uintptr_t)op->attrs;

  if (!attrs) op->attrs = attrs = MAKE(r, mlir_named_attr, MOST_ATTRS);
  if (op->attr_count == MOST_ATTRS) raise_give_up(r, WEFT_ERR(INTERNAL, "%s: too many attributes", name));
  attrs[op->attr_count++] = (mlir_named_attr){name, value};
}

void raise_set_ints(raising *r, mlir_op *op, const char *name, hlo_ints v)
{
  raise_set(r, op, name, raise_ints(r, v.count, v.v));
}
void raise_set_int(raising *r, mlir_op *op, const char *name, int64_t v)
{
  raise_set(r, op, name, raise_number(r, WEFT_S64, v));
}

/* An operation at the end of the block.  `spelling` is a constant or lives as long as the program. */
mlir_op *raise_emit(raising *r, const char *spelling, int operand_count, mlir_value *const *operands, int result_count,
                    const mlir_type *const *types)
{
  mlir_op *op = MAKE(r, mlir_op, 1);

  if (r->left-- == 0) raise_give_up(r, WEFT_ERR(RESOURCE_EXHAUSTED, "computations called from too many places"));
  *op = (mlir_op){.operand_count = operand_count, .result_count = result_count, .location = r->location};
  /* an operation that StableHLO lacks; Weft's readers take it for one of StableHLO's */
  if (strncmp(spelling, "mhlo.", 5) == 0) {
    op->kind = MAKE(r, mlir_op_kind, 1);
    *op->kind = (mlir_op_kind){.name = spelling, .dialect = SHLO_OTHER};
  } else {
    raise_check(r, mlir_kind(&r->program, spelling, strlen(spelling), &op->kind));
  }
  op->name = op->kind->name;
  op->dialect = op->kind->dialect;
  op->operands = weft_arena_memdup(&r->program.arena, operands, (size_t)operand_count * sizeof *operands);
  op->results = MAKE(r, mlir_value, result_count);
  for (int i = 0; i < result_count; i++) op->results[i] = (mlir_value){.type = types[i]};
  if (r->block->last) r->block->last->next = op;
  else r->block->first = op;
  r->block->last = op;
  return op;
}

/* One operation of one result. */
mlir_value *raise_make(raising *r, const char *spelling, int count, mlir_value *const *operands, const mlir_type *type)
{
  return raise_emit(r, spelling, count, operands, 1, &type)->results;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

const raised *raise_single(raising *r, mlir_value *value)
{
  raised *x = MAKE(r, raised, 1);

  *x = (raised){.value = value};
  return x;
}

const raised *raise_tuple_of(raising *r, int count, const raised *const *elements)
{
  raised *x = MAKE(r, raised, 1);

  *x = (raised){.count = count, .elements = elements};
  return x;
}

const raised *raise_operand(raising *r, const hlo_instr *in, int i) { return r->at[in->operands[i]->id]; }

/* The value as one MLIR value: a tuple becomes a stablehlo.tuple. */
mlir_value *raise_value_of(raising *r, const raised *x)
{
  mlir_value **values;
  const mlir_type **types;

  if (x->value) return x->value;
  values = MAKE(r, mlir_value *, x->count);
  types = MAKE(r, const mlir_type *, x->count);
  for (int i = 0; i < x->count; i++) {
    values[i] = raise_value_of(r, x->elements[i]);
    types[i] = values[i]->type;
  }
  return raise_make(r, "stablehlo.tuple", x->count, values, raise_new_type(r, MLIR_TUPLE, x->count, types));
}

const raised *raise_element(raising *r, const raised *x, int64_t i)
{
  mlir_op *op;

  if (!x->value) return x->elements[i];
  op = raise_emit(r, "stablehlo.get_tuple_element", 1, (mlir_value *[]){x->value}, 1, &x->value->type->elements[i]);
  raise_set(r, op, "index", raise_number(r, WEFT_S32, i));
  return raise_single(r, op->results);
}

mlir_value *raise_array_operand(raising *r, const hlo_instr *in, int i)
{
  return raise_value_of(r, raise_operand(r, in, i));
}

void raise_push(raising *r, raised_values *list, mlir_value *v)
{
  if (list->count == list->capacity) {
    mlir_value **grown = MAKE(r, mlir_value *, 2 * list->capacity + 8);
    if (list->count) memcpy(grown, list->v, (size_t)list->count * sizeof *grown);
    list->v = grown;
    list->capacity = 2 * list->capacity + 8;
  }
  list->v[list->count++] = v;
}

/* The arrays and tokens of x, in order. */
void raise_push_leaves(raising *r, raised_values *list, const raised *x)
{
  int count = !x->value ? x->count : x->value->type->kind == MLIR_TUPLE ? x->value->type->count : -1;

  if (count < 0) raise_push(r, list, x->value);
  for (int i = 0; i < count; i++) raise_push_leaves(r, list, raise_element(r, x, i));
}

raised_values raise_operand_leaves(raising *r, const hlo_instr *in, int first)
{
  raised_values list = {0};

  for (int i = first; i < in->operand_count; i++) raise_push_leaves(r, &list, raise_operand(r, in, i));
  return list;
}

const mlir_type **raise_leaf_types(raising *r, const hlo_shape *s, int *out_count)
{
  int count = hlo_shape_leaf_count(s);
  const mlir_type **types = MAKE(r, const mlir_type *, count);

  for (int i = 0; i < count; i++) types[i] = raise_type_of(r, hlo_shape_leaf(s, i));
  *out_count = count;
  return types;
}

/* A value of shape s from its leaves. *at is the number of leaves that have been taken. */
const raised *raise_from_leaves(raising *r, const hlo_shape *s, mlir_value *leaves, int *at)
{
  const raised **elements;

  if (!hlo_shape_is_tuple(s)) return raise_single(r, &leaves[(*at)++]);
  elements = MAKE(r, const raised *, s->rank);
  for (int i = 0; i < s->rank; i++) elements[i] = raise_from_leaves(r, s->elements[i], leaves, at);
  return raise_tuple_of(r, s->rank, elements);
}

const raised *raise_results_of(raising *r, const mlir_op *op, const hlo_shape *s)
{
  return raise_from_leaves(r, s, op->results, &(int){0});
}

/* Sets the attributes that any instruction may have. */
void raise_set_extra(raising *r, mlir_op *op, const hlo_instr *in)
{
  static const char *const modes[] = {"DEFAULT", "HIGHEST", "TOLERANCE"};
  const hlo_extra *extra = in->extra;

  if (extra && extra->sharding) raise_set(r, op, "mhlo.sharding", raise_sharding_attr(r, extra->sharding));
  if (extra && extra->frontend_count > 0) {
    mlir_named_attr *items = MAKE(r, mlir_named_attr, extra->frontend_count);
    for (int i = 0; i < extra->frontend_count; i++)
      items[i] = (mlir_named_attr){extra->frontend_attributes[i].key,
                                   raise_words(r, MLIR_STRING, extra->frontend_attributes[i].value)};
    raise_set(r, op, "mhlo.frontend_attributes", raise_dict(r, extra->frontend_count, items));
  }
  if (extra && extra->accuracy) {
    const hlo_accuracy *a = extra->accuracy;
    mlir_named_attr *items = MAKE(r, mlir_named_attr, 4);
    items[0] = (mlir_named_attr){"atol", raise_real(r, WEFT_F64, a->atol)};
    items[1] = (mlir_named_attr){"rtol", raise_real(r, WEFT_F64, a->rtol)};
    items[2] = (mlir_named_attr){"ulps", raise_number(r, WEFT_S64, a->ulps)};
    items[3] = (mlir_named_attr){"mode", raise_words(r, MLIR_ENUM, modes[a->mode >= 0 && a->mode < 3 ? a->mode : 0])};
    raise_set(r, op, "result_accuracy", raise_dict(r, 4, items));
  }
}

/* Makes `in` one operation, whose operands and results are leaves. */
mlir_op *raise_as_op(raising *r, const hlo_instr *in, const char *spelling)
{
  raised_values operands = raise_operand_leaves(r, in, 0);
  int count;
  const mlir_type **types = raise_leaf_types(r, in->shape, &count);
  mlir_op *op = raise_emit(r, spelling, operands.count, operands.v, count, types);

  raise_set_extra(r, op, in);
  return op;
}

mlir_op *raise_give(raising *r, const hlo_instr *in, mlir_op *op)
{
  r->at[in->id] = raise_results_of(r, op, in->shape);
  return op;
}
