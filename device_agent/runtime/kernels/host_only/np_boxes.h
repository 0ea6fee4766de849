/* Shared by the kernels of object detection: conversion of quantised values to floats and back,
 * boxes, and suppression of overlapping boxes (NMS). Everything is computed in float32 whatever the
 * type, as in Android's reference, whose algorithm also determines the order of equal scores. */
#ifndef NP_BOXES_H
#define NP_BOXES_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/np_kernel.h"

enum { NP_BOX = 4 }; /* numbers per box: two corners */

/* Scale of quantised boxes, whose zero point is 0. */
#define NP_BOX_SCALE 0.125f

/* ---- Working memory ------------------------------------------------------------------------- */

/* A kernel's scratch memory, laid out one array after another. With base NULL its size is only
 * measured: `used` is then the result of the kernel's `scratch`. */
struct np_layout {
  unsigned char *base;
  size_t used; /* SIZE_MAX once it overflows */
};

/* Adds room for n elements; returns NULL while measuring. */
void *np_layout_add(struct np_layout *layout, size_t n, size_t each);

/* Returns the values of an input as floats: for FLOAT32 the input itself, for other types a copy
 * added to the layout. NULL while measuring. */
const float *np_layout_floats(struct np_layout *layout, const struct np_call *call, uint32_t input);

/* Adds a writable copy of an input's values as floats. */
float *np_layout_copy(struct np_layout *layout, const struct np_call *call, uint32_t input);

/* Writes n values to an output from element `at` on, quantised if the output is: value / scale +
 * zero point, with the sum rounded half away from zero. */
void np_store_floats(const struct np_call *call, uint32_t output, size_t at, const float *values,
                     size_t n);

/* ---- Checks --------------------------------------------------------------------------------- */

#define NP_ANY_DIM (-1)

/* Checks that an input has this shape, in which NP_ANY_DIM matches any number: NP_MISSING if it is
 * not known yet, NP_BAD_MODEL and a sentence if it differs. */
enum np_status np_require_shape(const struct np_call *call, uint32_t input, uint32_t rank,
                                const int64_t *dims);

/* Checks that a quantised input has the quantisation of boxes: scale 1/8, zero point 0. Accepts
 * other types. */
enum np_status np_require_box_scale(const struct np_call *call, uint32_t input);

/* Checks that n boxes have x1 <= x2 and y1 <= y2, and no NaN: NP_RUN_FAILED if not. */
enum np_status np_check_boxes(const struct np_call *call, const float *boxes, size_t n);

/* ---- Boxes ---------------------------------------------------------------------------------- */

/* Moves the box [x1, y1, x2, y2] by delta [dx, dy, dw, dh], relative to its size (the last two as
 * logarithms), and clips it to the image [height, width]. NaN stays NaN. */
void np_box_transform(const float *box, const float *delta, const float *image, float *moved);

/* Candidates for detection: index i has a score, and box i / per_box. */
struct np_candidates {
  const float *scores;
  const float *boxes;
  size_t per_box; /* scores that share a box */
};

struct np_soft_nms {
  int32_t kernel; /* 0 hard, 1 linear, 2 gaussian */
  float iou_threshold;
  float sigma;
  float score_threshold;
};

/* Puts the best of n candidates, best first, in the first places of `select` and returns their
 * number, at most `limit`: repeatedly takes the one with the highest score (of equal ones the first
 * in `select`) and drops those that overlap it. Two boxes without area overlap by NaN, which drops
 * neither. */
size_t np_nms_hard(const struct np_candidates *candidates, float iou_threshold, size_t limit,
                   size_t *select, size_t n);

/* Does the same, but multiplies the others' scores by the kernel's factor for the overlap, and
 * drops those that fall below a threshold. `scores` are the candidates' and are written. */
size_t np_nms_soft(const struct np_candidates *candidates, float *scores,
                   const struct np_soft_nms *soft, size_t limit, size_t *select, size_t n);

/* Converts a limit of the number of boxes; a negative one means no limit. */
static inline size_t np_box_limit(int32_t limit) { return limit < 0 ? SIZE_MAX : (size_t)limit; }

/* Sort n indices by score, highest first, or by index modulo `classes`; both are stable. `spare`
 * has room for n. */
void np_sort_by_score(size_t *items, size_t n, const float *scores, size_t *spare);
void np_sort_by_class(size_t *items, size_t n, size_t classes, size_t *spare);

/* Appends to `select` the indices in column `column` of a matrix of scores with a score above the
 * threshold; returns how many. */
size_t np_select_column(const float *scores, size_t rows, size_t columns, size_t column,
                        float threshold, size_t *select);

/* ---- Regions of interest -------------------------------------------------------------------- */

/* The inputs that ROI_ALIGN and ROI_POOLING have in common, 0 to 6. */
struct np_rois {
  uint32_t batches, height, width, depth; /* the feature map's */
  uint32_t n;
  uint32_t out_h, out_w;
  float scale_h, scale_w; /* from the image to the feature map */
};

/* A region inside the feature map, in its pixels. */
struct np_roi {
  uint32_t batch;
  float x1, y1, x2, y2;
};

enum np_status np_rois_read(const struct np_call *call, struct np_rois *rois);

/* Sets the output's shape. */
enum np_status np_rois_infer(const struct np_call *call, const struct np_rois *rois);

/* Reads and checks region i: NP_RUN_FAILED for a batch out of range, corners in the wrong order, a
 * region beyond the feature map, or NaN. */
enum np_status np_roi_read(const struct np_call *call, const struct np_rois *rois, uint32_t i,
                           struct np_roi *roi);

#endif
