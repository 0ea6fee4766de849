/* Dependencies between the segments of a plan. */
#include <stdlib.h>

#include "queue.h"

/* Returns whether a segment reads an output of another. */
static int reads(const struct np_bundle_segment *segment, const struct np_bundle_segment *from) {
  for (uint32_t i = 0; i < segment->n_inputs; i++) {
    for (uint32_t o = 0; o < from->n_outputs; o++) {
      if (segment->inputs[i].tensor == from->outputs[o].tensor) {
        return 1;
      }
    }
  }
  return 0;
}

/* Returns whether a segment waits for an earlier one. In a sequential plan each waits for its
 * predecessor. In an overlapping one it waits for those whose outputs it reads and for the previous
 * one on its lane, so that a lane has one segment of a frame at a time. */
static int waits_for(const struct np_queue_plan *plan, uint32_t s, uint32_t before, int is_next) {
  const struct np_bundle_plan *chosen = plan->executable.chosen;
  if (!chosen->overlaps) {
    return before + 1 == s;
  }
  return is_next || reads(&chosen->segments[s], &chosen->segments[before]);
}

/* Counts the pairs of segments of which the later one waits for the earlier one, and lists them if
 * `followers` is not NULL. */
static size_t go_over(struct np_queue_plan *plan, uint32_t *followers) {
  const uint32_t n = plan->executable.chosen->n_segments;
  size_t n_pairs = 0;
  for (uint32_t before = 0; before < n; before++) {
    int is_met = 0; /* the next segment on its lane */
    const uint32_t end = plan->executable.chosen->overlaps || before + 2 > n ? n : before + 2;
    for (uint32_t s = before + 1; s < end; s++) {
      const int is_next = !is_met && plan->lanes[s] == plan->lanes[before];
      is_met |= is_next;
      if (!waits_for(plan, s, before, is_next)) {
        continue;
      }
      if (followers) {
        followers[n_pairs] = s;
        plan->n_waits[s]++;
      }
      n_pairs++;
    }
    plan->firsts[before + 1] = (uint32_t)n_pairs;
  }
  return n_pairs;
}

int np_queue_order(struct np_queue_plan *plan) {
  const uint32_t n = plan->executable.chosen->n_segments;
  plan->n_waits = calloc(n, sizeof *plan->n_waits);
  plan->firsts = calloc(n + (size_t)1, sizeof *plan->firsts);
  if (plan->n_waits && plan->firsts) {
    const size_t n_pairs = go_over(plan, NULL);
    plan->followers = n_pairs < UINT32_MAX ? calloc(n_pairs + 1, sizeof *plan->followers) : NULL;
  }
  if (plan->followers) {
    (void)go_over(plan, plan->followers);
  }
  return plan->followers != NULL;
}
