/* passes/fusion_kind.c -- the kind of a finished fusion, its name in the text and its in-place aliases, which follow
 * from its results:
 *
 *   result                                              kind      backend_config
 *   scatter                                             kCustom   "scatter"   operands it updates are shared with it
 *   dynamic-update-slice of a parameter                 kCustom   "dus"       that parameter is shared with it
 *   reduce, reduce-window, select-and-scatter           kInput
 *   as the pass that made the fusion says               kCustom   "row", "loop", "region", "library", "strips"
 *   anything else                                       kLoop
 *
 * A parameter is shared with a result only if nothing else in the fusion reads the parameter, since the kernel
 * overwrites it while it runs.  How the kernel is made is decided later (strategies.c). */
#include <config.h>

#include "passes/fusion.h"
#include "passes/util.h"

/* The number of the parameter that `value` is, seen through reshapes with one user; -1 if it is none, or has other
 * users. The parameter must have the shape of `value`, since an alias is of one shape. */
static int64_t shared_parameter(const hlo_instr *value)
{
  const hlo_shape *shape = value->shape;

  while (value->user_count == 1 && (value->op == HLO_RESHAPE || value->op == HLO_BITCAST)) value = value->operands[0];
  if (value->op != HLO_PARAMETER || value->user_count != 1 || !hlo_shape_compatible(value->shape, shape)) return -1;
  return value->u.parameter_number;
}

typedef struct strategy {
  hlo_fusion_kind kind;
  const char *name;
  int alias_count;
  hlo_output_alias *aliases;
} strategy;

static weft_status *add_alias(hlo_module *module, strategy *s, int depth, const int64_t *output_index, int64_t param)
{
  hlo_output_alias *alias = &s->aliases[s->alias_count];

  if (param < 0) return NULL;
  for (int i = 0; i < s->alias_count; i++)
    if (s->aliases[i].operand == param) return NULL;
  alias->operand = param;
  s->alias_count++;
  return hlo_ints_new(module, depth, output_index, &alias->output_index);
}

/* Looks at one result of the fusion.  `output`: its index if the fusion has several results, else -1. */
static weft_status *look_at(hlo_module *module, const hlo_instr *result, int64_t output, strategy *s)
{
  int depth = output >= 0;

  switch (result->op) {
  case HLO_SCATTER: {
    int inputs = result->operand_count / 2;
    s->kind = HLO_FUSION_CUSTOM;
    s->name = "scatter";
    for (int64_t i = 0; i < inputs; i++)
      WEFT_TRY(add_alias(module, s, inputs > 1, &i, shared_parameter(result->operands[i])));
    return NULL;
  }
  case HLO_DYNAMIC_UPDATE_SLICE: {
    int64_t param = shared_parameter(result->operands[0]);
    if (param < 0) return NULL;
    s->kind = HLO_FUSION_CUSTOM;
    s->name = "dus";
    return add_alias(module, s, depth, &output, param);
  }
  case HLO_REDUCE: case HLO_REDUCE_WINDOW: case HLO_SELECT_AND_SCATTER:
    if (s->kind == HLO_FUSION_LOOP) s->kind = HLO_FUSION_INPUT;
    return NULL;
  default: return NULL;
  }
}

weft_status *pass_fusion_classify(hlo_instr *fusion, const char *strategy_name)
{
  const hlo_instr *root = fusion->called[0]->root;
  hlo_module *module = fusion->parent->module;
  strategy s = {HLO_FUSION_LOOP, NULL, 0, NULL};

  s.aliases = WEFT_ARENA_ARRAY(&module->arena, hlo_output_alias, fusion->operand_count + 1);
  WEFT_TRY_ALLOC(s.aliases);
  if (root->op == HLO_TUPLE)
    for (int64_t i = 0; i < root->operand_count; i++) WEFT_TRY(look_at(module, root->operands[i], i, &s));
  else WEFT_TRY(look_at(module, root, -1, &s));
  if (strategy_name) {
    s.kind = HLO_FUSION_CUSTOM;
    s.name = strategy_name;
  }
  fusion->u.fusion.kind = s.kind;
  fusion->u.fusion.alias_count = s.alias_count;
  fusion->u.fusion.aliases = s.aliases;
  if (s.name) {
    hlo_extra *extra;
    WEFT_TRY(hlo_mutable_extra(fusion, &extra));
    extra->backend_config = s.name;
  }
  return NULL;
}
