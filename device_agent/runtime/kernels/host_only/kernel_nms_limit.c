/* BOX_WITH_NMS_LIMIT: selects the best boxes of each image and class that overlap little. */
#include <string.h>

#include "kernels/host_only/np_boxes.h"
#include "kernels/np_quant.h"

enum {
  SCORES,
  BOXES,
  BATCHES,
  SCORE_THRESHOLD,
  MAX_BOXES,
  KERNEL,
  IOU_THRESHOLD,
  SIGMA,
  NMS_SCORE_THRESHOLD
};
enum { OUT_SCORES, OUT_BOXES, OUT_CLASSES, OUT_BATCHES };

struct limit {
  size_t n;
  size_t classes; /* the first is the background, which gives no boxes */
  float score_threshold;
  size_t max_boxes; /* per class, and per image */
  struct np_soft_nms soft;
};

static enum np_status read_limit(const struct np_call *call, struct limit *limit) {
  NP_TRY(np_require_shape(call, SCORES, 2, (const int64_t[]){NP_ANY_DIM, NP_ANY_DIM}));
  const uint32_t n = np_in(call, SCORES)->dims[0];
  NP_TRY(np_require_shape(call, BOXES, 2, (const int64_t[]){n, NP_ANY_DIM}));
  NP_TRY(np_require_shape(call, BATCHES, 1, (const int64_t[]){n}));
  limit->n = n;
  limit->classes = np_in(call, SCORES)->dims[1];
  if (limit->classes < 2) {
    return np_fail(call, NP_BAD_MODEL, "input 0 has %zu classes, wanted 2 at least",
                   limit->classes);
  }
  if (np_in(call, BOXES)->dims[1] != np_mul_saturated(limit->classes, NP_BOX)) {
    return np_fail(call, NP_BAD_MODEL, "input 1 has %u in dimension 1, wanted 4 for each class",
                   np_in(call, BOXES)->dims[1]);
  }
  int32_t max_boxes;
  NP_TRY(np_read_f32(call, SCORE_THRESHOLD, &limit->score_threshold));
  NP_TRY(np_read_i32(call, MAX_BOXES, &max_boxes));
  NP_TRY(np_read_i32(call, KERNEL, &limit->soft.kernel));
  NP_TRY(np_read_f32(call, IOU_THRESHOLD, &limit->soft.iou_threshold));
  NP_TRY(np_read_f32(call, SIGMA, &limit->soft.sigma));
  NP_TRY(np_read_f32(call, NMS_SCORE_THRESHOLD, &limit->soft.score_threshold));
  limit->max_boxes = np_box_limit(max_boxes);
  if (limit->soft.kernel < 0 || limit->soft.kernel > 2) {
    return np_fail(call, NP_BAD_MODEL, "NMS kernel %d, wanted 0, 1 or 2", limit->soft.kernel);
  }
  return NP_OK;
}

/* Sets the outputs' shapes, or their bounds, to n boxes. */
static enum np_status set_outputs(const struct np_call *call, uint32_t n,
                                  enum np_status (*set)(const struct np_call *, uint32_t, uint32_t,
                                                        const uint32_t *)) {
  NP_TRY(set(call, OUT_SCORES, 1, (const uint32_t[]){n}));
  NP_TRY(set(call, OUT_BOXES, 2, (const uint32_t[]){n, NP_BOX}));
  NP_TRY(set(call, OUT_CLASSES, 1, (const uint32_t[]){n}));
  return set(call, OUT_BATCHES, 1, (const uint32_t[]){n});
}

static enum np_status limit_infer(const struct np_call *call) {
  struct limit limit;
  NP_TRY(read_limit(call, &limit));
  if (np_in(call, SCORES)->type != NP_TYPE_TENSOR_FLOAT32) {
    NP_TRY(np_require_box_scale(call, BOXES));
    NP_TRY(np_q_same_as_input(call, OUT_SCORES, SCORES));
    NP_TRY(np_q_fixed_output(call, OUT_BOXES, NP_BOX_SCALE, 0));
  }
  const size_t most = np_mul_saturated(limit.n, limit.classes - 1);
  return set_outputs(call, most > UINT32_MAX ? UINT32_MAX : (uint32_t)most, np_set_bound);
}

struct work {
  float *scores; /* softened on the way */
  const float *boxes;
  size_t *select;
  size_t *spare;
};

static struct work lay_work(struct np_layout *layout, const struct np_call *call) {
  const size_t candidates = np_in(call, SCORES)->elements;
  return (struct work){.scores = np_layout_copy(layout, call, SCORES),
                       .boxes = np_layout_floats(layout, call, BOXES),
                       .select = np_layout_add(layout, candidates, sizeof(size_t)),
                       .spare = np_layout_add(layout, candidates, sizeof(size_t))};
}

static size_t limit_scratch(const struct np_call *call) {
  struct np_layout layout = {NULL, 0};
  (void)lay_work(&layout, call);
  return layout.used;
}

/* Selects boxes of an image, whose n rows of scores start at element `first`: as indices into these
 * scores, by class and then by score. */
static size_t select_of_image(const struct limit *limit, const struct work *work, size_t first,
                              size_t n) {
  float *scores = work->scores + first;
  const struct np_candidates image = {scores, work->boxes + first * NP_BOX, 1};
  size_t kept = 0;
  for (size_t c = 1; c < limit->classes; c++) {
    size_t *select = work->select + kept;
    const size_t found =
        np_select_column(scores, n, limit->classes, c, limit->score_threshold, select);
    kept += np_nms_soft(&image, scores, &limit->soft, limit->max_boxes, select, found);
  }
  np_sort_by_score(work->select, kept, scores, work->spare);
  kept = kept > limit->max_boxes ? limit->max_boxes : kept;
  np_sort_by_class(work->select, kept, limit->classes, work->spare);
  return kept;
}

/* Writes box `index` of an image whose scores start at element `first`. */
static void write_box(const struct np_call *call, const struct limit *limit,
                      const struct work *work, size_t first, size_t index, size_t at) {
  const size_t from = first + index;
  const struct np_tensor *boxes = np_in(call, BOXES);
  const size_t box_bytes = NP_BOX * np_type_bytes(boxes->type);
  np_store_floats(call, OUT_SCORES, at, work->scores + from, 1);
  memcpy((unsigned char *)np_out(call, OUT_BOXES)->room + at * box_bytes,
         (const unsigned char *)boxes->data + from * box_bytes, box_bytes);
  ((int32_t *)np_out(call, OUT_CLASSES)->room)[at] = (int32_t)(index % limit->classes);
  ((int32_t *)np_out(call, OUT_BATCHES)->room)[at] =
      ((const int32_t *)np_in(call, BATCHES)->data)[first / limit->classes];
}

static enum np_status limit_run(const struct np_call *call) {
  struct limit limit;
  NP_TRY(read_limit(call, &limit));
  struct np_layout layout = {call->scratch, 0};
  const struct work work = lay_work(&layout, call);
  const int32_t *batches = np_in(call, BATCHES)->data;
  NP_TRY(np_check_boxes(call, work.boxes, np_in(call, SCORES)->elements));
  size_t out = 0;
  for (size_t row = 0; row < limit.n;) { /* an image is a run of rows with one batch index */
    size_t end = row + 1;
    while (end < limit.n && batches[end] == batches[row]) {
      end++;
    }
    const size_t first = row * limit.classes;
    const size_t kept = select_of_image(&limit, &work, first, end - row);
    for (size_t i = 0; i < kept; i++) {
      write_box(call, &limit, &work, first, work.select[i], out++);
    }
    row = end;
  }
  return set_outputs(call, (uint32_t)out, np_set_shape);
}

const struct np_kernel np_kernel_BOX_WITH_NMS_LIMIT = {.types = NP_FLOATS | NP_QUANT8,
                                                       .shapes_at_run = 1,
                                                       .infer = limit_infer,
                                                       .scratch = limit_scratch,
                                                       .run = limit_run};
