/* The side of a trial that compiles and runs, in a separate process. */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime.h"
#include "trial_block.h"

static struct np_io *make_ios(const struct np_graph *graph, uint32_t n, const uint32_t *operands) {
  struct np_io *ios = calloc(n + (size_t)1, sizeof *ios);
  for (uint32_t i = 0; ios && i < n; i++) {
    const struct np_operand *operand = &graph->operands[operands[i]];
    const size_t n_bytes = np_operand_bytes(operand);
    ios[i] = (struct np_io){.n_bytes = n_bytes, .rank = operand->rank, .dims = operand->dims};
    if (posix_memalign(&ios[i].data, 64, n_bytes) != 0) {
      return NULL;
    }
    memset(ios[i].data, 0, n_bytes);
  }
  return ios;
}

static enum np_status compile_and_run(struct np_nnapi *nnapi, const struct np_model *model,
                                      const struct np_options *options, struct np_fault *fault,
                                      int *has_compiled) {
  const struct np_engine engine = np_nnapi_engine(nnapi);
  const struct np_graph *graph = &model->graph;
  struct np_compiled *compiled = NULL;
  NP_TRY(engine.compile(engine.ctx, model, options, &compiled, fault));
  *has_compiled = 1;
  const struct np_io *inputs = make_ios(graph, graph->n_inputs, graph->inputs);
  const struct np_io *outputs = make_ios(graph, graph->n_outputs, graph->outputs);
  NP_REQUIRE(inputs && outputs, NP_NO_MEMORY, &fault->why, "no memory for inputs and outputs");
  return engine.run(compiled, inputs, outputs, fault);
}

void np_trial_try(const struct np_bundle *bundle, const nnp_options *options,
                  struct np_nnapi *nnapi, struct np_trial_block *block, struct np_link *link) {
  if (!nnapi) {
    struct np_fault fault = {.has_code = 0};
    const enum np_status status = np_nnapi_open(options->nnapi_library, &nnapi, &fault.why);
    const nnp_cause cause =
        status == NP_MISSING ? NNP_NO_LIBRARY : np_fallback_cause(status, &fault, 0);
    block->opening = (struct np_trial_verdict){cause, status, fault, 1};
  }
  if (nnapi) {
    np_trial_drivers(nnapi, block->drivers);
  }
  np_link_reach(link);
  for (uint32_t s = block->first; s < block->n && nnapi; s++) {
    if (!block->slots[s].is_wanted) {
      continue;
    }
    const struct np_bundle_segment *segment = &bundle->plans[block->plan].segments[s];
    const struct np_options own = np_executable_segment_options(segment, options, s);
    struct np_fault fault = {.has_code = 0};
    int has_compiled = 0;
    const enum np_status status =
        compile_and_run(nnapi, &bundle->models[segment->model], &own, &fault, &has_compiled);
    block->slots[s].verdict = (struct np_trial_verdict){
        np_fallback_cause(status, &fault, has_compiled), status, fault, 1};
    np_link_reach(link);
  }
}

/* ---- A helper ---- */

static void *map(size_t n_bytes, int fd) {
  void *memory = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return memory == MAP_FAILED ? NULL : memory;
}

/* Maps the block; NULL with *why if it is not one, or another library version's. */
static struct np_trial_block *map_block(int fd, struct np_message *why) {
  struct np_trial_block *block = map(sizeof *block, fd);
  if (!block) {
    np_message_set(why, "descriptor %d holds no job of a trial: %s (the library starts this)", fd,
                   strerror(errno));
    return NULL;
  }
  const int is_ours = memcmp(block->version, NP_AGENT_VERSION, sizeof NP_AGENT_VERSION) == 0 &&
                      block->n_bytes <= SIZE_MAX &&
                      block->n_bytes == sizeof *block + (uint64_t)block->n * sizeof *block->slots;
  const size_t n_bytes = (size_t)block->n_bytes;
  (void)munmap(block, sizeof *block);
  block = is_ours ? map(n_bytes, fd) : NULL;
  if (!block) {
    np_message_set(why, "the job is of another library than %s", NP_AGENT_VERSION);
  }
  return block;
}

/* Opens the bundle, which is never closed; weights stored elsewhere follow its bytes. */
static nnp_status open_bundle(const struct np_trial_block *block, int fd, nnp_bundle **bundle,
                              nnp_error *error) {
  const uint64_t begin = np_trial_weights_offset(block->bundle_bytes);
  if (block->weights_bytes == 0) {
    return nnp_bundle_open_fd(fd, block->bundle_offset, block->bundle_bytes, bundle, error);
  }
  const uint8_t *bytes = map((size_t)(begin + block->weights_bytes), fd);
  NNP_REQUIRE(bytes, error, NNP_IO, "the bundle and its weights cannot be mapped: %s",
              strerror(errno));
  const nnp_weights weights = {0, bytes + begin, (size_t)block->weights_bytes};
  return nnp_bundle_open_parts(bytes, (size_t)block->bundle_bytes, &weights, 1, bundle, error);
}

static int serve(const int *files, struct np_message *why) {
  struct np_trial_block *block = map_block(files[NP_TRIAL_BLOCK], why);
  if (!block) {
    return -1;
  }
  block->library[sizeof block->library - 1] = 0;
  block->cache_folder[sizeof block->cache_folder - 1] = 0;
  const nnp_options options = {.plan = block->plan,
                               .flags = block->flags,
                               .threads = block->threads,
                               .nnapi_library = block->library[0] ? block->library : NULL,
                               .priority = block->priority,
                               .cache_folder = block->cache_folder[0] ? block->cache_folder : NULL};
  nnp_bundle *bundle = NULL;
  nnp_error error;
  if (open_bundle(block, files[NP_TRIAL_BUNDLE], &bundle, &error) != NNP_OK) {
    np_message_set(why, "%s", error.message);
    return -1;
  }
  const struct np_bundle *read = &bundle->bundle;
  if (block->plan >= read->n_plans || read->plans[block->plan].n_segments != block->n) {
    np_message_set(why, "the job is of another bundle");
    return -1;
  }
  struct np_link link = np_link_over(files[NP_TRIAL_LINK], &block->turns);
  block->pid = (int32_t)getpid();
  block->is_served = 1;
  np_trial_try(read, &options, NULL, block, &link);
  return 0;
}

nnp_status nnp_trial_serve(const int files[NP_TRIAL_FILES], nnp_error *error) {
  struct np_message why = {""};
  np_runtime_clear(error);
  return serve(files, &why) == 0
             ? NNP_OK
             : np_runtime_fail(error, NNP_BAD_ARGUMENT, -1, 0, "no trial: %s", why.text);
}
