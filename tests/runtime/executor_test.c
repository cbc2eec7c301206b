/* tests/runtime/executor_test.c -- the executor of thunks: order, errors, cancellation. */
#include "test.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "alloc.h"
#include "base/event.h"
#include "base/thread.h"
#include "hlo/text.h"
#include "passes/passes.h"
#include "runtime/program.h"

/* Every step of a module becomes a thunk that computes its results as a hash of its operands' elements; loops run TRIPS
 * times. A simple interpreter of the same rule gives the expected results, which must not depend on the order of
 * execution. */
enum { TRIPS = 3, ELEMENTS = 16 };

typedef struct mix_thunk {
  rt_thunk base;
  int operands, id;
} mix_thunk;

static uint64_t mix(uint64_t h, uint64_t v)
{
  h = (h ^ v) * 0x9E3779B97F4A7C15u;
  return h ^ (h >> 29);
}

static void mix_all(int id, int operands, const uint64_t *const *in, uint64_t *out)
{
  uint64_t result[ELEMENTS];
  for (int e = 0; e < ELEMENTS; e++) {
    result[e] = (uint64_t)id;
    for (int i = 0; i < operands; i++) result[e] = mix(result[e], in[i][e]);
  }
  memcpy(out, result, sizeof result);
}

static void work(const rt_thunk *thunk, rt_ctx *ctx)
{
  const mix_thunk *t = (const mix_thunk *)thunk;
  void *const *args = rt_args(thunk, ctx);
  mix_all(t->id, t->operands, (const uint64_t *const *)args, args[t->operands]);
}

static weft_status *fail_at; /* not NULL: the failing thunk returns a copy */
static int failing_id;

static weft_status *run_mix(const rt_thunk *thunk, rt_ctx *ctx)
{
  work(thunk, ctx);
  return fail_at && ((const mix_thunk *)thunk)->id == failing_id ? weft_status_dup(fail_at) : NULL;
}
static const rt_thunk_ops mix_ops = {sizeof(rt_thunk_ops), "mix", .run = run_mix};

/* A thread of the test ends every other asynchronous thunk; the others end at once. */
typedef struct pending { const rt_thunk *thunk; rt_ctx *ctx; } pending;
static pending queue[4096];
static int queued, taken;
static bool stop;
static weft_mutex queue_mu = WEFT_MUTEX_INITIALIZER;

static void *finisher(void *arg)
{
  for (;;) {
    weft_mutex_lock(&queue_mu);
    pending p = taken < queued ? queue[taken++ % 4096] : (pending){0};
    bool ended = stop;
    weft_mutex_unlock(&queue_mu);
    if (p.thunk) {
      work(p.thunk, p.ctx);
      rt_thunk_done(p.thunk, p.ctx, NULL);
    } else if (ended) {
      return arg;
    } else {
      sched_yield();
    }
  }
}

static weft_status *start_mix(const rt_thunk *thunk, rt_ctx *ctx)
{
  if (((const mix_thunk *)thunk)->id % 2) {
    work(thunk, ctx);
    rt_thunk_done(thunk, ctx, NULL);
    return NULL;
  }
  weft_mutex_lock(&queue_mu);
  queue[queued++ % 4096] = (pending){thunk, ctx};
  weft_mutex_unlock(&queue_mu);
  return NULL;
}
static const rt_thunk_ops start_ops = {sizeof(rt_thunk_ops), "start", .start = start_mix};
static const rt_thunk_ops soon_ops = {sizeof(rt_thunk_ops), "soon", .start = start_mix, .ends_soon = true};

typedef struct build {
  const hlo_module *module;
  buf_plan *plan;
  rt_program *program;
  rt_seq *seqs[64];
  double cost_ns;
  bool async, soon;
} build;

static weft_status *lower(build *b, const hlo_computation *comp)
{
  rt_thunk **thunks = WEFT_ARENA_ARRAY(rt_program_arena(b->program), rt_thunk *, comp->instr_count);
  int count = 0;
  weft_status *st = thunks ? NULL : WEFT_ERR(RESOURCE_EXHAUSTED, "memory");

  HLO_FOREACH(instr, comp) {
    rt_use uses[8];
    int used = 0;
    if (st || instr->op == HLO_PARAMETER || instr->op == HLO_TUPLE || instr->op == HLO_GET_TUPLE_ELEMENT) continue;
    if (instr->op == HLO_WHILE) {
      st = rt_while_new(b->program, instr->name, b->seqs[instr->called[1]->id], b->seqs[instr->called[0]->id],
                        (buf_slice){.alloc = -1}, TRIPS, &thunks[count++]);
      continue;
    }
    mix_thunk *t = WEFT_ARENA_NEW(rt_program_arena(b->program), mix_thunk);
    if (!t) {
      st = WEFT_ERR(RESOURCE_EXHAUSTED, "memory");
      continue;
    }
    for (int i = 0; i < instr->operand_count; i++)
      uses[used++] = (rt_use){buf_plan_slice(b->plan, instr->operands[i], 0), RT_READ};
    uses[used++] = (rt_use){buf_plan_slice(b->plan, instr, 0), RT_WRITE};
    *t = (mix_thunk){.operands = instr->operand_count, .id = instr->id};
    const rt_thunk_ops *start = b->soon ? &soon_ops : &start_ops;
    t->base = (rt_thunk){.ops = b->async && instr->id % 3 == 0 ? start : &mix_ops,
                         .name = instr->name,
                         .use_count = used,
                         .cost_ns = b->cost_ns};
    t->base.uses = weft_arena_memdup(rt_program_arena(b->program), uses, (size_t)used * sizeof *uses);
    if (!t->base.uses) st = WEFT_ERR(RESOURCE_EXHAUSTED, "memory");
    thunks[count++] = &t->base;
  }
  if (!st) st = rt_seq_new(b->program, comp->name, count, thunks, 0, NULL, &b->seqs[comp->id]);
  return st;
}

static weft_status *build_program(build *b, int threads)
{
  WEFT_TRY(rt_program_new(&b->program));
  HLO_FOREACH_COMPUTATION(comp, b->module) WEFT_TRY(lower(b, comp));
  WEFT_TRY(rt_program_order(b->program, b->plan, threads, false));
  return rt_program_finish(b->program, b->seqs[b->module->entry->id], b->plan);
}

/* The interpreter: values of one computation by instruction id and leaf, into `results`. */
static void interpret(const hlo_computation *comp, uint64_t (*params)[ELEMENTS], uint64_t (*results)[ELEMENTS])
{
  typedef uint64_t value[ELEMENTS];
  value **values = calloc((size_t)comp->module->next_id, sizeof(value *));

  HLO_FOREACH(instr, comp) {
    int leaves = hlo_shape_leaf_count(instr->shape);
    value *mine = values[instr->id] = calloc((size_t)leaves + 1, sizeof(value));
    if (instr->op == HLO_PARAMETER) {
      int first = 0;
      for (int p = 0; p < instr->u.parameter_number; p++) first += hlo_shape_leaf_count(comp->params[p]->shape);
      memcpy(mine, params + first, (size_t)leaves * sizeof(value));
    } else if (instr->op == HLO_TUPLE) {
      for (int i = 0; i < instr->operand_count; i++) memcpy(mine[i], values[instr->operands[i]->id][0], sizeof(value));
    } else if (instr->op == HLO_GET_TUPLE_ELEMENT) {
      memcpy(mine[0], values[instr->operands[0]->id][instr->u.tuple_index], sizeof(value));
    } else if (instr->op == HLO_WHILE) {
      memcpy(mine, values[instr->operands[0]->id], (size_t)leaves * sizeof(value));
      for (int t = 0; t < TRIPS; t++) {
        value next[8];
        interpret(instr->called[0], mine, next);
        memcpy(mine, next, (size_t)leaves * sizeof(value));
      }
    } else {
      const uint64_t *in[8];
      for (int i = 0; i < instr->operand_count; i++) in[i] = values[instr->operands[i]->id][0];
      mix_all(instr->id, instr->operand_count, in, mine[0]);
    }
  }
  memcpy(results, values[comp->root->id], (size_t)hlo_shape_leaf_count(comp->root->shape) * sizeof(value));
  HLO_FOREACH(instr, comp) free(values[instr->id]);
  free(values);
}

static uint64_t next_random(uint64_t *state)
{
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return *state >> 33;
}

/* `count` steps over the values there are; returns the last one. */
static hlo_instr *add_steps(hlo_computation *comp, hlo_instr **made, int have, int count, const hlo_shape *shape,
                            uint64_t *r)
{
  for (int i = 0; i < count; i++, have++) {
    hlo_instr *operands[3];
    int operand_count = 1 + (int)(next_random(r) % 3);
    for (int k = 0; k < operand_count; k++)
      operands[k] = made[have - 1 - (int)(next_random(r) % (uint64_t)WEFT_MIN(have, 12))];
    T_OK(hlo_add(comp, NULL, HLO_CONCATENATE, shape, operand_count, operands, NULL, &made[have]));
  }
  return made[have - 1];
}

/* An entry of random steps around a loop whose body is random too. */
static hlo_module *random_module(uint64_t seed)
{
  weft_arena scratch;
  bool changed;
  uint64_t r = seed;
  hlo_module *module;
  hlo_computation *body, *cond, *entry;
  hlo_instr *made[400], *p, *tuple, *loop;

  T_OK(hlo_module_new("random", &module));
  const hlo_shape *shape = hlo_shape_array(&module->arena, WEFT_U64, 1, &(int64_t){ELEMENTS});
  const hlo_shape *state = hlo_shape_tuple(&module->arena, 2, (const hlo_shape *const[]){shape, shape});
  T_OK(hlo_computation_new(module, "body", &body));
  T_OK(hlo_add_parameter(body, 0, state, "p", &p));
  T_OK(hlo_add_gte(body, NULL, p, 0, &made[0]));
  T_OK(hlo_add_gte(body, NULL, p, 1, &made[1]));
  hlo_instr *last = add_steps(body, made, 2, 1 + (int)(next_random(&r) % 30), shape, &r);
  T_OK(hlo_add_tuple(body, NULL, 2, (hlo_instr *[]){made[1], last}, &body->root));
  T_OK(hlo_computation_new(module, "cond", &cond)); /* not run: the loop's length is given */
  T_OK(hlo_add_parameter(cond, 0, state, "p", &p));
  T_OK(hlo_add_scalar(cond, NULL, WEFT_PRED, 0, &cond->root));
  T_OK(hlo_computation_new(module, "e", &entry));
  module->entry = entry;
  T_OK(hlo_add_parameter(entry, 0, shape, "a", &made[0]));
  T_OK(hlo_add_parameter(entry, 1, shape, "b", &made[1]));
  int before = 2 + (int)(next_random(&r) % 60), after = 1 + (int)(next_random(&r) % 60);
  hlo_instr *x = add_steps(entry, made, 2, before, shape, &r);
  T_OK(hlo_add_tuple(entry, NULL, 2, (hlo_instr *[]){made[(before + 2) / 2], x}, &tuple));
  T_OK(hlo_add(entry, NULL, HLO_WHILE, state, 1, &tuple, NULL, &loop));
  T_OK(hlo_set_called(loop, 2, (hlo_computation *[]){body, cond}));
  T_OK(hlo_add_gte(entry, NULL, loop, 0, &made[before + 2]));
  T_OK(hlo_add_gte(entry, NULL, loop, 1, &made[before + 3]));
  entry->root = add_steps(entry, made, before + 4, after, shape, &r);
  module->is_scheduled = true;
  weft_arena_init(&scratch); /* the pass by itself: the shapes of these concatenates do not add up */
  T_OK(pass_copy_insertion.run(module, &(pass_ctx){.scratch = &scratch}, &changed));
  weft_arena_fini(&scratch);
  return module;
}

typedef struct wait { weft_event *event; } wait;
static void run_done(void *arg, weft_status *st) { weft_event_set(((wait *)arg)->event, st); }

/* Runs with fresh memory; the result goes to `result`. */
static weft_status *run(build *b, rt_pool *pool, uint64_t (*params)[ELEMENTS], uint64_t *result)
{
  int allocs = buf_plan_alloc_count(b->plan);
  void **base = calloc((size_t)allocs, sizeof *base);
  rt_run_info info = {0};
  rt_frame *frame;
  wait w;
  weft_status *st, *ended;

  for (int a = 0; a < allocs; a++)
    base[a] = aligned_alloc(64, WEFT_ALIGN_UP((size_t)buf_plan_alloc(b->plan, a)->bytes + 64, 64));
  for (int p = 0; p < 2; p++) memcpy(base[buf_plan_param_alloc(b->plan, p)], params[p], sizeof params[p]);
  st = rt_frame_acquire(b->program, &frame);
  if (!st) {
    T_OK(weft_event_new(&w.event));
    rt_frame_bind(frame, base);
    if (rt_frame_run(frame, pool, &info, run_done, &w, &ended)) st = ended;
    else st = weft_event_await(w.event, weft_deadline_after_ms(30000));
    rt_frame_release(frame);
    memcpy(result, base[buf_plan_output_alloc(b->plan, 0)], ELEMENTS * sizeof *result);
    weft_event_release(w.event);
  }
  for (int a = 0; a < allocs; a++) free(base[a]);
  free(base);
  return st;
}

static void check_random(buf_order order, int threads, bool async, uint64_t seeds)
{
  rt_pool *pool;
  pthread_t thread;

  stop = false;
  if (async) T_OK(weft_thread_start(&thread, "finisher", finisher, NULL));
  T_OK(rt_pool_new(&(rt_pool_options){.threads = threads}, &pool));
  for (uint64_t seed = 1; seed <= seeds; seed++) {
    hlo_module *module = random_module(seed);
    build b = {.module = module, .cost_ns = 1e6, .async = async};
    uint64_t params[2][ELEMENTS], want[1][ELEMENTS], got[ELEMENTS];
    T_OK(buf_plan_new(module, &(buf_options){.order = order}, &b.plan));
    T_OK(build_program(&b, threads));
    for (int round = 0; round < 3; round++) {
      for (int e = 0; e < 2 * ELEMENTS; e++)
        params[e / ELEMENTS][e % ELEMENTS] = seed * 1000 + (uint64_t)(round * 100 + e);
      interpret(module->entry, params, want);
      T_OK(run(&b, pool, params, got));
      if (memcmp(want, got, sizeof got) != 0) fail_msg("seed %d round %d: wrong result", (int)seed, round);
    }
    rt_program_free(b.program);
    buf_plan_free(b.plan);
    hlo_module_free(module);
  }
  rt_pool_free(pool);
  if (async) {
    weft_mutex_lock(&queue_mu);
    stop = true;
    weft_mutex_unlock(&queue_mu);
    pthread_join(thread, NULL);
  }
}

TEST(graphs_and_loops_give_the_interpreters_result)
{
  for (buf_order order = BUF_TOPOLOGICAL; order <= BUF_SEQUENTIAL; order++) check_random(order, 4, false, 25);
}
TEST(one_thread_gives_the_interpreters_result) { check_random(BUF_TOPOLOGICAL, 1, false, 10); }
TEST(thunks_that_end_elsewhere_give_the_interpreters_result)
{
  for (buf_order order = BUF_TOPOLOGICAL; order <= BUF_SEQUENTIAL; order++) check_random(order, 4, true, 25);
  check_random(BUF_TOPOLOGICAL, 1, true, 10);
}

/* Small steps run in order, unless one of them takes its time elsewhere; a call that mostly ends at once does not. */
TEST(small_steps_run_as_a_graph_only_beside_work_elsewhere)
{
  hlo_module *module = random_module(3);

  for (int kind = 0; kind < 3; kind++) {
    build b = {.module = module, .cost_ns = 100, .async = kind > 0, .soon = kind == 2};
    T_OK(buf_plan_new(module, &(buf_options){0}, &b.plan));
    T_OK(build_program(&b, 4));
    T_EQ_INT(rt_seq_runs_in_order(b.seqs[module->entry->id]), kind != 1);
    rt_program_free(b.program);
    buf_plan_free(b.plan);
  }
  hlo_module_free(module);
}

TEST(an_error_ends_the_run_and_names_the_thunk)
{
  rt_pool *pool;
  hlo_module *module = random_module(5);
  build b = {.module = module, .cost_ns = 1e6};
  uint64_t params[2][ELEMENTS] = {{0}}, got[ELEMENTS];

  T_OK(rt_pool_new(&(rt_pool_options){.threads = 4}, &pool));
  T_OK(buf_plan_new(module, &(buf_options){0}, &b.plan));
  T_OK(build_program(&b, 4));
  fail_at = WEFT_ERR(DATA_LOSS, "bits fell out");
  failing_id = module->entry->root->id;
  weft_status *st = run(&b, pool, params, got);
  T_TRUE(weft_status_code(st) == WEFT_DATA_LOSS);
  T_TRUE(strstr(weft_status_text(st, false), module->entry->root->name) != NULL);
  weft_status_free(st);
  weft_status_free(fail_at);
  fail_at = NULL;
  T_OK(run(&b, pool, params, got)); /* the frame is good again */
  rt_program_free(b.program);
  buf_plan_free(b.plan);
  hlo_module_free(module);
  rt_pool_free(pool);
}

TEST(every_allocation_may_fail)
{
  rt_pool *pool;
  hlo_module *module = random_module(7);
  uint64_t params[2][ELEMENTS] = {{1}, {2}}, want[1][ELEMENTS], got[ELEMENTS];
  int n = 0;

  T_OK(rt_pool_new(&(rt_pool_options){.threads = 2}, &pool));
  interpret(module->entry, params, want);
  for (bool failed = true; failed; n++) {
    build b = {.module = module, .cost_ns = 1e6};
    alloc_fail_at(n);
    weft_status *st = buf_plan_new(module, &(buf_options){0}, &b.plan);
    if (!st) st = build_program(&b, 2);
    if (!st) {
      rt_frame *frame;
      st = rt_frame_acquire(b.program, &frame);
      if (!st) rt_frame_release(frame);
    }
    failed = alloc_stop();
    if (failed) T_CODE(st, WEFT_RESOURCE_EXHAUSTED);
    else T_OK(st);
    if (!failed) {
      T_OK(run(&b, pool, params, got));
      T_TRUE(memcmp(want, got, sizeof got) == 0);
    }
    rt_program_free(b.program);
    buf_plan_free(b.plan);
  }
  T_TRUE(n > 10);
  hlo_module_free(module);
  rt_pool_free(pool);
}

static atomic_llong sum;
static void add_index(void *ctx, int64_t i)
{
  atomic_fetch_add(&sum, i);
  if (ctx && i % 100 == 0) rt_parallel_for(ctx, 3, add_index, NULL);
}
TEST(loops_run_each_index_once_also_nested)
{
  rt_pool *pool;
  T_OK(rt_pool_new(&(rt_pool_options){.threads = 4}, &pool));
  for (int round = 0; round < 200; round++) {
    atomic_store(&sum, 0);
    rt_parallel_for(pool, 1000, add_index, pool);
    T_EQ_INT(atomic_load(&sum), 999 * 500 + 10 * 3);
  }
  rt_pool_free(pool);
}

TEST_MAIN(UNIT(graphs_and_loops_give_the_interpreters_result), UNIT(one_thread_gives_the_interpreters_result),
          UNIT(thunks_that_end_elsewhere_give_the_interpreters_result), UNIT(small_steps_run_as_a_graph_only_beside_work_elsewhere), UNIT(an_error_ends_the_run_and_names_the_thunk), UNIT(every_allocation_may_fail),
          UNIT(loops_run_each_index_once_also_nested))
