/* The emulator from C: builds and runs a convolution through the API repeatedly, and misuses it.
 * Meant for the address and undefined-behaviour sanitizers. */
#define _GNU_SOURCE /* memfd_create */
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "np_test_api.h"

enum { SIZE = 12, DEPTH_IN = 3, DEPTH_OUT = 5, KERNEL = 3 };
enum { N_IN = SIZE * SIZE * DEPTH_IN, N_OUT = SIZE * SIZE * DEPTH_OUT };
enum { N_WEIGHTS = DEPTH_OUT * KERNEL * KERNEL * DEPTH_IN, N_THREADS = 4, N_MISUSES = 3000 };

struct convolution {
  ANeuralNetworksModel *model;
  ANeuralNetworksCompilation *compilation;
  float weights[N_WEIGHTS];
  float bias[DEPTH_OUT];
};

static void add_tensor(ANeuralNetworksModel *model, uint32_t rank, const uint32_t *dims) {
  const ANeuralNetworksOperandType type = {NP_TYPE_TENSOR_FLOAT32, rank, dims, 0, 0};
  CHECK(ANeuralNetworksModel_addOperand(model, &type) == OK);
}

static void add_number(ANeuralNetworksModel *model, int32_t index, int32_t value) {
  const ANeuralNetworksOperandType type = {NP_TYPE_INT32, 0, NULL, 0, 0};
  CHECK(ANeuralNetworksModel_addOperand(model, &type) == OK);
  CHECK(ANeuralNetworksModel_setOperandValue(model, index, &value, sizeof value) == OK);
}

/* Builds and compiles [1, SIZE, SIZE, DEPTH_IN] -> convolution, same padding, no activation. */
static void build(struct convolution *c) {
  const uint32_t in[] = {1, SIZE, SIZE, DEPTH_IN}, out[] = {1, SIZE, SIZE, DEPTH_OUT};
  const uint32_t weights[] = {DEPTH_OUT, KERNEL, KERNEL, DEPTH_IN}, bias[] = {DEPTH_OUT};
  const uint32_t inputs[] = {0, 1, 2, 3, 4, 5, 6}, output = 7, input = 0;
  const int32_t numbers[] = {ANEURALNETWORKS_PADDING_SAME, 1, 1, ANEURALNETWORKS_FUSED_NONE};
  uint64_t seed = 5;
  for (int i = 0; i < N_WEIGHTS; i++) {
    c->weights[i] = np_test_float(&seed);
  }
  for (int i = 0; i < DEPTH_OUT; i++) {
    c->bias[i] = np_test_float(&seed);
  }
  CHECK(ANeuralNetworksModel_create(&c->model) == OK);
  add_tensor(c->model, 4, in);
  add_tensor(c->model, 4, weights);
  add_tensor(c->model, 1, bias);
  CHECK(ANeuralNetworksModel_setOperandValue(c->model, 1, c->weights, sizeof c->weights) == OK);
  CHECK(ANeuralNetworksModel_setOperandValue(c->model, 2, c->bias, sizeof c->bias) == OK);
  for (int32_t i = 0; i < 4; i++) {
    add_number(c->model, 3 + i, numbers[i]);
  }
  add_tensor(c->model, 4, out);
  CHECK(ANeuralNetworksModel_addOperation(c->model, ANEURALNETWORKS_CONV_2D, 7, inputs, 1,
                                          &output) == OK);
  CHECK(ANeuralNetworksModel_identifyInputsAndOutputs(c->model, 1, &input, 1, &output) == OK);
  CHECK(ANeuralNetworksModel_finish(c->model) == OK);
  CHECK(ANeuralNetworksCompilation_create(c->model, &c->compilation) == OK);
  CHECK(ANeuralNetworksCompilation_finish(c->compilation) == OK);
}

static void destroy(struct convolution *c) {
  ANeuralNetworksCompilation_free(c->compilation);
  ANeuralNetworksModel_free(c->model);
}

/* Computes one output element by the definition. */
static float wanted_at(const struct convolution *c, const float *in, int y, int x, int depth) {
  float sum = c->bias[depth];
  for (int ky = 0; ky < KERNEL; ky++) {
    for (int kx = 0; kx < KERNEL; kx++) {
      const int iy = y + ky - 1, ix = x + kx - 1;
      if (iy < 0 || iy >= SIZE || ix < 0 || ix >= SIZE) {
        continue;
      }
      for (int d = 0; d < DEPTH_IN; d++) {
        sum += in[(iy * SIZE + ix) * DEPTH_IN + d] *
               c->weights[((depth * KERNEL + ky) * KERNEL + kx) * DEPTH_IN + d];
      }
    }
  }
  return sum;
}

static void check_result(const struct convolution *c, const float *in, const float *out) {
  float worst = 0;
  for (int y = 0; y < SIZE; y++) {
    for (int x = 0; x < SIZE; x++) {
      for (int d = 0; d < DEPTH_OUT; d++) {
        const float gap = out[(y * SIZE + x) * DEPTH_OUT + d] - wanted_at(c, in, y, x, d);
        worst = gap > worst ? gap : -gap > worst ? -gap : worst;
      }
    }
  }
  CHECK(worst < 1e-5f);
}

static void test_run(struct convolution *c, uint64_t seed, int asynchronous) {
  float in[N_IN], out[N_OUT] = {0};
  for (int i = 0; i < N_IN; i++) {
    in[i] = np_test_float(&seed);
  }
  ANeuralNetworksExecution *execution = NULL;
  CHECK(ANeuralNetworksExecution_create(c->compilation, &execution) == OK);
  CHECK(ANeuralNetworksExecution_setInput(execution, 0, NULL, in, sizeof in) == OK);
  CHECK(ANeuralNetworksExecution_setOutput(execution, 0, NULL, out, sizeof out) == OK);
  if (asynchronous) {
    ANeuralNetworksEvent *event = NULL;
    CHECK(ANeuralNetworksExecution_startCompute(execution, &event) == OK);
    CHECK(ANeuralNetworksEvent_wait(event) == OK);
    ANeuralNetworksEvent_free(event);
  } else {
    CHECK(ANeuralNetworksExecution_compute(execution) == OK);
  }
  ANeuralNetworksExecution_free(execution);
  check_result(c, in, out);
}

struct thread_work {
  struct convolution *convolution;
  uint64_t seed;
};

static void *run_many(void *argument) {
  const struct thread_work *work = argument;
  for (uint64_t i = 0; i < 8; i++) {
    test_run(work->convolution, work->seed + i, (int)(i & 1));
  }
  return NULL;
}

static void test_threads(struct convolution *c) {
  pthread_t threads[N_THREADS];
  struct thread_work works[N_THREADS];
  for (int i = 0; i < N_THREADS; i++) {
    works[i] = (struct thread_work){c, 100u * (uint64_t)(i + 1)};
    CHECK(pthread_create(&threads[i], NULL, run_many, &works[i]) == 0);
  }
  for (int i = 0; i < N_THREADS; i++) {
    CHECK(pthread_join(threads[i], NULL) == 0);
  }
}

static void test_memory(struct convolution *c) {
  const size_t size = sizeof(float) * (N_IN + N_OUT);
  const int fd = memfd_create("np", 0);
  CHECK(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
  float *view = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  CHECK(view != MAP_FAILED);
  uint64_t seed = 77;
  for (int i = 0; i < N_IN; i++) {
    view[i] = np_test_float(&seed);
  }
  ANeuralNetworksMemory *memory = NULL;
  CHECK(ANeuralNetworksMemory_createFromFd(size, PROT_READ | PROT_WRITE, fd, 0, &memory) == OK);
  (void)close(fd);
  ANeuralNetworksExecution *execution = NULL;
  CHECK(ANeuralNetworksExecution_create(c->compilation, &execution) == OK);
  CHECK(ANeuralNetworksExecution_setInputFromMemory(execution, 0, NULL, memory, 0,
                                                    sizeof(float) * N_IN) == OK);
  CHECK(ANeuralNetworksExecution_setOutputFromMemory(
            execution, 0, NULL, memory, sizeof(float) * N_IN, sizeof(float) * N_OUT) == OK);
  CHECK(ANeuralNetworksExecution_compute(execution) == OK);
  check_result(c, view, view + N_IN);
  ANeuralNetworksExecution_free(execution);
  ANeuralNetworksMemory_free(memory);
  (void)munmap(view, size);
}

/* Random operands, values, operations and lists: they give a result code, never a fault. */
static void test_random_models(void) {
  uint64_t seed = 11;
  unsigned finished = 0, compiled = 0;
  for (int round = 0; round < N_MISUSES; round++) {
    ANeuralNetworksModel *model = NULL;
    CHECK(ANeuralNetworksModel_create(&model) == OK);
    const uint32_t n = np_test_between(&seed, 1, 8);
    float values[64] = {0};
    for (uint32_t i = 0; i < n; i++) {
      uint32_t dims[5];
      for (int d = 0; d < 5; d++) {
        dims[d] = np_test_between(&seed, 0, 4);
      }
      const int scalar = np_test_between(&seed, 0, 3) == 0;
      const uint32_t rank = scalar ? 0 : np_test_between(&seed, 1, 5);
      const ANeuralNetworksOperandType type = {scalar ? NP_TYPE_INT32 : NP_TYPE_TENSOR_FLOAT32,
                                               rank, rank ? dims : NULL, 0, 0};
      CHECK(ANeuralNetworksModel_addOperand(model, &type) == OK);
      if (scalar || np_test_between(&seed, 0, 4) == 0) {
        const size_t length = scalar ? 4 : 4u * np_test_between(&seed, 0, 64);
        (void)ANeuralNetworksModel_setOperandValue(model, (int32_t)i, values, length);
      }
    }
    for (uint32_t o = np_test_between(&seed, 1, 3); o > 0; o--) {
      uint32_t lists[2][10];
      for (int i = 0; i < 10; i++) {
        lists[0][i] = np_test_between(&seed, 0, n);
        lists[1][i] = np_test_between(&seed, 0, n);
      }
      const int simple = np_test_between(&seed, 0, 1) == 0;
      (void)ANeuralNetworksModel_addOperation(
          model, simple ? ANEURALNETWORKS_RELU : (int32_t)np_test_between(&seed, 0, 110),
          simple ? 1 : np_test_between(&seed, 0, 10), lists[0], 1, lists[1]);
    }
    const uint32_t ends[2] = {np_test_between(&seed, 0, n), np_test_between(&seed, 0, n)};
    (void)ANeuralNetworksModel_identifyInputsAndOutputs(model, 1, &ends[0], 1, &ends[1]);
    if (ANeuralNetworksModel_finish(model) == OK) {
      finished++;
      ANeuralNetworksCompilation *compilation = NULL;
      CHECK(ANeuralNetworksCompilation_create(model, &compilation) == OK);
      compiled += ANeuralNetworksCompilation_finish(compilation) == OK;
      ANeuralNetworksCompilation_free(compilation);
    }
    ANeuralNetworksModel_free(model);
  }
  CHECK(finished > 0 && compiled > 0 && finished < N_MISUSES);
}

static void test_misuse(struct convolution *c) {
  float in[N_IN] = {0}, out[N_OUT];
  ANeuralNetworksExecution *execution = NULL;
  ANeuralNetworksCompilation *open = NULL;
  CHECK(ANeuralNetworksCompilation_create(c->model, &open) == OK);
  CHECK(ANeuralNetworksExecution_create(open, &execution) == ANEURALNETWORKS_BAD_STATE);
  CHECK(execution == NULL);
  ANeuralNetworksCompilation_free(open);
  CHECK(ANeuralNetworksModel_finish(c->model) == ANEURALNETWORKS_BAD_STATE);
  CHECK(ANeuralNetworksCompilation_finish(c->compilation) == ANEURALNETWORKS_BAD_STATE);
  CHECK(ANeuralNetworksExecution_create(c->compilation, &execution) == OK);
  CHECK(ANeuralNetworksExecution_setInput(execution, 0, NULL, in, sizeof in - 4) ==
        ANEURALNETWORKS_BAD_DATA);
  CHECK(ANeuralNetworksExecution_setInput(execution, 3, NULL, in, sizeof in) ==
        ANEURALNETWORKS_BAD_DATA);
  CHECK(ANeuralNetworksExecution_compute(execution) == ANEURALNETWORKS_BAD_DATA);
  CHECK(ANeuralNetworksExecution_setInput(execution, 0, NULL, in, sizeof in) == OK);
  CHECK(ANeuralNetworksExecution_setOutput(execution, 0, NULL, out, sizeof out) == OK);
  ANeuralNetworksEvent *event = NULL;
  CHECK(ANeuralNetworksExecution_startCompute(execution, &event) == OK);
  ANeuralNetworksExecution *const gone = execution;
  ANeuralNetworksExecution_free(gone); /* waits */
  CHECK(ANeuralNetworksEvent_wait(event) == OK);
  ANeuralNetworksEvent_free(event);
  check_result(c, in, out);
}

int main(void) {
  struct convolution convolution;
  build(&convolution);
  for (uint64_t i = 0; i < 4; i++) {
    test_run(&convolution, i, (int)(i & 1));
  }
  test_threads(&convolution);
  test_memory(&convolution);
  test_misuse(&convolution);
  destroy(&convolution);
  test_random_models();
  return np_test_exit();
}
