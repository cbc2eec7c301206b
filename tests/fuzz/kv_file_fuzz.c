/* tests/fuzz/kv_file_fuzz.c -- The file store against strange keys and strange files: what it says must be what the
 * in-process store says.
 *   (OPERATION KEY_LENGTH KEY [VALUE_LENGTH VALUE]) ...   set, set over, try_get, remove, or a file planted by a
 *                                                         stranger */
#include <config.h>

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz.h"

#include "base/kv.h"

enum { SET, SET_OVER, TRY_GET, REMOVE, PLANT, OPERATIONS, MAX_KEY = 64 };

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *ftw)
{
  (void)info, (void)kind, (void)ftw;
  return remove(path);
}

static size_t take(const uint8_t **data, size_t *size, char *out, size_t most)
{
  size_t length = *size ? WEFT_MIN(WEFT_MIN((size_t)**data, *size - 1), most) : 0;

  if (*size == 0) return 0;
  memcpy(out, *data + 1, length);
  *data += 1 + length;
  *size -= 1 + length;
  return length;
}

/* A file beside the store's own, under a name that may look like one of them. */
static void plant(const char *directory, const char *name, const char *value, size_t size)
{
  char path[512];
  int fd;

  if (!*name || strchr(name, '/')) return;
  snprintf(path, sizeof path, "%s/.%s", directory, name);
  fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW, 0600);
  if (fd < 0) return;
  FUZZ_TRUE(write(fd, value, size) >= 0);
  close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  char directory[] = "/tmp/weft-kv-fuzz-XXXXXX", key[MAX_KEY + 1], value[256];
  weft_kv *file, *model;

  FUZZ_TRUE(mkdtemp(directory) != NULL);
  FUZZ_OK(weft_kv_file_new(directory, &file));
  FUZZ_OK(weft_kv_local_new(&model));
  while (size > 1) {
    int operation = *data++ % OPERATIONS;
    size_t key_size = (size--, take(&data, &size, key, MAX_KEY)), value_size = 0, got_size = 0, want_size = 0;
    char *got = NULL, *want = NULL;
    weft_status *st = NULL, *want_st = NULL;
    key[key_size] = '\0';
    if (operation == SET || operation == SET_OVER || operation == PLANT)
      value_size = take(&data, &size, value, sizeof value);
    if (operation == PLANT) {
      plant(directory, key, value, value_size);
      continue;
    }
    if (operation == REMOVE) st = weft_kv_remove(file, key);
    else if (operation == TRY_GET) st = weft_kv_try_get(file, key, &got, &got_size);
    else st = weft_kv_set(file, key, value, value_size, operation == SET_OVER);
    if (weft_status_code(st) != WEFT_INVALID_ARGUMENT) { /* a key that files cannot have */
      if (operation == REMOVE) want_st = weft_kv_remove(model, key);
      else if (operation == TRY_GET) want_st = weft_kv_try_get(model, key, &want, &want_size);
      else want_st = weft_kv_set(model, key, value, value_size, operation == SET_OVER);
      FUZZ_TRUE(weft_status_code(st) == weft_status_code(want_st));
      FUZZ_TRUE(got_size == want_size && (got_size == 0 || memcmp(got, want, got_size) == 0));
    }
    weft_status_free(st);
    weft_status_free(want_st);
    free(got);
    free(want);
  }
  weft_kv_destroy(file);
  weft_kv_destroy(model);
  nftw(directory, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
  return 0;
}
