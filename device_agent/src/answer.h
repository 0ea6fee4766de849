/* What the files that format answers share (result.h). */
#ifndef NP_ANSWER_H
#define NP_ANSWER_H

#include "result.h"

/* Begins a line of a type; writes it. */
void np_answer_begin(struct np_answers *answers, const char *type);
enum np_status np_answer_finish(struct np_answers *answers);

/* A mask of CPUs as text, null for none. */
void np_answer_mask(struct np_answers *answers, const char *key, uint64_t mask);

/* `throttled`: null for -1. */
void np_answer_throttled(struct np_answers *answers, int throttled);

#endif
