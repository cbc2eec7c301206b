/* passes/call_inliner.c -- call-inliner: puts the bodies of calls and of fusions (which programs dumped after
 * optimisation contain) in their place, so that later passes see across them. Fusions always disappear, because Weft
 * makes its own. A call disappears if its callee is called once, or is small, as long as the module does not outgrow
 * a multiple of its size. Composites disappear too, because their body is what they compute. Sizes are counted
 * callees first. Bodies move callers first, so that each is copied only to its final place, and a chain of calls
 * costs no more than its contents. `flatten`, which runs later, gives every remaining caller a body of its own. */
#include <config.h>

#include "passes/passes.h"
#include "passes/scopes.h"

enum {
  SMALL_CALLEE = 300,        /* a callee of at most this many instructions is inlined, within the growth limit */
  LEAST_GROWTH = 20000,      /* instructions that inlining may add to any module ... */
  GROWTH_FACTOR = 4,         /* ... or this multiple of its size */
  /* instructions that fusions and callees with one call may add beyond that. Only a hostile program has more: its
   * fusions double at every level. */
  MOST_GROWTH = 2 << 20,
};

/* What the pass decides about a computation. */
typedef struct fate {
  int sites;     /* the number of instructions that call it */
  int64_t size;  /* its instructions after inlining what it calls; at most UNBOUNDED */
  bool goes;     /* its calls are replaced by its contents */
  bool stays;    /* it must stay a computation */
} fate;
enum { UNBOUNDED = 1 << 30 };

static bool may_inline(const hlo_instr *call)
{
  const char *attribute = hlo_frontend_attribute(call, "inlineable");
  return !(attribute && attribute[0] == 'f');
}

static bool is_inlined(const fate *fates, const hlo_instr *instr)
{
  if (instr->called_count != 1) return false;
  return instr->op == HLO_FUSION || (instr->op == HLO_CALL && fates[instr->called[0]->id].goes && may_inline(instr));
}

static void decide(const hlo_computation *comp, fate *fates, int64_t *growth_left)
{
  fate *f = &fates[comp->id];

  f->size = comp->instr_count;
  HLO_FOREACH(instr, comp) {
    if (is_inlined(fates, instr)) f->size = WEFT_MIN(f->size + fates[instr->called[0]->id].size, (int64_t)UNBOUNDED);
    else
      for (int i = 0; i < instr->called_count; i++) fates[instr->called[i]->id].stays = true;
  }
  f->goes = f->sites == 1;
  if (f->goes || f->size > SMALL_CALLEE || f->size * f->sites > *growth_left) return;
  f->goes = true;
  *growth_left -= f->size * f->sites;
}

static weft_status *inline_into(hlo_computation *comp, const fate *fates, pass_map *map, bool *changed)
{
  for (hlo_instr *instr = comp->first, *next; instr; instr = next) {
    hlo_instr *before = instr->prev;
    const char *name = instr->op == HLO_CALL && instr->metadata ? instr->metadata->op_name : NULL;
    next = instr->next;
    if (!is_inlined(fates, instr)) continue;
    WEFT_TRY(pass_inline(instr, instr->called[0], map, NULL));
    hlo_instr *end = next;
    next = before ? before->next : comp->first; /* the body contains calls too */
    for (hlo_instr *inlined = next; inlined != end; inlined = inlined->next)
      WEFT_TRY(pass_complete_scopes(inlined, name, true, NULL));
    *changed = true;
  }
  return NULL;
}

static weft_status *call_inliner_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  pass_map map = {.arena = ctx->scratch};
  fate *fates = WEFT_ARENA_ARRAY(ctx->scratch, fate, module->next_computation_id);
  int64_t size = 0, size_after = 0, growth_left;

  WEFT_TRY_ALLOC(fates);
  HLO_FOREACH_COMPUTATION(comp, module) {
    size += comp->instr_count;
    HLO_FOREACH(instr, comp)
      for (int i = 0; i < instr->called_count; i++) fates[instr->called[i]->id].sites++;
  }
  growth_left = WEFT_MAX(size * GROWTH_FACTOR, LEAST_GROWTH);
  fates[module->entry->id].stays = true;
  HLO_FOREACH_COMPUTATION(comp, module) decide(comp, fates, &growth_left); /* callees come first */
  HLO_FOREACH_COMPUTATION(comp, module) size_after += fates[comp->id].stays ? fates[comp->id].size : 0;
  if (size_after > size + growth_left + MOST_GROWTH)
    return WEFT_ERR(RESOURCE_EXHAUSTED,
                    "module \"%s\" has over %d more instructions when its fusions and calls are inlined", module->name,
                    MOST_GROWTH);

  for (hlo_computation *comp = module->last; comp; comp = comp->prev)
    if (fates[comp->id].stays) WEFT_TRY(inline_into(comp, fates, &map, changed));
  return *changed ? hlo_module_gc(module) : NULL;
}
const hlo_pass pass_call_inliner = {"call-inliner", call_inliner_run};
