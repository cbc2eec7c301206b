/* tests/codegen/element_loop_test.c -- a while that changes arrays element by element as one kernel: it means what the
 * reference evaluator says, in every split of its units, and loops of other forms do not become such kernels. */
#include "test.h"

#include "harness.h"

#include "base/dtype.h"
#include "codegen/model/strategy.h"

static char text[16384];

/* Makes `text` of one of the forms below: @ stands for a type, # for the dimensions of an array of elements, $ for the
 * number of rounds. */
static void fill_in(const char *form, const char *type, const char *dims, int rows)
{
  char *out = text;
  const char *end = text + sizeof text;

  for (const char *p = form; *p; p++) {
    size_t room = (size_t)(end - out);
    if (*p == '@') out += snprintf(out, room, "%s", type);
    else if (*p == '#') out += snprintf(out, room, "%s", dims);
    else if (*p == '$') out += snprintf(out, room, "%d", rows);
    else *out++ = *p, *out = 0;
    T_TRUE(out < end);
  }
}

static gen_strategy strategy_of(const char *program)
{
  WEFT_AUTO(hlo_module) module = NULL;
  gen_strategy strategy = GEN_STRATEGY_UNDECIDED;
  weft_arena arena;

  T_OK(hlo_parse(program, strlen(program), &module));
  T_OK(hlo_verify(module));
  weft_arena_init(&arena);
  T_OK(gen_decide(&gen_cpu_target, &arena, module->entry->root, &strategy));
  weft_arena_fini(&arena);
  return strategy;
}

static void check_loop(const char *form, const char *type, const char *dims, int rows, const kernel_check *how)
{
  fill_in(form, type, dims, rows);
  if (strategy_of(text) != GEN_STRATEGY_ELEMENT_LOOP) fail_msg("is no loop by elements:\n%s", text);
  check_kernel(text, how);
}

static const char *const all_dims[] = {"8", "9", "16", "33", "63", "64", "65", "100", "257", "1000", "3,5", "40,3",
                                       "3,5,7", "5,70", "2,300"};

/* A counted loop: two arrays, one of which takes the other's place, and one that does not change. */
static const char counted[] =
  "HloModule t\n"
  "body { s = (s32[], @[#], @[#], @[#]) parameter(0)\n"
  "  i = s32[] get-tuple-element(s), index=0\n"
  "  x = @[#] get-tuple-element(s), index=1\n"
  "  y = @[#] get-tuple-element(s), index=2\n"
  "  c = @[#] get-tuple-element(s), index=3\n"
  "  one = s32[] constant(1)\n"
  "  j = s32[] add(i, one)\n"
  "  of_i = @[] convert(i)\n"
  "  is = @[#] broadcast(of_i), dimensions={}\n"
  "  u = @[#] subtract(c, x)\n"
  "  v = @[#] add(u, is)\n"
  "  ROOT t = (s32[], @[#], @[#], @[#]) tuple(j, y, v, c) }\n"
  "cond { s = (s32[], @[#], @[#], @[#]) parameter(0)\n"
  "  i = s32[] get-tuple-element(s), index=0\n"
  "  n = s32[] constant($)\n"
  "  ROOT r = pred[] compare(i, n), direction=LT }\n"
  "f { x = @[#] parameter(0)\n"
  "  y = @[#] parameter(1)\n"
  "  c = @[#] parameter(2)\n"
  "  zero = s32[] constant(0)\n"
  "  s = (s32[], @[#], @[#], @[#]) tuple(zero, x, y, c)\n"
  "  w = (s32[], @[#], @[#], @[#]) while(s), condition=cond, body=body\n"
  "  a = @[#] get-tuple-element(w), index=1\n"
  "  b = @[#] get-tuple-element(w), index=2\n"
  "  ROOT t = (@[#], @[#]) tuple(b, a) }\n"
  "ENTRY e { x = @[#] parameter(0)\n"
  "  y = @[#] parameter(1)\n"
  "  c = @[#] parameter(2)\n"
  "  ROOT r = (@[#], @[#]) fusion(x, y, c), kind=kCustom, calls=f, backend_config=\"loop\" }\n";

TEST(counted_loops_of_every_type_and_several_shapes)
{
  static const char *const types[] = {"f32", "f64", "bf16", "f16", "c64", "c128", "s8", "u16", "s32", "u64"};

  for (size_t d = 0; d < WEFT_COUNT(all_dims); d++) {
    check_loop(counted, "f32", all_dims[d], 5, NULL);
    check_loop(counted, "s32", all_dims[d], 7, NULL);
  }
  for (size_t t = 0; t < WEFT_COUNT(types); t++) {
    check_loop(counted, types[t], "100", 4, NULL);
    check_loop(counted, types[t], "40,3", 3, NULL);
  }
  check_loop(counted, "f32", "70", 0, NULL); /* no round */
}

/* As jax.vmap makes of a while_loop: each element goes on until it is done by itself, at the latest after n rounds. */
static const char any[] = "HloModule t\n"
                          "or { a = pred[] parameter(0)\n"
                          "  b = pred[] parameter(1)\n"
                          "  ROOT r = pred[] or(a, b) }\n"
                          "body { s = (s32[], @[#], s32[#], @[#]) parameter(0)\n"
                          "  i = s32[] get-tuple-element(s), index=0\n"
                          "  x = @[#] get-tuple-element(s), index=1\n"
                          "  k = s32[#] get-tuple-element(s), index=2\n"
                          "  c = @[#] get-tuple-element(s), index=3\n"
                          "  one = s32[] constant(1)\n"
                          "  j = s32[] add(i, one)\n"
                          "  ones = s32[#] broadcast(one), dimensions={}\n"
                          "  l = s32[#] add(k, ones)\n"
                          "  y = @[#] add(x, c)\n"
                          "  limit = @[] constant(40)\n"
                          "  limits = @[#] broadcast(limit), dimensions={}\n"
                          "  goes = pred[#] compare(x, limits), direction=LT\n"
                          "  z = @[#] select(goes, y, x)\n"
                          "  m = s32[#] select(goes, l, k)\n"
                          "  ROOT t = (s32[], @[#], s32[#], @[#]) tuple(j, z, m, c) }\n"
                          "cond { s = (s32[], @[#], s32[#], @[#]) parameter(0)\n"
                          "  i = s32[] get-tuple-element(s), index=0\n"
                          "  x = @[#] get-tuple-element(s), index=1\n"
                          "  limit = @[] constant(40)\n"
                          "  limits = @[#] broadcast(limit), dimensions={}\n"
                          "  goes = pred[#] compare(x, limits), direction=LT\n"
                          "  no = pred[] constant(false)\n"
                          "  any = pred[] reduce(goes, no), dimensions={DIMS}, to_apply=or\n"
                          "  n = s32[] constant($)\n"
                          "  more = pred[] compare(i, n), direction=LT\n"
                          "  ROOT r = pred[] and(more, any) }\n"
                          "f { x = @[#] parameter(0)\n"
                          "  c = @[#] parameter(1)\n"
                          "  zero = s32[] constant(0)\n"
                          "  zeros = s32[#] broadcast(zero), dimensions={}\n"
                          "  s = (s32[], @[#], s32[#], @[#]) tuple(zero, x, zeros, c)\n"
                          "  w = (s32[], @[#], s32[#], @[#]) while(s), condition=cond, body=body\n"
                          "  a = @[#] get-tuple-element(w), index=1\n"
                          "  b = s32[#] get-tuple-element(w), index=2\n"
                          "  ROOT t = (@[#], s32[#]) tuple(a, b) }\n"
                          "ENTRY e { x = @[#] parameter(0)\n"
                          "  c = @[#] parameter(1)\n"
                          "  ROOT r = (@[#], s32[#]) fusion(x, c), kind=kCustom, calls=f, backend_config=\"loop\" }\n";

/* The form with the dimensions that the condition reduces, and with one part replaced if `from` is not NULL. */
static const char *varied(const char *form, const char *dims, const char *from, const char *to)
{
  static char out[16384];
  char rest[16384], list[32] = "0";
  int rank = 1;

  for (const char *p = dims; *p; p++)
    if (*p == ',') snprintf(list + strlen(list), sizeof list - strlen(list), ",%d", rank++);
  snprintf(rest, sizeof rest, "%s", form);
  for (int i = 0; i < 2; i++) {
    const char *what = i ? from : "DIMS", *by = i ? to : list, *at = what ? strstr(rest, what) : NULL;
    if (what && i) T_TRUE(at != NULL);
    if (!at) continue;
    snprintf(out, sizeof out, "%.*s%s%s", (int)(at - rest), rest, by, at + strlen(what));
    memcpy(rest, out, sizeof rest);
  }
  memcpy(out, rest, sizeof out);
  return out;
}

TEST(elements_that_are_done_stay_as_they_are)
{
  /* from 1 to 4 a step: between 9 and 42 rounds; or all end together after 12 */
  static const kernel_check how = {.low = -2, .high = 4, .int_low = 1, .int_high = 5};

  for (size_t d = 0; d < WEFT_COUNT(all_dims); d++)
    for (int n = 0; n < 100; n += 33) {
      check_loop(varied(any, all_dims[d], NULL, NULL), "s32", all_dims[d], n, &how);
      check_loop(varied(any, all_dims[d], NULL, NULL), "f32", all_dims[d], n, &how);
    }
  check_loop(varied(any, "200", NULL, NULL), "bf16", "200", 20, &how);
  check_loop(varied(any, "200", NULL, NULL), "f64", "200", 20, &how);
}

/* As lax.scan: each round reads a row of one array and writes a row of two others, forwards or backwards. */
static const char scan[] =
  "HloModule t\n"
  "body { s = (s32[], @[#], @[$,#], @[$,#], @[$,#]) parameter(0)\n"
  "  i = s32[] get-tuple-element(s), index=0\n"
  "  x = @[#] get-tuple-element(s), index=1\n"
  "  in = @[$,#] get-tuple-element(s), index=2\n"
  "  out = @[$,#] get-tuple-element(s), index=3\n"
  "  copies = @[$,#] get-tuple-element(s), index=4\n"
  "  one = s32[] constant(1)\n"
  "  zero = s32[] constant(0)\n"
  "  last = s32[] constant(LAST)\n"
  "  back = s32[] subtract(last, i)\n"
  "  j = s32[] add(i, one)\n"
  "  row = @[1,#] dynamic-slice(in, WHERE), dynamic_slice_sizes={1,#}\n"
  "  r = @[#] reshape(row)\n"
  "  y = @[#] subtract(r, x)\n"
  "  written = @[1,#] reshape(y)\n"
  "  next = @[$,#] dynamic-update-slice(out, written, WHERE)\n"
  "  of_i = @[] convert(i)\n"
  "  is = @[1,#] broadcast(of_i), dimensions={}\n"
  "  others = @[$,#] dynamic-update-slice(copies, is, WHERE)\n"
  "  ROOT t = (s32[], @[#], @[$,#], @[$,#], @[$,#]) tuple(j, y, in, next, others) }\n"
  "cond { s = (s32[], @[#], @[$,#], @[$,#], @[$,#]) parameter(0)\n"
  "  i = s32[] get-tuple-element(s), index=0\n"
  "  n = s32[] constant(ROUNDS)\n"
  "  ROOT r = pred[] compare(i, n), direction=LT }\n"
  "f { x = @[#] parameter(0)\n"
  "  in = @[$,#] parameter(1)\n"
  "  out = @[$,#] parameter(2)\n"
  "  zero = s32[] constant(0)\n"
  "  none = @[] constant(0)\n"
  "  copies = @[$,#] broadcast(none), dimensions={}\n"
  "  s = (s32[], @[#], @[$,#], @[$,#], @[$,#]) tuple(zero, x, in, out, copies)\n"
  "  w = (s32[], @[#], @[$,#], @[$,#], @[$,#]) while(s), condition=cond, body=body, "
  "backend_config={\"known_trip_count\":{\"n\":\"ROUNDS\"}}\n"
  "  a = @[#] get-tuple-element(w), index=1\n"
  "  b = @[$,#] get-tuple-element(w), index=3\n"
  "  c = @[$,#] get-tuple-element(w), index=4\n"
  "  ROOT t = (@[$,#], @[#], @[$,#]) tuple(b, a, c) }\n"
  "ENTRY e { x = @[#] parameter(0)\n"
  "  in = @[$,#] parameter(1)\n"
  "  out = @[$,#] parameter(2)\n"
  "  ROOT r = (@[$,#], @[#], @[$,#]) fusion(x, in, out), kind=kCustom, calls=f, backend_config=\"loop\" }\n";

/* The scan with indices for arrays of that rank. */
static const char *scan_of(const char *dims, int rows, int rounds, bool backwards)
{
  static char out[16384];
  char where[64], last[16], n[16];
  char *o = out;

  snprintf(where, sizeof where, "%s, zero", backwards ? "back" : "i");
  for (const char *p = dims; *p; p++)
    if (*p == ',') strcat(where, ", zero");
  snprintf(last, sizeof last, "%d", rows - 1);
  snprintf(n, sizeof n, "%d", rounds);
  for (const char *p = scan; *p;) {
    const char *names[] = {"WHERE", "LAST", "ROUNDS"}, *values[] = {where, last, n};
    size_t i = 0;
    while (i < 3 && strncmp(p, names[i], strlen(names[i])) != 0) i++;
    if (i < 3) o = stpcpy(o, values[i]), p += strlen(names[i]);
    else *o++ = *p++;
  }
  *o = 0;
  return out;
}

TEST(rows_of_stacks_are_written)
{
  for (size_t d = 0; d < WEFT_COUNT(all_dims); d++)
    for (int backwards = 0; backwards < 2; backwards++)
      check_loop(scan_of(all_dims[d], 6, 6, backwards), d % 2 ? "s32" : "f32", all_dims[d], 6, NULL);
  check_loop(scan_of("90", 3, 3, false), "bf16", "90", 3, NULL);
  check_loop(scan_of("90", 3, 3, true), "c64", "90", 3, NULL);
  check_loop(scan_of("40,3", 3, 3, true), "s8", "40,3", 3, NULL);
}

/* A row of numbers that all rows of the arrays share keeps two dimensions apart. */
TEST(rows_that_are_shared)
{
  static const char from[] = "  c = @[#] get-tuple-element(s), index=3\n",
                    to[] = "  old = @[#] get-tuple-element(s), index=3\n"
                           "  half = @[LAST] constant({VALUES})\n"
                           "  c = @[#] broadcast(half), dimensions={1}\n";
  static const struct { const char *dims, *last, *values; } cases[] = {
    {"40,3", "3", "1, 2, 3"}, {"7,11", "11", "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11"}, {"33,2", "2", "4, 5"}};

  for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
    char part[512], *o = part;
    for (const char *p = to; *p;)
      if (strncmp(p, "LAST", 4) == 0) o = stpcpy(o, cases[i].last), p += 4;
      else if (strncmp(p, "VALUES", 6) == 0) o = stpcpy(o, cases[i].values), p += 6;
      else *o++ = *p++;
    *o = 0;
    check_loop(varied(counted, cases[i].dims, from, part), "s32", cases[i].dims, 5, NULL);
    check_loop(varied(counted, cases[i].dims, from, part), "f32", cases[i].dims, 5, NULL);
  }
}

/* Elements of three numbers, as jax.vmap makes of a function of a vector: the numbers are taken apart, put together in
 * another order of dimensions, and added up; and two kinds of rows are written. */
static const char rows[] =
  "HloModule t\n"
  "plus { a = @[] parameter(0)\n"
  "  b = @[] parameter(1)\n"
  "  ROOT r = @[] add(a, b) }\n"
  "body { s = (s32[], @[#,3], @[#], @[$,#,3], @[$,3,#], @[#]) parameter(0)\n"
  "  i = s32[] get-tuple-element(s), index=0\n"
  "  x = @[#,3] get-tuple-element(s), index=1\n"
  "  u = @[#] get-tuple-element(s), index=2\n"
  "  out = @[$,#,3] get-tuple-element(s), index=3\n"
  "  turned = @[$,3,#] get-tuple-element(s), index=4\n"
  "  fixed = @[#] get-tuple-element(s), index=5\n"
  "  one = s32[] constant(1)\n"
  "  zero = s32[] constant(0)\n"
  "  none = @[] constant(0)\n"
  "  j = s32[] add(i, one)\n"
  "  a = @[#,1] slice(x), slice={[0:#],[0:1]}\n"
  "  b = @[#,1] slice(x), slice={[0:#],[1:2]}\n"
  "  c = @[#,1] slice(x), slice={[0:#],[2:3]}\n"
  "  sum = @[#] reduce(x, none), dimensions={1}, to_apply=plus\n"
  "  d = @[#] subtract(sum, u)\n"
  "  e = @[1,#] reshape(d)\n"
  "  f = @[1,#] reshape(c)\n"
  "  g = @[1,#] reshape(a)\n"
  "  put = @[3,#] concatenate(e, f, g), dimensions={0}\n"
  "  back = @[#,3] transpose(put), dimensions={1,0}\n"
  "  spread = @[#,3] broadcast(fixed), dimensions={0}\n"
  "  y = @[#,3] subtract(back, spread)\n"
  "  reversed = @[#,3] reverse(y), dimensions={1}\n"
  "  row = @[1,#,3] reshape(reversed)\n"
  "  out2 = @[$,#,3] dynamic-update-slice(out, row, i, zero, zero)\n"
  "  row2 = @[1,3,#] reshape(put)\n"
  "  turned2 = @[$,3,#] dynamic-update-slice(turned, row2, i, zero, zero)\n"
  "  v = @[#] reshape(b)\n"
  "  ROOT t = (s32[], @[#,3], @[#], @[$,#,3], @[$,3,#], @[#]) tuple(j, y, v, out2, turned2, fixed) }\n"
  "cond { s = (s32[], @[#,3], @[#], @[$,#,3], @[$,3,#], @[#]) parameter(0)\n"
  "  i = s32[] get-tuple-element(s), index=0\n"
  "  n = s32[] constant($)\n"
  "  ROOT r = pred[] compare(i, n), direction=LT }\n"
  "f { x = @[#,3] parameter(0)\n"
  "  u = @[#] parameter(1)\n"
  "  out = @[$,#,3] parameter(2)\n"
  "  turned = @[$,3,#] parameter(3)\n"
  "  fixed = @[#] parameter(4)\n"
  "  zero = s32[] constant(0)\n"
  "  s = (s32[], @[#,3], @[#], @[$,#,3], @[$,3,#], @[#]) tuple(zero, x, u, out, turned, fixed)\n"
  "  w = (s32[], @[#,3], @[#], @[$,#,3], @[$,3,#], @[#]) while(s), condition=cond, body=body\n"
  "  a = @[#,3] get-tuple-element(w), index=1\n"
  "  b = @[#] get-tuple-element(w), index=2\n"
  "  c = @[$,#,3] get-tuple-element(w), index=3\n"
  "  d = @[$,3,#] get-tuple-element(w), index=4\n"
  "  ROOT t = (@[#,3], @[$,3,#], @[#], @[$,#,3]) tuple(a, d, b, c) }\n"
  "ENTRY e { x = @[#,3] parameter(0)\n"
  "  u = @[#] parameter(1)\n"
  "  out = @[$,#,3] parameter(2)\n"
  "  turned = @[$,3,#] parameter(3)\n"
  "  fixed = @[#] parameter(4)\n"
  "  ROOT r = (@[#,3], @[$,3,#], @[#], @[$,#,3]) fusion(x, u, out, turned, fixed), kind=kCustom, calls=f, "
  "backend_config=\"loop\" }\n";

TEST(elements_of_several_numbers)
{
  static const char *const lengths[] = {"8", "9", "33", "64", "100", "257", "1000"};
  static const char *const types[] = {"f32", "s32", "f64", "bf16", "c64", "u8"};

  for (size_t d = 0; d < WEFT_COUNT(lengths); d++) {
    check_loop(rows, "s32", lengths[d], 5, NULL);
    check_loop(rows, "f32", lengths[d], 5, &(kernel_check){.rtol = 1e-5, .atol = 1e-5}); /* sums that cancel */
  }
  for (size_t t = 0; t < WEFT_COUNT(types); t++) check_loop(rows, types[t], "40", 3, NULL);
}

/* An element of two numbers that stays as it is: the predicate is one for both. */
TEST(elements_of_several_numbers_that_are_done)
{
  static const char *const changes[][2] = {
    {"  c = @[#] get-tuple-element(s), index=3\n",
     "  c = @[#] get-tuple-element(s), index=3\n"
     "  pair = @[2,#] get-tuple-element(s), index=4\n"
     "  twice = @[2,#] broadcast(c), dimensions={1}\n"
     "  other = @[2,#] reverse(pair), dimensions={0}\n"
     "  moved = @[2,#] add(other, twice)\n"},
    {"  m = s32[#] select(goes, l, k)\n",
     "  m = s32[#] select(goes, l, k)\n"
     "  both = pred[2,#] broadcast(goes), dimensions={1}\n"
     "  kept = @[2,#] select(both, moved, pair)\n"},
    {"tuple(j, z, m, c)", "tuple(j, z, m, c, kept)"},
    {"  s = (s32[], @[#], s32[#], @[#]) tuple(zero, x, zeros, c)\n",
     "  start = @[2,#] broadcast(c), dimensions={1}\n"
     "  s = (s32[], @[#], s32[#], @[#]) tuple(zero, x, zeros, c, start)\n"},
    {"  b = s32[#] get-tuple-element(w), index=2\n"
     "  ROOT t = (@[#], s32[#]) tuple(a, b)",
     "  b = s32[#] get-tuple-element(w), index=2\n"
     "  d = @[2,#] get-tuple-element(w), index=4\n"
     "  ROOT t = (@[2,#], s32[#]) tuple(d, b)"},
    {"  ROOT r = (@[#], s32[#]) fusion", "  ROOT r = (@[2,#], s32[#]) fusion"},
  };
  static char form[16384], old[16384];
  static const kernel_check how = {.low = -2, .high = 4, .int_low = 1, .int_high = 5};

  snprintf(form, sizeof form, "%s", varied(any, "100", NULL, NULL));
  for (size_t i = 0; i < WEFT_COUNT(changes); i++)
    snprintf(form, sizeof form, "%s", varied(memcpy(old, form, sizeof form), "100", changes[i][0], changes[i][1]));
  for (char *at = form; (at = strstr(at, "(s32[], @[#], s32[#], @[#])")); at++) { /* the state has one array more */
    snprintf(old, sizeof old, "%s", at + strlen("(s32[], @[#], s32[#], @[#])"));
    snprintf(at, sizeof form - (size_t)(at - form), "(s32[], @[#], s32[#], @[#], @[2,#])%s", old);
  }
  for (int n = 0; n < 50; n += 7) check_loop(form, n % 2 ? "f32" : "s32", "100", n, &how);
}

/* Elements that are done in one round and go on in the next: the number of the round decides. */
static const char twice_done[] = "HloModule t\n"
                                 "or { a = pred[] parameter(0)\n"
                                 "  b = pred[] parameter(1)\n"
                                 "  ROOT r = pred[] or(a, b) }\n"
                                 "body { s = (@[], @[#]) parameter(0)\n"
                                 "  i = @[] get-tuple-element(s), index=0\n"
                                 "  x = @[#] get-tuple-element(s), index=1\n"
                                 "  one = @[] constant(1)\n"
                                 "  j = @[] add(i, one)\n"
                                 "  y = @[#] add(x, x)\n"
                                 "  is = @[#] broadcast(i), dimensions={}\n"
                                 "  goes = pred[#] compare(x, is), direction=NE\n"
                                 "  z = @[#] select(goes, y, x)\n"
                                 "  ROOT t = (@[], @[#]) tuple(j, z) }\n"
                                 "cond { s = (@[], @[#]) parameter(0)\n"
                                 "  i = @[] get-tuple-element(s), index=0\n"
                                 "  x = @[#] get-tuple-element(s), index=1\n"
                                 "  is = @[#] broadcast(i), dimensions={}\n"
                                 "  goes = pred[#] compare(x, is), direction=NE\n"
                                 "  no = pred[] constant(false)\n"
                                 "  any = pred[] reduce(goes, no), dimensions={0}, to_apply=or\n"
                                 "  n = @[] constant($)\n"
                                 "  more = pred[] compare(i, n), direction=LT\n"
                                 "  ROOT r = pred[] and(more, any) }\n"
                                 "f { x = @[#] parameter(0)\n"
                                 "  zero = @[] constant(0)\n"
                                 "  s = (@[], @[#]) tuple(zero, x)\n"
                                 "  w = (@[], @[#]) while(s), condition=cond, body=body\n"
                                 "  ROOT r = @[#] get-tuple-element(w), index=1 }\n"
                                 "ENTRY e { x = @[#] parameter(0)\n"
                                 "  ROOT r = @[#] fusion(x), kind=kCustom, calls=f, backend_config=\"loop\" }\n";

static const char square[] = "HloModule t\n"
                             "body { s = (s32[], @[16,16]) parameter(0)\n"
                             "  i = s32[] get-tuple-element(s), index=0\n"
                             "  x = @[16,16] get-tuple-element(s), index=1\n"
                             "  one = s32[] constant(1)\n"
                             "  j = s32[] add(i, one)\n"
                             "  back = @[16,16] add(x, x)\n"
                             "  y = @[16,16] subtract(x, back)\n"
                             "  ROOT t = (s32[], @[16,16]) tuple(j, y) }\n"
                             "cond { s = (s32[], @[16,16]) parameter(0)\n"
                             "  i = s32[] get-tuple-element(s), index=0\n"
                             "  n = s32[] constant($)\n"
                             "  ROOT r = pred[] compare(i, n), direction=LT }\n"
                             "f { x = @[16,16] parameter(0)\n"
                             "  zero = s32[] constant(0)\n"
                             "  s = (s32[], @[16,16]) tuple(zero, x)\n"
                             "  w = (s32[], @[16,16]) while(s), condition=cond, body=body\n"
                             "  ROOT r = @[16,16] get-tuple-element(w), index=1 }\n"
                             "ENTRY e { x = @[16,16] parameter(0)\n"
                             "  ROOT r = @[16,16] fusion(x), kind=kCustom, calls=f, backend_config=\"loop\" }\n";

/* Loops that are none by elements. */
TEST(loops_whose_elements_need_each_other)
{
  static const struct { const char *what, *form, *from, *to; } cases[] = {
    {"reads another element", counted, "  u = @[#] subtract(c, x)\n",
     "  back = @[#] reverse(x), dimensions={0}\n"
     "  u = @[#] subtract(c, back)\n"},
    {"another element's number, by a turned array", square, "  back = @[16,16] add(x, x)\n",
     "  back = @[16,16] transpose(x), dimensions={1,0}\n"},
    {"a sum of all elements", counted, "  of_i = @[] convert(i)\n",
     "  none = @[] constant(0)\n"
     "  of_i = @[] reduce(x, none), dimensions={0}, to_apply=plus\n"},
    {"goes on when it is done", any, "  z = @[#] select(goes, y, x)\n", "  z = @[#] add(y, x)\n"},
    {"is replaced by another when it is done", any, "  z = @[#] select(goes, y, x)\n",
     "  z = @[#] select(goes, y, c)\n"},
    {"is done by another test than the condition's", any, "direction=LT\n"
     "  z =", "direction=LE\n"
     "  z ="},
    {"is done by a number that goes on", twice_done, NULL, NULL},
    {"is kept while it goes on", any, "  z = @[#] select(goes, y, x)\n", "  z = @[#] select(goes, x, y)\n"},
    {"ends as soon as one element is done", any, "  ROOT r = pred[] or(a, b) }\n", "  ROOT r = pred[] and(a, b) }\n"},
    {"goes on in any case", any, "  no = pred[] constant(false)\n", "  no = pred[] constant(true)\n"},
    {"goes on for a number or for an element", any, "pred[] and(more, any)", "pred[] or(more, any)"},
  };

  for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
    fill_in(varied(cases[i].form, "70", cases[i].from, cases[i].to), "s32", "70", 9);
    if (strstr(text, "to_apply=plus")) {
      char rest[sizeof text];
      snprintf(rest, sizeof rest, "%s", strchr(text, '\n'));
      snprintf(text, sizeof text,
               "HloModule t\n"
               "plus { a = s32[] parameter(0)\n"
               "  b = s32[] parameter(1)\n"
               "  ROOT r = s32[] add(a, b) }\n%.*s",
               (int)sizeof text - 200, rest);
    }
    if (strategy_of(text) == GEN_STRATEGY_ELEMENT_LOOP) fail_msg("%s: a loop by elements:\n%s", cases[i].what, text);
  }
  fill_in(varied(scan_of("70", 6, 6, false), "70", "tuple(j, y, in, next, others)", "tuple(j, y, in, next, next)"),
          "s32", "70", 6); /* one array is made of another's rows */
  T_TRUE(strategy_of(text) != GEN_STRATEGY_ELEMENT_LOOP);
  fill_in(varied(scan_of("70", 6, 6, false), "70", "  y = @[#] subtract(r, x)\n",
                 "  old = @[1,#] dynamic-slice(out, i, zero), dynamic_slice_sizes={1,#}\n"
                 "  before = @[#] reshape(old)\n"
                 "  y = @[#] subtract(before, x)\n"),
          "s32", "70", 6); /* rounds read a stack */
  T_TRUE(strategy_of(text) != GEN_STRATEGY_ELEMENT_LOOP);
  char low[sizeof text];
  snprintf(low, sizeof low, "%s",
           varied(scan_of("70", 6, 6, true), "70", "  back = s32[] subtract(last, i)\n",
                  "  low = s64[] constant(-9223372036854775808)\n"
                  "  back = s64[] subtract(low, low)\n"));
  fill_in(varied(low, "70",
                 "  zero = s32[] constant(0)\n"
                 "  last",
                 "  zero = s64[] constant(0)\n"
                 "  last"),
          "s32", "70", 6); /* an index of numbers that have no absolute value */
  T_TRUE(strategy_of(text) != GEN_STRATEGY_ELEMENT_LOOP);
  fill_in(counted, "s32", "0", 5); /* no elements */
  T_TRUE(strategy_of(text) == GEN_STRATEGY_SMALL_LOOP);
  fill_in(scan_of("70", 6, 5, false), "s32", "70", 6); /* one row stays as it was */
  T_TRUE(strategy_of(text) != GEN_STRATEGY_ELEMENT_LOOP);
  fill_in(counted, "s32", "7", 5); /* too few elements for a vector */
  T_TRUE(strategy_of(text) == GEN_STRATEGY_SMALL_LOOP);
}

int main(void)
{
  const struct CMUnitTest units[] = {
    UNIT(counted_loops_of_every_type_and_several_shapes), UNIT(elements_that_are_done_stay_as_they_are),
    UNIT(rows_of_stacks_are_written), UNIT(rows_that_are_shared), UNIT(elements_of_several_numbers),
    UNIT(elements_of_several_numbers_that_are_done), UNIT(loops_whose_elements_need_each_other),
  };
  return cmocka_run_group_tests(units, NULL, NULL);
}
