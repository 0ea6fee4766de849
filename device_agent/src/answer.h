/* What the files that format answers share (result.h). */
#ifndef NP_ANSWER_H
#define NP_ANSWER_H

#include "result.h"

/* Begins a line of a type; writes it. */
void np_answer_begin(struct np_answers *answers, const char *type);
enum np_status np_answer_finish(struct np_answers *answers);

/* A mask of CPUs as text, null for none. */
void np_answer_mask(struct np_answers *answers, const char *key, uint64_t mask);

/* A list of accelerators. */
void np_answer_accelerators(struct np_answers *answers, uint32_t n,
                            const struct np_accelerator *accelerators);

/* 1, 0, or -1: null. */
void np_answer_flag(struct np_answers *answers, const char *key, int yes);

#endif
