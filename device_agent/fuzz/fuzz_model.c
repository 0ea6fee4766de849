/* libFuzzer over serialized models: parser, NNAPI's checks, the executor's preparation, and a run
 * of small models, with buffers of exactly the sizes that the executor needs. */
#include <stdlib.h>
#include <string.h>

#include "model.h"
#include "np_executor.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Larger operands and results are allowed, but slow and not more interesting. */
#define MOST_ELEMENTS 512u
#define MOST_ENDS 16u
#define OUTPUT_BYTES ((size_t)1 << 20)

/* Sanitizers read their options from here: larger allocations, from inferred shapes, return
 * NULL. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) {
  return "allocator_may_return_null=1:max_allocation_size_mb=32";
}

static int is_small(const struct np_graph *graph) {
  for (uint32_t i = 0; i < graph->n_operands; i++) {
    if (np_operand_elements(&graph->operands[i]) > MOST_ELEMENTS) {
      return 0;
    }
  }
  return 1;
}

static size_t buffer_bytes(const struct np_operand *operand, const struct np_buffer *buffer) {
  size_t n = np_type_bytes(operand->type);
  for (uint32_t d = 0; d < buffer->rank && n <= OUTPUT_BYTES; d++) {
    n *= buffer->dims[d];
  }
  return n;
}

/* Runs without room for the outputs to get their shapes, then again with that room. */
static void run(struct np_executor *executor, const struct np_graph *graph) {
  static const float values[8 * MOST_ELEMENTS] = {0.5f, -1.0f, 2.0f, 1e30f, -3.25f};
  struct np_buffer inputs[MOST_ENDS] = {{0}};
  struct np_buffer outputs[MOST_ENDS] = {{0}};
  if (graph->n_inputs > MOST_ENDS || graph->n_outputs > MOST_ENDS) {
    return;
  }
  for (uint32_t i = 0; i < graph->n_inputs; i++) {
    const struct np_operand *operand = &graph->operands[graph->inputs[i]];
    inputs[i].data = (void *)(uintptr_t)values;
    inputs[i].length = sizeof values;
    if (np_operand_elements(operand) != 0) {
      continue; /* small sizes for the unknown dimensions */
    }
    inputs[i].rank = operand->rank == 0 ? 2 : operand->rank;
    for (uint32_t d = 0; d < inputs[i].rank; d++) {
      inputs[i].dims[d] = operand->dims[d] == 0 ? 2 : operand->dims[d];
    }
  }
  struct np_message why = {""};
  uint32_t too_small;
  (void)np_executor_run(executor, inputs, outputs, NULL, &too_small, &why);
  int fits = too_small != UINT32_MAX;
  for (uint32_t i = 0; i < graph->n_outputs && fits; i++) {
    outputs[i].length = buffer_bytes(&graph->operands[graph->outputs[i]], &outputs[i]);
    fits = outputs[i].length <= OUTPUT_BYTES;
    outputs[i].data = fits ? malloc(outputs[i].length + (outputs[i].length == 0)) : NULL;
  }
  if (fits &&
      np_executor_run(executor, inputs, outputs, NULL, &too_small, &why) == NP_BAD_ARGUMENT &&
      too_small != UINT32_MAX) {
    abort(); /* it reported this size */
  }
  for (uint32_t i = 0; i < graph->n_outputs; i++) {
    free(outputs[i].data);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const uint32_t buffer_words[64] = {0x3f800000, 0xbf800000, 1, 2, 3, 4};
  const struct np_bytes buffer = {(const uint8_t *)buffer_words, sizeof buffer_words};
  uint8_t *copy = malloc(size + (size == 0)); /* aligned, as the agent's own is */
  if (!copy) {
    return 0;
  }
  if (size != 0) {
    memcpy(copy, data, size);
  }
  struct np_model model;
  struct np_message why = {""};
  if (np_model_open(copy, size, &model, &why) == NP_OK &&
      np_model_bind(&model, &buffer, 1, &why) == NP_OK && is_small(&model.graph)) {
    struct np_executor *executor = NULL;
    if (np_graph_check(&model.graph, ANEURALNETWORKS_FEATURE_LEVEL_8, &why) == NP_OK &&
        np_executor_create(&model.graph, NULL, &executor, &why) == NP_OK) {
      run(executor, &model.graph);
      np_executor_free(executor);
    }
  }
  np_model_free(&model);
  free(copy);
  return 0;
}
