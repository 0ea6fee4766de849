/* Runs bundles of nnapi-prof in an app: a model cut into segments, each on the NNAPI accelerator or
 * on the CPU where it was measured to be fastest. README.md beside this header shows how.
 *
 *   nnp_bundle *bundle;
 *   nnp_model *model;
 *   nnp_error error;
 *   if (nnp_bundle_open("net.nnprt", &bundle, &error) != NNP_OK) ...
 *   if (nnp_model_compile(bundle, NULL, &model, &error) != NNP_OK) ...
 *   if (nnp_model_run(model, inputs, outputs, &error) != NNP_OK) ...
 *
 * Everything that can fail returns a status and, where `error` is not NULL, says more there.
 * Nothing is global, prints, or ends the process. A bundle may be used by several threads at once;
 * a model by one at a time. */
#ifndef NNAPI_PROF_RUNTIME_H
#define NNAPI_PROF_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(NNP_BUILDING) && defined(__GNUC__)
#define NNP_API __attribute__((visibility("default")))
#else
#define NNP_API
#endif

#define NNP_MAX_RANK 8

typedef enum nnp_status {
  NNP_OK = 0,
  NNP_BAD_ARGUMENT = 1, /* the call breaks a rule of this header */
  NNP_BAD_BUNDLE = 2,   /* the bytes are no intact bundle that this library reads */
  NNP_UNSUPPORTED = 3,  /* this phone's NNAPI or accelerator cannot run a segment */
  NNP_NO_MEMORY = 4,
  NNP_IO = 5,      /* the file cannot be opened or read */
  NNP_MISSING = 6, /* no NNAPI, or no accelerator of that name, on this phone */
  NNP_FAILED = 7   /* NNAPI or its driver failed */
} nnp_status;

typedef struct nnp_error {
  nnp_status status;
  int32_t segment;    /* the segment that it happened in, -1: in none */
  int32_t nnapi_code; /* NNAPI's ResultCode, 0 where it is not NNAPI's failure */
  char message[320];  /* a sentence, never empty after a failure */
} nnp_error;

/* ---- Bundles ---- */

typedef struct nnp_bundle nnp_bundle;

/* An input or output. Texts live as long as the bundle. */
typedef struct nnp_tensor {
  const char *name;
  int32_t type; /* NNAPI's OperandCode: 3 float32, 4 int32, 5 uint8 and 14 int8 quantised, 6 bool,
                   8 float16 */
  uint32_t rank;
  uint32_t dims[NNP_MAX_RANK];      /* as it lies in memory, outermost first */
  uint32_t dim_order[NNP_MAX_RANK]; /* which axis of the model's own shape dims[i] is: 0, 2, 3, 1
                                       for an NCHW model's image that lies as NHWC */
  float scale;                      /* quantised: real = (integer - zero_point) * scale */
  int32_t zero_point;
  size_t n_bytes;
} nnp_tensor;

/* Opens a bundle that `nnapi-prof convert BUNDLE --format runtime` wrote; it is mapped into memory
 * until it is closed. From memory, `bytes` must stand at a multiple of 8 (64 is best) and outlive
 * the bundle. Checksums and every length are checked. */
NNP_API nnp_status nnp_bundle_open(const char *path, nnp_bundle **bundle, nnp_error *error);
NNP_API nnp_status nnp_bundle_open_memory(const void *bytes, size_t n_bytes, nnp_bundle **bundle,
                                          nnp_error *error);

/* After all models of it are freed; NULL does nothing. */
NNP_API void nnp_bundle_close(nnp_bundle *bundle);

NNP_API uint32_t nnp_bundle_n_inputs(const nnp_bundle *bundle);
NNP_API uint32_t nnp_bundle_n_outputs(const nnp_bundle *bundle);
NNP_API uint32_t nnp_bundle_n_plans(const nnp_bundle *bundle);

/* NULL where there is none of this index. */
NNP_API const nnp_tensor *nnp_bundle_input(const nnp_bundle *bundle, uint32_t index);
NNP_API const nnp_tensor *nnp_bundle_output(const nnp_bundle *bundle, uint32_t index);

/* Plan 0 is the one that was found to be best; the others are for comparison, such as "cpu". */
NNP_API const char *nnp_bundle_plan(const nnp_bundle *bundle, uint32_t index);

/* ---- Models ---- */

typedef struct nnp_model nnp_model;

enum {
  NNP_BURST = 1,        /* NNAPI burst executions: for many runs in a row (API 29) */
  NNP_ASYNC = 2,        /* startCompute and a wait, where compute is not wanted; not with burst */
  NNP_POINTERS = 4,     /* hand NNAPI addresses instead of shared memory */
  NNP_CPU_FALLBACK = 8, /* a segment that NNAPI cannot run on this phone runs on the CPU */
  NNP_DURATIONS = 16,   /* ask NNAPI what a run took on the hardware and in the driver */
  NNP_AS_MEASURED = 32  /* burst or asynchronous, if the plans were measured so */
};

/* Begin with nnp_options_default(). */
typedef struct nnp_options {
  uint32_t plan;
  uint32_t flags;
  uint32_t threads;          /* of the CPU engine, the caller's included; 0: as measured */
  uint64_t cpu_mask;         /* CPUs that its threads keep to, the caller's during calls; 0: any */
  const char *nnapi_library; /* NULL: libneuralnetworks.so */
  const char *folder;        /* writable, for phones without other shared memory; NULL: none */
} nnp_options;

/* Plan 0, as many threads as it was measured with, NNP_CPU_FALLBACK and NNP_AS_MEASURED. */
NNP_API nnp_options nnp_options_default(void);

/* Compiles a plan: opens NNAPI's library where it has a part, hands it the models, packs weights,
 * and makes all buffers. `options` may be NULL. The bundle must outlive the model. */
NNP_API nnp_status nnp_model_compile(const nnp_bundle *bundle, const nnp_options *options,
                                     nnp_model **model, nnp_error *error);

/* NULL does nothing. */
NNP_API void nnp_model_free(nnp_model *model);

/* Runs once. inputs[n_inputs] and outputs[n_outputs] are the caller's buffers, aligned to their
 * elements, of exactly the tensors' bytes; a NULL in them, or NULL for all, stands for the model's
 * own buffer. The first run is the slowest: phones wake their accelerators for it. */
NNP_API nnp_status nnp_model_run(nnp_model *model, const void *const *inputs, void *const *outputs,
                                 nnp_error *error);

/* The model's own buffers, aligned to 64 bytes: no copy is made of what is written and read here. A
 * run leaves inputs as they are and writes all outputs; one with a buffer of the caller's may leave
 * anything in the model's own. NULL where there is none of this index. */
NNP_API void *nnp_model_input(nnp_model *model, uint32_t index);
NNP_API const void *nnp_model_output(const nnp_model *model, uint32_t index);

#define NNP_UNKNOWN_NS UINT64_MAX

/* What became of a segment. Texts live as long as the model. */
typedef struct nnp_segment {
  const char *engine;      /* "nnapi" or "cpu": who runs it */
  const char *accelerator; /* that the plan names, NULL: none or NNAPI's choice */
  int32_t preference;      /* NNAPI's PreferenceCode, -1: none */
  int32_t fell_back;       /* the plan says NNAPI, and the CPU runs it */
  const char *why;         /* ... because of this; "" where it did not fall back */
  int32_t shared_memory;   /* inputs and outputs reach the driver in shared memory */
  uint32_t n_xnnpack;      /* operations that XNNPACK computes, and our own kernels; 0 on NNAPI */
  uint32_t n_portable;
  uint64_t compile_ns;
  uint64_t first_ns; /* of the first run, the cold one */
  uint64_t last_ns;  /* of the last run; NNP_UNKNOWN_NS before one */
  uint64_t hardware_ns;
  uint64_t driver_ns; /* both of the last run, NNP_UNKNOWN_NS where NNAPI does not tell */
} nnp_segment;

NNP_API uint32_t nnp_model_n_segments(const nnp_model *model);
NNP_API nnp_status nnp_model_segment(const nnp_model *model, uint32_t index, nnp_segment *segment);

/* Of whole runs, copies from and to the caller's buffers included; NNP_UNKNOWN_NS before one. */
NNP_API uint64_t nnp_model_first_ns(const nnp_model *model);
NNP_API uint64_t nnp_model_last_ns(const nnp_model *model);

/* The library's version, "0.1.0", and a status as a phrase. */
NNP_API const char *nnp_version(void);
NNP_API const char *nnp_status_text(nnp_status status);

#ifdef __cplusplus
}
#endif

#endif
