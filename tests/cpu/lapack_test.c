/* tests/cpu/lapack_test.c -- custom calls to LAPACK whose operands, results or attributes do not go together are
 * refused before LAPACK is called, which would read or write what is not there. */
#include <config.h>

#include "cpu/run.h"

static const struct {
  const char *target, *operands, *results, *config, *says;
} wrong[] = {
  {"lapack_spotrf_ffi", "f32[2,3]", "(f32[2,3], s32[])", "", "no square matrix"},
  {"lapack_spotrf_ffi", "f32[3,3]", "(f32[2,2], s32[])", "", "result 0 holds 4 elements of f32, want 9"},
  {"lapack_spotrf_ffi", "f32[5,3,3]", "(f32[5,3,3], s32[])", "", "result 1 holds 1 elements of s32, want 5"},
  {"lapack_spotrf_ffi", "f32[3,3]", "(f32[3,3], s32[])", "uplo = 88 : ui8", "attribute uplo"},
  {"lapack_sgetrf_ffi", "f32[9,9]", "(f32[9,9], s32[1], s32[])", "", "result 1 holds 1 elements of s32, want 9"},
  {"lapack_sgetrf_ffi", "f32[9,9]", "(f64[9,9], s32[9], s32[])", "", "result 0 holds 81 elements of f64, want 81 of f32"},
  {"lapack_dgetrf_ffi", "f64[64,64]", "(f64[8,8], s32[64], s32[])", "", "result 0 holds 64 elements"},
  {"lapack_sgeqrf_ffi", "f32[9,7]", "(f32[9,7], f32[3])", "", "result 1 holds 3 elements of f32, want 7"},
  {"lapack_sgeqp3_ffi", "f32[4,9] s32[2]", "(f32[4,9], s32[9], f32[4])", "", "operand 1 holds 2 elements of s32, want 9"},
  {"lapack_sorgqr_ffi", "f32[9,4] f32[7]", "f32[9,4]", "", "7 reflectors"},
  {"lapack_sorgqr_ffi", "f32[9,4] f32[4]", "f32[2,4]", "", "result 0 holds 8 elements of f32, want 36"},
  {"lapack_cunmqr_ffi", "c64[9,4] c64[4] c64[5,5]", "c64[5,5]", "left = true", "4 reflectors of 9 elements"},
  {"lapack_strsm_ffi", "f32[4,4] f32[3,2]", "f32[3,2]", "", "a matrix of order 4"},
  {"lapack_strsm_ffi", "f32[4,4] f32[2,4]", "f32[4,2]", "side = 82 : ui8", "a matrix of order 4"},
  {"lapack_strsm_ffi", "f32[4,3] f32[4,2]", "f32[4,2]", "", "no square matrix"},
  {"lapack_strsm_ffi", "f32[8,4,4] f32[4,2]", "f32[4,2]", "", "operand 1 holds 8 elements of f32, want 64"},
  {"lapack_strsm_ffi", "f32[4,4] f32[4,2]", "f32[4,2]", "diag = 0 : ui8", "attribute diag"},
  {"lapack_sgesdd_ffi", "f32[6,4]", "(f32[6,4], f32[2], f32[6,6], f32[4,4], s32[])", "", "result 1 holds 2 elements of f32, want 4"},
  {"lapack_sgesdd_ffi", "f32[6,4]", "(f32[6,4], f32[4], f32[6,4], f32[4,4], s32[])", "mode = 65 : ui8", "result 2 holds 24 elements"},
  {"lapack_sgesvd_ffi", "f32[6,4]", "(f32[6,4], f32[4], f32[6,4], f32[4,4], s32[])", "mode = 79 : ui8", "attribute mode"},
  {"lapack_ssyevd_ffi", "f32[5,5]", "(f32[5,5], f32[4], s32[])", "", "result 1 holds 4 elements of f32, want 5"},
  {"lapack_cheevd_ffi", "c64[5,5]", "(c64[5,5], c64[5], s32[])", "", "result 1 holds 5 elements of c64, want 5 of f32"},
  {"lapack_sgeev_ffi", "f32[5,5]", "(f32[5], f32[5], f32[5,5], c64[5,5], s32[])", "", "result 2 holds 25 elements of f32, want 25 of c64"},
  {"lapack_cgeev_ffi", "c64[5,5]", "(c64[5], c64[5,5], c64[1,5], s32[])", "", "result 2 holds 5 elements of c64, want 25"},
  {"lapack_sgees_ffi", "f32[5,5]", "(f32[5,5], f32[5,5], f32[5], f32[1], s32[], s32[])", "", "result 3 holds 1 elements"},
  {"lapack_cgees_ffi", "c64[5,5]", "(c64[5,5], c64[5,5], c64[2], s32[], s32[])", "", "result 2 holds 2 elements"},
  {"lapack_sgehrd_ffi", "f32[5,5]", "(f32[5,5], f32[3], s32[])", "", "result 1 holds 3 elements of f32, want 4"},
  {"lapack_sgehrd_ffi", "f32[5,5]", "(f32[5,5], f32[4], s32[])", "low = 1 : i32, high = 90 : i32", "rows 1 to 90"},
  {"lapack_ssytrd_ffi", "f32[5,5]", "(f32[5,5], f32[5], f32[1], f32[4], s32[])", "", "result 2 holds 1 elements"},
  {"lapack_sgtsv_ffi", "f32[5] f32[4] f32[5] f32[5,2]", "(f32[5], f32[4], f32[5], f32[5,2], s32[])", "", "operand 1 holds 4 elements"},
  {"lapack_sgtsv_ffi", "f32[5] f32[5] f32[5] f32[3,2]", "(f32[5], f32[5], f32[5], f32[3,2], s32[])", "", "operand 3 holds 6 elements"},
};

/* A program whose root is the call. */
static void write_program(char *text, size_t size, size_t i)
{
  char operands[128], names[32] = "";
  size_t at = (size_t)snprintf(text, size, "HloModule m\nENTRY e {\n");
  int count = 0;

  snprintf(operands, sizeof operands, "%s", wrong[i].operands);
  for (char *save, *shape = strtok_r(operands, " ", &save); shape; shape = strtok_r(NULL, " ", &save), count++) {
    at += (size_t)snprintf(text + at, size - at, "  p%d = %s parameter(%d)\n", count, shape, count);
    snprintf(names + strlen(names), sizeof names - strlen(names), "%sp%d", count ? ", " : "", count);
  }
  snprintf(
    text + at, size - at,
    "  ROOT r = %s custom-call(%s), custom_call_target=\"%s\", api_version=API_VERSION_TYPED_FFI, backend_config={%s}\n}\n",
    wrong[i].results, names, wrong[i].target, wrong[i].config);
}

TEST(calls_that_do_not_go_together)
{
  static double zeros[4096];
  const void *inputs[8];
  char text[1024];
  weft_platform *platform = test_platform(1, 1);

  for (size_t i = 0; i < WEFT_COUNT(inputs); i++) inputs[i] = zeros;
  for (size_t i = 0; i < WEFT_COUNT(wrong); i++) {
    static double out[6][4096];
    void *outputs[] = {out[0], out[1], out[2], out[3], out[4], out[5]};
    write_program(text, sizeof text, i);
    weft_executable *exe = test_compile(platform, text, BUF_TOPOLOGICAL);
    weft_status *st = test_run(exe, inputs, outputs);
    if (weft_status_code(st) != WEFT_INVALID_ARGUMENT || !strstr(weft_status_text(st, false), wrong[i].says))
      fail_msg("%s: want \"%s\", got %s", text, wrong[i].says, st ? weft_status_text(st, false) : "no error");
    weft_status_free(st);
    weft_executable_release(exe);
  }
  weft_platform_release(platform);
}

#ifdef HAVE_OPENBLAS
TEST_MAIN(UNIT(calls_that_do_not_go_together))
#else
int main(void)
{
  printf("1..0 # SKIP this build has no OpenBLAS\n");
  return 0;
}
#endif
