#include "schedule.h"

#include "drivers.h"
#include "group.h"
#include "watch.h"

/* Once more, alone, what failed in a wave. */
static enum np_status run_again(const struct np_session *session, const struct np_wave *wave,
                                struct np_answers *answers, uint32_t *n_ok,
                                struct np_message *why) {
  enum np_status status = NP_OK;
  for (uint32_t i = 0; i < wave->n && status == NP_OK; i++) {
    if (wave->fates[i] == NP_FATE_DONE) {
      continue;
    }
    struct np_wave alone = {.n = 1,
                            .actions = &wave->actions[i],
                            .attempt = 2,
                            .was_late = wave->fates[i] == NP_FATE_LATE};
    status = np_await_drivers(session, wave->actions[i], why);
    NP_THEN(status, np_group_run(session, &alone, answers, why));
    if (status == NP_OK && alone.n_ok && (wave->fates[i] == NP_FATE_FULL || wave->n > 1)) {
      np_drivers_halve(session->drivers, wave->actions[i]);
    }
    *n_ok += alone.n_ok;
  }
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
  enum np_status status = NP_OK;
  for (uint32_t first = 0; first < n && status == NP_OK;) {
    struct np_wave wave = {.actions = pointers + first, .attempt = 1};
    wave.n = np_wave_size(session->drivers, pointers + first, n - first);
    status = np_group_run(session, &wave, answers, why);
    *n_ok += wave.n_ok;
    NP_THEN(status, run_again(session, &wave, answers, n_ok, why));
    first += wave.n;
  }
  return status;
}
