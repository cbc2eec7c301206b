/* collective/host/schedule.h -- algorithms as data: what one rank sends, receives, reduces and copies, in which order.
 *
 * A schedule is a pure function of a problem, so that the engine can run it, the simulator can run it for ranks nobody
 * has, and a test can compare the two.  It is a list of rounds.  The steps of a round may run in any order and at the
 * same time; a round begins when the one before it has ended on this rank.  No schedule needs a transport to buffer:
 * it ends even where a send ends only with its receive.  Between two ranks, the n-th send meets the n-th receive. */
#ifndef WEFT_COLLECTIVE_HOST_SCHEDULE_H
#define WEFT_COLLECTIVE_HOST_SCHEDULE_H

#include "weft/collective.h"

typedef enum coll_memory { COLL_IN, COLL_OUT, COLL_TMP, COLL_MEMORY_COUNT } coll_memory;

typedef enum coll_step_kind {
  COLL_SEND,        /* src[bytes] to peer */
  COLL_RECV,        /* dst[bytes] from peer */
  COLL_RECV_REDUCE, /* dst = src (+) incoming, or incoming (+) src with incoming_left; dst may be src */
  COLL_COPY,        /* dst = src */
  COLL_FOLD,        /* dst = src (+) src + bytes (+) ...: `peer` contributions, left to right */
  COLL_ZERO,        /* dst = 0 */
} coll_step_kind;

typedef struct coll_step {
  uint8_t kind;          /* coll_step_kind */
  uint8_t dst_in, src_in; /* coll_memory */
  bool incoming_left;
  bool ends_round;
  int32_t peer;
  int64_t dst, src, bytes; /* byte offsets */
} coll_step;

typedef struct coll_schedule {
  coll_step *steps; /* owned */
  size_t count, capacity;
  int64_t tmp_bytes; /* scratch that it needs */
} coll_schedule;

void coll_schedule_fini(coll_schedule *schedule); /* of a zeroed or a built one */

/* X(NAME, text) */
#define COLL_ALGORITHMS(X)                                                                                  \
  X(AUTO, "auto")                                                                                           \
  X(DIRECT, "direct")                       /* everybody to everybody at once; reductions fold in rank order */ \
  X(RECURSIVE_DOUBLING, "recursive-doubling")                                                               \
  X(RABENSEIFNER, "rabenseifner")           /* recursive halving, then doubling */                          \
  X(RING, "ring")                                                                                           \
  X(BRUCK, "bruck")                                                                                         \
  X(PAIRWISE, "pairwise")                   /* one partner a round */                                       \
  X(BINOMIAL, "binomial")                                                                                   \
  X(DOUBLE_TREE, "double-tree")             /* two complementary binary trees, pipelined */                 \
  X(DISSEMINATION, "dissemination")                                                                         \
  X(CHAIN, "chain")                         /* pipelined */                                                 \
  X(SCATTER_GATHER, "scatter-gather")       /* scatter or reduce-scatter, then a gather */                  \
  X(GATHER_FOLD, "gather-fold")             /* all contributions everywhere (or at the root), then a fold */ \
  X(HIERARCHICAL, "hierarchical")           /* in the node, between leaders, in the node */                 \
  X(LANES, "lanes")                         /* reduce-scatter in the node, all-reduce per slice, gather */

typedef enum coll_algorithm {
#define COLL_ALGORITHM_ENUM(name, text) COLL_ALG_##name,
  COLL_ALGORITHMS(COLL_ALGORITHM_ENUM)
#undef COLL_ALGORITHM_ENUM
  COLL_ALGORITHM_COUNT
} coll_algorithm;

const char *coll_algorithm_name(coll_algorithm algorithm);
bool coll_algorithm_from_name(const char *name, size_t length, coll_algorithm *out);

/* Which ranks share a node.  Immutable; shared by the problems of a communicator. */
typedef struct coll_topology {
  int size, node_count;
  bool equal_nodes; /* all have the same number of ranks */
  int *node;        /* [size] dense node number */
  int *first;       /* [node_count + 1] where a node's ranks begin in `ranks` */
  int *ranks;       /* [size] ascending within a node */
  int *leader;      /* [node_count] the lowest rank of each */
} coll_topology;

/* From any node labels, label[size]: nodes are numbered by their lowest rank. */
WEFT_NODISCARD weft_status *coll_topology_init(coll_topology *topology, const int *label, int size);
void coll_topology_fini(coll_topology *topology); /* of a zeroed or an initialised one */

/* What is to be done by one rank.  Blocks: where a kind has one block for each rank, `prefix` gives their byte
 * offsets in rank order (size + 1 entries), and NULL means equal blocks of `bytes`. */
typedef struct coll_problem {
  weft_coll_kind kind;
  int size, rank, root;
  int64_t bytes;         /* of the vector, or of one block */
  int64_t elem_bytes;    /* vectors are cut between elements */
  const int64_t *prefix;
  /* all-to-all-v and ragged: bytes for / from each rank and where */
  const int64_t *send_at, *send_bytes, *recv_at, *recv_bytes;
  int pieces;            /* of each rank in these arrays, [size * pieces]; 0 counts as 1 */
  int source, target;    /* permute */
  bool in_place;         /* IN and OUT are the same memory (reductions and broadcast) */
  bool rank_order;       /* reductions must be a left fold in rank order */
  const coll_topology *topology; /* NULL: every rank a node of its own */
  int64_t segment_bytes; /* of pipelined algorithms; 0: a default */
} coll_problem;

/* True if the algorithm can do the problem (kind, size, order, node shape). */
bool coll_algorithm_applies(coll_algorithm algorithm, const coll_problem *problem);

/* Builds this rank's schedule into *out (reused: its memory is kept).  `algorithm` must apply.
 * Errors: RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *coll_schedule_build(const coll_problem *problem, coll_algorithm algorithm,
                                                coll_schedule *out);

/* Our invariant, for tests: steps of a round do not touch each other's memory, and none leaves its buffer.
 * Errors: INTERNAL, naming the step. */
WEFT_NODISCARD weft_status *coll_schedule_check(const coll_problem *problem, const coll_schedule *schedule);

/* Bytes of IN and OUT that a problem uses on its rank. */
int64_t coll_problem_in_bytes(const coll_problem *problem);
int64_t coll_problem_out_bytes(const coll_problem *problem);

#endif
