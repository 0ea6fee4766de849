#include "answer.h"
#include "json.h"
#include "request.h"

static void add_nnapi(struct np_answers *answers, const struct np_info *info) {
  np_json_open(answers, "nnapi", '{');
  np_json_string(answers, "library", info->library);
  np_json_string(answers, "door", np_door_text(info->door));
  np_json_string(answers, "error", info->error);
  np_json_bool(answers, "stalled", info->stalled);
  np_json_open(answers, "missing", '[');
  for (uint32_t i = 0; i < info->n_missing; i++) {
    np_json_string(answers, NULL, info->missing[i]);
  }
  np_json_close(answers, ']');
  np_json_open(answers, "accelerators", '[');
  for (uint32_t i = 0; i < info->n_accelerators; i++) {
    const struct np_accelerator *accelerator = &info->accelerators[i];
    np_json_open(answers, NULL, '{');
    np_json_string(answers, "name", accelerator->name);
    np_json_string(answers, "type", np_nnapi_type_text(accelerator->type));
    np_json_string(answers, "version", accelerator->version);
    np_json_signed(answers, "feature_level", accelerator->feature_level);
    np_json_close(answers, '}');
  }
  np_json_close(answers, ']');
  np_json_close(answers, '}');
}

enum np_status np_answer_info(struct np_answers *answers, const struct np_info *info) {
  np_answer_begin(answers, "info");
  np_json_unsigned(answers, "protocol", NP_PROTOCOL_VERSION);
  np_json_string(answers, "agent", NP_AGENT_VERSION);
  np_json_string(answers, "abi", info->abi);
  np_json_string(answers, "os", info->os);
  np_json_string(answers, "kernel", info->kernel);
  np_json_open(answers, "properties", '{');
  for (uint32_t i = 0; i < info->n_properties; i++) {
    if (info->properties[i].value[0] == 0) {
      continue;
    }
    np_json_string(answers, info->properties[i].name, info->properties[i].value);
  }
  np_json_close(answers, '}');
  np_json_known(answers, "api_level", info->api_level);
  np_json_unsigned(answers, "cpus", info->n_cpus);
  np_json_open(answers, "cpu_max_khz", '[');
  for (uint32_t i = 0; i < info->n_cpus; i++) {
    np_json_known(answers, NULL, info->cpu_max_khz[i]);
  }
  np_json_close(answers, ']');
  np_answer_mask(answers, "big_cores", info->big_cores);
  np_json_known(answers, "threads_max", info->threads_max);
  static const char *const halves[] = {"none", "emulated", "native"};
  np_json_string(answers, "cpu_float16", halves[info->half]);
  np_json_open(answers, "engines", '{');
  np_json_open(answers, "cpu", '[');
  for (uint32_t i = 0; i < info->n_kernels; i++) {
    np_json_string(answers, NULL, info->kernels[i]);
  }
  np_json_close(answers, ']');
  np_json_close(answers, '}');
  np_json_known(answers, "memory_kb", info->memory_kb);
  np_json_open(answers, "readings", '{');
  np_json_known(answers, "cpu_khz", info->readings->cpu_khz);
  np_json_known(answers, "thermal_mc", info->readings->thermal_mc);
  np_answer_flag(answers, "throttled", info->readings->throttled);
  np_json_close(answers, '}');
  np_json_bool(answers, "simulated", info->phone != NULL);
  np_json_string(answers, "phone", info->phone);
  np_json_string(answers, "identity", info->identity);
  add_nnapi(answers, info);
  return np_answer_finish(answers);
}
