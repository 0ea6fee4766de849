/* The interface of an engine, which compiles and runs models. nnapi_engine.c and cpu.c each
 * implement it. */
#ifndef NP_ENGINE_H
#define NP_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#include "model.h"
#include "np_status.h"
#include "shm.h"

#define NP_FOLDER_BYTES 512

/* How to compile and run a model; each engine uses the options that concern it. */
struct np_options {
  const char *accelerator; /* NULL leaves the choice to NNAPI */
  int32_t preference;      /* 0, 1, 2, or -1 for none */
  int32_t priority;        /* NNAPI's PriorityCode, 0 for its own */
  int relaxed;             /* fp32 may be computed as fp16 */
  int half;                /* fp32 is computed as fp16 where the CPU engine can, even if that is
                              slow */
  int burst;
  int async;          /* start the computation, then wait for its event; not with burst */
  int pointers;       /* pass NNAPI addresses, no shared memory */
  int measure_timing; /* ask the driver for durations if it can report them */
  uint32_t threads;   /* at least 1 */
  uint32_t number;    /* the segment's index, for messages */
  char cache_folder[NP_FOLDER_BYTES]; /* folder in which drivers cache compiled models, "": none */
};

/* Memory that an engine got through `share`. */
struct np_engine_memory;

/* One input or output of a run. */
struct np_io {
  void *data; /* aligned to 64 bytes, or a page of a blob; inputs are not written */
  size_t n_bytes;
  uint32_t rank;
  const uint32_t *dims;                  /* [rank], all known */
  const struct np_engine_memory *memory; /* memory that contains `data`, NULL: not in shared
                                            memory */
  size_t offset;                         /* offset of `data` in `memory` */
};

#define NP_NO_DURATION UINT64_MAX

/* Durations of a run as the driver reports them, NP_NO_DURATION where it does not. */
struct np_durations {
  uint64_t hardware_ns;
  uint64_t driver_ns;
};

/* A failure of an engine: its own result code, if any, and a sentence. */
struct np_fault {
  int has_code;
  int code;
  int wrong_shape; /* an output's shape differs from the model's */
  int is_changed;  /* an accelerator has changed since the request began */
  struct np_message why;
};

/* Whether another engine runs a model in this one's place (library/fallback.h). */
struct np_stand_in;

/* Facts about a compiled model; zero where an engine does not report them. */
struct np_engine_facts {
  enum np_shm_kind memory;            /* kind in which inputs and outputs are passed */
  int has_kernels;                    /* the two counts are known */
  uint32_t n_xnnpack;                 /* operations of the lowered graph that XNNPACK computes */
  uint32_t n_portable;                /* those of our portable kernels */
  const struct np_stand_in *stand_in; /* the compiled model's, NULL: the engine has no stand-in */
};

/* A compiled model of some engine. */
struct np_compiled;

struct np_engine {
  const char *name;
  void *ctx; /* passed to compile */

  /* Compiles a model, which must outlive the result. NP_OK with *compiled, which the caller frees
   * with `free`; NP_UNSUPPORTED if the engine cannot run this model, with the reason in fault->why;
   * any other status if compiling failed. */
  enum np_status (*compile)(void *ctx, const struct np_model *model,
                            const struct np_options *options, struct np_compiled **compiled,
                            struct np_fault *fault);

  /* Runs once; inputs and outputs are in the model's order. This call is what is timed. NP_OK, or
   * any other status with the cause in *fault. An engine that `lingers` returns NP_DEADLINE for a
   * run that it abandoned but that may still read and write the shared memory it was given, though
   * nothing that was passed by address; the caller then runs it once more without shared memory. */
  int lingers;
  enum np_status (*run)(struct np_compiled *compiled, const struct np_io *inputs,
                        const struct np_io *outputs, struct np_fault *fault);

  /* Releases what the last run left and returns its durations; is not timed. Optional: without it
   * there are no durations and nothing to release. */
  void (*settle)(struct np_compiled *compiled, struct np_durations *durations);

  /* Asks for durations from the next run on, as options->measure_timing does for all runs; returns
   * 0 if there are none. Optional. */
  int (*ask)(struct np_compiled *compiled);

  /* Fills in facts about the model; *facts is zero before. Optional. */
  void (*describe)(const struct np_compiled *compiled, struct np_engine_facts *facts);

  void (*free)(struct np_compiled *compiled);

  /* Registers the first `size` bytes of a file as memory that inputs and outputs may refer to; the
   * engine maps it for itself. NP_OK with *memory, which the caller gives back with `unshare` after
   * the compiled models that ran with it are freed; any other status if the engine does not accept
   * it. Optional, both or none: without them an engine needs addresses only. */
  enum np_status (*share)(void *ctx, int fd, size_t size, struct np_engine_memory **memory);
  void (*unshare)(void *ctx, struct np_engine_memory *memory);
};

#endif
