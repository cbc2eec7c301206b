/* stablehlo/raise.c -- HLO modules as StableHLO: the way back from what lower*.c does.
 *
 * The module becomes the operations of mlir.h, which print.c prints.  Tuples dissolve: the value of an instruction is one
 * MLIR value or a list of values (`raised`), and operations give and take leaves.  stablehlo.tuple appears only where a
 * tuple goes through a call.  What loops, branches and reducers call becomes their regions; what calls, fusions and
 * custom-calls call becomes private functions.  Pairs of start and done become the operation itself, at the start.
 * Copies and domains are their operands.  Layouts stay where they mean something: at the entry, at custom-calls, in
 * bitcasts, which become transpose, reshape and bitcast_convert. */
#include <config.h>

#include <inttypes.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hlo/sharding.h"
#include "hlo/text.h"
#include "stablehlo/mlir.h"
#include "stablehlo/stablehlo.h"

typedef struct raised raised;
struct raised {
  mlir_value *value;            /* NULL: a tuple of */
  int count;
  const raised *const *elements;
};

typedef struct raising {
  mlir_program program;         /* its arena holds everything */
  jmp_buf stop;
  weft_status *st;              /* why it stopped; NULL: no memory */
  const hlo_module *module;
  mlir_block *block;            /* where operations go */
  const raised **at;            /* by instruction id */
  size_t left;                  /* operations that may still be made: computations may be called from many places */
  int depth;                    /* of regions */
  bool aliases_by_argument;     /* else the module says them */
} raising;

/* Everything is in the arena, so what fails may leap out. */
static _Noreturn void give_up(raising *r, weft_status *st)
{
  r->st = st;
  longjmp(r->stop, 1);
}

static void without_memory(weft_arena *arena) { longjmp(WEFT_CONTAINER_OF(arena, raising, program.arena)->stop, 1); }

#define REFUSE(r, in, ...) give_up(r, weft_status_note(WEFT_ERR(UNIMPLEMENTED, __VA_ARGS__), __FILE__, __LINE__, \
                                                       "%s", hlo_describe(in, (char[160]){0}, 160)))
#define MAKE(r, type, count) WEFT_ARENA_ARRAY(&(r)->program.arena, type, count)
#define TEXT(r, ...) weft_arena_printf(&(r)->program.arena, __VA_ARGS__)

static void check(raising *r, weft_status *st)
{
  if (st) give_up(r, st);
}

/* ---- types -------------------------------------------------------------------------------------------------------- */

static const mlir_type *new_type(raising *r, mlir_type_kind kind, int count, const mlir_type *const *elements)
{
  mlir_type *t = MAKE(r, mlir_type, 1);

  *t = (mlir_type){.kind = kind, .count = count, .elements = elements};
  return t;
}

static const mlir_type *array_type(raising *r, weft_dtype type, int rank, const int64_t *dims)
{
  const mlir_type *t = NULL;

  check(r, mlir_new_tensor(&r->program.arena, mlir_element_type(type), rank, dims, NULL, &t));
  return t;
}

static const mlir_type *type_of(raising *r, const hlo_shape *s)
{
  int64_t dims[HLO_MAX_RANK], bounds[HLO_MAX_RANK];
  const mlir_type *t = NULL, **elements;
  bool bounded = false;

  if (hlo_shape_is_token(s)) return new_type(r, MLIR_TOKEN, 0, NULL);
  if (hlo_shape_is_tuple(s)) {
    elements = MAKE(r, const mlir_type *, s->rank);
    for (int i = 0; i < s->rank; i++) elements[i] = type_of(r, s->elements[i]);
    return new_type(r, MLIR_TUPLE, s->rank, elements);
  }
  if (!hlo_shape_is_array(s)) give_up(r, WEFT_ERR(UNIMPLEMENTED, "values of type %s", weft_dtype_name(s->type)));
  for (int i = 0; i < s->rank; i++) {
    bool dynamic = s->dims[i] == HLO_UNBOUNDED || (s->dynamic && s->dynamic[i]);
    dims[i] = dynamic ? MLIR_DYNAMIC : s->dims[i];
    bounds[i] = dynamic && s->dims[i] != HLO_UNBOUNDED ? s->dims[i] : MLIR_DYNAMIC;
    bounded |= bounds[i] != MLIR_DYNAMIC;
  }
  check(r, mlir_new_tensor(&r->program.arena, mlir_element_type(s->type), s->rank, dims, bounded ? bounds : NULL, &t));
  return t;
}

/* ---- attributes --------------------------------------------------------------------------------------------------- */

static mlir_attr *new_attr(raising *r, mlir_attr_kind kind)
{
  mlir_attr *a = MAKE(r, mlir_attr, 1);

  *a = (mlir_attr){.kind = kind};
  return a;
}

static const mlir_attr *number(raising *r, weft_dtype type, int64_t v)
{
  mlir_attr *a = new_attr(r, MLIR_INT);

  a->type = mlir_element_type(type);
  a->u.i = v;
  return a;
}

static const mlir_attr *truth(raising *r, bool v)
{
  mlir_attr *a = new_attr(r, MLIR_BOOL);

  a->u.i = v;
  return a;
}

static const mlir_attr *real(raising *r, weft_dtype type, double v)
{
  mlir_attr *a = new_attr(r, MLIR_FLOAT);

  a->type = mlir_element_type(type);
  a->u.f = v;
  return a;
}

/* A string, symbol or word. */
static const mlir_attr *words(raising *r, mlir_attr_kind kind, const char *s)
{
  mlir_attr *a = new_attr(r, kind);

  a->u.text.s = s;
  a->u.text.size = strlen(s);
  return a;
}

static const mlir_attr *of_type(raising *r, const mlir_type *type)
{
  mlir_attr *a = new_attr(r, MLIR_TYPE);

  a->type = type;
  return a;
}

static const mlir_attr *list(raising *r, int count, const mlir_attr *const *items)
{
  mlir_attr *a = new_attr(r, MLIR_ARRAY);

  a->u.array.count = count;
  a->u.array.items = items;
  return a;
}

static const mlir_attr *ints(raising *r, int count, const int64_t *v)
{
  const mlir_attr **items = MAKE(r, const mlir_attr *, count);

  for (int i = 0; i < count; i++) items[i] = number(r, WEFT_S64, v[i]);
  mlir_attr *a = (mlir_attr *)(uintptr_t)list(r, count, items);
  a->type = mlir_element_type(WEFT_S64);
  return a;
}

static const mlir_attr *dict(raising *r, int count, const mlir_named_attr *items)
{
  mlir_attr *a = new_attr(r, MLIR_DICT);

  a->u.dict.count = count;
  a->u.dict.items = items;
  return a;
}

static const mlir_attr *literal_attr(raising *r, const hlo_literal *l)
{
  mlir_attr *a = new_attr(r, MLIR_DENSE);

  a->type = type_of(r, l->shape);
  a->form = l->elided ? MLIR_DENSE_RESOURCE : MLIR_DENSE_BLOB;
  a->splat = hlo_shape_elems(l->shape) > 1 && hlo_literal_is_splat(l);
  a->u.text.s = l->elided ? "__elided__" : l->data; /* MLIR's own word for it */
  a->u.text.size = l->elided ? strlen(a->u.text.s) : (size_t)hlo_shape_bytes(l->shape);
  return a;
}

/* dense<[[0, 1], ...]> : tensor<ROWSxCOLUMNSxi64> */
static const mlir_attr *matrix(raising *r, int64_t rows, int64_t columns, const int64_t *v)
{
  hlo_literal l = {.shape = hlo_shape_array(&r->program.arena, WEFT_S64, 2, (int64_t[]){rows, columns})};

  l.data = weft_arena_memdup(&r->program.arena, v, (size_t)(rows * columns) * sizeof *v);
  return literal_attr(r, &l);
}

static const mlir_attr *sharding_attr(raising *r, const hlo_sharding *sharding)
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
  if (!copy) give_up(r, st);
  return words(r, MLIR_STRING, copy);
}

/* ---- operations --------------------------------------------------------------------------------------------------- */

enum { MOST_ATTRS = 24 };

static void set(raising *r, mlir_op *op, const char *name, const mlir_attr *value)
{
  mlir_named_attr *attrs = (mlir_named_attr *)(uintptr_t)op->attrs;

  if (!attrs) op->attrs = attrs = MAKE(r, mlir_named_attr, MOST_ATTRS);
  if (op->attr_count == MOST_ATTRS) give_up(r, WEFT_ERR(INTERNAL, "%s: too many attributes", name));
  attrs[op->attr_count++] = (mlir_named_attr){name, value};
}

static void set_ints(raising *r, mlir_op *op, const char *name, hlo_ints v) { set(r, op, name, ints(r, v.count, v.v)); }
static void set_int(raising *r, mlir_op *op, const char *name, int64_t v) { set(r, op, name, number(r, WEFT_S64, v)); }

/* An operation at the end of the block.  `spelling` is a constant or lives as long as the program. */
static mlir_op *emit(raising *r, const char *spelling, int operand_count, mlir_value *const *operands, int result_count,
                     const mlir_type *const *types)
{
  mlir_op *op = MAKE(r, mlir_op, 1);

  if (r->left-- == 0) give_up(r, WEFT_ERR(RESOURCE_EXHAUSTED, "computations called from too many places"));
  *op = (mlir_op){.operand_count = operand_count, .result_count = result_count};
  if (strncmp(spelling, "mhlo.", 5) == 0) { /* what StableHLO lacks; the readers take it for StableHLO's */
    op->kind = MAKE(r, mlir_op_kind, 1);
    *op->kind = (mlir_op_kind){.name = spelling, .dialect = SHLO_OTHER};
  } else {
    check(r, mlir_kind(&r->program, spelling, strlen(spelling), &op->kind));
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
static mlir_value *make(raising *r, const char *spelling, int count, mlir_value *const *operands, const mlir_type *type)
{
  return emit(r, spelling, count, operands, 1, &type)->results;
}

/* ---- values ------------------------------------------------------------------------------------------------------- */

static const raised *single(raising *r, mlir_value *value)
{
  raised *x = MAKE(r, raised, 1);

  *x = (raised){.value = value};
  return x;
}

static const raised *tuple_of(raising *r, int count, const raised *const *elements)
{
  raised *x = MAKE(r, raised, 1);

  *x = (raised){.count = count, .elements = elements};
  return x;
}

static const raised *operand(raising *r, const hlo_instr *in, int i) { return r->at[in->operands[i]->id]; }

/* As one value: a tuple is put together. */
static mlir_value *value_of(raising *r, const raised *x)
{
  mlir_value **values;
  const mlir_type **types;

  if (x->value) return x->value;
  values = MAKE(r, mlir_value *, x->count);
  types = MAKE(r, const mlir_type *, x->count);
  for (int i = 0; i < x->count; i++) {
    values[i] = value_of(r, x->elements[i]);
    types[i] = values[i]->type;
  }
  return make(r, "stablehlo.tuple", x->count, values, new_type(r, MLIR_TUPLE, x->count, types));
}

static const raised *element(raising *r, const raised *x, int64_t i)
{
  mlir_op *op;

  if (!x->value) return x->elements[i];
  op = emit(r, "stablehlo.get_tuple_element", 1, (mlir_value *[]){x->value}, 1, &x->value->type->elements[i]);
  set(r, op, "index", number(r, WEFT_S32, i));
  return single(r, op->results);
}

static mlir_value *array_operand(raising *r, const hlo_instr *in, int i) { return value_of(r, operand(r, in, i)); }

typedef struct values { mlir_value **v; int count, capacity; } values;

static void push(raising *r, values *list, mlir_value *v)
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
static void push_leaves(raising *r, values *list, const raised *x)
{
  int count = !x->value ? x->count : x->value->type->kind == MLIR_TUPLE ? x->value->type->count : -1;

  if (count < 0) push(r, list, x->value);
  for (int i = 0; i < count; i++) push_leaves(r, list, element(r, x, i));
}

static values operand_leaves(raising *r, const hlo_instr *in, int first)
{
  values list = {0};

  for (int i = first; i < in->operand_count; i++) push_leaves(r, &list, operand(r, in, i));
  return list;
}

static const mlir_type **leaf_types(raising *r, const hlo_shape *s, int *out_count)
{
  int count = hlo_shape_leaf_count(s);
  const mlir_type **types = MAKE(r, const mlir_type *, count);

  for (int i = 0; i < count; i++) types[i] = type_of(r, hlo_shape_leaf(s, i));
  *out_count = count;
  return types;
}

/* A value of shape s from its leaves, of which *at counts those that are taken. */
static const raised *from_leaves(raising *r, const hlo_shape *s, mlir_value *leaves, int *at)
{
  const raised **elements;

  if (!hlo_shape_is_tuple(s)) return single(r, &leaves[(*at)++]);
  elements = MAKE(r, const raised *, s->rank);
  for (int i = 0; i < s->rank; i++) elements[i] = from_leaves(r, s->elements[i], leaves, at);
  return tuple_of(r, s->rank, elements);
}

static const raised *results_of(raising *r, const mlir_op *op, const hlo_shape *s)
{
  return from_leaves(r, s, op->results, &(int){0});
}

/* What any instruction may carry. */
static void set_extra(raising *r, mlir_op *op, const hlo_instr *in)
{
  static const char *const modes[] = {"DEFAULT", "HIGHEST", "TOLERANCE"};
  const hlo_extra *extra = in->extra;

  if (extra && extra->sharding) set(r, op, "mhlo.sharding", sharding_attr(r, extra->sharding));
  if (extra && extra->frontend_count > 0) {
    mlir_named_attr *items = MAKE(r, mlir_named_attr, extra->frontend_count);
    for (int i = 0; i < extra->frontend_count; i++)
      items[i] = (mlir_named_attr){extra->frontend_attributes[i].key,
                                   words(r, MLIR_STRING, extra->frontend_attributes[i].value)};
    set(r, op, "mhlo.frontend_attributes", dict(r, extra->frontend_count, items));
  }
  if (extra && extra->accuracy) {
    const hlo_accuracy *a = extra->accuracy;
    mlir_named_attr *items = MAKE(r, mlir_named_attr, 4);
    items[0] = (mlir_named_attr){"atol", real(r, WEFT_F64, a->atol)};
    items[1] = (mlir_named_attr){"rtol", real(r, WEFT_F64, a->rtol)};
    items[2] = (mlir_named_attr){"ulps", number(r, WEFT_S64, a->ulps)};
    items[3] = (mlir_named_attr){"mode", words(r, MLIR_ENUM, modes[a->mode >= 0 && a->mode < 3 ? a->mode : 0])};
    set(r, op, "result_accuracy", dict(r, 4, items));
  }
}

/* `in` as one operation, from and to leaves. */
static mlir_op *as_op(raising *r, const hlo_instr *in, const char *spelling)
{
  values operands = operand_leaves(r, in, 0);
  int count;
  const mlir_type **types = leaf_types(r, in->shape, &count);
  mlir_op *op = emit(r, spelling, operands.count, operands.v, count, types);

  set_extra(r, op, in);
  return op;
}

static mlir_op *give(raising *r, const hlo_instr *in, mlir_op *op)
{
  r->at[in->id] = results_of(r, op, in->shape);
  return op;
}

/* ---- regions and functions ---------------------------------------------------------------------------------------- */

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
  values results = {0};
  int count = 0, at = 0;

  if (++r->depth > MLIR_MAX_DEPTH)
    give_up(r, WEFT_ERR(INVALID_ARGUMENT, "%s: computations nested deeper than %d", c->name, MLIR_MAX_DEPTH));
  for (int i = 0; !given && i < c->param_count; i++) count += hlo_shape_leaf_count(c->params[i]->shape);
  types = MAKE(r, const mlir_type *, count);
  for (int i = 0, n = 0; !given && i < c->param_count; i++)
    for (int k = 0; k < hlo_shape_leaf_count(c->params[i]->shape); k++)
      types[n++] = type_of(r, hlo_shape_leaf(c->params[i]->shape, k));
  r->block = new_block(r, &op->regions[index], count, types);
  for (int i = 0; i < c->param_count; i++)
    r->at[c->params[i]->id] = given ? given : from_leaves(r, c->params[i]->shape, r->block->args, &at);
  raise_instructions(r, c);
  push_leaves(r, &results, r->at[c->root->id]);
  emit(r, "stablehlo.return", results.count, results.v, 0, NULL);
  r->block = outer;
  r->depth--;
}

static void raise_called(raising *r, mlir_op *op, const hlo_instr *in)
{
  new_regions(r, op, in->called_count);
  for (int i = 0; i < in->called_count; i++) raise_region(r, op, i, in->called[i], NULL);
}

/* A function gives the elements of a flat tuple one by one, anything else as one value: as the lowering has it. */
static bool gives_elements(const hlo_shape *s)
{
  if (!hlo_shape_is_tuple(s) || s->rank == 1) return false;
  for (int i = 0; i < s->rank; i++)
    if (hlo_shape_is_tuple(s->elements[i])) return false;
  return true;
}

static const mlir_type **function_results(raising *r, const hlo_shape *s, int *out_count)
{
  const mlir_type **one;

  if (gives_elements(s)) return leaf_types(r, s, out_count);
  one = MAKE(r, const mlir_type *, 1);
  one[0] = type_of(r, s);
  *out_count = 1;
  return one;
}

static const char *function_name(raising *r, const hlo_computation *c)
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
static mlir_op *as_call(raising *r, const hlo_instr *in, const char *spelling)
{
  int count;
  const mlir_type **types = function_results(r, in->shape, &count);
  mlir_value **operands = MAKE(r, mlir_value *, in->operand_count);

  for (int i = 0; i < in->operand_count; i++) operands[i] = array_operand(r, in, i);
  return emit(r, spelling, in->operand_count, operands, count, types);
}

static void give_call(raising *r, const hlo_instr *in, mlir_op *op)
{
  r->at[in->id] = gives_elements(in->shape) ? results_of(r, op, in->shape) : single(r, op->results);
}

/* ---- instructions that keep their name ---------------------------------------------------------------------------- */

static void elementwise(raising *r, const hlo_instr *in)
{
  static const hlo_opcode chlo[] = {HLO_ACOS, HLO_ACOSH, HLO_ASIN, HLO_ASINH, HLO_ATANH, HLO_COSH, HLO_SINH, HLO_ERF, HLO_MULHI};
  bool is_chlo = false;

  for (size_t i = 0; i < WEFT_COUNT(chlo); i++) is_chlo |= chlo[i] == in->op;
  char *spelling = TEXT(r, "%s.%s", is_chlo ? "chlo" : "stablehlo", hlo_opcode_name(in->op));
  for (char *c = spelling; *c; c++)
    if (*c == '-') *c = '_';
  give(r, in, as_op(r, in, spelling));
}

static void compare(raising *r, const hlo_instr *in)
{
  static const char *const directions[] = {"EQ", "NE", "GE", "GT", "LE", "LT"};
  static const char *const types[] = {"NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"};
  mlir_op *op = give(r, in, as_op(r, in, "stablehlo.compare"));

  set(r, op, "comparison_direction", words(r, MLIR_ENUM, directions[in->u.compare.direction]));
  if (in->u.compare.type != HLO_COMPARE_DEFAULT)
    set(r, op, "compare_type", words(r, MLIR_ENUM, types[in->u.compare.type]));
}

static void reduce_precision(raising *r, const hlo_instr *in)
{
  mlir_op *op = give(r, in, as_op(r, in, "stablehlo.reduce_precision"));

  set(r, op, "exponent_bits", number(r, WEFT_S32, in->u.reduce_precision.exponent_bits));
  set(r, op, "mantissa_bits", number(r, WEFT_S32, in->u.reduce_precision.mantissa_bits));
}

/* `dimensions` under its StableHLO name: a list, or one number. */
static void with_dims(raising *r, const hlo_instr *in)
{
  static const struct { hlo_opcode op; const char *spelling, *name; bool one; } table[] = {
      {HLO_BROADCAST, "stablehlo.broadcast_in_dim", "broadcast_dimensions", false},
      {HLO_TRANSPOSE, "stablehlo.transpose", "permutation", false},
      {HLO_REVERSE, "stablehlo.reverse", "dimensions", false},
      {HLO_CONCATENATE, "stablehlo.concatenate", "dimension", true},
      {HLO_IOTA, "stablehlo.iota", "iota_dimension", true},
      {HLO_GET_DIMENSION_SIZE, "stablehlo.get_dimension_size", "dimension", true},
      {HLO_SET_DIMENSION_SIZE, "stablehlo.set_dimension_size", "dimension", true}};

  for (size_t i = 0; i < WEFT_COUNT(table); i++) {
    if (table[i].op != in->op) continue;
    mlir_op *op = give(r, in, as_op(r, in, table[i].spelling));
    if (table[i].one) set_int(r, op, table[i].name, in->dims.count ? in->dims.v[0] : 0);
    else set_ints(r, op, table[i].name, in->dims);
  }
}

static const raised *literal_value(raising *r, const hlo_literal *l)
{
  const raised **elements;
  mlir_op *op;

  if (hlo_shape_is_tuple(l->shape)) {
    elements = MAKE(r, const raised *, l->shape->rank);
    for (int i = 0; i < l->shape->rank; i++) elements[i] = literal_value(r, l->elements[i]);
    return tuple_of(r, l->shape->rank, elements);
  }
  const mlir_type *type = type_of(r, l->shape);
  if (hlo_shape_is_token(l->shape)) return single(r, make(r, "stablehlo.create_token", 0, NULL, type));
  op = emit(r, "stablehlo.constant", 0, NULL, 1, &type);
  set(r, op, "value", literal_attr(r, l));
  return single(r, op->results);
}

static void constant(raising *r, const hlo_instr *in)
{
  r->at[in->id] = literal_value(r, in->u.literal);
  if (r->at[in->id]->value && in->extra) set_extra(r, r->block->last, in);
}

static mlir_value *scalar(raising *r, weft_dtype type, int64_t v)
{
  hlo_literal *l = NULL;

  check(r, hlo_literal_scalar_s64(&r->program.arena, type, v, &l));
  return literal_value(r, l)->value;
}

static void pad(raising *r, const hlo_instr *in)
{
  static const char *const names[] = {"edge_padding_low", "edge_padding_high", "interior_padding"};
  mlir_op *op = give(r, in, as_op(r, in, "stablehlo.pad"));
  int64_t v[HLO_MAX_RANK];

  for (int k = 0; k < 3; k++) {
    for (int i = 0; i < in->u.pad.rank; i++)
      v[i] = k == 0 ? in->u.pad.dims[i].low : k == 1 ? in->u.pad.dims[i].high : in->u.pad.dims[i].interior;
    set(r, op, names[k], ints(r, in->u.pad.rank, v));
  }
}

static mlir_value *slice_of(raising *r, mlir_value *x, const int64_t *start, const int64_t *limit, const int64_t *stride)
{
  int64_t dims[HLO_MAX_RANK], ones[HLO_MAX_RANK];
  mlir_op *op;

  for (int i = 0; i < x->type->rank; i++) {
    ones[i] = 1;
    dims[i] = limit[i] - start[i];
  }
  op = emit(r, "stablehlo.slice", 1, &x, 1, (const mlir_type *[]){array_type(r, x->type->dtype, x->type->rank, dims)});
  set(r, op, "start_indices", ints(r, x->type->rank, start));
  set(r, op, "limit_indices", ints(r, x->type->rank, limit));
  set(r, op, "strides", ints(r, x->type->rank, stride ? stride : ones));
  return op->results;
}

static void slice(raising *r, const hlo_instr *in)
{
  mlir_op *op = give(r, in, as_op(r, in, "stablehlo.slice"));

  set_ints(r, op, "start_indices", in->u.slice.start);
  set_ints(r, op, "limit_indices", in->u.slice.limit);
  set_ints(r, op, "strides", in->u.slice.stride);
}

static mlir_value *reshaped(raising *r, mlir_value *x, int rank, const int64_t *dims)
{
  const mlir_type *to = array_type(r, x->type->dtype, rank, dims);

  return mlir_type_equal(to, x->type) ? x : make(r, "stablehlo.reshape", 1, &x, to);
}

/* dynamic-slice and dynamic-update-slice; old ones have one vector of indices. */
static void dynamic_slice(raising *r, const hlo_instr *in)
{
  int fixed = in->op == HLO_DYNAMIC_SLICE ? 1 : 2;
  values operands = operand_leaves(r, in, 0);
  const mlir_type *type = type_of(r, in->shape);
  mlir_op *op;

  if (operands.count == fixed + 1 && operands.v[fixed]->type->rank == 1) {
    mlir_value *indices = operands.v[fixed];
    operands.count = fixed;
    for (int64_t i = 0; i < indices->type->dims[0]; i++)
      push(r, &operands, reshaped(r, slice_of(r, indices, &i, &(int64_t){i + 1}, NULL), 0, NULL));
  }
  op = emit(r, fixed == 1 ? "stablehlo.dynamic_slice" : "stablehlo.dynamic_update_slice", operands.count, operands.v, 1, &type);
  set_extra(r, op, in);
  if (fixed == 1) set_ints(r, op, "slice_sizes", in->u.slice_sizes);
  give(r, in, op);
}

static void gather(raising *r, const hlo_instr *in)
{
  const hlo_gather_attrs *g = in->u.gather;
  mlir_op *op = give(r, in, as_op(r, in, "stablehlo.gather"));

  set_ints(r, op, "offset_dims", g->offset_dims);
  set_ints(r, op, "collapsed_slice_dims", g->collapsed_slice_dims);
  set_ints(r, op, "operand_batching_dims", g->operand_batching_dims);
  set_ints(r, op, "start_indices_batching_dims", g->start_indices_batching_dims);
  set_ints(r, op, "start_index_map", g->start_index_map);
  set_int(r, op, "index_vector_dim", g->index_vector_dim);
  set_ints(r, op, "slice_sizes", g->slice_sizes);
  set(r, op, "indices_are_sorted", truth(r, g->indices_are_sorted));
}

static void scatter(raising *r, const hlo_instr *in)
{
  const hlo_scatter_attrs *s = in->u.scatter;
  mlir_op *op = give(r, in, as_op(r, in, "stablehlo.scatter"));

  set_ints(r, op, "update_window_dims", s->update_window_dims);
  set_ints(r, op, "inserted_window_dims", s->inserted_window_dims);
  set_ints(r, op, "input_batching_dims", s->input_batching_dims);
  set_ints(r, op, "scatter_indices_batching_dims", s->scatter_indices_batching_dims);
  set_ints(r, op, "scatter_dims_to_operand_dims", s->scatter_dims_to_operand_dims);
  set_int(r, op, "index_vector_dim", s->index_vector_dim);
  set(r, op, "indices_are_sorted", truth(r, s->indices_are_sorted));
  set(r, op, "unique_indices", truth(r, s->unique_indices));
  raise_called(r, op, in);
}

/* ---- reductions and windows --------------------------------------------------------------------------------------- */

/* The parts of a window, under the names that this operation has for them; a name that is NULL: it has no such part. */
static void set_window(raising *r, mlir_op *op, const hlo_window *w, const char *sizes, const char *base, const char *window)
{
  const struct { const char *name; size_t offset; } parts[] = {
      {sizes, offsetof(hlo_window_dim, size)}, {"window_strides", offsetof(hlo_window_dim, stride)},
      {base, offsetof(hlo_window_dim, base_dilation)}, {window, offsetof(hlo_window_dim, window_dilation)}};
  int64_t v[HLO_MAX_RANK], padding[2 * HLO_MAX_RANK];

  for (size_t p = 0; p < WEFT_COUNT(parts); p++) {
    for (int i = 0; i < w->rank; i++) v[i] = *(const int64_t *)((const char *)&w->dims[i] + parts[p].offset);
    if (parts[p].name) set(r, op, parts[p].name, ints(r, w->rank, v));
  }
  for (int i = 0; i < w->rank; i++) {
    padding[2 * i] = w->dims[i].pad_low;
    padding[2 * i + 1] = w->dims[i].pad_high;
  }
  set(r, op, "padding", matrix(r, w->rank, 2, padding));
}

static void reduce(raising *r, const hlo_instr *in)
{
  mlir_op *op = give(r, in, as_op(r, in, "stablehlo.reduce"));

  set_ints(r, op, "dimensions", in->dims);
  raise_called(r, op, in);
}

static void reduce_window(raising *r, const hlo_instr *in)
{
  mlir_op *op = give(r, in, as_op(r, in, "stablehlo.reduce_window"));

  set_window(r, op, in->u.window, "window_dimensions", "base_dilations", "window_dilations");
  raise_called(r, op, in);
}

static void select_and_scatter(raising *r, const hlo_instr *in)
{
  mlir_op *op = give(r, in, as_op(r, in, "stablehlo.select_and_scatter"));

  set_window(r, op, in->u.window, "window_dimensions", NULL, NULL);
  raise_called(r, op, in);
}

static void map(raising *r, const hlo_instr *in)
{
  mlir_op *op = give(r, in, as_op(r, in, "stablehlo.map"));
  int64_t all[HLO_MAX_RANK];

  for (int i = 0; i < in->shape->rank; i++) all[i] = i;
  set(r, op, "dimensions", ints(r, in->shape->rank, all));
  raise_called(r, op, in);
}

static void sort(raising *r, const hlo_instr *in)
{
  mlir_op *op = give(r, in, as_op(r, in, "stablehlo.sort"));

  set_int(r, op, "dimension", in->dims.count ? in->dims.v[0] : 0);
  set(r, op, "is_stable", truth(r, in->u.is_stable));
  raise_called(r, op, in);
}

static void scan(raising *r, const hlo_instr *in)
{
  int64_t carries = in->u.scan.num_carries;
  mlir_op *op = give(r, in, as_op(r, in, "chlo.scan"));
  static const char *const segments[] = {"operandSegmentSizes", "resultSegmentSizes"};
  int counts[2] = {op->operand_count, op->result_count};

  set_int(r, op, "dimension", in->dims.count ? in->dims.v[0] : 0);
  set(r, op, "is_reverse", truth(r, in->u.scan.is_reverse));
  if (in->u.scan.is_associative) set(r, op, "is_associative", truth(r, in->u.scan.is_associative == 1));
  for (int i = 0; i < 2; i++) {
    const mlir_attr *a = ints(r, 2, (int64_t[]){counts[i] - carries, carries});
    ((mlir_attr *)(uintptr_t)a)->type = mlir_element_type(WEFT_S32);
    set(r, op, segments[i], a);
  }
  raise_called(r, op, in);
}

static void top_k(raising *r, const hlo_instr *in)
{
  bool largest = in->u.topk.largest;
  mlir_op *op = give(r, in, as_op(r, in, largest ? "chlo.top_k" : "mhlo.topk"));

  set_int(r, op, "k", in->u.topk.k);
  if (!largest) set(r, op, "largest", truth(r, false));
}

/* ---- products ----------------------------------------------------------------------------------------------------- */

static void set_precision(raising *r, mlir_op *op, int count, const hlo_precision *precision)
{
  static const char *const names[] = {"DEFAULT", "HIGH", "HIGHEST", "PACKED_NIBBLE"};
  const mlir_attr **items = MAKE(r, const mlir_attr *, count);

  for (int i = 0; i < count; i++) items[i] = words(r, MLIR_ENUM, names[precision[i]]);
  if (count) set(r, op, "precision_config", list(r, count, items));
}

static void set_algorithm(raising *r, mlir_op *op, hlo_dot_algorithm algorithm)
{
  static const struct { weft_dtype parts, sum; const char *other; int operations; bool imprecise; } table[] = {
      [HLO_ALG_ANY_F8_ANY_F8_F32] = {WEFT_F8E5M2, WEFT_F32, NULL, 1, false},
      [HLO_ALG_ANY_F8_ANY_F8_F32_FAST_ACCUM] = {WEFT_F8E5M2, WEFT_F32, NULL, 1, true},
      [HLO_ALG_F16_F16_F16] = {WEFT_F16, WEFT_F16, NULL, 1, false},
      [HLO_ALG_F16_F16_F32] = {WEFT_F16, WEFT_F32, NULL, 1, false},
      [HLO_ALG_BF16_BF16_BF16] = {WEFT_BF16, WEFT_BF16, NULL, 1, false},
      [HLO_ALG_BF16_BF16_F32] = {WEFT_BF16, WEFT_F32, NULL, 1, false},
      [HLO_ALG_BF16_BF16_F32_X3] = {WEFT_BF16, WEFT_F32, NULL, 3, false},
      [HLO_ALG_BF16_BF16_F32_X6] = {WEFT_BF16, WEFT_F32, NULL, 6, false},
      [HLO_ALG_BF16_BF16_F32_X9] = {WEFT_BF16, WEFT_F32, NULL, 9, false},
      [HLO_ALG_TF32_TF32_F32] = {WEFT_F32, WEFT_F32, "tf32", 1, false},
      [HLO_ALG_TF32_TF32_F32_X3] = {WEFT_F32, WEFT_F32, "tf32", 3, false},
      [HLO_ALG_F32_F32_F32] = {WEFT_F32, WEFT_F32, NULL, 1, false},
      [HLO_ALG_F64_F64_F64] = {WEFT_F64, WEFT_F64, NULL, 1, false}};
  static const mlir_type tf32 = {.kind = MLIR_OTHER, .text = "tf32"};
  const mlir_type *part;

  if (algorithm == HLO_ALG_UNSET || (size_t)algorithm >= WEFT_COUNT(table)) return;
  part = table[algorithm].other ? &tf32 : mlir_element_type(table[algorithm].parts);
  set(r, op, "lhs_precision_type", of_type(r, part));
  set(r, op, "rhs_precision_type", of_type(r, part));
  set(r, op, "accumulation_type", of_type(r, mlir_element_type(table[algorithm].sum)));
  set_int(r, op, "lhs_component_count", 1);
  set_int(r, op, "rhs_component_count", 1);
  set_int(r, op, "num_primitive_operations", table[algorithm].operations);
  set(r, op, "allow_imprecise_accumulation", truth(r, table[algorithm].imprecise));
}

static void set_dot(raising *r, mlir_op *op, const hlo_dot_attrs *d)
{
  set_ints(r, op, "lhs_batching_dimensions", d->lhs_batch);
  set_ints(r, op, "rhs_batching_dimensions", d->rhs_batch);
  set_ints(r, op, "lhs_contracting_dimensions", d->lhs_contracting);
  set_ints(r, op, "rhs_contracting_dimensions", d->rhs_contracting);
  if (d->algorithm == HLO_ALG_UNSET) set_precision(r, op, WEFT_MIN(d->precision_count, 2), d->precision); /* one or the other */
}

static void dot(raising *r, const hlo_instr *in)
{
  if (in->operand_count != 2 || in->u.dot->sparsity) REFUSE(r, in, "a sparse dot has no StableHLO");
  mlir_op *op = give(r, in, as_op(r, in, "stablehlo.dot_general"));
  set_dot(r, op, in->u.dot);
  set_algorithm(r, op, in->u.dot->algorithm);
}

static void ragged_dot(raising *r, const hlo_instr *in)
{
  mlir_op *op = give(r, in, as_op(r, in, "chlo.ragged_dot"));

  set_dot(r, op, in->u.dot);
  set_ints(r, op, "lhs_ragged_dimensions", in->u.dot->lhs_ragged);
  set_ints(r, op, "rhs_group_dimensions", in->u.dot->rhs_group);
}

static mlir_value *converted(raising *r, mlir_value *x, weft_dtype type)
{
  if (x->type->dtype == type) return x;
  return make(r, "stablehlo.convert", 1, &x, array_type(r, type, x->type->rank, x->type->dims));
}

static mlir_value *broadcast_to(raising *r, mlir_value *x, int rank, const int64_t *dims, const int64_t *map)
{
  mlir_op *op = emit(r, "stablehlo.broadcast_in_dim", 1, &x, 1,
                     (const mlir_type *[]){array_type(r, x->type->dtype, rank, dims)});

  set(r, op, "broadcast_dimensions", ints(r, x->type->rank, map));
  return op->results;
}

/* A scale for each block of x, as an array of x's sizes. */
static mlir_value *repeated(raising *r, const hlo_instr *in, mlir_value *scale, const mlir_type *x)
{
  int64_t dims[2 * HLO_MAX_RANK], map[HLO_MAX_RANK];

  if (scale->type->rank == 0) return broadcast_to(r, scale, x->rank, x->dims, NULL);
  if (scale->type->rank != x->rank || 2 * x->rank > HLO_MAX_RANK) REFUSE(r, in, "scales of another rank");
  for (int d = 0; d < x->rank; d++) {
    int64_t blocks = scale->type->dims[d];
    if (blocks < 1 || x->dims[d] % blocks) REFUSE(r, in, "scales that do not divide dimension %d", d);
    map[d] = 2 * d;
    dims[2 * d] = blocks;
    dims[2 * d + 1] = x->dims[d] / blocks;
  }
  return reshaped(r, broadcast_to(r, scale, 2 * x->rank, dims, map), x->rank, x->dims);
}

/* Operands times their scales, in f32 or wider. */
static void scaled_dot(raising *r, const hlo_instr *in)
{
  weft_dtype type = in->shape->type, wide = weft_dtype_bits(type) < 32 ? WEFT_F32 : type;
  mlir_value *x[2];
  const mlir_type *product;
  mlir_op *op;

  for (int i = 0; i < 2; i++) {
    x[i] = converted(r, array_operand(r, in, i), wide);
    if (i + 2 >= in->operand_count) continue;
    mlir_value *scale = repeated(r, in, converted(r, array_operand(r, in, i + 2), wide), x[i]->type);
    x[i] = make(r, "stablehlo.multiply", 2, (mlir_value *[]){x[i], scale}, x[i]->type);
  }
  product = array_type(r, wide, in->shape->rank, in->shape->dims);
  op = emit(r, "stablehlo.dot_general", 2, x, 1, &product);
  set_dot(r, op, in->u.dot);
  r->at[in->id] = single(r, converted(r, op->results, type));
}

static void convolution(raising *r, const hlo_instr *in)
{
  const hlo_conv_attrs *c = in->u.conv;
  const mlir_type *type = type_of(r, in->shape);
  weft_dtype common = in->operands[0]->shape->type, other = in->operands[1]->shape->type;
  mlir_value *x[2];
  mlir_op *op;
  bool reversed = false;

  if (c->sparsity) REFUSE(r, in, "a sparse convolution has no StableHLO");
  if (weft_dtype_bits(other) > weft_dtype_bits(common)) common = other; /* HLO takes operands of two types */
  for (int i = 0; i < 2; i++) x[i] = converted(r, array_operand(r, in, i), common);
  op = emit(r, "stablehlo.convolution", 2, x, 1, &type);
  set_extra(r, op, in);
  set_window(r, op, &c->window, NULL, "lhs_dilation", "rhs_dilation");
  const mlir_attr **flags = MAKE(r, const mlir_attr *, c->window.rank);
  for (int i = 0; i < c->window.rank; i++) {
    flags[i] = truth(r, c->window.dims[i].reversal);
    reversed |= c->window.dims[i].reversal;
  }
  if (reversed) set(r, op, "window_reversal", list(r, c->window.rank, flags));
  const struct { const char *name; int64_t v; } numbers[] = {
      {"input_batch_dimension", c->lhs_batch}, {"input_feature_dimension", c->lhs_feature},
      {"kernel_input_feature_dimension", c->rhs_in_feature}, {"kernel_output_feature_dimension", c->rhs_out_feature},
      {"output_batch_dimension", c->out_batch}, {"output_feature_dimension", c->out_feature},
      {"feature_group_count", c->feature_group_count}, {"batch_group_count", c->batch_group_count}};
  for (size_t i = 0; i < WEFT_COUNT(numbers); i++) set_int(r, op, numbers[i].name, numbers[i].v);
  set_ints(r, op, "input_spatial_dimensions", c->lhs_spatial);
  set_ints(r, op, "kernel_spatial_dimensions", c->rhs_spatial);
  set_ints(r, op, "output_spatial_dimensions", c->out_spatial);
  set_precision(r, op, WEFT_MIN(c->precision_count, 2), c->precision);
  give(r, in, op);
}

/* ---- linear algebra, statistics, random numbers ------------------------------------------------------------------- */

static void fft(raising *r, const hlo_instr *in)
{
  static const char *const types[] = {"FFT", "IFFT", "RFFT", "IRFFT"};
  mlir_op *op = give(r, in, as_op(r, in, "stablehlo.fft"));

  set(r, op, "fft_type", words(r, MLIR_ENUM, types[in->u.fft_type]));
  set_ints(r, op, "fft_length", in->dims);
}

static void cholesky(raising *r, const hlo_instr *in)
{
  set(r, give(r, in, as_op(r, in, "stablehlo.cholesky")), "lower", truth(r, in->u.lower));
}

static void triangular_solve(raising *r, const hlo_instr *in)
{
  static const char *const names[] = {"NO_TRANSPOSE", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"};
  mlir_op *op = give(r, in, as_op(r, in, "stablehlo.triangular_solve"));

  set(r, op, "left_side", truth(r, in->u.triangular.left_side));
  set(r, op, "lower", truth(r, in->u.triangular.lower));
  set(r, op, "unit_diagonal", truth(r, in->u.triangular.unit_diagonal));
  set(r, op, "transpose_a", words(r, MLIR_ENUM, names[in->u.triangular.transpose_a]));
}

static void batch_norm(raising *r, const hlo_instr *in)
{
  mlir_op *op = give(r, in, as_op(r, in, in->op == HLO_BATCH_NORM_GRAD        ? "stablehlo.batch_norm_grad"
                                         : in->op == HLO_BATCH_NORM_INFERENCE ? "stablehlo.batch_norm_inference"
                                                                              : "stablehlo.batch_norm_training"));

  set(r, op, "epsilon", real(r, WEFT_F32, in->u.batch_norm.epsilon));
  set_int(r, op, "feature_index", in->u.batch_norm.feature_index);
}

static void rng(raising *r, const hlo_instr *in)
{
  const mlir_type *type = type_of(r, in->shape);
  int64_t rank = in->shape->rank;
  hlo_literal sizes = {.shape = hlo_shape_array(&r->program.arena, WEFT_S64, 1, &rank),
                       .data = weft_arena_memdup(&r->program.arena, in->shape->dims, (size_t)rank * sizeof(int64_t))};
  mlir_value *operands[3] = {array_operand(r, in, 0), array_operand(r, in, 1), literal_value(r, &sizes)->value};
  mlir_op *op = give(r, in, emit(r, "stablehlo.rng", 3, operands, 1, &type));

  set_extra(r, op, in);
  set(r, op, "rng_distribution", words(r, MLIR_ENUM, in->u.distribution == HLO_RNG_NORMAL ? "NORMAL" : "UNIFORM"));
}

/* HLO may give the bits alone. */
static void rng_bit_generator(raising *r, const hlo_instr *in)
{
  static const char *const names[] = {"DEFAULT", "THREE_FRY", "PHILOX"};
  mlir_value *state = array_operand(r, in, 0);
  bool is_tuple = hlo_shape_is_tuple(in->shape);
  mlir_op *op = emit(r, "stablehlo.rng_bit_generator", 1, &state, 2,
                     (const mlir_type *[]){state->type, type_of(r, is_tuple ? in->shape->elements[1] : in->shape)});

  if (is_tuple) set_extra(r, op, in);
  set(r, op, "rng_algorithm", words(r, MLIR_ENUM, names[in->u.rng_algorithm]));
  r->at[in->id] = is_tuple ? results_of(r, op, in->shape) : single(r, &op->results[1]);
}

static void rng_state(raising *r, const hlo_instr *in)
{
  set_int(r, give(r, in, as_op(r, in, "mhlo.xla.rng_get_and_update_state")), "delta", in->u.delta);
}

static void stochastic_convert(raising *r, const hlo_instr *in) { give(r, in, as_op(r, in, "mhlo.stochastic_convert")); }

/* ---- bitcasts ----------------------------------------------------------------------------------------------------- */

/* x with its dimensions in the order of memory, slowest first; or the way back to shape s. */
static mlir_value *transposed(raising *r, mlir_value *x, const hlo_shape *s, bool to_memory)
{
  int64_t permutation[HLO_MAX_RANK], dims[HLO_MAX_RANK];
  mlir_op *op;

  if (hlo_shape_is_default_layout(s)) return x;
  for (int i = 0; i < s->rank; i++) {
    int64_t d = s->layout->minor_to_major[s->rank - 1 - i];
    if (to_memory) permutation[i] = d;
    else permutation[d] = i;
  }
  for (int i = 0; i < s->rank; i++) dims[i] = x->type->dims[permutation[i]];
  op = emit(r, "stablehlo.transpose", 1, &x, 1, (const mlir_type *[]){array_type(r, x->type->dtype, s->rank, dims)});
  set(r, op, "permutation", ints(r, s->rank, permutation));
  return op->results;
}

/* The bytes of x as elements of another type, in one dimension. */
static mlir_value *recast(raising *r, mlir_value *x, weft_dtype to)
{
  int64_t from_bits = weft_dtype_bits(x->type->dtype), bits = weft_dtype_bits(to), n = mlir_tensor_elems(x->type);
  int64_t wide = from_bits < bits ? bits / from_bits : from_bits / bits;
  int64_t dims[2] = {from_bits < bits ? n / wide : n, wide};

  if (from_bits < bits) {
    x = reshaped(r, x, 2, dims);
    return make(r, "stablehlo.bitcast_convert", 1, &x, array_type(r, to, 1, dims));
  }
  x = reshaped(r, x, 1, &n);
  x = make(r, "stablehlo.bitcast_convert", 1, &x, array_type(r, to, from_bits == bits ? 1 : 2, dims));
  return reshaped(r, x, 1, &(int64_t){n * wide});
}

static void bitcast(raising *r, const hlo_instr *in)
{
  const hlo_shape *from = in->operands[0]->shape, *to = in->shape;
  int64_t dims[HLO_MAX_RANK];
  mlir_value *x;

  if (!hlo_shape_is_array(from) || !hlo_shape_is_array(to)) REFUSE(r, in, "a bitcast of what is no array");
  if (hlo_shape_is_dynamic(from) || hlo_shape_is_dynamic(to)) REFUSE(r, in, "a bitcast of dynamic shape");
  for (int i = 0; i < to->rank; i++)
    dims[i] = to->dims[hlo_shape_is_default_layout(to) ? i : to->layout->minor_to_major[to->rank - 1 - i]];
  x = transposed(r, array_operand(r, in, 0), from, true);
  if (from->type != to->type) x = recast(r, x, to->type);
  x = reshaped(r, x, to->rank, dims);
  r->at[in->id] = single(r, transposed(r, x, to, false));
}

static void dynamic_reshape(raising *r, const hlo_instr *in)
{
  values sizes = {0};
  const mlir_type *type = type_of(r, in->shape);
  mlir_value *all;

  if (in->operand_count < 2) REFUSE(r, in, "a dynamic-reshape without sizes");
  for (int i = 1; i < in->operand_count; i++) push(r, &sizes, reshaped(r, array_operand(r, in, i), 1, &(int64_t){1}));
  all = make(r, "stablehlo.concatenate", sizes.count, sizes.v,
             array_type(r, sizes.v[0]->type->dtype, 1, &(int64_t){sizes.count}));
  set_int(r, r->block->last, "dimension", 0);
  mlir_value *operands[2] = {array_operand(r, in, 0), all};
  give(r, in, emit(r, "stablehlo.dynamic_reshape", 2, operands, 1, &type));
}

/* ---- tuples and tokens -------------------------------------------------------------------------------------------- */

static void same_value(raising *r, const hlo_instr *in)
{
  const hlo_sharding *sharding = in->extra ? in->extra->sharding : NULL;
  mlir_op *op;

  r->at[in->id] = operand(r, in, 0);
  if (!sharding || in->op != HLO_COPY || !hlo_shape_is_array(in->shape)) return;
  op = give(r, in, as_op(r, in, "stablehlo.custom_call")); /* what says nothing but how it is cut */
  set(r, op, "call_target_name", words(r, MLIR_STRING, "Sharding"));
}

static void tuple(raising *r, const hlo_instr *in)
{
  const raised **elements = MAKE(r, const raised *, in->operand_count);

  for (int i = 0; i < in->operand_count; i++) elements[i] = operand(r, in, i);
  r->at[in->id] = tuple_of(r, in->operand_count, elements);
}

static void get_tuple_element(raising *r, const hlo_instr *in)
{
  r->at[in->id] = element(r, operand(r, in, 0), in->u.tuple_index);
}

static void after_all(raising *r, const hlo_instr *in)
{
  give(r, in, as_op(r, in, in->operand_count ? "stablehlo.after_all" : "stablehlo.create_token"));
}

/* Everything at once, and for add-dependency the token too. */
static void barrier(raising *r, const hlo_instr *in)
{
  values all = operand_leaves(r, in, 0);
  const mlir_type **types = MAKE(r, const mlir_type *, all.count);

  for (int i = 0; i < all.count; i++) types[i] = all.v[i]->type;
  mlir_op *op = emit(r, "stablehlo.optimization_barrier", all.count, all.v, all.count, types);
  set_extra(r, op, in);
  give(r, in, op);
}

/* ---- control flow ------------------------------------------------------------------------------------------------- */

static void while_loop(raising *r, const hlo_instr *in)
{
  mlir_op *op = give(r, in, as_op(r, in, "stablehlo.while"));

  new_regions(r, op, 2);
  raise_region(r, op, 0, in->called[1], NULL);
  raise_region(r, op, 1, in->called[0], NULL);
}

/* Branches see their operand from outside. */
static void conditional(raising *r, const hlo_instr *in)
{
  mlir_value *which = array_operand(r, in, 0);
  bool is_if = in->operands[0]->shape->type == WEFT_PRED;
  int count;
  const mlir_type **types = leaf_types(r, in->shape, &count);
  mlir_op *op = give(r, in, emit(r, is_if ? "stablehlo.if" : "stablehlo.case", 1, &which, count, types));

  set_extra(r, op, in);
  new_regions(r, op, in->called_count);
  for (int i = 0; i < in->called_count; i++) raise_region(r, op, i, in->called[i], operand(r, in, i + 1));
}

/* The dictionary that MLIR's assembly in `text` is; NULL if it is none. */
static const mlir_attr *parsed_dict(raising *r, const char *text)
{
  const mlir_attr *a = NULL;
  weft_status *st = mlir_parse_attr_text(&r->program, text, strlen(text), &a);
  bool good = !st && a->kind == MLIR_DICT;

  weft_status_free(st);
  return good ? a : NULL;
}

/* A composite says what it is in its frontend attributes. */
static bool composite(raising *r, const hlo_instr *in)
{
  const char *name = hlo_frontend_attribute(in, "composite.name"), *version = hlo_frontend_attribute(in, "composite.version");
  const char *text = hlo_frontend_attribute(in, "composite.attributes");
  const mlir_attr *attributes = text ? parsed_dict(r, text) : dict(r, 0, NULL);
  mlir_op *op;

  if (in->op != HLO_CALL || !in->u.is_composite || !name || !attributes) return false;
  op = as_call(r, in, "stablehlo.composite");
  set(r, op, "name", words(r, MLIR_STRING, name));
  set(r, op, "composite_attributes", attributes);
  set(r, op, "decomposition", words(r, MLIR_SYMBOL, function_name(r, in->called[0])));
  if (version) set(r, op, "version", number(r, WEFT_S32, atoi(version)));
  give_call(r, in, op);
  return true;
}

static void call(raising *r, const hlo_instr *in)
{
  mlir_op *op;

  if (composite(r, in)) return;
  op = as_call(r, in, "func.call");
  set(r, op, "callee", words(r, MLIR_SYMBOL, function_name(r, in->called[0])));
  set_extra(r, op, in);
  give_call(r, in, op);
}

/* ---- custom-calls ------------------------------------------------------------------------------------------------- */

/* dense<[1, 0]> : tensor<2xindex> for each shape: minor to major */
static const mlir_attr *layouts(raising *r, int count, const hlo_shape *const *shapes)
{
  const mlir_attr **items = MAKE(r, const mlir_attr *, count);
  static const mlir_type index = {.kind = MLIR_INDEX, .dtype = WEFT_S64};

  for (int i = 0; i < count; i++) {
    mlir_attr *a = new_attr(r, MLIR_DENSE);
    int64_t rank = hlo_shape_is_array(shapes[i]) ? shapes[i]->rank : 0;
    const char *text = "";
    for (int d = 0; d < rank; d++)
      text = TEXT(r, "%s%s%" PRId64, text, d ? ", " : "", shapes[i]->layout && shapes[i]->layout->minor_to_major
                                                              ? shapes[i]->layout->minor_to_major[d] : rank - 1 - d);
    check(r, mlir_new_tensor(&r->program.arena, &index, 1, &rank, NULL, &a->type));
    a->form = MLIR_DENSE_TEXT;
    a->u.text.s = rank ? TEXT(r, "[%s]", text) : "";
    a->u.text.size = strlen(a->u.text.s);
    items[i] = a;
  }
  return list(r, count, items);
}

static const mlir_attr *output_aliases(raising *r, int count, const hlo_output_alias *aliases)
{
  const mlir_attr **items = MAKE(r, const mlir_attr *, count);

  for (int i = 0; i < count; i++) {
    mlir_named_attr *fields = MAKE(r, mlir_named_attr, 3);
    fields[0] = (mlir_named_attr){"output_tuple_indices", ints(r, aliases[i].output_index.count, aliases[i].output_index.v)};
    fields[1] = (mlir_named_attr){"operand_index", number(r, WEFT_S64, aliases[i].operand)};
    fields[2] = (mlir_named_attr){"operand_tuple_indices", ints(r, aliases[i].operand_index.count, aliases[i].operand_index.v)};
    items[i] = dict(r, 3, fields);
  }
  return list(r, count, items);
}

static int hex_value(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : 0; }

/* For a typed call a dictionary, else a string or bytes (see hlo_extra). */
static const mlir_attr *backend_config(raising *r, const char *text, bool typed)
{
  const mlir_attr *a = !typed ? NULL : text[0] ? parsed_dict(r, text) : dict(r, 0, NULL);
  size_t size = strlen(text) / 2;
  char *bytes;

  if (a) return a;
  a = words(r, MLIR_STRING, text);
  if (strncmp(text, "hex:", 4) != 0) return a;
  bytes = MAKE(r, char, size + 1);
  for (size_t i = 2; i < size; i++) bytes[i - 2] = (char)(hex_value(text[2 * i]) << 4 | hex_value(text[2 * i + 1]));
  ((mlir_attr *)(uintptr_t)a)->u.text.s = bytes;
  ((mlir_attr *)(uintptr_t)a)->u.text.size = size - 2;
  return a;
}

static void custom_call(raising *r, const hlo_instr *in)
{
  const hlo_custom_call_attrs *c = in->u.custom;
  const char *config = in->extra && in->extra->backend_config ? in->extra->backend_config : "";
  const mlir_attr **callees = MAKE(r, const mlir_attr *, in->called_count);
  bool is_tuple = hlo_shape_is_tuple(in->shape), whole = !is_tuple || gives_elements(in->shape);
  mlir_op *op;

  if (c->conv || c->padding_type)
    REFUSE(r, in, "a custom-call with %s has no StableHLO", c->conv ? "a window" : "a padding type");
  op = as_call(r, in, "stablehlo.custom_call");
  set(r, op, "call_target_name", words(r, MLIR_STRING, c->target));
  if (c->has_side_effect) set(r, op, "has_side_effect", truth(r, true));
  if (config[0] || c->api_version == 4) set(r, op, "backend_config", backend_config(r, config, c->api_version == 4));
  if (c->api_version != 1) set(r, op, "api_version", number(r, WEFT_S32, c->api_version));
  for (int i = 0; i < in->called_count; i++) callees[i] = words(r, MLIR_SYMBOL, function_name(r, in->called[i]));
  if (in->called_count) set(r, op, "called_computations", list(r, in->called_count, callees));
  for (int i = 0; i < in->operand_count; i++) whole &= !hlo_shape_is_tuple(in->operands[i]->shape);
  if (c->layout_count == in->operand_count && c->operand_layouts && whole) {
    set(r, op, "operand_layouts", layouts(r, c->layout_count, c->operand_layouts));
    set(r, op, "result_layouts", is_tuple ? layouts(r, in->shape->rank, in->shape->elements) : layouts(r, 1, &in->shape));
  }
  if (c->literal && hlo_shape_is_array(c->literal->shape)) {
    mlir_attr *literal = (mlir_attr *)(uintptr_t)literal_attr(r, c->literal);
    literal->splat = false; /* all elements, as it is read */
    set(r, op, "mhlo.literal", literal);
  }
  if (c->alias_count) set(r, op, "output_operand_aliases", output_aliases(r, c->alias_count, c->aliases));
  set_extra(r, op, in);
  give_call(r, in, op);
}

/* ---- communication ------------------------------------------------------------------------------------------------ */

/* Groups as lists; *out_size is the size of the largest, or what a group of everybody has. */
static hlo_replica_groups listed_groups(raising *r, const hlo_instr *in, int64_t *out_size)
{
  hlo_replica_groups g = {0};

  check(r, hlo_groups_as_lists(&r->program.arena, &in->u.collective->groups, &g));
  *out_size = 0;
  for (int i = 0; i < g.group_count; i++) *out_size = WEFT_MAX(*out_size, g.groups[i].count);
  if (*out_size > 0) return g;
  bool everybody = in->u.collective->use_global_device_ids;
  *out_size = everybody                             ? r->module->num_partitions * r->module->replica_count
              : in->u.collective->channel_id > 0 ? r->module->num_partitions
                                                 : r->module->replica_count;
  if (everybody || in->op == HLO_ALL_TO_ALL) { /* these have to say who takes part */
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
  int64_t *ids = MAKE(r, int64_t, g.group_count * size);

  for (int i = 0; i < g.group_count; i++) /* short rows are filled up */
    for (int64_t k = 0; k < size; k++) ids[i * size + k] = k < g.groups[i].count ? g.groups[i].v[k] : -1;
  set(r, op, "replica_groups", matrix(r, g.group_count, g.group_count ? size : 0, ids));
}

static void set_channel(raising *r, mlir_op *op, const hlo_instr *in, int64_t type)
{
  const hlo_collective_attrs *c = in->u.collective;

  if (c->channel_id <= 0 && type == 0) return;
  set_int(r, op, "channel_id", c->channel_id);
  set_int(r, op, "channel_type", type);
}

/* Of the operands and their order, as the collective itself; starts are the same and give what their done takes. */
static const raised *collective(raising *r, const hlo_instr *in, const char *spelling, const char *dim, const hlo_shape *shape)
{
  values operands = operand_leaves(r, in, 0);
  int count;
  const mlir_type **types = leaf_types(r, shape, &count);
  const hlo_collective_attrs *c = in->u.collective;
  mlir_op *op;

  if (c->has_dynamic_root) { /* one root for all, or one each; StableHLO has the latter */
    mlir_value **root = &operands.v[operands.count - 1];
    if ((*root)->type->dims[0] != count) *root = broadcast_to(r, *root, 1, &(int64_t){count}, &(int64_t){0});
  }
  op = emit(r, spelling, operands.count, operands.v, count, types);
  set_extra(r, op, in);
  if (dim) set_int(r, op, dim, in->dims.count ? in->dims.v[0] : 0);
  if (in->op == HLO_COLLECTIVE_PERMUTE || in->op == HLO_COLLECTIVE_PERMUTE_START) {
    if (c->slice_count || operands.count != count) REFUSE(r, in, "a collective-permute in place has no StableHLO");
    set(r, op, "source_target_pairs", matrix(r, c->pair_count, 2, (const int64_t *)c->pairs));
  } else {
    set_groups(r, op, in);
  }
  set_channel(r, op, in, 0);
  if (c->has_dynamic_root) set(r, op, "has_dynamic_root", truth(r, true));
  if (c->use_global_device_ids && strcmp(spelling, "stablehlo.collective_broadcast") != 0 && !strstr(spelling, "permute"))
    set(r, op, "use_global_device_ids", truth(r, true));
  raise_called(r, op, in);
  return results_of(r, op, shape);
}

static void all_reduce(raising *r, const hlo_instr *in)
{
  r->at[in->id] = collective(r, in, "stablehlo.all_reduce", NULL, in->shape);
}

static void all_gather(raising *r, const hlo_instr *in)
{
  r->at[in->id] = collective(r, in, "stablehlo.all_gather", "all_gather_dim", in->shape);
}

static void reduce_scatter(raising *r, const hlo_instr *in)
{
  r->at[in->id] = collective(r, in, "stablehlo.reduce_scatter", "scatter_dimension", in->shape);
}

static void collective_permute(raising *r, const hlo_instr *in)
{
  r->at[in->id] = collective(r, in, "stablehlo.collective_permute", NULL, in->shape);
}

static void collective_broadcast(raising *r, const hlo_instr *in)
{
  r->at[in->id] = collective(r, in, "stablehlo.collective_broadcast", NULL, in->shape);
}

static mlir_value *exchange(raising *r, const hlo_instr *in, mlir_value *x, int64_t dim, int64_t parts)
{
  mlir_op *op = emit(r, "stablehlo.all_to_all", 1, &x, 1, &x->type);

  set_extra(r, op, in);
  set_int(r, op, "split_dimension", dim);
  set_int(r, op, "concat_dimension", dim);
  set_int(r, op, "split_count", parts);
  set_groups(r, op, in);
  set_channel(r, op, in, 0);
  return op->results;
}

/* One array along a dimension; or an operand for each member of the group, which stack up to such an array. */
static void all_to_all(raising *r, const hlo_instr *in)
{
  values operands = operand_leaves(r, in, 0);
  int64_t parts, dims[HLO_MAX_RANK + 1] = {1}, start[HLO_MAX_RANK + 1] = {0}, limit[HLO_MAX_RANK + 1];
  const mlir_type *type = operands.v[0]->type;
  const raised **elements = MAKE(r, const raised *, operands.count);
  mlir_value *x;

  (void)listed_groups(r, in, &parts);
  if (in->dims.count > 0) {
    for (int i = 0; i < operands.count; i++)
      elements[i] = single(r, exchange(r, in, operands.v[i], in->dims.v[0], parts));
    r->at[in->id] = hlo_shape_is_tuple(in->shape) ? tuple_of(r, operands.count, elements) : elements[0];
    return;
  }
  if (type->rank == HLO_MAX_RANK || operands.count != parts) REFUSE(r, in, "%d operands for a group of %" PRId64, operands.count, parts);
  for (int i = 0; i < type->rank; i++) dims[i + 1] = limit[i + 1] = type->dims[i];
  for (int i = 0; i < operands.count; i++) operands.v[i] = reshaped(r, operands.v[i], type->rank + 1, dims);
  dims[0] = parts;
  x = make(r, "stablehlo.concatenate", operands.count, operands.v, array_type(r, type->dtype, type->rank + 1, dims));
  set_int(r, r->block->last, "dimension", 0);
  x = exchange(r, in, x, 0, parts);
  for (int i = 0; i < operands.count; i++) {
    start[0] = i;
    limit[0] = i + 1;
    elements[i] = single(r, reshaped(r, slice_of(r, x, start, limit, NULL), type->rank, type->dims));
  }
  r->at[in->id] = hlo_shape_is_tuple(in->shape) ? tuple_of(r, operands.count, elements) : elements[0];
}

static const raised *part_of_start(raising *r, const hlo_shape *shape, const raised *operands, const raised *result);

/* (operands, results, contexts...): all-gather-start, collective-permute-start */
static void collective_start(raising *r, const hlo_instr *in)
{
  bool gather = in->op == HLO_ALL_GATHER_START;
  const hlo_shape *shape = hlo_shape_is_tuple(in->shape) && in->shape->rank > 1 ? in->shape->elements[1] : NULL;
  const raised **inputs = MAKE(r, const raised *, in->operand_count), *result;

  if (!shape) REFUSE(r, in, "a start that gives no pair");
  result = collective(r, in, gather ? "stablehlo.all_gather" : "stablehlo.collective_permute",
                      gather ? "all_gather_dim" : NULL, shape);
  for (int i = 0; i < in->operand_count; i++) inputs[i] = operand(r, in, i);
  bool listed = hlo_shape_is_tuple(in->shape->elements[0]) && !(in->operand_count == 1 && hlo_shape_is_tuple(in->operands[0]->shape));
  r->at[in->id] = part_of_start(r, in->shape, listed ? tuple_of(r, in->operand_count, inputs) : inputs[0], result);
}

/* A value that means nothing: zeros and new tokens. */
static const raised *nothing(raising *r, const hlo_shape *s)
{
  const raised **elements;

  if (hlo_shape_is_token(s)) return single(r, make(r, "stablehlo.create_token", 0, NULL, type_of(r, s)));
  if (!hlo_shape_is_tuple(s)) {
    mlir_value *zero = scalar(r, s->type, 0);
    return single(r, s->rank ? broadcast_to(r, zero, s->rank, s->dims, NULL) : zero);
  }
  elements = MAKE(r, const raised *, s->rank);
  for (int i = 0; i < s->rank; i++) elements[i] = nothing(r, s->elements[i]);
  return tuple_of(r, s->rank, elements);
}

static const raised *part_of_start(raising *r, const hlo_shape *shape, const raised *operands, const raised *result)
{
  const raised **elements = MAKE(r, const raised *, shape->rank);

  for (int i = 0; i < shape->rank; i++) elements[i] = i == 0 ? operands : i == 1 ? result : nothing(r, shape->elements[i]);
  return tuple_of(r, shape->rank, elements);
}

/* ((operands...), result, contexts...): what the wrapped computation gives. */
static void async_start(raising *r, const hlo_instr *in)
{
  const hlo_instr *root = in->called[0]->root;
  const raised **inputs = MAKE(r, const raised *, in->operand_count), *result;
  int count;
  const mlir_type **types = function_results(r, root->shape, &count);
  mlir_value **operands = MAKE(r, mlir_value *, in->operand_count);
  mlir_op *op;

  for (int i = 0; i < in->operand_count; i++) {
    inputs[i] = operand(r, in, i);
    operands[i] = value_of(r, inputs[i]);
  }
  op = emit(r, "func.call", in->operand_count, operands, count, types);
  set(r, op, "callee", words(r, MLIR_SYMBOL, function_name(r, in->called[0])));
  result = gives_elements(root->shape) ? results_of(r, op, root->shape) : single(r, op->results);
  r->at[in->id] = part_of_start(r, in->shape, tuple_of(r, in->operand_count, inputs), result);
}

/* (destination, source, context) */
static void copy_start(raising *r, const hlo_instr *in)
{
  const raised *x = operand(r, in, 0);

  r->at[in->id] = part_of_start(r, in->shape, x, x);
}

static void second_of_start(raising *r, const hlo_instr *in) { r->at[in->id] = element(r, operand(r, in, 0), 1); }
static void first_of_start(raising *r, const hlo_instr *in) { r->at[in->id] = element(r, operand(r, in, 0), 0); }

/* send gives (data, context, token), recv (data, context, token): their dones take the token, or data and token. */
static void send(raising *r, const hlo_instr *in)
{
  values operands = operand_leaves(r, in, 0);
  const hlo_collective_attrs *c = in->u.collective;
  const raised **parts = MAKE(r, const raised *, 3);
  mlir_op *op = emit(r, "stablehlo.send", operands.count, operands.v, 1, (const mlir_type *[]){new_type(r, MLIR_TOKEN, 0, NULL)});

  set_extra(r, op, in);
  set_channel(r, op, in, c->is_host_transfer ? 2 : 1);
  set(r, op, "is_host_transfer", truth(r, c->is_host_transfer));
  if (c->pair_count) set(r, op, "source_target_pairs", matrix(r, c->pair_count, 2, (const int64_t *)c->pairs));
  parts[0] = operand(r, in, 0);
  parts[1] = single(r, scalar(r, WEFT_U32, 0));
  parts[2] = single(r, op->results);
  r->at[in->id] = tuple_of(r, 3, parts);
}

static void send_done(raising *r, const hlo_instr *in) { r->at[in->id] = element(r, operand(r, in, 0), 2); }

static void recv(raising *r, const hlo_instr *in)
{
  const hlo_collective_attrs *c = in->u.collective;
  const raised **parts = MAKE(r, const raised *, 3);
  mlir_value *token = array_operand(r, in, 0);
  int count, at = 0;
  const mlir_type **data = leaf_types(r, in->shape->elements[0], &count), **types = MAKE(r, const mlir_type *, count + 1);

  for (int i = 0; i < count; i++) types[i] = data[i];
  types[count] = token->type;
  mlir_op *op = emit(r, "stablehlo.recv", 1, &token, count + 1, types);
  set_extra(r, op, in);
  set_channel(r, op, in, c->is_host_transfer ? 3 : 1);
  set(r, op, "is_host_transfer", truth(r, c->is_host_transfer));
  if (c->pair_count) set(r, op, "source_target_pairs", matrix(r, c->pair_count, 2, (const int64_t *)c->pairs));
  parts[0] = from_leaves(r, in->shape->elements[0], op->results, &at);
  parts[1] = single(r, scalar(r, WEFT_U32, 0));
  parts[2] = single(r, &op->results[count]);
  r->at[in->id] = tuple_of(r, 3, parts);
}

static void recv_done(raising *r, const hlo_instr *in)
{
  const raised **parts = MAKE(r, const raised *, 2), *x = operand(r, in, 0);

  parts[0] = element(r, x, 0);
  parts[1] = element(r, x, 2);
  r->at[in->id] = tuple_of(r, 2, parts);
}

static void feed(raising *r, const hlo_instr *in)
{
  bool out = in->op == HLO_OUTFEED;
  mlir_op *op = give(r, in, as_op(r, in, out ? "stablehlo.outfeed" : "stablehlo.infeed"));

  set(r, op, out ? "outfeed_config" : "infeed_config", words(r, MLIR_STRING, in->u.feed.config ? in->u.feed.config : ""));
}

/* XLA's form: a typed call. */
static void ragged_all_to_all(raising *r, const hlo_instr *in)
{
  mlir_op *groups = MAKE(r, mlir_op, 1), *op; /* a list of attributes */

  set_groups(r, groups, in);
  set_int(r, groups, "channel_id", in->u.collective->channel_id);
  op = give(r, in, as_op(r, in, "stablehlo.custom_call"));
  set(r, op, "call_target_name", words(r, MLIR_STRING, "ragged_all_to_all"));
  set(r, op, "api_version", number(r, WEFT_S32, 4));
  set(r, op, "backend_config", dict(r, groups->attr_count - (in->u.collective->channel_id <= 0), groups->attrs));
}

/* ---- the table ---------------------------------------------------------------------------------------------------- */

static void (*const rules[HLO_OPCODE_COUNT])(raising *, const hlo_instr *) = {
    [HLO_BITCAST_CONVERT] = elementwise, [HLO_COMPARE] = compare, [HLO_COPY] = same_value,
    [HLO_REDUCE_PRECISION] = reduce_precision, [HLO_STOCHASTIC_CONVERT] = stochastic_convert,
    [HLO_BITCAST] = bitcast, [HLO_BROADCAST] = with_dims, [HLO_CONCATENATE] = with_dims, [HLO_CONSTANT] = constant,
    [HLO_DYNAMIC_RESHAPE] = dynamic_reshape, [HLO_DYNAMIC_SLICE] = dynamic_slice, [HLO_DYNAMIC_UPDATE_SLICE] = dynamic_slice,
    [HLO_GATHER] = gather, [HLO_GET_DIMENSION_SIZE] = with_dims, [HLO_IOTA] = with_dims, [HLO_OPT_BARRIER] = barrier,
    [HLO_PAD] = pad, [HLO_RESHAPE] = elementwise, [HLO_REVERSE] = with_dims, [HLO_SCATTER] = scatter,
    [HLO_SET_DIMENSION_SIZE] = with_dims, [HLO_SLICE] = slice, [HLO_TRANSPOSE] = with_dims,
    [HLO_BATCH_NORM_GRAD] = batch_norm, [HLO_BATCH_NORM_INFERENCE] = batch_norm, [HLO_BATCH_NORM_TRAINING] = batch_norm,
    [HLO_CHOLESKY] = cholesky, [HLO_CONVOLUTION] = convolution, [HLO_DOT] = dot, [HLO_FFT] = fft, [HLO_MAP] = map,
    [HLO_RAGGED_DOT] = ragged_dot, [HLO_REDUCE] = reduce, [HLO_REDUCE_WINDOW] = reduce_window, [HLO_SCALED_DOT] = scaled_dot,
    [HLO_SCAN] = scan, [HLO_SELECT_AND_SCATTER] = select_and_scatter, [HLO_SORT] = sort, [HLO_TOPK] = top_k,
    [HLO_TRIANGULAR_SOLVE] = triangular_solve, [HLO_RNG] = rng, [HLO_RNG_BIT_GENERATOR] = rng_bit_generator,
    [HLO_RNG_GET_AND_UPDATE_STATE] = rng_state, [HLO_ADD_DEPENDENCY] = barrier, [HLO_AFTER_ALL] = after_all,
    [HLO_CALL] = call, [HLO_CONDITIONAL] = conditional, [HLO_CUSTOM_CALL] = custom_call, [HLO_DOMAIN] = same_value,
    [HLO_FUSION] = call, [HLO_GET_TUPLE_ELEMENT] = get_tuple_element, [HLO_TUPLE] = tuple, [HLO_WHILE] = while_loop,
    [HLO_ALL_GATHER] = all_gather, [HLO_ALL_GATHER_START] = collective_start, [HLO_ALL_GATHER_DONE] = second_of_start,
    [HLO_ALL_REDUCE] = all_reduce, [HLO_ALL_REDUCE_START] = all_reduce, [HLO_ALL_REDUCE_DONE] = same_value,
    [HLO_ALL_TO_ALL] = all_to_all, [HLO_ASYNC_START] = async_start, [HLO_ASYNC_UPDATE] = same_value,
    [HLO_ASYNC_DONE] = second_of_start, [HLO_COLLECTIVE_BROADCAST] = collective_broadcast,
    [HLO_COLLECTIVE_PERMUTE] = collective_permute, [HLO_COLLECTIVE_PERMUTE_START] = collective_start,
    [HLO_COLLECTIVE_PERMUTE_DONE] = second_of_start, [HLO_COPY_START] = copy_start, [HLO_COPY_DONE] = first_of_start,
    [HLO_INFEED] = feed, [HLO_OUTFEED] = feed, [HLO_PARTITION_ID] = elementwise, [HLO_REPLICA_ID] = elementwise,
    [HLO_RAGGED_ALL_TO_ALL] = ragged_all_to_all, [HLO_RECV] = recv, [HLO_RECV_DONE] = recv_done,
    [HLO_REDUCE_SCATTER] = reduce_scatter, [HLO_SEND] = send, [HLO_SEND_DONE] = send_done};

static void raise_instr(raising *r, const hlo_instr *in)
{
  if (in->op == HLO_PARAMETER) return; /* whoever began the computation knows it */
  if (rules[in->op]) rules[in->op](r, in);
  else if (hlo_opcode_is_elementwise(in->op)) elementwise(r, in);
  else REFUSE(r, in, "%s has no StableHLO", hlo_opcode_name(in->op));
}

/* ---- functions and the module ------------------------------------------------------------------------------------- */

/* The output that an alias names, as a result of the entry function; -1: StableHLO has no such thing. */
static int64_t aliased_result(const hlo_module *m, const hlo_input_output_alias *a)
{
  bool elements = gives_elements(m->entry->root->shape);

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

  set_extra(r, holder, c->params[i]);
  if (c != m->entry) return dict(r, holder->attr_count, holder->attrs);
  bool donated = false;
  for (int k = 0; r->aliases_by_argument && k < m->alias_count; k++)
    if (m->aliases[k].parameter == i)
      set(r, holder, "tf.aliasing_output", number(r, WEFT_S32, aliased_result(m, &m->aliases[k])));
  for (int k = 0; k < m->donor_count; k++) donated |= m->donors[k].parameter == i && m->donors[k].parameter_index.count == 0;
  if (donated) set(r, holder, "jax.buffer_donor", truth(r, true));
  layout = m->has_entry_layout ? layout_text(r, m->entry_param_shapes[i]) : NULL;
  if (layout) set(r, holder, "mhlo.layout_mode", words(r, MLIR_STRING, layout));
  return dict(r, holder->attr_count, holder->attrs);
}

static const mlir_attr *result_dict(raising *r, const hlo_computation *c, int i)
{
  const hlo_module *m = r->module;
  const hlo_sharding *sharding = m->spmd_output_sharding;
  const hlo_shape *given = m->has_entry_layout ? m->entry_result_shape : NULL;
  mlir_op *holder = MAKE(r, mlir_op, 1);

  if (c == m->entry) {
    if (!sharding && c->root->extra) sharding = c->root->extra->sharding;
    if (gives_elements(c->root->shape)) {
      if (sharding && sharding->kind == HLO_SHARDING_TUPLE) sharding = i < sharding->tuple_count ? sharding->elements[i] : NULL;
      given = given && hlo_shape_is_tuple(given) && i < given->rank ? given->elements[i] : NULL;
    }
    if (sharding) set(r, holder, "mhlo.sharding", sharding_attr(r, sharding));
    if (given && layout_text(r, given)) set(r, holder, "mhlo.layout_mode", words(r, MLIR_STRING, layout_text(r, given)));
  }
  return dict(r, holder->attr_count, holder->attrs);
}

static void raise_function(raising *r, const hlo_computation *c)
{
  mlir_block *outer = r->block;
  mlir_op *op = emit(r, "func.func", 0, NULL, 0, NULL);
  const mlir_type **types, **results;
  const mlir_attr **dicts;
  int count;
  values returned = {0};
  mlir_type *type;

  results = function_results(r, c->root->shape, &count);
  types = MAKE(r, const mlir_type *, c->param_count + count);
  dicts = MAKE(r, const mlir_attr *, c->param_count + count);
  for (int i = 0; i < c->param_count; i++) {
    types[i] = type_of(r, c->params[i]->shape);
    dicts[i] = argument_dict(r, c, i);
  }
  for (int i = 0; i < count; i++) {
    types[c->param_count + i] = results[i];
    dicts[c->param_count + i] = result_dict(r, c, i);
  }
  type = (mlir_type *)(uintptr_t)new_type(r, MLIR_FUNCTION, c->param_count, types);
  type->result_count = count;
  set(r, op, "sym_name", words(r, MLIR_STRING, function_name(r, c)));
  if (c != r->module->entry) set(r, op, "sym_visibility", words(r, MLIR_STRING, "private"));
  set(r, op, "function_type", of_type(r, type));
  set(r, op, "arg_attrs", list(r, c->param_count, dicts));
  set(r, op, "res_attrs", list(r, count, dicts + c->param_count));
  new_regions(r, op, 1);
  r->block = new_block(r, &op->regions[0], c->param_count, types);
  for (int i = 0; i < c->param_count; i++) r->at[c->params[i]->id] = single(r, &r->block->args[i]);
  raise_instructions(r, c);
  if (gives_elements(c->root->shape)) push_leaves(r, &returned, r->at[c->root->id]);
  else push(r, &returned, value_of(r, r->at[c->root->id]));
  emit(r, "func.return", returned.count, returned.v, 0, NULL);
  r->block = outer;
}

static bool calls_functions(hlo_opcode op)
{
  return op == HLO_CALL || op == HLO_FUSION || op == HLO_CUSTOM_CALL || op == HLO_ASYNC_START;
}

/* kind, where in the parameters, where in the result: XLA's attribute for what arguments cannot say */
static const mlir_attr *module_aliases(raising *r)
{
  const hlo_module *m = r->module;
  const mlir_attr **items = MAKE(r, const mlir_attr *, m->alias_count);

  for (int i = 0; i < m->alias_count; i++) {
    const hlo_input_output_alias *a = &m->aliases[i];
    mlir_named_attr *alias = MAKE(r, mlir_named_attr, 3), *item = MAKE(r, mlir_named_attr, 2);
    alias[0] = (mlir_named_attr){"kind", words(r, MLIR_STRING, a->must_alias ? "must_alias" : "may_alias")};
    alias[1] = (mlir_named_attr){"parameter_index", ints(r, a->parameter_index.count, a->parameter_index.v)};
    alias[2] = (mlir_named_attr){"parameter_number", number(r, WEFT_S64, a->parameter)};
    item[0] = (mlir_named_attr){"alias", dict(r, 3, alias)};
    item[1] = (mlir_named_attr){"output_index", ints(r, a->output_index.count, a->output_index.v)};
    items[i] = dict(r, 2, item);
  }
  return list(r, m->alias_count, items);
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
  out->op = emit(r, "builtin.module", 0, NULL, 0, NULL);
  new_regions(r, out->op, 1);
  set(r, out->op, "sym_name", words(r, MLIR_STRING, m->name));
  set(r, out->op, "mhlo.num_partitions", number(r, WEFT_S32, m->num_partitions));
  set(r, out->op, "mhlo.num_replicas", number(r, WEFT_S32, m->replica_count));
  bool *aliased = MAKE(r, bool, m->entry->param_count);
  r->aliases_by_argument = true;
  for (int i = 0; i < m->alias_count; i++) {
    const hlo_input_output_alias *a = &m->aliases[i];
    bool said = a->must_alias || aliased_result(m, a) < 0 || a->parameter < 0 || a->parameter >= m->entry->param_count;
    r->aliases_by_argument &= !said && !aliased[a->parameter]; /* one output an argument */
    if (!said) aliased[a->parameter] = true;
  }
  if (!r->aliases_by_argument) set(r, out->op, "mhlo.input_output_alias", module_aliases(r));
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
