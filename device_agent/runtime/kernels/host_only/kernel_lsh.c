/* LSH_PROJECTION: bits that similar inputs have in common.
 *
 * Each entry of the hash tensor [functions, bits] is a seed, and its bit is the sign of a sum over
 * the rows of the input: the fingerprint of the seed (as FLOAT32) followed by the row's bytes,
 * taken as a signed number, times the row's weight. */
#include <string.h>

#include "kernels/host_only/np_fingerprint.h"
#include "kernels/np_half.h"
#include "kernels/np_move.h"

enum { SPARSE_DEPRECATED = 1, DENSE = 2, SPARSE = 3 };

/* Inputs: hash, data, weights (optional), type. */
static enum np_status lsh_infer(const struct np_call *call) {
  const struct np_tensor *hash = np_in(call, 0);
  const struct np_tensor *data = np_in(call, 1);
  int32_t type;
  if (!hash->known || !data->known) {
    return NP_MISSING;
  }
  NP_TRY(np_read_i32(call, 3, &type));
  if (type != SPARSE_DEPRECATED && type != DENSE && type != SPARSE) {
    return np_fail(call, NP_BAD_MODEL, "projection type %d, wanted 1, 2 or 3", type);
  }
  if (hash->rank != 2 || hash->dims[1] > 32 || data->rank < 1) {
    return np_fail(call, NP_BAD_MODEL,
                   "a hash of rank %u (%u bits) of data of rank %u, wanted 2 (32 or less) and more"
                   " than 0",
                   hash->rank, hash->dims[1], data->rank);
  }
  const uint64_t length = type == DENSE ? (uint64_t)hash->dims[0] * hash->dims[1] : hash->dims[0];
  const uint32_t dims[1] = {(uint32_t)length};
  if (length > UINT32_MAX) {
    return np_fail(call, NP_BAD_MODEL, "a hash of %u functions is too large", hash->dims[0]);
  }
  return np_set_shape(call, 0, 1, dims);
}

static size_t row_bytes(const struct np_tensor *data) {
  return data->elements == 0 ? 0 : data->elements / data->dims[0] * np_type_bytes(data->type);
}

static size_t lsh_scratch(const struct np_call *call) {
  return np_add_saturated(sizeof(float), row_bytes(np_in(call, 1)));
}

static float float_at(const struct np_tensor *tensor, size_t i) {
  return tensor->type == NP_TYPE_TENSOR_FLOAT16
             ? np_half_to_float(((const uint16_t *)tensor->data)[i])
             : ((const float *)tensor->data)[i];
}

static uint32_t bit_of(const struct np_call *call, float seed) {
  const struct np_tensor *data = np_in(call, 1);
  const struct np_tensor *weights = np_has(call, 2) ? np_in(call, 2) : NULL;
  const size_t bytes = row_bytes(data);
  const size_t rows = bytes == 0 ? 0 : data->dims[0]; /* empty data have no bits */
  unsigned char *key = call->scratch;
  double sum = 0.0;
  memcpy(key, &seed, sizeof seed);
  for (size_t row = 0; row < rows; row++) {
    memcpy(key + sizeof seed, (const unsigned char *)data->data + row * bytes, bytes);
    const uint64_t bits = np_fingerprint(key, sizeof seed + bytes);
    int64_t number;
    memcpy(&number, &bits, sizeof number);
    sum += (weights == NULL ? 1.0 : (double)float_at(weights, row)) * (double)number;
  }
  return sum > 0.0;
}

static enum np_status check_weights(const struct np_call *call) {
  if (!np_has(call, 2)) {
    return NP_OK;
  }
  const struct np_tensor *weights = np_in(call, 2);
  if (weights->rank != 1 || weights->dims[0] != np_in(call, 1)->dims[0]) {
    return np_fail(call, NP_BAD_MODEL, "%zu weights of rank %u, wanted one for each of %u rows",
                   weights->elements, weights->rank, np_in(call, 1)->dims[0]);
  }
  return NP_OK;
}

static enum np_status lsh_run(const struct np_call *call) {
  const struct np_tensor *hash = np_in(call, 0);
  int32_t *out = np_out(call, 0)->room;
  int32_t type;
  NP_TRY(np_read_i32(call, 3, &type));
  NP_TRY(check_weights(call));
  const uint32_t bits = hash->dims[1];
  for (uint32_t i = 0; i < hash->dims[0]; i++) {
    uint32_t signature = 0;
    for (uint32_t j = 0; j < bits; j++) {
      const uint32_t bit = bit_of(call, float_at(hash, (size_t)i * bits + j));
      signature = signature << 1 | bit;
      if (type == DENSE) {
        *out++ = (int32_t)bit;
      }
    }
    if (type == SPARSE && bits < 32) { /* signatures of different functions differ */
      signature += i * (1u << bits);
    }
    if (type != DENSE) {
      memcpy(out++, &signature, sizeof signature);
    }
  }
  return NP_OK;
}

const struct np_kernel np_kernel_LSH_PROJECTION = {.types =
                                                       NP_FLOATS | NP_BIT(NP_TYPE_TENSOR_FLOAT16),
                                                   .infer = lsh_infer,
                                                   .scratch = lsh_scratch,
                                                   .run = lsh_run};
