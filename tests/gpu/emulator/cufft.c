/* tests/gpu/emulator/cufft.c -- an emulated cuFFT: transforms by their
 * definition, in f64, on the thread of their stream.
 *
 * As the library does, a transform to real numbers of several dimensions overwrites its input.  The workspace is
 * overwritten before a transform begins, so that a workspace which the caller also uses for other things gives wrong
 * results. */
#include <config.h>

#include <complex.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/abi/cufft.h"
#include "library.h"

#define WFT_FN(type, name, args) API type name args;
WFT_ENTRIES(WFT_FN)
#undef WFT_FN

enum { PLANS = 1024, RANK = 3, WORKSPACE = 384 };

/* A plan, and the arguments of its job. */
typedef struct plan {
  bool used, made;
  wft_type type;
  int rank, direction;
  size_t size[RANK], batch;
  struct wcu_stream_st *stream;
  uint64_t workspace, in, out;
} plan;

static plan plans[PLANS];
static int last_plan; /* numbers are not given out twice in a row, so that a use of a destroyed plan is noticed */

#define ENTER() ENTER_CALL(wft_result)

static plan *find(wft_plan number)
{
  return number >= 0 && number < PLANS && plans[number].used ? &plans[number] : NULL;
}

API wft_result cufftCreate(wft_plan *number)
{
  ENTER();
  if (!number || !weft_emu_ready()) return WFT_SETUP_FAILED;
  for (int tried = 0; tried < PLANS; tried++) {
    int n = __atomic_add_fetch(&last_plan, 1, __ATOMIC_RELAXED) & (PLANS - 1);
    if (__atomic_exchange_n(&plans[n].used, true, __ATOMIC_ACQ_REL)) continue;
    plans[n] = (plan){.used = true};
    *number = n;
    return WFT_SUCCESS;
  }
  return WFT_ALLOC_FAILED;
}
API wft_result cufftDestroy(wft_plan number)
{
  plan *p = find(number);
  if (!p) return WFT_INVALID_PLAN;
  __atomic_store_n(&p->used, false, __ATOMIC_RELEASE);
  return WFT_SUCCESS;
}
API wft_result cufftSetAutoAllocation(wft_plan number, int automatic)
{
  ENTER();
  return find(number) && !automatic ? WFT_SUCCESS : WFT_INVALID_PLAN;
}
API wft_result cufftSetStream(wft_plan number, struct wcu_stream_st *stream)
{
  plan *p = find(number);
  ENTER();
  if (!p) return WFT_INVALID_PLAN;
  p->stream = stream;
  return WFT_SUCCESS;
}
API wft_result cufftSetWorkArea(wft_plan number, void *workspace)
{
  plan *p = find(number);
  ENTER();
  if (!p || !workspace) return WFT_INVALID_PLAN;
  p->workspace = (uintptr_t)workspace;
  return WFT_SUCCESS;
}

API wft_result cufftMakePlanMany64(wft_plan number, int rank, long long *n, long long *in_embed, long long in_step,
                                   long long in_distance, long long *out_embed, long long out_step,
                                   long long out_distance, wft_type type, long long batch, size_t *bytes)
{
  plan *p = find(number);

  (void)in_step, (void)in_distance, (void)out_step, (void)out_distance;
  ENTER();
  if (!p || p->made) return WFT_INVALID_PLAN;
  if (rank < 1 || rank > RANK || batch < 1 || in_embed || out_embed || !bytes) return WFT_INVALID_VALUE;
  for (int d = 0; d < rank; d++) {
    if (n[d] < 1) return WFT_INVALID_SIZE;
    p->size[d] = (size_t)n[d];
  }
  p->rank = rank, p->type = type, p->batch = (size_t)batch, p->made = true;
  *bytes = WORKSPACE;
  return WFT_SUCCESS;
}

/* ---- the arithmetic ---- */

static bool is_double(wft_type t) { return t == WFT_D2Z || t == WFT_Z2D || t == WFT_Z2Z; }
static bool from_real(wft_type t) { return t == WFT_R2C || t == WFT_D2Z; }
static bool to_real(wft_type t) { return t == WFT_C2R || t == WFT_Z2D; }

/* Elements of one transform: of the full array, or with the last dimension halved. */
static size_t elements(const plan *p, bool halved)
{
  size_t count = 1;
  for (int d = 0; d < p->rank; d++) count *= halved && d == p->rank - 1 ? p->size[d] / 2 + 1 : p->size[d];
  return count;
}

static double get(const void *from, size_t n, bool wide)
{
  return wide ? ((const double *)from)[n] : (double)((const float *)from)[n];
}
static void put(void *to, size_t n, bool wide, double v)
{
  if (wide) ((double *)to)[n] = v;
  else ((float *)to)[n] = (float)v;
}

/* Transforms dimension d of the full array, by the definition. */
static void transform(const plan *p, int d, complex double *v, complex double *line)
{
  size_t n = p->size[d], step = 1, total = elements(p, false);

  for (int e = d + 1; e < p->rank; e++) step *= p->size[e];
  for (size_t first = 0; first < total; first++) {
    if (first / step % n) continue;
    for (size_t k = 0; k < n; k++) {
      line[k] = 0;
      for (size_t j = 0; j < n; j++)
        line[k] += v[first + j * step] * cexp(p->direction * 2 * M_PI * I * (double)(j * k % n) / (double)n);
    }
    for (size_t k = 0; k < n; k++) v[first + k * step] = line[k];
  }
}

/* Index of the element in the half spectrum, or of its mirror image, whose conjugate the element is. */
static size_t halved_index(const plan *p, size_t index, bool *mirrored)
{
  size_t at[RANK], result = 0, last = (size_t)p->rank - 1;

  for (size_t d = last + 1; d-- > 0; index /= p->size[d]) at[d] = index % p->size[d];
  *mirrored = at[last] > p->size[last] / 2;
  for (size_t d = 0; d <= last; d++) {
    size_t i = *mirrored ? (p->size[d] - at[d]) % p->size[d] : at[d];
    result = result * (d == last ? p->size[d] / 2 + 1 : p->size[d]) + i;
  }
  return result;
}

static void load(const plan *p, const char *in, complex double *v)
{
  bool wide = is_double(p->type), mirrored;

  for (size_t n = 0; n < elements(p, false); n++) {
    size_t at = to_real(p->type) ? halved_index(p, n, &mirrored) : n;
    if (from_real(p->type)) v[n] = get(in, n, wide);
    else v[n] = get(in, 2 * at, wide) + I * get(in, 2 * at + 1, wide);
    if (to_real(p->type) && mirrored) v[n] = conj(v[n]);
  }
}

static void store(const plan *p, char *out, const complex double *v)
{
  bool wide = is_double(p->type), mirrored;

  for (size_t n = 0; n < elements(p, false); n++) {
    size_t at = from_real(p->type) ? halved_index(p, n, &mirrored) : n;
    if (from_real(p->type) && mirrored) continue;
    if (to_real(p->type)) put(out, n, wide, creal(v[n]));
    else put(out, 2 * at, wide, creal(v[n])), put(out, 2 * at + 1, wide, cimag(v[n]));
  }
}

static size_t bytes_of(const plan *p, bool input)
{
  size_t real = is_double(p->type) ? 8 : 4;
  bool is_real = input ? from_real(p->type) : to_real(p->type), halved = input ? to_real(p->type) : from_real(p->type);
  return elements(p, halved) * real * (is_real ? 1 : 2);
}

static int run(const void *args, int device, char *error, size_t size)
{
  const plan *p = args;
  size_t in_bytes = bytes_of(p, true), out_bytes = bytes_of(p, false), longest = 0;
  bool destroys = to_real(p->type) && p->rank > 1;
  char *in = weft_emu_reach(device, p->in, in_bytes * p->batch, destroys, error, size);
  char *out = in ? weft_emu_reach(device, p->out, out_bytes * p->batch, true, error, size) : NULL;
  void *workspace = out ? weft_emu_reach(device, p->workspace, WORKSPACE, true, error, size) : NULL;

  if (!workspace) return ILLEGAL_ADDRESS;
  memset(workspace, 0xff, WORKSPACE);
  for (int d = 0; d < p->rank; d++) longest = p->size[d] > longest ? p->size[d] : longest;
  complex double *v = calloc(elements(p, false), sizeof *v), *line = calloc(longest, sizeof *line);
  bool enough = v && line;
  for (size_t b = 0; enough && b < p->batch; b++) {
    load(p, in + b * in_bytes, v);
    for (int d = 0; d < p->rank; d++) transform(p, d, v, line);
    store(p, out + b * out_bytes, v);
  }
  if (destroys) memset(in, 0xff, in_bytes * p->batch);
  free(v);
  free(line);
  if (enough) return 0;
  snprintf(error, size, "cufftXtExec: no memory");
  return OUT_OF_MEMORY;
}

API wft_result cufftXtExec(wft_plan number, void *in, void *out, int direction)
{
  const plan *p = find(number);

  ENTER();
  if (!p || !p->made) return WFT_INVALID_PLAN;
  if (!weft_emu_ready()) return WFT_EXEC_FAILED;
  if (!in || !out || (direction != WFT_FORWARD && direction != WFT_INVERSE)) return WFT_INVALID_VALUE;
  if (!p->workspace) return WFT_NO_WORKSPACE;
  plan job = *p;
  job.in = (uintptr_t)in, job.out = (uintptr_t)out;
  job.direction = to_real(p->type) ? WFT_INVERSE : from_real(p->type) ? WFT_FORWARD : direction;
  return weft_emu_enqueue(p->stream, run, &job, sizeof job) ? WFT_EXEC_FAILED : WFT_SUCCESS;
}
