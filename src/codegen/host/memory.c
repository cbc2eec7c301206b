/* codegen/host/memory.c -- loads and stores of the host's kernels: a vector at once where its lanes lie side by
 * side, else as shuffles of vectors, gathers, or lane by lane. */
#include <config.h>

#include "codegen/host/host.h"

static gen_ssa masked_load(gen_emit *e, const gen_buffer *buf, LLVMTypeRef element, gen_ssa index, gen_ssa mask,
                           int lanes)
{
  gen_part *p = e->part;
  LLVMTypeRef t = LLVMVectorType(element, (unsigned)lanes), types[2] = {t, p->ptr};
  gen_ssa fn = LLVMGetIntrinsicDeclaration(p->mod, LLVMLookupIntrinsicID("llvm.masked.load", 16), types, 2);
  gen_ssa args[4] = {gen_element_ptr(e, buf, element, index), LLVMConstInt(p->i32, gen_type_bytes(p, element), 0),
                     gen_splat(e, mask, lanes), LLVMConstNull(t)};
  gen_ssa v = LLVMBuildCall2(e->b, LLVMGlobalGetValueType(fn), fn, args, 4, "");

  gen_annotate(e, buf, v, true);
  return v;
}

enum { MOST_INSIDE = 32 };

/* A bit for each lane from lane `from` on, which may be any number. */
static gen_ssa lanes_from(gen_emit *e, gen_ssa from, int lanes)
{
  from = gen_intrinsic2(e, "llvm.smax", from, gen_i64(e, 0));
  from = gen_intrinsic2(e, "llvm.smin", from, gen_i64(e, lanes));
  return LLVMBuildShl(e->b, LLVMConstAllOnes(e->part->i64), from, "");
}

/* `lanes` elements from `index` on, at most MOST_INSIDE; zeros for those that are outside of the buffer. [lo, hi] are
 * static bounds of what is read. */
static gen_ssa load_inside(gen_emit *e, const gen_buffer *buf, LLVMTypeRef element, gen_ssa index, int64_t lo,
                           int64_t hi, int lanes)
{
  LLVMTypeRef bits = LLVMIntTypeInContext(e->part->ctx, (unsigned)lanes);
  gen_ssa mask = NULL;

  if (lo >= 0 && hi < buf->elems) return gen_load_plain(e, buf, element, index, lanes);
  if (lo < 0) mask = lanes_from(e, LLVMBuildNSWNeg(e->b, index, ""), lanes);
  if (hi >= buf->elems) {
    gen_ssa before =
      LLVMBuildNot(e->b, lanes_from(e, LLVMBuildNSWSub(e->b, gen_i64(e, buf->elems), index, ""), lanes), "");
    mask = mask ? LLVMBuildAnd(e->b, mask, before, "") : before;
  }
  mask = LLVMBuildBitCast(e->b, LLVMBuildTrunc(e->b, mask, bits, ""), LLVMVectorType(e->part->i1, (unsigned)lanes), "");
  return masked_load(e, buf, element, index, mask, lanes);
}

/* One element from each of the addresses `indices`, all of them valid. */
static gen_ssa gather(gen_emit *e, const gen_buffer *buf, LLVMTypeRef element, gen_ssa indices)
{
  gen_part *p = e->part;
  int lanes = (int)LLVMGetVectorSize(LLVMTypeOf(indices));

  if (gen_type_bytes(p, element) < 4) { /* no such instruction: lane by lane */
    gen_ssa v = LLVMGetPoison(LLVMVectorType(element, (unsigned)lanes));
    for (int i = 0; i < lanes; i++) {
      gen_ssa lane = LLVMConstInt(p->i32, (unsigned)i, 0);
      gen_ssa at = LLVMBuildExtractElement(e->b, indices, lane, "");
      v = LLVMBuildInsertElement(e->b, v, gen_load_plain(e, buf, element, at, 1), lane, "");
    }
    return v;
  }
  LLVMTypeRef t = LLVMVectorType(element, (unsigned)lanes);
  gen_ssa ptrs = gen_element_ptr(e, buf, element, indices);
  LLVMTypeRef types[2] = {t, LLVMTypeOf(ptrs)};
  gen_ssa fn = LLVMGetIntrinsicDeclaration(p->mod, LLVMLookupIntrinsicID("llvm.masked.gather", 18), types, 2);
  gen_ssa args[4] = {ptrs, LLVMConstInt(p->i32, gen_type_bytes(p, element), 0),
                     gen_splat(e, LLVMConstInt(p->i1, 1, 0), lanes), LLVMGetPoison(t)};
  gen_ssa v = LLVMBuildCall2(e->b, LLVMGlobalGetValueType(fn), fn, args, 4, "");
  gen_annotate(e, buf, v, true);
  return v;
}

/* Is the mask set in any lane? */
static gen_ssa any_lane(gen_emit *e, gen_ssa mask)
{
  return gen_is_vector(mask) ? gen_intrinsic1(e, "llvm.vector.reduce.or", mask) : mask;
}

enum { MOST_STEP = 8 };

/* Loads lanes that are `step` apart by picking them from whole vectors. This is cheaper than a gather, and accesses
 * to the elements between share the loads. NULL where it might read outside of the buffer. */
static gen_ssa load_picked(gen_emit *e, const gen_buffer *buf, LLVMTypeRef element, gen_affine linear, int step)
{
  int lanes = e->lanes, picked[64];
  int64_t lo, hi, r = (linear.base % step + step) % step;
  gen_ssa v = NULL, uniform, varying;

  for (int i = 0; i < linear.count; i++)
    if (linear.terms[i].coef % step) return NULL;
  gen_affine_range(e, linear, &lo, &hi);
  if (lo < r || hi - r + step > buf->elems) return NULL;
  gen_affine_split(e, gen_affine_offset(linear, -r), &uniform, &lo, &varying);
  for (int k = 0; k < step; k++) {
    gen_ssa part =
      gen_load_plain(e, buf, element, LLVMBuildNSWAdd(e->b, uniform, gen_i64(e, (int64_t)k * lanes), ""), lanes);
    for (int i = 0; i < lanes; i++) {
      int at = (int)r + i * step - k * lanes;
      picked[i] = at < 0 ? i : at < lanes ? lanes + at : i;
    }
    v = v ? gen_shuffle(e, v, part, lanes, picked) : part;
    if (k == 0) {
      for (int i = 0; i < lanes; i++) picked[i] = WEFT_MIN((int)r + i * step, lanes - 1);
      v = gen_shuffle(e, v, LLVMGetPoison(LLVMTypeOf(v)), lanes, picked);
    }
  }
  return v;
}

/* The same where it is not known which of `step` neighbours comes first. The last vector overlaps the one before it,
 * so that nothing past the last lane's element is read. The lanes read between `lo` and `hi`; those outside of the
 * buffer get zeros. */
static gen_ssa load_strided(gen_emit *e, const gen_buffer *buf, LLVMTypeRef element, gen_ssa first, int step,
                            int64_t lo, int64_t hi)
{
  int lanes = e->lanes, picked[64];
  gen_ssa v = NULL;

  for (int k = 0; k < step; k++) {
    int start = k == step - 1 ? (lanes - 1) * step + 1 - lanes : k * lanes;
    gen_ssa at_part = LLVMBuildNSWAdd(e->b, first, gen_i64(e, start), "");
    gen_ssa part = load_inside(e, buf, element, at_part, lo, hi, lanes);
    for (int i = 0; i < lanes; i++) {
      int at = i * step;
      if (k == 0) picked[i] = WEFT_MIN(at, lanes - 1);
      else picked[i] = at < k * lanes ? i : lanes + WEFT_MIN(at - start, lanes - 1);
    }
    v = gen_shuffle(e, v ? v : part, part, lanes, picked);
  }
  return v;
}

static gen_ssa load_component(gen_emit *e, const gen_buffer *buf, LLVMTypeRef element, gen_affine linear)
{
  gen_ssa uniform, varying;
  int64_t step;
  int lanes = e->lanes;

  gen_affine_split(e, linear, &uniform, &step, &varying);
  if (!varying && step == 0) {
    if (e->mask) uniform = gen_select(e, any_lane(e, e->mask), uniform, gen_i64(e, 0));
    return gen_load_plain(e, buf, element, uniform, 1);
  }
  if (!varying && step == 1)
    return e->mask ? masked_load(e, buf, element, uniform, e->mask, lanes)
                   : gen_load_plain(e, buf, element, uniform, lanes);
  if (!varying && step == -1 && !e->mask) {
    int reversed[64];
    for (int i = 0; i < lanes; i++) reversed[i] = lanes - 1 - i;
    gen_ssa first = LLVMBuildNSWAdd(e->b, uniform, gen_i64(e, 1 - lanes), "");
    gen_ssa v = gen_load_plain(e, buf, element, first, lanes);
    return gen_shuffle(e, v, LLVMGetPoison(LLVMTypeOf(v)), lanes, reversed);
  }
  if (!varying && step > 1 && step <= MOST_STEP && !e->mask) {
    gen_ssa v = load_picked(e, buf, element, linear, (int)step);
    if (v) return v;
  }
  if (!varying && step > 1 && step <= MOST_STEP && lanes > 1 && (!e->mask || lanes <= MOST_INSIDE)) {
    int64_t lo = 0, hi = 0;
    if (e->mask) gen_affine_range(e, linear, &lo, &hi);
    return load_strided(e, buf, element, uniform, (int)step, lo, hi);
  }
  gen_ssa at = gen_affine_ssa(e, linear);
  if (e->mask) at = gen_select(e, e->mask, at, gen_i(at, 0));
  return gather(e, buf, element, at);
}

/* ---- even and odd neighbours apart (gen_emit.even_odd) ----------------------------------------------------------- */

static bool is_even_odd(const gen_emit *e, gen_ssa v)
{
  return e->even_odd && gen_is_vector(v) && LLVMGetVectorSize(LLVMTypeOf(v)) == GEN_PAIR_LANES;
}

static gen_ssa to_even_odd(gen_emit *e, gen_ssa v)
{
  int lanes[GEN_PAIR_LANES];

  for (int i = 0; i < GEN_PAIR_LANES; i++) lanes[i] = i * 2 % GEN_PAIR_LANES + i * 2 / GEN_PAIR_LANES;
  return gen_shuffle(e, v, LLVMGetPoison(LLVMTypeOf(v)), GEN_PAIR_LANES, lanes);
}

static gen_ssa from_even_odd(gen_emit *e, gen_ssa v)
{
  int lanes[GEN_PAIR_LANES];

  for (int i = 0; i < GEN_PAIR_LANES; i++) lanes[i] = i / 2 + i % 2 * (GEN_PAIR_LANES / 2);
  return gen_shuffle(e, v, LLVMGetPoison(LLVMTypeOf(v)), GEN_PAIR_LANES, lanes);
}

/* Neighbours of bf16 as f32; NULL: they are no neighbours. */
static gen_ssa load_even_odd(gen_emit *e, const gen_buffer *buf, gen_affine linear)
{
  gen_part *p = e->part;
  LLVMTypeRef words_type = LLVMVectorType(p->i32, GEN_PAIR_LANES / 2);
  int both[GEN_PAIR_LANES];
  gen_ssa uniform, varying;
  int64_t step;

  if (!e->even_odd || e->lanes != GEN_PAIR_LANES || buf->type != WEFT_BF16 || p->raw_narrow || e->mask) return NULL;
  gen_affine_split(e, linear, &uniform, &step, &varying);
  if (varying || step != 1) return NULL;
  gen_ssa words = gen_load_plain(e, buf, gen_storage_type(p, WEFT_BF16), uniform, GEN_PAIR_LANES);
  words = LLVMBuildBitCast(e->b, words, words_type, "");
  gen_ssa even = gen_bin(e, LLVMShl, words, gen_i(words, 16));
  gen_ssa odd = gen_bin(e, LLVMAnd, words, gen_i(words, INT64_C(0xffff0000)));
  for (int i = 0; i < GEN_PAIR_LANES; i++) both[i] = i;
  return gen_cast(e, LLVMBitCast, gen_shuffle(e, even, odd, GEN_PAIR_LANES, both), p->f32);
}

static gen_value load(gen_emit *e, const gen_buffer *buf, gen_affine linear)
{
  gen_part *p = e->part;
  LLVMTypeRef element = gen_storage_type(p, buf->type);
  bool is_complex = weft_dtype_is_complex(buf->type);

  if (buf->elems == 0) {
    gen_ssa zero = LLVMConstNull(gen_register_type(p, buf->type));
    return (gen_value){zero, is_complex ? zero : NULL};
  }
  gen_ssa halves = load_even_odd(e, buf, linear);
  if (halves) return (gen_value){.re = halves};
  if (!is_complex) {
    gen_ssa v = gen_from_storage(e, buf->type, load_component(e, buf, element, linear));
    return (gen_value){.re = is_even_odd(e, v) ? to_even_odd(e, v) : v};
  }
  gen_ssa uniform, varying;
  int64_t step;
  gen_buffer twice = *buf; /* of parts */
  twice.elems *= 2;
  gen_affine_split(e, linear, &uniform, &step, &varying);
  if (e->lanes > 1 && !varying && step == 1 && !e->mask) { /* de-interleave */
    int even[64], odd[64];
    gen_ssa at = LLVMBuildNSWMul(e->b, uniform, gen_i64(e, 2), "");
    gen_ssa low = gen_load_plain(e, &twice, element, at, e->lanes);
    gen_ssa high = gen_load_plain(e, &twice, element, LLVMBuildNSWAdd(e->b, at, gen_i64(e, e->lanes), ""), e->lanes);
    for (int i = 0; i < e->lanes; i++) even[i] = 2 * i, odd[i] = 2 * i + 1;
    return (gen_value){gen_shuffle(e, low, high, e->lanes, even), gen_shuffle(e, low, high, e->lanes, odd)};
  }
  gen_affine re = gen_affine_scale(e, linear, 2);
  return (gen_value){load_component(e, &twice, element, re),
                     load_component(e, &twice, element, gen_affine_offset(re, 1))};
}

static void store_component(gen_emit *e, const gen_buffer *buf, LLVMTypeRef element, gen_affine linear, gen_ssa v)
{
  gen_ssa uniform, varying;
  int64_t step;

  gen_affine_split(e, linear, &uniform, &step, &varying);
  if (!varying && step <= 1 && step >= 0) {
    if (step == 1) v = gen_splat(e, v, e->lanes);
    gen_store_plain(e, buf, element, uniform, v);
    return;
  }
  v = gen_splat(e, v, e->lanes);
  gen_ssa at = gen_splat(e, gen_affine_ssa(e, linear), e->lanes);
  for (int i = 0; i < e->lanes; i++) {
    gen_ssa lane = LLVMConstInt(e->part->i32, (unsigned)i, 0);
    gen_ssa place = LLVMBuildExtractElement(e->b, at, lane, "");
    gen_store_plain(e, buf, element, place, LLVMBuildExtractElement(e->b, v, lane, ""));
  }
}

static void store_one(gen_emit *e, const gen_buffer *buf, gen_affine linear, gen_value v)
{
  LLVMTypeRef element = gen_storage_type(e->part, buf->type);

  if (!weft_dtype_is_complex(buf->type)) {
    gen_ssa bits = gen_to_storage(e, buf->type, v.re);
    store_component(e, buf, element, linear, is_even_odd(e, bits) ? from_even_odd(e, bits) : bits);
    return;
  }
  gen_ssa uniform, varying;
  int64_t step;
  gen_affine_split(e, linear, &uniform, &step, &varying);
  if (e->lanes > 1 && !varying && step == 1) { /* interleave */
    int low[64], high[64], n = e->lanes;
    gen_ssa re = gen_splat(e, v.re, n), im = gen_splat(e, v.im, n);
    for (int i = 0; i < n; i++) {
      low[i] = i / 2 + (i % 2 ? n : 0);
      high[i] = n / 2 + i / 2 + (i % 2 ? n : 0);
    }
    gen_ssa at = LLVMBuildNSWMul(e->b, uniform, gen_i64(e, 2), "");
    gen_store_plain(e, buf, element, at, gen_shuffle(e, re, im, n, low));
    at = LLVMBuildNSWAdd(e->b, at, gen_i64(e, n), "");
    gen_store_plain(e, buf, element, at, gen_shuffle(e, re, im, n, high));
    return;
  }
  gen_affine re = gen_affine_scale(e, linear, 2);
  store_component(e, buf, element, re, v.re);
  store_component(e, buf, element, gen_affine_offset(re, 1), v.im);
}

/* out[k] = elements [k * lanes, (k + 1) * lanes) of values[0][0], values[1][0], ..., values[0][1], ... An even count
 * is done by halves. */
static void interleave(gen_emit *e, const gen_ssa *values, int count, gen_ssa *out)
{
  int lanes = e->lanes, picked[64];

  if (count == 1) {
    out[0] = values[0];
  } else if (count % 2 == 0) {
    gen_ssa even[MOST_STEP], odd[MOST_STEP], joined[2][MOST_STEP];
    for (int i = 0; i < count / 2; i++) even[i] = values[2 * i], odd[i] = values[2 * i + 1];
    interleave(e, even, count / 2, joined[0]);
    interleave(e, odd, count / 2, joined[1]);
    for (int k = 0; k < count; k++) {
      for (int i = 0; i < lanes; i++) picked[i] = k % 2 * (lanes / 2) + i / 2 + i % 2 * lanes;
      out[k] = gen_shuffle(e, joined[0][k / 2], joined[1][k / 2], lanes, picked);
    }
  } else {
    for (int k = 0; k < count; k++) {
      out[k] = values[0];
      for (int v = 1; v < count; v++) {
        for (int i = 0; i < lanes; i++) {
          int from = (k * lanes + i) / count, of = (k * lanes + i) % count;
          picked[i] = of == v ? lanes + from : v == 1 ? from : i;
        }
        out[k] = gen_shuffle(e, out[k], values[v], lanes, picked);
      }
    }
  }
}

static void store(gen_emit *e, const gen_buffer *buf, gen_affine linear, const gen_value *values, int apart, int count)
{
  LLVMTypeRef element = gen_storage_type(e->part, buf->type);
  gen_ssa uniform, varying, parts[MOST_STEP], joined[MOST_STEP];
  int64_t step;

  if (count == 1) {
    store_one(e, buf, linear, values[0]);
    return;
  }
  gen_affine_split(e, linear, &uniform, &step, &varying);
  if (varying || step != count || count > MOST_STEP || weft_dtype_is_complex(buf->type)) {
    for (int i = 0; i < count; i++) store_one(e, buf, gen_affine_offset(linear, i), values[i * apart]);
    return;
  }
  for (int i = 0; i < count; i++) parts[i] = gen_splat(e, gen_to_storage(e, buf->type, values[i * apart].re), e->lanes);
  interleave(e, parts, count, joined);
  for (int i = 0; i < count; i++)
    gen_store_plain(e, buf, element, LLVMBuildNSWAdd(e->b, uniform, gen_i64(e, (int64_t)i * e->lanes), ""), joined[i]);
}

const gen_walker gen_host_walker = {
  .name = "host", .load = load, .store = store, .walk = gen_host_walk, .accumulate = gen_host_accumulate,
  .columns = gen_host_columns, .once = gen_host_once, .dot = gen_host_dot, .inner = gen_emit_kernel, .start = gen_host_start, .copy = gen_host_copy,
  .sync = gen_host_sync,
};
