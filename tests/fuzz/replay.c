/* tests/fuzz/replay.c -- runs a fuzz target over the files of its corpus, printing TAP.
 * The corpus is $WEFT_SRCDIR/tests/fuzz/corpus/NAME for a program NAME_fuzz, or the
 * folders and files of the command line. */
#include <config.h>

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

#include "fuzz.h"

static int cases;

static void replay_file(const char *path)
{
  FILE *f = fopen(path, "rb");
  char *data = NULL, buffer[65536];
  size_t size, count;
  FILE *copy = open_memstream(&data, &size);

  if (!f || !copy) {
    printf("not ok %d - %s cannot be read\n", ++cases, path);
    exit(1);
  }
  while ((count = fread(buffer, 1, sizeof buffer, f)) > 0) fwrite(buffer, 1, count, copy);
  fclose(f);
  fclose(copy);
  LLVMFuzzerTestOneInput((const uint8_t *)data, size);
  free(data);
  printf("ok %d - %s\n", ++cases, strrchr(path, '/') ? strrchr(path, '/') + 1 : path);
  fflush(stdout);
}

static void replay(const char *path)
{
  struct dirent **entries;
  struct stat info;
  int count;

  if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) {
    replay_file(path);
    return;
  }
  count = scandir(path, &entries, NULL, alphasort);
  for (int i = 0; i < count; i++) {
    char file[4096];
    if (entries[i]->d_name[0] != '.') {
      snprintf(file, sizeof file, "%s/%s", path, entries[i]->d_name);
      replay_file(file);
    }
    free(entries[i]);
  }
  if (count >= 0) free(entries);
}

int main(int argc, char **argv)
{
  const char *name = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
  char path[4096];

  if (strncmp(name, "lt-", 3) == 0) name += 3; /* libtool's name for it in the build tree */
  if (argc > 1) {
    for (int i = 1; i < argc; i++) replay(argv[i]);
  } else {
    snprintf(path, sizeof path, "%s/tests/fuzz/corpus/%.*s", getenv("WEFT_SRCDIR") ? getenv("WEFT_SRCDIR") : ".",
             (int)(strlen(name) - strlen("_fuzz")), name);
    replay(path);
  }
  printf("1..%d\n", cases);
  return 0;
}
