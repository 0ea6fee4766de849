/* GENERATE_PROPOSALS: the regions of an image that most likely show an object. */
#include <string.h>

#include "kernels/host_only/np_boxes.h"
#include "kernels/np_quant.h"

enum {
  SCORES,
  DELTAS,
  ANCHORS,
  IMAGES,
  STRIDE_H,
  STRIDE_W,
  PRE_NMS,
  POST_NMS,
  IOU_THRESHOLD,
  MIN_SIZE
};
enum { OUT_SCORES, OUT_BOXES, OUT_BATCHES };

struct proposals {
  uint32_t batches, height, width, anchors;
  size_t of_image; /* regions: height * width * anchors */
  float stride_h, stride_w;
  size_t pre_nms, post_nms;
  float iou_threshold;
  float min_size;
};

/* Reads a limit; numbers below 1 mean no limit. */
static enum np_status read_limit(const struct np_call *call, uint32_t input, size_t *limit) {
  int32_t value;
  NP_TRY(np_read_i32(call, input, &value));
  *limit = value < 1 ? SIZE_MAX : (size_t)value;
  return NP_OK;
}

static enum np_status read_shapes(const struct np_call *call, struct proposals *proposals) {
  NP_TRY(np_require_shape(call, SCORES, 4,
                          (const int64_t[]){NP_ANY_DIM, NP_ANY_DIM, NP_ANY_DIM, NP_ANY_DIM}));
  const uint32_t *dims = np_in(call, SCORES)->dims;
  NP_TRY(
      np_require_shape(call, DELTAS, 4, (const int64_t[]){dims[0], dims[1], dims[2], NP_ANY_DIM}));
  NP_TRY(np_require_shape(call, ANCHORS, 2, (const int64_t[]){dims[3], NP_BOX}));
  NP_TRY(np_require_shape(call, IMAGES, 2, (const int64_t[]){dims[0], 2}));
  if (np_in(call, DELTAS)->dims[3] != np_mul_saturated(dims[3], NP_BOX)) {
    return np_fail(call, NP_BAD_MODEL, "input 1 has %u in dimension 3, wanted 4 for each anchor",
                   np_in(call, DELTAS)->dims[3]);
  }
  proposals->batches = dims[0];
  proposals->height = dims[1];
  proposals->width = dims[2];
  proposals->anchors = dims[3];
  proposals->of_image = np_mul_saturated(np_mul_saturated(dims[1], dims[2]), dims[3]);
  return NP_OK;
}

static enum np_status read_proposals(const struct np_call *call, struct proposals *proposals) {
  NP_TRY(read_shapes(call, proposals));
  NP_TRY(np_read_f32(call, STRIDE_H, &proposals->stride_h));
  NP_TRY(np_read_f32(call, STRIDE_W, &proposals->stride_w));
  NP_TRY(read_limit(call, PRE_NMS, &proposals->pre_nms));
  NP_TRY(read_limit(call, POST_NMS, &proposals->post_nms));
  NP_TRY(np_read_f32(call, IOU_THRESHOLD, &proposals->iou_threshold));
  return np_read_f32(call, MIN_SIZE, &proposals->min_size);
}

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* Sets the outputs' shapes, or their bounds, to n regions. */
static enum np_status set_outputs(const struct np_call *call, uint32_t n,
                                  enum np_status (*set)(const struct np_call *, uint32_t, uint32_t,
                                                        const uint32_t *)) {
  NP_TRY(set(call, OUT_SCORES, 1, (const uint32_t[]){n}));
  NP_TRY(set(call, OUT_BOXES, 2, (const uint32_t[]){n, NP_BOX}));
  return set(call, OUT_BATCHES, 1, (const uint32_t[]){n});
}

static enum np_status proposals_infer(const struct np_call *call) {
  struct proposals proposals;
  NP_TRY(read_proposals(call, &proposals));
  if (np_in(call, SCORES)->type != NP_TYPE_TENSOR_FLOAT32) {
    NP_TRY(np_require_box_scale(call, ANCHORS));
    NP_TRY(np_require_box_scale(call, IMAGES));
    NP_TRY(np_q_same_as_input(call, OUT_SCORES, SCORES));
    NP_TRY(np_q_fixed_output(call, OUT_BOXES, NP_BOX_SCALE, 0));
  }
  const size_t of_image =
      smaller(proposals.of_image, smaller(proposals.pre_nms, proposals.post_nms));
  const size_t most = smaller(np_mul_saturated(of_image, proposals.batches), UINT32_MAX);
  return set_outputs(call, (uint32_t)most, np_set_bound);
}

struct work {
  const float *scores;
  const float *deltas;
  const float *anchors;
  const float *images;
  float *boxes; /* boxes of one image */
  size_t *select;
  size_t *spare;
};

static struct work lay_work(struct np_layout *layout, const struct np_call *call,
                            const struct proposals *proposals) {
  const size_t n = proposals->of_image;
  return (struct work){.scores = np_layout_floats(layout, call, SCORES),
                       .deltas = np_layout_floats(layout, call, DELTAS),
                       .anchors = np_layout_floats(layout, call, ANCHORS),
                       .images = np_layout_floats(layout, call, IMAGES),
                       .boxes = np_layout_add(layout, n, NP_BOX * sizeof(float)),
                       .select = np_layout_add(layout, n, sizeof(size_t)),
                       .spare = np_layout_add(layout, n, sizeof(size_t))};
}

static size_t proposals_scratch(const struct np_call *call) {
  struct proposals proposals;
  struct np_layout layout = {NULL, 0};
  if (read_proposals(call, &proposals) != NP_OK) {
    return 0;
  }
  (void)lay_work(&layout, call, &proposals);
  return layout.used;
}

/* Puts every anchor at every position and moves it by the deltas. */
static enum np_status decode_boxes(const struct np_call *call, const struct proposals *proposals,
                                   const struct work *work, const float *deltas,
                                   const float *image) {
  float *box = work->boxes;
  for (uint32_t h = 0; h < proposals->height; h++) {
    const float y = (float)h * proposals->stride_h;
    for (uint32_t w = 0; w < proposals->width; w++) {
      const float x = (float)w * proposals->stride_w;
      const float *anchor = work->anchors;
      for (uint32_t a = 0; a < proposals->anchors; a++) {
        const float placed[NP_BOX] = {anchor[0] + x, anchor[1] + y, anchor[2] + x, anchor[3] + y};
        NP_TRY(np_check_boxes(call, placed, 1));
        np_box_transform(placed, deltas, image, box);
        anchor += NP_BOX;
        deltas += NP_BOX;
        box += NP_BOX;
      }
    }
  }
  return NP_OK;
}

/* Returns whether a region is large enough and its centre is in the image [height, width]. */
static int counts(const float *box, const float *image, float min_size) {
  const float w = box[2] - box[0];
  const float h = box[3] - box[1];
  return w > min_size && h > min_size && box[0] + w / 2.0f < image[1] &&
         box[1] + h / 2.0f < image[0];
}

/* Selects the regions of one image, best first. */
static size_t select_of_image(const struct proposals *proposals, const struct work *work,
                              const float *scores, const float *image) {
  size_t n = proposals->of_image;
  for (size_t i = 0; i < n; i++) {
    work->select[i] = i;
  }
  if (proposals->pre_nms < n) {
    np_sort_by_score(work->select, n, scores, work->spare);
    n = proposals->pre_nms;
  }
  size_t kept = 0;
  for (size_t i = 0; i < n; i++) {
    if (counts(work->boxes + work->select[i] * NP_BOX, image, proposals->min_size)) {
      work->select[kept++] = work->select[i];
    }
  }
  const struct np_candidates candidates = {scores, work->boxes, 1};
  return np_nms_hard(&candidates, proposals->iou_threshold, proposals->post_nms, work->select,
                     kept);
}

static enum np_status proposals_run(const struct np_call *call) {
  struct proposals proposals;
  NP_TRY(read_proposals(call, &proposals));
  struct np_layout layout = {call->scratch, 0};
  const struct work work = lay_work(&layout, call, &proposals);
  int32_t *out_batches = np_out(call, OUT_BATCHES)->room;
  size_t out = 0;
  for (uint32_t b = 0; b < proposals.batches && proposals.of_image > 0; b++) {
    const float *scores = work.scores + b * proposals.of_image;
    const float *image = work.images + (size_t)b * 2;
    NP_TRY(decode_boxes(call, &proposals, &work, work.deltas + b * proposals.of_image * NP_BOX,
                        image));
    const size_t kept = select_of_image(&proposals, &work, scores, image);
    for (size_t i = 0; i < kept; i++, out++) {
      np_store_floats(call, OUT_SCORES, out, scores + work.select[i], 1);
      np_store_floats(call, OUT_BOXES, out * NP_BOX, work.boxes + work.select[i] * NP_BOX, NP_BOX);
      out_batches[out] = (int32_t)b;
    }
  }
  return set_outputs(call, (uint32_t)out, np_set_shape);
}

const struct np_kernel np_kernel_GENERATE_PROPOSALS = {.types = NP_FLOATS | NP_QUANT8,
                                                       .shapes_at_run = 1,
                                                       .infer = proposals_infer,
                                                       .scratch = proposals_scratch,
                                                       .run = proposals_run};
