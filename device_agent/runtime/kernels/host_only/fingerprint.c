#include "kernels/host_only/np_fingerprint.h"

static const uint64_t K0 = 0xc3a5c85c97cb3127u;
static const uint64_t K1 = 0xb492b66fbe98f273u;
static const uint64_t K2 = 0x9ae16a3b2f90404fu;

/* Loads n bytes, the lowest first. */
static uint64_t load(const unsigned char *bytes, unsigned n) {
  uint64_t value = 0;
  for (unsigned i = 0; i < n; i++) {
    value |= (uint64_t)bytes[i] << (8 * i);
  }
  return value;
}

static uint64_t load8(const unsigned char *bytes) { return load(bytes, 8); }

static uint64_t rotate(uint64_t value, int right) { return value >> right | value << (64 - right); }

static uint64_t fold(uint64_t value) { return value ^ value >> 47; }

static uint64_t join(uint64_t a, uint64_t b, uint64_t factor) {
  const uint64_t c = fold((a ^ b) * factor);
  return fold((b ^ c) * factor) * factor;
}

static uint64_t of_16(const unsigned char *s, size_t n) {
  const uint64_t factor = K2 + 2 * n;
  if (n >= 8) {
    const uint64_t a = load8(s) + K2;
    const uint64_t b = load8(s + n - 8);
    return join(rotate(b, 37) * factor + a, (rotate(a, 25) + b) * factor, factor);
  }
  if (n >= 4) {
    return join(n + (load(s, 4) << 3), load(s + n - 4, 4), factor);
  }
  if (n > 0) {
    const uint32_t low = (uint32_t)s[0] + ((uint32_t)s[n >> 1] << 8);
    const uint32_t high = (uint32_t)n + ((uint32_t)s[n - 1] << 2);
    return fold(low * K2 ^ high * K0) * K2;
  }
  return K2;
}

/* Computes the two halves with which lengths of 17 to 64 begin. */
static void ends(const unsigned char *s, size_t n, uint64_t factor, uint64_t first, uint64_t *a,
                 uint64_t *b) {
  const uint64_t head = load8(s) * first;
  const uint64_t next = load8(s + 8);
  const uint64_t tail = load8(s + n - 8) * factor;
  *a = rotate(head + next, 43) + rotate(tail, 30) + load8(s + n - 16) * K2;
  *b = head + rotate(next + K2, 18) + tail;
}

static uint64_t of_32(const unsigned char *s, size_t n) {
  const uint64_t factor = K2 + 2 * n;
  uint64_t a, b;
  ends(s, n, factor, K1, &a, &b);
  return join(a, b, factor);
}

static uint64_t of_64(const unsigned char *s, size_t n) {
  const uint64_t factor = K2 + 2 * n;
  uint64_t y, b;
  ends(s, n, factor, K2, &y, &b);
  const uint64_t z = join(y, b, factor);
  const uint64_t head = load8(s) * K2;
  const uint64_t e = load8(s + 16) * factor;
  const uint64_t f = load8(s + 24);
  const uint64_t g = (y + load8(s + n - 32)) * factor;
  const uint64_t h = (z + load8(s + n - 24)) * factor;
  return join(rotate(e + f, 43) + rotate(g, 30) + h, e + rotate(f + head, 18) + g, factor);
}

struct two {
  uint64_t a;
  uint64_t b;
};

/* The state between blocks of 64 bytes. */
struct state {
  uint64_t x, y, z;
  struct two v, w;
};

static struct two weak(const unsigned char *s, uint64_t a, uint64_t b) {
  a += load8(s);
  b = rotate(b + a + load8(s + 24), 21);
  const uint64_t first = a;
  a += load8(s + 8) + load8(s + 16);
  b += rotate(a, 44);
  return (struct two){a + load8(s + 24), b + first};
}

/* Mixes in a block; `times` is 1, or 9 for the last block. */
static void mix(struct state *at, const unsigned char *s, uint64_t factor, uint64_t times) {
  at->x = rotate(at->x + at->y + at->v.a + load8(s + 8), 37) * factor;
  at->y = rotate(at->y + at->v.b + load8(s + 48), 42) * factor;
  at->x ^= at->w.b * times;
  at->y += at->v.a * times + load8(s + 40);
  at->z = rotate(at->z + at->w.a, 33) * factor;
  at->v = weak(s, at->v.b * factor, at->x + at->w.a);
  at->w = weak(s + 32, at->z + at->w.b, at->y + load8(s + 16));
  const uint64_t z = at->z;
  at->z = at->x;
  at->x = z;
}

static uint64_t of_more(const unsigned char *s, size_t n) {
  const uint64_t seed = 81;
  struct state at = {.x = seed * K2 + load8(s), .y = seed * K1 + 113};
  at.z = fold(at.y * K2 + 113) * K2;
  for (size_t done = 0; done < (n - 1) / 64; done++) {
    mix(&at, s + 64 * done, K1, 1);
  }
  const uint64_t factor = K1 + ((at.z & 0xff) << 1);
  at.w.a += (n - 1) & 63;
  at.v.a += at.w.a;
  at.w.a += at.v.a;
  mix(&at, s + n - 64, factor, 9); /* the last 64 bytes, some of them again */
  return join(join(at.v.a, at.w.a, factor) + fold(at.y) * K0 + at.z,
              join(at.v.b, at.w.b, factor) + at.x, factor);
}

uint64_t np_fingerprint(const unsigned char *bytes, size_t n) {
  return n <= 16   ? of_16(bytes, n)
         : n <= 32 ? of_32(bytes, n)
         : n <= 64 ? of_64(bytes, n)
                   : of_more(bytes, n);
}
