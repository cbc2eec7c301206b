/* passes/small_loops.c -- small-loops: a while with a short body over little data becomes one kernel (kCustom,
 * "loop"), so that no iteration goes through the executor. Its state may change in scalars, in small arrays, and in
 * arrays of any size that are only updated in place (the next value is a dynamic-update-slice of the old one), which
 * share their operand's buffer. Arrays that the loop only reads are operands. The results are the elements of the
 * state that are used after the loop. */
#include <config.h>

#include "passes/fusion.h"
#include "passes/passes.h"
#include "passes/while_loop.h"

enum {
  MOST_INSTRUCTIONS = 200, /* instructions of body and condition */
  MOST_ELEMENTS = 32,      /* elements of a value inside, which are computed one by one */
  MOST_WORK = 600,         /* elements of all values inside */
  /* the same on a GPU, where one thread runs the loop: larger loops are run by a block (regions.c) */
  MOST_THREAD_WORK = 64,
  /* elements of a transcendental value times the cost of one: above this, vectors are faster */
  MOST_COST = 200,
  MOST_REDUCED = 64,       /* elements that a reduction inside reads */
};

static bool updates_in_place(const while_loop *w, int i)
{
  const hlo_instr *next = while_next(w, i);

  return next->op == HLO_DYNAMIC_UPDATE_SLICE && next->user_count == 1 && next->operands[0] == w->in_body[i] &&
         hlo_shape_elems(next->operands[1]->shape) <= MOST_ELEMENTS;
}

static bool is_simple(const hlo_instr *instr)
{
  const hlo_computation *comp = instr->parent;

  if (pass_has_control_edges(instr)) return false;
  if (instr->op == HLO_PARAMETER || (instr->op == HLO_TUPLE && instr == comp->root)) return true;
  if (instr->op == HLO_GET_TUPLE_ELEMENT) return instr->operands[0] == comp->params[0];
  if (!hlo_shape_is_array(instr->shape) || hlo_shape_elems(instr->shape) > MOST_ELEMENTS) return false;
  if (hlo_opcode_is_transcendental(instr->op))
    return (double)hlo_shape_elems(instr->shape) * pass_element_cost(instr) <= MOST_COST;
  if (hlo_opcode_is_elementwise(instr->op)) return true;
  switch (instr->op) {
  case HLO_CONSTANT: case HLO_RESHAPE: case HLO_BITCAST: case HLO_BROADCAST: case HLO_SLICE: case HLO_DYNAMIC_SLICE:
  case HLO_IOTA: case HLO_CONCATENATE: case HLO_BITCAST_CONVERT: case HLO_TRANSPOSE: case HLO_REVERSE:
  case HLO_PAD: return true;
  case HLO_REDUCE: return instr->operand_count == 2 && hlo_shape_elems(instr->operands[0]->shape) <= MOST_REDUCED;
  default: return false;
  }
}

static bool has_short_body(const while_loop *w, int64_t most_work)
{
  const hlo_computation *comps[] = {w->body, w->cond};
  int64_t work = 0;

  if (w->body->instr_count + w->cond->instr_count > MOST_INSTRUCTIONS) return false;
  for (int c = 0; c < 2; c++)
    for (const hlo_instr *instr = comps[c]->first; instr; instr = instr->next) {
      bool is_update = false;
      if (instr->op == HLO_DYNAMIC_UPDATE_SLICE) /* an update that is the next value of the element that it updates */
        is_update = c == 0 && instr->operands[0]->op == HLO_GET_TUPLE_ELEMENT &&
                    instr->operands[0]->operands[0] == w->body->params[0] &&
                    while_next(w, (int)instr->operands[0]->u.tuple_index) == instr &&
                    updates_in_place(w, (int)instr->operands[0]->u.tuple_index);
      if (!is_update && !is_simple(instr)) return false;
      if (is_update) work += hlo_shape_elems(instr->operands[1]->shape);
      else if (instr->op != HLO_GET_TUPLE_ELEMENT && hlo_shape_is_array(instr->shape))
        work += hlo_shape_elems(instr->op == HLO_REDUCE ? instr->operands[0]->shape : instr->shape);
    }
  return work <= most_work;
}

/* Elements that do not change are not used after the loop (while-simplifier takes care of that). */
static bool has_small_state(const while_loop *w)
{
  for (int i = 0; i < w->count; i++) {
    const hlo_shape *shape = while_init(w, i)->shape;
    bool is_wanted = while_is_used(w, i);
    if (!hlo_shape_is_array(shape) || hlo_shape_is_dynamic(shape) || hlo_shape_elems(shape) == 0) return false;
    if (while_is_invariant(w, i)) {
      if (is_wanted) return false;
    } else if (updates_in_place(w, i) && !hlo_shape_is_scalar(shape)) {
      if (!is_wanted) return false;
    } else if (hlo_shape_elems(shape) > MOST_ELEMENTS) {
      return false;
    }
  }
  return true;
}

/* Results that are updated in place share the buffer of the operand from which they start, if nothing else reads it. */
static weft_status *share_buffers(hlo_instr *fusion)
{
  hlo_module *module = fusion->parent->module;
  const hlo_computation *comp = fusion->called[0];
  const hlo_instr *root = comp->root, *loop = NULL;
  int count = root->op == HLO_TUPLE ? root->operand_count : 1, shared = 0;
  hlo_output_alias *aliases = WEFT_ARENA_ARRAY(&module->arena, hlo_output_alias, count);

  WEFT_TRY_ALLOC(aliases);
  for (int64_t r = 0; r < count; r++) {
    const hlo_instr *result = root->op == HLO_TUPLE ? root->operands[r] : root, *init, *next;
    loop = result->operands[0];
    init = loop->operands[0]->operands[result->u.tuple_index];
    next = loop->called[0]->root->operands[result->u.tuple_index];
    if (next->op != HLO_DYNAMIC_UPDATE_SLICE || hlo_shape_is_scalar(next->shape) || init->op != HLO_PARAMETER ||
        init->user_count != 1)
      continue;
    aliases[shared].operand = init->u.parameter_number;
    WEFT_TRY(hlo_ints_new(module, root->op == HLO_TUPLE, &r, &aliases[shared++].output_index));
  }
  fusion->u.fusion.alias_count = shared;
  fusion->u.fusion.aliases = aliases;
  return NULL;
}

static weft_status *make_kernel(const void *ctx, while_loop *w, pass_map *map, hlo_instr **out)
{
  int64_t most_work = *(const int64_t *)ctx;

  if (!has_short_body(w, most_work) || !has_small_state(w)) return NULL;
  WEFT_TRY(while_outline(w, map, "loop_fusion", false, out));
  if (!*out) return NULL;
  WEFT_TRY(pass_fusion_classify(*out, "loop"));
  return share_buffers(*out);
}

static weft_status *small_loops_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  int64_t most_work = pass_target(ctx)->block_threads > 1 ? MOST_THREAD_WORK : MOST_WORK;

  return while_make_kernels(module, ctx->scratch, make_kernel, &most_work, changed);
}
const hlo_pass pass_small_loops = {"small-loops", small_loops_run};
