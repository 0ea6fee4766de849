/* Cached compilations: one file for each token and choice of devices.
 *
 * A driver stores its compiled program in such a file. Here compiling is fast, so the file only
 * says that this model was compiled before: this makes a simulated phone's second compilation
 * cheap, and lets applications test how they handle their cache. Results never depend on it. A file
 * that is missing, damaged, or of another library, model or device is a miss, and is rewritten.
 *
 * struct record is the whole file, in the machine's byte order: it is not portable. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "emulator.h"
#include "hash.h"

/* Changes with the format, and when the compiled result would change. */
#define MAGIC UINT64_C(0x3148434143504e01)
#define LIBRARY "nnapi-prof emulator 2"

#define TOKEN_BYTES ANEURALNETWORKS_BYTE_SIZE_OF_CACHE_TOKEN

struct record {
  uint64_t magic;
  uint8_t token[TOKEN_BYTES];
  uint64_t library; /* hash of the library's and the phone's identity */
  uint64_t request; /* hash of devices and settings */
  uint64_t model;   /* hash of the model, constants included */
  uint64_t check;   /* hash of the fields before */
};

static uint64_t hash_text(uint64_t hash, const char *text) {
  return np_hash_bytes(hash, text, strlen(text) + 1);
}

static uint64_t hash_list(uint64_t hash, const uint32_t *list, uint32_t n) {
  hash = np_hash_u32(hash, n);
  return np_hash_bytes(hash, list, n * sizeof *list);
}

static uint64_t hash_model(uint64_t hash, const ANeuralNetworksModel *model);

static uint64_t hash_operand(uint64_t hash, const ANeuralNetworksModel *model, uint32_t index) {
  const struct np_operand *o = &model->declared[index];
  hash = np_hash_u32(hash, (uint32_t)o->type);
  hash = hash_list(hash, o->dims, o->rank);
  hash = np_hash_bytes(hash, &o->scale, sizeof o->scale);
  hash = np_hash_u32(hash, (uint32_t)o->zero_point);
  hash = np_hash_u32(hash, (uint32_t)o->lifetime);
  if (o->channel_scales) {
    hash = np_hash_u32(hash, o->channel_dim);
    hash =
        np_hash_bytes(hash, o->channel_scales, o->dims[o->channel_dim] * sizeof *o->channel_scales);
  }
  if (model->extra[index].referenced) {
    return hash_model(hash, model->extra[index].referenced);
  }
  return o->lifetime == NP_CONSTANT ? np_hash_bytes(hash, o->value, o->length) : hash;
}

static uint64_t hash_model(uint64_t hash, const ANeuralNetworksModel *model) {
  const struct np_graph *graph = &model->graph;
  hash = np_hash_u32(hash, model->relaxed);
  hash = np_hash_u32(hash, graph->n_operands);
  for (uint32_t i = 0; i < graph->n_operands; i++) {
    hash = hash_operand(hash, model, i);
  }
  hash = np_hash_u32(hash, graph->n_operations);
  for (uint32_t i = 0; i < graph->n_operations; i++) {
    const struct np_operation *operation = &graph->operations[i];
    hash = np_hash_u32(hash, (uint32_t)operation->code);
    hash = hash_list(hash, operation->inputs, operation->n_inputs);
    hash = hash_list(hash, operation->outputs, operation->n_outputs);
  }
  hash = hash_list(hash, graph->inputs, graph->n_inputs);
  return hash_list(hash, graph->outputs, graph->n_outputs);
}

static struct record make_record(const ANeuralNetworksCompilation *compilation) {
  const struct np_phone *phone = np_device_table()->phone;
  struct record record = {.magic = MAGIC};
  memcpy(record.token, compilation->cache.token, sizeof record.token);
  record.library = hash_text(hash_text(NP_HASH_START, LIBRARY), phone ? phone->identity : "");
  record.request = np_hash_u32(NP_HASH_START, compilation->explicit_devices);
  for (uint32_t i = 0; i < compilation->n_devices; i++) {
    record.request = hash_text(record.request, compilation->devices[i]->name);
    record.request = hash_text(record.request, compilation->devices[i]->version);
  }
  record.request = np_hash_u32(record.request, (uint32_t)compilation->preference);
  record.request = np_hash_u32(record.request, (uint32_t)compilation->priority);
  record.model = hash_model(NP_HASH_START, compilation->model);
  record.check = np_hash_bytes(NP_HASH_START, &record, offsetof(struct record, check));
  return record;
}

/* Returns the path of the compilation's file, owned by the caller; NULL if memory is short. The
 * request is part of the name, so that devices do not use each other's files. */
static char *make_path(const ANeuralNetworksCompilation *compilation, const struct record *record,
                       const char *suffix) {
  char token[2 * TOKEN_BYTES + 1];
  for (size_t i = 0; i < TOKEN_BYTES; i++) {
    (void)snprintf(token + 2 * i, 3, "%02x", record->token[i]);
  }
  const size_t room = strlen(compilation->cache.folder) + sizeof token + strlen(suffix) + 32;
  char *path = malloc(room);
  if (path) {
    (void)snprintf(path, room, "%s/%s-%016llx%s", compilation->cache.folder, token,
                   (unsigned long long)record->request, suffix);
  }
  return path;
}

bool np_cache_hit(const ANeuralNetworksCompilation *compilation) {
  const struct record wanted = make_record(compilation);
  char *path = make_path(compilation, &wanted, ".nnc");
  FILE *file = path ? fopen(path, "rb") : NULL;
  free(path);
  if (!file) {
    return false;
  }
  struct record found;
  const bool whole = fread(&found, sizeof found, 1, file) == 1 && fgetc(file) == EOF;
  (void)fclose(file);
  return whole && memcmp(&found, &wanted, sizeof found) == 0;
}

/* Writes the record to a temporary file and renames it, so that no one reads half of it. */
static bool write_record(const struct record *record, char *draft, const char *path) {
  const int fd = mkstemp(draft);
  if (fd < 0) {
    return false;
  }
  const bool written = write(fd, record, sizeof *record) == (ssize_t)sizeof *record;
  if (close(fd) == 0 && written && rename(draft, path) == 0) {
    return true;
  }
  (void)unlink(draft);
  return false;
}

void np_cache_store(const ANeuralNetworksCompilation *compilation) {
  const struct record record = make_record(compilation);
  char *path = make_path(compilation, &record, ".nnc");
  char *draft = make_path(compilation, &record, ".XXXXXX");
  if (!path || !draft || !write_record(&record, draft, path)) {
    (void)NP_REFUSE(NO_ERROR, "nothing is cached in %s: %s", compilation->cache.folder,
                    strerror(errno));
  }
  free(path);
  free(draft);
}
