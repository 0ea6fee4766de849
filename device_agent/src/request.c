#include "request.h"

#include <stdlib.h>
#include <string.h>

#include "action_read.h"
#include "bundle_sections.h"
#include "sha256.h"

#define BLOB_WORDS (2 + NP_SHA256_BYTES / 4)
#define MEMORY_KINDS 4u

static enum np_status read_head(const struct np_container *container, struct np_request *request,
                                struct np_message *why) {
  const struct np_section section = np_container_find(container, "HEAD");
  struct np_cursor cursor = np_cursor_over(section.bytes, section.length);
  const uint32_t version = np_take_u32(&cursor);
  const uint32_t flags = np_take_u32(&cursor);
  NP_REQUIRE(!cursor.bad, NP_BAD_REQUEST, why, "HEAD: %zu bytes, want 8 or more", section.length);
  NP_REQUIRE(version == NP_PROTOCOL_VERSION && flags == 0, NP_BAD_REQUEST, why,
             "HEAD: protocol version %u and flags 0x%x, this agent speaks %u and 0", version, flags,
             NP_PROTOCOL_VERSION);
  request->wait_ms = np_take_u32(&cursor);
  request->n_seen = np_take_u32(&cursor);
  request->seen_khz = np_take_words(&cursor, request->n_seen);
  NP_REQUIRE(!cursor.bad && request->n_seen <= NP_MAX_SEEN && np_cursor_left(&cursor) == 0 &&
                 section.length % 4 == 0,
             NP_BAD_REQUEST, why, "HEAD: %zu bytes do not fit its %u clocks, want at most %u",
             section.length, request->n_seen, NP_MAX_SEEN);
  return NP_OK;
}

static enum np_status read_blobs(const struct np_container *container, struct np_request *request,
                                 struct np_message *why) {
  struct np_cursor cursor;
  uint32_t n;
  NP_TRY(np_bundle_list(container, "BLOB", BLOB_WORDS, &cursor, &n, why));
  request->blobs = calloc(n + (size_t)1, sizeof *request->blobs);
  if (!request->blobs) {
    return NP_NO_MEMORY;
  }
  request->n_blobs = n;
  for (uint32_t i = 0; i < n; i++) {
    request->blobs[i].length = np_take_u64(&cursor);
    request->blobs[i].sha256 = (const uint8_t *)np_take_words(&cursor, NP_SHA256_BYTES / 4);
    NP_REQUIRE(request->blobs[i].length <= SIZE_MAX / 2, NP_BAD_REQUEST, why,
               "BLOB: blob %u: %llu bytes are more than this device can address", i,
               (unsigned long long)request->blobs[i].length);
  }
  return np_bundle_list_end(&cursor, "BLOB", why);
}

static int compare_ids(const void *a, const void *b) {
  const uint32_t x = *(const uint32_t *)a;
  const uint32_t y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

static enum np_status check_ids(const struct np_request *request, struct np_message *why) {
  uint32_t *ids = calloc(request->n_actions + (size_t)1, sizeof *ids);
  if (!ids) {
    return NP_NO_MEMORY;
  }
  for (uint32_t i = 0; i < request->n_actions; i++) {
    ids[i] = request->actions[i].id;
  }
  qsort(ids, request->n_actions, sizeof *ids, compare_ids);
  enum np_status status = NP_OK;
  for (uint32_t i = 1; i < request->n_actions && status == NP_OK; i++) {
    if (ids[i] == ids[i - 1]) {
      status = np_error(NP_BAD_REQUEST, why, "ACTN: two actions have the id %u", ids[i]);
    }
  }
  free(ids);
  return status;
}

uint32_t np_request_group_end(const struct np_request *request, uint32_t first) {
  const uint32_t group = request->actions[first].group;
  uint32_t end = first + 1;
  while (group != 0 && end < request->n_actions && request->actions[end].group == group) {
    end++;
  }
  return end;
}

static enum np_status check_groups(const struct np_request *request, struct np_message *why) {
  uint32_t end;
  for (uint32_t first = 0; first < request->n_actions; first = end) {
    const struct np_action *leader = &request->actions[first];
    end = np_request_group_end(request, first);
    NP_REQUIRE(end - first <= NP_MAX_GROUP, NP_BAD_REQUEST, why,
               "ACTN: action %u (id %u): its group has %u actions, want at most %u", first,
               leader->id, end - first, NP_MAX_GROUP);
    for (uint32_t i = first + 1; i < end; i++) {
      const struct np_action *action = &request->actions[i];
      NP_REQUIRE(action->rounds == leader->rounds && action->cooldown_ms == leader->cooldown_ms,
                 NP_BAD_REQUEST, why,
                 "ACTN: action %u (id %u): rounds %u and cooldown_ms %u, its group has %u and "
                 "%u",
                 i, action->id, action->rounds, action->cooldown_ms, leader->rounds,
                 leader->cooldown_ms);
    }
  }
  return NP_OK;
}

static enum np_status read_actions(const struct np_container *container, struct np_request *request,
                                   struct np_message *why) {
  struct np_cursor cursor;
  uint32_t n;
  NP_TRY(np_bundle_list(container, "ACTN", NP_LEAST_ACTION_WORDS, &cursor, &n, why));
  request->actions = calloc(n + (size_t)1, sizeof *request->actions);
  if (!request->actions) {
    return NP_NO_MEMORY;
  }
  request->n_actions = n;
  const struct np_section data = np_container_find(container, "DATA");
  for (uint32_t i = 0; i < n; i++) {
    struct np_message inner = {""};
    const enum np_status status =
        np_action_read(&cursor, request, data, &request->actions[i], &inner);
    NP_REQUIRE(status == NP_OK, status, why, "ACTN: action %u (id %u): %s", i,
               request->actions[i].id, inner.text);
  }
  NP_TRY(np_bundle_list_end(&cursor, "ACTN", why));
  NP_TRY(check_ids(request, why));
  return check_groups(request, why);
}

static enum np_status read_driver_facts(const struct np_container *container,
                                        struct np_request *request, struct np_message *why) {
  struct np_cursor cursor;
  uint32_t n;
  NP_TRY(np_bundle_list(container, "DRVS", NP_DRIVER_WORDS, &cursor, &n, why));
  request->driver_facts = n == 0 ? NULL : np_take_words(&cursor, (size_t)n * NP_DRIVER_WORDS);
  request->n_driver_facts = n;
  for (uint32_t i = 0; i < n; i++) {
    const uint32_t *driver = &request->driver_facts[i * NP_DRIVER_WORDS];
    NP_REQUIRE((driver[0] < request->n_strings || driver[0] == NP_NONE) && driver[1] != 0 &&
                   driver[1] <= NP_MAX_GROUP && driver[2] <= MEMORY_KINDS,
               NP_BAD_REQUEST, why,
               "DRVS: driver %u: string %u of %u, room %u of %u, memory %u of %u", i, driver[0],
               request->n_strings, driver[1], NP_MAX_GROUP, driver[2], MEMORY_KINDS);
  }
  return np_bundle_list_end(&cursor, "DRVS", why);
}

enum np_status np_request_open(const void *bytes, size_t size, struct np_request *request,
                               struct np_message *why) {
  memset(request, 0, sizeof *request);
  np_message_set(why, "no memory for the request");
  struct np_container container;
  NP_TRY(np_container_open(bytes, size, NP_CONTAINER_REQUEST, &container, why));
  NP_TRY(read_head(&container, request, why));
  NP_TRY(read_blobs(&container, request, why));
  NP_TRY(np_bundle_read_strings(&container, &request->n_strings, &request->strings, why));
  NP_TRY(read_driver_facts(&container, request, why));
  return read_actions(&container, request, why);
}

enum np_status np_request_bind(struct np_request *request, const struct np_bytes *blobs,
                               struct np_message *why) {
  for (uint32_t i = 0; i < request->n_actions; i++) {
    struct np_message inner = {"no memory for its bundle"};
    const enum np_status status = np_action_bind(&request->actions[i], blobs, &inner);
    NP_REQUIRE(status == NP_OK, status, why, "ACTN: action %u (id %u): %s", i,
               request->actions[i].id, inner.text);
  }
  return NP_OK;
}

void np_request_free(struct np_request *request) {
  for (uint32_t i = 0; i < request->n_strings; i++) {
    free(request->strings[i]);
  }
  for (uint32_t i = 0; i < request->n_actions; i++) {
    np_bundle_free(&request->actions[i].bundle);
  }
  free(request->blobs);
  free(request->strings);
  free(request->actions);
  memset(request, 0, sizeof *request);
}
