/* sort-simplifier: an operand of a sort that the comparator does not look at and whose sorted form nobody reads goes;
 * a sort along a dimension of at most one element is its operands. */
#include <config.h>

#include "passes/build.h"
#include "passes/passes.h"

static weft_status *replace_by_operands(hlo_instr *sort)
{
  pass_build b = PASS_BUILD_AT(sort);
  hlo_instr *with = sort->operand_count == 1 ? sort->operands[0] : pb_tuple(&b, sort->operand_count, sort->operands);

  return pass_build_replace(&b, sort, with);
}

static bool is_compared(const hlo_instr *sort, int i)
{
  const hlo_computation *less = sort->called[0];

  return less->params[2 * i]->user_count > 0 || less->params[2 * i + 1]->user_count > 0 ||
         less->root == less->params[2 * i] || less->root == less->params[2 * i + 1];
}

static weft_status *drop_unread(hlo_instr *sort, weft_arena *scratch, bool *changed)
{
  hlo_module *module = sort->parent->module;
  hlo_instr **operands = WEFT_ARENA_ARRAY(scratch, hlo_instr *, sort->operand_count), *with, **elements;
  int *place = WEFT_ARENA_ARRAY(scratch, int, sort->operand_count), kept = 0;
  bool *is_read = WEFT_ARENA_ARRAY(scratch, bool, sort->operand_count);
  hlo_computation *less;
  pass_build b = PASS_BUILD_AT(sort);

  WEFT_TRY_ALLOC(operands);
  WEFT_TRY_ALLOC(place);
  WEFT_TRY_ALLOC(is_read);
  for (int i = 0; i < sort->user_count; i++) {
    if (sort->users[i]->op != HLO_GET_TUPLE_ELEMENT) return NULL;
    is_read[sort->users[i]->u.tuple_index] = true;
  }
  for (int i = 0; i < sort->operand_count; i++) {
    place[i] = -1;
    if (!is_read[i] && !is_compared(sort, i)) continue;
    place[i] = kept;
    operands[kept++] = sort->operands[i];
  }
  if (kept == sort->operand_count || kept == 0 || sort == sort->parent->root) return NULL;

  WEFT_TRY(hlo_computation_clone(module, sort->called[0], sort->called[0]->name, sort->parent, &less));
  for (int i = sort->operand_count - 1; i >= 0; i--) {
    if (place[i] >= 0) continue;
    hlo_computation_remove_parameter(less, 2 * i + 1);
    hlo_computation_remove_parameter(less, 2 * i);
  }
  const hlo_shape *shape = operands[0]->shape, **shapes = WEFT_ARENA_ARRAY(scratch, const hlo_shape *, kept);
  WEFT_TRY_ALLOC(shapes);
  for (int i = 0; i < kept; i++) shapes[i] = operands[i]->shape;
  if (kept > 1) shape = hlo_shape_tuple(&module->arena, kept, shapes);
  with = pb_instr(&b, HLO_SORT, shape, kept, operands);
  WEFT_TRY(pass_build_finish(&b));
  with->dims = sort->dims;
  with->u.is_stable = sort->u.is_stable;
  with->extra = sort->extra;
  WEFT_TRY(hlo_set_called(with, 1, &less));
  /* A tuple in the old form: tuple-simplifier takes it apart.  What was dropped is not read. */
  elements = WEFT_ARENA_ARRAY(scratch, hlo_instr *, sort->operand_count);
  WEFT_TRY_ALLOC(elements);
  for (int i = 0; i < sort->operand_count; i++)
    elements[i] = place[i] < 0 ? sort->operands[i] : kept == 1 ? with : pb_gte(&b, with, place[i]);
  *changed = true;
  return pass_build_replace(&b, sort, pb_tuple(&b, sort->operand_count, elements));
}

static weft_status *sort_simplifier_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  pass_comps comps;

  WEFT_TRY(pass_sequential(module, ctx->scratch, &comps));
  for (int i = 0; i < comps.count; i++) {
    HLO_FOREACH(instr, comps.v[i]) {
      if (instr->op != HLO_SORT || pass_has_control_edges(instr)) continue;
      if (instr->operands[0]->shape->dims[instr->dims.v[0]] <= 1) {
        WEFT_TRY(replace_by_operands(instr));
        *changed = true;
      } else if (instr->operand_count > 1) {
        WEFT_TRY(drop_unread(instr, ctx->scratch, changed));
      }
    }
  }
  return NULL;
}
const hlo_pass pass_sort_simplifier = {"sort-simplifier", sort_simplifier_run};
