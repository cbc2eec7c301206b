/* stablehlo/mlir_pretty.c -- the custom assembly of operations (facts: programs.md 7.2).
 * Most follow one shape, which universal() reads: operands, words and `key = value` pairs between commas, attributes,
 * types.  Keys are renamed to attribute names by a table; the few operations with
 * a syntax of their own have a function. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "stablehlo/mlir_text.h"

static weft_status *operand(text_parser *ps, text_list *operands)
{
  mlir_value *v;

  WEFT_TRY(text_use(ps, &v));
  return text_push(ps, operands, v);
}

static void set_operands(mlir_op *op, const text_list *operands)
{
  op->operand_count = operands->count;
  op->operands = (mlir_value **)operands->items;
}

static bool named(const mlir_op *op, const char *name) { return strcmp(op->name, name) == 0; }

/* After ':': T, U, ... or (T, ...) -> U; gives the results.  Of a bare list the last type is the result's, except of
 * operations without results and of those that give back all they take. */
static weft_status *result_types(text_parser *ps, mlir_op *op)
{
  text_list types = {0};

  if (text_peek(ps) == '(') {
    const mlir_type *f;
    WEFT_TRY(text_type(ps, &f));
    if (f->count != op->operand_count)
      return text_fail(ps, ps->p, "%d operand types for %d operands", f->count, op->operand_count);
    return text_set_results(ps, op, f->result_count, f->elements + f->count);
  }
  WEFT_TRY(text_types(ps, &types));
  if (text_accept_str(ps, "->") || text_accept_word(ps, "to")) { /* T -> U */
    int inputs = types.count;
    WEFT_TRY(text_type_list(ps, &types));
    return text_set_results(ps, op, types.count - inputs, (const mlir_type *const *)types.items + inputs);
  }
  if (named(op, "select") && types.count != 2)
    return text_fail(ps, ps->p, "expected the types of predicate and result, got %d", types.count);
  bool same = named(op, "optimization_barrier");
  bool none = named(op, "return") || (op->dialect == SHLO_CHECK) ||
              (op->dialect == SHLO_SDY && named(op, "sharding_group"));
  int skip = same ? 0 : none ? types.count : types.count - 1;
  return text_set_results(ps, op, types.count - skip, (const mlir_type *const *)types.items + skip);
}

/* An attribute dictionary and `: types`, in either order. */
static weft_status *tail(text_parser *ps, mlir_op *op, text_attrs *attrs)
{
  if (text_accept_word(ps, "attributes") || text_peek(ps) == '{') WEFT_TRY(text_dict(ps, attrs));
  if (text_accept(ps, ':')) WEFT_TRY(result_types(ps, op));
  if (text_peek(ps) == '{') WEFT_TRY(text_dict(ps, attrs));
  return NULL;
}

/* ---- the universal shape ----------------------------------------------------------------------------------------- */

static const struct { const char *op, *key, *attr; } keys[] = {
    {"iota", "dim", "iota_dimension"}, {"dynamic_iota", "dim", "iota_dimension"}, {"concatenate", "dim", "dimension"},
    {"get_dimension_size", "dim", "dimension"}, {"set_dimension_size", "dim", "dimension"},
    {"broadcast_in_dim", "dims", "broadcast_dimensions"}, {"dynamic_broadcast_in_dim", "dims", "broadcast_dimensions"},
    {"transpose", "dims", "permutation"}, {"reverse", "dims", "dimensions"}, {"map", "dims", "dimensions"},
    {"dynamic_slice", "sizes", "slice_sizes"}, {"broadcast", "sizes", "broadcast_sizes"},
    {"pad", "low", "edge_padding_low"}, {"pad", "high", "edge_padding_high"}, {"pad", "interior", "interior_padding"},
    {"fft", "type", "fft_type"}, {"fft", "length", "fft_length"}, {"rng_bit_generator", "algorithm", "rng_algorithm"},
    {"rng", "distribution", "rng_distribution"}, {"dot_general", "precision", "precision_config"},
    {"dot", "precision", "precision_config"}, {"custom_call", "precision", "precision_config"},
};

static const char *attribute_name(const mlir_op *op, const char *key)
{
  for (size_t i = 0; i < WEFT_COUNT(keys); i++)
    if (strcmp(keys[i].op, op->name) == 0 && strcmp(keys[i].key, key) == 0) return keys[i].attr;
  return key;
}

bool text_key_of(const char *op, int index, const char **out_key, const char **out_attr)
{
  for (size_t i = 0; i < WEFT_COUNT(keys); i++)
    if (strcmp(keys[i].op, op) == 0 && index-- == 0) {
      *out_key = keys[i].key;
      *out_attr = keys[i].attr;
      return true;
    }
  return false;
}

/* e8m7 */
static weft_status *format(text_parser *ps, text_attrs *attrs)
{
  const char *word, *names[2] = {"exponent_bits", "mantissa_bits"};
  size_t size;
  char *stop;

  if (!text_word(ps, &word, &size) || size > 8 || word[0] != 'e')
    return text_fail(ps, ps->p, "expected a format like e8m7");
  char copy[16] = {0};
  memcpy(copy, word + 1, size - 1);
  stop = copy;
  for (int i = 0; i < 2; i++) {
    mlir_attr *a;
    WEFT_TRY(text_new_attr(ps, MLIR_INT, &a));
    a->u.i = strtol(stop, &stop, 10);
    if (*stop != (i == 0 ? 'm' : '\0')) return text_fail(ps, word, "expected a format like e8m7");
    stop++;
    WEFT_TRY(text_add_attr(ps, attrs, names[i], a));
  }
  return NULL;
}

/* batching_dims = [0] x [0] */
static weft_status *dim_pair(text_parser *ps, const char *kind, text_attrs *attrs)
{
  for (int side = 0; side < 2; side++) {
    const mlir_attr *a;
    char *name = weft_arena_printf(ps->arena, "%s_%s_dimensions", side ? "rhs" : "lhs", kind);
    WEFT_TRY_ALLOC(name);
    if (side) WEFT_TRY(text_expect(ps, 'x'));
    WEFT_TRY(text_attr(ps, &a));
    WEFT_TRY(text_add_attr(ps, attrs, name, a));
  }
  return NULL;
}

static weft_status *keyed(text_parser *ps, mlir_op *op, const char *key, text_attrs *attrs)
{
  const mlir_attr *a;

  if (named(op, "reduce_precision") && strcmp(key, "format") == 0) return format(ps, attrs);
  if (named(op, "dot_general") && strcmp(key, "batching_dims") == 0) return dim_pair(ps, "batching", attrs);
  if (named(op, "dot_general") && strcmp(key, "contracting_dims") == 0) return dim_pair(ps, "contracting", attrs);
  ps->bare_numbers = true;
  const char *start = ps->p;
  WEFT_TRY(text_attr(ps, &a));
  ps->bare_numbers = false;
  if (strcmp(key, "precision") == 0 && a->kind != MLIR_ARRAY)
    return text_fail(ps, start, "expected a list of precisions");
  return text_add_attr(ps, attrs, attribute_name(op, key), a);
}

static weft_status *item(text_parser *ps, mlir_op *op, text_list *operands, text_attrs *attrs)
{
  const char *start, *word;
  const mlir_attr *a;
  size_t size;

  if (text_peek(ps) == '%') return operand(ps, operands);
  start = ps->p;
  if (text_word(ps, &word, &size) && text_accept(ps, '=')) {
    char *key = weft_arena_strndup(ps->arena, word, size);
    WEFT_TRY_ALLOC(key);
    return keyed(ps, op, key, attrs);
  }
  ps->p = start;
  if (!named(op, "compare") && op->dialect <= SHLO_CHLO)
    return text_fail(ps, start, "expected an operand or an attribute by name");
  WEFT_TRY(text_attr(ps, &a)); /* a word of compare, the constant of check.expect_eq_const */
  const char *name =
    a->kind == MLIR_ENUM && named(op, "compare") ? (attrs->count ? "compare_type" : "comparison_direction") : "value";
  return text_add_attr(ps, attrs, name, a);
}

static weft_status *universal(text_parser *ps, mlir_op *op, text_attrs *attrs)
{
  text_list operands = {0};
  int c = text_peek(ps);
  bool empty = c == ':' || c == '{' || (named(op, "return") && c != '%');
  bool parenthesis = !empty && text_accept(ps, '(');

  if (!empty && !(parenthesis && text_peek(ps) == ')')) {
    do WEFT_TRY(item(ps, op, &operands, attrs));
    while (text_accept(ps, ','));
  }
  if (parenthesis) WEFT_TRY(text_expect(ps, ')'));
  set_operands(op, &operands);
  if (named(op, "return") && text_peek(ps) != ':' && text_peek(ps) != '{') return NULL;
  return tail(ps, op, attrs);
}

/* ---- operations with a syntax of their own ----------------------------------------------------------------------- */

/* constant {attributes} dense<...> : T  or  constant dense<...> : T */
static weft_status *constant(text_parser *ps, mlir_op *op, text_attrs *attrs)
{
  const mlir_attr *a;

  if (text_peek(ps) == '{') WEFT_TRY(text_dict(ps, attrs));
  if (text_peek(ps) == '(') { /* constant() <{value = ...}> : () -> T: as older printers wrote it */
    WEFT_TRY(text_expect(ps, '('));
    WEFT_TRY(text_expect(ps, ')'));
    if (text_accept(ps, '<')) {
      WEFT_TRY(text_dict(ps, attrs));
      WEFT_TRY(text_expect(ps, '>'));
    } else {
      WEFT_TRY(text_dict(ps, attrs));
    }
    return tail(ps, op, attrs);
  }
  WEFT_TRY(text_attr(ps, &a));
  bool is_number = a->kind == MLIR_INT || a->kind == MLIR_FLOAT ||
                   a->kind == MLIR_BOOL; /* arith's, of a type that is no tensor's */
  const mlir_type *type = is_number && !a->type ? mlir_element_type(a->kind == MLIR_BOOL  ? WEFT_PRED
                                                                    : a->kind == MLIR_INT ? WEFT_S64
                                                                                          : WEFT_F64)
                                                : a->type;
  if (!is_number && a->kind != MLIR_DENSE) return text_fail(ps, ps->p, "expected a dense constant");
  WEFT_TRY(text_add_attr(ps, attrs, "value", a));
  if (text_accept_str(ps, "->")) WEFT_TRY(text_type(ps, &type));
  return text_set_results(ps, op, 1, &type);
}

/* xla.rng_get_and_update_state {delta = 1}, whose result is always the same type. */
static weft_status *rng_state(text_parser *ps, mlir_op *op, text_attrs *attrs)
{
  static const int64_t dims[] = {2};
  mlir_type *type = WEFT_ARENA_NEW(ps->arena, mlir_type);
  const mlir_type *results[] = {type};

  WEFT_TRY_ALLOC(type);
  *type = (mlir_type){
    .kind = MLIR_TENSOR, .dtype = WEFT_U64, .rank = 1, .dims = dims, .element = mlir_element_type(WEFT_U64)};
  WEFT_TRY(text_set_results(ps, op, 1, results));
  return tail(ps, op, attrs);
}

static weft_status *string_attr(text_parser *ps, text_attrs *attrs, const char *name, const char *s)
{
  const mlir_attr *a;

  WEFT_TRY(text_word_attr(ps, MLIR_STRING, s, strlen(s), &a));
  return text_add_attr(ps, attrs, name, a);
}

static weft_status *array_of(text_parser *ps, const text_list *items, const mlir_attr **out)
{
  mlir_attr *a;

  WEFT_TRY(text_new_attr(ps, MLIR_ARRAY, &a));
  a->u.array.count = items->count;
  a->u.array.items = (const mlir_attr *const *)items->items;
  *out = a;
  return NULL;
}

/* An optional dictionary, as an attribute. */
static weft_status *optional_dict(text_parser *ps, text_list *dicts)
{
  mlir_attr *a;
  text_attrs attrs = {0};

  if (text_peek(ps) == '{') WEFT_TRY(text_dict(ps, &attrs));
  WEFT_TRY(text_new_attr(ps, MLIR_DICT, &a));
  a->u.dict.count = attrs.count;
  a->u.dict.items = attrs.items;
  return text_push(ps, dicts, a);
}

typedef struct arguments { text_list names, sizes, types, dicts, locations; } arguments;

/* (%a: T {attributes} loc(...), ...) or types alone */
static weft_status *parse_arguments(text_parser *ps, arguments *args)
{
  WEFT_TRY(text_expect(ps, '('));
  while (!text_accept(ps, ')')) {
    const char *name = "";
    size_t size = 0;
    const mlir_type *t;
    const mlir_location *location;
    if (args->types.count > 0) WEFT_TRY(text_expect(ps, ','));
    if (text_peek(ps) == '%') {
      WEFT_TRY(text_value_name(ps, &name, &size));
      WEFT_TRY(text_expect(ps, ':'));
    }
    WEFT_TRY(text_type(ps, &t));
    WEFT_TRY(text_push(ps, &args->names, name));
    WEFT_TRY(text_push(ps, &args->sizes, (void *)size));
    WEFT_TRY(text_push(ps, &args->types, t));
    WEFT_TRY(optional_dict(ps, &args->dicts));
    WEFT_TRY(text_location(ps, &location));
    WEFT_TRY(text_push(ps, &args->locations, location));
  }
  return NULL;
}

static weft_status *region_with(text_parser *ps, mlir_region *region, const arguments *args)
{
  int n = args->types.count;
  mlir_value *values = WEFT_ARENA_ARRAY(ps->arena, mlir_value, n);
  size_t *sizes = WEFT_ARENA_ARRAY(ps->arena, size_t, n);

  WEFT_TRY_ALLOC(values);
  WEFT_TRY_ALLOC(sizes);
  for (int i = 0; i < n; i++) {
    values[i].type = args->types.items[i];
    sizes[i] = (size_t)args->sizes.items[i];
    if (sizes[i] == 0) return text_fail(ps, ps->p, "an argument without name");
  }
  return text_region(ps, region,
                     &(text_arguments){.count = n,
                                       .values = values,
                                       .sizes = sizes,
                                       .names = (const char *const *)args->names.items,
                                       .locations = (const mlir_location **)args->locations.items});
}

/* The body of a function whose arguments are types alone is named by the label of its block: { ^bb0(%a: T): ... } */
static weft_status *labelled_body(text_parser *ps, mlir_region *region, const arguments *args)
{
  const char *at = ps->p;

  WEFT_TRY(text_region(ps, region, NULL));
  const mlir_block *block = region->first;
  if (block->arg_count != args->types.count)
    return text_fail(ps, at, "the body's block has %d arguments, the function %d", block->arg_count, args->types.count);
  for (int i = 0; i < block->arg_count; i++)
    if (!mlir_type_equal(block->args[i].type, args->types.items[i]))
      return text_fail(ps, at, "argument %d of the body's block is of another type than the function's", i);
  return NULL;
}

/* func [public|private] @name(args) [-> results] [attributes {...}] [{ body }] */
static weft_status *func(text_parser *ps, mlir_op *op, text_attrs *attrs)
{
  static const char *const visibilities[] = {"public", "private", "nested"};
  arguments args = {0};
  text_list results = {0}, result_dicts = {0};
  const mlir_attr *a;
  mlir_attr *type_attr;
  mlir_type *type;

  for (size_t i = 0; i < WEFT_COUNT(visibilities); i++)
    if (text_accept_word(ps, visibilities[i])) WEFT_TRY(string_attr(ps, attrs, "sym_visibility", visibilities[i]));
  WEFT_TRY(text_symbol(ps, &a));
  WEFT_TRY(text_add_attr(ps, attrs, "sym_name", a));
  WEFT_TRY(parse_arguments(ps, &args));
  if (text_accept_str(ps, "->")) {
    const mlir_type *t;
    bool parenthesis = text_accept(ps, '(');
    if (!parenthesis || !text_accept(ps, ')')) {
      do {
        WEFT_TRY(text_type(ps, &t));
        WEFT_TRY(text_push(ps, &results, t));
        if (parenthesis) WEFT_TRY(optional_dict(ps, &result_dicts));
      } while (parenthesis && text_accept(ps, ','));
      if (parenthesis) WEFT_TRY(text_expect(ps, ')'));
    }
  }
  if (text_accept_word(ps, "attributes")) WEFT_TRY(text_dict(ps, attrs));
  type = WEFT_ARENA_NEW(ps->arena, mlir_type);
  WEFT_TRY_ALLOC(type);
  *type = (mlir_type){.kind = MLIR_FUNCTION, .count = args.types.count, .result_count = results.count};
  for (int i = 0; i < results.count; i++) WEFT_TRY(text_push(ps, &args.types, results.items[i]));
  type->elements = (const mlir_type *const *)args.types.items;
  args.types.count = type->count;
  WEFT_TRY(text_new_attr(ps, MLIR_TYPE, &type_attr));
  type_attr->type = type;
  WEFT_TRY(text_add_attr(ps, attrs, "function_type", type_attr));
  WEFT_TRY(array_of(ps, &args.dicts, &a));
  WEFT_TRY(text_add_attr(ps, attrs, "arg_attrs", a));
  WEFT_TRY(array_of(ps, &result_dicts, &a));
  WEFT_TRY(text_add_attr(ps, attrs, "res_attrs", a));
  op->regions = WEFT_ARENA_NEW(ps->arena, mlir_region);
  WEFT_TRY_ALLOC(op->regions);
  op->region_count = 1;
  if (text_peek(ps) != '{') return NULL;
  bool labelled = args.types.count && !args.sizes.items[0];
  return (labelled ? labelled_body : region_with)(ps, &op->regions[0], &args);
}

/* module [@name] [attributes {...}] { ... } */
static weft_status *module(text_parser *ps, mlir_op *op, text_attrs *attrs)
{
  const mlir_attr *a;

  if (text_peek(ps) == '@') {
    WEFT_TRY(text_symbol(ps, &a));
    WEFT_TRY(text_add_attr(ps, attrs, "sym_name", a));
  }
  if (text_accept_word(ps, "attributes")) WEFT_TRY(text_dict(ps, attrs));
  op->regions = WEFT_ARENA_NEW(ps->arena, mlir_region);
  WEFT_TRY_ALLOC(op->regions);
  op->region_count = 1;
  return text_region(ps, &op->regions[0], NULL);
}

static weft_status *parenthesized_operands(text_parser *ps, text_list *operands)
{
  WEFT_TRY(text_expect(ps, '('));
  while (!text_accept(ps, ')')) {
    if (operands->count > 0) WEFT_TRY(text_expect(ps, ','));
    WEFT_TRY(operand(ps, operands));
  }
  return NULL;
}

/* call @f(%a) {...} : (T) -> U; custom_call @target(%a) {...} : (T) -> U */
static weft_status *call(text_parser *ps, mlir_op *op, text_attrs *attrs)
{
  text_list operands = {0};
  const mlir_attr *a;

  WEFT_TRY(text_symbol(ps, &a));
  WEFT_TRY(text_add_attr(ps, attrs, named(op, "call") ? "callee" : "call_target_name", a));
  WEFT_TRY(parenthesized_operands(ps, &operands));
  set_operands(op, &operands);
  return tail(ps, op, attrs);
}

/* composite "name" %a, %b {...} : (T) -> U */
static weft_status *composite(text_parser *ps, mlir_op *op, text_attrs *attrs)
{
  char *name;
  size_t size;

  WEFT_TRY(text_string(ps, &name, &size));
  WEFT_TRY(string_attr(ps, attrs, "name", name));
  return universal(ps, op, attrs);
}

/* slice %x [0:4:2, 1:3] : (T) -> U */
static weft_status *slice(text_parser *ps, mlir_op *op, text_attrs *attrs)
{
  static const char *const names[] = {"start_indices", "limit_indices", "strides"};
  text_list operands = {0}, parts[3] = {0};
  const mlir_attr *a;

  WEFT_TRY(operand(ps, &operands));
  set_operands(op, &operands);
  WEFT_TRY(text_expect(ps, '['));
  while (!text_accept(ps, ']')) {
    if (parts[0].count > 0) WEFT_TRY(text_expect(ps, ','));
    for (int i = 0; i < 3; i++) {
      mlir_attr *one;
      if (i == 2 && text_peek(ps) != ':') {
        WEFT_TRY(text_new_attr(ps, MLIR_INT, &one));
        one->u.i = 1;
        a = one;
      } else {
        if (i > 0) WEFT_TRY(text_expect(ps, ':'));
        ps->bare_numbers = true;
        WEFT_TRY(text_attr(ps, &a));
        ps->bare_numbers = false;
        if (a->kind != MLIR_INT) return text_fail(ps, ps->p, "expected an integer");
      }
      WEFT_TRY(text_push(ps, &parts[i], a));
    }
  }
  for (int i = 0; i < 3; i++) {
    WEFT_TRY(array_of(ps, &parts[i], &a));
    WEFT_TRY(text_add_attr(ps, attrs, names[i], a));
  }
  return tail(ps, op, attrs);
}

/* get_tuple_element %t[1] : (tuple<...>) -> T */
static weft_status *get_tuple_element(text_parser *ps, mlir_op *op, text_attrs *attrs)
{
  text_list operands = {0};
  const mlir_attr *a;

  WEFT_TRY(operand(ps, &operands));
  set_operands(op, &operands);
  WEFT_TRY(text_expect(ps, '['));
  WEFT_TRY(text_attr(ps, &a));
  WEFT_TRY(text_add_attr(ps, attrs, "index", a));
  WEFT_TRY(text_expect(ps, ']'));
  return tail(ps, op, attrs);
}

/* convolution(%a, %b) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {...} {...} : ... */
static weft_status *convolution(text_parser *ps, mlir_op *op, text_attrs *attrs)
{
  static const struct { const char *key, *attr; } keys[] = {{"stride", "window_strides"}, {"pad", "padding"},
      {"lhs_dilate", "lhs_dilation"}, {"rhs_dilate", "rhs_dilation"}, {"reverse", "window_reversal"}};
  text_list operands = {0};
  text_attrs window = {0};

  WEFT_TRY(parenthesized_operands(ps, &operands));
  set_operands(op, &operands);
  WEFT_TRY(text_expect_word(ps, "dim_numbers"));
  WEFT_TRY(text_expect(ps, '='));
  WEFT_TRY(text_conv_dims(ps, attrs));
  if (text_accept(ps, ',')) {
    WEFT_TRY(text_expect_word(ps, "window"));
    WEFT_TRY(text_expect(ps, '='));
    WEFT_TRY(text_dict(ps, &window));
  }
  for (int i = 0; i < window.count; i++)
    for (size_t k = 0; k < WEFT_COUNT(keys); k++)
      if (strcmp(window.items[i].name, keys[k].key) == 0)
        WEFT_TRY(text_add_attr(ps, attrs, keys[k].attr, window.items[i].value));
  return tail(ps, op, attrs);
}

/* The region of `applies d.op`: one operation on two scalars. */
static weft_status *applied_region(text_parser *ps, mlir_op *op, const char *name, size_t size)
{
  mlir_block *block = WEFT_ARENA_NEW(ps->arena, mlir_block);
  mlir_op *body, *ret;
  const mlir_type *scalar;
  const mlir_value *init = op->operands[op->operand_count - 1];

  WEFT_TRY_ALLOC(block);
  WEFT_TRY(mlir_new_tensor(ps->arena, init->type->element ? init->type->element : init->type, 0, NULL, NULL, &scalar));
  block->arg_count = 2;
  block->args = WEFT_ARENA_ARRAY(ps->arena, mlir_value, 2);
  WEFT_TRY_ALLOC(block->args);
  block->args[0].type = block->args[1].type = scalar;
  WEFT_TRY(text_new_op(ps, name, size, &body));
  body->operand_count = 2;
  body->operands = WEFT_ARENA_ARRAY(ps->arena, mlir_value *, 2);
  WEFT_TRY_ALLOC(body->operands);
  for (int i = 0; i < 2; i++) body->operands[i] = &block->args[i];
  WEFT_TRY(text_set_results(ps, body, 1, &scalar));
  WEFT_TRY(text_new_op(ps, "stablehlo.return", strlen("stablehlo.return"), &ret));
  ret->operand_count = 1;
  ret->operands = WEFT_ARENA_NEW(ps->arena, mlir_value *);
  WEFT_TRY_ALLOC(ret->operands);
  ret->operands[0] = body->results;
  text_append(block, body);
  text_append(block, ret);
  op->regions[0] = (mlir_region){block, 1};
  WEFT_TRY(text_location(ps, &op->location)); /* theirs too */
  body->location = ret->location = op->location;
  block->arg_locations = WEFT_ARENA_ARRAY(ps->arena, const mlir_location *, 2);
  WEFT_TRY_ALLOC(block->arg_locations);
  for (int i = 0; i < 2; i++) block->arg_locations[i] = op->location;
  return NULL;
}

/* reduce(%x init: %i), (%y init: %j) [applies d.op] across dimensions = [1] {...} : types
 *   [reducer(%acc0: t, %val0: t) (%acc1: t, %val1: t) { ... }]: printed in pairs, accumulators first in the region */
static weft_status *reduce(text_parser *ps, mlir_op *op, text_attrs *attrs)
{
  text_list operands = {0}, inits = {0};
  const char *word = NULL;
  size_t size = 0;
  const mlir_attr *a;
  arguments pairs = {0}, args = {0};

  do {
    WEFT_TRY(text_expect(ps, '('));
    WEFT_TRY(operand(ps, &operands));
    WEFT_TRY(text_expect_word(ps, "init"));
    WEFT_TRY(text_expect(ps, ':'));
    WEFT_TRY(operand(ps, &inits));
    WEFT_TRY(text_expect(ps, ')'));
  } while (text_accept(ps, ','));
  int n = inits.count;
  for (int i = 0; i < n; i++) WEFT_TRY(text_push(ps, &operands, inits.items[i]));
  set_operands(op, &operands);
  bool applies = text_accept_word(ps, "applies");
  if (applies && !text_word(ps, &word, &size)) return text_fail(ps, ps->p, "expected an operation");
  WEFT_TRY(text_expect_word(ps, "across"));
  WEFT_TRY(text_expect_word(ps, "dimensions"));
  WEFT_TRY(text_expect(ps, '='));
  WEFT_TRY(text_attr(ps, &a));
  WEFT_TRY(text_add_attr(ps, attrs, "dimensions", a));
  WEFT_TRY(tail(ps, op, attrs));
  op->regions = WEFT_ARENA_NEW(ps->arena, mlir_region);
  WEFT_TRY_ALLOC(op->regions);
  op->region_count = 1;
  if (applies) return applied_region(ps, op, word, size);
  WEFT_TRY(text_expect_word(ps, "reducer"));
  while (text_peek(ps) == '(') {
    arguments pair = {0};
    WEFT_TRY(parse_arguments(ps, &pair));
    if (pair.types.count != 2) return text_fail(ps, ps->p, "expected an accumulator and a value");
    for (int i = 0; i < 2; i++) {
      WEFT_TRY(text_push(ps, &pairs.names, pair.names.items[i]));
      WEFT_TRY(text_push(ps, &pairs.sizes, pair.sizes.items[i]));
      WEFT_TRY(text_push(ps, &pairs.types, pair.types.items[i]));
    }
  }
  WEFT_TRY(text_location(ps, &op->location));
  for (int side = 0; side < 2; side++)
    for (int i = side; i < pairs.types.count; i += 2) {
      WEFT_TRY(text_push(ps, &args.names, pairs.names.items[i]));
      WEFT_TRY(text_push(ps, &args.sizes, pairs.sizes.items[i]));
      WEFT_TRY(text_push(ps, &args.types, pairs.types.items[i]));
    }
  return region_with(ps, &op->regions[0], &args);
}

/* while(%arg = %x, ...) : T, ... [attributes {...}] cond { ... } do { ... } */
static weft_status *while_op(text_parser *ps, mlir_op *op, text_attrs *attrs)
{
  text_list operands = {0};
  arguments args = {0};

  WEFT_TRY(text_expect(ps, '('));
  while (!text_accept(ps, ')')) {
    const char *name;
    size_t size;
    if (operands.count > 0) WEFT_TRY(text_expect(ps, ','));
    WEFT_TRY(text_value_name(ps, &name, &size));
    WEFT_TRY(text_push(ps, &args.names, name));
    WEFT_TRY(text_push(ps, &args.sizes, (void *)size));
    WEFT_TRY(text_expect(ps, '='));
    WEFT_TRY(operand(ps, &operands));
  }
  set_operands(op, &operands);
  if (text_accept(ps, ':')) WEFT_TRY(text_types(ps, &args.types));
  if (args.types.count != operands.count)
    return text_fail(ps, ps->p, "%d types for %d operands", args.types.count, operands.count);
  WEFT_TRY(text_set_results(ps, op, args.types.count, (const mlir_type *const *)args.types.items));
  if (text_accept_word(ps, "attributes")) WEFT_TRY(text_dict(ps, attrs));
  op->regions = WEFT_ARENA_ARRAY(ps->arena, mlir_region, 2);
  WEFT_TRY_ALLOC(op->regions);
  op->region_count = 2;
  WEFT_TRY(text_expect_word(ps, "cond"));
  WEFT_TRY(region_with(ps, &op->regions[0], &args));
  WEFT_TRY(text_expect_word(ps, "do"));
  return region_with(ps, &op->regions[1], &args);
}

static weft_status *segments(text_parser *ps, text_attrs *attrs, const char *name, int first, int second)
{
  text_list items = {0};
  const mlir_attr *a;

  WEFT_TRY(text_int_attr(ps, first, &a));
  WEFT_TRY(text_push(ps, &items, a));
  WEFT_TRY(text_int_attr(ps, second, &a));
  WEFT_TRY(text_push(ps, &items, a));
  WEFT_TRY(array_of(ps, &items, &a));
  ((mlir_attr *)(uintptr_t)a)->type = mlir_element_type(WEFT_S32);
  return text_add_attr(ps, attrs, name, a);
}

/* scan(%x, ...) inits(%c, ...) dimension = 0 [attributes {...}] { region } : types */
static weft_status *scan(text_parser *ps, mlir_op *op, text_attrs *attrs)
{
  text_list operands = {0}, inits = {0};
  const mlir_attr *a;

  WEFT_TRY(parenthesized_operands(ps, &operands));
  WEFT_TRY(text_expect_word(ps, "inits"));
  WEFT_TRY(parenthesized_operands(ps, &inits));
  int inputs = operands.count;
  for (int i = 0; i < inits.count; i++) WEFT_TRY(text_push(ps, &operands, inits.items[i]));
  set_operands(op, &operands);
  WEFT_TRY(text_expect_word(ps, "dimension"));
  WEFT_TRY(text_expect(ps, '='));
  WEFT_TRY(text_attr(ps, &a));
  WEFT_TRY(text_add_attr(ps, attrs, "dimension", a));
  if (text_accept_word(ps, "attributes")) WEFT_TRY(text_dict(ps, attrs));
  op->regions = WEFT_ARENA_NEW(ps->arena, mlir_region);
  WEFT_TRY_ALLOC(op->regions);
  op->region_count = 1;
  WEFT_TRY(text_region(ps, &op->regions[0], NULL));
  WEFT_TRY(tail(ps, op, attrs));
  WEFT_TRY(segments(ps, attrs, "operandSegmentSizes", inputs, inits.count));
  return segments(ps, attrs, "resultSegmentSizes", op->result_count - inits.count, inits.count);
}

/* ---- Shardy ------------------------------------------------------------------------------------------------------ */

/* Text up to the next `%`, `:`, `(` or the end of the line's operation, kept as an opaque attribute. */
static weft_status *opaque_until(text_parser *ps, const char *stops, const char *name, text_attrs *attrs)
{
  const char *start, *text;
  size_t size;
  const mlir_attr *a;

  text_peek(ps);
  start = ps->p;
  while (ps->p < ps->end && !strchr(stops, *ps->p)) {
    char c = *ps->p;
    char close = c == '<' ? '>' : c == '[' ? ']' : c == '{' ? '}' : c == '(' ? ')' : '\0';
    ps->p++;
    if (!close) continue;
    WEFT_TRY(text_balanced(ps, close, &text, &size));
    ps->p++;
  }
  if (ps->p == start) return NULL;
  WEFT_TRY(text_word_attr(ps, MLIR_OPAQUE, start, (size_t)(ps->p - start), &a));
  return text_add_attr(ps, attrs, name, a);
}

/* mesh @name = <["x"=2]> */
static weft_status *sdy_mesh(text_parser *ps, mlir_op *op, text_attrs *attrs)
{
  const mlir_attr *a;

  (void)op;
  WEFT_TRY(text_symbol(ps, &a));
  WEFT_TRY(text_add_attr(ps, attrs, "sym_name", a));
  WEFT_TRY(text_expect(ps, '='));
  if (text_accept(ps, '<')) {
    WEFT_TRY(text_sdy_mesh(ps, &a));
    WEFT_TRY(text_expect(ps, '>'));
  } else {
    WEFT_TRY(text_attr(ps, &a)); /* #sdy.mesh<...>, or an alias of it */
  }
  WEFT_TRY(text_add_attr(ps, attrs, "mesh", a));
  return text_peek(ps) == '{' ? text_dict(ps, attrs) : NULL;
}

/* manual_computation(%a) in_shardings=[...] out_shardings=[...] manual_axes={...} (%arg: T) { ... } : (T) -> U, and
 * named_computation<"name">(%a) [in_shardings=... out_shardings=...] (%arg: T) { ... } {...} : (T) -> U */
static weft_status *sdy_computation(text_parser *ps, mlir_op *op, text_attrs *attrs)
{
  static const char *const shardings[] = {"in_shardings", "out_shardings"};
  text_list operands = {0};
  arguments args = {0};
  const mlir_attr *a;

  if (text_accept(ps, '<')) {
    WEFT_TRY(text_attr(ps, &a));
    WEFT_TRY(text_add_attr(ps, attrs, "name", a));
    WEFT_TRY(text_expect(ps, '>'));
  }
  WEFT_TRY(parenthesized_operands(ps, &operands));
  set_operands(op, &operands);
  for (size_t i = 0; i < WEFT_COUNT(shardings); i++) {
    if (!text_accept_word(ps, shardings[i])) continue;
    WEFT_TRY(text_expect(ps, '='));
    WEFT_TRY(text_sdy_per_value(ps, &a));
    WEFT_TRY(text_add_attr(ps, attrs, shardings[i], a));
  }
  if (text_accept_word(ps, "manual_axes")) {
    WEFT_TRY(text_expect(ps, '='));
    WEFT_TRY(text_sdy_manual_axes(ps, &a));
    WEFT_TRY(text_add_attr(ps, attrs, "manual_axes", a));
  }
  WEFT_TRY(parse_arguments(ps, &args));
  op->regions = WEFT_ARENA_NEW(ps->arena, mlir_region);
  WEFT_TRY_ALLOC(op->regions);
  op->region_count = 1;
  WEFT_TRY(region_with(ps, &op->regions[0], &args));
  return tail(ps, op, attrs);
}

/* sharding_constraint %x <@mesh, [...]> : T; all_gather [{...}] %x out_sharding=<...> : T; ... */
static weft_status *sdy_op(text_parser *ps, mlir_op *op, text_attrs *attrs)
{
  text_list operands = {0};

  WEFT_TRY(opaque_until(ps, "%:", "before", attrs));
  while (text_peek(ps) == '%') {
    WEFT_TRY(operand(ps, &operands));
    if (!text_accept(ps, ',')) break;
  }
  set_operands(op, &operands);
  if (text_accept(ps, '<')) {
    const mlir_attr *a;
    WEFT_TRY(text_sdy_sharding(ps, &a));
    WEFT_TRY(text_add_attr(ps, attrs, "sharding", a));
    WEFT_TRY(text_expect(ps, '>'));
  } else {
    WEFT_TRY(opaque_until(ps, ":", "after", attrs));
  }
  return tail(ps, op, attrs);
}

/* ---- shape and tensor -------------------------------------------------------------------------------------------- */

static weft_status *set_unsaid_result(text_parser *ps, mlir_op *op, mlir_type_kind kind, const char *text)
{
  mlir_type *t = WEFT_ARENA_NEW(ps->arena, mlir_type);
  const mlir_type *type = t;

  WEFT_TRY_ALLOC(t);
  *t = (mlir_type){.kind = kind, .dtype = kind == MLIR_INDEX ? WEFT_S64 : WEFT_INVALID, .text = text};
  return text_set_results(ps, op, 1, &type);
}

/* dim %x, %i : T; extract %x[%i] : T; cstr_eq %a, %b : T, U; const_size 4: the result's type goes without saying */
static weft_status *unsaid_result(text_parser *ps, mlir_op *op, text_attrs *attrs)
{
  text_list operands = {0}, types = {0};
  const mlir_attr *a;

  bool is_constant = strncmp(op->name, "shape.const_", 12) == 0;
  if (is_constant) {
    ps->bare_numbers = true;
    WEFT_TRY(text_attr(ps, &a));
    ps->bare_numbers = false;
    WEFT_TRY(text_add_attr(ps, attrs, "value", a));
  }
  while (!is_constant && text_peek(ps) == '%') { /* behind a constant it is the next operation's result */
    WEFT_TRY(operand(ps, &operands));
    if (!text_accept(ps, ',')) break;
  }
  if (text_accept(ps, '[')) {
    while (!text_accept(ps, ']')) {
      WEFT_TRY(operand(ps, &operands));
      if (text_peek(ps) != ']') WEFT_TRY(text_expect(ps, ','));
    }
  }
  set_operands(op, &operands);
  if (text_peek(ps) == '{') WEFT_TRY(text_dict(ps, attrs));
  if (text_accept(ps, ':')) WEFT_TRY(text_types(ps, &types));
  if (named(op, "tensor.extract")) {
    const mlir_type *of = types.count == 1 ? types.items[0] : NULL;
    if (!of || !of->element) return text_fail(ps, ps->p, "expected the type of an array");
    return text_set_results(ps, op, 1, &of->element);
  }
  if (text_accept_str(ps, "->")) { /* after all */
    types.count = 0;
    WEFT_TRY(text_type_list(ps, &types));
    return text_set_results(ps, op, types.count, (const mlir_type *const *)types.items);
  }
  if (strncmp(op->name, "tensor.", 7) == 0) return set_unsaid_result(ps, op, MLIR_INDEX, NULL);
  return set_unsaid_result(ps, op, MLIR_OTHER,
                           named(op, "shape.const_size")     ? "!shape.size"
                           : named(op, "shape.from_extents") ? "!shape.shape"
                                                             : "!shape.witness");
}

/* assuming %w [-> (T, ...)] { ... } */
static weft_status *assuming(text_parser *ps, mlir_op *op, text_attrs *attrs)
{
  text_list operands = {0}, types = {0};

  WEFT_TRY(operand(ps, &operands));
  set_operands(op, &operands);
  if (text_accept_str(ps, "->")) WEFT_TRY(text_type_list(ps, &types));
  WEFT_TRY(text_set_results(ps, op, types.count, (const mlir_type *const *)types.items));
  op->regions = WEFT_ARENA_NEW(ps->arena, mlir_region);
  WEFT_TRY_ALLOC(op->regions);
  op->region_count = 1;
  WEFT_TRY(text_region(ps, &op->regions[0], NULL));
  return text_peek(ps) == '{' ? text_dict(ps, attrs) : NULL;
}

/* How an operation is written. */
typedef struct assembly {
  shlo_dialect dialect;
  const char *name;
  weft_status *(*parse)(text_parser *, mlir_op *, text_attrs *);
} assembly;

static const assembly *find_assembly(const mlir_op_kind *kind)
{
  static const assembly special[] = {
      {SHLO_STABLEHLO, "constant", constant}, {SHLO_FUNC, "func", func}, {SHLO_BUILTIN, "module", module},
      {SHLO_FUNC, "call", call}, {SHLO_STABLEHLO, "custom_call", call}, {SHLO_STABLEHLO, "composite", composite},
      {SHLO_STABLEHLO, "slice", slice}, {SHLO_STABLEHLO, "get_tuple_element", get_tuple_element},
      {SHLO_STABLEHLO, "convolution", convolution}, {SHLO_STABLEHLO, "dynamic_conv", convolution},
      {SHLO_CHLO, "scan", scan}, {SHLO_STABLEHLO, "reduce", reduce}, {SHLO_STABLEHLO, "while", while_op}, {SHLO_SDY, "mesh", sdy_mesh},
      {SHLO_STABLEHLO, "xla.rng_get_and_update_state", rng_state}, {SHLO_SDY, "constant", constant},
      {SHLO_SDY, "manual_computation", sdy_computation}, {SHLO_SDY, "named_computation", sdy_computation},
      {SHLO_SDY, "return", universal}, {SHLO_OTHER, "shape.assuming", assuming},
      {SHLO_OTHER, "shape.assuming_all", unsaid_result}, {SHLO_OTHER, "shape.const_size", unsaid_result},
      {SHLO_OTHER, "shape.const_witness", unsaid_result}, {SHLO_OTHER, "shape.cstr_broadcastable", unsaid_result},
      {SHLO_OTHER, "shape.cstr_eq", unsaid_result}, {SHLO_OTHER, "shape.cstr_require", unsaid_result},
      {SHLO_OTHER, "shape.from_extents", unsaid_result}, {SHLO_OTHER, "tensor.dim", unsaid_result},
      {SHLO_OTHER, "tensor.extract", unsaid_result}, {SHLO_OTHER, "tensor.rank", unsaid_result},
  };

  static const assembly sdy = {.parse = sdy_op}, other = {.parse = universal};

  for (size_t i = 0; i < WEFT_COUNT(special); i++)
    if (special[i].dialect == kind->dialect && strcmp(special[i].name, kind->name) == 0) return &special[i];
  return kind->dialect == SHLO_SDY ? &sdy : &other;
}

weft_status *text_pretty_op(text_parser *ps, mlir_op *op, text_attrs *attrs)
{
  if (!op->kind->assembly) op->kind->assembly = find_assembly(op->kind);
  return ((const assembly *)op->kind->assembly)->parse(ps, op, attrs);
}
