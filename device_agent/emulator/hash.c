/* 64-bit hashes and the generator behind the simulated noise. */
#include "hash.h"

#include <math.h>

/* Fowler, Noll, Vo: FNV-1a, 64 bits. */
#define FNV_PRIME UINT64_C(0x100000001b3)

uint64_t np_hash_bytes(uint64_t hash, const void *bytes, size_t length) {
  const unsigned char *at = bytes;
  for (size_t i = 0; i < length; i++) {
    hash = (hash ^ at[i]) * FNV_PRIME;
  }
  return hash;
}

uint64_t np_hash_u32(uint64_t hash, uint32_t number) {
  for (int shift = 0; shift < 32; shift += 8) {
    hash = (hash ^ (number >> shift & 255u)) * FNV_PRIME;
  }
  return hash;
}

uint64_t np_hash_u64(uint64_t hash, uint64_t number) {
  return np_hash_u32(np_hash_u32(hash, (uint32_t)number), (uint32_t)(number >> 32));
}

/* splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t next(uint64_t *state) {
  uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}

double np_noise_factor(uint64_t seed, double spread) {
  if (spread <= 0) {
    return 1;
  }
  const double two_pi = 6.283185307179586;
  /* Box and Muller; the first uniform number lies in (0, 1]. */
  const double u = (double)((next(&seed) >> 11) + 1) * 0x1p-53;
  const double v = (double)(next(&seed) >> 11) * 0x1p-53;
  return exp(spread * sqrt(-2 * log(u)) * cos(two_pi * v));
}
