/* The phone as one body: it warms while something is busy, cools while nothing is, and slows its
 * operations from some temperatures on. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "phone_read.h"

static const struct np_constant_rule seconds = {"s", 0, 1e6, 1};

static int read_throttle(const struct np_field *field, struct np_throttle *throttle) {
  static const char *const names[] = {"above", "factor", NULL};
  return np_field_object(field, names) &&
         np_read_scaled(field, "above", &np_rule_degrees, 1, &throttle->above) &&
         np_read_scaled(field, "factor", &np_rule_factor, 1, &throttle->factor);
}

int np_read_thermal(const struct np_field *root, struct np_phone *phone) {
  static const char *const names[] = {"ambient", "time_constant", "throttle", NULL};
  struct np_thermal *thermal = &phone->thermal;
  struct np_field field, list, element;
  if (!np_json_member(root->value, "thermal")) {
    return 1;
  }
  if (!np_field_member(root, "thermal", &field) || !np_field_object(&field, names) ||
      !np_read_scaled(&field, "ambient", &np_rule_degrees, 1, &thermal->ambient) ||
      !np_read_scaled(&field, "time_constant", &seconds, 1e9, &thermal->time_constant) ||
      !np_field_member(&field, "throttle", &list)) {
    return 0;
  }
  if (list.value->kind != NP_JSON_ARRAY || list.value->count > NP_MAX_THROTTLES) {
    return np_field_refuse(&list, np_json_kind_name(list.value), "an array of at most 8 steps");
  }
  for (uint32_t i = 0; i < list.value->count; i++) {
    struct np_throttle *throttle = &thermal->throttles[i];
    if (!np_field_element(&list, i, &element) || !read_throttle(&element, throttle)) {
      return 0;
    }
    if (i > 0 && throttle->above <= throttle[-1].above) {
      return np_field_refuse(&element, "a step that is not above the one before",
                             "steps by rising temperature");
    }
  }
  thermal->n_throttles = list.value->count;
  phone->heat.temperature = thermal->ambient;
  return 1;
}

void np_phone_spend(struct np_phone *phone, uint64_t ns, double heat) {
  const struct np_thermal *thermal = &phone->thermal;
  if (thermal->time_constant <= 0) {
    return;
  }
  const double target = thermal->ambient + heat;
  pthread_mutex_lock(&phone->heat.lock);
  phone->heat.temperature =
      target + (phone->heat.temperature - target) * exp(-(double)ns / thermal->time_constant);
  pthread_mutex_unlock(&phone->heat.lock);
}

double np_phone_temperature(struct np_phone *phone) {
  pthread_mutex_lock(&phone->heat.lock);
  const double temperature = phone->heat.temperature;
  pthread_mutex_unlock(&phone->heat.lock);
  return temperature;
}

double np_phone_throttle(struct np_phone *phone) {
  const struct np_thermal *thermal = &phone->thermal;
  const double temperature = np_phone_temperature(phone);
  double factor = 1;
  for (uint32_t i = 0; i < thermal->n_throttles && temperature >= thermal->throttles[i].above;
       i++) {
    factor = thermal->throttles[i].factor;
  }
  return factor;
}
