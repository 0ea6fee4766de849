/* ANeuralNetworksEvent_*: promises of a result, and signals of file descriptors. */
#define _GNU_SOURCE /* F_DUPFD_CLOEXEC */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "emulator.h"

/* Makes an event without a fence, NULL if memory is short. */
static ANeuralNetworksEvent *new_event(int owners) {
  ANeuralNetworksEvent *event = calloc(1, sizeof *event);
  if (!event) {
    return NULL;
  }
  if (pthread_mutex_init(&event->lock, NULL) != 0) {
    free(event);
    return NULL;
  }
  if (pthread_cond_init(&event->changed, NULL) != 0) {
    pthread_mutex_destroy(&event->lock);
    free(event);
    return NULL;
  }
  event->fence = event->signal = -1;
  atomic_init(&event->owners, owners);
  return event;
}

ANeuralNetworksEvent *np_event_new(int owners, bool fenced) {
  ANeuralNetworksEvent *event = new_event(owners);
  int ends[2];
  if (event && fenced && pipe2(ends, O_CLOEXEC) == 0) {
    event->fence = ends[0];
    event->signal = ends[1];
  }
  return event;
}

static void close_signal(ANeuralNetworksEvent *event) {
  if (event->signal >= 0) {
    close(event->signal);
  }
  event->signal = -1;
}

void np_event_signal(ANeuralNetworksEvent *event, int result) {
  pthread_mutex_lock(&event->lock);
  /* An empty pipe has room for one byte: this neither blocks nor fails. */
  if (event->signal >= 0 && result == ANEURALNETWORKS_NO_ERROR) {
    (void)!write(event->signal, "", 1);
  }
  close_signal(event);
  event->done = true;
  event->result = result;
  pthread_cond_broadcast(&event->changed);
  pthread_mutex_unlock(&event->lock);
}

/* Waits until a descriptor is readable, as a signalled sync fence is. */
static int wait_fence(int fence) {
  struct pollfd descriptor = {fence, POLLIN, 0};
  int n;
  do {
    n = poll(&descriptor, 1, -1);
  } while (n < 0 && (errno == EINTR || errno == EAGAIN));
  return n == 1 && (descriptor.revents & POLLIN) ? ANEURALNETWORKS_NO_ERROR
                                                 : ANEURALNETWORKS_OP_FAILED;
}

int np_event_wait(ANeuralNetworksEvent *event) {
  if (event->foreign) {
    return wait_fence(event->fence);
  }
  pthread_mutex_lock(&event->lock);
  while (!event->done) {
    pthread_cond_wait(&event->changed, &event->lock);
  }
  const int result = event->result;
  pthread_mutex_unlock(&event->lock);
  return result;
}

void np_event_release(ANeuralNetworksEvent *event) {
  if (atomic_fetch_sub(&event->owners, 1) != 1) {
    return;
  }
  if (event->fence >= 0) {
    close(event->fence);
  }
  close_signal(event);
  pthread_cond_destroy(&event->changed);
  pthread_mutex_destroy(&event->lock);
  free(event);
}

int ANeuralNetworksEvent_wait(ANeuralNetworksEvent *event) {
  if (!event) {
    return NP_REFUSE(UNEXPECTED_NULL, "event is NULL");
  }
  return np_event_wait(event);
}

/* Waits for an execution that is still running, as Android does. */
void ANeuralNetworksEvent_free(ANeuralNetworksEvent *event) {
  if (!event) {
    return;
  }
  if (!event->foreign) {
    (void)np_event_wait(event);
  }
  np_event_release(event);
}

/* Duplicates the descriptor; emulator.h says which ones work. BAD_DATA for one that is not open
 * and, as on Android, for 0. */
int ANeuralNetworksEvent_createFromSyncFenceFd(int sync_fence_fd, ANeuralNetworksEvent **event) {
  if (!event) {
    return NP_REFUSE(UNEXPECTED_NULL, "event is NULL");
  }
  *event = NULL;
  if (sync_fence_fd <= 0) {
    return NP_REFUSE(BAD_DATA, "descriptor %d", sync_fence_fd);
  }
  const int own = fcntl(sync_fence_fd, F_DUPFD_CLOEXEC, 0);
  if (own < 0) {
    return NP_REFUSE(BAD_DATA, "descriptor %d is not open", sync_fence_fd);
  }
  ANeuralNetworksEvent *made = new_event(1);
  if (!made) {
    close(own);
    return NP_REFUSE(OUT_OF_MEMORY, "no memory");
  }
  made->foreign = true;
  made->fence = own;
  *event = made;
  return ANEURALNETWORKS_NO_ERROR;
}

/* Returns a duplicate of the descriptor, which the caller closes. BAD_DATA and -1 for an event
 * without one: that of startCompute. */
int ANeuralNetworksEvent_getSyncFenceFd(const ANeuralNetworksEvent *event, int *sync_fence_fd) {
  if (sync_fence_fd) {
    *sync_fence_fd = -1;
  }
  if (!event || !sync_fence_fd) {
    return NP_REFUSE(UNEXPECTED_NULL, "event or result is NULL");
  }
  if (event->fence < 0) {
    return NP_REFUSE(BAD_DATA, "the event has no sync fence");
  }
  *sync_fence_fd = fcntl(event->fence, F_DUPFD_CLOEXEC, 0);
  return *sync_fence_fd >= 0 ? ANEURALNETWORKS_NO_ERROR
                             : NP_REFUSE(BAD_DATA, "the descriptor cannot be duplicated");
}
