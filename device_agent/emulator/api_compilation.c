/* ANeuralNetworksCompilation_*: a model made ready for devices. */
#include <stdlib.h>
#include <string.h>

#include "emulator.h"

bool np_single_device(const ANeuralNetworksCompilation *compilation) {
  return compilation->explicit_devices && compilation->n_devices == 1;
}

static int create(ANeuralNetworksModel *model, const ANeuralNetworksDevice *const *devices,
                  uint32_t n_devices, bool explicit_devices,
                  ANeuralNetworksCompilation **compilation) {
  *compilation = NULL;
  if (!model->finished)
    return NP_REFUSE(BAD_STATE, "the model is not finished");
  ANeuralNetworksCompilation *made = calloc(1, sizeof *made);
  if (!made)
    return NP_REFUSE(OUT_OF_MEMORY, "no memory");
  if (pthread_mutex_init(&made->lock, NULL) != 0) {
    free(made);
    return NP_REFUSE(OUT_OF_MEMORY, "no memory for a lock");
  }
  made->model = model;
  for (uint32_t i = 0; i < n_devices; i++)
    made->devices[i] = devices[i];
  made->n_devices = n_devices;
  made->explicit_devices = explicit_devices;
  made->preference = ANEURALNETWORKS_PREFER_FAST_SINGLE_ANSWER;
  *compilation = made;
  return ANEURALNETWORKS_NO_ERROR;
}

int ANeuralNetworksCompilation_create(ANeuralNetworksModel *model,
                                      ANeuralNetworksCompilation **compilation) {
  if (!model || !compilation)
    return NP_REFUSE(UNEXPECTED_NULL, "model or compilation is NULL");
  struct np_device_table *table = np_device_table();
  const ANeuralNetworksDevice *devices[NP_MAX_ACCELERATORS];
  for (uint32_t i = 0; i < table->n_devices; i++)
    devices[i] = &table->devices[i];
  return create(model, devices, table->n_devices, false, compilation);
}

int ANeuralNetworksCompilation_createForDevices(ANeuralNetworksModel *model,
                                                const ANeuralNetworksDevice *const *devices,
                                                uint32_t numDevices,
                                                ANeuralNetworksCompilation **compilation) {
  if (!model || !compilation)
    return NP_REFUSE(UNEXPECTED_NULL, "model or compilation is NULL");
  const int code = np_check_device_list(devices, numDevices);
  if (code != ANEURALNETWORKS_NO_ERROR)
    return code;
  return create(model, devices, numDevices, true, compilation);
}

void ANeuralNetworksCompilation_free(ANeuralNetworksCompilation *compilation) {
  if (!compilation)
    return;
  np_executor_free(compilation->executor);
  np_simulation_free(&compilation->simulation);
  pthread_mutex_destroy(&compilation->lock);
  free(compilation);
}

/* NO_ERROR, or BAD_STATE once finish was called. */
static int check_open(const ANeuralNetworksCompilation *compilation) {
  return compilation->finished ? NP_REFUSE(BAD_STATE, "the compilation is finished")
                               : ANEURALNETWORKS_NO_ERROR;
}

int ANeuralNetworksCompilation_setPreference(ANeuralNetworksCompilation *compilation,
                                             int32_t preference) {
  if (!compilation)
    return NP_REFUSE(UNEXPECTED_NULL, "compilation is NULL");
  const int code = check_open(compilation);
  if (code != ANEURALNETWORKS_NO_ERROR)
    return code;
  if (preference < ANEURALNETWORKS_PREFER_LOW_POWER ||
      preference > ANEURALNETWORKS_PREFER_SUSTAINED_SPEED) {
    return NP_REFUSE(BAD_DATA, "%d is no preference", preference);
  }
  compilation->preference = preference;
  return ANEURALNETWORKS_NO_ERROR;
}

/* Accepted and without effect: nothing is cached, which NNAPI leaves to the driver. */
int ANeuralNetworksCompilation_setCaching(ANeuralNetworksCompilation *compilation,
                                          const char *cacheDir, const uint8_t *token) {
  if (!compilation || !cacheDir || !token) {
    return NP_REFUSE(UNEXPECTED_NULL, "compilation, folder or token is NULL");
  }
  return check_open(compilation);
}

/* Accepted and without effect: one process has the emulator for itself. */
int ANeuralNetworksCompilation_setPriority(ANeuralNetworksCompilation *compilation, int priority) {
  if (!compilation)
    return NP_REFUSE(UNEXPECTED_NULL, "compilation is NULL");
  const int code = check_open(compilation);
  if (code != ANEURALNETWORKS_NO_ERROR)
    return code;
  if (priority != ANEURALNETWORKS_PRIORITY_LOW && priority != ANEURALNETWORKS_PRIORITY_MEDIUM &&
      priority != ANEURALNETWORKS_PRIORITY_HIGH) {
    return NP_REFUSE(BAD_DATA, "%d is no priority", priority);
  }
  return ANEURALNETWORKS_NO_ERROR;
}

/* Checked and without effect: compilations are never aborted. */
int ANeuralNetworksCompilation_setTimeout(ANeuralNetworksCompilation *compilation,
                                          uint64_t duration) {
  (void)duration;
  if (!compilation)
    return NP_REFUSE(UNEXPECTED_NULL, "compilation is NULL");
  if (!np_single_device(compilation)) {
    return NP_REFUSE(BAD_DATA, "a timeout needs createForDevices with one device");
  }
  return check_open(compilation);
}

/* supported[i * n_operations + k]: device i runs operation k; the last row is the host CPU's. */
static bool *find_support(const ANeuralNetworksCompilation *compilation) {
  const struct np_graph *graph = &compilation->model->graph;
  const size_t n = graph->n_operations;
  bool *supported = calloc((compilation->n_devices + (size_t)1) * n, sizeof *supported);
  if (!supported)
    return NULL;
  bool has_cpu = false;
  for (uint32_t i = 0; i < compilation->n_devices; i++) {
    has_cpu |= compilation->devices[i]->type == ANEURALNETWORKS_DEVICE_CPU;
    for (uint32_t k = 0; k < n; k++) {
      supported[i * n + k] = np_device_supports(compilation->devices[i], graph, k);
    }
  }
  for (uint32_t k = 0; k < n && !has_cpu && !compilation->explicit_devices; k++) {
    supported[compilation->n_devices * n + k] =
        np_operation_check(graph, k, NP_RUNTIME_LEVEL, NULL) == NP_OK;
  }
  return supported;
}

/* In real time there is one device, which must support everything. */
static int check_all_supported(const ANeuralNetworksCompilation *compilation,
                               const bool *supported) {
  for (uint32_t k = 0; k < compilation->model->graph.n_operations; k++) {
    if (!supported[k]) {
      return NP_REFUSE(BAD_DATA, "no device can run operation %u (%s)",
                       compilation->model->order[k],
                       np_operation_name(compilation->model->graph.operations[k].code));
    }
  }
  return ANEURALNETWORKS_NO_ERROR;
}

static int compile(ANeuralNetworksCompilation *compilation) {
  struct np_device_table *table = np_device_table();
  if (table->error[0])
    return NP_REFUSE(UNAVAILABLE_DEVICE, "%s", table->error);
  bool *supported = find_support(compilation);
  if (!supported)
    return NP_REFUSE(OUT_OF_MEMORY, "no memory for a plan");
  const struct np_simulate_options options = {.deadline_ns = NP_NEVER};
  const int code = table->phone ? np_simulate_compile(compilation, supported, &options)
                                : check_all_supported(compilation, supported);
  free(supported);
  if (code != ANEURALNETWORKS_NO_ERROR)
    return code;

  struct np_message why;
  const enum np_status status =
      np_executor_create(&compilation->model->graph, NULL, &compilation->executor, &why);
  if (status != NP_OK)
    return np_refuse(np_result_code(status), __func__, "%s", why.text);
  return ANEURALNETWORKS_NO_ERROR;
}

/* BAD_DATA where an operation runs on none of the named devices (or, without named ones, has no
 * kernel here); UNAVAILABLE_DEVICE where the simulated phone's description is bad. Either way the
 * compilation is finished, and not usable after an error. */
int ANeuralNetworksCompilation_finish(ANeuralNetworksCompilation *compilation) {
  if (!compilation)
    return NP_REFUSE(UNEXPECTED_NULL, "compilation is NULL");
  const int open = check_open(compilation);
  if (open != ANEURALNETWORKS_NO_ERROR)
    return open;
  compilation->finished = true;
  const int code = compile(compilation);
  compilation->usable = code == ANEURALNETWORKS_NO_ERROR;
  return code;
}
