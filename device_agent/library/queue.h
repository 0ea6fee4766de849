/* A queue of frames: for queue*.c only.
 *
 * Frames, lanes and contexts are made when the queue is opened. A frame's place is its number
 * modulo 64, and a lane's frames that wait for it are the bits of one word: handing a frame over
 * sets a bit and wakes the lane if it sleeps, taking one clears it. Whoever has taken a frame owns
 * it.
 *
 * On a simulated phone, which only the agent has, the lanes are lanes of its clock, and so is the
 * thread that opens the queue and alone submits and receives: each says when it rests and whom it
 * calls (np_emulator.h), so that frames go their way in the order of simulated time. */
#ifndef NP_QUEUE_H
#define NP_QUEUE_H

#include <pthread.h>
#include <stdatomic.h>

#include "executable.h"
#include "parker.h"

#define NP_QUEUE_PLACES 64u

/* A context of a plan, and the times of the frame that it runs. */
struct np_queue_context {
  struct np_context *context;
  nnp_span *spans;         /* [n_segments] */
  struct np_fault *faults; /* [n_segments] of their runs */
  _Atomic uint32_t *waits; /* [n_segments] segments that each waits for yet */
  _Atomic uint32_t busy;   /* a frame has it: set by the submitter, cleared by the receiver */
};

struct np_queue_plan {
  uint32_t plan; /* of the bundle */
  struct np_executable executable;
  uint32_t *lanes; /* [n_segments] */
  /* Who waits for whom: [n_segments], and by segment those that wait for it: from firsts[s] on. */
  uint32_t *n_waits;
  uint32_t *firsts; /* [n_segments + 1] */
  uint32_t *followers;
  uint32_t n_contexts;
  struct np_queue_context *contexts; /* frames take them in turn */
  uint64_t n_submitted;
};

struct np_queue_frame {
  uint64_t number;
  struct np_queue_plan *plan;
  struct np_queue_context *context;
  uint32_t *next;          /* [n_lanes] the segment that each lane runs next for it */
  _Atomic uint32_t left;   /* segments that have not come to their end */
  _Atomic uint32_t failed; /* 1 + the segment that failed first; 0: none did */
  enum np_status status;   /* of that one */
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
  _Atomic uint64_t ready; /* places of the frames that wait for it */
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
  int has_entered;                      /* the thread that opened it is a lane of the simulator */
  uint32_t n_frames;                    /* in flight at most */
  struct np_queue_frame frames[NP_QUEUE_PLACES];

  uint64_t submitted;           /* by the submitter: how many frames */
  _Atomic uint64_t handed;      /* by the receiver: how many frames were handed out */
  struct np_queue_frame *last;  /* by the receiver: handed out and not let go of; NULL: none */
  struct np_parker submitter;   /* waits for room */
  struct np_parker receiver;    /* waits for the oldest frame */
  _Atomic uint32_t is_stopping; /* frames end without a run */
  _Atomic uint32_t is_over;     /* lanes end */
};

/* nnp_queue_open for who has a bundle's data. With a simulator, whose phone is simulated and which
 * must outlive the queue, its clock tells the time; NNP_FAILED where the phone has no such lanes.
 */
nnp_status np_queue_make(const struct np_bundle *bundle, const nnp_queue_options *options,
                         struct np_simulator *simulator, nnp_queue **queue, nnp_error *error);

/* The time by the queue's clock, ns. */
uint64_t np_queue_now(const struct nnp_queue *queue);

/* The thread that submits and receives, as a lane of a simulated phone. */
static inline uint32_t np_queue_owner(const struct nnp_queue *queue) { return queue->n_lanes; }

/* Before the calling lane looks for something to do, and before it sleeps. */
void np_queue_look(const struct nnp_queue *queue);
void np_queue_rest(const struct nnp_queue *queue);

/* After what a lane waits for is there, and before it is woken. */
void np_queue_call(const struct nnp_queue *queue, uint32_t lane);

/* Gives a frame to the lane of a segment that waits for none. Of segments that wait for each other
 * through their lane one at a time is given to it. */
void np_queue_hand(struct nnp_queue *queue, struct np_queue_frame *frame, uint32_t segment);

/* Lists who waits for whom in a plan whose segments have their lanes; 0 where memory is short. */
int np_queue_order(struct np_queue_plan *plan);

/* Starts the lanes' threads; NNP_NO_MEMORY where the system has none left, NNP_BAD_ARGUMENT where
 * their CPUs may not be used. */
nnp_status np_lanes_start(struct nnp_queue *queue, nnp_error *error);

/* Ends those that were started. No frame may be in flight. */
void np_lanes_stop(struct nnp_queue *queue);

#endif
