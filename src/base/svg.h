/* base/svg.h -- drawings for people: the frame of an SVG file, and text that is safe in one. */
#ifndef WEFT_BASE_SVG_H
#define WEFT_BASE_SVG_H

#include <stdio.h>

#include "base/status.h"

/* Begins a white page of that many pixels, in a sans-serif of 11. */
void weft_svg_begin(FILE *out, double width, double height);
/* Names of programs are anybody's text. */
void weft_svg_escaped(FILE *out, const char *text);
/* As much of `text` as fits into `width` pixels, its baseline from (x, y) on; nothing if that is not worth reading. */
void weft_svg_label(FILE *out, double x, double y, double width, const char *text);
/* A hue in degrees, the same for equal names. */
unsigned weft_svg_hue(const char *name);
/* Ends the page.  Errors: UNKNOWN if anything could not be written. */
WEFT_NODISCARD weft_status *weft_svg_end(FILE *out);

#endif
