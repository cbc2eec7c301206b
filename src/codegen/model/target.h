/* codegen/model/target.h -- the description of a machine for passes, the cost model and code generation.
 *
 * Plans and results are the same on every CPU, so the CPU's description (gen_cpu_target) holds nominal numbers,
 * fitted on Sapphire Rapids. Only the `has_` fields describe the machine at hand; they choose between ways to
 * compute the same bits. */
#ifndef WEFT_CODEGEN_MODEL_TARGET_H
#define WEFT_CODEGEN_MODEL_TARGET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* Measured costs, in nanoseconds on one core. */
typedef struct gen_costs {
  double scale;              /* factor of the costs of operations (cost.c), which were measured on the CPU */
  double call_ns;            /* fixed cost of a kernel */
  double library_ns;         /* fixed cost of a library's operation */
  double near_byte_ns;       /* a byte of memory that the core's cache holds */
  double far_byte_ns;        /* a byte of other memory */
  double turned_byte_ns;     /* extra cost of a byte that is read across the rows */
  double task_ns;            /* the least work that is worth handing to another core */
  double handover_ns;        /* waking the cores that share a step */
  double moved_byte_ns[2];   /* a byte that another core wrote last: in a kernel, in a library's operation */
  double whole_byte_ns;      /* a byte that one core alone wrote */
} gen_costs;

typedef struct gen_target {
  const char *name;          /* of a GPU, LLVM's name of its processor: "sm_90" */
  char device[32];           /* the GPU's name; empty for a CPU */
  int vector_bytes;          /* bytes of one value in vector mode; on a GPU, 4 times the threads of a warp */
  /* cores that share one kernel: a GPU's multiprocessors; 0: as many as the pool has threads */
  int cores;
  /* cache of a core: bytes that the core has read cost near_byte_ns when it reads them again */
  int64_t cache_bytes;
  int64_t row_elems;         /* longer rows do not stay in the fastest cache between two passes over them */
  int64_t block_bytes;       /* bytes of results that make one unit of work */
  int busy_units;            /* units of work that keep the cores busy: kernels with as many are not cut further */
  int64_t split_elems;       /* a reduction of fewer elements is not worth cutting into blocks for several cores */
  int64_t split_block_elems; /* the least elements of such a block */
  int64_t dot_work;          /* most multiply-adds of a product for which a kernel is quicker than the library */
  int64_t region_dot_work;   /* the same inside a region, where nothing dispatches the kernel; of a GPU: of a thread */
  int64_t region_row_work;   /* the same for a product by a few rows or columns, which has nothing to block */
  int64_t shared_bytes;      /* memory that the threads of a block share; 0: there are no blocks */
  int64_t most_shared_bytes; /* the same, of a block that asks for it when it is launched */
  int block_threads;         /* most threads of a block; 1: there are no blocks */
  double clock_mhz, memory_gb_s; /* of a GPU, by its maker's figures; 0 for a CPU */
  gen_costs costs;
  bool has_fma, has_f16c;    /* fused multiply-add; conversions of f16 */
  bool has_avx512;           /* vectors of 64 bytes: a division of one takes as long as two dozen other instructions */
  bool has_avx512_bf16;      /* these vectors are rounded to bf16 by an instruction, which takes denormals for zero */
  bool has_f16;              /* arithmetic of f16, not conversions alone */
  bool has_bf16;             /* one instruction rounds f32 to bf16; the bits of its NaNs are not specified */
} gen_target;

/* Any CPU. */
extern const gen_target gen_cpu_target;
/* The GPU of that name ("H200", in any case), or the one that stands for a processor by LLVM's name ("sm_90"); NULL for
 * one that is not known. */
const gen_target *gen_gpu_target(const char *name);
/* Reads a GPU from a file: lines `device NAME`, `processor sm_90`, `multiprocessors N`, `clock_mhz X`, `memory_gb_s X`,
 * `l2_mib X`; figures that the file lacks are those of the processor. `#` begins a comment. Errors: NOT_FOUND, or
 * INVALID_ARGUMENT naming the line. */
WEFT_NODISCARD weft_status *gen_gpu_target_load(const char *path, gen_target *out);

#endif
