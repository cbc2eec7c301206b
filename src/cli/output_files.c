/* cli/output_files.c -- the files that the output of a job's processes goes to (output_files.h). */
#include <config.h>

#include "cli/output_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool cli_output_is_by_rank(const char *pattern)
{
  for (const char *c = pattern; *c; c++) {
    if (*c != '%') continue;
    if (*++c == 'r') return true;
    if (!*c) break;
  }
  return false;
}

static weft_status *expand(const char *pattern, int rank, const char *host, char **out)
{
  size_t size;
  FILE *text = open_memstream(out, &size);
  weft_status *st = NULL;

  WEFT_TRY_ALLOC(text);
  for (const char *c = pattern; *c && !st; c++) {
    if (*c != '%') {
      fputc(*c, text);
      continue;
    }
    switch (*++c) {
    case 'r': fprintf(text, "%d", rank); break;
    case 'h': fputs(host, text); break;
    case '%': fputc('%', text); break;
    default:
      st = WEFT_ERR(INVALID_ARGUMENT, "the file \"%s\": expected %%r (rank), %%h (host) or %%%% after a %%", pattern);
    }
    if (!*c) break;
  }
  fclose(text);
  return st;
}

weft_status *cli_output_open(const char *pattern, int rank, const char *host, int *out_fd)
{
  WEFT_AUTO_STR path = NULL;

  WEFT_TRY(expand(pattern, rank, host, &path));
  WEFT_TRY_ALLOC(path);
  *out_fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
  return *out_fd >= 0 ? NULL : WEFT_ERR(INVALID_ARGUMENT, "the file %s cannot be written: %s", path, strerror(errno));
}
