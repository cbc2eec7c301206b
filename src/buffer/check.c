/* buffer/check.c -- The proof of a plan, by running the module on symbols.  Each byte of memory is tagged with the
 * value that was last written there; each step must find its operands' values where the plan says they are, and then
 * tags its results.  Only the module and the queries of plan.h are consulted; no code is shared with the planner.
 *
 * A loop is run once, with a new value for each part of its state that changes: the memory of that state must hold
 * the initial value on entry, and the next value at the end of the body.  Each branch of a conditional runs on a
 * copy of the memory.  After the branches, bytes on which they differ hold nothing, except for the results. */
#include <config.h>

#include <stdlib.h>
#include <string.h>

#include "buffer/plan.h"

typedef struct piece { int64_t begin, end, value; } piece; /* value 0: nothing known */
typedef struct bytes { int count, capacity; piece *pieces; } bytes; /* sorted, disjoint; gaps hold nothing */

typedef struct checker {
  weft_arena arena;
  const buf_plan *plan;
  bytes *memory;        /* by allocation */
  int64_t *value_of;    /* by leaf_base[id] + leaf: the value expected there */
  int *leaf_base;       /* by instruction id */
  bool *invariant;      /* as value_of, for a while: its body passes this state on unchanged */
  bool *depends;        /* by instruction id: scratch memory of same_index_only */
  const hlo_instr **by; /* by value: the instruction that made it, for messages */
  int64_t value_count;
  int value_capacity;
} checker;

static int leaves_of(const hlo_instr *instr) { return hlo_shape_leaf_count(instr->shape); }
static int64_t *expected(checker *c, const hlo_instr *instr) { return c->value_of + c->leaf_base[instr->id]; }

static weft_status *fresh(checker *c, const hlo_instr *by, int64_t *out_value)
{
  WEFT_TRY_ALLOC(WEFT_ARENA_RESERVE(&c->arena, c->by, c->value_capacity, c->value_count + 1, 1024));
  if (c->value_count == 0) c->value_count = 1; /* 0 is nothing */
  c->by[c->value_count] = by;
  *out_value = c->value_count++;
  return NULL;
}

/* ---- memory ---------------------------------------------------------------------------------------------------- */

static int first_piece(const bytes *m, int64_t at) /* the first that ends after `at` */
{
  int low = 0, high = m->count;
  while (low < high) {
    int middle = (low + high) / 2;
    if (m->pieces[middle].end <= at) low = middle + 1;
    else high = middle;
  }
  return low;
}

static weft_status *put(checker *c, buf_slice slice, int64_t value)
{
  bytes *m = &c->memory[slice.alloc];
  int64_t begin = slice.offset, end = begin + slice.bytes;
  int first = first_piece(m, begin), last = first, fresh_count = 0;
  piece replacement[3];

  while (last < m->count && m->pieces[last].begin < end) last++;
  if (first < last && m->pieces[first].begin < begin)
    replacement[fresh_count++] = (piece){m->pieces[first].begin, begin, m->pieces[first].value};
  replacement[fresh_count++] = (piece){begin, end, value};
  if (first < last && m->pieces[last - 1].end > end)
    replacement[fresh_count++] = (piece){end, m->pieces[last - 1].end, m->pieces[last - 1].value};
  WEFT_TRY_ALLOC(WEFT_ARENA_RESERVE(&c->arena, m->pieces, m->capacity, m->count + 3, 16));
  memmove(m->pieces + first + fresh_count, m->pieces + last, (size_t)(m->count - last) * sizeof(piece));
  memcpy(m->pieces + first, replacement, (size_t)fresh_count * sizeof(piece));
  m->count += fresh_count - (last - first);
  return NULL;
}

static weft_status *write_value(checker *c, const hlo_instr *instr, buf_slice slice, int64_t value)
{
  if (slice.alloc < 0 || slice.bytes == 0) return NULL;
  const buf_alloc *alloc = buf_plan_alloc(c->plan, slice.alloc);
  if (slice.offset < 0 || slice.offset % BUF_ALIGN || slice.offset + slice.bytes > alloc->bytes)
    return WEFT_ERR(INTERNAL, "plan: \"%s\" is outside its allocation, or not aligned", instr->name);
  if (alloc->read_only) return WEFT_ERR(INTERNAL, "plan: \"%s\" writes into read-only memory", instr->name);
  return put(c, slice, value);
}

/* The bytes of `slice` must hold `value`. */
static weft_status *expect(checker *c, const hlo_instr *reader, buf_slice slice, int64_t value)
{
  if (slice.alloc < 0 || slice.bytes == 0) return NULL;
  const bytes *m = &c->memory[slice.alloc];
  int64_t at = slice.offset, end = at + slice.bytes;
  for (int i = first_piece(m, at); at < end; i++) {
    bool there = i < m->count && m->pieces[i].begin <= at;
    if (there && m->pieces[i].value == value) {
      at = m->pieces[i].end;
      continue;
    }
    const hlo_instr *wanted = c->by[value], *got = there && m->pieces[i].value ? c->by[m->pieces[i].value] : NULL;
    return WEFT_ERR(INTERNAL, "plan: \"%s\" needs the value of \"%s\" at allocation %d offset %lld, which holds %s%s%s",
                    reader->name, wanted ? wanted->name : "?", slice.alloc, (long long)at,
                    got ? "that of \"" : "nothing", got ? got->name : "", got ? "\"" : "");
  }
  return NULL;
}

static weft_status *copy_memory(checker *c, const bytes *from, bytes **out)
{
  int count = buf_plan_alloc_count(c->plan);
  bytes *copy = WEFT_ARENA_ARRAY(&c->arena, bytes, count);

  WEFT_TRY_ALLOC(copy);
  for (int i = 0; i < count; i++) {
    if (from[i].count == 0) continue;
    copy[i] = (bytes){.count = from[i].count, .capacity = from[i].count};
    copy[i].pieces = weft_arena_memdup(&c->arena, from[i].pieces, (size_t)from[i].count * sizeof(piece));
    WEFT_TRY_ALLOC(copy[i].pieces);
  }
  *out = copy;
  return NULL;
}

/* Makes unknown those bytes of c->memory whose value differs in `other`. */
static weft_status *meet(checker *c, const bytes *other)
{
  for (int a = 0; a < buf_plan_alloc_count(c->plan); a++) {
    bytes *m = &c->memory[a], before = *m;
    before.pieces = weft_arena_memdup(&c->arena, m->pieces, (size_t)m->count * sizeof(piece));
    WEFT_TRY_ALLOC(before.pieces);
    for (int i = 0; i < before.count; i++) {
      piece p = before.pieces[i];
      for (int64_t at = p.begin; at < p.end;) { /* cut p at the ends of the other's pieces */
        int k = first_piece(&other[a], at);
        bool inside = k < other[a].count && other[a].pieces[k].begin <= at;
        int64_t end = inside               ? WEFT_MIN(p.end, other[a].pieces[k].end)
                      : k < other[a].count ? WEFT_MIN(p.end, other[a].pieces[k].begin)
                                           : p.end;
        if (!inside || other[a].pieces[k].value != p.value) WEFT_TRY(put(c, (buf_slice){a, at, end - at}, 0));
        at = end;
      }
    }
  }
  return NULL;
}

/* ---- running --------------------------------------------------------------------------------------------------- */

static bool overlap(buf_slice a, buf_slice b)
{
  return a.alloc >= 0 && a.alloc == b.alloc && a.bytes > 0 && b.bytes > 0 && a.offset < b.offset + b.bytes &&
         b.offset < a.offset + a.bytes;
}

static bool alias_declared(const hlo_instr *instr, int result_leaf, int operand, int operand_leaf)
{
  int count = instr->op == HLO_FUSION        ? instr->u.fusion.alias_count
              : instr->op == HLO_CUSTOM_CALL ? instr->u.custom->alias_count
                                             : 0;
  const hlo_output_alias *aliases = instr->op == HLO_FUSION ? instr->u.fusion.aliases
                                    : count                 ? instr->u.custom->aliases
                                                            : NULL;

  for (int i = 0; i < count; i++) {
    const hlo_shape *out = instr->shape, *in = instr->operands[aliases[i].operand]->shape;
    int out_leaf = 0, in_leaf = 0;
    for (int k = 0; k < aliases[i].output_index.count; k++) {
      out_leaf += hlo_shape_leaf_offset(out, aliases[i].output_index.v[k]);
      out = out->elements[aliases[i].output_index.v[k]];
    }
    for (int k = 0; k < aliases[i].operand_index.count; k++) {
      in_leaf += hlo_shape_leaf_offset(in, aliases[i].operand_index.v[k]);
      in = in->elements[aliases[i].operand_index.v[k]];
    }
    if (aliases[i].operand == operand && in_leaf == operand_leaf && out_leaf == result_leaf) return true;
  }
  return false;
}

/* True if the step may write the result over that operand: it reads element i of the operand for element i of that
 * result only.  A sort may write over the operand of the same number, since it reads a slice before it writes it.  In a
 * loop fusion, whatever depends on the operand must be elementwise or a reshape; if another result depends on it too,
 * all results must have as many elements as the operand (the fusion then computes all of them before it stores any). */
static bool same_index_only(checker *c, const hlo_instr *instr, int result_leaf, int operand)
{
  const hlo_shape *shape = instr->operands[operand]->shape;

  if (!hlo_shape_is_array(shape)) return false;
  if (instr->op == HLO_SORT) return result_leaf == operand;
  if (instr->op != HLO_FUSION) return hlo_opcode_is_elementwise(instr->op) && hlo_shape_same_dims(shape, instr->shape);
  if (instr->u.fusion.kind != HLO_FUSION_LOOP) return false;
  const hlo_computation *comp = instr->called[0];
  HLO_FOREACH(at, comp) {
    bool depends = at == hlo_parameter(comp, operand);
    for (int i = 0; i < at->operand_count; i++) {
      const hlo_instr *x = at->operands[i];
      if (!c->depends[x->id]) continue;
      if (at == comp->root && at->op == HLO_TUPLE) {
        for (int k = 0; i != result_leaf && k < at->operand_count; k++)
          if (!hlo_shape_is_array(at->operands[k]->shape) ||
              hlo_shape_elems(at->operands[k]->shape) != hlo_shape_elems(shape))
            return false;
      } else if (at->op != HLO_RESHAPE && at->op != HLO_BITCAST &&
                 !(hlo_opcode_is_elementwise(at->op) && hlo_shape_same_dims(x->shape, at->shape))) {
        return false;
      }
      depends = true;
    }
    c->depends[at->id] = depends;
  }
  return true;
}

/* True if leaf `leaf` of the start or done of an asynchronous operation is an operand's memory; *out_value is that
 * operand's value. */
static bool hands_on(checker *c, const hlo_instr *instr, int leaf, int64_t *out_value)
{
  const hlo_instr *first = instr->operand_count ? instr->operands[0] : NULL;

  switch (instr->op) {
  case HLO_SEND:
    if (leaf == 0) *out_value = expected(c, first)[0];
    return leaf == 0;
  case HLO_RECV_DONE:
    if (leaf == 0) *out_value = expected(c, first)[0];
    return leaf == 0;
  case HLO_ALL_REDUCE_DONE: *out_value = expected(c, first)[leaf]; return true;
  case HLO_ALL_GATHER_DONE: case HLO_COLLECTIVE_PERMUTE_DONE:
    *out_value = expected(c, first)[hlo_shape_leaf_offset(first->shape, 1) + leaf];
    return true;
  case HLO_ALL_GATHER_START: case HLO_COLLECTIVE_PERMUTE_START:
    for (int i = 0; i < instr->operand_count; i++) {
      if (leaf < leaves_of(instr->operands[i])) {
        *out_value = expected(c, instr->operands[i])[leaf];
        return true;
      }
      leaf -= leaves_of(instr->operands[i]);
    }
    return false;
  default: return false;
  }
}

static weft_status *run_step(checker *c, const hlo_instr *instr)
{
  buf_slice scratch = buf_plan_scratch(c->plan, instr);
  int leaves = leaves_of(instr);

  for (int i = 0; i < instr->operand_count; i++)
    for (int k = 0; k < leaves_of(instr->operands[i]); k++) {
      buf_slice in = buf_plan_slice(c->plan, instr->operands[i], k);
      WEFT_TRY(expect(c, instr, in, expected(c, instr->operands[i])[k]));
      if (overlap(in, scratch)) return WEFT_ERR(INTERNAL, "plan: scratch of \"%s\" is in its operand", instr->name);
      for (int r = 0; r < leaves; r++) {
        buf_slice out = buf_plan_slice(c->plan, instr, r);
        int64_t ignored;
        if (!overlap(in, out) || hands_on(c, instr, r, &ignored)) continue;
        if (in.offset != out.offset || in.bytes != out.bytes ||
            (!alias_declared(instr, r, i, k) && !same_index_only(c, instr, r, i)))
          return WEFT_ERR(INTERNAL, "plan: \"%s\" writes over operand %d while it reads it", instr->name, i);
      }
    }
  if (scratch.bytes > 0) WEFT_TRY(write_value(c, instr, scratch, 0));
  for (int r = 0; r < leaves; r++) {
    buf_slice out = buf_plan_slice(c->plan, instr, r);
    if (hands_on(c, instr, r, &expected(c, instr)[r])) continue;
    for (int k = 0; k < r; k++)
      if (overlap(out, buf_plan_slice(c->plan, instr, k)))
        return WEFT_ERR(INTERNAL, "plan: results of \"%s\" overlap", instr->name);
    if (overlap(out, scratch)) return WEFT_ERR(INTERNAL, "plan: scratch of \"%s\" is in its result", instr->name);
    WEFT_TRY(fresh(c, instr, &expected(c, instr)[r]));
    WEFT_TRY(write_value(c, instr, out, expected(c, instr)[r]));
  }
  return NULL;
}

static weft_status *run(checker *c, const hlo_computation *comp);

static weft_status *run_while(checker *c, const hlo_instr *loop)
{
  const hlo_computation *body = loop->called[0], *cond = loop->called[1];
  const hlo_instr *state[] = {hlo_parameter(body, 0), hlo_parameter(cond, 0)};
  const hlo_instr *init = loop->operands[0];
  int leaves = leaves_of(loop);

  for (int k = 0; k < leaves; k++) {
    buf_slice slice = buf_plan_slice(c->plan, state[0], k);
    int64_t value = expected(c, init)[k];
    WEFT_TRY(expect(c, loop, buf_plan_slice(c->plan, init, k), value));
    WEFT_TRY(expect(c, loop, slice, value));
    if (!c->invariant[c->leaf_base[loop->id] + k]) {
      WEFT_TRY(fresh(c, loop, &value));
      WEFT_TRY(write_value(c, loop, slice, value));
    }
    expected(c, state[0])[k] = expected(c, state[1])[k] = value;
  }
  WEFT_TRY(run(c, cond));
  WEFT_TRY(expect(c, loop, buf_plan_slice(c->plan, cond->root, 0), expected(c, cond->root)[0]));
  for (int k = 0; k < leaves; k++) { /* the loop may be left here */
    expected(c, loop)[k] = expected(c, state[0])[k];
    WEFT_TRY(expect(c, loop, buf_plan_slice(c->plan, loop, k), expected(c, loop)[k]));
  }
  WEFT_TRY(run(c, body));
  for (int k = 0; k < leaves; k++) {
    WEFT_TRY(expect(c, loop, buf_plan_slice(c->plan, state[0], k), expected(c, body->root)[k]));
    if (c->invariant[c->leaf_base[loop->id] + k]) continue;
    WEFT_TRY(fresh(c, loop, &expected(c, loop)[k])); /* the state of whichever iteration was the last */
    WEFT_TRY(write_value(c, loop, buf_plan_slice(c->plan, loop, k), expected(c, loop)[k]));
  }
  return NULL;
}

static weft_status *run_conditional(checker *c, const hlo_instr *instr)
{
  int leaves = leaves_of(instr);
  bytes *before, *joined = NULL;

  WEFT_TRY(expect(c, instr, buf_plan_slice(c->plan, instr->operands[0], 0), expected(c, instr->operands[0])[0]));
  for (int k = 0; k < leaves; k++) WEFT_TRY(fresh(c, instr, &expected(c, instr)[k]));
  WEFT_TRY(copy_memory(c, c->memory, &before));
  for (int b = 0; b < instr->called_count; b++) {
    const hlo_computation *branch = instr->called[b];
    const hlo_instr *operand = instr->operands[b + 1];
    WEFT_TRY(copy_memory(c, before, &c->memory));
    memcpy(expected(c, hlo_parameter(branch, 0)), expected(c, operand), (size_t)leaves_of(operand) * sizeof(int64_t));
    WEFT_TRY(run(c, branch));
    for (int k = 0; k < leaves; k++) {
      buf_slice slice = buf_plan_slice(c->plan, instr, k);
      WEFT_TRY(expect(c, instr, slice, expected(c, branch->root)[k]));
      if (slice.alloc >= 0 && slice.bytes > 0) WEFT_TRY(put(c, slice, expected(c, instr)[k]));
    }
    if (joined) WEFT_TRY(meet(c, joined));
    joined = c->memory;
  }
  return NULL;
}

static weft_status *run_call(checker *c, const hlo_instr *instr)
{
  const hlo_computation *callee = instr->called[0];

  for (int i = 0; i < instr->operand_count; i++)
    memcpy(expected(c, hlo_parameter(callee, i)), expected(c, instr->operands[i]),
           (size_t)leaves_of(instr->operands[i]) * sizeof(int64_t));
  WEFT_TRY(run(c, callee));
  memcpy(expected(c, instr), expected(c, callee->root), (size_t)leaves_of(instr) * sizeof(int64_t));
  return NULL;
}

static void run_alias(checker *c, const hlo_instr *instr)
{
  int64_t *mine = expected(c, instr);
  int at = 0;

  if (instr->op == HLO_TUPLE) {
    for (int i = 0; i < instr->operand_count; i++)
      for (int k = 0; k < leaves_of(instr->operands[i]); k++) mine[at++] = expected(c, instr->operands[i])[k];
    return;
  }
  if (instr->op == HLO_GET_TUPLE_ELEMENT) at = hlo_shape_leaf_offset(instr->operands[0]->shape, instr->u.tuple_index);
  for (int k = 0; k < leaves_of(instr); k++) mine[k] = expected(c, instr->operands[0])[at + k];
}

/* Recursion is as deep as calls nest, which buf_flow_new limits. */
static weft_status *run(checker *c, const hlo_computation *comp)
{
  HLO_FOREACH(instr, comp) {
    switch (instr->op) {
    case HLO_PARAMETER: break;
    case HLO_CONSTANT: case HLO_AFTER_ALL:
      for (int k = 0; k < leaves_of(instr); k++) {
        buf_slice slice = buf_plan_slice(c->plan, instr, k);
        WEFT_TRY(fresh(c, instr, &expected(c, instr)[k]));
        if (slice.alloc >= 0 && slice.bytes > 0) WEFT_TRY(put(c, slice, expected(c, instr)[k]));
      }
      break;
    case HLO_WHILE: WEFT_TRY(run_while(c, instr)); break;
    case HLO_CONDITIONAL: WEFT_TRY(run_conditional(c, instr)); break;
    case HLO_CALL: WEFT_TRY(run_call(c, instr)); break;
    case HLO_TUPLE: case HLO_GET_TUPLE_ELEMENT: run_alias(c, instr); break;
    default:
      if (hlo_opcode_is_alias_of_operand(instr->op)) run_alias(c, instr);
      else WEFT_TRY(run_step(c, instr));
    }
  }
  return NULL;
}

/* Follows leaf `leaf` of `instr` back to a parameter of its computation; true if it is leaf *out_leaf of parameter
 * *out_param, untouched.  Inner loops come earlier in the module, so their `invariant` is known. */
static bool comes_from(const checker *c, const hlo_instr *instr, int leaf, int64_t *out_param, int *out_leaf)
{
  for (;;) {
    switch (instr->op) {
    case HLO_PARAMETER:
      *out_param = instr->u.parameter_number;
      *out_leaf = leaf;
      return true;
    case HLO_TUPLE: {
      int i = 0;
      for (; leaf >= leaves_of(instr->operands[i]); i++) leaf -= leaves_of(instr->operands[i]);
      instr = instr->operands[i];
      break;
    }
    case HLO_GET_TUPLE_ELEMENT:
      leaf += hlo_shape_leaf_offset(instr->operands[0]->shape, instr->u.tuple_index); /* fall through */
    case HLO_RESHAPE: case HLO_BITCAST: case HLO_OPT_BARRIER: case HLO_DOMAIN:
    case HLO_ADD_DEPENDENCY: instr = instr->operands[0]; break;
    case HLO_WHILE:
      if (!c->invariant[c->leaf_base[instr->id] + leaf]) return false;
      instr = instr->operands[0];
      break;
    case HLO_CALL: {
      int64_t param;
      if (!comes_from(c, instr->called[0]->root, leaf, &param, &leaf)) return false;
      instr = instr->operands[param];
      break;
    }
    default: return false;
    }
  }
}

static weft_status *check(checker *c, const hlo_module *module)
{
  int total = 0;
  const hlo_instr *root = module->entry->root;

  c->memory = WEFT_ARENA_ARRAY(&c->arena, bytes, buf_plan_alloc_count(c->plan));
  c->leaf_base = WEFT_ARENA_ARRAY(&c->arena, int, module->next_id);
  c->depends = WEFT_ARENA_ARRAY(&c->arena, bool, module->next_id);
  if (!c->memory || !c->leaf_base || !c->depends) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  HLO_FOREACH_COMPUTATION(comp, module)
    HLO_FOREACH(instr, comp) {
      c->leaf_base[instr->id] = total;
      total += leaves_of(instr);
    }
  c->value_of = WEFT_ARENA_ARRAY(&c->arena, int64_t, total);
  c->invariant = WEFT_ARENA_ARRAY(&c->arena, bool, total);
  if (!c->value_of || !c->invariant) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  HLO_FOREACH_COMPUTATION(comp, module)
    HLO_FOREACH(instr, comp)
      for (int k = 0; instr->op == HLO_WHILE && k < leaves_of(instr); k++) {
        int64_t param;
        int leaf;
        c->invariant[c->leaf_base[instr->id] + k] = comes_from(c, instr->called[0]->root, k, &param, &leaf) &&
                                                    leaf == k;
      }
  for (int p = 0; p < module->entry->param_count; p++)
    for (int k = 0; k < leaves_of(module->entry->params[p]); k++) {
      buf_slice slice = buf_plan_slice(c->plan, module->entry->params[p], k);
      WEFT_TRY(fresh(c, module->entry->params[p], &expected(c, module->entry->params[p])[k]));
      if (slice.alloc >= 0 && slice.bytes > 0) WEFT_TRY(put(c, slice, expected(c, module->entry->params[p])[k]));
    }
  WEFT_TRY(run(c, module->entry));
  for (int k = 0; k < leaves_of(root); k++) {
    buf_slice slice = buf_plan_slice(c->plan, root, k);
    WEFT_TRY(expect(c, root, slice, expected(c, root)[k]));
    if (slice.bytes > 0 && (slice.alloc != buf_plan_output_alloc(c->plan, k) || slice.offset != 0))
      return WEFT_ERR(INTERNAL, "plan: result %d is not where the caller gets it", k);
  }
  return NULL;
}

weft_status *buf_plan_check(const buf_plan *plan)
{
  checker c = {.plan = plan};
  weft_status *st;

  weft_arena_init(&c.arena);
  st = check(&c, buf_plan_module(plan));
  weft_arena_fini(&c.arena);
  return st;
}
