/* FULLY_CONNECTED: the input, flattened to [batch, input_size], times weights [units,
 * input_size]. */
#include <stdlib.h>
#include <string.h>

#include "kernels/np_gemm.h"
#include "kernels/np_qgemm.h"
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
  return np_q_check_weights(call, 0);
}

static enum np_status infer(const struct np_call *call) {
  struct linear linear = {0};
  NP_TRY(read_linear(call, &linear));
  const uint32_t dims[2] = {(uint32_t)linear.batches, (uint32_t)linear.units};
  return np_set_shape(call, 0, 2, dims);
}

static size_t packed_bytes(const struct np_call *call, size_t units, size_t inputs) {
  return np_q_data(call) ? np_mul_saturated(np_q_packed(units, inputs), sizeof(int16_t))
                         : np_mul_saturated(np_gemm_packed_floats(np_gemm_engine(), units, inputs),
                                            sizeof(float));
}

static void pack(const struct np_call *call, size_t units, size_t inputs, void *packed) {
  const void *weights = np_in(call, 1)->data;
  if (np_q_data(call)) {
    np_q_pack(np_in_operand(call, 1), weights, units, inputs, packed);
  } else {
    np_gemm_pack(np_gemm_engine(), units, inputs, weights, np_in(call, 2)->data, packed);
  }
}

static enum np_status prepare(const struct np_call *call, void **state) {
  const struct np_tensor *weights = np_in(call, 1);
  const struct np_tensor *bias = np_in(call, 2);
  if (weights->data == NULL || bias->data == NULL || weights->rank != 2 || weights->elements == 0 ||
      bias->elements != weights->dims[0]) {
    return NP_OK; /* packed, or refused, at each run */
  }
  const size_t bytes = packed_bytes(call, weights->dims[0], weights->dims[1]);
  *state = bytes == SIZE_MAX ? NULL : malloc(bytes);
  if (*state == NULL) {
    return np_fail(call, NP_NO_MEMORY, "no memory for %zu bytes of packed weights", bytes);
  }
  pack(call, weights->dims[0], weights->dims[1], *state);
  return NP_OK;
}

/* Offsets of the parts of the working memory; all except `packed` are for quantised data. */
struct parts {
  size_t packed; /* weights, if they are not constant */
  size_t multipliers;
  size_t rows; /* two rows of input */
  size_t sums;
  size_t total;
};

static struct parts find_parts(const struct np_call *call, const struct linear *linear) {
  struct parts parts = {0};
  if (call->state == NULL) {
    parts.total = np_align(packed_bytes(call, linear->units, linear->inputs));
  }
  if (!np_q_data(call)) {
    return parts;
  }
  parts.multipliers = parts.total;
  parts.rows = np_add_saturated(
      parts.multipliers, np_align(np_mul_saturated(linear->units, sizeof(struct np_multiplier))));
  parts.sums = np_add_saturated(
      parts.rows,
      np_align(np_mul_saturated(2, np_mul_saturated(np_q_row(linear->inputs), sizeof(int16_t)))));
  parts.total = np_add_saturated(
      parts.sums, np_align(np_mul_saturated(2, np_mul_saturated(linear->units, sizeof(int32_t)))));
  return parts;
}

static size_t scratch(const struct np_call *call) {
  struct linear linear = {0};
  return read_linear(call, &linear) == NP_OK ? find_parts(call, &linear).total : 0;
}

static enum np_status run_quant(const struct np_call *call, const struct linear *linear,
                                const struct parts *parts, const int16_t *packed, int32_t fuse) {
  unsigned char *room = call->scratch;
  struct np_multiplier *multipliers = (struct np_multiplier *)(void *)(room + parts->multipliers);
  int16_t *rows = (int16_t *)(void *)(room + parts->rows);
  int32_t *sums = (int32_t *)(void *)(room + parts->sums);
  const unsigned char *input = np_in(call, 0)->data;
  unsigned char *out = np_out(call, 0)->room;
  const size_t row = np_q_row(linear->inputs);
  struct np_q_finish finish = {.bias = np_in(call, 2)->data, .multipliers = multipliers};
  NP_TRY(np_q_finish_of(call, fuse, &finish));
  np_q_multipliers(call, linear->units, multipliers);
  memset(rows, 0, 2 * row * sizeof *rows);
  for (size_t b = 0; b < linear->batches; b += 2) {
    const size_t n = linear->batches - b < 2 ? 1 : 2;
    for (size_t r = 0; r < n; r++) {
      np_q_widen(np_in_operand(call, 0), input + (b + r) * linear->inputs, linear->inputs,
                 rows + r * row);
    }
    np_q_gemm(n, linear->units, linear->inputs, rows, packed, sums);
    for (size_t r = 0; r < n; r++) {
      np_q_finish_row(&finish, linear->units, sums + r * linear->units,
                      out + (b + r) * linear->units);
    }
  }
  return NP_OK;
}

static enum np_status run(const struct np_call *call) {
  struct linear linear = {0};
  int32_t fuse;
  float low, high;
  NP_TRY(read_linear(call, &linear));
  NP_TRY(np_read_i32(call, 3, &fuse));
  NP_TRY(np_fuse_limits(call, fuse, &low, &high));
  const struct parts parts = find_parts(call, &linear);
  const void *packed = call->state;
  if (packed == NULL) {
    pack(call, linear.units, linear.inputs, (unsigned char *)call->scratch + parts.packed);
    packed = (unsigned char *)call->scratch + parts.packed;
  }
  if (np_q_data(call)) {
    return run_quant(call, &linear, &parts, packed, fuse);
  }
  np_gemm(np_gemm_engine(), linear.batches, linear.units, linear.inputs, np_in(call, 0)->data,
          linear.inputs, packed, np_out(call, 0)->room, linear.units, low, high);
  return NP_OK;
}

const struct np_kernel np_kernel_FULLY_CONNECTED = {.types = NP_FLOATS | NP_QUANT8,
                                                    .infer = infer,
                                                    .prepare = prepare,
                                                    .scratch = scratch,
                                                    .run = run};
