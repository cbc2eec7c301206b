/* tests/passes/pipeline_test.c -- The CPU pipeline on the real programs of shared/testdata/hlo: it ends, every pass
 * leaves a module that verifies (in debug builds), and what comes out has the form that the back end expects.
 * Instruction counts and times are printed.
 *
 *   pipeline_test FILE     runs one file and prints the result, for people */
#include "read_file.h"
#include "test.h"

#include <dirent.h>

#include "base/deadline.h"
#include "hlo/infer.h"
#include "hlo/text.h"
#include "codegen/model/library.h"
#include "passes/passes.h"

static const pass_options options = {
  .fold_limit_bytes = 1 << 16, .num_threads = 2, .bf16_features_last = true, .f32_features_last = true,
};

static int64_t instr_count(const hlo_module *module)
{
  int64_t count = 0;

  HLO_FOREACH_COMPUTATION(comp, module) count += comp->instr_count;
  return count;
}

typedef struct profile { const char *name[64]; int64_t ns[64]; int changed[64], runs[64], count; } profile;

static void note(void *ctx, const char *pass, bool changed, int64_t ns, const hlo_module *module)
{
  profile *p = ctx;
  int i = 0;

  (void)module;
  while (i < p->count && strcmp(p->name[i], pass) != 0) i++;
  if (i == 64) return;
  if (i == p->count) p->count++;
  p->name[i] = pass;
  p->ns[i] += ns;
  p->changed[i] += changed;
  p->runs[i]++;
}

/* Every sequential computation holds only what the back end takes. */
static void check_form(const hlo_module *module)
{
  weft_arena arena;
  pass_comps comps;

  weft_arena_init(&arena);
  T_TRUE(module->is_scheduled);
  T_OK(pass_sequential(module, &arena, &comps));
  for (int i = 0; i < comps.count; i++)
    HLO_FOREACH(instr, comps.v[i])
      if (gen_needs_kernel(&gen_cpu_target, instr))
        fail_msg("%s in %s is a %s outside a fusion", instr->name, comps.v[i]->name, hlo_opcode_name(instr->op));
  weft_arena_fini(&arena);
}

TEST(a_computation_that_a_kernel_calls_too_is_not_sequential)
{
  static const char *const orders[] = {
    "a = f32[4] map(p), dimensions={0}, to_apply=f\n"
    "ROOT b = f32[] call(q), to_apply=g",
    "b = f32[] call(q), to_apply=g\n"
    "ROOT a = f32[4] map(p), dimensions={0}, to_apply=f",
  };

  for (size_t i = 0; i < WEFT_COUNT(orders); i++) {
    WEFT_AUTO(hlo_module) module = NULL;
    char text[512];
    weft_arena arena;
    pass_comps comps;

    snprintf(text, sizeof text,
             "HloModule m\n"
             "f {\n"
             "  x = f32[] parameter(0)\n"
             "  ROOT y = f32[] negate(x)\n"
             "}\n"
             "g {\n"
             "  x = f32[] parameter(0)\n"
             "  ROOT y = f32[] call(x), to_apply=f\n"
             "}\n"
             "ENTRY e {\n"
             "  p = f32[4] parameter(0)\n"
             "  q = f32[] parameter(1)  %s\n"
             "}\n",
             orders[i]);
    T_OK(hlo_parse(text, strlen(text), &module));
    weft_arena_init(&arena);
    T_OK(pass_sequential(module, &arena, &comps));
    T_EQ_INT(comps.count, 2);
    T_EQ_STR(comps.v[0]->name, "g");
    T_EQ_STR(comps.v[1]->name, "e");
    weft_arena_fini(&arena);
  }
}

static void run_file(const char *path, bool print)
{
  WEFT_AUTO(hlo_module) module = NULL;
  size_t size = 0;
  char *text = read_file(path, &size);
  profile p = {.count = 0};
  int64_t before, kernels = 0, library = 0, total_ns = 0;
  pass_comps comps;
  weft_arena arena;

  T_TRUE(text != NULL);
  T_OK(hlo_parse(text, size, &module));
  free(text);
  T_OK(hlo_verify(module));
  before = instr_count(module);
  T_OK(pass_run(&pass_cpu_pipeline, module, &options, note, &p));
  T_OK(hlo_verify(module));
  check_form(module);
  for (int i = 0; i < p.count; i++) total_ns += p.ns[i];
  weft_arena_init(&arena);
  T_OK(pass_sequential(module, &arena, &comps));
  for (int i = 0; i < comps.count; i++)
    HLO_FOREACH(instr, comps.v[i]) {
      kernels += instr->op == HLO_FUSION;
      library += instr->op != HLO_FUSION && !hlo_opcode_is_alias(instr->op);
    }
  weft_arena_fini(&arena);
  print_message("# %-58s %6" PRId64 " -> %6" PRId64 " instr, %5" PRId64 " fusions, %4" PRId64 " other, %7.1f ms\n",
                strrchr(path, '/') ? strrchr(path, '/') + 1 : path, before, instr_count(module), kernels, library,
                (double)total_ns / 1e6);
  if (print || total_ns > 1500000000)
    for (int i = 0; i < p.count; i++)
      fprintf(stderr, "# %-30s %8.2f ms  changed %d of %d\n", p.name[i], (double)p.ns[i] / 1e6, p.changed[i],
              p.runs[i]);
  if (print) T_OK(hlo_print(module, (hlo_print_options){0}, stdout));
}

TEST(real_programs_go_through_the_pipeline)
{
  char dir[4096], path[8192];
  const char *source = getenv("WEFT_SRCDIR");
  struct dirent **entries;
  int count;

  snprintf(dir, sizeof dir, "%s/../shared/testdata/hlo", source ? source : ".");
  count = scandir(dir, &entries, NULL, alphasort);
  if (count < 0) T_SKIP("no test data at %s", dir);
  for (int i = 0; i < count; i++) {
    size_t length = strlen(entries[i]->d_name);
    if (length > 4 && strcmp(entries[i]->d_name + length - 4, ".hlo") == 0) {
      snprintf(path, sizeof path, "%s/%s", dir, entries[i]->d_name);
      run_file(path, false);
    }
    free(entries[i]);
  }
  free(entries);
}

/* Loops at the limits of what passes assume: a result that only an effect in the body reads, and a trip count of
 * 2^63. */
TEST(loops_at_the_edges)
{
  static const char *const programs[] = {
    /* the token is not read after the loop, the outfeed stays */
    "HloModule m\n"
    "body {\n"
    "  p = (s32[], token[], s32[]) parameter(0)\n"
    "  i = s32[] get-tuple-element(p), index=0\n"
    "  t = token[] get-tuple-element(p), index=1\n"
    "  one = s32[] constant(1)\n"
    "  n = s32[] add(i, one)\n"
    "  o = token[] outfeed(i, t), outfeed_shape=s32[]\n"
    "  ROOT r = (s32[], token[], s32[]) tuple(n, o, i)\n"
    "}\n"
    "cond {\n"
    "  p = (s32[], token[], s32[]) parameter(0)\n"
    "  i = s32[] get-tuple-element(p), index=0\n"
    "  l = s32[] constant(20)\n"
    "  ROOT c = pred[] compare(i, l), direction=LT\n"
    "}\n"
    "ENTRY e {\n"
    "  z = s32[] constant(0)\n"
    "  t = token[] after-all()\n"
    "  s = (s32[], token[], s32[]) tuple(z, t, z)\n"
    "  w = (s32[], token[], s32[]) while(s), condition=cond, body=body\n"
    "  ROOT r = s32[] get-tuple-element(w), index=0\n"
    "}\n",
    /* 2^63 trips downwards: the distance between the bounds has no negative in s64 */
    "HloModule m\n"
    "body {\n"
    "  p = (s64[], f32[]) parameter(0)\n"
    "  i = s64[] get-tuple-element(p), index=0\n"
    "  d = f32[] get-tuple-element(p), index=1\n"
    "  k = s64[] constant(-1)\n"
    "  n = s64[] add(i, k)\n"
    "  e = f32[] add(d, d)\n"
    "  ROOT r = (s64[], f32[]) tuple(n, e)\n"
    "}\n"
    "cond {\n"
    "  p = (s64[], f32[]) parameter(0)\n"
    "  i = s64[] get-tuple-element(p), index=0\n"
    "  l = s64[] constant(-9223372036854775808)\n"
    "  ROOT c = pred[] compare(i, l), direction=NE\n"
    "}\n"
    "ENTRY e {\n"
    "  z = s64[] constant(0)\n"
    "  x = f32[] parameter(0)\n"
    "  s = (s64[], f32[]) tuple(z, x)\n"
    "  w = (s64[], f32[]) while(s), condition=cond, body=body\n"
    "  ROOT r = f32[] get-tuple-element(w), index=1\n"
    "}\n",
  };

  for (size_t i = 0; i < WEFT_COUNT(programs); i++) {
    WEFT_AUTO(hlo_module) module = NULL;
    bool has_loop = false, has_outfeed = false;
    T_OK(hlo_parse(programs[i], strlen(programs[i]), &module));
    T_OK(pass_run(&pass_cpu_pipeline, module, &options, NULL, NULL));
    HLO_FOREACH_COMPUTATION(comp, module)
      HLO_FOREACH(instr, comp) {
        has_loop |= instr->op == HLO_WHILE;
        has_outfeed |= instr->op == HLO_OUTFEED;
      }
    T_TRUE(has_loop);
    T_TRUE(has_outfeed == (i == 0));
  }
}

/* A module of `levels` computations with one body, in which %d stands for the computation below. The last one is the
 * entry. */
static hlo_module *tower(const char *body, int levels)
{
  hlo_module *module;
  char *text;
  size_t size;
  FILE *out = open_memstream(&text, &size);

  fprintf(out, "HloModule m\n"
               "c0 {\n"
               "  p = f32[] parameter(0)\n"
               "  ROOT s = f32[] sine(p)\n"
               "}\n");
  for (int level = 1; level <= levels; level++) {
    fprintf(out, "%sc%d { p = f32[] parameter(0) ", level == levels ? "ENTRY " : "", level);
    fprintf(out, body, level - 1, level - 1);
    fprintf(out, " }\n");
  }
  fclose(out);
  T_OK(hlo_parse(text, size, &module));
  free(text);
  return module;
}

/* Forty levels, each of which calls the level below twice: 2 KB of text, and 2^40 instructions if all calls were
 * inlined. */
TEST(computations_that_double_are_refused)
{
  static const char *const forms[] = {
    "a = f32[] call(p), to_apply=c%d\n"
    "ROOT b = f32[] call(a), to_apply=c%d",
    "a = f32[] map(p), dimensions={}, to_apply=c%d\n"
    "ROOT b = f32[] map(a), dimensions={}, to_apply=c%d",
    "a = f32[] fusion(p), kind=kLoop, calls=c%d\n"
    "ROOT b = f32[] fusion(a), kind=kLoop, calls=c%d",
    "q = pred[] constant(true)\n"
    "ROOT b = f32[] conditional(q, p, p), true_computation=c%d, false_computation=c%d",
  };

  for (size_t form = 0; form < WEFT_COUNT(forms); form++) {
    WEFT_AUTO(hlo_module) module = tower(forms[form], 40);
    WEFT_AUTO(hlo_module) twin = tower(forms[form], 40);
    T_TRUE(!hlo_has_side_effect(module->entry->root));
    T_TRUE(hlo_computation_hash(module->entry) == hlo_computation_hash(twin->entry));
    (void)hlo_computation_equal(module->entry,
                                twin->entry); /* the analysis ends; "no" is the safe answer where it gives up */
    T_FAILS(pass_run(&pass_cpu_pipeline, module, &options, NULL, NULL), "instructions when");
  }
}

/* A callee's memory lies within its caller's frame. The depth is bounded, and the error comes before the work is
 * done. */
TEST(calls_that_nest_deeper_than_a_plan_are_refused)
{
  static const char form[] = "a = f32[] tanh(p)\n"
                             "ROOT b = f32[] call(a), to_apply=c%d, frontend_attributes={inlineable=\"false\"}";
  WEFT_AUTO(hlo_module) deep = tower(form, 300);
  WEFT_AUTO(hlo_module) shallow = tower(form, 200);

  T_FAILS(pass_run(&pass_cpu_pipeline, deep, &options, NULL, NULL), "calls nest deeper than 256");
  T_OK(pass_run(&pass_cpu_pipeline, shallow, &options, NULL, NULL));
}

/* Three levels of 3000 operands each, which share two values: 3000^3 paths lead from the comparison to a parameter. */
TEST(what_is_shared_is_not_looked_at_in_each_way)
{
  WEFT_AUTO(hlo_module) module = NULL;
  char *text;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  long long n = 1;

  fprintf(out, "HloModule m\n"
               "ENTRY e {\n"
               "  a0 = s32[1] parameter(0)\n"
               "  b0 = s32[1] negate(a0)\n");
  for (int level = 1; level <= 3; level++) {
    n *= 3000;
    fprintf(out, "a%d = s32[%lld] concatenate(", level, n);
    for (int i = 0; i < 3000; i++) fprintf(out, "%s%c%d", i ? ", " : "", i % 2 ? 'b' : 'a', level - 1);
    fprintf(out,
            "), dimensions={0}\n"
            "b%d = s32[%lld] negate(a%d)\n",
            level, n, level);
  }
  fprintf(out, "ROOT c = pred[%lld] compare(a3, b3), direction=LT }\n", n);
  fclose(out);
  T_OK(hlo_parse(text, size, &module));
  free(text);
  T_OK(pass_run(&pass_cpu_pipeline, module, &options, NULL, NULL));
}

/* What is inlined is copied once, however deep it lies. */
TEST(computations_that_nest_cost_what_they_hold)
{
  static const char *const forms[] = {
    "a = f32[] tanh(p)\n"
    "ROOT b = f32[] call(a), to_apply=c%d",
    "a = f32[] tanh(p)\n"
    "ROOT b = f32[] map(a), dimensions={}, to_apply=c%d",
    "a = f32[] tanh(p)\n"
    "ROOT b = f32[] fusion(a), kind=kLoop, calls=c%d",
  };
  enum { LEVELS = 2000 };

  for (size_t form = 0; form < WEFT_COUNT(forms); form++) {
    WEFT_AUTO(hlo_module) module = tower(forms[form], LEVELS);
    int before = module->next_id;
    T_OK(pass_run(&pass_cpu_pipeline, module, &options, NULL, NULL));
    T_TRUE(module->next_id < 6 * before);
  }
}

/* Rounds of a cipher are one chain, longer than a kernel may be, whose every value is used twice: cut anywhere, it
 * neither computes much twice nor writes constants to memory. */
TEST(a_long_chain_is_cut_without_repeating_it)
{
  enum { ROUNDS = 60 };
  char *text;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  hlo_module *module;
  int64_t before, after = 0;

  fprintf(out, "e { x.0 = u32[4000] parameter(0)\n"
               " y.0 = u32[4000] parameter(1)\n");
  for (int i = 0; i < ROUNDS; i++)
    fprintf(out,
            " l.%d = u32[] constant(%d)\n"
            " L.%d = u32[4000] broadcast(l.%d), dimensions={}\n"
            " r.%d = u32[] constant(%d)\n"
            " R.%d = u32[4000] broadcast(r.%d), dimensions={}\n"
            " x.%d = u32[4000] add(x.%d, y.%d)\n"
            " a.%d = u32[4000] shift-left(y.%d, L.%d)\n"
            " b.%d = u32[4000] shift-right-logical(y.%d, R.%d)\n"
            " o.%d = u32[4000] or(a.%d, b.%d)\n"
            " y.%d = u32[4000] xor(x.%d, o.%d)\n",
            i, 1 + i % 31, i, i, i, 31 - i % 31, i, i, i + 1, i, i, i, i, i, i, i, i, i, i, i, i + 1, i + 1, i);
  fprintf(out, " ROOT z = u32[4000] add(x.%d, y.%d) }", ROUNDS, ROUNDS);
  fclose(out);
  T_OK(hlo_parse(text, size, &module));
  free(text);
  before = 5 * ROUNDS + 1;
  T_OK(pass_run(&pass_cpu_pipeline, module, &options, NULL, NULL));
  HLO_FOREACH(instr, module->entry) {
    if (instr->op != HLO_FUSION) continue;
    T_TRUE(instr->operand_count > 0);
    HLO_FOREACH(inner, instr->called[0]) after += hlo_opcode_is_elementwise(inner->op);
  }
  T_TRUE(after >= before);
  T_TRUE(after <= before + before / 5);
  hlo_module_free(module);
}

static const char *chosen;
TEST(the_chosen_file) { run_file(chosen, true); }

int main(int argc, char **argv)
{
  const struct CMUnitTest all[] = {UNIT(loops_at_the_edges), UNIT(a_computation_that_a_kernel_calls_too_is_not_sequential),
                                  UNIT(computations_that_double_are_refused),
                                  UNIT(calls_that_nest_deeper_than_a_plan_are_refused), UNIT(computations_that_nest_cost_what_they_hold),
                                  UNIT(what_is_shared_is_not_looked_at_in_each_way),
                                  UNIT(a_long_chain_is_cut_without_repeating_it),
                                  UNIT(real_programs_go_through_the_pipeline)};
  const struct CMUnitTest one[] = {UNIT(the_chosen_file)};

  if (argc < 2) return cmocka_run_group_tests(all, NULL, NULL);
  chosen = argv[1];
  return cmocka_run_group_tests(one, NULL, NULL);
}
