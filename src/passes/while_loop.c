/* passes/while_loop.c -- a while whose state is a flat view, element by element (while_loop.h). */
#include <config.h>

#include "passes/while_loop.h"

#include <string.h>

/* A tuple of all elements of `source`, placed behind it; `gte` holds the elements or receives them. */
static weft_status *add_whole(hlo_instr *source, hlo_instr **gte, hlo_instr **out)
{
  pass_build b = {.comp = source->parent, .before = source->next};
  int count = source->shape->rank;

  for (int i = 0; i < count; i++)
    if (!gte[i]) gte[i] = pb_gte(&b, source, i);
  while (b.before && b.before->op == HLO_GET_TUPLE_ELEMENT && b.before->operands[0] == source)
    b.before = b.before->next;
  *out = pb_tuple(&b, count, gte);
  return pass_build_finish(&b);
}

/* Users of a tuple value become users of its elements; gte[i] receives element i if it has a use. */
static weft_status *use_elements(hlo_instr *source, weft_arena *arena, hlo_instr **gte)
{
  int count = source->user_count;
  hlo_instr **users = weft_arena_memdup(arena, source->users, (size_t)count * sizeof *users), *whole = NULL;

  WEFT_TRY_ALLOC(users);
  for (int i = 0; i < count; i++) {
    hlo_instr *user = users[i];
    if (user->op != HLO_GET_TUPLE_ELEMENT) continue;
    if (!gte[user->u.tuple_index]) {
      gte[user->u.tuple_index] = user;
      hlo_move_before(user, source->next);
    } else {
      WEFT_TRY(hlo_replace(user, gte[user->u.tuple_index]));
    }
  }
  for (int i = 0; i < count; i++) {
    if (!users[i]->parent || users[i]->op == HLO_GET_TUPLE_ELEMENT) continue;
    if (!whole) WEFT_TRY(add_whole(source, gte, &whole));
    for (int k = 0; k < users[i]->operand_count; k++)
      if (users[i]->operands[k] == source) WEFT_TRY(hlo_set_operand(users[i], k, whole));
  }
  if (source->parent->root == source) {
    if (!whole) WEFT_TRY(add_whole(source, gte, &whole));
    source->parent->root = whole;
  }
  return NULL;
}

/* `value`, a tuple made in any way, as a tuple instruction before `before` (NULL: at the end of its computation). */
static weft_status *as_tuple(hlo_instr *value, hlo_instr *before, hlo_instr **out)
{
  pass_build b = {.comp = value->parent, .before = before};
  hlo_instr **elements;

  *out = value;
  if (value->op == HLO_TUPLE) return NULL;
  elements = WEFT_ARENA_ARRAY(&value->parent->module->arena, hlo_instr *, value->shape->rank);
  WEFT_TRY_ALLOC(elements);
  for (int i = 0; i < value->shape->rank; i++) elements[i] = pb_gte(&b, value, i);
  *out = pb_tuple(&b, value->shape->rank, elements);
  return pass_build_finish(&b);
}

weft_status *while_open(hlo_instr *loop, weft_arena *arena, while_loop *w, bool *out_is_tuple)
{
  hlo_instr *tuple;

  *w = (while_loop){.loop = loop, .body = loop->called[0], .cond = loop->called[1], .count = loop->shape->rank};
  *out_is_tuple = hlo_shape_is_tuple(loop->shape);
  if (!*out_is_tuple) return NULL;
  w->in_body = WEFT_ARENA_ARRAY(arena, hlo_instr *, w->count);
  w->in_cond = WEFT_ARENA_ARRAY(arena, hlo_instr *, w->count);
  w->after = WEFT_ARENA_ARRAY(arena, hlo_instr *, w->count);
  WEFT_TRY_ALLOC(w->in_body);
  WEFT_TRY_ALLOC(w->in_cond);
  WEFT_TRY_ALLOC(w->after);
  WEFT_TRY(use_elements(hlo_parameter(w->body, 0), arena, w->in_body));
  WEFT_TRY(use_elements(hlo_parameter(w->cond, 0), arena, w->in_cond));
  WEFT_TRY(use_elements(loop, arena, w->after));
  WEFT_TRY(as_tuple(loop->operands[0], loop, &tuple));
  if (tuple->user_count > 1 || tuple == tuple->parent->root) /* a tuple of the loop's own, which may be edited */
    WEFT_TRY(hlo_add_tuple(loop->parent, loop, tuple->operand_count, tuple->operands, &tuple));
  WEFT_TRY(hlo_set_operand(loop, 0, tuple));
  WEFT_TRY(as_tuple(w->body->root, NULL, &w->body->root));
  return NULL;
}

weft_status *while_in_body(while_loop *w, int i, hlo_instr **out)
{
  hlo_instr *param = hlo_parameter(w->body, 0);

  if (!w->in_body[i]) WEFT_TRY(hlo_add_gte(w->body, param->next, param, i, &w->in_body[i]));
  *out = w->in_body[i];
  return NULL;
}

static weft_status *set_state_shape(while_loop *w)
{
  weft_arena *arena = &w->body->module->arena;
  const hlo_shape **elements = WEFT_ARENA_ARRAY(arena, const hlo_shape *, w->count), *shape;

  WEFT_TRY_ALLOC(elements);
  for (int i = 0; i < w->count; i++) elements[i] = while_init(w, i)->shape;
  shape = hlo_shape_tuple(arena, w->count, elements);
  WEFT_TRY_ALLOC(shape);
  w->loop->shape = w->loop->operands[0]->shape = w->body->root->shape = shape;
  hlo_parameter(w->body, 0)->shape = hlo_parameter(w->cond, 0)->shape = shape;
  return NULL;
}

weft_status *while_keep(while_loop *w, const bool *keep)
{
  hlo_instr **views[] = {w->in_body, w->in_cond, w->after};
  int kept = 0;

  for (int i = 0; i < w->count; i++) {
    if (!keep[i]) continue;
    for (size_t v = 0; v < WEFT_COUNT(views); v++) {
      views[v][kept] = views[v][i];
      if (views[v][kept]) views[v][kept]->u.tuple_index = kept;
    }
    kept++;
  }
  hlo_keep_operands(w->loop->operands[0], keep);
  hlo_keep_operands(w->body->root, keep);
  w->count = kept;
  return set_state_shape(w);
}

weft_status *while_add_invariants(while_loop *w, int count, hlo_instr **values)
{
  hlo_instr *param = hlo_parameter(w->body, 0);

  for (int i = 0; i < count; i++) {
    hlo_instr *element;
    WEFT_TRY(hlo_append_operand(w->loop->operands[0], values[i]));
    w->count++;
    /* The shape must have the element before a get-tuple-element of it is made. */
    WEFT_TRY(hlo_add(w->body, param->next, HLO_GET_TUPLE_ELEMENT, values[i]->shape, 1, &param, NULL, &element));
    element->u.tuple_index = w->count - 1;
    WEFT_TRY(hlo_append_operand(w->body->root, element));
    values[i] = element;
  }
  return set_state_shape(w);
}

/* Appends the initial values that are made of one number, or of none. */
static int take_made(const while_loop *w, hlo_instr **members)
{
  int count = 0;

  for (int i = 0; i < w->count; i++) {
    hlo_instr *x = while_init(w, i);
    bool is_made = x->op == HLO_IOTA || (x->op == HLO_BROADCAST && hlo_shape_is_scalar(x->operands[0]->shape)),
         is_new = true;
    for (int k = 0; k < count; k++) is_new = is_new && members[k] != x;
    if (is_made && is_new && !pass_has_control_edges(x)) members[count++] = x;
  }
  return count;
}

weft_status *while_outline(while_loop *w, pass_map *map, const char *name, bool with_made, hlo_instr **out_fusion)
{
  hlo_instr **members = WEFT_ARENA_ARRAY(map->arena, hlo_instr *, 2 * w->count + 2);
  hlo_instr **outputs = WEFT_ARENA_ARRAY(map->arena, hlo_instr *, w->count);
  int count = 0, made;

  *out_fusion = NULL;
  WEFT_TRY_ALLOC(members);
  WEFT_TRY_ALLOC(outputs);
  for (int i = 0; i < w->count; i++) {
    if (!while_is_used(w, i)) continue;
    outputs[count++] = w->after[i];
    hlo_move_before(w->after[i], w->loop->next); /* the list has them behind the loop, the last one first */
  }
  if (count == 0) return NULL;
  made = with_made ? take_made(w, members) : 0;
  members[made] = w->loop->operands[0];
  members[made + 1] = w->loop;
  for (int i = 0; i < count; i++) members[made + 2 + i] = outputs[count - 1 - i];
  return pass_outline(members, made + count + 2, outputs, count, map, name, out_fusion);
}

weft_status *while_make_kernels(hlo_module *module, weft_arena *scratch, while_maker *make, const void *ctx,
                                bool *changed)
{
  pass_map map = {.arena = scratch};
  pass_comps comps;

  WEFT_TRY(pass_sequential(module, scratch, &comps));
  for (int i = 0; i < comps.count; i++) {
    bool found = false;
    for (hlo_instr *instr = comps.v[i]->first, *next, *fusion; instr; instr = next) {
      while_loop w;
      bool is_tuple;
      next = instr->next, fusion = NULL;
      if (instr->op != HLO_WHILE || pass_has_control_edges(instr)) continue;
      WEFT_TRY(while_open(instr, scratch, &w, &is_tuple));
      if (is_tuple) WEFT_TRY(make(ctx, &w, &map, &fusion));
      if (!fusion) continue;
      next = fusion->next; /* what stood behind the loop is gone */
      found = true;
    }
    if (found) WEFT_TRY(hlo_computation_sort(comps.v[i]));
    *changed |= found;
  }
  return *changed ? hlo_module_gc(module) : NULL;
}

/* ---- trip count -------------------------------------------------------------------------------------------------- */

static bool integer_constant(const hlo_instr *x, int64_t *value)
{
  if (x->op != HLO_CONSTANT || !hlo_shape_is_scalar(x->shape) || !weft_dtype_is_integer(x->shape->type) ||
      (x->shape->type == WEFT_U64 && hlo_literal_get_s64(x->u.literal, 0) < 0))
    return false;
  *value = hlo_literal_get_s64(x->u.literal, 0);
  return true;
}

/* The element that `x` is inside the condition; -1 if it is none. */
static int element_in_cond(const while_loop *w, const hlo_instr *x)
{
  return x->op == HLO_GET_TUPLE_ELEMENT && x->operands[0] == hlo_parameter(w->cond, 0) ? (int)x->u.tuple_index : -1;
}

static hlo_direction swapped(hlo_direction d)
{
  return d == HLO_LT ? HLO_GT : d == HLO_GT ? HLO_LT : d == HLO_LE ? HLO_GE : d == HLO_GE ? HLO_LE : d;
}

/* A constant in the condition, or an invariant element whose initial value is a constant. */
static bool bound_in_cond(const while_loop *w, const hlo_instr *x, int64_t *value)
{
  int element = element_in_cond(w, x);

  if (element < 0) return integer_constant(x, value);
  return while_is_invariant(w, element) && integer_constant(while_init(w, element), value);
}

int64_t while_trip_count(const while_loop *w)
{
  const hlo_instr *test = w->cond->root, *next;
  hlo_direction direction;
  int64_t start, step, limit, distance;
  int counter;

  if (test->op != HLO_COMPARE) return -1;
  direction = test->u.compare.direction;
  if ((counter = element_in_cond(w, test->operands[0])) >= 0 && bound_in_cond(w, test->operands[1], &limit)) {
  } else if ((counter = element_in_cond(w, test->operands[1])) >= 0 && bound_in_cond(w, test->operands[0], &limit)) {
    direction = swapped(direction);
  } else {
    return -1;
  }
  next = while_next(w, counter);
  if (!integer_constant(while_init(w, counter), &start) || next->op != HLO_ADD || !w->in_body[counter]) return -1;
  if (!(next->operands[0] == w->in_body[counter] && integer_constant(next->operands[1], &step)) &&
      !(next->operands[1] == w->in_body[counter] && integer_constant(next->operands[0], &step)))
    return -1;
  if (step < 0) { /* counting down is treated as counting up */
    if (__builtin_sub_overflow(0, step, &step) || __builtin_sub_overflow(0, start, &start) ||
        __builtin_sub_overflow(0, limit, &limit))
      return -1;
    direction = swapped(direction);
  }
  if (direction == HLO_NE && step != 0) {
    if (__builtin_sub_overflow(limit, start, &distance) || distance < 0 || distance % step) return -1;
    return distance / step;
  }
  if (step == 0 || (direction != HLO_LT && direction != HLO_LE)) return -1;
  if (direction == HLO_LE && __builtin_add_overflow(limit, 1, &limit)) return -1;
  if (start >= limit) return 0;
  if (__builtin_sub_overflow(limit, start, &distance) || distance > INT64_MAX - step) return -1;
  distance = (distance + step - 1) / step;
  /* The counter must not wrap in its own type before it reaches the limit. */
  int bits = weft_dtype_bits(while_init(w, counter)->shape->type);
  int64_t end;
  if (__builtin_mul_overflow(distance, step, &end) || __builtin_add_overflow(end, start, &end)) return -1;
  if (bits < 64 && end >= INT64_C(1) << (bits - weft_dtype_is_signed(while_init(w, counter)->shape->type))) return -1;
  return distance;
}
