/* codegen/emit/math.c -- transcendental functions of f32 and f64 as branch-free polynomials on scalars or vectors.
 *
 * f32: exp, log, log1p, tanh, erf, erfc, rsqrt and logistic are computed in f32, and so are sin, cos and power where
 * the processor multiplies and adds in one step; the others are computed in f64 and rounded once.
 * f64: the argument is reduced in two parts where an ULP depends on it; power takes a logarithm of twice the
 * precision. Coefficients are minimax fits (Remez) of the form named beside each; the power of two is their error.
 * Small functions are inlined, the others become functions of the part. */
#include <config.h>

#include "codegen/emit/emit.h"

#include <stdio.h>

/* (exp(r) - 1 - r) / r^2, |r| <= ln(2)/2: 2^-28.3, 2^-57.9 */
static const double exp_f32[] = {0.4999999403953552, 0.1666652113199234, 0.04166838899254799, 0.0083687175065279,
                                 0.0013814602280035615};
/* (exp(r/2) - 1) / r, |r| <= ln(2): its square is exp to 2^-17.3, and for every bf16 the bf16 next to its exp */
static const double exp_bf16[] = {0.499982804, 0.125006437, 0.0209867954, 0.00259852433};
static const double exp_f64[] = {0.5000000000000011, 0.16666666666666413, 0.04166666666653016, 0.008333333333494465,
                                 0.0013888888943628943, 0.00019841269506565718, 2.4801493100071993e-05,
                                 2.7557586388429545e-06, 2.763024798982499e-07, 2.500005670878403e-08};
/* (log(1+f) - f) / f^2, -1/4 <= f <= 1/2: 2^-29.9 */
static const double log_f32[] = {-0.4999999701976776, 0.3333333134651184, -0.2500044107437134, 0.20000730454921722,
                                 -0.16649308800697327, 0.14240428805351257, -0.12727032601833344, 0.12000365555286407,
                                 -0.09748458117246628, 0.04172317683696747};
/* (log((1+s)/(1-s)) - 2s) / s^3 in s^2, s <= 0.1716: 2^-58.5; short: 2^-37 */
static const double log_f64[] = {0.6666666666666734, 0.39999999999414604, 0.2857142874240732, 0.22222198570883814,
                                 0.1818356445834741, 0.15314046879621146, 0.1479598909457754};
static const double log_short[] = {0.6666666564547995, 0.40000335186536506, 0.28537308770227293, 0.23582147580249851};
/* (log2((1+s)/(1-s)) - 2s/ln 2) / s^3 in s^2, |s| <= 0.1716: 2^-36; (2^r - 1) / r, |r| <= 1/2: 2^-28 */
static const double log2_f32[] = {0.9617967009544373, 0.5770788192749023, 0.41192731261253357, 0.33648842573165894};
static const double exp2_f32[] = {0.6931471824645996, 0.24022647738456726, 0.05550359934568405, 0.009618505835533142,
                                  0.0013390806270763278, 0.0001532646274426952};
/* (sin(r)/r - 1) / r^2 and (cos(r) - 1 + r^2/2) / r^4 in r^2, |r| <= pi/4: 2^-58, 2^-64; short: 2^-37, 2^-43 */
static const double sin_f64[] = {-0.16666666666666632, 0.008333333333322413, -0.00019841269829807737,
                                 2.755731369190013e-06, -2.505075811311524e-08, 1.5896795552811166e-10};
static const double cos_f64[] = {0.0416666666666666, -0.0013888888888874125, 2.4801587289482242e-05,
                                 -2.755731435234916e-07, 2.087572327532008e-09, -1.135964790296927e-11};
static const double sin_short[] = {-0.16666666641607233, 0.008333329383604662, -0.000198393340883875, 2.718304265747259e-06};
static const double cos_short[] = {0.04166666662279364, -0.0013888883750372565, 2.4799519192100893e-05,
                                   -2.721016923729394e-07};
/* (sin(r)/r - 1) / r^2 and (cos(r) - 1) / r^2 in r^2, |r| <= 0.825, for f32: 2^-27.4, 2^-32 */
static const double sin_f32[] = {-0.16666650772094727, 0.00833191815763712, -0.00019482863717712462};
static const double cos_f32[] = {-0.5, 0.04166663810610771, -0.0013886959059163928, 2.439365016471129e-05};
/* The same for |r| <= 0.8 and bf16: sin and cos to 2^-18, and for every bf16 the bf16 next to the result */
static const double sin_bf16[] = {-0.16663382947444916, 0.008162645623087883};
static const double cos_bf16[] = {-0.49999889731407166, 0.04165605083107948, -0.001359443529509008};
/* erf(x)/x - 1 in x^2, x <= 0.93: 2^-31; -log(erfc(x)), 0.91 <= x <= 4: 2^-34 */
static const double erf_small[] = {0.12837916612625122, -0.37612631916999817, 0.11283687502145767, -0.026858940720558167,
                                   0.005199906416237354, -0.0008130011847242713, 8.316772436955944e-05};
static const double erf_big[] = {-0.00017197453416883945, 1.1295018196105957, 0.6333734393119812, 0.10825081169605255,
                                 -0.02510043792426586, 0.004163833335042, -0.00043296709191054106, 2.0965439034625888e-05};
/* f64: the same, erf in x^2 for x <= 1: 2^-56; -log(erfc(x)) in (x - 1.75) / 0.75, 1 <= x <= 2.5: 2^-50.7, and in
 * (x - 4.25) / 1.75, 2.5 <= x <= 6: 2^-48 */
static const double erf_small_f64[] = {0.1283791670955126, -0.37612638903183754, 0.1128379167095512, -0.02686617064512984,
                                       0.0052239776254232985, -0.000854832702193483, 0.00012055332902888736,
                                       -1.4925647567519332e-05, 1.6462045441468418e-06, -1.6364642158167616e-07,
                                       1.4792401209404813e-08, -1.216456005728345e-09, 8.709045129053106e-11,
                                       -4.230945824295338e-12};
static const double erf_big_f64[] = {4.317863525433222, 2.9697081756100614, 0.5118413436544144, 0.008664823286003136,
                                     -0.001463356915660936, 0.00022878512864148298, -3.1061355966341276e-05,
                                     3.169102613242644e-06, -8.28453988319829e-08, -6.688933665430493e-08,
                                     2.2634084803665472e-08, -4.778402555179576e-09, 7.308732148184202e-10,
                                     -6.650535379435988e-11, -4.164525903209232e-12, 3.732214411119732e-12,
                                     -1.1480959900245918e-12, 2.009796891156184e-13};
static const double erf_far_f64[] = {20.107769901469695, 15.266607502163385, 2.9892590152172214, 0.017491629496275134,
                                     -0.004506834194229358, 0.0011879764645359777, -0.00031248336731152837,
                                     8.076240022054188e-05, -2.02501765377309e-05, 4.856280372937612e-06,
                                     -1.0889173088276693e-06, 2.2056669808883712e-07, -3.957595188508063e-08,
                                     4.108893224217647e-09, 2.5197361881742565e-09, -1.2323142825492614e-09};
/* exp(x^2) erfc(x) / t in t = 1 / (1 + 0.35 x), 0.8 <= x <= 10.3: 2^-26; erf(x)/x - 1 in x^2, x <= 0.815: 2^-26 */
static const double erfc_f32[] = {0.1974897344726712, 0.196939575433315, 0.19043197835732958, 0.13413014598884834,
                                  0.21493044987976825, -0.08827805730954746, 0.2558780346215802, -0.10157974130762595};
static const double erfc_near[] = {0.128379147367032, -0.37612551501665703, 0.11282683268581571, -0.026805647953382992,
                                   0.0050616623659572105, -0.0006402870582710822};
/* exp(x^2) erfc(x) in x / (1 + 0.4 x), x <= 10.1: 2^-17.2; exp(r), |r| <= ln(2)/2: 2^-17.7, of which the errors make up
 * for those of the former: for every bf16 the bf16 next to its erfc */
static const double erfc_bf16[] = {1, -1.12848985, 0.549295723, -0.133959189, 0.00565128680, 0.00453782221, -0.000750310428};
static const double exp_of_square[] = {0.99999642372, 0.99996054173, 0.50004214048, 0.16790859401, 0.041458491236};
/* f64 (Cephes): exp(x^2) erfc(x) as quotients of polynomials in x, x < 8 and x >= 8 */
static const double erfc_top[] = {5.57535335369399327526e2, 1.02755188689515710272e3, 9.34528527171957607540e2,
                                  5.26445194995477358631e2, 1.96520832956077098242e2, 4.86371970985681366614e1,
                                  7.46321056442269912687e0, 5.64189564831068821977e-1, 2.46196981473530512524e-10};
static const double erfc_bottom[] = {5.57535340817727675546e2, 1.65666309194161350182e3, 2.24633760818710981792e3,
                                     1.82390916687909736289e3, 9.75708501743205489753e2, 3.54937778887819891062e2,
                                     8.67072140885989742329e1, 1.32281951154744992508e1, 1.0};
static const double erfc_far_top[] = {2.97886665372100240670e0, 7.40974269950448939160e0, 6.16021097993053585195e0,
                                      5.01905042251180477414e0, 1.27536670759978104416e0, 5.64189583547755073984e-1};
static const double erfc_far_bottom[] = {3.36907645100081516050e0, 9.60896809063285878198e0, 1.70814450747565897222e1,
                                         1.20489539808096656605e1, 9.39603524938001434673e0, 2.26052863220117276590e0,
                                         1.0};
/* (atan(t)/t - 1) / t^2 in t^2, t <= tan(pi/8): 2^-64; short: 2^-40 */
static const double atan_f64[] = {-0.33333333333333326, 0.1999999999999769, -0.14285714285390505, 0.11111111088333438,
                                  -0.09090908150145319, 0.07692282885713024, -0.06666228634510063, 0.05877040190788683,
                                  -0.052185228682086165, 0.04504031557750272, -0.03348569082962231, 0.01520657302753394};
static const double atan_short[] = {-0.33333333296410556, 0.19999994403293914, -0.142854265035989, 0.1110405348199319,
                                    -0.08997271900334822, 0.06993065713353344, -0.03795524705253816};

#define POLY(e, x, table) poly((e), (x), (table), (int)WEFT_COUNT(table))

static gen_ssa poly(gen_emit *e, gen_ssa x, const double *c, int n)
{
  gen_ssa r = gen_f(x, c[n - 1]);
  for (int i = n - 2; i >= 0; i--) r = gen_fma(e, r, x, gen_f(x, c[i]));
  return r;
}

#define add(e, a, b) gen_bin(e, LLVMFAdd, a, b)
#define sub(e, a, b) gen_bin(e, LLVMFSub, a, b)
#define mul(e, a, b) gen_bin(e, LLVMFMul, a, b)
#define quo(e, a, b) gen_bin(e, LLVMFDiv, a, b)
static gen_ssa neg(gen_emit *e, gen_ssa a) { return LLVMBuildFNeg(e->b, a, ""); }
static gen_ssa abs_(gen_emit *e, gen_ssa a) { return gen_intrinsic1(e, "llvm.fabs", a); }
static gen_ssa sqrt_(gen_emit *e, gen_ssa a) { return gen_intrinsic1(e, "llvm.sqrt", a); }
static gen_ssa lt(gen_emit *e, gen_ssa a, double b) { return gen_fcmp(e, LLVMRealOLT, a, gen_f(a, b)); }
static gen_ssa gt(gen_emit *e, gen_ssa a, double b) { return gen_fcmp(e, LLVMRealOGT, a, gen_f(a, b)); }
static gen_ssa eq(gen_emit *e, gen_ssa a, double b) { return gen_fcmp(e, LLVMRealOEQ, a, gen_f(a, b)); }
static bool is_f64(gen_emit *e, gen_ssa a) { return gen_scalar_type(a) == e->part->f64; }
static gen_ssa to_bits(gen_emit *e, gen_ssa a)
{
  return gen_cast(e, LLVMBitCast, a, is_f64(e, a) ? e->part->i64 : e->part->i32);
}
static gen_ssa from_bits(gen_emit *e, gen_ssa a)
{
  return gen_cast(e, LLVMBitCast, a, gen_scalar_type(a) == e->part->i64 ? e->part->f64 : e->part->f32);
}
static gen_ssa widen(gen_emit *e, gen_ssa a) { return gen_cast(e, LLVMFPExt, a, e->part->f64); }
static gen_ssa narrow(gen_emit *e, gen_ssa a) { return gen_cast(e, LLVMFPTrunc, a, e->part->f32); }
static gen_ssa i_bin(gen_emit *e, LLVMOpcode op, gen_ssa a, int64_t b) { return gen_bin(e, op, a, gen_i(a, b)); }
/* |a| with the sign of s. On a GPU this is one instruction, and LLVM's copysign six; on a CPU both are two or
 * three. */
static gen_ssa with_sign(gen_emit *e, gen_ssa a, gen_ssa s)
{
  int64_t sign = is_f64(e, a) ? INT64_MIN : INT32_MIN;

  gen_ssa bits = gen_bin(e, LLVMOr, i_bin(e, LLVMAnd, to_bits(e, a), ~sign), i_bin(e, LLVMAnd, to_bits(e, s), sign));
  return from_bits(e, bits);
}
/* Into [lo, hi]; NaN stays. */
static gen_ssa clamp(gen_emit *e, gen_ssa x, double lo, double hi)
{
  x = gen_select(e, lt(e, x, lo), gen_f(x, lo), x);
  return gen_select(e, gt(e, x, hi), gen_f(x, hi), x);
}

/* The operation's result `near`, or what `compute` makes of it where `any` is true, of some lane if it is a vector.
 * y is the second operand, if there is one. */
typedef gen_ssa rare_lanes(gen_emit *e, hlo_opcode op, gen_ssa x, gen_ssa y, gen_ssa near);
static gen_ssa where_any(gen_emit *e, gen_ssa any, hlo_opcode op, gen_ssa x, gen_ssa y, gen_ssa near,
                         rare_lanes *compute)
{
  gen_rare rare;

  gen_rare_begin(e, &rare, any);
  return gen_rare_end(e, &rare, near, compute(e, op, x, y, near));
}

enum { TAME_LIMIT = 87 }; /* of |x|: exp(x) and exp(-x) of f32 are normal numbers */

/* ---- exp and its kin ------------------------------------------------------------------------------------------- */

/* -ln 2 as a sum, for f32. The first number times any n here is exact. */
static const double ln2_high = -0x1.62e4p-1, ln2_low = -0x1.7f7d1cf79abcap-20;

/* x = n ln 2 + r; *n as an integer. */
static gen_ssa reduce_ln2(gen_emit *e, gen_ssa x, gen_ssa *n)
{
  bool wide = is_f64(e, x);
  gen_ssa magic = gen_f(x, wide ? 0x1.8p52 : 0x1.8p23); /* adding it rounds to an integer, in the low bits */
  gen_ssa t = gen_fma(e, x, gen_f(x, 1.4426950408889634), magic), k = sub(e, t, magic), r;

  *n = gen_bin(e, LLVMSub, to_bits(e, t), LLVMConstBitCast(magic, LLVMTypeOf(to_bits(e, t))));
  r = gen_fma(e, k, gen_f(x, wide ? -0x1.62e42feep-1 : ln2_high), x);
  return gen_fma(e, k, gen_f(x, wide ? -0x1.a39ef35793c76p-33 : ln2_low), r);
}

static gen_ssa power_of_two(gen_emit *e, gen_ssa n)
{
  bool wide = gen_scalar_type(n) == e->part->i64;
  return from_bits(e, i_bin(e, LLVMShl, i_bin(e, LLVMAdd, n, wide ? 1023 : 127), wide ? 52 : 23));
}

/* exp(x + low) = p 2^n, with p near 1. `low` (NULL: 0) is far smaller than x. */
static gen_ssa exp_parts(gen_emit *e, gen_ssa x, gen_ssa low, gen_ssa *n)
{
  gen_ssa r = reduce_ln2(e, x, n), p;

  if (low) r = add(e, r, low);
  p = is_f64(e, x) ? POLY(e, r, exp_f64) : POLY(e, r, exp_f32);
  return add(e, gen_fma(e, p, mul(e, r, r), r), gen_f(r, 1));
}

/* exp(x) where neither x nor the result is extreme: the same bits as exp_. For f32, |x| <= 87; NaN stays. */
static gen_ssa tame_exp(gen_emit *e, gen_ssa x)
{
  gen_ssa n, p = exp_parts(e, x, NULL, &n);
  return mul(e, p, power_of_two(e, n));
}

/* p 2^n where p is near 1 and x = log(p 2^n), of f32. A NaN in x stays. `small`: it is 1 at most. */
static gen_ssa scale_f32(gen_emit *e, gen_ssa x, gen_ssa p, gen_ssa n, bool small)
{
  gen_ssa bits = gen_bin(e, LLVMAdd, to_bits(e, p), i_bin(e, LLVMShl, n, 23)), inf = gen_i(bits, 0x7f800000);
  gen_ssa magic = gen_f(x, 0x1p23), tiny = lt(e, x, -0x1.5d589ep+6); /* exp of the next x is denormal */

  /* beyond the largest number the bits are above those of infinity */
  gen_ssa r = from_bits(e, small ? bits : gen_select(e, gen_icmp(e, LLVMIntSGT, bits, inf), inf, bits));
  r = gen_fma(e, x, gen_f(x, 0), r);
  /* A denormal result, which would slow the processor down, is rounded as the integer that its bits are. */
  gen_ssa scaled = from_bits(e, i_bin(e, LLVMAdd, bits, 149 << 23));
  gen_ssa denormal = gen_bin(e, LLVMSub, to_bits(e, add(e, scaled, magic)), LLVMConstBitCast(magic, LLVMTypeOf(n)));
  return gen_select(e, tiny, from_bits(e, denormal), r);
}

/* True if x is -a a: then exp(x) is 1 at most, or NaN. */
static bool is_never_positive(gen_ssa x)
{
  gen_ssa square = gen_operand_of(x, LLVMFNeg, 0), a = square ? gen_operand_of(square, LLVMFMul, 0) : NULL;

  return a && a == gen_operand_of(square, LLVMFMul, 1);
}

/* exp(x) of f32 for -104 <= x <= 89 or NaN, where denormals are as quick as other numbers: the bits of the other way,
 * by fewer instructions. */
static gen_ssa exp_in_halves(gen_emit *e, gen_ssa x)
{
  gen_ssa magic = gen_f(x, 0x1.8p23 + 2 * 127); /* as in reduce_ln2; the low bits of t are n + 254 */
  gen_ssa t = gen_fma(e, x, gen_f(x, 1.4426950408889634), magic), k = sub(e, t, magic);
  gen_ssa r = gen_fma(e, k, gen_f(x, ln2_low), gen_fma(e, k, gen_f(x, ln2_high), x));
  gen_ssa p = add(e, gen_fma(e, POLY(e, r, exp_f32), mul(e, r, r), r), gen_f(r, 1));

  /* p 2^n as p 2^(n/2) 2^(n - n/2): only the last product is rounded */
  gen_ssa bits = to_bits(e, t), half = i_bin(e, LLVMLShr, bits, 1), rest = gen_bin(e, LLVMSub, bits, half);
  p = mul(e, p, from_bits(e, i_bin(e, LLVMShl, half, 23)));
  return mul(e, p, from_bits(e, i_bin(e, LLVMShl, rest, 23)));
}

/* Into [lo, hi]; NaN stays a NaN. GPUs that have bf16 have an instruction for each bound. */
static gen_ssa clamp_f32(gen_emit *e, gen_ssa x, double lo, double hi)
{
  if (!e->part->walker->quick_denormals || !e->part->target->has_bf16) return clamp(e, x, lo, hi);
  return gen_intrinsic2(e, "llvm.minimum", gen_intrinsic2(e, "llvm.maximum", x, gen_f(x, lo)), gen_f(x, hi));
}

/* exp(x + low), where `low` (NULL: 0) is far smaller than x, for every x. */
static gen_ssa exp_of_sum(gen_emit *e, gen_ssa x, gen_ssa low)
{
  bool small = !is_f64(e, x) && is_never_positive(x);
  gen_ssa n, p;

  if (small) x = gen_select(e, lt(e, x, -104), gen_f(x, -104), x);
  else x = is_f64(e, x) ? clamp(e, x, -746, 710) : clamp_f32(e, x, -104, 89);
  if (!is_f64(e, x) && !low && e->part->walker->quick_denormals) return exp_in_halves(e, x);
  p = exp_parts(e, x, low, &n);
  if (!is_f64(e, x)) return scale_f32(e, x, p, n, small);
  /* Multiplies by 2^n in two steps, since the last one may overflow. A denormal result is rounded as an integer. */
  gen_ssa half = i_bin(e, LLVMAShr, n, 1), rest = gen_bin(e, LLVMSub, n, half), magic = gen_f(x, 0x1p52);
  gen_ssa tiny = lt(e, x, -1022 * 0.6931471805599453);
  rest = gen_select(e, tiny, i_bin(e, LLVMAdd, rest, 1022 + 52), rest);
  gen_ssa r = mul(e, mul(e, p, power_of_two(e, half)), power_of_two(e, rest));
  gen_ssa bits = gen_bin(e, LLVMSub, to_bits(e, add(e, r, magic)), LLVMConstBitCast(magic, LLVMTypeOf(n)));
  return gen_select(e, tiny, from_bits(e, bits), r);
}

typedef gen_ssa exp_form(gen_emit *e, gen_ssa x);

/* `form` of x where no lane of x is extreme (|x| <= TAME_LIMIT), 0 where all lanes are so low that their exp is 0, else
 * `any`, which needs no such case. In most vectors no lane is extreme: a third of the instructions of `any` changes no
 * bit. Attention masks scores by numbers so low that most other vectors are 0. */
static gen_ssa exp_by_range(gen_emit *e, gen_ssa x, exp_form *form, exp_form *any)
{
  gen_ssa tame = gen_fcmp(e, LLVMRealOLE, abs_(e, x), gen_f(x, TAME_LIMIT)), low = lt(e, x, -104); /* false for NaN */
  LLVMBasicBlockRef from[3];
  gen_ssa r[3];
  gen_if outer, inner;

  gen_if_begin(e, &outer, gen_intrinsic1(e, "llvm.vector.reduce.and", tame));
  r[0] = form(e, x);
  from[0] = LLVMGetInsertBlock(e->b);
  gen_if_else(e, &outer);
  gen_if_begin(e, &inner, gen_intrinsic1(e, "llvm.vector.reduce.and", low));
  r[1] = gen_f(x, 0);
  from[1] = LLVMGetInsertBlock(e->b);
  gen_if_else(e, &inner);
  r[2] = any(e, x);
  from[2] = LLVMGetInsertBlock(e->b);
  gen_if_end(e, &inner);
  gen_ssa extreme = LLVMBuildPhi(e->b, LLVMTypeOf(x), "");
  LLVMAddIncoming(extreme, r + 1, from + 1, 2);
  r[1] = extreme;
  from[1] = LLVMGetInsertBlock(e->b);
  gen_if_end(e, &outer);
  gen_ssa phi = LLVMBuildPhi(e->b, LLVMTypeOf(x), "");
  LLVMAddIncoming(phi, r, from, 2);
  return phi;
}

/* exp of tame f32: the bits of exp_of_sum. */
static gen_ssa exp_of_tame(gen_emit *e, gen_ssa x)
{
  gen_ssa n, p = exp_parts(e, x, NULL, &n);
  return from_bits(e, gen_bin(e, LLVMAdd, to_bits(e, p), i_bin(e, LLVMShl, n, 23))); /* p 2^n */
}

static gen_ssa exp_of_any(gen_emit *e, gen_ssa x) { return exp_of_sum(e, x, NULL); }

/* True if vectors of x have forms for ranges. */
static bool has_ranges(gen_emit *e, gen_ssa x)
{
  return !is_f64(e, x) && gen_is_vector(x) && !e->part->walker->quick_denormals;
}

static gen_ssa exp_(gen_emit *e, gen_ssa x)
{
  return has_ranges(e, x) ? exp_by_range(e, x, exp_of_tame, exp_of_any) : exp_of_any(e, x);
}

/* x - k 2 ln 2, for |k| < 128. */
static gen_ssa reduce_by_2ln2(gen_emit *e, gen_ssa x, gen_ssa k)
{
  if (e->part->target->has_fma) return gen_fma(e, k, gen_f(x, -0x1.62e43p+0), x);
  gen_ssa r = gen_fma(e, k, gen_f(x, 2 * ln2_high), x); /* the product is exact */
  return gen_fma(e, k, gen_f(x, 2 * ln2_low), r);
}

/* exp(x/2) of f32 to 2^-18, for -104 <= x <= 89. */
static gen_ssa root_of_exp(gen_emit *e, gen_ssa x)
{
  gen_ssa magic = gen_f(x, 0x1.8p23 + 127); /* the low bits of t are n + 127 */
  gen_ssa t = gen_fma(e, x, gen_f(x, 0.7213475204444817), magic), k = sub(e, t, magic); /* 1 / (2 ln 2) */
  gen_ssa r = reduce_by_2ln2(e, x, k), p = gen_fma(e, POLY(e, r, exp_bf16), r, gen_f(r, 1));

  return mul(e, p, from_bits(e, i_bin(e, LLVMShl, to_bits(e, t), 23)));
}

static gen_ssa exp_bf16_of_tame(gen_emit *e, gen_ssa x)
{
  gen_ssa root = root_of_exp(e, x);
  return mul(e, root, root);
}

static gen_ssa exp_bf16_of_any(gen_emit *e, gen_ssa x)
{
  gen_ssa least = gen_f(x, 0x1p23), root;

  x = clamp_f32(e, x, -104, 89);
  root = root_of_exp(e, x);
  if (e->part->walker->quick_denormals) return mul(e, root, root);
  /* A denormal result is rounded as the integer that its bits are: see scale_f32. The square that is not taken then
   * must not be denormal either, and LLVM removes a choice by `tiny` that comes before one by `tiny`. */
  gen_ssa tiny = lt(e, x, -87.34), normal = gen_select(e, lt(e, root, 0x1.fep-64), gen_f(x, 0x1.fep-64), root);
  gen_ssa integer = gen_fma(e, mul(e, root, gen_f(x, 0x1p75)), mul(e, root, gen_f(x, 0x1p74)), least);
  gen_ssa denormal = gen_bin(e, LLVMSub, to_bits(e, integer), LLVMConstBitCast(least, LLVMTypeOf(to_bits(e, integer))));
  return gen_select(e, tiny, from_bits(e, denormal), mul(e, normal, normal));
}

/* The square of exp(x/2), whose exponent is far from both ends of f32's. */
gen_ssa gen_exp_bf16(gen_emit *e, gen_ssa x)
{
  return has_ranges(e, x) ? exp_by_range(e, x, exp_bf16_of_tame, exp_bf16_of_any) : exp_bf16_of_any(e, x);
}

/* f64 only: 2^n (1 + p) - 1 without cancellation. */
static gen_ssa expm1_(gen_emit *e, gen_ssa x)
{
  gen_ssa n, y = clamp(e, x, -40, 710), r = reduce_ln2(e, y, &n);
  gen_ssa p = gen_fma(e, POLY(e, r, exp_f64), mul(e, r, r), r), s = power_of_two(e, i_bin(e, LLVMSub, n, 1));
  gen_ssa h = gen_fma(e, s, p, sub(e, s, gen_f(s, 0.5)));

  return gen_select(e, eq(e, x, 0), x, add(e, h, h));
}

/* (e^2|x| - 1) / (e^2|x| + 1). From |x| = 10 on it rounds to 1; f64: from 25 on. */
static gen_ssa tanh_(gen_emit *e, gen_ssa x)
{
  bool wide = is_f64(e, x);
  gen_ssa a = abs_(e, x), limit = gen_f(x, 10), two = gen_f(x, 2), n, m;

  if (wide) {
    m = expm1_(e, mul(e, clamp(e, a, 0, 25), two));
  } else {
    a = gen_select(e, gt(e, a, 10), limit, a);
    gen_ssa r = reduce_ln2(e, add(e, a, a), &n), p = gen_fma(e, POLY(e, r, exp_f32), mul(e, r, r), r);
    gen_ssa s = power_of_two(e, n);
    m = gen_fma(e, s, p, sub(e, s, gen_f(s, 1)));
  }
  return with_sign(e, quo(e, m, add(e, m, two)), x);
}

static gen_ssa sinh_(gen_emit *e, gen_ssa x) /* f64 */
{
  gen_ssa a = abs_(e, x), m = expm1_(e, a), half = gen_f(x, 0.5), h = exp_(e, mul(e, a, half));
  gen_ssa r = mul(e, half, add(e, m, quo(e, m, add(e, m, gen_f(m, 1)))));

  return with_sign(e, gen_select(e, gt(e, a, 40), mul(e, mul(e, half, h), h), r), x);
}

static gen_ssa cosh_(gen_emit *e, gen_ssa x) /* f64 */
{
  gen_ssa a = abs_(e, x), half = gen_f(x, 0.5), h = exp_(e, mul(e, a, half)), g = exp_(e, a);
  gen_ssa r = mul(e, half, add(e, g, quo(e, gen_f(x, 1), g)));

  return gen_select(e, gt(e, a, 40), mul(e, mul(e, half, h), h), r);
}

/* ---- log and its kin ------------------------------------------------------------------------------------------- */

/* x = m 2^n for a positive, finite x. `least` is the bits of the least m; the greatest is below twice that. */
static gen_ssa mantissa_of(gen_emit *e, gen_ssa x, int64_t least, gen_ssa *out_n)
{
  bool wide = is_f64(e, x);
  int mantissa = wide ? 52 : 23, shift = wide ? 54 : 23;
  gen_ssa tiny = lt(e, x, wide ? 0x1p-1022 : 0x1p-126);
  gen_ssa scaled = gen_select(e, tiny, mul(e, x, gen_f(x, wide ? 0x1p54 : 0x1p23)), x);
  gen_ssa bits = i_bin(e, LLVMSub, to_bits(e, scaled), least), n = i_bin(e, LLVMAShr, bits, mantissa);

  *out_n = gen_bin(e, LLVMSub, n, gen_select(e, tiny, gen_i(n, shift), gen_i(n, 0)));
  return from_bits(e, i_bin(e, LLVMAdd, i_bin(e, LLVMAnd, bits, (INT64_C(1) << mantissa) - 1), least));
}

/* ---- log of f32 */

enum { THREE_QUARTERS = 0x3f400000, ROOT_OF_HALF = 0x3f3504f3 };
/* u = m 2^n for a positive, normal u: the bits of f32 that are -n in the exponent's place. `least` is the bits of the
 * least m; the greatest is below twice that. */
static gen_ssa steps_down(gen_emit *e, gen_ssa u, int32_t least)
{
  enum { MANTISSA = 0x7fffff };
  gen_ssa bits = to_bits(e, u);

  return i_bin(e, LLVMAnd, gen_bin(e, LLVMSub, gen_i(bits, least + MANTISSA), bits), ~(int64_t)MANTISSA);
}

/* The number whose exponent is greater by what `steps` has in the exponent's place. */
static gen_ssa scaled_by(gen_emit *e, gen_ssa x, gen_ssa steps)
{
  return from_bits(e, gen_bin(e, LLVMAdd, to_bits(e, x), steps));
}

/* log((1 + f) 2^n) of f32 for -1/4 <= f < 1/2, where `down` is -n in the exponent's place. If n is 0, a zero keeps its
 * sign. */
static gen_ssa log_of_parts(gen_emit *e, gen_ssa f, gen_ssa down)
{
  gen_ssa k = gen_cast(e, LLVMSIToFP, down, e->part->f32), f2 = mul(e, f, f); /* -n 2^23 */
  gen_ssa rest = gen_fma(e, k, gen_f(k, -0x1.7f7d1cf79abcap-20 * 0x1p-23), mul(e, POLY(e, f, log_f32), f2));

  return gen_fma(e, k, gen_f(k, -0x1.62e4p-1 * 0x1p-23), add(e, f, rest)); /* the product is exact */
}

/* True unless u is positive, normal and finite. */
static gen_ssa is_special(gen_emit *e, gen_ssa u)
{
  gen_ssa above = i_bin(e, LLVMSub, to_bits(e, u), 0x00800000);
  return gen_icmp(e, LLVMIntUGE, above, gen_i(above, 0x7f000000));
}

/* `log`, or the logarithm of u if u is not an ordinary number: infinity and NaN yield themselves. */
static gen_ssa log_or_special(gen_emit *e, gen_ssa u, gen_ssa ordinary, gen_ssa log)
{
  gen_ssa special = gen_select(e, lt(e, u, 0), gen_f(u, __builtin_nan("")), u);

  special = gen_select(e, eq(e, u, 0), gen_f(u, -__builtin_inf()), special);
  return gen_select(e, ordinary, log, special);
}

/* log(x) of f32, for a positive, normal and finite x. */
static gen_ssa log_of_normal(gen_emit *e, gen_ssa x, int steps)
{
  gen_ssa down = steps_down(e, x, THREE_QUARTERS), m = scaled_by(e, x, down);
  return log_of_parts(e, sub(e, m, gen_f(m, 1)), steps ? i_bin(e, LLVMAdd, down, (int64_t)steps << 23) : down);
}

static gen_ssa log_of_denormals(gen_emit *e, hlo_opcode op, gen_ssa x, gen_ssa y, gen_ssa near)
{
  (void)op, (void)y;
  return gen_select(e, lt(e, x, 0x1p-126), log_of_normal(e, mul(e, x, gen_f(x, 0x1p23)), 23), near);
}

static gen_ssa log_of_specials(gen_emit *e, hlo_opcode op, gen_ssa x, gen_ssa y, gen_ssa near)
{
  gen_ssa positive = gt(e, x, 0), denormal = gen_bin(e, LLVMAnd, positive, lt(e, x, 0x1p-126));

  near = where_any(e, denormal, op, x, y, near, log_of_denormals);
  return log_or_special(e, x, gen_bin(e, LLVMAnd, positive, lt(e, x, __builtin_inf())), near);
}

/* Without branches: in a block of scalars, LLVM joins neighbours to vectors, and what does not wait runs at once. */
static gen_ssa log_of_scalar(gen_emit *e, gen_ssa x)
{
  gen_ssa denormal = lt(e, x, 0x1p-126), u = gen_select(e, denormal, mul(e, x, gen_f(x, 0x1p23)), x);
  gen_ssa down = steps_down(e, u, THREE_QUARTERS), m = scaled_by(e, u, down);
  gen_ssa steps = gen_select(e, denormal, i_bin(e, LLVMAdd, down, INT64_C(23) << 23), down);
  gen_ssa ordinary = gen_bin(e, LLVMAnd, gt(e, x, 0), lt(e, x, __builtin_inf()));

  return log_or_special(e, x, ordinary, log_of_parts(e, sub(e, m, gen_f(m, 1)), steps));
}

static gen_ssa short_log(gen_emit *e, gen_ssa x)
{
  if (!gen_is_vector(x)) return log_of_scalar(e, x);
  return where_any(e, is_special(e, x), HLO_LOG, x, NULL, log_of_normal(e, x, 0), log_of_specials);
}

static gen_ssa log1p_of_specials(gen_emit *e, hlo_opcode op, gen_ssa x, gen_ssa y, gen_ssa near)
{
  gen_ssa u = add(e, x, gen_f(x, 1));

  (void)op, (void)y;
  return log_or_special(e, u, i_bin(e, LLVMXor, is_special(e, u), -1), near);
}

/* log(1 + x) of f32. With 1 + x = m 2^n (rounded), f is x 2^-n - (1 - 2^-n). All three are exact: the terms of the
 * difference are within a factor of two unless n is 0. */
static gen_ssa short_log1p(gen_emit *e, gen_ssa x)
{
  gen_ssa u = add(e, x, gen_f(x, 1)), down = steps_down(e, u, THREE_QUARTERS), moved = scaled_by(e, x, down);
  gen_ssa scale = from_bits(e, i_bin(e, LLVMAdd, down, 0x40800000)); /* 4 2^-n, which is normal */
  gen_ssa near = log_of_parts(e, sub(e, moved, gen_fma(e, scale, gen_f(x, -0.25), gen_f(x, 1))), down);

  if (!gen_is_vector(x)) return log1p_of_specials(e, HLO_LOG1P, x, NULL, near);
  return where_any(e, is_special(e, u), HLO_LOG1P, x, NULL, near, log1p_of_specials);
}

/* log(x + low) of f64, where `low` (NULL: 0) is the rounding error of x. */
static gen_ssa log_of_sum(gen_emit *e, gen_ssa x, gen_ssa low)
{
  gen_ssa n, m = mantissa_of(e, x, INT64_C(0x3fe6a09e00000000), &n); /* sqrt(1/2) */
  gen_ssa f = sub(e, m, gen_f(m, 1)), f2 = mul(e, f, f);
  gen_ssa k = gen_cast(e, LLVMSIToFP, gen_cast(e, LLVMTrunc, n, e->part->i32), e->part->f64);
  gen_ssa s = quo(e, f, add(e, f, gen_f(f, 2))), z = mul(e, s, s), half = mul(e, f2, gen_f(f, 0.5));
  gen_ssa t = mul(e, s, gen_fma(e, POLY(e, z, log_f64), z, half));

  t = gen_fma(e, k, gen_f(k, 0x1.a39ef35793c76p-33), t);
  if (low) t = add(e, t, quo(e, low, x));
  gen_ssa ordinary = gen_bin(e, LLVMAnd, gt(e, x, 0), lt(e, x, __builtin_inf()));
  return log_or_special(e, x, ordinary, gen_fma(e, k, gen_f(k, 0x1.62e42feep-1), sub(e, f, sub(e, half, t))));
}

static gen_ssa log_(gen_emit *e, gen_ssa x) { return is_f64(e, x) ? log_of_sum(e, x, NULL) : short_log(e, x); }

static gen_ssa log1p_(gen_emit *e, gen_ssa x)
{
  if (!is_f64(e, x)) return short_log1p(e, x);
  gen_ssa one = gen_f(x, 1), u = add(e, x, one), d = sub(e, u, one);
  gen_ssa lost = gen_select(e, lt(e, abs_(e, x), 1), sub(e, x, d), sub(e, one, sub(e, u, x)));

  return gen_select(e, eq(e, x, 0), x, log_of_sum(e, u, lost));
}

/* One step of Newton's method corrects what two roundings lost; 0, infinity and NaN are right without it. */
static gen_ssa rsqrt_(gen_emit *e, gen_ssa x)
{
  gen_ssa y = quo(e, gen_f(x, 1), sqrt_(e, x)), error = gen_fma(e, neg(e, mul(e, x, y)), y, gen_f(x, 1));
  gen_ssa better = gen_fma(e, mul(e, error, gen_f(x, 0.5)), y, y);
  gen_ssa ordinary = gen_bin(e, LLVMAnd, gt(e, x, 0), gen_fcmp(e, LLVMRealOLT, x, gen_f(x, __builtin_inf())));

  return gen_select(e, ordinary, better, y);
}

static gen_ssa asinh_(gen_emit *e, gen_ssa x) /* f64 */
{
  gen_ssa a = abs_(e, x), one = gen_f(x, 1), a2 = mul(e, a, a);
  gen_ssa r = log1p_(e, add(e, a, quo(e, a2, add(e, one, sqrt_(e, add(e, a2, one))))));
  gen_ssa far = add(e, log_(e, a), gen_f(x, 0.6931471805599453));

  return with_sign(e, gen_select(e, gt(e, a, 1e150), far, r), x);
}

static gen_ssa acosh_(gen_emit *e, gen_ssa x) /* f64 */
{
  gen_ssa t = sub(e, x, gen_f(x, 1)), r = log1p_(e, add(e, t, sqrt_(e, mul(e, t, add(e, t, gen_f(t, 2))))));

  r = gen_select(e, gt(e, x, 1e150), add(e, log_(e, x), gen_f(x, 0.6931471805599453)), r);
  return gen_select(e, lt(e, x, 1), gen_f(x, __builtin_nan("")), r);
}

static gen_ssa atanh_(gen_emit *e, gen_ssa x) /* f64 */
{
  gen_ssa a = abs_(e, x), t = quo(e, add(e, a, a), sub(e, gen_f(a, 1), a));
  return with_sign(e, mul(e, gen_f(x, 0.5), log1p_(e, t)), x);
}

static gen_ssa cbrt_(gen_emit *e, gen_ssa x) /* f64; one Newton step corrects what the exponential loses */
{
  gen_ssa tiny = lt(e, abs_(e, x), 0x1p-900), a = abs_(e, x); /* so that no product below is denormal */
  a = gen_select(e, tiny, mul(e, a, gen_f(a, 0x1p300)), a);
  gen_ssa t = exp_(e, quo(e, log_(e, a), gen_f(a, 3))), t2 = mul(e, t, t);
  gen_ssa better = sub(e, t, quo(e, sub(e, mul(e, t2, t), a), mul(e, gen_f(t, 3), t2)));
  gen_ssa plain = gen_bin(e, LLVMAnd, gt(e, a, 0), lt(e, a, __builtin_inf()));

  better = gen_select(e, tiny, mul(e, better, gen_f(a, 0x1p-100)), better);
  return with_sign(e, gen_select(e, plain, better, a), x);
}

/* ---- power ----------------------------------------------------------------------------------------------------- */

/* A number as the sum of two f64, the second of which is at most half an ULP of the first. */
typedef struct pair {
  gen_ssa hi, lo;
} pair;

static gen_ssa exact_fma(gen_emit *e, gen_ssa a, gen_ssa b, gen_ssa c)
{
  gen_unify3(e, &a, &b, &c);
  return gen_intrinsic(e, "llvm.fma", 3, (gen_ssa[]){a, b, c});
}

/* a + b, where a is 0 or larger than b, plus what is known to be smaller still. */
static pair sum_of(gen_emit *e, gen_ssa a, gen_ssa b, gen_ssa rest)
{
  gen_ssa hi = add(e, a, b);
  return (pair){hi, add(e, add(e, sub(e, a, hi), b), rest)};
}

static pair product_of(gen_emit *e, pair a, pair b)
{
  gen_ssa hi = mul(e, a.hi, b.hi), lost = exact_fma(e, a.hi, b.hi, neg(e, hi));
  return (pair){hi, add(e, lost, add(e, mul(e, a.hi, b.lo), mul(e, a.lo, b.hi)))};
}

/* log of a positive, finite f64 to 2^-65 of it: with s = (m - 1) / (m + 1), log(m) = 2s (1 + s^2/3 + s^4/5 + ...). */
static pair log_pair(gen_emit *e, gen_ssa x)
{
  static const double series[] = {1.0 / 5, 1.0 / 7, 1.0 / 9, 1.0 / 11, 1.0 / 13, 1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21,
                                  1.0 / 23, 1.0 / 25, 1.0 / 27};
  gen_ssa one = gen_f(x, 1), zero = gen_f(x, 0), n;
  gen_ssa m = mantissa_of(e, x, INT64_C(0x3fe6a09e00000000), &n); /* sqrt(1/2) */
  gen_ssa k = gen_cast(e, LLVMSIToFP, gen_cast(e, LLVMTrunc, n, e->part->i32), e->part->f64);

  gen_ssa f = sub(e, m, one), d = add(e, m, one), d_lost = sub(e, m, sub(e, d, one)), q = quo(e, f, d);
  gen_ssa rest = sub(e, exact_fma(e, neg(e, q), d, f), mul(e, q, d_lost));
  pair s = {q, quo(e, rest, d)}, t = product_of(e, s, s);
  pair third =
    sum_of(e, gen_f(x, 0x1.5555555555555p-2), mul(e, t.hi, POLY(e, t.hi, series)), gen_f(x, 0x1.5555555555555p-56));
  pair twice = {add(e, s.hi, s.hi), add(e, s.lo, s.lo)}, more = product_of(e, twice, product_of(e, t, third));
  pair mantissa = sum_of(e, twice.hi, more.hi, add(e, twice.lo, more.lo));
  /* ln 2 in two pieces: the product of the first with k is exact */
  gen_ssa whole = mul(e, k, gen_f(k, 0x1.62e42fefa3800p-1)), part = mul(e, k, gen_f(k, 0x1.ef35793c76730p-45));
  pair log = sum_of(e, whole, mantissa.hi, add(e, mantissa.lo, part));
  return sum_of(e, log.hi, log.lo, zero);
}

/* exp(y log(a)) of f64 for a >= 0. */
static gen_ssa power_wide(gen_emit *e, gen_ssa a, gen_ssa y)
{
  pair log = log_pair(e, a);
  gen_ssa inf = gen_f(a, __builtin_inf());
  gen_ssa ordinary = gen_bin(e, LLVMAnd, gt(e, a, 0), gen_fcmp(e, LLVMRealOLT, a, inf));

  log.hi = gen_select(e, ordinary, log.hi, gen_select(e, eq(e, a, 0), neg(e, inf), a));
  gen_ssa hi = mul(e, y, log.hi), lo = add(e, exact_fma(e, y, log.hi, neg(e, hi)), mul(e, y, log.lo));
  gen_ssa small = gen_bin(e, LLVMAnd, ordinary, lt(e, abs_(e, hi), 800)); /* beyond, the result is 0 or infinity */
  return exp_of_sum(e, hi, gen_select(e, small, lo, gen_f(a, 0)));
}

/* exp(y log(a)) of f32 for a >= 0, by way of f64: log(a) to 2^-37 of it, exp to 2^-28. */
static gen_ssa power_short(gen_emit *e, gen_ssa a, gen_ssa y)
{
  gen_ssa n, m = widen(e, mantissa_of(e, a, 0x3f3504f3, &n)); /* sqrt(1/2) */
  gen_ssa k = gen_cast(e, LLVMSIToFP, n, e->part->f64), one = gen_f(m, 1);

  gen_ssa s = quo(e, sub(e, m, one), add(e, m, one)), z = mul(e, s, s);
  gen_ssa log = mul(e, s, gen_fma(e, POLY(e, z, log_short), z, gen_f(z, 2)));
  log = gen_fma(e, k, gen_f(k, 0.6931471805599453), log);

  /* beyond these bounds the result is 0 or infinity; within them 2^n is a normal f64 */
  gen_ssa x = clamp(e, mul(e, widen(e, y), log), -110, 95), magic = gen_f(x, 0x1.8p52);
  gen_ssa t = gen_fma(e, x, gen_f(x, 1.4426950408889634), magic);
  gen_ssa r = gen_fma(e, sub(e, t, magic), gen_f(x, -0.6931471805599453), x);
  gen_ssa p = add(e, gen_fma(e, POLY(e, r, exp_f32), mul(e, r, r), r), one);
  gen_ssa power = narrow(e, from_bits(e, gen_bin(e, LLVMAdd, to_bits(e, p), i_bin(e, LLVMShl, to_bits(e, t), 52))));

  /* a = 0, infinity or NaN: log(a) is minus infinity or a */
  gen_ssa inf = gen_f(a, __builtin_inf()), edge = mul(e, y, gen_select(e, eq(e, a, 0), neg(e, inf), a));
  gen_ssa ordinary = gen_bin(e, LLVMAnd, gt(e, a, 0), gen_fcmp(e, LLVMRealOLT, a, inf));
  return gen_select(e, ordinary, power, gen_select(e, lt(e, edge, 0), gen_f(a, 0), edge));
}

/* log2 of a positive, normal and finite f32 to 2^-34 of it, as a sum: with s = (m - 1) / (m + 1), log2(m) is
 * 2s / ln 2 + s^3 P(s^2). */
static pair log2_pair(gen_emit *e, gen_ssa x)
{
  gen_ssa down = steps_down(e, x, ROOT_OF_HALF), m = scaled_by(e, x, down), f = sub(e, m, gen_f(m, 1)),
          two = gen_f(m, 2);
  gen_ssa k = mul(e, gen_cast(e, LLVMSIToFP, down, e->part->f32), gen_f(m, -0x1p-23));

  /* s */
  gen_ssa d = add(e, f, two), d_lost = sub(e, f, sub(e, d, two)), inverse = quo(e, gen_f(m, 1), d),
          hi = mul(e, f, inverse);
  gen_ssa rest = exact_fma(e, neg(e, hi), d_lost, exact_fma(e, neg(e, hi), d, f));
  pair s = {hi, mul(e, rest, inverse)};
  /* w = s^2, p = P(w) */
  gen_ssa square = mul(e, s.hi, s.hi), low = exact_fma(e, s.hi, s.hi, neg(e, square));
  pair w = {square, exact_fma(e, add(e, s.hi, s.hi), s.lo, low)};
  gen_ssa tail = poly(e, w.hi, log2_f32 + 1, (int)WEFT_COUNT(log2_f32) - 1), first = gen_f(m, log2_f32[0]);
  gen_ssa sum = exact_fma(e, w.hi, tail, first);
  pair p = {sum, exact_fma(e, w.hi, tail, sub(e, first, sum))};
  /* q = 2 / ln 2 + w p */
  gen_ssa twice = gen_f(m, 0x1.715476p+1), product = mul(e, w.hi, p.hi);
  low = exact_fma(e, w.hi, p.hi, neg(e, product));
  low = exact_fma(e, w.lo, p.hi, exact_fma(e, w.hi, p.lo, add(e, low, gen_f(m, 0x1.4ae0bf86p-25))));
  pair q = sum_of(e, twice, product, low);
  /* k + s q */
  product = mul(e, s.hi, q.hi);
  low = exact_fma(e, s.hi, q.lo, exact_fma(e, s.lo, q.hi, exact_fma(e, s.hi, q.hi, neg(e, product))));
  return sum_of(e, k, product, low);
}

/* x^y of f32 for x < 0, and for the operands that power_f32 leaves out. */
static gen_ssa power_of_specials(gen_emit *e, hlo_opcode op, gen_ssa x, gen_ssa y, gen_ssa r)
{
  (void)op;
  gen_ssa a = abs_(e, x), half = mul(e, y, gen_f(y, 0.5));
  gen_ssa is_int = gen_fcmp(e, LLVMRealOEQ, gen_intrinsic1(e, "llvm.floor", y), y);
  gen_ssa even = gen_fcmp(e, LLVMRealOEQ, gen_intrinsic1(e, "llvm.floor", half), half);
  gen_ssa odd = gen_bin(e, LLVMAnd, is_int, i_bin(e, LLVMXor, even, -1));
  gen_ssa negative = gen_icmp(e, LLVMIntSLT, to_bits(e, x), gen_i(to_bits(e, x), 0));
  gen_ssa one = gen_f(x, 1), below = gen_bin(e, LLVMAnd, lt(e, x, 0), gt(e, x, -__builtin_inf()));

  r = gen_select(e, eq(e, a, 1), gen_select(e, gen_fcmp(e, LLVMRealUNO, y, y), y, one), r);
  r = gen_select(e, gen_bin(e, LLVMAnd, negative, odd), neg(e, r), r);
  r = gen_select(e, gen_bin(e, LLVMAnd, below, i_bin(e, LLVMXor, is_int, -1)), gen_f(x, __builtin_nan("")), r);
  return gen_select(e, gen_bin(e, LLVMOr, eq(e, y, 0), eq(e, x, 1)), one, r);
}

/* The least product y log2|x| whose power is left to power_short: all lesser ones are normal numbers. */
enum { POWER_LIMIT = 125 };

static gen_ssa is_rare_power(gen_emit *e, gen_ssa a, gen_ssa exponent)
{
  gen_ssa tame = gen_fcmp(e, LLVMRealOLE, abs_(e, exponent), gen_f(exponent, POWER_LIMIT)); /* false for NaN */
  return gen_bin(e, LLVMOr, is_special(e, a), i_bin(e, LLVMXor, tame, -1));
}

/* |x|^y of f32 where log2|x| or the power is not ordinary. */
static gen_ssa rare_powers(gen_emit *e, hlo_opcode op, gen_ssa x, gen_ssa y, gen_ssa near)
{
  gen_ssa a = abs_(e, x);

  (void)op;
  return gen_select(e, is_rare_power(e, a, mul(e, y, log2_pair(e, a).hi)), power_short(e, a, y), near);
}

/* x^y of f32 without f64. */
static gen_ssa power_f32(gen_emit *e, gen_ssa x, gen_ssa y)
{
  gen_ssa a = abs_(e, x), magic = gen_f(x, 0x1.8p23);
  pair log = log2_pair(e, a);
  gen_ssa hi = mul(e, y, log.hi), lo = exact_fma(e, y, log.lo, exact_fma(e, y, log.hi, neg(e, hi)));
  gen_ssa t = add(e, hi, magic), r = add(e, sub(e, hi, sub(e, t, magic)), lo);
  gen_ssa p = exact_fma(e, POLY(e, r, exp2_f32), r, gen_f(r, 1));
  gen_ssa near = scaled_by(e, p, i_bin(e, LLVMShl, to_bits(e, t), 23)), rare = is_rare_power(e, a, hi);
  gen_ssa negative = gen_icmp(e, LLVMIntSLT, to_bits(e, x), gen_i(to_bits(e, x), 0));

  near = where_any(e, rare, HLO_POWER, x, y, near, rare_powers);
  return where_any(e, gen_bin(e, LLVMOr, rare, negative), HLO_POWER, x, y, near, power_of_specials);
}

static gen_ssa power_(gen_emit *e, gen_ssa x, gen_ssa y)
{
  gen_unify(e, &x, &y);
  if (!is_f64(e, x) && e->part->target->has_fma) return power_f32(e, x, y);
  gen_ssa a = abs_(e, x);
  return power_of_specials(e, HLO_POWER, x, y, is_f64(e, x) ? power_wide(e, a, y) : power_short(e, a, y));
}

static gen_ssa erf_(gen_emit *e, gen_ssa x) /* f32 */
{
  gen_ssa a = abs_(e, x), z = mul(e, x, x), small = gen_fma(e, POLY(e, z, erf_small), x, x);
  gen_ssa far = clamp(e, a, 0, 4), q = POLY(e, far, erf_big);
  gen_ssa big = sub(e, gen_f(x, 1), tame_exp(e, neg(e, q)));

  return gen_select(e, lt(e, a, 0.92), small, with_sign(e, big, x));
}

static gen_ssa erf_wide(gen_emit *e, gen_ssa x) /* f64 */
{
  gen_ssa a = abs_(e, x), z = mul(e, x, x), small = gen_fma(e, POLY(e, z, erf_small_f64), x, x);
  gen_ssa near = mul(e, sub(e, a, gen_f(x, 1.75)), gen_f(x, 1 / 0.75));
  gen_ssa far = mul(e, sub(e, clamp(e, a, 0, 6), gen_f(x, 4.25)), gen_f(x, 1 / 1.75));
  gen_ssa q = gen_select(e, lt(e, a, 2.5), POLY(e, near, erf_big_f64), POLY(e, far, erf_far_f64));
  gen_ssa big = sub(e, gen_f(x, 1), exp_(e, neg(e, q)));

  return gen_select(e, lt(e, a, 1), small, with_sign(e, big, x));
}

/* ---- erfc */

enum { ERFC_END = 11 }; /* from here on erfc is 0 in f32 */
static const double erfc_tame = 9.19;      /* up to here it is a normal f32 */
static const double erfc_near_end = 0.815; /* from here on it is less than 1/4, so that 2 - erfc is exact enough */

/* exp(-z) = m 2^n with m near 1 for z >= 0; n in the low bits of *t. `brief`: good to 2^-17.7, else *m1 is m - 1. */
static gen_ssa exp_of_minus(gen_emit *e, gen_ssa z, bool brief, gen_ssa *t)
{
  gen_ssa magic = gen_f(z, 0x1.8p23), k, r;

  *t = gen_fma(e, z, gen_f(z, -1.4426950408889634), magic);
  k = sub(e, *t, magic);
  /* One number for ln 2: k times its error is less than half of the rounding error of the square that z is. */
  if (e->part->target->has_fma) r = gen_fma(e, k, gen_f(z, -0.6931471805599453), neg(e, z));
  else r = gen_fma(e, k, gen_f(z, ln2_low), gen_fma(e, k, gen_f(z, ln2_high), neg(e, z)));
  return brief ? POLY(e, r, exp_of_square) : gen_fma(e, POLY(e, r, exp_f32), mul(e, r, r), r);
}

/* erfc(x) of f32, a = |x|. `tame`: the result is a normal number for each lane whose result counts. */
static gen_ssa erfc_of(gen_emit *e, gen_ssa x, gen_ssa a, bool brief, bool tame)
{
  gen_ssa z = mul(e, a, a), one = gen_f(x, 1), t, exp = exp_of_minus(e, z, brief, &t), y, bits = to_bits(e, t);

  if (brief) {
    y = mul(e, exp, POLY(e, quo(e, a, gen_fma(e, a, gen_f(a, 0.4), one)), erfc_bf16));
  } else {
    gen_ssa w = quo(e, one, gen_fma(e, a, gen_f(a, 0.35), one)), g = mul(e, POLY(e, w, erfc_f32), w);
    y = gen_fma(e, g, exp, g);
  }
  if (tame) {
    y = from_bits(e, gen_bin(e, LLVMAdd, to_bits(e, y), i_bin(e, LLVMShl, bits, 23)));
  } else { /* in two steps, of which only the last one rounds */
    gen_ssa n = i_bin(e, LLVMSub, bits, 0x4b400000), half = i_bin(e, LLVMAShr, n, 1);
    y = mul(e, mul(e, y, power_of_two(e, half)), power_of_two(e, gen_bin(e, LLVMSub, n, half)));
  }
  y = gen_select(e, lt(e, x, 0), sub(e, gen_f(x, 2), y), y);
  if (brief) return y;
  return gen_select(e, gt(e, a, erfc_near_end), y, sub(e, one, gen_fma(e, POLY(e, z, erfc_near), x, x)));
}

/* erfc(x) of f32 for every x. */
static gen_ssa every_erfc(gen_emit *e, gen_ssa x, bool brief)
{
  gen_ssa a = abs_(e, x);
  return erfc_of(e, x, gen_select(e, gt(e, a, ERFC_END), gen_f(a, ERFC_END), a), brief, false);
}

static gen_ssa erfc_wide(gen_emit *e, gen_ssa x) /* f64 */
{
  gen_ssa a = abs_(e, x), z = exp_(e, neg(e, mul(e, x, x))), is_near = lt(e, a, 8);
  gen_ssa y = quo(e, mul(e, z, gen_select(e, is_near, POLY(e, a, erfc_top), POLY(e, a, erfc_far_top))),
                  gen_select(e, is_near, POLY(e, a, erfc_bottom), POLY(e, a, erfc_far_bottom)));

  y = gen_select(e, eq(e, z, 0), gen_f(x, 0), y);
  y = gen_select(e, lt(e, x, 0), sub(e, gen_f(x, 2), y), y);
  return gen_select(e, gt(e, a, 1), y, sub(e, gen_f(x, 1), erf_wide(e, x)));
}

/* ---- sin and its kin ------------------------------------------------------------------------------------------- */

enum { REDUCE_LIMIT = 1 << 20, NEAR_LIMIT = 3200 };

/* a - b = *hi + *lo exactly. */
static gen_ssa two_diff(gen_emit *e, gen_ssa a, gen_ssa b, gen_ssa *lo)
{
  gen_ssa d = sub(e, a, b), bb = sub(e, a, d), aa = add(e, d, bb);
  *lo = add(e, sub(e, a, aa), sub(e, bb, b));
  return d;
}

/* x = *n * pi/2 + (*r + *lo), |*r| <= pi/4 and |x| <= REDUCE_LIMIT, with *n in the low bits of *q. `brief`: good to
 * 2^-35, for f32; then *lo is 0. */
static void reduce_angle(gen_emit *e, gen_ssa x, bool brief, gen_ssa *r, gen_ssa *lo, gen_ssa *q)
{
  gen_ssa magic = gen_f(x, 0x1.8p52), t = add(e, mul(e, x, gen_f(x, 0.6366197723675814)), magic), n = sub(e, t, magic);

  /* pi/2 in pieces of 33 bits, so that their products with n are exact */
  gen_ssa first = sub(e, x, mul(e, n, gen_f(x, 0x1.921fb544p+0))), lo1, lo2;
  gen_ssa second = mul(e, n, gen_f(x, 0x1.0b4611a6p-34)), third = mul(e, n, gen_f(x, 0x1.3198a2e037073p-69));
  *q = to_bits(e, t);
  *lo = gen_f(x, 0);
  if (brief) {
    *r = sub(e, sub(e, first, second), third);
    return;
  }
  first = two_diff(e, first, second, &lo1);
  first = two_diff(e, first, third, &lo2);
  gen_ssa rest = add(e, lo1, lo2);
  *r = add(e, first, rest);
  *lo = add(e, sub(e, first, *r), rest);
}

/* t, whose low bits are n + `turn` where x is near n * pi/2. The further x, the further: up to 0.825 beyond pi/4 for
 * REDUCE_LIMIT, since 2/pi is rounded. */
static gen_ssa turns_of(gen_emit *e, gen_ssa x, int turn, gen_ssa *n)
{
  gen_ssa magic = gen_f(x, 0x1.8p23 + turn), t = gen_fma(e, x, gen_f(x, 0.6366197723675814), magic);

  *n = sub(e, t, magic);
  return to_bits(e, t);
}

/* x = n * pi/2 + (*r - *less) for an x of f32, with n + turn in the low bits of *q. */
static void reduce_short_angle(gen_emit *e, gen_ssa x, int turn, gen_ssa *r, gen_ssa *less, gen_ssa *q)
{
  /* pi/2 = first + second + third */
  gen_ssa first = gen_f(x, 0x1.921fb6p+0), second = gen_f(x, -0x1.777a5cp-25), third = gen_f(x, -0x1.ee59dap-50), n,
          rest;

  *q = turns_of(e, x, turn, &n);
  gen_ssa near = gen_fma(e, n, neg(e, first), x); /* exact, as n has 20 bits */
  gen_ssa product = mul(e, n, second), lost = gen_fma(e, n, second, neg(e, product));

  near = two_diff(e, near, product, &rest);
  rest = gen_fma(e, n, neg(e, third), sub(e, rest, lost));
  *r = add(e, near, rest);
  *less = sub(e, sub(e, *r, near), rest);
}

/* sin (or cos, or tan) of x = q * pi/2 + (r + lo). */
static gen_ssa sin_of_rest(gen_emit *e, hlo_opcode op, gen_ssa x, gen_ssa r, gen_ssa lo, gen_ssa q, bool brief)
{
  bool is_short = brief || !is_f64(e, x);
  gen_ssa one = gen_f(x, 1), z = mul(e, r, r), half = mul(e, z, gen_f(z, 0.5)), w = sub(e, one, half), s, c;
  gen_ssa odd = gen_icmp(e, LLVMIntNE, i_bin(e, LLVMAnd, q, 1), gen_i(q, 0));

  s = mul(e, mul(e, is_short ? POLY(e, z, sin_short) : POLY(e, z, sin_f64), z), r);
  c = mul(e, is_short ? POLY(e, z, cos_short) : POLY(e, z, cos_f64), mul(e, z, z));
  if (!brief) {
    s = gen_fma(e, lo, w, s);
    c = sub(e, c, mul(e, r, lo));
  }
  s = add(e, r, s);
  c = add(e, w, add(e, sub(e, sub(e, one, w), half), c));
  if (op == HLO_TAN) {
    gen_ssa top = gen_select(e, odd, neg(e, c), s), bottom = gen_select(e, odd, s, c);
    return quo(e, top, bottom);
  }
  gen_ssa v = op == HLO_SIN ? gen_select(e, odd, c, s) : gen_select(e, odd, s, c);
  gen_ssa turn = op == HLO_SIN ? q : i_bin(e, LLVMAdd, q, 1);
  gen_ssa sign = i_bin(e, LLVMShl, i_bin(e, LLVMAnd, turn, 2), is_f64(e, x) ? 62 : 30);
  v = from_bits(e, gen_bin(e, LLVMXor, to_bits(e, v), sign));
  return op == HLO_SIN ? gen_select(e, eq(e, x, 0), x, v) : v;
}

/* The lanes whose argument is large are reduced by gen_reduce_angle. NaN does not count as large. */
static gen_ssa sin_(gen_emit *e, hlo_opcode op, gen_ssa x, bool brief)
{
  gen_ssa large = gt(e, abs_(e, x), REDUCE_LIMIT), near[3], far[3];
  gen_if block;

  reduce_angle(e, x, brief, &near[0], &near[1], &near[2]);
  if (gen_is_vector(large)) large = gen_intrinsic1(e, "llvm.vector.reduce.or", large);
  LLVMBasicBlockRef here = LLVMGetInsertBlock(e->b);
  for (int i = 0; i < 3; i++) far[i] = near[i];
  gen_if_begin(e, &block, large);
  gen_reduce_angle(e, x, REDUCE_LIMIT, &far[0], &far[1], &far[2]);
  LLVMBasicBlockRef there = LLVMGetInsertBlock(e->b);
  gen_if_end(e, &block);
  for (int i = 0; i < 3; i++) {
    gen_ssa phi = LLVMBuildPhi(e->b, LLVMTypeOf(near[i]), "");
    LLVMAddIncoming(phi, (gen_ssa[]){near[i], far[i]}, (LLVMBasicBlockRef[]){here, there}, 2);
    near[i] = phi;
  }
  return sin_of_rest(e, op, x, near[0], near[1], near[2], brief);
}

/* The same for |x| <= NEAR_LIMIT, where the products of n, which has 11 bits, with the first two pieces are exact. A
 * zero keeps its sign in *r, and *less is then +0. */
static void reduce_near_angle(gen_emit *e, gen_ssa x, int turn, gen_ssa *r, gen_ssa *less, gen_ssa *q)
{
  /* pi/2 = first + second + third; second has 13 bits */
  gen_ssa first = gen_f(x, -0x1.921fb4p+0), second = gen_f(x, 0x1.444p-24), third = gen_f(x, 0x1.68c234p-39), n;

  *q = turns_of(e, x, turn, &n);
  gen_ssa near = gen_fma(e, n, first, x), sum = gen_fma(e, n, neg(e, second), near);
  /* What the sum has too much. `sum - near` is exact: near is 0 or a multiple of 2^-24, and if it is less than the
   * product, both are so small that the sum lost one bit at most. */
  gen_ssa above = gen_fma(e, n, second, sub(e, sum, near));
  *r = sum;
  *less = gen_fma(e, n, third, above);
}

/* sin(q * pi/2 + ...), of which s or c is the magnitude and nearly the sign. */
static gen_ssa of_quadrant(gen_emit *e, gen_ssa s, gen_ssa c, gen_ssa q)
{
  gen_ssa odd = gen_icmp(e, LLVMIntNE, i_bin(e, LLVMAnd, q, 1), gen_i(q, 0)), v = gen_select(e, odd, c, s);
  return from_bits(e, gen_bin(e, LLVMXor, to_bits(e, v), i_bin(e, LLVMAnd, i_bin(e, LLVMShl, q, 30), INT32_MIN)));
}

/* sin(q * pi/2 + (r - less)) of f32. A zero r keeps its sign if q is 0 and less is +0. */
static gen_ssa short_sin_of_rest(gen_emit *e, gen_ssa r, gen_ssa less, gen_ssa q)
{
  gen_ssa z = mul(e, r, r);
  gen_ssa s = sub(e, r, gen_fma(e, mul(e, z, r), neg(e, POLY(e, z, sin_f32)), less));
  gen_ssa c = gen_fma(e, r, gen_fma(e, r, POLY(e, z, cos_f32), less), gen_f(r, 1));

  return of_quadrant(e, s, c, q);
}

/* `near`, or what `compute` makes of it where the argument of any lane is beyond `limit`. */
static gen_ssa unless_far(gen_emit *e, hlo_opcode op, gen_ssa x, gen_ssa near, double limit, rare_lanes *compute)
{
  return where_any(e, gt(e, abs_(e, x), limit), op, x, NULL, near, compute); /* NaN does not count */
}

/* Lanes beyond REDUCE_LIMIT, in f64. */
static gen_ssa huge_sin(gen_emit *e, hlo_opcode op, gen_ssa x, gen_ssa y, gen_ssa near)
{
  (void)y;
  gen_ssa wide = widen(e, x), r = gen_f(wide, 0), lo = r, q = gen_i(to_bits(e, wide), 0);

  gen_reduce_angle(e, wide, REDUCE_LIMIT, &r, &lo, &q);
  return gen_select(e, gt(e, abs_(e, x), REDUCE_LIMIT), narrow(e, sin_of_rest(e, op, wide, r, lo, q, true)), near);
}

/* Lanes beyond NEAR_LIMIT. Each lane has the same bits whatever its neighbours are. */
static gen_ssa large_sin(gen_emit *e, hlo_opcode op, gen_ssa x, gen_ssa y, gen_ssa near)
{
  (void)y;
  gen_ssa r, less, q;

  /* four turns more, so that LLVM finds nothing in common with what comes first, and keeps nothing of it */
  reduce_short_angle(e, x, (op == HLO_COS) + 4, &r, &less, &q);
  near = gen_select(e, gt(e, abs_(e, x), NEAR_LIMIT), short_sin_of_rest(e, r, less, q), near);
  return unless_far(e, op, x, near, REDUCE_LIMIT, huge_sin);
}

/* sin or cos of f32. */
static gen_ssa short_sin(gen_emit *e, hlo_opcode op, gen_ssa x)
{
  gen_ssa r, less, q;

  reduce_near_angle(e, x, op == HLO_COS, &r, &less, &q);
  return unless_far(e, op, x, short_sin_of_rest(e, r, less, q), NEAR_LIMIT, large_sin);
}

/* sin or cos of f32 for operands and results of bf16. */
static gen_ssa brief_sin(gen_emit *e, hlo_opcode op, gen_ssa x)
{
  gen_ssa n, q = turns_of(e, x, op == HLO_COS, &n);
  gen_ssa near = gen_fma(e, n, gen_f(x, -0x1.921fb6p+0), x); /* exact, as n has 20 bits */
  gen_ssa r = gen_fma(e, n, gen_f(x, 0x1.777a5cp-25), near), z = mul(e, r, r);
  gen_ssa s = gen_fma(e, mul(e, z, r), POLY(e, z, sin_bf16), r);
  gen_ssa v = of_quadrant(e, s, gen_fma(e, z, POLY(e, z, cos_bf16), gen_f(z, 1)), q);

  if (op == HLO_SIN) v = gen_select(e, eq(e, x, 0), x, v); /* a zero keeps its sign */
  return unless_far(e, op, x, v, REDUCE_LIMIT, huge_sin);
}

static gen_ssa atan2_(gen_emit *e, gen_ssa y, gen_ssa x, bool brief) /* f64 */
{
  gen_unify(e, &y, &x);
  gen_ssa ax = abs_(e, x), ay = abs_(e, y), steep = gen_fcmp(e, LLVMRealOGT, ay, ax), zero = gen_f(x, 0);
  gen_ssa small = gen_select(e, steep, ax, ay), big = gen_select(e, steep, ay, ax);
  gen_ssa past = gen_fcmp(e, LLVMRealOGT, small, mul(e, big, gen_f(x, 0.41421356237309503)));
  past = gen_bin(e, LLVMOr, past, eq(e, small, __builtin_inf()));
  gen_ssa equal = gen_fcmp(e, LLVMRealOEQ, small, big);
  gen_ssa top = gen_select(e, past, gen_select(e, equal, zero, sub(e, small, big)), small);
  gen_ssa bottom = gen_select(e, past, add(e, small, big), big);
  gen_ssa t = quo(e, top, gen_select(e, eq(e, big, 0), gen_f(x, 1), bottom)), z = mul(e, t, t);
  gen_ssa r = mul(e, mul(e, brief ? POLY(e, z, atan_short) : POLY(e, z, atan_f64), z), t);
  gen_ssa left = gen_icmp(e, LLVMIntSLT, to_bits(e, x), gen_i(to_bits(e, x), 0));

  r = add(e, t, r);
  r = gen_select(e, past, add(e, gen_f(x, 0.7853981633974483), add(e, r, gen_f(x, 3.061616997868383e-17))), r);
  r = gen_select(e, steep, sub(e, gen_f(x, 1.5707963267948966), sub(e, r, gen_f(x, 6.123233995736766e-17))), r);
  r = gen_select(e, left, sub(e, gen_f(x, 3.141592653589793), sub(e, r, gen_f(x, 1.2246467991473532e-16))), r);
  r = with_sign(e, r, y);
  return gen_select(e, gen_fcmp(e, LLVMRealUNO, x, y), gen_f(x, __builtin_nan("")), r);
}

static gen_ssa cosine_leg(gen_emit *e, gen_ssa x)
{
  gen_ssa one = gen_f(x, 1);
  return sqrt_(e, mul(e, sub(e, one, x), add(e, one, x)));
}

/* ---- dispatch -------------------------------------------------------------------------------------------------- */

/* f64 functions; `brief` ones are for f32 arguments and results. */
static gen_ssa wide_math(gen_emit *e, hlo_opcode op, gen_ssa a, gen_ssa b, bool brief)
{
  switch (op) {
  case HLO_EXP: return exp_(e, a);
  case HLO_EXPM1: return expm1_(e, a);
  case HLO_TANH: return tanh_(e, a);
  case HLO_SINH: return sinh_(e, a);
  case HLO_COSH: return cosh_(e, a);
  case HLO_LOG: return log_(e, a);
  case HLO_LOG1P: return log1p_(e, a);
  case HLO_ASINH: return asinh_(e, a);
  case HLO_ACOSH: return acosh_(e, a);
  case HLO_ATANH: return atanh_(e, a);
  case HLO_CBRT: return cbrt_(e, a);
  case HLO_SIN: case HLO_COS: case HLO_TAN: return sin_(e, op, a, brief);
  case HLO_ATAN2: return atan2_(e, a, b, brief);
  case HLO_ASIN: return atan2_(e, a, cosine_leg(e, a), brief);
  case HLO_ACOS: return atan2_(e, cosine_leg(e, a), a, brief);
  case HLO_POWER: return power_(e, a, b);
  case HLO_ERF: return erf_wide(e, a);
  case HLO_ERFC: return erfc_wide(e, a);
  default: return NULL;
  }
}

static gen_ssa emit_math(gen_emit *e, hlo_opcode op, gen_ssa a, gen_ssa b)
{
  if (is_f64(e, a)) return wide_math(e, op, a, b, false);
  if (op == HLO_EXP) return exp_(e, a);
  if (op == HLO_LOG) return log_(e, a);
  if (op == HLO_LOG1P) return log1p_(e, a);
  if (op == HLO_TANH) return tanh_(e, a);
  if (op == HLO_ERF) return erf_(e, a);
  if (op == HLO_ERFC) return every_erfc(e, a, false);
  if (op == HLO_POWER) return power_(e, a, b);
  if ((op == HLO_SIN || op == HLO_COS) && e->part->target->has_fma) return short_sin(e, op, a);
  gen_ssa wide = widen(e, a), r = wide_math(e, op, wide, b ? widen(e, b) : NULL, true);
  return r ? narrow(e, r) : NULL;
}

static void add_attribute(gen_part *p, gen_ssa fn, const char *name, size_t length)
{
  LLVMAttributeRef a = LLVMCreateEnumAttribute(p->ctx, LLVMGetEnumAttributeKindForName(name, length), 0);
  LLVMAddAttributeAtIndex(fn, LLVMAttributeFunctionIndex, a);
}

/* The function of the part for this operation, type and width. */
static gen_ssa math_function(gen_emit *e, hlo_opcode op, LLVMTypeRef type, bool two, bool bf16)
{
  enum { FAST_CALL = 8 };
  gen_part *p = e->part;
  char name[64];
  bool vector = LLVMGetTypeKind(type) == LLVMVectorTypeKind;
  LLVMTypeRef scalar = vector ? LLVMGetElementType(type) : type, params[2] = {type, type};

  snprintf(name, sizeof name, "weft.%s.%s.%u", hlo_opcode_name(op),
           bf16               ? "bf16"
           : scalar == p->f64 ? "f64"
                              : "f32",
           vector ? LLVMGetVectorSize(type) : 1);
  gen_ssa fn = LLVMGetNamedFunction(p->mod, name);
  if (fn) return fn;
  fn = LLVMAddFunction(p->mod, name, LLVMFunctionType(type, params, two ? 2 : 1, 0));
  LLVMSetLinkage(fn, LLVMInternalLinkage);
  LLVMSetFunctionCallConv(fn, FAST_CALL);
  add_attribute(p, fn, "nounwind", 8);
  add_attribute(p, fn, "willreturn", 10);
  add_attribute(p, fn, "noinline", 8);
  add_attribute(p, fn, "memory", 6); /* 0: none */
  LLVMBasicBlockRef here = LLVMGetInsertBlock(e->b);
  gen_emit inner;
  gen_emit_init(&inner, p, fn, e->kernel);
  gen_ssa a = LLVMGetParam(fn, 0), b = two ? LLVMGetParam(fn, 1) : NULL;
  gen_ssa r = !bf16            ? emit_math(&inner, op, a, b)
              : op == HLO_ERFC ? every_erfc(&inner, a, true)
                               : brief_sin(&inner, op, a);
  gen_emit_finish(&inner, r ? r : LLVMGetPoison(type));
  LLVMPositionBuilderAtEnd(e->b, here);
  return fn;
}

static gen_ssa call_math(gen_emit *e, gen_ssa fn, gen_ssa a, gen_ssa b)
{
  gen_ssa call = LLVMBuildCall2(e->b, LLVMGlobalGetValueType(fn), fn, (gen_ssa[]){a, b}, b ? 2 : 1, "");

  LLVMSetInstructionCallConv(call, LLVMGetFunctionCallConv(fn));
  return call;
}

gen_ssa gen_sin_bf16(gen_emit *e, hlo_opcode op, gen_ssa x)
{
  return call_math(e, math_function(e, op, LLVMTypeOf(x), false, true), x, NULL);
}

/* Vectors with a lane whose erfc is denormal or 0, or a NaN: rare, so that two vectors share a function of one. */
static gen_ssa far_erfc_of(gen_emit *e, gen_ssa x, bool brief)
{
  enum { VECTOR = 16 };
  int lanes[2 * VECTOR];
  gen_ssa half[2], none = LLVMGetPoison(LLVMTypeOf(x));

  if (!gen_is_vector(x) || LLVMGetVectorSize(LLVMTypeOf(x)) != 2 * VECTOR)
    return call_math(e, math_function(e, HLO_ERFC, LLVMTypeOf(x), false, brief), x, NULL);
  for (int i = 0; i < 2 * VECTOR; i++) lanes[i] = i;
  for (int k = 0; k < 2; k++) half[k] = far_erfc_of(e, gen_shuffle(e, x, none, VECTOR, lanes + k * VECTOR), brief);
  return gen_shuffle(e, half[0], half[1], 2 * VECTOR, lanes);
}

static gen_ssa far_erfc(gen_emit *e, hlo_opcode op, gen_ssa x, gen_ssa y, gen_ssa near)
{
  (void)op, (void)y, (void)near;
  return far_erfc_of(e, x, false);
}
static gen_ssa far_brief_erfc(gen_emit *e, hlo_opcode op, gen_ssa x, gen_ssa y, gen_ssa near)
{
  (void)op, (void)y, (void)near;
  return far_erfc_of(e, x, true);
}

gen_ssa gen_erfc(gen_emit *e, gen_ssa x, bool brief)
{
  if (e->part->walker->quick_denormals || !gen_is_vector(x)) return every_erfc(e, x, brief);
  gen_ssa a = abs_(e, x), is_far = gen_fcmp(e, LLVMRealUGT, a, gen_f(a, erfc_tame)); /* true for NaN */

  return where_any(e, is_far, HLO_ERFC, x, NULL, erfc_of(e, x, a, brief, true), brief ? far_brief_erfc : far_erfc);
}

gen_ssa gen_math(gen_emit *e, hlo_opcode op, gen_ssa a, gen_ssa b)
{
  gen_ssa one = gen_f(a, 1);

  if (b) gen_unify(e, &a, &b);
  switch (op) {
  case HLO_SQRT: return sqrt_(e, a);
  case HLO_RSQRT: return rsqrt_(e, a);
  case HLO_LOGISTIC: return quo(e, one, add(e, gen_math(e, HLO_EXP, neg(e, a), NULL), one));
  case HLO_ERFC:
    if (!is_f64(e, a)) return gen_erfc(e, a, false);
    break;
  case HLO_EXP: case HLO_LOG: case HLO_TANH:
    if (!is_f64(e, a)) return emit_math(e, op, a, NULL);
    break;
  default: break;
  }
  return call_math(e, math_function(e, op, LLVMTypeOf(a), b != NULL, false), a, b);
}
