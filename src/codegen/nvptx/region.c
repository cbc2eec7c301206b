/* codegen/nvptx/region.c -- a region (emit/region.c) as a kernel of one block, so that a loop over small arrays is one
 * launch however many rounds it makes.
 *
 * All threads run the region's control flow together. A kernel inside it is made as it would be for a grid, but as
 * device functions, one for each of its launches: the block does the work of all their blocks, one after another.
 * Between two steps the threads meet at a barrier. Values that a step makes for later steps lie in shared memory, if
 * there is room. */
#include <config.h>

#include "codegen/nvptx/grid.h"

#include <string.h>

enum { SCRATCH_ALIGN = 64 };

/* ---- the kernels inside ---------------------------------------------------------------------------------------- */

static void set_attribute(gen_part *p, gen_ssa fn, const char *name)
{
  unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));

  LLVMAddAttributeAtIndex(fn, LLVMAttributeFunctionIndex, LLVMCreateEnumAttribute(p->ctx, kind, 0));
}

/* Calls the function of `launch` with the first arguments of the function that is being emitted. */
static weft_status *call_launch(gen_emit *e, const gen_launch *launch, gen_ssa *args)
{
  gen_ssa fn = LLVMGetNamedFunction(e->part->mod, launch->entry);
  gen_if first;

  if (launch->threads != GEN_BLOCK_THREADS && launch->threads != 1)
    return WEFT_ERR(INTERNAL, "nvptx: %d threads in a region's block", launch->threads);
  LLVMSetLinkage(fn, LLVMInternalLinkage);
  set_attribute(e->part, fn, "alwaysinline");
  set_attribute(e->part, fn, "convergent");
  bool alone = launch->threads == 1;
  if (alone) gen_if_begin(e, &first, LLVMBuildICmp(e->b, LLVMIntEQ, gen_thread_id(e), gen_small(e, 0), ""));
  LLVMBuildCall2(e->b, LLVMGlobalGetValueType(fn), fn, args, LLVMCountParams(fn), "");
  if (alone) gen_if_end(e, &first);
  gen_barrier(e);
  return NULL;
}

/* One function that calls those of all launches from number `first` on. */
static weft_status *wrap_launches(gen_grid *g, const char *symbol, int first)
{
  gen_part *p = g->part;
  unsigned pointers = (unsigned)g->spec->info->arg_count;
  LLVMTypeRef *params = WEFT_ARENA_ARRAY(p->arena, LLVMTypeRef, pointers + 2);
  gen_ssa *args = WEFT_ARENA_ARRAY(p->arena, gen_ssa, pointers + 2);
  gen_emit e;

  WEFT_TRY_ALLOC(params);
  WEFT_TRY_ALLOC(args);
  for (unsigned i = 0; i < pointers + 2; i++) params[i] = i < pointers ? p->ptr : p->i64;
  gen_ssa fn = LLVMAddFunction(p->mod, symbol, LLVMFunctionType(p->voidt, params, pointers + 2, 0));
  set_attribute(p, fn, "convergent");
  set_attribute(p, fn, "nounwind");
  gen_emit_init(&e, p, fn, g->spec->fusion);
  for (unsigned i = 0; i < pointers; i++) args[i] = LLVMGetParam(fn, i);
  for (int k = first; k < g->out->launch_count; k++)
    if (g->out->launches[k].blocks > 0) WEFT_TRY(call_launch(&e, &g->out->launches[k], args));
  gen_emit_finish(&e, NULL);
  return NULL;
}

weft_status *gen_grid_inner(gen_part *part, gen_kernel_spec *spec)
{
  gen_block *block = part->block;
  gen_grid *g = block->grid;
  gen_kernel_spec *outer = g->spec;
  const char *symbol = spec->symbols[0];
  bool moves_narrow = part->raw_narrow;
  int first = g->out->launch_count;

  WEFT_TRY(gen_decide(part->target, part->arena, spec->fusion, &spec->info->strategy));
  if (spec->info->strategy == GEN_STRATEGY_TURN) spec->info->strategy = GEN_STRATEGY_LOOP; /* small: it fits a cache */
  spec->inlined = true;
  block->pool_at = 0;
  g->spec = spec;
  part->raw_narrow = gen_only_moves_narrow(spec->fusion->called[0]);
  WEFT_TRY(block->emit(g, spec->info->strategy));
  part->raw_narrow = moves_narrow;
  if (spec->info->shared_bytes + spec->info->scratch_bytes > 0)
    return WEFT_ERR(INTERNAL, "nvptx: a kernel of a region asks for scratch");
  WEFT_TRY(wrap_launches(g, symbol, first));
  g->spec = outer;
  g->out->launch_count = first;
  spec->info->phase_count = 1;
  spec->info->phases[0] = (gen_phase){.units = 1};
  return NULL;
}

/* ---- between them ---------------------------------------------------------------------------------------------- */

void gen_grid_copy(gen_emit *e, gen_ssa to, gen_ssa from, int64_t bytes)
{
  weft_dtype type = bytes % 8 == 0 ? WEFT_U64 : bytes % 4 == 0 ? WEFT_U32 : WEFT_U8;
  int64_t words = bytes / (int64_t)weft_dtype_bytes(type);
  gen_buffer in = {.ptr = from, .type = type, .elems = words}, out = {.ptr = to, .type = type, .elems = words};
  gen_loop loop;

  gen_loop_begin(e, &loop, gen_wide(e, gen_thread_id(e)), gen_i64(e, words), GEN_BLOCK_THREADS, 0, words, 1);
  gen_affine at = gen_affine_var(e, loop.var);
  gen_store(e, &out, at, gen_load(e, &in, at));
  gen_loop_end(e, &loop);
  gen_barrier(e);
}

/* ---- the region ------------------------------------------------------------------------------------------------ */

weft_status *gen_grid_start(gen_part *part, gen_kernel_spec *spec, gen_frame *f)
{
  const hlo_instr *fusion = spec->fusion;
  gen_block *block = part->block;
  int64_t bytes = spec->info->scratch_bytes;
  bool is_shared = bytes > 0 && WEFT_ALIGN_UP(block->pool_bytes, SCRATCH_ALIGN) + bytes <= part->target->shared_bytes;

  if (is_shared) spec->info->scratch_bytes = 0;
  part->block = NULL; /* large arrays are copied by a grid */
  for (int a = 0; a < fusion->u.fusion.alias_count; a++) {
    const hlo_output_alias *alias = &fusion->u.fusion.aliases[a];
    const hlo_instr *param = fusion->called[0]->params[alias->operand];
    if (hlo_shape_is_array(param->shape))
      WEFT_TRY(gen_grid_bring(block->grid, (gen_base){param, gen_alias_leaf(fusion, alias)}));
  }
  part->block = block;
  WEFT_TRY(gen_grid_open(block->grid, false, f));
  if (!is_shared) return NULL;
  gen_ssa scratch = gen_shared_global(part, LLVMArrayType2(part->i8, (uint64_t)bytes));
  LLVMSetAlignment(scratch, SCRATCH_ALIGN);
  f->scratch = LLVMConstAddrSpaceCast(scratch, part->ptr);
  return NULL;
}

/* Gives the pool the size that the kernels have asked for. */
static weft_status *settle_pool(gen_part *p, const gen_block *block)
{
  if (!block->pool) return NULL;
  if (block->pool_bytes > p->target->shared_bytes)
    return WEFT_ERR(UNIMPLEMENTED, "nvptx: a kernel with %lld bytes of shared memory", (long long)block->pool_bytes);
  gen_ssa pool = gen_shared_global(p, LLVMArrayType2(p->i8, (uint64_t)block->pool_bytes));
  LLVMReplaceAllUsesWith(block->pool, pool);
  LLVMDeleteGlobal(block->pool);
  return NULL;
}

weft_status *gen_grid_region(gen_grid *g, gen_grid_emitter *emit)
{
  gen_part *p = g->part;
  const gen_target *whole = p->target;
  gen_block block = {.grid = g, .emit = emit, .target = *whole};

  block.target.cores = 1;
  block.target.block_threads = GEN_BLOCK_THREADS;
  p->target = &block.target;
  p->block = &block;
  weft_status *st = gen_emit_region_kernel(p, g->spec);
  p->block = NULL;
  p->target = whole;
  WEFT_TRY(st);
  WEFT_TRY(settle_pool(p, &block));
  return gen_grid_shape(g, 1, GEN_BLOCK_THREADS);
}
