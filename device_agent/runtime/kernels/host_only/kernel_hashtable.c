/* HASHTABLE_LOOKUP: rows picked by keys. Inputs: lookups, keys in ascending order, values. */
#include <string.h>

#include "kernels/np_move.h"

static enum np_status hashtable_lookup_infer(const struct np_call *call) {
  NP_TRY(np_rows_infer(call, 2));
  const struct np_tensor *keys = np_in(call, 1);
  const struct np_tensor *values = np_in(call, 2);
  if (!keys->known) {
    return NP_MISSING;
  }
  if (keys->rank != 1 || keys->dims[0] != values->dims[0]) {
    return np_fail(call, NP_BAD_MODEL, "%zu keys of rank %u, wanted one for each of %u values",
                   keys->elements, keys->rank, values->dims[0]);
  }
  return np_set_shape(call, 1, 1, np_in(call, 0)->dims);
}

/* Returns the index of a key among n in ascending order, n if it is missing. */
static size_t find_key(const int32_t *keys, size_t n, int32_t key) {
  size_t low = 0;
  size_t high = n;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (keys[middle] < key) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < n && keys[low] == key ? low : n;
}

/* The row of a missing key is all zero bytes, even for quantised data. */
static enum np_status hashtable_lookup_run(const struct np_call *call) {
  const struct np_tensor *lookups = np_in(call, 0);
  const struct np_tensor *keys = np_in(call, 1);
  const unsigned char *values = np_in(call, 2)->data;
  const int32_t *wanted = lookups->data;
  unsigned char *out = np_out(call, 0)->room;
  unsigned char *hits = np_out(call, 1)->room;
  const size_t bytes = np_out(call, 0)->elements == 0 ? 0 : np_row_bytes(np_out(call, 0));
  for (size_t i = 0; i < lookups->elements; i++) {
    const size_t place = find_key(keys->data, keys->elements, wanted[i]);
    hits[i] = place < keys->elements;
    if (bytes > 0 && hits[i]) {
      memcpy(out + i * bytes, values + place * bytes, bytes);
    } else if (bytes > 0) {
      memset(out + i * bytes, 0, bytes);
    }
  }
  return NP_OK;
}

const struct np_kernel np_kernel_HASHTABLE_LOOKUP = {
    .types = NP_MOVES, .infer = hashtable_lookup_infer, .run = hashtable_lookup_run};
