/* stablehlo/lower_chlo.c -- CHLO: operations with an HLO opcode become it; all others are decomposed here. Formulas
 * are expressions over a builder that keeps the first error, so that they read as formulas. Sources: Lanczos (g = 7,
 * n = 9) for lgamma and digamma; Giles 2010, "Approximating the erfinv function"; Cephes' Chebyshev
 * approximation of i1e; Euler-Maclaurin for the Hurwitz zeta function. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "stablehlo/lower.h"

/* ---- the builder ------------------------------------------------------------------------------------------------- */

typedef struct builder {
  lowering *l;
  weft_status *st;
} builder;
typedef hlo_instr *val; /* NULL after an error */

static val unary(builder *b, hlo_opcode op, val x)
{
  val out = NULL;
  if (!b->st) b->st = lower_unary(b->l, op, x, &out);
  return out;
}

static val binary(builder *b, hlo_opcode op, val x, val y)
{
  val out = NULL;
  if (!b->st) b->st = lower_binary(b->l, op, x, y, &out);
  return out;
}

static val num(builder *b, val like, double v) /* a constant like `like` */
{
  val out = NULL;
  if (!b->st) b->st = lower_like(b->l, like, v, &out);
  return out;
}

static val to(builder *b, val x, weft_dtype type)
{
  val out = NULL;
  if (!b->st) b->st = lower_convert(b->l, x, type, &out);
  return out;
}

static val bits(builder *b, val x, weft_dtype type)
{
  val out = NULL;
  if (b->st) return NULL;
  hlo_shape *shape = hlo_shape_with_type(b->l->arena, x->shape, type);
  b->st = shape ? lower_simple(b->l, HLO_BITCAST_CONVERT, shape, 1, &x, &out)
                : WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  return out;
}

static val cmp(builder *b, hlo_direction direction, val x, val y)
{
  val out = NULL;
  if (!b->st) b->st = hlo_add_compare(b->l->comp, NULL, direction, x, y, &out);
  return out;
}

static val select(builder *b, val p, val x, val y)
{
  val out = NULL;
  if (!b->st) b->st = lower_simple(b->l, HLO_SELECT, NULL, 3, (val[]){p, x, y}, &out);
  return out;
}

static val add(builder *b, val x, val y) { return binary(b, HLO_ADD, x, y); }
static val sub(builder *b, val x, val y) { return binary(b, HLO_SUBTRACT, x, y); }
static val mul(builder *b, val x, val y) { return binary(b, HLO_MULTIPLY, x, y); }
static val quo(builder *b, val x, val y) { return binary(b, HLO_DIVIDE, x, y); }
static val addc(builder *b, val x, double c) { return add(b, x, num(b, x, c)); }
static val mulc(builder *b, val x, double c) { return mul(b, x, num(b, x, c)); }
static val cmpc(builder *b, hlo_direction direction, val x, double c) { return cmp(b, direction, x, num(b, x, c)); }

/* c[0] x^(n-1) + ... + c[n-1] */
static val polynomial(builder *b, val x, const double *c, size_t n)
{
  val p = num(b, x, c[0]);
  for (size_t i = 1; i < n; i++) p = addc(b, mul(b, p, x), c[i]);
  return p;
}
#define POLYNOMIAL(b, x, c) polynomial((b), (x), (c), WEFT_COUNT(c))

/* ---- special functions (of f32 and f64) -------------------------------------------------------------------------- */

static val erf_inv_f32(builder *b, val x)
{
  static const double small[] = {2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
                                 -0.00125372503, -0.00417768164, 0.246640727, 1.50140941};
  static const double large[] = {-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
                                 -0.0076224613, 0.00943887047, 1.00167406, 2.83297682};
  val w = unary(b, HLO_NEGATE, unary(b, HLO_LOG1P, unary(b, HLO_NEGATE, mul(b, x, x))));
  val is_small = cmpc(b, HLO_LT, w, 5);
  val t = select(b, is_small, addc(b, w, -2.5), addc(b, unary(b, HLO_SQRT, w), -3));
  val p = num(b, x, 0);

  for (size_t i = 0; i < WEFT_COUNT(small); i++) {
    val c = select(b, is_small, num(b, x, small[i]), num(b, x, large[i]));
    p = i == 0 ? c : add(b, c, mul(b, p, t));
  }
  val edge = cmpc(b, HLO_EQ, unary(b, HLO_ABS, x), 1);
  return select(b, edge, mulc(b, x, INFINITY), mul(b, p, x));
}

static val erf_inv_f64(builder *b, val x)
{
  static const double low[] = {
      -3.6444120640178196996e-21, -1.685059138182016589e-19, 1.2858480715256400167e-18, 1.115787767802518096e-17,
      -1.333171662854620906e-16, 2.0972767875968561637e-17, 6.6376381343583238325e-15, -4.0545662729752068639e-14,
      -8.1519341976054721522e-14, 2.6335093153082322977e-12, -1.2975133253453532498e-11, -5.4154120542946279317e-11,
      1.051212273321532285e-09, -4.1126339803469836976e-09, -2.9070369957882005086e-08, 4.2347877827932403518e-07,
      -1.3654692000834678645e-06, -1.3882523362786468719e-05, 0.0001867342080340571352, -0.00074070253416626697512,
      -0.0060336708714301490533, 0.24015818242558961693, 1.6536545626831027356};
  static const double middle[] = {
      2.2137376921775787049e-09, 9.0756561938885390979e-08, -2.7517406297064545428e-07, 1.8239629214389227755e-08,
      1.5027403968909827627e-06, -4.013867526981545969e-06, 2.9234449089955446044e-06, 1.2475304481671778723e-05,
      -4.7318229009055733981e-05, 6.8284851459573175448e-05, 2.4031110387097893999e-05, -0.0003550375203628474796,
      0.00095328937973738049703, -0.0016882755560235047313, 0.0024914420961078508066, -0.0037512085075692412107,
      0.005370914553590063617, 1.0052589676941592334, 3.0838856104922207635};
  static const double high[] = {
      -2.7109920616438573243e-11, -2.5556418169965252055e-10, 1.5076572693500548083e-09, -3.7894654401267369937e-09,
      7.6157012080783393804e-09, -1.4960026627149240478e-08, 2.9147953450901080826e-08, -6.7711997758452339498e-08,
      2.2900482228026654717e-07, -9.9298272942317002539e-07, 4.5260625972231537039e-06, -1.9681778105531670567e-05,
      7.5995277030017761139e-05, -0.00021503011930044477347, -0.00013871931833623122026, 1.0103004648645343977,
      4.8499064014085844221};
  val w = unary(b, HLO_NEGATE, unary(b, HLO_LOG1P, unary(b, HLO_NEGATE, mul(b, x, x))));
  val root = unary(b, HLO_SQRT, w);
  val p = select(b, cmpc(b, HLO_LT, w, 6.25), POLYNOMIAL(b, addc(b, w, -3.125), low),
                 select(b, cmpc(b, HLO_LT, w, 16), POLYNOMIAL(b, addc(b, root, -3.25), middle),
                        POLYNOMIAL(b, addc(b, root, -5), high)));
  val edge = cmpc(b, HLO_EQ, unary(b, HLO_ABS, x), 1);
  return select(b, edge, mulc(b, x, INFINITY), mul(b, p, x));
}

static val erf_inv(builder *b, val x)
{
  return x && x->shape->type == WEFT_F64 ? erf_inv_f64(b, x) : erf_inv_f32(b, x);
}

/* Lanczos: gamma(z + 1) = sqrt(2 pi) (z + g + 1/2)^(z + 1/2) e^-(z + g + 1/2) A(z) */
static const double lanczos_base = 0.99999999999980993227684700473478;
static const double lanczos[] = {676.520368121885098567009190444019, -1259.13921672240287047156078755283,
                                 771.3234287776530788486528258894, -176.61502916214059906584551354,
                                 12.507343278686904814458936853, -0.13857109526572011689554707, 9.984369578019570859563e-6,
                                 1.50563273514931155834e-7};
enum { LANCZOS_G = 7 };

static val lgamma_of(builder *b, val x)
{
  const double half = LANCZOS_G + 0.5;
  val reflect = cmpc(b, HLO_LT, x, 0.5);
  val z = select(b, reflect, unary(b, HLO_NEGATE, x), addc(b, x, -1));
  val a = num(b, x, lanczos_base);

  for (size_t i = 0; i < WEFT_COUNT(lanczos); i++)
    a = add(b, a, quo(b, num(b, x, lanczos[i]), addc(b, z, (double)i + 1)));
  val t = add(b, num(b, x, half), z);
  val log_t = add(b, num(b, x, log(half)), unary(b, HLO_LOG1P, quo(b, z, num(b, x, half))));
  val log_y = add(b, addc(b, mul(b, sub(b, addc(b, z, 0.5), quo(b, t, log_t)), log_t), 0.91893853320467274178),
                  unary(b, HLO_LOG, a));
  /* gamma(x) gamma(1 - x) = pi / sin(pi x); only the fraction of |x| counts, at most 1/2 away from an integer */
  val abs_x = unary(b, HLO_ABS, x), fraction = sub(b, abs_x, unary(b, HLO_FLOOR, abs_x));
  val near = select(b, cmpc(b, HLO_GT, fraction, 0.5), sub(b, num(b, x, 1), fraction), fraction);
  val denominator = unary(b, HLO_LOG, unary(b, HLO_SIN, mulc(b, near, 3.14159265358979323846)));
  val reflection = select(b, unary(b, HLO_IS_FINITE, denominator),
                          sub(b, sub(b, num(b, x, 1.14472988584940017414), denominator), log_y),
                          unary(b, HLO_NEGATE, denominator));
  val result = select(b, reflect, reflection, log_y);
  return select(b, cmpc(b, HLO_EQ, abs_x, INFINITY), num(b, x, INFINITY), result);
}

static val digamma(builder *b, val x)
{
  const double half = LANCZOS_G + 0.5;
  val reflect = cmpc(b, HLO_LT, x, 0.5);
  val z = select(b, reflect, unary(b, HLO_NEGATE, x), addc(b, x, -1));
  val top = num(b, x, 0), bottom = num(b, x, lanczos_base);

  for (size_t i = 0; i < WEFT_COUNT(lanczos); i++) {
    val zi = addc(b, z, (double)i + 1), c = num(b, x, lanczos[i]);
    top = sub(b, top, quo(b, c, mul(b, zi, zi)));
    bottom = add(b, bottom, quo(b, c, zi));
  }
  val t = add(b, num(b, x, half), z);
  val log_t = add(b, num(b, x, log(half)), unary(b, HLO_LOG1P, quo(b, z, num(b, x, half))));
  val y = sub(b, add(b, log_t, quo(b, top, bottom)), quo(b, num(b, x, LANCZOS_G), t));
  /* digamma(1 - x) - digamma(x) = pi cot(pi x), with x brought near 0 */
  val near = add(b, x, unary(b, HLO_ABS, unary(b, HLO_FLOOR, addc(b, x, 0.5))));
  val angle = mulc(b, near, 3.14159265358979323846);
  val reflection =
    sub(b, y, quo(b, mulc(b, unary(b, HLO_COS, angle), 3.14159265358979323846), unary(b, HLO_SIN, angle)));
  val result = select(b, reflect, reflection, y);
  val pole = binary(b, HLO_AND, cmpc(b, HLO_LE, x, 0), cmp(b, HLO_EQ, x, unary(b, HLO_FLOOR, x)));
  return select(b, pole, num(b, x, NAN), result);
}

/* sum of c[i] T_i(x / 2), highest first: Clenshaw */
static val chebyshev(builder *b, val x, const double *c, size_t n)
{
  val b0 = num(b, x, 0), b1 = b0, b2 = b0;

  for (size_t i = 0; i < n; i++) {
    b2 = b1;
    b1 = b0;
    b0 = addc(b, sub(b, mul(b, x, b1), b2), c[i]);
  }
  return mulc(b, sub(b, b0, b2), 0.5);
}

static val bessel_i1e(builder *b, val x)
{
  static const double small[] = {
      2.77791411276104639959E-18, -2.11142121435816608115E-17, 1.55363195773620046921E-16, -1.10559694773538630805E-15,
      7.60068429473540693410E-15, -5.04218550472791168711E-14, 3.22379336594557470981E-13, -1.98397439776494371520E-12,
      1.17361862988909016308E-11, -6.66348972350202774223E-11, 3.62559028155211703701E-10, -1.88724975172282928790E-9,
      9.38153738649577178388E-9, -4.44505912879632808065E-8, 2.00329475355213526229E-7, -8.56872026469545474066E-7,
      3.47025130813767847674E-6, -1.32731636560394358279E-5, 4.78156510755005422638E-5, -1.61760815825896745588E-4,
      5.12285956168575772895E-4, -1.51357245063125314899E-3, 4.15642294431288815669E-3, -1.05640848946261981558E-2,
      2.47264490306265168283E-2, -5.29459812080949914269E-2, 1.02643658689847095384E-1, -1.76416518357834055153E-1,
      2.52587186443633654823E-1};
  static const double large[] = {
      7.51729631084210481353E-18, 4.41434832307170791151E-18, -4.65030536848935832153E-17, -3.20952592199342395980E-17,
      2.96262899764595013876E-16, 3.30820231092092828324E-16, -1.88035477551078244854E-15, -3.81440307243700780478E-15,
      1.04202769841288027642E-14, 4.27244001671195135429E-14, -2.10154184277266431302E-14, -4.08355111109219731823E-13,
      -7.19855177624590851209E-13, 2.03562854414708950722E-12, 1.41258074366137813316E-11, 3.25260358301548823856E-11,
      -1.89749581235054123450E-11, -5.58974346219658380687E-10, -3.83538038596423702205E-9, -2.63146884688951950684E-8,
      -2.51223623787020892529E-7, -3.88256480887769039346E-6, -1.10588938762623716291E-4, -9.76109749136146840777E-3,
      7.78576235018280120474E-1};
  bool wide = x && x->shape->type == WEFT_F64;
  size_t skip_small = wide ? 0 : 12, skip_large = wide ? 0 : 18; /* f32 needs only the last 17 and 7 coefficients */
  val z = unary(b, HLO_ABS, x);
  val near = mul(b, z, chebyshev(b, addc(b, mulc(b, z, 0.5), -2), small + skip_small, WEFT_COUNT(small) - skip_small));
  val far = quo(b,
                chebyshev(b, addc(b, quo(b, num(b, x, 32), z), -2), large + skip_large, WEFT_COUNT(large) - skip_large),
                unary(b, HLO_SQRT, z));
  val y = select(b, cmpc(b, HLO_LE, z, 8), near, far);
  return mul(b, unary(b, HLO_SIGN, x), y);
}

/* Hurwitz: sum over k of (q + k)^-x, the first 9 terms and the Euler-Maclaurin tail */
static val zeta(builder *b, val x, val q)
{
  static const double tail[] = {12.0, -720.0, 30240.0, -1209600.0, 47900160.0, -1.8924375803183791606e9,
                                7.47242496e10, -2.950130727918164224e12, 1.1646782814350067249e14,
                                -4.5979787224074726105e15, 1.8152105401943546773e17, -7.1661652561756670113e18};
  val minus_x = unary(b, HLO_NEGATE, x), sum = binary(b, HLO_POWER, q, minus_x), a = q;

  for (int k = 1; k < 9; k++) {
    a = addc(b, a, 1);
    sum = add(b, sum, binary(b, HLO_POWER, a, minus_x));
  }
  a = addc(b, a, 1);
  val power = binary(b, HLO_POWER, a, minus_x);
  sum = add(b, sum, add(b, quo(b, mul(b, power, a), addc(b, x, -1)), mulc(b, power, 0.5)));
  val factor = x, over = quo(b, power, a); /* x (x+1) ... / a^(x + 2j - 1) */
  for (size_t j = 0; j < WEFT_COUNT(tail); j++) {
    sum = add(b, sum, mulc(b, mul(b, factor, over), 1.0 / tail[j]));
    factor = mul(b, factor, mul(b, addc(b, x, 2.0 * (double)j + 1), addc(b, x, 2.0 * (double)j + 2)));
    over = quo(b, over, mul(b, a, a));
  }
  val integer = cmp(b, HLO_EQ, q, unary(b, HLO_FLOOR, q));
  val negative = cmpc(b, HLO_LE, q, 0);
  val whole_x = cmp(b, HLO_EQ, x, unary(b, HLO_FLOOR, x));
  sum = select(b, binary(b, HLO_AND, negative, integer), num(b, x, INFINITY), sum);
  sum = select(b, binary(b, HLO_AND, negative, unary(b, HLO_NOT, whole_x)), num(b, x, NAN), sum);
  sum = select(b, cmpc(b, HLO_EQ, x, 1), num(b, x, INFINITY), sum);
  return select(b, cmpc(b, HLO_LT, x, 1), num(b, x, NAN), sum);
}

/* (-1)^(n+1) n! zeta(n + 1, x); digamma for n = 0 */
static val polygamma(builder *b, val n, val x)
{
  val next = addc(b, n, 1), factorial = unary(b, HLO_EXP, lgamma_of(b, next));
  val odd = cmpc(b, HLO_EQ, binary(b, HLO_REMAINDER, n, num(b, n, 2)), 1);
  val magnitude = mul(b, factorial, zeta(b, next, x));
  val result =
    select(b, cmpc(b, HLO_EQ, n, 0), digamma(b, x), select(b, odd, magnitude, unary(b, HLO_NEGATE, magnitude)));
  val bad = binary(b, HLO_OR, cmpc(b, HLO_LT, n, 0), cmp(b, HLO_NE, n, unary(b, HLO_FLOOR, n)));
  return select(b, bad, num(b, x, NAN), result);
}

/* ---- the rest ---------------------------------------------------------------------------------------------------- */

/* The next float after x towards y, by its bits. */
static val next_after(builder *b, val x, val y)
{
  static const weft_dtype by_bytes[] = {[1] = WEFT_S8, [2] = WEFT_S16, [4] = WEFT_S32, [8] = WEFT_S64};

  if (!x) return NULL;
  int width = (int)weft_dtype_bytes(x->shape->type) * 8;
  weft_dtype type = by_bytes[width / 8];
  double sign = -ldexp(1, width - 1);
  val xi = bits(b, x, type), yi = bits(b, y, type);
  val sign_mask = num(b, xi, sign), magnitude = unary(b, HLO_NOT, sign_mask);
  val x_abs = binary(b, HLO_AND, xi, magnitude), y_abs = binary(b, HLO_AND, yi, magnitude);
  val x_sign = binary(b, HLO_AND, xi, sign_mask), y_sign = binary(b, HLO_AND, yi, sign_mask);
  val smallest = binary(b, HLO_OR, y_sign, num(b, xi, 1)); /* from 0: the least denormal on y's side */
  val shrinks = binary(b, HLO_OR, cmp(b, HLO_GT, x_abs, y_abs), cmp(b, HLO_NE, x_sign, y_sign));
  val step = select(b, shrinks, num(b, xi, -1), num(b, xi, 1));
  val from_zero = select(b, cmpc(b, HLO_EQ, y_abs, 0), yi, smallest);
  val result = select(b, cmpc(b, HLO_EQ, x_abs, 0), from_zero, add(b, xi, step));
  val nan = binary(b, HLO_OR, cmp(b, HLO_NE, x, x), cmp(b, HLO_NE, y, y));
  result = bits(b, result, x->shape->type);
  result = select(b, cmp(b, HLO_EQ, x, y), y, result);
  return select(b, nan, num(b, x, NAN), result);
}

static val complex_parts(builder *b, val re, val im) { return binary(b, HLO_COMPLEX, re, im); }

/* z^2: (x - y)(x + y) loses nothing when |x| and |y| are close; it is 0 when they are equal and finite. */
static val square(builder *b, val x)
{
  if (!x || !weft_dtype_is_complex(x->shape->type)) return mul(b, x, x);
  val re = unary(b, HLO_REAL, x), im = unary(b, HLO_IMAG, x), product = mul(b, re, im);
  val equal =
    binary(b, HLO_AND, cmp(b, HLO_EQ, unary(b, HLO_ABS, re), unary(b, HLO_ABS, im)), unary(b, HLO_IS_FINITE, re));
  val real = select(b, equal, num(b, re, 0), mul(b, sub(b, re, im), add(b, re, im)));
  return complex_parts(b, real, add(b, product, product));
}

static val conj_of(builder *b, val x)
{
  if (!x || !weft_dtype_is_complex(x->shape->type)) return x;
  return complex_parts(b, unary(b, HLO_REAL, x), unary(b, HLO_NEGATE, unary(b, HLO_IMAG, x)));
}

/* atan2(x, 1); for complex z: -i atanh(i z) */
static val atan_of(builder *b, val x)
{
  if (!x || !weft_dtype_is_complex(x->shape->type)) return binary(b, HLO_ATAN2, x, num(b, x, 1));
  val iz = complex_parts(b, unary(b, HLO_NEGATE, unary(b, HLO_IMAG, x)), unary(b, HLO_REAL, x));
  val w = unary(b, HLO_ATANH, iz);
  return complex_parts(b, unary(b, HLO_IMAG, w), unary(b, HLO_NEGATE, unary(b, HLO_REAL, w)));
}

/* e^(x - ln 2) +- e^(-x - ln 2) does not overflow before the result does. Near 0 sinh uses expm1. */
static val half_exponential(builder *b, val x) { return unary(b, HLO_EXP, addc(b, x, -0.69314718055994530942)); }

static val cosh_of(builder *b, val x)
{
  if (x && weft_dtype_is_complex(x->shape->type)) return unary(b, HLO_COSH, x);
  return add(b, half_exponential(b, x), half_exponential(b, unary(b, HLO_NEGATE, x)));
}

static val sinh_of(builder *b, val x)
{
  if (x && weft_dtype_is_complex(x->shape->type)) return unary(b, HLO_SINH, x);
  val far = sub(b, half_exponential(b, x), half_exponential(b, unary(b, HLO_NEGATE, x)));
  val e = unary(b, HLO_EXPM1, x), near = mulc(b, add(b, e, quo(b, e, addc(b, e, 1))), 0.5);
  return select(b, cmpc(b, HLO_LT, unary(b, HLO_ABS, x), 1), near, far);
}

static val is_inf(builder *b, val x) { return cmpc(b, HLO_EQ, unary(b, HLO_ABS, x), INFINITY); }
static val is_pos_inf(builder *b, val x) { return cmpc(b, HLO_EQ, x, INFINITY); }
static val is_neg_inf(builder *b, val x) { return cmpc(b, HLO_EQ, x, -INFINITY); }

/* ---- operations -------------------------------------------------------------------------------------------------- */

weft_status *lower_top_k(lowering *l, const mlir_op *op)
{
  hlo_instr *x, *in;

  WEFT_TRY(lower_operand(l, op, 0, &x));
  WEFT_TRY(lower_emit(l, HLO_TOPK, NULL, 1, &x, &in));
  in->u.topk.k = mlir_attr_int(mlir_attr_of(op, "k"), -1);
  in->u.topk.largest = mlir_attr_bool(mlir_attr_of(op, "largest"), true);
  in->u.topk.is_stable = true;
  WEFT_TRY(lower_finish(in));
  return lower_tuple_results(l, op, in);
}

/* The tuple of the result types that the operation declares. */
static weft_status *declared_tuple(lowering *l, const mlir_op *op, const hlo_shape **out)
{
  const hlo_shape **shapes = WEFT_ARENA_ARRAY(l->arena, const hlo_shape *, op->result_count);

  WEFT_TRY_ALLOC(shapes);
  for (int i = 0; i < op->result_count; i++) WEFT_TRY(lower_shape(l, op->results[i].type, &shapes[i]));
  *out = hlo_shape_tuple(l->arena, op->result_count, shapes);
  WEFT_TRY_ALLOC(*out);
  return NULL;
}

/* N inputs, then the carried values; the region gets a slice of each input and the carried values. */
static weft_status *scan(lowering *l, const mlir_op *op)
{
  const hlo_shape *wish = NULL;
  hlo_instr **operands, *in;
  hlo_computation *f;
  hlo_ints segments;
  int64_t dim = mlir_attr_int(mlir_attr_of(op, "dimension"), 0);
  int64_t size = mlir_attr_int(mlir_attr_of(op, "scan_dim_size"), -1);
  const mlir_attr *associative = mlir_attr_of(op, "is_associative");

  WEFT_TRY(lower_ints(l, op, "operandSegmentSizes", &segments));
  if (segments.count != 2 || segments.v[0] < 0 || segments.v[1] < 0 ||
      segments.v[0] + segments.v[1] != op->operand_count)
    return WEFT_ERR(INVALID_ARGUMENT, "operandSegmentSizes do not say which of %d operands are carries",
                    op->operand_count);
  WEFT_TRY(lower_operands(l, op, &operands));
  for (int i = 0; size >= 0 && i < segments.v[0]; i++)
    if (hlo_shape_is_array(operands[i]->shape) && dim >= 0 && dim < operands[i]->shape->rank &&
        operands[i]->shape->dims[dim] != size)
      return WEFT_ERR(INVALID_ARGUMENT, "scan_dim_size is %" PRId64 ", operand %d has %" PRId64, size, i,
                      operands[i]->shape->dims[dim]);
  WEFT_TRY(lower_scalar_region(l, op, 0, "scanned", WEFT_INVALID, &f));
  if (segments.v[0] == 0) WEFT_TRY(declared_tuple(l, op, &wish)); /* no operand gives the length */
  WEFT_TRY(lower_emit(l, HLO_SCAN, wish, op->operand_count, operands, &in));
  WEFT_TRY(hlo_set_called(in, 1, &f));
  WEFT_TRY(hlo_ints_new(l->module, 1, &dim, &in->dims));
  in->u.scan.num_carries = segments.v[1];
  in->u.scan.is_reverse = mlir_attr_bool(mlir_attr_of(op, "is_reverse"), false);
  in->u.scan.is_associative = !associative ? 0 : mlir_attr_bool(associative, false) ? 1 : 2;
  WEFT_TRY(lower_finish(in));
  return lower_tuple_results(l, op, in);
}

static weft_status *ragged_dot(lowering *l, const mlir_op *op)
{
  hlo_instr **operands, *in;
  hlo_dot_attrs *a;
  hlo_shape *wish;

  WEFT_TRY(lower_operands(l, op, &operands));
  if (op->result_count != 1) return WEFT_ERR(INVALID_ARGUMENT, "%d results, expected 1", op->result_count);
  WEFT_TRY(lower_dot_attrs(l, op, &a));
  WEFT_TRY(lower_ints(l, op, "lhs_ragged_dimensions", &a->lhs_ragged));
  WEFT_TRY(lower_ints(l, op, "rhs_group_dimensions", &a->rhs_group));
  wish = hlo_shape_array(l->arena, op->results[0].type->dtype, 0, NULL);
  WEFT_TRY_ALLOC(wish);
  WEFT_TRY(lower_emit(l, HLO_RAGGED_DOT, wish, op->operand_count, operands, &in));
  in->u.dot = a;
  WEFT_TRY(lower_finish(in));
  return lower_result(l, op, 0, in);
}

static weft_status *constant(lowering *l, const mlir_op *op)
{
  const mlir_attr *value = mlir_attr_of(op, "value");
  hlo_instr *x, *in;

  if (value && value->kind == MLIR_DENSE) {
    WEFT_TRY(lower_dense(l, value, &in));
  } else { /* constant_like: the operand's dimensions and the value's type */
    WEFT_TRY(lower_operand(l, op, 0, &x));
    if (value && value->type && hlo_shape_is_array(x->shape))
      WEFT_TRY(lower_convert(l, x, value->type->kind == MLIR_ELEMENT ? value->type->dtype : x->shape->type, &x));
    WEFT_TRY(lower_like(l, x, mlir_attr_double(value, 0), &in));
  }
  return lower_result(l, op, 0, in);
}

/* Brings the operands of broadcast_* to the numpy broadcast of their shapes, or to shapes along broadcast_dimensions
 * (which mean nothing for operands of one rank). */
static weft_status *broadcast_operands(lowering *l, const mlir_op *op, hlo_instr **operands)
{
  hlo_ints given;
  int64_t dims[HLO_MAX_RANK], map[HLO_MAX_RANK];
  int rank = 0, least = HLO_MAX_RANK;

  WEFT_TRY(lower_ints(l, op, "broadcast_dimensions", &given));
  for (int i = 0; i < op->operand_count; i++) {
    if (!hlo_shape_is_array(operands[i]->shape)) return WEFT_ERR(INVALID_ARGUMENT, "operand %d is no array", i);
    rank = WEFT_MAX(rank, operands[i]->shape->rank);
    least = WEFT_MIN(least, operands[i]->shape->rank);
  }
  if (given.count > 0 && given.count != least && least < rank)
    return WEFT_ERR(INVALID_ARGUMENT, "%d broadcast_dimensions for an operand of rank %d", given.count, least);
  for (int d = 0; d < rank; d++) dims[d] = 1;
  for (int pass = 0; pass < 2; pass++)
    for (int i = 0; i < op->operand_count; i++) {
      const hlo_shape *s = operands[i]->shape;
      for (int d = 0; d < s->rank; d++) {
        map[d] = given.count == s->rank && s->rank < rank ? given.v[d] : rank - s->rank + d;
        if (map[d] < 0 || map[d] >= rank) return WEFT_ERR(INVALID_ARGUMENT, "broadcast_dimensions of rank %d", rank);
        if (pass == 0 && s->dims[d] != 1) dims[map[d]] = s->dims[d];
      }
      if (pass == 0) continue;
      hlo_shape *to_shape = hlo_shape_array(l->arena, s->type, rank, dims);
      WEFT_TRY_ALLOC(to_shape);
      WEFT_TRY(lower_broadcast_in_dim(l, operands[i], to_shape, (hlo_ints){s->rank, map}, &operands[i]));
    }
  return NULL;
}

/* broadcast_OP: OP of StableHLO or CHLO on broadcast operands. */
static weft_status *broadcast_op(lowering *l, const mlir_op *op)
{
  hlo_instr **operands;
  mlir_op plain = *op;
  mlir_op_kind kind = {0};
  mlir_value *values = WEFT_ARENA_ARRAY(&l->scratch, mlir_value, op->operand_count);

  WEFT_TRY_ALLOC(values);
  for (int i = 0; i < op->operand_count && op->result_count == 1; i++) {
    const mlir_quant *q = op->operands[i]->type->quant, *to = op->results[0].type->quant;
    if (q && to && q->storage != to->storage)
      return WEFT_ERR(INVALID_ARGUMENT, "operand %d is stored as another type than the result", i);
  }
  WEFT_TRY(lower_operands(l, op, &operands));
  WEFT_TRY(broadcast_operands(l, op, operands));
  plain.name = kind.name = op->name + strlen("broadcast_");
  plain.operands = WEFT_ARENA_ARRAY(&l->scratch, mlir_value *, op->operand_count);
  WEFT_TRY_ALLOC(plain.operands);
  for (int i = 0; i < op->operand_count; i++) {
    values[i] = (mlir_value){.type = op->operands[i]->type, .instr = operands[i]};
    plain.operands[i] = &values[i];
  }
  bool chlo = strcmp(plain.name, "next_after") == 0 || strcmp(plain.name, "polygamma") == 0 ||
              strcmp(plain.name, "zeta") == 0;
  plain.dialect = chlo ? SHLO_CHLO : SHLO_STABLEHLO;
  plain.kind = &kind;
  return chlo ? lower_chlo_op(l, &plain) : lower_table_op(l, &plain);
}

/* What HLO has. */
static const struct { const char *name; hlo_opcode code; } opcodes[] = {
    {"acos", HLO_ACOS}, {"acosh", HLO_ACOSH}, {"asin", HLO_ASIN}, {"asinh", HLO_ASINH}, {"atanh", HLO_ATANH},
    {"tan", HLO_TAN}, {"erf", HLO_ERF}, {"erfc", HLO_ERFC}, {"mulhi", HLO_MULHI}};

/* Formulas. NARROW: narrow floats are computed in f32. REAL: complex numbers are not allowed. */
enum { NARROW = 1, REAL = 2 };
static const struct { const char *name; val (*one)(builder *, val); val (*two)(builder *, val, val); int traits; } formulas[] = {
    {"atan", atan_of, NULL, 0}, {"bessel_i1e", bessel_i1e, NULL, NARROW | REAL}, {"conj", conj_of, NULL, 0},
    {"cosh", cosh_of, NULL, NARROW}, {"digamma", digamma, NULL, NARROW | REAL}, {"erf_inv", erf_inv, NULL, NARROW | REAL},
    {"is_inf", is_inf, NULL, REAL}, {"is_neg_inf", is_neg_inf, NULL, REAL},
    {"is_pos_inf", is_pos_inf, NULL, REAL}, {"lgamma", lgamma_of, NULL, NARROW | REAL},
    {"next_after", NULL, next_after, REAL}, {"polygamma", NULL, polygamma, NARROW | REAL}, {"sinh", sinh_of, NULL, NARROW},
    {"square", square, NULL, 0}, {"zeta", NULL, zeta, NARROW | REAL}};

static weft_status *formula(lowering *l, const mlir_op *op, size_t which)
{
  builder b = {.l = l};
  hlo_instr *x, *y = NULL;
  weft_dtype type;

  WEFT_TRY(lower_count_operands(&(lower_entry){.operands = formulas[which].two ? 2 : 1}, op));
  WEFT_TRY(lower_operand(l, op, 0, &x));
  if (formulas[which].two) WEFT_TRY(lower_operand(l, op, 1, &y));
  if (!hlo_shape_is_array(x->shape)) return WEFT_ERR(INVALID_ARGUMENT, "the operand is no array");
  type = x->shape->type;
  bool widen = formulas[which].traits & NARROW && weft_dtype_is_float(type) && weft_dtype_bits(type) < 32;
  if (formulas[which].traits & REAL && !weft_dtype_is_float(type))
    return WEFT_ERR(UNIMPLEMENTED, "chlo.%s of %s is not supported", op->name, weft_dtype_name(type));
  if (widen) {
    x = to(&b, x, WEFT_F32);
    if (y) y = to(&b, y, WEFT_F32);
  }
  val out = formulas[which].two ? formulas[which].two(&b, x, y) : formulas[which].one(&b, x);
  if (widen) out = to(&b, out, type);
  WEFT_TRY(b.st);
  return lower_result(l, op, 0, out);
}

weft_status *lower_chlo_op(lowering *l, const mlir_op *op)
{
  static const lower_entry others[] = {{"constant", constant, 0, LOWER_NO_OPERANDS}, {"constant_like", constant, 0, 1},
                                       {"ragged_dot", ragged_dot, 0, 3}, {"scan", scan, 0, 0}, {"top_k", lower_top_k, 0, 1}};
  hlo_instr **operands, *in;

  for (size_t i = 0; i < WEFT_COUNT(opcodes); i++)
    if (strcmp(op->name, opcodes[i].name) == 0) {
      WEFT_TRY(lower_operands(l, op, &operands));
      WEFT_TRY(lower_simple(l, opcodes[i].code, NULL, op->operand_count, operands, &in));
      return lower_result(l, op, 0, in);
    }
  for (size_t i = 0; i < WEFT_COUNT(formulas); i++)
    if (strcmp(op->name, formulas[i].name) == 0) return formula(l, op, i);
  for (size_t i = 0; i < WEFT_COUNT(others); i++)
    if (strcmp(op->name, others[i].name) == 0) {
      WEFT_TRY(lower_count_operands(&others[i], op));
      return others[i].rule(l, op);
    }
  if (strncmp(op->name, "broadcast_", 10) == 0) return broadcast_op(l, op);
  return WEFT_ERR(UNIMPLEMENTED, "operation \"chlo.%s\" is not supported", op->name);
}
