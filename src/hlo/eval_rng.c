/* hlo/eval_rng.c -- Random numbers.  rng-bit-generator gives XLA's bits exactly: Threefry-2x32-20 and Philox-4x32-10
 * (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011), with the counters assigned to elements as in
 * XLA's expansion. */
#include <config.h>

#include <math.h>
#include <string.h>

#include "hlo/eval_internal.h"

static uint32_t rotate_left(uint32_t x, int by) { return x << by | x >> (32 - by); }

/* x: in, the 64-bit counter, low word first; out, the result. */
static void threefry(uint64_t key, uint32_t x[2])
{
  static const int rotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  uint32_t ks[3] = {(uint32_t)key, (uint32_t)(key >> 32), 0};

  ks[2] = ks[0] ^ ks[1] ^ 0x1BD11BDA;
  x[0] += ks[0];
  x[1] += ks[1];
  for (uint32_t group = 0; group < 5; group++) {
    for (int r = 0; r < 4; r++) {
      x[0] += x[1];
      x[1] = rotate_left(x[1], rotations[group % 2][r]) ^ x[0];
    }
    x[0] += ks[(group + 1) % 3];
    x[1] += ks[(group + 2) % 3] + group + 1;
  }
}

static void philox(uint64_t key, unsigned __int128 counter, uint32_t out[4])
{
  uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);

  for (int i = 0; i < 4; i++) out[i] = (uint32_t)(counter >> (32 * i));
  for (int round = 0; round < 10; round++) {
    uint64_t p0 = (uint64_t)out[0] * 0xD2511F53, p1 = (uint64_t)out[2] * 0xCD9E8D57;
    uint32_t next[4] = {(uint32_t)(p1 >> 32) ^ out[1] ^ k0, (uint32_t)p1, (uint32_t)(p0 >> 32) ^ out[3] ^ k1,
                        (uint32_t)p0};
    memcpy(out, next, sizeof next);
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
}

static void store_bits(hlo_literal *lit, int64_t i, uint64_t bits)
{
  weft_dtype type = lit->shape->type;

  if (weft_dtype_is_integer(type)) {
    eval_store(type, eval_at(lit, i), (eval_scalar){.u = bits});
    return;
  }
  if (weft_dtype_bits(type) < 8) bits &= (UINT64_C(1) << weft_dtype_bits(type)) - 1;
  memcpy(eval_at(lit, i), &bits, weft_dtype_bytes(type));
}

/* The dimension that XLA halves, since each counter gives two 32-bit numbers: the first even one, else the longest. */
static int split_dim(const hlo_shape *shape)
{
  int longest = 0;

  for (int d = 0; d < shape->rank; d++) {
    if (shape->dims[d] % 2 == 0) return d;
    if (shape->dims[d] > shape->dims[longest]) longest = d;
  }
  return longest;
}

/* Returns the number of counters used. */
static uint64_t threefry_fill(uint64_t key, uint64_t counter, hlo_literal *bits)
{
  const hlo_shape *shape = bits->shape;
  int64_t count = hlo_shape_elems(shape), outer = 1, size = 1, inner = 1, half, split;
  uint32_t x[2];

  if (weft_dtype_bits(shape->type) == 64) {
    for (int64_t i = 0; i < count; i++) {
      x[0] = (uint32_t)(counter + (uint64_t)i);
      x[1] = (uint32_t)((counter + (uint64_t)i) >> 32);
      threefry(key, x);
      store_bits(bits, i, x[0] | (uint64_t)x[1] << 32);
    }
    return (uint64_t)count;
  }
  /* 32 bits and less: the array is [outer, size, inner]; counter [o, h, i] of [outer, half, inner] gives elements
   * 2h and 2h + 1 of the split dimension */
  split = split_dim(shape);
  for (int d = 0; d < shape->rank; d++) *(d < split ? &outer : d == split ? &size : &inner) *= shape->dims[d];
  half = (size + 1) / 2;
  for (int64_t c = 0; c < outer * half * inner; c++) {
    int64_t o = c / inner / half, h = c / inner % half, i = c % inner;
    x[0] = (uint32_t)(counter + (uint64_t)c);
    x[1] = (uint32_t)((counter + (uint64_t)c) >> 32);
    threefry(key, x);
    for (int64_t part = 0; part < 2 && 2 * h + part < size; part++)
      store_bits(bits, (o * size + 2 * h + part) * inner + i, x[part]);
  }
  return (uint64_t)(outer * half * inner);
}

static uint64_t philox_fill(uint64_t key, unsigned __int128 counter, hlo_literal *bits)
{
  int64_t count = hlo_shape_elems(bits->shape), used = 0;
  int per_counter = weft_dtype_bits(bits->shape->type) == 64 ? 2 : 4;
  uint32_t out[4];

  for (int64_t i = 0; i < count; i++) {
    if (i % per_counter == 0) philox(key, counter + (uint64_t)used++, out);
    int at = (int)(i % per_counter);
    store_bits(bits, i, per_counter == 4 ? out[at] : out[2 * at] | (uint64_t)out[2 * at + 1] << 32);
  }
  return (uint64_t)used;
}

weft_status *eval_rng_bit_generator(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                                    const hlo_literal **out)
{
  const hlo_literal **elements = WEFT_ARENA_ARRAY(ctx->arena, const hlo_literal *, 2);
  bool gives_state = hlo_shape_is_tuple(instr->shape); /* else the result is the bits alone */
  int64_t words = hlo_shape_bytes(operands[0]->shape) / 8;
  uint64_t state[3] = {0}; /* key, counter, and for Philox the counter's upper half */
  hlo_literal *new_state, *bits;

  WEFT_TRY_ALLOC(elements);
  if (words < 2 || words > 3)
    return WEFT_ERR(INVALID_ARGUMENT, "rng-bit-generator: state of %lld words", (long long)words);
  memcpy(state, operands[0]->data, (size_t)words * 8);
  WEFT_TRY(eval_result(ctx, operands[0]->shape, &new_state));
  WEFT_TRY(eval_result(ctx, gives_state ? instr->shape->elements[1] : instr->shape, &bits));
  if (instr->u.rng_algorithm == HLO_RNG_THREE_FRY) {
    state[1] += threefry_fill(state[0], state[1], bits);
  } else { /* Philox, which is also the default on CPUs */
    /* with a state of two words the key is the counter's upper half, too, and only the lower half is kept */
    unsigned __int128 counter = (unsigned __int128)(words == 2 ? state[0] : state[2]) << 64 | state[1];
    counter += philox_fill(state[0], counter, bits);
    state[1] = (uint64_t)counter;
    state[2] = (uint64_t)(counter >> 64);
  }
  memcpy(new_state->data, state, (size_t)words * 8);
  elements[0] = new_state;
  *out = elements[1] = bits;
  if (!gives_state) return NULL;
  return eval_result_tuple(ctx, instr->shape, elements, out);
}

/* Returns the state before delta is added to it, low word first. */
weft_status *eval_rng_get_and_update_state(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                                           const hlo_literal **out)
{
  uint64_t *counter = ctx->devices[0]->counter;
  unsigned __int128 state = (unsigned __int128)counter[1] << 64 | counter[0];
  hlo_literal *result;

  (void)operands;
  WEFT_TRY(eval_result(ctx, instr->shape, &result));
  memcpy(result->data, counter, 16);
  state += (unsigned __int128)(__int128)instr->u.delta;
  counter[0] = (uint64_t)state;
  counter[1] = (uint64_t)(state >> 64);
  *out = result;
  return NULL;
}

/* ---- rng --------------------------------------------------------------------------------------------------------- */

/* SplitMix64 (Steele, Lea, Flood 2014): HLO leaves the generator of rng open. */
static uint64_t next_u64(eval_ctx *ctx)
{
  uint64_t z = ctx->devices[0]->rng_state += 0x9E3779B97F4A7C15;

  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
  z = (z ^ z >> 27) * 0x94D049BB133111EB;
  return z ^ z >> 31;
}
static double next_unit(eval_ctx *ctx) { return (double)(next_u64(ctx) >> 11) * 0x1p-53; } /* [0, 1) */

/* Uniform in [a, b) for every type, or normal with mean a and standard deviation b (Box-Muller). */
weft_status *eval_rng(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                      const hlo_literal **out)
{
  weft_dtype type = instr->shape->type;
  bool is_float = weft_dtype_is_float(type);
  eval_scalar a = eval_load(type, operands[0]->data), b = eval_load(type, operands[1]->data);
  int64_t count = hlo_shape_elems(instr->shape);
  hlo_literal *result;

  if (weft_dtype_is_complex(type) || (instr->u.distribution == HLO_RNG_NORMAL && !is_float))
    return WEFT_ERR(UNIMPLEMENTED, "rng %s of %s", instr->name, weft_dtype_name(type));
  WEFT_TRY(eval_result(ctx, instr->shape, &result));
  for (int64_t i = 0; i < count; i++) {
    eval_scalar x = {.im = 0};
    if (instr->u.distribution == HLO_RNG_NORMAL) {
      double radius = sqrt(-2 * log(1 - next_unit(ctx)));
      x.re = a.re + b.re * radius * cos(2 * acos(-1) * next_unit(ctx));
    } else if (is_float) {
      x.re = a.re + (b.re - a.re) * next_unit(ctx);
      eval_store(type, eval_at(result, i), x); /* b is excluded, but rounding may have reached it */
      if (eval_load(type, eval_at(result, i)).re >= b.re) x = a;
    } else {
      uint64_t range = type == WEFT_PRED ? 2 : b.u - a.u;
      x.u = range ? a.u + (uint64_t)(((unsigned __int128)next_u64(ctx) * range) >> 64) : a.u;
      if (type == WEFT_PRED) x.u &= 1;
    }
    eval_store(type, eval_at(result, i), x);
  }
  *out = result;
  return NULL;
}
