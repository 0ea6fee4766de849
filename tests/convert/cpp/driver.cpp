// Uses one generated class as an app would. MODEL is its name, HEADER its header; with WEIGHTLESS
// it has no weights.
//
//   driver run LIBRARY WEIGHTS DEVICE OPTIONS FOLDER N
//     runs N times; in run i input k is read from FOLDER/in_i_k, output k goes to FOLDER/out_i_k.
//     DEVICE is a name or "auto". OPTIONS is made of the letters b (burst), r (relaxed), m (weights
//     from memory), 0 to 2 (preference).
//   driver misuse LIBRARY WEIGHTS
//     does what is refused, and prints a line for each answer.
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include HEADER

static_assert(!std::is_copy_constructible<MODEL>::value, "move-only");
static_assert(!std::is_copy_assignable<MODEL>::value, "move-only");
static_assert(std::is_nothrow_move_constructible<MODEL>::value, "move-only");
static_assert(std::is_nothrow_move_assignable<MODEL>::value, "move-only");

namespace {

using Bytes = std::vector<char>;

Bytes readFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

int say(const char* what, const MODEL::Status& status) {
  std::printf("%s: %d %s\n", what, status.code, status.message.c_str());
  return status.ok() ? 0 : 1;
}

MODEL::Status create(const char* weights, const MODEL::Options& options, const Bytes* memory,
                     MODEL* model) {
#ifdef WEIGHTLESS
  static_cast<void>(weights);
  static_cast<void>(memory);
  return MODEL::create(options, model);
#else
  return memory != nullptr
             ? MODEL::createFromMemory(memory->data(), memory->size(), options, model)
             : MODEL::createFromFile(weights, options, model);
#endif
}

template <typename T>
MODEL::Status bind(MODEL* model, const MODEL::Tensor& tensor, bool input, Bytes* bytes) {
  T* const data = reinterpret_cast<T*>(bytes->data());
  return input ? model->setInput(tensor.name, data, tensor.count)
               : model->setOutput(tensor.name, data, tensor.count);
}

MODEL::Status bindAny(MODEL* model, const MODEL::Tensor& tensor, bool input, Bytes* bytes) {
  bytes->resize(tensor.bytes);
  switch (tensor.element) {
    case MODEL::Element::kFloat32: return bind<float>(model, tensor, input, bytes);
    case MODEL::Element::kInt32: return bind<std::int32_t>(model, tensor, input, bytes);
    case MODEL::Element::kFloat16:
    case MODEL::Element::kUint16: return bind<std::uint16_t>(model, tensor, input, bytes);
    case MODEL::Element::kInt16: return bind<std::int16_t>(model, tensor, input, bytes);
    case MODEL::Element::kInt8: return bind<std::int8_t>(model, tensor, input, bytes);
    case MODEL::Element::kBool8: return bind<bool>(model, tensor, input, bytes);
    case MODEL::Element::kUint8: break;
  }
  return bind<std::uint8_t>(model, tensor, input, bytes);
}

int run(char** arguments) {
  const std::string letters = arguments[3], folder = arguments[4];
  MODEL::Options options;
  options.library = arguments[0];
  options.device = std::strcmp(arguments[2], "auto") == 0 ? nullptr : arguments[2];
  options.burst = letters.find('b') != std::string::npos;
  options.relaxed = letters.find('r') != std::string::npos;
  const std::size_t preference = letters.find_first_of("012");
  if (preference != std::string::npos) {
    options.preference = static_cast<MODEL::Preference>(letters[preference] - '0');
  }
  const Bytes weights = readFile(arguments[1]);
  MODEL made;
  const bool in_memory = letters.find('m') != std::string::npos;
  MODEL::Status status =
      create(arguments[1], options, in_memory ? &weights : nullptr, &made);
  if (!status.ok()) {
    return say("create", status);
  }
  MODEL model(std::move(made));
  std::vector<Bytes> inputs(MODEL::inputCount()), outputs(MODEL::outputCount());
  for (std::size_t k = 0; status.ok() && k < inputs.size(); ++k) {
    status = bindAny(&model, MODEL::inputs()[k], true, &inputs[k]);
  }
  for (std::size_t k = 0; status.ok() && k < outputs.size(); ++k) {
    status = bindAny(&model, MODEL::outputs()[k], false, &outputs[k]);
  }
  const int n = std::stoi(arguments[5]);
  for (int i = 0; status.ok() && i < n; ++i) {
    const std::string number = std::to_string(i) + "_";
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      const Bytes content = readFile(folder + "/in_" + number + std::to_string(k));
      if (content.size() != inputs[k].size()) {
        return 2;
      }
      std::memcpy(inputs[k].data(), content.data(), content.size());
    }
    status = model.execute();
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      std::ofstream file(folder + "/out_" + number + std::to_string(k), std::ios::binary);
      file.write(outputs[k].data(), static_cast<std::streamsize>(outputs[k].size()));
    }
  }
  return status.ok() ? 0 : say("run", status);
}

int misuse(char** arguments) {
  MODEL::Options options;
  options.library = "libno-such-library.so";
  MODEL model;
  say("no library", create(arguments[1], options, nullptr, &model));
  options.library = arguments[0];
  say("empty", model.execute());
  options.device = "no such device";
  say("device", create(arguments[1], options, nullptr, &model));
  options.device = nullptr;
#ifndef WEIGHTLESS
  say("missing file", MODEL::createFromFile("no/such/file", options, &model));
  say("folder", MODEL::createFromFile("/", options, &model));
  Bytes weights = readFile(arguments[1]);
  say("short", MODEL::createFromMemory(weights.data(), weights.size() - 1, options, &model));
  weights[9] = static_cast<char>(weights[9] ^ 1);
  say("other", MODEL::createFromMemory(weights.data(), weights.size(), options, &model));
  say("nullptr", MODEL::createFromMemory(nullptr, weights.size(), options, &model));
#endif
  say("create", create(arguments[1], options, nullptr, &model));
  say("unset", model.execute());
  const MODEL::Tensor& input = MODEL::inputs()[0];
  const MODEL::Tensor& output = MODEL::outputs()[0];
  std::vector<float> floats(input.count + 1);
  std::vector<std::int32_t> ints(input.count);
  say("size", model.setInput(input.name, floats.data(), input.count + 1));
  say("name", model.setInput("nobody", floats.data(), input.count));
  say("type", model.setInput(input.name, ints.data(), input.count));
  say("data", model.setInput(input.name, static_cast<const float*>(nullptr), input.count));
  say("output size", model.setOutput(output.name, floats.data(), output.count - 1));
  say("input", model.setInput(input.name, floats.data(), input.count));
  say("still unset", model.execute());
  MODEL moved(std::move(model));
  say("moved from", model.execute());
  std::printf("%d %d\n", static_cast<int>(static_cast<bool>(model)),
              static_cast<int>(static_cast<bool>(moved)));
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count == 8 && std::strcmp(arguments[1], "run") == 0) {
    return run(arguments + 2);
  }
  return count == 4 && std::strcmp(arguments[1], "misuse") == 0 ? misuse(arguments + 2) : 2;
}
