/* RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR. Data in NCHW order are images of one channel. */
#include <math.h>
#include <string.h>

#include "kernels/np_families.h"
#include "plan/np_plan.h"

struct resize {
  size_t images;
  size_t channels;
  uint32_t in_h, in_w;
  uint32_t out_h, out_w;
  int nchw;
  int align_corners;
  int half_pixel_centers;
};

/* Where one output coordinate lies between two input ones. */
struct sample {
  uint32_t low;
  uint32_t high;
  float share; /* of `high`, 0 to 1 */
};

/* One output dimension: a number of pixels, or a scale of the input's. */
static enum np_status read_size(const struct np_call *call, uint32_t input, uint32_t in,
                                uint32_t *out) {
  int32_t number = 0;
  if (call->form->variant == NP_BY_SIZE) {
    NP_TRY(np_read_i32(call, input, &number));
  } else {
    float scale;
    NP_TRY(np_read_f32(call, input, &scale));
    const float size = floorf((float)in * scale);
    number = size >= 1.0f && size < 2147483648.0f ? (int32_t)size : 0;
    if (in == 0 && scale > 0.0f) { /* nothing, however large it is made */
      *out = 0;
      return NP_OK;
    }
  }
  if (number < 1) {
    return np_fail(call, NP_BAD_MODEL, "input %u makes an image of no pixels", input);
  }
  if (in == 0) {
    return np_fail(call, NP_BAD_MODEL, "input 0 has no pixels to make an image of");
  }
  *out = (uint32_t)number;
  return NP_OK;
}

static enum np_status read_resize(const struct np_call *call, struct resize *resize) {
  const struct np_tensor *input = np_in(call, 0);
  memset(resize, 0, sizeof *resize);
  if (!input->known) {
    return NP_MISSING;
  }
  if (input->rank != 4) {
    return np_fail(call, NP_BAD_MODEL, "input 0 has rank %u, wanted 4", input->rank);
  }
  int *const flags[3] = {&resize->nchw, &resize->align_corners, &resize->half_pixel_centers};
  for (uint32_t i = 0; i < 3; i++) {
    if (np_has(call, 3 + i)) {
      NP_TRY(np_read_bool(call, 3 + i, flags[i]));
    }
  }
  if (resize->align_corners && resize->half_pixel_centers) {
    return np_fail(call, NP_BAD_MODEL, "align_corners and half_pixel_centers exclude each other");
  }
  resize->in_h = input->dims[resize->nchw ? 2 : 1];
  resize->in_w = input->dims[resize->nchw ? 3 : 2];
  resize->channels = resize->nchw ? 1 : input->dims[3];
  resize->images = resize->nchw ? (size_t)input->dims[0] * input->dims[1] : input->dims[0];
  NP_TRY(read_size(call, 1, resize->in_w, &resize->out_w));
  return read_size(call, 2, resize->in_h, &resize->out_h);
}

enum np_status np_resize_infer(const struct np_call *call) {
  struct resize resize;
  NP_TRY(read_resize(call, &resize));
  uint32_t dims[4];
  memcpy(dims, np_in(call, 0)->dims, sizeof dims);
  dims[resize.nchw ? 2 : 1] = resize.out_h;
  dims[resize.nchw ? 3 : 2] = resize.out_w;
  return np_set_shape(call, 0, 4, dims);
}

size_t np_resize_scratch(const struct np_call *call) {
  struct resize resize;
  if (read_resize(call, &resize) != NP_OK) {
    return 0;
  }
  return np_times(resize.out_w, sizeof(struct sample));
}

static float scale_of(uint32_t in, uint32_t out, int align_corners) {
  return align_corners && out > 1 ? (float)(in - 1) / (float)(out - 1) : (float)in / (float)out;
}

static struct sample bilinear_sample(const struct resize *resize, uint32_t at, uint32_t in,
                                     uint32_t out) {
  const float scale = scale_of(in, out, resize->align_corners);
  const float place =
      resize->half_pixel_centers ? ((float)at + 0.5f) * scale - 0.5f : (float)at * scale;
  const float low = floorf(place);
  const float top = (float)(in - 1);
  const float high = ceilf(place);
  struct sample sample;
  sample.low = low < 0.0f ? 0 : low > top ? in - 1 : (uint32_t)low;
  sample.high = high < 0.0f ? 0 : high > top ? in - 1 : (uint32_t)high;
  sample.share = place - (float)sample.low;
  return sample;
}

static uint32_t nearest_sample(const struct resize *resize, uint32_t at, uint32_t in,
                               uint32_t out) {
  const float scale = scale_of(in, out, resize->align_corners);
  const float place = ((float)at + (resize->half_pixel_centers ? 0.5f : 0.0f)) * scale;
  const float whole = resize->align_corners ? roundf(place) : floorf(place);
  const float top = (float)(in - 1);
  return whole < 0.0f ? 0 : whole > top ? in - 1 : (uint32_t)whole;
}

static struct sample sample_of(const struct np_call *call, const struct resize *resize, uint32_t at,
                               uint32_t in, uint32_t out) {
  if (call->kernel->extra == NP_RESIZE_BILINEAR) {
    return bilinear_sample(resize, at, in, out);
  }
  const uint32_t nearest = nearest_sample(resize, at, in, out);
  return (struct sample){.low = nearest, .high = nearest, .share = 0.0f};
}

static void mix_pixel(const float *const corners[4], float share_x, float share_y, float *out,
                      size_t channels) {
  const float weights[4] = {(1 - share_y) * (1 - share_x), (1 - share_y) * share_x,
                            share_y * (1 - share_x), share_y * share_x};
  for (size_t c = 0; c < channels; c++) {
    out[c] = corners[0][c] * weights[0] + corners[1][c] * weights[1] + corners[2][c] * weights[2] +
             corners[3][c] * weights[3];
  }
}

enum np_status np_resize_run(const struct np_call *call) {
  struct resize resize;
  NP_TRY(read_resize(call, &resize));
  const size_t n = resize.channels;
  const float *image = np_in(call, 0)->data;
  float *out = np_out(call, 0)->room;
  struct sample *columns = call->scratch;
  if (np_out(call, 0)->elements == 0) {
    return NP_OK;
  }
  const int mixes = call->kernel->extra == NP_RESIZE_BILINEAR;
  for (uint32_t x = 0; x < resize.out_w; x++) {
    columns[x] = sample_of(call, &resize, x, resize.in_w, resize.out_w);
  }
  for (size_t i = 0; i < resize.images; i++) {
    for (uint32_t y = 0; y < resize.out_h; y++) {
      const struct sample row = sample_of(call, &resize, y, resize.in_h, resize.out_h);
      const float *upper = image + (size_t)row.low * resize.in_w * n;
      const float *lower = image + (size_t)row.high * resize.in_w * n;
      for (uint32_t x = 0; x < resize.out_w; x++, out += n) {
        const struct sample column = columns[x];
        if (mixes) {
          const float *const corners[4] = {upper + column.low * n, upper + column.high * n,
                                           lower + column.low * n, lower + column.high * n};
          mix_pixel(corners, column.share, row.share, out, n);
        } else {
          memcpy(out, upper + column.low * n, n * sizeof *out);
        }
      }
    }
    image += (size_t)resize.in_h * resize.in_w * n;
  }
  return NP_OK;
}

const struct np_kernel np_kernel_RESIZE_BILINEAR = {.types = NP_FLOATS,
                                                    .extra = NP_RESIZE_BILINEAR,
                                                    .infer = np_resize_infer,
                                                    .scratch = np_resize_scratch,
                                                    .run = np_resize_run};
const struct np_kernel np_kernel_RESIZE_NEAREST_NEIGHBOR = {.types = NP_FLOATS,
                                                            .extra = NP_RESIZE_NEAREST,
                                                            .infer = np_resize_infer,
                                                            .scratch = np_resize_scratch,
                                                            .run = np_resize_run};
