/* A bundle file (FORMAT.md) as data. */
#ifndef NP_BUNDLE_H
#define NP_BUNDLE_H

#include <stddef.h>
#include <stdint.h>

#include "model.h"
#include "nnapi_prof_runtime.h"
#include "np_status.h"

#define NP_BUNDLE_VERSION 1u
#define NP_BUNDLE_NONE UINT32_MAX

enum np_bundle_engine { NP_BUNDLE_CPU = 0, NP_BUNDLE_NNAPI = 1 };
enum { NP_BUNDLE_SYNC = 0, NP_BUNDLE_BURST = 1, NP_BUNDLE_ASYNC = 2 };
/* Flags of a segment; the last two are for the CPU only. */
enum { NP_BUNDLE_RELAXED = 1, NP_BUNDLE_HALF = 2, NP_BUNDLE_ONE_THREAD = 4 };

/* The cores to run on: any, the big ones of the phone at hand, or those of a mask. */
enum np_bundle_cores { NP_BUNDLE_ANY = 0, NP_BUNDLE_BIG = 1, NP_BUNDLE_MASK = 2 };

struct np_bundle_tensor {
  int32_t type;
  uint32_t rank;
  const uint32_t *dims; /* [rank], none is 0; scalars have rank 0 */
  float scale;
  int32_t zero_point;
  size_t n_bytes;
};

/* The smallest named part of a model. */
struct np_bundle_unit {
  const char *name;
  double share; /* part of its segment's predicted latency */
};

struct np_bundle_segment {
  enum np_bundle_engine engine;
  const char *accelerator; /* NULL: none or NNAPI's choice */
  int32_t preference;      /* -1: none */
  uint32_t flags;
  uint32_t model;
  uint32_t n_inputs;
  const struct np_port *inputs; /* [n_inputs], in place */
  uint32_t n_outputs;
  const struct np_port *outputs;
  double predicted_ns; /* 0: unknown */
  uint32_t n_units;    /* 0: unknown */
  struct np_bundle_unit *units;
};

struct np_bundle_plan {
  const char *name;
  uint32_t n_segments;
  struct np_bundle_segment *segments;
  int overlaps; /* in a queue each segment runs as soon as its inputs are ready and its lane is
                   free */
};

/* An input or output of the whole model: the app's view of it, and its tensor. */
struct np_bundle_end {
  nnp_tensor known;
  uint32_t tensor;
};

/* The share of frames that run by a plan. */
struct np_bundle_share {
  uint32_t plan;
  double share; /* above 0; all shares sum to 1 */
};

/* A name of a phone, and the plan that the phone runs. */
struct np_bundle_name {
  const char *name;
  uint32_t plan;
  uint32_t threads; /* 0: as in the bundle */
};

/* The location of a bundle's bytes. */
struct np_bundle_file {
  const void *bytes;
  size_t n_bytes;
  int fd;             /* a file that contains them, at `offset`; -1: none */
  uint64_t offset;    /* in the file */
  nnp_weights *parts; /* weights stored elsewhere, owned; NULL: they are in the bytes */
  uint32_t n_parts;
};

/* Arrays and strings are owned; models and ports point into the bytes. */
struct np_bundle {
  struct np_bundle_file file;
  uint32_t mode;    /* mode of NNAPI's executions, as the plans were measured */
  uint32_t threads; /* threads of the CPU engine, as the plans were measured */
  enum np_bundle_cores cores;
  uint64_t cpu_mask;         /* for NP_BUNDLE_MASK, else 0 */
  int pointers;              /* pass NNAPI addresses, no shared memory */
  uint64_t compile_limit_ns; /* for a segment, 0: unknown */
  uint64_t run_limit_ns;
  uint32_t n_strings;
  char **strings;
  uint32_t n_tensors;
  struct np_bundle_tensor *tensors;
  uint32_t n_models;
  struct np_model *models; /* bound to their weights */
  uint32_t n_plans;
  struct np_bundle_plan *plans;
  uint32_t n_segments; /* total of all plans, one plan after the other */
  struct np_bundle_segment *segments;
  uint32_t n_inputs;
  struct np_bundle_end *inputs;
  uint32_t n_outputs;
  struct np_bundle_end *outputs;
  uint32_t n_shares; /* 0: not a mixture, frames run by plan 0 */
  struct np_bundle_share *shares;
  _Atomic uint32_t
      *n_left;       /* abandoned calls of NNAPI that may still read the bytes, see np_guarded */
  int is_for_phones; /* the phone's names determine the plan */
  uint32_t others;   /* the plan of phones without a name here */
  uint32_t n_names;
  struct np_bundle_name *names;
};

/* Weights outside the bundle's bytes; parts is NULL if they are in its section WGHT. */
struct np_weights {
  const nnp_weights *parts;
  uint32_t n;
};

/* Reads a bundle from bytes[size], which must be aligned to 4 and, like the weights, outlive it.
 * Checks every rule of FORMAT.md except the checksum of WGHT, so that code that runs a plan can
 * index without checks. The caller frees *bundle with np_bundle_free, even after a failure.
 * NP_BAD_REQUEST with section, item and field in *why; NP_BAD_ARGUMENT, NP_NO_MEMORY. */
enum np_status np_bundle_read(const void *bytes, size_t size, struct np_weights weights,
                              struct np_bundle *bundle, struct np_message *why);

/* Checks the checksum of the section WGHT, which np_bundle_read skips because it touches every
 * page. NP_BAD_REQUEST if it does not match. */
enum np_status np_bundle_check_weights(const struct np_bundle *bundle, struct np_message *why);

void np_bundle_free(struct np_bundle *bundle);

#endif
