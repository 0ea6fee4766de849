/* How much an operation computes and moves, from the shapes that the model declares. */
#include "kernels/np_kernel.h"
#include "np_executor.h"

static uint64_t bytes_of(const struct np_operand *operand) {
  const size_t bytes = np_operand_bytes(operand);
  return bytes == SIZE_MAX ? 0 : bytes;
}

/* Multiply-accumulates for each output element: the products summed into it. */
static uint64_t macs_per_element(const struct np_graph *graph,
                                 const struct np_operation *operation) {
  const uint32_t second = operation->n_inputs > 1 ? operation->inputs[1] : operation->inputs[0];
  const struct np_operand *weights = &graph->operands[second];
  uint64_t macs = 1;
  switch (operation->code) {
  case ANEURALNETWORKS_CONV_2D:
  case ANEURALNETWORKS_GROUPED_CONV_2D: /* [depth_out, height, width, depth_in of the group] */
    for (uint32_t i = 1; i < weights->rank; i++) {
      macs *= weights->dims[i];
    }
    return macs;
  case ANEURALNETWORKS_DEPTHWISE_CONV_2D: /* [1, height, width, depth_out] */
    return weights->rank == 4 ? (uint64_t)weights->dims[1] * weights->dims[2] : 1;
  case ANEURALNETWORKS_FULLY_CONNECTED: /* [units, inputs] */
    return weights->rank == 2 ? weights->dims[1] : 1;
  default:
    return 1;
  }
}

struct np_work np_operation_work(const struct np_graph *graph, uint32_t operation) {
  struct np_work work = {0};
  if (operation >= graph->n_operations) {
    return work;
  }
  const struct np_operation *one = &graph->operations[operation];
  uint64_t elements = 0;
  for (uint32_t i = 0; i < one->n_outputs; i++) {
    const struct np_operand *operand = &graph->operands[one->outputs[i]];
    const size_t n = np_operand_elements(operand);
    elements += n == SIZE_MAX ? 0 : n;
    work.output_bytes += bytes_of(operand);
  }
  for (uint32_t i = 0; i < one->n_inputs; i++) {
    const struct np_operand *operand = &graph->operands[one->inputs[i]];
    if (!np_type_is_tensor(operand->type) || operand->lifetime == NP_NO_VALUE) {
      continue;
    }
    if (operand->lifetime == NP_CONSTANT) {
      work.constant_bytes += bytes_of(operand);
    } else {
      work.input_bytes += bytes_of(operand);
    }
  }
  work.macs = elements * macs_per_element(graph, one);
  return work;
}
