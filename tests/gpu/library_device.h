/* tests/gpu/library_device.h -- an emulated device for tests of src/gpu's library calls: one context, one stream, the
 * libraries of the build folder. */
#ifndef WEFT_TESTS_GPU_LIBRARY_DEVICE_H
#define WEFT_TESTS_GPU_LIBRARY_DEVICE_H

#include "driver.h"

#include "hlo/eval.h"
#include "hlo/literal.h"

static wcu_context context;
static wcu_stream stream;

static inline void make_context(void)
{
  CU(cuDevicePrimaryCtxRetain(&context, 0));
  CU(cuCtxSetCurrent(context));
  CU(cuStreamCreate(&stream, WCU_STREAM_NON_BLOCKING));
}

static inline void open_device(void)
{
  char dir[4096];
  const char *build = getenv("WEFT_BUILDDIR");

  snprintf(dir, sizeof dir, "%s/tests/gpu/emulator/.libs", build ? build : ".");
  setenv("WEFT_CUDA_LIBDIR", dir, 1);
  open_driver();
  CU(cuInit(0));
  make_context();
}

static inline void close_device(void)
{
  CU(cuStreamDestroy_v2(stream));
  CU(cuDevicePrimaryCtxRelease_v2(0));
}

/* Sets WEFT_EMU_FAULTS; NULL: no faults. */
static inline void set_faults(const char *faults)
{
  if (faults) setenv("WEFT_EMU_FAULTS", faults, 1);
  else unsetenv("WEFT_EMU_FAULTS");
  emu_reset();
}

/* Device memory with `bytes` bytes of `data`, or as it comes if `data` is NULL; 0 for no bytes. */
static inline wcu_ptr on_device(const void *data, size_t bytes)
{
  wcu_ptr at = 0;

  if (!bytes) return 0;
  CU(cuMemAlloc_v2(&at, bytes));
  if (data) CU(cuMemcpyHtoD_v2(at, data, bytes));
  return at;
}

static inline wcu_ptr literal_on_device(const hlo_literal *literal)
{
  return on_device(literal->data, (size_t)hlo_shape_bytes(literal->shape));
}

/* The array of this shape at `at` once the stream's work is done, in `arena`. */
static inline hlo_literal *from_device(weft_arena *arena, const hlo_shape *shape, wcu_ptr at)
{
  hlo_literal *got;

  T_OK(hlo_literal_new(arena, shape, &got));
  CU(cuMemcpyDtoHAsync_v2(got->data, at, (size_t)hlo_shape_bytes(shape), stream));
  CU(cuStreamSynchronize(stream));
  return got;
}

static inline void free_device(int count, const wcu_ptr *at)
{
  for (int i = 0; i < count; i++)
    if (at[i]) CU(cuMemFree_v2(at[i]));
}

#endif
