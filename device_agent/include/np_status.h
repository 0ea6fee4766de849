/* One status enum for the agent, the kernels and the emulator. */
#ifndef NP_STATUS_H
#define NP_STATUS_H

enum np_status {
  NP_OK = 0,
  NP_BAD_ARGUMENT, /* the caller broke the contract of a function */
  NP_BAD_REQUEST,  /* bytes that are not a valid request, model or description */
  NP_BAD_MODEL,    /* a model that breaks a rule of NNAPI */
  NP_UNSUPPORTED,  /* a valid model that this engine cannot run */
  NP_NO_MEMORY,
  NP_IO,         /* a file or pipe failed; errno says why */
  NP_MISSING,    /* a blob, library or function is not there */
  NP_RUN_FAILED, /* an engine's run failed */
  NP_DEADLINE,   /* the time budget ran out */
  NP_STALLED,    /* NNAPI does not answer: one of its drivers hangs */
};

/* Returns the status as an English phrase, never NULL. */
const char *np_status_text(enum np_status status);

/* One sentence about a failure. Writers truncate it if necessary and always terminate it. */
struct np_message {
  char text[256];
};

/* Formats into message->text; message may be NULL. */
void np_message_set(struct np_message *message, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Does the same and returns `status`, for a function to return. */
enum np_status np_error(enum np_status status, struct np_message *message, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns from the calling function unless a status (an nnp_status, too) is OK, that is 0. */
#define NP_TRY(expression)                                                                         \
  do {                                                                                             \
    const __typeof__(expression) np_try_status = (expression);                                     \
    if (np_try_status != 0) {                                                                      \
      return np_try_status;                                                                        \
    }                                                                                              \
  } while (0)

/* Returns from the calling function with np_error of the other arguments unless `holds`. */
#define NP_REQUIRE(holds, ...)                                                                     \
  do {                                                                                             \
    if (!(holds)) {                                                                                \
      return np_error(__VA_ARGS__);                                                                \
    }                                                                                              \
  } while (0)

/* Evaluates the next step if the status so far is OK: for functions that clean up. */
#define NP_THEN(status, expression)                                                                \
  do {                                                                                             \
    if ((status) == 0) {                                                                           \
      (status) = (expression);                                                                     \
    }                                                                                              \
  } while (0)

#endif
