/* tests/base/arena_test.c -- memory that is freed all at once: arrays that grow in it. */
#include "test.h"

#include <limits.h>

#include "base/arena.h"

/* The items stay, new room is zero, and the array moves as seldom as doubling lets it. */
TEST(arrays_grow)
{
  weft_arena arena;
  int *items = NULL, capacity = 0, moves = 0;

  weft_arena_init(&arena);
  for (int i = 0; i < 100000; i++) {
    const int *before = items;
    T_TRUE(WEFT_ARENA_RESERVE(&arena, items, capacity, i + 1, 16));
    moves += items != before;
    T_TRUE(capacity > i && items[i] == 0 && items[capacity - 1] == 0);
    items[i] = i + 1;
  }
  for (int i = 0; i < 100000; i++) T_TRUE(items[i] == i + 1);
  T_EQ_INT(moves, 14); /* 16 << 13 is the first of them above 100000 */
  weft_arena_fini(&arena);
}

TEST(an_array_without_memory_stays_as_it_was)
{
  weft_arena arena;
  int64_t *items = NULL;
  int capacity = 0;

  weft_arena_init(&arena);
  T_TRUE(WEFT_ARENA_RESERVE(&arena, items, capacity, 3, 0));
  T_EQ_INT(capacity, 3);
  const int64_t *before = items;
  T_TRUE(!WEFT_ARENA_RESERVE(&arena, items, capacity, (int64_t)INT_MAX + 1, 0));
  arena.limit_bytes = arena.total_bytes;
  T_TRUE(!WEFT_ARENA_RESERVE(&arena, items, capacity, 1 << 24, 0));
  T_TRUE(items == before && capacity == 3);
  weft_arena_fini(&arena);
}

TEST_MAIN(UNIT(arrays_grow), UNIT(an_array_without_memory_stays_as_it_was))
