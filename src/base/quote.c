/* base/quote.c -- the place of a text that an error is about (quote.h). */
#include <config.h>

#include "base/quote.h"

#include <ctype.h>
#include <stdio.h>

const char *weft_quote(const char *begin, const char *end, const char *at, char buf[WEFT_QUOTE_BYTES])
{
  enum { NEAR = 60 }; /* bytes of the line, each side of the place */
  const char *line = at, *line_end = at;
  char *out = buf + sprintf(buf, "\n  ");

  while (line > begin && line[-1] != '\n' && at - line < NEAR) line--;
  while (line_end < end && *line_end != '\n' && line_end - at < NEAR) line_end++;
  for (const char *c = line; c < line_end; c++) *out++ = iscntrl((unsigned char)*c) ? ' ' : *c;
  sprintf(out, "\n  %*s^", (int)(at - line), "");
  return buf;
}
