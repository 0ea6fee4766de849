/* Builds a JSON line piece by piece: for result.c only. */
#ifndef NP_JSON_LINE_H
#define NP_JSON_LINE_H

#include <stdint.h>

#include "result.h"

/* Each adds a piece to the line, with a comma where one is needed. A NULL key adds an element of an
 * array. -1 given to np_json_known becomes null, and so does a NULL string. */
void np_json_open(struct np_answers *line, const char *key, char bracket);
void np_json_close(struct np_answers *line, char bracket);
void np_json_string(struct np_answers *line, const char *key, const char *text);
void np_json_unsigned(struct np_answers *line, const char *key, uint64_t value);
void np_json_signed(struct np_answers *line, const char *key, int64_t value);
void np_json_known(struct np_answers *line, const char *key, int64_t value);
void np_json_bool(struct np_answers *line, const char *key, int value);
void np_json_null(struct np_answers *line, const char *key);

#endif
