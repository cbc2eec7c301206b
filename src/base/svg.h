/* base/svg.h -- drawings for people: the frame of an SVG file, and text that is safe in one. */
#ifndef WEFT_BASE_SVG_H
#define WEFT_BASE_SVG_H

#include <stdbool.h>
#include <stdio.h>

#include "base/status.h"

/* Begins a white page of that many pixels, in a sans-serif of 11. */
void weft_svg_begin(FILE *out, double width, double height);
/* Names of programs are anybody's text. */
void weft_svg_escaped(FILE *out, const char *text);
/* As much of `text` as fits into `width` pixels, its baseline from (x, y) on, with "…" for what does not; nothing if that is
 * not worth reading. */
void weft_svg_label(FILE *out, double x, double y, double width, const char *text);

/* The distance of round marks (1, 2 or 5 times a power of ten; of bytes: a power of two) of which at most `most` fit a range. */
double weft_svg_marks(double range, int most, bool of_bytes);

/* Colours by kind: the first kinds that ask get one each, the others grey. */
enum { WEFT_SVG_COLOURS = 9 };
typedef struct weft_svg_key {
  const char *kinds[WEFT_SVG_COLOURS]; /* borrowed */
  int count;
  bool has_others;
} weft_svg_key;
const char *weft_svg_colour(weft_svg_key *key, const char *kind);
/* What the colours mean, in a line that ends at (right, y). */
void weft_svg_legend(FILE *out, const weft_svg_key *key, double right, double y);

/* Ends the page.  Errors: UNKNOWN if anything could not be written. */
WEFT_NODISCARD weft_status *weft_svg_end(FILE *out);

#endif
