/* codegen/model/element_loop.c -- loops of which each element, or each short row of elements, could be run by itself. */
#include <config.h>

#include <stdlib.h>

#include "base/arena.h"
#include "codegen/model/strategy.h"

enum {
  LEAST_ELEMENTS = 8,       /* fewer do not fill a vector */
  MOST_STATE = 48,          /* numbers of an element's state that change: each takes a register */
  MOST_ROW = 16,            /* numbers of one array that belong to an element */
  MOST_ROW_WORK = 1200,     /* numbers that a round computes of an element, if elements are rows */
  MOST_SUMMED = 4,          /* numbers of a row that are reduced to one */
  MOST_INSTRUCTIONS = 600,  /* of body and condition */
  MOST_COMPARED = 2000,     /* instructions that are visited, for a predicate that the condition and the body compute */
  LANES_OF_A_SCALAR = 8,    /* what a scalar costs is paid once a vector */
  MOST_DEPTH = 8,           /* of the arithmetic on a counter */
};

typedef struct finder {
  const hlo_instr *loop;
  const hlo_computation *body, *cond;
  hlo_shape shape;          /* the dimensions that all arrays that change begin with: an element for each index */
  const hlo_instr *any;     /* in the condition: does any element go on? NULL: the condition asks for scalars alone */
  bool has_stacks;
  double scalar_cost, array_cost; /* of an element */
  int64_t row_work;
  int compared;
} finder;

static bool begins_alike(const finder *f, const hlo_shape *shape)
{
  if (!hlo_shape_is_array(shape) || shape->rank < f->shape.rank) return false;
  for (int d = 0; d < f->shape.rank; d++)
    if (shape->dims[d] != f->shape.dims[d]) return false;
  return true;
}

/* How many numbers of such an array belong to one element. */
static int64_t row_of(const finder *f, const hlo_shape *shape)
{
  int64_t row = 1;

  for (int d = f->shape.rank; d < shape->rank; d++) row *= shape->dims[d];
  return row;
}

static bool has_short_rows(const finder *f, const hlo_shape *shape)
{
  return begins_alike(f, shape) && row_of(f, shape) >= 1 && row_of(f, shape) <= MOST_ROW;
}

/* The element of the state that `x` is, in the body or in the condition; -1 if it is none. */
static int element_of(const hlo_instr *x)
{
  const hlo_instr *from = x->op == HLO_GET_TUPLE_ELEMENT ? x->operands[0] : NULL;

  return from && from->op == HLO_PARAMETER ? (int)x->u.tuple_index : -1;
}

static bool changes(const finder *f, int k) { return element_of(f->body->root->operands[k]) != k; }

static const hlo_instr *stack_of(const hlo_instr *loop, int k)
{
  const hlo_instr *next = loop->called[0]->root->operands[k];
  bool is_stack = next->op == HLO_DYNAMIC_UPDATE_SLICE && element_of(next->operands[0]) == k &&
                  next->operand_count == 2 + next->shape->rank && next->operands[0]->user_count == 1;

  return is_stack ? next : NULL;
}

const hlo_instr *gen_element_loop_stack(const gen_element_loop *l, int k) { return stack_of(l->loop, k); }

/* Is `x` a constant? Then *out is its value. */
static bool is_integer(const hlo_instr *x, int64_t *out)
{
  if (x->op != HLO_CONSTANT || !hlo_shape_is_scalar(x->shape) || !weft_dtype_is_integer(x->shape->type)) return false;
  return *out = hlo_literal_get_s64(x->u.literal, 0), true;
}

/* Is `x` factor * counter + offset, where the counter is an element of the state that begins at 0 and grows by 1? */
static bool counts_rounds(const finder *f, const hlo_instr *x, int64_t *factor, int64_t *offset, int depth)
{
  int k = element_of(x);
  int64_t a, b, c, d, value;

  if (k >= 0) {
    const hlo_instr *next = f->body->root->operands[k];
    *factor = 1, *offset = 0;
    return is_integer(f->loop->operands[0]->operands[k], &value) && value == 0 && next->op == HLO_ADD &&
           ((element_of(next->operands[0]) == k && is_integer(next->operands[1], &value)) ||
            (element_of(next->operands[1]) == k && is_integer(next->operands[0], &value))) &&
           value == 1;
  }
  if (is_integer(x, offset)) return *factor = 0, true;
  if ((x->op != HLO_ADD && x->op != HLO_SUBTRACT) || depth == 0) return false;
  if (!counts_rounds(f, x->operands[0], &a, &b, depth - 1) || !counts_rounds(f, x->operands[1], &c, &d, depth - 1))
    return false;
  if (WEFT_MAX(WEFT_MAX(llabs(a), llabs(b)), WEFT_MAX(llabs(c), llabs(d))) > INT32_MAX) return false;
  *factor = x->op == HLO_ADD ? a + c : a - c;
  *offset = x->op == HLO_ADD ? b + d : b - d;
  return true;
}

/* Do the rounds write all rows of the stack, each by an array with an element's numbers at each index? */
static bool is_stack(finder *f, const hlo_instr *update)
{
  const hlo_shape *stack = update->shape, *row = update->operands[1]->shape;
  int64_t factor, offset;
  hlo_shape of_row;

  if (stack->rank == 0 || row->dims[0] != 1) return false;
  of_row = *row, of_row.rank--, of_row.dims++;
  if (!has_short_rows(f, &of_row)) return false;
  for (int d = 1; d < stack->rank; d++)
    if (stack->dims[d] != row->dims[d]) return false;
  return hlo_known_trip_count(f->loop) == stack->dims[0] &&
         counts_rounds(f, update->operands[2], &factor, &offset, MOST_DEPTH) &&
         ((factor == 1 && offset == 0) || (factor == -1 && offset == stack->dims[0] - 1));
}

static bool is_read_by_element(const hlo_computation *comp)
{
  const hlo_instr *state = comp->params[0];

  for (int i = 0; i < state->user_count; i++)
    if (state->users[i]->op != HLO_GET_TUPLE_ELEMENT) return false;
  return comp->param_count == 1;
}

static bool has_plain_form(const finder *f)
{
  const hlo_instr *init = f->loop->operands[0];

  if (init->op != HLO_TUPLE || f->body->root->op != HLO_TUPLE) return false;
  if (!is_read_by_element(f->body) || !is_read_by_element(f->cond)) return false;
  for (int k = 0; k < init->operand_count; k++)
    if (!hlo_shape_is_array(init->operands[k]->shape) || hlo_shape_is_dynamic(init->operands[k]->shape)) return false;
  return f->body->instr_count + f->cond->instr_count <= MOST_INSTRUCTIONS;
}

/* The dimensions that all arrays that change have in common, from the first one on; rank 0: there are none. */
static hlo_shape common_dims(const finder *f)
{
  const hlo_instr *init = f->loop->operands[0];
  hlo_shape common = {.type = WEFT_PRED, .rank = 0};
  bool found = false;

  for (int k = 0; k < init->operand_count; k++) {
    const hlo_shape *shape = init->operands[k]->shape;
    int rank = 0;
    if (!changes(f, k) || hlo_shape_is_scalar(shape) || stack_of(f->loop, k)) continue;
    if (!found) common.rank = shape->rank, common.dims = shape->dims;
    while (rank < common.rank && rank < shape->rank && shape->dims[rank] == common.dims[rank]) rank++;
    common.rank = rank;
    found = true;
  }
  return common;
}

static bool has_plain_state(finder *f)
{
  const hlo_instr *init = f->loop->operands[0];
  int64_t numbers = 0;

  for (int k = 0; k < init->operand_count; k++) {
    const hlo_instr *update = stack_of(f->loop, k);
    if (!changes(f, k) || hlo_shape_is_scalar(init->operands[k]->shape)) continue;
    if (update ? !is_stack(f, update) : !has_short_rows(f, init->operands[k]->shape)) return false;
    f->has_stacks = f->has_stacks || update;
    numbers += update ? 0 : row_of(f, init->operands[k]->shape);
  }
  return numbers <= MOST_STATE && hlo_shape_elems(&f->shape) >= LEAST_ELEMENTS;
}

/* ---- what is computed in a round --------------------------------------------------------------------------------- */

static double cost_of(const hlo_instr *x)
{
  if (hlo_opcode_is_transcendental(x->op)) return 20;
  return x->op == HLO_DIVIDE || x->op == HLO_REMAINDER ? 4 : hlo_opcode_is_elementwise(x->op) ? 1 : 0;
}

static bool keeps_places(const hlo_instr *x)
{
  return hlo_opcode_is_elementwise(x->op) ||
         (x->op == HLO_BITCAST_CONVERT && hlo_shape_same_dims(x->shape, x->operands[0]->shape));
}

/* An operation on numbers of the state, which reads them at the place of its result. */
static bool is_pointwise(const finder *f, const hlo_instr *x)
{
  if (!keeps_places(x) || x->called_count > 0 || !has_short_rows(f, x->shape)) return false;
  for (int i = 0; i < x->operand_count; i++)
    if (!hlo_shape_is_scalar(x->operands[i]->shape) && !hlo_shape_same_dims(x->operands[i]->shape, x->shape))
      return false;
  return true;
}

/* Does dimension i of the operand become dimension i of the result, for the dimensions that number the elements? */
static bool keeps_dims(const finder *f, const hlo_instr *x)
{
  for (int d = 0; d < f->shape.rank; d++)
    if (x->dims.v[d] != d) return false;
  return true;
}

/* An operation that reads, for an element's numbers, numbers of the same element alone, at places that are known. */
static bool is_within_rows(const finder *f, const hlo_instr *x)
{
  int rank = f->shape.rank;
  bool within = has_short_rows(f, x->shape) && begins_alike(f, x->operands[0]->shape);

  if (!within) return false;
  switch (x->op) {
  case HLO_RESHAPE: case HLO_BITCAST: return x->shape->type == x->operands[0]->shape->type;
  case HLO_BROADCAST: case HLO_TRANSPOSE: return keeps_dims(f, x);
  case HLO_CONCATENATE: return x->dims.v[0] >= rank;
  case HLO_SLICE:
    return true; /* the dimensions that number the elements are as long as before */
  case HLO_PAD:
    for (int d = 0; d < rank; d++)
      within = within && x->u.pad.dims[d].low == 0 && x->u.pad.dims[d].high == 0 && x->u.pad.dims[d].interior == 0;
    return within && hlo_shape_is_scalar(x->operands[1]->shape);
  case HLO_REVERSE: case HLO_REDUCE:
    for (int i = 0; i < x->dims.count; i++) within = within && x->dims.v[i] >= rank;
    return within && (x->op == HLO_REVERSE ||
                      (x->operand_count == 2 && hlo_reducer_op(x->called[0]) != HLO_OPCODE_COUNT &&
                       row_of(f, x->operands[0]->shape) <= MOST_SUMMED * row_of(f, x->shape)));
  default: return false;
  }
}

/* An operation on scalars, and on arrays that the loop does not change. */
static bool is_beside(const hlo_instr *x)
{
  if (!hlo_shape_is_array(x->shape) || hlo_shape_is_dynamic(x->shape) || x->called_count > 0) return false;
  switch (x->op) {
  case HLO_CONSTANT: case HLO_BROADCAST: case HLO_IOTA: case HLO_RESHAPE: case HLO_BITCAST: case HLO_SLICE:
  case HLO_TRANSPOSE: case HLO_REVERSE: case HLO_DYNAMIC_SLICE: return true;
  default: return keeps_places(x);
  }
}

/* A row of a stack, which is written, or numbers of the elements in the shape of one. */
static bool is_row(const finder *f, const hlo_instr *x)
{
  if (x->op == HLO_DYNAMIC_UPDATE_SLICE) return element_of(x->operands[0]) >= 0 && stack_of(f->loop, element_of(x->operands[0])) == x;
  if ((x->op != HLO_RESHAPE && x->op != HLO_BITCAST) || x->shape->type != x->operands[0]->shape->type) return false;
  for (int i = 0; i < x->user_count; i++)
    if (x->users[i]->op != HLO_DYNAMIC_UPDATE_SLICE || x->users[i]->operands[1] != x || !is_row(f, x->users[i]))
      return false;
  return has_short_rows(f, x->operands[0]->shape);
}

/* Does `x` reduce elements to one that is true if any of them is? */
static bool asks_any(const finder *f, const hlo_instr *x)
{
  return x->op == HLO_REDUCE && x->operand_count == 2 && x->shape->type == WEFT_PRED && hlo_shape_is_scalar(x->shape) &&
         hlo_shape_same_dims(x->operands[0]->shape, &f->shape) && hlo_reducer_op(x->called[0]) == HLO_OR &&
         hlo_is_constant_scalar(x->operands[1], 0);
}

/* Looks at all that a computation of the loop computes. varies[id]: it depends on elements that change. */
static bool look_at(finder *f, const hlo_computation *comp, bool *varies)
{
  HLO_FOREACH(x, comp) {
    int k = element_of(x);
    bool of_elements = false;
    if (x->op == HLO_PARAMETER || (x == comp->root && x->op == HLO_TUPLE)) continue;
    if (x->control->pred_count || x->control->succ_count) return false;
    if (k >= 0) {
      varies[x->id] = changes(f, k) && !hlo_shape_is_scalar(x->shape);
      if (comp == f->cond && stack_of(f->loop, k)) return false;
      continue;
    }
    for (int i = 0; i < x->operand_count; i++) of_elements = of_elements || varies[x->operands[i]->id];
    if (of_elements && comp == f->cond && asks_any(f, x)) {
      if (f->any) return false;
      f->any = x;
      continue;
    }
    if (of_elements ? !is_pointwise(f, x) && !is_within_rows(f, x) && !is_row(f, x) : !is_beside(x)) return false;
    varies[x->id] = of_elements;
    if (hlo_shape_is_scalar(x->shape)) f->scalar_cost += cost_of(x);
    else if (begins_alike(f, x->shape)) f->array_cost += cost_of(x) * (double)row_of(f, x->shape);
    if (of_elements && x->op != HLO_DYNAMIC_UPDATE_SLICE) f->row_work += row_of(f, x->shape);
  }
  return true;
}

/* The condition is a conjunction, one of whose terms may ask for any element. */
static bool is_conjunction(finder *f, const hlo_instr *x)
{
  if (x == f->any) return true;
  return --f->compared > 0 && x->op == HLO_AND && (is_conjunction(f, x->operands[0]) || is_conjunction(f, x->operands[1]));
}

static weft_status *look_inside(finder *f, weft_arena *arena, bool *fits)
{
  const hlo_computation *comps[] = {f->body, f->cond};

  *fits = false;
  for (int c = 0; c < 2; c++) {
    int low, count;
    hlo_id_range(comps[c], &low, &count);
    bool *varies = WEFT_ARENA_ARRAY(arena, bool, count);
    WEFT_TRY_ALLOC(varies);
    if (!look_at(f, comps[c], varies - low)) return NULL;
    for (int k = 0; c == 0 && k < f->body->root->operand_count; k++)
      if (hlo_shape_is_scalar(f->body->root->operands[k]->shape) && varies[f->body->root->operands[k]->id - low])
        return NULL;
  }
  if (f->shape.rank < common_dims(f).rank && f->row_work > MOST_ROW_WORK) return NULL;
  *fits = (!f->any || (!f->has_stacks && is_conjunction(f, f->cond->root))) && f->scalar_cost <= LANES_OF_A_SCALAR * f->array_cost;
  return NULL;
}

/* ---- elements that are done -------------------------------------------------------------------------------------- */

/* Does `x` of the body compute what `y` of the condition does? */
static bool is_same(finder *f, const hlo_instr *x, const hlo_instr *y)
{
  int k = element_of(y);

  if (--f->compared < 0) return false;
  if (k >= 0) return element_of(x) == k;
  if (!hlo_instr_alike(x, y)) return false;
  for (int i = 0; i < x->operand_count; i++)
    if (!is_same(f, x->operands[i], y->operands[i])) return false;
  return true;
}

/* Is `x` false wherever the condition finds that an element is done? */
static bool is_false_when_done(finder *f, const hlo_instr *x)
{
  if ((x->op == HLO_BROADCAST && begins_alike(f, x->operands[0]->shape) && keeps_dims(f, x)) ||
      ((x->op == HLO_RESHAPE || x->op == HLO_BITCAST) && hlo_shape_same_dims(x->operands[0]->shape, &f->shape)))
    return is_false_when_done(f, x->operands[0]); /* the numbers of an element's row are all one */
  return is_same(f, x, f->any->operands[0]) ||
         (x->op == HLO_AND && f->compared > 0 &&
          (is_false_when_done(f, x->operands[0]) || is_false_when_done(f, x->operands[1])));
}

/* Is `x` the old value of element `k` of the state wherever an element is done? */
static bool is_kept_when_done(finder *f, const hlo_instr *x, int k)
{
  if (element_of(x) == k) return true;
  if (x->op == HLO_SELECT && is_kept_when_done(f, x->operands[2], k)) return is_false_when_done(f, x->operands[0]);
  /* the element itself says whether it is done */
  return element_of(f->any->operands[0]) == k && is_false_when_done(f, x);
}

/* Does an array that changes have several numbers of an element? */
static bool has_rows(const finder *f)
{
  const hlo_instr *next = f->body->root;

  for (int k = 0; k < next->operand_count; k++) {
    int rank = next->operands[k]->shape->rank - (stack_of(f->loop, k) != NULL);
    if (changes(f, k) && rank > f->shape.rank) return true;
  }
  return false;
}

weft_status *gen_element_loop_of(weft_arena *arena, const hlo_instr *loop, gen_element_loop *out, bool *is_one)
{
  finder plain = {.loop = loop, .body = loop->called[0], .cond = loop->called[1]};

  *is_one = false;
  if (loop->op != HLO_WHILE || !has_plain_form(&plain)) return NULL;
  plain.shape = common_dims(&plain);
  for (int rank = plain.shape.rank; rank > 0 && !*is_one; rank--) {
    finder f = plain;
    f.shape.rank = rank, f.compared = MOST_COMPARED;
    if (!has_plain_state(&f)) continue;
    WEFT_TRY(look_inside(&f, arena, is_one));
    for (int k = 0; *is_one && f.any && k < f.body->root->operand_count; k++)
      if (changes(&f, k) && !hlo_shape_is_scalar(f.body->root->operands[k]->shape))
        *is_one = is_kept_when_done(&f, f.body->root->operands[k], k);
    *out = (gen_element_loop){loop, f.shape, rank < plain.shape.rank || has_rows(&f), f.any};
  }
  return NULL;
}

weft_status *gen_element_loop_in(weft_arena *arena, const hlo_computation *comp, gen_element_loop *out, bool *is_one)
{
  const hlo_instr *loop = gen_small_loop_of(comp), *root = comp->root;
  int results = root->op == HLO_TUPLE ? root->operand_count : 1;

  *is_one = false;
  if (!loop || results > HLO_MAX_RANK) return NULL;
  WEFT_TRY(gen_element_loop_of(arena, loop, out, is_one));
  for (int r = 0; *is_one && r < results; r++) {
    const hlo_instr *result = root->op == HLO_TUPLE ? root->operands[r] : root;
    *is_one = gen_element_loop_changes(out, (int)result->u.tuple_index) && !hlo_shape_is_scalar(result->shape);
  }
  return NULL;
}
