/* tests/base/strangers_test.c -- which connection a full table of unauthenticated connections closes for a new one. */
#include "test.h"

#include "base/strangers.h"

enum { MOST = 8, MOST_THERE = 3, MOST_NS = 100 };

static struct in6_addr address(int number)
{
  struct in6_addr out = IN6ADDR_ANY_INIT;

  out.s6_addr[15] = (uint8_t)number;
  return out;
}

static weft_strangers table_of_limits(void)
{
  return (weft_strangers){.most = MOST, .most_of_an_address = MOST_THERE, .most_ns = MOST_NS};
}

/* Adds a connection from address `number` (0: a local socket) at `now_ns`; returns the connection to close for it. */
static weft_stranger *come(weft_strangers *table, weft_stranger *s, int number, int64_t now_ns)
{
  struct in6_addr from = address(number);
  weft_stranger *goes = weft_strangers_in_the_way(table, number ? &from : NULL);

  if (goes) weft_strangers_remove(table, goes);
  weft_strangers_add(table, s, number ? &from : NULL, now_ns);
  return goes;
}

TEST(the_oldest_makes_way_where_the_table_is_full)
{
  weft_strangers table = table_of_limits();
  weft_stranger s[MOST + 2];

  for (int i = 0; i < MOST; i++) T_TRUE(!come(&table, &s[i], 1 + i, i));
  T_TRUE(come(&table, &s[MOST], 50, MOST) == &s[0]);
  T_TRUE(come(&table, &s[MOST + 1], 0, MOST) == &s[1]);
  T_EQ_INT(table.count, MOST);
  weft_strangers_remove(&table, &s[5]); /* a member, say */
  T_TRUE(!come(&table, &s[5], 51, MOST));
}

TEST(an_address_has_a_share_until_a_member_has_come_from_it)
{
  weft_strangers table = table_of_limits();
  weft_stranger s[MOST];
  struct in6_addr from = address(7);
  int next = 0;

  T_TRUE(!come(&table, &s[next++], 9, 0));
  for (int i = 0; i < MOST_THERE; i++) T_TRUE(!come(&table, &s[next++], 7, 1 + i));
  T_TRUE(come(&table, &s[next++], 7, 10) == &s[1]); /* not the oldest, which is from address 9 */
  T_EQ_INT(table.count, MOST_THERE + 1);
  T_TRUE(!come(&table, &s[next++], 9, 10));
  weft_strangers_know(&table, &from);
  T_TRUE(!come(&table, &s[next++], 7, 11));
  T_EQ_INT(table.count, MOST_THERE + 3);
}

TEST(local_sockets_have_no_address)
{
  weft_strangers table = table_of_limits();
  weft_stranger s[MOST];

  for (int i = 0; i < MOST; i++) T_TRUE(!come(&table, &s[i], 0, i));
  T_EQ_INT(table.count, MOST);
}

TEST(the_time_of_the_oldest_is_over_first)
{
  weft_strangers table = table_of_limits();
  weft_stranger s[2];

  T_TRUE(weft_strangers_timer_ns(&table) == INT64_MAX);
  T_TRUE(!weft_strangers_overdue(&table, INT64_MAX));
  come(&table, &s[0], 1, 1000);
  come(&table, &s[1], 2, 1050);
  T_EQ_INT(weft_strangers_timer_ns(&table), 1000 + MOST_NS + 1);
  T_TRUE(!weft_strangers_overdue(&table, 1000 + MOST_NS));
  T_TRUE(weft_strangers_overdue(&table, weft_strangers_timer_ns(&table)) == &s[0]);
  weft_strangers_remove(&table, &s[0]);
  T_TRUE(!weft_strangers_overdue(&table, 1000 + MOST_NS + 1));
}

/* When more addresses come than the table can keep, it keeps the last ones. */
TEST(known_addresses_are_bounded)
{
  weft_strangers table = table_of_limits();
  weft_stranger s[MOST];
  struct in6_addr from;

  for (int i = 1; i <= WEFT_KNOWN_ADDRESSES + 1; i++) {
    from = address(i);
    weft_strangers_know(&table, &from);
    weft_strangers_know(&table, &from); /* takes no second place */
  }
  for (int i = 0; i < MOST_THERE; i++) T_TRUE(!come(&table, &s[i], 1, i));
  T_TRUE(come(&table, &s[MOST_THERE], 1, MOST_THERE) == &s[0]); /* forgotten */
  for (int i = MOST_THERE + 1; i < MOST; i++) T_TRUE(!come(&table, &s[i], 2, i));
}

TEST_MAIN(UNIT(the_oldest_makes_way_where_the_table_is_full), UNIT(an_address_has_a_share_until_a_member_has_come_from_it),
          UNIT(local_sockets_have_no_address), UNIT(the_time_of_the_oldest_is_over_first), UNIT(known_addresses_are_bounded))
