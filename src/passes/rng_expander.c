/* passes/rng_expander.c -- rng-expander: random numbers become integer arithmetic.
 *
 * rng-bit-generator: Philox4x32-10 and Threefry2x32-20 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
 * SC 2011), with state layout and order of the numbers as XLA documents them for RngBitGenerator, bit for bit:
 *   THREE_FRY  state u64[2] = {key, counter}; elements 2i and 2i + 1 (along the first even dimension, else the
 *              largest) are the two words of one block, whose number is counter + the number of the pair; 64-bit
 *              elements take a block each
 *   PHILOX     state u64[3] = {key, counter low, counter high}, or u64[2] = {key, counter high}; block counter + i
 *              gives elements 4i .. 4i+3 (2i, 2i+1 of 64 bits)
 *   types under 32 bits keep the low bits of a 32-bit number.  DEFAULT is PHILOX.
 * rng: Philox on the module's own counter (rng-get-and-update-state), keyed by the instruction; uniform floats are
 * 23 (52) random bits scaled to [a, b), integers bits modulo the range, normals Box-Muller pairs. */
#include <config.h>

#include <math.h>
#include <string.h>

#include "passes/build.h"
#include "passes/passes.h"

typedef struct words { hlo_instr *w[4]; } words; /* u32 arrays of one shape */

static const hlo_shape *shape_of(pass_build *b, weft_dtype type, int rank, const int64_t *dims)
{
  const hlo_shape *shape = hlo_shape_array(&b->comp->module->arena, type, rank, dims);

  if (!shape && !b->error) b->error = WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  return shape;
}

static hlo_instr *shift_right(pass_build *b, hlo_instr *x, int bits)
{
  return pb_op2(b, HLO_SHIFT_RIGHT_LOGICAL, x, pb_splat_int(b, x, bits));
}

static hlo_instr * xor (pass_build * b, hlo_instr *x, hlo_instr *y) { return pb_op2(b, HLO_XOR, x, y); }

  static hlo_instr *low_word(pass_build *b, hlo_instr *x)
{
  return pb_convert(b, x, WEFT_U32);
}
static hlo_instr *high_word(pass_build *b, hlo_instr *x) { return pb_convert(b, shift_right(b, x, 32), WEFT_U32); }

static hlo_instr *join_words(pass_build *b, hlo_instr *low, hlo_instr *high)
{
  hlo_instr *wide = pb_convert(b, high, WEFT_U64);

  return pb_op2(b, HLO_OR, pb_convert(b, low, WEFT_U64),
                pb_op2(b, HLO_SHIFT_LEFT, wide, b->error ? NULL : pb_splat_int(b, wide, 32)));
}

/* Element `index` of a vector, as a scalar. */
static hlo_instr *pick(pass_build *b, hlo_instr *vector, int64_t index)
{
  return pb_reshape(b, pb_slice_dim(b, vector, 0, index, index + 1), 0, NULL);
}

static hlo_instr *add_scalar(pass_build *b, hlo_instr *x, hlo_instr *scalar)
{
  return b->error ? NULL : pb_add(b, x, pb_fill(b, scalar, x->shape));
}

/* ---- Threefry2x32 ------------------------------------------------------------------------------------------------ */

static void threefry(pass_build *b, hlo_instr *x[2], hlo_instr *key)
{
  static const int rotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  hlo_instr *k[3] = {low_word(b, key), high_word(b, key), NULL};

  k[2] = xor(b, xor(b, k[0], k[1]), pb_int(b, WEFT_U32, 0x1BD11BDA));
  x[0] = add_scalar(b, x[0], k[0]);
  x[1] = add_scalar(b, x[1], k[1]);
  for (int group = 0; group < 5 && !b->error; group++) {
    for (int i = 0; i < 4 && !b->error; i++) {
      int distance = rotations[group % 2][i];
      hlo_instr *left = pb_op2(b, HLO_SHIFT_LEFT, x[1], pb_splat_int(b, x[1], distance));
      x[0] = pb_add(b, x[0], x[1]);
      x[1] = xor(b, x[0], pb_op2(b, HLO_OR, left, shift_right(b, x[1], 32 - distance)));
    }
    x[0] = add_scalar(b, x[0], k[(group + 1) % 3]);
    x[1] = add_scalar(b, x[1], pb_add(b, k[(group + 2) % 3], pb_int(b, WEFT_U32, group + 1)));
  }
}

/* The two words of the blocks counter .. counter + n - 1, where `shape` has n elements. */
static void threefry_blocks(pass_build *b, hlo_instr *key, hlo_instr *counter, const hlo_shape *shape,
                            hlo_instr *out[2])
{
  int64_t n = hlo_shape_elems(shape);
  hlo_instr *index = pb_iota(b, shape_of(b, WEFT_U64, 1, &n), 0), *input = add_scalar(b, index, counter);

  out[0] = pb_reshape_like(b, low_word(b, input), shape);
  out[1] = pb_reshape_like(b, high_word(b, input), shape);
  threefry(b, out, key);
}

/* The numbers come in pairs (the two words of a block), which are neighbours along `dim`. */
typedef struct pairing {
  int dim;
  const hlo_shape *half;   /* u32, with a dimension of 1 behind `dim` */
  int64_t rounded[HLO_MAX_RANK];
} pairing;

static pairing pair_up(pass_build *b, const hlo_shape *shape)
{
  int64_t dims[HLO_MAX_RANK + 1];
  pairing p = {.dim = -1};

  for (int i = 0; i < shape->rank && p.dim < 0; i++)
    if (shape->dims[i] % 2 == 0) p.dim = i;
  for (int i = 0; i < shape->rank && (p.dim < 0 || shape->dims[p.dim] % 2); i++)
    if (p.dim < 0 || shape->dims[i] > shape->dims[p.dim]) p.dim = i;
  memcpy(p.rounded, shape->dims, (size_t)shape->rank * sizeof *p.rounded);
  p.rounded[p.dim] += p.rounded[p.dim] % 2;
  for (int i = 0, k = 0; i < shape->rank; i++) {
    dims[k++] = i == p.dim ? p.rounded[i] / 2 : shape->dims[i];
    if (i == p.dim) dims[k++] = 1;
  }
  p.half = shape_of(b, WEFT_U32, shape->rank + 1, dims);
  return p;
}

static hlo_instr *combine_pair(pass_build *b, const pairing *p, hlo_instr *const parts[2], const hlo_shape *shape)
{
  hlo_instr *both = pb_reshape(b, pb_concat(b, p->dim + 1, 2, parts), shape->rank, p->rounded);

  return pb_slice_dim(b, both, p->dim, 0, shape->dims[p->dim]);
}

/* Numbers of u32 (or of u64 for 64-bit types) of that shape; *counter is advanced. */
static hlo_instr *threefry_numbers(pass_build *b, hlo_instr *key, hlo_instr **counter, const hlo_shape *shape)
{
  hlo_instr *out[2], *numbers;
  int64_t blocks;

  if (weft_dtype_bits(shape->type) == 64) {
    threefry_blocks(b, key, *counter, shape, out);
    numbers = join_words(b, out[0], out[1]);
    blocks = hlo_shape_elems(shape);
  } else if (shape->rank == 0) {
    int64_t one = 1;
    const hlo_shape *single = shape_of(b, WEFT_U32, 1, &one);
    if (b->error) return NULL;
    threefry_blocks(b, key, *counter, single, out);
    numbers = pb_reshape(b, out[0], 0, NULL);
    blocks = 1;
  } else {
    pairing p = pair_up(b, shape);
    if (b->error) return NULL;
    threefry_blocks(b, key, *counter, p.half, out);
    numbers = combine_pair(b, &p, out, shape);
    blocks = hlo_shape_elems(p.half);
  }
  *counter = pb_add(b, *counter, pb_int(b, WEFT_U64, blocks));
  return numbers;
}

/* ---- Philox4x32 -------------------------------------------------------------------------------------------------- */

static void multiply_words(pass_build *b, hlo_instr *x, int64_t by, hlo_instr **low, hlo_instr **high)
{
  hlo_instr *wide = pb_convert(b, x, WEFT_U64), *product = pb_mul(b, wide, b->error ? NULL : pb_splat_int(b, wide, by));

  *low = low_word(b, product);
  *high = high_word(b, product);
}

static void philox(pass_build *b, words *x, hlo_instr *key)
{
  hlo_instr *k0 = low_word(b, key), *k1 = high_word(b, key);

  for (int round = 0; round < 10 && !b->error; round++) {
    hlo_instr *low0, *high0, *low1, *high1;
    multiply_words(b, x->w[0], 0xD2511F53, &low0, &high0);
    multiply_words(b, x->w[2], 0xCD9E8D57, &low1, &high1);
    if (b->error) return;
    *x = (words){{xor(b, xor(b, high1, x->w[1]), pb_fill(b, k0, high1->shape)), low1,
                  xor(b, xor(b, high0, x->w[3]), pb_fill(b, k1, high0->shape)), low0}};
    k0 = pb_add(b, k0, pb_int(b, WEFT_U32, 0x9E3779B9));
    k1 = pb_add(b, k1, pb_int(b, WEFT_U32, 0xBB67AE85));
  }
}

/* counter[2] (low, high) plus x, with carry; the results have x's shape. */
static void add_to_counter(pass_build *b, hlo_instr *const counter[2], hlo_instr *x, hlo_instr *out[2])
{
  hlo_instr *low, *high;

  if (b->error) return;
  low = pb_fill(b, counter[0], x->shape);
  high = pb_fill(b, counter[1], x->shape);
  out[0] = pb_add(b, low, x);
  out[1] =
    pb_select(b, pb_compare(b, HLO_LT, out[0], low), b->error ? NULL : pb_add(b, high, pb_splat_int(b, high, 1)), high);
}

static hlo_instr *philox_numbers(pass_build *b, hlo_instr *key, hlo_instr *counter[2], const hlo_shape *shape)
{
  bool is_wide = weft_dtype_bits(shape->type) == 64;
  int per_block = is_wide ? 2 : 4;
  int64_t n = hlo_shape_elems(shape), blocks = (n + per_block - 1) / per_block, column[2] = {blocks, 1},
          total = blocks * per_block;
  hlo_instr *input[2] = {NULL, NULL}, *parts[4], *numbers;
  words x;

  add_to_counter(b, counter, pb_iota(b, shape_of(b, WEFT_U64, 1, &blocks), 0), input);
  x = (words){{low_word(b, input[0]), high_word(b, input[0]), low_word(b, input[1]), high_word(b, input[1])}};
  philox(b, &x, key);
  for (int i = 0; i < per_block; i++)
    parts[i] = pb_reshape(b, is_wide ? join_words(b, x.w[2 * i], x.w[2 * i + 1]) : x.w[i], 2, column);
  numbers = pb_reshape(b, pb_concat(b, 1, per_block, parts), 1, &total);
  add_to_counter(b, counter, pb_int(b, WEFT_U64, blocks), counter);
  return pb_reshape_like(b, pb_slice_dim(b, numbers, 0, 0, n), shape);
}

/* ---- the instructions -------------------------------------------------------------------------------------------- */

static weft_dtype unsigned_of_bits(int bits)
{
  switch (bits) {
  case 2: return WEFT_U2;
  case 4: return WEFT_U4;
  case 6: /* there is no unsigned type of six bits; the low bits of a u8 are used */
  case 8: return WEFT_U8;
  case 16: return WEFT_U16;
  case 32: return WEFT_U32;
  case 64: return WEFT_U64;
  default: return WEFT_INVALID;
  }
}

/* The low six bits of `numbers` as a float of six bits. Sign, exponent and mantissa go to their places in f16, where
 * a factor corrects the bias. All values are exact. */
static hlo_instr *as_six_bits(pass_build *b, hlo_instr *numbers, weft_dtype type)
{
  int mantissa = type == WEFT_F6E2M3FN ? 3 : 2, bias = type == WEFT_F6E2M3FN ? 1 : 3;
  hlo_instr *bits = pb_convert(b, numbers, WEFT_U16), *sign, *rest, *value;

  if (b->error) return NULL;
  sign = pb_op2(b, HLO_SHIFT_LEFT, pb_op2(b, HLO_AND, bits, pb_splat_int(b, bits, 32)), pb_splat_int(b, bits, 10));
  rest = pb_op2(b, HLO_SHIFT_LEFT, pb_op2(b, HLO_AND, bits, pb_splat_int(b, bits, 31)),
                pb_splat_int(b, bits, 10 - mantissa));
  value = pb_convert(b, pb_bitcast_convert(b, pb_op2(b, HLO_OR, sign, rest), WEFT_F16), WEFT_F32);
  return b->error ? NULL : pb_convert(b, pb_mul(b, value, pb_splat(b, value, ldexp(1, 15 - bias))), type);
}

/* Numbers of 32 or 64 bits, narrowed to the width of `type` and given its type. */
static hlo_instr *as_type(pass_build *b, hlo_instr *numbers, weft_dtype type)
{
  if (weft_dtype_bits(type) == 6) return as_six_bits(b, numbers, type);
  return pb_bitcast_convert(b, pb_convert(b, numbers, unsigned_of_bits(weft_dtype_bits(type))), type);
}

static weft_status *expand_bit_generator(hlo_instr *rng)
{
  bool gives_state = hlo_shape_is_tuple(rng->shape); /* or the bits alone */
  const hlo_shape *data = gives_state ? rng->shape->elements[1] : rng->shape;
  hlo_instr *state = rng->operands[0], *key, *counter[2], *numbers, *parts[3];
  int words_in_state = state->shape->rank == 1 ? (int)state->shape->dims[0] : 0, count = 2;
  pass_build b = PASS_BUILD_AT(rng);

  if (unsigned_of_bits(weft_dtype_bits(data->type)) == WEFT_INVALID || weft_dtype_is_complex(data->type) ||
      data->type == WEFT_PRED || state->shape->type != WEFT_U64 || words_in_state < 2 ||
      words_in_state > (rng->u.rng_algorithm == HLO_RNG_THREE_FRY ? 2 : 3))
    return WEFT_ERR(UNIMPLEMENTED, "rng-bit-generator \"%s\": element type %s with a state of %d words", rng->name,
                    weft_dtype_name(data->type), words_in_state);
  key = pick(&b, state, 0);
  parts[0] = pb_slice_dim(&b, state, 0, 0, 1);
  counter[0] = pick(&b, state, 1);
  if (rng->u.rng_algorithm == HLO_RNG_THREE_FRY) {
    numbers = threefry_numbers(&b, key, &counter[0], data);
  } else {
    counter[1] = pick(&b, state, words_in_state == 3 ? 2 : 0); /* two words: the key is the upper half of the counter */
    numbers = philox_numbers(&b, key, counter, data);
    if (words_in_state == 3) parts[count++] = counter[1];
  }
  parts[1] = counter[0];
  for (int i = 1; i < count; i++) parts[i] = pb_reshape(&b, parts[i], 1, (int64_t[]){1});
  parts[0] = pb_concat(&b, 0, count, parts);
  parts[1] = as_type(&b, numbers, data->type);
  return pass_build_replace(&b, rng, gives_state ? pb_tuple(&b, 2, parts) : parts[1]);
}

/* Numbers in [0, 1) of a float type of 32 or 64 bits. */
static hlo_instr *unit_floats(pass_build *b, hlo_instr *numbers, weft_dtype type)
{
  int bits = type == WEFT_F64 ? 64 : 32, mantissa = type == WEFT_F64 ? 52 : 23;
  hlo_instr *value = pb_convert(b, shift_right(b, numbers, bits - mantissa), type);

  return b->error ? NULL : pb_mul(b, value, pb_splat(b, value, ldexp(1, -mantissa)));
}

static hlo_instr *normal_floats(pass_build *b, hlo_instr *key, hlo_instr *counter[2], const hlo_shape *shape)
{
  int64_t one = 1;
  const hlo_shape *vector = shape->rank ? shape : shape_of(b, shape->type, 1, &one), *half;
  hlo_instr *u[2], *radius, *angle, *pair[2];
  pairing p;

  if (b->error) return NULL;
  p = pair_up(b, vector);
  if (b->error) return NULL;
  half = hlo_shape_with_type(&b->comp->module->arena, p.half, shape->type);
  for (int i = 0; i < 2; i++) u[i] = unit_floats(b, philox_numbers(b, key, counter, half), shape->type);
  if (b->error) return NULL;
  u[0] = pb_op1(b, HLO_LOG, pb_op2(b, HLO_MAXIMUM, u[0], pb_splat(b, u[0], 1e-7)));
  if (b->error) return NULL;
  radius = pb_op1(b, HLO_SQRT, pb_mul(b, u[0], pb_splat(b, u[0], -2)));
  angle = pb_mul(b, u[1], pb_splat(b, u[1], 2 * M_PI));
  pair[0] = pb_mul(b, pb_op1(b, HLO_SIN, angle), radius);
  pair[1] = pb_mul(b, pb_op1(b, HLO_COS, angle), radius);
  return pb_reshape_like(b, combine_pair(b, &p, pair, vector), shape);
}

/* The type in which numbers of a type are made. */
static weft_dtype wide_type(weft_dtype type)
{
  if (weft_dtype_bits(type) >= 32) return type;
  return weft_dtype_is_float(type) ? WEFT_F32 : weft_dtype_is_signed(type) ? WEFT_S32 : WEFT_U32;
}

static weft_status *expand_rng(hlo_instr *rng)
{
  weft_dtype type = rng->shape->type, wide = wide_type(type);
  const hlo_shape *shape = hlo_shape_with_type(&rng->parent->module->arena, rng->shape, wide);
  pass_build b = PASS_BUILD_AT(rng);
  int64_t two = 2;
  hlo_instr *state, *key, *counter[2], *least, *most, *value;

  WEFT_TRY_ALLOC(shape);
  state = pb_instr(&b, HLO_RNG_GET_AND_UPDATE_STATE, shape_of(&b, WEFT_U64, 1, &two), 0, NULL);
  if (state) state->u.delta = hlo_shape_elems(shape) * (weft_dtype_bits(wide) / 32);
  key = pb_int(&b, WEFT_U64, (int64_t)((uint64_t)rng->id * 0x9E3779B97F4A7C15u));
  counter[0] = pick(&b, state, 0);
  counter[1] = pick(&b, state, 1);
  least = pb_fill(&b, pb_convert(&b, rng->operands[0], wide), shape);
  most = pb_fill(&b, pb_convert(&b, rng->operands[1], wide), shape);
  if (type == WEFT_PRED && !b.error) least = pb_splat_int(&b, least, 0), most = pb_splat_int(&b, most, 2); /* either */
  if (rng->u.distribution == HLO_RNG_NORMAL) {
    value = pb_add(&b, least, pb_mul(&b, most, normal_floats(&b, key, counter, shape)));
  } else if (weft_dtype_is_float(wide)) {
    value = unit_floats(&b, philox_numbers(&b, key, counter, shape), wide);
    value = pb_add(&b, pb_mul(&b, value, pb_sub(&b, most, least)), least);
  } else {
    weft_dtype bits = unsigned_of_bits(weft_dtype_bits(wide));
    hlo_instr *range = pb_sub(&b, pb_bitcast_convert(&b, most, bits), pb_bitcast_convert(&b, least, bits));
    value = pb_op2(&b, HLO_REMAINDER, philox_numbers(&b, key, counter, shape), range);
    value = pb_add(&b, least, pb_bitcast_convert(&b, value, wide));
  }
  return pass_build_replace(&b, rng, pb_convert(&b, value, type));
}

static weft_status *rng_expander_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  (void)ctx;
  HLO_FOREACH_COMPUTATION(comp, module)
    HLO_FOREACH(instr, comp) {
      if (instr->op == HLO_RNG) WEFT_TRY(expand_rng(instr));
      else if (instr->op == HLO_RNG_BIT_GENERATOR) WEFT_TRY(expand_bit_generator(instr));
      else continue;
      *changed = true;
    }
  return NULL;
}
const hlo_pass pass_rng_expander = {"rng-expander", rng_expander_run};
