/* tests/base/status_test.c -- errors as values: codes, notes, payloads. */
#include "test.h"

#include <stdlib.h>

#include "alloc.h"

static weft_status *inner(void) { return WEFT_ERR(NOT_FOUND, "no key \"%s\"", "a/b"); }

static weft_status *outer(void)
{
  WEFT_TRY_NOTE(inner(), "while starting rank %d", 3);
  return NULL;
}

TEST(an_error_keeps_its_code_message_and_context)
{
  weft_status *st = outer();

  T_EQ_INT(weft_status_code(st), WEFT_NOT_FOUND);
  T_EQ_STR(weft_status_message(st), "no key \"a/b\"");
  T_EQ_STR(weft_status_text(st, false), "NOT_FOUND: no key \"a/b\"\n  while starting rank 3");
  weft_status_free(st);
}

TEST(null_is_success_everywhere)
{
  T_EQ_INT(weft_status_code(NULL), WEFT_OK);
  T_TRUE(weft_status_note(NULL, __FILE__, __LINE__, "x") == NULL);
  T_TRUE(weft_status_dup(NULL) == NULL);
  weft_status_free(NULL);
}

TEST(payloads_are_replaced_by_type_and_copied_with_the_status)
{
  weft_status *st = WEFT_ERR(ABORTED, "x"), *copy;
  size_t size;

  st = weft_status_with_payload(st, "type/a", "one", 3);
  st = weft_status_with_payload(st, "type/a", "three", 5);
  copy = weft_status_dup(st);
  weft_status_free(st);
  T_TRUE(memcmp(weft_status_payload(copy, "type/a", &size), "three", 5) == 0);
  T_EQ_INT(size, 5);
  T_TRUE(weft_status_payload(copy, "type/b", &size) == NULL);
  weft_status_free(copy);
}

TEST(a_payload_that_there_is_no_memory_for_leaves_the_one_before)
{
  weft_status *st = weft_status_with_payload(WEFT_ERR(ABORTED, "x"), "type/a", "one", 3);
  size_t size = 0;

  alloc_fail_at(0);
  st = weft_status_with_payload(st, "type/a", "three", 5);
  T_TRUE(alloc_stop());
  const char *kept = weft_status_payload(st, "type/a", &size);
  T_TRUE(kept && size == 3 && memcmp(kept, "one", 3) == 0);
  weft_status_free(st);
}

TEST(of_very_many_notes_the_ends_are_shown)
{
  weft_status *st = WEFT_ERR(INTERNAL, "deep");

  for (int i = 0; i < 200; i++) st = weft_status_note(st, __FILE__, __LINE__, "level %d.", i);
  const char *text = weft_status_text(st, false);
  T_TRUE(strstr(text, "level 0.") && strstr(text, "level 199.") && strstr(text, "more ...") &&
         !strstr(text, "level 100."));
  T_TRUE(strlen(text) < 600);
  weft_status_free(st);
}

TEST_MAIN(UNIT(an_error_keeps_its_code_message_and_context), UNIT(null_is_success_everywhere),
          UNIT(of_very_many_notes_the_ends_are_shown),
          UNIT(payloads_are_replaced_by_type_and_copied_with_the_status),
          UNIT(a_payload_that_there_is_no_memory_for_leaves_the_one_before))
