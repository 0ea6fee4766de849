/* A small strict JSON reader (RFC 8259) for the descriptions of simulated phones. */
#define _GNU_SOURCE /* newlocale, strtod_l: numbers must not depend on the program's locale */
#include "json.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 32u
#define MAX_NUMBER_BYTES 63u

struct parser {
  const char *at;
  const char *end;
  const char *begin;
  struct np_message *why;
  enum np_status status;
};

/* Records the first failure at the current position; always returns 0. */
static int fail(struct parser *p, const char *wanted) {
  if (p->status != NP_OK) {
    return 0;
  }
  p->status = NP_BAD_REQUEST;
  unsigned line = 1, column = 1;
  for (const char *c = p->begin; c < p->at; c++) {
    column = *c == '\n' ? 1 : column + 1;
    line += *c == '\n';
  }
  if (p->at >= p->end) {
    np_message_set(p->why, "line %u, column %u: found the end of the file, wanted %s", line, column,
                   wanted);
  } else {
    const unsigned char found = (unsigned char)*p->at;
    const char shown = found >= 0x20 && found < 0x7f ? (char)found : '?';
    np_message_set(p->why, "line %u, column %u: found '%c' (0x%02x), wanted %s", line, column,
                   shown, found, wanted);
  }
  return 0;
}

static int no_memory(struct parser *p) {
  if (p->status != NP_OK) {
    return 0;
  }
  p->status = NP_NO_MEMORY;
  np_message_set(p->why, "out of memory");
  return 0;
}

static void skip_space(struct parser *p) {
  while (p->at < p->end && (*p->at == ' ' || *p->at == '\t' || *p->at == '\n' || *p->at == '\r')) {
    p->at++;
  }
}

static int take(struct parser *p, char c) {
  if (p->at >= p->end || *p->at != c) {
    return 0;
  }
  p->at++;
  return 1;
}

static int take_word(struct parser *p, const char *word) {
  const size_t n = strlen(word);
  if ((size_t)(p->end - p->at) < n || memcmp(p->at, word, n) != 0) {
    return 0;
  }
  p->at += n;
  return 1;
}

static int hex4(struct parser *p, uint32_t *code) {
  *code = 0;
  for (int i = 0; i < 4; i++, p->at++) {
    if (p->at >= p->end) {
      return fail(p, "four hexadecimal digits");
    }
    const char c = *p->at;
    uint32_t digit;
    if (c >= '0' && c <= '9') {
      digit = (uint32_t)(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      digit = (uint32_t)(c - 'a') + 10;
    } else if (c >= 'A' && c <= 'F') {
      digit = (uint32_t)(c - 'A') + 10;
    } else {
      return fail(p, "four hexadecimal digits");
    }
    *code = *code * 16 + digit;
  }
  return 1;
}

/* Appends a code point as UTF-8; `out` has room for 4 bytes. Returns the new end. */
static char *put_utf8(char *out, uint32_t code) {
  if (code < 0x80) {
    *out++ = (char)code;
  } else if (code < 0x800) {
    *out++ = (char)(0xc0 | code >> 6);
    *out++ = (char)(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    *out++ = (char)(0xe0 | code >> 12);
    *out++ = (char)(0x80 | (code >> 6 & 0x3f));
    *out++ = (char)(0x80 | (code & 0x3f));
  } else {
    *out++ = (char)(0xf0 | code >> 18);
    *out++ = (char)(0x80 | (code >> 12 & 0x3f));
    *out++ = (char)(0x80 | (code >> 6 & 0x3f));
    *out++ = (char)(0x80 | (code & 0x3f));
  }
  return out;
}

static int unicode_escape(struct parser *p, char **out) {
  uint32_t code;
  if (!hex4(p, &code)) {
    return 0;
  }
  if (code >= 0xd800 && code < 0xdc00) {
    uint32_t low;
    if (!take_word(p, "\\u")) {
      return fail(p, "the low half of a surrogate pair");
    }
    if (!hex4(p, &low)) {
      return 0;
    }
    if (low < 0xdc00 || low > 0xdfff) {
      return fail(p, "the low half of a surrogate pair");
    }
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  } else if (code >= 0xdc00 && code < 0xe000) {
    return fail(p, "the high half of a surrogate pair first");
  }
  if (code == 0) {
    return fail(p, "a character other than \\u0000");
  }
  *out = put_utf8(*out, code);
  return 1;
}

/* Reads a string after its opening quote. An escape is never shorter than what it stands for, so
 * the distance to the closing quote bounds the result. */
static char *parse_text(struct parser *p) {
  const size_t rest = (size_t)(p->end - p->at);
  size_t length = 0;
  while (length < rest && p->at[length] != '"') {
    length += p->at[length] == '\\' ? 2 : 1;
  }
  if (length >= rest) {
    p->at = p->end;
    fail(p, "a closing quote");
    return NULL;
  }
  char *text = malloc(length + 1);
  if (!text) {
    no_memory(p);
    return NULL;
  }
  char *out = text;
  while (*p->at != '"') {
    const char c = *p->at;
    if ((unsigned char)c < 0x20) {
      fail(p, "no control character in a string");
      break;
    }
    p->at++;
    if (c != '\\') {
      *out++ = c;
      continue;
    }
    const char *const simple = "\"\\/bfnrt";
    const char *found = strchr(simple, *p->at);
    if (*p->at != '\0' && found) {
      *out++ = "\"\\/\b\f\n\r\t"[found - simple];
      p->at++;
    } else if (*p->at == 'u') {
      p->at++;
      if (!unicode_escape(p, &out)) {
        break;
      }
    } else {
      fail(p, "an escape: one of \" \\ / b f n r t u");
      break;
    }
  }
  if (p->status != NP_OK) {
    free(text);
    return NULL;
  }
  p->at++;
  *out = '\0';
  return text;
}

/* Advances over digits; returns how many. */
static size_t skip_digits(struct parser *p) {
  const char *start = p->at;
  while (p->at < p->end && *p->at >= '0' && *p->at <= '9') {
    p->at++;
  }
  return (size_t)(p->at - start);
}

static int parse_number(struct parser *p, double *number) {
  const char *start = p->at;
  take(p, '-');
  if (!take(p, '0') && skip_digits(p) == 0) {
    return fail(p, "a value");
  }
  if (take(p, '.') && skip_digits(p) == 0) {
    return fail(p, "a digit after the point");
  }
  if (take(p, 'e') || take(p, 'E')) {
    if (!take(p, '+')) {
      take(p, '-');
    }
    if (skip_digits(p) == 0) {
      return fail(p, "a digit in the exponent");
    }
  }
  char digits[MAX_NUMBER_BYTES + 1];
  const size_t n = (size_t)(p->at - start);
  if (n > MAX_NUMBER_BYTES) {
    return fail(p, "a number of at most 63 characters");
  }
  memcpy(digits, start, n);
  digits[n] = '\0';

  locale_t plain = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
  if (!plain) {
    return no_memory(p);
  }
  *number = strtod_l(digits, NULL, plain);
  freelocale(plain);
  return isfinite(*number) ? 1 : fail(p, "a number that fits a double");
}

static struct np_json *parse_value(struct parser *p, unsigned depth);

/* Reads "name": of a member; the name becomes *name, owned by the caller. */
static int parse_name(struct parser *p, const struct np_json *object, char **name) {
  skip_space(p);
  if (!take(p, '"')) {
    return fail(p, "a member name in quotes");
  }
  if (!(*name = parse_text(p))) {
    return 0;
  }
  if (np_json_member(object, *name)) {
    return fail(p, "member names that occur once");
  }
  skip_space(p);
  return take(p, ':') ? 1 : fail(p, "':'");
}

/* Reads members or elements up to `close`. */
static int parse_children(struct parser *p, struct np_json *parent, char close, unsigned depth) {
  struct np_json **tail = &parent->first;
  skip_space(p);
  if (take(p, close)) {
    return 1;
  }
  for (;;) {
    char *name = NULL;
    if (parent->kind == NP_JSON_OBJECT && !parse_name(p, parent, &name)) {
      free(name);
      return 0;
    }
    struct np_json *child = parse_value(p, depth + 1);
    if (!child) {
      free(name);
      return 0;
    }
    child->name = name;
    *tail = child;
    tail = &child->next;
    parent->count++;
    skip_space(p);
    if (take(p, close)) {
      return 1;
    }
    if (!take(p, ',')) {
      return fail(p, close == '}' ? "',' or '}'" : "',' or ']'");
    }
  }
}

static struct np_json *parse_value(struct parser *p, unsigned depth) {
  skip_space(p);
  if (depth >= MAX_DEPTH) {
    fail(p, "at most 32 levels of nesting");
    return NULL;
  }
  struct np_json *value = calloc(1, sizeof *value);
  if (!value) {
    no_memory(p);
    return NULL;
  }
  int ok = 1;
  if (take(p, '{')) {
    value->kind = NP_JSON_OBJECT;
    ok = parse_children(p, value, '}', depth);
  } else if (take(p, '[')) {
    value->kind = NP_JSON_ARRAY;
    ok = parse_children(p, value, ']', depth);
  } else if (take(p, '"')) {
    value->kind = NP_JSON_TEXT;
    ok = (value->text = parse_text(p)) != NULL;
  } else if (take_word(p, "true")) {
    value->kind = NP_JSON_BOOL;
    value->number = 1;
  } else if (take_word(p, "false")) {
    value->kind = NP_JSON_BOOL;
  } else if (take_word(p, "null")) {
    value->kind = NP_JSON_NULL;
  } else {
    value->kind = NP_JSON_NUMBER;
    ok = parse_number(p, &value->number);
  }
  if (ok) {
    return value;
  }
  np_json_free(value);
  return NULL;
}

enum np_status np_json_parse(const char *bytes, size_t length, struct np_json **root,
                             struct np_message *why) {
  struct parser p = {bytes, bytes + length, bytes, why, NP_OK};
  *root = parse_value(&p, 0);
  if (!*root) {
    return p.status;
  }
  skip_space(&p);
  if (p.at == p.end) {
    return NP_OK;
  }
  fail(&p, "the end of the file");
  np_json_free(*root);
  *root = NULL;
  return p.status;
}

void np_json_free(struct np_json *root) {
  while (root) {
    struct np_json *next = root->next;
    np_json_free(root->first);
    free(root->text);
    free(root->name);
    free(root);
    root = next;
  }
}

const struct np_json *np_json_member(const struct np_json *object, const char *name) {
  if (!object || object->kind != NP_JSON_OBJECT) {
    return NULL;
  }
  for (const struct np_json *m = object->first; m; m = m->next) {
    if (m->name && strcmp(m->name, name) == 0) {
      return m;
    }
  }
  return NULL;
}

const char *np_json_kind_name(const struct np_json *value) {
  static const char *const names[] = {"null", "true or false", "a number",
                                      "text", "an array",      "an object"};
  return value ? names[value->kind] : "nothing";
}
