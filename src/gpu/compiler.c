/* gpu/compiler.c -- compiles HLO to an executable: the passes of GPUs, kernels, and the target for src/lower. */
#include <config.h>

#include <string.h>

#include "base/log.h"
#include "codegen/model/cost.h"
#include "gpu/communicator.h"
#include "gpu/makers.h"
#include "lower/host_steps.h"
#include "passes/pass.h"
#include "runtime/trace.h"

/* ---- the target ------------------------------------------------------------------------------------------------ */

static weft_status *plan(void *ctx, weft_arena *arena, const hlo_instr *instr, low_plan *out)
{
  const gpu_maker *maker = gpu_find_maker(instr->op);

  return maker && maker->plan ? maker->plan(ctx, arena, instr, out) : NULL;
}

/* The stream runs the steps in the order in which they are queued, and each step may use the whole device. */
static double cost_ns(void *ctx, const hlo_instr *instr)
{
  (void)ctx, (void)instr;
  return 0;
}

static weft_status *reducer(void *ctx, const hlo_computation *computation, weft_reducer *out_reducer)
{
  (void)ctx, (void)out_reducer;
  return WEFT_ERR(UNIMPLEMENTED, "reduction by \"%s\" on a GPU", computation->name);
}

/* Makes the thunk of a step that the evaluator does on the host; `why` says why there is no kernel. */
static weft_status *make_on_host(low_step *step, const weft_status *why, rt_thunk **out)
{
  WEFT_LOG("gpu", INFO, "\"%s\" (%s) runs on the host: %s", step->instr->name, hlo_opcode_name(step->instr->op),
           weft_status_message(why));
  WEFT_TRY(low_evaluate_make(step, out));
  (*out)->detail = weft_arena_strdup(step->arena, weft_status_message(why));
  WEFT_TRY_ALLOC((*out)->detail);
  return NULL;
}

static weft_status *make(void *ctx, low_step *step, rt_thunk **out)
{
  const gpu_maker *maker = gpu_find_maker(step->instr->op);
  hlo_opcode op = step->instr->op;
  char what[256];

  (void)ctx;
  weft_status *st = step->plan->error ? weft_status_dup(step->plan->error)
                    : maker           ? maker->make(step, out)
                                      : WEFT_ERR(UNIMPLEMENTED, "%s has no kernel", hlo_opcode_name(op));
  if (weft_status_code(st) != WEFT_UNIMPLEMENTED) return st;
  /* the evaluator does not know what a custom call means, and has no devices */
  if (op == HLO_CUSTOM_CALL || hlo_opcode_is_collective(op) || hlo_opcode_is_async(op) ||
      hlo_opcode_has_side_effect(op))
    return weft_status_note(st, __FILE__, __LINE__, "on a GPU: %s", hlo_describe(step->instr, what, sizeof what));
  weft_status *made = make_on_host(step, st, out);
  weft_status_free(st);
  return made;
}

/* ---- the compiler ---------------------------------------------------------------------------------------------- */

static void free_code(void *code) { gpu_code_free(code); }

/* Marks the local devices of the program, by ordinal. */
static void mark_devices(const weft_platform *platform, const hlo_module *module, const weft_compile_options *options,
                         bool *on_device)
{
  int64_t replicas = options->replica_count > 0 ? options->replica_count : WEFT_MAX(module->replica_count, 1);
  int64_t partitions = options->partition_count > 0 ? options->partition_count : WEFT_MAX(module->num_partitions, 1);

  for (int64_t i = 0; i < replicas * partitions; i++) {
    if (!options->device_assignment && i >= platform->device_count) return;
    const weft_device *device = options->device_assignment
                                  ? weft_platform_device_by_id(platform, options->device_assignment[i])
                                  : weft_platform_device(platform, (int)i);
    if (device) on_device[weft_device_ordinal(device)] = true;
  }
}

static weft_status *make_code(gpu_platform *platform, const weft_compile_options *options, const gpu_saved_code *saved,
                              rt_compiled *out)
{
  bool on_device[WEFT_DEVICES_A_PROCESS] = {false};
  gpu_code *code;

  mark_devices(&platform->base, out->module, options, on_device);
  WEFT_TRY(gpu_code_new(platform, out->module, options, on_device, saved, &code));
  out->code = code;
  out->free_code = free_code;
  out->code_bytes = code->bytes;
  return NULL;
}

static int threads_of(const gpu_platform *platform) { return rt_pool_threads(platform->base.pool); }

typedef weft_status *opener(gpu_device *gpu);

static weft_status *open_solver(gpu_device *gpu)
{
  gpu_solver *solver;

  return gpu_solver_of(gpu, &solver);
}

static weft_status *open_blas(gpu_device *gpu)
{
  gpu_blas *blas;

  return gpu_blas_of(gpu, &blas);
}

static weft_status *open_dnn(gpu_device *gpu)
{
  gpu_dnn *dnn;

  return gpu_dnn_of(gpu, &dnn);
}

/* Whether a library is installed; asked only if the module has an instruction of the opcode. */
static weft_status *find_library(gpu_platform *platform, const hlo_module *module, hlo_opcode op, opener *open,
                                 bool *out_is_there)
{
  bool is_wanted = false;

  *out_is_there = false;
  HLO_FOREACH_COMPUTATION(comp, module)
    HLO_FOREACH(instr, comp) is_wanted |= instr->op == op;
  if (!is_wanted) return NULL;
  WEFT_TRY(gpu_enter(&platform->gpus[0]));
  weft_status *st = open(&platform->gpus[0]);
  gpu_leave();
  *out_is_there = !st;
  if (weft_status_code(st) != WEFT_UNAVAILABLE) return st;
  WEFT_LOG("gpu", INFO, "%s without a library: %s", hlo_opcode_name(op), weft_status_message(st));
  weft_status_free(st);
  return NULL;
}

static weft_status *optimise(gpu_platform *platform, const weft_compile_options *options, rt_compiled *out)
{
  pass_options passes = {.fold_limit_bytes = 1 << 20, .num_threads = threads_of(platform),
                         .target = platform->gpus[0].target, .dump_dir = options->dump_dir,
                         .rounds_narrow = options->no_excess_precision};
  int64_t begin = weft_now_ns();

  WEFT_TRY(find_library(platform, out->module, HLO_CHOLESKY, open_solver, &passes.has_solver));
  WEFT_TRY(find_library(platform, out->module, HLO_DOT, open_blas, &passes.has_blas));
  WEFT_TRY(find_library(platform, out->module, HLO_CONVOLUTION, open_dnn, &passes.has_dnn));
  if (!passes.dump_dir && *platform->settings.dump_hlo) passes.dump_dir = platform->settings.dump_hlo;
  WEFT_TRY(pass_run(&pass_gpu_pipeline, out->module, &passes, options->pass_observer, options->observer_ctx));
  if (rt_trace_on) rt_trace_event("compile", "passes", 0, begin);
  return NULL;
}

/* Makes kernels, unless they were saved, and thunks for a module that has been through the passes. */
static weft_status *lower(gpu_platform *platform, const weft_compile_options *options, const gpu_saved_code *saved,
                          rt_compiled *out)
{
  gpu_target gpu = {.platform = platform, .machine = platform->gpus[0].target};
  low_target target = {.ctx = &gpu, .threads = threads_of(platform), .plan = plan,
                       .cost_ns = cost_ns, .make = make, .reducer = reducer};
  int64_t begin = weft_now_ns();
  rt_stretcher stretcher;

  WEFT_TRY(make_code(platform, options, saved, out));
  if (rt_trace_on) rt_trace_event("compile", "kernels", 0, begin);
  begin = weft_now_ns();
  gpu.code = out->code;
  target.registers = (platform->settings.collective_memory || options->collective_memory) &&
                     gpu_communicator_registers(&platform->base);
  if (gpu_stretcher_init(&stretcher, platform, options, out->module)) target.stretcher = &stretcher;
  WEFT_TRY(low_lower(&platform->base, &target, options, out));
  if (rt_trace_on) rt_trace_event("compile", "plan and thunks", 0, begin);
  return NULL;
}

weft_status *gpu_compile(weft_platform *platform, hlo_module *module, const weft_compile_options *options,
                         weft_executable **out_executable)
{
  rt_compiled out = {.module = module};
  weft_status *st = optimise((gpu_platform *)platform, options, &out);

  if (!st) st = lower((gpu_platform *)platform, options, NULL, &out);
  return rt_executable_finish(platform, &out, options, st, out_executable);
}

/* ---- saved programs -------------------------------------------------------------------------------------------- */

/* A saved program has PTX and machine code. Machine code that does not fit the devices or the driver is made again from
 * the PTX. */

weft_status *gpu_save(const weft_executable *exe, bool no_excess_precision, const char *cpus, void **out_data,
                      size_t *out_size)
{
  (void)no_excess_precision;
  *out_data = NULL;
  if (cpus)
    return WEFT_ERR(INVALID_ARGUMENT, "code for \"%.60s\": platform cuda saves programs for its own device", cpus);
  return gpu_code_save(weft_executable_code(exe), out_data, out_size);
}

weft_status *gpu_load(weft_platform *platform, hlo_module *module, const void *code, size_t size,
                      const weft_compile_options *options, weft_executable **out_executable)
{
  rt_compiled out = {.module = module};
  weft_status *st = lower((gpu_platform *)platform, options, &(gpu_saved_code){code, size}, &out);

  return rt_executable_finish(platform, &out, options, st, out_executable);
}
