/* tests/hlo/text_test.c -- HLO text: what is read, what is printed, and what errors say. */
#include "read_file.h"
#include "test.h"

#include <dirent.h>
#include <locale.h>

#include "hlo/text.h"

static hlo_module *parse(const char *text)
{
  hlo_module *module = NULL;

  T_OK(hlo_parse(text, strlen(text), &module));
  return module;
}

static weft_status *parse_fails(const char *text)
{
  hlo_module *module = NULL;
  weft_status *st = hlo_parse(text, strlen(text), &module);

  T_TRUE(!module || !st);
  hlo_module_free(module);
  return st;
}

static char *print_with(const hlo_module *module, hlo_print_options options)
{
  char *text = NULL;
  size_t size;

  T_OK(hlo_print_to_string(module, options, &text, &size));
  T_EQ_INT(strlen(text), size);
  return text;
}

static char *print(const hlo_module *module) { return print_with(module, HLO_PRINT_DEFAULT); }

/* ---- whole files ---- */

/* Calls `check` with the name and text of every .hlo file of a folder; false if there is no such folder. */
static bool each_file(const char *folder, void (*check)(const char *name, const char *text, size_t size))
{
  DIR *dir = opendir(folder);

  if (!dir) return false;
  for (struct dirent *entry; (entry = readdir(dir));) {
    char path[2048];
    size_t size, length = strlen(entry->d_name);
    char *text;

    if (length < 4 || strcmp(entry->d_name + length - 4, ".hlo") != 0) continue;
    snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    text = read_file(path, &size);
    T_TRUE(text != NULL);
    check(entry->d_name, text, size);
    free(text);
  }
  closedir(dir);
  return true;
}

static void round_trip(const char *name, const char *text, size_t size)
{
  hlo_module *first = NULL, *second = NULL;
  weft_status *st = hlo_parse(text, size, &first);
  char *printed, *again;

  if (st) fail_msg("%s: %s", name, weft_status_text(st, true));
  printed = print(first);
  st = hlo_parse(printed, strlen(printed), &second);
  if (st) fail_msg("%s, printed: %s", name, weft_status_text(st, true));
  again = print(second);
  if (strcmp(printed, again) != 0) fail_msg("%s: print(parse(print)) differs from print", name);
  free(printed);
  free(again);
  hlo_module_free(first);
  hlo_module_free(second);
}

TEST(real_programs_parse_and_print_the_same_again)
{
  char folder[1024];

  snprintf(folder, sizeof folder, "%s/../shared/testdata/hlo", getenv("WEFT_SRCDIR"));
  if (!each_file(folder, round_trip)) T_SKIP("no %s", folder);
}

TEST(programs_with_every_opcode_parse_and_print_the_same_again)
{
  char folder[1024];

  snprintf(folder, sizeof folder, "%s/tests/data/hlo", getenv("WEFT_SRCDIR"));
  T_TRUE(each_file(folder, round_trip));
}

/* ---- forms that are read but printed in another way ---- */

#define ADD \
  "add {\n" \
  "  x = f32[] parameter(0)\n" \
  "  y = f32[] parameter(1)\n" \
  "  ROOT s = f32[] add(x, y)\n" \
  "}\n" \
  "\n"

static const struct { const char *what, *text, *printed; } forms[] = {
  {"no header, no ENTRY, no ROOT", "e { a = f32[2] parameter(0)\n"
                                   " b = f32[2] negate(a) }",
   "HloModule module\n\n"
   "ENTRY e {\n"
   "  a = f32[2] parameter(0)\n"
   "  ROOT b = f32[2] negate(a)\n"
   "}\n"},
  {"one instruction alone makes its operands parameters", "ROOT d = f32[2] add(f32[2]{0} %p, f32[2]{0} %q), metadata={op_name=\"d\"}",
   "HloModule module\n\n"
   "ENTRY entry {\n"
   "  p = f32[2] parameter(0)\n"
   "  q = f32[2] parameter(1)\n"
   "  ROOT d = f32[2] add(p, q), metadata={op_name=\"d\"}\n"
   "}\n"},
  {"an expression alone, and shapes as its operands", "f32[2]{0} add(f32[2]{0}, f32[2] %q)",
   "HloModule module\n\n"
   "ENTRY entry {\n"
   "  parameter.0 = f32[2] parameter(0)\n"
   "  q = f32[2] parameter(1)\n"
   "  ROOT add.1 = f32[2] add(parameter.0, q)\n"
   "}\n"},
  {"what hand-written texts take liberties with: a colon, a space, a comma, an operand's bound",
   "HloModule m:\n"
   "ENTRY e { p = s32 [<=2] parameter(0)\n"
   " c = s32[2,1] constant({ {1} {2} })\n"
   " ROOT n = s32[<=2] negate(s32[2] p) }",
   "HloModule m\n\n"
   "ENTRY e {\n"
   "  p = s32[<=2] parameter(0)\n"
   "  c = s32[2,1] constant({ {1}, {2} })\n"
   "  ROOT n = s32[<=2] negate(p)\n"
   "}\n"},
  {"result shapes are inferred",
   "e { a = f32[2,3] parameter(0)\n"
   " b = transpose(a), dimensions={1,0}\n"
   " c = dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
   " t = tuple(c, a)\n"
   " g = get-tuple-element(t), index=0 }",
   "HloModule module\n\n"
   "ENTRY e {\n"
   "  a = f32[2,3] parameter(0)\n"
   "  b = f32[3,2] transpose(a), dimensions={1,0}\n"
   "  c = f32[2,2] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
   "  t = (f32[2,2], f32[2,3]) tuple(c, a)\n"
   "  ROOT g = f32[2,2] get-tuple-element(t), index=0\n"
   "}\n"},
  {"operands may be expressions", "e { x = f32[] parameter(0)\n"
                                  " y = f32[] parameter(1)\n"
                                  " ROOT r = f32[] add(f32[] maximum(x, y), negate(x)) }",
   "HloModule module\n\n"
   "ENTRY e {\n"
   "  x = f32[] parameter(0)\n"
   "  y = f32[] parameter(1)\n"
   "  maximum.0 = f32[] maximum(x, y)\n"
   "  negate.1 = f32[] negate(x)\n"
   "  ROOT r = f32[] add(maximum.0, negate.1)\n"
   "}\n"},
  {"called computations may stand in place",
   "ENTRY e {\n"
   "  x = f32[8] parameter(0)\n"
   "  z = f32[] constant(0)\n"
   "  ROOT r = f32[] reduce(x, z), dimensions={0}, to_apply={\n"
   "    a = f32[] parameter(0)\n"
   "    b = f32[] parameter(1)\n"
   "    c = f32[] add(a, b) }\n"
   "}",
   "HloModule module\n\n"
   "inline.0 {\n"
   "  a = f32[] parameter(0)\n"
   "  b = f32[] parameter(1)\n"
   "  ROOT c = f32[] add(a, b)\n"
   "}\n\n"
   "ENTRY e {\n"
   "  x = f32[8] parameter(0)\n"
   "  z = f32[] constant(0)\n"
   "  ROOT r = f32[] reduce(x, z), dimensions={0}, to_apply=inline.0\n"
   "}\n"},
  {"computations in place inside others in place come first",
   "ENTRY e {\n"
   "  x = f32[] parameter(0)\n"
   "  ROOT r = f32[] call(x), to_apply={\n"
   "    a = f32[] parameter(0)\n"
   "    b = f32[] call(a), to_apply={\n"
   "      c = f32[] parameter(0)\n"
   "      d = f32[] negate(c) } }\n"
   "}",
   "HloModule module\n\n"
   "inline.1 {\n"
   "  c = f32[] parameter(0)\n"
   "  ROOT d = f32[] negate(c)\n"
   "}\n\n"
   "inline.0 {\n"
   "  a = f32[] parameter(0)\n"
   "  ROOT b = f32[] call(a), to_apply=inline.1\n"
   "}\n\n"
   "ENTRY e {\n"
   "  x = f32[] parameter(0)\n"
   "  ROOT r = f32[] call(x), to_apply=inline.0\n"
   "}\n"},
  {"elements of tuples by #index, each made once",
   "e { t = (f32[], (s32[], f32[])) parameter(0)\n"
   " a = f32[] add(%t#0, %t#1#1)\n"
   " ROOT b = f32[] multiply(a, t#0) }",
   "HloModule module\n\n"
   "ENTRY e {\n"
   "  t = (f32[], (s32[], f32[])) parameter(0)\n"
   "  get-tuple-element.0 = f32[] get-tuple-element(t), index=0\n"
   "  get-tuple-element.1 = (s32[], f32[]) get-tuple-element(t), index=1\n"
   "  get-tuple-element.2 = f32[] get-tuple-element(get-tuple-element.1), index=1\n"
   "  a = f32[] add(get-tuple-element.0, get-tuple-element.2)\n"
   "  ROOT b = f32[] multiply(a, get-tuple-element.0)\n"
   "}\n"},
  {"names of ours give way to the text's",
   "e { x = f32[] parameter(0)\n"
   " a = f32[] add(f32[] negate(x), x)\n"
   " negate.0 = f32[] negate(a)\n"
   " ROOT r = f32[] add(negate.0, a) }",
   "HloModule module\n\n"
   "ENTRY e {\n"
   "  x = f32[] parameter(0)\n"
   "  negate.1 = f32[] negate(x)\n"
   "  a = f32[] add(negate.1, x)\n"
   "  negate.0 = f32[] negate(a)\n"
   "  ROOT r = f32[] add(negate.0, a)\n"
   "}\n"},
  {"old dumps: % and shapes of operands, signatures, comments",
   "HloModule m /* c */\n"
   "// line\n"
   "%f (p.1: f32[2], /*index=1*/q: f32[2]) -> f32[2] {\n"
   "  %p.1 = f32[2]{0} parameter(0)\n"
   "  %q = f32[2]{0} parameter(1)\n"
   "  ROOT %r = f32[2]{0} add(f32[2]{0} %p.1, f32[2]{0} %q)\n"
   "}\n",
   "HloModule m\n\n"
   "ENTRY f {\n"
   "  p.1 = f32[2] parameter(0)\n"
   "  q = f32[2] parameter(1)\n"
   "  ROOT r = f32[2] add(p.1, q)\n"
   "}\n"},
  {"a signature's parameters are not believed", "ENTRY e (a f32[2]) -> f32[] { x = f32[] parameter(0)\n"
      " ROOT y = f32[] negate(x) }",
   "HloModule module\n\n"
   "ENTRY e {\n"
   "  x = f32[] parameter(0)\n"
   "  ROOT y = f32[] negate(x)\n"
   "}\n"},
  {"a lone value is the first element", "e { c = s32[2,2] constant(7) }", "HloModule module\n\n"
      "ENTRY e {\n"
      "  ROOT c = s32[2,2] constant({ {7,0}, {0,0} })\n"
      "}\n"},
  {"words of precision in capitals", "e { x = f32[2] parameter(0)\n"
                                     " d = f32[] dot(x, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}, operand_precision={HIGHEST,high} }",
   "HloModule module\n\n"
   "ENTRY e {\n"
   "  x = f32[2] parameter(0)\n"
   "  ROOT d = f32[] dot(x, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}, operand_precision={highest,high}\n"
   "}\n"},
  {"an async form whose computation stands in place",
   "e {\n"
   "  x = s32[] parameter(0)\n"
   "  s = ((s32[]), s32[], s32[]) call-start(x), to_apply={\n"
   "    a = s32[] parameter(0)\n"
   "    b = s32[] abs(a) }\n"
   "  ROOT d = s32[] call-done(s)\n"
   "}",
   "HloModule module\n\n"
   "inline.3 {\n"
   "  a = s32[] parameter(0)\n"
   "  ROOT b = s32[] abs(a)\n"
   "}\n\n"
   "async_computation.0 {\n"
   "  parameter.1 = s32[] parameter(0)\n"
   "  ROOT call.2 = s32[] call(parameter.1), to_apply=inline.3\n"
   "}\n\n"
   "ENTRY e {\n"
   "  x = s32[] parameter(0)\n"
   "  s = ((s32[]), s32[], s32[]) async-start(x), calls=async_computation.0\n"
   "  ROOT d = s32[] async-done(s), calls=async_computation.0\n"
   "}\n"},
  {"branches by name and by number",
   "b { p = s32[] parameter(0) }\n"
   "ENTRY e { x = s32[] parameter(0)\n"
   " c = pred[] constant(true)\n"
   " i = s32[] conditional(c, x, x), branch_computations={b, b}\n"
   " ROOT j = s32[] conditional(x, x), branch_computations={b} }",
   "HloModule module\n\n"
   "b {\n"
   "  ROOT p = s32[] parameter(0)\n"
   "}\n\n"
   "ENTRY e {\n"
   "  x = s32[] parameter(0)\n"
   "  c = pred[] constant(true)\n"
   "  i = s32[] conditional(c, x, x), true_computation=b, false_computation=b\n"
   "  ROOT j = s32[] conditional(x, x), branch_computations={b}\n"
   "}\n"},
  {"async forms of ops without a start",
   "e { x = f32[4] parameter(0)\n"
   " s = ((f32[4]), f32[4], s32[]) negate-start(x), async_execution_thread=\"t\"\n"
   " u = ((f32[4]), f32[4], s32[]) negate-update(s)\n"
   " ROOT d = f32[4] negate-done(u) }",
   "HloModule module\n\n"
   "async_computation.0 {\n"
   "  parameter.1 = f32[4] parameter(0)\n"
   "  ROOT negate.2 = f32[4] negate(parameter.1)\n"
   "}, execution_thread=\"t\"\n\n"
   "ENTRY e {\n"
   "  x = f32[4] parameter(0)\n"
   "  s = ((f32[4]), f32[4], s32[]) async-start(x), calls=async_computation.0, async_execution_thread=\"t\"\n"
   "  u = ((f32[4]), f32[4], s32[]) async-update(s), calls=async_computation.0\n"
   "  ROOT d = f32[4] async-done(u), calls=async_computation.0\n"
   "}\n"},
  {"the usual values of attributes are left out",
   "e { x = f32[2]{0} parameter(0)\n"
   " y = f32[2]{0} parameter(1)\n"
   " c = pred[2]{0} compare(x, y), direction=LT, type=FLOAT\n"
   " s = f32[1]{0} slice(x), slice={[0:1:1]}\n"
   " ROOT p = f32[2]{0:S(0)L(1)} copy(x), backend_config={a: \"}\", b: {}} }",
   "HloModule module\n\n"
   "ENTRY e {\n"
   "  x = f32[2] parameter(0)\n"
   "  y = f32[2] parameter(1)\n"
   "  c = pred[2] compare(x, y), direction=LT\n"
   "  s = f32[1] slice(x), slice={[0:1]}\n"
   "  ROOT p = f32[2] copy(x), backend_config={a: \"}\", b: {}}\n"
   "}\n"},
  {"tables of source locations",
   "HloModule m\n\n"
   "FileNames\n"
   "1 \"a.py\"\n\n"
   "FunctionNames\n"
   "1 \"f\"\n"
   "2 \"g\"\n\n"
   "FileLocations\n"
   "1 {file_name_id=1 function_name_id=2 line=3 end_line=4 column=5 end_column=6}\n\nStackFrames\n1 {file_location_id=1 parent_frame_id=1}\n\n"
   "ENTRY e {\n"
   "  ROOT a = f32[] parameter(0), metadata={op_name=\"x\" stack_frame_id=1}\n"
   "}\n",
   "HloModule m\n\n"
   "FileNames\n"
   "1 \"a.py\"\n\n"
   "FunctionNames\n"
   "1 \"f\"\n"
   "2 \"g\"\n\n"
   "FileLocations\n"
   "1 {file_name_id=1 function_name_id=2 line=3 end_line=4 column=5 end_column=6}\n\nStackFrames\n1 {file_location_id=1 parent_frame_id=1}\n\n"
   "ENTRY e {\n"
   "  ROOT a = f32[] parameter(0), metadata={op_name=\"x\" stack_frame_id=1}\n"
   "}\n"},
  {"an accuracy in capitals",
   "e {\n"
   "  a = f32[] parameter(0)\n"
   "  ROOT r = f32[] exponential(a), result_accuracy={mode=HIGHEST}\n"
   "}",
   "HloModule module\n\n"
   "ENTRY e {\n"
   "  a = f32[] parameter(0)\n"
   "  ROOT r = f32[] exponential(a), result_accuracy={mode=highest}\n"
   "}\n"},
  {"metadata of every kind",
   "e { a = f32[] parameter(0), metadata={op_type='t' source_line=7 profile_type={1} deduplicated_name=\"d\" scheduling_name=\"s\" size=12} }",
   "HloModule module\n\n"
   "ENTRY e {\n"
   "  ROOT a = f32[] parameter(0), metadata={op_type=\"t\" source_line=7 profile_type={1} "
   "deduplicated_name=\"d\" scheduling_name=\"s\" size=12}\n}\n"},
  {"attributes that say nothing new are dropped",
   ADD "e { x = f32[] parameter(0)\n"
       " r = f32[] all-reduce(x), replica_groups={}, mode=cross_replica, to_apply=add }",
   "HloModule module\n\n" ADD "ENTRY e {\n"
                              "  x = f32[] parameter(0)\n"
                              "  ROOT r = f32[] all-reduce(x), replica_groups={}, to_apply=add\n"
                              "}\n"},
  {"a reshape's inferred dimension", "e { x = f32[<=4] parameter(0)\n"
                                     " r = f32[2,<=2] reshape(x), inferred_dimension=1 }",
   "HloModule module\n\n"
   "ENTRY e {\n"
   "  x = f32[<=4] parameter(0)\n"
   "  ROOT r = f32[2,<=2] reshape(x), inferred_dimension=1\n"
   "}\n"},
  {"padding ends where the line does", "e { a = f32[1] parameter(0)\n"
                                       " z = f32[] constant(0)\n"
                                       " b = f32[2] pad(a, z), padding=0_1\n"
                                       " _c = f32[2] copy(b) }",
   "HloModule module\n\n"
   "ENTRY e {\n"
   "  a = f32[1] parameter(0)\n"
   "  z = f32[] constant(0)\n"
   "  b = f32[2] pad(a, z), padding=0_1\n"
   "  ROOT _c = f32[2] copy(b)\n"
   "}\n"},
  {"a scalar's padding is empty", "e { a = f32[] parameter(0)\n"
                                  " b = f32[] pad(a, a), padding=, sharding={replicated} }",
   "HloModule module\n\n"
   "ENTRY e {\n"
   "  a = f32[] parameter(0)\n"
   "  ROOT b = f32[] pad(a, a), padding=, sharding={replicated}\n"
   "}\n"},
};

TEST(every_form_is_read_and_printed_in_one)
{
  for (size_t i = 0; i < WEFT_COUNT(forms); i++) {
    hlo_module *module = NULL;
    weft_status *st = hlo_parse(forms[i].text, strlen(forms[i].text), &module);
    char *text;

    if (st) fail_msg("%s: %s", forms[i].what, weft_status_text(st, false));
    text = print(module);
    if (strcmp(text, forms[i].printed) != 0) fail_msg("%s: got\n%s\nwant\n%s", forms[i].what, text, forms[i].printed);
    free(text);
    hlo_module_free(module);
    round_trip(forms[i].what, forms[i].text, strlen(forms[i].text));
  }
}

TEST(print_options_give_the_form_of_old_dumps)
{
  hlo_module *module = parse("e { a = s32[2] parameter(0), metadata={op_name=\"n\"}\n"
                             " b = s32[11] constant({0,1,2,3,4,5,6,7,8,9,10})\n"
                             " ROOT c = s32[2]{0:S(5)} add(a, a) }");
  char *text = print_with(module, (hlo_print_options){.percent = true, .operand_shapes = true});

  T_EQ_STR(text, "HloModule module\n\n"
                 "ENTRY %e {\n"
                 "  %a = s32[2] parameter(0)\n"
                 "  %b = s32[11] constant({...})\n"
                 "  ROOT %c = s32[2]{0:S(5)} add(s32[2] %a, s32[2] %a)\n"
                 "}\n");
  free(text);
  hlo_module_free(module);
}

/* ---- fragments ---- */

TEST(shapes_in_every_notation)
{
  static const struct { const char *text, *printed; } cases[] = {
    {"f32[]", "f32[]"},
    {"f32[]{}", "f32[]"},
    {"bf16[2,3]{1,0}", "bf16[2,3]"}, /* the default layout goes without saying */
    {"f32[2,3]{0,1}", "f32[2,3]{0,1}"},
    {"s32[<=4,?,0]", "s32[<=4,?,0]"},
    {"f32[8,128]{1,0:T(8,128)(2,1)}", "f32[8,128]{1,0:T(8,128)(2,1)}"},
    {"f32[8,128]{1,0:T(*,128)L(256)#(u32)*(u8)E(16)S(5)SC(1:32,64)M(16)}", "f32[8,128]{1,0:T(*,128)L(256)#(u32)*(u8)E(16)S(5)SC(1:32,64)M(16)}"},
    {"f32[4]{0:P(f32[8]{0:S(1)})}", "f32[4]{0:P(f32[8]{0:S(1)})}"},
    {"f32[4]{0:D(D)}", "f32[4]"},
    {"f32[]{:S(5)}", "f32[]{:S(5)}"},
    {"()", "()"},
    {"(f32[2], (token[], opaque[]), /*index=2*/b(u4[3]{0:E(4)}))", "(f32[2], (token[], opaque[]), b(u4[3]{0:E(4)}))"},
  };
  weft_arena arena;

  weft_arena_init(&arena);
  for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
    const hlo_shape *shape;
    T_OK(hlo_parse_shape(&arena, cases[i].text, strlen(cases[i].text), &shape));
    T_EQ_STR(hlo_shape_text(&arena, shape, true), cases[i].printed);
  }
  weft_arena_fini(&arena);
}

static void check_sharding(const char *given, const char *printed)
{
  const hlo_sharding *sharding;
  weft_arena arena;
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);

  weft_arena_init(&arena);
  T_OK(hlo_parse_sharding(&arena, given, strlen(given), &sharding));
  T_OK(hlo_print_sharding(sharding, out));
  fclose(out);
  T_EQ_STR(text, printed);
  free(text);
  weft_arena_fini(&arena);
}

TEST(shardings_print_as_they_are_read)
{
  static const char *const cases[] = {
    "{replicated}", "{manual}", "{unknown}", "{unreduced}", "{maximal device=3}", "{devices=[2,2]0,1,2,3}",
    "{devices=[2,2]<=[4]}", "{devices=[2,2]<=[2,2]T(1,0)}", "{devices=[2,2]<=[4] last_tile_dim_replicate}",
    "{devices=[1,2,2]<=[4] last_tile_dims={manual, replicated}}", "{replicated shard_as 1}",
    "{devices=[4]<=[4] shard_like 2}", "{{replicated}, {devices=[2]<=[2]}, {mesh['x'=2], [{'x'}]}}", "{}",
    "{mesh['x'=2,'y'=4], [{'x', 'y':(1)2}, {?}, {'y':(2)2, ?}], replicated={'x'}, unreduced={'y'}, manual={'x'}}",
    "{mesh['x'=2], [{}], unreduced=max{'x'}}",
    "{mesh['a'=2], device_ids=(1,0), [{}]}",
  };

  for (size_t i = 0; i < WEFT_COUNT(cases); i++) check_sharding(cases[i], cases[i]);
}

TEST(shardings_of_a_whole_mesh_may_be_words)
{
  static const struct { const char *text, *printed; } cases[] = {
    {"{mesh['x'=2,'y'=2] replicated}", "{mesh['x'=2,'y'=2], []}"},
    {"{mesh[], replicated}", "{mesh[], []}"},
    {"{mesh['x'=2], manual}", "{mesh['x'=2], [], manual={'x'}}"},
    {"{mesh['x'=2,'y'=2], unreduced}", "{mesh['x'=2,'y'=2], [], unreduced={'x', 'y'}}"},
    {"{mesh['x'=2,'y'=2], unreduced=max{'y'}}", "{mesh['x'=2,'y'=2], [], unreduced=max{'y'}}"},
    {"{maximal_mesh[device_id=3]}", "{maximal_mesh[device_id=3]}"},
    /* ids as an iota, axes by their numbers */
    {"{mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)), [{'a'}, {'b'}]}", "{mesh['a'=2,'b'=4], device_ids=(0,2,4,6,1,3,5,7), [{'a'}, {'b'}]}"},
    {"{mesh['a'=2,'1'=4], [{'1':(1)2}, {'0'}]}", "{mesh['a'=2,'1'=4], [{'1':(1)2}, {'a'}]}"},
  };

  for (size_t i = 0; i < WEFT_COUNT(cases); i++) check_sharding(cases[i].text, cases[i].printed);
}

/* Compares values by their bits, so that an error of the printer cannot hide an error of the reader. */
TEST(constants_have_the_bits_they_spell)
{
  static const struct { const char *shape, *text; uint64_t bits; const char *printed; } cases[] = {
    {"f32", "0.1", 0x3dcccccd, "0.1"},
    {"f32", "nan", 0x7fc00000, "nan"},
    {"f32", "-nan", 0xffc00000, "-nan"},
    {"f32", "nan(0x7)", 0x7f800007, "nan(0x7)"},
    {"f32", "-nan(0x400001)", 0xffc00001, "-nan(0x400001)"},
    {"f32", "1e-45", 1, "1.4e-45"},
    {"f32", "1e39", 0x7f800000, "inf"},
    {"f32", "-0.0", 0x80000000, "-0.0"},
    {"f64", "0.1", 0x3fb999999999999a, "0.1"},
    {"f64", "nan(0x1)", 0x7ff0000000000001, "nan(0x1)"},
    {"f16", "65504", 0x7bff, "65504"},
    {"bf16", "3.140625", 0x4049, "3.140625"},
    {"f8e4m3fn", "nan", 0x7f, "nan"},
    {"f8e5m2", "-inf", 0xfc, "-inf"},
    {"f8e5m2fnuz", "nan", 0x80, "nan"},
    {"f4e2m1fn", "6", 0x7, "6"},
    {"s4", "-8", 0xf8, "-8"},
    {"u4", "15", 0xf, "15"},
    {"s8", "-128", 0x80, "-128"},
    {"u64", "18446744073709551615", UINT64_MAX, "18446744073709551615"},
    {"s64", "-9223372036854775808", UINT64_C(1) << 63, "-9223372036854775808"},
    {"pred", "1", 1, "true"},
  };

  for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
    char text[200], want[200], *printed;
    uint64_t bits = 0;
    hlo_module *module;
    const hlo_literal *lit;

    snprintf(text, sizeof text, "e { c = %s[] constant(%s) }", cases[i].shape, cases[i].text);
    snprintf(want, sizeof want,
             "HloModule module\n\n"
             "ENTRY e {\n"
             "  ROOT c = %s[] constant(%s)\n"
             "}\n",
             cases[i].shape, cases[i].printed);
    module = parse(text);
    lit = module->entry->root->u.literal;
    memcpy(&bits, lit->data, weft_dtype_bytes(lit->shape->type));
    if (bits != cases[i].bits) fail_msg("%s: got %" PRIx64 ", want %" PRIx64, text, bits, cases[i].bits);
    printed = print(module);
    T_EQ_STR(printed, want);
    free(printed);
    round_trip(text, text, strlen(text));
    hlo_module_free(module);
  }
}

/* Made up as jaxlib 0.10.2 does: hlo_module_from_text of these gives these values. */
TEST(elided_constants_are_made_up_as_xla_does_and_say_so)
{
  hlo_module *module = parse("e {\n"
                             "  a = s32[3,4] constant({...})\n"
                             "  b = f32[9] constant({...})\n"
                             "  c = pred[7] constant({...})\n"
                             "  d = u8[6] constant({...})\n"
                             "  ROOT t = (s32[3,4], f32[9], pred[7], u8[6]) tuple(a, b, c, d)\n"
                             "}");
  hlo_instr *const *parts = module->entry->root->operands;
  static const int preds[] = {1, 0, 1, 0, 0, 0, 0}, bytes[] = {22, 3, 4, 0, 0, 0};

  for (int i = 0; i < 4; i++) T_TRUE(parts[i]->u.literal->elided);
  for (int i = 0; i < 12; i++) T_EQ_INT(hlo_literal_get_s64(parts[0]->u.literal, i), i);
  for (int i = 0; i < 9; i++) T_TRUE(((const float *)parts[1]->u.literal->data)[i] == 0);
  for (int i = 0; i < 7; i++) T_EQ_INT(((const uint8_t *)parts[2]->u.literal->data)[i], preds[i]);
  for (int i = 0; i < 6; i++) T_EQ_INT(((const uint8_t *)parts[3]->u.literal->data)[i], bytes[i]);
  hlo_module_free(module);
}

TEST(numbers_do_not_depend_on_the_locale)
{
  hlo_module *module;
  char *text;

  if (!setlocale(LC_NUMERIC, "de_DE.UTF-8") && !setlocale(LC_NUMERIC, "fr_FR.UTF-8"))
    T_SKIP("no locale with a decimal comma");
  module = parse("e { c = f32[] constant(1.5) }");
  text = print(module);
  setlocale(LC_NUMERIC, "C");
  T_TRUE(strstr(text, "constant(1.5)"));
  free(text);
  hlo_module_free(module);
}

/* ---- errors ---- */

#define E(body) "HloModule m\nENTRY e {\n" body "\n}"
static const struct { const char *text, *error; } errors[] = {
  {"", "1:1: expected a computation, got the end of the text"},
  {"HloModule", "1:10: expected the module's name"},
  {"HloModule m, replicas=2\n", "1:14: HloModule has no attribute \"replicas\""},
  {"HloModule m\n"
   "e {", "expected an instruction's name, got the end of the text"},
  {"HloModule m\n"
   "e { }", "2:3: a computation without instructions"},
  {E("x = f32[2 parameter(0)"), "3:11: expected ',', got \"parameter\""},
  {E("x = f33[2] parameter(0)"), "3:5: there is no opcode \"f33\""},
  {E("x = f32[-1] parameter(0)"), "3:9: -1 is not between 0 and"},
  {E("x = f32[4000000000,4000000000] parameter(0)"), "3:5: the shape has more than 2^63 bytes"},
  {E("x = f32[2,3]{1,1} parameter(0)"), "the layout names dimension 1 twice"},
  {E("x = f32[2,3]{1} parameter(0)"), "3:13: the layout has 1 dimensions, the shape 2"},
  {E("x = f32[] parameter(1)"), "2:9: computation e has no parameter 0"},
  {"f32[] parameter(1)", "1:1: computation entry has no parameter 0"},
  {"f32[] \x1b[31m", "expected an opcode, got byte 0x1b\n  f32[]  [31m\n        ^"},
  {E("x = f32[] parameter(0)\n"
     "y = f32[] parameter(0)"), "has parameter 0 twice"},
  {E("x = f32[] parameter(1000000)"), "3:21: the computation has no parameters 0 to 999999"},
  {E("x = parameter(0)"), "a parameter needs its shape"},
  {E("x = f32[] parameter(0)\n"
     "x = f32[] negate(x)"), "4:1: \"x\" is defined twice in this computation"},
  {E("x = f32[] parameter(0)\n"
     "y = f32[] negate(z)"), "4:18: no instruction \"z\" comes before this one in its computation"},
  {E("x = f32[] parameter(0)\n"
     "y = f32[] negat(x)"), "4:11: there is no opcode \"negat\""},
  {E("x = f32[] parameter(0)\n"
     "y = f32[] negate(x, x)"), "4:11: negate cannot have 2 operands"},
  {E("x = f32[] parameter(0)\n"
     "y = f32[] negate(s32[] x)"), "4:18: x has the shape f32[], not s32[]"},
  {E("x = f32[] parameter(0)\n"
     "y = f32[] negate(x), dims={}"), "4:22: negate has no attribute \"dims\""},
  {E("x = f32[2] parameter(0)\n"
     "y = f32[2] reverse(x)"), "reverse needs the attribute \"dimensions\""},
  {E("x = f32[2] parameter(0)\n"
     "y = f32[2] reverse(x), dimensions={0}, dimensions={0}"), "4:40: dimensions is given twice"},
  {E("x = f32[2] parameter(0)\n"
     "y = pred[2] compare(x, x), direction=LESS"),
   "4:38: expected one of EQ, NE, GE, GT, LE, LT, got \"LESS\""},
  {E("x = f32[] parameter(0)\n"
     "y = f32[] call(x), to_apply=f"), "4:29: no computation \"f\" comes before this one"},
  {E("x = f32[] parameter(0)\n"
     "y = f32[] call(x), to_apply=e"), "no computation \"e\" comes before this one"},
  {"ROOT p = add(f32[2] %p, f32[2] %q)", "1:6: \"p\" is defined twice in this computation"},
  {E("x = f32[] parameter(0)\n"
     "ROOT y = f32[] negate(x)\n"
     "ROOT z = f32[] negate(x)"), "5:1: the computation has a second ROOT"},
  {E("x = f32[] parameter(0)") E("y = f32[] parameter(0)"), "expected '{', got \"m\""},
  {"e { x = f32[] parameter(0) }\n"
   "e { x = f32[] parameter(0) }", "2:1: a computation \"e\" exists already"},
  {"ENTRY e { x = f32[] parameter(0) }\n"
   "ENTRY f { x = f32[] parameter(0) }", "2:1: the module has a second ENTRY"},
  {"e () -> f32[2] { x = f32[] parameter(0) }", "1:3: the result is f32[2] in the signature, f32[] in the body"},
  {E("c = s32[1000000000] constant(1)"), "elided constants of more than 1073741824 bytes"},
  {"HloModule m, entry_computation_layout={(s32[])->f32[]}\n"
   "e { x = f32[] parameter(0) }",
   "parameter 0 is s32[] in entry_computation_layout, f32[] in the entry computation"},
  {E("c = s32[2] constant({1, 2, 3})"), "dimension 0 has more than the shape's 2 elements"},
  {E("c = s32[2,2] constant({{1, 2}, {3}})"), "dimension 1 has 1 elements, the shape 2"},
  {E("c = s8[] constant(200)"), "3:19: 200 is not between -128 and 127"},
  {E("c = s32[] constant(1.5)"), "3:20: expected an integer: the element type is s32"},
  {E("c = f32[] constant(x)"), "3:20: expected a number, got \"x\""},
  {E("c = f8e4m3fn[] constant(nan(0x1))"), "a NaN of f8e4m3fn cannot have this payload"},
  {E("c = s32[1000000] constant({1})"), "the text is too short for the 1000000 elements of this constant"},
  {E("c = s32[1000000000] constant({...})"), "elided constants of more than 1073741824 bytes"},
  {E("c = s32[<=2] constant({1, 2})"), "a constant of dynamic shape"},
  {E("c = token[] constant(1)"), "no constant can be a token"},
  {E("x = f32[] parameter(0), metadata={op_name=\"a}"), "this string has no end"},
  {E("x = f32[] parameter(0), statistics={{{}"), "this brace is never closed"},
  {E("x = f32[] parameter(0), metadata={op_name=\"a\\000b\"}"), "a NUL byte in a string"},
  {E("x = f32[] parameter(0), sharding={devices=[2,2]0,1,2}"), "3 devices for 4 tiles"},
  {E("x = f32[] parameter(0)\n"
     "y = f32[] all-reduce(x), replica_groups=[2,4]<=[7], to_apply=a"), "7 devices do not make 2 groups of 4"},
  {E("x = (f32[]) parameter(0)\n"
     "y = f32[] negate(x#1)"), "4:19: x has no element 1"},
  {E("x = f32[1,1,1] parameter(0)\n"
     "y = f32[1] convolution(x, x), dim_labels=b0f_0io->bf0"), NULL},
  {E("x = f32[1,1,1] parameter(0)\n"
     "y = f32[1] convolution(x, x), dim_labels=b0f_0ii->bf0"), "dim_labels: expected each of i, o"},
  {E("x = f32[1] parameter(0)\n"
     "y = f32[1] reduce-window(x, x), window={size=2x2 stride=1}, to_apply=a"), "window: 1 dimensions here, 2 before"},
};

TEST(errors_point_at_the_fault_and_say_what_was_expected)
{
  for (size_t i = 0; i < WEFT_COUNT(errors); i++) {
    weft_status *st = parse_fails(errors[i].text);

    if (!errors[i].error) {
      T_OK(st);
      continue;
    }
    if (!st) fail_msg("%s\nwas read, want the error %s", errors[i].text, errors[i].error);
    if (!strstr(weft_status_message(st), errors[i].error))
      fail_msg("%s\ngot  %s\nwant %s", errors[i].text, weft_status_message(st), errors[i].error);
    weft_status_free(st);
  }
}

TEST(errors_quote_the_line)
{
  T_FAILS(parse_fails("HloModule m\n"
                      "e {\n"
                      "  x = f32[] bad(y)\n"
                      "}"),
          "3:13: there is no opcode \"bad\"\n"
          "    x = f32[] bad(y)\n"
          "              ^");
}

/* Brackets of every kind, nested deeper than a recursive parser's stack could hold. */
TEST(nesting_is_bounded)
{
  static const struct { const char *prefix, *open; } cases[] = {
    {"e { x = ", "("},
    {"e { x = f32[] ", "negate("},
    {"e { x = f32[] parameter(0)\n"
     "y = f32[] call(x), to_apply=", "{ z = f32[] call(), to_apply="},
    {"e { x = f32[] parameter(0), sharding=", "{"},
    {"e { x = f32[] parameter(0), statistics=", "{"},
    {"e { x = f32[4]{0:P(", "f32[4]{0:P("},
  };
  enum { DEPTH = 100000 };

  for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
    size_t length = strlen(cases[i].open), at = strlen(cases[i].prefix);
    char *text = malloc(at + length * DEPTH + 1);

    memcpy(text, cases[i].prefix, at + 1);
    for (int d = 0; d < DEPTH; d++) memcpy(text + at + length * (size_t)d, cases[i].open, length + 1);
    T_CODE(parse_fails(text), WEFT_INVALID_ARGUMENT);
    free(text);
  }
}

/* Every prefix of a program with a bit of everything: an error or a module, and no read past the end. */
TEST(texts_cut_anywhere_are_errors)
{
  static const char text[] =
    "HloModule m, input_output_alias={ {0}: (0, {}, may-alias) }, entry_computation_layout={(f32[4]{0})->(f32[4]{0})}\n" ADD
    "ENTRY e {\n"
    "  p = f32[4]{0} parameter(0), sharding={devices=[2]<=[2]}\n"
    "  c = f32[2]{0} constant({1, nan(0x7)})\n"
    "  a = f32[4]{0} all-reduce(p), replica_groups={{0,1}}, to_apply=add, metadata={op_name=\"x\"}\n"
    "  ROOT t = (f32[4]{0}) tuple(a), frontend_attributes={k=\"v\"}\n"
    "}\n";

  for (size_t size = 0; size < sizeof text - 1; size++) {
    char *copy = malloc(size ? size : 1); /* exactly this long, for the sanitizers */
    hlo_module *module = NULL;

    memcpy(copy, text, size);
    weft_status_ignore(hlo_parse(copy, size, &module));
    hlo_module_free(module);
    free(copy);
  }
  hlo_module_free(parse(text));
}

TEST_MAIN(UNIT(real_programs_parse_and_print_the_same_again), UNIT(programs_with_every_opcode_parse_and_print_the_same_again),
          UNIT(every_form_is_read_and_printed_in_one), UNIT(print_options_give_the_form_of_old_dumps),
          UNIT(shapes_in_every_notation), UNIT(shardings_print_as_they_are_read), UNIT(shardings_of_a_whole_mesh_may_be_words), UNIT(constants_have_the_bits_they_spell),
          UNIT(elided_constants_are_made_up_as_xla_does_and_say_so), UNIT(numbers_do_not_depend_on_the_locale),
          UNIT(errors_point_at_the_fault_and_say_what_was_expected), UNIT(errors_quote_the_line), UNIT(nesting_is_bounded),
          UNIT(texts_cut_anywhere_are_errors))
