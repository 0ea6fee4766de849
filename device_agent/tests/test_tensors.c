/* Pseudo-random tensors against PROTOCOL.md's rule, and where tensors come from. */
#include "np_test.h"
#include "tensors.h"

#define N 64u

static struct np_tensor tensor_of(int32_t type, enum np_source source, uint32_t value) {
  static const uint32_t dims[1] = {N};
  return (struct np_tensor){.type = type,
                            .rank = 1,
                            .dims = dims,
                            .source = source,
                            .value = value,
                            .n_elements = N,
                            .n_bytes = N * np_type_bytes(type)};
}

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
  const struct np_tensor real = tensor_of(NP_TYPE_TENSOR_FLOAT32, NP_PSEUDO_RANDOM, 42);
  const struct np_tensor word = tensor_of(NP_TYPE_TENSOR_INT32, NP_PSEUDO_RANDOM, 42);
  const struct np_tensor half = tensor_of(NP_TYPE_TENSOR_FLOAT16, NP_PSEUDO_RANDOM, 42);
  const struct np_tensor truth = tensor_of(NP_TYPE_TENSOR_BOOL8, NP_PSEUDO_RANDOM, 42);
  np_tensor_randomize(&real, reals);
  np_tensor_randomize(&word, words);
  np_tensor_randomize(&half, halves);
  np_tensor_randomize(&truth, bools);
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

static void check_filled(void) {
  const uint8_t blob[N] = "0123456789";
  struct np_tensor tensors[3] = {
      tensor_of(NP_TYPE_TENSOR_FLOAT32, NP_ZERO, 0),
      tensor_of(NP_TYPE_TENSOR_QUANT8_ASYMM, NP_FROM_BLOB, 0),
      tensor_of(NP_TYPE_TENSOR_FLOAT32, NP_PSEUDO_RANDOM, 1),
  };
  const struct np_action action = {.n_tensors = 3, .tensors = tensors};
  struct np_pipeline_tensor described[3];
  for (uint32_t t = 0; t < 3; t++) {
    described[t] = (struct np_pipeline_tensor){.rank = 1,
                                               .dims = tensors[t].dims,
                                               .n_bytes = tensors[t].n_bytes,
                                               .bytes = t == 1 ? blob : NULL};
  }
  const struct np_pipeline_plan plan = {.n_tensors = 3, .tensors = described};
  struct np_fault fault = {.code = 0};
  struct np_pipeline *pipeline = NULL;
  if (!CHECK(np_pipeline_make(&plan, &fault, &pipeline) == NP_OK)) {
    return;
  }
  np_tensors_fill(&action, pipeline);
  const float *zeros = np_pipeline_data(pipeline, 0);
  const float *random = np_pipeline_data(pipeline, 2);
  CHECK(np_pipeline_data(pipeline, 1) == blob);
  CHECK((uintptr_t)zeros % 64 == 0 && (uintptr_t)random % 64 == 0);
  CHECK(zeros[0] == 0 && zeros[N - 1] == 0);
  CHECK(random[0] >= -1 && random[0] < 1 && random[0] != 0);
  np_pipeline_free(pipeline);
}

int main(void) {
  check_random();
  check_filled();
  return np_test_exit();
}
