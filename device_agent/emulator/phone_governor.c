/* The governor of a simulated phone's CPU: PHONES.md, section "Governor". */
#include <math.h>
#include <string.h>

#include "phone_read.h"

#define USUAL_STEPS 20.0

static const struct np_constant_rule count = {"none", 2, 1000, 0};

/* Reads member "held": a cap that lowers the clock periodically, whatever the load. */
static int read_held(const struct np_field *parent, struct np_governor *governor) {
  static const char *const names[] = {"every", "lasts", "to", NULL};
  struct np_field field;
  if (!np_json_member(parent->value, "held")) {
    return 1;
  }
  if (!np_field_member(parent, "held", &field) || !np_field_object(&field, names) ||
      !np_read_scaled(&field, "every", &np_rule_milliseconds, 1e6, &governor->period) ||
      !np_read_scaled(&field, "lasts", &np_rule_milliseconds, 1e6, &governor->held) ||
      !np_read_scaled(&field, "to", &np_rule_fraction, 1, &governor->held_to)) {
    return 0;
  }
  return (governor->held < governor->period && governor->held_to > 0) ||
         np_field_refuse(&field, "a time without an end, or a clock of 0",
                         "lasts below every, and a clock above 0");
}

/* Reads member "told": a kernel that reports a clock other than the CPU's. */
static int read_told(const struct np_field *parent, struct np_governor *governor) {
  const char *text = NULL;
  if (!np_json_member(parent->value, "told")) {
    return 1;
  }
  if (!np_field_member_text(parent, "told", &text)) {
    return 0;
  }
  governor->told = strcmp(text, "stuck") == 0 ? NP_TOLD_STUCK : NP_TOLD_NOISE;
  return governor->told == NP_TOLD_STUCK || strcmp(text, "noise") == 0 ||
         np_field_refuse(parent, text, "stuck or noise");
}

int np_read_governor(const struct np_field *cpu, struct np_phone *phone) {
  static const char *const names[] = {"lowest", "ramp", "drop", "steps", "held", "told", NULL};
  struct np_governor *governor = &phone->governor;
  struct np_field field;
  if (!np_json_member(cpu->value, "governor")) {
    return 1;
  }
  governor->steps = USUAL_STEPS;
  if (!np_field_member(cpu, "governor", &field) || !np_field_object(&field, names) ||
      !np_read_scaled(&field, "lowest", &np_rule_fraction, 1, &governor->lowest) ||
      !np_read_scaled(&field, "ramp", &np_rule_milliseconds, 1e6, &governor->ramp) ||
      !np_read_scaled(&field, "drop", &np_rule_milliseconds, 1e6, &governor->drop) ||
      !np_read_optional(&field, "steps", &count, 1, &governor->steps) ||
      !read_held(&field, governor) || !read_told(&field, governor)) {
    return 0;
  }
  if (governor->lowest <= 0 || governor->ramp <= 0 || governor->drop <= 0) {
    return np_field_refuse(&field, "a constant of 0", "a lowest clock and times above 0");
  }
  governor->steps = floor(governor->steps);
  return 1;
}

/* Returns the present level: 0 the lowest clock, 1 the highest. The caller has the lock. */
static double level_of(const struct np_governor *governor, uint64_t now_ns) {
  const double rested =
      governor->away + (now_ns > governor->at_ns ? (double)(now_ns - governor->at_ns) : 0);
  return governor->drop > 0 ? fmax(0, governor->level - rested / governor->drop) : 1;
}

static double step_of(const struct np_governor *governor, double level) {
  return fmin(floor(level * governor->steps), governor->steps - 1);
}

static double ratio_of(const struct np_governor *governor, double step) {
  return governor->lowest + (1 - governor->lowest) * step / (governor->steps - 1);
}

/* Returns the share of the clock that the cap leaves at a time; *until is how long that lasts, in
 * ns. */
static double held_at(const struct np_governor *governor, double ns, double *until) {
  const double free = governor->period - governor->held;
  const double at = governor->period > 0 ? fmod(ns, governor->period) : 0;
  *until = governor->period <= 0 ? INFINITY : at < free ? free - at : governor->period - at;
  return governor->period > 0 && at >= free ? governor->held_to : 1;
}

/* Returns the time, from now on, of work that takes `ns` without the cap. */
static double hold(const struct np_governor *governor, uint64_t now_ns, double ns) {
  double took = 0;
  while (ns > 0) {
    double until;
    const double ratio = held_at(governor, (double)now_ns + took, &until);
    const double busy = fmin(ns / ratio, until);
    ns = busy < until ? 0 : ns - busy * ratio;
    took += busy;
  }
  return took;
}

double np_governor_ratio(struct np_phone *phone, uint64_t now_ns) {
  const struct np_governor *governor = &phone->governor;
  if (governor->ramp <= 0) {
    return 1;
  }
  pthread_mutex_lock(&phone->heat.lock);
  double until;
  const double ratio = ratio_of(governor, step_of(governor, level_of(governor, now_ns))) *
                       held_at(governor, (double)now_ns, &until);
  pthread_mutex_unlock(&phone->heat.lock);
  return ratio;
}

double np_governor_run(struct np_phone *phone, uint64_t now_ns, double ns, double *level) {
  const struct np_governor *governor = &phone->governor;
  *level = 1;
  if (governor->ramp <= 0) {
    return ns;
  }
  pthread_mutex_lock(&phone->heat.lock);
  *level = level_of(governor, now_ns);
  pthread_mutex_unlock(&phone->heat.lock);
  double left = ns, took = 0;
  for (double step = step_of(governor, *level); step < governor->steps - 1 && left > 0; step++) {
    const double ratio = ratio_of(governor, step);
    const double until = ((step + 1) / governor->steps - *level) * governor->ramp;
    const double busy = fmin(until, left / ratio);
    *level = busy < until ? *level + busy / governor->ramp : (step + 1) / governor->steps;
    took += busy;
    left = busy < until ? 0 : left - busy * ratio;
  }
  left = fmax(left, 0);
  *level = fmin(1, *level + left / governor->ramp);
  return hold(governor, now_ns, took + left);
}

double np_governor_busy(struct np_phone *phone, uint64_t now_ns, uint64_t ns) {
  const struct np_governor *governor = &phone->governor;
  pthread_mutex_lock(&phone->heat.lock);
  const double level = level_of(governor, now_ns);
  pthread_mutex_unlock(&phone->heat.lock);
  return governor->ramp > 0 ? fmin(1, level + (double)ns / governor->ramp) : 1;
}

void np_governor_stop(struct np_phone *phone, uint64_t now_ns, double level) {
  if (phone->governor.ramp <= 0) {
    return;
  }
  pthread_mutex_lock(&phone->heat.lock);
  phone->governor.level = level;
  phone->governor.at_ns = now_ns;
  phone->governor.away = 0;
  pthread_mutex_unlock(&phone->heat.lock);
}

void np_governor_rest(struct np_phone *phone, uint64_t ns) {
  pthread_mutex_lock(&phone->heat.lock);
  phone->governor.away += (double)ns;
  pthread_mutex_unlock(&phone->heat.lock);
}
