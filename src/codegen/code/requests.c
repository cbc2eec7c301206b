/* codegen/code/requests.c -- the kernels, comparators and reducers that a module needs. */
#include <config.h>

#include "codegen/code/code.h"
#include "codegen/model/library.h"

typedef struct collector {
  weft_arena *arena;
  gen_request *requests;
  int count, capacity;
  bool *seen; /* computations, by id */
  bool *in_strips; /* likewise: those of the steps of pass strips */
  const hlo_computation **stack;
  int depth;
} collector;

static weft_status *add(collector *c, gen_request request)
{
  if (!WEFT_ARENA_RESERVE(c->arena, c->requests, c->capacity, c->count + 1, 64))
    return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  c->requests[c->count++] = request;
  return NULL;
}

static void push(collector *c, const hlo_computation *comp)
{
  if (c->seen[comp->id]) return;
  c->seen[comp->id] = true;
  c->stack[c->depth++] = comp;
}

static weft_status *collect(collector *c, const hlo_instr *x)
{
  switch (x->op) {
  case HLO_FUSION:
    if (gen_is_strips_fusion(x) && !gen_is_strip_group(x)) c->in_strips[x->called[0]->id] = true;
    if (gen_calls_kernel(x)) push(c, x->called[0]); /* it calls its kernel */
    if (gen_is_library_fusion(x)) return NULL;
    return add(c, (gen_request){GEN_UNIT_KERNEL, x, x->called[0], c->in_strips[x->parent->id]});
  case HLO_SORT: return add(c, (gen_request){.kind = GEN_UNIT_COMPARE, .comp = x->called[0]});
  case HLO_ALL_REDUCE: case HLO_ALL_REDUCE_START: case HLO_REDUCE_SCATTER:
  case HLO_SCAN: return x->called_count ? add(c, (gen_request){.kind = GEN_UNIT_APPLY, .comp = x->called[0]}) : NULL;
  default:
    if (hlo_calls_are_embedded(x->op)) return NULL;
    for (int i = 0; i < x->called_count; i++) push(c, x->called[i]);
    return NULL;
  }
}

weft_status *gen_requests_of(const hlo_module *module, weft_arena *arena, gen_request **out_requests, int *out_count)
{
  collector c = {.arena = arena};

  c.seen = WEFT_ARENA_ARRAY(arena, bool, module->next_computation_id);
  c.in_strips = WEFT_ARENA_ARRAY(arena, bool, module->next_computation_id);
  c.stack = WEFT_ARENA_ARRAY(arena, const hlo_computation *, module->next_computation_id);
  WEFT_TRY_ALLOC(c.seen && c.in_strips && c.stack);
  push(&c, module->entry);
  while (c.depth > 0) {
    const hlo_computation *comp = c.stack[--c.depth];
    HLO_FOREACH(x, comp) WEFT_TRY(collect(&c, x));
  }
  *out_requests = c.requests;
  *out_count = c.count;
  return NULL;
}
