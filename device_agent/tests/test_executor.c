/* The executor: memory reuse, shapes known late, buffers that do not fit. */
#include <float.h>

#include "np_test_model.h"

static enum np_status run_once(struct np_executor *executor, struct np_buffer *in,
                               struct np_buffer *out, struct np_message *why) {
  uint32_t too_small;
  return np_executor_run(executor, in, out, NULL, &too_small, why);
}

/* Random graphs of additions and multiplications over one shape: the test recomputes every value in
 * its own memory, which detects a temporary that is overwritten too early. */
static void test_reuse(uint64_t *seed) {
  enum { N = 60, LENGTH = 37 };
  struct model *model = model_new();
  struct np_message why = {""};
  uint32_t made[N + 1];
  static float values[N + 1][LENGTH];
  made[0] = model_tensor(model, NP_INPUT, 1, (uint32_t)LENGTH);
  const uint32_t fuse = model_i32(model, ANEURALNETWORKS_FUSED_RELU1);
  for (size_t i = 0; i < LENGTH; i++) {
    values[0][i] = np_test_float(seed);
  }
  for (uint32_t i = 1; i <= N; i++) {
    const uint32_t oldest = i > 6 ? i - 6 : 0;
    const uint32_t a = np_test_between(seed, oldest, i - 1);
    const uint32_t b = np_test_between(seed, 0, i - 1);
    const int is_output = i == N || i % 20 == 0;
    made[i] = model_tensor(model, is_output ? NP_OUTPUT : NP_TEMPORARY, 1, (uint32_t)LENGTH);
    const int is_sum = np_test_between(seed, 0, 2) != 0;
    model_operation(model, is_sum ? ANEURALNETWORKS_SUB : ANEURALNETWORKS_MUL, made[i], 3, made[a],
                    made[b], fuse);
    for (size_t j = 0; j < LENGTH; j++) {
      const float x = is_sum ? values[a][j] - values[b][j] : values[a][j] * values[b][j];
      values[i][j] = fmaxf(-1.0f, fminf(1.0f, x));
    }
  }
  struct np_executor *executor = NULL;
  CHECK(model_check(model, &why) == NP_OK);
  CHECK(np_executor_create(&model->graph, NULL, &executor, &why) == NP_OK);
  float found[3][LENGTH];
  struct np_buffer in = {.data = values[0], .length = sizeof values[0]};
  struct np_buffer out[3];
  for (int repeat = 0; repeat < 2; repeat++) {
    memset(found, 0, sizeof found);
    for (size_t i = 0; i < 3; i++) {
      out[i] = (struct np_buffer){.data = found[i], .length = sizeof found[i]};
    }
    CHECK(run_once(executor, &in, out, &why) == NP_OK);
    for (size_t i = 0; i < 3; i++) {
      CHECK(worst(found[i], values[20 * (i + 1)], LENGTH) == 0.0f);
      CHECK(out[i].rank == 1 && out[i].dims[0] == LENGTH);
    }
  }
  np_executor_free(executor);
  free(model);
}

/* x -> (relu(x), tanh-free branch), joined again: a diamond over a dynamic batch. */
static void test_dynamic(void) {
  struct model *model = model_new();
  struct np_message why = {""};
  const uint32_t in = model_tensor(model, NP_INPUT, 2, 0u, 3u);
  const uint32_t left = model_tensor(model, NP_TEMPORARY, 0);
  const uint32_t right = model_tensor(model, NP_TEMPORARY, 0);
  const uint32_t out = model_tensor(model, NP_OUTPUT, 0);
  const uint32_t none = model_i32(model, 0);
  model_operation(model, ANEURALNETWORKS_RELU, left, 1, in);
  model_operation(model, ANEURALNETWORKS_NEG, right, 1, in);
  model_operation(model, ANEURALNETWORKS_ADD, out, 3, left, right, none);
  struct np_executor *executor = NULL;
  CHECK(model_check(model, &why) == NP_OK);
  CHECK(np_executor_create(&model->graph, NULL, &executor, &why) == NP_OK);
  float x[15];
  float y[15];
  for (size_t i = 0; i < 15; i++) {
    x[i] = (float)i - 7.0f;
  }
  for (uint32_t batch = 5; batch-- > 0;) { /* 0 is a batch of nothing */
    struct np_buffer buffer = {.data = x, .length = sizeof x, .rank = 2, .dims = {batch, 3}};
    struct np_buffer result = {.data = y, .length = sizeof y};
    CHECK(run_once(executor, &buffer, &result, &why) == NP_OK);
    CHECK(result.rank == 2 && result.dims[0] == batch && result.dims[1] == 3);
    for (size_t i = 0; i < batch * 3u; i++) {
      CHECK(y[i] == (x[i] > 0.0f ? 0.0f : -x[i]));
    }
  }
  struct np_buffer buffer = {.data = x, .length = sizeof x};
  struct np_buffer result = {.data = y, .length = sizeof y};
  CHECK(run_once(executor, &buffer, &result, &why) == NP_BAD_ARGUMENT);
  CHECK_TEXT(why.text, "unknown dimensions");
  buffer.rank = 2;
  buffer.dims[0] = 2;
  buffer.dims[1] = 4;
  CHECK(run_once(executor, &buffer, &result, &why) == NP_BAD_ARGUMENT);
  CHECK_TEXT(why.text, "contradicts");
  buffer.dims[1] = 3;
  buffer.length = 23;
  CHECK(run_once(executor, &buffer, &result, &why) == NP_BAD_ARGUMENT);
  CHECK_TEXT(why.text, "input 0 has 23 bytes, wanted 24");
  buffer.length = 24;
  result.length = 20;
  uint32_t too_small;
  CHECK(np_executor_run(executor, &buffer, &result, NULL, &too_small, &why) == NP_BAD_ARGUMENT);
  CHECK(too_small == 0 && result.rank == 2 && result.dims[0] == 2);
  CHECK_TEXT(why.text, "output 0 has room for 20 bytes, wanted 24");
  np_executor_free(executor);
  free(model);
}

/* Buffers and constants that are not aligned, and an unwanted output. */
static void test_unaligned(void) {
  struct model *model = model_new();
  struct np_message why = {""};
  unsigned char bytes[4 * 17 + 1];
  unsigned char in_bytes[4 * 4 + 3];
  unsigned char out_bytes[4 * 4 + 1];
  const float constant[4] = {1.0f, 2.0f, 3.0f, 4.0f};
  const float x[4] = {10.0f, 20.0f, 30.0f, 40.0f};
  memcpy(bytes + 1, constant, sizeof constant);
  memcpy(in_bytes + 3, x, sizeof x);
  const uint32_t in = model_tensor(model, NP_INPUT, 1, 4u);
  const uint32_t second = model_tensor(model, NP_CONSTANT, 1, 4u);
  model_value(model, second, bytes + 1);
  const uint32_t out = model_tensor(model, NP_OUTPUT, 1, 4u);
  const uint32_t unwanted = model_tensor(model, NP_OUTPUT, 1, 4u);
  const uint32_t none = model_i32(model, 0);
  model_operation(model, ANEURALNETWORKS_MUL, unwanted, 3, in, second, none);
  model_operation(model, ANEURALNETWORKS_ADD, out, 3, unwanted, second, none);
  struct np_executor *executor = NULL;
  CHECK(model_check(model, &why) == NP_OK);
  CHECK(np_executor_create(&model->graph, NULL, &executor, &why) == NP_OK);
  struct np_buffer buffer = {.data = in_bytes + 3, .length = sizeof x};
  struct np_buffer results[2] = {{.data = out_bytes + 1, .length = sizeof x}, {.omitted = 1}};
  CHECK(run_once(executor, &buffer, results, &why) == NP_OK);
  float found[4];
  memcpy(found, out_bytes + 1, sizeof found);
  CHECK(found[0] == 11.0f && found[1] == 42.0f && found[2] == 93.0f && found[3] == 164.0f);
  CHECK(results[1].rank == 1 && results[1].dims[0] == 4);
  np_executor_free(executor);
  free(model);
}

/* A shape that comes as a model input; a shape that the model computes; a wrong declaration. */
static void test_late_values(void) {
  struct np_message why = {""};
  struct model *model = model_new();
  const uint32_t dims[1] = {2};
  const uint32_t in = model_tensor(model, NP_INPUT, 2, 2u, 3u);
  const uint32_t shape = model_operand(model, NP_TYPE_TENSOR_INT32, NP_INPUT, 1, dims);
  const uint32_t out = model_tensor(model, NP_OUTPUT, 2, 0u, 0u);
  model_operation(model, ANEURALNETWORKS_RESHAPE, out, 2, in, shape);
  struct np_executor *executor = NULL;
  CHECK(model_check(model, &why) == NP_OK);
  CHECK(np_executor_create(&model->graph, NULL, &executor, &why) == NP_OK);
  const float x[6] = {1, 2, 3, 4, 5, 6};
  float y[6];
  int32_t wanted[2] = {-1, 1};
  struct np_buffer ins[2] = {{.data = (void *)(uintptr_t)x, .length = sizeof x},
                             {.data = wanted, .length = sizeof wanted}};
  struct np_buffer result = {.data = y, .length = sizeof y};
  CHECK(run_once(executor, ins, &result, &why) == NP_OK);
  CHECK(result.dims[0] == 6 && result.dims[1] == 1 && memcmp(x, y, sizeof x) == 0);
  wanted[1] = 4;
  CHECK(run_once(executor, ins, &result, &why) == NP_RUN_FAILED);
  CHECK_TEXT(why.text, "operation 0 (RESHAPE): 6 elements do not fit");
  ins[0].omitted = 1;
  wanted[1] = 1;
  CHECK(run_once(executor, ins, &result, &why) != NP_OK);
  np_executor_free(executor);

  model->operands[out].dims[1] = 5;
  wanted[1] = 3;
  wanted[0] = 2;
  model_value(model, shape, wanted);
  model->graph.n_inputs = 1;
  CHECK(model_check(model, &why) == NP_OK);
  CHECK(np_executor_create(&model->graph, NULL, &executor, &why) == NP_BAD_MODEL);
  CHECK_TEXT(why.text, "is declared with 5 in dimension 1, wanted 3");
  CHECK(executor == NULL);
  free(model);
}

/* Android's arithmetic saturates at the largest finite numbers, the CPU engine's at infinity;
 * likewise for the maximum of minus infinities. One quotient is computed in the run, one of two
 * constants before. */
static void test_finite(void) {
  static const float x[4] = {1.0f, -2.0f, 0.0f, 3.0f};
  static const float zeros[4] = {0.0f, 0.0f, 0.0f, 2.0f};
  struct np_message why = {""};
  struct model *model = model_new();
  const uint32_t in = model_tensor(model, NP_INPUT, 1, 4u);
  const uint32_t divisor = model_tensor(model, NP_CONSTANT, 1, 4u);
  const uint32_t dividend = model_tensor(model, NP_CONSTANT, 1, 4u);
  model_value(model, divisor, zeros);
  model_value(model, dividend, x);
  const uint32_t none = model_i32(model, ANEURALNETWORKS_FUSED_NONE);
  const uint32_t late = model_tensor(model, NP_OUTPUT, 1, 4u);
  const uint32_t early = model_tensor(model, NP_TEMPORARY, 1, 4u);
  const uint32_t floored = model_tensor(model, NP_OUTPUT, 1, 4u);
  model_operation(model, ANEURALNETWORKS_DIV, late, 3, in, divisor, none);
  model_operation(model, ANEURALNETWORKS_DIV, early, 3, dividend, divisor, none);
  model_operation(model, ANEURALNETWORKS_FLOOR, floored, 1, early);
  static const float lowest[2] = {-INFINITY, -INFINITY};
  const uint32_t low = model_tensor(model, NP_CONSTANT, 1, 2u);
  model_value(model, low, lowest);
  const uint32_t greatest = model_tensor(model, NP_OUTPUT, 1, 1u);
  model_operation(model, ANEURALNETWORKS_REDUCE_MAX, greatest, 3, low,
                  model_list(model, 1, (const int32_t[]){0}, 0), model_bool(model, 1));
  CHECK(model_check(model, &why) == NP_OK);
  for (int finite = 0; finite < 2; finite++) {
    const struct np_executor_options options = {.finite = finite};
    const float most = finite ? FLT_MAX : INFINITY;
    struct np_executor *executor = NULL;
    CHECK(np_executor_create(&model->graph, &options, &executor, &why) == NP_OK);
    float found[2][4];
    struct np_buffer given = {.data = (void *)(uintptr_t)x, .length = sizeof x};
    float highest;
    struct np_buffer out[3] = {{.data = found[0], .length = sizeof found[0]},
                               {.data = found[1], .length = sizeof found[1]},
                               {.data = &highest, .length = sizeof highest}};
    CHECK(run_once(executor, &given, out, &why) == NP_OK);
    CHECK(highest == -most);
    for (size_t i = 0; i < 2; i++) {
      CHECK(found[i][0] == most && found[i][1] == -most && isnan(found[i][2]));
      CHECK(found[i][3] == (i == 0 ? 1.5f : 1.0f));
    }
    np_executor_free(executor);
  }
  free(model);
}

int main(void) {
  uint64_t seed = 5;
  for (int i = 0; i < 10; i++) {
    test_reuse(&seed);
  }
  test_dynamic();
  test_unaligned();
  test_late_values();
  test_finite();
  np_executor_free(NULL);
  return np_test_exit();
}
