/* Runs nnapi-prof bundles in an app. A bundle is a model cut into segments, each of which runs on
 * the NNAPI accelerator or the CPU, whichever was measured to be faster. README.md beside this
 * header shows how.
 *
 *   nnp_bundle *bundle;
 *   nnp_model *model;
 *   nnp_error error;
 *   if (nnp_bundle_open("net.nnprt", &bundle, &error) != NNP_OK) ...
 *   if (nnp_model_compile(bundle, NULL, &model, &error) != NNP_OK) ...
 *   if (nnp_model_run(model, inputs, outputs, &error) != NNP_OK) ...
 *
 * A queue runs several frames at once instead, with one thread per processor: nnp_queue_open,
 * nnp_queue_submit, nnp_queue_wait.
 *
 * Every function that can fail returns a status and, unless `error` is NULL, fills in *error. The
 * library has no global state, prints nothing and never ends the process. A bundle may be used by
 * several threads at once; a model by one at a time; a queue by one that submits and one that
 * waits, which may be the same.
 */
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
  NNP_BAD_BUNDLE = 2,   /* the bytes are not an intact bundle of a version that this library
                           reads */
  NNP_UNSUPPORTED = 3,  /* this phone's NNAPI or accelerator cannot run a segment */
  NNP_NO_MEMORY = 4,
  NNP_IO = 5,      /* the file cannot be opened or read */
  NNP_MISSING = 6, /* no NNAPI, or no accelerator of that name, on this phone */
  NNP_FAILED = 7,  /* NNAPI or its driver failed */
  NNP_BUSY = 8,    /* timeout: there was no room for a frame, or no frame was done */
  NNP_LATE = 9     /* NNAPI exceeded a time limit of the options */
} nnp_status;

typedef struct nnp_error {
  nnp_status status;
  int32_t segment;    /* the segment that failed, -1: none */
  int32_t nnapi_code; /* NNAPI's ResultCode, 0 if it is not NNAPI's failure */
  char message[320];  /* a sentence, never empty after a failure */
} nnp_error;

/* ---- Bundles ---- */

typedef struct nnp_bundle nnp_bundle;

/* An input or output of the model. Its strings live as long as the bundle. */
typedef struct nnp_tensor {
  const char *name;
  int32_t type; /* NNAPI's OperandCode: 3 float32, 4 int32, 5 uint8 and 14 int8 quantised, 6 bool,
                   8 float16 */
  uint32_t rank;
  uint32_t dims[NNP_MAX_RANK];      /* in memory order, outermost first */
  uint32_t dim_order[NNP_MAX_RANK]; /* the axis of the model's own shape that dims[i] is: 0, 2, 3, 1
                                       for an image of an NCHW model that is stored as NHWC */
  float scale;                      /* quantised: real = (integer - zero_point) * scale */
  int32_t zero_point;
  size_t n_bytes;
} nnp_tensor;

/* Opens a bundle that `nnapi-prof convert BUNDLE --format runtime` wrote; the file stays mapped
 * until nnp_bundle_close. nnp_bundle_open_memory reads `bytes` in place: they must be aligned to 4
 * (64 is best) and outlive the bundle. Both check every length and all checksums except that of the
 * weights, whose pages are read when they are needed: see nnp_bundle_check. */
NNP_API nnp_status nnp_bundle_open(const char *path, nnp_bundle **bundle, nnp_error *error);
NNP_API nnp_status nnp_bundle_open_memory(const void *bytes, size_t n_bytes, nnp_bundle **bundle,
                                          nnp_error *error);

/* Opens a bundle in n_bytes of a file, starting at `offset`, a multiple of 4: for an uncompressed
 * asset of an app, as returned by AAsset_openFileDescriptor64 or Java's AssetFileDescriptor. The
 * caller may close the descriptor afterwards. */
NNP_API nnp_status nnp_bundle_open_fd(int fd, uint64_t offset, uint64_t n_bytes,
                                      nnp_bundle **bundle, nnp_error *error);

/* Reads all weights and compares their checksum; NNP_BAD_BUNDLE if they changed. Worth its time
 * after a download, not at every start. Weights given to nnp_bundle_open_parts have no checksum and
 * are not checked. */
NNP_API nnp_status nnp_bundle_check(const nnp_bundle *bundle, nnp_error *error);

/* A part of a bundle's weights: bytes[n_bytes] belong at `offset` of its section WGHT. */
typedef struct nnp_weights {
  uint64_t offset; /* a multiple of 64 */
  const void *bytes;
  size_t n_bytes;
} nnp_weights;

/* Opens a bundle in memory whose weights are stored elsewhere, for example in a file shared by
 * several bundles. Its section WGHT may be absent and is ignored; each buffer of a model must lie
 * in a single part. Parts must be aligned to 8 (64 is best) and are read in place: they must
 * outlive the bundle. */
NNP_API nnp_status nnp_bundle_open_parts(const void *bytes, size_t n_bytes,
                                         const nnp_weights *weights, uint32_t n_weights,
                                         nnp_bundle **bundle, nnp_error *error);

/* Closes a bundle, after all its models and queues are freed. NULL does nothing. */
NNP_API void nnp_bundle_close(nnp_bundle *bundle);

NNP_API uint32_t nnp_bundle_n_inputs(const nnp_bundle *bundle);
NNP_API uint32_t nnp_bundle_n_outputs(const nnp_bundle *bundle);
NNP_API uint32_t nnp_bundle_n_plans(const nnp_bundle *bundle);

/* Return an input or output of the model, NULL if the index is out of range. */
NNP_API const nnp_tensor *nnp_bundle_input(const nnp_bundle *bundle, uint32_t index);
NNP_API const nnp_tensor *nnp_bundle_output(const nnp_bundle *bundle, uint32_t index);

/* Returns the name of a plan. Plan 0 is the best one found; the others are for comparison, such as
 * "cpu". */
NNP_API const char *nnp_bundle_plan(const nnp_bundle *bundle, uint32_t index);

/* Returns the share of frames, from 0 to 1, that are to run by this plan if the bundle is a mixture
 * of plans; 0 if it is not. */
NNP_API double nnp_bundle_share(const nnp_bundle *bundle, uint32_t plan);

/* Returns the plan for frame number `frame`, counted from 0: plan 0 unless the bundle is a mixture.
 * In any run of consecutive frames each plan occurs nearly as often as its share says. */
NNP_API uint32_t nnp_bundle_select(const nnp_bundle *bundle, uint64_t frame);

/* The names of a phone in bundles for several phones. NULL: unknown. */
typedef struct nnp_phone {
  const char *build; /* ro.build.fingerprint */
  const char *soc;   /* ro.soc.model, before Android 12 ro.board.platform */
} nnp_phone;

/* Finds the plan for a phone in a bundle made for several phones: by the phone's build, else its
 * SoC, else its accelerators with their feature levels, provided that it has the accelerators that
 * the plan names; otherwise the plan for all other phones. *plan is 0 if the bundle is not for
 * several phones. `phone` NULL is this phone, as Android names it. Accelerators are always those of
 * NNAPI in this process; `nnapi_library` is as in nnp_options. */
NNP_API nnp_status nnp_bundle_plan_of_phone(const nnp_bundle *bundle, const nnp_phone *phone,
                                            const char *nnapi_library, uint32_t *plan,
                                            nnp_error *error);

/* ---- Models ---- */

typedef struct nnp_model nnp_model;

enum {
  NNP_BURST = 1,        /* NNAPI burst executions, for many runs in a row (API 29) */
  NNP_ASYNC = 2,        /* startCompute and a wait instead of compute; excludes NNP_BURST */
  NNP_POINTERS = 4,     /* pass NNAPI addresses instead of shared memory */
  NNP_CPU_FALLBACK = 8, /* run segments that NNAPI cannot run on the CPU: see "Fallback" */
  NNP_DURATIONS = 16,   /* ask NNAPI for the time of a run on the hardware and in the driver */
  NNP_AS_MEASURED = 32, /* use the mode and the cores that the plans were measured with */
  NNP_TRIAL = 64        /* first try NNAPI's segments in a separate process: see "Fallback" */
};

/* ---- Fallback ----
 *
 * With NNP_CPU_FALLBACK, a segment that is planned for NNAPI runs on the CPU once NNAPI is missing,
 * refuses it or fails to run it. The run in which that happens continues, and its outputs are
 * correct. Each such segment is logged once; nnp_model_segment reports it at any time. Without the
 * flag the call returns the error.
 *
 * A driver that crashes takes the process down with it. NNP_TRIAL detects such a driver first: it
 * compiles each segment and runs it once on zeros in a separate process, which takes about as long
 * again as compiling. That process is the program options.trial_helper (the agent) with the
 * argument "trial", or one that options.trial_start provides. Without either it is a forked child,
 * but only on systems without binder: Android's drivers are reached through binder, which does not
 * survive a fork, so on Android there is no trial without a helper (NNP_NO_TRIAL). With a
 * cache_folder the verdict is stored there, by drivers, bundle and options, and the next start uses
 * it instead of a process.
 *
 * The time limits in nnp_options detect a driver that takes too long. With a limit, NNAPI is called
 * on threads of the library (which costs a hand-over for each run, and a copy of inputs and outputs
 * that are not in shared memory). NNAPI cannot cancel a call: an abandoned call lasts until its
 * driver returns, and may read the bundle's weights until then. nnp_bundle_close leaves them mapped
 * in that case. While a driver whose segment has the cause NNP_TOO_LATE may still run, the bytes
 * given to nnp_bundle_open_memory must stay valid and the library must stay loaded. */

typedef enum nnp_cause {
  NNP_NO_CAUSE = 0,       /* the segment did not fall back */
  NNP_NO_LIBRARY = 1,     /* NNAPI's library is missing, or cannot be opened */
  NNP_NO_ACCELERATOR = 2, /* no accelerator has the name in the plan */
  NNP_REFUSED = 3,        /* the accelerator does not support an operation, or NNAPI lacks a
                             function */
  NNP_COMPILE_FAILED = 4, /* NNAPI failed to compile */
  NNP_RUN_FAILED = 5,     /* a run failed */
  NNP_CRASHED = 6,        /* the trial's process crashed, ended, or used too much memory */
  NNP_TOO_LATE = 7,       /* compiling, a run, or the trial exceeded its time limit */
  NNP_WRONG_SHAPE = 8,    /* an output's shape or size differs from the model's */
  NNP_NO_TRIAL = 9        /* there was no process for the trial */
} nnp_cause;

#define NNP_NO_SEGMENT UINT32_MAX

/* A segment that fell back; or, with cause NNP_NO_CAUSE and segment NNP_NO_SEGMENT, a condition of
 * the measurement that this system does not allow. `message` lives as long as the call. */
typedef struct nnp_event {
  uint32_t plan;
  uint32_t segment;
  const char *accelerator; /* named in the plan, NULL: NNAPI's choice */
  nnp_cause cause;
  int32_t nnapi_code;  /* NNAPI's ResultCode, 0 if it is not NNAPI's failure */
  const char *message; /* one line, without a newline */
} nnp_event;

/* Receives events while a model is compiled, a queue is opened or a frame runs, on the thread that
 * does so: a queue's lanes may call it at the same time. It must not call the library. */
typedef void nnp_log(void *context, const nnp_event *event);

/* Returns a cause as an English phrase, never NULL. */
NNP_API const char *nnp_cause_text(nnp_cause cause);

/* Passes files[3] to a fresh process, which calls nnp_trial_serve with them. In an Android app that
 * is a service with a process of its own (android:process), since only processes that the system
 * starts may use binder. The library calls this once, and again after each such process has ended;
 * it keeps owning the descriptors. Returns 0, or another number if there is no such process. */
typedef int nnp_trial_start(void *context, const int files[3]);

#define NNP_BY_PHONE (UINT32_MAX - 1) /* a plan: the one that nnp_bundle_plan_of_phone finds */

#define NNP_COMPILE_LIMIT_NS UINT64_C(10000000000) /* the default */
#define NNP_RUN_LIMIT_NS UINT64_C(2000000000)

/* Options of a model; start from nnp_options_default(). With NNP_AS_MEASURED, options left at their
 * defaults are taken from the bundle: mode, threads, cores, and a run limit in place of
 * NNP_RUN_LIMIT_NS. `nnapi_library` may be another NNAPI library, a vendor's NNAPI support library,
 * or MediaTek's NeuronAdapter; the accelerators of the latter two are called NAME@FILE. */
typedef struct nnp_options {
  uint32_t plan;
  uint32_t flags;
  uint32_t threads;          /* the CPU engine's, the calling thread included; 0: as measured */
  uint64_t cpu_mask;         /* CPUs that its threads run on, and the calling thread during calls;
                                0: as measured with NNP_AS_MEASURED, else any */
  const char *nnapi_library; /* NULL: libneuralnetworks.so; a path: see above */
  const char *folder;        /* writable, for shared memory on phones without any other; NULL:
                                none */
  uint64_t compile_limit_ns; /* for NNAPI to compile a segment; 0: no limit */
  uint64_t run_limit_ns;     /* for NNAPI to run a segment; 0: no limit */
  int32_t priority; /* NNAPI's PriorityCode: 90 low, 100 medium, 110 high; 0: default (API 30) */
  const char *cache_folder;     /* the app's own folder, existing and writable, where drivers cache
                                   compiled models. NULL: none (API 29) */
  nnp_log *log;                 /* receives segments that fall back; NULL: none */
  void *log_context;            /* passed to `log` */
  const char *trial_helper;     /* path of the agent, which tries segments; NULL: none */
  nnp_trial_start *trial_start; /* provides another process that tries them; NULL: none */
  void *trial_context;          /* passed to `trial_start` */
} nnp_options;

/* Tries the segments in the process of nnp_trial_start; a crashing driver ends that process. Closes
 * none of the files. The process should end afterwards, so that the next trial has a new one. */
NNP_API nnp_status nnp_trial_serve(const int files[3], nnp_error *error);

/* Returns the defaults: plan NNP_BY_PHONE, threads as measured, NNP_CPU_FALLBACK and
 * NNP_AS_MEASURED, and the limits above: 10 s to compile a segment, 2 s to run it. */
NNP_API nnp_options nnp_options_default(void);

/* Compiles a plan: opens NNAPI's library if a segment needs it, builds and compiles the models,
 * packs weights, and allocates all buffers. `options` may be NULL: the defaults. The bundle must
 * outlive the model. */
NNP_API nnp_status nnp_model_compile(const nnp_bundle *bundle, const nnp_options *options,
                                     nnp_model **model, nnp_error *error);

/* NULL does nothing. */
NNP_API void nnp_model_free(nnp_model *model);

/* Runs the model once. inputs[n_inputs] and outputs[n_outputs] are the caller's buffers, aligned to
 * their element type, with exactly the tensors' n_bytes; a NULL element, or NULL for the whole
 * array, means the model's own buffer. The first run is the slowest: phones wake their accelerators
 * for it. */
NNP_API nnp_status nnp_model_run(nnp_model *model, const void *const *inputs, void *const *outputs,
                                 nnp_error *error);

/* Returns one of the model's own buffers, aligned to 64 bytes; data in them is not copied. A run
 * does not change inputs and writes all outputs; if the caller gave a buffer, the contents of the
 * model's own are unspecified. NULL if the index is out of range. */
NNP_API void *nnp_model_input(nnp_model *model, uint32_t index);
NNP_API const void *nnp_model_output(const nnp_model *model, uint32_t index);

#define NNP_UNKNOWN_NS UINT64_MAX

/* How a segment was compiled and has run. Strings live as long as the model. */
typedef struct nnp_segment {
  const char *engine;      /* "nnapi" or "cpu" */
  const char *accelerator; /* named in the plan, NULL: none or NNAPI's choice */
  int32_t preference;      /* NNAPI's PreferenceCode, -1: none */
  int32_t fell_back;       /* the plan says NNAPI, but the CPU runs it */
  nnp_cause cause;         /* ... because of this */
  const char *why;         /* ... as text; "" if it did not fall back */
  int32_t shared_memory;   /* inputs and outputs are passed to the driver in shared memory */
  uint32_t n_xnnpack;      /* operations of XNNPACK, and of our own kernels; 0 on NNAPI */
  uint32_t n_portable;
  uint64_t compile_ns;
  uint64_t first_ns; /* time of the first run, the cold one */
  uint64_t last_ns;  /* time of the last run; NNP_UNKNOWN_NS before the first */
  uint64_t hardware_ns;
  uint64_t driver_ns; /* both of the last run; NNP_UNKNOWN_NS if NNAPI does not report them */
} nnp_segment;

#define NNP_UNKNOWN_SHARE (-1.0)

/* A unit of the model, its smallest named part, and the engine that runs it. If the bundle has no
 * names, each segment is one unit. Strings live as long as the model. */
typedef struct nnp_unit {
  const char *name; /* "conv2d+relu6 3x3/2 32x112x112"; "" if the bundle has none */
  uint32_t segment;
  const char *engine;      /* "nnapi" or "cpu" */
  const char *accelerator; /* for "nnapi"; NULL: NNAPI's choice */
  double share;            /* part of the plan's predicted latency, 0 to 1; or NNP_UNKNOWN_SHARE */
  int32_t fell_back;       /* its segment fell back, because of ... */
  nnp_cause cause;
  const char *why; /* ... as text; "" if it did not */
} nnp_unit;

/* Describes the units in order, as they run now: writes the first `room` of them and returns how
 * many there are. */
NNP_API uint32_t nnp_model_describe(const nnp_model *model, nnp_unit *units, uint32_t room);

/* Describes the model in one line for a log: how many segments run on each device with their
 * shares, then what fell back and why. Writes at most size - 1 characters and a terminating zero;
 * returns the length of the whole line. */
NNP_API size_t nnp_model_describe_line(const nnp_model *model, char *text, size_t size);

NNP_API uint32_t nnp_model_n_segments(const nnp_model *model);
NNP_API nnp_status nnp_model_segment(const nnp_model *model, uint32_t index, nnp_segment *segment);

/* Return the time of the first and the last whole run, copies from and to the caller's buffers
 * included; NNP_UNKNOWN_NS before the first run. */
NNP_API uint64_t nnp_model_first_ns(const nnp_model *model);
NNP_API uint64_t nnp_model_last_ns(const nnp_model *model);

/* ---- Frames at once ----
 *
 * Segments run on lanes, each with a thread of its own: one for the CPU, one for each accelerator
 * that a plan names, and one for NNAPI's own choice. A frame passes through its plan's segments in
 * order, each on its lane; if the bundle says that a plan's segments may overlap, each segment
 * starts as soon as its inputs are ready. Different frames are on different lanes at the same time,
 * and a lane takes the oldest frame that waits for it. Each plan is compiled once, whatever the
 * number of frames in flight, and a segment that two plans share is compiled once for both. Outputs
 * are bit-identical to those of nnp_model_run.
 *
 * Once warm, the library allocates nothing for a frame and takes no lock: threads that wait sleep
 * in the kernel, and others do not enter it. NNAPI itself may make an execution for each run.
 *
 *   nnp_queue *queue;
 *   if (nnp_queue_open(bundle, NULL, &queue, &error) != NNP_OK) ...
 *   for (;;) {
 *     while (nnp_queue_submit(queue, inputs, outputs, 0, &error) == NNP_OK)
 *       ... buffers of the next frame
 *     if (nnp_queue_wait(queue, NNP_FOREVER, &frame, &error) == NNP_OK)
 *       ... the oldest frame is done
 *   }
 *
 * Threads: _submit, _room and _input are for one thread at a time, the submitter; _wait, _output
 * and _span for one thread at a time, the receiver. Both may be the same thread, which must then
 * submit with a timeout, since no other thread makes room. _open and _close require that no other
 * thread uses the queue; any thread may call the other functions at any time. Lanes see what a
 * thread wrote to a frame's inputs before _submit, and the receiver sees what they wrote after
 * _wait. */

typedef struct nnp_queue nnp_queue;

#define NNP_MIXTURE                                                                                \
  UINT32_MAX /* options.model.plan: by the bundle's shares; if it has none, NNP_BY_PHONE */
#define NNP_MAX_FRAMES 63u
#define NNP_FOREVER UINT64_MAX /* a timeout: no limit; 0 does not wait at all */
#define NNP_NO_FRAME UINT64_MAX

/* Options of a queue; start from nnp_queue_options_default(). */
typedef struct nnp_queue_options {
  nnp_options model;   /* its cpu_mask: CPUs that the lane "cpu" and its threads run on; 0: any */
  uint32_t frames;     /* in flight at most, 1 to NNP_MAX_FRAMES; 0: four for each lane */
  uint64_t nnapi_mask; /* CPUs that the other lanes' threads run on; 0: any */
} nnp_queue_options;

/* Returns the defaults: those of nnp_options_default(), but with plan NNP_MIXTURE. */
NNP_API nnp_queue_options nnp_queue_options_default(void);

/* Compiles the plan, or all plans of the mixture, allocates all buffers, and starts the lanes.
 * `options` may be NULL: the defaults. The bundle must outlive the queue. */
NNP_API nnp_status nnp_queue_open(const nnp_bundle *bundle, const nnp_queue_options *options,
                                  nnp_queue **queue, nnp_error *error);

/* Ends the lanes as soon as the segments now running are done; frames not yet waited for are lost.
 * NULL does nothing. */
NNP_API void nnp_queue_close(nnp_queue *queue);

/* Submits the next frame; frames are numbered from 0. Buffers are as in nnp_model_run; until
 * nnp_queue_wait returns the frame, the caller must neither change its inputs nor touch its
 * outputs. If options.frames frames are in flight, waits at most timeout_ns, then returns NNP_BUSY.
 * NNP_BAD_ARGUMENT as in nnp_model_run. After a failure no frame was submitted. */
NNP_API nnp_status nnp_queue_submit(nnp_queue *queue, const void *const *inputs,
                                    void *const *outputs, uint64_t timeout_ns, nnp_error *error);

/* Waits at most timeout_ns until there is room for a frame; returns 1, or 0 if there is none. */
NNP_API int nnp_queue_room(nnp_queue *queue, uint64_t timeout_ns);

/* Returns the queue's own buffer for an input of the next frame to submit; its contents are
 * unspecified. NULL if there is no room for a frame now, or the index is out of range. */
NNP_API void *nnp_queue_input(nnp_queue *queue, uint32_t index);

/* A frame as nnp_queue_wait returns it. */
typedef struct nnp_frame {
  uint64_t number;     /* from 0, in order of submission */
  uint32_t plan;       /* the plan it ran by */
  uint64_t latency_ns; /* from submission until its last segment was done or failed */
} nnp_frame;

/* Waits at most timeout_ns for the oldest frame in flight and returns it: frames come in order of
 * submission. The status is the frame's own: a failing segment ends its frame with an error, and
 * the frames behind it continue. If the frame was done, *frame is filled in, whatever its status;
 * otherwise the status is NNP_BUSY and frame->number is NNP_NO_FRAME. Releases the buffers of the
 * frame returned before. */
NNP_API nnp_status nnp_queue_wait(nnp_queue *queue, uint64_t timeout_ns, nnp_frame *frame,
                                  nnp_error *error);

/* Returns the queue's own buffer for an output of the last frame returned, valid until the next
 * _wait; its contents are unspecified if the caller gave a buffer for this output or the frame
 * failed. NULL if there is none. */
NNP_API const void *nnp_queue_output(const nnp_queue *queue, uint32_t index);

/* When, in ns of CLOCK_MONOTONIC, and on which lane a segment of that frame ran. */
typedef struct nnp_span {
  uint32_t lane;
  uint64_t begin_ns; /* NNP_UNKNOWN_NS: it did not run, because an earlier one failed */
  uint64_t end_ns;
  uint64_t hardware_ns; /* NNP_UNKNOWN_NS if NNAPI does not report it */
  uint64_t driver_ns;
} nnp_span;

NNP_API nnp_status nnp_queue_span(const nnp_queue *queue, uint32_t segment, nnp_span *span);

/* A lane and its work since the queue was opened. */
typedef struct nnp_lane {
  const char *name;    /* "cpu", the accelerator's name, or "nnapi" for NNAPI's choice */
  const char *engine;  /* "cpu" or "nnapi" */
  uint64_t n_segments; /* how many it ran */
  uint64_t busy_ns;    /* time spent running them */
} nnp_lane;

NNP_API uint32_t nnp_queue_n_lanes(const nnp_queue *queue);
NNP_API nnp_status nnp_queue_lane(const nnp_queue *queue, uint32_t index, nnp_lane *lane);

/* Returns how many frames may be in flight. */
NNP_API uint32_t nnp_queue_n_frames(const nnp_queue *queue);

/* Describes how a segment of a plan was compiled. Times of runs are unknown, and compile_ns is 0 if
 * the plan shares another plan's segment. NNP_BAD_ARGUMENT if the queue has no such plan or
 * segment. */
NNP_API nnp_status nnp_queue_segment(const nnp_queue *queue, uint32_t plan, uint32_t index,
                                     nnp_segment *segment);

/* Return the library's version, "0.2.0", and a status as an English phrase. */
NNP_API const char *nnp_version(void);
NNP_API const char *nnp_status_text(nnp_status status);

#ifdef __cplusplus
}
#endif

#endif
