#include "describe.h"

#include <executorch/runtime/platform/log.h>

#include <deque>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace nnapi_prof {
namespace {

// One model, with copies of its texts, since the model may be freed.
struct Entry {
  const nnp_model *model;
  std::string line;
  std::deque<std::string> texts;
  std::vector<nnp_unit> units;
  uint32_t n_segments;
};

struct Descriptions {
  std::mutex lock;
  const void *program = nullptr;
  std::deque<Entry> entries;
};

Descriptions &descriptions() {
  static Descriptions instance;
  return instance;
}

// Reads the present description of a model, and logs its line.
Entry entry_of(const nnp_model *model) {
  Entry entry = {model, {}, {}, {}, nnp_model_n_segments(model)};
  entry.line.resize(nnp_model_describe_line(model, nullptr, 0) + 1);
  nnp_model_describe_line(model, entry.line.data(), entry.line.size());
  entry.line.pop_back(); // the zero
  ET_LOG(Info, "NnapiBackend: %s", entry.line.c_str());
  entry.units.resize(nnp_model_describe(model, nullptr, 0));
  nnp_model_describe(model, entry.units.data(), static_cast<uint32_t>(entry.units.size()));
  for (nnp_unit &unit : entry.units) {
    for (const char **text : {&unit.name, &unit.engine, &unit.accelerator, &unit.why}) {
      if (*text) {
        *text = entry.texts.emplace_back(*text).c_str();
      }
    }
  }
  return entry;
}

} // namespace

void describe(const void *program, const nnp_model *model) {
  Entry entry = entry_of(model);
  Descriptions &all = descriptions();
  const std::lock_guard<std::mutex> held(all.lock);
  if (!program || program != all.program) {
    all.entries.clear();
    all.program = program;
  }
  all.entries.push_back(std::move(entry));
}

void describe_again(const nnp_model *model) {
  Entry entry = entry_of(model);
  Descriptions &all = descriptions();
  const std::lock_guard<std::mutex> held(all.lock);
  for (Entry &each : all.entries) {
    if (each.model == model) {
      each = std::move(entry);
      return;
    }
  }
}

void forget(const nnp_model *model) {
  Descriptions &all = descriptions();
  const std::lock_guard<std::mutex> held(all.lock);
  for (Entry &entry : all.entries) {
    if (model && entry.model == model) { // another program may get its address, too
      entry.model = nullptr;
      all.program = nullptr;
    }
  }
}

} // namespace nnapi_prof

extern "C" __attribute__((visibility("default"))) size_t
nnapi_prof_executorch_describe(char *text, size_t size) {
  nnapi_prof::Descriptions &all = nnapi_prof::descriptions();
  const std::lock_guard<std::mutex> held(all.lock);
  std::string lines;
  for (const nnapi_prof::Entry &entry : all.entries) {
    lines += (lines.empty() ? "" : "\n") + entry.line;
  }
  if (size > 0) {
    text[lines.copy(text, size - 1)] = 0;
  }
  return lines.size();
}

extern "C" __attribute__((visibility("default"))) uint32_t
nnapi_prof_executorch_units(nnp_unit *units, uint32_t room) {
  nnapi_prof::Descriptions &all = nnapi_prof::descriptions();
  const std::lock_guard<std::mutex> held(all.lock);
  uint32_t n = 0, first_segment = 0;
  for (const nnapi_prof::Entry &entry : all.entries) {
    for (const nnp_unit &unit : entry.units) {
      if (n < room) {
        units[n] = unit;
        units[n].segment += first_segment;
      }
      n++;
    }
    first_segment += entry.n_segments;
  }
  return n;
}
