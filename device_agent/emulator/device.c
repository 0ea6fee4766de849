/* The device table: the devices of this process, determined once by NNAPI_EMULATOR_PHONE,
 * NNAPI_EMULATOR_BACKEND and similar variables. */
#define _POSIX_C_SOURCE 200809L
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emulator.h"
#include "service.h"

#define PHONE_VARIABLE "NNAPI_EMULATOR_PHONE"
#define BACKEND_VARIABLE "NNAPI_EMULATOR_BACKEND"
#define VERBOSE_VARIABLE "NNAPI_EMULATOR_VERBOSE"
#define FAULTS_VARIABLE "NNAPI_EMULATOR_FAULTS"
#define BODY_VARIABLE "NNAPI_EMULATOR_BODY"
#define SERVICE_VARIABLE "NNAPI_EMULATOR_SERVICE"
#define LEVEL_VARIABLE "NNAPI_EMULATOR_FEATURE_LEVEL"
#define FUTURE_LEVEL_TEXT "10000" /* NP_FUTURE_LEVEL */

static struct np_device_table table;
static pthread_once_t table_once = PTHREAD_ONCE_INIT;

/* Returns the value of an environment variable, NULL if it is unset or empty. */
static const char *setting(const char *name) {
  const char *value = getenv(name);
  return value && value[0] != '\0' ? value : NULL;
}

/* Adds a device for each back end of this build, the faster one first, or only for `only` unless it
 * is NULL; they report the feature level `reported`. */
static void offer_backends(const char *only, int64_t reported) {
  static const struct {
    const char *backend, *device;
  } rows[] = {{"fast", "nnapi-fast"}, {"reference", "nnapi-reference"}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    const struct np_backend *backend = np_backend_named(rows[i].backend);
    if (!backend || (only && strcmp(only, rows[i].backend) != 0)) {
      continue;
    }
    table.devices[table.n_devices++] =
        (struct ANeuralNetworksDevice){.name = rows[i].device,
                                       .version = "1.0",
                                       .type = ANEURALNETWORKS_DEVICE_CPU,
                                       .feature_level = table.level,
                                       .reported_level = reported,
                                       .backend = backend};
  }
}

/* Adds the accelerators of the phone; `backend` computes their results. */
static void offer_phone(const char *path, const struct np_backend *backend) {
  struct np_message why;
  if (np_phone_load(path, &table.phone, &why) != NP_OK) {
    snprintf(table.error, sizeof table.error, "%s %s: %s", PHONE_VARIABLE, path, why.text);
    return;
  }
  const char *faults = setting(FAULTS_VARIABLE);
  const char *body = setting(BODY_VARIABLE);
  const char *wrong = NULL;
  if (faults && np_phone_inject(table.phone, faults, &why) != NP_OK) {
    wrong = FAULTS_VARIABLE;
  } else if (body && np_phone_keep_body(table.phone, body, &why) != NP_OK) {
    wrong = BODY_VARIABLE;
  } else if (np_services_open(table.phone, setting(SERVICE_VARIABLE), &why) != NP_OK) {
    wrong = SERVICE_VARIABLE;
  }
  if (wrong) {
    snprintf(table.error, sizeof table.error, "%s: %s", wrong, why.text);
    np_phone_free(table.phone);
    table.phone = NULL;
    return;
  }
  np_phone_host_cpu(table.phone, &table.host_cpu);
  for (uint32_t i = 0; i < table.phone->n_accelerators; i++) {
    const struct np_accelerator *a = &table.phone->accelerators[i];
    if (a->feature_level > table.level) {
      table.level = (int32_t)a->feature_level; /* the runtime has the level of its drivers */
    }
    const char *version = np_service_version(table.phone, i);
    if (version) {
      table.devices[table.n_devices++] = (struct ANeuralNetworksDevice){
          a->name, version, a->type, a->feature_level, a->reported_level, a, backend};
    }
  }
}

/* Reads a feature level as devices report it; 0 if `text` is not one. */
static int32_t read_level(const char *text) {
  char *end = NULL;
  const long level = strtol(text, &end, 10);
  const bool by_api =
      level >= ANEURALNETWORKS_FEATURE_LEVEL_1 && level <= ANEURALNETWORKS_FEATURE_LEVEL_5;
  const bool by_number =
      level >= ANEURALNETWORKS_FEATURE_LEVEL_6 && level <= ANEURALNETWORKS_FEATURE_LEVEL_8;
  return *end == '\0' && (by_api || by_number) ? (int32_t)level : 0;
}

static void build_table(void) {
  const char *verbose = setting(VERBOSE_VARIABLE);
  table.verbose = verbose && strcmp(verbose, "0") != 0;
  const char *level = setting(LEVEL_VARIABLE);
  const bool future = level && strcmp(level, FUTURE_LEVEL_TEXT) == 0;
  table.level = level && !future ? read_level(level) : NP_DEFAULT_LEVEL;
  if (table.level == 0) {
    table.level = NP_DEFAULT_LEVEL;
    snprintf(table.error, sizeof table.error,
             "%s is \"%s\", wanted is 27 to 31, 1000006 to 1000008, or " FUTURE_LEVEL_TEXT,
             LEVEL_VARIABLE, level);
    return;
  }
  const char *only = setting(BACKEND_VARIABLE);
  if (only && !np_backend_named(only)) {
    snprintf(table.error, sizeof table.error, "%s is \"%s\", this library has: reference%s",
             BACKEND_VARIABLE, only, np_backend_named("fast") ? ", fast" : "");
    return;
  }
  const char *path = setting(PHONE_VARIABLE);
  if (path) {
    offer_phone(path, np_backend_named(only ? only : "reference"));
  } else if (setting(FAULTS_VARIABLE)) {
    snprintf(table.error, sizeof table.error, "%s needs a simulated phone, %s names none",
             FAULTS_VARIABLE, PHONE_VARIABLE);
  } else {
    offer_backends(only, future ? NP_FUTURE_LEVEL : table.level);
  }
}

struct np_device_table *np_device_table(void) {
  pthread_once(&table_once, build_table);
  return &table;
}

int np_refuse(int code, const char *function, const char *format, ...) {
  if (!np_device_table()->verbose) {
    return code;
  }
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  fprintf(stderr, "%s: result %d: %s\n", function, code, text);
  return code;
}

int np_result_code(enum np_status status) {
  switch (status) {
  case NP_OK:
    return ANEURALNETWORKS_NO_ERROR;
  case NP_NO_MEMORY:
    return ANEURALNETWORKS_OUT_OF_MEMORY;
  case NP_BAD_ARGUMENT:
  case NP_BAD_MODEL:
  case NP_UNSUPPORTED:
    return ANEURALNETWORKS_BAD_DATA;
  default:
    return ANEURALNETWORKS_OP_FAILED;
  }
}

bool np_device_known(const ANeuralNetworksDevice *device) {
  const struct np_device_table *t = np_device_table();
  for (uint32_t i = 0; i < t->n_devices; i++) {
    if (device == &t->devices[i]) {
      return true;
    }
  }
  return false;
}

/* Returns whether a fault that strikes a limited number of times refuses an operation now. */
static bool refuses_now(const struct np_phone *phone, const ANeuralNetworksDevice *device,
                        const struct np_graph *graph, uint32_t operation) {
  for (uint32_t i = 0; i < phone->n_faults; i++) {
    const struct np_fault *fault = &phone->faults[i];
    if (fault->kind == NP_FAULT_REFUSE && fault->stage == NP_FAULT_COMPILE &&
        (fault->times != 0 || fault->company) &&
        np_fault_meets(fault, device->accelerator, graph, operation) && np_service_strikes(fault)) {
      return true;
    }
  }
  return false;
}

bool np_device_supports(const ANeuralNetworksDevice *device, const ANeuralNetworksModel *model,
                        uint32_t operation) {
  const struct np_graph *graph = &model->graph;
  const int32_t code = graph->operations[operation].code;
  if (code < 0 || code >= NP_OPERATION_CODES) {
    return false;
  }
  const struct np_phone *phone = np_device_table()->phone;
  if (phone &&
      (!np_phone_takes(phone, device->accelerator, graph, operation, model->relaxed) ||
       np_service_refuses(device->accelerator) || refuses_now(phone, device, graph, operation))) {
    return false;
  }
  const int32_t level = (int32_t)device->feature_level;
  return np_operation_check(graph, operation, level, NULL) == NP_OK;
}

int np_check_device_list(const ANeuralNetworksDevice *const *devices, uint32_t n_devices) {
  if (!devices) {
    return NP_REFUSE(UNEXPECTED_NULL, "the list of devices is NULL");
  }
  if (n_devices == 0) {
    return NP_REFUSE(BAD_DATA, "the list of devices is empty");
  }
  for (uint32_t i = 0; i < n_devices; i++) {
    if (!devices[i]) {
      return NP_REFUSE(UNEXPECTED_NULL, "device %u of the list is NULL", i);
    }
    if (!np_device_known(devices[i])) {
      return NP_REFUSE(BAD_DATA, "device %u of the list is none that getDevice gave", i);
    }
    for (uint32_t j = 0; j < i; j++) {
      if (devices[j] == devices[i]) {
        return NP_REFUSE(BAD_DATA, "device %u of the list stands there twice", i);
      }
    }
  }
  return ANEURALNETWORKS_NO_ERROR;
}
