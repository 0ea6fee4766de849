/* How much an operation computes and moves, from the shapes that the model declares.
 *
 * Multiply-accumulates (MAC) of an operation are
 *   convolutions, FULLY_CONNECTED   the products summed into each output element
 *   TRANSPOSE_CONV_2D               a whole filter for each input element
 *   BATCH_MATMUL                    the common dimension for each output element
 *   LSTM, RNN and SVDF families     every weight once for each batch and time step
 *   ROI_ALIGN                       four for each sample of an output element
 *   reductions, sorting, detection  one for each element that is read
 *   IF                              those of the branch with more of them
 *   WHILE                           one round of condition and body: how many follow is not known
 *   the rest                        one for each output element; pooling too, as windows overlap in
 *                                   fast memory
 * Bytes follow from the operands' types, so quantised tensors count a quarter of float32. */
#include "kernels/np_kernel.h"
#include "np_executor.h"

static uint64_t times(uint64_t a, uint64_t b) {
  return a != 0 && b > UINT64_MAX / a ? UINT64_MAX : a * b;
}

static uint64_t plus(uint64_t a, uint64_t b) { return b > UINT64_MAX - a ? UINT64_MAX : a + b; }

static uint64_t bytes_of(const struct np_operand *operand) {
  const size_t bytes = np_operand_bytes(operand);
  return bytes == SIZE_MAX ? 0 : bytes;
}

static uint64_t elements_of(const struct np_operand *operand) {
  const size_t n = np_operand_elements(operand);
  return n == SIZE_MAX ? 0 : n;
}

/* Returns input `i` of an operation; NULL if it has fewer inputs or the input is omitted. */
static const struct np_operand *input_of(const struct np_graph *graph,
                                         const struct np_operation *operation, uint32_t i) {
  if (i >= operation->n_inputs) {
    return NULL;
  }
  const struct np_operand *operand = &graph->operands[operation->inputs[i]];
  return operand->lifetime == NP_NO_VALUE ? NULL : operand;
}

/* Returns the product of dimensions [first, last) of input `i`; 1 if there are none. */
static uint64_t dims_of(const struct np_graph *graph, const struct np_operation *operation,
                        uint32_t i, uint32_t first, uint32_t last) {
  const struct np_operand *operand = input_of(graph, operation, i);
  uint64_t product = 1;
  for (uint32_t d = first; operand && d < last && d < operand->rank; d++) {
    product = times(product, operand->dims[d]);
  }
  return product;
}

/* Returns the value of a constant scalar of four bytes or one, `fallback` if it is not known. */
static int32_t scalar_of(const struct np_graph *graph, const struct np_operation *operation,
                         uint32_t i, int32_t fallback) {
  const struct np_operand *operand = input_of(graph, operation, i);
  if (!operand || operand->lifetime != NP_CONSTANT || !operand->value) {
    return fallback;
  }
  if (operand->type == NP_TYPE_INT32 && operand->length >= sizeof(int32_t)) {
    const unsigned char *bytes = operand->value; /* in a file, so possibly not aligned */
    int32_t value;
    unsigned char *to = (unsigned char *)&value;
    for (size_t b = 0; b < sizeof value; b++) {
      to[b] = bytes[b];
    }
    return value;
  }
  if (operand->type == NP_TYPE_BOOL && operand->length >= 1) {
    return *(const unsigned char *)operand->value != 0;
  }
  return fallback;
}

#define RANGE(first, last) (((UINT64_C(1) << ((last) - (first) + 1)) - 1) << (first))

/* The inputs of a recurrent operation that are weights, a bit each; 0 for other operations. */
static uint64_t weights_of(int32_t code) {
  switch (code) {
  case ANEURALNETWORKS_LSTM:
  case ANEURALNETWORKS_UNIDIRECTIONAL_SEQUENCE_LSTM:
  case ANEURALNETWORKS_QUANTIZED_LSTM: /* to gates from input and state, peepholes, projection */
    return RANGE(1, 11) | RANGE(16, 16);
  case ANEURALNETWORKS_QUANTIZED_16BIT_LSTM:
    return RANGE(1, 8);
  case ANEURALNETWORKS_BIDIRECTIONAL_SEQUENCE_LSTM: /* forward, backward, auxiliary input's */
    return RANGE(1, 11) | RANGE(16, 16) | RANGE(18, 28) | RANGE(33, 33) | RANGE(40, 47);
  case ANEURALNETWORKS_RNN:
  case ANEURALNETWORKS_UNIDIRECTIONAL_SEQUENCE_RNN:
  case ANEURALNETWORKS_SVDF:
    return RANGE(1, 2);
  case ANEURALNETWORKS_BIDIRECTIONAL_SEQUENCE_RNN:
    return RANGE(1, 2) | RANGE(5, 6) | RANGE(10, 11);
  default:
    return 0;
  }
}

/* Counts every weight once for each batch and time step: all dimensions of the input except the
 * last. */
static uint64_t recurrent_macs(const struct np_graph *graph, const struct np_operation *operation,
                               uint64_t weights) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < operation->n_inputs && i < 64; i++) {
    const struct np_operand *operand = input_of(graph, operation, i);
    if ((weights >> i & 1) != 0 && operand && np_type_is_tensor(operand->type)) {
      sum = plus(sum, elements_of(operand));
    }
  }
  const struct np_operand *input = input_of(graph, operation, 0);
  const uint32_t rank = input ? input->rank : 0;
  return times(sum, dims_of(graph, operation, 0, 0, rank > 0 ? rank - 1 : 0));
}

/* Returns whether an operation's work depends on the elements it reads, not on those it writes. */
static int reads_more_than_it_writes(int32_t code) {
  switch (code) {
  case ANEURALNETWORKS_ARGMAX:
  case ANEURALNETWORKS_ARGMIN:
  case ANEURALNETWORKS_BOX_WITH_NMS_LIMIT:
  case ANEURALNETWORKS_DETECTION_POSTPROCESSING:
  case ANEURALNETWORKS_GENERATE_PROPOSALS:
  case ANEURALNETWORKS_HEATMAP_MAX_KEYPOINT:
  case ANEURALNETWORKS_REDUCE_ALL:
  case ANEURALNETWORKS_REDUCE_ANY:
  case ANEURALNETWORKS_REDUCE_MAX:
  case ANEURALNETWORKS_REDUCE_MIN:
  case ANEURALNETWORKS_REDUCE_PROD:
  case ANEURALNETWORKS_REDUCE_SUM:
  case ANEURALNETWORKS_TOPK_V2:
    return 1;
  default:
    return 0;
  }
}

/* The length of the rows that BATCH_MATMUL multiplies. */
static uint64_t common_dimension(const struct np_graph *graph,
                                 const struct np_operation *operation) {
  const struct np_operand *left = input_of(graph, operation, 0);
  if (!left || left->rank < 2) {
    return 1;
  }
  const uint32_t turned = scalar_of(graph, operation, 2, 0) != 0;
  return left->dims[left->rank - 1 - turned];
}

/* Returns the samples that ROI_ALIGN takes for an output element; 0 means as many as the region
 * needs, which depends on its values, and is counted as one. */
static uint64_t samples_of(const struct np_graph *graph, const struct np_operation *operation) {
  const int32_t height = scalar_of(graph, operation, 7, 1);
  const int32_t width = scalar_of(graph, operation, 8, 1);
  return times((uint64_t)(height > 0 ? height : 1), (uint64_t)(width > 0 ? width : 1));
}

static uint64_t macs_of(const struct np_graph *graph, const struct np_operation *operation,
                        uint64_t elements) {
  const uint64_t weights = weights_of(operation->code);
  const struct np_operand *first = input_of(graph, operation, 0);
  const struct np_operand *second = input_of(graph, operation, 1);
  const uint64_t read = first ? elements_of(first) : 0;
  if (weights != 0) {
    return recurrent_macs(graph, operation, weights);
  }
  if (reads_more_than_it_writes(operation->code)) {
    return read > elements ? read : elements;
  }
  switch (operation->code) {
  case ANEURALNETWORKS_CONV_2D:
  case ANEURALNETWORKS_GROUPED_CONV_2D: /* [depth_out, height, width, depth_in of the group] */
    return times(elements, dims_of(graph, operation, 1, 1, NP_MAX_RANK));
  case ANEURALNETWORKS_DEPTHWISE_CONV_2D: /* [1, height, width, depth_out] */
    return times(elements, second && second->rank == 4 ? dims_of(graph, operation, 1, 1, 3) : 1);
  case ANEURALNETWORKS_FULLY_CONNECTED: /* [units, inputs] */
    return times(elements, second && second->rank == 2 ? second->dims[1] : 1);
  case ANEURALNETWORKS_TRANSPOSE_CONV_2D: /* [depth_out, height, width, depth_in] */
    return times(read, dims_of(graph, operation, 1, 0, 3));
  case ANEURALNETWORKS_BATCH_MATMUL:
    return times(elements, common_dimension(graph, operation));
  case ANEURALNETWORKS_ROI_ALIGN:
    return times(elements, times(4, samples_of(graph, operation)));
  default:
    return elements;
  }
}

static struct np_work sum_of(struct np_work a, const struct np_work *b) {
  a.macs = plus(a.macs, b->macs);
  a.input_bytes = plus(a.input_bytes, b->input_bytes);
  a.output_bytes = plus(a.output_bytes, b->output_bytes);
  a.constant_bytes = plus(a.constant_bytes, b->constant_bytes);
  return a;
}

static struct np_work own_work(const struct np_graph *graph, const struct np_operation *one) {
  struct np_work work = {0};
  uint64_t elements = 0;
  for (uint32_t i = one->n_outputs; i-- > 0;) {
    const struct np_operand *operand = &graph->operands[one->outputs[i]];
    elements = plus(elements, elements_of(operand));
    work.output_bytes = plus(work.output_bytes, bytes_of(operand));
    work.type = operand->type;
  }
  for (uint32_t i = one->n_inputs; i-- > 0;) {
    const struct np_operand *operand = input_of(graph, one, i);
    if (!operand || !np_type_is_tensor(operand->type)) {
      continue;
    }
    uint64_t *bytes = operand->lifetime == NP_CONSTANT ? &work.constant_bytes : &work.input_bytes;
    *bytes = plus(*bytes, bytes_of(operand));
    work.type = operand->type;
  }
  work.macs = macs_of(graph, one, elements);
  return work;
}

/* Returns the total work of the model that is an input of an operation. Models contain only
 * finished models, so this ends; `depth` is for graphs from elsewhere. */
static struct np_work model_work(const struct np_graph *graph, const struct np_operation *one,
                                 uint32_t input, uint32_t depth);

/* Deeper than any real model. */
#define MAX_DEPTH 8u

static struct np_work any_work(const struct np_graph *graph, uint32_t operation, uint32_t depth) {
  const struct np_operation *one = &graph->operations[operation];
  if (one->code == ANEURALNETWORKS_IF) { /* condition, then, else, ... */
    const struct np_work yes = model_work(graph, one, 1, depth);
    const struct np_work no = model_work(graph, one, 2, depth);
    return yes.macs >= no.macs ? yes : no;
  }
  if (one->code == ANEURALNETWORKS_WHILE) { /* condition, body, ... */
    const struct np_work condition = model_work(graph, one, 0, depth);
    const struct np_work body = model_work(graph, one, 1, depth);
    return sum_of(body, &condition);
  }
  return own_work(graph, one);
}

static struct np_work model_work(const struct np_graph *graph, const struct np_operation *one,
                                 uint32_t input, uint32_t depth) {
  struct np_work sum = {0};
  const struct np_operand *operand = input_of(graph, one, input);
  if (depth == 0 || !operand || operand->type != NP_TYPE_MODEL || !operand->value) {
    return sum;
  }
  const struct np_graph *model = operand->value;
  for (uint32_t k = 0; k < model->n_operations; k++) {
    const struct np_work work = any_work(model, k, depth - 1);
    sum = sum_of(sum, &work);
    if (k == 0) {
      sum.type = work.type;
    }
  }
  return sum;
}

struct np_work np_operation_work(const struct np_graph *graph, uint32_t operation) {
  if (operation >= graph->n_operations) {
    return (struct np_work){0};
  }
  return any_work(graph, operation, MAX_DEPTH);
}
