/* codegen/host/compile.c -- all kernels of a module: found, merged where equal, dealt
 * to LLVM modules, compiled on threads. */
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
#include "base/wire.h"
#include "codegen/code/code.h"
#include "codegen/host/link.h"
#include "codegen/model/processor.h"

enum { PART_WEIGHT = 300, HUGE_KERNEL = 20000 };

/* One thing to compile. */
typedef struct unit {
  gen_unit base;               /* first */
  const hlo_instr *fusion;     /* of a kernel */
  const hlo_computation *comp; /* what is compiled */
  bool in_strips;              /* gen_request */
  uint64_t hash;
  int weight, part, slot;      /* slot: of its first function in the part's table */
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

/* The owner of the machine code of a gen_code that was compiled in this process. */
typedef struct compiled {
  gen_jit *jit;
  part_job *parts; /* in the gen_code's arena */
  int part_count;
} compiled;

typedef struct gen_settings {
  const char *cache_dir, *dump_dir;
  int64_t threads;
  bool quick;
} gen_settings;
static const weft_option option_rows[] = {
  {"WEFT_CACHE_DIR", WEFT_OPT_STRING, "", offsetof(gen_settings, cache_dir), "Folder that keeps compiled kernels between processes."},
  {"WEFT_DUMP_LLVM", WEFT_OPT_STRING, "", offsetof(gen_settings, dump_dir), "Folder for the LLVM IR and assembly of each LLVM module."},
  {"WEFT_COMPILE_THREADS", WEFT_OPT_INT, "0", offsetof(gen_settings, threads), "Threads that compile; 0: one per processor.", "0..64"},
  {"WEFT_QUICK_COMPILE", WEFT_OPT_BOOL, "0", offsetof(gen_settings, quick), "1: LLVM optimises kernels little: compilation is quicker, kernels are slower."},
};
const weft_option_table gen_option_table = {"codegen", option_rows, WEFT_COUNT(option_rows)};

weft_status *gen_options_load(gen_options *out)
{
  gen_settings s;

  *out = (gen_options){.allow_excess_precision = true};
  WEFT_TRY(weft_options_load(&gen_option_table, &s));
  if (*s.cache_dir) out->cache_dir = s.cache_dir;
  if (*s.dump_dir) out->dump_dir = s.dump_dir;
  out->quick = s.quick;
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
  if (a->base.kind != b->base.kind || a->hash != b->hash || a->in_strips != b->in_strips) return false;
  return a->base.kind == GEN_UNIT_KERNEL ? gen_fusion_equal(a->fusion, b->fusion)
                                         : hlo_computation_equal(a->comp, b->comp);
}

enum { BUCKETS = 4096 };

typedef struct finder {
  gen_code *code;
  unit **buckets;
} finder;

/* The unit for this request: an equal one that exists already, or a new one. */
static weft_status *intern(finder *f, const gen_request *request, unit **out)
{
  gen_code *code = f->code;
  unit want = {.base = {.kind = request->kind}, .fusion = request->fusion, .comp = request->comp,
               .in_strips = request->in_strips};
  unit **bucket;

  want.hash = hlo_computation_hash(want.comp);
  if (want.fusion) want.hash ^= (uint64_t)want.fusion->u.fusion.kind * 77;
  bucket = &f->buckets[(want.hash ^ want.hash >> 32) % BUCKETS];
  for (unit *u = *bucket; u; u = u->next)
    if (unit_equal(u, &want)) return *out = u, NULL;
  unit *u = WEFT_ARENA_NEW(&code->arena, unit);
  WEFT_TRY_ALLOC(u);
  *u = want;
  u->base.number = code->unit_count;
  u->next = *bucket;
  u->weight = weight_of(want.comp, 0);
  for (int i = 0; i < GEN_MAX_PHASES; i++)
    snprintf(u->name[i], sizeof u->name[i], i ? "k%d.phase%d" : "k%d", u->base.number, i);
  *bucket = u;
  *out = u;
  code->units[code->unit_count++] = &u->base;
  return NULL;
}

static weft_status *find_units(finder *f, const gen_request *requests, int count)
{
  gen_code *code = f->code;

  code->units = WEFT_ARENA_ARRAY(&code->arena, gen_unit *, count);
  WEFT_TRY_ALLOC(code->units);
  for (int i = 0; i < count; i++) {
    unit *u;
    WEFT_TRY(intern(f, &requests[i], &u));
    gen_code_answer(code, &requests[i], &u->base);
    code->stats.fusions += requests[i].kind == GEN_UNIT_KERNEL;
  }
  return NULL;
}

static weft_status *find_all_units(finder *f, const hlo_module *module)
{
  gen_request *requests;
  int count;

  WEFT_TRY(gen_requests_of(module, &f->code->arena, &requests, &count));
  return find_units(f, requests, count);
}

/* ---- parts ----------------------------------------------------------------------------------------------------- */

static int heavier(const void *a, const void *b)
{
  const unit *x = *(unit *const *)a, *y = *(unit *const *)b;
  return x->weight != y->weight ? y->weight - x->weight : strcmp(x->name[0], y->name[0]);
}

/* Deals units to parts: the heaviest first, each to the part that is lightest so far. */
static weft_status *deal(gen_code *code, compiled *made, unit **units, int threads)
{
  int64_t total = 0;

  qsort(units, (size_t)code->unit_count, sizeof *units, heavier);
  for (int i = 0; i < code->unit_count; i++) total += units[i]->weight;
  int most = threads > 1 ? 4 * threads : 1;
  made->part_count = (int)WEFT_MIN(WEFT_MAX(total / PART_WEIGHT, 1), WEFT_MIN(most, WEFT_MAX(code->unit_count, 1)));
  made->parts = WEFT_ARENA_ARRAY(&code->arena, part_job, made->part_count);
  WEFT_TRY_ALLOC(made->parts);
  for (int i = 0; i < code->unit_count; i++) {
    int best = 0;
    for (int k = 1; k < made->part_count; k++)
      if (made->parts[k].weight < made->parts[best].weight) best = k;
    units[i]->part = best;
    units[i]->slot = made->parts[best].slots;
    made->parts[best].slots += units[i]->base.kind == GEN_UNIT_KERNEL ? GEN_MAX_PHASES : 1;
    made->parts[best].weight += units[i]->weight;
  }
  return NULL;
}

typedef struct compile_job {
  gen_code *code;
  compiled *made;
  unit **units; /* the heaviest first */
  const gen_options *options;
  const gen_machine *machine;
  atomic_int next_part;
} compile_job;

static weft_status *emit_unit(gen_part *p, unit *u)
{
  if (u->base.kind == GEN_UNIT_COMPARE) return gen_emit_compare(p, u->comp, u->name[0]);
  if (u->base.kind == GEN_UNIT_APPLY) return gen_emit_apply_fn(p, u->comp, u->name[0]);
  gen_kernel_spec spec = {.fusion = u->fusion, .info = &u->base.kernel, .in_strips = u->in_strips};
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
    for (int k = 0; k < (units[i]->base.kind == GEN_UNIT_KERNEL ? GEN_MAX_PHASES : 1); k++) {
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
  part_job *mine = &job->made->parts[part];

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
  part_job *mine = &job->made->parts[part];
  gen_memory memory;
  gen_part p = {0};
  int64_t start = weft_now_ns();

  snprintf(mine->table, sizeof mine->table, "weft.part%d", part);
  weft_arena_init(&memory.arena);
  weft_status *st = emit_part(job, part, &memory, &p);
  mine->emit_ns = weft_now_ns() - start;
  if (!st) {
    bool fast = job->options->quick || mine->weight > HUGE_KERNEL;
    st = gen_part_compile(&p, job->machine,
                          fast                 ? GEN_OPT_FAST
                          : p.unrolled_scalars ? GEN_OPT_FULL_SCALARS
                                               : GEN_OPT_FULL,
                          mine->table, &mine->object);
  }
  gen_part_fini(&p);
  weft_arena_fini(&memory.arena);
  return st;
}

static void *compile_parts(void *arg)
{
  compile_job *job = arg;

  for (int part; (part = atomic_fetch_add(&job->next_part, 1)) < job->made->part_count;)
    job->made->parts[part].error = compile_part(job, part);
  return NULL;
}

static weft_status *run_threads(compile_job *job, int threads)
{
  pthread_t workers[64];
  int started = 0;
  weft_status *st = NULL;

  threads = WEFT_MIN(WEFT_MIN(threads, job->made->part_count), (int)WEFT_COUNT(workers));
  while (started < threads - 1) {
    weft_status *no = weft_thread_start(&workers[started], "weft-compile", compile_parts, job);
    weft_status_ignore(no); /* fewer threads do the same work */
    if (no) break;
    started++;
  }
  compile_parts(job);
  for (int i = 0; i < started; i++) pthread_join(workers[i], NULL);
  for (int i = 0; i < job->made->part_count; i++) {
    part_job *part = &job->made->parts[i];
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

static weft_status *link_parts(gen_code *code, compiled *made, unit **units)
{
  void ***tables = WEFT_ARENA_ARRAY(&code->arena, void **, made->part_count);

  WEFT_TRY_ALLOC(tables);
  WEFT_TRY(gen_jit_new(&made->jit));
  for (int i = 0; i < made->part_count; i++) WEFT_TRY(gen_jit_add(made->jit, &made->parts[i].object));
  for (int i = 0; i < made->part_count; i++) {
    void *address;
    WEFT_TRY(gen_jit_lookup(made->jit, made->parts[i].table, &address));
    tables[i] = address;
  }
  for (int i = 0; i < code->unit_count; i++) {
    unit *u = units[i];
    gen_unit *base = &u->base;
    void **entries = tables[u->part] + u->slot;
    if (base->kind != GEN_UNIT_KERNEL) base->fn = entries[0];
    for (int k = 0; base->kind == GEN_UNIT_KERNEL && k < base->kernel.phase_count; k++)
      base->kernel.phases[k].fn = (gen_kernel_fn *)(uintptr_t)entries[k];
  }
  return NULL;
}

static void free_compiled(void *memory)
{
  compiled *made = memory;

  gen_jit_free(made->jit); /* it borrows the objects */
  for (int i = 0; made->parts && i < made->part_count; i++) gen_object_fini(&made->parts[i].object);
}

/* Finds the units of `module` and compiles them to objects. */
static weft_status *compile_parts_of(const hlo_module *module, const gen_options *options, gen_code *code,
                                     compiled *made, unit ***out_units)
{
  finder f = {.code = code};
  compile_job job = {.code = code, .made = made, .options = options};

  f.buckets = WEFT_ARENA_ARRAY(&code->arena, unit *, BUCKETS);
  WEFT_TRY_ALLOC(f.buckets);
  if (options->only)
    WEFT_TRY(find_units(
      &f, &(gen_request){.kind = GEN_UNIT_KERNEL, .fusion = options->only, .comp = options->only->called[0]}, 1));
  else WEFT_TRY(find_all_units(&f, module));
  code->stats.kernels = code->unit_count;
  if (code->unit_count == 0) return NULL;

  job.units = WEFT_ARENA_ARRAY(&code->arena, unit *, code->unit_count);
  WEFT_TRY_ALLOC(job.units);
  for (int i = 0; i < code->unit_count; i++) {
    job.units[i] = (unit *)code->units[i];
    job.units[i]->base.kernel.symbol = job.units[i]->name[0];
  }
  WEFT_TRY(options->cpu ? gen_machine_of(options->cpu, &code->arena, &job.machine) : gen_host_machine(&job.machine));
  WEFT_TRY(deal(code, made, job.units, options->threads));
  code->stats.parts = made->part_count;
  atomic_init(&job.next_part, 0);
  *out_units = job.units;
  return run_threads(&job, options->threads);
}

/* Compiles the module; with `link`, for use in this process. */
static weft_status *compile_module(const hlo_module *module, const gen_options *options, bool link, gen_code **out_code)
{
  WEFT_AUTO(gen_code) code = NULL;
  int64_t start = weft_now_ns();
  unit **units;

  *out_code = NULL;
  WEFT_TRY(gen_code_new(module, &code));
  compiled *made = WEFT_ARENA_NEW(&code->arena, compiled);
  WEFT_TRY_ALLOC(made);
  code->memory = made;
  code->free_memory = free_compiled;
  WEFT_TRY(compile_parts_of(module, options, code, made, &units));
  if (link && code->unit_count > 0) {
    int64_t link_start = weft_now_ns();
    WEFT_TRY(link_parts(code, made, units));
    code->stats.link_ns = weft_now_ns() - link_start;
  }
  code->stats.total_ns = weft_now_ns() - start;
  *out_code = WEFT_MOVE(code);
  return NULL;
}

weft_status *gen_compile(const hlo_module *module, const gen_options *options, gen_code **out_code)
{
  return compile_module(module, options, true, out_code);
}

/* ---- as bytes ---------------------------------------------------------------------------------------------------- */

/* The places of the functions in a linked image. */
typedef struct image_tables {
  const gen_image *image;
  const uint64_t *tables; /* by part: offset of its table */
} image_tables;

static uint64_t entry_of(void *ctx, const gen_unit *base, int phase)
{
  const image_tables *at = ctx;
  const unit *u = (const unit *)base;
  uint64_t entry = at->tables[u->part] + sizeof entry * (uint64_t)(u->slot + phase), offset;

  memcpy(&offset, at->image->bytes + entry, sizeof offset); /* gen_link has checked that the table is in the image */
  return offset;
}

static weft_status *write_variant(const hlo_module *module, const gen_code *code, const char *cpu, const char *features,
                                  weft_arena *arena, weft_writer *out)
{
  const compiled *made = code->memory;
  gen_object_bytes *objects = WEFT_ARENA_ARRAY(arena, gen_object_bytes, made->part_count);
  uint64_t *tables = WEFT_ARENA_ARRAY(arena, uint64_t, made->part_count);
  image_tables at = {.tables = tables};
  gen_image image;

  WEFT_TRY_ALLOC(objects && tables);
  for (int i = 0; i < made->part_count; i++) {
    LLVMMemoryBufferRef object = made->parts[i].object.code;
    objects[i] = (gen_object_bytes){LLVMGetBufferStart(object), LLVMGetBufferSize(object), made->parts[i].table,
                                    (uint64_t)made->parts[i].slots * sizeof(uint64_t)};
  }
  WEFT_TRY(gen_link(objects, made->part_count, arena, &image, tables));
  at.image = &image;
  return gen_variant_write(
    module,
    &(gen_variant){.cpu = cpu, .features = features, .code = code, .image = &image, .entry_of = entry_of, .ctx = &at},
    out);
}

/* Writes the variant for one processor: `cpu` is "native" or the name of a level. */
static weft_status *save_for(const hlo_module *module, const gen_code *code, const gen_options *options,
                             const char *cpu, weft_arena *arena, weft_writer *out)
{
  WEFT_AUTO(gen_code) other = NULL;
  gen_options for_cpu = *options;
  char features[GEN_FEATURES_BYTES];
  const gen_machine *machine;

  if (strcmp(cpu, "native") == 0) {
    WEFT_TRY(gen_host_machine(&machine));
    gen_features_of_llvm(machine->features, features);
    if (code->free_memory == free_compiled) return write_variant(module, code, machine->cpu, features, arena, out);
    cpu = NULL;
  }
  for_cpu.cpu = cpu;
  WEFT_TRY(compile_module(module, &for_cpu, false, &other));
  return write_variant(module, other, cpu ? cpu : machine->cpu, cpu ? gen_level_features(cpu) : features, arena, out);
}

weft_status *gen_code_save(const hlo_module *module, const gen_code *code, const gen_options *options, const char *cpus,
                           void **out_data, size_t *out_size)
{
  weft_writer variants = {0}, all = {0};
  weft_status *st = NULL;
  uint64_t count = 0;
  weft_arena arena;
  char cpu[64];

  *out_data = NULL;
  weft_arena_init(&arena);
  for (const char *at = cpus && *cpus ? cpus : "native"; *at && !st; count++) {
    size_t length = strcspn(at, ",");
    snprintf(cpu, sizeof cpu, "%.*s", (int)WEFT_MIN(length, sizeof cpu - 1), at);
    at += length + (at[length] == ',');
    st = save_for(module, code, options, cpu, &arena, &variants);
  }
  weft_put_u64(&all, count);
  weft_put_raw(&all, variants.data, variants.size);
  all.failed |= variants.failed;
  if (!st) st = weft_writer_take(&all, out_data, out_size);
  weft_writer_fini(&all);
  weft_writer_fini(&variants);
  weft_arena_fini(&arena);
  return st;
}

/* ---- the text of kernels ----------------------------------------------------------------------------------------- */

/* NULL: the code was not compiled in this process. */
static const gen_object *object_of(const gen_kernel *kernel, const gen_code *code)
{
  const gen_unit *base = WEFT_CONTAINER_OF(kernel, gen_unit, kernel);

  if (code->free_memory != free_compiled) return NULL;
  return &((const compiled *)code->memory)->parts[((const unit *)base)->part].object;
}

const char *gen_code_ir(const gen_code *code, const gen_kernel *kernel)
{
  const gen_object *object = object_of(kernel, code);
  return object ? object->ir : NULL;
}

const char *gen_code_assembly(const gen_code *code, const gen_kernel *kernel)
{
  const gen_object *object = object_of(kernel, code);
  return object ? object->assembly : NULL;
}
