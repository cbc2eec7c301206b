/* collective/names.c -- what kinds, reductions and operations are called. */
#include <config.h>

#include "collective/address.h"

const char *weft_coll_kind_name(weft_coll_kind kind)
{
  static const char *const names[] = {
#define KIND_TEXT(name, text) text,
    WEFT_COLL_KINDS(KIND_TEXT)
#undef KIND_TEXT
  };
  return (unsigned)kind < WEFT_COUNT(names) ? names[kind] : "unknown operation";
}

const char *weft_reduction_name(weft_reduction reduction)
{
  static const char *const names[] = {"none", "sum", "product", "min", "max", "and", "or", "xor", "custom"};
  return (unsigned)reduction < WEFT_COUNT(names) ? names[reduction] : "unknown reduction";
}

void coll_describe(int kind, int dtype, uint64_t count, int reduction, const char *name, char *out, size_t size)
{
  const char *type = (unsigned)dtype < WEFT_DTYPE_COUNT ? weft_dtype_name((weft_dtype)dtype) : "?";
  size_t n = (size_t)snprintf(out, size, "%s", weft_coll_kind_name((weft_coll_kind)kind));

  if (kind != WEFT_BARRIER && n < size)
    n += (size_t)snprintf(out + n, size - n, " %s[%llu]", type, (unsigned long long)count);
  if (reduction != WEFT_REDUCE_NONE && n < size)
    n += (size_t)snprintf(out + n, size - n, " %s", weft_reduction_name((weft_reduction)reduction));
  if (name && *name && n < size) snprintf(out + n, size - n, " \"%s\"", name);
}

void coll_op_describe(const coll_op *op, char *out, size_t size)
{
  const weft_coll_site *site = &op->site;
  char operation[200];

  coll_describe((int)op->args.kind, (int)op->args.dtype, op->args.count, (int)op->args.reduction, site->instruction,
                operation, sizeof operation);
  snprintf(out, size, "%s%s%s%s%s (seq %llu, %lld bytes)", operation, site->source ? " at " : "",
           site->source ? site->source : "", site->executable ? " of " : "", site->executable ? site->executable : "",
           (unsigned long long)op->seq, (long long)op->problem.bytes);
}

void coll_rank_describe(const coll_group *g, int rank, char *out, size_t size)
{
  const coll_address *a = g->addresses ? &g->addresses[rank] : NULL;

  /* Ranks of this process are described like others, because other processes repeat the text. */
  if (!a || !a->magic) snprintf(out, size, "rank %d (device %lld)", rank, (long long)g->device_ids[rank]);
  else
    snprintf(out, size, "rank %d (device %lld on %.64s, pid %d)", rank, (long long)g->device_ids[rank], a->host,
             a->pid);
}

weft_status *coll_op_disagreement(const coll_op *a, const coll_op *b)
{
  char x[256], y[256];

  coll_op_describe(a, x, sizeof x);
  coll_op_describe(b, y, sizeof y);
  return WEFT_ERR(FAILED_PRECONDITION, "ranks disagree on the operation: rank %d is at %s, rank %d at %s",
                  a->comm->rank, x, b->comm->rank, y);
}

uint64_t coll_hash_text(const char *text, uint64_t h)
{
  for (; *text; text++) h = (h ^ (unsigned char)*text) * 0x100000001b3u;
  return h;
}
