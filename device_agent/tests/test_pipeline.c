/* Segments over shared tensors: on both engines, with and without shared memory. */
#include "cpu.h"
#include "nnapi.h"
#include "np_test_model.h"
#include "pipeline.h"

enum { N_IN = 2 * 3 * 5 * 7 };
static const uint32_t nhwc[4] = {2, 5, 7, 3};

/* y[NHWC] = x[NHWC] * c[3] or + c[3]. */
static struct model *channel_model(int32_t code, const float *factors) {
  const uint32_t three[1] = {3};
  struct model *model = model_new();
  const uint32_t x = model_operand(model, NP_TYPE_TENSOR_FLOAT32, NP_INPUT, 4, nhwc);
  const uint32_t c = model_operand(model, NP_TYPE_TENSOR_FLOAT32, NP_CONSTANT, 1, three);
  model_value(model, c, factors);
  const uint32_t y = model_operand(model, NP_TYPE_TENSOR_FLOAT32, NP_OUTPUT, 4, nhwc);
  model_operation(model, code, y, 3, x, c, model_i32(model, ANEURALNETWORKS_FUSED_NONE));
  return model;
}

struct mode {
  int pointers;
  int burst;
  int async;
  int is_bound; /* the caller's input is used in place if possible */
  int both_nnapi;
};

static void check_two_segments(struct np_nnapi *nnapi, struct mode mode) {
  static const float factors[3] = {2, 3, 5};
  static const float terms[3] = {0.5f, 0.25f, 0.125f};
  struct model *models[2] = {channel_model(ANEURALNETWORKS_MUL, factors),
                             channel_model(ANEURALNETWORKS_ADD, terms)};
  const struct np_model wrapped[2] = {{.graph = models[0]->graph}, {.graph = models[1]->graph}};
  float input[N_IN];
  for (int i = 0; i < N_IN; i++) {
    input[i] = (float)i;
  }
  const struct np_options options = {.preference = -1,
                                     .threads = 1,
                                     .pointers = mode.pointers,
                                     .burst = mode.burst,
                                     .async = mode.async};
  static const struct np_port ports[3] = {{0, 0}, {1, 0}, {2, 0}};
  struct np_pipeline_tensor tensors[3];
  struct np_pipeline_segment segments[2];
  const struct np_pipeline_plan plan = {
      .n_tensors = 3, .tensors = tensors, .n_segments = 2, .segments = segments, .folder_fd = -1};
  for (uint32_t t = 0; t < 3; t++) {
    tensors[t] = (struct np_pipeline_tensor){4, nhwc, sizeof input};
  }
  for (uint32_t s = 0; s < 2; s++) {
    const int on_nnapi = s == 0 || mode.both_nnapi;
    segments[s] = (struct np_pipeline_segment){.engine = on_nnapi ? np_nnapi_engine(nnapi)
                                                                  : np_cpu_engine(NULL),
                                               .model = &wrapped[s],
                                               .options = options,
                                               .n_inputs = 1,
                                               .inputs = &ports[s],
                                               .n_outputs = 1,
                                               .outputs = &ports[s + 1]};
  }
  struct np_fault fault = {.code = 0};
  struct np_pipeline *pipeline = NULL;
  if (!CHECK(np_pipeline_make(&plan, &fault, &pipeline) == NP_OK)) {
    return;
  }
  for (uint32_t t = 0; t < 3; t++) {
    CHECK((uintptr_t)np_pipeline_data(pipeline, t) % 4 == 0);
  }
  CHECK(np_pipeline_compile(pipeline, 0) == NP_OK);
  CHECK(np_pipeline_compile(pipeline, 1) == NP_OK);
  struct np_engine_facts facts;
  np_pipeline_describe(pipeline, 0, &facts);
  CHECK((facts.memory == NP_SHM_POINTERS) == mode.pointers);
  np_pipeline_describe(pipeline, 1, &facts);
  CHECK(np_shm_is_shared(facts.memory) == (!mode.pointers && mode.both_nnapi));
  const struct np_step *steps = np_pipeline_steps(pipeline);
  for (int run = 0; run < 3; run++) {
    float *in = np_pipeline_data(pipeline, 0);
    if (mode.is_bound && !np_pipeline_bind(pipeline, 0, input)) {
      memcpy(in, input, sizeof input);
    }
    const float *out = np_pipeline_data(pipeline, 2);
    for (int i = 0; i < N_IN && !mode.is_bound; i++) {
      in[i] = input[i] + (float)run;
    }
    for (uint32_t s = 0; s < 2; s++) {
      struct np_durations durations = {0, 0};
      CHECK(steps[s].run(steps[s].ctx) == NP_OK);
      if (steps[s].settle) {
        steps[s].settle(steps[s].ctx, &durations);
      }
    }
    int same = 1;
    for (int i = 0; i < N_IN; i++) {
      const int channel = i % 3;
      const float x = input[i] + (mode.is_bound ? 0.0f : (float)run);
      same &= out[i] == x * factors[channel] + terms[channel];
    }
    CHECK(same);
  }
  CHECK(fault.why.text[0] == 0);
  np_pipeline_free(pipeline);
  free(models[0]);
  free(models[1]);
}

/* ---- An engine that cannot map ---- */

static enum np_status fake_compile(void *ctx, const struct np_model *model,
                                   const struct np_options *options, struct np_compiled **compiled,
                                   struct np_fault *fault) {
  (void)model;
  (void)options;
  (void)fault;
  *compiled = ctx;
  return NP_OK;
}

/* Copies its input to its output, from addresses only; ctx counts the runs. */
static enum np_status fake_run(struct np_compiled *compiled, const struct np_io *inputs,
                               const struct np_io *outputs, struct np_fault *fault) {
  (*(int *)compiled)++;
  if (inputs[0].memory || outputs[0].memory) {
    fault->has_code = 1;
    fault->code = ANEURALNETWORKS_UNMAPPABLE;
    return NP_RUN_FAILED;
  }
  memcpy(outputs[0].data, inputs[0].data, inputs[0].n_bytes);
  return NP_OK;
}

static void fake_free(struct np_compiled *compiled) { (void)compiled; }

static enum np_status fake_share(void *ctx, int fd, size_t size, struct np_engine_memory **memory) {
  CHECK(fd >= 0 && size > 0);
  *memory = ctx;
  return NP_OK;
}

static enum np_status no_share(void *ctx, int fd, size_t size, struct np_engine_memory **memory) {
  (void)ctx;
  (void)fd;
  (void)size;
  (void)memory;
  return NP_UNSUPPORTED;
}

static void fake_unshare(void *ctx, struct np_engine_memory *memory) { CHECK(ctx == memory); }

static void check_unmappable(int is_shared) {
  int n_runs = 0;
  const struct np_engine engine = {.name = "fake",
                                   .ctx = &n_runs,
                                   .compile = fake_compile,
                                   .run = fake_run,
                                   .free = fake_free,
                                   .share = is_shared ? fake_share : no_share,
                                   .unshare = fake_unshare};
  static const uint32_t dims[1] = {4};
  static const struct np_port ports[2] = {{0, 0}, {1, 0}};
  struct np_pipeline_tensor tensors[2] = {{1, dims, 16}, {1, dims, 16}};
  struct np_pipeline_segment segment = {
      .engine = engine, .n_inputs = 1, .inputs = &ports[0], .n_outputs = 1, .outputs = &ports[1]};
  const struct np_pipeline_plan plan = {
      .n_tensors = 2, .tensors = tensors, .n_segments = 1, .segments = &segment, .folder_fd = -1};
  struct np_fault fault = {.code = 0};
  struct np_pipeline *pipeline = NULL;
  if (!CHECK(np_pipeline_make(&plan, &fault, &pipeline) == NP_OK)) {
    return;
  }
  CHECK(np_pipeline_compile(pipeline, 0) == NP_OK);
  struct np_engine_facts facts;
  np_pipeline_describe(pipeline, 0, &facts);
  CHECK(np_shm_is_shared(facts.memory) == is_shared);
  const struct np_step *step = np_pipeline_steps(pipeline);
  memcpy(np_pipeline_data(pipeline, 0), "0123456789abcdef", 16);
  CHECK(step->run(step->ctx) == NP_OK);
  CHECK(n_runs == (is_shared ? 2 : 1));
  CHECK(step->run(step->ctx) == NP_OK);
  CHECK(n_runs == (is_shared ? 3 : 2));
  CHECK(memcmp(np_pipeline_data(pipeline, 1), "0123456789abcdef", 16) == 0);
  CHECK(!fault.has_code);
  np_pipeline_describe(pipeline, 0, &facts);
  CHECK(facts.memory == NP_SHM_POINTERS);
  np_pipeline_free(pipeline);
}

int main(void) {
  struct np_nnapi *nnapi = NULL;
  struct np_message why = {""};
  if (CHECK(np_nnapi_open(NULL, &nnapi, &why) == NP_OK)) {
    for (int bits = 0; bits < 32; bits++) {
      const struct mode mode = {bits & 1, bits >> 1 & 1, bits >> 2 & 1, bits >> 3 & 1, bits >> 4};
      if (!(mode.burst && mode.async)) {
        check_two_segments(nnapi, mode);
      }
    }
    np_nnapi_close(nnapi);
  }
  check_unmappable(1);
  check_unmappable(0);
  return np_test_exit();
}
