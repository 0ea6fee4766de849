#include "bundle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bundle_sections.h"

#define LEAST_TENSOR_WORDS 4u /* type, rank, scale, zero point */
#define LEAST_MODEL_WORDS 5u  /* offset, length, number of buffers */
#define BUFFER_WORDS 4u       /* offset, length */
#define WEIGHT_ALIGNMENT 64u
#define WEIGHTS "WGHT"

enum np_status np_bundle_count(struct np_cursor *cursor, const char *tag, uint32_t least,
                               uint32_t *n, struct np_message *why) {
  *n = np_take_u32(cursor);
  NP_REQUIRE(!cursor->bad && *n <= np_cursor_left(cursor) / least, NP_BAD_REQUEST, why,
             "%s: %u items do not fit its %zu bytes", tag, *n, 4 * cursor->n);
  return NP_OK;
}

enum np_status np_bundle_list(const struct np_container *container, const char *tag, uint32_t least,
                              struct np_cursor *cursor, uint32_t *n, struct np_message *why) {
  const struct np_section section = np_container_find(container, tag);
  *n = 0;
  *cursor = np_cursor_over(section.bytes, section.length);
  NP_REQUIRE(section.length % 4 == 0, NP_BAD_REQUEST, why, "%s: %zu bytes are no words", tag,
             section.length);
  return section.present ? np_bundle_count(cursor, tag, least, n, why) : NP_OK;
}

enum np_status np_bundle_section(const struct np_container *container, const char *tag,
                                 struct np_cursor *cursor, struct np_message *why) {
  const struct np_section section = np_container_find(container, tag);
  *cursor = np_cursor_over(section.bytes, section.length);
  const uint32_t version = section.present ? np_take_u32(cursor) : NP_BUNDLE_VERSION;
  return version == NP_BUNDLE_VERSION && section.length % 4 == 0
             ? NP_OK
             : np_error(NP_BAD_REQUEST, why, "%s: version %u in %zu bytes, this library reads %u",
                        tag, version, section.length, NP_BUNDLE_VERSION);
}

enum np_status np_bundle_list_end(const struct np_cursor *cursor, const char *tag,
                                  struct np_message *why) {
  if (np_cursor_left(cursor) == 0) {
    return NP_OK;
  }
  return np_error(NP_BAD_REQUEST, why, "%s: %zu bytes stand after its last item", tag,
                  np_cursor_left(cursor) * 4);
}

const char *np_bundle_string(const struct np_bundle *bundle, uint32_t index) {
  return index < bundle->n_strings ? bundle->strings[index] : NULL;
}

static enum np_status read_head(const struct np_container *container, struct np_bundle *bundle,
                                struct np_message *why) {
  const struct np_section section = np_container_find(container, "HEAD");
  struct np_cursor cursor = np_cursor_over(section.bytes, section.length);
  const uint32_t version = np_take_u32(&cursor);
  bundle->mode = np_take_u32(&cursor);
  bundle->threads = np_take_u32(&cursor);
  NP_REQUIRE(!cursor.bad && section.length == 12, NP_BAD_REQUEST, why, "HEAD: %zu bytes, want 12",
             section.length);
  NP_REQUIRE(version == NP_BUNDLE_VERSION && bundle->mode <= NP_BUNDLE_ASYNC, NP_BAD_REQUEST, why,
             "HEAD: bundle version %u and mode %u, this library reads %u and 0 to 2", version,
             bundle->mode, NP_BUNDLE_VERSION);
  return NP_OK;
}

enum np_status np_bundle_read_strings(const struct np_container *container, uint32_t *n_strings,
                                      char ***strings, struct np_message *why) {
  struct np_cursor cursor;
  uint32_t n;
  NP_TRY(np_bundle_list(container, "STRS", 1, &cursor, &n, why));
  *strings = calloc(n + (size_t)1, sizeof **strings);
  NP_REQUIRE(*strings, NP_NO_MEMORY, why, "no memory for the bundle");
  for (*n_strings = 0; *n_strings < n; (*n_strings)++) {
    const uint32_t length = np_take_u32(&cursor);
    const char *bytes =
        (const char *)np_take_words(&cursor, (size_t)length / 4 + (length % 4 != 0));
    NP_REQUIRE(bytes && !memchr(bytes, 0, length), NP_BAD_REQUEST, why,
               "STRS: string %u of %u bytes is cut off or holds a zero", *n_strings, length);
    char *string = calloc((size_t)length + 1, 1);
    NP_REQUIRE(string, NP_NO_MEMORY, why, "no memory for the bundle");
    (*strings)[*n_strings] = memcpy(string, bytes, length);
  }
  return np_bundle_list_end(&cursor, "STRS", why);
}

/* Returns the bytes of a tensor or a scalar; 0 if its type or shape is invalid or overflows. */
static size_t measure(const struct np_bundle_tensor *tensor) {
  if (tensor->rank > NP_MAX_RANK || np_type_is_tensor(tensor->type) != (tensor->rank > 0)) {
    return 0;
  }
  size_t n_bytes = np_type_bytes(tensor->type);
  for (uint32_t i = 0; i < tensor->rank; i++) {
    /* Half of the address space, so that later sums of sizes cannot overflow. */
    if (tensor->dims[i] == 0 || n_bytes > SIZE_MAX / 2 / tensor->dims[i]) {
      return 0;
    }
    n_bytes *= tensor->dims[i];
  }
  return n_bytes;
}

static enum np_status read_tensors(const struct np_container *container, struct np_bundle *bundle,
                                   struct np_message *why) {
  struct np_cursor cursor;
  uint32_t n;
  NP_TRY(np_bundle_list(container, "TENS", LEAST_TENSOR_WORDS, &cursor, &n, why));
  bundle->tensors = calloc(n + (size_t)1, sizeof *bundle->tensors);
  NP_REQUIRE(bundle->tensors, NP_NO_MEMORY, why, "no memory for the bundle");
  bundle->n_tensors = n;
  for (uint32_t i = 0; i < n; i++) {
    struct np_bundle_tensor *tensor = &bundle->tensors[i];
    tensor->type = (int32_t)np_take_u32(&cursor);
    tensor->rank = np_take_u32(&cursor);
    tensor->dims = np_take_words(&cursor, tensor->rank);
    const uint32_t scale = np_take_u32(&cursor);
    memcpy(&tensor->scale, &scale, sizeof scale);
    tensor->zero_point = (int32_t)np_take_u32(&cursor);
    tensor->n_bytes = cursor.bad ? 0 : measure(tensor);
    NP_REQUIRE(tensor->n_bytes != 0 && isfinite(tensor->scale), NP_BAD_REQUEST, why,
               "TENS: tensor %u is cut off, or its type, shape or scale are none", i);
  }
  return np_bundle_list_end(&cursor, "TENS", why);
}

/* Returns a part of a section; NULL if it is not entirely inside. */
static const uint8_t *part(struct np_section section, uint64_t offset, uint64_t length,
                           uint64_t alignment) {
  if (offset % alignment != 0 || offset > section.length || length > section.length - offset) {
    return NULL;
  }
  return section.bytes ? section.bytes + offset : NULL;
}

/* Finds a buffer's bytes in the part of the weights that contains all of it; NULL if none does. */
static const uint8_t *weight(struct np_weights weights, uint64_t offset, uint64_t length) {
  for (uint32_t i = 0; i < weights.n; i++) {
    const nnp_weights *each = &weights.parts[i];
    const struct np_section section = {each->bytes, each->n_bytes, 1};
    const uint8_t *bytes = offset < each->offset
                               ? NULL
                               : part(section, offset - each->offset, length, WEIGHT_ALIGNMENT);
    if (bytes) {
      return bytes;
    }
  }
  return NULL;
}

/* Reads one model's buffers and binds it to them. */
static enum np_status bind_model(struct np_cursor *cursor, struct np_weights weights,
                                 uint32_t n_buffers, struct np_model *model,
                                 struct np_message *why) {
  NP_REQUIRE(n_buffers <= np_cursor_left(cursor) / BUFFER_WORDS, NP_BAD_REQUEST, why,
             "%u buffers are cut off", n_buffers);
  struct np_bytes *buffers = calloc(n_buffers + (size_t)1, sizeof *buffers);
  NP_REQUIRE(buffers, NP_NO_MEMORY, why, "no memory for the bundle");
  enum np_status status = NP_OK;
  for (uint32_t i = 0; i < n_buffers && status == NP_OK; i++) {
    const uint64_t offset = np_take_u64(cursor);
    const uint64_t length = np_take_u64(cursor);
    buffers[i].data = weight(weights, offset, length);
    buffers[i].length = (size_t)length;
    if (!buffers[i].data) {
      status = np_error(NP_BAD_REQUEST, why,
                        "buffer %u: bytes %llu + %llu lie in no part of the weights", i,
                        (unsigned long long)offset, (unsigned long long)length);
    }
  }
  NP_THEN(status, np_model_bind(model, buffers, n_buffers, why));
  free(buffers);
  return status;
}

static enum np_status read_models(const struct np_container *container, struct np_weights weights,
                                  struct np_bundle *bundle, struct np_message *why) {
  struct np_cursor cursor;
  uint32_t n;
  NP_TRY(np_bundle_list(container, "MODL", LEAST_MODEL_WORDS, &cursor, &n, why));
  enum np_status status = NP_OK;
  bundle->models = calloc(n + (size_t)1, sizeof *bundle->models);
  NP_REQUIRE(bundle->models, NP_NO_MEMORY, why, "no memory for the bundle");
  bundle->n_models = n;
  const struct np_section data = np_container_find(container, "DATA");
  const struct np_section own = np_container_find(container, WEIGHTS);
  const nnp_weights whole = {.offset = 0, .bytes = own.bytes, .n_bytes = own.length};
  if (!weights.parts) {
    weights = (struct np_weights){&whole, own.present ? 1 : 0};
  }
  for (uint32_t i = 0; i < n && status == NP_OK; i++) {
    struct np_model *model = &bundle->models[i];
    struct np_message inner = {""};
    const uint64_t offset = np_take_u64(&cursor);
    const uint64_t length = np_take_u64(&cursor);
    const uint32_t n_buffers = np_take_u32(&cursor);
    const uint8_t *bytes = cursor.bad ? NULL : part(data, offset, length, 4);
    if (!bytes) {
      status = np_error(NP_BAD_REQUEST, &inner, "it is cut off or not in DATA");
    }
    NP_THEN(status, np_model_open(bytes, (size_t)length, model, &inner));
    NP_THEN(status, bind_model(&cursor, weights, n_buffers, model, &inner));
    if (status != NP_OK) {
      np_message_set(why, "MODL: model %u: %s", i, inner.text);
    }
  }
  return status == NP_OK ? np_bundle_list_end(&cursor, "MODL", why) : status;
}

enum np_status np_bundle_read(const void *bytes, size_t size, struct np_weights weights,
                              struct np_bundle *bundle, struct np_message *why) {
  *bundle = (struct np_bundle){.n_strings = 0};
  struct np_container container;
  NP_TRY(np_container_open_but(bytes, size, NP_CONTAINER_BUNDLE, WEIGHTS, &container, why));
  NP_TRY(read_head(&container, bundle, why));
  NP_TRY(np_bundle_read_strings(&container, &bundle->n_strings, &bundle->strings, why));
  NP_TRY(read_tensors(&container, bundle, why));
  NP_TRY(read_models(&container, weights, bundle, why));
  NP_TRY(np_bundle_read_plans(&container, bundle, why));
  NP_TRY(np_bundle_read_ends(&container, bundle, why));
  NP_TRY(np_bundle_read_mixture(&container, bundle, why));
  NP_TRY(np_bundle_read_overlaps(&container, bundle, why));
  NP_TRY(np_bundle_read_phones(&container, bundle, why));
  NP_TRY(np_bundle_read_conditions(&container, bundle, why));
  NP_TRY(np_bundle_read_units(&container, bundle, why));
  return np_bundle_check_flow(bundle, why);
}

enum np_status np_bundle_check_weights(const struct np_bundle *bundle, struct np_message *why) {
  const struct np_container container = {
      .bytes = bundle->file.bytes,
      .size = bundle->file.n_bytes,
      .n_sections = np_container_n_sections(bundle->file.bytes),
  };
  return bundle->file.parts ? NP_OK : np_container_check(&container, WEIGHTS, why);
}

void np_bundle_free(struct np_bundle *bundle) {
  for (uint32_t i = 0; i < bundle->n_strings; i++) {
    free(bundle->strings[i]);
  }
  for (uint32_t i = 0; i < bundle->n_models; i++) {
    np_model_free(&bundle->models[i]);
  }
  for (uint32_t s = 0; s < bundle->n_segments; s++) {
    free(bundle->segments[s].units);
  }
  free(bundle->segments);
  free(bundle->strings);
  free(bundle->tensors);
  free(bundle->models);
  free(bundle->plans);
  free(bundle->inputs);
  free(bundle->outputs);
  free(bundle->shares);
  free(bundle->names);
  free(bundle->file.parts);
  *bundle = (struct np_bundle){.n_strings = 0};
}
