/* tests/gpu/emulated_symbol.h -- functions of the emulated libraries that only tests call (emulator/weft_emu.h). */
#ifndef WEFT_TESTS_GPU_EMULATED_SYMBOL_H
#define WEFT_TESTS_GPU_EMULATED_SYMBOL_H

#include "test.h"

#include <dlfcn.h>

static inline void *emulated_symbol(const char *library, const char *symbol)
{
  char path[4096];

  snprintf(path, sizeof path, "%s/%s", getenv("WEFT_CUDA_LIBDIR"), library);
  void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!lib) fail_msg("%s", dlerror());
  void *found = dlsym(lib, symbol);
  assert_non_null(found);
  return found;
}

#endif
