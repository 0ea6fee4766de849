/* Reads a valid request, and breaks each rule of PROTOCOL.md, section 3. test_library.c tests the
 * rules of bundles. */
#include "build_request.h"
#include "np_test.h"
#include "request.h"

/* Offsets of fields in the sections that np_build_sections makes. */
enum {
  ACTION = 4,
  FLAGS = ACTION + 8,
  GROUP = ACTION + 16,
  WARMUP = ACTION + 20, /* min, max */
  ROUNDS = ACTION + 52,
  RUNS = ACTION + 56, /* min, max */
  COOLDOWN = ACTION + 72,
  FRAMES = ACTION + 76,  /* in flight, variants */
  BUNDLE = ACTION + 84,  /* offset, length */
  WEIGHTS = BUNDLE + 16, /* 1, blob, offset */
  INPUTS = WEIGHTS + 16, /* 1, source, value */
  KEPT = INPUTS + 12,    /* 1, tensor */
};

static const struct np_bytes blobs[1] = {{(const uint8_t *)np_build_blob, sizeof np_build_blob}};

static enum np_status open_and_bind(const struct np_build *container, struct np_request *request,
                                    struct np_message *why) {
  const enum np_status status = np_request_open(container->bytes, container->n, request, why);
  return status == NP_OK ? np_request_bind(request, blobs, why) : status;
}

static void check_valid(void) {
  struct np_build_request sections;
  struct np_build container;
  struct np_request request;
  struct np_message why = {""};
  np_build_sections(&sections);
  np_build_container(&sections, &container);
  if (CHECK(open_and_bind(&container, &request, &why) == NP_OK)) {
    CHECK(request.n_blobs == 1 && request.blobs[0].length == 16);
    CHECK(request.n_strings == 1 && strcmp(request.strings[0], "sim-npu") == 0);
    CHECK(request.n_actions == 1 && request.wait_ms == NP_UNBOUNDED);
    const struct np_action *action = &request.actions[0];
    CHECK(action->id == 7 && action->timeout_ms == 10000 && action->threads == 2);
    CHECK(action->cpu_mask == 0x30 && action->memory_kb == 4096 && action->group == 5);
    CHECK(action->warmup_min == 1 && action->warmup_max == 9 && action->warmup_ns == 1000);
    CHECK(action->warm_ns == 20 && action->spin_ns == 30);
    CHECK(action->rounds == 2 && action->min_runs == 2 && action->max_runs == 3);
    CHECK(action->budget_ns == 1u << 20 && action->cooldown_ms == 250);
    CHECK(action->n_inputs == 1 && action->inputs[0].source == NP_PSEUDO_RANDOM);
    CHECK(action->inputs[0].value == 99 && action->n_kept == 1 && action->kept[0] == 2);
    const struct np_bundle *bundle = &action->bundle;
    CHECK(bundle->n_tensors == 3 && bundle->n_segments == 2 && bundle->n_plans == 1);
    CHECK(bundle->tensors[2].n_bytes == 16);
    CHECK(bundle->segments[0].engine == NP_BUNDLE_CPU && bundle->segments[0].preference == -1);
    CHECK(bundle->segments[1].engine == NP_BUNDLE_NNAPI && bundle->segments[1].preference == 1);
    CHECK(strcmp(bundle->segments[1].accelerator, "sim-npu") == 0);
    CHECK(bundle->segments[1].flags == NP_BUNDLE_RELAXED);
    CHECK(bundle->models[0].graph.operands[1].value == blobs[0].data);
  } else {
    (void)fprintf(stderr, "%s\n", why.text);
  }
  np_request_free(&request);
}

/* Checks that the request is refused after changing a word of a section (an offset in struct
 * np_build_request). */
static void check_refused(size_t section, size_t at, uint32_t word, const char *wanted) {
  struct np_build_request sections;
  struct np_build container;
  struct np_request request;
  struct np_message why = {""};
  np_build_sections(&sections);
  struct np_build *build = (struct np_build *)(void *)((char *)&sections + section);
  memcpy(build->bytes + at, &word, 4);
  if (at + 4 > build->n) {
    build->n = at + 4;
  }
  np_build_container(&sections, &container);
  CHECK(open_and_bind(&container, &request, &why) == NP_BAD_REQUEST);
  CHECK_TEXT(why.text, wanted);
  np_request_free(&request);
}

#define HEAD offsetof(struct np_build_request, head)
#define BLOB offsetof(struct np_build_request, blob)
#define STRS offsetof(struct np_build_request, strs)
#define DRVS offsetof(struct np_build_request, drvs)
#define DATA offsetof(struct np_build_request, data)
#define ACTN offsetof(struct np_build_request, actn)

static void check_sections(void) {
  check_refused(HEAD, 0, 4, "HEAD: protocol version 4");
  check_refused(HEAD, 12, 1, "HEAD: 16 bytes do not fit its 1 clocks");
  check_refused(BLOB, 0, 2, "BLOB: 2 items do not fit");
  check_refused(BLOB, 0, 0, "BLOB: 40 bytes stand after its last item");
  check_refused(BLOB, 8, 0xffffffff, "BLOB: blob 0: ");
  check_refused(STRS, 4, 9, "STRS: string 0 of 9 bytes is cut off");
  check_refused(STRS, 4, 8, "STRS: string 0 of 8 bytes is cut off or holds a zero");
  check_refused(DRVS, 0, 2, "DRVS: 2 items do not fit");
  check_refused(DRVS, 0, 0, "DRVS: 12 bytes stand after its last item");
  check_refused(DRVS, 4, 1, "DRVS: driver 0: string 1 of 1");
  check_refused(DRVS, 8, 0, "DRVS: driver 0: string 0 of 1, room 0 of 32");
  check_refused(DRVS, 8, 33, "DRVS: driver 0: string 0 of 1, room 33 of 32");
  check_refused(DRVS, 12, 5, "memory 5 of 4");
  check_refused(DATA, 0, 0, "ACTN: action 0 (id 7): the first bytes are");
}

static void check_action(void) {
  check_refused(ACTN, ACTION + 4, 0, "ACTN: action 0 (id 7): timeout_ms 0");
  check_refused(ACTN, RUNS, 0, "min_runs 0 and max_runs 3");
  check_refused(ACTN, RUNS + 4, 1, "min_runs 2 and max_runs 1");
  check_refused(ACTN, RUNS + 4, 100001, "max_runs 100001");
  check_refused(ACTN, WARMUP, 10, "warmup_min 10 and warmup_max 9");
  check_refused(ACTN, WARMUP + 4, 100001, "warmup_max 100001");
  check_refused(ACTN, ROUNDS, 0, "rounds 0, want 1 to 1000");
  check_refused(ACTN, ROUNDS, 1001, "rounds 1001, want 1 to 1000");
  check_refused(ACTN, FLAGS, 64, "flags 0x40, known are bits 0 to 4");
  check_refused(ACTN, FLAGS, 17, "flags 0x11, known are bits 0 to 4, and one of");
  check_refused(ACTN, FLAGS, 3, "flags 0x3, known are bits 0 to 4, and one of");
  check_refused(ACTN, FLAGS, 1, "max_runs 3 and rounds 2, want 1 and 1 without timing");
  check_refused(ACTN, FLAGS, 2, "min_runs 2 and max_runs 3, want the same side by side");
  check_refused(ACTN, FLAGS, 4, "0 frames in flight and 0 variants");
  check_refused(ACTN, FRAMES, 1, "1 frames in flight and 0 variants");
  check_refused(ACTN, BUNDLE, 4, "bundle: bytes 4 + ");
  check_refused(ACTN, BUNDLE, 0xfffffff8, "bundle: bytes 4294967288 + ");
  check_refused(ACTN, BUNDLE + 8, 0, "ACTN: action 0 (id 7): 0 bytes are no container");
  check_refused(ACTN, WEIGHTS, 0x80000000, "it is cut off");
  check_refused(ACTN, WEIGHTS + 4, 1, "weights 0: blob 1 of 1");
  check_refused(ACTN, WEIGHTS + 8, 64, "MODL: model 0: buffer 0: bytes 0 + 16 lie in no part");
  check_refused(ACTN, INPUTS, 0xffffffff, "it is cut off");
  check_refused(ACTN, INPUTS + 4, 0, "input 0: source 0 with value 99, 1 blobs");
  check_refused(ACTN, INPUTS + 4, 1, "input 0: source 1 with value 99, 1 blobs");
  check_refused(ACTN, INPUTS + 4, 3, "input 0: source 3 with value 99, 1 blobs");
  check_refused(ACTN, INPUTS + 4, 4, "input 0: source 4 with value 99, 1 blobs");
  check_refused(ACTN, KEPT + 4, 3, "kept 0: tensor 3 of 3");
  check_refused(ACTN, KEPT + 8, 0, "ACTN: 4 bytes stand after its last item");
  check_refused(ACTN, 0, 2, "ACTN: ");
}

/* Changes word `at` of the second of three actions. `wanted` NULL: the request stays valid. */
static void check_group(uint32_t at, uint32_t word, uint32_t end, const char *wanted) {
  struct np_build_request sections;
  struct np_build container;
  struct np_request request;
  struct np_message why = {""};
  np_build_sections(&sections);
  const size_t size = sections.actn.n - 4;
  np_build_multiply(&sections, 3);
  memcpy(sections.actn.bytes + size + at, &word, 4);
  np_build_container(&sections, &container);
  const enum np_status status = open_and_bind(&container, &request, &why);
  CHECK(status == (wanted ? NP_BAD_REQUEST : NP_OK));
  if (wanted) {
    CHECK_TEXT(why.text, wanted);
  } else {
    CHECK(np_request_group_end(&request, 0) == end && np_request_group_end(&request, 2) == 3);
  }
  np_request_free(&request);
}

static void check_groups(void) {
  check_group(GROUP, 5, 3, NULL);
  check_group(GROUP, 6, 1, NULL);
  check_group(GROUP, 0, 1, NULL);
  check_group(COOLDOWN, 7, 0, "ACTN: action 1 (id 101): rounds 2 and cooldown_ms 7, its group has");
  check_group(ROUNDS, 1, 0, "ACTN: action 1 (id 101): rounds 1 and cooldown_ms 250, its group has");
  check_group(ACTION, 7, 0, "two actions have the id 7");
}

int main(void) {
  check_valid();
  check_sections();
  check_action();
  check_groups();
  return np_test_exit();
}
