// PTE DELEGATE NNAPI INPUT RUNS: for each line that it reads, so many runs; their ns as one line.
// An app's own program: ExecuTorch's runtime with the delegate's library, and no Python.
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>
#include <executorch/runtime/platform/runtime.h>

#include <dlfcn.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

using executorch::extension::Module;
using Configure = int (*)(const char *, const char *, const char *, int, int, uint64_t, uint64_t,
                          uint32_t, uint64_t);

int main(int argc, char **argv) {
  if (argc != 6) {
    return 2;
  }
  executorch::runtime::runtime_init();
  void *delegate = dlopen(argv[2], RTLD_NOW);
  if (!delegate) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  const auto configure =
      reinterpret_cast<Configure>(dlsym(delegate, "nnapi_prof_executorch_configure"));
  constexpr uint64_t second = 1000000000; // the library's own limits
  if (!configure || configure(argv[3], nullptr, nullptr, 1, 0, 10 * second, 2 * second, 0, 0) != 0) {
    return 1;
  }
  Module module(argv[1], Module::LoadMode::Mmap);
  const auto meta = module.method_meta("forward");
  if (!meta.ok()) {
    return 1;
  }
  const auto info = meta->input_tensor_meta(0);
  std::ifstream file(argv[4], std::ios::binary);
  std::vector<char> input((std::istreambuf_iterator<char>(file)), {});
  if (!info.ok() || input.size() != info->nbytes()) {
    return 1;
  }
  const auto order = info->dim_order();
  const auto sizes = info->sizes();
  const auto image =
      executorch::extension::make_tensor_ptr({sizes.begin(), sizes.end()}, input.data(),
                                             {order.begin(), order.end()}, {}, info->scalar_type());
  std::vector<char> taken(meta->output_tensor_meta(0)->nbytes());
  const int runs = std::atoi(argv[5]);
  for (std::string turn; std::getline(std::cin, turn);) {
    std::string line;
    for (int i = -runs / 4; i < runs; i++) {
      const auto start = std::chrono::steady_clock::now();
      const auto outputs = module.forward(image);
      if (!outputs.ok()) {
        return 1;
      }
      std::memcpy(taken.data(), outputs->at(0).toTensor().const_data_ptr(), taken.size());
      const auto ns = std::chrono::steady_clock::now() - start;
      if (i >= 0) {
        line += (i ? "," : "[") + std::to_string(std::chrono::nanoseconds(ns).count());
      }
    }
    std::printf("%s]\n", line.c_str());
    std::fflush(stdout);
  }
  return 0;
}
