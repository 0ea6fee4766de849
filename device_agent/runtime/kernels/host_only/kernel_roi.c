/* Shared by ROI_ALIGN and ROI_POOLING. */
#include "kernels/host_only/np_boxes.h"
#include "kernels/np_quant.h"

enum { DATA, ROIS, BATCHES, OUT_H, OUT_W, RATIO_H, RATIO_W };

static enum np_status read_size(const struct np_call *call, uint32_t input, uint32_t *size) {
  int32_t value;
  NP_TRY(np_read_i32(call, input, &value));
  if (value < 1) {
    return np_fail(call, NP_BAD_MODEL, "input %u is %d, wanted 1 at least", input, value);
  }
  *size = (uint32_t)value;
  return NP_OK;
}

/* Reads a ratio of the image to the feature map, and returns its inverse. */
static enum np_status read_scale(const struct np_call *call, uint32_t input, float *scale) {
  float ratio;
  NP_TRY(np_read_f32(call, input, &ratio));
  if (!(ratio > 0.0f)) {
    return np_fail(call, NP_BAD_MODEL, "input %u is %g, wanted more than 0", input, (double)ratio);
  }
  *scale = 1.0f / ratio;
  return NP_OK;
}

enum np_status np_rois_read(const struct np_call *call, struct np_rois *rois) {
  NP_TRY(np_require_shape(call, DATA, 4,
                          (const int64_t[]){NP_ANY_DIM, NP_ANY_DIM, NP_ANY_DIM, NP_ANY_DIM}));
  NP_TRY(np_require_shape(call, ROIS, 2, (const int64_t[]){NP_ANY_DIM, NP_BOX}));
  NP_TRY(np_require_shape(call, BATCHES, 1, (const int64_t[]){np_in(call, ROIS)->dims[0]}));
  NP_TRY(np_require_box_scale(call, ROIS));
  if (np_in(call, DATA)->elements == 0) {
    return np_fail(call, NP_BAD_MODEL, "input 0 is empty");
  }
  const uint32_t *dims = np_in(call, DATA)->dims;
  rois->batches = dims[0];
  rois->height = dims[1];
  rois->width = dims[2];
  rois->depth = dims[3];
  rois->n = np_in(call, ROIS)->dims[0];
  NP_TRY(read_size(call, OUT_H, &rois->out_h));
  NP_TRY(read_size(call, OUT_W, &rois->out_w));
  NP_TRY(read_scale(call, RATIO_H, &rois->scale_h));
  return read_scale(call, RATIO_W, &rois->scale_w);
}

enum np_status np_rois_infer(const struct np_call *call, const struct np_rois *rois) {
  return np_set_shape(call, 0, 4,
                      (const uint32_t[]){rois->n, rois->out_h, rois->out_w, rois->depth});
}

/* Returns whether two coordinates are in order and inside; converts them to pixels of the feature
 * map. */
static int is_inside(float from, float to, float scale, uint32_t size, float *start, float *end) {
  *start = from * scale;
  *end = to * scale;
  return from >= 0.0f && from <= to && *start <= (float)size && *end <= (float)size;
}

enum np_status np_roi_read(const struct np_call *call, const struct np_rois *rois, uint32_t i,
                           struct np_roi *roi) {
  const struct np_tensor *tensor = np_in(call, ROIS);
  const int32_t batch = ((const int32_t *)np_in(call, BATCHES)->data)[i];
  float box[NP_BOX];
  for (size_t k = 0; k < NP_BOX; k++) {
    const size_t at = (size_t)i * NP_BOX + k;
    box[k] = tensor->type == NP_TYPE_TENSOR_FLOAT32
                 ? ((const float *)tensor->data)[at]
                 : np_dequantize(np_q16_read(tensor->type, tensor->data, at), NP_BOX_SCALE, 0);
  }
  if (batch < 0 || (uint32_t)batch >= rois->batches) {
    return np_fail(call, NP_RUN_FAILED, "region %u is of batch %d, there are %u", i, batch,
                   rois->batches);
  }
  roi->batch = (uint32_t)batch;
  if (!is_inside(box[0], box[2], rois->scale_w, rois->width, &roi->x1, &roi->x2) ||
      !is_inside(box[1], box[3], rois->scale_h, rois->height, &roi->y1, &roi->y2)) {
    return np_fail(call, NP_RUN_FAILED,
                   "region %u is [%g, %g, %g, %g], wanted x1 <= x2, y1 <= y2 inside the image", i,
                   (double)box[0], (double)box[1], (double)box[2], (double)box[3]);
  }
  return NP_OK;
}
