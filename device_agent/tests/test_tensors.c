/* Pseudo-random tensors against PROTOCOL.md's rule, and the sources of inputs. */
#include <stdlib.h>
#include <string.h>

#include "np_test.h"
#include "tensors.h"

#define N 64u

static float float_of_half(uint16_t half) {
  const int exponent = half >> 10 & 31;
  const int mantissa = half & 0x3ff;
  float value =
      exponent == 0 ? (float)mantissa / 16777216.0f : (float)(mantissa | 0x400) / 33554432.0f;
  for (int i = 1; i <= exponent && exponent != 0; i++) {
    value *= 2;
  }
  return (half & 0x8000) != 0 ? -value : value;
}

static void check_random(void) {
  float reals[N];
  int32_t words[N];
  uint16_t halves[N];
  uint8_t bools[N];
  np_randomize(NP_TYPE_TENSOR_FLOAT32, 42, N, reals);
  np_randomize(NP_TYPE_TENSOR_INT32, 42, N, words);
  np_randomize(NP_TYPE_TENSOR_FLOAT16, 42, N, halves);
  np_randomize(NP_TYPE_TENSOR_BOOL8, 42, N, bools);
  uint64_t state = 42;
  for (uint32_t i = 0; i < N; i++) {
    const uint64_t x = np_test_random(&state);
    CHECK(reals[i] == (float)((double)(x >> 40) / 8388608.0 - 1.0));
    CHECK(words[i] == (int32_t)(x % 127 % 2));
    CHECK(bools[i] == (x % 127) % 2);
    const float error = float_of_half(halves[i]) - reals[i];
    const float size = reals[i] < 0 ? -reals[i] : reals[i];
    CHECK((error < 0 ? -error : error) <= size / 2048 + 1.0f / 33554432.0f);
  }
}

/* Checks an input from each source, and rotated by five elements. */
static void check_inputs(void) {
  const uint8_t blob[N] = "0123456789";
  const struct np_bytes blobs[1] = {{blob, N}};
  const struct np_input inputs[3] = {{NP_ZERO, 0}, {NP_FROM_BLOB, 0}, {NP_PSEUDO_RANDOM, 1}};
  struct np_bundle_end ends[3] = {{.known = {.type = NP_TYPE_TENSOR_FLOAT32, .n_bytes = 4 * N}},
                                  {.known = {.type = NP_TYPE_TENSOR_QUANT8_ASYMM, .n_bytes = N}},
                                  {.known = {.type = NP_TYPE_TENSOR_FLOAT32, .n_bytes = 4 * N}}};
  const struct np_action action = {.bundle = {.n_inputs = 3, .inputs = ends}, .inputs = inputs};
  float *zeros = np_input_make(&action, 0, blobs, 0);
  uint8_t *bytes = np_input_make(&action, 1, blobs, 0);
  uint8_t *turned = np_input_make(&action, 1, blobs, N + 5);
  float *random = np_input_make(&action, 2, blobs, 0);
  if (CHECK(zeros && bytes && turned && random)) {
    CHECK(memcmp(bytes, blob, N) == 0);
    CHECK(memcmp(turned, blob + 5, N - 5) == 0 && memcmp(turned + N - 5, blob, 5) == 0);
    CHECK((uintptr_t)zeros % 64 == 0 && (uintptr_t)random % 64 == 0);
    CHECK(zeros[0] == 0 && zeros[N - 1] == 0);
    CHECK(random[0] >= -1 && random[0] < 1 && random[0] != 0);
  }
  free(zeros);
  free(bytes);
  free(turned);
  free(random);
}

int main(void) {
  check_random();
  check_inputs();
  return np_test_exit();
}
