/* codegen/emit/index.c -- indices as sums of affine terms over loop variables.
 * A loop that runs over several dimensions at once gives each of them a digit of its variable, (var / div) % mod;
 * linearising an access puts neighbouring digits together again, so that what is contiguous is seen to be. */
#include <config.h>

#include "codegen/emit/emit.h"

#include <string.h>

gen_affine gen_affine_const(int64_t base) { return (gen_affine){.base = base}; }

static gen_affine one_term(gen_emit *e, gen_term term)
{
  gen_term *t = WEFT_ARENA_NEW(e->arena, gen_term);
  *t = term;
  return (gen_affine){.count = 1, .terms = t};
}

gen_affine gen_affine_var(gen_emit *e, int var)
{
  const gen_var *v = &e->vars[var];

  if (v->hi == v->lo + 1) return gen_affine_const(v->lo);
  return one_term(e, (gen_term){.coef = 1, .div = 1, .var = var});
}

gen_affine gen_affine_value(gen_emit *e, gen_ssa value, int64_t lo, int64_t hi)
{
  if (lo == hi) return gen_affine_const(lo);
  if (!gen_is_vector(value) && LLVMIsAConstantInt(value)) return gen_affine_const(LLVMConstIntGetSExtValue(value));
  return one_term(e, (gen_term){.coef = 1, .var = -1, .value = value, .lo = lo, .hi = hi});
}

static void term_range(gen_emit *e, const gen_term *t, int64_t *lo, int64_t *hi)
{
  int64_t a = t->lo, b = t->hi;

  if (t->var >= 0) {
    a = e->vars[t->var].lo / t->div;
    b = (e->vars[t->var].hi - 1) / t->div;
    if (t->mod) {
      bool same_period = a / t->mod == b / t->mod;
      a = same_period ? a % t->mod : 0;
      b = same_period ? b % t->mod : t->mod - 1;
    }
  }
  *lo = t->coef >= 0 ? a * t->coef : b * t->coef;
  *hi = t->coef >= 0 ? b * t->coef : a * t->coef;
}

void gen_affine_range(gen_emit *e, gen_affine a, int64_t *out_lo, int64_t *out_hi)
{
  int64_t lo = a.base, hi = a.base;

  for (int i = 0; i < a.count; i++) {
    int64_t l, h;
    term_range(e, &a.terms[i], &l, &h);
    lo += l, hi += h;
  }
  *out_lo = lo, *out_hi = hi;
}

/* Merges equal terms and neighbouring digits of one variable, in place; returns the new count. */
static int simplify(gen_emit *e, gen_term *t, int count)
{
  bool changed = true;

  while (changed) {
    changed = false;
    for (int i = 0; i < count; i++) {
      if (t[i].var >= 0 && t[i].mod && (e->vars[t[i].var].hi - 1) / t[i].div < t[i].mod) t[i].mod = 0;
      if (t[i].coef == 0) {
        t[i--] = t[--count];
        changed = true;
      }
    }
    for (int i = 0; i < count; i++) {
      for (int j = 0; j < count; j++) {
        gen_term *a = &t[i], *b = &t[j]; /* a is the higher digit */
        if (i == j || a->var != b->var) continue;
        if (i < j && (a->var >= 0 ? a->div == b->div && a->mod == b->mod : a->value == b->value)) {
          a->coef += b->coef;
        } else if (a->var >= 0 && b->mod && a->div == b->div * b->mod && a->coef == b->coef * b->mod) {
          a->coef = b->coef, a->div = b->div;
          if (a->mod) a->mod *= b->mod;
        } else {
          continue;
        }
        *b = t[--count];
        changed = true;
        i = count; /* start again */
        break;
      }
    }
  }
  return count;
}

static bool are_neighbours(const gen_term *high, const gen_term *low)
{
  return high->var < 0 && low->var < 0 && high->of && low->of && low->mod && high->div == low->div * low->mod &&
         high->coef == low->coef * low->mod && gen_affine_equal(*high->of, *low->of);
}

/* Puts neighbouring digits of one sum together again, as simplify does with the digits of a variable. */
static gen_affine join_digits(gen_emit *e, gen_affine sum)
{
  for (int i = 0; i < sum.count; i++)
    for (int j = 0; j < sum.count; j++) {
      const gen_term *high = &sum.terms[i], *low = &sum.terms[j];
      if (!are_neighbours(high, low)) continue;
      gen_term *others = WEFT_ARENA_ARRAY(e->arena, gen_term, sum.count);
      int count = 0;
      for (int k = 0; k < sum.count; k++)
        if (k != i && k != j) others[count++] = sum.terms[k];
      gen_affine joined = gen_affine_digit(e, *low->of, low->div, high->mod ? low->mod * high->mod : 0);
      return gen_affine_add(e, (gen_affine){.base = sum.base, .count = count, .terms = others},
                            gen_affine_scale(e, joined, low->coef));
    }
  return sum;
}

gen_affine gen_affine_add(gen_emit *e, gen_affine a, gen_affine b)
{
  if (a.count == 0) return gen_affine_offset(b, a.base);
  if (b.count == 0) return gen_affine_offset(a, b.base);
  gen_term *t = WEFT_ARENA_ARRAY(e->arena, gen_term, a.count + b.count);
  memcpy(t, a.terms, sizeof *t * (size_t)a.count);
  memcpy(t + a.count, b.terms, sizeof *t * (size_t)b.count);
  return join_digits(e, (gen_affine){.base = a.base + b.base, .count = simplify(e, t, a.count + b.count), .terms = t});
}

gen_affine gen_affine_scale(gen_emit *e, gen_affine a, int64_t factor)
{
  if (factor == 1) return a;
  if (factor == 0 || a.count == 0) return gen_affine_const(a.base * factor);
  gen_term *t = WEFT_ARENA_ARRAY(e->arena, gen_term, a.count);
  memcpy(t, a.terms, sizeof *t * (size_t)a.count);
  for (int i = 0; i < a.count; i++) t[i].coef *= factor;
  return (gen_affine){.base = a.base * factor, .count = a.count, .terms = t};
}

/* If a is factor * high + low with 0 <= low < factor, then a / (factor * d) is high / d. Yields `high`; false if
 * `low` may lie outside of that range. */
static bool drop_low_part(gen_emit *e, gen_affine a, int64_t factor, gen_affine *out_high)
{
  gen_term *high = WEFT_ARENA_ARRAY(e->arena, gen_term, a.count);
  int64_t low_base = a.base % factor < 0 ? a.base % factor + factor : a.base % factor, low_least = low_base,
          low_most = low_base;
  int count = 0;

  for (int i = 0; i < a.count; i++) {
    int64_t least, most;
    if (a.terms[i].coef % factor == 0) {
      high[count] = a.terms[i];
      high[count++].coef /= factor;
      continue;
    }
    term_range(e, &a.terms[i], &least, &most);
    low_least += least;
    low_most += most;
  }
  *out_high = (gen_affine){.base = (a.base - low_base) / factor, .count = count, .terms = high};
  return low_least >= 0 && low_most < factor;
}

/* The `low` of drop_low_part. */
static gen_affine low_part(gen_emit *e, gen_affine a, int64_t factor)
{
  gen_term *low = WEFT_ARENA_ARRAY(e->arena, gen_term, a.count);
  gen_affine out = {.base = a.base % factor < 0 ? a.base % factor + factor : a.base % factor, .terms = low};

  for (int i = 0; i < a.count; i++)
    if (a.terms[i].coef % factor) low[out.count++] = a.terms[i];
  return out;
}

/* a without its multiples of `period`, which change no digit below `period`; a itself if what is left may be
 * negative. */
static gen_affine without_multiples(gen_emit *e, gen_affine a, int64_t period)
{
  gen_term *kept = WEFT_ARENA_ARRAY(e->arena, gen_term, a.count);
  gen_affine rest = {.base = a.base, .terms = kept};
  int64_t lo, hi;

  for (int i = 0; i < a.count; i++) {
    term_range(e, &a.terms[i], &lo, &hi);
    if (a.terms[i].coef % period || lo < 0) kept[rest.count++] = a.terms[i];
  }
  gen_affine_range(e, rest, &lo, &hi);
  return lo >= 0 ? rest : a;
}

static bool is_never_negative(gen_emit *e, gen_affine a)
{
  int64_t lo, hi;

  gen_affine_range(e, a, &lo, &hi);
  return lo >= 0;
}

gen_affine gen_affine_digit(gen_emit *e, gen_affine a, int64_t div, int64_t mod)
{
  int64_t lo, hi, rest_lo = 0, rest_hi = 0;

  gen_affine_range(e, a, &lo, &hi);
  if (mod == 1) return gen_affine_const(0);
  if (mod && lo >= 0 && hi / div < mod) mod = 0;
  if (lo >= div && lo / div == hi / div) return gen_affine_const(mod ? lo / div % mod : lo / div);
  if (mod && lo >= div * mod && lo / (div * mod) == hi / (div * mod)) /* all values lie within one period */
    return gen_affine_digit(e, gen_affine_offset(a, -(lo / (div * mod) * div * mod)), div, 0);
  if (div == 1 && mod == 0) return a;
  if (a.count == 0) return gen_affine_const(mod ? a.base / div % mod : a.base / div);
  if (lo >= 0 && hi < div) return gen_affine_const(0);
  if (mod) {
    gen_affine rest = without_multiples(e, a, div * mod);
    if (rest.count < a.count) return gen_affine_digit(e, rest, div, mod);
  }

  /* Multiples of div * mod vanish, multiples of div are divided, and the rest must stay below div. */
  gen_term *quotient = WEFT_ARENA_ARRAY(e->arena, gen_term, a.count),
           *rest = WEFT_ARENA_ARRAY(e->arena, gen_term, a.count);
  int quotients = 0, rests = 0;
  int64_t quotient_lo = 0;
  for (int i = 0; i < a.count; i++) {
    const gen_term *t = &a.terms[i];
    int64_t l, h;
    term_range(e, t, &l, &h);
    if (t->coef % div == 0) {
      if (mod && t->coef % (div * mod) == 0 && l >= 0) continue;
      quotient[quotients] = *t;
      quotient[quotients++].coef /= div;
      quotient_lo += l / div;
    } else {
      rest[rests++] = *t;
      rest_lo += l, rest_hi += h;
    }
  }
  int64_t base_quotient = a.base >= 0 ? a.base / div : -((-a.base + div - 1) / div),
          base_rest = a.base - base_quotient * div;
  gen_affine q = {.base = base_quotient, .count = quotients, .terms = quotient};
  if (rest_lo + base_rest >= 0 && rest_hi + base_rest < div && quotient_lo + base_quotient >= 0) {
    int64_t q_lo, q_hi;
    gen_affine_range(e, q, &q_lo, &q_hi);
    if (!mod || q_hi < mod) return q;
    if (q.count == 0) return gen_affine_const(q.base % mod);
    if (q.count == 1 && q.base == 0 && q.terms[0].coef == 1 && q.terms[0].var >= 0) {
      gen_term t = q.terms[0];
      if (t.mod == 0 || t.mod % mod == 0) {
        t.mod = mod;
        return one_term(e, t);
      }
    }
    if (div > 1) return gen_affine_digit(e, q, 1, mod);
  }
  if (a.count == 1 && a.base == 0 && a.terms[0].coef == 1 && a.terms[0].var >= 0) {
    gen_term t = a.terms[0];
    if (t.mod == 0 || t.mod % div == 0) {
      int64_t left = t.mod ? t.mod / div : 0; /* 0: no bound */
      if (!mod || !left || left % mod == 0 || left <= mod) {
        t.div *= div;
        t.mod = !mod ? left : left && left <= mod ? left : mod;
        gen_term *kept = WEFT_ARENA_NEW(e->arena, gen_term);
        *kept = t;
        return (gen_affine){.count = simplify(e, kept, 1), .terms = kept};
      }
    }
  }
  for (int i = 0; i < a.count && div == 1; i++) { /* (factor * high + low) % mod */
    gen_affine high;
    int64_t factor = weft_gcd(mod, a.terms[i].coef);
    if (factor > 1 && factor < mod && drop_low_part(e, a, factor, &high) && is_never_negative(e, high))
      return gen_affine_add(e, gen_affine_scale(e, gen_affine_digit(e, high, 1, mod / factor), factor),
                            low_part(e, a, factor));
  }
  for (int i = 0; i < a.count; i++) {
    gen_affine high;
    int64_t factor = weft_gcd(div, a.terms[i].coef);
    if (factor > 1 && drop_low_part(e, a, factor, &high)) return gen_affine_digit(e, high, div / factor, mod);
  }
  gen_ssa v = gen_digit_ssa(e, gen_affine_ssa(e, a), div, mod, hi);
  gen_affine *of = WEFT_ARENA_NEW(e->arena, gen_affine);
  *of = a;
  return one_term(
    e, (gen_term){.coef = 1, .div = div, .mod = mod, .var = -1, .value = v, .of = of, .hi = mod ? mod - 1 : hi / div});
}

gen_ssa gen_affine_within(gen_emit *e, gen_affine a, int64_t lo, int64_t hi, bool *never)
{
  int64_t least, most;
  gen_ssa v, cond = NULL;

  gen_affine_range(e, a, &least, &most);
  *never = most < lo || least >= hi;
  if (*never || (least >= lo && most < hi)) return NULL;
  v = gen_affine_ssa(e, a);
  if (least < lo) cond = gen_icmp(e, LLVMIntSGE, v, gen_i(v, lo));
  if (most >= hi) {
    gen_ssa below = gen_icmp(e, LLVMIntSLT, v, gen_i(v, hi));
    cond = cond ? gen_bin(e, LLVMAnd, cond, below) : below;
  }
  return cond;
}

/* ---- index vectors --------------------------------------------------------------------------------------------- */

gen_index *gen_index_new(gen_emit *e, int rank)
{
  gen_index *idx = weft_arena_alloc(e->arena, sizeof *idx + sizeof(gen_affine) * (size_t)rank);
  idx->rank = rank;
  return idx;
}

static uint64_t mix(uint64_t h, uint64_t v) { return (h ^ v) * UINT64_C(0x9e3779b97f4a7c15) ^ (h >> 29); }

const gen_index *gen_index_seal(gen_index *idx)
{
  uint64_t h = (uint64_t)idx->rank;

  for (int d = 0; d < idx->rank; d++) {
    h = mix(h, (uint64_t)idx->d[d].base);
    for (int i = 0; i < idx->d[d].count; i++) {
      const gen_term *t = &idx->d[d].terms[i];
      h = mix(h, (uint64_t)t->coef * 31 + (uint64_t)t->div * 7 + (uint64_t)t->mod);
      h = mix(h, (uint64_t)t->var ^ (uint64_t)(uintptr_t)t->value);
    }
  }
  idx->hash = h;
  return idx;
}

bool gen_affine_equal(gen_affine a, gen_affine b)
{
  if (a.base != b.base || a.count != b.count) return false;
  for (int i = 0; i < a.count; i++) {
    const gen_term *s = &a.terms[i], *t = &b.terms[i];
    if (s->coef != t->coef || s->div != t->div || s->mod != t->mod || s->var != t->var || s->value != t->value)
      return false;
  }
  return true;
}

bool gen_index_equal(const gen_index *a, const gen_index *b)
{
  if (a == b) return true;
  if (a->rank != b->rank || a->hash != b->hash) return false;
  for (int d = 0; d < a->rank; d++)
    if (!gen_affine_equal(a->d[d], b->d[d])) return false;
  return true;
}

gen_affine gen_linearize(gen_emit *e, const hlo_shape *shape, const gen_index *idx)
{
  gen_affine sum = gen_affine_const(0);
  int64_t stride = 1;

  for (int d = shape->rank - 1; d >= 0; d--) {
    if (shape->dims[d] != 1) sum = gen_affine_add(e, sum, gen_affine_scale(e, idx->d[d], stride));
    stride *= shape->dims[d];
  }
  return sum;
}

const gen_index *gen_delinearize(gen_emit *e, const hlo_shape *shape, gen_affine linear)
{
  gen_index *idx = gen_index_new(e, shape->rank);
  int64_t stride = 1;

  for (int d = shape->rank - 1; d >= 0; d--) {
    idx->d[d] = shape->dims[d] <= 1 ? gen_affine_const(0) : gen_affine_digit(e, linear, stride, shape->dims[d]);
    stride *= shape->dims[d];
  }
  return gen_index_seal(idx);
}
