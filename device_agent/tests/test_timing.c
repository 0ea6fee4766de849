/* The loop of runs, with a fake clock and fake steps. */
#include "np_test.h"
#include "timing.h"

#define MAX_RUNS 10u

struct fake {
  uint64_t now;
  uint32_t calls;
  uint32_t fail_at; /* this call of the second step fails; 0 never */
  void (*copies)(void *ctx);
};

static uint64_t fake_now(void *ctx) { return ((struct fake *)ctx)->now; }

static enum np_status first_step(void *ctx) {
  ((struct fake *)ctx)->now += 10;
  return NP_OK;
}

static enum np_status second_step(void *ctx) {
  struct fake *fake = ctx;
  fake->calls++;
  fake->now += 100 + fake->calls; /* every run has a different time */
  return fake->calls == fake->fail_at ? NP_RUN_FAILED : NP_OK;
}

static void settle(void *ctx, struct np_durations *durations) {
  struct fake *fake = ctx;
  fake->now += 1000; /* not part of any time */
  durations->hardware_ns = fake->calls;
}

static void copy(void *ctx) { ((struct fake *)ctx)->now += 7; }

struct memory {
  uint32_t n_runs, started, step;
  uint64_t first;
  uint64_t total[MAX_RUNS], copies[MAX_RUNS], steps[2 * MAX_RUNS];
};

static struct np_samples samples_of(struct memory *memory) {
  return (struct np_samples){MAX_RUNS,       &memory->n_runs, &memory->started, &memory->step,
                             &memory->first, memory->total,   memory->copies,   memory->steps};
}

static enum np_status round_of(struct fake *fake, uint32_t unrecorded, struct np_timing_plan plan,
                               struct memory *memory) {
  const struct np_step steps[2] = {{first_step, NULL, fake}, {second_step, settle, fake}};
  const struct np_clock clock = {fake_now, fake};
  const struct np_samples samples = samples_of(memory);
  const struct np_timing_plan before = {.min_runs = unrecorded, .max_runs = unrecorded};
  struct np_warmth ignored;
  const struct np_run run = {
      .n_steps = 2, .steps = steps, .take = fake->copies, .give = fake->copies, .ctx = fake};
  const enum np_status status = np_warm_up(&run, clock, &before, NULL, &samples, &ignored);
  return status == NP_OK ? np_time_round(&run, clock, &plan, NULL, &samples) : status;
}

static void check_rounds(void) {
  struct memory memory = {0};
  struct fake fake = {.now = 5};
  CHECK(round_of(&fake, 2, (struct np_timing_plan){3, MAX_RUNS, 0, 0}, &memory) == NP_OK);
  CHECK(memory.n_runs == 3 && memory.started == 5); /* no budget: the minimum of runs */
  CHECK(memory.first == 111);                       /* the first unrecorded run */
  for (uint32_t i = 0; i < 3; i++) {
    CHECK(memory.steps[i] == 10 && memory.steps[MAX_RUNS + i] == 103 + i);
    CHECK(memory.total[i] == 113 + i && memory.copies[i] == 0);
  }

  /* The second round's samples follow those of the first, and its unrecorded run is not the first
   * run. */
  CHECK(round_of(&fake, 1, (struct np_timing_plan){1, 2, UINT64_MAX, 0}, &memory) == NP_OK);
  CHECK(memory.n_runs == 5 && memory.started == 8 && memory.first == 111);
  CHECK(memory.total[2] == 115 && memory.total[3] == 117 && memory.total[4] == 118);
  const uint32_t left = MAX_RUNS - 5;
  CHECK(round_of(&fake, 1, (struct np_timing_plan){1, left + 1, 0, 0}, &memory) == NP_BAD_ARGUMENT);
  CHECK(round_of(&fake, 1, (struct np_timing_plan){left, left, 0, 0}, &memory) == NP_OK);
  CHECK(memory.n_runs == MAX_RUNS);

  memory = (struct memory){0};
  fake = (struct fake){.now = 0};
  CHECK(round_of(&fake, 0, (struct np_timing_plan){1, MAX_RUNS, 500, 0}, &memory) == NP_OK);
  CHECK(memory.n_runs == 5 && memory.first == 111); /* 111 + 112 + ... passes 500 at the fifth */

  memory = (struct memory){0};
  fake = (struct fake){.fail_at = 4};
  CHECK(round_of(&fake, 1, (struct np_timing_plan){5, MAX_RUNS, 0, 0}, &memory) == NP_RUN_FAILED);
  CHECK(memory.n_runs == 2 && memory.step == 1); /* earlier records stay */
  CHECK(memory.total[1] == 113);

  /* Copies count towards the whole, not towards a step. */
  memory = (struct memory){0};
  fake = (struct fake){.copies = copy};
  CHECK(round_of(&fake, 1, (struct np_timing_plan){2, 2, 0, 0}, &memory) == NP_OK);
  CHECK(memory.first == 125 && memory.total[1] == 127 && memory.steps[1] == 10);
  CHECK(memory.steps[MAX_RUNS + 1] == 103 && memory.copies[1] == 14);

  memory = (struct memory){0};
  fake = (struct fake){.fail_at = 1};
  CHECK(round_of(&fake, 1, (struct np_timing_plan){5, MAX_RUNS, 0, 0}, &memory) == NP_RUN_FAILED);
  CHECK(memory.n_runs == 0 && memory.first == 0);

  CHECK(round_of(&fake, 0, (struct np_timing_plan){0, 1, 0, 0}, &memory) == NP_BAD_ARGUMENT);
  CHECK(round_of(&fake, 0, (struct np_timing_plan){2, 1, 0, 0}, &memory) == NP_BAD_ARGUMENT);
}

/* A step that takes the times of a list, repeating the last one. */
struct listed {
  uint64_t now;
  const uint64_t *times;
  uint32_t n, at;
};

static uint64_t listed_now(void *ctx) { return ((struct listed *)ctx)->now; }

static enum np_status listed_step(void *ctx) {
  struct listed *listed = ctx;
  listed->now += listed->times[listed->at];
  listed->at += listed->at + 1 < listed->n;
  return NP_OK;
}

static struct np_warmth warm_up(const uint64_t *times, uint32_t n, struct np_timing_plan plan) {
  struct memory memory = {0};
  struct listed listed = {.times = times, .n = n};
  const struct np_step step = {listed_step, NULL, &listed};
  const struct np_clock clock = {listed_now, &listed};
  const struct np_samples samples = samples_of(&memory);
  struct np_warmth warmth = {9, 9, 9};
  const struct np_run run = {.n_steps = 1, .steps = &step};
  CHECK(np_warm_up(&run, clock, &plan, NULL, &samples, &warmth) == NP_OK);
  CHECK(memory.n_runs == 0 && memory.started == warmth.runs);
  CHECK(memory.first == (warmth.runs ? times[0] : 0));
  return warmth;
}

static void check_warm_up(void) {
  const uint64_t even[] = {1000};
  const uint64_t falling[] = {2000, 1900, 1800, 1700, 1600, 1500, 1400, 1300, 1200, 1100, 1000};
  const uint64_t spiky[] = {1000, 9000, 1000, 1000, 9000, 1019, 1019, 9999, 1, 1019};
  const struct np_timing_plan free_plan = {0, 1000, UINT64_MAX, 0};

  struct np_warmth warmth = warm_up(even, 1, free_plan);
  CHECK(warmth.runs == 10 && warmth.stable); /* compares 5 with 5 */
  CHECK(warmth.fastest_ns == 0);             /* no stretches, so no fastest one */
  warmth = warm_up(spiky, 10, free_plan);
  CHECK(warmth.runs == 10 && warmth.stable); /* medians of 1000 and 1019, whatever the spikes */
  /* 11 runs fall; at the 18th the 5 runs before the last 5 have a median of 1000 as well. */
  warmth = warm_up(falling, 11, free_plan);
  CHECK(warmth.runs == 18 && warmth.stable);

  warmth = warm_up(even, 1, (struct np_timing_plan){15, 1000, 0, 0});
  CHECK(warmth.runs == 15 && warmth.stable); /* the minimum */
  /* Stretches of 1650 ns at least: one of 2000, and so on, the last whole one of 1200 and 1100. */
  warmth = warm_up(falling, 11, (struct np_timing_plan){0, 11, 0, 16500});
  CHECK(warmth.runs == 11 && warmth.fastest_ns == 1150);
  warmth = warm_up(even, 1, (struct np_timing_plan){0, 7, UINT64_MAX, 0});
  CHECK(warmth.runs == 7 && !warmth.stable);
  warmth = warm_up(even, 1, (struct np_timing_plan){2, 1000, 3500, 0});
  CHECK(warmth.runs == 4 && !warmth.stable); /* the fourth passes the budget */
  warmth = warm_up(even, 1, (struct np_timing_plan){2, 1000, 0, 0});
  CHECK(warmth.runs == 2 && !warmth.stable);
  warmth = warm_up(even, 1, (struct np_timing_plan){0, 0, UINT64_MAX, 0});
  CHECK(warmth.runs == 0 && !warmth.stable);
}

/* A processor whose clock rises while it is busy: a run takes 100 us at its highest clock, which is
 * reached after 60 ms, and three times as long at the lowest. */
struct rising {
  uint64_t now;
  uint64_t busy;
  int tells; /* whether its clock can be read */
  uint32_t looks;
};

static double clock_of(const struct rising *rising) {
  const double ms = (double)rising->busy / 1e6;
  return ms < 60 ? 1.0 / 3 + 2.0 / 3 * ms / 60 : 1;
}

static uint64_t rising_now(void *ctx) { return ((struct rising *)ctx)->now; }

static enum np_status rising_step(void *ctx) {
  struct rising *rising = ctx;
  const uint64_t ns = (uint64_t)(100000 / clock_of(rising));
  rising->now += ns;
  rising->busy += ns;
  return NP_OK;
}

static int rising_settled(void *ctx, uint64_t busy_ns) {
  const struct rising *rising = ctx;
  (void)busy_ns;
  return !rising->tells || clock_of(rising) > 0.97;
}

static void rising_look(void *ctx) { ((struct rising *)ctx)->looks++; }

static uint64_t run_after(struct rising *rising, struct np_timing_plan plan, int watched) {
  struct memory memory = {0};
  const struct np_step step = {rising_step, NULL, rising};
  const struct np_clock clock = {rising_now, rising};
  const struct np_pace pace = {.look = rising_look, .settled = rising_settled, .ctx = rising};
  const struct np_samples samples = samples_of(&memory);
  struct np_warmth warmth;
  const struct np_run run = {.n_steps = 1, .steps = &step};
  CHECK(np_warm_up(&run, clock, &plan, watched ? &pace : NULL, &samples, &warmth) == NP_OK);
  const struct np_timing_plan round = {3, 3, 0, 0};
  CHECK(np_time_round(&run, clock, &round, watched ? &pace : NULL, &samples) == NP_OK);
  CHECK(rising->looks == (watched ? 2u : 0u)); /* before the first run and after the last */
  return memory.total[0];
}

static void check_rising_clock(void) {
  const struct np_timing_plan warm = {2, 200, 100000000, 50000000};
  const struct np_timing_plan spin = {1, 1, 60000000, 20000000};
  const struct np_timing_plan blind = {1, UINT32_MAX, 200000000, 20000000};
  /* 30 ms are not enough. */
  CHECK(run_after(&(struct rising){0}, (struct np_timing_plan){2, 200, 30000000, 0}, 0) > 140000);
  CHECK(run_after(&(struct rising){.tells = 1}, warm, 1) < 105000);
  CHECK(run_after(&(struct rising){.tells = 1}, spin, 1) < 105000);  /* 20 ms are not enough */
  CHECK(run_after(&(struct rising){.tells = 0}, blind, 1) < 105000); /* by the times alone */
  /* For a constant clock only the least time is spent. */
  struct rising high = {.busy = 60000000, .tells = 1};
  (void)run_after(&high, spin, 1);
  CHECK(high.now >= 20000000 && high.now < 21000000);
}

int main(void) {
  check_rising_clock();
  check_rounds();
  check_warm_up();
  const struct np_clock clock = np_monotonic_clock();
  const uint64_t before = clock.now_ns(clock.ctx);
  CHECK(before > 0 && clock.now_ns(clock.ctx) >= before);
  return np_test_exit();
}
