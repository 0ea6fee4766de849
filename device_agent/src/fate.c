#include "fate.h"

#include <signal.h>

#include "np_nnapi.h"

int np_has_failed(const struct np_process_end *end) {
  const struct np_record *record = end->view->record;
  return !record->done || (record->verdict != NP_VERDICT_OK && record->verdict != NP_REFUSED);
}

enum np_fate np_fate_of(const struct np_process_end *end, int company_failed) {
  const struct np_record *record = end->view->record;
  const int uses_nnapi = np_uses_nnapi(end->action);
  if (end->attempt > 1 || end->event == NP_EVENT_TOO_BIG) {
    return NP_FATE_DONE;
  }
  if (!np_has_failed(end)) {
    if (record->verdict == NP_REFUSED) {
      return uses_nnapi ? NP_FATE_ASK : NP_FATE_DONE;
    }
    return np_uses_choice(end->action) && company_failed ? NP_FATE_AGAIN : NP_FATE_DONE;
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
