#include "test.h"

#include "base/options.h"

TEST(durations_and_sizes_have_units)
{
  int64_t value;

  T_OK(weft_option_parse(WEFT_OPT_DURATION, "X", "1.5s", &value));
  T_EQ_INT(value, 1500000000);
  T_OK(weft_option_parse(WEFT_OPT_DURATION, "X", "20", &value));
  T_EQ_INT(value, INT64_C(20000000000));
  T_OK(weft_option_parse(WEFT_OPT_BYTES, "X", "2G", &value));
  T_EQ_INT(value, INT64_C(2) << 30);
  T_FAILS(weft_option_parse(WEFT_OPT_DURATION, "X", "5 parsecs", &value), "X: expected a duration");
  T_FAILS(weft_option_parse(WEFT_OPT_INT, "X", "12z", &value), "expected an integer, got \"12z\"");
  T_FAILS(weft_option_parse(WEFT_OPT_BYTES, "X", "-1", &value), "expected a size");
}

TEST(a_table_fills_a_struct_from_defaults_and_environment)
{
  struct settings { int64_t timeout_ns; bool on; const char *text; } s;
  static const weft_option rows[] = {
    {"WEFT_TEST_TIMEOUT", WEFT_OPT_DURATION, "30s", offsetof(struct settings, timeout_ns), "a"},
    {"WEFT_TEST_ON", WEFT_OPT_BOOL, "true", offsetof(struct settings, on), "b"},
    {"WEFT_TEST_TEXT", WEFT_OPT_STRING, "abc", offsetof(struct settings, text), "c"},
  };
  static const weft_option_table table = {"test", rows, WEFT_COUNT(rows)};

  setenv("WEFT_TEST_TIMEOUT", "2m", 1);
  setenv("WEFT_TEST_ON", "", 1); /* empty counts as unset */
  T_OK(weft_options_load(&table, &s));
  T_EQ_INT(s.timeout_ns, INT64_C(120000000000));
  T_TRUE(s.on);
  T_EQ_STR(s.text, "abc");
  setenv("WEFT_TEST_ON", "maybe", 1);
  T_FAILS(weft_options_load(&table, &s), "WEFT_TEST_ON: expected a boolean");
}

TEST_MAIN(UNIT(durations_and_sizes_have_units), UNIT(a_table_fills_a_struct_from_defaults_and_environment))
