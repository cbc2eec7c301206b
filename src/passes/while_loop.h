/* passes/while_loop.h -- a while whose state is a flat view: element by element, rather than tuple by tuple.
 *
 * Opening brings the loop to one form: init and the body's root are `tuple` instructions, and the state is used inside
 * the body, inside the condition and after the loop only through at most one get-tuple-element per element.  The body
 * and condition must belong to this loop alone (pass flatten). */
#ifndef WEFT_PASSES_WHILE_LOOP_H
#define WEFT_PASSES_WHILE_LOOP_H

#include "passes/build.h"
#include "passes/util.h"

typedef struct while_loop {
  hlo_instr *loop;
  hlo_computation *body, *cond;
  int count;                   /* the number of elements of the state */
  hlo_instr **in_body, **in_cond, **after; /* the get-tuple-element of each element; NULL if there is none */
} while_loop;

/* If the state is not a tuple, *out_is_tuple is false and the loop is unchanged. Arrays are allocated in `arena`. */
WEFT_NODISCARD weft_status *while_open(hlo_instr *loop, weft_arena *arena, while_loop *w, bool *out_is_tuple);

static inline hlo_instr *while_init(const while_loop *w, int i) { return w->loop->operands[0]->operands[i]; }
static inline hlo_instr *while_next(const while_loop *w, int i) { return w->body->root->operands[i]; }
static inline bool while_is_invariant(const while_loop *w, int i)
{
  return w->in_body[i] && while_next(w, i) == w->in_body[i];
}

/* Is the element used after the loop? */
static inline bool while_is_used(const while_loop *w, int i)
{
  return w->after[i] && (w->after[i]->user_count > 0 || w->after[i] == w->loop->parent->root);
}

/* The element inside the body, which is made if it is not there. */
WEFT_NODISCARD weft_status *while_in_body(while_loop *w, int i, hlo_instr **out);

/* Keeps only the elements with keep[i]. Only dead instructions may still use the others, and the caller removes
 * those. */
WEFT_NODISCARD weft_status *while_keep(while_loop *w, const bool *keep);

/* Adds `count` invariant elements with these initial values. values[i] receives the element inside the body. */
WEFT_NODISCARD weft_status *while_add_invariants(while_loop *w, int count, hlo_instr **values);

/* Moves the loop and its initial tuple into a fusion, whose results are the elements that are used after the loop.
 * If there are none, *out_fusion is NULL and nothing changes. `map` is as for pass_outline. `with_made`: initial values
 * that are made of one number, or of none (broadcasts, iotas), are made in the fusion. */
WEFT_NODISCARD weft_status *while_outline(while_loop *w, pass_map *map, const char *name, bool with_made,
                                          hlo_instr **out_fusion);

/* Opens the loops of all sequential computations that have no control edges, inner ones first, and hands each to
 * `make`, which may outline it: *out_fusion is the fusion then, else NULL. `ctx` is make's own. */
typedef weft_status *while_maker(const void *ctx, while_loop *w, pass_map *map, hlo_instr **out_fusion);
WEFT_NODISCARD weft_status *while_make_kernels(hlo_module *module, weft_arena *scratch, while_maker *make,
                                               const void *ctx, bool *changed);

/* The number of iterations of a counted loop, with constant start and step and a comparison with a constant; -1 if
 * it is unknown. */
int64_t while_trip_count(const while_loop *w);

#endif
