/* tests/gpu/emulator/internal.h -- the decoded form of PTX, and the state of a launch.
 *
 * Decoded form: the code of all functions of a module is one array of ptx_inst.  A value register is a row of 32
 * lanes of 64 bits; handlers cast what they read to the width of their type, so bits above that width do not matter.
 * A predicate register is one word with a bit for each lane.  An operand is the number of a row, or ~n for the n-th
 * constant of the module.  The order of rows is: special registers, registers of device functions, registers of the
 * kernel.  Device functions do not recurse, so their registers and their stack have fixed places, and a call needs
 * no frame. */
#ifndef WEFT_EMU_INTERNAL_H
#define WEFT_EMU_INTERNAL_H

#include "ptx.h"
#include "tables.h"

enum { PTX_LANES = 32, PTX_MAX_DST = 8, PTX_MAX_SRC = 12, PTX_BARRIERS = 16, PTX_CACHE = 64 };
typedef uint64_t ptx_row[PTX_LANES];

#define PTX_ROW(e, name, bytes) PTX_##e,
typedef enum ptx_type { PTX_NOTYPE, PTX_TYPES(PTX_ROW) PTX_TYPE_COUNT } ptx_type;
#undef PTX_ROW
#define PTX_ROW(name, form, flags) PTX_OP_##name,
typedef enum ptx_op { PTX_OPS(PTX_ROW) PTX_OP_COUNT } ptx_op;
#undef PTX_ROW
#define PTX_ROW(name, flag) PTX_BIT_##flag,
enum { PTX_FLAGS(PTX_ROW) };
#undef PTX_ROW
#define PTX_ROW(name, flag) PTX_F_##flag = 1 << PTX_BIT_##flag,
enum { PTX_FLAGS(PTX_ROW) };
#undef PTX_ROW
#define PTX_ROW(e, name) PTX_SR_##e,
enum { PTX_SREGS(PTX_ROW) PTX_SR_COUNT };
#undef PTX_ROW

typedef enum ptx_space { PTX_GENERIC, PTX_GLOBAL, PTX_SHARED, PTX_LOCAL, PTX_PARAM, PTX_CONST, PTX_KERNEL_PARAM } ptx_space;
enum { PTX_NOROUND, PTX_RN, PTX_RZ, PTX_RM, PTX_RP, PTX_RNI, PTX_RZI, PTX_RMI, PTX_RPI, PTX_RNA };
enum { PTX_EQ, PTX_NE, PTX_LT, PTX_LE, PTX_GT, PTX_GE, PTX_EQU, PTX_NEU, PTX_LTU, PTX_LEU, PTX_GTU, PTX_GEU, PTX_NUM, PTX_NANS };
enum { PTX_NOATOMIC, PTX_ADD, PTX_MIN, PTX_MAX, PTX_AND, PTX_OR, PTX_XOR, PTX_EXCH, PTX_CAS, PTX_INC, PTX_DEC, PTX_POPC };
enum { PTX_LO, PTX_HI, PTX_WIDE };
enum { PTX_BAR_SYNC, PTX_BAR_ARRIVE, PTX_BAR_RED, PTX_BAR_WARP };
enum { PTX_IDX, PTX_UP, PTX_DOWN, PTX_BFLY, PTX_ALL, PTX_ANY, PTX_UNI, PTX_BALLOT };
enum { PTX_CP_COPY = 1, PTX_CP_COMMIT, PTX_CP_WAIT };
enum { PTX_MULTI_LOAD = 1, PTX_MULTI_STORE, PTX_MULTI_RED };
enum { PTX_FENCE_ALIAS = 1 };
/* Scopes, which only the check for races looks at: all blocks see one memory. */
typedef enum ptx_scope { PTX_OF_BLOCK = 1, PTX_OF_DEVICE, PTX_OF_SYSTEM } ptx_scope;
typedef enum ptx_sem { PTX_WEAK, PTX_RELAXED, PTX_ACQUIRE, PTX_RELEASE, PTX_ACQ_REL } ptx_sem;

/* Where the generic address space shows the memory that is not global.  No address of the host or the heap has these
 * high bits. */
#define PTX_SHARED_WINDOW (1ull << 56)
#define PTX_LOCAL_WINDOW (2ull << 56)
#define PTX_PARAM_WINDOW (3ull << 56)
#define PTX_WINDOW_MASK (0xffull << 56)

typedef struct ptx_exec ptx_exec;
typedef struct ptx_inst ptx_inst;
/* Executes the instruction for the lanes of `mask`.  A fault sets x->code by ptx_fault. */
typedef void ptx_handler(ptx_exec *x, const ptx_inst *i, uint32_t mask);

struct ptx_inst {
  ptx_handler *run;   /* NULL: control flow, which warp.c does itself */
  uint8_t op, type, from /* the second type */, space, mode, round, cmp, combine, atomic, sem, scope, vec;
  uint8_t dst_count, src_count, types;
  bool negate;        /* the guard is negated */
  uint32_t flags;     /* PTX_F_* */
  uint16_t dst_pred, src_pred, src_not;   /* bit n: operand n is a predicate; operand n is negated */
  int guard;          /* predicate register; -1: none */
  int dst[PTX_MAX_DST], src[PTX_MAX_SRC];
  int base;           /* memory: operand that holds the address */
  /* memory: added to the address; copy_param: the number of bytes; call: the row for the return address */
  int64_t offset;
  int target;         /* bra, call: index of an instruction; brx: index of a table */
  int line;
  uint8_t slots;      /* as in ptx_stats */
};

struct ptx_kernel {
  const ptx_module *module;
  char *name;
  int entry, rows, preds;
  size_t shared_bytes, local_bytes, params_bytes;
  struct { size_t at, size; } *params;
  size_t param_count;
  unsigned max_threads;
};

typedef struct ptx_variable {
  char *name;
  ptx_space space;
  uint64_t at;        /* its address; shared variables of the module have none until a kernel uses them */
  size_t size, align;
  bool dynamic;       /* an extern shared array, whose place depends on the launch */
  int placed_for;     /* shared variables of the module: the function in whose shared memory the variable is placed */
} ptx_variable;

struct ptx_module {
  ptx_globals globals;
  unsigned target;
  ptx_inst *code;
  int code_count, code_room;
  ptx_row *consts;
  int const_count, const_room, *const_slots, const_slot_count;
  int *targets, target_count, target_room;   /* of brx instructions */
  int *tables, table_count, table_room;      /* pairs: first target, count */
  ptx_variable *variables;
  int variable_count, variable_room;
  ptx_kernel **kernels;
  int kernel_count, kernel_room;
  uint64_t sregs;      /* bit set of the special registers that the code reads */
};

/* ---- the machine ---- */

typedef enum ptx_wait { PTX_RUNS, PTX_SYNC, PTX_AT_BARRIER } ptx_wait;

/* Lanes of a warp that are at the same instruction.  `depth` is the number of calls that they are in. */
typedef struct ptx_group {
  int pc, depth;
  uint32_t mask;
  ptx_wait waits;
  uint8_t barrier;
} ptx_group;

typedef struct ptx_warp {
  ptx_row *rows;
  uint32_t *preds;
  uint8_t *local;
  ptx_group groups[PTX_LANES];
  int group_count, index;
  uint32_t started, alive;
  unsigned backs, rotated;   /* so that every group gets a turn: see warp.c */
  uint32_t syncs;      /* bar.warp.sync of the whole warp that were completed so far; they order its memory accesses */
} ptx_warp;

typedef struct ptx_barrier { uint32_t waiting, weight, expected, votes_all, votes_any, count; } ptx_barrier;

typedef struct ptx_block {
  unsigned cta[3];
  uint32_t index;
  uint8_t *shared;
  ptx_warp *warps;
  ptx_barrier barriers[PTX_BARRIERS];
  uint32_t epoch;      /* barriers of the block that were completed so far */
  uint32_t exited;     /* threads */
  bool live;
} ptx_block;

typedef struct ptx_races ptx_races;

struct ptx_exec {
  const ptx_kernel *kernel;
  const ptx_launch *launch;
  ptx_stats stats;
  ptx_block *blocks, *block;
  ptx_warp *warp;
  unsigned resident, threads, warp_count;
  size_t shared_size, local_size, dynamic_at;
  int code;
  char *error;
  size_t error_size;
  ptx_range cache[PTX_CACHE];
  uint64_t generation, random, quantum;
  ptx_races *races;
};

/* The row of lanes of an operand, and of a destination. */
static inline const uint64_t *ptx_in(const ptx_exec *x, const ptx_inst *i, int n)
{
  int r = i->src[n];
  return r >= 0 ? x->warp->rows[r] : x->kernel->module->consts[~r];
}
static inline uint64_t *ptx_out(const ptx_exec *x, const ptx_inst *i, int n) { return x->warp->rows[i->dst[n]]; }
static inline uint32_t ptx_in_pred(const ptx_exec *x, const ptx_inst *i, int n)
{
  uint32_t p = x->warp->preds[i->src[n]];
  return i->src_not >> n & 1 ? ~p : p;
}
static inline void ptx_out_pred(const ptx_exec *x, const ptx_inst *i, int n, uint32_t mask, uint32_t value)
{
  uint32_t *p = &x->warp->preds[i->dst[n]];
  *p = (*p & ~mask) | (value & mask);
}
#define PTX_EACH(mask) for (int l = 0; l < PTX_LANES; l++) if ((mask) >> l & 1)

int ptx_bytes(ptx_type t);
const char *ptx_type_name(ptx_type t);
const char *ptx_op_name(ptx_op op);
bool ptx_is_signed(ptx_type t);
bool ptx_is_float(ptx_type t);

/* Ends the launch with `code`; only the first fault counts.  lane -1: the fault is the warp's; x->warp NULL: it is
 * the block's. */
void ptx_fault(ptx_exec *x, int code, const ptx_inst *i, int lane, const char *format, ...)
  __attribute__((format(printf, 5, 6)));

/* Each returns the handler of an instruction of its family.  NULL: the instruction is of another family, or of a
 * form that is not supported. */
ptx_handler *ptx_pick_int(const ptx_inst *i);
ptx_handler *ptx_pick_bits(const ptx_inst *i);
ptx_handler *ptx_pick_float(const ptx_inst *i);
ptx_handler *ptx_pick_compare(const ptx_inst *i);
ptx_handler *ptx_pick_convert(const ptx_inst *i);
ptx_handler *ptx_pick_move(const ptx_inst *i);
ptx_handler *ptx_pick_memory(const ptx_inst *i);
ptx_handler *ptx_pick_multicast(const ptx_inst *i);
ptx_handler *ptx_pick_warp(const ptx_inst *i);
ptx_handler *ptx_pick_matrix(const ptx_inst *i);

/* memory.c */
/* strong: atomic or with a scope; two strong accesses do not race */
enum { PTX_READ = 1, PTX_WRITE = 2, PTX_STRONG = 4, PTX_MULTICAST = 8 /* through the address of a multicast object */ };
uint8_t *ptx_reach(ptx_exec *x, const ptx_inst *i, int lane, ptx_space space, uint64_t address, unsigned bytes,
                   unsigned access, const uint8_t *value);
uint64_t ptx_get(const uint8_t *at, unsigned bytes);
void ptx_put(uint8_t *at, unsigned bytes, uint64_t value);
uint64_t ptx_atomic_value(const ptx_inst *i, uint64_t old, uint64_t operand);
bool ptx_exchange(uint8_t *at, unsigned bytes, uint64_t *old, uint64_t next); /* false: *old is what was there */
void ptx_addresses(ptx_exec *x, const ptx_inst *i, uint64_t *out);
void ptx_count_access(ptx_exec *x, const ptx_inst *i, const uint64_t *addresses, uint32_t mask, unsigned bytes,
                      bool write);
void ptx_fence(ptx_exec *x, ptx_sem sem, ptx_scope scope);

/* warp.c: runs the warp until none of its groups can go on, the quantum is spent, or there is a fault. */
void ptx_run_warp(ptx_exec *x, ptx_warp *w);

/* barrier.c.  arrive: true: the group goes on at once.  check: completes barriers after threads have ended.
 * report_deadlock: the threads of the block wait, and none can go on. */
bool ptx_barrier_arrive(ptx_exec *x, const ptx_inst *i, uint32_t mask);
void ptx_barrier_check(ptx_exec *x);
void ptx_report_deadlock(ptx_exec *x);

/* races.c */
ptx_races *ptx_races_new(const ptx_exec *x);
void ptx_races_free(ptx_races *r);
/* `key` stands for the byte at `address`: it is the same for all addresses at which that byte is mapped */
void ptx_races_access(ptx_exec *x, const ptx_inst *i, int lane, bool shared, uint64_t address, uint64_t key,
                      const uint8_t *at, unsigned bytes, unsigned access, const uint8_t *value);
void ptx_races_new_block(ptx_exec *x, ptx_block *b);
void ptx_races_publish(ptx_exec *x, ptx_scope scope); /* a release or fence of x->block */
void ptx_races_learn(ptx_exec *x, ptx_scope scope);   /* an acquire or fence of x->block */
void ptx_races_alias(ptx_exec *x);                    /* a fence.proxy.alias of x->block */

#endif
