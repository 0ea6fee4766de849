/* Frames per second through the runtime library, for bench_lanes.py:
 *
 *   bench_lanes BUNDLE.nnprt NNAPI_LIBRARY FIRST_CPU SECOND_CPU ROUNDS SECONDS
 *
 * The bundle's plans 0 and 1 are the whole network on the CPU engine and on NNAPI. In each round
 * every way to run frames has a turn of about SECONDS: plan 0 on the first CPU, plan 1 on the
 * second, plan 0 with two threads on both, plan 0 through a queue, and the bundle's mixture through
 * a queue, a lane on each CPU. Prints a line of frames per second in that order for each round,
 * then the median latency of a frame of the mixture in ns and the number of frames that differ in
 * any byte from their plan run alone. */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "nnapi_prof_runtime.h"

enum { CPU, NNAPI, BOTH_CORES, ONE_LANE, TWO_LANES, N_WAYS };
#define N_INPUTS 4u
#define WARM_UP 3u
#define LEAST_FRAMES 16u
#define MOST_FRAMES 4096u

struct bench {
  nnp_bundle *bundle;
  const char *library;
  uint64_t masks[2];
  nnp_model *models[3]; /* CPU, NNAPI, BOTH_CORES */
  nnp_queue *queues[2]; /* ONE_LANE, TWO_LANES */
  size_t n_bytes;       /* of the output */
  void *inputs[N_INPUTS];
  void *expected[2][N_INPUTS]; /* by plan */
  uint64_t latencies[MOST_FRAMES];
  size_t n_wrong;
};

static int fail(const nnp_error *error) {
  (void)fprintf(stderr, "bench_lanes: %s\n", error->message);
  exit(1);
}

static double now(void) {
  struct timespec time;
  (void)clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void *room(size_t n_bytes) {
  void *bytes = aligned_alloc(64, (n_bytes + 63) / 64 * 64);
  if (!bytes)
    exit(1);
  return bytes;
}

static nnp_options options_of(const struct bench *bench, int way) {
  nnp_options options = nnp_options_default();
  options.flags = NNP_AS_MEASURED;
  options.nnapi_library = bench->library;
  options.plan = way == NNAPI;
  options.threads = way == BOTH_CORES ? 2 : 1;
  options.cpu_mask = way == BOTH_CORES ? bench->masks[0] | bench->masks[1]
                                       : bench->masks[way == NNAPI];
  return options;
}

static void open_all(struct bench *bench, const char *path) {
  nnp_error error;
  if (nnp_bundle_open(path, &bench->bundle, &error) != NNP_OK)
    fail(&error);
  for (int way = CPU; way <= BOTH_CORES; way++) {
    const nnp_options options = options_of(bench, way);
    if (nnp_model_compile(bench->bundle, &options, &bench->models[way], &error) != NNP_OK)
      fail(&error);
  }
  for (int i = 0; i < 2; i++) {
    nnp_queue_options options = nnp_queue_options_default();
    options.model = options_of(bench, CPU);
    options.model.plan = i == 0 ? 0 : NNP_MIXTURE;
    options.nnapi_mask = bench->masks[1];
    if (nnp_queue_open(bench->bundle, &options, &bench->queues[i], &error) != NNP_OK)
      fail(&error);
  }
  const size_t n_floats = nnp_bundle_input(bench->bundle, 0)->n_bytes / sizeof(float);
  bench->n_bytes = nnp_bundle_output(bench->bundle, 0)->n_bytes;
  uint32_t state = 1;
  for (uint32_t i = 0; i < N_INPUTS; i++) {
    float *values = bench->inputs[i] = room(n_floats * sizeof *values);
    for (size_t j = 0; j < n_floats; j++) {
      state = state * 1664525u + 1013904223u;
      values[j] = (float)(state >> 8) / 8388608.0f - 1.0f;
    }
    for (int plan = 0; plan < 2; plan++) {
      void *outputs[1] = {bench->expected[plan][i] = room(bench->n_bytes)};
      const void *inputs[1] = {values};
      if (nnp_model_run(bench->models[plan], inputs, outputs, &error) != NNP_OK)
        fail(&error);
    }
  }
}

static void run_model(struct bench *bench, int way, size_t frames) {
  nnp_error error;
  for (size_t i = 0; i < frames; i++) {
    const void *inputs[1] = {bench->inputs[i % N_INPUTS]};
    if (nnp_model_run(bench->models[way], inputs, NULL, &error) != NNP_OK)
      fail(&error);
    const void *output = nnp_model_output(bench->models[way], 0);
    if (way != BOTH_CORES)
      bench->n_wrong += memcmp(output, bench->expected[way][i % N_INPUTS], bench->n_bytes) != 0;
  }
}

static void run_queue(struct bench *bench, int way, size_t frames) {
  nnp_queue *queue = bench->queues[way - ONE_LANE];
  nnp_error error;
  size_t submitted = 0;
  for (size_t i = 0; i < frames; i++) {
    for (; submitted < frames && nnp_queue_room(queue, 0); submitted++) {
      const void *inputs[1] = {bench->inputs[submitted % N_INPUTS]};
      if (nnp_queue_submit(queue, inputs, NULL, NNP_FOREVER, &error) != NNP_OK)
        fail(&error);
    }
    nnp_frame frame;
    if (nnp_queue_wait(queue, NNP_FOREVER, &frame, &error) != NNP_OK)
      fail(&error);
    bench->n_wrong += memcmp(nnp_queue_output(queue, 0), bench->expected[frame.plan][i % N_INPUTS],
                             bench->n_bytes) != 0;
    bench->latencies[i] = frame.latency_ns;
  }
}

static double turn(struct bench *bench, int way, size_t frames) {
  const double begin = now();
  if (way < ONE_LANE)
    run_model(bench, way, frames);
  else
    run_queue(bench, way, frames);
  return now() - begin;
}

static int compare(const void *a, const void *b) {
  const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

int main(int argc, char **argv) {
  static struct bench bench;
  if (argc != 7) {
    (void)fprintf(stderr, "usage: bench_lanes BUNDLE NNAPI_LIBRARY FIRST_CPU SECOND_CPU ROUNDS "
                          "SECONDS\n");
    return 2;
  }
  bench.library = argv[2];
  for (int i = 0; i < 2; i++)
    bench.masks[i] = UINT64_C(1) << strtoul(argv[3 + i], NULL, 10) % 64;
  const unsigned long rounds = strtoul(argv[5], NULL, 10);
  const double seconds = strtod(argv[6], NULL);
  open_all(&bench, argv[1]);
  size_t frames[N_WAYS];
  for (int way = 0; way < N_WAYS; way++) {
    /* Each of a queue's buffers is used once. */
    (void)turn(&bench, way, way < ONE_LANE ? WARM_UP : LEAST_FRAMES);
    const double wanted = seconds / turn(&bench, way, WARM_UP) * WARM_UP;
    frames[way] = wanted < LEAST_FRAMES  ? LEAST_FRAMES
                  : wanted > MOST_FRAMES ? MOST_FRAMES
                                         : (size_t)wanted;
  }
  for (unsigned long round = 0; round < rounds; round++) {
    double rates[N_WAYS];
    for (int i = 0; i < N_WAYS; i++) { /* the order rotates */
      const int way = (int)((round + (unsigned long)i) % N_WAYS);
      rates[way] = (double)frames[way] / turn(&bench, way, frames[way]);
      const struct timespec pause = {0, 20000000};
      (void)nanosleep(&pause, NULL);
    }
    for (int way = 0; way < N_WAYS; way++)
      (void)printf("%.4f%c", rates[way], way + 1 < N_WAYS ? ' ' : '\n');
  }
  (void)turn(&bench, TWO_LANES, frames[TWO_LANES]);
  qsort(bench.latencies, frames[TWO_LANES], sizeof *bench.latencies, compare);
  (void)printf("%" PRIu64 " %zu\n", bench.latencies[frames[TWO_LANES] / 2], bench.n_wrong);
  for (int i = 0; i < 2; i++)
    nnp_queue_close(bench.queues[i]);
  for (int i = 0; i < 3; i++)
    nnp_model_free(bench.models[i]);
  nnp_bundle_close(bench.bundle);
  return 0;
}
