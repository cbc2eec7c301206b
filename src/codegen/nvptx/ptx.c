/* codegen/nvptx/ptx.c -- from a fusion to PTX text by LLVM's NVPTX back end. */
#include <config.h>

#include <llvm-c/Analysis.h>
#include <llvm-c/BitWriter.h>
#include <llvm-c/Error.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <llvm/Config/llvm-config.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/build_id.h"
#include "base/log.h"
#include "codegen/code/cache.h"
#include "codegen/model/library.h"
#include "codegen/nvptx/grid.h"

static const char TRIPLE[] = "nvptx64-nvidia-cuda";
enum { PTX_KERNEL = 71 /* LLVM's calling convention of kernels */ };

/* An LLVM without this back end has none of these functions; they are NULL then. */
void LLVMInitializeNVPTXTargetInfo(void);
void LLVMInitializeNVPTXTarget(void);
void LLVMInitializeNVPTXTargetMC(void);
void LLVMInitializeNVPTXAsmPrinter(void);
#ifndef HAVE_LLVM_NVPTX
#pragma weak LLVMInitializeNVPTXTargetInfo
#pragma weak LLVMInitializeNVPTXTarget
#pragma weak LLVMInitializeNVPTXTargetMC
#pragma weak LLVMInitializeNVPTXAsmPrinter
#endif

static LLVMTargetRef nvptx; /* NULL: this LLVM has none */

static void init(void)
{
  char *error = NULL;

#ifndef HAVE_LLVM_NVPTX
  if (!LLVMInitializeNVPTXTargetInfo || !LLVMInitializeNVPTXTarget || !LLVMInitializeNVPTXTargetMC ||
      !LLVMInitializeNVPTXAsmPrinter)
    return;
#endif
  LLVMInitializeNVPTXTargetInfo();
  LLVMInitializeNVPTXTarget();
  LLVMInitializeNVPTXTargetMC();
  LLVMInitializeNVPTXAsmPrinter();
  if (LLVMGetTargetFromTriple(TRIPLE, &nvptx, &error)) {
    nvptx = NULL;
    LLVMDisposeMessage(error);
  }
}

/* ---- emitting -------------------------------------------------------------------------------------------------- */

typedef struct job {
  const hlo_instr *fusion;
  const gen_options *options;
  const gen_target *target;
  gen_memory memory;
  gen_part part;
  gen_artefact *out;
} job;

/* Kernels have no C library to call. */
static weft_status *check_calls(LLVMModuleRef mod)
{
  for (gen_ssa fn = LLVMGetFirstFunction(mod); fn; fn = LLVMGetNextFunction(fn)) {
    size_t length;
    if (!LLVMIsDeclaration(fn) || LLVMGetIntrinsicID(fn)) continue;
    return WEFT_ERR(UNIMPLEMENTED, "nvptx: the C function %s", LLVMGetValueName2(fn, &length));
  }
  return NULL;
}

bool gen_nvptx_takes(const hlo_instr *instr)
{
  gen_scan scan;

  if (instr->op == HLO_REDUCE_WINDOW) return gen_scan_of(instr, &scan);
  if (gen_is_library_fusion(instr)) return false;
  return instr->op == HLO_FUSION || instr->op == HLO_SORT || instr->op == HLO_TOPK || instr->op == HLO_CONCATENATE ||
         gen_is_permutation(instr);
}

static weft_status *emit_by_opcode(gen_grid *g)
{
  switch (g->spec->fusion->op) {
  case HLO_REDUCE_WINDOW: return gen_grid_scan(g);
  case HLO_CONCATENATE: return gen_grid_join(g);
  case HLO_CUSTOM_CALL: return gen_grid_permutation(g);
  default: return gen_grid_sort(g);
  }
}

/* Marks the function as a kernel of at most launch->threads threads a block, and its buffers as aligned to 64 bytes, as
 * allocations are. NVIDIA's assembler spills registers of some kernels so that more blocks fit on a multiprocessor,
 * unless it is told that one block is enough. */
static void finish_function(job *j, const gen_launch *launch)
{
  gen_ssa fn = LLVMGetNamedFunction(j->part.mod, launch->entry);
  unsigned align = LLVMGetEnumAttributeKindForName("align", 5);
  LLVMMetadataRef bound[] = {LLVMValueAsMetadata(fn), LLVMMDStringInContext2(j->part.ctx, "maxntidx", 8),
                             LLVMValueAsMetadata(LLVMConstInt(j->part.i32, (unsigned)launch->threads, 0)),
                             LLVMMDStringInContext2(j->part.ctx, "minctasm", 8),
                             LLVMValueAsMetadata(LLVMConstInt(j->part.i32, 1, 0))};

  LLVMSetFunctionCallConv(fn, PTX_KERNEL);
  for (int i = 0; i < j->out->arg_count; i++)
    LLVMAddAttributeAtIndex(fn, (unsigned)i + 1, LLVMCreateEnumAttribute(j->part.ctx, align, 64));
  LLVMAddNamedMetadataOperand(
    j->part.mod, "nvvm.annotations",
    LLVMMetadataAsValue(j->part.ctx, LLVMMDNodeInContext2(j->part.ctx, bound, WEFT_COUNT(bound))));
}

/* Is launch `number` the first one of its kernel? */
static bool is_first_launch(const gen_artefact *a, int number)
{
  for (int i = 0; i < number; i++)
    if (strcmp(a->launches[i].entry, a->launches[number].entry) == 0) return false;
  return true;
}

/* One launch for a kernel that an emitter of `emit` makes whole. */
static weft_status *emit_whole(gen_grid *g, weft_status *(*emit)(gen_part *part, gen_kernel_spec *spec), int threads)
{
  gen_launch *launch;

  WEFT_TRY(gen_grid_begin(g, &launch));
  g->spec->whole = true;
  WEFT_TRY(emit(g->part, g->spec));
  return gen_grid_shape(g, (g->spec->info->phases[0].units + threads - 1) / threads, threads);
}

static weft_status *emit_by_strategy(gen_grid *g, gen_strategy strategy)
{
  switch (strategy) {
  case GEN_STRATEGY_ROWS: return gen_grid_rows(g);
  case GEN_STRATEGY_COLUMNS: return gen_grid_columns(g);
  case GEN_STRATEGY_TURN: return gen_grid_turn(g);
  case GEN_STRATEGY_REGION: return gen_grid_region(g, emit_by_strategy);
  case GEN_STRATEGY_UPDATE: return gen_grid_update(g);
  case GEN_STRATEGY_SCATTER: return gen_grid_scatter(g);
  case GEN_STRATEGY_PICK: return gen_grid_pick(g);
  case GEN_STRATEGY_LOOP: return emit_whole(g, gen_emit_loop_kernel, gen_grid_threads(g->part));
  case GEN_STRATEGY_SMALL_LOOP: return emit_whole(g, gen_emit_small_loop_kernel, 1);
  default: return WEFT_ERR(UNIMPLEMENTED, "nvptx: no walker for the strategy \"%s\"", gen_strategy_name(strategy));
  }
}

static weft_status *emit(job *j)
{
  gen_kernel info = {0};
  gen_kernel_spec spec = {.fusion = j->fusion, .info = &info, .nested = true};
  gen_grid grid = {.part = &j->part, .spec = &spec, .out = j->out};

  gen_memory_guard(&j->memory, j->options->emission_bytes);
  if (setjmp(j->memory.out_of_memory)) return WEFT_ERR(RESOURCE_EXHAUSTED, "code generation: out of memory");
  WEFT_TRY(gen_part_init(&j->part, j->options, j->target, &gen_grid_walker, &j->memory.arena, "weft"));
  if (j->fusion->op == HLO_FUSION) {
    WEFT_TRY(gen_decide(j->target, &j->memory.arena, j->fusion, &info.strategy));
    j->part.raw_narrow = gen_only_moves_narrow(j->fusion->called[0]);
    WEFT_TRY(emit_by_strategy(&grid, info.strategy));
  } else {
    WEFT_TRY(emit_by_opcode(&grid));
  }
  j->memory.arena.exhausted = NULL;
  j->out->strategy = info.strategy;
  j->out->arg_count = info.arg_count;
  j->out->scratch_bytes = info.shared_bytes + info.scratch_bytes;
  for (int i = 0; i < j->out->launch_count; i++)
    if (is_first_launch(j->out, i)) finish_function(j, &j->out->launches[i]);
  return check_calls(j->part.mod);
}

/* ---- text ------------------------------------------------------------------------------------------------------ */

/* The passes by which the back end joins neighbouring loads and stores. They run here, since vectors of
 * bytes need another form (gen_load_words). */
static const char joining[] =
  "function(infer-address-spaces,separate-const-offset-from-gep,slsr,gvn,nary-reassociate,early-cse,"
  "load-store-vectorizer)";

static weft_status *run_passes(LLVMModuleRef mod, LLVMTargetMachineRef machine, const char *passes)
{
  LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
  LLVMErrorRef error = LLVMRunPasses(mod, passes, machine, options);

  LLVMDisposePassBuilderOptions(options);
  if (!error) return NULL;
  char *message = LLVMGetErrorMessage(error);
  weft_status *st = WEFT_ERR(INTERNAL, "LLVM: optimising: %s", message);
  LLVMDisposeErrorMessage(message);
  return st;
}

/* Gives the module's kernels the attribute, or takes it away. */
static void set_attribute(gen_part *part, const char *name, bool on)
{
  unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));

  for (gen_ssa fn = LLVMGetFirstFunction(part->mod); fn; fn = LLVMGetNextFunction(fn)) {
    if (LLVMIsDeclaration(fn)) continue;
    if (on) LLVMAddAttributeAtIndex(fn, LLVMAttributeFunctionIndex, LLVMCreateEnumAttribute(part->ctx, kind, 0));
    else LLVMRemoveEnumAttributeAtIndex(fn, LLVMAttributeFunctionIndex, kind);
  }
}

/* A thread has no vector registers, and noimplicitfloat keeps LLVM from making vectors, which the back
 * end would take apart in local memory. */
static weft_status *optimise(gen_part *part, LLVMTargetMachineRef machine)
{
  set_attribute(part, "noimplicitfloat", true);
  WEFT_TRY(run_passes(part->mod, machine, "default<O3>"));
  set_attribute(part, "noimplicitfloat", false);
  WEFT_TRY(run_passes(part->mod, machine, joining));
  gen_load_words(part);
  return NULL;
}

static weft_status *verify(LLVMModuleRef mod)
{
  char *message = NULL;

  bool bad = LLVMVerifyModule(mod, LLVMReturnStatusAction, &message);
  weft_status *st = bad ? WEFT_ERR(INTERNAL, "LLVM: the emitted module is malformed: %.2000s", message) : NULL;
  LLVMDisposeMessage(message);
  return st;
}

static weft_status *print(gen_part *part, LLVMTargetMachineRef machine, char **out_text)
{
  LLVMMemoryBufferRef text = NULL;
  char *message = NULL;

  WEFT_TRY(optimise(part, machine));
  if (LLVMTargetMachineEmitToMemoryBuffer(machine, part->mod, LLVMAssemblyFile, &message, &text)) {
    weft_status *st = WEFT_ERR(INTERNAL, "LLVM: %s", message ? message : "it wrote no PTX and gave no reason");
    LLVMDisposeMessage(message);
    return st;
  }
  *out_text = strndup(LLVMGetBufferStart(text), LLVMGetBufferSize(text));
  LLVMDisposeMemoryBuffer(text);
  WEFT_TRY_ALLOC(*out_text);
  return NULL;
}

/* ---- the cache ------------------------------------------------------------------------------------------------- */

/* As find_in_cache of host/jit.c: the name of the module's text in the cache, and in *out_folder the open folder. */
static bool find_in_cache(const job *j, int *out_folder, char name[GEN_CACHE_NAME_BYTES])
{
  static const char about[] = "PTX " WEFT_LLVM_VERSION " " WEFT_BUILD_ID;

  *out_folder = -1;
  if (!j->options->cache_dir || j->options->keep_text || j->options->dump_dir) return false;
  if ((*out_folder = gen_cache_open(j->options->cache_dir)) < 0) return false;
  LLVMMemoryBufferRef bitcode = LLVMWriteBitcodeToMemoryBuffer(j->part.mod);
  const gen_cache_part parts[] = {{about, sizeof about}, {j->target->name, strlen(j->target->name)},
                                  {LLVMGetBufferStart(bitcode), LLVMGetBufferSize(bitcode)}};
  bool found = gen_cache_name(parts, (int)WEFT_COUNT(parts), name);
  LLVMDisposeMemoryBuffer(bitcode);
  return found;
}

/* The text in a folder of the cache, with its zero at the end; NULL: there is none. */
static char *read_cached(int folder, const char *name)
{
  void *text;
  size_t size;

  if (!gen_cache_read(folder, name, &text, &size)) return NULL;
  if (size > 0 && ((char *)text)[size - 1] == 0) return text;
  free(text);
  return NULL;
}

static weft_status *print_or_read(job *j, LLVMTargetMachineRef machine)
{
  char name[GEN_CACHE_NAME_BYTES], **text = &j->out->text;
  int folder;
  bool cache = find_in_cache(j, &folder, name);
  weft_status *st = NULL;

  *text = cache ? read_cached(folder, name) : NULL;
  if (!*text) {
    st = print(&j->part, machine, text);
    if (!st && cache) {
      weft_status *unwritten = gen_cache_write(folder, name, *text, strlen(*text) + 1);
      if (unwritten) WEFT_LOG("codegen", WARN, "%s", weft_status_message(unwritten));
      weft_status_free(unwritten);
    }
  }
  if (folder >= 0) close(folder);
  return st;
}

static weft_status *compile(job *j, LLVMTargetMachineRef machine)
{
  WEFT_TRY(emit(j));
  LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(machine);
  LLVMSetTarget(j->part.mod, TRIPLE);
  LLVMSetModuleDataLayout(j->part.mod, layout);
  LLVMDisposeTargetData(layout);
  WEFT_TRY(verify(j->part.mod));
  return print_or_read(j, machine);
}

weft_status *gen_nvptx_compile_for(const hlo_instr *fusion, const gen_target *target, const gen_options *options,
                                   gen_artefact *out)
{
  static pthread_once_t initialised = PTHREAD_ONCE_INIT;
  job j = {.fusion = fusion, .options = options, .target = target, .out = out};

  *out = (gen_artefact){0};
  pthread_once(&initialised, init);
  if (!nvptx) return WEFT_ERR(UNIMPLEMENTED, "this LLVM has no NVPTX target");
  LLVMTargetMachineRef machine = LLVMCreateTargetMachine(nvptx, TRIPLE, target->name, "", LLVMCodeGenLevelAggressive,
                                                         LLVMRelocDefault, LLVMCodeModelDefault);
  if (!machine) return WEFT_ERR(INTERNAL, "LLVM cannot make code for %s", target->name);
  weft_arena_init(&j.memory.arena);
  weft_status *st = compile(&j, machine);
  gen_part_fini(&j.part);
  weft_arena_fini(&j.memory.arena);
  LLVMDisposeTargetMachine(machine);
  if (st) gen_artefact_fini(out);
  return st;
}

weft_status *gen_nvptx_compile(const hlo_instr *fusion, const char *name, const gen_options *options, gen_artefact *out)
{
  const gen_target *target = gen_gpu_target(name);

  *out = (gen_artefact){0};
  if (!target) return WEFT_ERR(INVALID_ARGUMENT, "nvptx: \"%s\" is no GPU that is known", name);
  return gen_nvptx_compile_for(fusion, target, options, out);
}

void gen_artefact_fini(gen_artefact *artefact)
{
  free(artefact->text);
  free(artefact->launches);
  *artefact = (gen_artefact){0};
}
