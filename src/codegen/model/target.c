/* codegen/model/target.c -- the targets whose numbers are built in. */
#include <config.h>

#include "codegen/model/target.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/macros.h"

const gen_target gen_cpu_target = {
  .name = "cpu",
  .vector_bytes = 64,
  .cache_bytes = 1500000,
  .row_elems = 1 << 16,
  .block_bytes = 8192,
  .busy_units = 8,
  .split_elems = 1 << 16,
  .split_block_elems = 1 << 14,
  .dot_work = 1 << 10,
  .region_dot_work = 1 << 12,
  .region_row_work = 1 << 15,
  .block_threads = 1,
  .costs = {
    .scale = 1, .call_ns = 100, .library_ns = 400, .near_byte_ns = 0.022, .far_byte_ns = 0.07, .turned_byte_ns = 0.06,
    .task_ns = 10000, .handover_ns = 5000, .moved_byte_ns = {0.03, 0.08}, .whole_byte_ns = 0.15,
  },
};

/* Costs are not measured yet: they are zero. */
static const gen_target gpus[] = {
#define GEN_GPU(device_, processor, multiprocessors, mhz, gb_s, l2_mib, shared_kib, bf16)                              \
  {.name = processor, .device = device_, .vector_bytes = 128, .cores = multiprocessors,                                \
   .cache_bytes = (int64_t)(l2_mib) << 20, .row_elems = 1 << 16, .dot_work = 1 << 10, .region_dot_work = 512, .shared_bytes = 48 << 10, .most_shared_bytes = (shared_kib) << 10,        \
   .busy_units = 8, .split_elems = 1 << 16, .split_block_elems = 1 << 14, .block_threads = 1024, .clock_mhz = mhz, .memory_gb_s = gb_s, .has_fma = true, .has_f16c = true,  \
   .has_bf16 = bf16},
#include "codegen/model/gpus.def"
#undef GEN_GPU
};

const gen_target *gen_gpu_target(const char *name)
{
  for (size_t i = 0; i < WEFT_COUNT(gpus); i++)
    if (strcmp(gpus[i].name, name) == 0 || strcasecmp(gpus[i].device, name) == 0) return &gpus[i];
  return NULL;
}

/* ---- files ----------------------------------------------------------------------------------------------------- */

static bool set_number(gen_target *t, const char *key, double value)
{
  if (!(value > 0 && value < 1e9)) return false;
  if (strcmp(key, "multiprocessors") == 0 && value < 1 << 16) return t->cores = (int)value, true;
  if (strcmp(key, "clock_mhz") == 0) return t->clock_mhz = value, true;
  if (strcmp(key, "memory_gb_s") == 0) return t->memory_gb_s = value, true;
  if (strcmp(key, "l2_mib") == 0) return t->cache_bytes = (int64_t)(value * (1 << 20)), true;
  return false;
}

/* One line of a file. A processor sets all figures, so it comes before them. */
static bool read_line(gen_target *t, char *line)
{
  char key[32], value[32], *comment = strchr(line, '#'), *end;

  if (comment) *comment = 0;
  int words = sscanf(line, "%31s %31s", key, value);
  if (words <= 0) return true;
  if (words != 2) return false;
  if (strcmp(key, "device") == 0) return snprintf(t->device, sizeof t->device, "%s", value) > 0;
  if (strcmp(key, "processor") == 0) {
    const gen_target *known = strncmp(value, "sm_", 3) == 0 ? gen_gpu_target(value) : NULL;
    char device[sizeof t->device];
    if (!known) return false;
    memcpy(device, t->device, sizeof device);
    *t = *known;
    memcpy(t->device, device, sizeof device);
    return true;
  }
  double number = strtod(value, &end);
  return t->name && !*end && set_number(t, key, number);
}

weft_status *gen_gpu_target_load(const char *path, gen_target *out)
{
  FILE *file = fopen(path, "re");
  char line[256];
  int number = 0;
  bool ok = true;

  *out = (gen_target){.device = "GPU"};
  if (!file) return WEFT_ERR(NOT_FOUND, "%s: %s", path, strerror(errno));
  while (ok && fgets(line, sizeof line, file)) {
    number++;
    ok = (strchr(line, '\n') || feof(file)) && read_line(out, line);
  }
  fclose(file);
  if (!ok)
    return WEFT_ERR(INVALID_ARGUMENT,
                    "%s:%d: expected device, processor, multiprocessors, clock_mhz, memory_gb_s or "
                    "l2_mib and a value, the processor before the numbers",
                    path, number);
  if (!out->name) return WEFT_ERR(INVALID_ARGUMENT, "%s: no line says which processor", path);
  return NULL;
}
