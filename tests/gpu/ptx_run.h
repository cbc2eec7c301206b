/* tests/gpu/ptx_run.h -- runs PTX without a driver: memory is the test's own arrays, at their own addresses. */
#ifndef WEFT_TESTS_PTX_RUN_H
#define WEFT_TESTS_PTX_RUN_H

#include "test.h"

#include "emulator/ptx.h"

enum { RUN_ARRAYS = 128 };
typedef struct run_memory {
  ptx_range ranges[RUN_ARRAYS];
  int count;
} run_memory;

static inline bool run_find(void *ctx, uint64_t address, ptx_range *out, char *why, size_t why_size)
{
  const run_memory *m = ctx;
  for (int n = 0; n < m->count; n++) {
    if (address - m->ranges[n].base >= m->ranges[n].size) continue;
    *out = m->ranges[n];
    return true;
  }
  snprintf(why, why_size, "no array is there");
  return false;
}

static inline uint64_t run_add(run_memory *m, void *array, size_t size)
{
  if (m->count == RUN_ARRAYS) fail_msg("too many arrays");
  m->ranges[m->count++] = (ptx_range){(uint64_t)(uintptr_t)array, size, array};
  return (uint64_t)(uintptr_t)array;
}

static inline bool run_make(void *ctx, size_t size, size_t align, uint64_t *address, uint8_t **host)
{
  void *p = aligned_alloc(align < 64 ? 64 : align, (size + 4095) / 4096 * 4096);
  if (!p) return false;
  memset(p, 0, size);
  *address = run_add(ctx, p, size), *host = p;
  return true;
}

static inline void run_drop(void *ctx, uint64_t address)
{
  run_memory *m = ctx;
  for (int n = 0; n < m->count; n++)
    if (m->ranges[n].base == address) m->ranges[n] = m->ranges[--m->count];
  free((void *)(uintptr_t)address);
}

static inline ptx_module *run_load(run_memory *m, const char *text)
{
  ptx_globals globals = {run_make, run_drop, m};
  char error[400];
  ptx_module *module = ptx_load(text, strlen(text), &globals, error, sizeof error);
  if (!module) fail_msg("%s", error);
  return module;
}

/* The text must be refused with an error that contains `part`. */
static inline void run_refused(const char *text, const char *part)
{
  run_memory m = {.count = 0};
  ptx_globals globals = {run_make, run_drop, &m};
  char error[400];
  ptx_module *module = ptx_load(text, strlen(text), &globals, error, sizeof error);
  if (module) fail_msg("accepted, want \"%s\"", part);
  if (!strstr(error, part)) fail_msg("got \"%s\", want \"...%s...\"", error, part);
  assert_int_equal(m.count, 0); /* what it made before the error is dropped */
}

/* Runs a kernel with 8-byte parameters.  The launch has grid, block and what is to be checked. */
static inline int run_entry(run_memory *m, const ptx_kernel *k, ptx_launch launch, const uint64_t *params,
                            ptx_stats *stats, char *error, size_t error_size)
{
  ptx_memory memory = {run_find, NULL, m};
  launch.memory = &memory, launch.params = params, launch.params_size = ptx_params_size(k);
  for (int d = 0; d < 3; d++) {
    if (!launch.grid[d]) launch.grid[d] = 1;
    if (!launch.block[d]) launch.block[d] = 1;
  }
  if (!launch.budget) launch.budget = 200000000;
  return ptx_run(k, &launch, stats, error, error_size);
}

/* The same for the module's first kernel. */
static inline int run_kernel(run_memory *m, const ptx_module *module, ptx_launch launch, const uint64_t *params,
                             ptx_stats *stats, char *error, size_t error_size)
{
  return run_entry(m, ptx_kernel_at(module, 0), launch, params, stats, error, error_size);
}

#endif
