/* tests/codegen/strategy_test.c -- the strategy that each form of fusion gets, that a program's fusions have one
 * after the pipeline, and that code generation obeys the one that is kept on a fusion. */
#include "test.h"

#include <stdlib.h>

#include "codegen/codegen.h"
#include "codegen/model/cost.h"
#include "hlo/text.h"
#include "passes/pass.h"

static hlo_module *parsed(const char *fused, const char *call)
{
  hlo_module *module = NULL;
  char *text;
  size_t size;
  FILE *out = open_memstream(&text, &size);

  T_TRUE(out != NULL);
  fprintf(out,
          "HloModule m\n"
          "add {\n"
          "  a = f32[] parameter(0)\n"
          "  b = f32[] parameter(1)\n"
          "  ROOT c = f32[] add(a, b)\n"
          "}\n"
          "last {\n"
          "  a = f32[] parameter(0)\n"
          "  ROOT b = f32[] parameter(1)\n"
          "}\n"
          "ge {\n"
          "  a = f32[] parameter(0)\n"
          "  b = f32[] parameter(1)\n"
          "  ROOT c = pred[] compare(a, b), direction=GE\n"
          "}\n"
          "%s\n"
          "ENTRY e { %s }\n",
          fused, call);
  fclose(out);
  T_OK(hlo_parse(text, size, &module));
  free(text);
  return module;
}

static gen_strategy decided(const char *fused, const char *call)
{
  WEFT_AUTO(hlo_module) module = parsed(fused, call);
  gen_strategy strategy = GEN_STRATEGY_UNDECIDED;
  weft_arena arena;

  weft_arena_init(&arena);
  T_OK(gen_decide(&gen_cpu_target, &arena, module->entry->root, &strategy));
  weft_arena_fini(&arena);
  return strategy;
}

#define CALL_X(result, kind) \
  "x = f32[64,128] parameter(0)\n" \
  "ROOT r = " result " fusion(x), kind=" kind ", calls=f"
static const struct { gen_strategy want; const char *fused, *call; } forms[] = {
  {GEN_STRATEGY_LOOP,
   "f {\n"
   "  x = f32[64,128] parameter(0)\n"
   "  ROOT r = f32[64,128] exponential(x)\n"
   "}", CALL_X("f32[64,128]", "kLoop")},
  {GEN_STRATEGY_ROWS,
   "f {\n"
   "  x = f32[64,128] parameter(0)\n"
   "  z = f32[] constant(0)\n"
   "  ROOT r = f32[64] reduce(x, z), dimensions={1}, to_apply=add\n"
   "}",
   CALL_X("f32[64]", "kInput")},
  {GEN_STRATEGY_ROWS, /* a softmax's denominator, spread to its rows again */
   "f {\n"
   "  x = f32[64,128] parameter(0)\n"
   "  e = f32[64,128] exponential(x)\n"
   "  z = f32[] constant(0)\n"
   "  s = f32[64] reduce(e, z), dimensions={1}, to_apply=add\n"
   "  b = f32[64,128] broadcast(s), dimensions={0}\n"
   "  ROOT r = f32[64,128] divide(e, b)\n"
   "}", CALL_X("f32[64,128]", "kLoop")},
  {GEN_STRATEGY_LOOP, /* the sums of rows are spread over the columns of another row: no row form */
   "f {\n"
   "  x = f32[128,128] parameter(0)\n"
   "  z = f32[] constant(0)\n"
   "  s = f32[128] reduce(x, z), dimensions={1}, to_apply=add\n"
   "  b = f32[128,128] broadcast(s), dimensions={1}\n"
   "  ROOT r = f32[128,128] divide(x, b)\n"
   "}",
   "x = f32[128,128] parameter(0)\n"
   "ROOT r = f32[128,128] fusion(x), kind=kLoop, calls=f"},
  {GEN_STRATEGY_COLUMNS,
   "f {\n"
   "  x = f32[64,128] parameter(0)\n"
   "  z = f32[] constant(0)\n"
   "  ROOT r = f32[128] reduce(x, z), dimensions={0}, to_apply=add\n"
   "}",
   CALL_X("f32[128]", "kInput")},
  {GEN_STRATEGY_COLUMNS, /* few columns and many rows */
   "f {\n"
   "  x = f32[64,3] parameter(0)\n"
   "  z = f32[] constant(0)\n"
   "  ROOT r = f32[3] reduce(x, z), dimensions={0}, to_apply=add\n"
   "}",
   "x = f32[64,3] parameter(0)\n"
   "ROOT r = f32[3] fusion(x), kind=kInput, calls=f"},
  {GEN_STRATEGY_LOOP, /* few columns and few rows */
   "f {\n"
   "  x = f32[20,3] parameter(0)\n"
   "  z = f32[] constant(0)\n"
   "  ROOT r = f32[3] reduce(x, z), dimensions={0}, to_apply=add\n"
   "}",
   "x = f32[20,3] parameter(0)\n"
   "ROOT r = f32[3] fusion(x), kind=kInput, calls=f"},
  {GEN_STRATEGY_TURN,
   "f {\n"
   "  x = f32[64,128] parameter(0)\n"
   "  t = f32[128,64] transpose(x), dimensions={1,0}\n"
   "  ROOT r = f32[128,64] negate(t)\n"
   "}",
   CALL_X("f32[128,64]", "kLoop")},
  {GEN_STRATEGY_SCATTER,
   "f {\n"
   "  x = f32[64,128] parameter(0)\n"
   "  i = s32[2,1] parameter(1)\n"
   "  u = f32[2,128] parameter(2)\n"
   "  ROOT r = f32[64,128] scatter(x, i, u), update_window_dims={1}, "
   "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=last\n"
   "}",
   "x = f32[64,128] parameter(0)\n"
   "i = s32[2,1] parameter(1)\n"
   "u = f32[2,128] parameter(2)\n"
   "ROOT r = f32[64,128] fusion(x, i, u), kind=kCustom, calls=f"},
  {GEN_STRATEGY_UPDATE,
   "f {\n"
   "  x = f32[64,128] parameter(0)\n"
   "  u = f32[1,128] parameter(1)\n"
   "  z = s32[] constant(0)\n"
   "  ROOT r = f32[64,128] dynamic-update-slice(x, u, z, z)\n"
   "}",
   "x = f32[64,128] parameter(0)\n"
   "u = f32[1,128] parameter(1)\n"
   "ROOT r = f32[64,128] fusion(x, u), kind=kCustom, calls=f, output_to_operand_aliasing={{}: (0, {})}"},
  {GEN_STRATEGY_LOOP, /* without an alias the whole result is made */
   "f {\n"
   "  x = f32[64,128] parameter(0)\n"
   "  u = f32[1,128] parameter(1)\n"
   "  z = s32[] constant(0)\n"
   "  ROOT r = f32[64,128] dynamic-update-slice(x, u, z, z)\n"
   "}",
   "x = f32[64,128] parameter(0)\n"
   "u = f32[1,128] parameter(1)\n"
   "ROOT r = f32[64,128] fusion(x, u), kind=kLoop, calls=f"},
  {GEN_STRATEGY_PICK,
   "f {\n"
   "  x = f32[64,128] parameter(0)\n"
   "  u = f32[32,64] parameter(1)\n"
   "  z = f32[] constant(0)\n"
   "  ROOT r = f32[64,128] select-and-scatter(x, u, z), window={size=2x2 stride=2x2}, select=ge, scatter=add\n"
   "}",
   "x = f32[64,128] parameter(0)\n"
   "u = f32[32,64] parameter(1)\n"
   "ROOT r = f32[64,128] fusion(x, u), kind=kInput, calls=f"},
  {GEN_STRATEGY_SMALL_LOOP,
   "body {\n"
   "  s = (s32[]) parameter(0)\n"
   "  i = s32[] get-tuple-element(s), index=0\n"
   "  one = s32[] constant(1)\n"
   "  n = s32[] add(i, one)\n"
   "  ROOT t = (s32[]) tuple(n)\n"
   "}\n"
   "cond {\n"
   "  s = (s32[]) parameter(0)\n"
   "  i = s32[] get-tuple-element(s), index=0\n"
   "  ten = s32[] constant(10)\n"
   "  ROOT c = pred[] compare(i, ten), direction=LT\n"
   "}\n"
   "f {\n"
   "  i = s32[] parameter(0)\n"
   "  t = (s32[]) tuple(i)\n"
   "  w = (s32[]) while(t), condition=cond, body=body\n"
   "  ROOT r = s32[] get-tuple-element(w), index=0\n"
   "}",
   "i = s32[] parameter(0)\n"
   "ROOT r = s32[] fusion(i), kind=kCustom, calls=f"},
  {GEN_STRATEGY_REGION,
   "f {\n"
   "  x = f32[64,128] parameter(0)\n"
   "  ROOT r = f32[64,128] copy(x)\n"
   "}",
   CALL_X("f32[64,128]", "kCustom") ", backend_config=\"region\""},
};

TEST(each_form_has_its_strategy)
{
  for (size_t i = 0; i < WEFT_COUNT(forms); i++) {
    gen_strategy got = decided(forms[i].fused, forms[i].call);
    if (got != forms[i].want)
      fail_msg("%s, want %s: %s", gen_strategy_name(got), gen_strategy_name(forms[i].want), forms[i].fused);
  }
}

TEST(the_pipeline_leaves_no_fusion_undecided)
{
  WEFT_AUTO(hlo_module)
  module = parsed("", "x = f32[64,128] parameter(0)\n"
                      "e = f32[64,128] exponential(x)\n"
                      "z = f32[] constant(0)\n"
                      "s = f32[64] reduce(e, z), dimensions={1}, to_apply=add\n"
                      "c = f32[128] reduce(e, z), dimensions={0}, to_apply=add\n"
                      "ROOT t = (f32[64], f32[128]) tuple(s, c)");
  const pass_options options = {.num_threads = 1};
  int fusions = 0;

  T_OK(pass_run(&pass_cpu_pipeline, module, &options, NULL, NULL));
  HLO_FOREACH_COMPUTATION(comp, module)
    HLO_FOREACH(x, comp) {
      if (x->op != HLO_FUSION) continue;
      fusions++;
      T_TRUE(x->u.fusion.strategy != GEN_STRATEGY_UNDECIDED);
    }
  T_TRUE(fusions >= 2);
}

/* The kernel of `call` when its fusion says `kept`. */
static weft_status *compile_as(gen_strategy kept, gen_strategy *out)
{
  WEFT_AUTO(hlo_module) module = parsed(forms[1].fused, forms[1].call);
  WEFT_AUTO(gen_code) code = NULL;
  const gen_options options = {.threads = 1};

  module->entry->root->u.fusion.strategy = (int)kept;
  WEFT_TRY(gen_compile(module, &options, &code));
  *out = gen_code_kernel(code, module->entry->root)->strategy;
  return NULL;
}

TEST(code_generation_obeys_what_is_kept_on_the_fusion)
{
  gen_strategy got = GEN_STRATEGY_UNDECIDED;

  T_OK(compile_as(GEN_STRATEGY_UNDECIDED, &got));
  T_EQ_INT(got, GEN_STRATEGY_ROWS);
  T_OK(compile_as(GEN_STRATEGY_LOOP, &got)); /* any form can be made by loops */
  T_EQ_INT(got, GEN_STRATEGY_LOOP);
  weft_status *st = compile_as(GEN_STRATEGY_COLUMNS, &got);
  T_EQ_INT(weft_status_code(st), WEFT_INTERNAL);
  T_TRUE(strstr(weft_status_message(st), "columns") != NULL);
  weft_status_ignore(st);
}

static double convolution_ns(const char *input, const char *kernel, int groups)
{
  WEFT_AUTO(hlo_module) module = NULL;
  char text[512];

  snprintf(
    text, sizeof text,
    "HloModule m\n"
    "ENTRY e {\n"
    "  x = bf16[%s] parameter(0)\n"
    "  k = bf16[%s] parameter(1)\n"
    "  ROOT y = bf16[%s] convolution(x, k), window={size=5x5 pad=2_2x2_2}, dim_labels=bf01_oi01->bf01, feature_group_count=%d\n"
    "}\n",
    input, kernel, input, groups);
  T_OK(hlo_parse(text, strlen(text), &module));
  return gen_library_ns(&gen_cpu_target, module->entry->root);
}

/* Groups of single features take several times as long as a product of matrices with as many operations. So they are
 * worth the work of several threads from fewer operations on. */
TEST(convolutions_of_single_features_cost_more_than_products)
{
  double depthwise = convolution_ns("1,672,14,14", "672,1,5,5", 672),
         product = convolution_ns("1,26,14,14", "26,26,5,5", 1);
  T_TRUE(depthwise > 200e3 && depthwise < 500e3);
  T_TRUE(product < depthwise / 3);
}

TEST_MAIN(UNIT(convolutions_of_single_features_cost_more_than_products), UNIT(each_form_has_its_strategy), UNIT(the_pipeline_leaves_no_fusion_undecided),
          UNIT(code_generation_obeys_what_is_kept_on_the_fusion))
