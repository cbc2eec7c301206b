/* tests/gpu/dnn_test.c -- convolutions on the emulated cuDNN: random ones of every form give the evaluator's results
 * after conv-canonicalizer, products and both gradients go to the library's own functions, and what the library does
 * not have is refused by name. */
#include "library_device.h"

#include "gpu/dnn.h"
#include "hlo/infer.h"
#include "hlo/text.h"
#include "passes/eval_compare.h"
#include "passes/passes.h"

static gpu_dnn *dnn;

/* ---- random convolutions ---- */

static int64_t pick(uint64_t *seed, int64_t from, int64_t to)
{
  return from + (int64_t)(next_random(seed) % (uint64_t)(to - from + 1));
}

/* The labels of an array in a random order, such as "b01f"; size[i] of label i (0 and 1 the letters, then spatial). */
static void label(char *text, char *shape, const char *letters, const int64_t *size, int spatial, uint64_t *seed)
{
  int order[PASS_CONV_SPATIAL + 2], count = spatial + 2;

  for (int i = 0; i < count; i++) order[i] = i;
  for (int i = count - 1; i > 0; i--) {
    int other = (int)pick(seed, 0, i), t = order[i];
    order[i] = order[other], order[other] = t;
  }
  for (int i = 0; i < count; i++) {
    text += sprintf(text, "%c", order[i] < 2 ? letters[order[i]] : '0' + order[i] - 2);
    shape += sprintf(shape, "%s%" PRId64, i ? "," : "", size[order[i]]);
  }
}

typedef struct window { char text[600]; int64_t in[5], kernel[5], out[5]; } window;

/* Sizes and the window of a random convolution: now and then with base dilation
 * or a large window, as gradients have. */
static void random_window(window *w, int spatial, int64_t groups, uint64_t *seed)
{
  char sizes[64] = "", strides[64] = "", pads[96] = "", bases[64] = "", dilations[64] = "", reversals[64] = "";
  int kind = (int)pick(seed, 0, 3);
  bool reversed = pick(seed, 0, 3) == 0;

  w->in[0] = w->out[0] = pick(seed, 1, 3);
  w->kernel[0] = pick(seed, 1, 3);
  w->in[1] = w->kernel[0] * groups;
  w->kernel[1] = w->out[1] = pick(seed, 1, 3) * groups;
  for (int i = 0; i < spatial; i++) {
    int64_t size = kind == 1 ? pick(seed, 3, 6) : pick(seed, 1, 3), stride = kind == 2 ? 1 : pick(seed, 1, 2);
    int64_t base = kind == 2 ? pick(seed, 1, 3) : 1, dilation = pick(seed, 1, 2);
    int64_t low = pick(seed, -1, 2), high = pick(seed, 0, 1) ? low : pick(seed, -1, 2);
    int64_t in = pick(seed, 2, 7), room;
    if (kind == 2 && !reversed) { /* the padding of a gradient */
      low = (size - 1) * dilation - pick(seed, 0, size > 1);
      high = low + pick(seed, 0, base - 1);
    }
    while ((room = (in - 1) * base + 1 + low + high - ((size - 1) * dilation + 1)) < 0) in++;
    w->in[2 + i] = in, w->kernel[2 + i] = size, w->out[2 + i] = room / stride + 1;
    const char *x = i ? "x" : "";
    sprintf(sizes + strlen(sizes), "%s%" PRId64, x, size);
    sprintf(strides + strlen(strides), "%s%" PRId64, x, stride);
    sprintf(pads + strlen(pads), "%s%" PRId64 "_%" PRId64, x, low, high);
    sprintf(bases + strlen(bases), "%s%" PRId64, x, base);
    sprintf(dilations + strlen(dilations), "%s%" PRId64, x, dilation);
    sprintf(reversals + strlen(reversals), "%s%d", x, reversed);
  }
  *w->text = 0;
  if (spatial)
    snprintf(w->text, sizeof w->text, "window={size=%s stride=%s pad=%s lhs_dilate=%s rhs_dilate=%s rhs_reversal=%s}, ",
             sizes, strides, pads, bases, dilations, reversals);
}

static hlo_module *random_module(const char *type, uint64_t *seed)
{
  int spatial = (int)pick(seed, 0, PASS_CONV_SPATIAL);
  int64_t groups = pick(seed, 0, 3) ? 1 : 2;
  char text[2000], labels[3][16], shapes[3][64];
  hlo_module *module;
  window w;

  random_window(&w, spatial, groups, seed);
  label(labels[0], shapes[0], "bf", w.in, spatial, seed);
  label(labels[1], shapes[1], "io", w.kernel, spatial, seed);
  label(labels[2], shapes[2], "bf", w.out, spatial, seed);
  snprintf(text, sizeof text,
           "HloModule m\n"
           "ENTRY e {\n"
           "  a = %s[%s] parameter(0)\n"
           "  b = %s[%s] parameter(1)\n"
           "  ROOT c = %s[%s] convolution(a, b), %sdim_labels=%s_%s->%s, feature_group_count=%" PRId64 "\n"
           "}\n",
           type, shapes[0], type, shapes[1], type, shapes[2], w.text, labels[0], labels[1], labels[2], groups);
  weft_status *st = hlo_parse(text, strlen(text), &module);
  if (st) fail_msg("%s\n%s", weft_status_text(st, false), text);
  T_OK(hlo_verify(module));
  return module;
}

static void bring_in_form(hlo_module *module)
{
  const struct pass_entry entry = {.pass = &pass_conv_canonicalizer};
  const pass_pipeline pipeline = {"test", &entry, 1, 1};

  T_OK(pass_run(&pipeline, module, &(pass_options){.num_threads = 1}, NULL, NULL));
  T_OK(hlo_verify(module));
}

/* ---- running ---- */

static const hlo_literal *convolve(const hlo_instr *instr, const hlo_literal *const *operands, weft_arena *arena,
                                   pass_conv_kind *kind)
{
  WEFT_AUTO(gpu_conv) conv = NULL;
  pass_conv c;

  T_OK(gpu_conv_new(instr, dnn, false, 1 << 20, &conv));
  T_TRUE(pass_conv_read(instr, &c));
  *kind = c.kind;
  wcu_ptr at[4] = {literal_on_device(operands[0]), literal_on_device(operands[1]), on_device(NULL, (size_t)hlo_shape_bytes(instr->shape)),
                   on_device(NULL, gpu_conv_workspace(conv))};
  T_OK(gpu_conv_enqueue(conv, dnn, stream, at[0], at[1], at[2], at[3]));
  const hlo_literal *got = from_device(arena, instr->shape, at[2]);
  free_device(4, at);
  return got;
}

/* Evaluates the entry computation, its convolution on the device. */
static const hlo_literal *run(const hlo_module *module, const hlo_literal *const *arguments, weft_arena *arena,
                              pass_conv_kind *kind)
{
  const hlo_literal *values[32], *operands[3];
  const hlo_instr *instrs[32];
  int count = 0;

  HLO_FOREACH(instr, module->entry) {
    T_TRUE(count < 32);
    for (int i = 0; i < instr->operand_count; i++)
      for (int v = 0; v < count; v++)
        if (instrs[v] == instr->operands[i]) operands[i] = values[v];
    instrs[count] = instr;
    if (instr->op == HLO_PARAMETER) values[count] = arguments[instr->u.parameter_number];
    else if (instr->op == HLO_CONVOLUTION) values[count] = convolve(instr, operands, arena, kind);
    else T_OK(hlo_eval_instr(instr, operands, &HLO_EVAL_DEFAULT, arena, &values[count]));
    if (instr == module->entry->root) return values[count];
    count++;
  }
  fail_msg("no root");
  return NULL;
}

TEST(random_convolutions_give_the_evaluators_results)
{
  static const struct { const char *type; double slack; } types[] = {{"f32", 1e-5}, {"f64", 1e-12}, {"f16", 2e-3}, {"bf16", 2e-2}};
  uint64_t seed = 1;
  int kinds[3] = {0};

  for (int round = 0; round < 400; round++) {
    hlo_module *module = random_module(types[round % 4].type, &seed);
    const hlo_literal *arguments[2], *want, *got;
    pass_conv_kind kind;
    weft_arena arena;

    weft_arena_init(&arena);
    for (int i = 0; i < 2; i++) arguments[i] = random_literal(&arena, module->entry->params[i]->shape, &seed);
    T_OK(hlo_eval_module(module, arguments, &HLO_EVAL_DEFAULT, &arena, &want));
    bring_in_form(module);
    got = run(module, arguments, &arena, &kind);
    kinds[kind]++;
    if (!literals_within(got, want, "convolution", types[round % 4].slack)) {
      char *text = NULL;
      size_t size;
      T_OK(hlo_print_to_string(module, HLO_PRINT_DEFAULT, &text, &size));
      fail_msg("round %d: %s", round, text);
    }
    weft_arena_fini(&arena);
    hlo_module_free(module);
  }
  print_message("# %d products, %d gradients of inputs, %d of filters\n", kinds[0], kinds[1], kinds[2]);
  for (int i = 0; i < 3; i++) T_TRUE(kinds[i] >= 30);
}

/* The gradient of a transposed convolution's filter, as JAX writes it: the lhs has base dilation and the window is the
 * gradient of the output.  It is one call of the library's gradient of a filter, also where the padding of both sides
 * differs, where the result has a stride, and where the labels have another order. */
TEST(gradients_of_transposed_filters_are_gradients_of_filters)
{
  static const struct { const char *lhs, *rhs, *out, *window, *labels; pass_conv_kind kind; } cases[] = {
    {"6,7,7,2", "6,14,14,3", "2,4,4,3", "size=14x14 pad=2_2x2_2 lhs_dilate=2x2", "f01b_i01o->b01f", PASS_CONV_FILTER},
    {"6,7,7,2", "6,14,14,3", "2,3,3,3", "size=14x14 pad=2_1x2_1 lhs_dilate=2x2", "f01b_i01o->b01f", PASS_CONV_FILTER},
    {"6,7,5,2", "6,14,15,3", "3,2,3,4", "size=14x15 pad=1_2x2_3 lhs_dilate=2x3", "f01b_i01o->fb01", PASS_CONV_FILTER},
    {"2,4,9", "4,3,17", "2,3,2", "size=17 stride=2 pad=1_1 lhs_dilate=2", "bf0_io0->bf0", PASS_CONV_FILTER},
    {"4,2,5,5,5", "9,9,9,4,3", "3,2,2,2,2", "size=9x9x9 pad=0_1x1_0x1_0 lhs_dilate=2x2x2", "fb012_012io->fb012",
     PASS_CONV_FILTER},
    {"6,7,7,2", "6,11,11,3", "2,1,1,3", "size=11x11 pad=-1_-1x-1_-1 lhs_dilate=2x2", "f01b_i01o->b01f",
     PASS_CONV_FILTER},
    /* the gradient of an input by a small filter stays what it is */
    {"2,4,4,6", "6,3,3,3", "2,8,8,3", "size=3x3 pad=1_2x1_2 lhs_dilate=2x2", "b01f_i01o->b01f", PASS_CONV_DATA},
  };
  uint64_t seed = 7;

  for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
    const hlo_literal *arguments[2], *want, *got;
    pass_conv_kind kind;
    hlo_module *module;
    weft_arena arena;
    char text[1000];

    snprintf(text, sizeof text,
             "HloModule m\n"
             "ENTRY e {\n"
             "  a = f32[%s] parameter(0)\n"
             "  b = f32[%s] parameter(1)\n"
             "  ROOT c = f32[%s] convolution(a, b), window={%s}, dim_labels=%s\n"
             "}\n",
             cases[i].lhs, cases[i].rhs, cases[i].out, cases[i].window, cases[i].labels);
    weft_status *st = hlo_parse(text, strlen(text), &module);
    if (st) fail_msg("%s\n%s", weft_status_text(st, false), text);
    T_OK(hlo_verify(module));
    weft_arena_init(&arena);
    for (int p = 0; p < 2; p++) arguments[p] = random_literal(&arena, module->entry->params[p]->shape, &seed);
    T_OK(hlo_eval_module(module, arguments, &HLO_EVAL_DEFAULT, &arena, &want));
    bring_in_form(module);
    got = run(module, arguments, &arena, &kind);
    T_EQ_INT(kind, cases[i].kind);
    if (!literals_within(got, want, "convolution", 1e-5)) fail_msg("%s", text);
    weft_arena_fini(&arena);
    hlo_module_free(module);
  }
}

/* ---- refusals ---- */

static const hlo_instr *parse(const char *text, hlo_module **module)
{
  T_OK(hlo_parse(text, strlen(text), module));
  T_OK(hlo_verify(*module));
  return (*module)->entry->root;
}

TEST(convolutions_that_the_library_does_not_have_are_refused)
{
  static const struct { const char *text, *words; } cases[] = {
    {"HloModule m\n"
     "ENTRY e {\n"
     "  a = s32[1,1,4,4] parameter(0)\n"
     "  b = s32[1,1,2,2] parameter(1)\n"
     "  ROOT c = s32[1,1,3,3] convolution(a, b), window={size=2x2}, dim_labels=bf01_oi01->bf01\n"
     "}\n",
     "convolution of s32"},
    {"HloModule m\n"
     "ENTRY e {\n"
     "  a = f32[2,1,4,4] parameter(0)\n"
     "  b = f32[2,1,2,2] parameter(1)\n"
     "  ROOT c = f32[1,2,3,3] convolution(a, b), window={size=2x2}, dim_labels=bf01_oi01->bf01, batch_group_count=2\n"
     "}\n",
     "order of cuDNN"},
    {"HloModule m\n"
     "ENTRY e {\n"
     "  a = f32[1,1,4,4] parameter(0)\n"
     "  b = f32[1,1,2,2] parameter(1)\n"
     "  ROOT c = f32[1,1,3,3] convolution(a, b), window={size=2x2 rhs_reversal=1x0}, dim_labels=bf01_oi01->bf01\n"
     "}\n",
     "window or groups"},
    {"HloModule m\n"
     "ENTRY e {\n"
     "  a = f32[1,1,4,4] parameter(0)\n"
     "  b = f32[2,2,1,1] parameter(1)\n"
     "  ROOT c = f32[1,1,3,3] convolution(a, b), window={size=2x2}, dim_labels=bf01_01io->bf01\n"
     "}\n",
     "order of cuDNN"},
  };
  gpu_conv *conv;

  for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
    hlo_module *module;
    weft_status *st = gpu_conv_new(parse(cases[i].text, &module), dnn, false, 1 << 20, &conv);
    T_EQ_INT(weft_status_code(st), WEFT_UNIMPLEMENTED);
    T_FAILS(st, cases[i].words);
    hlo_module_free(module);
  }
}

static const char plain[] = "HloModule m\n"
                            "ENTRY e {\n"
                            "  a = f32[1,1,4,4] parameter(0)\n"
                            "  b = f32[1,1,2,2] parameter(1)\n"
                            "  ROOT c = f32[1,1,3,3] convolution(a, b), window={size=2x2}, dim_labels=bf01_oi01->bf01\n"
                            "}\n";

TEST(errors_of_calls_keep_their_meaning)
{
  hlo_module *module;
  const hlo_instr *instr = parse(plain, &module);
  gpu_conv *conv;
  gpu_dnn *second;

  T_FAILS(gpu_conv_new(instr, dnn, false, 100, &conv),
          "none of 2 algorithms of cuDNN is deterministic and fits 100 bytes");
  set_faults("cudnnCreate:1=1001,cudnnCreate:2=4004,cudnnSetTensorNdDescriptor:2=3000");
  T_CODE(gpu_dnn_new(&second), WEFT_UNAVAILABLE);
  T_CODE(gpu_dnn_new(&second), WEFT_RESOURCE_EXHAUSTED);
  T_CODE(gpu_conv_new(instr, dnn, false, 1 << 20, &conv), WEFT_UNIMPLEMENTED);
  set_faults(NULL);
  T_OK(gpu_conv_new(instr, dnn, false, 1 << 20, &conv));
  wcu_ptr memory = on_device(NULL, 8192);
  T_OK(gpu_conv_enqueue(conv, dnn, stream, memory, memory + 1024, memory + 2048, memory + 4096));
  T_FAILS(gpu_conv_enqueue(conv, dnn, stream, memory + 4, memory + 1024, memory + 2048, memory + 4096), "MISALIGNED");
  CU(cuStreamSynchronize(stream));
  free_device(1, &memory);
  gpu_conv_free(conv);
  hlo_module_free(module);
}

static int set_up(void **state)
{
  (void)state;
  open_device();
  T_OK(gpu_dnn_new(&dnn));
  return 0;
}

static int tear_down(void **state)
{
  (void)state;
  gpu_dnn_free(dnn);
  close_device();
  return 0;
}

int main(void)
{
  const struct CMUnitTest units[] = {UNIT(random_convolutions_give_the_evaluators_results),
                                     UNIT(gradients_of_transposed_filters_are_gradients_of_filters),
                                     UNIT(convolutions_that_the_library_does_not_have_are_refused),
                                     UNIT(errors_of_calls_keep_their_meaning)};
  return cmocka_run_group_tests(units, set_up, tear_down);
}
