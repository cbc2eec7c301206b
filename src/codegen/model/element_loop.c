/* codegen/model/element_loop.c -- loops that one kernel can hold, and those whose elements could run by themselves. */
#include <config.h>

#include "base/arena.h"
#include "codegen/model/strategy.h"

enum {
  LEAST_ELEMENTS = 8,       /* fewer do not fill a vector */
  MOST_STATE = 48,          /* numbers of an element's state that change: each takes a register */
  MOST_ROW = 16,            /* numbers of one array that belong to an element */
  MOST_ROW_WORK = 1200,     /* numbers that a round computes of an element, if elements are rows */
  MOST_INSTRUCTIONS = 600,  /* of body and condition */
  MOST_ROW_INSTRUCTIONS = 300, /* the same, if elements are rows: emitters call each other for operations that move */
  MOST_COMPARED = 2000,     /* instructions that are visited, for a predicate that the condition and the body compute */
  LANES_OF_A_SCALAR = 8,    /* what a scalar costs is paid once a vector */
  MOST_DEPTH = 8,           /* of the arithmetic on a counter */
};

const hlo_instr *gen_small_loop_of(const hlo_computation *comp)
{
  const hlo_instr *root = comp->root, *first = root->op == HLO_TUPLE && root->operand_count ? root->operands[0] : root;
  const hlo_instr *loop = first->op == HLO_GET_TUPLE_ELEMENT ? first->operands[0] : NULL;

  if (!loop || loop->op != HLO_WHILE || loop->operands[0]->op != HLO_TUPLE || loop->called[0]->root->op != HLO_TUPLE)
    return NULL;
  for (int r = 0; root->op == HLO_TUPLE && r < root->operand_count; r++)
    if (root->operands[r]->op != HLO_GET_TUPLE_ELEMENT || root->operands[r]->operands[0] != loop) return NULL;
  return loop;
}

int gen_loop_result_of(const hlo_computation *comp, int k)
{
  const hlo_instr *root = comp->root;

  if (root->op != HLO_TUPLE) return root->u.tuple_index == k ? 0 : -1;
  for (int r = 0; r < root->operand_count; r++)
    if (root->operands[r]->u.tuple_index == k) return r;
  return -1;
}

int gen_state_element(const hlo_instr *x)
{
  const hlo_instr *from = x->op == HLO_GET_TUPLE_ELEMENT ? x->operands[0] : NULL;

  return from && from->op == HLO_PARAMETER ? (int)x->u.tuple_index : -1;
}

static bool changes_element(const hlo_instr *loop, int k)
{
  return gen_state_element(loop->called[0]->root->operands[k]) != k;
}

bool gen_element_loop_changes(const gen_element_loop *l, int k) { return changes_element(l->loop, k); }

/* An array has `elements.rank` neighbouring dimensions that number the elements; those before and behind them number
 * what belongs to one element. A place is the first of these dimensions. */
enum { NOWHERE = -1 };

typedef struct finder {
  const hlo_instr *loop;
  const hlo_computation *body, *cond;
  hlo_shape elements;       /* dimensions that all arrays that change have */
  int8_t *where;            /* by element of the state: the place in what changes (of a stack, in its rows) */
  const hlo_instr *any;     /* in the condition: does any element go on? NULL: the condition asks for scalars alone */
  bool has_stacks, has_rows;
  double scalar_cost, array_cost; /* of an element */
  int64_t row_work;
  int compared;
} finder;

static bool is_at(const finder *f, const hlo_shape *shape, int place)
{
  if (!hlo_shape_is_array(shape) || place < 0 || shape->rank < place + f->elements.rank) return false;
  for (int d = 0; d < f->elements.rank; d++)
    if (shape->dims[place + d] != f->elements.dims[d]) return false;
  return true;
}

/* How many numbers of such an array belong to one element. */
static int64_t row_of(const finder *f, const hlo_shape *shape)
{
  return hlo_shape_elems(shape) / hlo_shape_elems(&f->elements);
}

/* Numbers of the elements, few of each, at that place? */
static bool has_elements(const finder *f, const hlo_shape *shape, int place)
{
  return is_at(f, shape, place) && row_of(f, shape) >= 1 && row_of(f, shape) <= MOST_ROW;
}

/* The place in an array of the state: the first one, if there are several. */
static int place_in(const finder *f, const hlo_shape *shape)
{
  for (int place = 0; place + f->elements.rank <= shape->rank; place++)
    if (has_elements(f, shape, place)) return place;
  return NOWHERE;
}

static bool changes(const finder *f, int k) { return changes_element(f->loop, k); }

static const hlo_instr *stack_of(const hlo_instr *loop, int k)
{
  const hlo_instr *next = loop->called[0]->root->operands[k];
  bool is_stack = next->op == HLO_DYNAMIC_UPDATE_SLICE && gen_state_element(next->operands[0]) == k &&
                  next->operand_count == 2 + next->shape->rank && next->operands[0]->user_count == 1 &&
                  next->user_count == 1;

  return is_stack ? next : NULL;
}

const hlo_instr *gen_element_loop_stack(const gen_element_loop *l, int k) { return stack_of(l->loop, k); }

/* Is `x` a constant? Then *out is its value. */
static bool is_integer(const hlo_instr *x, int64_t *out)
{
  if (x->op != HLO_CONSTANT || !hlo_shape_is_scalar(x->shape) || !weft_dtype_is_integer(x->shape->type)) return false;
  return *out = hlo_literal_get_s64(x->u.literal, 0), true;
}

static bool is_small(int64_t v) { return v >= -INT32_MAX && v <= INT32_MAX; }

/* Is `x` factor * counter + offset, where the counter is an element of the state that begins at 0 and grows by 1? */
static bool counts_rounds(const finder *f, const hlo_instr *x, int64_t *factor, int64_t *offset, int depth)
{
  int k = gen_state_element(x);
  int64_t a, b, c, d, value;

  if (k >= 0) {
    const hlo_instr *next = f->body->root->operands[k];
    *factor = 1, *offset = 0;
    return is_integer(f->loop->operands[0]->operands[k], &value) && value == 0 && next->op == HLO_ADD &&
           ((gen_state_element(next->operands[0]) == k && is_integer(next->operands[1], &value)) ||
            (gen_state_element(next->operands[1]) == k && is_integer(next->operands[0], &value))) &&
           value == 1;
  }
  if (is_integer(x, offset)) return *factor = 0, true;
  if ((x->op != HLO_ADD && x->op != HLO_SUBTRACT) || depth == 0) return false;
  if (!counts_rounds(f, x->operands[0], &a, &b, depth - 1) || !counts_rounds(f, x->operands[1], &c, &d, depth - 1))
    return false;
  if (!is_small(a) || !is_small(b) || !is_small(c) || !is_small(d)) return false;
  *factor = x->op == HLO_ADD ? a + c : a - c;
  *offset = x->op == HLO_ADD ? b + d : b - d;
  return true;
}

/* Are there exactly `rounds` rounds, counted by a counter as above? */
static bool makes_rounds(const finder *f, int64_t rounds)
{
  const hlo_instr *x = f->cond->root;
  int64_t factor, offset, most;

  return x->op == HLO_COMPARE && x->u.compare.direction == HLO_LT && is_integer(x->operands[1], &most) &&
         most == rounds && gen_state_element(x->operands[0]) >= 0 &&
         counts_rounds(f, x->operands[0], &factor, &offset, 0);
}

static hlo_shape behind_first(const hlo_shape *shape)
{
  hlo_shape rest = *shape;

  rest.rank--, rest.dims++;
  return rest;
}

/* Do the rounds write all rows of the stack, each with numbers of the elements? Notes their place. */
static bool is_stack(finder *f, int k, const hlo_instr *update)
{
  const hlo_shape *stack = update->shape, *row = update->operands[1]->shape;
  int64_t factor, offset;

  if (stack->rank == 0 || row->dims[0] != 1) return false;
  hlo_shape of_row = behind_first(row), of_stack = behind_first(stack);
  if (!hlo_shape_same_dims(&of_row, &of_stack)) return false;
  f->where[k] = (int8_t)place_in(f, &of_row);
  return f->where[k] >= 0 && makes_rounds(f, stack->dims[0]) &&
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

/* The array that changes and has the fewest dimensions; NULL: there is none. */
static const hlo_shape *plainest(const finder *f)
{
  const hlo_instr *init = f->loop->operands[0];
  const hlo_shape *least = NULL;

  for (int k = 0; k < init->operand_count; k++) {
    const hlo_shape *shape = init->operands[k]->shape;
    if (!changes(f, k) || hlo_shape_is_scalar(shape) || stack_of(f->loop, k)) continue;
    if (!least || shape->rank < least->rank) least = shape;
  }
  return least;
}

static bool has_plain_state(finder *f)
{
  const hlo_instr *init = f->loop->operands[0];
  int64_t numbers = 0;

  for (int k = 0; k < init->operand_count; k++) {
    const hlo_instr *update = stack_of(f->loop, k);
    const hlo_shape *shape = update ? update->operands[1]->shape : init->operands[k]->shape;
    f->where[k] = NOWHERE;
    if (!changes(f, k) || hlo_shape_is_scalar(init->operands[k]->shape)) continue;
    if (update && !is_stack(f, k, update)) return false;
    if (!update) f->where[k] = (int8_t)place_in(f, shape);
    if (f->where[k] < 0) return false;
    f->has_rows = f->has_rows || shape->rank - (update != NULL) > f->elements.rank;
    f->has_stacks = f->has_stacks || update;
    numbers += update ? 0 : row_of(f, shape);
  }
  if (f->has_rows && f->body->instr_count + f->cond->instr_count > MOST_ROW_INSTRUCTIONS) return false;
  return numbers <= MOST_STATE;
}

/* ---- what is computed in a round --------------------------------------------------------------------------------- */

static double cost_of(const hlo_instr *x)
{
  if (hlo_opcode_is_transcendental(x->op)) return 20;
  return x->op == HLO_DIVIDE || x->op == HLO_REMAINDER ? 4 : hlo_opcode_is_elementwise(x->op) ? 1 : 0;
}

static bool is_pointwise(const hlo_instr *x)
{
  return hlo_opcode_is_elementwise(x->op) ||
         (x->op == HLO_BITCAST_CONVERT && hlo_shape_same_dims(x->shape, x->operands[0]->shape));
}

/* The place in the result of a reshape: as many numbers lie before and behind. */
static int place_after_reshape(const finder *f, const hlo_instr *x, int place)
{
  const hlo_shape *in = x->operands[0]->shape, *out = x->shape;
  int64_t before = 1, sum = 1;

  for (int d = 0; d < place; d++) before *= in->dims[d];
  for (int d = 0; d + f->elements.rank <= out->rank; sum *= out->dims[d++])
    if (sum == before && is_at(f, out, d) && row_of(f, in) == row_of(f, out)) return d;
  return NOWHERE;
}

/* Dimension place + i of the operand is dimension q + i of the result, for the dimensions that number the elements: q.
 * `of_result`: x->dims says for the dimensions of the operand which they are in the result; else the other way
 * round. */
static int place_after_move(const finder *f, const hlo_instr *x, int place, bool of_result)
{
  int q = NOWHERE;

  for (int i = 0; i < f->elements.rank; i++) {
    int to = of_result ? (int)x->dims.v[place + i] : 0;
    while (!of_result && x->dims.v[to] != place + i) to++;
    if (i == 0) q = to;
    if (to != q + i) return NOWHERE;
  }
  return q;
}

static bool is_among(const finder *f, int64_t dim, int place) { return dim >= place && dim < place + f->elements.rank; }

/* The place in the result of an operation that reads, for an element's numbers, numbers of the same element alone, at
 * indices that are known. `place`: in its operands. NOWHERE: it is none. */
static int place_after(const finder *f, const hlo_instr *x, int place)
{
  int q = place;

  if (x->called_count > 0 && x->op != HLO_REDUCE) return NOWHERE;
  switch (x->op) {
  case HLO_RESHAPE: case HLO_BITCAST:
    if (x->shape->type != x->operands[0]->shape->type) return NOWHERE;
    q = place_after_reshape(f, x, place);
    break;
  case HLO_BROADCAST: q = place_after_move(f, x, place, true); break;
  case HLO_TRANSPOSE: q = place_after_move(f, x, place, false); break;
  case HLO_CONCATENATE:
    if (is_among(f, x->dims.v[0], place)) return NOWHERE;
    for (int i = 0; i < x->operand_count; i++)
      if (!is_at(f, x->operands[i]->shape, place)) return NOWHERE;
    break;
  case HLO_SLICE: break; /* the dimensions that number the elements are as long as before */
  case HLO_PAD:
    for (int d = 0; d < f->elements.rank; d++) {
      const hlo_pad_dim *p = &x->u.pad.dims[place + d];
      if (p->low || p->high || p->interior) return NOWHERE;
    }
    break;
  case HLO_REVERSE: case HLO_REDUCE:
    for (int i = 0; i < x->dims.count; i++) {
      if (is_among(f, x->dims.v[i], place)) return NOWHERE;
      q -= x->op == HLO_REDUCE && x->dims.v[i] < place;
    }
    if (x->op == HLO_REVERSE) break;
    if (x->operand_count != 2 || hlo_reducer_op(x->called[0]) == HLO_OPCODE_COUNT || !has_elements(f, x->shape, q) ||
        row_of(f, x->operands[0]->shape) > GEN_UNROLLED_REDUCE * row_of(f, x->shape))
      return NOWHERE;
    break;
  default:
    if (!is_pointwise(x)) return NOWHERE;
    for (int i = 0; i < x->operand_count; i++)
      if (!hlo_shape_is_scalar(x->operands[i]->shape) && !hlo_shape_same_dims(x->operands[i]->shape, x->shape))
        return NOWHERE;
  }
  return has_elements(f, x->shape, q) ? q : NOWHERE;
}

/* An operation on scalars, and on arrays that the loop does not change. */
static bool is_beside(const hlo_instr *x)
{
  if (!hlo_shape_is_array(x->shape) || hlo_shape_is_dynamic(x->shape) || x->called_count > 0) return false;
  switch (x->op) {
  case HLO_CONSTANT: case HLO_BROADCAST: case HLO_IOTA: case HLO_RESHAPE: case HLO_BITCAST: case HLO_SLICE:
  case HLO_TRANSPOSE: case HLO_REVERSE: case HLO_DYNAMIC_SLICE: return true;
  default: return is_pointwise(x);
  }
}

/* The stack that `x` writes a row of; -1: it is none. */
static int writes_row(const finder *f, const hlo_instr *x)
{
  int k = x->op == HLO_DYNAMIC_UPDATE_SLICE ? gen_state_element(x->operands[0]) : -1;

  return k >= 0 && stack_of(f->loop, k) == x ? k : -1;
}

/* Does `x` reduce elements to one that is true if any of them is? */
static bool asks_any(const finder *f, const hlo_instr *x)
{
  return x->op == HLO_REDUCE && x->operand_count == 2 && x->shape->type == WEFT_PRED && hlo_shape_is_scalar(x->shape) &&
         hlo_shape_same_dims(x->operands[0]->shape, &f->elements) && hlo_reducer_op(x->called[0]) == HLO_OR &&
         hlo_is_constant_scalar(x->operands[1], 0);
}

/* The place of elements that change in the operands of `x`; NOWHERE: none of them has any. *agree: it is the same in
 * all of them. */
static int place_of_operands(const hlo_instr *x, const int8_t *places, bool *agree)
{
  int place = NOWHERE;

  *agree = true;
  for (int i = 0; i < x->operand_count; i++) {
    int other = places[x->operands[i]->id];
    if (place >= 0 && other >= 0) *agree = *agree && place == other;
    place = WEFT_MAX(place, other);
  }
  return place;
}

/* Looks at all that a computation of the loop computes. places[id]: of elements that change. */
static bool look_at(finder *f, const hlo_computation *comp, int8_t *places)
{
  HLO_FOREACH(x, comp) {
    int k = gen_state_element(x), stack = writes_row(f, x), place;
    bool agree;
    places[x->id] = NOWHERE;
    if (x->op == HLO_PARAMETER || (x == comp->root && x->op == HLO_TUPLE)) continue;
    if (x->control->pred_count || x->control->succ_count) return false;
    if (k >= 0) {
      const hlo_instr *update = stack_of(f->loop, k);
      if (update && x != update->operands[0]) return false; /* another one that reads the stack */
      places[x->id] = update ? NOWHERE : f->where[k];
      continue;
    }
    if (stack >= 0) { /* a row that does not change has its place, too */
      place = places[x->operands[1]->id];
      if (place >= 0 && place != f->where[stack] + 1) return false;
      continue;
    }
    place = place_of_operands(x, places, &agree);
    if (place >= 0 && comp == f->cond && asks_any(f, x)) {
      if (f->any) return false;
      f->any = x;
      continue;
    }
    if (place >= 0) {
      place = agree ? place_after(f, x, place) : NOWHERE;
      if (place < 0) return false;
      places[x->id] = (int8_t)place;
      f->row_work += row_of(f, x->shape);
    } else if (!is_beside(x)) {
      return false;
    }
    if (hlo_shape_is_scalar(x->shape)) f->scalar_cost += cost_of(x);
    else if (place_in(f, x->shape) >= 0) f->array_cost += cost_of(x) * (double)row_of(f, x->shape);
  }
  return true;
}

/* The condition is a conjunction, one of whose terms may ask for any element. */
static bool is_conjunction(finder *f, const hlo_instr *x)
{
  if (x == f->any) return true;
  return --f->compared > 0 && x->op == HLO_AND &&
         (is_conjunction(f, x->operands[0]) || is_conjunction(f, x->operands[1]));
}

static weft_status *look_inside(finder *f, weft_arena *arena, bool *fits)
{
  const hlo_computation *comps[] = {f->body, f->cond};
  const hlo_instr *next = f->body->root;

  *fits = false;
  for (int c = 0; c < 2; c++) {
    int low, count;
    hlo_id_range(comps[c], &low, &count);
    int8_t *places = WEFT_ARENA_ARRAY(arena, int8_t, count);
    WEFT_TRY_ALLOC(places);
    places -= low;
    if (!look_at(f, comps[c], places)) return NULL;
    for (int k = 0; c == 0 && k < next->operand_count; k++) {
      int place = places[next->operands[k]->id], stack = writes_row(f, next->operands[k]);
      if (changes(f, k) && place >= 0 && place != f->where[k]) return NULL; /* of a scalar: nowhere */
      if (stack >= 0 && stack != k) return NULL;
    }
  }
  if (f->has_rows && f->row_work > MOST_ROW_WORK) return NULL;
  *fits = (!f->any || (!f->has_stacks && is_conjunction(f, f->cond->root))) &&
          f->scalar_cost <= LANES_OF_A_SCALAR * f->array_cost;
  return NULL;
}

/* ---- elements that are done -------------------------------------------------------------------------------------- */

/* Does `x` of the condition stay as it is while the element does? Scalars of the state go on. */
static bool stays(finder *f, const hlo_instr *x)
{
  int k = gen_state_element(x);

  if (--f->compared < 0) return false;
  if (k >= 0) return !changes(f, k) || !hlo_shape_is_scalar(x->shape);
  for (int i = 0; i < x->operand_count; i++)
    if (!stays(f, x->operands[i])) return false;
  return true;
}

/* Does `x` of the body compute what `y` of the condition does? */
static bool is_same(finder *f, const hlo_instr *x, const hlo_instr *y)
{
  int k = gen_state_element(y);

  if (--f->compared < 0) return false;
  if (k >= 0) return gen_state_element(x) == k;
  if (!hlo_instr_alike(x, y)) return false;
  for (int i = 0; i < x->operand_count; i++)
    if (!is_same(f, x->operands[i], y->operands[i])) return false;
  return true;
}

/* Is `x` false wherever the condition finds that an element is done? */
static bool is_false_when_done(finder *f, const hlo_instr *x)
{
  bool spreads = x->op == HLO_BROADCAST || x->op == HLO_RESHAPE || x->op == HLO_BITCAST;

  if (spreads && hlo_shape_same_dims(x->operands[0]->shape, &f->elements)) /* one number for all of an element */
    return is_false_when_done(f, x->operands[0]);
  return is_same(f, x, f->any->operands[0]) ||
         (x->op == HLO_AND && f->compared > 0 &&
          (is_false_when_done(f, x->operands[0]) || is_false_when_done(f, x->operands[1])));
}

/* Is `x` the old value of element `k` of the state wherever an element is done? */
static bool is_kept_when_done(finder *f, const hlo_instr *x, int k)
{
  if (gen_state_element(x) == k) return true;
  if (x->op == HLO_SELECT && is_kept_when_done(f, x->operands[2], k)) return is_false_when_done(f, x->operands[0]);
  /* the element itself says whether it is done */
  return gen_state_element(f->any->operands[0]) == k && is_false_when_done(f, x);
}

weft_status *gen_element_loop_of(weft_arena *arena, const hlo_instr *loop, gen_element_loop *out, bool *is_one)
{
  finder plain = {.loop = loop, .body = loop->called[0], .cond = loop->called[1], .compared = MOST_COMPARED};
  const hlo_shape *least;

  *is_one = false;
  if (!has_plain_form(&plain) || !(least = plainest(&plain))) return NULL;
  plain.where = WEFT_ARENA_ARRAY(arena, int8_t, loop->operands[0]->operand_count);
  WEFT_TRY_ALLOC(plain.where);
  for (int rank = least->rank; rank > 0 && !*is_one; rank--)
    for (int place = 0; place + rank <= least->rank && !*is_one; place++) {
      finder f = plain;
      f.elements = *least, f.elements.rank = rank, f.elements.dims += place;
      if (hlo_shape_elems(&f.elements) < LEAST_ELEMENTS || !has_plain_state(&f)) continue;
      WEFT_TRY(look_inside(&f, arena, is_one));
      *is_one = *is_one && (!f.any || stays(&f, f.any->operands[0]));
      for (int k = 0; *is_one && f.any && k < f.body->root->operand_count; k++)
        if (changes(&f, k) && !hlo_shape_is_scalar(f.body->root->operands[k]->shape))
          *is_one = is_kept_when_done(&f, f.body->root->operands[k], k);
      *out = (gen_element_loop){loop, f.elements, f.where, f.has_rows, f.any};
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
