/* ROI_POOLING: the highest value in each bin of regions of a feature map, in whole pixels. */
#include <math.h>

#include "kernels/host_only/np_boxes.h"
#include "kernels/np_quant.h"

enum { DATA };

static enum np_status pooling_infer(const struct np_call *call) {
  struct np_rois rois;
  NP_TRY(np_rois_read(call, &rois));
  NP_TRY(np_q_same_as_input(call, 0, DATA));
  return np_rois_infer(call, &rois);
}

/* Pixels from `from` up to but not including `to`. */
struct span {
  uint32_t from, to;
};

/* One direction of a region; its ends are rounded to pixels and both included. */
struct axis {
  float start;
  float step;    /* pixels of a bin */
  uint32_t size; /* the feature map's */
};

static struct axis axis_of(float start, float end, uint32_t bins, uint32_t size) {
  const float first = roundf(start);
  return (struct axis){
      .start = first, .step = (roundf(end) - first + 1.0f) / (float)bins, .size = size};
}

static uint32_t pixel(float at, uint32_t size) { return at < (float)size ? (uint32_t)at : size; }

/* Returns the pixels that a bin touches; none if it starts after the last one. */
static struct span span_of(const struct axis *axis, uint32_t bin) {
  const float from = floorf(axis->step * (float)bin + axis->start);
  const float to = ceilf(axis->step * (float)(bin + 1) + axis->start);
  return (struct span){pixel(from, axis->size), pixel(to, axis->size)};
}

/* Computes the highest values of the pixels in both spans, channel by channel; 0 if there are
 * none. */
static void pool_floats(const struct np_call *call, const struct np_rois *rois, size_t image,
                        struct span y, struct span x, size_t at) {
  const float *data = np_in(call, DATA)->data;
  float *out = (float *)np_out(call, 0)->room + at;
  for (size_t k = 0; k < rois->depth; k++) {
    float highest = 0.0f;
    for (size_t h = y.from; h < y.to; h++) {
      for (size_t w = x.from; w < x.to; w++) {
        const float value = data[image + (h * rois->width + w) * rois->depth + k];
        const int first = h == y.from && w == x.from;
        highest = first || value > highest ? value : highest;
      }
    }
    out[k] = highest;
  }
}

static void pool_quants(const struct np_call *call, const struct np_rois *rois, size_t image,
                        struct span y, struct span x, size_t at) {
  const struct np_operand *operand = np_in_operand(call, DATA);
  const void *data = np_in(call, DATA)->data;
  for (size_t k = 0; k < rois->depth; k++) {
    int32_t highest = operand->zero_point;
    for (size_t h = y.from; h < y.to; h++) {
      for (size_t w = x.from; w < x.to; w++) {
        const size_t from = image + (h * rois->width + w) * rois->depth + k;
        const int32_t value = np_q_read(operand->type, data, from);
        const int first = h == y.from && w == x.from;
        highest = first || value > highest ? value : highest;
      }
    }
    np_q_write(operand->type, np_out(call, 0)->room, at + k, highest);
  }
}

static enum np_status pooling_run(const struct np_call *call) {
  struct np_rois rois;
  NP_TRY(np_rois_read(call, &rois));
  const int floats = np_in(call, DATA)->type == NP_TYPE_TENSOR_FLOAT32;
  size_t at = 0;
  for (uint32_t r = 0; r < rois.n; r++) {
    struct np_roi roi;
    NP_TRY(np_roi_read(call, &rois, r, &roi));
    const size_t image = (size_t)roi.batch * rois.height * rois.width * rois.depth;
    const struct axis rows = axis_of(roi.y1, roi.y2, rois.out_h, rois.height);
    const struct axis columns = axis_of(roi.x1, roi.x2, rois.out_w, rois.width);
    for (uint32_t i = 0; i < rois.out_h; i++) {
      const struct span y = span_of(&rows, i);
      for (uint32_t j = 0; j < rois.out_w; j++, at += rois.depth) {
        const struct span x = span_of(&columns, j);
        (floats ? pool_floats : pool_quants)(call, &rois, image, y, x, at);
      }
    }
  }
  return NP_OK;
}

const struct np_kernel np_kernel_ROI_POOLING = {
    .types = NP_FLOATS | NP_QUANT8, .infer = pooling_infer, .run = pooling_run};
