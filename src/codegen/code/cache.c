/* codegen/code/cache.c -- the files that are kept between processes in the folder WEFT_CACHE_DIR (cache.h). */
#include <config.h>

#include "codegen/code/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"

enum { DIGEST_BYTES = 32, MOST_BYTES = 1 << 30 };

/* ---- who may write ---- */

/* NULL, or the reason why a folder or file must not be trusted: its owner or its mode. */
static const char *distrust(const struct stat *info)
{
  if (info->st_uid != geteuid() && info->st_uid != 0) return "another user owns it";
  if (info->st_mode & (S_IWGRP | S_IWOTH)) return "others may write to it; chmod go-w it";
  return NULL;
}

static void warn_once(const char *folder, const char *why)
{
  static atomic_flag said = ATOMIC_FLAG_INIT;

  if (!atomic_flag_test_and_set(&said)) WEFT_LOG("codegen", WARN, "WEFT_CACHE_DIR %s is not used: %s", folder, why);
}

int gen_cache_open(const char *folder)
{
  struct stat info;
  const char *why = NULL;

  if (mkdir(folder, 0700) != 0 && errno != EEXIST) {
    warn_once(folder, strerror(errno));
    return -1;
  }
  int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0 || fstat(fd, &info) != 0) why = strerror(errno);
  else why = distrust(&info);
  if (!why) return fd;
  warn_once(folder, why);
  if (fd >= 0) close(fd);
  return -1;
}

/* ---- digests ---- */

static bool digest_of(const gen_cache_part *parts, int count, unsigned char out[DIGEST_BYTES])
{
  EVP_MD_CTX *ctx = EVP_MD_CTX_new();
  bool ok = ctx && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL);

  for (int i = 0; ok && i < count;
       i++) { /* each with its length, so that two different lists never give the same bytes */
    uint64_t size = parts[i].size;
    ok = EVP_DigestUpdate(ctx, &size, sizeof size) && EVP_DigestUpdate(ctx, parts[i].data, parts[i].size);
  }
  ok = ok && EVP_DigestFinal_ex(ctx, out, NULL);
  EVP_MD_CTX_free(ctx);
  return ok;
}

bool gen_cache_name(const gen_cache_part *parts, int count, char name[GEN_CACHE_NAME_BYTES])
{
  unsigned char digest[DIGEST_BYTES];

  if (!digest_of(parts, count, digest)) return false;
  for (int i = 0; i < DIGEST_BYTES; i++) snprintf(name + 2 * i, 3, "%02x", digest[i]);
  strcpy(name + 2 * DIGEST_BYTES, ".o");
  return true;
}

static bool seal_of(const char *name, const void *data, size_t size, unsigned char out[DIGEST_BYTES])
{
  return digest_of((const gen_cache_part[]){{name, strlen(name)}, {data, size}}, 2, out);
}

/* ---- files ---- */

bool gen_cache_read(int folder, const char *name, void **out, size_t *out_size)
{
  int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  struct stat info;
  unsigned char seal[DIGEST_BYTES];
  char *data = NULL;
  size_t size = 0;
  bool whole = fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && !distrust(&info) &&
               info.st_size > DIGEST_BYTES && info.st_size <= MOST_BYTES;

  if (whole) {
    size = (size_t)info.st_size - DIGEST_BYTES;
    data = malloc(size + DIGEST_BYTES);
    whole = data && weft_fd_read_all(fd, data, size + DIGEST_BYTES) && seal_of(name, data, size, seal) &&
            memcmp(seal, data + size, DIGEST_BYTES) == 0;
  }
  if (fd >= 0) close(fd);
  if (!whole) return free(data), false;
  *out = data;
  *out_size = size;
  return true;
}

weft_status *gen_cache_write(int folder, const char *name, const void *data, size_t size)
{
  static atomic_uint count; /* threads may write the same object at the same time */
  unsigned char seal[DIGEST_BYTES];
  char temporary[GEN_CACHE_NAME_BYTES + 48];

  if (!seal_of(name, data, size, seal)) return WEFT_ERR(INTERNAL, "no SHA-256 for the cache of kernels");
  snprintf(temporary, sizeof temporary, "%s.%ld.%u.tmp", name, (long)getpid(), atomic_fetch_add(&count, 1));
  int fd = openat(folder, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return WEFT_ERR(UNAVAILABLE, "cannot write %s of WEFT_CACHE_DIR: %s", temporary, strerror(errno));
  bool ok = weft_fd_write_all(fd, data, size) && weft_fd_write_all(fd, seal, sizeof seal);
  ok = close(fd) == 0 && ok;
  if (ok && renameat(folder, temporary, folder, name) == 0) return NULL;
  weft_status *st = WEFT_ERR(UNAVAILABLE, "cannot write %s of WEFT_CACHE_DIR: %s", name, strerror(errno));
  unlinkat(folder, temporary, 0);
  return st;
}
