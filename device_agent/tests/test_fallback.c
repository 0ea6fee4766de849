/* The library with a driver that refuses, fails, crashes, hangs, or reports wrong shapes: the CPU
 * computes correct outputs and one event reports it, or, without fallback, the call fails. Each
 * case is a process, since a phone's faults are read once. */
#define _POSIX_C_SOURCE 200809L

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "build_bundle.h"
#include "guard.h"
#include "nnapi_prof_runtime.h"
#include "np_test.h"
#include "runtime.h"

#define MS UINT64_C(1000000)
#define N_RUNS 5

struct scenario {
  const char *faults;
  uint32_t flags; /* beside NNP_CPU_FALLBACK */
  uint64_t compile_limit_ns, run_limit_ns;
  nnp_cause cause;
  nnp_status status; /* without fallback */
  int fails_at;      /* the run from 0 that fails then, -1: compiling does */
  const char *why;
};

static const struct scenario scenarios[] = {
    {"", 0, 0, 0, NNP_NO_CAUSE, NNP_OK, 0, ""},
    {"", NNP_TRIAL, 2000 * MS, 2000 * MS, NNP_NO_CAUSE, NNP_OK, 0, ""},
    {"", NNP_POINTERS | NNP_BURST, 0, 2000 * MS, NNP_NO_CAUSE, NNP_OK, 0, ""},
    {"refuse:compile:ADD", 0, 0, 0, NNP_REFUSED, NNP_UNSUPPORTED, -1, "sim-npu does not support"},
    {"fail:compile:ADD", 0, 0, 0, NNP_COMPILE_FAILED, NNP_FAILED, -1, "OP_FAILED"},
    {"fail:compile:ADD", 0, 2000 * MS, 0, NNP_COMPILE_FAILED, NNP_FAILED, -1, "OP_FAILED"},
    {"fail:compile:ADD", NNP_TRIAL, 0, 0, NNP_COMPILE_FAILED, NNP_FAILED, -1, "OP_FAILED"},
    {"fail:execute:ADD:1:3", 0, 0, 0, NNP_RUN_FAILED, NNP_FAILED, 2, "compute returned OP_FAILED"},
    {"fail:execute:ADD:1:3", 0, 0, 2000 * MS, NNP_RUN_FAILED, NNP_FAILED, 2, "OP_FAILED"},
    {"fail:execute:ADD", NNP_TRIAL, 0, 0, NNP_RUN_FAILED, NNP_FAILED, -1, "OP_FAILED"},
    {"reshape:execute:ADD", 0, 0, 0, NNP_WRONG_SHAPE, NNP_FAILED, 0, "output 0 of 1"},
    {"reshape:execute:ADD", NNP_TRIAL, 0, 0, NNP_WRONG_SHAPE, NNP_FAILED, -1, "output 0 of 1"},
    {"hang:execute:ADD:1:3", 0, 0, 50 * MS, NNP_TOO_LATE, NNP_LATE, 2,
     "run on sim-npu took longer"},
    {"hang:execute:ADD:1:2", NNP_POINTERS, 0, 50 * MS, NNP_TOO_LATE, NNP_LATE, 1, "than 50 ms"},
    {"hang:compile:ADD", 0, 50 * MS, 0, NNP_TOO_LATE, NNP_LATE, -1, "compiling on sim-npu took"},
    {"hang:execute:ADD", NNP_TRIAL, 100 * MS, 100 * MS, NNP_TOO_LATE, NNP_LATE, -1, "a trial"},
    {"crash:execute:ADD", NNP_TRIAL, 0, 0, NNP_CRASHED, NNP_FAILED, -1, "a trial"},
    {"abort:compile:ADD", NNP_TRIAL, 0, 0, NNP_CRASHED, NNP_FAILED, -1, "a trial"},
};
enum { N_SCENARIOS = sizeof scenarios / sizeof *scenarios };

/* The reported events. */
struct told {
  int n;
  nnp_cause cause;
  uint32_t plan, segment;
  char message[512];
};

static void note(void *context, const nnp_event *event) {
  struct told *told = context;
  told->n++;
  told->cause = event->cause;
  told->plan = event->plan;
  told->segment = event->segment;
  CHECK(event->accelerator && strcmp(event->accelerator, "sim-npu") == 0);
  (void)snprintf(told->message, sizeof told->message, "%s", event->message);
}

static nnp_bundle *open_bundle(void) {
  static struct np_build container;
  struct np_build_bundle sections;
  nnp_bundle *bundle = NULL;
  np_build_bundle_sections(&sections);
  np_build_bundle_container(&sections, &container);
  CHECK(nnp_bundle_open_memory(container.bytes, container.n, &bundle, NULL) == NNP_OK);
  return bundle;
}

/* y = relu(relu(x + b) + b), of input `run`. */
static void make_input(int run, float *x) {
  for (int i = 0; i < 4; i++) {
    x[i] = (float)((run * 7 + i * 5) % 11) - 5.0f;
  }
}

static int is_right(int run, const float *y) {
  float x[4];
  make_input(run, x);
  for (int i = 0; i < 4; i++) {
    for (int turn = 0; turn < 2; turn++) {
      x[i] = x[i] + (float)(i + 1) > 0 ? x[i] + (float)(i + 1) : 0;
    }
  }
  return memcmp(x, y, sizeof x) == 0;
}

static nnp_options options_of(const struct scenario *scenario, struct told *told) {
  nnp_options options = nnp_options_default();
  options.flags |= scenario->flags;
  options.compile_limit_ns = scenario->compile_limit_ns;
  options.run_limit_ns = scenario->run_limit_ns;
  options.log = note;
  options.log_context = told;
  return options;
}

static uint64_t now_ns(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void check_fallback(const struct scenario *scenario, const nnp_bundle *bundle) {
  struct told told = {.n = 0};
  const nnp_options options = options_of(scenario, &told);
  const int falls = scenario->cause != NNP_NO_CAUSE;
  nnp_error error = {.status = NNP_OK};
  nnp_model *model = NULL;
  if (!CHECK(nnp_model_compile(bundle, &options, &model, &error) == NNP_OK)) {
    return;
  }
  const float *own = nnp_model_output(model, 0);
  for (int run = 0; run < N_RUNS; run++) {
    float input[4], output[4] = {0};
    const void *inputs[1] = {input};
    void *outputs[1] = {output};
    const uint64_t before = now_ns();
    make_input(run, input);
    if (run % 2 == 0) {
      CHECK(nnp_model_run(model, inputs, outputs, &error) == NNP_OK);
      CHECK(is_right(run, output));
    } else {
      memcpy(nnp_model_input(model, 0), input, sizeof input);
      CHECK(nnp_model_run(model, NULL, NULL, &error) == NNP_OK);
      CHECK(is_right(run, nnp_model_output(model, 0)) && nnp_model_output(model, 0) == own);
    }
    CHECK(run != scenario->fails_at || scenario->status != NNP_LATE ||
          now_ns() - before >= 50 * MS);
    CHECK(told.n == (falls && run >= scenario->fails_at));
  }
  nnp_segment segment;
  CHECK(nnp_model_segment(model, 0, &segment) == NNP_OK && !segment.fell_back);
  CHECK(segment.cause == NNP_NO_CAUSE && segment.why[0] == 0);
  CHECK(nnp_model_segment(model, 1, &segment) == NNP_OK && segment.fell_back == falls);
  CHECK(segment.cause == scenario->cause && strcmp(segment.engine, falls ? "cpu" : "nnapi") == 0);
  CHECK(segment.n_portable + segment.n_xnnpack == (uint32_t)falls);
  CHECK(segment.shared_memory == (!falls && (scenario->flags & NNP_POINTERS) == 0));
  CHECK_TEXT(segment.why, scenario->why);
  if (falls) {
    CHECK(told.cause == scenario->cause && told.plan == 0 && told.segment == 1);
    CHECK_TEXT(told.message, "segment 1 of plan 0 runs on the CPU instead of sim-npu: ");
    CHECK_TEXT(told.message, segment.why);
    CHECK(nnp_cause_text(told.cause)[0] != 0);
  }
  nnp_model_free(model);
}

static void check_failure(const struct scenario *scenario, const nnp_bundle *bundle) {
  struct told told = {.n = 0};
  nnp_options options = options_of(scenario, &told);
  nnp_error error = {.status = NNP_OK};
  nnp_model *model = NULL;
  options.flags &= ~(uint32_t)NNP_CPU_FALLBACK;
  nnp_status status = nnp_model_compile(bundle, &options, &model, &error);
  for (int run = 0; status == NNP_OK && run <= scenario->fails_at; run++) {
    CHECK(run <= scenario->fails_at);
    status = nnp_model_run(model, NULL, NULL, &error);
    CHECK((status == NNP_OK) == (run < scenario->fails_at || scenario->status == NNP_OK));
  }
  CHECK(status == scenario->status && (status == NNP_OK || error.segment == 1));
  CHECK_TEXT(error.message, scenario->why);
  if (status == NNP_LATE && model) { /* it still hangs */
    CHECK(nnp_model_run(model, NULL, NULL, &error) == NNP_LATE);
    CHECK_TEXT(error.message, "an earlier run");
  }
  CHECK(told.n == 0);
  nnp_model_free(model);
}

/* Frames of a queue, some of which are in flight when the segment falls back. */
static void check_queue(const struct scenario *scenario, const nnp_bundle *bundle) {
  struct told told = {.n = 0};
  nnp_queue_options options = nnp_queue_options_default();
  nnp_queue *queue = NULL;
  options.frames = 3;
  options.model = options_of(scenario, &told);
  if (!CHECK(nnp_queue_open(bundle, &options, &queue, NULL) == NNP_OK)) {
    return;
  }
  int submitted = 0;
  for (int frame = 0; frame < 4 * N_RUNS; frame++) {
    while (nnp_queue_room(queue, 0)) {
      nnp_segment segment;
      CHECK(nnp_queue_segment(queue, 0, 1, &segment) == NNP_OK);
      make_input(submitted++, nnp_queue_input(queue, 0));
      CHECK(nnp_queue_submit(queue, NULL, NULL, 0, NULL) == NNP_OK);
    }
    CHECK(nnp_queue_wait(queue, NNP_FOREVER, NULL, NULL) == NNP_OK);
    CHECK(is_right(frame, nnp_queue_output(queue, 0)));
  }
  nnp_segment segment;
  CHECK(nnp_queue_segment(queue, 0, 1, &segment) == NNP_OK);
  CHECK(segment.cause == scenario->cause);
  CHECK(told.n == (scenario->cause != NNP_NO_CAUSE));
  nnp_queue_close(queue);
}

static int run_scenario(const struct scenario *scenario) {
  if (setenv("NNAPI_EMULATOR_PHONE", NP_PHONES "/npu-phone.json", 1) != 0 ||
      setenv("NNAPI_EMULATOR_FAULTS", scenario->faults, 1) != 0) {
    return 1;
  }
  nnp_bundle *bundle = open_bundle();
  if (bundle) {
    check_fallback(scenario, bundle);
    check_failure(scenario, bundle);
    check_queue(scenario, bundle);
  }
  nnp_bundle_close(bundle);
  return np_test_exit();
}

/* In one trial, segments after a crashing one have their own verdicts, and so have those of a
 * queue's further plans. */
static void check_parts(const char *helper) {
  static struct np_build container;
  struct np_build_bundle sections;
  nnp_bundle *bundle = NULL;
  nnp_model *model = NULL;
  nnp_queue *queue = NULL;
  nnp_queue_options options = nnp_queue_options_default();
  options.model.flags |= NNP_TRIAL;
  options.model.trial_helper = helper;
  options.model.nnapi_library = NP_EMULATOR;
  np_build_mixture_sections(&sections);
  np_build_bundle_container(&sections, &container);
  CHECK(nnp_bundle_open_memory(container.bytes, container.n, &bundle, NULL) == NNP_OK);
  static const nnp_cause causes[3][3] = {{NNP_CRASHED, NNP_NO_CAUSE, NNP_NO_CAUSE},
                                         {NNP_NO_CAUSE, NNP_NO_CAUSE, NNP_NO_CAUSE},
                                         {NNP_NO_CAUSE, NNP_NO_CAUSE, NNP_NO_CAUSE}};
  CHECK(nnp_queue_open(bundle, &options, &queue, NULL) == NNP_OK);
  options.model.plan = 0;
  CHECK(nnp_model_compile(bundle, &options.model, &model, NULL) == NNP_OK);
  for (uint32_t s = 0; s < 3; s++) {
    nnp_segment segment;
    CHECK(nnp_model_segment(model, s, &segment) == NNP_OK && segment.cause == causes[0][s]);
    for (uint32_t p = 0; p < 3; p++) {
      CHECK(nnp_queue_segment(queue, p, s, &segment) == NNP_OK && segment.cause == causes[p][s]);
    }
  }
  nnp_model_free(model);
  nnp_queue_close(queue);
  nnp_bundle_close(bundle);
}

/* Starts the agent through an intermediate process, so that it is not a child of this one. */
static int start_apart(void *context, const int files[3]) {
  (*(int *)context)++;
  const pid_t between = fork();
  if (between == 0) {
    if (fork() == 0) {
      for (int i = 0; i < 3; i++) {
        (void)dup2(files[i], 100 + i);
      }
      for (int i = 0; i < 3; i++) {
        (void)dup2(100 + i, 3 + i);
        (void)close(100 + i);
      }
      (void)execl(NP_AGENT, NP_AGENT, "trial", (char *)NULL);
    }
    _exit(0);
  }
  return waitpid(between, NULL, 0) == between ? 0 : 1;
}

static int start_nothing(void *context, const int files[3]) {
  (void)files;
  (*(int *)context)++;
  return 1;
}

/* Processes started by another one: one up to a crash, one for the rest. */
static void check_elsewhere(void) {
  static struct np_build container;
  struct np_build_bundle sections;
  nnp_bundle *bundle = NULL;
  nnp_model *model = NULL;
  nnp_options options = nnp_options_default();
  int n_started = 0;
  options.plan = 0;
  options.flags |= NNP_TRIAL;
  options.trial_start = start_apart;
  options.trial_context = &n_started;
  options.nnapi_library = NP_EMULATOR;
  np_build_mixture_sections(&sections);
  np_build_bundle_container(&sections, &container);
  CHECK(nnp_bundle_open_memory(container.bytes, container.n, &bundle, NULL) == NNP_OK);
  for (int is_there = 1; is_there >= 0; is_there--) {
    if (CHECK(nnp_model_compile(bundle, &options, &model, NULL) == NNP_OK)) {
      nnp_segment segment;
      CHECK(nnp_model_segment(model, 0, &segment) == NNP_OK);
      CHECK(segment.cause == (is_there ? NNP_CRASHED : NNP_NO_TRIAL));
      CHECK(nnp_model_segment(model, 2, &segment) == NNP_OK && segment.fell_back == !is_there);
      CHECK(n_started == (is_there ? 2 : 3));
    }
    nnp_model_free(model);
    options.trial_start = start_nothing;
  }
  nnp_bundle_close(bundle);
}

static int run_parts(void) {
  if (setenv("NNAPI_EMULATOR_PHONE", NP_PHONES "/npu-phone.json", 1) != 0 ||
      setenv("NNAPI_EMULATOR_FAULTS", "crash:execute:ADD@sim-npu", 1) != 0) {
    return 1;
  }
  check_parts(NULL);
  check_parts(NP_AGENT);
  check_elsewhere();
  return np_test_exit();
}

/* ---- A system with binder ---- */

/* Cases with a helper; each begins with an empty cache folder. */
static const struct scenario helped[] = {
    {"", NNP_TRIAL, 0, 0, NNP_NO_CAUSE, NNP_OK, 0, ""},
    {"refuse:compile:ADD", NNP_TRIAL, 0, 0, NNP_REFUSED, NNP_UNSUPPORTED, -1, "does not support"},
    {"crash:execute:ADD", NNP_TRIAL, 0, 0, NNP_CRASHED, NNP_FAILED, -1, "a trial"},
    {"hang:execute:ADD", NNP_TRIAL, 500 * MS, 500 * MS, NNP_TOO_LATE, NNP_LATE, -1, "a trial"},
};
enum { N_HELPED = sizeof helped / sizeof *helped };

enum { FIRST_START, NEXT_START, OTHER_DRIVERS, N_STARTS };

struct start {
  const struct scenario *scenario;
  const char *folder;
  int which;
};

static void expect(const struct start *start, const nnp_bundle *bundle, const char *helper,
                   nnp_cause cause, nnp_status status, const char *why) {
  struct told told = {.n = 0};
  nnp_options options = options_of(start->scenario, &told);
  nnp_model *model = NULL;
  nnp_segment segment;
  options.trial_helper = helper;
  options.nnapi_library = NP_EMULATOR;
  options.cache_folder = start->folder;
  if (CHECK(nnp_model_compile(bundle, &options, &model, NULL) == NNP_OK)) {
    CHECK(nnp_model_segment(model, 1, &segment) == NNP_OK && segment.cause == cause);
    CHECK_TEXT(segment.why, why);
    make_input(3, nnp_model_input(model, 0));
    CHECK(nnp_model_run(model, NULL, NULL, NULL) == NNP_OK);
    CHECK(is_right(3, nnp_model_output(model, 0)));
  }
  nnp_model_free(model);
  options.flags &= ~(uint32_t)NNP_CPU_FALLBACK;
  CHECK(nnp_model_compile(bundle, &options, &model, NULL) == status);
  nnp_model_free(model);
}

/* Opens the bundle with its weights elsewhere, as ExecuTorch's delegate does. */
static nnp_bundle *open_apart(void) {
  static const _Alignas(64) float weights[4] = {1, 2, 3, 4};
  static struct np_build container;
  struct np_build_bundle sections;
  const nnp_weights part = {0, weights, sizeof weights};
  nnp_bundle *bundle = NULL;
  np_build_bundle_sections(&sections);
  sections.wght.n = 0;
  np_build_bundle_container(&sections, &container);
  CHECK(nnp_bundle_open_parts(container.bytes, container.n, &part, 1, &bundle, NULL) == NNP_OK);
  return bundle;
}

/* Writes a file to the folder with a bundle from byte 4 on, like an app's asset. */
static int write_asset(const char *folder) {
  static struct np_build container;
  struct np_build_bundle sections;
  char path[512];
  (void)snprintf(path, sizeof path, "%s/asset", folder);
  np_build_bundle_sections(&sections);
  np_build_bundle_container(&sections, &container);
  const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
  CHECK(write(fd, "asset", 4) == 4 && write(fd, container.bytes, container.n) == (int)container.n);
  return fd;
}

static int run_start(const struct start *start) {
  const struct scenario *scenario = start->scenario;
  const char *phone =
      start->which == OTHER_DRIVERS ? NP_PHONES "/gpu-phone.json" : NP_PHONES "/npu-phone.json";
  if (setenv("NNAPI_EMULATOR_PHONE", phone, 1) != 0 ||
      setenv("NNAPI_EMULATOR_FAULTS", scenario->faults, 1) != 0 ||
      setenv("NNAPI_PROF_DEV", start->folder, 1) != 0) {
    return 1;
  }
  nnp_bundle *bundle = NULL;
  if (start->which == FIRST_START) {
    const int fd = write_asset(start->folder);
    const uint64_t n_bytes = (uint64_t)lseek(fd, 0, SEEK_END) - 4;
    CHECK(nnp_bundle_open_fd(fd, 4, n_bytes, &bundle, NULL) == NNP_OK && close(fd) == 0);
    expect(start, bundle, NULL, NNP_NO_TRIAL, NNP_UNSUPPORTED, "binder");
    expect(start, bundle, "/nowhere/agent", NNP_NO_TRIAL, NNP_FAILED, "cannot be started");
    expect(start, bundle, "/bin/true", NNP_NO_TRIAL, NNP_FAILED, "did not begin");
    expect(start, bundle, NP_AGENT, scenario->cause, scenario->status, scenario->why);
    if (scenario->cause != NNP_TOO_LATE) { /* a late one would take its time again */
      nnp_bundle *apart = open_apart();
      expect(start, apart, NULL, NNP_NO_TRIAL, NNP_UNSUPPORTED, "binder");
      expect(start, apart, NP_AGENT, scenario->cause, scenario->status, scenario->why);
      nnp_bundle_close(apart);
    }
  } else {
    bundle = open_bundle();
    if (start->which == NEXT_START) { /* this helper could not be started */
      expect(start, bundle, "/nowhere/agent", scenario->cause, scenario->status, scenario->why);
      if (scenario->cause != NNP_TOO_LATE) {
        nnp_bundle *apart = open_apart();
        expect(start, apart, "/nowhere/agent", scenario->cause, scenario->status, scenario->why);
        nnp_bundle_close(apart);
      }
    } else {
      expect(start, bundle, NP_AGENT, NNP_NO_ACCELERATOR, NNP_MISSING, "sim-npu");
    }
  }
  nnp_bundle_close(bundle);
  return np_test_exit();
}

/* Runs a case in a separate process: a scenario, a start or, if both are NULL, the parts. */
static int run_apart(const struct scenario *scenario, const struct start *start) {
  const pid_t pid = fork();
  if (pid == 0) {
    exit(scenario ? run_scenario(scenario) : start ? run_start(start) : run_parts());
  }
  int status = 1;
  CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
  return CHECK(status == 0);
}

static void remove_files(const char *folder) {
  DIR *listing = opendir(folder);
  for (struct dirent *entry; listing && (entry = readdir(listing)) != NULL;) {
    (void)unlinkat(dirfd(listing), entry->d_name, 0);
  }
  CHECK(listing && closedir(listing) == 0);
}

/* On a system with binder: the folder replaces /dev, and has the verdicts. */
static void check_helpers(void) {
  char folder[] = "/tmp/nnapi-prof-trial-XXXXXX";
  CHECK(mkdtemp(folder) != NULL);
  for (int i = 0; i < N_HELPED; i++) {
    char binder[512];
    (void)snprintf(binder, sizeof binder, "%s/%s", folder, i % 2 ? "binder" : "hwbinder");
    const int fd = open(binder, O_WRONLY | O_CREAT, 0600);
    CHECK(fd >= 0 && close(fd) == 0);
    for (int which = FIRST_START; which < N_STARTS; which++) {
      const struct start start = {&helped[i], folder, which};
      if (!run_apart(NULL, &start)) {
        (void)fprintf(stderr, "helper: %s, start %d\n", helped[i].faults, which);
      }
    }
    remove_files(folder);
  }
  CHECK(rmdir(folder) == 0);
}

/* ---- Calls that come back after they were given up ---- */

struct np_compiled {
  int runs;
};

/* An engine whose runs wait until they are released. */
struct slow {
  sem_t go, gone;
  struct np_compiled compiled;
};

static enum np_status slow_compile(void *ctx, const struct np_model *model,
                                   const struct np_options *options, struct np_compiled **compiled,
                                   struct np_fault *fault) {
  (void)model, (void)options, (void)fault;
  *compiled = &((struct slow *)ctx)->compiled;
  return NP_OK;
}

static struct slow slow;

static enum np_status slow_run(struct np_compiled *compiled, const struct np_io *inputs,
                               const struct np_io *outputs, struct np_fault *fault) {
  (void)inputs, (void)fault;
  CHECK(sem_wait(&slow.go) == 0);
  *(float *)outputs[0].data = (float)++compiled->runs;
  return NP_OK;
}

static void slow_free(struct np_compiled *compiled) { compiled->runs = -1; }

static void hold(void *ctx) { (*(int *)ctx)++; }

static void release(void *ctx) {
  (*(int *)ctx)--;
  CHECK(sem_post(&slow.gone) == 0);
}

static void check_late_return(int is_freed_first) {
  static const uint32_t output_operand = 0;
  const struct timespec pause = {0, 1000000};
  const struct np_model model = {.graph = {.n_outputs = 1, .outputs = &output_operand}};
  const struct np_options options = {.accelerator = "slow"};
  _Atomic uint32_t n_left = 0;
  int holders = 0;
  float value = 0;
  const struct np_io output = {.data = &value, .n_bytes = sizeof value};
  struct np_fault fault = {.has_code = 0};
  slow.compiled.runs = 0;
  CHECK(sem_init(&slow.go, 0, 1) == 0 && sem_init(&slow.gone, 0, 0) == 0);
  const struct np_guarded guarded = {
      .engine = {.ctx = &slow, .compile = slow_compile, .run = slow_run, .free = slow_free},
      .hold = hold,
      .release = release,
      .ctx = &holders,
      .n_left = &n_left};
  struct np_guard *guard = np_guard_make(&guarded);
  CHECK(np_guard_compile(guard, &model, &options, UINT64_MAX, &fault) == NP_OK && holders == 1);
  CHECK(np_guard_run(guard, NULL, &output, UINT64_MAX, &fault) == NP_OK && value == 1);
  CHECK(np_guard_run(guard, NULL, &output, MS, &fault) == NP_DEADLINE);
  CHECK_TEXT(fault.why.text, "a run on slow took longer than 1 ms");
  CHECK(np_guard_run(guard, NULL, &output, MS, &fault) == NP_DEADLINE);
  if (is_freed_first) {
    np_guard_free(guard);
    CHECK(atomic_load(&n_left) == 1);
    CHECK(sem_post(&slow.go) == 0 && sem_wait(&slow.gone) == 0);
    while (atomic_load(&n_left) != 0) {
      (void)nanosleep(&pause, NULL);
    }
  } else {
    CHECK(sem_post(&slow.go) == 0 && sem_post(&slow.go) == 0);
    enum np_status status = NP_DEADLINE;
    for (int i = 0; i < 1000 && status == NP_DEADLINE; i++) {
      status = np_guard_run(guard, NULL, &output, 5000 * MS, &fault);
      (void)nanosleep(&pause, NULL);
    }
    CHECK(status == NP_OK && value == 3);
    np_guard_free(guard);
  }
  CHECK(holders == 0 && slow.compiled.runs == -1 && value == (is_freed_first ? 1 : 3));
}

int main(void) {
  for (int i = 0; i < N_SCENARIOS; i++) {
    if (!run_apart(&scenarios[i], NULL)) {
      (void)fprintf(stderr, "scenario %d: %s, flags %u\n", i, scenarios[i].faults,
                    scenarios[i].flags);
    }
  }
  (void)run_apart(NULL, NULL);
  check_helpers();
  check_late_return(0);
  check_late_return(1);
  return np_test_exit();
}
