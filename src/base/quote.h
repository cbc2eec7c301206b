/* base/quote.h -- the place of a text that an error is about. */
#ifndef WEFT_BASE_QUOTE_H
#define WEFT_BASE_QUOTE_H

/* The line of the text from `begin` to `end` that `at` stands in, and below it a caret, for the end of a message:
 * "\n  LINE\n     ^" in `buf`, which it returns.  Of a long line what is near; control characters become spaces. */
enum { WEFT_QUOTE_BYTES = 256 };
const char *weft_quote(const char *begin, const char *end, const char *at, char buf[WEFT_QUOTE_BYTES]);

#endif
