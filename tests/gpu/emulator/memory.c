/* tests/gpu/emulator/memory.c -- loads, stores and atomic operations in every state
 * space, with the checks of each access. */
#include <config.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "internal.h"
#include "numbers.h"

uint64_t ptx_get(const uint8_t *at, unsigned bytes)
{
  switch (bytes) {
  case 1: return __atomic_load_n(at, __ATOMIC_RELAXED);
  case 2: return __atomic_load_n((const uint16_t *)(const void *)at, __ATOMIC_RELAXED);
  case 4: return __atomic_load_n((const uint32_t *)(const void *)at, __ATOMIC_RELAXED);
  default: return __atomic_load_n((const uint64_t *)(const void *)at, __ATOMIC_RELAXED);
  }
}

void ptx_put(uint8_t *at, unsigned bytes, uint64_t value)
{
  switch (bytes) {
  case 1: __atomic_store_n(at, (uint8_t)value, __ATOMIC_RELAXED); break;
  case 2: __atomic_store_n((uint16_t *)(void *)at, (uint16_t)value, __ATOMIC_RELAXED); break;
  case 4: __atomic_store_n((uint32_t *)(void *)at, (uint32_t)value, __ATOMIC_RELAXED); break;
  default: __atomic_store_n((uint64_t *)(void *)at, value, __ATOMIC_RELAXED);
  }
}

/* ---- addresses ---- */

static const char *space_name(ptx_space s)
{
  static const char *const names[] = {"generic", "global", "shared", "local", "param", "const", "kernel parameter"};
  return names[s];
}

/* The bytes of a space that has a size, or NULL with a fault. */
static uint8_t *within(ptx_exec *x, const ptx_inst *i, int lane, ptx_space s, uint8_t *base, size_t size, uint64_t at,
                       unsigned bytes)
{
  if (at <= size && bytes <= size - at) return base + at;
  ptx_fault(x, 700, i, lane, "%u bytes at %#" PRIx64 " lie outside of the %zu bytes of %s memory", bytes, at, size,
            space_name(s));
  return NULL;
}

/* Answers of ptx_memory are kept, one for each of some instructions: most go on
 * reading the array that they read before. */
static ptx_range *find_range(ptx_exec *x, const ptx_inst *i, int lane, uint64_t address, unsigned bytes,
                             unsigned access)
{
  const ptx_memory *m = x->launch->memory;
  uint64_t generation = m->generation ? __atomic_load_n(m->generation, __ATOMIC_ACQUIRE) : 0;
  if (generation != x->generation) {
    memset(x->cache, 0, sizeof x->cache);
    x->generation = generation;
  }
  ptx_range *r = &x->cache[(size_t)(i - x->kernel->module->code) % PTX_CACHE];
  if (address - r->base < r->size && r->size - (address - r->base) >= bytes) return r;
  char why[200] = "";
  const char *verb = access & PTX_WRITE ? "write" : "read";
  if (!m->find(m->ctx, address, r, why, sizeof why)) {
    r->size = 0;
    ptx_fault(x, 700, i, lane, "%s of %u bytes at %#" PRIx64 ": %s", verb, bytes, address, why);
    return NULL;
  }
  if (address - r->base < r->size && r->size - (address - r->base) >= bytes) return r;
  ptx_fault(x, 700, i, lane,
            "%s of %u bytes at %#" PRIx64 " passes the end of an allocation of %" PRIu64 " bytes at %#" PRIx64, verb,
            bytes, address, r->size, r->base);
  return NULL;
}

uint8_t *ptx_reach(ptx_exec *x, const ptx_inst *i, int lane, ptx_space space, uint64_t address, unsigned bytes,
                   unsigned access, const uint8_t *value)
{
  if (address & (bytes - 1)) {
    ptx_fault(x, 716, i, lane, "misaligned address %#" PRIx64 " of %u bytes", address, bytes);
    return NULL;
  }
  if (space == PTX_GENERIC) {
    uint64_t w = address & PTX_WINDOW_MASK;
    space = w == PTX_SHARED_WINDOW  ? PTX_SHARED
            : w == PTX_LOCAL_WINDOW ? PTX_LOCAL
            : w == PTX_PARAM_WINDOW ? PTX_KERNEL_PARAM
                                    : PTX_GLOBAL;
    address &= space == PTX_GLOBAL ? ~0ull : ~PTX_WINDOW_MASK;
  }
  uint8_t *at;
  uint64_t shift = 0;
  switch (space) {
  case PTX_SHARED: at = within(x, i, lane, space, x->block->shared, x->shared_size, address, bytes); break;
  case PTX_LOCAL: case PTX_PARAM:
    return within(x, i, lane, space, x->warp->local + (size_t)lane * x->local_size, x->kernel->local_bytes, address,
                  bytes);
  case PTX_KERNEL_PARAM:
    if (access & PTX_WRITE) {
      ptx_fault(x, 700, i, lane, "a write to a kernel parameter");
      return NULL;
    }
    return within(x, i, lane, space, (uint8_t *)(uintptr_t)x->launch->params, x->launch->params_size, address, bytes);
  default: {
    ptx_range *r = find_range(x, i, lane, address, bytes, access);
    if (!r) return NULL;
    at = r->host + (address - r->base);
    shift = r->shift;
  }
  }
  if (at && x->races && space != PTX_CONST)
    ptx_races_access(x, i, lane, space == PTX_SHARED, address, address + shift, at, bytes, access, value);
  return x->code ? NULL : at;
}

/* ---- counters ---- */

void ptx_count_access(ptx_exec *x, const ptx_inst *i, const uint64_t *addresses, uint32_t mask, unsigned bytes,
                      bool write)
{
  if (i->space != PTX_GLOBAL && i->space != PTX_GENERIC && i->space != PTX_CONST) return;
  x->stats.requests++;
  *(write ? &x->stats.bytes_written : &x->stats.bytes_read) += (uint64_t)bytes * (uint64_t)__builtin_popcount(mask);
  if (!x->launch->count_sectors) return;
  uint64_t seen[2 * PTX_LANES];
  int n = 0;
  PTX_EACH(mask)
  for (uint64_t s = addresses[l] / 32; s <= (addresses[l] + bytes - 1) / 32; s++) {
    int k = n - 1; /* neighbours are found at once */
    while (k >= 0 && seen[k] != s) k--;
    if (k < 0 && n < 2 * PTX_LANES) seen[n++] = s;
  }
  x->stats.sectors += (uint64_t)n;
}

void ptx_addresses(ptx_exec *x, const ptx_inst *i, uint64_t *out)
{
  const uint64_t *base = i->base >= 0 ? x->warp->rows[i->base] : x->kernel->module->consts[~i->base];
  for (int l = 0; l < PTX_LANES; l++) out[l] = base[l] + (uint64_t)i->offset;
}

/* ---- order ---- */

void ptx_fence(ptx_exec *x, ptx_sem sem, ptx_scope scope)
{
  if (sem < PTX_ACQUIRE) return;
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  if (x->races && sem != PTX_ACQUIRE) ptx_races_publish(x, scope);
  if (x->races && sem != PTX_RELEASE) ptx_races_learn(x, scope);
}

static void fence(ptx_exec *x, const ptx_inst *i, uint32_t mask)
{
  (void)mask;
  if (i->op == PTX_OP_fence && i->mode == PTX_FENCE_ALIAS) {
    if (x->races) ptx_races_alias(x);
    return;
  }
  ptx_fence(x, PTX_ACQ_REL, (ptx_scope)i->scope);
}

/* ---- loads and stores ---- */

static uint64_t loaded(ptx_type t, uint64_t v)
{
  return t == PTX_S8    ? (uint64_t)(int8_t)v
         : t == PTX_S16 ? (uint64_t)(int16_t)v
         : t == PTX_S32 ? (uint64_t)(int32_t)v
                        : v;
}

/* All lanes in the allocation that this instruction met last, aligned: the usual case,
 * without a call for each lane.  NULL: not so. */
static const ptx_range *all_within(ptx_exec *x, const ptx_inst *i, const uint64_t *addresses, uint32_t mask,
                                   unsigned bytes)
{
  const ptx_range *r = &x->cache[(size_t)(i - x->kernel->module->code) % PTX_CACHE];
  const uint64_t *generation = x->launch->memory->generation;
  if (x->races || r->size < bytes || (i->space != PTX_GLOBAL && i->space != PTX_CONST && i->space != PTX_GENERIC))
    return NULL;
  if (generation && __atomic_load_n(generation, __ATOMIC_ACQUIRE) != x->generation) return NULL;
  uint64_t base = r->base, last = r->size - bytes, bad = 0;
  for (int l = 0; l < PTX_LANES; l++)
    bad |= mask >> l & 1 ? (uint64_t)(addresses[l] - base > last) | (addresses[l] & (bytes - 1)) : 0;
  return bad ? NULL : r;
}

static void load(ptx_exec *x, const ptx_inst *i, uint32_t mask)
{
  uint64_t addresses[PTX_LANES];
  unsigned bytes = (unsigned)ptx_bytes(i->type), whole = bytes * i->vec;
  ptx_addresses(x, i, addresses);
  ptx_count_access(x, i, addresses, mask, whole, false);
  const ptx_range *r = all_within(x, i, addresses, mask, whole);
  if (r) {
    for (int v = 0; v < i->vec; v++) {
      uint64_t *d = ptx_out(x, i, v);
      const uint8_t *host = r->host + v * (int)bytes;
      PTX_EACH(mask) d[l] = ptx_get(host + (addresses[l] - r->base), bytes);
      if (ptx_is_signed(i->type)) PTX_EACH(mask) d[l] = loaded((ptx_type)i->type, d[l]);
    }
  } else {
    PTX_EACH(mask)
    {
      const uint8_t *at =
        ptx_reach(x, i, l, (ptx_space)i->space, addresses[l], whole, PTX_READ | (i->sem ? PTX_STRONG : 0), NULL);
      if (!at) return;
      for (int v = 0; v < i->vec; v++)
        ptx_out(x, i, v)[l] = loaded((ptx_type)i->type, ptx_get(at + v * (int)bytes, bytes));
    }
  }
  ptx_fence(x, (ptx_sem)i->sem, (ptx_scope)i->scope);
}

static void store(ptx_exec *x, const ptx_inst *i, uint32_t mask)
{
  uint64_t addresses[PTX_LANES];
  unsigned bytes = (unsigned)ptx_bytes(i->type), whole = bytes * i->vec;
  ptx_addresses(x, i, addresses);
  ptx_count_access(x, i, addresses, mask, whole, true);
  ptx_fence(x, (ptx_sem)i->sem, (ptx_scope)i->scope);
  const ptx_range *r = all_within(x, i, addresses, mask, whole);
  if (r) {
    for (int v = 0; v < i->vec; v++) {
      const uint64_t *s = ptx_in(x, i, v);
      uint8_t *host = r->host + v * (int)bytes;
      PTX_EACH(mask) ptx_put(host + (addresses[l] - r->base), bytes, s[l]);
    }
    return;
  }
  PTX_EACH(mask)
  {
    uint8_t value[64];
    for (int v = 0; v < i->vec; v++) memcpy(value + v * (int)bytes, &ptx_in(x, i, v)[l], bytes);
    uint8_t *at =
      ptx_reach(x, i, l, (ptx_space)i->space, addresses[l], whole, PTX_WRITE | (i->sem ? PTX_STRONG : 0), value);
    if (!at) return;
    for (int v = 0; v < i->vec; v++) ptx_put(at + v * (int)bytes, bytes, ptx_in(x, i, v)[l]);
  }
}

/* Arguments and results of calls: both sides are in the thread's own memory. */
static void copy_param(ptx_exec *x, const ptx_inst *i, uint32_t mask)
{
  uint64_t from = ptx_in(x, i, 0)[0];
  PTX_EACH(mask)
  {
    uint8_t *local = x->warp->local + (size_t)l * x->local_size;
    memcpy(local + i->target, local + from, (size_t)i->offset);
  }
}

/* ---- atomics ---- */

static uint64_t add_floats(ptx_type t, uint64_t a, uint64_t b)
{
  switch (t) {
  case PTX_F32: return ptx_bits32(ptx_f32(a) + ptx_f32(b));
  case PTX_F64: return ptx_bits64(ptx_f64(a) + ptx_f64(b));
  case PTX_F16: return ptx_bits_f16(ptx_f16(a) + ptx_f16(b));
  case PTX_BF16: return ptx_bits_bf16(ptx_add_odd((double)ptx_bf16(a), (double)ptx_bf16(b)));
  case PTX_F16X2: return add_floats(PTX_F16, a, b) | add_floats(PTX_F16, a >> 16, b >> 16) << 16;
  default: return add_floats(PTX_BF16, a, b) | add_floats(PTX_BF16, a >> 16, b >> 16) << 16;
  }
}

uint64_t ptx_atomic_value(const ptx_inst *i, uint64_t old, uint64_t operand)
{
  ptx_type t = (ptx_type)i->type;
  if (i->atomic == PTX_EXCH) return operand;
  if (ptx_is_float(t)) return add_floats(t, old, operand);
  bool narrow = ptx_bytes(t) == 4, is_signed = ptx_is_signed(t);
  uint64_t a = narrow ? is_signed ? (uint64_t)(int32_t)old : (uint32_t)old : old;
  uint64_t b = narrow ? is_signed ? (uint64_t)(int32_t)operand : (uint32_t)operand : operand;
  bool less = is_signed ? (int64_t)a < (int64_t)b : a < b;
  switch (i->atomic) {
  case PTX_ADD: return a + b;
  case PTX_MIN: return less ? a : b;
  case PTX_MAX: return less ? b : a;
  case PTX_AND: return a & b;
  case PTX_OR: return a | b;
  case PTX_XOR: return a ^ b;
  case PTX_INC: return a >= b ? 0 : a + 1;
  default: return a == 0 || a > b ? b : a - 1; /* PTX_DEC */
  }
}

bool ptx_exchange(uint8_t *at, unsigned bytes, uint64_t *old, uint64_t next)
{
#define EXCHANGE(T) do { T e = (T)*old; bool done = __atomic_compare_exchange_n((T *)(void *)at, &e, (T)next, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); *old = e; return done; } while (0)
  if (bytes == 2) EXCHANGE(uint16_t);
  if (bytes == 4) EXCHANGE(uint32_t);
  EXCHANGE(uint64_t);
}

static void atomic(ptx_exec *x, const ptx_inst *i, uint32_t mask)
{
  uint64_t addresses[PTX_LANES];
  unsigned bytes = (unsigned)ptx_bytes(i->type);
  uint64_t all = bytes == 8 ? ~0ull : (1ull << 8 * bytes) - 1;
  const uint64_t *b = ptx_in(x, i, 0), *c = ptx_in(x, i, 1);
  ptx_addresses(x, i, addresses);
  ptx_count_access(x, i, addresses, mask, bytes, true);
  ptx_fence(x,
            i->sem == PTX_ACQ_REL   ? PTX_RELEASE
            : i->sem == PTX_ACQUIRE ? PTX_WEAK
                                    : (ptx_sem)i->sem,
            (ptx_scope)i->scope);
  PTX_EACH(mask)
  {
    uint8_t *at = ptx_reach(x, i, l, (ptx_space)i->space, addresses[l], bytes, PTX_READ | PTX_WRITE | PTX_STRONG, NULL);
    if (!at) return;
    uint64_t old = ptx_get(at, bytes), operand = b[l], other = c[l];
    for (;;) {
      uint64_t next = i->atomic == PTX_CAS ? old == (operand & all) ? other : old : ptx_atomic_value(i, old, operand);
      if (ptx_exchange(at, bytes, &old, next)) break;
    }
    if (i->dst_count) ptx_out(x, i, 0)[l] = old;
  }
  ptx_fence(x, i->sem == PTX_ACQ_REL || i->sem == PTX_ACQUIRE ? PTX_ACQUIRE : PTX_WEAK, (ptx_scope)i->scope);
}

/* ---- asynchronous copies ---- */

/* cp.async may be done at once: a program that is right for any time of completion
 * up to the wait is right for this one. */
static void async_copy(ptx_exec *x, const ptx_inst *i, uint32_t mask)
{
  if (i->mode != PTX_CP_COPY) return;
  uint64_t to[PTX_LANES];
  ptx_addresses(x, i, to);
  const uint64_t *from = ptx_in(x, i, 0);
  PTX_EACH(mask)
  {
    uint8_t value[16] = {0};
    uint64_t wanted = i->src_count > 1 ? (uint32_t)ptx_in(x, i, 1)[l] : i->vec;
    if (wanted > i->vec) wanted = i->vec;
    if (wanted) {
      const uint8_t *s = ptx_reach(x, i, l, PTX_GLOBAL, from[l] + (uint64_t)(int64_t)i->target, i->vec, PTX_READ, NULL);
      if (!s) return;
      memcpy(value, s, wanted);
    }
    uint8_t *d = ptx_reach(x, i, l, PTX_SHARED, to[l], i->vec, PTX_WRITE, value);
    if (!d) return;
    memcpy(d, value, i->vec);
  }
}

static bool atomic_is_known(const ptx_inst *i)
{
  ptx_type t = (ptx_type)i->type;
  if (i->atomic == PTX_NOATOMIC || i->atomic == PTX_POPC || t == PTX_NOTYPE || i->vec > 1) return false;
  if (i->src_count != (i->atomic == PTX_CAS ? 2 : 1)) return false;
  if (ptx_is_float(t)) return i->atomic == PTX_ADD && t != PTX_TF32 && t < PTX_E4M3X2;
  return ptx_bytes(t) >= 4 || (t == PTX_B16 && (i->atomic == PTX_CAS || i->atomic == PTX_EXCH));
}

/* A call of cudaGraphSetConditional(handle, value), whose arguments lie in memory as those of any call. */
static void set_conditional(ptx_exec *x, const ptx_inst *i, uint32_t mask)
{
  PTX_EACH(mask)
  {
    uint8_t *handle = ptx_reach(x, i, l, PTX_PARAM, ptx_in(x, i, 0)[l], 8, PTX_READ, NULL);
    uint8_t *value = handle ? ptx_reach(x, i, l, PTX_PARAM, ptx_in(x, i, 1)[l], 4, PTX_READ, NULL) : NULL;
    if (!value) return;
    if (x->launch->set_conditional && x->launch->set_conditional(ptx_get(handle, 8), (uint32_t)ptx_get(value, 4)))
      continue;
    ptx_fault(x, 700, i, l, "%#" PRIx64 " is no handle of a graph that is ready to launch", ptx_get(handle, 8));
    return;
  }
}

ptx_handler *ptx_pick_memory(const ptx_inst *i)
{
  bool typed = i->type > PTX_PRED && i->type < PTX_F16X2 && i->vec * ptx_bytes((ptx_type)i->type) <= 32;
  switch (i->op) {
  case PTX_OP_ld: case PTX_OP_ldu: return typed && i->dst_count == i->vec ? load : NULL;
  case PTX_OP_st: return typed && i->src_count == i->vec && i->space != PTX_CONST ? store : NULL;
  case PTX_OP_atom: case PTX_OP_red: return atomic_is_known(i) ? atomic : NULL;
  case PTX_OP_membar: case PTX_OP_fence: return fence;
  case PTX_OP_cp: return async_copy;
  case PTX_OP_copy_param: return copy_param;
  case PTX_OP_set_conditional: return set_conditional;
  default: return NULL;
  }
}
