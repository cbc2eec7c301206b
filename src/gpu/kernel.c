/* gpu/kernel.c -- making and loading kernels (kernel.h). */
#include <config.h>

#include "gpu/kernel.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "passes/util.h"

/* ---- which kernels --------------------------------------------------------------------------------------------- */

static gpu_kernel *find_equal(gpu_code *code, const hlo_instr *instr, uint64_t hash)
{
  if (instr->op != HLO_FUSION) return NULL;
  for (int i = 0; i < code->kernel_count; i++) {
    const gpu_kernel *kernel = &code->kernels[i];
    if (kernel->fusion->op == HLO_FUSION && kernel->hash == hash && gen_fusion_equal(kernel->fusion, instr))
      return &code->kernels[i];
  }
  return NULL;
}

/* Lists the steps that have kernels, of the computations that control flow runs; equal fusions share a kernel. */
static weft_status *list_kernels(gpu_code *code, const hlo_module *module, weft_arena *scratch)
{
  pass_comps comps;
  int count = 0;

  WEFT_TRY(pass_sequential(module, scratch, &comps));
  for (int i = 0; i < comps.count; i++)
    HLO_FOREACH(instr, comps.v[i]) count += gen_nvptx_takes(instr);
  code->kernels = WEFT_ARENA_ARRAY(&code->arena, gpu_kernel, count);
  code->of_instr = WEFT_ARENA_ARRAY(&code->arena, gpu_kernel *, module->next_id);
  WEFT_TRY_ALLOC(code->kernels);
  WEFT_TRY_ALLOC(code->of_instr);
  for (int i = 0; i < comps.count; i++)
    HLO_FOREACH(instr, comps.v[i]) {
      if (!gen_nvptx_takes(instr)) continue;
      uint64_t hash = instr->op == HLO_FUSION ? hlo_computation_hash(instr->called[0]) : 0;
      gpu_kernel *kernel = find_equal(code, instr, hash);
      if (!kernel) {
        kernel = &code->kernels[code->kernel_count++];
        *kernel = (gpu_kernel){.fusion = instr, .hash = hash};
      }
      code->of_instr[instr->id] = kernel;
    }
  return NULL;
}

/* ---- PTX ------------------------------------------------------------------------------------------------------- */

typedef struct making {
  gpu_code *code;
  const gen_options *options;
  const char *processor;
} making;

/* Compiles one kernel; its error, whatever it is, becomes `refused`. */
static void make_one(void *ctx, int64_t index)
{
  const making *m = ctx;
  gpu_kernel *kernel = &m->code->kernels[index];
  gen_artefact *artefact = &kernel->artefact;

  kernel->refused = gen_nvptx_compile(kernel->fusion, m->processor, m->options, artefact);
  if (kernel->refused || artefact->arg_count + GEN_LAUNCH_NUMBERS <= GPU_MOST_PARAMETERS) return;
  kernel->refused = WEFT_ERR(UNIMPLEMENTED, "a kernel with %d arguments", artefact->arg_count);
  gen_artefact_fini(artefact);
}

static weft_status *make_kernels(gpu_code *code, const weft_compile_options *options, const char *processor)
{
  gen_options gen;

  WEFT_TRY(gen_options_load(&gen));
  gen.keep_text = options->keep_text;
  gen.allow_excess_precision = !options->no_excess_precision;
  rt_parallel_for(code->platform->base.pool, code->kernel_count, make_one, &(making){code, &gen, processor});
  for (int i = 0; i < code->kernel_count; i++) {
    gpu_kernel *kernel = &code->kernels[i];
    if (kernel->refused && weft_status_code(kernel->refused) != WEFT_UNIMPLEMENTED)
      return weft_status_note(WEFT_MOVE(kernel->refused), __FILE__, __LINE__, "kernel of \"%s\"", kernel->fusion->name);
    if (!kernel->refused) code->bytes += (int64_t)strlen(kernel->artefact.text);
  }
  return NULL;
}

/* ---- loading --------------------------------------------------------------------------------------------------- */

static weft_status *load_module(const char *text, wcu_module *out_module)
{
  enum { LOG_BYTES = 4096 };
  WEFT_AUTO_STR log = calloc(1, LOG_BYTES);
  wcu_jit_option names[] = {WCU_JIT_ERROR_LOG_BUFFER, WCU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void *values[] = {log, (void *)(uintptr_t)LOG_BYTES};

  WEFT_TRY_ALLOC(log);
  weft_status *st = GPU_CALL(cuModuleLoadDataEx, out_module, text, WEFT_COUNT(names), names, values);
  if (st && *log) st = weft_status_note(st, __FILE__, __LINE__, "%s", log);
  return st;
}

static weft_status *load_kernel(gpu_code *code, gpu_kernel *kernel, int ordinal)
{
  const gen_artefact *artefact = &kernel->artefact;
  int launches = artefact->launch_count;

  if (kernel->refused || launches == 0) return NULL;
  if (!kernel->modules) {
    kernel->modules = WEFT_ARENA_ARRAY(&code->arena, wcu_module, code->platform->gpu_count);
    kernel->functions = WEFT_ARENA_ARRAY(&code->arena, wcu_function, code->platform->gpu_count * launches);
    if (!kernel->modules || !kernel->functions) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  }
  WEFT_TRY(load_module(artefact->text, &kernel->modules[ordinal]));
  for (int i = 0; i < launches; i++)
    WEFT_TRY(GPU_CALL(cuModuleGetFunction, &kernel->functions[ordinal * launches + i], kernel->modules[ordinal],
                      artefact->launches[i].entry));
  return NULL;
}

/* All kernels are loaded before the program runs: a load may wait for kernels that run. */
static weft_status *load_kernels(gpu_code *code, int ordinal)
{
  weft_status *st = NULL;

  WEFT_TRY(gpu_enter(&code->platform->gpus[ordinal]));
  for (int i = 0; i < code->kernel_count && !st; i++) {
    st = load_kernel(code, &code->kernels[i], ordinal);
    if (st)
      st = weft_status_note(st, __FILE__, __LINE__, "loading the kernel of \"%s\" on device %d",
                            code->kernels[i].fusion->name, ordinal);
  }
  gpu_leave();
  return st;
}

/* ---- the whole ------------------------------------------------------------------------------------------------- */

static weft_status *fill(gpu_code *code, const hlo_module *module, const weft_compile_options *options,
                         const bool *on_device)
{
  weft_arena scratch;

  weft_arena_init(&scratch);
  weft_status *st = list_kernels(code, module, &scratch);
  weft_arena_fini(&scratch);
  WEFT_TRY(st);
  /* the devices of a machine are taken to be alike: the first one's processor is all's */
  WEFT_TRY(make_kernels(code, options, code->platform->gpus[0].target->name));
  for (int d = 0; d < code->platform->gpu_count; d++)
    if (on_device[d]) WEFT_TRY(load_kernels(code, d));
  return NULL;
}

weft_status *gpu_code_new(gpu_platform *platform, const hlo_module *module, const weft_compile_options *options,
                          const bool *on_device, gpu_code **out_code)
{
  gpu_code *code = calloc(1, sizeof *code);

  *out_code = NULL;
  WEFT_TRY_ALLOC(code);
  weft_arena_init(&code->arena);
  code->platform = platform;
  code->program = module->name;
  weft_status *st = fill(code, module, options, on_device);
  if (st) gpu_code_free(code);
  else *out_code = code;
  return st;
}

static void unload(gpu_code *code, int ordinal)
{
  weft_status *st = gpu_enter(&code->platform->gpus[ordinal]);

  for (int i = 0; !st && i < code->kernel_count; i++)
    if (code->kernels[i].modules && code->kernels[i].modules[ordinal])
      gpu_cu.cuModuleUnload(code->kernels[i].modules[ordinal]);
  if (!st) gpu_leave();
  weft_status_ignore(st);
}

void gpu_code_free(gpu_code *code)
{
  if (!code) return;
  for (int d = 0; d < code->platform->gpu_count; d++) unload(code, d);
  for (int i = 0; i < code->kernel_count; i++) {
    gen_artefact_fini(&code->kernels[i].artefact);
    weft_status_free(code->kernels[i].refused);
  }
  weft_arena_fini(&code->arena);
  free(code);
}
