/* CONV_2D and GROUPED_CONV_2D of quantised data: multiply patches, less the zero point, as rows of
 * a matrix of int16, by the weights less theirs. */
#include <stdlib.h>
#include <string.h>

#include "kernels/np_conv.h"
#include "kernels/np_gemm.h"
#include "kernels/np_qgemm.h"
#include "plan/np_plan.h"

/* Elements of patches made at a time: 128 KiB. */
#define PATCH_ELEMENTS 65536u

static size_t packed_bytes(size_t groups, size_t group_out, size_t depth) {
  return np_mul_saturated(np_mul_saturated(groups, np_q_packed(group_out, depth)), sizeof(int16_t));
}

static void pack(const struct np_call *call, size_t groups, size_t group_out, size_t depth,
                 int16_t *packed) {
  const unsigned char *weights = np_in(call, 1)->data;
  for (size_t g = 0; g < groups; g++) {
    np_q_pack(np_in_operand(call, 1), weights + g * group_out * depth, group_out, depth,
              packed + g * np_q_packed(group_out, depth));
  }
}

enum np_status np_conv_quant_prepare(const struct np_call *call, uint32_t groups, void **state) {
  const struct np_tensor *weights = np_in(call, 1);
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
  size_t multipliers;
  size_t packed; /* weights, if they are not constant */
  size_t patches;
  size_t sums;
  size_t total;
};

/* Output pixels computed at a time. */
static size_t block_rows(const struct np_conv *conv) {
  const size_t pixels = (size_t)conv->window.out_h * conv->window.out_w;
  const size_t row = np_q_row(conv->depth);
  const size_t rows = row == 0 ? 1 : PATCH_ELEMENTS / row;
  return rows < 2 ? 2 : rows > pixels && pixels >= 2 ? pixels : rows;
}

static struct parts find_parts(const struct np_call *call, const struct np_conv *conv) {
  const size_t rows = block_rows(conv);
  struct parts parts = {0};
  size_t at = np_align(np_mul_saturated(conv->out_channels, sizeof(struct np_multiplier)));
  parts.packed = at;
  if (call->state == NULL) {
    at = np_add_saturated(at, np_align(packed_bytes(conv->groups, conv->group_out, conv->depth)));
  }
  parts.patches = at;
  at = np_add_saturated(at, np_align(np_mul_saturated(np_mul_saturated(rows, np_q_row(conv->depth)),
                                                      sizeof(int16_t))));
  parts.sums = at;
  parts.total = np_add_saturated(
      at, np_align(np_mul_saturated(np_mul_saturated(rows, conv->group_out), sizeof(int32_t))));
  return parts;
}

size_t np_conv_quant_scratch(const struct np_call *call, const struct np_conv *conv) {
  return find_parts(call, conv).total;
}

/* Writes the patch of output pixel (y, x) for the channels from `channel` on: [filter_h, filter_w,
 * group_in], zeros beyond the edge and after the last element. */
static void make_patch(const struct np_conv *conv, const struct np_operand *operand,
                       const unsigned char *image, uint32_t y, uint32_t x, size_t channel,
                       int16_t *patch) {
  const struct np_window *w = &conv->window;
  const size_t n = conv->group_in;
  uint32_t first_y, last_y, first_x, last_x;
  np_window_taps(y, w->stride_h, w->pad_top, w->dilation_h, w->filter_h, w->height, &first_y,
                 &last_y);
  np_window_taps(x, w->stride_w, w->pad_left, w->dilation_w, w->filter_w, w->width, &first_x,
                 &last_x);
  const int is_whole =
      last_y - first_y == w->filter_h && last_x - first_x == w->filter_w && first_x != last_x;
  if (is_whole) {
    memset(patch + conv->depth, 0, (np_q_row(conv->depth) - conv->depth) * sizeof *patch);
  } else {
    memset(patch, 0, np_q_row(conv->depth) * sizeof *patch);
  }
  if (first_x == last_x) {
    return;
  }
  for (uint32_t ky = first_y; ky < last_y; ky++) {
    const size_t iy = (size_t)y * w->stride_h + (size_t)ky * w->dilation_h - w->pad_top;
    const size_t ix = (size_t)x * w->stride_w + (size_t)first_x * w->dilation_w - w->pad_left;
    const unsigned char *from = image + (iy * w->width + ix) * w->channels + channel;
    int16_t *to = patch + ((size_t)ky * w->filter_w + first_x) * n;
    if (w->dilation_w == 1 && n == w->channels) {
      np_q_widen(operand, from, (last_x - first_x) * n, to);
      continue;
    }
    for (uint32_t kx = first_x; kx < last_x; kx++, to += n) {
      np_q_widen(operand, from, n, to);
      from += (size_t)w->dilation_w * w->channels;
    }
  }
}

/* Computes output pixels `start` to start + rows of one image and one group. */
static void run_block(const struct np_call *call, const struct np_conv *conv,
                      const struct parts *parts, const struct np_q_finish *finish,
                      const int16_t *packed, const unsigned char *image, size_t start, size_t rows,
                      size_t group, unsigned char *out) {
  unsigned char *scratch = call->scratch;
  int16_t *patches = (int16_t *)(void *)(scratch + parts->patches);
  int32_t *sums = (int32_t *)(void *)(scratch + parts->sums);
  const size_t channel = group * conv->group_out;
  struct np_q_finish part = *finish;
  part.bias += channel;
  part.multipliers += channel;
  for (size_t r = 0; r < rows; r++) {
    make_patch(conv, np_in_operand(call, 0), image, (uint32_t)((start + r) / conv->window.out_w),
               (uint32_t)((start + r) % conv->window.out_w), group * conv->group_in,
               patches + r * np_q_row(conv->depth));
  }
  np_q_gemm(rows, conv->group_out, conv->depth, patches,
            packed + group * np_q_packed(conv->group_out, conv->depth), sums);
  for (size_t r = 0; r < rows; r++) {
    np_q_finish_row(&part, conv->group_out, sums + r * conv->group_out,
                    out + (start + r) * conv->out_channels + channel);
  }
}

enum np_status np_conv_quant_run(const struct np_call *call, const struct np_conv *conv) {
  const struct np_window *w = &conv->window;
  const struct parts parts = find_parts(call, conv);
  unsigned char *scratch = call->scratch;
  struct np_multiplier *multipliers = (struct np_multiplier *)(void *)(scratch + parts.multipliers);
  struct np_q_finish finish = {.bias = np_in(call, 2)->data, .multipliers = multipliers};
  int32_t fuse;
  NP_TRY(np_read_i32(call, conv->fuse, &fuse));
  NP_TRY(np_q_finish_of(call, fuse, &finish));
  if (np_out(call, 0)->elements == 0) {
    return NP_OK;
  }
  np_q_multipliers(call, conv->out_channels, multipliers);
  const int16_t *packed = call->state;
  if (packed == NULL) {
    int16_t *made = (int16_t *)(void *)(scratch + parts.packed);
    pack(call, conv->groups, conv->group_out, conv->depth, made);
    packed = made;
  }
  const unsigned char *image = np_in(call, 0)->data;
  unsigned char *out = np_out(call, 0)->room;
  const size_t pixels = (size_t)w->out_h * w->out_w;
  const size_t block = block_rows(conv);
  for (size_t b = 0; b < w->batches; b++) {
    for (size_t start = 0; start < pixels; start += block) {
      const size_t rows = pixels - start < block ? pixels - start : block;
      for (size_t g = 0; g < conv->groups; g++) {
        run_block(call, conv, &parts, &finish, packed, image, start, rows, g, out);
      }
    }
    image += (size_t)w->height * w->width * w->channels;
    out += pixels * conv->out_channels;
  }
  return NP_OK;
}
