/* LOCAL_RESPONSE_NORMALIZATION along an axis. Inputs: input, radius, bias, alpha, beta, optional
 * axis. */
#include <math.h>

#include "kernels/np_along.h"

struct lrn {
  size_t radius;
  float bias, alpha, beta;
};

static enum np_status lrn_infer(const struct np_call *call) { return np_along_infer(call, 5); }

static float square(float x) { return x * x; }

/* The sum of squares is computed anew for each element: a running sum would lose small values after
 * a large one. */
static void lrn_line(const float *in, float *out, const struct np_along *along,
                     const struct lrn *lrn) {
  for (size_t i = 0; i < along->n; i++) {
    const size_t first = i > lrn->radius ? i - lrn->radius : 0;
    const size_t last = lrn->radius < along->n - 1 - i ? i + lrn->radius : along->n - 1;
    float sum = 0.0f;
    for (size_t k = first; k <= last; k++) {
      sum += square(in[k * along->inner]);
    }
    const float factor = powf(lrn->bias + lrn->alpha * sum, -lrn->beta);
    out[i * along->inner] = in[i * along->inner] * factor;
  }
}

static enum np_status lrn_run(const struct np_call *call) {
  uint32_t axis = 0;
  int32_t radius;
  struct lrn lrn;
  NP_TRY(np_read_axis(call, 5, &axis));
  NP_TRY(np_read_i32(call, 1, &radius));
  if (radius < 0) {
    return np_fail(call, NP_BAD_MODEL, "radius (input 1) is %d, wanted 0 or more", radius);
  }
  lrn.radius = (size_t)radius;
  NP_TRY(np_read_f32(call, 2, &lrn.bias));
  NP_TRY(np_read_f32(call, 3, &lrn.alpha));
  NP_TRY(np_read_f32(call, 4, &lrn.beta));
  const struct np_along along = np_along_axis(np_in(call, 0), axis);
  for (size_t o = 0; o < along.outer; o++) {
    for (size_t i = 0; i < along.inner; i++) {
      const size_t start = o * along.n * along.inner + i;
      lrn_line((const float *)np_in(call, 0)->data + start, (float *)np_out(call, 0)->room + start,
               &along, &lrn);
    }
  }
  return NP_OK;
}

const struct np_kernel np_kernel_LOCAL_RESPONSE_NORMALIZATION = {
    .types = NP_FLOATS, .infer = lrn_infer, .run = lrn_run};
