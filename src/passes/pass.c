/* passes/pass.c -- runs pipelines of passes (pass.h). */
#include <config.h>

#include "passes/pass.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/deadline.h"
#include "hlo/infer.h"
#include "hlo/text.h"

/* One run of a pipeline over one module. */
typedef struct pass_session {
  hlo_module *module;
  const pass_options *options;
  pass_observer *observer;
  void *observer_ctx;
  weft_arena scratch;
  int sequence; /* the number of the next dump */
} pass_session;

static bool is_listed(const char *list, const char *name)
{
  size_t length = strlen(name);

  while (list && *list) {
    size_t item = strcspn(list, ",");
    if (item == length && memcmp(list, name, length) == 0) return true;
    list += item + (list[item] == ',');
  }
  return false;
}

static weft_status *dump(pass_session *s, const char *pass)
{
  char path[4096], name[HLO_FILE_NAME_BYTES];
  FILE *file;
  weft_status *st;

  if (!s->options->dump_dir) return NULL;
  mkdir(s->options->dump_dir, 0777); /* or the folder exists already */
  snprintf(path, sizeof path, "%.3800s/%s.%04d.%s.hlo", s->options->dump_dir, hlo_module_file_name(s->module, name),
           s->sequence++, pass);
  file = fopen(path, "w");
  if (!file) return WEFT_ERR(PERMISSION_DENIED, "cannot write \"%s\": %s", path, strerror(errno));
  st = hlo_print(s->module, (hlo_print_options){.metadata = true}, file);
  if (fclose(file) != 0 && !st) st = WEFT_ERR(UNKNOWN, "cannot write \"%s\": %s", path, strerror(errno));
  return st;
}

static weft_status *run_pass(pass_session *s, const hlo_pass *pass, bool *changed)
{
  pass_ctx ctx = {.options = s->options, .scratch = &s->scratch};
  bool pass_changed = false;
  int64_t start = weft_now_ns();

  if (is_listed(s->options->disabled, pass->name)) return NULL;
  WEFT_TRY_NOTE(pass->run(s->module, &ctx, &pass_changed), "pass %s on module \"%s\"", pass->name, s->module->name);
  weft_arena_reset(&s->scratch);
  if (s->observer) s->observer(s->observer_ctx, pass->name, pass_changed, weft_now_ns() - start, s->module);
  if (!pass_changed) return NULL;
  *changed = true;
  WEFT_TRY(dump(s, pass->name));
#ifndef NDEBUG
  WEFT_TRY_NOTE(hlo_verify(s->module), "after pass %s on module \"%s\"", pass->name, s->module->name);
#endif
  return NULL;
}

/* Groups nest only as deep as the tables are written: two levels. */
static weft_status *run_group(pass_session *s, const pass_pipeline *pipeline, bool *changed)
{
  for (int round = 0; round < pipeline->rounds; round++) {
    bool round_changed = false;
    for (int i = 0; i < pipeline->count; i++) {
      const struct pass_entry *entry = &pipeline->entries[i];
      if (entry->group) WEFT_TRY(run_group(s, entry->group, &round_changed));
      else WEFT_TRY(run_pass(s, entry->pass, &round_changed));
    }
    if (!round_changed) break;
    *changed = true;
  }
  return NULL;
}

weft_status *pass_run(const pass_pipeline *pipeline, hlo_module *module, const pass_options *options,
                      pass_observer *observer, void *observer_ctx)
{
  pass_session s = {
    .module = module, .options = options, .observer = observer, .observer_ctx = observer_ctx,
  };
  bool changed = false;
  weft_status *st;

  weft_arena_init(&s.scratch);
  st = dump(&s, "input");
  if (!st) st = run_group(&s, pipeline, &changed);
  weft_arena_fini(&s.scratch);
  return st;
}
