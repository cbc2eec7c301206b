/* tests/base/options_test.c -- tables of options: values, ranges, errors and listings. */
#include "test.h"

#include "base/options.h"
#include "pjrt/settings.h"

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

TEST(a_row_says_which_values_are_allowed)
{
  static const weft_option text = {"WEFT_TEST_HOW", WEFT_OPT_STRING, "auto", 0, "a", "auto|shm|fabric"};
  static const weft_option made = {"WEFT_TEST_MADE", WEFT_OPT_STRING, "", 0, "a", "|ring" "|bruck"};
  static const weft_option count = {"WEFT_TEST_COUNT", WEFT_OPT_INT, "0", 0, "b", "0..4096"};
  static const weft_option bytes = {"WEFT_TEST_BYTES", WEFT_OPT_BYTES, "8K", 0, "c", "8K..1G"};
  static const weft_option after = {"WEFT_TEST_AFTER", WEFT_OPT_DURATION, "1s", 0, "d", "1ms.."};
  const char *word;
  int64_t number;

  T_OK(weft_option_read(&text, "--how", "fabric", &word));
  T_EQ_STR(word, "fabric");
  T_FAILS(weft_option_read(&text, "--how", "avian", &word), "--how: expected auto|shm|fabric, got \"avian\"");
  T_FAILS(weft_option_read(&text, "--how", "shm|fabric", &word), "got \"shm|fabric\"");
  T_FAILS(weft_option_read(&text, "--how", "sh", &word), "got \"sh\"");
  T_OK(weft_option_read(&made, "--made", "", &word)); /* empty: not given */
  T_OK(weft_option_read(&made, "--made", "bruck", &word));
  T_FAILS(weft_option_read(&made, "--made", "tree", &word), "expected ring|bruck, got");
  T_OK(weft_option_read(&count, "X", "4096", &number));
  T_FAILS(weft_option_read(&count, "X", "-4", &number), "X: expected 0..4096, got \"-4\"");
  T_FAILS(weft_option_read(&count, "X", "4097", &number), "expected 0..4096");
  T_FAILS(weft_option_read(&count, "X", "four", &number), "expected an integer");
  T_OK(weft_option_read(&bytes, "X", "1048576K", &number));
  T_FAILS(weft_option_read(&bytes, "X", "8191", &number), "expected 8K..1G");
  T_OK(weft_option_read(&after, "X", "500h", &number));
  T_FAILS(weft_option_read(&after, "X", "0", &number), "expected 1ms..");
}

TEST(a_table_is_checked_without_a_struct)
{
  static const weft_option rows[] = {
    {"WEFT_TEST_FIRST", WEFT_OPT_INT, "", 0, "a number without a default", "1..4"},
    {"WEFT_TEST_SECOND", WEFT_OPT_BYTES, "8K", 0, "b"},
  };
  static const weft_option_table table = {"test", rows, WEFT_COUNT(rows)};

  T_OK(weft_options_check(&table));
  setenv("WEFT_TEST_FIRST", "5", 1);
  T_FAILS(weft_options_check(&table), "WEFT_TEST_FIRST: expected 1..4, got \"5\"");
  setenv("WEFT_TEST_FIRST", "4", 1);
  setenv("WEFT_TEST_SECOND", "much", 1);
  T_FAILS(weft_options_check(&table), "WEFT_TEST_SECOND: expected a size");
}

/* Every module's rows: the defaults are allowed, and what is allowed can be read. */
TEST(defaults_are_allowed)
{
  int looked = 0;

  for (const weft_option_table *const *t = pjrt_settings; *t; t++)
    for (size_t i = 0; i < (*t)->count; i++) {
      const weft_option *o = &(*t)->options[i];
      union { bool truth; int64_t number; const char *text; } value;
      if (*o->default_text) T_OK(weft_option_read(o, o->name, o->default_text, &value));
      looked += o->allowed != NULL;
      if (o->allowed && o->type != WEFT_OPT_STRING) T_TRUE(strstr(o->allowed, "..") != NULL);
    }
  T_TRUE(looked > 15);
}

TEST_MAIN(UNIT(durations_and_sizes_have_units), UNIT(a_table_fills_a_struct_from_defaults_and_environment),
          UNIT(a_row_says_which_values_are_allowed), UNIT(a_table_is_checked_without_a_struct), UNIT(defaults_are_allowed))
