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
