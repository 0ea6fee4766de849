/* ROI_ALIGN: samples regions of a feature map between pixels into a fixed number of bins. */
#include <math.h>
#include <string.h>

#include "kernels/host_only/np_boxes.h"
#include "kernels/np_quant.h"

enum { DATA, SAMPLES_H = 7, SAMPLES_W };

/* Limit of samples per bin that a model may request; a region never needs more than it has
 * pixels. */
enum { MOST_SAMPLES = 1 << 20 };

struct align {
  struct np_rois rois;
  uint32_t samples_h, samples_w; /* per bin; 0: one for each pixel */
};

static enum np_status read_samples(const struct np_call *call, uint32_t input, uint32_t *samples) {
  int32_t value;
  NP_TRY(np_read_i32(call, input, &value));
  if (value < 0) {
    return np_fail(call, NP_BAD_MODEL, "input %u is %d, wanted 0 at least", input, value);
  }
  *samples = (uint32_t)value;
  return NP_OK;
}

static enum np_status read_align(const struct np_call *call, struct align *align) {
  NP_TRY(np_rois_read(call, &align->rois));
  NP_TRY(read_samples(call, SAMPLES_H, &align->samples_h));
  NP_TRY(read_samples(call, SAMPLES_W, &align->samples_w));
  const uint32_t largest =
      align->samples_h > align->samples_w ? align->samples_h : align->samples_w;
  if (largest > MOST_SAMPLES || (uint64_t)align->samples_h * align->samples_w > MOST_SAMPLES) {
    return np_fail(call, NP_UNSUPPORTED, "%u x %u samples of a bin, this engine takes %d",
                   align->samples_h, align->samples_w, MOST_SAMPLES);
  }
  return NP_OK;
}

static enum np_status align_infer(const struct np_call *call) {
  struct align align;
  NP_TRY(read_align(call, &align));
  return np_rois_infer(call, &align.rois);
}

/* Sums of one bin of quantised data. */
static size_t align_scratch(const struct np_call *call) {
  const struct np_tensor *data = np_in(call, DATA);
  return data->type == NP_TYPE_TENSOR_FLOAT32 ? 0
                                              : np_mul_saturated(data->dims[3], sizeof(int64_t));
}

/* One direction of a region: bins of `step` pixels with `samples` samples `apart`. */
struct axis {
  float start;
  float step;
  float apart;
  uint32_t samples;
  uint32_t size; /* the feature map's */
};

static struct axis axis_of(float start, float end, uint32_t bins, uint32_t samples, uint32_t size) {
  const float length = end - start < 1.0f ? 1.0f : end - start;
  struct axis axis = {.start = start, .step = length / (float)bins, .size = size};
  axis.samples = samples > 0 ? samples : (uint32_t)ceilf(axis.step);
  axis.apart = axis.step / (float)axis.samples;
  return axis;
}

/* The position of a sample between two pixels. */
struct spot {
  size_t low, high;
  float share; /* weight of `high` */
};

static struct spot spot_of(const struct axis *axis, uint32_t bin, uint32_t sample) {
  const float start = axis->step * (float)bin + axis->start;
  const float at = start + axis->apart / 2 + axis->apart * (float)sample;
  const float whole = floorf(at);
  const uint32_t last = axis->size - 1;
  if (!(whole < (float)last)) {
    return (struct spot){last, last, 0.0f};
  }
  return (struct spot){(size_t)whole, (size_t)whole + 1, at - whole};
}

/* The four pixels around a sample, as offsets in elements, and their weights. */
struct corners {
  size_t at[4];
  float weights[4];
};

static struct corners corners_of(const struct np_rois *rois, const struct spot *y,
                                 const struct spot *x) {
  const float top = 1.0f - y->share;
  const float left = 1.0f - x->share;
  const size_t depth = rois->depth;
  const size_t upper = y->low * rois->width;
  const size_t lower = y->high * rois->width;
  return (struct corners){{(upper + x->low) * depth, (upper + x->high) * depth,
                           (lower + x->low) * depth, (lower + x->high) * depth},
                          {left * top, x->share * top, left * y->share, x->share * y->share}};
}

static void add_floats(const float *image, const struct corners *corners, size_t depth,
                       float *sums) {
  for (size_t k = 0; k < depth; k++) {
    float sample = 0.0f;
    for (size_t c = 0; c < 4; c++) {
      sample += corners->weights[c] * image[corners->at[c] + k];
    }
    sums[k] += sample;
  }
}

/* Weights are of 8 bits: 255 is 1. */
static void add_quants(const struct np_operand *operand, const unsigned char *image,
                       const struct corners *corners, size_t depth, int64_t *sums) {
  int32_t weights[4];
  for (size_t c = 0; c < 4; c++) {
    weights[c] = (int32_t)roundf(corners->weights[c] / (1.0f / 255.0f));
  }
  for (size_t k = 0; k < depth; k++) {
    for (size_t c = 0; c < 4; c++) {
      const int32_t q = np_q_read(operand->type, image, corners->at[c] + k);
      sums[k] += (int64_t)weights[c] * (q - operand->zero_point);
    }
  }
}

/* Stores the averages of a bin of quantised data in `depth` elements of the output from `at` on. */
static void store_quants(const struct np_call *call, const int64_t *sums, float n, size_t depth,
                         size_t at) {
  const struct np_operand *in = np_in_operand(call, DATA);
  const struct np_operand *out = np_out_operand(call, 0);
  const float scale = in->scale * (1.0f / 255.0f) / out->scale / n;
  const struct np_multiplier multiplier = np_multiplier_of((double)scale);
  int32_t low, high;
  np_q_limits(out->type, &low, &high);
  for (size_t k = 0; k < depth; k++) {
    const int64_t q = (int64_t)np_scale(np_saturate(sums[k]), multiplier) + out->zero_point;
    np_q_write(out->type, np_out(call, 0)->room, at + k, np_limit(np_saturate(q), low, high));
  }
}

/* Computes a bin of a region, given by its two axes, into the output from element `at` on. */
static void align_bin(const struct np_call *call, const struct np_rois *rois, uint32_t batch,
                      const struct axis axes[2], const uint32_t bin[2], size_t at) {
  const struct np_tensor *data = np_in(call, DATA);
  const int floats = data->type == NP_TYPE_TENSOR_FLOAT32;
  const size_t image = (size_t)batch * rois->height * rois->width * rois->depth;
  const size_t depth = rois->depth;
  float *out = floats ? (float *)np_out(call, 0)->room + at : NULL;
  int64_t *sums = call->scratch;
  memset(floats ? (void *)out : (void *)sums, 0, depth * (floats ? sizeof *out : sizeof *sums));
  for (uint32_t i = 0; i < axes[0].samples; i++) {
    const struct spot y = spot_of(&axes[0], bin[0], i);
    for (uint32_t j = 0; j < axes[1].samples; j++) {
      const struct spot x = spot_of(&axes[1], bin[1], j);
      const struct corners corners = corners_of(rois, &y, &x);
      if (floats) {
        add_floats((const float *)data->data + image, &corners, depth, out);
      } else {
        add_quants(np_in_operand(call, DATA), (const unsigned char *)data->data + image, &corners,
                   depth, sums);
      }
    }
  }
  const float n = (float)((uint64_t)axes[0].samples * axes[1].samples);
  if (!floats) {
    store_quants(call, sums, n, depth, at);
    return;
  }
  for (size_t k = 0; k < depth; k++) {
    out[k] /= n;
  }
}

static enum np_status align_run(const struct np_call *call) {
  struct align align;
  NP_TRY(read_align(call, &align));
  const struct np_rois *rois = &align.rois;
  size_t at = 0;
  for (uint32_t r = 0; r < rois->n; r++) {
    struct np_roi roi;
    NP_TRY(np_roi_read(call, rois, r, &roi));
    const struct axis axes[2] = {
        axis_of(roi.y1, roi.y2, rois->out_h, align.samples_h, rois->height),
        axis_of(roi.x1, roi.x2, rois->out_w, align.samples_w, rois->width)};
    for (uint32_t i = 0; i < rois->out_h; i++) {
      for (uint32_t j = 0; j < rois->out_w; j++, at += rois->depth) {
        align_bin(call, rois, roi.batch, axes, (const uint32_t[]){i, j}, at);
      }
    }
  }
  return NP_OK;
}

const struct np_kernel np_kernel_ROI_ALIGN = {.types = NP_FLOATS | NP_QUANT8,
                                              .infer = align_infer,
                                              .scratch = align_scratch,
                                              .run = align_run};
