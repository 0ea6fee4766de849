/* Shared by the pooling kernels. */
#ifndef NP_POOL_H
#define NP_POOL_H

#include "kernels/np_window.h"

/* Reads the window, and the index of the input that is the fused activation. NP_MISSING if a value
 * is not known yet, NP_BAD_MODEL if the window is empty or can lie entirely in the padding. */
enum np_status np_pool_read(const struct np_call *call, struct np_window *window, uint32_t *fuse);

/* Sets the output's shape. */
enum np_status np_pool_infer(const struct np_call *call);

/* The cells of an output pixel's window that are inside the image. */
struct np_cells {
  size_t first, row_step; /* in elements of the image */
  uint32_t rows, columns;
};

struct np_cells np_pool_cells(const struct np_window *w, uint32_t y, uint32_t x);

#endif
