/* Shared by the kernels that move values. */
#ifndef NP_MOVE_H
#define NP_MOVE_H

#include "kernels/np_gather.h"
#include "kernels/np_kernel.h"
#include "kernels/np_quant.h"

/* Every tensor type: lowering also moves types that no NNAPI operation moves. */
#define NP_ANY_TENSOR                                                                              \
  (NP_MOVES | NP_BIT(NP_TYPE_TENSOR_BOOL8) | NP_BIT(NP_TYPE_TENSOR_QUANT16_SYMM) |                 \
   NP_BIT(NP_TYPE_TENSOR_QUANT16_ASYMM) | NP_BIT(NP_TYPE_TENSOR_QUANT8_SYMM) |                     \
   NP_BIT(NP_TYPE_TENSOR_QUANT8_SYMM_PER_CHANNEL))

/* Copies a view of a tensor, from its element `start` on, to `out` without gaps: dims are the
 * view's dimensions, steps its strides in elements of the tensor. No dimension may be 0. */
void np_copy_view(const struct np_tensor *tensor, void *out, uint32_t rank, const uint32_t *dims,
                  const ptrdiff_t *steps, ptrdiff_t start);

/* Copies a non-empty tensor into a larger one of the same rank, starting at starts[d] in dimension
 * d. */
void np_copy_into(const struct np_tensor *tensor, const struct np_tensor *whole,
                  const uint32_t *starts);

/* Returns the offset of position `index` of the first n dimensions, counted in row-major order. */
size_t np_strided_offset(size_t index, uint32_t n, const uint32_t *dims, const ptrdiff_t *strides);

/* Splits a tensor at an axis: the product of the dimensions before it, and from it on; both are 0
 * only if a dimension is. */
void np_split_at(const struct np_tensor *tensor, uint32_t axis, size_t *outer, size_t *inner);

/* Copies `outer` rows of `bytes` each; source and destination have their own strides. */
void np_copy_rows(unsigned char *to, size_t to_stride, const unsigned char *from,
                  size_t from_stride, size_t outer, size_t bytes);

/* Returns the bytes of one row of a tensor: of all dimensions except the first. */
size_t np_row_bytes(const struct np_tensor *tensor);

/* Sets the shape of output 0: a row of input `values` for each of the lookups, input 0. */
enum np_status np_rows_infer(const struct np_call *call, uint32_t values);

/* Multiplies a dimension by `times`; NP_BAD_MODEL if the product does not fit 32 bits. */
enum np_status np_multiply_dim(const struct np_call *call, uint32_t dim, uint64_t times,
                               uint32_t *product);

#endif
