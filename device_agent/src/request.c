#include "request.h"

#include <stdlib.h>
#include <string.h>

#include "action_read.h"
#include "container.h"
#include "cursor.h"
#include "sha256.h"

#define BLOB_WORDS (2 + NP_SHA256_BYTES / 4)
#define MEMORY_KINDS 4u
#define LEAST_MODEL_WORDS 5u   /* offset, length, number of buffers */
#define LEAST_ACTION_WORDS 20u /* all scalars, no tensors, no segments */

/* Reads a section's count. The section must hold `least` words for each item. */
static enum np_status open_list(struct np_section section, const char *tag, uint32_t least,
                                struct np_cursor *cursor, uint32_t *n, struct np_message *why) {
  *n = 0;
  *cursor = np_cursor_over(section.bytes, section.length);
  if (!section.present) {
    return NP_OK;
  }
  if (section.length % 4 != 0) {
    np_message_set(why, "%s: %zu bytes are no whole number of 32-bit words", tag, section.length);
    return NP_BAD_REQUEST;
  }
  const uint32_t count = np_take_u32(cursor);
  if (cursor->bad || count > np_cursor_left(cursor) / least) {
    np_message_set(why, "%s: %u items do not fit its %zu bytes", tag, count, section.length);
    return NP_BAD_REQUEST;
  }
  *n = count;
  return NP_OK;
}

static enum np_status close_list(const struct np_cursor *cursor, const char *tag,
                                 struct np_message *why) {
  if (np_cursor_left(cursor) == 0) {
    return NP_OK;
  }
  np_message_set(why, "%s: %zu bytes stand after its last item", tag, np_cursor_left(cursor) * 4);
  return NP_BAD_REQUEST;
}

static enum np_status read_head(const struct np_container *container, struct np_request *request,
                                struct np_message *why) {
  const struct np_section section = np_container_find(container, "HEAD");
  struct np_cursor cursor = np_cursor_over(section.bytes, section.length);
  const uint32_t version = np_take_u32(&cursor);
  const uint32_t flags = np_take_u32(&cursor);
  if (cursor.bad) {
    np_message_set(why, "HEAD: %zu bytes, want 8 or more", section.length);
    return NP_BAD_REQUEST;
  }
  if (version < NP_OLDEST_PROTOCOL || version > NP_PROTOCOL_VERSION || flags != 0) {
    np_message_set(why,
                   "HEAD: protocol version %u and flags 0x%x, this agent speaks %u to %u and 0",
                   version, flags, NP_OLDEST_PROTOCOL, NP_PROTOCOL_VERSION);
    return NP_BAD_REQUEST;
  }
  request->version = version;
  request->wait_ms = NP_UNBOUNDED;
  if (version < NP_PROTOCOL_PACED && section.length == 8) {
    return NP_OK;
  }
  request->wait_ms = np_take_u32(&cursor);
  request->n_seen = np_take_u32(&cursor);
  request->seen_khz = np_take_words(&cursor, request->n_seen);
  if (cursor.bad || request->n_seen > NP_MAX_SEEN || np_cursor_left(&cursor) != 0 ||
      section.length % 4 != 0) {
    np_message_set(why, "HEAD: %zu bytes do not fit its %u clocks, want at most %u", section.length,
                   request->n_seen, NP_MAX_SEEN);
    return NP_BAD_REQUEST;
  }
  return NP_OK;
}

static enum np_status read_blobs(const struct np_container *container, struct np_request *request,
                                 struct np_message *why) {
  struct np_cursor cursor;
  uint32_t n;
  const enum np_status status =
      open_list(np_container_find(container, "BLOB"), "BLOB", BLOB_WORDS, &cursor, &n, why);
  if (status != NP_OK) {
    return status;
  }
  request->blobs = calloc(n + (size_t)1, sizeof *request->blobs);
  if (!request->blobs) {
    return NP_NO_MEMORY;
  }
  request->n_blobs = n;
  for (uint32_t i = 0; i < n; i++) {
    request->blobs[i].length = np_take_u64(&cursor);
    request->blobs[i].sha256 = (const uint8_t *)np_take_words(&cursor, NP_SHA256_BYTES / 4);
    if (request->blobs[i].length > SIZE_MAX / 2) {
      np_message_set(why, "BLOB: blob %u: %llu bytes are more than this device can address", i,
                     (unsigned long long)request->blobs[i].length);
      return NP_BAD_REQUEST;
    }
  }
  return close_list(&cursor, "BLOB", why);
}

static enum np_status read_strings(const struct np_container *container, struct np_request *request,
                                   struct np_message *why) {
  struct np_cursor cursor;
  uint32_t n;
  const enum np_status status =
      open_list(np_container_find(container, "STRS"), "STRS", 1, &cursor, &n, why);
  if (status != NP_OK) {
    return status;
  }
  request->strings = calloc(n + (size_t)1, sizeof *request->strings);
  if (!request->strings) {
    return NP_NO_MEMORY;
  }
  request->n_strings = n;
  for (uint32_t i = 0; i < n; i++) {
    const uint32_t length = np_take_u32(&cursor);
    const size_t n_words = (size_t)length / 4 + (length % 4 != 0);
    const char *bytes = (const char *)np_take_words(&cursor, n_words);
    if (!bytes) {
      np_message_set(why, "STRS: string %u of %u bytes is cut off", i, length);
      return NP_BAD_REQUEST;
    }
    const size_t padded = 4 * n_words; /* only now: it may overflow where the string is cut off */
    for (size_t j = 0; j < padded; j++) {
      if ((bytes[j] == 0) != (j >= length)) {
        np_message_set(why,
                       "STRS: string %u: byte %zu breaks the rule: no zero within, zeros "
                       "after",
                       i, j);
        return NP_BAD_REQUEST;
      }
    }
    request->strings[i] = (struct np_text){.bytes = bytes, .length = length};
  }
  return close_list(&cursor, "STRS", why);
}

/* Checks that a model's buffers are blobs of the request that hold its constants. */
static enum np_status check_buffers(const struct np_request *request,
                                    const struct np_request_model *model, struct np_message *why) {
  for (uint32_t i = 0; i < model->n_buffers; i++) {
    if (model->buffers[i] >= request->n_blobs) {
      np_message_set(why, "buffer %u: blob %u of %u", i, model->buffers[i], request->n_blobs);
      return NP_BAD_REQUEST;
    }
  }
  for (uint32_t i = 0; i < model->model.n_uses; i++) {
    const struct np_buffer_use *use = &model->model.uses[i];
    if (use->buffer >= model->n_buffers) {
      np_message_set(why, "operand %u: buffer %u of %u", use->operand, use->buffer,
                     model->n_buffers);
      return NP_BAD_REQUEST;
    }
    const uint64_t length = request->blobs[model->buffers[use->buffer]].length;
    if ((uint64_t)use->offset + use->length > length) {
      np_message_set(why, "operand %u: bytes %u + %u of buffer %u, whose blob has %llu",
                     use->operand, use->offset, use->length, use->buffer,
                     (unsigned long long)length);
      return NP_BAD_REQUEST;
    }
  }
  return NP_OK;
}

static enum np_status read_model(struct np_cursor *cursor, struct np_section data,
                                 const struct np_request *request, struct np_request_model *model,
                                 struct np_message *why) {
  const uint64_t offset = np_take_u64(cursor);
  const uint64_t length = np_take_u64(cursor);
  model->n_buffers = np_take_u32(cursor);
  model->buffers = np_take_words(cursor, model->n_buffers);
  if (cursor->bad) {
    np_message_set(why, "it is cut off");
    return NP_BAD_REQUEST;
  }
  if (offset > data.length || length > data.length - offset || offset % 4 != 0) {
    np_message_set(why, "bytes %llu + %llu of DATA, which has %zu; want a multiple of 4 within",
                   (unsigned long long)offset, (unsigned long long)length, data.length);
    return NP_BAD_REQUEST;
  }
  if (length == 0) {
    np_message_set(why, "it is empty");
    return NP_BAD_REQUEST;
  }
  const enum np_status status =
      np_model_open(data.bytes + offset, (size_t)length, &model->model, why);
  return status == NP_OK ? check_buffers(request, model, why) : status;
}

static enum np_status read_models(const struct np_container *container, struct np_request *request,
                                  struct np_message *why) {
  struct np_cursor cursor;
  uint32_t n;
  enum np_status status =
      open_list(np_container_find(container, "MODL"), "MODL", LEAST_MODEL_WORDS, &cursor, &n, why);
  if (status != NP_OK) {
    return status;
  }
  request->models = calloc(n + (size_t)1, sizeof *request->models);
  if (!request->models) {
    return NP_NO_MEMORY;
  }
  request->n_models = n;
  const struct np_section data = np_container_find(container, "DATA");
  for (uint32_t i = 0; i < n; i++) {
    struct np_message inner = {""};
    status = read_model(&cursor, data, request, &request->models[i], &inner);
    if (status != NP_OK) {
      np_message_set(why, "MODL: model %u: %s", i, inner.text);
      return status;
    }
  }
  return close_list(&cursor, "MODL", why);
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
      np_message_set(why, "ACTN: two actions have the id %u", ids[i]);
      status = NP_BAD_REQUEST;
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
    if (end - first > NP_MAX_GROUP) {
      np_message_set(why, "ACTN: action %u (id %u): its group has %u actions, want at most %u",
                     first, leader->id, end - first, NP_MAX_GROUP);
      return NP_BAD_REQUEST;
    }
    for (uint32_t i = first + 1; i < end; i++) {
      const struct np_action *action = &request->actions[i];
      if (action->rounds != leader->rounds || action->cooldown_ms != leader->cooldown_ms) {
        np_message_set(
            why,
            "ACTN: action %u (id %u): rounds %u and cooldown_ms %u, its group has %u and "
            "%u",
            i, action->id, action->rounds, action->cooldown_ms, leader->rounds,
            leader->cooldown_ms);
        return NP_BAD_REQUEST;
      }
    }
  }
  return NP_OK;
}

static enum np_status read_actions(const struct np_container *container, struct np_request *request,
                                   struct np_message *why) {
  struct np_cursor cursor;
  uint32_t n;
  enum np_status status =
      open_list(np_container_find(container, "ACTN"), "ACTN", LEAST_ACTION_WORDS, &cursor, &n, why);
  if (status != NP_OK) {
    return status;
  }
  request->actions = calloc(n + (size_t)1, sizeof *request->actions);
  if (!request->actions) {
    return NP_NO_MEMORY;
  }
  request->n_actions = n;
  for (uint32_t i = 0; i < n; i++) {
    struct np_message inner = {""};
    status = np_action_read(&cursor, request, &request->actions[i], &inner);
    if (status != NP_OK) {
      np_message_set(why, "ACTN: action %u (id %u): %s", i, request->actions[i].id, inner.text);
      return status;
    }
  }
  status = close_list(&cursor, "ACTN", why);
  if (status == NP_OK) {
    status = check_ids(request, why);
  }
  return status == NP_OK ? check_groups(request, why) : status;
}

static enum np_status read_driver_facts(const struct np_container *container,
                                        struct np_request *request, struct np_message *why) {
  struct np_cursor cursor;
  uint32_t n;
  const enum np_status status =
      open_list(np_container_find(container, "DRVS"), "DRVS", NP_DRIVER_WORDS, &cursor, &n, why);
  if (status != NP_OK) {
    return status;
  }
  request->driver_facts = n == 0 ? NULL : np_take_words(&cursor, (size_t)n * NP_DRIVER_WORDS);
  request->n_driver_facts = n;
  for (uint32_t i = 0; i < n; i++) {
    const uint32_t *driver = &request->driver_facts[i * NP_DRIVER_WORDS];
    if ((driver[0] >= request->n_strings && driver[0] != NP_NONE) || driver[1] == 0 ||
        driver[1] > NP_MAX_GROUP || driver[2] > MEMORY_KINDS) {
      np_message_set(why, "DRVS: driver %u: string %u of %u, room %u of %u, memory %u of %u", i,
                     driver[0], request->n_strings, driver[1], NP_MAX_GROUP, driver[2],
                     MEMORY_KINDS);
      return NP_BAD_REQUEST;
    }
  }
  return close_list(&cursor, "DRVS", why);
}

enum np_status np_request_open(const void *bytes, size_t size, struct np_request *request,
                               struct np_message *why) {
  memset(request, 0, sizeof *request);
  np_message_set(why, "no memory for the request");
  struct np_container container;
  enum np_status status = np_container_open(bytes, size, NP_CONTAINER_REQUEST, &container, why);
  if (status == NP_OK) {
    status = read_head(&container, request, why);
  }
  if (status == NP_OK) {
    status = read_blobs(&container, request, why);
  }
  if (status == NP_OK) {
    status = read_strings(&container, request, why);
  }
  if (status == NP_OK) {
    status = read_driver_facts(&container, request, why);
  }
  if (status == NP_OK) {
    status = read_models(&container, request, why);
  }
  if (status == NP_OK) {
    status = read_actions(&container, request, why);
  }
  return status;
}

void np_request_free(struct np_request *request) {
  for (uint32_t i = 0; i < request->n_models; i++) {
    np_model_free(&request->models[i].model);
  }
  for (uint32_t i = 0; i < request->n_actions; i++) {
    free(request->actions[i].tensors);
    free(request->actions[i].segments);
    free(request->actions[i].plans);
  }
  free(request->blobs);
  free(request->strings);
  free(request->models);
  free(request->actions);
  memset(request, 0, sizeof *request);
}
