#include "json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add(struct np_answers *line, const char *bytes, size_t n) {
  if (line->no_memory) {
    return;
  }
  if (n > line->capacity - line->n_bytes) {
    const size_t capacity = 2 * (line->n_bytes + n) + 256;
    char *grown = realloc(line->line, capacity);
    if (!grown) {
      line->no_memory = 1;
      return;
    }
    line->line = grown;
    line->capacity = capacity;
  }
  memcpy(line->line + line->n_bytes, bytes, n);
  line->n_bytes += n;
}

static void add_text(struct np_answers *line, const char *text) { add(line, text, strlen(text)); }

/* Returns the length of the valid UTF-8 sequence at text, 0 if there is none (RFC 3629: no overlong
 * forms, no surrogates, nothing above U+10FFFF). text is terminated. */
static size_t sequence_length(const unsigned char *text) {
  const unsigned char c = text[0];
  if (c < 0x80) {
    return 1;
  }
  const size_t n = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
  if (c < 0xc2 || c > 0xf4) {
    return 0;
  }
  for (size_t i = 1; i < n; i++) {
    if ((text[i] & 0xc0) != 0x80) {
      return 0; /* also stops at the terminating zero */
    }
  }
  if (c == 0xe0 && text[1] < 0xa0) {
    return 0;
  }
  if (c == 0xed && text[1] > 0x9f) {
    return 0;
  }
  if (c == 0xf0 && text[1] < 0x90) {
    return 0;
  }
  if (c == 0xf4 && text[1] > 0x8f) {
    return 0;
  }
  return n;
}

/* Adds a quoted string: escapes control characters, replaces invalid UTF-8 by U+FFFD. */
static void add_quoted(struct np_answers *line, const char *text) {
  add(line, "\"", 1);
  for (const unsigned char *at = (const unsigned char *)text; *at != 0;) {
    const size_t n = sequence_length(at);
    if (n == 0) {
      add(line, "\xef\xbf\xbd", 3);
      at++;
    } else if (*at == '"' || *at == '\\') {
      const char escaped[2] = {'\\', (char)*at};
      add(line, escaped, 2);
      at++;
    } else if (*at < 0x20 || *at == 0x7f) {
      char escaped[8];
      (void)snprintf(escaped, sizeof escaped, "\\u%04x", *at);
      add_text(line, escaped);
      at++;
    } else {
      add(line, (const char *)at, n);
      at += n;
    }
  }
  add(line, "\"", 1);
}

/* Adds a comma if needed, and the key. */
static void begin(struct np_answers *line, const char *key) {
  if (line->n_bytes != 0) {
    const char last = line->line[line->n_bytes - 1];
    if (last != '{' && last != '[') {
      add(line, ",", 1);
    }
  }
  if (key) {
    add_quoted(line, key);
    add(line, ":", 1);
  }
}

void np_json_open(struct np_answers *line, const char *key, char bracket) {
  begin(line, key);
  add(line, &bracket, 1);
}

void np_json_close(struct np_answers *line, char bracket) { add(line, &bracket, 1); }

void np_json_string(struct np_answers *line, const char *key, const char *text) {
  if (!text) {
    np_json_null(line, key);
    return;
  }
  begin(line, key);
  add_quoted(line, text);
}

void np_json_unsigned(struct np_answers *line, const char *key, uint64_t value) {
  char text[24];
  begin(line, key);
  (void)snprintf(text, sizeof text, "%" PRIu64, value);
  add_text(line, text);
}

void np_json_signed(struct np_answers *line, const char *key, int64_t value) {
  char text[24];
  begin(line, key);
  (void)snprintf(text, sizeof text, "%" PRId64, value);
  add_text(line, text);
}

void np_json_known(struct np_answers *line, const char *key, int64_t value) {
  if (value == -1) {
    np_json_null(line, key);
  } else {
    np_json_signed(line, key, value);
  }
}

void np_json_bool(struct np_answers *line, const char *key, int value) {
  begin(line, key);
  add_text(line, value ? "true" : "false");
}

void np_json_null(struct np_answers *line, const char *key) {
  begin(line, key);
  add_text(line, "null");
}
