/* Helpers that the files formatting answers share (result.h). */
#ifndef NP_ANSWER_H
#define NP_ANSWER_H

#include "result.h"

/* Begin a line of a type; write it. */
void np_answer_begin(struct np_answers *answers, const char *type);
enum np_status np_answer_finish(struct np_answers *answers);

/* Adds a mask of CPUs as text, null for none. */
void np_answer_mask(struct np_answers *answers, const char *key, uint64_t mask);

/* Adds a list of accelerators. */
void np_answer_accelerators(struct np_answers *answers, uint32_t n,
                            const struct np_accelerator *accelerators);

/* Adds true for 1, false for 0, null for -1. */
void np_answer_flag(struct np_answers *answers, const char *key, int yes);

#endif
