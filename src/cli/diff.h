/* cli/diff.h -- the lines in which two texts differ. */
#ifndef WEFT_CLI_DIFF_H
#define WEFT_CLI_DIFF_H

#include <stddef.h>

#include "base/arena.h"
#include "base/status.h"

/* One line of a difference: '-' only in the text before, '+' only in the text after. Of a module, '@' names the
 * computation that the lines below it belong to. */
typedef struct cli_diff_line {
  char mark;
  const char *text; /* without the newline; not ended by NUL */
  size_t size;
} cli_diff_line;

typedef struct cli_diff {
  cli_diff_line *lines; /* they point into the two texts */
  size_t count;
} cli_diff;

/* Compares two texts line by line. The lines belong to the arena. Errors: RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *cli_diff_texts(const char *before, const char *after, weft_arena *arena, cli_diff *out);

#endif
