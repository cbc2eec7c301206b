/* HLO text: what is read, what is printed, and what errors say. */
#include "test.h"

#include <dirent.h>

#include "hlo/infer.h"
#include "hlo/text.h"


static char *print(const hlo_module *module)
{
  char *text = NULL;
  size_t size;

  T_OK(hlo_print_to_string(module, HLO_PRINT_DEFAULT, &text, &size));
  return text;
}

static char *read_file(const char *path, size_t *size)
{
  FILE *f = fopen(path, "rb");
  char *data;

  if (!f) fail_msg("cannot open %s", path);
  fseek(f, 0, SEEK_END);
  *size = (size_t)ftell(f);
  rewind(f);
  data = malloc(*size + 1);
  T_TRUE(fread(data, 1, *size, f) == *size);
  data[*size] = '\0';
  fclose(f);
  return data;
}

/* Calls `check` with the name and text of every .hlo file of a folder; false if there is no such folder. */
static bool each_file(const char *folder, void (*check)(const char *name, const char *text, size_t size))
{
  DIR *dir = opendir(folder);

  if (!dir) return false;
  for (struct dirent *entry; (entry = readdir(dir));) {
    char path[2048];
    size_t size, length = strlen(entry->d_name);
    char *text;

    if (length < 4 || strcmp(entry->d_name + length - 4, ".hlo") != 0) continue;
    snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    text = read_file(path, &size);
    check(entry->d_name, text, size);
    free(text);
  }
  closedir(dir);
  return true;
}

static void round_trip(const char *name, const char *text, size_t size)
{
  hlo_module *first = NULL, *second = NULL;
  weft_status *st = hlo_parse(text, size, &first);
  char *printed, *again;

  if (st) fail_msg("%s: %s", name, weft_status_text(st, true));
  printed = print(first);
  st = hlo_parse(printed, strlen(printed), &second);
  if (st) fail_msg("%s, printed: %s", name, weft_status_text(st, true));
  again = print(second);
  if (strcmp(printed, again) != 0) fail_msg("%s: print(parse(print)) differs from print", name);
  free(printed);
  free(again);
  hlo_module_free(first);
  hlo_module_free(second);
}

TEST(real_programs_parse_and_print_the_same_again)
{
  char folder[1024];

  snprintf(folder, sizeof folder, "%s/../shared/testdata/hlo", getenv("WEFT_SRCDIR"));
  if (!each_file(folder, round_trip)) T_SKIP("no %s", folder);
}

TEST(programs_with_every_opcode_parse_and_print_the_same_again)
{
  char folder[1024];

  snprintf(folder, sizeof folder, "%s/tests/data/hlo", getenv("WEFT_SRCDIR"));
  T_TRUE(each_file(folder, round_trip));
}

TEST_MAIN(UNIT(programs_with_every_opcode_parse_and_print_the_same_again),
          UNIT(real_programs_parse_and_print_the_same_again))
