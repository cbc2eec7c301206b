/* hlo/proto_write.c -- a module as HloModuleProto.  The messages are built in a scratch arena, then packed at once.
 * Instruction ids are written as newer XLA does: computation id << 32 | place in the computation. */
#include <config.h>

#include "hlo/proto.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "hlo/frames.h"
#include "hlo/proto_write.h"

struct written_name { UT_hash_handle hh; };

/* ---- instructions, computations, the module ---------------------------------------------------------------------- */

static int64_t wire_id(const proto_writer *w, const hlo_instr *instr)
{
  return (int64_t)instr->parent->id << 32 | w->local_ids[instr->id];
}

/* XLA wants the names of instructions to be unique in the module; in Weft they are unique in their computation. */
static weft_status *put_name(proto_writer *w, const char *name, char **out)
{
  written_name *found, *entry = WEFT_ARENA_NEW(&w->scratch, written_name);
  char *unique = (char *)name;

  WEFT_TRY_ALLOC(entry);
  HASH_FIND(hh, w->names, unique, strlen(unique), found);
  while (found) {
    unique = weft_arena_printf(&w->scratch, "%s.%" PRId64, name, w->next_suffix++);
    WEFT_TRY_ALLOC(unique);
    HASH_FIND(hh, w->names, unique, strlen(unique), found);
  }
  HASH_ADD_KEYPTR(hh, w->names, unique, strlen(unique), entry);
  WEFT_TRY_ALLOC(entry->hh.tbl);
  *out = unique;
  return NULL;
}

static weft_status *put_instruction(proto_writer *w, const hlo_instr *instr, HloPb__Instruction **out)
{
  HloPb__Instruction *p;

  NEW(w, &p, hlo_pb__instruction__init);
  *out = p;
  WEFT_TRY(put_name(w, instr->name, &p->name));
  p->opcode = hlo_proto_string(hlo_opcode_name(instr->op));
  if (instr->op == HLO_ERFC) { /* XLA, which lacks it, takes it for a call of something */
    p->opcode = hlo_proto_string(hlo_opcode_name(HLO_CUSTOM_CALL));
    p->custom_call_target = hlo_proto_string(HLO_PROTO_ERFC);
  }
  p->id = wire_id(w, instr);
  WEFT_TRY(hlo_proto_put_shape(w, instr->shape, &p->shape));
  NEW_ARRAY(w, &p->operand_ids, instr->operand_count);
  p->n_operand_ids = (size_t)instr->operand_count;
  for (int i = 0; i < instr->operand_count; i++) p->operand_ids[i] = wire_id(w, instr->operands[i]);
  NEW_ARRAY(w, &p->control_predecessor_ids, instr->control->pred_count);
  p->n_control_predecessor_ids = (size_t)instr->control->pred_count;
  for (int i = 0; i < instr->control->pred_count; i++)
    p->control_predecessor_ids[i] = wire_id(w, instr->control->preds[i]);
  NEW_ARRAY(w, &p->called_computation_ids, instr->called_count);
  p->n_called_computation_ids = (size_t)instr->called_count;
  for (int i = 0; i < instr->called_count; i++) p->called_computation_ids[i] = instr->called[i]->id;
  return hlo_proto_put_attributes(w, instr, p);
}

static weft_status *put_program_shape(proto_writer *w, const hlo_computation *comp, const hlo_shape *const *params,
                                      const hlo_shape *result, HloPb__ProgramShape **out)
{
  NEW(w, out, hlo_pb__program_shape__init);
  NEW_ARRAY(w, &(*out)->params, comp->param_count);
  NEW_ARRAY(w, &(*out)->names, comp->param_count);
  (*out)->n_params = (*out)->n_names = (size_t)comp->param_count;
  for (int i = 0; i < comp->param_count; i++) {
    WEFT_TRY(hlo_proto_put_shape(w, params ? params[i] : comp->params[i]->shape, &(*out)->params[i]));
    (*out)->names[i] = hlo_proto_string(comp->params[i]->name);
  }
  return hlo_proto_put_shape(w, result ? result : comp->root->shape, &(*out)->result);
}

static weft_status *put_computation(proto_writer *w, const hlo_computation *comp, HloPb__Computation **out)
{
  HloPb__Computation *p;
  size_t i = 0;

  NEW(w, &p, hlo_pb__computation__init);
  *out = p;
  p->name = hlo_proto_string(comp->name);
  p->id = comp->id;
  p->root_id = wire_id(w, comp->root);
  p->execution_thread = hlo_proto_string(comp->execution_thread);
  p->is_fusion_computation = w->called_by_fusion[comp->id];
  WEFT_TRY(put_program_shape(w, comp, NULL, NULL, &p->program_shape));
  NEW_ARRAY(w, &p->instructions, comp->instr_count);
  p->n_instructions = (size_t)comp->instr_count;
  HLO_FOREACH(instr, comp) WEFT_TRY(put_instruction(w, instr, &p->instructions[i++]));
  return NULL;
}

static weft_status *put_schedule(proto_writer *w, HloPb__Schedule **out)
{
  NEW(w, out, hlo_pb__schedule__init);
  NEW_ARRAY(w, &(*out)->sequences, w->module->computation_count);
  HLO_FOREACH_COMPUTATION(comp, w->module) {
    HloPb__Schedule__Entry *entry;
    size_t i = 0;

    if (w->called_by_fusion[comp->id]) continue; /* XLA has no schedule for the computations of fusions */
    NEW(w, &entry, hlo_pb__schedule__entry__init);
    NEW(w, &entry->sequence, hlo_pb__schedule__sequence__init);
    entry->computation = comp->id;
    NEW_ARRAY(w, &entry->sequence->ids, comp->instr_count);
    entry->sequence->n_ids = (size_t)comp->instr_count;
    HLO_FOREACH(instr, comp) entry->sequence->ids[i++] = wire_id(w, instr);
    (*out)->sequences[(*out)->n_sequences++] = entry;
  }
  return NULL;
}

static weft_status *put_aliases(proto_writer *w, HloPb__Module *p)
{
  const hlo_module *module = w->module;

  NEW(w, &p->input_output_alias, hlo_pb__input_output_alias__init);
  NEW_ARRAY(w, &p->input_output_alias->entries, module->alias_count);
  p->input_output_alias->n_entries = (size_t)module->alias_count;
  for (int i = 0; i < module->alias_count; i++) {
    HloPb__InputOutputAlias__Entry *entry;
    NEW(w, &entry, hlo_pb__input_output_alias__entry__init);
    PUT_INTS(entry, output_index, module->aliases[i].output_index);
    entry->parameter = module->aliases[i].parameter;
    PUT_INTS(entry, parameter_index, module->aliases[i].parameter_index);
    entry->kind = module->aliases[i].must_alias ? 2 : 1;
    p->input_output_alias->entries[i] = entry;
  }
  NEW(w, &p->buffer_donor, hlo_pb__buffer_donor__init);
  NEW_ARRAY(w, &p->buffer_donor->entries, module->donor_count);
  p->buffer_donor->n_entries = (size_t)module->donor_count;
  for (int i = 0; i < module->donor_count; i++) {
    HloPb__BufferDonor__Entry *entry;
    NEW(w, &entry, hlo_pb__buffer_donor__entry__init);
    entry->parameter = module->donors[i].parameter;
    PUT_INTS(entry, parameter_index, module->donors[i].parameter_index);
    p->buffer_donor->entries[i] = entry;
  }
  return NULL;
}

static weft_status *put_stack_frames(proto_writer *w, const hlo_stack_frames *f, HloPb__StackFrames **out)
{
  HloPb__StackFrames *p;

  NEW(w, &p, hlo_pb__stack_frames__init);
  *out = p;
  p->n_files = (size_t)f->file_count;
  p->files = (char **)f->files;
  p->n_functions = (size_t)f->function_count;
  p->functions = (char **)f->functions;
  NEW_ARRAY(w, &p->locations, f->location_count);
  p->n_locations = (size_t)f->location_count;
  for (int i = 0; i < f->location_count; i++) {
    const struct hlo_file_location *l = &f->locations[i];
    NEW(w, &p->locations[i], hlo_pb__stack_frames__location__init);
    p->locations[i]->file = l->file;
    p->locations[i]->function = l->function;
    p->locations[i]->line = l->line;
    p->locations[i]->end_line = l->end_line;
    p->locations[i]->column = l->column;
    p->locations[i]->end_column = l->end_column;
  }
  NEW_ARRAY(w, &p->frames, f->frame_count);
  p->n_frames = (size_t)f->frame_count;
  for (int i = 0; i < f->frame_count; i++) {
    NEW(w, &p->frames[i], hlo_pb__stack_frames__frame__init);
    p->frames[i]->location = f->frames[i].location;
    p->frames[i]->parent = WEFT_MAX(f->frames[i].parent - 1, 0);
  }
  return NULL;
}

static weft_status *number_instructions(proto_writer *w)
{
  NEW_ARRAY(w, &w->local_ids, w->module->next_id);
  NEW_ARRAY(w, &w->called_by_fusion, w->module->next_computation_id);
  HLO_FOREACH_COMPUTATION(comp, w->module) {
    int32_t place = 0;
    HLO_FOREACH(instr, comp) {
      w->local_ids[instr->id] = place++;
      if (instr->op == HLO_FUSION) w->called_by_fusion[instr->called[0]->id] = true;
    }
  }
  return NULL;
}

static weft_status *put_module(proto_writer *w, HloPb__Module **out)
{
  const hlo_module *module = w->module;
  HloPb__Module *p;
  size_t i = 0;

  NEW(w, &p, hlo_pb__module__init);
  *out = p;
  WEFT_TRY(number_instructions(w));
  p->name = hlo_proto_string(module->name);
  p->entry_computation_name = hlo_proto_string(module->entry->name);
  p->entry_computation_id = module->entry->id;
  NEW_ARRAY(w, &p->computations, module->computation_count);
  p->n_computations = (size_t)module->computation_count;
  HLO_FOREACH_COMPUTATION(comp, module) WEFT_TRY(put_computation(w, comp, &p->computations[i++]));
  WEFT_TRY(put_program_shape(w, module->entry, module->has_entry_layout ? module->entry_param_shapes : NULL,
                             module->has_entry_layout ? module->entry_result_shape : NULL, &p->host_program_shape));
  if (module->is_scheduled) WEFT_TRY(put_schedule(w, &p->schedule));
  WEFT_TRY(put_aliases(w, p));
  p->is_dynamic = module->is_dynamic;
  p->use_auto_spmd = module->use_auto_spmd;
  if (module->frontend_count)
    WEFT_TRY(hlo_proto_put_key_values(w, module->frontend_count, module->frontend_attributes, &p->frontend_attributes));
  if (module->spmd_output_sharding)
    WEFT_TRY(hlo_proto_put_sharding(w, module->spmd_output_sharding, &p->spmd_output_sharding));
  NEW_ARRAY(w, &p->spmd_parameter_shardings, module->spmd_parameter_count);
  p->n_spmd_parameter_shardings = (size_t)module->spmd_parameter_count;
  for (int k = 0; k < module->spmd_parameter_count; k++)
    WEFT_TRY(hlo_proto_put_sharding(w, module->spmd_parameter_shardings[k], &p->spmd_parameter_shardings[k]));
  return module->stack_frames ? put_stack_frames(w, module->stack_frames, &p->stack_frames) : NULL;
}

static weft_status *put_config(proto_writer *w, HloPb__Config **out)
{
  const hlo_module *module = w->module;

  NEW(w, out, hlo_pb__config__init);
  WEFT_TRY(put_program_shape(w, module->entry, module->has_entry_layout ? module->entry_param_shapes : NULL,
                             module->has_entry_layout ? module->entry_result_shape : NULL, &(*out)->entry_layout));
  (*out)->replica_count = module->replica_count;
  (*out)->num_partitions = module->num_partitions;
  (*out)->use_spmd_partitioning = module->num_partitions > 1;
  (*out)->alias_passthrough_params = module->alias_passthrough_params;
  WEFT_TRY(hlo_proto_put_bools(w, module->propagate_to_parameters, &(*out)->n_propagate_to_parameters,
                               &(*out)->propagate_to_parameters));
  return hlo_proto_put_bools(w, module->propagate_to_output, &(*out)->n_propagate_to_output,
                             &(*out)->propagate_to_output);
}

/* Packs a message into memory from malloc. */
static weft_status *pack(const ProtobufCMessage *message, void **out_data, size_t *out_size)
{
  *out_size = protobuf_c_message_get_packed_size(message);
  *out_data = malloc(*out_size ? *out_size : 1);
  WEFT_TRY_ALLOC(*out_data);
  protobuf_c_message_pack(message, *out_data);
  return NULL;
}

weft_status *hlo_to_proto(const hlo_module *module, void **out_data, size_t *out_size)
{
  proto_writer w = {.module = module};
  HloPb__Module *p;
  weft_status *st;

  *out_data = NULL;
  weft_arena_init(&w.scratch);
  st = put_module(&w, &p);
  if (!st) st = pack(&p->base, out_data, out_size);
  HASH_CLEAR(hh, w.names);
  weft_arena_fini(&w.scratch);
  return st;
}

static weft_status *put_with_config(proto_writer *w, HloPb__ModuleWithConfig **out)
{
  NEW(w, out, hlo_pb__module_with_config__init);
  WEFT_TRY(put_module(w, &(*out)->module));
  return put_config(w, &(*out)->config);
}

weft_status *hlo_to_proto_with_config(const hlo_module *module, void **out_data, size_t *out_size)
{
  proto_writer w = {.module = module};
  HloPb__ModuleWithConfig *p;
  weft_status *st;

  *out_data = NULL;
  weft_arena_init(&w.scratch);
  st = put_with_config(&w, &p);
  if (!st) st = pack(&p->base, out_data, out_size);
  HASH_CLEAR(hh, w.names);
  weft_arena_fini(&w.scratch);
  return st;
}

weft_status *hlo_shape_to_proto(const hlo_shape *shape, void **out_data, size_t *out_size)
{
  proto_writer w = {0};
  HloPb__Shape *p;
  weft_status *st;

  *out_data = NULL;
  weft_arena_init(&w.scratch);
  st = hlo_proto_put_shape(&w, shape, &p);
  if (!st) st = pack(&p->base, out_data, out_size);
  weft_arena_fini(&w.scratch);
  return st;
}

weft_status *hlo_sharding_to_proto(const hlo_sharding *sharding, void **out_data, size_t *out_size)
{
  proto_writer w = {0};
  HloPb__Sharding *p;
  weft_status *st;

  *out_data = NULL;
  weft_arena_init(&w.scratch);
  st = hlo_proto_put_sharding(&w, sharding, &p);
  if (!st) st = pack(&p->base, out_data, out_size);
  weft_arena_fini(&w.scratch);
  return st;
}
