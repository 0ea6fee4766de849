/* The rules of NNAPI for one operation: counts and types of its operands, ranks, feature levels. */
#include <stdio.h>
#include <string.h>

#include "graph/np_check.h"
#include "kernels/np_kernel.h"

int np_level_number(int32_t feature_level) {
  if (feature_level >= ANEURALNETWORKS_FEATURE_LEVEL_6) {
    return 6 + (feature_level - ANEURALNETWORKS_FEATURE_LEVEL_6);
  }
  return feature_level - ANEURALNETWORKS_FEATURE_LEVEL_1 + 1;
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

/* Returns the row of an operation's table for a data type; n_data if there is none. */
static uint32_t data_row(const struct np_op_info *info, int32_t type) {
  uint32_t row = 0;
  while (row < info->n_data && info->data_types[row].type != type) {
    row++;
  }
  return row;
}

/* Returns the entry of the form for an input of an operation with n_inputs inputs. */
static uint32_t entry_of(const struct np_op_form *form, uint32_t n_inputs, uint32_t input) {
  if (form->repeated == UINT8_MAX || input < form->repeated) {
    return input;
  }
  const uint32_t after = form->n_inputs - form->repeated - 1u; /* entries after the repeated one */
  const uint32_t from_end = n_inputs - 1 - input;
  return from_end < after ? form->n_inputs - 1u - from_end : form->repeated;
}

const struct np_op_input *np_form_input(const struct np_op_form *form, uint32_t n_inputs,
                                        uint32_t input) {
  return &form->inputs[entry_of(form, n_inputs, input)];
}

static int takes_count(const struct np_op_form *form, uint32_t n_inputs) {
  if (form->repeated != UINT8_MAX) {
    return n_inputs >= form->n_inputs;
  }
  return n_inputs < 64 && (form->counts >> n_inputs & 1) != 0;
}

/* Returns the set of types that an input may have if the data have the type of table row `row`. */
static uint32_t wanted_types(const struct np_op_info *info, const struct np_op_form *form,
                             uint32_t entry, uint32_t row, int32_t data) {
  const int half = data == NP_TYPE_TENSOR_FLOAT16;
  switch (form->inputs[entry].kind) {
  case NP_INPUT_INT32:
    return NP_BIT(NP_TYPE_INT32);
  case NP_INPUT_BOOL:
    return NP_BIT(NP_TYPE_BOOL);
  case NP_INPUT_FLOAT32:
    return NP_BIT(NP_TYPE_FLOAT32);
  case NP_INPUT_FLOAT: /* the header and Android's own checks differ on FLOAT32 with half data */
    return half ? NP_BIT(NP_TYPE_FLOAT16) | NP_BIT(NP_TYPE_FLOAT32) : NP_BIT(NP_TYPE_FLOAT32);
  case NP_INPUT_VALUE:
    if (info->min_outputs == 1 && info->data_types[row].type == NP_TYPE_TENSOR_INT32) {
      return NP_BIT(NP_TYPE_FLOAT16) | NP_BIT(NP_TYPE_FLOAT32) | NP_BIT(NP_TYPE_INT32);
    }
    return half                             ? NP_BIT(NP_TYPE_FLOAT16)
           : data == NP_TYPE_TENSOR_FLOAT32 ? NP_BIT(NP_TYPE_FLOAT32)
                                            : NP_BIT(NP_TYPE_INT32);
  case NP_INPUT_MODEL:
    return NP_BIT(NP_TYPE_MODEL);
  default:
    return info->n_data == 0 ? UINT32_MAX : form->types[row * form->n_inputs + entry];
  }
}

/* An input that breaks a form, and the types it may have. */
struct mismatch {
  uint32_t input;
  uint32_t types;
};

/* Returns whether an operation has a form; if not, *mismatch is the first input that does not
 * match. */
static int match(const struct np_op_info *info, const struct np_op_form *form,
                 const struct np_graph *graph, const struct np_operation *operation,
                 struct mismatch *mismatch) {
  const int32_t data = graph->operands[operation->inputs[info->data]].type;
  const uint32_t row = data_row(info, data);
  for (uint32_t i = 0; i < operation->n_inputs; i++) {
    const uint32_t entry = entry_of(form, operation->n_inputs, i);
    const struct np_operand *operand = &graph->operands[operation->inputs[i]];
    const uint32_t types = wanted_types(info, form, entry, row, data);
    const int optional = form->inputs[entry].optional;
    if ((types >> operand->type & 1) == 0 || (operand->lifetime == NP_NO_VALUE && !optional)) {
      *mismatch = (struct mismatch){i, types};
      return 0;
    }
  }
  return 1;
}

/* Appends to a text that never overflows. */
static void append(char *text, size_t size, const char *word) {
  const size_t used = strlen(text);
  (void)snprintf(text + used, size - used, "%s", word);
}

/* Writes the numbers of inputs that an operation's forms allow: "7, 8 or 10". */
static void list_counts(const struct np_op_info *info, char *text, size_t size) {
  uint64_t counts = 0;
  uint32_t many = 0;
  for (uint32_t f = 0; f < info->n_forms; f++) {
    const struct np_op_form *form = &info->forms[f];
    counts |= form->repeated == UINT8_MAX ? form->counts : UINT64_C(1) << form->n_inputs;
    many += form->repeated != UINT8_MAX;
  }
  text[0] = '\0';
  for (unsigned n = 0; n < 64; n++) {
    if ((counts >> n & 1) == 0) {
      continue;
    }
    char word[16];
    (void)snprintf(word, sizeof word, "%s%u", text[0] == '\0' ? "" : " or ", n);
    append(text, size, word);
  }
  append(text, size, many > 0 ? " or more" : "");
}

static void list_types(uint32_t types, char *text, size_t size) {
  text[0] = '\0';
  for (int32_t type = 0; type <= NP_TYPE_MODEL; type++) {
    if ((types >> type & 1) != 0) {
      append(text, size, text[0] == '\0' ? "" : " or ");
      append(text, size, np_type_name(type));
    }
  }
}

const struct np_op_form *np_form_match(const struct np_graph *graph, uint32_t index,
                                       struct np_message *why) {
  const struct np_operation *operation = &graph->operations[index];
  const struct np_call call = {.graph = graph, .index = index, .operation = operation, .why = why};
  const struct np_op_info *info = np_op_info(operation->code);
  struct mismatch best = {0, 0};
  int counted = 0;
  for (uint32_t f = 0; info != NULL && f < info->n_forms; f++) {
    const struct np_op_form *form = &info->forms[f];
    struct mismatch one = {0, 0};
    if (!takes_count(form, operation->n_inputs)) {
      continue;
    }
    if (match(info, form, graph, operation, &one)) {
      return form;
    }
    best = !counted || one.input >= best.input ? one : best;
    counted = 1;
  }
  char counts[96] = "none";
  if (info != NULL) {
    list_counts(info, counts, sizeof counts);
  }
  if (!counted) {
    (void)np_fail(&call, NP_BAD_MODEL, "%u inputs, wanted %s", operation->n_inputs, counts);
    return NULL;
  }
  const struct np_operand *operand = &graph->operands[operation->inputs[best.input]];
  char types[128];
  list_types(best.types, types, sizeof types);
  (void)np_fail(&call, NP_BAD_MODEL,
                "input %u (operand %u) is %s%s, wanted %s (of %u inputs; allowed: %s)", best.input,
                operation->inputs[best.input], np_type_name(operand->type),
                operand->lifetime == NP_NO_VALUE ? " without a value" : "", types,
                operation->n_inputs, counts);
  return NULL;
}

const struct np_op_form *np_form_of(const struct np_graph *graph, uint32_t index,
                                    struct np_message *why) {
  if (graph->operations[index].code == ANEURALNETWORKS_CAST) {
    return &np_op_info(ANEURALNETWORKS_CAST)->forms[0];
  }
  return np_form_match(graph, index, why);
}

/* Checks that operand indices are in range, and that there is an output. */
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

/* Checks that the operation supports the data type at this level. */
static enum np_status check_data(const struct np_call *call, const struct np_op_info *info,
                                 int level) {
  if (info->n_data == 0) {
    return NP_OK;
  }
  if (info->data >= call->operation->n_inputs) {
    return np_fail(call, NP_BAD_MODEL, "%u inputs, wanted more", call->operation->n_inputs);
  }
  const uint32_t index = call->operation->inputs[info->data];
  const struct np_operand *data = &call->graph->operands[index];
  const uint32_t row = data_row(info, data->type);
  if (row == info->n_data) {
    return np_fail(call, NP_BAD_MODEL, "input %u (operand %u) is %s, which it never accepts",
                   info->data, index, np_type_name(data->type));
  }
  if (info->data_types[row].level > level) {
    return np_fail(
        call, NP_BAD_MODEL,
        "input %u (operand %u) is %s, allowed from feature level %d on, wanted %d or less",
        info->data, index, np_type_name(data->type), info->data_types[row].level, level);
  }
  return NP_OK;
}

/* Checks that each input, and its type, exist at this level. */
static enum np_status check_levels(const struct np_call *call, int level) {
  const struct np_operation *operation = call->operation;
  int needs = call->form->level;
  for (uint32_t i = 0; i < operation->n_inputs; i++) {
    const int since = np_form_input(call->form, operation->n_inputs, i)->level;
    needs = since > needs ? since : needs;
  }
  if (needs > level) {
    return np_fail(call, NP_BAD_MODEL,
                   "these %u inputs are allowed from feature level %d on, wanted %d or less",
                   operation->n_inputs, needs, level);
  }
  return NP_OK;
}

/* Checks the number and types of the outputs. */
static enum np_status check_outputs(const struct np_call *call, const struct np_op_info *info) {
  const struct np_operation *operation = call->operation;
  const uint32_t n = operation->n_outputs;
  if (n < info->min_outputs || (info->max_outputs != UINT8_MAX && n > info->max_outputs)) {
    return np_fail(call, NP_BAD_MODEL, "%u outputs, wanted %u%s", n, info->min_outputs,
                   info->max_outputs > info->min_outputs ? " or more" : "");
  }
  if (info->n_data == 0) {
    return NP_OK;
  }
  const struct np_operand *data = &call->graph->operands[operation->inputs[info->data]];
  const uint32_t row = data_row(info, data->type);
  const uint32_t columns = info->max_outputs == UINT8_MAX ? 1u : info->max_outputs;
  for (uint32_t i = 0; i < n; i++) {
    const uint32_t types = info->outputs[row * columns + (i < columns ? i : 0)];
    const int32_t type = call->graph->operands[operation->outputs[i]].type;
    if ((types >> type & 1) == 0) {
      char names[128];
      list_types(types, names, sizeof names);
      return np_fail(call, NP_BAD_MODEL, "output %u (operand %u) is %s, wanted %s", i,
                     operation->outputs[i], np_type_name(type), names);
    }
  }
  return NP_OK;
}

/* Checks the ranks of the data and of the inputs with its type. */
static enum np_status check_ranks(const struct np_call *call, const struct np_op_info *info,
                                  int level) {
  const struct np_operation *operation = call->operation;
  const struct np_operand *data = &call->graph->operands[operation->inputs[info->data]];
  const uint32_t high = info->max_rank == 0 ? NP_MAX_RANK : info->max_rank;
  for (uint32_t i = 0; info->n_data > 0 && i < operation->n_inputs; i++) {
    const struct np_operand *operand = &call->graph->operands[operation->inputs[i]];
    const uint32_t low = i == info->data ? info->min_rank : 1u;
    if (operand->type != data->type || operand->lifetime == NP_NO_VALUE || operand->rank == 0) {
      continue;
    }
    if (operand->rank < low || operand->rank > high) {
      return np_fail(call, NP_BAD_MODEL, "input %u (operand %u) has rank %u, wanted %u to %u", i,
                     operation->inputs[i], operand->rank, low, high);
    }
  }
  if (level < 3 && info->early_ranks != 0 && data->rank != 0 &&
      (info->early_ranks >> data->rank & 1) == 0) {
    return np_fail(call, NP_BAD_MODEL,
                   "input %u (operand %u) has rank %u, allowed from feature level 3 on, wanted %d"
                   " or less",
                   info->data, operation->inputs[info->data], data->rank, level);
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
  const struct np_op_info *info = np_op_info(code);
  if (info == NULL) {
    return np_fail(&call, NP_BAD_MODEL, "code %d is no operation of NNAPI", code);
  }
  if (info->level > level) {
    return np_fail(&call, NP_BAD_MODEL, "exists from feature level %d on, wanted %d or less",
                   info->level, level);
  }
  NP_TRY(check_data(&call, info, level));
  call.form = np_form_match(graph, operation, why);
  if (call.form == NULL) {
    return NP_BAD_MODEL;
  }
  NP_TRY(check_levels(&call, level));
  NP_TRY(check_outputs(&call, info));
  NP_TRY(check_ranks(&call, info, level));
  if (code == ANEURALNETWORKS_IF || code == ANEURALNETWORKS_WHILE) {
    return np_check_control(&call, feature_level);
  }
  const struct np_kernel *kernel = np_kernel_of(code);
  const int32_t data = graph->operands[call.operation->inputs[info->data]].type;
  const uint32_t computed =
      data == NP_TYPE_TENSOR_FLOAT16 ? NP_BIT(data) | NP_FLOATS : NP_BIT(data);
  if (kernel == NULL || (info->n_data > 0 && (kernel->types & computed) == 0)) {
    return np_fail(&call, NP_UNSUPPORTED, "this engine has no kernel for %s", np_type_name(data));
  }
  return NP_OK;
}
