/* ANeuralNetworksMemory_*: memory from file descriptors, and copies. */
#define _GNU_SOURCE /* F_DUPFD_CLOEXEC */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "emulator.h"
#include "service.h"

int np_memory_range(const ANeuralNetworksMemory *memory, const struct np_role *role, size_t offset,
                    size_t *length, void **data) {
  if (memory->from_desc) {
    bool known = false;
    for (uint32_t i = 0; role && i < memory->n_roles && !known; i++) {
      known = memory->roles[i].compilation == role->compilation &&
              memory->roles[i].index == role->index && memory->roles[i].kind == role->kind;
    }
    if (!known) {
      return NP_REFUSE(BAD_DATA, "the memory was not made for this role");
    }
    if (offset != 0 || *length != 0) {
      return NP_REFUSE(BAD_DATA,
                       "offset %zu and length %zu, a memory from a descriptor is used "
                       "whole: 0 and 0",
                       offset, *length);
    }
    *length = memory->size;
  } else if (offset == 0 && *length == 0) {
    return NP_REFUSE(BAD_DATA, "the length is 0");
  } else if (offset > memory->size || *length > memory->size - offset) {
    return NP_REFUSE(BAD_DATA, "bytes %zu to %zu + %zu of a memory of %zu", offset, offset, *length,
                     memory->size);
  }
  *data = memory->data + offset;
  return ANEURALNETWORKS_NO_ERROR;
}

/* Maps `size` bytes of a file; NO_ERROR and *data, or a result code. */
static int map_file(size_t size, int protect, int fd, size_t offset, void **data) {
  struct stat file;
  if (fstat(fd, &file) != 0) {
    return NP_REFUSE(UNMAPPABLE, "descriptor %d cannot be asked for its size", fd);
  }
  if (S_ISREG(file.st_mode) &&
      (file.st_size < (off_t)offset || file.st_size - (off_t)offset < (off_t)size)) {
    return NP_REFUSE(BAD_DATA, "the file has %lld bytes, wanted %zu from %zu on",
                     (long long)file.st_size, size, offset);
  }
  *data = mmap(NULL, size, protect, MAP_SHARED, fd, (off_t)offset);
  return *data == MAP_FAILED ? NP_REFUSE(UNMAPPABLE, "mmap refuses descriptor %d", fd)
                             : ANEURALNETWORKS_NO_ERROR;
}

/* Maps `size` bytes of a file from `offset` on, which must be a multiple of the page size. The file
 * descriptor may be closed afterwards. BAD_DATA if the size is 0, the descriptor negative, the
 * protection not read or write, or a regular file too short (reading beyond its end would be
 * fatal); UNEXPECTED_NULL, as on Android, if the descriptor is not open; UNMAPPABLE if mmap
 * refuses, which Android's runtime detects only when it uses the memory. */
int ANeuralNetworksMemory_createFromFd(size_t size, int protect, int fd, size_t offset,
                                       ANeuralNetworksMemory **memory) {
  if (!memory) {
    return NP_REFUSE(UNEXPECTED_NULL, "memory is NULL");
  }
  *memory = NULL;
  if (size == 0 || fd < 0) {
    return NP_REFUSE(BAD_DATA, "%zu bytes of descriptor %d", size, fd);
  }
  if ((protect & (PROT_READ | PROT_WRITE)) == 0 || (protect & ~(PROT_READ | PROT_WRITE)) != 0) {
    return NP_REFUSE(BAD_DATA, "protection %d, wanted PROT_READ, PROT_WRITE or both", protect);
  }
  if (offset > PTRDIFF_MAX || size > PTRDIFF_MAX) {
    return NP_REFUSE(BAD_DATA, "too large");
  }
  const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (own < 0) {
    return NP_REFUSE(UNEXPECTED_NULL, "descriptor %d is not open", fd);
  }
  void *data = NULL;
  const int code = map_file(size, protect, own, offset, &data);
  const uint32_t kind = np_memory_kind_of(own);
  close(own); /* the mapping stays */
  if (code != ANEURALNETWORKS_NO_ERROR) {
    return code;
  }
  ANeuralNetworksMemory *made = calloc(1, sizeof *made);
  if (!made) {
    munmap(data, size);
    return NP_REFUSE(OUT_OF_MEMORY, "no memory");
  }
  made->data = data;
  made->size = size;
  made->kind = kind;
  made->readable = (protect & PROT_READ) != 0;
  made->writable = (protect & PROT_WRITE) != 0;
  atomic_init(&made->initialized, true);
  *memory = made;
  return ANEURALNETWORKS_NO_ERROR;
}

/* A Linux host has no AHardwareBuffer: always UNMAPPABLE (UNEXPECTED_NULL for a NULL). */
int ANeuralNetworksMemory_createFromAHardwareBuffer(const AHardwareBuffer *ahwb,
                                                    ANeuralNetworksMemory **memory) {
  if (!ahwb || !memory) {
    return NP_REFUSE(UNEXPECTED_NULL, "buffer or memory is NULL");
  }
  *memory = NULL;
  return NP_REFUSE(UNMAPPABLE, "this host has no AHardwareBuffer");
}

void ANeuralNetworksMemory_free(ANeuralNetworksMemory *memory) {
  if (!memory) {
    return;
  }
  if (memory->from_desc) {
    free(memory->data);
    free(memory->roles);
  } else {
    munmap(memory->data, memory->size);
  }
  free(memory);
}

/* Returns whether one memory can hold the contents of the other. */
static bool compatible(const ANeuralNetworksMemory *src, const ANeuralNetworksMemory *dst) {
  if (src->size != dst->size || !src->readable || !dst->writable) {
    return false;
  }
  if (!src->from_desc || !dst->from_desc) {
    return true;
  }
  const struct np_operand *a = &src->operand, *b = &dst->operand;
  return a->type == b->type && a->zero_point == b->zero_point && !(a->scale < b->scale) &&
         !(a->scale > b->scale) && np_dims_agree(a->rank, a->dims, b->rank, b->dims);
}

/* BAD_DATA if the source has no contents, sizes or operand types differ, or a side lacks the
 * access: the destination then has no contents. */
int ANeuralNetworksMemory_copy(const ANeuralNetworksMemory *src, const ANeuralNetworksMemory *dst) {
  if (!src || !dst) {
    return NP_REFUSE(UNEXPECTED_NULL, "source or destination is NULL");
  }
  if (src == dst) {
    return ANEURALNETWORKS_NO_ERROR;
  }
  const bool fits = compatible(src, dst) && atomic_load(&src->initialized);
  if (fits) {
    memmove(dst->data, src->data, src->size);
  }
  /* The API takes dst as const, but whether it has contents changes. */
  if (dst->from_desc) {
    atomic_store(&((ANeuralNetworksMemory *)(uintptr_t)dst)->initialized, fits);
  }
  return fits ? ANEURALNETWORKS_NO_ERROR
              : NP_REFUSE(BAD_DATA, "the source has no content or does not fit the destination");
}
