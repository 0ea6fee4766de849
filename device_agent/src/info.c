#include "info.h"

#include <stdlib.h>
#include <string.h>

#include "probe.h"
#include "sysinfo.h"

#define MAX_CPUS 256u

/* The facts that an info line points to. */
struct facts {
  struct np_probe probe;
  char properties[NP_N_PROPERTIES][256];
  char kernel[256];
  struct np_info_property listed[NP_N_PROPERTIES];
  const char *missing[NP_PROBE_MAX_FUNCTIONS];
  int64_t cpu_max_khz[MAX_CPUS];
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
    if (facts->probe.absent[i])
      facts->missing[n++] = np_nnapi_function_name(i);
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
  const int64_t level = api_level(facts->properties[NP_N_PROPERTIES - 1]);
  const uint32_t n_cpus = np_cpu_count() < MAX_CPUS ? np_cpu_count() : MAX_CPUS;
  for (uint32_t i = 0; i < n_cpus; i++) {
    facts->cpu_max_khz[i] = probe->simulated ? -1 : np_cpu_max_khz(i);
  }
  const struct np_info info = {
      .abi = np_abi(),
      .os = level > 0 || np_is_android() ? "android" : "linux",
      .kernel = facts->kernel,
      .n_properties = NP_N_PROPERTIES - 1,
      .properties = facts->listed,
      .api_level = level,
      .n_cpus = n_cpus,
      .cpu_max_khz = facts->cpu_max_khz,
      .memory_kb = np_memory_kb(),
      .phone = probe->simulated ? probe->phone : NULL,
      .identity = probe->identity,
      .library = probe->opened ? probe->library : NULL,
      .error = probe->error.text[0] != 0 ? probe->error.text : NULL,
      .n_missing = list_missing(facts),
      .missing = facts->missing,
      .n_accelerators = probe->n_accelerators,
      .accelerators = probe->accelerators,
  };
  return np_answer_info(answers, &info);
}

enum np_status np_info_command(const char *library, struct np_answers *answers,
                               struct np_message *why) {
  struct facts *facts = calloc(1, sizeof *facts);
  if (!facts) {
    np_message_set(why, "no memory for the facts of this device");
    return NP_NO_MEMORY;
  }
  enum np_status status = np_probe_library(library, &facts->probe, why);
  if (status == NP_OK) {
    status = answer(facts, answers);
    if (status != NP_OK)
      np_message_set(why, "cannot write the answer");
  }
  free(facts);
  return status;
}
