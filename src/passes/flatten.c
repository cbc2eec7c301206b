/* passes/flatten.c -- flatten: gives every while, conditional and call computations of its own, so that a later pass
 * may change a body because it knows the only caller, and so that the memory plan has one frame for each call site.
 * Callers are visited before callees: a copy made here is visited in turn. A program whose flat form would be
 * absurdly large (calls that double at every level) is refused instead of expanded, and so is one whose calls nest
 * deeper than a memory plan can. */
#include <config.h>

#include "buffer/flow.h"
#include "passes/passes.h"

/* Instructions that flattening may add: a fixed number for any program, and more for a large one. */
enum { FLAT_LEAST = 3 << 17, FLAT_GROWTH = 16 };

typedef struct flattener {
  pass_map owner, depth; /* of a computation, by id: its caller, and how deep it is called */
  int64_t added, limit; /* instructions */
} flattener;

static bool owns_callees(hlo_opcode op)
{
  return hlo_opcode_runs_steps(op) || op == HLO_FUSION || op == HLO_ASYNC_START;
}

static weft_status *note_depth(flattener *f, const hlo_instr *instr, const hlo_computation *callee)
{
  intptr_t depth = (intptr_t)pass_map_get(&f->depth, instr->parent->id) + 1;

  if (!hlo_opcode_runs_steps(instr->op)) return NULL;
  if (depth >= BUF_MAX_DEPTH)
    return WEFT_ERR(RESOURCE_EXHAUSTED, "\"%s\" calls \"%s\": calls nest deeper than %d", instr->name, callee->name,
                    BUF_MAX_DEPTH);
  return pass_map_set(&f->depth, callee->id, (void *)depth);
}

static weft_status *flatten_instr(flattener *f, hlo_instr *instr, bool *changed)
{
  hlo_module *module = instr->parent->module;

  for (int i = 0; i < instr->called_count; i++) {
    hlo_computation *callee = instr->called[i], *copy, **called;
    if (!pass_map_get(&f->owner, callee->id)) {
      WEFT_TRY(pass_map_set(&f->owner, callee->id, instr));
      WEFT_TRY(note_depth(f, instr, callee));
      continue;
    }
    f->added += callee->instr_count;
    if (f->added > f->limit)
      return WEFT_ERR(RESOURCE_EXHAUSTED, "the call graph below \"%s\" has over %lld instructions when flattened",
                      instr->name, (long long)f->limit);
    WEFT_TRY(hlo_computation_clone(module, callee, callee->name, instr->parent, &copy));
    WEFT_TRY(pass_map_set(&f->owner, copy->id, instr));
    WEFT_TRY(note_depth(f, instr, copy));
    called = WEFT_ARENA_ARRAY(f->owner.arena, hlo_computation *, instr->called_count);
    WEFT_TRY_ALLOC(called);
    for (int k = 0; k < instr->called_count; k++) called[k] = k == i ? copy : instr->called[k];
    WEFT_TRY(hlo_set_called(instr, instr->called_count, called));
    *changed = true;
  }
  return NULL;
}

static weft_status *flatten_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  flattener f = {.owner.arena = ctx->scratch, .depth.arena = ctx->scratch, .limit = WEFT_MAX((int64_t)FLAT_LEAST, (int64_t)FLAT_GROWTH * module->next_id)};

  /* copies appear before their caller, so this walk reaches them later */
  for (hlo_computation *comp = module->last; comp; comp = comp->prev)
    for (hlo_instr *instr = comp->first; instr; instr = instr->next)
      if (owns_callees(instr->op)) WEFT_TRY(flatten_instr(&f, instr, changed));
  return NULL;
}
const hlo_pass pass_flatten = {"flatten", flatten_run};
