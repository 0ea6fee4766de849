#define _POSIX_C_SOURCE 200809L

#include "group.h"

#include <signal.h>
#include <stdlib.h>

#include "member.h"
#include "np_nnapi.h"
#include "patience.h"
#include "rounds.h"
#include "settle.h"
#include "sysinfo.h"
#include "timing.h"
#include "watch.h"

#define LAST_WORDS_MS 2000u /* for a process that has reported everything to exit */

struct group {
  const struct np_session *session;
  struct np_answers *answers;
  struct np_message *why;
  struct np_wave *wave;
  uint32_t n;
  struct np_member *members; /* [n] */
  int has_failed;            /* a member on NNAPI has failed: later results of others may be due to
                                that */
  uint64_t cool_ns;          /* time left for cooling down */
};

/* Returns whether an action ended in a way that its engine did not report. */
static int has_failed(const struct np_process_end *end) {
  const struct np_record *record = end->view->record;
  return !record->done || (record->verdict != NP_VERDICT_OK && record->verdict != NP_REFUSED);
}

/* Returns the fate of an action that has ended. Final are: the last attempt; an action ended by its
 * own memory limit; a result of the CPU's engine; and a success, except of NNAPI's choice in
 * company that failed, since NNAPI silently falls back to the CPU if a driver fails. */
static enum np_fate fate_of(const struct np_process_end *end, int company_failed) {
  const struct np_record *record = end->view->record;
  const int uses_nnapi = np_uses_nnapi(end->action);
  if (end->attempt > 1 || end->event == NP_EVENT_TOO_BIG) {
    return NP_FATE_DONE;
  }
  if (!has_failed(end)) {
    if (record->verdict == NP_REFUSED) {
      return uses_nnapi ? NP_FATE_ASK : NP_FATE_DONE;
    }
    return end->action->n_chosen != 0 && company_failed ? NP_FATE_AGAIN : NP_FATE_DONE;
  }
  if (record->done && record->fault.has_code &&
      (record->fault.code == ANEURALNETWORKS_DEAD_OBJECT ||
       record->fault.code == ANEURALNETWORKS_RESOURCE_EXHAUSTED_TRANSIENT ||
       record->fault.code == ANEURALNETWORKS_RESOURCE_EXHAUSTED_PERSISTENT)) {
    return NP_FATE_FULL;
  }
  if (end->event == NP_EVENT_LATE && (uses_nnapi || !record->done)) {
    return NP_FATE_LATE;
  }
  const int was_killed = !record->done && end->outcome.signal == SIGKILL;
  return uses_nnapi || was_killed ? NP_FATE_AGAIN : NP_FATE_DONE;
}

/* Learns about drivers from a member that has ended. */
static void learn(struct group *group, const struct np_process_end *end) {
  const struct np_record *record = end->view->record;
  if (!np_uses_nnapi(end->action)) {
    return;
  }
  if (record->done && record->verdict == NP_VERDICT_OK) {
    np_settle_gauge(group->session, end->action, end->view);
  }
  group->has_failed |= has_failed(end);
  if (end->event == NP_EVENT_LATE) {
    np_drivers_note_late(group->session->drivers, end->action);
  }
  if (!record->done && record->stage != NP_STAGE_SETUP) {
    np_settle(group->session, end->action,
              end->event == NP_EVENT_LATE || end->outcome.signal == SIGKILL);
  }
}

/* Returns whether the result of an action may be due to a sick driver. *driver is that of the
 * accelerator that failed or refused it; NULL: any, since NNAPI chose and silently uses the CPU if
 * one fails. */
static int is_doubtful(const struct group *group, const struct np_process_end *end,
                       struct np_driver **driver) {
  const struct np_record *record = end->view->record;
  const struct np_bundle_segment *segment = &end->action->bundle.segments[record->segment];
  const int is_well = record->done && record->verdict == NP_VERDICT_OK;
  *driver = NULL;
  if (end->event == NP_EVENT_TOO_BIG || group->wave->attempt >= NP_LAST_ATTEMPT) {
    return 0;
  }
  if (is_well || segment->engine != NP_BUNDLE_NNAPI || !segment->accelerator) {
    return is_well && end->action->n_chosen != 0;
  }
  *driver = np_driver_of(group->session->drivers, segment);
  return (*driver)->gauge != NULL;
}

static enum np_status write_line(struct group *group, struct np_member *member) {
  int ok = 0;
  const enum np_status status =
      np_action_answer(group->session, &member->end, group->answers, &ok, group->why);
  group->wave->n_ok += ok != 0;
  np_member_drop(member);
  return status;
}

/* Ends a member's process, if it has not ended, and writes its line, unless the action is to be
 * tried again or its driver must be checked first. */
static enum np_status conclude(struct group *group, struct np_member *member, enum np_event event) {
  struct np_process_end end = {.action = member->action,
                               .attempt = group->wave->attempt,
                               .health = group->wave->was_sick ? NP_HEALTH_BACK : NP_HEALTH_UNKNOWN,
                               .timeout_ms = member->limit_ms,
                               .view = &member->view,
                               .event = event,
                               .used_kb = member->child.used_kb,
                               .memory_kb = member->memory_kb};
  NP_TRY(np_child_end(&member->child, &end.outcome, group->why));
  if (event == NP_EVENT_LATE) { /* the next call may also hang: which driver hangs, and does it
                                   still? */
    np_message_set(group->why, "cannot write an answer");
    NP_TRY(np_answer_wait(group->answers, member->action->id, member->limit_ms));
    np_drivers_lose(group->session->drivers, member->action, UINT64_C(1000000) * member->limit_ms);
  }
  np_member_close_round(member);
  np_record_sanitize(&member->view, member->action);
  group->session->patience->simulated_ns += member->view.record->now_ns;
  np_member_reconcile(member);
  np_rounds_judge(member->action, &member->view, member->rounds, member->n_rounds);
  np_member_read_last(member);
  end.before = member->before;
  end.after = member->after;
  end.n_rounds = member->n_rounds;
  end.rounds = member->rounds;
  learn(group, &end);
  enum np_fate *fate = &group->wave->fates[member - group->members];
  *fate = fate_of(&end, group->has_failed);
  if (*fate != NP_FATE_DONE) {
    np_member_drop(member);
    return NP_OK;
  }
  if (member->view.record->fault.is_changed) {
    np_message_set(group->why, "%s: what was measured so far stands; measure again",
                   member->view.record->fault.why.text);
    return NP_RUN_FAILED;
  }
  member->end = end;
  member->is_held = is_doubtful(group, &end, &member->doubted);
  if (!member->is_held) {
    return write_line(group, member);
  }
  member->runs = 0;
  return NP_OK;
}

/* Writes the lines of the members from `first` on that wait for the same driver. Actions that
 * failed on a driver which failed its gauge and then passed it are to be tried again. */
static enum np_status release(struct group *group, uint32_t first, enum np_health health) {
  struct np_driver *driver = group->members[first].doubted;
  enum np_status status = NP_OK;
  for (uint32_t i = first; i < group->n && status == NP_OK; i++) {
    struct np_member *member = &group->members[i];
    if (!member->is_held || member->doubted != driver) {
      continue;
    }
    member->is_held = 0;
    member->end.health = health;
    if (health == NP_HEALTH_BACK) {
      group->wave->fates[i] = NP_FATE_SICK;
      np_member_drop(member);
    } else {
      status = write_line(group, member);
    }
  }
  return status;
}

/* Checks the drivers that lines wait for, when no member holds compilations any more. */
static enum np_status settle_doubts(struct group *group) {
  enum np_status status = NP_OK;
  for (uint32_t i = 0; i < group->n && status == NP_OK; i++) {
    struct np_driver *driver = group->members[i].doubted;
    if (group->members[i].is_held) {
      status = release(group, i,
                       driver ? np_settle_check(group->session, driver)
                              : np_settle_check_all(group->session));
    }
  }
  return status;
}

/* Each process of a simulated phone has its own clock: the others wait for the time that one of
 * them takes. */
static void pass_time(const struct group *group, struct np_member *member) {
  const uint64_t now_ns = member->view.record->now_ns;
  const uint64_t spent_ns = now_ns - member->seen_ns;
  member->seen_ns = now_ns;
  for (uint32_t i = 0; i < group->n && group->session->simulated; i++) {
    struct np_member *other = &group->members[i];
    if (other != member && other->runs) {
      other->view.record->away_ns += spent_ns;
    }
  }
}

/* Waits for a member's next turn. On any other event, or after its last turn, the member ends. */
static enum np_status await_turn(struct group *group, struct np_member *member) {
  const struct np_session *session = group->session;
  member->limit_ms =
      np_drivers_limit(session->request, session->drivers, member->action, group->wave->was_late);
  struct np_watch watch = {.timeout_ms = member->limit_ms,
                           .reader_fd = group->answers->fd,
                           .memory_kb = member->memory_kb};
  const uint64_t began_ns = np_now_ns();
  enum np_event event;
  NP_TRY(np_watch_turn(group->session, member->action, &member->view, &member->child,
                       ++member->turns, &watch, group->answers, &event, group->why));
  const int done = __atomic_load_n(&member->view.record->done, __ATOMIC_ACQUIRE) != 0;
  if (event == NP_EVENT_REACHED && !done) {
    np_drivers_learn_turn(session->request, session->drivers, member->action,
                          np_now_ns() - began_ns);
    np_member_close_round(member);
    pass_time(group, member);
    return NP_OK;
  }
  if (event == NP_EVENT_REACHED) {
    watch.timeout_ms = LAST_WORDS_MS;
    event = np_child_wait(&member->child, UINT32_MAX, &watch);
  }
  NP_REQUIRE(event != NP_EVENT_ABANDONED, NP_IO, group->why, "nobody reads the answers any more");
  return conclude(group, member, event);
}

static enum np_status send_command(struct group *group, struct np_member *member,
                                   enum np_command command) {
  __atomic_store_n(&member->view.record->command, (uint32_t)command, __ATOMIC_RELEASE);
  np_child_send(&member->child);
  return await_turn(group, member);
}

/* Sets up, compiles and warms up. */
static enum np_status start(struct group *group, struct np_member *member) {
  const struct np_action *action = member->action;
  np_message_set(group->why, "cannot write an answer");
  NP_TRY(group->wave->attempt > 1 ? NP_OK : np_answer_start(group->answers, action->id));
  struct np_message cause;
  np_message_set(&cause, "no memory for %u samples of each of %u segments", action->max_runs,
                 action->bundle.n_segments);
  member->cpu_mask = action->cpu_mask != 0 ? action->cpu_mask
                                           : np_sysfs_big_cores(group->session->sysfs,
                                                                np_affinity(), action->threads);
  member->memory_kb = np_member_memory(action);
  member->rounds = calloc(np_all_rounds(action), sizeof *member->rounds);
  np_member_read(member, &member->before);
  const int has_record = member->rounds && np_record_make(action, &member->view) == NP_OK;
  if (has_record) {
    member->view.record->shares = (uint32_t)np_shares_driver(group->session->drivers, action,
                                                             group->wave->actions, group->wave->n);
  }
  if (!has_record || np_child_start(np_member_perform, member, &member->view.record->turns,
                                    &member->child, &cause) != NP_OK) {
    np_member_drop(member);
    return np_action_answer_unbegun(action, cause.text, group->answers, group->why);
  }
  member->runs = 1;
  const enum np_status warm = await_turn(group, member);
  if (warm == NP_OK && member->runs) {
    np_drivers_learn_memory(group->session->drivers, action, member->view.facts);
  }
  return warm;
}

/* Runs a round of a member; `repeats` is the round that it repeats, NP_NONE: none. */
static enum np_status run_round(struct group *group, struct np_member *member, uint32_t repeats) {
  np_member_open_round(member, repeats);
  return send_command(group, member, NP_COMMAND_ROUND);
}

static enum np_status run_rounds(struct group *group) {
  const uint32_t rounds = group->members[0].action->rounds;
  enum np_status status = NP_OK;
  for (uint32_t r = 0; r < rounds; r++) {
    for (uint32_t i = 0; i < group->n && status == NP_OK; i++) {
      struct np_member *member = &group->members[r % 2 == 0 ? i : group->n - 1 - i];
      if (member->runs) {
        group->session->patience->n_rounds++;
        status = run_round(group, member, NP_NONE);
      }
    }
  }
  return status;
}

static enum np_status cool_device(struct group *group, const struct np_member *member, int *cool) {
  const enum np_status status =
      np_patience_wait(group->session, member->cpu_mask, group->answers->fd, &group->cool_ns, cool);
  if (status != NP_OK) {
    np_message_set(group->why, "nobody reads the answers any more");
  }
  return status;
}

/* Cools a simulated phone, whose clock belongs to the member's process. */
static enum np_status cool_phone(struct group *group, struct np_member *member, int *cool) {
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

/* Returns whether a member has a steady round. */
static int has_steady_round(const struct np_member *member) {
  int has = 0;
  for (uint32_t i = 0; i < member->n_rounds; i++) {
    has |= member->rounds[i].moved != 1;
  }
  return has;
}

/* Repeats a throttled round once the device is cool, and a round in which the clock moved (on an
 * accelerator only if it has no steady one). Sets *hot if the device stays hot and the time is
 * over. */
static enum np_status repeat_round(struct group *group, struct np_member *member, uint32_t r,
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
  } else if (member->rounds[r].moved != 1 ||
             (np_uses_nnapi(member->action) && has_steady_round(member)) ||
             !np_patience_repeat(group->session->patience)) {
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
        struct np_member *member = &group->members[i];
        np_rounds_judge(member->action, &member->view, member->rounds, member->n_rounds);
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
  NP_THEN(status, settle_doubts(group));
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
    group.members[i] = (struct np_member){.session = session,
                                          .action = wave->actions[i],
                                          .child = NP_NO_CHILD,
                                          .before = {-1, -1, -1},
                                          .after = {-1, -1, -1}};
  }
  const enum np_status status = run_members(&group);
  for (uint32_t i = 0; i < wave->n; i++) {
    np_member_drop(&group.members[i]);
  }
  free(group.members);
  return status;
}
