/* DEPTHWISE_CONV_2D of quantised data. Weights are converted to int16 less their zero point, only
 * once if they are constant; a row of the image when it is read. */
#include <stdlib.h>
#include <string.h>

#include "kernels/np_depthwise.h"
#include "kernels/np_qgemm.h"
#include "plan/np_plan.h"

static void pack(const struct np_call *call, int16_t *packed) {
  np_q_pack(np_in_operand(call, 1), np_in(call, 1)->data, 1, np_in(call, 1)->elements, packed);
}

static size_t packed_bytes(size_t elements) {
  return np_mul_saturated(np_q_packed(1, elements), sizeof(int16_t));
}

enum np_status np_depthwise_quant_prepare(const struct np_call *call, void **state) {
  const struct np_tensor *weights = np_in(call, 1);
  if (!np_q_data(call) || weights->data == NULL || weights->elements == 0) {
    return NP_OK;
  }
  const size_t bytes = packed_bytes(weights->elements);
  *state = bytes == SIZE_MAX ? NULL : malloc(bytes);
  if (*state == NULL) {
    return np_fail(call, NP_NO_MEMORY, "no memory for %zu bytes of packed weights", bytes);
  }
  pack(call, *state);
  return NP_OK;
}

/* Offsets of the parts of the working memory. */
struct parts {
  size_t multipliers;
  size_t sums;   /* sums of one pixel */
  size_t packed; /* weights, if they are not constant */
  size_t image;  /* the image less its zero point */
  size_t total;
};

static struct parts find_parts(const struct np_call *call, const struct np_depthwise *depthwise) {
  const struct np_window *w = &depthwise->window;
  const size_t pixels = np_mul_saturated(w->height, w->width);
  struct parts parts = {0};
  parts.sums = np_align(np_mul_saturated(depthwise->out_channels, sizeof(struct np_multiplier)));
  parts.packed = np_add_saturated(
      parts.sums, np_align(np_mul_saturated(depthwise->out_channels, sizeof(int32_t))));
  parts.image = parts.packed;
  if (call->state == NULL) {
    parts.image = np_add_saturated(parts.packed, np_align(packed_bytes(np_in(call, 1)->elements)));
  }
  parts.total = np_add_saturated(
      parts.image,
      np_align(np_mul_saturated(np_mul_saturated(pixels, w->channels), sizeof(int16_t))));
  return parts;
}

size_t np_depthwise_quant_scratch(const struct np_call *call,
                                  const struct np_depthwise *depthwise) {
  return find_parts(call, depthwise).total;
}

/* Adds pixel[k] * weights[k * multiplier + q] to sums[k * multiplier + q]. Sums wrap where the
 * reference's would overflow. */
static void take_tap(const struct np_depthwise *depthwise, const int16_t *pixel,
                     const int16_t *weights, uint32_t *sums) {
  const size_t multiplier = depthwise->multiplier;
  const size_t channels = depthwise->window.channels;
  if (multiplier == 1) {
    for (size_t k = 0; k < channels; k++) {
      sums[k] += (uint32_t)(pixel[k] * weights[k]);
    }
    return;
  }
  for (size_t k = 0; k < channels; k++) {
    for (size_t q = 0; q < multiplier; q++) {
      sums[k * multiplier + q] += (uint32_t)(pixel[k] * weights[k * multiplier + q]);
    }
  }
}

/* Computes the sums of output pixel (y, x). */
static void run_pixel(const struct np_depthwise *depthwise, const int16_t *image,
                      const int16_t *weights, uint32_t y, uint32_t x, uint32_t *sums) {
  const struct np_window *w = &depthwise->window;
  uint32_t first_y, last_y, first_x, last_x;
  np_window_taps(y, w->stride_h, w->pad_top, w->dilation_h, w->filter_h, w->height, &first_y,
                 &last_y);
  np_window_taps(x, w->stride_w, w->pad_left, w->dilation_w, w->filter_w, w->width, &first_x,
                 &last_x);
  memset(sums, 0, depthwise->out_channels * sizeof *sums);
  for (uint32_t ky = first_y; ky < last_y; ky++) {
    const size_t iy = (size_t)y * w->stride_h + (size_t)ky * w->dilation_h - w->pad_top;
    for (uint32_t kx = first_x; kx < last_x; kx++) {
      const size_t ix = (size_t)x * w->stride_w + (size_t)kx * w->dilation_w - w->pad_left;
      take_tap(depthwise, image + (iy * w->width + ix) * w->channels,
               weights + ((size_t)ky * w->filter_w + kx) * depthwise->out_channels, sums);
    }
  }
}

enum np_status np_depthwise_quant_run(const struct np_call *call,
                                      const struct np_depthwise *depthwise) {
  const struct np_window *w = &depthwise->window;
  const struct parts parts = find_parts(call, depthwise);
  unsigned char *scratch = call->scratch;
  struct np_multiplier *multipliers = (struct np_multiplier *)(void *)(scratch + parts.multipliers);
  uint32_t *sums = (uint32_t *)(void *)(scratch + parts.sums);
  int16_t *image = (int16_t *)(void *)(scratch + parts.image);
  struct np_q_finish finish = {.bias = np_in(call, 2)->data, .multipliers = multipliers};
  int32_t fuse;
  NP_TRY(np_read_i32(call, depthwise->fuse, &fuse));
  NP_TRY(np_q_finish_of(call, fuse, &finish));
  if (np_out(call, 0)->elements == 0) {
    return NP_OK;
  }
  np_q_multipliers(call, depthwise->out_channels, multipliers);
  const int16_t *weights = call->state;
  if (weights == NULL) {
    int16_t *made = (int16_t *)(void *)(scratch + parts.packed);
    pack(call, made);
    weights = made;
  }
  const size_t values = (size_t)w->height * w->width * w->channels;
  unsigned char *out = np_out(call, 0)->room;
  for (size_t b = 0; b < w->batches; b++) {
    np_q_widen(np_in_operand(call, 0), (const unsigned char *)np_in(call, 0)->data + b * values,
               values, image);
    for (uint32_t y = 0; y < w->out_h; y++) {
      for (uint32_t x = 0; x < w->out_w; x++, out += depthwise->out_channels) {
        run_pixel(depthwise, image, weights, y, x, sums);
        np_q_finish_row(&finish, depthwise->out_channels, (const int32_t *)sums, out);
      }
    }
  }
  return NP_OK;
}
