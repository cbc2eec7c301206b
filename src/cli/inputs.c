/* cli/inputs.c -- pseudo-random inputs whose values suit the program. */
#include <config.h>

#include <math.h>
#include <string.h>

#include "cli/program.h"

/* What is known about the use of an input. */
typedef struct use_facts {
  int64_t bound;  /* the input is an index and must stay below this; INT64_MAX: it is no index */
  bool positive;  /* the input flows into log, sqrt, rsqrt or a divisor */
} use_facts;

/* One step of the walk through the program: the value of leaf `leaf` of `instr`. */
typedef struct place {
  const hlo_instr *instr;
  int leaf;
} place;

typedef struct walk {
  weft_arena *arena;
  place *stack;
  int depth, capacity;
  int *seen; /* by instruction id: the number of the walk that last visited the instruction, for values of one leaf */
  int number;
  use_facts facts;
} walk;

enum { MAX_VISITS = 20000 }; /* of the walk of one input: distant uses say little about its values */

static weft_status *push(walk *w, const hlo_instr *instr, int leaf)
{
  if (w->depth == w->capacity) {
    int capacity = w->capacity ? w->capacity * 2 : 256;
    place *grown = WEFT_ARENA_ARRAY(w->arena, place, capacity);
    WEFT_TRY_ALLOC(grown);
    if (w->depth) memcpy(grown, w->stack, (size_t)w->depth * sizeof *grown);
    w->stack = grown;
    w->capacity = capacity;
  }
  w->stack[w->depth++] = (place){instr, leaf};
  return NULL;
}

static void note_bound(walk *w, int64_t bound)
{
  if (bound < w->facts.bound) w->facts.bound = WEFT_MAX(bound, 1);
}

/* The largest start index that keeps every window of `sizes` inside `operand`, over the mapped dimensions. */
static int64_t start_bound(const hlo_shape *operand, const int64_t *sizes, hlo_ints map)
{
  int64_t bound = INT64_MAX;

  for (int i = 0; i < map.count; i++) bound = WEFT_MIN(bound, operand->dims[map.v[i]] - sizes[map.v[i]] + 1);
  return bound;
}

static int64_t scatter_bound(const hlo_instr *scatter)
{
  int64_t bound = INT64_MAX;
  hlo_ints map = scatter->u.scatter->scatter_dims_to_operand_dims;

  for (int i = 0; i < map.count; i++) bound = WEFT_MIN(bound, scatter->operands[0]->shape->dims[map.v[i]]);
  return bound;
}

/* Follows the value of operand `index` of `user` (its leaf `leaf`). */
static weft_status *follow(walk *w, const hlo_instr *user, int index, int leaf)
{
  bool integer = weft_dtype_is_integer(hlo_shape_leaf(user->operands[index]->shape, leaf)->type);

  switch (user->op) {
  case HLO_GATHER:
    if (index == 1)
      note_bound(w,
                 start_bound(user->operands[0]->shape, user->u.gather->slice_sizes.v, user->u.gather->start_index_map));
    return index == 0 ? push(w, user, 0) : NULL;
  case HLO_DYNAMIC_SLICE:
    if (index >= 1 && index - 1 < user->operands[0]->shape->rank)
      note_bound(w, user->operands[0]->shape->dims[index - 1] - user->u.slice_sizes.v[index - 1] + 1);
    return index == 0 ? push(w, user, 0) : NULL;
  case HLO_DYNAMIC_UPDATE_SLICE:
    if (index >= 2 && index - 2 < user->shape->rank)
      note_bound(w, user->shape->dims[index - 2] - user->operands[1]->shape->dims[index - 2] + 1);
    return index < 2 ? push(w, user, 0) : NULL;
  case HLO_SCATTER:
    if (index == (user->operand_count - 1) / 2) note_bound(w, scatter_bound(user));
    return NULL;
  case HLO_SET_DIMENSION_SIZE:
    if (index == 1) note_bound(w, user->shape->dims[user->dims.v[0]] + 1);
    return NULL;
  case HLO_DYNAMIC_RESHAPE:
    if (index > 0) note_bound(w, user->shape->dims[index - 1] + 1);
    return NULL;
  case HLO_LOG:
  case HLO_SQRT:
  case HLO_RSQRT: w->facts.positive = true; return NULL;
  case HLO_DIVIDE:
    if (index == 1) w->facts.positive = true;
    return index == 0 && integer ? push(w, user, 0) : NULL;
  case HLO_TUPLE: return push(w, user, hlo_shape_leaf_offset(user->shape, index) + leaf);
  case HLO_GET_TUPLE_ELEMENT: {
    int first = hlo_shape_leaf_offset(user->operands[0]->shape, user->u.tuple_index);
    int count = hlo_shape_leaf_count(user->shape);
    return leaf >= first && leaf < first + count ? push(w, user, leaf - first) : NULL;
  }
  case HLO_CALL:
  case HLO_FUSION: return push(w, user->called[0]->params[index], leaf);
  case HLO_WHILE:
    WEFT_TRY(push(w, user->called[1]->params[0], leaf));
    WEFT_TRY(push(w, user->called[0]->params[0], leaf));
    return push(w, user, leaf);
  case HLO_CONDITIONAL:
    return index >= 1 && index - 1 < user->called_count ? push(w, user->called[index - 1]->params[0], leaf) : NULL;
  case HLO_ADD:
  case HLO_MAXIMUM:
    /* adding a small number keeps the sign; index arithmetic roughly keeps the size */
    return integer || hlo_is_constant_scalar(user->operands[1 - index], 0) ||
               user->operands[1 - index]->op == HLO_CONSTANT || user->operands[1 - index]->op == HLO_BROADCAST
             ? push(w, user, 0)
             : NULL;
  case HLO_SELECT: return index > 0 ? push(w, user, 0) : NULL;
  case HLO_BROADCAST:
  case HLO_RESHAPE:
  case HLO_TRANSPOSE:
  case HLO_SLICE:
  case HLO_COPY:
  case HLO_CONVERT:
  case HLO_BITCAST:
  case HLO_CONCATENATE:
  case HLO_OPT_BARRIER:
  case HLO_CLAMP:
  case HLO_PAD:
  case HLO_REVERSE: return push(w, user, leaf);
  default: return NULL;
  }
}

/* Visits all values that are copied from leaf `leaf` of parameter `param` or are computed from it by simple
 * operations. */
static weft_status *find_facts(walk *w, const hlo_instr *param, int leaf)
{
  int visits = 0;

  w->number++;
  w->depth = 0;
  w->facts = (use_facts){.bound = INT64_MAX};
  WEFT_TRY(push(w, param, leaf));
  while (w->depth && visits++ < MAX_VISITS) {
    place at = w->stack[--w->depth];
    bool single = !hlo_shape_is_tuple(at.instr->shape);
    if (single && w->seen[at.instr->id] == w->number) continue;
    if (single) w->seen[at.instr->id] = w->number;
    for (int i = 0; i < at.instr->user_count; i++)
      for (int j = 0; j < at.instr->users[i]->operand_count; j++)
        if (at.instr->users[i]->operands[j] == at.instr) WEFT_TRY(follow(w, at.instr->users[i], j, at.leaf));
  }
  return NULL;
}

static cli_range range_of(const hlo_shape *shape, use_facts facts)
{
  double fan_in = 1;

  if (shape->type == WEFT_PRED) return (cli_range){0, 2};
  if (weft_dtype_is_integer(shape->type)) {
    double top = ldexp(1, weft_dtype_bits(shape->type) - weft_dtype_is_signed(shape->type));
    double high = facts.bound == INT64_MAX ? 100 : (double)facts.bound;
    return (cli_range){0, WEFT_MIN(high, top)};
  }
  if (facts.positive) return (cli_range){0.5, 1.5};
  /* A weight [.., n] is summed over all dimensions but its last: the values are scaled so that the sum stays about
   * as large as its input. */
  for (int i = 0; i + 1 < shape->rank; i++) fan_in *= (double)WEFT_MAX(shape->dims[i], 1);
  return (cli_range){-sqrt(3 / fan_in), sqrt(3 / fan_in)};
}

weft_status *cli_input_ranges(const hlo_module *module, weft_arena *arena, cli_range **out_ranges)
{
  walk w = {.arena = arena};
  int count = 0, at = 0;

  for (int i = 0; i < module->entry->param_count; i++) count += hlo_shape_leaf_count(module->entry->params[i]->shape);
  *out_ranges = WEFT_ARENA_ARRAY(arena, cli_range, count);
  w.seen = WEFT_ARENA_ARRAY(arena, int, module->next_id);
  WEFT_TRY_ALLOC(*out_ranges);
  WEFT_TRY_ALLOC(w.seen);
  for (int i = 0; i < module->entry->param_count; i++) {
    const hlo_instr *param = module->entry->params[i];
    int leaves = hlo_shape_leaf_count(param->shape);
    for (int leaf = 0; leaf < leaves; leaf++) {
      WEFT_TRY(find_facts(&w, param, leaf));
      (*out_ranges)[at++] = range_of(hlo_shape_leaf(param->shape, leaf), w.facts);
    }
  }
  return NULL;
}

/* The finaliser of splitmix64: a bijection of 64-bit words that leaves no visible structure. */
static uint64_t scramble(uint64_t x)
{
  x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
  return x ^ x >> 31;
}

static double uniform(uint64_t key, int64_t i, cli_range range)
{
  uint64_t bits = scramble(key + (uint64_t)i * UINT64_C(0x9e3779b97f4a7c15));

  return range.low + (double)(bits >> 11) * 0x1p-53 * (range.high - range.low);
}

void cli_fill_input(const hlo_shape *shape, cli_range range, uint64_t seed, int input, void *data)
{
  hlo_literal view = {.shape = shape, .data = data};
  int64_t count = hlo_shape_elems(shape);
  uint64_t key = scramble(seed * UINT64_C(0x632be59bd9b4e019) + (uint64_t)input);

  if (!hlo_shape_is_array(shape)) return;
  switch (shape->type) {
  case WEFT_F32:
    for (int64_t i = 0; i < count; i++) ((float *)data)[i] = (float)uniform(key, i, range);
    break;
  case WEFT_BF16: /* the two types that large inputs have; all others take the general way */
    for (int64_t i = 0; i < count; i++)
      ((uint16_t *)data)[i] = (uint16_t)weft_float_encode(WEFT_BF16, (float)uniform(key, i, range));
    break;
  default:
    for (int64_t i = 0; i < count; i++) {
      double value = uniform(key, i, range);
      if (weft_dtype_is_integer(shape->type) || shape->type == WEFT_PRED)
        hlo_literal_set_s64(&view, i, (int64_t)floor(value));
      else hlo_literal_set_f64(&view, i, value, weft_dtype_is_complex(shape->type) ? uniform(~key, i, range) : 0);
    }
  }
}
