/* codegen/model/library.c -- kernel or library call. */
#include <config.h>

#include "codegen/model/library.h"

#include <math.h>
#include <string.h>

#include "codegen/model/strategy.h"
#include "codegen/model/view.h"

enum { FUSED_CONCATENATED = 8, SMALL_CONCATENATED = 1024, FEW_ROWS = 4, REGION_THREADS = 256 };

/* The most multiply-adds for which a kernel is quicker: the library works in blocks and vectors, but a kernel costs
 * no call. In a region nothing dispatches the kernel, and a product by a few rows or columns has nothing to block. */
static double most_work(const gen_target *target, double rows, double columns, bool in_region)
{
  if (!in_region) return (double)target->dot_work;
  return (double)(WEFT_MIN(rows, columns) < FEW_ROWS ? target->region_row_work : target->region_dot_work);
}

/* Does a library of a platform of blocks have the product's types, after pass library-dots? */
static bool library_has_types(const hlo_instr *dot)
{
  if (!weft_dtype_is_integer(dot->shape->type)) return dot->shape->type != WEFT_PRED;
  for (int i = 0; i < 2; i++) {
    weft_dtype type = dot->operands[i]->shape->type;
    if (!weft_dtype_is_signed(type) || weft_dtype_bytes(type) > 1) return false;
  }
  return dot->shape->type == WEFT_S32;
}

bool gen_dot_needs_kernel(const gen_target *target, const hlo_instr *dot, bool in_region)
{
  const hlo_dot_attrs *a = dot->u.dot;
  int64_t depth = 1, batch = 1;

  if (dot->operand_count != 2 || a->sparsity || dot->control->pred_count > 0 || dot->control->succ_count > 0)
    return false;
  if (target->block_threads > 1 && !in_region && !library_has_types(dot)) return true;
  for (int i = 0; i < a->lhs_contracting.count; i++) depth *= dot->operands[0]->shape->dims[a->lhs_contracting.v[i]];
  for (int i = 0; i < a->lhs_batch.count; i++) batch *= dot->shape->dims[i];
  double each = (double)WEFT_MAX(depth * batch, 1);
  if (target->block_threads > 1 && in_region) /* a thread of the block has several elements of the product to make */
    return (double)depth * ceil((double)hlo_shape_elems(dot->shape) / REGION_THREADS) <=
           (double)target->region_dot_work;
  double rows = (double)hlo_shape_elems(dot->operands[0]->shape) / each,
         columns = (double)hlo_shape_elems(dot->operands[1]->shape) / each;
  return (double)hlo_shape_elems(dot->shape) * (double)depth <= most_work(target, rows, columns, in_region);
}

static bool is_custom_fusion(const hlo_instr *instr, const char *config)
{
  return instr->op == HLO_FUSION && instr->u.fusion.kind == HLO_FUSION_CUSTOM && instr->extra &&
         instr->extra->backend_config && strcmp(instr->extra->backend_config, config) == 0;
}

bool gen_is_strip_group(const hlo_instr *instr) { return is_custom_fusion(instr, GEN_STRIP_GROUP); }

bool gen_is_strips_fusion(const hlo_instr *instr)
{
  return is_custom_fusion(instr, GEN_STRIPS_FUSION) || gen_is_strip_group(instr);
}

bool gen_is_conv_blocks_fusion(const hlo_instr *instr) { return is_custom_fusion(instr, GEN_CONV_BLOCKS_FUSION); }

bool gen_calls_kernel(const hlo_instr *instr)
{
  return gen_is_strips_fusion(instr) || gen_is_conv_blocks_fusion(instr);
}

bool gen_is_library_fusion(const hlo_instr *instr)
{
  return is_custom_fusion(instr, GEN_LIBRARY_FUSION) || gen_calls_kernel(instr);
}

const hlo_instr *gen_library_dot(const hlo_instr *instr)
{
  if (is_custom_fusion(instr, GEN_LIBRARY_FUSION)) instr = instr->called[0]->root;
  return instr->op == HLO_DOT ? instr : NULL;
}

hlo_instr *gen_library_left(const hlo_instr *instr)
{
  const hlo_instr *dot = gen_library_dot(instr);

  if (!dot) return NULL;
  hlo_instr *left = dot->operands[0];
  if (dot == instr) return left;
  return left->op == HLO_PARAMETER ? instr->operands[left->u.parameter_number] : NULL;
}

bool gen_multiplies_stored(const hlo_instr *instr)
{
  const hlo_instr *dot = gen_library_dot(instr);

  for (int i = 0; dot != instr && i < 2; i++)
    if (gen_view_of(dot->operands[i]).array->op != HLO_PARAMETER) return false;
  return true;
}

bool gen_is_wide_concatenate(const hlo_instr *instr)
{
  return instr->op == HLO_CONCATENATE && instr->operand_count > FUSED_CONCATENATED &&
         hlo_shape_elems(instr->shape) > SMALL_CONCATENATED;
}

bool gen_needs_kernel(const gen_target *target, const hlo_instr *instr)
{
  gen_scan scan;

  if (hlo_opcode_is_alias(instr->op) || hlo_opcode_is_collective(instr->op) || hlo_opcode_is_async(instr->op) ||
      hlo_opcode_has_side_effect(instr->op))
    return false;
  switch (instr->op) {
  case HLO_FUSION: case HLO_WHILE: case HLO_CONDITIONAL: case HLO_CALL: case HLO_CUSTOM_CALL:
  case HLO_SCAN: case HLO_RAGGED_DOT: case HLO_SCALED_DOT: case HLO_CONVOLUTION: case HLO_SORT: case HLO_TOPK:
  case HLO_FFT: case HLO_CHOLESKY: case HLO_TRIANGULAR_SOLVE: case HLO_COPY:
  case HLO_PARTITION_ID:
  case HLO_REPLICA_ID: return false;
  case HLO_CONCATENATE: return !gen_is_wide_concatenate(instr);
  case HLO_REDUCE_WINDOW:
    return target->block_threads <= 1 ? !gen_is_library_scan(instr)
                                      : !gen_scan_of(instr, &scan); /* a kernel as it is */
  case HLO_DOT: return gen_dot_needs_kernel(target, instr, false);
  default: return true;
  }
}
