/* codegen/host/target.c -- the machine that code is made for, and LLVM's one-time initialisation. */
#include <config.h>

#include "codegen/host/host.h"

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

/* The file that holds `function`; "" if it is not known. */
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
  if (LLVMGetTargetFromTriple(host.triple, &host.llvm, &error)) {
    snprintf(host_error, sizeof host_error, "LLVM: %s", error ? error : "unknown target");
    LLVMDisposeMessage(error);
    return;
  }
  bool arm = strncmp(host.triple, "aarch64", 7) == 0;
  host.target = gen_cpu_target;
  host.target.has_fma = arm || has_feature(host.features, "+fma");
  host.target.has_f16c = arm || has_feature(host.features, "+f16c");
  host.target.has_f16 = has_feature(host.features, arm ? "+fullfp16" : "+avx512fp16");
  snprintf(host_text, sizeof host_text, "%.*s %s", (int)strcspn(host.triple, "-"), host.triple, host.cpu);
  for (size_t i = 0; i < WEFT_COUNT(told_features); i++) {
    length = strlen(host_text);
    if (has_feature(host.features, told_features[i]))
      snprintf(host_text + length, sizeof host_text - length, " %s", told_features[i]);
  }
}

weft_status *gen_host_machine(const gen_machine **out_machine)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;

  pthread_once(&once, init_host);
  if (host_error[0]) return WEFT_ERR(FAILED_PRECONDITION, "%s", host_error);
  *out_machine = &host;
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
  *out_machine = LLVMCreateTargetMachine(machine->llvm, machine->triple, machine->cpu, machine->features,
                                         level == GEN_OPT_FAST ? LLVMCodeGenLevelLess : LLVMCodeGenLevelDefault,
                                         LLVMRelocPIC, LLVMCodeModelSmall);
  return *out_machine ? NULL : WEFT_ERR(INTERNAL, "LLVM cannot make code for %s", machine->cpu);
}
