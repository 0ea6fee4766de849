#include "info.h"

#include <stdlib.h>
#include <string.h>

#include "answer.h"
#include "json.h"
#include "probe.h"
#include "request.h"
#include "sysfs.h"
#include "sysinfo.h"

/* The kernels of the CPU engine in this build. */
static const char *const cpu_kernels[] = {
#ifdef NP_WITH_XNNPACK
    "xnnpack",
#endif
    "portable",
};

struct facts {
  struct np_probe probe;
  struct np_sysfs sysfs;
};

/* The simulated phone's property, or this device's own. */
static void read_property(const struct facts *facts, uint32_t i, char text[256]) {
  if (facts->probe.simulated) {
    memcpy(text, facts->probe.properties[i], sizeof facts->probe.properties[i]);
  } else {
    np_property(np_property_names[i], text, 256);
  }
}

/* The last property. */
static int64_t api_level(const struct facts *facts) {
  char text[256], *end = NULL;
  read_property(facts, NP_N_PROPERTIES - 1, text);
  const long level = strtol(text, &end, 10);
  return end != text && *end == 0 && level > 0 ? level : -1;
}

void np_answer_accelerators(struct np_answers *answers, uint32_t n,
                            const struct np_accelerator *accelerators) {
  np_json_open(answers, "accelerators", '[');
  for (uint32_t i = 0; i < n; i++) {
    const struct np_accelerator *accelerator = &accelerators[i];
    np_json_open(answers, NULL, '{');
    np_json_string(answers, "name", accelerator->name);
    np_json_string(answers, "type", np_nnapi_type_text(accelerator->type));
    np_json_string(answers, "version", accelerator->version);
    np_json_signed(answers, "feature_level", accelerator->feature_level);
    np_json_close(answers, '}');
  }
  np_json_close(answers, ']');
}

static void add_nnapi(struct np_answers *answers, const struct np_probe *probe) {
  np_json_open(answers, "nnapi", '{');
  np_json_string(answers, "library", probe->opened ? probe->library : NULL);
  np_json_string(answers, "door", np_door_text(probe->door));
  np_json_string(answers, "error", probe->error.text[0] != 0 ? probe->error.text : NULL);
  np_json_bool(answers, "stalled", probe->stalled);
  np_json_open(answers, "missing", '[');
  for (uint32_t i = 0; i < np_nnapi_n_functions() && i < NP_PROBE_MAX_FUNCTIONS; i++) {
    if (probe->absent[i]) {
      np_json_string(answers, NULL, np_nnapi_function_name(i));
    }
  }
  np_json_close(answers, ']');
  np_answer_accelerators(answers, probe->n_accelerators, probe->accelerators);
  np_json_close(answers, '}');
}

static void add_properties(struct np_answers *answers, const struct facts *facts) {
  char text[256];
  np_json_open(answers, "properties", '{');
  for (uint32_t i = 0; i + 1 < NP_N_PROPERTIES; i++) {
    read_property(facts, i, text);
    if (text[0] != 0) {
      np_json_string(answers, np_property_names[i], text);
    }
  }
  np_json_close(answers, '}');
}

static void add_cpu(struct np_answers *answers, const struct facts *facts) {
  static const char *const halves[] = {"none", "emulated", "native"};
  const struct np_probe *probe = &facts->probe;
  const struct np_sysfs *sysfs = &facts->sysfs;
  np_json_unsigned(answers, "cpus", sysfs->n_cpus);
  np_json_open(answers, "cpu_max_khz", '[');
  for (uint32_t i = 0; i < sysfs->n_cpus; i++) { /* the host's CPUs do not describe the phone */
    np_json_known(answers, NULL, probe->simulated ? -1 : sysfs->max_khz[i]);
  }
  np_json_close(answers, ']');
  np_answer_mask(answers, "big_cores", np_sysfs_big_cores(sysfs, UINT64_MAX, 1));
  np_json_known(answers, "threads_max", probe->simulated ? probe->cores : (int64_t)sysfs->n_cpus);
  np_json_string(answers, "cpu_float16", halves[probe->half]);
  np_json_open(answers, "engines", '{');
  np_json_open(answers, "cpu", '[');
  for (size_t i = 0; i < sizeof cpu_kernels / sizeof *cpu_kernels; i++) {
    np_json_string(answers, NULL, cpu_kernels[i]);
  }
  np_json_close(answers, ']');
  np_json_close(answers, '}');
}

static enum np_status answer(struct facts *facts, struct np_answers *answers) {
  const struct np_probe *probe = &facts->probe;
  struct np_readings readings = probe->readings;
  const int64_t level = api_level(facts);
  char kernel[256];
  np_kernel_release(kernel, sizeof kernel);
  if (!probe->simulated) {
    np_sysfs_read(&facts->sysfs, UINT64_MAX, &readings);
  }
  np_answer_begin(answers, "info");
  np_json_unsigned(answers, "protocol", NP_PROTOCOL_VERSION);
  np_json_string(answers, "agent", NP_AGENT_VERSION);
  np_json_string(answers, "abi", np_abi());
  np_json_string(answers, "os", level > 0 || np_is_android() ? "android" : "linux");
  np_json_string(answers, "kernel", kernel);
  add_properties(answers, facts);
  np_json_known(answers, "api_level", level);
  add_cpu(answers, facts);
  np_json_known(answers, "memory_kb", np_memory_kb());
  np_json_open(answers, "readings", '{');
  np_json_known(answers, "cpu_khz", readings.cpu_khz);
  np_json_known(answers, "thermal_mc", readings.thermal_mc);
  np_answer_flag(answers, "throttled", readings.throttled);
  np_json_close(answers, '}');
  np_json_bool(answers, "simulated", probe->simulated);
  np_json_string(answers, "phone", probe->simulated ? probe->phone : NULL);
  np_json_string(answers, "identity", probe->identity);
  add_nnapi(answers, probe);
  return np_answer_finish(answers);
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
