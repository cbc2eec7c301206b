/* passes/conv_blocks.c -- conv-blocks: a convolution whose features come last and the kernel over the elements of its
 * result become one step of the CPU's library (gen_is_conv_blocks_fusion):
 *
 *   y = convolution(x, w)      out = max(y * scale + shift + residual, 0)
 *
 * The library computes some pixels of y at a time and calls the kernel for them (cpu/conv_blocks.c), so y is never in
 * memory as a whole. The kernel is a loop over the elements of its result, and each pixel of it must need the same
 * pixel of y alone; its other operands may be anything. Nobody else may read y.
 *
 * The pass runs on finished fusions, before the order and the memory of the program are planned. */
#include <config.h>

#include "codegen/model/library.h"
#include "codegen/model/strategy.h"
#include "passes/fusion.h"
#include "passes/passes.h"

enum {
  LEAST_PIXELS = 512,      /* of all images: with fewer, the library cuts the work along the features */
  MOST_KERNEL = 1 << 19,   /* elements of the convolution's kernel, which each task reads as a whole */
  LEAST_FEATURES = 32,     /* of the input; with fewer the library makes patches */
};

static bool is_in_order(hlo_ints spatial)
{
  for (int d = 0; d < spatial.count; d++)
    if (spatial.v[d] != d + 1) return false;
  return true;
}

/* Does the library multiply blocks of pixels by all features of this convolution? */
static bool has_blocks(const pass_ctx *ctx, const hlo_instr *conv)
{
  const hlo_conv_attrs *a = conv->u.conv;
  const hlo_shape *s = conv->shape;
  int last = s->rank - 1;

  if (!ctx->options->bf16_features_last || s->rank < 3 || hlo_shape_elems(s) == 0) return false;
  if (s->type != WEFT_BF16 || conv->operands[0]->shape->type != WEFT_BF16 ||
      conv->operands[1]->shape->type != WEFT_BF16)
    return false;
  for (int i = 0; i < 2; i++)
    if (conv->operands[i]->op == HLO_CONSTANT) return false;
  for (int d = 0; d < a->window.rank; d++)
    if (a->window.dims[d].base_dilation != 1 || a->window.dims[d].reversal) return false;
  return a->lhs_batch == 0 && a->lhs_feature == last && a->out_batch == 0 && a->out_feature == last &&
         is_in_order(a->lhs_spatial) && is_in_order(a->out_spatial) && a->feature_group_count == 1 &&
         a->batch_group_count == 1 && hlo_shape_elems(s) / s->dims[last] >= LEAST_PIXELS &&
         hlo_shape_elems(conv->operands[1]->shape) <= MOST_KERNEL &&
         conv->operands[1]->shape->dims[a->rhs_in_feature] >= LEAST_FEATURES;
}

/* The convolution that `kernel` and it may be one step with; NULL: there is none. */
static weft_status *find_conv(const pass_ctx *ctx, hlo_instr *kernel, hlo_instr **out)
{
  gen_strategy strategy;
  bool local, by_rows;

  *out = NULL;
  if (kernel->op != HLO_FUSION || gen_is_library_fusion(kernel) || kernel->u.fusion.alias_count > 0 ||
      !hlo_shape_is_array(kernel->shape) || pass_has_control_edges(kernel))
    return NULL;
  for (int i = 0; i < kernel->operand_count; i++)
    if (!hlo_shape_is_array(kernel->operands[i]->shape) || kernel->operands[i]->op == HLO_CONSTANT) return NULL;
  for (int i = 0; i < kernel->operand_count && !*out; i++) {
    hlo_instr *conv = kernel->operands[i];
    if (conv->op != HLO_CONVOLUTION || conv->user_count != 1 || conv == conv->parent->root ||
        pass_has_control_edges(conv) || !has_blocks(ctx, conv))
      continue;
    int64_t features = conv->shape->dims[conv->shape->rank - 1], pixels = hlo_shape_elems(conv->shape) / features;
    WEFT_TRY(gen_decide(pass_target(ctx), ctx->scratch, kernel, &strategy));
    if (strategy != GEN_STRATEGY_LOOP) return NULL;
    WEFT_TRY(gen_keeps_rows(ctx->scratch, kernel, i, pixels, features, &local));
    WEFT_TRY(gen_loops_by_rows(ctx->scratch, kernel, pixels, features, &by_rows));
    if (local && by_rows) *out = conv;
  }
  return NULL;
}

static weft_status *conv_blocks_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  pass_map map = {.arena = ctx->scratch};
  pass_comps comps;

  WEFT_TRY(pass_sequential(module, ctx->scratch, &comps));
  for (int c = 0; c < comps.count; c++)
    for (hlo_instr *instr = comps.v[c]->first, *next; instr; instr = next) {
      hlo_instr *conv, *fusion;
      next = instr->next; /* a fusion comes before its last member, and the member goes */
      WEFT_TRY(find_conv(ctx, instr, &conv));
      if (!conv) continue;
      WEFT_TRY(pass_outline((hlo_instr *[]){conv, instr}, 2, &instr, 1, &map, "conv_fusion", &fusion));
      WEFT_TRY(pass_fusion_classify(fusion, GEN_CONV_BLOCKS_FUSION));
      *changed = true;
    }
  return *changed ? hlo_module_gc(module) : NULL;
}
const hlo_pass pass_conv_blocks = {"conv-blocks", conv_blocks_run};
