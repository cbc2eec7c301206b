/* pjrt/custom_partitioner.c -- the Custom_Partitioner extension (jax.experimental.custom_partitioning), and
 * jax.debug.inspect_array_sharding: functions of the framework that the SPMD partitioner calls while it compiles. */
#include <config.h>

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "hlo/proto.h"
#include "passes/custom_partitioner.h"
#include "pjrt/extensions.h"
#include "stablehlo/stablehlo.h"

/* ---- custom_partitioning ---- */

/* Serialised arguments; all are freed at the end. */
typedef struct strings {
  int count;
  void **v;
} strings;

static void strings_fini(strings *s)
{
  for (int i = 0; i < s->count; i++) free(s->v[i]);
  free(s->v);
}

static weft_status *aval(strings *s, const hlo_shape *shape, const hlo_sharding *sharding,
                         JAX_CustomCallPartitioner_aval *out)
{
  void *data;

  WEFT_TRY(hlo_shape_to_proto(shape, &data, &out->shape.size));
  out->shape.data = s->v[s->count++] = data;
  WEFT_TRY(hlo_sharding_to_proto(sharding, &data, &out->sharding.size));
  out->sharding.data = s->v[s->count++] = data;
  out->has_sharding = true;
  return NULL;
}

static weft_status *read_answer(const JAX_CustomCallPartitioner_Partition_Args *args, weft_arena *arena,
                                pass_partitioned_call *out)
{
  const hlo_sharding **operands = WEFT_ARENA_ARRAY(arena, const hlo_sharding *, args->num_args);

  WEFT_TRY_ALLOC(operands);
  if (args->header.has_error)
    return pjrt_status_of(args->header.code, args->header.error_msg.data, args->header.error_msg.size);
  for (size_t i = 0; i < args->num_args; i++)
    WEFT_TRY(hlo_sharding_from_proto(arena, args->args_sharding[i].data, args->args_sharding[i].size, &operands[i]));
  WEFT_TRY(hlo_sharding_from_proto(arena, args->result_sharding.data, args->result_sharding.size, &out->result));
  out->operands = operands;
  return shlo_parse(args->mlir_module.data, args->mlir_module.size, NULL, &out->module);
}

static weft_status *ask(JAX_CustomCallPartitioner_Callbacks *callbacks, const hlo_instr *call,
                        const hlo_sharding *const *operands, const hlo_sharding *result, strings *s, weft_arena *arena,
                        pass_partitioned_call *out)
{
  JAX_CustomCallPartitioner_Partition_Args args = {.num_args = (size_t)call->operand_count};
  const char *config = call->extra && call->extra->backend_config ? call->extra->backend_config : "";
  weft_status *st;

  s->v = calloc(2 * (size_t)call->operand_count + 2, sizeof *s->v);
  args.op_args = WEFT_ARENA_ARRAY(arena, JAX_CustomCallPartitioner_aval, call->operand_count);
  WEFT_TRY_ALLOC(s->v);
  WEFT_TRY_ALLOC(args.op_args);
  for (int i = 0; i < call->operand_count; i++)
    WEFT_TRY(aval(s, call->operands[i]->shape, operands[i], &args.op_args[i]));
  WEFT_TRY(aval(s, call->shape, result, &args.op_result));
  args.backend_config = (JAX_CustomCallPartitioner_string){config, strlen(config)};
  callbacks->partition(callbacks, &args);
  st = read_answer(&args, arena, out);
  if (args.header.cleanup_fn) args.header.cleanup_fn(args.header.data);
  return st;
}

static weft_status *partition(void *self, const hlo_instr *call, const hlo_sharding *const *operands,
                              const hlo_sharding *result, weft_arena *arena, pass_partitioned_call *out)
{
  strings s = {0};
  weft_status *st = ask(self, call, operands, result, &s, arena, out);

  strings_fini(&s);
  return st;
}

static PJRT_Error *register_custom_partitioner(PJRT_Register_Custom_Partitioner_Args *args)
{
  pass_custom_partitioner partitioner = {.self = args->callbacks, .partition = partition};

  if (!args->name || !args->callbacks || !args->callbacks->partition)
    return pjrt_error(WEFT_ERR(INVALID_ARGUMENT, "a custom partitioner without name or function"));
  return pjrt_error(pass_register_custom_partitioner(args->name, args->name_size, &partitioner));
}

/* Registers nothing: the partitioner uses the attribute num_batch_dims, which such calls carry. */
static PJRT_Error *register_batch_partitionable(PJRT_Register_Batch_Partitionable_Args *args)
{
  (void)args;
  return NULL;
}

PJRT_Custom_Partitioner_Extension pjrt_custom_partitioner_extension = {
    .base = {.struct_size = sizeof(PJRT_Custom_Partitioner_Extension), .type = PJRT_Extension_Type_Custom_Partitioner},
    .register_custom_partitioner = register_custom_partitioner,
    .register_batch_partitionable = register_batch_partitionable};

/* ---- inspect_array_sharding ---- */

static _Thread_local bool may_inspect;

void pjrt_allow_inspection(bool allow) { may_inspect = allow; }

/* Reads the callback whose bytes the backend config has as "hex:...". False: there is none. */
static bool read_callback(const hlo_instr *call, JAX_InspectSharding_Callback *out)
{
  const char *text = call->extra ? call->extra->backend_config : NULL;
  unsigned char bytes[sizeof *out];

  if (!text || strncmp(text, "hex:", 4) != 0 || strlen(text) != 4 + 2 * sizeof bytes) return false;
  for (size_t i = 0; i < sizeof bytes; i++) {
    char digits[3] = {text[4 + 2 * i], text[5 + 2 * i], 0}, *end;
    bytes[i] = (unsigned char)strtoul(digits, &end, 16);
    if (*end) return false;
  }
  memcpy(out, bytes, sizeof *out);
  return true;
}

static weft_status *inspect(void *self, const hlo_instr *call, const hlo_sharding *operand)
{
  JAX_InspectSharding_Callback callback;
  JAX_InspectSharding_Callback_Args args = {0};
  weft_status *st = NULL;
  Dl_info info;
  void *spec, *code;

  (void)self;
  if (!may_inspect) return NULL;
  if (!read_callback(call, &callback))
    return WEFT_ERR(INVALID_ARGUMENT, "InspectSharding without the bytes of a callback");
  memcpy(&code, &callback.call, sizeof code);
  if (!dladdr(code, &info))
    return WEFT_ERR(INVALID_ARGUMENT, "InspectSharding with an address that is in none of this process's libraries");
  WEFT_TRY(hlo_sharding_to_proto(operand, &spec, &args.sharding_spec_size));
  args.sharding_spec = spec;
  callback.call(callback.data, &args);
  if (args.error_txt) {
    st = WEFT_ERR(INTERNAL, "Error calling inspect_sharding: %s", args.error_txt);
    if (args.free_error) args.free_error(&args);
  }
  free(spec);
  return st;
}

__attribute__((constructor)) static void know_inspections(void)
{
  static const char name[] = "InspectSharding";
  weft_status *st =
    pass_register_custom_partitioner(name, sizeof name - 1, &(pass_custom_partitioner){.inspect = inspect});

  weft_status_free(st);
}
