#include <config.h>

#include "base/svg.h"

#include <errno.h>
#include <string.h>

void weft_svg_begin(FILE *out, double width, double height)
{
  fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" font-family=\"sans-serif\" "
               "font-size=\"11\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n", width, height);
}

static void escaped(FILE *out, const char *text, size_t size)
{
  for (; size > 0 && *text; size--, text++) {
    const char *entity = *text == '<' ? "&lt;" : *text == '>' ? "&gt;" : *text == '&' ? "&amp;" : *text == '"' ? "&quot;" : NULL;
    if (entity) fputs(entity, out);
    else fputc((unsigned char)*text < 0x20 && *text != '\n' ? ' ' : *text, out);
  }
}

void weft_svg_escaped(FILE *out, const char *text) { escaped(out, text, strlen(text)); }

void weft_svg_label(FILE *out, double x, double y, double width, const char *text)
{
  int room = (int)(width / 6.2); /* pixels a letter at font size 11 */

  if (room < 3) return;
  if ((size_t)room < strlen(text))
    while (room > 0 && ((unsigned char)text[room] & 0xc0) == 0x80) room--; /* no letter of UTF-8 in two */
  fprintf(out, "<text x=\"%.2f\" y=\"%.2f\">", x, y);
  escaped(out, text, (size_t)room);
  fputs("</text>\n", out);
}

unsigned weft_svg_hue(const char *name)
{
  unsigned hash = 2166136261u; /* FNV-1a */

  for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 16777619u;
  return hash % 360;
}

weft_status *weft_svg_end(FILE *out)
{
  fputs("</svg>\n", out);
  return ferror(out) ? WEFT_ERR(UNKNOWN, "cannot write the drawing: %s", strerror(errno)) : NULL;
}
