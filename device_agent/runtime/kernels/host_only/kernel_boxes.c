/* Boxes for all detection kernels, and AXIS_ALIGNED_BBOX_TRANSFORM. */
#include <math.h>
#include <string.h>

#include "kernels/host_only/np_boxes.h"
#include "kernels/np_half.h"
#include "kernels/np_quant.h"

void *np_layout_add(struct np_layout *layout, size_t n, size_t each) {
  const size_t at = layout->used;
  const size_t bytes = np_mul_saturated(n, each);
  layout->used = bytes > SIZE_MAX - 15 ? SIZE_MAX : np_add_saturated(at, (bytes + 15) / 16 * 16);
  return layout->base == NULL ? NULL : layout->base + at;
}

static void read_floats(const struct np_call *call, uint32_t input, float *values) {
  const struct np_tensor *tensor = np_in(call, input);
  const struct np_operand *operand = np_in_operand(call, input);
  const int wide =
      tensor->type == NP_TYPE_TENSOR_QUANT16_ASYMM || tensor->type == NP_TYPE_TENSOR_QUANT16_SYMM;
  if (tensor->elements == 0) {
    return;
  }
  if (tensor->type == NP_TYPE_TENSOR_FLOAT32) {
    memcpy(values, tensor->data, tensor->elements * sizeof *values);
    return;
  }
  if (tensor->type == NP_TYPE_TENSOR_FLOAT16) {
    np_half_to_floats(tensor->data, values, tensor->elements);
    return;
  }
  for (size_t i = 0; i < tensor->elements; i++) {
    const int32_t q = wide ? np_q16_read(tensor->type, tensor->data, i)
                           : np_q_read(tensor->type, tensor->data, i);
    values[i] = np_dequantize(q, operand->scale, operand->zero_point);
  }
}

float *np_layout_copy(struct np_layout *layout, const struct np_call *call, uint32_t input) {
  float *values = np_layout_add(layout, np_in(call, input)->elements, sizeof *values);
  if (values != NULL) {
    read_floats(call, input, values);
  }
  return values;
}

const float *np_layout_floats(struct np_layout *layout, const struct np_call *call,
                              uint32_t input) {
  const struct np_tensor *tensor = np_in(call, input);
  return tensor->type == NP_TYPE_TENSOR_FLOAT32 ? tensor->data
                                                : np_layout_copy(layout, call, input);
}

void np_store_floats(const struct np_call *call, uint32_t output, size_t at, const float *values,
                     size_t n) {
  const struct np_tensor *tensor = np_out(call, output);
  const struct np_operand *operand = np_out_operand(call, output);
  if (tensor->type == NP_TYPE_TENSOR_FLOAT32) {
    memcpy((float *)tensor->room + at, values, n * sizeof *values);
    return;
  }
  if (tensor->type == NP_TYPE_TENSOR_FLOAT16) {
    np_half_from_floats(values, (uint16_t *)tensor->room + at, n);
    return;
  }
  int32_t low, high;
  np_q_limits(tensor->type, &low, &high);
  for (size_t i = 0; i < n; i++) {
    const float scaled = roundf(values[i] / operand->scale + (float)operand->zero_point);
    const int32_t q = !(scaled > (float)low) ? low : scaled > (float)high ? high : (int32_t)scaled;
    if (tensor->type == NP_TYPE_TENSOR_QUANT16_ASYMM) {
      np_q16_write(tensor->room, at + i, q);
    } else {
      np_q_write(tensor->type, tensor->room, at + i, q);
    }
  }
}

enum np_status np_require_shape(const struct np_call *call, uint32_t input, uint32_t rank,
                                const int64_t *dims) {
  const struct np_tensor *tensor = np_in(call, input);
  if (!tensor->known) {
    return NP_MISSING;
  }
  if (tensor->rank != rank) {
    return np_fail(call, NP_BAD_MODEL, "input %u has rank %u, wanted %u", input, tensor->rank,
                   rank);
  }
  for (uint32_t i = 0; i < rank; i++) {
    if (dims[i] != NP_ANY_DIM && dims[i] != tensor->dims[i]) {
      return np_fail(call, NP_BAD_MODEL, "input %u has %u in dimension %u, wanted %lld", input,
                     tensor->dims[i], i, (long long)dims[i]);
    }
  }
  return NP_OK;
}

enum np_status np_require_box_scale(const struct np_call *call, uint32_t input) {
  const struct np_operand *operand = np_in_operand(call, input);
  int32_t low, high;
  np_q_limits(operand->type, &low, &high);
  if (low != high && (operand->scale != NP_BOX_SCALE || operand->zero_point != 0)) {
    return np_fail(call, NP_BAD_MODEL,
                   "input %u has scale %g and zero point %d, wanted 0.125 and 0", input,
                   (double)operand->scale, operand->zero_point);
  }
  return NP_OK;
}

enum np_status np_check_boxes(const struct np_call *call, const float *boxes, size_t n) {
  for (size_t i = 0; i < n; i++, boxes += NP_BOX) {
    if (!(boxes[0] <= boxes[2]) || !(boxes[1] <= boxes[3])) {
      return np_fail(call, NP_RUN_FAILED, "box %zu is [%g, %g, %g, %g], wanted x1 <= x2, y1 <= y2",
                     i, (double)boxes[0], (double)boxes[1], (double)boxes[2], (double)boxes[3]);
    }
  }
  return NP_OK;
}

/* Clips a coordinate to the image, [0, end]; NaN stays NaN. */
static float clip(float value, float end) {
  const float raised = value < 0.0f ? 0.0f : value;
  return end < raised ? end : raised;
}

void np_box_transform(const float *box, const float *delta, const float *image, float *moved) {
  const float before_w = box[2] - box[0];
  const float before_h = box[3] - box[1];
  const float x = (box[0] + box[2]) / 2 + delta[0] * before_w;
  const float y = (box[1] + box[3]) / 2 + delta[1] * before_h;
  const float w = expf(delta[2]) * before_w;
  const float h = expf(delta[3]) * before_h;
  moved[0] = clip(x - w / 2, image[1]);
  moved[1] = clip(y - h / 2, image[0]);
  moved[2] = clip(x + w / 2, image[1]);
  moved[3] = clip(y + h / 2, image[0]);
}

/* ---- AXIS_ALIGNED_BBOX_TRANSFORM ------------------------------------------------------------ */

enum { ROIS, DELTAS, BATCHES, IMAGES };

static enum np_status transform_infer(const struct np_call *call) {
  NP_TRY(np_require_shape(call, ROIS, 2, (const int64_t[]){NP_ANY_DIM, NP_BOX}));
  const uint32_t n = np_in(call, ROIS)->dims[0];
  NP_TRY(np_require_shape(call, DELTAS, 2, (const int64_t[]){n, NP_ANY_DIM}));
  NP_TRY(np_require_shape(call, BATCHES, 1, (const int64_t[]){n}));
  NP_TRY(np_require_shape(call, IMAGES, 2, (const int64_t[]){NP_ANY_DIM, 2}));
  const uint32_t width = np_in(call, DELTAS)->dims[1];
  if (width == 0 || width % NP_BOX != 0) {
    return np_fail(call, NP_BAD_MODEL, "input 1 has %u in dimension 1, wanted 4 for each class",
                   width);
  }
  if (np_in(call, IMAGES)->dims[0] == 0) {
    return np_fail(call, NP_BAD_MODEL, "input 3 describes no image");
  }
  NP_TRY(np_require_box_scale(call, ROIS));
  NP_TRY(np_require_box_scale(call, IMAGES));
  if (np_in(call, ROIS)->type == NP_TYPE_TENSOR_QUANT16_ASYMM) {
    NP_TRY(np_q_fixed_output(call, 0, NP_BOX_SCALE, 0));
  }
  return np_set_shape(call, 0, 2, (const uint32_t[]){n, width});
}

struct transform {
  const float *rois;
  const float *deltas;
  const float *images;
};

static struct transform lay_transform(struct np_layout *layout, const struct np_call *call) {
  return (struct transform){.rois = np_layout_floats(layout, call, ROIS),
                            .deltas = np_layout_floats(layout, call, DELTAS),
                            .images = np_layout_floats(layout, call, IMAGES)};
}

static size_t transform_scratch(const struct np_call *call) {
  struct np_layout layout = {NULL, 0};
  (void)lay_transform(&layout, call);
  return layout.used;
}

static enum np_status transform_run(const struct np_call *call) {
  struct np_layout layout = {call->scratch, 0};
  const struct transform transform = lay_transform(&layout, call);
  const size_t n = np_in(call, ROIS)->dims[0];
  const size_t classes = np_in(call, DELTAS)->dims[1] / NP_BOX;
  const uint32_t images = np_in(call, IMAGES)->dims[0];
  const int32_t *batches = np_in(call, BATCHES)->data;
  NP_TRY(np_check_boxes(call, transform.rois, n));
  for (size_t i = 0; i < n; i++) {
    if (batches[i] < 0 || (uint32_t)batches[i] >= images) {
      return np_fail(call, NP_RUN_FAILED, "box %zu is of image %d, there are %u", i, batches[i],
                     images);
    }
    const float *image = transform.images + (size_t)batches[i] * 2;
    for (size_t c = 0; c < classes; c++) {
      const size_t at = (i * classes + c) * NP_BOX;
      float moved[NP_BOX];
      np_box_transform(transform.rois + i * NP_BOX, transform.deltas + at, image, moved);
      np_store_floats(call, 0, at, moved, NP_BOX);
    }
  }
  return NP_OK;
}

const struct np_kernel np_kernel_AXIS_ALIGNED_BBOX_TRANSFORM = {
    .types = NP_FLOATS | NP_BIT(NP_TYPE_TENSOR_QUANT16_ASYMM),
    .infer = transform_infer,
    .scratch = transform_scratch,
    .run = transform_run};
