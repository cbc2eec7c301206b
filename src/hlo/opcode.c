/* hlo/opcode.c -- the table of opcodes, and the look-up of an opcode by its name. */
#include <config.h>

#include "hlo/opcode.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>

enum { E = HLO_ELEMENTWISE, T = HLO_TRANSCENDENTAL, S = HLO_SIDE_EFFECT, C = HLO_COLLECTIVE, A = HLO_ASYNC, L = HLO_CALLS,
       N = HLO_NAMES, W = HLO_NAMES_WHOLE, D = HLO_DONE, K = HLO_TALKS, R = HLO_RUNS_STEPS };
enum { PRED = HLO_CLASS_PRED, INT = HLO_CLASS_INT, FLT = HLO_CLASS_FLOAT, CPX = HLO_CLASS_COMPLEX, NUM = INT | FLT | CPX,
       ANY = PRED | NUM };

const hlo_opcode_info hlo_opcode_infos[HLO_OPCODE_COUNT + 1] = {
#define X(NAME, text, least, most, traits, classes, ...) [HLO_##NAME] = {text, least, most, sizeof(text) - 1, classes, traits},
#include "hlo/opcodes.def"
#undef X
    [HLO_OPCODE_COUNT] = {"invalid", 0, -1, sizeof("invalid") - 1, 0, 0},
};

/* A hash table of opcodes by name with open addressing, about four times as large as the list.  Filled once. */
enum { SLOTS = 512 };
_Static_assert(HLO_OPCODE_COUNT * 3 < SLOTS && HLO_OPCODE_COUNT < UINT8_MAX, "the name table is sparse");
static uint8_t slots[SLOTS]; /* opcode + 1; 0 is empty */
static pthread_once_t slots_once = PTHREAD_ONCE_INIT;

static unsigned hash_name(const char *name, size_t length)
{
  unsigned hash = 2166136261u;

  for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)name[i]) * 16777619u;
  return hash;
}

static void fill_slots(void)
{
  for (int op = 0; op < HLO_OPCODE_COUNT; op++) {
    unsigned at = hash_name(hlo_opcode_infos[op].name, hlo_opcode_infos[op].length);
    while (slots[at % SLOTS]) at++;
    slots[at % SLOTS] = (uint8_t)(op + 1);
  }
}

hlo_opcode hlo_opcode_from_name(const char *name, size_t length)
{
  pthread_once(&slots_once, fill_slots);
  for (unsigned at = hash_name(name, length); slots[at % SLOTS]; at++) {
    const hlo_opcode_info *info = &hlo_opcode_infos[slots[at % SLOTS] - 1];
    if (info->length == length && memcmp(info->name, name, length) == 0) return (hlo_opcode)(info - hlo_opcode_infos);
  }
  return HLO_OPCODE_COUNT;
}
