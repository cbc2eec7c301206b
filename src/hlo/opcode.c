#include <config.h>

#include "hlo/opcode.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>

enum { E = 1, T = 2, S = 4, C = 8, A = 16, L = 32 };

static const struct opcode_info {
  const char *name;
  int8_t least, most;
  uint8_t length, traits;
} infos[HLO_OPCODE_COUNT] = {
#define X(NAME, text, least, most, traits) [HLO_##NAME] = {text, least, most, sizeof(text) - 1, traits},
#include "hlo/opcodes.def"
#undef X
};

const char *hlo_opcode_name(hlo_opcode op) { return op < HLO_OPCODE_COUNT ? infos[op].name : "invalid"; }
size_t hlo_opcode_name_length(hlo_opcode op) { return op < HLO_OPCODE_COUNT ? infos[op].length : strlen("invalid"); }
int hlo_opcode_least_operands(hlo_opcode op) { return infos[op].least; }
int hlo_opcode_most_operands(hlo_opcode op) { return infos[op].most; }
bool hlo_opcode_is_elementwise(hlo_opcode op) { return infos[op].traits & E; }
bool hlo_opcode_is_transcendental(hlo_opcode op) { return infos[op].traits & T; }
bool hlo_opcode_has_side_effect(hlo_opcode op) { return infos[op].traits & S; }
bool hlo_opcode_is_collective(hlo_opcode op) { return infos[op].traits & C; }
bool hlo_opcode_is_async(hlo_opcode op) { return infos[op].traits & A; }
bool hlo_opcode_calls(hlo_opcode op) { return infos[op].traits & L; }

/* Open addressing over a table four times the number of opcodes, filled once. */
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
    unsigned at = hash_name(infos[op].name, infos[op].length);
    while (slots[at % SLOTS]) at++;
    slots[at % SLOTS] = (uint8_t)(op + 1);
  }
}

hlo_opcode hlo_opcode_from_name(const char *name, size_t length)
{
  pthread_once(&slots_once, fill_slots);
  for (unsigned at = hash_name(name, length); slots[at % SLOTS]; at++) {
    const struct opcode_info *info = &infos[slots[at % SLOTS] - 1];
    if (info->length == length && memcmp(info->name, name, length) == 0) return (hlo_opcode)(info - infos);
  }
  return HLO_OPCODE_COUNT;
}
