/* Passes "fuse" and "sweep".
 *
 *   y = CONV_2D(x, ..., NONE), z = RELU6(y)     becomes     z = CONV_2D(x, ..., RELU6)
 *
 * if nothing else reads y, for float32 only: quantised results are first clamped to their own
 * range, so the two are not the same. The sweep drops operations whose results are not read. */
#include <stdlib.h>
#include <string.h>

#include "lower/np_lower.h"

/* Counts how often each operand is read, by operations or as a model output; [n_operands], NULL if
 * memory is short. */
static uint32_t *count_readers(const struct np_lowered *lowered) {
  uint32_t *readers = calloc((size_t)lowered->graph.n_operands + 1, sizeof *readers);
  for (uint32_t o = 0; readers != NULL && o < lowered->n_from; o++) {
    for (uint32_t i = 0; i < lowered->from[o].n_inputs; i++) {
      readers[lowered->from[o].inputs[i]]++;
    }
  }
  for (uint32_t i = 0; readers != NULL && i < lowered->graph.n_outputs; i++) {
    readers[lowered->graph.outputs[i]]++;
  }
  return readers;
}

/* Returns the fuse code of an activation, -1 for other operations. */
static int32_t fuse_code(int32_t code) {
  switch (code) {
  case ANEURALNETWORKS_RELU:
    return ANEURALNETWORKS_FUSED_RELU;
  case ANEURALNETWORKS_RELU1:
    return ANEURALNETWORKS_FUSED_RELU1;
  case ANEURALNETWORKS_RELU6:
    return ANEURALNETWORKS_FUSED_RELU6;
  default:
    return -1;
  }
}

/* Returns the input of an operation that is its fuse code, -1 if it has none. */
static int64_t fuse_input(const struct np_lowered *lowered, uint32_t o) {
  struct np_graph view = lowered->graph;
  view.operations = lowered->from;
  view.n_operations = lowered->n_from;
  const struct np_op_form *form = np_form_of(&view, o, NULL);
  for (uint32_t i = 0; form != NULL && i < form->n_inputs; i++) {
    if (strcmp(form->inputs[i].name, "fuse_code") == 0) {
      return i;
    }
  }
  return -1;
}

/* Returns whether operation `o` can take over an activation of its only result, which one operation
 * reads; *input is then its fuse code. */
static int can_take(const struct np_lowered *lowered, uint32_t o, const uint32_t *readers,
                    uint32_t *input) {
  const struct np_operation *operation = &lowered->from[o];
  const struct np_operand *result = &lowered->graph.operands[operation->outputs[0]];
  int32_t fuse = 0;
  const int64_t found = fuse_input(lowered, o);
  if (operation->n_outputs != 1 || result->type != NP_TYPE_TENSOR_FLOAT32 ||
      result->lifetime != NP_TEMPORARY || readers[operation->outputs[0]] != 1 || found < 0) {
    return 0;
  }
  *input = (uint32_t)found;
  return np_constant_i32(&lowered->graph, operation->inputs[*input], &fuse) &&
         fuse == ANEURALNETWORKS_FUSED_NONE;
}

static enum np_status emit_fused(struct np_lowered *lowered, const struct np_operation *producer,
                                 uint32_t input, int32_t fuse, uint32_t result) {
  uint32_t *inputs = np_lowered_alloc(lowered, producer->n_inputs * sizeof *inputs);
  if (inputs == NULL) {
    return NP_NO_MEMORY;
  }
  memcpy(inputs, producer->inputs, producer->n_inputs * sizeof *inputs);
  inputs[input] = np_add_constant(lowered, NP_TYPE_INT32, 0, NULL, &fuse, sizeof fuse);
  if (inputs[input] == NP_NO_OPERAND) {
    return NP_NO_MEMORY;
  }
  return np_emit(lowered, producer->code, inputs, producer->n_inputs, &result, 1);
}

/* Fills taker [n_from]: which operation's activation an operation takes over, or n_from; and gone
 * [n_from]: activations that another operation takes over. */
static void pair_up(const struct np_lowered *lowered, const uint32_t *readers,
                    const uint32_t *writer, uint32_t *taker, unsigned char *gone) {
  for (uint32_t o = 0; o < lowered->n_from; o++) {
    taker[o] = lowered->n_from;
  }
  for (uint32_t o = 0; o < lowered->n_from; o++) {
    uint32_t input;
    if (fuse_code(lowered->from[o].code) < 0) {
      continue;
    }
    const uint32_t producer = writer[lowered->from[o].inputs[0]];
    if (producer < lowered->n_from && can_take(lowered, producer, readers, &input)) {
      taker[producer] = o;
      gone[o] = 1;
    }
  }
}

static enum np_status fuse_all(struct np_lowered *lowered, const uint32_t *readers,
                               const uint32_t *taker, const unsigned char *gone) {
  for (uint32_t o = 0; o < lowered->n_from; o++) {
    uint32_t input;
    if (gone[o]) {
      continue;
    }
    if (taker[o] == lowered->n_from || !can_take(lowered, o, readers, &input)) {
      NP_TRY(np_emit_same(lowered, &lowered->from[o]));
      continue;
    }
    const struct np_operation *activation = &lowered->from[taker[o]];
    NP_TRY(emit_fused(lowered, &lowered->from[o], input, fuse_code(activation->code),
                      activation->outputs[0]));
  }
  return NP_OK;
}

enum np_status np_lower_fuse(struct np_lowered *lowered, struct np_message *why) {
  (void)why;
  const size_t n = (size_t)lowered->n_from + 1;
  uint32_t *readers = count_readers(lowered);
  uint32_t *writer = malloc(((size_t)lowered->graph.n_operands + 1) * sizeof *writer);
  uint32_t *taker = malloc(n * sizeof *taker);
  unsigned char *gone = calloc(n, 1);
  enum np_status status = NP_NO_MEMORY;
  if (readers != NULL && writer != NULL && taker != NULL && gone != NULL) {
    for (uint32_t i = 0; i < lowered->graph.n_operands; i++) {
      writer[i] = lowered->n_from;
    }
    for (uint32_t o = 0; o < lowered->n_from; o++) {
      for (uint32_t i = 0; i < lowered->from[o].n_outputs; i++) {
        writer[lowered->from[o].outputs[i]] = o;
      }
    }
    pair_up(lowered, readers, writer, taker, gone);
    status = fuse_all(lowered, readers, taker, gone);
  }
  free(readers);
  free(writer);
  free(taker);
  free(gone);
  return status;
}

enum np_status np_lower_sweep(struct np_lowered *lowered, struct np_message *why) {
  (void)why;
  uint32_t *readers = count_readers(lowered);
  unsigned char *dead = calloc((size_t)lowered->n_from + 1, 1);
  enum np_status status = readers != NULL && dead != NULL ? NP_OK : NP_NO_MEMORY;
  for (uint32_t o = lowered->n_from; status == NP_OK && o-- > 0;) {
    const struct np_operation *operation = &lowered->from[o];
    uint32_t read = 0;
    for (uint32_t i = 0; i < operation->n_outputs; i++) {
      read += readers[operation->outputs[i]];
    }
    dead[o] = read == 0;
    for (uint32_t i = 0; dead[o] && i < operation->n_inputs; i++) {
      readers[operation->inputs[i]]--;
    }
  }
  for (uint32_t o = 0; status == NP_OK && o < lowered->n_from; o++) {
    if (!dead[o]) {
      status = np_emit_same(lowered, &lowered->from[o]);
    }
  }
  free(readers);
  free(dead);
  return status;
}
