/* AVERAGE_POOL_2D, MAX_POOL_2D and L2_POOL_2D. Cells of padding take no part: an average divides by
 * the cells inside the image. */
#include <math.h>
#include <string.h>

#include "kernels/np_families.h"
#include "kernels/np_window.h"
#include "plan/np_plan.h"

static enum np_status read_pool(const struct np_call *call, struct np_window *window,
                                uint32_t *fuse) {
  const uint32_t next = 1 + np_window_inputs(call);
  memset(window, 0, sizeof *window);
  int32_t filter_w, filter_h;
  NP_TRY(np_read_i32(call, next, &filter_w));
  NP_TRY(np_read_i32(call, next + 1, &filter_h));
  *fuse = next + 2;
  NP_TRY(np_window_layout(call, next + 3, &window->nchw));
  if (filter_w < 1 || filter_h < 1) {
    return np_fail(call, NP_BAD_MODEL, "a window of %d x %d, wanted at least 1 x 1", filter_w,
                   filter_h);
  }
  window->filter_w = (uint32_t)filter_w;
  window->filter_h = (uint32_t)filter_h;
  window->dilation_h = 1;
  window->dilation_w = 1;
  NP_TRY(np_window_fit(call, 1, window));
  const uint64_t end_h = (uint64_t)window->height + window->pad_top;
  const uint64_t end_w = (uint64_t)window->width + window->pad_left;
  const int is_empty =
      (window->height == 0 && window->out_h > 0) || (window->width == 0 && window->out_w > 0);
  if (is_empty || window->pad_top >= window->filter_h || window->pad_left >= window->filter_w ||
      (window->out_h > 0 && (uint64_t)(window->out_h - 1) * window->stride_h >= end_h) ||
      (window->out_w > 0 && (uint64_t)(window->out_w - 1) * window->stride_w >= end_w)) {
    return np_fail(call, NP_BAD_MODEL, "a window of %u x %u lies wholly in the padding",
                   window->filter_w, window->filter_h);
  }
  return NP_OK;
}

enum np_status np_pool_infer(const struct np_call *call) {
  struct np_window window;
  uint32_t fuse;
  NP_TRY(read_pool(call, &window, &fuse));
  return np_window_shape(call, &window, window.channels);
}

size_t np_pool_scratch(const struct np_call *call) {
  struct np_window window;
  uint32_t fuse;
  if (read_pool(call, &window, &fuse) != NP_OK || !window.nchw) {
    return 0;
  }
  return np_plus(np_align(np_times(np_in(call, 0)->elements, sizeof(float))),
                 np_align(np_times(np_out(call, 0)->elements, sizeof(float))));
}

/* Takes one cell [n] of the image into the window's result. */
static void take(enum np_pool pool, const float *cell, float *out, size_t n) {
  switch (pool) {
  case NP_POOL_AVERAGE:
    for (size_t c = 0; c < n; c++) {
      out[c] += cell[c];
    }
    break;
  case NP_POOL_MAX:
    for (size_t c = 0; c < n; c++) {
      out[c] = cell[c] > out[c] ? cell[c] : out[c];
    }
    break;
  case NP_POOL_L2:
    for (size_t c = 0; c < n; c++) {
      out[c] += cell[c] * cell[c];
    }
    break;
  }
}

static void finish(enum np_pool pool, float *out, size_t n, uint32_t cells) {
  const float count = (float)cells;
  for (size_t c = 0; pool != NP_POOL_MAX && c < n; c++) {
    out[c] /= count;
  }
  for (size_t c = 0; pool == NP_POOL_L2 && c < n; c++) {
    out[c] = sqrtf(out[c]);
  }
}

/* One output pixel of an NHWC image. */
static void run_pixel(const struct np_window *w, enum np_pool pool, const float *image, uint32_t y,
                      uint32_t x, float *out) {
  uint32_t first_y, last_y, first_x, last_x;
  np_window_taps(y, w->stride_h, w->pad_top, 1, w->filter_h, w->height, &first_y, &last_y);
  np_window_taps(x, w->stride_w, w->pad_left, 1, w->filter_w, w->width, &first_x, &last_x);
  for (size_t c = 0; c < w->channels; c++) {
    out[c] = pool == NP_POOL_MAX ? -INFINITY : 0.0f;
  }
  for (uint32_t ky = first_y; ky < last_y; ky++) {
    const size_t iy = (size_t)y * w->stride_h + ky - w->pad_top;
    for (uint32_t kx = first_x; kx < last_x; kx++) {
      const size_t ix = (size_t)x * w->stride_w + kx - w->pad_left;
      take(pool, image + (iy * w->width + ix) * w->channels, out, w->channels);
    }
  }
  finish(pool, out, w->channels, (last_y - first_y) * (last_x - first_x));
}

enum np_status np_pool_run(const struct np_call *call) {
  struct np_window w;
  uint32_t fuse_input;
  int32_t fuse;
  float low, high;
  NP_TRY(read_pool(call, &w, &fuse_input));
  NP_TRY(np_read_i32(call, fuse_input, &fuse));
  NP_TRY(np_fuse_limits(call, fuse, &low, &high));
  const enum np_pool pool = (enum np_pool)call->kernel->extra;
  const size_t in_pixels = (size_t)w.height * w.width;
  const size_t out_pixels = (size_t)w.out_h * w.out_w;
  const size_t elements = np_out(call, 0)->elements;
  if (elements == 0) {
    return NP_OK;
  }
  const float *input = np_in(call, 0)->data;
  float *output = np_out(call, 0)->room;
  if (w.nchw) {
    float *copy = call->scratch;
    np_swap_axes(input, copy, w.batches, w.channels, in_pixels);
    input = copy;
    const size_t used = np_align(np_in(call, 0)->elements * sizeof(float));
    output = (float *)(void *)((unsigned char *)call->scratch + used);
  }
  for (size_t b = 0; b < w.batches; b++) {
    for (uint32_t y = 0; y < w.out_h; y++) {
      for (uint32_t x = 0; x < w.out_w; x++) {
        run_pixel(&w, pool, input + b * in_pixels * w.channels, y, x,
                  output + (b * out_pixels + (size_t)y * w.out_w + x) * w.channels);
      }
    }
  }
  np_clamp(output, elements, low, high);
  if (w.nchw) {
    np_swap_axes(output, np_out(call, 0)->room, w.batches, out_pixels, w.channels);
  }
  return NP_OK;
}

const struct np_kernel np_kernel_AVERAGE_POOL_2D = {.types = NP_FLOATS,
                                                    .extra = NP_POOL_AVERAGE,
                                                    .infer = np_pool_infer,
                                                    .scratch = np_pool_scratch,
                                                    .run = np_pool_run};
const struct np_kernel np_kernel_MAX_POOL_2D = {.types = NP_FLOATS,
                                                .extra = NP_POOL_MAX,
                                                .infer = np_pool_infer,
                                                .scratch = np_pool_scratch,
                                                .run = np_pool_run};
const struct np_kernel np_kernel_L2_POOL_2D = {.types = NP_FLOATS,
                                               .extra = NP_POOL_L2,
                                               .infer = np_pool_infer,
                                               .scratch = np_pool_scratch,
                                               .run = np_pool_run};
