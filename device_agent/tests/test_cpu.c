/* The engine `cpu`: its kernels, threads and results. */
#define _DEFAULT_SOURCE
#include <dirent.h>

#include "cpu.h"
#include "np_test_backends.h"

enum { SIDE = 12, CHANNELS = 5 };

static int has_xnnpack(void) { return np_backend_named("fast") != NULL; }

/* Returns the number of threads of this process, -1 if it cannot be read. */
static int count_threads(void) {
  DIR *folder = opendir("/proc/self/task");
  int n = -2; /* . and .. */
  while (folder != NULL && readdir(folder) != NULL) {
    n++;
  }
  if (folder != NULL) {
    (void)closedir(folder);
  }
  return n > 0 ? n : -1;
}

/* CONV_2D, L2_NORMALIZATION (not XNNPACK's), ADD: two regions of XNNPACK's. */
static void build(struct bench *bench) {
  static const uint32_t IMAGE[4] = {1, SIDE, SIDE, 3}, WEIGHTS[4] = {CHANNELS, 3, 3, 3};
  static const uint32_t WIDE[4] = {1, SIDE, SIDE, CHANNELS};
  struct model *model = bench->model;
  uint32_t bias;
  const uint32_t in = bench_tensor(bench, NP_INPUT, 1.0f, 4, IMAGE);
  const uint32_t weights = bench_weights(bench, in, 0, 4, WEIGHTS, &bias);
  const uint32_t wide = bench_tensor(bench, NP_TEMPORARY, 1.0f, 4, WIDE);
  const uint32_t norm = bench_tensor(bench, NP_TEMPORARY, 1.0f, 4, WIDE);
  const uint32_t out = bench_tensor(bench, NP_OUTPUT, 1.0f, 4, WIDE);
  const uint32_t one = model_i32(model, 1);
  model_operation(model, ANEURALNETWORKS_CONV_2D, wide, 7, in, weights, bias, one, one, one, one);
  model_operation(model, ANEURALNETWORKS_L2_NORMALIZATION, norm, 1, wide);
  model_operation(model, ANEURALNETWORKS_ADD, out, 3, norm, wide, model_i32(model, 0));
}

static int n_simulated;

static void simulated_run(const int32_t *codes, const struct np_work *works, uint32_t n,
                          uint32_t threads) {
  (void)codes;
  (void)works;
  n_simulated += CHECK(n == 3 && threads == 2);
}

/* Compiles the model for two threads and runs it twice into `out`. */
static void run_engine(const struct model *model, struct np_simulator *simulator,
                       const float *image, float *out, struct np_engine_facts *facts,
                       int *threads) {
  static const uint32_t IMAGE[4] = {1, SIDE, SIDE, 3}, RESULT[4] = {1, SIDE, SIDE, CHANNELS};
  const struct np_engine engine = np_cpu_engine(simulator);
  const struct np_model given = {.graph = model->graph};
  const struct np_options options = {.preference = -1, .threads = 2};
  struct np_compiled *compiled = NULL;
  struct np_fault fault = {0};
  const int before = count_threads();
  if (!CHECK(engine.compile(engine.ctx, &given, &options, &compiled, &fault) == NP_OK)) {
    return;
  }
  *threads = count_threads() - before;
  engine.describe(compiled, facts);
  const struct np_io in = {.data = (void *)(uintptr_t)image,
                           .n_bytes = sizeof(float) * SIDE * SIDE * 3,
                           .rank = 4,
                           .dims = IMAGE};
  const struct np_io result = {
      .data = out, .n_bytes = sizeof(float) * SIDE * SIDE * CHANNELS, .rank = 4, .dims = RESULT};
  for (int i = 0; i < 2; i++) {
    CHECK(engine.run(compiled, &in, &result, &fault) == NP_OK);
  }
  engine.free(compiled);
}

int main(void) {
  static _Alignas(64) float image[SIDE * SIDE * 3 + 16];
  static _Alignas(64) float found[SIDE * SIDE * CHANNELS], simulated[SIDE * SIDE * CHANNELS];
  uint64_t seed = 20261122;
  struct bench bench = bench_new(&seed, OF_FLOAT);
  struct np_simulator simulator = {.cpu_run = simulated_run};
  struct np_engine_facts facts = {0}, all_ours = {0};
  int threads = 0, none = 0;
  build(&bench);
  bench_fill(&seed, NP_TYPE_TENSOR_FLOAT32, 1.0f, image, SIDE * SIDE * 3);

  run_engine(bench.model, NULL, image, found, &facts, &threads);
  CHECK(facts.has_kernels && facts.n_xnnpack == (has_xnnpack() ? 2 : 0) &&
        facts.n_xnnpack + facts.n_portable == 3);
  CHECK(threads == (has_xnnpack() ? 1 : 0)); /* both regions share them */

  run_engine(bench.model, &simulator, image, simulated, &all_ours, &none);
  CHECK(all_ours.has_kernels && all_ours.n_xnnpack == 0 && all_ours.n_portable == 3 && none == 0);
  CHECK(n_simulated == 2);
  for (size_t i = 0; i < sizeof found / sizeof *found; i++) {
    CHECK(fabsf(found[i] - simulated[i]) <= FLOAT_ERROR);
  }
  bench_free(&bench);
  return np_test_exit();
}
