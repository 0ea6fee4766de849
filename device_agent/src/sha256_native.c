/* SHA-256 with the processor's own instructions, if it has them: a request's weights are hashed
 * each time it is carried out, and the portable code takes about ten times as long.
 *
 * x86-64: the SHA extensions (Intel SDM volume 2, SHA256RNDS2, SHA256MSG1, SHA256MSG2). AArch64:
 * FEAT_SHA256 (Arm ARM, SHA256H, SHA256H2, SHA256SU0, SHA256SU1). Both keep four words of the
 * message in a register, and do four rounds with them. */
#include "sha256.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>

#define BIT_SHA (1u << 29) /* bit of EBX, leaf 7 */

__attribute__((target("sha,sse4.1"))) static void
add_blocks(uint32_t state[8], const uint8_t *blocks, size_t n_blocks) {
  /* The instructions require the words in this order, highest first: a b e f and c d g h. */
  const __m128i badc = _mm_shuffle_epi32(_mm_loadu_si128((const void *)state), 0xb1);
  const __m128i hgfe = _mm_shuffle_epi32(_mm_loadu_si128((const void *)(state + 4)), 0x1b);
  __m128i abef = _mm_alignr_epi8(badc, hgfe, 8);
  __m128i cdgh = _mm_blend_epi16(hgfe, badc, 0xf0);
  const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);

  for (; n_blocks != 0; n_blocks--, blocks += 64) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];
    for (size_t i = 0; i < 16; i++) {
      if (i < 4) {
        const __m128i read = _mm_loadu_si128((const void *)(blocks + 16 * i));
        w[i] = _mm_shuffle_epi8(read, big_endian);
      } else {
        const __m128i last = w[(i + 3) % 4];
        const __m128i seven_back = _mm_alignr_epi8(last, w[(i + 2) % 4], 4);
        const __m128i sum =
            _mm_add_epi32(_mm_sha256msg1_epu32(w[i % 4], w[(i + 1) % 4]), seven_back);
        w[i % 4] = _mm_sha256msg2_epu32(sum, last);
      }
      const __m128i constants = _mm_loadu_si128((const void *)(np_sha256_constants + 4 * i));
      const __m128i added = _mm_add_epi32(w[i % 4], constants);
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, added);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(added, 0x0e));
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1b);
  const __m128i dchg = _mm_shuffle_epi32(cdgh, 0xb1);
  _mm_storeu_si128((void *)state, _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128((void *)(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}

np_sha256_blocks *np_sha256_native(void) {
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_SSE4_1) || !(c & bit_SSSE3)) {
    return NULL;
  }
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & BIT_SHA)) {
    return NULL;
  }
  return add_blocks;
}

#elif defined(__aarch64__) && defined(__AARCH64EL__)

#include <arm_neon.h>
#include <sys/auxv.h>

#define SHA2_OF_HWCAP (1ul << 6) /* Linux, arch/arm64/include/uapi/asm/hwcap.h */

__attribute__((target("+sha2"))) static void add_blocks(uint32_t state[8], const uint8_t *blocks,
                                                        size_t n_blocks) {
  uint32x4_t abcd = vld1q_u32(state), efgh = vld1q_u32(state + 4);
  for (; n_blocks != 0; n_blocks--, blocks += 64) {
    const uint32x4_t abcd_before = abcd, efgh_before = efgh;
    uint32x4_t w[4];
    for (size_t i = 0; i < 16; i++) {
      if (i < 4) {
        w[i] = vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(blocks + 16 * i)));
      } else {
        const uint32x4_t begun = vsha256su0q_u32(w[i % 4], w[(i + 1) % 4]);
        w[i % 4] = vsha256su1q_u32(begun, w[(i + 2) % 4], w[(i + 3) % 4]);
      }
      const uint32x4_t added = vaddq_u32(w[i % 4], vld1q_u32(np_sha256_constants + 4 * i));
      const uint32x4_t abcd_now = abcd;
      abcd = vsha256hq_u32(abcd, efgh, added);
      efgh = vsha256h2q_u32(efgh, abcd_now, added);
    }
    abcd = vaddq_u32(abcd, abcd_before);
    efgh = vaddq_u32(efgh, efgh_before);
  }
  vst1q_u32(state, abcd);
  vst1q_u32(state + 4, efgh);
}

np_sha256_blocks *np_sha256_native(void) {
  return getauxval(AT_HWCAP) & SHA2_OF_HWCAP ? add_blocks : NULL;
}

#else

np_sha256_blocks *np_sha256_native(void) { return NULL; }

#endif
