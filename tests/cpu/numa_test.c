/* tests/cpu/numa_test.c -- workers, devices and memory on machines of several NUMA nodes. The test describes these
 * machines in files of its own, and looks at the calls that would set policies of memory. */
#include "cpu/run.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/places.h"
#include "machine_files.h"
#include "runtime/runtime_internal.h"

/* ---- where workers run ---- */

static void expect_nodes(int workers, const char *want)
{
  WEFT_AUTO(cpu_places) p = NULL;
  char text[256] = "";

  T_OK(cpu_places_new(workers, CPU_PIN_AUTO, &p));
  for (int i = 0, n = 0; i < workers; i++)
    n += snprintf(text + n, sizeof text - (size_t)n, "%d", p->numa.numbers[p->node_of[i]]);
  T_EQ_STR(text, want);
}

static void expect_cpus(const cpu_places *p, int worker, const char *want)
{
  weft_cpus cpus;
  char text[256] = "";

  if (!cpu_places_cpus(p, worker, &cpus)) snprintf(text, sizeof text, "any");
  else
    for (int cpu = weft_cpus_next(&cpus, -1), n = 0; cpu >= 0; cpu = weft_cpus_next(&cpus, cpu))
      n += snprintf(text + n, sizeof text - (size_t)n, "%s%d", n ? "," : "", cpu);
  T_EQ_STR(text, want);
}

TEST(each_node_has_its_part_of_the_workers)
{
  files_begin();
  files_machine(4, 2, 1);
  expect_nodes(8, "00112233");
  expect_nodes(4, "0123");
  expect_nodes(2, "02");
  expect_nodes(1, "0");
  expect_nodes(12, "000111222333");
  files_put("proc/self/status", "Cpus_allowed_list:\t0-1,4,6-7\nMems_allowed_list:\t0-3\n"); /* 2, 1 and 2 CPUs */
  expect_nodes(5, "00233");
  expect_nodes(10, "0000223333");
  files_end();
}

TEST(workers_are_bound_to_nodes_only_if_they_fill_the_machine)
{
  WEFT_AUTO(cpu_places) all = NULL;
  WEFT_AUTO(cpu_places) few = NULL;
  WEFT_AUTO(cpu_places) cores = NULL;
  WEFT_AUTO(cpu_places) one = NULL;

  files_begin();
  files_machine(2, 2, 2);
  T_OK(cpu_places_new(8, CPU_PIN_AUTO, &all));
  expect_cpus(all, 0, "0,1,4,5");
  expect_cpus(all, 7, "2,3,6,7");
  T_OK(cpu_places_new(7, CPU_PIN_AUTO, &few));
  expect_cpus(few, 0, "any");
  T_OK(cpu_places_new(6, CPU_PIN_CORE, &cores)); /* three a node: two cores, then the second thread of the first */
  expect_cpus(cores, 0, "0");
  expect_cpus(cores, 1, "1");
  expect_cpus(cores, 2, "4");
  expect_cpus(cores, 3, "2");
  expect_cpus(cores, 5, "6");
  files_put("proc/self/status", "Cpus_allowed_list:\t2-3,6-7\n"); /* one node of the two */
  T_OK(cpu_places_new(4, CPU_PIN_AUTO, &one));
  expect_cpus(one, 0, "any");
  T_EQ_INT(one->numa.numbers[0], 1);
  files_end();
}

TEST(words_of_the_setting)
{
  T_EQ_INT(cpu_pin_of("auto"), CPU_PIN_AUTO);
  T_EQ_INT(cpu_pin_of(""), CPU_PIN_AUTO);
  T_EQ_INT(cpu_pin_of("0"), CPU_PIN_NONE);
  T_EQ_INT(cpu_pin_of("1"), CPU_PIN_CORE);
  T_EQ_INT(cpu_pin_of("core"), CPU_PIN_CORE);
  T_EQ_INT(cpu_pin_of("node"), CPU_PIN_NODE);
}

/* ---- policies ---- */

enum { PREFERRED = 1, INTERLEAVE = 3, MOST_CALLS = 256 };
static struct { int mode; unsigned long nodes, bytes; } calls[MOST_CALLS];
static atomic_int call_count;
static int refusal; /* what each call is refused with; 0: it succeeds */

static long record(void *data, unsigned long bytes, int mode, const unsigned long *nodes,
                   WEFT_UNUSED unsigned long most, WEFT_UNUSED unsigned flags)
{
  int at = atomic_fetch_add(&call_count, 1);

  T_TRUE((uintptr_t)data % 4096 == 0 && bytes % 4096 == 0);
  if (at < MOST_CALLS) {
    calls[at].mode = mode;
    calls[at].nodes = nodes[0];
    calls[at].bytes = bytes;
  }
  errno = refusal;
  return refusal ? -1 : 0;
}

/* Calls with this mode and these nodes (a bit each). */
static int count_calls(int mode, unsigned long nodes)
{
  int count = 0;

  for (int i = 0; i < atomic_load(&call_count) && i < MOST_CALLS; i++)
    count += calls[i].mode == mode && calls[i].nodes == nodes;
  return count;
}

static void begin_recording(int refuse_with)
{
  atomic_store(&call_count, 0);
  refusal = refuse_with;
  rt_numa_bind_call = record;
}

TEST(devices_have_their_memory_on_their_node)
{
  static const int homes[] = {0, 0, 1, 1};
  void *data;

  files_begin();
  files_machine(2, 2, 1);
  files_put("sys/devices/system/node/online", "0,8\n"); /* nodes 0 and 8 */
  files_put("sys/devices/system/node/has_memory", "0,8\n");
  files_put("sys/devices/system/node/node8/cpulist", "2-3\n");
  files_put("proc/self/status", "Cpus_allowed_list:\t0-3\nMems_allowed_list:\t0,8\n");
  weft_platform *platform = test_platform(4, 4);
  for (int i = 0; i < 4; i++) {
    weft_device *device = weft_platform_device(platform, i);
    T_EQ_INT(device->home, homes[i]);
    T_EQ_INT(device->numa_node, homes[i] * 8);
    begin_recording(0);
    T_OK(rt_device_take(device, 0, 5 << 20, RT_ANYONE, &data));
    T_EQ_INT(atomic_load(&call_count), 1);
    T_EQ_INT(count_calls(PREFERRED, 1ul << homes[i] * 8), 1);
    rt_device_give(device, 0, data, 5 << 20);
  }
  weft_platform_release(platform);

  platform = test_platform(1, 4); /* one device has the memory of all nodes: who writes a page first places it */
  T_EQ_INT(weft_platform_device(platform, 0)->home, -1);
  T_EQ_INT(weft_platform_device(platform, 0)->numa_node, -1);
  begin_recording(0);
  T_OK(rt_device_take(weft_platform_device(platform, 0), 0, 5 << 20, RT_ANYONE, &data));
  T_EQ_INT(atomic_load(&call_count), 0);
  rt_device_give(weft_platform_device(platform, 0), 0, data, 5 << 20);
  weft_platform_release(platform);
  files_end();
}

TEST(one_node_needs_no_policy)
{
  void *data;

  files_begin();
  files_machine(1, 4, 1);
  weft_platform *platform = test_platform(1, 4);
  begin_recording(0);
  T_EQ_INT(platform->numa.count, 0);
  T_OK(rt_device_take(weft_platform_device(platform, 0), 0, 5 << 20, RT_ANYONE, &data));
  rt_device_give(weft_platform_device(platform, 0), 0, data, 5 << 20);
  T_EQ_INT(atomic_load(&call_count), 0);
  weft_platform_release(platform);
  files_end();
}

/* ---- results ---- */

enum { M = 640, K = 700, N = 512 }; /* w is over a MiB, and x has many rows */

static const weft_array_type x_type = {.type = WEFT_F32, .rank = 2, .dims = {M, K}};
static const weft_array_type w_type = {.type = WEFT_F32, .rank = 2, .dims = {K, N}};
#define PRODUCT                                                                                        \
  "HloModule product\n" \
  "sum {\n" \
  "  a = f32[] parameter(0)\n" \
  "  b = f32[] parameter(1)\n" \
  "  ROOT s = f32[] add(a, b)\n" \
  "}\n" \
  "ENTRY e {\n" \
  "  x = f32[640,700] parameter(0)\n" \
  "  w = f32[700,512] parameter(1)\n" \
  "  y = f32[640,512] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n" \
  "  t = f32[640,512] tanh(y)\n" \
  "  zero = f32[] constant(0)\n" \
  "  ROOT r = f32[512] reduce(t, zero), dimensions={0}, to_apply=sum\n" \
  "}\n"

static float x_data[M * K], w_data[K * N];

/* Runs the product five times, so that the weights are packed and their form is read. */
static void run_product(int devices, int threads, float *out)
{
  weft_platform *platform = test_platform(devices, threads);
  weft_device *device = weft_platform_device(platform, 0);
  weft_executable *exe = test_compile(platform, PRODUCT, BUF_TOPOLOGICAL);
  weft_buffer *in[] = {test_buffer(device, &x_type, x_data), test_buffer(device, &w_type, w_data)}, *result;
  weft_buffer *const *ins[] = {in};
  weft_buffer **outs[] = {&result};

  for (int i = 0; i < 5; i++) {
    T_OK(weft_executable_launch(exe, &(weft_launch){.inputs = ins, .outputs = outs}));
    T_OK(weft_buffer_to_host(result, out, weft_deadline_after_ms(60000)));
    weft_buffer_release(result);
  }
  weft_buffer_release(in[0]);
  weft_buffer_release(in[1]);
  weft_executable_release(exe);
  T_EQ_INT(rt_packed_bytes(platform), 0);
  weft_platform_release(platform);
}

TEST(results_are_the_same_bits_on_any_machine)
{
  static const int threads[] = {1, 2, 7, 64}, nodes[] = {1, 2, 4, 8};
  static float want[N], got[N];

  for (int i = 0; i < M * K; i++) x_data[i] = (float)((i * 7 + i / 13) % 31 - 15) / 97;
  for (int i = 0; i < K * N; i++) w_data[i] = (float)((i * 11 + i / 17) % 29 - 14) / 89;
  run_product(1, 1, want);
  for (size_t n = 0; n < WEFT_COUNT(nodes); n++)
    for (size_t t = 0; t < WEFT_COUNT(threads); t++)
      for (int refuse = 0; refuse < 2; refuse++) {
        files_begin();
        files_machine(nodes[n], 4, 1);
        begin_recording(refuse ? EPERM : 0);
        memset(got, 0, sizeof got);
        run_product(1, threads[t], got);
        if (memcmp(got, want, sizeof got) != 0) fail_msg("%d nodes, %d threads: other bits", nodes[n], threads[t]);
        if (nodes[n] == 1) T_EQ_INT(atomic_load(&call_count), 0);
        files_end();
      }
}

TEST(each_node_has_a_copy_of_packed_weights)
{
  static float out[N];

  files_begin();
  files_machine(2, 4, 1);
  begin_recording(0);
  run_product(1, 8, out);
  int first = count_calls(PREFERRED, 1), second = count_calls(PREFERRED, 2);
  T_EQ_INT(first, second);
  if (first == 0) { /* this processor's kernel packs nothing ahead */
    weft_platform *platform = test_platform(1, 8);
    weft_executable *exe = test_compile(platform, PRODUCT, BUF_TOPOLOGICAL);
    T_EQ_INT(weft_executable_packed_bytes(exe, true), 0);
    weft_executable_release(exe);
    weft_platform_release(platform);
  }
  files_end();
}

TEST(large_constants_are_spread_over_the_nodes)
{
  weft_platform *platform;
  size_t elements = 512 << 10;
  char *text = malloc(elements * 2 + 4096), *at = text;

  T_TRUE(text);
  files_begin();
  files_machine(4, 1, 1);
  platform = test_platform(1, 4);
  at += sprintf(at,
                "HloModule m\n"
                "ENTRY e {\n"
                "  x = f32[%zu] parameter(0)\n"
                "  c = f32[%zu] constant({",
                elements, elements);
  for (size_t i = 0; i < elements; i++) at += sprintf(at, "%s%zu", i ? "," : "", i % 10);
  sprintf(at,
          "})\n"
          "  ROOT y = f32[%zu] add(x, c)\n"
          "}\n",
          elements);
  begin_recording(0);
  weft_executable *exe = test_compile(platform, text, BUF_TOPOLOGICAL);
  T_EQ_INT(count_calls(INTERLEAVE, 0xf), 1);
  weft_executable_release(exe);
  weft_platform_release(platform);
  free(text);
  files_end();
}

TEST(a_thread_reuses_the_memory_of_its_node)
{
  void *first, *second, *again;

  files_begin();
  files_machine(2, 2, 1);
  weft_platform *platform = test_platform(1, 4);
  weft_device *device = weft_platform_device(platform, 0);
  /* this thread is on node 0, by the number of the node of the real machine; a block is marked as node 1's by hand */
  T_OK(rt_device_take(device, 0, 1000, RT_ANYONE, &first));
  T_OK(rt_device_take(device, 0, 1000, RT_ANYONE, &second));
  rt_device_give(device, 0, first, 1000);
  rt_device_give(device, 0, second, 1000);
  weft_mutex_lock(&device->memory_mu);
  for (int c = 0; c < RT_SIZE_CLASSES; c++) {
    rt_free_list *list = &device->free_blocks[0][c];
    for (int i = 0; i < list->count; i++) list->blocks[i].node = list->blocks[i].data == second;
  }
  weft_mutex_unlock(&device->memory_mu);
  T_OK(rt_device_take(device, 0, 1000, RT_ANYONE, &again));
  T_TRUE(again == first); /* though `second` is the last that was given back */
  rt_device_give(device, 0, again, 1000);
  weft_platform_release(platform);
  files_end();
}

TEST_MAIN(UNIT(each_node_has_its_part_of_the_workers), UNIT(workers_are_bound_to_nodes_only_if_they_fill_the_machine),
          UNIT(words_of_the_setting), UNIT(devices_have_their_memory_on_their_node), UNIT(one_node_needs_no_policy),
          UNIT(results_are_the_same_bits_on_any_machine), UNIT(each_node_has_a_copy_of_packed_weights),
          UNIT(large_constants_are_spread_over_the_nodes), UNIT(a_thread_reuses_the_memory_of_its_node))
