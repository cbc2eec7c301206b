/* tests/cpu/lapack_test.c -- custom calls to LAPACK whose operands, results or attributes do not go together are
 * refused before LAPACK is called, which would read or write what is not there; batches shared by threads. */
#include <config.h>

#include "codegen/model/processor.h"
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

/* Of `batch` matrices of 24 by 24 each result has so many bytes a matrix. */
enum { ORDER = 24, MATRIX_BYTES = ORDER * ORDER * 4, ROW_BYTES = ORDER * 4, BATCH = 37, MOST_RESULTS = 5 };
static const struct {
  const char *target, *results, *config; /* results: %1$s is the batch and a comma, or nothing */
  int result_count;
  size_t bytes[MOST_RESULTS];
} batched[] = {
  {"lapack_ssyevd_ffi", "(f32[%1$s24,24], f32[%1$s24], s32[%2$s])", "", 3, {MATRIX_BYTES, ROW_BYTES, 4}},
  {"lapack_sgesdd_ffi", "(f32[%1$s24,24], f32[%1$s24], f32[%1$s24,24], f32[%1$s24,24], s32[%2$s])", "mode = 65 : ui8", 5,
   {MATRIX_BYTES, ROW_BYTES, MATRIX_BYTES, MATRIX_BYTES, 4}},
  {"lapack_sgeqrf_ffi", "(f32[%1$s24,24], f32[%1$s24])", "", 2, {MATRIX_BYTES, ROW_BYTES}},
  {"lapack_sgetrf_ffi", "(f32[%1$s24,24], s32[%1$s24], s32[%2$s])", "", 3, {MATRIX_BYTES, ROW_BYTES, 4}},
  {"lapack_sgeev_ffi", "(f32[%1$s24], f32[%1$s24], c64[%1$s24,24], c64[%1$s24,24], s32[%2$s])", "", 5,
   {ROW_BYTES, ROW_BYTES, 2 * MATRIX_BYTES, 2 * MATRIX_BYTES, 4}},
};

static void run_batched(weft_platform *platform, size_t i, int64_t batch, const float *in, char *out[MOST_RESULTS])
{
  char text[1024], results[512], dims[32] = "", infos[32] = "";
  void *outputs[MOST_RESULTS];
  const void *inputs[] = {in};

  if (batch > 0) snprintf(dims, sizeof dims, "%d,", (int)batch);
  if (batch > 0) snprintf(infos, sizeof infos, "%d", (int)batch);
  snprintf(results, sizeof results, batched[i].results, dims, infos);
  snprintf(
    text, sizeof text,
    "HloModule m\n"
    "ENTRY e {\n"
    "  p = f32[%s24,24] parameter(0)\n"
    "  ROOT r = %s custom-call(p), custom_call_target=\"%s\", api_version=API_VERSION_TYPED_FFI, backend_config={%s}\n"
    "}\n",
    dims, results, batched[i].target, batched[i].config);
  for (int r = 0; r < batched[i].result_count; r++) outputs[r] = out[r];
  weft_executable *exe = test_compile(platform, text, BUF_TOPOLOGICAL);
  T_OK(test_run(exe, inputs, outputs));
  weft_executable_release(exe);
}

/* Threads share a batch; each matrix has the bits that it has alone. */
TEST(a_batch_has_the_bits_of_each_matrix_alone)
{
  enum { MOST_BYTES = 2 * MATRIX_BYTES };
  weft_platform *one = test_platform(1, 1), *many = test_platform(1, 5);
  float *in = malloc((size_t)BATCH * MATRIX_BYTES);
  char *out[MOST_RESULTS], *alone[MOST_RESULTS];
  uint64_t bits = 7;

  T_TRUE(in);
  for (int64_t i = 0; i < (int64_t)BATCH * ORDER * ORDER; i++) {
    bits = bits * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    in[i] = (float)(int32_t)(bits >> 32) * 0x1p-31f;
  }
  for (int r = 0; r < MOST_RESULTS; r++) {
    out[r] = malloc((size_t)BATCH * MOST_BYTES);
    alone[r] = malloc(MOST_BYTES);
    T_TRUE(out[r] && alone[r]);
  }
  for (size_t i = 0; i < WEFT_COUNT(batched); i++) {
    run_batched(many, i, BATCH, in, out);
    for (int64_t m = 0; m < BATCH; m += 4) {
      run_batched(one, i, 0, in + m * ORDER * ORDER, alone);
      for (int r = 0; r < batched[i].result_count; r++)
        if (memcmp(out[r] + (size_t)m * batched[i].bytes[r], alone[r], batched[i].bytes[r]) != 0)
          fail_msg("%s: result %d of matrix %d differs", batched[i].target, r, (int)m);
    }
  }
  for (int r = 0; r < MOST_RESULTS; r++) {
    free(out[r]);
    free(alone[r]);
  }
  free(in);
  weft_platform_release(one);
  weft_platform_release(many);
}

/* A part of a batch finds what is wrong, too. */
TEST(batches_that_do_not_go_together)
{
  weft_platform *platform = test_platform(1, 3);
  float *in = calloc(BATCH, MATRIX_BYTES), *out = calloc(BATCH, MATRIX_BYTES);
  void *outputs[] = {out, out, out};
  const void *inputs[] = {in};

  T_TRUE(in && out);
  weft_executable *exe = test_compile(
    platform,
    "HloModule m\n"
    "ENTRY e {\n"
    "  p = f32[37,24,24] parameter(0)\n"
    "  ROOT r = (f32[37,24,24], f32[37,23], s32[37]) custom-call(p), custom_call_target=\"lapack_ssyevd_ffi\", "
    "api_version=API_VERSION_TYPED_FFI\n"
    "}\n",
    BUF_TOPOLOGICAL);
  weft_status *st = test_run(exe, inputs, outputs);
  T_EQ_INT(weft_status_code(st), WEFT_INVALID_ARGUMENT);
  T_TRUE(strstr(weft_status_text(st, false), "result 1 holds"));
  weft_status_free(st);
  weft_executable_release(exe);
  free(in);
  free(out);
  weft_platform_release(platform);
}

#ifdef HAVE_OPENBLAS
extern char *openblas_get_corename(void);
extern void gotoblas_dynamic_init(void) __attribute__((weak));

/* OpenBLAS takes kernels for SSE3 on processors whose model it does not know. */
TEST(kernels_are_for_the_vectors_of_this_processor)
{
  char missing[64];

  if (gotoblas_dynamic_init && !getenv("OPENBLAS_CORETYPE") && gen_processor_has("avx2,fma", missing))
    T_TRUE(strcmp(openblas_get_corename(), "Prescott") != 0);
}

TEST_MAIN(UNIT(calls_that_do_not_go_together), UNIT(a_batch_has_the_bits_of_each_matrix_alone),
          UNIT(batches_that_do_not_go_together), UNIT(kernels_are_for_the_vectors_of_this_processor))
#else
int main(void)
{
  printf("1..0 # SKIP this build has no OpenBLAS\n");
  return 0;
}
#endif
