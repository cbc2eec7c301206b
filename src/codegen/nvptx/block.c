/* codegen/nvptx/block.c -- joint work of the threads of a block: barriers, shared memory, and combining the values that
 * the threads have accumulated, by shuffles inside a warp and through shared memory between warps. */
#include <config.h>

#include "codegen/nvptx/grid.h"

#include <string.h>

static gen_ssa intrinsic(gen_emit *e, const char *name, int count, gen_ssa *args)
{
  gen_ssa fn = LLVMGetIntrinsicDeclaration(e->part->mod, LLVMLookupIntrinsicID(name, strlen(name)), NULL, 0);
  return LLVMBuildCall2(e->b, LLVMGlobalGetValueType(fn), fn, args, (unsigned)count, "");
}

gen_ssa gen_thread_id(gen_emit *e) { return intrinsic(e, "llvm.nvvm.read.ptx.sreg.tid.x", 0, NULL); }
gen_ssa gen_block_id(gen_emit *e) { return intrinsic(e, "llvm.nvvm.read.ptx.sreg.ctaid.x", 0, NULL); }
gen_ssa gen_wide(gen_emit *e, gen_ssa v) { return LLVMBuildZExt(e->b, v, e->part->i64, ""); }
gen_ssa gen_small(gen_emit *e, int64_t v) { return LLVMConstInt(e->part->i32, (unsigned long long)v, 1); }

void gen_barrier(gen_emit *e)
{
  static const char newer[] = "llvm.nvvm.barrier.cta.sync.aligned.all";

  if (LLVMLookupIntrinsicID(newer, strlen(newer))) intrinsic(e, newer, 1, (gen_ssa[]){gen_small(e, 0)});
  else intrinsic(e, "llvm.nvvm.barrier0", 0, NULL);
}

void gen_warp_barrier(gen_emit *e, gen_ssa mask) { intrinsic(e, "llvm.nvvm.bar.warp.sync", 1, &mask); }

/* ---- shared memory --------------------------------------------------------------------------------------------- */

gen_ssa gen_shared_global(gen_part *p, LLVMTypeRef array)
{
  gen_ssa global = LLVMAddGlobalInAddressSpace(p->mod, array, "shared", 3);

  LLVMSetLinkage(global, LLVMInternalLinkage);
  LLVMSetInitializer(global, LLVMGetPoison(array));
  LLVMSetAlignment(global, 16);
  return global;
}

/* The next `bytes` of the region's pool, whose size is known when the region ends. */
static gen_ssa take_of_pool(gen_emit *e, gen_block *block, int64_t bytes)
{
  int64_t at = block->pool_at;

  if (!block->pool) block->pool = gen_shared_global(e->part, LLVMArrayType2(e->part->i8, 0));
  block->pool_at += WEFT_ALIGN_UP(bytes, 16);
  block->pool_bytes = WEFT_MAX(block->pool_bytes, block->pool_at);
  return gen_byte_ptr(e, block->pool, at);
}

gen_shared gen_shared_array(gen_emit *e, LLVMTypeRef type, int64_t elems)
{
  LLVMTypeRef element = type == e->part->i1 ? e->part->i8 : type; /* i1 has no place in memory */
  gen_block *block = e->part->block;
  gen_ssa ptr = block ? take_of_pool(e, block, elems * gen_type_bytes(e->part, element))
                      : gen_shared_global(e->part, LLVMArrayType2(element, (uint64_t)elems));

  return (gen_shared){.buffer = {.ptr = ptr, .elems = elems}, .type = type, .element = element};
}

void gen_shared_put(gen_emit *e, const gen_shared *array, gen_ssa at, gen_ssa v)
{
  if (array->element != array->type) v = LLVMBuildZExt(e->b, v, array->element, "");
  gen_store_plain(e, &array->buffer, array->element, at, v);
}

gen_ssa gen_shared_get(gen_emit *e, const gen_shared *array, gen_ssa at)
{
  gen_ssa v = gen_load_plain(e, &array->buffer, array->element, at, 1);
  return array->element == array->type ? v : LLVMBuildTrunc(e->b, v, array->type, "");
}

/* ---- teams ----------------------------------------------------------------------------------------------------- */

gen_team gen_team_of(gen_emit *e, int count)
{
  gen_ssa tid = gen_thread_id(e), ones = gen_small(e, -1);
  gen_team team = {.count = count, .id = tid, .mask = ones};

  team.lane = LLVMBuildAnd(e->b, tid, gen_small(e, GEN_WARP - 1), "");
  team.warp = LLVMBuildLShr(e->b, tid, gen_small(e, 5), "");
  if (count > GEN_WARP) return team;
  team.id = LLVMBuildAnd(e->b, tid, gen_small(e, count - 1), "");
  gen_ssa first = LLVMBuildSub(e->b, team.lane, team.id, "");
  team.mask = LLVMBuildShl(e->b, gen_small(e, (INT64_C(1) << count) - 1), first, "");
  return team;
}

void gen_team_barrier(gen_emit *e, const gen_team *team)
{
  if (team->count > GEN_WARP) gen_barrier(e);
  else gen_warp_barrier(e, team->mask);
}

/* Which lane's value a lane gets. ACROSS: the lane whose number differs in the bits of `distance`. FROM_BELOW: the lane
 * `distance` below (a lane without one keeps its own value). FROM_LANE: lane number `distance`. */
typedef enum shuffling { ACROSS, FROM_BELOW, FROM_LANE } shuffling;

static gen_ssa shuffle_word(gen_emit *e, const gen_team *team, gen_ssa v, int distance, shuffling kind)
{
  static const char *const names[] = {"llvm.nvvm.shfl.sync.bfly.i32", "llvm.nvvm.shfl.sync.up.i32", "llvm.nvvm.shfl.sync.idx.i32"};
  gen_ssa bound = gen_small(e, kind == FROM_BELOW ? 0 : GEN_WARP - 1);
  gen_ssa args[4] = {team->mask, v, gen_small(e, distance), bound};

  return intrinsic(e, names[kind], 4, args);
}

static gen_ssa shuffle(gen_emit *e, const gen_team *team, gen_ssa v, int distance, shuffling kind)
{
  LLVMTypeRef type = LLVMTypeOf(v), i32 = e->part->i32, i64 = e->part->i64;

  if (type == e->part->f32 || type == e->part->f64) {
    gen_ssa bits = LLVMBuildBitCast(e->b, v, type == e->part->f32 ? i32 : i64, "");
    return LLVMBuildBitCast(e->b, shuffle(e, team, bits, distance, kind), type, "");
  }
  if (type == i32) return shuffle_word(e, team, v, distance, kind);
  if (type != i64)
    return LLVMBuildTrunc(e->b, shuffle_word(e, team, LLVMBuildZExt(e->b, v, i32, ""), distance, kind), type, "");
  gen_ssa upper = LLVMBuildTrunc(e->b, LLVMBuildLShr(e->b, v, gen_i64(e, 32), ""), i32, "");
  gen_ssa low = shuffle_word(e, team, LLVMBuildTrunc(e->b, v, i32, ""), distance, kind);
  gen_ssa high = shuffle_word(e, team, upper, distance, kind);
  return gen_bin(e, LLVMOr, gen_wide(e, low), LLVMBuildShl(e->b, gen_wide(e, high), gen_i64(e, 32), ""));
}

static gen_value shuffle_value(gen_emit *e, const gen_team *team, gen_value v, int distance, shuffling kind)
{
  v.re = shuffle(e, team, v.re, distance, kind);
  if (v.im) v.im = shuffle(e, team, v.im, distance, kind);
  return v;
}

gen_value gen_shuffle_up(gen_emit *e, const gen_team *team, gen_value v, int distance)
{
  return shuffle_value(e, team, v, distance, FROM_BELOW);
}

gen_value gen_shuffle_from(gen_emit *e, const gen_team *team, gen_value v, int lane)
{
  return shuffle_value(e, team, v, lane, FROM_LANE);
}

gen_ssa gen_lanes_alike(gen_emit *e, gen_ssa v)
{
  return intrinsic(e, "llvm.nvvm.match.any.sync.i32", 2, (gen_ssa[]){gen_small(e, -1), v});
}

bool gen_team_combines(const gen_acc *acc) { return acc->op != HLO_OPCODE_COUNT || acc->extreme; }

/* Every lane of the team gets the combination of the values of its lanes in the warp. */
static weft_status *combine_lanes(gen_emit *e, const gen_team *team, const gen_acc *accs, int count, gen_value *v)
{
  for (int distance = WEFT_MIN(team->count, GEN_WARP) / 2; distance > 0; distance /= 2)
    for (int i = 0; i < count; i += accs[i].leaves) {
      gen_value other[2];
      for (int k = 0; k < accs[i].leaves; k++) other[k] = shuffle_value(e, team, v[i + k], distance, ACROSS);
      if (accs[i].extreme) WEFT_TRY(gen_combine_extremes(e, &accs[i], &v[i], other, &v[i]));
      else v[i] = gen_combine(e, accs[i].op, accs[i].type, v[i], other[0]);
    }
  return NULL;
}

/* Passes one part of a value from each warp to all threads: lane i of every warp gets the value of warp i, or
 * `otherwise` if there is no warp i. The barrier between the two halves is the caller's. */
static gen_shared put_warp(gen_emit *e, gen_ssa warp, gen_ssa v)
{
  gen_shared array = gen_shared_array(e, LLVMTypeOf(v), GEN_WARP);

  gen_shared_put(e, &array, gen_wide(e, warp), v);
  return array;
}

static gen_ssa get_warp(gen_emit *e, const gen_team *team, const gen_shared *array, gen_ssa otherwise)
{
  gen_ssa is_warp = LLVMBuildICmp(e->b, LLVMIntULT, team->lane, gen_small(e, team->count / GEN_WARP), "");
  gen_ssa at = LLVMBuildSelect(e->b, is_warp, team->lane, gen_small(e, 0), "");

  return LLVMBuildSelect(e->b, is_warp, gen_shared_get(e, array, gen_wide(e, at)), otherwise, "");
}

weft_status *gen_team_combine(gen_emit *e, const gen_team *team, const gen_acc *accs, int count,
                              const gen_value *otherwise, gen_value *v)
{
  gen_shared *arrays = WEFT_ARENA_ARRAY(e->arena, gen_shared, 2 * count);
  gen_if first;

  WEFT_TRY_ALLOC(arrays);
  WEFT_TRY(combine_lanes(e, team, accs, count, v));
  if (team->count <= GEN_WARP) return NULL;
  gen_if_begin(e, &first, LLVMBuildICmp(e->b, LLVMIntEQ, team->lane, gen_small(e, 0), ""));
  for (int i = 0; i < count; i++) {
    arrays[2 * i] = put_warp(e, team->warp, v[i].re);
    if (v[i].im) arrays[2 * i + 1] = put_warp(e, team->warp, v[i].im);
  }
  gen_if_end(e, &first);
  gen_barrier(e);
  for (int i = 0; i < count; i++) {
    v[i].re = get_warp(e, team, &arrays[2 * i], otherwise[i].re);
    if (v[i].im) v[i].im = get_warp(e, team, &arrays[2 * i + 1], otherwise[i].im);
  }
  return combine_lanes(e, team, accs, count, v);
}
