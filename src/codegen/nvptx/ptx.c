/* codegen/nvptx/ptx.c -- from a fusion to PTX text by LLVM's NVPTX back end. */
#include <config.h>

#include <llvm-c/Analysis.h>
#include <llvm-c/Error.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <llvm/Config/llvm-config.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/nvptx/grid.h"

static const char TRIPLE[] = "nvptx64-nvidia-cuda";
enum { PTX_KERNEL = 71 /* LLVM's calling convention of kernels */ };

/* Weft may be linked with static archives that hold the host's LLVM target alone; then these functions are NULL. */
void LLVMInitializeNVPTXTargetInfo(void);
void LLVMInitializeNVPTXTarget(void);
void LLVMInitializeNVPTXTargetMC(void);
void LLVMInitializeNVPTXAsmPrinter(void);
#pragma weak LLVMInitializeNVPTXTargetInfo
#pragma weak LLVMInitializeNVPTXTarget
#pragma weak LLVMInitializeNVPTXTargetMC
#pragma weak LLVMInitializeNVPTXAsmPrinter

static LLVMTargetRef nvptx; /* NULL: this LLVM has none */

static void init(void)
{
  char *error = NULL;

  if (!LLVMInitializeNVPTXTargetInfo || !LLVMInitializeNVPTXTarget || !LLVMInitializeNVPTXTargetMC ||
      !LLVMInitializeNVPTXAsmPrinter)
    return;
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

/* Marks the function as a kernel, and its buffers as aligned to 64 bytes, as allocations are. */
static void finish_function(job *j)
{
  gen_ssa fn = LLVMGetNamedFunction(j->part.mod, j->out->entry);
  unsigned align = LLVMGetEnumAttributeKindForName("align", 5);

  LLVMSetFunctionCallConv(fn, PTX_KERNEL);
  for (int i = 0; i < j->out->arg_count; i++)
    LLVMAddAttributeAtIndex(fn, (unsigned)i + 1, LLVMCreateEnumAttribute(j->part.ctx, align, 64));
}

static weft_status *emit_by_strategy(job *j, gen_kernel_spec *spec)
{
  gen_artefact *out = j->out;
  int64_t threads = gen_grid_loop_threads(j->target);

  switch (spec->info->strategy) {
  case GEN_STRATEGY_ROWS: return gen_grid_rows(&j->part, spec, out);
  case GEN_STRATEGY_LOOP:
    WEFT_TRY(gen_emit_loop_kernel(&j->part, spec));
    out->threads = (int)threads;
    out->blocks = (spec->info->phases[0].units + threads - 1) / threads;
    return NULL;
  default:
    return WEFT_ERR(UNIMPLEMENTED, "nvptx: no walker for the strategy \"%s\"", gen_strategy_name(spec->info->strategy));
  }
}

static weft_status *emit(job *j)
{
  gen_kernel info = {0};
  gen_kernel_spec spec = {.fusion = j->fusion, .info = &info, .symbols = {j->out->entry}, .nested = true, .whole = true};

  gen_memory_guard(&j->memory, j->options->emission_bytes);
  if (setjmp(j->memory.out_of_memory)) return WEFT_ERR(RESOURCE_EXHAUSTED, "code generation: out of memory");
  WEFT_TRY(gen_part_init(&j->part, j->options, j->target, &gen_grid_walker, &j->memory.arena, j->out->entry));
  WEFT_TRY(gen_decide(&j->memory.arena, j->fusion, &info.strategy));
  j->part.raw_narrow = gen_only_moves_narrow(j->fusion->called[0]);
  WEFT_TRY(emit_by_strategy(j, &spec));
  j->memory.arena.exhausted = NULL;
  if (j->out->blocks > INT32_MAX)
    return WEFT_ERR(UNIMPLEMENTED, "nvptx: a grid of %lld blocks", (long long)j->out->blocks);
  j->out->strategy = info.strategy;
  j->out->arg_count = info.arg_count;
  finish_function(j);
  return check_calls(j->part.mod);
}

/* ---- text ------------------------------------------------------------------------------------------------------ */

static weft_status *optimise(LLVMModuleRef mod, LLVMTargetMachineRef machine)
{
  LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
  LLVMErrorRef error = LLVMRunPasses(mod, "default<O3>", machine, options);

  LLVMDisposePassBuilderOptions(options);
  if (!error) return NULL;
  char *message = LLVMGetErrorMessage(error);
  weft_status *st = WEFT_ERR(INTERNAL, "LLVM: optimising: %s", message);
  LLVMDisposeErrorMessage(message);
  return st;
}

static weft_status *print(LLVMModuleRef mod, LLVMTargetMachineRef machine, char **out_text)
{
  LLVMMemoryBufferRef text = NULL;
  char *message = NULL;

  if (LLVMVerifyModule(mod, LLVMReturnStatusAction, &message)) {
    weft_status *bad = WEFT_ERR(INTERNAL, "LLVM: the emitted module is malformed: %.2000s", message);
    LLVMDisposeMessage(message);
    return bad;
  }
  LLVMDisposeMessage(WEFT_MOVE(message));
  WEFT_TRY(optimise(mod, machine));
  if (LLVMTargetMachineEmitToMemoryBuffer(machine, mod, LLVMAssemblyFile, &message, &text)) {
    weft_status *st = WEFT_ERR(INTERNAL, "LLVM: %s", message ? message : "no text came out");
    LLVMDisposeMessage(message);
    return st;
  }
  *out_text = strndup(LLVMGetBufferStart(text), LLVMGetBufferSize(text));
  LLVMDisposeMemoryBuffer(text);
  WEFT_TRY_ALLOC(*out_text);
  return NULL;
}

static weft_status *compile(job *j, LLVMTargetMachineRef machine)
{
  WEFT_TRY(emit(j));
  LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(machine);
  LLVMSetTarget(j->part.mod, TRIPLE);
  LLVMSetModuleDataLayout(j->part.mod, layout);
  LLVMDisposeTargetData(layout);
  return print(j->part.mod, machine, &j->out->text);
}

weft_status *gen_nvptx_compile(const hlo_instr *fusion, const char *processor, const gen_options *options,
                               gen_artefact *out)
{
  static pthread_once_t initialised = PTHREAD_ONCE_INIT;
  job j = {.fusion = fusion, .options = options, .target = gen_gpu_target(processor), .out = out};

  *out = (gen_artefact){.entry = "kernel"};
  pthread_once(&initialised, init);
  if (!nvptx) return WEFT_ERR(UNIMPLEMENTED, "this LLVM has no NVPTX target");
  if (!j.target) return WEFT_ERR(INVALID_ARGUMENT, "nvptx: \"%s\" is no processor that is known", processor);
  LLVMTargetMachineRef machine = LLVMCreateTargetMachine(nvptx, TRIPLE, processor, "", LLVMCodeGenLevelAggressive,
                                                         LLVMRelocDefault, LLVMCodeModelDefault);
  if (!machine) return WEFT_ERR(INTERNAL, "LLVM cannot make code for %s", processor);
  weft_arena_init(&j.memory.arena);
  weft_status *st = compile(&j, machine);
  gen_part_fini(&j.part);
  weft_arena_fini(&j.memory.arena);
  LLVMDisposeTargetMachine(machine);
  if (st) gen_artefact_fini(out);
  return st;
}

void gen_artefact_fini(gen_artefact *artefact)
{
  free(artefact->text);
  artefact->text = NULL;
}
