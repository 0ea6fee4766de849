/* A valid request as data, and each rule of PROTOCOL.md, section 3, broken. */
#include "build_request.h"
#include "np_test.h"
#include "request.h"

/* Offsets of fields in the sections that np_build_sections makes. */
enum {
  ACTION = 4,
  FLAGS = ACTION + 8,
  GROUP = ACTION + 28,
  WARMUP = ACTION + 32, /* min, max */
  ROUNDS = ACTION + 48,
  RUNS = ACTION + 52, /* min, max */
  COOLDOWN = ACTION + 68,
  TENSORS = ACTION + 72,  /* their count */
  TENSOR_0 = TENSORS + 4, /* type, rank, two dims, source, value, keep */
  TENSOR_1 = TENSOR_0 + 28,
  SEGMENTS = TENSOR_0 + 84, /* their count */
  SEGMENT_0 = SEGMENTS + 4, /* engine, accelerator, preference, flags, model, */
  INPUT_0 = SEGMENT_0 + 20, /* 1, tensor, order */
  OUTPUT_0 = INPUT_0 + 12,
  SEGMENT_1 = SEGMENT_0 + 44,
};

static void check_valid(void) {
  struct np_build_request sections;
  struct np_build container;
  struct np_request request;
  struct np_message why = {""};
  np_build_sections(&sections);
  np_build_container(&sections, &container);
  if (CHECK(np_request_open(container.bytes, container.n, &request, &why) == NP_OK)) {
    CHECK(request.n_blobs == 1 && request.blobs[0].length == 16);
    CHECK(request.n_strings == 1 && request.strings[0].length == 7);
    CHECK(request.n_models == 1 && request.n_actions == 1);
    const struct np_action *action = &request.actions[0];
    CHECK(action->id == 7 && action->timeout_ms == 10000 && action->threads == 2);
    CHECK(action->cpu_mask == 0x30 && action->memory_kb == 4096 && action->group == 5);
    CHECK(action->warmup_min == 1 && action->warmup_max == 9 && action->warmup_ns == 1000);
    CHECK(action->rounds == 2 && action->min_runs == 2 && action->max_runs == 3);
    CHECK(action->budget_ns == 1u << 20 && action->cooldown_ms == 250);
    CHECK(action->n_tensors == 3 && action->n_segments == 2);
    CHECK(action->tensors[0].source == NP_PSEUDO_RANDOM && action->tensors[0].value == 99);
    CHECK(action->tensors[2].keep == 1 && action->tensors[2].n_bytes == 16);
    CHECK(action->segments[0].engine == NP_ENGINE_CPU && action->segments[0].preference == -1);
    CHECK(action->segments[1].engine == NP_ENGINE_NNAPI && action->segments[1].preference == 1);
    CHECK(action->segments[1].accelerator == 0 && action->segments[1].flags == NP_SEGMENT_RELAXED);
    CHECK(action->segments[1].inputs[0].tensor == 1 && action->segments[1].outputs[0].tensor == 2);
  } else {
    (void)fprintf(stderr, "%s\n", why.text);
  }
  np_request_free(&request);
}

/* Refuses the request whose section (an offset of struct np_build_request) has another word. */
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
  CHECK(np_request_open(container.bytes, container.n, &request, &why) == NP_BAD_REQUEST);
  CHECK_TEXT(why.text, wanted);
  np_request_free(&request);
}

#define HEAD offsetof(struct np_build_request, head)
#define BLOB offsetof(struct np_build_request, blob)
#define STRS offsetof(struct np_build_request, strs)
#define DRVS offsetof(struct np_build_request, drvs)
#define MODL offsetof(struct np_build_request, modl)
#define ACTN offsetof(struct np_build_request, actn)

static void check_sections(void) {
  check_refused(HEAD, 0, 1, "HEAD: protocol version 1");
  check_refused(HEAD, 8, 0, "HEAD: 12 bytes do not fit its 0 clocks");
  check_refused(BLOB, 0, 2, "BLOB: 2 items do not fit");
  check_refused(BLOB, 0, 0, "BLOB: 40 bytes stand after its last item");
  check_refused(BLOB, 4, 12,
                "MODL: model 0: operand 1: bytes 0 + 16 of buffer 0, whose blob has 12");
  check_refused(BLOB, 8, 0xffffffff, "BLOB: blob 0: ");
  check_refused(STRS, 4, 9, "STRS: string 0 of 9 bytes is cut off");
  check_refused(STRS, 4, 8, "STRS: string 0: byte 7 breaks the rule");
  check_refused(STRS, 4, 6, "STRS: string 0: byte 6 breaks the rule");
  check_refused(DRVS, 0, 2, "DRVS: 2 items do not fit");
  check_refused(DRVS, 0, 0, "DRVS: 12 bytes stand after its last item");
  check_refused(DRVS, 4, 1, "DRVS: driver 0: string 1 of 1");
  check_refused(DRVS, 8, 0, "DRVS: driver 0: string 0 of 1, room 0 of 32");
  check_refused(DRVS, 8, 33, "DRVS: driver 0: string 0 of 1, room 33 of 32");
  check_refused(DRVS, 12, 5, "memory 5 of 4");
  check_refused(MODL, 0, 0xffffffff, "MODL: 4294967295 items do not fit");
  check_refused(MODL, 4, 2, "MODL: model 0: bytes 2 + ");
  check_refused(MODL, 4, 0xfffffffc, "MODL: model 0: bytes 4294967292 + ");
  check_refused(MODL, 12, 0, "MODL: model 0: it is empty");
  check_refused(MODL, 20, 9, "MODL: model 0: it is cut off");
  check_refused(MODL, 24, 1, "MODL: model 0: buffer 0: blob 1 of 1");
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
  check_refused(ACTN, FLAGS, 64, "flags 0x40, known are bits 0 to 5");
  check_refused(ACTN, FLAGS, 5, "burst (bit 0) and async (bit 2)");
  check_refused(ACTN, FLAGS, 2, "max_runs 3 and rounds 2, want 1 and 1 without timing");
  check_refused(ACTN, TENSORS, 0x10000000, "268435456 tensors do not fit");
  check_refused(ACTN, TENSOR_0, 15, "tensor 0: unknown type 15");
  check_refused(ACTN, TENSOR_0, NP_TYPE_FLOAT32, "tensor 0: rank 2, want 0 for type 0");
  check_refused(ACTN, TENSOR_0 + 8, 0, "tensor 0: dimension 0 is 0");
  check_refused(ACTN, TENSOR_0 + 16, 4, "tensor 0: source 4");
  check_refused(ACTN, TENSOR_0 + 16, 1, "tensor 0: blob 99 of 1");
  check_refused(ACTN, TENSOR_0 + 16, 3, "tensor 0: value 99, want 0 for source 3");
  check_refused(ACTN, TENSOR_0 + 24, 2, "tensor 0: keep 2");
  check_refused(ACTN, TENSOR_1 + 12, 5, "segment 0: output 0: tensor 1 has another type or shape");
  check_refused(ACTN, TENSOR_1, NP_TYPE_TENSOR_INT32, "tensor 1 has another type or shape");
  check_refused(ACTN, TENSOR_1 + 16, 3, "segment 0: output 0: tensor 1 has its bytes already");
  check_refused(ACTN, SEGMENTS, 0, "0 segments, want at least 1");
  check_refused(ACTN, SEGMENTS, 0x10000000, "268435456 segments");
  check_refused(ACTN, SEGMENT_0, 2, "segment 0: engine 2");
  check_refused(ACTN, SEGMENT_1 + 4, 1, "segment 1: accelerator: string 1 of 1");
  check_refused(ACTN, SEGMENT_1 + 8, 3, "segment 1: preference 3");
  check_refused(ACTN, SEGMENT_1 + 12, 2, "segment 1: flags 0x2");
  check_refused(ACTN, SEGMENT_0 + 16, 1, "segment 0: model 1 of 1");
  check_refused(ACTN, INPUT_0, 0xffffffff, "segment 0: it is cut off");
  check_refused(ACTN, INPUT_0, 0x80000001, "segment 0: it is cut off");
  check_refused(ACTN, INPUT_0, 0, "segment 0: 0 inputs and 0 outputs, model 0 has 1 and 1");
  check_refused(ACTN, INPUT_0 + 4, 3, "segment 0: input 0: tensor 3 of 3");
  check_refused(ACTN, INPUT_0 + 4, 1, "segment 0: input 0: tensor 1 is read before");
  check_refused(ACTN, OUTPUT_0 + 4, 2, "segment 1: input 0: tensor 1 is read before");
  check_refused(ACTN, SEGMENT_1 + 44, 0, "ACTN: 4 bytes stand after its last item");
  check_refused(ACTN, 0, 2, "ACTN: ");
}

/* Layouts are the model's: an order that is not 0 is refused. */
static void check_orders(void) {
  check_refused(ACTN, INPUT_0 + 8, 0x10, "segment 0: input 0: order 0x10, want 0");
  check_refused(ACTN, OUTPUT_0 + 8, 0xffffffff, "segment 0: output 0: order 0xffffffff, want 0");
}

/* Three actions; `at` of the second one gets another word. NULL: it is fine. */
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
  const enum np_status status = np_request_open(container.bytes, container.n, &request, &why);
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
}

/* The same action twice: its id is no longer unique. */
static void check_ids(void) {
  struct np_build_request sections;
  struct np_build container;
  struct np_request request;
  struct np_message why = {""};
  np_build_sections(&sections);
  struct np_build *actn = &sections.actn;
  const size_t n = actn->n - 4;
  memcpy(actn->bytes + actn->n, actn->bytes + 4, n);
  actn->n += n;
  actn->bytes[0] = 2;
  np_build_container(&sections, &container);
  CHECK(np_request_open(container.bytes, container.n, &request, &why) == NP_BAD_REQUEST);
  CHECK_TEXT(why.text, "two actions have the id 7");
  np_request_free(&request);
}

int main(void) {
  check_valid();
  check_sections();
  check_action();
  check_orders();
  check_groups();
  check_ids();
  return np_test_exit();
}
