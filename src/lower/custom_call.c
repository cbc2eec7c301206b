/* lower/custom_call.c -- custom calls that are done on the host: typed FFI handlers from the registry,
 * untyped functions of the older API versions, and the markers of partitioning and placement, which mean
 * nothing on one device and copy their operand. */
#include <config.h>

#include <string.h>

#include "base/macros.h"
#include "base/thread.h"
#include "hlo/check.h"
#include "lower/host_steps.h"
#include "runtime/ffi.h"
#include "runtime/lender.h"
#include "runtime/platform.h"
#include "runtime/untyped.h"

enum { API_TYPED_FFI = 4 };

/* ---- markers ----------------------------------------------------------------------------------------------------- */

static bool is_marker(const char *target)
{
  static const char *const markers[] = {"Sharding", "LayoutConstraint", "annotate_device_placement", "MoveToHost",
                                        "MoveToDevice", "PinToDevice"};
  for (size_t i = 0; i < WEFT_COUNT(markers); i++)
    if (strcmp(target, markers[i]) == 0) return true;
  return false;
}

/* True if the operands have as many leaves as the result, and each leaf of the result is as large as the leaf of the
 * operands with the same number. */
static bool copies_whole(const hlo_instr *instr)
{
  int leaves = 0, total = hlo_shape_leaf_count(instr->shape);

  for (int i = 0; i < instr->operand_count; i++)
    for (int k = 0; k < hlo_shape_leaf_count(instr->operands[i]->shape); k++, leaves++)
      if (leaves >= total || hlo_shape_bytes(hlo_shape_leaf(instr->operands[i]->shape, k)) !=
                               hlo_shape_bytes(hlo_shape_leaf(instr->shape, leaves)))
        return false;
  return leaves == total;
}

static bool is_copy(const hlo_instr *instr) { return is_marker(instr->u.custom->target) && copies_whole(instr); }

static weft_status *marker_execute(const rt_thunk *thunk, rt_ctx *ctx)
{
  void *const *args = rt_args(thunk, ctx);
  int leaves = thunk->use_count / 2;

  for (int i = 0; i < leaves; i++)
    if (args[i] && args[i] != args[leaves + i]) memcpy(args[leaves + i], args[i], (size_t)thunk->uses[i].slice.bytes);
  return NULL;
}
static const rt_thunk_ops marker_ops = {.size = sizeof(rt_thunk_ops), .kind = "marker", .run = marker_execute};

/* ---- checks ------------------------------------------------------------------------------------------------------ */

/* check.*: a program that tests itself fails with an error that names the first element that differs. */
typedef struct check_thunk {
  rt_thunk base;
  hlo_check_rule rule;
  const hlo_shape *shape;
} check_thunk;

static weft_status *check_run(const rt_thunk *thunk, rt_ctx *ctx)
{
  const check_thunk *check = (const check_thunk *)thunk;
  void *const *args = rt_args(thunk, ctx);

  return hlo_check(&check->rule, &(hlo_literal){.shape = check->shape, .data = args[0]},
                   &(hlo_literal){.shape = check->shape, .data = args[1]});
}
static const rt_thunk_ops check_ops = {.size = sizeof(rt_thunk_ops), .kind = "check", .run = check_run};

static weft_status *check_make(low_step *step, rt_thunk **out_thunk)
{
  check_thunk *check;

  WEFT_TRY(low_thunk_new(step, &check_ops, sizeof(check_thunk), out_thunk));
  check = (check_thunk *)*out_thunk;
  WEFT_TRY(hlo_check_rule_of(step->instr, &check->rule));
  check->shape = hlo_shape_copy(step->arena, step->instr->operands[0]->shape);
  WEFT_TRY_ALLOC(check->shape);
  return NULL;
}

/* ---- typed FFI --------------------------------------------------------------------------------------------------- */

typedef struct ffi_thunk {
  rt_thunk base;
  rt_ffi_call *call;
} ffi_thunk;

/* `arg` is the state of the thunk: its words hold the thunk and the context. The error says which custom call
 * failed. */
static void ffi_done(void *arg, weft_status *st)
{
  rt_thunk_state *state = arg;
  const rt_thunk *thunk = state->words.a;

  rt_thunk_done(thunk, state->words.b, weft_status_note(st, __FILE__, __LINE__, "custom-call %s", thunk->name));
}

static weft_status *ffi_start(const rt_thunk *thunk, rt_ctx *ctx)
{
  rt_thunk_state *state = &ctx->states[thunk->index];

  state->words.a = (void *)thunk;
  state->words.b = ctx;
  rt_ffi_call_start(((const ffi_thunk *)thunk)->call, rt_args(thunk, ctx), ctx->pool, ctx->info, ffi_done, state);
  return NULL;
}

/* Python callbacks may launch programs on this device and wait for them. They run on the launching thread or on a
 * thread of their own, never on a worker that those programs need, and the device's queue goes on in the meantime. */
enum callback_thread { OWN_THREAD, LENT_THREAD }; /* state->words.n */

static void callback_done(void *arg, weft_status *st)
{
  const rt_thunk_state *state = arg;
  const rt_run_info *info = ((rt_ctx *)state->words.b)->info;

  weft_device_leave_callback(info->device);
  /* before anything that follows this callback starts */
  if (state->words.n == LENT_THREAD) rt_lender_give_back(info->lender);
  ffi_done(arg, st);
}

/* The caller retains the platform. */
static void run_callback(void *arg)
{
  const rt_thunk_state *state = arg;
  const rt_thunk *thunk = state->words.a;
  rt_ctx *ctx = state->words.b;

  weft_device_enter_callback(ctx->info->device);
  rt_ffi_call_start(((const ffi_thunk *)thunk)->call, rt_args(thunk, ctx), ctx->pool, ctx->info, callback_done, arg);
}

static void *callback_thread(void *arg)
{
  weft_platform *platform = weft_device_platform(((rt_ctx *)((const rt_thunk_state *)arg)->words.b)->info->device);

  run_callback(arg);
  weft_platform_release(platform);
  return NULL;
}

static weft_status *callback_start(const rt_thunk *thunk, rt_ctx *ctx)
{
  rt_thunk_state *state = &ctx->states[thunk->index];
  weft_platform *platform;
  pthread_t thread;
  weft_status *st;

  state->words.a = (void *)thunk;
  state->words.b = ctx;
  state->words.n = LENT_THREAD;
  if (ctx->info->lender && rt_lender_offer(ctx->info->lender, run_callback, state)) return NULL;
  state->words.n = OWN_THREAD;
  platform = weft_platform_retain(weft_device_platform(ctx->info->device));
  st = weft_thread_start(&thread, "weft-callback", callback_thread, state);
  if (st) weft_platform_release(platform);
  else pthread_detach(thread);
  return st;
}

static const rt_thunk_ops ffi_ops = {
  .size = sizeof(rt_thunk_ops), .kind = "custom-call", .start = ffi_start, .ends_soon = true};

static const rt_thunk_ops callback_ops = {.size = sizeof(rt_thunk_ops), .kind = "callback", .start = callback_start};

/* ---- untyped functions ----------------------------------------------------------------------------------------- */

typedef struct untyped_thunk {
  rt_thunk base;
  rt_untyped_call call;
} untyped_thunk;

static weft_status *untyped_run(const rt_thunk *thunk, rt_ctx *ctx)
{
  WEFT_TRY_NOTE(rt_untyped_call_run(&((const untyped_thunk *)thunk)->call, rt_args(thunk, ctx)), "custom-call %s",
                thunk->name);
  return NULL;
}
static const rt_thunk_ops untyped_ops = {.size = sizeof(rt_thunk_ops), .kind = "custom-call", .run = untyped_run};

static weft_status *untyped_make(low_step *step, rt_thunk **out_thunk)
{
  const hlo_custom_call_attrs *attrs = step->instr->u.custom;
  rt_untyped_fn *function = rt_untyped_find(attrs->target);
  XLA_FFI_Handler_Bundle typed;

  if (!function)
    return WEFT_ERR(UNIMPLEMENTED, "no function is registered for the custom call \"%s\" of API version %d%s",
                    attrs->target, attrs->api_version,
                    rt_ffi_find(attrs->target, &typed) ? ": what has that name is a handler of the typed FFI (4)" : "");
  WEFT_TRY(low_thunk_new(step, &untyped_ops, sizeof(untyped_thunk), out_thunk));
  return rt_untyped_call_read(step->arena, step->instr, function, &((untyped_thunk *)*out_thunk)->call);
}

/* ---- custom calls ---------------------------------------------------------------------------------------------- */

static bool is_print(const hlo_instr *instr) { return strcmp(instr->u.custom->target, "interpreter.print") == 0; }

static void free_call(void *call) { rt_ffi_call_free(call); }

weft_status *low_custom_call_plan(weft_arena *arena, const hlo_instr *instr, weft_status *(*register_more)(void),
                                  low_plan *plan)
{
  const hlo_custom_call_attrs *attrs = instr->u.custom;
  XLA_FFI_Handler_Bundle bundle;
  rt_ffi_call *call;

  if (hlo_is_check(instr) || is_print(instr) || is_copy(instr) || attrs->api_version != API_TYPED_FFI) return NULL;
  bool found = rt_ffi_find(attrs->target, &bundle);
  if (!found && register_more) { /* a handler that the user registered comes before Weft's own of the same name */
    WEFT_TRY(register_more());
    found = rt_ffi_find(attrs->target, &bundle);
  }
  if (!found) return NULL; /* the function that makes the thunk reports the error */
  WEFT_TRY(rt_ffi_call_new(arena, instr, &bundle, &call));
  plan->data = call;
  plan->destroy = free_call;
  return NULL;
}

static weft_status *ffi_make(low_step *step, rt_thunk **out_thunk)
{
  const char *target = step->instr->u.custom->target;

  if (!step->plan->data)
    return WEFT_ERR(
      UNIMPLEMENTED, "no handler is registered for the custom call \"%s\"%s", target,
      rt_ffi_calls_python(target) ? ": callbacks into Python need Weft's Python package (pip install ./python)" : "");
  WEFT_TRY(low_thunk_new(step, rt_ffi_calls_python(target) ? &callback_ops : &ffi_ops, sizeof(ffi_thunk), out_thunk));
  ((ffi_thunk *)*out_thunk)->call = step->plan->data;
  return NULL;
}

static weft_status *make(low_step *step, rt_thunk **out_thunk)
{
  if (step->plan->error) return weft_status_dup(step->plan->error);
  if (hlo_is_check(step->instr)) return check_make(step, out_thunk);
  if (is_print(step->instr)) return low_print_make(step, out_thunk);
  if (is_copy(step->instr)) return low_thunk_new(step, &marker_ops, sizeof(rt_thunk), out_thunk);
  if (step->instr->u.custom->api_version != API_TYPED_FFI) return untyped_make(step, out_thunk);
  return ffi_make(step, out_thunk);
}

weft_status *low_custom_call_make(low_step *step, rt_thunk **out_thunk)
{
  WEFT_TRY(make(step, out_thunk));
  (*out_thunk)->wants_host_memory = true;
  return NULL;
}
