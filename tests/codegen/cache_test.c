/* tests/codegen/cache_test.c -- The folder of compiled kernels: which files are loaded from it, and which are refused.
 * tests/fuzz/kernel_cache_fuzz.c damages the files. */
#include "test.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codegen/code/cache.h"

static char folder[64];
static const char name[] = "0123.o", code[] = "machine code";

static int make_folder(mode_t mode)
{
  strcpy(folder, "/tmp/weft-cache-test-XXXXXX");
  T_TRUE(mkdtemp(folder) != NULL);
  T_TRUE(chmod(folder, mode) == 0);
  return gen_cache_open(folder);
}

static void remove_folder(int fd)
{
  char path[512];
  DIR *dir = opendir(folder);

  for (struct dirent *entry; (entry = readdir(dir));) {
    snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    if (entry->d_name[0] != '.') unlink(path);
  }
  closedir(dir);
  if (fd >= 0) close(fd);
  rmdir(folder);
}

static bool is_taken(int fd, const char *of)
{
  void *data = NULL;
  size_t size = 0;
  bool taken = gen_cache_read(fd, of, &data, &size);

  if (taken) T_TRUE(size == sizeof code && memcmp(data, code, size) == 0);
  free(data);
  return taken;
}

TEST(what_was_written_is_read_by_its_name_only)
{
  int fd = make_folder(0700);

  T_TRUE(fd >= 0);
  T_TRUE(!is_taken(fd, name));
  T_OK(gen_cache_write(fd, name, code, sizeof code));
  T_TRUE(is_taken(fd, name));
  T_TRUE(linkat(fd, name, fd, "4567.o", 0) == 0); /* the code of another kernel */
  T_TRUE(!is_taken(fd, "4567.o"));
  remove_folder(fd);
}

TEST(each_changed_bit_and_each_length_is_noticed)
{
  int fd = make_folder(0700), file;
  char bytes[sizeof code + 32];

  T_OK(gen_cache_write(fd, name, code, sizeof code));
  T_TRUE((file = openat(fd, name, O_RDWR)) >= 0);
  T_EQ_INT(pread(file, bytes, sizeof bytes, 0), sizeof bytes);
  for (size_t i = 0; i < 8 * sizeof bytes; i++) {
    char changed = (char)(bytes[i / 8] ^ 1 << i % 8);
    T_EQ_INT(pwrite(file, &changed, 1, (off_t)(i / 8)), 1);
    T_TRUE(!is_taken(fd, name));
    T_EQ_INT(pwrite(file, &bytes[i / 8], 1, (off_t)(i / 8)), 1);
  }
  T_TRUE(is_taken(fd, name));
  T_TRUE(ftruncate(file, sizeof bytes + 1) == 0);
  T_TRUE(!is_taken(fd, name));
  for (off_t size = 0; size < (off_t)sizeof bytes; size++) {
    T_TRUE(ftruncate(file, size) == 0);
    T_TRUE(!is_taken(fd, name));
  }
  close(file);
  remove_folder(fd);
}

TEST(a_folder_that_others_may_write_to_is_not_used)
{
  static const mode_t open_to_others[] = {0777, 01777, 0702, 0770, 0720};

  for (size_t i = 0; i < WEFT_COUNT(open_to_others); i++) {
    T_EQ_INT(make_folder(open_to_others[i]), -1);
    remove_folder(-1);
  }
  int fd = make_folder(0755);
  T_TRUE(fd >= 0);
  remove_folder(fd);
}

TEST(a_file_that_others_may_have_written_is_not_taken)
{
  int fd = make_folder(0700);

  T_OK(gen_cache_write(fd, name, code, sizeof code));
  T_TRUE(fchmodat(fd, name, 0602, 0) == 0);
  T_TRUE(!is_taken(fd, name));
  T_TRUE(fchmodat(fd, name, 0600, 0) == 0);
  T_TRUE(is_taken(fd, name));
  T_TRUE(renameat(fd, name, fd, "real") == 0 && symlinkat("real", fd, name) == 0);
  T_TRUE(!is_taken(fd, name));
  T_TRUE(unlinkat(fd, name, 0) == 0 &&
         mkfifoat(fd, name, 0600) == 0); /* nobody writes to it: reading it must not wait */
  T_TRUE(!is_taken(fd, name));
  remove_folder(fd);
}

TEST(another_users_folder_and_file_are_not_used)
{
  if (geteuid() != 0) T_SKIP("only root can give a file to another user");
  int fd = make_folder(0700);
  T_OK(gen_cache_write(fd, name, code, sizeof code));
  T_TRUE(fchownat(fd, name, 12345, 12345, 0) == 0);
  T_TRUE(!is_taken(fd, name));
  T_TRUE(fchown(fd, 12345, 12345) == 0);
  T_EQ_INT(gen_cache_open(folder), -1);
  remove_folder(fd);
}

TEST_MAIN(UNIT(what_was_written_is_read_by_its_name_only), UNIT(each_changed_bit_and_each_length_is_noticed),
          UNIT(a_folder_that_others_may_write_to_is_not_used), UNIT(a_file_that_others_may_have_written_is_not_taken),
          UNIT(another_users_folder_and_file_are_not_used))
