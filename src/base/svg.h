/* base/svg.h -- drawings for people: the frame of an SVG file, and text that is safe in one. */
#ifndef WEFT_BASE_SVG_H
#define WEFT_BASE_SVG_H

#include <stdbool.h>
#include <stdio.h>

#include "base/status.h"

/* Begins a white page of `width` by `height` pixels; its font is sans-serif of 11 pixels. */
void weft_svg_begin(FILE *out, double width, double height);
/* Writes `text` with XML's special characters escaped.  Names in a program may contain any text. */
void weft_svg_escaped(FILE *out, const char *text);
/* Writes `text` with its baseline from (x, y) on.  Text wider than `width` pixels is cut, with "…" at its end; if
 * fewer than 7 letters would be left, nothing is written. */
void weft_svg_label(FILE *out, double x, double y, double width, const char *text);

/* The distance between the marks of an axis: the least round number such that `most` distances cover `range`.  Round
 * numbers are 1, 2 and 5 times powers of ten; of bytes, powers of two. */
double weft_svg_marks(double range, int most, bool of_bytes);

/* Colours by family of kinds. A kind is an opcode of HLO or the kind of a step; a family holds those that do the same
 * sort of work, and has one colour in every drawing. */
enum { WEFT_SVG_FAMILIES = 9 };
typedef struct weft_svg_family {
  const char *name;   /* "matrix product" */
  const char *colour; /* "#f6c28b" */
  const char *kinds;  /* names with a space before and after each; one that ends in "*" stands for all that begin so */
} weft_svg_family;
extern const weft_svg_family weft_svg_families[WEFT_SVG_FAMILIES];

/* The number of the family of a kind; that of the last family if no other has it. */
int weft_svg_family_of(const char *kind);

/* The families that a drawing shows. */
typedef struct weft_svg_key {
  bool shown[WEFT_SVG_FAMILIES];
} weft_svg_key;
const char *weft_svg_colour(weft_svg_key *key, const char *kind);
/* Writes the families that are shown, with their colours, in a line that ends at (right, y). */
void weft_svg_legend(FILE *out, const weft_svg_key *key, double right, double y);

/* Ends the page.  Errors: UNKNOWN if any write to `out` failed. */
WEFT_NODISCARD weft_status *weft_svg_end(FILE *out);

#endif
