/* Matrix product with packed weights: c[m, n] = clamp(a[m, k] * weights[n, k] + bias[n]).
 *
 * Weights are packed once into panels of `width` outputs, [panel][k][width], padded with zeros.
 * A tile of `height` rows by one panel is computed in registers; k is cut into blocks so that a
 * panel's block stays in the first-level cache, as in Goto and van de Geijn, "Anatomy of
 * high-performance matrix multiplication" (2008). */
#ifndef NP_GEMM_H
#define NP_GEMM_H

#include <stddef.h>

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

struct np_gemm_engine {
  const char *name;
  size_t height;
  size_t width;
  np_gemm_tile *tile;
  np_depthwise_pixel *depthwise;
};

/* The engine for this processor: the same one at every call. */
const struct np_gemm_engine *np_gemm_engine(void);

/* Engines by number from 0, NULL after the last one or where this processor cannot run it: for
 * tests. */
const struct np_gemm_engine *np_gemm_engine_at(unsigned index);

/* Floats that packed weights and bias need; SIZE_MAX on overflow. */
size_t np_gemm_packed_floats(const struct np_gemm_engine *engine, size_t n, size_t k);

/* Packs weights [n, k] (row stride k) and bias [n] into packed. */
void np_gemm_pack(const struct np_gemm_engine *engine, size_t n, size_t k, const float *weights,
                  const float *bias, float *packed);

/* c[m, n] (row stride ldc) = clamp(a[m, k] (row stride lda) * weights + bias). */
void np_gemm(const struct np_gemm_engine *engine, size_t m, size_t n, size_t k, const float *a,
             size_t lda, const float *packed, float *c, size_t ldc, float low, float high);

/* Engines of single architectures, NULL where this build or processor has none. */
const struct np_gemm_engine *np_gemm_avx2(void);
const struct np_gemm_engine *np_gemm_avx512(void);

#endif
