/* The phone as one body: it warms while busy, cools while idle, and slows its operations above
 * certain temperatures. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

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

/* A phone's temperature in a file, shared by its processes, which take turns. */
struct np_body {
  double temperature;
  uint64_t at_ns; /* by the host's wall clock; 0: the phone was never used */
};

static uint64_t day_ns(void) {
  struct timespec now = {0, 0};
  (void)clock_gettime(CLOCK_REALTIME, &now);
  return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

enum np_status np_phone_keep_body(struct np_phone *phone, const char *path,
                                  struct np_message *why) {
  if (phone->thermal.time_constant <= 0) {
    return NP_OK;
  }
  void *body = MAP_FAILED;
  const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd >= 0 && ftruncate(fd, sizeof(struct np_body)) == 0) {
    body = mmap(NULL, sizeof(struct np_body), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  if (body == MAP_FAILED) {
    np_message_set(why, "%s: %s", path, strerror(errno));
  }
  if (fd >= 0) {
    (void)close(fd);
  }
  if (body == MAP_FAILED) {
    return NP_IO;
  }
  phone->heat.body = body;
  return NP_OK;
}

void np_phone_forget_body(struct np_phone *phone) {
  if (phone->heat.body) {
    (void)munmap(phone->heat.body, sizeof *phone->heat.body);
    phone->heat.body = NULL;
  }
}

/* Returns the present temperature; the caller has the lock. */
static double temperature_of(const struct np_phone *phone) {
  const struct np_body *body = phone->heat.body;
  const struct np_thermal *thermal = &phone->thermal;
  if (!body) {
    return phone->heat.temperature;
  }
  if (body->at_ns == 0 || !(fabs(body->temperature) < 1e3)) {
    return thermal->ambient;
  }
  const uint64_t now = day_ns();
  const double gap_ns = now > body->at_ns ? (double)(now - body->at_ns) : 0;
  return thermal->ambient +
         (body->temperature - thermal->ambient) * exp(-gap_ns / thermal->time_constant);
}

void np_phone_spend(struct np_phone *phone, uint64_t ns, double heat) {
  const struct np_thermal *thermal = &phone->thermal;
  if (thermal->time_constant <= 0) {
    return;
  }
  const double target = thermal->ambient + heat;
  pthread_mutex_lock(&phone->heat.lock);
  phone->heat.temperature =
      target + (temperature_of(phone) - target) * exp(-(double)ns / thermal->time_constant);
  if (phone->heat.body) {
    *phone->heat.body = (struct np_body){phone->heat.temperature, day_ns()};
  }
  pthread_mutex_unlock(&phone->heat.lock);
}

double np_phone_temperature(struct np_phone *phone) {
  pthread_mutex_lock(&phone->heat.lock);
  const double temperature = temperature_of(phone);
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
