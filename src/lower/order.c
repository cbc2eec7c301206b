/* lower/order.c -- dependences between steps that share no data: control predecessors and tokens. */
#include <config.h>

#include <string.h>

#include "lower/lower_internal.h"

static weft_status *add_edge(low_module *m, low_edges *e, int from, int to)
{
  if (from < 0 || from >= to) return NULL;
  if (e->count == e->capacity) {
    int wider = e->capacity ? 2 * e->capacity : 16;
    int(*bigger)[2] = weft_arena_alloc_array(&m->scratch, (size_t)wider, sizeof *bigger);
    WEFT_TRY_ALLOC(bigger);
    if (e->count) memcpy(bigger, e->v, (size_t)e->count * sizeof *bigger);
    e->v = bigger;
    e->capacity = wider;
  }
  e->v[e->count][0] = from;
  e->v[e->count++][1] = to;
  return NULL;
}

static bool has_token(const hlo_shape *shape)
{
  if (hlo_shape_is_token(shape)) return true;
  for (int i = 0; hlo_shape_is_tuple(shape) && i < shape->rank; i++)
    if (has_token(shape->elements[i])) return true;
  return false;
}

/* Adds an edge from each step that makes a token which `instr` is given. Tuples, after-all and the like are no
 * steps: the search goes through them. */
static weft_status *add_tokens(low_module *m, low_edges *e, const hlo_instr *instr)
{
  const hlo_instr **stack = WEFT_ARENA_ARRAY(&m->scratch, const hlo_instr *, instr->operand_count);
  int depth = 0, capacity = instr->operand_count;

  WEFT_TRY_ALLOC(stack);
  for (int i = 0; i < instr->operand_count; i++)
    if (has_token(instr->operands[i]->shape)) stack[depth++] = instr->operands[i];
  while (depth > 0) {
    const hlo_instr *from = stack[--depth];
    if (m->token_mark[from->id] == instr->id + 1) continue;
    m->token_mark[from->id] = instr->id + 1;
    if (m->node_of[from->id] >= 0) {
      WEFT_TRY(add_edge(m, e, m->node_of[from->id], m->node_of[instr->id]));
      continue;
    }
    if (depth + from->operand_count > capacity) {
      const hlo_instr **bigger = WEFT_ARENA_ARRAY(&m->scratch, const hlo_instr *, 2 * (depth + from->operand_count));
      WEFT_TRY_ALLOC(bigger);
      if (depth) memcpy(bigger, stack, (size_t)depth * sizeof *bigger);
      stack = bigger;
      capacity = 2 * (depth + from->operand_count);
    }
    for (int i = 0; i < from->operand_count; i++)
      if (has_token(from->operands[i]->shape)) stack[depth++] = from->operands[i];
  }
  return NULL;
}

weft_status *low_order_add(low_module *m, low_edges *edges, const hlo_instr *instr)
{
  WEFT_TRY(add_tokens(m, edges, instr));
  for (int i = 0; i < instr->control->pred_count; i++)
    WEFT_TRY(add_edge(m, edges, m->node_of[instr->control->preds[i]->id], m->node_of[instr->id]));
  return NULL;
}
