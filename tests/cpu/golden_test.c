/* tests/cpu/golden_test.c -- Compiled programs against values that jaxlib computed. */
#include "hlo/golden.h"

#include "platform/registry.h"

static weft_array_type array_type(const hlo_shape *shape)
{
  weft_array_type type = {.type = shape->type, .rank = shape->rank};

  memcpy(type.dims, shape->dims, (size_t)shape->rank * sizeof *shape->dims);
  return type;
}

/* The outputs are the leaves of the result. */
static weft_status *launch(weft_executable *exe, const hlo_shape *shape, weft_buffer *const *in, weft_buffer **out,
                           weft_arena *arena, const hlo_literal **got)
{
  int count = hlo_shape_leaf_count(shape);
  const hlo_literal **leaves = WEFT_ARENA_ARRAY(arena, const hlo_literal *, count);
  weft_buffer *const *ins[] = {in};
  weft_buffer **outs[] = {out};

  WEFT_TRY(weft_executable_launch(exe, &(weft_launch){.inputs = ins, .outputs = outs}));
  for (int i = 0; i < count; i++) {
    hlo_literal *leaf;
    WEFT_TRY(hlo_literal_new(arena, hlo_shape_without_layout(arena, hlo_shape_leaf(shape, i)), &leaf));
    WEFT_TRY(weft_buffer_to_host(out[i], leaf->data, weft_deadline_after_ms(60000)));
    weft_buffer_release(out[i]);
    leaves[i] = leaf;
  }
  *got = leaves[0];
  if (!hlo_shape_is_tuple(shape)) return NULL;
  hlo_literal *tuple = WEFT_ARENA_NEW(arena, hlo_literal);
  tuple->shape = shape;
  tuple->elements = leaves;
  *got = tuple;
  return NULL;
}

static weft_platform *platform;

static weft_status *golden_run(const char *text, const hlo_module *module, const hlo_literal *args, weft_arena *arena,
                               const hlo_literal **got)
{
  const hlo_shape *shape = hlo_shape_copy(arena, module->entry->root->shape);
  weft_executable *exe;
  weft_buffer *in[8], *out[8];
  hlo_module *copy;

  if (!platform) WEFT_TRY(plat_new(&(weft_platform_options){.device_count = 1}, &platform));
  WEFT_TRY(hlo_parse(text, strlen(text), &copy));
  WEFT_TRY(weft_compile(platform, copy, &(weft_compile_options){0}, &exe));
  for (int i = 0; i < args->shape->rank; i++) {
    weft_array_type type = array_type(args->elements[i]->shape);
    WEFT_TRY(weft_buffer_from_host(weft_platform_device(platform, 0), &type, args->elements[i]->data, &in[i]));
  }
  weft_status *st = launch(exe, shape, in, out, arena, got);
  for (int i = 0; i < args->shape->rank; i++) weft_buffer_release(in[i]);
  weft_executable_release(exe);
  return st;
}

int main(int argc, char **argv)
{
  int code = golden_main(argc, argv);

  weft_platform_release(platform);
  return code;
}
