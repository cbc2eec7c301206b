/* hlo/text_parse.c -- HLO text into a module: header, tables of source locations, computations, instructions.
 *
 *   module      := ['HloModule' name {',' attribute}] { table | computation }
 *   computation := ['ENTRY'] name [signature] '{' { instruction } '}' [',' 'execution_thread' '=' string]
 *   signature   := '(' [ name ':' shape {',' ...} ] ')' '->' shape
 *   instruction := ['ROOT'] name '=' expression {',' attribute}
 *   expression  := [shape] opcode '(' operands | number | literal ')'
 *   operand     := [shape] name {'#' index} | expression
 *
 * A text of one instruction alone, or of its expression, is a module too: operands that nothing defines, or shapes in
 * their place, become its parameters.
 * Called computations stand before their callers, operands before their users; so one pass is enough. */
#include <config.h>

#include "hlo/attributes.h"
#include "hlo/text_internal.h"

#include <inttypes.h>
#include <locale.h>
#include <stdlib.h>

/* uthash then sets hh.tbl to NULL if it has no memory for an entry, and the caller returns an error. */
#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "hlo/frames.h"
#include "hlo/infer.h"

/* An entry in a scope's table of names.  The key is in the text or in the module's arena. */
typedef struct named_instr {
  hlo_instr *instr;
  bool implicit; /* a name that Weft made: the text may use it, then this instruction gets another */
  UT_hash_handle hh;
} named_instr;

typedef struct hlo_named_computation {
  hlo_computation *comp;
  bool implicit;
  UT_hash_handle hh;
} named_computation;

/* A computation while it is read; inline computations nest. */
struct hlo_scope {
  hlo_scope *outer;
  hlo_computation *comp;
  named_instr *names;
  bool implicit_params; /* the module is one instruction alone */
};

/* ---- names ------------------------------------------------------------------------------------------------------- */

static hlo_instr *find_instr(const hlo_scope *scope, hlo_span name)
{
  named_instr *found;

  HASH_FIND(hh, scope->names, name.p, name.length, found);
  return found ? found->instr : NULL;
}

static weft_status *add_name(hlo_reader *r, hlo_span name, hlo_instr *instr, bool implicit)
{
  named_instr *entry = WEFT_ARENA_NEW(&r->names, named_instr);

  WEFT_TRY_ALLOC(entry);
  entry->instr = instr;
  entry->implicit = implicit;
  HASH_ADD_KEYPTR(hh, r->scope->names, name.p, name.length, entry);
  return entry->hh.tbl ? NULL : WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
}

static weft_status *add_implicit_name(hlo_reader *r, hlo_instr *instr)
{
  return add_name(r, (hlo_span){instr->name, strlen(instr->name)}, instr, true);
}

/* Checks that the text may define `name`: an error if the text has defined it before; an instruction for which Weft
 * made the name gets another. */
static weft_status *claim_name(hlo_reader *r, hlo_span name)
{
  named_instr *found;
  const char *fresh;

  HASH_FIND(hh, r->scope->names, name.p, name.length, found);
  if (!found) return NULL;
  if (!found->implicit)
    return hlo_rd_error(r, name.p, "\"%.*s\" is defined twice in this computation", (int)WEFT_MIN(name.length, 60u),
                        name.p);
  HASH_DEL(r->scope->names, found);
  WEFT_TRY(hlo_unique_name(r->module, found->instr->name, &fresh));
  WEFT_TRY(hlo_set_name(found->instr, fresh));
  return add_implicit_name(r, found->instr);
}

static weft_status *add_computation_name(hlo_reader *r, hlo_span name, hlo_computation *comp, bool implicit)
{
  named_computation *entry = WEFT_ARENA_NEW(r->arena, named_computation);

  WEFT_TRY_ALLOC(entry);
  entry->comp = comp;
  entry->implicit = implicit;
  HASH_ADD_KEYPTR(hh, r->computations, name.p, name.length, entry);
  return entry->hh.tbl ? NULL : WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
}

static weft_status *claim_computation_name(hlo_reader *r, hlo_span name)
{
  named_computation *found;

  HASH_FIND(hh, r->computations, name.p, name.length, found);
  if (!found) return NULL;
  if (!found->implicit)
    return hlo_rd_error(r, name.p, "a computation \"%.*s\" exists already", (int)WEFT_MIN(name.length, 60u), name.p);
  HASH_DEL(r->computations, found);
  WEFT_TRY(hlo_unique_name(r->module, found->comp->name, &found->comp->name));
  return add_computation_name(r, (hlo_span){found->comp->name, strlen(found->comp->name)}, found->comp, true);
}

/* ---- instructions ------------------------------------------------------------------------------------------------ */

/* Copies the span into the scratch arena as a string, for functions that take a string and copy it. */
static weft_status *name_text(hlo_reader *r, hlo_span name, const char **out)
{
  *out = weft_arena_strndup(&r->names, name.p, name.length);
  WEFT_TRY_ALLOC(*out);
  return NULL;
}

static weft_status *read_expression(hlo_reader *r, hlo_span name, bool with_attributes, hlo_instr **out);

/* Reads name {'#' index}: an instruction, or an element of its tuple (a get-tuple-element made at first use). */
static weft_status *read_name_operand(hlo_reader *r, hlo_span name, const hlo_shape *shape, hlo_instr **out)
{
  hlo_instr *instr = find_instr(r->scope, name);

  if (!instr && r->scope->implicit_params && shape) {
    const char *text;
    WEFT_TRY(name_text(r, name, &text));
    WEFT_TRY(hlo_add_parameter(r->scope->comp, r->scope->comp->param_count, shape, text, &instr));
    WEFT_TRY(add_name(r, name, instr, false));
  }
  if (!instr)
    return hlo_rd_error(r, name.p, "no instruction \"%.*s\" comes before this one in its computation",
                        (int)WEFT_MIN(name.length, 60u), name.p);
  while (hlo_rd_at(r, '#')) {
    const char *at = r->p;
    hlo_instr *element;
    int64_t index;
    hlo_span path = {name.p, 0};

    hlo_rd_skip(r, 1);
    WEFT_TRY(hlo_rd_int_in(r, 0, INT32_MAX, &index));
    if (!hlo_shape_is_tuple(instr->shape) || index >= instr->shape->rank)
      return hlo_rd_error(r, at, "%s has no element %" PRId64, instr->name, index);
    path.length = (size_t)(r->p - name.p);
    while (strchr(" \t\r\n", path.p[path.length - 1])) path.length--;
    element = find_instr(r->scope, path);
    if (!element) {
      WEFT_TRY(hlo_add_gte(r->scope->comp, NULL, instr, index, &element));
      WEFT_TRY(add_name(r, path, element, true));
      WEFT_TRY(add_implicit_name(r, element));
    }
    instr = element;
  }
  *out = instr;
  return NULL;
}

static weft_status *read_operand(hlo_reader *r, hlo_instr **out)
{
  const char *at = r->p;
  const hlo_shape *shape = NULL;
  hlo_span word;

  if (hlo_rd_at_shape(r)) WEFT_TRY(hlo_rd_shape(r, &shape));
  if (shape && r->scope->implicit_params && (hlo_rd_at(r, ',') || hlo_rd_at(r, ')')))
    return hlo_add_parameter(r->scope->comp, r->scope->comp->param_count, shape, NULL, out);
  WEFT_TRY(hlo_rd_word(r, "an operand", &word));
  if (hlo_rd_at(r, '(')) {
    r->p = at;
    WEFT_TRY(read_expression(r, (hlo_span){0}, false, out));
    return add_implicit_name(r, *out);
  }
  WEFT_TRY(read_name_operand(r, word, shape, out));
  if (shape && !hlo_shape_compatible(shape, (*out)->shape)) {
    char a[200], b[200];
    return hlo_rd_error(r, at, "%s has the shape %s, not %s", (*out)->name,
                        hlo_shape_format((*out)->shape, a, sizeof a), hlo_shape_format(shape, b, sizeof b));
  }
  return NULL;
}

/* Reads operands up to the ')' and leaves them on the reader's stack above `mark`. */
static weft_status *read_operands(hlo_reader *r, size_t mark)
{
  while (!hlo_rd_at(r, ')')) {
    hlo_instr *operand;

    if (r->stack_used > mark) WEFT_TRY(hlo_rd_expect(r, ','));
    WEFT_TRY(read_operand(r, &operand));
    WEFT_TRY(hlo_rd_push(r, &operand, sizeof operand));
  }
  return NULL;
}

/* `X-start`, `X-update` and `X-done` of an opcode X without such opcodes of its own mean async-start, async-update
 * and async-done of a computation with that operation. */
static hlo_opcode split_async(hlo_span word, hlo_opcode *out_wrapped)
{
  static const struct { const char *suffix; hlo_opcode op; } forms[] = {
    {"-start", HLO_ASYNC_START}, {"-update", HLO_ASYNC_UPDATE}, {"-done", HLO_ASYNC_DONE},
  };

  for (size_t i = 0; i < WEFT_COUNT(forms); i++) {
    size_t length = strlen(forms[i].suffix);

    if (word.length <= length || memcmp(word.p + word.length - length, forms[i].suffix, length) != 0) continue;
    *out_wrapped = hlo_opcode_from_name(word.p, word.length - length);
    return *out_wrapped == HLO_OPCODE_COUNT ? HLO_OPCODE_COUNT : forms[i].op;
  }
  return HLO_OPCODE_COUNT;
}

/* Makes a computation with the one instruction `op`, to be called by the async-start `start`. */
static weft_status *new_wrapped_computation(hlo_reader *r, hlo_opcode op, const hlo_instr *start,
                                            hlo_instr **out_wrapped)
{
  hlo_computation *comp;
  const char *name;
  size_t mark = r->stack_used;
  hlo_instr **params;
  int count;

  WEFT_TRY(hlo_unique_name(r->module, "async_computation", &name));
  WEFT_TRY(hlo_computation_new(r->module, name, &comp));
  WEFT_TRY(add_computation_name(r, (hlo_span){comp->name, strlen(comp->name)}, comp, true));
  hlo_computation_move_before(comp, r->scope->comp);
  for (int i = 0; i < start->operand_count; i++) {
    hlo_instr *param;
    WEFT_TRY(hlo_add_parameter(comp, i, start->operands[i]->shape, NULL, &param));
    WEFT_TRY(hlo_rd_push(r, &param, sizeof param));
  }
  WEFT_TRY(hlo_rd_take(r, mark, sizeof(hlo_instr *), &params, &count));
  WEFT_TRY(hlo_add(comp, NULL, op, start->shape->elements[1], count, params, NULL, out_wrapped));
  comp->root = *out_wrapped;
  return hlo_init_attributes(*out_wrapped);
}

static weft_status *read_async(hlo_reader *r, const char *at, hlo_instr *instr, hlo_opcode wrapped_op)
{
  hlo_instr *wrapped;

  if (instr->op == HLO_ASYNC_START) {
    if (!instr->shape || !hlo_shape_is_tuple(instr->shape) || instr->shape->rank < 2)
      return hlo_rd_error(r, at, "an async start needs its shape: ((operands), result, context...)");
    WEFT_TRY(new_wrapped_computation(r, wrapped_op, instr, &wrapped));
    WEFT_TRY(hlo_rd_async_attributes(r, instr, wrapped));
    /* once more: it belongs behind the inline computations in its attributes */
    hlo_computation_move_before(wrapped->parent, r->scope->comp);
    if (instr->extra) wrapped->parent->execution_thread = instr->extra->async_thread;
    return hlo_set_called(instr, 1, &wrapped->parent);
  }
  /* Old texts repeat the attributes of operation X at its update and done.  They are read into this instruction,
   * which is dropped. */
  hlo_instr stand_in = {.op = wrapped_op, .parent = instr->parent};
  WEFT_TRY(hlo_init_attributes(&stand_in));
  return hlo_rd_async_attributes(r, instr, &stand_in);
}

/* An update or done calls the same computation as its start. */
static weft_status *inherit_called(hlo_instr *instr)
{
  const hlo_instr *start = instr->operand_count ? instr->operands[0] : NULL;

  if (instr->called_count || !start || (start->op != HLO_ASYNC_START && start->op != HLO_ASYNC_UPDATE)) return NULL;
  return hlo_set_called(instr, start->called_count, start->called);
}

/* Reads the number in `parameter(...)`.  The parameter numbers may not need more slots than the text has bytes. */
static weft_status *read_parameter(hlo_reader *r, const hlo_shape *shape, const char *name, hlo_instr **out)
{
  const char *at = r->p;
  hlo_computation *comp = r->scope->comp;
  int64_t number;
  weft_status *st;

  WEFT_TRY(hlo_rd_int_in(r, 0, INT32_MAX, &number));
  if (!shape) return hlo_rd_error(r, at, "a parameter needs its shape");
  if (number >= comp->param_count) r->parameter_slots += number + 1 - comp->param_count;
  if (r->parameter_slots > r->end - r->begin)
    return hlo_rd_error(r, at, "the computation has no parameters 0 to %" PRId64, number - 1);
  st = hlo_add_parameter(comp, number, shape, name, out);
  return st ? weft_status_note(st, __FILE__, __LINE__, "in %s", comp->name) : NULL;
}

/* Reads opcode, parentheses and attributes of an instruction.  `shape` has been read; it is NULL if there was none. */
static weft_status *read_call(hlo_reader *r, hlo_span name, const hlo_shape *shape, bool with_attributes,
                              hlo_instr **out)
{
  const char *at = r->p, *text = NULL;
  size_t mark = r->stack_used;
  hlo_opcode op, wrapped_op = HLO_OPCODE_COUNT;
  const hlo_literal *literal = NULL;
  hlo_span word;
  hlo_instr *instr;

  WEFT_TRY(hlo_rd_word(r, "an opcode", &word));
  op = hlo_opcode_from_name(word.p, word.length);
  if (op == HLO_OPCODE_COUNT) op = split_async(word, &wrapped_op);
  if (op == HLO_OPCODE_COUNT)
    return hlo_rd_error(r, word.p, "there is no opcode \"%.*s\"", (int)WEFT_MIN(word.length, 60u), word.p);
  if (name.length) WEFT_TRY(name_text(r, name, &text));
  WEFT_TRY(hlo_rd_expect(r, '('));
  if (op == HLO_PARAMETER) {
    WEFT_TRY(read_parameter(r, shape, text, &instr));
  } else {
    if (op == HLO_CONSTANT) {
      if (!shape) return hlo_rd_error(r, at, "a constant needs its shape");
      WEFT_TRY(hlo_rd_literal(r, shape, &literal));
    } else {
      WEFT_TRY(read_operands(r, mark));
    }
    size_t operands = (r->stack_used - mark) / sizeof(hlo_instr *);
    hlo_instr **list = operands ? malloc(operands * sizeof *list) : NULL;
    weft_status *st;

    if (operands && !list) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
    if (operands) memcpy(list, r->stack + mark, operands * sizeof *list);
    r->stack_used = mark;
    st = hlo_add(r->scope->comp, NULL, op, shape, (int)operands, list, text, &instr);
    free(list);
    WEFT_TRY(st);
  }
  *out = instr;
  WEFT_TRY(hlo_rd_expect(r, ')'));
  if (instr->operand_count < hlo_opcode_least_operands(op) ||
      (hlo_opcode_most_operands(op) >= 0 && instr->operand_count > hlo_opcode_most_operands(op)))
    return hlo_rd_error(r, at, "%s cannot have %d operands", hlo_opcode_name(op), instr->operand_count);
  WEFT_TRY(hlo_init_attributes(instr));
  if (op == HLO_CONSTANT) instr->u.literal = literal;
  if (wrapped_op != HLO_OPCODE_COUNT) WEFT_TRY(read_async(r, at, instr, wrapped_op));
  else if (with_attributes) WEFT_TRY(hlo_rd_attributes(r, instr));
  if (op == HLO_ASYNC_UPDATE || op == HLO_ASYNC_DONE) WEFT_TRY(inherit_called(instr));
  if (!instr->shape) {
    weft_status *st = hlo_infer_shape(instr, &instr->shape);
    if (st && weft_status_code(st) == WEFT_RESOURCE_EXHAUSTED) return st;
    if (st) {
      weft_status *placed = hlo_rd_error(r, at, "%s", weft_status_message(st));
      weft_status_free(st);
      return placed;
    }
  }
  return NULL;
}

/* `name` is empty for an operand that is itself an expression; the instruction then gets a new name. */
static weft_status *read_expression(hlo_reader *r, hlo_span name, bool with_attributes, hlo_instr **out)
{
  const hlo_shape *shape = NULL;
  weft_status *st;

  if (++r->depth > HLO_MAX_NESTING) return hlo_rd_error(r, r->p, "operands nested over %d deep", HLO_MAX_NESTING);
  if (hlo_rd_at_shape(r)) WEFT_TRY(hlo_rd_shape(r, &shape));
  st = read_call(r, name, shape, with_attributes, out);
  r->depth--;
  return st;
}

static weft_status *read_instruction(hlo_reader *r)
{
  hlo_computation *comp = r->scope->comp;
  const char *at = r->p;
  bool root = hlo_rd_accept_word(r, "ROOT");
  hlo_instr *instr;
  hlo_span name;

  WEFT_TRY(hlo_rd_word(r, "an instruction's name", &name));
  WEFT_TRY(claim_name(r, name));
  WEFT_TRY(hlo_rd_expect(r, '='));
  unsigned names = HASH_COUNT(r->scope->names);
  WEFT_TRY(read_expression(r, name, true, &instr));
  if (HASH_COUNT(r->scope->names) != names) WEFT_TRY(claim_name(r, name)); /* the operands made names, too */
  WEFT_TRY(add_name(r, name, instr, false));
  if (root && comp->root) return hlo_rd_error(r, at, "the computation has a second ROOT");
  if (root) comp->root = instr;
  return NULL;
}

weft_status *hlo_rd_instr_ref(hlo_reader *r, hlo_instr **out)
{
  hlo_span name;

  WEFT_TRY(hlo_rd_word(r, "an instruction's name", &name));
  return read_name_operand(r, name, NULL, out);
}

/* ---- computations ------------------------------------------------------------------------------------------------ */

/* Reads a signature.  *out_result is the result's shape, NULL without a signature.  The parameters are read and
 * dropped: the body gives them, too, and there are texts with outdated signatures. */
static weft_status *read_signature(hlo_reader *r, const hlo_shape **out_result)
{
  *out_result = NULL;
  if (!hlo_rd_accept(r, '(')) return NULL;
  for (bool more = !hlo_rd_at(r, ')'); more; more = hlo_rd_accept(r, ',')) {
    const hlo_shape *shape;
    hlo_span name;

    WEFT_TRY(hlo_rd_word(r, "a parameter's name", &name));
    hlo_rd_accept(r, ':');
    WEFT_TRY(hlo_rd_shape(r, &shape));
  }
  WEFT_TRY(hlo_rd_expect(r, ')'));
  WEFT_TRY(hlo_rd_expect_text(r, "->"));
  return hlo_rd_shape(r, out_result);
}

static weft_status *check_result(const hlo_reader *r, const char *at, const hlo_shape *result,
                                 const hlo_computation *comp)
{
  char a[200], b[200];

  if (!result || hlo_shape_equal(result, comp->root->shape, false)) return NULL;
  return hlo_rd_error(r, at, "the result is %s in the signature, %s in the body", hlo_shape_format(result, a, sizeof a),
                      hlo_shape_format(comp->root->shape, b, sizeof b));
}

static weft_status *check_parameters(const hlo_reader *r, const char *at, const hlo_computation *comp)
{
  for (int i = 0; i < comp->param_count; i++)
    if (!comp->params[i]) return hlo_rd_error(r, at, "computation %s has no parameter %d", comp->name, i);
  return NULL;
}

/* Reads '{' instructions '}' into `comp`. */
static weft_status *read_body(hlo_reader *r, hlo_computation *comp)
{
  hlo_scope scope = {.outer = r->scope, .comp = comp};
  const char *at = r->p;
  weft_status *st = NULL;

  r->scope = &scope;
  st = hlo_rd_expect(r, '{');
  while (!st && !hlo_rd_at(r, '}')) st = read_instruction(r);
  HASH_CLEAR(hh, scope.names);
  r->scope = scope.outer;
  WEFT_TRY(st);
  if (!r->scope) weft_arena_reset(&r->names);
  WEFT_TRY(hlo_rd_expect(r, '}'));
  if (!comp->last) return hlo_rd_error(r, at, "a computation without instructions");
  if (!comp->root) comp->root = comp->last;
  return check_parameters(r, at, comp);
}

weft_status *hlo_rd_computation_ref(hlo_reader *r, hlo_computation **out)
{
  named_computation *found;
  const char *name;
  hlo_span word;

  if (hlo_rd_at(r, '{')) {
    if (++r->depth > HLO_MAX_NESTING) return hlo_rd_error(r, r->p, "computations nested over %d deep", HLO_MAX_NESTING);
    WEFT_TRY(hlo_unique_name(r->module, "inline", &name));
    WEFT_TRY(hlo_computation_new(r->module, name, out));
    hlo_computation_move_before(*out, r->scope->comp); /* before the body: computations inside it go before it */
    WEFT_TRY(read_body(r, *out));
    r->depth--;
    return add_computation_name(r, (hlo_span){(*out)->name, strlen((*out)->name)}, *out, true);
  }
  WEFT_TRY(hlo_rd_word(r, "a computation", &word));
  HASH_FIND(hh, r->computations, word.p, word.length, found);
  if (!found)
    return hlo_rd_error(r, word.p, "no computation \"%.*s\" comes before this one", (int)WEFT_MIN(word.length, 60u),
                        word.p);
  *out = found->comp;
  return NULL;
}

static weft_status *read_computation(hlo_reader *r)
{
  const char *begin = r->p, *at, *text;
  bool entry = hlo_rd_accept_word(r, "ENTRY");
  const hlo_shape *result;
  hlo_computation *comp;
  hlo_span name;

  WEFT_TRY(hlo_rd_word(r, "a computation", &name));
  WEFT_TRY(claim_computation_name(r, name));
  WEFT_TRY(hlo_rd_keep(r, name, &text));
  WEFT_TRY(hlo_computation_new(r->module, text, &comp));
  at = r->p;
  WEFT_TRY(read_signature(r, &result));
  WEFT_TRY(read_body(r, comp));
  WEFT_TRY(check_result(r, at, result, comp));
  if (hlo_rd_accept(r, ',')) {
    WEFT_TRY(hlo_rd_expect_text(r, "execution_thread="));
    WEFT_TRY(hlo_rd_string(r, &comp->execution_thread));
  }
  WEFT_TRY(add_computation_name(r, name, comp, false));
  if (entry && r->module->entry) return hlo_rd_error(r, begin, "the module has a second ENTRY");
  if (entry) r->module->entry = comp;
  return NULL;
}

/* ---- tables of source locations: lines of `id value` with ids 1, 2, ... ------------------------------------------ */

/* Reads {name=int name=int ...} into consecutive ints in the order of `names`. */
static weft_status *read_int_fields(hlo_reader *r, const char *const *names, int name_count, int *out)
{
  WEFT_TRY(hlo_rd_expect(r, '{'));
  while (!hlo_rd_at(r, '}')) {
    const char *at = r->p;
    int64_t value;
    hlo_span word;
    int i = 0;

    WEFT_TRY(hlo_rd_word(r, "a field", &word));
    while (i < name_count && !hlo_span_is(word, names[i])) i++;
    if (i == name_count)
      return hlo_rd_error(r, at, "this table has no field \"%.*s\"", (int)WEFT_MIN(word.length, 60u), word.p);
    WEFT_TRY(hlo_rd_expect(r, '='));
    WEFT_TRY(hlo_rd_int_in(r, 0, INT32_MAX, &value));
    out[i] = (int)value;
  }
  return hlo_rd_expect(r, '}');
}

static weft_status *read_name_row(hlo_reader *r, void *out) { return hlo_rd_string(r, out); }

static weft_status *read_location_row(hlo_reader *r, void *out)
{
  static const char *const names[] = {"file_name_id", "function_name_id", "line", "column", "end_line", "end_column"};
  int values[WEFT_COUNT(names)] = {0};

  WEFT_TRY(read_int_fields(r, names, WEFT_COUNT(names), values));
  *(struct hlo_file_location *)out =
    (struct hlo_file_location){values[0], values[1], values[2], values[3], values[4], values[5]};
  return NULL;
}

static weft_status *read_frame_row(hlo_reader *r, void *out)
{
  static const char *const names[] = {"file_location_id", "parent_frame_id"};
  int values[WEFT_COUNT(names)] = {0};

  WEFT_TRY(read_int_fields(r, names, WEFT_COUNT(names), values));
  *(struct hlo_stack_frame *)out = (struct hlo_stack_frame){values[0], values[1]};
  return NULL;
}

static const struct table {
  const char *name;
  size_t row_bytes, count_offset, rows_offset;
  weft_status *(*read_row)(hlo_reader *r, void *out);
} tables[] = {
#define TABLE(name, rows, count, read) \
  {name, sizeof *((hlo_stack_frames *)0)->rows, offsetof(hlo_stack_frames, count), offsetof(hlo_stack_frames, rows), read}
  TABLE("FileNames", files, file_count, read_name_row),
  TABLE("FunctionNames", functions, function_count, read_name_row),
  TABLE("FileLocations", locations, location_count, read_location_row),
  TABLE("StackFrames", frames, frame_count, read_frame_row),
};

/* Reads a table if one comes next, and says so in *was_table. */
static weft_status *read_table(hlo_reader *r, bool *was_table)
{
  hlo_span word = hlo_rd_peek_word(r);
  hlo_stack_frames *frames = (hlo_stack_frames *)r->module->stack_frames;
  const struct table *table = NULL;
  size_t mark = r->stack_used;
  int64_t wanted = 1;

  *was_table = false;
  for (size_t i = 0; i < WEFT_COUNT(tables); i++)
    if (hlo_span_is(word, tables[i].name)) table = &tables[i];
  if (!table || *r->p == '%') return NULL;
  *was_table = true;
  if (!frames) {
    r->module->stack_frames = frames = WEFT_ARENA_NEW(r->arena, hlo_stack_frames);
    WEFT_TRY_ALLOC(frames);
  }
  WEFT_TRY(hlo_rd_word(r, "", &word));
  while (*r->p >= '0' && *r->p <= '9') {
    const char *at = r->p;
    _Alignas(8) char row[64] = {0};
    int64_t id;

    WEFT_TRY(hlo_rd_int(r, &id));
    if (id != wanted++) return hlo_rd_error(r, at, "expected row %" PRId64 " of %s", wanted - 1, table->name);
    WEFT_TRY(table->read_row(r, row));
    WEFT_TRY(hlo_rd_push(r, row, table->row_bytes));
  }
  return hlo_rd_take(r, mark, table->row_bytes, (char *)frames + table->rows_offset,
                     (int *)((char *)frames + table->count_offset));
}

/* ---- modules ----------------------------------------------------------------------------------------------------- */

/* True if [ROOT] name '=' or a shape comes next: the text is one instruction alone. */
static bool at_bare_instruction(const hlo_reader *r)
{
  hlo_reader ahead = *r;
  hlo_span word = hlo_rd_peek_word(&ahead);

  if (hlo_rd_at_shape(r)) return true;
  if (word.length == 0) return false;
  hlo_rd_accept_word(&ahead, "ROOT");
  word = hlo_rd_peek_word(&ahead);
  ahead.p = word.p + word.length;
  hlo_rd_space(&ahead);
  return word.length && hlo_rd_at(&ahead, '=');
}

static weft_status *read_bare_instruction(hlo_reader *r)
{
  hlo_scope scope = {.implicit_params = true};
  const char *at = r->p;
  hlo_instr *nameless;
  weft_status *st;

  WEFT_TRY(hlo_computation_new(r->module, "entry", &scope.comp));
  r->scope = &scope;
  st = hlo_rd_at_shape(r) ? read_expression(r, (hlo_span){0}, true, &nameless) : read_instruction(r);
  HASH_CLEAR(hh, scope.names);
  r->scope = NULL;
  scope.comp->root = scope.comp->last;
  return st ? st : check_parameters(r, at, scope.comp);
}

static weft_status *check_entry_layout(const hlo_reader *r)
{
  const hlo_module *module = r->module;
  char a[200], b[200];

  if (!module->has_entry_layout) return NULL;
  if (r->entry_layout_params != module->entry->param_count)
    return hlo_rd_error(r, r->begin, "entry_computation_layout has %d parameters, the entry computation %d",
                        r->entry_layout_params, module->entry->param_count);
  for (int i = 0; i < module->entry->param_count; i++)
    if (!hlo_shape_equal(module->entry_param_shapes[i], module->entry->params[i]->shape, false))
      return hlo_rd_error(r, r->begin, "parameter %d is %s in entry_computation_layout, %s in the entry computation", i,
                          hlo_shape_format(module->entry_param_shapes[i], a, sizeof a),
                          hlo_shape_format(module->entry->params[i]->shape, b, sizeof b));
  if (!hlo_shape_equal(module->entry_result_shape, module->entry->root->shape, false))
    return hlo_rd_error(r, r->begin, "the result is %s in entry_computation_layout, %s in the entry computation",
                        hlo_shape_format(module->entry_result_shape, a, sizeof a),
                        hlo_shape_format(module->entry->root->shape, b, sizeof b));
  return NULL;
}

static weft_status *read_module(hlo_reader *r)
{
  hlo_span name;

  if (hlo_rd_accept_word(r, "HloModule")) {
    WEFT_TRY(hlo_rd_word(r, "the module's name", &name));
    WEFT_TRY(hlo_rd_keep(r, name, &r->module->name));
    hlo_rd_accept(r, ':'); /* in hand-written texts */
    WEFT_TRY(hlo_rd_module_attributes(r, r->module));
  }
  if (at_bare_instruction(r)) WEFT_TRY(read_bare_instruction(r));
  while (r->p < r->end) {
    bool was_table;

    WEFT_TRY(read_table(r, &was_table));
    if (!was_table) WEFT_TRY(read_computation(r));
  }
  if (!r->module->last) return hlo_rd_expected(r, "a computation");
  if (!r->module->entry) r->module->entry = r->module->last;
  return check_entry_layout(r);
}

weft_status *hlo_parse(const char *text, size_t size, hlo_module **out_module)
{
  WEFT_AUTO(hlo_module) module = NULL;
  /* numbers have points, not commas, whatever the caller's locale */
  locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0), callers;
  hlo_reader r;
  weft_status *st;

  *out_module = NULL;
  WEFT_TRY_ALLOC(plain);
  callers = uselocale(plain);
  st = hlo_module_new("module", &module);
  if (!st) {
    st = hlo_rd_init(&r, &module->arena, text, size);
    r.module = module;
    weft_arena_init(&r.names);
    if (!st) st = read_module(&r);
    weft_arena_fini(&r.names);
    HASH_CLEAR(hh, r.computations);
    hlo_rd_fini(&r);
  }
  uselocale(callers);
  freelocale(plain);
  if (!st) *out_module = WEFT_MOVE(module);
  return st;
}
