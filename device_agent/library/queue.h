/* The internals of a queue of frames: for queue*.c only.
 *
 * Frames, lanes and contexts are made when the queue is opened. A frame's place is its number
 * modulo 64, and the frames waiting for a lane are the bits of one word: handing a frame over sets
 * a bit and wakes the lane if it sleeps, taking a frame clears the bit. The thread that has taken a
 * frame owns it.
 *
 * On a simulated phone, which only the agent uses, the lanes are lanes of the simulated clock. So
 * is the thread that opens the queue, which must be the only one to submit and receive. Each of
 * them says when it rests and which lane it calls (np_emulator.h), so that frames proceed in the
 * order of simulated time. */
#ifndef NP_QUEUE_H
#define NP_QUEUE_H

#include <pthread.h>
#include <stdatomic.h>

#include "executable.h"
#include "parker.h"

#define NP_QUEUE_PLACES 64u

/* A context of a plan, with the times of the frame that it runs. */
struct np_queue_context {
  struct np_context *context;
  nnp_span *spans;         /* [n_segments] */
  struct np_fault *faults; /* [n_segments] of the segments' runs */
  _Atomic uint32_t *waits; /* [n_segments] how many segments each still waits for */
  _Atomic uint32_t busy;   /* in use by a frame: set by the submitter, cleared by the receiver */
};

struct np_queue_plan {
  uint32_t plan; /* index in the bundle */
  struct np_executable executable;
  uint32_t *lanes; /* [n_segments] */
  /* Dependencies: how many segments each waits for, [n_segments], and the segments that wait for
   * segment s: followers from firsts[s] on. */
  uint32_t *n_waits;
  uint32_t *firsts; /* [n_segments + 1] */
  uint32_t *followers;
  uint32_t n_contexts;
  struct np_queue_context *contexts; /* used by frames in turn */
  uint64_t n_submitted;
};

struct np_queue_frame {
  uint64_t number;
  struct np_queue_plan *plan;
  struct np_queue_context *context;
  uint32_t *next;          /* [n_lanes] the segment that each lane runs next for this frame */
  _Atomic uint32_t left;   /* segments that have not ended */
  _Atomic uint32_t failed; /* 1 + the segment that failed first; 0: none */
  enum np_status status;   /* the failed segment's */
  uint64_t submitted_ns;
  uint64_t ended_ns;
  void **outputs; /* [n_outputs], the caller's */
  _Atomic uint32_t ended;
};

struct np_lane {
  struct nnp_queue *queue;
  int on_nnapi;
  const char *accelerator; /* NULL: the CPU, or NNAPI's choice */
  uint64_t cpu_mask;
  pthread_t thread;
  int is_running;
  _Atomic uint64_t ready; /* places of the frames that wait for this lane */
  struct np_parker parker;
  _Atomic uint64_t n_segments;
  _Atomic uint64_t busy_ns;
};

struct nnp_queue {
  const struct np_bundle *bundle;
  nnp_options options;
  struct np_nnapi_library library;
  uint32_t n_plans;
  struct np_queue_plan *plans; /* in the order of the bundle's shares */
  uint32_t n_lanes;
  struct np_lane *lanes;
  const struct np_simulator *simulator; /* NULL in real time */
  int has_entered;                      /* the thread that opened the queue is a lane of the
                                           simulator */
  uint32_t n_frames;                    /* in flight at most */
  struct np_queue_frame frames[NP_QUEUE_PLACES];

  uint64_t submitted;           /* written by the submitter: number of frames */
  _Atomic uint64_t handed;      /* written by the receiver: number of frames returned */
  struct np_queue_frame *last;  /* the receiver's: returned and not released yet; NULL: none */
  struct np_parker submitter;   /* waits for room */
  struct np_parker receiver;    /* waits for the oldest frame */
  _Atomic uint32_t is_stopping; /* frames end without running */
  _Atomic uint32_t is_over;     /* lanes must end */
};

/* Does what nnp_queue_open does, for a caller that has the bundle's data. With a simulator, which
 * must simulate a phone and outlive the queue, time is that of its clock; NNP_FAILED if the phone
 * cannot have so many lanes. */
nnp_status np_queue_make(const struct np_bundle *bundle, const nnp_queue_options *options,
                         struct np_simulator *simulator, nnp_queue **queue, nnp_error *error);

/* Returns the time by the queue's clock, in ns. */
uint64_t np_queue_now(const struct nnp_queue *queue);

/* Returns the lane of a simulated phone that the submitting and receiving thread is. */
static inline uint32_t np_queue_owner(const struct nnp_queue *queue) { return queue->n_lanes; }

/* To be called before the calling lane looks for work, and before it sleeps. */
void np_queue_look(const struct nnp_queue *queue);
void np_queue_rest(const struct nnp_queue *queue);

/* To be called after what a lane waits for is ready, and before the lane is woken. */
void np_queue_call(const struct nnp_queue *queue, uint32_t lane);

/* Hands a frame to the lane of a segment that waits for no other. Segments that share a lane are
 * handed to it one at a time. */
void np_queue_hand(struct nnp_queue *queue, struct np_queue_frame *frame, uint32_t segment);

/* Lists the dependencies of a plan's segments, whose lanes are known; 0 if memory is short. */
int np_queue_order(struct np_queue_plan *plan);

/* Starts the lanes' threads; NNP_NO_MEMORY if the system has no more threads, NNP_BAD_ARGUMENT if
 * it does not allow their CPUs. */
nnp_status np_lanes_start(struct nnp_queue *queue, nnp_error *error);

/* Ends the lanes that were started. No frame may be in flight. */
void np_lanes_stop(struct nnp_queue *queue);

#endif
