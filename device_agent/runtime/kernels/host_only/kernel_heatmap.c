/* HEATMAP_MAX_KEYPOINT: the position of the highest value of a map, interpolated between pixels. */
#include <float.h>
#include <math.h>

#include "kernels/host_only/np_boxes.h"
#include "kernels/np_quant.h"

enum { HEATMAPS, BOXES };
enum { OUT_SCORES, OUT_POINTS };

struct heatmap {
  uint32_t n, side, points;
  float tolerance; /* a smaller curvature around a maximum is not used */
};

static enum np_status read_heatmap(const struct np_call *call, struct heatmap *heatmap) {
  NP_TRY(np_require_shape(call, HEATMAPS, 4,
                          (const int64_t[]){NP_ANY_DIM, NP_ANY_DIM, NP_ANY_DIM, NP_ANY_DIM}));
  const struct np_tensor *maps = np_in(call, HEATMAPS);
  NP_TRY(np_require_shape(call, BOXES, 2, (const int64_t[]){maps->dims[0], NP_BOX}));
  if (maps->dims[1] != maps->dims[2] || maps->dims[1] < 2) {
    return np_fail(call, NP_BAD_MODEL,
                   "input 0 is %u x %u pixels, wanted a square of 2 x 2 or more", maps->dims[1],
                   maps->dims[2]);
  }
  heatmap->n = maps->dims[0];
  heatmap->side = maps->dims[1];
  heatmap->points = maps->dims[3];
  heatmap->tolerance = maps->type == NP_TYPE_TENSOR_FLOAT16 ? 1e-3f : 1e-5f;
  return NP_OK;
}

static enum np_status heatmap_infer(const struct np_call *call) {
  struct heatmap heatmap;
  NP_TRY(read_heatmap(call, &heatmap));
  NP_TRY(np_require_box_scale(call, BOXES));
  if (np_in(call, BOXES)->type == NP_TYPE_TENSOR_QUANT16_ASYMM) {
    NP_TRY(np_q_fixed_output(call, OUT_POINTS, NP_BOX_SCALE, 0));
  }
  const uint32_t dims[3] = {heatmap.n, heatmap.points, 2};
  NP_TRY(np_set_shape(call, OUT_SCORES, 2, dims));
  return np_set_shape(call, OUT_POINTS, 3, dims);
}

struct work {
  const float *maps;
  const float *boxes;
};

static struct work lay_work(struct np_layout *layout, const struct np_call *call) {
  return (struct work){.maps = np_layout_floats(layout, call, HEATMAPS),
                       .boxes = np_layout_floats(layout, call, BOXES)};
}

static size_t heatmap_scratch(const struct np_call *call) {
  struct np_layout layout = {NULL, 0};
  (void)lay_work(&layout, call);
  return layout.used;
}

/* A maximum: its value and its position, in pixels from the centre of the first one. */
struct peak {
  float value;
  float x, y;
};

/* Returns the pixel with the highest value (the first of equal ones) of a key point's map, whose
 * values are `points` apart. */
static struct peak highest_pixel(const struct heatmap *heatmap, const float *map, uint32_t *row,
                                 uint32_t *column) {
  const size_t pixels = (size_t)heatmap->side * heatmap->side;
  float highest = -FLT_MAX;
  size_t at = 0;
  for (size_t i = 0; i < pixels; i++) {
    const float value = map[i * heatmap->points];
    if (highest < value) {
      highest = value;
      at = i;
    }
  }
  *row = (uint32_t)(at / heatmap->side);
  *column = (uint32_t)(at % heatmap->side);
  return (struct peak){highest, (float)*column, (float)*row};
}

/* Returns at + step, mirrored at the map's borders. */
static size_t mirrored(uint32_t at, int step, uint32_t side) {
  const int64_t place = (int64_t)at + step;
  return place < 0 ? 1 : place >= side ? side - 2 : (size_t)place;
}

/* Moves a peak to the stationary point of the parabola through it and its eight neighbours: value +
 * gradient . d + d . hessian d / 2. Does nothing if the parabola has no such point. */
static void refine(float grid[3][3], float tolerance, struct peak *peak) {
  const float down_x = -(grid[1][2] - grid[1][0]) / 2.0f; /* the negative gradient */
  const float down_y = -(grid[2][1] - grid[0][1]) / 2.0f;
  const float xx = grid[1][0] - 2.0f * grid[1][1] + grid[1][2];
  const float xy = (grid[2][2] - grid[2][0] - grid[0][2] + grid[0][0]) / 4.0f;
  const float yy = grid[0][1] - 2.0f * grid[1][1] + grid[2][1];
  const float squares = xx * yy;
  const float determinant = squares - xy * xy;
  if (fabsf(determinant) < tolerance + tolerance * squares) {
    return;
  }
  float x = (yy * down_x - xy * down_y) / determinant;
  float y = (xx * down_y - xy * down_x) / determinant;
  const float largest = fabsf(x) < fabsf(y) ? fabsf(y) : fabsf(x);
  if (fabsf(x) > 1.5f || fabsf(y) > 1.5f) {
    const float scale = 1.5f / largest;
    x *= scale;
    y *= scale;
  }
  peak->value =
      grid[1][1] - down_x * x - down_y * y + ((xx * x + xy * y) * x + (xy * x + yy * y) * y) / 2.0f;
  peak->x += x;
  peak->y += y;
}

static struct peak find_peak(const struct heatmap *heatmap, const float *map) {
  uint32_t row, column;
  struct peak peak = highest_pixel(heatmap, map, &row, &column);
  float grid[3][3];
  for (int dy = -1; dy <= 1; dy++) {
    for (int dx = -1; dx <= 1; dx++) {
      const size_t y = mirrored(row, dy, heatmap->side);
      const size_t x = mirrored(column, dx, heatmap->side);
      grid[dy + 1][dx + 1] = map[(y * heatmap->side + x) * heatmap->points];
    }
  }
  refine(grid, heatmap->tolerance, &peak);
  return peak;
}

static enum np_status heatmap_run(const struct np_call *call) {
  struct heatmap heatmap;
  NP_TRY(read_heatmap(call, &heatmap));
  struct np_layout layout = {call->scratch, 0};
  const struct work work = lay_work(&layout, call);
  NP_TRY(np_check_boxes(call, work.boxes, heatmap.n));
  const size_t map_elements = (size_t)heatmap.side * heatmap.side * heatmap.points;
  const float side = (float)heatmap.side;
  for (size_t i = 0; i < heatmap.n; i++) {
    const float *box = work.boxes + i * NP_BOX;
    for (size_t k = 0; k < heatmap.points; k++) {
      const size_t at = i * heatmap.points + k;
      const struct peak peak = find_peak(&heatmap, work.maps + i * map_elements + k);
      const float point[2] = {(peak.x + 0.5f) / side * (box[2] - box[0]) + box[0],
                              (peak.y + 0.5f) / side * (box[3] - box[1]) + box[1]};
      np_store_floats(call, OUT_SCORES, at, &peak.value, 1);
      np_store_floats(call, OUT_POINTS, at * 2, point, 2);
    }
  }
  return NP_OK;
}

/* FLOAT16 is computed here, since it has a different tolerance. */
const struct np_kernel np_kernel_HEATMAP_MAX_KEYPOINT = {
    .types = NP_FLOATS | NP_BIT(NP_TYPE_TENSOR_FLOAT16) | NP_QUANT8,
    .infer = heatmap_infer,
    .scratch = heatmap_scratch,
    .run = heatmap_run};
