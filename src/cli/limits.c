/* cli/limits.c -- the work of a step in arithmetic and in bytes, and how fast this machine can do either (limits.h). */
#include <config.h>

#include "cli/limits.h"

#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/thread.h"

/* ---- work ---- */

static double elems_of(const hlo_shape *shape)
{
  return hlo_shape_is_array(shape) ? (double)hlo_shape_elems(shape) : 0;
}

static double flops_of(const hlo_instr *instr)
{
  double flops = 0;

  switch (instr->op) {
  case HLO_DOT:
  case HLO_CONVOLUTION: return hlo_multiply_add_flops(instr);
  case HLO_FUSION: {
    HLO_FOREACH(x, instr->called[0]) flops += flops_of(x);
    return flops;
  }
  case HLO_REDUCE:
  case HLO_REDUCE_WINDOW:
    for (int i = 0; i < instr->operand_count / 2; i++) flops += elems_of(instr->operands[i]->shape);
    return flops;
  default: return hlo_opcode_is_elementwise(instr->op) ? elems_of(instr->shape) : 0;
  }
}

/* The bytes that a fusion reads of parameter `param`: a part, if only slices and gathers of it are used. */
static double bytes_read(const hlo_instr *param)
{
  double whole = (double)hlo_shape_total_bytes(param->shape), parts = 0;

  for (int i = 0; i < param->user_count; i++) {
    const hlo_instr *user = param->users[i];
    bool takes_part = (user->op == HLO_SLICE || user->op == HLO_DYNAMIC_SLICE || user->op == HLO_GATHER) &&
                      user->operands[0] == param;
    if (user->op == HLO_DYNAMIC_UPDATE_SLICE && user->operands[0] == param) continue; /* written in place */
    if (!takes_part) return whole;
    parts += (double)hlo_shape_total_bytes(user->shape);
  }
  return WEFT_MIN(parts, whole);
}

/* The bytes that `root` writes: of an update in place, the part that changes. */
static double bytes_written(const hlo_instr *root)
{
  double bytes = 0;

  if (root->op == HLO_DYNAMIC_UPDATE_SLICE) return (double)hlo_shape_total_bytes(root->operands[1]->shape);
  if (root->op != HLO_TUPLE) return (double)hlo_shape_total_bytes(root->shape);
  for (int i = 0; i < root->operand_count; i++) bytes += bytes_written(root->operands[i]);
  return bytes;
}

cli_work cli_work_of(const hlo_instr *instr)
{
  cli_work work = {.flops = flops_of(instr)};

  if (instr->op == HLO_FUSION) {
    const hlo_computation *body = instr->called[0];
    for (int i = 0; i < body->param_count; i++) work.bytes += bytes_read(body->params[i]);
    work.bytes += bytes_written(body->root);
    return work;
  }
  if (hlo_calls_are_embedded(instr->op) || instr->called_count == 0) {
    for (int i = 0; i < instr->operand_count; i++)
      work.bytes += (double)hlo_shape_total_bytes(instr->operands[i]->shape);
    work.bytes += (double)hlo_shape_total_bytes(instr->shape);
  }
  return work;
}

/* ---- limits ---- */

/* Clones of a function for several processors. The runtimes of sanitizers are not ready when the dynamic linker
 * chooses among clones. */
#if !defined HAVE_TARGET_CLONES || defined WEFT_HAS_ASAN || defined WEFT_HAS_TSAN
#define NO_CLONES
#endif
#ifdef NO_CLONES
#define FAST
#elif defined __clang__
#define FAST __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FAST __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"), optimize("O3,fast-math")))
#endif

enum { LANES = 128, ROUNDS = 400000, READ_BYTES = 64 << 20, MOST_THREADS = 256 };

typedef struct probe {
  pthread_t thread;
  uint64_t *data; /* READ_BYTES of this thread; written once by it */
  double sum;     /* so that the compiler keeps the work */
  int64_t ns;
} probe;

/* LANES independent chains of multiply-adds: enough for every unit of a core and its latency. */
FAST static double multiply_add(double seed)
{
  float lanes[LANES];
  double sum = 0;

  for (int i = 0; i < LANES; i++) lanes[i] = (float)(seed + i);
  for (int r = 0; r < ROUNDS; r++)
    for (int i = 0; i < LANES; i++) lanes[i] = lanes[i] * 0.999f + 0.5f;
  for (int i = 0; i < LANES; i++) sum += lanes[i];
  return sum;
}

FAST static double read_words(const uint64_t *data, size_t count)
{
  uint64_t sum = 0;

  for (size_t i = 0; i < count; i++) sum += data[i];
  return (double)sum;
}

static void *compute(void *arg)
{
  probe *p = arg;
  int64_t begin = weft_now_ns();

  p->sum = multiply_add(1);
  p->ns = weft_now_ns() - begin;
  return NULL;
}

static void *read_memory(void *arg)
{
  probe *p = arg;
  int64_t begin;

  memset(p->data, 1, READ_BYTES);
  begin = weft_now_ns();
  p->sum = read_words(p->data, READ_BYTES / sizeof *p->data);
  p->ns = weft_now_ns() - begin;
  return NULL;
}

/* Runs `fn` on all probes at the same time. Returns the sum over threads of `each` (units of one thread's work) by the
 * thread's time. */
static double rate(probe *probes, int count, void *(*fn)(void *probe), double each)
{
  int started = 0;
  double sum = 0;

  for (; started < count; started++) {
    weft_status *st = weft_thread_start(&probes[started].thread, "weft-limits", fn, &probes[started]);
    weft_status_ignore(st); /* the threads that run are measured */
    if (st) break;
  }
  for (int i = 0; i < started; i++) {
    pthread_join(probes[i].thread, NULL);
    sum += each / (double)WEFT_MAX(probes[i].ns, 1);
  }
  return sum;
}

cli_limits cli_limits_measure(int threads)
{
  int count = WEFT_MIN(WEFT_MAX(threads, 1), MOST_THREADS);
  probe *probes = calloc((size_t)count, sizeof *probes);
  char *data = aligned_alloc(4096, (size_t)count * READ_BYTES);
  cli_limits limits = {0};

  for (int i = 0; probes && data && i < count; i++) probes[i].data = (uint64_t *)(data + (size_t)i * READ_BYTES);
  if (probes && data) {
    limits.flops = rate(probes, count, compute, 2.0 * LANES * ROUNDS);
    limits.bytes = rate(probes, count, read_memory, READ_BYTES);
  }
  free(data);
  free(probes);
  return limits;
}

double cli_share_of_limit(cli_work work, double ns, cli_limits limits, bool *out_by_memory)
{
  double compute = limits.flops > 0 ? work.flops / ns / limits.flops : 0;
  double memory = limits.bytes > 0 ? work.bytes / ns / limits.bytes : 0;

  *out_by_memory = memory > compute;
  return WEFT_MAX(memory, compute);
}
