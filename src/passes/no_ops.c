/* passes/no_ops.c -- remove-no-ops: removes instructions that mean nothing on one device, or nothing any more:
 * opt-barrier (at the end of the pipeline, when its work is done), domain, the custom-calls of shardings, and copies
 * that only changed a layout. It runs twice: `remove-annotations` at the start, `remove-barriers` after
 * simplification. */
#include <config.h>

#include <string.h>

#include "passes/passes.h"

static const char *const annotation_targets[] = {
  "Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "LayoutConstraint", "annotate_device_placement",
  "MoveToHost", "MoveToDevice", "xla.sdy.FuncResultSharding", "xla.sdy.GlobalToLocalShape",
  "xla.sdy.LocalToGlobalShape", "xla.sdy.PropagationBarrier",
};

static bool is_annotation(const hlo_instr *instr)
{
  if (instr->op == HLO_DOMAIN || instr->op == HLO_COPY) return true;
  if (instr->op != HLO_CUSTOM_CALL || instr->operand_count != 1 ||
      instr->parent->module->num_partitions > 1 || /* the partitioner reads it */
      !hlo_shape_equal(instr->shape, instr->operands[0]->shape, false))
    return false;
  for (size_t i = 0; i < WEFT_COUNT(annotation_targets); i++)
    if (strcmp(instr->u.custom->target, annotation_targets[i]) == 0) return true;
  return false;
}

static bool is_barrier(const hlo_instr *instr) { return instr->op == HLO_OPT_BARRIER; }

static weft_status *remove_all(hlo_module *module, bool (*is_no_op)(const hlo_instr *), bool *changed)
{
  HLO_FOREACH_COMPUTATION(comp, module)
    HLO_FOREACH(instr, comp) {
      if (!is_no_op(instr) || pass_has_control_edges(instr)) continue;
      WEFT_TRY(hlo_replace(instr, instr->operands[0]));
      *changed = true;
    }
  return NULL;
}

static weft_status *remove_annotations_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  (void)ctx;
  return remove_all(module, is_annotation, changed);
}
const hlo_pass pass_remove_annotations = {"remove-annotations", remove_annotations_run};

static weft_status *remove_barriers_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  (void)ctx;
  return remove_all(module, is_barrier, changed);
}
const hlo_pass pass_remove_barriers = {"remove-barriers", remove_barriers_run};
