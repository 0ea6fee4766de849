/* Inputs and outputs of a compilation's last run; the outputs are copied if the next run has the
 * same inputs. */
#include <stdlib.h>
#include <string.h>

#include "simulate.h"

/* Frees the buffers of a list and the list. */
static void free_buffers(struct np_buffer *buffers, uint32_t n) {
  for (uint32_t i = 0; buffers && i < n; i++) {
    free(buffers[i].data);
  }
  free(buffers);
}

void np_forget_last_run(struct np_last_run *last) {
  free_buffers(last->inputs, last->n_inputs);
  free_buffers(last->outputs, last->n_outputs);
  *last = (struct np_last_run){0};
}

/* Returns the bytes of an output with the shape that the run gave it. */
static size_t output_bytes(const struct np_operand *operand, const struct np_buffer *buffer) {
  size_t bytes = np_type_bytes(operand->type);
  for (uint32_t d = 0; d < buffer->rank; d++) {
    bytes *= buffer->dims[d];
  }
  return bytes;
}

static bool same_input(const struct np_buffer *a, const struct np_buffer *b) {
  return a->omitted == b->omitted && a->length == b->length && a->rank == b->rank &&
         memcmp(a->dims, b->dims, sizeof a->dims) == 0 &&
         (a->length == 0 || memcmp(a->data, b->data, a->length) == 0);
}

bool np_repeat_last_run(const struct np_last_run *last, const struct np_buffer *inputs,
                        struct np_buffer *outputs) {
  if (!last->valid) {
    return false;
  }
  for (uint32_t i = 0; i < last->n_inputs; i++) {
    if (!same_input(&last->inputs[i], &inputs[i])) {
      return false;
    }
  }
  for (uint32_t i = 0; i < last->n_outputs; i++) {
    if (outputs[i].length < last->outputs[i].length) {
      return false;
    }
  }
  for (uint32_t i = 0; i < last->n_outputs; i++) {
    const struct np_buffer *kept = &last->outputs[i];
    if (kept->length) {
      memcpy(outputs[i].data, kept->data, kept->length);
    }
    outputs[i].rank = kept->rank;
    memcpy(outputs[i].dims, kept->dims, sizeof kept->dims);
  }
  return true;
}

/* Copies `from`, with `length` bytes of data, to *to, reusing the old data of *to if their length
 * is the same; returns 0 if memory is short. */
static int keep_buffer(struct np_buffer *to, const struct np_buffer *from, size_t length) {
  void *data = to->data;
  if (!data || to->length != length) {
    free(data);
    data = malloc(length ? length : 1);
  }
  *to = *from;
  to->data = data;
  to->length = length;
  if (data && length) {
    memcpy(data, from->data, length);
  }
  return data != NULL;
}

void np_keep_last_run(struct np_last_run *last, const struct np_graph *graph,
                      const struct np_buffer *inputs, const struct np_buffer *outputs) {
  last->valid = false;
  if (!last->inputs) {
    last->inputs = calloc(graph->n_inputs, sizeof *last->inputs);
    last->outputs = calloc(graph->n_outputs, sizeof *last->outputs);
    last->n_inputs = graph->n_inputs;
    last->n_outputs = graph->n_outputs;
    if (!last->inputs || !last->outputs) {
      np_forget_last_run(last);
      return;
    }
  }
  int kept = 1;
  for (uint32_t i = 0; kept && i < last->n_inputs; i++) {
    kept = keep_buffer(&last->inputs[i], &inputs[i], inputs[i].length);
  }
  for (uint32_t i = 0; kept && i < last->n_outputs; i++) {
    if (outputs[i].omitted) {
      return; /* rare; there is nothing to copy */
    }
    const struct np_operand *operand = &graph->operands[graph->outputs[i]];
    kept = keep_buffer(&last->outputs[i], &outputs[i], output_bytes(operand, &outputs[i]));
  }
  last->valid = kept;
}
