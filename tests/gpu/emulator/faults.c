/* tests/gpu/emulator/faults.c -- what every call begins with: its injected fault,
 * the state that it needs, errors that stick.
 *
 * WEFT_EMU_FAULTS is a list CALL:N=WHAT, separated by commas; N counts the calls of that name from 1.  WHAT is a
 * number (the call returns it and does nothing), delay:TIME (the call takes longer) or stall:TIME (what the call
 * queues starts later).  TIME is 5ms, 2s or 10us. */
#include <config.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

typedef struct fault { char call[64]; uint64_t at, seen, delay_ns, stall_ns; int result; } fault;
enum { FAULTS = 64 };
static fault faults[FAULTS];
static int fault_count;
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local uint64_t stall_ns;
_Thread_local bool emu_in_host_function;
bool emu_initialized;

static uint64_t duration(const char *s)
{
  char *end;
  uint64_t v = strtoull(s, &end, 10);
  return strncmp(end, "ms", 2) == 0 ? v * 1000000 : strncmp(end, "us", 2) == 0 ? v * 1000 : v * 1000000000;
}

void emu_read_faults(const char *text)
{
  char *copy = strdup(text), *rest = copy, *item;
  pthread_mutex_lock(&mu);
  fault_count = 0;
  while (copy && (item = strsep(&rest, ",")) && fault_count < FAULTS) {
    fault f = {.at = 1};
    char what[64] = "";
    if (sscanf(item, "%63[^:]:%llu=%63s", f.call, (unsigned long long *)&f.at, what) != 3) continue;
    if (strncmp(what, "delay:", 6) == 0) f.delay_ns = duration(what + 6);
    else if (strncmp(what, "stall:", 6) == 0) f.stall_ns = duration(what + 6);
    else f.result = atoi(what);
    faults[fault_count++] = f;
  }
  pthread_mutex_unlock(&mu);
  free(copy);
}

__attribute__((visibility("default"))) void weft_emu_faults(const char *text) { emu_read_faults(text); }

__attribute__((visibility("default"))) size_t weft_emu_faults_left(void)
{
  size_t left = 0;
  pthread_mutex_lock(&mu);
  for (int n = 0; n < fault_count; n++) left += faults[n].seen < faults[n].at;
  pthread_mutex_unlock(&mu);
  return left;
}

/* How often each entry point was called. A name is a __func__, which has one address for each function. */
typedef struct counter { const char *call; uint64_t count; } counter;
enum { COUNTERS = 1024 };
static counter counters[COUNTERS];
static bool counting;

static void count_locked(const char *call)
{
  size_t n = ((uintptr_t)call >> 3) % COUNTERS;
  while (counters[n].call && counters[n].call != call) n = (n + 1) % COUNTERS;
  counters[n].call = call;
  counters[n].count++;
}

__attribute__((visibility("default"))) uint64_t weft_emu_calls(const char *call)
{
  uint64_t sum = 0;
  pthread_mutex_lock(&mu);
  counting = true;
  for (size_t n = 0; n < COUNTERS; n++)
    if (counters[n].call && (!call || strcmp(counters[n].call, call) == 0)) sum += counters[n].count;
  pthread_mutex_unlock(&mu);
  return sum;
}

static wcu_result injected(const char *call)
{
  uint64_t delay = 0;
  int result = 0;
  pthread_mutex_lock(&mu);
  if (counting) count_locked(call);
  for (int n = 0; n < fault_count; n++) {
    if (strcmp(faults[n].call, call) != 0 || ++faults[n].seen != faults[n].at) continue;
    delay += faults[n].delay_ns, stall_ns += faults[n].stall_ns;
    if (faults[n].result) result = faults[n].result;
  }
  pthread_mutex_unlock(&mu);
  emu_sleep(delay);
  return (wcu_result)result;
}

uint64_t emu_take_stall(void)
{
  uint64_t ns = stall_ns;
  stall_ns = 0;
  return ns;
}

wcu_result emu_enter(const char *call, int when)
{
  stall_ns = 0;
  if (emu_in_host_function) return WCU_ERROR_NOT_PERMITTED;
  if (when != EMU_ANYTIME && !emu_initialized) return WCU_ERROR_NOT_INITIALIZED;
  wcu_result r = injected(call);
  if (r) return r;
  if (when != EMU_WITH_CONTEXT) return WCU_SUCCESS;
  if (!emu_current) return WCU_ERROR_INVALID_CONTEXT;
  return __atomic_load_n(&emu_current->sticky, __ATOMIC_ACQUIRE);
}
