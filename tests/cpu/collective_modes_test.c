/* tests/cpu/collective_modes_test.c -- Every collective in every group mode on grids of 1 to 8 devices with one worker
 * thread, against a scalar model. Device (r, p) holds x[i] = 1000 (r P + p) + i, s32[2g, g] for groups of g. */
#include "cpu/run.h"

enum { MOST = 8, ROOM = 2048 };

typedef enum group_mode { CROSS_REPLICA, CROSS_PARTITION, BOTH, FLATTENED } group_mode;
static const char *const mode_names[] = {"cross-replica", "cross-partition", "cross-replica-and-partition", "flattened ids"};

typedef struct setup {
  int replicas, partitions;
  group_mode mode;
  int ways;                         /* the number of groups among which the ids are dealt in turns, the last id first */
  int group_of[MOST * MOST];        /* by device r * partitions + p */
  int members[MOST * MOST][MOST * MOST], size; /* of each group, in order */
  char groups[256];                 /* replica_groups */
  int rows, columns;                /* of x */
} setup;

static int x_of(int device, int i) { return 1000 * device + i; }

/* Deals the ids of a mode to `ways` groups, in descending order, and then finds the devices of each group by the rules
 * of the mode. */
static bool set_up(setup *s)
{
  int ids = s->mode == CROSS_PARTITION ? s->partitions
            : s->mode == FLATTENED     ? s->replicas * s->partitions
                                       : s->replicas;
  int sets = s->mode == CROSS_REPLICA ? s->partitions : s->mode == CROSS_PARTITION ? s->replicas : 1, n = 0;
  size_t at = 0;

  if (ids % s->ways) return false;
  s->size = ids / s->ways * (s->mode == BOTH ? s->partitions : 1);
  for (int set = 0; set < sets; set++)
    for (int w = 0; w < s->ways; w++, n++) {
      int rank = 0;
      if (set == 0) at += (size_t)sprintf(s->groups + at, "%s{", w ? "," : "{");
      for (int id = ids - 1; id >= 0; id--) {
        if (id % s->ways != w) continue;
        if (set == 0) at += (size_t)sprintf(s->groups + at, "%s%d", s->groups[at - 1] == '{' ? "" : ",", id);
        for (int k = 0; k < (s->mode == BOTH ? s->partitions : 1); k++) {
          int device = s->mode == CROSS_REPLICA     ? id * s->partitions + set
                       : s->mode == CROSS_PARTITION ? set * s->partitions + id
                       : s->mode == BOTH            ? id * s->partitions + k
                                                    : id;
          s->members[n][rank++] = device;
          s->group_of[device] = n;
        }
      }
      if (set == 0) at += (size_t)sprintf(s->groups + at, "}");
    }
  sprintf(s->groups + at, "}");
  s->rows = 2 * s->size;
  s->columns = s->size;
  return true;
}

static int rank_in(const setup *s, int device)
{
  int rank = 0;
  while (s->members[s->group_of[device]][rank] != device) rank++;
  return rank;
}
static int member(const setup *s, int device, int rank) { return s->members[s->group_of[device]][rank]; }

/* ---- what each operation must give: element i of the result of `device` ------------------------------------------ */

static int sum(const setup *s, int device, int i)
{
  int total = 0;
  for (int k = 0; k < s->size; k++) total += x_of(member(s, device, k), i);
  return total;
}
static int greatest(const setup *s, int device, int i)
{
  int most = -1;
  for (int k = 0; k < s->size; k++) most = WEFT_MAX(most, x_of(member(s, device, k), i));
  return most;
}
static int gathered0(const setup *s, int device, int i)
{
  int each = s->rows * s->columns;
  return x_of(member(s, device, i / each), i % each);
}
static int gathered1(const setup *s, int device, int i)
{
  int row = i / (s->size * s->columns), column = i % (s->size * s->columns);
  return x_of(member(s, device, column / s->columns), row * s->columns + column % s->columns);
}
static int scattered0(const setup *s, int device, int i)
{
  return sum(s, device, rank_in(s, device) * 2 * s->columns + i);
}
static int scattered1(const setup *s, int device, int i) { return sum(s, device, i * s->columns + rank_in(s, device)); }
static int exchanged0(const setup *s, int device, int i)
{
  int each = 2 * s->columns;
  return x_of(member(s, device, i / each), rank_in(s, device) * each + i % each);
}
static int exchanged1(const setup *s, int device, int i)
{
  return x_of(member(s, device, i % s->columns), i / s->columns * s->columns + rank_in(s, device));
}
/* Operand k of the tuple form is x + k: member k's operand for me. */
static int exchanged_tuple(const setup *s, int device, int i)
{
  int each = s->rows * s->columns;
  return x_of(member(s, device, i / each), i % each) + rank_in(s, device);
}
/* x + 2 x + the sum again of what is the same everywhere. */
static int several_sums(const setup *s, int device, int i) { return (3 + s->size) * sum(s, device, i); }
/* Rank s sends rank r 1 + (r + s) % 2 rows; the others keep what was there. */
static int ragged(const setup *s, int device, int i)
{
  int row = i / s->columns, from = row / 2, rank = rank_in(s, device);
  if (row % 2 > (from + rank) % 2) return -7;
  return x_of(member(s, device, from), (2 * rank + row % 2) * s->columns + i % s->columns);
}
static int from_root(const setup *s, int device, int i) { return x_of(member(s, device, 0), i); }
static int summed_and_more(const setup *s, int device, int i) { return sum(s, device, i) + 2 * x_of(device, i); }

#define G "replica_groups=@"
static const struct {
  const char *name, *text; /* R: the type of x; @: the groups and channel; #: other sizes */
  int (*want)(const setup *s, int device, int i);
  /* dimensions: letters r rows, c columns, R rows times size, C columns times size, 2 two, 1 one */
  const char *result;
  bool reduces;            /* among all-reduce, all-gather, reduce-scatter: a channel alone means BOTH */
} cases[] = {
  {"all-reduce", "ROOT y = X all-reduce(x), " G ", to_apply=add", sum, "rc", true},
  {"all-reduce, maximum", "ROOT y = X all-reduce(x), " G ", to_apply=max", greatest, "rc", true},
  {"all-reduce of a tuple",
   "f = f32[3] broadcast(half), dimensions={}\n"
   "t = (X, f32[3]) all-reduce(x, f), " G ", to_apply=add_both\n"
   "ROOT y = X get-tuple-element(t), index=0", sum, "rc", true},
  {"all-reduces, one of which needs another",
   "z = X add(x, x)\n"
   "a = X all-reduce(x), " G ", to_apply=add\n"
   "b = X all-reduce(z), " G ", to_apply=add_both\n"
   "c = X all-reduce(a), " G ", to_apply=add\n"
   "d = X add(a, b)\n"
   "ROOT y = X add(c, d)", several_sums, "rc", true},
  {"all-gather of rows", "ROOT y = Q all-gather(x), " G ", dimensions={0}", gathered0, "Rc", true},
  {"all-gather of columns", "ROOT y = Q all-gather(x), " G ", dimensions={1}", gathered1, "rC", true},
  {"reduce-scatter of rows", "ROOT y = Q reduce-scatter(x), " G ", dimensions={0}, to_apply=add", scattered0, "2c", true},
  {"reduce-scatter of columns", "ROOT y = Q reduce-scatter(x), " G ", dimensions={1}, to_apply=add", scattered1, "r1", true},
  {"all-to-all of rows", "ROOT y = X all-to-all(x), " G ", dimensions={0}", exchanged0, "rc", false},
  {"all-to-all of columns", "ROOT y = X all-to-all(x), " G ", dimensions={1}", exchanged1, "rc", false},
  {"all-to-all of a tuple", "TUPLE", exchanged_tuple, "Rc", false},
  {"ragged-all-to-all", "RAGGED", ragged, "rc", false},
  {"collective-broadcast", "ROOT y = X collective-broadcast(x), " G, from_root, "rc", false},
  {"all-reduce-start",
   "s = X all-reduce-start(x), " G ", to_apply=add\n"
   "z = X add(x, x)\n"
   "d = X all-reduce-done(s)\n"
   "ROOT y = X add(d, z)",
   summed_and_more, "rc", true},
  {"all-gather-start",
   "s = (X, Q) all-gather-start(x), " G ", dimensions={1}\n"
   "ROOT y = Q all-gather-done(s)", gathered1, "rC", true},
  {"reduce-scatter in async-start",
   "s = ((X), Q, s32[]) async-start(x), calls=scatter\n"
   "ROOT y = Q async-done(s)", scattered1, "r1", true},
  {"all-to-all in async-start",
   "s = ((X), X, s32[]) async-start(x), calls=exchange\n"
   "u = ((X), X, s32[]) async-update(s)\n"
   "ROOT y = X async-done(u)",
   exchanged1, "rc", false},
};

static int dim_of(const setup *s, char letter)
{
  switch (letter) {
  case 'r': return s->rows;
  case 'c': return s->columns;
  case 'R': return s->rows * s->size;
  case 'C': return s->columns * s->size;
  default: return letter - '0';
  }
}

/* `from` becomes `to` everywhere. */
static void replace(char *text, const char *from, const char *to)
{
  char copy[16384];

  for (char *at = text; (at = strstr(at, from)); at += strlen(to)) {
    strcpy(copy, at + strlen(from));
    strcpy(at, to);
    strcat(at, copy);
  }
}

static void tuple_text(const setup *s, char *body)
{
  char *at = body, shapes[512] = "";

  for (int k = 0; k < s->size; k++) {
    at += sprintf(at,
                  "k%d = s32[] constant(%d)\n"
                  "b%d = X broadcast(k%d), dimensions={}\n"
                  "o%d = X add(x, b%d)\n",
                  k, k, k, k, k, k);
    sprintf(shapes + strlen(shapes), "%sX", k ? "," : "");
  }
  at += sprintf(at, "t = (%s) all-to-all(", shapes);
  for (int k = 0; k < s->size; k++) at += sprintf(at, "%so%d", k ? "," : "", k);
  at += sprintf(at, "), " G "\n");
  for (int k = 0; k < s->size; k++) at += sprintf(at, "g%d = X get-tuple-element(t), index=%d\n", k, k);
  at += sprintf(at, "ROOT y = Q concatenate(");
  for (int k = 0; k < s->size; k++) at += sprintf(at, "%sg%d", k ? "," : "", k);
  sprintf(at, "), dimensions={0}");
}

/* A device finds its rank by its number, x[0] / 1000. */
static void ragged_text(const setup *s, char *body)
{
  char *at = body;

  at += sprintf(at, "ranks = s32[%d] constant({", s->replicas * s->partitions);
  for (int d = 0; d < s->replicas * s->partitions; d++) at += sprintf(at, "%s%d", d ? "," : "", rank_in(s, d));
  sprintf(at, "})\n"
              "x0 = s32[1,1] slice(x), slice={[0:1],[0:1]}\n"
              "x1 = s32[] reshape(x0)\n"
              "k = s32[] constant(1000)\n"
              "me = s32[] divide(x1, k)\n"
              "r0 = s32[1] dynamic-slice(ranks, me), dynamic_slice_sizes={1}\n"
              "r1 = s32[] reshape(r0)\n"
              "rank = I broadcast(r1), dimensions={}\n"
              "i = I iota(), iota_dimension=0\n"
              "c2 = s32[] constant(2)\n"
              "two = I broadcast(c2), dimensions={}\n"
              "c1 = s32[] constant(1)\n"
              "one = I broadcast(c1), dimensions={}\n"
              "both = I add(i, rank)\n"
              "odd = I remainder(both, two)\n"
              "sizes = I add(odd, one)\n"
              "from = I multiply(i, two)\n"
              "to = I multiply(rank, two)\n"
              "c7 = s32[] constant(-7)\n"
              "out = X broadcast(c7), dimensions={}\n"
              "ROOT y = X ragged-all-to-all(x, out, from, sizes, to, sizes), " G);
  char index[16];
  sprintf(index, "s32[%d] ", s->size);
  replace(body, "I ", index);
  strcat(body, "\n");
}

static void write_program(const setup *s, size_t c, char *text)
{
  char body[8192], groups[320], x[32], y[32];

  if (strcmp(cases[c].text, "TUPLE") == 0) tuple_text(s, body);
  else if (strcmp(cases[c].text, "RAGGED") == 0) ragged_text(s, body);
  else strcpy(body, cases[c].text);
  sprintf(groups, "%s%s", s->groups, s->mode == CROSS_REPLICA ? "" : ", channel_id=1");
  if (s->mode == FLATTENED) strcat(groups, ", use_global_device_ids=true");
  sprintf(x, "s32[%d,%d]", s->rows, s->columns);
  sprintf(y, "s32[%d,%d]", dim_of(s, cases[c].result[0]), dim_of(s, cases[c].result[1]));
  sprintf(text,
          "HloModule m, replica_count=%d, num_partitions=%d\n"
          "add {\n"
          "  a = s32[] parameter(0)\n"
          "  b = s32[] parameter(1)\n"
          "  ROOT r = s32[] add(a, b)\n"
          "}\n"
          "max {\n"
          "  a = s32[] parameter(0)\n"
          "  b = s32[] parameter(1)\n"
          "  ROOT r = s32[] maximum(a, b)\n"
          "}\n"
          "add_both {\n"
          "  a = s32[] parameter(0)\n"
          "  b = s32[] parameter(1)\n"
          "  ROOT r = s32[] add(a, b)\n"
          "}\n"
          "scatter {\n"
          "  a = X parameter(0)\n"
          "  ROOT r = Q reduce-scatter(a), " G ", dimensions={1}, to_apply=add\n"
          "}\n"
          "exchange {\n"
          "  a = X parameter(0)\n"
          "  ROOT r = X all-to-all(a), " G ", dimensions={1}\n"
          "}\n"
          "ENTRY e {\n"
          "  x = X parameter(0)\n"
          "  half = f32[] constant(0.5)\n"
          "%s }\n",
          s->replicas, s->partitions, body);
  if (!strstr(body, "calls=scatter")) {
    char *unused = strstr(text, "scatter {"), *rest = strstr(unused, "exchange {");
    memmove(unused, rest, strlen(rest) + 1);
  }
  replace(text, "@", groups);
  replace(text, "X", x);
  replace(text, "Q", y);
}

/* Launches on all devices and holds every element to the model. */
static void check(weft_platform *platform, const char *what, const char *text, const setup *s,
                  int (*want)(const setup *, int, int), int elems)
{
  weft_buffer *in[MOST], *out[MOST];
  weft_buffer *const *ins[MOST];
  weft_buffer **outs[MOST];
  int x[ROOM], y[ROOM], devices = s->replicas * s->partitions;
  weft_executable *exe = test_compile(platform, text, BUF_TOPOLOGICAL);

  T_EQ_INT(weft_executable_device_count(exe), devices);
  for (int round = 0; round < 2; round++) {
    for (int d = 0; d < devices; d++) {
      for (int i = 0; i < s->rows * s->columns; i++) x[i] = x_of(d, i);
      in[d] = test_buffer(weft_executable_device(exe, d), weft_executable_param_type(exe, 0), x);
      ins[d] = &in[d];
      outs[d] = &out[d];
    }
    T_OK(weft_executable_launch(exe, &(weft_launch){.inputs = ins, .outputs = outs, .launch_id = round}));
    for (int d = 0; d < devices; d++) {
      T_OK(weft_buffer_to_host(out[d], y, weft_deadline_after_ms(60000)));
      for (int i = 0; i < elems; i++)
        if (y[i] != want(s, d, i))
          fail_msg("%s, %s, %d replicas, %d partitions, groups %s: device %d element %d: got %d, want %d\n%s", what,
                   mode_names[s->mode], s->replicas, s->partitions, s->groups, d, i, y[i], want(s, d, i), text);
      weft_buffer_release(out[d]);
      weft_buffer_release(in[d]);
    }
  }
  weft_executable_release(exe);
}

static const int grids[][2] = {{1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}, {7, 1}, {8, 1}, {1, 2}, {1, 3}, {1, 8}, {2, 2}, {3, 2}, {2, 3}, {2, 4}, {4, 2}};

TEST(every_collective_in_every_group_mode)
{
  static char text[16384];

  for (size_t g = 0; g < WEFT_COUNT(grids); g++) {
    weft_platform *platform = test_platform(grids[g][0] * grids[g][1], 1); /* one worker for all devices */
    for (int mode = CROSS_REPLICA; mode <= FLATTENED; mode++)
      for (int ways = 1; ways <= 2; ways++)
        for (size_t c = 0; c < WEFT_COUNT(cases); c++) {
          setup s = {.replicas = grids[g][0], .partitions = grids[g][1], .mode = mode, .ways = ways};
          bool has_flag = cases[c].reduces; /* only these operations have use_global_device_ids */
          if ((mode == CROSS_PARTITION && has_flag) || ((mode == BOTH || mode == FLATTENED) && !has_flag) ||
              !set_up(&s))
            continue;
          write_program(&s, c, text);
          check(platform, cases[c].name, text, &s, cases[c].want,
                dim_of(&s, cases[c].result[0]) * dim_of(&s, cases[c].result[1]));
        }
    weft_platform_release(platform);
  }
}

/* ---- pairs ------------------------------------------------------------------------------------------------------- */

static int coordinate(const setup *s, int device)
{
  return s->mode == CROSS_REPLICA ? device / s->partitions : device % s->partitions;
}
static int count_of(const setup *s) { return s->mode == CROSS_REPLICA ? s->replicas : s->partitions; }
static int at_coordinate(const setup *s, int device, int id)
{
  return s->mode == CROSS_REPLICA ? id * s->partitions + device % s->partitions
                                  : device / s->partitions * s->partitions + id;
}
/* i sends to i + 1; the last sends to nobody, the first gets zeros. */
static int shifted(const setup *s, int device, int i)
{
  int id = coordinate(s, device);
  return id == 0 ? 0 : x_of(at_coordinate(s, device, id - 1), i);
}
static int turned(const setup *s, int device, int i)
{
  int n = count_of(s);
  return x_of(at_coordinate(s, device, (coordinate(s, device) + n - 1) % n), i);
}
static int own_id(const setup *s, int device, int i)
{
  return i == 0 ? device / s->partitions : device % s->partitions;
}

TEST(permutations_transfers_and_ids)
{
  static const struct { const char *name, *body; int (*want)(const setup *, int, int); bool ring; } forms[] = {
    {"collective-permute", "ROOT y = X collective-permute(x), source_target_pairs=P", shifted, false},
    {"collective-permute in a ring", "ROOT y = X collective-permute(x), source_target_pairs=P", turned, true},
    {"collective-permute-start",
     "s = (X, X) collective-permute-start(x), source_target_pairs=P\n"
     "z = X add(x, x)\n"
     "d = X collective-permute-done(s)\n"
     "e = X add(d, z)\n"
     "ROOT y = X subtract(e, z)", turned, true},
    {"send and recv",
     "t = token[] after-all()\n"
     "r = (X, u32[], token[]) recv(t), CH, frontend_attributes={_xla_send_recv_source_target_pairs=\"P\"}\n"
     "s = (X, u32[], token[]) send(x, t), CH, frontend_attributes={_xla_send_recv_source_target_pairs=\"P\"}\n"
     "rd = (X, token[]) recv-done(r), CH\n"
     "sd = token[] send-done(s), CH\n"
     "ROOT y = X get-tuple-element(rd), index=0", shifted, false},
    {"ids",
     "a = u32[] replica-id()\n"
     "b = u32[] partition-id()\n"
     "c = s32[] convert(a)\n"
     "d = s32[] convert(b)\n"
     "e = s32[1] reshape(c)\n"
     "f = s32[1] reshape(d)\n"
     "ROOT y = s32[2] concatenate(e, f), dimensions={0}", own_id, false},
  };
  static char text[16384];

  for (size_t g = 0; g < WEFT_COUNT(grids); g++) {
    weft_platform *platform = test_platform(grids[g][0] * grids[g][1], 1);
    for (int mode = CROSS_REPLICA; mode <= CROSS_PARTITION; mode++)
      for (size_t c = 0; c < WEFT_COUNT(forms); c++) {
        setup s = {.replicas = grids[g][0], .partitions = grids[g][1], .mode = mode, .ways = 1};
        char pairs[256] = "{", x[32];
        int n = count_of(&s), last = forms[c].ring ? n : n - 1;
        bool talks = strcmp(forms[c].name, "send and recv") == 0;
        if (!set_up(&s) || (talks && mode == CROSS_REPLICA && s.partitions > 1)) continue;
        for (int i = 0; i < last; i++) sprintf(pairs + strlen(pairs), "%s{%d,%d}", i ? "," : "", i, (i + 1) % n);
        strcat(pairs, "}");
        if (mode == CROSS_PARTITION && !talks) strcat(pairs, ", channel_id=1");
        sprintf(text,
                "HloModule m, replica_count=%d, num_partitions=%d\n"
                "ENTRY e { x = X parameter(0)\n"
                "%s }\n",
                s.replicas, s.partitions, forms[c].body);
        sprintf(x, "s32[%d,%d]", s.rows, s.columns);
        replace(text, "CH", mode == CROSS_PARTITION ? "channel_id=1" : "channel_id=0");
        replace(text, "X", x);
        replace(text, "P", pairs);
        check(platform, forms[c].name, text, &s, forms[c].want,
              strcmp(forms[c].name, "ids") == 0 ? 2 : s.rows * s.columns);
      }
    weft_platform_release(platform);
  }
}

TEST_MAIN(UNIT(every_collective_in_every_group_mode), UNIT(permutations_transfers_and_ids))
