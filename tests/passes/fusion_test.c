/* tests/passes/fusion_test.c -- Limits of the fusion pass: code must not grow with the number of paths between two
 * values, and a result must not alias a parameter of another shape. */
#include "test.h"

#include "hlo/infer.h"
#include "hlo/text.h"
#include "passes/fusion.h"
#include "passes/passes.h"
#include "passes/util.h"

enum { LEVELS = 24, MOST_EMISSIONS = 512, SIZE = 40 };

/* Each level reads the previous level at its own index and at the next one: 2^LEVELS paths lead from the root to the
 * parameter. */
static char *pyramid(size_t *size)
{
  char *text;
  FILE *out = open_memstream(&text, size);

  T_TRUE(out != NULL);
  fprintf(out,
          "HloModule pyramid\n"
          "ENTRY e {\n"
          "  z = f32[] constant(0)\n"
          "  x0 = f32[%d] parameter(0)\n",
          SIZE);
  for (int i = 0; i < LEVELS; i++)
    fprintf(out,
            "  n%d = f32[%d] negate(x%d)\n"
            "  a%d = f32[%d] abs(x%d)\n"
            "  s%d = f32[%d] slice(a%d), slice={[0:%d]}\n"
            "  p%d = f32[%d] pad(s%d, z), padding=1_0\n"
            "  x%d = f32[%d] add(n%d, p%d)\n",
            i, SIZE, i, i, SIZE, i, i, SIZE - 1, i, SIZE - 1, i, SIZE, i, i + 1, SIZE, i, i);
  fprintf(out,
          "  ROOT r = f32[%d] negate(x%d)\n"
          "}\n",
          SIZE, LEVELS);
  fclose(out);
  return text;
}

/* How often a kernel of `body` computes its instructions: once for each path. */
static double emissions(const hlo_computation *body, weft_arena *arena)
{
  pass_map ways = {.arena = arena};
  double sum = 0;

  for (const hlo_instr *instr = body->last; instr; instr = instr->prev) {
    double *mine = WEFT_ARENA_NEW(arena, double);
    *mine = instr == body->root;
    for (int i = 0; i < instr->user_count; i++) *mine += *(const double *)pass_map_get(&ways, instr->users[i]->id);
    sum += *mine;
    T_OK(pass_map_set(&ways, instr->id, mine));
  }
  return sum;
}

TEST(pyramids_of_pads_are_not_emitted_once_for_each_way)
{
  WEFT_AUTO(hlo_module) module = NULL;
  const struct pass_entry entry = {.pass = &pass_fusion};
  const pass_pipeline pipeline = {"fusion", &entry, 1, 1};
  const pass_options options = {.num_threads = 2};
  weft_arena arena;
  size_t size;
  char *text = pyramid(&size);
  int fusions = 0;

  weft_arena_init(&arena);
  T_OK(hlo_parse(text, size, &module));
  T_OK(pass_run(&pipeline, module, &options, NULL, NULL));
  HLO_FOREACH(instr, module->entry) {
    if (instr->op != HLO_FUSION) continue;
    double count = emissions(instr->called[0], &arena);
    if (count > MOST_EMISSIONS) fail_msg("%s: %.0f emissions", instr->name, count);
    fusions++;
  }
  T_TRUE(fusions >= 2 && fusions < LEVELS);
  weft_arena_fini(&arena);
  free(text);
}

/* The module is valid only if an alias joins equal shapes.  (tests/codegen/random_test, exact kernel 4774) */
TEST(a_result_shares_a_parameter_of_its_own_shape_only)
{
  static const struct { const char *shape; int aliases; } params[] = {{"f16[2]", 0}, {"f16[1,2]", 1}};

  for (size_t i = 0; i < WEFT_COUNT(params); i++) {
    WEFT_AUTO(hlo_module) module = NULL;
    char text[1024];

    snprintf(text, sizeof text,
             "HloModule m\n"
             "fused {\n"
             "  p = %s parameter(0)\n"
             "  u = f16[1,1] parameter(1)\n"
             "  z = s32[] constant(0)\n"
             "  q = f16[2] reshape(p)\n"
             "  r = f16[1,2] reshape(q)\n"
             "  ROOT d = f16[1,2] dynamic-update-slice(r, u, z, z)\n"
             "}\n"
             "ENTRY e {\n"
             "  x = %s parameter(0)\n"
             "  v = f16[1,1] parameter(1)\n"
             "  ROOT f = f16[1,2] fusion(x, v), kind=kLoop, calls=fused\n"
             "}\n",
             params[i].shape, params[i].shape);
    T_OK(hlo_parse(text, strlen(text), &module));
    T_OK(pass_fusion_classify(module->entry->root, NULL));
    T_OK(hlo_verify(module));
    T_EQ_INT(module->entry->root->u.fusion.alias_count, params[i].aliases);
  }
}

/* Interpolation in a volume: eight gathers of single elements, whose indices are the two neighbours in each dimension.
 * All gathers ask for the indices at one place, so that one kernel computes everything. */
TEST(gathers_share_the_indices_that_they_are_computed_from)
{
  WEFT_AUTO(hlo_module) module = NULL;
  const struct pass_entry entry = {.pass = &pass_fusion};
  const pass_pipeline pipeline = {"fusion", &entry, 1, 1};
  const pass_options options = {.num_threads = 2};
  char *text;
  size_t size;
  int fusions = 0;
  FILE *out = open_memstream(&text, &size);

  T_TRUE(out != NULL);
  fprintf(out, "HloModule m\n"
               "ENTRY e {\n"
               "  v = f32[9,9,9] parameter(0)\n"
               "  one = s32[] constant(1)\n"
               "  ones = s32[500] broadcast(one), dimensions={}\n"
               "  most = s32[] constant(8)\n"
               "  mosts = s32[500] broadcast(most), dimensions={}\n");
  for (int d = 0; d < 3; d++)
    fprintf(out,
            "  x%d = f32[500] parameter(%d)\n"
            "  f%d = f32[500] floor(x%d)\n"
            "  c%d = s32[500] convert(f%d)\n"
            "  a%d = s32[500] add(c%d, ones)\n"
            "  l%d = s32[500] minimum(c%d, mosts)\n"
            "  h%d = s32[500] minimum(a%d, mosts)\n"
            "  i%d_0 = s32[500,1] reshape(l%d)\n"
            "  i%d_1 = s32[500,1] reshape(h%d)\n",
            d, d + 1, d, d, d, d, d, d, d, d, d, d, d, d, d, d);
  for (int k = 0; k < 8; k++) {
    fprintf(out,
            "  j%d = s32[500,3] concatenate(i0_%d, i1_%d, i2_%d), dimensions={1}\n"
            "  g%d = f32[500] gather(v, j%d), offset_dims={}, collapsed_slice_dims={0,1,2}, start_index_map={0,1,2}, "
            "index_vector_dim=1, slice_sizes={1,1,1}\n",
            k, k / 4, k / 2 % 2, k % 2, k, k);
    if (k == 0) fprintf(out, "  s0 = f32[500] negate(g0)\n");
    else fprintf(out, "  %ss%d = f32[500] add(s%d, g%d)\n", k == 7 ? "ROOT " : "", k, k - 1, k);
  }
  fprintf(out, "}\n");
  fclose(out);
  T_OK(hlo_parse(text, size, &module));
  T_OK(pass_run(&pipeline, module, &options, NULL, NULL));
  HLO_FOREACH(instr, module->entry) fusions += instr->op == HLO_FUSION;
  T_EQ_INT(fusions, 1);
  free(text);
}

TEST_MAIN(UNIT(gathers_share_the_indices_that_they_are_computed_from), UNIT(pyramids_of_pads_are_not_emitted_once_for_each_way), UNIT(a_result_shares_a_parameter_of_its_own_shape_only))
