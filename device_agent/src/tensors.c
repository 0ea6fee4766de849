#include "tensors.h"

#include "kernels/np_half.h"

/* splitmix64 (Steele, Lea, Flood 2014): the next output of a 64-bit state. */
static uint64_t splitmix64(uint64_t *state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

void np_tensor_randomize(const struct np_tensor *tensor, void *data) {
  uint64_t state = tensor->value;
  const size_t n = tensor->n_elements;
  for (size_t i = 0; i < n; i++) {
    const uint64_t x = splitmix64(&state);
    const float real = (float)(x >> 40) / 8388608.0f - 1.0f;
    const uint8_t whole = (uint8_t)(x % 127);
    switch (tensor->type) {
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
      switch (np_type_bytes(tensor->type)) {
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

void np_tensors_fill(const struct np_action *action, const struct np_pipeline *pipeline) {
  for (uint32_t t = 0; t < action->n_tensors; t++) {
    if (action->tensors[t].source == NP_PSEUDO_RANDOM) {
      np_tensor_randomize(&action->tensors[t], np_pipeline_data(pipeline, t));
    }
  }
}
