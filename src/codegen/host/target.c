/* codegen/host/target.c -- the machine that code is made for, and LLVM's one-time initialisation. */
#include <config.h>

#include "codegen/host/host.h"

#include "codegen/model/processor.h"

#include <llvm-c/Core.h>
#include <llvm-c/LLJIT.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static gen_machine host;
static char host_error[256];
static char host_text[2048];

/* The features that the description names. */
static const char *const told_features[] = {"+avx512bf16", "+avx512fp16", "+avx512f", "+avx2", "+avx", "+fma", "+f16c",
                                            "+sve2", "+sve", "+neon", "+bf16", "+amx-bf16"};

static bool has_feature(const char *features, const char *name)
{
  size_t n = strlen(name);

  for (const char *at = features; (at = strstr(at, name)); at += n)
    if ((at == features || at[-1] == ',') && (at[n] == ',' || at[n] == '\0')) return true;
  return false;
}

/* The file that contains `function`; "" if it is not known. */
static const char *file_of(void (*function)(void))
{
  Dl_info info;
  void *address;

  memcpy(&address, &function, sizeof address);
  return dladdr(address, &info) && info.dli_fname ? info.dli_fname : "";
}

/* A Weft that is linked with a shared LLVM can find functions of another LLVM: some library in the process may
 * export a part of its own LLVM's names (TensorFlow's does). Two LLVMs cannot work on one program; they would end
 * the process. */
static bool is_mixed_llvm(void)
{
  const char *core = file_of((void (*)(void))LLVMContextCreate), *jit = file_of((void (*)(void))LLVMOrcCreateLLJIT);

  if (strcmp(core, jit) == 0) return false;
  snprintf(host_error, sizeof host_error,
           "two LLVMs in this process: some functions come from %.80s, others from %.80s; configure Weft "
           "--with-llvm=static",
           core, jit);
  return true;
}

/* The numbers of a machine whose features are known. */
static void set_target(gen_machine *machine)
{
  bool arm = strncmp(machine->triple, "aarch64", 7) == 0;

  machine->target = gen_cpu_target;
  machine->target.has_fma = arm || has_feature(machine->features, "+fma");
  machine->target.has_avx512 = has_feature(machine->features, "+avx512f");
  machine->target.has_avx512_bf16 = machine->target.has_avx512 && has_feature(machine->features, "+avx512dq") &&
                                    has_feature(machine->features, "+avx512bf16");
  machine->target.has_f16c = arm || has_feature(machine->features, "+f16c");
  machine->target.has_f16 = has_feature(machine->features, arm ? "+fullfp16" : "+avx512fp16");
}

/* NULL: LLVM cannot make code for the triple. */
static char *layout_of(LLVMTargetRef llvm, const char *triple)
{
  LLVMTargetMachineRef machine =
    LLVMCreateTargetMachine(llvm, triple, "", "", LLVMCodeGenLevelNone, LLVMRelocPIC, LLVMCodeModelSmall);

  if (!machine) return NULL;
  LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(machine);
  char *text = LLVMCopyStringRepOfTargetData(layout);
  LLVMDisposeTargetData(layout);
  LLVMDisposeTargetMachine(machine);
  return text;
}

static void init_host(void)
{
  char *error = NULL;
  size_t length;

  if (is_mixed_llvm()) return;
  if (LLVMInitializeNativeTarget() || LLVMInitializeNativeAsmPrinter() || LLVMInitializeNativeAsmParser()) {
    snprintf(host_error, sizeof host_error, "LLVM has no code generator for this machine");
    return;
  }
  host.triple = LLVMGetDefaultTargetTriple();
  host.cpu = LLVMGetHostCPUName();
  host.features = LLVMGetHostCPUFeatures();
  gen_limit_features(host.features);
  if (LLVMGetTargetFromTriple(host.triple, &host.llvm, &error)) {
    snprintf(host_error, sizeof host_error, "LLVM: %s", error ? error : "unknown target");
    LLVMDisposeMessage(error);
    return;
  }
  host.layout = layout_of(host.llvm, host.triple);
  if (!host.layout) {
    snprintf(host_error, sizeof host_error, "LLVM cannot make code for %s", host.triple);
    return;
  }
  set_target(&host);
  snprintf(host_text, sizeof host_text, "%.*s %s", (int)strcspn(host.triple, "-"), host.triple, host.cpu);
  for (size_t i = 0; i < WEFT_COUNT(told_features); i++) {
    length = strlen(host_text);
    if (has_feature(host.features, told_features[i]))
      snprintf(host_text + length, sizeof host_text - length, " %s", told_features[i]);
  }
  length = strlen(host_text);
  if (gen_isa_limit())
    snprintf(host_text + length, sizeof host_text - length, " (at most %s: xla_cpu_max_isa)", gen_isa_limit());
}

weft_status *gen_host_machine(const gen_machine **out_machine)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;

  pthread_once(&once, init_host);
  if (host_error[0]) return WEFT_ERR(FAILED_PRECONDITION, "%s", host_error);
  *out_machine = &host;
  return NULL;
}

/* "a,b" as LLVM wants it: "+a,+b". */
static char *with_signs(weft_arena *arena, const char *features)
{
  char *out = weft_arena_alloc(arena, 2 * strlen(features) + 2), *at = out;

  if (!out) return NULL;
  for (const char *c = features; *c; c++) {
    if (c == features || c[-1] == ',') *at++ = '+';
    *at++ = *c;
  }
  *at = '\0';
  return out;
}

weft_status *gen_machine_of(const char *level, weft_arena *arena, const gen_machine **out_machine)
{
  const gen_machine *here;
  const char *features = gen_level_features(level);

  if (!features)
    return WEFT_ERR(INVALID_ARGUMENT, "no processor \"%.60s\": expected native, %s", level, gen_level_names());
  WEFT_TRY(gen_host_machine(&here));
  if (strncmp(here->triple, "x86_64", 6) != 0)
    return WEFT_ERR(UNIMPLEMENTED, "code for %s, made on %.60s", level, here->triple);
  gen_machine *machine = WEFT_ARENA_NEW(arena, gen_machine);
  WEFT_TRY_ALLOC(machine);
  *machine = *here;
  machine->cpu = weft_arena_strdup(arena, level);
  machine->features = with_signs(arena, features);
  WEFT_TRY_ALLOC(machine->cpu && machine->features);
  set_target(machine);
  *out_machine = machine;
  return NULL;
}

const char *gen_target_description(void)
{
  const gen_machine *machine;

  weft_status_ignore(gen_host_machine(&machine));
  return host_error[0] ? host_error : host_text;
}

weft_status *gen_target_machine(const gen_machine *machine, int level, LLVMTargetMachineRef *out_machine)
{
  /* LLVM's schedulers take time that grows with the square of the instructions that use one value; without
   * optimisation LLVM leaves them out. */
  *out_machine = LLVMCreateTargetMachine(machine->llvm, machine->triple, machine->cpu, machine->features,
                                         level == GEN_OPT_FAST ? LLVMCodeGenLevelNone : LLVMCodeGenLevelDefault,
                                         LLVMRelocPIC, LLVMCodeModelSmall);
  return *out_machine ? NULL : WEFT_ERR(INTERNAL, "LLVM cannot make code for %s", machine->cpu);
}
