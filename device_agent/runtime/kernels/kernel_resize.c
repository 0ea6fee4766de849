/* RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR. */
#include <math.h>
#include <string.h>

#include "kernels/np_half.h"
#include "kernels/np_move.h"

enum { BILINEAR, NEAREST };

struct resize {
  uint32_t in_h, in_w;
  uint32_t out_h, out_w;
  int align_corners;
  int half_pixel_centers;
};

/* The position of an output coordinate between two input ones. */
struct sample {
  uint32_t low;
  uint32_t high;
  float share; /* weight of `high`, 0 to 1 */
};

/* Reads a scale, which has the data's type: FLOAT16 if the kernel supports that directly. */
static enum np_status read_scale(const struct np_call *call, uint32_t input, float *scale) {
  if (np_in(call, input)->type != NP_TYPE_FLOAT16) {
    return np_read_f32(call, input, scale);
  }
  uint16_t half;
  if (np_in(call, input)->data == NULL) {
    return NP_MISSING;
  }
  memcpy(&half, np_in(call, input)->data, sizeof half);
  *scale = np_half_to_float(half);
  return NP_OK;
}

/* Reads an output dimension: a number of pixels, or a scale of the input's. */
static enum np_status read_size(const struct np_call *call, uint32_t input, uint32_t in,
                                uint32_t *out) {
  int32_t number = 0;
  if (call->form->variant == NP_BY_SIZE) {
    NP_TRY(np_read_i32(call, input, &number));
  } else {
    float scale = 0.0f;
    NP_TRY(read_scale(call, input, &scale));
    const float size = floorf((float)in * scale);
    number = size >= 1.0f && size < 2147483648.0f ? (int32_t)size : 0;
  }
  if (number < 1) {
    return np_fail(call, NP_BAD_MODEL, "input %u makes an image of no pixels", input);
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
  int *const flags[2] = {&resize->align_corners, &resize->half_pixel_centers};
  for (uint32_t i = 0; i < 2; i++) {
    if (np_has(call, 4 + i)) {
      NP_TRY(np_read_bool(call, 4 + i, flags[i]));
    }
  }
  if (resize->align_corners && resize->half_pixel_centers) {
    return np_fail(call, NP_BAD_MODEL, "align_corners and half_pixel_centers exclude each other");
  }
  resize->in_h = input->dims[1];
  resize->in_w = input->dims[2];
  NP_TRY(read_size(call, 1, resize->in_w, &resize->out_w));
  NP_TRY(read_size(call, 2, resize->in_h, &resize->out_h));
  if (resize->in_h == 0 || resize->in_w == 0) {
    return np_fail(call, NP_BAD_MODEL, "input 0 has no pixels to make an image of");
  }
  return NP_OK;
}

static enum np_status resize_infer(const struct np_call *call) {
  struct resize resize;
  NP_TRY(np_q_same_as_input(call, 0, 0));
  NP_TRY(read_resize(call, &resize));
  const uint32_t *in = np_in(call, 0)->dims;
  const uint32_t dims[4] = {in[0], resize.out_h, resize.out_w, in[3]};
  return np_set_shape(call, 0, 4, dims);
}

static size_t resize_scratch(const struct np_call *call) {
  struct resize resize;
  if (read_resize(call, &resize) != NP_OK) {
    return 0;
  }
  return np_mul_saturated(resize.out_w, sizeof(struct sample));
}

static float scale_of(uint32_t in, uint32_t out, int align_corners) {
  return align_corners && out > 1 ? (float)(in - 1) / (float)(out - 1) : (float)in / (float)out;
}

/* Converts a whole number to an index below `in`; compares integers, since floats above 2^24 are
 * not exact. */
static uint32_t index_of(float whole, uint32_t in) {
  const uint64_t index = whole > 0.0f ? (uint64_t)whole : 0;
  return index < in ? (uint32_t)index : in - 1;
}

static struct sample bilinear_sample(const struct resize *resize, uint32_t at, uint32_t in,
                                     uint32_t out) {
  const float scale = scale_of(in, out, resize->align_corners);
  const float place =
      resize->half_pixel_centers ? ((float)at + 0.5f) * scale - 0.5f : (float)at * scale;
  struct sample sample;
  sample.low = index_of(floorf(place), in);
  sample.high = index_of(ceilf(place), in);
  sample.share = place - (float)sample.low;
  return sample;
}

static uint32_t nearest_sample(const struct resize *resize, uint32_t at, uint32_t in,
                               uint32_t out) {
  const float scale = scale_of(in, out, resize->align_corners);
  const float place = ((float)at + (resize->half_pixel_centers ? 0.5f : 0.0f)) * scale;
  return index_of(resize->align_corners ? roundf(place) : floorf(place), in);
}

static struct sample sample_of(const struct np_call *call, const struct resize *resize, uint32_t at,
                               uint32_t in, uint32_t out) {
  if (call->kernel->extra == BILINEAR) {
    return bilinear_sample(resize, at, in, out);
  }
  const uint32_t nearest = nearest_sample(resize, at, in, out);
  return (struct sample){.low = nearest, .high = nearest, .share = 0.0f};
}

/* The four pixels around a position, and the shares of the right and the lower ones. */
struct corners {
  const void *pixels[4];
  float share_x;
  float share_y;
};

static void mix_floats(const struct corners *at, float *out, size_t channels) {
  const float *const *pixels = (const float *const *)at->pixels;
  const float weights[4] = {(1 - at->share_y) * (1 - at->share_x), (1 - at->share_y) * at->share_x,
                            at->share_y * (1 - at->share_x), at->share_y * at->share_x};
  for (size_t c = 0; c < channels; c++) {
    out[c] = pixels[0][c] * weights[0] + pixels[1][c] * weights[1] + pixels[2][c] * weights[2] +
             pixels[3][c] * weights[3];
  }
}

/* Mixes quantised values, truncating the result like Android's reference. */
static void mix_quantised(int32_t type, const struct corners *at, void *out, size_t channels) {
  int32_t low, high;
  np_q_limits(type, &low, &high);
  for (size_t c = 0; c < channels; c++) {
    float q[4];
    for (uint32_t i = 0; i < 4; i++) {
      q[i] = (float)np_q_read(type, at->pixels[i], c);
    }
    const float mixed = q[0] * (1 - at->share_y) * (1 - at->share_x) +
                        q[2] * at->share_y * (1 - at->share_x) +
                        q[1] * (1 - at->share_y) * at->share_x + q[3] * at->share_y * at->share_x;
    np_q_write(type, out, c, np_limit((int32_t)mixed, low, high));
  }
}

/* Computes one row of an image from the two input rows around it. */
static void resize_row(const struct np_call *call, const struct resize *resize, size_t channels,
                       const unsigned char *upper, const unsigned char *lower, float share_y,
                       unsigned char *out) {
  const int32_t type = np_in(call, 0)->type;
  const size_t bytes = channels * np_type_bytes(type);
  const struct sample *columns = call->scratch;
  for (uint32_t x = 0; x < resize->out_w; x++, out += bytes) {
    const size_t left = columns[x].low * bytes;
    const size_t right = columns[x].high * bytes;
    const struct corners corners = {
        {upper + left, upper + right, lower + left, lower + right}, columns[x].share, share_y};
    if (call->kernel->extra == NEAREST) {
      memcpy(out, upper + left, bytes);
    } else if (type == NP_TYPE_TENSOR_FLOAT32) {
      mix_floats(&corners, (float *)(void *)out, channels);
    } else {
      mix_quantised(type, &corners, out, channels);
    }
  }
}

static enum np_status resize_run(const struct np_call *call) {
  struct resize resize;
  NP_TRY(read_resize(call, &resize));
  const struct np_tensor *input = np_in(call, 0);
  const size_t channels = input->dims[3];
  const unsigned char *image = input->data;
  unsigned char *out = np_out(call, 0)->room;
  struct sample *columns = call->scratch;
  if (np_out(call, 0)->elements == 0) {
    return NP_OK;
  }
  const size_t row_bytes = resize.in_w * channels * np_type_bytes(input->type);
  const size_t out_bytes = resize.out_w * channels * np_type_bytes(input->type);
  for (uint32_t x = 0; x < resize.out_w; x++) {
    columns[x] = sample_of(call, &resize, x, resize.in_w, resize.out_w);
  }
  for (uint32_t i = 0; i < input->dims[0]; i++, image += resize.in_h * row_bytes) {
    for (uint32_t y = 0; y < resize.out_h; y++, out += out_bytes) {
      const struct sample row = sample_of(call, &resize, y, resize.in_h, resize.out_h);
      resize_row(call, &resize, channels, image + row.low * row_bytes, image + row.high * row_bytes,
                 row.share, out);
    }
  }
  return NP_OK;
}

const struct np_kernel np_kernel_RESIZE_BILINEAR = {.types = NP_FLOATS | NP_QUANT8,
                                                    .extra = BILINEAR,
                                                    .infer = resize_infer,
                                                    .scratch = resize_scratch,
                                                    .run = resize_run};

const struct np_kernel np_kernel_RESIZE_NEAREST_NEIGHBOR = {.types = NP_MOVES,
                                                            .extra = NEAREST,
                                                            .infer = resize_infer,
                                                            .scratch = resize_scratch,
                                                            .run = resize_run};
