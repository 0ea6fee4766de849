/* IEEE 754 binary16 as NNAPI stores FLOAT16, converted in integer arithmetic: no compiler support
 * for such a type is needed, and results are the same on every machine. */
#ifndef NP_HALF_H
#define NP_HALF_H

#include <stddef.h>
#include <stdint.h>

/* The value of a float16; exact. A NaN stays one, with its sign and payload. */
float np_half_to_float(uint16_t half);

/* The float16 nearest to a value, ties to even. What is too large becomes an infinity, what is too
 * small a subnormal or a zero of the same sign; a NaN stays one (quiet). */
uint16_t np_half_from_float(float value);

/* The same for n values; `from` and `to` do not overlap. */
void np_half_to_floats(const uint16_t *from, float *to, size_t n);
void np_half_from_floats(const float *from, uint16_t *to, size_t n);

#endif
