/* cli/util.c -- functions that subcommands share. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "cli/cli.h"

int cli_report(const char *command, weft_status *st)
{
  int exit_code = CLI_FAILED;

  if (!st) return CLI_OK;
  switch (weft_status_code(st)) {
  case WEFT_INVALID_ARGUMENT:
  case WEFT_NOT_FOUND:
  case WEFT_OUT_OF_RANGE:
  case WEFT_UNIMPLEMENTED: exit_code = CLI_USAGE; break;
  default: break;
  }
  fflush(stdout);
  fprintf(stderr, "weft %s: %s\n", command, weft_status_text(st, false));
  weft_status_free(st);
  return exit_code;
}

void cli_open_standard_streams(void)
{
  /* a stream opened in the wrong direction: using it still gives an error */
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0) return;
}

static int lost_error; /* the errno of output that could not be written, or 0 */

void cli_output_lost(int error)
{
  if (!lost_error) lost_error = error;
}

/* Whether standard output is a pipe or a socket that nobody reads any more. */
static bool reader_has_left(void)
{
  struct pollfd output = {.fd = STDOUT_FILENO, .events = POLLOUT};

  return poll(&output, 1, 0) > 0 && output.revents & (POLLERR | POLLHUP);
}

int cli_close_output(int exit_code)
{
  bool lost = ferror(stdout) != 0 || lost_error;

  /* a write in the middle failed, and its errno is not known */
  if (lost && !lost_error && reader_has_left()) lost_error = EPIPE;
  errno = lost_error;
  if (fclose(stdout) == 0 && !lost) return exit_code;
  if (errno != EPIPE)
    fprintf(stderr, "weft: standard output: %s\n", errno ? strerror(errno) : "not all of it could be written");
  return exit_code == CLI_OK ? CLI_FAILED : exit_code;
}

static weft_status *read_open_file(int fd, const char *path, char **out_data, size_t *out_size)
{
  struct stat info;
  size_t capacity = 0, size = 0;
  char *data = NULL;

  if (fstat(fd, &info) != 0) return WEFT_ERR(INVALID_ARGUMENT, "%s: %s", path, strerror(errno));
  if (S_ISDIR(info.st_mode)) return WEFT_ERR(INVALID_ARGUMENT, "%s: is a directory", path);
  /* room for a NUL, and for a byte more, which would tell of a file that has grown; pipes have no size */
  size_t least = info.st_size > 0 ? (size_t)info.st_size + 2 : 65536;
  for (;;) {
    if (!WEFT_RESERVE(data, capacity, size + 2, least)) {
      free(data);
      return WEFT_ERR(RESOURCE_EXHAUSTED, "%s: no memory for its bytes", path);
    }
    ssize_t got = read(fd, data + size, capacity - size - 1);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      free(data);
      return WEFT_ERR(INVALID_ARGUMENT, "%s: %s", path, strerror(errno));
    }
    if (got == 0) break;
    size += (size_t)got;
  }
  data[size] = '\0';
  *out_data = data;
  *out_size = size;
  return NULL;
}

weft_status *cli_read_file(const char *path, char **out_data, size_t *out_size)
{
  weft_status *st;
  bool is_input = strcmp(path, "-") == 0;
  int fd = is_input ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);

  *out_data = NULL;
  *out_size = 0;
  if (fd < 0)
    return errno == ENOENT ? WEFT_ERR(NOT_FOUND, "%s: no such file", path)
                           : WEFT_ERR(INVALID_ARGUMENT, "%s: %s", path, strerror(errno));
  st = read_open_file(fd, is_input ? "standard input" : path, out_data, out_size);
  if (!is_input) close(fd);
  return st;
}

/* To be moved onto, as files are, would end a device or a pipe for everybody. */
static bool is_special(const char *path)
{
  struct stat there;

  return stat(path, &there) == 0 && !S_ISREG(there.st_mode);
}

weft_status *cli_move_file(const char *from, const char *to)
{
  if (is_special(to)) return WEFT_ERR(INVALID_ARGUMENT, "cannot write %s: it is no file", to);
  return rename(from, to) == 0 ? NULL : WEFT_ERR(INVALID_ARGUMENT, "cannot write %s: %s", to, strerror(errno));
}

static weft_status *write_special(const char *path, const void *data, size_t size)
{
  FILE *out = fopen(path, "wb");
  bool whole = out && fwrite(data, 1, size, out) == size;

  if (out) whole = fclose(out) == 0 && whole;
  return whole ? NULL : WEFT_ERR(INVALID_ARGUMENT, "cannot write %s: %s", path, strerror(errno));
}

weft_status *cli_write_file(const char *path, const void *data, size_t size)
{
  char temporary[4096];

  if (is_special(path)) return write_special(path, data, size);
  if (snprintf(temporary, sizeof temporary, "%s.%ld.tmp", path, (long)getpid()) >= (int)sizeof temporary)
    return WEFT_ERR(INVALID_ARGUMENT, "the name of the file is too long: %.60s...", path);
  FILE *out = fopen(temporary, "wb");
  if (!out) return WEFT_ERR(INVALID_ARGUMENT, "cannot write %s: %s", temporary, strerror(errno));
  bool whole = fwrite(data, 1, size, out) == size;
  whole = fclose(out) == 0 && whole;
  weft_status *st = whole ? cli_move_file(temporary, path)
                          : WEFT_ERR(INVALID_ARGUMENT, "cannot write %s: %s", path, strerror(errno));
  if (st) unlink(temporary);
  return st;
}
