/* Segments side by side, as threads: their timing, records, and the effect of a failure. */
#define _POSIX_C_SOURCE 200809L

#include "corun.h"

#include <stdatomic.h>
#include <time.h>

#include "np_nnapi.h"
#include "np_test.h"

enum { ROOM = 40, N = 3 };

/* A step that takes some real time, and fails at its run `fails_at`. */
struct work {
  long ns;
  uint32_t n_runs;
  uint32_t fails_at; /* 0: never */
  uint32_t n_settled;
  _Atomic uint32_t *n_busy;
  uint32_t most_busy; /* most steps that ran at once, this one included */
};

static enum np_status run(void *ctx) {
  struct work *work = ctx;
  const uint32_t n_busy = atomic_fetch_add(work->n_busy, 1) + 1;
  work->most_busy = n_busy > work->most_busy ? n_busy : work->most_busy;
  const struct timespec time = {0, work->ns};
  (void)nanosleep(&time, NULL);
  atomic_fetch_sub(work->n_busy, 1);
  return ++work->n_runs == work->fails_at ? NP_RUN_FAILED : NP_OK;
}

static void settle(void *ctx, struct np_durations *durations) {
  struct work *work = ctx;
  work->n_settled++;
  *durations = (struct np_durations){7, 8};
}

struct bench {
  _Atomic uint32_t n_busy;
  struct work works[N];
  struct np_step steps[N];
  struct np_corun_lane lanes[N];
  uint32_t n_runs, started_runs, lane;
  uint64_t total_ns[ROOM];
  uint64_t columns[3][N * ROOM];
};

static struct np_corun_samples set_up(struct bench *bench) {
  static const long ns[N] = {200000, 1000000, 50000};
  *bench = (struct bench){.lane = 99};
  for (uint32_t i = 0; i < N; i++) {
    bench->works[i] = (struct work){.ns = ns[i], .n_busy = &bench->n_busy};
    bench->steps[i] = (struct np_step){run, i == 2 ? NULL : settle, &bench->works[i]};
    bench->lanes[i] =
        (struct np_corun_lane){.step = &bench->steps[i], .on_cpu = i == 0, .threads = 1};
  }
  return (struct np_corun_samples){.room = ROOM,
                                   .n_runs = &bench->n_runs,
                                   .started_runs = &bench->started_runs,
                                   .lane = &bench->lane,
                                   .total_ns = bench->total_ns,
                                   .alone_ns = bench->columns[0],
                                   .cpu_ns = bench->columns[1],
                                   .corun_ns = bench->columns[2]};
}

static void test_rounds(const struct np_simulator *none) {
  static struct bench bench;
  const struct np_corun_samples samples = set_up(&bench);
  for (int round = 0; round < 2; round++) {
    CHECK(np_corun_round(bench.lanes, N, np_monotonic_clock(), none, 0, 6, &samples) == NP_OK);
  }
  CHECK(bench.n_runs == 12 && bench.lane == 1); /* the first that is not the CPU's */
  uint32_t n_started = 0;
  for (uint32_t i = 0; i < N; i++) {
    const struct work *work = &bench.works[i];
    CHECK(work->n_runs >= 2 * (7 + 7)); /* one before each phase's six */
    CHECK(work->n_settled == (i == 2 ? 0 : work->n_runs));
    n_started += work->n_runs;
    for (uint32_t r = 0; r < ROOM; r++) {
      const int recorded = r < 12;
      const uint64_t least = recorded ? (uint64_t)work->ns : 0;
      CHECK(bench.columns[0][i * ROOM + r] >= least && bench.columns[2][i * ROOM + r] >= least);
      CHECK(recorded || bench.columns[0][i * ROOM + r] + bench.columns[2][i * ROOM + r] == 0);
      CHECK(!recorded || bench.total_ns[r] >= bench.columns[2][i * ROOM + r]);
    }
  }
  CHECK(bench.started_runs == n_started);
  /* The slow one has company in all of its runs; the fast one continued meanwhile. */
  CHECK(bench.works[1].most_busy >= 2);
  CHECK(bench.works[2].n_runs > bench.works[1].n_runs);
}

static void test_failures(const struct np_simulator *none) {
  for (uint32_t at = 1; at < 14; at++) {
    static struct bench bench;
    const struct np_corun_samples samples = set_up(&bench);
    bench.works[1].fails_at = at;
    CHECK(np_corun_round(bench.lanes, N, np_monotonic_clock(), none, 0, 6, &samples) ==
          NP_RUN_FAILED);
    CHECK(bench.n_runs == 0 && bench.lane == 1 && bench.works[1].n_runs == at);
    CHECK(bench.works[2].n_runs == 0 || at > 7);
  }
}

static void test_misuse(const struct np_simulator *none) {
  static struct bench bench;
  const struct np_corun_samples samples = set_up(&bench);
  const struct np_clock clock = np_monotonic_clock();
  CHECK(np_corun_round(bench.lanes, 0, clock, none, 0, 1, &samples) == NP_BAD_ARGUMENT);
  CHECK(np_corun_round(bench.lanes, 9, clock, none, 0, 1, &samples) == NP_BAD_ARGUMENT);
  CHECK(np_corun_round(bench.lanes, N, clock, none, 0, 0, &samples) == NP_BAD_ARGUMENT);
  CHECK(np_corun_round(bench.lanes, N, clock, none, 0, ROOM + 1, &samples) == NP_BAD_ARGUMENT);
  CHECK(bench.started_runs == 0);
}

/* ---- On a simulated phone, whose clock overlaps lanes ---- */

struct simulated {
  const struct np_simulator *simulator;
  uint64_t macs;
  uint32_t n_runs;
};

static enum np_status simulate(void *ctx) {
  struct simulated *work = ctx;
  const int32_t code = ANEURALNETWORKS_CONV_2D;
  const struct np_work of = {.macs = work->macs, .type = NP_TYPE_TENSOR_FLOAT32};
  work->simulator->cpu_run(&code, &of, 1, 1);
  work->n_runs++;
  return NP_OK;
}

static void test_simulated(const struct np_nnapi *nnapi) {
  struct np_simulator simulator = np_simulator_of(nnapi);
  static struct bench bench;
  const struct np_corun_samples samples = set_up(&bench);
  struct simulated works[2] = {{&simulator, 10000000, 0}, {&simulator, 50000000, 0}};
  for (uint32_t i = 0; i < 2; i++) {
    bench.steps[i] = (struct np_step){simulate, NULL, &works[i]};
    bench.lanes[i].on_cpu = 1;
  }
  const struct np_clock clock = np_simulator_clock(&simulator);
  const uint64_t begin = clock.now_ns(clock.ctx);
  CHECK(np_corun_round(bench.lanes, 2, clock, &simulator, 0, 6, &samples) == NP_OK);
  const uint64_t took = clock.now_ns(clock.ctx) - begin;
  uint64_t alone = 0, least = UINT64_MAX;
  for (uint32_t r = 0; r < 6; r++) {
    for (uint32_t i = 0; i < 2; i++) {
      const uint64_t ns = bench.columns[0][i * ROOM + r];
      CHECK(ns > 0 && bench.columns[1][i * ROOM + r] == ns); /* one thread's */
      alone += ns;
    }
    const uint64_t slow = bench.columns[0][ROOM + r];
    least = slow < least ? slow : least;
    /* Noise apart, runs beside each other take no longer: memory is enough for both. */
    CHECK(bench.columns[2][ROOM + r] < slow + slow / 4);
  }
  CHECK(works[1].n_runs == 14 && works[0].n_runs > 40); /* five for each of the other's */
  CHECK(took < alone * 7 / 6 + 9 * least);              /* not the sum of all runs */
}

int main(void) {
  const struct np_simulator none = {.phone = NULL};
  struct np_nnapi *nnapi = NULL;
  struct np_message why;
  if (setenv("NNAPI_EMULATOR_PHONE", NP_PHONES "/npu-phone.json", 1) != 0 ||
      !CHECK(np_nnapi_open(NULL, &nnapi, &why) == NP_OK)) {
    return 1;
  }
  test_simulated(nnapi);
  np_nnapi_close(nnapi);
  test_rounds(&none);
  test_failures(&none);
  test_misuse(&none);
  return np_test_exit();
}
