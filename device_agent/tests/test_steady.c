/* Once warm, a run allocates nothing, frees nothing and takes no lock, on either back end, even if
 * the caller's buffers change; nor does a frame of a queue. The linker redirects the calls below,
 * from everything linked into this test, to this file (see CMakeLists.txt). */
#define _DEFAULT_SOURCE
#include <pthread.h>
#include <stdatomic.h>

#include "build_bundle.h"
#include "nnapi_prof_runtime.h"
#include "np_test_backends.h"

static _Atomic long n_calls;

/* The emulator's library, with which tests are linked, calls them, too. */
#pragma GCC visibility push(default)

#define COUNTED(result, name, parameters, arguments)                                               \
  result __real_##name parameters;                                                                 \
  result __wrap_##name parameters;                                                                 \
  result __wrap_##name parameters {                                                                \
    n_calls++;                                                                                     \
    return __real_##name arguments;                                                                \
  }

COUNTED(void *, malloc, (size_t bytes), (bytes))
COUNTED(void *, calloc, (size_t n, size_t bytes), (n, bytes))
COUNTED(void *, realloc, (void *block, size_t bytes), (block, bytes))
COUNTED(void *, aligned_alloc, (size_t alignment, size_t bytes), (alignment, bytes))
COUNTED(int, posix_memalign, (void **block, size_t alignment, size_t bytes),
        (block, alignment, bytes))
COUNTED(int, pthread_mutex_lock, (pthread_mutex_t * lock), (lock))
COUNTED(int, pthread_mutex_trylock, (pthread_mutex_t * lock), (lock))
COUNTED(int, pthread_rwlock_rdlock, (pthread_rwlock_t * lock), (lock))
COUNTED(int, pthread_rwlock_wrlock, (pthread_rwlock_t * lock), (lock))

void __real_free(void *block);
void __wrap_free(void *block);
void __wrap_free(void *block) {
  n_calls++;
  __real_free(block);
}

#pragma GCC visibility pop

/* CONV_2D, MAX_POOL_2D, L2_NORMALIZATION (the reference's), ADD: three steps on `fast`. */
static void build(struct bench *bench) {
  static const uint32_t IMAGE[4] = {1, 12, 12, 3}, WEIGHTS[4] = {5, 3, 3, 3};
  static const uint32_t WIDE[4] = {1, 12, 12, 5}, SMALL[4] = {1, 6, 6, 5};
  struct model *model = bench->model;
  uint32_t bias;
  const uint32_t in = bench_tensor(bench, NP_INPUT, 1.0f, 4, IMAGE);
  const uint32_t weights = bench_weights(bench, in, 0, 4, WEIGHTS, &bias);
  const uint32_t wide = bench_tensor(bench, NP_TEMPORARY, 1.0f, 4, WIDE);
  const uint32_t small = bench_tensor(bench, NP_TEMPORARY, 1.0f, 4, SMALL);
  const uint32_t norm = bench_tensor(bench, NP_TEMPORARY, 1.0f, 4, SMALL);
  const uint32_t out = bench_tensor(bench, NP_OUTPUT, 1.0f, 4, SMALL);
  const uint32_t none = model_i32(model, 0), one = model_i32(model, 1), two = model_i32(model, 2);
  model_operation(model, ANEURALNETWORKS_CONV_2D, wide, 7, in, weights, bias, one, one, one, one);
  model_operation(model, ANEURALNETWORKS_MAX_POOL_2D, small, 7, wide, one, two, two, two, two,
                  none);
  model_operation(model, ANEURALNETWORKS_L2_NORMALIZATION, norm, 1, small);
  model_operation(model, ANEURALNETWORKS_ADD, out, 3, norm, small, none);
}

static void test_of(const char *backend) {
  uint64_t seed = 3;
  struct bench bench = bench_new(&seed, OF_FLOAT);
  struct np_message why = {""};
  struct np_executor *executor = NULL;
  const struct np_executor_options options = {.backend = np_backend_named(backend)};
  build(&bench);
  CHECK(model_check(bench.model, &why) == NP_OK);
  if (CHECK(np_executor_create(&bench.model->graph, &options, &executor, &why) == NP_OK)) {
    const size_t lengths[2] = {sizeof(float[12 * 12 * 3]), sizeof(float[6 * 6 * 5])};
    struct walled walled[2] = {walled_new(lengths[0]), walled_new(lengths[1])};
    void *plain[2] = {bench_own(&bench, lengths[0]), bench_own(&bench, lengths[1])};
    for (int repeat = 0; repeat < 6; repeat++) {
      const int is_plain = repeat % 2;
      struct np_buffer in = {.data = is_plain ? plain[0] : walled[0].data, .length = lengths[0]};
      struct np_buffer out = {.data = is_plain ? plain[1] : walled[1].data, .length = lengths[1]};
      uint32_t too_small;
      n_calls = 0;
      CHECK(np_executor_run(executor, &in, &out, NULL, &too_small, &why) == NP_OK);
      CHECK(repeat == 0 || n_calls == 0);
    }
    n_calls = 0;
    np_executor_free(executor);
    CHECK(n_calls > 0); /* calls are counted */
  }
  bench_free(&bench);
}

/* The plan "cpu": an NNAPI library makes an execution of its own for each run. */
static void test_of_queue(void) {
  static struct np_build container;
  struct np_build_bundle sections;
  nnp_bundle *bundle = NULL;
  nnp_queue *queue = NULL;
  nnp_queue_options options = nnp_queue_options_default();
  nnp_frame frame = {.number = 0};
  options.model.plan = 2;
  options.frames = 5;
  np_build_mixture_sections(&sections);
  np_build_bundle_container(&sections, &container);
  if (CHECK(nnp_bundle_open_memory(container.bytes, container.n, &bundle, NULL) == NNP_OK) &&
      CHECK(nnp_queue_open(bundle, &options, &queue, NULL) == NNP_OK)) {
    for (int i = 0; i < 500; i++) {
      while (nnp_queue_submit(queue, NULL, NULL, 0, NULL) == NNP_OK) {
      }
      CHECK(nnp_queue_wait(queue, NNP_FOREVER, &frame, NULL) == NNP_OK);
      if (i == 20) { /* every context has run */
        n_calls = 0;
      }
    }
    CHECK(n_calls == 0);
  }
  nnp_queue_close(queue);
  nnp_bundle_close(bundle);
  CHECK(n_calls > 0);
}

int main(void) {
  test_of_queue();
  test_of("reference");
  if (np_backend_named("fast") != NULL) {
    test_of("fast");
  }
  return np_test_exit();
}
