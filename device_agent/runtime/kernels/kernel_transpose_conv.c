/* TRANSPOSE_CONV_2D: each input pixel times the weights gives a filter-sized patch for each output
 * channel, which is added to the output at its position. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/np_gemm.h"
#include "kernels/np_qgemm.h"
#include "plan/np_plan.h"

/* Elements of products computed at a time, which stay in the second-level cache. */
#define BLOCK_ELEMENTS 65536u

struct transposed {
  uint32_t batches, height, width, channels; /* the input's */
  uint32_t filter_h, filter_w;
  uint32_t stride_h, stride_w;
  uint32_t pad_top, pad_left;
  uint32_t out_h, out_w, out_channels;
  uint32_t fuse;   /* index of the input that is the fuse code */
  size_t products; /* number for one input pixel: out_channels * filter_h * filter_w */
};

/* One axis; axes are in the order height, width. */
struct axis {
  const char *name;
  uint32_t size, filter, stride, before, out;
};

static enum np_status read_stride(const struct np_call *call, uint32_t input, struct axis *axis) {
  int32_t stride;
  NP_TRY(np_read_i32(call, input, &stride));
  if (stride < 1) {
    return np_fail(call, NP_BAD_MODEL, "stride over %s (input %u) is %d, wanted at least 1",
                   axis->name, input, stride);
  }
  axis->stride = (uint32_t)stride;
  return NP_OK;
}

/* Sets `out` from the padding of both sides; the one at the end may be negative. */
static enum np_status set_out(const struct np_call *call, struct axis *axis, int64_t padding) {
  const int64_t out =
      ((int64_t)axis->size - 1) * (int64_t)axis->stride + (int64_t)axis->filter - padding;
  if (out < 1 || out > UINT32_MAX) {
    return np_fail(call, NP_BAD_MODEL, "output %s would be %lld, wanted at least 1", axis->name,
                   (long long)out);
  }
  axis->out = (uint32_t)out;
  return NP_OK;
}

/* Reads paddings from inputs `at` and `at` + 1. The second may be negative: with a stride above 1
 * several output sizes give the same input size, and it selects one. */
static enum np_status explicit_axis(const struct np_call *call, uint32_t at, struct axis *axis) {
  int32_t before, behind;
  NP_TRY(np_read_i32(call, at, &before));
  NP_TRY(np_read_i32(call, at + 1, &behind));
  if (before < 0) {
    return np_fail(call, NP_BAD_MODEL, "padding (input %u) is %d, wanted at least 0", at, before);
  }
  axis->before = (uint32_t)before;
  return set_out(call, axis, (int64_t)before + behind);
}

/* Sets padding by code, for an output of size `wanted`, as the reference computes it, even if that
 * size does not match the input size. */
static enum np_status implicit_axis(const struct np_call *call, int32_t code, int32_t wanted,
                                    struct axis *axis) {
  int64_t padding = 0;
  if (wanted < 1) {
    return np_fail(call, NP_BAD_MODEL, "output %s (input 3) is %d, wanted at least 1", axis->name,
                   wanted);
  }
  if (code == ANEURALNETWORKS_PADDING_SAME) {
    const int64_t steps = ((int64_t)wanted + axis->stride - 1) / axis->stride - 1;
    padding = steps * axis->stride + axis->filter - wanted;
  } else if (code != ANEURALNETWORKS_PADDING_VALID) {
    return np_fail(call, NP_BAD_MODEL, "padding code (input 4) is %d, wanted 1 or 2", code);
  }
  axis->before = padding > 0 ? (uint32_t)(padding / 2) : 0;
  return set_out(call, axis, padding);
}

static enum np_status read_axes(const struct np_call *call, struct axis axes[2]) {
  const int is_explicit = call->form->variant == NP_EXPLICIT;
  const uint32_t strides = is_explicit ? 7 : 5;
  NP_TRY(read_stride(call, strides + 1, &axes[0]));
  NP_TRY(read_stride(call, strides, &axes[1]));
  if (is_explicit) {
    NP_TRY(explicit_axis(call, 5, &axes[0]));
    return explicit_axis(call, 3, &axes[1]);
  }
  const int32_t *sizes;
  size_t n;
  int32_t code;
  NP_TRY(np_read_list(call, 3, &sizes, &n));
  NP_TRY(np_read_i32(call, 4, &code));
  if (n != 4) {
    return np_fail(call, NP_BAD_MODEL, "output shape (input 3) has %zu sizes, wanted 4", n);
  }
  NP_TRY(implicit_axis(call, code, sizes[1], &axes[0]));
  return implicit_axis(call, code, sizes[2], &axes[1]);
}

static enum np_status read_transposed(const struct np_call *call, struct transposed *t) {
  const struct np_tensor *input = np_in(call, 0);
  const struct np_tensor *weights = np_in(call, 1);
  const struct np_tensor *bias = np_in(call, 2);
  memset(t, 0, sizeof *t);
  if (!input->known || !weights->known || !bias->known) {
    return NP_MISSING;
  }
  if (input->rank != 4 || weights->rank != 4 || weights->elements == 0) {
    return np_fail(call, NP_BAD_MODEL,
                   "input 0 has rank %u and weights (input 1) %zu elements of rank %u, wanted 4",
                   input->rank, weights->elements, weights->rank);
  }
  if (weights->dims[3] != input->dims[3] || bias->rank != 1 || bias->dims[0] != weights->dims[0]) {
    return np_fail(call, NP_BAD_MODEL,
                   "weights [%u, .., %u] and a bias of %zu do not fit an input of %u channels",
                   weights->dims[0], weights->dims[3], bias->elements, input->dims[3]);
  }
  struct axis axes[2] = {
      {.name = "height", .size = input->dims[1], .filter = weights->dims[1]},
      {.name = "width", .size = input->dims[2], .filter = weights->dims[2]},
  };
  NP_TRY(read_axes(call, axes));
  *t = (struct transposed){
      .batches = input->dims[0],
      .height = input->dims[1],
      .width = input->dims[2],
      .channels = input->dims[3],
      .filter_h = weights->dims[1],
      .filter_w = weights->dims[2],
      .stride_h = axes[0].stride,
      .stride_w = axes[1].stride,
      .pad_top = axes[0].before,
      .pad_left = axes[1].before,
      .out_h = axes[0].out,
      .out_w = axes[1].out,
      .out_channels = weights->dims[0],
      .fuse = call->form->variant == NP_EXPLICIT ? 9 : 7,
      .products = weights->elements / weights->dims[3],
  };
  return np_q_check_weights(call, 0);
}

static enum np_status infer(const struct np_call *call) {
  struct transposed t;
  NP_TRY(read_transposed(call, &t));
  const uint32_t dims[4] = {t.batches, t.out_h, t.out_w, t.out_channels};
  return np_set_shape(call, 0, 4, dims);
}

static size_t packed_bytes(const struct np_call *call, size_t products, size_t channels) {
  return np_q_data(call)
             ? np_mul_saturated(np_q_packed(products, channels), sizeof(int16_t))
             : np_mul_saturated(np_gemm_packed_floats(np_gemm_engine(), products, channels),
                                sizeof(float));
}

static void pack(const struct np_call *call, size_t products, size_t channels, void *packed) {
  const void *weights = np_in(call, 1)->data;
  if (np_q_data(call)) {
    np_q_pack(np_in_operand(call, 1), weights, products, channels, packed);
  } else {
    np_gemm_pack(np_gemm_engine(), products, channels, weights, NULL, packed);
  }
}

static enum np_status prepare(const struct np_call *call, void **state) {
  const struct np_tensor *weights = np_in(call, 1);
  if (weights->data == NULL || weights->rank != 4 || weights->elements == 0) {
    return NP_OK; /* packed, or refused, at each run */
  }
  const size_t products = weights->elements / weights->dims[3];
  const size_t bytes = packed_bytes(call, products, weights->dims[3]);
  *state = bytes == SIZE_MAX ? NULL : malloc(bytes);
  if (*state == NULL) {
    return np_fail(call, NP_NO_MEMORY, "no memory for %zu bytes of packed weights", bytes);
  }
  pack(call, products, weights->dims[3], *state);
  return NP_OK;
}

/* Offsets of the parts of the working memory. */
struct parts {
  size_t packed;   /* weights, if they are not constant */
  size_t products; /* products of a block of input pixels */
  size_t pixels;   /* quantised: those pixels less their zero point */
  size_t sums;     /* quantised: of one output image */
  size_t multipliers;
  size_t total;
};

/* Input pixels multiplied at a time. */
static size_t block_pixels(const struct transposed *t) {
  const size_t pixels = BLOCK_ELEMENTS / (t->products > t->channels ? t->products : t->channels);
  return pixels < 4 ? 4 : pixels;
}

static struct parts find_parts(const struct np_call *call, const struct transposed *t) {
  struct parts parts = {0};
  const size_t block = block_pixels(t);
  if (call->state == NULL) {
    parts.products = np_align(packed_bytes(call, t->products, t->channels));
  }
  parts.pixels = np_add_saturated(
      parts.products,
      np_align(np_mul_saturated(np_mul_saturated(block, t->products), sizeof(float))));
  parts.total = parts.pixels;
  if (np_q_data(call)) {
    const size_t outputs = np_mul_saturated(np_mul_saturated(t->out_h, t->out_w), t->out_channels);
    parts.sums = np_add_saturated(
        parts.pixels, np_align(np_mul_saturated(np_mul_saturated(block, np_q_row(t->channels)),
                                                sizeof(int16_t))));
    parts.multipliers =
        np_add_saturated(parts.sums, np_align(np_mul_saturated(outputs, sizeof(uint32_t))));
    parts.total =
        np_add_saturated(parts.multipliers,
                         np_align(np_mul_saturated(t->out_channels, sizeof(struct np_multiplier))));
  }
  return parts;
}

static size_t scratch(const struct np_call *call) {
  struct transposed t;
  return read_transposed(call, &t) == NP_OK && t.batches > 0 ? find_parts(call, &t).total : 0;
}

/* Finds the taps of a filter at `start` that are inside the output: from *first, before *last. */
static void find_taps(int64_t start, uint32_t filter, uint32_t out, uint32_t *first,
                      uint32_t *last) {
  const int64_t low = start < 0 ? -start : 0;
  const int64_t high = (int64_t)out - start;
  *last = high <= 0 ? 0 : high < (int64_t)filter ? (uint32_t)high : filter;
  *first = low > (int64_t)*last ? *last : (uint32_t)low;
}

/* Adds the products [out_channels, filter_h, filter_w] of input pixel `pixel` to the sums
 * [out_h, out_w, out_channels]. Integers are unsigned: they wrap where the reference's overflow. */
#define DEFINE_SCATTER(NAME, TYPE)                                                                 \
  static void NAME(const struct transposed *t, size_t pixel, const TYPE *products, TYPE *sums) {   \
    const int64_t top = (int64_t)(pixel / t->width) * t->stride_h - (int64_t)t->pad_top;           \
    const int64_t left = (int64_t)(pixel % t->width) * t->stride_w - (int64_t)t->pad_left;         \
    const size_t taps = (size_t)t->filter_h * t->filter_w;                                         \
    uint32_t first_y, last_y, first_x, last_x;                                                     \
    find_taps(top, t->filter_h, t->out_h, &first_y, &last_y);                                      \
    find_taps(left, t->filter_w, t->out_w, &first_x, &last_x);                                     \
    for (uint32_t ky = first_y; ky < last_y; ky++) {                                               \
      for (uint32_t kx = first_x; kx < last_x; kx++) {                                             \
        TYPE *to = sums + ((size_t)(top + ky) * t->out_w + (size_t)(left + kx)) * t->out_channels; \
        const TYPE *from = products + (size_t)ky * t->filter_w + kx;                               \
        for (size_t c = 0; c < t->out_channels; c++) {                                             \
          to[c] += from[c * taps];                                                                 \
        }                                                                                          \
      }                                                                                            \
    }                                                                                              \
  }

DEFINE_SCATTER(scatter_floats, float)
DEFINE_SCATTER(scatter_integers, uint32_t)

static void float_image(const struct np_call *call, const struct transposed *t, const float *packed,
                        float *products, const float *image, float *out) {
  const size_t pixels = (size_t)t->height * t->width;
  const size_t block = block_pixels(t);
  const float *bias = np_in(call, 2)->data;
  memset(out, 0, (size_t)t->out_h * t->out_w * t->out_channels * sizeof *out);
  for (size_t start = 0; start < pixels; start += block) {
    const size_t n = pixels - start < block ? pixels - start : block;
    np_gemm(np_gemm_engine(), n, t->products, t->channels, image + start * t->channels, t->channels,
            packed, products, t->products, -INFINITY, INFINITY);
    for (size_t i = 0; i < n; i++) {
      scatter_floats(t, start + i, products + i * t->products, out);
    }
  }
  for (size_t i = 0; i < (size_t)t->out_h * t->out_w; i++, out += t->out_channels) {
    for (size_t c = 0; c < t->out_channels; c++) {
      out[c] += bias[c];
    }
  }
}

static void quant_image(const struct np_call *call, const struct transposed *t,
                        const struct parts *parts, const int16_t *packed,
                        const struct np_q_finish *finish, const unsigned char *image,
                        unsigned char *out) {
  unsigned char *room = call->scratch;
  int32_t *products = (int32_t *)(void *)(room + parts->products);
  int16_t *rows = (int16_t *)(void *)(room + parts->pixels);
  uint32_t *sums = (uint32_t *)(void *)(room + parts->sums);
  const size_t pixels = (size_t)t->height * t->width;
  const size_t out_pixels = (size_t)t->out_h * t->out_w;
  const size_t block = block_pixels(t);
  const size_t row = np_q_row(t->channels);
  memset(rows, 0, block * row * sizeof *rows);
  memset(sums, 0, out_pixels * t->out_channels * sizeof *sums);
  for (size_t start = 0; start < pixels; start += block) {
    const size_t n = pixels - start < block ? pixels - start : block;
    for (size_t i = 0; i < n; i++) {
      np_q_widen(np_in_operand(call, 0), image + (start + i) * t->channels, t->channels,
                 rows + i * row);
    }
    np_q_gemm(n, t->products, t->channels, rows, packed, products);
    for (size_t i = 0; i < n; i++) {
      scatter_integers(t, start + i, (const uint32_t *)products + i * t->products, sums);
    }
  }
  for (size_t i = 0; i < out_pixels; i++) {
    np_q_finish_row(finish, t->out_channels, (const int32_t *)sums + i * t->out_channels,
                    out + i * t->out_channels);
  }
}

static enum np_status run_quant(const struct np_call *call, const struct transposed *t,
                                const struct parts *parts, const int16_t *packed, int32_t fuse) {
  struct np_multiplier *multipliers =
      (struct np_multiplier *)(void *)((unsigned char *)call->scratch + parts->multipliers);
  struct np_q_finish finish = {.bias = np_in(call, 2)->data, .multipliers = multipliers};
  NP_TRY(np_q_finish_of(call, fuse, &finish));
  np_q_multipliers(call, t->out_channels, multipliers);
  for (size_t b = 0; b < t->batches; b++) {
    quant_image(call, t, parts, packed, &finish,
                (const unsigned char *)np_in(call, 0)->data +
                    b * t->height * t->width * t->channels,
                (unsigned char *)np_out(call, 0)->room + b * t->out_h * t->out_w * t->out_channels);
  }
  return NP_OK;
}

static enum np_status run(const struct np_call *call) {
  struct transposed t;
  int32_t fuse;
  float low, high;
  NP_TRY(read_transposed(call, &t));
  NP_TRY(np_read_i32(call, t.fuse, &fuse));
  NP_TRY(np_fuse_limits(call, fuse, &low, &high));
  if (np_out(call, 0)->elements == 0) {
    return NP_OK;
  }
  const struct parts parts = find_parts(call, &t);
  unsigned char *room = call->scratch;
  const void *packed = call->state;
  if (packed == NULL) {
    pack(call, t.products, t.channels, room + parts.packed);
    packed = room + parts.packed;
  }
  if (np_q_data(call)) {
    return run_quant(call, &t, &parts, packed, fuse);
  }
  float *out = np_out(call, 0)->room;
  for (size_t b = 0; b < t.batches; b++) {
    float_image(call, &t, packed, (float *)(void *)(room + parts.products),
                (const float *)np_in(call, 0)->data + b * t.height * t.width * t.channels,
                out + b * t.out_h * t.out_w * t.out_channels);
  }
  np_clamp(out, np_out(call, 0)->elements, low, high);
  return NP_OK;
}

const struct np_kernel np_kernel_TRANSPOSE_CONV_2D = {.types = NP_FLOATS | NP_QUANT8,
                                                      .infer = infer,
                                                      .prepare = prepare,
                                                      .scratch = scratch,
                                                      .run = run};
