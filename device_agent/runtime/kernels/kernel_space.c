/* SPACE_TO_DEPTH, DEPTH_TO_SPACE, SPACE_TO_BATCH_ND and BATCH_TO_SPACE_ND: blocks of an image [N,
 * H, W, C] moved to other axes. Each copies a view; a block's rows and columns become the slower
 * part of the new axis, in this order. */
#include <string.h>

#include "kernels/np_move.h"

struct block {
  uint32_t h;
  uint32_t w;
};

static enum np_status check_image(const struct np_call *call) {
  NP_TRY(np_q_same_as_input(call, 0, 0));
  if (!np_in(call, 0)->known) {
    return NP_MISSING;
  }
  if (np_in(call, 0)->rank != 4) {
    return np_fail(call, NP_BAD_MODEL, "input 0 has rank %u, wanted 4", np_in(call, 0)->rank);
  }
  return NP_OK;
}

/* Reads input 1, a scalar: a square block. */
static enum np_status read_square(const struct np_call *call, struct block *block) {
  int32_t side;
  NP_TRY(check_image(call));
  NP_TRY(np_read_i32(call, 1, &side));
  if (side < 1) {
    return np_fail(call, NP_BAD_MODEL, "a block of %d, wanted 1 or more", side);
  }
  *block = (struct block){(uint32_t)side, (uint32_t)side};
  return NP_OK;
}

/* Reads input 1, a list of height and width. */
static enum np_status read_block(const struct np_call *call, struct block *block) {
  const int32_t *sides;
  size_t n;
  NP_TRY(check_image(call));
  NP_TRY(np_read_list(call, 1, &sides, &n));
  if (n != 2 || sides[0] < 1 || sides[1] < 1) {
    return np_fail(call, NP_BAD_MODEL, "%zu sides of a block, wanted 2 of 1 or more", n);
  }
  *block = (struct block){(uint32_t)sides[0], (uint32_t)sides[1]};
  return NP_OK;
}

static enum np_status divide(const struct np_call *call, const char *what, uint32_t dim,
                             uint64_t block, uint32_t *quotient) {
  if (dim % block != 0) {
    return np_fail(call, NP_BAD_MODEL, "%s of %u, wanted a multiple of %llu", what, dim,
                   (unsigned long long)block);
  }
  *quotient = (uint32_t)(dim / block);
  return NP_OK;
}

static uint64_t area(struct block block) { return (uint64_t)block.h * block.w; }

/* ---- SPACE_TO_DEPTH: depth = (row of the block, column of the block, channel) ---- */

static enum np_status space_to_depth_infer(const struct np_call *call) {
  struct block block = {1, 1};
  NP_TRY(read_square(call, &block));
  uint32_t dims[4];
  memcpy(dims, np_in(call, 0)->dims, sizeof dims);
  NP_TRY(divide(call, "a height", dims[1], block.h, &dims[1]));
  NP_TRY(divide(call, "a width", dims[2], block.w, &dims[2]));
  NP_TRY(np_multiply_dim(call, dims[3], area(block), &dims[3]));
  return np_set_shape(call, 0, 4, dims);
}

static enum np_status space_to_depth_run(const struct np_call *call) {
  struct block block = {1, 1};
  NP_TRY(read_square(call, &block));
  const struct np_tensor *input = np_in(call, 0);
  const struct np_tensor *output = np_out(call, 0);
  ptrdiff_t s[4];
  if (output->elements == 0) {
    return NP_OK;
  }
  np_row_major(4, input->dims, s);
  const uint32_t dims[6] = {output->dims[0], output->dims[1], output->dims[2],
                            block.h,         block.w,         input->dims[3]};
  const ptrdiff_t steps[6] = {
      s[0], s[1] * (ptrdiff_t)block.h, s[2] * (ptrdiff_t)block.w, s[1], s[2], 1};
  np_copy_view(input, output->room, 6, dims, steps, 0);
  return NP_OK;
}

/* ---- DEPTH_TO_SPACE: the reverse ---- */

static enum np_status depth_to_space_infer(const struct np_call *call) {
  struct block block = {1, 1};
  NP_TRY(read_square(call, &block));
  uint32_t dims[4];
  memcpy(dims, np_in(call, 0)->dims, sizeof dims);
  NP_TRY(np_multiply_dim(call, dims[1], block.h, &dims[1]));
  NP_TRY(np_multiply_dim(call, dims[2], block.w, &dims[2]));
  NP_TRY(divide(call, "a depth", dims[3], area(block), &dims[3]));
  return np_set_shape(call, 0, 4, dims);
}

static enum np_status depth_to_space_run(const struct np_call *call) {
  struct block block = {1, 1};
  NP_TRY(read_square(call, &block));
  const struct np_tensor *input = np_in(call, 0);
  const struct np_tensor *output = np_out(call, 0);
  ptrdiff_t s[4];
  if (output->elements == 0) {
    return NP_OK;
  }
  np_row_major(4, input->dims, s);
  const ptrdiff_t depth = (ptrdiff_t)output->dims[3];
  const uint32_t dims[6] = {input->dims[0], input->dims[1], block.h,
                            input->dims[2], block.w,        output->dims[3]};
  const ptrdiff_t steps[6] = {s[0], s[1], (ptrdiff_t)block.w * depth, s[2], depth, 1};
  np_copy_view(input, output->room, 6, dims, steps, 0);
  return NP_OK;
}

/* ---- BATCH_TO_SPACE_ND: batch = (row of the block, column of the block, image) ---- */

static enum np_status batch_to_space_infer(const struct np_call *call) {
  struct block block = {1, 1};
  NP_TRY(read_block(call, &block));
  uint32_t dims[4];
  memcpy(dims, np_in(call, 0)->dims, sizeof dims);
  NP_TRY(divide(call, "a batch", dims[0], area(block), &dims[0]));
  NP_TRY(np_multiply_dim(call, dims[1], block.h, &dims[1]));
  NP_TRY(np_multiply_dim(call, dims[2], block.w, &dims[2]));
  return np_set_shape(call, 0, 4, dims);
}

static enum np_status batch_to_space_run(const struct np_call *call) {
  struct block block = {1, 1};
  NP_TRY(read_block(call, &block));
  const struct np_tensor *input = np_in(call, 0);
  const struct np_tensor *output = np_out(call, 0);
  ptrdiff_t s[4];
  if (output->elements == 0) {
    return NP_OK;
  }
  np_row_major(4, input->dims, s);
  const ptrdiff_t place = s[0] * (ptrdiff_t)output->dims[0]; /* all images at one position of the
                                                                blocks */
  const uint32_t dims[6] = {output->dims[0], input->dims[1], block.h,
                            input->dims[2],  block.w,        input->dims[3]};
  const ptrdiff_t steps[6] = {s[0], s[1], place * (ptrdiff_t)block.w, s[2], place, 1};
  np_copy_view(input, output->room, 6, dims, steps, 0);
  return NP_OK;
}

/* ---- SPACE_TO_BATCH_ND: input, block, paddings [2, 2] ---- */

static enum np_status read_frame(const struct np_call *call, struct block *block,
                                 const int32_t **paddings) {
  size_t n;
  NP_TRY(read_block(call, block));
  NP_TRY(np_read_list(call, 2, paddings, &n));
  if (n != 4) {
    return np_fail(call, NP_BAD_MODEL, "%zu paddings, wanted 4", n);
  }
  return NP_OK;
}

static enum np_status space_to_batch_infer(const struct np_call *call) {
  struct block block = {1, 1};
  const int32_t *paddings;
  NP_TRY(read_frame(call, &block, &paddings));
  uint32_t dims[4];
  memcpy(dims, np_in(call, 0)->dims, sizeof dims);
  for (uint32_t i = 0; i < 2; i++) {
    const int32_t before = paddings[2 * i];
    const int32_t after = paddings[2 * i + 1];
    const uint64_t dim = (uint64_t)dims[1 + i] + (uint32_t)before + (uint32_t)after;
    if (before < 0 || after < 0 || dim > UINT32_MAX) {
      return np_fail(call, NP_BAD_MODEL, "paddings %d and %d, wanted 0 or more", before, after);
    }
    NP_TRY(divide(call, i == 0 ? "a padded height" : "a padded width", (uint32_t)dim,
                  i == 0 ? block.h : block.w, &dims[1 + i]));
  }
  NP_TRY(np_multiply_dim(call, dims[0], area(block), &dims[0]));
  return np_set_shape(call, 0, 4, dims);
}

/* Finds the positions along one axis of the output that contain values of the input: those at `at`
 * of each block of `block`, after `before` positions of padding. */
struct range {
  uint32_t first;  /* in the output */
  uint32_t n;      /* how many; 0 for none */
  uint32_t source; /* in the input, of the first */
};

static struct range inside(uint32_t dim, uint32_t before, uint32_t block, uint32_t at) {
  struct range range = {0, 0, 0};
  const uint64_t end = (uint64_t)before + dim; /* in the padded image */
  range.first = before > at ? (before - at + block - 1) / block : 0;
  const uint64_t start = (uint64_t)range.first * block + at;
  if (start < end) {
    range.n = (uint32_t)((end - start + block - 1) / block);
    range.source = (uint32_t)(start - before);
  }
  return range;
}

/* Copies the pixels at one position of all blocks: a strided part of each image. */
static void copy_block_pixels(const struct np_call *call, struct block block, struct range rows,
                              struct range columns, size_t first_image) {
  const struct np_tensor *input = np_in(call, 0);
  const struct np_tensor *output = np_out(call, 0);
  const size_t size = np_type_bytes(input->type);
  struct np_view to = {.rank = 4, .dims = {input->dims[0], rows.n, columns.n, input->dims[3]}};
  struct np_view from = {.rank = 4};
  np_row_major(4, output->dims, to.strides);
  np_row_major(4, input->dims, from.strides);
  const size_t target = first_image * (size_t)to.strides[0] + rows.first * (size_t)to.strides[1] +
                        columns.first * (size_t)to.strides[2];
  const size_t source =
      rows.source * (size_t)from.strides[1] + columns.source * (size_t)from.strides[2];
  from.strides[1] *= (ptrdiff_t)block.h;
  from.strides[2] *= (ptrdiff_t)block.w;
  np_gather(&to, (unsigned char *)output->room + target * size, &from,
            (const unsigned char *)input->data + source * size, size);
}

/* Fills the output with zero, which is the zero point if it is quantised. */
static void fill_with_zero(const struct np_call *call) {
  const struct np_tensor *output = np_out(call, 0);
  const struct np_operand *operand = np_out_operand(call, 0);
  const int quantised = (NP_BIT(operand->type) & NP_QUANT8) != 0;
  memset(output->room, quantised ? operand->zero_point & 0xff : 0,
         output->elements * np_type_bytes(output->type));
}

static enum np_status space_to_batch_run(const struct np_call *call) {
  struct block block = {1, 1};
  const int32_t *paddings;
  NP_TRY(read_frame(call, &block, &paddings));
  const struct np_tensor *input = np_in(call, 0);
  if (np_out(call, 0)->elements == 0) {
    return NP_OK;
  }
  fill_with_zero(call);
  for (uint32_t y = 0; input->elements > 0 && y < block.h; y++) {
    const struct range rows = inside(input->dims[1], (uint32_t)paddings[0], block.h, y);
    for (uint32_t x = 0; rows.n > 0 && x < block.w; x++) {
      const struct range columns = inside(input->dims[2], (uint32_t)paddings[2], block.w, x);
      if (columns.n > 0) {
        copy_block_pixels(call, block, rows, columns, ((size_t)y * block.w + x) * input->dims[0]);
      }
    }
  }
  return NP_OK;
}

const struct np_kernel np_kernel_SPACE_TO_DEPTH = {
    .types = NP_MOVES, .infer = space_to_depth_infer, .run = space_to_depth_run};

const struct np_kernel np_kernel_DEPTH_TO_SPACE = {
    .types = NP_MOVES, .infer = depth_to_space_infer, .run = depth_to_space_run};

const struct np_kernel np_kernel_SPACE_TO_BATCH_ND = {
    .types = NP_MOVES, .infer = space_to_batch_infer, .run = space_to_batch_run};

const struct np_kernel np_kernel_BATCH_TO_SPACE_ND = {
    .types = NP_MOVES, .infer = batch_to_space_infer, .run = batch_to_space_run};
