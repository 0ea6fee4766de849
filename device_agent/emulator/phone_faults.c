/* Reads the faults to inject, of a description and of the environment. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hash.h"
#include "phone_read.h"

static const char *const kinds[] = {"refuse", "fail",    "die",     "stop", "hang",  "abort",
                                    "crash",  "exhaust", "reshape", "skip", "partly"};
enum { N_KINDS = sizeof kinds / sizeof *kinds };
#define KIND_WORDS "refuse, fail, die, stop, hang, abort, crash, exhaust, reshape, skip or partly"
static const char *const stages[] = {"compile", "execute"};

/* Returns the index of text[length] among names, -1 for none. */
static int index_of(const char *text, size_t length, const char *const *names, int n) {
  for (int i = 0; i < n; i++) {
    if (strlen(names[i]) == length && memcmp(names[i], text, length) == 0) {
      return i;
    }
  }
  return -1;
}

/* Reads member `name`, one of a few words. */
static int read_choice(const struct np_field *parent, const char *name, const char *const *names,
                       int n, int *choice) {
  struct np_field field;
  const char *text = NULL;
  if (!np_field_member(parent, name, &field) || !np_field_text(&field, &text)) {
    return 0;
  }
  *choice = index_of(text, strlen(text), names, n);
  return *choice >= 0 ||
         np_field_refuse(&field, text, n == N_KINDS ? KIND_WORDS : "compile or execute");
}

static int read_fault(const struct np_field *field, struct np_fault *fault) {
  static const char *const names[] = {"kind",  "stage", "operation", "nth",    "from_run",
                                      "every", "times", "company",   "origin", NULL};
  struct np_field nth, run, times;
  const char *name = NULL, *origin = NULL;
  int kind, stage;
  int64_t number = 1, from_run = 1, every = 1, most = 0, company = 0;
  if (!np_field_object(field, names) || !read_choice(field, "kind", kinds, N_KINDS, &kind) ||
      !read_choice(field, "stage", stages, 2, &stage) ||
      !np_field_member_text(field, "operation", &name) ||
      !np_read_code(field, name, &fault->code) || !np_field_member(field, "nth", &nth) ||
      !np_field_integer(&nth, 1, INT32_MAX, &number) ||
      !np_field_member_text(field, "origin", &origin)) {
    return 0;
  }
  if (np_json_member(field->value, "from_run") &&
      (!np_field_member(field, "from_run", &run) ||
       !np_field_integer(&run, 1, INT32_MAX, &from_run))) {
    return 0;
  }
  if (np_json_member(field->value, "every") &&
      (!np_field_member(field, "every", &run) || !np_field_integer(&run, 1, INT32_MAX, &every))) {
    return 0;
  }
  if (np_json_member(field->value, "times") && (!np_field_member(field, "times", &times) ||
                                                !np_field_integer(&times, 1, INT32_MAX, &most))) {
    return 0;
  }
  if (np_json_member(field->value, "company") &&
      (!np_field_member(field, "company", &times) || !np_field_integer(&times, 0, 1, &company))) {
    return 0;
  }
  if (stage == NP_FAULT_COMPILE && (from_run != 1 || every != 1)) {
    return np_field_refuse(&run, "a run", "none, as a compilation comes once");
  }
  if (stage == NP_FAULT_COMPILE && kind >= NP_FAULT_RESHAPE) {
    return np_field_refuse(field, "outputs of a compilation", "execute, which has outputs");
  }
  fault->kind = (enum np_fault_kind)kind;
  fault->stage = (enum np_fault_stage)stage;
  fault->nth = (uint32_t)number;
  fault->from_run = (uint64_t)from_run;
  fault->every = (uint64_t)every;
  fault->times = (uint64_t)most;
  fault->company = company != 0;
  return 1;
}

int np_read_faults(const struct np_field *parent, struct np_phone *phone,
                   const struct np_accelerator *a) {
  struct np_field list, element;
  if (!np_json_member(parent->value, "faults")) {
    return 1;
  }
  if (!np_field_member(parent, "faults", &list)) {
    return 0;
  }
  if (list.value->kind != NP_JSON_ARRAY || list.value->count > NP_MAX_FAULTS - phone->n_faults) {
    return np_field_refuse(&list, np_json_kind_name(list.value),
                           "an array; a phone has at most 32 faults");
  }
  for (uint32_t i = 0; i < list.value->count; i++) {
    struct np_fault *fault = &phone->faults[phone->n_faults];
    if (!np_field_element(&list, i, &element) || !read_fault(&element, fault)) {
      return 0;
    }
    fault->accelerator = a;
    phone->n_faults++;
  }
  return 1;
}

/* Takes the next part of a fault's text, up to a colon; *at moves behind it. */
static size_t next_part(const char **at, const char *end, const char **part) {
  *part = *at;
  const char *colon = memchr(*at, ':', (size_t)(end - *at));
  *at = colon ? colon + 1 : end;
  return (size_t)((colon ? colon : end) - *part);
}

/* Reads a number from 1 to 999999999. */
static int read_number(const char *text, size_t length, uint32_t *number) {
  *number = 0;
  for (size_t i = 0; i < length; i++) {
    if (text[i] < '0' || text[i] > '9' || length > 9) {
      return 0;
    }
    *number = *number * 10 + (uint32_t)(text[i] - '0');
  }
  return *number > 0;
}

static const struct np_accelerator *named(const struct np_phone *phone, const char *name,
                                          size_t length) {
  for (uint32_t i = 0; i < phone->n_accelerators; i++) {
    const struct np_accelerator *a = &phone->accelerators[i];
    if (strlen(a->name) == length && memcmp(a->name, name, length) == 0) {
      return a;
    }
  }
  return NULL;
}

/* Reads RUN[/EVERY] of a fault's text; returns 0 if it is malformed. */
static int read_runs(const char *text, size_t length, struct np_fault *fault) {
  uint32_t run = 1, every = 1;
  const char *slash = memchr(text, '/', length);
  const size_t n = slash ? (size_t)(slash - text) : length;
  if (!read_number(text, n, &run) || (slash && !read_number(slash + 1, length - n - 1, &every))) {
    return 0;
  }
  fault->from_run = run;
  fault->every = every;
  return 1;
}

/* Reads KIND:STAGE:OPERATION[:NTH[:RUN[/EVERY]]][@ACCELERATOR]; returns what is wrong with it, or
 * NULL. */
static const char *parse(const struct np_phone *phone, const char *text, size_t length,
                         struct np_fault *fault) {
  const char *at = text, *end = text + length, *part;
  *fault = (struct np_fault){.nth = 1, .from_run = 1, .every = 1};
  const char *sign = memchr(text, '@', length);
  if (sign) {
    fault->accelerator = named(phone, sign + 1, (size_t)(end - sign - 1));
    if (!fault->accelerator) {
      return "the phone has no accelerator of this name";
    }
    end = sign;
  }
  size_t n = next_part(&at, end, &part);
  const int kind = index_of(part, n, kinds, N_KINDS);
  n = next_part(&at, end, &part);
  const int stage = index_of(part, n, stages, 2);
  if (kind < 0 || stage < 0) {
    return "wanted " KIND_WORDS ", a colon, and compile or execute";
  }
  char name[64] = "";
  n = next_part(&at, end, &part);
  if (n < sizeof name) {
    memcpy(name, part, n);
  }
  fault->code = np_operation_code(name);
  if (fault->code < 0 || fault->code >= NP_OPERATION_CODES) {
    return "no NNAPI operation has this name";
  }
  if (at < end && (n = next_part(&at, end, &part), !read_number(part, n, &fault->nth))) {
    return "wanted a number from 1 behind the operation";
  }
  if (at < end && (n = next_part(&at, end, &part), !read_runs(part, n, fault))) {
    return "wanted the number of a run from 1, or that, a slash and another number";
  }
  if (at < end || end[-1] == ':') {
    return "too many parts";
  }
  if (stage == NP_FAULT_COMPILE && (fault->from_run != 1 || fault->every != 1)) {
    return "a compilation comes once: no run can be told";
  }
  if (stage == NP_FAULT_COMPILE && kind >= NP_FAULT_RESHAPE) {
    return "a compilation has no outputs";
  }
  fault->kind = (enum np_fault_kind)kind;
  fault->stage = (enum np_fault_stage)stage;
  return NULL;
}

enum np_status np_phone_inject(struct np_phone *phone, const char *text, struct np_message *why) {
  for (const char *at = text; *at;) {
    const size_t length = strcspn(at, ",");
    if (phone->n_faults == NP_MAX_FAULTS) {
      np_message_set(why, "more than 32 faults");
      return NP_BAD_REQUEST;
    }
    const char *wrong =
        length == 0 ? "wanted a fault" : parse(phone, at, length, &phone->faults[phone->n_faults]);
    if (wrong) {
      np_message_set(why, "\"%.*s\": %s", (int)(length > 80 ? 80 : length), at, wrong);
      return NP_BAD_REQUEST;
    }
    phone->n_faults++;
    at += length;
    if (*at == ',' && *++at == '\0') {
      np_message_set(why, "nothing behind the last comma");
      return NP_BAD_REQUEST;
    }
  }
  if (text[0]) { /* with faults the phone counts as a different device */
    const uint64_t hash = np_hash_bytes(NP_HASH_START, phone->identity, 16);
    snprintf(phone->identity, sizeof phone->identity, "%016llx",
             (unsigned long long)np_hash_bytes(hash, text, strlen(text)));
  }
  return NP_OK;
}

bool np_fault_meets(const struct np_fault *fault, const struct np_accelerator *accelerator,
                    const struct np_graph *graph, uint32_t operation) {
  /* NNAPI's own CPU path is not a driver: it fails only if a fault names it. */
  const bool its = fault->accelerator ? fault->accelerator == accelerator
                                      : accelerator->type != ANEURALNETWORKS_DEVICE_CPU;
  if (!its || graph->operations[operation].code != fault->code) {
    return false;
  }
  uint32_t nth = 0;
  for (uint32_t k = 0; k <= operation; k++) {
    nth += graph->operations[k].code == fault->code;
  }
  return nth == fault->nth;
}
