/* tests/read_file.h -- A file's bytes with a NUL behind them, the caller's to free; NULL if it cannot be read. */
#ifndef WEFT_TESTS_READ_FILE_H
#define WEFT_TESTS_READ_FILE_H

#include <config.h>

#include <stdio.h>
#include <stdlib.h>

static inline char *read_file(const char *path, size_t *out_size)
{
  FILE *f = fopen(path, "rb");
  char *data = NULL;

  if (!f) return NULL;
  if (fseek(f, 0, SEEK_END) == 0) {
    *out_size = (size_t)ftell(f);
    rewind(f);
    data = calloc(*out_size + 1, 1);
    if (data && fread(data, 1, *out_size, f) != *out_size) {
      free(data);
      data = NULL;
    }
  }
  fclose(f);
  return data;
}

#endif
