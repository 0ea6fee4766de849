/* The container of PROTOCOL.md, section 2: a magic number, a version, and checksummed sections. All
 * structures are views; nothing is copied or allocated. */
#ifndef NP_CONTAINER_H
#define NP_CONTAINER_H

#include <stddef.h>
#include <stdint.h>

#include "np_status.h"

#define NP_CONTAINER_MAGIC "NNPF"
#define NP_CONTAINER_VERSION 1u
#define NP_CONTAINER_MAX_SECTIONS 64u
#define NP_CONTAINER_HEADER_BYTES 16u
#define NP_CONTAINER_ENTRY_BYTES 24u

enum np_container_kind {
  NP_CONTAINER_REQUEST = 1,
  NP_CONTAINER_MODEL = 2,
  NP_CONTAINER_BUNDLE = 3,
};

struct np_container {
  const uint8_t *bytes; /* not owned */
  size_t size;
  uint32_t n_sections;
};

/* One section, in place. length is 0 if it is absent. */
struct np_section {
  const uint8_t *bytes;
  size_t length;
  int present;
};

/* Opens bytes[size], which must be aligned to 4 and outlive the container, and checks all rules of
 * section 2. NP_BAD_ARGUMENT if it is not aligned, NP_BAD_REQUEST with the broken rule in *why. */
enum np_status np_container_open(const void *bytes, size_t size, enum np_container_kind kind,
                                 struct np_container *container, struct np_message *why);

/* Does the same without the checksum of section `unread`, so that the bytes of a large section are
 * not read; np_container_check checks it later. */
enum np_status np_container_open_but(const void *bytes, size_t size, enum np_container_kind kind,
                                     const char *unread, struct np_container *container,
                                     struct np_message *why);

/* Checks the checksum of a section of an open container; an absent section passes. */
enum np_status np_container_check(const struct np_container *container, const char *tag,
                                  struct np_message *why);

/* For bytes that were opened: the number of sections, and the size of the header with the table of
 * sections, which contains all checksums. */
uint32_t np_container_n_sections(const void *bytes);
size_t np_container_table_bytes(const void *bytes);

/* Returns the section of an open container with a tag of four letters. */
struct np_section np_container_find(const struct np_container *container, const char *tag);

#endif
