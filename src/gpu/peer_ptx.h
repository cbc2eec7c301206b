/* gpu/peer_ptx.h -- the kernels of collectives between GPUs that reach each other's memory, as PTX.
 *
 * A *signal area* is memory of one device that all devices of a communicator write to.  It has a counter for each block
 * of a kernel, the number of barriers that the block has passed, and for each block and rank a *slot*, in which that
 * rank says how many barriers its block of this number has come to.  All of it begins as zero.  Numbers are compared
 * by their difference, so they may wrap. */
#ifndef WEFT_GPU_PEER_PTX_H
#define WEFT_GPU_PEER_PTX_H

#include "weft/collective.h"

enum {
  GPU_PEER_RANKS = 16,        /* most ranks of a communicator */
  GPU_PEER_BLOCKS = 32,       /* most blocks of a kernel that has a barrier: few enough to run at the same time */
  GPU_PEER_THREADS = 512,     /* of a block that folds */
  GPU_PEER_BARRIER_THREADS = 32,
  GPU_PEER_STEP_BYTES = 16,   /* bytes that a thread loads at once */
  GPU_PEER_COUNTERS_AT = 0,
  GPU_PEER_SLOTS_AT = 4 * GPU_PEER_BLOCKS,
  GPU_PEER_AREA_BYTES = GPU_PEER_SLOTS_AT + 4 * GPU_PEER_BLOCKS * GPU_PEER_RANKS,
};

/* The parameter of every kernel.
 *   "barrier"   returns when the kernel runs on all ranks.
 *   "fold"      out[i] = in[0][i] (+) in[1][i] (+) ..., from the left.
 *   "one_shot"  copies `send` to `scratch`, which is in[rank], waits for the other ranks, and folds.
 *   "scatter"   the same, but `send` and `scratch` have a block for each rank; in[k] is this rank's block of rank k.
 *   "gather"    copies `send` to `scratch`, waits for the other ranks, and copies in[k] to block k of `out`.
 * A barrier ends at once when *abort is not zero; what is read then means nothing.
 *
 * The kernels below use scratches that multicast joins: `scratch` is the address of the rank's own, `all` that of the
 * scratches of all ranks, which only multimem instructions may use.  They handle whole steps, of which the last may
 * go beyond the data: the scratches are larger.
 *   "multicast_reduce"     copies `send` to `scratch`, waits, and reduces the scratches into `out`.
 *   "multicast_two_shot"   likewise, but each rank reduces its share of the steps into the scratches of all, waits, and
 *                          copies its scratch to `out`.
 *   "multicast_scatter"    the first for the rank's block; `send` and `scratch` have a block for each rank.
 *   "multicast_gather"     stores `send` as the rank's block in the scratches of all, waits, copies all to `out`.
 *   "multicast_broadcast"  stores `send`, if that is not 0, in the scratches of all, waits, and copies `scratch` to
 *                          `out`, if that is not 0.
 *   "multicast_spread"     folds its share of the steps of all in[k], from the left, into the scratches of all, waits,
 *                          and copies its scratch to `out`. */
typedef struct gpu_peer_args {
  uint64_t in[GPU_PEER_RANKS];
  uint64_t out, send, scratch;
  uint64_t count;      /* elements; of one block */
  uint64_t block;      /* bytes from one block to the next */
  uint64_t steps;      /* of GPU_PEER_STEP_BYTES: the elements behind them are done one by one; 0 if an address of these
                          is no multiple of GPU_PEER_STEP_BYTES */
  uint64_t area[GPU_PEER_RANKS]; /* the signal area of each rank */
  uint64_t abort;      /* memory of the host: not 0 after an abort */
  uint32_t rank, unused;
  /* of the kernels with multicast; `steps` are those of `send` and `in`, and `block` holds for them and `out` */
  uint64_t all;
  uint64_t bytes;      /* of one block */
  uint64_t slot;       /* bytes from one block in a scratch to the next: a multiple of GPU_PEER_STEP_BYTES */
  uint64_t out_steps;  /* as `steps`, of `out` */
} gpu_peer_args;

/* The parameter of the kernel "pieces", which copies each piece by the blocks of one row of its grid. A piece may have
 * any address and length. */
enum { GPU_PEER_PIECES = 128 };
typedef struct gpu_peer_piece { uint64_t from, to, bytes; } gpu_peer_piece;
typedef struct gpu_peer_pieces {
  uint64_t count;
  gpu_peer_piece piece[GPU_PEER_PIECES];
} gpu_peer_pieces; /* at most 4096 bytes: the parameters of a kernel */

/* Whether there are kernels for a reduction.  *out_dtype: of equal kernels, the type that they are made for, which
 * has *out_per_elem elements in one of `dtype`. */
bool gpu_peer_reduces(weft_dtype dtype, weft_reduction reduction, weft_dtype *out_dtype, int *out_per_elem);

/* A module with the kernels of a reduction that gpu_peer_reduces gives, for this number of ranks; with
 * WEFT_REDUCE_NONE it has "barrier", "gather" and "pieces" alone.  Malloc'd; NULL: no memory. */
char *gpu_peer_ptx(weft_dtype dtype, weft_reduction reduction, int ranks);

/* Whether multimem instructions reduce so: operations of integers, whose result does not depend on their order.  (The
 * sums of floats do, and what their minimum and maximum are of NaN is not documented.) */
bool gpu_peer_multicast_reduces(weft_dtype dtype, weft_reduction reduction);

/* A module with "multicast_spread", and "multicast_reduce", "multicast_two_shot" and "multicast_scatter" if
 * gpu_peer_multicast_reduces says so; with WEFT_REDUCE_NONE with "multicast_gather" and "multicast_broadcast" alone.
 * For sm_90 and newer. */
char *gpu_peer_multicast_ptx(weft_dtype dtype, weft_reduction reduction, int ranks);

#endif
