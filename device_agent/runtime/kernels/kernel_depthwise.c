/* DEPTHWISE_CONV_2D: each channel has filters of its own. */
#include "kernels/np_depthwise.h"

#include <string.h>

#include "kernels/np_gemm.h"
#include "kernels/np_qgemm.h"
#include "plan/np_plan.h"

static enum np_status read_depthwise(const struct np_call *call, struct np_depthwise *depthwise) {
  const struct np_tensor *weights = np_in(call, 1);
  const struct np_tensor *bias = np_in(call, 2);
  const uint32_t next = 3 + np_window_inputs(call);
  memset(depthwise, 0, sizeof *depthwise);
  struct np_window *window = &depthwise->window;
  if (!weights->known || !bias->known) {
    return NP_MISSING;
  }
  int32_t multiplier;
  NP_TRY(np_read_i32(call, next, &multiplier));
  if (multiplier < 1) {
    return np_fail(call, NP_BAD_MODEL, "depth multiplier %d, wanted at least 1", multiplier);
  }
  depthwise->fuse = next + 1;
  NP_TRY(np_window_dilations(call, next + 3, window));
  if (weights->rank != 4 || weights->dims[0] != 1) {
    return np_fail(call, NP_BAD_MODEL,
                   "weights (input 1) have rank %u and first dimension %u, wanted 4 and 1",
                   weights->rank, weights->rank == 0 ? 0 : weights->dims[0]);
  }
  window->filter_h = weights->dims[1];
  window->filter_w = weights->dims[2];
  NP_TRY(np_window_fit(call, 3, window));
  depthwise->multiplier = (uint32_t)multiplier;
  depthwise->out_channels = weights->dims[3];
  if ((uint64_t)window->channels * depthwise->multiplier != depthwise->out_channels) {
    return np_fail(call, NP_BAD_MODEL,
                   "weights have %u channels, wanted %u of the input times depth multiplier %u",
                   depthwise->out_channels, window->channels, depthwise->multiplier);
  }
  if (bias->rank != 1 || bias->dims[0] != depthwise->out_channels) {
    return np_fail(call, NP_BAD_MODEL, "bias (input 2) has %zu elements of rank %u, wanted [%u]",
                   bias->elements, bias->rank, depthwise->out_channels);
  }
  return np_q_check_weights(call, 3);
}

static enum np_status infer(const struct np_call *call) {
  struct np_depthwise depthwise;
  NP_TRY(read_depthwise(call, &depthwise));
  return np_window_shape(call, &depthwise.window, depthwise.out_channels);
}

/* Returns the bytes of the row pointers of a pixel's taps; those of the weights need as many. */
static size_t pointer_bytes(const struct np_depthwise *depthwise) {
  const struct np_window *w = &depthwise->window;
  return np_align(
      np_mul_saturated(np_mul_saturated(w->filter_h, w->filter_w), sizeof(const float *)));
}

static size_t scratch(const struct np_call *call) {
  struct np_depthwise depthwise;
  if (read_depthwise(call, &depthwise) != NP_OK) {
    return 0;
  }
  return np_q_data(call) ? np_depthwise_quant_scratch(call, &depthwise)
                         : np_mul_saturated(2, pointer_bytes(&depthwise));
}

/* Computes an output pixel with more than one filter per channel: output k * multiplier + q uses
 * filter q of input channel k. */
static void multiplied_pixel(const struct np_depthwise *depthwise, size_t taps,
                             const float *const *inputs, const float *const *weights,
                             const float *bias, float *out, float low, float high) {
  const size_t multiplier = depthwise->multiplier;
  memcpy(out, bias, depthwise->out_channels * sizeof *out);
  for (size_t t = 0; t < taps; t++) {
    for (size_t k = 0; k < depthwise->window.channels; k++) {
      const float x = inputs[t][k];
      for (size_t q = 0; q < multiplier; q++) {
        out[k * multiplier + q] += x * weights[t][k * multiplier + q];
      }
    }
  }
  np_clamp(out, depthwise->out_channels, low, high);
}

/* Computes an output row of one image. */
static void run_row(const struct np_depthwise *depthwise, const struct np_call *call,
                    const float *image, uint32_t y, float *out, float low, float high) {
  const struct np_window *w = &depthwise->window;
  const struct np_gemm_engine *engine = np_gemm_engine();
  const float *weights = np_in(call, 1)->data;
  const float *bias = np_in(call, 2)->data;
  const float **tap_inputs = call->scratch;
  const float **tap_weights =
      (const float **)(void *)((unsigned char *)call->scratch + pointer_bytes(depthwise));
  uint32_t first_y, last_y;
  np_window_taps(y, w->stride_h, w->pad_top, w->dilation_h, w->filter_h, w->height, &first_y,
                 &last_y);
  for (uint32_t x = 0; x < w->out_w; x++, out += depthwise->out_channels) {
    uint32_t first_x, last_x;
    np_window_taps(x, w->stride_w, w->pad_left, w->dilation_w, w->filter_w, w->width, &first_x,
                   &last_x);
    size_t taps = 0;
    for (uint32_t ky = first_y; ky < last_y; ky++) {
      const size_t iy = (size_t)y * w->stride_h + (size_t)ky * w->dilation_h - w->pad_top;
      for (uint32_t kx = first_x; kx < last_x; kx++) {
        const size_t ix = (size_t)x * w->stride_w + (size_t)kx * w->dilation_w - w->pad_left;
        tap_inputs[taps] = image + (iy * w->width + ix) * w->channels;
        tap_weights[taps] = weights + ((size_t)ky * w->filter_w + kx) * depthwise->out_channels;
        taps++;
      }
    }
    if (depthwise->multiplier == 1) {
      engine->depthwise(w->channels, taps, tap_inputs, tap_weights, bias, out, low, high);
    } else {
      multiplied_pixel(depthwise, taps, tap_inputs, tap_weights, bias, out, low, high);
    }
  }
}

static enum np_status run(const struct np_call *call) {
  struct np_depthwise depthwise;
  int32_t fuse;
  float low, high;
  NP_TRY(read_depthwise(call, &depthwise));
  if (np_q_data(call)) {
    return np_depthwise_quant_run(call, &depthwise);
  }
  NP_TRY(np_read_i32(call, depthwise.fuse, &fuse));
  NP_TRY(np_fuse_limits(call, fuse, &low, &high));
  const struct np_window *w = &depthwise.window;
  if (np_out(call, 0)->elements == 0) {
    return NP_OK;
  }
  const float *image = np_in(call, 0)->data;
  float *row = np_out(call, 0)->room;
  for (size_t b = 0; b < w->batches; b++) {
    for (uint32_t y = 0; y < w->out_h; y++) {
      run_row(&depthwise, call, image, y, row, low, high);
      row += (size_t)w->out_w * depthwise.out_channels;
    }
    image += (size_t)w->height * w->width * w->channels;
  }
  return NP_OK;
}

const struct np_kernel np_kernel_DEPTHWISE_CONV_2D = {.types = NP_FLOATS | NP_QUANT8,
                                                      .infer = infer,
                                                      .prepare = np_depthwise_quant_prepare,
                                                      .scratch = scratch,
                                                      .run = run};
