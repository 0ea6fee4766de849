#define _POSIX_C_SOURCE 200809L

#include "trial.h"

#include <stdlib.h>
#include <string.h>

#include "supervise.h"
#include "sysinfo.h"

#define USUAL_LIMIT_NS UINT64_C(30000000000)
#define NS_PER_MS 1000000u

/* What the child does, and tells. */
struct trial {
  const char *library; /* to be opened, where nnapi is NULL */
  struct np_nnapi *nnapi;
  const struct np_model *model;
  const struct np_options *options;
  struct np_trial_verdict *verdict; /* shared with the parent */
};

static struct np_io *make_ios(const struct np_graph *graph, uint32_t n, const uint32_t *operands) {
  struct np_io *ios = calloc(n + (size_t)1, sizeof *ios);
  for (uint32_t i = 0; ios && i < n; i++) {
    const struct np_operand *operand = &graph->operands[operands[i]];
    const size_t n_bytes = np_operand_bytes(operand);
    ios[i] = (struct np_io){.n_bytes = n_bytes, .rank = operand->rank, .dims = operand->dims};
    if (posix_memalign(&ios[i].data, 64, n_bytes) != 0) {
      return NULL;
    }
    memset(ios[i].data, 0, n_bytes);
  }
  return ios;
}

/* In the child, whose end frees all memory. */
static enum np_status compile_and_run(const struct trial *trial, struct np_fault *fault,
                                      int *has_compiled) {
  const struct np_engine engine = np_nnapi_engine(trial->nnapi);
  const struct np_graph *graph = &trial->model->graph;
  struct np_compiled *compiled = NULL;
  const enum np_status status =
      engine.compile(engine.ctx, trial->model, trial->options, &compiled, fault);
  if (status != NP_OK) {
    return status;
  }
  *has_compiled = 1;
  const struct np_io *inputs = make_ios(graph, graph->n_inputs, graph->inputs);
  const struct np_io *outputs = make_ios(graph, graph->n_outputs, graph->outputs);
  if (!inputs || !outputs) {
    np_message_set(&fault->why, "no memory for inputs and outputs");
    return NP_NO_MEMORY;
  }
  return engine.run(compiled, inputs, outputs, fault);
}

static int try(void *ctx) {
  const struct trial *trial = ctx;
  struct np_trial_verdict *verdict = trial->verdict;
  struct np_fault fault = {.has_code = 0};
  int has_compiled = 0;
  if (trial->nnapi) {
    verdict->status = compile_and_run(trial, &fault, &has_compiled);
  } else {
    struct np_nnapi *opened = NULL;
    verdict->status = np_nnapi_open(trial->library, &opened, &fault.why);
  }
  verdict->fault = fault;
  verdict->cause = verdict->status == NP_MISSING && !trial->nnapi
                       ? NNP_NO_LIBRARY
                       : np_fallback_cause(verdict->status, &fault, has_compiled);
  return 0;
}

/* What became of the child that did not tell itself. */
static void judge(enum np_event event, const struct np_outcome *outcome, uint32_t limit_ms,
                  struct np_trial_verdict *verdict) {
  struct np_message *why = &verdict->fault.why;
  char text[32];
  if (event == NP_EVENT_LATE) {
    np_message_set(why, "a trial in a process of its own took longer than %u ms", limit_ms);
    *verdict = (struct np_trial_verdict){NNP_TOO_LATE, NP_DEADLINE, {.why = *why}};
  } else if (event == NP_EVENT_TOO_BIG) {
    np_message_set(why, "a trial in a process of its own wanted more memory than there is");
    *verdict = (struct np_trial_verdict){NNP_CRASHED, NP_RUN_FAILED, {.why = *why}};
  } else if (outcome->signal != 0) {
    np_message_set(why, "a trial in a process of its own crashed: %s",
                   np_signal_name(outcome->signal, text, sizeof text));
    *verdict = (struct np_trial_verdict){NNP_CRASHED, NP_RUN_FAILED, {.why = *why}};
  } else if (outcome->exit_code != 0) {
    np_message_set(why, "a trial ended the process of its own with code %d", outcome->exit_code);
    *verdict = (struct np_trial_verdict){NNP_CRASHED, NP_RUN_FAILED, {.why = *why}};
  } else {
    why->text[sizeof why->text - 1] = 0; /* it is the child's */
  }
}

static void make_trial(struct trial *trial, uint64_t limit_ns, struct np_trial_verdict *verdict) {
  *verdict = (struct np_trial_verdict){.cause = NNP_NO_TRIAL, .status = NP_NO_MEMORY};
  trial->verdict = np_shared_memory(sizeof *trial->verdict);
  if (!trial->verdict) {
    np_message_set(&verdict->fault.why, "no memory for a trial in a process of its own");
    return;
  }
  const uint64_t limit_ms = (limit_ns ? limit_ns : USUAL_LIMIT_NS) / NS_PER_MS + 1;
  const int64_t available_kb = np_memory_available_kb();
  const struct np_watch watch = {.timeout_ms =
                                     limit_ms > UINT32_MAX ? UINT32_MAX : (uint32_t)limit_ms,
                                 .reader_fd = -1,
                                 .memory_kb = available_kb < 0 ? -1 : available_kb / 4 * 3};
  enum np_event event;
  struct np_outcome outcome;
  struct np_message why = {""};
  const enum np_status status = np_supervise(try, trial, &watch, &event, &outcome, &why);
  if (status == NP_OK) {
    *verdict = *trial->verdict;
    judge(event, &outcome, watch.timeout_ms, verdict);
  } else {
    *verdict = (struct np_trial_verdict){NNP_NO_TRIAL, status, {.why = why}};
  }
  np_shared_free(trial->verdict, sizeof *trial->verdict);
}

void np_trial_open(const char *library, uint64_t limit_ns, struct np_trial_verdict *verdict) {
  struct trial trial = {.library = library};
  make_trial(&trial, limit_ns, verdict);
}

void np_trial_run(struct np_nnapi *nnapi, const struct np_model *model,
                  const struct np_options *options, uint64_t limit_ns,
                  struct np_trial_verdict *verdict) {
  struct trial trial = {.nnapi = nnapi, .model = model, .options = options};
  make_trial(&trial, limit_ns, verdict);
}
