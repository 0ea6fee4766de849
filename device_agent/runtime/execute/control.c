/* IF and WHILE: kernels that run models with executors of their own.
 *
 * The shapes and values of the results are known only once a model has run, so infer runs it and
 * keeps the results, and run copies them. */
#include <stdlib.h>
#include <string.h>

#include "execute/np_clock.h"
#include "execute/np_execute.h"

/* The value of ANeuralNetworks_getDefaultLoopTimeout. */
#define DEFAULT_LOOP_TIMEOUT_NS UINT64_C(2000000000)

struct control {
  struct np_executor *models[2]; /* then and else, or condition and body */
  struct np_buffer *values;      /* [n_values] of IF: its outputs; of WHILE: the loop's variables */
  struct np_buffer *results;     /* [n_values] results lent by a model's run */
  struct np_block *kept;         /* [n_values] WHILE: variables that an iteration has written */
  uint32_t n_values;
};

/* Returns the number of inputs before those passed to the models. */
static uint32_t n_leading(const struct np_call *call) {
  return call->operation->code == ANEURALNETWORKS_IF ? 3u : 2u;
}

static const struct np_graph *model_of(const struct np_call *call, uint32_t which) {
  const uint32_t input = call->operation->code == ANEURALNETWORKS_IF ? which + 1 : which;
  return np_in_operand(call, input)->value;
}

static void control_release(void *state) {
  struct control *control = state;
  np_executor_free(control->models[0]);
  np_executor_free(control->models[1]);
  for (uint32_t i = 0; control->kept != NULL && i < control->n_values; i++) {
    np_block_free(&control->kept[i]);
  }
  free(control->values);
  free(control->results);
  free(control->kept);
  free(control);
}

static enum np_status control_prepare(const struct np_call *call, void **state) {
  struct control *control = calloc(1, sizeof *control);
  if (control == NULL) {
    return np_fail(call, NP_NO_MEMORY, "no memory");
  }
  *state = control;
  const uint32_t n_inputs = call->operation->n_inputs - n_leading(call);
  const uint32_t n_outputs = model_of(call, 1)->n_outputs;
  control->n_values = n_inputs > n_outputs ? n_inputs : n_outputs;
  control->values = calloc(control->n_values, sizeof *control->values);
  control->results = calloc(control->n_values, sizeof *control->results);
  control->kept = calloc(control->n_values, sizeof *control->kept);
  if (control->values == NULL || control->results == NULL || control->kept == NULL) {
    return np_fail(call, NP_NO_MEMORY, "no memory for %u values", control->n_values);
  }
  for (uint32_t i = 0; i < 2; i++) {
    NP_TRY(np_executor_create(model_of(call, i), call->options, &control->models[i], call->why));
  }
  return NP_OK;
}

/* Fills values with the inputs that the operation passes on. */
static void pass_inputs(const struct np_call *call, struct np_buffer *values) {
  const uint32_t first = n_leading(call);
  for (uint32_t i = first; i < call->operation->n_inputs; i++) {
    const struct np_tensor *tensor = np_in(call, i);
    struct np_buffer *value = &values[i - first];
    *value = (struct np_buffer){.data = (void *)(uintptr_t)tensor->data,
                                .length = np_tensor_bytes(tensor),
                                .rank = tensor->rank,
                                .omitted = tensor->omitted};
    memcpy(value->dims, tensor->dims, sizeof value->dims);
  }
}

/* Gives the operation's outputs the shapes of the values. */
static enum np_status set_shapes(const struct np_call *call, const struct np_buffer *values) {
  for (uint32_t i = 0; i < call->operation->n_outputs; i++) {
    NP_TRY(np_set_shape(call, i, values[i].rank, values[i].dims));
  }
  return NP_OK;
}

static enum np_status copy_values(const struct np_call *call, const struct np_buffer *values) {
  for (uint32_t i = 0; i < call->operation->n_outputs; i++) {
    const struct np_tensor *tensor = np_out(call, i);
    if (tensor->elements > 0) {
      memcpy(tensor->room, values[i].data, np_tensor_bytes(tensor));
    }
  }
  return NP_OK;
}

/* The value of a BOOL8 tensor of one element. */
static enum np_status read_condition(const struct np_call *call, const void *data, size_t length,
                                     int *value) {
  if (data == NULL || length != 1) {
    return np_fail(call, NP_RUN_FAILED, "a condition of %zu elements, wanted 1", length);
  }
  *value = *(const unsigned char *)data != 0;
  return NP_OK;
}

static enum np_status if_infer(const struct np_call *call) {
  struct control *control = call->state;
  const struct np_tensor *condition = np_in(call, 0);
  int holds = 0;
  NP_TRY(read_condition(call, condition->data, condition->elements, &holds));
  pass_inputs(call, control->values);
  NP_TRY(np_executor_run_lent(control->models[holds ? 0 : 1], control->values, control->results,
                              call->limits, call->why));
  return set_shapes(call, control->results);
}

static enum np_status if_run(const struct np_call *call) {
  const struct control *control = call->state;
  return copy_values(call, control->results);
}

/* Copies the body's lent results to the loop's variables, since the next run reuses its memory. */
static enum np_status keep_results(struct control *control, uint32_t n, struct np_message *why) {
  for (uint32_t i = 0; i < n; i++) {
    const struct np_buffer *result = &control->results[i];
    NP_TRY(np_block_grow(&control->kept[i], np_add_saturated(result->length, NP_TAIL), why));
    if (result->length > 0) {
      memcpy(control->kept[i].start, result->data, result->length);
    }
    control->values[i] = *result;
    control->values[i].data = control->kept[i].start;
  }
  return NP_OK;
}

static enum np_status while_infer(const struct np_call *call) {
  struct control *control = call->state;
  const uint64_t asked = call->limits != NULL ? call->limits->loop_timeout_ns : 0;
  const uint64_t end = np_monotonic_ns() + (asked != 0 ? asked : DEFAULT_LOOP_TIMEOUT_NS);
  const uint32_t n = model_of(call, 1)->n_outputs;
  pass_inputs(call, control->values);
  for (;;) {
    int holds = 0;
    NP_TRY(np_executor_run_lent(control->models[0], control->values, control->results, call->limits,
                                call->why));
    NP_TRY(read_condition(call, control->results[0].data, control->results[0].length, &holds));
    if (!holds) {
      return set_shapes(call, control->values);
    }
    if (np_monotonic_ns() >= end) {
      return np_fail(call, NP_DEADLINE, "the loop has not ended within its timeout");
    }
    NP_TRY(np_executor_run_lent(control->models[1], control->values, control->results, call->limits,
                                call->why));
    NP_TRY(keep_results(control, n, call->why));
  }
}

static enum np_status while_run(const struct np_call *call) {
  const struct control *control = call->state;
  return copy_values(call, control->values);
}

const struct np_kernel np_kernel_IF = {.shapes_at_run = 1,
                                       .infer = if_infer,
                                       .prepare = control_prepare,
                                       .release = control_release,
                                       .run = if_run};
const struct np_kernel np_kernel_WHILE = {.shapes_at_run = 1,
                                          .infer = while_infer,
                                          .prepare = control_prepare,
                                          .release = control_release,
                                          .run = while_run};
