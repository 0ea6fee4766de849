/* The rules of NNAPI for one operation: counts and types of its operands, ranks, feature levels. */
#include <stdio.h>
#include <string.h>

#include "np_executor.h"
#include "kernels/np_kernel.h"

int np_level_number(int32_t feature_level) {
  if (feature_level >= ANEURALNETWORKS_FEATURE_LEVEL_6) {
    return 6 + (feature_level - ANEURALNETWORKS_FEATURE_LEVEL_6);
  }
  return feature_level - ANEURALNETWORKS_FEATURE_LEVEL_1 + 1;
}

int np_kind_of(int32_t type) {
  switch (type) {
  case NP_TYPE_TENSOR_FLOAT32:
    return NP_KIND_FLOAT32;
  case NP_TYPE_TENSOR_FLOAT16:
    return NP_KIND_FLOAT16;
  case NP_TYPE_TENSOR_QUANT8_ASYMM:
    return NP_KIND_QUANT8;
  case NP_TYPE_TENSOR_QUANT8_ASYMM_SIGNED:
    return NP_KIND_QUANT8_SIGNED;
  case NP_TYPE_TENSOR_INT32:
    return NP_KIND_INT32;
  default:
    return -1;
  }
}

const char *np_type_name(int32_t type) {
  static const char *const NAMES[] = {
      "FLOAT32",
      "INT32",
      "UINT32",
      "TENSOR_FLOAT32",
      "TENSOR_INT32",
      "TENSOR_QUANT8_ASYMM",
      "BOOL",
      "TENSOR_QUANT16_SYMM",
      "TENSOR_FLOAT16",
      "TENSOR_BOOL8",
      "FLOAT16",
      "TENSOR_QUANT8_SYMM_PER_CHANNEL",
      "TENSOR_QUANT16_ASYMM",
      "TENSOR_QUANT8_SYMM",
      "TENSOR_QUANT8_ASYMM_SIGNED",
      "MODEL",
  };
  if (type < 0 || (size_t)type >= sizeof NAMES / sizeof NAMES[0]) {
    return "an unknown type";
  }
  return NAMES[type];
}

/* The type that a letter of a form stands for, given the data's type; -1 where no type fits.
 * Weights of quantised data may have two types: the other one is set in *other. */
static int32_t wanted_type(char letter, int32_t data, int32_t *other) {
  const int quantised =
      data == NP_TYPE_TENSOR_QUANT8_ASYMM || data == NP_TYPE_TENSOR_QUANT8_ASYMM_SIGNED;
  *other = -1;
  switch (letter) {
  case 'x':
    return data;
  case 'w':
    *other = quantised ? NP_TYPE_TENSOR_QUANT8_SYMM_PER_CHANNEL : -1;
    return data;
  case 'c':
    return quantised ? NP_TYPE_TENSOR_INT32 : data;
  case 'f':
    return data == NP_TYPE_TENSOR_FLOAT16 ? NP_TYPE_FLOAT16 : NP_TYPE_FLOAT32;
  case 'v':
    return quantised                        ? NP_TYPE_INT32
           : data == NP_TYPE_TENSOR_FLOAT16 ? NP_TYPE_FLOAT16
                                            : NP_TYPE_FLOAT32;
  case 'i':
    return NP_TYPE_INT32;
  case 'b':
    return NP_TYPE_BOOL;
  case 'I':
    return NP_TYPE_TENSOR_INT32;
  default:
    return -1;
  }
}

/* Matches an operation against one form. Returns the number of inputs that match before the first
 * that does not; n_inputs + 1 where all do. *letter is the one of the mismatch. */
static uint32_t match(const char *form, const struct np_graph *graph,
                      const struct np_operation *operation, char *letter) {
  const int32_t data = graph->operands[operation->inputs[0]].type;
  uint32_t i = 0;
  for (const char *at = form; *at != '\0'; at++) {
    const int optional = at[1] == '?';
    const int many = at[1] == '*';
    *letter = *at;
    uint32_t taken = 0;
    /* A run of data tensors stops where another letter takes over. */
    while (i < operation->n_inputs && (taken == 0 || many)) {
      const struct np_operand *operand = &graph->operands[operation->inputs[i]];
      int32_t other;
      const int32_t wanted = wanted_type(*at, data, &other);
      if (operand->type != wanted && operand->type != other) {
        break;
      }
      if (operand->lifetime == NP_NO_VALUE && !optional) {
        break;
      }
      i++;
      taken++;
    }
    if (taken == 0) {
      return i;
    }
    at += optional || many;
  }
  *letter = '\0';
  return i == operation->n_inputs ? i + 1 : i;
}

/* Writes the counts of inputs that the kernel's forms allow: "7, 8 or 10 inputs". */
static void list_counts(const struct np_kernel *kernel, char *text, size_t size) {
  uint64_t counts = 0;
  int many = 0;
  for (uint32_t f = 0; f < kernel->n_forms; f++) {
    unsigned count = 0;
    for (const char *at = kernel->forms[f].inputs; *at != '\0'; at++) {
      count += *at != '?' && *at != '*';
      many |= *at == '*';
    }
    counts |= (uint64_t)1 << count;
  }
  size_t used = 0;
  text[0] = '\0';
  for (unsigned count = 0; count < 64 && used < size; count++) {
    if ((counts >> count & 1) != 0) {
      const int n = snprintf(text + used, size - used, "%s%u%s", used == 0 ? "" : " or ", count,
                             many ? " or more" : "");
      used += n > 0 ? (size_t)n : 0;
    }
  }
}

const struct np_form *np_form_match(const struct np_kernel *kernel, const struct np_graph *graph,
                                    uint32_t index, struct np_message *why) {
  const struct np_operation *operation = &graph->operations[index];
  const struct np_call call = {.graph = graph, .index = index, .operation = operation, .why = why};
  uint32_t best = 0;
  char best_letter = 'x';
  for (uint32_t f = 0; f < kernel->n_forms && operation->n_inputs > 0; f++) {
    char letter;
    const uint32_t matched = match(kernel->forms[f].inputs, graph, operation, &letter);
    if (matched > operation->n_inputs) {
      return &kernel->forms[f];
    }
    if (letter != '\0' && matched < operation->n_inputs && matched >= best) {
      best = matched;
      best_letter = letter;
    }
  }
  char counts[96];
  list_counts(kernel, counts, sizeof counts);
  if (best > 0) {
    const struct np_operand *operand = &graph->operands[operation->inputs[best]];
    int32_t other;
    const int32_t wanted =
        wanted_type(best_letter, graph->operands[operation->inputs[0]].type, &other);
    if (operand->type != wanted || operand->lifetime == NP_NO_VALUE) {
      (void)np_fail(&call, NP_BAD_MODEL,
                    "input %u (operand %u) is %s%s, wanted %s (of %u inputs; allowed: %s)", best,
                    operation->inputs[best], np_type_name(operand->type),
                    operand->lifetime == NP_NO_VALUE ? " without a value" : "",
                    np_type_name(wanted), operation->n_inputs, counts);
      return NULL;
    }
  }
  (void)np_fail(&call, NP_BAD_MODEL, "%u inputs, wanted %s", operation->n_inputs, counts);
  return NULL;
}

int np_form_optional(const struct np_form *form, uint32_t input) {
  uint32_t i = 0;
  for (const char *at = form->inputs; *at != '\0'; at++) {
    if (*at == '*') {
      return 0; /* what follows data of any number is never optional */
    }
    if (*at == '?') {
      continue;
    }
    if (i++ == input) {
      return at[1] == '?';
    }
  }
  return 0;
}

/* Operand indices in range; outputs at least one. */
static enum np_status check_indices(const struct np_call *call) {
  const struct np_operation *operation = call->operation;
  for (uint32_t i = 0; i < operation->n_inputs; i++) {
    if (operation->inputs[i] >= call->graph->n_operands) {
      return np_fail(call, NP_BAD_MODEL, "input %u is operand %u, but there are only %u", i,
                     operation->inputs[i], call->graph->n_operands);
    }
  }
  for (uint32_t i = 0; i < operation->n_outputs; i++) {
    if (operation->outputs[i] >= call->graph->n_operands) {
      return np_fail(call, NP_BAD_MODEL, "output %u is operand %u, but there are only %u", i,
                     operation->outputs[i], call->graph->n_operands);
    }
  }
  if (operation->n_inputs == 0 || operation->n_outputs == 0) {
    return np_fail(call, NP_BAD_MODEL, "%u inputs and %u outputs, wanted at least one of each",
                   operation->n_inputs, operation->n_outputs);
  }
  return NP_OK;
}

/* Types of the outputs, and the rank of the data. */
static enum np_status check_data(const struct np_call *call, int level) {
  const struct np_operation *operation = call->operation;
  const struct np_kernel *kernel = call->kernel;
  const struct np_operand *data = &call->graph->operands[operation->inputs[0]];
  const int kind = np_kind_of(data->type);
  if (kind < 0 || kernel->since[kind] == 0) {
    return np_fail(call, NP_BAD_MODEL, "input 0 (operand %u) is %s, which it never accepts",
                   operation->inputs[0], np_type_name(data->type));
  }
  if (kernel->since[kind] > level) {
    return np_fail(
        call, NP_BAD_MODEL,
        "input 0 (operand %u) is %s, allowed from feature level %d on, wanted %d or less",
        operation->inputs[0], np_type_name(data->type), kernel->since[kind], level);
  }
  if (kernel->any_outputs == 0 && operation->n_outputs != 1) {
    return np_fail(call, NP_BAD_MODEL, "%u outputs, wanted 1", operation->n_outputs);
  }
  for (uint32_t i = 0; i < operation->n_outputs; i++) {
    const int32_t type = call->graph->operands[operation->outputs[i]].type;
    if (type != data->type) {
      return np_fail(call, NP_BAD_MODEL, "output %u (operand %u) is %s, wanted %s", i,
                     operation->outputs[i], np_type_name(type), np_type_name(data->type));
    }
  }
  for (uint32_t i = 0; i < operation->n_inputs; i++) {
    const struct np_operand *operand = &call->graph->operands[operation->inputs[i]];
    const uint32_t low = i == 0 ? kernel->min_rank : 1u;
    if (i > 0 && (operand->type != data->type || operand->lifetime == NP_NO_VALUE)) {
      continue;
    }
    if (operand->rank != 0 && (operand->rank < low || operand->rank > kernel->max_rank)) {
      return np_fail(call, NP_BAD_MODEL, "input %u (operand %u) has rank %u, wanted %u to %u", i,
                     operation->inputs[i], operand->rank, low, kernel->max_rank);
    }
  }
  if (level < 3 && kernel->early_ranks != 0 && data->rank != 0 &&
      (kernel->early_ranks >> data->rank & 1) == 0) {
    return np_fail(call, NP_BAD_MODEL,
                   "input 0 (operand %u) has rank %u, allowed from feature level 3 on, wanted %d or"
                   " less",
                   operation->inputs[0], data->rank, level);
  }
  if ((kernel->runs >> kind & 1) == 0) {
    return np_fail(call, NP_UNSUPPORTED, "no kernel for %s yet (operand %u)",
                   np_type_name(data->type), operation->inputs[0]);
  }
  return NP_OK;
}

enum np_status np_operation_check(const struct np_graph *graph, uint32_t operation,
                                  int32_t feature_level, struct np_message *why) {
  if (operation >= graph->n_operations) {
    np_message_set(why, "operation %u of a graph of %u", operation, graph->n_operations);
    return NP_BAD_ARGUMENT;
  }
  struct np_call call = {
      .graph = graph, .index = operation, .operation = &graph->operations[operation], .why = why};
  const int32_t code = call.operation->code;
  const int level = np_level_number(feature_level);
  NP_TRY(check_indices(&call));
  if (code >= NP_FIRST_OWN_CODE) {
    return np_fail(&call, NP_UNSUPPORTED, "no kernel for code %d of our own", code);
  }
  const int since = np_operation_level(code);
  if (since == 0) {
    return np_fail(&call, NP_BAD_MODEL, "code %d is no operation of NNAPI", code);
  }
  if (since > level) {
    return np_fail(&call, NP_BAD_MODEL, "exists from feature level %d on, wanted %d or less", since,
                   level);
  }
  call.kernel = np_kernel_of(code);
  if (call.kernel == NULL) {
    return np_fail(&call, NP_UNSUPPORTED, "no kernel for this operation yet");
  }
  call.form = np_form_match(call.kernel, graph, operation, why);
  if (call.form == NULL) {
    return NP_BAD_MODEL;
  }
  if (call.form->level > level) {
    return np_fail(&call, NP_BAD_MODEL,
                   "these %u inputs are allowed from feature level %d on, wanted %d or less",
                   call.operation->n_inputs, call.form->level, level);
  }
  return check_data(&call, level);
}
