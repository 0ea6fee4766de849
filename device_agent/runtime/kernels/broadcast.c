#include "kernels/np_broadcast.h"

/* A walk of the two inputs over the output's elements, the innermost dimension first, with
 * neighbouring dimensions merged if both inputs step through them alike. Strides are in elements, 0
 * where an input is broadcast. */
struct walk {
  uint32_t rank;
  size_t dims[NP_MAX_RANK];
  size_t strides[2][NP_MAX_RANK];
};

static uint32_t dim_from_end(const struct np_tensor *tensor, uint32_t back) {
  return back < tensor->rank ? tensor->dims[tensor->rank - 1 - back] : 1;
}

enum np_status np_broadcast_infer(const struct np_call *call) {
  const struct np_tensor *a = np_in(call, 0);
  const struct np_tensor *b = np_in(call, 1);
  if (!a->known || !b->known) {
    return NP_MISSING;
  }
  const uint32_t rank = a->rank > b->rank ? a->rank : b->rank;
  uint32_t dims[NP_MAX_RANK];
  for (uint32_t back = 0; back < rank; back++) {
    const uint32_t x = dim_from_end(a, back);
    const uint32_t y = dim_from_end(b, back);
    if (x != y && x != 1 && y != 1) {
      return np_fail(call, NP_BAD_MODEL,
                     "inputs have %u and %u in dimension %u from the end, wanted equal or 1", x, y,
                     back + 1);
    }
    dims[rank - 1 - back] = x == 1 ? y : x;
  }
  return np_set_shape(call, 0, rank, dims);
}

static struct walk find_walk(const struct np_call *call) {
  const struct np_tensor *out = np_out(call, 0);
  struct walk walk = {.rank = 1, .dims = {1}, .strides = {{0}, {0}}};
  size_t steps[2] = {1, 1}; /* stride of the next dimension outwards */
  uint32_t n = 0;
  for (uint32_t back = 0; back < out->rank; back++) {
    const size_t dim = dim_from_end(out, back);
    size_t strides[2];
    for (uint32_t i = 0; i < 2; i++) {
      const size_t own = dim_from_end(np_in(call, i), back);
      strides[i] = own == 1 ? 0 : steps[i];
      steps[i] *= own;
    }
    if (dim == 1) {
      continue;
    }
    if (n > 0 && strides[0] == walk.strides[0][n - 1] * walk.dims[n - 1] &&
        strides[1] == walk.strides[1][n - 1] * walk.dims[n - 1]) {
      walk.dims[n - 1] *= dim;
      continue;
    }
    walk.dims[n] = dim;
    walk.strides[0][n] = strides[0];
    walk.strides[1][n] = strides[1];
    n++;
  }
  walk.rank = n == 0 ? 1 : n;
  return walk;
}

void np_broadcast_run(const struct np_call *call, np_row *row, const void *how) {
  const struct np_tensor *output = np_out(call, 0);
  const size_t size_a = np_type_bytes(np_in(call, 0)->type);
  const size_t size_b = np_type_bytes(np_in(call, 1)->type);
  const size_t size_out = np_type_bytes(output->type);
  const unsigned char *a = np_in(call, 0)->data;
  const unsigned char *b = np_in(call, 1)->data;
  unsigned char *out = output->room;
  if (output->elements == 0) {
    return;
  }
  const struct walk walk = find_walk(call);
  size_t at[NP_MAX_RANK] = {0};
  size_t from[2] = {0, 0};
  for (size_t done = 0; done < output->elements; done += walk.dims[0]) {
    row(how, a + from[0] * size_a, walk.strides[0][0], b + from[1] * size_b, walk.strides[1][0],
        out + done * size_out, walk.dims[0]);
    for (uint32_t d = 1; d < walk.rank; d++) {
      from[0] += walk.strides[0][d];
      from[1] += walk.strides[1][d];
      if (++at[d] < walk.dims[d]) {
        break;
      }
      from[0] -= walk.strides[0][d] * walk.dims[d];
      from[1] -= walk.strides[1][d] * walk.dims[d];
      at[d] = 0;
    }
  }
}
