/* gpu/assemble.h -- from PTX to the machine code of a GPU: by nvJitLink, by ptxas, or by the driver.
 *
 * An assembler that is newer than the driver may make code that the driver does not take, so one whose major version is
 * above the driver's is not used. */
#ifndef WEFT_GPU_ASSEMBLE_H
#define WEFT_GPU_ASSEMBLE_H

#include "base/status.h"

typedef enum gpu_assembler_kind {
  GPU_BY_NVJITLINK, /* in this process; one thread at a time */
  GPU_BY_PTXAS,     /* a process for each text */
  GPU_BY_DRIVER,    /* in this process; the calling thread must have entered a device of the wanted kind */
} gpu_assembler_kind;

typedef struct gpu_assembler {
  gpu_assembler_kind kind;
  char name[320];   /* name with version, for messages and for the names of kept things (kept.h) */
  char path[256];   /* of ptxas */
} gpu_assembler;

/* Finds the assembler that WEFT_CUDA_ASSEMBLER asks for, `driver_version` as cuDriverGetVersion gives it.  "auto" is
 * nvJitLink if the library is there, ptxas if WEFT_CUDA_PTXAS or the folder given to configure has it, and otherwise
 * the driver.  Searches once in a process for each setting.  Thread-safe.  Errors: UNAVAILABLE: the assembler that the
 * setting names is not installed; INVALID_ARGUMENT. */
WEFT_NODISCARD weft_status *gpu_assembler_find(int driver_version, gpu_assembler *out);
/* The driver as an assembler. */
void gpu_assembler_driver(int driver_version, gpu_assembler *out);

/* Assembles `ptx`, which ends in a zero, for devices of a compute capability (90 is 9.0).  *out_code is malloc'd and
 * belongs to the caller.  Thread-safe.  Errors: INTERNAL, with the assembler's messages; RESOURCE_EXHAUSTED;
 * DEADLINE_EXCEEDED: ptxas does not end in time. */
WEFT_NODISCARD weft_status *gpu_assemble(const gpu_assembler *assembler, int capability, const char *ptx,
                                         void **out_code, size_t *out_size);

#endif
