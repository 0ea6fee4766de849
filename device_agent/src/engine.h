/* What an engine is: who compiles and runs one model. nnapi.c and cpu.c each fill one table. */
#ifndef NP_ENGINE_H
#define NP_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#include "model.h"
#include "np_status.h"
#include "shm.h"

#define NP_FOLDER_BYTES 512

/* How a model is to be compiled and run; each engine takes what concerns it. */
struct np_options {
  const char *accelerator; /* NULL leaves the choice to NNAPI */
  int32_t preference;      /* 0, 1, 2, or -1 for none */
  int32_t priority;        /* NNAPI's PriorityCode, 0 for its own */
  int relaxed;             /* fp32 may be computed as fp16 */
  int half;                /* fp32 is computed as fp16 where the CPU engine can, however slowly */
  int burst;
  int async;          /* start the computation, then wait for its event; not with burst */
  int pointers;       /* hand NNAPI addresses, no shared memory */
  int measure_timing; /* ask the driver for durations where it can tell them */
  uint32_t threads;   /* at least 1 */
  uint32_t number;    /* of the segment, in what is told of it */
  char cache_folder[NP_FOLDER_BYTES]; /* where drivers keep what they compiled, "": nowhere */
};

/* Memory that an engine was given by `share`. */
struct np_engine_memory;

/* One input or output of a run. */
struct np_io {
  void *data; /* aligned to 64 bytes, or a page of a blob; inputs are not written */
  size_t n_bytes;
  uint32_t rank;
  const uint32_t *dims;                  /* [rank], all known */
  const struct np_engine_memory *memory; /* what `data` is a part of, NULL: of nothing shared */
  size_t offset;                         /* of `data` in it */
};

#define NP_NO_DURATION UINT64_MAX

/* What the driver said of a run, NP_NO_DURATION where it said nothing. */
struct np_durations {
  uint64_t hardware_ns;
  uint64_t driver_ns;
};

/* One failure of an engine: its own result code where it has any, and a sentence. */
struct np_fault {
  int has_code;
  int code;
  int wrong_shape; /* an output came with another shape than the model's */
  int is_changed;  /* an accelerator is not the one that it was when the request began */
  struct np_message why;
};

/* Of an engine that may let another one run the model: what became of that (library/fallback.h). */
struct np_stand_in;

/* What became of a model: zero where an engine has nothing to tell. */
struct np_engine_facts {
  enum np_shm_kind memory;            /* in which inputs and outputs are handed over */
  int has_kernels;                    /* the two counts are known */
  uint32_t n_xnnpack;                 /* operations of the lowered graph that XNNPACK computes */
  uint32_t n_portable;                /* those of our portable kernels */
  const struct np_stand_in *stand_in; /* of the compiled model, NULL: there can be none */
};

/* A compiled model of some engine. */
struct np_compiled;

struct np_engine {
  const char *name;
  void *ctx; /* passed to compile */

  /* Compiles a model, which must outlive the result. NP_OK with *compiled, to be freed with `free`;
   * NP_UNSUPPORTED where the engine cannot run this model, with what it lacks in fault->why;
   * any other status where compiling went wrong. */
  enum np_status (*compile)(void *ctx, const struct np_model *model,
                            const struct np_options *options, struct np_compiled **compiled,
                            struct np_fault *fault);

  /* Runs once; inputs and outputs are in the order of the model's. This is what is timed. NP_OK, or
   * any other status with the cause in *fault. An engine that `lingers` says NP_DEADLINE of a run
   * that was given up, but may read and write the shared memory that it was told of still, and
   * nothing that was handed over by its address alone; it is asked once more, without shared
   * memory. */
  int lingers;
  enum np_status (*run)(struct np_compiled *compiled, const struct np_io *inputs,
                        const struct np_io *outputs, struct np_fault *fault);

  /* Releases what the last run left and tells its durations; is not timed. Optional: no durations,
   * nothing to release. */
  void (*settle)(struct np_compiled *compiled, struct np_durations *durations);

  /* Asks for durations from the next run on, as options->measure_timing does of all; 0 where it
   * cannot tell them. Optional. */
  int (*ask)(struct np_compiled *compiled);

  /* Tells what became of the model; *facts is zero before. Optional. */
  void (*describe)(const struct np_compiled *compiled, struct np_engine_facts *facts);

  void (*free)(struct np_compiled *compiled);

  /* Takes memory that lies in a file, from its start on, to be named by inputs and outputs; the
   * engine maps it for itself. NP_OK with *memory, to be given back with `unshare` after the
   * compiled models that were run with it are freed; any other status where it does not take it.
   * Optional, both or none: an engine without needs addresses only. */
  enum np_status (*share)(void *ctx, int fd, size_t size, struct np_engine_memory **memory);
  void (*unshare)(void *ctx, struct np_engine_memory *memory);
};

#endif
