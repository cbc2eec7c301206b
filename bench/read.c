/* bench/read.c -- the cost of reading a StableHLO program: processor time (the best of several rounds) and memory (the
 * growth of the resident set at its highest, with the mapped input in it, as a multiple of the input) of reading alone
 * and of the whole way to an HLO module, and what of that memory the module and the mapped input keep.  Prints one line
 * a file; bench/read_jaxlib.py prints the same of jaxlib's parser. */
#include <config.h>

#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "stablehlo/stablehlo.h"

enum { ROUNDS = 5 };

static double cpu_ms(void)
{
  struct timespec t;

  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* A line of /proc/self/status in bytes, 0 where there is no such file. */
static double status_bytes(const char *key)
{
  char line[256];
  double kilobytes = 0;
  FILE *f = fopen("/proc/self/status", "r");

  while (f && fgets(line, sizeof line, f))
    if (strncmp(line, key, strlen(key)) == 0) sscanf(line + strlen(key), ": %lf", &kilobytes);
  if (f) fclose(f);
  return kilobytes * 1024;
}

static void forget_peak(void)
{
  int fd = open("/proc/self/clear_refs", O_WRONLY);

  malloc_trim(0);
  if (fd < 0) return;
  if (write(fd, "5", 1) != 1) perror("clear_refs");
  close(fd);
}

/* Best processor time; of the first round the growth of the resident set at its highest. */
typedef struct cost { double ms, grown; } cost;

static void note(cost *c, double start, double before, int round)
{
  c->ms = WEFT_MIN(round ? c->ms : 1e9, cpu_ms() - start);
  if (round == 0) c->grown = status_bytes("VmHWM") - before;
}

static weft_status *measure(const char *path)
{
  cost read = {0}, parse = {0};
  double kept = 0;
  struct stat info;
  int fd = open(path, O_RDONLY), instructions = 0;

  if (fd < 0 || fstat(fd, &info) != 0) return WEFT_ERR(NOT_FOUND, "%s: cannot be read", path);
  size_t size = (size_t)info.st_size;
  void *bytes = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
  close(fd);
  if (bytes == MAP_FAILED) return WEFT_ERR(RESOURCE_EXHAUSTED, "%s: cannot be mapped", path);
  for (int i = 0; i < ROUNDS; i++) {
    WEFT_AUTO(hlo_module) module = NULL;
    forget_peak();
    double before = status_bytes("VmRSS"), start = cpu_ms();
    WEFT_TRY_NOTE(shlo_parse(bytes, size, NULL, &module), "in %s", path);
    note(&parse, start, before, i);
    if (i == 0) kept = status_bytes("VmRSS") - before;
    instructions = module->next_id;
  }
  for (int i = 0; i < ROUNDS; i++) {
    WEFT_AUTO(shlo_program) program = NULL;
    forget_peak();
    double before = status_bytes("VmRSS") - (i == 0 ? (double)size : 0), start = cpu_ms();
    WEFT_TRY_NOTE(shlo_read(bytes, size, &program), "in %s", path);
    note(&read, start, before, i);
  }
  munmap(bytes, size);
  double mb = (double)size / 1e6;
  printf(
    "%-32s %6.2f MB  read %7.2f ms %6.1fx  to HLO %7.2f ms %6.1f MB/s  memory %5.1fx, kept %5.1fx  %d instructions\n",
    path, mb, read.ms, read.grown / (double)size, parse.ms, mb / parse.ms * 1e3, parse.grown / (double)size,
    kept / (double)size, instructions);
  return NULL;
}

int main(int argc, char **argv)
{
  for (int i = 1; i < argc; i++) {
    weft_status *st = measure(argv[i]);
    if (!st) continue;
    fprintf(stderr, "%s\n", weft_status_text(st, true));
    return 1;
  }
  return 0;
}
