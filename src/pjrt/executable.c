/* pjrt/executable.c -- programs: compilation, and the queries about them. */
#include <config.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "platform/registry.h"
#include "hlo/infer.h"
#include "hlo/proto.h"
#include "hlo/text.h"
#include "pjrt/compile.pb-c.h"
#include "pjrt/extensions.h"
#include "runtime/ffi.h"
#include "stablehlo/stablehlo.h"

/* ---- programs ---- */

static void values_fini(pjrt_values *v)
{
  free(v->types);
  free(v->dims);
  free(v->ranks);
  free(v->memories);
  free(v->kinds);
  free(v->kind_sizes);
  free(v->layouts);
}

void pjrt_program_release(pjrt_program *p)
{
  if (!p || __atomic_sub_fetch(&p->refs, 1, __ATOMIC_ACQ_REL) != 0) return;
  weft_executable_release(p->exe);
  free(p->name);
  free(p->options);
  free(p->cpus);
  values_fini(&p->params);
  values_fini(&p->outputs);
  pjrt_shardings_fini(&p->param_shardings);
  pjrt_shardings_fini(&p->output_shardings);
  free(p->devices);
  free(p->places);
  free(p->assignment);
  free(p);
}

pjrt_program *pjrt_program_retain(pjrt_program *p)
{
  __atomic_add_fetch(&p->refs, 1, __ATOMIC_RELAXED); /* the caller's reference keeps it alive */
  return p;
}

/* Weft's own format "any": a program in any format that Weft reads, recognised by its content. Parameters and
 * results are row-major. */
static weft_status *read_any(const char *code, size_t size, hlo_module **out_module)
{
  WEFT_AUTO(hlo_module) module = NULL;

  if (shlo_is_program(code, size)) WEFT_TRY(shlo_parse(code, size, NULL, &module));
  else if (hlo_looks_like_proto(code, size)) WEFT_TRY(hlo_from_proto(code, size, &module));
  else WEFT_TRY(hlo_parse(code, size, &module));
  WEFT_TRY(hlo_verify(module)); /* it has an entry computation */
  WEFT_TRY(hlo_use_row_major_entry(module));
  *out_module = WEFT_MOVE(module);
  return NULL;
}

weft_status *pjrt_read_program(const PJRT_Program *program, hlo_module **out_module)
{
  WEFT_AUTO(hlo_module) module = NULL;

  *out_module = NULL;
  if (!program->format || (!program->code && program->code_size))
    return WEFT_ERR(INVALID_ARGUMENT, "a program without code or format");
  if (program->format_size == 4 && memcmp(program->format, "mlir", 4) == 0)
    WEFT_TRY(shlo_parse(program->code, program->code_size, NULL, &module));
  else if (program->format_size == 3 && memcmp(program->format, "hlo", 3) == 0)
    WEFT_TRY(hlo_from_proto(program->code, program->code_size, &module));
  else if (program->format_size == 3 && memcmp(program->format, "any", 3) == 0)
    WEFT_TRY(read_any(program->code, program->code_size, &module));
  else return WEFT_ERR(INVALID_ARGUMENT, "Unknown program format '%.*s'.", (int)program->format_size, program->format);
  WEFT_TRY(hlo_verify(module));
  *out_module = WEFT_MOVE(module);
  return NULL;
}

/* FNV-1a over words of 8 bytes, for programs with large constants. The high bits of each product are folded into its
 * low bits; otherwise the high bits of a word would change no low bit of the hash. */
static uint64_t hash_bytes(uint64_t hash, const void *data, size_t size)
{
  const char *at = data;

  for (size_t i = 0; i < size; i += sizeof hash) {
    uint64_t word = 0;
    memcpy(&word, at + i, WEFT_MIN(size - i, sizeof word));
    hash = (hash ^ word) * UINT64_C(0x100000001b3);
    hash ^= hash >> 32;
  }
  return (hash ^ size) * UINT64_C(0x100000001b3);
}

/* HLO's memory spaces as indices of memory kinds: see src/stablehlo/lower.c. */
static int memory_of(const hlo_shape *shape)
{
  int64_t space = shape->layout ? shape->layout->memory_space : 0;

  return space == 5 ? 1 : space == 6 ? 2 : 0;
}

/* Describes one leaf of a parameter or result; its dimensions are written to `dims`. */
static weft_status *describe_value(pjrt_values *v, int i, const weft_array_type *type, const hlo_shape *entry_shape,
                                   int64_t *dims)
{
  const hlo_layout *layout = entry_shape->layout;

  v->types[i] = (PJRT_Buffer_Type)weft_dtype_to_pjrt(type->type);
  v->ranks[i] = (size_t)type->rank;
  memcpy(dims, type->dims, (size_t)type->rank * sizeof *dims);
  v->memories[i] = memory_of(entry_shape);
  v->kinds[i] = pjrt_memory_kind(v->memories[i]);
  v->kind_sizes[i] = strlen(v->kinds[i]);
  if (layout && layout->minor_to_major) return pjrt_layout_get(layout->minor_to_major, type->rank, &v->layouts[i]);
  v->layouts[i] = pjrt_layout_row_major(type->rank);
  return NULL;
}

/* Made when the program is compiled, because clients ask on every execution. `shapes` hold the leaves, one shape after
 * the other. */
static weft_status *describe_values(const weft_executable *exe, int count,
                                    const weft_array_type *(*type_of)(const weft_executable *exe, int index),
                                    const hlo_shape *const *shapes, int shape_count, pjrt_values *v)
{
  size_t slots = (size_t)count + 1, dims = 0;
  int at = 0;

  for (int i = 0; i < count; i++) dims += (size_t)type_of(exe, i)->rank;
  v->count = count;
  v->types = calloc(slots, sizeof *v->types);
  v->ranks = calloc(slots, sizeof *v->ranks);
  v->dims = calloc(dims + 1, sizeof *v->dims);
  v->memories = calloc(slots, sizeof *v->memories);
  v->kinds = calloc(slots, sizeof *v->kinds);
  v->kind_sizes = calloc(slots, sizeof *v->kind_sizes);
  v->layouts = calloc(slots, sizeof *v->layouts);
  if (!v->types || !v->ranks || !v->dims || !v->memories || !v->kinds || !v->kind_sizes || !v->layouts)
    return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  dims = 0;
  for (int s = 0; s < shape_count; s++)
    for (int leaf = 0; leaf < hlo_shape_leaf_count(shapes[s]); leaf++, at++) {
      WEFT_TRY(describe_value(v, at, type_of(exe, at), hlo_shape_leaf(shapes[s], leaf), &v->dims[dims]));
      dims += v->ranks[at];
    }
  return NULL;
}

/* The pipeline keeps the entry's logical shapes and layouts beside the physical program. */
static weft_status *describe_program(pjrt_program *p)
{
  const hlo_module *module = weft_executable_module(p->exe);

  WEFT_TRY(describe_values(p->exe, weft_executable_param_count(p->exe), weft_executable_param_type,
                           module->entry_param_shapes, module->entry->param_count, &p->params));
  return describe_values(p->exe, weft_executable_output_count(p->exe), weft_executable_output_type,
                         &module->entry_result_shape, 1, &p->outputs);
}

/* A program that is compiled ahead of time (`client` NULL) is not run, so it has no devices. */
static weft_status *describe_devices(pjrt_program *p, const PJRT_Client *client)
{
  if (!client) return NULL;
  p->client_serial = client->serial;
  p->device_count = weft_executable_device_count(p->exe);
  p->devices = calloc((size_t)p->device_count + 1, sizeof *p->devices);
  p->places = calloc((size_t)p->device_count + 1, sizeof *p->places);
  if (!p->devices || !p->places) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  for (int i = 0; i < p->device_count; i++) {
    int64_t replica, partition;
    p->devices[i] = pjrt_client_device(client, (int)weft_device_id(weft_executable_device(p->exe, i)));
    weft_executable_place(p->exe, i, &replica, &partition);
    p->places[i] = (PJRT_LogicalDeviceIds){(int)replica, (int)partition};
  }
  return NULL;
}

/* Serializes the assignment in `options`, or the default one, as a DeviceAssignmentProto. */
static weft_status *serialize_assignment(pjrt_program *p, const PJRT_TopologyDescription *topology,
                                         const pjrt_options *options)
{
  PjrtPb__DeviceAssignment pb = PJRT_PB__DEVICE_ASSIGNMENT__INIT;
  int64_t replicas = options->replica_count, partitions = options->partition_count;
  PjrtPb__ComputationDevices *lists = calloc((size_t)partitions, sizeof *lists);
  PjrtPb__ComputationDevices **pointers = calloc((size_t)partitions, sizeof *pointers);
  int64_t *ids = calloc((size_t)(replicas * partitions), sizeof *ids);

  if (lists && pointers && ids) {
    pb.replica_count = (int32_t)replicas;
    pb.computation_count = (int32_t)partitions;
    for (int64_t part = 0; part < partitions; part++) {
      pjrt_pb__computation_devices__init(&lists[part]);
      lists[part].n_replica_device_ids = (size_t)replicas;
      lists[part].replica_device_ids = &ids[part * replicas];
      pointers[part] = &lists[part];
      for (int64_t r = 0; r < replicas; r++) {
        int64_t flat = r * partitions + part;
        ids[part * replicas + r] = options->assignment      ? options->assignment[flat]
                                   : flat < topology->count ? topology->descriptions[flat].id
                                                            : 0;
      }
    }
    pb.n_computation_devices = (size_t)partitions;
    pb.computation_devices = pointers;
    p->assignment_size = pjrt_pb__device_assignment__get_packed_size(&pb);
    p->assignment = malloc(p->assignment_size + 1);
    if (p->assignment) pjrt_pb__device_assignment__pack(&pb, (uint8_t *)p->assignment);
  }
  free(lists);
  free(pointers);
  free(ids);
  WEFT_TRY_ALLOC(p->assignment);
  return NULL;
}

static bool calls_python(const hlo_module *module)
{
  for (const hlo_computation *c = module->first; c; c = c->next)
    for (const hlo_instr *i = c->first; i; i = i->next)
      if (i->op == HLO_CUSTOM_CALL && rt_ffi_calls_python(i->u.custom->target)) return true;
  return false;
}

static void describe_costs(pjrt_program *p)
{
  const buf_stats *stats = buf_plan_stats(weft_executable_plan(p->exe));
  static const char *const names[] = {"bytes accessed", "flops", "transcendentals"};
  const hlo_module *module = weft_executable_module(p->exe);
  double flops = 0, transcendentals = 0;

  /* one operation per element, besides multiply-adds; loops count once, as in XLA's analysis without trip counts */
  for (const hlo_computation *c = module->first; c; c = c->next)
    for (const hlo_instr *i = c->first; i; i = i->next) {
      double elems = hlo_shape_is_array(i->shape) ? (double)hlo_shape_elems(i->shape) : 0;
      flops += hlo_multiply_add_flops(i);
      if (hlo_opcode_is_transcendental(i->op)) {
        transcendentals += elems;
      } else if (hlo_opcode_is_elementwise(i->op) && i->op != HLO_COPY && i->op != HLO_CONVERT) {
        flops += elems;
      } else if (i->op == HLO_REDUCE) {
        flops += (double)hlo_shape_elems(i->operands[0]->shape);
      }
    }
  for (int i = 0; i < 3; i++)
    p->costs[i] = (PJRT_NamedValue){.struct_size = sizeof(PJRT_NamedValue),
                                    .name = names[i],
                                    .name_size = strlen(names[i]),
                                    .type = PJRT_NamedValue_kFloat,
                                    .value_size = 1};
  p->costs[0].float_value = (float)(stats->parameter_bytes + stats->output_bytes + 2 * stats->value_bytes);
  p->costs[1].float_value = (float)flops;
  p->costs[2].float_value = (float)transcendentals;
}

/* The timeout in nanoseconds, clamped: clients may ask for any number of seconds. */
static int64_t nanoseconds(int64_t seconds)
{
  return WEFT_MAX(WEFT_MIN(seconds, INT64_MAX / WEFT_NS_PER_S), -1) * WEFT_NS_PER_S;
}

weft_compile_options pjrt_compile_options(const pjrt_options *options)
{
  return (weft_compile_options){
    .replica_count = options->replica_count,
    .partition_count = options->partition_count,
    .device_assignment = options->assignment,
    .dump_dir = options->dump_passes ? options->dump_dir : NULL,
    .order = options->order,
    .budget_bytes = options->budget_bytes,
    .no_excess_precision = options->no_excess_precision,
    .graph_kinds = options->graph_kinds,
    .graph_least = options->no_graphs ? INT64_MAX : options->graph_least,
    .collective_memory = options->collective_memory,
    .no_comm_splitting = options->no_comm_splitting,
    .collective_timeout_ns = nanoseconds(options->collective_timeout_s),
    .collective_warn_ns = nanoseconds(options->collective_warn_s),
  };
}

weft_status *pjrt_program_new(const void *options_data, size_t options_size, pjrt_program **out_program)
{
  WEFT_AUTO(pjrt_program) p = calloc(1, sizeof *p);

  *out_program = NULL;
  WEFT_TRY_ALLOC(p);
  p->refs = 1;
  p->options = malloc(options_size + 1);
  WEFT_TRY_ALLOC(p->options);
  if (options_size) memcpy(p->options, options_data, options_size);
  p->options_size = options_size;
  *out_program = WEFT_MOVE(p);
  return NULL;
}

weft_status *pjrt_program_describe(pjrt_program *p, pjrt_target on, const pjrt_options *options)
{
  const hlo_module *module = weft_executable_module(p->exe);

  p->portable = options->portable;
  p->name = strdup(module->name);
  p->cpus = options->cpus ? strdup(options->cpus) : NULL;
  WEFT_TRY_ALLOC(p->name && (p->cpus || !options->cpus));
  if (options->partition_count > 1) /* as the compiler has completed them */
    WEFT_TRY(pjrt_shardings_read(module, &p->param_shardings, &p->output_shardings));
  WEFT_TRY(serialize_assignment(p, on.topology, options));
  WEFT_TRY(describe_program(p));
  WEFT_TRY(describe_devices(p, on.client));
  describe_costs(p);
  p->calls_python = calls_python(module);
  return NULL;
}

/* Clients derive launch ids from the fingerprint, so all processes must have the same one. The options are left out:
 * they contain the number of the process. */
static weft_status *hash_source(const hlo_module *module, uint64_t *hash)
{
  void *source;
  size_t size;

  WEFT_TRY(hlo_to_proto(module, &source, &size));
  *hash = hash_bytes(UINT64_C(0xcbf29ce484222325), source, size);
  free(source);
  return NULL;
}

static void set_fingerprint(pjrt_program *p, uint64_t hash, const PJRT_TopologyDescription *topology)
{
  if (topology->process_count == 1) hash = hash_bytes(hash, p->options, p->options_size);
  else hash = hash_bytes(hash, p->assignment, p->assignment_size);
  hash = hash_bytes(hash, pjrt_platform_version, strlen(pjrt_platform_version));
  snprintf(p->fingerprint, sizeof p->fingerprint, "weft-%016" PRIx64, hash);
}

/* Takes `module`, and sets in it what the options say about the program. */
static weft_status *compile_module(pjrt_program *p, pjrt_target on, hlo_module *module, const pjrt_options *options)
{
  WEFT_AUTO(hlo_module) owned = module;
  weft_compile_options compile_options = pjrt_compile_options(options);
  int dump_number = 0;

  pjrt_dump(options, module, "before_optimizations", &dump_number);
  module->replica_count = options->replica_count;
  module->num_partitions = options->partition_count;
  WEFT_TRY(
    hlo_ints_new(module, options->parameter_flag_count, options->parameter_flags, &module->propagate_to_parameters));
  WEFT_TRY(hlo_ints_new(module, options->output_flag_count, options->output_flags, &module->propagate_to_output));
  WEFT_TRY(pjrt_options_lay_out(options, module));
  WEFT_TRY(weft_compile(on.platform, WEFT_MOVE(owned), &compile_options, &p->exe));
  pjrt_dump(options, weft_executable_module(p->exe), "cpu_after_optimizations", &dump_number);
  return pjrt_program_describe(p, on, options);
}

/* Takes `module`.  `options_data` is kept for Serialize and GetCompileOptions. */
static weft_status *compile(pjrt_target on, hlo_module *module, const void *options_data, size_t options_size,
                            pjrt_program **out_program)
{
  WEFT_AUTO(hlo_module) owned = module;
  WEFT_AUTO(pjrt_program) p = NULL;
  pjrt_options options;
  uint64_t hash;

  WEFT_TRY(pjrt_program_new(options_data, options_size, &p));
  WEFT_TRY(hash_source(module, &hash));
  WEFT_TRY(pjrt_options_read(options_data, options_size, &options));
  weft_status *st = compile_module(p, on, WEFT_MOVE(owned), &options);
  pjrt_options_fini(&options);
  WEFT_TRY(st);
  set_fingerprint(p, hash, on.topology);
  *out_program = WEFT_MOVE(p);
  return NULL;
}

/* Takes the reference. */
weft_status *pjrt_loaded_new(PJRT_Client *client, pjrt_program *program, PJRT_LoadedExecutable **out)
{
  *out = calloc(1, sizeof **out);
  if (!*out) {
    pjrt_program_release(program);
    return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  }
  (*out)->program = program;
  (*out)->client = pjrt_client_retain(client);
  pjrt_handle_born(*out, PJRT_KIND_LOADED);
  return NULL;
}

PJRT_Error *pjrt_Client_Compile(PJRT_Client_Compile_Args *args)
{
  hlo_module *module;
  pjrt_program *program;

  weft_status *st;

  PJRT_TRY(pjrt_read_program(args->program, &module));
  pjrt_allow_inspection(true);
  st = compile(pjrt_target_of(args->client), module, args->compile_options, args->compile_options_size, &program);
  pjrt_allow_inspection(false);
  PJRT_TRY(st);
  return pjrt_error(pjrt_loaded_new(args->client, program, &args->executable));
}

/* Takes the reference. */
static weft_status *executable_new(pjrt_program *program, PJRT_Executable **out)
{
  *out = calloc(1, sizeof **out);
  if (!*out) {
    pjrt_program_release(program);
    return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  }
  (*out)->program = program;
  pjrt_handle_born(*out, PJRT_KIND_EXECUTABLE);
  return NULL;
}

/* A platform that stands for process 0 of `topology`: it compiles, and nothing runs on it. */
static weft_status *platform_for(const PJRT_TopologyDescription *topology, weft_platform **out_platform)
{
  weft_platform_options options = {.threads = 1};
  int64_t *ids = calloc((size_t)topology->count + 1, sizeof *ids);
  weft_status *st;

  WEFT_TRY_ALLOC(ids);
  for (int i = 0; i < topology->count; i++)
    if (topology->descriptions[i].process_index == 0) ids[options.device_count++] = topology->descriptions[i].id;
  options.device_ids = ids;
  st = plat_new(&options, out_platform);
  free(ids);
  return st;
}

static weft_status *compile_ahead(PJRT_Compile_Args *args, pjrt_program **out_program)
{
  WEFT_AUTO(weft_platform) platform = NULL;
  hlo_module *module;
  pjrt_target on;

  if (!args->client && !args->topology) return WEFT_ERR(INVALID_ARGUMENT, "neither a client nor a topology was given");
  WEFT_TRY(pjrt_read_program(args->program, &module));
  if (args->client)
    return compile(pjrt_target_of(args->client), module, args->compile_options, args->compile_options_size,
                   out_program);
  on = (pjrt_target){.topology = args->topology};
  weft_status *st = platform_for(args->topology, &platform);
  if (st) {
    hlo_module_free(module);
    return st;
  }
  on.platform = platform;
  return compile(on, module, args->compile_options, args->compile_options_size, out_program);
}

PJRT_Error *pjrt_Compile(PJRT_Compile_Args *args)
{
  pjrt_program *program;

  PJRT_TRY(compile_ahead(args, &program));
  return pjrt_error(executable_new(program, &args->executable));
}

/* ---- questions ---- */

PJRT_Error *pjrt_Executable_Destroy(PJRT_Executable_Destroy_Args *args)
{
  if (!args->executable) return NULL;
  pjrt_handle_gone(args->executable);
  pjrt_program_release(args->executable->program);
  free(args->executable);
  return NULL;
}

PJRT_Error *pjrt_LoadedExecutable_Destroy(PJRT_LoadedExecutable_Destroy_Args *args)
{
  if (!args->executable) return NULL;
  pjrt_handle_gone(args->executable);
  pjrt_program_release(args->executable->program);
  pjrt_client_release(args->executable->client);
  free(args->executable);
  return NULL;
}

PJRT_Error *pjrt_LoadedExecutable_GetExecutable(PJRT_LoadedExecutable_GetExecutable_Args *args)
{
  return pjrt_error(executable_new(pjrt_program_retain(args->loaded_executable->program), &args->executable));
}

PJRT_Error *pjrt_LoadedExecutable_Delete(PJRT_LoadedExecutable_Delete_Args *args)
{
  __atomic_store_n(&args->executable->deleted, true, __ATOMIC_RELEASE);
  return NULL;
}

PJRT_Error *pjrt_LoadedExecutable_IsDeleted(PJRT_LoadedExecutable_IsDeleted_Args *args)
{
  args->is_deleted = __atomic_load_n(&args->executable->deleted, __ATOMIC_ACQUIRE);
  return NULL;
}

PJRT_Error *pjrt_LoadedExecutable_AddressableDevices(PJRT_LoadedExecutable_AddressableDevices_Args *args)
{
  args->addressable_devices = args->executable->program->devices;
  args->num_addressable_devices = (size_t)args->executable->program->device_count;
  return NULL;
}

PJRT_Error *pjrt_LoadedExecutable_AddressableDeviceLogicalIds(
  PJRT_LoadedExecutable_AddressableDeviceLogicalIds_Args *args)
{
  args->addressable_device_logical_ids = args->executable->program->places;
  args->num_addressable_device_logical_ids = (size_t)args->executable->program->device_count;
  return NULL;
}

static void keep_assignment(PJRT_DeviceAssignmentSerialized *assignment)
{
  (void)assignment; /* lives with the program */
}

PJRT_Error *pjrt_LoadedExecutable_GetDeviceAssignment(PJRT_LoadedExecutable_GetDeviceAssignment_Args *args)
{
  const pjrt_program *p = args->executable->program;

  args->serialized_bytes = p->assignment;
  args->serialized_bytes_size = p->portable ? 0 : p->assignment_size;
  args->serialized_device_assignment = (PJRT_DeviceAssignmentSerialized *)p->assignment;
  args->serialized_device_assignment_deleter = keep_assignment;
  return NULL;
}

PJRT_Error *pjrt_Executable_Name(PJRT_Executable_Name_Args *args)
{
  args->executable_name = args->executable->program->name;
  args->executable_name_size = strlen(args->executable_name);
  return NULL;
}

PJRT_Error *pjrt_Executable_NumReplicas(PJRT_Executable_NumReplicas_Args *args)
{
  args->num_replicas = (size_t)weft_executable_replica_count(args->executable->program->exe);
  return NULL;
}

PJRT_Error *pjrt_Executable_NumPartitions(PJRT_Executable_NumPartitions_Args *args)
{
  args->num_partitions = (size_t)weft_executable_partition_count(args->executable->program->exe);
  return NULL;
}

PJRT_Error *pjrt_Executable_NumOutputs(PJRT_Executable_NumOutputs_Args *args)
{
  args->num_outputs = (size_t)args->executable->program->outputs.count;
  return NULL;
}

PJRT_Error *pjrt_Executable_SizeOfGeneratedCodeInBytes(PJRT_Executable_SizeOfGeneratedCodeInBytes_Args *args)
{
  args->size_in_bytes = weft_executable_code_bytes(args->executable->program->exe);
  return NULL;
}

PJRT_Error *pjrt_Executable_Fingerprint(PJRT_Executable_Fingerprint_Args *args)
{
  args->executable_fingerprint = args->executable->program->fingerprint;
  args->executable_fingerprint_size = strlen(args->executable_fingerprint);
  return NULL;
}

PJRT_Error *pjrt_LoadedExecutable_Fingerprint(PJRT_LoadedExecutable_Fingerprint_Args *args)
{
  args->executable_fingerprint = args->executable->program->fingerprint;
  args->executable_fingerprint_size = strlen(args->executable_fingerprint);
  return NULL;
}

PJRT_Error *pjrt_Executable_GetCostAnalysis(PJRT_Executable_GetCostAnalysis_Args *args)
{
  args->properties = args->executable->program->costs;
  args->num_properties = WEFT_COUNT(args->executable->program->costs);
  return NULL;
}

PJRT_Error *pjrt_Executable_GetCompiledMemoryStats(PJRT_Executable_GetCompiledMemoryStats_Args *args)
{
  const pjrt_program *p = args->executable->program;
  const buf_stats *stats = buf_plan_stats(weft_executable_plan(p->exe));
  size_t head = offsetof(PJRT_Executable_GetCompiledMemoryStats_Args, generated_code_size_in_bytes);
  int64_t all = stats->parameter_bytes + stats->output_bytes + stats->temp_bytes + stats->constant_bytes +
                weft_executable_packed_bytes(p->exe, false);

  if (args->struct_size > head) memset((char *)args + head, 0, WEFT_MIN(args->struct_size, sizeof *args) - head);
  args->generated_code_size_in_bytes = weft_executable_code_bytes(p->exe);
  args->argument_size_in_bytes = stats->parameter_bytes;
  args->output_size_in_bytes = stats->output_bytes + stats->alias_bytes;
  args->alias_size_in_bytes = stats->alias_bytes;
  args->temp_size_in_bytes = stats->temp_bytes;
  if (PJRT_HAS(args, peak_memory_in_bytes)) args->peak_memory_in_bytes = all;
  if (PJRT_HAS(args, total_size_in_bytes)) args->total_size_in_bytes = all;
  return NULL;
}

PJRT_Error *pjrt_Executable_OutputElementTypes(PJRT_Executable_OutputElementTypes_Args *args)
{
  args->output_types = args->executable->program->outputs.types;
  args->num_output_types = (size_t)args->executable->program->outputs.count;
  return NULL;
}

PJRT_Error *pjrt_Executable_OutputDimensions(PJRT_Executable_OutputDimensions_Args *args)
{
  args->num_outputs = (size_t)args->executable->program->outputs.count;
  args->dims = args->executable->program->outputs.dims;
  args->dim_sizes = args->executable->program->outputs.ranks;
  return NULL;
}

PJRT_Error *pjrt_Executable_OutputMemoryKinds(PJRT_Executable_OutputMemoryKinds_Args *args)
{
  args->num_outputs = (size_t)args->executable->program->outputs.count;
  args->memory_kinds = args->executable->program->outputs.kinds;
  args->memory_kind_sizes = args->executable->program->outputs.kind_sizes;
  return NULL;
}

PJRT_Error *pjrt_Executable_ParameterMemoryKinds(PJRT_Executable_ParameterMemoryKinds_Args *args)
{
  args->num_parameters = (size_t)args->executable->program->params.count;
  args->memory_kinds = args->executable->program->params.kinds;
  args->memory_kind_sizes = args->executable->program->params.kind_sizes;
  return NULL;
}

static void keep_options(PJRT_SerializedCompileOptions *options) { (void)options; /* they live with the program */ }

PJRT_Error *pjrt_Executable_GetCompileOptions(PJRT_Executable_GetCompileOptions_Args *args)
{
  args->serialized_bytes = args->executable->program->options;
  args->serialized_bytes_size = args->executable->program->options_size;
  args->serialized_compile_options = (PJRT_SerializedCompileOptions *)args->executable->program->options;
  args->serialized_compile_options_deleter = keep_options;
  return NULL;
}

/* Clients call twice: without `code` for the size, then for the bytes. */
PJRT_Error *pjrt_Executable_OptimizedProgram(PJRT_Executable_OptimizedProgram_Args *args)
{
  static const char format[] = "hlo_with_config";
  void *data = NULL;
  size_t size = 0;
  weft_status *st = NULL;

  PJRT_TRY(hlo_to_proto_with_config(weft_executable_module(args->executable->program->exe), &data, &size));
  args->program->format = format;
  args->program->format_size = sizeof format - 1;
  if (args->program->code && args->program->code_size < size)
    st = WEFT_ERR(INVALID_ARGUMENT, "code_size is %zu, the program has %zu bytes", args->program->code_size, size);
  else if (args->program->code) memcpy(args->program->code, data, size);
  args->program->code_size = size;
  free(data);
  return pjrt_error(st);
}

/* ---- Weft's own extension ---- */

static PJRT_Error *parameter_dimensions(PJRT_Weft_ParameterDimensions_Args *args)
{
  const weft_array_type *type;

  PJRT_TRY(pjrt_check_handle(args->executable, PJRT_KIND_EXECUTABLE, "executable"));
  if (args->parameter < 0 || args->parameter >= args->executable->program->params.count)
    return pjrt_error(
      WEFT_ERR(INVALID_ARGUMENT, "parameter %d of %d", args->parameter, args->executable->program->params.count));
  type = weft_executable_param_type(args->executable->program->exe, args->parameter);
  args->dims = type->dims;
  args->num_dims = (size_t)type->rank;
  if (PJRT_HAS(args, type)) args->type = (PJRT_Buffer_Type)weft_dtype_to_pjrt(type->type);
  return NULL;
}

static PJRT_Error *memory_bound(PJRT_Weft_MemoryBound_Args *args)
{
  PJRT_TRY(pjrt_check_handle(args->executable, PJRT_KIND_EXECUTABLE, "executable"));
  args->bytes = buf_plan_stats(weft_executable_plan(args->executable->program->exe))->lower_bound_bytes;
  return NULL;
}

PJRT_Weft_Extension pjrt_weft_extension = {
    .base = {.struct_size = sizeof(PJRT_Weft_Extension), .type = PJRT_Extension_Type_Weft},
    .parameter_dimensions = parameter_dimensions,
    .memory_bound = memory_bound,
    .ffi_register = pjrt_ffi_register,
    .leave = pjrt_leave};
