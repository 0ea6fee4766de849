/* The bytes of an action's inputs. */
#ifndef NP_TENSORS_H
#define NP_TENSORS_H

#include "request.h"

/* Fills n elements of a type, at data, with PROTOCOL.md's pseudo-random values. */
void np_randomize(int32_t type, uint32_t seed, size_t n, void *data);

/* Memory for n_bytes, aligned as a pipeline's own; NULL where there is none. */
void *np_tensor_allocate(size_t n_bytes);

/* New memory with an input's bytes, turned by so many elements; NULL where there is none. */
void *np_input_make(const struct np_action *action, uint32_t input, const struct np_bytes *blobs,
                    uint32_t turn);

#endif
