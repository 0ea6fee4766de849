/* The rules of NNAPI for a whole graph: every operand has one source, and there is an order of
 * execution. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/np_kernel.h"
#include "kernels/np_quant.h"
#include "np_executor.h"

#define NO_WRITER UINT32_MAX

/* Returns whether scale and zero point of a quantised operand are valid. Per-channel scales are
 * checked separately. */
static int quantised_well(const struct np_operand *operand) {
  int32_t low, high;
  np_q_limits(operand->type, &low, &high);
  if (low == high || operand->type == NP_TYPE_TENSOR_QUANT8_SYMM_PER_CHANNEL) {
    return 1;
  }
  return isfinite(operand->scale) && operand->scale > 0.0f && operand->zero_point >= low &&
         operand->zero_point <= high;
}

/* Checks types, ranks and values of operands by themselves. */
static enum np_status check_operands(const struct np_graph *graph, struct np_message *why) {
  for (uint32_t i = 0; i < graph->n_operands; i++) {
    const struct np_operand *operand = &graph->operands[i];
    if (operand->type == NP_TYPE_MODEL && operand->rank == 0) {
      continue; /* IF and WHILE check the models they run */
    }
    if (np_type_bytes(operand->type) == 0) {
      np_message_set(why, "operand %u has type %d, wanted one of NNAPI's", i, operand->type);
      return NP_BAD_MODEL;
    }
    const int is_tensor = np_type_is_tensor(operand->type);
    if (operand->rank > NP_MAX_RANK || (!is_tensor && operand->rank != 0)) {
      np_message_set(why, "operand %u (%s) has rank %u, wanted at most %u", i,
                     np_type_name(operand->type), operand->rank, is_tensor ? NP_MAX_RANK : 0u);
      return NP_BAD_MODEL;
    }
    if (!quantised_well(operand)) {
      np_message_set(why, "operand %u (%s) has scale %g and zero point %d", i,
                     np_type_name(operand->type), (double)operand->scale, operand->zero_point);
      return NP_BAD_MODEL;
    }
    const size_t bytes = np_operand_bytes(operand);
    if (bytes > PTRDIFF_MAX / 2) {
      np_message_set(why, "operand %u (%s) is too large", i, np_type_name(operand->type));
      return NP_BAD_MODEL;
    }
    if (operand->lifetime == NP_CONSTANT && (operand->value == NULL || operand->length != bytes)) {
      np_message_set(why, "operand %u (%s) has a constant of %zu bytes, wanted %zu", i,
                     np_type_name(operand->type), operand->length, bytes);
      return NP_BAD_MODEL;
    }
  }
  return NP_OK;
}

/* Checks that a list of model inputs or outputs names each operand once, with the right
 * lifetime. */
static enum np_status check_ends(const struct np_graph *graph, const uint32_t *list, uint32_t n,
                                 enum np_lifetime lifetime, const char *what,
                                 struct np_message *why) {
  uint32_t n_lifetime = 0;
  for (uint32_t i = 0; i < graph->n_operands; i++) {
    n_lifetime += graph->operands[i].lifetime == lifetime;
  }
  for (uint32_t i = 0; i < n; i++) {
    if (list[i] >= graph->n_operands || graph->operands[list[i]].lifetime != lifetime) {
      np_message_set(why, "model %s %u is operand %u, which is none", what, i, list[i]);
      return NP_BAD_MODEL;
    }
  }
  if (n_lifetime != n) {
    np_message_set(why,
                   "the model lists %u %ss, but %u operands are %ss: one is listed twice or not"
                   " at all",
                   n, what, n_lifetime, what);
    return NP_BAD_MODEL;
  }
  return NP_OK;
}

/* Fills writers [n_operands] with the operation that writes each operand. */
static enum np_status find_writers(const struct np_graph *graph, uint32_t *writers,
                                   struct np_message *why) {
  for (uint32_t i = 0; i < graph->n_operands; i++) {
    writers[i] = NO_WRITER;
  }
  for (uint32_t o = 0; o < graph->n_operations; o++) {
    const struct np_operation *operation = &graph->operations[o];
    const struct np_call call = {.graph = graph, .index = o, .operation = operation, .why = why};
    for (uint32_t i = 0; i < operation->n_outputs; i++) {
      const uint32_t operand = operation->outputs[i];
      const enum np_lifetime lifetime = graph->operands[operand].lifetime;
      if (lifetime != NP_TEMPORARY && lifetime != NP_OUTPUT) {
        return np_fail(&call, NP_BAD_MODEL,
                       "output %u is operand %u, which is %s, wanted a temporary or model output",
                       i, operand,
                       lifetime == NP_INPUT      ? "a model input"
                       : lifetime == NP_CONSTANT ? "a constant"
                                                 : "left out");
      }
      if (writers[operand] != NO_WRITER) {
        return np_fail(&call, NP_BAD_MODEL,
                       "output %u is operand %u, which operation %u (%s) writes already", i,
                       operand, writers[operand],
                       np_operation_name(graph->operations[writers[operand]].code));
      }
      writers[operand] = o;
    }
  }
  for (uint32_t o = 0; o < graph->n_operations; o++) {
    const struct np_operation *operation = &graph->operations[o];
    const struct np_call call = {.graph = graph, .index = o, .operation = operation, .why = why};
    for (uint32_t i = 0; i < operation->n_inputs; i++) {
      const uint32_t operand = operation->inputs[i];
      const enum np_lifetime lifetime = graph->operands[operand].lifetime;
      if ((lifetime == NP_TEMPORARY || lifetime == NP_OUTPUT) && writers[operand] == NO_WRITER) {
        return np_fail(&call, NP_BAD_MODEL, "input %u is operand %u, which nothing writes", i,
                       operand);
      }
    }
  }
  for (uint32_t i = 0; i < graph->n_outputs; i++) {
    if (writers[graph->outputs[i]] == NO_WRITER) {
      np_message_set(why, "model output %u is operand %u, which nothing writes", i,
                     graph->outputs[i]);
      return NP_BAD_MODEL;
    }
  }
  return NP_OK;
}

/* A min-heap of operation indices, so that the earliest operation that is ready goes first. */
static void heap_push(uint32_t *heap, uint32_t n, uint32_t value) {
  uint32_t at = n;
  while (at > 0 && heap[(at - 1) / 2] > value) {
    heap[at] = heap[(at - 1) / 2];
    at = (at - 1) / 2;
  }
  heap[at] = value;
}

static uint32_t heap_pop(uint32_t *heap, uint32_t n) {
  const uint32_t top = heap[0];
  const uint32_t last = heap[n - 1];
  uint32_t at = 0;
  for (;;) {
    uint32_t child = 2 * at + 1;
    if (child >= n - 1) {
      break;
    }
    if (child + 1 < n - 1 && heap[child + 1] < heap[child]) {
      child++;
    }
    if (heap[child] >= last) {
      break;
    }
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = last;
  return top;
}

/* Scratch of the sort, one block each. */
struct sort {
  uint32_t *writers;        /* [n_operands] */
  uint32_t *waits;          /* [n_operations] inputs not made yet */
  uint32_t *first;          /* [n_operations + 1] start of an operation's readers in `readers` */
  uint32_t *readers;        /* [edges] operations, one entry for each input that is written */
  uint32_t *heap;           /* [n_operations] */
  struct np_operation *out; /* [n_operations] */
};

static void sort_free(struct sort *sort) {
  free(sort->writers);
  free(sort->waits);
  free(sort->first);
  free(sort->readers);
  free(sort->heap);
  free(sort->out);
}

static int sort_alloc(struct sort *sort, const struct np_graph *graph) {
  size_t edges = 0;
  for (uint32_t o = 0; o < graph->n_operations; o++) {
    edges += graph->operations[o].n_inputs;
  }
  const size_t n = (size_t)graph->n_operations + 1;
  sort->writers = calloc((size_t)graph->n_operands + 1, sizeof *sort->writers);
  sort->waits = calloc(n, sizeof *sort->waits);
  sort->first = calloc(n + 1, sizeof *sort->first);
  sort->readers = calloc(edges + 1, sizeof *sort->readers);
  sort->heap = calloc(n, sizeof *sort->heap);
  sort->out = calloc(n, sizeof *sort->out);
  return sort->writers != NULL && sort->waits != NULL && sort->first != NULL &&
         sort->readers != NULL && sort->heap != NULL && sort->out != NULL;
}

/* Sorts topologically (Kahn's algorithm), earliest ready operation first. */
static enum np_status sort_operations(struct np_graph *graph, struct sort *sort,
                                      struct np_message *why) {
  const uint32_t n = graph->n_operations;
  for (uint32_t o = 0; o < n; o++) {
    for (uint32_t i = 0; i < graph->operations[o].n_inputs; i++) {
      const uint32_t writer = sort->writers[graph->operations[o].inputs[i]];
      if (writer != NO_WRITER) {
        sort->first[writer + 1]++;
        sort->waits[o]++;
      }
    }
  }
  for (uint32_t o = 0; o < n; o++) {
    sort->first[o + 1] += sort->first[o];
  }
  const uint32_t edges = sort->first[n];
  for (uint32_t o = n; o-- > 0;) { /* backwards: each end counts down to its start */
    for (uint32_t i = 0; i < graph->operations[o].n_inputs; i++) {
      const uint32_t writer = sort->writers[graph->operations[o].inputs[i]];
      if (writer != NO_WRITER) {
        sort->readers[--sort->first[writer + 1]] = o;
      }
    }
  }
  uint32_t n_heap = 0;
  uint32_t n_out = 0;
  for (uint32_t o = 0; o < n; o++) {
    if (sort->waits[o] == 0) {
      heap_push(sort->heap, n_heap++, o);
    }
  }
  while (n_heap > 0) {
    const uint32_t o = heap_pop(sort->heap, n_heap--);
    sort->out[n_out++] = graph->operations[o];
    const uint32_t end = o + 1 < n ? sort->first[o + 2] : edges;
    for (uint32_t e = sort->first[o + 1]; e < end; e++) {
      if (--sort->waits[sort->readers[e]] == 0) {
        heap_push(sort->heap, n_heap++, sort->readers[e]);
      }
    }
  }
  if (n_out < n) {
    for (uint32_t o = 0; o < n; o++) {
      if (sort->waits[o] != 0) {
        const struct np_call call = {
            .graph = graph, .index = o, .operation = &graph->operations[o], .why = why};
        return np_fail(&call, NP_BAD_MODEL, "is part of a cycle, or reads from one");
      }
    }
  }
  memcpy(graph->operations, sort->out, n * sizeof *sort->out);
  return NP_OK;
}

enum np_status np_graph_check(struct np_graph *graph, int32_t feature_level,
                              struct np_message *why) {
  NP_TRY(check_operands(graph, why));
  NP_TRY(check_ends(graph, graph->inputs, graph->n_inputs, NP_INPUT, "input", why));
  NP_TRY(check_ends(graph, graph->outputs, graph->n_outputs, NP_OUTPUT, "output", why));
  if (graph->n_operations == 0) {
    np_message_set(why, "the model has no operation");
    return NP_BAD_MODEL;
  }
  /* A model that breaks a rule is bad, even if another operation has no kernel. */
  enum np_status status = NP_OK;
  struct np_message first = {""};
  for (uint32_t o = 0; o < graph->n_operations; o++) {
    const enum np_status one = np_operation_check(graph, o, feature_level, why);
    if (one != NP_OK && one != NP_UNSUPPORTED) {
      return one;
    }
    if (one == NP_UNSUPPORTED && status == NP_OK) {
      status = one;
      first = why == NULL ? first : *why;
    }
  }
  struct sort sort = {0};
  enum np_status sorted = NP_NO_MEMORY;
  if (sort_alloc(&sort, graph)) {
    sorted = find_writers(graph, sort.writers, why);
    if (sorted == NP_OK) {
      sorted = sort_operations(graph, &sort, why);
    }
  } else {
    np_message_set(why, "no memory to sort %u operations", graph->n_operations);
  }
  sort_free(&sort);
  if (sorted != NP_OK) {
    return sorted;
  }
  if (status != NP_OK && why != NULL) {
    *why = first;
  }
  return status;
}
