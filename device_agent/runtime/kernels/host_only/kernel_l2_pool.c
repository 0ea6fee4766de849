/* L2_POOL_2D: the root of the mean square of the cells inside the image. */
#include <math.h>

#include "kernels/np_pool.h"
#include "kernels/np_quant.h"

static void pixel(const struct np_window *w, const float *image, struct np_cells cells,
                  float *out) {
  const float count = (float)(cells.rows * cells.columns);
  for (size_t c = 0; c < w->channels; c++) {
    out[c] = 0.0f;
  }
  for (uint32_t i = 0; i < cells.rows; i++) {
    const float *cell = image + cells.first + i * cells.row_step;
    for (uint32_t j = 0; j < cells.columns; j++, cell += w->channels) {
      for (size_t c = 0; c < w->channels; c++) {
        out[c] += cell[c] * cell[c];
      }
    }
  }
  for (size_t c = 0; c < w->channels; c++) {
    out[c] = sqrtf(out[c] / count);
  }
}

static enum np_status run(const struct np_call *call) {
  struct np_window w;
  uint32_t fuse_input;
  int32_t fuse;
  float low, high;
  NP_TRY(np_pool_read(call, &w, &fuse_input));
  NP_TRY(np_read_i32(call, fuse_input, &fuse));
  NP_TRY(np_fuse_limits(call, fuse, &low, &high));
  if (np_out(call, 0)->elements == 0) {
    return NP_OK;
  }
  const float *image = np_in(call, 0)->data;
  float *out = np_out(call, 0)->room;
  for (size_t b = 0; b < w.batches; b++) {
    for (uint32_t y = 0; y < w.out_h; y++) {
      for (uint32_t x = 0; x < w.out_w; x++, out += w.channels) {
        pixel(&w, image, np_pool_cells(&w, y, x), out);
      }
    }
    image += (size_t)w.height * w.width * w.channels;
  }
  np_clamp(np_out(call, 0)->room, np_out(call, 0)->elements, low, high);
  return NP_OK;
}

const struct np_kernel np_kernel_L2_POOL_2D = {
    .types = NP_FLOATS, .infer = np_pool_infer, .run = run};
