/* tests/gpu/driver_test.c -- the emulated driver: streams, events, pools, virtual memory, graphs, capture, several
 * devices, injected faults, errors that stick, and the checks of memory that need a driver. */
#include "driver.h"

#include "base/deadline.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static wcu_context contexts[2];
static wcu_module module;
static wcu_function add, touch, spin, barrier, big;

static const char text[] =
  ".version 7.8\n.target sm_75\n.address_size 64\n.global .align 4 .u32 answer = 42;\n"
  /* p[i] += v for i < n */
  ".visible .entry add(.param .u64 p, .param .u32 v, .param .u32 n)\n{\n.reg .pred %q; .reg .b32 %r<8>; .reg .b64 %d<4>;\n"
  "ld.param.u64 %d1, [p]; ld.param.u32 %r1, [v]; ld.param.u32 %r2, [n]; mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x; mov.u32 %r5, %tid.x;\n"
  "mad.lo.u32 %r5, %r3, %r4, %r5; setp.ge.u32 %q, %r5, %r2; @%q ret; mul.wide.u32 %d2, %r5, 4; add.s64 %d1, %d1, %d2;\n"
  "ld.global.u32 %r6, [%d1]; add.u32 %r6, %r6, %r1; st.global.u32 [%d1], %r6; ret;\n}\n"
  ".visible .entry touch(.param .u64 p)\n{\n.reg .b32 %r<2>; .reg .b64 %d<2>; ld.param.u64 %d1, [p]; ld.global.u32 %r1, [%d1]; st.global.u32 [%d1], %r1; ret;\n}\n"
  /* until *p is not 0 */
  ".visible .entry spin(.param .u64 p)\n{\n.reg .pred %q; .reg .b32 %r<2>; .reg .b64 %d<2>; ld.param.u64 %d1, [p];\nL: ld.acquire.sys.global.u32 %r1, [%d1];\n"
  "setp.eq.u32 %q, %r1, 0; @%q bra L; ret;\n}\n"
  ".visible .entry barrier(.param .u64 p)\n{\n.reg .pred %q; .reg .b32 %r<4>; .reg .b64 %d<2>; ld.param.u64 %d1, [p]; red.release.gpu.global.add.u32 [%d1], 1;\n"
  "mov.u32 %r2, %nctaid.x;\nL: ld.acquire.gpu.global.u32 %r1, [%d1]; setp.lt.u32 %q, %r1, %r2; @%q bra L; ret;\n}\n"
  ".visible .entry big(.param .u64 p)\n{\n.shared .align 4 .b8 s[40000]; .reg .b32 %r<2>; ld.shared.u32 %r1, [s]; ret;\n}\n";

static int set_up(void **state)
{
  (void)state;
  setenv("WEFT_EMU_DEVICES", "2", 1);
  setenv("WEFT_EMU_MEMORY", "64M", 1);
  setenv("WEFT_EMU_BUDGET", "20000000", 1);
  open_driver();
  CU_IS(cuMemAlloc_v2(&(wcu_ptr){0}, 4), WCU_ERROR_NOT_INITIALIZED);
  CU(cuInit(0));
  for (int d = 0; d < 2; d++) CU(cuDevicePrimaryCtxRetain(&contexts[d], d));
  return 0;
}

/* Each test begins on device 0 without errors and ends without leaks. */
static int begin(void **state)
{
  (void)state;
  unsetenv("WEFT_EMU_FAULTS");
  unsetenv("WEFT_EMU_DELAY_US");
  emu_reset();
  for (int d = 0; d < 2; d++) CU(cuDevicePrimaryCtxReset_v2(d));
  CU(cuCtxSetCurrent(contexts[0]));
  CU(cuModuleLoadData(&module, text));
  CU(cuModuleGetFunction(&add, module, "add"));
  CU(cuModuleGetFunction(&touch, module, "touch"));
  CU(cuModuleGetFunction(&spin, module, "spin"));
  CU(cuModuleGetFunction(&barrier, module, "barrier"));
  CU(cuModuleGetFunction(&big, module, "big"));
  return 0;
}

static int end(void **state)
{
  (void)state;
  char leaks[300];
  CU(cuModuleUnload(module));
  if (emu_leaks(leaks, sizeof leaks)) {
    print_message("# leaked: %s\n", leaks);
    return 1;
  }
  return 0;
}

static wcu_result launch_add(wcu_ptr p, unsigned v, unsigned n, wcu_stream s)
{
  void *params[] = {&p, &v, &n};
  return cuLaunchKernel(add, (n + 63) / 64, 1, 1, 64, 1, 1, 0, s, params, NULL);
}

static wcu_result launch_on(wcu_function f, wcu_ptr p, wcu_stream s)
{
  void *params[] = {&p};
  return cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, params, NULL);
}

TEST(devices_have_attributes_names_and_memory)
{
  int n, major;
  char name[64];
  size_t total, unused;
  CU(cuDeviceGetCount(&n));
  assert_int_equal(n, 2);
  CU(cuDeviceGetAttribute(&major, WCU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 1));
  assert_int_equal(major, 9);
  CU(cuDeviceGetName(name, sizeof name, 0));
  assert_string_equal(name, "Emulated sm_90");
  CU(cuMemGetInfo_v2(&unused, &total));
  assert_int_equal(total, 64 << 20);
  const char *s;
  CU(cuGetErrorString(WCU_ERROR_ILLEGAL_ADDRESS, &s));
  assert_string_equal(s, "illegal address");
  CU_IS(cuDeviceGet(&n, 2), WCU_ERROR_INVALID_DEVICE);
  CU_IS(cuGetProcAddress_v2("cuNothing", (void **)&s, WCU_VERSION, 0, NULL), WCU_ERROR_NOT_FOUND);
}

TEST(copies_kernels_and_fills_go_in_the_order_of_a_stream)
{
  wcu_stream s;
  wcu_ptr p;
  enum { N = 1000 };
  unsigned host[N];
  for (unsigned n = 0; n < N; n++) host[n] = n;
  CU(cuStreamCreate(&s, WCU_STREAM_NON_BLOCKING));
  CU(cuMemAlloc_v2(&p, sizeof host));
  CU(cuMemcpyHtoDAsync_v2(p, host, sizeof host, s));
  memset(host, 0, sizeof host); /* pageable memory is read during the call */
  for (int k = 0; k < 5; k++) CU(launch_add(p, 10, N, s));
  CU(cuMemsetD32Async(p, 7, 1, s));
  CU(cuMemcpyDtoHAsync_v2(host, p, sizeof host, s));
  assert_int_equal(host[0], 7);
  for (unsigned n = 1; n < N; n++) assert_int_equal(host[n], n + 50);
  wcu_ptr global;
  size_t bytes;
  CU(cuModuleGetGlobal_v2(&global, &bytes, module, "answer"));
  CU(cuMemcpyDtoH_v2(host, global, 4));
  assert_int_equal(host[0], 42);
  ptx_stats stats;
  assert_true(emu_counters("add", &stats));
  assert_true(stats.threads >= 5 * N);
  CU(cuMemFree_v2(p));
  CU(cuStreamDestroy_v2(s));
  CU_IS(cuStreamSynchronize(s), WCU_ERROR_INVALID_HANDLE);
}

TEST(a_box_is_copied_by_rows)
{
  wcu_ptr p;
  unsigned char host[64], back[12] = {0};
  for (int n = 0; n < 64; n++) host[n] = (unsigned char)n;
  CU(cuMemAlloc_v2(&p, 64));
  CU(cuMemcpyHtoD_v2(p, host, 64));
  wcu_memcpy2d c = {.srcXInBytes = 2, .srcY = 1, .srcMemoryType = WCU_MEMORYTYPE_DEVICE, .srcDevice = p, .srcPitch = 8,
                    .dstMemoryType = WCU_MEMORYTYPE_HOST, .dstHost = back, .dstPitch = 4, .WidthInBytes = 4, .Height = 3};
  CU(cuMemcpy2DAsync_v2(&c, NULL));
  for (int y = 0; y < 3; y++)
    for (int x = 0; x < 4; x++) assert_int_equal(back[y * 4 + x], (y + 1) * 8 + 2 + x);
  c.Height = 8;
  CU_IS(cuMemcpy2DAsync_v2(&c, NULL), WCU_ERROR_INVALID_VALUE);
  CU(cuMemFree_v2(p));
}

/* A stream that spins until the host says go, so that what waits for it is seen to wait. */
TEST(streams_run_apart_and_events_order_them)
{
  wcu_stream a, b;
  wcu_event e, done;
  wcu_ptr p;
  unsigned *gate, v = 0;
  setenv("WEFT_EMU_BUDGET", "4000000000", 1);
  emu_reset();
  CU(cuStreamCreateWithPriority(&a, WCU_STREAM_NON_BLOCKING, -3));
  CU(cuStreamCreateWithPriority(&b, WCU_STREAM_NON_BLOCKING, 0));
  CU(cuEventCreate(&e, 0));
  CU(cuEventCreate(&done, 0));
  CU(cuMemAlloc_v2(&p, 4));
  CU(cuMemsetD32_v2(p, 5, 1));
  CU(cuMemHostAlloc((void **)&gate, 4, 0));
  *gate = 0;
  CU(launch_on(spin, (wcu_ptr)(uintptr_t)gate, a));
  CU(launch_add(p, 1, 1, a));
  CU(cuEventRecord(e, a));
  CU(launch_add(p, 100, 1, a)); /* after the record: b does not wait for this */
  CU(cuStreamWaitEvent(b, e, 0));
  CU(launch_add(p, 10, 1, b));
  CU(cuEventRecord(done, b));
  CU_IS(cuStreamQuery(a), WCU_ERROR_NOT_READY);
  CU_IS(cuEventQuery(e), WCU_ERROR_NOT_READY);
  CU_IS(cuEventQuery(done), WCU_ERROR_NOT_READY);
  __atomic_store_n(gate, 1, __ATOMIC_RELEASE);
  CU(cuEventSynchronize(done));
  CU(cuStreamSynchronize(a));
  CU(cuStreamSynchronize(b));
  CU(cuMemcpyDtoH_v2(&v, p, 4));
  assert_int_equal(v, 116);
  float ms;
  CU(cuEventElapsedTime_v2(&ms, e, done));
  assert_true(ms >= 0);
  int priority;
  CU(cuStreamGetPriority(a, &priority));
  assert_int_equal(priority, -3);
  CU(cuMemFreeHost(gate));
  CU(cuMemFree_v2(p));
  CU(cuEventDestroy_v2(e));
  CU(cuEventDestroy_v2(done));
  setenv("WEFT_EMU_BUDGET", "20000000", 1);
}

TEST(the_implicit_stream_waits_for_blocking_streams_only)
{
  wcu_stream blocking, apart;
  unsigned *gate;
  setenv("WEFT_EMU_BUDGET", "4000000000", 1);
  emu_reset();
  CU(cuStreamCreate(&blocking, WCU_STREAM_DEFAULT));
  CU(cuStreamCreate(&apart, WCU_STREAM_NON_BLOCKING));
  CU(cuMemHostAlloc((void **)&gate, 8, 0));
  gate[0] = gate[1] = 0;
  CU(launch_on(spin, (wcu_ptr)(uintptr_t)gate, blocking));
  CU(cuStreamWriteValue32_v2(NULL, (wcu_ptr)(uintptr_t)(gate + 1), 9, 0));
  CU(cuStreamSynchronize(apart));
  CU_IS(cuStreamQuery(NULL), WCU_ERROR_NOT_READY);
  usleep(20000);
  assert_int_equal(__atomic_load_n(&gate[1], __ATOMIC_ACQUIRE), 0);
  CU(cuStreamWriteValue32_v2(apart, (wcu_ptr)(uintptr_t)gate, 1, 0)); /* opens the gate */
  CU(cuCtxSynchronize());
  assert_int_equal(gate[1], 9);
  CU(cuMemFreeHost(gate));
  setenv("WEFT_EMU_BUDGET", "20000000", 1);
}

static wcu_result seen_in_host_function;
static void call_the_driver(void *user)
{
  *(int *)user = 1;
  seen_in_host_function = cuCtxSynchronize();
}

TEST(host_functions_may_not_call_the_driver_and_are_dropped_after_an_error)
{
  int called = 0;
  CU(cuLaunchHostFunc(NULL, call_the_driver, &called));
  CU(cuStreamSynchronize(NULL));
  assert_int_equal(called, 1);
  CU_IS(seen_in_host_function, WCU_ERROR_NOT_PERMITTED);
  called = 0;
  CU(launch_on(touch, 16, NULL));
  cuLaunchHostFunc(NULL, call_the_driver, &called);
  CU_IS(cuStreamSynchronize(NULL), WCU_ERROR_ILLEGAL_ADDRESS);
  assert_int_equal(called, 0);
  CU(cuDevicePrimaryCtxReset_v2(0));
}

TEST(a_fault_of_a_kernel_sticks_to_its_context)
{
  wcu_ptr p;
  wcu_event e;
  CU(cuMemAlloc_v2(&p, 4));
  CU(cuEventCreate(&e, 0));
  CU(launch_on(touch, p + 4, NULL));
  wcu_result r = cuEventRecord(e, NULL);
  if (r && r != WCU_ERROR_ILLEGAL_ADDRESS) fail_msg("cuEventRecord: %d", r);
  CU_IS(cuCtxSynchronize(), WCU_ERROR_ILLEGAL_ADDRESS);
  assert_non_null(strstr(emu_last_error(), "kernel touch, block (0,0,0), thread 0, PTX line"));
  CU_IS(cuMemAlloc_v2(&p, 4), WCU_ERROR_ILLEGAL_ADDRESS);
  CU_IS(launch_on(touch, p, NULL), WCU_ERROR_ILLEGAL_ADDRESS);
  CU_IS(cuStreamQuery(NULL), WCU_ERROR_ILLEGAL_ADDRESS);
  CU(cuCtxSetCurrent(contexts[1])); /* the other device goes on */
  wcu_ptr q;
  CU(cuMemAlloc_v2(&q, 4));
  CU(cuMemFree_v2(q));
  CU(cuDevicePrimaryCtxReset_v2(0));
  CU(cuCtxSetCurrent(contexts[0]));
  CU(cuMemFree_v2(p));
  CU(cuEventDestroy_v2(e));
}

/* The first answer that is not "not ready" about a stream, or about an event in it, whose kernel fails. */
typedef struct asked {
  pthread_t thread;
  wcu_stream stream;
  wcu_event event; /* NULL: the stream is asked */
  wcu_result answer;
} asked;

static void *ask(void *arg)
{
  asked *a = arg;
  cuCtxSetCurrent(contexts[0]);
  do a->answer = a->event ? cuEventQuery(a->event) : cuStreamQuery(a->stream);
  while (a->answer == WCU_ERROR_NOT_READY);
  return NULL;
}

/* Several threads ask at the time at which the kernel fails. */
TEST(work_that_fails_while_it_is_asked_about_has_not_succeeded)
{
  enum { ROUNDS = 200, ASKERS = 6 };
  unsigned *gate;
  CU(cuMemHostAlloc((void **)&gate, 4, 0));
  for (int round = 0; round < ROUNDS; round++) {
    wcu_stream stream;
    wcu_event event;
    asked askers[ASKERS];
    CU(cuStreamCreate(&stream, WCU_STREAM_NON_BLOCKING));
    CU(cuEventCreate(&event, 0));
    *gate = 0;
    CU(cuStreamWaitValue32_v2(stream, (wcu_ptr)(uintptr_t)gate, 1, 0));
    CU(launch_on(touch, 16, stream));
    CU(cuEventRecord(event, stream));
    for (int i = 0; i < ASKERS; i++) {
      askers[i] = (asked){.stream = stream, .event = i % 2 ? event : NULL};
      assert_int_equal(pthread_create(&askers[i].thread, NULL, ask, &askers[i]), 0);
    }
    __atomic_store_n(gate, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < ASKERS; i++) {
      pthread_join(askers[i].thread, NULL);
      if (askers[i].answer != WCU_ERROR_ILLEGAL_ADDRESS)
        fail_msg("round %d: %s: %d", round, i % 2 ? "cuEventQuery" : "cuStreamQuery", askers[i].answer);
    }
    CU(cuDevicePrimaryCtxReset_v2(0));
    CU(cuEventDestroy_v2(event));
  }
  CU(cuMemFreeHost(gate));
}

TEST(use_after_free_overruns_and_misuse_are_found)
{
  wcu_ptr p;
  unsigned v = 0;
  CU(cuMemAlloc_v2(&p, 100));
  CU(cuMemcpyDtoH_v2(&v, p, 4));
  assert_int_equal(v, 0xffffffff); /* fresh memory is NaN */
  CU_IS(cuMemcpyDtoH_v2(&v, p + 98, 4), WCU_ERROR_INVALID_VALUE);
  CU_IS(cuMemFree_v2(p + 4), WCU_ERROR_INVALID_VALUE);
  CU(cuMemFree_v2(p));
  CU_IS(cuMemFree_v2(p), WCU_ERROR_INVALID_VALUE);
  CU(launch_on(touch, p, NULL));
  CU_IS(cuCtxSynchronize(), WCU_ERROR_ILLEGAL_ADDRESS);
  assert_non_null(strstr(emu_last_error(), "was freed"));
  CU(cuDevicePrimaryCtxReset_v2(0));
  CU(cuMemAlloc_v2(&p, 8));
  CU(launch_on(touch, p + 2, NULL));
  CU_IS(cuCtxSynchronize(), WCU_ERROR_MISALIGNED_ADDRESS);
  CU(cuDevicePrimaryCtxReset_v2(0));
  char text_[200];
  assert_int_equal(emu_leaks(text_, sizeof text_), 1);
  assert_non_null(strstr(text_, "of 8 bytes"));
  CU(cuMemFree_v2(p));
}

/* The host cannot use a device address. */
TEST(device_memory_is_not_the_hosts)
{
  wcu_ptr p;
  CU(cuMemAlloc_v2(&p, 4));
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    *(volatile int *)(uintptr_t)p = 1;
    _exit(0);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CU(cuMemFree_v2(p));
}

TEST(memory_of_a_device_is_limited)
{
  wcu_ptr p, q;
  CU(cuMemAlloc_v2(&p, 60 << 20));
  CU_IS(cuMemAlloc_v2(&q, 8 << 20), WCU_ERROR_OUT_OF_MEMORY);
  CU(cuMemFree_v2(p));
  CU(cuMemAlloc_v2(&q, 8 << 20));
  CU(cuMemFree_v2(q));
  CU_IS(cuMemAlloc_v2(&q, 0), WCU_ERROR_INVALID_VALUE);
}

TEST(pools_free_in_the_order_of_the_stream)
{
  wcu_mempool pool;
  wcu_ptr p;
  unsigned v = 0;
  uint64_t used;
  CU(cuMemPoolCreate(&pool, &(wcu_mempool_props){.allocType = WCU_MEM_ALLOCATION_TYPE_PINNED, .location = {WCU_MEM_LOCATION_TYPE_DEVICE, 0}}));
  CU(cuMemPoolSetAttribute(pool, WCU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &(uint64_t){1 << 20}));
  CU(cuMemAllocFromPoolAsync(&p, 4, pool, NULL));
  CU(cuMemsetD32Async(p, 3, 1, NULL));
  CU(launch_add(p, 4, 1, NULL));
  CU(cuMemcpyDtoHAsync_v2(&v, p, 4, NULL));
  CU(cuMemFreeAsync(p, NULL));
  CU(cuStreamSynchronize(NULL));
  assert_int_equal(v, 7);
  CU(cuMemPoolGetAttribute(pool, WCU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &used));
  assert_int_equal(used, 1 << 20);
  CU_IS(cuMemFreeAsync(p, NULL), WCU_ERROR_INVALID_VALUE);
  CU(launch_on(touch, p, NULL));
  CU_IS(cuStreamSynchronize(NULL), WCU_ERROR_ILLEGAL_ADDRESS);
  CU(cuDevicePrimaryCtxReset_v2(0));
  CU(cuMemPoolDestroy(pool));
}

TEST(peers_need_access)
{
  wcu_ptr p;
  unsigned v;
  CU(cuCtxSetCurrent(contexts[1]));
  CU(cuMemAlloc_v2(&p, 4));
  CU(cuMemsetD32_v2(p, 1, 1));
  CU(cuCtxSetCurrent(contexts[0]));
  CU(launch_add(p, 1, 1, NULL));
  CU_IS(cuCtxSynchronize(), WCU_ERROR_ILLEGAL_ADDRESS);
  assert_non_null(strstr(emu_last_error(), "device 0 has no access to this memory of device 1"));
  CU(cuDevicePrimaryCtxReset_v2(0));
  CU(cuCtxEnablePeerAccess(contexts[1], 0));
  CU_IS(cuCtxEnablePeerAccess(contexts[1], 0), WCU_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  CU(launch_add(p, 1, 1, NULL));
  CU(cuMemcpyDtoH_v2(&v, p, 4));
  assert_int_equal(v, 2);
  CU(cuCtxDisablePeerAccess(contexts[1]));
  CU(cuMemFree_v2(p));
}

/* The second process of the test below: maps the memory of the descriptor and adds 37 to its first word. */
static int in_second_process(int fd)
{
  wcu_mem_handle h;
  wcu_ptr b;
  size_t granule = 2 << 20;
  wcu_mem_access_desc rights = {{WCU_MEM_LOCATION_TYPE_DEVICE, 0}, WCU_MEM_ACCESS_READWRITE};
  set_up(NULL);
  CU(cuCtxSetCurrent(contexts[0]));
  CU(cuModuleLoadData(&module, text));
  CU(cuModuleGetFunction(&add, module, "add"));
  CU(cuMemImportFromShareableHandle(&h, (void *)(intptr_t)fd, WCU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  CU(cuMemAddressReserve(&b, granule, 0, 0, 0));
  CU(cuMemMap(b, granule, 0, h, 0));
  CU(cuMemSetAccess(b, granule, &rights, 1));
  CU(launch_add(b, 37, 1, NULL));
  CU(cuCtxSynchronize());
  CU(cuMemUnmap(b, granule));
  CU(cuMemRelease(h));
  return 0;
}

/* A child maps the parent's device memory by its file descriptor; a kernel of the child writes, the parent reads. */
TEST(processes_share_physical_memory)
{
  size_t granule;
  wcu_mem_handle handle;
  wcu_ptr at;
  int fd;
  unsigned v = 0;
  wcu_mem_allocation_prop prop = {.type = WCU_MEM_ALLOCATION_TYPE_PINNED, .requestedHandleTypes = WCU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                  .location = {WCU_MEM_LOCATION_TYPE_DEVICE, 0}};
  wcu_mem_access_desc rights = {{WCU_MEM_LOCATION_TYPE_DEVICE, 0}, WCU_MEM_ACCESS_READWRITE};
  CU(cuMemGetAllocationGranularity(&granule, &prop, WCU_MEM_GRANULARITY_RECOMMENDED));
  CU_IS(cuMemCreate(&handle, granule + 1, &prop, 0), WCU_ERROR_INVALID_VALUE);
  CU(cuMemCreate(&handle, granule, &prop, 0));
  CU(cuMemAddressReserve(&at, 2 * granule, 0, 0, 0));
  CU(cuMemMap(at, granule, 0, handle, 0));
  CU(launch_on(touch, at, NULL));
  CU_IS(cuCtxSynchronize(), WCU_ERROR_ILLEGAL_ADDRESS); /* mapped, but no rights yet */
  CU(cuDevicePrimaryCtxReset_v2(0));
  CU(cuMemSetAccess(at, granule, &rights, 1));
  CU(cuMemsetD32_v2(at, 5, 1));
  CU(cuMemExportToShareableHandle(&fd, handle, WCU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) { /* a process of its own: the driver does not live on after fork() */
    char number[16];
    snprintf(number, sizeof number, "%d", fd);
    execl("/proc/self/exe", "driver_test", number, (char *)NULL);
    _exit(98);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  close(fd);
  CU(cuMemcpyDtoH_v2(&v, at, 4));
  assert_int_equal(v, 42);
  CU_IS(cuMemAddressFree(at, 2 * granule), WCU_ERROR_INVALID_VALUE);
  CU(cuMemUnmap(at, granule));
  CU(cuMemAddressFree(at, 2 * granule));
  CU(cuMemRelease(handle));
}

TEST(graphs_run_their_nodes_and_take_new_parameters)
{
  wcu_graph g;
  wcu_graph_exec exec;
  wcu_graph_node fill, kernel[2];
  wcu_ptr p;
  unsigned v, ten = 10, one = 1;
  size_t nodes = 0, edges = 0;
  CU(cuMemAlloc_v2(&p, 4));
  CU(cuGraphCreate(&g, 0));
  CU(cuGraphAddMemsetNode(&fill, g, NULL, 0, &(wcu_memset_node_params){p, 4, 3, 4, 1, 1}, contexts[0]));
  void *params[] = {&p, &ten, &one};
  wcu_kernel_node_params k = {.func = add, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 32, .blockDimY = 1, .blockDimZ = 1, .kernelParams = params};
  CU(cuGraphAddKernelNode_v2(&kernel[0], g, &fill, 1, &k));
  CU(cuGraphAddKernelNode_v2(&kernel[1], g, &kernel[0], 1, &k));
  CU(cuGraphInstantiateWithFlags(&exec, g, 0));
  for (int n = 0; n < 3; n++) CU(cuGraphLaunch(exec, NULL));
  CU(cuMemcpyDtoH_v2(&v, p, 4));
  assert_int_equal(v, 23);
  ten = 50;
  CU(cuGraphExecKernelNodeSetParams_v2(exec, kernel[1], &k));
  CU(cuGraphLaunch(exec, NULL));
  CU(cuMemcpyDtoH_v2(&v, p, 4));
  assert_int_equal(v, 63);
  CU(cuGraphGetNodes(g, NULL, &nodes));
  CU(cuGraphGetEdges_v2(g, NULL, NULL, NULL, &edges));
  assert_int_equal(nodes, 3);
  assert_int_equal(edges, 2);
  wcu_graph_update_info info;
  CU(cuGraphExecUpdate_v2(exec, g, &info)); /* back to the graph's own parameters */
  CU(cuGraphLaunch(exec, NULL));
  CU(cuMemcpyDtoH_v2(&v, p, 4));
  assert_int_equal(v, 23);
  CU(cuGraphAddEmptyNode(&fill, g, NULL, 0));
  CU_IS(cuGraphExecUpdate_v2(exec, g, &info), WCU_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  assert_int_equal(info.result, WCU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  CU(cuGraphAddDependencies_v2(g, &kernel[1], &kernel[0], NULL, 1));
  wcu_graph_exec other;
  CU_IS(cuGraphInstantiateWithFlags(&other, g, 0), WCU_ERROR_INVALID_VALUE); /* a cycle */
  CU(cuGraphExecDestroy(exec));
  CU(cuGraphDestroy(g));
  CU(cuMemFree_v2(p));
}

/* count: *p -= 1, and the handle's value is whether *p is not 0. choose: the handle's value is *p. */
static const char conditions[] =
  ".version 7.8\n.target sm_75\n.address_size 64\n"
  ".extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);\n"
  ".visible .entry count(.param .u64 h, .param .u64 p)\n{\n.reg .pred %q; .reg .b32 %r<3>; .reg .b64 %d<3>;\n"
  "ld.param.u64 %d1, [h]; ld.param.u64 %d2, [p]; ld.global.u32 %r1, [%d2]; sub.u32 %r1, %r1, 1; st.global.u32 [%d2], %r1;\n"
  "setp.ne.u32 %q, %r1, 0; selp.u32 %r2, 1, 0, %q;\n"
  "{ .param .b64 a; .param .b32 b; st.param.b64 [a], %d1; st.param.b32 [b], %r2; call.uni cudaGraphSetConditional, (a, b); }\nret;\n}\n"
  ".visible .entry choose(.param .u64 h, .param .u64 p)\n{\n.reg .b32 %r<2>; .reg .b64 %d<3>;\n"
  "ld.param.u64 %d1, [h]; ld.param.u64 %d2, [p]; ld.global.u32 %r1, [%d2];\n"
  "{ .param .b64 a; .param .b32 b; st.param.b64 [a], %d1; st.param.b32 [b], %r1; call.uni cudaGraphSetConditional, (a, b); }\nret;\n}\n";

static wcu_graph_node add_setter(wcu_graph g, wcu_graph_node after, wcu_function f, wcu_conditional_handle h, wcu_ptr p)
{
  void *params[] = {&h, &p};
  wcu_graph_node node;
  wcu_kernel_node_params k = {.func = f, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1, .kernelParams = params};
  CU(cuGraphAddKernelNode_v2(&node, g, after ? &after : NULL, after != NULL, &k));
  return node;
}

static wcu_graph_node add_fill(wcu_graph g, wcu_graph_node after, wcu_ptr p, unsigned value)
{
  wcu_graph_node node;
  CU(cuGraphAddMemsetNode(&node, g, after ? &after : NULL, after != NULL,
                          &(wcu_memset_node_params){p, 4, value, 4, 1, 1}, contexts[0]));
  return node;
}

static wcu_result try_condition(wcu_graph g, wcu_graph_node after, wcu_conditional_handle h, wcu_conditional_type type,
                                unsigned size, wcu_graph *bodies)
{
  wcu_graph_node_params p = {.type = WCU_GRAPH_NODE_TYPE_CONDITIONAL, .conditional = {.handle = h, .type = type, .size = size, .ctx = contexts[0]}};
  wcu_graph_node node;
  wcu_result r = cuGraphAddNode_v2(&node, g, after ? &after : NULL, NULL, after != NULL, &p);
  for (unsigned n = 0; !r && n < size; n++) bodies[n] = p.conditional.phGraph_out[n];
  return r;
}

static wcu_conditional_handle new_handle(wcu_graph g, unsigned value, unsigned flags)
{
  wcu_conditional_handle h;
  CU(cuGraphConditionalHandleCreate(&h, g, contexts[0], value, flags));
  return h;
}

/* words: 0 the rounds left, 1 the branch, 2.. what the bodies have done */
static void launch_and_read(wcu_graph_exec exec, wcu_ptr p, const unsigned *in, unsigned *out)
{
  CU(cuMemcpyHtoD_v2(p, in, 8 * sizeof *in));
  CU(cuGraphLaunch(exec, NULL));
  CU(cuMemcpyDtoH_v2(out, p, 8 * sizeof *out));
}

/* A loop of *p rounds, in each of which a SWITCH node counts by p[1]; behind the loop an IF node with two bodies. */
TEST(conditional_nodes_repeat_and_choose_their_bodies)
{
  wcu_module m;
  wcu_function count, choose;
  wcu_graph g, round, branch[3], half[2];
  wcu_graph_exec exec;
  wcu_ptr p;
  unsigned got[8], one = 1;
  CU(cuModuleLoadData(&m, conditions));
  CU(cuModuleGetFunction(&count, m, "count"));
  CU(cuModuleGetFunction(&choose, m, "choose"));
  CU(cuMemAlloc_v2(&p, 32));
  CU(cuGraphCreate(&g, 0));
  wcu_conditional_handle loop = new_handle(g, 1, WCU_GRAPH_COND_ASSIGN_DEFAULT), end = new_handle(g, 0, 0);
  CU(try_condition(g, NULL, loop, WCU_GRAPH_COND_TYPE_WHILE, 1, &round));
  wcu_conditional_handle by = new_handle(round, 0, 0);
  wcu_graph_node last = add_setter(round, NULL, choose, by, p + 4);
  CU(try_condition(round, last, by, WCU_GRAPH_COND_TYPE_SWITCH, 3, branch));
  for (unsigned n = 0; n < 3; n++) {
    wcu_ptr at = p + 8 + 4 * n;
    void *params[] = {&at, &one, &one};
    wcu_kernel_node_params k = {.func = add, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1, .kernelParams = params};
    CU(cuGraphAddKernelNode_v2(&last, branch[n], NULL, 0, &k));
  }
  add_setter(round, NULL, count, loop, p);
  size_t nodes = 0;
  CU(cuGraphGetNodes(g, NULL, &nodes));
  assert_int_equal(nodes, 1);
  wcu_graph_node first;
  CU(cuGraphGetNodes(g, &first, &nodes));
  last = add_setter(g, first, choose, end, p);
  CU(try_condition(g, last, end, WCU_GRAPH_COND_TYPE_IF, 2, half));
  add_fill(half[0], NULL, p + 20, 7);
  add_fill(half[1], NULL, p + 20, 9);
  CU(cuGraphInstantiateWithFlags(&exec, g, 0));
  for (unsigned rounds = 1; rounds < 6; rounds++)
    for (unsigned by_branch = 0; by_branch < 5; by_branch++) { /* past the last body: none runs */
      launch_and_read(exec, p, (unsigned[8]){rounds, by_branch}, got);
      assert_int_equal(got[0], 0);
      for (unsigned n = 0; n < 3; n++) assert_int_equal(got[2 + n], n == by_branch ? rounds : 0);
      assert_int_equal(got[5], 9);
    }
  CU(cuGraphExecDestroy(exec));
  CU(cuGraphDestroy(g));
  CU(cuMemFree_v2(p));
  CU(cuModuleUnload(m));
}

static void nothing(void *user) { (void)user; }

/* What the manual forbids. */
TEST(graphs_with_conditional_nodes_have_their_rules)
{
  wcu_module m;
  wcu_function count;
  wcu_graph g, other, body, two[2];
  wcu_graph_exec exec, second;
  wcu_graph_node node;
  wcu_ptr p;
  unsigned got[8];
  CU(cuModuleLoadData(&m, conditions));
  CU(cuModuleGetFunction(&count, m, "count"));
  CU(cuMemAlloc_v2(&p, 32));
  CU(cuGraphCreate(&g, 0));
  CU(cuGraphCreate(&other, 0));
  wcu_conditional_handle h = new_handle(g, 0, WCU_GRAPH_COND_ASSIGN_DEFAULT), by_value = h;
  CU_IS(cuGraphConditionalHandleCreate(&by_value, g, contexts[0], 0, 2), WCU_ERROR_INVALID_VALUE);
  CU_IS(cuGraphInstantiateWithFlags(&exec, g, 0), WCU_ERROR_INVALID_VALUE); /* the handle has no node */
  CU_IS(try_condition(other, NULL, h, WCU_GRAPH_COND_TYPE_WHILE, 1, &body), WCU_ERROR_INVALID_VALUE); /* of g */
  CU_IS(try_condition(g, NULL, h, WCU_GRAPH_COND_TYPE_WHILE, 2, two), WCU_ERROR_INVALID_VALUE);
  CU_IS(try_condition(g, NULL, h, WCU_GRAPH_COND_TYPE_SWITCH, 0, two), WCU_ERROR_INVALID_VALUE);
  CU(try_condition(g, NULL, h, WCU_GRAPH_COND_TYPE_WHILE, 1, &body));
  CU_IS(try_condition(g, NULL, h, WCU_GRAPH_COND_TYPE_WHILE, 1, &body), WCU_ERROR_INVALID_VALUE); /* has a node */
  add_setter(body, NULL, count, h, p);
  CU_IS(cuGraphDestroy(body), WCU_ERROR_INVALID_VALUE); /* the driver owns it */
  CU_IS(cuGraphInstantiateWithFlags(&exec, body, 0), WCU_ERROR_INVALID_VALUE);
  CU_IS(cuGraphAddChildGraphNode(&node, other, NULL, 0, g), WCU_ERROR_NOT_SUPPORTED);
  CU(cuGraphInstantiateWithFlags(&exec, g, 0));
  CU_IS(cuGraphInstantiateWithFlags(&second, g, 0), WCU_ERROR_NOT_SUPPORTED); /* one instance at a time */
  wcu_graph_update_info info;
  CU_IS(cuGraphExecUpdate_v2(exec, g, &info), WCU_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  assert_int_equal(info.result, WCU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED);
  launch_and_read(exec, p, (unsigned[8]){3}, got); /* the default value is 0: no round */
  assert_int_equal(got[0], 3);
  CU(cuGraphExecDestroy(exec));
  CU(cuGraphAddHostNode(&node, body, NULL, 0, &(wcu_host_node_params){nothing, NULL}));
  CU_IS(cuGraphInstantiateWithFlags(&exec, g, 0), WCU_ERROR_INVALID_VALUE); /* a host function in a body */
  CU(cuGraphDestroy(g));
  CU(cuGraphDestroy(other));
  /* the handle went with its graph */
  void *params[] = {&h, &p};
  CU(cuLaunchKernel(count, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
  CU_IS(cuCtxSynchronize(), WCU_ERROR_ILLEGAL_ADDRESS);
  assert_non_null(strstr(emu_last_error(), "no handle"));
  CU(cuDevicePrimaryCtxReset_v2(0));
  CU(cuCtxSetCurrent(contexts[0]));
  CU(cuMemFree_v2(p));
  CU(cuModuleUnload(m));
}

TEST(a_capture_becomes_a_graph_and_follows_events)
{
  wcu_stream a, b;
  wcu_event e, back;
  wcu_graph g;
  wcu_graph_exec exec;
  wcu_ptr p;
  unsigned v[2] = {0}, called = 0;
  CU(cuStreamCreate(&a, WCU_STREAM_NON_BLOCKING));
  CU(cuStreamCreate(&b, WCU_STREAM_NON_BLOCKING));
  CU(cuEventCreate(&e, WCU_EVENT_DISABLE_TIMING));
  CU(cuEventCreate(&back, WCU_EVENT_DISABLE_TIMING));
  CU(cuMemAlloc_v2(&p, 8));
  CU(cuMemsetD32_v2(p, 0, 2));
  CU(cuStreamBeginCapture_v2(a, WCU_CAPTURE_MODE_THREAD_LOCAL));
  CU(launch_add(p, 1, 1, a));
  CU(cuEventRecord(e, a));
  CU(cuStreamWaitEvent(b, e, 0));
  CU(launch_add(p + 4, 2, 1, b));
  CU(cuLaunchHostFunc(b, call_the_driver, &called));
  CU(cuEventRecord(back, b));
  CU(launch_add(p, 4, 1, a));
  CU(cuStreamWaitEvent(a, back, 0));
  wcu_capture_status status;
  CU(cuStreamIsCapturing(b, &status));
  assert_int_equal(status, WCU_CAPTURE_STATUS_ACTIVE);
  CU(cuStreamEndCapture(a, &g));
  CU(cuMemcpyDtoH_v2(v, p, 8));
  assert_int_equal(v[0], 0); /* nothing ran */
  CU(cuGraphInstantiateWithFlags(&exec, g, 0));
  CU(cuGraphLaunch(exec, a));
  CU(cuGraphLaunch(exec, a));
  CU(cuStreamSynchronize(a));
  CU(cuMemcpyDtoH_v2(v, p, 8));
  assert_int_equal(v[0], 10);
  assert_int_equal(v[1], 4);
  assert_int_equal(called, 1);
  CU(cuGraphExecDestroy(exec));
  CU(cuGraphDestroy(g));
  /* A stream that is not joined, and a call that a capture forbids. */
  CU(cuStreamBeginCapture_v2(a, WCU_CAPTURE_MODE_THREAD_LOCAL));
  CU(cuEventRecord(e, a));
  CU(cuStreamWaitEvent(b, e, 0));
  CU(launch_add(p, 1, 1, b));
  CU_IS(cuStreamEndCapture(a, &g), WCU_ERROR_STREAM_CAPTURE_UNJOINED);
  CU(cuStreamBeginCapture_v2(a, WCU_CAPTURE_MODE_GLOBAL));
  CU_IS(cuStreamSynchronize(a), WCU_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CU_IS(launch_add(p, 1, 1, a), WCU_ERROR_STREAM_CAPTURE_INVALIDATED);
  CU_IS(cuStreamEndCapture(a, &g), WCU_ERROR_STREAM_CAPTURE_INVALIDATED);
  CU(cuEventDestroy_v2(e));
  CU(cuEventDestroy_v2(back));
  CU(cuMemFree_v2(p));
}

TEST(launches_are_checked_and_cooperative_ones_fit)
{
  wcu_ptr p;
  int blocks, shared;
  CU(cuMemAlloc_v2(&p, 4));
  void *params[] = {&p};
  CU_IS(cuLaunchKernel(touch, 1, 1, 1, 1025, 1, 1, 0, NULL, params, NULL), WCU_ERROR_INVALID_VALUE);
  CU_IS(cuLaunchKernel(touch, 0, 1, 1, 1, 1, 1, 0, NULL, params, NULL), WCU_ERROR_INVALID_VALUE);
  CU_IS(cuLaunchKernel(touch, 1, 70000, 1, 1, 1, 1, 0, NULL, params, NULL), WCU_ERROR_INVALID_VALUE);
  CU_IS(cuLaunchKernel(big, 1, 1, 1, 1, 1, 1, 10000, NULL, params, NULL), WCU_ERROR_INVALID_VALUE);
  CU(cuFuncSetAttribute(big, WCU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100000));
  CU_IS(cuFuncSetAttribute(big, WCU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 300000), WCU_ERROR_INVALID_VALUE);
  CU(cuLaunchKernel(big, 1, 1, 1, 1, 1, 1, 10000, NULL, params, NULL));
  CU(cuFuncGetAttribute(&shared, WCU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, big));
  assert_int_equal(shared, 40000);
  CU(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, big, 128, 30000));
  assert_int_equal(blocks, 233472 / (70000 + 1024));
  CU(cuMemsetD32_v2(p, 0, 1));
  CU(cuLaunchCooperativeKernel(barrier, 40, 1, 1, 1, 1, 1, 0, NULL, params));
  CU(cuCtxSynchronize());
  CU_IS(cuLaunchCooperativeKernel(barrier, 132 * 32 + 1, 1, 1, 1, 1, 1, 0, NULL, params),
        WCU_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
  CU(cuMemsetD32_v2(p, 0, 1));
  CU(cuLaunchKernel(barrier, 40, 1, 1, 1, 1, 1, 0, NULL, params, NULL)); /* not cooperative: the blocks never meet */
  CU_IS(cuCtxSynchronize(), WCU_ERROR_LAUNCH_TIMEOUT);
  CU(cuDevicePrimaryCtxReset_v2(0));
  CU(cuMemFree_v2(p));
}

TEST(a_module_that_is_wrong_says_where)
{
  wcu_module m;
  char log[300] = "";
  wcu_jit_option options[] = {WCU_JIT_ERROR_LOG_BUFFER, WCU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void *values[] = {log, (void *)sizeof log};
  CU_IS(cuModuleLoadDataEx(
          &m, ".version 7.8\n.target sm_90\n.address_size 64\n.entry k()\n{\nwgmma.fence.sync.aligned;\n}\n", 2,
          options, values),
        WCU_ERROR_INVALID_PTX);
  assert_string_equal(log, "PTX line 6: the instruction wgmma.fence.sync.aligned is not supported");
  CU_IS(cuModuleLoadData(&m, ".version 8.0\n.target sm_100\n.address_size 64\n"), WCU_ERROR_NO_BINARY_FOR_GPU);
  CU_IS(cuModuleLoadData(&m, "\177ELF"), WCU_ERROR_NO_BINARY_FOR_GPU);
  wcu_library lib;
  wcu_kernel k;
  wcu_function f;
  CU(cuLibraryLoadData(&lib, text, NULL, NULL, 0, NULL, NULL, 0));
  CU(cuLibraryGetKernel(&k, lib, "touch"));
  CU(cuKernelGetFunction(&f, k));
  CU_IS(cuLibraryGetKernel(&k, lib, "nothing"), WCU_ERROR_NOT_FOUND);
  CU(cuLibraryUnload(lib));
}

TEST(any_call_can_be_made_to_fail_be_slow_or_stall)
{
  wcu_ptr p, q;
  setenv("WEFT_EMU_FAULTS",
         "cuMemAlloc_v2:2=2,cuLaunchKernel:1=719,cuMemsetD32Async:1=stall:200ms,cuStreamQuery:1=delay:30ms", 1);
  emu_reset();
  CU(cuMemAlloc_v2(&p, 4));
  CU_IS(cuMemAlloc_v2(&q, 4), WCU_ERROR_OUT_OF_MEMORY);
  CU_IS(launch_on(touch, p, NULL), WCU_ERROR_LAUNCH_FAILED);
  CU(launch_on(touch, p, NULL));
  CU(cuStreamSynchronize(NULL));
  int64_t queued_ns = weft_now_ns(); /* before the work that stalls: a lower bound, however busy the machine is */
  CU(cuMemsetD32Async(p, 1, 1, NULL));
  int64_t asked_ns = weft_now_ns();
  cuStreamQuery(NULL);
  assert_true(weft_now_ns() - asked_ns >= 30 * WEFT_NS_PER_MS);
  CU(cuStreamSynchronize(NULL));
  assert_true(weft_now_ns() - queued_ns >= 200 * WEFT_NS_PER_MS);
  CU(cuMemFree_v2(p));
}

TEST(random_delays_show_an_order_that_is_missing)
{
  wcu_stream s[2];
  wcu_ptr p;
  wcu_event e;
  setenv("WEFT_EMU_DELAY_US", "3000", 1);
  emu_reset();
  for (int n = 0; n < 2; n++) CU(cuStreamCreate(&s[n], WCU_STREAM_NON_BLOCKING));
  CU(cuEventCreate(&e, WCU_EVENT_DISABLE_TIMING));
  CU(cuMemAlloc_v2(&p, 4));
  int wrong = 0;
  for (int ordered = 0; ordered < 2; ordered++)
    for (int k = 0; ordered ? k < 30 : !wrong && k < 5000; k++) { /* without order: until it shows */
      unsigned v;
      CU(cuMemsetD32Async(p, 1, 1, s[0]));
      CU(cuEventRecord(e, s[0]));
      if (ordered) CU(cuStreamWaitEvent(s[1], e, 0));
      CU(cuMemsetD32Async(p, 2, 1, s[1]));
      for (int n = 0; n < 2; n++) CU(cuStreamSynchronize(s[n]));
      CU(cuMemcpyDtoH_v2(&v, p, 4));
      if (ordered) assert_int_equal(v, 2);
      else wrong += v != 2;
    }
  assert_true(wrong > 0);
  CU(cuEventDestroy_v2(e));
  CU(cuMemFree_v2(p));
}

/* Makes streams on a device again and again, and ends them with their context. Gives NULL, or the name of the call
 * that failed. */
static void *make_and_end_streams(void *device)
{
  int d = (int)(intptr_t)device;
  for (int round = 0; round < 200; round++) {
    wcu_stream s[3];
    if (cuCtxSetCurrent(contexts[d])) return "cuCtxSetCurrent";
    for (int n = 0; n < 3; n++)
      if (cuStreamCreate(&s[n], WCU_STREAM_NON_BLOCKING)) return "cuStreamCreate";
    if (cuStreamDestroy_v2(s[0])) return "cuStreamDestroy";
    if (cuDevicePrimaryCtxReset_v2(d)) return "cuDevicePrimaryCtxReset";
  }
  return NULL;
}

/* A new stream joins threads of streams that have ended, and so does the end of a context; clients that begin and end
 * beside each other do both at once. */
TEST(streams_end_while_others_are_made)
{
  pthread_t threads[2];
  for (int d = 0; d < 2; d++)
    assert_int_equal(pthread_create(&threads[d], NULL, make_and_end_streams, (void *)(intptr_t)d), 0);
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += 60;
  for (int d = 0; d < 2; d++) {
    void *failed = NULL;
    assert_int_equal(pthread_timedjoin_np(threads[d], &failed, &until), 0);
    if (failed) fail_msg("%s failed on device %d: %s", (const char *)failed, d, emu_last_error());
  }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)
int main(int argc, char **argv)
{
  if (argc > 1) return in_second_process(atoi(argv[1]));
  const struct CMUnitTest units[] = {
    CASE(devices_have_attributes_names_and_memory), CASE(copies_kernels_and_fills_go_in_the_order_of_a_stream), CASE(a_box_is_copied_by_rows),
    CASE(streams_run_apart_and_events_order_them), CASE(the_implicit_stream_waits_for_blocking_streams_only),
    CASE(host_functions_may_not_call_the_driver_and_are_dropped_after_an_error), CASE(a_fault_of_a_kernel_sticks_to_its_context),
    CASE(work_that_fails_while_it_is_asked_about_has_not_succeeded),
    CASE(use_after_free_overruns_and_misuse_are_found), CASE(device_memory_is_not_the_hosts), CASE(memory_of_a_device_is_limited),
    CASE(pools_free_in_the_order_of_the_stream), CASE(peers_need_access), CASE(processes_share_physical_memory),
    CASE(graphs_run_their_nodes_and_take_new_parameters), CASE(conditional_nodes_repeat_and_choose_their_bodies),
    CASE(graphs_with_conditional_nodes_have_their_rules), CASE(a_capture_becomes_a_graph_and_follows_events),
    CASE(launches_are_checked_and_cooperative_ones_fit), CASE(a_module_that_is_wrong_says_where),
    CASE(any_call_can_be_made_to_fail_be_slow_or_stall), CASE(random_delays_show_an_order_that_is_missing),
    CASE(streams_end_while_others_are_made)};
  return cmocka_run_group_tests(units, set_up, NULL);
}
