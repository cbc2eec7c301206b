/* codegen/emit/accumulate.c -- the running values of reductions. */
#include <config.h>

#include "codegen/emit/emit.h"

static bool is_plain(hlo_opcode op)
{
  return op == HLO_ADD || op == HLO_MULTIPLY || op == HLO_MAXIMUM || op == HLO_MINIMUM || op == HLO_AND ||
         op == HLO_OR || op == HLO_XOR;
}

weft_status *gen_accs_of(gen_emit *e, const hlo_instr *const *reduces, int count, gen_acc **out, int *out_count)
{
  int total = 0, at = 0;

  for (int i = 0; i < count; i++) total += reduces[i]->operand_count / 2;
  gen_acc *accs = WEFT_ARENA_ARRAY(e->arena, gen_acc, total);
  WEFT_TRY_ALLOC(accs);
  for (int i = 0; i < count; i++) {
    int n = reduces[i]->operand_count / 2;
    hlo_opcode op = n == 1 ? hlo_reducer_op(reduces[i]->called[0]) : HLO_OPCODE_COUNT;
    bool extreme = gen_is_extreme(reduces[i]);
    for (int k = 0; k < n; k++)
      accs[at++] = (gen_acc){.reduce = reduces[i],
                             .leaf = k,
                             .leaves = n,
                             .op = is_plain(op) ? op : HLO_OPCODE_COUNT,
                             .extreme = extreme,
                             .type = reduces[i]->operands[k]->shape->type};
  }
  *out = accs;
  *out_count = total;
  return NULL;
}

bool gen_accs_are_plain(const gen_acc *accs, int count)
{
  for (int i = 0; i < count; i++)
    if (accs[i].op == HLO_OPCODE_COUNT) return false;
  return true;
}

gen_value gen_acc_slot(gen_emit *e, weft_dtype type, int lanes)
{
  LLVMTypeRef t = gen_register_type(e->part, type);

  if (lanes > 1) t = LLVMVectorType(t, (unsigned)lanes);
  return (gen_value){gen_alloca(e, t, "acc"), weft_dtype_is_complex(type) ? gen_alloca(e, t, "acc") : NULL};
}

static void set_part(gen_emit *e, gen_ssa slot, gen_ssa v)
{
  LLVMTypeRef t = LLVMGetAllocatedType(slot);
  LLVMBuildStore(e->b, LLVMGetTypeKind(t) == LLVMVectorTypeKind ? gen_splat(e, v, (int)LLVMGetVectorSize(t)) : v, slot);
}

void gen_acc_set(gen_emit *e, gen_value slot, gen_value v)
{
  set_part(e, slot.re, v.re);
  if (slot.im) set_part(e, slot.im, v.im);
}

void gen_state_set(gen_emit *e, gen_value slot, weft_dtype type, gen_value v)
{
  if (weft_dtype_is_float(type) && weft_dtype_bits(type) < 32)
    v.re = gen_from_storage(e, type, gen_to_storage(e, type, v.re));
  gen_acc_set(e, slot, v);
}

gen_value gen_acc_get(gen_emit *e, gen_value slot)
{
  gen_value v = {LLVMBuildLoad2(e->b, LLVMGetAllocatedType(slot.re), slot.re, ""), NULL};
  if (slot.im) v.im = LLVMBuildLoad2(e->b, LLVMGetAllocatedType(slot.im), slot.im, "");
  return v;
}

gen_value gen_identity(gen_emit *e, hlo_opcode op, weft_dtype type)
{
  LLVMTypeRef t = gen_register_type(e->part, type);
  gen_ssa zero = LLVMConstNull(t);

  if (weft_dtype_is_float(type) || weft_dtype_is_complex(type)) {
    double v = op == HLO_ADD ? -0.0 : op == HLO_MULTIPLY ? 1 : op == HLO_MAXIMUM ? -__builtin_inf() : __builtin_inf();
    /* complex numbers are ordered as pairs, so both parts are extreme */
    bool extreme = op == HLO_MAXIMUM || op == HLO_MINIMUM;
    return (gen_value){LLVMConstReal(t, v), !weft_dtype_is_complex(type) ? NULL : extreme ? LLVMConstReal(t, v) : zero};
  }
  unsigned bits = LLVMGetIntTypeWidth(t);
  bool is_signed = weft_dtype_is_signed(type), is_pred = type == WEFT_PRED;
  uint64_t ones = ~UINT64_C(0), least = is_signed ? UINT64_C(1) << (bits - 1) : 0, most = is_signed ? least - 1 : ones;
  uint64_t v = op == HLO_MULTIPLY ? 1 : op == HLO_AND ? ones : op == HLO_MAXIMUM ? least : op == HLO_MINIMUM ? most : 0;

  if (is_pred) v = op == HLO_MULTIPLY || op == HLO_AND || op == HLO_MINIMUM;
  return (gen_value){LLVMConstInt(t, v, 0), NULL};
}

gen_value gen_combine(gen_emit *e, hlo_opcode op, weft_dtype type, gen_value a, gen_value b)
{
  bool is_float = weft_dtype_is_float(type) || weft_dtype_is_complex(type), is_pred = type == WEFT_PRED;

  switch (op) {
  case HLO_ADD:
    if (a.im) return (gen_value){gen_bin(e, LLVMFAdd, a.re, b.re), gen_bin(e, LLVMFAdd, a.im, b.im)};
    return (gen_value){gen_wrap_int(e, type,
                                    gen_bin(e,
                                            is_float  ? LLVMFAdd
                                            : is_pred ? LLVMOr
                                                      : LLVMAdd,
                                            a.re, b.re)),
                       NULL};
  case HLO_MULTIPLY:
    if (a.im) return gen_complex_mul(e, a, b);
    return (gen_value){gen_wrap_int(e, type,
                                    gen_bin(e,
                                            is_float  ? LLVMFMul
                                            : is_pred ? LLVMAnd
                                                      : LLVMMul,
                                            a.re, b.re)),
                       NULL};
  case HLO_MAXIMUM: case HLO_MINIMUM:
    if (a.im) {
      gen_value r;
      gen_complex_math(e, op, a, b, &r);
      return r;
    }
    return (gen_value){gen_max(e, type, op == HLO_MINIMUM, a.re, b.re), NULL};
  default: return (gen_value){gen_bin(e, op == HLO_AND ? LLVMAnd : op == HLO_OR ? LLVMOr : LLVMXor, a.re, b.re), NULL};
  }
}

/* ---- extremes of bits ------------------------------------------------------------------------------------------ */

/* As integers with a sign, floats without a sign bit are in order, and above all others; NaNs without a sign bit are
 * the greatest. As integers without a sign, floats that have the sign bit come last, and in reverse: -0 is the least
 * of them, then come greater magnitudes, -inf, and NaNs with a sign bit. So three extremes tell all. */
enum { MOST_SIGNED, MOST_UNSIGNED, LEAST_UNSIGNED, EXTREMES };
static const uint32_t plus_inf = 0x7f800000, minus_inf = 0xff800000;

/* The same for the bits of bf16, the upper half of those of the f32. */
static bool has_halves(LLVMTypeRef vector) { return LLVMGetIntTypeWidth(LLVMGetElementType(vector)) == 16; }
static int64_t upper_half(gen_ssa like, uint32_t bits)
{
  return has_halves(LLVMTypeOf(like)) ? (int16_t)(bits >> 16) : (int32_t)bits;
}

bool gen_has_extreme_slots(gen_emit *e, const gen_acc *acc)
{
#ifdef __x86_64__
  bool extreme = acc->op == HLO_MAXIMUM || acc->op == HLO_MINIMUM;
  return extreme && weft_dtype_is_float(acc->type) && gen_register_type(e->part, acc->type) == e->part->f32;
#else
  (void)e, (void)acc;
  return false; /* one instruction does it */
#endif
}

static gen_ssa extreme_place(gen_emit *e, gen_value slot, int which)
{
  LLVMValueRef at[2] = {gen_i64(e, 0), gen_i64(e, which)};
  return LLVMBuildInBoundsGEP2(e->b, LLVMGetAllocatedType(slot.re), slot.re, at, 2, "");
}

static gen_ssa extreme_load(gen_emit *e, gen_value slot, int which)
{
  LLVMTypeRef t = LLVMGetElementType(LLVMGetAllocatedType(slot.re));
  return LLVMBuildLoad2(e->b, t, extreme_place(e, slot, which), "");
}

gen_value gen_extreme_slot(gen_emit *e, const gen_acc *acc, int lanes)
{
  LLVMTypeRef element = acc->is_bf16 ? e->part->i16 : e->part->i32, vector = LLVMVectorType(element, (unsigned)lanes);
  gen_value slot = {gen_alloca(e, LLVMArrayType2(vector, EXTREMES), "acc"), NULL};
  /* the extremes of one infinity, the identity; MOST_SIGNED of -inf could be any number with a sign bit */
  uint32_t first = acc->op == HLO_MAXIMUM ? minus_inf : plus_inf;

  for (int k = 0; k < EXTREMES; k++) {
    gen_ssa v = LLVMConstInt(element, acc->is_bf16 ? first >> 16 : first, 0);
    LLVMBuildStore(e->b, gen_splat(e, v, lanes), extreme_place(e, slot, k));
  }
  return slot;
}

bool gen_is_extreme_slot(gen_value slot)
{
  return LLVMIsAAllocaInst(slot.re) && LLVMGetTypeKind(LLVMGetAllocatedType(slot.re)) == LLVMArrayTypeKind;
}

void gen_extreme_add(gen_emit *e, gen_value slot, gen_ssa v)
{
  static const char *const names[] = {"llvm.smax", "llvm.umax", "llvm.umin"};
  LLVMTypeRef vector = LLVMGetElementType(LLVMGetAllocatedType(slot.re));
  gen_ssa bits = gen_splat(e, v, (int)LLVMGetVectorSize(vector));

  bits = has_halves(vector) ? gen_bf16_bits(e, bits) : LLVMBuildBitCast(e->b, bits, vector, "");

  for (int k = 0; k < EXTREMES; k++)
    LLVMBuildStore(e->b, gen_intrinsic2(e, names[k], extreme_load(e, slot, k), bits), extreme_place(e, slot, k));
}

gen_value gen_extreme_get(gen_emit *e, gen_value slot, bool min)
{
  gen_ssa high = extreme_load(e, slot, MOST_SIGNED), last = extreme_load(e, slot, MOST_UNSIGNED);
  gen_ssa low = extreme_load(e, slot, LEAST_UNSIGNED), zero = gen_i(high, 0), r;

  if (min) {
    r = gen_select(e, gen_icmp(e, LLVMIntSLT, last, zero), last, low); /* NaNs with a sign bit are the last */
    r = gen_select(e, gen_icmp(e, LLVMIntSGT, high, gen_i(high, upper_half(high, plus_inf))), high, r);
  } else {
    r = gen_select(e, gen_icmp(e, LLVMIntSLT, high, zero), low, high); /* NaNs without one are the highest */
    r = gen_select(e, gen_icmp(e, LLVMIntUGT, last, gen_i(high, upper_half(high, minus_inf))), last, r);
  }
  if (has_halves(LLVMTypeOf(r))) return (gen_value){gen_decode_float(e, WEFT_BF16, r), NULL};
  return (gen_value){gen_cast(e, LLVMBitCast, r, e->part->f32), NULL};
}

weft_status *gen_acc_init(gen_emit *e, gen_env *env, gen_acc *acc, gen_value *out)
{
  const gen_index *at = gen_index_seal(gen_index_new(e, 0));
  return gen_emit_leaf(e, env, acc->reduce->operands[acc->leaves + acc->leaf], 0, at, out);
}

void gen_acc_reset(gen_emit *e, gen_acc *acc, int lanes)
{
  acc->slot = gen_acc_slot(e, acc->type, lanes);
  gen_acc_set(e, acc->slot, gen_identity(e, acc->op, acc->type));
}

weft_status *gen_accs_step(gen_emit *e, gen_env *env, const gen_acc *accs, int count, gen_value *slots,
                           const gen_index *idx)
{
  gen_value *v = WEFT_ARENA_ARRAY(e->arena, gen_value, count);

  WEFT_TRY_ALLOC(v);
  for (int i = 0; i < count; i++)
    WEFT_TRY(gen_emit_leaf(e, env, accs[i].reduce->operands[accs[i].leaf], 0, idx, &v[i]));
  for (int i = 0; i < count; i += accs[i].leaves) {
    int n = accs[i].leaves;
    if (gen_is_extreme_slot(slots[i])) {
      gen_extreme_add(e, slots[i], v[i].re);
      continue;
    }
    if (accs[i].op != HLO_OPCODE_COUNT) {
      gen_acc_set(e, slots[i], gen_combine(e, accs[i].op, accs[i].type, gen_acc_get(e, slots[i]), v[i]));
      continue;
    }
    gen_value *args = WEFT_ARENA_ARRAY(e->arena, gen_value, 2 * n);
    const gen_value *r;
    WEFT_TRY_ALLOC(args);
    for (int k = 0; k < n; k++) args[k] = gen_acc_get(e, slots[i + k]), args[n + k] = v[i + k];
    WEFT_TRY(gen_emit_apply(e, accs[i].reduce->called[0], args, &r));
    for (int k = 0; k < n; k++) gen_acc_set(e, slots[i + k], r[k]);
  }
  return NULL;
}

gen_value gen_acc_result(gen_emit *e, const gen_acc *acc, gen_value v)
{
  bool is_narrow = weft_dtype_is_float(acc->type) && acc->type != WEFT_F32 && acc->type != WEFT_F64;
  if (is_narrow && !e->part->options->allow_excess_precision) v.re = gen_round_to(e, acc->type, v.re);
  return v;
}
