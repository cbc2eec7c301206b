/* tests/gpu/emulator/ptx.h -- reads PTX and runs it on the CPU, a warp at a time.
 *
 * This part of the emulator knows no driver: it reaches memory through a ptx_memory that the caller gives.  A module
 * is immutable after ptx_load, and several threads may run it at once; everything that a launch changes is in memory
 * or in the launch. */
#ifndef WEFT_EMU_PTX_H
#define WEFT_EMU_PTX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ptx_module ptx_module;
typedef struct ptx_kernel ptx_kernel;

/* One allocation: device addresses [base, base + size) are the bytes at `host`. */
typedef struct ptx_range {
  uint64_t base, size;
  uint8_t *host;
  uint64_t shift; /* added to an address: what stands for the byte in the check for races, for memory mapped twice */
} ptx_range;

enum { PTX_TEAM = 16 }; /* most devices of a multicast object */

/* The memory that kernels reach by global addresses. */
typedef struct ptx_memory {
  /* Fills `out` with the allocation that contains `address`.  false: there is none, or this device may not use it;
   * `why` then says which. */
  bool (*find)(void *ctx, uint64_t address, ptx_range *out, char *why, size_t why_size);
  /* Its value changes when an earlier answer of `find` becomes wrong (an allocation was freed, rights were taken away).
   * Read atomically; NULL: answers stay right. */
  const uint64_t *generation;
  void *ctx;
  /* The same for an address of a multicast object: a range for each device of its team. Returns their number; 0: the
   * address is none, or memory is missing. NULL: there are no such objects. */
  int (*find_all)(void *ctx, uint64_t address, ptx_range *out, char *why, size_t why_size);
} ptx_memory;

/* Memory for the variables of a module; the module keeps only device addresses.  `make` returns false if no memory
 * is left. */
typedef struct ptx_globals {
  /* Allocates `size` bytes of value 0; the initial value is to be written to *host. */
  bool (*make)(void *ctx, size_t size, size_t align, uint64_t *address, uint8_t **host);
  void (*drop)(void *ctx, uint64_t address);
  void *ctx;
} ptx_globals;

typedef enum ptx_order { PTX_NORMAL, PTX_REVERSED, PTX_INTERLEAVED } ptx_order;

enum {   /* what a launch checks beside bounds and alignment, which it always checks */
  PTX_CHECK_RACES = 1,      /* unordered accesses of two threads to one byte */
  PTX_CHECK_BARRIERS = 2,   /* a barrier that threads of the block can never reach, because they have ended */
};

typedef struct ptx_launch {
  unsigned grid[3], block[3];
  unsigned dynamic_shared;       /* in bytes */
  const void *params;            /* at the offsets that ptx_param gives */
  size_t params_size;
  const ptx_memory *memory;
  /* launches of one device see releases of scope gpu, those of other devices see releases of scope sys */
  int device;
  bool cooperative;              /* all blocks are resident together, so that they may wait for one another */
  ptx_order order;
  uint64_t seed;                 /* of PTX_INTERLEAVED */
  unsigned checks;
  bool count_sectors;
  /* cudaGraphSetConditional; false: there is no such handle.  NULL: there are none. */
  bool (*set_conditional)(uint64_t handle, uint32_t value);
  uint64_t budget;               /* warp instructions after which the launch fails; 0: no limit */
} ptx_launch;

/* What a launch did.  A request is one warp's access to global memory; a sector is 32 aligned bytes. */
typedef struct ptx_stats {
  uint64_t warp_instructions, lane_instructions, threads;
  uint64_t slots; /* that a processor needs to issue what NVIDIA's assembler makes of the warp instructions */
  uint64_t requests, sectors, bytes_read, bytes_written, barriers;
} ptx_stats;

/* Reads PTX.  NULL: `error` says which line and why. */
ptx_module *ptx_load(const char *text, size_t size, const ptx_globals *globals, char *error, size_t error_size);
void ptx_free(ptx_module *m);                                 /* drops the module's variables; NULL is fine */
ptx_kernel *ptx_find(const ptx_module *m, const char *name);  /* borrowed from m; NULL: no such entry */
ptx_kernel *ptx_kernel_at(const ptx_module *m, size_t index); /* NULL past the last */
bool ptx_global(const ptx_module *m, const char *name, uint64_t *address, size_t *size);
unsigned ptx_target(const ptx_module *m); /* 90 for sm_90 */

const char *ptx_name(const ptx_kernel *k);
size_t ptx_param_count(const ptx_kernel *k);
void ptx_param(const ptx_kernel *k, size_t index, size_t *offset, size_t *size);
size_t ptx_params_size(const ptx_kernel *k);
size_t ptx_static_shared(const ptx_kernel *k);
size_t ptx_local_bytes(const ptx_kernel *k);   /* of one thread */
unsigned ptx_max_threads(const ptx_kernel *k); /* .maxntid or .reqntid; 0: none given */

/* Runs the kernel to its end.  Returns 0, or a result number of the driver, with `error` filled: 700 illegal
 * address, 702 the budget is spent, 710 assertion, 715 illegal instruction, 716 misaligned address, 719 launch
 * failure (trap, race, deadlock).  Adds to *stats; NULL: not wanted. */
int ptx_run(const ptx_kernel *k, const ptx_launch *launch, ptx_stats *stats, char *error, size_t error_size);

#endif
