/* cli/job_secret.c -- the secret of a job that `weft launch` starts (job_secret.h). */
#include <config.h>

#include "cli/job_secret.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SECRET_BYTES = 32, NAME_BYTES = 8 };

static weft_status *random_hex(size_t bytes, char *out)
{
  unsigned char random[SECRET_BYTES];

  if (getrandom(random, bytes, 0) != (ssize_t)bytes)
    return WEFT_ERR(INTERNAL, "no random numbers for the job's secret: %s", strerror(errno));
  for (size_t i = 0; i < bytes; i++) snprintf(out + 2 * i, 3, "%02x", random[i]);
  explicit_bzero(random, sizeof random);
  return NULL;
}

static bool write_text(int fd, const char *text) { return write(fd, text, strlen(text)) == (ssize_t)strlen(text); }

/* ---- in memory ---- */

/* True if a child process can read this process's memory file: /proc may be missing, may be mounted for another
 * process namespace, or may be closed to this user's processes. */
static bool child_can_open(const char *file)
{
  int wait_status = 0;
  pid_t pid = fork();

  if (pid == 0) _exit(open(file, O_RDONLY | O_CLOEXEC) < 0); /* async-signal-safe */
  while (pid > 0 && waitpid(pid, &wait_status, 0) < 0)       /* the child makes one call, which does not block */
    if (errno != EINTR) return false;
  return pid > 0 && WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0;
}

/* Makes the secret in memory. Leaves *out unchanged if that does not work. */
static weft_status *make_in_memory(const char *text, cli_job_secret *out)
{
  int fd = memfd_create("weft-job-secret", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  char *file = NULL;

  if (fd < 0) return NULL;
  if (asprintf(&file, "/proc/%ld/fd/%d", (long)getpid(), fd) < 0) file = NULL;
  if (file && fchmod(fd, 0600) == 0 && write_text(fd, text) &&
      fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) == 0 && child_can_open(file)) {
    *out = (cli_job_secret){.file = file, .fd = fd};
    return NULL;
  }
  close(fd);
  WEFT_TRY_ALLOC(file);
  free(file);
  return NULL;
}

/* ---- on disk ---- */

/* Makes the folder `path` and the folders above it as far as they are missing, accessible to this user alone. False
 * with errno set if that fails. */
static bool make_folders(char *path)
{
  for (char *at = path + 1;; at++) {
    bool is_last = *at == '\0';
    if (*at != '/' && !is_last) continue;
    *at = '\0';
    bool made = mkdir(path, 0700) == 0 || errno == EEXIST;
    if (is_last) return made;
    *at = '/';
    if (!made) return false;
  }
}

/* A launcher locks its file, and the lock ends with the launcher, however it ends. Where locks do not reach from one
 * machine to another, a file of another machine looks abandoned too; such a file is kept until nobody can still need
 * it. */
static void remove_abandoned(int folder, const char *name)
{
  enum { OLD_S = 30 * 24 * 3600 };
  char here[HOST_NAME_MAX + 1] = "";
  struct stat info;
  int fd = openat(folder, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

  gethostname(here, sizeof here - 1);
  bool is_local = strncmp(name, here, strlen(here)) == 0 && name[strlen(here)] == '-';
  if (fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() &&
      flock(fd, LOCK_EX | LOCK_NB) == 0 && (is_local || time(NULL) - info.st_mtime > OLD_S))
    unlinkat(folder, name, 0);
  if (fd >= 0) close(fd);
}

static void remove_all_abandoned(const char *path)
{
  static const char ending[] = ".secret";
  DIR *dir = opendir(path);

  for (struct dirent *entry; dir && (entry = readdir(dir));) {
    size_t size = strlen(entry->d_name);
    if (size > sizeof ending && strcmp(entry->d_name + size - (sizeof ending - 1), ending) == 0)
      remove_abandoned(dirfd(dir), entry->d_name);
  }
  if (dir) closedir(dir);
}

/* The file gets its name once it is locked and written, so that another launcher
 * never takes it for an abandoned one. */
static bool write_under_lock(const char *folder, const char *text, cli_job_secret *out)
{
  WEFT_AUTO_STR unfinished = NULL;

  if (asprintf(&unfinished, "%s.new", out->file) < 0 || !make_folders((char *)folder)) return false;
  remove_all_abandoned(folder);
  out->fd = open(unfinished, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (out->fd < 0) return false;
  /* where files cannot be locked, other launchers cannot lock this one either, and leave it alone */
  flock(out->fd, LOCK_EX | LOCK_NB);
  if (write_text(out->fd, text) && rename(unfinished, out->file) == 0) return out->is_on_disk = true;
  int error = errno;
  unlink(unfinished);
  errno = error;
  return false;
}

static weft_status *make_on_disk(const char *text, cli_job_secret *out)
{
  const char *home = getenv("HOME"), *cache = getenv("XDG_CACHE_HOME");
  char name[2 * NAME_BYTES + 1], host[HOST_NAME_MAX + 1] = "";
  WEFT_AUTO_STR folder = NULL;

  WEFT_TRY(random_hex(NAME_BYTES, name));
  gethostname(host, sizeof host - 1);
  if (cache && *cache == '/') WEFT_TRY_ALLOC(asprintf(&folder, "%s/weft/jobs", cache) > 0);
  else if (home && *home == '/') WEFT_TRY_ALLOC(asprintf(&folder, "%s/.cache/weft/jobs", home) > 0);
  else
    return WEFT_ERR(
      FAILED_PRECONDITION,
      "the job's secret needs a file that its nodes share, and HOME is not set: name one in WEFT_COORD_SECRET_FILE");
  WEFT_TRY_ALLOC(asprintf(&out->file, "%s/%s-%s.secret", folder, host, name) > 0);
  if (write_under_lock(folder, text, out)) return NULL;
  weft_status *st =
    WEFT_ERR(FAILED_PRECONDITION,
             "the job's secret cannot be written to %s: %s; name another file that the nodes share, with "
             "mode 600, in WEFT_COORD_SECRET_FILE",
             out->file, strerror(errno));
  cli_job_secret_remove(out);
  return st;
}

/* ---- life ---- */

weft_status *cli_job_secret_hold(const char *text, cli_job_secret *out)
{
  *out = (cli_job_secret){.fd = -1};
  weft_status *st = make_in_memory(text, out);
  if (!st && !out->file) st = make_on_disk(text, out);
  return st;
}

weft_status *cli_job_secret_make(bool is_shared, cli_job_secret *out)
{
  char text[2 * SECRET_BYTES + 1];
  weft_status *st;

  *out = (cli_job_secret){.fd = -1};
  WEFT_TRY(random_hex(SECRET_BYTES, text));
  st = is_shared ? make_on_disk(text, out) : cli_job_secret_hold(text, out);
  explicit_bzero(text, sizeof text);
  return st;
}

void cli_job_secret_remove(cli_job_secret *secret)
{
  if (secret->is_on_disk) unlink(secret->file);
  if (secret->fd >= 0) close(secret->fd);
  free(secret->file);
  *secret = (cli_job_secret){.fd = -1};
}
