/* codegen/nvptx/sort.h -- declarations for the ways of sorting: by merging (sort.c), by radix (radix.c), and by radix
 * in one block (block_radix.c). The functions that they share are in sorted.c. */
#ifndef WEFT_CODEGEN_NVPTX_SORT_H
#define WEFT_CODEGEN_NVPTX_SORT_H

#include "codegen/model/keys.h"
#include "codegen/nvptx/grid.h"

enum { GEN_SORT_OPERANDS = 64, GEN_SORT_ALIGN = 256 /* of an array in the scratch */,
       GEN_SORT_TILE = 1024 /* elements that a block merges in shared memory */ };

typedef struct gen_sorting {
  gen_grid *g;
  gen_frame *f;
  const hlo_instr *instr;
  int operands;
  int64_t n, inner, slices;   /* elements of a slice, the step between them, how many slices */
  int64_t kept;               /* elements of a slice that are stored: k of a top-k */
  gen_key keys[GEN_MOST_KEYS];
  int key_count;              /* 0: only the comparator knows the order */
} gen_sorting;

/* Where position `at` of the slice is in an array whose slices have `length` elements. */
gen_affine gen_sort_place(const gen_sorting *s, gen_emit *e, gen_ssa slice, gen_ssa at, int64_t length);
/* The bits of an element as an integer, or as complex numbers if they are too many: they are moved as they are. */
gen_buffer gen_sort_bits(gen_buffer buffer);
/* The unsigned integer that orders elements: of the bits of an integer, or of a
 * float whose infinity has the bits `inf`. */
gen_ssa gen_sort_key(gen_emit *e, const gen_key *key, gen_ssa bits, uint64_t inf);
/* The digit of an element, an i32 below `digits`, a power of 2: the bits of the integer that orders it from bit number
 * `shift`, an i64, on. */
gen_ssa gen_sort_digit(gen_emit *e, const gen_key *key, gen_ssa bits, gen_ssa shift, int digits);
/* How many lanes of the warp have the same digit; how many of them are below this one, and whether none is. */
gen_ssa gen_sort_lanes(gen_emit *e, const gen_team *team, gen_ssa digit, gen_ssa *out_is_first, gen_ssa *out_below);
/* The sum of `v`, an i32, over the lanes up to this one. */
gen_ssa gen_sort_sum_lanes(gen_emit *e, const gen_team *team, gen_ssa v);
/* The slice and the position that a thread of a launch over all elements has. */
void gen_sort_split(gen_emit *e, gen_affine at, int64_t length, gen_ssa *slice, gen_ssa *position);
/* A launch in which a thread calls body(i) for each i in [0, n). */
WEFT_NODISCARD weft_status *gen_sort_each(gen_sorting *s, int64_t n, gen_body_fn *body, void *ctx);
/* Brings the elements of all operands but number `but` (-1: of all) to the results, in the order of
 * the positions that lie in the scratch at `positions`. They pass through the scratch at `gathered`,
 * since a result may lie on its operand. */
WEFT_NODISCARD weft_status *gen_sort_take(gen_sorting *s, int64_t positions, int64_t gathered, int but);
/* The bytes of scratch that this needs at `gathered`. */
int64_t gen_sort_take_bytes(const gen_sorting *s, int but);

/* ---- by radix (radix.c) ---------------------------------------------------------------------------------------- */

/* Is the sort one by a single key, of so many elements that dealing them by the
 * key's digits is quicker than merging? */
bool gen_radix_fits(const gen_sorting *s);
WEFT_NODISCARD weft_status *gen_radix(gen_sorting *s);

/* ---- by radix, in one launch (block_radix.c) ------------------------------------------------------------------- */

/* Is the sort one by a single key, of slices too long for a tile of merging that one block can hold? */
bool gen_block_radix_fits(const gen_sorting *s);
WEFT_NODISCARD weft_status *gen_block_radix(gen_sorting *s);

#endif
