/* gpu/thunks.c -- thunks that queue kernels, copies and ids on the compute stream. */
#include <config.h>

#include <string.h>

#include "gpu/makers.h"

static weft_stream *compute_stream(const rt_ctx *ctx)
{
  return weft_device_stream(ctx->info->device, WEFT_STREAM_COMPUTE);
}

/* Where the calling thread queues steps instead of the compute stream; NULL: on the compute stream. */
static _Thread_local wcu_stream recorder;

void gpu_record_on(wcu_stream stream) { recorder = stream; }
bool gpu_is_recording(void) { return recorder != NULL; }

weft_status *gpu_begin_work(const rt_ctx *ctx, wcu_stream *out_stream)
{
  *out_stream = recorder ? recorder : gpu_stream_handle(compute_stream(ctx));
  return gpu_enter(gpu_of(ctx->info->device));
}

weft_status *gpu_begin_step(const rt_thunk *thunk, const rt_ctx *ctx, wcu_stream *out_stream)
{
  WEFT_TRY(gpu_begin_work(ctx, out_stream));
  if (!recorder) gpu_stream_step(compute_stream(ctx), ctx->info->device_ordinal, thunk->ops->kind, thunk->name);
  return NULL;
}

weft_status *gpu_end_work(const rt_ctx *ctx, weft_status *st)
{
  if (!recorder) gpu_stream_step_end(compute_stream(ctx));
  gpu_leave();
  if (recorder) return st;
  gpu_stream_used(compute_stream(ctx));
  return st;
}

/* ---- kernels --------------------------------------------------------------------------------------------------- */

typedef struct kernel_thunk {
  rt_thunk base;
  const gpu_kernel *kernel;
} kernel_thunk;

/* The parameters of a kernel are the pointers to its arguments, one after another as in the run's array `args`, and
 * then the numbers of the launch. */
static weft_status *launch_one(const gpu_kernel *kernel, int ordinal, int index, void *const *args, wcu_stream stream)
{
  enum { END, BUFFER_POINTER, BUFFER_SIZE }; /* CU_LAUNCH_PARAM_* */
  const gen_launch *launch = &kernel->artefact.launches[index];
  size_t pointers = (size_t)kernel->artefact.arg_count * sizeof(void *);
  size_t bytes = pointers + (size_t)launch->number_count * sizeof launch->numbers[0];
  void *own[GPU_MOST_PARAMETERS];
  const void *parameters = args;

  if (launch->number_count > 0) {
    memcpy(own, args, pointers);
    memcpy((char *)own + pointers, launch->numbers, bytes - pointers);
    parameters = own;
  }
  void *extra[] = {(void *)BUFFER_POINTER, (void *)parameters, (void *)BUFFER_SIZE, &bytes, (void *)END};
  return GPU_CALL(cuLaunchKernel, kernel->functions[ordinal * kernel->artefact.launch_count + index],
                  (unsigned)launch->blocks, 1, 1, (unsigned)launch->threads, 1, 1, (unsigned)launch->shared_bytes,
                  stream, NULL, extra);
}

static bool does_nothing(const gen_launch *launch, void *const *args)
{
  return launch->blocks == 0 || (launch->copy_from >= 0 && args[launch->copy_from] == args[launch->copy_to]);
}

static weft_status *kernel_enqueue(const rt_thunk *thunk, rt_ctx *ctx)
{
  const gpu_kernel *kernel = ((const kernel_thunk *)thunk)->kernel;
  void *const *args = rt_args(thunk, ctx);
  wcu_stream stream;
  weft_status *st = NULL;

  WEFT_TRY(gpu_begin_step(thunk, ctx, &stream));
  for (int i = 0; i < kernel->artefact.launch_count && !st; i++)
    if (!does_nothing(&kernel->artefact.launches[i], args))
      st = launch_one(kernel, ctx->info->device_ordinal, i, args, stream);
  return gpu_end_work(ctx, st);
}
static const rt_thunk_ops kernel_ops = {
  .size = sizeof(rt_thunk_ops), .kind = "kernel", .enqueue = kernel_enqueue, .stretch = 1u << WEFT_GRAPH_FUSION};

weft_status *gpu_plan_kernel(const gpu_target *target, weft_arena *arena, const hlo_instr *instr, low_plan *plan)
{
  const gpu_kernel *kernel = gpu_code_kernel(target->code, instr);

  (void)arena;
  if (!kernel) return WEFT_ERR(INTERNAL, "\"%s\" was not compiled", instr->name);
  if (kernel->refused) return weft_status_dup(kernel->refused);
  plan->data = (void *)kernel;
  plan->scratch_bytes = kernel->artefact.scratch_bytes;
  return NULL;
}

weft_status *gpu_kernel_make(low_step *step, rt_thunk **out_thunk)
{
  const gpu_kernel *kernel = step->plan->data;

  WEFT_TRY(low_thunk_new(step, &kernel_ops, sizeof(kernel_thunk), out_thunk));
  ((kernel_thunk *)*out_thunk)->kernel = kernel;
  if (step->instr->op == HLO_FUSION) (*out_thunk)->detail = gen_strategy_name(kernel->artefact.strategy);
  return NULL;
}

/* ---- copies and ids -------------------------------------------------------------------------------------------- */

static wcu_ptr at(const void *p) { return (wcu_ptr)(uintptr_t)p; }

static weft_status *copy_enqueue(const rt_thunk *thunk, rt_ctx *ctx)
{
  void *const *args = rt_args(thunk, ctx);
  int64_t bytes = thunk->uses[1].slice.bytes;
  wcu_stream stream;

  if (bytes <= 0 || args[0] == args[1]) return NULL;
  WEFT_TRY(gpu_begin_step(thunk, ctx, &stream));
  return gpu_end_work(ctx, GPU_CALL(cuMemcpyAsync, at(args[1]), at(args[0]), (size_t)bytes, stream));
}
static const rt_thunk_ops copy_ops = {
  .size = sizeof(rt_thunk_ops), .kind = "copy", .enqueue = copy_enqueue, .stretch = 1u << WEFT_GRAPH_FUSION};

weft_status *gpu_copy_make(low_step *step, rt_thunk **out_thunk)
{
  return low_thunk_new(step, &copy_ops, sizeof(rt_thunk), out_thunk);
}

typedef struct id_thunk {
  rt_thunk base;
  bool of_partition;
} id_thunk;

static weft_status *id_enqueue(const rt_thunk *thunk, rt_ctx *ctx)
{
  int64_t id = ((const id_thunk *)thunk)->of_partition ? ctx->info->partition_id : ctx->info->replica_id;
  wcu_stream stream;

  WEFT_TRY(gpu_begin_step(thunk, ctx, &stream));
  return gpu_end_work(ctx, GPU_CALL(cuMemsetD32Async, at(rt_args(thunk, ctx)[0]), (unsigned)id, 1, stream));
}
static const rt_thunk_ops id_ops = {
  .size = sizeof(rt_thunk_ops), .kind = "id", .enqueue = id_enqueue, .stretch = 1u << WEFT_GRAPH_FUSION};

weft_status *gpu_id_make(low_step *step, rt_thunk **out_thunk)
{
  WEFT_TRY(low_thunk_new(step, &id_ops, sizeof(id_thunk), out_thunk));
  ((id_thunk *)*out_thunk)->of_partition = step->instr->op == HLO_PARTITION_ID;
  return NULL;
}
