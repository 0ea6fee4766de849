/* The path of an execution: it allocates nothing and takes no lock once a compilation has run, and
 * simultaneous executions get separate executors.
 *
 * The program's own malloc and pthread_mutex_lock override the C library's for the emulator, too,
 * and count calls. Sanitizers have their own malloc: with them only results are checked. */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

#include "np_test_api.h"

#ifdef __has_feature /* clang; gcc defines macros of its own */
#define SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define SANITIZED 0
#endif

#if SANITIZED || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) ||                  \
    !defined(__GLIBC__)
#define COUNTS 0
#else
#define COUNTS 1
#endif

static atomic_uint calls; /* calls of the functions below */

#if COUNTS
#define SHOWN __attribute__((visibility("default"))) /* visible to the library */

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *data, size_t size);
void __libc_free(void *data);

SHOWN void *malloc(size_t size) {
  atomic_fetch_add(&calls, 1);
  return __libc_malloc(size);
}

SHOWN void *calloc(size_t n, size_t size) {
  atomic_fetch_add(&calls, 1);
  return __libc_calloc(n, size);
}

SHOWN void *realloc(void *data, size_t size) {
  atomic_fetch_add(&calls, 1);
  return __libc_realloc(data, size);
}

SHOWN void free(void *data) {
  atomic_fetch_add(&calls, 1);
  __libc_free(data);
}

SHOWN int pthread_mutex_lock(pthread_mutex_t *mutex) {
  static int (*lock)(pthread_mutex_t *);
  if (!lock) {
    *(void **)&lock = dlsym(RTLD_NEXT, "pthread_mutex_lock");
  }
  atomic_fetch_add(&calls, 1);
  return lock(mutex);
}
#endif

enum { SIZE = 9, DEPTH = 4, KERNEL = 3, N_RUNS = 5, N_THREADS = 6, N_ROUNDS = 50 };
enum { N_DATA = SIZE * SIZE * DEPTH, N_WEIGHTS = DEPTH * KERNEL * KERNEL * DEPTH };

struct network {
  ANeuralNetworksModel *model;
  float weights[N_WEIGHTS], bias[DEPTH];
};

static uint32_t add_tensor(struct network *n, uint32_t index, uint32_t rank, const uint32_t *dims) {
  const ANeuralNetworksOperandType type = {NP_TYPE_TENSOR_FLOAT32, rank, dims, 0, 0};
  CHECK(ANeuralNetworksModel_addOperand(n->model, &type) == OK);
  return index;
}

/* Two convolutions, a concatenation and a softmax: layers, moves, and what XNNPACK fuses. */
static void build(struct network *n) {
  const uint32_t data[] = {1, SIZE, SIZE, DEPTH}, weights[] = {DEPTH, KERNEL, KERNEL, DEPTH};
  const uint32_t bias[] = {DEPTH}, joined[] = {1, SIZE, SIZE, 2 * DEPTH};
  const int32_t numbers[] = {ANEURALNETWORKS_PADDING_SAME, 1, 1, ANEURALNETWORKS_FUSED_RELU, 3};
  const float beta = 1;
  uint64_t seed = 3;
  for (int i = 0; i < N_WEIGHTS; i++) {
    n->weights[i] = np_test_float(&seed);
  }
  for (int i = 0; i < DEPTH; i++) {
    n->bias[i] = np_test_float(&seed);
  }
  CHECK(ANeuralNetworksModel_create(&n->model) == OK);
  add_tensor(n, 0, 4, data);
  add_tensor(n, 1, 4, weights);
  add_tensor(n, 2, 1, bias);
  for (uint32_t i = 0; i < 5; i++) {
    const ANeuralNetworksOperandType type = {NP_TYPE_INT32, 0, NULL, 0, 0};
    CHECK(ANeuralNetworksModel_addOperand(n->model, &type) == OK);
    CHECK(ANeuralNetworksModel_setOperandValue(n->model, (int32_t)(3 + i), &numbers[i], 4) == OK);
  }
  const ANeuralNetworksOperandType scalar = {NP_TYPE_FLOAT32, 0, NULL, 0, 0};
  CHECK(ANeuralNetworksModel_addOperand(n->model, &scalar) == OK);
  CHECK(ANeuralNetworksModel_setOperandValue(n->model, 8, &beta, sizeof beta) == OK);
  CHECK(ANeuralNetworksModel_setOperandValue(n->model, 1, n->weights, sizeof n->weights) == OK);
  CHECK(ANeuralNetworksModel_setOperandValue(n->model, 2, n->bias, sizeof n->bias) == OK);
  add_tensor(n, 9, 4, data);
  add_tensor(n, 10, 4, data);
  add_tensor(n, 11, 4, joined);
  add_tensor(n, 12, 4, joined);
  const uint32_t first[] = {0, 1, 2, 3, 4, 5, 6}, second[] = {9, 1, 2, 3, 4, 5, 6};
  const uint32_t join[] = {9, 10, 7}, softmax[] = {11, 8}, made[] = {9, 10, 11, 12}, in = 0;
  CHECK(ANeuralNetworksModel_addOperation(n->model, ANEURALNETWORKS_CONV_2D, 7, first, 1,
                                          &made[0]) == OK);
  CHECK(ANeuralNetworksModel_addOperation(n->model, ANEURALNETWORKS_CONV_2D, 7, second, 1,
                                          &made[1]) == OK);
  CHECK(ANeuralNetworksModel_addOperation(n->model, ANEURALNETWORKS_CONCATENATION, 3, join, 1,
                                          &made[2]) == OK);
  CHECK(ANeuralNetworksModel_addOperation(n->model, ANEURALNETWORKS_SOFTMAX, 2, softmax, 1,
                                          &made[3]) == OK);
  CHECK(ANeuralNetworksModel_identifyInputsAndOutputs(n->model, 1, &in, 1, &made[3]) == OK);
  CHECK(ANeuralNetworksModel_finish(n->model) == OK);
}

static ANeuralNetworksExecution *prepare(ANeuralNetworksCompilation *compilation, const float *in,
                                         float *out) {
  ANeuralNetworksExecution *execution = NULL;
  CHECK(ANeuralNetworksExecution_create(compilation, &execution) == OK);
  CHECK(ANeuralNetworksExecution_setInput(execution, 0, NULL, in, N_DATA * sizeof *in) == OK);
  CHECK(ANeuralNetworksExecution_setOutput(execution, 0, NULL, out, 2 * N_DATA * sizeof *out) ==
        OK);
  return execution;
}

/* Runs after the first do not call the functions above. */
static void test_quiet(ANeuralNetworksCompilation *compilation, const char *device) {
  static float in[N_DATA], out[N_RUNS][2 * N_DATA];
  uint64_t seed = 5;
  ANeuralNetworksBurst *burst = NULL;
  CHECK(ANeuralNetworksBurst_create(compilation, &burst) == OK);
  for (int i = 0; i < N_DATA; i++) {
    in[i] = np_test_float(&seed);
  }
  for (int run = 0; run < N_RUNS; run++) {
    ANeuralNetworksExecution *execution = prepare(compilation, in, out[run]);
    const unsigned before = atomic_load(&calls);
    const int code = run % 2 == 0 ? ANeuralNetworksExecution_compute(execution)
                                  : ANeuralNetworksExecution_burstCompute(execution, burst);
    const unsigned made = atomic_load(&calls) - before;
    CHECK(code == OK);
    if (run > 0 && !CHECK(made == 0)) {
      (void)fprintf(stderr, "%s: %u allocations and locks in run %d\n", device, made, run);
    }
    CHECK(memcmp(out[run], out[0], sizeof out[0]) == 0);
    ANeuralNetworksExecution_free(execution);
  }
  ANeuralNetworksBurst_free(burst);
}

struct worker {
  ANeuralNetworksCompilation *compilation;
  pthread_barrier_t *start;
  uint64_t seed;
  int failures;
};

/* Runs executions on its own data and checks them against the first. */
static void *work(void *argument) {
  struct worker *worker = argument;
  float in[N_DATA], first[2 * N_DATA], out[2 * N_DATA];
  for (int i = 0; i < N_DATA; i++) {
    in[i] = np_test_float(&worker->seed);
  }
  pthread_barrier_wait(worker->start);
  for (int round = 0; round < N_ROUNDS; round++) {
    ANeuralNetworksExecution *execution =
        prepare(worker->compilation, in, round == 0 ? first : out);
    worker->failures += ANeuralNetworksExecution_compute(execution) != OK;
    worker->failures += round > 0 && memcmp(first, out, sizeof out) != 0;
    ANeuralNetworksExecution_free(execution);
  }
  return NULL;
}

static void test_at_once(ANeuralNetworksCompilation *compilation) {
  pthread_t threads[N_THREADS];
  struct worker workers[N_THREADS];
  pthread_barrier_t start;
  CHECK(pthread_barrier_init(&start, NULL, N_THREADS) == 0);
  for (int i = 0; i < N_THREADS; i++) {
    workers[i] = (struct worker){compilation, &start, (uint64_t)i * 99, 0};
    CHECK(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
  }
  for (int i = 0; i < N_THREADS; i++) {
    CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(workers[i].failures == 0);
  }
  (void)pthread_barrier_destroy(&start);
}

int main(void) {
  static struct network network;
  build(&network);
  ANeuralNetworksDevice *device;
  for (uint32_t i = 0; (device = api_device(i)) != NULL; i++) {
    const char *name = NULL;
    CHECK(ANeuralNetworksDevice_getName(device, &name) == OK);
    ANeuralNetworksCompilation *compilation = api_compile(network.model, device);
    test_quiet(compilation, name);
    test_at_once(compilation);
    ANeuralNetworksCompilation_free(compilation);
  }
  ANeuralNetworksModel_free(network.model);
  CHECK(!COUNTS || atomic_load(&calls) > 0); /* the counter counts */
  return np_test_exit();
}
