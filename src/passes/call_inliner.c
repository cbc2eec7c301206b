/* call-inliner: puts the bodies of calls and of fusions (a dump from after optimisation has them) in their place, so
 * that later passes see across.  Fusions always go: ours are made anew.  A call goes if its callee is called once, or
 * is small, as long as the module does not outgrow a multiple of its size; composites go too, for what they compute is
 * their body.  Callees come before callers in the module's list, so what is inlined is already flat.
 * `flatten` (run after it) gives every remaining caller a body of its own. */
#include <config.h>

#include "passes/passes.h"

enum {
  SMALL_CALLEE = 300,        /* instructions: always inlined, within the growth limit */
  LEAST_GROWTH = 20000,      /* instructions that inlining may add to any module ... */
  GROWTH_FACTOR = 4,         /* ... or this many times its size */
};

typedef struct inliner {
  pass_map map;
  int *call_sites; /* by computation id */
  int64_t growth_left;
} inliner;

static bool may_inline(const hlo_instr *call)
{
  const char *attribute = hlo_frontend_attribute(call, "inlineable");
  return !(attribute && attribute[0] == 'f');
}

static bool wants_inlining(const inliner *in, const hlo_instr *instr)
{
  const hlo_computation *callee;

  if (instr->called_count != 1) return false;
  callee = instr->called[0];
  if (instr->op == HLO_FUSION) return true;
  if (instr->op != HLO_CALL || !may_inline(instr)) return false;
  return in->call_sites[callee->id] == 1 ||
         (callee->instr_count <= SMALL_CALLEE && callee->instr_count <= in->growth_left);
}

static weft_status *call_inliner_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  inliner in = {.map.arena = ctx->scratch};
  int64_t size = 0;

  in.call_sites = WEFT_ARENA_ARRAY(ctx->scratch, int, module->next_computation_id);
  WEFT_TRY_ALLOC(in.call_sites);
  HLO_FOREACH_COMPUTATION(comp, module) {
    size += comp->instr_count;
    HLO_FOREACH(instr, comp)
      for (int i = 0; i < instr->called_count; i++) in.call_sites[instr->called[i]->id]++;
  }
  in.growth_left = WEFT_MAX(size * GROWTH_FACTOR, LEAST_GROWTH);

  HLO_FOREACH_COMPUTATION(comp, module)
    HLO_FOREACH(instr, comp) {
      if (!wants_inlining(&in, instr)) continue;
      if (in.call_sites[instr->called[0]->id] > 1) in.growth_left -= instr->called[0]->instr_count;
      WEFT_TRY(pass_inline(instr, instr->called[0], &in.map, NULL));
      *changed = true;
    }
  if (*changed) WEFT_TRY(hlo_module_gc(module));
  return NULL;
}
const hlo_pass pass_call_inliner = {"call-inliner", call_inliner_run};
