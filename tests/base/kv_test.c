/* tests/base/kv_test.c -- one suite for every key-value store. */
#include "test.h"

#include <pthread.h>
#include <unistd.h>

#include "base/kv.h"

static char directory[64];

static weft_kv *open_local(void)
{
  weft_kv *kv;
  T_OK(weft_kv_local_new(&kv));
  return kv;
}

static weft_kv *open_file(void)
{
  weft_kv *kv;
  T_OK(weft_kv_file_new(directory, &kv));
  return kv;
}

static const struct { const char *name; weft_kv *(*open)(void); } stores[] = {{"local", open_local}, {"file", open_file}};

static void expect(weft_kv *kv, const char *key, const char *want, size_t want_size)
{
  WEFT_AUTO_STR value = NULL;
  size_t size = 0;

  T_OK(weft_kv_get(kv, key, weft_deadline_after_ms(1000), &value, &size));
  T_EQ_INT(size, want_size);
  assert_memory_equal(value, want, want_size);
  T_EQ_INT(value[size], 0);
}

TEST(set_get_overwrite_remove)
{
  for (size_t i = 0; i < WEFT_COUNT(stores); i++) {
    WEFT_AUTO(weft_kv) kv = stores[i].open();
    char *value;
    size_t size;

    print_message("# %s\n", stores[i].name);
    T_OK(weft_kv_set(kv, "a/b", "one", 3, false));
    expect(kv, "a/b", "one", 3);
    T_CODE(weft_kv_set(kv, "a/b", "two", 3, false), WEFT_ALREADY_EXISTS);
    T_OK(weft_kv_set(kv, "a/b", "t\0o", 3, true));
    expect(kv, "a/b", "t\0o", 3);
    T_OK(weft_kv_set(kv, "a/b/c", "", 0, false));
    expect(kv, "a/b/c", "", 0);
    T_OK(weft_kv_set(kv, "a/bc", "other", 5, false));
    T_OK(weft_kv_set(kv, "../etc//x=.y", "odd", 3, false));
    expect(kv, "../etc//x=.y", "odd", 3);
    T_OK(weft_kv_remove(kv, "a/b"));
    T_CODE(weft_kv_try_get(kv, "a/b", &value, &size), WEFT_NOT_FOUND);
    T_CODE(weft_kv_try_get(kv, "a/b/c", &value, &size), WEFT_NOT_FOUND);
    expect(kv, "a/bc", "other", 5);
    T_OK(weft_kv_remove(kv, "no/such"));
    T_FAILS(weft_kv_get(kv, "never", weft_deadline_after_ms(5), &value, &size), "\"never\"");
    T_OK(weft_kv_remove(kv, "a"));
    T_OK(weft_kv_remove(kv, ".."));
  }
}

static void *set_later(void *kv)
{
  usleep(20000);
  weft_status_ignore(weft_kv_set(kv, "late", "x", 1, false));
  return NULL;
}

TEST(get_waits_for_the_key)
{
  for (size_t i = 0; i < WEFT_COUNT(stores); i++) {
    WEFT_AUTO(weft_kv) kv = stores[i].open();
    pthread_t thread;

    pthread_create(&thread, NULL, set_later, kv);
    expect(kv, "late", "x", 1);
    pthread_join(thread, NULL);
    T_OK(weft_kv_remove(kv, "late"));
  }
}

TEST(a_prefix_is_a_view)
{
  WEFT_AUTO(weft_kv) kv = open_local();
  WEFT_AUTO(weft_kv) view = NULL;

  T_OK(weft_kv_prefix_new(kv, "job/7", &view));
  T_OK(weft_kv_set(view, "k", "v", 1, false));
  expect(kv, "job/7/k", "v", 1);
  T_OK(weft_kv_remove(kv, "job"));
  char *value;
  size_t size;
  T_CODE(weft_kv_try_get(view, "k", &value, &size), WEFT_NOT_FOUND);
}

/* Two stores on one directory, and processes of two machines with the same process id, do not write each other's
 * files. */
TEST(nobody_writes_the_file_that_another_is_writing)
{
  char path[128], text[8];
  WEFT_AUTO(weft_kv) kv = open_file();
  WEFT_AUTO(weft_kv) other = open_file();

  for (int i = 0; i < 40; i++) {
    snprintf(path, sizeof path, "%s/.tmp-%d-%d", directory, (int)getpid(), i);
    FILE *f = fopen(path, "w");
    T_TRUE(f && fputs("theirs", f) >= 0 && fclose(f) == 0);
  }
  T_OK(weft_kv_set(kv, "shared", "one", 3, true));
  T_OK(weft_kv_set(other, "shared", "two", 3, true));
  expect(kv, "shared", "two", 3);
  for (int i = 0; i < 40; i++) {
    snprintf(path, sizeof path, "%s/.tmp-%d-%d", directory, (int)getpid(), i);
    FILE *f = fopen(path, "r");
    T_TRUE(f && fgets(text, sizeof text, f) && strcmp(text, "theirs") == 0 && fclose(f) == 0);
    unlink(path);
  }
  T_OK(weft_kv_remove(kv, "shared"));
}

int main(void)
{
  const struct CMUnitTest units[] = {UNIT(set_get_overwrite_remove), UNIT(get_waits_for_the_key), UNIT(a_prefix_is_a_view),
                                     UNIT(nobody_writes_the_file_that_another_is_writing)};

  snprintf(directory, sizeof directory, "/tmp/weft-kv-test-XXXXXX");
  if (!mkdtemp(directory)) return 99;
  int failed = cmocka_run_group_tests(units, NULL, NULL);
  if (rmdir(directory) != 0) printf("# %s is not empty\n", directory);
  return failed;
}
