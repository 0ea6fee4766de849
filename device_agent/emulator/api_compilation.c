/* ANeuralNetworksCompilation_*: compiles models for devices. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emulator.h"
#include "service.h"

#define DUMP_VARIABLE "NNAPI_EMULATOR_DUMP"

bool np_single_device(const ANeuralNetworksCompilation *compilation) {
  return compilation->explicit_devices && compilation->n_devices == 1;
}

static int create(ANeuralNetworksModel *model, const ANeuralNetworksDevice *const *devices,
                  uint32_t n_devices, bool explicit_devices,
                  ANeuralNetworksCompilation **compilation) {
  if (!model->finished) {
    return NP_REFUSE(BAD_STATE, "the model is not finished");
  }
  ANeuralNetworksCompilation *made = calloc(1, sizeof *made);
  if (!made) {
    return NP_REFUSE(OUT_OF_MEMORY, "no memory");
  }
  if (pthread_mutex_init(&made->lock, NULL) != 0) {
    free(made);
    return NP_REFUSE(OUT_OF_MEMORY, "no memory for a lock");
  }
  made->model = model;
  for (uint32_t i = 0; i < n_devices; i++) {
    made->devices[i] = devices[i];
  }
  made->n_devices = n_devices;
  made->explicit_devices = explicit_devices;
  made->preference = ANEURALNETWORKS_PREFER_FAST_SINGLE_ANSWER;
  made->priority = ANEURALNETWORKS_PRIORITY_DEFAULT;
  *compilation = made;
  return ANEURALNETWORKS_NO_ERROR;
}

/* On a simulated phone NNAPI chooses among all devices; in real time it takes the first one, since
 * each runs everything. */
int ANeuralNetworksCompilation_create(ANeuralNetworksModel *model,
                                      ANeuralNetworksCompilation **compilation) {
  if (compilation) {
    *compilation = NULL;
  }
  if (!model || !compilation) {
    return NP_REFUSE(UNEXPECTED_NULL, "model or compilation is NULL");
  }
  np_services_await();
  struct np_device_table *table = np_device_table();
  const ANeuralNetworksDevice *devices[NP_MAX_ACCELERATORS];
  const uint32_t n = table->phone || table->n_devices == 0 ? table->n_devices : 1;
  for (uint32_t i = 0; i < n; i++) {
    devices[i] = &table->devices[i];
  }
  return create(model, devices, n, false, compilation);
}

int ANeuralNetworksCompilation_createForDevices(ANeuralNetworksModel *model,
                                                const ANeuralNetworksDevice *const *devices,
                                                uint32_t numDevices,
                                                ANeuralNetworksCompilation **compilation) {
  if (compilation) {
    *compilation = NULL;
  }
  if (!model || !compilation) {
    return NP_REFUSE(UNEXPECTED_NULL, "model or compilation is NULL");
  }
  const int code = np_check_device_list(devices, numDevices);
  if (code != ANEURALNETWORKS_NO_ERROR) {
    return code;
  }
  return create(model, devices, numDevices, true, compilation);
}

void ANeuralNetworksCompilation_free(ANeuralNetworksCompilation *compilation) {
  if (!compilation) {
    return;
  }
  np_slots_free(compilation);
  np_service_release(compilation);
  free(compilation->cache.folder);
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
  if (!compilation) {
    return NP_REFUSE(UNEXPECTED_NULL, "compilation is NULL");
  }
  const int code = check_open(compilation);
  if (code != ANEURALNETWORKS_NO_ERROR) {
    return code;
  }
  if (preference < ANEURALNETWORKS_PREFER_LOW_POWER ||
      preference > ANEURALNETWORKS_PREFER_SUSTAINED_SPEED) {
    return NP_REFUSE(BAD_DATA, "%d is no preference", preference);
  }
  compilation->preference = preference;
  return ANEURALNETWORKS_NO_ERROR;
}

/* finish uses the folder: if it does not exist or is not writable, nothing is cached, as on
 * Android. */
int ANeuralNetworksCompilation_setCaching(ANeuralNetworksCompilation *compilation,
                                          const char *cacheDir, const uint8_t *token) {
  if (!compilation || !cacheDir || !token) {
    return NP_REFUSE(UNEXPECTED_NULL, "compilation, folder or token is NULL");
  }
  const int code = check_open(compilation);
  if (code != ANEURALNETWORKS_NO_ERROR) {
    return code;
  }
  const size_t length = strlen(cacheDir) + 1;
  char *folder = malloc(length);
  if (!folder) {
    return NP_REFUSE(OUT_OF_MEMORY, "no memory for the folder");
  }
  memcpy(folder, cacheDir, length);
  free(compilation->cache.folder);
  compilation->cache.folder = folder;
  memcpy(compilation->cache.token, token, sizeof compilation->cache.token);
  return ANEURALNETWORKS_NO_ERROR;
}

/* Stored, but without effect: each process has the emulator to itself. */
int ANeuralNetworksCompilation_setPriority(ANeuralNetworksCompilation *compilation, int priority) {
  if (!compilation) {
    return NP_REFUSE(UNEXPECTED_NULL, "compilation is NULL");
  }
  const int code = check_open(compilation);
  if (code != ANEURALNETWORKS_NO_ERROR) {
    return code;
  }
  if (priority != ANEURALNETWORKS_PRIORITY_LOW && priority != ANEURALNETWORKS_PRIORITY_MEDIUM &&
      priority != ANEURALNETWORKS_PRIORITY_HIGH) {
    return NP_REFUSE(BAD_DATA, "%d is no priority", priority);
  }
  compilation->priority = priority;
  return ANEURALNETWORKS_NO_ERROR;
}

/* The time starts with the call of finish; 0: no limit. */
int ANeuralNetworksCompilation_setTimeout(ANeuralNetworksCompilation *compilation,
                                          uint64_t duration) {
  if (!compilation) {
    return NP_REFUSE(UNEXPECTED_NULL, "compilation is NULL");
  }
  const int code = check_open(compilation);
  if (code != ANEURALNETWORKS_NO_ERROR) {
    return code;
  }
  if (!np_single_device(compilation)) {
    return NP_REFUSE(BAD_DATA, "a timeout needs createForDevices with one device");
  }
  compilation->timeout_ns = duration;
  return ANEURALNETWORKS_NO_ERROR;
}

/* Returns supported[i * n_operations + k], whether device i runs operation k; the last row is the
 * host CPU's. */
static bool *find_support(const ANeuralNetworksCompilation *compilation) {
  const struct np_graph *graph = &compilation->model->graph;
  const size_t n = graph->n_operations;
  bool *supported = calloc((compilation->n_devices + (size_t)1) * n, sizeof *supported);
  if (!supported) {
    return NULL;
  }
  bool has_cpu = false;
  for (uint32_t i = 0; i < compilation->n_devices; i++) {
    has_cpu |= compilation->devices[i]->type == ANEURALNETWORKS_DEVICE_CPU;
    for (uint32_t k = 0; k < n; k++) {
      supported[i * n + k] = np_device_supports(compilation->devices[i], compilation->model, k);
    }
  }
  for (uint32_t k = 0; k < n && !has_cpu && !compilation->explicit_devices; k++) {
    supported[compilation->n_devices * n + k] =
        np_operation_check(graph, k, np_device_table()->level, NULL) == NP_OK;
  }
  return supported;
}

/* In real time the first device computes, and must support everything. */
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

/* Appends the lowered graph and the plan to the file that NNAPI_EMULATOR_DUMP names, "-" for
 * standard error. */
static void dump(const struct np_executor *executor) {
  const char *path = getenv(DUMP_VARIABLE);
  if (!path || path[0] == '\0') {
    return;
  }
  const bool to_error = strcmp(path, "-") == 0;
  FILE *file = to_error ? stderr : fopen(path, "a");
  if (!file) {
    (void)NP_REFUSE(NO_ERROR, "%s: %s cannot be written", DUMP_VARIABLE, path);
    return;
  }
  np_executor_dump(executor, file);
  (void)(to_error ? fflush(file) : fclose(file));
}

/* Decides where operations run and, on a simulated phone, how long that takes. */
static int assign_devices(ANeuralNetworksCompilation *compilation, bool from_cache,
                          uint64_t deadline_ns) {
  bool *supported = find_support(compilation);
  if (!supported) {
    return NP_REFUSE(OUT_OF_MEMORY, "no memory for a plan");
  }
  const struct np_simulate_options options = {.from_cache = from_cache, .deadline_ns = deadline_ns};
  const int code = np_device_table()->phone ? np_simulate_compile(compilation, supported, &options)
                                            : check_all_supported(compilation, supported);
  free(supported);
  return code;
}

static int compile(ANeuralNetworksCompilation *compilation) {
  struct np_device_table *table = np_device_table();
  if (table->error[0]) {
    return NP_REFUSE(UNAVAILABLE_DEVICE, "%s", table->error);
  }
  const uint64_t deadline = np_deadline_after(compilation->timeout_ns);
  const bool cached = compilation->cache.folder && np_cache_hit(compilation);
  int code = assign_devices(compilation, cached, deadline);
  if (code != ANEURALNETWORKS_NO_ERROR) {
    return code;
  }
  struct np_message why = {""};
  enum np_status status;
  struct np_slot *slot = np_slot_acquire(compilation, &status, &why);
  if (!slot) {
    return np_refuse(np_result_code(status), __func__, "%s", why.text);
  }
  dump(slot->executor);
  np_slot_release(slot);
  if (np_clock_now() > deadline) {
    return NP_REFUSE(MISSED_DEADLINE_PERSISTENT, "compiling takes longer than it may");
  }
  if (compilation->cache.folder && !cached) {
    np_cache_store(compilation);
  }
  return ANEURALNETWORKS_NO_ERROR;
}

/* BAD_DATA if an operation runs on none of the named devices (or, without named ones, has no kernel
 * here); UNAVAILABLE_DEVICE if the simulated phone's description is bad;
 * MISSED_DEADLINE_PERSISTENT. Even after an error the compilation is finished, but not usable. */
int ANeuralNetworksCompilation_finish(ANeuralNetworksCompilation *compilation) {
  if (!compilation) {
    return NP_REFUSE(UNEXPECTED_NULL, "compilation is NULL");
  }
  const int open = check_open(compilation);
  if (open != ANEURALNETWORKS_NO_ERROR) {
    return open;
  }
  compilation->finished = true;
  const int code = compile(compilation);
  compilation->usable = code == ANEURALNETWORKS_NO_ERROR;
  return code;
}
