/* tests/gpu/emulator/graph.c -- graphs, and streams that write their work into one instead of doing it (capture).
 *
 * A launch copies the nodes' work in an order that the edges allow (a random one where WEFT_EMU_ORDER is
 * interleaved, so that an edge which is missing shows) and does it in the stream's order.  An event that a
 * capture records stands for the nodes before it; a stream that waits for such an event joins the capture,
 * and must be joined again before it ends. */
#include <config.h>

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

/* origin: the graph's own node of each */
struct wcu_graph_exec_st { struct wcu_graph_st nodes; wcu_graph_node *origin; };

static atomic_size_t live; /* graphs and instances */

size_t emu_live_graphs(void) { return atomic_load(&live); }

static wcu_graph new_graph(void)
{
  wcu_graph g = calloc(1, sizeof *g);
  if (g) atomic_fetch_add(&live, 1);
  return g;
}

static bool append(wcu_graph_node **list, size_t *n, wcu_graph_node node)
{
  for (size_t k = 0; k < *n; k++)
    if ((*list)[k] == node) return true;
  wcu_graph_node *more = realloc(*list, (*n + 1) * sizeof *more);
  if (!more) return false;
  *list = more;
  more[(*n)++] = node;
  return true;
}

wcu_graph_node emu_graph_add(wcu_graph g, const wcu_graph_node *from, size_t count, emu_work *w)
{
  wcu_graph_node node = calloc(1, sizeof *node);
  wcu_graph_node *more = realloc(g->nodes, (g->count + 1) * sizeof *more);
  if (more) g->nodes = more;
  bool ok = node && more;
  for (size_t n = 0; ok && n < count; n++) ok = from[n]->graph == g && append(&node->from, &node->from_count, from[n]);
  if (!ok) {
    emu_work_drop(w);
    if (node) free(node->from);
    free(node);
    return NULL;
  }
  node->graph = g, node->work = *w, node->index = g->count;
  *w = (emu_work){.what = EMU_EMPTY};
  return g->nodes[g->count++] = node;
}

static void free_graph(wcu_graph g);

/* The graphs of a conditional node that is not instantiated. */
static void drop_bodies(emu_work *w)
{
  for (size_t n = 0; n < w->body_count; n++) free_graph(w->bodies[n]);
  free(w->bodies);
  w->bodies = NULL, w->body_count = 0;
}

static void empty_nodes(wcu_graph g)
{
  for (size_t n = 0; n < g->count; n++) {
    drop_bodies(&g->nodes[n]->work);
    emu_work_drop(&g->nodes[n]->work);
    free(g->nodes[n]->from);
    free(g->nodes[n]);
  }
  for (size_t n = 0; n < g->condition_count; n++) emu_condition_release(g->conditions[n]);
  free(g->conditions);
  free(g->nodes);
  *g = (struct wcu_graph_st){0};
}

static void free_graph(wcu_graph g)
{
  if (!g) return;
  empty_nodes(g);
  free(g);
  atomic_fetch_sub(&live, 1);
}

EMU_API cuGraphCreate(wcu_graph *graph, unsigned flags)
{
  EMU_ENTER(EMU_AFTER_INIT);
  if (!graph || flags) return WCU_ERROR_INVALID_VALUE;
  *graph = new_graph();
  return *graph ? WCU_SUCCESS : WCU_ERROR_OUT_OF_MEMORY;
}

EMU_API cuGraphDestroy(wcu_graph graph)
{
  EMU_ENTER(EMU_AFTER_INIT);
  if (!graph || graph->is_body) return WCU_ERROR_INVALID_VALUE;
  free_graph(graph);
  return WCU_SUCCESS;
}

/* ---- nodes ---- */

static wcu_result add(WCU_NEW_NODE, emu_work *w)
{
  if (!node || !graph || (count && !from)) {
    emu_work_drop(w);
    return WCU_ERROR_INVALID_VALUE;
  }
  *node = emu_graph_add(graph, from, count, w);
  return *node ? WCU_SUCCESS : WCU_ERROR_INVALID_VALUE;
}

EMU_API cuGraphAddKernelNode_v2(WCU_NEW_NODE, const wcu_kernel_node_params *params)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  emu_work w;
  wcu_result r = params ? emu_kernel_work(params, false, &w) : WCU_ERROR_INVALID_VALUE;
  return r ? r : add(node, graph, from, count, &w);
}

EMU_API cuGraphAddMemcpyNode(WCU_NEW_NODE, const wcu_memcpy3d *params, wcu_context context)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  wcu_result r = params && context ? emu_check_copy(params, context->device) : WCU_ERROR_INVALID_VALUE;
  return r ? r : add(node, graph, from, count, &(emu_work){.what = EMU_COPY, .copy = *params});
}

EMU_API cuGraphAddMemsetNode(WCU_NEW_NODE, const wcu_memset_node_params *params, wcu_context context)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  if (!params || !context || (params->elementSize != 1 && params->elementSize != 2 && params->elementSize != 4))
    return WCU_ERROR_INVALID_VALUE;
  return add(node, graph, from, count, &(emu_work){.what = EMU_FILL, .fill = *params});
}

EMU_API cuGraphAddHostNode(WCU_NEW_NODE, const wcu_host_node_params *params)
{
  EMU_ENTER(EMU_AFTER_INIT);
  if (!params || !params->fn) return WCU_ERROR_INVALID_VALUE;
  return add(node, graph, from, count, &(emu_work){.what = EMU_HOST_CALL, .host = *params});
}

EMU_API cuGraphAddEmptyNode(WCU_NEW_NODE)
{
  EMU_ENTER(EMU_AFTER_INIT);
  return add(node, graph, from, count, &(emu_work){.what = EMU_EMPTY});
}

EMU_API cuGraphAddEventRecordNode(WCU_NEW_NODE, wcu_event event)
{
  EMU_ENTER(EMU_AFTER_INIT);
  return event ? add(node, graph, from, count, &(emu_work){.what = EMU_RECORD, .event = event})
               : WCU_ERROR_INVALID_VALUE;
}

EMU_API cuGraphAddEventWaitNode(WCU_NEW_NODE, wcu_event event)
{
  EMU_ENTER(EMU_AFTER_INIT);
  return event ? add(node, graph, from, count, &(emu_work){.what = EMU_AWAIT, .event = event})
               : WCU_ERROR_INVALID_VALUE;
}

static wcu_result whole(const struct wcu_graph_st *g, emu_work *out);

/* A copy of a node's work for an instance or a launch.  The bodies of a conditional node become works. */
static bool freeze(const emu_work *w, emu_work *out)
{
  if (!w->bodies) {
    *out = emu_work_clone(w);
    return true;
  }
  *out = (emu_work){.what = EMU_CONDITIONAL,
                    .type = w->type,
                    .condition = emu_condition_retain(w->condition),
                    .many = calloc(w->body_count + 1, sizeof *out)};
  bool ok = out->many != NULL;
  for (size_t n = 0; ok && n < w->body_count; n++) {
    ok = whole(w->bodies[n], &out->many[n]) == WCU_SUCCESS;
    out->many_count += ok;
  }
  if (!ok) emu_work_drop(out);
  return ok;
}

/* The nodes' work in an order that the edges allow; false: no memory, or a cycle. */
static bool in_order(const struct wcu_graph_st *g, emu_work *out)
{
  bool *done = calloc(g->count + 1, sizeof *done);
  size_t *ready = calloc(g->count + 1, sizeof *ready), written = 0;
  while (done && ready && written < g->count) {
    size_t n = 0;
    for (size_t k = 0; k < g->count; k++) {
      bool free_ = !done[k];
      for (size_t f = 0; free_ && f < g->nodes[k]->from_count; f++) free_ = done[g->nodes[k]->from[f]->index];
      if (free_) ready[n++] = k;
    }
    if (!n) break;
    size_t k = ready[emu_set.order == PTX_INTERLEAVED ? emu_random() % n : emu_set.order == PTX_REVERSED ? n - 1 : 0];
    done[k] = true;
    if (!freeze(&g->nodes[k]->work, &out[written])) break;
    written++;
  }
  bool ok = written == g->count;
  for (size_t n = 0; !ok && n < written; n++) emu_work_drop(&out[n]);
  free(done);
  free(ready);
  return ok;
}

/* All of the graph as one work. */
static wcu_result whole(const struct wcu_graph_st *g, emu_work *out)
{
  *out = (emu_work){.what = EMU_MANY, .many_count = g->count, .many = calloc(g->count + 1, sizeof *out)};
  if (!out->many) return WCU_ERROR_OUT_OF_MEMORY;
  if (in_order(g, out->many)) return WCU_SUCCESS;
  free(out->many);
  return WCU_ERROR_INVALID_VALUE;
}

/* ---- conditional nodes ---- */

static bool has_conditional(const struct wcu_graph_st *g)
{
  bool found = false;
  for (size_t n = 0; n < g->count; n++) found |= g->nodes[n]->work.what == EMU_CONDITIONAL;
  return found;
}

EMU_API cuGraphConditionalHandleCreate(wcu_conditional_handle *handle, wcu_graph graph, wcu_context context,
                                       unsigned value, unsigned flags)
{
  EMU_ENTER(EMU_AFTER_INIT);
  if (!handle || !graph || !context || flags > WCU_GRAPH_COND_ASSIGN_DEFAULT) return WCU_ERROR_INVALID_VALUE;
  emu_condition **more = realloc(graph->conditions, (graph->condition_count + 1) * sizeof(emu_condition *));
  if (!more) return WCU_ERROR_OUT_OF_MEMORY;
  graph->conditions = more;
  emu_condition *d = emu_condition_new(context, value, flags & WCU_GRAPH_COND_ASSIGN_DEFAULT);
  if (!d) return WCU_ERROR_OUT_OF_MEMORY;
  more[graph->condition_count++] = d;
  *handle = emu_condition_handle(d);
  return WCU_SUCCESS;
}

static bool size_fits(const wcu_conditional_node_params *p)
{
  if (emu_version() < 12080 && (p->type == WCU_GRAPH_COND_TYPE_SWITCH || p->size > 1)) return false;
  if (p->type == WCU_GRAPH_COND_TYPE_WHILE) return p->size == 1;
  return p->type == WCU_GRAPH_COND_TYPE_IF ? p->size == 1 || p->size == 2
                                           : p->type == WCU_GRAPH_COND_TYPE_SWITCH && p->size > 0;
}

static emu_condition *find_condition(const struct wcu_graph_st *g, uint64_t handle)
{
  for (size_t n = 0; n < g->condition_count; n++)
    if (emu_condition_handle(g->conditions[n]) == handle) return g->conditions[n];
  return NULL;
}

/* Nodes of other kinds have calls of their own. */
EMU_API cuGraphAddNode_v2(wcu_graph_node *node, wcu_graph graph, const wcu_graph_node *from,
                          const wcu_graph_edge_data *data, size_t count, wcu_graph_node_params *params)
{
  EMU_ENTER(EMU_AFTER_INIT);
  (void)data;
  if (!graph || !params || params->type != WCU_GRAPH_NODE_TYPE_CONDITIONAL) return WCU_ERROR_INVALID_VALUE;
  wcu_conditional_node_params *p = &params->conditional;
  emu_condition *d = find_condition(graph, p->handle);
  if (!d || !size_fits(p) || p->ctx != emu_condition_context(d) || !emu_condition_take(d))
    return WCU_ERROR_INVALID_VALUE;
  emu_work w = {.what = EMU_CONDITIONAL, .type = p->type, .condition = emu_condition_retain(d),
                .bodies = calloc(p->size, sizeof *w.bodies)};
  for (; w.bodies && w.body_count < p->size; w.body_count++) {
    if (!(w.bodies[w.body_count] = new_graph())) break;
    w.bodies[w.body_count]->is_body = true;
  }
  wcu_graph *bodies = w.bodies;
  wcu_result r = w.body_count == p->size ? add(node, graph, from, count, &w) : WCU_ERROR_OUT_OF_MEMORY;
  if (!r) p->phGraph_out = bodies;
  return r;
}

/* What a body may hold, as the manual lists it; also that each handle of the graph has a node. */
static bool may_instantiate(const struct wcu_graph_st *g, bool in_body)
{
  for (size_t n = 0; n < g->condition_count; n++)
    if (!emu_condition_is_taken(g->conditions[n])) return false;
  for (size_t n = 0; n < g->count; n++) {
    const emu_work *w = &g->nodes[n]->work;
    if (in_body && w->what != EMU_KERNEL && w->what != EMU_LIBRARY && w->what != EMU_COPY && w->what != EMU_FILL &&
        w->what != EMU_EMPTY && w->what != EMU_MANY && w->what != EMU_CONDITIONAL)
      return false;
    for (size_t k = 0; w->what == EMU_MANY && in_body && k < w->many_count; k++)
      if (w->many[k].what == EMU_HOST_CALL || w->many[k].what == EMU_RECORD || w->many[k].what == EMU_AWAIT)
        return false;
    for (size_t b = 0; b < w->body_count; b++)
      if (!may_instantiate(w->bodies[b], true)) return false;
  }
  return true;
}

/* Marks the handles of an instance's works; false: a graph with them is instantiated already. */
static bool mark_instance(const emu_work *w, bool on)
{
  bool ok = !w->condition || emu_condition_instantiate(w->condition, on);
  for (size_t n = 0; n < w->many_count; n++) ok = mark_instance(&w->many[n], on) && ok;
  return ok;
}

EMU_API cuGraphAddChildGraphNode(WCU_NEW_NODE, wcu_graph child)
{
  EMU_ENTER(EMU_AFTER_INIT);
  emu_work w;
  if (child && has_conditional(child)) return WCU_ERROR_NOT_SUPPORTED;
  wcu_result r = child ? whole(child, &w) : WCU_ERROR_INVALID_VALUE;
  return r ? r : add(node, graph, from, count, &w);
}

EMU_API cuGraphAddDependencies_v2(wcu_graph graph, const wcu_graph_node *from, const wcu_graph_node *to,
                                  const wcu_graph_edge_data *data, size_t count)
{
  EMU_ENTER(EMU_AFTER_INIT);
  (void)data;
  for (size_t n = 0; n < count; n++) {
    if (!graph || from[n]->graph != graph || to[n]->graph != graph || from[n] == to[n]) return WCU_ERROR_INVALID_VALUE;
    if (!append(&to[n]->from, &to[n]->from_count, from[n])) return WCU_ERROR_OUT_OF_MEMORY;
  }
  return WCU_SUCCESS;
}

EMU_API cuGraphGetNodes(wcu_graph graph, wcu_graph_node *nodes, size_t *count)
{
  EMU_ENTER(EMU_AFTER_INIT);
  if (!graph || !count) return WCU_ERROR_INVALID_VALUE;
  for (size_t n = 0; nodes && n < *count && n < graph->count; n++) nodes[n] = graph->nodes[n];
  *count = graph->count;
  return WCU_SUCCESS;
}

EMU_API cuGraphGetEdges_v2(wcu_graph graph, wcu_graph_node *from, wcu_graph_node *to, wcu_graph_edge_data *data,
                           size_t *count)
{
  EMU_ENTER(EMU_AFTER_INIT);
  if (!graph || !count) return WCU_ERROR_INVALID_VALUE;
  size_t n = 0;
  for (size_t k = 0; k < graph->count; k++)
    for (size_t f = 0; f < graph->nodes[k]->from_count; f++, n++) {
      if (!from || !to || n >= *count) continue;
      from[n] = graph->nodes[k]->from[f], to[n] = graph->nodes[k];
      if (data) data[n] = (wcu_graph_edge_data){0};
    }
  *count = n;
  return WCU_SUCCESS;
}

static wcu_graph_node_type type_of(const emu_work *w)
{
  switch (w->what) {
  case EMU_KERNEL:
  case EMU_LIBRARY: return WCU_GRAPH_NODE_TYPE_KERNEL;
  case EMU_COPY: return WCU_GRAPH_NODE_TYPE_MEMCPY;
  case EMU_FILL: return WCU_GRAPH_NODE_TYPE_MEMSET;
  case EMU_HOST_CALL: return WCU_GRAPH_NODE_TYPE_HOST;
  case EMU_MANY: return WCU_GRAPH_NODE_TYPE_GRAPH;
  case EMU_RECORD: return WCU_GRAPH_NODE_TYPE_EVENT_RECORD;
  case EMU_AWAIT: return WCU_GRAPH_NODE_TYPE_WAIT_EVENT;
  case EMU_CONDITIONAL: return WCU_GRAPH_NODE_TYPE_CONDITIONAL;
  default: return WCU_GRAPH_NODE_TYPE_EMPTY;
  }
}

EMU_API cuGraphNodeGetType(wcu_graph_node node, wcu_graph_node_type *type)
{
  EMU_ENTER(EMU_AFTER_INIT);
  if (!node || !type) return WCU_ERROR_INVALID_VALUE;
  *type = type_of(&node->work);
  return WCU_SUCCESS;
}

/* ---- executable graphs ---- */

EMU_API cuGraphInstantiateWithFlags(wcu_graph_exec *exec, wcu_graph graph, unsigned long long flags)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  (void)flags;
  emu_work probe;
  if (!exec || !graph || graph->is_body || !may_instantiate(graph, false)) return WCU_ERROR_INVALID_VALUE;
  wcu_result r = whole(graph, &probe); /* a cycle is refused now */
  if (r) return r;
  bool is_first = mark_instance(&probe, true);
  emu_work_drop(&probe);
  if (!is_first) return WCU_ERROR_NOT_SUPPORTED; /* a graph with conditional nodes has one instance at a time */
  wcu_graph_exec e = calloc(1, sizeof *e);
  if (!e || !(e->origin = calloc(graph->count + 1, sizeof *e->origin))) {
    free(e);
    return WCU_ERROR_OUT_OF_MEMORY;
  }
  atomic_fetch_add(&live, 1);
  for (size_t n = 0; n < graph->count; n++) {
    emu_work w;
    e->origin[n] = graph->nodes[n];
    if (!freeze(&graph->nodes[n]->work, &w)) w = (emu_work){.what = EMU_EMPTY}, r = WCU_ERROR_OUT_OF_MEMORY;
    if (!emu_graph_add(&e->nodes, NULL, 0, &w)) r = WCU_ERROR_OUT_OF_MEMORY;
  }
  for (size_t n = 0; n < graph->count && !r; n++)
    for (size_t f = 0; f < graph->nodes[n]->from_count; f++)
      append(&e->nodes.nodes[n]->from, &e->nodes.nodes[n]->from_count, e->nodes.nodes[graph->nodes[n]->from[f]->index]);
  *exec = e;
  return r;
}

EMU_API cuGraphExecDestroy(wcu_graph_exec exec)
{
  EMU_ENTER(EMU_AFTER_INIT);
  if (!exec) return WCU_ERROR_INVALID_VALUE;
  for (size_t n = 0; n < exec->nodes.count; n++) mark_instance(&exec->nodes.nodes[n]->work, false);
  empty_nodes(&exec->nodes);
  free(exec->origin);
  free(exec);
  atomic_fetch_sub(&live, 1);
  return WCU_SUCCESS;
}

static wcu_result replace(wcu_graph_exec exec, wcu_graph_node node, emu_work *w)
{
  for (size_t n = 0; n < exec->nodes.count; n++) {
    emu_work *old = &exec->nodes.nodes[n]->work;
    if (exec->origin[n] != node || old->what != w->what) continue;
    emu_work_drop(old);
    *old = *w;
    return WCU_SUCCESS;
  }
  emu_work_drop(w);
  return WCU_ERROR_INVALID_VALUE;
}

EMU_API cuGraphExecKernelNodeSetParams_v2(wcu_graph_exec exec, wcu_graph_node node,
                                          const wcu_kernel_node_params *params)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  emu_work w;
  wcu_result r = exec && params ? emu_kernel_work(params, false, &w) : WCU_ERROR_INVALID_VALUE;
  return r ? r : replace(exec, node, &w);
}

EMU_API cuGraphExecMemcpyNodeSetParams(wcu_graph_exec exec, wcu_graph_node node, const wcu_memcpy3d *params,
                                       wcu_context context)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  wcu_result r = exec && params && context ? emu_check_copy(params, context->device) : WCU_ERROR_INVALID_VALUE;
  return r ? r : replace(exec, node, &(emu_work){.what = EMU_COPY, .copy = *params});
}

EMU_API cuGraphExecMemsetNodeSetParams(wcu_graph_exec exec, wcu_graph_node node, const wcu_memset_node_params *params,
                                       wcu_context context)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  if (!exec || !params || !context) return WCU_ERROR_INVALID_VALUE;
  return replace(exec, node, &(emu_work){.what = EMU_FILL, .fill = *params});
}

/* The same nodes and edges, with other parameters; kernels of other functions are taken as well. */
EMU_API cuGraphExecUpdate_v2(wcu_graph_exec exec, wcu_graph graph, wcu_graph_update_info *info)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  if (!exec || !graph) return WCU_ERROR_INVALID_VALUE;
  wcu_graph_update_info i = {.result = exec->nodes.count == graph->count ? WCU_GRAPH_EXEC_UPDATE_SUCCESS : WCU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED};
  if (has_conditional(graph) || has_conditional(&exec->nodes)) i.result = WCU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
  for (size_t n = 0; n < graph->count && i.result == WCU_GRAPH_EXEC_UPDATE_SUCCESS; n++) {
    const wcu_graph_node a = exec->nodes.nodes[n], b = graph->nodes[n];
    bool same = a->from_count == b->from_count;
    for (size_t f = 0; same && f < b->from_count; f++) same = a->from[f]->index == b->from[f]->index;
    if (!same) i = (wcu_graph_update_info){WCU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, b, NULL};
    else if (a->work.what != b->work.what)
      i = (wcu_graph_update_info){WCU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, b, NULL};
  }
  for (size_t n = 0; n < graph->count && i.result == WCU_GRAPH_EXEC_UPDATE_SUCCESS; n++) {
    emu_work_drop(&exec->nodes.nodes[n]->work);
    exec->nodes.nodes[n]->work = emu_work_clone(&graph->nodes[n]->work);
    exec->origin[n] = graph->nodes[n];
  }
  if (info) *info = i;
  return i.result == WCU_GRAPH_EXEC_UPDATE_SUCCESS ? WCU_SUCCESS : WCU_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

EMU_API cuGraphUpload(wcu_graph_exec exec, wcu_stream stream)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  (void)stream;
  return exec ? WCU_SUCCESS : WCU_ERROR_INVALID_VALUE;
}

/* Nodes that record an event give it a new mark at each launch; nodes that wait
 * take the mark that the event has then. */
static wcu_result bind_events(emu_work *w, size_t count)
{
  for (size_t n = 0; n < count; n++) {
    if (w[n].what == EMU_MANY && bind_events(w[n].many, w[n].many_count)) return WCU_ERROR_OUT_OF_MEMORY;
    if (!w[n].event) continue;
    if (w[n].what == EMU_RECORD) {
      emu_mark *m = emu_mark_new();
      if (!m) return WCU_ERROR_OUT_OF_MEMORY;
      m->refs = 2;
      emu_mark_release(w[n].event->mark);
      w[n].event->mark = w[n].mark = m;
    } else if (w[n].event->mark) {
      w[n].mark = emu_mark_retain(w[n].event->mark);
    }
  }
  return WCU_SUCCESS;
}

EMU_API cuGraphLaunch(wcu_graph_exec exec, wcu_stream stream)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  emu_work w;
  wcu_result r = exec ? whole(&exec->nodes, &w) : WCU_ERROR_INVALID_VALUE;
  if (r) return r;
  pthread_mutex_lock(&emu_mu);
  w.is_launch = true;
  emu_work_count_launch(&w, 1);
  r = bind_events(w.many, w.many_count);
  pthread_mutex_unlock(&emu_mu);
  if (!r) return emu_submit(stream, &w);
  emu_work_drop(&w);
  return r;
}

/* ---- capture ---- */

struct emu_capture {
  wcu_graph graph;
  wcu_stream origin;
  wcu_capture_mode mode;
  uint64_t id;
  bool invalid, own_graph;
  emu_capture *next;
};
static emu_capture *captures;
static uint64_t capture_ids;

wcu_result emu_capture_add(wcu_stream s, emu_work *w)
{
  emu_capture *c = s->capture;
  if (c->invalid) {
    emu_work_drop(w);
    return WCU_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  wcu_graph_node node = emu_graph_add(c->graph, s->from, s->from_count, w);
  if (!node) return WCU_ERROR_OUT_OF_MEMORY;
  s->from_count = 0;
  return append(&s->from, &s->from_count, node) ? WCU_SUCCESS : WCU_ERROR_OUT_OF_MEMORY;
}

wcu_result emu_capture_record(wcu_event e, wcu_stream s)
{
  e->capture = s->capture, e->capture_id = s->capture->id, e->from_count = 0;
  for (size_t n = 0; n < s->from_count; n++)
    if (!append(&e->from, &e->from_count, s->from[n])) return WCU_ERROR_OUT_OF_MEMORY;
  return WCU_SUCCESS;
}

wcu_result emu_capture_wait(wcu_stream s, wcu_event e)
{
  if (s->capture && s->capture != e->capture) return WCU_ERROR_STREAM_CAPTURE_MERGE;
  bool live = false;
  for (emu_capture *c = captures; c; c = c->next) live |= c == e->capture && c->id == e->capture_id;
  if (!live) return WCU_ERROR_CAPTURED_EVENT;
  if (!s->capture) s->from_count = 0; /* what it holds is of a capture that has ended */
  s->capture = e->capture;
  for (size_t n = 0; n < e->from_count; n++)
    if (!append(&s->from, &s->from_count, e->from[n])) return WCU_ERROR_OUT_OF_MEMORY;
  return WCU_SUCCESS;
}

wcu_result emu_capture_forbids(wcu_stream s)
{
  if (s->capture) {
    s->capture->invalid = true;
    return WCU_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  for (emu_capture *c = captures; c && s == s->context->legacy; c = c->next) {
    if (c->mode == WCU_CAPTURE_MODE_RELAXED || c->origin->context != s->context ||
        c->origin->flags & WCU_STREAM_NON_BLOCKING)
      continue;
    c->invalid = true; /* the implicit stream would wait for the stream that captures */
    return WCU_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  return WCU_SUCCESS;
}

static wcu_result begin(wcu_stream stream, wcu_graph graph, const wcu_graph_node *from, size_t count,
                        wcu_capture_mode mode)
{
  emu_capture *c = calloc(1, sizeof *c);
  wcu_graph g = graph ? graph : new_graph();
  wcu_result r = c && g ? WCU_SUCCESS : WCU_ERROR_OUT_OF_MEMORY;
  pthread_mutex_lock(&emu_mu);
  wcu_stream s = emu_stream_of(stream);
  if (!s) r = WCU_ERROR_INVALID_HANDLE;
  else if (!stream || stream == WCU_STREAM_LEGACY) r = WCU_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  else if (s->capture) r = WCU_ERROR_ILLEGAL_STATE;
  if (!r) {
    *c =
      (emu_capture){.graph = g, .origin = s, .mode = mode, .id = ++capture_ids, .own_graph = !graph, .next = captures};
    captures = c;
    s->capture = c, s->from_count = 0;
    for (size_t n = 0; n < count && !r; n++)
      r = append(&s->from, &s->from_count, from[n]) ? WCU_SUCCESS : WCU_ERROR_OUT_OF_MEMORY;
    c = NULL, g = NULL;
  }
  pthread_mutex_unlock(&emu_mu);
  free(c);
  if (!graph) free_graph(g);
  return r;
}

/* Ends a capture: no stream takes part in it any more. */
static void leave_capture(emu_capture *c)
{
  for (wcu_stream o = emu_all_streams(); o; o = o->next)
    if (o->capture == c) o->capture = NULL;
  for (emu_capture **p = &captures; *p; p = &(*p)->next)
    if (*p == c) {
      *p = c->next;
      break;
    }
}

void emu_capture_drop(wcu_stream s)
{
  emu_capture *c = s->capture;
  if (!c || c->origin != s) return;
  leave_capture(c);
  if (c->own_graph) free_graph(c->graph);
  free(c);
}

EMU_API cuStreamBeginCapture_v2(wcu_stream stream, wcu_capture_mode mode)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  return begin(stream, NULL, NULL, 0, mode);
}

EMU_API cuStreamBeginCaptureToGraph(wcu_stream stream, wcu_graph graph, const wcu_graph_node *from,
                                    const wcu_graph_edge_data *data, size_t count, wcu_capture_mode mode)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  (void)data;
  return graph ? begin(stream, graph, from, count, mode) : WCU_ERROR_INVALID_VALUE;
}

/* Whether node `a` is `b` or before it. */
static bool is_before(wcu_graph_node a, wcu_graph_node b)
{
  if (a == b) return true;
  for (size_t n = 0; n < b->from_count; n++)
    if (is_before(a, b->from[n])) return true;
  return false;
}

/* All work of the other streams must be before what the first stream ends with. */
static bool is_joined(const emu_capture *c, wcu_stream s)
{
  const wcu_stream o = c->origin;
  for (size_t n = 0; n < s->from_count; n++) {
    bool found = false;
    for (size_t k = 0; k < o->from_count && !found; k++) found = is_before(s->from[n], o->from[k]);
    if (!found) return false;
  }
  return true;
}

EMU_API cuStreamEndCapture(wcu_stream stream, wcu_graph *graph)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  if (!graph) return WCU_ERROR_INVALID_VALUE;
  *graph = NULL;
  wcu_result r = WCU_SUCCESS;
  pthread_mutex_lock(&emu_mu);
  wcu_stream s = emu_stream_of(stream);
  emu_capture *c = s ? s->capture : NULL;
  if (!c || c->origin != s) {
    pthread_mutex_unlock(&emu_mu);
    return s ? c ? WCU_ERROR_STREAM_CAPTURE_UNMATCHED : WCU_ERROR_ILLEGAL_STATE : WCU_ERROR_INVALID_HANDLE;
  }
  for (wcu_stream o = emu_all_streams(); o; o = o->next)
    if (o->capture == c && o != s && !is_joined(c, o)) r = WCU_ERROR_STREAM_CAPTURE_UNJOINED;
  leave_capture(c);
  pthread_mutex_unlock(&emu_mu);
  if (c->invalid) r = WCU_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (!r) *graph = c->graph;
  if (r && c->own_graph) free_graph(c->graph);
  free(c);
  return r;
}

EMU_API cuStreamIsCapturing(wcu_stream stream, wcu_capture_status *status)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  return cuStreamGetCaptureInfo_v3(stream, status, NULL, NULL, NULL, NULL, NULL);
}

EMU_API cuStreamGetCaptureInfo_v3(wcu_stream stream, wcu_capture_status *status, uint64_t *id, wcu_graph *graph,
                                  const wcu_graph_node **from, const wcu_graph_edge_data **data, size_t *count)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  if (!status) return WCU_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&emu_mu);
  wcu_stream s = emu_stream_of(stream);
  const emu_capture *c = s ? s->capture : NULL;
  *status = !c ? WCU_CAPTURE_STATUS_NONE : c->invalid ? WCU_CAPTURE_STATUS_INVALIDATED : WCU_CAPTURE_STATUS_ACTIVE;
  if (c && id) *id = c->id;
  if (c && graph) *graph = c->graph;
  if (c && from) *from = s->from;
  if (data) *data = NULL;
  if (count) *count = c ? s->from_count : 0;
  pthread_mutex_unlock(&emu_mu);
  return s ? WCU_SUCCESS : WCU_ERROR_INVALID_HANDLE;
}

EMU_API cuThreadExchangeStreamCaptureMode(wcu_capture_mode *mode)
{
  EMU_ENTER(EMU_AFTER_INIT);
  static _Thread_local wcu_capture_mode own = WCU_CAPTURE_MODE_GLOBAL;
  if (!mode) return WCU_ERROR_INVALID_VALUE;
  wcu_capture_mode before = own;
  own = *mode, *mode = before;
  return WCU_SUCCESS;
}
