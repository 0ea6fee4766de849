/* DEPTHWISE_CONV_2D: each channel has filters of its own. */
#include <string.h>

#include "kernels/np_families.h"
#include "kernels/np_gemm.h"
#include "kernels/np_window.h"
#include "plan/np_plan.h"

struct depthwise {
  struct np_window window;
  uint32_t multiplier;
  uint32_t out_channels;
  uint32_t fuse; /* which input is the fuse code */
};

static enum np_status read_depthwise(const struct np_call *call, struct depthwise *depthwise) {
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
  depthwise->fuse = next + 1;
  NP_TRY(np_window_layout(call, next + 2, &window->nchw));
  int32_t dilation_w = 1;
  int32_t dilation_h = 1;
  if (np_has(call, next + 4)) {
    NP_TRY(np_read_i32(call, next + 3, &dilation_w));
    NP_TRY(np_read_i32(call, next + 4, &dilation_h));
  }
  if (dilation_w < 1 || dilation_h < 1 || multiplier < 1) {
    return np_fail(call, NP_BAD_MODEL,
                   "dilations %d x %d and depth multiplier %d, wanted at least 1 of each",
                   dilation_w, dilation_h, multiplier);
  }
  window->dilation_w = (uint32_t)dilation_w;
  window->dilation_h = (uint32_t)dilation_h;
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
  return NP_OK;
}

enum np_status np_depthwise_infer(const struct np_call *call) {
  struct depthwise depthwise;
  NP_TRY(read_depthwise(call, &depthwise));
  return np_window_shape(call, &depthwise.window, depthwise.out_channels);
}

/* Where the parts of the working memory lie. */
struct parts {
  size_t inputs;  /* row pointers of a pixel's taps */
  size_t weights; /* the same of the weights */
  size_t input;   /* NHWC copy of the input */
  size_t output;  /* NHWC output to be copied */
  size_t total;
};

static struct parts find_parts(const struct np_call *call, const struct depthwise *depthwise) {
  const struct np_window *w = &depthwise->window;
  const size_t taps = np_align(np_times(np_times(w->filter_h, w->filter_w), sizeof(const float *)));
  struct parts parts = {0};
  parts.weights = taps;
  parts.input = np_plus(parts.weights, taps);
  parts.output = parts.input;
  parts.total = parts.input;
  if (w->nchw) {
    parts.output =
        np_plus(parts.input, np_align(np_times(np_in(call, 0)->elements, sizeof(float))));
    parts.total =
        np_plus(parts.output, np_align(np_times(np_out(call, 0)->elements, sizeof(float))));
  }
  return parts;
}

size_t np_depthwise_scratch(const struct np_call *call) {
  struct depthwise depthwise;
  return read_depthwise(call, &depthwise) == NP_OK ? find_parts(call, &depthwise).total : 0;
}

/* One output pixel with more than one filter a channel: output k * multiplier + q has filter q of
 * input channel k. */
static void multiplied_pixel(const struct depthwise *depthwise, size_t taps,
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

/* One output row of one image. */
static void run_row(const struct depthwise *depthwise, const struct np_call *call,
                    const struct parts *parts, const float *image, uint32_t y, float *out,
                    float low, float high) {
  const struct np_window *w = &depthwise->window;
  const struct np_gemm_engine *engine = np_gemm_engine();
  const float *weights = np_in(call, 1)->data;
  const float *bias = np_in(call, 2)->data;
  unsigned char *scratch = call->scratch;
  const float **tap_inputs = (const float **)(void *)(scratch + parts->inputs);
  const float **tap_weights = (const float **)(void *)(scratch + parts->weights);
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

enum np_status np_depthwise_run(const struct np_call *call) {
  struct depthwise depthwise;
  int32_t fuse;
  float low, high;
  NP_TRY(read_depthwise(call, &depthwise));
  NP_TRY(np_read_i32(call, depthwise.fuse, &fuse));
  NP_TRY(np_fuse_limits(call, fuse, &low, &high));
  const struct np_window *w = &depthwise.window;
  const struct parts parts = find_parts(call, &depthwise);
  unsigned char *scratch = call->scratch;
  if (np_out(call, 0)->elements == 0) {
    return NP_OK;
  }
  const size_t in_pixels = (size_t)w->height * w->width;
  const size_t out_pixels = (size_t)w->out_h * w->out_w;
  const float *input = np_in(call, 0)->data;
  float *output = np_out(call, 0)->room;
  if (w->nchw) {
    float *copy = (float *)(void *)(scratch + parts.input);
    np_swap_axes(input, copy, w->batches, w->channels, in_pixels);
    input = copy;
    output = (float *)(void *)(scratch + parts.output);
  }
  for (size_t b = 0; b < w->batches; b++) {
    const float *image = input + b * in_pixels * w->channels;
    for (uint32_t y = 0; y < w->out_h; y++) {
      float *row = output + (b * out_pixels + (size_t)y * w->out_w) * depthwise.out_channels;
      run_row(&depthwise, call, &parts, image, y, row, low, high);
    }
  }
  if (w->nchw) {
    np_swap_axes(output, np_out(call, 0)->room, w->batches, out_pixels, depthwise.out_channels);
  }
  return NP_OK;
}

const struct np_kernel np_kernel_DEPTHWISE_CONV_2D = {.types = NP_FLOATS,
                                                      .infer = np_depthwise_infer,
                                                      .scratch = np_depthwise_scratch,
                                                      .run = np_depthwise_run};
