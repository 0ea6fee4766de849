/* libFuzzer over serialized models: parser, NNAPI's checks, and the executor's preparation of small
 * models. */
#include <stdlib.h>
#include <string.h>

#include "model.h"
#include "np_executor.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MOST_ELEMENTS 65536u

/* Whether all operands are small: larger ones are allowed, but say nothing new and take long. */
static int is_small(const struct np_graph *graph) {
  for (uint32_t i = 0; i < graph->n_operands; i++) {
    if (np_operand_elements(&graph->operands[i]) > MOST_ELEMENTS)
      return 0;
  }
  return 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const uint32_t buffer_words[64] = {0x3f800000, 0xbf800000, 1, 2, 3, 4};
  const struct np_bytes buffer = {(const uint8_t *)buffer_words, sizeof buffer_words};
  uint8_t *copy = malloc(size + (size == 0)); /* aligned, as a mapped file is */
  if (!copy)
    return 0;
  if (size != 0)
    memcpy(copy, data, size);
  struct np_model model;
  struct np_message why = {""};
  if (np_model_open(copy, size, &model, &why) == NP_OK &&
      np_model_bind(&model, &buffer, 1, &why) == NP_OK && is_small(&model.graph)) {
    struct np_executor *executor = NULL;
    if (np_graph_check(&model.graph, ANEURALNETWORKS_FEATURE_LEVEL_8, &why) == NP_OK &&
        np_executor_create(&model.graph, &executor, &why) == NP_OK) {
      np_executor_free(executor);
    }
  }
  np_model_free(&model);
  free(copy);
  return 0;
}
