// An app's own program: loads a .pte again and again, with the delegate linked into it, and runs it.
//
//   runner PTE NNAPI_LIBRARY CACHE_FOLDER LOADS    prints the sum of the outputs of each tenth load
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>
#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/backend/options.h>
#include <executorch/runtime/platform/runtime.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

using executorch::extension::Module;
using executorch::runtime::Error;

int main(int argc, char **argv) {
  executorch::runtime::runtime_init();
  executorch::runtime::BackendOptions<3> options;
  if (argc != 5 || options.set_option("nnapi_library", argv[2]) != Error::Ok ||
      options.set_option("cache_folder", argv[3]) != Error::Ok ||
      options.set_option("priority", "low") != Error::Ok ||
      executorch::runtime::set_option("NnapiBackend", options.view()) != Error::Ok) {
    return 2;
  }
  for (int load = 0; load < std::atoi(argv[4]); load++) {
    Module module(argv[1], Module::LoadMode::Mmap);
    if (module.load_forward() != Error::Ok) {
      return 1;
    }
    if (load % 10 == 0) {
      const auto sizes = module.method_meta("forward")->input_tensor_meta(0)->sizes();
      auto image = executorch::extension::ones({sizes.begin(), sizes.end()});
      const auto outputs = module.forward(image);
      if (!outputs.ok()) {
        return 1;
      }
      double sum = 0;
      const auto tensor = outputs->at(0).toTensor();
      for (ssize_t i = 0; i < tensor.numel(); i++) {
        sum += tensor.const_data_ptr<float>()[i];
      }
      std::printf("%.4f\n", sum);
    }
  }
  return 0;
}
