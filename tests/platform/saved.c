/* tests/platform/saved.c -- the CPU, where every program is saved and loaded between its compilation and its runs: the
 * suites that are linked with it show that a loaded program is the one that was compiled. */
#include <config.h>

#include <stdlib.h>

#include "cpu/cpu_internal.h"
#include "cpu/platform.h"
#include "platform/registry.h"
#include "runtime/saved.h"

static weft_platform_ops saved_ops;

static weft_status *create(const weft_platform_options *options, weft_platform **out_platform)
{
  WEFT_TRY(cpu_platform_ops.create(options, out_platform));
  (*out_platform)->ops = &saved_ops;
  return NULL;
}

static weft_status *compile(weft_platform *platform, hlo_module *module, const weft_compile_options *options,
                            weft_executable **out_executable)
{
  WEFT_AUTO(weft_executable) exe = NULL;
  weft_saved saved;
  void *bytes = NULL;
  size_t size;

  *out_executable = NULL;
  WEFT_TRY(cpu_compile(platform, module, options, &exe));
  WEFT_TRY(weft_executable_save(exe, NULL, "weft-test", NULL, 0, &bytes, &size));
  weft_status *st = weft_saved_open(bytes, size, &saved);
  if (!st) st = weft_executable_load(platform, &saved, options, out_executable);
  free(bytes);
  return st;
}

__attribute__((constructor)) static void become_the_default(void)
{
  saved_ops = cpu_platform_ops;
  saved_ops.name = "saved";
  saved_ops.create = create;
  saved_ops.compile = compile;
  plat_register(&saved_ops);
}
