/* Reads member "errors" of an accelerator: operations that its driver computes wrongly. */
#include <string.h>

#include "phone_read.h"

static const char *const hows[] = {"scale",  "offset", "saturate", "transpose", "channels",
                                   "border", "shift",  "wrap",     "truncate",  "absolute",
                                   "nan",    "race",   "drift",    "tile",      "zero"};
enum { N_HOWS = sizeof hows / sizeof *hows };

static int read_how(const struct np_field *parent, enum np_error_how *how) {
  struct np_field field;
  const char *text = NULL;
  if (!np_field_member(parent, "how", &field) || !np_field_text(&field, &text)) {
    return 0;
  }
  for (int i = 0; i < N_HOWS; i++) {
    if (strcmp(text, hows[i]) == 0) {
      *how = (enum np_error_how)i;
      return 1;
    }
  }
  return np_field_refuse(&field, text,
                         "scale, offset, saturate, transpose, channels, border, shift, wrap, "
                         "truncate, absolute, nan, race, drift, tile or zero");
}

static const struct {
  const char *name;
  uint32_t bit;
} whens[] = {{"burst", NP_WHEN_BURST}, {"shared", NP_WHEN_SHARED}, {"relaxed", NP_WHEN_RELAXED},
             {"later", NP_WHEN_LATER}, {"batch", NP_WHEN_BATCH},   {"negative", NP_WHEN_NEGATIVE}};

/* Reads optional "when", a condition. */
static int read_when(const struct np_field *parent, struct np_error *error) {
  struct np_field field;
  const char *text = NULL;
  if (!np_json_member(parent->value, "when")) {
    return 1;
  }
  if (!np_field_member(parent, "when", &field) || !np_field_text(&field, &text)) {
    return 0;
  }
  for (size_t i = 0; i < sizeof whens / sizeof *whens; i++) {
    if (strcmp(text, whens[i].name) == 0) {
      error->when = whens[i].bit;
      return 1;
    }
  }
  return np_field_refuse(&field, text, "burst, shared, relaxed, later, batch or negative");
}

/* Reads optional "output": the dimensions of the operation's output, in memory order. */
static int read_output(const struct np_field *parent, struct np_error *error) {
  struct np_field list, element;
  if (!np_json_member(parent->value, "output")) {
    return 1;
  }
  if (!np_field_member(parent, "output", &list)) {
    return 0;
  }
  if (list.value->kind != NP_JSON_ARRAY || list.value->count == 0 ||
      list.value->count > NP_MAX_RANK) {
    return np_field_refuse(&list, np_json_kind_name(list.value), "an array of 1 to 8 dimensions");
  }
  for (uint32_t i = 0; i < list.value->count; i++) {
    int64_t dim = 0;
    if (!np_field_element(&list, i, &element) || !np_field_integer(&element, 1, INT32_MAX, &dim)) {
      return 0;
    }
    error->dims[i] = (uint32_t)dim;
  }
  error->rank = list.value->count;
  return 1;
}

/* Reads an optional member, a number counted from 0. */
static int read_number(const struct np_field *parent, const char *name, int64_t *number) {
  struct np_field field;
  return !np_json_member(parent->value, name) ||
         (np_field_member(parent, name, &field) && np_field_integer(&field, 0, INT32_MAX, number));
}

static int read_error(const struct np_field *field, struct np_error *error) {
  static const char *const names[] = {"operation", "how",  "amount", "output", "channel",
                                      "result",    "from", "when",   "origin", NULL};
  static const struct np_constant_rule amount = {"none", -1e30, 1e30, 0};
  const char *name = NULL, *origin = NULL;
  *error = (struct np_error){.amount = 1.05, .channel = NP_EVERY_CHANNEL};
  return np_field_object(field, names) && np_field_member_text(field, "operation", &name) &&
         np_read_code(field, name, &error->code) && read_how(field, &error->how) &&
         np_read_optional(field, "amount", &amount, 1, &error->amount) &&
         read_output(field, error) && read_number(field, "channel", &error->channel) &&
         read_number(field, "result", &error->result) && read_number(field, "from", &error->from) &&
         read_when(field, error) && np_field_member_text(field, "origin", &origin);
}

int np_read_errors(const struct np_field *parent, struct np_accelerator *a) {
  struct np_field list, element;
  if (!np_json_member(parent->value, "errors")) {
    return 1;
  }
  if (!np_field_member(parent, "errors", &list)) {
    return 0;
  }
  if (list.value->kind != NP_JSON_ARRAY || list.value->count > NP_MAX_ERRORS) {
    return np_field_refuse(&list, np_json_kind_name(list.value),
                           "an array; an accelerator has at most 8 errors");
  }
  for (uint32_t i = 0; i < list.value->count; i++) {
    if (!np_field_element(&list, i, &element) || !read_error(&element, &a->errors[i])) {
      return 0;
    }
    a->n_errors++;
  }
  return 1;
}
