/* hlo/infer_control.c -- shape inference: tuples, calls, control flow and communication. */
#include <inttypes.h>
#include <string.h>

#include "hlo/infer_internal.h"

weft_status *infer_free(const hlo_instr *in, const hlo_shape **out) { return infer_given(in, out); }

weft_status *infer_first_operand(const hlo_instr *in, const hlo_shape **out)
{
  if (in->op == HLO_ADD_DEPENDENCY && !hlo_shape_is_token(infer_operand(in, 1)))
    return INFER_FAIL(in, "operand 1 is %s, expected a token", SHAPE_TEXT(infer_operand(in, 1)));
  *out = infer_operand(in, 0);
  return NULL;
}

static weft_status *token(const hlo_instr *in, const hlo_shape **out)
{
  *out = hlo_shape_token(infer_arena(in));
  WEFT_TRY_ALLOC(*out);
  return NULL;
}

static weft_status *need_token(const hlo_instr *in, int operand)
{
  if (!hlo_shape_is_token(infer_operand(in, operand)))
    return INFER_FAIL(in, "operand %d is %s, expected a token", operand, SHAPE_TEXT(infer_operand(in, operand)));
  return NULL;
}

/* Takes values of any kind: XLA does not require tokens, and its own tests pass arrays. */
weft_status *infer_after_all(const hlo_instr *in, const hlo_shape **out) { return token(in, out); }

static weft_status *operand_shapes(const hlo_instr *in, int count, const hlo_shape ***out)
{
  *out = WEFT_ARENA_ARRAY(infer_arena(in), const hlo_shape *, count);
  WEFT_TRY_ALLOC(*out);
  for (int i = 0; i < count; i++) (*out)[i] = infer_operand(in, i);
  return NULL;
}

weft_status *infer_tuple_op(const hlo_instr *in, const hlo_shape **out)
{
  const hlo_shape **elements;

  WEFT_TRY(operand_shapes(in, in->operand_count, &elements));
  return infer_tuple(in, in->operand_count, elements, out);
}

weft_status *infer_get_tuple_element(const hlo_instr *in, const hlo_shape **out)
{
  const hlo_shape *t = infer_operand(in, 0);

  if (!hlo_shape_is_tuple(t)) return INFER_FAIL(in, "the operand is %s, expected a tuple", SHAPE_TEXT(t));
  if (in->u.tuple_index < 0 || in->u.tuple_index >= t->rank)
    return INFER_FAIL(in, "index %" PRId64 " of a tuple of %d", in->u.tuple_index, t->rank);
  *out = t->elements[in->u.tuple_index];
  return NULL;
}

/* Computation `which` must take one parameter for each operand from `first` on, of the operand's shape. */
static weft_status *need_parameters(const hlo_instr *in, const hlo_computation *f, int first, int count)
{
  if (f->param_count != count)
    return INFER_FAIL(in, "computation \"%s\" takes %d parameters, %d are given", f->name, f->param_count, count);
  for (int i = 0; i < count; i++)
    if (!infer_same_shape(f->params[i]->shape, infer_operand(in, first + i)))
      return INFER_FAIL(in, "parameter %d of \"%s\" is %s, operand %d is %s", i, f->name,
                        SHAPE_TEXT(f->params[i]->shape), first + i, SHAPE_TEXT(infer_operand(in, first + i)));
  return NULL;
}

weft_status *infer_call(const hlo_instr *in, const hlo_shape **out) /* and fusion */
{
  WEFT_TRY(infer_need_calls(in, 1));
  WEFT_TRY(need_parameters(in, in->called[0], 0, in->operand_count));
  *out = in->called[0]->root->shape;
  return NULL;
}

weft_status *infer_while(const hlo_instr *in, const hlo_shape **out)
{
  WEFT_TRY(infer_need_calls(in, 2));
  const hlo_computation *body = in->called[0], *cond = in->called[1];
  for (int i = 0; i < 2; i++) WEFT_TRY(need_parameters(in, in->called[i], 0, 1));
  if (!hlo_shape_is_scalar(cond->root->shape) || cond->root->shape->type != WEFT_PRED)
    return INFER_FAIL(in, "condition \"%s\" gives %s, expected pred[]", cond->name, SHAPE_TEXT(cond->root->shape));
  if (!infer_same_shape(body->root->shape, infer_operand(in, 0)))
    return INFER_FAIL(in, "body \"%s\" gives %s, the operand is %s", body->name, SHAPE_TEXT(body->root->shape),
                      SHAPE_TEXT(infer_operand(in, 0)));
  *out = infer_operand(in, 0);
  return NULL;
}

weft_status *infer_conditional(const hlo_instr *in, const hlo_shape **out)
{
  const hlo_shape *selector = infer_operand(in, 0);

  if (!hlo_shape_is_scalar(selector) || (selector->type != WEFT_PRED && selector->type != WEFT_S32))
    return INFER_FAIL(in, "the selector is %s, expected pred[] or s32[]", SHAPE_TEXT(selector));
  if (in->called_count < 1 || (selector->type == WEFT_PRED && in->called_count != 2))
    return INFER_FAIL(in, "%d branches for a selector %s", in->called_count, SHAPE_TEXT(selector));
  if (in->operand_count != 1 + in->called_count)
    return INFER_FAIL(in, "%d branch operands for %d branches", in->operand_count - 1, in->called_count);
  WEFT_TRY(infer_need_calls(in, in->called_count));
  for (int i = 0; i < in->called_count; i++) {
    WEFT_TRY(need_parameters(in, in->called[i], 1 + i, 1));
    if (!infer_same_shape(in->called[i]->root->shape, in->called[0]->root->shape))
      return INFER_FAIL(in, "branches differ: \"%s\" gives %s, \"%s\" gives %s", in->called[0]->name,
                        SHAPE_TEXT(in->called[0]->root->shape), in->called[i]->name,
                        SHAPE_TEXT(in->called[i]->root->shape));
  }
  *out = in->called[0]->root->shape;
  return NULL;
}

/* ---- collectives ------------------------------------------------------------------------------------------------- */

static weft_status *need_collective(const hlo_instr *in)
{
  const hlo_collective_attrs *c = in->u.collective;

  if (!c) return INFER_FAIL(in, "no replica groups or channel");
  if (c->groups.form != HLO_GROUPS_LIST) return NULL;
  for (int g = 0; g < c->groups.group_count; g++)
    for (int i = 0; i < c->groups.groups[g].count; i++)
      if (c->groups.groups[g].v[i] < 0)
        return INFER_FAIL(in, "replica group %d names device %" PRId64, g, c->groups.groups[g].v[i]);
  return NULL;
}

/* Result `i` in the shape that the program gives: the shape itself for a single operand, else element i of the
 * tuple; NULL if there is none. */
static const hlo_shape *given_result(const hlo_instr *in, const hlo_shape *given, int i)
{
  if (in->operand_count == 1) return given;
  return hlo_shape_is_tuple(given) && given->rank == in->operand_count ? given->elements[i] : NULL;
}

/* all-gather makes dimension dims[0] larger by an integer factor, reduce-scatter smaller.  The factor depends on the
 * groups and the device assignment, so it is taken from the shape that the program gives. */
static weft_status *infer_scaled(const hlo_instr *in, bool grows, const hlo_shape **out)
{
  WEFT_TRY(need_collective(in));
  WEFT_TRY(infer_given(in, out));
  if (in->dims.count != 1) return INFER_FAIL(in, "%d dimensions given, expected 1", in->dims.count);
  for (int i = 0; i < in->operand_count; i++) {
    const hlo_shape *x = infer_operand(in, i), *y = given_result(in, *out, i);
    WEFT_TRY(infer_need_array(in, i));
    WEFT_TRY(infer_need_dims(in, "dimensions", in->dims, x->rank));
    if (!y || y->type != x->type || y->rank != x->rank)
      return INFER_FAIL(in, "the result is %s for operand %d %s", SHAPE_TEXT(*out), i, SHAPE_TEXT(x));
    for (int d = 0; d < x->rank; d++) {
      int64_t small = grows ? x->dims[d] : y->dims[d], large = grows ? y->dims[d] : x->dims[d];
      if (d == in->dims.v[0] ? (small == 0 ? large != 0 : large % small != 0) : small != large)
        return INFER_FAIL(in, "sizes of dimension %d do not match: %" PRId64 " (operand), %" PRId64 " (result)", d,
                          x->dims[d], y->dims[d]);
    }
  }
  return NULL;
}

weft_status *infer_all_gather(const hlo_instr *in, const hlo_shape **out) { return infer_scaled(in, true, out); }

weft_status *infer_all_reduce(const hlo_instr *in, const hlo_shape **out)
{
  const hlo_shape **elements;

  WEFT_TRY(need_collective(in));
  WEFT_TRY(infer_need_calls(in, 1));
  for (int i = 0; i < in->operand_count; i++) WEFT_TRY(infer_need_array(in, i));
  WEFT_TRY(operand_shapes(in, in->operand_count, &elements));
  for (int i = 0; in->shape && i < in->operand_count; i++) { /* the program may give floats of another width */
    const hlo_shape *y = given_result(in, in->shape, i), *x = elements[i];
    if (!y || y->type == x->type || !weft_dtype_is_float(y->type) || !weft_dtype_is_float(x->type)) continue;
    elements[i] = hlo_shape_with_type(infer_arena(in), x, y->type);
    WEFT_TRY_ALLOC(elements[i]);
  }
  return infer_one_or_tuple(in, in->operand_count, elements, out);
}

weft_status *infer_reduce_scatter(const hlo_instr *in, const hlo_shape **out)
{
  WEFT_TRY(infer_need_calls(in, 1));
  return infer_scaled(in, false, out);
}

/* With `dimensions`, an operand is split and concatenated along that dimension.  Without, there is one operand for
 * each member of the group, and the result is a tuple. */
weft_status *infer_all_to_all(const hlo_instr *in, const hlo_shape **out)
{
  const hlo_shape **elements;

  WEFT_TRY(need_collective(in));
  for (int i = 0; i < in->operand_count; i++) {
    WEFT_TRY(infer_need_array(in, i));
    if (in->dims.count > 0) WEFT_TRY(infer_need_dims(in, "dimensions", in->dims, infer_operand(in, i)->rank));
  }
  WEFT_TRY(operand_shapes(in, in->operand_count, &elements));
  if (in->dims.count == 0) return infer_tuple(in, in->operand_count, elements, out);
  return infer_one_or_tuple(in, in->operand_count, elements, out);
}

weft_status *infer_collective_same(const hlo_instr *in, const hlo_shape **out)
{
  const hlo_shape **elements;
  const hlo_collective_attrs *c = in->u.collective;
  int count = in->operand_count;

  WEFT_TRY(need_collective(in));
  for (int p = 0; p < c->pair_count; p++)
    if (c->pairs[p][0] < 0 || c->pairs[p][1] < 0)
      return INFER_FAIL(in, "source_target_pairs has {%" PRId64 ",%" PRId64 "}", c->pairs[p][0], c->pairs[p][1]);
  if (in->op == HLO_COLLECTIVE_BROADCAST && c->has_dynamic_root) { /* the last operand has the roots */
    if (--count < 1) return INFER_FAIL(in, "%d operands, of which the last is the root", in->operand_count);
    const hlo_shape *root = infer_operand(in, count);
    if (!hlo_shape_is_array(root) || root->type != WEFT_S32 ||
        (hlo_shape_elems(root) != 1 && hlo_shape_elems(root) != count))
      return INFER_FAIL(in, "the root is %s, expected one s32 or one for each of %d operands", SHAPE_TEXT(root), count);
  }
  /* collective-permute in place has the operands (input, output, two tuples of offsets), and its result is the
   * output. */
  if (in->op == HLO_COLLECTIVE_PERMUTE && count == 4 &&
      (c->slice_count || (in->shape && hlo_shape_is_array(in->shape)))) {
    *out = infer_operand(in, 1);
    return NULL;
  }
  WEFT_TRY(operand_shapes(in, count, &elements));
  return infer_one_or_tuple(in, count, elements, out);
}

weft_status *infer_ragged_all_to_all(const hlo_instr *in, const hlo_shape **out)
{
  WEFT_TRY(need_collective(in));
  for (int i = 0; i < in->operand_count; i++) WEFT_TRY(infer_need_array(in, i));
  WEFT_TRY(infer_need_same_type(in, 0, 1));
  const hlo_shape *from = infer_operand(in, 0), *to = infer_operand(in, 1), *index = infer_operand(in, 2);
  if (from->rank < 1 || from->rank != to->rank ||
      memcmp(from->dims + 1, to->dims + 1, (size_t)(from->rank - 1) * sizeof *to->dims) != 0)
    return INFER_FAIL(in, "rows of %s do not fit into %s", SHAPE_TEXT(from), SHAPE_TEXT(to));
  for (int i = 2; i < 6; i++) {
    const hlo_shape *s = infer_operand(in, i);
    if ((s->type != WEFT_S32 && s->type != WEFT_U32 && s->type != WEFT_S64 && s->type != WEFT_U64) || s->rank < 1 ||
        s->rank > 2 || !infer_same_shape(s, index))
      return INFER_FAIL(in, "operand %d is %s, expected rows or a list of 32 or 64 bit integers like operand 2, %s", i,
                        SHAPE_TEXT(s), SHAPE_TEXT(index));
  }
  *out = to;
  return NULL;
}

weft_status *infer_partition_id(const hlo_instr *in, const hlo_shape **out)
{
  return infer_array(in, WEFT_U32, 0, NULL, NULL, out);
}

/* ---- starts and dones -------------------------------------------------------------------------------------------- */

static weft_status *given_tuple(const hlo_instr *in, int least, const hlo_shape **out)
{
  WEFT_TRY(infer_given(in, out));
  if (!hlo_shape_is_tuple(*out) || (*out)->rank < least)
    return INFER_FAIL(in, "the result is %s, expected a tuple of at least %d", SHAPE_TEXT(*out), least);
  return NULL;
}

/* The result of a done is element `index` of its operand, which must be a tuple. */
static weft_status *operand_element(const hlo_instr *in, int index, const hlo_shape **out)
{
  const hlo_shape *t = infer_operand(in, 0);

  if (!hlo_shape_is_tuple(t) || t->rank <= index)
    return INFER_FAIL(in, "the operand is %s, expected the tuple of a start", SHAPE_TEXT(t));
  *out = t->elements[index];
  return NULL;
}

/* all-gather-start, collective-permute-start: (operand, result, contexts...); several operands stand in a tuple. */
weft_status *infer_start(const hlo_instr *in, const hlo_shape **out)
{
  WEFT_TRY(need_collective(in));
  WEFT_TRY(given_tuple(in, 2, out));
  if (in->operand_count == 1 && !infer_same_shape((*out)->elements[0], infer_operand(in, 0)))
    return INFER_FAIL(in, "element 0 of the result is %s, the operand is %s", SHAPE_TEXT((*out)->elements[0]),
                      SHAPE_TEXT(infer_operand(in, 0)));
  return NULL;
}

weft_status *infer_pair_done(const hlo_instr *in, const hlo_shape **out) { return operand_element(in, 1, out); }

weft_status *infer_copy_start(const hlo_instr *in, const hlo_shape **out)
{
  WEFT_TRY(given_tuple(in, 2, out));
  for (int i = 0; i < 2; i++)
    if (!infer_same_shape((*out)->elements[i], infer_operand(in, 0)))
      return INFER_FAIL(in, "element %d of the result is %s, the operand is %s", i, SHAPE_TEXT((*out)->elements[i]),
                        SHAPE_TEXT(infer_operand(in, 0)));
  return NULL;
}

weft_status *infer_copy_done(const hlo_instr *in, const hlo_shape **out) { return operand_element(in, 0, out); }

/* ((operands...), result, contexts...) */
weft_status *infer_async_start(const hlo_instr *in, const hlo_shape **out)
{
  WEFT_TRY(given_tuple(in, 2, out));
  WEFT_TRY(infer_need_calls(in, 1));
  WEFT_TRY(need_parameters(in, in->called[0], 0, in->operand_count));
  const hlo_shape *args = (*out)->elements[0], *root = in->called[0]->root->shape;
  if (!hlo_shape_is_tuple(args) || args->rank != in->operand_count)
    return INFER_FAIL(in, "element 0 of the result is %s, expected a tuple of the %d operands", SHAPE_TEXT(args),
                      in->operand_count);
  if (!infer_same_shape((*out)->elements[1], root))
    return INFER_FAIL(in, "element 1 of the result is %s, \"%s\" gives %s", SHAPE_TEXT((*out)->elements[1]),
                      in->called[0]->name, SHAPE_TEXT(root));
  return NULL;
}

weft_status *infer_async_update(const hlo_instr *in, const hlo_shape **out) { return infer_first_operand(in, out); }
weft_status *infer_async_done(const hlo_instr *in, const hlo_shape **out) { return operand_element(in, 1, out); }

/* ---- host -------------------------------------------------------------------------------------------------------- */

weft_status *infer_infeed(const hlo_instr *in, const hlo_shape **out)
{
  WEFT_TRY(need_token(in, 0));
  WEFT_TRY(given_tuple(in, 2, out));
  if ((*out)->rank != 2 || !hlo_shape_is_token((*out)->elements[1]))
    return INFER_FAIL(in, "the result is %s, expected (data, token[])", SHAPE_TEXT(*out));
  return NULL;
}

weft_status *infer_outfeed(const hlo_instr *in, const hlo_shape **out)
{
  WEFT_TRY(need_token(in, 1));
  return token(in, out);
}

/* (data, context, token) */
static weft_status *transfer(const hlo_instr *in, const hlo_shape *data, const hlo_shape **out)
{
  const hlo_shape *context, *done;

  WEFT_TRY(infer_array(in, WEFT_U32, 0, NULL, NULL, &context));
  WEFT_TRY(token(in, &done));
  return infer_tuple(in, 3, (const hlo_shape *[]){data, context, done}, out);
}

weft_status *infer_send(const hlo_instr *in, const hlo_shape **out)
{
  WEFT_TRY(need_token(in, 1));
  return transfer(in, infer_operand(in, 0), out);
}

weft_status *infer_recv(const hlo_instr *in, const hlo_shape **out)
{
  WEFT_TRY(need_token(in, 0));
  WEFT_TRY(given_tuple(in, 3, out));
  return transfer(in, (*out)->elements[0], out);
}

weft_status *infer_send_done(const hlo_instr *in, const hlo_shape **out)
{
  WEFT_TRY(operand_element(in, 2, out));
  return token(in, out);
}

weft_status *infer_recv_done(const hlo_instr *in, const hlo_shape **out)
{
  const hlo_shape *data, *done;

  WEFT_TRY(operand_element(in, 0, &data));
  WEFT_TRY(token(in, &done));
  return infer_tuple(in, 2, (const hlo_shape *[]){data, done}, out);
}
