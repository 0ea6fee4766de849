/* Mixtures of plans: their section of a bundle, and the rule that gives each frame its plan. */
#include "mixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bundle_sections.h"

#define GOLDEN 0.6180339887498949 /* (sqrt(5) - 1) / 2 */
#define SHARE_WORDS 3u            /* plan, share */
#define TOTAL_TOLERANCE 1e-6

enum np_status np_bundle_read_mixture(const struct np_container *container,
                                      struct np_bundle *bundle, struct np_message *why) {
  const struct np_section section = np_container_find(container, "MIXT");
  struct np_cursor cursor = np_cursor_over(section.bytes, section.length);
  if (!section.present) {
    return NP_OK;
  }
  const uint32_t version = np_take_u32(&cursor);
  if (cursor.bad || version != NP_MIXTURE_VERSION) {
    np_message_set(why, "MIXT: version %u, this library reads %u", version, NP_MIXTURE_VERSION);
    return NP_BAD_REQUEST;
  }
  const uint32_t n = np_take_u32(&cursor);
  if (cursor.bad || section.length % 4 != 0 || n == 0 ||
      n > np_cursor_left(&cursor) / SHARE_WORDS) {
    np_message_set(why, "MIXT: %u shares do not fit its %zu bytes", n, section.length);
    return NP_BAD_REQUEST;
  }
  bundle->shares = calloc(n, sizeof *bundle->shares);
  if (!bundle->shares) {
    np_message_set(why, "no memory for the bundle");
    return NP_NO_MEMORY;
  }
  bundle->n_shares = n;
  double total = 0;
  for (uint32_t i = 0; i < n; i++) {
    struct np_bundle_share *share = &bundle->shares[i];
    share->plan = np_take_u32(&cursor);
    const uint64_t bits = np_take_u64(&cursor);
    memcpy(&share->share, &bits, sizeof bits);
    if (share->plan >= bundle->n_plans || !(share->share > 0 && share->share <= 1)) {
      np_message_set(why, "MIXT: share %u is of plan %u of %u, or is not above 0 and at most 1", i,
                     share->plan, bundle->n_plans);
      return NP_BAD_REQUEST;
    }
    for (uint32_t j = 0; j < i; j++) {
      if (bundle->shares[j].plan == share->plan) {
        np_message_set(why, "MIXT: plan %u has two shares", share->plan);
        return NP_BAD_REQUEST;
      }
    }
    total += share->share;
  }
  if (fabs(total - 1) >= TOTAL_TOLERANCE) {
    np_message_set(why, "MIXT: the shares are %g in all, not 1", total);
    return NP_BAD_REQUEST;
  }
  return np_bundle_list_end(&cursor, "MIXT", why);
}

uint32_t np_mixture_select(const struct np_bundle_share *shares, uint32_t n, uint64_t frame) {
  double place = fmod(((double)frame + 0.5) * GOLDEN, 1);
  for (uint32_t i = 0; i < n; i++) {
    place -= shares[i].share;
    if (place < 0) {
      return i;
    }
  }
  return n - 1;
}

/* The places of frames in a row are those of frames 0, 1, ... turned by some angle, and a share is
 * an arc: the most that any turn puts into an arc stand in one that begins at one of them. */
uint32_t np_mixture_most(double share, uint32_t window) {
  const double arc = share + 1e-6; /* places of late frames are rounded */
  uint32_t most = 0;
  for (uint32_t i = 0; i < window; i++) {
    uint32_t n = 0;
    for (uint32_t j = 0; j < window; j++) {
      double apart = fmod(((double)j - (double)i) * GOLDEN, 1);
      apart += apart < 0;
      n += apart < arc;
    }
    most = n > most ? n : most;
  }
  return most;
}
