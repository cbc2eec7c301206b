/* tests/fuzz/kernel_cache_fuzz.c -- A damaged file in the folder of compiled kernels: it is not taken, what it was for
 * is compiled again, and the kernel is right.
 *   0 BYTES              the file is these bytes
 *   1 (OFFSET16 XOR)...  the file with a few bytes changed
 *   2 LENGTH16           the file cut short
 *   3 BYTES              the file with bytes behind it */
#include <config.h>

#include <dirent.h>
#include <string.h>
#include <unistd.h>

#include "codegen/codegen.h"
#include "fuzz.h"
#include "hlo/text.h"

enum { MOST_BYTES = 1 << 16 };

static const char text[] = "HloModule m\n"
                           "f {\n"
                           "  a = s32[8] parameter(0)\n"
                           "  ROOT b = s32[8] multiply(a, a)\n"
                           "}\n"
                           "ENTRY e {\n"
                           "  p = s32[8] parameter(0)\n"
                           "  ROOT r = s32[8] fusion(p), kind=kLoop, calls=f\n"
                           "}\n";
static char folder[] = "/tmp/weft-cache-fuzz-XXXXXX", path[512];
static uint8_t whole[MOST_BYTES];
static size_t whole_size;
static hlo_module *module;

/* Compiles and runs the kernel; gives whether it came from the cache. */
static bool compile_and_run(void)
{
  WEFT_AUTO(gen_code) code = NULL;
  int32_t in[8] = {1, -2, 3, 4, 5, 6, 7, 8}, out[8] = {0};
  void *args[2] = {in, out};

  FUZZ_OK(gen_compile(module, &(gen_options){.threads = 1, .cache_dir = folder}, &code));
  const gen_kernel *kernel = gen_code_kernel(code, module->entry->root);
  FUZZ_TRUE(kernel && kernel->arg_count == 2 && kernel->phase_count == 1);
  kernel->phases[0].fn(args, 0, kernel->phases[0].units);
  for (int i = 0; i < 8; i++) FUZZ_TRUE(out[i] == in[i] * in[i]);
  return gen_code_stats(code)->cached_parts > 0;
}

static void remove_folder(void)
{
  unlink(path);
  rmdir(folder);
}

static void prepare(void)
{
  DIR *dir;
  FILE *f;

  FUZZ_TRUE(mkdtemp(folder) != NULL);
  FUZZ_OK(hlo_parse(text, sizeof text - 1, &module));
  FUZZ_TRUE(!compile_and_run());
  FUZZ_TRUE((dir = opendir(folder)) != NULL);
  for (struct dirent *entry; (entry = readdir(dir));)
    if (entry->d_name[0] != '.') snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
  closedir(dir);
  atexit(remove_folder);
  FUZZ_TRUE((f = fopen(path, "rb")) != NULL);
  whole_size = fread(whole, 1, sizeof whole, f);
  fclose(f);
  FUZZ_TRUE(whole_size > 0 && whole_size < sizeof whole);
  FUZZ_TRUE(compile_and_run());
}

static size_t damage(const uint8_t *data, size_t size, uint8_t *out)
{
  size_t at = whole_size;

  memcpy(out, whole, whole_size);
  switch (data[0] % 4) {
  case 0: at = 0; break;
  case 1:
    for (size_t i = 1; i + 2 < size; i += 3) out[(data[i] | (size_t)data[i + 1] << 8) % whole_size] ^= data[i + 2];
    return whole_size;
  case 2: return size > 2 ? (data[1] | (size_t)data[2] << 8) % whole_size : 0;
  default: break;
  }
  size = WEFT_MIN(size - 1, 2 * MOST_BYTES - at);
  memcpy(out + at, data + 1, size);
  return at + size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  static uint8_t damaged[2 * MOST_BYTES];
  FILE *f;

  if (!module) prepare();
  if (size == 0) return 0;
  size = damage(data, size, damaged);
  FUZZ_TRUE((f = fopen(path, "wb")) != NULL);
  FUZZ_TRUE(fwrite(damaged, 1, size, f) == size && fclose(f) == 0);
  bool same = size == whole_size && memcmp(damaged, whole, size) == 0;
  FUZZ_TRUE(compile_and_run() == same);
  return 0;
}
