/* Reads the rules by which an accelerator runs chains of operations as one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "phone_read.h"

/* Reads one place of a pattern: "RELU|RELU6", spaces around names allowed. */
static int read_place(const struct np_field *field, const char *text, size_t length, bool *takes) {
  const char *end = text + length;
  for (const char *at = text; at <= end;) {
    const char *bar = memchr(at, '|', (size_t)(end - at));
    const char *stop = bar ? bar : end;
    const char *next = stop + 1;
    while (at < stop && *at == ' ') {
      at++;
    }
    while (stop > at && stop[-1] == ' ') {
      stop--;
    }
    char name[64];
    const size_t n = (size_t)(stop - at) < sizeof name ? (size_t)(stop - at) : sizeof name - 1;
    memcpy(name, at, n);
    name[n] = '\0';
    int32_t code;
    if (!np_read_code(field, name, &code)) {
      return 0;
    }
    takes[code] = true;
    at = next;
  }
  return 1;
}

/* Reads "PLACE + PLACE + ...", two to four places. */
static int read_pattern(const struct np_field *field, struct np_fusion *fusion) {
  const char *text = NULL;
  if (!np_field_text(field, &text)) {
    return 0;
  }
  for (const char *at = text; at;) {
    if (fusion->n == NP_MAX_FUSED) {
      return np_field_refuse(field, "a longer pattern", "at most 4 places");
    }
    const char *plus = strchr(at, '+');
    const size_t length = plus ? (size_t)(plus - at) : strlen(at);
    if (!read_place(field, at, length, fusion->takes[fusion->n++])) {
      return 0;
    }
    at = plus ? plus + 1 : NULL;
  }
  return fusion->n >= 2 || np_field_refuse(field, "one place", "at least 2 places, A + B");
}

int np_read_fusion(const struct np_field *parent, struct np_accelerator *a) {
  static const char *const names[] = {"pattern", "origin", NULL};
  struct np_field list, element, pattern;
  const char *origin = NULL;
  if (!np_json_member(parent->value, "fusion")) {
    return 1;
  }
  if (!np_field_member(parent, "fusion", &list)) {
    return 0;
  }
  if (list.value->kind != NP_JSON_ARRAY || list.value->count > NP_MAX_FUSIONS) {
    return np_field_refuse(&list, np_json_kind_name(list.value), "an array of at most 32 rules");
  }
  if (list.value->count == 0) {
    return 1;
  }
  a->fusions = calloc(list.value->count, sizeof *a->fusions);
  if (!a->fusions) {
    return np_field_refuse(&list, "no memory", "memory for its rules");
  }
  for (; a->n_fusions < list.value->count; a->n_fusions++) {
    if (!np_field_element(&list, a->n_fusions, &element) || !np_field_object(&element, names) ||
        !np_field_member_text(&element, "origin", &origin) ||
        !np_field_member(&element, "pattern", &pattern) ||
        !read_pattern(&pattern, &a->fusions[a->n_fusions])) {
      return 0;
    }
  }
  return 1;
}
