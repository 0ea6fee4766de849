/* ANeuralNetworksMemory_*: memory from file descriptors and from descriptors of roles. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "emulator.h"

int np_memory_range(const ANeuralNetworksMemory *memory, const struct np_role *role, size_t offset,
                    size_t *length, void **data) {
  if (memory->from_desc) {
    bool known = false;
    for (uint32_t i = 0; role && i < memory->n_roles && !known; i++) {
      known = memory->roles[i].compilation == role->compilation &&
              memory->roles[i].index == role->index && memory->roles[i].kind == role->kind;
    }
    if (!known)
      return NP_REFUSE(BAD_DATA, "the memory was not made for this role");
    if (offset != 0 || *length != 0) {
      return NP_REFUSE(BAD_DATA,
                       "offset %zu and length %zu, a memory from a descriptor is used "
                       "whole: 0 and 0",
                       offset, *length);
    }
    *length = memory->size;
  } else if (offset > memory->size || *length > memory->size - offset) {
    return NP_REFUSE(BAD_DATA, "bytes %zu to %zu + %zu of a memory of %zu", offset, offset, *length,
                     memory->size);
  }
  *data = memory->data + offset;
  return ANEURALNETWORKS_NO_ERROR;
}

/* Maps `size` bytes of a file from `offset` on, which must be a multiple of the page size. The file
 * descriptor may be closed afterwards.
 * BAD_DATA where the size is 0, the descriptor negative, the protection not one of read and write,
 * or a regular file too short (reading behind its end would be fatal); UNMAPPABLE where mmap
 * refuses. */
int ANeuralNetworksMemory_createFromFd(size_t size, int protect, int fd, size_t offset,
                                       ANeuralNetworksMemory **memory) {
  if (!memory)
    return NP_REFUSE(UNEXPECTED_NULL, "memory is NULL");
  *memory = NULL;
  if (size == 0 || fd < 0)
    return NP_REFUSE(BAD_DATA, "%zu bytes of descriptor %d", size, fd);
  if ((protect & (PROT_READ | PROT_WRITE)) == 0 || (protect & ~(PROT_READ | PROT_WRITE)) != 0) {
    return NP_REFUSE(BAD_DATA, "protection %d, wanted PROT_READ, PROT_WRITE or both", protect);
  }
  if (offset > PTRDIFF_MAX || size > PTRDIFF_MAX)
    return NP_REFUSE(BAD_DATA, "too large");
  struct stat file;
  if (fstat(fd, &file) != 0)
    return NP_REFUSE(UNMAPPABLE, "descriptor %d is not open", fd);
  if (S_ISREG(file.st_mode) &&
      (file.st_size < (off_t)offset || file.st_size - (off_t)offset < (off_t)size)) {
    return NP_REFUSE(BAD_DATA, "the file has %lld bytes, wanted %zu from %zu on",
                     (long long)file.st_size, size, offset);
  }
  void *data = mmap(NULL, size, protect, MAP_SHARED, fd, (off_t)offset);
  if (data == MAP_FAILED)
    return NP_REFUSE(UNMAPPABLE, "mmap refuses descriptor %d", fd);
  ANeuralNetworksMemory *made = calloc(1, sizeof *made);
  if (!made) {
    munmap(data, size);
    return NP_REFUSE(OUT_OF_MEMORY, "no memory");
  }
  made->data = data;
  made->size = size;
  made->readable = (protect & PROT_READ) != 0;
  made->writable = (protect & PROT_WRITE) != 0;
  atomic_init(&made->initialized, true);
  *memory = made;
  return ANEURALNETWORKS_NO_ERROR;
}

/* A Linux host has no AHardwareBuffer: always UNMAPPABLE (UNEXPECTED_NULL for a NULL). */
int ANeuralNetworksMemory_createFromAHardwareBuffer(const AHardwareBuffer *ahwb,
                                                    ANeuralNetworksMemory **memory) {
  if (!ahwb || !memory)
    return NP_REFUSE(UNEXPECTED_NULL, "buffer or memory is NULL");
  *memory = NULL;
  return NP_REFUSE(UNMAPPABLE, "this host has no AHardwareBuffer");
}

void ANeuralNetworksMemory_free(ANeuralNetworksMemory *memory) {
  if (!memory)
    return;
  if (memory->from_desc) {
    free(memory->data);
    free(memory->roles);
  } else {
    munmap(memory->data, memory->size);
  }
  free(memory);
}

int ANeuralNetworksMemoryDesc_create(ANeuralNetworksMemoryDesc **desc) {
  if (!desc)
    return NP_REFUSE(UNEXPECTED_NULL, "desc is NULL");
  *desc = calloc(1, sizeof **desc);
  return *desc ? ANEURALNETWORKS_NO_ERROR : NP_REFUSE(OUT_OF_MEMORY, "no memory");
}

void ANeuralNetworksMemoryDesc_free(ANeuralNetworksMemoryDesc *desc) {
  if (!desc)
    return;
  free(desc->roles);
  free(desc);
}

/* Makes `into` agree with dimensions of `rank`; 0 where they contradict each other. */
static int merge_dims(uint32_t *into_rank, uint32_t *into, uint32_t rank, const uint32_t *dims) {
  if (rank == 0)
    return 1;
  if (*into_rank == 0) {
    *into_rank = rank;
    memcpy(into, dims, rank * sizeof *dims);
    return 1;
  }
  if (*into_rank != rank)
    return 0;
  for (uint32_t i = 0; i < rank; i++) {
    if (into[i] != 0 && dims[i] != 0 && into[i] != dims[i])
      return 0;
  }
  for (uint32_t i = 0; i < rank; i++)
    into[i] = into[i] ? into[i] : dims[i];
  return 1;
}

static int add_role(ANeuralNetworksMemoryDesc *desc, const ANeuralNetworksCompilation *compilation,
                    uint32_t index, enum np_role_kind kind, float frequency) {
  if (!desc || !compilation)
    return NP_REFUSE(UNEXPECTED_NULL, "desc or compilation is NULL");
  if (desc->finished)
    return NP_REFUSE(BAD_STATE, "the descriptor is finished");
  if (!compilation->finished || !compilation->usable) {
    return NP_REFUSE(BAD_DATA, "the compilation is not finished");
  }
  const ANeuralNetworksModel *model = compilation->model;
  const uint32_t n = kind == NP_ROLE_INPUT ? model->graph.n_inputs : model->graph.n_outputs;
  if (index >= n)
    return NP_REFUSE(BAD_DATA, "index %u of %u", index, n);
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
  struct np_role *roles = realloc(desc->roles, (desc->n_roles + 1) * sizeof *roles);
  if (!roles)
    return NP_REFUSE(OUT_OF_MEMORY, "no memory");
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
  if (desc->finished)
    return NP_REFUSE(BAD_STATE, "the descriptor is finished");
  if (rank > NP_MAX_RANK)
    return NP_REFUSE(BAD_DATA, "rank %u, at most %u", rank, NP_MAX_RANK);
  ANeuralNetworksMemoryDesc merged = *desc;
  if (!merge_dims(&merged.rank, merged.dims, rank, dimensions) ||
      (desc->n_roles && !merge_dims(&merged.operand.rank, merged.operand.dims, rank, dimensions))) {
    return NP_REFUSE(BAD_DATA, "dimensions contradict those of the descriptor");
  }
  *desc = merged;
  return ANEURALNETWORKS_NO_ERROR;
}

int ANeuralNetworksMemoryDesc_finish(ANeuralNetworksMemoryDesc *desc) {
  if (!desc)
    return NP_REFUSE(UNEXPECTED_NULL, "desc is NULL");
  if (desc->finished)
    return NP_REFUSE(BAD_STATE, "the descriptor is finished");
  if (desc->n_roles == 0)
    return NP_REFUSE(BAD_DATA, "the descriptor has no role");
  desc->finished = true;
  return ANEURALNETWORKS_NO_ERROR;
}

/* Host memory for the roles of a descriptor. OP_FAILED where dimensions are unknown, as on Android
 * when no driver allocates. */
int ANeuralNetworksMemory_createFromDesc(const ANeuralNetworksMemoryDesc *desc,
                                         ANeuralNetworksMemory **memory) {
  if (!desc || !memory)
    return NP_REFUSE(UNEXPECTED_NULL, "desc or memory is NULL");
  *memory = NULL;
  if (!desc->finished)
    return NP_REFUSE(BAD_STATE, "the descriptor is not finished");
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
  atomic_init(&made->initialized, false);
  *memory = made;
  return ANEURALNETWORKS_NO_ERROR;
}

/* BAD_DATA where sizes differ, a side lacks the access, or the source was never written. */
int ANeuralNetworksMemory_copy(const ANeuralNetworksMemory *src, const ANeuralNetworksMemory *dst) {
  if (!src || !dst)
    return NP_REFUSE(UNEXPECTED_NULL, "source or destination is NULL");
  if (src == dst)
    return ANEURALNETWORKS_NO_ERROR;
  if (src->size != dst->size) {
    return NP_REFUSE(BAD_DATA, "%zu bytes into %zu", src->size, dst->size);
  }
  if (!src->readable || !dst->writable || !atomic_load(&src->initialized)) {
    return NP_REFUSE(BAD_DATA, "the source has no content or the destination cannot be written");
  }
  memmove(dst->data, src->data, src->size);
  /* The API takes dst as const; what changes is only whether it was written. */
  atomic_store(&((ANeuralNetworksMemory *)(uintptr_t)dst)->initialized, true);
  return ANEURALNETWORKS_NO_ERROR;
}
