/* tests/cpu/collective_test.c -- programs with collectives on several devices. */
#include "cpu/run.h"

/* Each case runs on four devices; device d gets x[i] = 100 d + i, f32[2,4]; `want` computes what device d must give. */
enum { DEVICES = 4, N = 8 };

static float x_of(int d, int i) { return (float)(100 * d + i); }

static float want_sum(int d, int i)
{
  (void)d;
  return (float)(600 + 4 * i);
}
static float want_pair_max(int d, int i) { return x_of(d % 2 ? 3 : 2, i); }
static float want_gather0(int d, int i)
{
  (void)d;
  return x_of(i / 8, i % 8);
} /* f32[8,4] */
static float want_gather1(int d, int i)
{
  (void)d;
  return x_of(i % 16 / 4, i / 16 * 4 + i % 4);
} /* f32[2,16] */
static float want_scatter1(int d, int i) { return want_sum(0, i * 4 + d); } /* f32[2,1] */
static float want_gathers(int d, int i) { return i < 32 ? want_gather1(d, i) : 2 * want_gather1(d, i - 16); }
static float want_scatters(int d, int i) { return (float)(1 + i % 2) * want_scatter1(d, i / 2); } /* f32[2,2] */
static float want_all_to_all(int d, int i) { return x_of(i % 4, i / 4 * 4 + d); }                 /* split dim 1 */
static float want_permute(int d, int i) { return d == 0 ? 0 : d == 3 ? x_of(3, i) : x_of(d - 1, i); }
static float want_broadcast(int d, int i) { return d == 3 ? 0 : x_of(1, i); }
static float want_id(int d, int i)
{
  (void)i;
  return (float)d;
}
static float want_mean(int d, int i) { return want_sum(d, i) / 4; }
static float want_async(int d, int i) { return want_sum(d, i) + x_of(d, i) * 2; }

#define ADD \
  "add {\n" \
  "  a = f32[] parameter(0)\n" \
  "  b = f32[] parameter(1)\n" \
  "  ROOT r = f32[] add(a, b)\n" \
  "}\n"

static const struct {
  const char *name, *text; /* the computations before the entry, then its body after x */
  const char *before;
  int elems;
  float (*want)(int d, int i);
} cases[] = {
  {"all-reduce of all replicas", "ROOT r = f32[2,4] all-reduce(x), replica_groups={}, to_apply=add", ADD, 8, want_sum},
  {"all-reduce in pairs", "ROOT r = f32[2,4] all-reduce(x), replica_groups={{0,2},{1,3}}, to_apply=max",
   "max {\n"
   "  a = f32[] parameter(0)\n"
   "  b = f32[] parameter(1)\n"
   "  ROOT r = f32[] maximum(a, b)\n"
   "}\n", 8, want_pair_max},
  {"all-gather along the first dimension", "ROOT r = f32[8,4] all-gather(x), replica_groups=[1,4]<=[4], dimensions={0}",
   "", 32, want_gather0},
  {"all-gather along the second", "ROOT r = f32[2,16] all-gather(x), replica_groups={{0,1,2,3}}, dimensions={1}", "", 32,
   want_gather1},
  {"reduce-scatter along the second", "ROOT r = f32[2,1] reduce-scatter(x), replica_groups={{0,1,2,3}}, dimensions={1}, "
   "to_apply=add", ADD, 2, want_scatter1},
  {"all-gathers along the second that travel as one", /* of x and of a row of twice x: f32[2,16] and f32[1,16] above each other */
   "g = f32[2,16] all-gather(x), replica_groups={{0,1,2,3}}, dimensions={1}\n"
   "y = f32[2,4] add(x, x)\n"
   "row = f32[1,4] slice(y), slice={[1:2],[0:4]}\n"
   "h = f32[1,16] all-gather(row), replica_groups={{0,1,2,3}}, dimensions={1}\n"
   "ROOT r = f32[3,16] concatenate(g, h), dimensions={0}", "", 48, want_gathers},
  {"reduce-scatters along the second that travel as one",
   "g = f32[2,1] reduce-scatter(x), replica_groups={{0,1,2,3}}, dimensions={1}, to_apply=add\n"
   " y = f32[2,4] add(x, x)\n"
   " h = f32[2,1] reduce-scatter(y), replica_groups={{0,1,2,3}}, dimensions={1}, to_apply=add\n"
   " ROOT r = f32[2,2] concatenate(g, h), dimensions={1}", ADD, 4, want_scatters},
  {"all-to-all along the second", "ROOT r = f32[2,4] all-to-all(x), replica_groups={{0,1,2,3}}, dimensions={1}", "", 8,
   want_all_to_all},
  {"collective-permute", "ROOT r = f32[2,4] collective-permute(x), source_target_pairs={{0,1},{1,2},{3,3}}", "", 8,
   want_permute},
  {"collective-broadcast", "ROOT r = f32[2,4] collective-broadcast(x), replica_groups={{1,0,2}}", "", 8, want_broadcast},
  {"replica-id",
   "i = u32[] replica-id()\n"
   "ROOT r = f32[] convert(i)", "", 1, want_id},
  {"an asynchronous all-reduce with work beside it",
   "s = f32[2,4] all-reduce-start(x), replica_groups={}, to_apply=add\n"
   " y = f32[2,4] add(x, x)\n"
   " d = f32[2,4] all-reduce-done(s)\n"
   " ROOT r = f32[2,4] add(d, y)", ADD, 8, want_async},
  {"collectives in a loop",
   "z = s32[] constant(0)\n"
   "t = (s32[], f32[2,4]) tuple(z, x)\n"
   "w = (s32[], f32[2,4]) while(t), condition=cond, body=body\n"
   "ROOT r = f32[2,4] get-tuple-element(w), index=1",
   ADD
   "body {\n"
   "  p = (s32[], f32[2,4]) parameter(0)\n"
   "  i = s32[] get-tuple-element(p), index=0\n"
   "  x = f32[2,4] get-tuple-element(p), index=1\n"
   "  one = s32[] constant(1)\n"
   "  j = s32[] add(i, one)\n"
   "  s = f32[2,4] all-reduce(x), replica_groups={}, to_apply=add\n"
   "  q = f32[] constant(0.25)\n"
   "  b = f32[2,4] broadcast(q), dimensions={}\n"
   "  m = f32[2,4] multiply(s, b)\n"
   "  ROOT t = (s32[], f32[2,4]) tuple(j, m)\n"
   "}\n"
   "cond {\n"
   "  p = (s32[], f32[2,4]) parameter(0)\n"
   "  i = s32[] get-tuple-element(p), index=0\n"
   "  n = s32[] constant(3)\n"
   "  ROOT c = pred[] compare(i, n), direction=LT\n"
   "}\n", 8, want_mean},
};

static void launch_on_all(weft_executable *exe, float (*out)[64])
{
  weft_buffer *in[DEVICES], *result[DEVICES];
  weft_buffer *const *ins[DEVICES];
  weft_buffer **outs[DEVICES];

  for (int d = 0; d < DEVICES; d++) {
    float x[N];
    for (int i = 0; i < N; i++) x[i] = x_of(d, i);
    in[d] = weft_executable_param_count(exe)
              ? test_buffer(weft_executable_device(exe, d), weft_executable_param_type(exe, 0), x)
              : NULL;
    ins[d] = &in[d];
    outs[d] = &result[d];
  }
  T_OK(weft_executable_launch(exe, &(weft_launch){.inputs = ins, .outputs = outs, .launch_id = 7}));
  for (int d = 0; d < DEVICES; d++) {
    T_OK(weft_buffer_to_host(result[d], out[d], weft_deadline_after_ms(30000)));
    weft_buffer_release(result[d]);
    weft_buffer_release(in[d]);
  }
}

TEST(every_collective_gives_each_device_its_part)
{
  weft_platform *platform = test_platform(DEVICES, 2);

  for (size_t c = 0; c < WEFT_COUNT(cases); c++) {
    char text[4096];
    float out[DEVICES][64];
    snprintf(text, sizeof text,
             "HloModule m, replica_count=4\n"
             "%sENTRY e { x = f32[2,4] parameter(0)\n"
             " %s }\n",
             cases[c].before, cases[c].text);
    weft_executable *exe = test_compile(platform, text, BUF_TOPOLOGICAL);
    for (int round = 0; round < 3; round++) {
      launch_on_all(exe, out);
      for (int d = 0; d < DEVICES; d++)
        for (int i = 0; i < cases[c].elems; i++) {
          float w = cases[c].want(d, i);
          if (out[d][i] != w) fail_msg("%s: device %d element %d: got %g, want %g", cases[c].name, d, i, out[d][i], w);
        }
    }
    weft_executable_release(exe);
  }
  weft_platform_release(platform);
}

/* The verifier does not check the size of groups. Without the check under test, a result of another size would be
 * written past its end. */
TEST(sizes_that_no_group_makes_do_not_compile)
{
  static const char *const texts[] = {
    "r = f32[1,4] reduce-scatter(x), replica_groups={}, dimensions={0}, to_apply=add",
    "r = f32[4,4] all-gather(x), replica_groups={}, dimensions={0}",
    "r = f32[8,4] all-gather(x), replica_groups={{0,1},{2,3}}, dimensions={0}",
    "r = f32[2,4] all-to-all(x), replica_groups={}, dimensions={0}",
    "t = (f32[2,4]) tuple(x)\n"
    " r = (f32[2,4]) collective-permute(t), source_target_pairs={{0,1}}",
    "b = f32[1,8] bitcast(x)\n"
    " r = (f32[2,4], f32[1,8]) all-to-all(x, b), replica_groups={{0,1},{2,3}}",
  };
  weft_platform *platform = test_platform(DEVICES, 2);

  for (size_t i = 0; i < WEFT_COUNT(texts); i++) {
    char text[1024];
    hlo_module *module;
    weft_executable *exe;

    snprintf(text, sizeof text,
             "HloModule m, replica_count=4\n"
             "add { a = f32[] parameter(0)\n"
             " b = f32[] parameter(1)\n"
             " ROOT c = f32[] add(a, b) }\n"
             "ENTRY e { x = f32[2,4] parameter(0)\n"
             " %s }\n",
             texts[i]);
    T_OK(hlo_parse(text, strlen(text), &module));
    weft_status *st = weft_compile(platform, module, &(weft_compile_options){0}, &exe);
    if (!st) fail_msg("%s: compiles", texts[i]);
    weft_status_free(st);
  }
  weft_platform_release(platform);
}

/* The input of one device is an error: the runs of the others fail in their first collective, and skip the rest. */
TEST(a_run_that_fails_ends_although_collectives_follow)
{
  static const char text[] = "HloModule m, replica_count=4\n"
                             "sum {\n"
                             "  a = f32[] parameter(0)\n"
                             "  b = f32[] parameter(1)\n"
                             "  ROOT r = f32[] add(a, b)\n"
                             "}\n"
                             "ENTRY e {\n"
                             "  x = f32[2,4] parameter(0)\n"
                             "  a = f32[2,4] all-reduce(x), to_apply=sum\n"
                             "  n = f32[2,4] negate(a)\n"
                             "  b = f32[2,4] all-reduce(n), to_apply=sum\n"
                             "  m = f32[2,4] negate(b)\n"
                             "  c = f32[2,4] all-reduce(m), to_apply=sum\n"
                             "  ROOT r = f32[2,4] add(c, x)\n"
                             "}\n";
  weft_platform *platform = test_platform(DEVICES, 2);
  weft_executable *exe = test_compile(platform, text, BUF_TOPOLOGICAL);
  const float x[N] = {1, 2, 3, 4, 5, 6, 7, 8};

  for (int round = 0; round < 3; round++) {
    weft_buffer *in[DEVICES], *result[DEVICES];
    weft_buffer *const *ins[DEVICES];
    weft_buffer **outs[DEVICES];
    for (int d = 0; d < DEVICES; d++) {
      const weft_array_type *type = weft_executable_param_type(exe, 0);
      weft_device *device = weft_executable_device(exe, d);
      if (d == 2 && round < 2)
        T_OK(weft_buffer_from_error(device, type, WEFT_ERR(DATA_LOSS, "the disk is gone"), &in[d]));
      else in[d] = test_buffer(device, type, x);
      ins[d] = &in[d];
      outs[d] = &result[d];
    }
    T_OK(weft_executable_launch(exe, &(weft_launch){.inputs = ins, .outputs = outs, .launch_id = 1 + round}));
    for (int d = 0; d < DEVICES; d++) {
      float out[N];
      weft_status *st = weft_buffer_to_host(result[d], out, weft_deadline_after_ms(30000));
      if (round < 2) T_FAILS(st, "the disk is gone");
      else T_OK(st);
      if (round == 2) T_TRUE(out[0] == 65 && out[7] == 520);
      weft_buffer_release(result[d]);
      weft_buffer_release(in[d]);
    }
  }
  weft_executable_release(exe);
  weft_platform_release(platform);
}

TEST_MAIN(UNIT(every_collective_gives_each_device_its_part), UNIT(sizes_that_no_group_makes_do_not_compile),
          UNIT(a_run_that_fails_ends_although_collectives_follow))
