/* LOGICAL_AND and LOGICAL_OR of two BOOL8 tensors that broadcast, and LOGICAL_NOT of one. Any
 * non-zero byte is true; results are 0 and 1. */
#include "kernels/np_broadcast.h"

static void and_row(const void *how, const void *first, size_t step_a, const void *second,
                    size_t step_b, void *result, size_t n) {
  const unsigned char *a = first;
  const unsigned char *b = second;
  unsigned char *out = result;
  (void)how;
  for (size_t i = 0; i < n; i++) {
    out[i] = (unsigned char)(a[i * step_a] != 0 && b[i * step_b] != 0);
  }
}

static void or_row(const void *how, const void *first, size_t step_a, const void *second,
                   size_t step_b, void *result, size_t n) {
  const unsigned char *a = first;
  const unsigned char *b = second;
  unsigned char *out = result;
  (void)how;
  for (size_t i = 0; i < n; i++) {
    out[i] = (unsigned char)(a[i * step_a] != 0 || b[i * step_b] != 0);
  }
}

static enum np_status run_and(const struct np_call *call) {
  np_broadcast_run(call, and_row, NULL);
  return NP_OK;
}

static enum np_status run_or(const struct np_call *call) {
  np_broadcast_run(call, or_row, NULL);
  return NP_OK;
}

static enum np_status infer_not(const struct np_call *call) {
  const struct np_tensor *input = np_in(call, 0);
  return input->known ? np_set_shape(call, 0, input->rank, input->dims) : NP_MISSING;
}

static enum np_status run_not(const struct np_call *call) {
  const struct np_tensor *input = np_in(call, 0);
  const unsigned char *in = input->data;
  unsigned char *out = np_out(call, 0)->room;
  for (size_t i = 0; i < input->elements; i++) {
    out[i] = (unsigned char)(in[i] == 0);
  }
  return NP_OK;
}

const struct np_kernel np_kernel_LOGICAL_AND = {
    .types = NP_BIT(NP_TYPE_TENSOR_BOOL8), .infer = np_broadcast_infer, .run = run_and};
const struct np_kernel np_kernel_LOGICAL_OR = {
    .types = NP_BIT(NP_TYPE_TENSOR_BOOL8), .infer = np_broadcast_infer, .run = run_or};
const struct np_kernel np_kernel_LOGICAL_NOT = {
    .types = NP_BIT(NP_TYPE_TENSOR_BOOL8), .infer = infer_not, .run = run_not};
