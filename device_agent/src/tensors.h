/* The bytes of an action's tensors. */
#ifndef NP_TENSORS_H
#define NP_TENSORS_H

#include "model.h"
#include "np_status.h"
#include "request.h"

/* Fills data[tensor->n_bytes], aligned to the element size, with PROTOCOL.md's pseudo-random
 * values. Only of the tensor's type, seed and count. */
void np_tensor_randomize(const struct np_tensor *tensor, void *data);

/* Makes the bytes of each tensor of an action: data[n_tensors] get their addresses. Blob tensors
 * are the blob itself (read-only); all others are allocated, aligned to 64 bytes. The caller frees
 * with np_tensors_free also after a failure, which is NP_NO_MEMORY with the tensor named in *why.
 */
enum np_status np_tensors_make(const struct np_action *action, const struct np_bytes *blobs,
                               void **data, struct np_message *why);

void np_tensors_free(const struct np_action *action, void **data);

#endif
