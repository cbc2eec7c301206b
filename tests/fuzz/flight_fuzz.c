/* tests/fuzz/flight_fuzz.c -- Flight recorders of any bytes, two files cut from one input, joined: an error or a
 * report. */
#include <config.h>

#include <sys/mman.h>
#include <unistd.h>

#include "collective/flight.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  size_t half = size / 2;
  char paths[2][64];
  int fds[2];

  for (int i = 0; i < 2; i++) {
    size_t bytes = i ? size - half : half;
    fds[i] = memfd_create("recorder", 0);
    FUZZ_TRUE(fds[i] >= 0 && write(fds[i], data + (i ? half : 0), bytes) == (ssize_t)bytes);
    snprintf(paths[i], sizeof paths[i], "/proc/self/fd/%d", fds[i]);
  }
  FILE *out = fopen("/dev/null", "w");
  FUZZ_TRUE(out != NULL);
  weft_status_free(coll_flight_join((const char *const[]){paths[0], paths[1]}, 2, out));
  fclose(out);
  for (int i = 0; i < 2; i++) close(fds[i]);
  return 0;
}
