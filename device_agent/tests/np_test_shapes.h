/* Random shapes, and one model's output against what a test computed. */
#ifndef NP_TEST_SHAPES_H
#define NP_TEST_SHAPES_H

#include "np_test_model.h"

/* A random shape of rank 1 to 4. */
static inline uint32_t random_shape(uint64_t *seed, uint32_t *dims) {
  const uint32_t rank = np_test_between(seed, 1, 4);
  for (uint32_t d = 0; d < 4; d++) {
    dims[d] = d < rank ? np_test_between(seed, 1, 6) : 1;
  }
  return rank;
}

static inline size_t product(uint32_t rank, const uint32_t *dims) {
  size_t n = 1;
  for (uint32_t d = 0; d < rank; d++) {
    n *= dims[d];
  }
  return n;
}

/* Coordinates of flat index i. */
static inline void unravel(size_t i, uint32_t rank, const uint32_t *dims, uint32_t *coordinates) {
  for (uint32_t d = rank; d-- > 0;) {
    coordinates[d] = (uint32_t)(i % dims[d]);
    i /= dims[d];
  }
}

static inline uint32_t tensor_of(struct model *model, enum np_lifetime lifetime, uint32_t rank,
                                 const uint32_t *dims) {
  return model_operand(model, NP_TYPE_TENSOR_FLOAT32, lifetime, rank, dims);
}

/* Runs the model, compares its output with `wanted`, and frees all three. */
static inline void expect(struct model *model, float *input, float *wanted, size_t n,
                          float tolerance) {
  struct np_message why = {""};
  const float *const inputs[1] = {input};
  float *found = calloc(n + 1, sizeof *found);
  if (found == NULL) {
    abort();
  }
  found[n] = 77.0f;
  if (!CHECK(model_run(model, inputs, found, n, &why) == NP_OK)) {
    (void)fprintf(stderr, "%s\n", why.text);
  }
  if (!CHECK(worst(found, wanted, n) <= tolerance)) {
    (void)fprintf(stderr, "%s\n", np_operation_name(model->operations[0].code));
  }
  CHECK(found[n] == 77.0f);
  free(found);
  free(input);
  free(wanted);
  free(model);
}

#endif
