/* tests/gpu/emulator/statement.c -- decodes one instruction of PTX: guard, modifiers, operands, handler. */
#include <config.h>

#include <stdio.h>
#include <string.h>

#include "parse.h"

typedef enum form { PLAIN, LOAD, STORE, ATOMIC_FORM, REDUCE, BARE, BARRIER, BRANCH, INDEXED, CALL, SKIP, COPY_FORM, MULTI, NONE } form;
/* The forms ATOMIC and COPY have the names of classes of modifiers too. */
#define FORM_PLAIN PLAIN
#define FORM_LOAD LOAD
#define FORM_STORE STORE
#define FORM_ATOMIC ATOMIC_FORM
#define FORM_REDUCE REDUCE
#define FORM_BARE BARE
#define FORM_BARRIER BARRIER
#define FORM_BRANCH BRANCH
#define FORM_INDEXED INDEXED
#define FORM_CALL CALL
#define FORM_SKIP SKIP
#define FORM_COPY COPY_FORM
#define FORM_MULTI MULTI
#define FORM_NONE NONE

enum {
  FTZ = PTX_F_FTZ, SAT = PTX_F_SAT, CC = PTX_F_CC, APPROX = PTX_F_APPROX, FULL = PTX_F_FULL, NAN_ = PTX_F_NAN, RELU = PTX_F_RELU,
  SATFINITE = PTX_F_SATFINITE, XORSIGN = PTX_F_XORSIGN, WRAP = PTX_F_WRAP, LEFT = PTX_F_LEFT, TO = PTX_F_TO, ALIGNED = PTX_F_ALIGNED,
  SHIFTAMT = PTX_F_SHIFTAMT, NOFTZ = PTX_F_NOFTZ, TRANS = PTX_F_TRANS, ACC32 = PTX_F_ACC32,
};
#undef NAN
#define NAN NAN_
#define ROW(n, f, flags) {#n, FORM_##f, flags},
static const struct { const char *name; form form; unsigned flags; } ops[] = {PTX_OPS(ROW)};
#undef ROW
#undef NAN

const char *ptx_op_name(ptx_op op) { return ops[op].name; }

/* ---- modifiers ---- */

typedef enum class { ANY, COMPARE, MULTIPLY, ATOMIC, SHUFFLE, PERMUTE, TEST, MATRIX, COPY, INDEX, MULTICAST, FENCE } class;

static class ptx_class(ptx_op op)
{
  switch (op) {
  case PTX_OP_setp: case PTX_OP_set: return COMPARE;
  case PTX_OP_mul: case PTX_OP_mad: case PTX_OP_madc: case PTX_OP_mul24: case PTX_OP_mad24: return MULTIPLY;
  case PTX_OP_atom: case PTX_OP_red: case PTX_OP_redux: case PTX_OP_bar: case PTX_OP_barrier: return ATOMIC;
  case PTX_OP_shfl: case PTX_OP_vote: case PTX_OP_match: return SHUFFLE;
  case PTX_OP_prmt: case PTX_OP_dp2a: return PERMUTE;
  case PTX_OP_testp: return TEST;
  case PTX_OP_mma: case PTX_OP_ldmatrix: return MATRIX;
  case PTX_OP_cp: return COPY;
  case PTX_OP_brx: return INDEX;
  case PTX_OP_multimem: return MULTICAST;
  case PTX_OP_fence: return FENCE;
  default: return ANY;
  }
}

enum field {
  F_round,
  F_space,
  F_vec,
  F_sem,
  F_scope,
  F_cmp,
  F_combine,
  F_mode,
  F_atomic
};
#define ROW(c, n, field, value) {c, n, F_##field, value},
static const struct { class class; const char *name; enum field field; uint8_t value; } modifiers[] = {PTX_MODIFIERS(ROW)};
#undef ROW
#define ROW(n, flag) {n, PTX_F_##flag},
static const struct { const char *name; unsigned flag; } flags[] = {PTX_FLAGS(ROW)};
#undef ROW
static const char *const ignored[] = {PTX_IGNORED};

static bool equal(const char *text, size_t size, const char *name)
{
  return strlen(name) == size && memcmp(text, name, size) == 0;
}

static uint8_t *field_of(ptx_inst *i, enum field f)
{
  switch (f) {
  case F_round: return &i->round;
  case F_space: return &i->space;
  case F_vec: return &i->vec;
  case F_sem: return &i->sem;
  case F_scope: return &i->scope;
  case F_cmp: return &i->cmp;
  case F_combine: return &i->combine;
  case F_atomic: return &i->atomic;
  default: return &i->mode;
  }
}

static void modifier(ptx_parser *p, ptx_inst *i, const char *text, size_t size)
{
  class own = ptx_class((ptx_op)i->op);
  for (size_t n = 0; n < sizeof modifiers / sizeof *modifiers; n++) {
    if ((modifiers[n].class != ANY && modifiers[n].class != own) || !equal(text, size, modifiers[n].name)) continue;
    *field_of(i, modifiers[n].field) = modifiers[n].value;
    return;
  }
  ptx_type type = ptx_type_named(text, size);
  if (type) {
    if (i->types == 0) i->type = (uint8_t)type;
    if (i->types == 1) i->from = (uint8_t)type;
    i->types++; /* mma has four; which of them matter is checked by its handler */
    return;
  }
  for (size_t n = 0; n < sizeof flags / sizeof *flags; n++) {
    if (!(ops[i->op].flags & flags[n].flag) || !equal(text, size, flags[n].name)) continue;
    i->flags |= flags[n].flag;
    return;
  }
  for (size_t n = 0; n < sizeof ignored / sizeof *ignored; n++)
    if (equal(text, size, ignored[n])) return;
  ptx_bad(p, "%s: the modifier .%.*s is not supported", ops[i->op].name, (int)size, text);
}

/* Splits add.rn.f32 into the name and its modifiers. */
/* Instructions of which PTX has no form without .sync for sm_70 and newer. */
static bool needs_sync(int op)
{
  return op == PTX_OP_shfl || op == PTX_OP_vote || op == PTX_OP_match || op == PTX_OP_redux || op == PTX_OP_elect;
}

static void mnemonic(ptx_parser *p, ptx_inst *i)
{
  bool sync = false;
  const char *text = p->token.text, *end = text + p->token.size, *dot = memchr(text, '.', p->token.size);
  size_t size = dot ? (size_t)(dot - text) : p->token.size;
  int op = 0;
  while (op < PTX_OP_COUNT && !equal(text, size, ops[op].name)) op++;
  if (op == PTX_OP_COUNT || ops[op].form == NONE)
    ptx_bad(p, "the instruction %.*s is not supported", (int)p->token.size, text);
  i->op = (uint8_t)op;
  while (dot) {
    const char *from = dot + 1;
    dot = memchr(from, '.', (size_t)(end - from));
    size_t length = (size_t)((dot ? dot : end) - from);
    sync = sync || equal(from, length, "sync");
    modifier(p, i, from, length);
  }
  if (!sync && needs_sync(op)) ptx_bad(p, "%s without .sync: sm_70 and newer have no such instruction", ops[op].name);
  ptx_next(p);
}

/* ---- operands ---- */

#define ROW(e, name) name,
static const char *const sregs[] = {PTX_SREGS(ROW)};
#undef ROW

static int special(ptx_parser *p, ptx_token t)
{
  for (int s = PTX_SR_TID_X; s < PTX_SR_COUNT; s++) {
    if (!equal(t.text, t.size, sregs[s])) continue;
    p->m->sregs |= 1ull << s;
    return s;
  }
  return -1;
}

/* The address of a variable as an operand; dynamic shared memory begins where the launch says. */
static int address_of(ptx_parser *p, ptx_variable *v, int64_t offset)
{
  if (v->dynamic) {
    if (offset) ptx_bad(p, "%s plus an offset is supported in addresses only", v->name);
    return PTX_SR_DYNAMIC;
  }
  uint64_t at = v->space == PTX_SHARED ? ptx_place_shared(p, v) : v->at;
  return ptx_constant(p, at + (uint64_t)offset);
}

/* One operand.  pred: set where it is a predicate. */
static int operand(ptx_parser *p, bool *pred)
{
  *pred = false;
  ptx_token t = p->token;
  if (t.kind == PTX_T_NUMBER || ptx_is(p, "-")) {
    bool minus = ptx_take(p, "-");
    bool f32 = p->token.size > 1 && (p->token.text[1] == 'f' || p->token.text[1] == 'F') && p->token.text[0] == '0';
    bool f64 = p->token.size > 1 && (p->token.text[1] == 'd' || p->token.text[1] == 'D') && p->token.text[0] == '0';
    uint64_t v = (uint64_t)ptx_integer(p);
    if (minus) v = f32 ? v ^ 0x80000000u : f64 ? v ^ 1ull << 63 : 0 - v;
    return ptx_constant(p, v);
  }
  if (t.kind != PTX_T_WORD) ptx_bad(p, "expected an operand before \"%.*s\"", (int)t.size, t.text);
  ptx_next(p);
  if (equal(t.text, t.size, "_")) return PTX_SR_ZERO_SINK;
  int row;
  const ptx_register *r = ptx_find_register(p, t, &row);
  if (r) return *pred = r->type == PTX_PRED, row;
  if ((row = special(p, t)) >= 0) return row;
  ptx_variable *v = ptx_find_variable(p, t);
  if (!v) ptx_bad(p, "unknown operand %.*s", (int)t.size, t.text);
  return address_of(p, v, ptx_take(p, "+") ? ptx_integer(p) : 0);
}

static void source(ptx_parser *p, ptx_inst *i)
{
  if (i->src_count == PTX_MAX_SRC) ptx_bad(p, "%s: too many operands", ops[i->op].name);
  bool pred, inverted = ptx_take(p, "!");
  int n = i->src_count++;
  i->src[n] = operand(p, &pred);
  i->src_pred |= (uint16_t)(pred << n), i->src_not |= (uint16_t)(inverted << n);
  if (inverted && !pred) ptx_bad(p, "only predicates can be negated");
}

static void destination(ptx_parser *p, ptx_inst *i)
{
  if (i->dst_count == PTX_MAX_DST) ptx_bad(p, "%s: too many results", ops[i->op].name);
  bool pred;
  int n = i->dst_count++;
  i->dst[n] = operand(p, &pred);
  if (i->dst[n] < 0) ptx_bad(p, "%s: the result is no register", ops[i->op].name);
  i->dst_pred |= (uint16_t)(pred << n);
}

static void several(ptx_parser *p, ptx_inst *i, void (*one)(ptx_parser *, ptx_inst *))
{
  if (!ptx_take(p, "{")) {
    one(p, i);
    return;
  }
  do {
    one(p, i);
  } while (ptx_take(p, ","));
  ptx_want(p, "}");
}

/* [register], [register + number], [variable + number], [number]; a second address has its own place in the sources. */
static void address(ptx_parser *p, ptx_inst *i, int *base, int64_t *offset)
{
  ptx_want(p, "[");
  *base = ptx_constant(p, 0), *offset = 0;
  if (p->token.kind == PTX_T_NUMBER) {
    *offset = ptx_integer(p);
  } else {
    int row;
    const ptx_register *r = ptx_find_register(p, p->token, &row);
    ptx_variable *v = r ? NULL : ptx_find_variable(p, p->token);
    if (!r && !v) ptx_bad(p, "unknown address %.*s", (int)p->token.size, p->token.text);
    if (r && r->type == PTX_PRED) ptx_bad(p, "a predicate is no address");
    ptx_next(p);
    *base = r ? row : address_of(p, v, 0);
    if (v && i->space == PTX_PARAM) i->space = (uint8_t)v->space;
    /* a register never has the address of an argument of a call, so it has that of a parameter of the kernel */
    if (r && i->space == PTX_PARAM && p->function->entry) i->space = PTX_KERNEL_PARAM;
    if (v && i->space == PTX_GENERIC && v->space != PTX_GLOBAL && v->space != PTX_CONST)
      ptx_bad(p, "%s is not in the generic address space", v->name);
  }
  if (ptx_take(p, "+")) *offset += ptx_integer(p);
  else if (ptx_is(p, "-")) *offset += ptx_integer(p);
  ptx_want(p, "]");
}

static void plain_operands(ptx_parser *p, ptx_inst *i)
{
  several(p, i, destination);
  if (ptx_take(p, "|")) destination(p, i);
  while (ptx_take(p, ",")) several(p, i, source);
}

static void label_operand(ptx_parser *p)
{
  *PTX_PUSH(p, p->references, p->reference_count, p->reference_room) =
    (ptx_reference){ptx_copy(p, p->token), p->m->code_count, p->token.line, false};
  ptx_next(p);
}

static void skip_statement(ptx_parser *p)
{
  while (!ptx_is(p, ";") && p->token.kind != PTX_T_END) ptx_next(p);
}

/* cp.async [shared], [global], bytes {, source bytes}: the second address is source 0 with its offset in `target`. */
static void copy_operands(ptx_parser *p, ptx_inst *i)
{
  if (i->mode == 0) ptx_bad(p, "only cp.async of up to 16 bytes is supported");
  if (i->mode != PTX_CP_COPY) {
    skip_statement(p);
    return;
  }
  int64_t offset;
  int base;
  i->space = PTX_SHARED;
  address(p, i, &i->base, &i->offset);
  ptx_want(p, ",");
  i->space = PTX_GLOBAL;
  address(p, i, &base, &offset);
  if (offset < INT32_MIN || offset > INT32_MAX) ptx_bad(p, "cp.async: the offset is too large");
  i->src[i->src_count++] = base, i->target = (int)offset;
  ptx_want(p, ",");
  i->vec = (uint8_t)ptx_integer(p);
  if (i->vec != 4 && i->vec != 8 && i->vec != 16) ptx_bad(p, "cp.async of %u bytes", i->vec);
  i->mode = PTX_CP_COPY;
  if (ptx_take(p, ",")) source(p, i);
}

/* ---- calls ---- */

/* How many instructions NVIDIA's assembler makes of the instruction. A move from one register to another is none. An
 * exact quotient, inverse or root of f32 takes ten on the way of ordinary numbers (ptxas 13.0 for sm_90, read with
 * nvdisasm). Others count as one. */
static uint8_t slots_of(const ptx_inst *i)
{
  enum { EXACT = 10 };

  switch (i->op) {
  case PTX_OP_mov: return i->dst_count == 1 && i->src_count == 1 && i->src[0] >= PTX_SR_COUNT ? 0 : 1;
  case PTX_OP_div: case PTX_OP_rcp:
  case PTX_OP_sqrt: return i->type == PTX_F32 && !(i->flags & (PTX_F_APPROX | PTX_F_FULL)) ? EXACT : 1;
  default: return 1;
  }
}

static void push(ptx_parser *p, const ptx_inst *i)
{
  ptx_inst *to = PTX_PUSH(p, p->m->code, p->m->code_count, p->m->code_room);

  *to = *i;
  to->slots = slots_of(i);
}

/* Moves one argument (to the callee's formal) or one result (from it).  The other side
 * is a parameter variable or a register. */
static void pass(ptx_parser *p, const ptx_inst *call, const ptx_variable *formal, ptx_token t, bool to_callee)
{
  ptx_inst i = {.guard = call->guard, .negate = call->negate, .line = call->line, .base = ptx_constant(p, formal->at), .vec = 1};
  int row;
  const ptx_register *r = ptx_find_register(p, t, &row);
  if (r && r->type != PTX_PRED) {
    i.op = to_callee ? PTX_OP_st : PTX_OP_ld, i.space = PTX_PARAM, i.type = (uint8_t)r->type;
    if (to_callee) i.src[i.src_count++] = row;
    else i.dst[i.dst_count++] = row;
    i.run = ptx_pick_memory(&i);
  } else {
    ptx_variable *v = ptx_find_variable(p, t);
    if (!v || v->space != PTX_PARAM) ptx_bad(p, "%.*s is no parameter", (int)t.size, t.text);
    if (v->size < formal->size) ptx_bad(p, "%s is smaller than the parameter %s", v->name, formal->name);
    i.op = PTX_OP_copy_param, i.offset = (int64_t)formal->size;
    i.target = (int)(to_callee ? formal->at : v->at); /* from v->at to formal->at, or back */
    i.src[0] = ptx_constant(p, to_callee ? v->at : formal->at), i.src_count = 1;
    i.run = ptx_pick_memory(&i);
  }
  push(p, &i);
}

enum { MAX_ARGUMENTS = 64 };

static int token_list(ptx_parser *p, ptx_token *list)
{
  int n = 0;
  ptx_want(p, "(");
  while (!ptx_take(p, ")")) {
    if (n == MAX_ARGUMENTS) ptx_bad(p, "too many arguments");
    if (p->token.kind != PTX_T_WORD) ptx_bad(p, "call: immediate arguments are not supported");
    list[n++] = p->token;
    ptx_next(p);
    ptx_take(p, ",");
  }
  return n;
}

static void call(ptx_parser *p, ptx_inst *i)
{
  ptx_token results[MAX_ARGUMENTS], arguments[MAX_ARGUMENTS], name;
  int result_count = 0, argument_count = 0, row;
  if (ptx_is(p, "(")) {
    result_count = token_list(p, results);
    ptx_want(p, ",");
  }
  name = p->token;
  ptx_next(p);
  if (ptx_find_register(p, name, &row)) ptx_bad(p, "indirect calls are not supported");
  int f = ptx_find_function(p, name);
  if (f < 0) ptx_bad(p, "unknown function %.*s", (int)name.size, name.text);
  if (ptx_take(p, ",")) argument_count = token_list(p, arguments);
  ptx_want(p, ";");
  const ptx_function *callee = &p->functions[f];
  bool sets = strcmp(callee->name, "cudaGraphSetConditional") == 0 && callee->formal_count == 2 &&
              callee->formals[0].size == 8 && callee->formals[1].size == 4;
  if (!callee->has_body && !sets)
    ptx_bad(p, "a call of %s, which is a function of the device's library that is not emulated", callee->name);
  if (result_count != callee->result_count || argument_count != callee->formal_count - callee->result_count)
    ptx_bad(p, "%s takes %d arguments and gives %d results", callee->name, callee->formal_count - callee->result_count,
            callee->result_count);
  for (int n = 0; n < argument_count; n++) pass(p, i, &callee->formals[callee->result_count + n], arguments[n], true);
  if (!callee->has_body) {
    i->op = PTX_OP_set_conditional, i->src_count = 2;
    for (int n = 0; n < 2; n++) i->src[n] = ptx_constant(p, callee->formals[n].at);
    i->run = ptx_pick_memory(i);
    push(p, i);
    return;
  }
  i->target = f; /* module.c makes it the callee's place when all are read */
  push(p, i);
  for (int n = 0; n < result_count; n++) pass(p, i, &callee->formals[n], results[n], false);
  *PTX_PUSH(p, p->function->calls, p->function->call_count, p->function->call_room) = f;
}

/* ---- the whole ---- */

/* Instructions of multicast objects are written as a load, a store or a reduction. */
static enum form form_of(const ptx_inst *i)
{
  if (ops[i->op].form != MULTI) return ops[i->op].form;
  return i->mode == PTX_MULTI_LOAD ? LOAD : i->mode == PTX_MULTI_STORE ? STORE : REDUCE;
}

static void operands(ptx_parser *p, ptx_inst *i)
{
  switch (form_of(i)) {
  case PLAIN: plain_operands(p, i); break;
  case LOAD:
    several(p, i, destination);
    ptx_want(p, ",");
    address(p, i, &i->base, &i->offset);
    if (ptx_take(p, ",")) skip_statement(p); /* a cache policy */
    break;
  case STORE:
    address(p, i, &i->base, &i->offset);
    ptx_want(p, ",");
    several(p, i, source);
    if (ptx_take(p, ",")) skip_statement(p);
    break;
  case ATOMIC_FORM:
    several(p, i, destination);
    ptx_want(p, ",");
    address(p, i, &i->base, &i->offset);
    while (ptx_take(p, ",")) several(p, i, source);
    break;
  case REDUCE:
    address(p, i, &i->base, &i->offset);
    while (ptx_take(p, ",")) several(p, i, source);
    break;
  case BARRIER:
    if (i->mode == PTX_BAR_RED) destination(p, i), ptx_want(p, ",");
    if (!ptx_is(p, ";")) do
        source(p, i);
      while (ptx_take(p, ","));
    break;
  case BRANCH: label_operand(p); break;
  case INDEXED:
    source(p, i);
    ptx_want(p, ",");
    label_operand(p);
    break;
  case COPY_FORM: copy_operands(p, i); break;
  case SKIP: skip_statement(p); break;
  default: break;
  }
}

static bool is_control(ptx_op op)
{
  return op == PTX_OP_bra || op == PTX_OP_brx || op == PTX_OP_call || op == PTX_OP_ret || op == PTX_OP_exit ||
         op == PTX_OP_trap || op == PTX_OP_brkpt || op == PTX_OP_bar || op == PTX_OP_barrier;
}

static ptx_handler *pick(const ptx_inst *i)
{
  static ptx_handler *(*const families[])(const ptx_inst *) = {
    ptx_pick_move, ptx_pick_memory, ptx_pick_multicast, ptx_pick_compare, ptx_pick_convert, ptx_pick_int,
    ptx_pick_bits, ptx_pick_float, ptx_pick_warp, ptx_pick_matrix};
  ptx_handler *h = NULL;
  for (size_t n = 0; n < sizeof families / sizeof *families && !h; n++) h = families[n](i);
  return h;
}

static void guard(ptx_parser *p, ptx_inst *i)
{
  if (!ptx_take(p, "@")) return;
  bool pred;
  i->negate = ptx_take(p, "!");
  i->guard = operand(p, &pred);
  if (!pred) ptx_bad(p, "a guard must be a predicate");
}

/* A predicate register stands where the instruction wants one, and nowhere else. */
static void check_predicates(ptx_parser *p, ptx_inst *i)
{
  unsigned dst = 0, src = 0, op = i->op;
  bool logic = i->type == PTX_PRED;
  if (op == PTX_OP_setp || op == PTX_OP_testp || op == PTX_OP_isspacep || (op == PTX_OP_vote && i->mode != PTX_BALLOT))
    dst = 1;
  if (op == PTX_OP_setp && i->dst_count > 1) dst = 3;
  if ((op == PTX_OP_shfl || op == PTX_OP_match) && i->dst_count > 1) dst = 2;
  if (op == PTX_OP_elect) dst = 2;
  if (op == PTX_OP_selp || ((op == PTX_OP_setp || op == PTX_OP_set) && i->src_count > 2)) src = 4;
  if (op == PTX_OP_vote) src = 1;
  if ((op == PTX_OP_bar || op == PTX_OP_barrier) && i->mode == PTX_BAR_RED)
    src = 1u << (i->src_count - 1), dst = i->atomic == PTX_POPC ? 0 : 1;
  if (logic && op != PTX_OP_vote) dst = 1, src = (1u << i->src_count) - 1;
  for (int n = 0; n < i->dst_count; n++) /* `_` fits everywhere */
    if (dst >> n & 1 && i->dst[n] == PTX_SR_ZERO_SINK && !(i->dst_pred >> n & 1))
      ptx_bad(p, "%s: a predicate result that is not used is not supported", ops[op].name);
  for (int n = 0; n < i->src_count; n++) /* immediate predicates: places 0 and 1 are false and true */
    if (src >> n & 1 && !(i->src_pred >> n & 1) && i->src[n] < 0)
      i->src[n] = p->m->consts[~i->src[n]][0] != 0, i->src_pred |= (uint16_t)(1 << n);
  if (i->dst_pred != dst || i->src_pred != src)
    ptx_bad(p, "%s: a predicate where a value must be, or the reverse", ops[op].name);
}

void ptx_statement(ptx_parser *p)
{
  ptx_inst i = {.guard = -1, .line = p->token.line, .vec = 1};
  guard(p, &i);
  if (p->token.kind != PTX_T_WORD)
    ptx_bad(p, "expected an instruction before \"%.*s\"", (int)p->token.size, p->token.text);
  ptx_token name = p->token;
  i.line = name.line;
  mnemonic(p, &i);
  i.base = ptx_constant(p, 0);
  if (i.op == PTX_OP_call) {
    call(p, &i);
    return;
  }
  operands(p, &i);
  ptx_want(p, ";");
  if (ops[i.op].form == SKIP && i.op != PTX_OP_nanosleep) return;
  if (i.op == PTX_OP_multimem && p->m->target < 90) ptx_bad(p, "multimem: sm_%u has no such instruction", p->m->target);
  if (ops[i.op].form != INDEXED && ops[i.op].form != BRANCH) check_predicates(p, &i);
  for (int n = i.src_count; n < PTX_MAX_SRC; n++) i.src[n] = ptx_constant(p, 0);
  if (i.op == PTX_OP_ret) i.target = p->function->entry ? -1 : p->function->return_row;
  if (i.op == PTX_OP_ret && p->function->entry) i.op = PTX_OP_exit;
  if (!is_control((ptx_op)i.op) && !(i.run = pick(&i))) {
    p->token.line = name.line;
    ptx_bad(p, "the instruction %.*s is not supported in this form", (int)name.size, name.text);
  }
  push(p, &i);
}
