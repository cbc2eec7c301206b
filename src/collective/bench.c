/* collective/bench.c -- one line per operation and size, in the columns of nccl-tests. */
#include <config.h>

#include "collective/bench.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collective/internal.h"
#include "collective/host/select.h"
#include "collective/host/simulate.h"

enum { MOST_ITERATIONS = 4000 };

typedef struct bench {
  coll_bench_options o;
  char directory[64];
} bench;

static const char *const how_names[] = {"devices", "shm", "fabric"};

/* What --ops may name beside the kinds.  memcpy: every rank copies its vector, which measures what memory can do.
 * wait: the CPU time of a wait. */
enum { BENCH_MEMCPY = WEFT_COLL_KIND_COUNT };
static const char memcpy_name[] = "memcpy", wait_name[] = "wait";

static const weft_coll_kind kinds[] = {WEFT_ALL_REDUCE, WEFT_ALL_GATHER, WEFT_REDUCE_SCATTER, WEFT_ALL_TO_ALL, WEFT_BROADCAST, WEFT_SEND, WEFT_BARRIER};

/* The operation of one rank.  `bytes` is the size of the whole vector: the result of an all-gather, the input of a
 * reduce-scatter or an all-to-all. */
static weft_coll_op op_of(weft_coll_kind kind, int ranks, int64_t bytes, float *send, float *recv)
{
  bool blocks = kind == WEFT_ALL_GATHER || kind == WEFT_REDUCE_SCATTER || kind == WEFT_ALL_TO_ALL;
  bool reduces = kind == WEFT_ALL_REDUCE || kind == WEFT_REDUCE_SCATTER;
  int64_t elems = kind == WEFT_BARRIER ? 0 : bytes / 4 / (blocks ? ranks : 1);
  return (weft_coll_op){.kind = kind,
                        .dtype = WEFT_F32,
                        .reduction = reduces ? WEFT_SUM : WEFT_REDUCE_NONE,
                        .count = (size_t)WEFT_MAX(elems, (int64_t)(kind != WEFT_BARRIER)),
                        .send = kind == WEFT_BROADCAST ? recv : send,
                        .recv = recv}; /* a broadcast is in place, as MPI's is */
}

static int iterations_of(const bench *b, int64_t bytes)
{
  int n = bytes <= 4 << 10 ? 2000 : bytes <= 64 << 10 ? 500 : bytes <= 1 << 20 ? 100 : bytes <= 16 << 20 ? 12 : 4;
  n = (int)(n * b->o.scale);
  return WEFT_MAX(3, WEFT_MIN(n, MOST_ITERATIONS));
}

static int by_value(const void *a, const void *b)
{
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return x < y ? -1 : x > y;
}

/* Does this operation go there and back: is its time that of two?  Between devices both directions of a pair would have
 * to be one group of the library, so the rank with the lower number sends first. */
static bool goes_back(const bench *b, int kind) { return b->o.devices && kind == WEFT_SEND; }

static weft_status *send_and_back(weft_comm *comm, const weft_coll_op *op)
{
  weft_coll_op send = *op, receive = *op;

  receive.kind = WEFT_RECV;
  send.peer = receive.peer = comm->rank ^ 1;
  WEFT_TRY(weft_coll_run(comm, comm->rank % 2 ? &receive : &send, NULL));
  return weft_coll_run(comm, comm->rank % 2 ? &send : &receive, NULL);
}

/* Runs the operation once.  A send goes to the other rank of a pair, together with a receive from it. */
static weft_status *run_once(const bench *b, weft_comm *comm, const weft_coll_op *op)
{
  int partner = comm->rank ^ 1;
  weft_coll_op both[2] = {*op, *op};
  weft_event *event;

  if ((int)op->kind == BENCH_MEMCPY) {
    memcpy(op->recv, op->send, 4 * op->count);
    return weft_coll_run(comm, &(weft_coll_op){.kind = WEFT_BARRIER}, NULL); /* wait until all ranks have copied */
  }
  if (op->kind != WEFT_SEND) return weft_coll_run(comm, op, NULL);
  if (partner >= comm->group->size) return NULL;
  if (goes_back(b, WEFT_SEND)) return send_and_back(comm, op);
  both[1].kind = WEFT_RECV;
  both[0].peer = both[1].peer = partner;
  WEFT_TRY(weft_coll_post_group(comm, both, 2, &(weft_coll_call){.will_wait = true}, &event));
  weft_status *st = weft_coll_wait(comm, event);
  weft_event_release(event);
  return st;
}

/* Times one operation; every rank calls it.  Returns the median of this rank in ns; negative after an error. */
static int64_t measure(const bench *b, weft_comm *comm, const weft_coll_op *op, int iterations, int64_t *samples)
{
  weft_coll_op barrier = {.kind = WEFT_BARRIER};

  for (int i = -WEFT_MAX(2, iterations / 10); i < iterations; i++) {
    if (i == 0 && weft_coll_run(comm, &barrier, NULL) != NULL) return -1;
    int64_t begin = weft_now_ns();
    weft_status *st = run_once(b, comm, op);
    if (i >= 0) samples[i] = (weft_now_ns() - begin) / (goes_back(b, (int)op->kind) ? 2 : 1);
    if (st) {
      fprintf(stderr, "rank %d: %s\n", comm->rank, weft_status_text(st, false));
      weft_status_free(st);
      return -1;
    }
  }
  qsort(samples, (size_t)iterations, sizeof *samples, by_value);
  return samples[iterations / 2];
}

static const char *name_of(int kind)
{
  return kind == BENCH_MEMCPY ? memcpy_name : weft_coll_kind_name((weft_coll_kind)kind);
}

/* True if the list of --ops contains the name. */
static bool named(const bench *b, const char *name)
{
  for (const char *at = b->o.ops; at; at = strchr(at, ',')) {
    at += *at == ',';
    if (strcspn(at, ",") == strlen(name) && strncmp(at, name, strlen(name)) == 0) return true;
  }
  return false;
}
static bool wanted(const bench *b, weft_coll_kind kind) { return !b->o.ops || named(b, weft_coll_kind_name(kind)); }

/* ---- the table ---- */

static void print_heading(const bench *b)
{
  if (b->o.devices)
    printf("# devices of %s; times are those of the host: from the call to the end of the operation; that of a send is "
           "half of the time there and back\n",
           b->o.devices->name);
  printf("# weft-%s, %d ranks; time is the median, p99 the 99th percentile of rank 0; #wrong counts all ranks\n",
         how_names[b->o.how], b->o.ranks);
  printf("# %10s %12s %5s %-15s %5s %10s %10s %8s %8s %7s\n", "size", "count", "type", "operation", "redop", "time",
         "p99", "algbw", "busbw", "#wrong");
  printf("# %10s %12s %5s %-15s %5s %10s %10s %8s %8s %7s\n", "(B)", "(elements)", "", "", "", "(us)", "(us)", "(GB/s)",
         "(GB/s)", "");
}

/* The factor between the algorithm's rate and the rate of a rank's link, as nccl-tests define it. */
static double bus_factor(int kind, int ranks)
{
  double others = (double)(ranks - 1) / ranks;

  switch (kind) {
  case WEFT_ALL_REDUCE: return 2 * others;
  case WEFT_ALL_GATHER:
  case WEFT_REDUCE_SCATTER:
  case WEFT_ALL_TO_ALL: return others;
  default: return 1;
  }
}

static void print_line(const bench *b, int kind, const weft_coll_op *op, int64_t bytes, const int64_t *sorted, int n,
                       int64_t wrong)
{
  double p50_us = (double)sorted[n / 2] / 1e3, p99_us = (double)sorted[n - 1 - n / 100] / 1e3;
  double rate = (double)bytes / (double)WEFT_MAX(sorted[n / 2], INT64_C(1)); /* bytes per ns: GB/s */
  bool is_barrier = kind == WEFT_BARRIER;

  printf("  %10lld %12zu %5s %-15s %5s %10.2f %10.2f %8.3f %8.3f %7lld\n", (long long)bytes,
         is_barrier ? (size_t)0 : op->count, is_barrier ? "-" : "f32", name_of(kind),
         op->reduction == WEFT_SUM ? "sum" : "-", p50_us, p99_us, rate, rate * bus_factor(kind, b->o.ranks),
         (long long)wrong);
  fflush(stdout);
}

/* ---- arrays ---- */

/* A rank's array.  `data`: in the memory that operations use; `host`: in the host's memory, for filling and checking.
 * Both are the same without devices. */
typedef struct array {
  float *data, *host;
} array;

static weft_status *take_array(const bench *b, int rank, size_t bytes, array *out)
{
  const coll_bench_devices *d = b->o.devices;

  *out = (array){0};
  WEFT_TRY_ALLOC(out->host = aligned_alloc(4096, WEFT_ALIGN_UP(bytes, (size_t)4096)));
  memset(out->host, 0, bytes);
  out->data = out->host;
  if (!d) return NULL;
  out->data = NULL;
  WEFT_TRY(d->take(d->ctx, rank, (int64_t)bytes, (void **)&out->data));
  return d->write(d->ctx, rank, out->data, out->host, (int64_t)bytes);
}

static void give_array(const bench *b, int rank, size_t bytes, array *a)
{
  const coll_bench_devices *d = b->o.devices;

  if (d && a->data) d->give(d->ctx, rank, a->data, (int64_t)bytes);
  free(a->host);
}

/* Copies the first `bytes` of `host` to `data`. */
static weft_status *put(const bench *b, int rank, const array *a, int64_t bytes)
{
  const coll_bench_devices *d = b->o.devices;
  return d ? d->write(d->ctx, rank, a->data, a->host, bytes) : NULL;
}

/* Copies the first `bytes` of `data` to `host`. */
static weft_status *get(const bench *b, int rank, const array *a, int64_t bytes)
{
  const coll_bench_devices *d = b->o.devices;
  return d ? d->read(d->ctx, rank, a->host, a->data, bytes) : NULL;
}

/* ---- checking ---- */

/* Element `i` of what a rank sends: small integers, whose sums over all ranks are exact in f32. */
static float sent(int rank, int64_t i) { return (float)((rank + 1) * (int)(i % 7 + 1)); }

/* Element `i` of what rank `rank` of `ranks` receives. Blocks have `count` elements. */
static float expected(int kind, int rank, int ranks, int64_t count, int64_t i)
{
  int all = ranks * (ranks + 1) / 2; /* the sum of rank + 1 */

  switch (kind) {
  case WEFT_ALL_REDUCE: return (float)all * sent(0, i);
  case WEFT_ALL_GATHER: return sent((int)(i / count), i % count);
  case WEFT_REDUCE_SCATTER: return (float)all * sent(0, rank * count + i);
  case WEFT_ALL_TO_ALL: return sent((int)(i / count), rank * count + i % count);
  case WEFT_BROADCAST: return sent(0, i);
  case WEFT_SEND: return sent(rank ^ 1, i);
  default: return sent(rank, i); /* memcpy */
  }
}

/* The sum of `wrong` over all ranks, rounded to f32, which every platform's communicator can add. */
static weft_status *sum_up(const bench *b, weft_comm *comm, int64_t wrong, int64_t *out_wrong)
{
  array from, to;
  size_t bytes = sizeof *from.host;
  weft_status *st = take_array(b, comm->rank, bytes, &from), *second = take_array(b, comm->rank, bytes, &to);
  weft_coll_op sum = {.kind = WEFT_ALL_REDUCE, .dtype = WEFT_F32, .reduction = WEFT_SUM, .count = 1, .send = from.data, .recv = to.data};

  if (!st) st = WEFT_MOVE(second);
  weft_status_free(second);
  if (!st) *from.host = (float)wrong;
  if (!st) st = put(b, comm->rank, &from, (int64_t)bytes);
  if (!st) st = weft_coll_run(comm, &sum, NULL);
  if (!st) st = get(b, comm->rank, &to, (int64_t)bytes);
  if (!st) *out_wrong = (int64_t)*to.host;
  give_array(b, comm->rank, bytes, &from);
  give_array(b, comm->rank, bytes, &to);
  return st;
}

/* Runs the operation once on known values. *out_wrong: the elements that any rank received wrong. */
static weft_status *check(const bench *b, weft_comm *comm, int kind, const weft_coll_op *op, const array *from,
                          const array *to, int64_t *out_wrong)
{
  int ranks = comm->group->size, rank = comm->rank;
  int64_t count = (int64_t)op->count, blocks = kind == WEFT_ALL_GATHER || kind == WEFT_ALL_TO_ALL ? ranks : 1;
  int64_t inputs = count * (kind == WEFT_REDUCE_SCATTER || kind == WEFT_ALL_TO_ALL ? ranks : 1);
  bool in_place = op->send == to->data;
  float *send = in_place ? to->host : from->host, *recv = to->host;
  int64_t wrong = 0;
  bool has_partner = kind != WEFT_SEND || (rank ^ 1) < ranks;

  *out_wrong = 0;
  if (kind == WEFT_BARRIER) return NULL;
  for (int64_t i = 0; i < count * blocks; i++) recv[i] = -1;
  for (int64_t i = 0; i < inputs; i++) send[i] = sent(rank, i);
  if (!in_place) WEFT_TRY(put(b, rank, from, inputs * (int64_t)sizeof *send));
  WEFT_TRY(put(b, rank, to, count * blocks * (int64_t)sizeof *recv));
  WEFT_TRY(run_once(b, comm, op));
  WEFT_TRY(get(b, rank, to, count * blocks * (int64_t)sizeof *recv));
  for (int64_t i = 0; i < count * blocks && has_partner; i++) wrong += recv[i] != expected(kind, rank, ranks, count, i);
  return sum_up(b, comm, wrong, out_wrong);
}

/* Names of the kinds, then of what --ops may name beside them; NULL past the last. */
static const char *operation_name(size_t i)
{
  if (i < WEFT_COUNT(kinds)) return weft_coll_kind_name(kinds[i]);
  return i == WEFT_COUNT(kinds) ? memcpy_name : i == WEFT_COUNT(kinds) + 1 ? wait_name : NULL;
}

weft_status *coll_bench_check_ops(const char *ops)
{
  char known[256] = "";

  for (size_t i = 0; operation_name(i); i++)
    snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "", operation_name(i));
  for (const char *at = ops; at; at = strchr(at, ',')) {
    at += *at == ',';
    size_t length = strcspn(at, ","), i = 0;
    while (operation_name(i) && (strlen(operation_name(i)) != length || strncmp(at, operation_name(i), length) != 0))
      i++;
    if (!operation_name(i))
      return WEFT_ERR(INVALID_ARGUMENT, "there is no operation \"%.*s\"; expected some of %s",
                      (int)WEFT_MIN(length, (size_t)64), at, known);
  }
  return NULL;
}

/* Writes the best algorithm of each size as rows of a table; neighbouring sizes with the same one share a row. */
static int tune(const bench *b, weft_comm *comm, float *send, float *recv, int64_t *samples)
{
  FILE *out = comm->rank == 0 ? fopen(b->o.tune, "we") : NULL;
  if (comm->rank == 0 && !out) {
    perror(b->o.tune);
    return 1;
  }
  if (out)
    fprintf(out, "# kind most-ranks most-bytes algorithm: measured by weft bench collectives --tune, %s\n",
            how_names[b->o.how]);
  for (size_t k = 0; k < WEFT_COUNT(kinds); k++) {
    int last = -1;
    for (int64_t bytes = b->o.min_bytes; bytes <= b->o.max_bytes && kinds[k] != WEFT_SEND && wanted(b, kinds[k]);
         bytes *= 4) {
      weft_coll_op op = op_of(kinds[k], b->o.ranks, bytes, send, recv);
      coll_problem p = {.kind = kinds[k], .size = b->o.ranks, .bytes = (int64_t)op.count * 4, .elem_bytes = 4,
                        .topology = comm->group->topology.size ? &comm->group->topology : NULL};
      int64_t best_ns = INT64_MAX;
      int best = -1;
      for (int a = 1; a < COLL_ALGORITHM_COUNT; a++) {
        if (!coll_algorithm_applies((coll_algorithm)a, &p)) continue;
        comm->group->forced_algorithm = a;
        int64_t ns = measure(b, comm, &op, iterations_of(b, bytes) / 2 + 1, samples);
        if (ns < 0) return 1;
        if (ns < best_ns) {
          best_ns = ns;
          best = a;
        }
        if (out)
          printf("%-15s %9lld bytes  %-20s %11.2f us\n", weft_coll_kind_name(kinds[k]), (long long)bytes,
                 coll_algorithm_name((coll_algorithm)a), (double)ns / 1e3);
      }
      comm->group->forced_algorithm = COLL_ALG_AUTO;
      if (out && last >= 0 && best != last)
        fprintf(out, "%s %d %lld %s\n", weft_coll_kind_name(kinds[k]), b->o.ranks, (long long)(p.bytes / 2),
                coll_algorithm_name((coll_algorithm)last));
      last = best;
    }
    if (out && last >= 0)
      fprintf(out, "%s %d %lld %s\n", weft_coll_kind_name(kinds[k]), b->o.ranks, (long long)INT64_MAX,
              coll_algorithm_name((coll_algorithm)last));
  }
  return out && fclose(out) != 0;
}

/* Pins ranks to the CPUs that the process may use, in turn, as mpirun does. */
static void pin(int rank)
{
  cpu_set_t allowed, one;
  int count;

  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || (count = CPU_COUNT(&allowed)) < 1) return;
  CPU_ZERO(&one);
  for (int cpu = 0, skip = rank % count; cpu < CPU_SETSIZE; cpu++) {
    if (!CPU_ISSET(cpu, &allowed) || skip-- > 0) continue;
    CPU_SET(cpu, &one);
    break;
  }
  sched_setaffinity(0, sizeof one, &one);
}

/* Measures all sizes of an operation.  True after an error. */
static bool run_sizes(const bench *b, weft_comm *comm, int kind, const array *from, const array *to, int64_t *samples)
{
  bool empty = kind == WEFT_BARRIER;

  for (int64_t bytes = b->o.min_bytes; bytes <= b->o.max_bytes; bytes = bytes == 64         ? 4096
                                                                        : bytes == 16 << 20 ? 64 << 20
                                                                                            : bytes * 16) {
    weft_coll_op op = op_of((weft_coll_kind)kind, b->o.ranks, bytes, from->data, to->data);
    int n = iterations_of(b, empty ? 0 : bytes);
    int64_t wrong = 0;
    weft_status *st = check(b, comm, kind, &op, from, to, &wrong);
    if (st) fprintf(stderr, "rank %d: %s\n", comm->rank, weft_status_text(st, false));
    weft_status_free(st);
    if (st || measure(b, comm, &op, n, samples) < 0) return true;
    if (comm->rank == 0) print_line(b, kind, &op, empty ? 0 : bytes, samples, n, wrong);
    if (empty) break;
  }
  return false;
}

static double cpu_s(void)
{
  struct rusage used;

  getrusage(RUSAGE_SELF, &used);
  return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

/* Measures the CPU time of rank 0's process while it waits in a barrier for the others, which sleep. */
static bool run_wait(const bench *b, weft_comm *comm)
{
  enum { SECONDS = 2 };
  weft_coll_op barrier = {.kind = WEFT_BARRIER};
  weft_status *st = weft_coll_run(comm, &barrier, NULL);
  double before_s = cpu_s();

  if (!st && comm->rank != 0) sleep(SECONDS);
  if (!st) st = weft_coll_run(comm, &barrier, NULL);
  if (!st && comm->rank == 0)
    printf("%-15s weft-%-7s ranks %d  %d s in a barrier: %.2f %% of a core\n", wait_name, how_names[b->o.how],
           b->o.ranks, SECONDS, 100 * (cpu_s() - before_s) / SECONDS);
  bool failed = st != NULL;
  weft_status_free(st);
  return failed;
}

/* Do the devices' communicators do the operation? */
static bool is_moved(const bench *b, const weft_comm *comm, weft_coll_kind kind)
{
  const coll_bench_devices *d = b->o.devices;
  bool reduces = kind == WEFT_ALL_REDUCE || kind == WEFT_REDUCE_SCATTER;

  if (!d || kind == WEFT_BARRIER) return true;
  if (d->moves(d->ctx, kind, WEFT_F32, reduces ? WEFT_SUM : WEFT_REDUCE_NONE)) return true;
  if (comm->rank == 0) printf("# %s is not measured between devices of %s\n", name_of((int)kind), d->name);
  return false;
}

static int run_rank(const bench *b, weft_comm *comm)
{
  size_t room = (size_t)b->o.max_bytes + 4096;
  array from, to = {0};
  int64_t *samples = malloc(MOST_ITERATIONS * sizeof *samples);
  weft_status *st = take_array(b, comm->rank, room, &from);
  if (!st) st = take_array(b, comm->rank, room, &to);
  int failed = st || !samples;

  if (st) fprintf(stderr, "rank %d: %s\n", comm->rank, weft_status_text(st, false));
  weft_status_free(st);
  if (!failed && !b->o.tune && comm->rank == 0) print_heading(b);
  if (!failed && b->o.tune) failed = tune(b, comm, from.data, to.data, samples);
  for (size_t k = 0; k < WEFT_COUNT(kinds) && !failed && !b->o.tune; k++)
    if (wanted(b, kinds[k]) && is_moved(b, comm, kinds[k]))
      failed = run_sizes(b, comm, (int)kinds[k], &from, &to, samples);
  if (!failed && named(b, memcpy_name)) failed = run_sizes(b, comm, BENCH_MEMCPY, &from, &to, samples);
  if (!failed && named(b, wait_name)) failed = run_wait(b, comm);
  give_array(b, comm->rank, room, &from);
  give_array(b, comm->rank, room, &to);
  free(samples);
  return failed;
}

/* ---- sizes that only a simulator has ---- */

/* Prints what every algorithm costs on the model network, as rows of a Markdown table. */
int coll_bench_simulate(void)
{
  enum { RANKS_PER_NODE = 8, MOST_SIMULATED = 65536, MOST_ROUNDS = 4096 };
  static const int sizes[] = {64, 1024, 65536};
  static const int64_t bytes[] = {64, 1 << 20};
  static uint64_t labels[MOST_SIMULATED];
  coll_topology topology = {0};
  coll_sim_result r;

  for (int i = 0; i < MOST_SIMULATED; i++) labels[i] = (uint64_t)(i / RANKS_PER_NODE);
  printf(
    "| operation | algorithm | bytes | ranks | rounds | bytes sent by a rank | bytes over a node's link | time |\n|---|---|---|---|---|---|---|---|\n");
  for (size_t k = 0; k < WEFT_COUNT(kinds); k++)
    for (size_t z = 0; z < WEFT_COUNT(bytes) - (kinds[k] == WEFT_BARRIER); z++)
      for (int a = 1; a < COLL_ALGORITHM_COUNT && kinds[k] != WEFT_SEND; a++)
        for (size_t n = 0; n < WEFT_COUNT(sizes); n++) {
          bool blocks = kinds[k] == WEFT_ALL_GATHER || kinds[k] == WEFT_REDUCE_SCATTER || kinds[k] == WEFT_ALL_TO_ALL;
          int64_t each = kinds[k] == WEFT_BARRIER ? 0
                         : blocks                 ? WEFT_MAX(bytes[z] / sizes[n] / 8 * 8, (int64_t)8)
                                                  : bytes[z];
          weft_status *st = coll_topology_init(&topology, labels, sizes[n]);
          coll_problem p = {.kind = kinds[k], .size = sizes[n], .bytes = each, .elem_bytes = 8, .topology = &topology};
          coll_schedule schedule = {0};
          bool fits = !st && coll_algorithm_applies((coll_algorithm)a, &p);
          if (fits) st = coll_schedule_build(&p, (coll_algorithm)a, &schedule);
          fits = fits && schedule.count <= MOST_ROUNDS &&
                 (double)schedule.count * sizes[n] < 3e7; /* larger simulations would take hours */
          coll_schedule_fini(&schedule);
          if (!st && fits) st = coll_simulate(&p, (coll_algorithm)a, NULL, false, &r);
          if (!st && fits)
            printf("| %s | %s | %lld | %d | %lld | %lld | %lld | %.1f us |\n", weft_coll_kind_name(kinds[k]),
                   coll_algorithm_name((coll_algorithm)a), (long long)(blocks ? each * sizes[n] : each), sizes[n],
                   (long long)r.rounds, (long long)r.rank_bytes, (long long)r.link_bytes, r.time_ns / 1e3);
          fflush(stdout);
          coll_topology_fini(&topology);
          if (!st) continue;
          fprintf(stderr, "%s\n", weft_status_text(st, false));
          weft_status_free(st);
          return 1;
        }
  return 0;
}

/* ---- ranks ---- */

typedef struct device {
  const bench *b;
  weft_comm *comm;
  int failed;
} device;

static void *run_device(void *arg)
{
  device *d = arg;
  pin(d->comm->rank);
  d->failed = run_rank(d->b, d->comm);
  return NULL;
}

static weft_status *open_devices(const bench *b, weft_comm_spec *spec)
{
  return b->o.devices ? b->o.devices->open(b->o.devices->ctx, b->o.ranks, spec) : NULL;
}

static void close_devices(const bench *b)
{
  if (b->o.devices) b->o.devices->close(b->o.devices->ctx);
}

static int run_devices(const bench *b)
{
  weft_comm *comms[COLL_BENCH_MOST_RANKS];
  int ranks[COLL_BENCH_MOST_RANKS], failed = 0;
  pthread_t threads[COLL_BENCH_MOST_RANKS];
  device devices[COLL_BENCH_MOST_RANKS];

  for (int r = 0; r < b->o.ranks; r++) ranks[r] = r;
  weft_comm_spec spec = {.name = "bench", .size = b->o.ranks, .ranks = ranks, .rank_count = b->o.ranks};
  if (b->o.tune) {
    fprintf(stderr, "devices of one process need no table: tune shm or fabric\n");
    return 2;
  }
  weft_status *st = open_devices(b, &spec);
  if (!st) st = weft_comm_create(&spec, comms);
  if (st) {
    fprintf(stderr, "%s\n", weft_status_text(st, false));
    weft_status_free(st);
    close_devices(b);
    return 1;
  }
  for (int r = 0; r < b->o.ranks; r++) {
    devices[r] = (device){b, comms[r], 1};
    pthread_create(&threads[r], NULL, run_device, &devices[r]);
  }
  for (int r = 0; r < b->o.ranks; r++) pthread_join(threads[r], NULL);
  for (int r = 0; r < b->o.ranks; r++) {
    failed |= devices[r].failed;
    weft_comm_destroy(comms[r]);
  }
  close_devices(b);
  return failed;
}

static int run_process(const bench *b, int rank)
{
  char label[32];
  weft_kv *kv = NULL;
  weft_comm *comm = NULL;
  weft_comm_spec spec = {.name = "bench", .size = b->o.ranks, .ranks = &rank, .rank_count = 1};

  pin(rank);
  snprintf(label, sizeof label, "bench-node%d", rank);
  if (b->o.how == COLL_BENCH_FABRIC) setenv("WEFT_COLLECTIVE_NODE", label, 0);
  weft_status *st = weft_kv_file_new(b->directory, &kv);
  spec.kv = kv;
  if (!st) st = open_devices(b, &spec);
  if (!st) st = weft_comm_create(&spec, &comm);
  int failed = 1;
  if (st) fprintf(stderr, "rank %d: %s\n", rank, weft_status_text(st, false));
  else failed = run_rank(b, comm);
  weft_status_free(st);
  weft_comm_destroy(comm);
  close_devices(b);
  weft_kv_destroy(kv);
  return failed;
}

/* True if standard output is a pipe whose reader has gone.  errno is of no use for this: other calls may have changed
 * it. */
static bool reader_has_left(void)
{
  struct pollfd out = {.fd = STDOUT_FILENO};

  return poll(&out, 1, 0) > 0 && (out.revents & POLLERR) != 0;
}

static int run_processes(bench *b)
{
  pid_t pids[COLL_BENCH_MOST_RANKS];
  int failed = 0, status;

  snprintf(b->directory, sizeof b->directory, "/tmp/weft-bench-XXXXXX");
  if (!mkdtemp(b->directory)) return 1;
  fflush(stdout);
  for (int r = 0; r < b->o.ranks; r++) {
    pids[r] = fork();
    if (pids[r] == 0) {
      int rank_failed = run_process(b, r);
      if (fflush(stdout) != 0 || ferror(stdout)) { /* the parent's own stream does not show this failure */
        if (!reader_has_left()) fprintf(stderr, "weft bench: standard output could not be written\n");
        rank_failed = 1;
      }
      _exit(rank_failed);
    }
    if (pids[r] < 0) return 1;
  }
  for (int r = 0; r < b->o.ranks; r++) { /* each ends by itself, as its operations have deadlines */
    waitpid(pids[r], &status, 0);
    failed |= status != 0;
  }
  rmdir(b->directory);
  return failed;
}

int coll_bench_run(const coll_bench_options *options)
{
  bench b = {.o = *options};

  return b.o.how == COLL_BENCH_DEVICES ? run_devices(&b) : run_processes(&b);
}
