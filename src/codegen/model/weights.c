/* codegen/model/weights.c -- weights that a dot reads as they are stored (weights.h). */
#include <config.h>

#include "codegen/model/weights.h"

#include "codegen/model/library.h"

enum {
  MOST_ROWS = 16,          /* of the other operand (cpu/gemm_few.c): with more, the copy takes little of the time */
  LEAST_WEIGHTS = 1 << 16, /* fewer stay in L2 when they are wide */
  LEAST_COLUMNS = 64,
  LEAST_GROUP = 8,         /* with smaller groups the steps' operands are as large as the weights */
  MOST_DEPTH = 1 << 16,    /* contracted elements: the kernel keeps a copy of the few rows */
  FLOAT_BITS = 24,         /* integers of as many bits, and a sign, are numbers of f32 */
};

bool gen_type_widens(weft_dtype narrow, weft_dtype wide)
{
  const weft_float_format *to = weft_dtype_float_format(wide), *from = weft_dtype_float_format(narrow);

  if (!to || weft_dtype_bytes(narrow) >= weft_dtype_bytes(wide) || narrow == WEFT_PRED) return false;
  if (weft_dtype_is_integer(narrow))
    return weft_dtype_bits(narrow) - !weft_dtype_is_unsigned(narrow) <= to->mantissa_bits + 1;
  return from && from->has_zero && from->mantissa_bits <= to->mantissa_bits &&
         from->exponent_bits <= to->exponent_bits && from->bias <= to->bias;
}

static bool is_of_few(const gen_target *target, const hlo_instr *dot, bool on_left)
{
  const hlo_shape *out = dot->shape, *weights = dot->operands[!on_left]->shape;
  int64_t rows = out->dims[out->rank - (on_left ? 1 : 2)], columns = out->dims[out->rank - (on_left ? 2 : 1)];
  int64_t batch = out->rank > 2 ? out->dims[0] : 1;

  return rows <= MOST_ROWS && columns >= LEAST_COLUMNS && hlo_shape_elems(weights) >= LEAST_WEIGHTS * batch &&
         dot->operands[on_left]->shape->type == weights->type && weft_dtype_is_float(out->type) &&
         !gen_dot_needs_kernel(target, dot, true);
}

bool gen_dot_has_few_rows(const gen_target *target, const hlo_instr *dot) { return is_of_few(target, dot, false); }
bool gen_dot_has_few_columns(const gen_target *target, const hlo_instr *dot) { return is_of_few(target, dot, true); }

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* A value on the way from an array to the dot: all of its numbers are of `type`, and integers are in [least, most]. */
typedef struct walk {
  gen_view view;
  weft_dtype type;
  int64_t least, most;
} walk;

static bool is_float32_or_less(weft_dtype type)
{
  return weft_dtype_is_float(type) && weft_dtype_bytes(type) <= sizeof(float);
}

static void set_range(walk *w)
{
  int bits = weft_dtype_bits(w->type);

  w->least = w->most = 0;
  if (!weft_dtype_is_integer(w->type) || bits > 32) return;
  w->least = weft_dtype_is_signed(w->type) ? -((int64_t)1 << (bits - 1)) : 0;
  w->most = ((int64_t)1 << (bits - weft_dtype_is_signed(w->type))) - 1;
}

static bool is_in_range_of(const walk *w, weft_dtype type)
{
  walk all = {.type = type};

  set_range(&all);
  return weft_dtype_bits(type) > 32 || (all.least <= w->least && w->most <= all.most);
}

static bool is_in_f32(const walk *w)
{
  return -((int64_t)1 << FLOAT_BITS) <= w->least && w->most <= (int64_t)1 << FLOAT_BITS;
}

static void begin(walk *w, const hlo_instr *array)
{
  w->view = gen_view_dense(array->shape);
  w->view.array = array;
  w->type = array->shape->type;
  set_range(w);
  if (array->op == HLO_CONSTANT && hlo_shape_is_scalar(array->shape) && weft_dtype_is_integer(w->type) &&
      weft_dtype_bits(w->type) <= 32)
    w->least = w->most = hlo_literal_get_s64(array->u.literal, 0);
}

/* A conversion of integers that keeps their values, or one to a float type; a float does not become an integer. */
static bool walk_convert(walk *w, weft_dtype to)
{
  if (weft_dtype_is_integer(to)) {
    if (!weft_dtype_is_integer(w->type) || weft_dtype_bits(w->type) > 32 || !is_in_range_of(w, to)) return false;
  } else if (!is_float32_or_less(to)) return false;
  w->type = to;
  return true;
}

/* Applies `x` to what it moves or converts. */
static bool walk_through(walk *w, const hlo_instr *x)
{
  return x->op == HLO_CONVERT ? walk_convert(w, x->shape->type) : gen_view_apply(&w->view, x);
}

/* ---- the operand of a step --------------------------------------------------------------------------------------- */

static bool keeps_numbers(const hlo_instr *x, bool in_parts)
{
  switch (x->op) {
  case HLO_RESHAPE: case HLO_BITCAST: case HLO_TRANSPOSE: return x->shape->type == x->operands[0]->shape->type;
  case HLO_SLICE: case HLO_DYNAMIC_SLICE: return in_parts;
  default: return false;
  }
}

/* A conversion of an operand that changes no number, so that the kernel may read the numbers before it. */
static bool is_exact_convert(const hlo_instr *x)
{
  weft_dtype from, to;

  if (x->op != HLO_CONVERT) return false;
  from = x->operands[0]->shape->type;
  to = x->shape->type;
  if (!weft_dtype_is_integer(to)) return gen_type_widens(from, to);
  walk w = {.type = from};
  set_range(&w);
  return weft_dtype_is_integer(from) && weft_dtype_bits(from) <= 32 && is_in_range_of(&w, to);
}

/* Is `value` an array that is repeated? */
static bool is_repeated(const hlo_instr *value)
{
  for (int i = 0; i < GEN_VIEW_LENGTH && value->op != HLO_BROADCAST; i++, value = value->operands[0])
    if (!keeps_numbers(value, false) && !is_exact_convert(value)) return false;
  return value->op == HLO_BROADCAST;
}

static bool is_wide_integer(weft_dtype type)
{
  return weft_dtype_is_integer(type) && weft_dtype_bits(type) > FLOAT_BITS;
}

/* Finds the array that `value` repeats. False: f32 has not all of its numbers. */
static bool walk_operand(const hlo_instr *value, bool in_parts, walk *out)
{
  const hlo_instr *path[GEN_VIEW_LENGTH], *array = value;
  int count = 0;

  for (; count < GEN_VIEW_LENGTH; array = array->operands[0]) {
    if (!keeps_numbers(array, in_parts) && array->op != HLO_BROADCAST && !is_exact_convert(array)) break;
    path[count++] = array;
  }
  begin(out, array);
  while (count > 0)
    if (!walk_through(out, path[--count])) return false;
  weft_dtype stored = array->shape->type;
  if (is_wide_integer(stored)) return weft_dtype_bits(stored) <= 32 && is_in_f32(out);
  return weft_dtype_is_integer(stored) || is_float32_or_less(stored);
}

/* ---- the weights ------------------------------------------------------------------------------------------------- */

/* The operand of `x` that is made of the weights, if `x` is a step: the other one repeats an array. -1: it is none. */
static int weights_operand(const hlo_instr *x)
{
  if (x->op != HLO_ADD && x->op != HLO_SUBTRACT && x->op != HLO_MULTIPLY) return -1;
  if (is_repeated(x->operands[1])) return is_repeated(x->operands[0]) ? -1 : 0;
  return is_repeated(x->operands[0]) && x->op != HLO_SUBTRACT ? 1 : -1;
}

int gen_stored_operand(const hlo_instr *value, bool in_parts)
{
  return value->op == HLO_CONVERT || keeps_numbers(value, in_parts) ? 0 : weights_operand(value);
}

/* The range of integers after a step that does not wrap. */
static bool step_range(walk *w, hlo_opcode op, const walk *operand)
{
  if (op == HLO_MULTIPLY) return false;
  w->least += op == HLO_ADD ? operand->least : -operand->most;
  w->most += op == HLO_ADD ? operand->most : -operand->least;
  return is_in_range_of(w, w->type) && is_in_f32(w);
}

static bool add_step(gen_stored *out, walk *w, const hlo_instr *x, bool in_parts)
{
  gen_stored_step *step = &out->steps[out->count];
  walk operand;

  if (out->count == GEN_WEIGHTS_STEPS || !walk_operand(x->operands[!weights_operand(x)], in_parts, &operand) ||
      (weft_dtype_is_integer(w->type) && !step_range(w, x->op, &operand)))
    return false;
  out->rounds |= !weft_dtype_is_integer(w->type);
  *step = (gen_stored_step){.op = x->op, .view = operand.view};
  out->count++;
  return true;
}

/* Does a conversion from `before` to the type that `w` has now round numbers? */
static bool rounds_in(const walk *w, weft_dtype before)
{
  if (w->type == before || !weft_dtype_is_float(w->type)) return false;
  if (!weft_dtype_is_integer(before)) return !gen_type_widens(before, w->type);
  return WEFT_MAX(-w->least, w->most) > (int64_t)2 << weft_dtype_float_format(w->type)->mantissa_bits;
}

bool gen_stored_of(const hlo_instr *value, bool in_parts, gen_stored *out)
{
  enum { MOST_LINKS = 2 * GEN_VIEW_LENGTH };
  const hlo_instr *links[MOST_LINKS], *array = value;
  int count = 0;
  bool converted = false;
  walk w;

  *out = (gen_stored){.count = 0};
  while (count < MOST_LINKS) {
    int operand = gen_stored_operand(array, in_parts);
    if (operand < 0) break;
    links[count++] = array;
    array = array->operands[operand];
  }
  weft_dtype stored = array->shape->type;
  if (!hlo_shape_is_array(array->shape) || !gen_type_widens(stored, value->shape->type) ||
      !gen_type_widens(stored, WEFT_F32))
    return false;
  begin(&w, array);
  for (; count > 0; count--) {
    const hlo_instr *x = links[count - 1];
    weft_dtype before = w.type;
    if (x->op == HLO_CONVERT) converted = true;
    out->shared |= converted && (x->user_count != 1 || x == x->parent->root);
    if (weights_operand(x) < 0) {
      if (!walk_through(&w, x)) return false;
      out->rounds |= rounds_in(&w, before);
      continue;
    }
    if (!add_step(out, &w, x, in_parts)) return false;
    for (int l = count - 2; l >= 0; l--) /* the operand goes the way of the weights from here on */
      if (weights_operand(links[l]) < 0 && links[l]->op != HLO_CONVERT &&
          !gen_view_apply(&out->steps[out->count - 1].view, links[l]))
        return false;
  }
  out->view = w.view;
  return true;
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

/* The size of the groups of the operand of a step, which has `depth` rows; 0: it has no groups that the kernel can
 * read. */
static int64_t group_of(gen_stored_step *step, int64_t depth, int64_t depth_dim)
{
  gen_parts rows, columns;
  int64_t column_dim = !depth_dim;

  if (!gen_view_walk(&step->view, 1, &depth_dim, &rows) || !gen_view_walk(&step->view, 1, &column_dim, &columns) ||
      columns.count > 1)
    return 0;
  step->row = 0;
  step->column = columns.count ? columns.v[0].step : 0;
  if (rows.count == 0 || (rows.count == 1 && rows.v[0].step == 0)) return depth;
  if (rows.count != 2 || rows.v[1].step != 0) return 0;
  step->row = rows.v[0].step;
  return rows.v[1].size;
}

bool gen_stored_lie(gen_stored *w, const hlo_shape *shape, int64_t depth_dim)
{
  int64_t depth = shape->rank == 2 ? shape->dims[depth_dim] : 0, column_dim = !depth_dim;
  gen_parts rows, columns;

  if (shape->rank != 2 || depth > MOST_DEPTH || !gen_view_walk(&w->view, 1, &depth_dim, &rows) ||
      !gen_view_walk(&w->view, 1, &column_dim, &columns) || rows.count != 1 || columns.count != 1 ||
      (rows.v[0].step != 1 && columns.v[0].step != 1))
    return false;
  w->group = depth;
  for (int i = 0; i < w->count; i++) {
    int64_t group = group_of(&w->steps[i], depth, depth_dim);
    if (group < LEAST_GROUP || (group != depth && w->group != depth && group != w->group)) return false;
    if (group != depth) w->group = group;
  }
  return true;
}

bool gen_dot_reads_stored(const gen_target *target, const hlo_instr *dot, bool in_parts, bool rounds_narrow,
                          gen_stored *out)
{
  const hlo_dot_attrs *a = dot->u.dot;

  if (dot->operand_count != 2 || a->sparsity || a->algorithm != HLO_ALG_UNSET || a->rhs_contracting.count != 1 ||
      dot->operands[0]->shape->rank != 2 || dot->operands[1]->shape->rank != 2 || dot->shape->rank != 2 ||
      weft_dtype_bytes(dot->shape->type) > sizeof(float))
    return false;
  return gen_dot_has_few_rows(target, dot) && gen_stored_of(dot->operands[1], in_parts, out) && !out->shared &&
         !(out->rounds && rounds_narrow) && gen_stored_lie(out, dot->operands[1]->shape, a->rhs_contracting.v[0]);
}
