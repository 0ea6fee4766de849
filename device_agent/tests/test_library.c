/* The runtime library from C: runs, refusals, several threads, and broken files. */
#define _POSIX_C_SOURCE 200809L

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include "build_bundle.h"
#include "nnapi_prof_runtime.h"
#include "np_test.h"
#include "sysinfo.h"

#ifndef N_MUTATED
#define N_MUTATED 30000
#endif

static nnp_bundle *open_sections(const struct np_build_bundle *sections, struct np_build *container,
                                 nnp_error *error) {
  nnp_bundle *bundle = NULL;
  np_build_bundle_container(sections, container);
  if (nnp_bundle_open_memory(container->bytes, container->n, &bundle, error) != NNP_OK) {
    return NULL;
  }
  return bundle;
}

/* y = relu(relu(x + b) + b) */
static int is_right(const float *y, const float *x) {
  int right = 1;
  for (int i = 0; i < 4; i++) {
    const float b = (float)(i + 1);
    const float once = x[i] + b > 0 ? x[i] + b : 0;
    right &= y[i] == once + b;
  }
  return right;
}

static void check_runs(const nnp_bundle *bundle);

/* Weights stored outside the bundle, right and wrong ones. */
static void check_parts(void) {
  static const _Alignas(8) float weights[4] = {1, 2, 3, 4};
  struct np_build_bundle sections;
  struct np_build container;
  nnp_bundle *bundle = NULL;
  nnp_error error;
  np_build_bundle_sections(&sections);
  sections.wght.n = 0;
  np_build_bundle_container(&sections, &container);
  CHECK(nnp_bundle_open_memory(container.bytes, container.n, &bundle, &error) == NNP_BAD_BUNDLE);
  nnp_weights part = {0, weights, sizeof weights};
  if (CHECK(nnp_bundle_open_parts(container.bytes, container.n, &part, 1, &bundle, &error) ==
            NNP_OK)) {
    check_runs(bundle);
    nnp_bundle_close(bundle);
  }
  part.n_bytes = sizeof weights - 1;
  CHECK(nnp_bundle_open_parts(container.bytes, container.n, &part, 1, &bundle, &error) ==
        NNP_BAD_BUNDLE);
  part = (nnp_weights){64, weights, sizeof weights};
  CHECK(nnp_bundle_open_parts(container.bytes, container.n, &part, 1, &bundle, &error) ==
        NNP_BAD_BUNDLE);
  part = (nnp_weights){0, (const char *)weights + 1, 8};
  CHECK(nnp_bundle_open_parts(container.bytes, container.n, &part, 1, &bundle, &error) ==
        NNP_BAD_ARGUMENT);
}

static void check_runs(const nnp_bundle *bundle) {
  const nnp_tensor *x = nnp_bundle_input(bundle, 0);
  const nnp_tensor *y = nnp_bundle_output(bundle, 0);
  CHECK(nnp_bundle_n_inputs(bundle) == 1 && nnp_bundle_n_outputs(bundle) == 1);
  CHECK(!nnp_bundle_input(bundle, 1) && !nnp_bundle_output(bundle, 1));
  CHECK(nnp_bundle_n_plans(bundle) == 3 && !nnp_bundle_plan(bundle, 3));
  CHECK(nnp_bundle_share(bundle, 0) == 0 && nnp_bundle_select(bundle, 7) == 0);
  CHECK(strcmp(x->name, "x") == 0 && strcmp(y->name, "y") == 0);
  CHECK(y->rank == 2 && y->dims[0] == 1 && y->dims[1] == 4 && y->n_bytes == 16);
  CHECK(y->dim_order[0] == 1 && y->dim_order[1] == 0 && x->dim_order[0] == 0);
  for (uint32_t plan = 0; plan < 3; plan++) {
    nnp_options options = nnp_options_default();
    nnp_error error;
    nnp_model *model = NULL;
    options.plan = plan;
    if (!CHECK(nnp_model_compile(bundle, &options, &model, &error) == NNP_OK)) {
      continue;
    }
    for (int run = 0; run < 4; run++) {
      const float input[4] = {(float)run, -2, -9, 0.5f};
      float output[4] = {0};
      const void *inputs[1] = {input};
      void *outputs[1] = {output};
      if (run % 2 == 0) {
        CHECK(nnp_model_run(model, inputs, outputs, &error) == NNP_OK);
        CHECK(is_right(output, input));
      } else {
        memcpy(nnp_model_input(model, 0), input, sizeof input);
        CHECK(nnp_model_run(model, NULL, NULL, NULL) == NNP_OK);
        CHECK(is_right(nnp_model_output(model, 0), input));
      }
    }
    CHECK((uintptr_t)nnp_model_input(model, 0) % 64 == 0 && !nnp_model_input(model, 1));
    CHECK(nnp_model_n_segments(model) == 2);
    nnp_segment segment;
    CHECK(nnp_model_segment(model, 1, &segment) == NNP_OK);
    /* The emulator without a phone has no "sim-npu". */
    CHECK(segment.fell_back == (plan == 0));
    CHECK(strcmp(segment.engine, plan == 1 ? "nnapi" : "cpu") == 0);
    if (plan == 0) {
      CHECK_TEXT(segment.why, "sim-npu");
    }
    CHECK(nnp_model_segment(model, 2, &segment) == NNP_BAD_ARGUMENT);
    nnp_model_free(model);
  }
}

/* Checks plan 0, whose second segment falls back; the predictions are 1 and 2 ms. */
static void check_description(void) {
  struct np_build_bundle sections;
  struct np_build container;
  nnp_error error;
  nnp_model *model = NULL;
  nnp_options options = nnp_options_default();
  options.plan = 0;
  np_build_bundle_sections(&sections);
  for (int with_units = 0; with_units < 2; with_units++) {
    if (with_units) {
      np_put_units(&sections.unit, 6, 4);
    }
    nnp_bundle *bundle = open_sections(&sections, &container, &error);
    if (!CHECK(bundle && nnp_model_compile(bundle, &options, &model, &error) == NNP_OK)) {
      continue;
    }
    nnp_unit units[4];
    char line[256];
    const uint32_t n = with_units ? 4 : 2;
    CHECK(nnp_model_describe(model, units, 4) == n && nnp_model_describe(model, NULL, 0) == n);
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
      const int is_second = i >= n / 2;
      CHECK(units[i].segment == (uint32_t)is_second && strcmp(units[i].engine, "cpu") == 0);
      CHECK(units[i].fell_back == is_second && !units[i].accelerator);
      CHECK(units[i].cause == (is_second ? NNP_NO_ACCELERATOR : NNP_NO_CAUSE));
      CHECK(strcmp(units[i].name, with_units ? "x" : "") == 0);
      sum += units[i].share;
    }
    CHECK_TEXT(units[n - 1].why, "sim-npu");
    CHECK(sum == (with_units ? 1 : 2 * NNP_UNKNOWN_SHARE));
    CHECK(!with_units || units[3].share == 0.75 * 2 / 3);
    const size_t length = nnp_model_describe_line(model, line, sizeof line);
    CHECK(length == strlen(line) && nnp_model_describe_line(model, line, 8) == length);
    CHECK(strcmp(line, "plan mi") == 0);
    (void)nnp_model_describe_line(model, line, sizeof line);
    CHECK_TEXT(line, with_units
                         ? "predicted 3.000 ms, 2 segments: 2 on the CPU (100.0 %); segment 1"
                         : "2 segments: 2 on the CPU; segment 1 fell back from sim-npu: ");
    nnp_model_free(model);
    nnp_bundle_close(bundle);
  }
}

static void count_events(void *context, const nnp_event *event) {
  CHECK(event->segment == NNP_NO_SEGMENT && event->cause == NNP_NO_CAUSE);
  CHECK_TEXT(event->message, "cannot be had");
  (*(int *)context)++;
}

/* Cores of a bundle: those of a mask, which the caller's override, and missing ones, which are
 * reported once. */
static void check_cores(void) {
  const uint64_t masks[] = {np_affinity() & (~np_affinity() + 1), UINT64_C(1) << 63};
  for (int i = 0; i < 2; i++) {
    struct np_build_bundle sections;
    struct np_build container;
    nnp_error error;
    nnp_model *model = NULL;
    int n_events = 0;
    np_build_bundle_sections(&sections);
    np_put_conditions(&sections.cond, 2, masks[i], 0);
    nnp_bundle *bundle = open_sections(&sections, &container, &error);
    nnp_options options = nnp_options_default();
    options.plan = 2;
    options.log = count_events;
    options.log_context = &n_events;
    if (CHECK(bundle && nnp_model_compile(bundle, &options, &model, &error) == NNP_OK)) {
      CHECK(nnp_model_run(model, NULL, NULL, &error) == NNP_OK && n_events == i);
      nnp_model_free(model);
    }
    options.flags &= ~(uint32_t)NNP_AS_MEASURED;
    n_events = 0;
    CHECK(nnp_model_compile(bundle, &options, &model, &error) == NNP_OK && n_events == 0);
    nnp_model_free(model);
    nnp_bundle_close(bundle);
  }
  struct np_build_bundle sections;
  struct np_build container;
  nnp_error error;
  np_build_bundle_sections(&sections);
  np_put_conditions(&sections.cond, 3, 0, 0);
  CHECK(!open_sections(&sections, &container, &error));
  CHECK_TEXT(error.message, "COND");
  sections.cond.n = 0;
  np_put_units(&sections.unit, 5, 4);
  CHECK(!open_sections(&sections, &container, &error));
  CHECK_TEXT(error.message, "UNIT");
}

static void check_refusals(const nnp_bundle *bundle) {
  nnp_error error;
  nnp_model *model;
  nnp_options options = {.plan = 0};
  CHECK(nnp_model_compile(bundle, &options, &model, &error) == NNP_MISSING);
  CHECK(error.status == NNP_MISSING && error.segment == 1 && model == NULL);
  CHECK_TEXT(error.message, "no accelerator is called \"sim-npu\"");
  options.plan = 3;
  CHECK(nnp_model_compile(bundle, &options, &model, &error) == NNP_BAD_ARGUMENT);
  CHECK_TEXT(error.message, "plan 3 of 3");
  CHECK(nnp_model_compile(NULL, NULL, &model, NULL) == NNP_BAD_ARGUMENT);
  CHECK(nnp_model_run(NULL, NULL, NULL, &error) == NNP_BAD_ARGUMENT);
  nnp_bundle *other = NULL;
  CHECK(nnp_bundle_open("/nonexistent/x.nnprt", &other, &error) == NNP_IO);
  CHECK_TEXT(error.message, "/nonexistent/x.nnprt");
  CHECK(nnp_bundle_open(NULL, &other, &error) == NNP_BAD_ARGUMENT);
  nnp_bundle_close(NULL);
  nnp_model_free(NULL);
  for (int status = NNP_OK; status <= NNP_LATE + 1; status++) {
    CHECK(nnp_status_text((nnp_status)status)[0] != 0);
  }
}

/* Removes a folder; returns how many files were in it. */
static int remove_folder(const char *folder) {
  int n_files = 0;
  DIR *listing = opendir(folder);
  for (struct dirent *entry; listing && (entry = readdir(listing)) != NULL;) {
    if (entry->d_name[0] != '.') {
      n_files++;
      CHECK(unlinkat(dirfd(listing), entry->d_name, 0) == 0);
    }
  }
  CHECK(listing && closedir(listing) == 0 && rmdir(folder) == 0);
  return n_files;
}

/* The same compilation is not cached again; one with another priority is. */
static void check_caching(const nnp_bundle *bundle) {
  static const int32_t priorities[] = {0, 0, 90, 110, 110};
  char folder[] = "np-cache-XXXXXX";
  char far[600];
  nnp_error error;
  nnp_options options = nnp_options_default();
  CHECK(mkdtemp(folder) != NULL);
  options.plan = 1;
  options.cache_folder = folder;
  for (size_t i = 0; i < sizeof priorities / sizeof *priorities; i++) {
    nnp_model *model = NULL;
    options.priority = priorities[i];
    CHECK(nnp_model_compile(bundle, &options, &model, &error) == NNP_OK);
    CHECK(nnp_model_run(model, NULL, NULL, &error) == NNP_OK);
    nnp_model_free(model);
  }
  CHECK(remove_folder(folder) == 3);
  nnp_model *model = NULL;
  options.priority = 95;
  CHECK(nnp_model_compile(bundle, &options, &model, &error) == NNP_BAD_ARGUMENT);
  CHECK_TEXT(error.message, "priority 95");
  memset(far, 'a', sizeof far - 1);
  far[sizeof far - 1] = 0;
  options = (nnp_options){.plan = 1, .cache_folder = far};
  CHECK(nnp_model_compile(bundle, &options, &model, &error) == NNP_BAD_ARGUMENT);
  CHECK_TEXT(error.message, "a cache_folder of 599 bytes");
}

/* A thread with a model of its own over the common bundle. */
static void *run_often(void *argument) {
  const nnp_bundle *bundle = argument;
  nnp_options options = nnp_options_default();
  options.plan = 1;
  nnp_model *model = NULL;
  nnp_error error;
  intptr_t wrong = 0;
  if (nnp_model_compile(bundle, &options, &model, &error) != NNP_OK) {
    return (void *)1;
  }
  for (int i = 0; i < 50; i++) {
    const float input[4] = {(float)i, 1, 2, 3};
    float output[4];
    const void *inputs[1] = {input};
    void *outputs[1] = {output};
    wrong += nnp_model_run(model, inputs, outputs, &error) != NNP_OK || !is_right(output, input);
  }
  nnp_model_free(model);
  return (void *)wrong;
}

static void check_threads(nnp_bundle *bundle) {
  pthread_t threads[3];
  for (int i = 0; i < 3; i++) {
    CHECK(pthread_create(&threads[i], NULL, run_often, bundle) == 0);
  }
  for (int i = 0; i < 3; i++) {
    void *wrong = NULL;
    CHECK(pthread_join(threads[i], &wrong) == 0);
    CHECK(wrong == NULL);
  }
}

/* Changes one word of a section and checks the message. */
static void check_word(size_t section, size_t word, uint32_t value, const char *wanted) {
  struct np_build_bundle sections;
  struct np_build container;
  nnp_error error;
  np_build_bundle_sections(&sections);
  struct np_build *all[7] = {&sections.head, &sections.strs, &sections.tens, &sections.modl,
                             &sections.plan, &sections.inpt, &sections.outp};
  memcpy(all[section]->bytes + 4 * word, &value, 4);
  nnp_bundle *bundle = open_sections(&sections, &container, &error);
  CHECK(bundle == NULL && error.status == NNP_BAD_BUNDLE);
  CHECK_TEXT(error.message, wanted);
  nnp_bundle_close(bundle);
}

static void check_words(void) {
  enum { HEAD, STRS, TENS, MODL, PLAN, INPT, OUTP };
  check_word(HEAD, 0, 2, "bundle version 2");
  check_word(HEAD, 1, 3, "mode 3");
  check_word(STRS, 0, 99, "STRS: 99 items do not fit");
  check_word(STRS, 1, 0xfffffff0, "STRS: string 0");
  check_word(TENS, 1, 99, "TENS: tensor 0");
  check_word(TENS, 2, 9, "TENS: tensor 0");
  check_word(TENS, 3, 0, "TENS: tensor 0");
  check_word(TENS, 3, 0x7fffffff, "PLAN: plan 0: segment 0");
  check_word(TENS, 5, 0x7f800000, "TENS: tensor 0");
  check_word(MODL, 1, 2, "MODL: model 0: it is cut off or not in DATA");
  check_word(MODL, 4, 0x7fffffff, "MODL: model 0");
  check_word(MODL, 5, 0x7fffffff, "MODL: model 0: 2147483647 buffers are cut off");
  check_word(MODL, 6, 4, "MODL: model 0: buffer 0");
  check_word(MODL, 8, 999, "MODL: model 0: buffer 0");
  check_word(MODL, 8, 15, "MODL: model 0");
  check_word(PLAN, 0, 0, "PLAN: there is none");
  check_word(PLAN, 1, 6, "PLAN: plan 0");
  check_word(PLAN, 2, 0, "PLAN: plan 0");
  check_word(PLAN, 3, 2, "PLAN: plan 0: segment 0: engine 2");
  check_word(PLAN, 4, 6, "PLAN: plan 0: segment 0: engine 0, accelerator 6");
  check_word(PLAN, 5, 3, "preference 3");
  check_word(PLAN, 6, 8, "flags 0x8");
  check_word(PLAN, 7, 1, "model 1");
  check_word(PLAN, 8, 0x80000001, "PLAN: plan 0: segment 0: it is cut off");
  check_word(PLAN, 9, 3, "tensor 3 of 3");
  check_word(PLAN, 9, 1, "segment 0 reads tensor 1 before it is written");
  check_word(TENS, 4, 5, "not the type and shape of operand 0");
  check_word(PLAN, 10, 5, "order 0x5, of a file made with --peel: make it again");
  check_word(PLAN, 12, 0, "segment 0 writes tensor 0, which has its bytes already");
  check_word(INPT, 1, 9, "INPT: item 0");
  check_word(INPT, 2, 3, "INPT: item 0");
  check_word(INPT, 3, 2, "INPT: item 0");
  check_word(OUTP, 2, 0, "OUTP: item 0");
}

/* Changes one word of the mixture's section. */
static void check_mixture_word(size_t word, uint32_t value, const char *wanted) {
  struct np_build_bundle sections;
  struct np_build container;
  nnp_error error;
  np_build_mixture_sections(&sections);
  memcpy(sections.mixt.bytes + 4 * word, &value, 4);
  nnp_bundle *bundle = open_sections(&sections, &container, &error);
  CHECK(bundle == NULL && error.status == NNP_BAD_BUNDLE);
  CHECK_TEXT(error.message, wanted);
  nnp_bundle_close(bundle);
}

static void check_mixture(void) {
  struct np_build_bundle sections;
  struct np_build container;
  nnp_error error;
  np_build_mixture_sections(&sections);
  nnp_bundle *bundle = open_sections(&sections, &container, &error);
  CHECK(bundle != NULL && nnp_bundle_share(bundle, 1) == 0.3);
  nnp_bundle_close(bundle);
  check_mixture_word(0, 2, "MIXT: version 2 in");
  check_mixture_word(1, 0, "MIXT: the shares are 0 in all, not 1");
  check_mixture_word(1, 4, "MIXT: 4 items do not fit");
  check_mixture_word(1, 2, "MIXT: the shares are 0.8 in all, not 1");
  check_mixture_word(2, 3, "MIXT: share 0 is of plan 3 of 3");
  check_mixture_word(2, 1, "MIXT: plan 1 has two shares");
  check_mixture_word(4, 0xffffffff, "MIXT: share 0 is of plan 0 of 3, or is not above 0");
  check_mixture_word(4, 0x3ff00000, "MIXT: the shares are 1.5 in all, not 1");
  np_put_u32(&sections.mixt, 7);
  bundle = open_sections(&sections, &container, &error);
  CHECK(bundle == NULL);
  CHECK_TEXT(error.message, "MIXT: 4 bytes stand after its last item");
}

/* Thousands of broken files: none may crash, read out of bounds, leak, or be refused silently. */
static void check_mutations(void) {
  struct np_build_bundle sections;
  struct np_build container;
  np_build_mixture_sections(&sections);
  np_put_conditions(&sections.cond, 2, 1, 1);
  np_put_units(&sections.unit, 9, 5);
  np_build_bundle_container(&sections, &container);
  uint64_t state = 11;
  uint32_t n_valid = 0;
  for (int i = 0; i < N_MUTATED; i++) {
    static const uint32_t nasty[] = {0, 1, 2, 8, 0x7fffffff, 0x80000000, 0xffffffff, 0x40000000};
    const size_t cut =
        np_test_random(&state) % 16 == 0 ? np_test_random(&state) % container.n : container.n;
    uint8_t *copy = malloc(cut + (cut == 0));
    memcpy(copy, container.bytes, cut);
    for (uint64_t changes = 1 + np_test_random(&state) % 3; changes > 0 && cut >= 4; changes--) {
      const size_t at = np_test_random(&state) % (cut / 4) * 4;
      const uint64_t how = np_test_random(&state);
      if (how % 2 == 0) {
        memcpy(copy + at, &nasty[(how >> 8) % 8], 4);
      } else {
        copy[at + (how >> 8) % 4] ^= (uint8_t)(1u << (how >> 16) % 8);
      }
    }
    np_build_seal(copy, cut);
    nnp_bundle *bundle = NULL;
    nnp_error error;
    const nnp_status status = nnp_bundle_open_memory(copy, cut, &bundle, &error);
    n_valid += status == NNP_OK;
    CHECK((status == NNP_OK) == (bundle != NULL));
    CHECK(status == NNP_OK || error.message[0] != 0);
    nnp_bundle_close(bundle);
    free(copy);
  }
  CHECK(n_valid > N_MUTATED / 100);
}

int main(void) {
  check_parts();
  struct np_build_bundle sections;
  struct np_build container;
  nnp_error error;
  np_build_bundle_sections(&sections);
  nnp_bundle *bundle = open_sections(&sections, &container, &error);
  if (CHECK(bundle != NULL)) {
    check_runs(bundle);
    check_refusals(bundle);
    check_caching(bundle);
    check_threads(bundle);
  }
  nnp_bundle_close(bundle);
  check_words();
  check_mixture();
  check_description();
  check_cores();
  check_mutations();
  return np_test_exit();
}
