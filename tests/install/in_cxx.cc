// in_cxx.cc -- the installed headers and library in C++: a service, an agent that joins it, and two ranks of a communicator that
// meet in the agent's keys.  Prints what the ranks got.
#include <cstdio>
#include <cstring>

#include <weft/collective.h>
#include <weft/coord.h>
#include <weft/pjrt_extensions.h>
#include <weft/xla_ffi.h>

static weft_status *join(weft_coord_service **service, weft_coord_agent **agent)
{
  weft_coord_service_options served;
  weft_coord_agent_options joining;

  WEFT_TRY(weft_coord_service_options_load(&served));
  served.address = "127.0.0.1:0";
  served.task_count = 1;
  WEFT_TRY(weft_coord_service_start(&served, service));
  WEFT_TRY(weft_coord_agent_options_load(&joining));
  joining.address = weft_coord_service_address(*service);
  WEFT_TRY(weft_coord_agent_new(&joining, agent));
  WEFT_TRY_NOTE(weft_coord_agent_connect(*agent), "joining %s", joining.address);
  return nullptr;
}

static weft_status *sum(weft_kv *kv, const int32_t *mine, int32_t *sums)
{
  static const int ranks[] = {0, 1};
  static const atomic_bool cancel{false};
  weft_comm *comms[2] = {};
  weft_event *events[2] = {};
  weft_status *first = nullptr;
  weft_comm_spec spec{};

  spec.kv = kv;
  spec.name = "in_cxx";
  spec.size = spec.rank_count = WEFT_COUNT(ranks);
  spec.ranks = ranks;
  spec.cancel = &cancel;
  WEFT_TRY(weft_comm_create(&spec, comms));
  for (int r : ranks) {
    weft_coll_op op{};
    weft_coll_call call{};
    op.kind = WEFT_ALL_REDUCE;
    op.dtype = WEFT_S32;
    op.reduction = WEFT_SUM;
    op.send = &mine[r];
    op.recv = &sums[r];
    op.count = 1;
    call.deadline = weft_deadline_min(WEFT_NO_DEADLINE, weft_deadline_after_ms(30000));
    if (!first) first = weft_coll_post(comms[r], &op, &call, &events[r]);
  }
  for (int r : ranks) {
    if (!first) first = weft_coll_wait(comms[r], events[r]);
  }
  for (int r : ranks) {
    weft_event_release(events[r]);
    weft_comm_destroy(comms[r]);
  }
  return first;
}

static weft_status *run()
{
  const int32_t mine[2] = {40, 2};
  int32_t sums[2] = {};
  WEFT_AUTO(weft_coord_service) service = nullptr;
  WEFT_AUTO(weft_coord_agent) agent = nullptr;
  WEFT_AUTO(weft_kv) kv = nullptr;

  WEFT_TRY(join(&service, &agent));
  WEFT_TRY(weft_coord_agent_kv(agent, &kv));
  WEFT_TRY(sum(kv, mine, sums));
  std::printf("%d %d of %zu options\n", sums[0], sums[1], weft_coord_agent_option_table.count);
  return weft_coord_agent_shutdown(agent);
}

int main()
{
  WEFT_AUTO(weft_status) error = run();
  if (error) std::fprintf(stderr, "%s\n", weft_status_text(error, true));
  return error != nullptr;
}
