/* tests/gpu/emulator/module.c -- reads a PTX module: its variables, its functions, their
 * declarations.  Instructions: statement.c.
 *
 * The text is read twice.  The first pass notes where each function's body is; then the bodies of device
 * functions are read, and last those of entries, so that the registers and the stack of device functions
 * have the lowest numbers in every entry. */
#include <config.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parse.h"

_Noreturn void ptx_bad(ptx_parser *p, const char *format, ...)
{
  va_list list;
  va_start(list, format);
  int n = snprintf(p->error, p->error_size, "PTX line %d: ", p->token.line);
  if (n >= 0 && (size_t)n < p->error_size) vsnprintf(p->error + n, p->error_size - (size_t)n, format, list);
  va_end(list);
  longjmp(p->fail, 1);
}

void *ptx_grow(ptx_parser *p, void *array, int count, int *room, size_t size)
{
  if (count < *room) return array;
  int more = *room ? 2 * *room : 16;
  void *grown = realloc(array, (size_t)more * size);
  if (!grown) ptx_bad(p, "out of memory");
  memset((char *)grown + (size_t)count * size, 0, (size_t)(more - count) * size);
  *room = more;
  return grown;
}

char *ptx_copy(ptx_parser *p, ptx_token t)
{
  char *s = strndup(t.text, t.size);
  if (!s) ptx_bad(p, "out of memory");
  return s;
}

void ptx_next(ptx_parser *p) { p->token = ptx_lex(&p->lexer); }
static bool same(ptx_token t, const char *text) { return t.size == strlen(text) && memcmp(t.text, text, t.size) == 0; }
bool ptx_is(const ptx_parser *p, const char *text)
{
  return (p->token.kind == PTX_T_WORD || p->token.kind == PTX_T_MARK) && same(p->token, text);
}
bool ptx_take(ptx_parser *p, const char *text)
{
  if (!ptx_is(p, text)) return false;
  ptx_next(p);
  return true;
}
void ptx_want(ptx_parser *p, const char *text)
{
  if (!ptx_take(p, text)) ptx_bad(p, "expected \"%s\" before \"%.*s\"", text, (int)p->token.size, p->token.text);
}
int64_t ptx_integer(ptx_parser *p)
{
  bool minus = ptx_take(p, "-");
  if (p->token.kind != PTX_T_NUMBER) ptx_bad(p, "expected a number before \"%.*s\"", (int)p->token.size, p->token.text);
  uint64_t v = p->token.value;
  ptx_next(p);
  return (int64_t)(minus ? 0 - v : v);
}

/* ---- tables ---- */

#define ROW(e, name, bytes) [PTX_##e] = {name, bytes},
static const struct { const char *name; int bytes; } types[] = {PTX_TYPES(ROW)};
#undef ROW
int ptx_bytes(ptx_type t) { return types[t].bytes; }
const char *ptx_type_name(ptx_type t) { return types[t].name; }
bool ptx_is_signed(ptx_type t) { return t >= PTX_S8 && t <= PTX_S64; }
bool ptx_is_float(ptx_type t) { return t >= PTX_F16; }

ptx_type ptx_type_named(const char *name, size_t size)
{
  for (int t = 1; t < PTX_TYPE_COUNT; t++)
    if (strlen(types[t].name) == size && memcmp(types[t].name, name, size) == 0) return (ptx_type)t;
  return PTX_NOTYPE;
}

const ptx_register *ptx_find_register(const ptx_parser *p, ptx_token t, int *row)
{
  size_t digits = t.size;
  while (digits > 0 && t.text[digits - 1] >= '0' && t.text[digits - 1] <= '9') digits--;
  long number = digits < t.size ? strtol(t.text + digits, NULL, 10) : -1;
  for (int n = p->register_count - 1; n >= 0; n--) {
    const ptx_register *r = &p->registers[n];
    bool range = r->count >= 0;
    size_t size = range ? digits : t.size;
    if (strlen(r->name) != size || memcmp(r->name, t.text, size) != 0 || (range && (number < 0 || number >= r->count)))
      continue;
    *row = r->first + (range ? (int)number : 0);
    return r;
  }
  return NULL;
}

ptx_variable *ptx_find_variable(ptx_parser *p, ptx_token t)
{
  for (int n = p->local_count - 1; n >= 0; n--)
    if (same(t, p->locals[n].name)) return &p->locals[n];
  for (int n = 0; p->function && n < p->function->formal_count; n++)
    if (same(t, p->function->formals[n].name)) return &p->function->formals[n];
  for (int n = 0; n < p->m->variable_count; n++)
    if (same(t, p->m->variables[n].name)) return &p->m->variables[n];
  return NULL;
}

int ptx_find_function(const ptx_parser *p, ptx_token t)
{
  for (int n = 0; n < p->function_count; n++)
    if (p->functions[n].name && same(t, p->functions[n].name)) return n;
  return -1;
}

static uint64_t slot_of(uint64_t value, int slots)
{
  return (value * 0x9e3779b97f4a7c15ull >> 20) & (uint64_t)(slots - 1);
}

static void grow_slots(ptx_parser *p)
{
  ptx_module *m = p->m;
  int slots = m->const_slot_count ? 2 * m->const_slot_count : 64;
  int *fresh = calloc((size_t)slots, sizeof *fresh); /* index + 1 of a constant; 0: empty */
  if (!fresh) ptx_bad(p, "out of memory");
  for (int c = 0; c < m->const_count; c++) {
    uint64_t s = slot_of(m->consts[c][0], slots);
    while (fresh[s]) s = (s + 1) & (uint64_t)(slots - 1);
    fresh[s] = c + 1;
  }
  free(m->const_slots);
  m->const_slots = fresh, m->const_slot_count = slots;
}

int ptx_constant(ptx_parser *p, uint64_t value)
{
  ptx_module *m = p->m;
  if (2 * m->const_count >= m->const_slot_count) grow_slots(p);
  uint64_t s = slot_of(value, m->const_slot_count);
  for (; m->const_slots[s]; s = (s + 1) & (uint64_t)(m->const_slot_count - 1))
    if (m->consts[m->const_slots[s] - 1][0] == value) return ~(m->const_slots[s] - 1);
  uint64_t *row = *PTX_PUSH(p, m->consts, m->const_count, m->const_room);
  for (int l = 0; l < PTX_LANES; l++) row[l] = value;
  m->const_slots[s] = m->const_count;
  return ~(m->const_count - 1);
}

/* ---- declarations ---- */

static size_t aligned(size_t at, size_t align) { return (at + align - 1) / align * align; }

/* After `.reg`: .type name, name<count>, ...; */
static void read_registers(ptx_parser *p)
{
  if (p->token.kind != PTX_T_WORD || p->token.text[0] != '.') ptx_bad(p, "expected a type");
  ptx_type type = ptx_type_named(p->token.text + 1, p->token.size - 1);
  if (type == PTX_NOTYPE) ptx_bad(p, "registers of type %.*s are not supported", (int)p->token.size, p->token.text);
  ptx_next(p);
  do {
    char *name = ptx_copy(p, p->token);
    ptx_next(p);
    ptx_register *r = PTX_PUSH(p, p->registers, p->register_count, p->register_room);
    *r = (ptx_register){name, -1, 0, type};
    int64_t count = -1;
    if (ptx_take(p, "<")) {
      count = ptx_integer(p);
      if (count < 0 || count > 1 << 20) ptx_bad(p, "%lld registers", (long long)count);
      ptx_want(p, ">");
    }
    int *next = type == PTX_PRED ? &p->preds : &p->rows;
    r->count = (int)count, r->first = *next;
    *next += count < 0 ? 1 : (int)count;
    if (*next > 1 << 20) ptx_bad(p, "too many registers");
  } while (ptx_take(p, ","));
  ptx_want(p, ";");
}

/* [.align n] .type name [sizes]; fills name, size and align.  An array without a size has size 0. */
static ptx_type read_declarator(ptx_parser *p, ptx_variable *v)
{
  ptx_type type = PTX_NOTYPE;
  size_t vec = 1;
  for (; p->token.kind == PTX_T_WORD && p->token.text[0] == '.';) {
    ptx_token t = p->token;
    ptx_next(p);
    if (same(t, ".align")) v->align = (size_t)ptx_integer(p);
    else if (same(t, ".v2")) vec = 2;
    else if (same(t, ".v4")) vec = 4;
    else if (ptx_type_named(t.text + 1, t.size - 1)) type = ptx_type_named(t.text + 1, t.size - 1);
    else if (!same(t, ".ptr") && !same(t, ".global") && !same(t, ".const") && !same(t, ".shared") && !same(t, ".local"))
      ptx_bad(p, "%.*s in a declaration is not supported", (int)t.size, t.text);
  }
  if (type == PTX_NOTYPE || p->token.kind != PTX_T_WORD) ptx_bad(p, "expected a type and a name");
  if (v->align > 1 << 20 || (v->align & (v->align - 1))) ptx_bad(p, "an alignment of %zu", v->align);
  v->name = ptx_copy(p, p->token);
  ptx_next(p);
  v->size = (size_t)ptx_bytes(type) * vec;
  if (v->align < v->size) v->align = v->size;
  while (ptx_take(p, "[")) {
    uint64_t n = ptx_is(p, "]") ? 0 : (uint64_t)ptx_integer(p);
    if (n > (1ull << 40) / (v->size + 1)) ptx_bad(p, "%s is too large", v->name);
    v->size *= n;
    ptx_want(p, "]");
  }
  return type;
}

/* One value of an initializer: a number, or the address of a variable. */
static uint64_t read_value(ptx_parser *p)
{
  bool generic = ptx_take(p, "generic");
  if (generic) ptx_want(p, "(");
  uint64_t value;
  if (p->token.kind == PTX_T_WORD) {
    ptx_variable *v = ptx_find_variable(p, p->token);
    if (!v) ptx_bad(p, "unknown name %.*s", (int)p->token.size, p->token.text);
    ptx_next(p);
    value = v->at;
  } else {
    value = (uint64_t)ptx_integer(p);
  }
  if (generic) ptx_want(p, ")");
  if (ptx_take(p, "+")) value += (uint64_t)ptx_integer(p);
  return value;
}

static void read_initializer(ptx_parser *p, const ptx_variable *v, ptx_type type, uint8_t *host)
{
  size_t at = 0, bytes = (size_t)ptx_bytes(type);
  int depth = 0;
  do {
    while (ptx_take(p, "{")) depth++;
    if (!ptx_is(p, "}")) {
      if (at + bytes > v->size) ptx_bad(p, "too many values for %s", v->name);
      uint64_t value = read_value(p);
      memcpy(host + at, &value, bytes);
      at += bytes;
    }
    while (depth > 0 && ptx_take(p, "}")) depth--;
  } while (ptx_take(p, ","));
}

/* A variable of the module, after its space. */
static void read_global(ptx_parser *p, ptx_space space, bool external)
{
  int at = p->m->variable_count;
  PTX_PUSH(p, p->m->variables, p->m->variable_count, p->m->variable_room);
  ptx_variable v = {.space = space, .align = 1, .placed_for = -1};
  ptx_type type = read_declarator(p, &v);
  v.dynamic = space == PTX_SHARED && v.size == 0;
  p->m->variables[at] = v;
  if (space != PTX_SHARED) {
    if (external) ptx_bad(p, "external variable %s: modules are not linked", v.name);
    uint8_t *host;
    if (!p->m->globals.make(p->m->globals.ctx, v.size ? v.size : 1, v.align, &p->m->variables[at].at, &host)) {
      p->m->variables[at].at = 0;
      ptx_bad(p, "no memory for %zu bytes of %s", v.size, v.name);
    }
    if (ptx_take(p, "=")) read_initializer(p, &v, type, host);
  }
  ptx_want(p, ";");
}

uint64_t ptx_place_shared(ptx_parser *p, ptx_variable *v)
{
  int owner = p->kernel ? p->function_index : -2; /* device functions share one region, which every entry has */
  if (v->placed_for == -2 || v->placed_for == owner) return v->at;
  p->shared_bytes = aligned(p->shared_bytes, v->align);
  v->at = p->shared_bytes, v->placed_for = owner;
  p->shared_bytes += v->size;
  return v->at;
}

/* A variable of a function: .local, .param, .shared or .global. */
static void read_local(ptx_parser *p, ptx_space space)
{
  ptx_variable v = {.space = space, .align = 1, .placed_for = -1};
  ptx_type type = read_declarator(p, &v);
  *PTX_PUSH(p, p->locals, p->local_count, p->local_room) = v;
  ptx_variable *kept = &p->locals[p->local_count - 1];
  if (space == PTX_SHARED) {
    kept->dynamic = v.size == 0;
    ptx_place_shared(p, kept);
  } else if (space == PTX_GLOBAL || space == PTX_CONST) {
    uint8_t *host;
    if (!p->m->globals.make(p->m->globals.ctx, v.size ? v.size : 1, v.align, &kept->at, &host))
      ptx_bad(p, "no memory for %s", v.name);
    ptx_variable *m = PTX_PUSH(p, p->m->variables, p->m->variable_count, p->m->variable_room);
    *m = *kept, m->name = ptx_copy(p, (ptx_token){.text = "", .size = 0}); /* the module drops it */
    if (ptx_take(p, "=")) read_initializer(p, kept, type, host);
  } else {
    p->local_bytes = aligned(p->local_bytes, v.align);
    kept->at = p->local_bytes;
    p->local_bytes += v.size;
    if (p->local_bytes > 1 << 24) ptx_bad(p, "%zu bytes of local memory", p->local_bytes);
  }
  ptx_want(p, ";");
}

static void table_of_targets(ptx_parser *p, ptx_label *label)
{
  label->table = true, label->at = p->m->table_count / 2;
  int at = p->m->table_count;
  PTX_PUSH(p, p->m->tables, p->m->table_count, p->m->table_room);
  PTX_PUSH(p, p->m->tables, p->m->table_count, p->m->table_room);
  p->m->tables[at] = p->m->target_count;
  do {
    *PTX_PUSH(p, p->references, p->reference_count, p->reference_room) =
      (ptx_reference){ptx_copy(p, p->token), p->m->target_count, p->token.line, true};
    PTX_PUSH(p, p->m->targets, p->m->target_count, p->m->target_room);
    p->m->tables[at + 1]++;
    ptx_next(p);
  } while (ptx_take(p, ","));
  ptx_want(p, ";");
}

static bool read_label(ptx_parser *p)
{
  const char *after = p->lexer.at;
  while (after < p->lexer.end && (*after == ' ' || *after == '\t')) after++;
  if (p->token.kind != PTX_T_WORD || after >= p->lexer.end || *after != ':') return false;
  ptx_label *label = PTX_PUSH(p, p->labels, p->label_count, p->label_room);
  *label = (ptx_label){ptx_copy(p, p->token), p->m->code_count, false};
  ptx_next(p);
  ptx_want(p, ":");
  if (ptx_take(p, ".branchtargets")) table_of_targets(p, label);
  else if (ptx_is(p, ".callprototype") || ptx_is(p, ".calltargets")) ptx_bad(p, "indirect calls are not supported");
  return true;
}

static void skip_line(ptx_parser *p)
{
  int line = p->token.line;
  while (p->token.kind != PTX_T_END && p->token.line == line) ptx_next(p);
}

static bool read_directive(ptx_parser *p)
{
  if (ptx_take(p, ".reg")) read_registers(p);
  else if (ptx_take(p, ".local")) read_local(p, PTX_LOCAL);
  else if (ptx_take(p, ".param")) read_local(p, PTX_PARAM);
  else if (ptx_take(p, ".shared")) read_local(p, PTX_SHARED);
  else if (ptx_take(p, ".global")) read_local(p, PTX_GLOBAL);
  else if (ptx_take(p, ".const")) read_local(p, PTX_CONST);
  else if (ptx_is(p, ".pragma") || ptx_is(p, ".loc") || ptx_is(p, ".file")) skip_line(p);
  else return false;
  return true;
}

static void drop_names(ptx_parser *p, int registers, int locals)
{
  while (p->register_count > registers) free(p->registers[--p->register_count].name);
  while (p->local_count > locals) free(p->locals[--p->local_count].name);
}

/* Statements up to the brace that closes the one before. */
static void read_block(ptx_parser *p, int depth)
{
  int registers = p->register_count, locals = p->local_count;
  if (depth > 200) ptx_bad(p, "blocks are nested too deep");
  while (!ptx_take(p, "}")) {
    if (p->token.kind == PTX_T_END) ptx_bad(p, "the text ends within a function");
    if (ptx_take(p, "{")) read_block(p, depth + 1);
    else if (!ptx_take(p, ";") && !read_label(p) && !(p->token.text[0] == '.' && read_directive(p))) ptx_statement(p);
  }
  drop_names(p, registers, locals);
}

static void resolve_labels(ptx_parser *p)
{
  for (int r = 0; r < p->reference_count; r++) {
    ptx_reference *ref = &p->references[r];
    ptx_label *found = NULL;
    for (int l = 0; l < p->label_count && !found; l++)
      if (strcmp(p->labels[l].name, ref->name) == 0) found = &p->labels[l];
    p->token.line = ref->line;
    if (!found) ptx_bad(p, "unknown label %s", ref->name);
    if (ref->in_table) p->m->targets[ref->at] = found->at;
    else if (found->table != (p->m->code[ref->at].op == PTX_OP_brx))
      ptx_bad(p, "%s is no label for this instruction", ref->name);
    else p->m->code[ref->at].target = found->at;
  }
  for (int r = 0; r < p->reference_count; r++) free(p->references[r].name);
  for (int l = 0; l < p->label_count; l++) free(p->labels[l].name);
  p->reference_count = p->label_count = 0;
}

static void read_body(ptx_parser *p, int index)
{
  ptx_function *f = p->function = &p->functions[index];
  p->function_index = index;
  p->lexer = f->body;
  f->pc = p->m->code_count;
  if (!f->entry) f->return_row = p->rows++;
  ptx_next(p);
  read_block(p, 0);
  PTX_PUSH(p, p->m->code, p->m->code_count, p->m->code_room);
  p->m->code[p->m->code_count - 1] =
    (ptx_inst){.op = f->entry ? PTX_OP_exit : PTX_OP_ret, .guard = -1, .line = p->token.line, .target = f->return_row};
  resolve_labels(p);
}

/* ---- functions ---- */

static void read_formals(ptx_parser *p, ptx_function *f)
{
  if (!ptx_take(p, "(")) return;
  while (!ptx_take(p, ")")) {
    if (ptx_is(p, ".reg")) ptx_bad(p, "%s: parameters in registers are not supported", f->name ? f->name : "function");
    ptx_want(p, ".param");
    ptx_variable v = {.space = f->entry ? PTX_KERNEL_PARAM : PTX_PARAM, .align = 1};
    read_declarator(p, &v);
    *PTX_PUSH(p, f->formals, f->formal_count, f->formal_room) = v;
    ptx_take(p, ",");
  }
}

static void place_formals(ptx_function *f, size_t *at)
{
  for (int n = 0; n < f->formal_count; n++) {
    *at = aligned(*at, f->formals[n].align);
    f->formals[n].at = *at;
    *at += f->formals[n].size;
  }
}

static void skip_body(ptx_parser *p)
{
  int depth = 0;
  do {
    if (p->token.kind == PTX_T_END) ptx_bad(p, "the text ends within a function");
    depth += ptx_is(p, "{") - ptx_is(p, "}");
    ptx_next(p);
  } while (depth > 0);
}

/* .maxntid x, y, z and the like, between the head and the body. */
static void read_tuning(ptx_parser *p, ptx_function *f)
{
  while (p->token.kind == PTX_T_WORD && p->token.text[0] == '.') {
    bool threads = ptx_is(p, ".maxntid") || ptx_is(p, ".reqntid");
    if (ptx_is(p, ".noreturn") || ptx_is(p, ".explicitcluster")) {
      ptx_next(p);
      continue;
    }
    if (ptx_is(p, ".pragma")) {
      skip_line(p);
      continue;
    }
    ptx_next(p);
    int64_t product = 1;
    do {
      product *= ptx_integer(p) & 0xffff;
    } while (ptx_take(p, ","));
    if (threads) f->max_threads = (int)product;
  }
}

static void free_formals(ptx_function *f)
{
  for (int n = 0; n < f->formal_count; n++) free(f->formals[n].name);
  f->formal_count = 0;
}

static void read_function(ptx_parser *p, bool entry)
{
  ptx_function f = {.entry = entry};
  *PTX_PUSH(p, p->functions, p->function_count, p->function_room) = f; /* owned from here, for the error path */
  ptx_function *kept = &p->functions[p->function_count - 1];
  if (!entry) read_formals(p, kept), kept->result_count = kept->formal_count;
  int known = ptx_find_function(p, p->token);
  kept->name = ptx_copy(p, p->token);
  ptx_next(p);
  read_formals(p, kept);
  read_tuning(p, kept);
  if (known >= 0) { /* declared before: its places stay */
    ptx_function *before = &p->functions[known];
    if (before->formal_count != kept->formal_count) ptx_bad(p, "%s is declared in two ways", kept->name);
    for (int n = 0; n < kept->formal_count; n++) {
      char *name = before->formals[n].name;
      before->formals[n].name = kept->formals[n].name, kept->formals[n].name = name;
    }
    free_formals(kept);
    free(kept->formals);
    free(kept->name);
    p->function_count--;
    kept = before;
  } else if (!entry) {
    place_formals(kept, &p->local_bytes);
  }
  if (ptx_take(p, ";")) return;
  if (!ptx_is(p, "{") || kept->has_body) ptx_bad(p, "expected one body of %s", kept->name);
  kept->has_body = true, kept->body = p->lexer;
  skip_body(p);
}

static void read_top(ptx_parser *p)
{
  bool external = false;
  while (p->token.kind != PTX_T_END) {
    if (ptx_take(p, ".extern")) {
      external = true;
      continue;
    }
    if (ptx_take(p, ".visible") || ptx_take(p, ".weak") || ptx_take(p, ".common") || ptx_take(p, ";")) continue;
    if (ptx_is(p, ".target")) {
      ptx_next(p);
      if (p->token.size < 5 || memcmp(p->token.text, "sm_", 3) != 0)
        ptx_bad(p, "unknown target %.*s", (int)p->token.size, p->token.text);
      p->m->target = (unsigned)strtoul(p->token.text + 3, NULL, 10);
      skip_line(p);
    } else if (ptx_take(p, ".version")) {
      ptx_next(p);
      if (ptx_is(p, ".")) skip_line(p);
      while (p->token.kind == PTX_T_NUMBER ||
             (p->token.kind == PTX_T_WORD && p->token.size > 1 && p->token.text[1] <= '9' && p->token.text[1] >= '0'))
        ptx_next(p);
    } else if (ptx_take(p, ".address_size")) {
      if (ptx_integer(p) != 64) ptx_bad(p, "only 64-bit addresses are supported");
    } else if (ptx_is(p, ".file")) {
      skip_line(p);
    } else if (ptx_take(p, ".section")) {
      while (!ptx_is(p, "{") && p->token.kind != PTX_T_END) ptx_next(p);
      skip_body(p);
    } else if (ptx_take(p, ".entry")) {
      read_function(p, true);
    } else if (ptx_take(p, ".func")) {
      read_function(p, false);
    } else if (ptx_take(p, ".global")) {
      read_global(p, PTX_GLOBAL, external);
    } else if (ptx_take(p, ".const")) {
      read_global(p, PTX_CONST, external);
    } else if (ptx_take(p, ".shared")) {
      read_global(p, PTX_SHARED, external);
    } else {
      ptx_bad(p, "%.*s is not supported here", (int)(p->token.size < 40 ? p->token.size : 40), p->token.text);
    }
    external = false;
  }
}

/* Device functions have fixed places for their registers, so none may reach itself. */
static void check_recursion(ptx_parser *p, ptx_function *f)
{
  if (f->on_path) ptx_bad(p, "recursion of %s is not supported", f->name);
  if (f->checked) return;
  f->on_path = true;
  for (int c = 0; c < f->call_count; c++) check_recursion(p, &p->functions[f->calls[c]]);
  f->on_path = false, f->checked = true;
}

static void read_entry(ptx_parser *p, int index)
{
  ptx_function *f = &p->functions[index];
  ptx_kernel *k = calloc(1, sizeof *k);
  if (!k) ptx_bad(p, "out of memory");
  *PTX_PUSH(p, p->m->kernels, p->m->kernel_count, p->m->kernel_room) = k;
  p->kernel = k;
  k->module = p->m, k->name = strdup(f->name), k->max_threads = (unsigned)f->max_threads;
  k->params = calloc((size_t)f->formal_count + 1, sizeof *k->params);
  if (!k->name || !k->params) ptx_bad(p, "out of memory");
  place_formals(f, &k->params_bytes);
  k->param_count = (size_t)f->formal_count;
  for (int n = 0; n < f->formal_count; n++) k->params[n].at = f->formals[n].at, k->params[n].size = f->formals[n].size;
  read_body(p, index);
  k->entry = f->pc, k->rows = p->rows, k->preds = p->preds;
  k->local_bytes = aligned(p->local_bytes, 16), k->shared_bytes = aligned(p->shared_bytes, 16);
}

static void read_module(ptx_parser *p)
{
  ptx_next(p);
  read_top(p);
  p->rows = PTX_SR_COUNT, p->preds = 2; /* predicates 0 and 1 are false and true */
  for (int n = 0; n < p->function_count; n++)
    if (!p->functions[n].entry && p->functions[n].has_body) read_body(p, n);
  int rows = p->rows, preds = p->preds;
  size_t local_bytes = p->local_bytes, shared_bytes = p->shared_bytes;
  for (int n = 0; n < p->function_count; n++) {
    if (!p->functions[n].entry || !p->functions[n].has_body) continue;
    p->rows = rows, p->preds = preds, p->local_bytes = local_bytes, p->shared_bytes = shared_bytes;
    read_entry(p, n);
  }
  for (int n = 0; n < p->function_count; n++) check_recursion(p, &p->functions[n]);
  for (int c = 0; c < p->m->code_count; c++)
    if (p->m->code[c].op == PTX_OP_call) {
      const ptx_function *f = &p->functions[p->m->code[c].target];
      p->m->code[c].target = f->pc, p->m->code[c].offset = f->return_row;
    }
}

static void free_parser(ptx_parser *p)
{
  drop_names(p, 0, 0);
  for (int r = 0; r < p->reference_count; r++) free(p->references[r].name);
  for (int l = 0; l < p->label_count; l++) free(p->labels[l].name);
  for (int n = 0; n < p->function_count; n++) {
    free_formals(&p->functions[n]);
    free(p->functions[n].formals);
    free(p->functions[n].name);
    free(p->functions[n].calls);
  }
  free(p->registers);
  free(p->locals);
  free(p->labels);
  free(p->references);
  free(p->functions);
  free(p);
}

ptx_module *ptx_load(const char *text, size_t size, const ptx_globals *globals, char *error, size_t error_size)
{
  ptx_parser *p = calloc(1, sizeof *p);
  ptx_module *m = calloc(1, sizeof *m);
  snprintf(error, error_size, "out of memory");
  if (!p || !m) {
    free(p);
    free(m);
    return NULL;
  }
  m->globals = *globals;
  p->m = m, p->error = error, p->error_size = error_size;
  p->lexer = (ptx_lexer){text, text + size, 1};
  if (setjmp(p->fail) == 0) {
    read_module(p);
  } else {
    ptx_free(p->m);
    p->m = NULL;
  }
  m = p->m;
  free_parser(p);
  return m;
}

void ptx_free(ptx_module *m)
{
  if (!m) return;
  for (int v = 0; v < m->variable_count; v++) {
    if (m->variables[v].space != PTX_SHARED && m->variables[v].at) m->globals.drop(m->globals.ctx, m->variables[v].at);
    free(m->variables[v].name);
  }
  for (int k = 0; k < m->kernel_count; k++) {
    free(m->kernels[k]->name);
    free(m->kernels[k]->params);
    free(m->kernels[k]);
  }
  free(m->variables);
  free(m->kernels);
  free(m->code);
  free(m->consts);
  free(m->const_slots);
  free(m->targets);
  free(m->tables);
  free(m);
}

/* ---- what a module has ---- */

ptx_kernel *ptx_kernel_at(const ptx_module *m, size_t index)
{
  return index < (size_t)m->kernel_count ? m->kernels[index] : NULL;
}
ptx_kernel *ptx_find(const ptx_module *m, const char *name)
{
  for (int k = 0; k < m->kernel_count; k++)
    if (strcmp(m->kernels[k]->name, name) == 0) return m->kernels[k];
  return NULL;
}
bool ptx_global(const ptx_module *m, const char *name, uint64_t *address, size_t *size)
{
  for (int v = 0; v < m->variable_count; v++) {
    if (m->variables[v].space == PTX_SHARED || strcmp(m->variables[v].name, name) != 0) continue;
    *address = m->variables[v].at, *size = m->variables[v].size;
    return true;
  }
  return false;
}
unsigned ptx_target(const ptx_module *m) { return m->target; }
const char *ptx_name(const ptx_kernel *k) { return k->name; }
size_t ptx_param_count(const ptx_kernel *k) { return k->param_count; }
void ptx_param(const ptx_kernel *k, size_t index, size_t *offset, size_t *size)
{
  *offset = k->params[index].at, *size = k->params[index].size;
}
size_t ptx_params_size(const ptx_kernel *k) { return k->params_bytes; }
size_t ptx_static_shared(const ptx_kernel *k) { return k->shared_bytes; }
size_t ptx_local_bytes(const ptx_kernel *k) { return k->local_bytes; }
unsigned ptx_max_threads(const ptx_kernel *k) { return k->max_threads; }
