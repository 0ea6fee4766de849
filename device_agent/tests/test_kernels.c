/* Convolutions, poolings and matrix products against plain loops in double precision. */
#include "np_test_model.h"

/* A random window operation: image, filter, and how the filter moves. */
struct scene {
  uint32_t n, h, w, c, out_h, out_w, out_c;
  uint32_t filter_h, filter_w, stride_h, stride_w, dilation_h, dilation_w;
  uint32_t pad_left, pad_right, pad_top, pad_bottom;
  uint32_t groups, multiplier;
  int32_t padding_code; /* 0 for explicit paddings */
  int nchw;
  int32_t fuse;
};

static struct scene random_scene(uint64_t *seed, int dilates) {
  struct scene s = {0};
  s.n = np_test_between(seed, 1, 2);
  s.filter_h = np_test_between(seed, 1, 4);
  s.filter_w = np_test_between(seed, 1, 4);
  s.stride_h = np_test_between(seed, 1, 3);
  s.stride_w = np_test_between(seed, 1, 3);
  s.dilation_h = dilates ? np_test_between(seed, 1, 2) : 1;
  s.dilation_w = dilates ? np_test_between(seed, 1, 2) : 1;
  const uint32_t reach_h = (s.filter_h - 1) * s.dilation_h + 1;
  const uint32_t reach_w = (s.filter_w - 1) * s.dilation_w + 1;
  s.h = np_test_between(seed, reach_h, reach_h + 9);
  s.w = np_test_between(seed, reach_w, reach_w + 9);
  s.groups = 1;
  s.multiplier = 1;
  s.padding_code = (int32_t)np_test_between(seed, 0, 2);
  s.nchw = (int)np_test_between(seed, 0, 1);
  s.fuse = (int32_t)np_test_between(seed, 0, 3);
  uint32_t extra_h = 0;
  uint32_t extra_w = 0;
  if (s.padding_code == 0) {
    s.pad_left = np_test_between(seed, 0, s.filter_w - 1);
    s.pad_right = np_test_between(seed, 0, s.filter_w - 1);
    s.pad_top = np_test_between(seed, 0, s.filter_h - 1);
    s.pad_bottom = np_test_between(seed, 0, s.filter_h - 1);
    extra_h = s.pad_top + s.pad_bottom;
    extra_w = s.pad_left + s.pad_right;
  }
  s.out_h = (s.h + extra_h - reach_h) / s.stride_h + 1;
  s.out_w = (s.w + extra_w - reach_w) / s.stride_w + 1;
  if (s.padding_code == ANEURALNETWORKS_PADDING_SAME) {
    s.out_h = (s.h + s.stride_h - 1) / s.stride_h;
    s.out_w = (s.w + s.stride_w - 1) / s.stride_w;
    const uint32_t needed_h = (s.out_h - 1) * s.stride_h + reach_h;
    const uint32_t needed_w = (s.out_w - 1) * s.stride_w + reach_w;
    s.pad_top = needed_h > s.h ? (needed_h - s.h) / 2 : 0;
    s.pad_left = needed_w > s.w ? (needed_w - s.w) / 2 : 0;
  }
  return s;
}

static size_t at(int nchw, uint32_t n, uint32_t y, uint32_t x, uint32_t c, uint32_t h, uint32_t w,
                 uint32_t channels) {
  return nchw ? (((size_t)n * channels + c) * h + y) * w + x
              : (((size_t)n * h + y) * w + x) * channels + c;
}

/* Index of the image's cell under tap (ky, kx) of output (y, x), -1 for padding. */
static long cell(const struct scene *s, uint32_t n, uint32_t y, uint32_t x, uint32_t ky,
                 uint32_t kx, uint32_t c) {
  const long iy = (long)(y * s->stride_h + ky * s->dilation_h) - (long)s->pad_top;
  const long ix = (long)(x * s->stride_w + kx * s->dilation_w) - (long)s->pad_left;
  if (iy < 0 || ix < 0 || iy >= (long)s->h || ix >= (long)s->w) {
    return -1;
  }
  return (long)at(s->nchw, n, (uint32_t)iy, (uint32_t)ix, c, s->h, s->w, s->c);
}

static float fused(double x, int32_t fuse) {
  const double low[4] = {-HUGE_VAL, 0, -1, 0};
  const double high[4] = {HUGE_VAL, HUGE_VAL, 1, 6};
  return (float)fmax(low[fuse], fmin(high[fuse], x));
}

static uint32_t image_operand(struct model *model, const struct scene *s, int is_output) {
  const uint32_t h = is_output ? s->out_h : s->h;
  const uint32_t w = is_output ? s->out_w : s->w;
  const uint32_t c = is_output ? s->out_c : s->c;
  const enum np_lifetime lifetime = is_output ? NP_OUTPUT : NP_INPUT;
  return s->nchw ? model_tensor(model, lifetime, 4, s->n, c, h, w)
                 : model_tensor(model, lifetime, 4, s->n, h, w, c);
}

/* Appends an argument to the model's last operation. */
static void argument(struct model *model, uint32_t operand) {
  struct np_operation *operation = &model->operations[model->graph.n_operations - 1];
  model->arguments[model->graph.n_operations - 1][0][operation->n_inputs++] = operand;
}

static void padding_arguments(struct model *model, const struct scene *s) {
  if (s->padding_code == 0) {
    const uint32_t pads[4] = {s->pad_left, s->pad_right, s->pad_top, s->pad_bottom};
    for (size_t i = 0; i < 4; i++) {
      argument(model, model_i32(model, (int32_t)pads[i]));
    }
  } else {
    argument(model, model_i32(model, s->padding_code));
  }
  argument(model, model_i32(model, (int32_t)s->stride_w));
  argument(model, model_i32(model, (int32_t)s->stride_h));
}

static void tail_arguments(struct model *model, const struct scene *s, int dilates) {
  argument(model, model_i32(model, s->fuse));
  argument(model, model_bool(model, s->nchw));
  if (dilates) {
    argument(model, model_i32(model, (int32_t)s->dilation_w));
    argument(model, model_i32(model, (int32_t)s->dilation_h));
  }
}

enum which { PLAIN, GROUPED, DEPTHWISE };

static float conv_value(const struct scene *s, enum which which, const float *image,
                        const float *weights, const float *bias, uint32_t n, uint32_t y, uint32_t x,
                        uint32_t oc) {
  double sum = bias[oc];
  const uint32_t per_group = s->c / s->groups;
  const uint32_t first =
      which == DEPTHWISE ? oc / s->multiplier : oc / (s->out_c / s->groups) * per_group;
  const uint32_t count = which == DEPTHWISE ? 1 : per_group;
  for (uint32_t ky = 0; ky < s->filter_h; ky++) {
    for (uint32_t kx = 0; kx < s->filter_w; kx++) {
      for (uint32_t k = 0; k < count; k++) {
        const long from = cell(s, n, y, x, ky, kx, first + k);
        const size_t w = which == DEPTHWISE
                             ? ((size_t)ky * s->filter_w + kx) * s->out_c + oc
                             : (((size_t)oc * s->filter_h + ky) * s->filter_w + kx) * count + k;
        sum += from < 0 ? 0.0 : (double)image[from] * (double)weights[w];
      }
    }
  }
  return fused(sum, s->fuse);
}

static void test_conv(uint64_t *seed, enum which which, int late_weights) {
  const int dilates = which != GROUPED && np_test_between(seed, 0, 1) != 0;
  struct scene s = random_scene(seed, dilates);
  s.groups = which == GROUPED ? np_test_between(seed, 1, 3) : 1;
  s.multiplier = which == DEPTHWISE ? np_test_between(seed, 1, 2) : 1;
  s.c = s.groups * np_test_between(seed, 1, which == DEPTHWISE ? 70 : 9);
  s.out_c = which == DEPTHWISE ? s.c * s.multiplier : s.groups * np_test_between(seed, 1, 40);
  struct model *model = model_new();
  const enum np_lifetime lifetime = late_weights ? NP_INPUT : NP_CONSTANT;
  const uint32_t in = image_operand(model, &s, 0);
  const uint32_t weights =
      which == DEPTHWISE
          ? model_tensor(model, lifetime, 4, 1u, s.filter_h, s.filter_w, s.out_c)
          : model_tensor(model, lifetime, 4, s.out_c, s.filter_h, s.filter_w, s.c / s.groups);
  const uint32_t bias = model_tensor(model, lifetime, 1, s.out_c);
  const uint32_t out = image_operand(model, &s, 1);
  const size_t n_out = np_operand_elements(&model->operands[out]);
  float *data[3] = {random_floats(seed, np_operand_elements(&model->operands[in])),
                    random_floats(seed, np_operand_elements(&model->operands[weights])),
                    random_floats(seed, s.out_c)};
  if (!late_weights) {
    model_value(model, weights, data[1]);
    model_value(model, bias, data[2]);
  }
  const int32_t codes[3] = {ANEURALNETWORKS_CONV_2D, ANEURALNETWORKS_GROUPED_CONV_2D,
                            ANEURALNETWORKS_DEPTHWISE_CONV_2D};
  model_operation(model, codes[which], out, 3, in, weights, bias);
  padding_arguments(model, &s);
  if (which != PLAIN) {
    argument(model, model_i32(model, (int32_t)(which == GROUPED ? s.groups : s.multiplier)));
  }
  tail_arguments(model, &s, dilates);
  float *found = random_floats(seed, n_out);
  float *wanted = random_floats(seed, n_out);
  for (uint32_t n = 0; n < s.n; n++) {
    for (uint32_t y = 0; y < s.out_h; y++) {
      for (uint32_t x = 0; x < s.out_w; x++) {
        for (uint32_t oc = 0; oc < s.out_c; oc++) {
          wanted[at(s.nchw, n, y, x, oc, s.out_h, s.out_w, s.out_c)] =
              conv_value(&s, which, data[0], data[1], data[2], n, y, x, oc);
        }
      }
    }
  }
  struct np_message why = {""};
  if (!CHECK(model_run(model, (const float *const *)data, found, n_out, &why) == NP_OK)) {
    (void)fprintf(stderr, "%s\n", why.text);
  }
  CHECK(worst(found, wanted, n_out) < 2e-5f);
  for (size_t i = 0; i < 3; i++) {
    free(data[i]);
  }
  free(found);
  free(wanted);
  free(model);
}

static void test_pool(uint64_t *seed, int32_t code) {
  struct scene s = random_scene(seed, 0);
  s.c = np_test_between(seed, 1, 20);
  s.out_c = s.c;
  struct model *model = model_new();
  const uint32_t in = image_operand(model, &s, 0);
  const uint32_t out = image_operand(model, &s, 1);
  model_operation(model, code, out, 1, in);
  padding_arguments(model, &s);
  argument(model, model_i32(model, (int32_t)s.filter_w));
  argument(model, model_i32(model, (int32_t)s.filter_h));
  tail_arguments(model, &s, 0);
  const size_t n_out = np_operand_elements(&model->operands[out]);
  float *image = random_floats(seed, np_operand_elements(&model->operands[in]));
  float *found = random_floats(seed, n_out);
  float *wanted = random_floats(seed, n_out);
  int all_inside = 1; /* windows wholly in the padding are refused */
  for (size_t i = 0; i < n_out; i++) {
    const uint32_t c = (uint32_t)(s.nchw ? i / s.out_w / s.out_h % s.c : i % s.c);
    const uint32_t x = (uint32_t)(s.nchw ? i % s.out_w : i / s.c % s.out_w);
    const uint32_t y = (uint32_t)(s.nchw ? i / s.out_w % s.out_h : i / s.c / s.out_w % s.out_h);
    const uint32_t n = (uint32_t)(i / s.c / s.out_w / s.out_h);
    double sum = 0;
    double top = -HUGE_VAL;
    uint32_t count = 0;
    for (uint32_t k = 0; k < s.filter_h * s.filter_w; k++) {
      const long from = cell(&s, n, y, x, k / s.filter_w, k % s.filter_w, c);
      if (from >= 0) {
        const double value = (double)image[from];
        sum += code == ANEURALNETWORKS_L2_POOL_2D ? value * value : value;
        top = fmax(top, value);
        count++;
      }
    }
    all_inside &= count > 0;
    const double mean = sum / count;
    wanted[i] = fused(code == ANEURALNETWORKS_MAX_POOL_2D  ? top
                      : code == ANEURALNETWORKS_L2_POOL_2D ? sqrt(mean)
                                                           : mean,
                      s.fuse);
  }
  struct np_message why = {""};
  const float *const inputs[1] = {image};
  const enum np_status status = model_run(model, inputs, found, n_out, &why);
  if (all_inside) {
    CHECK(status == NP_OK);
    CHECK(worst(found, wanted, n_out) < 1e-5f);
  } else {
    CHECK(status == NP_BAD_MODEL);
    CHECK_TEXT(why.text, "wholly in the padding");
  }
  free(image);
  free(found);
  free(wanted);
  free(model);
}

static void test_linear(uint64_t *seed, int late_weights) {
  const uint32_t batch = np_test_between(seed, 1, 5);
  const uint32_t inputs = np_test_between(seed, 1, 300) * 2;
  const uint32_t units = np_test_between(seed, 1, 70);
  struct model *model = model_new();
  const enum np_lifetime lifetime = late_weights ? NP_INPUT : NP_CONSTANT;
  const uint32_t in = model_tensor(model, NP_INPUT, 4, batch, 1u, 2u, inputs / 2);
  const uint32_t weights = model_tensor(model, lifetime, 2, units, inputs);
  const uint32_t bias = model_tensor(model, lifetime, 1, units);
  const uint32_t out = model_tensor(model, NP_OUTPUT, 2, batch, units);
  float *data[3] = {random_floats(seed, (size_t)batch * inputs),
                    random_floats(seed, (size_t)units * inputs), random_floats(seed, units)};
  if (!late_weights) {
    model_value(model, weights, data[1]);
    model_value(model, bias, data[2]);
  }
  model_operation(model, ANEURALNETWORKS_FULLY_CONNECTED, out, 4, in, weights, bias,
                  model_i32(model, ANEURALNETWORKS_FUSED_RELU));
  const size_t n_out = (size_t)batch * units;
  float *found = random_floats(seed, n_out);
  float *wanted = random_floats(seed, n_out);
  for (size_t i = 0; i < n_out; i++) {
    double sum = (double)data[2][i % units];
    for (size_t k = 0; k < inputs; k++) {
      sum += (double)data[0][i / units * inputs + k] * (double)data[1][i % units * inputs + k];
    }
    wanted[i] = fused(sum, ANEURALNETWORKS_FUSED_RELU);
  }
  struct np_message why = {""};
  CHECK(model_run(model, (const float *const *)data, found, n_out, &why) == NP_OK);
  CHECK(worst(found, wanted, n_out) < 5e-5f);
  for (size_t i = 0; i < 3; i++) {
    free(data[i]);
  }
  free(found);
  free(wanted);
  free(model);
}

/* Models that are refused when shapes are inferred. */
static void test_refused(void) {
  struct np_message why = {""};
  struct np_executor *executor = NULL;
  struct model *model = model_new();
  const uint32_t in = model_tensor(model, NP_INPUT, 4, 1u, 5u, 5u, 3u);
  const uint32_t weights = model_tensor(model, NP_INPUT, 4, 4u, 3u, 3u, 2u);
  const uint32_t bias = model_tensor(model, NP_INPUT, 1, 4u);
  const uint32_t out = model_tensor(model, NP_OUTPUT, 0);
  const uint32_t one = model_i32(model, 1);
  const uint32_t zero = model_i32(model, 0);
  model_operation(model, ANEURALNETWORKS_CONV_2D, out, 7, in, weights, bias, one, one, one, zero);
  CHECK(model_check(model, &why) == NP_OK);
  CHECK(np_executor_create(&model->graph, NULL, &executor, &why) == NP_BAD_MODEL);
  CHECK_TEXT(why.text,
             "operation 0 (CONV_2D): weights take 2 channels in 1 groups, the input has 3");
  model->operands[weights].dims[3] = 3;
  model->arguments[0][0][4] = zero;
  CHECK(np_executor_create(&model->graph, NULL, &executor, &why) == NP_BAD_MODEL);
  CHECK_TEXT(why.text, "stride over width (input 4) is 0");
  model->arguments[0][0][4] = one;
  model->arguments[0][0][3] = zero;
  CHECK(np_executor_create(&model->graph, NULL, &executor, &why) == NP_BAD_MODEL);
  CHECK_TEXT(why.text, "padding code (input 3) is 0, wanted 1 or 2");
  model->arguments[0][0][3] = one;
  model->operands[bias].dims[0] = 5;
  CHECK(np_executor_create(&model->graph, NULL, &executor, &why) == NP_BAD_MODEL);
  CHECK_TEXT(why.text, "bias (input 2) has 5 elements");
  model->operands[bias].dims[0] = 4;
  CHECK(np_executor_create(&model->graph, NULL, &executor, &why) == NP_OK);
  np_executor_free(executor);
  free(model);
}

int main(void) {
  uint64_t seed = 3;
  for (int i = 0; i < 60; i++) {
    test_conv(&seed, PLAIN, i % 4 == 0);
    test_conv(&seed, GROUPED, i % 4 == 0);
    test_conv(&seed, DEPTHWISE, i % 4 == 0);
    test_pool(&seed, ANEURALNETWORKS_AVERAGE_POOL_2D);
    test_pool(&seed, ANEURALNETWORKS_MAX_POOL_2D);
    test_pool(&seed, ANEURALNETWORKS_L2_POOL_2D);
    test_linear(&seed, i % 4 == 0);
  }
  test_refused();
  return np_test_exit();
}
