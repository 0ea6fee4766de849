/* SHA-256 as FIPS 180-4 defines it. */
#ifndef NP_SHA256_H
#define NP_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define NP_SHA256_BYTES 32u

/* Writes the hash of bytes[n_bytes] to digest. */
void np_sha256(const void *bytes, size_t n_bytes, uint8_t digest[NP_SHA256_BYTES]);

/* Writes a digest as 64 lowercase hex digits and a terminating zero. */
void np_sha256_hex(const uint8_t digest[NP_SHA256_BYTES], char hex[2 * NP_SHA256_BYTES + 1]);

#endif
