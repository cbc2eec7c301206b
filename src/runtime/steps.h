/* runtime/steps.h -- the steps of a compiled program, described for people: `weft inspect` shows them. */
#ifndef WEFT_RUNTIME_STEPS_H
#define WEFT_RUNTIME_STEPS_H

#include <stdbool.h>
#include <stdint.h>

/* The steps of one computation. */
typedef struct weft_sequence {
  const char *name;          /* of the computation, borrowed from the executable */
  bool is_entry, in_order;   /* the program's entry; the steps run one after the other on one thread */
  int step_count, dependence_count;
  double work_ns, path_ns;   /* estimates: of all steps; of the longest path of steps that wait for each other */
} weft_sequence;

enum { WEFT_STEP_CALLED = 64 }; /* names of called sequences that a description has room for */

/* One step. All strings are borrowed from the executable. */
typedef struct weft_step {
  const char *sequence;      /* the computation that the step belongs to */
  /* of the sequence: true if it is the program's entry; true if its steps run one after the other */
  bool is_entry, in_order;
  const char *kind;          /* "kernel", "dot" */
  const char *name;          /* of the instruction; steps that belong to no instruction have names too */
  const char *detail;        /* a few words, or NULL */
  double cost_ns;            /* an estimate on one thread; 0: unknown */
  bool splits;               /* several threads share the step */
  int64_t trips;             /* rounds of a loop, if known; else -1 */
  int called_count;
  const char *called[WEFT_STEP_CALLED]; /* the sequences that control flow runs */
  int successor_count;
  const int *successors;     /* steps that wait for this one, by their place in the sequence */
} weft_step;

#endif
