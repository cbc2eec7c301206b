/* gpu/communicator.c -- chooses what moves the data of collectives (communicator.h). */
#include <config.h>

#include "gpu/communicator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "collective/host/schedule.h"
#include "collective/internal.h"
#include "gpu/gpu_internal.h"
#include "gpu/nccl.h"
#include "gpu/peer.h"

/* The largest operation that goes directly between GPUs. For larger ones NCCL's rings and trees use more links. */
enum { PEER_BYTES = 4 << 20 };

/* A communicator that has both implementations. */
typedef struct both {
  coll_communicator base; /* first */
  coll_communicator *peers, *nccl;
} both;

static const gpu_settings *settings_of(const weft_platform *platform)
{
  return &((const gpu_platform *)platform)->settings;
}

static bool wants(const weft_platform *platform, const char *what)
{
  return strcmp(settings_of(platform)->collectives, what) == 0;
}

static bool has_nccl(void)
{
  int version;
  weft_status *st = gpu_nccl_open(&version);

  weft_status_free(st);
  return !st;
}

bool gpu_communicator_moves(const weft_platform *platform, weft_coll_kind kind, weft_dtype dtype,
                            weft_reduction reduction)
{
  bool alone = ((const gpu_platform *)platform)->alone; /* all devices of the job belong to this process */

  if (!wants(platform, "nccl") && alone && gpu_peer_can_connect_all(platform) && gpu_peer_has(kind, dtype, reduction))
    return true;
  return !wants(platform, "peers") && !gpu_peer_any_shared(platform) &&
         gpu_nccl_moves(platform, kind, dtype, reduction);
}

bool gpu_communicator_registers(const weft_platform *platform)
{
  return !wants(platform, "peers") && !gpu_peer_any_shared(platform) && gpu_nccl_registers();
}

/* ---- the communicator ------------------------------------------------------------------------------------------- */

static void destroy(coll_communicator *base) WEFT_UNSHARED
{
  both *b = (both *)base;

  if (b->peers) b->peers->ops->destroy(b->peers);
  if (b->nccl) b->nccl->ops->destroy(b->nccl);
  free(b);
}

static weft_status *make_both(weft_platform *platform, const weft_comm_spec *spec, both *b)
{
  WEFT_TRY(gpu_peer_communicator.create(platform, spec, &b->peers));
  WEFT_TRY(gpu_nccl_communicator.create(platform, spec, &b->nccl));
  gpu_nccl_report_to(b->nccl, &b->base);
  return NULL;
}

static const coll_communicator_ops both_communicators;

static weft_status *create_both(weft_platform *platform, const weft_comm_spec *spec,
                                coll_communicator **out_communicator)
{
  both *b = calloc(1, sizeof *b);

  WEFT_TRY_ALLOC(b);
  b->base.ops = &both_communicators;
  weft_status *st = make_both(platform, spec, b);
  if (st) destroy(&b->base);
  else *out_communicator = &b->base;
  return st;
}

/* Parts have both implementations, too. */
static weft_status *divide_both(coll_communicator *base, const coll_division *division, coll_communicator **out)
{
  both *b = (both *)base;
  int count = division->part_count;
  coll_communicator **peers = calloc((size_t)WEFT_MAX(count, 1), sizeof(coll_communicator *));
  coll_communicator **nccl = calloc((size_t)WEFT_MAX(count, 1), sizeof(coll_communicator *));
  weft_status *st = peers && nccl ? NULL : WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");

  for (int p = 0; p < count && !st; p++) {
    both *part = calloc(1, sizeof *part);
    if (!part) st = WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
    else part->base.ops = &both_communicators;
    out[p] = (coll_communicator *)part;
  }
  if (!st) st = b->peers->ops->divide(b->peers, division, peers);
  for (int p = 0; p < count && !st; p++) ((both *)out[p])->peers = peers[p];
  if (!st) st = b->nccl->ops->divide(b->nccl, division, nccl);
  for (int p = 0; p < count && !st; p++) {
    ((both *)out[p])->nccl = nccl[p];
    gpu_nccl_report_to(nccl[p], out[p]);
  }
  for (int p = 0; p < count && st; p++)
    if (out[p]) destroy(WEFT_MOVE(out[p]));
  free(peers);
  free(nccl);
  return st;
}

typedef enum kind { PEERS, NCCL, BOTH } kind;

static kind kind_of(const weft_platform *platform, const weft_comm_spec *spec)
{
  if (wants(platform, "peers")) return PEERS;
  if (wants(platform, "nccl") || !gpu_peer_can_connect(platform, spec)) return NCCL;
  /* also of one rank, if there are other devices: see gpu_communicator_nccl_rank */
  bool only = spec->size == 1 && platform->device_count == 1 && ((const gpu_platform *)platform)->alone;
  return only || gpu_peer_any_shared(platform) || !has_nccl() ? PEERS : BOTH;
}

static weft_status *create(void *ctx, const weft_comm_spec *spec, coll_communicator **out_communicator)
{
  weft_platform *platform = ctx;

  *out_communicator = NULL;
  switch (kind_of(platform, spec)) {
  case PEERS: return gpu_peer_communicator.create(platform, spec, out_communicator);
  case NCCL: return gpu_nccl_communicator.create(platform, spec, out_communicator);
  default: return create_both(platform, spec, out_communicator);
  }
}

/* Only the library's communicator takes long to make.  A part of one rank has none, and one whose ranks are all of one
 * process may have peers, too, which a whole of several processes does not have. */
static bool divides(void *ctx, const weft_comm_spec *whole, const weft_comm_spec *part)
{
  kind of_whole = kind_of(ctx, whole);

  if (of_whole == PEERS || whole->size == 1 || !gpu_nccl_divides()) return false;
  return !part || (settings_of(ctx)->split && part->size > 1 && kind_of(ctx, part) == of_whole);
}

/* Only a communicator that is NCCL's alone can be shrunk: one with peers has all its ranks in this process. */
static bool is_nccls(weft_platform *platform, const weft_comm_spec *spec)
{
  return !wants(platform, "peers") && spec->size > 1 && settings_of(platform)->shrink &&
         (wants(platform, "nccl") || !gpu_peer_can_connect(platform, spec));
}

static uint64_t heritage(void *ctx, const weft_comm_spec *spec)
{
  return is_nccls(ctx, spec) ? gpu_nccl_communicator.heritage(ctx, spec) : 0;
}

static weft_status *inherit(void *ctx, const weft_comm_spec *spec, uint64_t number,
                            coll_communicator **out_communicator)
{
  return gpu_nccl_communicator.inherit(ctx, spec, number, out_communicator);
}

/* The same answer on all ranks: their operations have the same fingerprint, and all ranks have a hold or none has. */
static bool goes_to_peers(const coll_posting *posting)
{
  const weft_coll_op *args = posting->args;

  if (posting->hold) return false; /* see gpu_communicator_nccl_rank */

  /* peer.c queues an operation when all ranks have posted it */
  if (args->kind == WEFT_SEND || args->kind == WEFT_RECV) return false;
  if (args->kind == WEFT_RAGGED_ALL_TO_ALL) return true; /* the ranks' extents may differ */
  if (args->recv_counts || !gpu_nccl_moves(NULL, args->kind, args->dtype, args->reduction)) return true;
  return posting->problem->bytes <= PEER_BYTES;
}

static uint64_t place(coll_communicator *base, const coll_posting *posting)
{
  both *b = (both *)base;

  return goes_to_peers(posting) ? COLL_ANY_PLACE : b->nccl->ops->place(b->nccl, posting);
}

static void post(coll_communicator *base, const coll_posting *posting)
{
  both *b = (both *)base;
  coll_communicator *to = goes_to_peers(posting) ? b->peers : b->nccl;

  to->ops->post(to, posting);
}

/* Whether peers move the operation in all groups of the job, however its devices are grouped: all devices belong to
 * this process, and reach each other.  Elsewhere some groups of a collective may have peers, and others none. */
static bool goes_to_peers_everywhere(const gpu_platform *platform, const weft_coll_op *args,
                                     const coll_problem *problem)
{
  return platform->alone && gpu_peer_can_connect_all(&platform->base) &&
         goes_to_peers(&(coll_posting){.args = args, .problem = problem});
}

struct rank *gpu_communicator_nccl_rank(weft_comm *comm, const gpu_platform *platform, const weft_coll_op *args,
                                        const coll_problem *problem)
{
  coll_communicator *c = comm->group->communicator;

  if (c && c->ops == &both_communicators) {
    if (goes_to_peers_everywhere(platform, args, problem)) return NULL;
    c = ((both *)c)->nccl;
  }
  return c && c->ops == &gpu_nccl_communicator ? gpu_nccl_local_rank(c, comm->local) : NULL;
}

static void abort_both(coll_communicator *base, const weft_status *why)
{
  both *b = (both *)base;

  b->peers->ops->abort(b->peers, why);
  b->nccl->ops->abort(b->nccl, why);
}

static void describe(const coll_communicator *base, char *out, size_t size)
{
  const both *b = (const both *)base;
  char nccl[1000];

  b->peers->ops->describe(b->peers, out, size);
  b->nccl->ops->describe(b->nccl, nccl, sizeof nccl);
  size_t used = strlen(out);
  snprintf(out + used, size - used, "; %s", nccl);
}

static const coll_communicator_ops both_communicators = {
  .name = "peers and NCCL",
  .divide = divide_both,
  .place = place,
  .post = post,
  .abort = abort_both,
  .describe = describe,
  .destroy = destroy,
};

/* A table that only makes communicators, which have one of the other three tables. */
const coll_communicator_ops gpu_communicator = {
  .name = "GPUs", .create = create, .heritage = heritage, .inherit = inherit, .divides = divides};
