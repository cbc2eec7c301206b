/* cli/ptxas.h -- registers and memory of kernels, from NVIDIA's assembler. */
#ifndef WEFT_CLI_PTXAS_H
#define WEFT_CLI_PTXAS_H

#include "base/status.h"

typedef struct cli_registers {
  int most;        /* registers of a thread, of the kernel that takes most; 0: there is no ptxas */
  int spilled;     /* bytes of registers that threads keep in memory, of all kernels */
} cli_registers;

/* Gives the kernels of a PTX text to the program "ptxas" in PATH, for a processor such as "sm_90". Without that program
 * *out is zero. Errors: INTERNAL with the message of ptxas, if it refuses the text; UNAVAILABLE if no file can be
 * written; DEADLINE_EXCEEDED. */
WEFT_NODISCARD weft_status *cli_ptxas(const char *text, const char *processor, cli_registers *out);

#endif
