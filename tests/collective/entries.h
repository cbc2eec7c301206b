/* tests/collective/entries.h -- what a folder holds. */
#ifndef WEFT_TESTS_COLLECTIVE_ENTRIES_H
#define WEFT_TESTS_COLLECTIVE_ENTRIES_H

#include <dirent.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

/* The number of entries with `part` in their name; "": all. Other tests and libraries share /dev/shm, so their entries
 * there are not counted. */
static inline int count_entries(const char *path, const char *part)
{
  int count = 0;
  DIR *dir = opendir(path);

  if (!dir) return 0;
  for (struct dirent *e; (e = readdir(dir));) count += strstr(e->d_name, part) != NULL;
  closedir(dir);
  return count;
}

/* False: more entries than `before` are there, and stay.  Entries of tests that run beside this one come and go. */
static inline bool entries_are_gone(const char *path, const char *part, int before)
{
  for (int tries = 0; tries < 50 && count_entries(path, part) > before; tries++)
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
  return count_entries(path, part) <= before;
}

#endif
