/* A child's output: the last part is kept, as one line, and writing never blocks. */
#define _POSIX_C_SOURCE 200809L

#include <string.h>
#include <unistd.h>

#include "np_test.h"
#include "words.h"

static void say(int end, const char *bytes, size_t n) { CHECK(write(end, bytes, n) == (ssize_t)n); }

static void check_last_words(void) {
  struct np_words words;
  int end;
  CHECK(np_words_open(&words, &end) == NP_OK);
  np_words_listen(&words);
  CHECK(strcmp(words.last, "") == 0);
  say(end, "one\n\0two", 8);
  np_words_listen(&words);
  CHECK(strcmp(words.last, "one  two") == 0);
  say(end, "\tthree", 6);
  np_words_listen(&words);
  CHECK(strcmp(words.last, "one  two three") == 0);

  char long_text[3000];
  memset(long_text, 'x', sizeof long_text);
  say(end, long_text, NP_WORDS_BYTES - 3); /* leaves two bytes of the earlier text */
  np_words_listen(&words);
  CHECK(strncmp(words.last, "eex", 3) == 0 && strlen(words.last) == NP_WORDS_BYTES - 1);
  memcpy(long_text + sizeof long_text - 4, "last", 4);
  say(end, long_text, sizeof long_text);
  np_words_listen(&words);
  CHECK(strlen(words.last) == NP_WORDS_BYTES - 1);
  CHECK(strcmp(words.last + NP_WORDS_BYTES - 6, "xlast") == 0);
  np_words_close(&words);
  CHECK(words.fd == -1);
  np_words_listen(&words); /* no further output */
  CHECK(close(end) == 0);
}

/* A child that prints more than the pipe holds continues. */
static void check_that_nobody_waits(void) {
  struct np_words words;
  int end;
  char page[4096];
  memset(page, 'y', sizeof page);
  CHECK(np_words_open(&words, &end) == NP_OK);
  uint32_t n = 0;
  while (n < 10000 && write(end, page, sizeof page) > 0) {
    n++;
  }
  CHECK(n > 0 && n < 10000);
  np_words_listen(&words);
  CHECK(write(end, page, 1) == 1);
  np_words_close(&words);
  CHECK(close(end) == 0);
}

int main(void) {
  check_last_words();
  check_that_nobody_waits();
  return np_test_exit();
}
