/* base/fd.c -- whole reads and writes on file descriptors (fd.h). */
#include <config.h>

#include "base/fd.h"

#include <errno.h>
#include <unistd.h>

bool weft_fd_read_all(int fd, void *out, size_t size)
{
  char *at = out;

  while (size > 0) {
    ssize_t n = read(fd, at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) errno = 0;
    if (n <= 0) return false;
    at += n;
    size -= (size_t)n;
  }
  return true;
}

bool weft_fd_write_all(int fd, const void *data, size_t size)
{
  const char *at = data;

  while (size > 0) {
    ssize_t n = write(fd, at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    at += n;
    size -= (size_t)n;
  }
  return true;
}
