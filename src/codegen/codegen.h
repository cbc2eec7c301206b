/* codegen/codegen.h -- fusions of a scheduled module to native code.
 *
 * gen_compile() takes all fusions, sort comparators and reducers of a module at once: equal ones are compiled once,
 * the LLVM modules are split over threads, and with a cache directory their machine code is kept on disk.
 * No LLVM type appears here. */
#ifndef WEFT_CODEGEN_CODEGEN_H
#define WEFT_CODEGEN_CODEGEN_H

#include "base/options.h"
#include "codegen/model/strategy.h"
#include "hlo/hlo.h"

/* A compiled kernel.
 *   args         leaf buffers of the operands in operand/leaf order (tokens and empty arrays too: any pointer, NULL
 *                included), leaf buffers of the result, then the scratch pointer if scratch_bytes > 0, then the shared
 *                pointer if shared_bytes > 0, then a gen_row_bound if takes_bound.  Buffers are 64-byte aligned.
 *   [begin,end)  a range of the phase's units.  Any split of [0, units) into ranges, run in any order or at the
 *                same time, gives the same bits. */
typedef void gen_kernel_fn(void *const *args, int64_t begin, int64_t end);

/* Where a kernel stops in each of its rows. It makes the columns [0, columns): all, or a multiple of GEN_BOUND_STEP so
 * that the mask of gen_bound_of (model/strategy.h) takes the last of these, and all behind them, from each row of the
 * range. It sets `more`, which is 0 before, and stops if a row needs the columns behind: if what masked columns add to
 * a sum is not zero, if an extreme has NaN there, or the result another number than +0. Then the results of the range
 * are incomplete. If `more` is still 0, the columns are those of the whole kernel, to the bit, and the columns behind
 * them, which are not written, would be +0. */
typedef struct gen_row_bound {
  int64_t columns, more;
} gen_row_bound;

enum { GEN_MAX_PHASES = 2 };

/* One step of a kernel.  All ranges of a phase are done before the next phase starts. */
typedef struct gen_phase {
  gen_kernel_fn *fn;
  int64_t units;   /* 0: nothing to do */
  double unit_ns;  /* an estimate of one unit's time on one core */
  double range_ns; /* likewise of the work that a range has besides its units, unless it has all units */
} gen_phase;

typedef struct gen_kernel {
  gen_strategy strategy;
  int phase_count;         /* 1; 2 for updates, and for reductions that combine partial results */
  gen_phase phases[GEN_MAX_PHASES];
  bool takes_bound;        /* of a chain of pass strips, whose rows may end early */
  int arg_count;           /* length of args, scratch, shared and bound included */
  int operand_leaves, result_leaves;
  int64_t scratch_bytes;   /* private to a range while it runs; contents undefined before */
  int64_t shared_bytes;    /* one per run of the kernel, kept from phase to phase */
  double bytes;            /* read and written by a whole run, estimated */
  const char *symbol;      /* of phase 0, borrowed from the gen_code; the same for kernels compiled once */
} gen_kernel;

/* A sort's comparator: args[i] points at the scalar that is parameter i of the computation
 * (lhs and rhs of the first sorted array, lhs and rhs of the second, ...).  Borrows; thread-safe. */
typedef bool gen_compare_fn(const void *const *args);

/* A scalar computation applied to arrays: args = one array per parameter, then one per result leaf, `count` elements
 * each.  A result may be the very array of a parameter.  Thread-safe. */
typedef void gen_apply_fn(void *const *args, int64_t count);

typedef struct gen_options {
  int threads;               /* to compile with; at least 1 */
  bool allow_excess_precision; /* narrow floats stay f32 between the operations of a kernel */
  const char *cache_dir;     /* folder of object files, or NULL; created if absent */
  const char *dump_dir;      /* folder for NAME.ll and NAME.s of each LLVM module, before and after passes, or NULL */
  bool quick;                /* LLVM optimises little */
  bool keep_text;            /* keep IR and assembly for gen_code_ir() and gen_code_assembly() */
  const hlo_instr *only;     /* compile this fusion and nothing else; NULL: everything */
  const char *cpu;           /* a level, "x86-64" to "x86-64-v4", to make code for; NULL: this machine */
  int64_t emission_bytes;    /* most memory for one thread's emission of a part, without LLVM's own; 0: no bound */
} gen_options;
extern const weft_option_table gen_option_table;
/* From the environment: WEFT_CACHE_DIR, WEFT_DUMP_LLVM, WEFT_QUICK_COMPILE, WEFT_COMPILE_THREADS (default: the online
 * processors). */
WEFT_NODISCARD weft_status *gen_options_load(gen_options *out_options);

/* Numbers of compiled things, and the time that compilation took. */
typedef struct gen_stats {
  int fusions, kernels;      /* requested; compiled, after equal ones were merged */
  int parts, cached_parts;   /* LLVM modules; how many of them were taken from the cache */
  int64_t emit_ns, optimize_ns, codegen_ns; /* summed over threads */
  int64_t link_ns, total_ns; /* wall */
  int64_t object_bytes;
} gen_stats;

/* The machine code of one module.  Owns the executable memory; immutable and thread-safe once made. */
typedef struct gen_code gen_code;

/* Compiles, for the machine it runs on (options->cpu is NULL), every fusion in a sequential computation of `module`,
 * the comparators of its sorts and the reducers of its all-reduce, reduce-scatter and scan instructions.  Borrows
 * module until it returns; the lookups below take instructions and computations of that module, by id.  Errors:
 * UNIMPLEMENTED naming the fusion, the operation and the type; RESOURCE_EXHAUSTED; INTERNAL (LLVM's message). */
WEFT_NODISCARD weft_status *gen_compile(const hlo_module *module, const gen_options *options, gen_code **out_code);
void gen_code_free(gen_code *code); /* NULL is fine; no kernel may be running */
WEFT_DEFINE_AUTO(gen_code, gen_code_free)

/* The kernel of a fusion; NULL for an instruction that was not compiled. */
const gen_kernel *gen_code_kernel(const gen_code *code, const hlo_instr *fusion);
gen_compare_fn *gen_code_compare(const gen_code *code, const hlo_computation *comparator);
gen_apply_fn *gen_code_apply(const gen_code *code, const hlo_computation *reducer);
const gen_stats *gen_code_stats(const gen_code *code);

/* The optimised LLVM IR and the assembly of the LLVM module that holds this kernel's symbol; NULL without
 * options.keep_text, and for code from gen_code_load. */
const char *gen_code_ir(const gen_code *code, const gen_kernel *kernel);
const char *gen_code_assembly(const gen_code *code, const gen_kernel *kernel);

/* ---- as bytes, for files ---- */

/* Writes `code`, the machine code of `module`, for the processors of `cpus`: levels ("x86-64" to "x86-64-v4") and
 * "native", separated by commas; NULL or "": native. Code for other processors than this one is compiled here with
 * `options`. *out_data is malloc'd and belongs to the caller. Borrows all; thread-safe.
 * Errors: those of gen_compile; INVALID_ARGUMENT for a processor that is not known; UNIMPLEMENTED on machines other
 * than x86-64. */
WEFT_NODISCARD weft_status *gen_code_save(const hlo_module *module, const gen_code *code, const gen_options *options,
                                          const char *cpus, void **out_data, size_t *out_size);
/* Reads what gen_code_save has written for a module that is equal to `module`, and maps the code for this processor.
 * Needs no LLVM. Borrows module and data until it returns. The bytes are checked, so that reading them does no harm;
 * the machine code in them runs with all rights of the process. Errors: INVALID_ARGUMENT for damaged bytes or another
 * module; FAILED_PRECONDITION if no variant runs on this processor, naming the features that it lacks;
 * RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *gen_code_load(const hlo_module *module, const void *data, size_t size, gen_code **out_code);

/* The machine that code is made for: "x86_64 sapphirerapids +avx512f ...", for
 * `weft info`.  Static after first call. */
const char *gen_target_description(void);

#endif
