/* Access to operands, shared by all kernels. */
#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "kernels/np_kernel.h"
#include "np_executor.h"

enum np_status np_fail(const struct np_call *call, enum np_status status, const char *format, ...) {
  if (call->why == NULL) {
    return status;
  }
  char sentence[sizeof call->why->text];
  va_list arguments;
  va_start(arguments, format);
  if (vsnprintf(sentence, sizeof sentence, format, arguments) < 0) {
    sentence[0] = '\0';
  }
  va_end(arguments);
  np_message_set(call->why, "operation %u (%s): %s", call->index,
                 np_operation_name(call->operation->code), sentence);
  return status;
}

struct np_tensor *np_in(const struct np_call *call, uint32_t input) {
  return &call->tensors[call->operation->inputs[input]];
}

struct np_tensor *np_out(const struct np_call *call, uint32_t output) {
  return &call->tensors[call->operation->outputs[output]];
}

int np_has(const struct np_call *call, uint32_t input) {
  return input < call->operation->n_inputs && !np_in(call, input)->omitted;
}

const struct np_operand *np_in_operand(const struct np_call *call, uint32_t input) {
  return &call->graph->operands[call->operation->inputs[input]];
}

const struct np_operand *np_out_operand(const struct np_call *call, uint32_t output) {
  return &call->graph->operands[call->operation->outputs[output]];
}

enum np_status np_read_i32(const struct np_call *call, uint32_t input, int32_t *value) {
  const struct np_tensor *tensor = np_in(call, input);
  if (tensor->data == NULL) {
    return NP_MISSING;
  }
  memcpy(value, tensor->data, sizeof *value);
  return NP_OK;
}

enum np_status np_read_f32(const struct np_call *call, uint32_t input, float *value) {
  const struct np_tensor *tensor = np_in(call, input);
  if (tensor->data == NULL) {
    return NP_MISSING;
  }
  memcpy(value, tensor->data, sizeof *value);
  return NP_OK;
}

enum np_status np_read_bool(const struct np_call *call, uint32_t input, int *value) {
  const struct np_tensor *tensor = np_in(call, input);
  if (tensor->data == NULL) {
    return NP_MISSING;
  }
  *value = *(const unsigned char *)tensor->data != 0;
  return NP_OK;
}

enum np_status np_read_list(const struct np_call *call, uint32_t input, const int32_t **values,
                            size_t *n) {
  const struct np_tensor *tensor = np_in(call, input);
  if (!tensor->known || tensor->data == NULL) {
    return NP_MISSING;
  }
  *values = tensor->data;
  *n = tensor->elements;
  return NP_OK;
}

size_t np_mul_saturated(size_t a, size_t b) {
  return b != 0 && a > SIZE_MAX / b ? SIZE_MAX : a * b;
}

size_t np_add_saturated(size_t a, size_t b) { return a > SIZE_MAX - b ? SIZE_MAX : a + b; }

enum np_status np_set_bound(const struct np_call *call, uint32_t output, uint32_t rank,
                            const uint32_t *dims) {
  const uint32_t operand = call->operation->outputs[output];
  struct np_tensor *tensor = &call->tensors[operand];
  if (rank > NP_MAX_RANK) {
    return np_fail(call, NP_UNSUPPORTED, "output %u has rank %u, this engine stops at %u", output,
                   rank, NP_MAX_RANK);
  }
  size_t elements = 1;
  for (uint32_t i = 0; i < rank; i++) {
    elements = np_mul_saturated(elements, dims[i]);
  }
  if (np_mul_saturated(elements, np_type_bytes(tensor->type)) > PTRDIFF_MAX / 2) {
    return np_fail(call, NP_UNSUPPORTED, "output %u (operand %u) is too large for this machine",
                   output, operand);
  }
  tensor->rank = rank;
  memcpy(tensor->dims, dims, rank * sizeof *dims);
  tensor->elements = elements;
  tensor->known = 1;
  return NP_OK;
}

enum np_status np_set_shape(const struct np_call *call, uint32_t output, uint32_t rank,
                            const uint32_t *dims) {
  const uint32_t operand = call->operation->outputs[output];
  const struct np_operand *declared = &call->graph->operands[operand];
  if (declared->rank != 0 && declared->rank != rank) {
    return np_fail(call, NP_BAD_MODEL, "output %u (operand %u) is declared with rank %u, wanted %u",
                   output, operand, declared->rank, rank);
  }
  for (uint32_t i = 0; declared->rank != 0 && i < rank; i++) {
    if (declared->dims[i] != 0 && declared->dims[i] != dims[i]) {
      return np_fail(call, NP_BAD_MODEL,
                     "output %u (operand %u) is declared with %u in dimension %u, wanted %u",
                     output, operand, declared->dims[i], i, dims[i]);
    }
  }
  return np_set_bound(call, output, rank, dims);
}

enum np_status np_fuse_limits(const struct np_call *call, int32_t fuse, float *low, float *high) {
  const int finite = call->options != NULL && call->options->finite &&
                     np_out_operand(call, 0)->type == NP_TYPE_TENSOR_FLOAT32;
  *low = finite ? -FLT_MAX : -INFINITY;
  *high = finite ? FLT_MAX : INFINITY;
  switch (fuse) {
  case ANEURALNETWORKS_FUSED_NONE:
    return NP_OK;
  case ANEURALNETWORKS_FUSED_RELU:
    *low = 0.0f;
    return NP_OK;
  case ANEURALNETWORKS_FUSED_RELU1:
    *low = -1.0f;
    *high = 1.0f;
    return NP_OK;
  case ANEURALNETWORKS_FUSED_RELU6:
    *low = 0.0f;
    *high = 6.0f;
    return NP_OK;
  default:
    return np_fail(call, NP_BAD_MODEL, "fuse code %d, wanted 0, 1, 2 or 3", fuse);
  }
}

void np_clamp(float *values, size_t n, float low, float high) {
  if (low == -INFINITY && high == INFINITY) {
    return;
  }
  for (size_t i = 0; i < n; i++) {
    const float floored = values[i] < low ? low : values[i];
    values[i] = floored > high ? high : floored;
  }
}

enum np_status np_axis(const struct np_call *call, int32_t value, uint32_t rank, uint32_t *axis) {
  const int64_t wrapped = value < 0 ? (int64_t)value + rank : value;
  if (wrapped < 0 || wrapped >= (int64_t)rank) {
    return np_fail(call, NP_BAD_MODEL, "axis %d, wanted one from -%u to %d", value, rank,
                   (int)rank - 1);
  }
  *axis = (uint32_t)wrapped;
  return NP_OK;
}
