/* The lowered graph, its builder functions, and the order of the passes. */
#include "lower/np_lower.h"

#include <stdlib.h>
#include <string.h>

/* The passes, in this order because casts and transposes of constants fold, folded operations no
 * longer separate two transposes that cancel, and an activation directly follows its producer once
 * a transpose between them is gone. */
static const struct np_pass PASSES[] = {
    {"half", np_lower_half},     {"layout", np_lower_layout}, {"fold", np_lower_fold},
    {"cancel", np_lower_cancel}, {"fuse", np_lower_fuse},     {"sweep", np_lower_sweep},
};

/* Makes an array with room for `room` elements large enough for one more than `used`; returns 0 if
 * memory is short. */
static int grow(void **array, uint32_t used, uint32_t *room, size_t element) {
  if (used < *room) {
    return 1;
  }
  const uint32_t wanted = *room < 16 ? 32 : *room * 2;
  if (wanted <= *room || wanted > SIZE_MAX / element) {
    return 0;
  }
  void *grown = realloc(*array, wanted * element);
  if (grown == NULL) {
    return 0;
  }
  *array = grown;
  *room = wanted;
  return 1;
}

void *np_lowered_alloc(struct np_lowered *lowered, size_t bytes) {
  void *list = lowered->owned;
  if (!grow(&list, lowered->n_owned, &lowered->owned_room, sizeof *lowered->owned)) {
    return NULL;
  }
  lowered->owned = list;
  void *made = malloc(bytes == 0 ? 1 : bytes);
  if (made != NULL) {
    lowered->owned[lowered->n_owned++] = made;
  }
  return made;
}

uint32_t np_add_operand(struct np_lowered *lowered, const struct np_operand *operand) {
  const struct np_operand copy = *operand; /* it may be in the array that grows */
  void *operands = lowered->graph.operands;
  if (!grow(&operands, lowered->graph.n_operands, &lowered->operand_room,
            sizeof *lowered->graph.operands)) {
    return NP_NO_OPERAND;
  }
  lowered->graph.operands = operands;
  lowered->graph.operands[lowered->graph.n_operands] = copy;
  return lowered->graph.n_operands++;
}

uint32_t np_add_constant(struct np_lowered *lowered, int32_t type, uint32_t rank,
                         const uint32_t *dims, const void *value, size_t length) {
  void *copy = np_lowered_alloc(lowered, length);
  if (copy == NULL) {
    return NP_NO_OPERAND;
  }
  memcpy(copy, value, length);
  struct np_operand operand = {
      .type = type, .rank = rank, .lifetime = NP_CONSTANT, .value = copy, .length = length};
  for (uint32_t i = 0; i < rank; i++) {
    operand.dims[i] = dims[i];
  }
  return np_add_operand(lowered, &operand);
}

static enum np_status emit(struct np_lowered *lowered, const struct np_operation *operation) {
  void *operations = lowered->graph.operations;
  if (!grow(&operations, lowered->graph.n_operations, &lowered->operation_room,
            sizeof *lowered->graph.operations)) {
    return NP_NO_MEMORY;
  }
  lowered->graph.operations = operations;
  lowered->graph.operations[lowered->graph.n_operations++] = *operation;
  return NP_OK;
}

enum np_status np_emit(struct np_lowered *lowered, int32_t code, const uint32_t *inputs,
                       uint32_t n_inputs, const uint32_t *outputs, uint32_t n_outputs) {
  uint32_t *lists = np_lowered_alloc(lowered, ((size_t)n_inputs + n_outputs) * sizeof *lists);
  if (lists == NULL) {
    return NP_NO_MEMORY;
  }
  memcpy(lists, inputs, n_inputs * sizeof *lists);
  memcpy(lists + n_inputs, outputs, n_outputs * sizeof *lists);
  const struct np_operation made = {.code = code,
                                    .n_inputs = n_inputs,
                                    .n_outputs = n_outputs,
                                    .inputs = lists,
                                    .outputs = lists + n_inputs};
  return emit(lowered, &made);
}

enum np_status np_emit_same(struct np_lowered *lowered, const struct np_operation *operation) {
  return emit(lowered, operation);
}

int np_constant_i32(const struct np_graph *graph, uint32_t operand, int32_t *value) {
  const struct np_operand *one = &graph->operands[operand];
  if (one->type != NP_TYPE_INT32 || one->lifetime != NP_CONSTANT) {
    return 0;
  }
  memcpy(value, one->value, sizeof *value);
  return 1;
}

int np_constant_bool(const struct np_graph *graph, uint32_t operand, int *value) {
  const struct np_operand *one = &graph->operands[operand];
  if (one->type != NP_TYPE_BOOL || one->lifetime != NP_CONSTANT) {
    return 0;
  }
  *value = *(const unsigned char *)one->value != 0;
  return 1;
}

/* Copies the arrays of the given graph; its lists and constants are shared. */
static enum np_status copy_graph(struct np_lowered *lowered, const struct np_graph *graph) {
  lowered->graph.inputs = graph->inputs;
  lowered->graph.n_inputs = graph->n_inputs;
  lowered->graph.outputs = graph->outputs;
  lowered->graph.n_outputs = graph->n_outputs;
  for (uint32_t i = 0; i < graph->n_operands; i++) {
    if (np_add_operand(lowered, &graph->operands[i]) == NP_NO_OPERAND) {
      return NP_NO_MEMORY;
    }
  }
  for (uint32_t i = 0; i < graph->n_operations; i++) {
    NP_TRY(np_emit_same(lowered, &graph->operations[i]));
  }
  return NP_OK;
}

static enum np_status run_pass(struct np_lowered *lowered, const struct np_pass *pass,
                               struct np_message *why) {
  free(lowered->from);
  lowered->from = lowered->graph.operations;
  lowered->n_from = lowered->graph.n_operations;
  lowered->graph.operations = NULL;
  lowered->graph.n_operations = 0;
  lowered->operation_room = 0;
  return pass->run(lowered, why);
}

enum np_status np_lower(const struct np_graph *graph, const struct np_executor_options *options,
                        struct np_lowered **lowered, struct np_message *why) {
  *lowered = NULL;
  struct np_lowered *made = calloc(1, sizeof *made);
  enum np_status status = made == NULL ? NP_NO_MEMORY : copy_graph(made, graph);
  if (made != NULL) {
    made->options = options;
  }
  for (size_t i = 0; status == NP_OK && i < sizeof PASSES / sizeof PASSES[0]; i++) {
    status = run_pass(made, &PASSES[i], why);
  }
  if (status == NP_NO_MEMORY) {
    np_message_set(why, "no memory to lower %u operations", graph->n_operations);
  }
  if (status != NP_OK) {
    np_lowered_free(made);
    return status;
  }
  *lowered = made;
  return NP_OK;
}

void np_lowered_free(struct np_lowered *lowered) {
  if (lowered == NULL) {
    return;
  }
  for (uint32_t i = 0; i < lowered->n_owned; i++) {
    free(lowered->owned[i]);
  }
  free(lowered->owned);
  free(lowered->from);
  free(lowered->graph.operands);
  free(lowered->graph.operations);
  free(lowered);
}
