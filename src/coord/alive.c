/* coord/alive.c -- which tasks are alive: one round for each set of tasks, whose answer is the same for all callers. */
#include <config.h>

#include <stdlib.h>
#include <string.h>

#include "coord/service_internal.h"

static int compare_tasks(const void *a, const void *b)
{
  int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

  return (x > y) - (x < y);
}

const int32_t *coord_task_set(coord_service *service, const int32_t *tasks, size_t count, int32_t *out_count)
{
  bool ascending = true;
  int32_t *sorted;
  size_t n = 0;

  for (size_t i = 1; i < count && ascending; i++) ascending = tasks[i - 1] < tasks[i];
  *out_count = (int32_t)count;
  if (ascending) return tasks;
  sorted = WEFT_ARENA_ARRAY(&service->scratch, int32_t, count);
  if (!sorted) return NULL;
  memcpy(sorted, tasks, count * sizeof *tasks);
  qsort(sorted, count, sizeof *sorted, compare_tasks);
  for (size_t i = 0; i < count; i++)
    if (i == 0 || sorted[i] != sorted[i - 1]) sorted[n++] = sorted[i];
  *out_count = (int32_t)n;
  return sorted;
}

static bool is_alive(const coord_service *service, int32_t task)
{
  const coord_task *t = coord_service_task(service, task);

  return t && t->state == COORD_TASK_CONNECTED;
}

static const int32_t *find_member(const coord_round *round, int32_t task)
{
  return bsearch(&task, round->tasks, (size_t)round->count, sizeof task, compare_tasks);
}

static coord_round *round_new(coord_service *service, const int32_t *tasks, int32_t count)
{
  size_t n = (size_t)count, bytes = sizeof(coord_round) + n * sizeof(int32_t) + n * sizeof(bool);
  coord_round *round;

  if (!coord_budget_take(service->config.budget, bytes)) return NULL;
  round = calloc(1, bytes);
  if (!round) {
    coord_budget_give(service->config.budget, bytes);
    return NULL;
  }
  round->charged_bytes = bytes;
  round->count = count;
  round->present = (bool *)(round->tasks + n);
  memcpy(round->tasks, tasks, n * sizeof *tasks);
  for (int32_t i = 0; i < count; i++) round->pending += is_alive(service, tasks[i]);
  HASH_ADD(hh, service->rounds, tasks, n * sizeof(int32_t), round);
  if (round->hh.tbl) return round;
  coord_budget_give(service->config.budget, bytes);
  free(round);
  return NULL;
}

static void round_free(coord_service *service, coord_round *round)
{
  HASH_DEL(service->rounds, round);
  coord_budget_give(service->config.budget, round->charged_bytes);
  free(round);
}

static void mark_present(const coord_service *service, coord_round *round, int32_t task)
{
  bool *present = &round->present[find_member(round, task) - round->tasks];

  if (!*present && is_alive(service, task)) round->pending--;
  *present = true;
}

/* Answers all callers of the round with the same list, which is encoded once. */
static void round_answer(coord_service *service, coord_round *round)
{
  int32_t *tasks = WEFT_ARENA_ARRAY(&service->scratch, int32_t, round->count);
  uint64_t *incarnations = WEFT_ARENA_ARRAY(&service->scratch, uint64_t, round->count);
  coord_reply reply = {.tasks = tasks, .incarnations = incarnations, .share = ++service->last_share};
  weft_status *st = tasks && incarnations ? NULL : COORD_ERR(RESOURCE_EXHAUSTED, "out of memory");

  for (int32_t i = 0; i < round->count && !st; i++) {
    if (!is_alive(service, round->tasks[i])) continue;
    tasks[reply.task_count] = round->tasks[i];
    incarnations[reply.task_count++] = service->tasks[round->tasks[i]].incarnation;
  }
  while (round->calls) coord_answer(service, round->calls, &reply, st);
  weft_status_free(st);
  round_free(service, round);
}

void coord_alive_handle(coord_service *service, const coord_request *request, coord_call *call)
{
  int32_t count;
  const int32_t *tasks = coord_task_set(service, request->tasks, request->task_count, &count);
  coord_round *round = NULL;

  if (!tasks && request->task_count > 0)
    return coord_answer_free(service, call, COORD_ERR(RESOURCE_EXHAUSTED, "out of memory"));
  if (!tasks || !bsearch(&request->task, tasks, (size_t)count, sizeof *tasks, compare_tasks))
    return coord_answer_free(
      service, call,
      COORD_ERR(INVALID_ARGUMENT, "GetAliveTasks: task %d asks about tasks without itself", request->task));
  HASH_FIND(hh, service->rounds, tasks, (size_t)count * sizeof *tasks, round);
  if (!round) round = round_new(service, tasks, count);
  if (!round)
    return coord_answer_free(service, call, COORD_ERR(RESOURCE_EXHAUSTED, "the service's memory limit is reached"));
  coord_hold(service, call, COORD_HELD_ALIVE, round, &round->calls);
  mark_present(service, round, request->task);
  if (round->pending == 0) round_answer(service, round);
}

void coord_alive_drop(coord_service *service, coord_call *call)
{
  coord_round *round = call->holder;

  DL_DELETE(round->calls, call);
  service->liveness_changed = true; /* it may have been the task's only call */
}

void coord_alive_settle(coord_service *service)
{
  coord_round *round, *next_round;
  coord_call *call;

  service->liveness_changed = false;
  HASH_ITER(hh, service->rounds, round, next_round) {
    if (!round->calls) {
      round_free(service, round);
      continue;
    }
    memset(round->present, 0, (size_t)round->count * sizeof *round->present);
    round->pending = 0;
    for (int32_t i = 0; i < round->count; i++) round->pending += is_alive(service, round->tasks[i]);
    DL_FOREACH(round->calls, call) mark_present(service, round, call->task);
    if (round->pending == 0) round_answer(service, round);
  }
}

void coord_alive_stop(coord_service *service)
{
  coord_round *round, *next_round;

  HASH_ITER(hh, service->rounds, round, next_round) {
    while (round->calls)
      coord_answer_free(service, round->calls, COORD_ERR(CANCELLED, "GetAliveTasks: the service is shutting down"));
    round_free(service, round);
  }
}
