/* cpu/sort.c -- Sort and top-k by keys.  Each element becomes an integer whose upper half is its key, mapped so that
 * unsigned order is the order wanted, and whose lower half is its position: no two are equal, so every correct sort of
 * them is stable. They are sorted by radix (few of them in vectors where sort_vector.h has a sort of them, else by
 * insertion and merging), and the operands are then gathered by position. */
#include <config.h>

#include "cpu/sort.h"

#include <stdatomic.h>
#include <string.h>

#include "base/macros.h"
#include "base/swap.h"
#include "cpu/hot.h"
#include "cpu/sort_keys.h"
#include "cpu/sort_plain.h"
#include "cpu/sort_vector.h"

enum {
  PIECE = 1 << 16,          /* elements of a long slice that one task sorts or merges */
  TASK_ELEMS = 1 << 14,     /* elements of short slices that one task takes */
};

typedef unsigned __int128 item; /* key in the upper 64 bits */
/* key in the upper 32 bits: for keys of at most 32 bits in slices of less than 2^32 elements */
typedef uint64_t small;

/* ---- sorting items ----------------------------------------------------------------------------------------------- */

CPU_SORTS(item, item)
CPU_SORTS(small, small)

static void *sort_whole_small(void *data, void *spare, int64_t n)
{
  return sort_small(data, spare, n, 0, (int)sizeof(small));
}

/* Sorts small items by key and position, where the positions are in order already. Few are sorted in vectors; of more,
 * only the bytes of the keys are sorted by radix. */
static small *sort_small_keys(small *data, small *spare, int64_t n, int key_bytes)
{
  const cpu_vector_sort *vectors = n < CPU_VECTORS_BELOW ? cpu_vector_sort_of(sizeof(small)) : NULL;

  if (!vectors) return sort_small(data, spare, n, 32, key_bytes);
  vectors->sort(data, spare, data, n, sort_whole_small);
  return data;
}

/* The number of items that come from a among the first k of the merge of a and b. */
#define SPLIT(name, T)                                                                                        \
  static int64_t split_##name(const T *a, int64_t an, const T *b, int64_t bn, int64_t k)                      \
  {                                                                                                           \
    int64_t lo = WEFT_MAX(0, k - bn), hi = WEFT_MIN(k, an);                                                   \
    while (lo < hi) {                                                                                         \
      int64_t mid = lo + (hi - lo) / 2;                                                                       \
      if (a[mid] < b[k - mid - 1]) lo = mid + 1;                                                              \
      else hi = mid;                                                                                          \
    }                                                                                                         \
    return lo;                                                                                                \
  }
SPLIT(item, item)
SPLIT(small, small)

/* The memory of one slice while it is sorted: the order, then two lists of items. */
static int64_t order_bytes(int64_t n) { return WEFT_ALIGN_UP(n * (int64_t)sizeof(int64_t), 64); }
static int64_t slice_bytes(int64_t n) { return order_bytes(n) + 2 * n * (int64_t)sizeof(item); }

/* ---- one slice --------------------------------------------------------------------------------------------------- */

/* A slice that is sorted by one key after another, the last key first. order[p] is the original position of the
 * element that is now the p-th. */
typedef struct slice_job {
  const cpu_sort *sort;
  const char *keys;         /* the first element of the key's operand in this slice */
  int64_t key_bytes;
  sort_key_map map;
  int64_t *order;
  bool first;               /* `order` is not filled yet: it stands for 0, 1, 2, ... */
  bool is_small;
  void *data, *spare;       /* n items each */
  int64_t width;            /* for merging: the length of the sorted runs */
} slice_job;

static void fill_items(const slice_job *job, int64_t begin, int64_t end)
{
  int64_t step = job->sort->inner * job->key_bytes;

  for (int64_t p = begin; p < end; p++) {
    uint64_t key = sort_key_of(&job->map, job->keys + (job->first ? p : job->order[p]) * step);
    if (job->is_small) ((small *)job->data)[p] = key << 32 | (uint64_t)p;
    else ((item *)job->data)[p] = (item)key << 64 | (uint64_t)p;
  }
}

static int64_t item_position(const slice_job *job, const void *sorted, int64_t p)
{
  return job->is_small ? (int64_t)(uint32_t)((const small *)sorted)[p] : (int64_t)(uint64_t)((const item *)sorted)[p];
}

/* Applies the sorted positions to `order`; needs `spare` for n positions if `order` was filled before. */
static void apply_items(slice_job *job, const void *sorted, void *spare)
{
  int64_t n = job->sort->n, *before = spare;

  if (!job->first) memcpy(before, job->order, (size_t)n * sizeof *before);
  for (int64_t p = 0; p < n; p++) {
    int64_t at = item_position(job, sorted, p);
    job->order[p] = job->first ? at : before[at];
  }
  job->first = false;
}

static bool key_is_small(const cpu_sort *s, const gen_key *key)
{
  return weft_dtype_bytes(key->type) <= 4 && s->n < INT64_C(1) << 32;
}

/* The elements [begin, end) of a slice, copied side by side: a result that shares its operand's memory is gathered
 * from this copy. */
static void copy_slice(const cpu_sort *s, int operand, const char *in, int64_t base, int64_t begin, int64_t end,
                       char *copy)
{
  int64_t bytes = s->bytes[operand], step = s->inner * bytes;

  for (int64_t p = begin; p < end; p++) memcpy(copy + p * bytes, in + base * bytes + p * step, (size_t)bytes);
}

/* `copy` is a copy of the whole slice; with NULL the operand is read. */
static void gather(const cpu_sort *s, int operand, const char *in, char *out, int64_t base, const int64_t *order,
                   int64_t begin, int64_t end, const char *copy)
{
  int64_t bytes = s->bytes[operand], step = s->inner * bytes, in_step = copy ? bytes : step;

  in = copy ? copy : in + base * bytes;
  out += base * bytes;
#define GATHER(size) \
  case size: for (int64_t p = begin; p < end; p++) memcpy(out + p * step, in + order[p] * in_step, size); break
  switch (bytes) {
    GATHER(1);
    GATHER(2);
    GATHER(4);
    GATHER(8);
    GATHER(16);
  }
#undef GATHER
}

static int64_t slice_base(const cpu_sort *s, int64_t slice)
{
  return slice / s->inner * s->n * s->inner + slice % s->inner;
}

/* Orders positions by calling the comparator: a bottom-up merge sort. */
static int64_t *sort_by_calls(const cpu_sort *s, void *const *ins, int64_t base, int64_t *order, int64_t *spare)
{
  const void *elements[2 * CPU_SORT_MAX_OPERANDS];

  for (int64_t p = 0; p < s->n; p++) order[p] = p;
  for (int64_t width = 1; width < s->n; width *= 2) {
    for (int64_t lo = 0; lo < s->n; lo += 2 * width) {
      int64_t a = lo, mid = WEFT_MIN(lo + width, s->n), b = mid, hi = WEFT_MIN(lo + 2 * width, s->n);
      for (int64_t k = lo; k < hi; k++) {
        bool take_b = a == mid;
        if (a < mid && b < hi) {
          for (int i = 0; i < s->operand_count; i++) {
            elements[2 * i] = (char *)ins[i] + (base + order[b] * s->inner) * s->bytes[i];
            elements[2 * i + 1] = (char *)ins[i] + (base + order[a] * s->inner) * s->bytes[i];
          }
          take_b = s->before(elements); /* equal elements: those of a stay first */
        }
        spare[k] = take_b ? order[b++] : order[a++];
      }
    }
    WEFT_SWAP(order, spare);
  }
  return order;
}

typedef struct sort_job {
  const cpu_sort *s;
  void *const *ins, *const *outs;
  int64_t slices_per_task;
  atomic_bool failed;
} sort_job;

/* The next key to sort by, in the slice that begins at element `base`. */
static void take_key(slice_job *job, const gen_key *key, void *const *ins, int64_t base)
{
  job->key_bytes = job->sort->bytes[key->operand];
  job->keys = (const char *)ins[key->operand] + base * job->key_bytes;
  job->map = sort_map_of(key);
  job->is_small = key_is_small(job->sort, key);
}

static void sort_slice(const cpu_sort *s, void *const *ins, void *const *outs, int64_t slice, char *memory)
{
  int64_t n = s->n, base = slice_base(s, slice);
  int64_t *order = (int64_t *)memory;
  char *data = memory + order_bytes(n), *spare = data + n * (int64_t)sizeof(item);
  slice_job job = {.sort = s, .order = order, .first = true};

  if (s->before) order = sort_by_calls(s, ins, base, order, (int64_t *)data);
  for (int k = s->key_count - 1; k >= 0; k--) {
    take_key(&job, &s->keys[k], ins, base);
    job.data = data;
    job.spare = spare;
    fill_items(&job, 0, n);
    void *sorted = job.is_small ? (void *)sort_small_keys(job.data, job.spare, n, (int)job.map.bytes)
                                : (void *)sort_item(job.data, job.spare, n, 64, (int)job.map.bytes);
    apply_items(&job, sorted, sorted == job.data ? job.spare : job.data);
  }
  for (int i = 0; i < s->operand_count; i++) {
    char *copy = ins[i] != outs[i] ? NULL : order == (int64_t *)memory ? data : spare;
    if (copy) copy_slice(s, i, ins[i], base, 0, n, copy);
    gather(s, i, ins[i], outs[i], base, order, 0, n, copy);
  }
}

static void slices_task(void *ctx, int64_t task)
{
  sort_job *job = ctx;
  const cpu_sort *s = job->s;
  int64_t first = task * job->slices_per_task, end = WEFT_MIN(first + job->slices_per_task, s->slices);
  char *memory = rt_task_scratch(slice_bytes(s->n), &job->failed);

  if (!memory) return;
  for (int64_t slice = first; slice < end; slice++) sort_slice(s, job->ins, job->outs, slice, memory);
}

/* ---- a long slice by all threads --------------------------------------------------------------------------------- */

static void piece_task(void *ctx, int64_t piece)
{
  slice_job *job = ctx;
  int64_t begin = piece * PIECE, n = WEFT_MIN(PIECE, job->sort->n - begin);

  fill_items(job, begin, begin + n);
  if (job->is_small) {
    small *data = (small *)job->data + begin, *spare = (small *)job->spare + begin;
    small *sorted = sort_small(data, spare, n, 32, (int)job->map.bytes);
    if (sorted != data) memcpy(data, sorted, (size_t)n * sizeof *data);
  } else {
    item *data = (item *)job->data + begin, *spare = (item *)job->spare + begin;
    item *sorted = sort_item(data, spare, n, 64, (int)job->map.bytes);
    if (sorted != data) memcpy(data, sorted, (size_t)n * sizeof *data);
  }
}

/* Makes PIECE elements of the result of the next round: the part of a merge of two runs that lies there. */
static void merge_task(void *ctx, int64_t piece)
{
  slice_job *job = ctx;
  int64_t n = job->sort->n, begin = piece * PIECE, end = WEFT_MIN(begin + PIECE, n);
  int64_t lo = begin / (2 * job->width) * (2 * job->width), mid = WEFT_MIN(lo + job->width, n);
  int64_t hi = WEFT_MIN(lo + 2 * job->width, n), from = begin - lo, to = end - lo; /* width is a multiple of PIECE */

#define MERGE_PART(name, T)                                                                               \
  do {                                                                                                    \
    const T *a = (const T *)job->data + lo, *b = (const T *)job->data + mid;                              \
    int64_t a0 = split_##name(a, mid - lo, b, hi - mid, from), a1 = split_##name(a, mid - lo, b, hi - mid, to); \
    merge_##name((T *)job->spare + begin, a + a0, a1 - a0, b + (from - a0), (to - a1) - (from - a0));     \
  } while (0)
  if (job->is_small) MERGE_PART(small, small);
  else MERGE_PART(item, item);
#undef MERGE_PART
}

typedef struct gather_job {
  const cpu_sort *s;
  void *const *ins, *const *outs;
  const int64_t *order;
  int64_t base;
  int operand;
  char *copy; /* NULL: the result does not share its operand's memory */
} gather_job;

static void copy_task(void *ctx, int64_t piece)
{
  const gather_job *g = ctx;
  copy_slice(g->s, g->operand, g->ins[g->operand], g->base, piece * PIECE, WEFT_MIN((piece + 1) * PIECE, g->s->n),
             g->copy);
}

static void gather_task(void *ctx, int64_t piece)
{
  const gather_job *g = ctx;
  gather(g->s, g->operand, g->ins[g->operand], g->outs[g->operand], g->base, g->order, piece * PIECE,
         WEFT_MIN((piece + 1) * PIECE, g->s->n), g->copy);
}

static void sort_long_slice(const cpu_sort *s, rt_pool *pool, void *const *ins, void *const *outs, int64_t slice,
                            char *memory)
{
  int64_t n = s->n, pieces = (n + PIECE - 1) / PIECE, base = slice_base(s, slice);
  slice_job job = {.sort = s, .order = (int64_t *)memory, .first = true};

  for (int k = s->key_count - 1; k >= 0; k--) {
    take_key(&job, &s->keys[k], ins, base);
    job.data = memory + order_bytes(n);
    job.spare = (char *)job.data + n * (int64_t)sizeof(item);
    rt_parallel_for(pool, pieces, piece_task, &job);
    for (job.width = PIECE; job.width < n; job.width *= 2) {
      rt_parallel_for(pool, pieces, merge_task, &job);
      WEFT_SWAP(job.data, job.spare);
    }
    apply_items(&job, job.data, job.spare);
  }
  for (int i = 0; i < s->operand_count; i++) {
    gather_job g = {s, ins, outs, job.order, base, i, ins[i] == outs[i] ? memory + order_bytes(n) : NULL};
    if (g.copy) rt_parallel_for(pool, pieces, copy_task, &g);
    rt_parallel_for(pool, pieces, gather_task, &g);
  }
}

/* ---- the interface ----------------------------------------------------------------------------------------------- */

weft_status *cpu_sort_init(cpu_sort *s, const hlo_instr *instr, gen_compare_fn *before)
{
  const hlo_shape *shape = instr->operands[0]->shape;
  int64_t dim = instr->dims.v[0];

  memset(s, 0, sizeof *s);
  if (instr->operand_count > CPU_SORT_MAX_OPERANDS)
    return WEFT_ERR(UNIMPLEMENTED, "sort of %d operands", instr->operand_count);
  s->operand_count = instr->operand_count;
  for (int i = 0; i < instr->operand_count; i++)
    s->bytes[i] = (int64_t)weft_dtype_bytes(instr->operands[i]->shape->type);
  bool by_keys = gen_keys_of(instr->called[0], s->keys, &s->key_count);
  for (int k = 0; k < s->key_count && by_keys; k++) by_keys = gen_key_is_bits(s->keys[k].type);
  if (!by_keys) {
    s->key_count = 0;
    s->before = before;
    if (!before) return WEFT_ERR(UNIMPLEMENTED, "sort with the comparator \"%s\"", instr->called[0]->name);
  }
  s->n = shape->dims[dim];
  s->inner = 1;
  for (int d = (int)dim + 1; d < shape->rank; d++) s->inner *= shape->dims[d];
  s->slices = s->n ? hlo_shape_elems(shape) / s->n : 0;
  s->parallel_slice = !s->before && s->n >= 4 * PIECE && s->slices < 16;
  s->scratch_bytes = s->parallel_slice ? slice_bytes(s->n) : 0;
  if (cpu_sort_is_plain(s)) {
    s->parallel_slice = cpu_sort_plain_is_long(s);
    s->scratch_bytes = s->parallel_slice ? cpu_sort_plain_scratch(s->n, s->bytes[0]) : 0;
  }
  return NULL;
}

weft_status *cpu_sort_run(const cpu_sort *s, rt_pool *pool, void *const *ins, void *const *outs, void *scratch)
{
  if (cpu_sort_is_plain(s)) return cpu_sort_plain_run(s, pool, ins[0], outs[0], scratch);

  sort_job job = {.s = s, .ins = ins, .outs = outs, .slices_per_task = WEFT_MAX(1, TASK_ELEMS / WEFT_MAX(1, s->n))};

  if (s->parallel_slice) {
    for (int64_t slice = 0; slice < s->slices; slice++) sort_long_slice(s, pool, ins, outs, slice, scratch);
    return NULL;
  }
  rt_parallel_for(pool, (s->slices + job.slices_per_task - 1) / job.slices_per_task, slices_task, &job);
  if (atomic_load(&job.failed)) return WEFT_ERR(RESOURCE_EXHAUSTED, "sort: out of memory");
  return NULL;
}

/* ---- top-k ------------------------------------------------------------------------------------------------------- */

weft_status *cpu_topk_init(cpu_topk *t, const hlo_instr *instr)
{
  const hlo_shape *shape = instr->operands[0]->shape;

  if (!gen_key_is_bits(shape->type)) return WEFT_ERR(UNIMPLEMENTED, "topk of %s", weft_dtype_name(shape->type));
  if (shape->dims[shape->rank - 1] >= INT64_C(1) << 32)
    return WEFT_ERR(UNIMPLEMENTED, "topk of 2^32 elements and more");
  *t = (cpu_topk){.type = shape->type,
                  .index_type = instr->shape->elements[1]->type,
                  .n = shape->dims[shape->rank - 1],
                  .k = instr->u.topk.k,
                  .largest = instr->u.topk.largest};
  t->rows = t->n ? hlo_shape_elems(shape) / t->n : 0;
  return NULL;
}

/* Sorts items after a selection has mixed them: sort_item keeps the order of equal keys, which must be that of their
 * positions. */
static item *sort_shuffled(item *data, item *spare, int64_t n, int key_bytes)
{
  if (n >= CPU_RADIX_FROM && sort_item(data, spare, n, 0, 4) == spare) return sort_item(spare, data, n, 64, key_bytes);
  return sort_item(data, spare, n, 64, key_bytes);
}

/* Moves the k least items of data[n] to its front, in any order (Hoare's selection). Sorts everything instead if the
 * pivots are unlucky. */
static item *select_least(item *data, item *spare, int64_t n, int64_t k, int key_bytes)
{
  int64_t lo = 0, hi = n;

  for (int rounds = 0; hi - lo > CPU_SORT_RUN && lo < k && k < hi; rounds++) {
    if (rounds > 64) return sort_shuffled(data, spare, n, key_bytes);
    item a = data[lo], b = data[lo + (hi - lo) / 2], c = data[hi - 1];
    item pivot = a < b ? (b < c ? b : a < c ? c : a) : (a < c ? a : b < c ? c : b);
    int64_t i = lo, j = hi - 1;
    while (i <= j) {
      while (data[i] < pivot) i++;
      while (data[j] > pivot) j--;
      if (i <= j) {
        item swap = data[i];
        data[i++] = data[j];
        data[j--] = swap;
      }
    }
    if (k <= j + 1) hi = j + 1;
    else if (k >= i) lo = i;
    else return data;
  }
  insert_item(data + lo, hi - lo > CPU_SORT_RUN ? 0 : hi - lo);
  return data;
}

enum { SCAN = 32, FEW = 32 };

/* Appends to `kept` those of SCAN elements whose keys are below `bar`; the first element has number `at`. `kept`
 * needs room for SCAN items in any case. In plain orders the key is the element's bits with some of them flipped;
 * the topmost bit decides which. */
#define KEEP_BELOW(name, type, T, shift)                                                                     \
  static CPU_HOT int64_t name(const type *in, type flip_clear, type flip_set, type bar, int64_t at, T *kept) \
  {                                                                                                          \
    type keys[SCAN], any = 0;                                                                                \
    int64_t count = 0;                                                                                       \
    for (int i = 0; i < SCAN; i++) {                                                                         \
      keys[i] = in[i] ^ (in[i] >> (sizeof(type) * 8 - 1) ? flip_set : flip_clear);                           \
      any |= keys[i] < bar;                                                                                  \
    }                                                                                                        \
    if (!any) return 0;                                                                                      \
    for (int i = 0; i < SCAN; i++) { /* no branch: the processor could not predict it */                     \
      kept[count] = (T)keys[i] << shift | (uint64_t)(at + i);                                                \
      count += keys[i] < bar;                                                                                \
    }                                                                                                        \
    return count;                                                                                            \
  }
/* Makes the functions for items and, for keys of at most 32 bits, for small items. */
#define KEEP_BELOW_OF(name, T, shift)                                                                        \
  KEEP_BELOW(keep_##name##_8, uint8_t, T, shift)                                                             \
  KEEP_BELOW(keep_##name##_16, uint16_t, T, shift)                                                           \
  KEEP_BELOW(keep_##name##_32, uint32_t, T, shift)                                                           \
  static int64_t keep_##name(const sort_key_map *m, const char *in, uint64_t bar, int64_t at, T *kept)            \
  {                                                                                                          \
    uint64_t order = m->descending ? m->mask : 0;                                                            \
    uint64_t clear = order ^ (m->is_float || m->is_signed ? m->sign : 0), set = m->is_float ? order ^ m->mask : clear; \
                                                                                                             \
    switch (m->bytes) {                                                                                      \
    case 1: return keep_##name##_8((const void *)in, (uint8_t)clear, (uint8_t)set, (uint8_t)bar, at, kept);  \
    case 2: return keep_##name##_16((const void *)in, (uint16_t)clear, (uint16_t)set, (uint16_t)bar, at, kept); \
    case 4: return keep_##name##_32((const void *)in, (uint32_t)clear, (uint32_t)set, (uint32_t)bar, at, kept); \
    default: return keep_##name##_64((const void *)in, clear, set, bar, at, kept);                           \
    }                                                                                                        \
  }
KEEP_BELOW(keep_item_64, uint64_t, item, 64)
KEEP_BELOW_OF(item, item, 64)
#define keep_small_64(in, clear, set, bar, at, kept) 0 /* small items have no keys of 64 bits */
KEEP_BELOW_OF(small, small, 32)

typedef struct topk_job {
  const cpu_topk *t;
  const char *in;
  char *values, *indices;
  atomic_bool failed;
} topk_job;

/* Finds the k first elements of a row when k is small: they are kept in order, and the last of them is the bar that
 * an element must be below. */
#define FEW_BEST(name, T, shift)                                                                             \
  static inline __attribute__((always_inline)) void take_##name(T *best, int64_t k, T x)                     \
  {                                                                                                          \
    int64_t i = k - 1;                                                                                       \
    if (x >= best[i]) return;                                                                                \
    for (; i > 0 && best[i - 1] > x; i--) best[i] = best[i - 1];                                             \
    best[i] = x;                                                                                             \
  }                                                                                                          \
  static void few_##name(const sort_key_map *map, const char *in, int64_t n, int64_t k, T *best)                  \
  {                                                                                                          \
    T kept[SCAN];                                                                                            \
    int64_t i = 0;                                                                                           \
    for (; i < k; i++) best[i] = (T)sort_key_of(map, in + i * map->bytes) << shift | (uint64_t)i;                 \
    insert_##name(best, k);                                                                                  \
    for (; i + SCAN <= n; i += SCAN) {                                                                       \
      int64_t count = keep_##name(map, in + i * map->bytes, (uint64_t)(best[k - 1] >> shift), i, kept);      \
      for (int64_t p = 0; p < count; p++) take_##name(best, k, kept[p]);                                     \
    }                                                                                                        \
    for (; i < n; i++) take_##name(best, k, (T)sort_key_of(map, in + i * map->bytes) << shift | (uint64_t)i);     \
  }
FEW_BEST(small, small, 32)
FEW_BEST(item, item, 64)

static void put_best(const topk_job *job, int64_t row, int64_t i, int64_t at)
{
  const cpu_topk *t = job->t;
  int64_t bytes = (int64_t)weft_dtype_bytes(t->type), index_bytes = (int64_t)weft_dtype_bytes(t->index_type);

  memcpy(job->values + (row * t->k + i) * bytes, job->in + (row * t->n + at) * bytes, (size_t)bytes);
  memcpy(job->indices + (row * t->k + i) * index_bytes, &at, (size_t)index_bytes);
}

static void few_task(void *ctx, int64_t row)
{
  const topk_job *job = ctx;
  const cpu_topk *t = job->t;
  sort_key_map map = sort_map_of(&(gen_key){.type = t->type, .descending = t->largest});
  const char *in = job->in + row * t->n * map.bytes;
  union { small few[FEW]; item wide[FEW]; } best;
  bool is_small = map.bytes <= 4 && t->n <= UINT32_MAX; /* key and position have 32 bits each */

  if (is_small) few_small(&map, in, t->n, t->k, best.few);
  else few_item(&map, in, t->n, t->k, best.wide);
  for (int64_t i = 0; i < t->k; i++)
    put_best(job, row, i, is_small ? (uint32_t)best.few[i] : (int64_t)(uint64_t)best.wide[i]);
}

/* Walks through a row and keeps the elements that may be among the k first. Whenever `room` of them are kept, the k
 * least remain, and the greatest of these becomes the bar that later elements must be below. */
static void topk_task(void *ctx, int64_t row)
{
  topk_job *job = ctx;
  const cpu_topk *t = job->t;
  int64_t bytes = (int64_t)weft_dtype_bytes(t->type);
  int64_t room = WEFT_MIN(t->n, 2 * t->k + 128), kept = 0; /* little room, so that the bar falls soon */
  sort_key_map map = sort_map_of(&(gen_key){.type = t->type, .descending = t->largest});
  item *data = rt_task_scratch(2 * (room + SCAN) * (int64_t)sizeof *data, &job->failed), *spare = data + room + SCAN;
  const char *in = job->in + row * t->n * bytes;
  uint64_t bar = UINT64_MAX;
  bool barred = false;

  if (!data) return;
  for (int64_t i = 0; i < t->n && t->k > 0;) {
    /* elements equal to the bar come later in the order, because of their positions */
    if (barred && i + SCAN <= t->n) {
      kept += keep_item(&map, in + i * bytes, bar, i, data + kept);
      i += SCAN;
    } else {
      uint64_t key = sort_key_of(&map, in + i * bytes);
      if (!barred || key < bar) data[kept++] = (item)key << 64 | (uint64_t)i;
      i++;
    }
    if (kept < room || t->k >= room) continue;
    item *least = select_least(data, spare, kept, t->k, (int)bytes);
    if (least != data) memcpy(data, least, (size_t)t->k * sizeof *data);
    kept = t->k;
    bar = 0;
    for (int64_t p = 0; p < kept; p++) bar = WEFT_MAX(bar, (uint64_t)(data[p] >> 64));
    barred = true;
  }
  item *front = select_least(data, spare, kept, t->k, (int)bytes);
  item *first = sort_shuffled(front, front == data ? spare : data, t->k, (int)bytes);
  for (int64_t i = 0; i < t->k; i++) put_best(job, row, i, (int64_t)(uint64_t)first[i]);
}

weft_status *cpu_topk_run(const cpu_topk *t, rt_pool *pool, const void *in, void *values, void *indices)
{
  topk_job job = {.t = t, .in = in, .values = values, .indices = indices};

  rt_parallel_for(pool, t->rows, t->k > 0 && t->k <= FEW ? few_task : topk_task, &job);
  if (atomic_load(&job.failed)) return WEFT_ERR(RESOURCE_EXHAUSTED, "topk: out of memory");
  return NULL;
}
