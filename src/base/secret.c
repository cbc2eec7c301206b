/* base/secret.c -- the secret of a job, which only the job's processes have (secret.h). */
#include <config.h>

#include "base/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

weft_status *weft_secret_read(const char *file, char **out)
{
  char text[WEFT_SECRET_MOST_BYTES + 2];
  struct stat info = {0};
  weft_status *st = NULL;

  *out = NULL;
  if (!*file) return NULL;
  int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0 && errno == ENOENT)
    return WEFT_ERR(
      INVALID_ARGUMENT,
      "secret file %s: %s on this machine; every process of a job reads it: name a file in a folder that the machines "
      "share, or bring the file here, and set WEFT_COORD_SECRET_FILE",
      file, strerror(errno));
  if (fd < 0) return WEFT_ERR(INVALID_ARGUMENT, "secret file %s: %s", file, strerror(errno));
  ssize_t n = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) ? pread(fd, text, sizeof text - 1, 0) : -1;
  close(fd);
  while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r')) n--;
  if (info.st_mode & S_IRWXO)
    st = WEFT_ERR(INVALID_ARGUMENT, "secret file %s: every user may access it (mode %03o); chmod 600 it", file,
                  (unsigned)(info.st_mode & 0777));
  else if (n <= 0 || n > WEFT_SECRET_MOST_BYTES)
    st = WEFT_ERR(INVALID_ARGUMENT, "secret file %s: expected a regular file with 1 to %d bytes of text", file,
                  WEFT_SECRET_MOST_BYTES);
  for (ssize_t i = 0; i < n && !st; i++)
    if (text[i] <= 0x20 || text[i] > 0x7e)
      st = WEFT_ERR(INVALID_ARGUMENT, "secret file %s: byte %zd is not a printable ASCII character", file, i);
  if (!st) *out = strndup(text, (size_t)n);
  explicit_bzero(text, sizeof text);
  if (st) return st;
  WEFT_TRY_ALLOC(*out);
  return NULL;
}

weft_status *weft_secret_of_job(char **out)
{
  const char *file = getenv("WEFT_COORD_SECRET_FILE");

  return weft_secret_read(file ? file : "", out);
}

void weft_secret_free(char *secret)
{
  if (secret) explicit_bzero(secret, strlen(secret));
  free(secret);
}

bool weft_secret_equal(const char *secret, const char *given)
{
  size_t secret_size = strlen(secret), given_size = strlen(given);
  unsigned difference = secret_size != given_size;

  for (size_t i = 0; i < given_size; i++)
    difference |= (unsigned char)given[i] ^ (unsigned char)secret[secret_size ? i % secret_size : 0];
  return difference == 0;
}
