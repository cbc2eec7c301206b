/* stablehlo/print.c -- programs as MLIR text that MLIR's parser takes: custom assembly where an operation's is a list
 * of operands and `key = [...]`, the generic form for the rest. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stablehlo/mlir_text.h"
#include "stablehlo/print.h"

/* mlir_location.made_by: the printer's, no lowering has such numbers */
enum { NUMBERED = -1, BUSY = -2, DEFINED = -3 };
enum { DEEPEST_LOCATION = 1024 };

static void new_line(shlo_printer *p) { fprintf(p->out, "\n%*s", 2 * p->indent, ""); }

/* ---- operations -------------------------------------------------------------------------------------------------- */

static void print_block(shlo_printer *p, const mlir_block *block, bool label);

static void name_values(shlo_printer *p, int count, mlir_value *values)
{
  for (int i = 0; i < count; i++) values[i].stamp = p->next_value++;
}

static void print_values(shlo_printer *p, int count, mlir_value *const *values)
{
  for (int i = 0; i < count; i++) fprintf(p->out, "%s%%%d", i ? ", " : "", values[i]->stamp);
}

/* (T, U) -> V */
static void print_signature(shlo_printer *p, const mlir_op *op)
{
  shlo_put(p, "(");
  for (int i = 0; i < op->operand_count; i++) {
    if (i) shlo_put(p, ", ");
    shlo_print_type(p, op->operands[i]->type);
  }
  shlo_put(p, ") -> ");
  if (op->result_count != 1) shlo_put(p, "(");
  for (int i = 0; i < op->result_count; i++) {
    if (i) shlo_put(p, ", ");
    shlo_print_type(p, op->results[i].type);
  }
  if (op->result_count != 1) shlo_put(p, ")");
}

/* `{ blocks }`; names the arguments of the first block with their types if `label`. */
static void print_region(shlo_printer *p, const mlir_region *region, bool label)
{
  shlo_put(p, "{");
  p->indent++;
  for (const mlir_block *b = region->first; b; b = b->next) print_block(p, b, label || b != region->first);
  p->indent--;
  new_line(p);
  shlo_put(p, "}");
}

static const char *dialect_of(const mlir_op *op)
{
  static const char *const names[] = {[SHLO_STABLEHLO] = "stablehlo.", [SHLO_CHLO] = "chlo.", [SHLO_FUNC] = "func.",
                                      [SHLO_CHECK] = "check.", [SHLO_INTERPRETER] = "interpreter.", [SHLO_SDY] = "sdy.",
                                      [SHLO_BUILTIN] = "builtin.", [SHLO_OTHER] = ""};

  return names[op->dialect];
}

static void print_generic(shlo_printer *p, const mlir_op *op)
{
  fprintf(p->out, "\"%s%s\"(", dialect_of(op), op->name);
  print_values(p, op->operand_count, op->operands);
  shlo_put(p, ")");
  for (int r = 0; r < op->region_count; r++) {
    shlo_put(p, r ? ", " : " (");
    print_region(p, &op->regions[r], true);
  }
  if (op->region_count) shlo_put(p, ")");
  shlo_print_attributes(p, op, NULL, " {");
  shlo_put(p, " : ");
  print_signature(p, op);
}

static bool named(const mlir_op *op, const char *name) { return strcmp(op->name, name) == 0; }

static void print_attr_dict(shlo_printer *p, const mlir_attr *dicts, int i)
{
  static mlir_op_kind kind = {.name = "", .dialect = SHLO_FUNC};
  const mlir_attr *dict = dicts && dicts->kind == MLIR_ARRAY && i < dicts->u.array.count ? dicts->u.array.items[i]
                                                                                         : NULL;

  if (!dict || dict->kind != MLIR_DICT) return;
  mlir_op holder = {.name = "", .dialect = SHLO_FUNC, .kind = &kind, .attrs = dict->u.dict.items,
                    .attr_count = dict->u.dict.count};
  shlo_print_attributes(p, &holder, NULL, " {");
}

/* ---- locations --------------------------------------------------------------------------------------------------- */

static const mlir_location *aliased(const mlir_location *loc)
{
  for (int steps = 0; loc && loc->inner && !loc->name && !mlir_is_call_site(loc); loc = loc->inner)
    if (++steps > MLIR_MAX_DEPTH) return NULL;
  return loc;
}

/* True if it says anything. */
static bool is_known(const mlir_location *loc)
{
  loc = aliased(loc);
  return loc && (loc->name || loc->file || mlir_is_call_site(loc) || loc->rest_count);
}

/* The location that `location` stands for, with a number; NULL: no memory. */
static mlir_location *number_location(shlo_printer *p, const mlir_location *location)
{
  mlir_location *loc = (mlir_location *)(uintptr_t)aliased(location); /* ours: the program's */

  if (loc->made_by < 0) return loc;
  if (!WEFT_ARENA_RESERVE(&p->scratch, p->locations, p->location_capacity, p->location_count + 1, 64)) {
    shlo_keep(p, WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory"));
    return NULL;
  }
  loc->made_by = NUMBERED;
  loc->number = p->location_count;
  return p->locations[p->location_count++] = loc;
}

/* Prints a reference to the location, whose definition stands behind the module. */
static void print_location(shlo_printer *p, const mlir_location *location)
{
  const mlir_location *loc = is_known(location) ? number_location(p, location) : NULL;

  if (loc) fprintf(p->out, " loc(#loc%d)", loc->number + 1);
}

static void print_place(shlo_printer *p, const mlir_location *loc)
{
  shlo_print_string(p, loc->file, strlen(loc->file));
  fprintf(p->out, ":%d:%d", loc->line, loc->column);
  if (loc->end_line == loc->line && loc->end_column == loc->column) return;
  shlo_put(p, " to ");
  if (loc->end_line != loc->line) fprintf(p->out, "%d", loc->end_line);
  fprintf(p->out, ":%d", loc->end_column);
}

/* A part of a location that is being defined: a part that has no definition yet, because it is in a circle or nested
 * too deep, is printed as unknown. */
static void print_part(shlo_printer *p, const mlir_location *loc)
{
  bool is_defined = is_known(loc) && aliased(loc)->made_by == DEFINED;

  if (is_defined) fprintf(p->out, "#loc%d", aliased(loc)->number + 1);
  else shlo_put(p, "unknown");
}

static void print_definition(shlo_printer *p, const mlir_location *loc)
{
  fprintf(p->out, "\n#loc%d = loc(", loc->number + 1);
  if (loc->file) {
    print_place(p, loc);
  } else if (loc->name) {
    shlo_print_string(p, loc->name, strlen(loc->name));
    if (is_known(loc->inner)) {
      shlo_put(p, "(");
      print_part(p, loc->inner);
      shlo_put(p, ")");
    }
  } else if (mlir_is_call_site(loc)) {
    shlo_put(p, "callsite(");
    print_part(p, loc->inner);
    shlo_put(p, " at ");
    print_part(p, loc->caller);
    shlo_put(p, ")");
  } else {
    shlo_put(p, "fused[");
    for (int i = 0; i < loc->rest_count; i++) {
      shlo_put(p, i ? ", " : "");
      print_part(p, loc->rest[i]);
    }
    shlo_put(p, "]");
  }
  shlo_put(p, ")");
}

/* An alias may use only aliases that are defined before it, so the parts of `loc` are defined first. */
static void define_location(shlo_printer *p, const mlir_location *location, int depth)
{
  mlir_location *loc;

  if (p->st || depth > DEEPEST_LOCATION || !is_known(location)) return;
  loc = number_location(p, location);
  if (!loc || loc->made_by != NUMBERED) return;
  loc->made_by = BUSY;
  define_location(p, loc->inner, depth + 1);
  if (mlir_is_call_site(loc)) define_location(p, loc->caller, depth + 1);
  for (int i = 0; i < loc->rest_count; i++) define_location(p, loc->rest[i], depth + 1);
  print_definition(p, loc);
  loc->made_by = DEFINED;
}

static void define_locations(shlo_printer *p)
{
  for (int count = p->location_count; p->locations_done < count; p->locations_done++)
    define_location(p, p->locations[p->locations_done], 0);
  p->locations_done = p->location_count;
}

static void print_argument_location(shlo_printer *p, const mlir_block *block, int i)
{
  if (block && block->arg_locations) print_location(p, block->arg_locations[i]);
}

static void print_func(shlo_printer *p, const mlir_op *op)
{
  static const char *const done[] = {"sym_name", "sym_visibility", "function_type", "arg_attrs", "res_attrs", NULL};
  const mlir_attr *type = mlir_attr_of(op, "function_type");
  const mlir_attr *args = mlir_attr_of(op, "arg_attrs"), *results = mlir_attr_of(op, "res_attrs");
  const char *visibility = mlir_attr_text(mlir_attr_of(op, "sym_visibility"), "");
  const mlir_block *block = op->region_count ? op->regions[0].first : NULL;
  int count = 0;

  fprintf(p->out, "func.func %s%s", visibility, visibility[0] ? " " : "");
  shlo_print_symbol(p, mlir_attr_text(mlir_attr_of(op, "sym_name"), "main"));
  shlo_put(p, "(");
  if (type && type->kind == MLIR_TYPE && type->type->kind == MLIR_FUNCTION) count = type->type->result_count;
  int inputs = block ? block->arg_count : type && type->kind == MLIR_TYPE ? type->type->count : 0;
  if (block) name_values(p, inputs, block->args);
  for (int i = 0; i < inputs; i++) {
    if (i) shlo_put(p, ", ");
    if (block) fprintf(p->out, "%%%d: ", block->args[i].stamp);
    shlo_print_type(p, block ? block->args[i].type : type->type->elements[i]);
    print_attr_dict(p, args, i);
    print_argument_location(p, block, i);
  }
  shlo_put(p, ")");
  if (count > 0) shlo_put(p, " -> (");
  for (int i = 0; i < count; i++) {
    if (i) shlo_put(p, ", ");
    shlo_print_type(p, type->type->elements[type->type->count + i]);
    print_attr_dict(p, results, i);
  }
  if (count > 0) shlo_put(p, ")");
  shlo_print_attributes(p, op, done, " attributes {");
  if (!block) return;
  shlo_put(p, " ");
  p->in_function = true;
  print_region(p, &op->regions[0], false);
  p->in_function = false;
}

static void print_module(shlo_printer *p, const mlir_op *op)
{
  static const char *const done[] = {"sym_name", NULL};
  const char *name = mlir_attr_text(mlir_attr_of(op, "sym_name"), NULL);

  shlo_put(p, "module ");
  if (name) {
    shlo_print_symbol(p, name);
    shlo_put(p, " ");
  }
  shlo_print_attributes(p, op, done, "attributes {");
  shlo_put(p, op->attr_count ? " " : "");
  if (op->region_count > 0) print_region(p, &op->regions[0], false);
  else shlo_put(p, "{}");
  print_location(p, op->location);
}

/* while(%arg = %x, ...) : T, ... cond { ... } do { ... }: both regions have arguments of the same names. */
static bool print_while(shlo_printer *p, const mlir_op *op)
{
  const mlir_block *cond, *body;
  int n = op->operand_count;

  if (op->region_count != 2 || op->regions[0].block_count != 1 || op->regions[1].block_count != 1 || n == 0)
    return false;
  cond = op->regions[0].first;
  body = op->regions[1].first;
  if (cond->arg_count != n || body->arg_count != n) return false;
  name_values(p, n, cond->args);
  for (int i = 0; i < n; i++) body->args[i].stamp = cond->args[i].stamp;
  shlo_put(p, "stablehlo.while(");
  for (int i = 0; i < n; i++)
    fprintf(p->out, "%s%%%d = %%%d", i ? ", " : "", cond->args[i].stamp, op->operands[i]->stamp);
  shlo_put(p, ") : ");
  for (int i = 0; i < n; i++) {
    if (i) shlo_put(p, ", ");
    shlo_print_type(p, op->operands[i]->type);
  }
  shlo_print_attributes(p, op, NULL, " attributes {");
  shlo_put(p, " cond ");
  print_region(p, &op->regions[0], false);
  shlo_put(p, " do ");
  print_region(p, &op->regions[1], false);
  return true;
}

static bool print_constant(shlo_printer *p, const mlir_op *op)
{
  static const char *const done[] = {"value", NULL};
  const mlir_attr *value = mlir_attr_of(op, "value");

  if (!value || value->kind != MLIR_DENSE || op->result_count != 1 ||
      !mlir_type_equal(value->type, op->results[0].type))
    return false;
  shlo_put(p, "stablehlo.constant");
  shlo_print_attributes(p, op, done, " {");
  shlo_put(p, " ");
  shlo_keep(p, shlo_print_dense(p, value));
  return true;
}

static void print_return(shlo_printer *p, const mlir_op *op)
{
  fprintf(p->out, "%sreturn", p->in_function ? "" : dialect_of(op));
  if (op->operand_count > 0) shlo_put(p, " ");
  print_values(p, op->operand_count, op->operands);
  for (int i = 0; i < op->operand_count; i++) {
    shlo_put(p, i ? ", " : " : ");
    shlo_print_type(p, op->operands[i]->type);
  }
}

static bool print_compare(shlo_printer *p, const mlir_op *op)
{
  static const char *const done[] = {"comparison_direction", "compare_type", NULL};
  const mlir_attr *type = mlir_attr_of(op, "compare_type");

  if (op->operand_count != 2) return false;
  fprintf(p->out, "stablehlo.compare %s, %%%d, %%%d", mlir_attr_text(mlir_attr_of(op, done[0]), "EQ"),
          op->operands[0]->stamp, op->operands[1]->stamp);
  if (type && !shlo_print_is_neutral(p, type, "NOTYPE")) fprintf(p->out, ", %s", mlir_attr_text(type, ""));
  shlo_print_attributes(p, op, done, " {");
  shlo_put(p, " : ");
  print_signature(p, op);
  return true;
}

static bool print_slice(shlo_printer *p, const mlir_op *op)
{
  static const char *const done[] = {"start_indices", "limit_indices", "strides", NULL};
  hlo_ints v[3];

  if (op->operand_count != 1) return false;
  for (int i = 0; i < 3; i++) shlo_print_ints_of(p, mlir_attr_of(op, done[i]), &v[i]);
  if (p->st || v[0].count != v[1].count || v[0].count != v[2].count) return false;
  fprintf(p->out, "stablehlo.slice %%%d [", op->operands[0]->stamp);
  for (int i = 0; i < v[0].count; i++) {
    fprintf(p->out, "%s%" PRId64 ":%" PRId64, i ? ", " : "", v[0].v[i], v[1].v[i]);
    if (v[2].v[i] != 1) fprintf(p->out, ":%" PRId64, v[2].v[i]);
  }
  shlo_put(p, "]");
  shlo_print_attributes(p, op, done, " {");
  shlo_put(p, " : ");
  print_signature(p, op);
  return true;
}

static bool print_dot_general(shlo_printer *p, const mlir_op *op)
{
  static const char *const done[] = {"dot_dimension_numbers", "precision_config", NULL};
  const mlir_attr *precision = mlir_attr_of(op, "precision_config");

  if (op->operand_count != 2 || shlo_print_has_algorithm(op)) return false;
  fprintf(p->out, "stablehlo.dot_general %%%d, %%%d", op->operands[0]->stamp, op->operands[1]->stamp);
  for (int batch = 1; batch >= 0; batch--) {
    const mlir_attr *lhs = mlir_attr_of(op, batch ? "lhs_batching_dimensions" : "lhs_contracting_dimensions");
    const mlir_attr *rhs = mlir_attr_of(op, batch ? "rhs_batching_dimensions" : "rhs_contracting_dimensions");
    hlo_ints v;
    shlo_print_ints_of(p, lhs, &v);
    if (batch && v.count == 0) continue;
    shlo_put(p, batch ? ", batching_dims = " : ", contracting_dims = ");
    shlo_print_ints(p, lhs);
    shlo_put(p, " x ");
    shlo_print_ints(p, rhs);
  }
  if (precision && !(op->kind->is_vhlo && shlo_print_is_neutral(p, precision, "DEFAULT"))) {
    shlo_put(p, ", precision = ");
    shlo_print_attr(p, precision);
  }
  shlo_print_attributes(p, op, done, " {");
  shlo_put(p, " : ");
  print_signature(p, op);
  return true;
}

static bool print_call(shlo_printer *p, const mlir_op *op)
{
  bool custom = named(op, "custom_call");
  const char *const done[] = {custom ? "call_target_name" : "callee", NULL};

  shlo_put(p, custom ? "stablehlo.custom_call " : "func.call ");
  shlo_print_symbol(p, mlir_attr_text(mlir_attr_of(op, done[0]), ""));
  shlo_put(p, "(");
  print_values(p, op->operand_count, op->operands);
  shlo_put(p, ")");
  shlo_print_attributes(p, op, done, " {");
  shlo_put(p, " : ");
  print_signature(p, op);
  return true;
}

/* Operands, then `key = value` for each attribute that has a key: the shape that mlir_pretty.c calls universal. */
static bool print_universal(shlo_printer *p, const mlir_op *op)
{
  static const char *const same[] = { /* one type for all */
      "abs", "add", "and", "atan2", "ceil", "count_leading_zeros", "divide", "floor", "maximum", "minimum", "multiply",
      "negate", "not", "or", "popcnt", "power", "remainder", "round_nearest_afz", "round_nearest_even", "shift_left",
      "shift_right_arithmetic", "shift_right_logical", "sign", "subtract", "xor", "cbrt", "cosine", "exponential",
      "exponential_minus_one", "log", "log_plus_one", "logistic", "rsqrt", "sine", "sqrt", "tan", "tanh", "iota", "reverse"};
  static const char *const others[] = {"bitcast_convert", "broadcast_in_dim", "clamp", "complex", "concatenate", "convert",
      "dynamic_slice", "fft", "get_dimension_size", "imag", "is_finite", "pad", "real", "reshape", "select", "transpose"};
  const char *done[8] = {0};
  int count = 0;
  bool one_type = false, known = false;

  for (size_t i = 0; i < WEFT_COUNT(same); i++) one_type |= named(op, same[i]);
  for (size_t i = 0; i < WEFT_COUNT(others); i++) known |= named(op, others[i]);
  if (!(known || one_type) || op->region_count > 0 || op->result_count != 1) return false;
  fprintf(p->out, "stablehlo.%s ", op->name);
  print_values(p, op->operand_count, op->operands);
  for (int k = 0; k < 7; k++) {
    const char *key, *attr;
    if (!text_key_of(op->name, k, &key, &attr)) break;
    const mlir_attr *a = mlir_attr_of(op, attr);
    if (!a) continue;
    fprintf(p->out, "%s%s = ", op->operand_count + count ? ", " : "", key);
    if (shlo_print_is_dims(a)) shlo_print_ints(p, a);
    else if (a->kind == MLIR_INT) fprintf(p->out, "%" PRId64, a->u.i);
    else shlo_print_attr(p, a);
    done[count++] = attr;
  }
  shlo_print_attributes(p, op, done, " {");
  shlo_put(p, " : ");
  for (int i = 0; one_type && i < op->operand_count; i++)
    one_type = mlir_type_equal(op->operands[i]->type, op->results[0].type);
  if (one_type) shlo_print_type(p, op->results[0].type);
  else print_signature(p, op);
  return true;
}

/* all_gather [{}, {"x"}] %x out_sharding=<...> : T, of which the reader keeps what stands around the operands. */
static bool print_sdy(shlo_printer *p, const mlir_op *op)
{
  const mlir_attr *before = mlir_attr_of(op, "before"), *after = mlir_attr_of(op, "after");
  bool text = (before && before->kind == MLIR_OPAQUE) || (after && after->kind == MLIR_OPAQUE);

  if (!text) {
    for (int i = 0; i < op->attr_count && !p->st; i++)
      if (op->attrs[i].value->kind == MLIR_OPAQUE)
        shlo_keep(p, WEFT_ERR(UNIMPLEMENTED, "sdy.%s: attribute %s cannot be printed", op->name, op->attrs[i].name));
    return false;
  }
  fprintf(p->out, "sdy.%s %s%s", op->name, before ? before->u.text.s : "", before ? " " : "");
  print_values(p, op->operand_count, op->operands);
  fprintf(p->out, "%s%s : ", after ? " " : "", after ? after->u.text.s : "");
  shlo_print_type(p, op->results[0].type);
  return true;
}

static bool print_custom(shlo_printer *p, const mlir_op *op)
{
  static const struct { const char *name; bool (*print)(shlo_printer *, const mlir_op *); } special[] = {
      {"while", print_while}, {"custom_call", print_call}, {"constant", print_constant}, {"compare", print_compare}, {"slice", print_slice},
      {"dot_general", print_dot_general}};

  if (op->dialect == SHLO_FUNC && named(op, "call")) return print_call(p, op);
  if (op->dialect == SHLO_SDY && op->result_count > 0) return print_sdy(p, op);
  if (op->dialect != SHLO_STABLEHLO) return false;
  for (size_t i = 0; i < WEFT_COUNT(special); i++)
    if (named(op, special[i].name)) return special[i].print(p, op);
  return print_universal(p, op);
}

/* A cast between two spellings of one type, as artifacts contain them: its results are its operands. */
static bool skip_cast(const mlir_op *op)
{
  if (op->dialect != SHLO_BUILTIN || !named(op, "unrealized_conversion_cast") || op->operand_count != op->result_count)
    return false;
  for (int i = 0; i < op->result_count; i++)
    if (!mlir_type_equal(op->operands[i]->type, op->results[i].type)) return false;
  for (int i = 0; i < op->result_count; i++) op->results[i].stamp = op->operands[i]->stamp;
  return true;
}

static void print_computing(shlo_printer *p, const mlir_op *op)
{
  bool in_function = p->in_function;
  p->in_function = false;
  name_values(p, op->result_count, op->results);
  for (int i = 0; i < op->result_count; i++) fprintf(p->out, "%s%%%d", i ? ", " : "", op->results[i].stamp);
  if (op->result_count > 0) shlo_put(p, " = ");
  if (!print_custom(p, op)) print_generic(p, op);
  p->in_function = in_function;
}

static void print_op(shlo_printer *p, const mlir_op *op)
{
  if (skip_cast(op)) return;
  new_line(p);
  if (named(op, "return")) {
    print_return(p, op);
  } else if (op->dialect == SHLO_FUNC && named(op, "func") && op->region_count == 1) {
    print_func(p, op);
  } else {
    print_computing(p, op);
  }
  print_location(p, op->location);
}

static void print_block(shlo_printer *p, const mlir_block *block, bool label)
{
  if (label) {
    name_values(p, block->arg_count, block->args);
    new_line(p);
    fprintf(p->out, "^bb%d(", p->next_value);
    for (int i = 0; i < block->arg_count; i++) {
      fprintf(p->out, "%s%%%d: ", i ? ", " : "", block->args[i].stamp);
      shlo_print_type(p, block->args[i].type);
      print_argument_location(p, block, i);
    }
    shlo_put(p, "):");
  }
  for (const mlir_op *op = block->first; op; op = op->next) print_op(p, op);
}

weft_status *mlir_print(const mlir_program *program, FILE *out)
{
  shlo_printer p = {.out = out, .program = program};

  weft_arena_init(&p.scratch);
  for (int m = 0; m < program->module_count; m++) {
    p.module = &program->modules[m];
    if (m) shlo_put(&p, "\n// -----\n");
    print_module(&p, p.module->op);
    define_locations(&p);
    shlo_put(&p, "\n");
  }
  for (int i = 0; i < p.location_count; i++) p.locations[i]->made_by = 0; /* nobody */
  weft_arena_fini(&p.scratch);
  if (!p.st && ferror(out)) p.st = WEFT_ERR(RESOURCE_EXHAUSTED, "cannot write the program");
  return p.st;
}
