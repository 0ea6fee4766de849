/* ANeuralNetworksBurst_*: executions of a compilation in quick succession. */
#include <stdlib.h>

#include "emulator.h"

int ANeuralNetworksBurst_create(ANeuralNetworksCompilation *compilation,
                                ANeuralNetworksBurst **burst) {
  if (burst) {
    *burst = NULL;
  }
  if (!compilation || !burst) {
    return NP_REFUSE(UNEXPECTED_NULL, "compilation or burst is NULL");
  }
  if (!compilation->finished || !compilation->usable) {
    return NP_REFUSE(BAD_STATE, "the compilation is not finished, or finish refused it");
  }
  ANeuralNetworksBurst *made = calloc(1, sizeof *made);
  if (!made) {
    return NP_REFUSE(OUT_OF_MEMORY, "no memory");
  }
  made->compilation = compilation;
  atomic_init(&made->busy, false);
  *burst = made;
  return ANEURALNETWORKS_NO_ERROR;
}

void ANeuralNetworksBurst_free(ANeuralNetworksBurst *burst) { free(burst); }

/* One execution at a time: BAD_STATE while another one runs under the burst. */
int ANeuralNetworksExecution_burstCompute(ANeuralNetworksExecution *execution,
                                          ANeuralNetworksBurst *burst) {
  if (!execution || !burst) {
    return NP_REFUSE(UNEXPECTED_NULL, "execution or burst is NULL");
  }
  if (execution->compilation != burst->compilation) {
    return NP_REFUSE(BAD_DATA, "execution and burst belong to different compilations");
  }
  if (atomic_exchange(&burst->busy, true)) {
    return NP_REFUSE(BAD_STATE, "the burst is running");
  }
  int code = np_execution_begin(execution, __func__);
  if (code == ANEURALNETWORKS_NO_ERROR) {
    code = np_execution_run(execution, true, 0);
  }
  atomic_store(&burst->busy, false);
  return code;
}
