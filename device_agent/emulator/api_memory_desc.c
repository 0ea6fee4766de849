/* ANeuralNetworksMemoryDesc_*, ANeuralNetworksMemory_createFromDesc: memory for given roles. */
#include <stdlib.h>
#include <string.h>

#include "emulator.h"

int ANeuralNetworksMemoryDesc_create(ANeuralNetworksMemoryDesc **desc) {
  if (!desc) {
    return NP_REFUSE(UNEXPECTED_NULL, "desc is NULL");
  }
  *desc = calloc(1, sizeof **desc);
  return *desc ? ANEURALNETWORKS_NO_ERROR : NP_REFUSE(OUT_OF_MEMORY, "no memory");
}

void ANeuralNetworksMemoryDesc_free(ANeuralNetworksMemoryDesc *desc) {
  if (!desc) {
    return;
  }
  free(desc->roles);
  free(desc);
}

/* Merges dimensions into `into`; returns 0 if they contradict each other. */
static int merge_dims(uint32_t *into_rank, uint32_t *into, uint32_t rank, const uint32_t *dims) {
  if (rank == 0) {
    return 1;
  }
  if (*into_rank == 0) {
    *into_rank = rank;
    memcpy(into, dims, rank * sizeof *dims);
    return 1;
  }
  if (*into_rank != rank) {
    return 0;
  }
  for (uint32_t i = 0; i < rank; i++) {
    if (into[i] != 0 && dims[i] != 0 && into[i] != dims[i]) {
      return 0;
    }
  }
  for (uint32_t i = 0; i < rank; i++) {
    into[i] = into[i] ? into[i] : dims[i];
  }
  return 1;
}

static int add_role(ANeuralNetworksMemoryDesc *desc, const ANeuralNetworksCompilation *compilation,
                    uint32_t index, enum np_role_kind kind, float frequency) {
  if (!desc || !compilation) {
    return NP_REFUSE(UNEXPECTED_NULL, "desc or compilation is NULL");
  }
  if (desc->finished) {
    return NP_REFUSE(BAD_STATE, "the descriptor is finished");
  }
  if (!compilation->finished || !compilation->usable) {
    return NP_REFUSE(BAD_DATA, "the compilation is not finished");
  }
  const ANeuralNetworksModel *model = compilation->model;
  const uint32_t n = kind == NP_ROLE_INPUT ? model->graph.n_inputs : model->graph.n_outputs;
  if (index >= n) {
    return NP_REFUSE(BAD_DATA, "index %u of %u", index, n);
  }
  if (!(frequency > 0) || frequency > 1) {
    return NP_REFUSE(BAD_DATA, "frequency %g is outside (0, 1]", (double)frequency);
  }
  for (uint32_t i = 0; i < desc->n_roles; i++) {
    const struct np_role *role = &desc->roles[i];
    if (role->compilation == compilation && role->index == index && role->kind == kind) {
      return NP_REFUSE(BAD_DATA, "the role was added before");
    }
  }
  const uint32_t *list = kind == NP_ROLE_INPUT ? model->graph.inputs : model->graph.outputs;
  const struct np_operand *operand = &model->declared[list[index]];
  struct np_operand merged = desc->n_roles ? desc->operand : *operand;
  if (merged.type != operand->type || merged.zero_point != operand->zero_point ||
      memcmp(&merged.scale, &operand->scale, sizeof merged.scale) != 0) {
    return NP_REFUSE(BAD_DATA, "type, scale or zero point differ from those of the other roles");
  }
  if (!merge_dims(&merged.rank, merged.dims, operand->rank, operand->dims) ||
      !merge_dims(&merged.rank, merged.dims, desc->rank, desc->dims)) {
    return NP_REFUSE(BAD_DATA, "dimensions contradict those of the descriptor");
  }
  if (!np_type_is_tensor(operand->type) && desc->rank != 0) {
    return NP_REFUSE(BAD_DATA, "the descriptor has dimensions, the role is a scalar's");
  }
  struct np_role *roles = realloc(desc->roles, (desc->n_roles + 1) * sizeof *roles);
  if (!roles) {
    return NP_REFUSE(OUT_OF_MEMORY, "no memory");
  }
  roles[desc->n_roles] = (struct np_role){compilation, index, kind};
  desc->roles = roles;
  desc->n_roles++;
  desc->operand = merged;
  return ANEURALNETWORKS_NO_ERROR;
}

int ANeuralNetworksMemoryDesc_addInputRole(ANeuralNetworksMemoryDesc *desc,
                                           const ANeuralNetworksCompilation *compilation,
                                           uint32_t index, float frequency) {
  return add_role(desc, compilation, index, NP_ROLE_INPUT, frequency);
}

int ANeuralNetworksMemoryDesc_addOutputRole(ANeuralNetworksMemoryDesc *desc,
                                            const ANeuralNetworksCompilation *compilation,
                                            uint32_t index, float frequency) {
  return add_role(desc, compilation, index, NP_ROLE_OUTPUT, frequency);
}

int ANeuralNetworksMemoryDesc_setDimensions(ANeuralNetworksMemoryDesc *desc, uint32_t rank,
                                            const uint32_t *dimensions) {
  if (!desc || (rank != 0 && !dimensions)) {
    return NP_REFUSE(UNEXPECTED_NULL, "desc or dimensions are NULL");
  }
  if (desc->finished) {
    return NP_REFUSE(BAD_STATE, "the descriptor is finished");
  }
  if (rank > NP_MAX_RANK) {
    return NP_REFUSE(BAD_DATA, "rank %u, at most %u", rank, NP_MAX_RANK);
  }
  if (desc->n_roles && !np_type_is_tensor(desc->operand.type) && rank != 0) {
    return NP_REFUSE(BAD_DATA, "a scalar has no dimensions");
  }
  ANeuralNetworksMemoryDesc merged = *desc;
  if (!merge_dims(&merged.rank, merged.dims, rank, dimensions) ||
      (desc->n_roles && !merge_dims(&merged.operand.rank, merged.operand.dims, rank, dimensions))) {
    return NP_REFUSE(BAD_DATA, "dimensions contradict those of the descriptor");
  }
  *desc = merged;
  return ANEURALNETWORKS_NO_ERROR;
}

int ANeuralNetworksMemoryDesc_finish(ANeuralNetworksMemoryDesc *desc) {
  if (!desc) {
    return NP_REFUSE(UNEXPECTED_NULL, "desc is NULL");
  }
  if (desc->finished) {
    return NP_REFUSE(BAD_STATE, "the descriptor is finished");
  }
  if (desc->n_roles == 0) {
    return NP_REFUSE(BAD_DATA, "the descriptor has no role");
  }
  desc->finished = true;
  return ANEURALNETWORKS_NO_ERROR;
}

/* Allocates host memory for the roles of a descriptor. OP_FAILED if dimensions are unknown, as on
 * Android when no driver allocates. */
int ANeuralNetworksMemory_createFromDesc(const ANeuralNetworksMemoryDesc *desc,
                                         ANeuralNetworksMemory **memory) {
  if (!desc || !memory) {
    return NP_REFUSE(UNEXPECTED_NULL, "desc or memory is NULL");
  }
  *memory = NULL;
  if (!desc->finished) {
    return NP_REFUSE(BAD_STATE, "the descriptor is not finished");
  }
  const size_t size = np_operand_bytes(&desc->operand);
  if (np_has_unknown_dims(&desc->operand) || size == 0 || size > PTRDIFF_MAX) {
    return NP_REFUSE(OP_FAILED, "the size of the memory is not known");
  }
  ANeuralNetworksMemory *made = calloc(1, sizeof *made);
  struct np_role *roles = malloc(desc->n_roles * sizeof *roles);
  void *data = calloc(1, size);
  if (!made || !roles || !data) {
    free(made);
    free(roles);
    free(data);
    return NP_REFUSE(OUT_OF_MEMORY, "no memory for %zu bytes", size);
  }
  memcpy(roles, desc->roles, desc->n_roles * sizeof *roles);
  made->data = data;
  made->size = size;
  made->readable = made->writable = made->from_desc = true;
  made->roles = roles;
  made->n_roles = desc->n_roles;
  made->operand = desc->operand;
  atomic_init(&made->initialized, false);
  *memory = made;
  return ANEURALNETWORKS_NO_ERROR;
}
