/* The output of a child, above all of its driver; the parent reads it and keeps the last line. */
#ifndef NP_WORDS_H
#define NP_WORDS_H

#include "np_status.h"

#define NP_WORDS_BYTES 200u

struct np_words {
  int fd;                    /* the parent's end of the pipe, -1: none */
  char last[NP_WORDS_BYTES]; /* the last output, zero-terminated; "": none */
};

/* Makes a pipe for a child's output; *end is the child's end, which the caller closes. Writing
 * never blocks: output that does not fit before the parent reads is lost. NP_IO with errno set. */
enum np_status np_words_open(struct np_words *words, int *end);

/* In the child: redirects both outputs to the pipe, so that a library's prints never look like
 * answers. */
void np_words_speak(int end);

/* Reads the child's output and passes it on to standard error, unless that is the same file as the
 * answers (adb's first shell protocol has only one), which half a line would corrupt. */
void np_words_listen(struct np_words *words);

void np_words_close(struct np_words *words);

#endif
