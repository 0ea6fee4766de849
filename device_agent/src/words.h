/* What a child prints, its driver above all: read by its parent, who keeps the last of it. */
#ifndef NP_WORDS_H
#define NP_WORDS_H

#include "np_status.h"

#define NP_WORDS_BYTES 200u

struct np_words {
  int fd;                    /* the parent's end of the pipe, -1: none */
  char last[NP_WORDS_BYTES]; /* what was printed last, ends with 0; "": nothing */
};

/* Makes a pipe for a child's words; its own end, which the caller closes, comes to *end. Writing to
 * it never waits: what does not fit until the parent listens is lost. NP_IO with errno set. */
enum np_status np_words_open(struct np_words *words, int *end);

/* In the child: both outputs go to the pipe, so that a library's prints never look like answers. */
void np_words_speak(int end);

/* Takes what the child has printed, and passes it on to standard error, unless that is the file of
 * the answers (adb's first shell protocol has only one), which half a line would break. */
void np_words_listen(struct np_words *words);

void np_words_close(struct np_words *words);

#endif
