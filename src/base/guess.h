/* base/guess.h -- which of several names a misspelt word may have meant. */
#ifndef WEFT_BASE_GUESS_H
#define WEFT_BASE_GUESS_H

#include <stddef.h>

/* Finds which of several names a misspelt word may have meant: offer all, then read `best` (NULL: it is like none). */
typedef struct weft_guess {
  const char *word, *best;
  size_t distance; /* letters that differ in `best` */
} weft_guess;
void weft_guess_offer(weft_guess *guess, const char *name);
/* "; did you mean NAME?", or nothing. */
const char *weft_guess_text(const weft_guess *guess, char *buf, size_t size);

#endif
