/* collective/host/schedule.h -- algorithms as data: what one rank sends, receives, reduces and copies, and in which
 * order.
 *
 * A schedule is a pure function of a problem: the engine can run it, the simulator can run it for any number of
 * ranks, and a test can compare the two.  It is a list of rounds.  The steps of a round may run in any order and at
 * the same time; a round begins when the round before it has ended on this rank.  No schedule needs a transport that
 * buffers: it ends even if a send ends only together with its receive.  Between two ranks, the n-th send meets the
 * n-th receive. */
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
  int64_t tmp_bytes; /* size of its scratch */
} coll_schedule;

void coll_schedule_fini(coll_schedule *schedule); /* `schedule` is zeroed or built */

/* X(NAME, text) */
#define COLL_ALGORITHMS(X)                                                                                  \
  X(AUTO, "auto")                                                                                           \
  X(DIRECT, "direct")                       /* every rank to every rank at once; reductions fold in rank order */ \
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

/* Numbers the nodes by their lowest rank.  label[size]: any numbers, the same for ranks of one node. */
WEFT_NODISCARD weft_status *coll_topology_init(coll_topology *topology, const uint64_t *label, int size);
void coll_topology_fini(coll_topology *topology); /* `topology` is zeroed or initialised */

/* What one rank has to do.  Where a kind has one block for each rank, `prefix` gives the blocks' byte offsets in
 * rank order (size + 1 entries); NULL means equal blocks of `bytes`. */
typedef struct coll_problem {
  weft_coll_kind kind;
  int size, rank, root;
  int64_t bytes;         /* of the vector, or of one block */
  int64_t elem_bytes;    /* vectors are cut between elements */
  const int64_t *prefix;
  /* all-to-all-v and ragged: where the bytes for / from each rank are, and how many */
  const int64_t *send_at, *send_bytes, *recv_at, *recv_bytes;
  int pieces;            /* entries of each rank in these arrays, [size * pieces]; 0 counts as 1 */
  int source, target;    /* permute */
  bool in_place;         /* IN and OUT are the same memory (reductions and broadcast) */
  bool rank_order;       /* reductions must be a left fold in rank order */
  const coll_topology *topology; /* NULL: every rank a node of its own */
  int64_t segment_bytes; /* of pipelined algorithms; 0: a default */
} coll_problem;

/* True if the algorithm can solve the problem.  That depends on the kind, the size, the order of reductions and the
 * shape of the nodes. */
bool coll_algorithm_applies(coll_algorithm algorithm, const coll_problem *problem);

/* Builds this rank's schedule into *out, whose memory is reused.  `algorithm` must apply.
 * Errors: RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *coll_schedule_build(const coll_problem *problem, coll_algorithm algorithm,
                                                coll_schedule *out);

/* Checks the invariant of schedules, for tests: steps of a round do not touch each other's memory unless both only
 * read, and no step leaves its buffer.
 * Errors: INTERNAL, naming the step. */
WEFT_NODISCARD weft_status *coll_schedule_check(const coll_problem *problem, const coll_schedule *schedule);

/* Bytes of IN and of OUT that the rank of a problem uses. */
int64_t coll_problem_in_bytes(const coll_problem *problem);
int64_t coll_problem_out_bytes(const coll_problem *problem);

#endif
