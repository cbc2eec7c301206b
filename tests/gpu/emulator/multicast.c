/* tests/gpu/emulator/multicast.c -- multimem: instructions that reach the memory of all devices of a multicast object.
 *
 * The manual does not say in which order multimem.ld_reduce combines what the devices hold. Here the order depends on
 * the address and on the seed of the launch, so that a program whose result depends on the order has other bits on
 * other runs. The minimum and maximum of a number and a NaN are the number, which the manual does not say either. */
#include <config.h>

#include <math.h>
#include <string.h>

#include "internal.h"
#include "numbers.h"

/* ---- the devices' memory ----------------------------------------------------------------------------------------- */

/* One byte range on all devices. */
typedef struct places {
  int count;
  uint8_t *at[PTX_TEAM];
} places;

static bool reach(ptx_exec *x, const ptx_inst *i, int lane, uint64_t address, unsigned bytes, unsigned access,
                  const uint8_t *value, places *out)
{
  const ptx_memory *m = x->launch->memory;
  ptx_range ranges[PTX_TEAM];
  char why[200] = "the device has no multicast objects";

  if (address & (bytes - 1)) {
    ptx_fault(x, 716, i, lane, "misaligned address %#llx of %u bytes", (unsigned long long)address, bytes);
    return false;
  }
  out->count = m->find_all ? m->find_all(m->ctx, address, ranges, why, sizeof why) : 0;
  if (!out->count) {
    ptx_fault(x, 700, i, lane, "%#llx: %s", (unsigned long long)address, why);
    return false;
  }
  for (int d = 0; d < out->count; d++) {
    const ptx_range *r = &ranges[d];
    if (address + bytes > r->base + r->size) {
      ptx_fault(x, 700, i, lane, "%u bytes at %#llx pass the end of what is bound", bytes, (unsigned long long)address);
      return false;
    }
    out->at[d] = r->host + (address - r->base);
    if (x->races)
      ptx_races_access(x, i, lane, false, address, address + r->shift, out->at[d], bytes, access | PTX_MULTICAST,
                       value);
    if (x->code) return false;
  }
  return true;
}

/* ---- ld_reduce --------------------------------------------------------------------------------------------------- */

static double widened(ptx_type t, uint64_t v)
{
  return t == PTX_F64 ? ptx_f64(v) : t == PTX_F32 ? ptx_f32(v) : t == PTX_F16 ? ptx_f16(v) : (double)ptx_bf16(v);
}

static uint64_t extreme(const ptx_inst *i, ptx_type t, uint64_t a, uint64_t b)
{
  double x = widened(t, a), y = widened(t, b);

  if (isnan(x) || isnan(y)) return isnan(x) ? b : a;
  if (x == y) return (signbit(x) != 0) == (i->atomic == PTX_MIN) ? a : b;
  return (x < y) == (i->atomic == PTX_MIN) ? a : b;
}

static bool is_pair(ptx_type t) { return t == PTX_F16X2 || t == PTX_BF16X2; }
static ptx_type half_of(ptx_type t) { return t == PTX_F16X2 ? PTX_F16 : PTX_BF16; }

static uint64_t combined(const ptx_inst *i, ptx_type t, uint64_t a, uint64_t b)
{
  if (is_pair(t))
    return combined(i, half_of(t), a & 0xffff, b & 0xffff) | combined(i, half_of(t), a >> 16, b >> 16) << 16;
  if (ptx_is_float(t) && i->atomic != PTX_ADD) return extreme(i, t, a, b);
  if (t == (ptx_type)i->type) return ptx_atomic_value(i, a, b);
  ptx_inst one = *i;
  one.type = (uint8_t)t;
  return ptx_atomic_value(&one, a, b);
}

/* The sum in f32, rounded once. */
static uint64_t summed_in_f32(ptx_type t, const uint64_t *values, int count)
{
  if (is_pair(t)) {
    uint64_t low[PTX_TEAM], high[PTX_TEAM];
    for (int d = 0; d < count; d++) low[d] = values[d] & 0xffff, high[d] = values[d] >> 16;
    return summed_in_f32(half_of(t), low, count) | summed_in_f32(half_of(t), high, count) << 16;
  }
  float sum = (float)widened(t, values[0]);
  for (int d = 1; d < count; d++) sum += (float)widened(t, values[d]);
  return t == PTX_F16 ? ptx_bits_f16(sum) : ptx_bits_bf16(sum);
}

static uint64_t mixed(uint64_t v)
{
  v = (v ^ v >> 31) * 0x9e3779b97f4a7c15ull;
  return v ^ v >> 29;
}

/* The values of the devices in the order in which they are combined: from one of them on, up or down. */
static uint64_t reduced(const ptx_exec *x, const ptx_inst *i, const places *p, unsigned at, unsigned bytes,
                        uint64_t address)
{
  uint64_t order = mixed(mixed(address) + x->launch->seed), values[PTX_TEAM];
  int count = p->count, first = (int)(order % (uint64_t)count), step = order >> 40 & 1 ? 1 : count - 1;

  for (int n = 0, d = first; n < count; n++, d = (d + step) % count) values[n] = ptx_get(p->at[d] + at, bytes);
  if (i->flags & PTX_F_ACC32) return summed_in_f32((ptx_type)i->type, values, count);
  for (int n = 1; n < count; n++) values[0] = combined(i, (ptx_type)i->type, values[0], values[n]);
  return values[0];
}

static void load_reduce(ptx_exec *x, const ptx_inst *i, uint32_t mask)
{
  uint64_t addresses[PTX_LANES];
  unsigned bytes = (unsigned)ptx_bytes((ptx_type)i->type), whole = bytes * i->vec;

  ptx_addresses(x, i, addresses);
  ptx_count_access(x, i, addresses, mask, whole, false);
  PTX_EACH(mask)
  {
    places p;
    if (!reach(x, i, l, addresses[l], whole, PTX_READ | (i->sem ? PTX_STRONG : 0), NULL, &p)) return;
    for (unsigned v = 0; v < i->vec; v++)
      ptx_out(x, i, (int)v)[l] = reduced(x, i, &p, v * bytes, bytes, addresses[l] + v * bytes);
  }
  ptx_fence(x, (ptx_sem)i->sem, (ptx_scope)i->scope);
}

/* ---- st and red -------------------------------------------------------------------------------------------------- */

static void store(ptx_exec *x, const ptx_inst *i, uint32_t mask)
{
  uint64_t addresses[PTX_LANES];
  unsigned bytes = (unsigned)ptx_bytes((ptx_type)i->type), whole = bytes * i->vec;

  ptx_addresses(x, i, addresses);
  ptx_count_access(x, i, addresses, mask, whole, true);
  ptx_fence(x, (ptx_sem)i->sem, (ptx_scope)i->scope);
  PTX_EACH(mask)
  {
    uint8_t value[16];
    places p;
    for (unsigned v = 0; v < i->vec; v++) memcpy(value + v * bytes, &ptx_in(x, i, (int)v)[l], bytes);
    if (!reach(x, i, l, addresses[l], whole, PTX_WRITE | (i->sem ? PTX_STRONG : 0), value, &p)) return;
    for (int d = 0; d < p.count; d++)
      for (unsigned v = 0; v < i->vec; v++) ptx_put(p.at[d] + v * bytes, bytes, ptx_in(x, i, (int)v)[l]);
  }
}

static void reduce(ptx_exec *x, const ptx_inst *i, uint32_t mask)
{
  uint64_t addresses[PTX_LANES];
  unsigned bytes = (unsigned)ptx_bytes((ptx_type)i->type), whole = bytes * i->vec;

  ptx_addresses(x, i, addresses);
  ptx_count_access(x, i, addresses, mask, whole, true);
  ptx_fence(x, (ptx_sem)i->sem, (ptx_scope)i->scope);
  PTX_EACH(mask)
  {
    places p;
    if (!reach(x, i, l, addresses[l], whole, PTX_READ | PTX_WRITE | PTX_STRONG, NULL, &p)) return;
    for (int d = 0; d < p.count; d++)
      for (unsigned v = 0; v < i->vec; v++) {
        uint8_t *at = p.at[d] + v * bytes;
        uint64_t old = ptx_get(at, bytes);
        while (!ptx_exchange(at, bytes, &old, combined(i, (ptx_type)i->type, old, ptx_in(x, i, (int)v)[l]))) {}
      }
  }
}

/* ---- forms ------------------------------------------------------------------------------------------------------- */

/* The operations of integers that the manual lists; there are no vectors of them. */
static bool integer_is_known(const ptx_inst *i)
{
  ptx_type t = (ptx_type)i->type;
  bool bits = t == PTX_B32 || t == PTX_B64, number = t == PTX_U32 || t == PTX_S32 || t == PTX_U64 || t == PTX_S64;

  if (i->vec != 1 || i->flags & PTX_F_ACC32) return false;
  switch (i->mode == PTX_MULTI_STORE ? PTX_NOATOMIC : i->atomic) {
  case PTX_NOATOMIC: return i->mode == PTX_MULTI_STORE && (bits || number);
  case PTX_AND: case PTX_OR: case PTX_XOR: return bits;
  case PTX_ADD: return number && t != PTX_S64;
  case PTX_MIN: case PTX_MAX: return number;
  default: return false;
  }
}

/* Those of floats: 4, 8 or 16 bytes in all. */
static bool float_is_known(const ptx_inst *i)
{
  ptx_type t = (ptx_type)i->type;
  int whole = ptx_bytes(t) * i->vec;
  bool narrow = t == PTX_F16 || t == PTX_BF16 || is_pair(t), wide = t == PTX_F32 || t == PTX_F64;

  if ((!narrow && !wide) || (whole != 4 && whole != 8 && whole != 16) || (t == PTX_F64 && i->vec != 1)) return false;
  if (i->flags & PTX_F_ACC32 && (i->mode != PTX_MULTI_LOAD || i->atomic != PTX_ADD || !narrow)) return false;
  switch (i->mode) {
  case PTX_MULTI_STORE: return i->atomic == PTX_NOATOMIC;
  case PTX_MULTI_RED: return i->atomic == PTX_ADD;
  default: return i->atomic == PTX_ADD || (narrow && (i->atomic == PTX_MIN || i->atomic == PTX_MAX));
  }
}

ptx_handler *ptx_pick_multicast(const ptx_inst *i)
{
  if (i->op != PTX_OP_multimem || (i->space != PTX_GLOBAL && i->space != PTX_GENERIC)) return NULL;
  if (i->sem == PTX_ACQ_REL || (i->sem && !i->scope && i->mode != PTX_MULTI_RED)) return NULL;
  if (!integer_is_known(i) && !float_is_known(i)) return NULL;
  switch (i->mode) {
  case PTX_MULTI_LOAD: return i->dst_count == i->vec && i->sem != PTX_RELEASE ? load_reduce : NULL;
  case PTX_MULTI_STORE: return i->src_count == i->vec && i->sem != PTX_ACQUIRE ? store : NULL;
  case PTX_MULTI_RED: return i->src_count == i->vec && i->sem != PTX_ACQUIRE ? reduce : NULL;
  default: return NULL;
  }
}
