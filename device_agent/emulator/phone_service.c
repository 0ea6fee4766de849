/* Reads member "service" of an accelerator: its driver as a process that all clients share. */
#include <string.h>

#include "phone_read.h"

static const struct np_constant_rule seconds = {"s", 0, 1e6, 0};
static const struct np_constant_rule counts = {"none", 1, 1e6, 0};

#define RETURNS_NS 1e9

static int read_count(const struct np_field *field, const char *name, uint32_t *count) {
  double number = *count;
  if (!np_read_optional(field, name, &counts, 1, &number)) {
    return 0;
  }
  *count = (uint32_t)number;
  return 1;
}

static int read_memory(const struct np_field *parent, uint32_t *kinds) {
  static const struct {
    const char *name;
    uint32_t bit;
  } rows[] = {{"ashmem", NP_MEMORY_ASHMEM}, {"file", NP_MEMORY_FILE}, {"memfd", NP_MEMORY_MEMFD}};
  struct np_field list, element;
  if (!np_json_member(parent->value, "memory")) {
    return 1;
  }
  if (!np_field_member(parent, "memory", &list)) {
    return 0;
  }
  if (list.value->kind != NP_JSON_ARRAY) {
    return np_field_refuse(&list, np_json_kind_name(list.value), "an array of kinds of memory");
  }
  *kinds = 0;
  for (uint32_t i = 0; i < list.value->count; i++) {
    const char *text = NULL;
    uint32_t bit = 0;
    if (!np_field_element(&list, i, &element) || !np_field_text(&element, &text)) {
      return 0;
    }
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
      bit |= strcmp(rows[k].name, text) == 0 ? rows[k].bit : 0;
    }
    if (bit == 0) {
      return np_field_refuse(&element, text, "ashmem, file or memfd");
    }
    *kinds |= bit;
  }
  return 1;
}

/* Reads the behaviour of a worn-out service. */
static int read_worn(const struct np_field *parent, struct np_service *service) {
  struct np_field field;
  const char *text = NULL;
  if (!np_json_member(parent->value, "worn")) {
    return 1;
  }
  if (!np_field_member(parent, "worn", &field) || !np_field_text(&field, &text)) {
    return 0;
  }
  service->wears_refuses = strcmp(text, "refuses") == 0;
  return service->wears_refuses || strcmp(text, "fails") == 0 ||
         np_field_refuse(&field, text, "refuses or fails");
}

int np_read_service(const struct np_field *parent, struct np_accelerator *a) {
  static const char *const names[] = {
      "returns", "stops",     "compilations", "wears",          "worn",   "rests",   "loaded",
      "load",    "load_runs", "lingers",      "lingers_factor", "memory", "becomes", NULL};
  struct np_service *service = &a->service;
  struct np_field field;
  service->returns = RETURNS_NS;
  service->load_runs = 1;
  service->lingers_factor = 3;
  service->memory = NP_MEMORY_ASHMEM | NP_MEMORY_FILE | NP_MEMORY_MEMFD;
  if (!np_json_member(parent->value, "service")) {
    return 1;
  }
  service->described = true;
  if (!np_field_member(parent, "service", &field) || !np_field_object(&field, names) ||
      !np_read_optional(&field, "returns", &seconds, 1e9, &service->returns) ||
      !np_read_optional(&field, "stops", &seconds, 1e9, &service->stops) ||
      !read_count(&field, "compilations", &service->compilations) ||
      !read_count(&field, "wears", &service->wears) || !read_worn(&field, service) ||
      !np_read_optional(&field, "rests", &seconds, 1e9, &service->rests) ||
      !read_count(&field, "loaded", &service->loaded) ||
      !np_read_optional(&field, "load", &np_rule_microseconds, 1e3, &service->load) ||
      !read_count(&field, "load_runs", &service->load_runs) ||
      !np_read_optional(&field, "lingers", &seconds, 1e9, &service->lingers) ||
      !np_read_optional(&field, "lingers_factor", &np_rule_factor, 1, &service->lingers_factor) ||
      !read_memory(&field, &service->memory) ||
      (np_json_member(field.value, "becomes") &&
       !np_read_text(&field, "becomes", &service->becomes))) {
    return 0;
  }
  return service->loaded <= NP_MAX_LOADED ||
         np_field_refuse(&field, "more models loaded", "8 at most");
}
