/* The bytes of an action's tensors. */
#ifndef NP_TENSORS_H
#define NP_TENSORS_H

#include "pipeline.h"
#include "request.h"

/* Fills data[tensor->n_bytes], aligned to the element size, with PROTOCOL.md's pseudo-random
 * values. Only of the tensor's type, seed and count. */
void np_tensor_randomize(const struct np_tensor *tensor, void *data);

/* Gives the pseudo-random tensors of an action their bytes; a new pipeline's others are zero, or a
 * blob's. Its tensors are the action's. */
void np_tensors_fill(const struct np_action *action, const struct np_pipeline *pipeline);

#endif
