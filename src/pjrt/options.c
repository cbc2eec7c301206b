/* pjrt/options.c -- CompileOptionsProto: the options with which a client compiles a program. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"
#include "hlo/proto.h"
#include "pjrt/compile.pb-c.h"
#include "pjrt/internal.h"

enum { MAX_ASSIGNMENT = 1 << 22 };

typedef enum option_kind { BOOL, INT, REAL, TEXT } option_kind;
static const struct { const char *name; option_kind kind; } debug_options[] = {
#define X(name, kind) {#name, kind},
#include "pjrt/debug_options.def"
#undef X
};

/* One value of jit(compiler_options=...), converted as XLA converts it. */
typedef struct override_value {
  bool flag;
  int64_t number;
  const char *text;
} override_value;

static weft_status *convert(const PjrtPb__Override *o, option_kind kind, override_value *out)
{
  const PjrtPb__OverrideValue *v = o->value;
  char *end;

  *out = (override_value){0};
  if (!v) return WEFT_ERR(INVALID_ARGUMENT, "compile option '%s' has no value", o->key);
  if (v->value_case == PJRT_PB__OVERRIDE_VALUE__VALUE_TEXT) {
    out->text = v->text;
    if (kind == BOOL) {
      out->flag = strcmp(v->text, "True") == 0;
      if (!out->flag && strcmp(v->text, "False") != 0)
        return WEFT_ERR(INVALID_ARGUMENT, "While setting option %s, '%s' is not a valid bool value.", o->key, v->text);
    } else if (kind == INT) {
      errno = 0;
      out->number = strtoll(v->text, &end, 10);
      if (end == v->text || *end || errno)
        return WEFT_ERR(INVALID_ARGUMENT, "While setting option %s, '%s' is not a valid int value.", o->key, v->text);
    } else if (kind == REAL) {
      strtod(v->text, &end);
      if (end == v->text || *end)
        return WEFT_ERR(INVALID_ARGUMENT, "While setting option %s, '%s' is not a valid float value.", o->key, v->text);
    }
    return NULL;
  }
  if ((v->value_case == PJRT_PB__OVERRIDE_VALUE__VALUE_FLAG) != (kind == BOOL) ||
      (kind == INT && v->value_case != PJRT_PB__OVERRIDE_VALUE__VALUE_NUMBER) || kind == TEXT)
    return WEFT_ERR(INVALID_ARGUMENT, "While setting option %s, the value has the wrong type.", o->key);
  out->flag = v->flag;
  out->number = v->value_case == PJRT_PB__OVERRIDE_VALUE__VALUE_NUMBER ? v->number : 0;
  return NULL;
}

static weft_status *set_text(char **field, const char *text)
{
  free(*field);
  *field = text && *text ? strdup(text) : NULL;
  return text && *text && !*field ? WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory") : NULL;
}

static const option_kind *find_debug_option(const char *name)
{
  for (size_t i = 0; i < WEFT_COUNT(debug_options); i++)
    if (strcmp(debug_options[i].name, name) == 0) return &debug_options[i].kind;
  return NULL;
}

/* ---- xla_gpu_enable_command_buffer: kinds of steps that may be part of a graph ---- */

static const char *const graph_kind_names[WEFT_GRAPH_KINDS] = {
  [WEFT_GRAPH_FUSION] = "FUSION", [WEFT_GRAPH_CUBLAS] = "CUBLAS", [WEFT_GRAPH_CUDNN] = "CUDNN",
  [WEFT_GRAPH_COLLECTIVES] = "COLLECTIVES", [WEFT_GRAPH_CONDITIONAL] = "CONDITIONAL", [WEFT_GRAPH_WHILE] = "WHILE",
  [WEFT_GRAPH_CUSTOM_CALL] = "CUSTOM_CALL", [WEFT_GRAPH_CUBLASLT] = "CUBLASLT",
  [WEFT_GRAPH_DYNAMIC_SLICE_FUSION] = "DYNAMIC_SLICE_FUSION",
};
/* XLA's default. */
static const uint32_t usual_graph_kinds = 1u << WEFT_GRAPH_FUSION | 1u << WEFT_GRAPH_CUBLAS | 1u << WEFT_GRAPH_CUDNN |
                                          1u << WEFT_GRAPH_CONDITIONAL | 1u << WEFT_GRAPH_CUSTOM_CALL |
                                          1u << WEFT_GRAPH_CUBLASLT | 1u << WEFT_GRAPH_DYNAMIC_SLICE_FUSION;

static void set_graph_kinds(uint32_t kinds, pjrt_options *out)
{
  out->no_graphs = kinds == 0;
  out->graph_kinds = kinds == usual_graph_kinds ? 0 : kinds;
}

/* A list of names, which replaces the default; or of names with + or -, which changes the default. */
static weft_status *read_graph_kinds(const char *option, const char *text, pjrt_options *out)
{
  bool has_signs = *text == '+' || *text == '-';
  uint32_t kinds = has_signs ? usual_graph_kinds : 0;

  for (size_t length; *text; text += length + (text[length] == ',')) {
    length = strcspn(text, ",");
    const char *name = text + has_signs;
    int kind = 1;
    while (kind < WEFT_GRAPH_KINDS && (strlen(graph_kind_names[kind]) != length - has_signs ||
                                       strncasecmp(graph_kind_names[kind], name, length - has_signs) != 0))
      kind++;
    if (kind == WEFT_GRAPH_KINDS || length == 0 || (has_signs && *text != '+' && *text != '-'))
      return WEFT_ERR(INVALID_ARGUMENT, "While setting option %s, '%.*s' is not a valid enum value.", option,
                      (int)WEFT_MIN(length, 100), text);
    if (has_signs && *text == '-') kinds &= ~(1u << kind);
    else kinds |= 1u << kind;
  }
  set_graph_kinds(kinds, out);
  return NULL;
}

static weft_status *apply_override(const PjrtPb__Override *o, pjrt_options *out)
{
  const option_kind *kind;
  override_value value;

  if (strcmp(o->key, "weft_memory") == 0) {
    WEFT_TRY(convert(o, TEXT, &value));
    WEFT_TRY_NOTE(buf_order_parse(value.text, &out->order, &out->budget_bytes), "compile option weft_memory");
    return NULL;
  }
  if (strcmp(o->key, "weft_cpu") == 0) {
    WEFT_TRY(convert(o, TEXT, &value));
    return set_text(&out->cpus, value.text);
  }
  if (!(kind = find_debug_option(o->key))) return WEFT_ERR(INVALID_ARGUMENT, "No such compile option: '%s'", o->key);
  WEFT_TRY(convert(o, *kind, &value));
  if (strcmp(o->key, "xla_dump_to") == 0) return set_text(&out->dump_dir, value.text);
  if (strcmp(o->key, "xla_dump_hlo_pass_re") == 0) out->dump_passes = *value.text;
  if (strcmp(o->key, "xla_dump_hlo_as_text") == 0) out->dump_text = value.flag;
  if (strcmp(o->key, "xla_dump_hlo_as_proto") == 0) out->dump_proto = value.flag;
  if (strcmp(o->key, "xla_allow_excess_precision") == 0) out->no_excess_precision = !value.flag;
  if (strcmp(o->key, "xla_gpu_enable_nccl_user_buffers") == 0) out->collective_memory = value.flag;
  if (strcmp(o->key, "xla_gpu_enable_nccl_comm_splitting") == 0) out->no_comm_splitting = !value.flag;
  if (strcmp(o->key, "xla_gpu_graph_min_graph_size") == 0) out->graph_least = WEFT_MAX(value.number, 1);
  if (strcmp(o->key, "xla_gpu_enable_command_buffer") == 0) return read_graph_kinds(o->key, value.text, out);
  if (strcmp(o->key, "xla_cpu_collective_timeout_seconds") == 0 ||
      strcmp(o->key, "xla_cpu_collective_call_terminate_timeout_seconds") == 0)
    out->collective_timeout_s = value.number;
  if (strcmp(o->key, "xla_cpu_collective_call_warn_stuck_seconds") == 0) out->collective_warn_s = value.number;
  return NULL;
}

/* One flag of XLA_FLAGS as the override that it stands for: "--name=value", or "--name" of a bool that is true. */
static weft_status *apply_flag(const char *word, size_t length, pjrt_options *out)
{
  /* this flag and its field have different names */
  static const char stuck[] = "xla_cpu_collective_call_warn_stuck_timeout_seconds";
  PjrtPb__OverrideValue value = PJRT_PB__OVERRIDE_VALUE__INIT;
  PjrtPb__Override flag = PJRT_PB__OVERRIDE__INIT;
  char text[4096], *equals, *name = text + 2;
  const option_kind *kind;

  snprintf(text, sizeof text, "%.*s", (int)WEFT_MIN(length, sizeof text - 1), word);
  if ((equals = strchr(text, '='))) *equals = '\0';
  value.value_case = PJRT_PB__OVERRIDE_VALUE__VALUE_TEXT;
  value.text = equals ? equals + 1 : (char *)"true";
  flag.key = strcmp(name, stuck) == 0 ? (char *)"xla_cpu_collective_call_warn_stuck_seconds" : name;
  flag.value = &value;
  kind = strncmp(text, "--", 2) == 0 ? find_debug_option(flag.key) : NULL;
  if (!kind) {
    WEFT_LOG("pjrt", WARN, "XLA_FLAGS: %s is no flag of XLA's and is not looked at", text);
    return NULL;
  }
  if (*kind == BOOL && (strcasecmp(value.text, "true") == 0 || strcmp(value.text, "1") == 0))
    value.text = (char *)"True";
  if (*kind == BOOL && (strcasecmp(value.text, "false") == 0 || strcmp(value.text, "0") == 0))
    value.text = (char *)"False";
  WEFT_TRY_NOTE(apply_override(&flag, out), "XLA_FLAGS");
  return NULL;
}

/* Applies XLA_FLAGS. XLA's own clients read the environment themselves and send DebugOptions; a client that sends
 * none is not XLA's. */
static weft_status *read_environment(pjrt_options *out)
{
  const char *at = getenv("XLA_FLAGS");
  size_t length;

  for (; at && *(at += strspn(at, " \t\n")); at += length) {
    length = strcspn(at, " \t\n");
    WEFT_TRY(apply_flag(at, length, out));
  }
  return NULL;
}

/* Reads the devices as [replica][partition]; the message has them by partition, then replica. */
static weft_status *read_assignment(const PjrtPb__DeviceAssignment *a, pjrt_options *out)
{
  int64_t replicas = a->replica_count, partitions = a->computation_count;

  if (replicas < 1 || partitions < 1 || replicas * partitions > MAX_ASSIGNMENT ||
      a->n_computation_devices != (size_t)partitions)
    return WEFT_ERR(INVALID_ARGUMENT, "a device assignment of %lld replicas and %lld computations with %zu lists",
                    (long long)replicas, (long long)partitions, a->n_computation_devices);
  out->assignment = calloc((size_t)(replicas * partitions), sizeof *out->assignment);
  WEFT_TRY_ALLOC(out->assignment);
  out->assignment_count = (int)(replicas * partitions);
  for (int64_t p = 0; p < partitions; p++) {
    const PjrtPb__ComputationDevices *devices = a->computation_devices[p];
    if (devices->n_replica_device_ids != (size_t)replicas)
      return WEFT_ERR(INVALID_ARGUMENT, "computation %lld of the device assignment has %zu devices, not %lld",
                      (long long)p, devices->n_replica_device_ids, (long long)replicas);
    for (int64_t r = 0; r < replicas; r++) out->assignment[r * partitions + p] = devices->replica_device_ids[r];
  }
  out->replica_count = replicas;
  out->partition_count = partitions;
  return NULL;
}

/* jaxlib sends all of DebugOptions, so a value that is XLA's default counts as not set. */
static int64_t unless_default(int64_t value, int64_t xla_default) { return value == xla_default ? 0 : value; }

static weft_status *read_debug_options(const PjrtPb__DebugOptions *pb, pjrt_options *out)
{
  int64_t whole = unless_default(pb->collective_timeout_s, 1800),
          call = unless_default(pb->collective_terminate_timeout_s, 40);

  /* a client that sends no graph_least is not XLA's, and its list of kinds is not empty but absent */
  if (pb->graph_least != 0) {
    uint32_t kinds = 0;
    for (size_t i = 0; i < pb->n_graph_kinds; i++)
      if (pb->graph_kinds[i] > 0 && pb->graph_kinds[i] < WEFT_GRAPH_KINDS) kinds |= 1u << pb->graph_kinds[i];
    set_graph_kinds(kinds, out);
    out->graph_least = WEFT_MAX(unless_default(pb->graph_least, 5), 0);
  }
  out->collective_timeout_s = whole > 0 && call > 0 ? WEFT_MIN(whole, call) : WEFT_MAX(whole, call);
  out->collective_warn_s = unless_default(pb->collective_warn_stuck_s, 20);
  out->dump_passes = pb->dump_pass_re && *pb->dump_pass_re; /* any pattern: all passes */
  out->no_excess_precision = pb->excess_case == PJRT_PB__DEBUG_OPTIONS__EXCESS_ALLOW_EXCESS_PRECISION &&
                             !pb->allow_excess_precision;
  out->dump_text = pb->dump_as_text;
  out->dump_proto = pb->dump_as_proto;
  return set_text(&out->dump_dir, pb->dump_to);
}

static weft_status *read_flags(size_t count, const protobuf_c_boolean *flags, int *out_count, int64_t **out)
{
  *out = calloc(count + 1, sizeof **out);
  WEFT_TRY_ALLOC(*out);
  *out_count = (int)count;
  for (size_t i = 0; i < count; i++) (*out)[i] = flags[i] != 0;
  return NULL;
}

static weft_status *read_options(const PjrtPb__CompileOptions *pb, pjrt_options *out)
{
  const PjrtPb__BuildOptions *build = pb->build;

  out->portable = pb->portable;
  out->replica_count = out->partition_count = 1;
  if (pb->tupled_arguments) return WEFT_ERR(UNIMPLEMENTED, "compile option parameter_is_tupled_arguments");
  if (build) {
    if (build->num_replicas > 0) out->replica_count = build->num_replicas;
    if (build->num_partitions > 0) out->partition_count = build->num_partitions;
    if (out->replica_count > MAX_ASSIGNMENT || out->partition_count > MAX_ASSIGNMENT)
      return WEFT_ERR(INVALID_ARGUMENT, "%lld replicas of %lld partitions", (long long)out->replica_count,
                      (long long)out->partition_count);
    out->use_shardy = build->use_shardy;
    WEFT_TRY(read_flags(build->n_propagate_to_parameters, build->propagate_to_parameters, &out->parameter_flag_count,
                        &out->parameter_flags));
    WEFT_TRY(read_flags(build->n_propagate_to_output, build->propagate_to_output, &out->output_flag_count,
                        &out->output_flags));
    if (build->device_assignment && !out->portable) WEFT_TRY(read_assignment(build->device_assignment, out));
  }
  WEFT_TRY(build && build->debug_options ? read_debug_options(build->debug_options, out) : read_environment(out));
  for (size_t i = 0; i < pb->n_overrides; i++) WEFT_TRY(apply_override(pb->overrides[i], out));
  return NULL;
}

weft_status *pjrt_options_read(const void *data, size_t size, pjrt_options *out_options)
{
  PjrtPb__CompileOptions *pb = pjrt_pb__compile_options__unpack(NULL, size, data);
  weft_status *st;

  *out_options = (pjrt_options){.message = pb};
  if (!pb)
    return WEFT_ERR(INVALID_ARGUMENT, "PJRT_Client_Compile: failed to deserialize CompileOptionsProto (%zu bytes)",
                    size);
  st = read_options(pb, out_options);
  if (st) pjrt_options_fini(out_options);
  return st;
}

void pjrt_options_fini(pjrt_options *options)
{
  if (options->message) pjrt_pb__compile_options__free_unpacked(options->message, NULL);
  free(options->assignment);
  free(options->dump_dir);
  free(options->cpus);
  free(options->parameter_flags);
  free(options->output_flags);
  *options = (pjrt_options){0};
}

/* ---- layouts of arguments and result ---- */

/* `own` with the layout of `asked`. The program's memory kind stays unless `asked` has one. */
static weft_status *lie_as(weft_arena *arena, const hlo_shape *own, const hlo_shape *asked, const hlo_shape **out)
{
  int64_t space = own->layout ? own->layout->memory_space : 0;

  *out = asked;
  if (hlo_shape_is_tuple(own)) {
    const hlo_shape **elements = WEFT_ARENA_ARRAY(arena, const hlo_shape *, own->rank);
    WEFT_TRY_ALLOC(elements);
    for (int i = 0; i < own->rank; i++) WEFT_TRY(lie_as(arena, own->elements[i], asked->elements[i], &elements[i]));
    WEFT_TRY_ALLOC(*out = hlo_shape_tuple(arena, own->rank, elements));
  } else if (asked->layout && (asked->layout->tile_count || asked->layout->split_count)) {
    return WEFT_ERR(UNIMPLEMENTED, "tiled layouts");
  } else if (space && !(asked->layout && asked->layout->memory_space)) {
    WEFT_TRY_ALLOC(*out = hlo_shape_in_memory(arena, asked, space));
  }
  return NULL;
}

static weft_status *lay_out(hlo_module *module, const hlo_shape *own, ProtobufCBinaryData bytes, const hlo_shape **out)
{
  const hlo_shape *asked;
  char a[128], b[128];

  WEFT_TRY(hlo_shape_from_proto(&module->arena, bytes.data, bytes.len, &asked));
  if (!hlo_shape_equal(own, asked, false))
    return WEFT_ERR(INVALID_ARGUMENT, "the layout is for %s, the program has %s", hlo_shape_format(asked, a, sizeof a),
                    hlo_shape_format(own, b, sizeof b));
  return lie_as(&module->arena, own, asked, out);
}

weft_status *pjrt_options_lay_out(const pjrt_options *options, hlo_module *module)
{
  const PjrtPb__CompileOptions *pb = options->message;
  const hlo_computation *entry = module->entry;
  bool has_result = pb->build && pb->build->result_layout.len > 0;

  if (pb->n_argument_layouts == 0 && !has_result) return NULL;
  if (pb->n_argument_layouts && pb->n_argument_layouts != (size_t)entry->param_count)
    return WEFT_ERR(INVALID_ARGUMENT, "CompileOptions specify %zu argument layouts, but computation has %d arguments",
                    pb->n_argument_layouts, entry->param_count);
  if (!module->has_entry_layout) {
    module->entry_param_shapes = WEFT_ARENA_ARRAY(&module->arena, const hlo_shape *, entry->param_count);
    WEFT_TRY_ALLOC(module->entry_param_shapes);
    for (int i = 0; i < entry->param_count; i++) module->entry_param_shapes[i] = hlo_parameter(entry, i)->shape;
    module->entry_result_shape = entry->root->shape;
    module->has_entry_layout = true;
  }
  for (size_t i = 0; i < pb->n_argument_layouts; i++)
    WEFT_TRY_NOTE(
      lay_out(module, module->entry_param_shapes[i], pb->argument_layouts[i], &module->entry_param_shapes[i]),
      "layout of argument %zu", i);
  if (has_result)
    WEFT_TRY_NOTE(lay_out(module, module->entry_result_shape, pb->build->result_layout, &module->entry_result_shape),
                  "layout of the result");
  return NULL;
}
