/* Checks the shapes of the recurrent operations' inputs against each other. */
#include <stdio.h>

#include "kernels/np_lstm.h"

static const char *name_of(const struct np_call *call, uint32_t input) {
  return np_form_input(call->form, call->operation->n_inputs, input)->name;
}

/* Writes a shape, such as "[2, 3]", to text. */
static const char *shape_text(const struct np_tensor *tensor, char *text, size_t size) {
  size_t used = (size_t)snprintf(text, size, "[");
  for (uint32_t d = 0; d < tensor->rank && used < size; d++) {
    used += (size_t)snprintf(text + used, size - used, d == 0 ? "%u" : ", %u", tensor->dims[d]);
  }
  if (used < size) {
    (void)snprintf(text + used, size - used, "]");
  }
  return text;
}

enum np_status np_require_vector(const struct np_call *call, uint32_t input, size_t n) {
  char found[128];
  if (!np_has(call, input)) {
    return NP_OK;
  }
  const struct np_tensor *tensor = np_in(call, input);
  if (!tensor->known) {
    return NP_MISSING;
  }
  if (tensor->rank != 1 || tensor->dims[0] != n) {
    return np_fail(call, NP_BAD_MODEL, "%s (input %u) is %s, wanted [%zu]", name_of(call, input),
                   input, shape_text(tensor, found, sizeof found), n);
  }
  return NP_OK;
}

enum np_status np_require_matrix(const struct np_call *call, uint32_t input, size_t rows,
                                 size_t columns) {
  char found[128];
  if (!np_has(call, input)) {
    return NP_OK;
  }
  const struct np_tensor *tensor = np_in(call, input);
  if (!tensor->known) {
    return NP_MISSING;
  }
  if (tensor->rank != 2 || tensor->dims[0] != rows || tensor->dims[1] != columns) {
    return np_fail(call, NP_BAD_MODEL, "%s (input %u) is %s, wanted [%zu, %zu]",
                   name_of(call, input), input, shape_text(tensor, found, sizeof found), rows,
                   columns);
  }
  return NP_OK;
}

enum np_status np_read_matrix(const struct np_call *call, uint32_t input, size_t *rows,
                              size_t *columns) {
  char found[128];
  if (!np_has(call, input)) {
    return np_fail(call, NP_BAD_MODEL, "%s (input %u) is left out", name_of(call, input), input);
  }
  const struct np_tensor *tensor = np_in(call, input);
  if (!tensor->known) {
    return NP_MISSING;
  }
  if (tensor->rank != 2) {
    return np_fail(call, NP_BAD_MODEL, "%s (input %u) is %s, wanted a matrix", name_of(call, input),
                   input, shape_text(tensor, found, sizeof found));
  }
  *rows = tensor->dims[0];
  *columns = tensor->dims[1];
  return NP_OK;
}

enum np_status np_read_sequence(const struct np_call *call, uint32_t input, int time_major,
                                struct np_sequence *sequence, size_t *width) {
  char found[128];
  const struct np_tensor *tensor = np_in(call, input);
  if (!tensor->known) {
    return NP_MISSING;
  }
  if (tensor->rank != 3) {
    return np_fail(call, NP_BAD_MODEL, "%s (input %u) is %s, wanted rank 3", name_of(call, input),
                   input, shape_text(tensor, found, sizeof found));
  }
  sequence->time_major = time_major;
  sequence->steps = tensor->dims[time_major ? 0 : 1];
  sequence->batch = tensor->dims[time_major ? 1 : 0];
  *width = tensor->dims[2];
  return NP_OK;
}

enum np_status np_set_matrix(const struct np_call *call, uint32_t output, size_t rows,
                             size_t columns) {
  if (rows > UINT32_MAX || columns > UINT32_MAX) {
    return np_fail(call, NP_UNSUPPORTED, "output %u is too large for this machine", output);
  }
  const uint32_t dims[2] = {(uint32_t)rows, (uint32_t)columns};
  return np_set_shape(call, output, 2, dims);
}

enum np_status np_set_sequence(const struct np_call *call, uint32_t output,
                               const struct np_sequence *sequence, size_t width) {
  if (width > UINT32_MAX) {
    return np_fail(call, NP_UNSUPPORTED, "output %u is too large for this machine", output);
  }
  const size_t outer = sequence->time_major ? sequence->steps : sequence->batch;
  const size_t inner = sequence->time_major ? sequence->batch : sequence->steps;
  const uint32_t dims[3] = {(uint32_t)outer, (uint32_t)inner, (uint32_t)width};
  return np_set_shape(call, output, 3, dims);
}

enum np_status np_allow_omitted(const struct np_call *call, enum np_status status) {
  const uint32_t n_inputs = call->operation->n_inputs;
  for (uint32_t i = 0; status == NP_BAD_MODEL && i < n_inputs; i++) {
    if (np_form_input(call->form, n_inputs, i)->optional && np_has(call, i) &&
        np_in(call, i)->data == NULL) {
      return NP_MISSING;
    }
  }
  return status;
}

const float *np_floats(const struct np_call *call, uint32_t input) {
  return np_has(call, input) ? np_in(call, input)->data : NULL;
}

enum np_status np_read_activation(const struct np_call *call, uint32_t input, uint32_t allowed,
                                  int32_t *activation) {
  NP_TRY(np_read_i32(call, input, activation));
  if (*activation < 0 || *activation > 31 || (allowed >> *activation & 1u) == 0) {
    return np_fail(call, NP_BAD_MODEL, "%s (input %u) is %d, wanted %s", name_of(call, input),
                   input, *activation,
                   allowed == NP_LSTM_ACTIVATIONS ? "0, 1, 3, 4 or 6" : "0, 1, 2, 3, 4 or 6");
  }
  return NP_OK;
}
