/* tests/gpu/emulator/nccl.c -- an emulated NCCL: its functions, and the rules of their use.
 *
 * A rule that is broken is answered with InvalidUsage or InvalidArgument, and ncclGetLastError says
 * which.  Communicators are never freed, so that a use after their end is noticed.  WEFT_EMU_NCCL is a
 * list, read whenever a communicator is made:
 *   polls:N         each call on a communicator that does not block answers InProgress for N polls
 *   version:V       the library's version
 *   absent:R        rank R never comes
 *   silent:R@N      the device of rank R hangs in its N-th operation until the abort
 *   kill:R@N        the process of rank R is killed (SIGKILL) in its N-th operation
 *   async:R@N=CODE  as silent, and ncclCommGetAsyncError answers CODE */
#include <config.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/abi/cuda.h"
#include "library.h"
#include "nccl.h"

#define WNC_FN(type, name, args) API type name args;
WNC_ENTRIES(WNC_FN)
WNC_LATER_ENTRIES(WNC_FN)
#undef WNC_FN
API wnc_result ncclCommInitRank(wnc_comm *comm, int size, wnc_unique_id id, int rank);
API wnc_result ncclCommInitAll(wnc_comm *comms, int count, const int *devices);
API wnc_result ncclRedOpCreatePreMulSum(int *op, const void *scalar, wnc_type type, int residence, wnc_comm comm);
API wnc_result ncclRedOpDestroy(int op, wnc_comm comm);
API wnc_result ncclGroupSimulateEnd(void *info);
/* Rules broken, and jobs queued, since the library was loaded. */
API int weft_emu_nccl_misuses(void);
API int weft_emu_nccl_jobs(void);
extern wcu_result cuCtxGetDevice(wcu_device *device);
extern wcu_result cuCtxSetCurrent(wcu_context context);
extern wcu_result cuDevicePrimaryCtxRetain(wcu_context *context, wcu_device device);
extern wcu_result cuMemAddressReserve(wcu_ptr *at, size_t bytes, size_t align, wcu_ptr wish, unsigned long long flags);
extern wcu_result cuMemAddressFree(wcu_ptr at, size_t bytes);
extern wcu_result cuMemCreate(wcu_mem_handle *handle, size_t bytes, const wcu_mem_allocation_prop *prop,
                              unsigned long long flags);
extern wcu_result cuMemRelease(wcu_mem_handle handle);
extern wcu_result cuMemMap(wcu_ptr at, size_t bytes, size_t offset, wcu_mem_handle handle, unsigned long long flags);
extern wcu_result cuMemUnmap(wcu_ptr at, size_t bytes);
extern wcu_result cuMemSetAccess(wcu_ptr at, size_t bytes, const wcu_mem_access_desc *rights, size_t count);

enum { MAGIC = 0x6e63636c, GONE = 0x656e6421, GROUP_OPS = 4096, GROUP_INITS = 64, SCALED_OPS = 64, FIRST_SCALED = 512, SHARED_GRANULE = 2 << 20 };

static atomic_int misuses, jobs_queued;
static _Thread_local char last_text[NCCL_TEXT];
static struct { bool used; double scale; wnc_comm comm; } scaled[SCALED_OPS];
static pthread_mutex_t scaled_mu = PTHREAD_MUTEX_INITIALIZER;

API int weft_emu_nccl_misuses(void) { return atomic_load(&misuses); }
API int weft_emu_nccl_jobs(void) { return atomic_load(&jobs_queued); }

/* Memory that is registered with a communicator. */
typedef struct emu_nccl_registration {
  struct emu_nccl_registration *next; /* of windows */
  wnc_comm comm;
  void *at;
  size_t bytes;
  bool live, symmetric;
  uint64_t number;     /* of a window */
  wnc_window *out;     /* of a window that is being opened */
} registration;

static wnc_result spoil_group(int fault);
#define ENTER() do { int fault_ = weft_emu_fault(__func__); if (fault_) return spoil_group(fault_); } while (0)

static wnc_result misuse(wnc_result result, const char *format, ...)
{
  va_list args;

  va_start(args, format);
  vsnprintf(last_text, sizeof last_text, format, args);
  va_end(args);
  atomic_fetch_add(&misuses, 1);
  return result;
}

void emu_nccl_fail(wnc_comm c, wnc_result result, const char *format, ...)
{
  int none = WNC_Success;
  va_list args;

  va_start(args, format);
  vsnprintf(c->text, sizeof c->text, format, args);
  va_end(args);
  atomic_compare_exchange_strong(&c->error, &none, (int)result);
}

/* ---- settings --------------------------------------------------------------------------------------------------- */

/* The rest of the item of WEFT_EMU_NCCL that begins with `name`; NULL: there is none. */
static const char *setting(const char *name)
{
  const char *at = getenv("WEFT_EMU_NCCL");

  while (at && *at) {
    if (strncmp(at, name, strlen(name)) == 0 && at[strlen(name)] == ':') return at + strlen(name) + 1;
    at = strchr(at, ',');
    if (at) at++;
  }
  return NULL;
}

static void read_faults(wnc_comm c)
{
  const char *polls = setting("polls"), *absent = setting("absent"), *silent = setting("silent"),
             *async = setting("async"), *kills = setting("kill");
  unsigned long long number;
  int rank, code;

  c->polls = polls && !c->blocking ? atoi(polls) : 0;
  if (c->size < 2) return;
  c->absent = absent && atoi(absent) == c->rank;
  if (silent && sscanf(silent, "%d@%llu", &rank, &number) == 2 && rank == c->rank) c->silent_at = number;
  if (kills && sscanf(kills, "%d@%llu", &rank, &number) == 2 && rank == c->rank) c->kill_at = number;
  if (async && sscanf(async, "%d@%llu=%d", &rank, &number, &code) == 3 && rank == c->rank)
    c->async_at = number, c->async_code = code;
}

/* ---- what needs no communicator --------------------------------------------------------------------------------- */

size_t emu_nccl_type_bytes(wnc_type type)
{
  static const size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return (unsigned)type < sizeof bytes / sizeof bytes[0] ? bytes[type] : 0;
}

API wnc_result ncclGetVersion(int *version)
{
  const char *given = setting("version");
  ENTER();
  if (!version) return misuse(WNC_InvalidArgument, "ncclGetVersion: NULL");
  *version = given ? atoi(given) : WNC_VERSION;
  return WNC_Success;
}

API wnc_result ncclGetUniqueId(wnc_unique_id *id)
{
  ENTER();
  if (!id) return misuse(WNC_InvalidArgument, "ncclGetUniqueId: NULL");
  uint64_t token = emu_nccl_token();
  memset(id, 0, sizeof *id);
  memcpy(id->bytes, &token, sizeof token);
  return WNC_Success;
}

API const char *ncclGetErrorString(wnc_result result)
{
  static const char *const texts[] = {"no error", "unhandled cuda error", "unhandled system error", "internal error",
                                      "invalid argument", "invalid usage", "remote process exited or there was a network error",
                                      "NCCL operation in progress"};
  return (unsigned)result < 8 ? texts[result] : "unknown result code";
}

API const char *ncclGetLastError(wnc_comm c) { return c && c->magic == MAGIC && c->text[0] ? c->text : last_text; }

/* ---- groups ----------------------------------------------------------------------------------------------------- */

/* The operations lie on the heap: glibc keeps the thread-local memory of a thread that has ended with its stack. */
static _Thread_local struct {
  int depth;
  wnc_result error;
  size_t count, inits, room;
  emu_nccl_op *ops; /* [room] while a group is open */
  wnc_comm comms[GROUP_INITS];
} group;

/* A call that fails in a group spoils the whole group: none of its operations is queued. */
static wnc_result spoil_group(int fault)
{
  if (group.depth > 0 && !group.error) group.error = (wnc_result)fault;
  return (wnc_result)fault;
}

static bool grow_group(void)
{
  size_t room = group.room ? 2 * group.room : 16;
  emu_nccl_op *grown = group.count < GROUP_OPS ? realloc(group.ops, room * sizeof *grown) : NULL;

  if (!grown) return false;
  group.ops = grown;
  group.room = room;
  return true;
}

static wnc_result end_group(wnc_result result)
{
  free(group.ops);
  group.ops = NULL;
  group.room = 0;
  return result;
}

/* ---- communicators ---------------------------------------------------------------------------------------------- */

static bool is_live(wnc_comm c) { return c && c->magic == MAGIC; }

void emu_nccl_unref(wnc_comm c)
{
  if (atomic_fetch_sub(&c->refs, 1) == 1) emu_nccl_close(c->world, c->size), c->world = NULL;
}

/* A job in a graph, in an instance or in a launch: the communicator's memory stays as long as there is one. */
static void count_recorded(const void *args, int change)
{
  wnc_comm c = ((const emu_nccl_job *)args)->comm;

  atomic_fetch_add(&c->recorded, change);
  if (change < 0) {
    emu_nccl_unref(c);
    return;
  }
  atomic_fetch_add(&c->refs, 1);
  if (c->magic == GONE)
    misuse(WNC_InvalidUsage, "a graph with operations of a communicator is used after the communicator's end");
}

/* The library waits for ever for graphs with operations of the communicator. */
static void check_graphs(wnc_comm c, const char *call)
{
  if (atomic_load(&c->recorded) > 0) misuse(WNC_InvalidUsage, "%s: graphs have operations of the communicator", call);
}

static void drop(wnc_comm c)
{
  c->magic = GONE;
  emu_nccl_unref(c);
}

/* Two ranks on one device of one process. */
static bool is_double(const emu_nccl_world *w, int size)
{
  for (int a = 0; a < size; a++)
    for (int b = a + 1; b < size; b++)
      if (atomic_load(&w->members[a].pid) == atomic_load(&w->members[b].pid) &&
          w->members[a].device == w->members[b].device)
        return true;
  return false;
}

/* Goes on with meeting the other ranks. */
static void meet(wnc_comm c)
{
  if (c->met || atomic_load(&c->error)) return;
  if (atomic_load(&c->world->wrong)) {
    emu_nccl_fail(c, (wnc_result)atomic_load(&c->world->wrong), "ranks of different sizes, or a rank twice");
    return;
  }
  if (c->absent || atomic_load(&c->world->arrived) < (uint32_t)c->size) return;
  c->met = true;
  emu_nccl_unlink(c->token);
  if (is_double(c->world, c->size)) emu_nccl_fail(c, WNC_InvalidUsage, "Duplicate GPU detected");
}

/* Waits as a call that blocks does. */
static wnc_result meet_now(wnc_comm c)
{
  while (!c->met && !atomic_load(&c->error) && !atomic_load(&c->aborted)) {
    meet(c);
    if (!c->met) usleep(200);
  }
  return (wnc_result)atomic_load(&c->error);
}

static void arrive(wnc_comm c)
{
  emu_nccl_member *me = &c->world->members[c->rank];
  uint64_t nobody = 0;

  if (c->absent) return;
  atomic_store(&me->device, (uint64_t)c->device);
  if (!atomic_compare_exchange_strong(&me->pid, &nobody, (uint64_t)getpid())) {
    atomic_store(&c->world->wrong, WNC_InvalidArgument);
    return;
  }
  atomic_fetch_add(&c->world->arrived, 1);
}

static bool is_good(const wnc_config *config)
{
  return !config || (config->magic == WNC_CONFIG_MAGIC && config->size >= 24 &&
                     (config->blocking == INT_MIN || config->blocking == 0 || config->blocking == 1));
}

/* Makes a communicator that has arrived. */
static wnc_result open_comm(uint64_t token, int size, int rank, const wnc_config *config, wnc_comm *out)
{
  wcu_device device;

  *out = NULL;
  if (size < 1 || size > NCCL_RANKS || rank < 0 || rank >= size)
    return misuse(WNC_InvalidArgument, "rank %d of %d", rank, size);
  if (!is_good(config)) return misuse(WNC_InvalidArgument, "a config that does not begin as NCCL_CONFIG_INITIALIZER");
  if (!weft_emu_ready() || cuCtxGetDevice(&device)) return WNC_UnhandledCudaError;
  wnc_comm c = weft_emu_keep(sizeof *c);
  if (!c) return WNC_SystemError;
  *c = (struct wnc_comm_st){.magic = MAGIC,
                            .token = token,
                            .size = size,
                            .rank = rank,
                            .device = device,
                            .blocking = !config || config->blocking != 0,
                            .refs = 1};
  pthread_mutex_init(&c->running, NULL);
  read_faults(c);
  c->world = emu_nccl_open(token, size);
  if (!c->world) return WNC_SystemError;
  arrive(c);
  *out = c;
  return WNC_Success;
}

static wnc_result init(uint64_t token, int size, int rank, const wnc_config *config, wnc_comm *out)
{
  if (!out) return misuse(WNC_InvalidArgument, "no place for the communicator");
  wnc_result result = open_comm(token, size, rank, config, out);
  if (result) return result;
  wnc_comm c = *out;
  if (group.depth > 0 && group.count > 0)
    return group.error = misuse(WNC_InvalidUsage, "a group has an init and operations");
  if (group.depth > 0 && group.inits < GROUP_INITS) group.comms[group.inits++] = c;
  if (c->blocking) return group.depth > 0 ? WNC_Success : meet_now(c);
  return WNC_InProgress;
}

static uint64_t token_of(const wnc_unique_id *id)
{
  uint64_t token;
  memcpy(&token, id->bytes, sizeof token);
  return token;
}

API wnc_result ncclCommInitRankConfig(wnc_comm *comm, int size, wnc_unique_id id, int rank, wnc_config *config)
{
  ENTER();
  return init(token_of(&id), size, rank, config, comm);
}
API wnc_result ncclCommInitRank(wnc_comm *comm, int size, wnc_unique_id id, int rank)
{
  ENTER();
  return init(token_of(&id), size, rank, NULL, comm);
}
API wnc_result ncclCommInitRankScalable(wnc_comm *comm, int size, int rank, int id_count, wnc_unique_id *ids,
                                        wnc_config *config)
{
  ENTER();
  if (!ids || id_count < 1 || id_count > size)
    return misuse(WNC_InvalidArgument, "%d ids for %d ranks", id_count, size);
  return init(token_of(&ids[0]), size, rank, config, comm);
}
API wnc_result ncclCommInitAll(wnc_comm *comms, int count, const int *devices)
{
  uint64_t token = emu_nccl_token();
  wcu_context context;

  ENTER();
  for (int i = 0; i < count; i++) {
    if (cuDevicePrimaryCtxRetain(&context, devices ? devices[i] : i) || cuCtxSetCurrent(context))
      return WNC_UnhandledCudaError;
    wnc_result result = open_comm(token, count, i, NULL, &comms[i]);
    if (result) return result;
  }
  for (int i = 0; i < count; i++) {
    wnc_result result = meet_now(comms[i]);
    if (result) return result;
  }
  return WNC_Success;
}

/* ---- split and shrink ------------------------------------------------------------------------------------------- */

static int by_key(wnc_comm parent, int a, int b)
{
  const emu_nccl_member *x = &parent->world->members[a], *y = &parent->world->members[b];
  return x->key != y->key ? x->key - y->key : a - b;
}

/* Goes on with a split: once all ranks that take part have said their colours, the ranks of this colour meet. */
static void go_on_splitting(wnc_comm c)
{
  wnc_comm parent = c->parent;
  int size = 0, rank = 0, leader = -1;

  for (int r = 0; r < parent->size; r++)
    if ((c->split_ranks >> r & 1) && atomic_load(&parent->world->members[r].splits) < c->split_number) return;
  for (int r = 0; r < parent->size; r++) {
    if (!(c->split_ranks >> r & 1) || parent->world->members[r].color != c->split_color) continue;
    size++;
    rank += by_key(parent, r, parent->rank) < 0;
    if (leader < 0 || by_key(parent, r, leader) < 0) leader = r;
  }
  c->size = size;
  c->rank = rank;
  c->token = parent->world->members[leader].token;
  c->world = emu_nccl_open(c->token, size);
  parent->part = NULL;
  if (!c->world) emu_nccl_fail(c, WNC_SystemError, "no memory");
  else arrive(c);
}

/* Goes on with opening a window: once all ranks have come, they must want the same. */
static void go_on_opening(wnc_comm c)
{
  registration *w = c->opening;
  const emu_nccl_window_about *mine = &c->world->members[c->rank].window[w->number & 1];

  for (int r = 0; r < c->size; r++)
    if (atomic_load(&c->world->members[r].windows) < w->number) return;
  c->opening = NULL;
  for (int r = 0; r < c->size; r++) {
    const emu_nccl_window_about *other = &c->world->members[r].window[w->number & 1];
    bool same_order = other->ops == mine->ops || other->ops == UINT64_MAX || mine->ops == UINT64_MAX;
    if (other->bytes == mine->bytes && other->flags == mine->flags && same_order) continue;
    emu_nccl_fail(c, WNC_InvalidUsage,
                  "ranks register different windows: rank %d %llu bytes (flags %d) after %llu operations, rank %d %llu "
                  "(flags %d) after %llu",
                  c->rank, (unsigned long long)mine->bytes, mine->flags, (unsigned long long)mine->ops, r,
                  (unsigned long long)other->bytes, other->flags, (unsigned long long)other->ops);
    return;
  }
  *w->out = (wnc_window)(void *)w;
}

static void advance(wnc_comm c)
{
  if (c->opening && !atomic_load(&c->error)) go_on_opening(c);
  if (c->part) go_on_splitting(c->part);
  if (c->parent && !c->world && c->parent->part == c) go_on_splitting(c);
  if (c->world) meet(c);
}

static wnc_result derive(wnc_comm c, uint64_t ranks, int color, int key, wnc_config *config, wnc_comm *out)
{
  emu_nccl_member *me = &c->world->members[c->rank];

  if (!is_good(config)) return misuse(WNC_InvalidArgument, "a config that does not begin as NCCL_CONFIG_INITIALIZER");
  me->color = color;
  me->key = key;
  me->token = emu_nccl_token();
  uint64_t number = atomic_fetch_add(&me->splits, 1) + 1;
  *out = NULL;
  if (color < 0) return WNC_Success;
  wnc_comm part = weft_emu_keep(sizeof *part);
  if (!part) return WNC_SystemError;
  *part = (struct wnc_comm_st){.magic = MAGIC,
                               .device = c->device,
                               .refs = 1,
                               .parent = c,
                               .split_number = number,
                               .split_ranks = ranks,
                               .split_color = color,
                               .polls = c->polls,
                               .blocking = config && config->blocking != INT_MIN ? config->blocking != 0 : c->blocking};
  pthread_mutex_init(&part->running, NULL);
  c->part = *out = part;
  if (!c->blocking) return WNC_InProgress;
  while (!part->met && !atomic_load(&part->error) && !atomic_load(&c->aborted)) {
    advance(part);
    if (!part->met) usleep(200);
  }
  return (wnc_result)atomic_load(&part->error);
}

/* ---- the state of a communicator -------------------------------------------------------------------------------- */

/* May a call be made on the communicator now? */
static wnc_result check(wnc_comm c, const char *call)
{
  if (!c) return misuse(WNC_InvalidArgument, "%s: no communicator", call);
  if (c->magic == GONE) return misuse(WNC_InvalidArgument, "%s: the communicator was destroyed or aborted", call);
  if (c->magic != MAGIC) return misuse(WNC_InvalidArgument, "%s: not a communicator", call);
  if (atomic_load(&c->error)) return (wnc_result)atomic_load(&c->error);
  if (!c->met && c->blocking) return misuse(WNC_InvalidUsage, "%s: the communicator is being made", call);
  if (!c->met || c->polls != 0 || c->opening)
    return misuse(WNC_InvalidUsage, "%s: the call before it is in progress (ncclCommGetAsyncError)", call);
  return WNC_Success;
}

/* The answer of a call that has done its work: in a communicator that does not block, InProgress for some polls. */
static wnc_result answer(wnc_comm c)
{
  const char *polls = setting("polls");

  if (c->blocking || !polls || atoi(polls) <= 0) return WNC_Success;
  c->polls = -atoi(polls); /* negative: polls to come */
  return WNC_InProgress;
}

API wnc_result ncclCommGetAsyncError(wnc_comm c, wnc_result *result)
{
  ENTER();
  if (!is_live(c) || !result) return misuse(WNC_InvalidArgument, "ncclCommGetAsyncError: not a live communicator");
  advance(c);
  if (atomic_load(&c->error)) *result = (wnc_result)atomic_load(&c->error);
  else if (c->part || !c->met || c->opening) *result = WNC_InProgress;
  else if (c->polls > 0) c->polls--, *result = WNC_InProgress; /* of the init */
  else if (c->polls < 0) *result = ++c->polls < 0 ? WNC_InProgress : WNC_Success;
  else if ((c->finalized || atomic_load(&c->revoked)) && atomic_load(&c->jobs) > 0) *result = WNC_InProgress;
  else *result = WNC_Success;
  return WNC_Success;
}

#define CHECK(comm) do { wnc_result bad_ = check(comm, __func__); if (bad_) return bad_; } while (0)

API wnc_result ncclCommCount(wnc_comm c, int *size)
{
  ENTER();
  CHECK(c);
  *size = c->size;
  return WNC_Success;
}
API wnc_result ncclCommCuDevice(wnc_comm c, int *device)
{
  ENTER();
  CHECK(c);
  *device = c->device;
  return WNC_Success;
}
API wnc_result ncclCommUserRank(wnc_comm c, int *rank)
{
  ENTER();
  CHECK(c);
  *rank = c->rank;
  return WNC_Success;
}

API wnc_result ncclCommSplit(wnc_comm c, int color, int key, wnc_comm *part, wnc_config *config)
{
  ENTER();
  CHECK(c);
  if (!part || color < WNC_SPLIT_NOCOLOR) return misuse(WNC_InvalidArgument, "ncclCommSplit: color %d", color);
  uint64_t all = c->size == 64 ? ~0ull : (1ull << c->size) - 1;
  return derive(c, all, color, key, config, part);
}

API wnc_result ncclCommShrink(wnc_comm c, int *left_out, int count, wnc_comm *rest, wnc_config *config, int flags)
{
  uint64_t ranks;

  ENTER();
  if (!is_live(c) || !c->met) return misuse(WNC_InvalidArgument, "ncclCommShrink: not a live communicator");
  if (!rest || !left_out || count < 1) return misuse(WNC_InvalidArgument, "ncclCommShrink: no ranks to leave out");
  if (atomic_load(&c->error)) return (wnc_result)atomic_load(&c->error); /* the library asks for a ready one */
  if (c->part) return misuse(WNC_InvalidUsage, "ncclCommShrink: the call before it is in progress");
  if (flags & WNC_SHRINK_ABORT) atomic_store(&c->revoked, true);
  else CHECK(c);
  ranks = c->size == 64 ? ~0ull : (1ull << c->size) - 1;
  for (int i = 0; i < count; i++) {
    if (left_out[i] < 0 || left_out[i] >= c->size)
      return misuse(WNC_InvalidArgument, "ncclCommShrink: rank %d", left_out[i]);
    ranks &= ~(1ull << left_out[i]);
  }
  if (!(ranks >> c->rank & 1))
    return misuse(WNC_InvalidUsage, "ncclCommShrink: called by rank %d, which is left out", c->rank);
  return derive(c, ranks, 0, c->rank, config, rest);
}

API wnc_result ncclCommRevoke(wnc_comm c, int flags)
{
  ENTER();
  if (!is_live(c)) return misuse(WNC_InvalidArgument, "ncclCommRevoke: not a live communicator");
  if (flags) return misuse(WNC_InvalidArgument, "ncclCommRevoke: flags %d", flags);
  if (!c->met || c->finalized) return misuse(WNC_InvalidArgument, "ncclCommRevoke: while it is made, or finalized");
  if (atomic_exchange(&c->revoked, true)) return misuse(WNC_InvalidArgument, "ncclCommRevoke: a second time");
  return answer(c);
}

API wnc_result ncclCommFinalize(wnc_comm c)
{
  ENTER();
  CHECK(c);
  if (c->finalized) return misuse(WNC_InvalidUsage, "ncclCommFinalize: a second time");
  if (atomic_load(&c->revoked)) return misuse(WNC_InvalidUsage, "ncclCommFinalize after ncclCommRevoke");
  check_graphs(c, "ncclCommFinalize");
  c->finalized = true;
  while (c->blocking && atomic_load(&c->jobs) > 0) usleep(200);
  return c->blocking || atomic_load(&c->jobs) == 0 ? answer(c) : WNC_InProgress;
}

API wnc_result ncclCommDestroy(wnc_comm c)
{
  ENTER();
  if (!c) return WNC_Success;
  if (!is_live(c)) return misuse(WNC_InvalidArgument, "ncclCommDestroy: the communicator was destroyed or aborted");
  if (c->windows || c->registered)
    misuse(WNC_InvalidUsage, "ncclCommDestroy: %d registrations and %d windows are left", c->registered, c->windows);
  while (atomic_load(&c->jobs) > 0 && !atomic_load(&c->error) && !atomic_load(&c->revoked)) usleep(200);
  atomic_store(&c->aborted, true);
  drop(c);
  return WNC_Success;
}

API wnc_result ncclCommAbort(wnc_comm c)
{
  ENTER();
  if (!is_live(c)) return misuse(WNC_InvalidArgument, "ncclCommAbort: the communicator was destroyed or aborted");
  if (!c->met && c->world) emu_nccl_unlink(c->token);
  if (c->parent && c->parent->part == c) c->parent->part = NULL;
  atomic_store(&c->aborted, true);
  drop(c);
  return WNC_Success;
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

typedef struct shared_memory { struct shared_memory *next; wcu_ptr at; size_t bytes; } shared_memory;
static _Atomic(shared_memory *) all_shared;

static wcu_result map_shared(wcu_device device, size_t bytes, wcu_ptr *out)
{
  wcu_mem_allocation_prop prop = {.type = WCU_MEM_ALLOCATION_TYPE_PINNED,
                                  .requestedHandleTypes = WCU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                  .location = {WCU_MEM_LOCATION_TYPE_DEVICE, device}};
  wcu_mem_access_desc rights = {prop.location, WCU_MEM_ACCESS_READWRITE};
  wcu_mem_handle handle;

  wcu_result result = cuMemCreate(&handle, bytes, &prop, 0);
  if (result) return result;
  result = cuMemAddressReserve(out, bytes, 0, 0, 0);
  if (!result) result = cuMemMap(*out, bytes, 0, handle, 0);
  if (!result) result = cuMemSetAccess(*out, bytes, &rights, 1);
  cuMemRelease(handle); /* the mapping keeps the memory */
  return result;
}

API wnc_result ncclMemAlloc(void **at, size_t bytes)
{
  size_t granules = (bytes + SHARED_GRANULE - 1) / SHARED_GRANULE * SHARED_GRANULE;
  wcu_device device;

  ENTER();
  shared_memory *m = weft_emu_keep(sizeof *m);
  if (!at || !m || cuCtxGetDevice(&device) || map_shared(device, granules, &m->at)) return WNC_UnhandledCudaError;
  m->bytes = granules;
  m->next = atomic_load(&all_shared);
  while (!atomic_compare_exchange_weak(&all_shared, &m->next, m)) {}
  *at = (void *)(uintptr_t)m->at; /* NOLINT */
  return WNC_Success;
}
API wnc_result ncclMemFree(void *at)
{
  ENTER();
  for (shared_memory *m = atomic_load(&all_shared); m; m = m->next) {
    if (!m->bytes || m->at != (wcu_ptr)(uintptr_t)at) continue;
    size_t bytes = m->bytes;
    m->bytes = 0;
    return cuMemUnmap(m->at, bytes) || cuMemAddressFree(m->at, bytes) ? WNC_UnhandledCudaError : WNC_Success;
  }
  return misuse(WNC_InvalidArgument, "ncclMemFree: not memory of ncclMemAlloc");
}

static registration *registered(wnc_comm c, void *at, size_t bytes, int *count)
{
  char error[NCCL_TEXT];
  registration *r = NULL;

  if (bytes && weft_emu_reach(c->device, (uintptr_t)at, bytes, true, error, sizeof error)) r = weft_emu_keep(sizeof *r);
  if (!r) return NULL;
  *r = (registration){.comm = c, .at = at, .bytes = bytes, .live = true};
  ++*count;
  return r;
}

static wnc_result deregistered(wnc_comm c, registration *r, int *count, const char *call)
{
  char error[NCCL_TEXT];

  if (!r || !r->live || r->comm != c)
    return misuse(WNC_InvalidArgument, "%s: not registered with this communicator", call);
  r->live = false;
  --*count;
  if (!weft_emu_reach(c->device, (uintptr_t)r->at, r->bytes, true, error, sizeof error))
    return misuse(WNC_InvalidUsage, "%s: the memory was freed before: %s", call, error);
  return WNC_Success;
}

API wnc_result ncclCommRegister(wnc_comm c, void *at, size_t bytes, void **handle)
{
  ENTER();
  CHECK(c);
  *handle = registered(c, at, bytes, &c->registered);
  return *handle ? WNC_Success : misuse(WNC_InvalidArgument, "ncclCommRegister: not memory of the device");
}
API wnc_result ncclCommDeregister(wnc_comm c, void *handle)
{
  ENTER();
  CHECK(c);
  return deregistered(c, handle, &c->registered, __func__);
}
/* All ranks of the communicator call it; memory that others cannot map would be of no use. */
API wnc_result ncclCommWindowRegister(wnc_comm c, void *at, size_t bytes, wnc_window *window, int flags)
{
  ENTER();
  CHECK(c);
  if (c->finalized || atomic_load(&c->revoked))
    return misuse(WNC_InvalidUsage, "ncclCommWindowRegister: the communicator is finalized or revoked");
  if ((uintptr_t)at % 4096)
    return misuse(WNC_InvalidArgument, "ncclCommWindowRegister: an address that is not aligned to 4096");
  if (flags & ~WNC_WIN_COLL_SYMMETRIC) return misuse(WNC_InvalidArgument, "ncclCommWindowRegister: flags %d", flags);
  if (!weft_emu_is_mapped((uintptr_t)at))
    return misuse(WNC_InvalidArgument, "ncclCommWindowRegister: not memory of the virtual memory calls");
  registration *w = registered(c, at, bytes, &c->windows);
  if (!w) return misuse(WNC_InvalidArgument, "ncclCommWindowRegister: not memory of the device");
  w->symmetric = flags & WNC_WIN_COLL_SYMMETRIC;
  w->number = ++c->window_number;
  w->out = window;
  w->next = c->window_list;
  c->window_list = c->opening = w;
  emu_nccl_member *me = &c->world->members[c->rank];
  /* launches of graphs are not counted */
  me->window[w->number & 1] = (emu_nccl_window_about){bytes, c->ever_captured ? UINT64_MAX : c->queued, flags};
  atomic_store(&me->windows, w->number);
  while (c->blocking && c->opening && !atomic_load(&c->error) && !atomic_load(&c->aborted)) {
    advance(c);
    if (c->opening) usleep(200);
  }
  if (!c->blocking) answer(c); /* the polls begin when the ranks have come */
  return c->blocking ? (wnc_result)atomic_load(&c->error) : WNC_InProgress;
}
/* Ends this rank's part of the window: the other ranks need not call it. */
API wnc_result ncclCommWindowDeregister(wnc_comm c, wnc_window window)
{
  ENTER();
  CHECK(c);
  if (atomic_load(&c->jobs) > 0 && !atomic_load(&c->revoked))
    return misuse(WNC_InvalidUsage, "ncclCommWindowDeregister: operations of the communicator are under way");
  return deregistered(c, (registration *)(void *)window, &c->windows, __func__);
}

/* ---- operations ------------------------------------------------------------------------------------------------- */

API wnc_result ncclRedOpCreatePreMulSum(int *op, const void *scalar, wnc_type type, int residence, wnc_comm c)
{
  ENTER();
  CHECK(c);
  if (residence != 1)
    return misuse(WNC_InvalidArgument, "ncclRedOpCreatePreMulSum: only scalars in host memory are emulated");
  if (type != WNC_Float32 && type != WNC_Float64)
    return misuse(WNC_InvalidArgument, "ncclRedOpCreatePreMulSum: type %d", (int)type);
  pthread_mutex_lock(&scaled_mu);
  int i = 0;
  while (i < SCALED_OPS && scaled[i].used) i++;
  if (i < SCALED_OPS) {
    scaled[i].used = true;
    scaled[i].comm = c;
    scaled[i].scale = type == WNC_Float32 ? *(const float *)scalar : *(const double *)scalar;
    *op = FIRST_SCALED + i;
  }
  pthread_mutex_unlock(&scaled_mu);
  return i < SCALED_OPS ? WNC_Success : WNC_InternalError;
}

/* The reduction that ncclRedOpCreatePreMulSum has made for the communicator, or -1. */
static int scaled_index(int op, wnc_comm c)
{
  int i = op - FIRST_SCALED;
  return i >= 0 && i < SCALED_OPS && scaled[i].used && scaled[i].comm == c ? i : -1;
}

API wnc_result ncclRedOpDestroy(int op, wnc_comm c)
{
  ENTER();
  pthread_mutex_lock(&scaled_mu);
  int i = scaled_index(op, c);
  if (i >= 0) scaled[i].used = false;
  pthread_mutex_unlock(&scaled_mu);
  return i >= 0 ? WNC_Success : misuse(WNC_InvalidArgument, "ncclRedOpDestroy: no such reduction");
}

/* Queues the operations of one communicator and stream as one job. */
static wnc_result queue(const emu_nccl_op *ops, size_t count)
{
  emu_nccl_job *job = malloc(sizeof *job + count * sizeof *ops);
  wnc_comm c = ops[0].comm;

  if (!job) return WNC_SystemError;
  job->comm = c;
  job->count = count;
  job->captured = weft_emu_is_capturing(ops[0].stream);
  memcpy(job->ops, ops, count * sizeof *ops);
  if (job->captured) {
    c->ever_captured = true;
    int refused = weft_emu_record(ops[0].stream, emu_nccl_run, job, sizeof *job + count * sizeof *ops, count_recorded);
    free(job);
    return refused ? WNC_UnhandledCudaError : WNC_Success;
  }
  atomic_fetch_add(&jobs_queued, 1);
  atomic_fetch_add(&c->jobs, 1);
  atomic_fetch_add(&c->refs, 1);
  int failed = weft_emu_enqueue(ops[0].stream, emu_nccl_run, job, sizeof *job + count * sizeof *ops);
  free(job);
  if (!failed) return WNC_Success;
  atomic_fetch_sub(&c->jobs, 1);
  emu_nccl_unref(c);
  snprintf(last_text, sizeof last_text, "the driver answers %d", failed);
  return WNC_UnhandledCudaError;
}

/* Queues all operations of a group; each job has those of one communicator and stream, in order. */
static wnc_result queue_all(emu_nccl_op *ops, size_t count)
{
  wnc_result result = WNC_Success;
  bool in_progress = false;

  while (count > 0 && !result) {
    wnc_comm c = ops[0].comm;
    struct wcu_stream_st *stream = ops[0].stream;
    size_t same = 0, left = 0;
    emu_nccl_op *rest = malloc(count * sizeof *ops);
    if (!rest) return WNC_SystemError;
    for (size_t i = 0; i < count; i++) {
      if (ops[i].comm == c && ops[i].stream == stream) ops[same++] = ops[i];
      else rest[left++] = ops[i];
    }
    result = queue(ops, same);
    if (!result) in_progress |= answer(c) == WNC_InProgress;
    memcpy(ops, rest, left * sizeof *ops);
    free(rest);
    count = left;
  }
  return result ? result : in_progress ? WNC_InProgress : WNC_Success;
}

static wnc_result check_op(const emu_nccl_op *op, const char *call)
{
  wnc_comm c = op->comm;
  wnc_result bad = check(c, call);

  if (bad) return bad;
  if (c->finalized) return misuse(WNC_InvalidUsage, "%s after ncclCommFinalize", call);
  if (atomic_load(&c->revoked)) return misuse(WNC_InvalidUsage, "%s after ncclCommRevoke", call);
  if (!emu_nccl_type_bytes(op->type)) return misuse(WNC_InvalidArgument, "%s: type %d", call, (int)op->type);
  if (op->peer < 0 || op->peer >= c->size)
    return misuse(WNC_InvalidArgument, "%s: rank %d of %d", call, op->peer, c->size);
  bool reduces = op->kind == EMU_ALL_REDUCE || op->kind == EMU_REDUCE || op->kind == EMU_REDUCE_SCATTER;
  if (reduces && op->type > WNC_Bfloat16) return misuse(WNC_InvalidArgument, "%s: f8 is not emulated", call);
  if (reduces && (op->op < 0 || op->op > WNC_Avg)) return misuse(WNC_InvalidArgument, "%s: reduction %d", call, op->op);
  if (group.depth > 0 && group.inits > 0) return misuse(WNC_InvalidUsage, "a group has an init and operations");
  /* a result that begins where the operand begins, or where the rank's own block lies, is in place */
  uint64_t bytes = op->count * emu_nccl_type_bytes(op->type), n = (uint64_t)c->size;
  uint64_t in = op->kind == EMU_REDUCE_SCATTER || op->kind == EMU_ALL_TO_ALL ? n * bytes : bytes;
  uint64_t out = op->kind == EMU_ALL_GATHER || op->kind == EMU_ALL_TO_ALL ? n * bytes : bytes,
           own = (uint64_t)c->rank * bytes;
  bool rooted = op->kind == EMU_GATHER || op->kind == EMU_SCATTER || op->kind == EMU_REDUCE,
       pair = op->kind == EMU_SEND || op->kind == EMU_RECV;
  if (rooted || pair || !bytes || op->send + in <= op->recv || op->recv + out <= op->send) return WNC_Success;
  bool in_place = op->kind == EMU_ALL_REDUCE || op->kind == EMU_BROADCAST ? op->send == op->recv
                  : op->kind == EMU_ALL_GATHER                            ? op->send == op->recv + own
                  : op->kind == EMU_REDUCE_SCATTER                        ? op->recv == op->send + own
                                                                          : false;
  return in_place ? WNC_Success : misuse(WNC_InvalidArgument, "%s: the result overlaps the operand", call);
}

/* Where an address lies in the communicator's symmetric windows; 0: in none. */
static uint64_t place_of(wnc_comm c, uint64_t at)
{
  for (const registration *w = c->window_list; w; w = w->next)
    if (w->live && w->symmetric && at - (uintptr_t)w->at < w->bytes)
      return w->number << 48 | (at - (uintptr_t)w->at + 1);
  return 0;
}

static wnc_result post(emu_nccl_op op, const char *call)
{
  op.scale = 1;
  pthread_mutex_lock(&scaled_mu);
  int i = is_live(op.comm) ? scaled_index(op.op, op.comm) : -1;
  if (i >= 0) op.scale = scaled[i].scale, op.op = WNC_Sum;
  pthread_mutex_unlock(&scaled_mu);
  wnc_result bad = check_op(&op, call);
  if (bad) {
    if (group.depth > 0 && !group.error) group.error = bad;
    return bad;
  }
  op.send_place = place_of(op.comm, op.send);
  op.recv_place = place_of(op.comm, op.recv);
  if (op.kind != EMU_SEND && op.kind != EMU_RECV) op.comm->queued++;
  if (group.depth == 0) return queue_all(&op, 1);
  if (group.count == group.room && !grow_group()) return group.error = WNC_InternalError;
  group.ops[group.count++] = op;
  return WNC_Success;
}

#define AT(p) ((uint64_t)(uintptr_t)(p))
#define OP(kind_, op_, peer_, send_, recv_)                                                                     \
  ENTER();                                                                                                      \
  return post((emu_nccl_op){.comm = comm, .stream = stream, .kind = (kind_), .type = type, .op = (int)(op_),    \
                            .peer = (peer_), .send = AT(send_), .recv = AT(recv_), .count = count}, __func__)

API wnc_result ncclReduce(const void *send, void *recv, size_t count, wnc_type type, wnc_op op, int root, WNC_ON)
{
  OP(EMU_REDUCE, op, root, send, recv);
}
API wnc_result ncclBroadcast(const void *send, void *recv, size_t count, wnc_type type, int root, WNC_ON)
{
  OP(EMU_BROADCAST, 0, root, send, recv);
}
API wnc_result ncclAllReduce(const void *send, void *recv, size_t count, wnc_type type, wnc_op op, WNC_ON)
{
  OP(EMU_ALL_REDUCE, op, 0, send, recv);
}
API wnc_result ncclReduceScatter(const void *send, void *recv, size_t count, wnc_type type, wnc_op op, WNC_ON)
{
  OP(EMU_REDUCE_SCATTER, op, 0, send, recv);
}
API wnc_result ncclAllGather(const void *send, void *recv, size_t count, wnc_type type, WNC_ON)
{
  OP(EMU_ALL_GATHER, 0, 0, send, recv);
}
API wnc_result ncclAlltoAll(const void *send, void *recv, size_t count, wnc_type type, WNC_ON)
{
  OP(EMU_ALL_TO_ALL, 0, 0, send, recv);
}
API wnc_result ncclGather(const void *send, void *recv, size_t count, wnc_type type, int root, WNC_ON)
{
  OP(EMU_GATHER, 0, root, send, recv);
}
API wnc_result ncclScatter(const void *send, void *recv, size_t count, wnc_type type, int root, WNC_ON)
{
  OP(EMU_SCATTER, 0, root, send, recv);
}
API wnc_result ncclSend(const void *send, size_t count, wnc_type type, int peer, WNC_ON)
{
  OP(EMU_SEND, 0, peer, send, NULL);
}
API wnc_result ncclRecv(void *recv, size_t count, wnc_type type, int peer, WNC_ON)
{
  OP(EMU_RECV, 0, peer, NULL, recv);
}

API wnc_result ncclGroupStart(void)
{
  ENTER();
  if (group.depth++ == 0) group.error = WNC_Success, group.count = group.inits = 0;
  return WNC_Success;
}

API wnc_result ncclGroupEnd(void)
{
  wnc_result result = WNC_Success;
  int fault = weft_emu_fault(__func__);

  if (fault) spoil_group(fault); /* the group ends all the same */
  if (group.depth == 0) return misuse(WNC_InvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--group.depth > 0) return (wnc_result)fault;
  if (group.error) return end_group(group.error); /* a group is queued as a whole, or not at all */
  for (size_t i = 0; i < group.inits && !result; i++)
    result = group.comms[i]->blocking ? meet_now(group.comms[i]) : WNC_InProgress;
  return end_group(group.inits ? result : queue_all(group.ops, group.count));
}

API wnc_result ncclGroupSimulateEnd(void *info)
{
  (void)info;
  ENTER();
  if (group.depth == 0) return misuse(WNC_InvalidUsage, "ncclGroupSimulateEnd without ncclGroupStart");
  group.depth--;
  return group.depth ? group.error : end_group(group.error);
}
