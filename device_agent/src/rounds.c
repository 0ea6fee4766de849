#include "rounds.h"

#include <string.h>

/* A round whose shortest run takes this much longer than another's had another clock; one whose
 * mean is this much longer had it for a part. Accelerators' runs vary more by chance. */
#define PERCENT_SLOWER 8u
#define PERCENT_PARTLY 25u
#define PERCENT_ACCELERATOR 12u
/* The same limit, compared with unrecorded runs just before or in the warm-up. */
#define PERCENT_BEHIND 25u
/* Rounds whose means differ by less had the same clock, whatever was read. */
#define PERCENT_APART 10u
/* Longest wait of a round for stable times if no clock can be read. */
#define MOST_SPIN_NS UINT64_C(120000000)

void np_rounds_open(const struct np_action *action, const struct np_record_view *view,
                    const struct np_sysfs *sysfs, const struct np_simulator *simulator,
                    struct np_clock clock, struct np_rounds *rounds) {
  *rounds = (struct np_rounds){
      .action = action,
      .view = view,
      .clock = clock,
      .watched = action->spin_ns != 0 && (!simulator || np_simulator_governed(simulator)),
      .on_cpu = !np_uses_nnapi(action),
      .watch = {.sysfs = sysfs, .simulator = simulator, .facts = &view->record->pace}};
}

enum np_status np_rounds_warm_up(struct np_rounds *rounds, const struct np_run *run) {
  const struct np_action *action = rounds->action;
  const struct np_timing_plan plan = {.min_runs = action->warmup_min,
                                      .max_runs = action->warmup_max,
                                      .budget_ns = action->warmup_ns,
                                      .least_ns = rounds->watched ? action->warm_ns : 0};
  const struct np_pace pace = np_pace_of(&rounds->watch, rounds->on_cpu);
  const struct np_samples samples = np_record_samples(rounds->view);
  np_pace_begin(&rounds->watch);
  return np_warm_up(run, rounds->clock, &plan, rounds->watched ? &pace : NULL, &samples,
                    &rounds->view->record->warmth);
}

/* Makes the unrecorded runs of a round: at least two if models take turns on an accelerator, since
 * the first may reload its parameters and the second may still wait for them. The CPU's clock shows
 * when runs have reached full speed; if it cannot be read or never moves, or the time is an
 * accelerator's, the times themselves do. */
static enum np_status spin(struct np_rounds *rounds, const struct np_run *run,
                           const struct np_pace *pace, const struct np_samples *samples) {
  const uint32_t least = 1u + (rounds->view->record->shares != 0);
  struct np_timing_plan plan = {.min_runs = least, .max_runs = least};
  if (rounds->watched) {
    plan.least_ns = rounds->action->spin_ns;
    plan.budget_ns = plan.least_ns > MOST_SPIN_NS ? plan.least_ns : MOST_SPIN_NS;
    plan.max_runs = rounds->on_cpu && np_pace_tells(&rounds->watch) ? least : UINT32_MAX;
  }
  struct np_warmth warmth;
  np_pace_begin(&rounds->watch);
  NP_TRY(np_warm_up(run, rounds->clock, &plan, rounds->watched ? pace : NULL, samples, &warmth));
  uint64_t *fastest_ns = &rounds->view->record->fastest_ns;
  if (warmth.fastest_ns != 0 && (*fastest_ns == 0 || warmth.fastest_ns < *fastest_ns)) {
    *fastest_ns = warmth.fastest_ns;
  }
  return NP_OK;
}

enum np_status np_rounds_run(struct np_rounds *rounds, const struct np_run *run) {
  const struct np_action *action = rounds->action;
  struct np_record *record = rounds->view->record;
  const struct np_timing_plan plan = {.min_runs = (uint32_t)np_share(action, action->min_runs),
                                      .max_runs = (uint32_t)np_share(action, action->max_runs),
                                      .budget_ns = np_share(action, action->budget_ns)};
  const struct np_samples samples = np_record_samples(rounds->view);
  const struct np_pace pace = np_pace_of(&rounds->watch, rounds->on_cpu);
  memset(&record->pace, 0, sizeof record->pace);
  enum np_status status = NP_OK;
  if ((action->flags & NP_ACTION_UNTIMED) == 0) {
    status = spin(rounds, run, &pace, &samples);
  }
  NP_THEN(status,
          np_time_round(run, rounds->clock, &plan, rounds->watched ? &pace : NULL, &samples));
  record->level_khz = rounds->on_cpu ? rounds->watch.level_khz : 0;
  return status;
}

void np_rounds_forget(struct np_rounds *rounds) { rounds->watch.level_khz = 0; }

void np_rounds_note(const struct np_record *record, struct np_round *round) {
  round->pace = record->pace;
  if (round->pace.n_looks != 0 && round->pace.first_khz > 0) {
    round->before.cpu_khz = round->pace.first_khz;
    round->after.cpu_khz = round->pace.last_khz;
  }
}

struct times {
  uint64_t shortest, mean; /* 0: no run */
};

/* Returns the times of round r, whose runs follow those of earlier rounds. */
static struct times times_of(const struct np_record_view *view, const struct np_round *rounds,
                             uint32_t r) {
  uint64_t first = 0;
  for (uint32_t i = 0; i < r; i++) {
    first += rounds[i].runs;
  }
  struct times times = {0, 0};
  uint64_t sum = 0;
  for (uint32_t i = 0; i < rounds[r].runs && first + i < view->room; i++) {
    const uint64_t ns = view->total_ns[first + i];
    times.shortest = times.shortest == 0 || ns < times.shortest ? ns : times.shortest;
    sum = ns > UINT64_MAX - sum ? UINT64_MAX : sum + ns;
    times.mean = sum / (i + 1);
  }
  return times;
}

static int is_longer(uint64_t ns, uint64_t than_ns, uint64_t percent) {
  return ns / (100 + percent) > than_ns / 100;
}

/* Returns whether a round's times indicate a lower clock than the fastest round's. */
static int is_slower(const struct times *times, const struct times *least, int on_cpu) {
  return on_cpu ? is_longer(times->shortest, least->shortest, PERCENT_SLOWER) ||
                      is_longer(times->mean, least->mean, PERCENT_PARTLY)
                : is_longer(times->shortest, least->shortest, PERCENT_ACCELERATOR);
}

/* Returns the fastest mean in any unrecorded stretch; UINT64_MAX: unknown. */
static uint64_t fastest_of(const struct np_record *record) {
  const uint64_t warm_ns = record->warmth.fastest_ns, spun_ns = record->fastest_ns;
  const uint64_t ns = spun_ns == 0 || (warm_ns != 0 && warm_ns < spun_ns) ? warm_ns : spun_ns;
  return ns == 0 ? UINT64_MAX : ns;
}

void np_rounds_judge(const struct np_action *action, const struct np_record_view *view,
                     struct np_round *rounds, uint32_t n) {
  const int on_cpu = !np_uses_nnapi(action);
  struct times least = {UINT64_MAX, UINT64_MAX};
  const uint64_t fastest_ns = fastest_of(view->record);
  uint32_t n_moved = 0, n_looked = 0, n_apart = 0;
  for (uint32_t r = 0; r < n; r++) {
    const struct times times = times_of(view, rounds, r);
    if (times.shortest != 0) {
      least.shortest = times.shortest < least.shortest ? times.shortest : least.shortest;
      least.mean = times.mean < least.mean ? times.mean : least.mean;
    }
  }
  for (uint32_t r = 0; r < n; r++) {
    struct np_round *round = &rounds[r];
    if (round->pace.n_looks == 0) {
      continue;
    }
    const struct times times = times_of(view, rounds, r);
    const int by_clock =
        on_cpu && np_pace_moved(&round->pace, view->record->level_khz, action->threads == 1);
    const int is_behind = is_longer(times.shortest, fastest_ns, PERCENT_BEHIND);
    round->moved = by_clock || is_behind || is_slower(&times, &least, on_cpu);
    n_looked++;
    n_moved += round->moved == 1;
    n_apart += (uint32_t)(is_behind || is_longer(times.mean, least.mean, PERCENT_APART));
  }
  for (uint32_t r = 0; r < n && n_moved == n_looked && n_looked > 1 && n_apart == 0; r++) {
    rounds[r].moved = rounds[r].pace.n_looks != 0 ? 0 : rounds[r].moved;
  }
}
