/* cpu/target.c -- the CPU's target for src/lower, and executables made from code that is compiled already. */
#include <config.h>

#include "base/log.h"
#include "codegen/model/library.h"
#include "cpu/cpu_internal.h"
#include "lower/host_steps.h"
#include "runtime/trace.h"

/* ---- the target ------------------------------------------------------------------------------------------------ */

static const cpu_maker *find_maker(hlo_opcode op)
{
  const cpu_maker *maker = cpu_makers;
  while (maker->make && maker->op != op) maker++;
  return maker->make ? maker : NULL;
}

static weft_status *plan(void *ctx, weft_arena *arena, const hlo_instr *instr, low_plan *out)
{
  const cpu_target *target = ctx;

  if (instr->op == HLO_FUSION && !gen_is_library_fusion(instr)) {
    const gen_kernel *kernel = gen_code_kernel(target->code, instr);
    if (kernel) out->scratch_bytes = kernel->shared_bytes;
    return NULL;
  }
  const cpu_maker *maker = find_maker(instr->op);
  return maker && maker->plan ? maker->plan(target, arena, instr, out) : NULL;
}

static double cost_ns(void *ctx, const hlo_instr *instr) { return cpu_cost_ns(ctx, instr); }

static void apply_reducer(void *ctx, void *acc, const void *in, size_t count)
{
  ((gen_apply_fn *)ctx)((void *[]){acc, (void *)in, acc}, (int64_t)count);
}

static weft_status *reducer(void *ctx, const hlo_computation *computation, weft_reducer *out_reducer)
{
  gen_apply_fn *apply = gen_code_apply(((const cpu_target *)ctx)->code, computation);

  if (!apply) return WEFT_ERR(UNIMPLEMENTED, "reduction by \"%s\"", computation->name);
  *out_reducer = (weft_reducer){.fn = apply_reducer, .ctx = (void *)apply};
  return NULL;
}

/* Makes the thunk of an operation without a compiled kernel: a library kernel, or the reference evaluator where the
 * library has none. */
static weft_status *make_without_kernel(low_step *step, rt_thunk **out)
{
  const hlo_instr *instr = step->instr;
  const cpu_maker *maker = find_maker(instr->op);
  char what[256];

  if (maker) {
    weft_status *st = step->plan->error ? weft_status_dup(step->plan->error) : maker->make(step, out);
    /* the evaluator does not know what a custom-call target means */
    if (weft_status_code(st) != WEFT_UNIMPLEMENTED || instr->op == HLO_CUSTOM_CALL) return st;
    WEFT_LOG("cpu", DEBUG, "\"%s\" goes to the reference evaluator: %s", instr->name, weft_status_message(st));
    weft_status_free(st);
  }
  if (hlo_opcode_is_collective(instr->op) || hlo_opcode_is_async(instr->op) || hlo_opcode_has_side_effect(instr->op))
    return WEFT_ERR(UNIMPLEMENTED, "%s on the CPU: %s", hlo_opcode_name(instr->op),
                    hlo_describe(instr, what, sizeof what));
  return low_evaluate_make(step, out);
}

static weft_status *make(void *ctx, low_step *step, rt_thunk **out)
{
  const hlo_instr *instr = step->instr;
  const gen_kernel *kernel;

  switch (instr->op) {
  case HLO_FUSION:
    if (gen_is_library_fusion(instr)) return make_without_kernel(step, out);
    kernel = gen_code_kernel(((const cpu_target *)ctx)->code, instr);
    return kernel ? cpu_kernel_thunk_new(step, kernel, out)
                  : WEFT_ERR(INTERNAL, "fusion \"%s\" has no kernel", instr->name);
  case HLO_COPY: return cpu_copy_thunk_new(step, out);
  case HLO_REPLICA_ID: case HLO_PARTITION_ID: return cpu_id_thunk_new(step, out);
  default: return make_without_kernel(step, out);
  }
}

/* ---- executables ------------------------------------------------------------------------------------------------ */

static void free_code(void *code) { gen_code_free(code); }

/* The compiling thread has written the constants, so they lie on its node; threads of all nodes read them. */
static void spread_constants(const weft_platform *platform, const buf_plan *plan)
{
  enum { LEAST_SPREAD = 1 << 20 }; /* smaller ones are soon in the caches of all nodes */

  for (int i = 0; platform->numa.count > 1 && i < buf_plan_alloc_count(plan); i++) {
    const buf_alloc *alloc = buf_plan_alloc(plan, i);
    if (alloc->kind != BUF_CONSTANT || alloc->bytes < LEAST_SPREAD) continue;
    rt_numa_interleave(&platform->numa, (void *)(uintptr_t)alloc->literal->data,
                       hlo_shape_bytes(alloc->literal->shape));
  }
}

weft_status *cpu_lower(cpu_platform *platform, gen_code *code, const weft_compile_options *options, cpu_adapt *adapt,
                       rt_compiled *out)
{
  cpu_target cpu = {.machine = &gen_cpu_target, .code = code};
  low_target target = {.ctx = &cpu, .threads = rt_pool_threads(platform->base.pool), .plan = plan,
                       .cost_ns = cost_ns, .long_ns = 2 * cpu.machine->costs.task_ns, .make = make, .reducer = reducer};
  int64_t begin = weft_now_ns();

  out->code = code;
  out->free_code = free_code;
  out->code_bytes = gen_code_stats(code)->object_bytes;
  if (platform->settings.perf_map) cpu_perf_map_add(out->module, code);
  if (adapt) adapt(&target);
  WEFT_TRY(low_lower(&platform->base, &target, options, out));
  spread_constants(&platform->base, out->plan);
  if (rt_trace_on) rt_trace_event("compile", "plan and thunks", 0, begin);
  return NULL;
}

weft_status *cpu_load_adapted(weft_platform *platform, hlo_module *module, const void *data, size_t size,
                              const weft_compile_options *options, cpu_adapt *adapt, weft_executable **out_executable)
{
  rt_compiled out = {.module = module};
  gen_code *code;
  weft_status *st = gen_code_load(module, data, size, &code);

  if (!st) st = cpu_lower((cpu_platform *)platform, code, options, adapt, &out);
  return rt_executable_finish(platform, &out, options, st, out_executable);
}

weft_status *cpu_load(weft_platform *platform, hlo_module *module, const void *code, size_t size,
                      const weft_compile_options *options, weft_executable **out_executable)
{
  return cpu_load_adapted(platform, module, code, size, options, NULL, out_executable);
}
