/* A compiled plan of a bundle, as run by models, queues and the agent's actions. */
#ifndef NP_EXECUTABLE_H
#define NP_EXECUTABLE_H

#include "fallback.h"
#include "nnapi.h"
#include "pipeline.h"
#include "runtime.h"
#include "simulator.h"

/* The result of compiling a segment. */
struct np_segment_facts {
  struct np_engine_facts engine;
  int is_borrowed;
  uint64_t compile_ns;
};

/* The memory and state that one frame at a time runs with. */
struct np_context {
  struct np_pipeline *pipeline; /* with tensors of its own */
  struct np_fault fault;        /* the pipeline's */
};

/* The contexts share the compiled segments: a segment runs for one of them at a time. */
struct np_executable {
  const struct np_bundle *bundle;
  const struct np_bundle_plan *chosen;
  struct np_pipeline_plan plan;
  struct np_simulator *simulator; /* the CPU engine's, NULL in real time */
  uint32_t n_contexts;
  struct np_context *contexts;
  struct np_segment_facts *facts; /* [n_segments] */
  struct np_trial_record trial;   /* this plan's, if it had its own trial */
  struct np_fallback fallback;    /* the engine of NNAPI's segments; must not move */
};

/* Copies *given, or the defaults if it is NULL, to *options and fills in what they leave open.
 * NNP_BAD_ARGUMENT for unknown flags, or flags that exclude each other; does not check the plan. */
nnp_status np_executable_options(const struct np_bundle *bundle, const nnp_options *given,
                                 nnp_options *options, nnp_error *error);

/* Returns an engine's options for a segment. */
struct np_options np_executable_segment_options(const struct np_bundle_segment *segment,
                                                const nnp_options *options, uint32_t s);

/* NNAPI's library, shared by several plans; if it is not open, `nnapi` is NULL, and `cause` and
 * `why` say why. */
struct np_nnapi_library {
  struct np_nnapi *nnapi;
  nnp_cause cause;
  struct np_message why;
  struct np_simulator *simulator; /* the CPU engine's, NULL in real time */
  uint32_t tried;                 /* plan whose segments were tried before it was opened, ... */
  struct np_trial_record trial;   /* ... and the result */
};

/* Opens NNAPI's library if a plan needs it and it is not open yet, after a trial if the options ask
 * for one. If there is no library, returns NNP_MISSING, or NNP_OK with the fallback: then each
 * segment that needs it reports why it fell back. */
nnp_status np_executable_open(const struct np_bundle *bundle, uint32_t plan,
                              const nnp_options *options, struct np_nnapi_library *library,
                              nnp_error *error);

/* Closes the library and sets its fields to none. */
void np_executable_close(struct np_nnapi_library *library);

/* Fills in the segments of a plan and their engines, without compiling anything or allocating
 * tensors. A caller with engine options of its own changes them in self->plan afterwards. The
 * caller frees *self with np_executable_free, even after NP_NO_MEMORY. */
enum np_status np_executable_describe(const struct np_bundle *bundle, uint32_t plan,
                                      const nnp_options *options,
                                      const struct np_nnapi_library *library,
                                      struct np_executable *self);

/* Makes n contexts of a described plan, each with its own memory. NP_NO_MEMORY, with its purpose in
 * the last context's fault. */
enum np_status np_executable_contexts(struct np_executable *self, uint32_t n);

/* Compiles a plan and makes n_contexts, at least one. The bundle and the library must outlive
 * *self. A segment that one of others[n_others] has is not compiled again but borrowed
 * (np_pipeline_borrow): free those first. The caller frees *self with np_executable_free, even
 * after a failure. */
nnp_status np_executable_make(const struct np_bundle *bundle, uint32_t plan, uint32_t n_contexts,
                              const nnp_options *options, const struct np_nnapi_library *library,
                              const struct np_executable *others, uint32_t n_others,
                              struct np_executable *self, nnp_error *error);

void np_executable_free(struct np_executable *self);

/* Reports an engine's failure in *error and returns the library's status for it. */
nnp_status np_executable_failed(const struct np_fault *fault, enum np_status status,
                                int32_t segment, nnp_error *error);

/* Describes a segment; the times of its runs are left unknown. */
nnp_segment np_executable_segment(const struct np_executable *self, uint32_t segment);

/* Returns the executable that a model runs. */
const struct np_executable *np_executable_of(const nnp_model *model);

/* Returns whether NNAPI runs a segment. */
int np_executable_on_nnapi(const struct np_executable *self, uint32_t segment);

/* Checks that the caller's buffers are aligned to their elements; each of them, and both arrays,
 * may be NULL. */
nnp_status np_executable_check(const struct np_bundle *bundle, const void *const *inputs,
                               void *const *outputs, nnp_error *error);

/* Lets a pipeline read the caller's inputs in place, or copies them; a NULL element, or NULL for
 * the whole array, means the pipeline's own buffer. */
void np_executable_take(const struct np_bundle *bundle, struct np_pipeline *pipeline,
                        const void *const *inputs);

/* _place lets a pipeline write the caller's outputs in place where it can; _give copies the others
 * once they are written. */
void np_executable_place(const struct np_bundle *bundle, struct np_pipeline *pipeline,
                         void *const *outputs);
void np_executable_give(const struct np_bundle *bundle, const struct np_pipeline *pipeline,
                        void *const *outputs);

#endif
