/* DETECTION_POSTPROCESSING: turns anchors, deltas and scores into a fixed number of detections. */
#include <math.h>
#include <string.h>

#include "kernels/host_only/np_boxes.h"

enum {
  SCORES,
  DELTAS,
  ANCHORS,
  SCALE_Y,
  SCALE_X,
  SCALE_H,
  SCALE_W,
  REGULAR,
  MAX_DETECTIONS,
  MAX_CLASSES,
  MAX_PER_CLASS,
  SCORE_THRESHOLD,
  IOU_THRESHOLD,
  BACKGROUND
};
enum { OUT_SCORES, OUT_BOXES, OUT_CLASSES, OUT_COUNTS };

struct detection {
  size_t batches, anchors, classes;
  size_t encoding; /* numbers per delta, of which four are used */
  float scales[NP_BOX];
  int regular; /* suppression within each class; else each anchor is a single candidate */
  int32_t max_detections, max_classes, max_per_class;
  float score_threshold, iou_threshold;
  int background; /* class 0 counts among the output classes */
  size_t room;    /* detections per image in the outputs */
};

static enum np_status read_shapes(const struct np_call *call, struct detection *detection) {
  NP_TRY(np_require_shape(call, SCORES, 3, (const int64_t[]){NP_ANY_DIM, NP_ANY_DIM, NP_ANY_DIM}));
  const uint32_t *dims = np_in(call, SCORES)->dims;
  NP_TRY(np_require_shape(call, DELTAS, 3, (const int64_t[]){dims[0], dims[1], NP_ANY_DIM}));
  NP_TRY(np_require_shape(call, ANCHORS, 2, (const int64_t[]){dims[1], NP_BOX}));
  detection->batches = dims[0];
  detection->anchors = dims[1];
  detection->classes = dims[2];
  detection->encoding = np_in(call, DELTAS)->dims[2];
  if (detection->classes < 2) {
    return np_fail(call, NP_BAD_MODEL, "input 0 has %zu classes, wanted 2 at least",
                   detection->classes);
  }
  if (detection->encoding < NP_BOX) {
    return np_fail(call, NP_BAD_MODEL, "input 1 has %zu in dimension 2, wanted 4 at least",
                   detection->encoding);
  }
  return NP_OK;
}

static enum np_status read_count(const struct np_call *call, uint32_t input, int wanted,
                                 int32_t *count) {
  NP_TRY(np_read_i32(call, input, count));
  if (wanted && *count < 1) {
    return np_fail(call, NP_BAD_MODEL, "input %u is %d, wanted 1 at least", input, *count);
  }
  return NP_OK;
}

static enum np_status read_threshold(const struct np_call *call, uint32_t input, float *value) {
  NP_TRY(np_read_f32(call, input, value));
  if (!(*value >= 0.0f)) {
    return np_fail(call, NP_BAD_MODEL, "input %u is %g, wanted 0 at least", input, (double)*value);
  }
  return NP_OK;
}

static enum np_status read_detection(const struct np_call *call, struct detection *detection) {
  NP_TRY(read_shapes(call, detection));
  for (uint32_t i = 0; i < NP_BOX; i++) {
    NP_TRY(np_read_f32(call, SCALE_Y + i, &detection->scales[i]));
    if (!(detection->scales[i] > 0.0f)) {
      return np_fail(call, NP_BAD_MODEL, "input %u is %g, wanted more than 0", SCALE_Y + i,
                     (double)detection->scales[i]);
    }
  }
  NP_TRY(np_read_bool(call, REGULAR, &detection->regular));
  NP_TRY(read_count(call, MAX_DETECTIONS, 1, &detection->max_detections));
  NP_TRY(read_count(call, MAX_CLASSES, !detection->regular, &detection->max_classes));
  NP_TRY(read_count(call, MAX_PER_CLASS, detection->regular, &detection->max_per_class));
  NP_TRY(read_threshold(call, SCORE_THRESHOLD, &detection->score_threshold));
  NP_TRY(read_threshold(call, IOU_THRESHOLD, &detection->iou_threshold));
  NP_TRY(np_read_bool(call, BACKGROUND, &detection->background));
  detection->room = np_mul_saturated((size_t)detection->max_detections,
                                     detection->regular ? 1 : (size_t)detection->max_classes);
  if (detection->room > INT32_MAX) {
    return np_fail(call, NP_UNSUPPORTED, "%zu detections are more than an INT32 counts",
                   detection->room);
  }
  return NP_OK;
}

static enum np_status detection_infer(const struct np_call *call) {
  struct detection detection;
  NP_TRY(read_detection(call, &detection));
  const uint32_t dims[3] = {(uint32_t)detection.batches, (uint32_t)detection.room, NP_BOX};
  NP_TRY(np_set_shape(call, OUT_SCORES, 2, dims));
  NP_TRY(np_set_shape(call, OUT_BOXES, 3, dims));
  NP_TRY(np_set_shape(call, OUT_CLASSES, 2, dims));
  return np_set_shape(call, OUT_COUNTS, 1, dims);
}

struct work {
  float *boxes; /* [anchors, 4] of one image */
  float *best;  /* [anchors] of one image: the highest score of each, without the background's */
  size_t *select;
  size_t *spare;
  size_t *ranks; /* [classes] */
};

static struct work lay_work(struct np_layout *layout, const struct detection *detection) {
  const size_t anchors = detection->anchors;
  const size_t classes = detection->classes;
  const size_t candidates = detection->regular ? np_mul_saturated(anchors, classes) : anchors;
  return (struct work){
      .boxes = np_layout_add(layout, anchors, NP_BOX * sizeof(float)),
      .best = np_layout_add(layout, anchors, sizeof(float)),
      .select = np_layout_add(layout, candidates, sizeof(size_t)),
      .spare = np_layout_add(layout, candidates > classes ? candidates : classes, sizeof(size_t)),
      .ranks = np_layout_add(layout, classes, sizeof(size_t))};
}

static size_t detection_scratch(const struct np_call *call) {
  struct detection detection;
  struct np_layout layout = {NULL, 0};
  if (read_detection(call, &detection) != NP_OK) {
    return 0;
  }
  (void)lay_work(&layout, &detection);
  return layout.used;
}

/* Computes boxes [y1, x1, y2, x2] from anchors [y, x, h, w] (a centre and a size) and deltas. */
static void decode_boxes(const struct np_call *call, const struct detection *detection,
                         const float *deltas, float *boxes) {
  const float *anchor = np_in(call, ANCHORS)->data;
  const float *scales = detection->scales;
  for (size_t a = 0; a < detection->anchors; a++) {
    const float y = anchor[0] + anchor[2] * deltas[0] / scales[0];
    const float x = anchor[1] + anchor[3] * deltas[1] / scales[1];
    const float half_h = anchor[2] * expf(deltas[2] / scales[2]) * 0.5f;
    const float half_w = anchor[3] * expf(deltas[3] / scales[3]) * 0.5f;
    boxes[0] = y - half_h;
    boxes[1] = x - half_w;
    boxes[2] = y + half_h;
    boxes[3] = x + half_w;
    anchor += NP_BOX;
    boxes += NP_BOX;
    deltas += detection->encoding;
  }
}

/* The outputs for the detections of one image. */
struct detections {
  float *scores;
  float *boxes;
  int32_t *classes;
  int32_t count;
};

static void put(const struct detection *detection, struct detections *rows, float score,
                const float *box, size_t class_index) {
  const size_t at = (size_t)rows->count++;
  rows->scores[at] = score;
  memcpy(rows->boxes + at * NP_BOX, box, NP_BOX * sizeof *box);
  rows->classes[at] = (int32_t)class_index - (detection->background ? 0 : 1);
}

/* Suppression within each class; then the best of all classes. */
static void detect_regular(const struct detection *detection, const struct work *work,
                           const float *scores, struct detections *rows) {
  const struct np_candidates candidates = {scores, work->boxes, detection->classes};
  size_t kept = 0;
  for (size_t c = 1; c < detection->classes; c++) {
    size_t *select = work->select + kept;
    const size_t found = np_select_column(scores, detection->anchors, detection->classes, c,
                                          detection->score_threshold, select);
    kept += np_nms_hard(&candidates, detection->iou_threshold, (size_t)detection->max_per_class,
                        select, found);
  }
  np_sort_by_score(work->select, kept, scores, work->spare);
  for (size_t i = 0; i < kept && i < (size_t)detection->max_detections; i++) {
    const size_t index = work->select[i];
    put(detection, rows, scores[index], work->boxes + index / detection->classes * NP_BOX,
        index % detection->classes);
  }
}

/* Suppression between anchors by the best score of each; then the best classes of each anchor. */
static void detect_fast(const struct detection *detection, const struct work *work,
                        const float *scores, struct detections *rows) {
  const size_t classes = detection->classes;
  for (size_t a = 0; a < detection->anchors; a++) {
    work->best[a] = scores[a * classes + 1];
    for (size_t c = 2; c < classes; c++) {
      const float score = scores[a * classes + c];
      work->best[a] = work->best[a] < score ? score : work->best[a];
    }
  }
  const struct np_candidates candidates = {work->best, work->boxes, 1};
  const size_t found = np_select_column(work->best, detection->anchors, 1, 0,
                                        detection->score_threshold, work->select);
  const size_t kept = np_nms_hard(&candidates, detection->iou_threshold,
                                  (size_t)detection->max_detections, work->select, found);
  for (size_t i = 0; i < kept; i++) {
    const size_t anchor = work->select[i];
    for (size_t c = 1; c < classes; c++) {
      work->ranks[c - 1] = c;
    }
    np_sort_by_score(work->ranks, classes - 1, scores + anchor * classes, work->spare);
    for (size_t c = 0; c < classes - 1 && c < (size_t)detection->max_classes; c++) {
      put(detection, rows, scores[anchor * classes + work->ranks[c]], work->boxes + anchor * NP_BOX,
          work->ranks[c]);
    }
  }
}

/* Sets the outputs to 0, for places without a detection. */
static void clear(const struct np_call *call) {
  for (uint32_t i = OUT_SCORES; i <= OUT_COUNTS; i++) {
    const struct np_tensor *out = np_out(call, i);
    if (out->elements > 0) {
      memset(out->room, 0, out->elements * np_type_bytes(out->type));
    }
  }
}

static enum np_status detection_run(const struct np_call *call) {
  struct detection detection;
  NP_TRY(read_detection(call, &detection));
  struct np_layout layout = {call->scratch, 0};
  const struct work work = lay_work(&layout, &detection);
  clear(call);
  for (size_t b = 0; b < detection.batches && detection.anchors > 0; b++) {
    const size_t out = b * detection.room;
    const float *scores =
        (const float *)np_in(call, SCORES)->data + b * detection.anchors * detection.classes;
    struct detections rows = {.scores = (float *)np_out(call, OUT_SCORES)->room + out,
                              .boxes = (float *)np_out(call, OUT_BOXES)->room + out * NP_BOX,
                              .classes = (int32_t *)np_out(call, OUT_CLASSES)->room + out};
    decode_boxes(call, &detection,
                 (const float *)np_in(call, DELTAS)->data +
                     b * detection.anchors * detection.encoding,
                 work.boxes);
    if (detection.regular) {
      detect_regular(&detection, &work, scores, &rows);
    } else {
      detect_fast(&detection, &work, scores, &rows);
    }
    ((int32_t *)np_out(call, OUT_COUNTS)->room)[b] = rows.count;
  }
  return NP_OK;
}

const struct np_kernel np_kernel_DETECTION_POSTPROCESSING = {.types = NP_FLOATS,
                                                             .infer = detection_infer,
                                                             .scratch = detection_scratch,
                                                             .run = detection_run};
