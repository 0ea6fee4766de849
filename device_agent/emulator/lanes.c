/* Processors that work at the same time on a simulated phone: PHONES.md, section "Lanes".
 *
 * Each lane is a thread with one run at a time. The clock stops while any lane has no run, since
 * its thread may be about to begin one, unless the lane rests until another lane calls it. Once all
 * lanes have a run or rest, the clock advances to the end of the run that ends first. If several
 * end at the same moment, the run of the first lane ends first, and the others once its thread has
 * a run again or rests. So the simulation depends only on what the lanes run, not on how the host
 * schedules the threads. */
#include <pthread.h>

#include "emulator.h"

enum lane_state { ABSENT, IDLE, RESTING, BUSY, GONE };

struct lane {
  enum lane_state state;
  bool called;      /* called since it last looked for work: it does not rest */
  pthread_t thread; /* valid while it is neither absent nor gone */
  struct np_load load;
  double left; /* BUSY: ns that the run would still take alone */
};

static struct {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  uint32_t n; /* 0: no lanes, any thread advances the clock */
  struct lane lanes[NP_MAX_LANES];
  uint64_t begin_ns; /* time at which the lanes began */
  double elapsed;    /* ns since */
  double driver_ns;
} board = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

int32_t np_lanes_begin(uint32_t n) {
  struct np_device_table *table = np_device_table();
  if (!table->phone || n == 0 || n > NP_MAX_LANES) {
    return -1;
  }
  pthread_mutex_lock(&board.lock);
  const int32_t answer = board.n == 0 ? 0 : -1;
  if (answer == 0) {
    board.n = n;
    for (uint32_t i = 0; i < n; i++) {
      board.lanes[i] = (struct lane){.state = ABSENT};
    }
    board.begin_ns = atomic_load(&table->clock_ns);
    board.elapsed = 0;
  }
  pthread_mutex_unlock(&board.lock);
  return answer;
}

/* Returns the factor by which a run takes longer beside the present others. */
static double slowdown(const struct np_phone *phone, const struct lane *lane) {
  double demand = 0, drivers = 0;
  uint32_t n_busy = 0;
  for (uint32_t i = 0; i < board.n; i++) {
    const struct lane *other = &board.lanes[i];
    if (other->state == BUSY) {
      n_busy++;
      demand += other->load.ns > 0 ? other->load.bytes / other->load.ns : 0;
      drivers += other == lane ? 0 : other->load.driver_share;
    }
  }
  if (n_busy < 2 || lane->load.ns <= 0) {
    return 1;
  }
  const double crowd = phone->memory_bandwidth > 0 && demand > phone->memory_bandwidth
                           ? demand / phone->memory_bandwidth
                           : 1;
  const double memory = 1 + lane->load.memory_ns / lane->load.ns * (crowd - 1);
  const double cores = lane->load.on_cpu ? 1 - (drivers < 0.9 ? drivers : 0.9) : 1;
  const double each = phone->contention > 1 ? phone->contention - 1 : 0;
  return memory / cores * (1 + (n_busy - 1) * each);
}

/* Advances the clock to the next end of a run, if all lanes have one or rest. */
static void advance(void) {
  struct np_device_table *table = np_device_table();
  double factors[NP_MAX_LANES] = {0}, step = -1, heat = 0;
  uint32_t first = 0;
  for (uint32_t i = 0; i < board.n; i++) {
    struct lane *lane = &board.lanes[i];
    if (lane->state == ABSENT || lane->state == IDLE || (lane->state == RESTING && lane->called)) {
      return;
    }
    if (lane->state == BUSY) {
      factors[i] = slowdown(table->phone, lane);
      const double ns = lane->left * factors[i];
      first = step < 0 || ns < step ? i : first;
      step = step < 0 || ns < step ? ns : step;
      heat += lane->load.heat;
    }
  }
  if (step < 0) {
    return;
  }
  board.elapsed += step;
  atomic_store(&table->clock_ns, board.begin_ns + (uint64_t)(board.elapsed + 0.5));
  np_phone_spend(table->phone, (uint64_t)(step + 0.5), heat);
  for (uint32_t i = 0; i < board.n; i++) {
    struct lane *lane = &board.lanes[i];
    if (lane->state != BUSY) {
      continue;
    }
    board.driver_ns += step * lane->load.driver_share;
    lane->left -= step / factors[i];
    lane->left = lane->left > 0 ? lane->left : 0;
  }
  board.lanes[first].state = IDLE;
  pthread_cond_broadcast(&board.changed);
}

void np_lanes_enter(uint32_t index) {
  pthread_mutex_lock(&board.lock);
  if (index < board.n && board.lanes[index].state == ABSENT) {
    board.lanes[index].state = IDLE;
    board.lanes[index].thread = pthread_self();
  }
  pthread_mutex_unlock(&board.lock);
}

int np_lanes_mine(void) {
  int mine = -1;
  pthread_mutex_lock(&board.lock);
  for (uint32_t i = 0; i < board.n; i++) {
    const struct lane *lane = &board.lanes[i];
    if (lane->state != ABSENT && lane->state != GONE &&
        pthread_equal(lane->thread, pthread_self())) {
      mine = (int)i;
    }
  }
  pthread_mutex_unlock(&board.lock);
  return mine;
}

void np_lanes_leave(void) {
  const int mine = np_lanes_mine();
  if (mine < 0) {
    return;
  }
  pthread_mutex_lock(&board.lock);
  board.lanes[mine].state = GONE;
  uint32_t n_left = 0;
  for (uint32_t i = 0; i < board.n; i++) {
    n_left += board.lanes[i].state != GONE;
  }
  if (n_left == 0) {
    board.n = 0;
  } else {
    advance();
  }
  pthread_mutex_unlock(&board.lock);
}

void np_lanes_rest(void) {
  const int mine = np_lanes_mine();
  if (mine >= 0) {
    pthread_mutex_lock(&board.lock);
    board.lanes[mine].state = RESTING;
    advance();
    pthread_mutex_unlock(&board.lock);
  }
}

void np_lanes_look(void) {
  const int mine = np_lanes_mine();
  if (mine >= 0) {
    pthread_mutex_lock(&board.lock);
    board.lanes[mine].state = IDLE;
    board.lanes[mine].called = false;
    pthread_mutex_unlock(&board.lock);
  }
}

void np_lanes_call(uint32_t index) {
  pthread_mutex_lock(&board.lock);
  if (index < board.n) {
    board.lanes[index].called = true;
  }
  pthread_mutex_unlock(&board.lock);
}

uint64_t np_lanes_driver_ns(void) {
  pthread_mutex_lock(&board.lock);
  const double ns = board.driver_ns;
  pthread_mutex_unlock(&board.lock);
  return (uint64_t)(ns + 0.5);
}

double np_clock_spend(int lane, const struct np_load *load) {
  if (lane < 0) {
    const uint64_t whole = (uint64_t)(load->ns + 0.5);
    pthread_mutex_lock(&board.lock);
    np_clock_busy(whole, load->heat);
    board.begin_ns += whole; /* lanes, if any, wait meanwhile */
    board.driver_ns += load->ns * load->driver_share;
    pthread_mutex_unlock(&board.lock);
    return load->ns;
  }
  pthread_mutex_lock(&board.lock);
  struct lane *own = &board.lanes[lane];
  const double begin = board.elapsed;
  own->load = *load;
  own->left = load->ns;
  own->state = BUSY;
  advance();
  while (own->state == BUSY) {
    pthread_cond_wait(&board.changed, &board.lock);
  }
  const double took = board.elapsed - begin;
  pthread_mutex_unlock(&board.lock);
  return took;
}
