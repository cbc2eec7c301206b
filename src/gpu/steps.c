/* gpu/steps.c -- thunks of library calls: dot, convolution and fft.
 *
 * If a library cannot do a step, or is not installed, the planner returns UNIMPLEMENTED, and the step runs on the
 * host. */
#include <config.h>

#include "gpu/steps.h"

#include <string.h>

#include "base/log.h"
#include "gpu/fft.h"

/* Workspace that a library may use: NVIDIA advises 32 MiB from compute capability 9.0 on, 4 MiB for older devices. */
static size_t most_workspace(const gpu_target *target)
{
  return (size_t)(gpu_planner(target)->capability >= 90 ? 32 : 4) << 20;
}

weft_status *gpu_or_on_host(weft_status *st)
{
  if (weft_status_code(st) != WEFT_UNAVAILABLE) return st;
  weft_status *lacking = weft_status_new(WEFT_UNIMPLEMENTED, __FILE__, __LINE__, "%s", weft_status_message(st));
  weft_status_free(st);
  return lacking;
}

weft_status *gpu_copy_operand(const rt_thunk *thunk, const rt_ctx *ctx, int from, int to, wcu_stream stream)
{
  void *const *args = rt_args(thunk, ctx);
  int64_t bytes = thunk->uses[to].slice.bytes;

  if (args[from] == args[to] || bytes <= 0) return NULL;
  return GPU_CALL(cuMemcpyAsync, gpu_address(args[to]), gpu_address(args[from]), (size_t)bytes, stream);
}

/* ---- dot ---- */

/* A dot, alone or in a fusion with what is added and its activation (passes/library_epilogues.c). The arrays are
 * numbers of operands. */
typedef struct product {
  const hlo_instr *dot;
  int lhs, rhs, bias, addend; /* bias, addend: -1: there is none */
  gpu_activation activation;
} product;

static product product_of(const hlo_instr *instr)
{
  product p = {.dot = instr, .lhs = 0, .rhs = 1, .bias = -1, .addend = -1};

  if (instr->op == HLO_DOT) return p;
  HLO_FOREACH(x, instr->called[0]) {
    if (x->op == HLO_DOT) p.dot = x;
    if (x->op == HLO_BROADCAST && x->operands[0]->op == HLO_PARAMETER) p.bias = (int)x->operands[0]->u.parameter_number;
    for (int i = 0; i < 2 && x->op == HLO_ADD; i++)
      if (x->operands[i]->op == HLO_PARAMETER) p.addend = (int)x->operands[i]->u.parameter_number;
    if (x->op == HLO_MAXIMUM) p.activation = GPU_RELU;
    if (x->op == HLO_TANH) p.activation = GPU_GELU;
  }
  p.lhs = (int)p.dot->operands[0]->u.parameter_number;
  p.rhs = (int)p.dot->operands[1]->u.parameter_number;
  return p;
}

typedef struct dot_thunk {
  rt_thunk base;
  product product;
  const gpu_dot *dot;
} dot_thunk;

/* Uses the algorithm that was kept for this product, or lets the library choose one and keeps it. */
static weft_status *choose(const gpu_target *target, gpu_dot *dot, const gpu_blas *blas)
{
  const gpu_device *gpu = gpu_planner(target);
  gpu_kept *kept = target->code->kept;
  char name[GEN_CACHE_NAME_BYTES], about[1024];
  const void *choice;
  size_t size;

  gpu_dot_describe(dot, blas, about, sizeof about);
  const int numbers[] = {gpu_cu.version, gpu->capability, gpu->processors, (int)(most_workspace(target) >> 20)};
  const gen_cache_part parts[] = {{gpu->kind, strlen(gpu->kind)}, {numbers, sizeof numbers}, {about, strlen(about)}};
  if (!gen_cache_name(parts, (int)WEFT_COUNT(parts), name)) return WEFT_ERR(INTERNAL, "no SHA-256 for an algorithm");
  if ((choice = gpu_kept_find(kept, name, &size))) {
    weft_status *st = gpu_dot_resume(dot, blas, most_workspace(target), choice, size);
    if (!st) return NULL;
    WEFT_LOG("gpu", INFO, "cuBLASLt chooses anew: %s", weft_status_message(st));
    weft_status_free(st);
    gpu_kept_drop(kept, name);
  }
  WEFT_TRY(gpu_dot_choose(dot, blas, most_workspace(target)));
  gpu_kept_add(kept, name, &dot->choice, sizeof dot->choice);
  return NULL;
}

/* Does the user let f32 operands be rounded to tf32 (WEFT_CUDA_TF32), as XLA does unless their precision is the
 * highest? */
static bool may_round(const gpu_target *target, weft_dtype type, int count, const hlo_precision *precision)
{
  for (int i = 0; i < count; i++)
    if (precision[i] == HLO_PRECISION_HIGHEST) return false;
  return target->platform->settings.tf32 && type == WEFT_F32;
}

weft_status *gpu_plan_dot(const gpu_target *target, weft_arena *arena, const hlo_instr *instr, low_plan *plan)
{
  gpu_dot *dot = WEFT_ARENA_NEW(arena, gpu_dot);
  product p = product_of(instr);
  hlo_dot_attrs attrs = *p.dot->u.dot;
  gpu_blas *blas;
  weft_status *st;

  WEFT_TRY_ALLOC(dot);
  if (attrs.algorithm == HLO_ALG_UNSET &&
      may_round(target, p.dot->operands[0]->shape->type, attrs.precision_count, attrs.precision))
    attrs.algorithm = HLO_ALG_TF32_TF32_F32;
  WEFT_TRY(gpu_dot_init(dot, &attrs, p.dot->operands[0]->shape, p.dot->operands[1]->shape, p.dot->shape, p.bias >= 0,
                        p.activation));
  WEFT_TRY(gpu_enter(gpu_planner(target)));
  st = gpu_blas_of(gpu_planner(target), &blas);
  if (!st) st = choose(target, dot, blas);
  gpu_leave();
  WEFT_TRY(gpu_or_on_host(st));
  plan->data = dot;
  plan->scratch_bytes = (int64_t)gpu_dot_workspace(dot);
  return NULL;
}

static weft_status *dot_enqueue(const rt_thunk *thunk, rt_ctx *ctx)
{
  const dot_thunk *t = (const dot_thunk *)thunk;
  const product *p = &t->product;
  int result = WEFT_MAX(WEFT_MAX(p->lhs, p->rhs), WEFT_MAX(p->bias, p->addend)) + 1;
  void *const *args = rt_args(thunk, ctx);
  wcu_stream stream;
  gpu_blas *blas;

  WEFT_TRY(gpu_begin_step(thunk, ctx, &stream));
  weft_status *st = gpu_blas_of(gpu_of(ctx->info->device), &blas);
  const gpu_dot_arrays arrays = {.lhs = gpu_address(args[p->lhs]), .rhs = gpu_address(args[p->rhs]),
                                 .bias = p->bias >= 0 ? gpu_address(args[p->bias]) : 0,
                                 .addend = p->addend >= 0 ? gpu_address(args[p->addend]) : 0,
                                 .out = gpu_address(args[result]),
                                 .workspace = gpu_dot_workspace(t->dot) ? gpu_address(args[result + 1]) : 0};
  if (!st) st = gpu_dot_enqueue(t->dot, blas, stream, &arrays);
  return gpu_end_work(ctx, st);
}
static const rt_thunk_ops dot_ops = {.size = sizeof(rt_thunk_ops), .kind = "dot", .enqueue = dot_enqueue, .stretch = 1u << WEFT_GRAPH_CUBLASLT};

weft_status *gpu_dot_make(low_step *step, rt_thunk **out_thunk)
{
  static const char *const done_too[][2][2] = {
    {{NULL, "with bias"}, {"with matrix", "with matrix and bias"}},
    {{"with relu", "with bias and relu"}, {"with matrix and relu", "with matrix, bias and relu"}},
    {{"with gelu", "with bias and gelu"}, {"with matrix and gelu", "with matrix, bias and gelu"}}};
  WEFT_TRY(low_thunk_new(step, &dot_ops, sizeof(dot_thunk), out_thunk));
  dot_thunk *t = (dot_thunk *)*out_thunk;
  t->product = product_of(step->instr);
  t->dot = step->plan->data;
  t->base.detail = done_too[t->product.activation][t->product.addend >= 0][t->product.bias >= 0];
  return NULL;
}

/* ---- convolution ---- */

typedef struct conv_thunk {
  rt_thunk base;
  const gpu_conv *conv;
} conv_thunk;

static void free_conv(void *conv) { gpu_conv_free(conv); }

weft_status *gpu_plan_conv(const gpu_target *target, weft_arena *arena, const hlo_instr *instr, low_plan *plan)
{
  bool tf32 = may_round(target, instr->shape->type, instr->u.conv->precision_count, instr->u.conv->precision);
  gpu_conv *conv = NULL;
  gpu_dnn *dnn;
  weft_status *st;

  (void)arena;
  WEFT_TRY(gpu_enter(gpu_planner(target)));
  st = gpu_dnn_of(gpu_planner(target), &dnn);
  if (!st) st = gpu_conv_new(instr, dnn, tf32, most_workspace(target), &conv);
  gpu_leave();
  WEFT_TRY(gpu_or_on_host(st));
  plan->data = conv;
  plan->destroy = free_conv;
  plan->scratch_bytes = (int64_t)gpu_conv_workspace(conv);
  return NULL;
}

static weft_status *conv_enqueue(const rt_thunk *thunk, rt_ctx *ctx)
{
  const gpu_conv *conv = ((const conv_thunk *)thunk)->conv;
  void *const *args = rt_args(thunk, ctx);
  wcu_stream stream;
  gpu_dnn *dnn;

  WEFT_TRY(gpu_begin_step(thunk, ctx, &stream));
  weft_status *st = gpu_dnn_of(gpu_of(ctx->info->device), &dnn);
  if (!st)
    st = gpu_conv_enqueue(conv, dnn, stream, gpu_address(args[0]), gpu_address(args[1]), gpu_address(args[2]),
                          gpu_conv_workspace(conv) ? gpu_address(args[3]) : 0);
  return gpu_end_work(ctx, st);
}

static const rt_thunk_ops conv_ops = {.size = sizeof(rt_thunk_ops), .kind = "convolution", .enqueue = conv_enqueue, .stretch = 1u << WEFT_GRAPH_CUDNN};

weft_status *gpu_conv_make(low_step *step, rt_thunk **out_thunk)
{
  WEFT_TRY(low_thunk_new(step, &conv_ops, sizeof(conv_thunk), out_thunk));
  ((conv_thunk *)*out_thunk)->conv = step->plan->data;
  return NULL;
}

/* ---- fft ---- */

/* A transform, and the library's plans for it, one for each device on which the step has run. */
typedef struct fft_plans {
  gpu_platform *platform; /* borrowed: the executable holds it */
  gpu_fft fft;
  size_t workspace_bytes;
  weft_mutex mu;
  gpu_fft_plan *of_device[] WEFT_GUARDED_BY(mu); /* by ordinal; NULL: the step has not run there */
} fft_plans;

typedef struct fft_thunk {
  rt_thunk base;
  fft_plans *plans;
} fft_thunk;

/* Frees a plan of the device, whose context it needs. */
static void free_plan(const gpu_device *gpu, gpu_fft_plan *plan)
{
  if (!plan) return;
  weft_status *st = gpu_enter(gpu);
  gpu_fft_plan_free(plan);
  if (!st) gpu_leave();
  weft_status_ignore(st);
}

static void free_plans(void *arg) WEFT_UNSHARED
{
  fft_plans *plans = arg;

  for (int i = 0; i < plans->platform->gpu_count; i++) free_plan(&plans->platform->gpus[i], plans->of_device[i]);
  weft_mutex_fini(&plans->mu);
}

/* Reads the instruction and makes a plan for the planner's device. */
weft_status *gpu_plan_fft(const gpu_target *target, weft_arena *arena, const hlo_instr *instr,
                          low_plan *plan) WEFT_UNSHARED
{
  fft_plans *plans =
    weft_arena_alloc(arena, sizeof *plans + (size_t)target->platform->gpu_count * sizeof *plans->of_device);
  gpu_cublas *cublas;

  WEFT_TRY_ALLOC(plans);
  plans->platform = target->platform;
  WEFT_TRY(gpu_fft_init(&plans->fft, instr));
  WEFT_TRY(gpu_enter(gpu_planner(target)));
  weft_mutex_init(&plans->mu);
  plan->data = plans;
  plan->destroy = free_plans;
  weft_status *st = gpu_fft_plan_new(&plans->fft, &plans->of_device[0]);
  if (!st && plans->fft.scale != 1) st = gpu_cublas_of(gpu_planner(target), &cublas);
  gpu_leave();
  WEFT_TRY(gpu_or_on_host(st));
  plans->workspace_bytes = gpu_fft_workspace(&plans->fft, plans->of_device[0]);
  plan->scratch_bytes = (int64_t)plans->workspace_bytes;
  return NULL;
}

static weft_status *plan_of(fft_plans *plans, const weft_device *device, gpu_fft_plan **out_plan)
{
  int ordinal = weft_device_ordinal(device);
  weft_status *st = NULL;

  weft_mutex_lock(&plans->mu);
  if (!plans->of_device[ordinal]) st = gpu_fft_plan_new(&plans->fft, &plans->of_device[ordinal]);
  *out_plan = plans->of_device[ordinal];
  weft_mutex_unlock(&plans->mu);
  return st;
}

static weft_status *fft_work(const fft_thunk *t, const rt_ctx *ctx, wcu_stream stream)
{
  void *const *args = rt_args(&t->base, ctx);
  const gpu_fft *fft = &t->plans->fft;
  wcu_ptr in = gpu_address(args[0]), out = gpu_address(args[1]),
          workspace = t->plans->workspace_bytes ? gpu_address(args[2]) : 0;
  gpu_fft_plan *plan;
  gpu_cublas *cublas;

  WEFT_TRY(plan_of(t->plans, ctx->info->device, &plan));
  if (!fft->keeps_input)
    WEFT_TRY(GPU_CALL(cuMemcpyAsync, gpu_fft_copy_at(fft, workspace), in, fft->input_bytes, stream));
  WEFT_TRY(gpu_fft_enqueue(fft, plan, stream, in, out, workspace));
  if (fft->scale == 1) return NULL;
  WEFT_TRY(gpu_cublas_of(gpu_of(ctx->info->device), &cublas));
  return gpu_scale_enqueue(cublas, stream, fft->is_double, fft->scale, out, fft->result_numbers);
}

static weft_status *fft_enqueue(const rt_thunk *thunk, rt_ctx *ctx)
{
  wcu_stream stream;

  WEFT_TRY(gpu_begin_step(thunk, ctx, &stream));
  return gpu_end_work(ctx, fft_work((const fft_thunk *)thunk, ctx, stream));
}

static const rt_thunk_ops fft_ops = {
  .size = sizeof(rt_thunk_ops), .kind = "fft", .enqueue = fft_enqueue, .stretch = 1u << WEFT_GRAPH_CUBLASLT};

weft_status *gpu_fft_make(low_step *step, rt_thunk **out_thunk)
{
  WEFT_TRY(low_thunk_new(step, &fft_ops, sizeof(fft_thunk), out_thunk));
  ((fft_thunk *)*out_thunk)->plans = step->plan->data;
  return NULL;
}
