#include "formats.h"

/* Notes whether the value of a slot exists. */
static void note(int64_t *bits, int64_t slot, bool is_there) {
  const int64_t bit = (int64_t)1 << (slot % WORD);
  if (is_there) {
    bits[slot / WORD] |= bit;
  } else {
    bits[slot / WORD] &= ~bit;
  }
}

/* Adds to *ns a value's formats in the bound of the rest; returns whether it is read later. */
static bool formats_ahead(const struct np_ideal_tables *tb, int64_t value, const int64_t *done,
                          bool is_float, bool is_int8, double *ns) {
  bool is_read_later = false;
  for (int64_t e = tb->reader_at[value]; e < tb->reader_at[value + 1]; e++) {
    if (has(done, tb->readers[e])) {
      continue;
    }
    is_read_later = true;
    if (is_float) {
      *ns -= tb->float_price[e];
    }
    if (is_int8) {
      *ns -= tb->int8_price[e];
    }
  }
  return is_read_later;
}

void np_read_in_format(struct np_step *step, int64_t value, int64_t k) {
  const struct np_ideal_tables *tb = step->tb;
  const int64_t slot = tb->slot[value];
  bool is_float = has(step->as_float, slot), is_int8 = has(step->as_int8, slot);
  double earlier = 0, ahead = 0;
  formats_ahead(tb, value, step->before, is_float, is_int8, &earlier);
  if (tb->format[k] ? !is_int8 : !is_float) {
    step->cost += tb->format[k] ? tb->to_int8_ns[value] : tb->to_float_ns[value];
    is_int8 |= tb->format[k] != 0;
    is_float |= tb->format[k] == 0;
  }
  const bool is_read_later = formats_ahead(tb, value, step->after, is_float, is_int8, &ahead);
  step->formats += ahead - earlier;
  note(step->as_float, slot, is_float && is_read_later);
  note(step->as_int8, slot, is_int8 && is_read_later);
}

void np_make_in_format(struct np_step *step, int64_t value, int64_t k) {
  const struct np_ideal_tables *tb = step->tb;
  const int64_t own = tb->format[k] ? AS_INT8 : AS_FLOAT;
  const int64_t lacking = tb->formats_out[value] & ~own, there = own | tb->formats_out[value];
  if (lacking & AS_FLOAT) {
    step->cost += tb->to_float_ns[value];
  }
  if (lacking & AS_INT8) {
    step->cost += tb->to_int8_ns[value];
  }
  if (tb->slot[value] < 0) {
    return;
  }
  const int64_t slot = tb->slot[value];
  double ahead = 0;
  formats_ahead(tb, value, step->after, there & AS_FLOAT, there & AS_INT8, &ahead);
  step->formats += ahead;
  note(step->as_float, slot, there & AS_FLOAT);
  note(step->as_int8, slot, there & AS_INT8);
}
