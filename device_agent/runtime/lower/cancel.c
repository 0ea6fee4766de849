/* Pass "cancel": bypasses a transpose that undoes another transpose.
 *
 *   b = TRANSPOSE(a, [0, 3, 1, 2]), c = TRANSPOSE(b, [0, 2, 3, 1])
 * makes every reader of c read a. An element-wise operation between the two is computed in the
 * order of a. The sweep removes the transposes themselves, unless something else reads them. */
#include <stdlib.h>
#include <string.h>

#include "lower/np_lower.h"

struct cancel_pass {
  struct np_lowered *lowered;
  uint32_t *same;   /* [n] operand to read instead; itself if none */
  uint32_t *source; /* [n] input of the transpose that wrote the operand, or NP_NO_OPERAND */
  uint32_t *order;  /* [n] that transpose's permutation, an operand */
  uint32_t n;
};

/* Returns the permutation of a transpose if it is a constant of four axes; NULL otherwise. */
static const int32_t *permutation(const struct np_graph *graph, uint32_t operand) {
  const struct np_operand *list = &graph->operands[operand];
  if (list->lifetime != NP_CONSTANT || list->length != 4 * sizeof(int32_t)) {
    return NULL;
  }
  return list->value;
}

/* Returns whether `second` after `first` restores every axis. */
static int undoes(const int32_t *first, const int32_t *second) {
  for (int i = 0; i < 4; i++) {
    if (second[i] < 0 || second[i] > 3 || first[second[i]] != i) {
      return 0;
    }
  }
  return 1;
}

/* Returns whether an operation computes each element from the same element of its inputs. */
static int element_wise(int32_t code, uint32_t *n_tensors) {
  *n_tensors = 1;
  switch (code) {
  case ANEURALNETWORKS_ADD:
  case ANEURALNETWORKS_SUB:
  case ANEURALNETWORKS_MUL:
  case ANEURALNETWORKS_DIV:
  case ANEURALNETWORKS_MAXIMUM:
  case ANEURALNETWORKS_MINIMUM:
    *n_tensors = 2;
    return 1;
  case ANEURALNETWORKS_RELU:
  case ANEURALNETWORKS_RELU1:
  case ANEURALNETWORKS_RELU6:
  case ANEURALNETWORKS_LOGISTIC:
  case ANEURALNETWORKS_TANH:
  case ANEURALNETWORKS_HARD_SWISH:
  case ANEURALNETWORKS_ELU:
  case ANEURALNETWORKS_FLOOR:
  case ANEURALNETWORKS_ABS:
  case ANEURALNETWORKS_NEG:
  case ANEURALNETWORKS_EXP:
  case ANEURALNETWORKS_LOG:
  case ANEURALNETWORKS_SQRT:
  case ANEURALNETWORKS_RSQRT:
    return 1;
  default:
    return 0;
  }
}

/* Returns whether all of an operation's tensors come from transposes with the same permutation,
 * *order, and have the same shape. */
static int reads_transposed(const struct cancel_pass *pass, const struct np_operation *operation,
                            uint32_t *order) {
  const struct np_graph *graph = &pass->lowered->graph;
  uint32_t n;
  if (!element_wise(operation->code, &n)) {
    return 0;
  }
  const struct np_operand *first = &graph->operands[operation->inputs[0]];
  for (uint32_t i = 0; i < n; i++) {
    const uint32_t operand = operation->inputs[i];
    const struct np_operand *one = &graph->operands[operand];
    if (operand >= pass->n || pass->source[operand] == NP_NO_OPERAND || one->rank != 4 ||
        np_operand_elements(one) == 0 || memcmp(one->dims, first->dims, sizeof one->dims) != 0) {
      return 0;
    }
    const uint32_t at = pass->order[operation->inputs[0]];
    if (memcmp(permutation(graph, at), permutation(graph, pass->order[operand]),
               4 * sizeof(int32_t)) != 0) {
      return 0;
    }
  }
  *order = pass->order[operation->inputs[0]];
  return 1;
}

/* Emits the operation on the inputs of its transposes, and a transpose of its result. */
static enum np_status sink(struct cancel_pass *pass, const struct np_operation *operation,
                           uint32_t order) {
  struct np_lowered *lowered = pass->lowered;
  uint32_t n;
  (void)element_wise(operation->code, &n);
  uint32_t inputs[4];
  if (operation->n_inputs > 4) {
    return np_emit_same(lowered, operation);
  }
  memcpy(inputs, operation->inputs, operation->n_inputs * sizeof *inputs);
  for (uint32_t i = 0; i < n; i++) {
    inputs[i] = pass->source[operation->inputs[i]];
  }
  const uint32_t result = operation->outputs[0];
  struct np_operand before = lowered->graph.operands[result];
  memcpy(before.dims, lowered->graph.operands[inputs[0]].dims, sizeof before.dims);
  before.rank = lowered->graph.operands[inputs[0]].rank;
  before.lifetime = NP_TEMPORARY;
  const uint32_t made = np_add_operand(lowered, &before);
  if (made == NP_NO_OPERAND) {
    return NP_NO_MEMORY;
  }
  NP_TRY(np_emit(lowered, operation->code, inputs, operation->n_inputs, &made, 1));
  pass->source[result] = made;
  pass->order[result] = order;
  const uint32_t list[2] = {made, order};
  return np_emit(lowered, ANEURALNETWORKS_TRANSPOSE, list, 2, &result, 1);
}

/* Remembers a transpose; bypasses one that undoes another. */
static void note(struct cancel_pass *pass, const struct np_operation *operation) {
  const struct np_graph *graph = &pass->lowered->graph;
  if (operation->code != ANEURALNETWORKS_TRANSPOSE || operation->n_inputs != 2 ||
      permutation(graph, operation->inputs[1]) == NULL) {
    return;
  }
  const uint32_t input = operation->inputs[0];
  const uint32_t output = operation->outputs[0];
  pass->source[output] = input;
  pass->order[output] = operation->inputs[1];
  if (input < pass->n && pass->source[input] != NP_NO_OPERAND &&
      graph->operands[output].lifetime == NP_TEMPORARY &&
      undoes(permutation(graph, pass->order[input]), permutation(graph, operation->inputs[1]))) {
    pass->same[output] = pass->source[input];
  }
}

/* Redirects an operation's inputs to equal operands; copies its list if one changes. */
static enum np_status redirect(struct cancel_pass *pass, const struct np_operation *operation,
                               struct np_operation *out) {
  *out = *operation;
  uint32_t *inputs = NULL;
  for (uint32_t i = 0; i < operation->n_inputs; i++) {
    const uint32_t operand = operation->inputs[i];
    if (operand >= pass->n || pass->same[operand] == operand) {
      continue;
    }
    if (inputs == NULL) {
      inputs = np_lowered_alloc(pass->lowered, operation->n_inputs * sizeof *inputs);
      if (inputs == NULL) {
        return NP_NO_MEMORY;
      }
      memcpy(inputs, operation->inputs, operation->n_inputs * sizeof *inputs);
      out->inputs = inputs;
    }
    inputs[i] = pass->same[operand];
  }
  return NP_OK;
}

static enum np_status visit(struct cancel_pass *pass, const struct np_operation *operation) {
  struct np_operation one;
  uint32_t order;
  NP_TRY(redirect(pass, operation, &one));
  if (reads_transposed(pass, &one, &order)) {
    return sink(pass, &one, order);
  }
  note(pass, &one);
  return np_emit_same(pass->lowered, &one);
}

enum np_status np_lower_cancel(struct np_lowered *lowered, struct np_message *why) {
  (void)why;
  struct cancel_pass pass = {.lowered = lowered, .n = lowered->graph.n_operands};
  const size_t n = (size_t)pass.n + 1;
  pass.same = malloc(3 * n * sizeof *pass.same);
  if (pass.same == NULL) {
    return NP_NO_MEMORY;
  }
  pass.source = pass.same + n;
  pass.order = pass.source + n;
  for (uint32_t i = 0; i < pass.n; i++) {
    pass.same[i] = i;
    pass.source[i] = pass.order[i] = NP_NO_OPERAND;
  }
  enum np_status status = NP_OK;
  for (uint32_t o = 0; status == NP_OK && o < lowered->n_from; o++) {
    status = visit(&pass, &lowered->from[o]);
  }
  free(pass.same);
  return status;
}
