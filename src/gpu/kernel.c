/* gpu/kernel.c -- making and loading kernels (kernel.h). */
#include <config.h>

#include "gpu/kernel.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/wire.h"
#include "gpu/assemble.h"
#include "hlo/attributes.h"
#include "passes/util.h"

/* ---- which kernels --------------------------------------------------------------------------------------------- */

/* Can code generation see no more of the operand than its shape? */
static bool is_opaque(const hlo_instr *operand)
{
  switch (operand->op) {
  case HLO_PARAMETER:
  case HLO_FUSION:
  case HLO_GET_TUPLE_ELEMENT:
  case HLO_SORT:
  case HLO_REDUCE_WINDOW: return true;
  default: return false;
  }
}

/* Do two steps that are no fusions have the same kernel? */
static bool steps_equal(const hlo_instr *a, const hlo_instr *b)
{
  if (!hlo_shape_equal(a->shape, b->shape, true) || a->operand_count != b->operand_count ||
      a->called_count != b->called_count || !hlo_ints_equal(a->dims, b->dims) || !hlo_same_attributes(a, b))
    return false;
  for (int i = 0; i < a->called_count; i++)
    if (!hlo_computation_equal(a->called[i], b->called[i])) return false;
  for (int i = 0; i < a->operand_count; i++) {
    const hlo_instr *x = a->operands[i], *y = b->operands[i];
    bool same = is_opaque(x) && is_opaque(y) ? hlo_shape_equal(x->shape, y->shape, true) : hlo_instr_equal(x, y);
    if (!same) return false;
  }
  return true;
}

static gpu_kernel *find_equal(gpu_code *code, const hlo_instr *instr, uint64_t hash)
{
  for (int i = 0; i < code->kernel_count; i++) {
    const gpu_kernel *kernel = &code->kernels[i];
    if (kernel->fusion->op != instr->op || kernel->hash != hash) continue;
    if (instr->op == HLO_FUSION ? gen_fusion_equal(kernel->fusion, instr) : steps_equal(kernel->fusion, instr))
      return &code->kernels[i];
  }
  return NULL;
}

static int kernels_in(const hlo_computation *comp)
{
  int count = 0;

  HLO_FOREACH(instr, comp) count += gen_nvptx_takes(instr);
  return count;
}

static void list_computation(gpu_code *code, const hlo_computation *comp)
{
  HLO_FOREACH(instr, comp) {
    if (!gen_nvptx_takes(instr)) continue;
    uint64_t hash = instr->called_count ? hlo_computation_hash(instr->called[0]) : 0;
    gpu_kernel *kernel = find_equal(code, instr, hash);
    if (!kernel) {
      kernel = &code->kernels[code->kernel_count++];
      *kernel = (gpu_kernel){.fusion = instr, .hash = hash};
    }
    code->of_instr[instr->id] = kernel;
  }
}

/* The entry and what control flow runs, in an order that depends on the instructions alone: a module that was written
 * and read again has the same order. */
static weft_status *computations_of(const hlo_module *module, weft_arena *scratch, pass_comps *out_comps)
{
  bool *seen = WEFT_ARENA_ARRAY(scratch, bool, module->next_computation_id);
  hlo_computation **v = WEFT_ARENA_ARRAY(scratch, hlo_computation *, module->next_computation_id);
  int count = 0;

  WEFT_TRY_ALLOC(seen && v);
  v[count++] = module->entry;
  seen[module->entry->id] = true;
  for (int i = 0; i < count; i++)
    HLO_FOREACH(instr, v[i]) {
      if (hlo_calls_are_embedded(instr->op)) continue;
      for (int k = 0; k < instr->called_count; k++) {
        if (seen[instr->called[k]->id]) continue;
        seen[instr->called[k]->id] = true;
        v[count++] = instr->called[k];
      }
    }
  *out_comps = (pass_comps){count, v};
  return NULL;
}

/* Lists the steps that have kernels, of the computations that control flow runs; equal ones share a kernel. */
static weft_status *list_kernels(gpu_code *code, const hlo_module *module, weft_arena *scratch)
{
  pass_comps comps;
  int count = 0;

  WEFT_TRY(computations_of(module, scratch, &comps));
  for (int i = 0; i < comps.count; i++) count += kernels_in(comps.v[i]);
  code->kernels = WEFT_ARENA_ARRAY(&code->arena, gpu_kernel, count);
  code->of_instr = WEFT_ARENA_ARRAY(&code->arena, gpu_kernel *, module->next_id);
  WEFT_TRY_ALLOC(code->kernels);
  WEFT_TRY_ALLOC(code->of_instr);
  for (int i = 0; i < comps.count; i++) list_computation(code, comps.v[i]);
  return NULL;
}

/* ---- PTX ------------------------------------------------------------------------------------------------------- */

typedef struct making {
  gpu_code *code;
  const gen_options *options;
  gen_target target;
} making;

/* Compiles one kernel. Any error becomes `refused`. */
static void make_one(void *ctx, int64_t index)
{
  const making *m = ctx;
  gpu_kernel *kernel = &m->code->kernels[index];
  gen_artefact *artefact = &kernel->artefact;

  kernel->refused = gen_nvptx_compile_for(kernel->fusion, &m->target, m->options, artefact);
  if (kernel->refused || artefact->arg_count + GEN_LAUNCH_NUMBERS <= GPU_MOST_PARAMETERS) return;
  kernel->refused = WEFT_ERR(UNIMPLEMENTED, "a kernel with %d arguments", artefact->arg_count);
  gen_artefact_fini(artefact);
}

static weft_status *make_kernels(gpu_code *code, const weft_compile_options *options)
{
  const gpu_device *gpu = &code->platform->gpus[0];
  gen_options gen;
  making m = {.code = code, .options = &gen, .target = *gpu->target};

  m.target.most_shared_bytes = WEFT_MIN(m.target.most_shared_bytes, gpu->shared_bytes);
  WEFT_TRY(gen_options_load(&gen));
  gen.keep_text = options->keep_text;
  gen.allow_excess_precision = !options->no_excess_precision;
  rt_parallel_for(code->platform->base.pool, code->kernel_count, make_one, &m);
  for (int i = 0; i < code->kernel_count; i++) {
    gpu_kernel *kernel = &code->kernels[i];
    if (kernel->refused && weft_status_code(kernel->refused) != WEFT_UNIMPLEMENTED)
      return weft_status_note(WEFT_MOVE(kernel->refused), __FILE__, __LINE__, "kernel of \"%s\"", kernel->fusion->name);
    if (!kernel->refused) code->bytes += (int64_t)strlen(kernel->artefact.text);
  }
  return NULL;
}

/* ---- as bytes, for files ----------------------------------------------------------------------------------------
 *
 *   code    := target, kernels, kernel*, what is kept (gpu/kept.h)
 *   kernel  := the reason why there is none, or "" and then:
 *              strategy, arguments, bytes of scratch, launches, launch*, PTX
 *   launch  := entry, blocks, threads, bytes of dynamic shared memory, numbers, number, number, copy_from, copy_to
 *
 * Kernels are in the order of list_kernels.  The bytes may come from an untrusted source: what the launches do with
 * memory of the host is checked here, what the kernels do with the device's memory cannot be checked. */

enum { LEAST_LAUNCH_BYTES = 72, LEAST_KERNEL_BYTES = 8, MOST_LAUNCH_THREADS = 1024 };

static void put_artefact(weft_writer *w, const gen_artefact *a)
{
  weft_put_u64(w, (uint64_t)a->strategy);
  weft_put_u64(w, (uint64_t)a->arg_count);
  weft_put_u64(w, (uint64_t)a->scratch_bytes);
  weft_put_u64(w, (uint64_t)a->launch_count);
  for (int i = 0; i < a->launch_count; i++) {
    const gen_launch *launch = &a->launches[i];
    weft_put_text(w, launch->entry);
    weft_put_u64(w, (uint64_t)launch->blocks);
    weft_put_u64(w, (uint64_t)launch->threads);
    weft_put_u64(w, (uint64_t)launch->shared_bytes);
    weft_put_u64(w, (uint64_t)launch->number_count);
    for (int k = 0; k < GEN_LAUNCH_NUMBERS; k++) weft_put_u64(w, (uint64_t)launch->numbers[k]);
    weft_put_u64(w, (uint64_t)(int64_t)launch->copy_from);
    weft_put_u64(w, (uint64_t)(int64_t)launch->copy_to);
  }
  weft_put_text(w, a->text);
}

weft_status *gpu_code_save(const gpu_code *code, void **out_data, size_t *out_size)
{
  weft_writer w = {0};

  weft_put_text(&w, code->target);
  weft_put_u64(&w, (uint64_t)code->kernel_count);
  for (int i = 0; i < code->kernel_count; i++) {
    const gpu_kernel *kernel = &code->kernels[i];
    weft_put_text(&w, kernel->refused ? weft_status_message(kernel->refused) : "");
    if (!kernel->refused) put_artefact(&w, &kernel->artefact);
  }
  gpu_kept_put(code->kept, &w);
  weft_status *st = weft_writer_take(&w, out_data, out_size);
  weft_writer_fini(&w);
  return st;
}

/* A number in [least, most]; otherwise the reader fails. */
static int64_t get_within(weft_reader *r, int64_t least, int64_t most)
{
  int64_t n = (int64_t)weft_get_u64(r);

  if (n >= least && n <= most) return n;
  r->failed = true;
  return least;
}

static void get_launch(weft_reader *r, int arg_count, weft_arena *scratch, gen_launch *out)
{
  const char *entry = weft_get_text(r, scratch);

  if (strlen(entry) >= sizeof out->entry) r->failed = true;
  else strcpy(out->entry, entry);
  out->blocks = get_within(r, 0, INT32_MAX);
  out->threads = (int)get_within(r, 1, MOST_LAUNCH_THREADS);
  out->shared_bytes = (int)get_within(r, 0, INT32_MAX);
  out->number_count = (int)get_within(r, 0, GEN_LAUNCH_NUMBERS);
  for (int k = 0; k < GEN_LAUNCH_NUMBERS; k++) out->numbers[k] = (int64_t)weft_get_u64(r);
  out->copy_from = (int)get_within(r, -1, arg_count - 1);
  out->copy_to = (int)get_within(r, out->copy_from < 0 ? -1 : 0, arg_count - 1);
}

/* The pointers that a step has for its kernel, without the scratch. */
static int leaves_of(const hlo_instr *instr)
{
  int count = hlo_shape_leaf_count(instr->shape);

  for (int i = 0; i < instr->operand_count; i++) count += hlo_shape_leaf_count(instr->operands[i]->shape);
  return count;
}

static weft_status *get_artefact(weft_reader *r, const hlo_instr *instr, weft_arena *scratch, gen_artefact *out)
{
  int leaves = leaves_of(instr);

  out->strategy = (gen_strategy)get_within(r, 0, GEN_STRATEGY_COUNT - 1);
  out->arg_count = (int)get_within(r, leaves, leaves + 1);
  out->scratch_bytes = get_within(r, 0, INT64_MAX / 4);
  if ((out->scratch_bytes > 0) != (out->arg_count > leaves) ||
      out->arg_count + GEN_LAUNCH_NUMBERS > GPU_MOST_PARAMETERS)
    r->failed = true;
  out->launch_count = weft_get_count(r, LEAST_LAUNCH_BYTES);
  out->launches = calloc((size_t)WEFT_MAX(out->launch_count, 1), sizeof *out->launches);
  WEFT_TRY_ALLOC(out->launches);
  for (int i = 0; i < out->launch_count; i++) get_launch(r, out->arg_count, scratch, &out->launches[i]);
  out->text = strdup(weft_get_text(r, scratch));
  WEFT_TRY_ALLOC(out->text);
  return NULL;
}

/* A kernel's blocks may want more shared memory than this machine's devices have, although these run its code. */
static weft_status *check_shared(const gpu_code *code, const gpu_kernel *kernel)
{
  int64_t have = code->platform->gpus[0].shared_bytes;

  for (int k = 0; k < kernel->artefact.launch_count; k++) {
    int wanted = kernel->artefact.launches[k].shared_bytes;
    if (wanted > have)
      return WEFT_ERR(FAILED_PRECONDITION,
                      "the program was saved for a device whose blocks have more shared memory: the kernel of \"%s\" "
                      "takes %d bytes, the devices here have %lld",
                      kernel->fusion->name, wanted, (long long)have);
  }
  return NULL;
}

/* Reads the kernels that gpu_code_save has written. */
static weft_status *read_kernels(gpu_code *code, const void *data, size_t size, weft_arena *scratch)
{
  weft_reader r = {.at = data, .end = (const char *)data + size};
  const char *target = weft_get_text(&r, scratch);

  if (!r.failed && strcmp(target, code->target) != 0)
    return WEFT_ERR(FAILED_PRECONDITION, "the program was saved for \"%.32s\", the devices here are %s", target,
                    code->target);
  int count = weft_get_count(&r, LEAST_KERNEL_BYTES);
  if (count != code->kernel_count) r.failed = true;
  for (int i = 0; !r.failed && i < count; i++) {
    gpu_kernel *kernel = &code->kernels[i];
    const char *refused = weft_get_text(&r, scratch);
    if (*refused) kernel->refused = weft_status_new(WEFT_UNIMPLEMENTED, __FILE__, __LINE__, "%s", refused);
    else if (!r.failed) WEFT_TRY(get_artefact(&r, kernel->fusion, scratch, &kernel->artefact));
    if (!r.failed) WEFT_TRY(check_shared(code, kernel));
    if (!kernel->refused && !r.failed) code->bytes += (int64_t)strlen(kernel->artefact.text);
  }
  if (!r.failed) WEFT_TRY(gpu_kept_get(code->kept, &r));
  return r.failed || r.at != r.end ? WEFT_ERR(INVALID_ARGUMENT, "the kernels of a saved program are damaged") : NULL;
}

/* ---- machine code ---------------------------------------------------------------------------------------------- */

typedef struct assembling {
  gpu_code *code;
  const gpu_device *gpu;      /* a device that the code is for */
  gpu_assembler assembler, driver;
  weft_status **errors;       /* by kernel */
} assembling;

static bool name_image(const assembling *a, const gpu_assembler *assembler, const char *ptx, char *name)
{
  static const char about[] = "machine code of PTX, -O3";
  const int numbers[] = {gpu_cu.version, a->gpu->capability};
  const gen_cache_part parts[] = {
    {about, sizeof about}, {assembler->name, strlen(assembler->name)}, {numbers, sizeof numbers}, {ptx, strlen(ptx)}};

  return gen_cache_name(parts, (int)WEFT_COUNT(parts), name);
}

/* Finds the kernel's machine code, or has it made. */
static weft_status *assemble_by(const assembling *a, const gpu_assembler *assembler, gpu_kernel *kernel)
{
  const char *ptx = kernel->artefact.text;
  void *made;
  size_t size;

  if (!name_image(a, assembler, ptx, kernel->image_name)) return WEFT_ERR(INTERNAL, "no SHA-256 for machine code");
  kernel->image = gpu_kept_find(a->code->kept, kernel->image_name, &size);
  if (kernel->image) return NULL;
  if (assembler->kind == GPU_BY_DRIVER) WEFT_TRY(gpu_enter(a->gpu));
  weft_status *st = gpu_assemble(assembler, a->gpu->capability, ptx, &made, &size);
  if (assembler->kind == GPU_BY_DRIVER) gpu_leave();
  WEFT_TRY(st);
  kernel->image = gpu_kept_add(a->code->kept, kernel->image_name, made, size);
  free(made);
  return kernel->image ? NULL : WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
}

/* If another assembler fails, for example because the device is newer than the assembler, the driver makes the code. */
static void assemble_one(void *ctx, int64_t index)
{
  const assembling *a = ctx;
  gpu_kernel *kernel = &a->code->kernels[index];

  if (kernel->refused || kernel->artefact.launch_count == 0) return;
  weft_status *st = assemble_by(a, &a->assembler, kernel);
  if (st && a->assembler.kind != GPU_BY_DRIVER) {
    WEFT_LOG("gpu", WARN, "the driver assembles the kernel of \"%s\": %s", kernel->fusion->name,
             weft_status_message(st));
    weft_status_free(st);
    st = assemble_by(a, &a->driver, kernel);
  }
  if (st)
    a->errors[index] =
      weft_status_note(st, __FILE__, __LINE__, "assembling the kernel of \"%s\"", kernel->fusion->name);
}

static weft_status *first_error(weft_status **errors, int count)
{
  weft_status *first = NULL;

  for (int i = 0; i < count; i++) {
    if (first) weft_status_free(errors[i]);
    else first = errors[i];
  }
  return first;
}

/* Makes machine code for the first of the devices, which is good for all devices of the same capability. */
static weft_status *assemble_kernels(gpu_code *code, const bool *on_device, weft_arena *scratch)
{
  assembling a = {.code = code, .errors = WEFT_ARENA_ARRAY(scratch, weft_status *, code->kernel_count)};

  WEFT_TRY_ALLOC(a.errors);
  for (int d = code->platform->gpu_count - 1; d >= 0; d--)
    if (on_device[d]) a.gpu = &code->platform->gpus[d];
  if (!a.gpu) return NULL;
  WEFT_TRY(gpu_assembler_find(gpu_cu.version, &a.assembler));
  gpu_assembler_driver(gpu_cu.version, &a.driver);
  code->capability = a.gpu->capability;
  rt_parallel_for(code->platform->base.pool, code->kernel_count, assemble_one, &a);
  return first_error(a.errors, code->kernel_count);
}

/* ---- loading --------------------------------------------------------------------------------------------------- */

static weft_status *load_module(const void *text, wcu_module *out_module)
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

/* Loads the machine code. Code that the driver does not take is made anew from the PTX. */
static weft_status *load_image(gpu_code *code, gpu_kernel *kernel, int ordinal)
{
  wcu_module *module = &kernel->modules[ordinal];
  wcu_result result = gpu_cu.cuModuleLoadDataEx(module, kernel->image, 0, NULL, NULL);

  if (result != WCU_ERROR_INVALID_IMAGE && result != WCU_ERROR_NO_BINARY_FOR_GPU && result != WCU_ERROR_INVALID_SOURCE)
    return gpu_error(result, "cuModuleLoadDataEx");
  *module = NULL;
  WEFT_LOG("gpu", WARN, "the driver does not take the machine code of \"%s\" (error %d), and assembles its PTX",
           kernel->fusion->name, (int)result);
  gpu_kept_drop(code->kept, kernel->image_name);
  return load_module(kernel->artefact.text, module);
}

/* Finds the function, which makes a driver that loads kernels at first use load the kernel now. A launch with more
 * dynamic shared memory than every kernel may have must be announced. */
static weft_status *find_function(wcu_module module, const gen_launch *launch, wcu_function *out_function)
{
  WEFT_TRY(GPU_CALL(cuModuleGetFunction, out_function, module, launch->entry));
  if (launch->shared_bytes == 0) return NULL;
  return GPU_CALL(cuFuncSetAttribute, *out_function, WCU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                  launch->shared_bytes);
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
  weft_mutex_lock(&code->platform->launching);
  weft_status *st = kernel->image && code->platform->gpus[ordinal].capability == code->capability
                      ? load_image(code, kernel, ordinal)
                      : load_module(artefact->text, &kernel->modules[ordinal]);
  for (int i = 0; i < launches && !st; i++)
    st = find_function(kernel->modules[ordinal], &artefact->launches[i], &kernel->functions[ordinal * launches + i]);
  weft_mutex_unlock(&code->platform->launching);
  return st;
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
                         const bool *on_device, const gpu_saved_code *saved)
{
  weft_arena scratch;

  WEFT_TRY(gpu_kept_new(&code->kept));
  weft_arena_init(&scratch);
  weft_status *st = list_kernels(code, module, &scratch);
  if (!st) st = saved ? read_kernels(code, saved->data, saved->size, &scratch) : make_kernels(code, options);
  if (!st) st = assemble_kernels(code, on_device, &scratch);
  weft_arena_fini(&scratch);
  WEFT_TRY(st);
  for (int d = 0; d < code->platform->gpu_count; d++)
    if (on_device[d]) WEFT_TRY(load_kernels(code, d));
  return NULL;
}

weft_status *gpu_code_new(gpu_platform *platform, const hlo_module *module, const weft_compile_options *options,
                          const bool *on_device, const gpu_saved_code *saved, gpu_code **out_code)
{
  gpu_code *code = calloc(1, sizeof *code);

  *out_code = NULL;
  WEFT_TRY_ALLOC(code);
  weft_arena_init(&code->arena);
  code->platform = platform;
  code->program = module->name;
  /* all devices of a machine are assumed to be alike: the processor of the first device is used for all */
  code->target = platform->gpus[0].target->name;
  weft_status *st = fill(code, module, options, on_device, saved);
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
  gpu_kept_free(code->kept);
  weft_arena_fini(&code->arena);
  free(code);
}
