/* Where each temporary of a graph lies in one block of memory. */
#ifndef NP_PLAN_H
#define NP_PLAN_H

#include "kernels/np_kernel.h"

#define NP_ALIGNMENT 64u

/* Bytes rounded up to NP_ALIGNMENT, SIZE_MAX on overflow. */
size_t np_align(size_t bytes);

/* Assigns offsets [n_operands] to the operands that `placed` marks: operands whose lives overlap
 * (from the operation that writes one to the last one that reads it) do not share bytes, others
 * may. Shapes are known. *total is the size of the block, a multiple of NP_ALIGNMENT.
 * NP_NO_MEMORY where there is none for the bookkeeping or *total does not fit size_t. */
enum np_status np_plan_memory(const struct np_graph *graph, const struct np_tensor *tensors,
                              const unsigned char *placed, size_t *offsets, size_t *total);

#endif
