/* Describes where units run: the section UNIT of a bundle, and its units in a compiled model. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bundle_sections.h"
#include "executable.h"

#define LEAST_SEGMENT_WORDS 3u /* prediction, number of units */
#define UNIT_WORDS 3u          /* name, share */

static double take_f64(struct np_cursor *cursor) {
  const uint64_t bits = np_take_u64(cursor);
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static enum np_status read_segment(struct np_cursor *cursor, const struct np_bundle *bundle,
                                   struct np_bundle_segment *segment) {
  segment->predicted_ns = take_f64(cursor);
  const uint32_t n = np_take_u32(cursor);
  if (cursor->bad || !(segment->predicted_ns >= 0) || !isfinite(segment->predicted_ns) ||
      n > np_cursor_left(cursor) / UNIT_WORDS) {
    return NP_BAD_REQUEST;
  }
  segment->units = calloc(n + (size_t)1, sizeof *segment->units);
  if (!segment->units) {
    return NP_NO_MEMORY;
  }
  segment->n_units = n;
  for (uint32_t i = 0; i < n; i++) {
    struct np_bundle_unit *unit = &segment->units[i];
    unit->name = np_bundle_string(bundle, np_take_u32(cursor));
    unit->share = take_f64(cursor);
    if (!unit->name || !(unit->share >= 0 && unit->share <= 1)) {
      return NP_BAD_REQUEST;
    }
  }
  return NP_OK;
}

enum np_status np_bundle_read_units(const struct np_container *container, struct np_bundle *bundle,
                                    struct np_message *why) {
  struct np_cursor cursor;
  NP_TRY(np_bundle_section(container, "UNIT", &cursor, why));
  if (!cursor.words) {
    return NP_OK;
  }
  for (uint32_t p = 0; p < bundle->n_plans; p++) {
    for (uint32_t s = 0; s < bundle->plans[p].n_segments; s++) {
      const enum np_status status = read_segment(&cursor, bundle, &bundle->plans[p].segments[s]);
      NP_REQUIRE(status == NP_OK, status, why,
                 "UNIT: segment %u of plan %u is cut off, or has no such name or share", s, p);
    }
  }
  return np_bundle_list_end(&cursor, "UNIT", why);
}

/* ---- A model's ---- */

/* Returns the predicted time of the whole plan; 0 if the bundle has none. */
static double predicted_ns(const struct np_bundle_plan *plan) {
  double total = 0;
  for (uint32_t s = 0; s < plan->n_segments; s++) {
    total += plan->segments[s].predicted_ns;
  }
  return total;
}

/* Returns the share of a segment, from 0 to 1; NNP_UNKNOWN_SHARE if the bundle has none. */
static double share_of(const struct np_bundle_plan *plan, uint32_t s) {
  const double total = predicted_ns(plan);
  return total > 0 ? plan->segments[s].predicted_ns / total : NNP_UNKNOWN_SHARE;
}

uint32_t nnp_model_describe(const nnp_model *model, nnp_unit *units, uint32_t room) {
  const struct np_executable *executable = np_executable_of(model);
  const struct np_bundle_plan *plan = executable->chosen;
  uint32_t n = 0;
  for (uint32_t s = 0; s < plan->n_segments; s++) {
    const struct np_bundle_segment *segment = &plan->segments[s];
    const nnp_segment became = np_executable_segment(executable, s);
    const double share = share_of(plan, s);
    nnp_unit unit = {.name = "",
                     .segment = s,
                     .engine = became.engine,
                     .accelerator = became.fell_back ? NULL : became.accelerator,
                     .share = share,
                     .fell_back = became.fell_back,
                     .cause = became.cause,
                     .why = became.why};
    for (uint32_t i = 0; i < segment->n_units || (i == 0 && segment->n_units == 0); i++, n++) {
      if (segment->n_units > 0) {
        unit.name = segment->units[i].name;
        unit.share = share < 0 ? share : share * segment->units[i].share;
      }
      if (n < room) {
        units[n] = unit;
      }
    }
  }
  return n;
}

/* A growing text; bytes that do not fit are only counted. */
struct line {
  char *text;
  size_t size, length;
};

static void add(struct line *line, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(struct line *line, const char *format, ...) {
  const size_t at = line->length < line->size ? line->length : line->size;
  va_list arguments;
  va_start(arguments, format);
  const int n =
      vsnprintf(at < line->size ? line->text + at : NULL, line->size - at, format, arguments);
  va_end(arguments);
  line->length += n > 0 ? (size_t)n : 0;
}

static const char *device_of(const nnp_segment *segment) {
  if (strcmp(segment->engine, "nnapi") != 0) {
    return "the CPU";
  }
  return segment->accelerator ? segment->accelerator : "NNAPI's choice";
}

/* Adds a device's segments, where `first` is the first of them. */
static void add_device(struct line *line, const struct np_executable *executable, uint32_t first) {
  const struct np_bundle_plan *plan = executable->chosen;
  const nnp_segment own = np_executable_segment(executable, first);
  uint32_t n = 0;
  double share = 0;
  for (uint32_t s = 0; s < plan->n_segments; s++) {
    const nnp_segment other = np_executable_segment(executable, s);
    if (strcmp(device_of(&own), device_of(&other)) == 0) {
      if (s < first) {
        return; /* already described */
      }
      share += share_of(plan, s);
      n++;
    }
  }
  add(line, "%s %u on %s", first == 0 ? ":" : ",", n, device_of(&own));
  if (share >= 0) {
    add(line, " (%.1f %%)", 100 * share);
  }
}

size_t nnp_model_describe_line(const nnp_model *model, char *text, size_t size) {
  const struct np_executable *executable = np_executable_of(model);
  const struct np_bundle_plan *plan = executable->chosen;
  struct line line = {text, size, 0};
  add(&line, "plan %s, ", plan->name);
  if (predicted_ns(plan) > 0) {
    add(&line, "predicted %.3f ms, ", predicted_ns(plan) / 1e6);
  }
  add(&line, "%u segment%s", plan->n_segments, plan->n_segments == 1 ? "" : "s");
  for (uint32_t s = 0; s < plan->n_segments; s++) {
    add_device(&line, executable, s);
  }
  for (uint32_t s = 0; s < plan->n_segments; s++) {
    const nnp_segment segment = np_executable_segment(executable, s);
    if (segment.fell_back) {
      add(&line, "; segment %u fell back from %s: %s", s,
          segment.accelerator ? segment.accelerator : "NNAPI's choice", segment.why);
    }
  }
  return line.length;
}
