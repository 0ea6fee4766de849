#define _GNU_SOURCE /* pipe2 */

#include "words.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_AT_ONCE 64u /* reads: a child that never stops printing must not block its parent */

enum np_status np_words_open(struct np_words *words, int *end) {
  int ends[2];
  *words = (struct np_words){.fd = -1};
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    return NP_IO;
  }
  words->fd = ends[0];
  *end = ends[1];
  return NP_OK;
}

void np_words_speak(int end) {
  (void)dup2(end, STDOUT_FILENO);
  (void)dup2(end, STDERR_FILENO);
}

static int outputs_differ(void) {
  struct stat output, error;
  return fstat(STDOUT_FILENO, &output) == 0 && fstat(STDERR_FILENO, &error) == 0 &&
         (output.st_dev != error.st_dev || output.st_ino != error.st_ino);
}

/* Appends to the kept output as one line; drops the oldest bytes to make room. */
static void keep(struct np_words *words, const char *bytes, size_t n) {
  const size_t room = NP_WORDS_BYTES - 1;
  const size_t added = n < room ? n : room;
  const size_t before = strlen(words->last);
  const size_t kept = before < room - added ? before : room - added;
  memmove(words->last, words->last + before - kept, kept);
  memcpy(words->last + kept, bytes + n - added, added);
  words->last[kept + added] = '\0';
  for (size_t i = kept; i < kept + added; i++) {
    const unsigned char byte = (unsigned char)words->last[i];
    words->last[i] = byte < 0x20 ? ' ' : (char)byte;
  }
}

void np_words_listen(struct np_words *words) {
  char bytes[1024];
  for (unsigned i = 0; i < MOST_AT_ONCE && words->fd >= 0; i++) {
    const ssize_t n = read(words->fd, bytes, sizeof bytes);
    if (n <= 0) {
      return;
    }
    keep(words, bytes, (size_t)n);
    if (outputs_differ()) {
      const ssize_t written = write(STDERR_FILENO, bytes, (size_t)n);
      (void)written; /* a failure does not matter */
    }
  }
}

void np_words_close(struct np_words *words) {
  np_words_listen(words);
  (void)close(words->fd); /* -1: none */
  words->fd = -1;
}
