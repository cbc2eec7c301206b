/* codegen/nvptx/sorted.c -- functions that the ways of sorting share: the places of elements, the integers that order
 * them, and moving elements to the places that sorted positions give. */
#include <config.h>

#include "codegen/nvptx/sort.h"

/* ---- elements -------------------------------------------------------------------------------------------------- */

gen_affine gen_sort_place(const gen_sorting *s, gen_emit *e, gen_ssa slice, gen_ssa at, int64_t length)
{
  gen_ssa outer = LLVMBuildUDiv(e->b, slice, gen_i64(e, s->inner), "");
  gen_ssa inner = LLVMBuildURem(e->b, slice, gen_i64(e, s->inner), "");
  gen_ssa row = LLVMBuildNSWAdd(e->b, LLVMBuildNSWMul(e->b, outer, gen_i64(e, length), ""), at, "");
  gen_ssa linear = LLVMBuildNSWAdd(e->b, LLVMBuildNSWMul(e->b, row, gen_i64(e, s->inner), ""), inner, "");

  return gen_affine_value(e, linear, 0, WEFT_MAX(s->slices * length - 1, 1));
}

gen_buffer gen_sort_bits(gen_buffer buffer)
{
  static const weft_dtype types[] = {[1] = WEFT_U8, [2] = WEFT_U16, [4] = WEFT_U32, [8] = WEFT_U64, [16] = WEFT_C128};

  buffer.type = types[weft_dtype_bytes(buffer.type)];
  return buffer;
}

gen_ssa gen_sort_key(gen_emit *e, const gen_key *key, gen_ssa bits, uint64_t inf)
{
  int width = (int)LLVMGetIntTypeWidth(LLVMTypeOf(bits));
  gen_ssa sign = LLVMConstInt(LLVMTypeOf(bits), UINT64_C(1) << (width - 1), 0), ones = gen_i(bits, -1), nan = NULL;

  if (weft_dtype_is_float(key->type)) {
    gen_ssa magnitude = LLVMBuildAnd(e->b, bits, LLVMBuildNot(e->b, sign, ""), "");
    if (key->merge_zeros) bits = gen_select(e, gen_icmp(e, LLVMIntEQ, magnitude, gen_i(bits, 0)), magnitude, bits);
    if (key->merge_nans) {
      nan = gen_icmp(e, LLVMIntUGT, magnitude, LLVMConstInt(LLVMTypeOf(bits), inf, 0));
      bits = gen_select(e, nan, LLVMBuildNot(e->b, sign, ""), bits);
    }
    gen_ssa negative = LLVMBuildAShr(e->b, bits, gen_i(bits, width - 1), "");
    bits = LLVMBuildXor(e->b, bits, LLVMBuildOr(e->b, negative, sign, ""), "");
  } else if (weft_dtype_is_signed(key->type)) {
    bits = LLVMBuildXor(e->b, bits, sign, "");
  }
  if (key->descending) bits = LLVMBuildNot(e->b, bits, "");
  return nan && key->nans_last ? gen_select(e, nan, ones, bits) : bits;
}

gen_ssa gen_sort_digit(gen_emit *e, const gen_key *key, gen_ssa bits, gen_ssa shift, int digits)
{
  uint64_t inf = 0;

  if (weft_dtype_is_float(key->type)) {
    const weft_float_format *f = weft_dtype_float_format(key->type);
    inf = ((UINT64_C(1) << f->exponent_bits) - 1) << f->mantissa_bits;
  }
  gen_ssa order = gen_sort_key(e, key, bits, inf);
  gen_ssa wide = LLVMTypeOf(order) == e->part->i64 ? order : gen_wide(e, order);
  gen_ssa digit = LLVMBuildTrunc(e->b, LLVMBuildLShr(e->b, wide, shift, ""), e->part->i32, "");
  return LLVMBuildAnd(e->b, digit, gen_small(e, digits - 1), "");
}

void gen_sort_split(gen_emit *e, gen_affine at, int64_t length, gen_ssa *slice, gen_ssa *position)
{
  *slice = gen_affine_ssa(e, gen_affine_digit(e, at, length, 0));
  *position = gen_affine_ssa(e, gen_affine_digit(e, at, 1, length));
}

weft_status *gen_sort_each(gen_sorting *s, int64_t n, gen_body_fn *body, void *ctx)
{
  gen_frame f;

  WEFT_TRY(gen_grid_open(s->g, false, &f));
  s->f = &f;
  WEFT_TRY(gen_grid_each(&f, n, body, ctx));
  return gen_grid_close_each(s->g, &f, n);
}

/* ---- lanes ----------------------------------------------------------------------------------------------------- */

gen_ssa gen_sort_lanes(gen_emit *e, const gen_team *team, gen_ssa digit, gen_ssa *out_is_first, gen_ssa *out_below)
{
  gen_ssa alike = gen_lanes_alike(e, digit);
  gen_ssa lower = LLVMBuildSub(e->b, LLVMBuildShl(e->b, gen_small(e, 1), team->lane, ""), gen_small(e, 1), "");

  *out_below = gen_intrinsic1(e, "llvm.ctpop", LLVMBuildAnd(e->b, alike, lower, ""));
  *out_is_first = gen_icmp(e, LLVMIntEQ, *out_below, gen_small(e, 0));
  return gen_intrinsic1(e, "llvm.ctpop", alike);
}

gen_ssa gen_sort_sum_lanes(gen_emit *e, const gen_team *team, gen_ssa v)
{
  for (int distance = 1; distance < GEN_WARP; distance *= 2) {
    gen_ssa has = gen_icmp(e, LLVMIntUGE, team->lane, gen_small(e, distance));
    gen_ssa other = gen_shuffle_up(e, team, (gen_value){v, NULL}, distance).re;
    v = LLVMBuildAdd(e->b, v, gen_select(e, has, other, gen_small(e, 0)), "");
  }
  return v;
}

/* ---- taking elements by their positions ------------------------------------------------------------------------ */

typedef struct taking {
  gen_sorting *s;
  int64_t positions, gathered;
  int but;
} taking;

/* Where the scratch has the sorted elements of operand `k`, or, with k = operands, what follows them. */
static int64_t gathered_offset(const gen_sorting *s, int but, int k)
{
  int64_t offset = 0;

  for (int i = 0; i < k; i++)
    if (i != but) offset += WEFT_ALIGN_UP(hlo_shape_bytes(s->instr->operands[i]->shape), (int64_t)GEN_SORT_ALIGN);
  return offset;
}

int64_t gen_sort_take_bytes(const gen_sorting *s, int but) { return gathered_offset(s, but, s->operands); }

static gen_buffer gathered(const taking *t, gen_emit *e, int k)
{
  gen_buffer array = gen_sort_bits(t->s->f->operands[k]);

  array.ptr = gen_byte_ptr(e, t->s->f->shared, t->gathered + gathered_offset(t->s, t->but, k));
  array.scope = array.noalias = NULL;
  array.invariant = false;
  return array;
}

static weft_status *gather_element(void *ctx, gen_emit *e, gen_affine at)
{
  const taking *t = ctx;
  const gen_sorting *s = t->s;
  gen_ssa slice, i;

  gen_sort_split(e, at, s->n, &slice, &i);
  gen_buffer numbers = {.ptr = gen_byte_ptr(e, s->f->shared, t->positions), .type = WEFT_S32, .elems = s->slices * s->n};
  gen_ssa number = gen_affine_ssa(e, at), from = gen_load_plain(e, &numbers, e->part->i32, number, 1);
  gen_affine there = gen_sort_place(s, e, slice, gen_wide(e, from), s->n), here = gen_sort_place(s, e, slice, i, s->n);
  for (int k = 0; k < s->operands; k++) {
    if (k == t->but) continue;
    gen_buffer in = gen_sort_bits(s->f->operands[k]), out = gathered(t, e, k);
    gen_store(e, &out, here, gen_load(e, &in, there));
  }
  return NULL;
}

static weft_status *store_gathered(void *ctx, gen_emit *e, gen_affine at)
{
  const taking *t = ctx;

  for (int k = 0; k < t->s->operands; k++) {
    if (k == t->but) continue;
    gen_buffer out = gen_sort_bits(t->s->f->results[k]), in = gathered(t, e, k);
    gen_store(e, &out, at, gen_load(e, &in, at));
  }
  return NULL;
}

weft_status *gen_sort_take(gen_sorting *s, int64_t positions, int64_t gathered, int but)
{
  taking t = {s, positions, gathered, but};

  WEFT_TRY(gen_sort_each(s, s->slices * s->n, gather_element, &t));
  return gen_sort_each(s, s->slices * s->n, store_gathered, &t);
}
