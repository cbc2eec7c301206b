/* runtime/ffi.c -- handlers of custom calls, and the arguments and services that their calls get (ffi.h). */
#include <config.h>

#include "runtime/ffi.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/dtype.h"
#include "base/thread.h"
#include "runtime/targets.h"

/* ---- errors ------------------------------------------------------------------------------------------------------ */

/* jaxlib's own handlers read an error as the absl::Status with which XLA's errors begin. Here it is a status with a
 * code and without a message. */
struct XLA_FFI_Error {
  uintptr_t status;
  char message[];
};
static weft_code error_code(const XLA_FFI_Error *error) { return (weft_code)(error->status >> 2); }

static XLA_FFI_Error *error_new(weft_code code, const char *message)
{
  static XLA_FFI_Error no_memory = {.status = (uintptr_t)WEFT_RESOURCE_EXHAUSTED << 2 | 1};
  size_t size = strlen(message) + 1;
  XLA_FFI_Error *error = malloc(sizeof *error + size);

  if (!error) return &no_memory; /* never freed: see error_free */
  error->status = (uintptr_t)code << 2 | 1;
  memcpy(error->message, message, size);
  return error;
}

static void error_free(XLA_FFI_Error *error)
{
  if (error && error->message[0]) free(error);
}

/* Takes `error`. */
static weft_status *status_of(XLA_FFI_Error *error)
{
  if (!error) return NULL;
  weft_code code = error_code(error) > WEFT_OK && error_code(error) <= WEFT_UNAUTHENTICATED ? error_code(error)
                                                                                            : WEFT_UNKNOWN;
  weft_status *st = weft_status_new(code, __FILE__, __LINE__, "%s", error->message);
  error_free(error);
  return st;
}

/* ---- handlers and types ------------------------------------------------------------------------------------------ */

typedef struct type_info {
  struct type_info *next;
  int64_t id;
  void (*deleter)(void *object);
  size_t length;
  char name[];
} type_info;

/* Lives as long as the process: programs may still run while it exits. */
static struct {
  weft_mutex mu;
  type_info *types;
  int64_t next_type;
} registry = {.mu = WEFT_MUTEX_INITIALIZER, .next_type = 1};

static weft_status *check_handler(const char *name, size_t length, const XLA_FFI_Handler_Bundle *bundle)
{
  if (bundle->execute) return NULL;
  return WEFT_ERR(INVALID_ARGUMENT, "custom-call target \"%.*s\" without an execute handler", (int)length, name);
}

weft_status *rt_ffi_register(const char *name, size_t length, const XLA_FFI_Handler_Bundle *bundle)
{
  WEFT_TRY(check_handler(name, length, bundle));
  return rt_target_add(RT_TARGET_HOST, name, length, bundle, sizeof *bundle);
}

weft_status *rt_ffi_register_on_device(const char *name, size_t length, const rt_ffi_device_handler *handler)
{
  WEFT_TRY(check_handler(name, length, &handler->bundle));
  return rt_target_add(RT_TARGET_DEVICE, name, length, handler, sizeof *handler);
}

bool rt_ffi_is_device_platform(const char *platform, size_t length)
{
  return (length == 4 && strncasecmp(platform, "CUDA", 4) == 0) ||
         (length == 3 && strncasecmp(platform, "gpu", 3) == 0);
}

bool rt_ffi_calls_python(const char *name)
{
  return strstr(name, "python_cpu_callback") || strstr(name, "python_gpu_callback");
}

bool rt_ffi_find(const char *name, XLA_FFI_Handler_Bundle *out_bundle)
{
  return rt_target_find(RT_TARGET_HOST, name, out_bundle);
}

bool rt_ffi_find_on_device(const char *name, rt_ffi_device_handler *out_handler)
{
  return rt_target_find(RT_TARGET_DEVICE, name, out_handler);
}

weft_status *rt_ffi_type_register(const char *name, size_t length, int64_t *type_id, void (*deleter)(void *object))
{
  type_info *t = malloc(sizeof *t + length), *same;

  WEFT_TRY_ALLOC(t);
  weft_mutex_lock(&registry.mu);
  for (same = registry.types; same; same = same->next)
    if (*type_id ? same->id == *type_id : same->length == length && memcmp(same->name, name, length) == 0) break;
  if (same) {
    *type_id = same->id;
  } else {
    if (!*type_id) *type_id = registry.next_type++;
    *t = (type_info){.next = registry.types, .id = *type_id, .deleter = deleter, .length = length};
    memcpy(t->name, name, length);
    registry.types = t;
  }
  weft_mutex_unlock(&registry.mu);
  if (same) free(t);
  return NULL;
}

static void (*deleter_of(int64_t type_id))(void *)
{
  void (*deleter)(void *) = NULL;

  weft_mutex_lock(&registry.mu);
  for (type_info *t = registry.types; t; t = t->next)
    if (t->id == type_id) deleter = t->deleter;
  weft_mutex_unlock(&registry.mu);
  return deleter;
}

/* ---- objects by type --------------------------------------------------------------------------------------------- */

typedef struct object {
  struct object *next;
  int64_t type_id;
  void *data;
  void (*deleter)(void *data);
} object;

struct rt_ffi_user_data {
  object *objects;
};

static object *object_find(object *list, int64_t type_id)
{
  while (list && list->type_id != type_id) list = list->next;
  return list;
}

static bool object_add(object **list, int64_t type_id, void *data, void (*deleter)(void *))
{
  object *o = malloc(sizeof *o);

  if (!o) return false;
  *o = (object){*list, type_id, data, deleter};
  *list = o;
  return true;
}

static void objects_free(object *list)
{
  while (list) {
    object *next = list->next;
    if (list->deleter && list->data) list->deleter(list->data);
    free(list);
    list = next;
  }
}

weft_status *rt_ffi_user_data_new(rt_ffi_user_data **out)
{
  *out = calloc(1, sizeof **out);
  WEFT_TRY_ALLOC(*out);
  return NULL;
}

void rt_ffi_user_data_free(rt_ffi_user_data *data)
{
  if (!data) return;
  objects_free(data->objects);
  free(data);
}

weft_status *rt_ffi_user_data_add(rt_ffi_user_data *data, int64_t type_id, void *obj, void (*deleter)(void *object))
{
  if (object_find(data->objects, type_id))
    return WEFT_ERR(ALREADY_EXISTS, "user data of type %lld is there already", (long long)type_id);
  if (!object_add(&data->objects, type_id, obj, deleter ? deleter : deleter_of(type_id)))
    return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  return NULL;
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

enum { BLANK_STATE_BYTES = 1024 };

struct rt_ffi_call {
  XLA_FFI_Handler_Bundle bundle;
  XLA_FFI_Attrs attrs;
  int arg_count, ret_count;
  XLA_FFI_Buffer *buffers;  /* arguments, then results; data NULL */
  object *state;            /* of the instantiate stage */
  void *blank_state;        /* see rt_ffi_call_new; NULL for most handlers */
  size_t packed_bytes;      /* of all buffers whose elements are packed for the handler */
};

/* One call in flight. */
struct XLA_FFI_ExecutionContext {
  rt_ffi_call *call;
  rt_pool *pool;
  const rt_run_info *info;
  rt_ffi_queue queue; /* stream NULL: the handler works on the host */
  object *states[XLA_FFI_ExecutionStage_EXECUTE]; /* prepare and initialize: of this run */
};

rt_pool *rt_ffi_pool(const XLA_FFI_ExecutionContext *ctx) { return ctx->pool; }

struct XLA_FFI_Future {
  weft_mutex mu;
  bool is_set;
  weft_status *status;                      /* when set and not yet taken */
  void (*done)(void *arg, weft_status *st); /* when awaited */
  void *arg;
};

typedef struct run {
  XLA_FFI_ExecutionContext ctx;
  XLA_FFI_CallFrame frame;
  void (*done)(void *arg, weft_status *st);
  void *arg;
  void *const *data;        /* if elements are packed: the buffers as Weft stores them */
  XLA_FFI_Buffer buffers[];
} run;

/* ---- elements below a byte ------------------------------------------------------------------------------------------
 * Weft keeps each such element in a byte of its own; handlers expect them packed, the first element in the low bits. */

/* Bits of an element that handlers expect packed; 0 for all others. */
static int packed_bits(const XLA_FFI_Buffer *buffer)
{
  weft_dtype type = weft_dtype_from_proto((int)buffer->dtype);
  int bits = weft_dtype_bits(type);

  return type != WEFT_PRED && bits > 0 && bits < 8 && 8 % bits == 0 ? bits : 0;
}

static size_t element_count(const XLA_FFI_Buffer *buffer)
{
  size_t count = 1;

  for (int64_t d = 0; d < buffer->rank; d++) count *= (size_t)buffer->dims[d];
  return count;
}

static size_t packed_bytes(const XLA_FFI_Buffer *buffer)
{
  return (element_count(buffer) * (size_t)packed_bits(buffer) + 7) / 8;
}

static void pack(uint8_t *to, const uint8_t *from, const XLA_FFI_Buffer *shape)
{
  int bits = packed_bits(shape);

  memset(to, 0, packed_bytes(shape));
  for (size_t i = 0; i < element_count(shape); i++) {
    size_t at = i * (size_t)bits;
    to[at / 8] |= (uint8_t)((from[i] & ((1 << bits) - 1)) << at % 8);
  }
}

static void unpack(uint8_t *to, const XLA_FFI_Buffer *from)
{
  const uint8_t *packed = from->data;
  bool is_signed = weft_dtype_is_signed(weft_dtype_from_proto((int)from->dtype));
  int bits = packed_bits(from), sign = is_signed ? 1 << (bits - 1) : 0;

  for (size_t i = 0; i < element_count(from); i++) {
    size_t at = i * (size_t)bits;
    int value = packed[at / 8] >> at % 8 & ((1 << bits) - 1);
    to[i] = (uint8_t)((value ^ sign) - sign);
  }
}

static void fill_buffer(XLA_FFI_Buffer *buffer, const hlo_shape *shape)
{
  *buffer = (XLA_FFI_Buffer){.struct_size = sizeof *buffer,
                             .dtype = weft_dtype_to_proto(shape->type),
                             .rank = shape->rank,
                             .dims = (int64_t *)shape->dims};
}

/* The frame of a call at a stage, without its arguments and results. */
static XLA_FFI_CallFrame frame_of(rt_ffi_call *call, XLA_FFI_ExecutionContext *ctx, XLA_FFI_ExecutionStage stage)
{
  /* XLA counts the frame's size up to `future`, and handlers compare for equality. */
  return (XLA_FFI_CallFrame){.struct_size = offsetof(XLA_FFI_CallFrame, future),
                             .api = rt_ffi_api(),
                             .ctx = ctx,
                             .stage = stage,
                             .args = {.struct_size = sizeof(XLA_FFI_Args)},
                             .rets = {.struct_size = sizeof(XLA_FFI_Rets)},
                             .attrs = call->attrs};
}

weft_status *rt_ffi_call_new(weft_arena *arena, const hlo_instr *instr, const XLA_FFI_Handler_Bundle *bundle,
                             rt_ffi_call **out_call)
{
  rt_ffi_call *call = WEFT_ARENA_NEW(arena, rt_ffi_call);
  const char *config = instr->extra && instr->extra->backend_config ? instr->extra->backend_config : "{}";
  int count = 0;

  *out_call = NULL;
  WEFT_TRY_ALLOC(call);
  call->bundle = *bundle;
  for (int i = 0; i < instr->operand_count; i++) call->arg_count += hlo_shape_leaf_count(instr->operands[i]->shape);
  call->ret_count = hlo_shape_leaf_count(instr->shape);
  call->buffers = WEFT_ARENA_ARRAY(arena, XLA_FFI_Buffer, call->arg_count + call->ret_count);
  WEFT_TRY_ALLOC(call->buffers);
  for (int i = 0; i < instr->operand_count; i++)
    for (int k = 0; k < hlo_shape_leaf_count(instr->operands[i]->shape); k++) {
      const hlo_shape *copy = hlo_shape_copy(arena, hlo_shape_leaf(instr->operands[i]->shape, k));
      WEFT_TRY_ALLOC(copy);
      fill_buffer(&call->buffers[count++], copy);
    }
  for (int k = 0; k < call->ret_count; k++) {
    const hlo_shape *copy = hlo_shape_copy(arena, hlo_shape_leaf(instr->shape, k));
    WEFT_TRY_ALLOC(copy);
    fill_buffer(&call->buffers[count++], copy);
  }
  for (int i = 0; i < count; i++) call->packed_bytes += packed_bytes(&call->buffers[i]);
  WEFT_TRY(rt_ffi_attrs_parse(arena, config, &call->attrs));
  if (bundle->instantiate) {
    XLA_FFI_ExecutionContext ctx = {.call = call};
    XLA_FFI_CallFrame frame = frame_of(call, &ctx, XLA_FFI_ExecutionStage_INSTANTIATE);
    weft_status *st = status_of(bundle->instantiate(&frame));
    if (st) {
      rt_ffi_call_free(call);
      return st;
    }
  }
  /* jaxlib's Python callbacks keep a cache of transposes in the state that their instantiate stage makes, but PJRT's
   * extension does not pass that stage on. The callbacks look into the cache only for results that are not
   * C-contiguous, which the jax_plugins package rules out. Otherwise the callbacks need only a pointer that is not
   * NULL. */
  if (!bundle->instantiate && instr->op == HLO_CUSTOM_CALL && rt_ffi_calls_python(instr->u.custom->target)) {
    call->blank_state = weft_arena_alloc(arena, BLANK_STATE_BYTES);
    WEFT_TRY_ALLOC(call->blank_state);
  }
  *out_call = call;
  return NULL;
}

void rt_ffi_call_free(rt_ffi_call *call)
{
  if (call) objects_free(call->state);
}

/* Takes `st`. */
static void run_end(void *arg, weft_status *st)
{
  run *r = arg;
  rt_ffi_call *call = r->ctx.call;
  void (*done)(void *, weft_status *) = r->done;
  void *done_arg = r->arg;

  for (int i = 0; i < XLA_FFI_ExecutionStage_EXECUTE; i++) objects_free(r->ctx.states[i]);
  for (int i = call->arg_count; r->data && !st && i < call->arg_count + call->ret_count; i++)
    if (r->data[i] != r->buffers[i].data) unpack(r->data[i], &r->buffers[i]);
  free(r);
  done(done_arg, st);
}

static void future_await(XLA_FFI_Future *future, void (*done)(void *arg, weft_status *st), void *arg);

/* `queue` NULL: the handler works on the host. */
static void start(rt_ffi_call *call, void *const *buffers, rt_pool *pool, const rt_run_info *info,
                  const rt_ffi_queue *queue, void (*done)(void *arg, weft_status *st), void *arg)
{
  size_t count = (size_t)(call->arg_count + call->ret_count);
  size_t data_count = call->packed_bytes ? count : 0;
  /* buffers, then pointers to them, then Weft's own data, then the buffers' kinds, then packed elements */
  run *r = malloc(sizeof *r + count * (sizeof(XLA_FFI_Buffer) + sizeof(void *) + sizeof(XLA_FFI_ArgType)) +
                  data_count * sizeof(void *) + call->packed_bytes);
  weft_status *st = NULL;

  if (!r) {
    done(arg, WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory"));
    return;
  }
  void **pointers = (void **)(r->buffers + count);
  XLA_FFI_ArgType *kinds = (XLA_FFI_ArgType *)(pointers + count + data_count);
  uint8_t *packed = (uint8_t *)(kinds + count);
  r->ctx = (XLA_FFI_ExecutionContext){.call = call, .pool = pool, .info = info};
  if (queue) r->ctx.queue = *queue;
  r->done = done;
  r->arg = arg;
  r->data = data_count ? memcpy(pointers + count, buffers, count * sizeof *buffers) : NULL;
  for (size_t i = 0; i < count; i++) {
    bool is_packed = packed_bits(&call->buffers[i]) != 0;
    r->buffers[i] = call->buffers[i];
    r->buffers[i].data = is_packed ? packed : buffers[i];
    if (is_packed && i < (size_t)call->arg_count) pack(packed, buffers[i], &call->buffers[i]);
    packed += packed_bytes(&call->buffers[i]);
    pointers[i] = &r->buffers[i];
    kinds[i] = XLA_FFI_ArgType_BUFFER; /* the same number as XLA_FFI_RetType_BUFFER */
  }
  r->frame = frame_of(call, &r->ctx, XLA_FFI_ExecutionStage_PREPARE);
  r->frame.args.size = call->arg_count;
  r->frame.args.types = kinds;
  r->frame.args.args = pointers;
  r->frame.rets.size = call->ret_count;
  r->frame.rets.types = (XLA_FFI_RetType *)(kinds + call->arg_count);
  r->frame.rets.rets = pointers + call->arg_count;
  if (call->bundle.prepare) st = status_of(call->bundle.prepare(&r->frame));
  r->frame.stage = XLA_FFI_ExecutionStage_INITIALIZE;
  if (!st && call->bundle.initialize) st = status_of(call->bundle.initialize(&r->frame));
  r->frame.stage = XLA_FFI_ExecutionStage_EXECUTE;
  if (!st) st = status_of(call->bundle.execute(&r->frame));
  if (!st && r->frame.future) future_await(r->frame.future, run_end, r);
  else run_end(r, st);
}

void rt_ffi_call_start(rt_ffi_call *call, void *const *buffers, rt_pool *pool, const rt_run_info *info,
                       void (*done)(void *arg, weft_status *st), void *arg)
{
  start(call, buffers, pool, info, NULL, done, arg);
}

bool rt_ffi_call_packs(const rt_ffi_call *call) { return call->packed_bytes > 0; }

/* The data that a thread which waits for the end of a call shares with the call; freed by the thread or by the end of
 * the call, whichever comes last. */
typedef struct waiter {
  weft_mutex mu;
  weft_cond ended;
  bool has_ended WEFT_GUARDED_BY(mu);
  bool left WEFT_GUARDED_BY(mu); /* the deadline has passed, and no thread waits */
  weft_status *status WEFT_GUARDED_BY(mu);
} waiter;

static void waiter_free(waiter *w) WEFT_UNSHARED
{
  weft_status_free(w->status);
  weft_cond_fini(&w->ended);
  weft_mutex_fini(&w->mu);
  free(w);
}

static void waiter_end(void *arg, weft_status *st)
{
  waiter *w = arg;

  weft_mutex_lock(&w->mu);
  w->has_ended = true;
  w->status = st;
  bool left = w->left;
  weft_cond_signal(&w->ended);
  weft_mutex_unlock(&w->mu);
  if (left) waiter_free(w);
}

weft_status *rt_ffi_call_enqueue(rt_ffi_call *call, void *const *buffers, rt_pool *pool, const rt_run_info *info,
                                 const rt_ffi_queue *queue)
{
  waiter *w = calloc(1, sizeof *w);

  WEFT_TRY_ALLOC(w);
  weft_mutex_init(&w->mu);
  weft_cond_init(&w->ended);
  start(call, buffers, pool, info, queue, waiter_end, w);
  weft_mutex_lock(&w->mu);
  while (!w->has_ended && weft_cond_wait(&w->ended, &w->mu, queue->deadline)) {}
  bool has_ended = w->has_ended;
  weft_status *st = w->status;
  w->status = NULL;
  w->left = !has_ended;
  weft_mutex_unlock(&w->mu);
  if (!has_ended) return WEFT_ERR(DEADLINE_EXCEEDED, "the handler of a custom call has not ended");
  waiter_free(w);
  return st;
}

/* ---- the API's functions ----------------------------------------------------------------------------------------- */

static XLA_FFI_Error *api_Error_Create(XLA_FFI_Error_Create_Args *args)
{
  return error_new((weft_code)args->errc, args->message && *args->message ? args->message : "custom call failed");
}
static void api_Error_GetMessage(XLA_FFI_Error_GetMessage_Args *args) { args->message = args->error->message; }
static void api_Error_Destroy(XLA_FFI_Error_Destroy_Args *args) { error_free(args->error); }

/* Takes `st`. */
static XLA_FFI_Error *error_of(weft_status *st)
{
  if (!st) return NULL;
  XLA_FFI_Error *error = error_new(weft_status_code(st), weft_status_message(st));
  weft_status_free(st);
  return error;
}

static XLA_FFI_Error *api_Handler_Register(XLA_FFI_Handler_Register_Args *args)
{
  if (rt_ffi_is_device_platform(args->platform.ptr, args->platform.len))
    return error_of(
      rt_ffi_register_on_device(args->name.ptr, args->name.len, &(rt_ffi_device_handler){args->bundle, args->traits}));
  return error_of(rt_ffi_register(args->name.ptr, args->name.len, &args->bundle));
}

static XLA_FFI_Error *api_Stream_Get(XLA_FFI_Stream_Get_Args *args)
{
  args->stream = args->ctx->queue.stream;
  return args->stream ? NULL : error_new(WEFT_UNIMPLEMENTED, "the CPU has no streams");
}

static XLA_FFI_Error *api_Type_Register(XLA_FFI_Type_Register_Args *args)
{
  return error_of(rt_ffi_type_register(args->name.ptr, args->name.len, &args->type_id->type_id,
                                       args->type_info ? args->type_info->deleter : NULL));
}

static XLA_FFI_Error *api_ExecutionContext_Get(XLA_FFI_ExecutionContext_Get_Args *args)
{
  rt_ffi_user_data *user = args->ctx->info ? args->ctx->info->user : NULL;
  object *found = user ? object_find(user->objects, args->type_id->type_id) : NULL;

  if (!found) return error_new(WEFT_NOT_FOUND, "the launch has no user data of this type");
  args->data = found->data;
  return NULL;
}

/* Where the state of a stage is kept; NULL: there is none for the execute stage. */
static object **state_of(XLA_FFI_ExecutionContext *ctx, XLA_FFI_ExecutionStage stage)
{
  if ((unsigned)stage >= XLA_FFI_ExecutionStage_EXECUTE) return NULL;
  return stage == XLA_FFI_ExecutionStage_INSTANTIATE ? &ctx->call->state : &ctx->states[stage];
}

static XLA_FFI_Error *api_State_Set(XLA_FFI_State_Set_Args *args)
{
  object **state = state_of(args->ctx, args->stage);

  if (!state) return error_new(WEFT_INVALID_ARGUMENT, "this stage keeps no state");
  if (*state) return error_new(WEFT_ALREADY_EXISTS, "the state is set already");
  if (!object_add(state, args->type_id->type_id, args->state, deleter_of(args->type_id->type_id)))
    return error_new(WEFT_RESOURCE_EXHAUSTED, "out of memory");
  return NULL;
}

static XLA_FFI_Error *api_State_Get(XLA_FFI_State_Get_Args *args)
{
  object **state = state_of(args->ctx, args->stage),
         *found = state ? object_find(*state, args->type_id->type_id) : NULL;

  if (!found && !args->ctx->call->blank_state) return error_new(WEFT_NOT_FOUND, "the state is not set");
  args->state = found ? found->data : args->ctx->call->blank_state;
  return NULL;
}

static XLA_FFI_Error *api_DeviceMemory_Allocate(XLA_FFI_DeviceMemory_Allocate_Args *args)
{
  const rt_ffi_queue *queue = &args->ctx->queue;
  void *data = NULL;

  if (queue->stream) {
    weft_status *st = queue->take(queue->ctx, WEFT_MAX(args->size, (size_t)1), &args->data);
    return st ? error_of(st) : NULL;
  }
  if (posix_memalign(&data, args->alignment < 64 ? 64 : args->alignment, args->size ? args->size : 1) != 0)
    return error_new(WEFT_RESOURCE_EXHAUSTED, "out of memory");
  args->data = data;
  return NULL;
}

static XLA_FFI_Error *api_DeviceMemory_Free(XLA_FFI_DeviceMemory_Free_Args *args)
{
  const rt_ffi_queue *queue = &args->ctx->queue;

  if (!queue->stream) free(args->data);
  else if (args->data) queue->give(queue->ctx, WEFT_MAX(args->size, (size_t)1), args->data);
  return NULL;
}

static XLA_FFI_Error *api_ThreadPool_Schedule(XLA_FFI_ThreadPool_Schedule_Args *args)
{
  args->task(args->data); /* on the caller: legal, and the caller may be the pool's only thread */
  return NULL;
}

static XLA_FFI_Error *api_ThreadPool_NumThreads(XLA_FFI_ThreadPool_NumThreads_Args *args)
{
  *args->num_threads = args->ctx->pool ? rt_pool_threads(args->ctx->pool) : 1;
  return NULL;
}

static XLA_FFI_Error *api_Future_Create(XLA_FFI_Future_Create_Args *args)
{
  XLA_FFI_Future *future = calloc(1, sizeof *future);

  if (!future) return error_new(WEFT_RESOURCE_EXHAUSTED, "out of memory");
  weft_mutex_init(&future->mu);
  args->future = future;
  return NULL;
}

static void future_free(XLA_FFI_Future *future)
{
  weft_mutex_fini(&future->mu);
  free(future);
}

/* Whichever of setting and awaiting comes second ends the call.  Takes `st`. */
static void future_set(XLA_FFI_Future *future, weft_status *st)
{
  weft_mutex_lock(&future->mu);
  void (*done)(void *, weft_status *) = future->done;
  future->is_set = true;
  if (!done) future->status = st;
  weft_mutex_unlock(&future->mu);
  if (!done) return;
  void *arg = future->arg;
  future_free(future);
  done(arg, st);
}

static void future_await(XLA_FFI_Future *future, void (*done)(void *arg, weft_status *st), void *arg)
{
  weft_mutex_lock(&future->mu);
  bool is_set = future->is_set;
  weft_status *st = future->status;
  future->done = done;
  future->arg = arg;
  weft_mutex_unlock(&future->mu);
  if (!is_set) return;
  future_free(future);
  done(arg, st);
}

static XLA_FFI_Error *api_Future_SetAvailable(XLA_FFI_Future_SetAvailable_Args *args)
{
  future_set(args->future, NULL);
  return NULL;
}

static XLA_FFI_Error *api_Future_SetError(XLA_FFI_Future_SetError_Args *args)
{
  future_set(args->future, status_of(args->error));
  return NULL;
}

static XLA_FFI_Error *api_RunId_Get(XLA_FFI_RunId_Get_Args *args)
{
  args->run_id = args->ctx->info ? args->ctx->info->launch_id : 0;
  return NULL;
}

static XLA_FFI_Error *api_DeviceOrdinal_Get(XLA_FFI_DeviceOrdinal_Get_Args *args)
{
  args->device_ordinal = args->ctx->info ? args->ctx->info->device_ordinal : 0;
  return NULL;
}

const XLA_FFI_Api *rt_ffi_api(void)
{
  static const XLA_FFI_Api api = {
    .struct_size = sizeof api,
    .api_version = {.struct_size = sizeof(XLA_FFI_Api_Version), .major_version = XLA_FFI_API_MAJOR,
                    .minor_version = XLA_FFI_API_MINOR},
#define API_ENTRY(name, result, fields) .XLA_FFI_##name = api_##name,
    XLA_FFI_FUNCTIONS(API_ENTRY)
#undef API_ENTRY
  };

  return &api;
}
