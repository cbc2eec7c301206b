/* cli/program.c -- reads a program of any format. */
#include <config.h>

#include "cli/program.h"

#include <stdlib.h>
#include <string.h>

#include "base/npy.h"
#include "cli/cli.h"
#include "hlo/infer.h"
#include "hlo/proto.h"
#include "hlo/text.h"
#include "runtime/saved.h"
#include "stablehlo/stablehlo.h"

enum { MOST_INPUTS = 4096, MOST_KNOWN = 64 /* the greatest number of elements of an argument that may hold sizes */ };

/* Reads an .npy file as a shape (its type is WEFT_INVALID if NumPy has no name for it), and as a value if it may
 * hold sizes. */
static weft_status *read_refinement(weft_arena *arena, const char *path, const hlo_shape **out_shape,
                                    const hlo_literal **out_value)
{
  weft_npy array;
  hlo_literal *value = NULL;
  weft_status *st = NULL;

  WEFT_TRY(weft_npy_read(path, WEFT_INVALID, &array));
  *out_shape = hlo_shape_array(arena, array.type, array.rank, array.dims);
  if (!*out_shape) st = WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  if (!st && weft_dtype_is_integer(array.type) && hlo_shape_elems(*out_shape) <= MOST_KNOWN) {
    st = hlo_literal_new(arena, *out_shape, &value);
    if (!st) memcpy(value->data, array.data, (size_t)array.bytes);
  }
  weft_npy_fini(&array);
  *out_value = value;
  return st;
}

/* Reads a StableHLO program; its unknown dimensions follow from the inputs. */
static weft_status *parse_stablehlo(const char *data, size_t size, weft_arena *arena, int count,
                                    const char *const *inputs, bool *out_refined, hlo_module **out_module)
{
  WEFT_AUTO(shlo_program) program = NULL;
  const hlo_shape **shapes = WEFT_ARENA_ARRAY(arena, const hlo_shape *, count);
  const hlo_literal **values = WEFT_ARENA_ARRAY(arena, const hlo_literal *, count);

  WEFT_TRY_ALLOC(shapes && values);
  WEFT_TRY(shlo_read(data, size, &program));
  *out_refined = count > 0 && shlo_is_dynamic(program, 0);
  if (!*out_refined) return shlo_lower(program, NULL, out_module);
  for (int i = 0; i < count; i++) WEFT_TRY(read_refinement(arena, inputs[i], &shapes[i], &values[i]));
  return shlo_lower(program,
                    &(shlo_options){.argument_count = count, .argument_shapes = shapes, .argument_values = values},
                    out_module);
}

static weft_status *parse_saved(const char *data, size_t size, hlo_module **out_module)
{
  weft_saved saved;

  WEFT_TRY(weft_saved_open(data, size, &saved));
  return weft_saved_read_module(&saved, out_module);
}

static weft_status *parse_program(const char *data, size_t size, hlo_module **out_module)
{
  if (weft_saved_is(data, size)) return parse_saved(data, size, out_module);
  if (shlo_is_program(data, size)) return shlo_parse(data, size, NULL, out_module);
  if (hlo_looks_like_proto(data, size)) return hlo_from_proto(data, size, out_module);
  if (memchr(data, '\0', WEFT_MIN(size, (size_t)4096)))
    return WEFT_ERR(INVALID_ARGUMENT,
                    "no program: expected HLO text, an HloModuleProto or StableHLO (text or bytecode)");
  return hlo_parse(data, size, out_module);
}

weft_status *cli_load_program(const char *path, int input_count, const char *const *inputs, cli_program *p)
{
  bool is_stablehlo, refined = false;
  weft_arena scratch;
  char *data;
  size_t size;
  weft_status *st;

  *p = (cli_program){0};
  WEFT_TRY(cli_read_file(path, &data, &size));
  p->memory = data;
  is_stablehlo = shlo_is_program(data, size);
  weft_arena_init(&scratch);
  st = is_stablehlo
         ? parse_stablehlo(data, size, &scratch, WEFT_MIN(input_count, MOST_INPUTS), inputs, &refined, &p->module)
         : parse_program(data, size, &p->module);
  weft_arena_fini(&scratch);
  if (st && is_stablehlo && input_count == 0 && strstr(weft_status_message(st), "unknown size"))
    st =
      weft_status_note(st, __FILE__, __LINE__,
                       "give `--input FILE.npy` for every argument: the sizes follow from the shapes of the arguments");
  WEFT_TRY_NOTE(st, "in %s", path);
  WEFT_TRY_NOTE(hlo_verify(p->module), "in %s", path);
  p->code = (cli_code){data, size, weft_saved_is(data, size) ? "weft" : "mlir"};
  if (weft_saved_is(data, size) || (is_stablehlo && !refined)) return NULL;
  free(p->memory);
  p->memory = NULL;
  WEFT_TRY(hlo_use_row_major_entry(p->module));
  WEFT_TRY(hlo_to_proto(p->module, &p->memory, &p->code.size));
  p->code.bytes = p->memory;
  p->code.format = "hlo";
  return NULL;
}

void cli_program_fini(cli_program *p)
{
  hlo_module_free(p->module);
  free(p->memory);
  *p = (cli_program){0};
}

void cli_counts(const hlo_module *module, int devices, int64_t *out_replicas, int64_t *out_partitions)
{
  *out_replicas = WEFT_MAX(module->replica_count, 1);
  *out_partitions = WEFT_MAX(module->num_partitions, 1);
  if (devices < 1) return;
  if (*out_replicas == 1 && *out_partitions > 1) *out_partitions = devices;
  else if (devices % *out_partitions == 0) *out_replicas = devices / *out_partitions;
  else *out_replicas = 1, *out_partitions = devices;
}

static int64_t devices_of_groups(const hlo_replica_groups *groups)
{
  int64_t most = 1, product;

  if (groups->form == HLO_GROUPS_IOTA)
    return __builtin_mul_overflow(groups->num_groups, groups->group_size, &product) ? 1 : product;
  for (int g = 0; groups->form == HLO_GROUPS_LIST && g < groups->group_count; g++)
    for (int i = 0; i < groups->groups[g].count; i++) most = WEFT_MAX(most, groups->groups[g].v[i] + 1);
  return most;
}

int64_t cli_devices_named(const hlo_module *module)
{
  int64_t most, replicas, partitions;

  cli_counts(module, 0, &replicas, &partitions);
  if (__builtin_mul_overflow(replicas, partitions, &most)) most = 1;
  HLO_FOREACH_COMPUTATION(comp, module)
    HLO_FOREACH(instr, comp) {
      if (!hlo_opcode_is_collective(instr->op) || !instr->u.collective) continue;
      most = WEFT_MAX(most, devices_of_groups(&instr->u.collective->groups));
      for (int i = 0; i < instr->u.collective->pair_count; i++)
        most = WEFT_MAX(most, WEFT_MAX(instr->u.collective->pairs[i][0], instr->u.collective->pairs[i][1]) + 1);
    }
  return most;
}

weft_status *cli_load_module(const char *path, hlo_module **out_module)
{
  WEFT_AUTO(hlo_module) module = NULL;
  WEFT_AUTO_STR data = NULL;
  size_t size;

  *out_module = NULL;
  WEFT_TRY(cli_read_file(path, &data, &size));
  WEFT_TRY_NOTE(parse_program(data, size, &module), "in %s", path);
  WEFT_TRY_NOTE(hlo_verify(module), "in %s", path);
  *out_module = WEFT_MOVE(module);
  return NULL;
}

weft_status *cli_print_stablehlo(const char *path, FILE *out)
{
  WEFT_AUTO(shlo_program) program = NULL;
  WEFT_AUTO(hlo_module) module = NULL;
  WEFT_AUTO_STR data = NULL;
  size_t size;

  WEFT_TRY(cli_read_file(path, &data, &size));
  if (!shlo_is_program(data, size)) {
    WEFT_TRY(cli_load_module(path, &module));
    WEFT_TRY_NOTE(shlo_print_hlo(module, out), "in %s", path);
    return NULL;
  }
  WEFT_TRY_NOTE(shlo_read(data, size, &program), "in %s", path);
  WEFT_TRY_NOTE(shlo_print(program, out), "in %s", path);
  return NULL;
}
