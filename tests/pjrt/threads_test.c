/* tests/pjrt/threads_test.c -- Many threads use the same buffers at once: they launch with them and donate them, delete
 * them, copy them to the host and ask about them. Each call ends well or says that the buffer is gone; run under
 * ThreadSanitizer too. */
#include "pjrt/client.h"

#include <pthread.h>

enum { THREADS = 32, BUFFERS = 24, ROUNDS = 6, CALLS = 120, ELEMENTS = 64 };

static const char step[] =
  "module @m {\n"
  "  func.func public @main(%x: tensor<64xf32> {tf.aliasing_output = 0 : i32}) -> tensor<64xf32> {\n"
  "    %one = stablehlo.constant dense<1.0> : tensor<64xf32>\n"
  "    %y = stablehlo.add %x, %one : tensor<64xf32>\n"
  "    return %y : tensor<64xf32>\n"
  "  }\n"
  "}\n";

typedef struct shared {
  PJRT_LoadedExecutable *exe;
  PJRT_Buffer *buffers[BUFFERS];
} shared;

typedef struct worker {
  shared *shared;
  unsigned seed;
  int wrong; /* calls that ended otherwise than they may */
} worker;

/* Takes the status.  A buffer that another thread has deleted or donated is the one error that may be. */
static bool may_be(weft_status *st)
{
  weft_code code = weft_status_code(st);
  bool fine = !st || ((code == WEFT_INVALID_ARGUMENT || code == WEFT_FAILED_PRECONDITION) &&
                      strstr(weft_status_message(st), "deleted or donated"));

  if (!fine) print_message("%s\n", weft_status_text(st, true));
  weft_status_free(st);
  return fine;
}

static bool launch(shared *s, PJRT_Buffer *x)
{
  PJRT_Buffer *y = NULL;
  weft_status *st = execute(s->exe, &x, 1, 1, &y, NULL);
  float values[ELEMENTS];

  if (st) return may_be(st);
  st = buffer_outcome(y);
  bool fine = !st && (read_floats(y, values, ELEMENTS), values[0] == values[ELEMENTS - 1] && values[0] == 1);
  if (!fine) print_message("a launch: %s, %g\n", st ? weft_status_text(st, true) : "OK", st ? 0 : (double)values[0]);
  weft_status_free(st);
  destroy_buffer(y);
  return fine;
}

static bool copy_out(PJRT_Buffer *x)
{
  float values[ELEMENTS];
  PJRT_Buffer_ToHostBuffer_Args args = {.struct_size = sizeof args, .src = x, .dst = values, .dst_size = sizeof values};
  weft_status *st = status_of(GetPjrtApi()->PJRT_Buffer_ToHostBuffer(&args));

  if (st) return may_be(st);
  st = outcome(args.event);
  if (st) return may_be(st);
  return values[0] == 0 && values[ELEMENTS - 1] == 0; /* what was donated is not seen changed */
}

static bool pin(PJRT_Buffer *x)
{
  PJRT_Buffer_IncreaseExternalReferenceCount_Args more = {.struct_size = sizeof more, .buffer = x};
  PJRT_Buffer_DecreaseExternalReferenceCount_Args less = {.struct_size = sizeof less, .buffer = x};
  weft_status *st = status_of(GetPjrtApi()->PJRT_Buffer_IncreaseExternalReferenceCount(&more));

  if (st) { /* it says deleted, in words of its own */
    bool gone = weft_status_code(st) == WEFT_FAILED_PRECONDITION;
    weft_status_free(st);
    return gone;
  }
  return may_be(status_of(GetPjrtApi()->PJRT_Buffer_DecreaseExternalReferenceCount(&less)));
}

static void *work(void *arg)
{
  worker *w = arg;

  for (int i = 0; i < CALLS; i++) {
    PJRT_Buffer *x = w->shared->buffers[rand_r(&w->seed) % BUFFERS];
    switch (rand_r(&w->seed) % 16) {
    case 0: CALL(Buffer_Delete, .buffer = x); break;
    case 1: case 2: w->wrong += !launch(w->shared, x); break;
    case 3: case 4: case 5: w->wrong += !pin(x); break;
    case 6: case 7: (void)CALL(Buffer_IsDeleted, .buffer = x).is_deleted; break;
    case 8: w->wrong += CALL(Buffer_Dimensions, .buffer = x).num_dims != 1; break;
    case 9: w->wrong += !may_be(buffer_outcome(x)); break;
    default: w->wrong += !copy_out(x); break;
    }
  }
  return NULL;
}

static void round_of(PJRT_Client *client, shared *s, unsigned seed)
{
  static const int64_t dims[] = {ELEMENTS};
  static const float zeros[ELEMENTS];
  pthread_t threads[THREADS];
  worker workers[THREADS];

  for (int i = 0; i < BUFFERS; i++) s->buffers[i] = make_floats(client, zeros, dims, 1, NULL);
  for (int i = 0; i < THREADS; i++) {
    workers[i] = (worker){.shared = s, .seed = seed * THREADS + (unsigned)i};
    assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
  }
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < THREADS; i++) T_EQ_INT(workers[i].wrong, 0);
  for (int i = 0; i < BUFFERS; i++) destroy_buffer(s->buffers[i]);
}

TEST(threads_that_donate_delete_and_read_the_same_buffers_get_values_or_errors)
{
  PJRT_Client *client = make_client(1);
  shared s = {.exe = compile(client, step)};

  for (unsigned seed = 1; seed <= ROUNDS; seed++) round_of(client, &s, seed);
  CALL(LoadedExecutable_Destroy, .executable = s.exe);
  CALL(Client_Destroy, .client = client);
}

TEST_MAIN(UNIT(threads_that_donate_delete_and_read_the_same_buffers_get_values_or_errors))
