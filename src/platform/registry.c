/* platform/registry.c -- the kinds of device that this build has (registry.h). */
#include <config.h>

#include "platform/registry.h"

#include <stdio.h>
#include <string.h>

#include "cpu/lapack.h"
#include "cpu/platform.h"
#include "gpu/platform.h"

enum { MOST_PLATFORMS = 6 };

/* In order of preference: the first one that this machine has is used. */
static const weft_platform_ops *platforms[MOST_PLATFORMS] = {
#ifdef WEFT_CUDA_FIRST
  &gpu_platform_ops, &cpu_platform_ops,
#else
  &cpu_platform_ops, &gpu_platform_ops,
#endif
};
static int count = 2;

typedef struct plat_settings {
  const char *name;
} plat_settings;
static const weft_option options[] = {
  {"WEFT_PLATFORM", WEFT_OPT_STRING, "", offsetof(plat_settings, name), "The kind of device to use: cpu or cuda; empty: the first that this build prefers and the machine has"},
};
const weft_option_table plat_options = {"platform", options, WEFT_COUNT(options)};

int plat_count(void) { return count; }
const weft_platform_ops *plat_at(int index) { return platforms[index]; }

/* NULL: this build has none of that name. */
static const weft_platform_ops *find(const char *name)
{
  for (int i = 0; i < count; i++)
    if (strcmp(platforms[i]->name, name) == 0) return platforms[i];
  return NULL;
}

static const weft_platform_ops *first_available(void)
{
  for (int i = 0; i < count; i++) {
    weft_status *st = platforms[i]->available ? platforms[i]->available() : NULL;
    bool there = st == NULL;
    weft_status_ignore(st); /* `weft info` shows the reason */
    if (there) return platforms[i];
  }
  return &cpu_platform_ops;
}

weft_status *plat_default(const weft_platform_ops **out_ops)
{
  plat_settings settings;
  char names[256] = "";

  WEFT_TRY(weft_options_load(&plat_options, &settings));
  *out_ops = *settings.name ? find(settings.name) : first_available();
  if (*out_ops) return NULL;
  for (int i = 0; i < count; i++) {
    size_t used = strlen(names);
    snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", platforms[i]->name);
  }
  return WEFT_ERR(INVALID_ARGUMENT, "WEFT_PLATFORM is \"%s\": this build has %s", settings.name, names);
}

weft_status *plat_new(const weft_platform_options *wanted, weft_platform **out_platform)
{
  const weft_platform_ops *ops;

  *out_platform = NULL;
  WEFT_TRY(plat_default(&ops));
  if (ops != &cpu_platform_ops)
    WEFT_TRY(cpu_lapack_register()); /* other platforms have the host do these custom calls */
  return weft_platform_new(ops, wanted, out_platform);
}

void plat_register(const weft_platform_ops *ops)
{
  if (count == MOST_PLATFORMS) return;
  memmove(platforms + 1, platforms, (size_t)count * sizeof *platforms);
  platforms[0] = ops;
  count++;
}
