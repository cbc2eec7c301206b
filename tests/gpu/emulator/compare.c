/* tests/gpu/emulator/compare.c -- setp and set. */
#include <config.h>

#include "internal.h"
#include "numbers.h"

static bool ordered(int cmp, int order) /* order: -1, 0 or 1 */
{
  switch (cmp) {
  case PTX_EQ: case PTX_EQU: return order == 0;
  case PTX_NE: case PTX_NEU: return order != 0;
  case PTX_LT: case PTX_LTU: return order < 0;
  case PTX_LE: case PTX_LEU: return order <= 0;
  case PTX_GT: case PTX_GTU: return order > 0;
  case PTX_GE: case PTX_GEU: return order >= 0;
  default: return cmp == PTX_NUM;
  }
}

static bool compare_floats(int cmp, double a, double b)
{
  if (a != a || b != b) return cmp >= PTX_EQU && cmp != PTX_NUM;
  return ordered(cmp, a < b ? -1 : a > b);
}

static double number(ptx_type t, uint64_t v, bool ftz)
{
  if (t == PTX_F32) return (double)(ftz ? ptx_flush(ptx_f32(v)) : ptx_f32(v));
  return t == PTX_F64 ? ptx_f64(v) : t == PTX_F16 ? ptx_f16(v) : (double)ptx_bf16(v);
}

/* A bit for each lane: whether a and b compare so. */
static uint32_t compare(ptx_exec *x, const ptx_inst *i, ptx_type t)
{
  const uint64_t *A = ptx_in(x, i, 0), *B = ptx_in(x, i, 1);
  uint32_t r = 0;
#define LOOP(test) for (int l = 0; l < PTX_LANES; l++) r |= (uint32_t)(test) << l; break
#define INTEGERS(T)                                                    \
  switch (i->cmp) {                                                    \
  case PTX_EQ: LOOP((T)A[l] == (T)B[l]);                               \
  case PTX_NE: LOOP((T)A[l] != (T)B[l]);                               \
  case PTX_LT: LOOP((T)A[l] < (T)B[l]);                                \
  case PTX_LE: LOOP((T)A[l] <= (T)B[l]);                               \
  case PTX_GT: LOOP((T)A[l] > (T)B[l]);                                \
  default: LOOP((T)A[l] >= (T)B[l]);                                   \
  }                                                                    \
  break
  bool ftz = i->flags & PTX_F_FTZ;
  switch (t) {
  case PTX_U16: case PTX_B16: INTEGERS(uint16_t);
  case PTX_U32: case PTX_B32: INTEGERS(uint32_t);
  case PTX_U64: case PTX_B64: INTEGERS(uint64_t);
  case PTX_S16: INTEGERS(int16_t);
  case PTX_S32: INTEGERS(int32_t);
  case PTX_S64: INTEGERS(int64_t);
  default: LOOP(compare_floats(i->cmp, number(t, A[l], ftz), number(t, B[l], ftz)));
  }
  return r;
}

static uint32_t combine(ptx_exec *x, const ptx_inst *i, uint32_t r)
{
  if (!i->combine) return r;
  uint32_t p = ptx_in_pred(x, i, 2);
  return i->combine == PTX_AND ? r & p : i->combine == PTX_OR ? r | p : r ^ p;
}

static void set_predicate(ptx_exec *x, const ptx_inst *i, uint32_t mask)
{
  uint32_t r = compare(x, i, (ptx_type)i->type), first = combine(x, i, r),
           second = i->dst_count > 1 ? combine(x, i, ~r) : 0;
  ptx_out_pred(x, i, 0, mask, first);
  if (i->dst_count > 1) ptx_out_pred(x, i, 1, mask, second);
}

static void set_value(ptx_exec *x, const ptx_inst *i, uint32_t mask)
{
  uint32_t r = combine(x, i, compare(x, i, (ptx_type)i->from));
  uint64_t *d = ptx_out(x, i, 0), yes = i->type == PTX_F32    ? 0x3f800000u
                                        : i->type == PTX_F16  ? 0x3c00
                                        : i->type == PTX_BF16 ? 0x3f80
                                                              : ~0u;
  PTX_EACH(mask) d[l] = r >> l & 1 ? yes : 0;
}

ptx_handler *ptx_pick_compare(const ptx_inst *i)
{
  bool set = i->op == PTX_OP_set;
  if (!set && i->op != PTX_OP_setp) return NULL;
  ptx_type t = (ptx_type)(set ? i->from : i->type);
  if (t < PTX_B16 || t == PTX_U8 || t == PTX_S8 || t == PTX_TF32 || t > PTX_F64) return NULL;
  if (!ptx_is_float(t) && i->cmp > PTX_GE) return NULL;
  if (i->combine && i->src_count < 3) return NULL;
  return set ? set_value : set_predicate;
}
