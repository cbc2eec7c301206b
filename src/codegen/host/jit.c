/* codegen/host/jit.c -- optimisation, object code, and ORC. */
#include <config.h>

#include "codegen/host/jit.h"

#include <errno.h>
#include <llvm-c/Analysis.h>
#include <llvm-c/BitWriter.h>
#include <llvm-c/Error.h>
#include <llvm-c/LLJIT.h>
#include <llvm-c/Orc.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <llvm/Config/llvm-config.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/build_id.h"
#include "base/deadline.h"
#include "base/log.h"
#include "codegen/code/code.h"
#include "codegen/code/cache.h"

#if LLVM_VERSION_MAJOR >= 18
#define INSTCOMBINE "instcombine<no-verify-fixpoint>"
#else
#define INSTCOMBINE "instcombine"
#endif

#define FULL(more) \
  "always-inline,function(sroa,early-cse<memssa>,simplifycfg," INSTCOMBINE ",loop-mssa(licm),early-cse," INSTCOMBINE "," more "simplifycfg)"

/* Kernels come as vector code in rotated loops: LLVM only has to clean up and to hoist. Small loops come as scalars,
 * one for each element of their state: those that go the same way are made into vectors. */
static const char *const pipelines[] = {
  [GEN_OPT_FAST] = "always-inline,function(sroa,early-cse,simplifycfg)",
  [GEN_OPT_FULL] = FULL(""),
  [GEN_OPT_FULL_SCALARS] = FULL("slp-vectorizer,"),
};

static weft_status *take_error(LLVMErrorRef error, const char *what)
{
  char *message = LLVMGetErrorMessage(error);
  weft_status *st = WEFT_ERR(INTERNAL, "LLVM: %s: %s", what, message);

  LLVMDisposeErrorMessage(message);
  return st;
}

static weft_status *write_file(const char *path, const void *data, size_t size)
{
  char temporary[4096];

  if (snprintf(temporary, sizeof temporary, "%s.%ld.tmp", path, (long)getpid()) >= (int)sizeof temporary)
    return WEFT_ERR(INVALID_ARGUMENT, "path too long: %s", path);
  FILE *f = fopen(temporary, "wb");
  if (!f) return WEFT_ERR(UNAVAILABLE, "cannot write %s: %s", temporary, strerror(errno));
  bool ok = fwrite(data, 1, size, f) == size;
  ok = fclose(f) == 0 && ok;
  if (ok && rename(temporary, path) == 0) return NULL;
  unlink(temporary);
  return WEFT_ERR(UNAVAILABLE, "cannot write %s: %s", path, strerror(errno));
}

static void dump(const gen_part *p, const char *name, const char *suffix, const char *text)
{
  char path[4096];

  mkdir(p->options->dump_dir, 0777);
  if (snprintf(path, sizeof path, "%s/%s%s", p->options->dump_dir, name, suffix) >= (int)sizeof path) return;
  weft_status *st = write_file(path, text, strlen(text));
  if (st) WEFT_LOG("codegen", WARN, "%s", weft_status_text(st, false));
  weft_status_ignore(st);
}

static void dump_ir(const gen_part *p, const char *name, const char *suffix)
{
  if (!p->options->dump_dir) return;
  char *text = LLVMPrintModuleToString(p->mod);
  dump(p, name, suffix, text);
  LLVMDisposeMessage(text);
}

/* ---- the cache ------------------------------------------------------------------------------------------------- */

/* The name of the part's file in the cache, and in *out_folder the open folder (-1: none), which the caller closes.
 * False: the cache is not used. */
static bool find_in_cache(const gen_part *p, const gen_machine *machine, int level, int *out_folder,
                          char name[GEN_CACHE_NAME_BYTES])
{
  static const char about[] = WEFT_LLVM_VERSION " " WEFT_BUILD_ID;

  *out_folder = -1;
  if (!p->options->cache_dir || p->options->keep_text || p->options->dump_dir) return false;
  if ((*out_folder = gen_cache_open(p->options->cache_dir)) < 0) return false;
  LLVMMemoryBufferRef bitcode = LLVMWriteBitcodeToMemoryBuffer(p->mod);
  const gen_cache_part parts[] = {
    {about, sizeof about}, {&level, sizeof level}, {pipelines[level], strlen(pipelines[level])}, {machine->cpu, strlen(machine->cpu)},
    {machine->features, strlen(machine->features)}, {LLVMGetBufferStart(bitcode), LLVMGetBufferSize(bitcode)},
  };
  bool found = gen_cache_name(parts, (int)WEFT_COUNT(parts), name);
  LLVMDisposeMemoryBuffer(bitcode);
  return found;
}

static bool read_cached(int folder, const char *name, LLVMMemoryBufferRef *out_code)
{
  void *data;
  size_t size;

  if (!gen_cache_read(folder, name, &data, &size)) return false;
  *out_code = LLVMCreateMemoryBufferWithMemoryRangeCopy(data, size, "cached");
  free(data);
  return true;
}

/* ---- compiling ------------------------------------------------------------------------------------------------- */

static weft_status *emit(LLVMTargetMachineRef machine, LLVMModuleRef mod, LLVMCodeGenFileType kind,
                         LLVMMemoryBufferRef *out)
{
  char *message = NULL;

  if (!LLVMTargetMachineEmitToMemoryBuffer(machine, mod, kind, &message, out)) return NULL;
  weft_status *st = WEFT_ERR(INTERNAL, "LLVM: %s", message ? message : "it wrote no code and gave no reason");
  LLVMDisposeMessage(message);
  return st;
}

static weft_status *compile(gen_part *p, LLVMTargetMachineRef machine, int level, const char *name, gen_object *out)
{
  LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
  int64_t start = weft_now_ns();
  LLVMErrorRef error = LLVMRunPasses(p->mod, pipelines[level], machine, options);

  LLVMDisposePassBuilderOptions(options);
  if (error) return take_error(error, "optimising");
  out->optimize_ns = weft_now_ns() - start;
  dump_ir(p, name, ".opt.ll");
  if (p->options->keep_text) {
    char *text = LLVMPrintModuleToString(p->mod);
    out->ir = strdup(text);
    LLVMDisposeMessage(text);
  }
  if (p->options->keep_text || p->options->dump_dir) {
    LLVMModuleRef copy = LLVMCloneModule(p->mod);
    LLVMMemoryBufferRef text = NULL;
    weft_status *st = emit(machine, copy, LLVMAssemblyFile, &text);
    LLVMDisposeModule(copy);
    WEFT_TRY(st);
    char *assembly = strndup(LLVMGetBufferStart(text), LLVMGetBufferSize(text));
    LLVMDisposeMemoryBuffer(text);
    WEFT_TRY_ALLOC(assembly);
    if (p->options->dump_dir) dump(p, name, ".s", assembly);
    if (p->options->keep_text) out->assembly = assembly;
    else free(assembly);
  }
  start = weft_now_ns();
  WEFT_TRY(emit(machine, p->mod, LLVMObjectFile, &out->code));
  out->codegen_ns = weft_now_ns() - start;
  return NULL;
}

weft_status *gen_part_compile(gen_part *p, const gen_machine *host, int level, const char *name, gen_object *out)
{
  char cache_name[GEN_CACHE_NAME_BYTES];
  int folder;

  *out = (gen_object){0};
  LLVMSetTarget(p->mod, host->triple);
  LLVMSetDataLayout(p->mod, host->layout);
  dump_ir(p, name, ".ll");
#ifndef NDEBUG
  char *message = NULL;
  if (LLVMVerifyModule(p->mod, LLVMReturnStatusAction, &message)) {
    weft_status *bad = WEFT_ERR(INTERNAL, "LLVM: the emitted module is malformed: %.2000s", message);
    LLVMDisposeMessage(message);
    return bad;
  }
  LLVMDisposeMessage(WEFT_MOVE(message));
#endif
  bool cache = find_in_cache(p, host, level, &folder, cache_name);
  weft_status *st = NULL;
  if (cache && read_cached(folder, cache_name, &out->code)) {
    out->cached = true;
  } else {
    LLVMTargetMachineRef machine = NULL;
    st = gen_target_machine(host, level, &machine);
    if (!st) st = compile(p, machine, level, name, out);
    if (machine) LLVMDisposeTargetMachine(machine);
    if (!st && cache) {
      weft_status *write =
        gen_cache_write(folder, cache_name, LLVMGetBufferStart(out->code), LLVMGetBufferSize(out->code));
      if (write) WEFT_LOG("codegen", WARN, "%s", weft_status_text(write, false));
      weft_status_ignore(write);
    }
  }
  if (folder >= 0) close(folder);
  return st;
}

void gen_object_fini(gen_object *object)
{
  if (object->code) LLVMDisposeMemoryBuffer(object->code);
  free(object->ir);
  free(object->assembly);
  *object = (gen_object){0};
}

/* ---- linking --------------------------------------------------------------------------------------------------- */

struct gen_jit {
  LLVMOrcLLJITRef orc;
};

static weft_status *define_externals(LLVMOrcLLJITRef orc)
{
  LLVMOrcCSymbolMapPair *pairs = calloc((size_t)gen_external_count, sizeof *pairs);

  WEFT_TRY_ALLOC(pairs);
  for (int i = 0; i < gen_external_count; i++) {
    pairs[i].Name = LLVMOrcLLJITMangleAndIntern(orc, gen_externals[i].name);
    pairs[i].Sym = (LLVMJITEvaluatedSymbol){.Address = (LLVMOrcExecutorAddress)(uintptr_t)gen_externals[i].address,
                                            .Flags = {.GenericFlags = LLVMJITSymbolGenericFlagsExported}};
  }
  LLVMOrcMaterializationUnitRef unit = LLVMOrcAbsoluteSymbols(pairs, (size_t)gen_external_count);
  free(pairs);
  LLVMErrorRef error = LLVMOrcJITDylibDefine(LLVMOrcLLJITGetMainJITDylib(orc), unit);
  if (!error) return NULL;
  LLVMOrcDisposeMaterializationUnit(unit);
  return take_error(error, "defining the C library");
}

/* The JIT compiles nothing: it links objects. A machine without a processor's name saves it two queries of this
 * processor and its features, which are most of the cost of a JIT. */
static LLVMErrorRef create_orc(LLVMOrcLLJITRef *out_orc)
{
  const gen_machine *host;

  weft_status_ignore(gen_host_machine(&host)); /* found when the objects were compiled */
  LLVMTargetMachineRef machine =
    LLVMCreateTargetMachine(host->llvm, host->triple, "", "", LLVMCodeGenLevelNone, LLVMRelocPIC, LLVMCodeModelSmall);
  LLVMOrcLLJITBuilderRef builder = NULL;
  if (machine) {
    builder = LLVMOrcCreateLLJITBuilder();
    LLVMOrcLLJITBuilderSetJITTargetMachineBuilder(builder,
                                                  LLVMOrcJITTargetMachineBuilderCreateFromTargetMachine(machine));
  }
  return LLVMOrcCreateLLJIT(out_orc, builder); /* both calls take their arguments, also on failure */
}

weft_status *gen_jit_new(gen_jit **out_jit)
{
  gen_jit *jit = calloc(1, sizeof *jit);

  *out_jit = NULL;
  WEFT_TRY_ALLOC(jit);
  LLVMErrorRef error = create_orc(&jit->orc);
  weft_status *st = error ? take_error(error, "starting the JIT") : define_externals(jit->orc);
  if (st) {
    gen_jit_free(jit);
    return st;
  }
  *out_jit = jit;
  return NULL;
}

void gen_jit_free(gen_jit *jit)
{
  if (!jit) return;
  if (jit->orc) LLVMConsumeError(LLVMOrcDisposeLLJIT(jit->orc));
  free(jit);
}

weft_status *gen_jit_add(gen_jit *jit, const gen_object *object)
{
  LLVMMemoryBufferRef view = LLVMCreateMemoryBufferWithMemoryRange(LLVMGetBufferStart(object->code),
                                                                   LLVMGetBufferSize(object->code), "object", 0);
  LLVMErrorRef error = LLVMOrcLLJITAddObjectFile(jit->orc, LLVMOrcLLJITGetMainJITDylib(jit->orc), view);
  return error ? take_error(error, "adding object code") : NULL;
}

weft_status *gen_jit_lookup(gen_jit *jit, const char *symbol, void **out_address)
{
  LLVMOrcExecutorAddress address = 0;
  LLVMErrorRef error = LLVMOrcLLJITLookup(jit->orc, &address, symbol);

  if (error) return take_error(error, symbol);
  *out_address = (void *)(uintptr_t)address;
  return NULL;
}
