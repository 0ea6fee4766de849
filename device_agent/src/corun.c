#define _POSIX_C_SOURCE 200809L

#include "corun.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "sysinfo.h"

/* State that the lanes of a phase share. */
struct phase {
  struct np_clock clock;
  const struct np_simulator *simulator; /* NULL in real time */
  uint32_t n;                           /* lanes that run */
  uint64_t spin_ns;                     /* before their runs are recorded */
  uint32_t n_runs;
  uint32_t *started_runs;
  _Atomic uint32_t n_there;  /* lanes whose thread runs */
  _Atomic uint32_t n_behind; /* lanes that still need runs */
  _Atomic uint32_t failed;   /* a lane's run has failed: all stop */
};

/* A lane in a phase, and the destination of its samples: [n_runs] each. */
struct runner {
  struct phase *phase;
  struct np_corun_lane *lane;
  uint32_t index; /* among those that run */
  uint64_t *run_ns;
  uint64_t *cpu_ns;
  enum np_status status;
};

static uint64_t process_ns(void) {
  struct timespec now = {0, 0};
  (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Returns the CPU time so far of the process, or of a simulated phone's drivers. */
static uint64_t cpu_time(const struct phase *phase) {
  if (!phase->simulator) {
    return process_ns();
  }
  return phase->simulator->driver_ns ? phase->simulator->driver_ns() : 0;
}

/* Runs once; writes the times to column `run`, which the next run may overwrite. */
static enum np_status run_once(const struct runner *self, uint32_t run) {
  const struct phase *phase = self->phase;
  const struct np_step *step = self->lane->step;
  __atomic_fetch_add(phase->started_runs, 1u, __ATOMIC_RELAXED);
  const uint64_t cpu_before = cpu_time(phase);
  const uint64_t before = phase->clock.now_ns(phase->clock.ctx);
  const enum np_status status = step->run(step->ctx);
  const uint64_t ns = phase->clock.now_ns(phase->clock.ctx) - before;
  const uint64_t cpu_ns = cpu_time(phase) - cpu_before;
  NP_TRY(status);
  (void)np_step_settle(step);
  self->run_ns[run] = ns;
  if (self->cpu_ns) {
    self->cpu_ns[run] = phase->simulator && self->lane->on_cpu ? ns * self->lane->threads : cpu_ns;
  }
  return NP_OK;
}

/* Does not record the first runs, nor one that began before all lanes were running. */
static enum np_status run_lane(const struct runner *self) {
  struct phase *phase = self->phase;
  uint32_t n_recorded = 0;
  const uint64_t begin = phase->clock.now_ns(phase->clock.ctx);
  atomic_fetch_add(&phase->n_there, 1);
  for (uint32_t i = 0; atomic_load(&phase->n_behind) > 0 && !atomic_load(&phase->failed); i++) {
    const int warm = phase->clock.now_ns(phase->clock.ctx) - begin >= phase->spin_ns;
    const int counts = i > 0 && warm && atomic_load(&phase->n_there) == phase->n;
    const int wanted = n_recorded < phase->n_runs;
    /* Destination of a lane's further runs. */
    uint64_t unread[2];
    struct runner idle = *self;
    idle.run_ns = &unread[0];
    idle.cpu_ns = &unread[1];
    NP_TRY(counts && wanted ? run_once(self, n_recorded) : run_once(&idle, 0));
    if (counts && wanted && ++n_recorded == phase->n_runs) {
      atomic_fetch_sub(&phase->n_behind, 1);
    }
  }
  return NP_OK;
}

static void *run_thread(void *argument) {
  struct runner *self = argument;
  struct phase *phase = self->phase;
  if (self->lane->cpu_mask != 0) {
    (void)np_set_affinity(self->lane->cpu_mask);
  }
  const int has_lanes = phase->simulator && phase->simulator->enter && phase->simulator->leave;
  if (has_lanes) {
    phase->simulator->enter(self->index);
  }
  self->status = run_lane(self);
  if (self->status != NP_OK) {
    atomic_store(&phase->failed, 1);
  }
  if (has_lanes) {
    phase->simulator->leave();
  }
  return NULL;
}

/* Runs the lanes of a phase; *failed is the first that failed. */
static enum np_status run_phase(struct runner *runners, uint32_t n, struct phase *phase,
                                uint32_t *failed) {
  pthread_t threads[NP_MAX_CORUN];
  enum np_status status = NP_OK;
  phase->n = n;
  atomic_init(&phase->n_there, 0);
  atomic_init(&phase->n_behind, n);
  atomic_init(&phase->failed, 0);
  if (phase->simulator && phase->simulator->lanes && phase->simulator->lanes(n) != 0) {
    return NP_RUN_FAILED;
  }
  uint32_t n_begun = 0;
  while (n_begun < n && status == NP_OK) {
    runners[n_begun].phase = phase;
    runners[n_begun].index = n_begun;
    if (pthread_create(&threads[n_begun], NULL, run_thread, &runners[n_begun]) != 0) {
      /* Lanes already started do not wait, but a simulated clock would, for ever: the process
       * ends. */
      atomic_store(&phase->failed, 1);
      np_message_set(&runners[n_begun].lane->fault.why, "no thread for it");
      *failed = n_begun;
      status = NP_NO_MEMORY;
    } else {
      n_begun++;
    }
  }
  if (status != NP_OK && phase->simulator) {
    return status;
  }
  for (uint32_t i = 0; i < n_begun; i++) {
    (void)pthread_join(threads[i], NULL);
    if (status == NP_OK && runners[i].status != NP_OK) {
      status = runners[i].status;
      *failed = i;
    }
  }
  return status;
}

static uint32_t first_on_nnapi(const struct np_corun_lane *lanes, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    if (!lanes[i].on_cpu) {
      return i;
    }
  }
  return 0;
}

enum np_status np_corun_round(struct np_corun_lane *lanes, uint32_t n_lanes, struct np_clock clock,
                              const struct np_simulator *simulator, uint64_t spin_ns,
                              uint32_t n_runs, const struct np_corun_samples *samples) {
  const uint32_t first = *samples->n_runs;
  if (n_lanes == 0 || n_lanes > NP_MAX_CORUN || n_runs == 0 || first > samples->room ||
      n_runs > samples->room - first) {
    return NP_BAD_ARGUMENT;
  }
  struct phase phase = {.clock = clock,
                        .simulator = np_simulator_phone(simulator) ? simulator : NULL,
                        .spin_ns = spin_ns,
                        .n_runs = n_runs,
                        .started_runs = samples->started_runs};
  struct runner runners[NP_MAX_CORUN];
  uint32_t failed = 0;
  for (uint32_t i = 0; i < n_lanes; i++) {
    const size_t column = (size_t)i * samples->room + first;
    struct runner alone = {.lane = &lanes[i],
                           .run_ns = samples->alone_ns + column,
                           .cpu_ns = samples->cpu_ns + column};
    __atomic_store_n(samples->lane, i, __ATOMIC_RELEASE);
    NP_TRY(run_phase(&alone, 1, &phase, &failed));
    runners[i] = (struct runner){.lane = &lanes[i], .run_ns = samples->corun_ns + column};
  }
  __atomic_store_n(samples->lane, first_on_nnapi(lanes, n_lanes), __ATOMIC_RELEASE);
  const enum np_status status = run_phase(runners, n_lanes, &phase, &failed);
  if (status != NP_OK) {
    __atomic_store_n(samples->lane, failed, __ATOMIC_RELEASE);
    return status;
  }
  for (uint32_t run = first; run < first + n_runs; run++) {
    uint64_t longest = 0;
    for (uint32_t i = 0; i < n_lanes; i++) {
      const uint64_t ns = samples->corun_ns[(size_t)i * samples->room + run];
      longest = ns > longest ? ns : longest;
    }
    samples->total_ns[run] = longest;
  }
  __atomic_store_n(samples->n_runs, first + n_runs, __ATOMIC_RELEASE);
  return NP_OK;
}
