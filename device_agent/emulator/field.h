/* Reading of a JSON description value by value, with messages that name the JSON path. */
#ifndef NP_FIELD_H
#define NP_FIELD_H

#include "json.h"

/* A value and where it stands: "accelerators[1].compilation.fixed". */
struct np_field {
  const struct np_json *value;
  char path[128];
  struct np_message *why;
};

/* Each of these returns 1, or 0 with the JSON path, what was found and what was wanted in
 * field->why. Nothing is written to the result then. */

/* Whether the value is an object whose members are all in names[], a NULL-terminated list. */
int np_field_object(const struct np_field *field, const char *const *names);

/* Member `name` of an object; it must exist. */
int np_field_member(const struct np_field *field, const char *name, struct np_field *member);

/* Element `index` of an array, which must be long enough. */
int np_field_element(const struct np_field *field, uint32_t index, struct np_field *element);

/* Non-empty text; it belongs to the JSON tree. */
int np_field_text(const struct np_field *field, const char **text);

/* Whole number within [low, high]. */
int np_field_integer(const struct np_field *field, int64_t low, int64_t high, int64_t *number);

/* A constant, {"value": number, "unit": text, "origin": text}, whose unit is `unit` (NULL: any)
 * and whose value lies within [low, high] (above low where `low` is 0 and `positive` is set). */
struct np_constant_rule {
  const char *unit;
  double low, high;
  int positive;
};
int np_field_constant(const struct np_field *field, const struct np_constant_rule *rule,
                      double *number);

/* Member `name` of an object as such a constant. */
int np_field_member_constant(const struct np_field *field, const char *name,
                             const struct np_constant_rule *rule, double *number);

/* Member `name` of an object as text. */
int np_field_member_text(const struct np_field *field, const char *name, const char **text);

/* Sets field->why to "PATH: found FOUND, wanted WANTED"; returns 0. */
int np_field_refuse(const struct np_field *field, const char *found, const char *wanted);

#endif
