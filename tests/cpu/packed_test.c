/* tests/cpu/packed_test.c -- packed forms of weights: they change no bit, and
 * end when their operand ends or changes. */
#include "cpu/run.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/runtime_internal.h"

enum { M = 24, K = 520, N = 528 }; /* larger than the caches near a core, so that products gain by packing */

static const weft_array_type x_type = {.type = WEFT_F32, .rank = 2, .dims = {M, K}};
static const weft_array_type w_type = {.type = WEFT_F32, .rank = 2, .dims = {K, N}};

#define DOT "dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
#define PRODUCT                                                                              \
  "HloModule product\n" \
  "ENTRY e {\n" \
  "  x = f32[24,520] parameter(0)\n" \
  "  w = f32[520,528] parameter(1)\n" \
  "  ROOT y = f32[24,528] " \
  DOT \
  " }\n"
/* w + w, in the memory of w if it is donated. */
#define DOUBLE                                                                               \
  "HloModule twice, input_output_alias={ {}: (0, {}, may-alias) }\n" \
  "ENTRY e {\n" \
  "  w = f32[520,528] parameter(0)\n" \
  "  ROOT v = f32[520,528] add(w, w)\n" \
  "}\n"

static float x_data[M * K], w_data[K * N];

/* Whole numbers below 8, so that products of f32 are exact in any order. */
static void fill_data(void)
{
  for (int i = 0; i < M * K; i++) x_data[i] = (float)(i * 7 % 15 - 7);
  for (int i = 0; i < K * N; i++) w_data[i] = (float)(i * 11 % 13 - 6);
}

static void check(const float *y, float factor)
{
  for (int i = 0; i < M; i += 5)
    for (int j = 0; j < N; j += 37) {
      double want = 0;
      for (int l = 0; l < K; l++) want += (double)x_data[i * K + l] * (double)w_data[l * N + j];
      T_TRUE((double)y[i * N + j] == want * (double)factor);
    }
}

static void run_product(weft_executable *exe, weft_buffer *x, weft_buffer *w, float factor)
{
  static float y[M * N];
  weft_buffer *in[] = {x, w}, *out[1];
  weft_buffer *const *ins[] = {in};
  weft_buffer **outs[] = {out};

  T_OK(weft_executable_launch(exe, &(weft_launch){.inputs = ins, .outputs = outs}));
  T_OK(weft_buffer_to_host(out[0], y, weft_deadline_after_ms(60000)));
  weft_buffer_release(out[0]);
  check(y, factor);
}

typedef struct fixture {
  weft_platform *platform;
  weft_executable *exe;
  weft_buffer *x, *w;
  int64_t form_bytes; /* of w */
} fixture;

static fixture begin(void)
{
  fixture f = {.platform = test_platform(1, 2)};

  fill_data();
  f.exe = test_compile(f.platform, PRODUCT, BUF_TOPOLOGICAL);
  f.x = test_buffer(weft_platform_device(f.platform, 0), &x_type, x_data);
  f.w = test_buffer(weft_platform_device(f.platform, 0), &w_type, w_data);
  f.form_bytes = weft_executable_packed_bytes(f.exe, true);
  T_TRUE(weft_executable_packed_bytes(f.exe, false) == 0);
  return f;
}

static void end(fixture *f)
{
  weft_buffer_release(f->x);
  weft_buffer_release(f->w);
  weft_executable_release(f->exe);
  T_TRUE(rt_packed_bytes(f->platform) == 0);
  weft_platform_release(f->platform);
}

#define BEGIN(f)                                                \
  fixture f = begin();                                          \
  if (f.form_bytes == 0) {                                      \
    end(&f);                                                    \
    T_SKIP("no kernel of this processor has a packed form");    \
  }

TEST(a_parameter_that_comes_again_is_packed)
{
  BEGIN(f);
  int64_t in_use;

  T_TRUE(f.form_bytes >= (int64_t)sizeof w_data);
  run_product(f.exe, f.x, f.w, 1);
  T_TRUE(rt_packed_bytes(f.platform) == 0);
  in_use = weft_device_memory(weft_platform_device(f.platform, 0)).bytes_in_use;
  for (int i = 0; i < 3; i++) {
    run_product(f.exe, f.x, f.w, 1);
    T_TRUE(rt_packed_bytes(f.platform) == f.form_bytes);
  }
  T_TRUE(weft_device_memory(weft_platform_device(f.platform, 0)).bytes_in_use >= in_use + f.form_bytes);
  weft_buffer_delete(f.w);
  T_TRUE(rt_packed_bytes(f.platform) == 0);
  T_TRUE(weft_device_memory(weft_platform_device(f.platform, 0)).bytes_in_use <= in_use);
  end(&f);
}

TEST(programs_share_a_form)
{
  BEGIN(f);
  weft_executable *other = test_compile(f.platform, PRODUCT, BUF_SEQUENTIAL);

  run_product(f.exe, f.x, f.w, 1);
  run_product(other, f.x, f.w, 1);
  T_TRUE(rt_packed_bytes(f.platform) == f.form_bytes);
  run_product(f.exe, f.x, f.w, 1);
  T_TRUE(rt_packed_bytes(f.platform) == f.form_bytes);
  weft_executable_release(f.exe); /* the form does not need the program that made it */
  f.exe = other;
  run_product(f.exe, f.x, f.w, 1);
  end(&f);
}

TEST(a_donated_weight_loses_its_form)
{
  BEGIN(f);
  weft_executable *twice = test_compile(f.platform, DOUBLE, BUF_TOPOLOGICAL);

  for (int i = 0; i < 2; i++) run_product(f.exe, f.x, f.w, 1);
  T_TRUE(rt_packed_bytes(f.platform) == f.form_bytes);
  for (float factor = 2; factor <= 8; factor *= 2) {
    weft_buffer *out;
    weft_buffer *const *ins[] = {&f.w};
    weft_buffer **outs[] = {&out};
    T_OK(weft_executable_launch(twice, &(weft_launch){.inputs = ins, .outputs = outs}));
    T_TRUE(weft_buffer_is_deleted(f.w));
    weft_buffer_release(f.w);
    f.w = out;
    run_product(f.exe, f.x, f.w, factor);
    T_TRUE(rt_packed_bytes(f.platform) == 0);
    run_product(f.exe, f.x, f.w, factor);
    T_TRUE(rt_packed_bytes(f.platform) == f.form_bytes);
  }
  weft_executable_release(twice);
  end(&f);
}

TEST(a_weight_that_others_may_write_to_is_not_packed)
{
  BEGIN(f);
  void *data;

  for (int i = 0; i < 2; i++) run_product(f.exe, f.x, f.w, 1);
  T_OK(weft_buffer_pin(f.w, &data));
  T_TRUE(rt_packed_bytes(f.platform) == 0);
  for (int i = 0; i < K * N; i++) ((float *)data)[i] *= 2;
  for (int i = 0; i < 3; i++) run_product(f.exe, f.x, f.w, 2);
  T_TRUE(rt_packed_bytes(f.platform) == 0);
  T_OK(weft_buffer_unpin(f.w));
  end(&f);
}

TEST(bytes_that_are_written_lose_their_form)
{
  BEGIN(f);
  weft_storage *storage;
  static float twice[K * N];

  for (int i = 0; i < 2; i++) run_product(f.exe, f.x, f.w, 1);
  for (int i = 0; i < K * N; i++) twice[i] = 2 * w_data[i];
  T_OK(weft_buffer_storage(f.w, &storage));
  T_OK(weft_storage_write(storage, 0, twice, sizeof twice));
  weft_storage_release(storage);
  for (int i = 0; i < 3; i++) run_product(f.exe, f.x, f.w, 2);
  T_TRUE(rt_packed_bytes(f.platform) == f.form_bytes);
  end(&f);
}

static void nothing(void *ctx) { (void)ctx; }

TEST(views_are_packed_if_their_owner_keeps_the_bytes)
{
  BEGIN(f);

  for (int keeps = 0; keeps < 2; keeps++) {
    weft_storage *storage;
    void *data = aligned_alloc(64, sizeof w_data);
    T_TRUE(data);
    memcpy(data, w_data, sizeof w_data);
    T_OK(weft_storage_view(weft_platform_device(f.platform, 0), data, sizeof w_data, nothing, NULL, &storage));
    if (keeps) weft_storage_keep(storage);
    weft_buffer_release(f.w);
    T_OK(weft_buffer_new(weft_platform_device(f.platform, 0), &w_type, storage, NULL, &f.w));
    weft_storage_release(storage);
    for (int i = 0; i < 3; i++) run_product(f.exe, f.x, f.w, 1);
    T_TRUE(rt_packed_bytes(f.platform) == (keeps ? f.form_bytes : 0));
    weft_buffer_delete(f.w);
    free(data);
  }
  end(&f);
}

TEST(forms_are_dropped_when_memory_is_short)
{
  BEGIN(f);

  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < 2; i++) run_product(f.exe, f.x, f.w, 1);
    T_TRUE(rt_packed_bytes(f.platform) == f.form_bytes);
    T_TRUE(rt_packed_trim(f.platform));
    T_TRUE(rt_packed_bytes(f.platform) == 0);
    T_TRUE(!rt_packed_trim(f.platform));
  }
  end(&f);
}

TEST(no_form_is_made_beyond_the_limit)
{
  setenv("WEFT_PACKED_BYTES", "1000000", 1);
  BEGIN(f);
  unsetenv("WEFT_PACKED_BYTES");

  T_TRUE(f.form_bytes > 1000000);
  for (int i = 0; i < 3; i++) run_product(f.exe, f.x, f.w, 1);
  T_TRUE(rt_packed_bytes(f.platform) == 0);
  end(&f);
}

TEST(constants_are_packed_in_the_first_run)
{
  BEGIN(f);
  char *text;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  static float y[M * N];

  T_TRUE(out);
  fprintf(out, "HloModule constant\n"
               "ENTRY e {\n"
               "  x = f32[24,512] parameter(0)\n"
               "  w = f32[512,508] constant({");
  for (int l = 0; l < 512; l++) {
    fprintf(out, "%s{", l ? "," : "");
    for (int j = 0; j < 508; j++) fprintf(out, "%s%d", j ? "," : "", j % 5);
    fprintf(out, "}");
  }
  fprintf(out, "})\n ROOT y = f32[24,508] " DOT " }\n");
  fclose(out);
  weft_executable *exe = test_compile(f.platform, text, BUF_TOPOLOGICAL);
  free(text);
  int64_t bytes = weft_executable_packed_bytes(exe, false);

  T_TRUE(bytes >= 512 * 508 * (int64_t)sizeof(float));
  for (int i = 0; i < 2; i++) {
    T_OK(test_run(exe, (const void *[]){x_data}, (void *[]){y}));
    T_TRUE(rt_packed_bytes(f.platform) == bytes);
    for (int r = 0; r < M; r++)
      for (int j = 0; j < 508; j++) {
        float want = 0;
        for (int l = 0; l < 512; l++) want += x_data[r * 512 + l] * (float)(j % 5);
        T_TRUE(y[r * 508 + j] == want);
      }
  }
  weft_executable_release(exe);
  end(&f);
}

TEST(a_loop_reads_the_form_of_its_weight)
{
  static const char text[] =
    "HloModule loop\n"
    "body {\n"
    "  s = (s32[], f32[24,520], f32[520,528], f32[24,528]) parameter(0)\n"
    "  i = s32[] get-tuple-element(s), index=0\n"
    "  x = f32[24,520] get-tuple-element(s), index=1\n"
    "  w = f32[520,528] get-tuple-element(s), index=2\n"
    "  one = s32[] constant(1)\n"
    "  n = s32[] add(i, one)\n"
    "  y = f32[24,528] " DOT "\n"
    "  ROOT t = (s32[], f32[24,520], f32[520,528], f32[24,528]) tuple(n, x, w, y)\n"
    "}\n"
    "cond {\n"
    "  s = (s32[], f32[24,520], f32[520,528], f32[24,528]) parameter(0)\n"
    "  i = s32[] get-tuple-element(s), index=0\n"
    "  three = s32[] constant(3)\n"
    "  ROOT p = pred[] compare(i, three), direction=LT\n"
    "}\n"
    "ENTRY e {\n"
    "  x = f32[24,520] parameter(0)\n"
    "  w = f32[520,528] parameter(1)\n"
    "  z = s32[] constant(0)\n"
    "  f = f32[] constant(0)\n"
    "  b = f32[24,528] broadcast(f), dimensions={}\n"
    "  t = (s32[], f32[24,520], f32[520,528], f32[24,528]) tuple(z, x, w, b)\n"
    "  l = (s32[], f32[24,520], f32[520,528], f32[24,528]) while(t), body=body, condition=cond\n"
    "  ROOT r = f32[24,528] get-tuple-element(l), index=3\n"
    "}\n";
  BEGIN(f);

  weft_executable_release(f.exe);
  f.exe = test_compile(f.platform, text, BUF_TOPOLOGICAL);
  T_TRUE(weft_executable_packed_bytes(f.exe, true) == f.form_bytes);
  for (int i = 0; i < 3; i++) run_product(f.exe, f.x, f.w, 1);
  T_TRUE(rt_packed_bytes(f.platform) == f.form_bytes);
  end(&f);
}

static void *run_often(void *arg)
{
  const fixture *f = arg;
  static _Thread_local float y[M * N];

  for (int i = 0; i < 20; i++) {
    weft_buffer *in[] = {f->x, f->w}, *out[1];
    weft_buffer *const *ins[] = {in};
    weft_buffer **outs[] = {out};
    T_OK(weft_executable_launch(f->exe, &(weft_launch){.inputs = ins, .outputs = outs}));
    T_OK(weft_buffer_to_host(out[0], y, weft_deadline_after_ms(60000)));
    weft_buffer_release(out[0]);
    check(y, 1);
    rt_packed_trim(f->platform);
  }
  return NULL;
}

TEST(several_threads_make_and_drop_forms)
{
  BEGIN(f);
  pthread_t threads[3];

  for (int i = 0; i < 3; i++) T_TRUE(pthread_create(&threads[i], NULL, run_often, &f) == 0);
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
  end(&f);
}

static bool pack_nothing(const rt_packing *packing, rt_pool *pool, const void *from, void *to)
{
  (void)packing, (void)pool, (void)from, (void)to;
  return false;
}

TEST(a_form_that_cannot_be_made_is_not_read)
{
  BEGIN(f);
  rt_packing packing = {.key = "none", .key_bytes = 5, .bytes = 64, .pack = pack_nothing};
  rt_packed_set set = {.first = NULL};

  for (int i = 0; i < 3; i++)
    T_TRUE(!rt_packed_get(weft_platform_device(f.platform, 0), &set, &packing, 0, w_data, true));
  T_EQ_INT(rt_packed_bytes(f.platform), 0);
  rt_packed_drop(f.platform, &set);
  end(&f);
}

TEST_MAIN(UNIT(a_form_that_cannot_be_made_is_not_read), UNIT(a_parameter_that_comes_again_is_packed), UNIT(programs_share_a_form), UNIT(a_donated_weight_loses_its_form), UNIT(a_weight_that_others_may_write_to_is_not_packed), UNIT(bytes_that_are_written_lose_their_form), UNIT(views_are_packed_if_their_owner_keeps_the_bytes), UNIT(forms_are_dropped_when_memory_is_short), UNIT(no_form_is_made_beyond_the_limit), UNIT(constants_are_packed_in_the_first_run), UNIT(a_loop_reads_the_form_of_its_weight), UNIT(several_threads_make_and_drop_forms))
