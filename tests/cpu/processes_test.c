/* tests/cpu/processes_test.c -- One program over two processes, two devices each. */
#include "cpu/run.h"

#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/kv.h"

enum { PROCESSES = 2, LOCAL = 2, N = 4 };

#define TRY(expr)                                                                                   \
  do {                                                                                              \
    weft_status *st_ = (expr);                                                                      \
    if (st_) {                                                                                      \
      fprintf(stderr, "process %d: %s\n", process, weft_status_text(st_, true));                    \
      return 1;                                                                                     \
    }                                                                                               \
  } while (0)

/* An input that was lost before it was there. */
static weft_status *lost_input(const weft_executable *exe, int device, weft_buffer **out)
{
  WEFT_AUTO(weft_event) never = NULL;

  WEFT_TRY(weft_event_new(&never));
  weft_event_set(never, WEFT_ERR(DATA_LOSS, "bits fell out"));
  return weft_buffer_new(weft_executable_device(exe, device), weft_executable_param_type(exe, 0), NULL, never, out);
}

/* Does the run fail with the text of the error of device 0 of process 1? (In that process also with its code.) */
static bool fails_for_the_loss(weft_buffer *out, bool here)
{
  float y[N];
  weft_status *st = weft_buffer_to_host(out, y, weft_deadline_after_ms(60000));
  bool is = weft_status_code(st) == (here ? WEFT_DATA_LOSS : WEFT_ABORTED) &&
            strstr(weft_status_message(st), "bits fell out");

  if (!is) fprintf(stderr, "got %s\n", st ? weft_status_text(st, true) : "no error");
  weft_status_free(st);
  return is;
}

/* Waits until both processes have ended the round: an abort might overtake the last messages. */
static weft_status *meet(weft_kv *kv, int process, int round)
{
  char key[PROCESSES][32];
  WEFT_AUTO_STR value = NULL;
  size_t size;

  for (int p = 0; p < PROCESSES; p++) snprintf(key[p], sizeof key[p], "round/%d/%d", round, p);
  WEFT_TRY(weft_kv_set(kv, key[process], "", 0, true));
  return weft_kv_get(kv, key[!process], weft_deadline_after_ms(60000), &value, &size);
}

/* Sums over all four devices, and then passes the sum to the next device. Returns 0 if every local device has the right
 * result. In rounds 2 and 4 a device of process 1 has no input: in round 2 before process 0 has launched, in round 4
 * while process 0 waits. */
static int run_process(int process, const char *directory)
{
  static const char text[] = "HloModule m, replica_count=4\n"
                             "add {\n"
                             "  a = f32[] parameter(0)\n"
                             "  b = f32[] parameter(1)\n"
                             "  ROOT r = f32[] add(a, b)\n"
                             "}\n"
                             "ENTRY e {\n"
                             "  x = f32[4] parameter(0)\n"
                             "  s = f32[4] all-reduce(x), replica_groups={}, to_apply=add\n"
                             "  i = u32[] replica-id()\n"
                             "  f = f32[] convert(i)\n"
                             "  b = f32[4] broadcast(f), dimensions={}\n"
                             "  y = f32[4] add(s, b)\n"
                             "  ROOT p = f32[4] collective-permute(y), source_target_pairs={{0,1},{1,2},{2,3},{3,0}}\n"
                             "}\n";
  const uint64_t incarnations[PROCESSES] = {11, 12};
  int64_t assignment[PROCESSES * LOCAL];
  weft_kv *kv;
  weft_platform *platform;
  hlo_module *module;
  weft_executable *exe;
  weft_buffer *in[LOCAL], *out[LOCAL];
  weft_buffer *const *ins[LOCAL];
  weft_buffer **outs[LOCAL];

  for (int i = 0; i < PROCESSES * LOCAL; i++) assignment[i] = i / LOCAL * WEFT_DEVICES_A_PROCESS + i % LOCAL;
  TRY(weft_kv_file_new(directory, &kv));
  TRY(plat_new(&(weft_platform_options){.device_count = LOCAL,
                                        .threads = 2,
                                        .process_index = process,
                                        .process_count = PROCESSES,
                                        .kv = kv,
                                        .incarnations = incarnations},
               &platform));
  TRY(hlo_parse(text, sizeof text - 1, &module));
  TRY(weft_compile(platform, module, &(weft_compile_options){.device_assignment = assignment}, &exe));
  for (int round = 1; round <= 5; round++) {
    bool fails = round % 2 == 0;
    TRY(meet(kv, process, round));
    if (fails && process == (round == 4)) usleep(100000);
    for (int d = 0; d < LOCAL; d++) {
      float x[N];
      for (int i = 0; i < N; i++) x[i] = (float)(round * (process * LOCAL + d + 1));
      TRY(weft_buffer_from_host(weft_executable_device(exe, d), weft_executable_param_type(exe, 0), x, &in[d]));
      if (fails && process == 1 && d == 0) {
        weft_buffer_release(in[d]);
        TRY(lost_input(exe, d, &in[d]));
      }
      ins[d] = &in[d];
      outs[d] = &out[d];
    }
    TRY(weft_executable_launch(exe, &(weft_launch){.inputs = ins, .outputs = outs, .launch_id = round}));
    for (int d = 0; d < LOCAL; d++) {
      float y[N], want = (float)(10 * round + (process * LOCAL + d + 3) % 4);
      if (!fails) TRY(weft_buffer_to_host(out[d], y, weft_deadline_after_ms(60000)));
      if (fails ? !fails_for_the_loss(out[d], process == 1) : y[0] != want || y[N - 1] != want) {
        fprintf(stderr, "round %d process %d device %d: got %g, want %g\n", round, process, d, fails ? NAN : y[0],
                want);
        return 1;
      }
      weft_buffer_release(in[d]);
      weft_buffer_release(out[d]);
    }
  }
  weft_executable_release(exe);
  weft_platform_release(platform);
  weft_kv_destroy(kv);
  return 0;
}

TEST(a_program_spans_processes_and_fails_on_all_or_none)
{
  char directory[] = "/tmp/weft-processes-XXXXXX", command[64];
  pid_t children[PROCESSES];

  T_TRUE(mkdtemp(directory) != NULL);
  for (int p = 0; p < PROCESSES; p++) { /* before this process has any thread */
    children[p] = fork();
    T_TRUE(children[p] >= 0);
    if (children[p] == 0) {
      alarm(120); /* a child never outlives the test */
      _exit(run_process(p, directory));
    }
  }
  for (int p = 0; p < PROCESSES; p++) {
    int status;
    T_TRUE(waitpid(children[p], &status, 0) == children[p]);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail_msg("process %d: status %#x", p, (unsigned)status);
  }
  snprintf(command, sizeof command, "rm -rf '%s'", directory);
  T_TRUE(system(command) == 0);
}

TEST_MAIN(UNIT(a_program_spans_processes_and_fails_on_all_or_none))
