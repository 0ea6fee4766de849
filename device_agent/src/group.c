#define _POSIX_C_SOURCE 200809L

#include "group.h"

#include <signal.h>
#include <stdlib.h>

#include "patience.h"
#include "perform.h"
#include "rounds.h"
#include "settle.h"
#include "sysinfo.h"
#include "timing.h"
#include "watch.h"

#define LAST_WORDS_MS 2000u /* for a process that has said all, to end itself */
/* What was late has a quarter of its time once it is alone, and this much at least. */
#define LATE_SHARE 4u
#define LEAST_LATE_MS 5000u

/* One action and its process. */
struct member {
  const struct np_session *session;
  const struct np_action *action;
  struct np_record_view view;
  struct np_child child;
  int runs; /* its process is there, its line is not written */
  uint32_t turns;
  uint64_t cpu_mask; /* whose clocks are read */
  int64_t memory_kb; /* -1: any */
  struct np_readings before;
  struct np_readings after;
  uint32_t n_rounds;
  struct np_round *rounds; /* [np_all_rounds] */
  struct np_round *round;  /* that is being run, NULL: none */
  uint32_t runs_before;    /* it */
  uint64_t seen_ns;        /* its clock when its last turn ended */
};

struct group {
  const struct np_session *session;
  struct np_answers *answers;
  struct np_message *why;
  struct np_wave *wave;
  uint32_t n;
  struct member *members; /* [n] */
  int has_failed;         /* a member on NNAPI has: what others do after it may be due to that */
  uint64_t cool_ns;       /* left for cooling down */
};

static int perform(void *ctx, struct np_link *link) {
  const struct member *member = ctx;
  np_perform(member->session, member->action, &member->view, link);
  return 0;
}

static void read_device(const struct member *member, struct np_readings *readings) {
  if (member->session->has_sysfs) {
    np_sysfs_read(member->session->sysfs, member->cpu_mask, readings);
  }
}

/* What a simulated phone tells; of its /sys, where one was made for it, the rest stays. */
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

static uint32_t recorded_runs(const struct member *member) {
  const uint32_t n = __atomic_load_n(&member->view.record->n_runs, __ATOMIC_ACQUIRE);
  return n < member->view.room ? n : member->view.room;
}

static uint32_t timeout_of(const struct np_wave *wave, const struct np_action *action) {
  const uint32_t share_ms = action->timeout_ms / LATE_SHARE;
  const uint32_t late_ms = share_ms > LEAST_LATE_MS ? share_ms : LEAST_LATE_MS;
  return wave->was_late && late_ms < action->timeout_ms ? late_ms : action->timeout_ms;
}

static void open_round(struct member *member, uint32_t repeats) {
  const struct np_readings unknown = {-1, -1, -1};
  struct np_round *round = &member->rounds[member->n_rounds++];
  *round = (struct np_round){.before = unknown, .after = unknown, .moved = -1, .repeats = repeats};
  read_device(member, &round->before);
  member->round = round;
  member->runs_before = recorded_runs(member);
}

static void close_round(struct member *member) {
  struct np_round *round = member->round;
  if (!round) {
    return;
  }
  member->round = NULL;
  read_device(member, &round->after);
  if (member->session->simulated) {
    add_readings(&member->view.record->readings[0], &round->before);
    add_readings(&member->view.record->readings[1], &round->after);
  }
  round->throttled = throttled(&round->before, &round->after);
  np_rounds_note(member->view.record, round);
  const uint32_t n = recorded_runs(member);
  round->runs = n > member->runs_before ? n - member->runs_before : 0;
}

/* Samples belong to rounds, whatever a driver has scribbled over the record. */
static void reconcile(struct member *member) {
  uint32_t left = member->view.record->n_runs;
  for (uint32_t i = 0; i < member->n_rounds; i++) {
    struct np_round *round = &member->rounds[i];
    round->runs = round->runs < left ? round->runs : left;
    left -= round->runs;
  }
  member->view.record->n_runs -= left;
}

/* What is left of a member when its line is written, or never will be. */
static void drop(struct member *member) {
  struct np_outcome outcome;
  struct np_message ignored;
  (void)np_child_end(&member->child, &outcome, &ignored);
  np_record_free(&member->view);
  free(member->rounds);
  member->rounds = NULL;
  member->runs = 0;
}

/* What a member that is over teaches of its drivers. */
static void learn(struct group *group, const struct np_process_end *end) {
  const struct np_record *record = end->view->record;
  if (!np_uses_nnapi(end->action)) {
    return;
  }
  if (record->done && record->verdict == NP_VERDICT_OK) {
    np_settle_gauge(group->session, end->action, end->view);
  }
  group->has_failed |= np_has_failed(end);
  if (!record->done && record->stage != NP_STAGE_SETUP) {
    np_settle(group->session, end->action,
              end->event == NP_EVENT_LATE || end->outcome.signal == SIGKILL);
  }
}

/* Ends a member's process, if it is not at its end, and writes its line, unless it is to be tried
 * again. */
static enum np_status conclude(struct group *group, struct member *member, enum np_event event) {
  struct np_process_end end = {.action = member->action,
                               .attempt = group->wave->attempt,
                               .timeout_ms = timeout_of(group->wave, member->action),
                               .view = &member->view,
                               .event = event,
                               .used_kb = member->child.used_kb,
                               .memory_kb = member->memory_kb};
  NP_TRY(np_child_end(&member->child, &end.outcome, group->why));
  close_round(member);
  np_record_sanitize(&member->view, member->action);
  reconcile(member);
  np_rounds_judge(member->action, member->view.record, member->rounds, member->n_rounds);
  read_device(member, &member->after);
  if (group->session->simulated) {
    add_readings(&member->view.record->first_reading, &member->before);
    add_readings(&member->view.record->readings[1], &member->after);
  }
  end.before = member->before;
  end.after = member->after;
  end.n_rounds = member->n_rounds;
  end.rounds = member->rounds;
  learn(group, &end);
  enum np_fate *fate = &group->wave->fates[member - group->members];
  *fate = np_fate_of(&end, group->has_failed);
  int ok = 0;
  const enum np_status answered =
      *fate != NP_FATE_DONE
          ? NP_OK
          : np_action_answer(group->session, &end, group->answers, &ok, group->why);
  group->wave->n_ok += ok != 0;
  drop(member);
  return answered;
}

/* A simulated phone's processes have a clock each: what one of them does, the others wait for. */
static void pass_time(const struct group *group, struct member *member) {
  const uint64_t now_ns = member->view.record->now_ns;
  const uint64_t spent_ns = now_ns - member->seen_ns;
  member->seen_ns = now_ns;
  for (uint32_t i = 0; i < group->n && group->session->simulated; i++) {
    struct member *other = &group->members[i];
    if (other != member && other->runs) {
      other->view.record->away_ns += spent_ns;
    }
  }
}

/* Waits for a member's next turn. Where anything else happens, or the turn is its last, the member
 * is over. */
static enum np_status await_turn(struct group *group, struct member *member) {
  struct np_watch watch = {.timeout_ms = timeout_of(group->wave, member->action),
                           .reader_fd = group->answers->fd,
                           .memory_kb = member->memory_kb};
  enum np_event event;
  NP_TRY(np_watch_turn(group->session, member->action, &member->view, &member->child,
                       ++member->turns, &watch, group->answers, &event, group->why));
  const int done = __atomic_load_n(&member->view.record->done, __ATOMIC_ACQUIRE) != 0;
  if (event == NP_EVENT_REACHED && !done) {
    close_round(member);
    pass_time(group, member);
    return NP_OK;
  }
  if (event == NP_EVENT_REACHED) {
    watch.timeout_ms = LAST_WORDS_MS;
    event = np_child_wait(&member->child, UINT32_MAX, &watch);
  }
  if (event == NP_EVENT_ABANDONED) {
    return np_error(NP_IO, group->why, "nobody reads the answers any more");
  }
  return conclude(group, member, event);
}

static enum np_status send_command(struct group *group, struct member *member,
                                   enum np_command command) {
  __atomic_store_n(&member->view.record->command, (uint32_t)command, __ATOMIC_RELEASE);
  np_child_send(&member->child);
  return await_turn(group, member);
}

static int64_t memory_bound(const struct np_action *action) {
  if (action->memory_kb == NP_UNBOUNDED) {
    return -1;
  }
  if (action->memory_kb != 0) {
    return action->memory_kb;
  }
  const int64_t available_kb = np_memory_available_kb();
  return available_kb < 0 ? -1 : available_kb / 4 * 3;
}

/* Sets up, compiles and warms up. */
static enum np_status start(struct group *group, struct member *member) {
  const struct np_action *action = member->action;
  np_message_set(group->why, "cannot write an answer");
  NP_TRY(group->wave->attempt > 1 ? NP_OK : np_answer_start(group->answers, action->id));
  struct np_message cause;
  np_message_set(&cause, "no memory for %u samples of each of %u segments", action->max_runs,
                 action->bundle.n_segments);
  member->cpu_mask = action->cpu_mask != 0 ? action->cpu_mask
                                           : np_sysfs_big_cores(group->session->sysfs,
                                                                np_affinity(), action->threads);
  member->memory_kb = memory_bound(action);
  member->rounds = calloc(np_all_rounds(action), sizeof *member->rounds);
  read_device(member, &member->before);
  const int has_record = member->rounds && np_record_make(action, &member->view) == NP_OK;
  if (has_record) {
    member->view.record->shares = (uint32_t)np_shares_driver(group->session->drivers, action,
                                                             group->wave->actions, group->wave->n);
  }
  if (!has_record || np_child_start(perform, member, &member->view.record->turns, &member->child,
                                    &cause) != NP_OK) {
    drop(member);
    return np_action_answer_unbegun(action, cause.text, group->answers, group->why);
  }
  member->runs = 1;
  const enum np_status warm = await_turn(group, member);
  if (warm == NP_OK && member->runs) {
    np_drivers_learn_memory(group->session->drivers, action, member->view.facts);
  }
  return warm;
}

/* One round of a member; `repeats` is the round that it repeats, NP_NONE for none. */
static enum np_status run_round(struct group *group, struct member *member, uint32_t repeats) {
  open_round(member, repeats);
  return send_command(group, member, NP_COMMAND_ROUND);
}

static enum np_status run_rounds(struct group *group) {
  const uint32_t rounds = group->members[0].action->rounds;
  enum np_status status = NP_OK;
  for (uint32_t r = 0; r < rounds; r++) {
    for (uint32_t i = 0; i < group->n && status == NP_OK; i++) {
      struct member *member = &group->members[r % 2 == 0 ? i : group->n - 1 - i];
      if (member->runs) {
        group->session->patience->n_rounds++;
        status = run_round(group, member, NP_NONE);
      }
    }
  }
  return status;
}

static enum np_status cool_device(struct group *group, const struct member *member, int *cool) {
  const enum np_status status =
      np_patience_wait(group->session, member->cpu_mask, group->answers->fd, &group->cool_ns, cool);
  if (status != NP_OK) {
    np_message_set(group->why, "nobody reads the answers any more");
  }
  return status;
}

/* The clock of a simulated phone is its process's own. */
static enum np_status cool_phone(struct group *group, struct member *member, int *cool) {
  struct np_record *record = member->view.record;
  const uint64_t limit_ns = np_patience_limit(group->session->patience, group->cool_ns);
  record->cool_ns = limit_ns;
  const enum np_status status = send_command(group, member, NP_COMMAND_COOL);
  if (status != NP_OK || !member->runs) {
    return status;
  }
  *cool = record->readings[1].throttled != 1;
  const uint64_t spent_ns = record->cool_ns < limit_ns ? record->cool_ns : limit_ns;
  np_patience_spend(group->session->patience, &group->cool_ns, spent_ns, *cool);
  return NP_OK;
}

/* Repeats a round that was throttled once the device is cool, and one in which the clock moved;
 * *hot is set where it stays hot, and the time is over. */
static enum np_status repeat_round(struct group *group, struct member *member, uint32_t r,
                                   int *hot) {
  const int throttled = member->rounds[r].throttled == 1;
  if (throttled) {
    int cool = 0;
    if (*hot || group->members[0].action->cooldown_ms == 0) {
      return NP_OK;
    }
    const int is_phones = group->session->simulated && !group->session->has_sysfs;
    const enum np_status status =
        is_phones ? cool_phone(group, member, &cool) : cool_device(group, member, &cool);
    *hot = !cool;
    if (status != NP_OK || !cool) {
      return status;
    }
  } else if (member->rounds[r].moved != 1 || !np_patience_repeat(group->session->patience)) {
    return NP_OK;
  }
  return member->runs ? run_round(group, member, r) : NP_OK;
}

/* Repeats rounds, each once. */
static enum np_status repeat_rounds(struct group *group) {
  const uint32_t rounds = group->members[0].action->rounds;
  enum np_status status = NP_OK;
  int hot = 0;
  for (uint32_t r = 0; r < rounds; r++) {
    for (uint32_t i = 0; i < group->n && status == NP_OK; i++) {
      if (group->members[i].runs) {
        struct member *member = &group->members[i];
        np_rounds_judge(member->action, member->view.record, member->rounds, member->n_rounds);
        status = repeat_round(group, member, r, &hot);
      }
    }
  }
  return status;
}

static enum np_status run_members(struct group *group) {
  enum np_status status = NP_OK;
  for (uint32_t i = 0; i < group->n && status == NP_OK; i++) {
    status = start(group, &group->members[i]);
  }
  NP_THEN(status, run_rounds(group));
  NP_THEN(status, repeat_rounds(group));
  for (uint32_t i = 0; i < group->n && status == NP_OK; i++) {
    if (group->members[i].runs) {
      status = send_command(group, &group->members[i], NP_COMMAND_FINISH);
    }
  }
  return status;
}

enum np_status np_group_run(const struct np_session *session, struct np_wave *wave,
                            struct np_answers *answers, struct np_message *why) {
  struct group group = {.session = session,
                        .answers = answers,
                        .why = why,
                        .wave = wave,
                        .n = wave->n,
                        .members = calloc(wave->n, sizeof *group.members),
                        .cool_ns = (uint64_t)wave->actions[0]->cooldown_ms * 1000000u};
  wave->n_ok = 0;
  NP_REQUIRE(group.members, NP_NO_MEMORY, why, "no memory for a group of %u actions", wave->n);
  for (uint32_t i = 0; i < wave->n; i++) {
    wave->fates[i] = NP_FATE_DONE;
    group.members[i] = (struct member){.session = session,
                                       .action = wave->actions[i],
                                       .child = NP_NO_CHILD,
                                       .before = {-1, -1, -1},
                                       .after = {-1, -1, -1}};
  }
  const enum np_status status = run_members(&group);
  for (uint32_t i = 0; i < wave->n; i++) {
    drop(&group.members[i]);
  }
  free(group.members);
  return status;
}
