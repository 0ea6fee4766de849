/* SELECT: elements of one tensor where a condition holds, of another where it does not; all three
 * have the same shape. Quantised values are requantised to the output. */
#include <string.h>

#include "kernels/np_quant.h"

/* Inputs: condition, input where it is true, input where it is false. */
static enum np_status select_infer(const struct np_call *call) {
  const struct np_tensor *condition = np_in(call, 0);
  for (uint32_t i = 0; i < 3; i++) {
    const struct np_tensor *input = np_in(call, i);
    if (!condition->known || !input->known) {
      return NP_MISSING;
    }
    if (input->rank != condition->rank ||
        memcmp(input->dims, condition->dims, input->rank * sizeof *input->dims) != 0) {
      return np_fail(call, NP_BAD_MODEL, "input %u has another shape than the condition", i);
    }
  }
  return np_set_shape(call, 0, condition->rank, condition->dims);
}

static void fill_table(const struct np_operand *from, const struct np_operand *to,
                       unsigned char *table) {
  for (size_t i = 0; i < 256; i++) {
    const unsigned char byte = (unsigned char)i;
    np_q_write(to->type, table, i, np_requantize(np_q_read(from->type, &byte, 0), from, to));
  }
}

static void select_quant(const struct np_call *call, size_t n) {
  const unsigned char *condition = np_in(call, 0)->data;
  const unsigned char *values[2] = {np_in(call, 2)->data, np_in(call, 1)->data};
  unsigned char *out = np_out(call, 0)->room;
  unsigned char tables[2][256];
  fill_table(np_in_operand(call, 2), np_out_operand(call, 0), tables[0]);
  fill_table(np_in_operand(call, 1), np_out_operand(call, 0), tables[1]);
  for (size_t i = 0; i < n; i++) {
    const int holds = condition[i] != 0;
    out[i] = tables[holds][values[holds][i]];
  }
}

/* Values of elements of type T. */
#define SELECT_EACH(T)                                                                             \
  for (size_t i = 0; i < output->elements; i++) {                                                  \
    ((T *)output->room)[i] = condition[i] != 0 ? ((const T *)a)[i] : ((const T *)b)[i];            \
  }

static enum np_status select_run(const struct np_call *call) {
  const struct np_tensor *output = np_out(call, 0);
  const unsigned char *condition = np_in(call, 0)->data;
  const void *a = np_in(call, 1)->data;
  const void *b = np_in(call, 2)->data;
  switch (output->type) {
  case NP_TYPE_TENSOR_FLOAT16:
    SELECT_EACH(uint16_t)
    break;
  case NP_TYPE_TENSOR_FLOAT32:
    SELECT_EACH(float)
    break;
  case NP_TYPE_TENSOR_INT32:
    SELECT_EACH(int32_t)
    break;
  default:
    select_quant(call, output->elements);
  }
  return NP_OK;
}

const struct np_kernel np_kernel_SELECT = {
    .types = NP_MOVES, .infer = select_infer, .run = select_run};
