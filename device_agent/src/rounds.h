/* Warm-up and rounds of a process whose segments run one after the other, and its CPU's clock
 * meanwhile. */
#ifndef NP_ROUNDS_H
#define NP_ROUNDS_H

#include "pace.h"
#include "record.h"

struct np_rounds {
  const struct np_action *action;
  const struct np_record_view *view;
  struct np_clock clock;
  int watched; /* wait for the clock to settle, and report rounds in which it moved */
  int on_cpu;  /* all segments run on the CPU */
  struct np_pace_watch watch;
};

/* Initialises the rounds of an action, on a simulated phone if `simulator` is not NULL. A constant
 * clock, as most simulated phones have, is not waited for. All arguments must outlive *rounds,
 * which must not move. */
void np_rounds_open(const struct np_action *action, const struct np_record_view *view,
                    const struct np_sysfs *sysfs, const struct np_simulator *simulator,
                    struct np_clock clock, struct np_rounds *rounds);

/* Do what np_warm_up and np_time_round do. A round begins with unrecorded runs: one, and as many
 * more as spin_ns and the clock need. */
enum np_status np_rounds_warm_up(struct np_rounds *rounds, const struct np_run *run);
enum np_status np_rounds_run(struct np_rounds *rounds, const struct np_run *run);

/* Discards what was seen of the clock, because the process moved to another core for good. */
void np_rounds_forget(struct np_rounds *rounds);

/* Copies what a process saw of its clock and core in its last round. */
void np_rounds_note(const struct np_record *record, struct np_round *round);

/* Decides in which of rounds[n] the clock moved, from the highest clock so far and from the
 * shortest run of each round, compared with unrecorded runs, since not every clock can be read and
 * not every reading is true. If the clock says that all rounds moved and the times say that none
 * did, the clock is not trusted. On an accelerator the CPU's clock says little about a run, and the
 * accelerator's cannot be read; with several threads the first thread's core says little. */
void np_rounds_judge(const struct np_action *action, const struct np_record_view *view,
                     struct np_round *rounds, uint32_t n);

#endif
