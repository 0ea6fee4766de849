#include "kernels/np_gemm.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "kernels/np_kernel.h"

/* Depth of a block: a panel's block of 256 x 32 floats is 32 KiB. */
#define DEPTH 256u
/* Rows of a block: with DEPTH it is 96 KiB of a, which stays in the second-level cache. */
#define ROWS 96u

#if defined(__aarch64__)
#define PORTABLE_HEIGHT 6 /* 24 accumulators, 4 weights and a broadcast of 32 registers */
#define PORTABLE_WIDTH 16
#else
#define PORTABLE_HEIGHT 4 /* 8 accumulators, 2 weights and a broadcast of 16 registers */
#define PORTABLE_WIDTH 8
#endif
#define LANES 4
#define VECTORS (PORTABLE_WIDTH / LANES)

typedef float vec __attribute__((vector_size(16)));

/* `rows` is a constant at each call, so that the compiler unrolls it into registers. */
static inline __attribute__((always_inline)) void portable_rows(const size_t rows, size_t k,
                                                                const float *a, size_t lda,
                                                                const float *b, const float *bias,
                                                                float *c, size_t ldc) {
  vec sum[PORTABLE_HEIGHT][VECTORS];
  for (size_t r = 0; r < rows; r++) {
    for (size_t v = 0; v < VECTORS; v++) {
      memcpy(&sum[r][v], (bias != NULL ? bias : c + r * ldc) + v * LANES, sizeof sum[r][v]);
    }
  }
  for (size_t i = 0; i < k; i++) {
    vec weights[VECTORS];
    memcpy(weights, b + i * PORTABLE_WIDTH, sizeof weights);
    for (size_t r = 0; r < rows; r++) {
      for (size_t v = 0; v < VECTORS; v++) {
        sum[r][v] += a[r * lda + i] * weights[v];
      }
    }
  }
  for (size_t r = 0; r < rows; r++) {
    memcpy(c + r * ldc, sum[r], sizeof sum[r]);
  }
}

static void portable_tile(size_t rows, size_t k, const float *a, size_t lda, const float *b,
                          const float *bias, float *c, size_t ldc, float low, float high) {
  switch (rows) {
  case 1:
    portable_rows(1, k, a, lda, b, bias, c, ldc);
    break;
  case 2:
    portable_rows(2, k, a, lda, b, bias, c, ldc);
    break;
  case 3:
    portable_rows(3, k, a, lda, b, bias, c, ldc);
    break;
#if PORTABLE_HEIGHT > 4
  case 4:
    portable_rows(4, k, a, lda, b, bias, c, ldc);
    break;
  case 5:
    portable_rows(5, k, a, lda, b, bias, c, ldc);
    break;
#endif
  default:
    portable_rows(PORTABLE_HEIGHT, k, a, lda, b, bias, c, ldc);
    break;
  }
  for (size_t r = 0; r < rows; r++) {
    np_clamp(c + r * ldc, PORTABLE_WIDTH, low, high);
  }
}

static void portable_depthwise(size_t channels, size_t taps, const float *const *inputs,
                               const float *const *weights, const float *bias, float *out,
                               float low, float high) {
  size_t c = 0;
  for (; c + 4 * LANES <= channels; c += 4 * LANES) {
    vec sum[4];
    memcpy(sum, bias + c, sizeof sum);
    for (size_t t = 0; t < taps; t++) {
      vec x[4];
      vec w[4];
      memcpy(x, inputs[t] + c, sizeof x);
      memcpy(w, weights[t] + c, sizeof w);
      for (size_t v = 0; v < 4; v++) {
        sum[v] += x[v] * w[v];
      }
    }
    memcpy(out + c, sum, sizeof sum);
  }
  for (; c < channels; c++) {
    float sum = bias[c];
    for (size_t t = 0; t < taps; t++) {
      sum += inputs[t][c] * weights[t][c];
    }
    out[c] = sum;
  }
  np_clamp(out, channels, low, high);
}

static void portable_dots(size_t k, const int16_t *a0, const int16_t *a1, const int16_t *b,
                          size_t ldb, int32_t out[8]) {
  np_gemm_dots_loop(k, a0, a1, b, ldb, out);
}

static const struct np_gemm_engine PORTABLE = {
    .name = "portable",
    .height = PORTABLE_HEIGHT,
    .width = PORTABLE_WIDTH,
    .tile = portable_tile,
    .depthwise = portable_depthwise,
    .dots = portable_dots,
};

const struct np_gemm_engine *np_gemm_engine_at(unsigned index) {
  switch (index) {
  case 0:
    return &PORTABLE;
  case 1:
    return np_gemm_avx2();
  case 2:
    return np_gemm_avx512();
  default:
    return NULL;
  }
}

static const struct np_gemm_engine *best_engine(void) {
  for (unsigned i = 2; i > 0; i--) {
    const struct np_gemm_engine *engine = np_gemm_engine_at(i);
    if (engine != NULL) {
      return engine;
    }
  }
  return &PORTABLE;
}

/* Detected once per process: under a hypervisor every CPUID instruction traps, and takes as long as
 * a small layer. Threads that detect it at the same time get the same result. */
const struct np_gemm_engine *np_gemm_engine(void) {
  static const struct np_gemm_engine *_Atomic chosen;
  const struct np_gemm_engine *engine = atomic_load_explicit(&chosen, memory_order_relaxed);
  if (engine == NULL) {
    engine = best_engine();
    atomic_store_explicit(&chosen, engine, memory_order_relaxed);
  }
  return engine;
}

size_t np_gemm_packed_floats(const struct np_gemm_engine *engine, size_t n, size_t k) {
  const size_t panels = n / engine->width + (n % engine->width != 0);
  return np_mul_saturated(np_mul_saturated(panels, engine->width), np_add_saturated(k, 1));
}

/* Packed: the bias of all panels, then the panels. */
void np_gemm_pack(const struct np_gemm_engine *engine, size_t n, size_t k, const float *weights,
                  const float *bias, float *packed) {
  const size_t width = engine->width;
  const size_t panels = n / width + (n % width != 0);
  memset(packed, 0, panels * width * sizeof *packed);
  if (bias != NULL) {
    memcpy(packed, bias, n * sizeof *packed);
  }
  float *panel = packed + panels * width;
  for (size_t p = 0; p < panels; p++, panel += k * width) {
    const size_t used = n - p * width < width ? n - p * width : width;
    for (size_t j = 0; j < used; j++) {
      const float *row = weights + (p * width + j) * k;
      for (size_t i = 0; i < k; i++) {
        panel[i * width + j] = row[i];
      }
    }
    for (size_t j = used; j < width; j++) {
      for (size_t i = 0; i < k; i++) {
        panel[i * width + j] = 0.0f;
      }
    }
  }
}

/* Computes a tile whose panel extends beyond the last column in a buffer, and copies its valid
 * part. */
static void edge_tile(const struct np_gemm_engine *engine, size_t rows, size_t used, size_t k,
                      const float *a, size_t lda, const float *b, const float *bias, float *c,
                      size_t ldc, float low, float high) {
  float aside[NP_GEMM_MAX_HEIGHT * NP_GEMM_MAX_WIDTH] = {0};
  if (bias == NULL) {
    for (size_t r = 0; r < rows; r++) {
      memcpy(aside + r * engine->width, c + r * ldc, used * sizeof *c);
    }
  }
  engine->tile(rows, k, a, lda, b, bias, aside, engine->width, low, high);
  for (size_t r = 0; r < rows; r++) {
    memcpy(c + r * ldc, aside + r * engine->width, used * sizeof *c);
  }
}

void np_gemm(const struct np_gemm_engine *engine, size_t m, size_t n, size_t k, const float *a,
             size_t lda, const float *packed, float *c, size_t ldc, float low, float high) {
  const size_t width = engine->width;
  const size_t panels = n / width + (n % width != 0);
  const float *weights = packed + panels * width;
  for (size_t row = 0; row < m; row += ROWS) {
    const size_t last_row = m - row < ROWS ? m : row + ROWS;
    size_t i = 0;
    do { /* once even if k is 0: for the bias */
      const size_t depth = k - i < DEPTH ? k - i : DEPTH;
      const int is_last = i + depth >= k;
      const float floor_ = is_last ? low : -INFINITY;
      const float ceiling = is_last ? high : INFINITY;
      for (size_t p = 0; p < panels; p++) {
        const float *b = weights + (p * k + i) * width;
        const float *bias = i == 0 ? packed + p * width : NULL;
        const size_t used = n - p * width < width ? n - p * width : width;
        for (size_t r = row; r < last_row; r += engine->height) {
          const size_t rows = last_row - r < engine->height ? last_row - r : engine->height;
          float *to = c + r * ldc + p * width;
          if (used == width) {
            engine->tile(rows, depth, a + r * lda + i, lda, b, bias, to, ldc, floor_, ceiling);
          } else {
            edge_tile(engine, rows, used, depth, a + r * lda + i, lda, b, bias, to, ldc, floor_,
                      ceiling);
          }
        }
      }
      i += depth;
    } while (i < k);
  }
}
