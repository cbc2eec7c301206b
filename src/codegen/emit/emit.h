/* codegen/emit/emit.h -- the value of an instruction at an index, as LLVM IR.
 *
 * The emitters know neither loops nor threads. A walker (codegen/host, codegen/nvptx) walks the elements of a
 * result, in loops or over a grid of threads, and asks for the value of an instruction at each index. Where walkers
 * differ inside a value, the emitters call functions of the walker's table (gen_walker).
 *
 * A value is an LLVM scalar, or a vector of `lanes` neighbours where the walker has made a loop variable the lane
 * variable. A value that is the same in all lanes stays a scalar. Indices are sums of terms that are affine in the
 * loop variables, so that reshapes, transposes, slices and broadcasts cost nothing at run time. */
#ifndef WEFT_CODEGEN_EMIT_EMIT_H
#define WEFT_CODEGEN_EMIT_EMIT_H

#include <llvm-c/Core.h>
#include <setjmp.h>

#include "codegen/codegen.h"
#include "codegen/model/target.h"

typedef LLVMValueRef gen_ssa;
typedef struct gen_walker gen_walker;

/* ---- one LLVM module (part.c) ---------------------------------------------------------------------------------- */

typedef struct gen_part {
  const gen_options *options;
  const gen_target *target;
  const gen_walker *walker;
  weft_arena *arena; /* for indices, memos and names; lives as long as the part */
  LLVMContextRef ctx;
  LLVMModuleRef mod;
  LLVMBuilderRef b;
  LLVMTypeRef i1, i8, i16, i32, i64, f32, f64, ptr, voidt;
  LLVMMetadataRef alias_domain, empty_node;
  unsigned md_scope, md_noalias, md_invariant;
  bool raw_narrow;               /* narrow floats are only moved: registers hold their storage form */
  bool unrolled_scalars;         /* a kernel computes element after element without a loop over them */
  struct gen_inner_table *inner; /* kernels inside regions (region.c), or NULL */
  struct gen_block *block;       /* nvptx: one block does all work of the kernel (nvptx/region.c); NULL: a grid does */
} gen_part;

/* The memory of an emission. Emitters hand values and indices to each other and cannot go on without one of them, so
 * an allocation that fails ends the emission: it jumps to out_of_memory, which the function that began the emission
 * has set by setjmp. An emission owns nothing but the arena and the part's LLVM context. */
typedef struct gen_memory {
  weft_arena arena;
  jmp_buf out_of_memory;
} gen_memory;
/* Begins an emission: from here on, an allocation of the arena that fails jumps to out_of_memory. most_bytes 0: no
 * bound. */
void gen_memory_guard(gen_memory *memory, int64_t most_bytes);

/* Makes an empty LLVM module in a context of its own. Borrows all but `name` for the part's life. Errors:
 * RESOURCE_EXHAUSTED. */
weft_status *gen_part_init(gen_part *p, const gen_options *options, const gen_target *target, const gen_walker *walker,
                           weft_arena *arena, const char *name);
void gen_part_fini(gen_part *p);

/* ---- values and types (ir.c) ----------------------------------------------------------------------------------- */

/* An element in registers. PRED is i1, integers of at most 8 bits are i8, floats narrower than f32 are f32. A
 * complex value has both parts; all others have im = NULL. A scalar is the same in all lanes. */
typedef struct gen_value {
  gen_ssa re, im;
} gen_value;

/* A loop variable.  In vector mode the lane variable stands for value + (0, 1, ... lanes-1). */
typedef struct gen_var {
  gen_ssa value;  /* i64 */
  int64_t lo, hi; /* values lie in [lo, hi) */
  int64_t align;  /* value is a multiple of it */
  bool lane;
} gen_var;

/* coef * ((var / div) % mod), where mod 0 means no remainder; or coef * value, if var is -1. */
typedef struct gen_term {
  int64_t coef, div, mod;
  int64_t lo, hi;  /* value: inclusive bounds, known to the emitter */
  gen_ssa value;   /* i64 or a vector of i64 */
  const struct gen_affine *of; /* value: (of / div) % mod, where that is known; else NULL */
  int var;
} gen_term;
typedef struct gen_affine {
  int64_t base;
  int count;
  const gen_term *terms; /* in the part's arena, immutable */
} gen_affine;
typedef struct gen_index {
  int rank;
  uint64_t hash;
  gen_affine d[];
} gen_index;

/* An array in memory. */
typedef struct gen_buffer {
  gen_ssa ptr;
  weft_dtype type;
  int64_t elems;
  LLVMMetadataRef scope, noalias; /* or NULL */
  bool invariant;                 /* the array is not written while the kernel runs */
} gen_buffer;

typedef struct gen_env gen_env;
typedef struct gen_memo gen_memo;

/* The emission of one function. */
enum { GEN_PAIR_LANES = 32 }; /* two vectors of 16 words */

typedef struct gen_emit {
  gen_part *part;
  weft_arena *arena;
  LLVMBuilderRef b;
  gen_ssa fn;
  LLVMBasicBlockRef entry; /* ends in a branch to the body: allocas go before it */
  int lanes;               /* 1: scalar mode */
  /* vectors of GEN_PAIR_LANES lanes hold the even ones of so many neighbours in their first half, the odd ones in their
   * second half: a word of two bf16 becomes f32 by one instruction for each half */
  bool even_odd;
  gen_var *vars;
  int var_count, var_capacity;
  gen_ssa mask;            /* lanes that may load: i1 or a vector of i1; NULL: all */
  gen_memo *memo;
  int depth;
  int emitted;             /* values emitted so far */
  const hlo_instr *kernel; /* for messages */
} gen_emit;

/* Begins the body of function `fn` in scalar mode, without a mask. `kernel` is named in errors. */
void gen_emit_init(gen_emit *e, gen_part *part, gen_ssa fn, const hlo_instr *kernel);
/* Ends the function with `ret`, or with `ret void` if `ret` is NULL. */
void gen_emit_finish(gen_emit *e, gen_ssa ret);

LLVMTypeRef gen_register_type(gen_part *p, weft_dtype type); /* for one part of a complex */
LLVMTypeRef gen_storage_type(gen_part *p, weft_dtype type);
static inline bool gen_is_vector(gen_ssa v) { return LLVMGetTypeKind(LLVMTypeOf(v)) == LLVMVectorTypeKind; }
/* `scalar`, or a vector of it as wide as `like`. */
LLVMTypeRef gen_type_like(gen_ssa like, LLVMTypeRef scalar);
LLVMTypeRef gen_scalar_type(gen_ssa v);
gen_ssa gen_splat(gen_emit *e, gen_ssa scalar, int lanes); /* itself when it is a vector or lanes is 1 */
/* Operand `i` of an instruction of opcode `op`; NULL if `v` is anything else. */
gen_ssa gen_operand_of(gen_ssa v, LLVMOpcode op, unsigned i);
void gen_unify(gen_emit *e, gen_ssa *a, gen_ssa *b); /* splats one if the other is a vector */
void gen_unify3(gen_emit *e, gen_ssa *a, gen_ssa *b, gen_ssa *c);
/* Constants of the type of `like`. */
gen_ssa gen_f(gen_ssa like, double value);
gen_ssa gen_i(gen_ssa like, int64_t value);  /* integer of the same shape and element type */
gen_ssa gen_i64(gen_emit *e, int64_t value); /* scalar */

gen_ssa gen_bin(gen_emit *e, LLVMOpcode op, gen_ssa a, gen_ssa b); /* unifies */
/* Comparisons, a select, and a cast by `op`, which is omitted if `v` has that type. Operands that are scalars are
 * splatted where another operand is a vector. */
gen_ssa gen_icmp(gen_emit *e, LLVMIntPredicate p, gen_ssa a, gen_ssa b);
gen_ssa gen_fcmp(gen_emit *e, LLVMRealPredicate p, gen_ssa a, gen_ssa b);
gen_ssa gen_select(gen_emit *e, gen_ssa c, gen_ssa a, gen_ssa b);
gen_ssa gen_cast(gen_emit *e, LLVMOpcode op, gen_ssa v, LLVMTypeRef scalar);
gen_ssa gen_intrinsic(gen_emit *e, const char *name, int count, gen_ssa *args); /* overloaded on the first argument */
gen_ssa gen_intrinsic1(gen_emit *e, const char *name, gen_ssa a);
gen_ssa gen_intrinsic2(gen_emit *e, const char *name, gen_ssa a, gen_ssa b);
/* a * b + c, rounded once if the machine has fused multiply-add, twice if not. */
gen_ssa gen_fma(gen_emit *e, gen_ssa a, gen_ssa b, gen_ssa c);
/* A call of an emitter appends instructions, and C leaves open in which order the arguments of a call are evaluated.
 * These macros evaluate the values from left to right, so that Weft makes the same code whatever compiler has built it.
 * tests/codegen/order_test.py finds the other calls whose arguments append instructions. */
#define GEN_IN_ORDER_2_(n, f, e, what, a, b) \
  __extension__({ gen_ssa gen_a##n = (a); gen_ssa gen_b##n = (b); (f)(e, what, gen_a##n, gen_b##n); })
#define GEN_IN_ORDER_3_(n, f, e, a, b, c) \
  __extension__({ gen_ssa gen_a##n = (a); gen_ssa gen_b##n = (b); gen_ssa gen_c##n = (c); (f)(e, gen_a##n, gen_b##n, gen_c##n); })
#define GEN_IN_ORDER_2(n, ...) GEN_IN_ORDER_2_(n, __VA_ARGS__)
#define GEN_IN_ORDER_3(n, ...) GEN_IN_ORDER_3_(n, __VA_ARGS__)
#define gen_bin(e, op, a, b) GEN_IN_ORDER_2(__COUNTER__, gen_bin, e, op, a, b)
#define gen_icmp(e, p, a, b) GEN_IN_ORDER_2(__COUNTER__, gen_icmp, e, p, a, b)
#define gen_fcmp(e, p, a, b) GEN_IN_ORDER_2(__COUNTER__, gen_fcmp, e, p, a, b)
#define gen_intrinsic2(e, name, a, b) GEN_IN_ORDER_2(__COUNTER__, gen_intrinsic2, e, name, a, b)
#define gen_select(e, c, a, b) GEN_IN_ORDER_3(__COUNTER__, gen_select, e, c, a, b)
#define gen_fma(e, a, b, c) GEN_IN_ORDER_3(__COUNTER__, gen_fma, e, a, b, c)

/* Calls the C function `name` with `count` arguments of args[0]'s element type, lane by lane. */
gen_ssa gen_libcall(gen_emit *e, const char *name, int count, gen_ssa *args);
gen_ssa gen_shuffle(gen_emit *e, gen_ssa a, gen_ssa b, int count, const int *lanes);
gen_ssa gen_iota(gen_emit *e, LLVMTypeRef scalar, int lanes, int64_t step); /* constant vector 0, step, 2*step ... */
gen_ssa gen_alloca(gen_emit *e, LLVMTypeRef type, const char *name);
gen_ssa gen_byte_ptr(gen_emit *e, gen_ssa ptr, int64_t offset);

/* A new variable for indices. */
int gen_add_var(gen_emit *e, gen_var var);

/* A counted loop by `step` over [lo, hi), both i64 values. Its variable lies in [least, end) and is a multiple of
 * `align`. Between begin and end the builder is in its body. */
typedef struct gen_loop {
  int var;
  gen_ssa hi, step;
  LLVMBasicBlockRef body, exit;
} gen_loop;
void gen_loop_begin(gen_emit *e, gen_loop *loop, gen_ssa lo, gen_ssa hi, int64_t step, int64_t least, int64_t end,
                    int64_t align);
void gen_loop_end(gen_emit *e, gen_loop *loop);
/* The same with static bounds. */
void gen_loop_static(gen_emit *e, gen_loop *loop, int64_t lo, int64_t hi, int64_t step);
/* A loop while a condition holds: begin; the condition's code; test; the body; end. */
typedef struct gen_while {
  LLVMBasicBlockRef head, exit;
} gen_while;
void gen_while_begin(gen_emit *e, gen_while *loop);
void gen_while_test(gen_emit *e, gen_while *loop, gen_ssa cond);
void gen_while_end(gen_emit *e, gen_while *loop);
typedef struct gen_if {
  LLVMBasicBlockRef merge;
  gen_ssa branch;
} gen_if;
void gen_if_begin(gen_emit *e, gen_if *block, gen_ssa cond);
void gen_if_else(gen_emit *e, gen_if *block); /* begins the code for a false condition; may be left out */
void gen_if_end(gen_emit *e, gen_if *block);
/* A value that is made in another way where some lane of `any` is true (or `any` itself, if it is no vector). The code
 * for that way stands between the two calls; gen_rare_end returns `rare` if it ran, else `usual`, which is older. */
typedef struct gen_rare {
  gen_if block;
  LLVMBasicBlockRef before;
} gen_rare;
void gen_rare_begin(gen_emit *e, gen_rare *r, gen_ssa any);
gen_ssa gen_rare_end(gen_emit *e, gen_rare *r, gen_ssa usual, gen_ssa rare);

/* ---- the forms of an element: in memory and in registers (format.c) -------------------------------------------- */

/* One part of an element: from its form in memory to the form that is computed with, and back. */
gen_ssa gen_from_storage(gen_emit *e, weft_dtype type, gen_ssa v);
gen_ssa gen_to_storage(gen_emit *e, weft_dtype type, gen_ssa v);
/* Storage bits (integer) of a narrow float to f32 and back. */
gen_ssa gen_decode_float(gen_emit *e, weft_dtype type, gen_ssa bits);
gen_ssa gen_bf16_bits(gen_emit *e, gen_ssa v); /* of f32 numbers that are bf16 numbers: no rounding */
gen_ssa gen_encode_float(gen_emit *e, weft_dtype type, gen_ssa value);
/* f32 or f64 rounded to `type` and back to f32. */
gen_ssa gen_round_to(gen_emit *e, weft_dtype type, gen_ssa value);
gen_ssa gen_reduce_precision(gen_emit *e, gen_ssa value, int exponent_bits, int mantissa_bits);
/* Sign- or zero-extends the low bits of an integer type narrower than 8 bits. */
gen_ssa gen_wrap_int(gen_emit *e, weft_dtype type, gen_ssa v);
gen_value gen_literal_element(gen_emit *e, const hlo_literal *literal, int64_t index);
/* Does `comp` only move floats narrower than f32, and never compute with them? */
bool gen_only_moves_narrow(const hlo_computation *comp);
/* The bytes that the widest element of what `comp` computes takes in registers. */
int gen_widest_bytes(const hlo_computation *comp);

/* ---- indices (index.c) ----------------------------------------------------------------------------------------- */

/* Terms of indices: a constant; a loop variable by its number; a value in registers that lies in [lo, hi]; sums and
 * multiples. */
gen_affine gen_affine_const(int64_t base);
gen_affine gen_affine_var(gen_emit *e, int var);
gen_affine gen_affine_value(gen_emit *e, gen_ssa value, int64_t lo, int64_t hi);
gen_affine gen_affine_add(gen_emit *e, gen_affine a, gen_affine b);
gen_affine gen_affine_scale(gen_emit *e, gen_affine a, int64_t factor);
static inline gen_affine gen_affine_offset(gen_affine a, int64_t by)
{
  a.base += by;
  return a;
}
/* (a / div) % mod, never negative; mod 0: no remainder. `a` is not negative wherever the value is used. */
gen_affine gen_affine_digit(gen_emit *e, gen_affine a, int64_t div, int64_t mod);
void gen_affine_range(gen_emit *e, gen_affine a, int64_t *out_lo, int64_t *out_hi); /* inclusive */
bool gen_affine_equal(gen_affine a, gen_affine b);
/* The condition lo <= a < hi as i1 or a vector of i1. NULL if it always holds, or never; *never says which. */
gen_ssa gen_affine_within(gen_emit *e, gen_affine a, int64_t lo, int64_t hi, bool *never);

/* An index into an array of that rank. The caller sets d[0] to d[rank - 1] and then seals the index. */
gen_index *gen_index_new(gen_emit *e, int rank);
const gen_index *gen_index_seal(gen_index *idx); /* computes the hash */
bool gen_index_equal(const gen_index *a, const gen_index *b);
/* The row-major number of the element at `idx` in an array of `shape`, and the index of the element of that number. */
gen_affine gen_linearize(gen_emit *e, const hlo_shape *shape, const gen_index *idx);
const gen_index *gen_delinearize(gen_emit *e, const hlo_shape *shape, gen_affine linear);

/* ---- lanes (lanes.c) ------------------------------------------------------------------------------------------- */

/* Do lanes differ in it? */
bool gen_affine_varies(gen_emit *e, gen_affine a);
bool gen_index_varies(gen_emit *e, const gen_index *idx);
/* The value of `a`: an i64, or a vector if it varies. */
gen_ssa gen_affine_ssa(gen_emit *e, gen_affine a);
/* uniform + lane * lane_coef + *varying (NULL: none). */
void gen_affine_split(gen_emit *e, gen_affine a, gen_ssa *out_uniform, int64_t *out_lane_coef, gen_ssa *out_varying);
/* (v / div) % mod of an i64 or a vector of i64 that lies in [0, hi]; mod 0: no remainder. */
gen_ssa gen_digit_ssa(gen_emit *e, gen_ssa v, int64_t div, int64_t mod, int64_t hi);
/* `v` in every lane. */
gen_ssa gen_widen(gen_emit *e, gen_ssa v);
/* How many lanes a value has that is accumulated for the result at `idx`: 1 if lanes differ neither in `idx` nor in the
 * mask. */
int gen_lanes_at(gen_emit *e, const gen_index *idx);

/* ---- the elemental emitter (elemental.c, elementwise.c, math.c, complex.c) ------------------------------------- */

/* The source of an instruction's value (of a parameter, or of an instruction that was computed earlier): a value, an
 * array, or an instruction of another environment. */
typedef struct gen_source {
  enum {
    GEN_SOURCE_NONE, GEN_SOURCE_VALUE, GEN_SOURCE_BUFFER, GEN_SOURCE_INSTR, GEN_SOURCE_ROW, GEN_SOURCE_NUMBERS
  } kind;
  const gen_value *values;   /* VALUE: one per leaf; NUMBERS: one for each index of the other dimensions than
                              * the element_dims ones from `place` on, whose indices do not count */
  const gen_buffer *buffers; /* BUFFER: one per leaf */
  gen_env *env;              /* INSTR */
  const hlo_instr *instr;
  int row_dims;              /* ROW: the buffer holds the trailing row_dims dimensions only */
  int place, element_dims;   /* NUMBERS */
} gen_source;

/* A computation being emitted. */
struct gen_env {
  const hlo_computation *comp;
  gen_source *params;       /* by number */
  const hlo_instr **bound;  /* instructions that sources stand for */
  gen_source *bound_sources;
  int bound_count, bound_capacity;
  int id;                   /* distinguishes equal instructions of two inlined calls */
};
void gen_env_init(gen_emit *e, gen_env *env, const hlo_computation *comp);
weft_status *gen_env_bind(gen_emit *e, gen_env *env, const hlo_instr *instr, gen_source source);

/* A constant's elements as a global. */
gen_ssa gen_constant_data(gen_emit *e, const hlo_instr *constant);
/* Values of `instr` (one per leaf of its shape) at `idx`, an index into its (first) array shape. */
WEFT_NODISCARD weft_status *gen_emit_at(gen_emit *e, gen_env *env, const hlo_instr *instr, const gen_index *idx,
                                        const gen_value **out_values);
/* The clamped start indices of a dynamic-slice or dynamic-update-slice whose scalars begin at operand `first`. */
WEFT_NODISCARD weft_status *gen_emit_starts(gen_emit *e, gen_env *env, const hlo_instr *instr, int first,
                                            const hlo_shape *array, const int64_t *sizes, gen_affine *out);
/* A scalar computation on values: `args` has one value per parameter, *out_values one per leaf of the root. */
WEFT_NODISCARD weft_status *gen_emit_apply(gen_emit *e, const hlo_computation *comp, const gen_value *args,
                                           const gen_value **out_values);
/* Follows tuples, tuple elements and inlined parameters to the instruction that makes leaf *leaf, and sets *leaf to
 * its leaf there. */
void gen_resolve(gen_env **env, const hlo_instr **instr, int *leaf);
WEFT_NODISCARD weft_status *gen_emit_leaf(gen_emit *e, gen_env *env, const hlo_instr *instr, int leaf,
                                          const gen_index *idx, gen_value *out);
/* Emits `x` here if it is a reduction to one element. Loops that begin after this find its value in the memo. */
WEFT_NODISCARD weft_status *gen_hoist(gen_emit *e, gen_env *env, const hlo_instr *x);
/* From here on, `instr`, an array, has the value `v` at `idx`. */
WEFT_NODISCARD weft_status *gen_remember(gen_emit *e, gen_env *env, const hlo_instr *instr, const gen_index *idx,
                                         gen_value v);
/* Memo scopes. Values emitted since push are forgotten at pop: their code does not dominate the code that follows. */
int gen_memo_push(gen_emit *e);
void gen_memo_pop(gen_emit *e, int mark);

/* The elementwise operation of `instr` on values in registers. Errors: UNIMPLEMENTED, naming operation and type. */
WEFT_NODISCARD weft_status *gen_elementwise(gen_emit *e, const hlo_instr *instr, const gen_value *operands,
                                            gen_value *out);
/* HLO's convert between values in registers. Errors: UNIMPLEMENTED. */
WEFT_NODISCARD weft_status *gen_convert(gen_emit *e, weft_dtype from, weft_dtype to, gen_value v, gen_value *out);
/* A transcendental of f32 or f64. b is for atan2 and power, else NULL. */
gen_ssa gen_math(gen_emit *e, hlo_opcode op, gen_ssa a, gen_ssa b);
/* exp of an f32 that is, or will be, rounded to bf16: accurate to 2^-17, by fewer instructions. */
gen_ssa gen_exp_bf16(gen_emit *e, gen_ssa x);
/* sin or cos of an f32 that is, or will be, rounded to bf16: accurate to 2^-18. For targets that multiply and add in
 * one step. */
gen_ssa gen_sin_bf16(gen_emit *e, hlo_opcode op, gen_ssa x);
/* erfc of an f32. `brief`: of one that is, or will be, rounded to bf16, accurate to 2^-16. */
gen_ssa gen_erfc(gen_emit *e, gen_ssa x, bool brief);
/* The remainder of a / b with the sign of a, exact; f32 or f64 (exact.c). */
gen_ssa gen_remainder(gen_emit *e, gen_ssa a, gen_ssa b);
/* Where |x| > limit, which is at least 2^20: x = *quadrant * pi/2 + (*r + *low) modulo 2 pi, |*r| <= pi/4, for f64.
 * Other lanes keep what they have. Infinity yields NaN. */
void gen_reduce_angle(gen_emit *e, gen_ssa x, double limit, gen_ssa *r, gen_ssa *low, gen_ssa *quadrant);
/* The operation on complex numbers; false: there is none for complex numbers. `b` counts for operations of two operands
 * only. */
bool gen_complex_math(gen_emit *e, hlo_opcode op, gen_value a, gen_value b, gen_value *out);
gen_value gen_complex_mul(gen_emit *e, gen_value a, gen_value b);
gen_value gen_complex_div(gen_emit *e, gen_value a, gen_value b);
/* A dot that is small enough for a kernel (dot.c). */
typedef struct gen_small_dot {
  const hlo_instr *instr;
  gen_env *env;
  weft_dtype acc_type;
  int64_t total;       /* contracted elements */
} gen_small_dot;
enum { GEN_UNROLLED_DOT = 4 }; /* contracted elements up to which there is no loop */
/* The index of operand `which`, for the result's index `idx` and the contracted dimensions' indices `over`. */
const gen_index *gen_dot_operand(gen_emit *e, const hlo_instr *instr, int which, const gen_index *idx,
                                 const gen_affine *over);
/* Adds to *acc the product of the operands' elements for these indices. */
WEFT_NODISCARD weft_status *gen_dot_step(gen_emit *e, const gen_small_dot *d, const gen_index *idx,
                                         const gen_affine *over, gen_value *acc);
/* A dot at `idx`, for dots small enough for a kernel (dot.c). Errors: UNIMPLEMENTED for sparse operands. */
WEFT_NODISCARD weft_status *gen_emit_dot(gen_emit *e, gen_env *env, const hlo_instr *instr, const gen_index *idx,
                                         gen_value *out);
/* The maximum (or minimum, if `min`) of two numbers; NaN wins. */
gen_ssa gen_max(gen_emit *e, weft_dtype type, bool min, gen_ssa a, gen_ssa b);

/* UNIMPLEMENTED, naming operation, type and instruction; `what` (or NULL) is added. */
weft_status *gen_unimplemented(gen_emit *e, const hlo_instr *instr, const char *what);

/* ---- accumulators (accumulate.c) ------------------------------------------------------------------------------- */

/* One accumulated value of a reduce. `op` is the reducer if it is one of add, multiply, maximum, minimum, and, or,
 * xor on one value, else HLO_OPCODE_COUNT. With an op, lanes and blocks may be combined in any fixed order. An
 * extreme may have lanes, too: each of them begins with the reduce's initial value. */
typedef struct gen_acc {
  const hlo_instr *reduce;
  int leaf, leaves;
  hlo_opcode op;
  bool extreme; /* gen_is_extreme */
  bool is_bf16; /* of a maximum or minimum: all values are bf16 as they lie in memory, not results that are f32 still */
  weft_dtype type;
  gen_value slot;
} gen_acc;
/* Does `reduce` find the least or greatest value of each row, and the first column that has it?  (extreme.c) */
bool gen_is_extreme(const hlo_instr *reduce);
/* The better of two such pairs (value, index). `acc` is the accumulator of the value, followed by that of the index. */
WEFT_NODISCARD weft_status *gen_combine_extremes(gen_emit *e, const gen_acc *acc, const gen_value left[2],
                                                 const gen_value right[2], gen_value out[2]);
/* The accumulators of all `reduces`, in one array. */
WEFT_NODISCARD weft_status *gen_accs_of(gen_emit *e, const hlo_instr *const *reduces, int count, gen_acc **out,
                                        int *out_count);
bool gen_accs_are_plain(const gen_acc *accs, int count); /* does each have an op? */
/* gen_acc_reset makes acc->slot, memory for a scalar or for a vector of `lanes`, and stores the identity of the op
 * there. gen_acc_init yields the initial value of the reduce. */
void gen_acc_reset(gen_emit *e, gen_acc *acc, int lanes);
WEFT_NODISCARD weft_status *gen_acc_init(gen_emit *e, gen_env *env, gen_acc *acc, gen_value *out);
void gen_acc_set(gen_emit *e, gen_value slot, gen_value v);
gen_value gen_acc_get(gen_emit *e, gen_value slot);
/* Sets the slot of an element of a loop's state. Narrow floats are rounded from one round to the next, as they would be
 * in memory. */
void gen_state_set(gen_emit *e, gen_value slot, weft_dtype type, gen_value v);
gen_value gen_acc_slot(gen_emit *e, weft_dtype type, int lanes);
gen_value gen_combine(gen_emit *e, hlo_opcode op, weft_dtype type, gen_value a, gen_value b);
/* Slots of vectors for a maximum or minimum of floats that are computed in f32, where no instruction of the target
 * keeps NaN and the order of zeros. They hold three extremes of the floats' bits, from which gen_extreme_get takes the
 * float: three instructions a vector, and gen_combine takes five. */
bool gen_has_extreme_slots(gen_emit *e, const gen_acc *acc);
gen_value gen_extreme_slot(gen_emit *e, const gen_acc *acc, int lanes);
bool gen_is_extreme_slot(gen_value slot);
void gen_extreme_add(gen_emit *e, gen_value slot, gen_ssa v);
gen_value gen_extreme_get(gen_emit *e, gen_value slot, bool min);
gen_value gen_identity(gen_emit *e, hlo_opcode op, weft_dtype type);
/* Combines the operands of all accumulators at `idx`, an index into the reduces' operands, into `slots`. */
WEFT_NODISCARD weft_status *gen_accs_step(gen_emit *e, gen_env *env, const gen_acc *accs, int count, gen_value *slots,
                                          const gen_index *idx);
/* The result as the reduce yields it: `v`, rounded to its type if excess precision is not allowed. */
gen_value gen_acc_result(gen_emit *e, const gen_acc *acc, gen_value v);

/* ---- a kernel's function (frame.c) ----------------------------------------------------------------------------- */

typedef struct gen_kernel_spec {
  const hlo_instr *fusion;
  gen_kernel *info;        /* the emitter fills all of it but fn */
  const char *symbols[GEN_MAX_PHASES];
  /* part of a region: what is known of aliasing holds for one run of the kernel only, not for the whole region */
  bool inlined;
  bool whole;              /* a launch does all units, so the function takes no range of them */
  bool nested;             /* each buffer is an argument of the function; begin and end follow */
  bool in_strips;          /* a part of a step of pass strips: rows take a bound (gen_row_bound) if they can */
} gen_kernel_spec;

/* The function of one phase while it is emitted: its arguments, and an environment for the fusion's computation. */
typedef struct gen_frame {
  gen_emit e;
  gen_env env;
  const hlo_instr *fusion;
  const hlo_computation *comp;    /* NULL: the instruction is no fusion and calls nothing */
  gen_buffer *operands, *results; /* by leaf */
  int operand_count, result_count;
  gen_ssa begin, end;
  bool nested;                    /* of gen_kernel_spec */
  gen_ssa scratch, shared, bound; /* or NULL */
} gen_frame;
/* Opens phase `phase`. spec->info->scratch_bytes, shared_bytes and takes_bound must be set by then. */
WEFT_NODISCARD weft_status *gen_frame_open(gen_part *part, gen_kernel_spec *spec, int phase, gen_frame *f);
void gen_frame_close(gen_frame *f);

/* ---- loops and rows (loop.c, rows.c) --------------------------------------------------------------------------- */

typedef weft_status *gen_body_fn(void *ctx, gen_emit *e, gen_affine at);

/* Leaves [first, first + count) of a kernel's result. They have the same number of elements and are walked together. */
typedef struct gen_walk {
  gen_frame *f;
  int first, count;
  const hlo_instr **roots; /* the instruction that makes each of them */
  int period;              /* how many neighbours of each leaf one call of gen_walk_body makes */
  int places;              /* at how many places; 0 means 1 */
  int64_t apart;           /* elements from one place to the next */
  gen_body_fn *body;       /* is called in the place of gen_walk_body, with the gen_walk as ctx; or NULL */
  const hlo_shape *shape;  /* what is walked, or NULL: leaf `first` */
  bool is_flat;            /* in one loop over all its elements */
} gen_walk;
/* Makes and stores the elements at the linear index `at`, and those at the places behind it; ctx is the gen_walk. All
 * values are made before the first is stored, since a result may lie on an operand. */
weft_status *gen_walk_body(void *ctx, gen_emit *e, gen_affine at);
/* Makes the elements of all results at the linear index `at` (at most HLO_MAX_RANK results), then stores them. */
WEFT_NODISCARD weft_status *gen_store_results(gen_frame *f, gen_emit *e, gen_affine at);
/* Emits the whole kernel of the strategy `loop`. */
WEFT_NODISCARD weft_status *gen_emit_loop_kernel(gen_part *part, gen_kernel_spec *spec);

/* One row of a kernel of the strategy `rows`. */
typedef struct gen_row {
  gen_frame *f;
  gen_rows form;
  gen_affine at; /* the current row */
  int period;    /* neighbouring columns that one call of the last pass's body makes; 0 means 1 */
} gen_row;
/* Combines the elements at column `col` into `slots`. */
WEFT_NODISCARD weft_status *gen_row_step(gen_row *r, gen_emit *e, gen_affine col, const gen_acc *accs, int count,
                                         gen_value *slots);
/* The first value of a slot: the identity if the accumulator has an op (gen_row_bind combines the initial value
 * later), else the initial value. */
WEFT_NODISCARD weft_status *gen_row_first(gen_row *r, gen_emit *e, gen_acc *acc, gen_value *out);
/* From here on the reduces stand for the accumulated values `v`, which this combines with the initial values. */
WEFT_NODISCARD weft_status *gen_row_bind(gen_row *r, gen_emit *e, gen_acc *accs, int count, gen_value *v);
/* Stores the results of the row. */
WEFT_NODISCARD weft_status *gen_row_finish(gen_row *r, gen_emit *e);
/* Emits reductions that are the same for all rows and columns, before the loops over these. */
WEFT_NODISCARD weft_status *gen_row_hoist(gen_row *r, gen_emit *e);
/* Emits the row at r->at: its stages, then its results. */
WEFT_NODISCARD weft_status *gen_emit_row(gen_row *r, gen_emit *e);

/* ---- updates (update.c) ---------------------------------------------------------------------------------------- */

/* A result of a kernel, and the array that it is before it is updated: an instruction of the fusion. */
typedef struct gen_base {
  const hlo_instr *array;
  int leaf; /* of the fusion's result */
} gen_base;
/* The operand that holds the array, of the same bytes as the result; NULL: the array is computed. */
const gen_buffer *gen_base_buffer(const gen_frame *f, gen_base base);
/* Stores the array's element at the linear index `at` to the result; ctx is a gen_base_walk. */
typedef struct gen_base_walk {
  gen_frame *f;
  gen_base base;
} gen_base_walk;
weft_status *gen_base_store(void *ctx, gen_emit *e, gen_affine at);

/* A dynamic-update-slice that makes result `leaf`. */
typedef struct gen_update {
  gen_frame *f;
  const hlo_instr *dus;
  int leaf;
  gen_affine starts[HLO_MAX_RANK];
} gen_update;
WEFT_NODISCARD weft_status *gen_update_open(gen_update *u, gen_frame *f, const hlo_instr *dus, int leaf);
/* Stores the update's element at the linear index `at` to its place in the result; ctx is a gen_update. */
weft_status *gen_update_store(void *ctx, gen_emit *e, gen_affine at);

/* A scatter. A walker sets `at`, an index into the updates: first the scatter dimensions, then, inside of
 * gen_scatter_place, the window's. */
typedef struct gen_scatter {
  gen_frame *f;
  const hlo_instr *scatter;
  int n;                          /* arrays scattered to */
  gen_affine at[HLO_MAX_RANK];
  gen_affine start[HLO_MAX_RANK]; /* of the window in the operand */
  /* dimensions of the updates, and the operand's dimension for each */
  int window_dims[HLO_MAX_RANK], operand_dims[HLO_MAX_RANK], window_count;
  int64_t window;                 /* elements of a window */
} gen_scatter;
typedef weft_status *gen_scatter_window(gen_scatter *s, gen_emit *e);
void gen_scatter_open(gen_scatter *s, const hlo_instr *scatter);
/* Is dimension `d` of the updates one of the window? */
bool gen_scatter_in_window(const gen_scatter *s, int d);
/* Do indices choose where windows begin along window dimension `k`?  Then elements of two windows that differ in this
 * dimension may have one place. */
bool gen_scatter_moves(const gen_scatter *s, int k);
/* Finds the window's place and calls `window` if that lies inside of the operand. */
WEFT_NODISCARD weft_status *gen_scatter_place(gen_scatter *s, gen_emit *e, gen_scatter_window *window);
/* The place of the element at s->at: a linear index into the operand. */
gen_affine gen_scatter_target(gen_scatter *s, gen_emit *e);
/* s->at as an index. */
const gen_index *gen_scatter_source(gen_scatter *s, gen_emit *e);
/* Combines the updates' element at s->at into the results. */
WEFT_NODISCARD weft_status *gen_scatter_element(gen_scatter *s, gen_emit *e);

/* A select-and-scatter. A walker sets `out`, an index into the source. */
typedef struct gen_pick {
  gen_frame *f;
  const hlo_instr *instr;
  gen_affine out[HLO_MAX_RANK], at[HLO_MAX_RANK];
  gen_ssa cond, best, best_im, best_at, found; /* slots */
} gen_pick;
/* Errors: UNIMPLEMENTED for a window with base dilation or reversal. */
WEFT_NODISCARD weft_status *gen_pick_open(gen_pick *p, gen_frame *f, const hlo_instr *instr);
/* Finds the element of the window at p->out that is picked: *out_at is its linear index if *out_found is true. */
WEFT_NODISCARD weft_status *gen_pick_find(gen_pick *p, gen_emit *e, gen_ssa *out_found, gen_ssa *out_at);
/* `old` combined with the source's element at p->out. */
WEFT_NODISCARD weft_status *gen_pick_source(gen_pick *p, gen_emit *e, gen_value old, gen_value *out);

/* ---- columns (columns.c) --------------------------------------------------------------------------------------- */

/* The index into the operands of the reduces, for the kept element `kept` and the reduced dimensions' indices `at`. */
const gen_index *gen_columns_index(gen_emit *e, const gen_columns *form, gen_affine kept, const gen_affine *at);
/* Stores the kernel's results at `kept`, where the reduces have the values `v`. */
WEFT_NODISCARD weft_status *gen_columns_finish(gen_frame *f, gen_emit *e, gen_affine kept, const gen_acc *accs,
                                               int count, gen_value *v);

/* ---- small loops (small_loop.c) -------------------------------------------------------------------------------- */

/* Emits the whole kernel of a while with little state. One thread runs it. */
WEFT_NODISCARD weft_status *gen_emit_small_loop_kernel(gen_part *part, gen_kernel_spec *spec);

/* ---- loops by elements (element_loop.c) ------------------------------------------------------------------------- */

/* Emits the whole kernel of a while that changes arrays element by element. */
WEFT_NODISCARD weft_status *gen_emit_element_loop_kernel(gen_part *part, gen_kernel_spec *spec);

/* ---- regions (region.c) ---------------------------------------------------------------------------------------- */

/* Emits the whole kernel of control flow around kernels. */
WEFT_NODISCARD weft_status *gen_emit_region_kernel(gen_part *part, gen_kernel_spec *spec);
/* The leaf of the fusion's result that the alias is about. */
int gen_alias_leaf(const hlo_instr *fusion, const hlo_output_alias *alias);

/* ---- the walker's table ---------------------------------------------------------------------------------------- */

struct gen_walker {
  const char *name;    /* for messages */
  bool divides_narrow; /* a scalar index that fits 32 bits is divided as such; vectors are in any case */
  bool quick_denormals; /* arithmetic of denormal floats is as quick as that of others */
  int most_unrolled;   /* rounds of a small loop that LLVM may keep side by side; 0: as many as it likes */
  /* The elements of `buf` at `linear` for the lanes that e->mask allows, any value for the others. */
  gen_value (*load)(gen_emit *e, const gen_buffer *buf, gen_affine linear);
  /* Stores values[i * apart] at linear + i for i < count: `linear` steps by `count` from lane to lane. */
  void (*store)(gen_emit *e, const gen_buffer *buf, gen_affine linear, const gen_value *values, int apart, int count);
  /* Calls gen_walk_body for all elements of `w`. With `split`, a call of the kernel covers its range of *units
   * units; without, all elements. */
  weft_status *(*walk)(gen_walk *w, bool split, int64_t *units);
  /* Walks the columns of the row and writes what lanes or threads have accumulated, combined, to `out`. */
  weft_status *(*accumulate)(gen_row *r, gen_emit *e, int stage, gen_acc *accs, int count, gen_value *out);
  /* Calls body(column) for all columns of the row, or for every period-th of them. */
  weft_status *(*columns)(gen_row *r, gen_emit *e, gen_body_fn *body, void *ctx);
  /* Calls body once for the row. */
  weft_status *(*once)(gen_row *r, gen_emit *e, gen_body_fn *body, void *ctx);
  /* The dot at `idx`, if the walker has a better way than element by element; otherwise leaves *out as it is. NULL: it
   * has none. */
  weft_status *(*dot)(gen_emit *e, const gen_small_dot *d, const gen_index *idx, gen_value *out);
  /* Regions. `inner` emits a fusion's kernel as functions spec->symbols[i] that take their units as the last two
   * arguments, and sets spec->inlined if calls of them must be inlined. `start` opens the region's function, where each
   * result that shares an operand's buffer begins with the operand's elements. `copy` copies bytes that do not overlap.
   * `sync` waits for what the other threads have done. After `inner` and `copy` every thread sees what they stored. */
  weft_status *(*inner)(gen_part *part, gen_kernel_spec *spec);
  weft_status *(*start)(gen_part *part, gen_kernel_spec *spec, gen_frame *f);
  void (*copy)(gen_emit *e, gen_ssa to, gen_ssa from, int64_t bytes);
  void (*sync)(gen_emit *e);
};
static inline gen_value gen_load(gen_emit *e, const gen_buffer *buf, gen_affine linear)
{
  return e->part->walker->load(e, buf, linear);
}
static inline void gen_store(gen_emit *e, const gen_buffer *buf, gen_affine linear, gen_value v)
{
  e->part->walker->store(e, buf, linear, &v, 1, 1);
}

/* For walkers: one scalar or vector with elements of the type `element` (in storage form), at `index`. */
gen_ssa gen_load_plain(gen_emit *e, const gen_buffer *buf, LLVMTypeRef element, gen_ssa index, int lanes);
void gen_store_plain(gen_emit *e, const gen_buffer *buf, LLVMTypeRef element, gen_ssa index, gen_ssa v);
gen_ssa gen_element_ptr(gen_emit *e, const gen_buffer *buf, LLVMTypeRef type, gen_ssa index);
unsigned gen_type_bytes(gen_part *p, LLVMTypeRef t);
void gen_annotate(gen_emit *e, const gen_buffer *buf, gen_ssa access, bool is_load);

#endif
