#define _POSIX_C_SOURCE 200809L

#include "tensors.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/np_half.h"

/* splitmix64 (Steele, Lea, Flood 2014): the next output of a 64-bit state. */
static uint64_t splitmix64(uint64_t *state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

void np_randomize(int32_t type, uint32_t seed, size_t n, void *data) {
  uint64_t state = seed;
  for (size_t i = 0; i < n; i++) {
    const uint64_t x = splitmix64(&state);
    const float real = (float)(x >> 40) / 8388608.0f - 1.0f;
    const uint8_t whole = (uint8_t)(x % 127);
    switch (type) {
    case NP_TYPE_FLOAT32:
    case NP_TYPE_TENSOR_FLOAT32:
      ((float *)data)[i] = real;
      break;
    case NP_TYPE_FLOAT16:
    case NP_TYPE_TENSOR_FLOAT16:
      ((uint16_t *)data)[i] = np_half_from_float(real);
      break;
    case NP_TYPE_BOOL:
    case NP_TYPE_TENSOR_BOOL8:
      ((uint8_t *)data)[i] = whole & 1;
      break;
    default:
      switch (np_type_bytes(type)) {
      case 4:
        ((uint32_t *)data)[i] = whole & 1;
        break;
      case 2:
        ((uint16_t *)data)[i] = whole;
        break;
      default:
        ((uint8_t *)data)[i] = whole;
        break;
      }
      break;
    }
  }
}

void *np_tensor_allocate(size_t n_bytes) {
  void *memory = NULL; /* Android's C library has no aligned_alloc at API level 27 */
  return posix_memalign(&memory, 64, n_bytes) == 0 ? memory : NULL;
}

void *np_input_make(const struct np_action *action, uint32_t input, const struct np_bytes *blobs,
                    uint32_t turn) {
  const nnp_tensor *tensor = &action->bundle.inputs[input].known;
  const size_t n_bytes = tensor->n_bytes, element = np_type_bytes(tensor->type);
  const struct np_input *from = &action->inputs[input];
  uint8_t *turned = np_tensor_allocate(n_bytes);
  uint8_t *plain = from->source == NP_FROM_BLOB ? NULL : calloc(n_bytes, 1);
  if (from->source == NP_PSEUDO_RANDOM && plain) {
    np_randomize(tensor->type, from->value, n_bytes / element, plain);
  }
  const uint8_t *bytes = from->source == NP_FROM_BLOB ? blobs[from->value].data : plain;
  if (turned && bytes) {
    const size_t by = turn % (n_bytes / element) * element;
    memcpy(turned, bytes + by, n_bytes - by);
    memcpy(turned + n_bytes - by, bytes, by);
  }
  free(plain);
  if (!bytes) {
    free(turned);
    return NULL;
  }
  return turned;
}
