/* cpu/compiler.c -- compiles HLO to an executable: the CPU's passes and its kernels. */
#include <config.h>

#include "codegen/model/processor.h"
#include "cpu/conv_amx.h"
#include "cpu/cpu_internal.h"
#include "cpu/platform.h"
#include "cpu/topology.h"
#include "passes/pass.h"
#include "runtime/trace.h"

static weft_status *read_options(bool no_excess_precision, gen_options *out)
{
  WEFT_TRY(gen_options_load(out));
  out->allow_excess_precision = !no_excess_precision;
  return NULL;
}

static weft_status *make_code(const weft_compile_options *options, const hlo_module *module, gen_code **out_code)
{
  gen_options gen;

  WEFT_TRY(read_options(options->no_excess_precision, &gen));
  gen.keep_text = options->keep_text;
  return gen_compile(module, &gen, out_code);
}

static weft_status *compile(cpu_platform *platform, const weft_compile_options *options, cpu_adapt *adapt,
                            rt_compiled *out)
{
  pass_options passes = {.fold_limit_bytes = 1 << 20, .num_threads = rt_pool_threads(platform->base.pool), .target = &gen_cpu_target,
                         .bf16_features_last = cpu_conv_amx_fits(),
                         .f32_features_last = gen_this_processor.avx512, .dump_dir = options->dump_dir};
  gen_code *code;
  int64_t begin = weft_now_ns();

  if (!passes.dump_dir && *platform->settings.dump_hlo) passes.dump_dir = platform->settings.dump_hlo;
  WEFT_TRY(pass_run(&pass_cpu_pipeline, out->module, &passes, options->pass_observer, options->observer_ctx));
  if (rt_trace_on) rt_trace_event("compile", "passes", 0, begin);
  begin = weft_now_ns();
  WEFT_TRY(make_code(options, out->module, &code));
  if (rt_trace_on) rt_trace_event("compile", "kernels", 0, begin);
  return cpu_lower(platform, code, options, adapt, out);
}

weft_status *cpu_compile_adapted(weft_platform *platform, hlo_module *module, const weft_compile_options *options,
                                 cpu_adapt *adapt, weft_executable **out_executable)
{
  rt_compiled out = {.module = module};
  weft_status *st = compile((cpu_platform *)platform, options, adapt, &out);

  return rt_executable_finish(platform, &out, options, st, out_executable);
}

weft_status *cpu_compile(weft_platform *platform, hlo_module *module, const weft_compile_options *options,
                         weft_executable **out_executable)
{
  return cpu_compile_adapted(platform, module, options, NULL, out_executable);
}

weft_status *cpu_save(const weft_executable *exe, bool no_excess_precision, const char *cpus, void **out_data,
                      size_t *out_size)
{
  gen_options gen;

  *out_data = NULL;
  WEFT_TRY(read_options(no_excess_precision, &gen));
  return gen_code_save(weft_executable_module(exe), weft_executable_code(exe), &gen, cpus, out_data, out_size);
}

static const gen_code *kernels(const weft_executable *exe) { return weft_executable_code(exe); }

static weft_status *create(const weft_platform_options *wanted, weft_platform **out_platform)
{
  return cpu_create(&cpu_platform_ops, wanted, out_platform);
}

const weft_platform_ops cpu_platform_ops = {
  .size = sizeof(weft_platform_ops), .name = "cpu", .client_name = "cpu", .device_kind = CPU_DEVICE_KIND,
  .devices_by_request = true,
  .create = create, .destroy = cpu_destroy, .device = &cpu_device_ops,
  .compile = cpu_compile, .describe = cpu_topology_print, .save = cpu_save, .load = cpu_load, .kernels = kernels,
};
