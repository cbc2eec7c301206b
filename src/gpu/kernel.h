/* gpu/kernel.h -- the kernels of a program: PTX made for its fusions, loaded on the devices where it runs. */
#ifndef WEFT_GPU_KERNEL_H
#define WEFT_GPU_KERNEL_H

#include "codegen/nvptx/nvptx.h"
#include "gpu/gpu_internal.h"
#include "gpu/kept.h"

/* A kernel, of a fusion or of a step such as a sort or a top-k. Equal ones share it. */
typedef struct gpu_kernel {
  const hlo_instr *fusion;    /* the instruction that the kernel computes, or one of several equal ones */
  uint64_t hash;              /* of the first computation that it calls; 0: of none */
  gen_artefact artefact;
  weft_status *refused;       /* why there is no kernel; NULL: there is one */
  const void *image;          /* machine code, borrowed from gpu_code.kept; NULL: the driver assembles the PTX */
  char image_name[GEN_CACHE_NAME_BYTES]; /* in gpu_code.kept */
  wcu_module *modules;        /* by the device's ordinal; NULL where the program does not run */
  wcu_function *functions;    /* by ordinal, then by launch of the artefact */
} gpu_kernel;

/* The kernels of one executable; immutable once it is made. */
typedef struct gpu_code {
  gpu_platform *platform;     /* borrowed: the executable holds it */
  weft_arena arena;
  gpu_kernel *kernels;
  int kernel_count;
  gpu_kernel **of_instr;      /* by instruction id; NULL: not a step that has a kernel */
  const char *program;        /* the module's name */
  const char *target;         /* the processor: "sm_90" */
  int capability;             /* capability of the devices that the images are for; 0: there is no image */
  gpu_kept *kept;             /* machine code, and algorithms that libraries have chosen */
  int64_t bytes;              /* of PTX */
} gpu_code;

/* The kernels of a saved program, as gpu_code_save has written them. */
typedef struct gpu_saved_code {
  const void *data;
  size_t size;
} gpu_saved_code;

/* Makes PTX for each fusion of the module's sequential computations, and machine code of the PTX, on the platform's
 * workers, and loads it on the devices that `on_device` marks by ordinal.  A fusion that code generation does not
 * support is no error: its kernel has `refused` set.  `module` is borrowed for the code's life.  `saved`, unless it is
 * NULL, has the kernels of an equal module already: then nothing is compiled, and its machine code is used where it
 * fits the devices. Errors: RESOURCE_EXHAUSTED; INTERNAL, with the message of LLVM or the driver; of `saved`:
 * FAILED_PRECONDITION: for other devices, INVALID_ARGUMENT: damaged. */
WEFT_NODISCARD weft_status *gpu_code_new(gpu_platform *platform, const hlo_module *module,
                                         const weft_compile_options *options, const bool *on_device,
                                         const gpu_saved_code *saved, gpu_code **out_code);
/* The kernels as bytes for a file, malloc'd, for the caller. */
WEFT_NODISCARD weft_status *gpu_code_save(const gpu_code *code, void **out_data, size_t *out_size);
void gpu_code_free(gpu_code *code); /* NULL is fine; no kernel may be running */

/* The kernel of a fusion; NULL for an instruction that was not compiled. */
static inline const gpu_kernel *gpu_code_kernel(const gpu_code *code, const hlo_instr *fusion)
{
  return code->of_instr[fusion->id];
}

enum { GPU_MOST_PARAMETERS = 512 /* of 8 bytes: the parameters that every device accepts */ };

#endif
