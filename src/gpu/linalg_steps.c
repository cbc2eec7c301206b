/* gpu/linalg_steps.c -- thunks of linear algebra: triangular-solve, and the custom calls that JAX makes on NVIDIA's
 * GPUs (cusolver_*_ffi, cu_lu_pivots_to_permutation). */
#include <config.h>

#include <stdlib.h>
#include <string.h>

#include "gpu/steps.h"
#include "lower/host_steps.h"
#include "runtime/ffi.h"

/* Queues writing the addresses of `count` matrices, which fill `bytes` from `first` on, to the device at `to`. */
static weft_status *write_addresses(const rt_ctx *ctx, int64_t count, wcu_ptr first, int64_t bytes, wcu_ptr to)
{
  weft_device *device = ctx->info->device;

  if (count == 0) return NULL;
  wcu_ptr *addresses = malloc((size_t)count * sizeof *addresses);
  WEFT_TRY_ALLOC(addresses);
  for (int64_t i = 0; i < count; i++) addresses[i] = first + (wcu_ptr)(i * (bytes / count));
  weft_status *st = gpu_write(device, weft_device_stream(device, WEFT_STREAM_COMPUTE), (void *)(uintptr_t)to, addresses,
                              count * (int64_t)sizeof *addresses);
  free(addresses);
  return st;
}

/* ---- triangular-solve ---- */

typedef struct triangular_thunk {
  rt_thunk base;
  gpu_triangular triangular;
} triangular_thunk;

static weft_status *triangular_work(const triangular_thunk *t, const rt_ctx *ctx, wcu_stream stream)
{
  void *const *args = rt_args(&t->base, ctx);
  int64_t batch = gpu_triangular_batch(&t->triangular);
  wcu_ptr a = gpu_address(args[0]), x = gpu_address(args[2]), addresses = batch ? gpu_address(args[3]) : 0;
  gpu_cublas *cublas;

  WEFT_TRY(gpu_copy_operand(&t->base, ctx, 1, 2, stream));
  WEFT_TRY(write_addresses(ctx, batch, a, batch * gpu_triangular_a_bytes(&t->triangular), addresses));
  WEFT_TRY(write_addresses(ctx, batch, x, batch * gpu_triangular_x_bytes(&t->triangular),
                           addresses + (wcu_ptr)batch * sizeof(wcu_ptr)));
  WEFT_TRY(gpu_cublas_of(gpu_of(ctx->info->device), &cublas));
  return gpu_triangular_enqueue(&t->triangular, cublas, stream, a, x, addresses);
}

static weft_status *triangular_enqueue(const rt_thunk *thunk, rt_ctx *ctx)
{
  wcu_stream stream;

  WEFT_TRY(gpu_begin_step(thunk, ctx, &stream));
  return gpu_end_work(ctx, triangular_work((const triangular_thunk *)thunk, ctx, stream));
}
static const rt_thunk_ops triangular_ops = {
  .size = sizeof(rt_thunk_ops), .kind = "triangular-solve", .enqueue = triangular_enqueue, .stretch = 1u << WEFT_GRAPH_CUBLASLT};
/* Of a batch: the host writes the addresses of its matrices, so it cannot be part of a graph. */
static const rt_thunk_ops batched_ops = {
  .size = sizeof(rt_thunk_ops), .kind = "triangular-solve", .enqueue = triangular_enqueue};

/* The scratch has the addresses of the matrices of a batch. */
weft_status *gpu_plan_triangular(const gpu_target *target, weft_arena *arena, const hlo_instr *instr, low_plan *plan)
{
  gpu_triangular *triangular = WEFT_ARENA_NEW(arena, gpu_triangular);
  gpu_cublas *cublas;

  WEFT_TRY_ALLOC(triangular);
  WEFT_TRY(gpu_triangular_init(triangular, instr));
  WEFT_TRY(gpu_enter(gpu_planner(target)));
  weft_status *st = gpu_cublas_of(gpu_planner(target), &cublas);
  gpu_leave();
  WEFT_TRY(gpu_or_on_host(st));
  plan->data = triangular;
  plan->scratch_bytes = 2 * gpu_triangular_batch(triangular) * (int64_t)sizeof(wcu_ptr);
  return NULL;
}

weft_status *gpu_triangular_make(low_step *step, rt_thunk **out_thunk)
{
  bool is_batched = gpu_triangular_batch(step->plan->data) > 0;

  WEFT_TRY(low_thunk_new(step, is_batched ? &batched_ops : &triangular_ops, sizeof(triangular_thunk), out_thunk));
  ((triangular_thunk *)*out_thunk)->triangular = *(const gpu_triangular *)step->plan->data;
  return NULL;
}

/* ---- cuSOLVER's routines ---- */

typedef struct solve_thunk {
  rt_thunk base;
  const gpu_solve *solve;
} solve_thunk;

static gpu_make_fn solve_make;

/* Is cuBLAS installed? */
static weft_status *find_cublas(const gpu_target *target, bool *out_is_there)
{
  gpu_cublas *cublas;
  weft_status *st = gpu_cublas_of(gpu_planner(target), &cublas);

  *out_is_there = !st;
  if (weft_status_code(st) != WEFT_UNAVAILABLE) return st;
  weft_status_free(st);
  return NULL;
}

static weft_status *plan_solve(const gpu_target *target, weft_arena *arena, const hlo_instr *instr, gpu_routine routine,
                               low_plan *plan)
{
  gpu_solve *solve = WEFT_ARENA_NEW(arena, gpu_solve);
  gpu_solver *solver;

  WEFT_TRY_ALLOC(solve);
  WEFT_TRY(gpu_solve_init(solve, routine, instr));
  WEFT_TRY(gpu_enter(gpu_planner(target)));
  weft_status *st = gpu_solver_of(gpu_planner(target), &solver);
  if (!st && gpu_solve_wants_cublas(solve)) st = find_cublas(target, &solve->batched);
  if (!st) st = gpu_solve_measure(solve, solver);
  gpu_leave();
  if (st) return st;
  plan->data = solve;
  plan->make = solve_make;
  plan->scratch_bytes = (int64_t)solve->workspace_bytes;
  return NULL;
}

/* Results that no routine writes, because the matrices are empty, become 0; `info` for example. */
static weft_status *clear_results(const rt_thunk *thunk, const rt_ctx *ctx, int first, int end, wcu_stream stream)
{
  void *const *args = rt_args(thunk, ctx);

  for (int i = first; i < end; i++)
    if (thunk->uses[i].slice.bytes > 0)
      WEFT_TRY(GPU_CALL(cuMemsetD8Async, gpu_address(args[i]), 0, (size_t)thunk->uses[i].slice.bytes, stream));
  return NULL;
}

static weft_status *solve_work(const solve_thunk *t, const rt_ctx *ctx, wcu_stream stream)
{
  void *const *args = rt_args(&t->base, ctx);
  int operands = gpu_solve_operands(t->solve), leaves = operands + gpu_solve_results(t->solve);
  int64_t matrices = t->solve->matrices;
  wcu_ptr arrays[GPU_SOLVE_ARRAYS];
  gpu_cublas *cublas = NULL;
  gpu_solver *solver;

  if (gpu_solve_is_empty(t->solve)) return clear_results(&t->base, ctx, operands, leaves, stream);
  WEFT_TRY(gpu_copy_operand(&t->base, ctx, gpu_solve_overwritten(t->solve), operands, stream));
  for (int i = 0; i < leaves; i++) arrays[i] = gpu_address(args[i]);
  for (int k = 0; k < gpu_solve_lists(t->solve); k++)
    WEFT_TRY(write_addresses(ctx, matrices, arrays[operands + k], t->base.uses[operands + k].slice.bytes,
                             gpu_address(args[leaves]) + (wcu_ptr)(k * matrices) * sizeof(wcu_ptr)));
  WEFT_TRY(gpu_solver_of(gpu_of(ctx->info->device), &solver));
  if (gpu_solve_wants_cublas(t->solve)) WEFT_TRY(gpu_cublas_of(gpu_of(ctx->info->device), &cublas));
  return gpu_solve_enqueue(t->solve, solver, cublas, stream, arrays, gpu_address(args[leaves]));
}

static weft_status *solve_enqueue(const rt_thunk *thunk, rt_ctx *ctx)
{
  wcu_stream stream;

  WEFT_TRY(gpu_begin_step(thunk, ctx, &stream));
  return gpu_end_work(ctx, solve_work((const solve_thunk *)thunk, ctx, stream));
}
static const rt_thunk_ops solve_ops = {.size = sizeof(rt_thunk_ops), .kind = "cusolver", .enqueue = solve_enqueue};

static weft_status *solve_make(low_step *step, rt_thunk **out_thunk)
{
  WEFT_TRY(low_thunk_new(step, &solve_ops, sizeof(solve_thunk), out_thunk));
  ((solve_thunk *)*out_thunk)->solve = step->plan->data;
  (*out_thunk)->detail = step->instr->u.custom->target;
  return NULL;
}

/* ---- handlers of custom calls for devices ---- */

enum { API_TYPED_FFI = 4 };

typedef struct handler_thunk {
  rt_thunk base;
  rt_ffi_call *call;
} handler_thunk;

/* What is planned for a call: does its handler say that it may be part of a graph? */
typedef struct handler_plan {
  rt_ffi_call *call;
  bool may_be_recorded;
} handler_plan;

/* A graph uses its memory in every launch, and a block that the handler gives back has other users by then. */
static weft_status *take_memory(void *ctx, size_t bytes, void **out_data)
{
  if (gpu_is_recording()) return WEFT_ERR(FAILED_PRECONDITION, "a handler takes memory while a graph is recorded");
  return rt_device_take(ctx, 0, (int64_t)bytes, RT_COMPUTE, out_data);
}

/* Records a point behind the work that the handler has queued so far: it orders the next use of the block. */
static void give_memory(void *ctx, size_t bytes, void *data)
{
  weft_stream *stream = weft_device_stream(ctx, WEFT_STREAM_COMPUTE);

  gpu_stream_used(stream);
  rt_device_record(ctx, stream);
  rt_device_give(ctx, 0, data, (int64_t)bytes);
}

static weft_status *handler_enqueue(const rt_thunk *thunk, rt_ctx *ctx)
{
  rt_ffi_queue queue = {.take = take_memory, .give = give_memory, .ctx = ctx->info->device};
  int64_t timeout_ns = gpu_of(ctx->info->device)->timeout_ns;
  wcu_stream stream;

  WEFT_TRY(gpu_begin_step(thunk, ctx, &stream));
  queue.stream = stream;
  queue.deadline = timeout_ns > 0 ? weft_deadline_after_ns(timeout_ns) : WEFT_NO_DEADLINE;
  weft_status *st =
    rt_ffi_call_enqueue(((const handler_thunk *)thunk)->call, rt_args(thunk, ctx), ctx->pool, ctx->info, &queue);
  if (st) st = weft_status_note(st, __FILE__, __LINE__, "custom-call %s", thunk->name);
  return gpu_end_work(ctx, st);
}

static const rt_thunk_ops handler_ops = {
  .size = sizeof(rt_thunk_ops), .kind = "custom-call", .enqueue = handler_enqueue};
static const rt_thunk_ops recorded_handler_ops = {
  .size = sizeof(rt_thunk_ops), .kind = "custom-call", .enqueue = handler_enqueue, .stretch = 1u << WEFT_GRAPH_CUSTOM_CALL};

static weft_status *handler_make(low_step *step, rt_thunk **out_thunk)
{
  const handler_plan *planned = step->plan->data;

  WEFT_TRY(low_thunk_new(step, planned->may_be_recorded ? &recorded_handler_ops : &handler_ops, sizeof(handler_thunk),
                         out_thunk));
  ((handler_thunk *)*out_thunk)->call = planned->call;
  (*out_thunk)->detail = step->instr->u.custom->target;
  return NULL;
}

static void free_planned(void *planned) { rt_ffi_call_free(((handler_plan *)planned)->call); }

static weft_status *plan_handler(weft_arena *arena, const hlo_instr *instr, const rt_ffi_device_handler *handler,
                                 low_plan *plan)
{
  handler_plan *planned = WEFT_ARENA_NEW(arena, handler_plan);

  WEFT_TRY_ALLOC(planned);
  planned->may_be_recorded = handler->traits & XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE;
  WEFT_TRY(rt_ffi_call_new(arena, instr, &handler->bundle, &planned->call));
  plan->data = planned;
  plan->destroy = free_planned;
  plan->make = handler_make;
  if (!rt_ffi_call_packs(planned->call)) return NULL;
  return WEFT_ERR(UNIMPLEMENTED, "a handler for devices with arrays of elements below a byte");
}

/* ---- custom calls ---- */

weft_status *gpu_plan_custom_call(const gpu_target *target, weft_arena *arena, const hlo_instr *instr, low_plan *plan)
{
  const char *name = instr->u.custom->target;
  rt_ffi_device_handler handler;
  XLA_FFI_Handler_Bundle bundle;
  gpu_routine routine;

  if (instr->u.custom->api_version == API_TYPED_FFI && rt_ffi_find_on_device(name, &handler))
    return plan_handler(arena, instr, &handler, plan);
  /* a handler that the user registered comes before Weft's own of the same name */
  if (!rt_ffi_find(name, &bundle)) {
    if (gpu_solve_find(name, &routine)) return plan_solve(target, arena, instr, routine, plan);
    if (gen_nvptx_takes(instr)) {
      plan->make = gpu_kernel_make;
      return gpu_plan_kernel(target, arena, instr, plan);
    }
    plan->make = gpu_find_host_routine(name);
    if (plan->make) return NULL;
  }
  plan->make = low_custom_call_make;
  return low_custom_call_plan(arena, instr, NULL, plan);
}

weft_status *gpu_custom_call_make(low_step *step, rt_thunk **out_thunk) { return step->plan->make(step, out_thunk); }
