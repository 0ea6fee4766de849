/* Warm-up and rounds of a process whose segments run one after the other, with an eye on the clock.
 */
#ifndef NP_ROUNDS_H
#define NP_ROUNDS_H

#include "pace.h"
#include "record.h"

struct np_rounds {
  const struct np_action *action;
  const struct np_record_view *view;
  struct np_clock clock;
  int watched; /* the clock is waited for, and rounds in which it moved are told */
  int on_cpu;  /* all of it runs on the CPU */
  struct np_pace_watch watch;
};

/* Makes the rounds of an action: of a simulated phone where `simulator` is not NULL. A clock that
 * is constant, as most simulated phones' is, is not waited for. All that is named must outlive it,
 * and it stays where it is. */
void np_rounds_open(const struct np_action *action, const struct np_record_view *view,
                    const struct np_sysfs *sysfs, const struct np_simulator *simulator,
                    struct np_clock clock, struct np_rounds *rounds);

/* How np_warm_up and np_time_round say. A round begins with runs that are not recorded: one, and as
 * many as spin_ns and the clock need. */
enum np_status np_rounds_warm_up(struct np_rounds *rounds, const struct np_run *run);
enum np_status np_rounds_run(struct np_rounds *rounds, const struct np_run *run);

/* Another core took over for good: what was seen of the clock holds no more. */
void np_rounds_forget(struct np_rounds *rounds);

/* What a process saw of its clock and its core in its last round. */
void np_rounds_note(const struct np_record *record, struct np_round *round);

/* Which of an action's rounds [n] moved, by the highest clock of all so far, and by the shortest
 * run of each, beside runs that were not recorded: not every clock can be read, and not every one
 * is the clock that it says. Where the clock says so of all rounds, and the times of none, the
 * clock is not believed. On an accelerator the clock of the CPU says little of a run, and its own
 * is told by nobody; of several threads the first one's core does not. */
void np_rounds_judge(const struct np_action *action, const struct np_record_view *view,
                     struct np_round *rounds, uint32_t n);

#endif
