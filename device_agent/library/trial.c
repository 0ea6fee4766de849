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
  const char *library;    /* to be opened, where nnapi is NULL */
  struct np_nnapi *nnapi; /* the child's own, where it was not there */
  const struct np_trial_part *parts;
  uint32_t n;
  uint32_t first;                    /* part that the child begins with */
  struct np_turns *turns;            /* shared with the parent: the opening, then each part */
  struct np_trial_verdict *verdicts; /* shared: of the opening, then of parts[n] */
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
static enum np_status compile_and_run(struct np_nnapi *nnapi, const struct np_trial_part *part,
                                      struct np_fault *fault, int *has_compiled) {
  const struct np_engine engine = np_nnapi_engine(nnapi);
  const struct np_graph *graph = &part->model->graph;
  struct np_compiled *compiled = NULL;
  const enum np_status status =
      engine.compile(engine.ctx, part->model, &part->options, &compiled, fault);
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

static int try(void *ctx, struct np_link *link) {
  struct trial *trial = ctx;
  if (!trial->nnapi) {
    struct np_fault fault = {.has_code = 0};
    const enum np_status status = np_nnapi_open(trial->library, &trial->nnapi, &fault.why);
    const nnp_cause cause =
        status == NP_MISSING ? NNP_NO_LIBRARY : np_fallback_cause(status, &fault, 0);
    *trial->verdicts = (struct np_trial_verdict){cause, status, fault};
  }
  np_link_reach(link);
  for (uint32_t i = trial->first; i < trial->n && trial->nnapi; i++) {
    struct np_fault fault = {.has_code = 0};
    int has_compiled = 0;
    const enum np_status status =
        compile_and_run(trial->nnapi, &trial->parts[i], &fault, &has_compiled);
    trial->verdicts[1 + i] =
        (struct np_trial_verdict){np_fallback_cause(status, &fault, has_compiled), status, fault};
    np_link_reach(link);
  }
  return 0;
}

/* What became of a child that did not tell itself. */
static void judge(enum np_event event, const struct np_outcome *outcome, uint32_t limit_ms,
                  struct np_trial_verdict *verdict) {
  *verdict = (struct np_trial_verdict){.cause = NNP_NO_CAUSE};
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
  } else {
    np_message_set(why, "a trial ended the process of its own with code %d", outcome->exit_code);
    *verdict = (struct np_trial_verdict){NNP_CRASHED, NP_RUN_FAILED, {.why = *why}};
  }
}

static struct np_watch watch_of(uint64_t limit_ns) {
  const uint64_t limit_ms = (limit_ns ? limit_ns : USUAL_LIMIT_NS) / NS_PER_MS + 1;
  const int64_t available_kb = np_memory_available_kb();
  return (struct np_watch){.timeout_ms = limit_ms > UINT32_MAX ? UINT32_MAX : (uint32_t)limit_ms,
                           .reader_fd = -1,
                           .memory_kb = available_kb < 0 ? -1 : available_kb / 4 * 3};
}

/* Waits for the child to tell a verdict at each turn; how many it told, and why no more of `n`. */
static uint32_t follow(struct trial *trial, struct np_child *child, uint32_t n,
                       const struct np_watch *watch, enum np_event *event) {
  for (uint32_t told = 0; told < n; told++) {
    *event = np_child_wait(child, told + 1, watch);
    const uint32_t reached = __atomic_load_n(&trial->turns->reached, __ATOMIC_ACQUIRE);
    if (*event != NP_EVENT_REACHED && reached <= told) {
      return told;
    }
  }
  return n;
}

/* A child for the parts from `first` on; how many of all have a verdict then. `opening` is NULL
 * where that was told by another child. */
static uint32_t try_from(struct trial *trial, const struct np_watch *watch,
                         struct np_trial_verdict *opening, struct np_trial_verdict *verdicts) {
  const uint32_t first = trial->first;
  struct np_trial_verdict *next = opening ? opening : &verdicts[first];
  struct np_child child;
  struct np_outcome outcome = {0};
  struct np_message why = {""};
  enum np_event event = NP_EVENT_REACHED;
  *trial->turns = (struct np_turns){0, 0};
  enum np_status status = np_child_start(try, trial, trial->turns, &child, &why);
  uint32_t told = 0;
  if (status == NP_OK) {
    told = follow(trial, &child, 1 + trial->n - first, watch, &event);
    status = np_child_end(&child, &outcome, &why);
  }
  if (status != NP_OK) {
    *next = (struct np_trial_verdict){NNP_NO_TRIAL, status, {.why = why}};
    return opening ? 0 : first + 1;
  }
  if (opening && told > 0) {
    *opening = *trial->verdicts; /* the child's, as are all that it told */
    opening->fault.why.text[sizeof opening->fault.why.text - 1] = 0;
    if (opening->status != NP_OK) {
      return 0;
    }
  }
  for (uint32_t i = 1; i < told; i++) {
    struct np_trial_verdict *verdict = &verdicts[first + i - 1];
    *verdict = trial->verdicts[first + i];
    verdict->fault.why.text[sizeof verdict->fault.why.text - 1] = 0;
  }
  if (told == 1 + trial->n - first) {
    return trial->n;
  }
  if (told > 0) {
    next = &verdicts[first + told - 1];
  }
  judge(event, &outcome, watch->timeout_ms, next);
  return opening && told == 0 ? 0 : (told > 0 ? first + told : first + 1);
}

void np_trial(const char *library, struct np_nnapi *nnapi, const struct np_trial_part *parts,
              uint32_t n, uint64_t limit_ns, struct np_trial_verdict *opening,
              struct np_trial_verdict *verdicts) {
  *opening = (struct np_trial_verdict){.cause = NNP_NO_TRIAL, .status = NP_NO_MEMORY};
  const size_t n_bytes =
      sizeof(struct np_turns) + (1 + (size_t)n) * sizeof(struct np_trial_verdict);
  struct np_trial_verdict *shared = np_shared_memory(n_bytes);
  if (!shared) {
    np_message_set(&opening->fault.why, "no memory for a trial in a process of its own");
    return;
  }
  struct trial trial = {.library = library,
                        .nnapi = nnapi,
                        .parts = parts,
                        .n = n,
                        .verdicts = shared,
                        .turns = (struct np_turns *)(void *)(shared + 1 + n)};
  const struct np_watch watch = watch_of(limit_ns);
  trial.first = try_from(&trial, &watch, opening, verdicts);
  while (opening->status == NP_OK && trial.first < n) {
    trial.first = try_from(&trial, &watch, NULL, verdicts);
  }
  np_shared_free(shared, n_bytes);
}
