/* passes/strips.c -- strips: a dot, a kernel over the rows of its result and a dot of what the kernel makes become one
 * step of the CPU's library (gen_is_strips_fusion), as in attention:
 *
 *   scores = dot(q, k)      weights = softmax(scores * scale, mask)      dot(weights, v)
 *
 * The library computes some rows of the scores at a time, so that neither scores nor weights are ever in memory as a
 * whole (cpu/strips.c). The kernel is a fusion that reduces rows, and each of its rows must need the same row of the
 * scores alone; its other operands may be anything. Both dots may read parts of arrays (pass dot-parts).
 *
 * The pass runs on finished fusions, before the order and the memory of the program are planned. */
#include <config.h>

#include "codegen/model/library.h"
#include "codegen/model/strategy.h"
#include "passes/fusion.h"
#include "passes/passes.h"

enum {
  LEAST_ROWS = 16,          /* of each matrix; fewer are one tile of the products */
  LEAST_BYTES = 256 << 10,  /* of all scores; fewer stay in the cache as they are */
  MOST_MEMBERS = 16,
};

/* Is the dot of matrices whose rows lie one after the other: [batch, rows, contracted] by anything? */
static bool takes_rows(const hlo_instr *dot)
{
  const hlo_dot_attrs *a = dot->u.dot;

  if (!pass_is_canonical_dot(dot) || a->lhs_contracting.v[0] != dot->operands[0]->shape->rank - 1) return false;
  return a->lhs_batch.count == 0 || a->lhs_batch.v[0] == 0;
}

/* Steps from `*value` up through reshapes that nobody else reads, and adds them to `members`, the last one first. */
static bool walk_up(hlo_instr **value, hlo_instr **members, int *count)
{
  for (;; *value = (*value)->operands[0]) {
    if ((*value)->user_count != 1 || *value == (*value)->parent->root || pass_has_control_edges(*value)) return false;
    if (*count == MOST_MEMBERS) return false;
    members[(*count)++] = *value;
    if ((*value)->op != HLO_RESHAPE && (*value)->op != HLO_BITCAST) return true;
  }
}

/* The chain that ends with `last`, its first member last; `count` 0: there is none that pays. */
static weft_status *find_chain(const pass_ctx *ctx, hlo_instr *last, hlo_instr **members, int *count)
{
  const hlo_instr *dot = gen_library_dot(last), *first_dot;
  hlo_instr *kernel = gen_library_left(last), *first = NULL;
  gen_strategy strategy;
  int found = 1, param = 0;
  bool local;

  *count = 0;
  if (!kernel || !takes_rows(dot) || !gen_multiplies_stored(last) || pass_has_control_edges(last) ||
      gen_dot_needs_kernel(pass_target(ctx), dot, false))
    return NULL;
  members[0] = last;
  if (!walk_up(&kernel, members, &found) || kernel->op != HLO_FUSION || gen_is_library_fusion(kernel) ||
      kernel->u.fusion.alias_count > 0 || !hlo_shape_is_array(kernel->shape))
    return NULL;
  for (int i = 0; i < kernel->operand_count; i++) {
    const hlo_instr *operand = kernel->operands[i];
    if (!hlo_shape_is_array(operand->shape) || operand->op == HLO_CONSTANT) return NULL;
    if (!gen_library_dot(gen_through_views(operand))) continue;
    if (first) return NULL;
    first = kernel->operands[param = i];
  }
  if (!first || !walk_up(&first, members, &found)) return NULL;
  first_dot = gen_library_dot(first);
  const hlo_shape *s = first_dot->shape, *p = dot->operands[0]->shape;
  int64_t cols = s->dims[s->rank - 1], rows = cols > 0 ? hlo_shape_elems(s) / cols : 0;
  if (!pass_is_canonical_dot(first_dot) || !gen_multiplies_stored(first) || s->rank != p->rank ||
      !pass_same_ints(s->dims, p->dims, s->rank) || s->dims[s->rank - 2] < LEAST_ROWS ||
      hlo_shape_bytes(s) + hlo_shape_bytes(p) < LEAST_BYTES || gen_dot_needs_kernel(pass_target(ctx), first_dot, false))
    return NULL;
  WEFT_TRY(gen_decide(pass_target(ctx), ctx->scratch, kernel, &strategy));
  WEFT_TRY(gen_keeps_rows(ctx->scratch, kernel, param, rows, cols, &local));
  if (strategy == GEN_STRATEGY_ROWS && local) *count = found;
  return NULL;
}

static weft_status *strips_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  pass_map map = {.arena = ctx->scratch};
  pass_comps comps;

  WEFT_TRY(pass_sequential(module, ctx->scratch, &comps));
  for (int c = 0; c < comps.count; c++)
    for (hlo_instr *instr = comps.v[c]->first, *next; instr; instr = next) {
      hlo_instr *members[MOST_MEMBERS], *fusion;
      int count;
      next = instr->next; /* a fusion comes before its last dot, and the dot goes */
      WEFT_TRY(find_chain(ctx, instr, members, &count));
      if (count == 0) continue;
      for (int i = 0, j = count - 1; i < j; i++, j--) {
        hlo_instr *member = members[i];
        members[i] = members[j];
        members[j] = member;
      }
      WEFT_TRY(pass_outline(members, count, &instr, 1, &map, "strips_fusion", &fusion));
      WEFT_TRY(pass_fusion_classify(fusion, GEN_STRIPS_FUSION));
      *changed = true;
    }
  return *changed ? hlo_module_gc(module) : NULL;
}
const hlo_pass pass_strips = {"strips", strips_run};
