#include "kernels/np_gather.h"

#include <string.h>

void np_row_major(uint32_t rank, const uint32_t *dims, ptrdiff_t *strides) {
  ptrdiff_t step = 1;
  for (uint32_t d = rank; d-- > 0;) {
    strides[d] = step;
    step *= (ptrdiff_t)dims[d];
  }
}

/* Copies n elements of a size that the compiler knows. */
static inline void copy_strided(unsigned char *out, ptrdiff_t out_step, const unsigned char *in,
                                ptrdiff_t in_step, size_t n, size_t size) {
  for (size_t i = 0; i < n; i++) {
    memcpy(out + (ptrdiff_t)i * out_step * (ptrdiff_t)size,
           in + (ptrdiff_t)i * in_step * (ptrdiff_t)size, size);
  }
}

static void copy_row(unsigned char *out, ptrdiff_t out_step, const unsigned char *in,
                     ptrdiff_t in_step, size_t n, size_t size) {
  if (in_step == 1 && out_step == 1) {
    memcpy(out, in, n * size);
  } else if (size == 4) {
    copy_strided(out, out_step, in, in_step, n, 4);
  } else if (size == 2) {
    copy_strided(out, out_step, in, in_step, n, 2);
  } else {
    copy_strided(out, out_step, in, in_step, n, 1);
  }
}

typedef int32_t words __attribute__((vector_size(16)));

/* A block of 4 x 4 elements, transposed in registers. */
static void transpose_block(const unsigned char *in, size_t in_stride, unsigned char *out,
                            size_t out_stride) {
  words rows[4];
  for (size_t i = 0; i < 4; i++) {
    memcpy(&rows[i], in + i * in_stride * 4, sizeof rows[i]);
  }
  const words low_ab = __builtin_shufflevector(rows[0], rows[1], 0, 4, 1, 5);
  const words low_cd = __builtin_shufflevector(rows[2], rows[3], 0, 4, 1, 5);
  const words high_ab = __builtin_shufflevector(rows[0], rows[1], 2, 6, 3, 7);
  const words high_cd = __builtin_shufflevector(rows[2], rows[3], 2, 6, 3, 7);
  rows[0] = __builtin_shufflevector(low_ab, low_cd, 0, 1, 4, 5);
  rows[1] = __builtin_shufflevector(low_ab, low_cd, 2, 3, 6, 7);
  rows[2] = __builtin_shufflevector(high_ab, high_cd, 0, 1, 4, 5);
  rows[3] = __builtin_shufflevector(high_ab, high_cd, 2, 3, 6, 7);
  for (size_t i = 0; i < 4; i++) {
    memcpy(out + i * out_stride * 4, &rows[i], sizeof rows[i]);
  }
}

/* The same for 8 x 8 elements of 1 byte or 4 x 4 of 2, with a row in 8 bytes: swaps quarters of the
 * block across its diagonal, then quarters of these. */
static inline void transpose_small_block(const unsigned char *in, size_t in_stride,
                                         unsigned char *out, size_t out_stride, size_t size) {
  const size_t side = 8 / size;
  uint64_t rows[8];
  for (size_t i = 0; i < side; i++) {
    memcpy(&rows[i], in + i * in_stride * size, sizeof rows[i]);
  }
  for (size_t half = side / 2; half > 0; half /= 2) {
    const size_t shift = 8 * size * half;
    const uint64_t lower = UINT64_MAX / (((uint64_t)1 << shift) + 1); /* every other `shift` bits */
    for (size_t i = 0; i < side; i++) {
      if ((i & half) == 0) {
        const uint64_t differing = (rows[i] >> shift ^ rows[i + half]) & lower;
        rows[i + half] ^= differing;
        rows[i] ^= differing << shift;
      }
    }
  }
  for (size_t i = 0; i < side; i++) {
    memcpy(out + i * out_stride * size, &rows[i], sizeof rows[i]);
  }
}

/* Transposes a tile of at most 16 x 16 elements, a cache line each way. Writes whole rows of the
 * output first, since rows at distances of a power of two share cache sets. */
static inline void transpose_tile(const unsigned char *in, size_t in_stride, unsigned char *out,
                                  size_t out_stride, size_t rows, size_t columns, size_t size) {
  const size_t side = size == 4 ? 4 : 8 / size;
  const size_t whole_rows = rows / side * side;
  const size_t whole_columns = columns / side * side;
  for (size_t x = 0; x < whole_columns; x += side) {
    for (size_t y = 0; y < whole_rows; y += side) {
      const unsigned char *from = in + (y * in_stride + x) * size;
      unsigned char *to = out + (x * out_stride + y) * size;
      if (size == 4) {
        transpose_block(from, in_stride, to, out_stride);
      } else {
        transpose_small_block(from, in_stride, to, out_stride, size);
      }
    }
  }
  for (size_t y = 0; y < rows; y++) {
    for (size_t x = y < whole_rows ? whole_columns : 0; x < columns; x++) {
      memcpy(out + (x * out_stride + y) * size, in + (y * in_stride + x) * size, size);
    }
  }
}

/* Transposes a plane of elements of a size that the compiler knows: 1, 2 or 4. */
static inline void transpose(const unsigned char *in, size_t in_stride, unsigned char *out,
                             size_t out_stride, size_t rows, size_t columns, size_t size) {
  const size_t side = 16;
  for (size_t y = 0; y < rows; y += side) {
    for (size_t x = 0; x < columns; x += side) {
      transpose_tile(in + (y * in_stride + x) * size, in_stride, out + (x * out_stride + y) * size,
                     out_stride, rows - y < side ? rows - y : side,
                     columns - x < side ? columns - x : side, size);
    }
  }
}

/* Merges neighbouring dimensions that have a common stride in both views, innermost first, and
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

/* Copies rows of one dimension, tiled with the dimension in which the input is contiguous, so that
 * all elements of a cache line that is read are used. */
static void copy_plane(unsigned char *out, const unsigned char *in, const size_t dims[2],
                       const ptrdiff_t out_strides[2], const ptrdiff_t in_strides[2], size_t size) {
  const size_t side = 16;
  const ptrdiff_t bytes = (ptrdiff_t)size;
  if (in_strides[1] == 1 && out_strides[0] == 1 && in_strides[0] > 0) {
    const size_t step = (size_t)in_strides[0];
    const size_t out_step = (size_t)out_strides[1];
    if (size == 4) {
      transpose(in, step, out, out_step, dims[0], dims[1], 4);
    } else if (size == 2) {
      transpose(in, step, out, out_step, dims[0], dims[1], 2);
    } else {
      transpose(in, step, out, out_step, dims[0], dims[1], 1);
    }
    return;
  }
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
