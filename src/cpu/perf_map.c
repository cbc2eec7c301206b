/* cpu/perf_map.c -- names of kernels for Linux perf: lines "START SIZE NAME", in hexadecimal, in /tmp/perf-PID.map,
 * where perf looks for the names of code that has no file. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/thread.h"
#include "cpu/cpu_internal.h"

/* The code has no sizes: a function is taken to end at the next one, and after at most so many bytes. */
enum { MOST_BYTES = 1 << 16 };

typedef struct symbol {
  uintptr_t start;
  const char *name;
  int phase;
} symbol;

static weft_mutex mu = WEFT_MUTEX_INITIALIZER; /* so that programs are written to the file one after the other */

static int by_start(const void *a, const void *b)
{
  const symbol *x = a, *y = b;
  return x->start != y->start ? (x->start > y->start ? 1 : -1) : 0;
}

/* The functions of a module, in `out` if it is not NULL; returns their number. A kernel that several instructions share
 * is listed several times. */
static int collect(const hlo_module *module, const gen_code *code, symbol *out)
{
  int count = 0;

  HLO_FOREACH_COMPUTATION(comp, module) {
    void *const fns[] = {(void *)gen_code_compare(code, comp), (void *)gen_code_apply(code, comp)};
    for (int i = 0; i < 2; i++)
      if (fns[i] && ++count && out) out[count - 1] = (symbol){(uintptr_t)fns[i], comp->name, 0};
    HLO_FOREACH(instr, comp) {
      const gen_kernel *kernel = instr->op == HLO_FUSION ? gen_code_kernel(code, instr) : NULL;
      for (int p = 0; kernel && p < kernel->phase_count; p++)
        if (kernel->phases[p].fn && ++count && out)
          out[count - 1] = (symbol){(uintptr_t)kernel->phases[p].fn, instr->name, p};
    }
  }
  return count;
}

static void put(FILE *out, const symbol *symbols, int count, const char *module)
{
  for (int i = 0; i < count; i++) {
    uintptr_t start = symbols[i].start;
    int next = i + 1;

    while (next < count && symbols[next].start == start) next++;
    uintptr_t size = next < count ? WEFT_MIN(symbols[next].start - start, (uintptr_t)MOST_BYTES) : MOST_BYTES;
    fprintf(out, "%zx %zx %s:%s", (size_t)start, (size_t)size, module, symbols[i].name);
    if (symbols[i].phase) fprintf(out, ".%d", symbols[i].phase);
    fputc('\n', out);
    i = next - 1;
  }
}

/* NULL: errno says why. perf reads only files of its own user, and every user can write to /tmp. */
static FILE *open_map(void)
{
  char path[64];
  struct stat info;

  snprintf(path, sizeof path, "/tmp/perf-%ld.map", (long)getpid());
  int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return NULL;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != geteuid()) {
    close(fd);
    errno = EPERM;
    return NULL;
  }
  return fdopen(fd, "a");
}

void cpu_perf_map_add(const hlo_module *module, const gen_code *code)
{
  int count = collect(module, code, NULL);
  symbol *symbols = count ? malloc((size_t)count * sizeof *symbols) : NULL;

  if (!symbols) return;
  collect(module, code, symbols);
  qsort(symbols, (size_t)count, sizeof *symbols, by_start);
  weft_mutex_lock(&mu);
  FILE *out = open_map();
  if (out) {
    put(out, symbols, count, module->name);
    fclose(out);
  } else {
    WEFT_LOG("cpu", WARN, "WEFT_PERF_MAP: cannot write /tmp/perf-%ld.map: %s", (long)getpid(), strerror(errno));
  }
  weft_mutex_unlock(&mu);
  free(symbols);
}
