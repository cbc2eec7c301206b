/* tests/fuzz/hlo_run_fuzz.c -- HLO text of any bytes, compiled and run.  What the evaluator ends within its limits must
 * compile, or be refused, and run; where only integers are computed the results are the evaluator's, bit for bit. */
#include <config.h>

#include <stdlib.h>
#include <string.h>

#include "platform/registry.h"
#include "fuzz.h"
#include "hlo/eval.h"
#include "hlo/infer.h"
#include "hlo/proto.h"
#include "hlo/text.h"

enum {
  MOST_BYTES = 1 << 16,  /* of an instruction's value */
  MOST_LEAVES = 16,      /* of the parameters, of the result */
  MOST_INSTRUCTIONS = 300,
  MOST_ITERATIONS = 100, /* of a loop */
};

static bool is_exact(const hlo_shape *s)
{
  for (int i = 0; hlo_shape_is_tuple(s) && i < s->rank; i++)
    if (!is_exact(s->elements[i])) return false;
  return hlo_shape_is_tuple(s) || s->type == WEFT_PRED || weft_dtype_is_integer(s->type);
}

/* Is the program small, and can it run without another process and without a host that answers? */
static bool is_fit(const hlo_module *module, bool *exact)
{
  const hlo_shape *result = module->entry->root->shape;
  int count = 0;

  *exact = true;
  if (module->replica_count * module->num_partitions > 1 || hlo_shape_leaf_count(result) > MOST_LEAVES) return false;
  if (module->entry->param_count > MOST_LEAVES) return false;
  HLO_FOREACH_COMPUTATION(comp, module)
    HLO_FOREACH(instr, comp) {
      switch (instr->op) {
      case HLO_CUSTOM_CALL: case HLO_INFEED: case HLO_OUTFEED: case HLO_SEND: case HLO_RECV: return false;
      case HLO_RNG: case HLO_RNG_GET_AND_UPDATE_STATE: *exact = false; break;
      default: break;
      }
      if (++count > MOST_INSTRUCTIONS || !hlo_shape_is_sane(instr->shape) ||
          hlo_shape_total_bytes(instr->shape) > MOST_BYTES)
        return false;
      *exact &= is_exact(instr->shape);
    }
  for (int i = 0; i < module->entry->param_count; i++)
    if (!hlo_shape_is_array(module->entry->params[i]->shape)) return false;
  for (int i = 0; i < hlo_shape_leaf_count(result); i++)
    if (!hlo_shape_is_array(hlo_shape_leaf(result, i))) return false;
  return true;
}

/* Small numbers, some negative: of every type what it can hold. */
static const hlo_literal *argument(weft_arena *arena, const hlo_shape *shape)
{
  hlo_literal *literal;

  FUZZ_OK(hlo_literal_new(arena, hlo_shape_array(arena, shape->type, shape->rank, shape->dims), &literal)); /* whole */
  for (int64_t i = 0; i < hlo_shape_elems(shape); i++) {
    int64_t value = (i * 5 + 3) % 11 - (i % 3 == 0 ? 4 : 0);
    if (is_exact(shape)) hlo_literal_set_s64(literal, i, shape->type == WEFT_PRED ? value & 1 : value);
    else hlo_literal_set_f64(literal, i, 0.5 * (double)value, 0.25);
  }
  return literal;
}

static const hlo_literal *leaf_of(const hlo_literal *value, int *index)
{
  if (!hlo_shape_is_tuple(value->shape)) return (*index)-- == 0 ? value : NULL;
  for (int i = 0; i < value->shape->rank; i++) {
    const hlo_literal *leaf = leaf_of(value->elements[i], index);
    if (leaf) return leaf;
  }
  return NULL;
}

static void check_output(weft_buffer *buffer, const hlo_literal *want, bool exact)
{
  int64_t bytes = hlo_shape_bytes(want->shape);
  char *got = malloc((size_t)bytes + 1);

  FUZZ_OK(weft_buffer_to_host(buffer, got, weft_deadline_after_ms(60000)));
  if (exact) FUZZ_TRUE(memcmp(got, want->data, (size_t)bytes) == 0);
  free(got);
}

/* Takes the module.  Its arguments and results are row-major, as literals are. */
static void compile_and_run(hlo_module *module, const hlo_literal *const *arguments, const hlo_literal *want,
                            bool exact)
{
  static weft_platform *platform;
  WEFT_AUTO(weft_executable) exe = NULL;
  weft_buffer *in[MOST_LEAVES], *out[MOST_LEAVES] = {NULL}, *const *ins[] = {in}, **outs[] = {out};
  weft_status *st;

  FUZZ_OK(hlo_use_row_major_entry(module));
  if (!platform) FUZZ_OK(plat_new(&(weft_platform_options){.device_count = 1, .threads = 1}, &platform));
  if ((st = weft_compile(platform, module, &(weft_compile_options){0}, &exe))) { /* refused, with a reason */
    FUZZ_TRUE(weft_status_code(st) != WEFT_INTERNAL);
    weft_status_free(st);
    return;
  }
  for (int i = 0; i < weft_executable_param_count(exe); i++)
    FUZZ_OK(weft_buffer_from_host(weft_platform_device(platform, 0), weft_executable_param_type(exe, i),
                                  arguments[i]->data, &in[i]));
  FUZZ_OK(weft_executable_launch(exe, &(weft_launch){.inputs = ins, .outputs = outs}));
  for (int i = 0; i < weft_executable_output_count(exe); i++) {
    int index = i;
    check_output(out[i], leaf_of(want, &index), exact);
    weft_buffer_release(out[i]);
  }
  for (int i = 0; i < weft_executable_param_count(exe); i++) weft_buffer_release(in[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  WEFT_AUTO(hlo_module) module = NULL;
  const hlo_literal *arguments[MOST_LEAVES], *want;
  bool exact;
  weft_arena arena;
  weft_status *st;

  weft_arena_init(&arena);
  if (!(st = hlo_parse((const char *)data, size, &module)) && !(st = hlo_verify(module)) && is_fit(module, &exact)) {
    const hlo_eval_options limits = {.max_loop_iterations = MOST_ITERATIONS, .max_bytes = 64 * MOST_BYTES,
                                     .deadline = weft_deadline_after_ms(500)};
    for (int i = 0; i < module->entry->param_count; i++)
      arguments[i] = argument(&arena, module->entry->params[i]->shape);
    if (!(st = hlo_eval_module(module, arguments, &limits, &arena, &want)))
      compile_and_run(WEFT_MOVE(module), arguments, want, exact);
  }
  weft_status_free(st);
  weft_arena_fini(&arena);
  return 0;
}
