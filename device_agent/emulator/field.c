/* Reads a JSON description value by value, with messages that name the JSON path. */
#include "field.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

int np_field_refuse(const struct np_field *field, const char *found, const char *wanted) {
  np_message_set(field->why, "%s: found %s, wanted %s", field->path[0] ? field->path : "the file",
                 found, wanted);
  return 0;
}

/* Writes the text for "found": the value itself if it is short, else its kind. */
static void describe(const struct np_json *value, char *text, size_t size) {
  if (value && value->kind == NP_JSON_NUMBER) {
    snprintf(text, size, "%.12g", value->number);
  } else if (value && value->kind == NP_JSON_TEXT) {
    snprintf(text, size, "\"%.40s\"", value->text);
  } else {
    snprintf(text, size, "%s", np_json_kind_name(value));
  }
}

static int refuse_value(const struct np_field *field, const char *wanted) {
  char found[64];
  describe(field->value, found, sizeof found);
  return np_field_refuse(field, found, wanted);
}

int np_field_object(const struct np_field *field, const char *const *names) {
  if (field->value->kind != NP_JSON_OBJECT) {
    return refuse_value(field, "an object");
  }
  for (const struct np_json *m = field->value->first; m; m = m->next) {
    const char *const *known = names;
    while (*known && strcmp(*known, m->name) != 0) {
      known++;
    }
    if (*known) {
      continue;
    }
    char wanted[160] = "only";
    for (known = names; *known; known++) {
      const size_t used = strlen(wanted);
      snprintf(wanted + used, sizeof wanted - used, " %s", *known);
    }
    char found[64];
    snprintf(found, sizeof found, "member \"%.40s\"", m->name);
    return np_field_refuse(field, found, wanted);
  }
  return 1;
}

int np_field_member(const struct np_field *field, const char *name, struct np_field *member) {
  if (field->value->kind != NP_JSON_OBJECT) {
    return refuse_value(field, "an object");
  }
  const struct np_json *value = np_json_member(field->value, name);
  struct np_field at = {value, "", field->why};
  const int n =
      snprintf(at.path, sizeof at.path, "%s%s%s", field->path, field->path[0] ? "." : "", name);
  if (n < 0) {
    return np_field_refuse(field, "an unprintable name", "a printable one");
  }
  if (!value) {
    return np_field_refuse(&at, "nothing", "this member");
  }
  *member = at;
  return 1;
}

int np_field_element(const struct np_field *field, uint32_t index, struct np_field *element) {
  if (field->value->kind != NP_JSON_ARRAY) {
    return refuse_value(field, "an array");
  }
  const struct np_json *value = field->value->first;
  for (uint32_t i = 0; value && i < index; i++) {
    value = value->next;
  }
  struct np_field at = {value, "", field->why};
  const int n = snprintf(at.path, sizeof at.path, "%s[%u]", field->path, index);
  if (n < 0 || !value) {
    return np_field_refuse(&at, "nothing", "this element");
  }
  *element = at;
  return 1;
}

int np_field_text(const struct np_field *field, const char **text) {
  if (field->value->kind != NP_JSON_TEXT || field->value->text[0] == '\0') {
    return refuse_value(field, "text that is not empty");
  }
  *text = field->value->text;
  return 1;
}

int np_field_integer(const struct np_field *field, int64_t low, int64_t high, int64_t *number) {
  const double value = field->value->number;
  if (field->value->kind != NP_JSON_NUMBER || value != floor(value) || value < (double)low ||
      value > (double)high) {
    char wanted[80];
    snprintf(wanted, sizeof wanted, "a whole number from %lld to %lld", (long long)low,
             (long long)high);
    return refuse_value(field, wanted);
  }
  *number = (int64_t)value;
  return 1;
}

int np_field_constant(const struct np_field *field, const struct np_constant_rule *rule,
                      double *number) {
  static const char *const names[] = {"value", "unit", "origin", NULL};
  if (field->value->kind != NP_JSON_OBJECT) {
    return refuse_value(field, "a constant: an object with value, unit and origin");
  }
  struct np_field value, unit;
  const char *unit_text = NULL, *origin = NULL;
  if (!np_field_object(field, names) || !np_field_member(field, "value", &value) ||
      !np_field_member(field, "unit", &unit) || !np_field_text(&unit, &unit_text) ||
      !np_field_member_text(field, "origin", &origin)) {
    return 0;
  }
  if (rule->unit && strcmp(rule->unit, unit_text) != 0) {
    char wanted[64];
    snprintf(wanted, sizeof wanted, "unit \"%s\"", rule->unit);
    return refuse_value(&unit, wanted);
  }
  const double v = value.value->number;
  if (value.value->kind != NP_JSON_NUMBER || v < rule->low || v > rule->high ||
      (rule->positive && !(v > 0))) {
    char wanted[96];
    snprintf(wanted, sizeof wanted, "a number %s%g to %g", rule->positive ? "above " : "from ",
             rule->low, rule->high);
    return refuse_value(&value, wanted);
  }
  *number = v;
  return 1;
}

int np_field_member_constant(const struct np_field *field, const char *name,
                             const struct np_constant_rule *rule, double *number) {
  struct np_field member;
  return np_field_member(field, name, &member) && np_field_constant(&member, rule, number);
}

int np_field_member_text(const struct np_field *field, const char *name, const char **text) {
  struct np_field member;
  return np_field_member(field, name, &member) && np_field_text(&member, text);
}
