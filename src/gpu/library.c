/* gpu/library.c -- opening foreign libraries (library.h). */
#include <config.h>

#include "gpu/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "gpu/gpu_internal.h"

static const char configured_dir[] = WEFT_CUDA_DIR; /* of ./configure --with-cuda=DIR; else empty */

/* Opens `soname` in `dir`. On failure the loader's message is added to `words`. */
static void *open_in(const char *dir, const char *soname, char *words, size_t size)
{
  char path[4096];

  snprintf(path, sizeof path, "%s%s%s", dir, *dir ? "/" : "", soname);
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library) return library;
  size_t used = strlen(words);
  const char *why = dlerror();
  snprintf(words + used, size - used, "%s%s", used ? "; " : "", why ? why : path);
  return NULL;
}

weft_status *gpu_library_open(const char *soname, void **out_library)
{
  static const char *const below[] = {"", "/lib64", "/lib"}; /* where in the configured folder libraries may be */
  char words[2048] = "", dir[4096];
  gpu_settings settings;

  *out_library = NULL;
  WEFT_TRY(weft_options_load(&gpu_options, &settings));
  if (*settings.libdir) {
    *out_library = open_in(settings.libdir, soname, words, sizeof words);
  } else {
    *out_library = open_in("", soname, words, sizeof words);
    for (size_t i = 0; !*out_library && *configured_dir && i < WEFT_COUNT(below); i++) {
      snprintf(dir, sizeof dir, "%s%s", configured_dir, below[i]);
      *out_library = open_in(dir, soname, words, sizeof words);
    }
  }
  return *out_library ? NULL : WEFT_ERR(UNAVAILABLE, "cannot open %s: %s", soname, words);
}

void *gpu_library_symbol(void *library, const char *symbol) { return dlsym(library, symbol); }
