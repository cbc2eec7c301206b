/* tests/fuzz/npy_fuzz.c -- An .npy file of any bytes: an error, or an array that is written and read back the same. */
#include <config.h>

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/npy.h"
#include "fuzz.h"

static void path_of(int fd, char *path, size_t size) { snprintf(path, size, "/proc/self/fd/%d", fd); }

static void check_again(const weft_npy *array)
{
  char path[64];
  weft_npy again;
  int fd = memfd_create("again", 0);

  FUZZ_TRUE(fd >= 0);
  path_of(fd, path, sizeof path);
  FUZZ_OK(weft_npy_write(path, array->type, array->rank, array->dims, array->data));
  FUZZ_OK(weft_npy_read(path, array->type, &again));
  FUZZ_TRUE(again.type == array->type && again.rank == array->rank && again.bytes == array->bytes);
  for (int i = 0; i < array->rank; i++) FUZZ_TRUE(again.dims[i] == array->dims[i]);
  FUZZ_TRUE(array->bytes == 0 || memcmp(again.data, array->data, (size_t)array->bytes) == 0);
  weft_npy_fini(&again);
  close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  char path[64];
  weft_npy array;
  int fd = memfd_create("input", 0);

  FUZZ_TRUE(fd >= 0 && write(fd, data, size) == (ssize_t)size);
  path_of(fd, path, sizeof path);
  weft_status *st = weft_npy_read(path, WEFT_INVALID, &array);
  if (!st) {
    check_again(&array);
    weft_npy_fini(&array);
  }
  weft_status_free(st);
  close(fd);
  return 0;
}
