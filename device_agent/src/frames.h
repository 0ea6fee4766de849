/* An action whose plans run many frames at once, through the runtime library's queue (PROTOCOL.md,
 * "Frames"). */
#ifndef NP_FRAMES_H
#define NP_FRAMES_H

#include "action.h"
#include "cpus.h"
#include "record.h"
#include "simulator.h"
#include "timing.h"

struct np_frames;

/* Compiles the action's plans, and runs each alone, one frame after the other, for what its frames
 * are compared with. `simulator` is NULL in real time. Stage and segment are told in view->record,
 * and a failure in its fault; the status is the engine's. What is made is to be closed also then.
 */
enum np_status np_frames_open(const struct np_session *session, const struct np_action *action,
                              struct np_simulator *simulator, struct np_lane_cpus cpus,
                              const struct np_record_view *view, struct np_frames **frames);

/* Runs a share of the action's frames, at most action->in_flight of them at once, and records them
 * behind those that are there. A frame that fails is recorded as such, and the others go on:
 * NP_OK. */
enum np_status np_frames_round(struct np_frames *frames, struct np_clock clock,
                               const struct np_record_view *view);

void np_frames_close(struct np_frames *frames); /* may be NULL */

#endif
