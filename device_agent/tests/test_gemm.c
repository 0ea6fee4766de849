/* The matrix products and depthwise pixels of every engine that this processor runs. */
#define _POSIX_C_SOURCE 200809L
#include <time.h>

#include "kernels/np_gemm.h"
#include "np_test_model.h"

/* Every engine that this processor runs, at sizes on both sides of its tiles and blocks; what lies
 * beyond the last column stays untouched. */
static void test_gemm(uint64_t *seed, const struct np_gemm_engine *engine) {
  const size_t m = np_test_between(seed, 1, 110);
  const size_t n = np_test_between(seed, 1, 80);
  const size_t k = np_test_between(seed, 0, 1) != 0 ? np_test_between(seed, 0, 20)
                                                    : np_test_between(seed, 240, 530);
  const size_t ldc = n + 3;
  float *a = random_floats(seed, m * k);
  float *weights = random_floats(seed, n * k);
  float *bias = random_floats(seed, n);
  float *packed = random_floats(seed, np_gemm_packed_floats(engine, n, k));
  float *c = random_floats(seed, m * ldc);
  for (size_t i = 0; i < m * ldc; i++) {
    c[i] = 77.0f;
  }
  np_gemm_pack(engine, n, k, weights, bias, packed);
  np_gemm(engine, m, n, k, a, k, packed, c, ldc, -3.0f, 3.0f);
  float most = 0.0f;
  for (size_t i = 0; i < m; i++) {
    for (size_t j = 0; j < n; j++) {
      double sum = (double)bias[j];
      for (size_t p = 0; p < k; p++) {
        sum += (double)a[i * k + p] * (double)weights[j * k + p];
      }
      most = fmaxf(most, fabsf(c[i * ldc + j] - (float)fmax(-3.0, fmin(3.0, sum))));
    }
    CHECK(c[i * ldc + n] == 77.0f && c[i * ldc + n + 2] == 77.0f);
  }
  if (!CHECK(most < 5e-5f)) {
    (void)fprintf(stderr, "engine %s, m %zu n %zu k %zu: off by %g\n", engine->name, m, n, k,
                  (double)most);
  }
  free(a);
  free(weights);
  free(bias);
  free(packed);
  free(c);
}

static void test_depthwise_engine(uint64_t *seed, const struct np_gemm_engine *engine) {
  const size_t channels = np_test_between(seed, 1, 80);
  float *data = random_floats(seed, channels * 7);
  const float *inputs[3] = {data, data + channels, data + 2 * channels};
  const float *weights[3] = {data + 3 * channels, data + 4 * channels, data + 5 * channels};
  const float *bias = data + 6 * channels;
  float *out = random_floats(seed, channels);
  engine->depthwise(channels, 3, inputs, weights, bias, out, -0.5f, INFINITY);
  for (size_t c = 0; c < channels; c++) {
    double sum = (double)bias[c];
    for (size_t t = 0; t < 3; t++) {
      sum += (double)inputs[t][c] * (double)weights[t][c];
    }
    CHECK(fabs((double)out[c] - fmax(-0.5, sum)) < 1e-5);
  }
  free(data);
  free(out);
}

/* The processor is detected once: kernels get their engine in every run, and a CPUID instruction
 * under a hypervisor takes microseconds. */
static void test_choice_is_cheap(void) {
  struct timespec start, end;
  const struct np_gemm_engine *first = np_gemm_engine();
  CHECK(first != NULL);
  (void)clock_gettime(CLOCK_MONOTONIC, &start);
  int same = 1;
  for (int i = 0; i < 100000; i++) {
    same = same && np_gemm_engine() == first;
  }
  (void)clock_gettime(CLOCK_MONOTONIC, &end);
  CHECK(same);
  CHECK(end.tv_sec - start.tv_sec < 2);
}

int main(void) {
  uint64_t seed = 3;
  for (unsigned engine = 0; engine < 3; engine++) {
    for (int i = 0; i < 25 && np_gemm_engine_at(engine) != NULL; i++) {
      test_gemm(&seed, np_gemm_engine_at(engine));
      test_depthwise_engine(&seed, np_gemm_engine_at(engine));
    }
  }
  CHECK(np_gemm_engine_at(3) == NULL);
  test_choice_is_cheap();
  return np_test_exit();
}
