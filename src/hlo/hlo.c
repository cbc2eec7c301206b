/* hlo/hlo.c -- building, editing and cloning modules (hlo.h). */
#include <config.h>

#include "hlo/hlo.h"

#include <ctype.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct hlo_module_ref {
  struct hlo_module_ref *next;
  hlo_module *module;
};

/* Appends to a list.  The capacity follows from the count: it is the next power of two, and 1 for an empty list that
 * exists. A full list moves to memory for twice as many items. */
static bool append_pointer(weft_arena *arena, void *list_location, int *count, void *item)
{
  void ***list = list_location;

  if ((*count & (*count - 1)) == 0 && (*count || !*list)) {
    void **grown = WEFT_ARENA_ARRAY(arena, void *, *count ? *count * 2 : 1);
    if (!grown) return false;
    if (*count) memcpy(grown, *list, (size_t)*count * sizeof *grown);
    *list = grown;
  }
  (*list)[(*count)++] = item;
  return true;
}

static bool has_pointer(hlo_instr *const *list, int count, const hlo_instr *item)
{
  for (int i = 0; i < count; i++)
    if (list[i] == item) return true;
  return false;
}

static void erase_pointer(void *list_location, int *count, const void *item)
{
  void **list = *(void ***)list_location;

  for (int i = 0, last = *count - 1; i <= last - i;
       i++) { /* from both ends: some callers erase in order, some in reverse */
    int at = list[last - i] == item ? last - i : i;
    if (list[at] != item) continue;
    list[at] = list[--*count];
    return;
  }
}

/* The lists of operands and users.  A list has room for `1 << room` pointers, and behind them for as many numbers.
 * The number of an operand is the index of this use in the operand's list of users; the number of a user is the
 * index of this use in the user's list of operands.  So either end of a use finds the other at once, however long
 * the lists are. */
static size_t list_bytes(int room) { return (sizeof(hlo_instr *) + sizeof(int)) << room; }

static int *list_numbers(hlo_instr **list, int room) { return (int *)(list + (1 << room)); }

static int room_for(int count) { return count > 1 ? 32 - __builtin_clz((unsigned)count - 1) : 0; }

static bool list_grow(weft_arena *arena, hlo_instr ***list, int count, uint8_t *room)
{
  int wider = *list ? *room + 1 : 0;
  hlo_instr **grown = weft_arena_alloc(arena, list_bytes(wider));

  if (!grown) return false;
  if (count) {
    memcpy(grown, *list, (size_t)count * sizeof *grown);
    memcpy(list_numbers(grown, wider), list_numbers(*list, *room), (size_t)count * sizeof(int));
  }
  *list = grown;
  *room = (uint8_t)wider;
  return true;
}

static inline bool list_reserve(weft_arena *arena, hlo_instr ***list, int count, uint8_t *room)
{
  return WEFT_LIKELY(*list && count < 1 << *room) || list_grow(arena, list, count, room);
}

static inline void link_use(hlo_instr *user, int slot, hlo_instr *operand, int place)
{
  user->operands[slot] = operand;
  list_numbers(user->operands, user->operand_room)[slot] = place;
  operand->users[place] = user;
  list_numbers(operand->users, operand->user_room)[place] = slot;
}

static inline bool add_use(weft_arena *arena, hlo_instr *user, int slot, hlo_instr *operand)
{
  if (!list_reserve(arena, &operand->users, operand->user_count, &operand->user_room)) return false;
  link_use(user, slot, operand, operand->user_count++);
  return true;
}

/* The last entry in the list of users takes the place of the removed entry. */
static void remove_use(const hlo_instr *user, int slot)
{
  hlo_instr *operand = user->operands[slot];
  int place = list_numbers(user->operands, user->operand_room)[slot], last = --operand->user_count;

  link_use(operand->users[last], list_numbers(operand->users, operand->user_room)[last], operand, place);
}

/* ---- modules ----------------------------------------------------------------------------------------------------- */

weft_status *hlo_module_new(const char *name, hlo_module **out_module)
{
  hlo_module *module = calloc(1, sizeof *module);

  *out_module = NULL;
  WEFT_TRY_ALLOC(module);
  weft_arena_init(&module->arena);
  module->refs = 1;
  module->replica_count = module->num_partitions = 1;
  module->suffix_digits.number = -1;
  module->name = weft_arena_strdup(&module->arena, name);
  if (!module->name) {
    hlo_module_free(module);
    return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  }
  *out_module = module;
  return NULL;
}

void hlo_module_free(hlo_module *module)
{
  if (!module || __atomic_sub_fetch(&module->refs, 1, __ATOMIC_ACQ_REL) != 0) return;
  for (struct hlo_module_ref *ref = module->sources; ref; ref = ref->next) hlo_module_free(ref->module);
  weft_arena_fini(&module->arena);
  free(module);
}

const char *hlo_module_file_name(const hlo_module *module, char buf[HLO_FILE_NAME_BYTES])
{
  snprintf(buf, HLO_FILE_NAME_BYTES, "%s", module->name);
  for (char *c = buf; *c; c++)
    if (!isalnum((unsigned char)*c) && !strchr("-_", *c) && (*c != '.' || c == buf)) *c = '_';
  return buf;
}

/* Keeps `source` alive as long as `module`: instructions of `module` share the attributes in the arena of `source`. */
static weft_status *keep_alive(hlo_module *module, const hlo_module *source)
{
  struct hlo_module_ref *ref;

  for (ref = module->sources; ref; ref = ref->next)
    if (ref->module == source) return NULL;
  ref = WEFT_ARENA_NEW(&module->arena, struct hlo_module_ref);
  WEFT_TRY_ALLOC(ref);
  ref->module = (hlo_module *)source;
  __atomic_add_fetch(&ref->module->refs, 1, __ATOMIC_RELAXED); /* the caller holds a reference */
  ref->next = module->sources;
  module->sources = ref;
  return NULL;
}

weft_status *hlo_module_clone(const hlo_module *source, hlo_module **out_module)
{
  WEFT_AUTO(hlo_module) module = NULL;
  hlo_module fresh;
  hlo_computation *entry = NULL;

  *out_module = NULL;
  WEFT_TRY(hlo_module_new(source->name, &module));
  WEFT_TRY(keep_alive(module, source));
  fresh = *module;
  *module = *source; /* the attributes */
  module->arena = fresh.arena;
  module->refs = fresh.refs;
  module->sources = fresh.sources;
  module->first = module->last = module->entry = NULL;
  module->computation_count = module->next_computation_id = module->next_id = 0;
  if (source->entry) {
    WEFT_TRY(hlo_computation_clone(module, source->entry, NULL, NULL, &entry));
    module->entry = entry;
  }
  *out_module = WEFT_MOVE(module);
  return NULL;
}

/* The number N at the end of a name "stem.N", or -1 if there is none; *stem_length is the length of the stem. */
static int64_t name_suffix(const char *name, size_t *stem_length)
{
  size_t length = strlen(name), at = length;
  int64_t number = 0;

  *stem_length = length;
  while (at > 0 && name[at - 1] >= '0' && name[at - 1] <= '9') at--;
  if (at == length || at == 0 || name[at - 1] != '.' || length - at > 17) return -1;
  for (size_t i = at; i < length; i++) number = number * 10 + (name[i] - '0');
  *stem_length = at - 1;
  return number;
}

static void note_name(hlo_module *module, const char *name)
{
  size_t unused;
  int64_t suffix = name_suffix(name, &unused);

  if (suffix >= module->next_suffix) module->next_suffix = suffix + 1;
}

/* A name to be written: a stem, and ".N" behind it.  Every new instruction gets a
 * name, so it is written without printf. */
typedef struct new_name {
  const char *stem;
  size_t length;      /* of the stem */
  hlo_module *number; /* the module whose next suffix is N; NULL: the name has no ".N" */
  size_t size;        /* of the whole name, with its NUL */
} new_name;

static void spell_suffix(hlo_module *module)
{
  char text[24];

  module->suffix_digits.number = module->next_suffix;
  module->suffix_digits.count = snprintf(text, sizeof text, "%" PRId64, module->next_suffix);
  memcpy(module->suffix_digits.text, text, sizeof module->suffix_digits.text);
}

/* Counts to the next suffix.  The digits follow unless all of them are 9: then numbered_name spells them anew. */
static inline void next_suffix(hlo_module *module)
{
  char *first = module->suffix_digits.text, *at = first + module->suffix_digits.count - 1;

  module->next_suffix++;
  for (; at > first && *at == '9'; at--) *at = '0';
  if (*at == '9') return;
  ++*at;
  module->suffix_digits.number++;
}

static inline new_name numbered_name(hlo_module *module, const char *stem, size_t length)
{
  if (WEFT_UNLIKELY(module->suffix_digits.number != module->next_suffix)) spell_suffix(module);
  return (new_name){stem, length, module, length + (size_t)module->suffix_digits.count + 2};
}

/* memcpy for a few bytes, inline. */
static inline void copy_few(char *to, const char *from, size_t size)
{
  if (size >= 8) {
    for (size_t at = 0; at < size - 8; at += 8) memcpy(to + at, from + at, 8);
    memcpy(to + size - 8, from + size - 8, 8);
  } else if (size >= 4) {
    memcpy(to, from, 4);
    memcpy(to + size - 4, from + size - 4, 4);
  } else {
    for (size_t at = 0; at < size; at++) to[at] = from[at];
  }
}

static inline const char *write_name(const new_name *name, char *out)
{
  copy_few(out, name->stem, name->length);
  if (!name->number) return out;
  out[name->length] = '.';
  copy_few(out + name->length + 1, name->number->suffix_digits.text, (size_t)name->number->suffix_digits.count);
  next_suffix(name->number);
  return out;
}

weft_status *hlo_unique_name(hlo_module *module, const char *stem, const char **out_name)
{
  size_t length;
  new_name name;
  char *text;

  name_suffix(stem, &length);
  name = numbered_name(module, stem, length);
  text = weft_arena_alloc(&module->arena, name.size);
  WEFT_TRY_ALLOC(text);
  *out_name = write_name(&name, text);
  return NULL;
}

static weft_status *copy_name(hlo_module *module, const char *name, const char **out_name)
{
  *out_name = weft_arena_strdup(&module->arena, name);
  WEFT_TRY_ALLOC(*out_name);
  note_name(module, name);
  return NULL;
}

/* ---- computations ------------------------------------------------------------------------------------------------ */

static void link_computation(hlo_computation *comp, hlo_computation *before)
{
  hlo_module *module = comp->module;

  comp->next = before;
  comp->prev = before ? before->prev : module->last;
  *(comp->prev ? &comp->prev->next : &module->first) = comp;
  *(before ? &before->prev : &module->last) = comp;
  module->computation_count++;
}

static void unlink_computation(hlo_computation *comp)
{
  hlo_module *module = comp->module;

  *(comp->prev ? &comp->prev->next : &module->first) = comp->next;
  *(comp->next ? &comp->next->prev : &module->last) = comp->prev;
  comp->prev = comp->next = NULL;
  module->computation_count--;
}

static weft_status *new_computation(hlo_module *module, const char *name, hlo_computation *before,
                                    hlo_computation **out_comp)
{
  hlo_computation *comp = WEFT_ARENA_NEW(&module->arena, hlo_computation);

  *out_comp = NULL;
  WEFT_TRY_ALLOC(comp);
  WEFT_TRY(copy_name(module, name, &comp->name));
  comp->module = module;
  comp->id = module->next_computation_id++;
  link_computation(comp, before);
  *out_comp = comp;
  return NULL;
}

weft_status *hlo_computation_new(hlo_module *module, const char *name, hlo_computation **out_comp)
{
  return new_computation(module, name, NULL, out_comp);
}

void hlo_computation_move_before(hlo_computation *comp, hlo_computation *before)
{
  unlink_computation(comp);
  link_computation(comp, before);
}

void hlo_computation_remove(hlo_computation *comp) { unlink_computation(comp); }

/* The state of one hlo_computation_clone. */
typedef struct clone_ctx {
  hlo_module *to;
  const hlo_module *from;
  hlo_computation **comps; /* by source computation id: the clone, or NULL */
  hlo_instr **instrs;      /* by source instruction id minus `least`: the clone */
  int least;
  bool renames; /* `to` had computations, so the names of `from` may be taken */
  weft_arena *scratch;
} clone_ctx;

static new_name given_name(hlo_module *module, const char *name);
static weft_status *add_instr(hlo_computation *comp, hlo_instr *before, hlo_opcode op, const hlo_shape *shape,
                              int operand_count, hlo_instr *const *operands, const new_name *name,
                              hlo_instr **out_instr);

static void copy_attributes(hlo_instr *to, const hlo_instr *from)
{
  to->metadata = from->metadata;
  to->extra = from->extra;
  to->dims = from->dims;
  to->u = from->u;
}

/* Clones the instructions of `comp` into `copy`.  The computations that it calls have been cloned, or are shared. */
static weft_status *clone_body(clone_ctx *ctx, const hlo_computation *comp, hlo_computation *copy)
{
  weft_arena *arena = &ctx->to->arena;

  for (const hlo_instr *instr = comp->first; instr; instr = instr->next) {
    hlo_instr *clone;
    new_name name = given_name(ctx->to, instr->name);

    hlo_instr *few[8], **operands = few;

    if (instr->operand_count > (int)WEFT_COUNT(few))
      operands = WEFT_ARENA_ARRAY(ctx->scratch, hlo_instr *, instr->operand_count);
    WEFT_TRY_ALLOC(operands);
    for (int i = 0; i < instr->operand_count; i++) operands[i] = ctx->instrs[instr->operands[i]->id - ctx->least];
    WEFT_TRY(add_instr(copy, NULL, instr->op, instr->shape, instr->operand_count, operands, &name, &clone));
    copy_attributes(clone, instr);
    if (instr->called_count) {
      clone->called = WEFT_ARENA_ARRAY(arena, hlo_computation *, instr->called_count);
      WEFT_TRY_ALLOC(clone->called);
      clone->called_count = instr->called_count;
      for (int i = 0; i < instr->called_count; i++)
        clone->called[i] = ctx->to == ctx->from ? instr->called[i] : ctx->comps[instr->called[i]->id];
    }
    for (int i = 0; i < instr->control->pred_count; i++)
      WEFT_TRY(hlo_add_control_edge(ctx->instrs[instr->control->preds[i]->id - ctx->least], clone));
    ctx->instrs[instr->id - ctx->least] = clone;
  }
  copy->params = WEFT_ARENA_ARRAY(arena, hlo_instr *, comp->param_count);
  WEFT_TRY_ALLOC(copy->params);
  copy->param_count = copy->param_capacity = comp->param_count;
  for (int i = 0; i < comp->param_count; i++)
    copy->params[i] = comp->params[i] ? ctx->instrs[comp->params[i]->id - ctx->least] : NULL;
  copy->root = comp->root ? ctx->instrs[comp->root->id - ctx->least] : NULL;
  copy->execution_thread = comp->execution_thread;
  return NULL;
}

/* Marks the computations that `comp` calls, directly or through others.  The stack is explicit: a
 * program may nest calls without bound. */
static weft_status *mark_called(const hlo_computation *comp, bool *marked, weft_arena *scratch)
{
  const hlo_computation **stack =
    WEFT_ARENA_ARRAY(scratch, const hlo_computation *, comp->module->next_computation_id + 1);
  int depth = 0;

  WEFT_TRY_ALLOC(stack);
  marked[comp->id] = true;
  stack[depth++] = comp;
  while (depth) {
    const hlo_computation *at = stack[--depth];
    for (const hlo_instr *instr = at->first; instr; instr = instr->next)
      for (int i = 0; i < instr->called_count; i++) {
        hlo_computation *callee = instr->called[i];
        if (marked[callee->id]) continue;
        marked[callee->id] = true;
        stack[depth++] = callee;
      }
  }
  return NULL;
}

static weft_status *clone_computation(clone_ctx *ctx, const hlo_computation *comp, const char *name,
                                      hlo_computation *before, hlo_computation **out_comp)
{
  weft_arena *scratch = ctx->scratch;
  int count = ctx->from->next_id;

  ctx->least = 0;
  if (ctx->to == ctx->from) hlo_id_range(comp, &ctx->least, &count);
  ctx->instrs = WEFT_ARENA_ARRAY(scratch, hlo_instr *, count);
  WEFT_TRY_ALLOC(ctx->instrs);
  if (ctx->to != ctx->from) {
    bool *needed = WEFT_ARENA_ARRAY(scratch, bool, ctx->from->next_computation_id);
    ctx->comps = WEFT_ARENA_ARRAY(scratch, hlo_computation *, ctx->from->next_computation_id);
    WEFT_TRY_ALLOC(needed);
    WEFT_TRY_ALLOC(ctx->comps);
    WEFT_TRY(mark_called(comp, needed, scratch));
    WEFT_TRY(keep_alive(ctx->to, ctx->from));
    /* the source list has callees first, so the callees of a computation are cloned before it */
    for (const hlo_computation *c = ctx->from->first; c; c = c->next) {
      const char *own_name = c->name;
      if (!needed[c->id] || c == comp) continue;
      if (ctx->renames) WEFT_TRY(hlo_unique_name(ctx->to, c->name, &own_name));
      WEFT_TRY(new_computation(ctx->to, own_name, before, &ctx->comps[c->id]));
      WEFT_TRY(clone_body(ctx, c, ctx->comps[c->id]));
    }
  }
  WEFT_TRY(new_computation(ctx->to, name ? name : comp->name, before, out_comp));
  return clone_body(ctx, comp, *out_comp);
}

weft_status *hlo_computation_clone(hlo_module *module, const hlo_computation *comp, const char *name,
                                   hlo_computation *before, hlo_computation **out_comp)
{
  weft_arena scratch;
  clone_ctx ctx = {
    .to = module, .from = comp->module, .renames = module->computation_count > 0, .scratch = &scratch};
  weft_status *st = NULL;

  *out_comp = NULL;
  if (name || ctx.renames) st = hlo_unique_name(module, name ? name : comp->name, &name);
  weft_arena_init(&scratch);
  if (!st) st = clone_computation(&ctx, comp, name, before, out_comp);
  weft_arena_fini(&scratch);
  return st;
}

/* A depth-first walk over calls from the entry.  Computations leave the stack callees first. */
static weft_status *gc(hlo_module *module, weft_arena *scratch)
{
  enum { UNSEEN, OPEN, DONE };
  struct frame { hlo_computation *comp; hlo_instr *at; int called; } *stack;
  char *state = WEFT_ARENA_ARRAY(scratch, char, module->next_computation_id + 1);
  hlo_computation **order = WEFT_ARENA_ARRAY(scratch, hlo_computation *, module->computation_count + 1);
  int depth = 0, count = 0;

  stack = WEFT_ARENA_ARRAY(scratch, struct frame, module->computation_count + 1);
  WEFT_TRY_ALLOC(state);
  WEFT_TRY_ALLOC(order);
  WEFT_TRY_ALLOC(stack);
  stack[depth++] = (struct frame){module->entry, module->entry->first, 0};
  state[module->entry->id] = OPEN;
  while (depth) {
    struct frame *top = &stack[depth - 1];
    hlo_computation *callee = NULL;

    while (top->at && !callee) {
      if (top->called < top->at->called_count) {
        callee = top->at->called[top->called++];
        if (state[callee->id] == OPEN) return WEFT_ERR(INVALID_ARGUMENT, "computation %s calls itself", callee->name);
        if (state[callee->id] == DONE) callee = NULL;
      } else {
        top->at = top->at->next;
        top->called = 0;
      }
    }
    if (callee) {
      state[callee->id] = OPEN;
      stack[depth++] = (struct frame){callee, callee->first, 0};
    } else {
      state[top->comp->id] = DONE;
      order[count++] = top->comp;
      depth--;
    }
  }
  module->first = module->last = NULL;
  module->computation_count = 0;
  for (int i = 0; i < count; i++) link_computation(order[i], NULL);
  return NULL;
}

weft_status *hlo_module_gc(hlo_module *module)
{
  weft_arena scratch;
  weft_status *st;

  weft_arena_init(&scratch);
  st = gc(module, &scratch);
  weft_arena_fini(&scratch);
  return st;
}

static void unlink_instr(hlo_instr *instr)
{
  hlo_computation *comp = instr->parent;

  *(instr->prev ? &instr->prev->next : &comp->first) = instr->next;
  *(instr->next ? &instr->next->prev : &comp->last) = instr->prev;
  instr->prev = instr->next = NULL;
  comp->instr_count--;
}

static void link_instr(hlo_computation *comp, hlo_instr *instr, hlo_instr *before)
{
  instr->next = before;
  instr->prev = before ? before->prev : comp->last;
  *(instr->prev ? &instr->prev->next : &comp->first) = instr;
  *(before ? &before->prev : &comp->last) = instr;
  comp->instr_count++;
}

void hlo_move_before(hlo_instr *instr, hlo_instr *before)
{
  if (instr == before) return;
  unlink_instr(instr);
  link_instr(instr->parent, instr, before);
}

/* A depth-first walk in the order of the list, operands and control predecessors first, with an explicit stack. */
static weft_status *sort_computation(hlo_computation *comp, weft_arena *scratch)
{
  enum { UNSEEN, OPEN, DONE };
  struct frame { hlo_instr *instr; int next; } *stack;
  hlo_instr **order = WEFT_ARENA_ARRAY(scratch, hlo_instr *, comp->instr_count + 1);
  int depth = 0, count = 0, least, ids;
  char *state;

  hlo_id_range(comp, &least, &ids);
  state = WEFT_ARENA_ARRAY(scratch, char, ids);
  stack = WEFT_ARENA_ARRAY(scratch, struct frame, comp->instr_count + 1);
  WEFT_TRY_ALLOC(state);
  WEFT_TRY_ALLOC(order);
  WEFT_TRY_ALLOC(stack);
  for (hlo_instr *start = comp->first; start; start = start->next) {
    if (state[start->id - least] == DONE) continue;
    stack[depth++] = (struct frame){start, 0};
    state[start->id - least] = OPEN;
    while (depth) {
      struct frame *top = &stack[depth - 1];
      int total = top->instr->operand_count + top->instr->control->pred_count;
      if (top->next < total) {
        int i = top->next++;
        hlo_instr *need = i < top->instr->operand_count ? top->instr->operands[i]
                                                        : top->instr->control->preds[i - top->instr->operand_count];
        if (state[need->id - least] == OPEN)
          return WEFT_ERR(INVALID_ARGUMENT, "computation %s: %s and %s depend on each other", comp->name, need->name,
                          top->instr->name);
        if (state[need->id - least] == UNSEEN) {
          state[need->id - least] = OPEN;
          stack[depth++] = (struct frame){need, 0};
        }
      } else {
        state[top->instr->id - least] = DONE;
        order[count++] = top->instr;
        depth--;
      }
    }
  }
  comp->first = comp->last = NULL;
  comp->instr_count = 0;
  for (int i = 0; i < count; i++) link_instr(comp, order[i], NULL);
  return NULL;
}

weft_status *hlo_computation_sort(hlo_computation *comp)
{
  weft_arena scratch;
  weft_status *st;

  weft_arena_init(&scratch);
  st = sort_computation(comp, &scratch);
  weft_arena_fini(&scratch);
  return st;
}

void hlo_computation_remove_parameter(hlo_computation *comp, int64_t number)
{
  hlo_instr *param = comp->params[number];

  unlink_instr(param);
  param->parent = NULL;
  for (int i = (int)number; i + 1 < comp->param_count; i++) {
    comp->params[i] = comp->params[i + 1];
    comp->params[i]->u.parameter_number = i;
  }
  comp->param_count--;
}

/* ---- building ---------------------------------------------------------------------------------------------------- */

static new_name given_name(hlo_module *module, const char *name)
{
  size_t length = strlen(name);

  note_name(module, name);
  return (new_name){name, length, NULL, length + 1};
}

static const hlo_control no_control;

/* One piece of memory holds the instruction, its operands, room for its first user, and its name.  The rest is zero. */
static inline hlo_instr *alloc_instr(hlo_computation *comp, int operand_count, const new_name *name)
{
  int room = room_for(operand_count);
  size_t operand_bytes = operand_count ? WEFT_ALIGN_UP(list_bytes(room), sizeof(hlo_instr *)) : 0;
  hlo_instr *instr = weft_arena_alloc(&comp->module->arena, sizeof *instr + operand_bytes + list_bytes(0) + name->size);
  char *rest = (char *)(instr + 1);

  if (!instr) return NULL;
  if (operand_count) instr->operands = (hlo_instr **)rest;
  instr->operand_room = (uint8_t)room;
  instr->operand_count = operand_count;
  instr->users = (hlo_instr **)(rest + operand_bytes);
  instr->name = write_name(name, rest + operand_bytes + list_bytes(0));
  instr->id = comp->module->next_id++;
  instr->parent = comp;
  instr->control = &no_control;
  return instr;
}

/* NULL without memory. */
static inline hlo_instr *make_instr(hlo_computation *comp, hlo_instr *before, hlo_opcode op, const hlo_shape *shape,
                                    int operand_count, hlo_instr *const *operands, const new_name *name)
{
  hlo_instr *instr = alloc_instr(comp, operand_count, name);

  if (!instr) return NULL;
  instr->op = op;
  instr->shape = shape;
  for (int i = 0; i < operand_count; i++)
    if (!add_use(&comp->module->arena, instr, i, operands[i])) return NULL;
  link_instr(comp, instr, before);
  return instr;
}

static weft_status *add_instr(hlo_computation *comp, hlo_instr *before, hlo_opcode op, const hlo_shape *shape,
                              int operand_count, hlo_instr *const *operands, const new_name *name,
                              hlo_instr **out_instr)
{
  if (shape) WEFT_TRY(hlo_shape_check_parts(shape));
  *out_instr = make_instr(comp, before, op, shape, operand_count, operands, name);
  WEFT_TRY_ALLOC(*out_instr);
  return NULL;
}

weft_status *hlo_add(hlo_computation *comp, hlo_instr *before, hlo_opcode op, const hlo_shape *shape, int operand_count,
                     hlo_instr *const *operands, const char *name, hlo_instr **out_instr)
{
  new_name own = name ? given_name(comp->module, name)
                      : numbered_name(comp->module, hlo_opcode_name(op), hlo_opcode_name_length(op));

  return add_instr(comp, before, op, shape, operand_count, operands, &own, out_instr);
}

weft_status *hlo_add_again(hlo_computation *comp, const hlo_instr *instr, hlo_instr *const *operands,
                           hlo_instr **out_instr)
{
  new_name name = numbered_name(comp->module, hlo_opcode_name(instr->op), hlo_opcode_name_length(instr->op));
  hlo_instr *again = *out_instr =
    make_instr(comp, NULL, instr->op, instr->shape, instr->operand_count, operands, &name);

  WEFT_TRY_ALLOC(again);
  again->dims = instr->dims;
  again->u = instr->u;
  again->called = instr->called;
  again->called_count = instr->called_count;
  return NULL;
}

weft_status *hlo_add_parameter(hlo_computation *comp, int64_t number, const hlo_shape *shape, const char *name,
                               hlo_instr **out_instr)
{
  enum { MAX_PARAMETERS = 1 << 20 };

  *out_instr = NULL;
  if (number < 0 || number >= MAX_PARAMETERS)
    return WEFT_ERR(INVALID_ARGUMENT, "parameter number %" PRId64 " is not in [0, %d)", number, MAX_PARAMETERS);
  if (number < comp->param_count && comp->params[number])
    return WEFT_ERR(INVALID_ARGUMENT, "computation %s has parameter %" PRId64 " twice", comp->name, number);
  WEFT_TRY_ALLOC(WEFT_ARENA_RESERVE(&comp->module->arena, comp->params, comp->param_capacity, number + 1, 1));
  WEFT_TRY(hlo_add(comp, NULL, HLO_PARAMETER, shape, 0, NULL, name, out_instr));
  (*out_instr)->u.parameter_number = number;
  comp->params[number] = *out_instr;
  if (number >= comp->param_count) comp->param_count = (int)number + 1;
  return NULL;
}

weft_status *hlo_add_constant(hlo_computation *comp, hlo_instr *before, const hlo_literal *literal,
                              hlo_instr **out_instr)
{
  WEFT_TRY(hlo_add(comp, before, HLO_CONSTANT, literal->shape, 0, NULL, NULL, out_instr));
  (*out_instr)->u.literal = literal;
  return NULL;
}

weft_status *hlo_add_clone(hlo_computation *comp, hlo_instr *before, const hlo_instr *instr, hlo_instr *const *operands,
                           hlo_instr **out_instr)
{
  size_t length;

  name_suffix(instr->name, &length);
  new_name name = numbered_name(comp->module, instr->name, length);
  WEFT_TRY(add_instr(comp, before, instr->op, instr->shape, instr->operand_count, operands ? operands : instr->operands,
                     &name, out_instr));
  copy_attributes(*out_instr, instr);
  return instr->called_count ? hlo_set_called(*out_instr, instr->called_count, instr->called) : NULL;
}

/* Makes an array shape in the module of `comp`.
 * Errors: INVALID_ARGUMENT if the array is too large. */
static weft_status *new_shape(hlo_computation *comp, weft_dtype type, int rank, const int64_t *dims,
                              const hlo_shape **out_shape)
{
  hlo_shape *shape = hlo_shape_array(&comp->module->arena, type, rank, dims);

  WEFT_TRY_ALLOC(shape);
  *out_shape = shape;
  if (!hlo_shape_is_sane(shape)) return WEFT_ERR(INVALID_ARGUMENT, "an array of over 2^63 bytes");
  return NULL;
}

weft_status *hlo_add_unary(hlo_computation *comp, hlo_instr *before, hlo_opcode op, hlo_instr *x, hlo_instr **out_instr)
{
  return hlo_add(comp, before, op, x->shape, 1, &x, NULL, out_instr);
}

weft_status *hlo_add_binary(hlo_computation *comp, hlo_instr *before, hlo_opcode op, hlo_instr *x, hlo_instr *y,
                            hlo_instr **out_instr)
{
  return hlo_add(comp, before, op, x->shape, 2, (hlo_instr *[]){x, y}, NULL, out_instr);
}

weft_status *hlo_add_compare(hlo_computation *comp, hlo_instr *before, hlo_direction direction, hlo_instr *x,
                             hlo_instr *y, hlo_instr **out_instr)
{
  const hlo_shape *shape = hlo_shape_with_type(&comp->module->arena, x->shape, WEFT_PRED);

  *out_instr = NULL;
  WEFT_TRY_ALLOC(shape);
  WEFT_TRY(hlo_add(comp, before, HLO_COMPARE, shape, 2, (hlo_instr *[]){x, y}, NULL, out_instr));
  (*out_instr)->u.compare.direction = direction;
  return NULL;
}

weft_status *hlo_add_convert(hlo_computation *comp, hlo_instr *before, hlo_instr *x, weft_dtype type,
                             hlo_instr **out_instr)
{
  const hlo_shape *shape = hlo_shape_with_type(&comp->module->arena, x->shape, type);

  *out_instr = NULL;
  WEFT_TRY_ALLOC(shape);
  return hlo_add(comp, before, HLO_CONVERT, shape, 1, &x, NULL, out_instr);
}

weft_status *hlo_add_reshape(hlo_computation *comp, hlo_instr *before, hlo_instr *x, int rank, const int64_t *dims,
                             hlo_instr **out_instr)
{
  const hlo_shape *shape;

  *out_instr = NULL;
  WEFT_TRY(new_shape(comp, x->shape->type, rank, dims, &shape));
  return hlo_add(comp, before, HLO_RESHAPE, shape, 1, &x, NULL, out_instr);
}

weft_status *hlo_add_transpose(hlo_computation *comp, hlo_instr *before, hlo_instr *x, const int64_t *permutation,
                               hlo_instr **out_instr)
{
  int64_t dims[HLO_MAX_RANK];
  const hlo_shape *shape;

  *out_instr = NULL;
  for (int i = 0; i < x->shape->rank; i++) dims[i] = x->shape->dims[permutation[i]];
  WEFT_TRY(new_shape(comp, x->shape->type, x->shape->rank, dims, &shape));
  WEFT_TRY(hlo_add(comp, before, HLO_TRANSPOSE, shape, 1, &x, NULL, out_instr));
  return hlo_ints_new(comp->module, shape->rank, permutation, &(*out_instr)->dims);
}

weft_status *hlo_add_broadcast(hlo_computation *comp, hlo_instr *before, hlo_instr *x, int rank, const int64_t *dims,
                               const int64_t *map, hlo_instr **out_instr)
{
  const hlo_shape *shape;

  *out_instr = NULL;
  WEFT_TRY(new_shape(comp, x->shape->type, rank, dims, &shape));
  WEFT_TRY(hlo_add(comp, before, HLO_BROADCAST, shape, 1, &x, NULL, out_instr));
  return hlo_ints_new(comp->module, x->shape->rank, map, &(*out_instr)->dims);
}

weft_status *hlo_add_slice(hlo_computation *comp, hlo_instr *before, hlo_instr *x, const int64_t *start,
                           const int64_t *limit, const int64_t *stride, hlo_instr **out_instr)
{
  int64_t dims[HLO_MAX_RANK];
  const hlo_shape *shape;
  int rank = x->shape->rank;

  *out_instr = NULL;
  for (int i = 0; i < rank; i++) {
    int64_t step = stride ? stride[i] : 1;
    dims[i] = (limit[i] - start[i] + step - 1) / step;
  }
  WEFT_TRY(new_shape(comp, x->shape->type, rank, dims, &shape));
  WEFT_TRY(hlo_add(comp, before, HLO_SLICE, shape, 1, &x, NULL, out_instr));
  return hlo_set_slice(*out_instr, rank, start, limit, stride);
}

weft_status *hlo_set_slice(hlo_instr *slice, int rank, const int64_t *start, const int64_t *limit,
                           const int64_t *stride)
{
  struct { hlo_slice_attrs attrs; int64_t lists[]; } *made;

  made = weft_arena_alloc(&slice->parent->module->arena, sizeof *made + 3 * (size_t)rank * sizeof *made->lists);
  WEFT_TRY_ALLOC(made);
  for (int i = 0; i < rank; i++) {
    made->lists[i] = start[i];
    made->lists[rank + i] = limit[i];
    made->lists[2 * rank + i] = stride ? stride[i] : 1;
  }
  made->attrs = (hlo_slice_attrs){{rank, made->lists}, {rank, made->lists + rank}, {rank, made->lists + 2 * rank}};
  slice->u.slice = &made->attrs;
  return NULL;
}

weft_status *hlo_add_reduce(hlo_computation *comp, hlo_instr *before, hlo_instr *x, hlo_instr *init, int dim_count,
                            const int64_t *dims, hlo_computation *reducer, hlo_instr **out_instr)
{
  int64_t kept[HLO_MAX_RANK];
  const hlo_shape *shape;
  int rank = 0;

  *out_instr = NULL;
  for (int i = 0; i < x->shape->rank; i++) {
    bool reduced = false;
    for (int j = 0; j < dim_count; j++) reduced |= dims[j] == i;
    if (!reduced) kept[rank++] = x->shape->dims[i];
  }
  WEFT_TRY(new_shape(comp, init->shape->type, rank, kept, &shape));
  WEFT_TRY(hlo_add(comp, before, HLO_REDUCE, shape, 2, (hlo_instr *[]){x, init}, NULL, out_instr));
  WEFT_TRY(hlo_ints_new(comp->module, dim_count, dims, &(*out_instr)->dims));
  return hlo_set_called(*out_instr, 1, &reducer);
}

weft_status *hlo_add_tuple(hlo_computation *comp, hlo_instr *before, int count, hlo_instr *const *elements,
                           hlo_instr **out_instr)
{
  const hlo_shape **shapes = WEFT_ARENA_ARRAY(&comp->module->arena, const hlo_shape *, count);
  hlo_shape *shape = WEFT_ARENA_NEW(&comp->module->arena, hlo_shape);

  *out_instr = NULL;
  WEFT_TRY_ALLOC(shapes);
  WEFT_TRY_ALLOC(shape);
  for (int i = 0; i < count; i++) shapes[i] = elements[i]->shape;
  *shape = (hlo_shape){.type = WEFT_TUPLE, .rank = count, .elements = shapes};
  hlo_shape_note_parts(shape);
  return hlo_add(comp, before, HLO_TUPLE, shape, count, elements, NULL, out_instr);
}

weft_status *hlo_add_gte(hlo_computation *comp, hlo_instr *before, hlo_instr *tuple, int64_t index,
                         hlo_instr **out_instr)
{
  *out_instr = NULL;
  if (!hlo_shape_is_tuple(tuple->shape) || index < 0 || index >= tuple->shape->rank)
    return WEFT_ERR(INVALID_ARGUMENT, "%s has no tuple element %" PRId64, tuple->name, index);
  WEFT_TRY(hlo_add(comp, before, HLO_GET_TUPLE_ELEMENT, tuple->shape->elements[index], 1, &tuple, NULL, out_instr));
  (*out_instr)->u.tuple_index = index;
  return NULL;
}

weft_status *hlo_add_scalar(hlo_computation *comp, hlo_instr *before, weft_dtype type, double value,
                            hlo_instr **out_instr)
{
  hlo_literal *literal;

  *out_instr = NULL;
  WEFT_TRY(hlo_literal_scalar_f64(&comp->module->arena, type, value, &literal));
  return hlo_add_constant(comp, before, literal, out_instr);
}

weft_status *hlo_add_reducer(hlo_module *module, hlo_opcode op, weft_dtype type, hlo_computation **out_comp)
{
  const char *name;
  const hlo_shape *scalar;
  hlo_instr *p[2];

  *out_comp = NULL;
  WEFT_TRY(hlo_unique_name(module, hlo_opcode_name(op), &name));
  /* first in the list: it calls nothing, and any computation may call it */
  WEFT_TRY(new_computation(module, name, module->first, out_comp));
  WEFT_TRY(new_shape(*out_comp, type, 0, NULL, &scalar));
  WEFT_TRY(hlo_add_parameter(*out_comp, 0, scalar, NULL, &p[0]));
  WEFT_TRY(hlo_add_parameter(*out_comp, 1, scalar, NULL, &p[1]));
  return hlo_add(*out_comp, NULL, op, scalar, 2, p, NULL, &(*out_comp)->root);
}

weft_status *hlo_ints_new(hlo_module *module, int count, const int64_t *v, hlo_ints *out_ints)
{
  *out_ints = (hlo_ints){0};
  if (count == 0) return NULL;
  out_ints->v = weft_arena_memdup(&module->arena, v, (size_t)count * sizeof *v);
  WEFT_TRY_ALLOC(out_ints->v);
  out_ints->count = count;
  return NULL;
}

/* ---- editing ----------------------------------------------------------------------------------------------------- */

weft_status *hlo_append_operand(hlo_instr *instr, hlo_instr *operand)
{
  weft_arena *arena = &instr->parent->module->arena;

  WEFT_TRY_ALLOC(list_reserve(arena, &instr->operands, instr->operand_count, &instr->operand_room));
  WEFT_TRY_ALLOC(add_use(arena, instr, instr->operand_count, operand));
  instr->operand_count++;
  return NULL;
}

weft_status *hlo_set_operand(hlo_instr *instr, int index, hlo_instr *operand)
{
  if (instr->operands[index] == operand) return NULL;
  remove_use(instr, index);
  WEFT_TRY_ALLOC(add_use(&instr->parent->module->arena, instr, index, operand));
  return NULL;
}

void hlo_keep_operands(hlo_instr *instr, const bool *keep)
{
  const int *places = list_numbers(instr->operands, instr->operand_room);
  int kept = 0;

  for (int i = 0; i < instr->operand_count; i++)
    if (!keep[i]) remove_use(instr, i);
  for (int i = 0; i < instr->operand_count; i++)
    if (keep[i]) link_use(instr, kept++, instr->operands[i], places[i]);
  instr->operand_count = kept;
}

weft_status *hlo_replace_uses(hlo_instr *from, hlo_instr *to)
{
  weft_arena *arena = &from->parent->module->arena;
  const int *slots = list_numbers(from->users, from->user_room);
  int kept = 0;

  if (from == to) return NULL;
  for (int i = 0; i < from->user_count; i++)
    if (from->users[i] == to) link_use(to, slots[i], from, kept++);
    else WEFT_TRY_ALLOC(add_use(arena, from->users[i], slots[i], to));
  from->user_count = kept;
  if (from->parent->root == from) from->parent->root = to;
  return NULL;
}

/* The control edges of `instr`, made writable at its first edge; NULL if there is no memory. */
static hlo_control *own_control(weft_arena *arena, hlo_instr *instr)
{
  if (instr->control == &no_control) {
    hlo_control *own = WEFT_ARENA_NEW(arena, hlo_control);
    if (!own) return NULL;
    instr->control = own;
  }
  return (hlo_control *)instr->control;
}

weft_status *hlo_add_control_edge(hlo_instr *from, hlo_instr *to)
{
  weft_arena *arena = &from->parent->module->arena;
  hlo_control *before = own_control(arena, to), *after = own_control(arena, from);

  WEFT_TRY_ALLOC(before && after);
  if (before->pred_count < after->succ_count ? has_pointer(before->preds, before->pred_count, from)
                                             : has_pointer(after->succs, after->succ_count, to))
    return NULL;
  WEFT_TRY_ALLOC(append_pointer(arena, &before->preds, &before->pred_count, from) &&
                 append_pointer(arena, &after->succs, &after->succ_count, to));
  return NULL;
}

void hlo_remove_control_edges(hlo_instr *instr)
{
  hlo_control *own = (hlo_control *)instr->control, *other;

  if (own == &no_control) return;
  for (int i = 0; i < own->pred_count; i++) {
    other = (hlo_control *)own->preds[i]->control;
    erase_pointer(&other->succs, &other->succ_count, instr);
  }
  for (int i = 0; i < own->succ_count; i++) {
    other = (hlo_control *)own->succs[i]->control;
    erase_pointer(&other->preds, &other->pred_count, instr);
  }
  own->pred_count = own->succ_count = 0;
}

weft_status *hlo_replace(hlo_instr *from, hlo_instr *to)
{
  if (from == to) return NULL;
  WEFT_TRY(hlo_replace_uses(from, to));
  for (int i = 0; i < from->control->pred_count; i++)
    if (from->control->preds[i] != to) WEFT_TRY(hlo_add_control_edge(from->control->preds[i], to));
  for (int i = 0; i < from->control->succ_count; i++)
    if (from->control->succs[i] != to) WEFT_TRY(hlo_add_control_edge(to, from->control->succs[i]));
  hlo_remove_control_edges(from);
  return from->user_count || from->op == HLO_PARAMETER ? NULL : hlo_remove(from);
}

weft_status *hlo_remove(hlo_instr *instr)
{
  if (instr->user_count || instr->parent->root == instr)
    return WEFT_ERR(INTERNAL, "removal of %s, which is in use", instr->name);
  if (instr->op == HLO_PARAMETER) return WEFT_ERR(INTERNAL, "removal of parameter %s", instr->name);
  for (int i = 0; i < instr->control->pred_count; i++)
    for (int j = 0; j < instr->control->succ_count; j++)
      WEFT_TRY(hlo_add_control_edge(instr->control->preds[i], instr->control->succs[j]));
  hlo_remove_control_edges(instr);
  for (int i = 0; i < instr->operand_count; i++) remove_use(instr, i);
  unlink_instr(instr);
  instr->parent = NULL;
  return NULL;
}

/* The removed instructions form an explicit list through `next`, because a chain of operands may have any length. */
weft_status *hlo_remove_with_dead_operands(hlo_instr *instr)
{
  hlo_instr *queue;

  WEFT_TRY(hlo_remove(instr));
  instr->next = NULL;
  queue = instr;
  while (queue) {
    hlo_instr *removed = queue;
    queue = removed->next;
    for (int i = 0; i < removed->operand_count; i++) {
      hlo_instr *operand = removed->operands[i];
      if (!operand->parent || !hlo_is_dead(operand)) continue;
      WEFT_TRY(hlo_remove(operand));
      operand->next = queue;
      queue = operand;
    }
    removed->next = NULL;
  }
  return NULL;
}

weft_status *hlo_set_called(hlo_instr *instr, int count, hlo_computation *const *called)
{
  instr->called = NULL;
  instr->called_count = 0;
  if (count == 0) return NULL;
  instr->called = weft_arena_memdup(&instr->parent->module->arena, called, (size_t)count * sizeof(hlo_computation *));
  WEFT_TRY_ALLOC(instr->called);
  instr->called_count = count;
  return NULL;
}

weft_status *hlo_set_name(hlo_instr *instr, const char *name)
{
  return copy_name(instr->parent->module, name, &instr->name);
}

weft_status *hlo_mutable_extra(hlo_instr *instr, hlo_extra **out_extra)
{
  hlo_extra *extra = WEFT_ARENA_NEW(&instr->parent->module->arena, hlo_extra);

  *out_extra = NULL;
  WEFT_TRY_ALLOC(extra);
  if (instr->extra) *extra = *instr->extra;
  instr->extra = *out_extra = extra;
  return NULL;
}
