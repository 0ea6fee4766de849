#include "schedule.h"

#include "drivers.h"
#include "group.h"
#include "settle.h"
#include "watch.h"

/* Runs an action alone until its line is written. */
static enum np_status run_alone(const struct np_session *session,
                                const struct np_action *const *action, enum np_fate fate,
                                struct np_answers *answers, uint32_t *n_ok,
                                struct np_message *why) {
  enum np_status status = NP_OK;
  for (uint32_t attempt = 2; fate != NP_FATE_DONE && status == NP_OK; attempt++) {
    struct np_wave alone = {.n = 1,
                            .actions = action,
                            .attempt = attempt,
                            .was_late = fate == NP_FATE_LATE,
                            .was_sick = fate == NP_FATE_SICK};
    status = fate == NP_FATE_ASK ? NP_OK : np_await_drivers(session, *action, why);
    NP_THEN(status, np_group_run(session, &alone, answers, why));
    *n_ok += alone.n_ok;
    fate = alone.fates[0];
  }
  return status;
}

/* Runs the actions that failed in a wave once more, alone. Late or refused ones say nothing about
 * room. */
static enum np_status run_again(const struct np_session *session, const struct np_wave *wave,
                                struct np_answers *answers, uint32_t *n_ok,
                                struct np_message *why) {
  enum np_status status = NP_OK;
  for (uint32_t i = 0; i < wave->n && status == NP_OK; i++) {
    if (wave->fates[i] == NP_FATE_DONE) {
      continue;
    }
    const enum np_fate fate = wave->fates[i];
    uint32_t alone_ok = 0;
    status = run_alone(session, &wave->actions[i], fate, answers, &alone_ok, why);
    const int is_telling = fate == NP_FATE_AGAIN || fate == NP_FATE_SICK;
    if (alone_ok && (fate == NP_FATE_FULL || (wave->n > 1 && is_telling))) {
      np_drivers_halve(session->drivers, wave->actions[i]);
    }
    *n_ok += alone_ok;
  }
  return status;
}

/* Removes from actions [*n] those that need a sick accelerator, and writes their lines. */
static enum np_status drop_sick(const struct np_session *session, const struct np_action **actions,
                                uint32_t *n, struct np_answers *answers, struct np_message *why) {
  uint32_t kept = 0;
  enum np_status status = NP_OK;
  for (uint32_t i = 0; i < *n && status == NP_OK; i++) {
    const char *sick = np_drivers_sick(session->drivers, actions[i]);
    if (sick) {
      status = np_answer_start(answers, actions[i]->id);
      NP_THEN(status, np_action_answer_sick(actions[i], sick, answers, why));
    } else {
      actions[kept++] = actions[i];
    }
  }
  *n = kept;
  return status;
}

enum np_status np_schedule_run(const struct np_session *session, const struct np_action *actions,
                               uint32_t n, struct np_answers *answers, uint32_t *n_ok,
                               struct np_message *why) {
  const struct np_action *pointers[NP_MAX_GROUP];
  for (uint32_t i = 0; i < n; i++) {
    pointers[i] = &actions[i];
  }
  *n_ok = 0;
  np_settle_review(session);
  enum np_status status = NP_OK;
  for (uint32_t first = 0; status == NP_OK;) {
    uint32_t left = n - first;
    status = drop_sick(session, pointers + first, &left, answers, why);
    n = first + left;
    if (left == 0 || status != NP_OK) {
      break;
    }
    struct np_wave wave = {.actions = pointers + first, .attempt = 1};
    wave.n = np_wave_size(session->drivers, pointers + first, left);
    status = np_group_run(session, &wave, answers, why);
    *n_ok += wave.n_ok;
    NP_THEN(status, run_again(session, &wave, answers, n_ok, why));
    first += wave.n;
  }
  return status;
}
