/* NNAPI through other doors: a support library's table and NeuronAdapter's names run what
 * libneuralnetworks.so runs; bad tables are refused. The program itself is also a support library:
 * the linker calls it "". */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include <sys/mman.h>
#include <unistd.h>

#include "build_bundle.h"
#include "nnapi_doors.h"
#include "nnapi_prof_runtime.h"
#include "np_doors.h"
#include "np_test.h"
#include "np_test_api.h"

/* ---- Tables of the program's own ---- */

static const void *given;

__attribute__((visibility("default"))) const void *ANeuralNetworks_getSLDriverImpl(void);

const void *ANeuralNetworks_getSLDriverImpl(void) { return given; }

#define COPY(name) table.name = (np_sl_function *)(name);

static struct np_sl_table usual_table(void) {
  struct np_sl_table table = {.implFeatureLevel = ANEURALNETWORKS_FEATURE_LEVEL_5};
  COPY(ANeuralNetworks_getDeviceCount)
  COPY(ANeuralNetworks_getDevice)
  COPY(ANeuralNetworksDevice_getName)
  COPY(ANeuralNetworksModel_create)
  COPY(ANeuralNetworksModel_free)
  COPY(ANeuralNetworksModel_addOperand)
  COPY(ANeuralNetworksModel_setOperandValue)
  COPY(ANeuralNetworksModel_addOperation)
  COPY(ANeuralNetworksModel_identifyInputsAndOutputs)
  COPY(ANeuralNetworksModel_finish)
  COPY(ANeuralNetworksCompilation_createForDevices)
  COPY(ANeuralNetworksCompilation_free)
  COPY(ANeuralNetworksCompilation_setPreference)
  COPY(ANeuralNetworksCompilation_finish)
  COPY(ANeuralNetworksExecution_create)
  COPY(ANeuralNetworksExecution_free)
  COPY(ANeuralNetworksExecution_setInput)
  COPY(ANeuralNetworksExecution_setOutput)
  COPY(ANeuralNetworksExecution_compute)
  return table;
}

static void check_refused(const void *table, const char *wanted) {
  struct np_nnapi *nnapi = NULL;
  struct np_message why = {""};
  given = table;
  CHECK(np_nnapi_open("", &nnapi, &why) == NP_MISSING && nnapi == NULL);
  CHECK_TEXT(why.text, wanted);
}

/* A table whose last `missing` bytes cannot be read. */
static void check_short(const struct np_sl_table *table, size_t missing, const char *wanted) {
  const size_t page = (size_t)getpagesize();
  char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  char *at = pages + page - (sizeof *table - missing);
  memcpy(at, table, sizeof *table - missing);
  CHECK(mprotect(pages + page, page, PROT_NONE) == 0);
  check_refused(at, wanted);
  CHECK(munmap(pages, 2 * page) == 0);
}

static void check_tables(void) {
  struct np_sl_table table = usual_table();
  struct np_nnapi *nnapi = NULL;
  struct np_message why = {""};
  uint32_t n = 0;
  struct np_accelerator accelerators[4];
  check_refused(NULL, "getSLDriverImpl() returned NULL");
  check_refused((const void *)8, "its table is not in readable memory");
  check_short(&table, sizeof table - 4, "its table is not in readable memory");
  check_short(&table, sizeof table - 8, "its table ends before the functions of feature level 5");
  check_short(&table, sizeof(void *), "its table ends before the functions of feature level 5");
  static const int64_t levels[] = {0, 30, -1, 1000005, 1000009, INT64_MAX};
  for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
    table.implFeatureLevel = levels[i];
    check_refused(&table, "; known are the feature levels 5 to 8");
  }
  table = usual_table();
  table.ANeuralNetworksModel_create = NULL;
  check_refused(&table, "it has no ANeuralNetworksModel_create");
  table = usual_table();
  table.ANeuralNetworksBurst_create = (np_sl_function *)16;
  check_refused(&table, "its ANeuralNetworksBurst_create points into no library");
  table = usual_table();
  table.implFeatureLevel = ANEURALNETWORKS_FEATURE_LEVEL_8;
  given = &table;
  if (CHECK(np_nnapi_open("", &nnapi, &why) == NP_OK)) {
    CHECK(np_nnapi_door(nnapi) == NP_DOOR_SUPPORT_LIBRARY);
    CHECK(np_nnapi_accelerators(nnapi, accelerators, 4, &n, &why) == NP_OK && n >= 2);
    CHECK_TEXT(accelerators[0].name, "sim-npu@");
  }
  np_nnapi_close(nnapi);
}

static void check_codes(void) {
  static const int codes[][2] = {
      {0, 0}, {1, 1},   {5, 5},   {6, 7},  {7, 6}, {8, NP_CODE_BAD_VERSION},
      {9, 8}, {15, 14}, {16, 16}, {-3, -3}};
  const struct np_nnapi neuron = {.door = NP_DOOR_NEURON};
  const struct np_nnapi own = {.door = NP_DOOR_NNAPI};
  for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
    CHECK(np_door_code(&neuron, codes[i][0]) == codes[i][1]);
    CHECK(np_door_code(&own, codes[i][0]) == codes[i][0]);
  }
  CHECK_TEXT(np_nnapi_result_text(NP_CODE_BAD_VERSION), "BAD_VERSION");
}

/* ---- The emulator behind each door ---- */

static int is_right(const float *y, const float *x) {
  int right = 1;
  for (int i = 0; i < 4; i++) {
    const float b = (float)(i + 1);
    const float once = x[i] + b > 0 ? x[i] + b : 0;
    right &= y[i] == once + b;
  }
  return right;
}

static void check_runs(const nnp_bundle *bundle, const char *library, uint32_t flags,
                       nnp_cause cause) {
  static const float input[4] = {3, -2, -9, 0.5f};
  nnp_options options = nnp_options_default();
  nnp_error error;
  nnp_model *model = NULL;
  nnp_segment segment;
  options.flags = flags | NNP_CPU_FALLBACK;
  options.nnapi_library = library;
  if (!CHECK(nnp_model_compile(bundle, &options, &model, &error) == NNP_OK)) {
    return;
  }
  for (int run = 0; run < 3; run++) {
    memcpy(nnp_model_input(model, 0), input, sizeof input);
    CHECK(nnp_model_run(model, NULL, NULL, &error) == NNP_OK);
    CHECK(is_right(nnp_model_output(model, 0), input));
  }
  CHECK(nnp_model_segment(model, 1, &segment) == NNP_OK && segment.cause == cause);
  CHECK(cause != NNP_NO_CAUSE || segment.shared_memory == ((flags & NNP_POINTERS) == 0));
  nnp_model_free(model);
  options.plan = 1; /* NNAPI's choice, which other doors lack */
  options.flags = 0;
  CHECK(nnp_model_compile(bundle, &options, &model, &error) ==
        (library ? NNP_UNSUPPORTED : NNP_OK));
  if (library) {
    CHECK_TEXT(error.message, "chooses no accelerator: name one of its own, such as NAME@lib");
  }
  nnp_model_free(model);
}

int main(void) {
  static struct np_build container;
  struct np_build_bundle sections;
  nnp_bundle *bundle = NULL;
  if (setenv("NNAPI_EMULATOR_PHONE", NP_PHONES "/npu-phone.json", 1) != 0) {
    return 1;
  }
  check_codes();
  check_tables();
  np_build_bundle_sections(&sections);
  np_build_bundle_container(&sections, &container);
  CHECK(nnp_bundle_open_memory(container.bytes, container.n, &bundle, NULL) == NNP_OK);
  static const char *const libraries[] = {NULL, NP_SUPPORT_LIBRARY, NP_NEURON_ADAPTER};
  for (int i = 0; i < 3 && bundle; i++) {
    const nnp_cause no_burst = i == 2 ? NNP_REFUSED : NNP_NO_CAUSE;
    check_runs(bundle, libraries[i], 0, NNP_NO_CAUSE);
    check_runs(bundle, libraries[i], NNP_ASYNC, NNP_NO_CAUSE);
    check_runs(bundle, libraries[i], NNP_POINTERS | NNP_DURATIONS, NNP_NO_CAUSE);
    check_runs(bundle, libraries[i], NNP_BURST, no_burst);
    check_runs(bundle, libraries[i], NNP_TRIAL, NNP_NO_CAUSE);
  }
  nnp_bundle_close(bundle);
  return np_test_exit();
}
