/* cpu/strip_parts.c -- products, rows and masks of strips (strip_parts.h). */
#include <config.h>

#include "cpu/strip_parts.h"

#include <string.h>

#include "base/macros.h"
#include "base/swap.h"
#include "codegen/model/library.h"
#include "codegen/model/strategy.h"
#include "cpu/hot.h"

weft_status *cpu_strip_product(const hlo_instr *within, cpu_source *lhs, cpu_source *rhs, cpu_dot *out)
{
  const hlo_instr *dot = gen_library_dot(within), *nested = dot == within ? NULL : within;
  gen_view l = lhs ? gen_view_of(dot->operands[0]) : gen_view_dense(dot->operands[0]->shape),
           r = gen_view_of(dot->operands[1]);

  if (lhs) WEFT_TRY(cpu_source_plan(lhs, &l, nested));
  WEFT_TRY(cpu_source_plan(rhs, &r, nested));
  WEFT_TRY(cpu_dot_init_views(out, dot->u.dot, dot->operands[0]->shape, &l, dot->operands[1]->shape, &r, dot->shape));
  if (out->scratch_bytes > 0)
    return WEFT_ERR(UNIMPLEMENTED, "strips of rows: %s", "an operand is no stack of matrices");
  return NULL;
}

char *cpu_strip_place(char *room, int64_t row, int64_t row_bytes, void **out_array)
{
  char *at = room + row * row_bytes % 64;
  *out_array = (void *)((uintptr_t)at - (uintptr_t)(row * row_bytes));
  return at;
}

/* Fills `out` if predicate `pred` of arrays of `cols` columns is an operand of the kernel, each row of which may be
 * that of many rows. */
static bool is_mask(const int *uses, const hlo_instr *pred, int64_t rows, int64_t cols, cpu_strip_mask *out)
{
  const hlo_instr *spread = gen_through_views(pred), *from = spread;
  const hlo_shape *shape = spread->shape;
  int64_t step = 1;

  if (spread->op == HLO_BROADCAST) from = gen_through_views(spread->operands[0]);
  if (from->op != HLO_PARAMETER || uses[from->u.parameter_number] < 0) return false;
  if (from == spread) { /* a row for each row of the scores */
    if (hlo_shape_elems(shape) != rows * cols) return false;
    *out = (cpu_strip_mask){.operand = uses[from->u.parameter_number], .rank = 1, .size = {INT64_MAX}, .step = {cols}};
    return true;
  }
  /* the operand's innermost dimension is that of the columns */
  if (spread->dims.count == 0 || spread->dims.v[spread->dims.count - 1] != shape->rank - 1 ||
      shape->dims[shape->rank - 1] != cols)
    return false;
  *out = (cpu_strip_mask){.operand = uses[from->u.parameter_number], .rank = shape->rank - 1};
  for (int d = 0; d < out->rank; d++) out->size[d] = shape->dims[d];
  for (int i = spread->dims.count - 1; i >= 0; i--) {
    int64_t d = spread->dims.v[i];
    if (i < spread->dims.count - 1) out->step[d] = step;
    step *= shape->dims[d];
  }
  return true;
}

weft_status *cpu_strip_mask_plan(weft_arena *arena, const hlo_instr *kernel, int param, const int *uses, int64_t rows,
                                 int64_t cols, cpu_strip_mask *out)
{
  const hlo_computation *comp = kernel->called[0];
  int low, count;

  out->operand = -1;
  hlo_id_range(comp, &low, &count);
  bool *plain = WEFT_ARENA_ARRAY(arena, bool, count); /* an element of the scores, or what is computed of it alone */
  WEFT_TRY_ALLOC(plain);
  const hlo_instr *choice = NULL;
  HLO_FOREACH(x, comp) {
    bool is_used = x == comp->params[param];
    for (int i = 0; i < x->operand_count; i++) is_used = is_used || plain[x->operands[i]->id - low];
    if (!is_used) continue;
    if (x->op == HLO_SELECT && !plain[x->operands[0]->id - low]) {
      if (choice || plain[x->operands[1]->id - low] == plain[x->operands[2]->id - low]) return NULL;
      choice = x;
      continue;
    }
    bool moves = x->op == HLO_RESHAPE || x->op == HLO_BITCAST;
    if (x->op != HLO_PARAMETER && !moves && !hlo_opcode_is_elementwise(x->op)) return NULL;
    if (x == comp->root) return NULL;
    plain[x->id - low] = true;
  }
  if (!choice || !is_mask(uses, choice->operands[0], rows, cols, out)) return NULL;
  out->is_unwanted = plain[choice->operands[2]->id - low];
  out->choice = choice;
  return NULL;
}

bool cpu_has_other(const char *at, int64_t count, uint64_t same)
{
  enum { AT_ONCE = 8 };
  uint64_t words[AT_ONCE], other = 0;
  int64_t i = 0;

  for (; i + (int64_t)sizeof words <= count; i += (int64_t)sizeof words) {
    memcpy(words, at + i, sizeof words);
    for (int w = 0; w < AT_ONCE; w++) other |= words[w] ^ same;
    if (other) return true;
  }
  for (; i + 8 <= count; i += 8)
    if (memcpy(words, at + i, 8), words[0] != same) return true;
  return i < count && memcmp(at + i, &same, (size_t)(count - i)) != 0;
}

int64_t cpu_strip_mask_columns(const cpu_strip_mask *m, void *const *args, int64_t row, int64_t rows, int64_t columns)
{
  enum { STEP = 64 };
  int64_t used = 0, before = -1;

  if (m->operand < 0) return columns;
  for (int64_t r = row; r < row + rows && used < columns; r++) {
    int64_t at = 0, rest = r;
    for (int d = m->rank - 1; d >= 0; d--) {
      at += rest % m->size[d] * m->step[d];
      rest /= m->size[d];
    }
    if (at == before) continue;
    before = at;
    const char *of_row = (const char *)args[m->operand] + at;
    uint64_t unused = m->is_unwanted ? UINT64_C(0x0101010101010101) : 0;
    for (int64_t c = (columns - 1) / STEP * STEP; c >= used; c -= STEP)
      if (cpu_has_other(of_row + c, WEFT_MIN(STEP, columns - c), unused)) used = c + STEP;
  }
  return WEFT_MIN(used, columns);
}

/* `field`: the exponent's bits, all set in infinities and NaNs; `bound`: what those of the numbers are less than. */
#define ALL_BELOW(name, type)                                                                                       \
  static CPU_HOT bool name(const void *x, type field, type bound, int64_t rows, int64_t row_step, int64_t n, int64_t step) \
  {                                                                                                                 \
    const type *row = x;                                                                                            \
    type any = 0;                                                                                                   \
    for (int64_t r = 0; r < rows; r++, row += row_step) {                                                           \
      if (step == 1)                                                                                                \
        for (int64_t j = 0; j < n; j++) any = (type)(any | ((row[j] & field) >= bound));                              \
      else                                                                                                          \
        for (int64_t j = 0; j < n; j++) any = (type)(any | ((row[j * step] & field) >= bound));                       \
    }                                                                                                               \
    return !any;                                                                                                    \
  }
ALL_BELOW(words_of_2_are_below, uint16_t)
ALL_BELOW(words_of_4_are_below, uint32_t)
ALL_BELOW(words_of_8_are_below, uint64_t)

bool cpu_all_below(weft_dtype type, int exponent, const void *x, int64_t rows, int64_t row_step, int64_t n,
                   int64_t step)
{
  static const struct { weft_dtype type; int mantissa, exponent_bits; } forms[] = {
    {WEFT_F16, 10, 5}, {WEFT_BF16, 7, 8}, {WEFT_F32, 23, 8}, {WEFT_F64, 52, 11},
  };

  if (row_step == 1 && step != 1) { /* neighbours lie along the rows */
    WEFT_SWAP(rows, n);
    WEFT_SWAP(row_step, step);
  }
  for (size_t i = 0; i < WEFT_COUNT(forms); i++) {
    if (forms[i].type != type) continue;
    int most = (1 << forms[i].exponent_bits) - 1, wanted = most / 2 + exponent; /* biased */
    uint64_t field = (uint64_t)most << forms[i].mantissa;
    uint64_t bound = (uint64_t)WEFT_MIN(most, wanted) << forms[i].mantissa;
    switch (weft_dtype_bytes(type)) {
    case 2: return words_of_2_are_below(x, (uint16_t)field, (uint16_t)bound, rows, row_step, n, step);
    case 4: return words_of_4_are_below(x, (uint32_t)field, (uint32_t)bound, rows, row_step, n, step);
    default: return words_of_8_are_below(x, field, bound, rows, row_step, n, step);
    }
  }
  return weft_dtype_is_integer(type);
}
