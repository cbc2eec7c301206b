/* tests/hlo/eval_collective_test.c -- Collectives in the evaluator.  Element e of the argument of device d is 100 d +
 * e; what comes out is worked out by hand. Devices are numbered replica * partitions + partition. */
#include "test.h"

#include "hlo/eval.h"
#include "hlo/infer.h"
#include "hlo/text.h"

#define ADD \
  "add {\n" \
  "  a = s32[] parameter(0)\n" \
  "  b = s32[] parameter(1)\n" \
  "  ROOT c = s32[] add(a, b)\n" \
  "}\n"

enum { MOST_DEVICES = 8, MOST_VALUES = 48 };

static const struct {
  const char *name;
  int replicas, partitions, elems; /* of the argument, an s32 array */
  const char *text;                /* the entry's instructions; `x` is the argument */
  int count, want[MOST_VALUES];    /* leaves of the results of all devices */
} cases[] = {
  {"ids", 2, 2, 1,
   "r = u32[] replica-id()\n"
   "p = u32[] partition-id()\n"
   "ROOT t = (u32[], u32[]) tuple(r, p)", 8, {0, 0, 0, 1, 1, 0, 1, 1}},
  {"all-reduce by replica ids", 2, 2, 2, "ROOT r = s32[2] all-reduce(x), replica_groups={{0,1}}, to_apply=add", 8,
   {200, 202, 400, 402, 200, 202, 400, 402}},
  {"all-reduce of replicas with all their partitions", 2, 2, 1,
   "ROOT r = s32[1] all-reduce(x), channel_id=1, replica_groups={{0},{1}}, to_apply=add", 4, {100, 100, 500, 500}},
  {"all-reduce by flattened ids", 2, 2, 1,
   "ROOT r = s32[1] all-reduce(x), channel_id=1, replica_groups={{0,3},{1,2}}, use_global_device_ids=true, to_apply=add", 4,
   {300, 300, 300, 300}},
  {"all-reduce of groups of several sizes", 4, 1, 1, "ROOT r = s32[1] all-reduce(x), replica_groups={{3,0,1},{2}}, to_apply=add", 4,
   {400, 400, 200, 400}},
  {"all-reduce of two operands", 2, 1, 1,
   "y = s32[1] negate(x)\n"
   "ROOT r = (s32[1], s32[1]) all-reduce(x, y), replica_groups={}, to_apply=add", 4, {100, -100, 100, -100}},
  {"iota groups", 1, 4, 1,
   "ROOT r = s32[1] all-reduce(x), channel_id=1, replica_groups=[2,2]<=[2,2]T(1,0), use_global_device_ids=true, to_apply=add", 4,
   {200, 400, 200, 400}},
  {"all-gather along columns, members in the order of the group", 2, 1, 4,
   "m = s32[2,2] reshape(x)\n"
   "ROOT r = s32[2,4] all-gather(m), replica_groups={{1,0}}, dimensions={1}", 16,
   {100, 101, 0, 1, 102, 103, 2, 3, 100, 101, 0, 1, 102, 103, 2, 3}},
  {"reduce-scatter", 2, 1, 4, "ROOT r = s32[2] reduce-scatter(x), replica_groups={{1,0}}, dimensions={0}, to_apply=add", 4,
   {104, 106, 100, 102}},
  {"all-to-all by partition ids", 2, 2, 2, "ROOT r = s32[2] all-to-all(x), channel_id=1, replica_groups={{0,1}}, dimensions={0}", 8,
   {0, 100, 1, 101, 200, 300, 201, 301}},
  {"all-to-all of a tuple", 2, 1, 1,
   "y = s32[1] negate(x)\n"
   "ROOT r = (s32[1], s32[1]) all-to-all(x, y), replica_groups={{0,1}}", 4, {0, 100, 0, -100}},
  {"collective-permute by replica ids", 2, 2, 1, "ROOT r = s32[1] collective-permute(x), source_target_pairs={{0,1}}", 4, {0, 0, 0, 100}},
  {"collective-permute by partition ids", 2, 2, 1,
   "ROOT r = s32[1] collective-permute(x), channel_id=1, source_target_pairs={{1,0},{0,1}}", 4, {100, 0, 300, 200}},
  {"collective-broadcast, and a device in no group", 4, 1, 1, "ROOT r = s32[1] collective-broadcast(x), replica_groups={{2,1},{3}}", 4,
   {0, 200, 200, 300}},
  {"ragged-all-to-all", 2, 1, 4,
   "out = s32[4] constant({-1, -2, -3, -4})\n"
   "id = u32[] replica-id()\n"
   "n = s32[] convert(id)\n"
   "v = s32[2] broadcast(n), dimensions={}\n"
   "one = s32[] constant(1)\n"
   "ones = s32[2] broadcast(one), dimensions={}\n"
   "in = s32[2] constant({0, 1})\n"
   "size = s32[2] add(v, ones)\n"
   "got = s32[2] constant({1, 2})\n"
   "twos = s32[2] add(ones, ones)\n"
   "at = s32[2] multiply(v, ones)\n"
   "ROOT r = s32[4] ragged-all-to-all(x, out, in, size, at, got), replica_groups={{0,1}}", 8, {0, 100, 101, -4, 1, 101, 102, -4}},
  {"pairs of start and done", 2, 1, 1,
   "s = s32[1] all-reduce-start(x), replica_groups={}, to_apply=add\n"
   "d = s32[1] all-reduce-done(s)\n"
   "gs = (s32[1], s32[2]) all-gather-start(x), replica_groups={}, dimensions={0}\n"
   "gd = s32[2] all-gather-done(gs)\n"
   "ps = (s32[1], s32[1], u32[], u32[]) collective-permute-start(x), source_target_pairs={{0,1}}\n"
   "pd = s32[1] collective-permute-done(ps)\n"
   "ROOT t = (s32[1], s32[2], s32[1]) tuple(d, gd, pd)", 8, {100, 0, 100, 0, 100, 0, 100, 0}},
  {"an asynchronous computation", 2, 1, 1,
   "s = ((s32[1]), s32[1], u32[]) async-start(x), calls=reduced\n"
   "d = s32[1] async-done(s)\n"
   "ROOT r = s32[1] negate(d)", 2, {-100, -100}},
  {"in a call", 2, 1, 1, "ROOT r = s32[1] call(x), to_apply=reduced", 2, {100, 100}},
  {"in a loop that all take", 2, 1, 1,
   "n = s32[] constant(0)\n"
   "t = (s32[], s32[1]) tuple(n, x)\n"
   "w = (s32[], s32[1]) while(t), condition=below3, body=turn\n"
   "ROOT r = s32[1] get-tuple-element(w), index=1", 2, {400, 400}},
  {"loops of several lengths, without others", 4, 1, 1,
   "id = u32[] replica-id()\n"
   "n = s32[] convert(id)\n"
   "t = (s32[], s32[1]) tuple(n, x)\n"
   "w = (s32[], s32[1]) while(t), condition=below3, body=lonely\n"
   "ROOT r = s32[1] get-tuple-element(w), index=1", 4, {3, 102, 201, 300}},
  {"branches of devices that agree", 4, 1, 1,
   "id = u32[] replica-id()\n"
   "two = u32[] constant(2)\n"
   "low = pred[] compare(id, two), direction=LT\n"
   "ROOT r = s32[1] conditional(low, x, x), branch_computations={firstpair, lastpair}", 4, {100, 100, 300, 300}},
};

#define COMPUTATIONS \
  ADD \
  "reduced {\n" \
  "  a = s32[1] parameter(0)\n" \
  "  ROOT r = s32[1] all-reduce(a), replica_groups={}, to_apply=add\n" \
  "}\n" \
  "below3 {\n" \
  "  t = (s32[], s32[1]) parameter(0)\n" \
  "  i = s32[] get-tuple-element(t), index=0\n" \
  "  n = s32[] constant(3)\n" \
  "  ROOT r = pred[] compare(i, n), direction=LT\n" \
  "}\n" \
  "turn {\n" \
  "  t = (s32[], s32[1]) parameter(0)\n" \
  "  i = s32[] get-tuple-element(t), index=0\n" \
  "  v = s32[1] get-tuple-element(t), index=1\n" \
  "  one = s32[] constant(1)\n" \
  "  j = s32[] add(i, one)\n" \
  "  s = s32[1] all-reduce(v), replica_groups={}, to_apply=add\n" \
  "  ROOT r = (s32[], s32[1]) tuple(j, s)\n" \
  "}\n" \
  "lonely {\n" \
  "  t = (s32[], s32[1]) parameter(0)\n" \
  "  i = s32[] get-tuple-element(t), index=0\n" \
  "  v = s32[1] get-tuple-element(t), index=1\n" \
  "  one = s32[] constant(1)\n" \
  "  j = s32[] add(i, one)\n" \
  "  ones = s32[1] broadcast(one), dimensions={}\n" \
  "  s = s32[1] add(v, ones)\n" \
  "  ROOT r = (s32[], s32[1]) tuple(j, s)\n" \
  "}\n" \
  "firstpair {\n" \
  "  a = s32[1] parameter(0)\n" \
  "  ROOT r = s32[1] all-reduce(a), replica_groups={{0,1},{2,3}}, to_apply=add\n" \
  "}\n" \
  "lastpair {\n" \
  "  a = s32[1] parameter(0)\n" \
  "  ROOT r = s32[1] collective-broadcast(a), replica_groups={{0,1},{3,2}}\n" \
  "}\n"

static hlo_module *evaluated; /* results refer to shapes of the module */

/* The results of all devices, or an error; they live until the next call. */
static weft_status *evaluate(weft_arena *arena, const char *body, int replicas, int partitions, int elems,
                             const hlo_literal **results)
{
  hlo_eval_options options = {.deadline = WEFT_NO_DEADLINE, .replicas = replicas, .partitions = partitions};
  const hlo_literal *arguments[MOST_DEVICES];
  int64_t dims[] = {elems};
  const char *text =
    weft_arena_printf(arena, "HloModule m\n" COMPUTATIONS "ENTRY e { x = s32[%d] parameter(0) %s }\n", elems, body);

  hlo_module_free(evaluated);
  evaluated = NULL;
  WEFT_TRY(hlo_parse(text, strlen(text), &evaluated));
  WEFT_TRY(hlo_verify(evaluated));
  for (int d = 0; d < WEFT_MAX(1, replicas * partitions); d++) {
    hlo_literal *argument;
    T_OK(hlo_literal_new(arena, hlo_shape_array(arena, WEFT_S32, 1, dims), &argument));
    for (int e = 0; e < elems; e++) hlo_literal_set_s64(argument, e, 100 * d + e);
    arguments[d] = argument;
  }
  return hlo_eval_module(evaluated, arguments, &options, arena, results);
}

static int flatten(const hlo_literal *value, int *out)
{
  int count = 0;

  if (!hlo_shape_is_tuple(value->shape)) {
    for (; count < hlo_shape_elems(value->shape); count++) out[count] = (int)hlo_literal_get_s64(value, count);
    return count;
  }
  for (int i = 0; i < value->shape->rank; i++) count += flatten(value->elements[i], out + count);
  return count;
}

TEST(collectives_give_each_device_what_the_others_have)
{
  for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
    const hlo_literal *results[MOST_DEVICES];
    int got[4 * MOST_VALUES], count = 0;
    weft_arena arena;

    weft_arena_init(&arena);
    print_message("# %s\n", cases[i].name);
    T_OK(evaluate(&arena, cases[i].text, cases[i].replicas, cases[i].partitions, cases[i].elems, results));
    for (int d = 0; d < cases[i].replicas * cases[i].partitions; d++) count += flatten(results[d], got + count);
    T_EQ_INT(count, cases[i].count);
    for (int k = 0; k < count; k++) T_EQ_INT(got[k], cases[i].want[k]);
    weft_arena_fini(&arena);
  }
}

static const struct { const char *text; int devices; const char *error; } mistakes[] = {
  {"id = u32[] replica-id()\n"
   "one = u32[] constant(1)\n"
   "p = pred[] compare(id, one), direction=LT\n"
   "ROOT r = s32[1] conditional(p, x, x), branch_computations={reduced, firstpair}", 2,
   "device 0 would wait for device 1, which went another way at conditional \"r\""},
  {"id = u32[] replica-id()\n"
   "n = s32[] convert(id)\n"
   "t = (s32[], s32[1]) tuple(n, x)\n"
   "ROOT w = (s32[], s32[1]) while(t), condition=below3, body=turn", 2,
   "device 0 would wait for device 1, which went another way at while \"w\""},
  {"ROOT r = s32[1] all-reduce(x), replica_groups={{0,1}}, to_apply=add", 3, "device 2 is in no group"},
  {"ROOT r = s32[3] all-gather(x), replica_groups={}, dimensions={0}", 2, "do not fit a group of 2"},
  {"ROOT r = s32[1] collective-permute(x), source_target_pairs={{0,2}}", 2, "names"},
  {"ROOT r = s32[1] collective-permute(x), source_target_pairs={{0,1},{1,1}}", 2, "names target 1 twice"},
  {"ROOT r = s32[1] all-reduce(x), replica_groups={}, to_apply=add", 0, "no devices are known"},
  {"ROOT r = u32[] replica-id()", 0, "none are known"},
};

TEST(what_would_hang_or_does_not_fit_is_an_error)
{
  for (size_t i = 0; i < WEFT_COUNT(mistakes); i++) {
    const hlo_literal *results[MOST_DEVICES];
    weft_arena arena;

    weft_arena_init(&arena);
    weft_status *st = evaluate(&arena, mistakes[i].text, mistakes[i].devices, mistakes[i].devices > 0, 1, results);
    T_FAILS(st, mistakes[i].error);
    weft_arena_fini(&arena);
  }
}

/* 2^24 + 1 is not an f32 and 256 + 1 not a bf16, so the sum shows in which order the values were added, and where the
 * sum was rounded. */
TEST(reductions_go_by_rank)
{
  static const struct { const char *type, *groups; weft_dtype dtype; double values[3], want; } sums[] = {
    {"f32", "{{0,1,2}}", WEFT_F32, {0x1p24, 1, -0x1p24}, 0},
    {"f32", "{{2,0,1}}", WEFT_F32, {0x1p24, 1, -0x1p24}, 1},
    {"bf16", "{{0,1,2}}", WEFT_BF16, {256, 1, -256}, 1},
    {"bf16", "{{0,1,2}}", WEFT_BF16, {256, 1, 0}, 256},
  };

  for (size_t i = 0; i < WEFT_COUNT(sums); i++) {
    WEFT_AUTO(hlo_module) module = NULL;
    hlo_eval_options options = {.deadline = WEFT_NO_DEADLINE, .replicas = 3, .partitions = 1};
    const hlo_literal *arguments[3], *results[3];
    const char *t = sums[i].type;
    weft_arena arena;

    weft_arena_init(&arena);
    const char *text = weft_arena_printf(&arena,
                                         "HloModule m\n"
                                         "add {\n"
                                         "  a = %s[] parameter(0)\n"
                                         "  b = %s[] parameter(1)\n"
                                         "  ROOT c = %s[] add(a, b)\n"
                                         "}\n"
                                         "ENTRY e {\n"
                                         "  x = %s[] parameter(0)\n"
                                         "  ROOT r = %s[] all-reduce(x), replica_groups=%s, to_apply=add\n"
                                         "}",
                                         t, t, t, t, t, sums[i].groups);
    T_OK(hlo_parse(text, strlen(text), &module));
    for (int d = 0; d < 3; d++) {
      hlo_literal *scalar;
      T_OK(hlo_literal_scalar_f64(&arena, sums[i].dtype, sums[i].values[d], &scalar));
      arguments[d] = scalar;
    }
    T_OK(hlo_eval_module(module, arguments, &options, &arena, results));
    for (int d = 0; d < 3; d++) T_TRUE(hlo_literal_get_f64(results[d], 0) == sums[i].want);
    weft_arena_fini(&arena);
  }
}

TEST_MAIN(UNIT(collectives_give_each_device_what_the_others_have), UNIT(what_would_hang_or_does_not_fit_is_an_error),
          UNIT(reductions_go_by_rank))
