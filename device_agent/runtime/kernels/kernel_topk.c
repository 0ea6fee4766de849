/* TOPK_V2: the k largest values of each row, in descending order, and their indices. */
#include <math.h>
#include <string.h>

#include "kernels/np_half.h"
#include "kernels/np_move.h"

/* A value, wide enough for every type, and its index in the row. */
struct ranked {
  double value;
  int32_t index;
};

/* Returns whether a comes before b: of equal values the later one does, as in Android's
 * reference. */
static int before(struct ranked a, struct ranked b) {
  return a.value > b.value || (a.value == b.value && a.index > b.index);
}

static enum np_status read_k(const struct np_call *call, uint32_t *k) {
  const struct np_tensor *input = np_in(call, 0);
  int32_t value;
  if (!input->known) {
    return NP_MISSING;
  }
  NP_TRY(np_read_i32(call, 1, &value));
  if (value < 1 || (uint32_t)value > input->dims[input->rank - 1]) {
    return np_fail(call, NP_BAD_MODEL, "k is %d, wanted 1 to %u", value,
                   input->dims[input->rank - 1]);
  }
  *k = (uint32_t)value;
  return NP_OK;
}

static enum np_status topk_infer(const struct np_call *call) {
  uint32_t k = 0;
  uint32_t dims[NP_MAX_RANK];
  NP_TRY(np_q_same_as_input(call, 0, 0));
  NP_TRY(read_k(call, &k));
  const struct np_tensor *input = np_in(call, 0);
  memcpy(dims, input->dims, sizeof dims);
  dims[input->rank - 1] = k;
  NP_TRY(np_set_shape(call, 0, input->rank, dims));
  return np_set_shape(call, 1, input->rank, dims);
}

static size_t topk_scratch(const struct np_call *call) {
  uint32_t k = 0;
  return read_k(call, &k) == NP_OK ? np_mul_saturated(k, sizeof(struct ranked)) : 0;
}

/* Returns element i of a row; NaN ranks below everything. */
static double value_at(int32_t type, const void *row, size_t i) {
  if (type == NP_TYPE_TENSOR_INT32) {
    return ((const int32_t *)row)[i];
  }
  if ((NP_BIT(type) & NP_QUANT8) != 0) {
    return np_q_read(type, row, i);
  }
  const float value = type == NP_TYPE_TENSOR_FLOAT16 ? np_half_to_float(((const uint16_t *)row)[i])
                                                     : ((const float *)row)[i];
  return isnan(value) ? -INFINITY : (double)value;
}

/* Restores a heap of n elements after its root, the last in order, was replaced. */
static void sift(struct ranked *heap, size_t n) {
  const struct ranked moved = heap[0];
  size_t hole = 0;
  for (size_t child = 1; child < n; child = 2 * hole + 1) {
    child += child + 1 < n && before(heap[child], heap[child + 1]);
    if (!before(moved, heap[child])) {
      break;
    }
    heap[hole] = heap[child];
    hole = child;
  }
  heap[hole] = moved;
}

static void push(struct ranked *heap, size_t n, struct ranked one) {
  size_t hole = n;
  for (; hole > 0 && before(heap[(hole - 1) / 2], one); hole = (hole - 1) / 2) {
    heap[hole] = heap[(hole - 1) / 2];
  }
  heap[hole] = one;
}

/* Puts the first k of a row, in order, into `heap`. */
static void rank_row(int32_t type, const void *row, uint32_t n, struct ranked *heap, uint32_t k) {
  for (uint32_t i = 0; i < n; i++) {
    const struct ranked one = {value_at(type, row, i), (int32_t)i};
    if (i < k) {
      push(heap, i, one);
    } else if (before(one, heap[0])) {
      heap[0] = one;
      sift(heap, k);
    }
  }
  for (uint32_t last = k; last-- > 1;) {
    const struct ranked root = heap[0];
    heap[0] = heap[last];
    sift(heap, last);
    heap[last] = root;
  }
}

static enum np_status topk_run(const struct np_call *call) {
  uint32_t k = 0;
  NP_TRY(read_k(call, &k));
  const struct np_tensor *input = np_in(call, 0);
  const uint32_t n = input->dims[input->rank - 1];
  const size_t size = np_type_bytes(input->type);
  struct ranked *heap = call->scratch;
  unsigned char *values = np_out(call, 0)->room;
  int32_t *indices = np_out(call, 1)->room;
  for (size_t row = 0; row < input->elements / n; row++) {
    const unsigned char *from = (const unsigned char *)input->data + row * n * size;
    rank_row(input->type, from, n, heap, k);
    for (uint32_t i = 0; i < k; i++) {
      memcpy(values + (row * k + i) * size, from + (size_t)heap[i].index * size, size);
      indices[row * k + i] = heap[i].index;
    }
  }
  return NP_OK;
}

const struct np_kernel np_kernel_TOPK_V2 = {
    .types = NP_MOVES, .infer = topk_infer, .scratch = topk_scratch, .run = topk_run};
