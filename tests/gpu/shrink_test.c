/* tests/gpu/shrink_test.c -- processes with an emulated GPU each, of which some are killed: the others go on with a
 * communicator that is shrunk from the old one, or with a new one where that cannot be.
 *
 * A case forks one process for each rank.  Each makes a communicator of all ranks and adds.  Then, victim by victim: it
 * kills itself, the others see their sum fail, and make the communicator of those that are left, which adds again. */
#include "collective/gpus.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "base/kv.h"
#include "gpu/heritage.h"

enum { MOST = 4, TEXT = 400, DEADLINE_MS = 6000, SLACK_MS = 4000, LIMIT_S = 60 };

typedef struct test_case {
  int size, victims[MOST], victim_count;
  int faulty;                     /* the rank with faults and settings of its own; -1: all ranks */
  const char *faults;             /* WEFT_EMU_FAULTS or NULL */
  const char *name, *value;       /* a variable, or NULL */
  bool forgets;                   /* the faulty rank destroys the old communicator first */
} test_case;

/* What a rank tells the test, in shared memory. */
typedef struct outcome {
  bool ended;
  atomic_int sums;                /* communicators that have added */
  unsigned long shrinks, revokes, inits, windows, ended_windows;
  int64_t most_ms;                /* the longest creation of a communicator of survivors */
  char text[TEXT];                /* what went wrong, or empty */
} outcome;

static outcome *outcomes; /* [MOST] */
static char directory[] = "/tmp/weft-shrink-XXXXXX";
static uint64_t (*emu_calls)(const char *call);

static weft_status *sum(weft_comm *comm, float *out)
{
  float in = (float)(1 << gpus_device(comm)->id);
  gpu_operands staged;
  weft_coll_op op = {.kind = WEFT_ALL_REDUCE, .dtype = WEFT_F32, .count = 1, .reduction = WEFT_SUM, .send = &in,
                     .recv = out};
  weft_coll_op on_device = gpus_stage(comm, &op, &staged);
  weft_status *st = weft_coll_run(comm, &on_device, NULL);

  gpus_unstage(&staged);
  return st;
}

static weft_status *join(weft_kv *kv, const char *name, const int64_t *devices, int size, int own, weft_comm **out)
{
  weft_comm_spec spec = {.kv = kv, .name = name, .size = size, .rank_count = 1, .device_ids = devices,
                         .deadline = weft_deadline_after_ms(DEADLINE_MS)};
  int rank = 0;

  while (devices[rank] != own) rank++;
  spec.ranks = &rank;
  gpus_bring(&spec);
  return weft_comm_create(&spec, out);
}

static weft_status *check_sum(weft_comm *comm, const int64_t *devices, int size)
{
  float got = 0, want = 0;

  for (int r = 0; r < size; r++) want += (float)(1 << devices[r]);
  for (int i = 0; i < 2; i++) {
    WEFT_TRY(sum(comm, &got));
    if (got != want) return WEFT_ERR(INTERNAL, "the sum is %g, not %g", (double)got, (double)want);
  }
  return NULL;
}

/* An operation may have ended for the victim, and not yet for the others. */
static void die_after_others(const test_case *t, int v)
{
  for (int r = 0; r < t->size; r++) {
    bool dead = false;
    for (int i = 0; i < v; i++) dead |= t->victims[i] == r;
    while (!dead && r != t->victims[v] && atomic_load(&outcomes[r].sums) <= v) usleep(500);
  }
  kill(getpid(), SIGKILL);
}

static weft_status *live(const test_case *t, int own, outcome *o)
{
  int64_t devices[MOST];
  weft_kv *kv;
  weft_comm *comms[MOST + 1] = {NULL};
  weft_status *st = NULL;
  char name[32];
  int size = t->size;

  for (int d = 0; d < size; d++) devices[d] = d;
  WEFT_TRY(weft_kv_file_new(directory, &kv));
  WEFT_TRY(join(kv, "all", devices, size, own, &comms[0]));
  WEFT_TRY(check_sum(comms[0], devices, size));
  for (int v = 0; v < t->victim_count && !st; v++) {
    float ignored;
    atomic_store(&o->sums, v + 1);
    if (t->victims[v] == own) die_after_others(t, v);
    weft_status *lost = sum(comms[v], &ignored);
    if (!lost) return WEFT_ERR(INTERNAL, "a sum with a dead rank has ended well");
    weft_status_free(lost);
    if (t->forgets && own == t->faulty) weft_comm_destroy(WEFT_MOVE(comms[v]));
    int kept = 0;
    for (int d = 0; d < size; d++)
      if (devices[d] != t->victims[v]) devices[kept++] = devices[d];
    size = kept;
    snprintf(name, sizeof name, "rest%d", v);
    int64_t began = weft_now_ns();
    st = join(kv, name, devices, size, own, &comms[v + 1]);
    o->most_ms = WEFT_MAX(o->most_ms, (weft_now_ns() - began) / WEFT_NS_PER_MS);
    if (!st) st = check_sum(comms[v + 1], devices, size);
  }
  for (int i = MOST; i >= 0; i--) weft_comm_destroy(comms[i]);
  weft_kv_destroy(kv);
  return st;
}

static void be_rank(const test_case *t, int own)
{
  outcome *o = &outcomes[own];

  prctl(PR_SET_PDEATHSIG, SIGKILL);
  alarm(LIMIT_S);
  setenv("WEFT_COLLECTIVE_DIAGNOSE", "100ms", 1);
  setenv("WEFT_COLLECTIVE_TIMEOUT", "10s", 1);
  setenv("WEFT_LOG", "error", 0);
  if (t->faulty < 0 || t->faulty == own) {
    if (t->faults) setenv("WEFT_EMU_FAULTS", t->faults, 1);
    if (t->name) setenv(t->name, t->value, 1);
  }
  gpus_use("nccl");
  *(void **)&emu_calls = emulated_symbol("libcuda.so.1", "weft_emu_calls");
  emu_calls("ncclCommShrink"); /* counts from now on */
  weft_status *st = live(t, own, o);
  snprintf(o->text, sizeof o->text, "%s", st ? weft_status_text(st, false) : "");
  weft_status_free(st);
  o->shrinks = emu_calls("ncclCommShrink");
  o->revokes = emu_calls("ncclCommRevoke");
  o->inits = emu_calls("ncclCommInitRankConfig");
  o->windows = emu_calls("ncclCommWindowRegister");
  if (!st) gpus_close(); /* checks that NCCL was used well, and that nothing is left */
  o->ended_windows = emu_calls("ncclCommWindowDeregister");
  o->ended = true;
  _exit(0);
}

/* Plays the case.  Every survivor goes on, with `shrinks` calls that shrink, and `inits` that make communicators. */
static void play(const test_case *t, unsigned long shrinks, unsigned long inits)
{
  pid_t pids[MOST];

  strcpy(directory + strlen(directory) - 6, "XXXXXX");
  assert_non_null(mkdtemp(directory));
  memset(outcomes, 0, MOST * sizeof *outcomes);
  for (int r = 0; r < t->size; r++) {
    pids[r] = fork();
    assert_true(pids[r] >= 0);
    if (pids[r] == 0) be_rank(t, r);
  }
  for (int r = 0; r < t->size; r++) waitpid(pids[r], NULL, 0);
  char command[100];
  snprintf(command, sizeof command, "rm -rf %s", directory);
  T_EQ_INT(system(command), 0); /* NOLINT */
  for (int r = 0; r < t->size; r++) {
    const outcome *o = &outcomes[r];
    bool died = false;
    for (int v = 0; v < t->victim_count; v++) died |= t->victims[v] == r;
    if (died) continue;
    if (!o->ended || *o->text) fail_msg("rank %d: %s", r, o->ended ? o->text : "it has not come to its end");
    if (o->shrinks != shrinks || o->inits != inits)
      fail_msg("rank %d: %lu shrinks and %lu inits, not %lu and %lu", r, o->shrinks, o->inits, shrinks, inits);
    if (o->most_ms > DEADLINE_MS + SLACK_MS) fail_msg("rank %d: it took %lld ms", r, (long long)o->most_ms);
  }
}

TEST(survivors_shrink_their_communicator)
{
  play(&(test_case){.size = 3, .victims = {1}, .victim_count = 1, .faulty = -1}, 1, 1);
  for (int r = 0; r < 3; r += 2) T_EQ_INT(outcomes[r].revokes, 1);
  play(&(test_case){.size = 4, .victims = {0}, .victim_count = 1, .faulty = -1}, 1, 1);
}

TEST(what_was_shrunk_is_shrunk_again)
{
  play(&(test_case){.size = 4, .victims = {1, 3}, .victim_count = 2, .faulty = -1}, 2, 1);
}

TEST(calls_of_the_library_may_be_in_progress)
{
  play(
    &(test_case){
      .size = 3, .victims = {2}, .victim_count = 1, .faulty = -1, .name = "WEFT_EMU_NCCL", .value = "polls:3"},
    1, 1);
}

/* Windows end when a communicator is revoked, and before their memory does. */
TEST(registered_memory_is_no_obstacle)
{
  play(
    &(test_case){
      .size = 3, .victims = {2}, .victim_count = 1, .faulty = -1, .name = "WEFT_TEST_COLLECTIVE_MEMORY", .value = "1"},
    1, 1);
  for (int r = 0; r < 2; r++) T_TRUE(outcomes[r].windows >= 2 && outcomes[r].windows == outcomes[r].ended_windows);
}

TEST(without_the_setting_or_the_library_a_new_one_is_made)
{
  play(
    &(test_case){.size = 3, .victims = {1}, .victim_count = 1, .faulty = -1, .name = "WEFT_CUDA_SHRINK", .value = "0"},
    0, 2);
  for (int r = 0; r < 3; r += 2) T_EQ_INT(outcomes[r].revokes, 0);
  play(
    &(test_case){
      .size = 3, .victims = {1}, .victim_count = 1, .faulty = -1, .name = "WEFT_EMU_NCCL", .value = "version:22600"},
    0, 2);
}

TEST(ranks_make_the_same_choice)
{
  play(
    &(test_case){.size = 3, .victims = {1}, .victim_count = 1, .faulty = 0, .name = "WEFT_CUDA_SHRINK", .value = "0"},
    0, 2);
  play(&(test_case){.size = 3, .victims = {1}, .victim_count = 1, .faulty = 2, .forgets = true}, 0, 2);
  play(&(test_case){.size = 3, .victims = {1}, .victim_count = 1, .faulty = 2, .faults = "ncclCommRevoke:1=3"}, 0, 2);
}

/* One rank's call takes longer than there is time: all ranks end in time, and alike. */
TEST(a_shrink_that_does_not_return_delays_nobody)
{
  play(&(test_case){.size = 3, .victims = {1}, .victim_count = 1, .faulty = 0, .faults = "ncclCommShrink:1=delay:5s"}, 1, 2);
}

TEST(a_shrink_that_fails_is_followed_by_a_new_communicator_on_all_ranks)
{
  play(&(test_case){.size = 3, .victims = {1}, .victim_count = 1, .faulty = 0, .faults = "ncclCommShrink:1=3"}, 1, 2);
  play(&(test_case){.size = 4, .victims = {1}, .victim_count = 1, .faulty = -1, .faults = "ncclCommShrink:1=3"}, 1, 2);
}

/* The number that is found for the ranks with devices 0 and 2, and how long that takes. */
static uint64_t find_rest(int64_t *out_ms)
{
  static const int64_t devices[] = {0, 2};
  static const int own[] = {0};
  weft_comm_spec rest = {.name = "rest", .size = 2, .ranks = own, .rank_count = 1, .device_ids = devices};
  int64_t began = weft_now_ns();
  uint64_t number = gpu_heritage_find(NULL, &rest);

  *out_ms = (weft_now_ns() - began) / WEFT_NS_PER_MS;
  return number;
}

/* A creation waits for owners that have not said what they keep.  If one never says, it is the only one that waits. */
TEST(an_owner_that_does_not_return_is_waited_for_once)
{
  static const int own[] = {0};
  int mark;
  wnc_comm kept = (wnc_comm)(void *)&mark; /* it is only passed on */
  weft_comm_spec all = {.name = "all", .size = 3, .ranks = own, .rank_count = 1};
  gpu_heirloom *h = gpu_heirloom_new(NULL, &all);
  int64_t ms;

  assert_non_null(h);
  gpu_heirloom_offer(h);
  T_TRUE(find_rest(&ms) == 0);
  T_TRUE(ms >= 500);
  T_TRUE(find_rest(&ms) == 0);
  if (ms >= 500) fail_msg("the second creation waited %lld ms", (long long)ms);
  gpu_heirloom_keep(h, 0, kept); /* the owner is back after all */
  T_TRUE(find_rest(&ms) != 0);
  gpu_heirloom_withdraw(h);
  T_TRUE(find_rest(&ms) == 0);
  gpu_heirloom_offer(h);
  T_TRUE(find_rest(&ms) == 0);
  T_TRUE(gpu_heirloom_reclaim(h, 0) == kept);
  gpu_heirloom_free(h);
}

static int begin(void **state)
{
  (void)state;
  outcomes = mmap(NULL, MOST * sizeof *outcomes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return outcomes == MAP_FAILED ? -1 : 0;
}

int main(void)
{
  const struct CMUnitTest units[] = {
    UNIT(survivors_shrink_their_communicator), UNIT(what_was_shrunk_is_shrunk_again),
    UNIT(calls_of_the_library_may_be_in_progress), UNIT(registered_memory_is_no_obstacle), UNIT(without_the_setting_or_the_library_a_new_one_is_made),
    UNIT(ranks_make_the_same_choice), UNIT(a_shrink_that_does_not_return_delays_nobody),
    UNIT(a_shrink_that_fails_is_followed_by_a_new_communicator_on_all_ranks),
    UNIT(an_owner_that_does_not_return_is_waited_for_once)};
  return cmocka_run_group_tests(units, begin, NULL);
}
