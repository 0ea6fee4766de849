/* Breaks every rule of PROTOCOL.md, section 2, one by one. */
#include "build_request.h"
#include "container.h"
#include "np_test.h"

static struct np_build valid;

/* Opens a copy of the valid container with `n` bytes at `at` replaced, resealed or not. */
static void check_refused(size_t at, const void *bytes, size_t n, int seal, const char *wanted) {
  struct np_build broken = valid;
  memcpy(broken.bytes + at, bytes, n);
  if (seal) {
    np_build_seal(broken.bytes, broken.n);
  }
  struct np_container container;
  struct np_message why = {""};
  CHECK(np_container_open(broken.bytes, broken.n, NP_CONTAINER_REQUEST, &container, &why) ==
        NP_BAD_REQUEST);
  CHECK_TEXT(why.text, wanted);
}

static size_t entry_at(size_t section) { return 16 + 24 * section; }

static uint64_t offset_of(size_t section) {
  uint64_t offset;
  memcpy(&offset, valid.bytes + entry_at(section) + 8, 8);
  return offset;
}

static void check_lengths(void) {
  struct np_container container;
  struct np_message why = {""};
  for (size_t n = 0; n < valid.n; n++) {
    struct np_build cut = valid;
    CHECK(np_container_open(cut.bytes, n, NP_CONTAINER_REQUEST, &container, &why) != NP_OK ||
          n > offset_of(4));
  }
  CHECK(np_container_open(valid.bytes + 2, valid.n - 2, NP_CONTAINER_REQUEST, &container, &why) ==
        NP_BAD_ARGUMENT);
}

int main(void) {
  struct np_build_request request;
  np_build_sections(&request);
  np_build_container(&request, &valid);

  struct np_container container;
  struct np_message why = {""};
  CHECK(np_container_open(valid.bytes, valid.n, NP_CONTAINER_REQUEST, &container, &why) == NP_OK);
  const struct np_section head = np_container_find(&container, "HEAD");
  CHECK(head.present && head.length == 16 && head.bytes == valid.bytes + offset_of(0));
  CHECK(!np_container_find(&container, "NONE").present);
  CHECK(np_container_open(valid.bytes, valid.n, NP_CONTAINER_MODEL, &container, &why) ==
        NP_BAD_REQUEST);
  CHECK_TEXT(why.text, "container of kind 1, want 2");

  check_lengths();
  check_refused(0, "NNPX", 4, 0, "want \"NNPF\"");
  check_refused(4, "\2", 1, 1, "container version 2, this agent reads 1");
  check_refused(8, "\x41", 1, 1, "65 sections");
  check_refused(12, "\0\0\0\0", 4, 0, "the section table has CRC-32");
  check_refused((size_t)offset_of(3), "\7", 1, 0, "section DATA has CRC-32");
  check_refused(entry_at(1), "HEAD", 4, 1, "section HEAD occurs twice");
  const uint64_t same = offset_of(3);
  check_refused(entry_at(4) + 8, &same, 8, 1, "sections DATA and ACTN overlap");
  const uint64_t one_more = offset_of(4) - offset_of(3) + 1;
  check_refused(entry_at(3) + 16, &one_more, 8, 1, "sections DATA and ACTN overlap");
  const uint64_t odd = offset_of(2) + 4;
  check_refused(entry_at(2) + 8, &odd, 8, 1, "want a multiple of 8");
  const uint64_t in_table = 8;
  check_refused(entry_at(2) + 8, &in_table, 8, 1, "want a multiple of 8 from 160 on");
  const uint64_t huge = UINT64_MAX - 7;
  check_refused(entry_at(2) + 8, &huge, 8, 1, "past the container's");
  check_refused(entry_at(2) + 16, &huge, 8, 1, "past the container's");
  check_refused((size_t)(offset_of(1) + request.blob.n), "\1", 1, 1, "want 0");
  return np_test_exit();
}
