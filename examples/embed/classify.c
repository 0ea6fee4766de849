/* Runs a bundle of nnapi-prof on one raw input, as an app would:
 *
 *   classify BUNDLE.nnprt INPUT.raw [OUTPUT.raw] [--runs N] [--plan N] [--threads N]
 *            [--nnapi-library PATH] [--no-fallback] [--trial [--helper AGENT] [--cache FOLDER]]
 *            [--frames N]
 *
 * INPUT.raw has the first input's bytes as in memory. Prints where each segment runs, its cold and
 * warm times, and the five largest values of the first output. With --frames it then runs N frames
 * through a queue, by the bundle's mixture if it has one and --plan is not given, and prints the
 * frames per second and the load of each processor. */
#define _POSIX_C_SOURCE 199309L /* clock_gettime */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "nnapi_prof_runtime.h"

#define TOP 5
#define FLOAT32 3
#define UINT8_QUANTISED 5
#define INT8_QUANTISED 14

struct arguments {
  const char *paths[3]; /* bundle, input, output or NULL */
  uint32_t runs;
  uint32_t frames; /* 0: none */
  int has_plan;
  nnp_options options;
};

static int usage(void) {
  (void)fprintf(stderr, "usage: classify BUNDLE.nnprt INPUT.raw [OUTPUT.raw] [--runs N] [--plan N] "
                        "[--threads N] [--nnapi-library PATH] [--no-fallback] [--trial] "
                        "[--helper AGENT] [--cache FOLDER] [--limit MS] [--frames N]\n");
  return 2;
}

/* Reports a segment that the CPU runs instead of NNAPI. */
static void note(void *context, const nnp_event *event) {
  (void)context;
  (void)fprintf(stderr, "classify: %s\n", event->message);
}

static int parse(int argc, char **argv, struct arguments *arguments) {
  int n_paths = 0;
  *arguments = (struct arguments){.runs = 20, .options = nnp_options_default()};
  arguments->options.log = note;
  for (int i = 1; i < argc; i++) {
    const char *value = i + 1 < argc ? argv[i + 1] : NULL;
    if (strcmp(argv[i], "--no-fallback") == 0) {
      arguments->options.flags &= ~(uint32_t)NNP_CPU_FALLBACK;
    } else if (strcmp(argv[i], "--trial") == 0) {
      arguments->options.flags |= NNP_TRIAL;
    } else if (strncmp(argv[i], "--", 2) != 0) {
      if (n_paths == 3)
        return -1;
      arguments->paths[n_paths++] = argv[i];
    } else if (!value) {
      return -1;
    } else {
      if (strcmp(argv[i], "--runs") == 0)
        arguments->runs = (uint32_t)strtoul(value, NULL, 10);
      else if (strcmp(argv[i], "--limit") == 0)
        arguments->options.run_limit_ns = strtoull(value, NULL, 10) * 1000000u;
      else if (strcmp(argv[i], "--frames") == 0)
        arguments->frames = (uint32_t)strtoul(value, NULL, 10);
      else if (strcmp(argv[i], "--plan") == 0) {
        arguments->options.plan = (uint32_t)strtoul(value, NULL, 10);
        arguments->has_plan = 1;
      }
      else if (strcmp(argv[i], "--threads") == 0)
        arguments->options.threads = (uint32_t)strtoul(value, NULL, 10);
      else if (strcmp(argv[i], "--nnapi-library") == 0)
        arguments->options.nnapi_library = value;
      else if (strcmp(argv[i], "--helper") == 0)
        arguments->options.trial_helper = value;
      else if (strcmp(argv[i], "--cache") == 0)
        arguments->options.cache_folder = value;
      else
        return -1;
      i++;
    }
  }
  return n_paths >= 2 && arguments->runs > 0 ? 0 : -1;
}

/* Reads a whole file of exactly n bytes. */
static int read_input(const char *path, void *bytes, size_t n) {
  FILE *file = fopen(path, "rb");
  if (!file) {
    perror(path);
    return -1;
  }
  const size_t found = fread(bytes, 1, n, file);
  const int more = fgetc(file) != EOF;
  (void)fclose(file);
  if (found == n && !more)
    return 0;
  (void)fprintf(stderr, "%s must have %zu bytes\n", path, n);
  return -1;
}

static int write_output(const char *path, const void *bytes, size_t n) {
  FILE *file = fopen(path, "wb");
  if (!file || fwrite(bytes, 1, n, file) != n) {
    perror(path);
    if (file)
      (void)fclose(file);
    return -1;
  }
  return fclose(file);
}

static void print_tensor(const char *what, const nnp_tensor *tensor) {
  (void)printf("%s %s: type %d, [", what, tensor->name, (int)tensor->type);
  for (uint32_t i = 0; i < tensor->rank; i++)
    (void)printf("%s%u", i ? ", " : "", (unsigned)tensor->dims[i]);
  (void)printf("], axes");
  for (uint32_t i = 0; i < tensor->rank; i++)
    (void)printf(" %u", (unsigned)tensor->dim_order[i]);
  (void)printf(", %zu bytes\n", tensor->n_bytes);
}

static double real_value(const nnp_tensor *tensor, const void *bytes, size_t i) {
  switch (tensor->type) {
  case FLOAT32:
    return ((const float *)bytes)[i];
  case UINT8_QUANTISED:
    return (((const uint8_t *)bytes)[i] - tensor->zero_point) * (double)tensor->scale;
  case INT8_QUANTISED:
    return (((const int8_t *)bytes)[i] - tensor->zero_point) * (double)tensor->scale;
  default:
    return 0;
  }
}

/* Prints the largest values of an output and their places. */
static void print_top(const nnp_tensor *tensor, const void *bytes) {
  size_t n = 1;
  for (uint32_t i = 0; i < tensor->rank; i++)
    n *= tensor->dims[i];
  size_t top[TOP];
  size_t n_top = 0;
  for (size_t i = 0; i < n; i++) {
    const double value = real_value(tensor, bytes, i);
    size_t at = n_top;
    while (at > 0 && real_value(tensor, bytes, top[at - 1]) < value)
      at--;
    if (at == TOP)
      continue;
    if (n_top < TOP)
      n_top++;
    for (size_t j = n_top - 1; j > at; j--)
      top[j] = top[j - 1];
    top[at] = i;
  }
  for (size_t i = 0; i < n_top; i++)
    (void)printf("top %zu: class %zu, %.6g\n", i + 1, top[i], real_value(tensor, bytes, top[i]));
}

static double ms(uint64_t ns) { return ns == NNP_UNKNOWN_NS ? -1 : (double)ns / 1e6; }

static void print_segments(const nnp_model *model) {
  for (uint32_t s = 0; s < nnp_model_n_segments(model); s++) {
    nnp_segment segment;
    if (nnp_model_segment(model, s, &segment) != NNP_OK)
      continue;
    (void)printf("segment %u: %s%s%s, compiled in %.3f ms, first run %.3f ms, last run %.3f ms%s\n",
                 (unsigned)s, segment.engine, segment.accelerator ? " " : "",
                 segment.accelerator ? segment.accelerator : "", ms(segment.compile_ns),
                 ms(segment.first_ns), ms(segment.last_ns),
                 segment.shared_memory ? ", shared memory" : "");
  }
  (void)printf("whole: first run %.3f ms, last run %.3f ms\n", ms(nnp_model_first_ns(model)),
               ms(nnp_model_last_ns(model)));
}

static int say(const nnp_error *error) {
  (void)fprintf(stderr, "classify: %s", error->message);
  if (error->segment >= 0)
    (void)fprintf(stderr, " (segment %d)", (int)error->segment);
  (void)fprintf(stderr, "\n");
  return 1;
}

static int run(const nnp_bundle *bundle, nnp_model *model, const struct arguments *arguments) {
  nnp_error error;
  const nnp_tensor *input = nnp_bundle_input(bundle, 0);
  const nnp_tensor *output = nnp_bundle_output(bundle, 0);
  if (!input || !output) {
    (void)fprintf(stderr, "classify: the bundle has no input or no output\n");
    return 1;
  }
  print_tensor("input", input);
  print_tensor("output", output);
  /* The model's own buffers: nothing is copied. */
  if (read_input(arguments->paths[1], nnp_model_input(model, 0), input->n_bytes) != 0)
    return 1;
  for (uint32_t i = 0; i < arguments->runs; i++) {
    if (nnp_model_run(model, NULL, NULL, &error) != NNP_OK)
      return say(&error);
  }
  print_segments(model);
  print_top(output, nnp_model_output(model, 0));
  if (arguments->paths[2])
    return write_output(arguments->paths[2], nnp_model_output(model, 0), output->n_bytes) != 0;
  return 0;
}

static double now_s(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Every frame has the same input; an app would fill nnp_queue_input from its camera. */
static int pump(nnp_queue *queue, const nnp_tensor *input, const void *image, uint32_t n) {
  nnp_error error;
  nnp_frame frame = {.number = 0};
  double latency = 0;
  const double begin = now_s();
  uint32_t submitted = 0;
  for (uint32_t i = 0; i < n; i++) {
    for (; submitted < n && nnp_queue_room(queue, 0); submitted++) {
      memcpy(nnp_queue_input(queue, 0), image, input->n_bytes);
      if (nnp_queue_submit(queue, NULL, NULL, NNP_FOREVER, &error) != NNP_OK)
        return say(&error);
    }
    if (nnp_queue_wait(queue, NNP_FOREVER, &frame, &error) != NNP_OK)
      return say(&error);
    latency += ms(frame.latency_ns) / n;
  }
  const double seconds = now_s() - begin;
  (void)printf("%u frames, %u in flight: %.1f a second, each takes %.3f ms\n", (unsigned)n,
               (unsigned)nnp_queue_n_frames(queue), n / seconds, latency);
  nnp_lane lane;
  for (uint32_t i = 0; nnp_queue_lane(queue, i, &lane) == NNP_OK; i++)
    (void)printf("lane %s: %" PRIu64 " segments, busy for %.0f %%\n", lane.name, lane.n_segments,
                 (double)lane.busy_ns / 1e7 / seconds);
  return 0;
}

static int run_frames(const nnp_bundle *bundle, const void *image,
                      const struct arguments *arguments) {
  nnp_queue_options options = nnp_queue_options_default();
  nnp_queue *queue;
  nnp_error error;
  const uint32_t plan = arguments->has_plan ? arguments->options.plan : options.model.plan;
  options.model = arguments->options;
  options.model.plan = plan;
  if (nnp_queue_open(bundle, &options, &queue, &error) != NNP_OK)
    return say(&error);
  const int code = pump(queue, nnp_bundle_input(bundle, 0), image, arguments->frames);
  nnp_queue_close(queue);
  return code;
}

int main(int argc, char **argv) {
  struct arguments arguments;
  if (parse(argc, argv, &arguments) != 0)
    return usage();
  nnp_bundle *bundle;
  nnp_model *model;
  nnp_error error;
  if (nnp_bundle_open(arguments.paths[0], &bundle, &error) != NNP_OK)
    return say(&error);
  nnp_options *options = &arguments.options;
  if ((!arguments.has_plan && nnp_bundle_plan_of_phone(bundle, NULL, options->nnapi_library,
                                                       &options->plan, &error) != NNP_OK) ||
      nnp_model_compile(bundle, options, &model, &error) != NNP_OK) {
    nnp_bundle_close(bundle);
    return say(&error);
  }
  (void)printf("plan %s\n", nnp_bundle_plan(bundle, options->plan));
  int code = run(bundle, model, &arguments);
  if (code == 0 && arguments.frames > 0)
    code = run_frames(bundle, nnp_model_input(model, 0), &arguments);
  nnp_model_free(model);
  nnp_bundle_close(bundle);
  return code;
}
