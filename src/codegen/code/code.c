/* codegen/code/code.c -- the table of compiled functions: kernels by instruction, comparators and reducers by
 * computation. */
#include <config.h>

#include "codegen/code/code.h"

#include <stdlib.h>

weft_status *gen_code_new(const hlo_module *module, gen_code **out_code)
{
  WEFT_AUTO(gen_code) code = calloc(1, sizeof *code);

  *out_code = NULL;
  WEFT_TRY_ALLOC(code);
  weft_arena_init(&code->arena);
  code->instr_ids = module->next_id;
  code->comp_ids = module->next_computation_id;
  code->by_instr = WEFT_ARENA_ARRAY(&code->arena, gen_unit *, code->instr_ids);
  WEFT_TRY_ALLOC(code->by_instr);
  for (int kind = 0; kind < GEN_UNIT_KINDS; kind++) {
    if (kind == GEN_UNIT_KERNEL) continue;
    code->by_comp[kind] = WEFT_ARENA_ARRAY(&code->arena, gen_unit *, code->comp_ids);
    WEFT_TRY_ALLOC(code->by_comp[kind]);
  }
  *out_code = WEFT_MOVE(code);
  return NULL;
}

void gen_code_free(gen_code *code)
{
  if (!code) return;
  if (code->memory) code->free_memory(code->memory);
  weft_arena_fini(&code->arena);
  free(code);
}

static gen_unit **place_of(const gen_code *code, const gen_request *request)
{
  return request->kind == GEN_UNIT_KERNEL ? &code->by_instr[request->fusion->id]
                                          : &code->by_comp[request->kind][request->comp->id];
}

void gen_code_answer(gen_code *code, const gen_request *request, gen_unit *unit) { *place_of(code, request) = unit; }

gen_unit *gen_code_find(const gen_code *code, const gen_request *request) { return *place_of(code, request); }

const gen_kernel *gen_code_kernel(const gen_code *code, const hlo_instr *fusion)
{
  const gen_unit *u = fusion->id < code->instr_ids ? code->by_instr[fusion->id] : NULL;

  return u ? &u->kernel : NULL;
}

static void *callback(const gen_code *code, gen_unit_kind kind, const hlo_computation *comp)
{
  const gen_unit *u = comp->id < code->comp_ids ? code->by_comp[kind][comp->id] : NULL;

  return u ? u->fn : NULL;
}

gen_compare_fn *gen_code_compare(const gen_code *code, const hlo_computation *comparator)
{
  return (gen_compare_fn *)(uintptr_t)callback(code, GEN_UNIT_COMPARE, comparator);
}

gen_apply_fn *gen_code_apply(const gen_code *code, const hlo_computation *reducer)
{
  return (gen_apply_fn *)(uintptr_t)callback(code, GEN_UNIT_APPLY, reducer);
}

const gen_stats *gen_code_stats(const gen_code *code) { return &code->stats; }
