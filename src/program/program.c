/* program/program.c -- programs that `weft compile` has compiled, for applications in C (include/weft/program.h). */
#include <config.h>

#include "weft/program.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/fd.h"
#include "cpu/platform.h"
#include "runtime/saved.h"

enum {
  MOST_DEVICES = 1024,
  ALIGNMENT = BUF_ALIGN /* of memory that kernels read in place */
};

struct weft_program {
  weft_platform *platform;
  weft_executable *exe;
  weft_arena arena; /* of the arrays below */
  int devices, param_count, result_count;
  weft_program_array *params, *results;
  atomic_llong launches;
};

/* ---- what the program takes and gives --------------------------------------------------------------------------- */

static weft_status *describe(weft_arena *arena, const char *name, const hlo_shape *shape, const weft_array_type *type,
                             weft_program_array *out)
{
  int64_t *dims = WEFT_ARENA_ARRAY(arena, int64_t, type->rank + 1),
          *order = WEFT_ARENA_ARRAY(arena, int64_t, type->rank + 1);
  const hlo_layout *layout = hlo_shape_is_array(shape) ? shape->layout : NULL;

  WEFT_TRY_ALLOC(dims && order);
  for (int d = 0; d < type->rank; d++) {
    dims[d] = type->dims[d];
    order[d] = layout ? layout->minor_to_major[d] : type->rank - 1 - d;
  }
  *out = (weft_program_array){.name = name,
                              .type = type->type,
                              .rank = type->rank,
                              .dims = dims,
                              .minor_to_major = order,
                              .bytes = weft_array_bytes(type)};
  return NULL;
}

/* Leaf `leaf` of the parameter `name`. */
static const char *leaf_name(weft_arena *arena, const char *name, bool is_tuple, int leaf)
{
  size_t size = strlen(name) + 16;
  char *text;

  if (!is_tuple) return weft_arena_strdup(arena, name);
  if (!(text = weft_arena_alloc(arena, size))) return NULL;
  snprintf(text, size, "%s.%d", name, leaf);
  return text;
}

static weft_status *describe_params(weft_program *p)
{
  const hlo_module *module = weft_executable_module(p->exe);
  int at = 0;

  for (int i = 0; i < module->entry->param_count; i++) {
    const hlo_instr *param = hlo_parameter(module->entry, i);
    const hlo_shape *shape = module->has_entry_layout ? module->entry_param_shapes[i] : param->shape;
    for (int k = 0; k < hlo_shape_leaf_count(shape); k++, at++) {
      const char *name = leaf_name(&p->arena, param->name, hlo_shape_is_tuple(shape), k);
      WEFT_TRY_ALLOC(name);
      WEFT_TRY(
        describe(&p->arena, name, hlo_shape_leaf(shape, k), weft_executable_param_type(p->exe, at), &p->params[at]));
    }
  }
  return NULL;
}

static weft_status *describe_all(weft_program *p)
{
  const hlo_module *module = weft_executable_module(p->exe);
  const hlo_shape *result = module->has_entry_layout ? module->entry_result_shape : module->entry->root->shape;

  p->devices = weft_executable_device_count(p->exe);
  p->param_count = weft_executable_param_count(p->exe);
  p->result_count = weft_executable_output_count(p->exe);
  p->params = WEFT_ARENA_ARRAY(&p->arena, weft_program_array, p->param_count + 1);
  p->results = WEFT_ARENA_ARRAY(&p->arena, weft_program_array, p->result_count + 1);
  WEFT_TRY_ALLOC(p->params && p->results);
  WEFT_TRY(describe_params(p));
  for (int k = 0; k < p->result_count; k++)
    WEFT_TRY(
      describe(&p->arena, "", hlo_shape_leaf(result, k), weft_executable_output_type(p->exe, k), &p->results[k]));
  return NULL;
}

const char *weft_program_name(const weft_program *p) { return weft_executable_module(p->exe)->name; }
int weft_program_device_count(const weft_program *p) { return p->devices; }
int weft_program_param_count(const weft_program *p) { return p->param_count; }
int weft_program_result_count(const weft_program *p) { return p->result_count; }

const weft_program_array *weft_program_param(const weft_program *p, int index)
{
  return index >= 0 && index < p->param_count ? &p->params[index] : NULL;
}

const weft_program_array *weft_program_result(const weft_program *p, int index)
{
  return index >= 0 && index < p->result_count ? &p->results[index] : NULL;
}

/* ---- loading ----------------------------------------------------------------------------------------------------- */

static weft_status *count_devices(const hlo_module *module, int *out)
{
  int64_t replicas = WEFT_MAX(module->replica_count, 1), partitions = WEFT_MAX(module->num_partitions, 1);

  if (replicas > MOST_DEVICES || partitions > MOST_DEVICES || replicas * partitions > MOST_DEVICES)
    return WEFT_ERR(UNIMPLEMENTED,
                    "\"%s\" is a program for %lld replicas of %lld partitions: one process has at most %d devices",
                    module->name, (long long)replicas, (long long)partitions, MOST_DEVICES);
  *out = (int)(replicas * partitions);
  return NULL;
}

static weft_status *fill(weft_program *p, const void *data, size_t size, const weft_program_options *options)
{
  weft_platform_options platform = {.threads = options->threads};
  WEFT_AUTO(hlo_module) module = NULL;
  weft_saved saved;

  if (options->threads < 0) return WEFT_ERR(INVALID_ARGUMENT, "%d threads: expected 0 or more", options->threads);
  WEFT_TRY(weft_saved_open(data, size, &saved));
  WEFT_TRY(weft_saved_read_module(&saved, &module));
  WEFT_TRY(count_devices(module, &platform.device_count));
  WEFT_TRY(weft_platform_new(&cpu_loader_ops, &platform, &p->platform));
  WEFT_TRY(weft_executable_load_module(p->platform, &saved, WEFT_MOVE(module), &(weft_compile_options){0}, &p->exe));
  return describe_all(p);
}

weft_status *weft_program_open(const void *data, size_t size, const weft_program_options *options,
                               weft_program **out_program)
{
  weft_program_options own = {0};
  weft_program *p;
  weft_status *st;

  *out_program = NULL;
  if (options) memcpy(&own, options, options->size ? WEFT_MIN(options->size, sizeof own) : sizeof own);
  p = calloc(1, sizeof *p);
  WEFT_TRY_ALLOC(p);
  weft_arena_init(&p->arena);
  st = fill(p, data, size, &own);
  if (!st) *out_program = p;
  else weft_program_close(p);
  return st;
}

weft_status *weft_program_open_file(const char *path, const weft_program_options *options, weft_program **out_program)
{
  struct stat info;
  weft_status *st;

  *out_program = NULL;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return errno == ENOENT ? WEFT_ERR(NOT_FOUND, "%s: no such file", path)
                           : WEFT_ERR(UNAVAILABLE, "%s: %s", path, strerror(errno));
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size <= 0) {
    close(fd);
    return WEFT_ERR(INVALID_ARGUMENT, "%s: no file with a compiled program", path);
  }
  /* not mapped: if another process cut the file short, reading the mapping would end this process */
  void *data = malloc((size_t)info.st_size);
  if (!data) st = WEFT_ERR(RESOURCE_EXHAUSTED, "%s: no memory for its %lld bytes", path, (long long)info.st_size);
  else if (weft_fd_read_all(fd, data, (size_t)info.st_size))
    st = weft_program_open(data, (size_t)info.st_size, options, out_program);
  else
    st = WEFT_ERR(UNAVAILABLE, "%s: %s", path, errno ? strerror(errno) : "the file became shorter while it was read");
  free(data);
  close(fd);
  return st ? weft_status_note(st, __FILE__, __LINE__, "in %s", path) : NULL;
}

void weft_program_close(weft_program *p)
{
  if (!p) return;
  for (int d = 0; p->platform && d < weft_platform_device_count(p->platform); d++)
    weft_status_ignore(weft_device_sync(weft_platform_device(p->platform, d), WEFT_NO_DEADLINE));
  weft_executable_release(p->exe);
  weft_platform_release(p->platform);
  weft_arena_fini(&p->arena);
  free(p);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* One run: its buffers, device by device. */
typedef struct run {
  weft_program *program;
  weft_arena arena;
  weft_buffer **in, **out;        /* [device * count + leaf] */
  weft_buffer *const **ins;       /* [device] */
  weft_buffer ***outs;
  weft_event **done;
} run;

static weft_status *run_init(run *r)
{
  const weft_program *p = r->program;

  r->in = WEFT_ARENA_ARRAY(&r->arena, weft_buffer *, p->devices * p->param_count + 1);
  r->out = WEFT_ARENA_ARRAY(&r->arena, weft_buffer *, p->devices * p->result_count + 1);
  r->ins = WEFT_ARENA_ARRAY(&r->arena, weft_buffer *const *, p->devices);
  r->outs = WEFT_ARENA_ARRAY(&r->arena, weft_buffer **, p->devices);
  r->done = WEFT_ARENA_ARRAY(&r->arena, weft_event *, p->devices);
  WEFT_TRY_ALLOC(r->in && r->out && r->ins && r->outs && r->done);
  for (int d = 0; d < p->devices; d++) {
    r->ins[d] = &r->in[d * p->param_count];
    r->outs[d] = &r->out[d * p->result_count];
  }
  return NULL;
}

static void run_fini(run *r)
{
  const weft_program *p = r->program;

  for (int i = 0; r->in && i < p->devices * p->param_count; i++) weft_buffer_release(r->in[i]);
  for (int i = 0; r->out && i < p->devices * p->result_count; i++) weft_buffer_release(r->out[i]);
  for (int d = 0; r->done && d < p->devices; d++) weft_event_release(r->done[d]);
  weft_arena_fini(&r->arena);
}

/* The runtime never writes to a view and never donates it: the caller's bytes stay as they are. */
static weft_status *put(weft_device *device, const weft_array_type *type, const void *data, weft_buffer **out)
{
  WEFT_AUTO(weft_storage) view = NULL;
  int64_t bytes = weft_array_bytes(type);

  if (bytes == 0 || (uintptr_t)data % ALIGNMENT != 0) return weft_buffer_from_host(device, type, data, out);
  WEFT_TRY(weft_storage_view(device, (void *)(uintptr_t)data, bytes, NULL, NULL, &view));
  return weft_buffer_new(device, type, view, NULL, out);
}

static weft_status *put_all(run *r, const void *const *inputs)
{
  const weft_program *p = r->program;

  for (int i = 0; i < p->devices * p->param_count; i++) {
    int leaf = i % p->param_count;
    if (!inputs[i] && p->params[leaf].bytes > 0)
      return WEFT_ERR(INVALID_ARGUMENT, "parameter %d (\"%s\") of device %d is NULL", leaf, p->params[leaf].name,
                      i / p->param_count);
    WEFT_TRY(put(weft_executable_device(p->exe, i / p->param_count), weft_executable_param_type(p->exe, leaf),
                 inputs[i], &r->in[i]));
  }
  return NULL;
}

static weft_status *check_outputs(const weft_program *p, void *const *outputs)
{
  for (int i = 0; i < p->devices * p->result_count; i++)
    if (!outputs[i] && p->results[i % p->result_count].bytes > 0)
      return WEFT_ERR(INVALID_ARGUMENT, "result %d of device %d is NULL", i % p->result_count, i / p->result_count);
  return NULL;
}

/* Waits until no device reads the inputs, then copies the results. */
static weft_status *fetch(run *r, void *const *outputs, weft_deadline deadline)
{
  const weft_program *p = r->program;
  weft_status *first = NULL;

  for (int d = 0; d < p->devices; d++) {
    weft_status *st = weft_event_await(r->done[d], deadline);
    if (!first) first = st;
    else weft_status_free(st);
  }
  for (int i = 0; i < p->devices * p->result_count && !first; i++)
    first = p->results[i % p->result_count].bytes > 0 ? weft_buffer_to_host(r->out[i], outputs[i], deadline)
                                                      : weft_event_await(weft_buffer_defined(r->out[i]), deadline);
  return first;
}

static weft_status *run_once(run *r, const void *const *inputs, void *const *outputs, weft_deadline deadline)
{
  weft_program *p = r->program;

  WEFT_TRY(check_outputs(p, outputs));
  WEFT_TRY(run_init(r));
  WEFT_TRY(put_all(r, inputs));
  WEFT_TRY(weft_executable_launch(p->exe, &(weft_launch){.inputs = r->ins,
                                                         .outputs = r->outs,
                                                         .done = r->done,
                                                         .launch_id = atomic_fetch_add(&p->launches, 1) + 1}));
  return fetch(r, outputs, deadline);
}

weft_status *weft_program_run(weft_program *program, const void *const *inputs, void *const *outputs,
                              weft_deadline deadline)
{
  run r = {.program = program};

  weft_arena_init(&r.arena);
  weft_status *st = run_once(&r, inputs, outputs, deadline);
  run_fini(&r);
  return st;
}
