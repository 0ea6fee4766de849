/* Mixtures of plans: their section of a bundle, and the rule that selects a frame's plan. */
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
  struct np_cursor cursor;
  NP_TRY(np_bundle_section(container, "MIXT", &cursor, why));
  if (!cursor.words) {
    return NP_OK;
  }
  uint32_t n;
  NP_TRY(np_bundle_count(&cursor, "MIXT", SHARE_WORDS, &n, why));
  bundle->shares = calloc(n + (size_t)1, sizeof *bundle->shares);
  NP_REQUIRE(bundle->shares, NP_NO_MEMORY, why, "no memory for the bundle");
  bundle->n_shares = n;
  double total = 0;
  for (uint32_t i = 0; i < n; i++) {
    struct np_bundle_share *share = &bundle->shares[i];
    share->plan = np_take_u32(&cursor);
    const uint64_t bits = np_take_u64(&cursor);
    memcpy(&share->share, &bits, sizeof bits);
    NP_REQUIRE(share->plan < bundle->n_plans && share->share > 0 && share->share <= 1,
               NP_BAD_REQUEST, why,
               "MIXT: share %u is of plan %u of %u, or is not above 0 and at most 1", i,
               share->plan, bundle->n_plans);
    for (uint32_t j = 0; j < i; j++) {
      NP_REQUIRE(bundle->shares[j].plan != share->plan, NP_BAD_REQUEST, why,
                 "MIXT: plan %u has two shares", share->plan);
    }
    total += share->share;
  }
  NP_REQUIRE(fabs(total - 1) < TOTAL_TOLERANCE, NP_BAD_REQUEST, why,
             "MIXT: the shares are %g in all, not 1", total);
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

/* On a circle, consecutive frames have the positions of frames 0, 1, ..., rotated by some angle,
 * and a share is an arc. Some arc that begins at one of the positions contains as many as any
 * rotation puts into an arc. */
uint32_t np_mixture_most(double share, uint32_t window) {
  const double arc = share + 1e-6; /* positions of late frames are rounded */
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
