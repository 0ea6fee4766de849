/* FILL: one value everywhere. RANK: the number of dimensions. */
#include <string.h>

#include "kernels/np_kernel.h"

/* ---- FILL: dimensions, value ---- */

/* Returns the tensor type whose elements have a scalar's type. */
static int32_t tensor_of(int32_t scalar) {
  return scalar == NP_TYPE_FLOAT16   ? NP_TYPE_TENSOR_FLOAT16
         : scalar == NP_TYPE_FLOAT32 ? NP_TYPE_TENSOR_FLOAT32
                                     : NP_TYPE_TENSOR_INT32;
}

static enum np_status fill_infer(const struct np_call *call) {
  const int32_t *values;
  size_t n;
  uint32_t dims[NP_MAX_RANK];
  if (tensor_of(np_in(call, 1)->type) != np_out(call, 0)->type) {
    return np_fail(call, NP_BAD_MODEL, "the value is %s, and the output %s",
                   np_type_name(np_in(call, 1)->type), np_type_name(np_out(call, 0)->type));
  }
  NP_TRY(np_read_list(call, 0, &values, &n));
  if (np_in(call, 0)->rank != 1 || n > NP_MAX_RANK) {
    return np_fail(call, NP_BAD_MODEL, "input 0 lists %zu dimensions in rank %u, wanted up to %u",
                   n, np_in(call, 0)->rank, NP_MAX_RANK);
  }
  for (size_t i = 0; i < n; i++) {
    if (values[i] < 0) {
      return np_fail(call, NP_BAD_MODEL, "dimension %zu is %d, wanted 0 or more", i, values[i]);
    }
    dims[i] = (uint32_t)values[i];
  }
  return np_set_shape(call, 0, (uint32_t)n, dims);
}

static enum np_status fill_run(const struct np_call *call) {
  const struct np_tensor *output = np_out(call, 0);
  const size_t size = np_type_bytes(output->type);
  for (size_t i = 0; i < output->elements; i++) {
    memcpy((unsigned char *)output->room + i * size, np_in(call, 1)->data, size);
  }
  return NP_OK;
}

const struct np_kernel np_kernel_FILL = {.types = NP_MOVES, .infer = fill_infer, .run = fill_run};

/* ---- RANK ---- */

static enum np_status rank_infer(const struct np_call *call) {
  const uint32_t none = 0;
  return np_in(call, 0)->known ? np_set_shape(call, 0, 0, &none) : NP_MISSING;
}

static enum np_status rank_run(const struct np_call *call) {
  const int32_t rank = (int32_t)np_in(call, 0)->rank;
  memcpy(np_out(call, 0)->room, &rank, sizeof rank);
  return NP_OK;
}

const struct np_kernel np_kernel_RANK = {
    .types = NP_MOVES | NP_BIT(NP_TYPE_TENSOR_BOOL8) | NP_BIT(NP_TYPE_TENSOR_QUANT16_SYMM) |
             NP_BIT(NP_TYPE_TENSOR_QUANT16_ASYMM) | NP_BIT(NP_TYPE_TENSOR_QUANT8_SYMM) |
             NP_BIT(NP_TYPE_TENSOR_QUANT8_SYMM_PER_CHANNEL),
    .infer = rank_infer,
    .run = rank_run};
