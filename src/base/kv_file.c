/* base/kv_file.c -- a key-value store in a directory that processes share.
 *
 * The key "a/b" is the file "a/b=": a component that has keys below it is a directory of its own name, a value is a
 * file whose name ends in '='.  Bytes outside [A-Za-z0-9_-] are written %XX, so neither '=' nor '.' begins or ends a
 * component by chance.  A value is written to ".tmp-*" and moved into place: rename(2) replaces, link(2) does not.
 * Waiting polls, because the directory may be on a network file system that notifies nobody. */
#include <config.h>

#include "base/kv.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

#define MAX_VALUE_BYTES ((off_t)64 << 20)
#define MAX_COMPONENT_BYTES 200
#define MAX_DEPTH 64
#define MIN_POLL_NS (200 * WEFT_NS_PER_US)
#define MAX_POLL_NS (20 * WEFT_NS_PER_MS)

/* Numbers the temporary files of all stores of this process. */
static atomic_ulong next_temp;
enum { MOST_TEMPS = 1000 }; /* names that are tried: processes that ended may have left files with some of them */

typedef struct kv_file {
  weft_kv base;
  size_t directory_length;
  char directory[];
} kv_file;

/* Writes the path of `key` without the final '=' into path. */
static weft_status *key_path(const kv_file *kv, const char *key, char path[PATH_MAX])
{
  size_t length = kv->directory_length, component = 0, depth = 0;

  memcpy(path, kv->directory, length);
  path[length++] = '/';
  for (const char *c = key; *c; c++) {
    bool plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') || *c == '_' ||
                 *c == '-';
    size_t before = length;

    if (length + 8 > PATH_MAX || component + 3 > MAX_COMPONENT_BYTES || depth > MAX_DEPTH)
      return WEFT_ERR(INVALID_ARGUMENT, "key \"%.60s...\" is too long or too deep for a file store", key);
    if (*c == '/') {
      if (component == 0) path[length++] = '%'; /* an empty component, as in "a//b" */
      path[length++] = '/';
      component = 0;
      depth++;
      continue;
    }
    length += plain ? (path[length] = *c, 1u) : (size_t)sprintf(path + length, "%%%02X", (unsigned char)*c);
    component += length - before;
  }
  if (component == 0) path[length++] = '%';
  path[length] = '\0';
  return NULL;
}

static weft_status *file_path(const kv_file *kv, const char *key, char path[PATH_MAX])
{
  WEFT_TRY(key_path(kv, key, path));
  strcat(path, "="); /* key_path leaves room */
  return NULL;
}

static weft_status *io_error(const char *what, const char *path)
{
  int error = errno;
  return WEFT_ERR(UNAVAILABLE, "file store: %s %s: %s", what, path, strerror(error));
}

/* *out_value stays NULL where there is no such file. */
static weft_status *read_value(const char *path, char **out_value, size_t *out_size)
{
  struct stat info;
  WEFT_AUTO_STR value = NULL;
  int fd = open(path, O_RDONLY | O_CLOEXEC);

  if (fd < 0) return errno == ENOENT || errno == ENOTDIR || errno == ESTALE ? NULL : io_error("open", path);
  if (fstat(fd, &info) != 0 || info.st_size > MAX_VALUE_BYTES) {
    close(fd);
    return WEFT_ERR(DATA_LOSS, "file store: %s is no value (limit %lld bytes)", path, (long long)MAX_VALUE_BYTES);
  }
  value = malloc((size_t)info.st_size + 1);
  bool complete = value && weft_fd_read_all(fd, value, (size_t)info.st_size);
  close(fd);
  WEFT_TRY_ALLOC(value);
  if (!complete) return WEFT_ERR(DATA_LOSS, "file store: %s shrank while it was read", path);
  value[info.st_size] = '\0';
  *out_size = (size_t)info.st_size;
  *out_value = WEFT_MOVE(value);
  return NULL;
}

static weft_status *file_try_get(weft_kv *base, const char *key, char **out_value, size_t *out_size)
{
  char path[PATH_MAX];

  *out_value = NULL;
  WEFT_TRY(file_path(WEFT_CONTAINER_OF(base, kv_file, base), key, path));
  WEFT_TRY(read_value(path, out_value, out_size));
  return *out_value ? NULL : WEFT_ERR(NOT_FOUND, "key \"%s\"", key);
}

static weft_status *file_get(weft_kv *base, const char *key, weft_deadline deadline, char **out_value, size_t *out_size)
{
  char path[PATH_MAX];

  *out_value = NULL;
  WEFT_TRY(file_path(WEFT_CONTAINER_OF(base, kv_file, base), key, path));
  for (int64_t pause_ns = MIN_POLL_NS;; pause_ns = WEFT_MIN(2 * pause_ns, MAX_POLL_NS)) {
    WEFT_TRY(read_value(path, out_value, out_size));
    if (*out_value) return NULL;
    int64_t left_ns = weft_deadline_left_ns(deadline);
    if (left_ns == 0) return WEFT_ERR(DEADLINE_EXCEEDED, "key \"%s\" was not set in time", key);
    struct timespec pause = {.tv_nsec = WEFT_MIN(pause_ns, left_ns)};
    nanosleep(&pause, NULL);
  }
}

/* Creates the missing directories between the store's own directory and the file `path`. */
static void make_parents(const kv_file *kv, char *path)
{
  for (char *slash = path + kv->directory_length + 1; (slash = strchr(slash, '/')); slash++) {
    *slash = '\0';
    (void)mkdir(path, 0777); /* if it fails, the move into the directory fails too and reports the error */
    *slash = '/';
  }
}

static weft_status *file_set(weft_kv *base, const char *key, const void *value, size_t size, bool overwrite)
{
  kv_file *kv = WEFT_CONTAINER_OF(base, kv_file, base);
  char path[PATH_MAX], temp[PATH_MAX];

  if ((off_t)size > MAX_VALUE_BYTES) return WEFT_ERR(INVALID_ARGUMENT, "key \"%s\": value of %zu bytes", key, size);
  WEFT_TRY(file_path(kv, key, path));
  int fd = -1;
  for (int attempt = 0; fd < 0 && attempt < MOST_TEMPS; attempt++) {
    if (snprintf(temp, sizeof temp, "%s/.tmp-%d-%lu", kv->directory, (int)getpid(), atomic_fetch_add(&next_temp, 1)) >=
        (int)sizeof temp)
      return WEFT_ERR(INVALID_ARGUMENT, "file store: directory name too long");
    /* O_EXCL: a process on another machine may have the same process id */
    fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 && errno != EEXIST) break;
  }
  if (fd < 0) return io_error("create", temp);
  bool written = weft_fd_write_all(fd, value, size);
  if (close(fd) != 0 || !written) {
    weft_status *st = io_error("write", temp);
    unlink(temp);
    return st;
  }
  weft_status *st = NULL;
  for (int attempt = 0;; attempt++) { /* a concurrent remove may delete the directory between mkdir and move */
    make_parents(kv, path);
    int failed = overwrite ? rename(temp, path) : link(temp, path);
    if (!failed) break;
    if (errno == ENOENT && attempt < 10) continue;
    st = errno == EEXIST ? WEFT_ERR(ALREADY_EXISTS, "key \"%s\" already exists", key) : io_error("publish", path);
    break;
  }
  if (st || !overwrite) unlink(temp);
  return st;
}

/* Removes the directory `path` and everything in it.  No directory is deeper than MAX_DEPTH: key_path refuses such
 * keys. */
static void remove_tree(char *path, int depth)
{
  DIR *dir = opendir(path);
  size_t length = strlen(path);

  if (!dir) return;
  for (struct dirent *entry; (entry = readdir(dir));) {
    if (entry->d_name[0] == '.' || length + strlen(entry->d_name) + 2 > PATH_MAX) continue;
    path[length] = '/';
    strcpy(path + length + 1, entry->d_name);
    if (unlink(path) != 0 && depth < MAX_DEPTH) remove_tree(path, depth + 1);
    path[length] = '\0';
  }
  closedir(dir);
  rmdir(path);
}

static weft_status *file_remove(weft_kv *base, const char *key)
{
  kv_file *kv = WEFT_CONTAINER_OF(base, kv_file, base);
  char path[PATH_MAX];

  WEFT_TRY(key_path(kv, key, path));
  remove_tree(path, 0);
  WEFT_TRY(file_path(kv, key, path));
  if (unlink(path) != 0 && errno != ENOENT && errno != ENOTDIR) return io_error("remove", path);
  return NULL;
}

static void file_destroy(weft_kv *base) { free(WEFT_CONTAINER_OF(base, kv_file, base)); }

static const weft_kv_ops file_ops = {
  .size = sizeof(weft_kv_ops),
  .name = "file",
  .get = file_get,
  .try_get = file_try_get,
  .set = file_set,
  .remove = file_remove,
  .destroy = file_destroy,
};

weft_status *weft_kv_file_new(const char *directory, weft_kv **out_kv)
{
  size_t length = strlen(directory);

  *out_kv = NULL;
  if (length == 0 || length > PATH_MAX / 2) return WEFT_ERR(INVALID_ARGUMENT, "file store: bad directory name");
  if (mkdir(directory, 0777) != 0 && errno != EEXIST) return io_error("mkdir", directory);
  kv_file *kv = calloc(1, sizeof *kv + length + 1);
  WEFT_TRY_ALLOC(kv);
  kv->base.ops = &file_ops;
  kv->directory_length = length;
  memcpy(kv->directory, directory, length + 1);
  *out_kv = &kv->base;
  return NULL;
}
