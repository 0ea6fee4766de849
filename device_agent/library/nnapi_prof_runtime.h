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
 * A queue runs several frames at once instead, each processor on its own thread: nnp_queue_open,
 * nnp_queue_submit, nnp_queue_wait.
 *
 * Everything that can fail returns a status and, where `error` is not NULL, says more there.
 * Nothing is global, prints, or ends the process. A bundle may be used by several threads at once;
 * a model by one at a time; a queue by one that submits and one that waits, which may be the same.
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
  NNP_BAD_BUNDLE = 2,   /* the bytes are no intact bundle that this library reads */
  NNP_UNSUPPORTED = 3,  /* this phone's NNAPI or accelerator cannot run a segment */
  NNP_NO_MEMORY = 4,
  NNP_IO = 5,      /* the file cannot be opened or read */
  NNP_MISSING = 6, /* no NNAPI, or no accelerator of that name, on this phone */
  NNP_FAILED = 7,  /* NNAPI or its driver failed */
  NNP_BUSY = 8,    /* no room for a frame, or none is done, in the time that was given */
  NNP_LATE = 9     /* NNAPI took longer than the options let it */
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
 * until it is closed. From memory, `bytes` must stand at a multiple of 4 (64 is best) and outlive
 * the bundle. Every length is checked, and all checksums but that of the weights, whose pages are
 * read when they are needed: see nnp_bundle_check. */
NNP_API nnp_status nnp_bundle_open(const char *path, nnp_bundle **bundle, nnp_error *error);
NNP_API nnp_status nnp_bundle_open_memory(const void *bytes, size_t n_bytes, nnp_bundle **bundle,
                                          nnp_error *error);

/* The same of n_bytes of a file from `offset` on, a multiple of 4: an uncompressed asset of an app,
 * which AAsset_openFileDescriptor64 or Java's AssetFileDescriptor tells. The descriptor may be
 * closed afterwards. */
NNP_API nnp_status nnp_bundle_open_fd(int fd, uint64_t offset, uint64_t n_bytes,
                                      nnp_bundle **bundle, nnp_error *error);

/* Reads all weights and compares their checksum: NNP_BAD_BUNDLE where they changed. Worth its time
 * after a download, not at every start. Those of nnp_bundle_open_parts have none here. */
NNP_API nnp_status nnp_bundle_check(const nnp_bundle *bundle, nnp_error *error);

/* Some of a bundle's weights: bytes[n_bytes] stand at `offset` of its section WGHT. */
typedef struct nnp_weights {
  uint64_t offset; /* a multiple of 64 */
  const void *bytes;
  size_t n_bytes;
} nnp_weights;

/* The same of a bundle in memory whose weights lie elsewhere, as in a file that shares them: its
 * section WGHT is absent or not looked at, and each buffer of a model lies whole in one part. Parts
 * are aligned to 8 (64 is best), and read in place: they must outlive the bundle. */
NNP_API nnp_status nnp_bundle_open_parts(const void *bytes, size_t n_bytes,
                                         const nnp_weights *weights, uint32_t n_weights,
                                         nnp_bundle **bundle, nnp_error *error);

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

/* How many of all frames, from 0 to 1, are meant to run by this plan, where the bundle is a mixture
 * of plans; 0 where it is none. */
NNP_API double nnp_bundle_share(const nnp_bundle *bundle, uint32_t plan);

/* The plan that frame `frame`, from 0, is to run by: plan 0 where the bundle is no mixture. Any
 * stretch of frames has each plan nearly as often as its share says. */
NNP_API uint32_t nnp_bundle_select(const nnp_bundle *bundle, uint64_t frame);

/* What a phone is called in bundles for several phones. NULL: not known. */
typedef struct nnp_phone {
  const char *build; /* ro.build.fingerprint */
  const char *soc;   /* ro.soc.model, before Android 12 ro.board.platform */
} nnp_phone;

/* The plan of a phone, where the bundle was made for several: by its build, else its SoC, else its
 * accelerators with their feature levels, if it has the accelerators that the plan names; else the
 * plan of all other phones. Plan 0 where the bundle is not for several. `phone` NULL is this one,
 * as Android tells; accelerators are always those of this process's NNAPI, of `nnapi_library` as in
 * nnp_options. */
NNP_API nnp_status nnp_bundle_plan_of_phone(const nnp_bundle *bundle, const nnp_phone *phone,
                                            const char *nnapi_library, uint32_t *plan,
                                            nnp_error *error);

/* ---- Models ---- */

typedef struct nnp_model nnp_model;

enum {
  NNP_BURST = 1,        /* NNAPI burst executions: for many runs in a row (API 29) */
  NNP_ASYNC = 2,        /* startCompute and a wait, where compute is not wanted; not with burst */
  NNP_POINTERS = 4,     /* hand NNAPI addresses instead of shared memory */
  NNP_CPU_FALLBACK = 8, /* a segment that NNAPI cannot run runs on the CPU: see "Fallback" */
  NNP_DURATIONS = 16,   /* ask NNAPI what a run took on the hardware and in the driver */
  NNP_AS_MEASURED = 32, /* burst or asynchronous, and on the cores, as the plans were measured */
  NNP_TRIAL = 64        /* try NNAPI's segments in a process of their own first: see "Fallback" */
};

/* ---- Fallback ----
 *
 * With NNP_CPU_FALLBACK a segment of NNAPI's runs on the CPU from the moment on that NNAPI is
 * missing, refuses it, or fails it; the run in which that happens goes on, and its outputs are
 * right. Each such segment is told once, and nnp_model_segment says the same at any time. Without
 * the flag, the call fails in which it happens.
 *
 * A driver that crashes takes the process along, unless NNP_TRIAL finds it out before: each segment
 * is compiled and run once on zeros in a process of its own, which takes as long again as
 * compiling. That process is the program options.trial_helper, the agent, with the argument
 * "trial", or one that options.trial_start finds; without either it is a forked child, where the
 * system has no binder: Android's drivers are reached by binder, which does not survive a fork, so
 * there is no trial there without a helper (NNP_NO_TRIAL). With a cache_folder the verdict is kept
 * there, by drivers, bundle and options, and the next start uses it without a process. A driver
 * that takes too long is found out by the limits in nnp_options, with which NNAPI is called on
 * threads of the library's own (a hand-over each run, and a copy of inputs and outputs that are not
 * in shared memory). NNAPI cannot take a call back: one that was given up lasts until its driver
 * returns, and reads the bundle's weights until then. nnp_bundle_close leaves them mapped then;
 * bytes of nnp_bundle_open_memory must stay where they are while a segment of cause NNP_TOO_LATE's
 * driver may still run, and the library must stay loaded. */

typedef enum nnp_cause {
  NNP_NO_CAUSE = 0,       /* it did not fall back */
  NNP_NO_LIBRARY = 1,     /* NNAPI's library is missing, or cannot be opened */
  NNP_NO_ACCELERATOR = 2, /* no accelerator has the plan's name */
  NNP_REFUSED = 3,        /* it does not support an operation, or NNAPI lacks a function */
  NNP_COMPILE_FAILED = 4, /* NNAPI failed to compile */
  NNP_RUN_FAILED = 5,     /* a run failed */
  NNP_CRASHED = 6,        /* the trial's process crashed, ended, or wanted all memory */
  NNP_TOO_LATE = 7,       /* compiling, a run, or the trial took longer than it may */
  NNP_WRONG_SHAPE = 8,    /* an output came with another shape or size than the model's */
  NNP_NO_TRIAL = 9        /* no process could be made for the trial */
} nnp_cause;

#define NNP_NO_SEGMENT UINT32_MAX

/* A segment that fell back, or, of cause NNP_NO_CAUSE and segment NNP_NO_SEGMENT, a condition that
 * this system does not grant. Texts but the accelerator's live as long as the call. */
typedef struct nnp_event {
  uint32_t plan;
  uint32_t segment;
  const char *accelerator; /* that the plan names, NULL: NNAPI's choice */
  nnp_cause cause;
  int32_t nnapi_code;  /* NNAPI's ResultCode, 0 where it is not NNAPI's failure */
  const char *message; /* a line without its end */
} nnp_event;

/* Called while a model is compiled or a queue is opened, and while a frame runs, by the thread that
 * does so: a queue's lanes may call it at the same time. It may not call the library. */
typedef void nnp_log(void *context, const nnp_event *event);

/* A cause as a phrase. */
NNP_API const char *nnp_cause_text(nnp_cause cause);

/* Hands files[3] to a process in which nothing was tried yet and that calls nnp_trial_serve with
 * them: of an Android app a service of its own process (android:process), as only the system makes
 * processes that may use binder. Called once, and again after each process that came to its end;
 * the descriptors stay the library's. 0, or another number where there is none. */
typedef int nnp_trial_start(void *context, const int files[3]);

#define NNP_BY_PHONE (UINT32_MAX - 1) /* as a plan: the one of nnp_bundle_plan_of_phone */

#define NNP_COMPILE_LIMIT_NS UINT64_C(10000000000) /* of nnp_options_default() */
#define NNP_RUN_LIMIT_NS UINT64_C(2000000000)

/* Begin with nnp_options_default(). With NNP_AS_MEASURED what is left alone is as the bundle says:
 * mode, threads, cores, and a limit of runs in place of NNP_RUN_LIMIT_NS. The library may be
 * another NNAPI, an NNAPI support library of a vendor's, or MediaTek's NeuronAdapter; the
 * accelerators of the latter two are called NAME@FILE.
 */
typedef struct nnp_options {
  uint32_t plan;
  uint32_t flags;
  uint32_t threads;          /* of the CPU engine, the caller's included; 0: as measured */
  uint64_t cpu_mask;         /* CPUs that its threads keep to, the caller's during calls; 0: as
                              * measured with NNP_AS_MEASURED, else any */
  const char *nnapi_library; /* NULL: libneuralnetworks.so; a path: see above */
  const char *folder;        /* writable, for phones without other shared memory; NULL: none */
  uint64_t compile_limit_ns; /* of a segment, on NNAPI; 0: as long as it takes */
  uint64_t run_limit_ns;     /* the same of a run of a segment */
  int32_t priority; /* NNAPI's PriorityCode: 90 low, 100 medium, 110 high; 0: its own (API 30) */
  const char *cache_folder;     /* the app's own, where drivers keep what they compiled for the next
                                 * time; it is there and writable. NULL: none (API 29) */
  nnp_log *log;                 /* is told what falls back; NULL: nobody */
  void *log_context;            /* handed to it */
  const char *trial_helper;     /* the agent's file, which tries segments; NULL: none does */
  nnp_trial_start *trial_start; /* who has another process try them; NULL: nobody */
  void *trial_context;          /* handed to it */
} nnp_options;

/* What that process does: tries the segments, which may end it. It closes nothing; the process is
 * to end afterwards, so that the next trial has a new one. */
NNP_API nnp_status nnp_trial_serve(const int files[3], nnp_error *error);

/* Plan NNP_BY_PHONE, threads as measured, NNP_CPU_FALLBACK and NNP_AS_MEASURED, and the limits
 * above: 10 s to compile a segment, 2 s to run it. */
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
  nnp_cause cause;         /* ... because of this */
  const char *why;         /* ... in words; "" where it did not fall back */
  int32_t shared_memory;   /* inputs and outputs reach the driver in shared memory */
  uint32_t n_xnnpack;      /* operations that XNNPACK computes, and our own kernels; 0 on NNAPI */
  uint32_t n_portable;
  uint64_t compile_ns;
  uint64_t first_ns; /* of the first run, the cold one */
  uint64_t last_ns;  /* of the last run; NNP_UNKNOWN_NS before one */
  uint64_t hardware_ns;
  uint64_t driver_ns; /* both of the last run, NNP_UNKNOWN_NS where NNAPI does not tell */
} nnp_segment;

#define NNP_UNKNOWN_SHARE (-1.0)

/* A unit of the model, the smallest part that has a name, and who runs it. Of a bundle without
 * names each segment is one unit. Texts live as long as the model. */
typedef struct nnp_unit {
  const char *name; /* "conv2d+relu6 3x3/2 32x112x112"; "" where the bundle does not say */
  uint32_t segment;
  const char *engine;      /* "nnapi" or "cpu" */
  const char *accelerator; /* of "nnapi"; NULL: its own choice */
  double share;            /* of the plan's predicted latency, 0 to 1; or NNP_UNKNOWN_SHARE */
  int32_t fell_back;       /* its segment did, because of ... */
  nnp_cause cause;
  const char *why; /* ... in words; "" where it did not */
} nnp_unit;

/* Describes all units as they run now, in order: the first `room` of them are written, and the
 * number of all is returned. */
NNP_API uint32_t nnp_model_describe(const nnp_model *model, nnp_unit *units, uint32_t room);

/* The same as one line for a log: how many segments are on each device with their shares, then what
 * fell back and why. Writes at most size - 1 characters and a zero; returns the length of all. */
NNP_API size_t nnp_model_describe_line(const nnp_model *model, char *text, size_t size);

NNP_API uint32_t nnp_model_n_segments(const nnp_model *model);
NNP_API nnp_status nnp_model_segment(const nnp_model *model, uint32_t index, nnp_segment *segment);

/* Of whole runs, copies from and to the caller's buffers included; NNP_UNKNOWN_NS before one. */
NNP_API uint64_t nnp_model_first_ns(const nnp_model *model);
NNP_API uint64_t nnp_model_last_ns(const nnp_model *model);

/* ---- Frames at once ----
 *
 * Segments run on lanes: the CPU is one, each accelerator that a plan names is one, and NNAPI's own
 * choice is one; each has a thread. A frame goes through its plan's segments in order, each on its
 * lane, or, where the bundle says that a plan's segments may overlap, each as soon as what it reads
 * is there; different frames are on different lanes at the same time. A lane takes the oldest frame
 * that waits for it. Each plan is compiled once, whatever the number of frames in flight, and a
 * segment that two plans have is compiled once for both. Outputs are those of nnp_model_run, bit by
 * bit.
 *
 * Once warm, the library allocates nothing for a frame, and takes no lock: threads that wait sleep
 * in the kernel, those that need not wait do not call it. NNAPI itself makes an execution for each
 * run.
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
 * and _span for one thread at a time, the receiver. Both may be one thread, which then submits with
 * a timeout, for nobody else makes room. _open and _close are for one thread while no other uses
 * the queue; what remains may be called at any time by any. What a thread wrote into a frame's
 * inputs before _submit is seen by the lanes, and what they wrote by the receiver after _wait. */

typedef struct nnp_queue nnp_queue;

#define NNP_MIXTURE                                                                                \
  UINT32_MAX /* as options.model.plan: by the bundle's shares, else NNP_BY_PHONE */
#define NNP_MAX_FRAMES 63u
#define NNP_FOREVER UINT64_MAX /* as a timeout; 0 does not wait at all */
#define NNP_NO_FRAME UINT64_MAX

/* Begin with nnp_queue_options_default(). */
typedef struct nnp_queue_options {
  nnp_options model;   /* cpu_mask: CPUs that the lane "cpu" and its threads keep to; 0: any */
  uint32_t frames;     /* in flight at most, 1 to NNP_MAX_FRAMES; 0: four for each lane */
  uint64_t nnapi_mask; /* CPUs that the other lanes' threads keep to; 0: any */
} nnp_queue_options;

/* As nnp_options_default(), with plan NNP_MIXTURE. */
NNP_API nnp_queue_options nnp_queue_options_default(void);

/* Compiles the plan, or all of the mixture, makes all buffers, and starts the lanes. `options` may
 * be NULL. The bundle must outlive the queue. */
NNP_API nnp_status nnp_queue_open(const nnp_bundle *bundle, const nnp_queue_options *options,
                                  nnp_queue **queue, nnp_error *error);

/* Ends the lanes as soon as the segments that run now are done; frames that were not waited for are
 * lost. NULL does nothing. */
NNP_API void nnp_queue_close(nnp_queue *queue);

/* Hands in the next frame; its number is how many there were before. Buffers are as those of
 * nnp_model_run; inputs must stay as they are, and outputs are not to be touched, until the frame
 * is handed out. While as many frames as the options say are in flight, it waits, for timeout_ns at
 * most: NNP_BUSY. NNP_BAD_ARGUMENT as nnp_model_run; no frame was handed in then. */
NNP_API nnp_status nnp_queue_submit(nnp_queue *queue, const void *const *inputs,
                                    void *const *outputs, uint64_t timeout_ns, nnp_error *error);

/* Waits until there is room for a frame, for timeout_ns at most: 1, or 0 where there is none. */
NNP_API int nnp_queue_room(nnp_queue *queue, uint64_t timeout_ns);

/* The queue's own buffer for an input of the frame that is handed in next, which holds anything.
 * NULL where there is no room for a frame now, or no input of this index. */
NNP_API void *nnp_queue_input(nnp_queue *queue, uint32_t index);

/* A frame that is handed out. */
typedef struct nnp_frame {
  uint64_t number;     /* from 0, in order of submission */
  uint32_t plan;       /* that it ran by */
  uint64_t latency_ns; /* from its submission until its last segment was done, or failed */
} nnp_frame;

/* Hands out the oldest frame that was not yet, once it is done: always in order of submission.
 * Returns the frame's own status: a segment that fails ends its frame with its error, and the
 * frames behind go on. *frame is written where a frame was handed out, whatever its status; else
 * its number is NNP_NO_FRAME: after NNP_BUSY, where none was done within timeout_ns. Lets go of the
 * frame that was handed out before. */
NNP_API nnp_status nnp_queue_wait(nnp_queue *queue, uint64_t timeout_ns, nnp_frame *frame,
                                  nnp_error *error);

/* The queue's own buffer of an output of the frame that was handed out last, until the next _wait;
 * where the frame had a buffer of the caller's for it, or failed, it holds anything. NULL where
 * there is none. */
NNP_API const void *nnp_queue_output(const nnp_queue *queue, uint32_t index);

/* When a segment of that frame ran, in ns of CLOCK_MONOTONIC, and where. */
typedef struct nnp_span {
  uint32_t lane;
  uint64_t begin_ns; /* NNP_UNKNOWN_NS: it did not, for one before it failed */
  uint64_t end_ns;
  uint64_t hardware_ns; /* NNP_UNKNOWN_NS where NNAPI does not tell */
  uint64_t driver_ns;
} nnp_span;

NNP_API nnp_status nnp_queue_span(const nnp_queue *queue, uint32_t segment, nnp_span *span);

/* A lane, and what it has done since the queue was opened. */
typedef struct nnp_lane {
  const char *name;    /* "cpu", the accelerator's, or "nnapi" for NNAPI's choice */
  const char *engine;  /* "cpu" or "nnapi" */
  uint64_t n_segments; /* that it ran */
  uint64_t busy_ns;    /* while it ran them */
} nnp_lane;

NNP_API uint32_t nnp_queue_n_lanes(const nnp_queue *queue);
NNP_API nnp_status nnp_queue_lane(const nnp_queue *queue, uint32_t index, nnp_lane *lane);

/* How many frames may be in flight. */
NNP_API uint32_t nnp_queue_n_frames(const nnp_queue *queue);

/* What became of a segment of a plan when it was compiled; times of runs are unknown, and
 * compile_ns is 0 where another plan's is used. NNP_BAD_ARGUMENT where the queue has no such plan
 * or segment. */
NNP_API nnp_status nnp_queue_segment(const nnp_queue *queue, uint32_t plan, uint32_t index,
                                     nnp_segment *segment);

/* The library's version, "0.2.0", and a status as a phrase. */
NNP_API const char *nnp_version(void);
NNP_API const char *nnp_status_text(nnp_status status);

#ifdef __cplusplus
}
#endif

#endif
