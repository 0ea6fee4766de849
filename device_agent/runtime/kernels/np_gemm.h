/* Matrix product with packed weights: c[m, n] = clamp(a[m, k] * weights[n, k] + bias[n]).
 *
 * Weights are packed once into panels of `width` outputs, [panel][k][width], padded with zeros.
 * A tile of `height` rows by one panel is computed in registers; k is cut into blocks so that a
 * panel's block stays in the first-level cache, as in Goto and van de Geijn, "Anatomy of
 * high-performance matrix multiplication" (2008). */
#ifndef NP_GEMM_H
#define NP_GEMM_H

#include <stddef.h>
#include <stdint.h>

/* Widest panel and tallest tile of all engines. */
#define NP_GEMM_MAX_WIDTH 32u
#define NP_GEMM_MAX_HEIGHT 12u

/* One tile: c[rows, width] (row stride ldc) = start + a[rows, k] (row stride lda) * b[k, width],
 * clamped. start is bias[width], or c itself where bias is NULL. 1 <= rows <= height. */
typedef void np_gemm_tile(size_t rows, size_t k, const float *a, size_t lda, const float *b,
                          const float *bias, float *c, size_t ldc, float low, float high);

/* One output pixel of a depthwise convolution with multiplier 1: out[c] = clamp(bias[c] + sum over
 * taps of input[tap][c] * weights[tap][c]). `taps` pairs of row pointers, each [channels]. */
typedef void np_depthwise_pixel(size_t channels, size_t taps, const float *const *inputs,
                                const float *const *weights, const float *bias, float *out,
                                float low, float high);

/* out[4 * r + j] = sum over i < k of a_r[i] * b[j * ldb + i], for r < 2 and j < 4; k is a multiple
 * of 16, and the sums fit. */
typedef void np_gemm_dots(size_t k, const int16_t *a0, const int16_t *a1, const int16_t *b,
                          size_t ldb, int32_t out[8]);

struct np_gemm_engine {
  const char *name;
  size_t height;
  size_t width;
  np_gemm_tile *tile;
  np_depthwise_pixel *depthwise;
  np_gemm_dots *dots;
};

/* Returns the engine for this processor, the same one at every call. */
const struct np_gemm_engine *np_gemm_engine(void);

/* Returns an engine by number from 0, NULL after the last one or if this processor cannot run it:
 * for tests. */
const struct np_gemm_engine *np_gemm_engine_at(unsigned index);

/* Returns the number of floats that packed weights and bias need; SIZE_MAX on overflow. */
size_t np_gemm_packed_floats(const struct np_gemm_engine *engine, size_t n, size_t k);

/* Packs weights [n, k] (row stride k) and bias [n] (zeros where NULL) into packed. */
void np_gemm_pack(const struct np_gemm_engine *engine, size_t n, size_t k, const float *weights,
                  const float *bias, float *packed);

/* Computes c[m, n] (row stride ldc) = clamp(a[m, k] (row stride lda) * weights + bias). */
void np_gemm(const struct np_gemm_engine *engine, size_t m, size_t n, size_t k, const float *a,
             size_t lda, const float *packed, float *c, size_t ldc, float low, float high);

/* The loop of np_gemm_dots, for each engine to compile for its instruction set. */
static inline __attribute__((always_inline)) void np_gemm_dots_loop(size_t k, const int16_t *a0,
                                                                    const int16_t *a1,
                                                                    const int16_t *b, size_t ldb,
                                                                    int32_t out[8]) {
  int32_t s00 = 0, s01 = 0, s02 = 0, s03 = 0, s10 = 0, s11 = 0, s12 = 0, s13 = 0;
  const int16_t *b1 = b + ldb;
  const int16_t *b2 = b1 + ldb;
  const int16_t *b3 = b2 + ldb;
  k = k / 16 * 16; /* no loop for a remainder */
  for (size_t i = 0; i < k; i++) {
    s00 += a0[i] * b[i];
    s01 += a0[i] * b1[i];
    s02 += a0[i] * b2[i];
    s03 += a0[i] * b3[i];
    s10 += a1[i] * b[i];
    s11 += a1[i] * b1[i];
    s12 += a1[i] * b2[i];
    s13 += a1[i] * b3[i];
  }
  out[0] = s00;
  out[1] = s01;
  out[2] = s02;
  out[3] = s03;
  out[4] = s10;
  out[5] = s11;
  out[6] = s12;
  out[7] = s13;
}

/* Return the engines of single architectures, NULL if this build or processor has none. */
const struct np_gemm_engine *np_gemm_avx2(void);
const struct np_gemm_engine *np_gemm_avx512(void);

#endif
