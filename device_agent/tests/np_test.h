/* Checks for the C tests: a failed one prints file, line and expression, and the test continues.
 *
 *   int main(void) {
 *     CHECK(1 + 1 == 2);
 *     return np_test_exit();
 *   }
 */
#ifndef NP_TEST_H
#define NP_TEST_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns the number of failed checks in this process. */
static inline int *np_test_failures(void) {
  static int failures = 0;
  return &failures;
}

static inline int np_test_check(int holds, const char *file, int line, const char *what) {
  if (!holds) {
    (void)fprintf(stderr, "%s:%d: failed: %s\n", file, line, what);
    (*np_test_failures())++;
  }
  return holds;
}

static inline int np_test_text(const char *found, const char *wanted, const char *file, int line) {
  const int holds = found != NULL && strstr(found, wanted) != NULL;
  if (!holds) {
    (void)fprintf(stderr, "%s:%d: failed: \"%s\" does not contain \"%s\"\n", file, line,
                  found == NULL ? "(null)" : found, wanted);
    (*np_test_failures())++;
  }
  return holds;
}

/* Returns 1 if the condition holds, else 0 after printing it. */
#define CHECK(condition) np_test_check((condition) ? 1 : 0, __FILE__, __LINE__, #condition)

/* Checks that the text `found` contains `wanted`. */
#define CHECK_TEXT(found, wanted) np_test_text((found), (wanted), __FILE__, __LINE__)

/* Returns main's exit code: 0 if every check held, else 1. */
static inline int np_test_exit(void) {
  if (*np_test_failures() != 0) {
    (void)fprintf(stderr, "%d checks failed\n", *np_test_failures());
    return 1;
  }
  return 0;
}

/* Returns the next number of splitmix64, for tests that need the same data in every run. */
static inline uint64_t np_test_random(uint64_t *state) {
  uint64_t x = (*state += 0x9e3779b97f4a7c15u);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/* A float in [-1, 1). */
static inline float np_test_float(uint64_t *state) {
  return (float)(np_test_random(state) >> 40) / 8388608.0f - 1.0f;
}

/* An integer in [low, high]. */
static inline uint32_t np_test_between(uint64_t *state, uint32_t low, uint32_t high) {
  return low + (uint32_t)(np_test_random(state) % (high - low + 1u));
}

#endif
