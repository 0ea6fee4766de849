/* FULLY_CONNECTED: the input flattened to [batch, input_size], times weights [units, input_size].
 */
#include <stdlib.h>

#include "kernels/np_families.h"
#include "kernels/np_gemm.h"
#include "plan/np_plan.h"

struct linear {
  size_t batches;
  size_t inputs;
  size_t units;
};

static enum np_status read_linear(const struct np_call *call, struct linear *linear) {
  const struct np_tensor *input = np_in(call, 0);
  const struct np_tensor *weights = np_in(call, 1);
  const struct np_tensor *bias = np_in(call, 2);
  if (!input->known || !weights->known || !bias->known) {
    return NP_MISSING;
  }
  if (weights->rank != 2 || weights->elements == 0) {
    return np_fail(call, NP_BAD_MODEL, "weights (input 1) have %zu elements of rank %u, wanted 2",
                   weights->elements, weights->rank);
  }
  linear->units = weights->dims[0];
  linear->inputs = weights->dims[1];
  if (input->rank < 2 || input->elements % linear->inputs != 0) {
    return np_fail(call, NP_BAD_MODEL,
                   "input 0 has %zu elements of rank %u, wanted rank 2 to 4 and a multiple of %zu",
                   input->elements, input->rank, linear->inputs);
  }
  linear->batches = input->elements / linear->inputs;
  if (linear->batches > UINT32_MAX) {
    return np_fail(call, NP_BAD_MODEL, "a batch of %zu is too large", linear->batches);
  }
  if (bias->rank != 1 || bias->elements != linear->units) {
    return np_fail(call, NP_BAD_MODEL, "bias (input 2) has %zu elements of rank %u, wanted [%zu]",
                   bias->elements, bias->rank, linear->units);
  }
  return NP_OK;
}

enum np_status np_linear_infer(const struct np_call *call) {
  struct linear linear = {0};
  NP_TRY(read_linear(call, &linear));
  const uint32_t dims[2] = {(uint32_t)linear.batches, (uint32_t)linear.units};
  return np_set_shape(call, 0, 2, dims);
}

static size_t packed_bytes(size_t units, size_t inputs) {
  return np_times(np_gemm_packed_floats(np_gemm_engine(), units, inputs), sizeof(float));
}

enum np_status np_linear_prepare(const struct np_call *call, void **state) {
  const struct np_tensor *weights = np_in(call, 1);
  const struct np_tensor *bias = np_in(call, 2);
  if (weights->data == NULL || bias->data == NULL || weights->rank != 2 ||
      bias->elements != weights->dims[0]) {
    return NP_OK; /* packed, or refused, at each run */
  }
  const size_t bytes = packed_bytes(weights->dims[0], weights->dims[1]);
  *state = bytes == SIZE_MAX ? NULL : malloc(bytes);
  if (*state == NULL) {
    return np_fail(call, NP_NO_MEMORY, "no memory for %zu bytes of packed weights", bytes);
  }
  np_gemm_pack(np_gemm_engine(), weights->dims[0], weights->dims[1], weights->data, bias->data,
               *state);
  return NP_OK;
}

size_t np_linear_scratch(const struct np_call *call) {
  struct linear linear = {0};
  if (call->state != NULL || read_linear(call, &linear) != NP_OK) {
    return 0;
  }
  return packed_bytes(linear.units, linear.inputs);
}

enum np_status np_linear_run(const struct np_call *call) {
  struct linear linear = {0};
  int32_t fuse;
  float low, high;
  NP_TRY(read_linear(call, &linear));
  NP_TRY(np_read_i32(call, 3, &fuse));
  NP_TRY(np_fuse_limits(call, fuse, &low, &high));
  const struct np_gemm_engine *engine = np_gemm_engine();
  const float *packed = call->state;
  if (packed == NULL) {
    np_gemm_pack(engine, linear.units, linear.inputs, np_in(call, 1)->data, np_in(call, 2)->data,
                 call->scratch);
    packed = call->scratch;
  }
  np_gemm(engine, linear.batches, linear.units, linear.inputs, np_in(call, 0)->data, linear.inputs,
          packed, np_out(call, 0)->room, linear.units, low, high);
  return NP_OK;
}

const struct np_kernel np_kernel_FULLY_CONNECTED = {.types = NP_FLOATS,
                                                    .infer = np_linear_infer,
                                                    .prepare = np_linear_prepare,
                                                    .scratch = np_linear_scratch,
                                                    .run = np_linear_run};
