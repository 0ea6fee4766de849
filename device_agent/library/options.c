/* Options of an app, and the engine options that follow from them. */
#include <stdio.h>
#include <string.h>

#include "conditions.h"
#include "executable.h"
#include "np_nnapi.h"
#include "phones.h"

nnp_options nnp_options_default(void) {
  return (nnp_options){.plan = NNP_BY_PHONE,
                       .flags = NNP_CPU_FALLBACK | NNP_AS_MEASURED,
                       .compile_limit_ns = NNP_COMPILE_LIMIT_NS,
                       .run_limit_ns = NNP_RUN_LIMIT_NS};
}

nnp_status np_executable_options(const struct np_bundle *bundle, const nnp_options *given,
                                 nnp_options *options, nnp_error *error) {
  const uint32_t flags = NNP_BURST | NNP_ASYNC | NNP_POINTERS | NNP_CPU_FALLBACK | NNP_DURATIONS |
                         NNP_AS_MEASURED | NNP_TRIAL;
  *options = given ? *given : nnp_options_default();
  NNP_REQUIRE((options->flags & ~flags) == 0 &&
                  ((options->flags & NNP_BURST) == 0 || (options->flags & NNP_ASYNC) == 0),
              error, NNP_BAD_ARGUMENT, "flags 0x%x: unknown ones, or burst and async together",
              options->flags);
  if ((options->flags & NNP_AS_MEASURED) != 0 && (options->flags & (NNP_BURST | NNP_ASYNC)) == 0) {
    options->flags |= bundle->mode == NP_BUNDLE_BURST   ? NNP_BURST
                      : bundle->mode == NP_BUNDLE_ASYNC ? NNP_ASYNC
                                                        : 0u;
  }
  NNP_REQUIRE(options->priority == 0 || options->priority == ANEURALNETWORKS_PRIORITY_LOW ||
                  options->priority == ANEURALNETWORKS_PRIORITY_MEDIUM ||
                  options->priority == ANEURALNETWORKS_PRIORITY_HIGH,
              error, NNP_BAD_ARGUMENT, "priority %d: 90, 100, 110, or 0 for NNAPI's own",
              options->priority);
  NNP_REQUIRE(!options->cache_folder || strlen(options->cache_folder) < NP_FOLDER_BYTES, error,
              NNP_BAD_ARGUMENT, "a cache_folder of %zu bytes, %d at most",
              strlen(options->cache_folder), NP_FOLDER_BYTES - 1);
  uint32_t threads = 0;
  if (options->plan == NNP_BY_PHONE ||
      (options->plan == NNP_MIXTURE && bundle->n_shares == 0 && bundle->is_for_phones)) {
    options->plan = bundle->is_for_phones
                        ? np_phones_select(bundle, NULL, options->nnapi_library, &threads)
                        : 0;
  }
  if (options->threads == 0) {
    options->threads = threads ? threads : bundle->threads ? bundle->threads : 1;
  }
  np_conditions_apply(bundle, options);
  return NNP_OK;
}

struct np_options np_executable_segment_options(const struct np_bundle_segment *segment,
                                                const nnp_options *options, uint32_t s) {
  const uint32_t flags = options->flags;
  const int has_one_thread = (segment->flags & NP_BUNDLE_ONE_THREAD) != 0;
  struct np_options own = {.accelerator = segment->accelerator,
                           .preference = segment->preference,
                           .priority = options->priority,
                           .relaxed = (segment->flags & NP_BUNDLE_RELAXED) != 0,
                           .half = (segment->flags & NP_BUNDLE_HALF) != 0,
                           .burst = (flags & NNP_BURST) != 0,
                           .async = (flags & NNP_ASYNC) != 0,
                           .pointers = (flags & NNP_POINTERS) != 0,
                           .measure_timing = (flags & NNP_DURATIONS) != 0,
                           .threads = has_one_thread ? 1 : options->threads,
                           .number = s};
  if (options->cache_folder) {
    (void)snprintf(own.cache_folder, NP_FOLDER_BYTES, "%s", options->cache_folder);
  }
  return own;
}
