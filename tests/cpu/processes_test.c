/* One program over two processes, two devices each. */
#include "cpu/run.h"

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

/* Sums over all four devices, then hands the sum around: returns 0 when every local device got what it should. */
static int run_process(int process, const char *directory)
{
  static const char text[] =
    "HloModule m, replica_count=4\n"
    "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }\n"
    "ENTRY e { x = f32[4] parameter(0) s = f32[4] all-reduce(x), replica_groups={}, to_apply=add\n"
    " i = u32[] replica-id() f = f32[] convert(i) b = f32[4] broadcast(f), dimensions={} y = f32[4] add(s, b)\n"
    " ROOT p = f32[4] collective-permute(y), source_target_pairs={{0,1},{1,2},{2,3},{3,0}} }\n";
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
  TRY(weft_platform_new(&cpu_platform_ops,
                        &(weft_platform_options){.device_count = LOCAL, .threads = 2, .process_index = process,
                                                 .process_count = PROCESSES, .kv = kv, .incarnations = incarnations},
                        &platform));
  TRY(hlo_parse(text, sizeof text - 1, &module));
  TRY(weft_compile(platform, module, &(weft_compile_options){.device_assignment = assignment}, &exe));
  for (int round = 1; round <= 5; round++) {
    for (int d = 0; d < LOCAL; d++) {
      float x[N];
      for (int i = 0; i < N; i++) x[i] = (float)(round * (process * LOCAL + d + 1));
      TRY(weft_buffer_from_host(weft_executable_device(exe, d), weft_executable_param_type(exe, 0), x, &in[d]));
      ins[d] = &in[d];
      outs[d] = &out[d];
    }
    TRY(weft_executable_launch(exe, &(weft_launch){.inputs = ins, .outputs = outs, .launch_id = round}));
    for (int d = 0; d < LOCAL; d++) {
      float y[N], want = (float)(10 * round + (process * LOCAL + d + 3) % 4);
      TRY(weft_buffer_to_host(out[d], y, weft_deadline_after_ms(60000)));
      if (y[0] != want || y[N - 1] != want) {
        fprintf(stderr, "process %d device %d: got %g, want %g\n", process, d, y[0], want);
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

TEST(a_program_spans_processes)
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

TEST_MAIN(UNIT(a_program_spans_processes))
