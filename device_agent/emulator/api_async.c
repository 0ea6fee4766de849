/* Asynchronous execution: ANeuralNetworksExecution_startCompute and the form with dependencies. */
#include <stdlib.h>

#include "emulator.h"

/* The task of an asynchronous run's thread, which frees it. */
struct task {
  ANeuralNetworksExecution *execution;
  ANeuralNetworksEvent *event;
  uint64_t duration; /* limit of the run, 0: none */
  uint32_t n_dependencies;
  ANeuralNetworksEvent *dependencies[]; /* shared */
};

static void free_task(struct task *task) {
  for (uint32_t i = 0; i < task->n_dependencies; i++) {
    np_event_release(task->dependencies[i]);
  }
  free(task);
}

static void *run_task(void *argument) {
  struct task *task = argument;
  ANeuralNetworksEvent *event = task->event;
  int result = ANEURALNETWORKS_NO_ERROR;
  const uint64_t before = np_clock_now();
  for (uint32_t i = 0; i < task->n_dependencies; i++) {
    const int waited = np_event_wait(task->dependencies[i]);
    if (result == ANEURALNETWORKS_NO_ERROR) {
      result = waited;
    }
  }
  task->execution->waited_ns = np_clock_now() - before;
  if (result == ANEURALNETWORKS_NO_ERROR) {
    result = np_execution_run(task->execution, false, task->duration);
  } else {
    np_execution_abandon(task->execution, result);
  }
  free_task(task);
  np_event_signal(event, result); /* after this the execution may be freed */
  np_event_release(event);
  return NULL;
}

/* Starts a detached thread for a task. OUT_OF_MEMORY if that is not possible. */
static int start(struct task *task) {
  pthread_attr_t detached;
  pthread_t thread;
  if (pthread_attr_init(&detached) != 0) {
    return NP_REFUSE(OUT_OF_MEMORY, "no thread");
  }
  int failed = pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
  if (!failed) {
    failed = pthread_create(&thread, &detached, run_task, task);
  }
  pthread_attr_destroy(&detached);
  return failed ? NP_REFUSE(OUT_OF_MEMORY, "no thread") : ANEURALNETWORKS_NO_ERROR;
}

/* Frees an event that no one else has seen; NULL is allowed. */
static void abandon(ANeuralNetworksEvent *event) {
  if (!event) {
    return;
  }
  atomic_store(&event->owners, 1);
  np_event_release(event);
}

/* How an execution is started. */
struct start {
  const ANeuralNetworksEvent *const *dependencies; /* [n] */
  uint32_t n;
  uint64_t duration;
  bool fenced; /* the event has a fence */
};

static int start_compute(ANeuralNetworksExecution *execution, const struct start *how,
                         ANeuralNetworksEvent **event) {
  const uint32_t n = how->n;
  struct task *task = malloc(sizeof *task + n * sizeof task->dependencies[0]);
  /* Three share it: the caller's handle, the execution and the thread. */
  ANeuralNetworksEvent *made = np_event_new(3, how->fenced);
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
  *task = (struct task){execution, made, how->duration, n};
  for (uint32_t i = 0; i < n; i++) {
    /* Sharing changes only the count of owners; the API takes dependencies as const. */
    task->dependencies[i] = (ANeuralNetworksEvent *)(uintptr_t)how->dependencies[i];
    atomic_fetch_add(&task->dependencies[i]->owners, 1);
  }
  if (execution->event) { /* from its previous run */
    np_event_release(execution->event);
  }
  execution->event = made;
  code = start(task);
  if (code == ANEURALNETWORKS_NO_ERROR) {
    *event = made;
    return code;
  }
  free_task(task);
  execution->event = NULL;
  np_execution_abandon(execution, code);
  abandon(made);
  return code;
}

int ANeuralNetworksExecution_startCompute(ANeuralNetworksExecution *execution,
                                          ANeuralNetworksEvent **event) {
  if (event) {
    *event = NULL;
  }
  if (!execution || !event) {
    return NP_REFUSE(UNEXPECTED_NULL, "execution or event is NULL");
  }
  const struct start how = {0};
  return start_compute(execution, &how, event);
}

/* Returns BAD_DATA if the model leaves an output's dimensions open: code that waits for a fence
 * cannot query them. */
static int check_output_shapes(const ANeuralNetworksExecution *execution, const char *function) {
  const ANeuralNetworksModel *model = execution->compilation->model;
  for (uint32_t i = 0; i < model->graph.n_outputs; i++) {
    if (execution->outputs[i].kind == NP_ARGUMENT_GIVEN &&
        np_has_unknown_dims(&model->declared[model->graph.outputs[i]])) {
      return np_refuse(ANEURALNETWORKS_BAD_DATA, function, "output %u has unknown dimensions", i);
    }
  }
  return ANEURALNETWORKS_NO_ERROR;
}

/* Waits for the dependencies in the execution's own thread. If one fails, the execution does not
 * run and its event returns that result. `duration` starts after the last dependency and requires
 * one named device. The event has a fence, see emulator.h. */
int ANeuralNetworksExecution_startComputeWithDependencies(
    ANeuralNetworksExecution *execution, const ANeuralNetworksEvent *const *dependencies,
    uint32_t num_dependencies, uint64_t duration, ANeuralNetworksEvent **event) {
  if (event) {
    *event = NULL;
  }
  if (!execution || !event || (num_dependencies != 0 && !dependencies)) {
    return NP_REFUSE(UNEXPECTED_NULL, "execution, dependencies or event is NULL");
  }
  for (uint32_t i = 0; i < num_dependencies; i++) {
    if (!dependencies[i]) {
      return NP_REFUSE(UNEXPECTED_NULL, "dependency %u is NULL", i);
    }
  }
  const int state = atomic_load(&execution->state);
  if (state != NP_PREPARING && (state != NP_COMPLETED || !execution->reusable)) {
    return NP_REFUSE(BAD_STATE, "the execution was started before");
  }
  if (duration != 0 && !np_single_device(execution->compilation)) {
    return NP_REFUSE(BAD_DATA, "a duration needs createForDevices with one device");
  }
  const int code = check_output_shapes(execution, __func__);
  if (code != ANEURALNETWORKS_NO_ERROR) {
    return code;
  }
  const struct start how = {dependencies, num_dependencies, duration, true};
  return start_compute(execution, &how, event);
}
