/* pjrt/shardings.c -- the Shardings extension: how parameters and results are spread over the devices, as the
 * program says and the partitioner has completed it. */
#include <config.h>

#include <stdlib.h>
#include <string.h>

#include "hlo/proto.h"
#include "pjrt/extensions.h"

/* Adds the serialised sharding of each leaf of `shape`. A serialised `replicated` is the empty message. */
static weft_status *add_leaves(const hlo_shape *shape, const hlo_sharding *sharding, pjrt_shardings *out, int *at)
{
  if (hlo_shape_is_tuple(shape)) {
    for (int i = 0; i < shape->rank; i++) {
      const hlo_sharding *element = sharding && sharding->kind == HLO_SHARDING_TUPLE && i < sharding->tuple_count
                                      ? sharding->elements[i]
                                    : sharding && sharding->kind != HLO_SHARDING_TUPLE ? sharding
                                                                                       : NULL;
      WEFT_TRY(add_leaves(shape->elements[i], element, out, at));
    }
    return NULL;
  }
  out->bytes[*at] = "";
  out->sizes[*at] = 0;
  if (sharding) {
    void *data;
    WEFT_TRY(hlo_sharding_to_proto(sharding, &data, &out->sizes[*at]));
    out->bytes[*at] = data;
    out->owned[*at] = true;
  }
  ++*at;
  return NULL;
}

static weft_status *shardings_new(int count, pjrt_shardings *out)
{
  *out = (pjrt_shardings){.count = count};
  out->bytes = calloc((size_t)count + 1, sizeof *out->bytes);
  out->sizes = calloc((size_t)count + 1, sizeof *out->sizes);
  out->owned = calloc((size_t)count + 1, sizeof *out->owned);
  if (!out->bytes || !out->sizes || !out->owned) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  out->bytes[0] = "";
  return NULL;
}

static const hlo_sharding *sharding_of(const hlo_instr *instr) { return instr->extra ? instr->extra->sharding : NULL; }

weft_status *pjrt_shardings_read(const hlo_module *module, pjrt_shardings *out_params, pjrt_shardings *out_outputs)
{
  const hlo_computation *entry = module->entry;
  int params = 0, at = 0;

  for (int i = 0; i < entry->param_count; i++) params += hlo_shape_leaf_count(entry->params[i]->shape);
  WEFT_TRY(shardings_new(params, out_params));
  WEFT_TRY(shardings_new(hlo_shape_leaf_count(entry->root->shape), out_outputs));
  for (int i = 0; i < entry->param_count; i++)
    WEFT_TRY(add_leaves(entry->params[i]->shape, sharding_of(entry->params[i]), out_params, &at));
  at = 0;
  return add_leaves(entry->root->shape,
                    module->spmd_output_sharding ? module->spmd_output_sharding : sharding_of(entry->root), out_outputs,
                    &at);
}

void pjrt_shardings_fini(pjrt_shardings *shardings)
{
  for (int i = 0; i < shardings->count && shardings->owned; i++)
    if (shardings->owned[i]) free((void *)shardings->bytes[i]);
  free(shardings->bytes);
  free(shardings->sizes);
  free(shardings->owned);
  *shardings = (pjrt_shardings){0};
}

static PJRT_Error *parameter_shardings(PJRT_Shardings_PJRT_Executable_ParameterShardings_Args *args)
{
  const pjrt_shardings *s = &args->executable->program->param_shardings;

  args->num_parameters = (size_t)s->count;
  args->shardings = s->bytes; /* NULL for one device: nothing to say */
  args->sharding_sizes = s->sizes;
  return NULL;
}

static PJRT_Error *output_shardings(PJRT_Shardings_PJRT_Executable_OutputShardings_Args *args)
{
  const pjrt_shardings *s = &args->executable->program->output_shardings;

  args->num_outputs = (size_t)WEFT_MAX(s->count, 1); /* clients want one even if there are no outputs */
  args->shardings = s->bytes;
  args->sharding_sizes = s->sizes;
  return NULL;
}

PJRT_Shardings_Extension pjrt_shardings_extension = {
    .base = {.struct_size = sizeof(PJRT_Shardings_Extension), .type = PJRT_Extension_Type_Shardings},
    .parameter_shardings = parameter_shardings,
    .output_shardings = output_shardings};
