/* cpu/cpu_internal.h -- the CPU platform's own data. */
#ifndef WEFT_CPU_CPU_INTERNAL_H
#define WEFT_CPU_CPU_INTERNAL_H

#include "cpu/makers.h"
#include "runtime/runtime_internal.h"

/* Settings from the environment (their table is in platform.c). */
typedef struct cpu_settings {
  int64_t devices, threads, cache_bytes, packed_bytes;
  bool numa, huge_pages, flush_denormals, perf_map, onednn;
  const char *pin, *dump_hlo; /* dump_hlo "": nowhere */
} cpu_settings;

typedef struct cpu_platform {
  weft_platform base;      /* first */
  cpu_settings settings;
  struct cpu_places *places; /* NULL: there is one node, and no worker is bound */
} cpu_platform;

/* Thunks that every program may have: cpu/thunks.c. */
WEFT_NODISCARD weft_status *cpu_kernel_thunk_new(low_step *step, const gen_kernel *kernel, rt_thunk **out_thunk);
WEFT_NODISCARD weft_status *cpu_copy_thunk_new(low_step *step, rt_thunk **out_thunk);
WEFT_NODISCARD weft_status *cpu_id_thunk_new(low_step *step, rt_thunk **out_thunk); /* replica-id, partition-id */

/* Appends the names of the module's kernels to /tmp/perf-PID.map. Thread-safe. A failure is logged. */
void cpu_perf_map_add(const hlo_module *module, const gen_code *code);

/* Estimated nanoseconds of one step on one thread. */
double cpu_cost_ns(const cpu_target *target, const hlo_instr *instr);

/* The entries of the platform's table (runtime/platform.h). Those of compiler.c need LLVM, all others do not. `ops` is
 * the table that the new platform has. */
WEFT_NODISCARD weft_status *cpu_create(const weft_platform_ops *ops, const weft_platform_options *wanted,
                                       weft_platform **out_platform);
void cpu_destroy(weft_platform *platform);
extern const weft_device_ops cpu_device_ops;
#define CPU_DEVICE_KIND "Weft CPU" /* jax.export looks for "cpu" in it, in any case */
WEFT_NODISCARD weft_status *cpu_compile(weft_platform *platform, hlo_module *module,
                                        const weft_compile_options *options, weft_executable **out_executable);
WEFT_NODISCARD weft_status *cpu_save(const weft_executable *exe, bool no_excess_precision, const char *cpus,
                                     void **out_data, size_t *out_size);
WEFT_NODISCARD weft_status *cpu_load(weft_platform *platform, hlo_module *module, const void *code, size_t size,
                                     const weft_compile_options *options, weft_executable **out_executable);

/* Compile and load for a platform that is built on the CPU's kernels: `adapt` may put that platform's own functions
 * into the target. */
typedef void cpu_adapt(low_target *target);
WEFT_NODISCARD weft_status *cpu_compile_adapted(weft_platform *platform, hlo_module *module,
                                                const weft_compile_options *options, cpu_adapt *adapt,
                                                weft_executable **out_executable);
WEFT_NODISCARD weft_status *cpu_load_adapted(weft_platform *platform, hlo_module *module, const void *code, size_t size,
                                             const weft_compile_options *options, cpu_adapt *adapt,
                                             weft_executable **out_executable);

/* Plans out->module and makes its program with the kernels of `code`. Takes `code`, also on failure, and stores it in
 * out->code. */
WEFT_NODISCARD weft_status *cpu_lower(cpu_platform *platform, gen_code *code, const weft_compile_options *options,
                                      cpu_adapt *adapt, rt_compiled *out);

#endif
