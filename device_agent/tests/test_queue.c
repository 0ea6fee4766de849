/* Queues of frames from C, on a simulated phone whose drivers fail now and then: every frame is
 * returned once, in order, with its own result, whatever happens to the others.
 *
 *   test_queue [FRAMES]     as many frames in all; 100,000 in `make soak`
 */
#define _POSIX_C_SOURCE 200809L

#include <pthread.h>
#include <time.h>

#include "build_bundle.h"
#include "mixture.h"
#include "nnapi_prof_runtime.h"
#include "np_test.h"

#define RING                                                                                       \
  128u            /* buffers of the caller's: more than twice as many as frames can be in flight   \
                   */
#define N_WAYS 5u /* to run them: see main */
#define N_ACCELERATORS 2u

/* Every 7th run of one accelerator fails from the 45th on, every 11th of the other from the 43rd
 * on: by then each pipeline has run, so that failures are not blamed on shared memory and silently
 * retried. */
#define FAULTS "fail:execute:ADD:1:45/7@sim-npu,refuse:execute:ADD:1:43/11@sim-gpu"
static const struct {
  uint64_t from, every;
} faults[N_ACCELERATORS] = {{45, 7}, {43, 11}};

static nnp_bundle *open_bundle(void) {
  static struct np_build container;
  struct np_build_bundle sections;
  nnp_bundle *bundle = NULL;
  nnp_error error;
  np_build_mixture_sections(&sections);
  np_build_bundle_container(&sections, &container);
  CHECK(nnp_bundle_open_memory(container.bytes, container.n, &bundle, &error) == NNP_OK);
  return bundle;
}

/* A frame's input, and three times relu(x + b) of it. */
static void make_input(uint64_t number, float *x) {
  for (int i = 0; i < 4; i++) {
    x[i] = (float)((number * 7 + (uint64_t)i * 13) % 101) - 50.0f;
  }
}

static int is_right(uint64_t number, const float *y) {
  float x[4];
  make_input(number, x);
  for (int i = 0; i < 4; i++) {
    for (int turn = 0; turn < 3; turn++) {
      x[i] = x[i] + (float)(i + 1) > 0 ? x[i] + (float)(i + 1) : 0;
    }
  }
  return memcmp(x, y, sizeof x) == 0;
}

/* ---- Frames by a submitter and a receiver, each a thread ---- */

struct trial {
  const nnp_bundle *bundle;
  nnp_queue *queue;
  uint64_t n;
  int own; /* the queue's buffers, not the caller's */
  float inputs[RING][4];
  float outputs[RING][4];
  uint64_t runs[N_ACCELERATORS], failures[N_ACCELERATORS], spans;
};

static void *submit_all(void *argument) {
  struct trial *trial = argument;
  for (uint64_t i = 0; i < trial->n; i++) {
    float *input = trial->inputs[i % RING];
    float *output = trial->outputs[i % RING];
    if (trial->own) {
      CHECK(nnp_queue_room(trial->queue, NNP_FOREVER));
      make_input(i, nnp_queue_input(trial->queue, 0));
    } else {
      make_input(i, input);
    }
    const void *inputs[1] = {input};
    void *outputs[1] = {output};
    nnp_error error;
    CHECK(nnp_queue_submit(trial->queue, trial->own ? NULL : inputs, trial->own ? NULL : outputs,
                           NNP_FOREVER, &error) == NNP_OK);
  }
  return NULL;
}

/* Returns the accelerator that ran a segment of a plan; -1: the CPU. */
static int accelerator_of(const nnp_queue *queue, uint32_t plan, uint32_t segment) {
  nnp_segment facts = {.engine = ""};
  CHECK(nnp_queue_segment(queue, plan, segment, &facts) == NNP_OK && !facts.fell_back);
  return strcmp(facts.engine, "cpu") == 0 ? -1 : strcmp(facts.accelerator, "sim-npu") != 0;
}

/* Records where the frame ran, and checks that its segments ran one after the other. */
static void note_spans(struct trial *trial, const nnp_frame *frame, nnp_status status,
                       const nnp_error *error) {
  uint64_t before = 0;
  for (uint32_t s = 0; s < 3; s++) {
    nnp_span span;
    CHECK(nnp_queue_span(trial->queue, s, &span) == NNP_OK);
    const int is_run = status == NNP_OK || (int32_t)s <= error->segment;
    CHECK((span.begin_ns != NNP_UNKNOWN_NS) == is_run);
    if (!is_run) {
      continue;
    }
    CHECK(span.begin_ns >= before && span.end_ns >= span.begin_ns);
    before = span.end_ns;
    trial->spans++;
    const int accelerator = accelerator_of(trial->queue, frame->plan, s);
    if (accelerator >= 0) {
      trial->runs[accelerator]++;
      trial->failures[accelerator] += status != NNP_OK && (int32_t)s == error->segment;
    }
  }
}

static void receive_all(struct trial *trial) {
  for (uint64_t i = 0; i < trial->n; i++) {
    nnp_frame frame;
    nnp_error error;
    const nnp_status status = nnp_queue_wait(trial->queue, NNP_FOREVER, &frame, &error);
    if (!CHECK(frame.number == i && frame.plan == nnp_bundle_select(trial->bundle, i))) {
      return;
    }
    note_spans(trial, &frame, status, &error);
    if (status == NNP_OK) {
      CHECK(is_right(i, trial->own ? nnp_queue_output(trial->queue, 0) : trial->outputs[i % RING]));
    } else {
      CHECK(status == NNP_FAILED && error.status == NNP_FAILED && error.nnapi_code != 0);
      CHECK_TEXT(error.message, "compute");
      CHECK(accelerator_of(trial->queue, frame.plan, (uint32_t)error.segment) >= 0);
    }
  }
}

/* Both plans share one compilation for each accelerator, so that its runs are counted together, and
 * exactly the due ones fail. */
static void check_faults(const struct trial *trial) {
  for (uint32_t a = 0; a < N_ACCELERATORS; a++) {
    const uint64_t runs = trial->runs[a];
    const uint64_t due = runs < faults[a].from ? 0 : (runs - faults[a].from) / faults[a].every + 1;
    CHECK(trial->failures[a] == due);
    CHECK(trial->n < 100 || due > 0);
  }
  uint64_t n_segments = 0;
  CHECK(nnp_queue_n_lanes(trial->queue) == 3);
  for (uint32_t i = 0; i < 3; i++) {
    nnp_lane lane;
    CHECK(nnp_queue_lane(trial->queue, i, &lane) == NNP_OK && lane.name[0] != 0);
    CHECK(trial->n < 100 || (lane.busy_ns > 0 && lane.n_segments > trial->n / 4));
    n_segments += lane.n_segments;
  }
  CHECK(n_segments == trial->spans);
}

static void check_frames(const nnp_bundle *bundle, uint64_t n, uint32_t frames, uint32_t flags,
                         int own) {
  static struct trial trial;
  trial = (struct trial){.bundle = bundle, .n = n, .own = own};
  nnp_queue_options options = nnp_queue_options_default();
  nnp_error error;
  pthread_t submitter;
  options.frames = frames;
  options.model.flags = flags;
  if (!CHECK(nnp_queue_open(bundle, &options, &trial.queue, &error) == NNP_OK)) {
    return;
  }
  CHECK(nnp_queue_n_frames(trial.queue) == (frames ? frames : 12));
  CHECK(pthread_create(&submitter, NULL, submit_all, &trial) == 0);
  receive_all(&trial);
  CHECK(pthread_join(submitter, NULL) == 0);
  check_faults(&trial);
  nnp_queue_close(trial.queue);
}

/* ---- One thread, no room, no time, no frame ---- */

static uint64_t now_ns(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void check_one_thread(const nnp_bundle *bundle) {
  nnp_queue_options options = nnp_queue_options_default();
  nnp_queue *queue = NULL;
  nnp_error error;
  nnp_frame frame;
  nnp_span span;
  nnp_segment segment;
  options.frames = 5;
  options.model.plan = 2;
  if (!CHECK(nnp_queue_open(bundle, &options, &queue, &error) == NNP_OK)) {
    return;
  }
  CHECK(nnp_queue_n_lanes(queue) == 1);
  CHECK(nnp_queue_segment(queue, 2, 2, &segment) == NNP_OK);
  CHECK(nnp_queue_segment(queue, 2, 3, &segment) == NNP_BAD_ARGUMENT);
  CHECK(nnp_queue_segment(queue, 0, 0, &segment) == NNP_BAD_ARGUMENT);
  CHECK(nnp_queue_span(queue, 0, &span) == NNP_BAD_ARGUMENT && !nnp_queue_output(queue, 0));
  CHECK(nnp_queue_wait(queue, 0, &frame, &error) == NNP_BUSY && frame.number == NNP_NO_FRAME);
  uint64_t before = now_ns();
  CHECK(nnp_queue_wait(queue, 20000000, NULL, &error) == NNP_BUSY);
  CHECK(now_ns() - before >= 20000000);
  uint64_t submitted = 0, handed = 0;
  while (handed < 40) {
    while (submitted < handed + 5) {
      CHECK(nnp_queue_room(queue, 0) && nnp_queue_input(queue, 0) && !nnp_queue_input(queue, 1));
      make_input(submitted++, nnp_queue_input(queue, 0));
      CHECK(nnp_queue_submit(queue, NULL, NULL, 0, &error) == NNP_OK);
    }
    CHECK(!nnp_queue_room(queue, 0) && !nnp_queue_input(queue, 0));
    before = now_ns();
    CHECK(nnp_queue_submit(queue, NULL, NULL, 1000000, &error) == NNP_BUSY);
    CHECK(error.status == NNP_BUSY && now_ns() - before >= 1000000);
    CHECK_TEXT(error.message, "5 frames are in flight");
    CHECK(nnp_queue_wait(queue, NNP_FOREVER, &frame, NULL) == NNP_OK);
    CHECK(frame.number == handed && frame.plan == 2 && frame.latency_ns > 0);
    CHECK(is_right(handed++, nnp_queue_output(queue, 0)) && !nnp_queue_output(queue, 1));
  }
  float input[5];
  const void *inputs[1] = {(char *)input + 1};
  CHECK(nnp_queue_submit(queue, inputs, NULL, 0, &error) == NNP_BAD_ARGUMENT);
  CHECK_TEXT(error.message, "multiple of 4 bytes");
  CHECK(nnp_queue_submit(NULL, NULL, NULL, 0, NULL) == NNP_BAD_ARGUMENT);
  CHECK(nnp_queue_wait(NULL, 0, NULL, NULL) == NNP_BAD_ARGUMENT);
  nnp_queue_close(queue); /* with frames in flight and one handed out */
  nnp_queue_close(NULL);
}

static void check_refusals(const nnp_bundle *bundle) {
  nnp_queue_options options = nnp_queue_options_default();
  nnp_queue *queue = NULL;
  nnp_error error;
  options.frames = NNP_MAX_FRAMES + 1;
  CHECK(nnp_queue_open(bundle, &options, &queue, &error) == NNP_BAD_ARGUMENT && !queue);
  CHECK_TEXT(error.message, "64 frames in flight, at most 63");
  options.frames = 2;
  options.model.plan = 3;
  CHECK(nnp_queue_open(bundle, &options, &queue, &error) == NNP_BAD_ARGUMENT);
  CHECK_TEXT(error.message, "plan 3 of 3");
  options = nnp_queue_options_default();
  options.nnapi_mask = UINT64_C(1) << 63;
  CHECK(nnp_queue_open(bundle, &options, &queue, &error) == NNP_BAD_ARGUMENT);
  CHECK_TEXT(error.message, "mask 0x8000000000000000");
  options = nnp_queue_options_default();
  options.model.flags = 0;
  options.model.nnapi_library = "libno-such-library.so";
  CHECK(nnp_queue_open(bundle, &options, &queue, &error) == NNP_MISSING);
  CHECK(nnp_queue_open(NULL, NULL, &queue, &error) == NNP_BAD_ARGUMENT);
  options.model.flags = NNP_CPU_FALLBACK;
  if (CHECK(nnp_queue_open(bundle, &options, &queue, &error) == NNP_OK)) {
    nnp_segment segment;
    CHECK(nnp_queue_n_lanes(queue) == 1);
    CHECK(nnp_queue_segment(queue, 0, 0, &segment) == NNP_OK && segment.fell_back);
    CHECK_TEXT(segment.why, "no NNAPI library");
    for (int i = 0; i < 3; i++) {
      make_input(0, nnp_queue_input(queue, 0));
      CHECK(nnp_queue_submit(queue, NULL, NULL, 0, &error) == NNP_OK);
      CHECK(nnp_queue_wait(queue, NNP_FOREVER, NULL, &error) == NNP_OK);
      CHECK(is_right(0, nnp_queue_output(queue, 0)));
    }
    nnp_queue_close(queue);
  }
}

/* ---- The rule of mixtures ---- */

static void check_rule(const nnp_bundle *bundle) {
  static const double shares[3] = {0.5, 0.3, 0.2};
  enum { N = 20000 };
  static uint8_t plans[N];
  uint32_t counts[3] = {0, 0, 0};
  for (uint32_t i = 0; i < N; i++) {
    plans[i] = (uint8_t)nnp_bundle_select(bundle, i);
    counts[plans[i]]++;
  }
  for (uint32_t p = 0; p < 3; p++) {
    CHECK(nnp_bundle_share(bundle, p) == shares[p]);
    CHECK(abs((int)counts[p] - (int)(N * shares[p])) < 5);
    for (uint32_t window = 1; window <= 64; window++) {
      uint32_t most = 0;
      for (uint32_t i = 0; i + window <= N; i++) {
        uint32_t n = 0;
        for (uint32_t j = i; j < i + window; j++) {
          n += plans[j] == p;
        }
        most = n > most ? n : most;
      }
      CHECK(most == np_mixture_most(shares[p], window));
    }
  }
  CHECK(nnp_bundle_share(bundle, 9) == 0);
}

int main(int argc, char **argv) {
  const uint64_t n = (argc > 1 ? strtoull(argv[1], NULL, 10) : 1500) / N_WAYS;
  static const uint32_t F = 0; /* no fallback: frames fail */
  if (setenv("NNAPI_EMULATOR_PHONE", NP_PHONES "/npu-phone.json", 1) != 0 ||
      setenv("NNAPI_EMULATOR_FAULTS", FAULTS, 1) != 0) {
    return 1;
  }
  nnp_bundle *bundle = open_bundle();
  if (bundle) {
    check_rule(bundle);
    check_refusals(bundle);
    check_one_thread(bundle);
    check_frames(bundle, n, 0, F, 0);
    check_frames(bundle, n, 1, F, 1);
    check_frames(bundle, n, 8, F | NNP_BURST, 1);
    check_frames(bundle, n, 3, F | NNP_ASYNC | NNP_DURATIONS, 0);
    check_frames(bundle, n, NNP_MAX_FRAMES, F | NNP_POINTERS, 0);
  }
  nnp_bundle_close(bundle);
  return np_test_exit();
}
