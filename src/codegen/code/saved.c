/* codegen/code/saved.c -- machine code of a module as bytes, and back.
 *
 *   code     := variants, variant*
 *   variant  := architecture, cpu, features (three strings), block of: units, unit*, answers, answer*, image
 *   unit     := kind, then for a kernel its numbers and phases, then for each function the offset of its entry
 *   answer   := number of the unit that answers a request, in the order of gen_requests_of
 *   image    := bytes of code, fixups, fixup*, imports, (name, slot)*, block of bytes
 *
 * Each variant is for one processor; the reader takes the variant that uses most of the features of its processor. The
 * bytes may come from an untrusted source: numbers that the program uses are checked against the module. */
#include <config.h>

#include <stdio.h>
#include <string.h>

#include "base/wire.h"
#include "codegen/code/code.h"
#include "codegen/model/processor.h"

#if defined(__x86_64__)
#define ARCHITECTURE "x86-64"
#elif defined(__aarch64__)
#define ARCHITECTURE "aarch64"
#else
#define ARCHITECTURE "other"
#endif

/* More memory or units than any machine has, and few enough that sums of them cannot overflow. */
#define MOST ((uint64_t)1 << 40)

enum { LEAST_UNIT_BYTES = 16, LEAST_IMPORT_BYTES = 16 };

/* ---- writing --------------------------------------------------------------------------------------------------- */

static void put_kernel(weft_writer *w, const gen_variant *variant, const gen_unit *unit)
{
  const gen_kernel *k = &unit->kernel;

  weft_put_u64(w, (uint64_t)k->strategy);
  weft_put_u64(w, (uint64_t)k->phase_count);
  weft_put_u64(w, (uint64_t)k->scratch_bytes);
  weft_put_u64(w, (uint64_t)k->shared_bytes);
  weft_put_u64(w, k->takes_bound);
  weft_put_f64(w, k->bytes);
  for (int p = 0; p < k->phase_count; p++) {
    weft_put_u64(w, (uint64_t)k->phases[p].units);
    weft_put_f64(w, k->phases[p].unit_ns);
    weft_put_f64(w, k->phases[p].range_ns);
    weft_put_u64(w, variant->entry_of(variant->ctx, unit, p));
  }
}

static void put_unit(weft_writer *w, const gen_variant *variant, const gen_unit *unit)
{
  weft_put_u64(w, (uint64_t)unit->kind);
  if (unit->kind == GEN_UNIT_KERNEL) put_kernel(w, variant, unit);
  else weft_put_u64(w, variant->entry_of(variant->ctx, unit, 0));
}

static void put_image(weft_writer *w, const gen_image *image)
{
  weft_put_u64(w, image->code_size);
  weft_put_u64(w, (uint64_t)image->fixup_count);
  for (int i = 0; i < image->fixup_count; i++) weft_put_u64(w, image->fixups[i]);
  weft_put_u64(w, (uint64_t)image->import_count);
  for (int i = 0; i < image->import_count; i++) {
    weft_put_text(w, image->imports[i].name);
    weft_put_u64(w, image->imports[i].slot);
  }
  weft_put_bytes(w, image->bytes, image->size);
}

weft_status *gen_variant_write(const hlo_module *module, const gen_variant *variant, weft_writer *out)
{
  const gen_code *code = variant->code;
  weft_writer body = {0};
  weft_arena scratch;
  gen_request *requests;
  int count;

  weft_arena_init(&scratch);
  weft_status *st = gen_requests_of(module, &scratch, &requests, &count);
  if (st) {
    weft_arena_fini(&scratch);
    return st;
  }
  weft_put_u64(&body, (uint64_t)code->unit_count);
  for (int i = 0; i < code->unit_count; i++) put_unit(&body, variant, code->units[i]);
  weft_put_u64(&body, (uint64_t)count);
  for (int i = 0; i < count; i++) weft_put_u64(&body, (uint64_t)gen_code_find(code, &requests[i])->number);
  put_image(&body, variant->image);
  weft_put_text(out, ARCHITECTURE);
  weft_put_text(out, variant->cpu);
  weft_put_text(out, variant->features);
  weft_put_bytes(out, body.data, body.size);
  out->failed |= body.failed;
  weft_writer_fini(&body);
  weft_arena_fini(&scratch);
  return NULL;
}

/* ---- choosing a variant ---------------------------------------------------------------------------------------- */

typedef struct choice {
  const void *body;
  size_t size;
  size_t feature_bytes;  /* of the features that the chosen variant wants: levels contain each other */
  char refused[256];     /* the processors that the variants were made for, and the features that are missing */
} choice;

static void consider(weft_reader *r, weft_arena *arena, choice *best)
{
  const char *architecture = weft_get_text(r, arena), *cpu = weft_get_text(r, arena),
             *features = weft_get_text(r, arena);
  size_t size, used = strlen(best->refused);
  const void *body = weft_get_bytes(r, &size);
  char missing[64] = ARCHITECTURE " code";
  bool runs = strcmp(architecture, ARCHITECTURE) == 0 && gen_processor_has(features, missing);

  if (r->failed) return;
  if (!runs) {
    if (strcmp(architecture, ARCHITECTURE) != 0) snprintf(missing, sizeof missing, "an %.40s processor", architecture);
    snprintf(best->refused + used, sizeof best->refused - used, "%s%.60s (wants %s)", used ? ", " : "", cpu, missing);
  } else if (!best->body || strlen(features) > best->feature_bytes) {
    best->body = body;
    best->size = size;
    best->feature_bytes = strlen(features);
  }
}

static weft_status *choose(const void *data, size_t size, weft_arena *arena, choice *best)
{
  weft_reader r = {.at = data, .end = (const char *)data + size};
  int count = weft_get_count(&r, 1);

  for (int i = 0; i < count && !r.failed; i++) consider(&r, arena, best);
  if (r.failed) return WEFT_ERR(INVALID_ARGUMENT, "machine code: the list of processors is cut short");
  if (!best->body)
    return WEFT_ERR(FAILED_PRECONDITION, "the program has machine code for %s, which this processor does not run",
                    *best->refused ? best->refused : "no processor");
  return NULL;
}

/* ---- reading --------------------------------------------------------------------------------------------------- */

/* A function of the image while the image is not mapped yet: its offset; NULL: none. */
static void *get_entry(weft_reader *r)
{
  uint64_t entry = weft_get_u64(r);

  if (entry >= MOST) r->failed = true;
  return (void *)(uintptr_t)(r->failed ? 0 : entry);
}

static int64_t get_size(weft_reader *r)
{
  uint64_t size = weft_get_u64(r);

  if (size >= MOST) r->failed = true;
  return r->failed ? 0 : (int64_t)size;
}

static double get_estimate(weft_reader *r)
{
  double value = weft_get_f64(r);

  if (!(value >= 0 && value < 1e18)) r->failed = true;
  return r->failed ? 0 : value;
}

static void get_kernel(weft_reader *r, gen_kernel *k)
{
  uint64_t strategy = weft_get_u64(r), phases = weft_get_u64(r);

  if (strategy >= GEN_STRATEGY_COUNT || phases < 1 || phases > GEN_MAX_PHASES) r->failed = true;
  k->strategy = r->failed ? 0 : (gen_strategy)strategy;
  k->phase_count = r->failed ? 0 : (int)phases;
  k->scratch_bytes = get_size(r);
  k->shared_bytes = get_size(r);
  uint64_t takes_bound = weft_get_u64(r);
  if (takes_bound > 1) r->failed = true;
  k->takes_bound = takes_bound == 1;
  k->bytes = get_estimate(r);
  for (int p = 0; p < k->phase_count; p++) {
    k->phases[p].units = get_size(r);
    k->phases[p].unit_ns = get_estimate(r);
    k->phases[p].range_ns = get_estimate(r);
    k->phases[p].fn = (gen_kernel_fn *)(uintptr_t)get_entry(r);
  }
}

static weft_status *get_units(weft_reader *r, gen_code *code)
{
  code->unit_count = weft_get_count(r, LEAST_UNIT_BYTES);
  code->units = WEFT_ARENA_ARRAY(&code->arena, gen_unit *, code->unit_count);
  gen_unit *units = WEFT_ARENA_ARRAY(&code->arena, gen_unit, code->unit_count);
  WEFT_TRY_ALLOC(code->units && units);
  for (int i = 0; i < code->unit_count && !r->failed; i++) {
    uint64_t kind = weft_get_u64(r);
    if (kind >= GEN_UNIT_KINDS) r->failed = true;
    units[i].kind = (gen_unit_kind)kind;
    units[i].number = i;
    code->units[i] = &units[i];
    if (kind == GEN_UNIT_KERNEL) get_kernel(r, &units[i].kernel);
    else units[i].fn = get_entry(r);
  }
  return NULL;
}

/* Gives the kernel the numbers of arguments of its fusion; false: an equal fusion has other numbers. */
static bool fits(gen_unit *unit, const gen_request *request)
{
  gen_kernel *k = &unit->kernel;
  int operands = 0, results;

  if (unit->kind != request->kind) return false;
  if (unit->kind != GEN_UNIT_KERNEL) return true;
  for (int i = 0; i < request->fusion->operand_count; i++)
    operands += hlo_shape_leaf_count(request->fusion->operands[i]->shape);
  results = hlo_shape_leaf_count(request->fusion->shape);
  if (k->symbol) return k->operand_leaves == operands && k->result_leaves == results;
  k->symbol = "";
  k->operand_leaves = operands;
  k->result_leaves = results;
  k->arg_count = operands + results + (k->scratch_bytes > 0) + (k->shared_bytes > 0) + k->takes_bound;
  return true;
}

static weft_status *get_answers(weft_reader *r, const hlo_module *module, gen_code *code)
{
  gen_request *requests;
  int count, answers = weft_get_count(r, sizeof(uint64_t));

  WEFT_TRY(gen_requests_of(module, &code->arena, &requests, &count));
  if (!r->failed && answers != count)
    return WEFT_ERR(INVALID_ARGUMENT, "machine code: %d kernels for a program of %d", answers, count);
  for (int i = 0; i < answers && !r->failed; i++) {
    uint64_t unit = weft_get_u64(r);
    if (unit >= (uint64_t)code->unit_count || !fits(code->units[unit], &requests[i]))
      return WEFT_ERR(INVALID_ARGUMENT, "machine code: kernel %llu is not one of \"%s\"", (unsigned long long)unit,
                      requests[i].comp->name);
    gen_code_answer(code, &requests[i], code->units[unit]);
    code->stats.fusions += requests[i].kind == GEN_UNIT_KERNEL;
  }
  return NULL;
}

static weft_status *get_image(weft_reader *r, weft_arena *arena, gen_image *image)
{
  size_t size;

  image->code_size = weft_get_u64(r);
  image->fixup_count = weft_get_count(r, sizeof(uint64_t));
  uint64_t *fixups = WEFT_ARENA_ARRAY(arena, uint64_t, image->fixup_count);
  WEFT_TRY_ALLOC(fixups);
  for (int i = 0; i < image->fixup_count; i++) fixups[i] = weft_get_u64(r);
  image->import_count = weft_get_count(r, LEAST_IMPORT_BYTES);
  gen_import *imports = WEFT_ARENA_ARRAY(arena, gen_import, image->import_count);
  WEFT_TRY_ALLOC(imports);
  for (int i = 0; i < image->import_count && !r->failed; i++) {
    imports[i].name = weft_get_text(r, arena);
    imports[i].slot = weft_get_u64(r);
  }
  image->fixups = fixups;
  image->imports = imports;
  image->bytes = weft_get_bytes(r, &size);
  image->size = size;
  return NULL;
}

/* Turns the offset that get_entry has read into an address. */
static weft_status *bind(const gen_image *image, const gen_mapped *mapped, void **fn)
{
  uintptr_t offset = (uintptr_t)*fn;

  if (offset == 0 || offset >= image->code_size)
    return WEFT_ERR(INVALID_ARGUMENT, "machine code: a function at byte %llu of %llu", (unsigned long long)offset,
                    (unsigned long long)image->code_size);
  *fn = (char *)gen_mapped_base(mapped) + offset;
  return NULL;
}

static weft_status *bind_unit(const gen_image *image, const gen_mapped *mapped, gen_unit *unit)
{
  if (unit->kind != GEN_UNIT_KERNEL) return bind(image, mapped, &unit->fn);
  for (int p = 0; p < unit->kernel.phase_count; p++) {
    void *fn = (void *)(uintptr_t)unit->kernel.phases[p].fn;
    if (!fn && unit->kernel.phases[p].units == 0) continue;
    WEFT_TRY(bind(image, mapped, &fn));
    unit->kernel.phases[p].fn = (gen_kernel_fn *)(uintptr_t)fn;
  }
  return NULL;
}

static void unmap(void *mapped) { gen_image_unmap(mapped); }

static weft_status *read_variant(const hlo_module *module, const choice *chosen, gen_code *code)
{
  weft_reader r = {.at = chosen->body, .end = (const char *)chosen->body + chosen->size};
  gen_image image = {0};
  gen_mapped *mapped;

  WEFT_TRY(get_units(&r, code));
  WEFT_TRY(get_answers(&r, module, code));
  WEFT_TRY(get_image(&r, &code->arena, &image));
  if (r.failed || r.at != r.end) return WEFT_ERR(INVALID_ARGUMENT, "machine code: its description is damaged");
  WEFT_TRY(gen_image_map(&image, &mapped));
  code->memory = mapped;
  code->free_memory = unmap;
  for (int i = 0; i < code->unit_count; i++) WEFT_TRY(bind_unit(&image, mapped, code->units[i]));
  code->stats.kernels = code->unit_count;
  code->stats.object_bytes = (int64_t)image.size;
  return NULL;
}

weft_status *gen_code_load(const hlo_module *module, const void *data, size_t size, gen_code **out_code)
{
  WEFT_AUTO(gen_code) code = NULL;
  choice best = {0};

  *out_code = NULL;
  WEFT_TRY(gen_code_new(module, &code));
  WEFT_TRY(choose(data, size, &code->arena, &best));
  WEFT_TRY(read_variant(module, &best, code));
  *out_code = WEFT_MOVE(code);
  return NULL;
}
