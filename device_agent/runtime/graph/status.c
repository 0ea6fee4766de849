#include "np_status.h"

#include <stdarg.h>
#include <stdio.h>

const char *np_status_text(enum np_status status) {
  switch (status) {
  case NP_OK:
    return "no error";
  case NP_BAD_ARGUMENT:
    return "a function was called with a bad argument";
  case NP_BAD_REQUEST:
    return "the bytes are no request, model or description of ours";
  case NP_BAD_MODEL:
    return "the model breaks a rule of NNAPI";
  case NP_UNSUPPORTED:
    return "this engine cannot run the model";
  case NP_NO_MEMORY:
    return "out of memory";
  case NP_IO:
    return "reading or writing failed";
  case NP_MISSING:
    return "something needed is not there";
  case NP_RUN_FAILED:
    return "the run failed";
  case NP_DEADLINE:
    return "the time budget ran out";
  case NP_STALLED:
    return "one of NNAPI's drivers hangs";
  }
  return "unknown status";
}

static void format_message(struct np_message *message, const char *format, va_list arguments) {
  if (message && vsnprintf(message->text, sizeof message->text, format, arguments) < 0) {
    message->text[0] = '\0';
  }
}

void np_message_set(struct np_message *message, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  format_message(message, format, arguments);
  va_end(arguments);
}

enum np_status np_error(enum np_status status, struct np_message *message, const char *format,
                        ...) {
  va_list arguments;
  va_start(arguments, format);
  format_message(message, format, arguments);
  va_end(arguments);
  return status;
}
