/* Builds containers and valid models, by PROTOCOL.md, for the C tests and the fuzz targets, without
 * using code of the agent. */
#ifndef NP_BUILD_H
#define NP_BUILD_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "crc32.h"
#include "np_nnapi.h"

#define NP_BUILD_ROOM 4096u

/* Bytes that grow within a fixed room. */
struct np_build {
  _Alignas(8) uint8_t bytes[NP_BUILD_ROOM];
  size_t n;
};

static inline void np_put(struct np_build *to, const void *bytes, size_t n) {
  memcpy(to->bytes + to->n, bytes, n);
  to->n += n;
}

static inline void np_put_u32(struct np_build *to, uint32_t value) { np_put(to, &value, 4); }

static inline void np_put_u64(struct np_build *to, uint64_t value) { np_put(to, &value, 8); }

static inline void np_put_words(struct np_build *to, size_t n, const uint32_t *words) {
  np_put(to, words, 4 * n);
}

/* Sets every CRC of a container to the right value, for sections inside it, so that checksums do
 * not hide what a mutation broke. */
static inline void np_build_seal(uint8_t *bytes, size_t size) {
  if (size < 16) {
    return;
  }
  uint32_t n;
  memcpy(&n, bytes + 8, 4);
  if (n > 64 || size < 16 + 24 * (size_t)n) {
    return;
  }
  for (uint32_t i = 0; i < n; i++) {
    uint8_t *entry = bytes + 16 + 24 * (size_t)i;
    uint64_t offset, length;
    memcpy(&offset, entry + 8, 8);
    memcpy(&length, entry + 16, 8);
    if (offset > size || length > size - offset) {
      continue;
    }
    const uint32_t crc = np_crc32(0, bytes + offset, (size_t)length);
    memcpy(entry + 4, &crc, 4);
  }
  uint32_t crc = np_crc32(0, bytes, 12);
  crc = np_crc32(crc, bytes + 16, 24 * (size_t)n);
  memcpy(bytes + 12, &crc, 4);
}

/* y[1, 4] = relu(x[1, 4] + b[1, 4]): operands x, b, fuse code, y; b is buffer 0 where in_buffer,
 * else immediate 1, 2, 3, 4. */
static inline void np_build_model(struct np_build *model, int in_buffer) {
  const uint32_t tensor[4] = {NP_TYPE_TENSOR_FLOAT32, 2, 0, 0};
  const uint32_t scalar[4] = {NP_TYPE_INT32, 0, 0, 0};
  const uint32_t shape[2] = {1, 4};
  const uint32_t fuse = ANEURALNETWORKS_FUSED_RELU;
  const float bias[4] = {1, 2, 3, 4};
  model->n = 0;
  np_put_words(model, 6, (const uint32_t[]){1, 4, 2, 1, 1, 1});
  np_put_words(model, 4, tensor);
  np_put_words(model, 4, tensor);
  np_put_words(model, 4, scalar);
  np_put_words(model, 4, tensor);
  np_put_words(model, 3, (const uint32_t[]){1, in_buffer ? 2u : 0u, in_buffer ? 12u : 16u});
  np_put_words(model, 3, (const uint32_t[]){2, 0, 4});
  np_put_words(model, 3, (const uint32_t[]){ANEURALNETWORKS_ADD, 3, 1});
  for (int i = 0; i < 3; i++) {
    np_put_words(model, 2, shape);
  }
  if (in_buffer) {
    np_put_words(model, 3, (const uint32_t[]){0, 0, 16}); /* buffer, offset, length */
  } else {
    np_put(model, bias, sizeof bias);
  }
  np_put_u32(model, fuse);
  np_put_words(model, 4, (const uint32_t[]){0, 1, 2, 3});
  np_put_words(model, 2, (const uint32_t[]){0, 3}); /* input, output */
}

/* y[1, 1, 1, 2] = x[1, 1, 1, 2] convolved by w[2, 1, 1, 2], which has a scale for each of its two
 * filters: operands x, w, b, one, zero, y, and the table of scales that version 2 ends with. */
static inline void np_build_channel_model(struct np_build *model) {
  const float scales[2] = {0.5f, 0.25f};
  const int8_t filters[4] = {1, 2, 3, -4};
  const uint32_t zeros[2] = {0, 0};
  float data_scale = 0.5f;
  uint32_t scale;
  memcpy(&scale, &data_scale, sizeof scale);
  model->n = 0;
  np_put_words(model, 6, (const uint32_t[]){2, 6, 4, 1, 1, 1});
  np_put_words(model, 4, (const uint32_t[]){NP_TYPE_TENSOR_QUANT8_ASYMM, 4, scale, 3});
  np_put_words(model, 4, (const uint32_t[]){NP_TYPE_TENSOR_QUANT8_SYMM_PER_CHANNEL, 4, 0, 0});
  np_put_words(model, 4, (const uint32_t[]){NP_TYPE_TENSOR_INT32, 1, 0, 0});
  np_put_words(model, 4, (const uint32_t[]){NP_TYPE_INT32, 0, 0, 0});
  np_put_words(model, 4, (const uint32_t[]){NP_TYPE_INT32, 0, 0, 0});
  np_put_words(model, 4, (const uint32_t[]){NP_TYPE_TENSOR_QUANT8_ASYMM, 4, scale, 100});
  np_put_words(model, 12, (const uint32_t[]){1, 0, 4, 2, 0, 8, 3, 0, 4, 4, 0, 4}); /* values */
  np_put_words(model, 3, (const uint32_t[]){ANEURALNETWORKS_CONV_2D, 7, 1});
  np_put_words(model, 4, (const uint32_t[]){1, 1, 1, 2});
  np_put_words(model, 4, (const uint32_t[]){2, 1, 1, 2});
  np_put_words(model, 1, (const uint32_t[]){2});
  np_put_words(model, 4, (const uint32_t[]){1, 1, 1, 2});
  np_put(model, filters, sizeof filters);
  np_put_words(model, 2, zeros);
  np_put_u32(model, 1);
  np_put_u32(model, 0);
  np_put_words(model, 8, (const uint32_t[]){0, 1, 2, 3, 3, 3, 4, 5});
  np_put_words(model, 2, (const uint32_t[]){0, 5}); /* input, output */
  np_put_words(model, 4, (const uint32_t[]){1, 1, 0, 2});
  np_put(model, scales, sizeof scales);
}

/* The weights of np_build_model, as a blob. */
static const float np_build_blob[4] = {1, 2, 3, 4};

#endif
