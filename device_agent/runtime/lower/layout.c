/* Pass "layout": operations on NCHW data become operations on NHWC data between transposes.
 *
 *   y = CONV_2D(x, w, b, ..., true)
 * becomes
 *   x' = TRANSPOSE(x, [0, 2, 3, 1]), y' = CONV_2D(x', w, b, ..., false), y = TRANSPOSE(y', ...)
 *
 * so that kernels know one layout. Neighbours' transposes meet and cancel in a later pass. */
#include <stdlib.h>
#include <string.h>

#include "lower/np_lower.h"

static const int32_t TO_NHWC[4] = {0, 2, 3, 1};
static const int32_t TO_NCHW[4] = {0, 3, 1, 2};

/* The operands of an operation that are images, to which its layout flag applies. */
struct images {
  uint32_t inputs;  /* bit set */
  uint32_t outputs; /* bit set */
  uint32_t shape;   /* an input that is a list of four sizes, 0 for none */
};

static struct images images_of(const struct np_operation *operation,
                               const struct np_op_form *form) {
  switch (operation->code) {
  case ANEURALNETWORKS_GENERATE_PROPOSALS: /* scores and deltas; the outputs have no layout */
    return (struct images){.inputs = 3};
  case ANEURALNETWORKS_HEATMAP_MAX_KEYPOINT:
    return (struct images){.inputs = 1};
  case ANEURALNETWORKS_TRANSPOSE_CONV_2D:
    return (struct images){
        .inputs = 1, .outputs = 1, .shape = form->variant == NP_IMPLICIT ? 3u : 0u};
  default:
    return (struct images){.inputs = 1, .outputs = 1};
  }
}

struct layout_pass {
  struct np_lowered *lowered;
  uint32_t *twins; /* [n] the NHWC twin of an operand, NP_NO_OPERAND: none yet */
  uint32_t n;
  uint32_t to_nhwc, to_nchw, no; /* constants: permutations, and false */
};

/* Adds a temporary like `operand` with its dimensions permuted. */
static uint32_t permuted(struct layout_pass *pass, uint32_t operand, const int32_t order[4]) {
  const struct np_operand *from = &pass->lowered->graph.operands[operand];
  struct np_operand twin = *from;
  for (uint32_t i = 0; i < 4 && from->rank == 4; i++) {
    twin.dims[i] = from->dims[order[i]];
  }
  twin.lifetime = NP_TEMPORARY;
  twin.value = NULL;
  twin.length = 0;
  return np_add_operand(pass->lowered, &twin);
}

static enum np_status read_nhwc(struct layout_pass *pass, uint32_t operand, uint32_t *twin) {
  *twin = pass->twins[operand];
  if (*twin != NP_NO_OPERAND) {
    return NP_OK;
  }
  *twin = pass->twins[operand] = permuted(pass, operand, TO_NHWC);
  if (*twin == NP_NO_OPERAND) {
    return NP_NO_MEMORY;
  }
  const uint32_t inputs[2] = {operand, pass->to_nhwc};
  return np_emit(pass->lowered, ANEURALNETWORKS_TRANSPOSE, inputs, 2, twin, 1);
}

/* Reorders a list of sizes [N, C, H, W] to [N, H, W, C]. */
static enum np_status read_sizes(struct layout_pass *pass, uint32_t operand, uint32_t *twin) {
  struct np_operand sizes = pass->lowered->graph.operands[operand];
  sizes.lifetime = NP_TEMPORARY;
  sizes.value = NULL;
  sizes.length = 0;
  *twin = np_add_operand(pass->lowered, &sizes);
  const int32_t zero = 0;
  const uint32_t axis = np_add_constant(pass->lowered, NP_TYPE_INT32, 0, NULL, &zero, sizeof zero);
  if (*twin == NP_NO_OPERAND || axis == NP_NO_OPERAND) {
    return NP_NO_MEMORY;
  }
  const uint32_t inputs[3] = {operand, axis, pass->to_nhwc};
  return np_emit(pass->lowered, ANEURALNETWORKS_GATHER, inputs, 3, twin, 1);
}

static enum np_status lower_one(struct layout_pass *pass, const struct np_operation *operation,
                                const struct np_op_form *form) {
  struct np_lowered *lowered = pass->lowered;
  const struct images images = images_of(operation, form);
  const uint32_t n = operation->n_inputs;
  uint32_t *lists = np_lowered_alloc(lowered, ((size_t)n + operation->n_outputs) * sizeof *lists);
  if (lists == NULL) {
    return NP_NO_MEMORY;
  }
  for (uint32_t i = 0; i < n; i++) {
    lists[i] = i == form->layout ? pass->no : operation->inputs[i];
    if (i < 32 && (images.inputs >> i & 1) != 0) {
      NP_TRY(read_nhwc(pass, operation->inputs[i], &lists[i]));
    } else if (images.shape != 0 && i == images.shape) {
      NP_TRY(read_sizes(pass, operation->inputs[i], &lists[i]));
    }
  }
  for (uint32_t i = 0; i < operation->n_outputs; i++) {
    const int image = i < 32 && (images.outputs >> i & 1) != 0;
    lists[n + i] = image ? permuted(pass, operation->outputs[i], TO_NHWC) : operation->outputs[i];
    if (lists[n + i] == NP_NO_OPERAND) {
      return NP_NO_MEMORY;
    }
  }
  NP_TRY(np_emit(lowered, operation->code, lists, n, lists + n, operation->n_outputs));
  for (uint32_t i = 0; i < operation->n_outputs; i++) {
    if (lists[n + i] == operation->outputs[i]) {
      continue;
    }
    const uint32_t inputs[2] = {lists[n + i], pass->to_nchw};
    NP_TRY(np_emit(lowered, ANEURALNETWORKS_TRANSPOSE, inputs, 2, &operation->outputs[i], 1));
  }
  return NP_OK;
}

/* Lowers or copies one operation. */
static enum np_status visit(struct layout_pass *pass, uint32_t o, struct np_message *why) {
  struct np_lowered *lowered = pass->lowered;
  const struct np_operation *operation = &lowered->from[o];
  struct np_graph view = lowered->graph; /* the operations before this pass */
  view.operations = lowered->from;
  view.n_operations = lowered->n_from;
  const struct np_op_form *form = np_form_of(&view, o, why);
  int nchw = 0;
  if (form == NULL || form->layout == UINT8_MAX || form->layout >= operation->n_inputs) {
    return np_emit_same(lowered, operation);
  }
  if (!np_constant_bool(&lowered->graph, operation->inputs[form->layout], &nchw)) {
    const struct np_call call = {.graph = &view, .index = o, .operation = operation, .why = why};
    return np_fail(&call, NP_UNSUPPORTED,
                   "the layout flag (input %u) is no constant; set it in the model", form->layout);
  }
  return nchw ? lower_one(pass, operation, form) : np_emit_same(lowered, operation);
}

enum np_status np_lower_layout(struct np_lowered *lowered, struct np_message *why) {
  struct layout_pass pass = {.lowered = lowered};
  const uint32_t four = 4;
  const unsigned char no = 0;
  pass.to_nhwc = np_add_constant(lowered, NP_TYPE_TENSOR_INT32, 1, &four, TO_NHWC, sizeof TO_NHWC);
  pass.to_nchw = np_add_constant(lowered, NP_TYPE_TENSOR_INT32, 1, &four, TO_NCHW, sizeof TO_NCHW);
  pass.no = np_add_constant(lowered, NP_TYPE_BOOL, 0, NULL, &no, sizeof no);
  pass.n = lowered->graph.n_operands;
  pass.twins = malloc(((size_t)pass.n + 1) * sizeof *pass.twins);
  if (pass.to_nhwc == NP_NO_OPERAND || pass.to_nchw == NP_NO_OPERAND || pass.no == NP_NO_OPERAND ||
      pass.twins == NULL) {
    free(pass.twins);
    return NP_NO_MEMORY;
  }
  for (uint32_t i = 0; i < pass.n; i++) {
    pass.twins[i] = NP_NO_OPERAND;
  }
  enum np_status status = NP_OK;
  for (uint32_t o = 0; status == NP_OK && o < lowered->n_from; o++) {
    status = visit(&pass, o, why);
  }
  free(pass.twins);
  return status;
}
