/* cpu/lower.h -- from a scheduled instruction to a thunk: what a maker of library thunks is given. */
#ifndef WEFT_CPU_LOWER_H
#define WEFT_CPU_LOWER_H

#include "codegen/codegen.h"
#include "runtime/thunk.h"

/* One instruction being lowered.  `uses` is complete and in the order of the kernel ABI: operands' leaves, results'
 * leaves, then the scratch if the maker asked for it; a maker may change `access` of an operand it updates in place. */
struct weft_platform;

typedef struct cpu_lowering {
  weft_arena *arena; /* the program's: thunks and what they keep live here */
  const hlo_instr *instr;
  int operand_count; /* leaves of all operands: uses[0 .. operand_count) */
  int result_count;  /* leaves of the result: the uses after them */
  int use_count;
  rt_use *uses;
  const gen_code *code; /* what is compiled: comparators; may be NULL */
  int threads;       /* of the pool, for heuristics of speed only: */
  int64_t whole_bytes; /* of the operands that a step of one thread made, */
  int64_t shared_bytes; /* and of those that a shared step made */
} cpu_lowering;

/* A thunk of `size` bytes (rt_thunk first), zeroed, with ops, name and uses set; the rest is the maker's. */
/* The threads that a thunk's run may use besides its own: NULL, if its work is not worth splitting. */
static inline rt_pool *cpu_pool_of(const rt_thunk *thunk, const rt_ctx *ctx) { return thunk->splits ? ctx->pool : NULL; }

WEFT_NODISCARD weft_status *cpu_thunk_new(cpu_lowering *low, const rt_thunk_ops *ops, size_t size, rt_thunk **out_thunk);

/* Whether a step of the library of `ns` on one thread is done sooner by all of the pool's. */
bool cpu_pays_to_share(const cpu_lowering *low, double ns);

/* How one opcode becomes a thunk (table in cpu/library.c).  A maker returns UNIMPLEMENTED, naming what it lacks, to hand
 * the instruction to the reference evaluator. */
typedef struct cpu_maker {
  hlo_opcode op;
  weft_status *(*make)(cpu_lowering *low, rt_thunk **out_thunk);
  int64_t (*scratch_bytes)(const hlo_instr *instr); /* optional */
} cpu_maker;

/* Custom calls, by their target: cpu/custom_call.c. */
WEFT_NODISCARD weft_status *cpu_custom_call_make(cpu_lowering *low, rt_thunk **out_thunk);

WEFT_NODISCARD weft_status *cpu_rng_state_make(cpu_lowering *low, rt_thunk **out_thunk); /* cpu/rng_state.c */
WEFT_NODISCARD weft_status *cpu_concatenate_make(cpu_lowering *low, rt_thunk **out_thunk); /* cpu/concatenate.c */

WEFT_NODISCARD weft_status *cpu_feed_make(cpu_lowering *low, rt_thunk **out_thunk);      /* cpu/feed.c: infeed, outfeed, */
WEFT_NODISCARD weft_status *cpu_print_make(cpu_lowering *low, rt_thunk **out_thunk);     /* interpreter.print, */
WEFT_NODISCARD weft_status *cpu_host_transfer_make(cpu_lowering *low, struct weft_platform *platform, /* and send and recv */
                                                   rt_thunk **out_thunk);                      /* with the host */

/* The library kernels, ended by an entry with make NULL. */
extern const cpu_maker cpu_makers[];

#endif
