/* Copies a strided view of one tensor into another, as TRANSPOSE, SLICE, STRIDED_SLICE and similar
 * operations do. */
#ifndef NP_GATHER_H
#define NP_GATHER_H

#include <stddef.h>
#include <stdint.h>

#include "np_graph.h"

struct np_view {
  uint32_t rank;
  size_t dims[NP_MAX_RANK];
  ptrdiff_t strides[NP_MAX_RANK]; /* in elements; may be negative */
};

/* Computes the row-major strides of a shape, in elements. */
void np_row_major(uint32_t rank, const uint32_t *dims, ptrdiff_t *strides);

/* Copies elements of `size` (1, 2 or 4) bytes from `in`, viewed as `from`, to `out`, viewed as
 * `to`. Both views have the dimensions of `to`; from->dims is ignored. */
void np_gather(const struct np_view *to, void *out, const struct np_view *from, const void *in,
               size_t size);

#endif
