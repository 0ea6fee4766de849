/* SHA-256 as FIPS 180-4 defines it. */
#ifndef NP_SHA256_H
#define NP_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define NP_SHA256_BYTES 32u

/* Adds n_blocks whole blocks of 64 bytes to a state. */
typedef void np_sha256_blocks(uint32_t state[8], const uint8_t *blocks, size_t n_blocks);

/* A hash of bytes that arrive in pieces: begin, add each piece, end. */
struct np_sha256 {
  np_sha256_blocks *add_blocks; /* the fastest implementation for this processor */
  uint32_t state[8];
  uint64_t n_bytes;
  uint8_t block[64]; /* n_bytes % 64 bytes that wait for the rest of their block */
};

void np_sha256_begin(struct np_sha256 *hash);
void np_sha256_add(struct np_sha256 *hash, const void *bytes, size_t n_bytes);
void np_sha256_end(struct np_sha256 *hash, uint8_t digest[NP_SHA256_BYTES]);

/* Writes the hash of bytes[n_bytes] to digest. */
void np_sha256(const void *bytes, size_t n_bytes, uint8_t digest[NP_SHA256_BYTES]);

/* Writes a digest as 64 lowercase hex digits and a terminating zero. */
void np_sha256_hex(const uint8_t digest[NP_SHA256_BYTES], char hex[2 * NP_SHA256_BYTES + 1]);

/* Returns the implementation that uses the processor's SHA-256 instructions, NULL if it has
 * none. */
np_sha256_blocks *np_sha256_native(void);
np_sha256_blocks np_sha256_portable;

/* [64]: the first 32 bits of the fractional parts of the cube roots of the first 64 primes. */
extern const uint32_t np_sha256_constants[64];

#endif
