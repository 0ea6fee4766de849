/* A small strict JSON reader: turns UTF-8 text into a tree, with every access bounds-checked. */
#ifndef NP_JSON_H
#define NP_JSON_H

#include <stddef.h>
#include <stdint.h>

#include "np_status.h"

enum np_json_kind {
  NP_JSON_NULL,
  NP_JSON_BOOL,
  NP_JSON_NUMBER,
  NP_JSON_TEXT,
  NP_JSON_ARRAY,
  NP_JSON_OBJECT,
};

/* One value. Members of an object and elements of an array are a linked list in file order. */
struct np_json {
  enum np_json_kind kind;
  double number; /* NUMBER; BOOL as 0 or 1 */
  char *text;    /* TEXT, UTF-8, terminated, without embedded zeros */
  char *name;    /* if it is a member of an object, else NULL */
  struct np_json *first;
  struct np_json *next;
  uint32_t count; /* members or elements */
};

/* Reads one JSON document of `length` bytes into *root, which the caller frees with np_json_free.
 * Nesting is limited to 32 levels; repeated member names and \u0000 are refused. NP_BAD_REQUEST
 * with line, column and what was wanted in *why, or NP_NO_MEMORY; *root is NULL then. */
enum np_status np_json_parse(const char *bytes, size_t length, struct np_json **root,
                             struct np_message *why);

/* Frees a tree; NULL is allowed. */
void np_json_free(struct np_json *root);

/* Returns member `name` of an object, NULL if there is none or the value is not an object. */
const struct np_json *np_json_member(const struct np_json *object, const char *name);

/* Returns "an object", "a number", ..., for messages. */
const char *np_json_kind_name(const struct np_json *value);

#endif
