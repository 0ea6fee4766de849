/* Formats of values: floats and 8-bit integers, and the cost of converting between them. */
#ifndef NP_FORMATS_H
#define NP_FORMATS_H

#include <stdbool.h>
#include <stdint.h>

#include "ideals.h"

static inline bool has(const int64_t *bits, int64_t number) {
  return (bits[number / WORD] >> (number % WORD)) & 1;
}

/* A step of a plan from one set of units to a larger one: the slots whose values exist in either
 * format, the cost of conversions, and the formats' part of the bound of the rest, in ns. */
struct np_step {
  const struct np_ideal_tables *tb;
  const int64_t *before, *after;
  int64_t *as_float, *as_int8;
  double cost, formats;
};

/* Reads a value in the format of target k. */
void np_read_in_format(struct np_step *step, int64_t value, int64_t k);

/* Makes a value in the format of target k, and in those that an output needs. */
void np_make_in_format(struct np_step *step, int64_t value, int64_t k);

#endif
