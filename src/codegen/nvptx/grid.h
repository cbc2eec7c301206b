/* codegen/nvptx/grid.h -- declarations that the files of this folder share. */
#ifndef WEFT_CODEGEN_NVPTX_GRID_H
#define WEFT_CODEGEN_NVPTX_GRID_H

#include "codegen/emit/emit.h"
#include "codegen/nvptx/nvptx.h"

enum { GEN_WARP = 32 };

extern const gen_walker gen_grid_walker;

/* ---- launches (launch.c) --------------------------------------------------------------------------------------- */

/* An artefact while its kernels are emitted. */
typedef struct gen_grid {
  gen_part *part;
  gen_kernel_spec *spec;
  gen_artefact *out;
  int named; /* kernels that have got a name */
} gen_grid;

/* Begins a launch: its kernel gets the next name. The copy, if there is one, is for the caller to set. */
WEFT_NODISCARD weft_status *gen_grid_begin(gen_grid *g, gen_launch **out_launch);
/* Sets the shape of the newest launch. Errors: UNIMPLEMENTED if there are too many blocks. */
WEFT_NODISCARD weft_status *gen_grid_shape(gen_grid *g, int64_t blocks, int threads);
/* gen_grid_begin, and the kernel's frame. `numbered`: the kernel takes numbers, which are f->begin and f->end. */
WEFT_NODISCARD weft_status *gen_grid_open(gen_grid *g, bool numbered, gen_frame *f);
/* Ends the kernel. */
WEFT_NODISCARD weft_status *gen_grid_close(gen_grid *g, gen_frame *f, int64_t blocks, int threads);
/* Ends a kernel of gen_grid_each for `n` elements. */
WEFT_NODISCARD weft_status *gen_grid_close_each(gen_grid *g, gen_frame *f, int64_t n);
/* Sets the numbers of the newest launch. */
void gen_grid_numbers(gen_grid *g, int64_t begin, int64_t end);
/* Launches the kernel of launch `number` once more, with its numbers. */
WEFT_NODISCARD weft_status *gen_grid_again(gen_grid *g, int number);
/* Emits one kernel in which a thread calls body(i) for each i in [0, n). */
WEFT_NODISCARD weft_status *gen_grid_each(gen_frame *f, int64_t n, gen_body_fn *body, void *ctx);
/* The threads of a block of gen_grid_each's launch. */
int gen_grid_threads(const gen_part *part);

/* ---- one block (region.c) -------------------------------------------------------------------------------------- */

/* A region is a kernel of one block. The kernels inside it are device functions, and the block does the work of their
 * blocks one after another. */
enum { GEN_BLOCK_THREADS = 256 };
typedef weft_status *gen_grid_emitter(gen_grid *g, gen_strategy strategy);
typedef struct gen_block {
  gen_grid *grid;              /* of the region */
  gen_grid_emitter *emit;      /* the kernels of a fusion by its strategy */
  gen_target target;           /* one multiprocessor */
  gen_ssa pool;                /* shared memory, which the kernels inside use one after the other; NULL: none yet */
  int64_t pool_at, pool_bytes; /* bytes that the current kernel has taken; the most that one kernel has taken */
} gen_block;

/* The number of this block, an i64 below `count`. In a region, the code between begin and end becomes a loop over all
 * numbers, and the threads meet at its end. */
typedef struct gen_blocks {
  gen_loop loop;
  int mark;
  bool looped;
} gen_blocks;
gen_ssa gen_blocks_begin(gen_emit *e, gen_blocks *b, int64_t count);
void gen_blocks_end(gen_emit *e, gen_blocks *b);

/* ---- threads (block.c) ----------------------------------------------------------------------------------------- */

gen_ssa gen_thread_id(gen_emit *e);        /* in the block; i32 */
gen_ssa gen_block_id(gen_emit *e);         /* i32 */
gen_ssa gen_wide(gen_emit *e, gen_ssa v);  /* as i64 */
gen_ssa gen_small(gen_emit *e, int64_t v); /* a constant i32 */
/* Waits for all threads of the block; afterwards they see what each of them stored before. */
void gen_barrier(gen_emit *e);
/* The same for the lanes of a warp in `mask`, an i32. */
void gen_warp_barrier(gen_emit *e, gen_ssa mask);

/* An array of `elems` elements of `type` in the block's shared memory, for one part of a value. */
typedef struct gen_shared {
  gen_buffer buffer;
  LLVMTypeRef type, element; /* in registers, in memory */
} gen_shared;
gen_ssa gen_shared_global(gen_part *p, LLVMTypeRef array);
gen_shared gen_shared_array(gen_emit *e, LLVMTypeRef type, int64_t elems);
void gen_shared_put(gen_emit *e, const gen_shared *array, gen_ssa at, gen_ssa v); /* at: i64 */
gen_ssa gen_shared_get(gen_emit *e, const gen_shared *array, gen_ssa at);

/* Threads that combine what they have accumulated: `count` of them, a power of 2 up to a warp or whole warps, which are
 * then all the block's. */
typedef struct gen_team {
  int count;
  gen_ssa id;         /* i32: of this thread in the team */
  gen_ssa lane, warp; /* i32 */
  gen_ssa mask;       /* i32: the team's lanes in this thread's warp */
} gen_team;
gen_team gen_team_of(gen_emit *e, int count);
void gen_team_barrier(gen_emit *e, const gen_team *team);
/* The value of the lane that is `distance` below this one, or of lane number `lane`, for all lanes of whole warps. */
gen_value gen_shuffle_up(gen_emit *e, const gen_team *team, gen_value v, int distance);
gen_value gen_shuffle_from(gen_emit *e, const gen_team *team, gen_value v, int lane);
/* The lanes of the whole warp, as bits of an i32, whose `v`, an i32, is this lane's. */
gen_ssa gen_lanes_alike(gen_emit *e, gen_ssa v);
/* Can a team combine this accumulator's values? */
bool gen_team_combines(const gen_acc *acc);
/* Every thread of the team gets the combination of all their values. otherwise[i]: the value that leaves every value of
 * accumulator i unchanged. */
WEFT_NODISCARD weft_status *gen_team_combine(gen_emit *e, const gen_team *team, const gen_acc *accs, int count,
                                             const gen_value *otherwise, gen_value *v);

/* ---- weights (weights.c) --------------------------------------------------------------------------------------- */

/* What a kernel over `elems` elements needs again for each row: operands of broadcasts along leading dimensions. */
enum { GEN_MOST_WEIGHTS = 8 };
typedef struct gen_weights {
  int64_t elems;
  const hlo_instr *arrays[GEN_MOST_WEIGHTS];
  int count;
  int read_bytes, row_bytes; /* that an element takes in memory: in operands of `elems` elements, or
                              * in results if there are none; in both */
} gen_weights;
void gen_weights_of(const hlo_computation *comp, int64_t elems, gen_weights *out);
/* The bytes of weights for an element, of those that rows of `cols` elements have in common. */
int gen_weights_bytes(const gen_weights *w, int64_t cols);
/* How many rows of `cols` elements a thread is to make so that the weights are a small part of the bytes that it moves;
 * 1 if there are none. at_once: the bytes that all threads ask memory for at once if each of them makes one row. Enough
 * must be left of them that memory is always busy. */
int gen_weights_rows(const gen_weights *w, const gen_target *target, int64_t cols, int64_t at_once);

/* ---- columns in shared memory (held.c) ------------------------------------------------------------------------- */

/* Values of a row's columns that several stages need, in a block's dynamic shared memory. */
enum { GEN_MOST_HELD = 8 };
typedef struct gen_held {
  const hlo_instr *values[GEN_MOST_HELD];
  uint32_t stages[GEN_MOST_HELD]; /* that need the value, as bits; the last pass comes behind the stages */
  gen_shared arrays[GEN_MOST_HELD];
  int count;                      /* 0: nothing is worth holding */
  int column_bytes;               /* of all values of a column */
  int live_bytes;                 /* of registers for a column between two stages */
  int64_t room;                   /* bytes that the target has for them */
} gen_held;
/* Finds the values; with `computed`, also those that take long to compute. */
WEFT_NODISCARD weft_status *gen_held_find(gen_part *part, const gen_rows *form, const gen_acc *accs, int acc_count,
                                          bool computed, gen_held *out);
/* Gives the values memory for so many columns; returns the bytes that the launch must ask for. */
int64_t gen_held_place(gen_held *h, gen_emit *e, int64_t columns);
/* For `count` neighbouring columns, the first of which is element `linear` of the rows: loads what `stage` is the first
 * to need and leaves it at `place`, an i64; takes from there what an earlier stage has left. */
WEFT_NODISCARD weft_status *gen_held_open(const gen_held *h, gen_emit *e, gen_env *env, int stage, gen_affine linear,
                                          gen_ssa place, int count);

/* ---- finished code (bytes.c) ----------------------------------------------------------------------------------- */

/* Makes loads of words of the module's loads of vectors of bytes. */
void gen_load_words(gen_part *p);

/* ---- strategies ------------------------------------------------------------------------------------------------ */

/* Entries of the walker's table (region.c, rows.c). */
weft_status *gen_grid_inner(gen_part *part, gen_kernel_spec *spec);
weft_status *gen_grid_start(gen_part *part, gen_kernel_spec *spec, gen_frame *f);
void gen_grid_copy(gen_emit *e, gen_ssa to, gen_ssa from, int64_t bytes);
weft_status *gen_grid_accumulate(gen_row *row, gen_emit *e, int stage, gen_acc *accs, int count, gen_value *out);
weft_status *gen_grid_columns_of_row(gen_row *row, gen_emit *e, gen_body_fn *body, void *ctx);
weft_status *gen_grid_once(gen_row *row, gen_emit *e, gen_body_fn *body, void *ctx);

/* The kernels of a fusion by its strategy. */
WEFT_NODISCARD weft_status *gen_grid_region(gen_grid *g, gen_grid_emitter *emit);
WEFT_NODISCARD weft_status *gen_grid_rows(gen_grid *g);
/* What one element costs, as a measure of the code's length: an element-wise operation counts 1. */
int64_t gen_work_of(const hlo_computation *comp);
WEFT_NODISCARD weft_status *gen_grid_columns(gen_grid *g);
WEFT_NODISCARD weft_status *gen_grid_turn(gen_grid *g);
WEFT_NODISCARD weft_status *gen_grid_update(gen_grid *g);
WEFT_NODISCARD weft_status *gen_grid_scatter(gen_grid *g);
WEFT_NODISCARD weft_status *gen_grid_pick(gen_grid *g);
/* Launches that bring the array of `base` into its result, unless both are one buffer (update.c). */
WEFT_NODISCARD weft_status *gen_grid_bring(gen_grid *g, gen_base base);
WEFT_NODISCARD weft_status *gen_grid_join(gen_grid *g);        /* of a concatenate */
WEFT_NODISCARD weft_status *gen_grid_sort(gen_grid *g);        /* of a sort or a top-k */
WEFT_NODISCARD weft_status *gen_grid_scan(gen_grid *g);        /* of a reduce-window that is a scan */
WEFT_NODISCARD weft_status *gen_grid_permutation(gen_grid *g); /* of a custom call (gen_is_permutation) */
bool gen_is_permutation(const hlo_instr *instr);

/* The array of partial results of accumulator i, in the scratch: `elems` of each. */
gen_buffer gen_partial(gen_emit *e, const gen_frame *f, const gen_acc *acc, int i, int64_t elems);
enum { GEN_PARTIAL_BYTES = 16 }; /* of scratch for an element of a partial result */

#endif
