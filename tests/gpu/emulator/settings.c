/* tests/gpu/emulator/settings.c -- the WEFT_EMU_* variables; README.md lists them. */
#include <config.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

emu_settings emu_set;
static uint64_t random_state;
static pthread_mutex_t random_mu = PTHREAD_MUTEX_INITIALIZER;

static const emu_device kinds[] = {
  {75, 40, 1024, 16, 49152, 65536, 65536, 4 << 20, "Emulated sm_75"},
  {80, 108, 2048, 32, 49152, 166912, 167936, 40 << 20, "Emulated sm_80"},
  {90, 132, 2048, 32, 49152, 232448, 233472, 50 << 20, "Emulated sm_90"},
};

static const char *get(const char *name, const char *otherwise)
{
  char full[64];
  snprintf(full, sizeof full, "WEFT_EMU_%s", name);
  const char *s = getenv(full);
  return s && *s ? s : otherwise;
}

static uint64_t get_number(const char *name, uint64_t otherwise, uint64_t most)
{
  const char *s = get(name, NULL);
  if (!s) return otherwise;
  char *end;
  uint64_t v = strtoull(s, &end, 10);
  if (*end == 'K') v <<= 10;
  if (*end == 'M') v <<= 20;
  if (*end == 'G') v <<= 30;
  return v > most ? most : v;
}

int emu_version(void) { return (int)get_number("VERSION", WCU_VERSION, 99999); }

/* "interleaved:7" and the like: the word, and the number behind the colon. */
static void read_order(const char *s)
{
  const char *colon = strchr(s, ':');
  emu_set.seed = colon ? strtoull(colon + 1, NULL, 10) : 1;
  emu_set.order = strncmp(s, "reversed", 8) == 0       ? PTX_REVERSED
                  : strncmp(s, "interleaved", 11) == 0 ? PTX_INTERLEAVED
                                                       : PTX_NORMAL;
}

void emu_read_settings(bool first)
{
  if (first) {
    emu_set.devices = (int)get_number("DEVICES", 1, EMU_DEVICES);
    emu_set.memory = get_number("MEMORY", 4ull << 30, 1ull << 38);
    const char *kind = get("DEVICE", "sm_90");
    emu_set.device = kinds[2];
    for (size_t n = 0; n < sizeof kinds / sizeof *kinds; n++)
      if (strncmp(kind, "sm_", 3) == 0 && atoi(kind + 3) == kinds[n].sm) emu_set.device = kinds[n];
  }
  read_order(get("ORDER", "normal"));
  const char *checks = get("CHECKS", "barriers");
  bool all = strstr(checks, "all") != NULL;
  emu_set.checks = (all || strstr(checks, "races") ? PTX_CHECK_RACES : 0) |
                   (all || strstr(checks, "barriers") ? PTX_CHECK_BARRIERS : 0);
  emu_set.sectors = strcmp(get("SECTORS", "0"), "0") != 0;
  emu_set.leaks_fail = strcmp(get("LEAKS", "report"), "fail") == 0;
  emu_set.leaks_quiet = strcmp(get("LEAKS", "report"), "off") == 0;
  emu_set.multicast = strcmp(get("MULTICAST", "0"), "0") != 0;
  emu_set.budget = get_number("BUDGET", 4000000000ull, ~0ull);
  emu_set.delay_ns = get_number("DELAY_US", 0, 1000000) * 1000;
  random_state = emu_set.seed * 0x9e3779b97f4a7c15ull + 0x7654321;
  emu_read_faults(get("FAULTS", ""));
}

uint64_t emu_random(void)
{
  pthread_mutex_lock(&random_mu);
  random_state ^= random_state << 13, random_state ^= random_state >> 7, random_state ^= random_state << 17;
  uint64_t r = random_state;
  pthread_mutex_unlock(&random_mu);
  return r;
}

void emu_sleep(uint64_t ns)
{
  struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
  if (ns) nanosleep(&t, NULL);
}

__attribute__((visibility("default"))) void weft_emu_reset(void) { emu_read_settings(false); }
