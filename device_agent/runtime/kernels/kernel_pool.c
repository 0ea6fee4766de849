/* AVERAGE_POOL_2D and MAX_POOL_2D. Padding is ignored: an average divides by the number of cells
 * inside the image. */
#include <math.h>
#include <string.h>

#include "kernels/np_pool.h"
#include "kernels/np_quant.h"

enum pool { POOL_AVERAGE, POOL_MAX };

enum np_status np_pool_read(const struct np_call *call, struct np_window *window, uint32_t *fuse) {
  const uint32_t next = 1 + np_window_inputs(call);
  memset(window, 0, sizeof *window);
  int32_t filter_w, filter_h;
  NP_TRY(np_read_i32(call, next, &filter_w));
  NP_TRY(np_read_i32(call, next + 1, &filter_h));
  *fuse = next + 2;
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
  return np_q_same_as_input(call, 0, 0);
}

enum np_status np_pool_infer(const struct np_call *call) {
  struct np_window window;
  uint32_t fuse;
  NP_TRY(np_pool_read(call, &window, &fuse));
  return np_window_shape(call, &window, window.channels);
}

/* Sums of one pixel of quantised data. */
static size_t scratch(const struct np_call *call) {
  struct np_window window;
  uint32_t fuse;
  if (np_pool_read(call, &window, &fuse) != NP_OK) {
    return 0;
  }
  return np_mul_saturated(window.channels, sizeof(int64_t));
}

/* Takes one cell [n] of the image into the window's result. */
static void take(enum pool pool, const float *cell, float *out, size_t n) {
  switch (pool) {
  case POOL_AVERAGE:
    for (size_t c = 0; c < n; c++) {
      out[c] += cell[c];
    }
    break;
  case POOL_MAX:
    for (size_t c = 0; c < n; c++) {
      out[c] = cell[c] > out[c] ? cell[c] : out[c];
    }
    break;
  }
}

static void finish(enum pool pool, float *out, size_t n, uint32_t cells) {
  const float count = (float)cells;
  for (size_t c = 0; pool != POOL_MAX && c < n; c++) {
    out[c] /= count;
  }
}

struct np_cells np_pool_cells(const struct np_window *w, uint32_t y, uint32_t x) {
  uint32_t first_y, last_y, first_x, last_x;
  np_window_taps(y, w->stride_h, w->pad_top, 1, w->filter_h, w->height, &first_y, &last_y);
  np_window_taps(x, w->stride_w, w->pad_left, 1, w->filter_w, w->width, &first_x, &last_x);
  const size_t iy = (size_t)y * w->stride_h + first_y - w->pad_top;
  const size_t ix = (size_t)x * w->stride_w + first_x - w->pad_left;
  return (struct np_cells){.first = (iy * w->width + ix) * w->channels,
                           .row_step = (size_t)w->width * w->channels,
                           .rows = last_y - first_y,
                           .columns = last_x - first_x};
}

static void float_pixel(const struct np_window *w, enum pool pool, const float *image,
                        struct np_cells cells, float *out) {
  for (size_t c = 0; c < w->channels; c++) {
    out[c] = pool == POOL_MAX ? -INFINITY : 0.0f;
  }
  for (uint32_t i = 0; i < cells.rows; i++) {
    const float *cell = image + cells.first + i * cells.row_step;
    for (uint32_t j = 0; j < cells.columns; j++, cell += w->channels) {
      take(pool, cell, out, w->channels);
    }
  }
  finish(pool, out, w->channels, cells.rows * cells.columns);
}

static enum np_status run_float(const struct np_call *call, const struct np_window *w,
                                int32_t fuse) {
  const enum pool pool = (enum pool)call->kernel->extra;
  const float *image = np_in(call, 0)->data;
  float *out = np_out(call, 0)->room;
  float low, high;
  NP_TRY(np_fuse_limits(call, fuse, &low, &high));
  for (size_t b = 0; b < w->batches; b++) {
    for (uint32_t y = 0; y < w->out_h; y++) {
      for (uint32_t x = 0; x < w->out_w; x++, out += w->channels) {
        float_pixel(w, pool, image, np_pool_cells(w, y, x), out);
      }
    }
    image += (size_t)w->height * w->width * w->channels;
  }
  np_clamp(np_out(call, 0)->room, np_out(call, 0)->elements, low, high);
  return NP_OK;
}

/* Computes averages, or largest values, of 8-bit data: sums of q are divided and rounded half away
 * from zero. (For signed data this differs from the average of the same values as unsigned ones,
 * where halves are rounded up.) */
static void quant_pixel(const struct np_window *w, enum pool pool, int32_t type,
                        const unsigned char *image, struct np_cells cells, int64_t *sums) {
  for (size_t c = 0; c < w->channels; c++) {
    sums[c] = pool == POOL_AVERAGE ? 0 : INT8_MIN;
  }
  for (uint32_t i = 0; i < cells.rows; i++) {
    const unsigned char *cell = image + cells.first + i * cells.row_step;
    for (uint32_t j = 0; j < cells.columns; j++, cell += w->channels) {
      for (size_t c = 0; c < w->channels; c++) {
        const int64_t q = np_q_read(type, cell, c);
        sums[c] = pool == POOL_AVERAGE ? sums[c] + q : q > sums[c] ? q : sums[c];
      }
    }
  }
  const int64_t count = (int64_t)cells.rows * cells.columns;
  for (size_t c = 0; pool == POOL_AVERAGE && c < w->channels; c++) {
    sums[c] = (sums[c] + (sums[c] > 0 ? count / 2 : -(count / 2))) / count;
  }
}

static enum np_status run_quant(const struct np_call *call, const struct np_window *w,
                                int32_t fuse) {
  const enum pool pool = (enum pool)call->kernel->extra;
  const struct np_operand *operand = np_out_operand(call, 0);
  const unsigned char *image = np_in(call, 0)->data;
  unsigned char *out = np_out(call, 0)->room;
  int64_t *sums = call->scratch;
  int32_t low, high;
  NP_TRY(np_q_fuse_limits(call, fuse, operand, &low, &high));
  for (size_t b = 0; b < w->batches; b++) {
    for (uint32_t y = 0; y < w->out_h; y++) {
      for (uint32_t x = 0; x < w->out_w; x++, out += w->channels) {
        quant_pixel(w, pool, operand->type, image, np_pool_cells(w, y, x), sums);
        for (size_t c = 0; c < w->channels; c++) {
          np_q_write(operand->type, out, c, np_limit((int32_t)sums[c], low, high));
        }
      }
    }
    image += (size_t)w->height * w->width * w->channels;
  }
  return NP_OK;
}

static enum np_status run(const struct np_call *call) {
  struct np_window w;
  uint32_t fuse_input;
  int32_t fuse;
  NP_TRY(np_pool_read(call, &w, &fuse_input));
  NP_TRY(np_read_i32(call, fuse_input, &fuse));
  if (np_out(call, 0)->elements == 0) {
    return NP_OK;
  }
  return np_in(call, 0)->type == NP_TYPE_TENSOR_FLOAT32 ? run_float(call, &w, fuse)
                                                        : run_quant(call, &w, fuse);
}

const struct np_kernel np_kernel_AVERAGE_POOL_2D = {.types = NP_FLOATS | NP_QUANT8,
                                                    .extra = POOL_AVERAGE,
                                                    .infer = np_pool_infer,
                                                    .scratch = scratch,
                                                    .run = run};
const struct np_kernel np_kernel_MAX_POOL_2D = {.types = NP_FLOATS | NP_QUANT8,
                                                .extra = POOL_MAX,
                                                .infer = np_pool_infer,
                                                .scratch = scratch,
                                                .run = run};
