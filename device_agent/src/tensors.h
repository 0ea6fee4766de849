/* Makes the bytes of an action's inputs. */
#ifndef NP_TENSORS_H
#define NP_TENSORS_H

#include "request.h"

/* Fills n elements of a type, at data, with PROTOCOL.md's pseudo-random values. */
void np_randomize(int32_t type, uint32_t seed, size_t n, void *data);

/* Allocates n_bytes, aligned like a pipeline's own memory; NULL if memory is short. */
void *np_tensor_allocate(size_t n_bytes);

/* Allocates an input's bytes, rotated by `turn` elements; NULL if memory is short. */
void *np_input_make(const struct np_action *action, uint32_t input, const struct np_bytes *blobs,
                    uint32_t turn);

#endif
