/* tests/hlo/proto_test.c -- HloModuleProto: what goes through it and back, and what is refused. */
#include "read_file.h"
#include "test.h"

#include <dirent.h>

#include "hlo/infer.h"
#include "hlo/proto.h"
#include "hlo/text.h"

static hlo_module *parse(const char *text, size_t size)
{
  hlo_module *module = NULL;

  T_OK(hlo_parse(text, size, &module));
  return module;
}

/* Without the header, whose attributes are the configuration's and not in the proto. */
static char *print_body(const hlo_module *module)
{
  char *text = NULL, *body;
  size_t size;

  T_OK(hlo_print_to_string(module, (hlo_print_options){.metadata = true}, &text, &size));
  body = strdup(strchr(text, '\n'));
  free(text);
  return body;
}

static int compare_names(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Computations share names of instructions: a proto may not. */
static bool names_repeat(const hlo_module *module)
{
  const char **names = calloc((size_t)module->next_id, sizeof *names);
  size_t count = 0;
  bool repeat = false;

  HLO_FOREACH_COMPUTATION(comp, module)
    HLO_FOREACH(instr, comp) names[count++] = instr->name;
  qsort(names, count, sizeof *names, compare_names);
  for (size_t i = 1; i < count; i++) repeat |= strcmp(names[i - 1], names[i]) == 0;
  free(names);
  return repeat;
}

static void round_trip(const char *path)
{
  size_t size, proto_size;
  char *text = read_file(path, &size), *before, *after;
  hlo_module *module, *again = NULL;
  void *proto;

  T_TRUE(text != NULL);
  module = parse(text, size);
  T_OK(hlo_to_proto(module, &proto, &proto_size));
  T_OK(hlo_from_proto(proto, proto_size, &again));
  before = print_body(module);
  after = print_body(again);
  if (strcmp(before, after) != 0 && !names_repeat(module)) fail_msg("%s: the proto holds another program", path);
  T_EQ_INT(module->is_scheduled, again->is_scheduled);
  T_EQ_INT(module->alias_count, again->alias_count);
  T_EQ_INT(module->donor_count, again->donor_count);
  free(text);
  free(before);
  free(after);
  free(proto);
  hlo_module_free(module);
  hlo_module_free(again);
}

static bool each_file(const char *folder)
{
  DIR *dir = opendir(folder);

  if (!dir) return false;
  for (struct dirent *entry; (entry = readdir(dir));) {
    char path[2048];
    size_t length = strlen(entry->d_name);

    if (length < 4 || strcmp(entry->d_name + length - 4, ".hlo") != 0) continue;
    snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    round_trip(path);
  }
  closedir(dir);
  return true;
}

TEST(programs_come_back_from_their_proto)
{
  char folder[1024];

  snprintf(folder, sizeof folder, "%s/tests/data/hlo", getenv("WEFT_SRCDIR"));
  T_TRUE(each_file(folder));
  snprintf(folder, sizeof folder, "%s/../shared/testdata/hlo", getenv("WEFT_SRCDIR"));
  if (!each_file(folder)) T_SKIP("no %s", folder);
}

static const char scheduled[] =
  "HloModule sched, is_scheduled=true, input_output_alias={ {}: (0, {}, must-alias) }, buffer_donor={ (1, {}) }, "
  "replica_count=2, num_partitions=3, allow_spmd_sharding_propagation_to_output={true}, "
  "entry_computation_layout={(f32[2,2]{0,1}, f32[2,2]{1,0})->f32[2,2]{1,0}}\n"
  "ENTRY e {\n"
  "  a = f32[2,2]{0,1} parameter(0)\n"
  "  b = f32[2,2]{1,0} parameter(1)\n"
  "  late = f32[2,2]{1,0} negate(b)\n"
  "  ROOT r = f32[2,2]{1,0} add(a, b), control-predecessors={late}\n"
  "  dead = f32[2,2]{1,0} abs(b)\n"
  "}\n";

TEST(schedule_aliases_and_layouts_are_kept)
{
  hlo_module *module = parse(scheduled, strlen(scheduled)), *again = NULL;
  void *proto;
  size_t size;

  T_OK(hlo_to_proto(module, &proto, &size));
  T_OK(hlo_from_proto(proto, size, &again));
  T_TRUE(again->is_scheduled);
  T_EQ_STR(again->entry->last->name, "dead");
  T_EQ_STR(again->entry->root->name, "r");
  T_EQ_INT(again->entry->root->control->pred_count, 1);
  T_EQ_INT(again->alias_count, 1);
  T_TRUE(again->aliases[0].must_alias);
  T_EQ_INT(again->donors[0].parameter, 1);
  T_TRUE(again->has_entry_layout);
  T_TRUE(hlo_shape_equal(again->entry_param_shapes[0], module->entry_param_shapes[0], true));
  free(proto);
  hlo_module_free(module);
  hlo_module_free(again);
}

TEST(the_form_with_config_has_counts_too)
{
  hlo_module *module = parse(scheduled, strlen(scheduled)), *again = NULL;
  void *proto;
  size_t size;

  T_OK(hlo_to_proto_with_config(module, &proto, &size));
  T_OK(hlo_from_proto(proto, size, &again));
  T_EQ_INT(again->replica_count, 2);
  T_EQ_INT(again->num_partitions, 3);
  T_EQ_INT(again->propagate_to_output.count, 1);
  free(proto);
  hlo_module_free(module);
  hlo_module_free(again);
}

/* A proto has 64 bits for each count, whose product must fit into 64. */
TEST(counts_beyond_32_bits_are_refused)
{
  hlo_module *module = parse(scheduled, strlen(scheduled)), *again = NULL;
  void *proto;
  size_t size;
  weft_status *st;

  module->replica_count = INT64_C(1) << 40;
  T_OK(hlo_to_proto_with_config(module, &proto, &size));
  st = hlo_from_proto(proto, size, &again);
  if (!st) st = hlo_verify(again);
  T_TRUE(st != NULL);
  T_TRUE(strstr(weft_status_message(st), "1099511627776 replicas") != NULL);
  weft_status_free(st);
  free(proto);
  hlo_module_free(module);
  hlo_module_free(again);
}

/* A message of one length-delimited field, around `size` bytes. */
static uint8_t *wrap(uint8_t field, const void *data, size_t size, size_t *out_size)
{
  uint8_t *out = malloc(size + 16), *p = out;

  *p++ = (uint8_t)(field << 3 | 2);
  for (size_t rest = size; rest || p == out + 1; rest >>= 7) *p++ = (uint8_t)((rest & 0x7f) | (rest > 0x7f ? 0x80 : 0));
  if (size) memcpy(p, data, size);
  *out_size = (size_t)(p - out) + size;
  return out;
}

TEST(wrappers_of_a_module_are_told_by_content)
{
  hlo_module *module = parse(scheduled, strlen(scheduled)), *again = NULL;
  void *proto;
  size_t size, hlo_size, snapshot_size;
  uint8_t *hlo, *snapshot;

  T_OK(hlo_to_proto(module, &proto, &size));
  hlo = wrap(1, proto, size, &hlo_size); /* HloProto */
  T_OK(hlo_from_proto(hlo, hlo_size, &again));
  T_EQ_STR(again->name, "sched");
  hlo_module_free(again);
  snapshot = wrap(1, hlo, hlo_size, &snapshot_size); /* HloSnapshot */
  T_OK(hlo_from_proto(snapshot, snapshot_size, &again));
  T_EQ_STR(again->name, "sched");
  hlo_module_free(again);
  hlo_module_free(module);
  free(proto);
  free(hlo);
  free(snapshot);
}

TEST(names_are_made_unique_for_xla)
{
  static const char text[] = "f { x = f32[] parameter(0)\n"
                             " y = f32[] negate(x) }\n"
                             "ENTRY e { x = f32[] parameter(0)\n"
                             " y = f32[] call(x), to_apply=f }";
  hlo_module *module = parse(text, strlen(text)), *again = NULL;
  void *proto;
  size_t size;

  T_OK(hlo_to_proto(module, &proto, &size));
  T_OK(hlo_from_proto(proto, size, &again));
  T_EQ_STR(again->first->first->name, "x");
  T_TRUE(strcmp(again->entry->first->name, "x") != 0);
  free(proto);
  hlo_module_free(module);
  hlo_module_free(again);
}

/* XLA has no opcode for it, and refuses a proto with one that it does not know. */
TEST(an_erfc_is_a_custom_call_in_its_proto)
{
  static const char text[] = "ENTRY e { x = f32[2] parameter(0)\n"
                             " ROOT y = f32[2] erfc(x) }";
  hlo_module *module = parse(text, strlen(text)), *again = NULL;
  void *proto;
  size_t size;

  T_OK(hlo_to_proto(module, &proto, &size));
  T_TRUE(memmem(proto, size, "custom-call", 11) && memmem(proto, size, "weft.erfc", 9));
  T_OK(hlo_from_proto(proto, size, &again));
  T_EQ_INT(again->entry->root->op, HLO_ERFC);
  free(proto);
  hlo_module_free(module);
  hlo_module_free(again);
}

TEST(sharding_alone_goes_through_its_proto)
{
  static const char *const cases[] = {
    "{replicated}", "{manual}", "{maximal device=3}", "{devices=[2,2]<=[2,2]T(1,0)}", "{devices=[2,2]0,2,1,3}",
    "{devices=[1,2,2]<=[4] last_tile_dims={manual, replicated}}", "{{replicated}, {devices=[2]<=[2]}}",
    "{mesh['x'=2,'y'=4], [{'x', 'y':(1)2}, {?}], replicated={'y':(2)2}}", "{unknown shard_like 4}",
  };
  weft_arena arena;

  weft_arena_init(&arena);
  for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
    const hlo_sharding *sharding;
    char *text = NULL;
    void *proto;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    T_OK(hlo_parse_sharding(&arena, cases[i], strlen(cases[i]), &sharding));
    T_OK(hlo_sharding_to_proto(sharding, &proto, &size));
    T_OK(hlo_sharding_from_proto(&arena, proto, size, &sharding));
    T_OK(hlo_print_sharding(sharding, out));
    fclose(out);
    T_EQ_STR(text, cases[i]);
    free(text);
    free(proto);
  }
  weft_arena_fini(&arena);
}

/* The bytes that jaxlib 0.10.2 writes for {mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)), [{'a'}, {'b'}]}; then the same
 * with a transposition that is not a permutation. */
TEST(device_ids_of_a_mesh_may_be_an_iota)
{
  static const unsigned char given[] = {
      0x72, 0x28, 0x12, 0x18, 0x0a, 0x05, 0x0a, 0x01, 'a', 0x10, 0x02, 0x0a, 0x05, 0x0a, 0x01, 'b', 0x10, 0x04, 0x1a, 0x08, 0x0a, 0x02,
      0x04, 0x02, 0x12, 0x02, 0x01, 0x00, 0x1a, 0x04, 0x0a, 0x00, 0x10, 0x01, 0x1a, 0x06, 0x0a, 0x02, 0x08, 0x01, 0x10, 0x01};
  unsigned char bad[sizeof given];
  const hlo_sharding *sharding;
  weft_arena arena;
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);

  weft_arena_init(&arena);
  T_OK(hlo_sharding_from_proto(&arena, given, sizeof given, &sharding));
  T_OK(hlo_print_sharding(sharding, out));
  fclose(out);
  T_EQ_STR(text, "{mesh['a'=2,'b'=4], device_ids=(0,2,4,6,1,3,5,7), [{'a'}, {'b'}]}");
  free(text);
  memcpy(bad, given, sizeof bad);
  bad[26] = 0; /* transposed by (0, 0) */
  T_CODE(hlo_sharding_from_proto(&arena, bad, sizeof bad, &sharding), WEFT_INVALID_ARGUMENT);
  weft_arena_fini(&arena);
}

TEST(protos_cut_or_flipped_anywhere_never_crash)
{
  hlo_module *module = parse(scheduled, strlen(scheduled));
  void *proto;
  size_t size;

  T_OK(hlo_to_proto(module, &proto, &size));
  for (size_t cut = 0; cut < size; cut++) {
    uint8_t *copy = malloc(cut ? cut : 1);
    hlo_module *again = NULL;
    memcpy(copy, proto, cut);
    weft_status_ignore(hlo_from_proto(copy, cut, &again));
    hlo_module_free(again);
    free(copy);
  }
  for (size_t bit = 0; bit < size * 8; bit++) {
    hlo_module *again = NULL;
    ((uint8_t *)proto)[bit / 8] ^= (uint8_t)(1 << bit % 8);
    weft_status_ignore(hlo_from_proto(proto, size, &again));
    ((uint8_t *)proto)[bit / 8] ^= (uint8_t)(1 << bit % 8);
    hlo_module_free(again);
  }
  free(proto);
  hlo_module_free(module);
}

TEST(nesting_and_memory_are_bounded)
{
  hlo_module *module = NULL;
  uint8_t *data = NULL;
  size_t size = 0;
  static const uint8_t opcode[] = {0x12, 1, 'a'};

  /* A shape in a shape in a shape, as an instruction's: field 3, then tuple_shapes, field 4. */
  for (int i = 0; i < 3000; i++) {
    size_t wrapped;
    uint8_t *outer = wrap(4, data, size, &wrapped);
    free(data);
    data = outer;
    size = wrapped;
  }
  uint8_t *shape = wrap(3, data, size, &size);
  uint8_t *instr = malloc(size + sizeof opcode);
  memcpy(instr, opcode, sizeof opcode);
  memcpy(instr + sizeof opcode, shape, size);
  uint8_t *comp = wrap(2, instr, size + sizeof opcode, &size);
  uint8_t *top = wrap(3, comp, size, &size);
  T_FAILS(hlo_from_proto(top, size, &module), "messages nested over 100 deep");
  free(data);
  free(shape);
  free(instr);
  free(comp);
  free(top);

  /* Empty instructions: two bytes of file each, a kilobyte of message. */
  enum { COUNT = 2000000 };
  uint8_t *body = malloc(sizeof opcode + 2 + 2 * COUNT);
  size_t at = 0;
  body[at++] = 0x12;
  body[at++] = sizeof opcode;
  memcpy(body + at, opcode, sizeof opcode);
  at += sizeof opcode;
  for (int i = 0; i < COUNT; i++) {
    body[at++] = 0x12;
    body[at++] = 0;
  }
  top = wrap(3, body, at, &size);
  T_CODE(hlo_from_proto(top, size, &module), WEFT_RESOURCE_EXHAUSTED);
  free(body);
  free(top);
}

TEST(errors_name_computation_and_instruction)
{
  hlo_module *module = parse(scheduled, strlen(scheduled)), *again = NULL;
  void *proto;
  size_t size;
  char *opcode;

  T_OK(hlo_to_proto(module, &proto, &size));
  opcode = memmem(proto, size, "negate", 6);
  T_TRUE(opcode);
  memcpy(opcode, "nagate", 6);
  T_FAILS(hlo_from_proto(proto, size, &again), "opcode \"nagate\"");
  T_FAILS(hlo_from_proto(proto, size, &again), "instruction 2, \"late\"");
  T_FAILS(hlo_from_proto(proto, size, &again), "computation 0, \"e\"");
  T_FAILS(hlo_from_proto("hello", 5, &again), "these 5 bytes hold no HloModuleProto");
  T_FAILS(hlo_from_proto("", 0, &again), "these 0 bytes hold no HloModuleProto");
  free(proto);
  hlo_module_free(module);
}

TEST_MAIN(UNIT(programs_come_back_from_their_proto), UNIT(schedule_aliases_and_layouts_are_kept),
          UNIT(the_form_with_config_has_counts_too), UNIT(counts_beyond_32_bits_are_refused),
          UNIT(wrappers_of_a_module_are_told_by_content),
          UNIT(names_are_made_unique_for_xla), UNIT(an_erfc_is_a_custom_call_in_its_proto), UNIT(sharding_alone_goes_through_its_proto), UNIT(device_ids_of_a_mesh_may_be_an_iota),
          UNIT(protos_cut_or_flipped_anywhere_never_crash), UNIT(nesting_and_memory_are_bounded),
          UNIT(errors_name_computation_and_instruction))
