#include "order.h"

#include "kernels/np_gather.h"

int np_order_is_valid(uint32_t order, uint32_t rank) {
  if (order == 0) {
    return 1;
  }
  uint32_t seen = 0;
  int moves = 0;
  for (uint32_t i = 0; i < NP_MAX_RANK; i++) {
    const uint32_t axis = np_order_axis(order, i);
    if (i >= rank) {
      if (axis != 0) {
        return 0;
      }
      continue;
    }
    if (axis >= rank || (seen >> axis & 1) != 0) {
      return 0;
    }
    seen |= 1u << axis;
    moves |= axis != i;
  }
  return moves;
}

int np_order_fits(uint32_t order, int32_t type, uint32_t rank, const uint32_t *dims,
                  const struct np_operand *operand) {
  if (type != operand->type) {
    return 0;
  }
  if (operand->rank == 0 && np_type_is_tensor(operand->type)) {
    return 1;
  }
  if (rank != operand->rank) {
    return 0;
  }
  for (uint32_t i = 0; i < rank; i++) {
    const uint32_t dim = dims[order == 0 ? i : np_order_axis(order, i)];
    if (operand->dims[i] != 0 && operand->dims[i] != dim) {
      return 0;
    }
  }
  return 1;
}

void np_order_dims(uint32_t order, uint32_t rank, const uint32_t *dims, uint32_t *operand_dims) {
  for (uint32_t i = 0; i < rank; i++) {
    operand_dims[i] = dims[order == 0 ? i : np_order_axis(order, i)];
  }
}

/* Both layouts as views whose dimensions are the operand's. */
static void make_views(uint32_t order, uint32_t rank, const uint32_t *dims, struct np_view *operand,
                       struct np_view *tensor) {
  uint32_t operand_dims[NP_MAX_RANK] = {0};
  ptrdiff_t steps[NP_MAX_RANK];
  np_order_dims(order, rank, dims, operand_dims);
  np_row_major(rank, operand_dims, operand->strides);
  np_row_major(rank, dims, steps);
  operand->rank = rank;
  tensor->rank = rank;
  for (uint32_t i = 0; i < rank; i++) {
    operand->dims[i] = operand_dims[i];
    tensor->dims[i] = operand_dims[i];
    tensor->strides[i] = steps[np_order_axis(order, i)];
  }
}

/* The same walk with the dimensions as the written side has them: whole rows are written. */
static void by_writing_order(uint32_t order, const struct np_view *from, struct np_view *to) {
  for (uint32_t i = 0; i < from->rank; i++) {
    to->dims[np_order_axis(order, i)] = from->dims[i];
    to->strides[np_order_axis(order, i)] = from->strides[i];
  }
  to->rank = from->rank;
}

#define NCHW_TO_NHWC 0x1320u

/* Planes of one image as pixels of n values, and back, where n is known to the compiler: an image's
 * three channels are too few for the tiles of np_gather. */
static inline void join_planes(const uint32_t *planes, size_t n_pixels, size_t n,
                               uint32_t *pixels) {
  for (size_t i = 0; i < n_pixels; i++) {
    for (size_t c = 0; c < n; c++) {
      pixels[i * n + c] = planes[c * n_pixels + i];
    }
  }
}

static inline void split_pixels(const uint32_t *pixels, size_t n_pixels, size_t n,
                                uint32_t *planes) {
  for (size_t i = 0; i < n_pixels; i++) {
    for (size_t c = 0; c < n; c++) {
      planes[c * n_pixels + i] = pixels[i * n + c];
    }
  }
}

/* Whether a tensor is images of three planes of 4-byte elements that an operand has as pixels. */
static int is_images(uint32_t order, uint32_t rank, const uint32_t *dims, size_t element_bytes) {
  return order == NCHW_TO_NHWC && rank == 4 && dims[1] == 3 && element_bytes == 4;
}

void np_order_to_operand(uint32_t order, uint32_t rank, const uint32_t *dims, size_t element_bytes,
                         const void *tensor, void *operand) {
  if (is_images(order, rank, dims, element_bytes)) {
    const size_t n_pixels = (size_t)dims[2] * dims[3];
    for (size_t i = 0; i < dims[0]; i++) {
      join_planes((const uint32_t *)tensor + 3 * i * n_pixels, n_pixels, 3,
                  (uint32_t *)operand + 3 * i * n_pixels);
    }
    return;
  }
  struct np_view to, from;
  make_views(order, rank, dims, &to, &from);
  np_gather(&to, operand, &from, tensor, element_bytes);
}

void np_order_from_operand(uint32_t order, uint32_t rank, const uint32_t *dims,
                           size_t element_bytes, const void *operand, void *tensor) {
  if (is_images(order, rank, dims, element_bytes)) {
    const size_t n_pixels = (size_t)dims[2] * dims[3];
    for (size_t i = 0; i < dims[0]; i++) {
      split_pixels((const uint32_t *)operand + 3 * i * n_pixels, n_pixels, 3,
                   (uint32_t *)tensor + 3 * i * n_pixels);
    }
    return;
  }
  struct np_view read, written, from, to;
  make_views(order, rank, dims, &read, &written);
  by_writing_order(order, &read, &from);
  by_writing_order(order, &written, &to);
  np_gather(&to, tensor, &from, operand, element_bytes);
}
