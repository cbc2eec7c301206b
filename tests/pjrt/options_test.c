/* tests/pjrt/options_test.c -- CompileOptionsProto: XLA's options for graphs.  The numbers of fields and kinds, and the
 * defaults, are what jaxlib 0.10.2 sends. */
#include "test.h"

#include "pjrt/compile.pb-c.h"
#include "pjrt/internal.h"

#define KIND(name) (1u << WEFT_GRAPH_##name)

static weft_status *read_message(const PjrtPb__CompileOptions *message, pjrt_options *out)
{
  uint8_t data[512];
  size_t size = pjrt_pb__compile_options__pack(message, data);

  assert_true(size <= sizeof data);
  return pjrt_options_read(data, size, out);
}

/* One option of jit(compiler_options=...) as text. */
static weft_status *read_override(const char *name, const char *text, pjrt_options *out)
{
  PjrtPb__OverrideValue value = PJRT_PB__OVERRIDE_VALUE__INIT;
  PjrtPb__Override override = PJRT_PB__OVERRIDE__INIT, *overrides[] = {&override};
  PjrtPb__CompileOptions message = PJRT_PB__COMPILE_OPTIONS__INIT;

  value.value_case = PJRT_PB__OVERRIDE_VALUE__VALUE_TEXT;
  value.text = (char *)text;
  override.key = (char *)name;
  override.value = &value;
  message.n_overrides = 1;
  message.overrides = overrides;
  return read_message(&message, out);
}

TEST(lists_of_kinds_replace_or_change_the_default)
{
  static const uint32_t usual = KIND(FUSION) | KIND(CUBLAS) | KIND(CUDNN) | KIND(CONDITIONAL) | KIND(CUSTOM_CALL) |
                                KIND(CUBLASLT) | KIND(DYNAMIC_SLICE_FUSION);
  static const struct { const char *text; uint32_t kinds; bool none; const char *error; } rows[] = {
    {"", 0, true, NULL}, {"FUSION", KIND(FUSION), false, NULL}, {"fusion,Collectives", KIND(FUSION) | KIND(COLLECTIVES), false, NULL},
    {"+WHILE,-CUBLAS", (usual | KIND(WHILE)) & ~KIND(CUBLAS), false, NULL}, {"+FUSION", 0, false, NULL},
    {"FUSIO", 0, false, "'FUSIO' is not a valid enum value"}, {"FUSION,", KIND(FUSION), false, NULL},
    {"FUSION,,CUDNN", 0, false, "'' is not a valid"}, {"+FUSION,CUDNN", 0, false, "'CUDNN' is not a valid"},
    {"FUSION,+CUDNN", 0, false, "'+CUDNN' is not a valid"}, {"-", 0, false, "'-' is not a valid"},
    {"+FUSION,,", 0, false, "'' is not a valid"},
  };

  for (size_t i = 0; i < WEFT_COUNT(rows); i++) {
    pjrt_options options;
    weft_status *st = read_override("xla_gpu_enable_command_buffer", rows[i].text, &options);
    if (rows[i].error) {
      T_FAILS(st, rows[i].error);
      continue;
    }
    T_OK(st);
    if (options.graph_kinds != rows[i].kinds || options.no_graphs != rows[i].none)
      fail_msg("\"%s\": %#x, none %d", rows[i].text, options.graph_kinds, options.no_graphs);
    T_TRUE((pjrt_compile_options(&options).graph_least == INT64_MAX) == rows[i].none);
    pjrt_options_fini(&options);
  }
}

TEST(the_least_size_of_a_graph_is_at_least_one)
{
  static const struct { const char *text; int64_t least; } rows[] = {{"7", 7}, {"0", 1}, {"-3", 1}};

  for (size_t i = 0; i < WEFT_COUNT(rows); i++) {
    pjrt_options options;
    T_OK(read_override("xla_gpu_graph_min_graph_size", rows[i].text, &options));
    T_EQ_INT(pjrt_compile_options(&options).graph_least, rows[i].least);
    pjrt_options_fini(&options);
  }
  pjrt_options options;
  T_FAILS(read_override("xla_gpu_graph_min_graph_size", "few", &options), "not a valid int");
}

TEST(communicators_are_split_unless_a_program_says_otherwise)
{
  static const struct { const char *text; bool anew; } rows[] = {{"False", true}, {"True", false}};

  for (size_t i = 0; i < WEFT_COUNT(rows); i++) {
    pjrt_options options;
    T_OK(read_override("xla_gpu_enable_nccl_comm_splitting", rows[i].text, &options));
    T_EQ_INT(pjrt_compile_options(&options).no_comm_splitting, rows[i].anew);
    pjrt_options_fini(&options);
  }
  pjrt_options options;
  T_OK(read_override("xla_gpu_enable_nccl_user_buffers", "True", &options));
  T_TRUE(!pjrt_compile_options(&options).no_comm_splitting && pjrt_compile_options(&options).collective_memory);
  pjrt_options_fini(&options);
}

static void read_debug(int32_t least, const int32_t *kinds, size_t count, pjrt_options *out)
{
  PjrtPb__DebugOptions debug = PJRT_PB__DEBUG_OPTIONS__INIT;
  PjrtPb__BuildOptions build = PJRT_PB__BUILD_OPTIONS__INIT;
  PjrtPb__CompileOptions message = PJRT_PB__COMPILE_OPTIONS__INIT;

  debug.graph_least = least;
  debug.n_graph_kinds = count;
  debug.graph_kinds = (int32_t *)kinds;
  build.debug_options = &debug;
  message.build = &build;
  T_OK(read_message(&message, out));
}

TEST(what_jaxlib_sends_by_default_counts_as_not_given)
{
  static const int32_t usual[] = {5, 2, 8, 3, 7, 9, 1}, two[] = {1, 4}, odd[] = {1, 99, -5};
  pjrt_options options;

  read_debug(5, usual, WEFT_COUNT(usual), &options);
  T_TRUE(options.graph_kinds == 0 && !options.no_graphs && options.graph_least == 0);
  pjrt_options_fini(&options);
  read_debug(77, two, WEFT_COUNT(two), &options);
  T_TRUE(options.graph_kinds == (KIND(FUSION) | KIND(COLLECTIVES)) && !options.no_graphs && options.graph_least == 77);
  pjrt_options_fini(&options);
  read_debug(5, NULL, 0, &options); /* --xla_gpu_enable_command_buffer= */
  T_TRUE(options.no_graphs);
  pjrt_options_fini(&options);
  read_debug(0, NULL, 0, &options); /* a client that is not XLA's */
  T_TRUE(options.graph_kinds == 0 && !options.no_graphs && options.graph_least == 0);
  pjrt_options_fini(&options);
  read_debug(-2, odd, WEFT_COUNT(odd), &options);
  T_TRUE(options.graph_kinds == KIND(FUSION) && options.graph_least == 0);
  pjrt_options_fini(&options);
}

int main(void)
{
  const struct CMUnitTest units[] = {
    UNIT(lists_of_kinds_replace_or_change_the_default), UNIT(the_least_size_of_a_graph_is_at_least_one),
    UNIT(communicators_are_split_unless_a_program_says_otherwise),
    UNIT(what_jaxlib_sends_by_default_counts_as_not_given)};
  return cmocka_run_group_tests(units, NULL, NULL);
}
