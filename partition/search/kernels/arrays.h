/* Tables that all loops read. */
#ifndef NP_ARRAYS_H
#define NP_ARRAYS_H

#include <stdint.h>

#define WORD 62 /* bits of an int64_t in use, as in partition/arrays.py */

enum { AS_FLOAT = 1, AS_INT8 = 2 }; /* formats of a value, as bits */

/* First fields of every structure of tables: a pointer for each field of Arrays in
 * partition/arrays.py, in the same order; that class documents them. */
#define NP_ARRAYS                                                                                  \
  const double *unit_ns, *overhead_ns;                                                             \
  const int64_t *predecessor_at, *predecessors, *successor_at, *successors, *producer;             \
  const uint8_t *is_output;                                                                        \
  const double *in_ns, *out_ns;                                                                    \
  const int64_t *reader_at, *readers, *reader_value, *read_at, *reads, *make_at, *makes;           \
  const int64_t *format, *formats_in, *formats_out;                                                \
  const double *to_int8_ns, *to_float_ns

#endif
