/* Reads the CPU and the accelerators of a description: rates, costs, efficiencies. */
#define _POSIX_C_SOURCE 200809L /* strdup */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "phone_read.h"

const struct np_constant_rule np_rule_rate = {"GMAC/s", 0, 1e6, 1};
const struct np_constant_rule np_rule_bandwidth = {"GB/s", 0, 1e6, 1};
const struct np_constant_rule np_rule_microseconds = {"us", 0, 1e9, 0};
const struct np_constant_rule np_rule_milliseconds = {"ms", 0, 1e9, 0};
const struct np_constant_rule np_rule_factor = {"ratio", 0, 1e3, 1};
const struct np_constant_rule np_rule_fraction = {"ratio", 0, 1, 0};
const struct np_constant_rule np_rule_degrees = {"degC", 0, 200, 0};
static const struct np_constant_rule efficiency_rule = {"ratio", 0, 1, 1};

int np_read_scaled(const struct np_field *field, const char *name,
                   const struct np_constant_rule *rule, double scale, double *number) {
  if (!np_field_member_constant(field, name, rule, number)) {
    return 0;
  }
  *number *= scale;
  return 1;
}

int np_read_optional(const struct np_field *field, const char *name,
                     const struct np_constant_rule *rule, double scale, double *number) {
  return !np_json_member(field->value, name) || np_read_scaled(field, name, rule, scale, number);
}

int np_read_text(const struct np_field *field, const char *name, char **kept) {
  const char *text = NULL;
  if (!np_field_member_text(field, name, &text)) {
    return 0;
  }
  *kept = strdup(text);
  return *kept ? 1 : np_field_refuse(field, "no memory", "memory for its text");
}

int np_read_code(const struct np_field *field, const char *name, int32_t *code) {
  *code = np_operation_code(name);
  if (*code >= 0 && *code < NP_OPERATION_CODES) {
    return 1;
  }
  char found[64];
  snprintf(found, sizeof found, "\"%.40s\"", name);
  return np_field_refuse(field, found, "the name of an NNAPI operation, such as CONV_2D");
}

/* Fills in missing constants: relaxed takes that of float32, float16 that of relaxed, the 8-bit
 * kinds that of quant8, the others the default. */
static void fill_up(struct np_by_data *numbers, const bool *given, double fallback) {
  for (int kind = 0; kind < NP_DATA_KINDS; kind++) {
    if (given[kind]) {
      continue;
    }
    double *number = &numbers->value[kind];
    switch (kind) {
    case NP_DATA_RELAXED:
      *number = numbers->value[NP_DATA_FLOAT32];
      break;
    case NP_DATA_FLOAT16:
      *number = numbers->value[NP_DATA_RELAXED];
      break;
    case NP_DATA_QUANT8_SIGNED:
    case NP_DATA_QUANT8_SYMM:
    case NP_DATA_PER_CHANNEL:
      *number = numbers->value[NP_DATA_QUANT8];
      break;
    default:
      *number = fallback;
    }
  }
}

int np_read_by_data(const struct np_field *parent, const char *name,
                    const struct np_constant_rule *rule, struct np_by_data *numbers) {
  struct np_field field;
  bool given[NP_DATA_KINDS] = {false};
  double fallback;
  if (!np_field_member(parent, name, &field)) {
    return 0;
  }
  if (np_json_member(field.value, "value")) { /* one constant for all data */
    if (!np_field_constant(&field, rule, &fallback)) {
      return 0;
    }
    fill_up(numbers, given, fallback);
    return 1;
  }
  if (!np_field_member_constant(&field, "default", rule, &fallback)) {
    return 0;
  }
  for (const struct np_json *m = field.value->first; m; m = m->next) {
    if (strcmp(m->name, "default") == 0) {
      continue;
    }
    const int kind = np_data_named(m->name, strlen(m->name));
    if (kind < 0) {
      char found[64];
      snprintf(found, sizeof found, "\"%.40s\"", m->name);
      return np_field_refuse(&field, found, "\"default\" or a kind of data, such as quant8");
    }
    if (!np_field_member_constant(&field, m->name, rule, &numbers->value[kind])) {
      return 0;
    }
    given[kind] = true;
  }
  fill_up(numbers, given, fallback);
  return 1;
}

static int read_efficiency(const struct np_field *parent, struct np_efficiency *efficiency) {
  struct np_field field;
  if (!np_field_member(parent, "efficiency", &field) ||
      !np_field_member_constant(&field, "default", &efficiency_rule, &efficiency->fallback)) {
    return 0;
  }
  for (const struct np_json *m = field.value->first; m; m = m->next) {
    int32_t code;
    if (strcmp(m->name, "default") == 0) {
      continue;
    }
    if (!np_read_code(&field, m->name, &code) ||
        !np_field_member_constant(&field, m->name, &efficiency_rule, &efficiency->by_code[code])) {
      return 0;
    }
  }
  return 1;
}

int np_read_unit(const struct np_field *parent, struct np_unit_model *unit) {
  return np_read_by_data(parent, "peak", &np_rule_rate, &unit->peak) &&
         np_read_scaled(parent, "bandwidth", &np_rule_bandwidth, 1, &unit->bandwidth) &&
         np_read_scaled(parent, "operation_overhead", &np_rule_microseconds, 1e3,
                        &unit->operation_overhead) &&
         np_read_optional(parent, "heat", &np_rule_degrees, 1, &unit->heat) &&
         read_efficiency(parent, &unit->efficiency);
}

static int read_type(const struct np_field *parent, int32_t *type) {
  static const struct {
    const char *name;
    int32_t code;
  } types[] = {{"ACCELERATOR", ANEURALNETWORKS_DEVICE_ACCELERATOR},
               {"GPU", ANEURALNETWORKS_DEVICE_GPU},
               {"CPU", ANEURALNETWORKS_DEVICE_CPU},
               {"OTHER", ANEURALNETWORKS_DEVICE_OTHER}};
  struct np_field field;
  const char *text = NULL;
  if (!np_field_member(parent, "type", &field) || !np_field_text(&field, &text)) {
    return 0;
  }
  for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
    if (strcmp(types[i].name, text) != 0) {
      continue;
    }
    *type = types[i].code;
    return 1;
  }
  return np_field_refuse(&field, text, "ACCELERATOR, GPU, CPU or OTHER");
}

static int read_preference(const struct np_field *parent, double *preference) {
  static const char *const names[] = {"low_power", "fast", "sustained", NULL};
  struct np_field field;
  if (!np_field_member(parent, "preference", &field) || !np_field_object(&field, names)) {
    return 0;
  }
  for (int i = 0; i < 3; i++) {
    if (!np_read_scaled(&field, names[i], &np_rule_factor, 1, &preference[i])) {
      return 0;
    }
  }
  return 1;
}

/* ms are 1e6 ns; ms for 1e6 bytes are ns for each byte */
static int read_compilation(const struct np_field *parent, struct np_accelerator *a) {
  static const char *const names[] = {"fixed", "per_operation", "per_megabyte", "cache", NULL};
  static const char *const cache_names[] = {"fixed", "per_megabyte", NULL};
  const struct np_constant_rule *const ms = &np_rule_milliseconds;
  struct np_field field, cache;
  if (!np_field_member(parent, "compilation", &field) || !np_field_object(&field, names) ||
      !np_read_scaled(&field, "fixed", ms, 1e6, &a->compile_fixed) ||
      !np_read_scaled(&field, "per_operation", ms, 1e6, &a->compile_operation) ||
      !np_read_scaled(&field, "per_megabyte", ms, 1, &a->compile_byte)) {
    return 0;
  }
  a->caches = np_json_member(field.value, "cache") != NULL;
  return !a->caches ||
         (np_field_member(&field, "cache", &cache) && np_field_object(&cache, cache_names) &&
          np_read_scaled(&cache, "fixed", ms, 1e6, &a->cached_fixed) &&
          np_read_scaled(&cache, "per_megabyte", ms, 1, &a->cached_byte));
}

static int read_power(const struct np_field *field, struct np_accelerator *a) {
  a->power = a->performance;
  return !np_json_member(field->value, "power") ||
         np_read_by_data(field, "power", &np_rule_factor, &a->power);
}

/* Reads a level, or NP_FUTURE_LEVEL, for which the level is that of the phone's API, as far as the
 * library supports it. */
static int read_level(const struct np_field *field, const struct np_phone *phone,
                      struct np_accelerator *a) {
  const int64_t newest = ANEURALNETWORKS_FEATURE_LEVEL_4;
  struct np_field level;
  if (!np_field_member(field, "feature_level", &level)) {
    return 0;
  }
  const double number = level.value->kind == NP_JSON_NUMBER ? level.value->number : 0;
  const bool future = number == (double)NP_FUTURE_LEVEL;
  const bool by_number = number >= ANEURALNETWORKS_FEATURE_LEVEL_6;
  const int64_t low = by_number ? ANEURALNETWORKS_FEATURE_LEVEL_6 : ANEURALNETWORKS_FEATURE_LEVEL_1;
  const int64_t high =
      by_number ? ANEURALNETWORKS_FEATURE_LEVEL_8 : ANEURALNETWORKS_FEATURE_LEVEL_5;
  if (!future && !np_field_integer(&level, low, high, &a->feature_level)) {
    return 0;
  }
  if (future) {
    const char *api = np_phone_property(phone, "ro.build.version.sdk");
    const int64_t known = api ? strtol(api, NULL, 10) : newest;
    a->feature_level = known < ANEURALNETWORKS_FEATURE_LEVEL_1 || known > newest ? newest : known;
  }
  a->reported_level = future ? NP_FUTURE_LEVEL : a->feature_level;
  return 1;
}

int np_read_accelerator(const struct np_field *field, struct np_phone *phone,
                        struct np_accelerator *a) {
  static const char *const names[] = {"name",
                                      "type",
                                      "version",
                                      "feature_level",
                                      "operations",
                                      "peak",
                                      "power",
                                      "performance",
                                      "bandwidth",
                                      "transfer_bandwidth",
                                      "heat",
                                      "faults",
                                      "invocation",
                                      "burst_invocation",
                                      "transfer_floor",
                                      "fusion",
                                      "preference",
                                      "efficiency",
                                      "operation_overhead",
                                      "compilation",
                                      "driver_share",
                                      "service",
                                      "errors",
                                      NULL};
  return np_field_object(field, names) && np_read_text(field, "name", &a->name) &&
         read_type(field, &a->type) && np_read_text(field, "version", &a->version) &&
         read_level(field, phone, a) && np_read_operations(field, a) &&
         np_read_unit(field, &a->unit) &&
         np_read_by_data(field, "performance", &np_rule_factor, &a->performance) &&
         read_power(field, a) &&
         np_read_scaled(field, "transfer_bandwidth", &np_rule_bandwidth, 1,
                        &a->transfer_bandwidth) &&
         np_read_optional(field, "transfer_floor", &np_rule_microseconds, 1e3,
                          &a->transfer_floor) &&
         np_read_scaled(field, "invocation", &np_rule_microseconds, 1e3, &a->invocation) &&
         np_read_scaled(field, "burst_invocation", &np_rule_microseconds, 1e3,
                        &a->burst_invocation) &&
         np_read_optional(field, "driver_share", &np_rule_fraction, 1, &a->driver_share) &&
         read_preference(field, a->preference) && read_compilation(field, a) &&
         np_read_fusion(field, a) && np_read_faults(field, phone, a) && np_read_service(field, a) &&
         np_read_errors(field, a);
}
