/* Reads a JSON description value by value, with messages that name the JSON path. */
#ifndef NP_FIELD_H
#define NP_FIELD_H

#include "json.h"

/* A value and its path: "accelerators[1].compilation.fixed". */
struct np_field {
  const struct np_json *value;
  char path[128];
  struct np_message *why;
};

/* Each function returns 1; or 0 with the JSON path, what was found and what was wanted in
 * field->why. It does not write its result then. */

/* Checks that the value is an object whose members are all in names[], a NULL-terminated list. */
int np_field_object(const struct np_field *field, const char *const *names);

/* Gets member `name` of an object; it must exist. */
int np_field_member(const struct np_field *field, const char *name, struct np_field *member);

/* Gets element `index` of an array, which must be long enough. */
int np_field_element(const struct np_field *field, uint32_t index, struct np_field *element);

/* Reads a non-empty text; it belongs to the JSON tree. */
int np_field_text(const struct np_field *field, const char **text);

/* Reads a whole number within [low, high]. */
int np_field_integer(const struct np_field *field, int64_t low, int64_t high, int64_t *number);

/* Reads a constant, {"value": number, "unit": text, "origin": text}, whose unit is `unit` (NULL:
 * any) and whose value is within [low, high] (above low if `low` is 0 and `positive` is set). */
struct np_constant_rule {
  const char *unit;
  double low, high;
  int positive;
};
int np_field_constant(const struct np_field *field, const struct np_constant_rule *rule,
                      double *number);

/* Reads member `name` of an object as such a constant. */
int np_field_member_constant(const struct np_field *field, const char *name,
                             const struct np_constant_rule *rule, double *number);

/* Reads member `name` of an object as text. */
int np_field_member_text(const struct np_field *field, const char *name, const char **text);

/* Sets field->why to "PATH: found FOUND, wanted WANTED"; returns 0. */
int np_field_refuse(const struct np_field *field, const char *found, const char *wanted);

#endif
