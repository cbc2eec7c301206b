/* tests/codegen/harness.c -- compiles a kernel of a program and runs it (harness.h). */
#include "test.h"

#include "harness.h"

#include <math.h>

#include "base/dtype.h"

enum { GUARD = 64 };

static uint64_t rng_state = 88172645463325252u;
static uint64_t next_random(void)
{
  rng_state ^= rng_state << 13;
  rng_state ^= rng_state >> 7;
  return rng_state ^= rng_state << 17;
}

static double uniform(double low, double high)
{
  return low + (high - low) * ((double)(next_random() >> 11) * 0x1p-53);
}

static void fill(hlo_literal *lit, const kernel_check *how)
{
  weft_dtype type = lit->shape->type;
  double low = how->low, high = how->high;
  int bits = weft_dtype_bits(type);

  if (low == 0 && high == 0) low = -2, high = 2;
  for (int64_t i = 0; i < hlo_shape_elems(lit->shape); i++) {
    if (weft_dtype_is_float(type) || weft_dtype_is_complex(type)) {
      hlo_literal_set_f64(lit, i, uniform(low, high), uniform(low, high));
    } else {
      int64_t ilow = how->int_low, ihigh = how->int_high;
      if (ilow == 0 && ihigh == 0) {
        ilow = weft_dtype_is_signed(type) ? -100 : 0, ihigh = 100;
        if (bits <= 8)
          ilow = weft_dtype_is_signed(type) ? -(1 << (bits - 1)) : 0,
          ihigh = (1 << (bits - (weft_dtype_is_signed(type) ? 1 : 0))) - 1;
        if (type == WEFT_PRED) ihigh = 1;
      }
      hlo_literal_set_s64(lit, i, ilow + (int64_t)(next_random() % (uint64_t)(ihigh - ilow + 1)));
    }
  }
}

static void default_tolerance(weft_dtype type, double *rtol, double *atol)
{
  switch (weft_dtype_component(type)) {
  case WEFT_F64: *rtol = 1e-12, *atol = 1e-13; return;
  case WEFT_F32: *rtol = 2e-6, *atol = 1e-6; return;
  case WEFT_F16: *rtol = 2e-3, *atol = 1e-3; return;
  case WEFT_BF16: *rtol = 1.6e-2, *atol = 1e-2; return;
  default: *rtol = 0.3, *atol = 0.3; return;
  }
}

static bool close_enough(double got, double want, double rtol, double atol)
{
  if (isnan(got) || isnan(want)) return isnan(got) && isnan(want);
  if (isinf(got) || isinf(want)) return got == want;
  return fabs(got - want) <= atol + rtol * fabs(want);
}

static void compare_leaf(const char *text, const hlo_literal *got, const hlo_literal *want, const kernel_check *how,
                         int split)
{
  weft_dtype type = want->shape->type;
  double rtol, atol;

  default_tolerance(type, &rtol, &atol);
  if (how->rtol != 0) rtol = how->rtol;
  if (how->atol != 0) atol = how->atol;
  for (int64_t i = 0; i < hlo_shape_elems(want->shape); i++) {
    bool same;
    if (weft_dtype_is_float(type) || weft_dtype_is_complex(type)) {
      same = close_enough(hlo_literal_get_f64(got, i), hlo_literal_get_f64(want, i), rtol, atol) &&
             close_enough(hlo_literal_get_imag(got, i), hlo_literal_get_imag(want, i), rtol, atol);
      if (!same)
        fail_msg("%s\nsplit %d, element %" PRId64 ": got %.17g + %.17gi, want %.17g + %.17gi", text, split, i,
                 hlo_literal_get_f64(got, i), hlo_literal_get_imag(got, i), hlo_literal_get_f64(want, i),
                 hlo_literal_get_imag(want, i));
    } else {
      size_t size = weft_dtype_bytes(type);
      same = memcmp((const char *)got->data + size * (size_t)i, (const char *)want->data + size * (size_t)i, size) == 0;
      if (!same)
        fail_msg("%s\nsplit %d, element %" PRId64 ": got %" PRId64 ", want %" PRId64, text, split, i,
                 hlo_literal_get_s64(got, i), hlo_literal_get_s64(want, i));
    }
  }
}

static void *guarded(int64_t bytes)
{
  size_t size = (size_t)WEFT_ALIGN_UP(bytes + 2 * GUARD, 64);
  char *p = aligned_alloc(64, size);
  memset(p, 0xa5, size);
  return p + GUARD;
}

static void check_guards(const char *text, const void *data, int64_t bytes)
{
  const unsigned char *p = data;
  for (int i = 0; i < GUARD; i++)
    if (p[-1 - i] != 0xa5 || p[bytes + i] != 0xa5) fail_msg("%s\nwrote outside of its buffer", text);
}

/* split 0: one range; 1: unit by unit, backwards; 2: uneven ranges. */
static void run_phase(const gen_phase *phase, void **args, int split)
{
  if (phase->units == 0) return;
  if (split == 0) {
    phase->fn(args, 0, phase->units);
  } else if (split == 1) {
    for (int64_t u = phase->units - 1; u >= 0; u--) phase->fn(args, u, u + 1);
  } else {
    for (int64_t u = 0, n = 1; u < phase->units; u += n, n = n * 2 + 1)
      phase->fn(args, u, WEFT_MIN(u + n, phase->units));
  }
}

static weft_status *parse_and_compile(const char *text, hlo_module **module, gen_code **code)
{
  gen_options options;

  WEFT_TRY(hlo_parse(text, strlen(text), module));
  WEFT_TRY(hlo_verify(*module));
  WEFT_TRY(gen_options_load(&options));
  options.threads = 1;
  options.allow_excess_precision = false;
  return gen_compile(*module, &options, code);
}

weft_status *compile_text(const char *text)
{
  WEFT_AUTO(hlo_module) module = NULL;
  WEFT_AUTO(gen_code) code = NULL;
  return parse_and_compile(text, &module, &code);
}

hlo_literal *empty_literal(weft_arena *arena, const hlo_shape *shape)
{
  hlo_literal *literal;

  T_OK(hlo_literal_new(arena, shape, &literal));
  for (int i = 0; hlo_shape_is_tuple(shape) && i < shape->rank; i++)
    literal->elements[i] = empty_literal(arena, shape->elements[i]);
  return literal;
}

static void *donated(const hlo_instr *fusion, int result, void **operands)
{
  for (int a = 0; a < fusion->u.fusion.alias_count; a++) {
    const hlo_output_alias *alias = &fusion->u.fusion.aliases[a];
    if (alias->output_index.count == 0 || alias->output_index.v[0] == result) return operands[alias->operand];
  }
  return NULL;
}

void run_compiled(const gen_kernel *kernel, const hlo_instr *fusion, const hlo_literal *const *inputs, bool donate,
                  int split, hlo_literal *got, const char *what)
{
  int n = 0, results = kernel->result_leaves, operands = kernel->operand_leaves;
  void *args[128];

  for (int i = 0; i < fusion->operand_count; i++) {
    const hlo_literal *lit = inputs[fusion->operands[i]->u.parameter_number];
    int64_t bytes = hlo_shape_bytes(lit->shape);
    args[n] = guarded(bytes);
    memcpy(args[n++], lit->data, (size_t)bytes);
  }
  T_EQ_INT(operands, n);
  for (int r = 0; r < results; r++) {
    void *over = donate ? donated(fusion, r, args) : NULL;
    args[n++] = over ? over : guarded(hlo_shape_bytes(hlo_shape_leaf(fusion->shape, r)));
  }
  if (kernel->scratch_bytes) args[n++] = guarded(kernel->scratch_bytes);
  if (kernel->shared_bytes) args[n++] = guarded(kernel->shared_bytes);
  T_EQ_INT(kernel->arg_count, n);
  for (int p = 0; p < kernel->phase_count; p++) run_phase(&kernel->phases[p], args, split);
  for (int r = 0; r < results; r++) {
    const hlo_literal *leaf = hlo_shape_is_tuple(got->shape) ? got->elements[r] : got;
    int64_t bytes = hlo_shape_bytes(leaf->shape);
    check_guards(what, args[operands + r], bytes);
    memcpy(leaf->data, args[operands + r], (size_t)bytes);
  }
  if (kernel->scratch_bytes) check_guards(what, args[operands + results], kernel->scratch_bytes);
  for (int i = 0; i < n; i++) {
    bool again = false;
    for (int k = 0; k < i; k++) again = again || args[k] == args[i];
    if (!again) free((char *)args[i] - GUARD);
  }
}

static bool same_bytes(const hlo_literal *a, const hlo_literal *b)
{
  if (!hlo_shape_is_tuple(a->shape)) return memcmp(a->data, b->data, (size_t)hlo_shape_bytes(a->shape)) == 0;
  for (int i = 0; i < a->shape->rank; i++)
    if (!same_bytes(a->elements[i], b->elements[i])) return false;
  return true;
}

/* The kernel of the module's root gives the same bits after it was saved and loaded. */
static void check_saved(const char *text, const hlo_module *module, const gen_code *code,
                        const hlo_literal *const *inputs, bool donate, weft_arena *arena)
{
#if defined(__x86_64__)
  WEFT_AUTO(gen_code) loaded = NULL;
  const hlo_instr *fusion = module->entry->root;
  hlo_literal *want = empty_literal(arena, fusion->shape), *got = empty_literal(arena, fusion->shape);
  gen_options options = {.threads = 1};
  void *bytes;
  size_t size;

  T_OK(gen_code_save(module, code, &options, NULL, &bytes, &size));
  weft_status *st = gen_code_load(module, bytes, size, &loaded);
  if (st) fail_msg("%s\n%s", text, weft_status_text(st, true));
  free(bytes);
  const gen_kernel *kernel = gen_code_kernel(code, fusion), *again = gen_code_kernel(loaded, fusion);
  for (int p = 0; p < kernel->phase_count; p++) {
    const gen_phase *x = &kernel->phases[p], *y = &again->phases[p];
    if (x->units != y->units || x->unit_ns != y->unit_ns || x->range_ns != y->range_ns)
      fail_msg("%s\nother estimates after saving and loading", text);
  }
  run_compiled(kernel, fusion, inputs, donate, 0, want, text);
  run_compiled(again, fusion, inputs, donate, 0, got, text);
  if (!same_bytes(got, want)) fail_msg("%s\nother bits after saving and loading", text);
#else
  (void)text, (void)module, (void)code, (void)inputs, (void)donate, (void)arena; /* nothing can be saved there */
#endif
}

void check_kernel(const char *text, const kernel_check *how)
{
  static const kernel_check plain;
  hlo_module *module = NULL;
  gen_code *code = NULL;
  weft_arena arena;
  const hlo_literal *inputs[64], *want;

  if (!how) how = &plain;
  weft_status *st = parse_and_compile(text, &module, &code);
  if (st) fail_msg("%s\n%s", text, weft_status_text(st, true));
  weft_arena_init(&arena);
  const hlo_instr *fusion = module->entry->root;
  const gen_kernel *kernel = gen_code_kernel(code, fusion);
  T_TRUE(kernel != NULL);
  for (int i = 0; i < module->entry->param_count; i++) {
    hlo_literal *lit;
    T_OK(hlo_literal_new(&arena, module->entry->params[i]->shape, &lit));
    fill(lit, how);
    inputs[i] = lit;
  }
  T_OK(hlo_eval_module(module, inputs, &HLO_EVAL_DEFAULT, &arena, &want));
  hlo_literal *got = empty_literal(&arena, fusion->shape), *whole = empty_literal(&arena, fusion->shape);
  run_compiled(kernel, fusion, inputs, how->donate, 0, whole, text);
  for (int split = 0; split < KERNEL_SPLITS; split++) {
    run_compiled(kernel, fusion, inputs, how->donate, split, got, text);
    if (!same_bytes(got, whole)) fail_msg("%s\nsplit %d: other bits than in one range", text, split);
    for (int r = 0; r < kernel->result_leaves; r++)
      compare_leaf(text, hlo_shape_is_tuple(got->shape) ? got->elements[r] : got,
                   hlo_shape_is_tuple(want->shape) ? want->elements[r] : want, how, split);
  }
  check_saved(text, module, code, inputs, how->donate, &arena);
  weft_arena_fini(&arena);
  gen_code_free(code);
  hlo_module_free(module);
}
