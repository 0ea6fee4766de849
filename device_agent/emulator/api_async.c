/* Asynchronous execution: ANeuralNetworksExecution_startCompute and the form with dependencies. */
#include <stdlib.h>

#include "emulator.h"

/* What the thread of one asynchronous run works on; freed by it. */
struct task {
  ANeuralNetworksExecution *execution;
  ANeuralNetworksEvent *event;
  uint32_t n_dependencies;
  ANeuralNetworksEvent *dependencies[]; /* shared */
};

static void free_task(struct task *task) {
  for (uint32_t i = 0; i < task->n_dependencies; i++)
    np_event_release(task->dependencies[i]);
  free(task);
}

static void *run_task(void *argument) {
  struct task *task = argument;
  ANeuralNetworksEvent *event = task->event;
  int result = ANEURALNETWORKS_NO_ERROR;
  for (uint32_t i = 0; i < task->n_dependencies; i++) {
    const int waited = np_event_wait(task->dependencies[i]);
    if (result == ANEURALNETWORKS_NO_ERROR)
      result = waited;
  }
  if (result == ANEURALNETWORKS_NO_ERROR) {
    result = np_execution_run(task->execution, false);
  } else {
    task->execution->result = result;
    atomic_store(&task->execution->state, NP_COMPLETED);
  }
  free_task(task);
  np_event_signal(event, result); /* after this the execution may be gone */
  np_event_release(event);
  return NULL;
}

/* Starts a detached thread for a task. OUT_OF_MEMORY where there is none to be had. */
static int start(struct task *task) {
  pthread_attr_t detached;
  pthread_t thread;
  if (pthread_attr_init(&detached) != 0)
    return NP_REFUSE(OUT_OF_MEMORY, "no thread");
  int failed = pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
  if (!failed)
    failed = pthread_create(&thread, &detached, run_task, task);
  pthread_attr_destroy(&detached);
  return failed ? NP_REFUSE(OUT_OF_MEMORY, "no thread") : ANEURALNETWORKS_NO_ERROR;
}

/* Frees an event that no one else has seen; NULL is allowed. */
static void abandon(ANeuralNetworksEvent *event) {
  if (!event)
    return;
  atomic_store(&event->owners, 1);
  np_event_release(event);
}

static int start_compute(ANeuralNetworksExecution *execution,
                         const ANeuralNetworksEvent *const *dependencies, uint32_t n,
                         ANeuralNetworksEvent **event) {
  *event = NULL;
  struct task *task = malloc(sizeof *task + n * sizeof task->dependencies[0]);
  /* Three share it: the caller's handle, the execution and the thread. */
  ANeuralNetworksEvent *made = np_event_new(3, -1);
  if (!task || !made) {
    free(task);
    abandon(made);
    return NP_REFUSE(OUT_OF_MEMORY, "no memory");
  }
  int code = np_execution_begin(execution, __func__);
  if (code != ANEURALNETWORKS_NO_ERROR) {
    free(task);
    abandon(made);
    return code;
  }
  *task = (struct task){execution, made, n};
  for (uint32_t i = 0; i < n; i++) {
    /* Sharing changes only the count of owners; the API takes dependencies as const. */
    task->dependencies[i] = (ANeuralNetworksEvent *)(uintptr_t)dependencies[i];
    atomic_fetch_add(&task->dependencies[i]->owners, 1);
  }
  execution->event = made;
  code = start(task);
  if (code == ANEURALNETWORKS_NO_ERROR) {
    *event = made;
    return code;
  }
  free_task(task);
  execution->event = NULL;
  execution->result = code;
  atomic_store(&execution->state, NP_COMPLETED);
  abandon(made);
  return code;
}

int ANeuralNetworksExecution_startCompute(ANeuralNetworksExecution *execution,
                                          ANeuralNetworksEvent **event) {
  if (!execution || !event)
    return NP_REFUSE(UNEXPECTED_NULL, "execution or event is NULL");
  return start_compute(execution, NULL, 0, event);
}

/* Waits for the dependencies in the execution's own thread; where one fails, the execution does not
 * run and its event gives that result. `duration` is not enforced, but needs one named device, as
 * on Android. */
int ANeuralNetworksExecution_startComputeWithDependencies(
    ANeuralNetworksExecution *execution, const ANeuralNetworksEvent *const *dependencies,
    uint32_t num_dependencies, uint64_t duration, ANeuralNetworksEvent **event) {
  if (!execution || !event || (num_dependencies != 0 && !dependencies)) {
    return NP_REFUSE(UNEXPECTED_NULL, "execution, dependencies or event is NULL");
  }
  for (uint32_t i = 0; i < num_dependencies; i++) {
    if (!dependencies[i])
      return NP_REFUSE(UNEXPECTED_NULL, "dependency %u is NULL", i);
  }
  if (duration != 0 && !np_single_device(execution->compilation)) {
    return NP_REFUSE(BAD_DATA, "a duration needs createForDevices with one device");
  }
  return start_compute(execution, dependencies, num_dependencies, event);
}
