#define _GNU_SOURCE /* flock, F_GETFL */
#include "service.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "emulator.h"
#include "hash.h"

#define MAX_CLIENTS 64u
#define POLL_NS 5000000
#define FOR_EVER UINT64_MAX

struct client {
  int32_t pid; /* 0: the entry is free */
  uint32_t compilations;
};

struct loaded {
  uint64_t compilation; /* 0: none */
  uint32_t slow_runs;   /* slow runs left */
};

/* The state of a service; times are the host's wall clock in ns. All zero: it is running. */
struct state {
  uint32_t deaths;
  uint32_t n_compiled; /* compilations in its life */
  uint64_t used_ns;    /* when a compilation was last added or removed */
  int32_t runner;      /* process whose run it executes, 0: none */
  uint64_t back_ns;    /* dead until then */
  uint64_t moves_ns;   /* hangs until then */
  uint64_t free_ns;    /* busy with a killed client's run until then */
  struct client clients[MAX_CLIENTS];
  struct loaded loaded[NP_MAX_LOADED]; /* the most recently used first */
};

struct shared {
  struct state services[NP_MAX_ACCELERATORS];
  uint64_t strikes[NP_MAX_FAULTS];
};

static struct shared *shared; /* NULL: the phone has no services */
static int lock_fd = -1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t now_ns(void) {
  struct timespec now = {0, 0};
  (void)clock_gettime(CLOCK_REALTIME, &now);
  return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static uint64_t from_now(double ns) { return now_ns() + (uint64_t)ns; }

static void take(void) {
  pthread_mutex_lock(&lock);
  while (flock(lock_fd, LOCK_EX) != 0 && errno == EINTR) {
  }
}

static void give(void) {
  (void)flock(lock_fd, LOCK_UN);
  pthread_mutex_unlock(&lock);
}

static void pause_briefly(void) {
  const struct timespec pause = {.tv_sec = 0, .tv_nsec = POLL_NS};
  (void)nanosleep(&pause, NULL);
}

static bool has_services(const struct np_phone *phone) {
  for (uint32_t i = 0; i < phone->n_accelerators; i++) {
    if (phone->accelerators[i].service.described) {
      return true;
    }
  }
  for (uint32_t i = 0; i < phone->n_faults; i++) {
    const enum np_fault_kind kind = phone->faults[i].kind;
    if (kind == NP_FAULT_DIE || kind == NP_FAULT_STOP || phone->faults[i].times != 0 ||
        phone->faults[i].company) {
      return true;
    }
  }
  return false;
}

enum np_status np_services_open(const struct np_phone *phone, const char *path,
                                struct np_message *why) {
  char own[256];
  if (!has_services(phone)) {
    return NP_OK;
  }
  if (!path) {
    const char *folder = getenv("TMPDIR");
    snprintf(own, sizeof own, "%s/nnapi-emulator-%lu-%s",
             folder && folder[0] != '\0' ? folder : "/tmp", (unsigned long)getuid(),
             phone->identity);
    path = own;
  }
  void *memory = MAP_FAILED;
  lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (lock_fd >= 0 && ftruncate(lock_fd, sizeof *shared) == 0) {
    memory = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, lock_fd, 0);
  }
  if (memory == MAP_FAILED) {
    np_message_set(why, "%s: %s", path, strerror(errno));
    return NP_IO;
  }
  shared = memory;
  return NP_OK;
}

const char *np_service_version(const struct np_phone *phone, uint32_t accelerator) {
  const struct np_accelerator *a = &phone->accelerators[accelerator];
  if (!shared || !a->service.becomes || shared->services[accelerator].deaths == 0) {
    return a->version;
  }
  return strcmp(a->service.becomes, "gone") == 0 ? NULL : a->service.becomes;
}

/* Returns the state of an accelerator's service, NULL for the CPU. */
static struct state *state_of(const struct np_accelerator *accelerator) {
  const struct np_phone *phone = np_device_table()->phone;
  for (uint32_t i = 0; shared && i < phone->n_accelerators; i++) {
    if (&phone->accelerators[i] == accelerator) {
      return &shared->services[i];
    }
  }
  return NULL;
}

static bool hangs(const struct state *state) { return now_ns() < state->moves_ns; }
static bool is_dead(const struct state *state) { return now_ns() < state->back_ns; }

static void await(const struct state *state, bool alive) {
  while (hangs(state) || (alive && is_dead(state))) {
    pause_briefly();
  }
}

void np_services_await(void) {
  const struct np_phone *phone = np_device_table()->phone;
  for (uint32_t i = 0; shared && phone && i < phone->n_accelerators; i++) {
    await(&shared->services[i], true);
  }
}

const char *np_services_stopped(void) {
  const struct np_phone *phone = np_device_table()->phone;
  for (uint32_t i = 0; shared && phone && i < phone->n_accelerators; i++) {
    if (hangs(&shared->services[i])) {
      return phone->accelerators[i].name;
    }
  }
  return NULL;
}

static bool lives(int32_t pid) { return pid > 0 && (kill(pid, 0) == 0 || errno == EPERM); }

/* Returns the entry of a process, or a free one; frees those of dead processes. */
static struct client *client_of(struct state *state, int32_t pid, uint32_t *total) {
  struct client *found = NULL;
  *total = 0;
  for (uint32_t i = 0; i < MAX_CLIENTS; i++) {
    struct client *client = &state->clients[i];
    if (client->pid != pid && !lives(client->pid)) {
      *client = (struct client){0, 0};
    }
    *total += client->compilations;
    if (client->pid == pid || (!found && client->pid == 0)) {
      found = client;
    }
  }
  return found;
}

/* Converts results that exist only from API 30 on to OP_FAILED below that. */
static int code_of(const struct np_accelerator *accelerator, int code) {
  return accelerator->feature_level >= ANEURALNETWORKS_FEATURE_LEVEL_4 ? code
                                                                       : ANEURALNETWORKS_OP_FAILED;
}

static int dead(const struct np_accelerator *accelerator, const char *function) {
  return np_refuse(code_of(accelerator, ANEURALNETWORKS_DEAD_OBJECT), function,
                   "the service of %s died", accelerator->name);
}

/* Returns whether a service is worn out. One that holds no compilations and rested long enough
 * starts a new life; the caller has the lock. */
static bool is_worn(const struct np_accelerator *a, struct state *state, uint32_t held) {
  const struct np_service *service = &a->service;
  const bool worn = service->wears != 0 && state->n_compiled >= service->wears;
  if (worn && held == 0 && service->rests > 0 &&
      now_ns() >= state->used_ns + (uint64_t)service->rests) {
    state->n_compiled = 0;
    return false;
  }
  return worn;
}

bool np_service_refuses(const struct np_accelerator *accelerator) {
  struct state *state = state_of(accelerator);
  uint32_t total;
  if (!state || !accelerator || !accelerator->service.wears_refuses) {
    return false;
  }
  take();
  (void)client_of(state, (int32_t)getpid(), &total);
  const bool refuses = is_worn(accelerator, state, total);
  give();
  return refuses;
}

/* Adds a step's compilation to its service; the caller has the lock. */
static int enter(ANeuralNetworksCompilation *compilation, uint32_t step, struct state *state) {
  const struct np_accelerator *a = compilation->simulation.steps[step].accelerator;
  uint32_t total;
  struct client *client = client_of(state, (int32_t)getpid(), &total);
  if (is_dead(state)) {
    return dead(a, __func__);
  }
  if (!client || (a->service.compilations != 0 && total >= a->service.compilations)) {
    return np_refuse(code_of(a, ANEURALNETWORKS_RESOURCE_EXHAUSTED_TRANSIENT), __func__,
                     "the service of %s holds %u compilations", a->name, total);
  }
  if (is_worn(a, state, total)) {
    return np_refuse(code_of(a, ANEURALNETWORKS_RESOURCE_EXHAUSTED_PERSISTENT), __func__,
                     "the service of %s is worn out", a->name);
  }
  client->pid = (int32_t)getpid();
  client->compilations++;
  state->n_compiled++;
  state->used_ns = now_ns();
  return ANEURALNETWORKS_NO_ERROR;
}

int np_service_compile(ANeuralNetworksCompilation *compilation) {
  struct np_simulation *s = &compilation->simulation;
  uint64_t deaths = 0;
  for (uint32_t i = 0; i < s->n_steps; i++) {
    struct state *state = state_of(s->steps[i].accelerator);
    if (!state) {
      continue;
    }
    await(state, false);
    take();
    const int code = enter(compilation, i, state);
    deaths += state->deaths;
    give();
    if (code != ANEURALNETWORKS_NO_ERROR) {
      return code;
    }
    s->n_entered = i + 1;
  }
  s->deaths = deaths;
  return ANEURALNETWORKS_NO_ERROR;
}

void np_service_release(ANeuralNetworksCompilation *compilation) {
  struct np_simulation *s = &compilation->simulation;
  for (uint32_t i = 0; i < s->n_entered; i++) {
    struct state *state = state_of(s->steps[i].accelerator);
    uint32_t total;
    if (!state) {
      continue;
    }
    take();
    struct client *client = client_of(state, (int32_t)getpid(), &total);
    if (client && client->compilations > 0) {
      client->compilations--;
    }
    state->used_ns = now_ns();
    give();
  }
  s->n_entered = 0;
}

/* Returns the extra ns of a run whose model is not loaded; the caller has the lock. */
static double load(struct state *state, const struct np_service *service, uint64_t key) {
  struct loaded now = {key, service->load_runs};
  uint32_t at = 0;
  while (at < service->loaded && state->loaded[at].compilation != key) {
    at++;
  }
  if (at < service->loaded) {
    now = state->loaded[at];
  } else {
    at = service->loaded - 1;
  }
  memmove(&state->loaded[1], &state->loaded[0], at * sizeof *state->loaded);
  const bool slow = now.slow_runs > 0;
  now.slow_runs -= slow;
  state->loaded[0] = now;
  return slow ? service->load : 0;
}

static uint64_t key_of(const ANeuralNetworksCompilation *compilation) {
  const uint64_t hash = np_hash_u64(NP_HASH_START, (uint64_t)getpid());
  return np_hash_u64(hash, (uint64_t)(uintptr_t)compilation) | 1;
}

int np_service_begin(const ANeuralNetworksExecution *execution, double *factor, double *load_ns) {
  const ANeuralNetworksCompilation *compilation = execution->compilation;
  const struct np_simulation *s = &compilation->simulation;
  uint64_t deaths = 0;
  *factor = 1;
  *load_ns = 0;
  for (uint32_t i = 0; shared && i < s->n_steps; i++) {
    const struct np_accelerator *a = s->steps[i].accelerator;
    struct state *state = state_of(a);
    if (!state) {
      continue;
    }
    await(state, false);
    take();
    deaths += state->deaths;
    if (state->runner != 0 && !lives(state->runner)) {
      state->free_ns = from_now(a->service.lingers);
    }
    state->runner = (int32_t)getpid();
    *factor = now_ns() < state->free_ns ? a->service.lingers_factor : *factor;
    *load_ns += a->service.loaded != 0 ? load(state, &a->service, key_of(compilation)) : 0;
    give();
    if ((execution->memory_kinds & ~a->service.memory) != 0) {
      return NP_REFUSE(OP_FAILED, "the service of %s may not map this memory", a->name);
    }
    if (is_dead(state)) {
      return dead(a, __func__);
    }
  }
  return deaths == s->deaths || s->n_steps == 0 ? ANEURALNETWORKS_NO_ERROR
                                                : dead(s->steps->accelerator, __func__);
}

void np_service_end(const ANeuralNetworksExecution *execution) {
  const struct np_simulation *s = &execution->compilation->simulation;
  for (uint32_t i = 0; shared && i < s->n_steps; i++) {
    struct state *state = state_of(s->steps[i].accelerator);
    if (state) {
      take();
      state->runner = 0;
      give();
    }
  }
}

/* Whether services of other accelerators hold compilations; the caller has the lock. */
static bool has_company(const struct np_accelerator *a) {
  const struct np_phone *phone = np_device_table()->phone;
  uint32_t held = 0;
  for (uint32_t i = 0; i < phone->n_accelerators; i++) {
    uint32_t total = 0;
    if (&phone->accelerators[i] != a) {
      (void)client_of(&shared->services[i], (int32_t)getpid(), &total);
    }
    held += total;
  }
  return held != 0;
}

bool np_service_strikes(const struct np_fault *fault) {
  if ((fault->times == 0 && !fault->company) || !shared) {
    return true;
  }
  take();
  uint64_t *strikes = &shared->strikes[fault - np_device_table()->phone->faults];
  const bool now = (fault->times == 0 || *strikes < fault->times) &&
                   (!fault->company || has_company(fault->accelerator));
  *strikes += now;
  give();
  return now;
}

/* Returns the accelerator of a compilation that a fault affects. */
static const struct np_accelerator *struck(const ANeuralNetworksCompilation *compilation,
                                           const struct np_fault *fault) {
  const struct np_simulation *s = &compilation->simulation;
  for (uint32_t i = 0; i < s->n_steps && !fault->accelerator; i++) {
    if (s->steps[i].accelerator->type != ANEURALNETWORKS_DEVICE_CPU) {
      return s->steps[i].accelerator;
    }
  }
  return fault->accelerator;
}

int np_service_die(const ANeuralNetworksCompilation *compilation, const struct np_fault *fault) {
  const struct np_accelerator *a = struck(compilation, fault);
  struct state *state = a ? state_of(a) : NULL;
  if (!state) {
    return NP_REFUSE(OP_FAILED, "an injected fault fails");
  }
  take();
  state->deaths++;
  state->n_compiled = 0;
  state->back_ns = from_now(a->service.returns);
  memset(state->clients, 0, sizeof state->clients);
  memset(state->loaded, 0, sizeof state->loaded);
  state->runner = 0;
  give();
  return dead(a, __func__);
}

int np_service_stop(const ANeuralNetworksCompilation *compilation, const struct np_fault *fault) {
  const struct np_accelerator *a = struck(compilation, fault);
  struct state *state = a ? state_of(a) : NULL;
  if (!state) {
    return NP_REFUSE(OP_FAILED, "an injected fault fails");
  }
  take();
  state->moves_ns = a->service.stops > 0 ? from_now(a->service.stops) : FOR_EVER;
  give();
  await(state, false);
  return ANEURALNETWORKS_NO_ERROR;
}

uint32_t np_memory_kind_of(int fd) {
  char link[64], name[64] = "";
  struct stat file;
  if (fstat(fd, &file) == 0 && S_ISCHR(file.st_mode)) {
    return NP_MEMORY_ASHMEM;
  }
  (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t n = readlink(link, name, sizeof name - 1);
  name[n > 0 ? n : 0] = '\0';
  return strncmp(name, "/memfd:", 7) == 0 ? NP_MEMORY_MEMFD : NP_MEMORY_FILE;
}
