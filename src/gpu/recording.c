/* gpu/recording.c -- recording the steps of a stretch (recording.h).
 *
 * Steps are queued on a stream that captures. A stretch without loops and branches is one capture. Otherwise the graph
 * is made first. Each straight part of it is a capture into the graph, behind the node with which the part before has
 * ended, and conditional nodes are added between captures. Their bodies are graphs, which are filled in the same way.
 * So one stream is enough, and no capture begins inside another.
 *
 *   loop     set(handle); WHILE(handle) { body; condition; set(handle) }
 *   choice   set(handle); SWITCH(handle) { ... }, or IF(handle) { first } { second };
 *            set(each handle); IF(first handle) { ... } IF(second handle) { ... } ... where nodes have one body
 *
 * A loop with a known, small number of rounds is recorded round by round, as all loops of a stretch that talks are. */
#include <config.h>

#include "gpu/recording.h"

#include <stdlib.h>
#include <string.h>

#include "gpu/makers.h"

enum { MOST_UNROLLED = 32 /* steps of all rounds of a loop that is recorded round by round */ };

/* The recording of one stretch. */
typedef struct recording {
  rt_ctx *ctx;
  gpu_device *gpu;
  int depth; /* loops with a known number of rounds around what is recorded now */
  gpu_put_step *put; /* queues steps that talk; NULL: there are none */
  void *put_ctx;
} recording;

/* A graph that is being filled, and the nodes behind which its next node stands. */
typedef struct place {
  wcu_graph graph;
  wcu_graph_node *from; /* malloc'd */
  size_t count;
  bool captures;        /* the recorder captures into it */
} place;

/* ---- captures -------------------------------------------------------------------------------------------------- */

static weft_status *make_recorder(gpu_device *gpu) WEFT_REQUIRES(gpu->recording)
{
  if (gpu->recorder) return NULL;
  return GPU_CALL(cuStreamCreateWithPriority, &gpu->recorder, WCU_STREAM_NON_BLOCKING, 0);
}

/* Takes the error `st` of what was recorded. */
static weft_status *end_capture(gpu_device *gpu, weft_status *st, wcu_graph *out_graph) WEFT_REQUIRES(gpu->recording)
{
  gpu_record_on(NULL);
  *out_graph = NULL;
  weft_status *ended = GPU_CALL(cuStreamEndCapture, gpu->recorder, out_graph);
  if (ended) { /* the stream may never stop capturing: another one will be made */
    gpu_cu.cuStreamDestroy(gpu->recorder);
    gpu->recorder = NULL;
  }
  if (!st) return ended;
  weft_status_free(ended);
  return st;
}

static weft_status *begin_part(const recording *r, place *p) WEFT_REQUIRES(r->gpu->recording)
{
  if (p->captures) return NULL;
  WEFT_TRY(GPU_CALL(cuStreamBeginCaptureToGraph, r->gpu->recorder, p->graph, p->count ? p->from : NULL, NULL, p->count,
                    WCU_CAPTURE_MODE_THREAD_LOCAL));
  p->captures = true;
  gpu_record_on(r->gpu->recorder);
  return NULL;
}

/* Notes the nodes with which the capture ends. */
static weft_status *note_last(const gpu_device *gpu, place *p) WEFT_REQUIRES(gpu->recording)
{
  wcu_capture_status status;
  const wcu_graph_node *last;
  size_t count;

  WEFT_TRY(GPU_CALL(cuStreamGetCaptureInfo, gpu->recorder, &status, NULL, NULL, &last, NULL, &count));
  if (status != WCU_CAPTURE_STATUS_ACTIVE) return WEFT_ERR(INTERNAL, "a step has ended the capture of its stream");
  wcu_graph_node *from = malloc(WEFT_MAX(count, 1) * sizeof *from);
  WEFT_TRY_ALLOC(from);
  if (count) memcpy(from, last, count * sizeof *from);
  free(p->from);
  p->from = from;
  p->count = count;
  return NULL;
}

/* Ends the part that is captured into the place, if there is one. Takes the error `st` of the part. */
static weft_status *end_part(const recording *r, place *p, weft_status *st) WEFT_REQUIRES(r->gpu->recording)
{
  wcu_graph same;

  if (!p->captures) return st;
  p->captures = false;
  return end_capture(r->gpu, st ? st : note_last(r->gpu, p), &same);
}

/* ---- steps ----------------------------------------------------------------------------------------------------- */

static weft_status *put_sequence(recording *r, place *p, const rt_seq *seq) WEFT_REQUIRES(r->gpu->recording);

/* A place at the beginning of a body. What fills it is followed by close_body. */
static place open_body(wcu_graph body) { return (place){.graph = body}; }

/* Takes the error `st` of what was put there. */
static weft_status *close_body(const recording *r, place *p, weft_status *st) WEFT_REQUIRES(r->gpu->recording)
{
  st = end_part(r, p, st);
  free(p->from);
  return st;
}

static wcu_ptr flag_of(const recording *r, const rt_thunk *thunk)
{
  return (wcu_ptr)(uintptr_t)rt_args(thunk, r->ctx)[0];
}

/* The kernel that decides whether a round of the loop follows. */
static weft_status *put_decision(const recording *r, place *p, const rt_thunk *loop, wcu_conditional_handle handle,
                                 bool first) WEFT_REQUIRES(r->gpu->recording)
{
  const gpu_conditions *c = &r->gpu->conditions;
  int64_t trips = rt_loop_trips(loop);

  WEFT_TRY(begin_part(r, p));
  if (trips < 0) return gpu_set_by_flag(c, r->gpu->recorder, handle, flag_of(r, loop));
  return gpu_set_by_count(c, r->gpu->recorder, handle, r->depth, trips, first);
}

static weft_status *fill_round(recording *r, place *p, const rt_thunk *loop, wcu_conditional_handle handle)
  WEFT_REQUIRES(r->gpu->recording)
{
  bool counts = rt_loop_trips(loop) >= 0;

  r->depth += counts;
  weft_status *st = put_sequence(r, p, loop->seqs[0]);
  r->depth -= counts;
  WEFT_TRY(st);
  if (!counts) WEFT_TRY(put_sequence(r, p, loop->seqs[1]));
  return put_decision(r, p, loop, handle, false);
}

static weft_status *put_loop(recording *r, place *p, const rt_thunk *loop) WEFT_REQUIRES(r->gpu->recording)
{
  int64_t trips = rt_loop_trips(loop);
  wcu_conditional_handle handle;
  wcu_graph body;

  if (rt_unrolls(loop, MOST_UNROLLED)) {
    while (trips-- > 0) WEFT_TRY(put_sequence(r, p, loop->seqs[0]));
    return NULL;
  }
  if (trips < 0) WEFT_TRY(put_sequence(r, p, loop->seqs[1]));
  WEFT_TRY(gpu_new_handle(r->gpu, p->graph, &handle));
  WEFT_TRY(put_decision(r, p, loop, handle, true));
  WEFT_TRY(end_part(r, p, NULL));
  WEFT_TRY(gpu_add_condition(r->gpu, p->graph, &p->from, &p->count, WCU_GRAPH_COND_TYPE_WHILE, handle, 1, &body));
  place inner = open_body(body);
  return close_body(r, &inner, fill_round(r, &inner, loop, handle));
}

static weft_status *fill_branch(recording *r, wcu_graph body, const rt_seq *branch) WEFT_REQUIRES(r->gpu->recording)
{
  place inner = open_body(body);

  return close_body(r, &inner, put_sequence(r, &inner, branch));
}

/* A node with a body for each branch. */
static weft_status *put_choice_in_one(recording *r, place *p, const rt_thunk *choice, wcu_graph *bodies)
  WEFT_REQUIRES(r->gpu->recording)
{
  int count = choice->seq_count;
  wcu_conditional_type type = count == 2 ? WCU_GRAPH_COND_TYPE_IF : WCU_GRAPH_COND_TYPE_SWITCH;
  wcu_conditional_handle handle;

  WEFT_TRY(gpu_new_handle(r->gpu, p->graph, &handle));
  WEFT_TRY(begin_part(r, p));
  WEFT_TRY(gpu_set_by_branch(&r->gpu->conditions, r->gpu->recorder, handle, flag_of(r, choice),
                             rt_choice_is_by_pred(choice), count, count == 2 ? 0 : -1));
  WEFT_TRY(end_part(r, p, NULL));
  WEFT_TRY(gpu_add_condition(r->gpu, p->graph, &p->from, &p->count, type, handle, count, bodies));
  for (int i = 0; i < count; i++) WEFT_TRY(fill_branch(r, bodies[i], choice->seqs[i]));
  return NULL;
}

/* A node for each branch. All handles are set first: a branch may write where the flag is. */
static weft_status *put_choice_in_turn(recording *r, place *p, const rt_thunk *choice, wcu_conditional_handle *handles)
  WEFT_REQUIRES(r->gpu->recording)
{
  wcu_graph body;

  for (int i = 0; i < choice->seq_count; i++) {
    WEFT_TRY(gpu_new_handle(r->gpu, p->graph, &handles[i]));
    WEFT_TRY(begin_part(r, p));
    WEFT_TRY(gpu_set_by_branch(&r->gpu->conditions, r->gpu->recorder, handles[i], flag_of(r, choice),
                               rt_choice_is_by_pred(choice), choice->seq_count, i));
  }
  WEFT_TRY(end_part(r, p, NULL));
  for (int i = 0; i < choice->seq_count; i++) {
    WEFT_TRY(gpu_add_condition(r->gpu, p->graph, &p->from, &p->count, WCU_GRAPH_COND_TYPE_IF, handles[i], 1, &body));
    WEFT_TRY(fill_branch(r, body, choice->seqs[i]));
  }
  return NULL;
}

static weft_status *put_choice(recording *r, place *p, const rt_thunk *choice) WEFT_REQUIRES(r->gpu->recording)
{
  size_t count = (size_t)choice->seq_count;
  weft_status *st;

  if (count == 1) return put_sequence(r, p, choice->seqs[0]);
  if (r->gpu->conditions.has_choice) {
    wcu_graph *bodies = calloc(count, sizeof *bodies);
    WEFT_TRY_ALLOC(bodies);
    st = put_choice_in_one(r, p, choice, bodies);
    free(bodies);
  } else {
    wcu_conditional_handle *handles = calloc(count, sizeof *handles);
    WEFT_TRY_ALLOC(handles);
    st = put_choice_in_turn(r, p, choice, handles);
    free(handles);
  }
  return st;
}

static weft_status *put_step(recording *r, place *p, const rt_thunk *thunk) WEFT_REQUIRES(r->gpu->recording)
{
  switch (rt_control_kind_of(thunk)) {
  case RT_LOOP: return put_loop(r, p, thunk);
  case RT_CHOICE: return put_choice(r, p, thunk);
  case RT_CALL: return put_sequence(r, p, thunk->seqs[0]);
  case RT_NO_CONTROL: break;
  }
  WEFT_TRY(begin_part(r, p));
  return thunk->ops->enqueue(thunk, r->ctx);
}

static weft_status *put_sequence(recording *r, place *p, const rt_seq *seq) WEFT_REQUIRES(r->gpu->recording)
{
  for (int t = 0; t < rt_seq_count(seq); t++) WEFT_TRY(put_step(r, p, rt_seq_steps(seq)[t]));
  return NULL;
}

/* ---- the whole ------------------------------------------------------------------------------------------------- */

int64_t gpu_rounds_of(const rt_thunk *step)
{
  switch (rt_control_kind_of(step)) {
  case RT_CALL: return 1;
  case RT_LOOP: return rt_loop_trips(step);
  default: return 0;
  }
}

/* Queues the steps of a stretch that does not decide. */
static weft_status *queue_all(rt_thunk *const *steps, int count, rt_ctx *ctx, gpu_put_step *put, void *put_ctx)
{
  for (int i = 0; i < count; i++) {
    const rt_thunk *step = steps[i];
    rt_control_kind kind = rt_control_kind_of(step);
    if (kind == RT_NO_CONTROL) WEFT_TRY(step->ops->enqueue ? step->ops->enqueue(step, ctx) : put(put_ctx, step));
    for (int64_t n = gpu_rounds_of(step); n > 0; n--)
      WEFT_TRY(queue_all(rt_seq_steps(step->seqs[0]), rt_seq_count(step->seqs[0]), ctx, put, put_ctx));
  }
  return NULL;
}

weft_status *gpu_queue_stretch(const rt_stretch *s, rt_ctx *ctx, gpu_put_step *put, void *put_ctx)
{
  return queue_all(s->steps, s->count, ctx, put, put_ctx);
}

static weft_status *capture_all(const recording *r, const rt_stretch *s, wcu_graph *out_graph)
  WEFT_REQUIRES(r->gpu->recording)
{
  WEFT_TRY(GPU_CALL(cuStreamBeginCapture, r->gpu->recorder, WCU_CAPTURE_MODE_THREAD_LOCAL));
  gpu_record_on(r->gpu->recorder);
  return end_capture(r->gpu, queue_all(s->steps, s->count, r->ctx, r->put, r->put_ctx), out_graph);
}

static weft_status *put_all(recording *r, const rt_stretch *s, wcu_graph *out_graph) WEFT_REQUIRES(r->gpu->recording)
{
  weft_status *st = NULL;

  WEFT_TRY(GPU_CALL(cuGraphCreate, out_graph, 0));
  place top = open_body(*out_graph);
  for (int i = 0; i < s->count && !st; i++) st = put_step(r, &top, s->steps[i]);
  return close_body(r, &top, st);
}

static weft_status *record(recording *r, const rt_stretch *s, wcu_graph *out_graph) WEFT_REQUIRES(r->gpu->recording)
{
  WEFT_TRY(make_recorder(r->gpu));
  return s->decides ? put_all(r, s, out_graph) : capture_all(r, s, out_graph);
}

weft_status *gpu_record_stretch(gpu_platform *platform, const rt_stretch *stretch, rt_ctx *ctx, gpu_device *gpu,
                                gpu_put_step *put, void *put_ctx, wcu_graph *out_graph)
{
  recording r = {.ctx = ctx, .gpu = gpu, .put = put, .put_ctx = put_ctx};
  wcu_graph graph = NULL;

  *out_graph = NULL;
  if (stretch->decides) WEFT_TRY(gpu_conditions_open(platform, gpu));
  weft_mutex_lock(&r.gpu->recording);
  weft_status *st = record(&r, stretch, &graph);
  weft_mutex_unlock(&r.gpu->recording);
  if (st) gpu_drop_graph(graph);
  else *out_graph = graph;
  return st;
}
