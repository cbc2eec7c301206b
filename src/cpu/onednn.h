/* cpu/onednn.h -- oneDNN, loaded at run time: convolutions of f32 on machines with AVX2, of bf16 with AVX512-BF16.
 *
 * A build that has oneDNN's headers (configure --with-onednn) loads the library when a program first has a convolution
 * that the library may compute.  Where the library is not installed, or is switched off by WEFT_ONEDNN=0, Weft's own
 * kernels compute every convolution.
 *
 * oneDNN sees one tile of the result a call, on the calling thread alone, and tiles follow from the shape: results
 * are the same bits for any number of threads. */
#ifndef WEFT_CPU_ONEDNN_H
#define WEFT_CPU_ONEDNN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "hlo/hlo.h"
#include "runtime/packed.h"

/* A convolution.  Input and output come in canonical order (batch, space, features), into which the caller brings them
 * where the program has another one.  The kernel lies as the program has it. */
typedef struct cpu_onednn_conv {
  weft_dtype type, out_type;             /* of both operands; of the result */
  int spatial;
  int64_t batch, groups;
  int64_t in_features, out_features;     /* of a group */
  const int64_t *in_size, *kernel_size, *out_size;
  const hlo_window_dim *window;
  /* elements of the kernel between neighbouring features of the output, of the input, and between places */
  int64_t kernel_step[HLO_MAX_RANK];
  bool in_order;                         /* the program has input and output in canonical order */
  bool plain;                            /* a window of one element and stride 1: all pixels are alike */
} cpu_onednn_conv;

typedef struct cpu_onednn cpu_onednn; /* a planned convolution; all functions on it are thread-safe */

/* Sets whether programs that are compiled from now on may use the library; true at first.  Thread-safe. */
void cpu_onednn_allow(bool allowed);
/* "2.6.3", or the reason why the library cannot be used.  Loads the library.  Thread-safe. */
const char *cpu_onednn_version(void);
bool cpu_onednn_is_there(void); /* true if the library can be used and is not switched off */

/* Plans `conv`; borrows it until it returns.  NULL: Weft's own kernels are to compute it. */
cpu_onednn *cpu_onednn_plan(const cpu_onednn_conv *conv);
void cpu_onednn_free(cpu_onednn *plan); /* NULL is fine */

/* The kernel in the order that the library wants; 0 bytes: the kernel as it lies. */
int64_t cpu_onednn_form_bytes(const cpu_onednn *plan);
const void *cpu_onednn_form_key(const cpu_onednn *plan,
                                int64_t *out_bytes); /* plans with equal keys make the same form */
/* Errors: as cpu_onednn_run; there is no form then. */
WEFT_NODISCARD weft_status *cpu_onednn_make_form(const cpu_onednn *plan, rt_pool *pool, const void *kernel, void *form);

/* True if the kernel is small, so that the caller must make the form in each run unless it keeps one.  A larger kernel
 * without a form is rearranged in parts, by the tasks that need them. */
bool cpu_onednn_wants_form(const cpu_onednn *plan);

/* Computes out from `lhs` and the kernel.  `form`: of the kernel, or NULL unless cpu_onednn_wants_form.
 * Errors: RESOURCE_EXHAUSTED; INTERNAL, if the library fails. */
WEFT_NODISCARD weft_status *cpu_onednn_run(const cpu_onednn *plan, rt_pool *pool, const void *lhs, const void *kernel,
                                           const void *form, void *out);

#endif
