/* codegen/host/compile.c -- all kernels of a module: found, merged where equal, dealt to LLVM modules, compiled on threads. */
#include <config.h>

#include "codegen/host/jit.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/deadline.h"
#include "base/options.h"
#include "base/thread.h"

enum { PART_WEIGHT = 300, HUGE_KERNEL = 20000 };

typedef enum unit_kind { UNIT_KERNEL, UNIT_COMPARE, UNIT_APPLY } unit_kind;

/* One thing to compile. */
typedef struct unit {
  unit_kind kind;
  const hlo_instr *fusion;     /* KERNEL */
  const hlo_computation *comp; /* what is compiled */
  uint64_t hash;
  int weight, part, slot;      /* slot: of its first function in the part's table */
  gen_kernel kernel;
  void *fn;                    /* COMPARE, APPLY */
  char name[GEN_MAX_PHASES][32];
  struct unit *next;           /* in its hash bucket */
} unit;

typedef struct part_job {
  gen_object object;
  weft_status *error;
  int weight, slots;
  char table[32];
  int64_t emit_ns;
} part_job;

struct gen_code {
  weft_arena arena;
  gen_jit *jit;
  int unit_count;
  unit **by_instr;   /* by instruction id */
  unit **by_comp[2]; /* by computation id: comparators, reducers */
  int instr_ids, comp_ids;
  part_job *parts;
  int part_count;
  gen_stats stats;
};

typedef struct gen_settings {
  const char *cache_dir, *dump_dir;
  int64_t threads;
} gen_settings;
static const weft_option option_rows[] = {
  {"WEFT_CACHE_DIR", WEFT_OPT_STRING, "", offsetof(gen_settings, cache_dir), "Folder that keeps compiled kernels between processes."},
  {"WEFT_DUMP_LLVM", WEFT_OPT_STRING, "", offsetof(gen_settings, dump_dir), "Folder for the LLVM IR and assembly of each LLVM module."},
  {"WEFT_COMPILE_THREADS", WEFT_OPT_INT, "0", offsetof(gen_settings, threads), "Threads that compile; 0: one per processor.", "0..64"},
};
const weft_option_table gen_option_table = {"codegen", option_rows, WEFT_COUNT(option_rows)};

weft_status *gen_options_load(gen_options *out)
{
  gen_settings s;

  *out = (gen_options){.allow_excess_precision = true};
  WEFT_TRY(weft_options_load(&gen_option_table, &s));
  if (*s.cache_dir) out->cache_dir = s.cache_dir;
  if (*s.dump_dir) out->dump_dir = s.dump_dir;
  long online = sysconf(_SC_NPROCESSORS_ONLN);
  out->threads = (int)WEFT_MIN(s.threads > 0 ? s.threads : WEFT_MAX(online, 1), 64);
  return NULL;
}

/* ---- finding --------------------------------------------------------------------------------------------------- */

static int weight_of(const hlo_computation *comp, int depth)
{
  int weight = 2;

  HLO_FOREACH(x, comp) {
    weight++;
    for (int i = 0; i < x->called_count && depth < 16; i++) weight += weight_of(x->called[i], depth + 1);
  }
  return weight;
}

static bool unit_equal(const unit *a, const unit *b)
{
  if (a->kind != b->kind || a->hash != b->hash) return false;
  return a->kind == UNIT_KERNEL ? gen_fusion_equal(a->fusion, b->fusion) : hlo_computation_equal(a->comp, b->comp);
}

enum { BUCKETS = 4096 };

typedef struct finder {
  gen_code *code;
  unit **buckets;
  bool *seen; /* computations, by id */
  const hlo_computation **stack;
  int depth;
} finder;

/* The unit for this request: an equal one that exists already, or a new one. */
static weft_status *intern(finder *f, unit want, unit **out)
{
  gen_code *code = f->code;
  unit **bucket;

  want.hash = hlo_computation_hash(want.comp);
  if (want.fusion) want.hash ^= (uint64_t)want.fusion->u.fusion.kind * 77;
  bucket = &f->buckets[(want.hash ^ want.hash >> 32) % BUCKETS];
  for (unit *u = *bucket; u; u = u->next)
    if (unit_equal(u, &want)) return *out = u, NULL;
  unit *u = WEFT_ARENA_NEW(&code->arena, unit);
  WEFT_TRY_ALLOC(u);
  *u = want;
  u->next = *bucket;
  u->weight = weight_of(want.comp, 0);
  for (int i = 0; i < GEN_MAX_PHASES; i++)
    snprintf(u->name[i], sizeof u->name[i], i ? "k%d.phase%d" : "k%d", code->unit_count, i);
  *bucket = u;
  *out = u;
  code->unit_count++;
  return NULL;
}

static void push(finder *f, const hlo_computation *comp)
{
  if (f->seen[comp->id]) return;
  f->seen[comp->id] = true;
  f->stack[f->depth++] = comp;
}

static weft_status *find_units(finder *f, const hlo_module *module)
{
  gen_code *code = f->code;

  push(f, module->entry);
  while (f->depth > 0) {
    const hlo_computation *comp = f->stack[--f->depth];
    HLO_FOREACH(x, comp) {
      unit *u;
      switch (x->op) {
      case HLO_FUSION:
        WEFT_TRY(intern(f, (unit){.kind = UNIT_KERNEL, .fusion = x, .comp = x->called[0]}, &code->by_instr[x->id]));
        code->stats.fusions++;
        break;
      case HLO_SORT:
        WEFT_TRY(intern(f, (unit){.kind = UNIT_COMPARE, .comp = x->called[0]}, &u));
        code->by_comp[0][x->called[0]->id] = u;
        break;
      case HLO_ALL_REDUCE: case HLO_ALL_REDUCE_START: case HLO_REDUCE_SCATTER: case HLO_SCAN:
        if (x->called_count == 0) break;
        WEFT_TRY(intern(f, (unit){.kind = UNIT_APPLY, .comp = x->called[0]}, &u));
        code->by_comp[1][x->called[0]->id] = u;
        break;
      default:
        if (hlo_calls_are_embedded(x->op)) break;
        for (int i = 0; i < x->called_count; i++) push(f, x->called[i]);
      }
    }
  }
  return NULL;
}

/* ---- parts ----------------------------------------------------------------------------------------------------- */

static int heavier(const void *a, const void *b)
{
  const unit *x = *(unit *const *)a, *y = *(unit *const *)b;
  return x->weight != y->weight ? y->weight - x->weight : strcmp(x->name[0], y->name[0]);
}

/* Deals units to parts: the heaviest first, each to the part that is lightest so far. */
static weft_status *deal(gen_code *code, unit **units, int threads)
{
  int64_t total = 0;

  qsort(units, (size_t)code->unit_count, sizeof *units, heavier);
  for (int i = 0; i < code->unit_count; i++) total += units[i]->weight;
  int most = threads > 1 ? 4 * threads : 1;
  code->part_count = (int)WEFT_MIN(WEFT_MAX(total / PART_WEIGHT, 1), WEFT_MIN(most, WEFT_MAX(code->unit_count, 1)));
  code->parts = WEFT_ARENA_ARRAY(&code->arena, part_job, code->part_count);
  WEFT_TRY_ALLOC(code->parts);
  for (int i = 0; i < code->unit_count; i++) {
    int best = 0;
    for (int k = 1; k < code->part_count; k++)
      if (code->parts[k].weight < code->parts[best].weight) best = k;
    units[i]->part = best;
    units[i]->slot = code->parts[best].slots;
    code->parts[best].slots += units[i]->kind == UNIT_KERNEL ? GEN_MAX_PHASES : 1;
    code->parts[best].weight += units[i]->weight;
  }
  return NULL;
}

typedef struct compile_job {
  gen_code *code;
  unit **units;
  const gen_options *options;
  const gen_machine *machine;
  atomic_int next_part;
} compile_job;

static weft_status *emit_unit(gen_part *p, unit *u)
{
  if (u->kind == UNIT_COMPARE) return gen_emit_compare(p, u->comp, u->name[0]);
  if (u->kind == UNIT_APPLY) return gen_emit_apply_fn(p, u->comp, u->name[0]);
  gen_kernel_spec spec = {.fusion = u->fusion, .info = &u->kernel};
  for (int i = 0; i < GEN_MAX_PHASES; i++) spec.symbols[i] = u->name[i];
  char where[160];
  WEFT_TRY_NOTE(gen_emit_kernel(p, &spec), "kernel of %s", hlo_describe(u->fusion, where, sizeof where));
  return NULL;
}

/* The addresses of the part's functions in one array, so that one look-up finds them all. */
static void emit_table(gen_part *p, const part_job *job, unit **units, int unit_count, int part, gen_ssa *entries)
{
  for (int i = 0; i < job->slots; i++) entries[i] = LLVMConstNull(p->ptr);
  for (int i = 0; i < unit_count; i++) {
    if (units[i]->part != part) continue;
    for (int k = 0; k < (units[i]->kind == UNIT_KERNEL ? GEN_MAX_PHASES : 1); k++) {
      gen_ssa fn = LLVMGetNamedFunction(p->mod, units[i]->name[k]);
      if (!fn) continue;
      LLVMSetLinkage(fn, LLVMInternalLinkage);
      entries[units[i]->slot + k] = fn;
    }
  }
  gen_ssa array = LLVMConstArray(p->ptr, entries, (unsigned)job->slots);
  gen_ssa table = LLVMAddGlobal(p->mod, LLVMTypeOf(array), job->table);
  LLVMSetInitializer(table, array);
  LLVMSetGlobalConstant(table, 1);
}

static weft_status *emit_part(compile_job *job, int part, gen_memory *memory, gen_part *p)
{
  part_job *mine = &job->code->parts[part];

  gen_memory_guard(memory, job->options->emission_bytes);
  if (setjmp(memory->out_of_memory)) return WEFT_ERR(RESOURCE_EXHAUSTED, "code generation: out of memory");
  WEFT_TRY(gen_part_init(p, job->options, &job->machine->target, &gen_host_walker, &memory->arena, mine->table));
  for (int i = 0; i < job->code->unit_count; i++)
    if (job->units[i]->part == part) WEFT_TRY(emit_unit(p, job->units[i]));
  gen_ssa *entries = WEFT_ARENA_ARRAY(&memory->arena, gen_ssa, mine->slots);
  emit_table(p, mine, job->units, job->code->unit_count, part, entries);
  memory->arena.exhausted = NULL;
  return NULL;
}

static weft_status *compile_part(compile_job *job, int part)
{
  part_job *mine = &job->code->parts[part];
  gen_memory memory;
  gen_part p = {0};
  int64_t start = weft_now_ns();

  snprintf(mine->table, sizeof mine->table, "weft.part%d", part);
  weft_arena_init(&memory.arena);
  weft_status *st = emit_part(job, part, &memory, &p);
  mine->emit_ns = weft_now_ns() - start;
  if (!st)
    st = gen_part_compile(&p, job->machine, mine->weight > HUGE_KERNEL ? GEN_OPT_FAST : GEN_OPT_FULL, mine->table,
                          &mine->object);
  gen_part_fini(&p);
  weft_arena_fini(&memory.arena);
  return st;
}

static void *compile_parts(void *arg)
{
  compile_job *job = arg;

  for (int part; (part = atomic_fetch_add(&job->next_part, 1)) < job->code->part_count;)
    job->code->parts[part].error = compile_part(job, part);
  return NULL;
}

static weft_status *run_threads(compile_job *job, int threads)
{
  pthread_t workers[64];
  int started = 0;
  weft_status *st = NULL;

  threads = WEFT_MIN(WEFT_MIN(threads, job->code->part_count), (int)WEFT_COUNT(workers));
  while (started < threads - 1) {
    weft_status *no = weft_thread_start(&workers[started], "weft-compile", compile_parts, job);
    weft_status_ignore(no); /* fewer threads do the same work */
    if (no) break;
    started++;
  }
  compile_parts(job);
  for (int i = 0; i < started; i++) pthread_join(workers[i], NULL);
  for (int i = 0; i < job->code->part_count; i++) {
    part_job *part = &job->code->parts[i];
    if (!st) st = WEFT_MOVE(part->error);
    else weft_status_free(WEFT_MOVE(part->error));
    job->code->stats.emit_ns += part->emit_ns;
    job->code->stats.optimize_ns += part->object.optimize_ns;
    job->code->stats.codegen_ns += part->object.codegen_ns;
    job->code->stats.cached_parts += part->object.cached;
    if (part->object.code) job->code->stats.object_bytes += (int64_t)LLVMGetBufferSize(part->object.code);
  }
  return st;
}

static weft_status *link_parts(gen_code *code, unit **units)
{
  void ***tables = WEFT_ARENA_ARRAY(&code->arena, void **, code->part_count);

  WEFT_TRY_ALLOC(tables);
  WEFT_TRY(gen_jit_new(&code->jit));
  for (int i = 0; i < code->part_count; i++) WEFT_TRY(gen_jit_add(code->jit, &code->parts[i].object));
  for (int i = 0; i < code->part_count; i++) {
    void *address;
    WEFT_TRY(gen_jit_lookup(code->jit, code->parts[i].table, &address));
    tables[i] = address;
  }
  for (int i = 0; i < code->unit_count; i++) {
    unit *u = units[i];
    void **entries = tables[u->part] + u->slot;
    u->kernel.symbol = u->name[0];
    if (u->kind != UNIT_KERNEL) u->fn = entries[0];
    for (int k = 0; u->kind == UNIT_KERNEL && k < u->kernel.phase_count; k++)
      u->kernel.phases[k].fn = (gen_kernel_fn *)(uintptr_t)entries[k];
  }
  return NULL;
}

static weft_status *compile_all(gen_code *code, const hlo_module *module, const gen_options *options)
{
  finder f = {.code = code};
  compile_job job = {.code = code, .options = options};
  int n = 0;

  code->instr_ids = module->next_id;
  code->comp_ids = module->next_computation_id;
  code->by_instr = WEFT_ARENA_ARRAY(&code->arena, unit *, code->instr_ids);
  for (int i = 0; i < 2; i++) code->by_comp[i] = WEFT_ARENA_ARRAY(&code->arena, unit *, code->comp_ids);
  f.buckets = WEFT_ARENA_ARRAY(&code->arena, unit *, BUCKETS);
  f.seen = WEFT_ARENA_ARRAY(&code->arena, bool, code->comp_ids);
  f.stack = WEFT_ARENA_ARRAY(&code->arena, const hlo_computation *, code->comp_ids);
  if (!code->by_instr || !code->by_comp[0] || !code->by_comp[1] || !f.buckets || !f.seen || !f.stack)
    return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  WEFT_TRY(find_units(&f, module));
  code->stats.kernels = code->unit_count;
  if (code->unit_count == 0) return NULL;

  job.units = WEFT_ARENA_ARRAY(&code->arena, unit *, code->unit_count);
  WEFT_TRY_ALLOC(job.units);
  for (int b = 0; b < BUCKETS; b++)
    for (unit *u = f.buckets[b]; u; u = u->next) job.units[n++] = u;
  WEFT_TRY(gen_host_machine(&job.machine));
  WEFT_TRY(deal(code, job.units, options->threads));
  code->stats.parts = code->part_count;
  atomic_init(&job.next_part, 0);
  WEFT_TRY(run_threads(&job, options->threads));
  int64_t start = weft_now_ns();
  WEFT_TRY(link_parts(code, job.units));
  code->stats.link_ns = weft_now_ns() - start;
  return NULL;
}

weft_status *gen_compile(const hlo_module *module, const gen_options *options, gen_code **out_code)
{
  WEFT_AUTO(gen_code) code = calloc(1, sizeof *code);
  int64_t start = weft_now_ns();

  *out_code = NULL;
  WEFT_TRY_ALLOC(code);
  weft_arena_init(&code->arena);
  WEFT_TRY(compile_all(code, module, options));
  code->stats.total_ns = weft_now_ns() - start;
  *out_code = WEFT_MOVE(code);
  return NULL;
}

void gen_code_free(gen_code *code)
{
  if (!code) return;
  gen_jit_free(code->jit);
  for (int i = 0; i < code->part_count; i++) gen_object_fini(&code->parts[i].object);
  weft_arena_fini(&code->arena);
  free(code);
}

/* ---- questions ------------------------------------------------------------------------------------------------- */

const gen_kernel *gen_code_kernel(const gen_code *code, const hlo_instr *fusion)
{
  unit *u = fusion->id < code->instr_ids ? code->by_instr[fusion->id] : NULL;
  return u ? &u->kernel : NULL;
}

static void *callback(const gen_code *code, int kind, const hlo_computation *comp)
{
  unit *u = comp->id < code->comp_ids ? code->by_comp[kind][comp->id] : NULL;
  return u ? u->fn : NULL;
}

gen_compare_fn *gen_code_compare(const gen_code *code, const hlo_computation *comparator)
{
  return (gen_compare_fn *)(uintptr_t)callback(code, 0, comparator);
}

gen_apply_fn *gen_code_apply(const gen_code *code, const hlo_computation *reducer)
{
  return (gen_apply_fn *)(uintptr_t)callback(code, 1, reducer);
}

const gen_stats *gen_code_stats(const gen_code *code) { return &code->stats; }

static const gen_object *object_of(const gen_kernel *kernel, const gen_code *code)
{
  return &code->parts[WEFT_CONTAINER_OF(kernel, unit, kernel)->part].object;
}

const char *gen_code_ir(const gen_code *code, const gen_kernel *kernel) { return object_of(kernel, code)->ir; }

const char *gen_code_assembly(const gen_code *code, const gen_kernel *kernel)
{
  return object_of(kernel, code)->assembly;
}
