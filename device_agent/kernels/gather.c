#include "np_gather.h"

#include <string.h>

void np_row_major(uint32_t rank, const uint32_t *dims, ptrdiff_t *strides) {
  ptrdiff_t step = 1;
  for (uint32_t d = rank; d-- > 0;) {
    strides[d] = step;
    step *= (ptrdiff_t)dims[d];
  }
}

static void copy_row(unsigned char *out, ptrdiff_t out_step, const unsigned char *in,
                     ptrdiff_t in_step, size_t n, size_t size) {
  if (in_step == 1 && out_step == 1) {
    memcpy(out, in, n * size);
    return;
  }
  if (size == 4) {
    for (size_t i = 0; i < n; i++) {
      memcpy(out + (ptrdiff_t)i * out_step * 4, in + (ptrdiff_t)i * in_step * 4, 4);
    }
    return;
  }
  for (size_t i = 0; i < n; i++) {
    memcpy(out + (ptrdiff_t)i * out_step * (ptrdiff_t)size,
           in + (ptrdiff_t)i * in_step * (ptrdiff_t)size, size);
  }
}

/* Merges neighbouring dimensions that both views walk through in one stride, innermost first, and
 * drops those of 1. Returns the number of dimensions left, at least 1. */
static uint32_t merge(const struct np_view *to, const struct np_view *from, size_t *dims,
                      ptrdiff_t *out_strides, ptrdiff_t *in_strides) {
  uint32_t n = 0;
  for (uint32_t d = to->rank; d-- > 0;) {
    if (to->dims[d] == 1) {
      continue;
    }
    if (n > 0 && to->strides[d] == out_strides[n - 1] * (ptrdiff_t)dims[n - 1] &&
        from->strides[d] == in_strides[n - 1] * (ptrdiff_t)dims[n - 1]) {
      dims[n - 1] *= to->dims[d];
      continue;
    }
    dims[n] = to->dims[d];
    out_strides[n] = to->strides[d];
    in_strides[n] = from->strides[d];
    n++;
  }
  if (n == 0) {
    dims[0] = 1;
    out_strides[0] = 1;
    in_strides[0] = 1;
    n = 1;
  }
  return n;
}

/* Rows of one dimension, tiled with the dimension in which the input is contiguous, so that a
 * cache line is read for all the elements in it. */
static void copy_plane(unsigned char *out, const unsigned char *in, const size_t dims[2],
                       const ptrdiff_t out_strides[2], const ptrdiff_t in_strides[2], size_t size) {
  const size_t side = 16;
  const ptrdiff_t bytes = (ptrdiff_t)size;
  for (size_t y = 0; y < dims[1]; y += side) {
    const size_t last = dims[1] - y < side ? dims[1] : y + side;
    for (size_t x = 0; x < dims[0]; x += side) {
      const size_t n = dims[0] - x < side ? dims[0] - x : side;
      for (size_t row = y; row < last; row++) {
        copy_row(out + ((ptrdiff_t)row * out_strides[1] + (ptrdiff_t)x * out_strides[0]) * bytes,
                 out_strides[0],
                 in + ((ptrdiff_t)row * in_strides[1] + (ptrdiff_t)x * in_strides[0]) * bytes,
                 in_strides[0], n, size);
      }
    }
  }
}

void np_gather(const struct np_view *to, void *out, const struct np_view *from, const void *in,
               size_t size) {
  size_t dims[NP_MAX_RANK];
  ptrdiff_t out_strides[NP_MAX_RANK];
  ptrdiff_t in_strides[NP_MAX_RANK];
  for (uint32_t d = 0; d < to->rank; d++) {
    if (to->dims[d] == 0) {
      return;
    }
  }
  const uint32_t rank = merge(to, from, dims, out_strides, in_strides);
  uint32_t second = 1; /* the dimension to tile with the innermost one */
  for (uint32_t d = 1; d < rank; d++) {
    if (in_strides[d] == 1) {
      second = d;
    }
  }
  const int tiled = rank > 1 && in_strides[0] != 1;
  const uint32_t first_outer = tiled ? 2 : 1;
  if (tiled && second != 1) {
    const size_t dim = dims[1];
    const ptrdiff_t out_stride = out_strides[1];
    const ptrdiff_t in_stride = in_strides[1];
    dims[1] = dims[second];
    out_strides[1] = out_strides[second];
    in_strides[1] = in_strides[second];
    dims[second] = dim;
    out_strides[second] = out_stride;
    in_strides[second] = in_stride;
  }
  size_t at[NP_MAX_RANK] = {0};
  ptrdiff_t out_at = 0;
  ptrdiff_t in_at = 0;
  for (;;) {
    unsigned char *o = (unsigned char *)out + out_at * (ptrdiff_t)size;
    const unsigned char *i = (const unsigned char *)in + in_at * (ptrdiff_t)size;
    if (tiled) {
      copy_plane(o, i, dims, out_strides, in_strides, size);
    } else {
      copy_row(o, out_strides[0], i, in_strides[0], dims[0], size);
    }
    uint32_t d = first_outer;
    for (; d < rank; d++) {
      out_at += out_strides[d];
      in_at += in_strides[d];
      if (++at[d] < dims[d]) {
        break;
      }
      out_at -= out_strides[d] * (ptrdiff_t)dims[d];
      in_at -= in_strides[d] * (ptrdiff_t)dims[d];
      at[d] = 0;
    }
    if (d >= rank) {
      return;
    }
  }
}
