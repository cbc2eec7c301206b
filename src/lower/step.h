/* lower/step.h -- an instruction that becomes a thunk: the arguments of a platform's functions that make thunks. */
#ifndef WEFT_LOWER_STEP_H
#define WEFT_LOWER_STEP_H

#include "runtime/thunk.h"

typedef struct low_target low_target;
typedef struct low_step low_step;

/* How a step will be done: decided once, before memory is planned, and kept as long as the executable. */
typedef struct low_plan {
  int64_t scratch_bytes;       /* bytes of scratch that the step needs in the memory plan; 0: none */
  void *data;                  /* private data of the target, which the maker and the thunk use; or NULL */
  void (*destroy)(void *data); /* called once no thunk uses `data` any more; NULL: there is nothing to do */
  /* The maker that belongs to `data`, where several are possible; NULL: the only one. */
  weft_status *(*make)(low_step *step, rt_thunk **out_thunk);
  weft_status *error;          /* the error with which planning of the step failed; NULL: it succeeded */
} low_plan;

/* `uses` is complete and in the order of the kernel ABI: the operands' leaves, the results' leaves, then the scratch if
 * the plan asks for some.  A maker may change the `access` of an operand that it updates in place. */
struct low_step {
  const low_target *target;
  const low_plan *plan;   /* what the target planned for the step */
  weft_arena *arena;      /* the program's: thunks and what they keep live here */
  const hlo_instr *instr; /* of the executable's module */
  int operand_count;      /* leaves of all operands: uses[0 .. operand_count) */
  int result_count;       /* leaves of the result: the uses after them */
  int use_count;
  rt_use *uses;
  /* For heuristics of speed only. */
  int64_t whole_bytes;  /* bytes of operands that a step on one thread made */
  int64_t shared_bytes; /* bytes of operands that a step spread over threads made */
  int64_t given_bytes;  /* bytes of operands that are parameters or constants of the program */
  int64_t passed_bytes; /* bytes of the result that are read by steps of at least low_target.long_ns */
};

/* A thunk of `size` bytes (rt_thunk first) in the program's arena, zeroed but for ops, name, uses and cost. The
 * maker fills in the rest. */
WEFT_NODISCARD weft_status *low_thunk_new(low_step *step, const rt_thunk_ops *ops, size_t size, rt_thunk **out_thunk);

#endif
