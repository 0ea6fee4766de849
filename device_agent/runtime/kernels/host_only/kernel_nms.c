/* Suppression of overlapping boxes, and sorting of the remaining ones. */
#include <math.h>
#include <string.h>

#include "kernels/host_only/np_boxes.h"

/* ---- Sorting -------------------------------------------------------------------------------- */

struct order {
  const float *scores; /* highest first; NULL: by class */
  size_t classes;
};

static int comes_before(const struct order *order, size_t a, size_t b) {
  return order->scores != NULL ? order->scores[a] > order->scores[b]
                               : a % order->classes < b % order->classes;
}

/* Merges two sorted runs; of equal items the first run's come first. */
static void merge(const struct order *order, const size_t *left, const size_t *middle,
                  const size_t *end, size_t *out) {
  const size_t *right = middle;
  while (left < middle && right < end) {
    *out++ = comes_before(order, *right, *left) ? *right++ : *left++;
  }
  memcpy(out, left, (size_t)(middle - left) * sizeof *out);
  memcpy(out + (middle - left), right, (size_t)(end - right) * sizeof *out);
}

/* Bottom-up merge sort: with NaN among the scores the order is arbitrary, but safe. */
static void sort(const struct order *order, size_t *items, size_t n, size_t *spare) {
  size_t *from = items;
  size_t *to = spare;
  for (size_t run = 1; run < n; run = np_mul_saturated(run, 2)) {
    for (size_t at = 0; at < n;) {
      const size_t first = n - at < run ? n - at : run;
      const size_t second = n - at - first < run ? n - at - first : run;
      merge(order, from + at, from + at + first, from + at + first + second, to + at);
      at += first + second;
    }
    size_t *const sorted = to;
    to = from;
    from = sorted;
  }
  if (from != items) {
    memcpy(items, from, n * sizeof *items);
  }
}

void np_sort_by_score(size_t *items, size_t n, const float *scores, size_t *spare) {
  const struct order order = {scores, 0};
  sort(&order, items, n, spare);
}

void np_sort_by_class(size_t *items, size_t n, size_t classes, size_t *spare) {
  const struct order order = {NULL, classes};
  sort(&order, items, n, spare);
}

/* ---- Suppression ---------------------------------------------------------------------------- */

/* Returns intersection over union; NaN if both have no area. */
static float overlap(const float *a, const float *b) {
  const float area_a = (a[2] - a[0]) * (a[3] - a[1]);
  const float area_b = (b[2] - b[0]) * (b[3] - b[1]);
  const float w = (b[2] < a[2] ? b[2] : a[2]) - (a[0] < b[0] ? b[0] : a[0]);
  const float h = (b[3] < a[3] ? b[3] : a[3]) - (a[1] < b[1] ? b[1] : a[1]);
  const float shared = (w < 0.0f ? 0.0f : w) * (h < 0.0f ? 0.0f : h);
  return shared / (area_a + area_b - shared);
}

static float overlap_of(const struct np_candidates *candidates, size_t a, size_t b) {
  return overlap(candidates->boxes + a / candidates->per_box * NP_BOX,
                 candidates->boxes + b / candidates->per_box * NP_BOX);
}

/* Moves the best of [start, end), the first with the highest score, to its front. */
static void bring_best(const float *scores, size_t *select, size_t start, size_t end) {
  size_t best = start;
  for (size_t i = start + 1; i < end; i++) {
    if (scores[select[best]] < scores[select[i]]) {
      best = i;
    }
  }
  const size_t index = select[best];
  select[best] = select[start];
  select[start] = index;
}

size_t np_nms_hard(const struct np_candidates *candidates, float iou_threshold, size_t limit,
                   size_t *select, size_t n) {
  size_t kept = 0;
  size_t end = n;
  for (; kept < end && kept < limit; kept++) {
    bring_best(candidates->scores, select, kept, end);
    for (size_t i = kept + 1; i < end;) {
      if (overlap_of(candidates, select[i], select[kept]) >= iou_threshold) {
        select[i] = select[--end]; /* dropped; its replacement is next */
      } else {
        i++;
      }
    }
  }
  return kept;
}

static float softened(const struct np_soft_nms *soft, float iou) {
  switch (soft->kernel) {
  case 0:
    return iou < soft->iou_threshold ? 1.0f : 0.0f;
  case 1:
    return iou < soft->iou_threshold ? 1.0f : 1.0f - iou;
  default:
    return expf(-1.0f * iou * iou / soft->sigma);
  }
}

size_t np_nms_soft(const struct np_candidates *candidates, float *scores,
                   const struct np_soft_nms *soft, size_t limit, size_t *select, size_t n) {
  size_t kept = 0;
  size_t end = n;
  for (; kept < end && kept < limit; kept++) {
    bring_best(scores, select, kept, end);
    for (size_t i = kept + 1; i < end;) {
      float *score = &scores[select[i]];
      *score *= softened(soft, overlap_of(candidates, select[i], select[kept]));
      if (*score < soft->score_threshold) {
        select[i] = select[--end];
      } else {
        i++;
      }
    }
  }
  return kept;
}

size_t np_select_column(const float *scores, size_t rows, size_t columns, size_t column,
                        float threshold, size_t *select) {
  size_t n = 0;
  for (size_t row = 0; row < rows; row++) {
    const size_t index = row * columns + column;
    if (scores[index] > threshold) {
      select[n++] = index;
    }
  }
  return n;
}
