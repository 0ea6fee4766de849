/* Converts IEEE 754 binary16, NNAPI's FLOAT16, in integer arithmetic: this needs no compiler
 * support for the type, and gives the same results on every machine. */
#ifndef NP_HALF_H
#define NP_HALF_H

#include <stddef.h>
#include <stdint.h>

/* Returns the exact value of a float16. A NaN keeps its sign and payload. */
float np_half_to_float(uint16_t half);

/* Returns the float16 nearest to a value, ties to even. Too large a value becomes an infinity, too
 * small a value a subnormal or a zero of the same sign; a NaN becomes a quiet NaN. */
uint16_t np_half_from_float(float value);

/* Convert n values; `from` and `to` must not overlap. */
void np_half_to_floats(const uint16_t *from, float *to, size_t n);
void np_half_from_floats(const float *from, uint16_t *to, size_t n);

#endif
