/* passes/spmd/rules.h -- operations that can be computed on tiles alone, one rule an operation. */
#ifndef WEFT_PASSES_SPMD_RULES_H
#define WEFT_PASSES_SPMD_RULES_H

#include "passes/build.h"
#include "passes/spmd/tiling.h"
#include "passes/util.h"

/* A whole array of which every partition has its tile: whole = spmd_gather(tile, tiling). */
typedef struct spmd_tiled {
  hlo_instr *tile;
  spmd_tiling tiling;
} spmd_tiled;

typedef struct spmd_ctx {
  hlo_module *module;
  weft_arena *arena;      /* the module's */
  pass_map tiled;         /* by id of the whole array's instruction: spmd_tiled *, or NULL */
} spmd_ctx;

static inline const spmd_tiled *spmd_tiled_of(const spmd_ctx *ctx, const hlo_instr *whole)
{
  return pass_map_get(&ctx->tiled, whole->id);
}

/* Computes `instr` on tiles if some operand is tiled and a rule knows how: out->tile is then what this partition computes
 * (placed before instr), cut by out->tiling.  out->tile NULL: no rule applies, and nothing was added. */
WEFT_NODISCARD weft_status *spmd_apply_rule(spmd_ctx *ctx, hlo_instr *instr, spmd_tiled *out);

#endif
