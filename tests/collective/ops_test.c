/* tests/collective/ops_test.c -- every operation, type, reduction and algorithm against a scalar model, for devices of
 * a process and for processes over shared memory; as ops_fabric_test, over libfabric; as ops_gpu_test, between emulated
 * GPUs, for what their communicators move. */
#include "world.h"

#include <unistd.h>

#include "collective/flight.h"
#include "collective/flight_text.h"
#include "collective/dial.h"
#include "collective/host/link.h"

enum { GUARD = 64 };

/* Where a rank's input lies, relative to its output. */
typedef enum layout { APART, IN_PLACE, SHIFTED, LAYOUT_COUNT } layout;
static const char *const layout_names[] = {"", " in place", " overlapping"};

/* Element i of rank r's input, small enough that sums and products are exact in every type that has them. */
static double element(int rank, size_t i, weft_reduction reduction)
{
  unsigned h = (unsigned)(rank * 31 + (int)(i % 1009) * 7 + 3);
  if (reduction == WEFT_PRODUCT) return h % 7 == 0 ? 2 : 1;
  return h % 5 == 0 ? 1 : 0;
}

/* An integer result as the type stores it: integers wrap around, pred is 0 or 1. */
static double keep(weft_dtype t, weft_reduction reduction, double x)
{
  int bits = weft_dtype_bits(t);
  if (t == WEFT_PRED) return reduction == WEFT_XOR ? x : x != 0;
  if (weft_dtype_is_integer(t) && bits < 8) {
    int64_t wrapped = (int64_t)x & ((1 << bits) - 1);
    if (weft_dtype_is_signed(t) && wrapped >> (bits - 1)) wrapped -= 1 << bits;
    return (double)wrapped;
  }
  return x;
}

static void put(weft_dtype t, void *at, size_t i, double value)
{
  size_t bytes = weft_dtype_bytes(t);
  char *p = (char *)at + i * bytes;

  if (t == WEFT_F32) { /* most trials */
    ((float *)at)[i] = (float)value;
  } else if (weft_dtype_is_complex(t)) {
    weft_dtype part = weft_dtype_component(t);
    put(part, p, 0, value);
    put(part, p, 1, 0);
  } else if (weft_dtype_is_float(t)) {
    uint64_t bits = weft_float_encode_f64(t, value);
    memcpy(p, &bits, bytes);
  } else {
    int64_t bits = (int64_t)keep(t, WEFT_MAX, value);
    memcpy(p, &bits, bytes);
  }
}

static double apply(weft_reduction reduction, double a, double b)
{
  switch (reduction) {
  case WEFT_SUM: return a + b;
  case WEFT_PRODUCT: return a * b;
  case WEFT_MIN: return a < b ? a : b;
  case WEFT_MAX: return a > b ? a : b;
  case WEFT_AND: return (double)((int64_t)a & (int64_t)b);
  case WEFT_OR: return (double)((int64_t)a | (int64_t)b);
  default: return (double)((int64_t)a ^ (int64_t)b);
  }
}

static double reduced(weft_dtype t, weft_reduction reduction, int size, size_t i)
{
  double acc = keep(t, WEFT_MAX, element(0, i, reduction));
  for (int r = 1; r < size; r++)
    acc = keep(t, reduction, apply(reduction, acc, keep(t, WEFT_MAX, element(r, i, reduction))));
  return acc;
}

enum { UPDATES = 2 };

/* One case: sizes, buffers with guards, expected outputs. */
typedef struct trial {
  weft_coll_op ops[MOST_RANKS];
  char *in[MOST_RANKS], *out[MOST_RANKS], *want[MOST_RANKS];
  size_t in_elems[MOST_RANKS], out_elems[MOST_RANKS];
  size_t counts[MOST_RANKS], matrix[2][MOST_RANKS][MOST_RANKS];
  weft_coll_ragged ragged[MOST_RANKS];
  int64_t rows[4][MOST_RANKS][MOST_RANKS * UPDATES]; /* what weft_coll_ragged points to, by rank */
} trial;

static size_t uneven(int r, size_t count) { return r % 3 == 1 ? 0 : count + (size_t)(r % 2); }

static void fill_in(trial *t, int size, weft_dtype type, weft_reduction reduction, layout how)
{
  size_t each = weft_dtype_bytes(type);

  for (int r = 0; r < size; r++) {
    size_t in = t->in_elems[r] * each, out = t->out_elems[r] * each;
    t->out[r] = malloc(out + in + each + 2 * GUARD);
    t->want[r] = calloc(1, out + 1);
    memset(t->out[r], 0x5a, out + in + each + 2 * GUARD);
    t->in[r] = how == APART ? malloc(in + 1) : t->out[r] + GUARD + (how == SHIFTED ? each : 0);
    for (size_t i = 0; i < t->in_elems[r]; i++) put(type, t->in[r], i, element(r, i, reduction));
    t->ops[r].send = t->in[r];
    t->ops[r].recv = t->out[r] + GUARD;
  }
}

static void want_at(trial *t, int rank, weft_dtype type, size_t i, double value) { put(type, t->want[rank], i, value); }

/* In update u, rank r sends ragged_rows(r, o, u) rows to rank o, from any offset. A receiver has room for `count + 2`
 * rows of each update; rows that are not written keep their old contents. */
static size_t ragged_rows(int r, int o, int u, size_t count)
{
  return (r + 2 * o + u) % 3 == 0 ? 0 : count + (size_t)((r + o + u) % 3);
}

static void prepare_ragged(trial *t, int r, int size, size_t count)
{
  size_t room = count + 2, rows = (size_t)size * UPDATES * room;

  for (int o = 0; o < size; o++)
    for (int u = 0; u < UPDATES; u++) {
      int k = o * UPDATES + u;
      t->rows[0][r][k] = (int64_t)((size_t)(size * UPDATES - 1 - k) * room); /* input offsets, backwards */
      t->rows[1][r][k] = (int64_t)ragged_rows(r, o, u, count);
      t->rows[2][r][k] = (int64_t)((size_t)(r * UPDATES + u) * room);
      t->rows[3][r][k] = (int64_t)ragged_rows(o, r, u, count);
    }
  t->in_elems[r] = t->out_elems[r] = rows;
  t->ragged[r] = (weft_coll_ragged){t->rows[0][r], t->rows[1][r], t->rows[2][r], t->rows[3][r], UPDATES, 1,
                                    (int64_t)rows, (int64_t)rows};
  t->ops[r].ragged = &t->ragged[r];
  t->ops[r].count = 0;
}

/* Sets up `kind` on every rank and computes what must come out. */
static void prepare(trial *t, weft_coll_kind kind, int size, weft_dtype type, weft_reduction reduction, size_t count,
                    int root, layout how)
{
  size_t total = 0;

  memset(t, 0, sizeof *t);
  for (int r = 0; r < size; r++) {
    t->counts[r] = uneven(r, count);
    total += t->counts[r];
    for (int o = 0; o < size; o++) {
      t->matrix[0][r][o] = uneven(r + o, count); /* r sends o */
      t->matrix[1][r][o] = uneven(o + r, count);
    }
  }
  for (int r = 0; r < size; r++) {
    weft_coll_op *op = &t->ops[r];
    *op = (weft_coll_op){.kind = kind, .dtype = type, .count = count, .root = root, .source = -1, .target = -1};
    bool reduces = kind == WEFT_ALL_REDUCE || kind == WEFT_REDUCE || kind == WEFT_REDUCE_SCATTER;
    if (reduces) op->reduction = reduction;
    size_t n = (size_t)size;
    switch (kind) {
    case WEFT_BARRIER: break;
    case WEFT_ALL_REDUCE: t->in_elems[r] = t->out_elems[r] = count; break;
    case WEFT_REDUCE:
      t->in_elems[r] = count;
      t->out_elems[r] = r == root ? count : 0;
      break;
    case WEFT_REDUCE_SCATTER:
      t->in_elems[r] = n * count;
      t->out_elems[r] = count;
      break;
    case WEFT_BROADCAST:
      t->in_elems[r] = r == root ? count : 0;
      t->out_elems[r] = count;
      break;
    case WEFT_ALL_GATHER:
      t->in_elems[r] = count;
      t->out_elems[r] = n * count;
      break;
    case WEFT_GATHER:
      t->in_elems[r] = count;
      t->out_elems[r] = r == root ? n * count : 0;
      break;
    case WEFT_ALL_GATHER_V:
      t->in_elems[r] = t->counts[r];
      t->out_elems[r] = total;
      op->recv_counts = t->counts;
      break;
    case WEFT_GATHER_V:
      t->in_elems[r] = t->counts[r];
      t->out_elems[r] = r == root ? total : 0;
      op->recv_counts = t->counts;
      break;
    case WEFT_SCATTER:
      t->in_elems[r] = r == root ? n * count : 0;
      t->out_elems[r] = count;
      break;
    case WEFT_SCATTER_V:
      t->in_elems[r] = r == root ? total : 0;
      t->out_elems[r] = t->counts[r];
      op->send_counts = t->counts;
      break;
    case WEFT_ALL_TO_ALL: t->in_elems[r] = t->out_elems[r] = n * count; break;
    case WEFT_ALL_TO_ALL_V:
      for (int o = 0; o < size; o++) {
        t->in_elems[r] += t->matrix[0][r][o];
        t->out_elems[r] += t->matrix[1][r][o];
      }
      op->send_counts = t->matrix[0][r];
      op->recv_counts = t->matrix[1][r];
      break;
    case WEFT_PERMUTE: /* a shift, with a hole: rank size-1 sends nothing, rank 0 gets nothing */
      t->in_elems[r] = t->out_elems[r] = count;
      op->target = r + 1 < size ? r + 1 : -1;
      op->source = r - 1;
      break;
    case WEFT_RAGGED_ALL_TO_ALL: prepare_ragged(t, r, size, count); break;
    default: fail_msg("no model");
    }
  }
  fill_in(t, size, type, reduction, how);
  for (int r = 0; r < size; r++) {
    size_t n = (size_t)size, at = 0, before = 0;
    for (int o = 0; o < r; o++) before += t->counts[o];
    switch (kind) {
    case WEFT_ALL_REDUCE:
    case WEFT_REDUCE:
      for (size_t i = 0; i < t->out_elems[r]; i++) want_at(t, r, type, i, reduced(type, reduction, size, i));
      break;
    case WEFT_REDUCE_SCATTER:
      for (size_t i = 0; i < count; i++) want_at(t, r, type, i, reduced(type, reduction, size, (size_t)r * count + i));
      break;
    case WEFT_BROADCAST:
      for (size_t i = 0; i < count; i++) want_at(t, r, type, i, element(root, i, reduction));
      break;
    case WEFT_ALL_GATHER:
    case WEFT_GATHER:
      for (size_t i = 0; i < t->out_elems[r]; i++)
        want_at(t, r, type, i, element((int)(i / count), i % count, reduction));
      break;
    case WEFT_ALL_GATHER_V:
    case WEFT_GATHER_V:
      for (int o = 0; o < size && t->out_elems[r]; o++)
        for (size_t i = 0; i < t->counts[o]; i++) want_at(t, r, type, at++, element(o, i, reduction));
      break;
    case WEFT_SCATTER:
      for (size_t i = 0; i < count; i++) want_at(t, r, type, i, element(root, (size_t)r * count + i, reduction));
      break;
    case WEFT_SCATTER_V:
      for (size_t i = 0; i < t->counts[r]; i++) want_at(t, r, type, i, element(root, before + i, reduction));
      break;
    case WEFT_ALL_TO_ALL:
      for (size_t i = 0; i < n * count; i++)
        want_at(t, r, type, i, element((int)(i / count), (size_t)r * count + i % count, reduction));
      break;
    case WEFT_ALL_TO_ALL_V:
      for (int o = 0; o < size; o++) {
        size_t from = 0;
        for (int k = 0; k < r; k++) from += t->matrix[0][o][k];
        for (size_t i = 0; i < t->matrix[1][r][o]; i++) want_at(t, r, type, at++, element(o, from + i, reduction));
      }
      break;
    case WEFT_PERMUTE:
      for (size_t i = 0; i < count && r; i++)
        want_at(t, r, type, i, element(r - 1, i, reduction)); /* rank 0: zero bytes */
      break;
    case WEFT_RAGGED_ALL_TO_ALL:
      memcpy(t->want[r], t->ops[r].recv, t->out_elems[r] * weft_dtype_bytes(type));
      for (int k = 0; k < size * UPDATES; k++) {
        int from = k / UPDATES, u = k % UPDATES;
        for (int64_t i = 0; i < t->rows[3][r][k]; i++)
          want_at(t, r, type, (size_t)(t->rows[2][from][r * UPDATES + u] + i),
                  element(from, (size_t)(t->rows[0][from][r * UPDATES + u] + i), reduction));
      }
      break;
    default: break;
    }
  }
}

static void check_and_free(trial *t, weft_coll_kind kind, int size, weft_dtype type, weft_reduction reduction,
                           const char *how, layout lies)
{
  size_t each = weft_dtype_bytes(type);

  for (int r = 0; r < size; r++) {
    size_t bytes = t->out_elems[r] * each;
    const unsigned char *got = (unsigned char *)t->out[r] + GUARD, *want = (unsigned char *)t->want[r];
    for (size_t i = 0; i < bytes; i++)
      if (got[i] != want[i])
        fail_msg("%s %s %s of %d, %s%s: rank %d byte %zu of %zu: got %02x, want %02x", weft_coll_kind_name(kind),
                 weft_dtype_name(type), weft_reduction_name(reduction), size, how, layout_names[lies], r, i, bytes,
                 got[i], want[i]);
    for (size_t i = 0; i < GUARD; i++)
      if ((unsigned char)t->out[r][i] != 0x5a || (lies == APART && got[bytes + i] != 0x5a))
        fail_msg("%s of %d, %s: rank %d wrote outside its buffer", weft_coll_kind_name(kind), size, how, r);
    if (lies == APART) free(t->in[r]);
    free(t->out[r]);
    free(t->want[r]);
  }
}

static void run_trial(world *w, weft_coll_kind kind, weft_dtype type, weft_reduction reduction, size_t count, int root,
                      layout lies, const char *how)
{
  static trial t;
  weft_coll_call call = {.deadline = weft_deadline_after_ms(60000), .will_wait = true};

  prepare(&t, kind, w->size, type, reduction, count, root, lies);
  weft_status *st = world_run(w, t.ops, &call);
  if (st)
    fail_msg("%s %s of %d ranks, %s, count %zu: %s", weft_coll_kind_name(kind), weft_dtype_name(type), w->size, how,
             count, weft_status_text(st, false));
  check_and_free(&t, kind, w->size, type, reduction, how, lies);
}

static const weft_coll_kind kinds[] = {
  WEFT_BARRIER, WEFT_ALL_REDUCE, WEFT_REDUCE, WEFT_REDUCE_SCATTER, WEFT_BROADCAST, WEFT_ALL_GATHER, WEFT_ALL_GATHER_V,
  WEFT_GATHER, WEFT_GATHER_V, WEFT_SCATTER, WEFT_SCATTER_V, WEFT_ALL_TO_ALL, WEFT_ALL_TO_ALL_V,
  WEFT_RAGGED_ALL_TO_ALL, WEFT_PERMUTE,
};

static bool rooted(weft_coll_kind k)
{
  return k == WEFT_REDUCE || k == WEFT_BROADCAST || k == WEFT_GATHER || k == WEFT_GATHER_V || k == WEFT_SCATTER ||
         k == WEFT_SCATTER_V;
}
static bool reduces(weft_coll_kind k) { return k == WEFT_ALL_REDUCE || k == WEFT_REDUCE || k == WEFT_REDUCE_SCATTER; }

/* Whether the world's communicators move the data of such operations. */
static bool is_moved(weft_coll_kind kind, weft_dtype type, weft_reduction reduction)
{
#ifdef ON_GPUS
  return gpus_move(kind, type, reduces(kind) ? reduction : WEFT_REDUCE_NONE);
#else
  (void)kind, (void)type, (void)reduction;
  return true;
#endif
}

/* All kinds and algorithms with f32 and a few sizes. */
static void all_kinds(world *w, bool every_algorithm, const size_t *counts, size_t count_count)
{
  for (size_t k = 0; k < WEFT_COUNT(kinds); k++)
    for (int a = 0; is_moved(kinds[k], WEFT_F32, WEFT_SUM) && a < (every_algorithm ? COLL_ALGORITHM_COUNT : 1); a++) {
      coll_problem p = {.kind = kinds[k], .size = w->size, .bytes = 4, .elem_bytes = 4};
      if (a && !coll_algorithm_applies((coll_algorithm)a, &p)) continue;
      world_force(w, (coll_algorithm)a);
      for (size_t c = 0; c < count_count; c++)
        for (int root = 0; root < (rooted(kinds[k]) ? WEFT_MIN(w->size, 3) : 1); root++)
          for (int lies = 0; lies < LAYOUT_COUNT; lies++)
            run_trial(w, kinds[k], WEFT_F32, WEFT_SUM, counts[c], root, (layout)lies,
                      coll_algorithm_name((coll_algorithm)a));
    }
  world_force(w, COLL_ALG_AUTO);
}

static bool has_reduction(weft_dtype t, weft_reduction r)
{
  if (t == WEFT_F8E8M0FNU) return r == WEFT_PRODUCT; /* only powers of two: no exact sums, no zero */
  if (r >= WEFT_AND) return weft_dtype_is_integer(t) || t == WEFT_PRED;
  return !(weft_dtype_is_complex(t) && r >= WEFT_MIN);
}

/* Every type with every reduction that it has; and every kind moves every type (with the values of a product). */
static void all_types(world *w)
{
  for (int t = WEFT_PRED; t <= WEFT_C128; t++)
    for (int r = WEFT_SUM; r <= WEFT_XOR; r++) {
      weft_dtype type = (weft_dtype)t;
      if (!has_reduction(type, (weft_reduction)r)) continue;
      for (size_t k = 0; k < WEFT_COUNT(kinds); k++)
        if ((reduces(kinds[k]) || r == WEFT_PRODUCT) && is_moved(kinds[k], type, (weft_reduction)r))
          run_trial(w, kinds[k], type, (weft_reduction)r, 131, 0, (layout)((t + r) % LAYOUT_COUNT), "types");
    }
}

static const size_t few_counts[] = {0, 1, 5, 1000};

TEST(devices_of_a_process)
{
  static const size_t counts[] = {0, 1, 5, 1000, 70001};
  for (int size = 1; size <= MOST_RANKS; size = size < 9 ? size + 1 : size + 7) {
    world w;
    world_open_devices(&w, size);
    all_kinds(&w, false, counts, WEFT_COUNT(counts) - (size > 3));
    if (size == 1 || size == 3 || size == 16) all_types(&w);
    world_close(&w);
  }
}

TEST(every_algorithm_between_devices)
{
  for (int size = 1; size <= 9; size++) {
    world w;
    world_open_devices(&w, size);
    all_kinds(&w, true, few_counts, WEFT_COUNT(few_counts));
    world_close(&w);
  }
}

/* ---- ranks that wait in every way at once ---- */

enum { MIXED_OPS = 400, MIXED_MOST = 4096, MIXED_AT_ONCE = 3 };

/* Of operation i, alike on all ranks: its kind, and elements of a block. */
static weft_coll_kind mixed_kind(int i)
{
  static const weft_coll_kind kinds[] = {WEFT_ALL_REDUCE, WEFT_BARRIER, WEFT_ALL_GATHER, WEFT_BROADCAST, WEFT_ALL_TO_ALL, WEFT_REDUCE_SCATTER};
  return kinds[i * 7 % 6];
}
static size_t mixed_count(int i, int size) { return i % 11 == 5 ? (size_t)(MIXED_MOST / size) : (size_t)(1 + i % 13); }

static int mixed_value(int i, int rank, size_t at) { return i * 1000 + rank * 100 + (int)at % 50; }

typedef struct mixed_rank {
  weft_comm *comm;
  unsigned seed;
  int wrong;
} mixed_rank;

static weft_coll_op mixed_op(const mixed_rank *m, int i, int *send, int *recv)
{
  int size = weft_comm_size(m->comm), rank = weft_comm_rank(m->comm);

  for (size_t k = 0; k < MIXED_MOST; k++) {
    send[k] = mixed_value(i, rank, k);
    recv[k] = -1;
  }
  return (weft_coll_op){.kind = mixed_kind(i),
                        .dtype = WEFT_S32,
                        .count = mixed_count(i, size),
                        .send = send,
                        .recv = recv,
                        .root = i % size,
                        .reduction = mixed_kind(i) == WEFT_ALL_REDUCE || mixed_kind(i) == WEFT_REDUCE_SCATTER
                                       ? WEFT_SUM
                                       : WEFT_REDUCE_NONE};
}

static int mixed_expected(int i, int size, int rank, size_t count, size_t at)
{
  int from = (int)(at / count), sum = 0;
  size_t k = at % count;

  switch (mixed_kind(i)) {
  case WEFT_BROADCAST: return mixed_value(i, i % size, at);
  case WEFT_ALL_GATHER: return mixed_value(i, from, k);
  case WEFT_ALL_TO_ALL: return mixed_value(i, from, count * (size_t)rank + k);
  default:
    for (int r = 0; r < size; r++)
      sum += mixed_value(i, r, mixed_kind(i) == WEFT_ALL_REDUCE ? at : count * (size_t)rank + at);
    return sum;
  }
}

static void mixed_check(mixed_rank *m, int i, const int *recv)
{
  int size = weft_comm_size(m->comm), rank = weft_comm_rank(m->comm);
  size_t count = mixed_count(i, size);
  bool blocks = mixed_kind(i) == WEFT_ALL_GATHER || mixed_kind(i) == WEFT_ALL_TO_ALL;

  if (mixed_kind(i) == WEFT_BARRIER) return;
  for (size_t k = 0; k < count * (size_t)(blocks ? size : 1); k++)
    m->wrong += recv[k] != mixed_expected(i, size, rank, count, k);
}

/* An operation started without an event. */
typedef struct started {
  weft_coll_waiter waiter;
  weft_status *status;
  atomic_bool done;
} started;

static void on_end(void *ctx, weft_status *error)
{
  started *s = ctx;

  s->status = error;
  atomic_store(&s->done, true);
}

static weft_status *start(weft_comm *comm, const weft_coll_op *ops, size_t count, int64_t poll_ns, started *s)
{
  static const atomic_int nothing_wanted;
  bool pending;

  *s = (started){.waiter = {.fn = on_end, .ctx = s}};
  WEFT_TRY(weft_coll_start(comm, ops, count, NULL, (weft_coll_patience){poll_ns, poll_ns ? &nothing_wanted : NULL},
                           &s->waiter, &pending));
  if (!pending) on_end(s, NULL);
  return NULL;
}

static weft_status *await_started(started *s)
{
  while (!atomic_load(&s->done)) usleep(10);
  return s->status;
}

/* Chooses at random: runs the operation; or posts or starts it and waits; or does so with several and waits for all of
 * them. Begins late, or at once. */
static void *run_mixed(void *arg)
{
  enum { SEVERAL = 1, POSTS = 2, STARTS = 4, RUNS };
  mixed_rank *m = arg;
  started starts[MIXED_AT_ONCE];
  static _Thread_local int send[MIXED_AT_ONCE][MIXED_MOST], recv[MIXED_AT_ONCE][MIXED_MOST];

  for (int i = 0; i < MIXED_OPS;) {
    int how = (int)(rand_r(&m->seed) % 10), n = how <= SEVERAL ? WEFT_MIN((int)MIXED_AT_ONCE, MIXED_OPS - i) : 1;
    bool posts = how == SEVERAL || how == POSTS, starts_it = !posts && how <= STARTS;
    weft_event *events[MIXED_AT_ONCE] = {NULL};
    weft_status *st = NULL;
    if (rand_r(&m->seed) % 16 == 0) usleep(rand_r(&m->seed) % 300);
    for (int k = 0; k < n && !st; k++) {
      weft_coll_op op = mixed_op(m, i + k, send[k], recv[k]);
      if (posts) st = weft_coll_post(m->comm, &op, NULL, &events[k]);
      else
        st = starts_it ? start(m->comm, &op, 1, how == STARTS ? 50000 : 0, &starts[k])
                       : weft_coll_run(m->comm, &op, NULL);
    }
    for (int k = 0; k < n; k++) {
      if (events[k] && !st) st = weft_coll_wait(m->comm, events[k]);
      weft_event_release(events[k]);
      if (starts_it && !st) st = await_started(&starts[k]);
      mixed_check(m, i + k, recv[k]);
    }
    m->wrong += st != NULL;
    weft_status_free(st);
    i += n;
  }
  return NULL;
}

TEST(devices_that_run_post_sleep_and_are_late_agree)
{
  for (int size = 1; size <= 5; size++) {
    world w;
    pthread_t threads[MOST_RANKS];
    mixed_rank ranks[MOST_RANKS];
    world_open_devices(&w, size);
    for (int r = 0; r < size; r++) {
      ranks[r] = (mixed_rank){w.comms[r], (unsigned)(size * 31 + r), 0};
      pthread_create(&threads[r], NULL, run_mixed, &ranks[r]);
    }
    for (int r = 0; r < size; r++) pthread_join(threads[r], NULL);
    for (int r = 0; r < size; r++) {
      weft_comm_lateness late[MOST_RANKS];
      weft_comm_stragglers(w.comms[r], late);
      T_EQ_INT(ranks[r].wrong, 0);
      T_EQ_INT(coll_comm_posted(w.comms[r]), MIXED_OPS);
      T_EQ_INT(w.comms[r]->ended_seq, MIXED_OPS);
    }
    char *text = weft_coll_flight_text();
    T_TRUE(text && strstr(text, "400 collectives posted, 400 ended"));
    free(text);
    world_close(&w);
  }
}

typedef struct cut_short {
  weft_comm *comm;
  int most; /* the number of operations after which the rank destroys its communicator */
  weft_code code;
  bool starts;
} cut_short;

static void *run_until_cut(void *arg)
{
  cut_short *c = arg;
  int x[16] = {0}, y[16];
  weft_coll_op op = {.kind = WEFT_ALL_REDUCE, .dtype = WEFT_S32, .reduction = WEFT_SUM, .count = 16, .send = x, .recv = y};

  for (int i = 0; i < c->most && !c->code; i++) {
    started s;
    weft_status *st = c->starts ? start(c->comm, &op, 1, 20000, &s) : weft_coll_run(c->comm, &op, NULL);
    if (c->starts && !st) st = await_started(&s);
    c->code = weft_status_code(st);
    weft_status_free(st);
  }
  weft_comm_destroy(c->comm);
  return NULL;
}

TEST(devices_hear_of_an_abort_or_of_one_that_leaves_in_the_middle_of_small_operations)
{
  for (int trial = 0; trial < 60; trial++) {
    int size = 2 + trial % 3;
    bool aborts = trial % 2;
    world w;
    pthread_t threads[MOST_RANKS];
    cut_short cuts[MOST_RANKS];
    world_open_devices(&w, size + 1); /* the last takes part by posting, and aborts or leaves */
    for (int r = 0; r < size; r++) {
      cuts[r] = (cut_short){w.comms[r], 1 << 30, WEFT_OK, (trial + r) % 4 < 2};
      pthread_create(&threads[r], NULL, run_until_cut, &cuts[r]);
    }
    cut_short last = {w.comms[size], aborts ? 1 << 30 : 10 + trial, WEFT_OK, trial % 8 < 4};
    pthread_t thread;
    pthread_create(&thread, NULL, run_until_cut, &last);
    usleep((useconds_t)(trial * 20));
    if (aborts) weft_comm_abort(coll_comm_retain(w.comms[size]), NULL);
    for (int r = 0; r < size; r++) pthread_join(threads[r], NULL);
    pthread_join(thread, NULL);
    if (aborts) coll_comm_release(w.comms[size]);
    for (int r = 0; r < size; r++) T_EQ_INT(cuts[r].code, aborts ? WEFT_ABORTED : WEFT_FAILED_PRECONDITION);
    T_TRUE(aborts ? last.code == WEFT_ABORTED || last.code == WEFT_FAILED_PRECONDITION : last.code == WEFT_OK);
  }
}

TEST(processes)
{
  static const int sizes[] = {1, 2, 3, 4, 5, 7, 8, 16};
  for (size_t i = 0; i < WEFT_COUNT(sizes); i++) {
    world w;
    world_open_processes(&w, sizes[i], NULL);
    all_kinds(&w, sizes[i] != 4 && sizes[i] != 16, few_counts, sizes[i] > 5 ? 3 : 4);
    if (sizes[i] == 3) all_types(&w);
    world_close(&w);
  }
}

TEST(large_messages_between_processes)
{
  static const size_t counts[] = {300007};
  world w;
  world_open_processes(&w, 3, NULL);
  all_kinds(&w, false, counts, 1);
  world_close(&w);
}

static void multiply_and_add(void *ctx, void *acc, const void *in, size_t count)
{
  uint32_t *a = acc;
  const uint32_t *b = in;
  (void)ctx;
  for (size_t i = 0; i < count; i++)
    a[i] = a[i] * 31 + b[i]; /* neither commutative nor associative: a left fold or wrong */
}

TEST(a_custom_reducer_folds_in_rank_order_everywhere)
{
  weft_reducer reducer = {.fn = multiply_and_add, .id = 7};
  for (int kind = 0; kind < 2; kind++)
    for (int size = 2; size <= 5; size++) {
      world w;
      if (kind) world_open_processes(&w, size, NULL);
      else world_open_devices(&w, size);
      for (size_t count = 1; count < 6000; count += 2999) {
        uint32_t *in = malloc(count * 4 * (size_t)size), *out = malloc(count * 4 * (size_t)size);
        weft_coll_op ops[MOST_RANKS];
        for (int r = 0; r < size; r++) {
          for (size_t i = 0; i < count; i++) in[(size_t)r * count + i] = (uint32_t)(r * 17 + (int)i);
          ops[r] = (weft_coll_op){.kind = WEFT_ALL_REDUCE,
                                  .dtype = WEFT_U32,
                                  .reduction = WEFT_CUSTOM,
                                  .reducer = &reducer,
                                  .count = count,
                                  .send = in + (size_t)r * count,
                                  .recv = out + (size_t)r * count};
        }
        T_OK(world_run(&w, ops, NULL));
        for (int r = 0; r < size; r++)
          for (size_t i = 0; i < count; i++) {
            uint32_t want = (uint32_t)i;
            for (int o = 1; o < size; o++) want = want * 31 + (uint32_t)(o * 17 + (int)i);
            T_EQ_INT(out[(size_t)r * count + i], want);
          }
        free(in);
        free(out);
      }
      world_close(&w);
    }
}

/* Numbers whose sum depends on the order. */
static float rough(int rank, size_t i)
{
  return (float)(1.0 / (3.0 + rank * 7.0 + (double)i)) * (rank % 2 ? -1e3f : 1.0f);
}

TEST(rank_order_gives_the_same_bits_everywhere)
{
  enum { SIZE = 5, COUNT = 5001 };
  static float in[SIZE][COUNT], out[SIZE][COUNT], want[COUNT];
  weft_coll_op ops[MOST_RANKS];
  weft_comm_spec ordered = {.order = WEFT_ORDER_RANK};

  for (int r = 0; r < SIZE; r++)
    for (size_t i = 0; i < COUNT; i++) in[r][i] = rough(r, i);
  for (size_t i = 0; i < COUNT; i++) {
    volatile float acc = in[0][i];
    for (int r = 1; r < SIZE; r++) acc = acc + in[r][i];
    want[i] = acc;
  }
  for (int how = 0; how < 4; how++)
    for (size_t count = 3; count <= COUNT; count += 4998) {
      world w;
      if (how < 2) world_open_devices(&w, SIZE);
      else world_open_processes(&w, SIZE, &ordered);
      for (int r = 0; r < SIZE; r++) w.comms[r]->group->rank_order = true;
      if (how % 2) world_force(&w, how == 1 ? COLL_ALG_DIRECT : COLL_ALG_GATHER_FOLD);
      for (int r = 0; r < SIZE; r++)
        ops[r] = (weft_coll_op){.kind = WEFT_ALL_REDUCE,
                                .dtype = WEFT_F32,
                                .reduction = WEFT_SUM,
                                .count = count,
                                .send = in[r],
                                .recv = out[r]};
      T_OK(world_run(&w, ops, NULL));
      for (int r = 0; r < SIZE; r++) assert_memory_equal(out[r], want, count * sizeof(float));
      world_close(&w);
    }
}

TEST(nan_is_contagious_and_minus_zero_is_less)
{
  float a[3] = {0.0f / 0.0f, -0.0f, 5}, b[3] = {1, 0.0f, 0.0f / 0.0f}, x[3], y[3];
  for (int how = 0; how < 2; how++) {
    world w;
    if (how) world_open_processes(&w, 2, NULL);
    else world_open_devices(&w, 2);
    for (int max = 0; max < 2; max++) {
      weft_coll_op op = {.kind = WEFT_ALL_REDUCE, .dtype = WEFT_F32, .reduction = max ? WEFT_MAX : WEFT_MIN, .count = 3};
      weft_coll_op ops[2] = {op, op};
      ops[0].send = a;
      ops[0].recv = x;
      ops[1].send = b;
      ops[1].recv = y;
      T_OK(world_run(&w, ops, NULL));
      T_TRUE(x[0] != x[0] && x[2] != x[2] && y[0] != y[0] && y[2] != y[2]);
      T_EQ_INT(__builtin_signbit(x[1]) != 0, !max);
      T_EQ_INT(__builtin_signbit(y[1]) != 0, !max);
    }
    world_close(&w);
  }
}

static void check_ragged_rows(bool processes)
{
  enum { SIZE = 3, U = 2, ROW = 2, ROWS = 40 };
  static int32_t in[SIZE][ROWS * ROW], out[SIZE][ROWS * ROW], want[SIZE][ROWS * ROW];
  static int64_t in_at[SIZE][SIZE * U], sizes[SIZE][SIZE * U], out_at[SIZE][SIZE * U], comes[SIZE][SIZE * U];
  weft_coll_ragged ragged[SIZE];
  weft_coll_op ops[MOST_RANKS];
  world w;
  if (processes) world_open_processes(&w, SIZE, NULL);
  else world_open_devices(&w, SIZE);
  for (int r = 0; r < SIZE; r++)
    for (int i = 0; i < ROWS * ROW; i++) {
      in[r][i] = r * 1000 + i;
      out[r][i] = want[r][i] = -1 - r;
    }
  for (int s = 0; s < SIZE; s++)
    for (int d = 0; d < SIZE; d++)
      for (int u = 0; u < U; u++) {
        int k = d * U + u;
        in_at[s][k] = d * 5 + u * 3;
        sizes[s][k] = (s + d + u) % 4;
        out_at[s][k] = s * 10 + u * 5;
        comes[d][s * U + u] = sizes[s][k];
        for (int64_t i = 0; i < sizes[s][k] * ROW; i++) want[d][out_at[s][k] * ROW + i] = in[s][in_at[s][k] * ROW + i];
      }
  for (int r = 0; r < SIZE; r++) {
    ragged[r] = (weft_coll_ragged){in_at[r], sizes[r], out_at[r], comes[r], U, ROW, ROWS, ROWS};
    ops[r] = (weft_coll_op){
      .kind = WEFT_RAGGED_ALL_TO_ALL, .dtype = WEFT_S32, .send = in[r], .recv = out[r], .ragged = &ragged[r]};
  }
  T_OK(world_run(&w, ops, NULL));
  assert_memory_equal(out, want, sizeof out);
  comes[1][0] += 1; /* a receiver that expects another size: an error that says so, not a hang */
  T_FAILS(world_run(&w, ops, NULL), "recv_sizes");
  world_close(&w);
}

TEST(ragged_rows_go_where_they_are_sent)
{
  check_ragged_rows(false);
  check_ragged_rows(true);
}

TEST(tagged_messages_in_any_order_and_from_anybody)
{
  for (int how = 0; how < 2; how++) {
    enum { SIZE = 3 };
    world w;
    weft_event *events[16];
    int n = 0;
    static int32_t big[100000], got_big[100000];
    int32_t a = 11, b = 22, c = 33, x = 0, y = 0, z = 0;
    if (how) world_open_processes(&w, SIZE, NULL);
    else world_open_devices(&w, SIZE);
    for (int i = 0; i < 100000; i++) big[i] = i;
    weft_coll_op send = {.kind = WEFT_SEND, .dtype = WEFT_S32, .count = 1}, recv = {.kind = WEFT_RECV, .dtype = WEFT_S32, .count = 1};
#define POST(rank, base, p, t, buffer, elems)                                               \
  do {                                                                                      \
    weft_coll_op op_ = base;                                                                \
    op_.peer = p;                                                                           \
    op_.tag = t;                                                                            \
    op_.count = elems;                                                                      \
    op_.send = buffer;                                                                      \
    op_.recv = buffer;                                                                      \
    T_OK(weft_coll_post(w.comms[rank], &op_, NULL, &events[n++]));                          \
  } while (0)
    POST(0, send, 1, 5, &a, 1);
    POST(0, send, 1, 6, &b, 1);
    POST(1, recv, 0, 6, &y, 1); /* the second first */
    POST(1, recv, 0, 5, &x, 1);
    POST(2, send, 1, 9, &c, 1); /* upwards and downwards */
    POST(1, recv, -1, 9, &z, 1);
    POST(2, send, 0, 1, big, 100000);
    POST(0, recv, -1, 1, got_big, 100000);
    for (int i = 0; i < n; i++) {
      T_OK(weft_coll_wait(w.comms[0], events[i]));
      weft_event_release(events[i]);
    }
    T_EQ_INT(x, 11);
    T_EQ_INT(y, 22);
    T_EQ_INT(z, 33);
    assert_memory_equal(big, got_big, sizeof big);
    world_close(&w);
  }
}

TEST(a_group_of_operations_ends_together)
{
  enum { SIZE = 3, N = 5 };
  for (int how = 0; how < 2; how++) {
    world w;
    weft_event *events[SIZE];
    static float in[SIZE][N][10], out[SIZE][N][10];
    if (how) world_open_processes(&w, SIZE, NULL);
    else world_open_devices(&w, SIZE);
    for (int r = 0; r < SIZE; r++) {
      weft_coll_op ops[N];
      for (int k = 0; k < N; k++) {
        for (int i = 0; i < 10; i++) in[r][k][i] = (float)(r + k * i);
        ops[k] = (weft_coll_op){.kind = k == 3 ? WEFT_BROADCAST : WEFT_ALL_REDUCE,
                                .dtype = WEFT_F32,
                                .reduction = k == 3 ? WEFT_REDUCE_NONE : WEFT_SUM,
                                .count = (size_t)(10 - k),
                                .root = 1,
                                .send = in[r][k],
                                .recv = out[r][k]};
      }
      T_OK(weft_coll_post_group(w.comms[r], ops, N, NULL, &events[r]));
    }
    for (int r = 0; r < SIZE; r++) {
      T_OK(weft_coll_wait(w.comms[r], events[r]));
      weft_event_release(events[r]);
      for (int k = 0; k < N; k++)
        for (int i = 0; i < 10 - k; i++) T_TRUE(out[r][k][i] == (k == 3 ? (float)(1 + 3 * i) : (float)(3 + 3 * k * i)));
    }
    world_close(&w);
  }
}

TEST(gathers_and_scatters_of_a_group_travel_together)
{
  enum { N = 4, MOST = 7 };
  static const size_t counts[N] = {3, 0, MOST, 1};
  for (int how = 0; how < 2; how++)
    for (int size = 1; size <= 5; size++)
      for (int scatters = 0; scatters < 2; scatters++) {
        world w;
        weft_event *events[MOST_RANKS];
        static int32_t in[MOST_RANKS][N][MOST_RANKS * MOST], out[MOST_RANKS][N][MOST_RANKS * MOST];
        if (how) world_open_processes(&w, size, NULL);
        else world_open_devices(&w, size);
        for (int r = 0; r < size; r++) {
          weft_coll_op ops[N];
          for (int k = 0; k < N; k++) {
            for (int i = 0; i < MOST_RANKS * MOST; i++) {
              in[r][k][i] = 1000 * (r + 1) + 100 * k + i;
              out[r][k][i] = -1;
            }
            ops[k] = (weft_coll_op){.kind = scatters ? WEFT_REDUCE_SCATTER : WEFT_ALL_GATHER,
                                    .dtype = WEFT_S32,
                                    .count = counts[k],
                                    .reduction = scatters ? WEFT_SUM : WEFT_REDUCE_NONE,
                                    .send = in[r][k],
                                    .recv = out[r][k]};
          }
          uint64_t before = coll_comm_posted(w.comms[r]);
          T_OK(weft_coll_post_group(w.comms[r], ops, N, NULL, &events[r]));
          T_EQ_INT(coll_comm_posted(w.comms[r]) - before, 1);
        }
        for (int r = 0; r < size; r++) {
          T_OK(weft_coll_wait(w.comms[r], events[r]));
          weft_event_release(events[r]);
          for (int k = 0; k < N; k++) {
            int n = (int)counts[k], elems = scatters ? n : n * size;
            for (int i = 0; i < elems; i++)
              T_EQ_INT(out[r][k][i], scatters ? 1000 * size * (size + 1) / 2 + size * (100 * k + r * n + i)
                                              : 1000 * (i / n + 1) + 100 * k + i % n);
            T_EQ_INT(out[r][k][elems], -1);
          }
        }
        world_close(&w);
      }
}

/* Every third group is of two kinds and does not fit one message. */
static void *run_started(void *arg)
{
  enum { ROUNDS = 120, N = 3 };
  mixed_rank *m = arg;
  int size = weft_comm_size(m->comm), rank = weft_comm_rank(m->comm);

  for (int i = 0; i < ROUNDS; i++) {
    int32_t in[N][4], out[N][4];
    weft_coll_op ops[N];
    started s;
    for (int k = 0; k < N; k++) {
      bool spread = i % 3 == 0 && k == 1;
      for (int e = 0; e < 4; e++) in[k][e] = i + 10 * k + rank * e;
      ops[k] = (weft_coll_op){.kind = spread ? WEFT_BROADCAST : WEFT_ALL_REDUCE,
                              .dtype = WEFT_S32,
                              .reduction = spread ? WEFT_REDUCE_NONE : WEFT_SUM,
                              .count = (size_t)(4 - k),
                              .send = in[k],
                              .recv = out[k]};
    }
    weft_status *st = start(m->comm, ops, N, (i + rank) % 2 ? 50000 : 0, &s);
    if (!st) st = await_started(&s);
    m->wrong += st != NULL;
    weft_status_free(st);
    for (int k = 0; k < N; k++)
      for (int e = 0; e < 4 - k; e++)
        m->wrong += out[k][e] !=
                    (ops[k].kind == WEFT_BROADCAST ? i + 10 * k : size * (i + 10 * k) + size * (size - 1) / 2 * e);
  }
  return NULL;
}

TEST(started_groups_end_with_or_without_a_call)
{
  for (int how = 0; how < 2; how++)
    for (int size = 1; size <= 3; size++) {
      world w;
      pthread_t threads[MOST_RANKS];
      mixed_rank ranks[MOST_RANKS];
      if (how) world_open_processes(&w, size, NULL);
      else world_open_devices(&w, size);
      for (int r = 0; r < size; r++) {
        ranks[r] = (mixed_rank){w.comms[r], 0, 0};
        pthread_create(&threads[r], NULL, run_started, &ranks[r]);
      }
      for (int r = 0; r < size; r++) {
        pthread_join(threads[r], NULL);
        T_EQ_INT(ranks[r].wrong, 0);
      }
      world_close(&w);
    }
}

TEST(groups_cut_in_other_places_are_told_apart)
{
  world w;
  weft_event *events[2];
  float in[2][10] = {{0}}, out[2][10];

  world_open_processes(&w, 2, NULL);
  for (int r = 0; r < 2; r++) {
    weft_coll_op op = {.kind = WEFT_ALL_REDUCE, .dtype = WEFT_F32, .reduction = WEFT_SUM, .count = 4, .send = in[r], .recv = out[r]};
    weft_coll_op ops[2] = {op, op};
    ops[0].count += (size_t)r;
    ops[1].count -= (size_t)r;
    T_OK(weft_coll_post_group(w.comms[r], ops, 2, NULL, &events[r]));
  }
  for (int r = 0; r < 2; r++) {
    T_CODE(weft_coll_wait(w.comms[r], events[r]), WEFT_FAILED_PRECONDITION);
    weft_event_release(events[r]);
  }
  world_close(&w);
}

TEST(the_recorder_of_another_process_can_be_asked_for)
{
  world w;
  weft_comm_spec base = {.incarnation = 77};
  WEFT_AUTO_STR address = NULL;
  char *text = NULL;
  size_t bytes, length;

  world_open_processes(&w, 2, &base);
  weft_coll_call call = {.site = {.instruction = "all-reduce.5"}};
  float x[2] = {1, 2}, y[2];
  weft_coll_op ops[2] = {{.kind = WEFT_ALL_REDUCE, .dtype = WEFT_F32, .reduction = WEFT_SUM, .count = 1, .send = &x[0], .recv = &y[0]},
                         {.kind = WEFT_ALL_REDUCE, .dtype = WEFT_F32, .reduction = WEFT_SUM, .count = 1, .send = &x[1], .recv = &y[1]}};
  T_OK(world_run(&w, ops, &call));
  T_OK(weft_kv_get(w.kv, COLL_FLIGHT_KEYS "/77", weft_deadline_after_ms(1000), &address, &bytes));
  FILE *out = open_memstream(&text, &length);
  T_OK(coll_flight_ask(address, bytes, weft_deadline_after_ms(5000), out));
  fflush(out);
  if (!strstr(text, "all-reduce.5")) fail_msg("%s", text);
  T_CODE(coll_flight_ask("nonsense", 8, weft_deadline_after_ms(1000), out), WEFT_INVALID_ARGUMENT);
  world_close(&w);
  T_CODE(coll_flight_ask(address, bytes, weft_deadline_after_ms(1000), out), WEFT_UNAVAILABLE);
  fclose(out);
  free(text);
}

static int count_lines(const char *text)
{
  int lines = 0;
  for (; *text; text++) lines += *text == '\n';
  return lines;
}

TEST(a_dump_says_first_what_is_pending_and_fits_a_screen)
{
  enum { RUNS = 40 };
  world w;
  weft_coll_op ops[2] = {{.kind = WEFT_BARRIER}, {.kind = WEFT_BARRIER}};
  weft_coll_call call = {.site = {.instruction = "all-reduce.7"}};
  weft_event *event;
  char *text = NULL;
  size_t length;

  world_open_processes(&w, 2, NULL);
  for (int i = 0; i < RUNS; i++) T_OK(world_run(&w, ops, NULL));
  T_OK(weft_coll_post(w.comms[0], &ops[0], &call, &event));
  FILE *out = open_memstream(&text, &length);
  coll_flight_dump(out);
  fclose(out);
  const char *second = strchr(text, '\n'), *pending = strstr(text, "in barrier \"all-reduce.7\"");
  if (!strstr(text, "2 communicators, 1 operations pending\n  for ") || !pending ||
      pending > strchr(second + 1, '\n') || !strstr(text, " older\n"))
    fail_msg("%s", text);
  T_TRUE(count_lines(text) < 30);
  free(text);
  text = weft_coll_flight_text();
  T_TRUE(count_lines(text) > 2 * RUNS);
  free(text);
  T_OK(weft_coll_run(w.comms[1], &ops[1], &call));
  T_OK(weft_coll_wait(w.comms[0], event));
  weft_event_release(event);
  world_close(&w);
}

TEST(split_makes_communicators_of_colors)
{
  enum { SIZE = 6 };
  world w;
  weft_comm *parts[SIZE] = {NULL};
  int colors[SIZE] = {0, 1, 0, 1, -1, 1}, keys[SIZE] = {5, 0, 1, 0, 0, -3};

  world_open_devices(&w, SIZE);
  T_OK(weft_comm_split(w.comms, SIZE, colors, keys, weft_deadline_after_ms(5000), parts));
  T_TRUE(parts[4] == NULL);
  T_EQ_INT(weft_comm_size(parts[0]), 2);
  T_EQ_INT(weft_comm_rank(parts[0]), 1); /* key 5 after key 1 */
  T_EQ_INT(weft_comm_rank(parts[2]), 0);
  T_EQ_INT(weft_comm_size(parts[5]), 3);
  T_EQ_INT(weft_comm_rank(parts[5]), 0);
  world odd = {.size = 3, .comms = {parts[5], parts[1], parts[3]}};
  run_trial(&odd, WEFT_ALL_REDUCE, WEFT_S32, WEFT_SUM, 10, 0, APART, "split");
  world_close(&odd);
  weft_comm_destroy(parts[0]);
  weft_comm_destroy(parts[2]);
  world_close(&w);
}

/* Two "processes" of two ranks each. The first part of each split ends while its connections are being made. */
typedef struct half {
  weft_comm_spec spec;
  int ranks[2];
  weft_comm *comms[2];
  weft_status *st;
} half;

static void *create_half(void *arg)
{
  half *h = arg;

  h->spec.ranks = h->ranks;
  h->st = weft_comm_create(&h->spec, h->comms);
  return NULL;
}

static void *split_and_leave(void *arg)
{
  half *h = arg;
  const int colors[2] = {0, 0};

  for (int i = 0; i < 30 && !h->st; i++) {
    weft_comm *parts[2];
    h->st = weft_comm_split(h->comms, 2, colors, NULL, weft_deadline_after_ms(20000), parts);
    if (h->st) break;
    weft_comm_destroy(parts[0]);
    usleep(200 * (unsigned)i);
    weft_comm_destroy(parts[1]);
  }
  return NULL;
}

TEST(a_part_may_leave_while_its_connections_are_made)
{
  weft_kv *kv;
  half halves[2];
  pthread_t threads[2];

  T_OK(weft_kv_local_new(&kv));
  for (int i = 0; i < 2; i++)
    halves[i] = (half){.spec = {.kv = kv, .name = "halves", .size = 4, .rank_count = 2}, .ranks = {2 * i, 2 * i + 1}};
  void *(*const steps[])(void *) = {create_half, split_and_leave};
  for (size_t step = 0; step < WEFT_COUNT(steps); step++) {
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, steps[step], &halves[i]);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++) T_OK(halves[i].st);
  }
  for (int i = 0; i < 4; i++) weft_comm_destroy(halves[i / 2].comms[i % 2]);
  weft_kv_destroy(kv);
}

TEST(arguments_that_make_no_sense_are_refused)
{
  world w;
  float x[4];
  weft_event *event;
  static const struct { weft_coll_op op; const char *says; } cases[] = {
    {{.kind = WEFT_ALL_REDUCE, .dtype = WEFT_C64, .reduction = WEFT_MIN, .count = 1}, "no reduction \"min\" of c64"},
    {{.kind = WEFT_ALL_REDUCE, .dtype = WEFT_F32, .reduction = WEFT_AND, .count = 1}, "no reduction \"and\" of f32"},
    {{.kind = WEFT_ALL_REDUCE, .dtype = WEFT_F32, .reduction = WEFT_SUM, .count = 1}, "without a send buffer"},
    {{.kind = WEFT_ALL_REDUCE, .dtype = WEFT_F32, .reduction = WEFT_SUM, .count = SIZE_MAX / 2}, "more than 2^63 bytes"},
    {{.kind = WEFT_ALL_REDUCE, .dtype = WEFT_TUPLE, .reduction = WEFT_SUM, .count = 1}, "of tuple"},
    {{.kind = WEFT_BROADCAST, .dtype = WEFT_F32, .count = 1, .root = 2}, "root 2 of 2"},
    {{.kind = WEFT_SEND, .dtype = WEFT_F32, .count = 1, .peer = -1}, "peer -1"},
    {{.kind = (weft_coll_kind)99}, "no operation 99"},
    {{.kind = WEFT_ALL_GATHER_V, .dtype = WEFT_F32}, "needs recv_counts"},
    {{.kind = WEFT_PERMUTE, .dtype = WEFT_F32, .source = 0, .target = 1, .count = 0}, "its own source"},
  };
  (void)x;
  world_open_devices(&w, 2);
  for (size_t i = 0; i < WEFT_COUNT(cases); i++)
    T_FAILS(weft_coll_post(w.comms[0], &cases[i].op, NULL, &event), cases[i].says);
  run_trial(&w, WEFT_ALL_REDUCE, WEFT_F32, WEFT_SUM, 4, 0, APART, "after refusals");
  world_close(&w);
}

/* Any process that can reach the socket can write to it; no input may do harm. */
TEST(strangers_at_the_door_do_no_harm)
{
  world w;
  unsigned seed = 12345;
  world_open_processes(&w, 2, NULL);
  const coll_address *to = &w.comms[0]->group->addresses[1];
  for (int i = 0; i < 200; i++) {
    int fd;
    char bytes[600];
    T_OK(coll_dial(to, i % 2, &fd));
    usleep(i % 2 ? 0 : 1000);
    for (size_t k = 0; k < sizeof bytes; k++) bytes[k] = (char)(seed = seed * 1103515245 + 12345) >> 3;
    if (i % 4 == 1) { /* a greeting with a good head and wild contents */
      coll_frame frame = {COLL_FRAME_HELLO, sizeof(coll_hello)};
      memcpy(bytes, &frame, sizeof frame);
      if (i % 8 == 1) memcpy(bytes + sizeof frame, &w.comms[1]->group->id, 8);
    } else if (i % 4 == 3) {
      coll_frame frame = {COLL_FRAME_QUERY, sizeof(coll_query)};
      memcpy(bytes, &frame, sizeof frame);
    }
    ssize_t written = write(fd, bytes, i % 3 ? sizeof bytes : (size_t)(i % 13));
    (void)written;
    if (i % 5) close(fd); /* some stay open */
  }
  run_trial(&w, WEFT_ALL_REDUCE, WEFT_F32, WEFT_SUM, 1000, 0, APART, "with strangers about");
  world_close(&w);
}

#ifdef ON_GPUS
/* ---- devices of the emulated GPU platform ---- */

/* The split of one rank, in a thread of its own: as if in a process of its own. */
typedef struct lone_split {
  weft_comm *comm, *part;
  int color, key, timeout_ms;
  weft_status *st;
} lone_split;

static void *split_alone(void *arg)
{
  lone_split *s = arg;

  s->st = weft_comm_split(&s->comm, 1, &s->color, &s->key, weft_deadline_after_ms(20000), &s->part);
  return NULL;
}

static void *split_in_time(void *arg)
{
  lone_split *s = arg;

  s->st = weft_comm_split(&s->comm, 1, &s->color, &s->key, weft_deadline_after_ms(s->timeout_ms), &s->part);
  return NULL;
}

/* Splits a world by `colors`; parts[r] is what rank r gets. */
static weft_status *split_world(world *w, bool processes, const int *colors, const int *keys, weft_comm **parts)
{
  pthread_t threads[MOST_RANKS];
  lone_split splits[MOST_RANKS];
  weft_status *st = NULL;

  if (!processes) return weft_comm_split(w->comms, w->size, colors, keys, weft_deadline_after_ms(20000), parts);
  for (int r = 0; r < w->size; r++) {
    splits[r] = (lone_split){.comm = w->comms[r], .color = colors[r], .key = keys[r]};
    pthread_create(&threads[r], NULL, split_alone, &splits[r]);
  }
  for (int r = 0; r < w->size; r++) {
    pthread_join(threads[r], NULL);
    parts[r] = splits[r].part;
    if (!st || weft_status_code(st) == WEFT_ABORTED) {
      weft_status_free(st);
      st = splits[r].st;
    } else {
      weft_status_free(splits[r].st);
    }
  }
  return st;
}

/* Runs all kinds on a part. */
static void check_part(world *w, bool processes, weft_comm **parts, int color, const int *colors)
{
  static const size_t counts[] = {5, 3000};
  world part = {.kv = processes ? w->kv : NULL};

  for (int r = 0; r < w->size; r++)
    if (colors[r] == color) part.size++;
  for (int r = 0; r < w->size; r++)
    if (colors[r] == color) part.comms[weft_comm_rank(parts[r])] = parts[r];
  for (int r = 0; r < part.size; r++) T_EQ_INT(weft_comm_size(part.comms[r]), part.size);
  all_kinds(&part, false, counts, WEFT_COUNT(counts));
  for (int r = 0; r < part.size; r++) weft_comm_destroy(part.comms[r]);
}

/* Colors of three ranks in another order, of one rank and of the rest; the parent works before, between and after. */
static void check_split(bool processes, int size)
{
  static const size_t counts[] = {100};
  world w;
  int colors[MOST_RANKS], keys[MOST_RANKS];
  weft_comm *parts[MOST_RANKS];

  if (processes) world_open_processes(&w, size, NULL);
  else world_open_devices(&w, size);
  for (int round = 0; round < 2; round++) {
    for (int r = 0; r < size; r++) {
      colors[r] = r == 1 ? 7 : r % 2 == 0 ? 0 : round ? -1 : 3;
      keys[r] = round ? r : -r;
    }
    all_kinds(&w, false, counts, 1);
    T_OK(split_world(&w, processes, colors, keys, parts));
    for (int r = 0; r < size; r++) T_EQ_INT(parts[r] == NULL, colors[r] < 0);
    check_part(&w, processes, parts, 0, colors);
    all_kinds(&w, false, counts, 1);
    check_part(&w, processes, parts, 7, colors);
    check_part(&w, processes, parts, 3, colors);
  }
  world_close(&w);
}

TEST(gpus_are_split_between_peers)
{
  gpus_use("peers");
  check_split(false, GPUS);
  gpus_close();
}
TEST(gpus_are_split_by_nccl)
{
  gpus_use("nccl");
  check_split(false, GPUS);
  check_split(true, 4);
  gpus_close();
}
TEST(gpus_are_split_by_what_suits_the_size)
{
  gpus_use("auto");
  check_split(false, 4);
  gpus_close();
}
/* The library answers later than at once. */
TEST(gpus_are_split_by_a_library_that_takes_its_time)
{
  gpus_use("nccl");
  setenv("WEFT_EMU_NCCL", "polls:4", 1);
  check_split(true, 3);
  unsetenv("WEFT_EMU_NCCL");
  gpus_close();
}

/* A call fails on one rank, or does not return, or one rank does not call: an error in time everywhere, and a new
 * communicator works.  False: everywhere an error, and nowhere the expected one. */
static bool fails_to_split(bool processes, const char *fault, int absent, weft_code code, const char *says)
{
  enum { SIZE = 3 };
  static void (*reset)(void);
  static const int colors[SIZE] = {0, 0, 0}, keys[SIZE] = {0, 0, 0};
  static const size_t counts[] = {100};
  world w, next;
  lone_split splits[SIZE];
  pthread_t threads[SIZE];
  weft_status *ends[SIZE] = {NULL};
  weft_comm *parts[SIZE] = {NULL};
  bool said = false;
  /* A call of the library that fails does so at once. Of processes, one that has no stream does not call the library,
   * and the others wait for it until their deadline. */
  int timeout_ms = code == WEFT_DEADLINE_EXCEEDED ? 2000 : processes && code == WEFT_RESOURCE_EXHAUSTED ? 5000 : 60000;

  if (processes) world_open_processes(&w, SIZE, NULL);
  else world_open_devices(&w, SIZE);
  *(void **)&reset = emulated_symbol("libcuda.so.1", "weft_emu_reset");
  if (fault) setenv("WEFT_EMU_FAULTS", fault, 1);
  reset();
  int64_t began_ns = weft_now_ns();
  if (!processes) ends[0] = weft_comm_split(w.comms, SIZE, colors, keys, weft_deadline_after_ms(timeout_ms), parts);
  for (int r = 0; r < SIZE && processes; r++) {
    splits[r] = (lone_split){.comm = w.comms[r], .timeout_ms = timeout_ms};
    if (r != absent) pthread_create(&threads[r], NULL, split_in_time, &splits[r]);
  }
  for (int r = 0; r < SIZE && processes; r++) {
    if (r == absent) continue;
    pthread_join(threads[r], NULL);
    ends[r] = splits[r].st;
    parts[r] = splits[r].part;
  }
  int64_t took_ms = (weft_now_ns() - began_ns) / WEFT_NS_PER_MS;
  unsetenv("WEFT_EMU_FAULTS");
  reset();
  for (int r = 0; r < (processes ? SIZE : 1); r++) {
    if (r == absent) continue;
    if (!ends[r] || parts[r]) fail_msg("%s: rank %d is in a part", fault ? fault : "absent", r);
    said |= weft_status_code(ends[r]) == code && strstr(weft_status_text(ends[r], true), says);
  }
  if (!said) printf("# %s: %s\n", fault ? fault : "absent", weft_status_text(ends[0], true));
  for (int r = 0; r < SIZE; r++) weft_status_free(ends[r]);
  if (took_ms > timeout_ms + 1000 + 8000) fail_msg("%s: %lld ms", fault ? fault : "absent", (long long)took_ms);
  world_close(&w);
  if (processes) world_open_processes(&next, SIZE, NULL);
  else world_open_devices(&next, SIZE);
  all_kinds(&next, false, counts, 1);
  world_close(&next);
  return said;
}

/* On a busy machine the ranks may miss the deadline before the division has come to the fault. */
static void fail_to_split(bool processes, const char *fault, int absent, weft_code code, const char *says)
{
  int tries = 0;

  while (tries < 4 && !fails_to_split(processes, fault, absent, code, says)) tries++;
  if (tries == 4) fail_msg("%s: no rank says \"%s\"", fault ? fault : "absent", says);
}

TEST(a_split_that_fails_ends_in_time)
{
  for (int processes = 0; processes < 2; processes++) {
    gpus_use("nccl");
    fail_to_split(processes, "ncclCommSplit:2=3", -1, WEFT_INTERNAL, "ncclCommSplit");
    fail_to_split(processes, "ncclCommSplit:2=delay:5s", -1, WEFT_DEADLINE_EXCEEDED, "NCCL");
    fail_to_split(processes, "cuStreamCreateWithPriority:2=2", -1, WEFT_RESOURCE_EXHAUSTED, "cuStreamCreate");
    if (processes) fail_to_split(true, NULL, 1, WEFT_DEADLINE_EXCEEDED, "not arrived");
    gpus_close();
  }
}

static void between_gpus(const char *by, bool processes, int most)
{
  static const size_t counts[] = {0, 1, 5, 1000, 70001};

  gpus_use(by);
  for (int size = 1; size <= most; size = size < 3 ? size + 1 : most) {
    world w;
    if (processes) world_open_processes(&w, size, NULL);
    else world_open_devices(&w, size);
    all_kinds(&w, false, counts, size == 2 ? 5 : 4);
    if (size == 3) all_types(&w);
    world_close(&w);
    if (size == most) break;
  }
  check_ragged_rows(processes);
  gpus_close();
}

TEST(gpus_between_peers) { between_gpus("peers", false, GPUS); }
TEST(gpus_between_peers_with_multicast)
{
  gpus_have_multicast(true);
  uint64_t before = gpus_multicast_work();
  between_gpus("peers", false, GPUS);
  T_TRUE(gpus_multicast_work() > before);
  gpus_have_multicast(false);
}
TEST(gpus_by_nccl) { between_gpus("nccl", false, GPUS); }
TEST(gpus_by_what_suits_the_size) { between_gpus("auto", false, 2); }
TEST(gpus_of_processes_by_nccl) { between_gpus("nccl", true, 3); }

/* Blocks come from the cache in any order, so places differ between ranks, too. */
static void with_registered_memory(bool processes, int most, const char *library)
{
  uint64_t (*calls)(const char *);

  setenv("WEFT_TEST_COLLECTIVE_MEMORY", "1", 1);
  setenv("WEFT_EMU_NCCL", library, 1);
  *(void **)&calls = emulated_symbol("libcuda.so.1", "weft_emu_calls");
  bool windows = !strstr(library, "version");
  uint64_t before = calls(windows ? "ncclCommWindowRegister" : "ncclCommRegister");
  between_gpus("nccl", processes, most);
  T_TRUE(calls(windows ? "ncclCommWindowRegister" : "ncclCommRegister") > before);
  unsetenv("WEFT_EMU_NCCL");
  unsetenv("WEFT_TEST_COLLECTIVE_MEMORY");
}

TEST(gpus_by_nccl_with_windows) { with_registered_memory(false, GPUS, "polls:2"); }
TEST(gpus_of_processes_by_nccl_with_windows) { with_registered_memory(true, 3, "polls:0"); }
TEST(gpus_of_processes_by_nccl_with_registered_memory) { with_registered_memory(true, 3, "version:22400"); }

TEST_MAIN(UNIT(gpus_between_peers), UNIT(gpus_between_peers_with_multicast), UNIT(gpus_by_nccl), UNIT(gpus_by_what_suits_the_size),
          UNIT(gpus_of_processes_by_nccl), UNIT(gpus_by_nccl_with_windows), UNIT(gpus_of_processes_by_nccl_with_windows),
          UNIT(gpus_of_processes_by_nccl_with_registered_memory), UNIT(gpus_are_split_between_peers), UNIT(gpus_are_split_by_nccl),
          UNIT(gpus_are_split_by_what_suits_the_size), UNIT(gpus_are_split_by_a_library_that_takes_its_time),
          UNIT(a_split_that_fails_ends_in_time))
#else
TEST_MAIN(UNIT(strangers_at_the_door_do_no_harm), UNIT(devices_of_a_process), UNIT(devices_that_run_post_sleep_and_are_late_agree),
          UNIT(devices_hear_of_an_abort_or_of_one_that_leaves_in_the_middle_of_small_operations), UNIT(every_algorithm_between_devices), UNIT(processes),
          UNIT(large_messages_between_processes), UNIT(a_custom_reducer_folds_in_rank_order_everywhere),
          UNIT(rank_order_gives_the_same_bits_everywhere), UNIT(nan_is_contagious_and_minus_zero_is_less),
          UNIT(ragged_rows_go_where_they_are_sent), UNIT(tagged_messages_in_any_order_and_from_anybody),
          UNIT(a_group_of_operations_ends_together),
          UNIT(gathers_and_scatters_of_a_group_travel_together), UNIT(started_groups_end_with_or_without_a_call),
          UNIT(groups_cut_in_other_places_are_told_apart), UNIT(the_recorder_of_another_process_can_be_asked_for),
          UNIT(a_dump_says_first_what_is_pending_and_fits_a_screen),
          UNIT(split_makes_communicators_of_colors), UNIT(a_part_may_leave_while_its_connections_are_made), UNIT(arguments_that_make_no_sense_are_refused))
#endif
