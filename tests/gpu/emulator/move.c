/* tests/gpu/emulator/move.c -- mov, selp, slct, cvta, isspacep, and operations on predicates. */
#include <config.h>

#include "internal.h"
#include "numbers.h"

static void move_one(ptx_exec *x, const ptx_inst *i, uint32_t mask)
{
  const uint64_t *a = ptx_in(x, i, 0);
  uint64_t *d = ptx_out(x, i, 0);
  PTX_EACH(mask) d[l] = a[l];
}

static uint64_t low(int bits, uint64_t v) { return bits >= 64 ? v : v & ((1ull << bits) - 1); }

static void unpack(ptx_exec *x, const ptx_inst *i, uint32_t mask)
{
  const uint64_t *a = ptx_in(x, i, 0);
  int part = ptx_bytes(i->type) * 8 / i->dst_count;
  PTX_EACH(mask)
  {
    uint64_t v = a[l];
    for (int n = 0; n < i->dst_count; n++) ptx_out(x, i, n)[l] = low(part, v >> (n * part));
  }
}

static void pack(ptx_exec *x, const ptx_inst *i, uint32_t mask)
{
  uint64_t *d = ptx_out(x, i, 0);
  int part = ptx_bytes(i->type) * 8 / i->src_count;
  PTX_EACH(mask)
  {
    uint64_t v = 0;
    for (int n = 0; n < i->src_count; n++) v |= low(part, ptx_in(x, i, n)[l]) << (n * part);
    d[l] = v;
  }
}

static void select_by_predicate(ptx_exec *x, const ptx_inst *i, uint32_t mask)
{
  const uint64_t *a = ptx_in(x, i, 0), *b = ptx_in(x, i, 1);
  uint64_t *d = ptx_out(x, i, 0);
  uint32_t p = ptx_in_pred(x, i, 2);
  PTX_EACH(mask) d[l] = p >> l & 1 ? a[l] : b[l];
}

static void select_by_sign(ptx_exec *x, const ptx_inst *i, uint32_t mask)
{
  const uint64_t *a = ptx_in(x, i, 0), *b = ptx_in(x, i, 1), *c = ptx_in(x, i, 2);
  uint64_t *d = ptx_out(x, i, 0);
  PTX_EACH(mask)
  {
    float f = ptx_f32(c[l]);
    if (i->flags & PTX_F_FTZ) f = ptx_flush(f);
    d[l] = (i->from == PTX_F32 ? f >= 0 : (int32_t)c[l] >= 0) ? a[l] : b[l];
  }
}

static uint64_t window(ptx_space s)
{
  return s == PTX_SHARED  ? PTX_SHARED_WINDOW
         : s == PTX_LOCAL ? PTX_LOCAL_WINDOW
         : s == PTX_PARAM ? PTX_PARAM_WINDOW
                          : 0;
}

static void to_or_from_generic(ptx_exec *x, const ptx_inst *i, uint32_t mask)
{
  const uint64_t *a = ptx_in(x, i, 0);
  uint64_t *d = ptx_out(x, i, 0), base = window((ptx_space)i->space);
  PTX_EACH(mask) d[l] = i->flags & PTX_F_TO ? a[l] - base : a[l] + base;
}

static void is_in_space(ptx_exec *x, const ptx_inst *i, uint32_t mask)
{
  const uint64_t *a = ptx_in(x, i, 0);
  uint32_t r = 0;
  PTX_EACH(mask) r |= (uint32_t)((a[l] & PTX_WINDOW_MASK) == window((ptx_space)i->space)) << l;
  ptx_out_pred(x, i, 0, mask, r);
}

static void logic(ptx_exec *x, const ptx_inst *i, uint32_t mask)
{
  uint32_t a = ptx_in_pred(x, i, 0), b = i->src_count > 1 ? ptx_in_pred(x, i, 1) : 0;
  ptx_out_pred(x, i, 0, mask,
               i->op == PTX_OP_and   ? a & b
               : i->op == PTX_OP_or  ? a | b
               : i->op == PTX_OP_xor ? a ^ b
               : i->op == PTX_OP_not ? ~a
                                     : a);
}

ptx_handler *ptx_pick_move(const ptx_inst *i)
{
  if (i->type == PTX_PRED &&
      (i->op == PTX_OP_and || i->op == PTX_OP_or || i->op == PTX_OP_xor || i->op == PTX_OP_not || i->op == PTX_OP_mov))
    return logic;
  switch (i->op) {
  case PTX_OP_mov: return i->dst_count > 1 ? unpack : i->src_count > 1 ? pack : move_one;
  case PTX_OP_selp: return i->src_count == 3 ? select_by_predicate : NULL;
  case PTX_OP_slct: return i->src_count == 3 && (i->from == PTX_F32 || i->from == PTX_S32) ? select_by_sign : NULL;
  case PTX_OP_cvta: return to_or_from_generic;
  case PTX_OP_isspacep: return is_in_space;
  default: return NULL;
  }
}
