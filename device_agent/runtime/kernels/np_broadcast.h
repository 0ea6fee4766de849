/* Broadcasting of two inputs, as NNAPI documents it for ADD: dimensions are compared from the last
 * one on, and must be equal or 1. */
#ifndef NP_BROADCAST_H
#define NP_BROADCAST_H

#include <stddef.h>

#include "kernels/np_kernel.h"

/* Sets output 0 to the shape that inputs 0 and 1 broadcast to. NP_MISSING, NP_BAD_MODEL. */
enum np_status np_broadcast_infer(const struct np_call *call);

/* Computes one row: out[i] from a[i * step_a] and b[i * step_b] for i < n; steps are 0 or 1.
 * Elements have the types of inputs 0 and 1 and of output 0. */
typedef void np_row(const void *how, const void *a, size_t step_a, const void *b, size_t step_b,
                    void *out, size_t n);

/* Computes all of output 0 row by row, with rows as long as the shapes allow. */
void np_broadcast_run(const struct np_call *call, np_row *row, const void *how);

/* ---- The arithmetic of two tensors: kernel_binary.c, and kernel_binary_quant.c for quantised ones
 */

enum np_binary {
  NP_BINARY_ADD,
  NP_BINARY_SUB,
  NP_BINARY_MUL,
  NP_BINARY_DIV,
  NP_BINARY_MAXIMUM,
  NP_BINARY_MINIMUM,
  NP_BINARY_POW,
  NP_BINARY_PRELU,
};

/* Checks the scales of a quantised operation, whose shape is known. */
enum np_status np_binary_quant_check(const struct np_call *call);

/* Computes a quantised operation, with results clamped to [low, high]. */
void np_binary_quant_run(const struct np_call *call, int32_t low, int32_t high);

#endif
