/* cli/options.c -- the options of a command as a table, from which both the parser and --help come (options.h). */
#include <config.h>

#include "cli/options.h"

#include <inttypes.h>
#include <string.h>

#include "base/guess.h"

enum { COLUMN = 28, LONGEST_WORD = 63 };

/* ---- help ---- */

/* Prints the lines of `text`; from the second line on, each stands behind `indent` spaces. */
static void print_lines(const char *text, int indent, FILE *out)
{
  for (const char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
    fprintf(out, "%*s%.*s\n", line == text ? 0 : indent, "", (int)strcspn(line, "\n"), line);
}

static void print_help(const cli_command *c, FILE *out)
{
  fprintf(out, "Usage: weft %s %s\n\n", c->name, c->usage);
  print_lines(c->summary, 0, out);
  fputc('\n', out);
  for (size_t i = 0; i < c->option_count; i++) {
    const cli_option *o = &c->options[i];
    int width = fprintf(out, "  %s%s%s", o->name, o->value ? " " : "", o->value ? o->value : "");
    for (; i + 1 < c->option_count && !c->options[i + 1].help; i++)
      width += fprintf(out, ", %s %s", c->options[i + 1].name, c->options[i + 1].value);
    if (width >= COLUMN) width = fprintf(out, "\n") - 1;
    fprintf(out, "%*s", COLUMN - width, "");
    print_lines(o->help, COLUMN, out);
  }
  if (c->notes) print_lines(c->notes, 0, out);
}

/* ---- parsing ---- */

static weft_status *set_value(const cli_option *o, const char *text)
{
  if (o->set) {
    WEFT_TRY_NOTE(o->set(o->out, text), "%s %s", o->name, text);
    return NULL;
  }
  WEFT_TRY(weft_option_parse(o->type, o->name, text, o->out));
  if (o->type == WEFT_OPT_INT && o->most && (*(int64_t *)o->out < 0 || *(int64_t *)o->out > o->most))
    return WEFT_ERR(INVALID_ARGUMENT, "%s: %s is not in [0, %" PRId64 "]", o->name, text, o->most);
  return NULL;
}

static weft_status *no_option(const cli_command *c, const char *word, size_t length)
{
  char name[LONGEST_WORD + 1], hint[128];
  weft_guess guess = {.word = name};

  snprintf(name, sizeof name, "%.*s", (int)WEFT_MIN(length, (size_t)LONGEST_WORD), word);
  for (size_t i = 0; i < c->option_count; i++) weft_guess_offer(&guess, c->options[i].name);
  return WEFT_ERR(INVALID_ARGUMENT, "no option %s%s (see `weft %s --help`)", name,
                  weft_guess_text(&guess, hint, sizeof hint), c->name);
}

/* Handles the option `argv[*at]`; *at moves on to its value. */
static weft_status *take_option(const cli_command *c, int argc, char **argv, int *at)
{
  const char *word = argv[*at];
  size_t length = strcspn(word, "=");
  const cli_option *found = NULL;

  for (size_t i = 0; i < c->option_count && !found; i++)
    if (strlen(c->options[i].name) == length && strncmp(word, c->options[i].name, length) == 0) found = &c->options[i];
  if (!found) return no_option(c, word, length);
  if (!found->value) {
    if (word[length]) return WEFT_ERR(INVALID_ARGUMENT, "%s takes no value", found->name);
    *(bool *)found->out = true;
    return NULL;
  }
  if (word[length]) return set_value(found, word + length + 1);
  if (*at + 1 == argc) return WEFT_ERR(INVALID_ARGUMENT, "%s: expected %s", found->name, found->value);
  return set_value(found, argv[++*at]);
}

weft_status *cli_parse_options(const cli_command *c, int *argc, char **argv, bool *out_helped)
{
  int kept = 1;

  *out_helped = false;
  for (int i = 1; i < *argc; i++) {
    bool is_word = argv[i][0] != '-' || argv[i][1] == '\0'; /* "-" is standard input */
    if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
      print_help(c, stdout);
      *out_helped = true;
      return NULL;
    }
    if (strcmp(argv[i], "--") == 0 || (is_word && c->ends_at_words)) {
      for (i += !is_word; i < *argc; i++) argv[kept++] = argv[i];
      break;
    }
    if (is_word) argv[kept++] = argv[i];
    else WEFT_TRY(take_option(c, *argc, argv, &i));
  }
  *argc = kept;
  argv[kept] = NULL;
  return NULL;
}
