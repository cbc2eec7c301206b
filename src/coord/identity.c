/* coord/identity.c -- which connection speaks for a task.
 *
 * A task speaks through one connection: the one that registered it or, after that connection has ended, one that
 * knows the incarnation that was registered. A connection may speak for several tasks, since clients in one process
 * may share it. So a member of the job cannot speak in another task's name by mistake, nor on purpose over its own
 * connection while the other task is connected. */
#include <config.h>

#include <inttypes.h>

#include "coord/service_internal.h"
#include "coord/wire/codec.h"

void coord_task_speaks(coord_task *task, coord_caller *caller)
{
  if (task->speaker == caller) return;
  if (task->speaker) DL_DELETE2(task->speaker->tasks, task, prev_spoken, next_spoken);
  task->speaker = caller;
  task->silent_since_ns = 0;
  if (caller) DL_APPEND2(caller->tasks, task, prev_spoken, next_spoken);
}

void coord_service_caller_gone(coord_service *service, int64_t now_ns, coord_caller *caller)
{
  (void)service;
  while (caller->tasks) {
    coord_task *task = caller->tasks;
    coord_task_speaks(task, NULL);
    task->silent_since_ns = now_ns;
  }
}

bool coord_is_spoken_elsewhere(const coord_task *task, const coord_request *request)
{
  return request->caller && task->speaker && task->speaker != request->caller;
}

static bool is_in_a_tasks_name(coord_method method)
{
  switch (method) {
  case COORD_HEARTBEAT:
  case COORD_POLL_FOR_ERROR:
  case COORD_REPORT_ERROR:
  case COORD_SHUTDOWN_TASK:
  case COORD_RESET_TASK:
  case COORD_BARRIER:
  case COORD_CANCEL_BARRIER:
  case COORD_GET_ALIVE_TASKS: return true;
  default: return false; /* registration has rules of its own */
  }
}

weft_status *coord_check_identity(const coord_service *service, const coord_request *request)
{
  coord_task *task = coord_service_task(service, request->task);
  bool knows;

  if (!request->caller || !task || !is_in_a_tasks_name(request->method) || task->speaker == request->caller)
    return NULL;
  knows = request->incarnation != 0 && request->incarnation == task->incarnation;
  if (knows && (!task->speaker || !request->caller->tasks))
    coord_task_speaks(task, request->caller); /* the task has connected again */
  if (!coord_is_spoken_elsewhere(task, request)) return NULL;
  return COORD_ERR(PERMISSION_DENIED, "%s in the name of task %" PRId32 ", which has another connection",
                   coord_method_name(request->method), request->task);
}

int32_t coord_request_owner(const coord_service *service, const coord_request *request)
{
  return request->caller && request->caller->tasks ? (int32_t)(request->caller->tasks - service->tasks)
                                                   : service->config.task_count;
}
