/* tests/gpu/nvptx_test.c -- what LLVM's NVPTX back end writes runs right on the emulator: saxpy, a sum of a
 * block in shared memory with shuffles, a transpose of tiles, for sm_75, sm_80 and sm_90, in each order of
 * blocks and warps and with all checks on. */
#include "ptx_run.h"

#include <llvm/Config/llvm-config.h>

#ifndef LLVM_HAS_NVPTX_TARGET
#define LLVM_HAS_NVPTX_TARGET 0
#endif

#if LLVM_HAS_NVPTX_TARGET
#include <llvm-c/Core.h>
#include <llvm-c/IRReader.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <llvm-c/Transforms/PassBuilder.h>

/* The tests are linked with LLVM's shared library where there is one; static archives of
 * the host's target alone have not these. */
#pragma weak LLVMParseIRInContext
#pragma weak LLVMInitializeNVPTXTargetInfo
#pragma weak LLVMInitializeNVPTXTarget
#pragma weak LLVMInitializeNVPTXTargetMC
#pragma weak LLVMInitializeNVPTXAsmPrinter

#define SREGS "declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()\ndeclare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()\ndeclare i32 @llvm.nvvm.read.ptx.sreg.ctaid.y()\n" \
  "declare void @llvm.nvvm.barrier0()\ndeclare i32 @llvm.nvvm.shfl.sync.bfly.i32(i32, i32, i32, i32)\n"
static const char saxpy[] = SREGS
  "define ptx_kernel void @saxpy(ptr addrspace(1) noalias readonly align 16 %x, ptr addrspace(1) noalias align 16 %y) {\n"
  "%t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n%b = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()\n%o = mul i32 %b, 64\n%i = add i32 %o, %t\n%j = zext i32 %i to i64\n"
  "%px = getelementptr float, ptr addrspace(1) %x, i64 %j\n%py = getelementptr float, ptr addrspace(1) %y, i64 %j\n%vx = load float, ptr addrspace(1) %px\n"
  "%vy = load float, ptr addrspace(1) %py\n%m = fmul float %vx, 3.0\n%s = fadd float %m, %vy\nstore float %s, ptr addrspace(1) %py\nret void\n}\n";
static const char sum[] = SREGS
  "@part = internal addrspace(3) global [4 x i32] undef, align 4\n"
  "define ptx_kernel void @sum(ptr addrspace(1) noalias readonly %x, ptr addrspace(1) noalias %y) {\nentry:\n"
  "%t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n%b = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()\n%o = mul i32 %b, 128\n%i = add i32 %o, %t\n%j = zext i32 %i to i64\n"
  "%p = getelementptr i32, ptr addrspace(1) %x, i64 %j\n%v = load i32, ptr addrspace(1) %p\nbr label %loop\n"
  "loop:\n%d = phi i32 [16, %entry], [%dn, %loop]\n%a = phi i32 [%v, %entry], [%an, %loop]\n%s = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 %a, i32 %d, i32 31)\n"
  "%an = add i32 %a, %s\n%dn = lshr i32 %d, 1\n%c = icmp ne i32 %dn, 0\nbr i1 %c, label %loop, label %store\n"
  "store:\n%l = and i32 %t, 31\n%w = lshr i32 %t, 5\n%first = icmp eq i32 %l, 0\n%q = getelementptr i32, ptr addrspace(3) @part, i32 %w\nbr i1 %first, label %put, label %meet\n"
  "put:\nstore i32 %an, ptr addrspace(3) %q\nbr label %meet\nmeet:\ncall void @llvm.nvvm.barrier0()\n%zero = icmp eq i32 %t, 0\nbr i1 %zero, label %last, label %end\n"
  "last:\n%p1 = getelementptr i32, ptr addrspace(3) @part, i32 1\n%p2 = getelementptr i32, ptr addrspace(3) @part, i32 2\n%p3 = getelementptr i32, ptr addrspace(3) @part, i32 3\n"
  "%r0 = load i32, ptr addrspace(3) @part\n%r1 = load i32, ptr addrspace(3) %p1\n%r2 = load i32, ptr addrspace(3) %p2\n%r3 = load i32, ptr addrspace(3) %p3\n"
  "%s1 = add i32 %r0, %r1\n%s2 = add i32 %r2, %r3\n%s3 = add i32 %s1, %s2\n%out = getelementptr i32, ptr addrspace(1) %y, i32 %b\nstore i32 %s3, ptr addrspace(1) %out\nbr label %end\nend:\nret void\n}\n";
static const char transpose[] = SREGS
  "@tile = internal addrspace(3) global [1056 x i32] undef, align 4\n"
  "define ptx_kernel void @transpose(ptr addrspace(1) noalias readonly %x, ptr addrspace(1) noalias %y) {\n"
  "%t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n%bx = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()\n%by = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.y()\n"
  "%c = and i32 %t, 31\n%r = lshr i32 %t, 5\n%tx = shl i32 %bx, 5\n%ty = shl i32 %by, 5\n%row = add i32 %ty, %r\n%col = add i32 %tx, %c\n%rw = mul i32 %row, 64\n"
  "%i = add i32 %rw, %col\n%p = getelementptr i32, ptr addrspace(1) %x, i32 %i\n%v = load i32, ptr addrspace(1) %p\n%sr = mul i32 %r, 33\n%si = add i32 %sr, %c\n"
  "%q = getelementptr i32, ptr addrspace(3) @tile, i32 %si\nstore i32 %v, ptr addrspace(3) %q\ncall void @llvm.nvvm.barrier0()\n%tr = mul i32 %c, 33\n%ti = add i32 %tr, %r\n"
  "%q2 = getelementptr i32, ptr addrspace(3) @tile, i32 %ti\n%v2 = load i32, ptr addrspace(3) %q2\n%orow = add i32 %tx, %r\n%ocol = add i32 %ty, %c\n%ow = mul i32 %orow, 64\n"
  "%oi = add i32 %ow, %ocol\n%o = getelementptr i32, ptr addrspace(1) %y, i32 %oi\nstore i32 %v2, ptr addrspace(1) %o\nret void\n}\n";

/* PTX of an IR text; the caller frees it by LLVMDisposeMessage. */
static char *compile(const char *ir, const char *cpu)
{
  char *error = NULL, *text;
  LLVMContextRef context = LLVMContextCreate();
  LLVMModuleRef module;
  LLVMTargetRef target;
  LLVMMemoryBufferRef in = LLVMCreateMemoryBufferWithMemoryRangeCopy(ir, strlen(ir), "ir"), out;
  LLVMInitializeNVPTXTargetInfo(), LLVMInitializeNVPTXTarget(), LLVMInitializeNVPTXTargetMC(),
    LLVMInitializeNVPTXAsmPrinter();
  if (LLVMParseIRInContext(context, in, &module, &error)) fail_msg("%s", error);
  if (LLVMGetTargetFromTriple("nvptx64-nvidia-cuda", &target, &error)) fail_msg("%s", error);
  LLVMTargetMachineRef machine = LLVMCreateTargetMachine(
    target, "nvptx64-nvidia-cuda", cpu, "", LLVMCodeGenLevelAggressive, LLVMRelocDefault, LLVMCodeModelDefault);
  LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(machine);
  LLVMSetTarget(module, "nvptx64-nvidia-cuda");
  LLVMSetModuleDataLayout(module, layout);
  LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
  LLVMErrorRef failed = LLVMRunPasses(module, "default<O3>", machine, options);
  if (failed) fail_msg("%s", LLVMGetErrorMessage(failed));
  if (LLVMTargetMachineEmitToMemoryBuffer(machine, module, LLVMAssemblyFile, &error, &out)) fail_msg("%s", error);
  text = LLVMCreateMessage(LLVMGetBufferStart(out));
  LLVMDisposeMemoryBuffer(out);
  LLVMDisposePassBuilderOptions(options);
  LLVMDisposeTargetData(layout);
  LLVMDisposeTargetMachine(machine);
  LLVMDisposeModule(module);
  LLVMContextDispose(context);
  return text;
}

static void skip_without_target(void)
{
  if (LLVMParseIRInContext && LLVMInitializeNVPTXTarget) return;
  print_message("# SKIP: the LLVM that tests are linked with has no NVPTX target\n");
  skip();
}

static void run_each(const char *ir, ptx_launch launch, const void *x, size_t x_size, const void *y, const void *want,
                     size_t y_size)
{
  static const char *const cpus[] = {"sm_75", "sm_80", "sm_90"};
  static const ptx_order orders[] = {PTX_NORMAL, PTX_REVERSED, PTX_INTERLEAVED};
  skip_without_target();
  for (size_t n = 0; n < 9; n++) {
    run_memory m = {.count = 0};
    char *text = compile(ir, cpus[n / 3]), error[400];
    ptx_module *module = run_load(&m, text);
    void *out = aligned_alloc(64, 65536), *in = aligned_alloc(64, 65536);
    memcpy(out, y, y_size), memcpy(in, x, x_size);
    uint64_t params[2] = {run_add(&m, in, x_size), run_add(&m, out, y_size)};
    launch.order = orders[n % 3], launch.seed = n, launch.checks = PTX_CHECK_RACES | PTX_CHECK_BARRIERS;
    int rc = run_kernel(&m, module, launch, params, NULL, error, sizeof error);
    if (rc) fail_msg("%s: %d %s\n%s", cpus[n / 3], rc, error, text);
    assert_memory_equal(out, want, y_size);
    ptx_free(module);
    LLVMDisposeMessage(text);
    free(out);
    free(in);
  }
}

TEST(saxpy_of_llvm)
{
  float x[256], y[256], want[256];
  for (int n = 0; n < 256; n++) x[n] = (float)n * 0.25f, y[n] = (float)(n % 7), want[n] = x[n] * 3 + y[n];
  run_each(saxpy, (ptx_launch){.grid = {4}, .block = {64}}, x, sizeof x, y, want, sizeof y);
}

TEST(block_sums_of_llvm)
{
  uint32_t x[512], y[4] = {0}, want[4] = {0};
  for (uint32_t n = 0; n < 512; n++) x[n] = n * n, want[n / 128] += x[n];
  run_each(sum, (ptx_launch){.grid = {4}, .block = {128}}, x, sizeof x, y, want, sizeof y);
}

TEST(transpose_of_llvm)
{
  static uint32_t x[4096], y[4096], want[4096];
  for (uint32_t n = 0; n < 4096; n++) x[n] = n, want[n % 64 * 64 + n / 64] = n;
  run_each(transpose, (ptx_launch){.grid = {2, 2}, .block = {1024}}, x, sizeof x, y, want, sizeof y);
}
#else
#define SKIPPED(name) TEST(name) { print_message("# SKIP: this LLVM has no NVPTX target\n"); skip(); }
SKIPPED(saxpy_of_llvm)
SKIPPED(block_sums_of_llvm)
SKIPPED(transpose_of_llvm)
#endif

TEST_MAIN(UNIT(saxpy_of_llvm), UNIT(block_sums_of_llvm), UNIT(transpose_of_llvm))
