/* cpu/places.h -- the nodes and CPUs on which the workers of a pool run. */
#ifndef WEFT_CPU_PLACES_H
#define WEFT_CPU_PLACES_H

#include "base/machine.h"
#include "runtime/numa.h"

typedef enum cpu_pin { CPU_PIN_AUTO, CPU_PIN_NONE, CPU_PIN_NODE, CPU_PIN_CORE } cpu_pin;
extern const char *const cpu_pin_words[]; /* "auto", "none", "node", "core" */
/* The meaning of one of the words of WEFT_PIN, which are these and "0" and "1". */
cpu_pin cpu_pin_of(const char *word);

typedef struct cpu_places {
  weft_machine *machine;
  rt_numa numa;  /* all nodes with usable CPUs */
  int workers;
  int *node_of;  /* of each worker, never going down: each node has its part of the workers */
  cpu_pin pin;   /* not CPU_PIN_AUTO */
} cpu_places;

/* Spreads `workers` over the nodes, in proportion to their CPUs. CPU_PIN_AUTO becomes CPU_PIN_NODE if there are
 * several nodes and at least as many workers as CPUs; else CPU_PIN_NONE, since fewer workers share the machine with
 * others. Errors: RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *cpu_places_new(int workers, cpu_pin pin, cpu_places **out_places);
void cpu_places_free(cpu_places *places);
WEFT_DEFINE_AUTO(cpu_places, cpu_places_free)

/* The CPUs to which worker `index`, from 0, is bound. False: it is not bound. */
bool cpu_places_cpus(const cpu_places *places, int index, weft_cpus *out);
/* Binds the calling thread there. A failure is logged: the thread then runs where the system puts it. */
void cpu_places_bind(const cpu_places *places, int index);

#endif
