/* Pass "half": arithmetic on FLOAT16 becomes arithmetic on FLOAT32 between casts.
 *
 *   c = ADD(a, b)        all FLOAT16
 * becomes
 *   a' = CAST(a), b' = CAST(b), c' = ADD(a', b'), c = CAST(c')
 *
 * so that each result is rounded to FLOAT16 once, as Android's reference does it, and kernels need
 * no half precision. Casts of one operand are shared; those of constants fold in the next pass.
 * Kernels that only move values take FLOAT16 as it is. */
#include <stdlib.h>
#include <string.h>

#include "kernels/np_half.h"
#include "lower/np_lower.h"

struct half_pass {
  struct np_lowered *lowered;
  uint32_t *twins; /* [n] the FLOAT32 twin of an operand, NP_NO_OPERAND: none yet */
  uint32_t n;
};

static int is_half(int32_t type) {
  return type == NP_TYPE_TENSOR_FLOAT16 || type == NP_TYPE_FLOAT16;
}

/* Returns whether an operation must be lowered: it has FLOAT16 operands that its kernel does not
 * support. */
static int needs_casts(const struct np_graph *graph, const struct np_operation *operation) {
  const struct np_kernel *kernel = np_kernel_of(operation->code);
  const struct np_op_info *info = np_op_info(operation->code);
  if (kernel == NULL || info == NULL || info->n_data == 0 ||
      (kernel->types & NP_BIT(NP_TYPE_TENSOR_FLOAT16)) != 0) {
    return 0;
  }
  for (uint32_t i = 0; i < operation->n_inputs; i++) {
    if (is_half(graph->operands[operation->inputs[i]].type)) {
      return 1;
    }
  }
  for (uint32_t i = 0; i < operation->n_outputs; i++) {
    if (is_half(graph->operands[operation->outputs[i]].type)) {
      return 1;
    }
  }
  return 0;
}

/* Adds an operand like a FLOAT16 one, but of FLOAT32. */
static uint32_t widened(struct half_pass *pass, uint32_t operand) {
  struct np_operand twin = pass->lowered->graph.operands[operand];
  twin.type = twin.type == NP_TYPE_FLOAT16 ? NP_TYPE_FLOAT32 : NP_TYPE_TENSOR_FLOAT32;
  if (twin.lifetime == NP_CONSTANT && twin.type == NP_TYPE_FLOAT32) {
    uint16_t half;
    memcpy(&half, twin.value, sizeof half);
    const float value = np_half_to_float(half);
    return np_add_constant(pass->lowered, NP_TYPE_FLOAT32, 0, NULL, &value, sizeof value);
  }
  if (twin.lifetime != NP_NO_VALUE) {
    twin.lifetime = NP_TEMPORARY;
  }
  twin.value = NULL;
  twin.length = 0;
  return np_add_operand(pass->lowered, &twin);
}

/* Returns in *twin the operand to read instead of a FLOAT16 one; emits its cast once. */
static enum np_status read_twin(struct half_pass *pass, uint32_t operand, uint32_t *twin) {
  const struct np_operand *half = &pass->lowered->graph.operands[operand];
  *twin = operand;
  if (!is_half(half->type)) {
    return NP_OK;
  }
  *twin = pass->twins[operand];
  if (*twin != NP_NO_OPERAND) {
    return NP_OK;
  }
  const int folded = half->lifetime == NP_NO_VALUE ||
                     (half->lifetime == NP_CONSTANT && half->type == NP_TYPE_FLOAT16);
  *twin = pass->twins[operand] = widened(pass, operand);
  if (*twin == NP_NO_OPERAND) {
    return NP_NO_MEMORY;
  }
  return folded ? NP_OK : np_emit(pass->lowered, ANEURALNETWORKS_CAST, &operand, 1, twin, 1);
}

static enum np_status lower_one(struct half_pass *pass, const struct np_operation *operation) {
  struct np_lowered *lowered = pass->lowered;
  const uint32_t n = operation->n_inputs;
  uint32_t *lists = np_lowered_alloc(lowered, ((size_t)n + operation->n_outputs) * sizeof *lists);
  if (lists == NULL) {
    return NP_NO_MEMORY;
  }
  for (uint32_t i = 0; i < n; i++) {
    NP_TRY(read_twin(pass, operation->inputs[i], &lists[i]));
  }
  for (uint32_t i = 0; i < operation->n_outputs; i++) {
    const uint32_t operand = operation->outputs[i];
    const int half = is_half(lowered->graph.operands[operand].type);
    lists[n + i] = half ? widened(pass, operand) : operand;
    if (lists[n + i] == NP_NO_OPERAND) {
      return NP_NO_MEMORY;
    }
  }
  NP_TRY(np_emit(lowered, operation->code, lists, n, lists + n, operation->n_outputs));
  for (uint32_t i = 0; i < operation->n_outputs; i++) {
    if (lists[n + i] != operation->outputs[i]) {
      NP_TRY(np_emit(lowered, ANEURALNETWORKS_CAST, &lists[n + i], 1, &operation->outputs[i], 1));
    }
  }
  return NP_OK;
}

enum np_status np_lower_half(struct np_lowered *lowered, struct np_message *why) {
  (void)why;
  struct half_pass pass = {.lowered = lowered, .n = lowered->graph.n_operands};
  pass.twins = malloc(((size_t)pass.n + 1) * sizeof *pass.twins);
  if (pass.twins == NULL) {
    return NP_NO_MEMORY;
  }
  for (uint32_t i = 0; i < pass.n; i++) {
    pass.twins[i] = NP_NO_OPERAND;
  }
  enum np_status status = NP_OK;
  for (uint32_t o = 0; status == NP_OK && o < lowered->n_from; o++) {
    const struct np_operation *operation = &lowered->from[o];
    status = needs_casts(&lowered->graph, operation) ? lower_one(&pass, operation)
                                                     : np_emit_same(lowered, operation);
  }
  free(pass.twins);
  return status;
}
