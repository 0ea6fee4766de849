// ExecuTorch's back end NnapiBackend: runs the bundles that nnapi_prof.executorch puts into a .pte
// with libnnapi_prof_runtime, which falls back to the CPU segment by segment.
//
// Its input ("processed"), little-endian, aligned to 8 or copied:
//
//   u32  magic "NPET", version 1, inputs, outputs, weights, offset of the bundle (a multiple of 64)
//   u64  bytes of the bundle, which has no section WGHT
//   of each of the weights: u64 offset in WGHT, u64 bytes, 64 characters: their SHA-256 in
//        hexadecimal; they are in the named data, by that name after "nnapi_prof/"
//   u32 of each input of the bundle, then of each output: its place among the call's arguments
#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/core/event_tracer_hooks_delegate.h>
#include <executorch/runtime/platform/log.h>
#include <executorch/runtime/platform/platform.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "describe.h"
#include "layout.h"
#include "nnapi_prof_runtime.h"

namespace nnapi_prof {
namespace {

using executorch::aten::Tensor;
using namespace executorch::runtime; // its interface, class by class

constexpr char backend_name[] = "NnapiBackend";
constexpr uint32_t magic = 0x5445504e; // "NPET"
constexpr uint32_t version = 1;
constexpr size_t hash_length = 64;
constexpr size_t bundle_alignment = 8;
constexpr uint64_t ns_per_ms = 1000000;

struct Head {
  uint32_t magic, version, n_inputs, n_outputs, n_weights, bundle_offset;
  uint64_t bundle_bytes;
};
static_assert(sizeof(Head) == 32);

struct WeightRow {
  uint64_t offset, n_bytes;
  char hash[hash_length];
};
static_assert(sizeof(WeightRow) == 80);

// One delegated call, ready to run.
struct Call {
  std::vector<FreeableBuffer> weights;
  std::vector<uint64_t> aligned; // copy of the bundle, if its place was not aligned
  std::vector<uint32_t> places;  // inputs, then outputs
  nnp_bundle *bundle = nullptr;
  std::vector<nnp_model *> models; // by plan; nullptr if no frame runs by it
  bool is_mixture = false;
  uint32_t plan = 0; // for this phone, unless the bundle is a mixture
  uint64_t frame = 0;
  const void *program = nullptr; // identifies the program, see describe()
  bool has_changed = false;      // since the last description

  Call() = default;
  Call(const Call &) = delete;
  Call &operator=(const Call &) = delete;
  ~Call() {
    for (nnp_model *model : models) {
      forget(model);
      nnp_model_free(model);
    }
    nnp_bundle_close(bundle);
  }
};

// An app's options: nnp_options, with copies of its texts.
struct Settings {
  nnp_options options = nnp_options_default();
  std::string nnapi_library, folder, cache_folder, trial_helper;
};

// The settings of all models loaded from now on.
struct Shared {
  std::mutex lock;
  Settings settings;
};

Shared &shared() {
  static Shared instance;
  return instance;
}

Error to_error(nnp_status status) {
  switch (status) {
  case NNP_OK:
    return Error::Ok;
  case NNP_BAD_ARGUMENT:
    return Error::InvalidArgument;
  case NNP_BAD_BUNDLE:
    return Error::DelegateInvalidCompatibility;
  case NNP_NO_MEMORY:
    return Error::MemoryAllocationFailed;
  case NNP_MISSING:
  case NNP_UNSUPPORTED:
    return Error::NotSupported;
  default:
    return Error::Internal;
  }
}

// Returns NNAPI's PriorityCode for a word; 0 for an unknown word.
int32_t priority_of(std::string_view word) {
  return word == "low" ? 90 : word == "medium" ? 100 : word == "high" ? 110 : 0;
}

// Reads a mask of CPUs: "0xf0", or "" for the file's. Returns false for any other text.
bool read_mask(const char *text, uint64_t &mask) {
  char *end = nullptr;
  errno = 0;
  mask = std::strtoull(text, &end, 0);
  return *end == 0 && errno == 0 && text[0] != '-' && (mask != 0 || text[0] == 0);
}

// Applies an option from ExecuTorch; returns false if its name, type or value is unknown.
bool apply(const BackendOption &option, Settings &settings) {
  static const std::pair<const char *, std::string Settings::*> texts[] = {
      {"nnapi_library", &Settings::nnapi_library},
      {"folder", &Settings::folder},
      {"cache_folder", &Settings::cache_folder},
      {"trial_helper", &Settings::trial_helper}};
  static const std::pair<const char *, uint32_t> flags[] = {
      {"fallback", NNP_CPU_FALLBACK}, {"trial", NNP_TRIAL}, {"as_measured", NNP_AS_MEASURED},
      {"burst", NNP_BURST},           {"async", NNP_ASYNC}, {"pointers", NNP_POINTERS}};
  const std::string_view key = option.key;
  nnp_options &options = settings.options;
  if (const auto *text = std::get_if<std::array<char, kMaxOptionValueLength>>(&option.value)) {
    for (const auto &[name, member] : texts) {
      if (key == name) {
        settings.*member = text->data();
        return true;
      }
    }
    if (key == "cpu_mask") {
      return read_mask(text->data(), options.cpu_mask);
    }
    options.priority = key == "priority" ? priority_of(text->data()) : 0;
    return options.priority != 0;
  }
  if (const bool *flag = std::get_if<bool>(&option.value)) {
    for (const auto &[name, bit] : flags) {
      if (key == name) {
        options.flags = *flag ? options.flags | bit : options.flags & ~bit;
        return true;
      }
    }
    return false;
  }
  const int number = std::get<int>(option.value);
  if (key == "threads") {
    options.threads = static_cast<uint32_t>(number);
  } else if (key == "compile_limit_ms") {
    options.compile_limit_ns = static_cast<uint64_t>(number) * ns_per_ms;
  } else if (key == "run_limit_ms") {
    options.run_limit_ns = static_cast<uint64_t>(number) * ns_per_ms;
  } else {
    return false;
  }
  return number >= 0;
}

// Applies all options, or none.
template <typename Options> Error apply_all(const Options &options, Settings &settings) {
  Settings changed = settings;
  for (const BackendOption &option : options) {
    if (!apply(option, changed)) {
      ET_LOG(Error, "NnapiBackend: no option %s of this type and value", option.key);
      return Error::InvalidArgument;
    }
  }
  settings = std::move(changed);
  return Error::Ok;
}

// Reads the partitioner's settings of a call: a priority.
Error read_specs(ArrayRef<CompileSpec> specs, Settings &settings) {
  for (const CompileSpec &spec : specs) {
    const std::string_view word(static_cast<const char *>(spec.value.buffer), spec.value.nbytes);
    settings.options.priority = std::strcmp(spec.key, "priority") == 0 ? priority_of(word) : 0;
    if (settings.options.priority == 0) {
      ET_LOG(Error, "NnapiBackend: no compile spec %s of this value", spec.key);
      return Error::InvalidArgument;
    }
  }
  return Error::Ok;
}

// Reads rows and places, and opens the bundle over the weights, which are used in place.
Error open(Call &call, const NamedDataMap *named, const uint8_t *bytes, size_t n_bytes) {
  Head head;
  if (n_bytes < sizeof head) {
    ET_LOG(Error, "NnapiBackend: %zu bytes are no call", n_bytes);
    return Error::DelegateInvalidCompatibility;
  }
  std::memcpy(&head, bytes, sizeof head);
  if (head.magic != magic || head.version != version) {
    ET_LOG(Error, "NnapiBackend: a call of version %u, this delegate reads %u: make the .pte anew",
           static_cast<unsigned>(head.version), static_cast<unsigned>(version));
    return Error::DelegateInvalidCompatibility;
  }
  const uint64_t n_places = uint64_t{head.n_inputs} + head.n_outputs;
  const uint64_t tables = sizeof head + head.n_weights * uint64_t{sizeof(WeightRow)} + 4 * n_places;
  if (tables > head.bundle_offset || head.bundle_offset > n_bytes ||
      head.bundle_bytes > n_bytes - head.bundle_offset) {
    ET_LOG(Error, "NnapiBackend: the call is cut off after %zu bytes", n_bytes);
    return Error::DelegateInvalidCompatibility;
  }
  const uint8_t *row_at = bytes + sizeof head;
  std::vector<nnp_weights> parts(head.n_weights);
  call.weights.reserve(head.n_weights);
  for (nnp_weights &part : parts) {
    WeightRow row;
    std::memcpy(&row, row_at, sizeof row);
    row_at += sizeof row;
    const std::string key = "nnapi_prof/" + std::string(row.hash, hash_length);
    if (!named) {
      ET_LOG(Error, "NnapiBackend: the program has no named data, where its weights are");
      return Error::DelegateInvalidCompatibility;
    }
    Result<FreeableBuffer> data = named->get_data(key);
    if (!data.ok() || data->size() < row.n_bytes) {
      ET_LOG(Error, "NnapiBackend: the weights %s are missing or cut off", key.c_str());
      return Error::DelegateInvalidCompatibility;
    }
    part = {row.offset, data->data(), static_cast<size_t>(row.n_bytes)};
    call.weights.push_back(std::move(*data));
  }
  call.places.resize(static_cast<size_t>(n_places));
  if (n_places) {
    std::memcpy(call.places.data(), row_at, 4 * static_cast<size_t>(n_places));
  }
  const uint8_t *bundle = bytes + head.bundle_offset;
  const size_t bundle_bytes = static_cast<size_t>(head.bundle_bytes);
  if (reinterpret_cast<uintptr_t>(bundle) % bundle_alignment != 0) {
    call.aligned.resize(bundle_bytes / 8 + 1);
    std::memcpy(call.aligned.data(), bundle, bundle_bytes);
    bundle = reinterpret_cast<const uint8_t *>(call.aligned.data());
  }
  nnp_error error;
  static const nnp_weights none = {0, nullptr, 0};
  const nnp_status status =
      nnp_bundle_open_parts(bundle, bundle_bytes, parts.empty() ? &none : parts.data(),
                            head.n_weights, &call.bundle, &error);
  if (status != NNP_OK) {
    ET_LOG(Error, "NnapiBackend: %s", error.message);
    return to_error(status);
  }
  if (nnp_bundle_n_inputs(call.bundle) != head.n_inputs ||
      nnp_bundle_n_outputs(call.bundle) != head.n_outputs) {
    ET_LOG(Error, "NnapiBackend: the call and its bundle differ in their inputs or outputs");
    return Error::DelegateInvalidCompatibility;
  }
  return Error::Ok;
}

// Logs a line with ExecuTorch for each segment that falls back, during calls of the library.
void tell_fallback(void *context, const nnp_event *event) {
  ET_LOG(Error, "NnapiBackend: %s", event->message);
  static_cast<Call *>(context)->has_changed = true;
}

// Returns whether an abandoned driver call may still read the bundle's weights.
bool may_still_run(const Call &call) {
  for (const nnp_model *model : call.models) {
    for (uint32_t i = 0; model && i < nnp_model_n_segments(model); i++) {
      nnp_segment segment;
      if (nnp_model_segment(model, i, &segment) == NNP_OK && segment.cause == NNP_TOO_LATE) {
        return true;
      }
    }
  }
  return false;
}

// Compiles each plan that frames run by.
Error compile(Call &call, const Settings &settings) {
  const auto text = [](const std::string &own) { return own.empty() ? nullptr : own.c_str(); };
  nnp_options options = settings.options;
  options.nnapi_library = text(settings.nnapi_library);
  options.folder = text(settings.folder);
  options.cache_folder = text(settings.cache_folder);
  options.trial_helper = text(settings.trial_helper);
  options.log = tell_fallback;
  options.log_context = &call;
  call.models.resize(nnp_bundle_n_plans(call.bundle), nullptr);
  nnp_error error;
  call.is_mixture = nnp_bundle_share(call.bundle, nnp_bundle_select(call.bundle, 0)) > 0;
  if (!call.is_mixture) {
    const nnp_status status =
        nnp_bundle_plan_of_phone(call.bundle, nullptr, options.nnapi_library, &call.plan, &error);
    if (status != NNP_OK) {
      ET_LOG(Error, "NnapiBackend: %s", error.message);
      return to_error(status);
    }
  }
  for (uint32_t plan = 0; plan < call.models.size(); plan++) {
    if (call.is_mixture ? nnp_bundle_share(call.bundle, plan) <= 0 : plan != call.plan) {
      continue;
    }
    options.plan = plan;
    const nnp_status status = nnp_model_compile(call.bundle, &options, &call.models[plan], &error);
    if (status != NNP_OK) {
      ET_LOG(Error, "NnapiBackend: %s", error.message);
      return to_error(status);
    }
    describe(call.program, call.models[plan]);
  }
  call.has_changed = false;
  return Error::Ok;
}

// Returns the tensor at a place among the arguments if it fits `end`; otherwise logs and returns
// nullptr.
Tensor *argument(Span<EValue *> args, uint32_t place, const nnp_tensor &end) {
  if (place >= args.size() || !args[place]->isTensor()) {
    ET_LOG(Error, "NnapiBackend: argument %u is no tensor", static_cast<unsigned>(place));
    return nullptr;
  }
  Tensor &tensor = args[place]->toTensor();
  if (!fits(tensor, end)) {
    ET_LOG(Error, "NnapiBackend: argument %u has not the type and sizes of %s",
           static_cast<unsigned>(place), end.name);
    return nullptr;
  }
  return &tensor;
}

// Logs an event for each segment, named by number, engine and accelerator.
void trace(EventTracer *tracer, const nnp_model *model, et_timestamp_t start) {
  const et_tick_ratio_t ratio = et_pal_ticks_to_ns_multiplier();
  for (uint32_t i = 0; i < nnp_model_n_segments(model); i++) {
    nnp_segment segment;
    if (nnp_model_segment(model, i, &segment) != NNP_OK || segment.last_ns == NNP_UNKNOWN_NS) {
      continue;
    }
    std::string name = "segment " + std::to_string(i) + " " + segment.engine;
    if (segment.accelerator) {
      name += std::string(":") + segment.accelerator;
    }
    if (segment.fell_back) {
      name += " fell back";
    }
    const et_timestamp_t end = start + segment.last_ns * ratio.denominator / ratio.numerator;
    event_tracer_log_profiling_delegate(tracer, name.c_str(), kUnsetDelegateDebugIntId, start, end);
    start = end;
  }
}

class NnapiBackend final : public BackendInterface {
public:
  bool is_available() const override { return true; }

  Result<DelegateHandle *> init(BackendInitContext &context, FreeableBuffer *processed,
                                ArrayRef<CompileSpec> compile_specs) const override {
    std::unique_ptr<Call> call(new (std::nothrow) Call);
    if (!call) {
      return Error::MemoryAllocationFailed;
    }
    Settings settings;
    {
      const std::lock_guard<std::mutex> held(shared().lock);
      settings = shared().settings;
    }
    Error error = read_specs(compile_specs, settings);
    if (error == Error::Ok) {
      error = apply_all(context.runtime_specs(), settings);
    }
    if (error == Error::Ok) {
      // The bundle points into `processed`, which ExecuTorch keeps until the method is destroyed.
      error = open(*call, context.get_named_data_map(),
                   static_cast<const uint8_t *>(processed->data()), processed->size());
    }
    if (error == Error::Ok) {
      call->program = context.get_named_data_map();
      error = compile(*call, settings);
    }
    if (error != Error::Ok) {
      return error;
    }
    return static_cast<DelegateHandle *>(call.release());
  }

  Error execute(BackendExecutionContext &context, DelegateHandle *handle,
                Span<EValue *> args) const override {
    Call &call = *static_cast<Call *>(handle);
    nnp_model *model =
        call.models[call.is_mixture ? nnp_bundle_select(call.bundle, call.frame++) : call.plan];
    const uint32_t n_inputs = nnp_bundle_n_inputs(call.bundle);
    const uint32_t n_outputs = nnp_bundle_n_outputs(call.bundle);
    std::vector<const void *> inputs(n_inputs, nullptr);
    std::vector<void *> outputs(n_outputs, nullptr);
    for (uint32_t i = 0; i < n_inputs; i++) {
      const nnp_tensor &end = *nnp_bundle_input(call.bundle, i);
      const Tensor *tensor = argument(args, call.places[i], end);
      if (!tensor) {
        return Error::InvalidArgument;
      }
      if (lies_alike(*tensor, end)) {
        inputs[i] = tensor->const_data_ptr();
      } else if (!lay_out(*tensor, end, nnp_model_input(model, i))) {
        ET_LOG(Error, "NnapiBackend: %s has integers beyond 32 bits, which NNAPI lacks", end.name);
        return Error::InvalidArgument;
      }
    }
    for (uint32_t i = 0; i < n_outputs; i++) {
      const nnp_tensor &end = *nnp_bundle_output(call.bundle, i);
      Tensor *tensor = argument(args, call.places[n_inputs + i], end);
      if (!tensor) {
        return Error::InvalidArgument;
      }
      if (lies_alike(*tensor, end)) {
        outputs[i] = tensor->mutable_data_ptr();
      }
    }
    const et_timestamp_t start = pal_current_ticks();
    nnp_error error;
    const nnp_status status = nnp_model_run(model, inputs.data(), outputs.data(), &error);
    if (call.has_changed) {
      describe_again(model);
      call.has_changed = false;
    }
    if (status != NNP_OK) {
      ET_LOG(Error, "NnapiBackend: segment %d: %s", static_cast<int>(error.segment), error.message);
      return to_error(status);
    }
    for (uint32_t i = 0; i < n_outputs; i++) {
      if (!outputs[i]) {
        take_in(nnp_model_output(model, i), *nnp_bundle_output(call.bundle, i),
                args[call.places[n_inputs + i]]->toTensor());
      }
    }
    if (context.event_tracer()) {
      trace(context.event_tracer(), model, start);
    }
    return Error::Ok;
  }

  void destroy(DelegateHandle *handle) const override {
    Call *call = static_cast<Call *>(handle);
    if (may_still_run(*call)) { // keep the weights
      ET_LOG(Error,
             "NnapiBackend: a driver that was given up may still run: its call is not freed");
      return;
    }
    delete call;
  }

  // Applies to models loaded from then on: docs/executorch.md lists the options. Options of a
  // single load, which ExecuTorch passes to init, take precedence over these and over the file's.
  Error set_option(BackendOptionContext & /*context*/,
                   const Span<BackendOption> &options) override {
    const std::lock_guard<std::mutex> held(shared().lock);
    return apply_all(options, shared().settings);
  }
};

NnapiBackend backend;
const Error registered = register_backend({backend_name, &backend});

} // namespace
} // namespace nnapi_prof

// For hosts, such as Python, that load this library and cannot call set_option: sets the same
// options (with room for longer names) and resets all others to their defaults; a NULL name sets
// none. Returns 0, or ExecuTorch's error if the back end could not be registered.
extern "C" __attribute__((visibility("default"))) int
nnapi_prof_executorch_configure(const char *nnapi_library, const char *cache_folder,
                                const char *trial_helper, int fallback, int trial,
                                uint64_t compile_limit_ns, uint64_t run_limit_ns, uint32_t threads,
                                uint64_t cpu_mask) {
  nnapi_prof::Settings settings;
  settings.nnapi_library = nnapi_library ? nnapi_library : "";
  settings.cache_folder = cache_folder ? cache_folder : "";
  settings.trial_helper = trial_helper ? trial_helper : "";
  settings.options.flags = static_cast<uint32_t>(NNP_AS_MEASURED) |
                           (fallback ? static_cast<uint32_t>(NNP_CPU_FALLBACK) : 0) |
                           (trial ? static_cast<uint32_t>(NNP_TRIAL) : 0);
  settings.options.compile_limit_ns = compile_limit_ns;
  settings.options.run_limit_ns = run_limit_ns;
  settings.options.threads = threads;
  settings.options.cpu_mask = cpu_mask;
  const std::lock_guard<std::mutex> held(nnapi_prof::shared().lock);
  nnapi_prof::shared().settings = std::move(settings);
  return static_cast<int>(nnapi_prof::registered);
}
