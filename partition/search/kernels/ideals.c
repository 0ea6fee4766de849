#include "ideals.h"
#include "formats.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { DONE, PAUSED, GROW_LABELS, GROW_IDEALS, GROW_READY, GROW_JUMPS, GROW_RECORDS };
enum { LEVEL, STAGE, IDEAL, WORK, WIDTH, RECORDS, LANDINGS };
enum { BEGIN, CLOSE, OPEN, EXPAND };
enum { UPPER, LEFT_OUT };

/* One level of a search: the half of each array by its parity. */
struct level {
  const struct np_ideal_sizes *sz;
  const struct np_ideal_tables *tb;
  struct np_ideal_search *st;
  int64_t *n_ideals, *n_labels, *n_ready;
  struct np_ideal_set *ideals;
  int64_t *bits;
  double *joining;
  int64_t *slot_value, *ready, *head, *table;
  struct np_label *labels;
  double *use;
  int64_t *present, *owed, *as_float, *as_int8;
};

static struct level level_of(const struct np_ideal_sizes *sz, const struct np_ideal_tables *tb,
                             struct np_ideal_search *st, int64_t parity) {
  return (struct level){
      .sz = sz,
      .tb = tb,
      .st = st,
      .n_ideals = st->n_ideals + parity,
      .n_labels = st->n_labels + parity,
      .n_ready = st->n_ready + parity,
      .ideals = st->ideals + parity * sz->most_ideals,
      .bits = st->bits + parity * sz->most_ideals * sz->words,
      .joining = st->joining + parity * sz->most_ideals * sz->t,
      .slot_value = st->slot_value + parity * sz->most_ideals * sz->slots,
      .ready = st->ready + parity * sz->most_ready,
      .head = st->head + parity * sz->most_ideals * (sz->t + 1),
      .table = st->table + parity * sz->table,
      .labels = st->labels + parity * sz->most_labels,
      .use = st->use + parity * sz->most_labels * sz->budgets,
      .present = st->present + parity * sz->most_labels * sz->slot_words,
      .owed = st->owed + parity * sz->most_labels * sz->slot_words,
      .as_float = st->as_float + parity * sz->most_labels * sz->format_words,
      .as_int8 = st->as_int8 + parity * sz->most_labels * sz->format_words,
  };
}

static double max(double a, double b) { return a > b ? a : b; }

static int64_t min_int(int64_t a, int64_t b) { return a < b ? a : b; }

/* Returns the cost in ns to give label a every value in all formats in which b has it. */
static double formats_lacking(const struct level *lv, int64_t a, int64_t b) {
  const int64_t words = lv->sz->format_words;
  const int64_t *slot_value = lv->slot_value + lv->labels[a].ideal * lv->sz->slots;
  double cost = 0;
  for (int64_t word = 0; word < words; word++) {
    const int64_t i = a * words + word, j = b * words + word;
    const int64_t floats = lv->as_float[j] & ~lv->as_float[i];
    const int64_t int8s = lv->as_int8[j] & ~lv->as_int8[i];
    if (!(floats | int8s)) {
      continue;
    }
    const int64_t first = word * WORD, end = min_int(lv->sz->slots, first + WORD);
    for (int64_t slot = first; slot < end; slot++) {
      if ((floats >> (slot - first)) & 1) {
        cost += lv->tb->to_float_ns[slot_value[slot]];
      }
      if ((int8s >> (slot - first)) & 1) {
        cost += lv->tb->to_int8_ns[slot_value[slot]];
      }
    }
  }
  return cost;
}

/* Returns whether label a makes b superfluous; both have the same ideal and open target. */
static bool dominates(const struct level *lv, int64_t a, int64_t b) {
  const struct np_label *la = &lv->labels[a], *lb = &lv->labels[b];
  double cost = la->cost;
  if (cost > lb->cost) {
    return false;
  }
  for (int64_t r = 0; r < lv->sz->budgets; r++) {
    if (lv->use[a * lv->sz->budgets + r] > lv->use[b * lv->sz->budgets + r]) {
      return false;
    }
  }
  if (la->watch & ~lb->watch) {
    return false;
  }
  if (lv->sz->format_words) {
    cost += formats_lacking(lv, a, b);
    if (cost > lb->cost) {
      return false;
    }
  }
  const int64_t k = la->target, t = lv->sz->t;
  if (k == t) {
    return true;
  }
  if (la->n_units == 0 && lb->n_units > 0) {
    cost += lv->tb->most_alone_ns[k];
  } else if (la->n_units == 1 && !(lb->n_units == 1 && lb->unit == la->unit)) {
    cost += lv->tb->alone_ns[la->unit * t + k];
  }
  if (cost > lb->cost) {
    return false;
  }
  const int64_t *slot_value = lv->slot_value + la->ideal * lv->sz->slots;
  for (int64_t word = 0; word < lv->sz->slot_words; word++) {
    const int64_t i = a * lv->sz->slot_words + word, j = b * lv->sz->slot_words + word;
    const int64_t lacking = lv->present[j] & ~lv->present[i];
    const int64_t owing = lv->owed[i] & ~lv->owed[j];
    if (!(lacking | owing)) {
      continue;
    }
    const int64_t first = word * WORD, end = min_int(lv->sz->slots, first + WORD);
    for (int64_t slot = first; slot < end; slot++) {
      if ((lacking >> (slot - first)) & 1) {
        cost += lv->tb->in_ns[slot_value[slot] * t + k];
      }
      if ((owing >> (slot - first)) & 1) {
        cost += lv->tb->out_ns[slot_value[slot] * t + k];
      }
    }
    if (cost > lb->cost) {
      return false;
    }
  }
  return true;
}

/* Decides whether to keep the label behind the others; drops those that it makes superfluous. */
static bool settle(const struct level *lv) {
  const int64_t new = *lv->n_labels;
  struct np_label *label = &lv->labels[new];
  const int64_t ideal = label->ideal, k = label->target;
  double ahead = lv->ideals[ideal].rest + label->saved + label->formats;
  if (k < lv->sz->t) {
    ahead += lv->joining[ideal * lv->sz->t + k];
  }
  double reach = label->cost + max(0.0, ahead);
  for (int64_t r = 0; r < lv->sz->budgets; r++) {
    const double use = lv->use[new * lv->sz->budgets + r];
    if (use > lv->tb->budget[r]) {
      return false;
    }
    reach += lv->tb->rate[r] * use;
  }
  if (!(reach <= lv->st->bounds[UPPER])) {
    return false;
  }
  label->reach = reach;
  int64_t *head = &lv->head[ideal * (lv->sz->t + 1) + k];
  int64_t last = -1;
  for (int64_t other = *head; other >= 0;) {
    lv->st->at[WORK]++;
    const int64_t following = lv->labels[other].following;
    if (lv->labels[other].alive) {
      if (dominates(lv, other, new)) {
        return false;
      }
      if (dominates(lv, new, other)) {
        lv->labels[other].alive = 0;
      }
    }
    if (lv->labels[other].alive) {
      last = other;
    } else if (last < 0) {
      *head = following;
    } else {
      lv->labels[last].following = following;
    }
    other = following;
  }
  label->following = *head;
  *head = new;
  label->alive = 1;
  *lv->n_labels = new + 1;
  return true;
}

/* Returns the index of a set in its level; enters a new set and returns -1 - index. */
static int64_t find_ideal(const struct level *lv, const int64_t *bits, int64_t key) {
  const int64_t mask = lv->sz->table - 1, words = lv->sz->words;
  int64_t place = key & mask;
  for (int64_t index; (index = lv->table[place]) >= 0; place = (place + 1) & mask) {
    if (lv->ideals[index].key == key &&
        memcmp(lv->bits + index * words, bits, (size_t)words * sizeof *bits) == 0) {
      return index;
    }
  }
  const int64_t index = (*lv->n_ideals)++;
  lv->table[place] = index;
  memcpy(lv->bits + index * words, bits, (size_t)words * sizeof *bits);
  lv->ideals[index].key = key;
  for (int64_t k = 0; k <= lv->sz->t; k++) {
    lv->head[index * (lv->sz->t + 1) + k] = -1;
  }
  return -1 - index;
}

static bool is_able(const struct np_ideal_tables *tb, const int64_t *bits, int64_t u) {
  for (int64_t p = tb->predecessor_at[u]; p < tb->predecessor_at[u + 1]; p++) {
    if (!has(bits, tb->predecessors[p])) {
      return false;
    }
  }
  return true;
}

/* State of a label with no segment open. */
struct closed {
  double cost;
  int64_t record;
  const double *use;
  double formats;
  const int64_t *as_float, *as_int8;
};

static struct closed closed_of(const struct level *lv, int64_t i, double cost) {
  return (struct closed){
      .cost = cost,
      .record = lv->labels[i].record,
      .use = lv->use + i * lv->sz->budgets,
      .formats = lv->labels[i].formats,
      .as_float = lv->as_float + i * lv->sz->format_words,
      .as_int8 = lv->as_int8 + i * lv->sz->format_words,
  };
}

/* Writes a label with no segment open, behind the others. */
static struct np_label *closed_label(const struct level *lv, int64_t ideal, struct closed own) {
  const int64_t new = *lv->n_labels, r = lv->sz->budgets, words = lv->sz->slot_words;
  struct np_label *label = &lv->labels[new];
  label->ideal = ideal;
  label->target = lv->sz->t;
  label->n_units = 0;
  label->watch = 0;
  label->cost = own.cost;
  label->saved = 0;
  label->formats = own.formats;
  label->record = own.record;
  if (r) {
    memcpy(lv->use + new * r, own.use, (size_t)r * sizeof *own.use);
  }
  const int64_t format_words = lv->sz->format_words;
  if (format_words) {
    const size_t size = (size_t)format_words * sizeof *own.as_float;
    memcpy(lv->as_float + new * format_words, own.as_float, size);
    memcpy(lv->as_int8 + new * format_words, own.as_int8, size);
  }
  memset(lv->present + new * words, 0, (size_t)words * sizeof *lv->present);
  memset(lv->owed + new * words, 0, (size_t)words * sizeof *lv->owed);
  return label;
}

/* Enters the end of a region that was measured as a whole as a label with no segment open. */
static void land(const struct level *lv, int64_t landing) {
  const struct np_ideal_tables *tb = lv->tb;
  const int64_t n = lv->sz->n, t = lv->sz->t;
  const int64_t *bits = lv->st->landing_bits + landing * lv->sz->words;
  int64_t key = 0;
  for (int64_t u = 0; u < n; u++) {
    if (has(bits, u)) {
      key ^= tb->unit_key[u];
    }
  }
  int64_t ideal = find_ideal(lv, bits, key);
  if (ideal < 0) {
    ideal = -1 - ideal;
    double rest = tb->slack[0], *joining = lv->joining + ideal * t;
    for (int64_t k = 0; k < t; k++) {
      joining[k] = tb->switch_begin[k];
    }
    lv->ideals[ideal].ready_begin = *lv->n_ready;
    for (int64_t u = 0; u < n; u++) {
      lv->st->at[WORK]++;
      if (has(bits, u)) {
        for (int64_t k = 0; k < t; k++) {
          joining[k] += tb->switching[u * t + k];
        }
        continue;
      }
      rest += tb->least[u];
      if (is_able(tb, bits, u)) {
        lv->ready[(*lv->n_ready)++] = u;
      }
    }
    lv->ideals[ideal].ready_end = *lv->n_ready;
    lv->ideals[ideal].rest = rest;
    for (int64_t value = 0; value < lv->sz->values; value++) {
      const int64_t slot = tb->slot[value], maker = tb->producer[value];
      if (slot < 0 || (maker >= 0 && !has(bits, maker))) {
        continue;
      }
      for (int64_t e = tb->reader_at[value]; e < tb->reader_at[value + 1]; e++) {
        if (!has(bits, tb->readers[e])) {
          lv->slot_value[ideal * lv->sz->slots + slot] = value;
          break;
        }
      }
    }
  }
  struct np_landing *ended = &lv->st->landings[landing];
  closed_label(lv, ideal,
               (struct closed){
                   .cost = ended->cost,
                   .record = ended->record,
                   .use = lv->st->landing_use + landing * lv->sz->budgets,
                   .formats = ended->formats,
                   .as_float = lv->st->landing_float + landing * lv->sz->format_words,
                   .as_int8 = lv->st->landing_int8 + landing * lv->sz->format_words,
               });
  settle(lv);
  ended->reach = INFINITY; /* no longer under way */
}

/* Ends the segment that a label has open. */
static void close_segment(const struct level *lv, int64_t i) {
  const struct np_ideal_tables *tb = lv->tb;
  const struct np_label *label = &lv->labels[i];
  for (int64_t q = 0; q < lv->sz->watched; q++) {
    /* Exactly this region was measured as a whole, and a separate step has its cost. */
    if (((label->watch >> q) & 1) && tb->watch_size[q] == label->n_units) {
      return;
    }
  }
  double cost = label->cost;
  if (label->n_units == 1) {
    cost += tb->alone_ns[label->unit * lv->sz->t + label->target];
    if (!isfinite(cost)) {
      return;
    }
  }
  for (int64_t word = 0; word < lv->sz->slot_words; word++) {
    const int64_t owed = lv->owed[i * lv->sz->slot_words + word];
    if (!owed) {
      continue;
    }
    const int64_t first = word * WORD, end = min_int(lv->sz->slots, first + WORD);
    for (int64_t slot = first; slot < end; slot++) {
      if (!((owed >> (slot - first)) & 1)) {
        continue;
      }
      const int64_t value = lv->slot_value[label->ideal * lv->sz->slots + slot];
      cost += tb->out_ns[value * lv->sz->t + label->target];
    }
  }
  closed_label(lv, label->ideal, closed_of(lv, i, cost));
  settle(lv);
}

/* Begins a segment on target k after a label with none open. */
static void open_segment(const struct level *lv, int64_t i, int64_t k) {
  const struct np_ideal_tables *tb = lv->tb;
  const struct np_label *label = &lv->labels[i];
  const int64_t r = lv->sz->budgets, *done = lv->bits + label->ideal * lv->sz->words;
  int64_t watch = 0;
  for (int64_t q = 0; q < lv->sz->watched; q++) {
    if (tb->watch_target[q] != k) {
      continue;
    }
    bool is_untouched = true;
    for (int64_t word = 0; word < lv->sz->words && is_untouched; word++) {
      is_untouched = !(tb->watch_bits[q * lv->sz->words + word] & done[word]);
    }
    if (is_untouched) {
      watch |= (int64_t)1 << q;
    }
  }
  struct np_label *begun =
      closed_label(lv, label->ideal, closed_of(lv, i, label->cost + tb->overhead_ns[k]));
  begun->target = k;
  begun->watch = watch;
  for (int64_t b = 0; b < r; b++) {
    lv->use[*lv->n_labels * r + b] += tb->open_use[k * r + b];
  }
  settle(lv);
}

/* Returns the index, in the next level, of an ideal plus unit u. `bits` has room for a set. */
static int64_t child_ideal(const struct level *lv, const struct level *next, int64_t ideal,
                           int64_t u, int64_t *bits) {
  const struct np_ideal_tables *tb = lv->tb;
  const int64_t t = lv->sz->t, slots = lv->sz->slots, words = lv->sz->words;
  memcpy(bits, lv->bits + ideal * words, (size_t)words * sizeof *bits);
  bits[u / WORD] |= (int64_t)1 << (u % WORD);
  int64_t index = find_ideal(next, bits, lv->ideals[ideal].key ^ tb->unit_key[u]);
  if (index >= 0) {
    return index;
  }
  index = -1 - index;
  next->ideals[index].rest = lv->ideals[ideal].rest - tb->least[u];
  for (int64_t k = 0; k < t; k++) {
    next->joining[index * t + k] = lv->joining[ideal * t + k] + tb->switching[u * t + k];
  }
  memcpy(next->slot_value + index * slots, lv->slot_value + ideal * slots,
         (size_t)slots * sizeof *lv->slot_value);
  for (int64_t i = tb->make_at[u]; i < tb->make_at[u + 1]; i++) {
    const int64_t value = tb->makes[i];
    if (tb->slot[value] >= 0) {
      next->slot_value[index * slots + tb->slot[value]] = value;
    }
  }
  int64_t end = *next->n_ready;
  next->ideals[index].ready_begin = end;
  for (int64_t i = lv->ideals[ideal].ready_begin; i < lv->ideals[ideal].ready_end; i++) {
    if (lv->ready[i] != u) {
      next->ready[end++] = lv->ready[i];
    }
  }
  for (int64_t i = tb->successor_at[u]; i < tb->successor_at[u + 1]; i++) {
    if (is_able(tb, bits, tb->successors[i])) {
      next->ready[end++] = tb->successors[i];
    }
  }
  next->ideals[index].ready_end = end;
  *next->n_ready = end;
  return index;
}

/* Runs unit u on the open target of a label, which gives a label of the child ideal. */
static void execute(const struct level *lv, const struct level *next, int64_t i, int64_t u,
                    int64_t child) {
  const struct np_ideal_tables *tb = lv->tb;
  const struct np_label *label = &lv->labels[i];
  const int64_t t = lv->sz->t, k = label->target, words = lv->sz->slot_words;
  const int64_t *done = lv->bits + label->ideal * lv->sz->words;
  const int64_t new = *next->n_labels;
  int64_t *present = next->present + new * words, *owed = next->owed + new * words;
  memcpy(present, lv->present + i * words, (size_t)words * sizeof *present);
  memcpy(owed, lv->owed + i * words, (size_t)words * sizeof *owed);
  double cost = label->cost + tb->unit_ns[u * t + k], saved = label->saved;
  for (int64_t j = tb->read_at[u]; j < tb->read_at[u + 1]; j++) {
    const int64_t e = tb->reads[j], value = tb->reader_value[e], slot = tb->slot[value];
    const int64_t word = slot / WORD, bit = (int64_t)1 << (slot % WORD);
    bool is_read_later = false;
    double others = 0;
    for (int64_t e2 = tb->reader_at[value]; e2 < tb->reader_at[value + 1]; e2++) {
      if (e2 != e && !has(done, tb->readers[e2])) {
        is_read_later = true;
        others += tb->enters[e2 * t + k];
      }
    }
    if (tb->in_ns[value * t + k] > 0) {
      if (present[word] & bit) {
        saved += tb->enters[e * t + k];
        if (!is_read_later) {
          present[word] ^= bit;
        }
      } else {
        cost += tb->in_ns[value * t + k];
        if (is_read_later) {
          present[word] |= bit;
          saved -= others;
        }
      }
    }
    if (owed[word] & bit) {
      saved -= tb->leaves[e * t + k];
      if (!is_read_later) {
        owed[word] ^= bit;
      }
    }
  }
  for (int64_t j = tb->make_at[u]; j < tb->make_at[u + 1]; j++) {
    const int64_t value = tb->makes[j], slot = tb->slot[value];
    if (tb->is_output[value]) {
      cost += tb->out_ns[value * t + k];
    }
    if (slot < 0) {
      continue;
    }
    const int64_t word = slot / WORD, bit = (int64_t)1 << (slot % WORD);
    const bool owes = !tb->is_output[value] && tb->out_ns[value * t + k] > 0;
    const bool enters = tb->in_ns[value * t + k] > 0;
    if (enters) {
      present[word] |= bit;
    }
    if (owes) {
      owed[word] |= bit;
    }
    for (int64_t e = tb->reader_at[value]; e < tb->reader_at[value + 1]; e++) {
      if (enters) {
        saved -= tb->enters[e * t + k];
      }
      if (owes) {
        saved += tb->leaves[e * t + k];
      }
    }
  }
  double formats = label->formats;
  const int64_t format_words = lv->sz->format_words;
  if (format_words) {
    struct np_step step = {
        .tb = tb,
        .before = done,
        .after = next->bits + child * lv->sz->words,
        .as_float = next->as_float + new * format_words,
        .as_int8 = next->as_int8 + new * format_words,
        .cost = cost,
        .formats = formats,
    };
    memcpy(step.as_float, lv->as_float + i * format_words, (size_t)format_words * sizeof *done);
    memcpy(step.as_int8, lv->as_int8 + i * format_words, (size_t)format_words * sizeof *done);
    for (int64_t j = tb->read_at[u]; j < tb->read_at[u + 1]; j++) {
      np_read_in_format(&step, tb->reader_value[tb->reads[j]], k);
    }
    for (int64_t j = tb->make_at[u]; j < tb->make_at[u + 1]; j++) {
      np_make_in_format(&step, tb->makes[j], k);
    }
    cost = step.cost;
    formats = step.formats;
  }
  struct np_label *ran = &next->labels[new];
  ran->ideal = child;
  ran->target = k;
  ran->n_units = label->n_units + 1;
  ran->watch = label->watch & tb->watch_member[u];
  ran->cost = cost;
  ran->saved = saved;
  ran->formats = formats;
  const int64_t r = lv->sz->budgets;
  for (int64_t b = 0; b < r; b++) {
    next->use[new * r + b] = lv->use[i * r + b] + tb->unit_use[(u * t + k) * r + b];
  }
  ran->before = label->record;
  ran->unit = u;
  settle(next);
}

/* Runs a region that was measured as a whole after a label with no segment open. */
static void jump(const struct level *lv, int64_t i, int64_t j) {
  const struct np_ideal_tables *tb = lv->tb;
  struct np_ideal_search *st = lv->st;
  const struct np_label *label = &lv->labels[i];
  const int64_t words = lv->sz->words, r = lv->sz->budgets;
  const int64_t *done = lv->bits + label->ideal * words;
  const int64_t *region = tb->jump_bits + j * words, *needs = tb->jump_needs + j * words;
  for (int64_t word = 0; word < words; word++) {
    if ((region[word] & done[word]) || (needs[word] & ~done[word])) {
      return;
    }
  }
  const int64_t landing = st->at[LANDINGS], k = tb->jump_target[j];
  int64_t *after = st->landing_bits + landing * words;
  for (int64_t word = 0; word < words; word++) {
    after[word] = done[word] | region[word];
  }
  double cost = label->cost + tb->jump_ns[j], formats = label->formats;
  const int64_t format_words = lv->sz->format_words;
  if (format_words) {
    struct np_step step = {
        .tb = tb,
        .before = done,
        .after = after,
        .as_float = st->landing_float + landing * format_words,
        .as_int8 = st->landing_int8 + landing * format_words,
        .cost = cost,
        .formats = formats,
    };
    memcpy(step.as_float, lv->as_float + i * format_words, (size_t)format_words * sizeof *done);
    memcpy(step.as_int8, lv->as_int8 + i * format_words, (size_t)format_words * sizeof *done);
    for (int64_t e = tb->jump_read_at[j]; e < tb->jump_read_at[j + 1]; e++) {
      np_read_in_format(&step, tb->jump_reads[e], k);
    }
    for (int64_t e = tb->jump_make_at[j]; e < tb->jump_make_at[j + 1]; e++) {
      np_make_in_format(&step, tb->jump_makes[e], k);
    }
    cost = step.cost;
    formats = step.formats;
  }
  const double ahead = lv->ideals[label->ideal].rest - tb->jump_least[j] + formats;
  double reach = cost + max(0.0, ahead);
  for (int64_t b = 0; b < r; b++) {
    const double use = lv->use[i * r + b] + tb->jump_use[j * r + b];
    if (use > tb->budget[b]) {
      return;
    }
    reach += tb->rate[b] * use;
    st->landing_use[landing * r + b] = use;
  }
  if (!(reach <= st->bounds[UPPER])) {
    return;
  }
  const int64_t level = st->at[LEVEL] + tb->jump_size[j], record = st->at[RECORDS];
  st->landings[landing] = (struct np_landing){
      .following = st->landing_head[level],
      .cost = cost,
      .formats = formats,
      .reach = reach,
      .record = record,
  };
  st->landing_head[level] = landing;
  st->records[record] = (struct np_record){label->record, -1 - j, k, 1};
  st->at[RECORDS]++;
  st->at[LANDINGS]++;
}

static int ascending(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Keeps the labels with the best bounds, as many as a level may hold; records the best of the
 * others. Returns false if out of memory. */
static bool narrow(const struct level *lv) {
  const int64_t width = lv->st->at[WIDTH], n = *lv->n_labels;
  int64_t count = 0;
  for (int64_t i = 0; i < n; i++) {
    count += lv->labels[i].alive;
  }
  if (count <= width) {
    return true;
  }
  double *reach = malloc((size_t)count * sizeof *reach);
  if (!reach) {
    return false;
  }
  count = 0;
  for (int64_t i = 0; i < n; i++) {
    if (lv->labels[i].alive) {
      reach[count++] = lv->labels[i].reach;
    }
  }
  qsort(reach, (size_t)count, sizeof *reach, ascending);
  const double threshold = reach[width];
  int64_t room = 0; /* for labels at the threshold itself */
  while (room < width && reach[width - 1 - room] == threshold) {
    room++;
  }
  free(reach);
  if (threshold < lv->st->bounds[LEFT_OUT]) {
    lv->st->bounds[LEFT_OUT] = threshold;
  }
  for (int64_t i = 0; i < n; i++) {
    struct np_label *label = &lv->labels[i];
    if (!label->alive || label->reach < threshold) {
      continue;
    }
    if (label->reach > threshold || room == 0) {
      label->alive = 0;
    } else {
      room--;
    }
  }
  return true;
}

static int64_t begin_level(const struct level *lv) {
  struct np_ideal_search *st = lv->st;
  const struct np_ideal_sizes *sz = lv->sz;
  if (st->at[LEVEL] > 0 && !narrow(lv)) {
    return GROW_LABELS;
  }
  int64_t *waiting = &st->landing_head[st->at[LEVEL]];
  while (*waiting >= 0) {
    if (*lv->n_labels + 1 >= sz->most_labels) {
      return GROW_LABELS;
    }
    if (*lv->n_ideals + 1 >= sz->most_ideals) {
      return GROW_IDEALS;
    }
    if (*lv->n_ready + sz->n >= sz->most_ready) {
      return GROW_READY;
    }
    land(lv, *waiting);
    *waiting = st->landings[*waiting].following;
  }
  return DONE;
}

static int64_t close_level(const struct level *lv) {
  struct np_ideal_search *st = lv->st;
  const int64_t count = *lv->n_labels;
  if (2 * count + 1 >= lv->sz->most_labels) {
    return GROW_LABELS;
  }
  if (st->at[RECORDS] + count >= lv->sz->most_records) {
    return GROW_RECORDS;
  }
  for (int64_t i = 0; i < count; i++) {
    struct np_label *label = &lv->labels[i];
    if (label->target == lv->sz->t || !label->alive) {
      continue;
    }
    const int64_t record = st->at[RECORDS]++;
    st->records[record] =
        (struct np_record){label->before, label->unit, label->target, label->n_units == 1};
    label->record = record;
    close_segment(lv, i);
  }
  return DONE;
}

static int64_t open_level(const struct level *lv) {
  const int64_t count = *lv->n_labels, t = lv->sz->t;
  int64_t closed = 0;
  for (int64_t i = 0; i < count; i++) {
    closed += lv->labels[i].target == t && lv->labels[i].alive;
  }
  if (count + closed * t + 1 >= lv->sz->most_labels) {
    return GROW_LABELS;
  }
  for (int64_t i = 0; i < count; i++) {
    if (lv->labels[i].target != t || !lv->labels[i].alive) {
      continue;
    }
    for (int64_t k = 0; k < t; k++) {
      open_segment(lv, i, k);
    }
  }
  return DONE;
}

/* Returns the number of living labels in one list. */
static int64_t alive_of(const struct level *lv, int64_t ideal, int64_t k) {
  int64_t count = 0;
  for (int64_t i = lv->head[ideal * (lv->sz->t + 1) + k]; i >= 0; i = lv->labels[i].following) {
    count += lv->labels[i].alive;
  }
  return count;
}

static int64_t expand_ideal(const struct level *lv, const struct level *next, int64_t ideal,
                            int64_t *bits) {
  const struct np_ideal_sizes *sz = lv->sz;
  const struct np_ideal_tables *tb = lv->tb;
  struct np_ideal_search *st = lv->st;
  const int64_t t = sz->t, *head = lv->head + ideal * (t + 1);
  const int64_t begin = lv->ideals[ideal].ready_begin, end = lv->ideals[ideal].ready_end;
  int64_t count = 0, jumps = 0, room = 0;
  for (int64_t k = 0; k < t; k++) {
    count += alive_of(lv, ideal, k);
  }
  const int64_t closed = alive_of(lv, ideal, t);
  for (int64_t i = begin; i < end; i++) {
    const int64_t u = lv->ready[i];
    if (closed) {
      jumps += tb->jump_at[u + 1] - tb->jump_at[u];
    }
    room += end - begin + tb->successor_at[u + 1] - tb->successor_at[u];
  }
  if (*next->n_labels + count * (end - begin) + 1 >= sz->most_labels) {
    return GROW_LABELS;
  }
  if (*next->n_ideals + (end - begin) >= sz->most_ideals ||
      2 * (*next->n_ideals + (end - begin)) >= sz->table) {
    return GROW_IDEALS;
  }
  if (*next->n_ready + room >= sz->most_ready) {
    return GROW_READY;
  }
  if (st->at[LANDINGS] + jumps * closed >= sz->most_landings) {
    return GROW_JUMPS;
  }
  if (st->at[RECORDS] + jumps * closed >= sz->most_records) {
    return GROW_RECORDS;
  }
  if (jumps) {
    for (int64_t label = head[t]; label >= 0; label = lv->labels[label].following) {
      if (!lv->labels[label].alive) {
        continue;
      }
      for (int64_t i = begin; i < end; i++) {
        const int64_t u = lv->ready[i];
        for (int64_t j = tb->jump_at[u]; j < tb->jump_at[u + 1]; j++) {
          st->at[WORK]++;
          jump(lv, label, j);
        }
      }
    }
  }
  if (!count) {
    return DONE;
  }
  for (int64_t i = begin; i < end; i++) {
    const int64_t u = lv->ready[i];
    int64_t child = -1;
    for (int64_t k = 0; k < t; k++) {
      if (!isfinite(tb->unit_ns[u * t + k])) {
        continue;
      }
      for (int64_t label = head[k]; label >= 0; label = lv->labels[label].following) {
        if (!lv->labels[label].alive) {
          continue;
        }
        st->at[WORK]++;
        if (child < 0) {
          child = child_ideal(lv, next, ideal, u, bits);
        }
        execute(lv, next, label, u, child);
      }
    }
  }
  return DONE;
}

int64_t np_ideals_advance(const struct np_ideal_sizes *sizes, const struct np_ideal_tables *tables,
                          struct np_ideal_search *search, int64_t steps) {
  struct np_ideal_search *st = search;
  const int64_t stop = st->at[WORK] + steps;
  int64_t *bits = malloc((size_t)sizes->words * sizeof *bits);
  int64_t code = bits ? DONE : GROW_LABELS;
  while (code == DONE) {
    const int64_t parity = st->at[LEVEL] & 1;
    const struct level lv = level_of(sizes, tables, st, parity);
    const struct level next = level_of(sizes, tables, st, 1 - parity);
    if (st->at[STAGE] == BEGIN) {
      if ((code = begin_level(&lv)) != DONE) {
        break;
      }
      st->at[STAGE] = CLOSE;
    }
    if (st->at[STAGE] == CLOSE) {
      if ((code = close_level(&lv)) != DONE) {
        break;
      }
      st->at[STAGE] = OPEN;
      if (st->at[LEVEL] == sizes->n) {
        break;
      }
    }
    if (st->at[STAGE] == OPEN) {
      if ((code = open_level(&lv)) != DONE) {
        break;
      }
      *next.n_ideals = *next.n_labels = *next.n_ready = 0;
      for (int64_t i = 0; i < sizes->table; i++) {
        next.table[i] = -1;
      }
      st->at[IDEAL] = 0;
      st->at[STAGE] = EXPAND;
    }
    for (; st->at[IDEAL] < *lv.n_ideals; st->at[IDEAL]++) {
      if (st->at[WORK] >= stop) {
        code = PAUSED;
        break;
      }
      if ((code = expand_ideal(&lv, &next, st->at[IDEAL], bits)) != DONE) {
        break;
      }
    }
    if (code != DONE) {
      break;
    }
    st->at[LEVEL]++;
    st->at[STAGE] = BEGIN;
  }
  free(bits);
  return code;
}

void np_ideals_rehash(const struct np_ideal_sizes *sizes, struct np_ideal_search *search) {
  const int64_t mask = sizes->table - 1;
  for (int64_t parity = 0; parity < 2; parity++) {
    int64_t *table = search->table + parity * sizes->table;
    const struct np_ideal_set *ideals = search->ideals + parity * sizes->most_ideals;
    for (int64_t i = 0; i < sizes->table; i++) {
      table[i] = -1;
    }
    for (int64_t index = 0; index < search->n_ideals[parity]; index++) {
      int64_t place = ideals[index].key & mask;
      while (table[place] >= 0) {
        place = (place + 1) & mask;
      }
      table[place] = index;
    }
  }
}
