/* Reads the operations that an accelerator supports: kinds of data, ranks, levels. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "np_executor.h"
#include "phone_read.h"

#define ALL_DATA ((UINT32_C(1) << NP_DATA_KINDS) - 1)

enum np_data np_data_of(int32_t type, bool relaxed) {
  switch (type) {
  case NP_TYPE_TENSOR_FLOAT16:
    return NP_DATA_FLOAT16;
  case NP_TYPE_TENSOR_QUANT8_ASYMM:
    return NP_DATA_QUANT8;
  case NP_TYPE_TENSOR_QUANT8_ASYMM_SIGNED:
    return NP_DATA_QUANT8_SIGNED;
  case NP_TYPE_TENSOR_QUANT8_SYMM:
    return NP_DATA_QUANT8_SYMM;
  case NP_TYPE_TENSOR_QUANT8_SYMM_PER_CHANNEL:
    return NP_DATA_PER_CHANNEL;
  case NP_TYPE_TENSOR_QUANT16_ASYMM:
  case NP_TYPE_TENSOR_QUANT16_SYMM:
    return NP_DATA_QUANT16;
  case NP_TYPE_TENSOR_INT32:
    return NP_DATA_INT32;
  case NP_TYPE_TENSOR_BOOL8:
    return NP_DATA_BOOL8;
  default:
    return relaxed ? NP_DATA_RELAXED : NP_DATA_FLOAT32;
  }
}

int np_data_named(const char *name, size_t length) {
  static const char *const names[NP_DATA_KINDS] = {
      "float32",     "relaxed",     "float16", "quant8", "quant8_signed",
      "quant8_symm", "per_channel", "quant16", "int32",  "bool8"};
  for (int i = 0; i < NP_DATA_KINDS; i++) {
    if (strlen(names[i]) == length && memcmp(names[i], name, length) == 0) {
      return i;
    }
  }
  return -1;
}

/* Returns the number after a prefix such as "rank<="; -1 if the word does not match. */
static long limit_of(const char *word, size_t length, const char *prefix) {
  const size_t start = strlen(prefix);
  if (length <= start || length > start + 2 || memcmp(word, prefix, start) != 0) {
    return -1;
  }
  long number = 0;
  for (size_t i = start; i < length; i++) {
    if (word[i] < '0' || word[i] > '9') {
      return -1;
    }
    number = number * 10 + (word[i] - '0');
  }
  return number;
}

/* Reads one word of terms: a kind of data, "rank<=N" or "level<=N". */
static int read_word(const char *word, size_t length, struct np_terms *terms) {
  const int kind = np_data_named(word, length);
  const long rank = limit_of(word, length, "rank<=");
  const long level = limit_of(word, length, "level<=");
  if (kind >= 0) {
    terms->data |= UINT32_C(1) << kind;
  } else if (rank >= 0 && rank <= (long)NP_MAX_RANK) {
    terms->max_rank = (uint32_t)rank;
  } else if (level >= ANEURALNETWORKS_FEATURE_LEVEL_1 && level <= ANEURALNETWORKS_FEATURE_LEVEL_4) {
    terms->level = (int32_t)level;
  } else {
    return 0;
  }
  return 1;
}

/* Reads words separated by spaces. Limits not named do not change; naming data replaces all data of
 * *terms. */
static int read_terms(const struct np_field *field, struct np_terms *terms) {
  const char *text = NULL;
  if (!np_field_text(field, &text)) {
    return 0;
  }
  struct np_terms read = {0, terms->max_rank, terms->level};
  for (const char *at = text + strspn(text, " "); *at; at += strspn(at, " ")) {
    const size_t length = strcspn(at, " ");
    if (!read_word(at, length, &read)) {
      char found[64];
      snprintf(found, sizeof found, "\"%.*s\"", (int)(length > 40 ? 40 : length), at);
      return np_field_refuse(field, found, "kinds of data, rank<=8 or level<=30 (at most)");
    }
    at += length;
  }
  if (read.data == 0) {
    read.data = terms->data;
  }
  *terms = read;
  return 1;
}

/* Reads "only": [...] or "except": [...] into taken[]. */
static int read_names(const struct np_field *field, bool *taken) {
  struct np_field list;
  const bool only = np_json_member(field->value, "only") != NULL;
  if (only == (np_json_member(field->value, "except") != NULL)) {
    return np_field_refuse(field, only ? "both \"only\" and \"except\"" : "neither",
                           "either \"only\" or \"except\"");
  }
  if (!np_field_member(field, only ? "only" : "except", &list)) {
    return 0;
  }
  if (list.value->kind != NP_JSON_ARRAY) {
    return np_field_refuse(&list, np_json_kind_name(list.value), "an array of operation names");
  }
  for (int code = 0; code < NP_OPERATION_CODES; code++) {
    taken[code] = !only;
  }
  struct np_field element = {NULL, "", field->why};
  uint32_t i = 0;
  for (const struct np_json *one = list.value->first; one; one = one->next, i++) {
    const char *name = NULL;
    int32_t code;
    element.value = one;
    const int n = snprintf(element.path, sizeof element.path, "%s[%u]", list.path, i);
    if (n < 0 || !np_field_text(&element, &name) || !np_read_code(&element, name, &code)) {
      return 0;
    }
    taken[code] = only;
  }
  return 1;
}

/* Reads "limits": {NAME: TERMS}, each replacing the default's. */
static int read_limits(const struct np_field *field, const bool *taken, struct np_accelerator *a) {
  struct np_field limits, limit;
  if (!np_json_member(field->value, "limits")) {
    return 1;
  }
  if (!np_field_member(field, "limits", &limits)) {
    return 0;
  }
  if (limits.value->kind != NP_JSON_OBJECT) {
    return np_field_refuse(&limits, np_json_kind_name(limits.value), "an object of terms by name");
  }
  for (const struct np_json *m = limits.value->first; m; m = m->next) {
    int32_t code;
    if (!np_read_code(&limits, m->name, &code) || !np_field_member(&limits, m->name, &limit)) {
      return 0;
    }
    if (!taken[code]) {
      return np_field_refuse(&limit, "terms", "none, as the operation is not taken");
    }
    if (!read_terms(&limit, &a->operations[code])) {
      return 0;
    }
  }
  return 1;
}

int np_read_operations(const struct np_field *parent, struct np_accelerator *a) {
  static const char *const names[] = {"only", "except", "default", "limits", "origin", NULL};
  struct np_field field, terms;
  const char *origin = NULL;
  bool taken[NP_OPERATION_CODES];
  struct np_terms fallback = {ALL_DATA, NP_MAX_RANK, (int32_t)a->feature_level};
  if (!np_field_member(parent, "operations", &field) || !np_field_object(&field, names) ||
      !read_names(&field, taken) || !np_field_member_text(&field, "origin", &origin)) {
    return 0;
  }
  if (np_json_member(field.value, "default") &&
      (!np_field_member(&field, "default", &terms) || !read_terms(&terms, &fallback))) {
    return 0;
  }
  for (int code = 0; code < NP_OPERATION_CODES; code++) {
    a->operations[code] = taken[code] ? fallback : (struct np_terms){0};
  }
  return read_limits(&field, taken, a);
}

/* Returns whether the terms allow a tensor. Integers and booleans count if they are the data, not
 * if they are a shape, an index or a bias. */
static bool allows(const struct np_terms *terms, const struct np_operand *operand, bool is_data,
                   bool relaxed) {
  if (operand->lifetime == NP_NO_VALUE || !np_type_is_tensor(operand->type)) {
    return true;
  }
  if (operand->rank > terms->max_rank) {
    return false;
  }
  const enum np_data kind = np_data_of(operand->type, relaxed);
  if (!is_data && (kind == NP_DATA_INT32 || kind == NP_DATA_BOOL8)) {
    return true;
  }
  const uint32_t wanted = UINT32_C(1) << kind;
  const uint32_t float32 = kind == NP_DATA_RELAXED ? UINT32_C(1) << NP_DATA_FLOAT32 : 0;
  return (terms->data & (wanted | float32)) != 0;
}

bool np_phone_takes(const struct np_phone *phone, const struct np_accelerator *accelerator,
                    const struct np_graph *graph, uint32_t operation, bool relaxed) {
  const struct np_operation *one = &graph->operations[operation];
  if (one->code < 0 || one->code >= NP_OPERATION_CODES) {
    return false;
  }
  const struct np_terms *terms = &accelerator->operations[one->code];
  if (terms->data == 0) {
    return false;
  }
  bool is_data = true; /* the first tensor that is read */
  for (uint32_t i = 0; i < one->n_inputs; i++) {
    const struct np_operand *operand = &graph->operands[one->inputs[i]];
    if (!allows(terms, operand, is_data, relaxed)) {
      return false;
    }
    if (np_type_is_tensor(operand->type) && operand->lifetime != NP_NO_VALUE) {
      is_data = false;
    }
  }
  for (uint32_t i = 0; i < one->n_outputs; i++) {
    if (!allows(terms, &graph->operands[one->outputs[i]], is_data, relaxed)) {
      return false;
    }
  }
  for (uint32_t i = 0; i < phone->n_faults; i++) {
    const struct np_fault *fault = &phone->faults[i];
    if (fault->kind == NP_FAULT_REFUSE && fault->stage == NP_FAULT_COMPILE && fault->times == 0 &&
        !fault->company && np_fault_meets(fault, accelerator, graph, operation)) {
      return false;
    }
  }
  return terms->level >= accelerator->feature_level ||
         np_operation_check(graph, operation, terms->level, NULL) == NP_OK;
}

void np_phone_host_cpu(const struct np_phone *phone, struct np_accelerator *cpu) {
  *cpu = (struct np_accelerator){.type = ANEURALNETWORKS_DEVICE_CPU,
                                 .feature_level = ANEURALNETWORKS_FEATURE_LEVEL_4,
                                 .unit = phone->cpu};
  for (int i = 0; i < NP_OPERATION_CODES; i++) {
    cpu->operations[i] = (struct np_terms){ALL_DATA, NP_MAX_RANK, ANEURALNETWORKS_FEATURE_LEVEL_4};
  }
  for (int i = 0; i < NP_DATA_KINDS; i++) {
    cpu->performance.value[i] = cpu->power.value[i] = 1;
  }
  for (int i = 0; i < 3; i++) {
    cpu->preference[i] = 1;
  }
}
