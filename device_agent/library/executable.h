/* A plan of a bundle, compiled: what models and queues run, and the agent's actions. */
#ifndef NP_EXECUTABLE_H
#define NP_EXECUTABLE_H

#include "fallback.h"
#include "nnapi.h"
#include "pipeline.h"
#include "runtime.h"
#include "simulator.h"

/* What became of a segment when it was compiled. */
struct np_segment_facts {
  struct np_engine_facts engine;
  int is_borrowed;
  uint64_t compile_ns;
};

/* What one frame at a time runs with. */
struct np_context {
  struct np_pipeline *pipeline; /* with tensors of its own */
  struct np_fault fault;        /* of the pipeline */
};

/* The contexts share what the segments are compiled to: a segment runs for one of them at a time.
 */
struct np_executable {
  const struct np_bundle *bundle;
  const struct np_bundle_plan *chosen;
  struct np_pipeline_plan plan;
  struct np_simulator *simulator; /* of the CPU engine, NULL in real time */
  uint32_t n_contexts;
  struct np_context *contexts;
  struct np_segment_facts *facts; /* [n_segments] */
  struct np_trial_record trial;   /* of this plan, if it had one of its own */
  struct np_fallback fallback;    /* the engine of NNAPI's segments; it stays where it is */
};

/* The options with what they leave open filled in: those in *given, or the defaults where it is
 * NULL. NNP_BAD_ARGUMENT for flags that are none or exclude each other; the plan is not looked at.
 */
nnp_status np_executable_options(const struct np_bundle *bundle, const nnp_options *given,
                                 nnp_options *options, nnp_error *error);

/* What an engine is asked for by a segment and the options. */
struct np_options np_executable_segment_options(const struct np_bundle_segment *segment,
                                                const nnp_options *options, uint32_t s);

/* NNAPI's library as several plans share it; NULL and why where it is not open. */
struct np_nnapi_library {
  struct np_nnapi *nnapi;
  nnp_cause cause;
  struct np_message why;
  struct np_simulator *simulator; /* of the CPU engine, NULL in real time */
  uint32_t tried;                 /* plan whose segments were tried when it was opened ... */
  struct np_trial_record trial;   /* ... and what came of it */
};

/* Opens NNAPI's library where a plan has a part for it and it is not open yet, after a trial where
 * the options ask for that. Where there is none NNP_MISSING, but with the fallback NNP_OK: then
 * each segment that needs it will say why. */
nnp_status np_executable_open(const struct np_bundle *bundle, uint32_t plan,
                              const nnp_options *options, struct np_nnapi_library *library,
                              nnp_error *error);

/* Closes it, and leaves none. */
void np_executable_close(struct np_nnapi_library *library);

/* Says of a plan what its segments are and what runs them, without compiling anything or making
 * memory: who has engines' options of its own sets them in self->plan now. NP_NO_MEMORY; to be
 * freed with np_executable_free also then. */
enum np_status np_executable_describe(const struct np_bundle *bundle, uint32_t plan,
                                      const nnp_options *options,
                                      const struct np_nnapi_library *library,
                                      struct np_executable *self);

/* Makes n contexts of what is described, with memory of their own. NP_NO_MEMORY, with what it was
 * for in the last one's fault. */
enum np_status np_executable_contexts(struct np_executable *self, uint32_t n);

/* Compiles a plan of the bundle, which must outlive it, as must the library; it gets n_contexts, at
 * least one. A segment that one of others[n_others] has is not compiled again but borrowed
 * (np_pipeline_borrow): free them first. To be freed with np_executable_free also after a failure.
 */
nnp_status np_executable_make(const struct np_bundle *bundle, uint32_t plan, uint32_t n_contexts,
                              const nnp_options *options, const struct np_nnapi_library *library,
                              const struct np_executable *others, uint32_t n_others,
                              struct np_executable *self, nnp_error *error);

void np_executable_free(struct np_executable *self);

/* What an engine said, as the library says it: its status. */
nnp_status np_executable_failed(const struct np_fault *fault, enum np_status status,
                                int32_t segment, nnp_error *error);

/* Describes a segment but for the times of its runs, which are unknown. */
nnp_segment np_executable_segment(const struct np_executable *self, uint32_t segment);

/* What a model runs. */
const struct np_executable *np_executable_of(const nnp_model *model);

/* Whether NNAPI runs a segment. */
int np_executable_on_nnapi(const struct np_executable *self, uint32_t segment);

/* Whether the caller's buffers stand where their elements may; each of them, and both lists, may be
 * NULL. */
nnp_status np_executable_check(const struct np_bundle *bundle, const void *const *inputs,
                               void *const *outputs, nnp_error *error);

/* Lets a pipeline read the caller's inputs where they are, or copies them; a NULL in them, or for
 * all, stands for its own. */
void np_executable_take(const struct np_bundle *bundle, struct np_pipeline *pipeline,
                        const void *const *inputs);

/* Lets it write the caller's outputs where they are, as far as it can; _give copies the others,
 * once they are written. */
void np_executable_place(const struct np_bundle *bundle, struct np_pipeline *pipeline,
                         void *const *outputs);
void np_executable_give(const struct np_bundle *bundle, const struct np_pipeline *pipeline,
                        void *const *outputs);

#endif
