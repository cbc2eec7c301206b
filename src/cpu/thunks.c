/* cpu/thunks.c -- the thunks of compiled kernels, copies, ids, and of the reference evaluator, which does operations
 * without a kernel. */
#include <config.h>

#include <stdatomic.h>
#include <string.h>

#include "codegen/model/cost.h"
#include "codegen/model/library.h"
#include "cpu/cpu_internal.h"

static gen_shareable shareable(const low_step *step, gen_step kind, double ns, double bytes)
{
  return (gen_shareable){.kind = kind,
                         .ns = ns,
                         .bytes = bytes,
                         .whole = (double)step->whole_bytes,
                         .shared = (double)step->shared_bytes,
                         .passed = (double)step->passed_bytes};
}

bool cpu_pays_to_share(const low_step *step, double ns, bool is_cut)
{
  double bytes = 0;

  for (int i = 0; i < step->operand_count + step->result_count; i++) bytes += (double)step->uses[i].slice.bytes;
  return cpu_pays_to_share_bytes(step, ns, is_cut, bytes);
}

bool cpu_pays_to_share_bytes(const low_step *step, double ns, bool is_cut, double bytes)
{
  gen_shareable s = shareable(step, is_cut ? GEN_KERNEL : GEN_LIBRARY, ns, bytes);
  double made = 0;

  for (int i = step->operand_count; i < step->operand_count + step->result_count; i++)
    made += (double)step->uses[i].slice.bytes;
  s.given = WEFT_MAX(WEFT_MIN((double)step->given_bytes, bytes - made), 0);
  s.whole = WEFT_MIN(s.whole, bytes);
  s.shared = WEFT_MIN(s.shared, bytes);
  return gen_pays_to_share(cpu_target_of(step)->machine, &s, step->target->threads);
}

/* ---- kernels --------------------------------------------------------------------------------------------------- */

typedef struct cpu_kernel_thunk {
  rt_thunk base;
  gen_kernel kernel;
  int64_t tasks[GEN_MAX_PHASES];
} cpu_kernel_thunk;

typedef struct kernel_run {
  const cpu_kernel_thunk *thunk;
  void *const *args;
  const gen_phase *phase;
  int64_t tasks;
  atomic_bool no_memory;
} kernel_run;

/* Among a kernel's arguments its private scratch stands between its results and the memory that all tasks share.
 * Kernels with private scratch get a copy of their arguments, which is kept in front of that scratch. */
static bool call_kernel(const cpu_kernel_thunk *t, const gen_phase *phase, void *const *args, int64_t begin,
                        int64_t end)
{
  const gen_kernel *k = &t->kernel;
  int leaves = k->operand_leaves + k->result_leaves;
  int64_t room = WEFT_ALIGN_UP((int64_t)(leaves + 2) * (int64_t)sizeof(void *), 64);

  if (k->scratch_bytes == 0) {
    phase->fn(args, begin, end);
    return true;
  }
  char *memory = rt_thread_scratch(room + k->scratch_bytes);
  if (!memory) return false;
  void **copy = (void **)memory;
  memcpy(copy, args, (size_t)leaves * sizeof *copy);
  copy[leaves] = memory + room;
  if (k->shared_bytes > 0) copy[leaves + 1] = args[leaves];
  phase->fn(copy, begin, end);
  return true;
}

static void run_task(void *ctx, int64_t task)
{
  kernel_run *r = ctx;
  /* tasks whose sizes differ by at most one; the products fit, because tasks are few */
  int64_t units = r->phase->units;
  int64_t share = units / r->tasks, rest = units % r->tasks;
  int64_t begin = task * share + WEFT_MIN(task, rest);
  if (!call_kernel(r->thunk, r->phase, r->args, begin, begin + share + (task < rest)))
    /* the end of the parallel loop orders this write */
    atomic_store_explicit(&r->no_memory, true, memory_order_relaxed);
}

static weft_status *kernel_execute(const rt_thunk *thunk, rt_ctx *ctx)
{
  const cpu_kernel_thunk *t = (const cpu_kernel_thunk *)thunk;
  void *const *args = rt_args(thunk, ctx);

  for (int p = 0; p < t->kernel.phase_count; p++) {
    const gen_phase *phase = &t->kernel.phases[p];
    if (phase->units == 0) continue;
    kernel_run r = {.thunk = t, .args = args, .phase = phase, .tasks = t->tasks[p]};
    if (r.tasks > 1) rt_parallel_for(ctx->pool, r.tasks, run_task, &r);
    else r.no_memory = !call_kernel(t, phase, args, 0, phase->units);
    if (WEFT_UNLIKELY(r.no_memory))
      return WEFT_ERR(RESOURCE_EXHAUSTED, "no memory for %lld bytes of scratch", (long long)t->kernel.scratch_bytes);
  }
  return NULL;
}
static const rt_thunk_ops kernel_ops = {sizeof(rt_thunk_ops), "kernel", .run = kernel_execute};

weft_status *cpu_kernel_thunk_new(low_step *step, const gen_kernel *kernel, rt_thunk **out_thunk)
{
  const gen_target *machine = cpu_target_of(step)->machine;
  double task_ns = machine->costs.task_ns;
  rt_thunk *thunk;

  if (kernel->takes_bound) return WEFT_ERR(INVALID_ARGUMENT, "a kernel of a step of strips is a step of its own, too");
  WEFT_TRY(low_thunk_new(step, &kernel_ops, sizeof(cpu_kernel_thunk), &thunk));
  cpu_kernel_thunk *t = (cpu_kernel_thunk *)thunk;
  t->kernel = *kernel;
  thunk->cost_ns = 0;
  for (int p = 0; p < kernel->phase_count; p++) {
    double ns = kernel->phases[p].unit_ns * (double)kernel->phases[p].units;
    double range_ns = kernel->phases[p].range_ns, least_ns = WEFT_MAX(task_ns, 8 * range_ns);
    int threads = step->target->threads;
    int64_t most = WEFT_MIN(kernel->phases[p].units, 8 * (int64_t)threads);
    gen_shareable s = shareable(step, GEN_KERNEL, ns, kernel->bytes);
    /* between steps whose arrays lie with several threads, a step of one task is cut in two */
    double short_ns = s.shared + s.passed > 0 ? task_ns : 2 * task_ns;
    bool shared = ns >= short_ns && ns / threads + range_ns < 0.8 * ns && gen_pays_to_share(machine, &s, threads);
    int64_t tasks = shared ? (int64_t)WEFT_MIN(WEFT_MAX(ns / least_ns, 2), (double)most) : 1;
    if (shared && range_ns > 0) tasks = WEFT_MAX(tasks, WEFT_MIN(most, threads));
    t->tasks[p] = tasks;
    thunk->splits |= t->tasks[p] > 1;
    thunk->cost_ns += ns;
  }
  *out_thunk = thunk;
  return NULL;
}

/* ---- copies and ids -------------------------------------------------------------------------------------------- */

enum { COPY_PIECE = 1 << 20, LEAST_SHARED_COPY = 1 << 17 };

typedef struct cpu_copy_thunk {
  rt_thunk base;
  int64_t piece; /* bytes */
} cpu_copy_thunk;

static weft_status *copy_execute(const rt_thunk *thunk, rt_ctx *ctx)
{
  void *const *args = rt_args(thunk, ctx);

  if (args[1] != args[0])
    rt_parallel_copy(ctx->pool, args[1], args[0], thunk->uses[1].slice.bytes, ((const cpu_copy_thunk *)thunk)->piece);
  return NULL;
}
static const rt_thunk_ops copy_ops = {sizeof(rt_thunk_ops), "copy", .run = copy_execute};

weft_status *cpu_copy_thunk_new(low_step *step, rt_thunk **out_thunk)
{
  int64_t bytes = step->uses[1].slice.bytes, share = WEFT_ALIGN_UP(bytes / step->target->threads + 1, 64);
  bool splits = bytes > 2 * COPY_PIECE || (step->shared_bytes > 0 && bytes >= LEAST_SHARED_COPY);

  WEFT_TRY(low_thunk_new(step, &copy_ops, sizeof(cpu_copy_thunk), out_thunk));
  ((cpu_copy_thunk *)*out_thunk)->piece = splits ? WEFT_MIN(share, COPY_PIECE) : WEFT_MAX(bytes, 1);
  (*out_thunk)->splits = splits;
  return NULL;
}

static weft_status *replica_id_execute(const rt_thunk *thunk, rt_ctx *ctx)
{
  *(uint32_t *)rt_args(thunk, ctx)[0] = (uint32_t)ctx->info->replica_id;
  return NULL;
}
static weft_status *partition_id_execute(const rt_thunk *thunk, rt_ctx *ctx)
{
  *(uint32_t *)rt_args(thunk, ctx)[0] = (uint32_t)ctx->info->partition_id;
  return NULL;
}
static const rt_thunk_ops replica_id_ops = {sizeof(rt_thunk_ops), "replica-id", .run = replica_id_execute};
static const rt_thunk_ops partition_id_ops = {sizeof(rt_thunk_ops), "partition-id", .run = partition_id_execute};

weft_status *cpu_id_thunk_new(low_step *step, rt_thunk **out_thunk)
{
  return low_thunk_new(step, step->instr->op == HLO_REPLICA_ID ? &replica_id_ops : &partition_id_ops, sizeof(rt_thunk),
                       out_thunk);
}

/* ---- costs ----------------------------------------------------------------------------------------------------- */

double cpu_cost_ns(const cpu_target *target, const hlo_instr *instr)
{
  const gen_kernel *kernel = instr->op == HLO_FUSION ? gen_code_kernel(target->code, instr) : NULL;
  double ns = 0;

  if (gen_calls_kernel(instr)) {
    HLO_FOREACH(x, instr->called[0])
      if (x->op == HLO_FUSION || x->op == HLO_DOT || x->op == HLO_CONVOLUTION) ns += cpu_cost_ns(target, x);
    return ns;
  }
  if (!kernel) return gen_library_ns(target->machine, instr);
  for (int p = 0; p < kernel->phase_count; p++) ns += kernel->phases[p].unit_ns * (double)kernel->phases[p].units;
  return ns;
}
