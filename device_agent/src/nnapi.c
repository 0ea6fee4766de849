#define _GNU_SOURCE /* dladdr */

#include "nnapi.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bind.h"
#include "nnapi_doors.h"

#define FUNCTION_NAME(result, name, parameters, level) #name,

static const char *const function_names[] = {NP_NNAPI_FUNCTIONS(FUNCTION_NAME)};

#define N_FUNCTIONS (sizeof function_names / sizeof *function_names)

/* The table is accessed by index, as an array of pointers. */
_Static_assert(sizeof(struct np_nnapi_table) == N_FUNCTIONS * sizeof(void *),
               "a function pointer is as large as a data pointer, without padding");

uint32_t np_nnapi_n_functions(void) { return (uint32_t)N_FUNCTIONS; }

const char *np_nnapi_function_name(uint32_t index) { return function_names[index]; }

int np_nnapi_has_function(const struct np_nnapi *nnapi, uint32_t index) {
  void *function = NULL;
  memcpy(&function, (const char *)&nnapi->table + index * sizeof function, sizeof function);
  return function != NULL;
}

/* Finds the library's file as the linker found it. */
static void find_path(struct np_nnapi *nnapi, const char *name) {
  static const char *const symbols[] = {"ANeuralNetworksModel_create",
                                        "ANeuralNetworks_getSLDriverImpl", "NeuronModel_create"};
  Dl_info info;
  const void *symbol = dlsym(nnapi->handle, symbols[nnapi->door]);
  if (symbol && dladdr(symbol, &info) != 0 && info.dli_fname) {
    name = info.dli_fname;
  }
  (void)snprintf(nnapi->path, sizeof nnapi->path, "%s", name);
  const char *slash = strrchr(nnapi->path, '/');
  nnapi->file = slash ? slash + 1 : nnapi->path;
}

enum np_status np_nnapi_open(const char *library, struct np_nnapi **nnapi, struct np_message *why) {
  *nnapi = NULL;
  const char *name = library ? library : NP_NNAPI_LIBRARY;
  /* Its drivers' threads may keep running after the last call, so the library stays mapped when
   * closed. */
  void *handle = dlopen(name, NP_BIND_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!handle) {
    const char *words = dlerror();
    return np_error(NP_MISSING, why, "no NNAPI library: %s", words ? words : name);
  }
  struct np_nnapi *opened = calloc(1, sizeof *opened);
  if (!opened) {
    (void)dlclose(handle);
    return np_error(NP_NO_MEMORY, why, "no memory for the table of NNAPI's functions");
  }
  atomic_init(&opened->n_holders, 1);
  opened->handle = handle;
  opened->door = np_door_of(handle, library);
  find_path(opened, name);
  const enum np_status status = np_door_fill(opened, why);
  if (status != NP_OK) {
    np_nnapi_close(opened);
    return status;
  }
  *nnapi = opened;
  return NP_OK;
}

void np_nnapi_close(struct np_nnapi *nnapi) {
  if (!nnapi || atomic_fetch_sub(&nnapi->n_holders, 1) != 1) {
    return;
  }
  (void)dlclose(nnapi->handle);
  free(nnapi);
}

void np_nnapi_hold(struct np_nnapi *nnapi) { (void)atomic_fetch_add(&nnapi->n_holders, 1); }

const char *np_nnapi_path(const struct np_nnapi *nnapi) { return nnapi->path; }

enum np_door np_nnapi_door(const struct np_nnapi *nnapi) { return nnapi->door; }

const char *np_door_text(enum np_door door) {
  return door == NP_DOOR_NEURON            ? "neuron adapter"
         : door == NP_DOOR_SUPPORT_LIBRARY ? "support library"
                                           : "nnapi";
}

void *np_nnapi_symbol(const struct np_nnapi *nnapi, const char *name) {
  return dlsym(nnapi->handle, name);
}

const char *np_nnapi_result_text(int code) {
  static const char *const texts[] = {
      "NO_ERROR",
      "OUT_OF_MEMORY",
      "INCOMPLETE",
      "UNEXPECTED_NULL",
      "BAD_DATA",
      "OP_FAILED",
      "BAD_STATE",
      "UNMAPPABLE",
      "OUTPUT_INSUFFICIENT_SIZE",
      "UNAVAILABLE_DEVICE",
      "MISSED_DEADLINE_TRANSIENT",
      "MISSED_DEADLINE_PERSISTENT",
      "RESOURCE_EXHAUSTED_TRANSIENT",
      "RESOURCE_EXHAUSTED_PERSISTENT",
      "DEAD_OBJECT",
  };
  _Static_assert(sizeof texts / sizeof *texts == ANEURALNETWORKS_DEAD_OBJECT + 1,
                 "one text for each result code");
  return code == NP_CODE_BAD_VERSION                        ? "BAD_VERSION"
         : code >= 0 && code <= ANEURALNETWORKS_DEAD_OBJECT ? texts[code]
                                                            : "an unknown code";
}

const char *np_nnapi_type_text(int32_t type) {
  switch (type) {
  case ANEURALNETWORKS_DEVICE_ACCELERATOR:
    return "ACCELERATOR";
  case ANEURALNETWORKS_DEVICE_GPU:
    return "GPU";
  case ANEURALNETWORKS_DEVICE_CPU:
    return "CPU";
  case ANEURALNETWORKS_DEVICE_OTHER:
    return "OTHER";
  default:
    return "UNKNOWN";
  }
}

static int can_name_devices(const struct np_nnapi_table *table) {
  return table->ANeuralNetworks_getDeviceCount && table->ANeuralNetworks_getDevice &&
         table->ANeuralNetworksDevice_getName;
}

/* Makes the name under which this library's accelerator is listed. */
static void name_of(const struct np_nnapi *nnapi, const char *own, char *name, size_t size) {
  const int is_nnapi = nnapi->door == NP_DOOR_NNAPI;
  (void)snprintf(name, size, "%s%s%s", own ? own : "", is_nnapi ? "" : "@",
                 is_nnapi ? "" : nnapi->file);
}

enum np_status np_nnapi_accelerators(const struct np_nnapi *nnapi,
                                     struct np_accelerator *accelerators, uint32_t room,
                                     uint32_t *n, struct np_message *why) {
  const struct np_nnapi_table *table = &nnapi->table;
  *n = 0;
  if (!can_name_devices(table)) {
    return NP_OK;
  }
  uint32_t count = 0;
  int code = table->ANeuralNetworks_getDeviceCount(&count);
  if (code != ANEURALNETWORKS_NO_ERROR) {
    code = np_door_code(nnapi, code);
    return np_error(NP_RUN_FAILED, why, "getDeviceCount returned %s (%d)",
                    np_nnapi_result_text(code), code);
  }
  for (uint32_t i = 0; i < count && i < room; i++) {
    ANeuralNetworksDevice *device = NULL;
    const char *name = NULL;
    const char *version = NULL;
    int32_t type = ANEURALNETWORKS_DEVICE_UNKNOWN;
    int64_t level = 0;
    code = table->ANeuralNetworks_getDevice(i, &device);
    if (code == ANEURALNETWORKS_NO_ERROR) {
      code = table->ANeuralNetworksDevice_getName(device, &name);
    }
    if (code == ANEURALNETWORKS_NO_ERROR && table->ANeuralNetworksDevice_getVersion) {
      code = table->ANeuralNetworksDevice_getVersion(device, &version);
    }
    if (code == ANEURALNETWORKS_NO_ERROR && table->ANeuralNetworksDevice_getType) {
      code = table->ANeuralNetworksDevice_getType(device, &type);
    }
    if (code == ANEURALNETWORKS_NO_ERROR && table->ANeuralNetworksDevice_getFeatureLevel) {
      code = table->ANeuralNetworksDevice_getFeatureLevel(device, &level);
    }
    if (code != ANEURALNETWORKS_NO_ERROR) {
      code = np_door_code(nnapi, code);
      return np_error(NP_RUN_FAILED, why, "asking for accelerator %u of %u returned %s (%d)", i,
                      count, np_nnapi_result_text(code), code);
    }
    struct np_accelerator *accelerator = &accelerators[i];
    name_of(nnapi, name, accelerator->name, sizeof accelerator->name);
    (void)snprintf(accelerator->version, sizeof accelerator->version, "%s", version ? version : "");
    accelerator->type = type;
    accelerator->feature_level = level;
    np_door_describe(nnapi, accelerator);
  }
  *n = count;
  return NP_OK;
}

enum np_status np_nnapi_find(const struct np_nnapi *nnapi, const char *name,
                             ANeuralNetworksDevice **device, struct np_message *why) {
  const struct np_nnapi_table *table = &nnapi->table;
  NP_REQUIRE(can_name_devices(table) && table->ANeuralNetworksCompilation_createForDevices,
             NP_UNSUPPORTED, why,
             "this NNAPI cannot name an accelerator (that needs API 29), so \"%s\" "
             "cannot be chosen; leave the choice to NNAPI",
             name);
  uint32_t count = 0;
  char names[160] = "";
  size_t used = 0;
  if (table->ANeuralNetworks_getDeviceCount(&count) != ANEURALNETWORKS_NO_ERROR) {
    count = 0;
  }
  for (uint32_t i = 0; i < count; i++) {
    const char *own = NULL;
    char full[sizeof(((struct np_accelerator *)NULL)->name)];
    if (table->ANeuralNetworks_getDevice(i, device) != ANEURALNETWORKS_NO_ERROR ||
        table->ANeuralNetworksDevice_getName(*device, &own) != ANEURALNETWORKS_NO_ERROR) {
      continue;
    }
    name_of(nnapi, own, full, sizeof full);
    if (own && (strcmp(full, name) == 0 || strcmp(own, name) == 0)) {
      return NP_OK;
    }
    const int n = snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", full);
    if (n > 0 && (size_t)n < sizeof names - used) {
      used += (size_t)n;
    }
  }
  return np_error(NP_MISSING, why, "no accelerator is called \"%s\"; there are: %s", name,
                  used ? names : "none");
}
