/* pjrt/dump.c -- xla_dump_to: programs as files, under the names that XLA gives them. */
#include <config.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "hlo/proto.h"
#include "hlo/text.h"
#include "pjrt/internal.h"

/* Writes `bytes`, or the module's text if `bytes` is NULL. A failure is logged. */
static void write_file(const char *path, const hlo_module *module, const void *bytes, size_t size)
{
  FILE *out = fopen(path, "w");
  weft_status *st = NULL;

  if (out && bytes) fwrite(bytes, 1, size, out);
  else if (out) st = hlo_print(module, HLO_PRINT_DEFAULT, out);
  if (!out || fclose(out) != 0 || st) WEFT_LOG("pjrt", WARN, "xla_dump_to: cannot write %s: %s", path, strerror(errno));
  weft_status_ignore(st);
}

void pjrt_dump(const pjrt_options *options, const hlo_module *module, const char *stage, int *number)
{
  static atomic_int last;
  char path[4096], name[HLO_FILE_NAME_BYTES];

  if (!options->dump_dir) return;
  hlo_module_file_name(module, name);
  if (*number == 0) *number = atomic_fetch_add(&last, 1) + 1;
  mkdir(options->dump_dir, 0777); /* fails if the folder is there already */
  if (options->dump_text || !options->dump_proto) {
    snprintf(path, sizeof path, "%.3800s/module_%04d.%s.%s.txt", options->dump_dir, *number, name, stage);
    write_file(path, module, NULL, 0);
  }
  if (options->dump_proto) {
    void *bytes = NULL;
    size_t size;
    weft_status *st = hlo_to_proto(module, &bytes, &size);
    snprintf(path, sizeof path, "%.3800s/module_%04d.%s.%s.hlo.pb", options->dump_dir, *number, name, stage);
    if (!st) write_file(path, module, bytes, size);
    weft_status_ignore(st);
    free(bytes);
  }
}
