/* CONV_2D and GROUPED_CONV_2D: multiply patches of the image, as rows of a matrix, by the weights.
 *
 * A 1 x 1 filter with stride 1 needs no patches, since the image itself is the matrix. */
#include <stdlib.h>
#include <string.h>

#include "kernels/np_conv.h"
#include "kernels/np_gemm.h"
#include "kernels/np_qgemm.h"
#include "plan/np_plan.h"

/* Floats of patches made at a time: they stay in the second-level cache. */
#define PATCH_FLOATS 65536u

/* After paddings and strides, CONV_2D has fuse, layout, dilations; GROUPED_CONV_2D groups, fuse,
 * layout. */
enum np_status np_conv_read(const struct np_call *call, struct np_conv *conv) {
  const struct np_tensor *weights = np_in(call, 1);
  const struct np_tensor *bias = np_in(call, 2);
  const uint32_t next = 3 + np_window_inputs(call);
  const int grouped = call->kernel->extra == NP_CONV_GROUPS;
  memset(conv, 0, sizeof *conv);
  struct np_window *window = &conv->window;
  if (!weights->known || !bias->known) {
    return NP_MISSING;
  }
  int32_t groups = 1;
  if (grouped) {
    NP_TRY(np_read_i32(call, next, &groups));
  }
  if (groups < 1) {
    return np_fail(call, NP_BAD_MODEL, "%d groups, wanted at least 1", groups);
  }
  conv->fuse = next + (grouped ? 1u : 0u);
  NP_TRY(
      np_window_dilations(call, next + 2, window)); /* GROUPED_CONV_2D's layout is its last input */
  if (weights->rank != 4) {
    return np_fail(call, NP_BAD_MODEL, "weights (input 1) have rank %u, wanted 4", weights->rank);
  }
  window->filter_h = weights->dims[1];
  window->filter_w = weights->dims[2];
  NP_TRY(np_window_fit(call, 3, window));
  conv->groups = (uint32_t)groups;
  conv->out_channels = weights->dims[0];
  conv->group_in = weights->dims[3];
  conv->group_out = conv->out_channels / conv->groups;
  conv->depth =
      np_mul_saturated(np_mul_saturated(window->filter_h, window->filter_w), conv->group_in);
  if (np_mul_saturated(conv->group_in, conv->groups) != window->channels) {
    return np_fail(call, NP_BAD_MODEL, "weights take %u channels in %u groups, the input has %u",
                   conv->group_in, conv->groups, window->channels);
  }
  if (conv->group_out == 0 || conv->out_channels % conv->groups != 0) {
    return np_fail(call, NP_BAD_MODEL, "%u output channels do not divide into %u groups",
                   conv->out_channels, conv->groups);
  }
  if (bias->rank != 1 || bias->dims[0] != conv->out_channels) {
    return np_fail(call, NP_BAD_MODEL, "bias (input 2) has %zu elements of rank %u, wanted [%u]",
                   bias->elements, bias->rank, conv->out_channels);
  }
  return np_q_check_weights(call, 0);
}

static enum np_status infer(const struct np_call *call) {
  struct np_conv conv;
  NP_TRY(np_conv_read(call, &conv));
  return np_window_shape(call, &conv.window, conv.out_channels);
}

/* Returns the number of groups for prepare: 0 if it cannot pack, because weights, bias or groups
 * are not constant or do not fit. */
static uint32_t constant_groups(const struct np_call *call) {
  const struct np_tensor *weights = np_in(call, 1);
  const struct np_tensor *bias = np_in(call, 2);
  int32_t groups = 1;
  if (call->kernel->extra == NP_CONV_GROUPS &&
      np_read_i32(call, 3 + np_window_inputs(call), &groups) != NP_OK) {
    return 0;
  }
  if (weights->data == NULL || bias->data == NULL || weights->rank != 4 || groups < 1 ||
      weights->elements == 0 || weights->dims[0] % (uint32_t)groups != 0 ||
      bias->elements != weights->dims[0]) {
    return 0;
  }
  return (uint32_t)groups;
}

static size_t packed_bytes(size_t groups, size_t group_out, size_t depth) {
  return np_mul_saturated(
      np_mul_saturated(groups, np_gemm_packed_floats(np_gemm_engine(), group_out, depth)),
      sizeof(float));
}

static void pack(const struct np_call *call, size_t groups, size_t group_out, size_t depth,
                 float *packed) {
  const struct np_gemm_engine *engine = np_gemm_engine();
  const float *weights = np_in(call, 1)->data;
  const float *bias = np_in(call, 2)->data;
  const size_t each = np_gemm_packed_floats(engine, group_out, depth);
  for (size_t g = 0; g < groups; g++) {
    np_gemm_pack(engine, group_out, depth, weights + g * group_out * depth, bias + g * group_out,
                 packed + g * each);
  }
}

static enum np_status prepare(const struct np_call *call, void **state) {
  const struct np_tensor *weights = np_in(call, 1);
  const uint32_t groups = constant_groups(call);
  if (groups == 0) {
    return NP_OK; /* packed, or refused, at each run */
  }
  if (np_q_data(call)) {
    return np_conv_quant_prepare(call, groups, state);
  }
  const size_t n = weights->dims[0] / groups;
  const size_t depth = weights->elements / weights->dims[0];
  const size_t bytes = packed_bytes(groups, n, depth);
  *state = bytes == SIZE_MAX ? NULL : malloc(bytes);
  if (*state == NULL) {
    return np_fail(call, NP_NO_MEMORY, "no memory for %zu bytes of packed weights", bytes);
  }
  pack(call, groups, n, depth, *state);
  return NP_OK;
}

/* Offsets of the parts of the working memory. */
struct parts {
  size_t packed;  /* weights, if they are not constant */
  size_t patches; /* a block of patches */
  size_t total;
};

/* Returns whether patches would only copy the image. */
static int is_pointwise(const struct np_conv *conv) {
  const struct np_window *w = &conv->window;
  return w->filter_h == 1 && w->filter_w == 1 && w->stride_h == 1 && w->stride_w == 1 &&
         w->out_h == w->height && w->out_w == w->width;
}

static size_t patch_rows(const struct np_conv *conv) {
  const size_t pixels = (size_t)conv->window.out_h * conv->window.out_w;
  const size_t rows = conv->depth == 0 ? pixels : PATCH_FLOATS / conv->depth;
  const size_t least = NP_GEMM_MAX_HEIGHT;
  return rows < least ? least : rows > pixels ? (pixels > least ? pixels : least) : rows;
}

static struct parts find_parts(const struct np_call *call, const struct np_conv *conv) {
  struct parts parts = {0};
  size_t at = 0;
  parts.packed = at;
  if (call->state == NULL) {
    at = np_add_saturated(at, np_align(packed_bytes(conv->groups, conv->group_out, conv->depth)));
  }
  parts.patches = at;
  if (!is_pointwise(conv)) {
    at = np_add_saturated(at, np_align(np_mul_saturated(
                                  np_mul_saturated(patch_rows(conv), conv->depth), sizeof(float))));
  }
  parts.total = at;
  return parts;
}

static size_t scratch(const struct np_call *call) {
  struct np_conv conv;
  if (np_conv_read(call, &conv) != NP_OK) {
    return 0;
  }
  return np_q_data(call) ? np_conv_quant_scratch(call, &conv) : find_parts(call, &conv).total;
}

/* Writes the patch of output pixel (y, x) for the channels from `channel` on: [filter_h, filter_w,
 * group_in], zeros beyond the edge. */
static void make_patch(const struct np_conv *conv, const float *image, uint32_t y, uint32_t x,
                       size_t channel, float *patch) {
  const struct np_window *w = &conv->window;
  const size_t n = conv->group_in;
  const size_t row_floats = w->filter_w * n;
  uint32_t first_y, last_y, first_x, last_x;
  np_window_taps(y, w->stride_h, w->pad_top, w->dilation_h, w->filter_h, w->height, &first_y,
                 &last_y);
  np_window_taps(x, w->stride_w, w->pad_left, w->dilation_w, w->filter_w, w->width, &first_x,
                 &last_x);
  if (first_x == last_x) {
    last_y = first_y;
  }
  memset(patch, 0, first_y * row_floats * sizeof *patch);
  for (uint32_t ky = first_y; ky < last_y; ky++) {
    const size_t iy = (size_t)y * w->stride_h + (size_t)ky * w->dilation_h - w->pad_top;
    float *to = patch + ky * row_floats;
    memset(to, 0, first_x * n * sizeof *to);
    const size_t ix = (size_t)x * w->stride_w + (size_t)first_x * w->dilation_w - w->pad_left;
    const float *from = image + (iy * w->width + ix) * w->channels + channel;
    if (w->dilation_w == 1 && n == w->channels) {
      memcpy(to + first_x * n, from, (last_x - first_x) * n * sizeof *to);
    } else {
      for (uint32_t kx = first_x; kx < last_x; kx++) {
        memcpy(to + kx * n, from, n * sizeof *to);
        from += (size_t)w->dilation_w * w->channels;
      }
    }
    memset(to + last_x * n, 0, (w->filter_w - last_x) * n * sizeof *to);
  }
  memset(patch + last_y * row_floats, 0, (w->filter_h - last_y) * row_floats * sizeof *patch);
}

/* Computes the output pixels of image `b`, a block of patches at a time. */
static void run_image(const struct np_call *call, const struct np_conv *conv, size_t b,
                      const float *packed, float *patches, float low, float high) {
  const struct np_window *w = &conv->window;
  const struct np_gemm_engine *engine = np_gemm_engine();
  const size_t each = np_gemm_packed_floats(engine, conv->group_out, conv->depth);
  const size_t pixels = (size_t)w->out_h * w->out_w;
  const size_t block = patch_rows(conv);
  const float *image = (const float *)np_in(call, 0)->data + b * w->height * w->width * w->channels;
  float *output = (float *)np_out(call, 0)->room + b * pixels * conv->out_channels;
  for (size_t start = 0; start < pixels; start += block) {
    const size_t rows = pixels - start < block ? pixels - start : block;
    for (size_t g = 0; g < conv->groups; g++) {
      for (size_t r = 0; r < rows; r++) {
        make_patch(conv, image, (uint32_t)((start + r) / w->out_w),
                   (uint32_t)((start + r) % w->out_w), g * conv->group_in,
                   patches + r * conv->depth);
      }
      np_gemm(engine, rows, conv->group_out, conv->depth, patches, conv->depth, packed + g * each,
              output + start * conv->out_channels + g * conv->group_out, conv->out_channels, low,
              high);
    }
  }
}

static enum np_status run(const struct np_call *call) {
  struct np_conv conv;
  int32_t fuse;
  float low, high;
  NP_TRY(np_conv_read(call, &conv));
  if (np_q_data(call)) {
    return np_conv_quant_run(call, &conv);
  }
  NP_TRY(np_read_i32(call, conv.fuse, &fuse));
  NP_TRY(np_fuse_limits(call, fuse, &low, &high));
  const struct np_gemm_engine *engine = np_gemm_engine();
  const struct np_window *w = &conv.window;
  const struct parts parts = find_parts(call, &conv);
  unsigned char *room = call->scratch;
  if (np_out(call, 0)->elements == 0) {
    return NP_OK;
  }
  const float *packed = call->state;
  if (packed == NULL) {
    pack(call, conv.groups, conv.group_out, conv.depth, (float *)(void *)(room + parts.packed));
    packed = (const float *)(void *)(room + parts.packed);
  }
  if (!is_pointwise(&conv)) {
    for (size_t b = 0; b < w->batches; b++) {
      run_image(call, &conv, b, packed, (float *)(void *)(room + parts.patches), low, high);
    }
    return NP_OK;
  }
  const size_t each = np_gemm_packed_floats(engine, conv.group_out, conv.depth);
  for (size_t g = 0; g < conv.groups; g++) {
    np_gemm(engine, (size_t)w->batches * w->out_h * w->out_w, conv.group_out, conv.depth,
            (const float *)np_in(call, 0)->data + g * conv.group_in, w->channels, packed + g * each,
            (float *)np_out(call, 0)->room + g * conv.group_out, conv.out_channels, low, high);
  }
  return NP_OK;
}

const struct np_kernel np_kernel_CONV_2D = {.types = NP_FLOATS | NP_QUANT8,
                                            .extra = NP_CONV_ONE_GROUP,
                                            .infer = infer,
                                            .prepare = prepare,
                                            .scratch = scratch,
                                            .run = run};
const struct np_kernel np_kernel_GROUPED_CONV_2D = {.types = NP_FLOATS | NP_QUANT8,
                                                    .extra = NP_CONV_GROUPS,
                                                    .infer = infer,
                                                    .prepare = prepare,
                                                    .scratch = scratch,
                                                    .run = run};
