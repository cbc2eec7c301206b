/* call-inliner: puts the bodies of calls and of fusions (a dump from after optimisation has them) in their place, so
 * that later passes see across.  Fusions always go: ours are made anew.  A call goes if its callee is called once, or
 * is small, as long as the module does not outgrow a multiple of its size; composites go too, for what they compute is
 * their body.  Sizes are counted callees first; bodies move callers first, so that each is copied only to where it ends
 * up and a chain of calls costs what it holds.  `flatten` (run after it) gives every remaining caller a body of its own. */
#include <config.h>

#include "passes/passes.h"

enum {
  SMALL_CALLEE = 300,        /* instructions: always inlined, within the growth limit */
  LEAST_GROWTH = 20000,      /* instructions that inlining may add to any module ... */
  GROWTH_FACTOR = 4,         /* ... or this many times its size */
  MOST_GROWTH = 2 << 20,     /* and with fusions that double at every level, which only a hostile program has */
};

/* What becomes of a computation. */
typedef struct fate {
  int sites;     /* where it is called */
  int64_t size;  /* instructions once what it calls is inlined; no more than UNBOUNDED */
  bool goes;     /* into the calls of it */
  bool stays;    /* is wanted as a computation */
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
    next = instr->next;
    if (!is_inlined(fates, instr)) continue;
    WEFT_TRY(pass_inline(instr, instr->called[0], map, NULL));
    next = before ? before->next : comp->first; /* the body has calls of its own */
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
    return WEFT_ERR(RESOURCE_EXHAUSTED, "module \"%s\" has over %d more instructions when its fusions and calls are inlined",
                    module->name, MOST_GROWTH);

  for (hlo_computation *comp = module->last; comp; comp = comp->prev)
    if (fates[comp->id].stays) WEFT_TRY(inline_into(comp, fates, &map, changed));
  return *changed ? hlo_module_gc(module) : NULL;
}
const hlo_pass pass_call_inliner = {"call-inliner", call_inliner_run};
