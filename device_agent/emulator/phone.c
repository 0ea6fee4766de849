/* Reads the description of a simulated phone; PHONES.md beside this file is its format. */
#define _POSIX_C_SOURCE 200809L /* strdup */
#include "phone.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "field.h"
#include "hash.h"
#include "np_graph.h"

#define MAX_FILE_BYTES ((size_t)1 << 20)
#define MAX_PROPERTIES 256u

static const struct np_constant_rule RATE = {"GMAC/s", 0, 1e6, 1};
static const struct np_constant_rule BANDWIDTH = {"GB/s", 0, 1e6, 1};
static const struct np_constant_rule MICROSECONDS = {"us", 0, 1e9, 0};
static const struct np_constant_rule MILLISECONDS = {"ms", 0, 1e9, 0};
static const struct np_constant_rule FACTOR = {"ratio", 0, 1e3, 1};
static const struct np_constant_rule FRACTION = {"ratio", 0, 1, 0};
static const struct np_constant_rule EFFICIENCY = {"ratio", 0, 1, 1};
static const struct np_constant_rule SEED = {NULL, 0, 9007199254740991.0, 0};

/* Copies text into the phone's ownership; 0 where memory is short. */
static int keep(const struct np_field *field, const char *text, char **kept) {
  *kept = strdup(text);
  return *kept ? 1 : np_field_refuse(field, "no memory", "memory for its text");
}

static int member_kept(const struct np_field *field, const char *name, char **kept) {
  const char *text = NULL;
  return np_field_member_text(field, name, &text) && keep(field, text, kept);
}

/* Member `name` as a constant times `scale`: GMAC/s are MAC/ns and GB/s bytes/ns as they stand,
 * us and ms become ns. */
static int scaled(const struct np_field *field, const char *name,
                  const struct np_constant_rule *rule, double scale, double *number) {
  if (!np_field_member_constant(field, name, rule, number))
    return 0;
  *number *= scale;
  return 1;
}

static int operation_code(const struct np_field *field, const char *name, int32_t *code) {
  *code = np_operation_code(name);
  if (*code >= 0 && *code < NP_OPERATION_CODES)
    return 1;
  char found[64];
  snprintf(found, sizeof found, "\"%.40s\"", name);
  return np_field_refuse(field, found, "the name of an NNAPI operation, such as CONV_2D");
}

static int read_efficiency(const struct np_field *parent, struct np_efficiency *efficiency) {
  struct np_field field;
  if (!np_field_member(parent, "efficiency", &field) ||
      !np_field_member_constant(&field, "default", &EFFICIENCY, &efficiency->fallback)) {
    return 0;
  }
  for (const struct np_json *m = field.value->first; m; m = m->next) {
    int32_t code;
    if (strcmp(m->name, "default") == 0)
      continue;
    if (!operation_code(&field, m->name, &code) ||
        !np_field_member_constant(&field, m->name, &EFFICIENCY, &efficiency->by_code[code])) {
      return 0;
    }
  }
  return 1;
}

static int read_cpu(const struct np_field *root, struct np_phone *phone) {
  static const char *const names[] = {"peak",           "bandwidth",  "operation_overhead",
                                      "thread_scaling", "efficiency", NULL};
  struct np_field cpu;
  if (!np_field_member(root, "cpu", &cpu) || !np_field_object(&cpu, names) ||
      !scaled(&cpu, "peak", &RATE, 1, &phone->cpu.peak) ||
      !scaled(&cpu, "bandwidth", &BANDWIDTH, 1, &phone->cpu.bandwidth) ||
      !scaled(&cpu, "operation_overhead", &MICROSECONDS, 1e3, &phone->cpu.operation_overhead) ||
      !scaled(&cpu, "thread_scaling", &FRACTION, 1, &phone->thread_scaling)) {
    return 0;
  }
  phone->cpu.relaxed_peak = phone->cpu.peak;
  return read_efficiency(&cpu, &phone->cpu.efficiency);
}

/* "operations": {"only": [...]} or {"except": [...]}. */
static int read_operations(const struct np_field *parent, bool *operations) {
  static const char *const names[] = {"only", "except", NULL};
  struct np_field field, list;
  if (!np_field_member(parent, "operations", &field) || !np_field_object(&field, names))
    return 0;
  if (field.value->count != 1) {
    return np_field_refuse(&field, field.value->count ? "both \"only\" and \"except\"" : "neither",
                           "either \"only\" or \"except\"");
  }
  const bool only = np_json_member(field.value, "only") != NULL;
  if (!np_field_member(&field, only ? "only" : "except", &list))
    return 0;
  if (list.value->kind != NP_JSON_ARRAY) {
    return np_field_refuse(&list, np_json_kind_name(list.value), "an array of operation names");
  }
  for (int code = 0; code < NP_OPERATION_CODES; code++)
    operations[code] = !only;
  for (uint32_t i = 0; i < list.value->count; i++) {
    struct np_field element;
    const char *name = NULL;
    int32_t code;
    if (!np_field_element(&list, i, &element) || !np_field_text(&element, &name) ||
        !operation_code(&element, name, &code)) {
      return 0;
    }
    operations[code] = only;
  }
  return 1;
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
  if (!np_field_member(parent, "type", &field) || !np_field_text(&field, &text))
    return 0;
  for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
    if (strcmp(types[i].name, text) != 0)
      continue;
    *type = types[i].code;
    return 1;
  }
  return np_field_refuse(&field, text, "ACCELERATOR, GPU, CPU or OTHER");
}

static int read_preference(const struct np_field *parent, double *preference) {
  static const char *const names[] = {"low_power", "fast", "sustained", NULL};
  struct np_field field;
  if (!np_field_member(parent, "preference", &field) || !np_field_object(&field, names))
    return 0;
  for (int i = 0; i < 3; i++) {
    if (!scaled(&field, names[i], &FACTOR, 1, &preference[i]))
      return 0;
  }
  return 1;
}

static int read_compilation(const struct np_field *parent, struct np_accelerator *a) {
  static const char *const names[] = {"fixed", "per_operation", "per_megabyte", NULL};
  struct np_field field;
  return np_field_member(parent, "compilation", &field) && np_field_object(&field, names) &&
         scaled(&field, "fixed", &MILLISECONDS, 1e6, &a->compile_fixed) &&
         scaled(&field, "per_operation", &MILLISECONDS, 1e6, &a->compile_operation) &&
         /* ms per 10^6 bytes are ns per byte */
         scaled(&field, "per_megabyte", &MILLISECONDS, 1, &a->compile_byte);
}

static int read_accelerator(const struct np_field *field, struct np_accelerator *a) {
  static const char *const names[] = {"name",
                                      "type",
                                      "version",
                                      "feature_level",
                                      "operations",
                                      "performance",
                                      "peak",
                                      "bandwidth",
                                      "transfer_bandwidth",
                                      "invocation",
                                      "preference",
                                      "relaxed_peak",
                                      "efficiency",
                                      "operation_overhead",
                                      "burst_invocation",
                                      "compilation",
                                      NULL};
  struct np_field level;
  return np_field_object(field, names) && member_kept(field, "name", &a->name) &&
         read_type(field, &a->type) && member_kept(field, "version", &a->version) &&
         np_field_member(field, "feature_level", &level) &&
         np_field_integer(&level, ANEURALNETWORKS_FEATURE_LEVEL_1, ANEURALNETWORKS_FEATURE_LEVEL_4,
                          &a->feature_level) &&
         read_operations(field, a->operations) &&
         scaled(field, "performance", &FACTOR, 1, &a->performance) &&
         scaled(field, "peak", &RATE, 1, &a->unit.peak) &&
         scaled(field, "relaxed_peak", &RATE, 1, &a->unit.relaxed_peak) &&
         scaled(field, "bandwidth", &BANDWIDTH, 1, &a->unit.bandwidth) &&
         scaled(field, "transfer_bandwidth", &BANDWIDTH, 1, &a->transfer_bandwidth) &&
         scaled(field, "invocation", &MICROSECONDS, 1e3, &a->invocation) &&
         scaled(field, "burst_invocation", &MICROSECONDS, 1e3, &a->burst_invocation) &&
         scaled(field, "operation_overhead", &MICROSECONDS, 1e3, &a->unit.operation_overhead) &&
         read_efficiency(field, &a->unit.efficiency) && read_preference(field, a->preference) &&
         read_compilation(field, a);
}

static int read_accelerators(const struct np_field *root, struct np_phone *phone) {
  struct np_field list;
  if (!np_field_member(root, "accelerators", &list))
    return 0;
  if (list.value->kind != NP_JSON_ARRAY || list.value->count > NP_MAX_ACCELERATORS) {
    return np_field_refuse(&list, np_json_kind_name(list.value),
                           "an array of at most 16 accelerators");
  }
  for (uint32_t i = 0; i < list.value->count; i++) {
    struct np_field field;
    if (!np_field_element(&list, i, &field))
      return 0;
    phone->n_accelerators = i + 1; /* before reading: what is kept must be freed on failure too */
    if (!read_accelerator(&field, &phone->accelerators[i]))
      return 0;
    for (uint32_t j = 0; j < i; j++) {
      if (strcmp(phone->accelerators[j].name, phone->accelerators[i].name) == 0) {
        return np_field_refuse(&field, "a name used before", "accelerators with different names");
      }
    }
  }
  return 1;
}

static int read_properties(const struct np_field *root, struct np_phone *phone) {
  struct np_field field;
  if (!np_field_member(root, "properties", &field))
    return 0;
  if (field.value->kind != NP_JSON_OBJECT || field.value->count > MAX_PROPERTIES) {
    return np_field_refuse(&field, np_json_kind_name(field.value),
                           "an object of at most 256 property texts");
  }
  if (field.value->count == 0)
    return 1;
  phone->properties = calloc(field.value->count, sizeof *phone->properties);
  if (!phone->properties)
    return np_field_refuse(&field, "no memory", "memory for its list");
  for (const struct np_json *m = field.value->first; m; m = m->next) {
    struct np_property *property = &phone->properties[phone->n_properties++];
    if (!keep(&field, m->name, &property->name) ||
        !member_kept(&field, m->name, &property->value)) {
      return 0;
    }
  }
  return 1;
}

static int read_root(const struct np_field *root, struct np_phone *phone) {
  static const char *const names[] = {"format",       "version",    "name",
                                      "description",  "properties", "cpu",
                                      "accelerators", "noise",      NULL};
  static const char *const noise_names[] = {"spread", "seed", NULL};
  struct np_field format, version, noise;
  const char *text = NULL;
  int64_t number;
  double seed;
  if (!np_field_object(root, names) || !np_field_member(root, "format", &format) ||
      !np_field_text(&format, &text)) {
    return 0;
  }
  if (strcmp(text, "nnapi-emulator-phone") != 0) {
    return np_field_refuse(&format, text, "\"nnapi-emulator-phone\"");
  }
  if (!np_field_member(root, "version", &version) || !np_field_integer(&version, 1, 1, &number) ||
      !member_kept(root, "name", &phone->name) ||
      !member_kept(root, "description", &phone->description) || !read_properties(root, phone) ||
      !read_cpu(root, phone) || !read_accelerators(root, phone) ||
      !np_field_member(root, "noise", &noise) || !np_field_object(&noise, noise_names) ||
      !scaled(&noise, "spread", &FRACTION, 1, &phone->noise_spread) ||
      !scaled(&noise, "seed", &SEED, 1, &seed)) {
    return 0;
  }
  phone->noise_seed = (uint64_t)seed;
  return 1;
}

enum np_status np_phone_parse(const char *bytes, size_t length, struct np_phone **phone,
                              struct np_message *why) {
  *phone = NULL;
  struct np_json *json;
  enum np_status status = np_json_parse(bytes, length, &json, why);
  if (status != NP_OK)
    return status;
  struct np_phone *read = calloc(1, sizeof *read);
  if (!read) {
    np_json_free(json);
    np_message_set(why, "out of memory");
    return NP_NO_MEMORY;
  }
  const struct np_field root = {json, "", why};
  if (read_root(&root, read)) {
    *phone = read;
    snprintf(read->identity, sizeof read->identity, "%016llx",
             (unsigned long long)np_hash_bytes(NP_HASH_START, bytes, length));
  } else {
    status = NP_BAD_REQUEST;
    np_phone_free(read);
  }
  np_json_free(json);
  return status;
}

enum np_status np_phone_load(const char *path, struct np_phone **phone, struct np_message *why) {
  *phone = NULL;
  FILE *file = fopen(path, "rb");
  if (!file) {
    np_message_set(why, "cannot open: %s", strerror(errno));
    return NP_IO;
  }
  char *bytes = malloc(MAX_FILE_BYTES + 1);
  const size_t length = bytes ? fread(bytes, 1, MAX_FILE_BYTES + 1, file) : 0;
  const int failed = ferror(file);
  fclose(file);
  enum np_status status;
  if (!bytes) {
    status = NP_NO_MEMORY;
    np_message_set(why, "out of memory");
  } else if (failed) {
    status = NP_IO;
    np_message_set(why, "cannot be read (is it a folder?)");
  } else if (length > MAX_FILE_BYTES) {
    status = NP_BAD_REQUEST;
    np_message_set(why, "found more than 1 MiB, wanted a description of at most 1 MiB");
  } else {
    status = np_phone_parse(bytes, length, phone, why);
  }
  free(bytes);
  return status;
}

void np_phone_free(struct np_phone *phone) {
  if (!phone)
    return;
  for (uint32_t i = 0; i < phone->n_accelerators; i++) {
    free(phone->accelerators[i].name);
    free(phone->accelerators[i].version);
  }
  for (uint32_t i = 0; i < phone->n_properties; i++) {
    free(phone->properties[i].name);
    free(phone->properties[i].value);
  }
  free(phone->properties);
  free(phone->name);
  free(phone->description);
  free(phone);
}

const char *np_phone_property(const struct np_phone *phone, const char *name) {
  for (uint32_t i = 0; i < phone->n_properties; i++) {
    if (strcmp(phone->properties[i].name, name) == 0)
      return phone->properties[i].value;
  }
  return NULL;
}
