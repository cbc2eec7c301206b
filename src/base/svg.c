/* base/svg.c -- the frame of an SVG file, and text that is safe in one (svg.h). */
#include <config.h>

#include "base/svg.h"

#include <errno.h>
#include <string.h>

void weft_svg_begin(FILE *out, double width, double height)
{
  fprintf(out,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" font-family=\"sans-serif\" "
          "font-size=\"11\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
          width, height);
}

static void escaped(FILE *out, const char *text, size_t size)
{
  for (; size > 0 && *text; size--, text++) {
    const char *entity = *text == '<'   ? "&lt;"
                         : *text == '>' ? "&gt;"
                         : *text == '&' ? "&amp;"
                         : *text == '"' ? "&quot;"
                                        : NULL;
    if (entity) fputs(entity, out);
    else fputc((unsigned char)*text < 0x20 && *text != '\n' ? ' ' : *text, out);
  }
}

void weft_svg_escaped(FILE *out, const char *text) { escaped(out, text, strlen(text)); }

static const double letter = 6.2; /* pixels, at font size 11 */

void weft_svg_label(FILE *out, double x, double y, double width, const char *text)
{
  size_t room = width > 0 ? (size_t)(width / letter) : 0;
  bool cut = room < strlen(text);

  if (room < 7 && cut) return;
  if (cut) /* do not cut a UTF-8 character in two */
    for (room--; room > 0 && ((unsigned char)text[room] & 0xc0) == 0x80;) room--;
  fprintf(out, "<text x=\"%.2f\" y=\"%.2f\">", x, y);
  escaped(out, text, room);
  fputs(cut ? "…</text>\n" : "</text>\n", out);
}

double weft_svg_marks(double range, int most, bool of_bytes)
{
  static const double decimal[] = {2, 2.5, 2}, binary[] = {2, 2, 2}; /* 1, 2, 5, 10 */
  const double *factors = of_bytes ? binary : decimal;
  double mark = of_bytes ? 1 : 1e-9;

  for (int i = 0; mark * most < range; i = (i + 1) % 3) mark *= factors[i];
  return mark;
}

static const char *const colours[WEFT_SVG_COLOURS + 1] = {"#9ec5e8", "#f6c28b", "#a8d8a0", "#e5a0a6", "#c4b0e0",
                                                          "#e8dc8c", "#8fd6d0", "#f0b6dc", "#c9b49a", "#cccccc"};

const char *weft_svg_colour(weft_svg_key *key, const char *kind)
{
  for (int i = 0; i < key->count; i++)
    if (strcmp(key->kinds[i], kind) == 0) return colours[i];
  if (key->count == WEFT_SVG_COLOURS) {
    key->has_others = true;
    return colours[WEFT_SVG_COLOURS];
  }
  key->kinds[key->count] = kind;
  return colours[key->count++];
}

void weft_svg_legend(FILE *out, const weft_svg_key *key, double right, double y)
{
  for (int i = key->count - !key->has_others; i >= 0; i--) {
    const char *kind = i == key->count ? "others" : key->kinds[i];
    right -= (double)strlen(kind) * letter + 26;
    fprintf(
      out,
      "<rect x=\"%.1f\" y=\"%.1f\" width=\"11\" height=\"11\" fill=\"%s\" stroke=\"#555\" stroke-width=\"0.3\"/>\n"
      "<text x=\"%.1f\" y=\"%.1f\">",
      right, y - 9, colours[i], right + 15, y);
    weft_svg_escaped(out, kind);
    fputs("</text>\n", out);
  }
}

weft_status *weft_svg_end(FILE *out)
{
  fputs("</svg>\n", out);
  return ferror(out) ? WEFT_ERR(UNKNOWN, "cannot write the drawing: %s", strerror(errno)) : NULL;
}
