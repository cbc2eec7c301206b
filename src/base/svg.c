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

const weft_svg_family weft_svg_families[WEFT_SVG_FAMILIES] = {
  {"fusion", "#9ec5e8", " fusion kernel region map reduce reduce-window broadcast iota "},
  {"matrix product", "#f6c28b", " dot "},
  {"convolution", "#a8d8a0", " convolution "},
  {"collective", "#e5a0a6",
   " all-* collective-* reduce-scatter* ragged-all-to-all* send* recv* partition-id replica-id "},
  {"control flow", "#c4b0e0", " while conditional call async-* "},
  {"copy", "#e8dc8c",
   " copy* transpose concatenate slice dynamic-slice dynamic-update-slice pad reshape bitcast tuple "},
  {"library", "#8fd6d0", " sort topk top-k scatter gather fft cholesky triangular-solve custom-call rng* select-and-scatter "},
  {"memory", "#c9b49a", " parameter constant scratch result "},
  {"others", "#cccccc", ""},
};

static bool has_kind(const char *kinds, const char *kind)
{
  size_t length = strlen(kind);

  for (const char *at = kinds + strspn(kinds, " "); *at; at += strspn(at, " ")) {
    size_t word = strcspn(at, " ");
    if (word > 0 && at[word - 1] == '*' ? strncmp(kind, at, word - 1) == 0
                                        : word == length && strncmp(kind, at, word) == 0)
      return true;
    at += word;
  }
  return false;
}

int weft_svg_family_of(const char *kind)
{
  for (int i = 0; i < WEFT_SVG_FAMILIES - 1; i++)
    if (has_kind(weft_svg_families[i].kinds, kind)) return i;
  return WEFT_SVG_FAMILIES - 1;
}

const char *weft_svg_colour(weft_svg_key *key, const char *kind)
{
  int family = weft_svg_family_of(kind);

  key->shown[family] = true;
  return weft_svg_families[family].colour;
}

void weft_svg_legend(FILE *out, const weft_svg_key *key, double right, double y)
{
  for (int i = WEFT_SVG_FAMILIES - 1; i >= 0; i--) {
    const weft_svg_family *family = &weft_svg_families[i];
    if (!key->shown[i]) continue;
    right -= (double)strlen(family->name) * letter + 26;
    fprintf(
      out,
      "<rect x=\"%.1f\" y=\"%.1f\" width=\"11\" height=\"11\" fill=\"%s\" stroke=\"#555\" stroke-width=\"0.3\"/>\n"
      "<text x=\"%.1f\" y=\"%.1f\">%s</text>\n",
      right, y - 9, family->colour, right + 15, y, family->name);
  }
}

weft_status *weft_svg_end(FILE *out)
{
  fputs("</svg>\n", out);
  return ferror(out) ? WEFT_ERR(UNKNOWN, "cannot write the drawing: %s", strerror(errno)) : NULL;
}
