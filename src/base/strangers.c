/* base/strangers.c -- a bounded table of connections that have not authenticated (strangers.h). */
#include <config.h>

#include "base/strangers.h"

#include <string.h>

#include <utlist.h>

#include "base/macros.h"

static bool is_same(const struct in6_addr *a, const struct in6_addr *b) { return memcmp(a, b, sizeof *a) == 0; }

static bool is_known(const weft_strangers *table, const struct in6_addr *from)
{
  for (size_t i = 0; i < WEFT_MIN(table->known_count, (size_t)WEFT_KNOWN_ADDRESSES); i++)
    if (is_same(&table->known[i], from)) return true;
  return false;
}

weft_stranger *weft_strangers_in_the_way(const weft_strangers *table, const struct in6_addr *from)
{
  weft_stranger *oldest_there = NULL, *each;
  int there = 0;

  if (from && !is_known(table, from)) {
    DL_FOREACH(table->oldest, each) {
      if (!each->has_address || !is_same(&each->from, from)) continue;
      if (there++ == 0) oldest_there = each;
    }
    if (there >= table->most_of_an_address) return oldest_there;
  }
  return table->count < table->most ? NULL : table->oldest;
}

void weft_strangers_add(weft_strangers *table, weft_stranger *stranger, const struct in6_addr *from, int64_t now_ns)
{
  *stranger = (weft_stranger){.has_address = from, .since_ns = now_ns};
  if (from) stranger->from = *from;
  DL_APPEND(table->oldest, stranger);
  table->count++;
}

void weft_strangers_remove(weft_strangers *table, weft_stranger *stranger)
{
  DL_DELETE(table->oldest, stranger);
  table->count--;
}

void weft_strangers_know(weft_strangers *table, const struct in6_addr *from)
{
  if (!is_known(table, from)) table->known[table->known_count++ % WEFT_KNOWN_ADDRESSES] = *from;
}

weft_stranger *weft_strangers_overdue(const weft_strangers *table, int64_t now_ns)
{
  return table->oldest && now_ns - table->oldest->since_ns > table->most_ns ? table->oldest : NULL;
}

int64_t weft_strangers_timer_ns(const weft_strangers *table)
{
  return table->oldest ? table->oldest->since_ns + table->most_ns + 1 : INT64_MAX;
}
