#include "info.h"

#include <stdlib.h>
#include <string.h>

#include "probe.h"
#include "sysfs.h"
#include "sysinfo.h"

/* Whose kernels the CPU engine has in this build. */
static const char *const cpu_kernels[] = {
#ifdef NP_WITH_XNNPACK
    "xnnpack",
#endif
    "portable",
};

/* The facts that an info line points to. */
struct facts {
  struct np_probe probe;
  char properties[NP_N_PROPERTIES][256];
  char kernel[256];
  struct np_info_property listed[NP_N_PROPERTIES];
  const char *missing[NP_PROBE_MAX_FUNCTIONS];
  struct np_sysfs sysfs;
};

/* The simulated phone's properties, or this device's own. */
static void read_properties(struct facts *facts) {
  for (uint32_t i = 0; i < NP_N_PROPERTIES; i++) {
    if (facts->probe.simulated) {
      memcpy(facts->properties[i], facts->probe.properties[i], sizeof facts->properties[i]);
    } else {
      np_property(np_property_names[i], facts->properties[i], sizeof facts->properties[i]);
    }
  }
}

static int64_t api_level(const char *text) {
  char *end = NULL;
  const long level = strtol(text, &end, 10);
  return end != text && *end == 0 && level > 0 ? level : -1;
}

static uint32_t list_missing(struct facts *facts) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < np_nnapi_n_functions() && i < NP_PROBE_MAX_FUNCTIONS; i++) {
    if (facts->probe.absent[i]) {
      facts->missing[n++] = np_nnapi_function_name(i);
    }
  }
  return n;
}

static enum np_status answer(struct facts *facts, struct np_answers *answers) {
  const struct np_probe *probe = &facts->probe;
  read_properties(facts);
  np_kernel_release(facts->kernel, sizeof facts->kernel);
  for (uint32_t i = 0; i + 1 < NP_N_PROPERTIES; i++) { /* the last is the API level */
    facts->listed[i] = (struct np_info_property){np_property_names[i], facts->properties[i]};
  }
  struct np_readings readings = probe->readings;
  if (!probe->simulated) {
    np_sysfs_read(&facts->sysfs, UINT64_MAX, &readings);
  }
  const int64_t level = api_level(facts->properties[NP_N_PROPERTIES - 1]);
  for (uint32_t i = 0; i < facts->sysfs.n_cpus && probe->simulated; i++) {
    facts->sysfs.max_khz[i] = -1; /* this host's say nothing about the phone */
  }
  const struct np_info info = {
      .abi = np_abi(),
      .os = level > 0 || np_is_android() ? "android" : "linux",
      .kernel = facts->kernel,
      .n_properties = NP_N_PROPERTIES - 1,
      .properties = facts->listed,
      .api_level = level,
      .n_cpus = facts->sysfs.n_cpus,
      .threads_max = probe->simulated ? probe->cores : (int64_t)facts->sysfs.n_cpus,
      .cpu_max_khz = facts->sysfs.max_khz,
      .big_cores = np_sysfs_big_cores(&facts->sysfs, UINT64_MAX, 1),
      .n_kernels = sizeof cpu_kernels / sizeof *cpu_kernels,
      .kernels = cpu_kernels,
      .half = probe->half,
      .memory_kb = np_memory_kb(),
      .readings = &readings,
      .phone = probe->simulated ? probe->phone : NULL,
      .identity = probe->identity,
      .library = probe->opened ? probe->library : NULL,
      .door = probe->door,
      .error = probe->error.text[0] != 0 ? probe->error.text : NULL,
      .stalled = probe->stalled,
      .n_missing = list_missing(facts),
      .missing = facts->missing,
      .n_accelerators = probe->n_accelerators,
      .accelerators = probe->accelerators,
  };
  return np_answer_info(answers, &info);
}

enum np_status np_info_command(const char *library, const char *sysfs, struct np_answers *answers,
                               struct np_message *why) {
  struct facts *facts = calloc(1, sizeof *facts);
  NP_REQUIRE(facts, NP_NO_MEMORY, why, "no memory for the facts of this device");
  np_sysfs_open(sysfs, &facts->sysfs);
  enum np_status status = np_probe_library(library, &facts->probe, why);
  if (status == NP_OK) {
    status = answer(facts, answers);
    if (status != NP_OK) {
      np_message_set(why, "cannot write the answer");
    }
  }
  free(facts);
  return status;
}
