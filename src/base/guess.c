/* base/guess.c -- which of several names a misspelt word may have meant. */
#include <config.h>

#include "base/guess.h"

#include <stdio.h>
#include <string.h>

#include "base/macros.h"

enum { LONGEST_WORD = 63 };

/* The edit distance of `a` and `b`: how many letters to insert, delete, change or swap with the next one.
 * LONGEST_WORD if either word is longer than that. */
static size_t distance(const char *a, const char *b)
{
  size_t rows[3][LONGEST_WORD + 1], *before = rows[0], *above = rows[1], *row = rows[2];
  size_t n = strlen(a), m = strlen(b);

  if (n > LONGEST_WORD || m > LONGEST_WORD) return LONGEST_WORD;
  for (size_t j = 0; j <= m; j++) row[j] = j;
  for (size_t i = 1; i <= n; i++) {
    size_t *spare = before;
    before = above;
    above = row;
    row = spare;
    row[0] = i;
    for (size_t j = 1; j <= m; j++) {
      row[j] = WEFT_MIN(WEFT_MIN(above[j], row[j - 1]) + 1, above[j - 1] + (a[i - 1] != b[j - 1]));
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = WEFT_MIN(row[j], before[j - 2] + 1);
    }
  }
  return row[m];
}

void weft_guess_offer(weft_guess *guess, const char *name)
{
  size_t d = distance(guess->word, name);

  if (d > 2 || 3 * d > strlen(name) || (guess->best && d >= guess->distance)) return;
  guess->best = name;
  guess->distance = d;
}

const char *weft_guess_text(const weft_guess *guess, char *buf, size_t size)
{
  buf[0] = '\0';
  if (guess->best) snprintf(buf, size, "; did you mean %s?", guess->best);
  return buf;
}
