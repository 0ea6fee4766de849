/* Runs actions whose plans process many frames at once, through the runtime library's queue
 * (PROTOCOL.md, "Frames"). */
#ifndef NP_FRAMES_H
#define NP_FRAMES_H

#include "action.h"
#include "cpus.h"
#include "record.h"
#include "simulator.h"
#include "timing.h"

struct np_frames;

/* Compiles the action's plans and runs each alone, one frame after the other, to get the outputs
 * that its frames are compared with. `simulator` is NULL in real time. Writes stage and segment to
 * view->record, and a failure to its fault; the status is the engine's. The caller closes *frames
 * even after a failure. */
enum np_status np_frames_open(const struct np_session *session, const struct np_action *action,
                              struct np_simulator *simulator, struct np_lane_cpus cpus,
                              const struct np_record_view *view, struct np_frames **frames);

/* Runs a share of the action's frames, at most action->in_flight of them at once, and appends them
 * to the record. A failed frame is recorded as such, and the others continue: NP_OK. */
enum np_status np_frames_round(struct np_frames *frames, struct np_clock clock,
                               const struct np_record_view *view);

void np_frames_close(struct np_frames *frames); /* may be NULL */

#endif
