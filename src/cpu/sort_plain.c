/* cpu/sort_plain.c -- sorts of one operand by its own values: keys without positions.
 *
 * Elements whose keys are equal have equal bits, except for zeros of both signs and NaNs with different
 * payloads where the comparator takes these for equal. Such elements ("alike") get one key, and after the
 * sort they are put back in the order in which they stood in the operand, so the sort is stable. So any
 * correct sort of the keys gives the same bits.
 *
 * Keys of 32 bits, and on processors with AVX-512 those of 64 bits, are sorted in vectors (sort_vector.h), others by
 * radix. A long slice is sorted by all threads. In vectors: a sample of the keys gives the least key of each of some
 * parts, all of nearly the same length; fixed blocks of the slice are split by these keys, each by one thread; then
 * each part is brought together from all blocks and sorted by one thread. By radix: fixed blocks are counted and dealt
 * to buckets by the upper bits of key - least key; then groups of neighbouring buckets are sorted, each by one
 * thread. */
#include <config.h>

#include "cpu/sort_plain.h"

#include <stdatomic.h>
#include <string.h>

#include "base/macros.h"
#include "cpu/hot.h"
#include "cpu/sort_keys.h"
#include "cpu/sort_vector.h"

enum {
  PARALLEL_FROM = 1 << 17, /* elements of each of some slices that all threads sort, */
  ONE_PARALLEL_FROM = 1 << 16, /* and of the only slice, in vectors */
  FEW_SLICES = 16,      /* so many slices are work enough for threads that sort each its own */
  BLOCK = 1 << 16,      /* elements of a long slice that one task maps, counts or deals */
  GROUP = 1 << 15,      /* elements of neighbouring buckets that one task sorts, unless one bucket has more */
  BUCKET_BITS = 11,
  BUCKETS = 1 << BUCKET_BITS,
  TASK_ELEMS = 1 << 14, /* elements of short slices that one task takes */
  LINE = 64,            /* bytes of a line of the cache */
  COLUMNS_BYTES = 1 << 22, /* of slices that are sorted together */
  ROWS = 16,            /* lines that are read or written together where slices lie side by side */
  SPLIT_BLOCK = 1 << 15, /* elements of a long slice that one task maps and splits: they stay in the second cache, */
  LEAST_BLOCK = 1 << 12, /* and fewer, if they are to make */
  SPLIT_BLOCKS = 32,     /* blocks */
  PART = 1 << 14,       /* keys of a part of a long slice, about, unless that makes MOST_PARTS parts */
  MOST_PARTS = 256,
  SAMPLED = 16,         /* keys for each part */
  CHUNK = 4096,         /* elements that are mapped at a time: they stay in the first cache */
};

/* What flips an element's bits into its key (or a key back): one mask where the
 * topmost bit is clear, one where it is set. */
typedef struct flips { uint64_t clear, set; } flips;

static flips flips_to_key(const sort_key_map *m)
{
  uint64_t order = m->descending ? m->mask : 0;
  uint64_t clear = order ^ (m->is_float || m->is_signed ? m->sign : 0);
  return (flips){clear, m->is_float ? order ^ m->mask : clear};
}

static flips flips_from_key(const sort_key_map *m)
{
  flips f = flips_to_key(m);
  return f.clear & m->sign ? (flips){f.set, f.clear} : f;
}

/* The parts of the algorithms that look at elements, for one width of elements. */
typedef struct plain_ops {
  void (*flip)(const void *from, void *to, int64_t n, flips f);
  /* Whether any element is a negative zero or a NaN. `inf`: the bits of infinity. */
  bool (*any_alike)(const void *from, int64_t n, uint64_t inf);
  void (*map_one_by_one)(const sort_key_map *m, const char *from, int64_t step, void *to, int64_t n);
  void (*unmap)(flips f, const void *from, char *to, int64_t step, int64_t n);
  /* Copies n elements: from places `step` elements apart to neighbouring ones, and back. */
  void (*take)(const char *from, int64_t step, char *to, int64_t n);
  void (*put)(const char *from, char *to, int64_t step, int64_t n);
  void (*span)(const void *keys, int64_t n, uint64_t *least, uint64_t *most);
  void (*count)(const void *keys, int64_t n, uint64_t least, int shift, int64_t *counts);
  void (*deal)(const void *keys, int64_t n, uint64_t least, int shift, int64_t *at, void *to);
  void *(*sort)(void *keys, void *spare, int64_t n);
  int64_t (*first_at)(const void *sorted, int64_t n, uint64_t key);
  /* Lists zeros from the front of list[n] and NaNs from its back, in the order of the operand. */
  void (*list_alike)(const sort_key_map *m, const char *from, int64_t step, int64_t n, void *list, int64_t *zeros, int64_t *nans);
} plain_ops;

#define PLAIN(name, T)                                                                                          \
  CPU_SORTS(name, T)                                                                                            \
  static CPU_HOT void flip_##name(const void *from, void *to, int64_t n, flips f)                               \
  {                                                                                                             \
    const T *in = from;                                                                                         \
    T *out = to, clear = (T)f.clear, set = (T)f.set;                                                            \
    CPU_INDEPENDENT                                                                                             \
    for (int64_t i = 0; i < n; i++) out[i] = in[i] ^ (in[i] >> (8 * sizeof(T) - 1) ? set : clear);              \
  }                                                                                                             \
  static CPU_HOT bool any_alike_##name(const void *from, int64_t n, uint64_t inf)                               \
  {                                                                                                             \
    const T *in = from, sign = (T)((T)1 << (8 * sizeof(T) - 1));                                                \
    T any = 0;                                                                                                  \
    for (int64_t i = 0; i < n; i++) any |= (T)((in[i] == sign) | ((in[i] & (T)~sign) > (T)inf));                \
    return any != 0;                                                                                            \
  }                                                                                                             \
  static void map_one_by_one_##name(const sort_key_map *m, const char *from, int64_t step, void *to, int64_t n) \
  {                                                                                                             \
    T *out = to;                                                                                                \
    for (int64_t i = 0; i < n; i++) out[i] = (T)sort_key_of(m, from + i * step * (int64_t)sizeof(T));           \
  }                                                                                                             \
  static void unmap_##name(flips f, const void *from, char *to, int64_t step, int64_t n)                        \
  {                                                                                                             \
    const T *in = from;                                                                                         \
    for (int64_t i = 0; i < n; i++)                                                                             \
      ((T *)to)[i * step] = (T)(in[i] ^ (in[i] >> (8 * sizeof(T) - 1) ? (T)f.set : (T)f.clear));                \
  }                                                                                                             \
  static void take_##name(const char *from, int64_t step, char *to, int64_t n)                                  \
  {                                                                                                             \
    for (int64_t i = 0; i < n; i++) ((T *)to)[i] = ((const T *)from)[i * step];                                 \
  }                                                                                                             \
  static void put_##name(const char *from, char *to, int64_t step, int64_t n)                                   \
  {                                                                                                             \
    for (int64_t i = 0; i < n; i++) ((T *)to)[i * step] = ((const T *)from)[i];                                 \
  }                                                                                                             \
  static CPU_HOT void span_##name(const void *keys, int64_t n, uint64_t *least, uint64_t *most)                 \
  {                                                                                                             \
    const T *in = keys;                                                                                         \
    T lo = in[0], hi = in[0];                                                                                   \
    for (int64_t i = 1; i < n; i++) {                                                                           \
      lo = in[i] < lo ? in[i] : lo;                                                                             \
      hi = in[i] > hi ? in[i] : hi;                                                                             \
    }                                                                                                           \
    *least = lo;                                                                                                \
    *most = hi;                                                                                                 \
  }                                                                                                             \
  static void count_##name(const void *keys, int64_t n, uint64_t least, int shift, int64_t *counts)             \
  {                                                                                                             \
    const T *in = keys;                                                                                         \
    for (int64_t i = 0; i < n; i++) counts[(in[i] - least) >> shift]++;                                         \
  }                                                                                                             \
  static void deal_out_##name(const void *keys, int64_t n, uint64_t least, int shift, int64_t *at, void *to)    \
  {                                                                                                             \
    const T *in = keys;                                                                                         \
    for (int64_t i = 0; i < n; i++) ((T *)to)[at[(in[i] - least) >> shift]++] = in[i];                          \
  }                                                                                                             \
  static void *sort_all_##name(void *keys, void *spare, int64_t n)                                              \
  {                                                                                                             \
    return sort_##name(keys, spare, n, 0, (int)sizeof(T));                                                      \
  }                                                                                                             \
  static int64_t first_at_##name(const void *sorted, int64_t n, uint64_t key)                                   \
  {                                                                                                             \
    int64_t lo = 0, hi = n;                                                                                     \
    while (lo < hi) {                                                                                           \
      int64_t mid = lo + (hi - lo) / 2;                                                                         \
      if (((const T *)sorted)[mid] < key) lo = mid + 1;                                                         \
      else hi = mid;                                                                                            \
    }                                                                                                           \
    return lo;                                                                                                  \
  }                                                                                                             \
  static void list_alike_##name(const sort_key_map *m, const char *from, int64_t step, int64_t n, void *list,   \
                                int64_t *zeros, int64_t *nans)                                                  \
  {                                                                                                             \
    *zeros = *nans = 0;                                                                                         \
    for (int64_t i = 0; i < n; i++) {                                                                           \
      T bits = ((const T *)from)[i * step];                                                                     \
      uint64_t magnitude = bits & ~m->sign;                                                                     \
      if (magnitude == 0) ((T *)list)[(*zeros)++] = bits;                                                       \
      else if (magnitude > m->inf) ((T *)list)[n - ++*nans] = bits;                                             \
    }                                                                                                           \
  }                                                                                                             \
  static const plain_ops ops_##name = {flip_##name,       any_alike_##name, map_one_by_one_##name, unmap_##name, \
                                       take_##name,       put_##name,       span_##name,           count_##name, \
                                       deal_out_##name,   sort_all_##name,  first_at_##name,       list_alike_##name};
PLAIN(u8, uint8_t)
PLAIN(u16, uint16_t)
PLAIN(u32, uint32_t)
PLAIN(u64, uint64_t)

static const plain_ops *ops_of(int64_t bytes)
{
  return bytes == 1 ? &ops_u8 : bytes == 2 ? &ops_u16 : bytes == 4 ? &ops_u32 : &ops_u64;
}

/* ---- one slice --------------------------------------------------------------------------------------------------- */

/* Maps the elements [0, n) of `from`, `step` elements apart, to keys[n]. True if some of them may be alike without
 * having the same bits; these have the same key then. */
static bool map_keys(const plain_ops *ops, const sort_key_map *m, const char *from, int64_t step, char *keys, int64_t n)
{
  bool alike = false;

  if (step > 1) {
    ops->map_one_by_one(m, from, step, keys, n);
    return m->is_float && (m->merge_zeros || m->merge_nans);
  }
  for (int64_t i = 0; i < n; i += CHUNK) {
    const char *chunk = from + i * m->bytes;
    int64_t count = WEFT_MIN(CHUNK, n - i);
    if (m->is_float && (m->merge_zeros || m->merge_nans) && ops->any_alike(chunk, count, m->inf)) {
      ops->map_one_by_one(m, chunk, 1, keys + i * m->bytes, count);
      alike = true;
    } else {
      ops->flip(chunk, keys + i * m->bytes, count, flips_to_key(m));
    }
  }
  return alike;
}

/* Turns sorted keys into elements. `to` may be the operand's memory. */
static void put_elements(const plain_ops *ops, const sort_key_map *m, const char *sorted, char *to, int64_t step,
                         int64_t n)
{
  if (step > 1) ops->unmap(flips_from_key(m), sorted, to, step, n);
  else ops->flip(sorted, to, n, flips_from_key(m));
}

/* Copies `count` elements of `list`, one after another or backwards, to the places from `at` on. */
static void put_list(const sort_key_map *m, const char *list, int64_t direction, int64_t count, char *to, int64_t step,
                     int64_t at)
{
  for (int64_t i = 0; i < count; i++)
    memcpy(to + (at + i) * step * m->bytes, list + i * direction * m->bytes, (size_t)m->bytes);
}

/* The same where elements are alike: `from` is the operand, which may be `to`; `list` has room for n elements. */
static void put_alike(const plain_ops *ops, const sort_key_map *m, const char *from, const char *sorted, char *list,
                      char *to, int64_t step, int64_t n)
{
  const uint64_t zero = 0, nan = m->mask & ~m->sign;
  int64_t zeros, nans;

  ops->list_alike(m, from, step, n, list, &zeros, &nans);
  put_elements(ops, m, sorted, to, step, n);
  if (m->merge_zeros) put_list(m, list, 1, zeros, to, step, ops->first_at(sorted, n, sort_key_of(m, &zero)));
  if (m->merge_nans)
    put_list(m, list + (n - 1) * m->bytes, -1, nans, to, step, ops->first_at(sorted, n, sort_key_of(m, &nan)));
}

typedef struct plain_job {
  const cpu_sort *s;
  const plain_ops *ops;
  const cpu_vector_sort *vectors; /* or NULL */
  const cpu_vector_sort *wider; /* for fewer than CPU_VECTORS_BELOW keys of 8 or 16 bits, as keys of 32; or NULL */
  sort_key_map map;
  const char *in;
  char *out;
  int64_t per_task;          /* slices of a task */
  atomic_bool failed;
} plain_job;

/* Where a slice starts, in bytes. */
static int64_t slice_base(const plain_job *job, int64_t slice)
{
  const cpu_sort *s = job->s;
  return (slice / s->inner * s->n * s->inner + slice % s->inner) * job->map.bytes;
}

/* Sorts few keys of 8 or 16 bits as keys of 32 bits. */
static void sort_widened(const cpu_vector_sort *vectors, int64_t bytes, char *keys, int64_t n)
{
  uint32_t wide[CPU_VECTORS_BELOW], spare[CPU_VECTORS_BELOW];

  if (bytes == 1)
    for (int64_t i = 0; i < n; i++) wide[i] = ((uint8_t *)keys)[i];
  else
    for (int64_t i = 0; i < n; i++) wide[i] = ((uint16_t *)keys)[i];
  vectors->sort(wide, spare, wide, n, sort_all_u32);
  if (bytes == 1)
    for (int64_t i = 0; i < n; i++) ((uint8_t *)keys)[i] = (uint8_t)wide[i];
  else
    for (int64_t i = 0; i < n; i++) ((uint16_t *)keys)[i] = (uint16_t)wide[i];
}

/* Returns the one of `keys` and `spare` that holds the sorted keys. */
static char *sort_keys(const plain_job *job, char *keys, char *spare, int64_t n)
{
  if (job->wider && n < CPU_VECTORS_BELOW) {
    sort_widened(job->wider, job->map.bytes, keys, n);
    return keys;
  }
  if (!job->vectors) return job->ops->sort(keys, spare, n);
  job->vectors->sort(keys, spare, keys, n, job->ops->sort);
  return keys;
}

static void sort_slice(const plain_job *job, int64_t base, char *keys, char *spare)
{
  const cpu_sort *s = job->s;
  bool alike = map_keys(job->ops, &job->map, job->in + base, s->inner, keys, s->n);
  char *sorted = sort_keys(job, keys, spare, s->n);

  if (alike)
    put_alike(job->ops, &job->map, job->in + base, sorted, sorted == keys ? spare : keys, job->out + base, s->inner,
              s->n);
  else put_elements(job->ops, &job->map, sorted, job->out + base, s->inner, s->n);
}

/* Bytes of the keys of one of several slices that are sorted together; not a power of 2, since the same places of all
 * slices are written together. */
static int64_t column_bytes(const plain_job *job) { return WEFT_ALIGN_UP(job->s->n * job->map.bytes, LINE) + LINE; }

/* Sorts `count` neighbouring slices whose elements lie in the same lines of the cache. They are read and written a few
 * lines at a time. */
static void sort_columns(const plain_job *job, int64_t base, int64_t count, char *keys, char *spare)
{
  const cpu_sort *s = job->s;
  int64_t bytes = job->map.bytes, pitch = column_bytes(job), row = s->inner * bytes;
  bool done[LINE];

  for (int64_t i = 0; i < s->n; i += ROWS)
    for (int64_t c = 0; c < count; c++)
      job->ops->take(job->in + base + i * row + c * bytes, s->inner, keys + c * pitch + i * bytes,
                     WEFT_MIN(ROWS, s->n - i));
  for (int64_t c = 0; c < count; c++) {
    char *column = keys + c * pitch;
    int64_t at = base + c * bytes;
    done[c] = map_keys(job->ops, &job->map, column, 1, column, s->n);
    char *sorted = sort_keys(job, column, spare, s->n);
    if (done[c])
      put_alike(job->ops, &job->map, job->in + at, sorted, sorted == column ? spare : column, job->out + at, s->inner,
                s->n);
    else put_elements(job->ops, &job->map, sorted, column, 1, s->n);
  }
  for (int64_t i = 0; i < s->n; i += ROWS)
    for (int64_t c = 0; c < count; c++)
      if (!done[c])
        job->ops->put(keys + c * pitch + i * bytes, job->out + base + i * row + c * bytes, s->inner,
                      WEFT_MIN(ROWS, s->n - i));
}

static void slices_task(void *ctx, int64_t task)
{
  plain_job *job = ctx;
  const cpu_sort *s = job->s;
  int64_t slice = task * job->per_task, end = WEFT_MIN(slice + job->per_task, s->slices), pitch = column_bytes(job),
          count, most = WEFT_MAX(1, WEFT_MIN(WEFT_MIN(LINE / job->map.bytes, s->inner), COLUMNS_BYTES / pitch));
  char *spare = rt_task_scratch((most + 1) * pitch, &job->failed), *keys = spare ? spare + pitch : NULL;

  if (!keys) return;
  for (; slice < end; slice += count) {
    count = WEFT_MIN(WEFT_MIN(most, end - slice), s->inner - slice % s->inner);
    if (count > 1) sort_columns(job, slice_base(job, slice), count, keys, spare);
    else sort_slice(job, slice_base(job, slice), keys, spare);
  }
}

/* Slices of a task: enough for some work, and for whole lines of the cache unless this leaves threads without work. */
static int64_t slices_per_task(const plain_job *job, rt_pool *pool)
{
  const cpu_sort *s = job->s;
  int64_t enough = WEFT_MAX(1, TASK_ELEMS / s->n), lines = WEFT_MIN(s->inner, LINE / job->map.bytes);

  return WEFT_MAX(enough, WEFT_MIN(lines, s->slices / (2 * rt_pool_threads(pool))));
}

/* ---- a long slice by all threads, in vectors --------------------------------------------------------------------- */

typedef struct split_job {
  plain_job plain;
  int64_t base;              /* of the slice, in bytes */
  char *split, *other;       /* n keys each: all blocks after they were split, and memory for the same */
  int parts;                 /* a power of 2 */
  uint64_t least[MOST_PARTS]; /* of each part but the first; equal ones make empty parts, and neighbouring integers make
                               * parts of equal keys */
  uint32_t *starts;          /* for each block: where its keys of each part start, and where the last ones end */
  int64_t part_at[MOST_PARTS + 1];
  atomic_bool alike;
} split_job;

static int64_t split_block_of(int64_t n) { return WEFT_MIN(SPLIT_BLOCK, WEFT_MAX(LEAST_BLOCK, n / SPLIT_BLOCKS)); }

static int64_t split_blocks_of(int64_t n) { return (n + split_block_of(n) - 1) / split_block_of(n); }

static int parts_of(int64_t n)
{
  int parts = 2;

  while (parts < MOST_PARTS && n / parts > PART) parts *= 2;
  return parts;
}

static uint32_t *starts_of(const split_job *job, int64_t block) { return job->starts + block * (job->parts + 1); }

/* Chooses the parts' least keys from a sorted sample: one key from each of many pieces of the slice, at places that
 * follow no pattern. */
static void choose_parts(split_job *job)
{
  const plain_job *p = &job->plain;
  int64_t samples = (int64_t)job->parts * SAMPLED, piece = p->s->n / samples, bytes = p->map.bytes;

  for (int64_t i = 0; i < samples; i++) {
    int64_t at = i * piece + (int64_t)(((uint64_t)i * UINT64_C(0x9e3779b97f4a7c15) >> 32) % (uint64_t)piece);
    p->ops->map_one_by_one(&p->map, p->in + job->base + at * p->s->inner * bytes, 1, job->split + i * bytes, 1);
  }
  p->vectors->sort(job->split, job->other, job->split, samples, p->ops->sort);
  for (int i = 1; i < job->parts; i++) {
    uint64_t key = sort_load_bits(job->split + i * SAMPLED * bytes, bytes),
             before = sort_load_bits(job->split + (i - 1) * SAMPLED * bytes, bytes);
    job->least[i] = key +
                    (i > 1 && key == before && key != p->map.mask); /* a key of many equals gets a part of its own */
  }
}

/* Splits a block in halves of the parts, these in halves, and so on. */
static void split_task(void *ctx, int64_t block)
{
  split_job *job = ctx;
  const plain_job *p = &job->plain;
  int64_t most = split_block_of(p->s->n), begin = block * most, n = WEFT_MIN(most, p->s->n - begin),
          bytes = p->map.bytes;
  uint32_t *starts = starts_of(job, block);
  char *from = job->split + begin * bytes, *to = job->other + begin * bytes;

  if (__builtin_ctz((unsigned)job->parts) % 2) WEFT_SWAP(from, to); /* so that the last round ends in `split` */
  if (map_keys(p->ops, &p->map, p->in + job->base + begin * p->s->inner * bytes, p->s->inner, from, n))
    /* read after the parallel loop has ended */
    atomic_store_explicit(&job->alike, true, memory_order_relaxed);
  starts[0] = 0;
  starts[job->parts] = (uint32_t)n;
  for (int half = job->parts / 2; half > 0; half /= 2) {
    for (int part = 0; part < job->parts; part += 2 * half) {
      int64_t at = starts[part], count = starts[part + 2 * half] - at;
      starts[part + half] =
        (uint32_t)(at + p->vectors->split(from + at * bytes, count, job->least[part + half], to + at * bytes));
    }
    WEFT_SWAP(from, to);
  }
}

/* Brings a part together and sorts it. The keys stay in `other` where elements are alike; elsewhere the elements are
 * made here. */
static void part_task(void *ctx, int64_t part)
{
  split_job *job = ctx;
  plain_job *p = &job->plain;
  int64_t begin = job->part_at[part], n = job->part_at[part + 1] - begin, bytes = p->map.bytes, at = 0,
          block_elems = split_block_of(p->s->n);
  bool alike = atomic_load_explicit(&job->alike, memory_order_relaxed);
  char *keys = rt_task_scratch(n * bytes, &p->failed), *other = job->other + begin * bytes;

  if (!keys) return;
  for (int64_t block = 0; block < split_blocks_of(p->s->n); block++) {
    const uint32_t *starts = starts_of(job, block);
    int64_t count = starts[part + 1] - starts[part];
    memcpy(keys + at * bytes, job->split + (block * block_elems + starts[part]) * bytes, (size_t)(count * bytes));
    at += count;
  }
  if (part == 0 || part == job->parts - 1 || job->least[part + 1] != job->least[part] + 1)
    p->vectors->sort(keys, other, alike ? other : keys, n, p->ops->sort);
  else if (alike) memcpy(other, keys, (size_t)(n * bytes)); /* all are equal */
  if (!alike) put_elements(p->ops, &p->map, keys, p->out + job->base + begin * p->s->inner * bytes, p->s->inner, n);
}

static void split_long_slice(split_job *job, rt_pool *pool)
{
  plain_job *p = &job->plain;
  int64_t n = p->s->n, blocks = split_blocks_of(n);

  atomic_init(&job->alike, false);
  choose_parts(job);
  rt_parallel_for(pool, blocks, split_task, job);
  job->part_at[0] = 0;
  for (int part = 0; part < job->parts; part++) {
    job->part_at[part + 1] = job->part_at[part];
    for (int64_t block = 0; block < blocks; block++)
      job->part_at[part + 1] += starts_of(job, block)[part + 1] - starts_of(job, block)[part];
  }
  rt_parallel_for(pool, job->parts, part_task, job);
  if (atomic_load(&job->alike))
    put_alike(p->ops, &p->map, p->in + job->base, job->other, job->split, p->out + job->base, p->s->inner, n);
}

/* ---- a long slice by all threads, by radix ----------------------------------------------------------------------- */

typedef struct long_job {
  plain_job plain;
  int64_t base;              /* of the slice, in bytes */
  char *keys, *dealt;        /* n keys each */
  int64_t (*at)[BUCKETS];    /* for each block: counts, then where its keys of each bucket go */
  uint64_t (*spans)[2];      /* for each block: its least and its greatest key */
  uint64_t least;
  int shift;                 /* a key's bucket is (key - least) >> shift */
  int groups;
  int64_t group_at[BUCKETS + 1];
  atomic_bool alike;
} long_job;

static int64_t blocks_of(int64_t n) { return (n + BLOCK - 1) / BLOCK; }

static int64_t keys_bytes(int64_t n, int64_t bytes) { return WEFT_ALIGN_UP(n * bytes, 64); }

int64_t cpu_sort_plain_scratch(int64_t n, int64_t bytes)
{
  /* the more of both ways: a saved plan may run on another processor */
  int64_t splits = split_blocks_of(n) * (parts_of(n) + 1) * (int64_t)sizeof(uint32_t),
          deals = blocks_of(n) * (int64_t)(sizeof(int64_t[BUCKETS]) + sizeof(uint64_t[2]));

  return 2 * keys_bytes(n, bytes) + WEFT_MAX(splits, deals);
}

static void map_task(void *ctx, int64_t block)
{
  long_job *job = ctx;
  const cpu_sort *s = job->plain.s;
  int64_t begin = block * BLOCK, n = WEFT_MIN(BLOCK, s->n - begin), bytes = job->plain.map.bytes;
  char *keys = job->keys + begin * bytes;

  if (map_keys(job->plain.ops, &job->plain.map, job->plain.in + job->base + begin * s->inner * bytes, s->inner, keys,
               n))
    /* read after the parallel loop has ended */
    atomic_store_explicit(&job->alike, true, memory_order_relaxed);
  job->plain.ops->span(keys, n, &job->spans[block][0], &job->spans[block][1]);
}

static void count_task(void *ctx, int64_t block)
{
  long_job *job = ctx;
  int64_t begin = block * BLOCK, n = WEFT_MIN(BLOCK, job->plain.s->n - begin);

  memset(job->at[block], 0, sizeof job->at[block]);
  job->plain.ops->count(job->keys + begin * job->plain.map.bytes, n, job->least, job->shift, job->at[block]);
}

static void deal_task(void *ctx, int64_t block)
{
  long_job *job = ctx;
  int64_t begin = block * BLOCK, n = WEFT_MIN(BLOCK, job->plain.s->n - begin);

  job->plain.ops->deal(job->keys + begin * job->plain.map.bytes, n, job->least, job->shift, job->at[block], job->dealt);
}

/* Sorts a group of buckets. The keys stay in `dealt` where elements are alike; elsewhere the elements are made here. */
static void group_task(void *ctx, int64_t group)
{
  long_job *job = ctx;
  const plain_job *p = &job->plain;
  int64_t begin = job->group_at[group], n = job->group_at[group + 1] - begin, bytes = p->map.bytes;
  char *keys = job->dealt + begin * bytes, *sorted = p->ops->sort(keys, job->keys + begin * bytes, n);

  if (!atomic_load_explicit(&job->alike, memory_order_relaxed))
    put_elements(p->ops, &p->map, sorted, p->out + job->base + begin * p->s->inner * bytes, p->s->inner, n);
  else if (sorted != keys) memcpy(keys, sorted, (size_t)(n * bytes));
}

/* Decides from the keys' span which bits are the bucket. */
static void choose_buckets(long_job *job, int64_t blocks)
{
  uint64_t most = 0;

  job->least = UINT64_MAX;
  for (int64_t b = 0; b < blocks; b++) {
    job->least = WEFT_MIN(job->least, job->spans[b][0]);
    most = WEFT_MAX(most, job->spans[b][1]);
  }
  int bits = most == job->least ? 0 : 64 - __builtin_clzll(most - job->least);
  job->shift = WEFT_MAX(0, bits - BUCKET_BITS);
}

/* Turns counts into places, and cuts the buckets into groups. */
static void place_buckets(long_job *job, int64_t blocks)
{
  int64_t at = 0;

  job->groups = 0;
  job->group_at[0] = 0;
  for (int v = 0; v < BUCKETS; v++) {
    int64_t begin = at;
    for (int64_t b = 0; b < blocks; b++) {
      int64_t count = job->at[b][v];
      job->at[b][v] = at;
      at += count;
    }
    if (at - job->group_at[job->groups] > GROUP && begin > job->group_at[job->groups])
      job->group_at[++job->groups] = begin;
  }
  job->group_at[++job->groups] = at;
}

static void sort_long_slice(long_job *job, rt_pool *pool)
{
  plain_job *p = &job->plain;
  int64_t n = p->s->n, blocks = blocks_of(n);

  atomic_init(&job->alike, false);
  rt_parallel_for(pool, blocks, map_task, job);
  choose_buckets(job, blocks);
  rt_parallel_for(pool, blocks, count_task, job);
  place_buckets(job, blocks);
  rt_parallel_for(pool, blocks, deal_task, job);
  rt_parallel_for(pool, job->groups, group_task, job);
  if (atomic_load(&job->alike))
    put_alike(p->ops, &p->map, p->in + job->base, job->dealt, job->keys, p->out + job->base, p->s->inner, n);
}

/* ---- the interface ----------------------------------------------------------------------------------------------- */

bool cpu_sort_is_plain(const cpu_sort *s) { return !s->before && s->operand_count == 1 && s->key_count == 1; }

static void sort_long_slices(const plain_job *job, rt_pool *pool, char *scratch)
{
  const cpu_sort *s = job->s;
  long_job of_slice = {.plain = *job, .keys = scratch};

  of_slice.dealt = of_slice.keys + keys_bytes(s->n, job->map.bytes);
  of_slice.at = (void *)(of_slice.dealt + keys_bytes(s->n, job->map.bytes));
  of_slice.spans = (void *)(of_slice.at + blocks_of(s->n));
  for (int64_t slice = 0; slice < s->slices; slice++) {
    of_slice.base = slice_base(job, slice);
    sort_long_slice(&of_slice, pool);
  }
}

static bool split_long_slices(const plain_job *job, rt_pool *pool, char *scratch)
{
  const cpu_sort *s = job->s;
  split_job of_slice = {.plain = *job, .split = scratch, .parts = parts_of(s->n)};

  of_slice.other = of_slice.split + keys_bytes(s->n, job->map.bytes);
  of_slice.starts = (void *)(of_slice.other + keys_bytes(s->n, job->map.bytes));
  for (int64_t slice = 0; slice < s->slices; slice++) {
    of_slice.base = slice_base(job, slice);
    split_long_slice(&of_slice, pool);
  }
  return !atomic_load(&of_slice.plain.failed);
}

bool cpu_sort_plain_is_long(const cpu_sort *s)
{
  bool is_one = s->slices == 1 && cpu_vector_sort_of(s->bytes[0]);

  return s->slices < FEW_SLICES && s->n >= (is_one ? ONE_PARALLEL_FROM : PARALLEL_FROM);
}

weft_status *cpu_sort_plain_run(const cpu_sort *s, rt_pool *pool, const void *in, void *out, void *scratch)
{
  plain_job job = {.s = s, .ops = ops_of(s->bytes[0]), .vectors = cpu_vector_sort_of(s->bytes[0]),
                   .wider = s->bytes[0] < 4 ? cpu_vector_sort_of(4) : NULL, .map = sort_map_of(&s->keys[0]), .in = in, .out = out};
  bool done = true;

  if (s->n == 0) return NULL;
  if (s->parallel_slice && job.vectors) {
    done = split_long_slices(&job, pool, scratch);
  } else if (s->parallel_slice) {
    sort_long_slices(&job, pool, scratch);
  } else {
    job.per_task = slices_per_task(&job, pool);
    rt_parallel_for(pool, (s->slices + job.per_task - 1) / job.per_task, slices_task, &job);
    done = !atomic_load(&job.failed);
  }
  return done ? NULL : WEFT_ERR(RESOURCE_EXHAUSTED, "sort: out of memory");
}
