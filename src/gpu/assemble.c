/* gpu/assemble.c -- from PTX to machine code (assemble.h). */
#include <config.h>

#include "gpu/assemble.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/child.h"
#include "base/deadline.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/thread.h"
#include "gpu/abi/nvjitlink.h"
#include "gpu/gpu_internal.h"
#include "gpu/library.h"

extern char **environ;

enum { LOG_BYTES = 4096, PTXAS_SECONDS = 120, MOST_CODE_BYTES = 1 << 30 };

/* ---- nvJitLink ------------------------------------------------------------------------------------------------- */

/* The library may leak or fail when several threads use it, so one does at a time. */
static weft_mutex link_mu = WEFT_MUTEX_INITIALIZER;

static struct {
#define MEMBER(type, name, args) type(*name) args;
  WJL_ENTRIES(MEMBER)
#undef MEMBER
} link_fn;

static void *versioned(void *library, const char *name, unsigned major)
{
  char symbol[80];

  snprintf(symbol, sizeof symbol, "__nvJitLink%s_%u_0", name, major);
  return gpu_library_symbol(library, symbol);
}

static weft_status *open_link_of(unsigned wanted, unsigned *out_minor)
{
  unsigned major = 0;
  char soname[40];
  wjl_fn_version version;
  void *library;

  snprintf(soname, sizeof soname, "libnvJitLink.so.%u", wanted);
  WEFT_TRY(gpu_library_open(soname, &library));
  *(void **)&version = gpu_library_symbol(library, "nvJitLinkVersion");
  if (!version || version(&major, out_minor) != WJL_SUCCESS || major != wanted)
    return WEFT_ERR(UNAVAILABLE, "%s does not report its version: it is too old", soname);
  weft_mutex_lock(&link_mu);
  const char *lacks = NULL;
#define FIND(type, name, args)                                \
  *(void **)&link_fn.name = versioned(library, #name, major); \
  if (!link_fn.name) lacks = #name;
  WJL_ENTRIES(FIND)
#undef FIND
  weft_mutex_unlock(&link_mu);
  return lacks ? WEFT_ERR(UNAVAILABLE, "%s has no %s of version %u.0", soname, lacks, major) : NULL;
}

static weft_status *find_link(int driver_version, gpu_assembler *out)
{
  enum { OLDEST_MAJOR = 12 };
  unsigned newest = (unsigned)WEFT_MIN(driver_version / 1000, 13), minor = 0;
  weft_status *first = NULL;

  for (unsigned major = newest; major >= OLDEST_MAJOR; major--) {
    weft_status *st = open_link_of(major, &minor);
    if (!st) {
      weft_status_free(first);
      out->kind = GPU_BY_NVJITLINK;
      snprintf(out->name, sizeof out->name, "nvJitLink %u.%u", major, minor);
      return NULL;
    }
    if (first) weft_status_free(st);
    else first = st;
  }
  return first ? first : WEFT_ERR(UNAVAILABLE, "no nvJitLink is known for CUDA %d", driver_version / 1000);
}

/* The error of a call on `link`, with the library's log. */
static weft_status *link_error(wjl_handle link, wjl_result result, const char *call)
{
  size_t size = 0;

  if (result == WJL_SUCCESS) return NULL;
  WEFT_AUTO_STR log = NULL;
  if (link && link_fn.GetErrorLogSize(link, &size) == WJL_SUCCESS && size > 1 && (log = calloc(1, size + 1)) &&
      link_fn.GetErrorLog(link, log) != WJL_SUCCESS)
    *log = 0;
  return WEFT_ERR(INTERNAL, "nvJitLink%s: error %d%s%.2000s", call, (int)result, log ? ": " : "", log ? log : "");
}

static weft_status *take_linked(wjl_handle link, void **out_code, size_t *out_size)
{
  size_t size = 0;

  WEFT_TRY(link_error(link, link_fn.GetLinkedCubinSize(link, &size), "GetLinkedCubinSize"));
  void *code = malloc(size ? size : 1);
  WEFT_TRY_ALLOC(code);
  weft_status *st = link_error(link, link_fn.GetLinkedCubin(link, code), "GetLinkedCubin");
  if (st) free(code);
  else *out_code = code, *out_size = size;
  return st;
}

static weft_status *link_ptx(int capability, const char *ptx, void **out_code, size_t *out_size)
{
  char arch[32];
  const char *options[] = {arch, "-O3"};
  wjl_handle link = NULL;

  snprintf(arch, sizeof arch, "-arch=sm_%d", capability);
  weft_mutex_lock(&link_mu);
  weft_status *st = link_error(NULL, link_fn.Create(&link, WEFT_COUNT(options), options), "Create");
  if (!st) st = link_error(link, link_fn.AddData(link, WJL_INPUT_PTX, ptx, strlen(ptx) + 1, "weft"), "AddData");
  if (!st) st = link_error(link, link_fn.Complete(link), "Complete");
  if (!st) st = take_linked(link, out_code, out_size);
  if (link) link_fn.Destroy(&link);
  weft_mutex_unlock(&link_mu);
  return st;
}

/* ---- ptxas ----------------------------------------------------------------------------------------------------- */

/* Reads what the process prints until it ends or the deadline has passed. */
static bool read_words(int fd, weft_deadline deadline, char *words, size_t size)
{
  size_t used = 0;
  char rest[512];

  words[0] = 0;
  for (;;) {
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    int64_t left = weft_deadline_left_ns(deadline) / WEFT_NS_PER_MS;
    if (left <= 0) return false;
    int n = poll(&ready, 1, (int)WEFT_MIN(left + 1, 1000));
    if (n < 0 && errno != EINTR) return true;
    if (n <= 0) continue;
    bool is_full = used + 1 >= size;
    ssize_t got = read(fd, is_full ? rest : words + used, is_full ? sizeof rest : size - 1 - used);
    if (got == 0 || (got < 0 && errno != EINTR)) return true;
    if (got > 0 && !is_full) words[used += (size_t)got] = 0;
  }
}

/* Runs a program without input; `words` gets the beginning of what it prints. */
static weft_status *run(char *const *argv, char *words, size_t size)
{
  posix_spawn_file_actions_t actions;
  int ends[2], status = 0;
  pid_t pid;

  if (pipe2(ends, O_CLOEXEC) != 0) return WEFT_ERR(RESOURCE_EXHAUSTED, "pipe: %s", strerror(errno));
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  int error = posix_spawn(&pid, argv[0], &actions, NULL, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  weft_deadline deadline = weft_deadline_after_ms(PTXAS_SECONDS * 1000);
  bool ended = error == 0 && read_words(ends[0], deadline, words, size);
  close(ends[0]);
  if (error) return WEFT_ERR(UNAVAILABLE, "%s does not start: %s", argv[0], strerror(error));
  if (!ended) kill(pid, SIGKILL);
  /* the process may close its output long before it ends */
  pid_t waited = weft_child_await(pid, deadline, &ended, &status);
  if (!ended) return WEFT_ERR(DEADLINE_EXCEEDED, "%s has not ended after %d s", argv[0], PTXAS_SECONDS);
  /* a process that ignores SIGCHLD gets no exit status: then only the output file says whether ptxas succeeded */
  if (waited < 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) return NULL;
  return WEFT_ERR(INTERNAL, "%s failed (status %d): %s", argv[0], status, words);
}

static weft_status *find_ptxas(int driver_version, const char *path, gpu_assembler *out)
{
  char words[1024] = "", *argv[] = {(char *)(uintptr_t)path, (char[]){"--version"}, NULL};
  int major = 0, minor = 0;

  WEFT_TRY(run(argv, words, sizeof words));
  const char *release = strstr(words, "release ");
  if (!release || sscanf(release, "release %d.%d", &major, &minor) != 2)
    return WEFT_ERR(UNAVAILABLE, "%s does not tell its version: %.200s", path, words);
  if (major > driver_version / 1000)
    return WEFT_ERR(UNAVAILABLE, "%s is of CUDA %d.%d, the driver of CUDA %d", path, major, minor,
                    driver_version / 1000);
  const char *build = strstr(release, ", V");
  int build_size = build ? (int)strcspn(build + 2, "\r\n") : 0;
  out->kind = GPU_BY_PTXAS;
  if (snprintf(out->path, sizeof out->path, "%s", path) >= (int)sizeof out->path)
    return WEFT_ERR(INVALID_ARGUMENT, "the path of ptxas is too long: %.60s...", path);
  snprintf(out->name, sizeof out->name, "%.250s %d.%d %.*s", path, major, minor, WEFT_MIN(build_size, 32),
           build_size ? build + 2 : "");
  return NULL;
}

static weft_status *write_file(const char *path, const void *data, size_t size)
{
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  bool ok = fd >= 0 && weft_fd_write_all(fd, data, size);

  if (fd >= 0) ok = close(fd) == 0 && ok;
  return ok ? NULL : WEFT_ERR(UNAVAILABLE, "cannot write %s: %s", path, strerror(errno));
}

static weft_status *read_code(const char *path, void **out_code, size_t *out_size)
{
  int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  struct stat info;
  bool ok = fd >= 0 && fstat(fd, &info) == 0 && info.st_size > 0 && info.st_size <= MOST_CODE_BYTES;
  void *code = ok ? malloc((size_t)info.st_size) : NULL;

  ok = code && weft_fd_read_all(fd, code, (size_t)info.st_size);
  if (fd >= 0) close(fd);
  if (!ok) {
    free(code);
    return WEFT_ERR(INTERNAL, "ptxas has written no code to %s", path);
  }
  *out_code = code;
  *out_size = (size_t)info.st_size;
  return NULL;
}

/* In a folder of its own, since ptxas reads and writes files. */
static weft_status *run_ptxas(const char *ptxas, int capability, const char *ptx, const char *folder, void **out_code,
                              size_t *out_size)
{
  char in[300], out[300], arch[32], words[LOG_BYTES];
  char *argv[] = {(char *)(uintptr_t)ptxas, arch, (char[]){"-O3"}, (char[]){"-o"}, out, in, NULL};

  snprintf(in, sizeof in, "%s/in.ptx", folder);
  snprintf(out, sizeof out, "%s/out.cubin", folder);
  snprintf(arch, sizeof arch, "-arch=sm_%d", capability);
  weft_status *st = write_file(in, ptx, strlen(ptx));
  if (!st) st = run(argv, words, sizeof words);
  if (!st) st = read_code(out, out_code, out_size);
  unlink(in);
  unlink(out);
  return st;
}

static weft_status *assemble_by_ptxas(const gpu_assembler *assembler, int capability, const char *ptx, void **out_code,
                                      size_t *out_size)
{
  const char *base = getenv("TMPDIR");
  char folder[256];

  if (!base || strlen(base) > sizeof folder / 2) base = "/tmp";
  snprintf(folder, sizeof folder, "%s/weft-ptxas-XXXXXX", base);
  if (!mkdtemp(folder)) return WEFT_ERR(UNAVAILABLE, "cannot make a folder in %s: %s", base, strerror(errno));
  weft_status *st = run_ptxas(assembler->path, capability, ptx, folder, out_code, out_size);
  rmdir(folder);
  return st;
}

/* ---- the driver ------------------------------------------------------------------------------------------------ */

void gpu_assembler_driver(int driver_version, gpu_assembler *out)
{
  *out = (gpu_assembler){.kind = GPU_BY_DRIVER};
  snprintf(out->name, sizeof out->name, "the driver, CUDA %d.%d", driver_version / 1000, driver_version % 1000 / 10);
}

static weft_status *take_from_driver(wcu_link_state link, const char *ptx, void **out_code, size_t *out_size)
{
  void *code = NULL;
  size_t size = 0;

  WEFT_TRY(
    GPU_CALL(cuLinkAddData, link, WCU_JIT_INPUT_PTX, (void *)(uintptr_t)ptx, strlen(ptx) + 1, "weft", 0, NULL, NULL));
  WEFT_TRY(GPU_CALL(cuLinkComplete, link, &code, &size));
  *out_code = malloc(size ? size : 1); /* `code` lives as long as the link */
  WEFT_TRY_ALLOC(*out_code);
  memcpy(*out_code, code, size);
  *out_size = size;
  return NULL;
}

static weft_status *assemble_by_driver(const char *ptx, void **out_code, size_t *out_size)
{
  WEFT_AUTO_STR log = calloc(1, LOG_BYTES);
  wcu_jit_option names[] = {WCU_JIT_ERROR_LOG_BUFFER, WCU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void *values[] = {log, (void *)(uintptr_t)LOG_BYTES};
  wcu_link_state link = NULL;

  WEFT_TRY_ALLOC(log);
  WEFT_TRY(GPU_CALL(cuLinkCreate, WEFT_COUNT(names), names, values, &link));
  weft_status *st = take_from_driver(link, ptx, out_code, out_size);
  weft_status *ended = GPU_CALL(cuLinkDestroy, link);
  if (st && *log) st = weft_status_note(st, __FILE__, __LINE__, "%s", log);
  if (!ended) return st;
  if (st) {
    weft_status_free(ended);
    return st;
  }
  free(*out_code);
  return ended;
}

/* ---- which one ------------------------------------------------------------------------------------------------- */

/* The result of a search, with the settings that it was made for: they may change while the process runs. */
static weft_mutex found_mu = WEFT_MUTEX_INITIALIZER;
static struct found {
  bool is_made;
  char settings[1024];
  gpu_assembler assembler;
  weft_status *error;
} found WEFT_GUARDED_BY(found_mu);

static weft_status *choose(const gpu_settings *settings, int driver_version, gpu_assembler *out)
{
  bool is_auto = strcmp(settings->assembler, "auto") == 0;
  char configured[512] = "";
  weft_status *st;

  if (strcmp(settings->assembler, "driver") == 0) return gpu_assembler_driver(driver_version, out), NULL;
  if (is_auto || strcmp(settings->assembler, "nvjitlink") == 0) {
    st = find_link(driver_version, out);
    if (!st || !is_auto) return st;
    weft_status_free(st);
  }
  if (*WEFT_CUDA_DIR) snprintf(configured, sizeof configured, "%s/bin/ptxas", WEFT_CUDA_DIR);
  const char *path = *settings->ptxas ? settings->ptxas : configured;
  if (!is_auto || (*path && access(path, X_OK) == 0)) {
    if (!*path)
      return WEFT_ERR(UNAVAILABLE, "WEFT_CUDA_ASSEMBLER=ptxas, and WEFT_CUDA_PTXAS does not name the program");
    st = find_ptxas(driver_version, path, out);
    if (!st || !is_auto) return st;
    WEFT_LOG("gpu", WARN, "%s", weft_status_message(st));
    weft_status_free(st);
  }
  return gpu_assembler_driver(driver_version, out), NULL;
}

weft_status *gpu_assembler_find(int driver_version, gpu_assembler *out)
{
  gpu_settings settings;
  char key[sizeof found.settings];

  WEFT_TRY(weft_options_load(&gpu_options, &settings));
  snprintf(key, sizeof key, "%d %s %s %s", driver_version, settings.assembler, settings.ptxas, settings.libdir);
  weft_mutex_lock(&found_mu);
  if (!found.is_made || strcmp(found.settings, key) != 0) {
    weft_status_free(found.error);
    found.error = choose(&settings, driver_version, &found.assembler);
    found.is_made = true;
    memcpy(found.settings, key, sizeof key);
    if (!found.error) WEFT_LOG("gpu", INFO, "kernels are assembled by %s", found.assembler.name);
  }
  *out = found.assembler;
  weft_status *st = weft_status_dup(found.error);
  weft_mutex_unlock(&found_mu);
  return st;
}

weft_status *gpu_assemble(const gpu_assembler *assembler, int capability, const char *ptx, void **out_code,
                          size_t *out_size)
{
  *out_code = NULL;
  *out_size = 0;
  switch (assembler->kind) {
  case GPU_BY_NVJITLINK: return link_ptx(capability, ptx, out_code, out_size);
  case GPU_BY_PTXAS: return assemble_by_ptxas(assembler, capability, ptx, out_code, out_size);
  default: return assemble_by_driver(ptx, out_code, out_size);
  }
}
