/* base/quote.h -- the place of a text that an error is about. */
#ifndef WEFT_BASE_QUOTE_H
#define WEFT_BASE_QUOTE_H

/* Writes to `buf` the line of the text [begin, end) that contains `at`, and a caret below that place:
 * "\n  LINE\n     ^".  Returns `buf`, to be put at the end of a message.  Of a long line only 60 bytes on either side
 * of `at` are shown; control characters become spaces. */
enum { WEFT_QUOTE_BYTES = 256 };
const char *weft_quote(const char *begin, const char *end, const char *at, char buf[WEFT_QUOTE_BYTES]);

#endif
