/* hlo/proto_read.c -- HloModuleProto into a module.
 *
 * The bytes may come from anyone.  Messages are unpacked into an arena whose limit follows from the size of the input,
 * nesting is checked before any function recurses, and every id, index and count is looked up or compared before use.
 * Instruction ids are (computation id << 32 | local id) in new files and plain in old ones: the low half, within the
 * computation, names an instruction in both. */
#include <config.h>

#include "hlo/proto.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "hlo/attributes.h"
#include "hlo/frames.h"
#include "hlo/proto_read.h"

enum {
  MAX_MESSAGE_DEPTH = 100,      /* Module > Computation > Instruction > Shape > ... with tuples 32 deep */
  MEMORY_PER_BYTE = 128,        /* for each byte of the file: memory that unpacking may take */
  MEMORY_TO_START = 16 << 20,
};

struct instr_by_id {
  uint32_t id;
  hlo_instr *instr;
  UT_hash_handle hh;
};

struct comp_by_id {
  int64_t id;
  hlo_computation *comp;
  UT_hash_handle hh;
};

struct name_in_use {
  UT_hash_handle hh;
};

/* ---- unpacking --------------------------------------------------------------------------------------------------- */

static void *arena_alloc(void *arena, size_t size) { return weft_arena_alloc(arena, size); }
static void arena_free(void *arena, void *data) { (void)arena, (void)data; }

static bool read_varint(const uint8_t **p, const uint8_t *end, uint64_t *out)
{
  *out = 0;
  for (int shift = 0; *p < end && shift < 64; shift += 7) {
    uint8_t byte = *(*p)++;
    *out |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

/* Reads one field of a message: its number and, if length-delimited, its bytes.  False at the end or if malformed. */
typedef struct wire_field { uint32_t number; bool has_bytes; const uint8_t *data; size_t size; } wire_field;
static bool next_field(const uint8_t **p, const uint8_t *end, wire_field *out)
{
  uint64_t tag, value;

  if (!read_varint(p, end, &tag)) return false;
  *out = (wire_field){.number = (uint32_t)(tag >> 3)};
  switch (tag & 7) {
  case 0: return read_varint(p, end, &value);
  case 1: value = 8; break;
  case 5: value = 4; break;
  case 2:
    if (!read_varint(p, end, &value)) return false;
    out->has_bytes = true;
    out->data = *p;
    break;
  default: return false;
  }
  if (value > (uint64_t)(end - *p)) return false;
  out->size = (size_t)value;
  *p += value;
  return true;
}

/* Nesting is measured along the messages that the unpacker will unpack. */
static bool nested_too_deep(const ProtobufCMessageDescriptor *desc, const uint8_t *p, size_t size, int depth)
{
  const uint8_t *end = p + size;
  wire_field field;

  if (depth > MAX_MESSAGE_DEPTH) return true;
  while (next_field(&p, end, &field)) {
    const ProtobufCFieldDescriptor *known =
      field.has_bytes ? protobuf_c_message_descriptor_get_field(desc, field.number) : NULL;
    if (known && known->type == PROTOBUF_C_TYPE_MESSAGE &&
        nested_too_deep(known->descriptor, field.data, field.size, depth + 1))
      return true;
  }
  return false;
}

/* Finds the first length-delimited field `number` of a message. */
static bool find_bytes(const uint8_t *p, size_t size, uint32_t number, wire_field *out)
{
  const uint8_t *end = p + size;

  while (next_field(&p, end, out))
    if (out->number == number && out->has_bytes) return true;
  return false;
}

/* True for an HloModuleProto, false for a wrapper of one: only in the former does field 3 hold a computation
 * whose first instruction has an opcode. */
static bool looks_like_module(const uint8_t *data, size_t size)
{
  wire_field comp, instr, opcode;

  if (!find_bytes(data, size, 3, &comp) || !find_bytes(comp.data, comp.size, 2, &instr) ||
      !find_bytes(instr.data, instr.size, 2, &opcode) || opcode.size == 0)
    return false;
  for (size_t i = 0; i < opcode.size; i++)
    if (!((opcode.data[i] >= 'a' && opcode.data[i] <= 'z') || opcode.data[i] == '-' ||
          (opcode.data[i] >= '0' && opcode.data[i] <= '9')))
      return false;
  return true;
}

static weft_status *unpack(proto_reader *r, const ProtobufCMessageDescriptor *desc, const void *data, size_t size,
                           void *out_message)
{
  ProtobufCAllocator allocator = {arena_alloc, arena_free, &r->scratch};
  ProtobufCMessage *message;

  if (nested_too_deep(desc, data, size, 0)) return BAD("messages nested over %d deep", MAX_MESSAGE_DEPTH);
  r->scratch.limit_bytes = size < SIZE_MAX / MEMORY_PER_BYTE / 2 ? MEMORY_TO_START + size * MEMORY_PER_BYTE : 0;
  message = protobuf_c_message_unpack(desc, &allocator, size, data);
  memcpy(out_message, &message, sizeof message);
  if (message) return NULL;
  return r->scratch.limit_bytes && r->scratch.total_bytes > r->scratch.limit_bytes / 2
           ? WEFT_ERR(RESOURCE_EXHAUSTED, "the message asks for far more memory than its %zu bytes justify", size)
           : BAD("these %zu bytes are not a valid %s message", size, desc->short_name);
}

/* ---- helpers ----------------------------------------------------------------------------------------------------- */

weft_status *hlo_proto_copy_ints(proto_reader *r, size_t count, const int64_t *v, hlo_ints *out)
{
  *out = (hlo_ints){0};
  if (count == 0) return NULL;
  if (count > INT32_MAX) return BAD("a list of %zu integers", count);
  out->v = weft_arena_memdup(r->arena, v, count * sizeof *v);
  WEFT_TRY_ALLOC(out->v);
  out->count = (int)count;
  return NULL;
}

static weft_status *copy_int32s(proto_reader *r, size_t count, const int32_t *v, hlo_ints *out)
{
  int64_t *wide = WEFT_ARENA_ARRAY(r->arena, int64_t, count);

  WEFT_TRY_ALLOC(wide);
  for (size_t i = 0; i < count; i++) wide[i] = v[i];
  *out = (hlo_ints){(int)count, count ? wide : NULL};
  return NULL;
}

/* Copies the permutation of an iota of `rank` dimensions.  The identity becomes empty, as text omits it. */
weft_status *hlo_proto_copy_permutation(proto_reader *r, size_t count, const int32_t *v, int rank, hlo_ints *out)
{
  uint64_t seen = 0;
  bool identity = true;

  WEFT_TRY(copy_int32s(r, count, v, out));
  if (count && count != (size_t)rank) return BAD("a permutation of %zu dimensions for an iota of %d", count, rank);
  if (rank > 64) return BAD("an iota of %d dimensions", rank);
  for (int i = 0; i < out->count; i++) {
    if (v[i] < 0 || v[i] >= rank || seen >> v[i] & 1) return BAD("an iota's permutation that is none");
    seen |= UINT64_C(1) << v[i];
    identity &= v[i] == i;
  }
  if (identity) *out = (hlo_ints){0};
  return NULL;
}

weft_status *hlo_proto_copy_bools(proto_reader *r, size_t count, const protobuf_c_boolean *v, hlo_ints *out)
{
  int64_t *wide = WEFT_ARENA_ARRAY(r->arena, int64_t, count);

  WEFT_TRY_ALLOC(wide);
  for (size_t i = 0; i < count; i++) wide[i] = v[i] != 0;
  *out = (hlo_ints){(int)count, count ? wide : NULL};
  return NULL;
}

/* An empty string is read as absent: NULL. */
weft_status *hlo_proto_copy_string(proto_reader *r, const char *text, const char **out)
{
  *out = NULL;
  if (!text || !*text) return NULL;
  *out = weft_arena_strdup(r->arena, text);
  WEFT_TRY_ALLOC(*out);
  return NULL;
}

weft_status *hlo_proto_copy_bytes(proto_reader *r, ProtobufCBinaryData bytes, const char **out)
{
  *out = NULL;
  if (bytes.len == 0) return NULL;
  if (memchr(bytes.data, '\0', bytes.len)) return WEFT_ERR(UNIMPLEMENTED, "a NUL byte in a configuration string");
  *out = weft_arena_strndup(r->arena, (const char *)bytes.data, bytes.len);
  WEFT_TRY_ALLOC(*out);
  return NULL;
}

/* True for words that begin something else in HLO text, where a name could stand. */
static bool is_reserved(const char *text)
{
  static const char *const words[] = {"ROOT", "ENTRY", "FileNames", "FunctionNames", "FileLocations", "StackFrames"};

  for (size_t i = 0; i < WEFT_COUNT(words); i++)
    if (strcmp(text, words[i]) == 0) return true;
  return false;
}

/* Copies `text` as a name that is new among `*used`.  Characters that HLO text cannot have in a name are replaced. */
static weft_status *copy_name(proto_reader *r, const char *text, const char *otherwise, name_in_use **used,
                              const char **out)
{
  if (!text || !*text) text = otherwise;
  char *name = weft_arena_printf(&r->scratch, "%s%s", text, is_reserved(text) ? "_" : "");
  name_in_use *found, *entry = WEFT_ARENA_NEW(&r->scratch, name_in_use);
  const char *kept;

  WEFT_TRY_ALLOC(name);
  WEFT_TRY_ALLOC(entry);
  for (char *p = name; *p; p++) {
    bool letter = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || *p == '_';
    if (!letter && (p == name || !((*p >= '0' && *p <= '9') || *p == '.' || *p == '-'))) *p = '_';
    if (p[0] == '>' || (p > name && p[-1] == '-' && *p == '>')) *p = '_';
  }
  kept = name;
  HASH_FIND(hh, *used, kept, strlen(kept), found);
  while (found) {
    WEFT_TRY(hlo_unique_name(r->module, name, &kept));
    HASH_FIND(hh, *used, kept, strlen(kept), found);
  }
  HASH_ADD_KEYPTR(hh, *used, kept, strlen(kept), entry);
  WEFT_TRY_ALLOC(entry->hh.tbl);
  *out = kept;
  return NULL;
}

/* ---- instructions ------------------------------------------------------------------------------------------------ */

static hlo_instr *find_instr(const proto_reader *r, int64_t wire_id)
{
  uint32_t id = (uint32_t)wire_id;
  instr_by_id *found;

  HASH_FIND(hh, r->instrs, &id, sizeof id, found);
  return found ? found->instr : NULL;
}

static hlo_computation *find_computation(const proto_reader *r, int64_t id)
{
  comp_by_id *found;

  HASH_FIND(hh, r->comps, &id, sizeof id, found);
  return found ? found->comp : NULL;
}

/* Opcodes of old files that XLA has replaced by other opcodes with an attribute. */
static hlo_opcode old_opcode(const char *name, const char **out_direction)
{
  static const struct { const char *name; hlo_opcode op; const char *direction; } old[] = {
    {"equal-to", HLO_COMPARE, "EQ"},     {"not-equal-to", HLO_COMPARE, "NE"},
    {"greater-than", HLO_COMPARE, "GT"}, {"greater-than-or-equal-to", HLO_COMPARE, "GE"},
    {"less-than", HLO_COMPARE, "LT"},    {"less-than-or-equal-to", HLO_COMPARE, "LE"},
    {"cross-replica-sum", HLO_ALL_REDUCE, NULL},
  };

  for (size_t i = 0; i < WEFT_COUNT(old); i++) {
    if (strcmp(name, old[i].name) != 0) continue;
    *out_direction = old[i].direction;
    return old[i].op;
  }
  return HLO_OPCODE_COUNT;
}

static weft_status *read_called(proto_reader *r, const HloPb__Instruction *p, hlo_instr *instr)
{
  hlo_computation **called = WEFT_ARENA_ARRAY(&r->scratch, hlo_computation *, p->n_called_computation_ids);

  WEFT_TRY_ALLOC(called);
  for (size_t i = 0; i < p->n_called_computation_ids; i++) {
    called[i] = find_computation(r, p->called_computation_ids[i]);
    if (!called[i])
      return BAD("no computation with id %" PRId64 " comes before this one", p->called_computation_ids[i]);
  }
  return hlo_set_called(instr, (int)p->n_called_computation_ids, called);
}

/* True if the instruction calls as many computations as its opcode needs.  The printer relies on it. */
static bool has_called(const hlo_instr *instr)
{
  switch (instr->op) {
  case HLO_WHILE:
  case HLO_SELECT_AND_SCATTER: return instr->called_count == 2;
  case HLO_ALL_REDUCE:
  case HLO_ALL_REDUCE_START:
  case HLO_REDUCE_SCATTER:
  case HLO_ASYNC_START:
  case HLO_CALL:
  case HLO_FUSION:
  case HLO_MAP:
  case HLO_REDUCE:
  case HLO_REDUCE_WINDOW:
  case HLO_SCAN:
  case HLO_SCATTER:
  case HLO_SORT: return instr->called_count == 1;
  case HLO_CONDITIONAL: return instr->called_count >= 1;
  default: return true;
  }
}

static weft_status *read_parameter(const HloPb__Instruction *p, hlo_computation *comp, size_t instr_count,
                                   const hlo_shape *shape, const char *name, hlo_instr **out)
{
  if (p->parameter_number < 0 || (uint64_t)p->parameter_number >= instr_count)
    return BAD("parameter_number %" PRId64 " in a computation of %zu instructions", p->parameter_number, instr_count);
  return hlo_add_parameter(comp, p->parameter_number, shape, name, out);
}

static weft_status *read_instruction(proto_reader *r, const HloPb__Instruction *p, hlo_computation *comp,
                                     size_t instr_count)
{
  instr_by_id *entry = WEFT_ARENA_NEW(&r->scratch, instr_by_id);
  hlo_opcode op = hlo_opcode_from_name(p->opcode, strlen(p->opcode));
  const char *direction = NULL; /* of a compare that has its own opcode in the file */
  hlo_instr **operands = WEFT_ARENA_ARRAY(&r->scratch, hlo_instr *, p->n_operand_ids), *instr;
  const hlo_shape *shape;
  const char *name;

  WEFT_TRY_ALLOC(entry);
  WEFT_TRY_ALLOC(operands);
  if (op == HLO_OPCODE_COUNT) op = old_opcode(p->opcode, &direction);
  if (op == HLO_CUSTOM_CALL && strcmp(p->custom_call_target, HLO_PROTO_ERFC) == 0) op = HLO_ERFC;
  if (op == HLO_OPCODE_COUNT) return BAD("opcode \"%.60s\"", p->opcode);
  if (p->n_operand_ids > INT32_MAX || (int)p->n_operand_ids < hlo_opcode_least_operands(op) ||
      (hlo_opcode_most_operands(op) >= 0 && (int)p->n_operand_ids > hlo_opcode_most_operands(op)))
    return BAD("%s cannot have %zu operands", p->opcode, p->n_operand_ids);
  for (size_t i = 0; i < p->n_operand_ids; i++) {
    operands[i] = find_instr(r, p->operand_ids[i]);
    if (!operands[i]) return BAD("operand %zu: no instruction with id %" PRId64 " comes before", i, p->operand_ids[i]);
  }
  WEFT_TRY_NOTE(hlo_proto_read_shape(r, p->shape, 0, &shape), "its shape");
  WEFT_TRY(copy_name(r, p->name, hlo_opcode_name(op), &r->names, &name));
  if (op == HLO_PARAMETER) WEFT_TRY(read_parameter(p, comp, instr_count, shape, name, &instr));
  else WEFT_TRY(hlo_add(comp, NULL, op, shape, (int)p->n_operand_ids, operands, name, &instr));
  WEFT_TRY(hlo_init_attributes(instr));
  if (direction) {
    HloPb__Instruction compare = *p;
    compare.comparison_direction = (char *)direction;
    compare.comparison_type = (char *)"";
    WEFT_TRY(hlo_proto_read_attributes(r, &compare, instr));
  } else {
    WEFT_TRY(hlo_proto_read_attributes(r, p, instr));
  }
  WEFT_TRY(read_called(r, p, instr));
  if (!has_called(instr)) return BAD("%s cannot call %d computations", p->opcode, instr->called_count);
  entry->id = (uint32_t)p->id;
  entry->instr = instr;
  if (find_instr(r, p->id)) return BAD("id %" PRId64 " is taken by another instruction", p->id);
  HASH_ADD(hh, r->instrs, id, sizeof entry->id, entry);
  WEFT_TRY_ALLOC(entry->hh.tbl);
  return NULL;
}

/* A predecessor may stand behind its instruction in the file, so the list is sorted again when there are any. */
static weft_status *read_control_edges(proto_reader *r, const HloPb__Computation *p, hlo_computation *comp)
{
  bool any = false;

  for (size_t i = 0; i < p->n_instructions; i++) {
    const HloPb__Instruction *q = p->instructions[i];
    hlo_instr *instr = q->n_control_predecessor_ids ? find_instr(r, q->id) : NULL;

    for (size_t j = 0; j < q->n_control_predecessor_ids; j++) {
      hlo_instr *pred = find_instr(r, q->control_predecessor_ids[j]);
      if (!pred) return BAD("%s: no control predecessor with id %" PRId64, q->name, q->control_predecessor_ids[j]);
      if (pred == instr) return BAD("%s is its own control predecessor", q->name);
      WEFT_TRY(hlo_add_control_edge(pred, instr));
      any = true;
    }
  }
  return any ? hlo_computation_sort(comp) : NULL;
}

/* Puts the list into the order of the schedule, which must name each instruction once. */
static weft_status *apply_schedule(proto_reader *r, int64_t comp_id, hlo_computation *comp)
{
  const HloPb__Schedule *schedule = r->pb->schedule;
  const HloPb__Schedule__Sequence *sequence = NULL;
  bool *placed;

  for (size_t i = 0; schedule && i < schedule->n_sequences; i++)
    if (schedule->sequences[i]->computation == comp_id) sequence = schedule->sequences[i]->sequence;
  if (!sequence) return NULL;
  if (sequence->n_ids != (size_t)comp->instr_count)
    return BAD("the schedule has %zu instructions, the computation %d", sequence->n_ids, comp->instr_count);
  placed = WEFT_ARENA_ARRAY(&r->scratch, bool, r->module->next_id);
  WEFT_TRY_ALLOC(placed);
  for (size_t i = 0; i < sequence->n_ids; i++) {
    hlo_instr *instr = find_instr(r, sequence->ids[i]);

    if (!instr || placed[instr->id])
      return BAD("instruction id %" PRId64 " in the schedule is unknown or repeated", sequence->ids[i]);
    for (int j = 0; j < instr->operand_count; j++)
      if (!placed[instr->operands[j]->id])
        return BAD("the schedule has %s before its operand %s", instr->name, instr->operands[j]->name);
    for (int j = 0; j < instr->control->pred_count; j++)
      if (!placed[instr->control->preds[j]->id])
        return BAD("the schedule has %s before its control predecessor", instr->name);
    placed[instr->id] = true;
    hlo_move_before(instr, NULL);
  }
  return NULL;
}

static weft_status *read_computation_body(proto_reader *r, const HloPb__Computation *p, hlo_computation *comp)
{
  for (size_t i = 0; i < p->n_instructions; i++)
    WEFT_TRY_NOTE(read_instruction(r, p->instructions[i], comp, p->n_instructions), "instruction %zu, \"%.80s\"", i,
                  p->instructions[i]->name);
  if (!comp->last) return BAD("no instructions");
  for (int i = 0; i < comp->param_count; i++)
    if (!comp->params[i]) return BAD("no parameter %d", i);
  comp->root = find_instr(r, p->root_id);
  if (!comp->root) return BAD("no instruction has the root's id %" PRId64, p->root_id);
  WEFT_TRY(read_control_edges(r, p, comp));
  return apply_schedule(r, p->id, comp);
}

static weft_status *read_computation(proto_reader *r, const HloPb__Computation *p)
{
  comp_by_id *entry = WEFT_ARENA_NEW(&r->scratch, comp_by_id);
  hlo_computation *comp;
  const char *name;
  weft_status *st;

  WEFT_TRY_ALLOC(entry);
  if (find_computation(r, p->id)) return BAD("id %" PRId64 " is taken by another computation", p->id);
  WEFT_TRY(copy_name(r, p->name, "computation", &r->comp_names, &name));
  WEFT_TRY(hlo_computation_new(r->module, name, &comp));
  WEFT_TRY(hlo_proto_copy_string(r, p->execution_thread, &comp->execution_thread));
  if (comp->execution_thread && strcmp(comp->execution_thread, "main") == 0) comp->execution_thread = NULL;
  st = read_computation_body(r, p, comp);
  HASH_CLEAR(hh, r->instrs);
  HASH_CLEAR(hh, r->names);
  WEFT_TRY(st);
  entry->id = p->id;
  entry->comp = comp;
  HASH_ADD(hh, r->comps, id, sizeof entry->id, entry);
  WEFT_TRY_ALLOC(entry->hh.tbl);
  return NULL;
}

/* ---- modules ----------------------------------------------------------------------------------------------------- */

static weft_status *read_entry_layout(proto_reader *r, const HloPb__ProgramShape *p)
{
  hlo_module *module = r->module;
  const hlo_computation *entry = module->entry;

  if (!p || !p->result) return NULL;
  if (p->n_params != (size_t)entry->param_count)
    return BAD("the program shape has %zu parameters, the entry computation %d", p->n_params, entry->param_count);
  module->entry_param_shapes = WEFT_ARENA_ARRAY(r->arena, const hlo_shape *, p->n_params);
  WEFT_TRY_ALLOC(module->entry_param_shapes);
  for (size_t i = 0; i < p->n_params; i++) {
    WEFT_TRY(hlo_proto_read_shape(r, p->params[i], 0, &module->entry_param_shapes[i]));
    if (!hlo_shape_equal(module->entry_param_shapes[i], entry->params[i]->shape, false))
      return BAD("parameter %zu has another shape in the program shape", i);
  }
  WEFT_TRY(hlo_proto_read_shape(r, p->result, 0, &module->entry_result_shape));
  if (!hlo_shape_equal(module->entry_result_shape, entry->root->shape, false))
    return BAD("the result has another shape in the program shape");
  module->has_entry_layout = true;
  return NULL;
}

static weft_status *read_aliases(proto_reader *r)
{
  const HloPb__InputOutputAlias *p = r->pb->input_output_alias;
  const HloPb__BufferDonor *q = r->pb->buffer_donor;
  hlo_input_output_alias *aliases = WEFT_ARENA_ARRAY(r->arena, hlo_input_output_alias, p ? p->n_entries : 0);
  hlo_buffer_donor *donors = WEFT_ARENA_ARRAY(r->arena, hlo_buffer_donor, q ? q->n_entries : 0);

  WEFT_TRY_ALLOC(aliases);
  WEFT_TRY_ALLOC(donors);
  for (size_t i = 0; p && i < p->n_entries; i++) {
    COPY_INTS(r, p->entries[i], output_index, &aliases[i].output_index);
    aliases[i].parameter = p->entries[i]->parameter;
    COPY_INTS(r, p->entries[i], parameter_index, &aliases[i].parameter_index);
    aliases[i].must_alias = p->entries[i]->kind == 2;
    if (aliases[i].parameter < 0 || aliases[i].parameter >= r->module->entry->param_count)
      return BAD("input_output_alias of parameter %" PRId64, aliases[i].parameter);
  }
  for (size_t i = 0; q && i < q->n_entries; i++) {
    donors[i].parameter = q->entries[i]->parameter;
    COPY_INTS(r, q->entries[i], parameter_index, &donors[i].parameter_index);
    if (donors[i].parameter < 0 || donors[i].parameter >= r->module->entry->param_count)
      return BAD("buffer_donor of parameter %" PRId64, donors[i].parameter);
  }
  r->module->alias_count = p ? (int)p->n_entries : 0;
  r->module->aliases = aliases;
  r->module->donor_count = q ? (int)q->n_entries : 0;
  r->module->donors = donors;
  return NULL;
}

static weft_status *read_stack_frames(proto_reader *r)
{
  const HloPb__StackFrames *p = r->pb->stack_frames;
  hlo_stack_frames *f;

  if (!p || p->n_frames == 0) return NULL;
  f = WEFT_ARENA_NEW(r->arena, hlo_stack_frames);
  WEFT_TRY_ALLOC(f);
  f->files = WEFT_ARENA_ARRAY(r->arena, const char *, p->n_files);
  f->functions = WEFT_ARENA_ARRAY(r->arena, const char *, p->n_functions);
  f->locations = WEFT_ARENA_ARRAY(r->arena, struct hlo_file_location, p->n_locations);
  f->frames = WEFT_ARENA_ARRAY(r->arena, struct hlo_stack_frame, p->n_frames);
  if (!f->files || !f->functions || !f->locations || !f->frames) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  for (size_t i = 0; i < p->n_files; i++)
    if (!(f->files[i] = weft_arena_strdup(r->arena, p->files[i]))) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  for (size_t i = 0; i < p->n_functions; i++)
    if (!(f->functions[i] = weft_arena_strdup(r->arena, p->functions[i])))
      return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  for (size_t i = 0; i < p->n_locations; i++) {
    const HloPb__StackFrames__Location *l = p->locations[i];
    f->locations[i] = (struct hlo_file_location){WEFT_MAX(l->file, 0),     WEFT_MAX(l->function, 0),
                                                 WEFT_MAX(l->line, 0),     WEFT_MAX(l->column, 0),
                                                 WEFT_MAX(l->end_line, 0), WEFT_MAX(l->end_column, 0)};
  }
  for (size_t i = 0; i < p->n_frames; i++)
    f->frames[i] = (struct hlo_stack_frame){
      WEFT_MAX(p->frames[i]->location, 0),
      p->frames[i]->parent > 0 && p->frames[i]->parent < INT32_MAX ? p->frames[i]->parent + 1 : 1};
  f->file_count = (int)p->n_files;
  f->function_count = (int)p->n_functions;
  f->location_count = (int)p->n_locations;
  f->frame_count = (int)p->n_frames;
  r->module->stack_frames = f;
  return NULL;
}

static weft_status *read_module_shardings(proto_reader *r)
{
  const HloPb__Module *p = r->pb;
  const hlo_sharding **list = WEFT_ARENA_ARRAY(r->arena, const hlo_sharding *, p->n_spmd_parameter_shardings);

  WEFT_TRY_ALLOC(list);
  if (p->spmd_output_sharding)
    WEFT_TRY(hlo_proto_read_sharding(r, p->spmd_output_sharding, false, &r->module->spmd_output_sharding));
  for (size_t i = 0; i < p->n_spmd_parameter_shardings; i++)
    WEFT_TRY(hlo_proto_read_sharding(r, p->spmd_parameter_shardings[i], false, &list[i]));
  r->module->spmd_parameter_shardings = list;
  r->module->spmd_parameter_count = (int)p->n_spmd_parameter_shardings;
  return NULL;
}

static weft_status *read_module(proto_reader *r)
{
  const HloPb__Module *p = r->pb;
  hlo_module *module = r->module;
  name_in_use *module_names = NULL;
  weft_status *st = copy_name(r, p->name, "module", &module_names, &module->name);

  HASH_CLEAR(hh, module_names);
  WEFT_TRY(st);
  module->name = weft_arena_strdup(r->arena, module->name);
  WEFT_TRY_ALLOC(module->name);
  for (size_t i = 0; i < p->n_computations; i++)
    WEFT_TRY_NOTE(read_computation(r, p->computations[i]), "computation %zu, \"%.80s\"", i, p->computations[i]->name);
  module->entry = find_computation(r, p->entry_computation_id);
  if (!module->entry) return BAD("no computation has the entry's id %" PRId64, p->entry_computation_id);
  module->is_scheduled = p->schedule && p->schedule->n_sequences > 0;
  module->is_dynamic = p->is_dynamic;
  module->use_auto_spmd = p->use_auto_spmd;
  WEFT_TRY(read_entry_layout(r, p->host_program_shape));
  WEFT_TRY(read_aliases(r));
  WEFT_TRY(hlo_proto_read_key_values(r, p->frontend_attributes, &module->frontend_attributes, &module->frontend_count));
  WEFT_TRY(read_module_shardings(r));
  return read_stack_frames(r);
}

static weft_status *read_config(proto_reader *r, const HloPb__Config *p)
{
  if (!p) return NULL;
  r->module->replica_count = WEFT_MAX(p->replica_count, 1);
  r->module->num_partitions = WEFT_MAX(p->num_partitions, 1);
  r->module->alias_passthrough_params = p->alias_passthrough_params;
  WEFT_TRY(hlo_proto_copy_bools(r, p->n_propagate_to_parameters, p->propagate_to_parameters,
                                &r->module->propagate_to_parameters));
  WEFT_TRY(hlo_proto_copy_bools(r, p->n_propagate_to_output, p->propagate_to_output, &r->module->propagate_to_output));
  return read_entry_layout(r, p->entry_layout);
}

/* Reads the HloModuleProto, which may lie inside other messages. */
static weft_status *read_any(proto_reader *r, const uint8_t *data, size_t size)
{
  const HloPb__ModuleWithConfig *with_config;
  wire_field outer = {.data = data, .size = size};

  for (int depth = 0; depth < 3; depth++) {
    if (looks_like_module(outer.data, outer.size)) {
      WEFT_TRY(unpack(r, &hlo_pb__module__descriptor, outer.data, outer.size, &r->pb));
      return read_module(r);
    }
    const uint8_t *p = outer.data;
    wire_field inner, config;
    if (!find_bytes(p, outer.size, 1, &inner)) break;
    if (looks_like_module(inner.data, inner.size) && find_bytes(p, outer.size, 2, &config) &&
        !find_bytes(p, outer.size, 3, &config)) {
      WEFT_TRY(unpack(r, &hlo_pb__module_with_config__descriptor, outer.data, outer.size, &with_config));
      if (!with_config->module) break;
      r->pb = with_config->module;
      WEFT_TRY(read_module(r));
      return read_config(r, with_config->config);
    }
    outer = inner;
  }
  return BAD("these %zu bytes hold no HloModuleProto", size);
}

/* A serialised message starts with a field tag, which in XLA's messages is a control character. The tag of the module's
 * name, 0x0a, is also a newline. In that case one of the tags and lengths behind it decides, because text has no
 * control characters except white space. */
bool hlo_looks_like_proto(const char *data, size_t size)
{
  if (size == 0 || (unsigned char)data[0] >= 0x20) return false;
  for (size_t i = 0; i < WEFT_MIN(size, (size_t)4096); i++)
    if ((unsigned char)data[i] < 0x20 && !(data[i] >= '\t' && data[i] <= '\r')) return true;
  return false;
}

weft_status *hlo_from_proto(const void *data, size_t size, hlo_module **out_module)
{
  WEFT_AUTO(hlo_module) module = NULL;
  proto_reader r = {0};
  weft_status *st;

  *out_module = NULL;
  WEFT_TRY(hlo_module_new("module", &module));
  r.module = module;
  r.arena = &module->arena;
  weft_arena_init(&r.scratch);
  st = read_any(&r, data, size);
  HASH_CLEAR(hh, r.comps);
  HASH_CLEAR(hh, r.comp_names);
  weft_arena_fini(&r.scratch);
  WEFT_TRY(st);
  *out_module = WEFT_MOVE(module);
  return NULL;
}

weft_status *hlo_shape_from_proto(weft_arena *arena, const void *data, size_t size, const hlo_shape **out)
{
  proto_reader r = {.arena = arena};
  const HloPb__Shape *p;
  weft_status *st;

  *out = NULL;
  weft_arena_init(&r.scratch);
  st = unpack(&r, &hlo_pb__shape__descriptor, data, size, &p);
  if (!st) st = hlo_proto_read_shape(&r, p, 0, out);
  weft_arena_fini(&r.scratch);
  return st;
}

weft_status *hlo_sharding_from_proto(weft_arena *arena, const void *data, size_t size, const hlo_sharding **out)
{
  proto_reader r = {.arena = arena};
  const HloPb__Sharding *p;
  weft_status *st;

  *out = NULL;
  weft_arena_init(&r.scratch);
  st = unpack(&r, &hlo_pb__sharding__descriptor, data, size, &p);
  if (!st) st = hlo_proto_read_sharding(&r, p, false, out);
  weft_arena_fini(&r.scratch);
  return st;
}

weft_status *hlo_use_row_major_entry(hlo_module *module)
{
  const hlo_computation *entry = module->entry;

  module->entry_param_shapes = WEFT_ARENA_ARRAY(&module->arena, const hlo_shape *, entry->param_count);
  WEFT_TRY_ALLOC(module->entry_param_shapes);
  for (int i = 0; i < entry->param_count; i++)
    WEFT_TRY_ALLOC(module->entry_param_shapes[i] = hlo_shape_without_layout(&module->arena, entry->params[i]->shape));
  WEFT_TRY_ALLOC(module->entry_result_shape = hlo_shape_without_layout(&module->arena, entry->root->shape));
  module->has_entry_layout = true;
  return NULL;
}
