/* A bounds-checked walk over 32-bit little-endian words. Reading past the end returns zeros and
 * sets `bad`, so that a parser can read a whole item and check once. */
#ifndef NP_CURSOR_H
#define NP_CURSOR_H

#include <stddef.h>
#include <stdint.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "words are read in place, which needs a little-endian machine"
#endif

struct np_cursor {
  const uint32_t *words; /* [n], not owned */
  size_t n;
  size_t at; /* the next word; never more than n */
  int bad;   /* a read went past the end */
};

static inline struct np_cursor np_cursor_over(const void *words, size_t n_bytes) {
  return (struct np_cursor){.words = words, .n = n_bytes / 4, .at = 0, .bad = 0};
}

static inline size_t np_cursor_left(const struct np_cursor *cursor) {
  return cursor->n - cursor->at;
}

/* Returns the next n words, in place; NULL (and bad) if fewer are left. */
static inline const uint32_t *np_take_words(struct np_cursor *cursor, size_t n) {
  if (cursor->bad || n > np_cursor_left(cursor)) {
    cursor->bad = 1;
    return NULL;
  }
  const uint32_t *words = cursor->words + cursor->at;
  cursor->at += n;
  return words;
}

static inline uint32_t np_take_u32(struct np_cursor *cursor) {
  const uint32_t *word = np_take_words(cursor, 1);
  return word ? *word : 0;
}

/* Returns the next two words, the low one first. */
static inline uint64_t np_take_u64(struct np_cursor *cursor) {
  const uint32_t *words = np_take_words(cursor, 2);
  return words ? (uint64_t)words[1] << 32 | words[0] : 0;
}

#endif
