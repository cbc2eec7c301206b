/* tests/gpu/emulated.c -- makes the emulated GPU the default platform of the test program that this file is linked
 * into: platform "cuda", with the driver of the build folder. */
#include <config.h>

#include <stdio.h>
#include <stdlib.h>

__attribute__((constructor)) static void use_the_emulator(void)
{
  const char *build = getenv("WEFT_BUILDDIR");
  char path[4096];

  snprintf(path, sizeof path, "%s/tests/gpu/emulator/.libs", build ? build : ".");
  setenv("WEFT_CUDA_LIBDIR", path, 1);
  setenv("WEFT_PLATFORM", "cuda", 1);
  setenv("WEFT_EMU_DEVICES", "8", 1); /* as many as the suites use */
}
