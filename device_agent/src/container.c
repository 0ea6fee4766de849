#include "container.h"

#include <string.h>

#include "crc32.h"
#include "cursor.h"

struct entry {
  char tag[5];
  uint32_t crc;
  uint64_t offset;
  uint64_t length;
};

static struct entry read_entry(const uint8_t *bytes, uint32_t index) {
  const uint8_t *at = bytes + NP_CONTAINER_HEADER_BYTES + (size_t)index * NP_CONTAINER_ENTRY_BYTES;
  struct entry entry = {.tag = {0}};
  memcpy(entry.tag, at, 4);
  memcpy(&entry.crc, at + 4, 4);
  memcpy(&entry.offset, at + 8, 8);
  memcpy(&entry.length, at + 16, 8);
  return entry;
}

/* Returns a tag as text for a message. */
static const char *printable(struct entry *entry) {
  for (size_t i = 0; i < 4; i++) {
    if (entry->tag[i] < 0x20 || entry->tag[i] > 0x7e) {
      entry->tag[i] = '?';
    }
  }
  return entry->tag;
}

static size_t table_end(uint32_t n_sections) {
  return NP_CONTAINER_HEADER_BYTES + (size_t)n_sections * NP_CONTAINER_ENTRY_BYTES;
}

static enum np_status check_crc(const uint8_t *bytes, struct entry *entry, struct np_message *why) {
  const uint32_t crc = np_crc32(0, bytes + entry->offset, (size_t)entry->length);
  NP_REQUIRE(crc == entry->crc, NP_BAD_REQUEST, why,
             "section %s has CRC-32 %08x, its entry says %08x", printable(entry), crc, entry->crc);
  return NP_OK;
}

static enum np_status check_section(const uint8_t *bytes, size_t size, uint32_t n, uint32_t index,
                                    const char *unread, struct np_message *why) {
  struct entry entry = read_entry(bytes, index);
  const uint64_t end = entry.offset + entry.length;
  NP_REQUIRE(end >= entry.offset && end <= size, NP_BAD_REQUEST, why,
             "section %s ends at byte %llu + %llu, past the container's %zu bytes",
             printable(&entry), (unsigned long long)entry.offset, (unsigned long long)entry.length,
             size);
  NP_REQUIRE(entry.offset % 8 == 0 && entry.offset >= table_end(n), NP_BAD_REQUEST, why,
             "section %s begins at byte %llu, want a multiple of 8 from %zu on", printable(&entry),
             (unsigned long long)entry.offset, table_end(n));
  if (!unread || memcmp(entry.tag, unread, 4) != 0) {
    NP_TRY(check_crc(bytes, &entry, why));
  }
  for (uint32_t j = 0; j < index; j++) {
    struct entry other = read_entry(bytes, j);
    NP_REQUIRE(memcmp(other.tag, entry.tag, 4) != 0, NP_BAD_REQUEST, why, "section %s occurs twice",
               printable(&entry));
    const int apart = other.length == 0 || entry.length == 0 ||
                      other.offset + other.length <= entry.offset || end <= other.offset;
    NP_REQUIRE(apart, NP_BAD_REQUEST, why, "sections %s and %s overlap", printable(&other),
               printable(&entry));
  }
  return NP_OK;
}

/* Checks that bytes outside of all sections are zero. Sections must have been checked. */
static enum np_status check_gaps(const uint8_t *bytes, size_t size, uint32_t n,
                                 struct np_message *why) {
  size_t at = table_end(n);
  while (at < size) {
    /* The section that holds this byte, or else the next one to begin. */
    size_t next = size;
    size_t skip = 0;
    for (uint32_t i = 0; i < n; i++) {
      const struct entry entry = read_entry(bytes, i);
      if (entry.length == 0) {
        continue;
      }
      if (entry.offset == at) {
        skip = (size_t)entry.length;
      }
      if (entry.offset > at && entry.offset < next) {
        next = (size_t)entry.offset;
      }
    }
    if (skip != 0) {
      at += skip;
      continue;
    }
    for (; at < next; at++) {
      NP_REQUIRE(bytes[at] == 0, NP_BAD_REQUEST, why, "byte %zu between sections is 0x%02x, want 0",
                 at, bytes[at]);
    }
  }
  return NP_OK;
}

enum np_status np_container_open(const void *data, size_t size, enum np_container_kind kind,
                                 struct np_container *container, struct np_message *why) {
  return np_container_open_but(data, size, kind, NULL, container, why);
}

enum np_status np_container_open_but(const void *data, size_t size, enum np_container_kind kind,
                                     const char *unread, struct np_container *container,
                                     struct np_message *why) {
  const uint8_t *bytes = data;
  *container = (struct np_container){.bytes = NULL, .size = 0, .n_sections = 0};
  NP_REQUIRE((uintptr_t)bytes % 4 == 0, NP_BAD_ARGUMENT, why,
             "a container must stand at an address that is a multiple of 4");
  NP_REQUIRE(size >= NP_CONTAINER_HEADER_BYTES, NP_BAD_REQUEST, why,
             "%zu bytes are no container, which has at least %u", size, NP_CONTAINER_HEADER_BYTES);
  NP_REQUIRE(memcmp(bytes, NP_CONTAINER_MAGIC, 4) == 0, NP_BAD_REQUEST, why,
             "the first bytes are %02x %02x %02x %02x, want \"%s\"", bytes[0], bytes[1], bytes[2],
             bytes[3], NP_CONTAINER_MAGIC);
  uint16_t version, found_kind;
  uint32_t n, crc;
  memcpy(&version, bytes + 4, 2);
  memcpy(&found_kind, bytes + 6, 2);
  memcpy(&n, bytes + 8, 4);
  memcpy(&crc, bytes + 12, 4);
  NP_REQUIRE(version == NP_CONTAINER_VERSION, NP_BAD_REQUEST, why,
             "container version %u, this agent reads %u", version, NP_CONTAINER_VERSION);
  NP_REQUIRE(found_kind == (uint16_t)kind, NP_BAD_REQUEST, why, "container of kind %u, want %u",
             found_kind, (unsigned)kind);
  NP_REQUIRE(n <= NP_CONTAINER_MAX_SECTIONS && table_end(n) <= size, NP_BAD_REQUEST, why,
             "%u sections in %zu bytes, at most %u", n, size, NP_CONTAINER_MAX_SECTIONS);
  uint32_t found = np_crc32(0, bytes, 12);
  found =
      np_crc32(found, bytes + NP_CONTAINER_HEADER_BYTES, table_end(n) - NP_CONTAINER_HEADER_BYTES);
  NP_REQUIRE(found == crc, NP_BAD_REQUEST, why,
             "the section table has CRC-32 %08x, the header says %08x", found, crc);
  for (uint32_t i = 0; i < n; i++) {
    NP_TRY(check_section(bytes, size, n, i, unread, why));
  }
  NP_TRY(check_gaps(bytes, size, n, why));
  *container = (struct np_container){.bytes = bytes, .size = size, .n_sections = n};
  return NP_OK;
}

enum np_status np_container_check(const struct np_container *container, const char *tag,
                                  struct np_message *why) {
  for (uint32_t i = 0; i < container->n_sections; i++) {
    struct entry entry = read_entry(container->bytes, i);
    if (memcmp(entry.tag, tag, 4) == 0) {
      return check_crc(container->bytes, &entry, why);
    }
  }
  return NP_OK;
}

uint32_t np_container_n_sections(const void *bytes) {
  uint32_t n;
  memcpy(&n, (const uint8_t *)bytes + 8, sizeof n);
  return n;
}

size_t np_container_table_bytes(const void *bytes) {
  return table_end(np_container_n_sections(bytes));
}

struct np_section np_container_find(const struct np_container *container, const char *tag) {
  for (uint32_t i = 0; i < container->n_sections; i++) {
    const struct entry entry = read_entry(container->bytes, i);
    if (memcmp(entry.tag, tag, 4) == 0) {
      return (struct np_section){
          .bytes = container->bytes + entry.offset, .length = (size_t)entry.length, .present = 1};
    }
  }
  return (struct np_section){.bytes = NULL, .length = 0, .present = 0};
}
