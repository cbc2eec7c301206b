/* cli/session.c -- a client of the PJRT C API. */
#include <config.h>

#include "cli/session.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <string.h>

#include "base/deadline.h"
#include "hlo/proto.h"
#include "pjrt/compile.pb-c.h"

const PJRT_Api *GetPjrtApi(void); /* of src/pjrt/plugin.c, which is linked into this program */

/* Takes the plugin's error and returns it as a status; NULL for NULL. */
static weft_status *status_of(const PJRT_Api *api, PJRT_Error *error)
{
  PJRT_Error_Message_Args text = {.struct_size = sizeof text, .error = error};
  PJRT_Error_GetCode_Args code = {.struct_size = sizeof code, .error = error};
  PJRT_Error_Destroy_Args gone = {.struct_size = sizeof gone, .error = error};
  weft_status *st;

  if (!error) return NULL;
  api->PJRT_Error_Message(&text);
  if (api->PJRT_Error_GetCode(&code)) code.code = PJRT_Error_Code_UNKNOWN;
  st = weft_status_new((weft_code)code.code, __FILE__, __LINE__, "%.*s", (int)text.message_size, text.message);
  api->PJRT_Error_Destroy(&gone);
  return st;
}

/* Declares `var` as the arguments of a PJRT function, calls the function, and returns from the surrounding function
 * if it fails. */
#define CALL(s, var, name, ...)                                                        \
  PJRT_##name##_Args var = {.struct_size = sizeof var, __VA_ARGS__};                   \
  WEFT_TRY_NOTE(status_of((s)->api, (s)->api->PJRT_##name(&var)), "PJRT_" #name " of %s", (s)->plugin)
/* The same for calls that release something: their errors are ignored. */
#define DESTROY(s, name, member, handle)                                                                             \
  do {                                                                                                               \
    PJRT_##name##_Destroy_Args args_ = {.struct_size = sizeof args_, .member = (handle)};                            \
    if (handle) weft_status_ignore(status_of((s)->api, (s)->api->PJRT_##name##_Destroy(&args_)));                    \
  } while (0)

/* ---- opening ---- */

static weft_status *load_plugin(cli_session *s, const char *path)
{
  const PJRT_Api *(*get_api)(void) = GetPjrtApi;

  s->plugin = path ? path : "weft";
  if (path) {
    s->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!s->library) return WEFT_ERR(NOT_FOUND, "cannot load a plugin: %s", dlerror());
    *(void **)&get_api = dlsym(s->library, "GetPjrtApi");
    if (!get_api) return WEFT_ERR(NOT_FOUND, "%s is no PJRT plugin: it has no GetPjrtApi", path);
  }
  s->api = get_api();
  if (!s->api || s->api->pjrt_api_version.major_version != PJRT_API_MAJOR)
    return WEFT_ERR(UNIMPLEMENTED, "%s: PJRT API version %d, this client speaks %d", s->plugin,
                    s->api ? s->api->pjrt_api_version.major_version : -1, PJRT_API_MAJOR);
  for (const PJRT_Extension_Base *e = s->api->extension_start; e; e = e->next)
    if (e->type == PJRT_Extension_Type_Weft) s->weft = (const PJRT_Weft_Extension *)e;
  CALL(s, init, Plugin_Initialize, .extension_start = NULL);
  return NULL;
}

static PJRT_NamedValue int_option(const char *name, int64_t value)
{
  return (PJRT_NamedValue){.struct_size = sizeof(PJRT_NamedValue),
                           .name = name,
                           .name_size = strlen(name),
                           .type = PJRT_NamedValue_kInt64,
                           .int64_value = value,
                           .value_size = 1};
}

static weft_status *make_client(cli_session *s, const cli_session_options *o)
{
  PJRT_NamedValue options[5];
  PJRT_Client_Create_Args args = {.struct_size = sizeof args, .create_options = options};

  /* an option that XLA's plugin knows too */
  if (o->devices > 0) options[args.num_options++] = int_option("cpu_device_count", o->devices);
  if (o->threads > 0) options[args.num_options++] = int_option("num_threads", o->threads);
  if (o->first_device > 0 && s->weft) options[args.num_options++] = int_option("weft_first_device", o->first_device);
  if (o->job) {
    options[args.num_options++] = int_option("node_id", o->job->place.process_id);
    options[args.num_options++] = int_option("num_nodes", o->job->place.process_count);
    cli_job_give_store(o->job, &args);
  }
  WEFT_TRY_NOTE(status_of(s->api, s->api->PJRT_Client_Create(&args)), "PJRT_Client_Create of %s", s->plugin);
  s->client = args.client;
  return o->job ? cli_job_watch(o->job, s->api, s->client) : NULL;
}

/* ---- compile options ---- */

enum { MAX_DEVICES = 1024 };

/* The devices as the plugin assigns them, by partition and then by replica. */
static weft_status *fill_assignment(cli_session *s, const cli_session_options *o, PjrtPb__DeviceAssignment *out)
{
  int count = (int)(o->replicas * o->partitions), *ids = WEFT_ARENA_ARRAY(s->arena, int, count);
  int64_t *numbers = WEFT_ARENA_ARRAY(s->arena, int64_t, count);
  PjrtPb__ComputationDevices *rows = WEFT_ARENA_ARRAY(s->arena, PjrtPb__ComputationDevices, o->partitions);

  out->computation_devices = WEFT_ARENA_ARRAY(s->arena, PjrtPb__ComputationDevices *, o->partitions);
  WEFT_TRY_ALLOC(ids && numbers && rows && out->computation_devices);
  CALL(s, args, Client_DefaultDeviceAssignment, .client = s->client, .num_replicas = (int)o->replicas,
       .num_partitions = (int)o->partitions, .default_assignment_size = (size_t)count, .default_assignment = ids);
  out->replica_count = (int32_t)o->replicas;
  out->n_computation_devices = (size_t)(out->computation_count = (int32_t)o->partitions);
  for (int64_t p = 0; p < o->partitions; p++) {
    pjrt_pb__computation_devices__init(out->computation_devices[p] = &rows[p]);
    rows[p].n_replica_device_ids = (size_t)o->replicas;
    rows[p].replica_device_ids = &numbers[p * o->replicas];
    for (int64_t r = 0; r < o->replicas; r++) rows[p].replica_device_ids[r] = ids[r * o->partitions + p];
  }
  return NULL;
}

/* The packed CompileOptionsProto. */
static weft_status *compile_options(cli_session *s, const cli_session_options *o, uint8_t **out_bytes, size_t *out_size)
{
  PjrtPb__CompileOptions all = PJRT_PB__COMPILE_OPTIONS__INIT;
  PjrtPb__BuildOptions build = PJRT_PB__BUILD_OPTIONS__INIT;
  PjrtPb__DeviceAssignment assignment = PJRT_PB__DEVICE_ASSIGNMENT__INIT;
  PjrtPb__Override overrides[2], *override_list[2];
  PjrtPb__OverrideValue values[2];

  if (o->replicas > MAX_DEVICES || o->partitions > MAX_DEVICES || o->replicas * o->partitions > MAX_DEVICES)
    return WEFT_ERR(INVALID_ARGUMENT,
                    "%" PRId64 " replicas of %" PRId64 " partitions: at most %d devices are possible here", o->replicas,
                    o->partitions, MAX_DEVICES);
  build.device_ordinal = -1;
  build.num_replicas = o->replicas;
  build.num_partitions = o->partitions;
  build.use_spmd_partitioning = o->partitions > 1;
  if (o->replicas * o->partitions > 1) {
    WEFT_TRY(fill_assignment(s, o, &assignment));
    build.device_assignment = &assignment;
  }
  all.build = &build;
  const char *const named[][2] = {{"weft_memory", o->memory}, {"weft_cpu", o->cpus}};
  all.overrides = override_list;
  for (size_t i = 0; i < WEFT_COUNT(named); i++) {
    if (!named[i][1]) continue;
    size_t k = all.n_overrides++;
    pjrt_pb__override_value__init(&values[k]);
    values[k].value_case = PJRT_PB__OVERRIDE_VALUE__VALUE_TEXT;
    values[k].text = (char *)(uintptr_t)named[i][1];
    pjrt_pb__override__init(override_list[k] = &overrides[k]);
    overrides[k].key = (char *)(uintptr_t)named[i][0];
    overrides[k].value = &values[k];
  }
  *out_size = pjrt_pb__compile_options__get_packed_size(&all);
  WEFT_TRY_ALLOC(*out_bytes = weft_arena_alloc(s->arena, *out_size));
  pjrt_pb__compile_options__pack(&all, *out_bytes);
  return NULL;
}

/* Compiles the code, or loads it if it is machine code. */
static weft_status *make_executable(cli_session *s, const cli_code *code, const uint8_t *options, size_t options_size)
{
  PJRT_Program program = {.struct_size = sizeof program, .code = (char *)code->bytes, .code_size = code->size,
                          .format = code->format, .format_size = strlen(code->format)};

  if (strcmp(code->format, "weft") == 0) {
    CALL(s, args, Executable_DeserializeAndLoad, .client = s->client, .serialized_executable = code->bytes,
         .serialized_executable_size = code->size, .overridden_serialized_compile_options = (const char *)options,
         .overridden_serialized_compile_options_size = options_size);
    s->loaded = args.loaded_executable;
    return NULL;
  }
  CALL(s, args, Client_Compile, .client = s->client, .program = &program, .compile_options = (const char *)options,
       .compile_options_size = options_size);
  s->loaded = args.executable;
  return NULL;
}

weft_status *cli_session_open(cli_session *s, const cli_session_options *o, const cli_code *code, int params,
                              weft_arena *arena)
{
  uint8_t *options;
  size_t options_size;
  int64_t *numbers;

  *s = (cli_session){.arena = arena, .params = params, .job = o->job};
  WEFT_TRY(load_plugin(s, o->plugin));
  WEFT_TRY(make_client(s, o));
  WEFT_TRY(compile_options(s, o, &options, &options_size));
  WEFT_TRY(make_executable(s, code, options, options_size));
  CALL(s, exe, LoadedExecutable_GetExecutable, .loaded_executable = s->loaded);
  s->exe = exe.executable;
  CALL(s, outputs, Executable_NumOutputs, .executable = s->exe);
  CALL(s, devices, LoadedExecutable_AddressableDevices, .executable = s->loaded);
  s->outputs = (int)outputs.num_outputs;
  s->devices = (int)devices.num_addressable_devices;
  s->device_list = devices.addressable_devices;
  s->inputs = WEFT_ARENA_ARRAY(arena, PJRT_Buffer **, s->devices);
  s->results = WEFT_ARENA_ARRAY(arena, PJRT_Buffer **, s->devices);
  WEFT_TRY_ALLOC(numbers = WEFT_ARENA_ARRAY(arena, int64_t, params));
  WEFT_TRY_ALLOC(s->inputs && s->results);
  for (int i = 0; i < params; i++) numbers[i] = i;
  s->param_numbers = numbers;
  for (int d = 0; d < s->devices; d++) {
    WEFT_TRY_ALLOC(s->inputs[d] = WEFT_ARENA_ARRAY(arena, PJRT_Buffer *, params));
    WEFT_TRY_ALLOC(s->results[d] = WEFT_ARENA_ARRAY(arena, PJRT_Buffer *, s->outputs));
  }
  return NULL;
}

static void release(cli_session *s, PJRT_Buffer ***lists, int count)
{
  for (int d = 0; lists && d < s->devices; d++)
    for (int i = 0; lists[d] && i < count; i++) {
      DESTROY(s, Buffer, buffer, lists[d][i]);
      lists[d][i] = NULL;
    }
}

void cli_session_close(cli_session *s)
{
  if (!s->api) return;
  release(s, s->inputs, s->params);
  release(s, s->results, s->outputs);
  DESTROY(s, Executable, executable, s->exe);
  DESTROY(s, LoadedExecutable, executable, s->loaded);
  DESTROY(s, Client, client, s->client);
  /* the library stays loaded, because its threads may still be running its code */
  *s = (cli_session){0};
}

/* ---- values ---- */

weft_status *cli_session_param_shape(cli_session *s, int param, const hlo_shape *whole, const hlo_shape **out)
{
  *out = whole;
  if (s->weft) {
    PJRT_Weft_ParameterDimensions_Args args = {.struct_size = sizeof args, .executable = s->exe, .parameter = param};
    WEFT_TRY(status_of(s->api, s->weft->parameter_dimensions(&args)));
    if (!hlo_shape_is_array(whole)) return NULL;
    WEFT_TRY_ALLOC(*out = hlo_shape_array(s->arena, whole->type, (int)args.num_dims, args.dims));
    return NULL;
  }
  CALL(s, partitions, Executable_NumPartitions, .executable = s->exe);
  if (partitions.num_partitions > 1)
    return WEFT_ERR(UNIMPLEMENTED, "inputs of partitioned programs on %s: the plugin does not report their shapes",
                    s->plugin);
  return NULL;
}

weft_status *cli_session_put(cli_session *s, hlo_literal *const *arguments)
{
  for (int d = 0; d < s->devices; d++)
    for (int i = 0; i < s->params; i++) {
      const hlo_shape *shape = arguments[i]->shape;
      CALL(s, args, Client_BufferFromHostBuffer, .client = s->client, .data = arguments[i]->data,
           .type = (PJRT_Buffer_Type)weft_dtype_to_pjrt(shape->type), .dims = shape->dims,
           .num_dims = hlo_shape_is_array(shape) ? (size_t)shape->rank : 0, .device = s->device_list[d],
           .host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall);
      s->inputs[d][i] = args.buffer;
      DESTROY(s, Event, event, args.done_with_host_buffer);
    }
  return NULL;
}

/* Takes the event. The wait itself needs no limit: collectives, which the event waits for, have theirs. */
static weft_status *await(cli_session *s, PJRT_Event *event)
{
  PJRT_Event_Await_Args args = {.struct_size = sizeof args, .event = event};
  weft_status *st = status_of(s->api, s->api->PJRT_Event_Await(&args));

  DESTROY(s, Event, event, event);
  return st;
}

weft_status *cli_session_run(cli_session *s, int launch_id, double *out_ms)
{
  PJRT_Event **done = WEFT_ARENA_ARRAY(s->arena, PJRT_Event *, s->devices);
  PJRT_ExecuteOptions options = {.struct_size = sizeof options, .launch_id = launch_id,
                                 .non_donatable_input_indices = s->param_numbers,
                                 .num_non_donatable_input_indices = (size_t)s->params};
  weft_status *first = NULL;
  int64_t start;

  if (s->job) {
    options.num_tasks = s->job->task_count;
    options.task_ids = s->job->tasks;
    options.incarnation_ids = s->job->incarnations;
  }
  WEFT_TRY_ALLOC(done);
  release(s, s->results, s->outputs);
  start = weft_now_ns();
  CALL(s, args, LoadedExecutable_Execute, .executable = s->loaded, .options = &options,
       .argument_lists = (PJRT_Buffer *const *const *)s->inputs, .num_devices = (size_t)s->devices,
       .num_args = (size_t)s->params, .output_lists = (PJRT_Buffer * *const *)s->results,
       .device_complete_events = done);
  for (int d = 0; d < s->devices; d++) {
    weft_status *st = await(s, done[d]);
    if (first) weft_status_free(st);
    else first = st;
  }
  *out_ms = (double)(weft_now_ns() - start) / 1e6;
  return first;
}

static weft_status *fetch(cli_session *s, PJRT_Buffer *buffer, hlo_literal **out)
{
  CALL(s, type, Buffer_ElementType, .buffer = buffer);
  CALL(s, dims, Buffer_Dimensions, .buffer = buffer);
  weft_dtype dtype = weft_dtype_from_pjrt((int)type.type);
  const hlo_shape *shape = dtype == WEFT_TOKEN ? hlo_shape_token(s->arena)
                                               : hlo_shape_array(s->arena, dtype, (int)dims.num_dims, dims.dims);
  int64_t order[HLO_MAX_RANK];
  PJRT_Buffer_MemoryLayout row_major = {.struct_size = sizeof row_major, .type = PJRT_Buffer_MemoryLayout_Type_Tiled};

  WEFT_TRY_ALLOC(shape);
  if (dims.num_dims > HLO_MAX_RANK) return WEFT_ERR(UNIMPLEMENTED, "a result of rank %zu", dims.num_dims);
  WEFT_TRY(hlo_literal_new(s->arena, shape, out));
  if (!(*out)->data) return NULL;
  for (size_t i = 0; i < dims.num_dims; i++) order[i] = (int64_t)(dims.num_dims - 1 - i);
  row_major.tiled = (PJRT_Buffer_MemoryLayout_Tiled){
    .struct_size = sizeof row_major.tiled, .minor_to_major = order, .minor_to_major_size = dims.num_dims};
  CALL(s, copy, Buffer_ToHostBuffer, .src = buffer, .host_layout = &row_major, .dst = (*out)->data,
       .dst_size = (size_t)hlo_shape_bytes(shape));
  return await(s, copy.event);
}

weft_status *cli_session_fetch(cli_session *s, hlo_literal **values)
{
  for (int d = 0; d < s->devices; d++)
    for (int i = 0; i < s->outputs; i++) WEFT_TRY(fetch(s, s->results[d][i], &values[d * s->outputs + i]));
  return NULL;
}

weft_status *cli_session_serialize(cli_session *s, const void **out_bytes, size_t *out_size)
{
  CALL(s, args, Executable_Serialize, .executable = s->exe);
  *out_size = args.serialized_bytes_size;
  *out_bytes = weft_arena_memdup(s->arena, args.serialized_bytes, args.serialized_bytes_size);
  args.serialized_executable_deleter(args.serialized_executable);
  WEFT_TRY_ALLOC(*out_bytes);
  return NULL;
}

weft_status *cli_session_optimized(cli_session *s, hlo_module **out)
{
  PJRT_Program program = {.struct_size = sizeof program};

  CALL(s, size, Executable_OptimizedProgram, .executable = s->exe, .program = &program);
  program.code = weft_arena_alloc(s->arena, program.code_size);
  WEFT_TRY_ALLOC(program.code);
  CALL(s, args, Executable_OptimizedProgram, .executable = s->exe, .program = &program);
  return hlo_from_proto(program.code, program.code_size, out);
}

weft_status *cli_session_memory(cli_session *s, cli_memory *out)
{
  CALL(s, stats, Executable_GetCompiledMemoryStats, .executable = s->exe);
  *out = (cli_memory){.parameters = stats.argument_size_in_bytes,
                      .outputs = stats.output_size_in_bytes - stats.alias_size_in_bytes,
                      .temporaries = stats.temp_size_in_bytes,
                      .bound = -1,
                      .code = stats.generated_code_size_in_bytes};
  if (s->weft) {
    PJRT_Weft_MemoryBound_Args bound = {.struct_size = sizeof bound, .executable = s->exe};
    WEFT_TRY(status_of(s->api, s->weft->memory_bound(&bound)));
    out->bound = bound.bytes;
  }
  return NULL;
}
