/* Runs an executor whose shapes are known: its steps one after the other. */
#include "execute/np_clock.h"
#include "execute/np_execute.h"

/* Restores the static shapes after a dynamic run. */
static enum np_status settle(struct np_executor *executor, struct np_message *why) {
  NP_TRY(np_reset_tensors(executor, why));
  for (uint32_t o = 0; o < executor->graph->n_operations; o++) {
    struct np_call *call = &executor->calls[o];
    call->why = why;
    call->scratch = executor->scratch.start;
    NP_TRY(call->kernel->infer(call));
  }
  for (uint32_t i = 0; i < executor->graph->n_operands; i++) {
    if (executor->placed[i]) {
      executor->tensors[i].room = executor->arena.start + executor->offsets[i];
    }
  }
  executor->settled = 1;
  return NP_OK;
}

static enum np_status run_steps(struct np_executor *executor, const struct np_limits *limits,
                                struct np_message *why) {
  for (uint32_t s = 0; s < executor->plan.n_steps; s++) {
    const struct np_step *step = &executor->plan.steps[s];
    NP_TRY(np_check_deadline(limits, why));
    for (uint32_t k = 0; k < step->region.n_operations; k++) {
      executor->calls[step->region.operations[k]].limits = limits;
    }
    NP_TRY(step->backend->run(&step->region, step->state, why));
    for (uint32_t i = 0; i < step->region.n_outputs; i++) {
      struct np_tensor *tensor = &executor->tensors[step->region.outputs[i]];
      tensor->data = tensor->room;
    }
  }
  return NP_OK;
}

static int leaves_out(const struct np_graph *graph, const struct np_buffer *inputs) {
  for (uint32_t i = 0; i < graph->n_inputs; i++) {
    if (inputs[i].omitted) {
      return 1;
    }
  }
  return 0;
}

enum np_status np_executor_run(struct np_executor *executor, const struct np_buffer *inputs,
                               struct np_buffer *outputs, const struct np_limits *limits,
                               uint32_t *output_too_small, struct np_message *why) {
  const struct np_graph *graph = executor->graph;
  *output_too_small = UINT32_MAX;
  if (!executor->is_static || leaves_out(graph, inputs)) {
    return np_run_dynamic(executor, inputs, outputs, 0, limits, output_too_small, why);
  }
  if (!executor->settled) {
    NP_TRY(settle(executor, why));
  }
  NP_TRY(np_bind_inputs(executor, inputs, why));
  for (uint32_t i = 0; i < graph->n_outputs; i++) {
    if (!np_bind_output(executor, i, &outputs[i], *output_too_small == UINT32_MAX ? why : NULL) &&
        *output_too_small == UINT32_MAX) {
      *output_too_small = i;
    }
  }
  if (*output_too_small != UINT32_MAX) {
    return NP_BAD_ARGUMENT;
  }
  NP_TRY(np_lend(executor, 1, why));
  NP_TRY(run_steps(executor, limits, why));
  np_give_back(executor, outputs);
  return NP_OK;
}

enum np_status np_executor_run_lent(struct np_executor *executor, const struct np_buffer *inputs,
                                    struct np_buffer *outputs, const struct np_limits *limits,
                                    struct np_message *why) {
  const struct np_graph *graph = executor->graph;
  uint32_t too_small;
  for (uint32_t i = 0; i < graph->n_outputs; i++) {
    outputs[i] = (struct np_buffer){.omitted = 1}; /* then np_lend makes room */
  }
  if (!executor->is_static || leaves_out(graph, inputs)) {
    return np_run_dynamic(executor, inputs, outputs, 1, limits, &too_small, why);
  }
  if (!executor->settled) {
    NP_TRY(settle(executor, why));
  }
  NP_TRY(np_bind_inputs(executor, inputs, why));
  for (uint32_t i = 0; i < graph->n_outputs; i++) {
    (void)np_bind_output(executor, i, &outputs[i], why);
  }
  NP_TRY(np_lend(executor, 1, why));
  NP_TRY(run_steps(executor, limits, why));
  for (uint32_t i = 0; i < graph->n_outputs; i++) {
    const struct np_tensor *tensor = &executor->tensors[graph->outputs[i]];
    outputs[i].omitted = 0;
    outputs[i].data = tensor->room;
    outputs[i].length = np_tensor_bytes(tensor);
  }
  return NP_OK;
}
