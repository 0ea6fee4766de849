/* 64-bit hashes and the generator behind the simulated noise. */
#ifndef NP_HASH_H
#define NP_HASH_H

#include <stddef.h>
#include <stdint.h>

#define NP_HASH_START UINT64_C(0xcbf29ce484222325)

/* Returns the FNV-1a hash of bytes, continuing from `hash` (NP_HASH_START at first). */
uint64_t np_hash_bytes(uint64_t hash, const void *bytes, size_t length);

/* The same over a 32-bit and a 64-bit number, independent of the machine's byte order. */
uint64_t np_hash_u32(uint64_t hash, uint32_t number);
uint64_t np_hash_u64(uint64_t hash, uint64_t number);

/* Returns exp(spread * z) with a standard normal z that depends on `seed` only: a log-normal factor
 * with median 1. */
double np_noise_factor(uint64_t seed, double spread);

#endif
