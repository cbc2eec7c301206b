/* tests/base/npy_test.c -- .npy files: what is written is read, and what is refused. */
#include "test.h"

#include <unistd.h>

#include "base/npy.h"

static char path[64];

static void write_bytes(const void *data, size_t size)
{
  FILE *out = fopen(path, "w");

  assert_non_null(out);
  fwrite(data, 1, size, out);
  fclose(out);
}

/* A version-1 file with this dict and these data bytes. */
static void write_npy(const char *dict, const void *data, size_t size)
{
  char file[512] = "\x93NUMPY\x01\x00";
  size_t length = strlen(dict);

  file[8] = (char)length;
  memcpy(file + 10, dict, length);
  if (size) memcpy(file + 10 + length, data, size);
  write_bytes(file, 10 + length + size);
}

TEST(what_is_written_is_read_back)
{
  static const float data[6] = {1, 2, 3, 4, 5, -0.0f};
  weft_npy a;

  T_OK(weft_npy_write(path, WEFT_F32, 2, (int64_t[]){2, 3}, data));
  T_OK(weft_npy_read(path, WEFT_F32, &a));
  T_EQ_INT(a.type, WEFT_F32);
  T_EQ_INT(a.rank, 2);
  T_EQ_INT(a.dims[1], 3);
  T_TRUE(memcmp(a.data, data, sizeof data) == 0);
  weft_npy_fini(&a);
  T_OK(weft_npy_write(path, WEFT_BF16, 0, NULL, "\x80\x3f"));
  T_OK(weft_npy_read(path, WEFT_BF16, &a));
  T_EQ_INT(a.type, WEFT_BF16);
  T_EQ_INT(a.bytes, 2);
  weft_npy_fini(&a);
  T_FAILS(weft_npy_read(path, WEFT_F32, &a), "'<V2' is not f32");
}

TEST(fortran_order_and_big_endian_are_undone)
{
  static const unsigned char columns[] = {0, 1, 0, 4, 0, 2, 0, 5, 0, 3, 0, 6};
  weft_npy a;

  write_npy("{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }\n", columns, sizeof columns);
  T_OK(weft_npy_read(path, WEFT_INVALID, &a));
  for (int i = 0; i < 6; i++) T_EQ_INT(((int16_t *)a.data)[i], i + 1);
  weft_npy_fini(&a);
}

TEST(bad_files_are_named_not_trusted)
{
  weft_npy a;

  T_CODE(weft_npy_read("/nonexistent/x.npy", WEFT_F32, &a), WEFT_NOT_FOUND);
  write_bytes("PK\x03\x04", 4);
  T_FAILS(weft_npy_read(path, WEFT_F32, &a), "not an .npy file");
  write_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4611686018427387904), }", NULL, 0);
  T_FAILS(weft_npy_read(path, WEFT_F32, &a), "over 2^63 bytes");
  write_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000,), }", "1234", 4);
  T_FAILS(weft_npy_read(path, WEFT_F32, &a), "has 4 bytes of data, its shape needs 4000000000");
  write_npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", "1234", 4);
  T_FAILS(weft_npy_read(path, WEFT_F32, &a), "structured");
  write_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", "1234", 4);
  T_FAILS(weft_npy_read(path, WEFT_F32, &a), "bad dimension");
}

static int make_path(WEFT_UNUSED void **state)
{
  snprintf(path, sizeof path, "/tmp/weft-npy-test-%d.npy", (int)getpid());
  return 0;
}

static int remove_path(WEFT_UNUSED void **state)
{
  unlink(path);
  return 0;
}

int main(void)
{
  const struct CMUnitTest units[] = {UNIT(what_is_written_is_read_back), UNIT(fortran_order_and_big_endian_are_undone),
                                     UNIT(bad_files_are_named_not_trusted)};
  return cmocka_run_group_tests(units, make_path, remove_path);
}
