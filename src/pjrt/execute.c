/* pjrt/execute.c -- one call runs a program on all local devices and returns before it is done. */
#include <config.h>

#include <stdlib.h>
#include <string.h>

#include "pjrt/internal.h"
#include "runtime/ffi.h"
#include "runtime/lender.h"

/* ---- contexts ---- */

static void context_release(PJRT_ExecuteContext *context)
{
  if (!context || __atomic_sub_fetch(&context->refs, 1, __ATOMIC_ACQ_REL) != 0) return;
  rt_ffi_user_data_free(context->data);
  free(context);
}

PJRT_Error *pjrt_ExecuteContext_Create(PJRT_ExecuteContext_Create_Args *args)
{
  PJRT_ExecuteContext *context = calloc(1, sizeof *context);
  weft_status *st;

  if (!context) return pjrt_error(WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory"));
  context->refs = 1;
  st = rt_ffi_user_data_new(&context->data);
  if (st) context_release(context);
  else pjrt_handle_born(args->context = context, PJRT_KIND_CONTEXT);
  return pjrt_error(st);
}

PJRT_Error *pjrt_ExecuteContext_Destroy(PJRT_ExecuteContext_Destroy_Args *args)
{
  pjrt_handle_gone(args->context);
  context_release(args->context);
  return NULL;
}

/* The event of a run is ready: releases the context that the run holds. */
static void release_when_done(void *ctx, const weft_status *error)
{
  (void)error;
  context_release(ctx);
}

/* ---- launches ---- */

/* The arrays of one launch, in one piece of memory. */
typedef struct frame {
  weft_buffer **buffers;         /* [device * params + param] */
  weft_buffer *const **inputs;   /* [device] into buffers */
  weft_buffer **results;         /* [device * outputs + output] */
  weft_buffer ***outputs;        /* [device] into results */
  weft_event **done;             /* [device] */
  weft_event_waiter *waiters;    /* [device] */
  bool *keep;                    /* [param] */
} frame;

static frame *frame_new(size_t devices, size_t params, size_t outputs)
{
  size_t pointers = devices * (params + outputs + 3);
  frame *f = calloc(1, sizeof *f + pointers * sizeof(void *) + devices * sizeof *f->waiters + params);
  void **at;

  if (!f) return NULL;
  at = (void **)(f + 1);
  f->buffers = (weft_buffer **)at;
  f->inputs = (weft_buffer *const **)(at += devices * params);
  f->results = (weft_buffer **)(at += devices);
  f->outputs = (weft_buffer ***)(at += devices * outputs);
  f->done = (weft_event **)(at += devices);
  f->waiters = (weft_event_waiter *)(at + devices);
  f->keep = (bool *)(f->waiters + devices);
  for (size_t d = 0; d < devices; d++) {
    f->inputs[d] = &f->buffers[d * params];
    f->outputs[d] = &f->results[d * outputs];
  }
  return f;
}

static weft_status *check(const PJRT_LoadedExecutable_Execute_Args *args)
{
  const pjrt_program *p = args->executable->program;

  if (__atomic_load_n(&args->executable->deleted, __ATOMIC_ACQUIRE))
    return WEFT_ERR(INVALID_ARGUMENT, "the executable has been deleted");
  if (args->num_devices != (size_t)p->device_count)
    return WEFT_ERR(INVALID_ARGUMENT, "arguments for %zu devices; the program runs on %d of this process",
                    args->num_devices, p->device_count);
  if (p->device_count > 0 && args->num_args != (size_t)p->params.count)
    return WEFT_ERR(INVALID_ARGUMENT, "Execution supplied %zu buffers but compiled program expected %d buffers",
                    args->num_args, p->params.count);
  for (size_t d = 0; d < args->num_devices; d++) {
    if (p->params.count && !args->argument_lists[d])
      return WEFT_ERR(INVALID_ARGUMENT, "argument_lists[%zu] is NULL", d);
    if (!args->output_lists[d] && p->outputs.count) return WEFT_ERR(INVALID_ARGUMENT, "output_lists[%zu] is NULL", d);
    for (size_t i = 0; i < args->num_args; i++)
      WEFT_TRY_NOTE(pjrt_check_handle(args->argument_lists[d][i], PJRT_KIND_BUFFER, "an argument"),
                    "argument %zu of device %zu", i, d);
  }
  if (args->options->num_non_donatable_input_indices && !args->options->non_donatable_input_indices)
    return WEFT_ERR(INVALID_ARGUMENT, "non_donatable_input_indices is NULL");
  if (args->options->num_send_ops || args->options->num_recv_ops)
    return WEFT_ERR(UNIMPLEMENTED, "host send and receive callbacks");
  return NULL;
}

/* Wraps results and completion events in handles; on failure everything made so far is released. */
static weft_status *hand_out(PJRT_LoadedExecutable_Execute_Args *args, frame *f)
{
  const pjrt_program *p = args->executable->program;
  weft_status *st = NULL;

  for (int d = 0; d < p->device_count; d++)
    for (int i = 0; i < p->outputs.count; i++) {
      weft_buffer *buffer = f->outputs[d][i];
      weft_status *now;
      args->output_lists[d][i] = NULL;
      now = pjrt_buffer_new(buffer, p->devices[d]->memories[p->outputs.memories[i]], p->outputs.layouts[i],
                            &args->output_lists[d][i]);
      if (st) weft_status_free(now);
      else st = now;
    }
  for (int d = 0; d < p->device_count; d++) {
    weft_status *now = NULL;
    if (args->device_complete_events) now = pjrt_event_new(f->done[d], &args->device_complete_events[d]);
    else weft_event_release(f->done[d]);
    if (st) weft_status_free(now);
    else st = now;
  }
  return st;
}

/* The incarnation of each process, as the client knows it at this launch. *out_incarnations stays NULL if the client
 * does not say. */
static weft_status *read_incarnations(PJRT_Client *client, const PJRT_ExecuteOptions *o, uint64_t **out_incarnations)
{
  *out_incarnations = NULL;
  if (client->process_count == 1) return NULL;
  if (client->agent) { /* its watcher keeps the incarnations */
    *out_incarnations = calloc((size_t)client->process_count, sizeof **out_incarnations);
    WEFT_TRY_ALLOC(*out_incarnations);
    weft_mutex_lock(&client->mu);
    memcpy(*out_incarnations, client->incarnations, (size_t)client->process_count * sizeof **out_incarnations);
    weft_mutex_unlock(&client->mu);
    return NULL;
  }
  if (!PJRT_HAS(o, incarnation_ids) || o->num_tasks == 0) return NULL;
  if (!o->task_ids || !o->incarnation_ids) return WEFT_ERR(INVALID_ARGUMENT, "%zu tasks without ids", o->num_tasks);
  *out_incarnations = calloc((size_t)client->process_count, sizeof **out_incarnations);
  WEFT_TRY_ALLOC(*out_incarnations);
  for (size_t i = 0; i < o->num_tasks; i++)
    if (o->task_ids[i] >= 0 && o->task_ids[i] < client->process_count)
      (*out_incarnations)[o->task_ids[i]] = (uint64_t)o->incarnation_ids[i];
  return NULL;
}

/* True if Execute returns only after the program has run, and with the program's error. As on XLA:CPU, this is so for a
 * program that calls Python and whose inputs are all defined, or depend on queued work of devices only. JAX's own code
 * relies on it: Pallas' interpreters drop results and assume that the effects have happened; an error that came later
 * would be reported to the next operation with effects; and Python does not wait for callbacks when it ends. */
static bool runs_at_once(const pjrt_program *p, const frame *f)
{
  if (!p->calls_python) return false;
  for (int i = 0; i < p->device_count * p->params.count; i++)
    if (!weft_buffer_is_recorded(f->buffers[i])) return false;
  return true;
}

/* Waits until the launch has run, and serves its callbacks meanwhile. If a device failed, releases results and
 * events, and returns the error. */
static weft_status *finish(const pjrt_program *p, frame *f, rt_lender *lender)
{
  const weft_status *error = NULL;

  rt_lender_serve(lender, f->done, p->device_count, f->waiters);
  for (int d = 0; d < p->device_count && !error; d++) error = weft_event_error(f->done[d]);
  if (!error) return NULL;
  weft_status *st = weft_status_dup(error);
  for (int i = 0; i < p->device_count * p->outputs.count; i++) weft_buffer_release(f->results[i]);
  for (int d = 0; d < p->device_count; d++) weft_event_release(f->done[d]);
  return st;
}

static weft_status *execute(PJRT_LoadedExecutable_Execute_Args *args)
{
  const pjrt_program *p = args->executable->program;
  const PJRT_ExecuteOptions *o = args->options;
  PJRT_ExecuteContext *context = PJRT_HAS(o, context) ? o->context : NULL;
  weft_launch launch;
  weft_status *st;
  uint64_t *incarnations;
  rt_lender lender;
  bool at_once;
  frame *f;

  WEFT_TRY(check(args));
  if (p->device_count == 0)
    return NULL; /* only devices of other processes run the program; JAX calls Execute anyway, without arguments */
  WEFT_TRY(read_incarnations(args->executable->client, o, &incarnations));
  f = frame_new(args->num_devices, args->num_args, (size_t)p->outputs.count);
  if (!f) {
    free(incarnations);
    return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  }
  for (size_t d = 0; d < args->num_devices; d++)
    for (size_t i = 0; i < args->num_args; i++) f->buffers[d * args->num_args + i] = args->argument_lists[d][i]->buffer;
  for (size_t i = 0; i < o->num_non_donatable_input_indices; i++) {
    int64_t index = o->non_donatable_input_indices[i];
    if (index >= 0 && index < p->params.count) f->keep[index] = true;
  }
  launch = (weft_launch){.inputs = (weft_buffer *const *const *)f->inputs,
                         .outputs = (weft_buffer * *const *)f->outputs,
                         .done = f->done,
                         .keep = f->keep,
                         .launch_id = o->launch_id,
                         .incarnations = incarnations,
                         .user = context ? context->data : NULL};
  at_once = runs_at_once(p, f);
  if (at_once) {
    rt_lender_init(&lender);
    if (p->device_count == 1)
      /* callbacks of several devices may wait for each other, and belong to no thread's context */
      launch.lender = &lender;
  }
  st = weft_executable_launch(p->exe, &launch);
  free(incarnations);
  for (int d = 0; !st && context && d < p->device_count; d++) {
    weft_status *unheld;
    __atomic_add_fetch(&context->refs, 1, __ATOMIC_RELAXED);
    unheld = weft_event_on_ready(f->done[d], release_when_done, context);
    if (!unheld) continue;
    weft_status_free(unheld);
    weft_status_ignore(weft_event_await(f->done[d], WEFT_NO_DEADLINE)); /* no memory for a callback: wait here */
    release_when_done(context, NULL);
  }
  if (!st && at_once) st = finish(p, f, &lender);
  if (at_once) rt_lender_fini(&lender);
  if (!st) st = hand_out(args, f);
  free(f);
  return st;
}

PJRT_Error *pjrt_LoadedExecutable_Execute(PJRT_LoadedExecutable_Execute_Args *args)
{
  return pjrt_error(execute(args));
}
