/* Moving, joining and resizing kernels against plain loops. */
#include "np_test_shapes.h"

static void test_transpose(uint64_t *seed) {
  uint32_t dims[4];
  uint32_t out_dims[4];
  int32_t order[4];
  const uint32_t rank = random_shape(seed, dims);
  if (rank == 3) { /* large enough for more than one tile */
    dims[1] = np_test_between(seed, 15, 40);
    dims[2] = np_test_between(seed, 15, 40);
  }
  const int reverses = np_test_between(seed, 0, 3) == 0;
  for (uint32_t d = 0; d < rank; d++) {
    order[d] = reverses ? (int32_t)(rank - 1 - d) : (int32_t)d;
  }
  for (uint32_t d = rank; !reverses && d-- > 1;) {
    const uint32_t other = np_test_between(seed, 0, d);
    const int32_t swapped = order[d];
    order[d] = order[other];
    order[other] = swapped;
  }
  for (uint32_t d = 0; d < rank; d++) {
    out_dims[d] = dims[order[d]];
  }
  struct model *model = model_new();
  const uint32_t in = tensor_of(model, NP_INPUT, rank, dims);
  const uint32_t out = tensor_of(model, NP_OUTPUT, rank, out_dims);
  const uint32_t list = model_list(model, rank, order, 0);
  if (reverses) {
    model->operands[list].lifetime = NP_NO_VALUE;
  }
  model_operation(model, ANEURALNETWORKS_TRANSPOSE, out, 2, in, list);
  const size_t n = product(rank, dims);
  float *x = random_floats(seed, n);
  float *wanted = random_floats(seed, n);
  for (size_t i = 0; i < n; i++) {
    uint32_t at[4];
    size_t from = 0;
    uint32_t source[4] = {0};
    unravel(i, rank, out_dims, at);
    for (uint32_t d = 0; d < rank; d++) {
      source[order[d]] = at[d];
    }
    for (uint32_t d = 0; d < rank; d++) {
      from = from * dims[d] + source[d];
    }
    wanted[i] = x[from];
  }
  expect(model, x, wanted, n, 0.0f);
}

/* SLICE where every stride is 1, STRIDED_SLICE otherwise. */
static void test_slice(uint64_t *seed, int strided) {
  uint32_t dims[4];
  uint32_t out_dims[4];
  int32_t begins[4];
  int32_t ends[4];
  int32_t strides[4];
  const uint32_t rank = random_shape(seed, dims);
  for (uint32_t d = 0; d < rank; d++) {
    const uint32_t begin = np_test_between(seed, 0, dims[d] - 1);
    const uint32_t end = np_test_between(seed, 0, dims[d] - 1);
    const int back = strided && end < begin;
    strides[d] = strided ? (int32_t)np_test_between(seed, 1, 3) * (back ? -1 : 1) : 1;
    begins[d] = (int32_t)(back || begin < end ? begin : end);
    ends[d] = back ? (int32_t)end - 1 : (int32_t)(begin < end ? end : begin) + 1;
    const uint32_t span = (uint32_t)abs(ends[d] - begins[d]);
    const uint32_t step = (uint32_t)abs(strides[d]);
    out_dims[d] = (span + step - 1) / step;
  }
  struct model *model = model_new();
  const uint32_t in = tensor_of(model, NP_INPUT, rank, dims);
  const uint32_t out = tensor_of(model, NP_OUTPUT, rank, out_dims);
  const size_t n = product(rank, out_dims);
  float *x = random_floats(seed, product(rank, dims));
  float *wanted = random_floats(seed, n);
  for (size_t i = 0; i < n; i++) {
    uint32_t at[4];
    long from = 0;
    unravel(i, rank, out_dims, at);
    for (uint32_t d = 0; d < rank; d++) {
      from = from * (long)dims[d] + begins[d] + (long)at[d] * strides[d];
    }
    wanted[i] = x[from];
  }
  if (strided) {
    int32_t end_mask = 0;
    for (uint32_t d = 0; d < rank; d++) { /* -1 would count from the end */
      end_mask |= ends[d] < 0 ? 1 << d : 0;
    }
    const uint32_t zero = model_i32(model, 0);
    const uint32_t lists[3] = {model_list(model, rank, begins, 0), model_list(model, rank, ends, 0),
                               model_list(model, rank, strides, 0)};
    model_operation(model, ANEURALNETWORKS_STRIDED_SLICE, out, 7, in, lists[0], lists[1], lists[2],
                    zero, model_i32(model, end_mask), zero);
  } else {
    int32_t sizes[4];
    for (uint32_t d = 0; d < rank; d++) {
      sizes[d] = (uint32_t)ends[d] == dims[d] ? -1 : (int32_t)out_dims[d];
    }
    const uint32_t lists[2] = {model_list(model, rank, begins, 0),
                               model_list(model, rank, sizes, 0)};
    model_operation(model, ANEURALNETWORKS_SLICE, out, 3, in, lists[0], lists[1]);
  }
  expect(model, x, wanted, n, 0.0f);
}

static void test_pad(uint64_t *seed) {
  uint32_t dims[4];
  uint32_t out_dims[4];
  int32_t paddings[8];
  const uint32_t rank = random_shape(seed, dims);
  const float value = np_test_between(seed, 0, 1) != 0 ? 2.5f : 0.0f;
  for (uint32_t d = 0; d < rank; d++) {
    paddings[2 * d] = (int32_t)np_test_between(seed, 0, 2);
    paddings[2 * d + 1] = (int32_t)np_test_between(seed, 0, 2);
    out_dims[d] = dims[d] + (uint32_t)paddings[2 * d] + (uint32_t)paddings[2 * d + 1];
  }
  struct model *model = model_new();
  const uint32_t in = tensor_of(model, NP_INPUT, rank, dims);
  const uint32_t out = tensor_of(model, NP_OUTPUT, rank, out_dims);
  const uint32_t list = model_list(model, 2 * rank, paddings, 1);
  if (value != 0.0f) {
    model_operation(model, ANEURALNETWORKS_PAD_V2, out, 3, in, list, model_f32(model, value));
  } else {
    model_operation(model, ANEURALNETWORKS_PAD, out, 2, in, list);
  }
  const size_t n = product(rank, out_dims);
  float *x = random_floats(seed, product(rank, dims));
  float *wanted = random_floats(seed, n);
  for (size_t i = 0; i < n; i++) {
    uint32_t at[4];
    int inside = 1;
    size_t from = 0;
    unravel(i, rank, out_dims, at);
    for (uint32_t d = 0; d < rank; d++) {
      const long place = (long)at[d] - paddings[2 * d];
      inside &= place >= 0 && place < (long)dims[d];
      from = from * dims[d] + (size_t)(inside ? place : 0);
    }
    wanted[i] = inside ? x[from] : value;
  }
  expect(model, x, wanted, n, 0.0f);
}

/* Splits a tensor in two by SLICE, and joins the halves the other way round. */
static void test_concatenation(uint64_t *seed) {
  uint32_t dims[4];
  const uint32_t rank = random_shape(seed, dims);
  const uint32_t axis = np_test_between(seed, 0, rank - 1);
  dims[axis] += 2;
  const uint32_t cut = np_test_between(seed, 1, dims[axis] - 1);
  int32_t begins[2][4] = {{0}};
  int32_t sizes[2][4];
  struct model *model = model_new();
  const uint32_t in = tensor_of(model, NP_INPUT, rank, dims);
  const uint32_t out = tensor_of(model, NP_OUTPUT, rank, dims);
  uint32_t halves[2];
  for (uint32_t i = 0; i < 2; i++) {
    for (uint32_t d = 0; d < rank; d++) {
      sizes[i][d] = (int32_t)dims[d];
    }
    begins[i][axis] = i == 0 ? 0 : (int32_t)cut;
    sizes[i][axis] = i == 0 ? (int32_t)cut : -1;
    halves[i] = model_tensor(model, NP_TEMPORARY, 0);
    const uint32_t begin = model_list(model, rank, begins[i], 0);
    const uint32_t size = model_list(model, rank, sizes[i], 0);
    model_operation(model, ANEURALNETWORKS_SLICE, halves[i], 3, in, begin, size);
  }
  model_operation(model, ANEURALNETWORKS_CONCATENATION, out, 3, halves[1], halves[0],
                  model_i32(model, (int32_t)axis));
  const size_t n = product(rank, dims);
  const size_t step = product(rank - axis - 1, dims + axis + 1);
  float *x = random_floats(seed, n);
  float *wanted = random_floats(seed, n);
  for (size_t i = 0; i < n; i++) {
    const size_t place = i / step % dims[axis];
    wanted[i] = x[i - place * step + (place + cut) % dims[axis] * step];
  }
  expect(model, x, wanted, n, 0.0f);
}

static void test_split(void) {
  struct model *model = model_new();
  struct np_message why = {""};
  const uint32_t in = model_tensor(model, NP_INPUT, 2, 2u, 4u);
  const uint32_t left = model_tensor(model, NP_TEMPORARY, 0);
  const uint32_t right = model_tensor(model, NP_TEMPORARY, 0);
  const uint32_t out = model_tensor(model, NP_OUTPUT, 0);
  model_operation(model, ANEURALNETWORKS_SPLIT, left, 3, in, model_i32(model, -1),
                  model_i32(model, 2));
  model->operations[0].n_outputs = 2;
  model->arguments[0][1][1] = right;
  model_operation(model, ANEURALNETWORKS_SUB, out, 3, right, left, model_i32(model, 0));
  const float x[8] = {1, 2, 30, 40, 5, 6, 70, 80};
  const float wanted[4] = {29, 38, 65, 74};
  const float *const inputs[1] = {x};
  float found[4];
  CHECK(model_run(model, inputs, found, 4, &why) == NP_OK);
  CHECK(worst(found, wanted, 4) == 0.0f);
  free(model);
}

/* Reshapes that are copies: shape operands, and the shape that comes out of them. */
static void test_reshape(void) {
  struct np_message why = {""};
  const int32_t stretched[3] = {2, -1, 1};
  const int32_t axes[1] = {-1};
  struct model *model = model_new();
  const uint32_t in = model_tensor(model, NP_INPUT, 3, 1u, 3u, 4u);
  const uint32_t reshaped = model_tensor(model, NP_TEMPORARY, 3, 2u, 6u, 1u);
  const uint32_t squeezed = model_tensor(model, NP_TEMPORARY, 2, 2u, 6u);
  const uint32_t out = model_tensor(model, NP_OUTPUT, 3, 2u, 1u, 6u);
  model_operation(model, ANEURALNETWORKS_RESHAPE, reshaped, 2, in,
                  model_list(model, 3, stretched, 0));
  model_operation(model, ANEURALNETWORKS_SQUEEZE, squeezed, 2, reshaped,
                  model_list(model, 1, axes, 0));
  model_operation(model, ANEURALNETWORKS_EXPAND_DIMS, out, 2, squeezed, model_i32(model, 1));
  float x[12];
  float found[12];
  for (size_t i = 0; i < 12; i++) {
    x[i] = (float)i;
  }
  const float *const inputs[1] = {x};
  CHECK(model_run(model, inputs, found, 12, &why) == NP_OK);
  CHECK(memcmp(x, found, sizeof x) == 0);
  free(model);
}

/* The coordinate in the input that output coordinate `at` has. */
static double place_of(uint32_t at, uint32_t in, uint32_t out, int align, int half) {
  if (align && out > 1) {
    return at * (double)(in - 1) / (out - 1);
  }
  return half ? (at + 0.5) * in / out - 0.5 : at * (double)in / out;
}

static void test_resize(uint64_t *seed, int by_scale) {
  const uint32_t mode = np_test_between(seed, 0, 2);
  const int align = mode == 1;
  const int half = mode == 2;
  const int nchw = (int)np_test_between(seed, 0, 1);
  const uint32_t h = np_test_between(seed, 1, 6);
  const uint32_t w = np_test_between(seed, 1, 6);
  const uint32_t c = np_test_between(seed, 1, 5);
  const uint32_t out_h = by_scale ? 2 * h : np_test_between(seed, 1, 9);
  const uint32_t out_w = by_scale ? 3 * w : np_test_between(seed, 1, 9);
  const uint32_t in_dims[2][4] = {{2, h, w, c}, {2, c, h, w}};
  const uint32_t out_dims[2][4] = {{2, out_h, out_w, c}, {2, c, out_h, out_w}};
  struct model *model = model_new();
  const uint32_t in = tensor_of(model, NP_INPUT, 4, in_dims[nchw]);
  const uint32_t out = tensor_of(model, NP_OUTPUT, 4, out_dims[nchw]);
  const uint32_t width = by_scale ? model_f32(model, 3.0f) : model_i32(model, (int32_t)out_w);
  const uint32_t height = by_scale ? model_f32(model, 2.0f) : model_i32(model, (int32_t)out_h);
  model_operation(model, ANEURALNETWORKS_RESIZE_BILINEAR, out, 6, in, width, height,
                  model_bool(model, nchw), model_bool(model, align), model_bool(model, half));
  const size_t n = product(4, out_dims[nchw]);
  float *x = random_floats(seed, product(4, in_dims[nchw]));
  float *wanted = random_floats(seed, n);
  for (size_t i = 0; i < n; i++) {
    uint32_t at[4];
    unravel(i, 4, out_dims[nchw], at);
    const uint32_t y_axis = nchw ? 2 : 1;
    const double y = place_of(at[y_axis], h, out_h, align, half);
    const double z = place_of(at[y_axis + 1], w, out_w, align, half);
    double sum = 0;
    for (uint32_t k = 0; k < 4; k++) {
      const double fy = floor(y) + (k >> 1);
      const double fz = floor(z) + (k & 1);
      const double share =
          (k >> 1 ? y - floor(y) : 1 - y + floor(y)) * (k & 1 ? z - floor(z) : 1 - z + floor(z));
      at[y_axis] = (uint32_t)fmax(0, fmin(h - 1, fy));
      at[y_axis + 1] = (uint32_t)fmax(0, fmin(w - 1, fz));
      size_t from = 0;
      for (uint32_t d = 0; d < 4; d++) {
        from = from * in_dims[nchw][d] + at[d];
      }
      sum += share * (double)x[from];
    }
    wanted[i] = (float)sum;
  }
  expect(model, x, wanted, n, 5e-6f);
}

static void test_nearest(void) {
  struct np_message why = {""};
  const float x[3] = {10, 20, 30};
  const float *const inputs[1] = {x};
  const float wanted[3][5] = {
      {10, 10, 20, 20, 30}, /* floor(i * 3 / 5) */
      {10, 20, 20, 30, 30}, /* align corners: round(i * 2 / 4) */
      {10, 10, 20, 30, 30}, /* half pixel centers: floor((i + 0.5) * 3 / 5) */
  };
  for (int mode = 0; mode < 3; mode++) {
    struct model *model = model_new();
    const uint32_t in = model_tensor(model, NP_INPUT, 4, 1u, 1u, 3u, 1u);
    const uint32_t out = model_tensor(model, NP_OUTPUT, 4, 1u, 1u, 5u, 1u);
    model_operation(model, ANEURALNETWORKS_RESIZE_NEAREST_NEIGHBOR, out, 6, in, model_i32(model, 5),
                    model_i32(model, 1), model_bool(model, 0), model_bool(model, mode == 1),
                    model_bool(model, mode == 2));
    float found[5];
    CHECK(model_run(model, inputs, found, 5, &why) == NP_OK);
    CHECK(worst(found, wanted[mode], 5) == 0.0f);
    free(model);
  }
}

/* An image of no pixels is refused, also where the input has none. */
static void test_resize_to_nothing(void) {
  static const int32_t SIZES[] = {0, -1, INT32_MIN};
  for (uint32_t i = 0; i < 6; i++) {
    struct np_message why = {""};
    struct np_executor *executor = NULL;
    struct model *model = model_new();
    const uint32_t in = model_tensor(model, NP_INPUT, 4, 1u, 0u, 4u, 2u);
    model->operands[in].dims[1] = i < 3 ? 4u : 0u; /* unknown until the run, which says 0 */
    const uint32_t out = model_tensor(model, NP_OUTPUT, 0);
    model_operation(model, ANEURALNETWORKS_RESIZE_BILINEAR, out, 3, in, model_i32(model, 5),
                    model_i32(model, SIZES[i % 3]));
    CHECK(model_check(model, &why) == NP_OK);
    enum np_status status = np_executor_create(&model->graph, NULL, &executor, &why);
    if (i < 3) {
      CHECK(status == NP_BAD_MODEL);
    } else if (CHECK(status == NP_OK)) {
      struct np_buffer input = {.data = NULL, .rank = 4, .dims = {1, 0, 4, 2}};
      struct np_buffer output = {.data = NULL};
      uint32_t too_small;
      CHECK(np_executor_run(executor, &input, &output, NULL, &too_small, &why) == NP_RUN_FAILED);
    }
    CHECK_TEXT(why.text, "makes an image of no pixels");
    np_executor_free(executor);
    free(model);
  }
}

int main(void) {
  test_resize_to_nothing();
  uint64_t seed = 19;
  for (int i = 0; i < 200; i++) {
    test_transpose(&seed);
    test_slice(&seed, 0);
    test_slice(&seed, 1);
    test_pad(&seed);
    test_concatenation(&seed);
    test_resize(&seed, i % 2);
  }
  test_split();
  test_reshape();
  test_nearest();
  return np_test_exit();
}
