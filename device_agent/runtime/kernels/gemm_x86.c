/* Tiles for x86-64 processors with AVX2 and FMA, or AVX-512, chosen at run time. A product is
 * rounded once, not twice, so results differ from the portable tile's in the last bits. */
#include "kernels/np_gemm.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>
#include <string.h>

/* Defines the tile and the depthwise pixel of one instruction set.
 *   ISA       target attribute          VEC, LANES  the register
 *   HEIGHT    rows of a tile            VECTORS     registers of a panel */
#define DEFINE_ENGINE(NAME, ISA, VEC, LANES, HEIGHT, VECTORS, LOAD, STORE, SET1, FMA, MAX, MIN)    \
  static inline __attribute__((always_inline, target(ISA))) void NAME##_rows(                      \
      const size_t rows, size_t k, const float *a, size_t lda, const float *b, const float *bias,  \
      float *c, size_t ldc, float low, float high) {                                               \
    VEC sum[HEIGHT][VECTORS];                                                                      \
    for (size_t r = 0; r < rows; r++) {                                                            \
      for (size_t v = 0; v < (VECTORS); v++) {                                                     \
        sum[r][v] = LOAD((bias != NULL ? bias : c + r * ldc) + v * (LANES));                       \
      }                                                                                            \
    }                                                                                              \
    for (size_t i = 0; i < k; i++) {                                                               \
      VEC weights[VECTORS];                                                                        \
      for (size_t v = 0; v < (VECTORS); v++) {                                                     \
        weights[v] = LOAD(b + i * (LANES) * (VECTORS) + v * (LANES));                              \
      }                                                                                            \
      for (size_t r = 0; r < rows; r++) {                                                          \
        const VEC x = SET1(a[r * lda + i]);                                                        \
        for (size_t v = 0; v < (VECTORS); v++) {                                                   \
          sum[r][v] = FMA(x, weights[v], sum[r][v]);                                               \
        }                                                                                          \
      }                                                                                            \
    }                                                                                              \
    for (size_t r = 0; r < rows; r++) {                                                            \
      for (size_t v = 0; v < (VECTORS); v++) {                                                     \
        STORE(c + r * ldc + v * (LANES), MIN(SET1(high), MAX(SET1(low), sum[r][v])));              \
      }                                                                                            \
    }                                                                                              \
  }                                                                                                \
  __attribute__((target(ISA))) static void NAME##_depthwise(                                       \
      size_t channels, size_t taps, const float *const *inputs, const float *const *weights,       \
      const float *bias, float *out, float low, float high) {                                      \
    size_t c = 0;                                                                                  \
    for (; c + 2 * (LANES) <= channels; c += 2 * (LANES)) {                                        \
      VEC first = LOAD(bias + c);                                                                  \
      VEC second = LOAD(bias + c + (LANES));                                                       \
      for (size_t t = 0; t < taps; t++) {                                                          \
        first = FMA(LOAD(inputs[t] + c), LOAD(weights[t] + c), first);                             \
        second = FMA(LOAD(inputs[t] + c + (LANES)), LOAD(weights[t] + c + (LANES)), second);       \
      }                                                                                            \
      STORE(out + c, MIN(SET1(high), MAX(SET1(low), first)));                                      \
      STORE(out + c + (LANES), MIN(SET1(high), MAX(SET1(low), second)));                           \
    }                                                                                              \
    for (; c < channels; c++) {                                                                    \
      float sum = bias[c];                                                                         \
      for (size_t t = 0; t < taps; t++) {                                                          \
        sum += inputs[t][c] * weights[t][c];                                                       \
      }                                                                                            \
      const float floored = sum < low ? low : sum;                                                 \
      out[c] = floored > high ? high : floored;                                                    \
    }                                                                                              \
  }

/* min and max return their second operand if one is NaN, so NaN passes through the clamp. */
DEFINE_ENGINE(avx2, "avx2,fma", __m256, 8, 6, 2, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_set1_ps,
              _mm256_fmadd_ps, _mm256_max_ps, _mm256_min_ps)
DEFINE_ENGINE(avx512, "avx512f", __m512, 16, 12, 2, _mm512_loadu_ps, _mm512_storeu_ps,
              _mm512_set1_ps, _mm512_fmadd_ps, _mm512_max_ps, _mm512_min_ps)

#define ROWS_CASE(NAME, N)                                                                         \
  case N:                                                                                          \
    NAME##_rows(N, k, a, lda, b, bias, c, ldc, low, high);                                         \
    break;

__attribute__((target("avx2,fma"))) static void avx2_tile(size_t rows, size_t k, const float *a,
                                                          size_t lda, const float *b,
                                                          const float *bias, float *c, size_t ldc,
                                                          float low, float high) {
  switch (rows) {
    ROWS_CASE(avx2, 1)
    ROWS_CASE(avx2, 2)
    ROWS_CASE(avx2, 3)
    ROWS_CASE(avx2, 4)
    ROWS_CASE(avx2, 5)
  default:
    avx2_rows(6, k, a, lda, b, bias, c, ldc, low, high);
    break;
  }
}

__attribute__((target("avx512f"))) static void avx512_tile(size_t rows, size_t k, const float *a,
                                                           size_t lda, const float *b,
                                                           const float *bias, float *c, size_t ldc,
                                                           float low, float high) {
  switch (rows) {
    ROWS_CASE(avx512, 1)
    ROWS_CASE(avx512, 2)
    ROWS_CASE(avx512, 3)
    ROWS_CASE(avx512, 4)
    ROWS_CASE(avx512, 5)
    ROWS_CASE(avx512, 6)
    ROWS_CASE(avx512, 7)
    ROWS_CASE(avx512, 8)
    ROWS_CASE(avx512, 9)
    ROWS_CASE(avx512, 10)
    ROWS_CASE(avx512, 11)
  default:
    avx512_rows(12, k, a, lda, b, bias, c, ldc, low, high);
    break;
  }
}

/* Both engines use AVX2 for integers, since AVX-512BW may be missing. */
__attribute__((target("avx2"))) static void avx2_dots(size_t k, const int16_t *a0,
                                                      const int16_t *a1, const int16_t *b,
                                                      size_t ldb, int32_t out[8]) {
  np_gemm_dots_loop(k, a0, a1, b, ldb, out);
}

static const struct np_gemm_engine AVX2 = {.name = "avx2",
                                           .height = 6,
                                           .width = 16,
                                           .tile = avx2_tile,
                                           .depthwise = avx2_depthwise,
                                           .dots = avx2_dots};
static const struct np_gemm_engine AVX512 = {.name = "avx512",
                                             .height = 12,
                                             .width = 32,
                                             .tile = avx512_tile,
                                             .depthwise = avx512_depthwise,
                                             .dots = avx2_dots};

/* Registers that the system saves for a program: bits of XCR0 (Intel SDM volume 1, section
 * 13.3). */
#define XCR0_AVX 0x06u
#define XCR0_AVX512 0xe6u

/* Returns whether processor and system support AVX2 with FMA and, with `avx512`, also AVX-512F.
 * Does not use __builtin_cpu_supports, which needs a symbol of the compiler's library that zig
 * cannot link into a shared object. */
static int has_isa(int avx512) {
  unsigned a, b, c, d, low, high;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !(c & bit_FMA)) {
    return 0;
  }
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  (void)high;
  const unsigned state = avx512 ? XCR0_AVX512 : XCR0_AVX;
  if ((low & state) != state || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
    return 0;
  }
  const unsigned needed = (unsigned)bit_AVX2 | (avx512 ? (unsigned)bit_AVX512F : 0u);
  return (b & needed) == needed;
}

const struct np_gemm_engine *np_gemm_avx2(void) { return has_isa(0) ? &AVX2 : NULL; }

const struct np_gemm_engine *np_gemm_avx512(void) { return has_isa(1) ? &AVX512 : NULL; }

#else

const struct np_gemm_engine *np_gemm_avx2(void) { return NULL; }

const struct np_gemm_engine *np_gemm_avx512(void) { return NULL; }

#endif
