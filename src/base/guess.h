/* base/guess.h -- which of several names a misspelt word may have meant. */
#ifndef WEFT_BASE_GUESS_H
#define WEFT_BASE_GUESS_H

#include <stddef.h>

/* Finds the name that a misspelt word most likely means.  Set `word`, offer every name, then read `best`; NULL: no
 * name is similar. */
typedef struct weft_guess {
  const char *word, *best;
  size_t distance; /* edit distance between `word` and `best` */
} weft_guess;
void weft_guess_offer(weft_guess *guess, const char *name);
/* Writes "; did you mean NAME?" to `buf`, or "" if no name is similar.  Returns `buf`. */
const char *weft_guess_text(const weft_guess *guess, char *buf, size_t size);

#endif
