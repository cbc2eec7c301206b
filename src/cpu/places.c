/* cpu/places.c -- the nodes and CPUs on which the workers of a pool run (places.h). */
#include <config.h>

#include "cpu/places.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

const char *const cpu_pin_words[] = {"auto", "none", "node", "core"};

cpu_pin cpu_pin_of(const char *word)
{
  static const char *const others[] = {[CPU_PIN_NONE] = "0", [CPU_PIN_CORE] = "1"};

  for (int i = 0; i < (int)WEFT_COUNT(cpu_pin_words); i++)
    if (strcmp(word, cpu_pin_words[i]) == 0 || (others[i] && strcmp(word, others[i]) == 0)) return (cpu_pin)i;
  return CPU_PIN_AUTO; /* the empty string */
}

weft_status *cpu_places_new(int workers, cpu_pin pin, cpu_places **out_places)
{
  WEFT_AUTO(cpu_places) p = calloc(1, sizeof *p);

  *out_places = NULL;
  WEFT_TRY_ALLOC(p);
  WEFT_TRY(weft_machine_read(&p->machine));
  const weft_machine *m = p->machine;
  int *ids = calloc(2 * (size_t)m->node_count, sizeof *ids);
  p->numa.ids = ids;
  p->node_of = calloc((size_t)workers, sizeof *p->node_of);
  WEFT_TRY_ALLOC(p->node_of && ids);
  p->numa.count = m->node_count;
  p->numa.numbers = ids + m->node_count;
  for (int n = 0; n < m->node_count; n++) {
    ids[n] = m->nodes[n].memory;
    ids[m->node_count + n] = m->nodes[n].id;
  }
  p->workers = workers;
  for (int i = 0; i < workers; i++) p->node_of[i] = m->cpus[(int64_t)i * m->cpu_count / workers].node;
  p->pin = pin;
  if (pin == CPU_PIN_AUTO) p->pin = m->node_count > 1 && workers >= m->cpu_count ? CPU_PIN_NODE : CPU_PIN_NONE;
  *out_places = WEFT_MOVE(p);
  return NULL;
}

void cpu_places_free(cpu_places *places)
{
  if (!places) return;
  weft_machine_free(places->machine);
  free((void *)(uintptr_t)places->numa.ids);
  free(places->node_of);
  free(places);
}

bool cpu_places_cpus(const cpu_places *places, int index, weft_cpus *out)
{
  const weft_machine *m = places->machine;
  const weft_machine_node *node = &m->nodes[places->node_of[index]];
  int first = index;

  *out = (weft_cpus){0};
  if (places->pin == CPU_PIN_NONE) return false;
  while (first > 0 && places->node_of[first - 1] == places->node_of[index]) first--;
  for (int i = 0; i < node->count; i++)
    if (places->pin == CPU_PIN_NODE || i == (index - first) % node->count)
      weft_cpus_add(out, m->cpus[node->first + i].cpu);
  return true;
}

void cpu_places_bind(const cpu_places *places, int index)
{
  weft_cpus cpus;

  if (cpu_places_cpus(places, index, &cpus) && !weft_cpus_bind(&cpus))
    WEFT_LOG("cpu", INFO, "worker %d is not bound to its %s: %s", index, cpu_pin_words[places->pin], strerror(errno));
}
