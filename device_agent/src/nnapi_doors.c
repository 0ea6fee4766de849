#define _GNU_SOURCE /* dladdr, pipe2 */

#include "nnapi_doors.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "np_doors.h"

/* Returns the address of a function's field in the table. */
static void *slot_of(struct np_nnapi *nnapi, uint32_t index) {
  return (char *)&nnapi->table + index * sizeof(void *);
}

enum np_door np_door_of(void *handle, const char *library) {
  if (library && dlsym(handle, NP_SL_SYMBOL)) {
    return NP_DOOR_SUPPORT_LIBRARY;
  }
  return library && dlsym(handle, NP_NEURON_PREFIX "Model_create") ? NP_DOOR_NEURON : NP_DOOR_NNAPI;
}

static void fill_by_name(struct np_nnapi *nnapi) {
  const char *prefix = nnapi->door == NP_DOOR_NEURON ? NP_NEURON_PREFIX : NP_NNAPI_PREFIX;
  char name[128];
  for (uint32_t i = 0; i < np_nnapi_n_functions(); i++) {
    (void)snprintf(name, sizeof name, "%s%s", prefix,
                   np_nnapi_function_name(i) + strlen(NP_NNAPI_PREFIX));
    void *function = dlsym(nnapi->handle, name);
    memcpy(slot_of(nnapi, i), &function, sizeof function);
  }
}

/* ---- Support libraries ---- */

/* Copies bytes that may not be readable, through the kernel, which reports bad addresses. 0, or
 * -1. */
static int copy_carefully(const void *from, void *to, size_t n) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    return -1;
  }
  /* No more than a page, which a pipe always has room for. */
  const int copied =
      n <= 4096 && write(ends[1], from, n) == (ssize_t)n && read(ends[0], to, n) == (ssize_t)n;
  (void)close(ends[0]);
  (void)close(ends[1]);
  return copied ? 0 : -1;
}

#define ENTRY(name) #name "\0"

/* The table's names, one after the other. */
static const char sl_names[] = NP_SL_FUNCTIONS(ENTRY, ENTRY);

static enum np_status refuse(const struct np_nnapi *nnapi, struct np_message *why,
                             const char *what) {
  return np_error(NP_MISSING, why, "%s is no NNAPI support library that can be used: %s",
                  nnapi->path, what);
}

static int is_known_level(int64_t level) {
  return level == ANEURALNETWORKS_FEATURE_LEVEL_5 || level == ANEURALNETWORKS_FEATURE_LEVEL_6 ||
         level == ANEURALNETWORKS_FEATURE_LEVEL_7 || level == ANEURALNETWORKS_FEATURE_LEVEL_8;
}

static enum np_status fill_from_table(struct np_nnapi *nnapi, struct np_message *why) {
  void *symbol = dlsym(nnapi->handle, NP_SL_SYMBOL);
  const void *(*get)(void);
  memcpy(&get, &symbol, sizeof get);
  const void *given = get();
  struct np_sl_table table = {0};
  char what[160];
  if (!given) {
    return refuse(nnapi, why, NP_SL_SYMBOL "() returned NULL");
  }
  if (copy_carefully(given, &table, sizeof table.implFeatureLevel) != 0) {
    return refuse(nnapi, why, "its table is not in readable memory");
  }
  if (!is_known_level(table.implFeatureLevel)) {
    (void)snprintf(what, sizeof what,
                   "its table is of version %" PRId64 "; known are the feature levels 5 to 8",
                   table.implFeatureLevel);
    return refuse(nnapi, why, what);
  }
  if (copy_carefully(given, &table, sizeof table) != 0) {
    return refuse(nnapi, why, "its table ends before the functions of feature level 5 do");
  }
  const char *from =
      (const char *)&table + offsetof(struct np_sl_table, ANeuralNetworksBurst_create);
  for (const char *name = sl_names; *name; name += strlen(name) + 1) {
    void *function;
    memcpy(&function, from, sizeof function);
    from += sizeof function;
    Dl_info info;
    if (function && dladdr(function, &info) == 0) {
      (void)snprintf(what, sizeof what, "its %s points into no library", name);
      return refuse(nnapi, why, what);
    }
    for (uint32_t f = 0; f < np_nnapi_n_functions(); f++) {
      if (strcmp(name, np_nnapi_function_name(f)) == 0) {
        memcpy(slot_of(nnapi, f), &function, sizeof function);
      }
    }
  }
  return NP_OK;
}

/* ---- Both ---- */

/* Returns the first essential function that the door lacks; NULL: none. */
static const char *missing_function(const struct np_nnapi_table *table) {
#define NEED(name)                                                                                 \
  if (!table->ANeuralNetworks##name)                                                               \
  return #name
  NEED(_getDeviceCount);
  NEED(_getDevice);
  NEED(Device_getName);
  NEED(Model_create);
  NEED(Model_free);
  NEED(Model_addOperand);
  NEED(Model_setOperandValue);
  NEED(Model_addOperation);
  NEED(Model_identifyInputsAndOutputs);
  NEED(Model_finish);
  NEED(Compilation_createForDevices);
  NEED(Compilation_free);
  NEED(Compilation_setPreference);
  NEED(Compilation_finish);
  NEED(Execution_create);
  NEED(Execution_free);
  NEED(Execution_setInput);
  NEED(Execution_setOutput);
  NEED(Execution_compute);
#undef NEED
  return NULL;
}

enum np_status np_door_fill(struct np_nnapi *nnapi, struct np_message *why) {
  enum np_status status = NP_OK;
  if (nnapi->door == NP_DOOR_SUPPORT_LIBRARY) {
    status = fill_from_table(nnapi, why);
  } else {
    fill_by_name(nnapi);
  }
  if (status != NP_OK || nnapi->door == NP_DOOR_NNAPI) {
    return status;
  }
  const char *missing = missing_function(&nnapi->table);
  if (missing) {
    const int is_neuron = nnapi->door == NP_DOOR_NEURON;
    return np_error(NP_MISSING, why, "%s cannot be used: it has no %s%s%s", nnapi->path,
                    is_neuron ? NP_NEURON_PREFIX : NP_NNAPI_PREFIX, missing,
                    is_neuron ? ", which came with NeuronAdapter 4.1" : "");
  }
  return NP_OK;
}

int np_door_code(const struct np_nnapi *nnapi, int code) {
  if (nnapi->door != NP_DOOR_NEURON) {
    return code;
  }
  switch (code) {
  case NP_NEURON_UNMAPPABLE:
    return ANEURALNETWORKS_UNMAPPABLE;
  case NP_NEURON_BAD_STATE:
    return ANEURALNETWORKS_BAD_STATE;
  case NP_NEURON_BAD_VERSION:
    return NP_CODE_BAD_VERSION;
  default:
    return code > NP_NEURON_BAD_VERSION && code <= NP_NEURON_DEAD_OBJECT ? code - 1 : code;
  }
}

void np_door_describe(const struct np_nnapi *nnapi, struct np_accelerator *accelerator) {
  if (nnapi->door != NP_DOOR_NEURON) {
    return;
  }
  accelerator->type = ANEURALNETWORKS_DEVICE_ACCELERATOR;
  accelerator->feature_level = NP_NEURON_LEVEL;
  void *symbol = dlsym(nnapi->handle, NP_NEURON_PREFIX "_getVersion");
  int (*get)(struct np_neuron_version *);
  memcpy(&get, &symbol, sizeof get);
  struct np_neuron_version version = {0, 0, 0};
  if (get && get(&version) == ANEURALNETWORKS_NO_ERROR) {
    (void)snprintf(accelerator->version, sizeof accelerator->version, "%u.%u.%u", version.major,
                   version.minor, version.patch);
  }
}
