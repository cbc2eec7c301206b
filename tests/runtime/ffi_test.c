/* tests/runtime/ffi_test.c -- Custom calls by XLA's typed FFI. */
#include "test.h"

#include <math.h>
#include <pthread.h>

#include "platform/registry.h"
#include "hlo/text.h"
#include "runtime/ffi.h"

/* ---- the ABI: sizes and offsets of xla/ffi/api/c_api.h on a 64-bit machine ---- */

TEST(structures_have_the_sizes_of_the_abi)
{
  T_EQ_INT(sizeof(XLA_FFI_Extension_Base), 24);
  T_EQ_INT(sizeof(XLA_FFI_Api_Version), 24);
  T_EQ_INT(sizeof(XLA_FFI_Buffer), 48);
  T_EQ_INT(offsetof(XLA_FFI_Buffer, dims), 40);
  T_EQ_INT(sizeof(XLA_FFI_Args), 40);
  T_EQ_INT(sizeof(XLA_FFI_Attrs), 48);
  T_EQ_INT(offsetof(XLA_FFI_CallFrame, args), 40);
  T_EQ_INT(offsetof(XLA_FFI_CallFrame, attrs), 120);
  T_EQ_INT(sizeof(XLA_FFI_CallFrame), 176);
  T_EQ_INT(sizeof(XLA_FFI_Metadata), 48);
  T_EQ_INT(offsetof(XLA_FFI_Api, XLA_FFI_Error_Create), 48);
  T_EQ_INT(sizeof(XLA_FFI_Api), 48 + 18 * 8);
  T_EQ_INT(rt_ffi_api()->struct_size, sizeof(XLA_FFI_Api));
}

/* ---- attributes ---- */

TEST(attributes_are_read_typed_and_sorted)
{
  static const char text[] =
    "{uplo = 76 : ui8, name = \"a\\22b\", left = true, alpha = 1.5, n = -3, f = 2.0 : f32, "
    "list = array<i32: 1, 2, 3>, d = dense<[4, 5]> : tensor<2xi64>, sub = {x = 1}, \"odd key\" = [7, 8], flag}";
  static const char *const names[] = {"alpha", "d", "f", "flag", "left", "list", "n", "name", "odd key", "sub", "uplo"};
  weft_arena arena;
  XLA_FFI_Attrs attrs;

  weft_arena_init(&arena);
  T_OK(rt_ffi_attrs_parse(&arena, text, &attrs));
  T_EQ_INT(attrs.size, WEFT_COUNT(names));
  for (int i = 0; i < (int)attrs.size; i++) {
    if (attrs.names[i]->len != strlen(names[i]) || memcmp(attrs.names[i]->ptr, names[i], attrs.names[i]->len) != 0)
      fail_msg("name %d: got %.*s, want %s", i, (int)attrs.names[i]->len, attrs.names[i]->ptr, names[i]);
  }
  const XLA_FFI_Scalar *alpha = attrs.attrs[0], *f = attrs.attrs[2], *left = attrs.attrs[4], *n = attrs.attrs[6],
                       *uplo = attrs.attrs[10];
  T_EQ_INT(alpha->dtype, 12);
  T_TRUE(*(double *)alpha->value == 1.5);
  T_EQ_INT(f->dtype, 11);
  T_TRUE(*(float *)f->value == 2);
  T_EQ_INT(left->dtype, 1);
  T_EQ_INT(*(uint8_t *)left->value, 1);
  T_EQ_INT(*(int64_t *)n->value, -3);
  T_EQ_INT(uplo->dtype, 6);
  T_EQ_INT(*(uint8_t *)uplo->value, 76);
  const XLA_FFI_Array *d = attrs.attrs[1], *list = attrs.attrs[5];
  T_EQ_INT(d->size, 2);
  T_EQ_INT(((int64_t *)d->data)[1], 5);
  T_EQ_INT(list->dtype, 4);
  T_EQ_INT(((int32_t *)list->data)[2], 3);
  const XLA_FFI_ByteSpan *name = attrs.attrs[7];
  T_TRUE(name->len == 3 && memcmp(name->ptr, "a\"b", 3) == 0);
  T_EQ_INT(attrs.types[9], XLA_FFI_AttrType_DICTIONARY);
  T_EQ_INT(((const XLA_FFI_Attrs *)attrs.attrs[9])->size, 1);
  weft_arena_fini(&arena);
}

TEST(dense_attributes_in_all_their_forms)
{
  static const char text[] =
    "{a = dense<\"0x01000000FEFFFFFF\"> : tensor<2xi32>, b = dense<7> : tensor<3xi16>, c = dense<> : tensor<0xf32>, "
    "d = dense<\"0xff\"> : tensor<2x2xi8>, e = 0x7F800000 : f32, f = array<f64: 0xFFF0000000000000, 1.0>}";
  weft_arena arena;
  XLA_FFI_Attrs attrs;

  weft_arena_init(&arena);
  T_OK(rt_ffi_attrs_parse(&arena, text, &attrs));
  const XLA_FFI_Array *a = attrs.attrs[0], *b = attrs.attrs[1], *c = attrs.attrs[2], *d = attrs.attrs[3],
                      *f = attrs.attrs[5];
  const XLA_FFI_Scalar *e = attrs.attrs[4];
  T_EQ_INT(a->size, 2);
  T_EQ_INT(((const int32_t *)a->data)[1], -2);
  T_EQ_INT(b->size, 3);
  T_EQ_INT(((const int16_t *)b->data)[2], 7);
  T_EQ_INT(c->size, 0);
  T_EQ_INT(d->size, 4);
  T_EQ_INT(((const int8_t *)d->data)[3], -1);
  T_TRUE(*(const float *)e->value == INFINITY);
  T_TRUE(((const double *)f->data)[0] == -INFINITY && ((const double *)f->data)[1] == 1);
  weft_arena_fini(&arena);
}

TEST(bad_attributes_are_errors_that_point_at_the_fault)
{
  static const struct { const char *text, *error; } cases[] = {
    {"{", "expected a name at byte 1"},        {"{a = }", "expected a value"},     {"{a = 1 : q7}", "unknown element type"},
    {"{a = \"x", "string without end"},        {"{a = 1, a = 2}", "twice"},        {"{a = 1} b", "text after"},
    {"{a = array<i32: 1", "expected '>'"},     {"{a = dense<[1]> : tensor<3xi32>}", "another length"},
    {"a", "expected '{'"},                     {"{a = dense<\"0x01\"> : tensor<2xi16>}", "another length"},
    {"{a = dense<\"0x0\"> : tensor<1xi8>}", "another length"}, {"{a = dense<1> : tensor<9999999xi8>}", "too many elements"},
    {"{a = dense<> : tensor<2xi8>}", "another length"},        {"{a = dense<1, 2> : tensor<2xi8>}", "another length"},
    {"{a={a={a={a={a={a={a={a={a={a={a={a={a={a={a={a={a={a={}}}}}}}}}}}}}}}}}}}", "too deep"},
  };

  for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
    weft_arena arena;
    XLA_FFI_Attrs attrs;
    weft_arena_init(&arena);
    T_FAILS(rt_ffi_attrs_parse(&arena, cases[i].text, &attrs), cases[i].error);
    weft_arena_fini(&arena);
  }
}

/* ---- handlers in programs ---- */

static int64_t counter_type;
static int freed;
static void free_counter(void *counter)
{
  freed++;
  free(counter);
}

static XLA_FFI_Error *scale_instantiate(XLA_FFI_CallFrame *frame)
{
  XLA_FFI_TypeId id = {counter_type};
  XLA_FFI_State_Set_Args args = {.struct_size = sizeof args, .ctx = frame->ctx, .stage = frame->stage, .type_id = &id,
                                 .state = calloc(1, sizeof(int))};
  return frame->api->XLA_FFI_State_Set(&args);
}

/* y = by * x + calls before this one. */
static XLA_FFI_Error *scale_execute(XLA_FFI_CallFrame *frame)
{
  XLA_FFI_TypeId id = {counter_type};
  XLA_FFI_State_Get_Args state = {.struct_size = sizeof state, .ctx = frame->ctx, .type_id = &id};
  const XLA_FFI_Buffer *x = frame->args.args[0], *y = frame->rets.rets[0];
  float by = *(const float *)((const XLA_FFI_Scalar *)frame->attrs.attrs[0])->value;
  XLA_FFI_Error *error = frame->api->XLA_FFI_State_Get(&state);

  if (error) return error;
  int calls = (*(int *)state.state)++;
  for (int64_t i = 0; i < x->dims[0]; i++) ((float *)y->data)[i] = by * ((const float *)x->data)[i] + (float)calls;
  return NULL;
}

static int instantiated;
static XLA_FFI_Error *counted_instantiate(XLA_FFI_CallFrame *frame)
{
  instantiated++;
  return scale_instantiate(frame);
}

static XLA_FFI_Error *failing(XLA_FFI_CallFrame *frame)
{
  XLA_FFI_Error_Create_Args args = {.struct_size = sizeof args, .message = "no luck today", .errc = WEFT_FAILED_PRECONDITION};
  return frame->api->XLA_FFI_Error_Create(&args);
}

/* Ends on a thread of its own. */
typedef struct later { XLA_FFI_CallFrame frame; pthread_t thread; } later;
static void *finish_later(void *arg)
{
  later *l = arg;
  const XLA_FFI_Buffer *x = l->frame.args.args[0], *y = l->frame.rets.rets[0];
  XLA_FFI_Future_SetAvailable_Args args = {.struct_size = sizeof args, .future = l->frame.future};

  nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
  memcpy(y->data, x->data, 4 * (size_t)x->dims[0]);
  (void)l->frame.api->XLA_FFI_Future_SetAvailable(&args);
  free(l);
  return NULL;
}
static XLA_FFI_Error *asynchronous(XLA_FFI_CallFrame *frame)
{
  XLA_FFI_Future_Create_Args args = {.struct_size = sizeof args};
  later *l = malloc(sizeof *l);

  if (!l) return NULL;
  XLA_FFI_Error *error = frame->api->XLA_FFI_Future_Create(&args);
  frame->future = args.future;
  l->frame = *frame;
  pthread_attr_t detached;
  pthread_attr_init(&detached);
  pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
  pthread_create(&l->thread, &detached, finish_later, l);
  pthread_attr_destroy(&detached);
  return error;
}

static weft_status *run_call(const char *target, const char *config, float *out, int runs)
{
  char text[512];
  hlo_module *module;
  weft_platform *platform;
  weft_executable *exe;
  const float x[4] = {1, 2, 3, 4};
  weft_array_type type = {.type = WEFT_F32, .rank = 1, .dims = {4}};
  weft_status *st = NULL;

  snprintf(text, sizeof text,
           "HloModule m\n"
           "ENTRY e {\n"
           "  a = f32[4] parameter(0)\n"
           "  ROOT r = f32[4] custom-call(a), "
           "custom_call_target=\"%s\", api_version=API_VERSION_TYPED_FFI, backend_config=%s\n}\n",
           target, config);
  WEFT_TRY(hlo_parse(text, strlen(text), &module));
  WEFT_TRY(plat_new(&(weft_platform_options){.device_count = 1, .threads = 2}, &platform));
  st = weft_compile(platform, module, &(weft_compile_options){0}, &exe);
  for (int i = 0; i < runs && !st; i++) {
    weft_buffer *in[1], *result[1];
    weft_buffer *const *ins[] = {in};
    weft_buffer **outs[] = {result};
    T_OK(weft_buffer_from_host(weft_platform_device(platform, 0), &type, x, &in[0]));
    T_OK(weft_executable_launch(exe, &(weft_launch){.inputs = ins, .outputs = outs}));
    st = weft_buffer_to_host(result[0], out, weft_deadline_after_ms(20000));
    weft_buffer_release(in[0]);
    weft_buffer_release(result[0]);
    if (st || i + 1 == runs) weft_executable_release(exe);
  }
  weft_platform_release(platform);
  return st;
}

static void register_handler(const char *name, const XLA_FFI_Handler_Bundle *bundle)
{
  T_OK(rt_ffi_register(name, strlen(name), bundle));
}

TEST(a_handler_reads_attributes_and_keeps_state)
{
  float y[4];

  T_OK(rt_ffi_type_register("counter", 7, &counter_type, free_counter));
  register_handler("scale", &(XLA_FFI_Handler_Bundle){.instantiate = scale_instantiate, .execute = scale_execute});
  T_OK(run_call("scale", "{by = 2.5 : f32}", y, 3));
  T_TRUE(y[0] == 2.5f + 2 && y[3] == 10 + 2);
  T_EQ_INT(freed, 1);
}

/* The memory of such a program is planned twice: the second plan knows that the steps run one after the other. */
TEST(a_handler_is_instantiated_once_and_its_state_freed_once)
{
  enum { N = 1 << 16 };
  const char *text =
    "HloModule m\n"
    "ENTRY e {\n"
    "  a = f32[65536] parameter(0)\n"
    "  b = f32[65536] custom-call(a), custom_call_target=\"counted\", api_version=API_VERSION_TYPED_FFI, backend_config={by = 2.0 : f32}\n"
    "  c = f32[65536] custom-call(b), custom_call_target=\"counted\", api_version=API_VERSION_TYPED_FFI, backend_config={by = 2.0 : f32}\n"
    "  ROOT d = f32[65536] custom-call(c), custom_call_target=\"counted\", api_version=API_VERSION_TYPED_FFI, backend_config={by = 2.0 : f32}\n"
    "}\n";
  weft_array_type type = {.type = WEFT_F32, .rank = 1, .dims = {N}};
  static float x[N], y[N];
  hlo_module *module;
  weft_platform *platform;
  weft_executable *exe;
  weft_buffer *in[1], *result[1];
  weft_buffer *const *ins[] = {in};
  weft_buffer **outs[] = {result};

  T_OK(rt_ffi_type_register("counter", 7, &counter_type, free_counter));
  register_handler("counted", &(XLA_FFI_Handler_Bundle){.instantiate = counted_instantiate, .execute = scale_execute});
  for (int i = 0; i < N; i++) x[i] = (float)i;
  freed = 0;
  T_OK(hlo_parse(text, strlen(text), &module));
  T_OK(plat_new(&(weft_platform_options){.device_count = 1, .threads = 2}, &platform));
  T_OK(weft_compile(platform, module, &(weft_compile_options){0}, &exe));
  T_EQ_INT(instantiated, 3);
  T_OK(weft_buffer_from_host(weft_platform_device(platform, 0), &type, x, &in[0]));
  T_OK(weft_executable_launch(exe, &(weft_launch){.inputs = ins, .outputs = outs}));
  T_OK(weft_buffer_to_host(result[0], y, weft_deadline_after_ms(20000)));
  for (int i = 0; i < N; i++) T_TRUE(y[i] == 8 * x[i]);
  weft_buffer_release(in[0]);
  weft_buffer_release(result[0]);
  T_EQ_INT(freed, 0);
  weft_executable_release(exe);
  T_EQ_INT(instantiated, 3);
  T_EQ_INT(freed, 3);
  weft_platform_release(platform);
}

TEST(an_error_of_a_handler_is_the_error_of_the_run)
{
  float y[4];

  register_handler("failing", &(XLA_FFI_Handler_Bundle){.execute = failing});
  weft_status *st = run_call("failing", "{}", y, 1);
  T_EQ_INT(weft_status_code(st), WEFT_FAILED_PRECONDITION);
  T_FAILS(st, "no luck today");
}

TEST(a_handler_may_end_later)
{
  float y[4];

  register_handler("later", &(XLA_FFI_Handler_Bundle){.execute = asynchronous});
  T_OK(run_call("later", "{}", y, 2));
  T_TRUE(y[0] == 1 && y[3] == 4);
}

TEST(an_unknown_target_is_named)
{
  float y[4];
  T_FAILS(run_call("nobody_knows", "{}", y, 1), "nobody_knows");
}

TEST_MAIN(UNIT(structures_have_the_sizes_of_the_abi), UNIT(attributes_are_read_typed_and_sorted), UNIT(dense_attributes_in_all_their_forms),
          UNIT(bad_attributes_are_errors_that_point_at_the_fault), UNIT(a_handler_reads_attributes_and_keeps_state),
          UNIT(a_handler_is_instantiated_once_and_its_state_freed_once),
          UNIT(an_error_of_a_handler_is_the_error_of_the_run), UNIT(a_handler_may_end_later), UNIT(an_unknown_target_is_named))
