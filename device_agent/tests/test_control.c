/* IF and WHILE, and shapes known only at run time. */
#include "np_test_model.h"

/* A model operand that runs `sub`, which np_graph_check has accepted. */
static uint32_t model_model(struct model *model, const struct model *sub) {
  const uint32_t index = model_operand(model, NP_TYPE_MODEL, NP_CONSTANT, 0, NULL);
  model->operands[index].value = &sub->graph;
  return index;
}

/* y = code(x) over floats of shape [n], 0 for unknown. */
static struct model *unary(int32_t code, uint32_t n) {
  struct np_message why = {""};
  struct model *model = model_new();
  const uint32_t x = model_tensor(model, NP_INPUT, 1, n);
  const uint32_t y = model_tensor(model, NP_OUTPUT, 1, n);
  model_operation(model, code, y, 1, x);
  CHECK(model_check(model, &why) == NP_OK);
  return model;
}

static enum np_status run(struct np_executor *executor, struct np_buffer *in, struct np_buffer *out,
                          const struct np_limits *limits, struct np_message *why) {
  uint32_t too_small;
  return np_executor_run(executor, in, out, limits, &too_small, why);
}

static void test_if(void) {
  struct np_message why = {""};
  struct model *negated = unary(ANEURALNETWORKS_NEG, 0);
  struct model *absolute = unary(ANEURALNETWORKS_ABS, 0);
  struct model *model = model_new();
  const uint32_t one = 1;
  const uint32_t which = model_operand(model, NP_TYPE_TENSOR_BOOL8, NP_INPUT, 1, &one);
  const uint32_t x = model_tensor(model, NP_INPUT, 1, 0u);
  const uint32_t y = model_tensor(model, NP_OUTPUT, 1, 0u);
  const uint32_t then = model_model(model, negated);
  const uint32_t other = model_model(model, absolute);
  model_operation(model, ANEURALNETWORKS_IF, y, 4, which, then, other, x);
  struct np_executor *executor = NULL;
  CHECK(model_check(model, &why) == NP_OK);
  CHECK(np_executor_create(&model->graph, NULL, &executor, &why) == NP_OK);
  for (unsigned char holds = 0; holds < 2; holds++) {
    for (uint32_t n = 1; n < 4; n++) { /* the shape differs from run to run */
      float values[3] = {-2, 3, -4};
      float found[3] = {9, 9, 9};
      struct np_buffer in[2] = {
          {.data = &holds, .length = 1},
          {.data = values, .length = n * sizeof(float), .rank = 1, .dims = {n}}};
      struct np_buffer out = {.data = found, .length = n * sizeof(float)};
      CHECK(run(executor, in, &out, NULL, &why) == NP_OK);
      CHECK(out.rank == 1 && out.dims[0] == n);
      CHECK(found[0] == 2);
      CHECK(n < 2 || found[1] == (holds ? -3.0f : 3.0f));
      CHECK(n > 2 || found[2] == 9);
    }
  }
  np_executor_free(executor);

  model->arguments[0][0][1] = which; /* a tensor instead of a model */
  CHECK(model_check(model, &why) == NP_BAD_MODEL);
  CHECK_TEXT(why.text, "wanted MODEL");
  model->arguments[0][0][1] = then;
  model->operands[then].value = NULL;
  CHECK(model_check(model, &why) == NP_BAD_MODEL);
  CHECK_TEXT(why.text, "input 1 (operand 3) is a model that is not set");
  free(model);
  free(negated);
  free(absolute);
}

/* state < limit, both floats of shape [1]. */
static struct model *less_than(void) {
  struct np_message why = {""};
  struct model *model = model_new();
  const uint32_t one = 1;
  const uint32_t state = model_tensor(model, NP_INPUT, 1, 1u);
  const uint32_t limit = model_tensor(model, NP_INPUT, 1, 1u);
  const uint32_t y = model_operand(model, NP_TYPE_TENSOR_BOOL8, NP_OUTPUT, 1, &one);
  model_operation(model, ANEURALNETWORKS_LESS, y, 2, state, limit);
  CHECK(model_check(model, &why) == NP_OK);
  return model;
}

/* state + step; nothing reads the limit. */
static struct model *step_by(const float *step) {
  struct np_message why = {""};
  struct model *model = model_new();
  const uint32_t state = model_tensor(model, NP_INPUT, 1, 1u);
  (void)model_tensor(model, NP_INPUT, 1, 1u);
  const uint32_t add = model_tensor(model, NP_CONSTANT, 1, 1u);
  model_value(model, add, step);
  const uint32_t y = model_tensor(model, NP_OUTPUT, 1, 1u);
  model_operation(model, ANEURALNETWORKS_ADD, y, 3, state, add, model_i32(model, 0));
  CHECK(model_check(model, &why) == NP_OK);
  return model;
}

static void test_while(void) {
  static const float steps[2] = {1.5f, 0.0f};
  struct np_message why = {""};
  struct model *condition = less_than();
  for (int endless = 0; endless < 2; endless++) {
    struct model *body = step_by(&steps[endless]);
    struct model *model = model_new();
    const uint32_t from = model_tensor(model, NP_INPUT, 1, 1u);
    const uint32_t limit = model_tensor(model, NP_INPUT, 1, 1u);
    const uint32_t y = model_tensor(model, NP_OUTPUT, 1, 1u);
    model_operation(model, ANEURALNETWORKS_WHILE, y, 4, model_model(model, condition),
                    model_model(model, body), from, limit);
    struct np_executor *executor = NULL;
    CHECK(model_check(model, &why) == NP_OK);
    CHECK(np_executor_create(&model->graph, NULL, &executor, &why) == NP_OK);
    float start = 1, end = 7, found = 0;
    struct np_buffer in[2] = {{.data = &start, .length = sizeof start},
                              {.data = &end, .length = sizeof end}};
    struct np_buffer out = {.data = &found, .length = sizeof found};
    const struct np_limits limits = {.loop_timeout_ns = 20000000};
    if (endless) {
      CHECK(run(executor, in, &out, &limits, &why) == NP_DEADLINE);
      CHECK_TEXT(why.text, "the loop has not ended within its timeout");
    } else {
      CHECK(run(executor, in, &out, &limits, &why) == NP_OK);
      CHECK(found == 7.0f);
      start = 100; /* no iteration: inputs become outputs */
      CHECK(run(executor, in, &out, &limits, &why) == NP_OK);
      CHECK(found == 100.0f);
    }
    np_executor_free(executor);
    free(model);
    free(body);
  }
  free(condition);
}

static void test_models_that_do_not_fit(void) {
  struct np_message why = {""};
  struct model *condition = less_than();
  struct model *body = unary(ANEURALNETWORKS_ABS, 1);
  struct model *model = model_new();
  const uint32_t x = model_tensor(model, NP_INPUT, 1, 1u);
  const uint32_t y = model_tensor(model, NP_OUTPUT, 1, 1u);
  model_operation(model, ANEURALNETWORKS_WHILE, y, 4, model_model(model, condition),
                  model_model(model, body), x, x);
  CHECK(model_check(model, &why) == NP_BAD_MODEL);
  CHECK_TEXT(why.text, "the body model has 1 inputs, wanted 2");
  model->operations[0].n_inputs = 3;
  CHECK(model_check(model, &why) == NP_BAD_MODEL);
  CHECK_TEXT(why.text, "the condition model has 2 inputs, wanted 1");
  free(model);
  free(body);
  free(condition);
}

/* An IF whose branches are IFs, five deep: refused, since executors would multiply. */
static void test_depth(void) {
  enum { DEPTH = 6 };
  struct np_message why = {""};
  struct model *models[DEPTH];
  const uint32_t one = 1;
  models[0] = unary(ANEURALNETWORKS_ABS, 1);
  for (int d = 1; d < DEPTH; d++) {
    models[d] = model_new();
    const unsigned char yes = 1;
    const uint32_t always = model_operand(models[d], NP_TYPE_TENSOR_BOOL8, NP_CONSTANT, 1, &one);
    memcpy(models[d]->scalars[always], &yes, 1);
    model_value(models[d], always, models[d]->scalars[always]);
    const uint32_t x = model_tensor(models[d], NP_INPUT, 1, 1u);
    const uint32_t y = model_tensor(models[d], NP_OUTPUT, 1, 1u);
    model_operation(models[d], ANEURALNETWORKS_IF, y, 4, always,
                    model_model(models[d], models[d - 1]), model_model(models[d], models[d - 1]),
                    x);
    const enum np_status status = model_check(models[d], &why);
    CHECK(status == (d <= 4 ? NP_OK : NP_UNSUPPORTED));
  }
  CHECK_TEXT(why.text, "models stand in models more than 4 deep");
  const float in = -3;
  const float *inputs = &in;
  float out = 0;
  CHECK(model_run(models[4], &inputs, &out, 1, &why) == NP_OK);
  CHECK(out == 3);
  for (int d = 0; d < DEPTH; d++) {
    free(models[d]);
  }
}

/* RESHAPE by a list computed by another operation: the shape is known only at run time. */
static void test_shape_from_a_value(void) {
  struct np_message why = {""};
  struct model *model = model_new();
  const uint32_t two = 2;
  const uint32_t x = model_tensor(model, NP_INPUT, 1, 6u);
  const uint32_t list = model_operand(model, NP_TYPE_TENSOR_INT32, NP_INPUT, 1, &two);
  const uint32_t most = model_operand(model, NP_TYPE_TENSOR_INT32, NP_TEMPORARY, 1, &two);
  const uint32_t y = model_tensor(model, NP_OUTPUT, 0);
  model_operation(model, ANEURALNETWORKS_MAXIMUM, most, 2, list, list);
  model_operation(model, ANEURALNETWORKS_RESHAPE, y, 2, x, most);
  struct np_executor *executor = NULL;
  CHECK(model_check(model, &why) == NP_OK);
  CHECK(np_executor_create(&model->graph, NULL, &executor, &why) == NP_OK);
  const int32_t lists[2][2] = {{2, 3}, {-1, 1}};
  float values[6] = {1, 2, 3, 4, 5, 6};
  for (int i = 0; i < 2; i++) {
    float found[6];
    struct np_buffer in[2] = {{.data = values, .length = sizeof values},
                              {.data = (void *)(uintptr_t)lists[i], .length = sizeof lists[i]}};
    struct np_buffer out = {.data = found, .length = sizeof found};
    CHECK(run(executor, in, &out, NULL, &why) == NP_OK);
    CHECK(out.rank == 2 && out.dims[0] == (i == 0 ? 2u : 6u) && out.dims[1] == (i == 0 ? 3u : 1u));
    CHECK(memcmp(found, values, sizeof values) == 0);
    uint32_t too_small = 7;
    out.length = 8;
    CHECK(np_executor_run(executor, in, &out, NULL, &too_small, &why) == NP_BAD_ARGUMENT);
    CHECK(too_small == 0 && out.rank == 2);
  }
  np_executor_free(executor);
  free(model);
}

static void test_deadline(void) {
  struct np_message why = {""};
  struct model *model = unary(ANEURALNETWORKS_ABS, 1);
  struct np_executor *executor = NULL;
  CHECK(np_executor_create(&model->graph, NULL, &executor, &why) == NP_OK);
  float x = -1, y = 0;
  struct np_buffer in = {.data = &x, .length = sizeof x};
  struct np_buffer out = {.data = &y, .length = sizeof y};
  const struct np_limits past = {.deadline_ns = 1};
  CHECK(run(executor, &in, &out, &past, &why) == NP_DEADLINE);
  CHECK_TEXT(why.text, "the deadline has passed");
  CHECK(y == 0);
  np_executor_free(executor);
  free(model);
}

int main(void) {
  test_if();
  test_while();
  test_models_that_do_not_fit();
  test_depth();
  test_shape_from_a_value();
  test_deadline();
  return np_test_exit();
}
