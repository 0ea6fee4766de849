/* Reads the description of a simulated phone; PHONES.md beside this file is its format. */
#define _POSIX_C_SOURCE 200809L /* strdup */
#include "phone.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hash.h"
#include "phone_read.h"

#define MAX_FILE_BYTES ((size_t)1 << 20)
#define MAX_PROPERTIES 256u
#define MAX_THREADS 64

static const struct np_constant_rule seed_rule = {NULL, 0, 9007199254740991.0, 0};
static const struct np_constant_rule megahertz = {"MHz", 0, 1e5, 1};
static const struct np_constant_rule core_count = {"none", 1, MAX_THREADS, 1};

/* A member of "thread_speed": a number of threads above the last row's, and its speed. */
static int read_thread_row(const struct np_field *speeds, const char *name,
                           struct np_threads *threads) {
  const double least = threads->n_rows > 0 ? threads->rows[threads->n_rows - 1].threads : 1;
  char *end = NULL;
  const long number = strtol(name, &end, 10);
  if (end == name || *end != 0 || (double)number <= least || number > MAX_THREADS ||
      threads->n_rows == NP_MAX_THREAD_ROWS) {
    return np_field_refuse(speeds, name, "numbers of threads from 2 to 64, ascending");
  }
  struct np_thread_row *row = &threads->rows[threads->n_rows++];
  row->threads = (double)number;
  return np_read_scaled(speeds, name, &np_rule_factor, 1, &row->speed);
}

static int read_threads(const struct np_field *cpu, struct np_threads *threads) {
  struct np_field speeds;
  if (!np_read_scaled(cpu, "thread_scaling", &np_rule_fraction, 1, &threads->scaling) ||
      !np_read_optional(cpu, "cores", &core_count, 1, &threads->cores) ||
      !np_read_optional(cpu, "thread_wake", &np_rule_microseconds, 1e3, &threads->wake)) {
    return 0;
  }
  if (!np_json_member(cpu->value, "thread_speed")) {
    return 1;
  }
  if (!np_field_member(cpu, "thread_speed", &speeds)) {
    return 0;
  }
  if (speeds.value->kind != NP_JSON_OBJECT || speeds.value->count == 0) {
    return np_field_refuse(&speeds, np_json_kind_name(speeds.value),
                           "an object from numbers of threads to speeds");
  }
  for (const struct np_json *m = speeds.value->first; m; m = m->next) {
    if (!read_thread_row(&speeds, m->name, threads)) {
      return 0;
    }
  }
  return 1;
}

static int read_cpu(const struct np_field *root, struct np_phone *phone) {
  static const char *const names[] = {"peak",           "bandwidth",    "operation_overhead",
                                      "heat",           "governor",     "frequency",
                                      "thread_scaling", "thread_speed", "cores",
                                      "thread_wake",    "efficiency",   NULL};
  struct np_field cpu;
  return np_field_member(root, "cpu", &cpu) && np_field_object(&cpu, names) &&
         np_read_unit(&cpu, &phone->cpu) && read_threads(&cpu, &phone->threads) &&
         np_read_optional(&cpu, "frequency", &megahertz, 1e3, &phone->cpu_khz) &&
         np_read_governor(&cpu, phone);
}

static int read_accelerators(const struct np_field *root, struct np_phone *phone) {
  struct np_field list;
  if (!np_field_member(root, "accelerators", &list)) {
    return 0;
  }
  if (list.value->kind != NP_JSON_ARRAY || list.value->count > NP_MAX_ACCELERATORS) {
    return np_field_refuse(&list, np_json_kind_name(list.value),
                           "an array of at most 16 accelerators");
  }
  for (uint32_t i = 0; i < list.value->count; i++) {
    struct np_field field;
    if (!np_field_element(&list, i, &field)) {
      return 0;
    }
    phone->n_accelerators = i + 1; /* before reading: its fields must be freed even after a
                                      failure */
    if (!np_read_accelerator(&field, phone, &phone->accelerators[i])) {
      return 0;
    }
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
  if (!np_field_member(root, "properties", &field)) {
    return 0;
  }
  if (field.value->kind != NP_JSON_OBJECT || field.value->count > MAX_PROPERTIES) {
    return np_field_refuse(&field, np_json_kind_name(field.value),
                           "an object of at most 256 property texts");
  }
  if (field.value->count == 0) {
    return 1;
  }
  phone->properties = calloc(field.value->count, sizeof *phone->properties);
  if (!phone->properties) {
    return np_field_refuse(&field, "no memory", "memory for its list");
  }
  for (const struct np_json *m = field.value->first; m; m = m->next) {
    struct np_property *property = &phone->properties[phone->n_properties++];
    property->name = strdup(m->name);
    if (!property->name) {
      return np_field_refuse(&field, "no memory", "memory for its names");
    }
    if (!np_read_text(&field, m->name, &property->value)) {
      return 0;
    }
  }
  return 1;
}

static int read_root(const struct np_field *root, struct np_phone *phone) {
  static const char *const names[] = {
      "format",       "version", "name",    "description",      "properties", "cpu",
      "accelerators", "noise",   "thermal", "memory_bandwidth", "contention", NULL};
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
  if (!np_field_member(root, "version", &version) || !np_field_integer(&version, 2, 2, &number) ||
      !np_read_text(root, "name", &phone->name) ||
      !np_read_text(root, "description", &phone->description) || !read_properties(root, phone) ||
      !read_cpu(root, phone) || !read_accelerators(root, phone) ||
      !np_field_member(root, "noise", &noise) || !np_field_object(&noise, noise_names) ||
      !np_read_scaled(&noise, "spread", &np_rule_fraction, 1, &phone->noise_spread) ||
      !np_read_scaled(&noise, "seed", &seed_rule, 1, &seed) || !np_read_thermal(root, phone) ||
      !np_read_optional(root, "memory_bandwidth", &np_rule_bandwidth, 1,
                        &phone->memory_bandwidth) ||
      !np_read_optional(root, "contention", &np_rule_factor, 1, &phone->contention)) {
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
  if (status != NP_OK) {
    return status;
  }
  struct np_phone *read = calloc(1, sizeof *read);
  if (!read) {
    np_json_free(json);
    np_message_set(why, "out of memory");
    return NP_NO_MEMORY;
  }
  pthread_mutex_init(&read->heat.lock, NULL);
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
  if (!phone) {
    return;
  }
  for (uint32_t i = 0; i < phone->n_accelerators; i++) {
    free(phone->accelerators[i].name);
    free(phone->accelerators[i].version);
    free(phone->accelerators[i].fusions);
    free(phone->accelerators[i].service.becomes);
  }
  for (uint32_t i = 0; i < phone->n_properties; i++) {
    free(phone->properties[i].name);
    free(phone->properties[i].value);
  }
  np_phone_forget_body(phone);
  pthread_mutex_destroy(&phone->heat.lock);
  free(phone->properties);
  free(phone->name);
  free(phone->description);
  free(phone);
}

const char *np_phone_property(const struct np_phone *phone, const char *name) {
  for (uint32_t i = 0; i < phone->n_properties; i++) {
    if (strcmp(phone->properties[i].name, name) == 0) {
      return phone->properties[i].value;
    }
  }
  return NULL;
}
