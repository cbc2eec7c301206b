/* codegen/model/target.c -- the targets whose numbers are built in. */
#include <config.h>

#include "codegen/model/target.h"

#include <string.h>

#include "base/macros.h"

const gen_target gen_cpu_target = {
  .name = "cpu",
  .vector_bytes = 64,
  .cache_bytes = 1500000,
  .row_elems = 1 << 16,
  .block_bytes = 8192,
  .dot_work = 1 << 10,
  .region_dot_work = 1 << 12,
  .region_row_work = 1 << 15,
  .block_threads = 1,
  .costs = {
    .scale = 1, .call_ns = 100, .library_ns = 400, .near_byte_ns = 0.022, .far_byte_ns = 0.07, .turned_byte_ns = 0.06,
    .task_ns = 10000, .handover_ns = 5000, .moved_byte_ns = {0.015, 0.05}, .whole_byte_ns = 0.08,
  },
};

/* Costs are not measured yet: they are zero. */
static const gen_target gpus[] = {
  {.name = "sm_75", .vector_bytes = 128, .cores = 40, .shared_bytes = 48 << 10, .block_threads = 1024, .has_fma = true, .has_f16c = true},
  {.name = "sm_80", .vector_bytes = 128, .cores = 108, .shared_bytes = 48 << 10, .block_threads = 1024, .has_fma = true, .has_f16c = true},
  {.name = "sm_90", .vector_bytes = 128, .cores = 132, .shared_bytes = 48 << 10, .block_threads = 1024, .has_fma = true, .has_f16c = true},
};

const gen_target *gen_gpu_target(const char *processor)
{
  for (size_t i = 0; i < WEFT_COUNT(gpus); i++)
    if (strcmp(gpus[i].name, processor) == 0) return &gpus[i];
  return NULL;
}
