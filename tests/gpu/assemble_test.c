/* tests/gpu/assemble_test.c -- machine code by NVIDIA's nvJitLink and ptxas, where the toolkit is installed: neither
 * needs a GPU. And by a program that stands for ptxas, whose failures are errors with its words. */
#include "test.h"

#include <sys/stat.h>
#include <unistd.h>

#include "gpu/assemble.h"

static const char ptx[] =
  ".version 7.8\n.target sm_90\n.address_size 64\n"
  ".visible .entry twice(.param .u64 a)\n{\n"
  "  .reg .b64 %rd<3>;\n  .reg .f32 %f<3>;\n"
  "  ld.param.u64 %rd1, [a];\n  cvta.to.global.u64 %rd2, %rd1;\n"
  "  ld.global.f32 %f1, [%rd2];\n  add.rn.f32 %f2, %f1, %f1;\n  st.global.f32 [%rd2], %f2;\n  ret;\n}\n";

/* The machine code is an ELF file for CUDA's processors that has the kernel. */
static void is_machine_code(const void *code, size_t size)
{
  const unsigned char *bytes = code;

  T_TRUE(size > 200);
  T_TRUE(memcmp(bytes, "\177ELF", 4) == 0);
  T_EQ_INT(bytes[18], 190); /* EM_CUDA */
  T_TRUE(memmem(code, size, "twice", 5) != NULL);
}

static void assembles(const char *kind)
{
  gpu_assembler assembler;
  void *code;
  size_t size;

  setenv("WEFT_CUDA_ASSEMBLER", kind, 1);
  T_OK(gpu_assembler_find(13000, &assembler));
  print_message("# %s\n", assembler.name);
  T_OK(gpu_assemble(&assembler, 90, ptx, &code, &size));
  is_machine_code(code, size);
  free(code);
  weft_status *st = gpu_assemble(&assembler, 90, ".version 7.8\n.target sm_90\nnonsense\n", &code, &size);
  T_EQ_INT(weft_status_code(st), WEFT_INTERNAL);
  print_message("# %s\n", weft_status_message(st));
  T_TRUE(strstr(weft_status_message(st), "nonsense") || strstr(weft_status_message(st), "yntax"));
  weft_status_free(st);
  T_TRUE(code == NULL);
  /* a driver of an older major version may not take what this assembler makes */
  st = gpu_assembler_find(12080, &assembler);
  T_EQ_INT(weft_status_code(st), WEFT_UNAVAILABLE);
  weft_status_free(st);
}

TEST(nvjitlink_assembles_ptx)
{
  if (access(WEFT_CUDA_TOOLKIT "/lib64/libnvJitLink.so.13", R_OK) != 0) T_SKIP("no nvJitLink in " WEFT_CUDA_TOOLKIT);
  setenv("WEFT_CUDA_LIBDIR", WEFT_CUDA_TOOLKIT "/lib64", 1);
  assembles("nvjitlink");
  setenv("WEFT_CUDA_LIBDIR", "/nowhere", 1);
}

TEST(ptxas_assembles_ptx)
{
  if (access(WEFT_CUDA_TOOLKIT "/bin/ptxas", X_OK) != 0) T_SKIP("no ptxas in " WEFT_CUDA_TOOLKIT);
  setenv("WEFT_CUDA_PTXAS", WEFT_CUDA_TOOLKIT "/bin/ptxas", 1);
  assembles("ptxas");
  unsetenv("WEFT_CUDA_PTXAS");
}

/* ---- a program that stands for ptxas --------------------------------------------------------------------------- */

static char program[] = "/tmp/weft-ptxas-XXXXXX/ptxas";
static char *const slash = program + sizeof program - sizeof "/ptxas";

static void write_program(const char *body)
{
  strcpy(slash - 6, "XXXXXX");
  T_TRUE(mkdtemp(program) != NULL);
  *slash = '/';
  FILE *file = fopen(program, "w");
  T_TRUE(file != NULL);
  fprintf(file, "#!/bin/sh\n%s\n", body);
  T_TRUE(fclose(file) == 0 && chmod(program, 0700) == 0);
  setenv("WEFT_CUDA_ASSEMBLER", "ptxas", 1);
  setenv("WEFT_CUDA_PTXAS", program, 1);
}

static void remove_program(void)
{
  unlink(program);
  *slash = 0;
  T_TRUE(rmdir(program) == 0);
  unsetenv("WEFT_CUDA_PTXAS");
}

#define TELLS "[ \"$1\" = --version ] && { echo 'Cuda compilation tools, release 13.0, V13.0.1'; exit 0; }\n"

static weft_status *assemble_by_program(const char *body, void **out_code, size_t *out_size)
{
  gpu_assembler assembler;

  write_program(body);
  *out_code = NULL;
  weft_status *st = gpu_assembler_find(13000, &assembler);
  if (!st) st = gpu_assemble(&assembler, 90, ptx, out_code, out_size);
  remove_program();
  return st;
}

TEST(a_program_that_fails_is_an_error_with_its_words)
{
  void *code;
  size_t size;

  T_OK(assemble_by_program(TELLS "[ \"$1 $2 $3\" = '-arch=sm_90 -O3 -o' ] && cat \"$5\" >\"$4\"", &code, &size));
  T_EQ_INT(size, strlen(ptx));
  T_TRUE(memcmp(code, ptx, size) == 0);
  free(code);
  T_FAILS(assemble_by_program(TELLS "echo 'line 7: no such thing' >&2; exit 3", &code, &size), "line 7: no such thing");
  T_FAILS(assemble_by_program(TELLS "exit 0", &code, &size), "has written no code");
  T_FAILS(assemble_by_program("echo hello", &code, &size), "does not tell its version: hello");
  T_FAILS(assemble_by_program("echo release 14.1, V14.1.0", &code, &size), "is of CUDA 14.1, the driver of CUDA 13");
  /* more words than the message has room for, and none of them is waited for */
  T_FAILS(assemble_by_program(TELLS "yes 0123456789 | head -c 300000; exit 1", &code, &size), "0123456789");
}

TEST(what_is_asked_for_and_is_not_there_is_an_error)
{
  gpu_assembler assembler;

  setenv("WEFT_CUDA_LIBDIR", "/nowhere", 1);
  setenv("WEFT_CUDA_ASSEMBLER", "nvjitlink", 1);
  T_FAILS(gpu_assembler_find(13000, &assembler), "/nowhere/libnvJitLink.so.13");
  setenv("WEFT_CUDA_ASSEMBLER", "ptxas", 1);
  setenv("WEFT_CUDA_PTXAS", "/nowhere/ptxas", 1);
  T_FAILS(gpu_assembler_find(13000, &assembler), "/nowhere/ptxas does not start");
  setenv("WEFT_CUDA_ASSEMBLER", "auto", 1);
  T_OK(gpu_assembler_find(13000, &assembler));
  T_EQ_INT(assembler.kind, GPU_BY_DRIVER);
  setenv("WEFT_CUDA_ASSEMBLER", "nasm", 1);
  T_FAILS(gpu_assembler_find(13000, &assembler), "WEFT_CUDA_ASSEMBLER");
}

TEST_MAIN(UNIT(nvjitlink_assembles_ptx), UNIT(ptxas_assembles_ptx), UNIT(a_program_that_fails_is_an_error_with_its_words),
          UNIT(what_is_asked_for_and_is_not_there_is_an_error))
