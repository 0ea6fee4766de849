#include "member.h"

#include <stdlib.h>

#include "perform.h"
#include "rounds.h"
#include "sysinfo.h"

int np_member_perform(void *ctx, struct np_link *link) {
  const struct np_member *member = ctx;
  np_perform(member->session, member->action, &member->view, link);
  return 0;
}

void np_member_read(const struct np_member *member, struct np_readings *readings) {
  if (member->session->has_sysfs) {
    np_sysfs_read(member->session->sysfs, member->cpu_mask, readings);
  }
}

/* Adds a simulated phone's readings; others, from a /sys made for it, are kept. */
static void add_readings(const struct np_readings *phone, struct np_readings *readings) {
  const int throttled =
      phone->throttled > readings->throttled ? phone->throttled : readings->throttled;
  const int64_t thermal_mc = readings->thermal_mc;
  *readings = *phone;
  readings->throttled = throttled;
  readings->thermal_mc = thermal_mc > 0 ? thermal_mc : phone->thermal_mc;
}

static int throttled(const struct np_readings *before, const struct np_readings *after) {
  if (before->throttled == 1 || after->throttled == 1) {
    return 1;
  }
  return before->throttled == 0 && after->throttled == 0 ? 0 : -1;
}

static uint32_t recorded_runs(const struct np_member *member) {
  const uint32_t n = __atomic_load_n(&member->view.record->n_runs, __ATOMIC_ACQUIRE);
  return n < member->view.room ? n : member->view.room;
}

void np_member_open_round(struct np_member *member, uint32_t repeats) {
  const struct np_readings unknown = {-1, -1, -1};
  struct np_round *round = &member->rounds[member->n_rounds++];
  *round = (struct np_round){.before = unknown, .after = unknown, .moved = -1, .repeats = repeats};
  np_member_read(member, &round->before);
  member->round = round;
  member->runs_before = recorded_runs(member);
}

void np_member_close_round(struct np_member *member) {
  struct np_round *round = member->round;
  if (!round) {
    return;
  }
  member->round = NULL;
  np_member_read(member, &round->after);
  if (member->session->simulated) {
    add_readings(&member->view.record->readings[0], &round->before);
    add_readings(&member->view.record->readings[1], &round->after);
  }
  round->throttled = throttled(&round->before, &round->after);
  np_rounds_note(member->view.record, round);
  const uint32_t n = recorded_runs(member);
  round->runs = n > member->runs_before ? n - member->runs_before : 0;
}

void np_member_reconcile(struct np_member *member) {
  uint32_t left = member->view.record->n_runs;
  for (uint32_t i = 0; i < member->n_rounds; i++) {
    struct np_round *round = &member->rounds[i];
    round->runs = round->runs < left ? round->runs : left;
    left -= round->runs;
  }
  member->view.record->n_runs -= left;
}

void np_member_drop(struct np_member *member) {
  struct np_outcome outcome;
  struct np_message ignored;
  (void)np_child_end(&member->child, &outcome, &ignored);
  np_record_free(&member->view);
  free(member->rounds);
  member->rounds = NULL;
  member->runs = 0;
}

void np_member_read_last(struct np_member *member) {
  np_member_read(member, &member->after);
  if (member->session->simulated) {
    add_readings(&member->view.record->first_reading, &member->before);
    add_readings(&member->view.record->readings[1], &member->after);
  }
}

int64_t np_member_memory(const struct np_action *action) {
  if (action->memory_kb == NP_UNBOUNDED) {
    return -1;
  }
  return action->memory_kb != 0 ? action->memory_kb : np_memory_share_kb();
}
