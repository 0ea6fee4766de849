/* The loop of runs, with a fake clock and fake steps. */
#include "np_test.h"
#include "timing.h"

#define MAX_RUNS 10u

struct fake {
  uint64_t now;
  uint32_t calls;
  uint32_t fail_at; /* this call of the second step fails; 0 never */
};

static uint64_t fake_now(void *ctx) { return ((struct fake *)ctx)->now; }

static enum np_status first_step(void *ctx) {
  ((struct fake *)ctx)->now += 10;
  return NP_OK;
}

static enum np_status second_step(void *ctx) {
  struct fake *fake = ctx;
  fake->calls++;
  fake->now += 100 + fake->calls; /* every run is told apart by its time */
  return fake->calls == fake->fail_at ? NP_RUN_FAILED : NP_OK;
}

static void settle(void *ctx, struct np_durations *durations) {
  struct fake *fake = ctx;
  fake->now += 1000; /* stands outside of all times */
  durations->hardware_ns = fake->calls;
}

struct memory {
  uint32_t n_runs, started, step;
  uint64_t first;
  uint64_t total[MAX_RUNS], steps[2 * MAX_RUNS], hardware[2 * MAX_RUNS], driver[2 * MAX_RUNS];
};

static enum np_status run(struct fake *fake, struct np_timing_plan plan, struct memory *memory) {
  const struct np_step steps[2] = {{first_step, NULL, fake}, {second_step, settle, fake}};
  const struct np_clock clock = {fake_now, fake};
  const struct np_samples samples = {&memory->n_runs,  &memory->started, &memory->step,
                                     &memory->first,   memory->total,    memory->steps,
                                     memory->hardware, memory->driver};
  return np_time_steps(steps, 2, clock, &plan, &samples);
}

int main(void) {
  struct memory memory;
  struct fake fake = {.now = 5};
  CHECK(run(&fake, (struct np_timing_plan){2, 3, MAX_RUNS, 0}, &memory) == NP_OK);
  CHECK(memory.n_runs == 3 && memory.started == 5); /* no budget: as few runs as allowed */
  CHECK(memory.first == 111);                       /* the first warm-up run */
  for (uint32_t i = 0; i < 3; i++) {
    CHECK(memory.steps[i] == 10 && memory.steps[MAX_RUNS + i] == 103 + i);
    CHECK(memory.total[i] == 113 + i);
    CHECK(memory.hardware[i] == NP_NO_DURATION && memory.hardware[MAX_RUNS + i] == 3 + i);
    CHECK(memory.driver[MAX_RUNS + i] == NP_NO_DURATION);
  }

  fake = (struct fake){.now = 0};
  CHECK(run(&fake, (struct np_timing_plan){0, 1, MAX_RUNS, 500}, &memory) == NP_OK);
  CHECK(memory.n_runs == 5 && memory.first == 111); /* 111 + 112 + ... passes 500 at the fifth */

  fake = (struct fake){.now = 0};
  CHECK(run(&fake, (struct np_timing_plan){0, 1, MAX_RUNS, UINT64_MAX}, &memory) == NP_OK);
  CHECK(memory.n_runs == MAX_RUNS);

  fake = (struct fake){.fail_at = 4};
  CHECK(run(&fake, (struct np_timing_plan){1, 5, MAX_RUNS, 0}, &memory) == NP_RUN_FAILED);
  CHECK(memory.n_runs == 2 && memory.step == 1); /* what was recorded before stays */
  CHECK(memory.total[1] == 113);

  fake = (struct fake){.fail_at = 1};
  CHECK(run(&fake, (struct np_timing_plan){1, 5, MAX_RUNS, 0}, &memory) == NP_RUN_FAILED);
  CHECK(memory.n_runs == 0 && memory.first == 0);

  CHECK(run(&fake, (struct np_timing_plan){0, 0, 1, 0}, &memory) == NP_BAD_ARGUMENT);
  CHECK(run(&fake, (struct np_timing_plan){0, 2, 1, 0}, &memory) == NP_BAD_ARGUMENT);

  const struct np_clock clock = np_monotonic_clock();
  const uint64_t before = clock.now_ns(clock.ctx);
  CHECK(before > 0 && clock.now_ns(clock.ctx) >= before);
  return np_test_exit();
}
