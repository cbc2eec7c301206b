/* tests/base/array_test.c -- arrays that grow: their room, their limits, and that a failure changes nothing; and the
 * exchange of two values. */
#include "test.h"

#include "base/array.h"
#include "base/swap.h"

static void arrays_grow_by_doubling_and_keep_their_items(void **state)
{
  int *items = NULL, capacity = 0, changes = 0;
  (void)state;

  for (int i = 0; i < 1000; i++) {
    int before = capacity;
    assert_true(WEFT_RESERVE(items, capacity, i + 1, 5));
    changes += capacity != before;
    items[i] = i;
  }
  for (int i = 0; i < 1000; i++) assert_int_equal(items[i], i);
  assert_int_equal(capacity, 1280); /* 5 doubled eight times */
  assert_int_equal(changes, 9);
  assert_true(WEFT_RESERVE(items, capacity, 5000, 5));
  assert_int_equal(capacity, 5000); /* more than twice as many is what is wanted */
  free(items);
}

static void limits_hold_and_a_failure_changes_nothing(void **state)
{
  int64_t *items = NULL, *same;
  size_t capacity = 0;
  int few = 0;
  (void)state;

  assert_true(weft_array_reserve(&items, &capacity, 3, 2, 5, sizeof *items));
  assert_int_equal(capacity, 3);
  assert_true(weft_array_reserve(&items, &capacity, 4, 2, 5, sizeof *items));
  assert_int_equal(capacity, 5); /* twice three is more than the limit */
  items[4] = 7;
  same = items;
  assert_false(weft_array_reserve(&items, &capacity, 6, 2, 5, sizeof *items));
  assert_false(WEFT_RESERVE(items, capacity, SIZE_MAX / 4, 1)); /* its bytes are no size_t */
  assert_false(WEFT_RESIZE(items, SIZE_MAX / sizeof *items + 1));
  assert_ptr_equal(items, same);
  assert_int_equal(capacity, 5);
  assert_int_equal(items[4], 7);
  few = INT_MAX - 1;
  assert_false(WEFT_RESERVE(items, few, (size_t)INT_MAX + 1, 1)); /* a capacity of type int cannot say it */
  assert_int_equal(few, INT_MAX - 1);
  assert_true(WEFT_RESIZE(items, 0));
  free(items);
}

static void two_values_are_exchanged(void **state)
{
  struct pair {
    int first, second;
  } pairs[] = {{1, 2}, {3, 4}};
  const char *left = "left", *right = "right";
  (void)state;

  if (left) WEFT_SWAP(left, right);
  else fail();
  assert_string_equal(left, "right");
  assert_string_equal(right, "left");
  WEFT_SWAP(pairs[0], pairs[1]);
  assert_int_equal(pairs[0].first, 3);
  assert_int_equal(pairs[0].second, 4);
  assert_int_equal(pairs[1].first, 1);
  assert_int_equal(pairs[1].second, 2);
}

TEST_MAIN(UNIT(arrays_grow_by_doubling_and_keep_their_items), UNIT(limits_hold_and_a_failure_changes_nothing),
          UNIT(two_values_are_exchanged))
