#include "sha256.h"

#include <string.h>

const uint32_t np_sha256_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate(uint32_t x, unsigned n) { return x >> n | x << (32 - n); }

static void add_block(uint32_t state[8], const uint8_t block[64]) {
  uint32_t w[64];
  for (size_t i = 0; i < 16; i++) {
    w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
           (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
  }
  for (size_t i = 16; i < 64; i++) {
    const uint32_t s0 = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
    const uint32_t s1 = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
  uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
  for (size_t i = 0; i < 64; i++) {
    const uint32_t s1 = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25);
    const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + np_sha256_constants[i] + w[i];
    const uint32_t s0 = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22);
    const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1;
    d = c, c = b, b = a, a = t1 + t2;
  }
  const uint32_t added[8] = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; i++) {
    state[i] += added[i];
  }
}

void np_sha256_portable(uint32_t state[8], const uint8_t *blocks, size_t n_blocks) {
  for (; n_blocks != 0; n_blocks--, blocks += 64) {
    add_block(state, blocks);
  }
}

void np_sha256_begin(struct np_sha256 *hash) {
  np_sha256_blocks *native = np_sha256_native();
  /* The first 32 bits of the fractional parts of the square roots of the first 8 primes. */
  *hash = (struct np_sha256){.add_blocks = native ? native : np_sha256_portable,
                             .state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f,
                                       0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

void np_sha256_add(struct np_sha256 *hash, const void *bytes, size_t n_bytes) {
  const uint8_t *byte = bytes;
  size_t waiting = (size_t)(hash->n_bytes % 64);
  hash->n_bytes += n_bytes;
  while (n_bytes != 0) {
    if (waiting == 0 && n_bytes >= 64) {
      hash->add_blocks(hash->state, byte, n_bytes / 64);
      byte += n_bytes / 64 * 64;
      n_bytes %= 64;
      continue;
    }
    const size_t taken = n_bytes < 64 - waiting ? n_bytes : 64 - waiting;
    memcpy(hash->block + waiting, byte, taken);
    byte += taken;
    n_bytes -= taken;
    waiting += taken;
    if (waiting == 64) {
      hash->add_blocks(hash->state, hash->block, 1);
      waiting = 0;
    }
  }
}

void np_sha256_end(struct np_sha256 *hash, uint8_t digest[NP_SHA256_BYTES]) {
  /* One set bit, zeros, and the length in bits at the end of the last block. */
  static const uint8_t padding[64] = {0x80};
  const uint64_t n_bits = hash->n_bytes * 8;
  const size_t waiting = (size_t)(hash->n_bytes % 64);
  uint8_t length[8];
  for (size_t i = 0; i < 8; i++) {
    length[7 - i] = (uint8_t)(n_bits >> 8 * i);
  }
  np_sha256_add(hash, padding, waiting < 56 ? 56 - waiting : 120 - waiting);
  np_sha256_add(hash, length, sizeof length);
  for (size_t i = 0; i < NP_SHA256_BYTES; i++) {
    digest[i] = (uint8_t)(hash->state[i / 4] >> (24 - 8 * (i % 4)));
  }
}

void np_sha256(const void *bytes, size_t n_bytes, uint8_t digest[NP_SHA256_BYTES]) {
  struct np_sha256 hash;
  np_sha256_begin(&hash);
  np_sha256_add(&hash, bytes, n_bytes);
  np_sha256_end(&hash, digest);
}

void np_sha256_hex(const uint8_t digest[NP_SHA256_BYTES], char hex[2 * NP_SHA256_BYTES + 1]) {
  static const char digits[] = "0123456789abcdef";
  for (size_t i = 0; i < NP_SHA256_BYTES; i++) {
    hex[2 * i] = digits[digest[i] >> 4];
    hex[2 * i + 1] = digits[digest[i] & 15];
  }
  hex[2 * NP_SHA256_BYTES] = 0;
}
