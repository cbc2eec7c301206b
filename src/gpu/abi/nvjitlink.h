/* gpu/abi/nvjitlink.h -- the part of nvJitLink's binary interface that Weft uses, declared without NVIDIA's headers.
 *
 * The library's symbols carry the version of the interface: __nvJitLinkCreate_13_0 is that of version 13.0, and every
 * library of major version 13 has it.  Only nvJitLinkVersion has no such suffix.
 * tests/gpu/library_abi_test.c compares the numbers with NVIDIA's header where it is installed. */
#ifndef WEFT_GPU_ABI_NVJITLINK_H
#define WEFT_GPU_ABI_NVJITLINK_H

#include <stddef.h>
#include <stdint.h>

/* Results of every call.  NVJITLINK_* */
#define WJL_RESULTS(X) \
  X(SUCCESS, 0) X(ERROR_UNRECOGNIZED_OPTION, 1) X(ERROR_MISSING_ARCH, 2) X(ERROR_INVALID_INPUT, 3) \
  X(ERROR_PTX_COMPILE, 4) X(ERROR_NVVM_COMPILE, 5) X(ERROR_INTERNAL, 6)

/* Kinds of input.  NVJITLINK_INPUT_* */
#define WJL_INPUTS(X) \
  X(CUBIN, 1) X(PTX, 2)

#define WJL_ROW(name, value) WJL_##name = value,
typedef enum wjl_result { WJL_RESULTS(WJL_ROW) } wjl_result;
#undef WJL_ROW
#define WJL_ROW(name, value) WJL_INPUT_##name = value,
typedef enum wjl_input { WJL_INPUTS(WJL_ROW) } wjl_input;
#undef WJL_ROW

typedef struct wjl_link *wjl_handle;

/* X(result, name, arguments): the symbol is __nvJitLink, the name, and the version.  Sizes of logs count the zero. */
#define WJL_ENTRIES(X) \
  X(wjl_result, Create, (wjl_handle *handle, uint32_t count, const char **options)) \
  X(wjl_result, Destroy, (wjl_handle *handle)) \
  X(wjl_result, AddData, (wjl_handle handle, wjl_input kind, const void *data, size_t size, const char *name)) \
  X(wjl_result, Complete, (wjl_handle handle)) \
  X(wjl_result, GetLinkedCubinSize, (wjl_handle handle, size_t *size)) \
  X(wjl_result, GetLinkedCubin, (wjl_handle handle, void *cubin)) \
  X(wjl_result, GetErrorLogSize, (wjl_handle handle, size_t *size)) \
  X(wjl_result, GetErrorLog, (wjl_handle handle, char *log))

typedef wjl_result (*wjl_fn_version)(unsigned *major, unsigned *minor);

#endif
