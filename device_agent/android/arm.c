/* Operations for which 32-bit ARM has no instruction: division, and conversion of 64-bit integers.
 *
 * Compilers call these functions by the names of ARM's run-time ABI; usually they come with the
 * compiler's own library. As that ABI requires, floating-point arguments are in integer registers
 * on Android. No function may use the operation that it implements. Conversions of numbers out of
 * range saturate, as the processor's own do. */
#include <stdint.h>

#define HIDDEN __attribute__((visibility("hidden")))

/* The integer part of a quotient of 32-bit integers rounded to 53 bits is exact. */
static uint32_t quotient(uint32_t n, uint32_t d) {
  return d == 0 ? 0 : (uint32_t)((double)n / (double)d);
}

static uint32_t magnitude(int32_t n) { return n < 0 ? -(uint32_t)n : (uint32_t)n; }

static int32_t signed_quotient(int32_t n, int32_t d) {
  const uint32_t q = quotient(magnitude(n), magnitude(d));
  return (int32_t)((n < 0) != (d < 0) ? -q : q);
}

/* Two registers: the quotient, then the remainder. */
static uint64_t both(uint32_t n, uint32_t d, uint32_t q) { return (uint64_t)(n - q * d) << 32 | q; }

HIDDEN uint32_t __aeabi_uidiv(uint32_t n, uint32_t d);
uint32_t __aeabi_uidiv(uint32_t n, uint32_t d) { return quotient(n, d); }
HIDDEN int32_t __aeabi_idiv(int32_t n, int32_t d);
int32_t __aeabi_idiv(int32_t n, int32_t d) { return signed_quotient(n, d); }
HIDDEN uint64_t __aeabi_uidivmod(uint32_t n, uint32_t d);
uint64_t __aeabi_uidivmod(uint32_t n, uint32_t d) { return both(n, d, quotient(n, d)); }
HIDDEN uint64_t __aeabi_idivmod(int32_t n, int32_t d);
uint64_t __aeabi_idivmod(int32_t n, int32_t d) {
  return both((uint32_t)n, (uint32_t)d, (uint32_t)signed_quotient(n, d));
}

static int leading_zeros(uint64_t n) {
  const uint32_t high = (uint32_t)(n >> 32);
  return high != 0 ? __builtin_clz(high) : 32 + __builtin_clz((uint32_t)n);
}

HIDDEN uint64_t np_divide(uint64_t n, uint64_t d, uint64_t *rest);
uint64_t np_divide(uint64_t n, uint64_t d, uint64_t *rest) {
  uint64_t q = 0;
  if (d != 0 && n >= d) {
    if (n <= UINT32_MAX) {
      q = quotient((uint32_t)n, (uint32_t)d);
      n -= q * d;
    } else {
      for (int shift = leading_zeros(d) - leading_zeros(n); shift >= 0; shift--) {
        const uint64_t part = d << shift;
        if (n >= part) {
          n -= part;
          q |= (uint64_t)1 << shift;
        }
      }
    }
  }
  *rest = n;
  return q;
}

HIDDEN int64_t np_divide_signed(int64_t n, int64_t d, int64_t *rest);
int64_t np_divide_signed(int64_t n, int64_t d, int64_t *rest) {
  uint64_t left;
  const uint64_t q =
      np_divide(n < 0 ? -(uint64_t)n : (uint64_t)n, d < 0 ? -(uint64_t)d : (uint64_t)d, &left);
  *rest = (int64_t)(n < 0 ? -left : left);
  return (int64_t)((n < 0) != (d < 0) ? -q : q);
}

/* Four registers: the quotient, then the remainder, which C cannot express. */
#define FOUR_REGISTERS(name, function)                                                             \
  __asm__(".pushsection .text." #name ",\"ax\"\n.arm\n.balign 4\n.globl " #name "\n.hidden " #name \
          "\n.type " #name ", %function\n" #name ":\n"                                             \
          "push {r4, lr}\nsub sp, sp, #16\nadd r4, sp, #8\nstr r4, [sp]\nbl " #function            \
          "\nldrd r2, r3, [sp, #8]\nadd sp, sp, #16\npop {r4, pc}\n.size " #name ", . - " #name    \
          "\n.popsection")
FOUR_REGISTERS(__aeabi_uldivmod, np_divide);
FOUR_REGISTERS(__aeabi_ldivmod, np_divide_signed);

/* Shifts, called in code optimised for size. A shift is 0 to 63. */
static uint64_t joined(uint32_t high, uint32_t low) { return (uint64_t)high << 32 | low; }

HIDDEN uint64_t __aeabi_llsl(uint64_t n, int shift);
uint64_t __aeabi_llsl(uint64_t n, int shift) {
  const uint32_t high = (uint32_t)(n >> 32), low = (uint32_t)n;
  if (shift >= 32) {
    return joined(low << (shift - 32), 0);
  }
  return shift == 0 ? n : joined(high << shift | low >> (32 - shift), low << shift);
}
HIDDEN uint64_t __aeabi_llsr(uint64_t n, int shift);
uint64_t __aeabi_llsr(uint64_t n, int shift) {
  const uint32_t high = (uint32_t)(n >> 32), low = (uint32_t)n;
  if (shift >= 32) {
    return joined(0, high >> (shift - 32));
  }
  return shift == 0 ? n : joined(high >> shift, low >> shift | high << (32 - shift));
}
HIDDEN uint64_t __aeabi_lasr(uint64_t n, int shift);
uint64_t __aeabi_lasr(uint64_t n, int shift) {
  const int32_t high = (int32_t)(n >> 32);
  const uint32_t low = (uint32_t)n;
  if (shift >= 32) {
    return joined((uint32_t)(high >> 31), (uint32_t)(high >> (shift - 32)));
  }
  return shift == 0
             ? n
             : joined((uint32_t)(high >> shift), low >> shift | (uint32_t)high << (32 - shift));
}

/* Exact in both halves, so that the sum is rounded once. */
static double wide(double high, uint32_t low) { return high * 0x1p32 + (double)low; }

HIDDEN double __aeabi_ul2d(uint64_t n);
double __aeabi_ul2d(uint64_t n) { return wide((double)(uint32_t)(n >> 32), (uint32_t)n); }
HIDDEN double __aeabi_l2d(int64_t n);
double __aeabi_l2d(int64_t n) { return wide((double)(int32_t)(n >> 32), (uint32_t)n); }

/* Converts through a double that is exact, or whose last bit is set if bits were lost, so that
 * rounding to a float gives the correct result. */
static float narrow(uint64_t n) {
  double scale = 1;
  if (n >> 53 != 0) {
    n = n >> 11 | ((n & 2047) != 0);
    scale = 2048;
  }
  return (float)(wide((double)(uint32_t)(n >> 32), (uint32_t)n) * scale);
}
HIDDEN float __aeabi_ul2f(uint64_t n);
float __aeabi_ul2f(uint64_t n) { return narrow(n); }
HIDDEN float __aeabi_l2f(int64_t n);
float __aeabi_l2f(int64_t n) { return n < 0 ? -narrow(-(uint64_t)n) : narrow((uint64_t)n); }

/* Uses the processor's conversion, which saturates and turns NaN into 0. */
static uint32_t whole(double n) {
  uint32_t bits;
  __asm__("vcvt.u32.f64 s0, %P1\n\tvmov %0, s0" : "=r"(bits) : "w"(n) : "s0");
  return bits;
}

static uint64_t truncated(double n) {
  if (!(n < 0x1p64)) {
    return n >= 0x1p64 ? UINT64_MAX : 0;
  }
  const uint32_t high = whole(n * 0x1p-32);
  return (uint64_t)high << 32 | whole(n - (double)high * 0x1p32);
}

static int64_t truncated_signed(double n) {
  if (n >= 0x1p63) {
    return INT64_MAX;
  }
  if (n <= -0x1p63) {
    return INT64_MIN;
  }
  return n < 0 ? -(int64_t)truncated(-n) : (int64_t)truncated(n);
}

HIDDEN uint64_t __aeabi_d2ulz(double n);
uint64_t __aeabi_d2ulz(double n) { return truncated(n); }
HIDDEN uint64_t __aeabi_f2ulz(float n);
uint64_t __aeabi_f2ulz(float n) { return truncated((double)n); }
HIDDEN int64_t __aeabi_d2lz(double n);
int64_t __aeabi_d2lz(double n) { return truncated_signed(n); }
HIDDEN int64_t __aeabi_f2lz(float n);
int64_t __aeabi_f2lz(float n) { return truncated_signed((double)n); }
