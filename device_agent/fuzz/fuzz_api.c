/* libFuzzer over the C API: models, compilations, executions, memories, bursts, events and queries,
 * in an order and with contents chosen by the bytes. Buffers have exactly the sizes passed to the
 * API. */
#define _GNU_SOURCE /* memfd_create */
#include <sys/mman.h>
#include <unistd.h>

#include "api_models.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Sanitizers read their options from here: larger allocations, from inferred shapes, return
 * NULL. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) {
  return "allocator_may_return_null=1:max_allocation_size_mb=32";
}

/* The file: inputs first, then a region for each output, since outputs must not overlap others. */
enum { REGION = MOST_BYTES + 64, FILE_BYTES = (1 + MOST_OPERANDS) * REGION };

/* The buffers of an execution. */
struct run {
  const struct fuzzed *model;
  ANeuralNetworksCompilation *compilation;
  ANeuralNetworksExecution *execution;
  ANeuralNetworksBurst *burst;
  ANeuralNetworksMemory *memory; /* mapped from a file, sometimes used for inputs and outputs */
  ANeuralNetworksMemory *kept;   /* for output 0's role, or NULL */
  uint8_t *inputs[MOST_OPERANDS], *outputs[MOST_OPERANDS];
  size_t room[MOST_OPERANDS]; /* bytes of each output */
};

static void set_inputs(struct run *run, struct bytes *bytes) {
  for (uint32_t i = 0; i < run->model->n_inputs; i++) {
    const struct operand *o = &run->model->operands[run->model->inputs[i]];
    uint32_t dims[NP_MAX_RANK] = {0}, rank = o->rank;
    if (np_type_is_tensor(o->type) && rank == 0) {
      rank = 1 + pick(bytes, 4);
    }
    for (uint32_t d = 0; d < rank; d++) {
      dims[d] = o->dims[d] ? o->dims[d] : 1 + pick(bytes, MOST_DIM);
    }
    const ANeuralNetworksOperandType type = {o->type, rank, rank ? dims : NULL, o->scale,
                                             o->zero_point};
    const size_t n = bytes_of(o, rank, dims);
    const uint32_t how = take(bytes);
    if (how % 32 == 31) {
      (void)ANeuralNetworksExecution_setInput(run->execution, (int32_t)i, NULL, NULL, 0);
    } else if (how % 8 == 7) {
      (void)ANeuralNetworksExecution_setInputFromMemory(run->execution, (int32_t)i, &type,
                                                        run->memory, how / 8, n);
    } else if (n != 0 && (run->inputs[i] = malloc(n)) != NULL) {
      fill(bytes, o->type, run->inputs[i], n);
      (void)ANeuralNetworksExecution_setInput(run->execution, (int32_t)i, &type, run->inputs[i], n);
    }
  }
}

static void set_outputs(struct run *run, struct bytes *bytes) {
  for (uint32_t i = 0; i < run->model->n_outputs; i++) {
    const struct operand *o = &run->model->operands[run->model->outputs[i]];
    const size_t known = bytes_of(o, o->rank, o->dims);
    const size_t n = run->room[i] ? run->room[i] : known ? known : 4 * (size_t)take(bytes);
    const uint32_t how = take(bytes);
    if (i == 0 && run->kept && how % 4 == 0) {
      (void)ANeuralNetworksExecution_setOutputFromMemory(run->execution, 0, NULL, run->kept, 0, 0);
    } else if (how % 16 == 15) {
      (void)ANeuralNetworksExecution_setOutputFromMemory(
          run->execution, (int32_t)i, NULL, run->memory, (1 + i) * REGION + how / 16, n);
    } else if (n == 0 || how % 32 == 14) {
      (void)ANeuralNetworksExecution_setOutput(run->execution, (int32_t)i, NULL, NULL, 0);
    } else if ((run->outputs[i] = malloc(n)) != NULL) {
      (void)ANeuralNetworksExecution_setOutput(run->execution, (int32_t)i, NULL, run->outputs[i],
                                               n);
    }
  }
}

/* Starts an execution in one of the four ways and returns its result. */
static int compute(struct run *run, uint32_t how) {
  ANeuralNetworksEvent *event = NULL, *gate = NULL;
  int code;
  switch (how % 4) {
  case 0:
    return ANeuralNetworksExecution_compute(run->execution);
  case 1:
    return ANeuralNetworksExecution_burstCompute(run->execution, run->burst);
  case 2:
    code = ANeuralNetworksExecution_startCompute(run->execution, &event);
    break;
  default: {
    int ends[2];
    if (pipe(ends) != 0) {
      return ANEURALNETWORKS_OP_FAILED;
    }
    if (how & 4 && write(ends[1], "", 1) != 1) {
      abort();
    }
    (void)close(ends[1]);
    (void)ANeuralNetworksEvent_createFromSyncFenceFd(ends[0], &gate);
    (void)close(ends[0]);
    const ANeuralNetworksEvent *list[] = {gate};
    code = ANeuralNetworksExecution_startComputeWithDependencies(run->execution, list, 1,
                                                                 how & 8 ? 1000000 : 0, &event);
  }
  }
  if (code == ANEURALNETWORKS_NO_ERROR) {
    code = ANeuralNetworksEvent_wait(event);
  }
  ANeuralNetworksEvent_free(event);
  ANeuralNetworksEvent_free(gate);
  return code;
}

/* Queries everything; sets run->room to the bytes that each output needs. */
static void query(struct run *run) {
  uint64_t ns;
  for (int32_t code = 0; code < 4; code++) {
    (void)ANeuralNetworksExecution_getDuration(run->execution, code, &ns);
  }
  for (uint32_t i = 0; i < run->model->n_outputs; i++) {
    const struct operand *o = &run->model->operands[run->model->outputs[i]];
    uint32_t rank = 0, dims[NP_MAX_RANK] = {0};
    const int code =
        ANeuralNetworksExecution_getOutputOperandRank(run->execution, (int32_t)i, &rank);
    if (code != ANEURALNETWORKS_NO_ERROR && code != ANEURALNETWORKS_OUTPUT_INSUFFICIENT_SIZE) {
      continue;
    }
    if (rank > NP_MAX_RANK) {
      abort();
    }
    (void)ANeuralNetworksExecution_getOutputOperandDimensions(run->execution, (int32_t)i, dims);
    run->room[i] = bytes_of(o, rank, dims);
  }
}

/* Makes and runs an execution; returns its result. */
static int execute(struct run *run, struct bytes *bytes) {
  if (ANeuralNetworksExecution_create(run->compilation, &run->execution) != 0) {
    return ANEURALNETWORKS_OUT_OF_MEMORY;
  }
  const uint32_t how = take(bytes);
  (void)ANeuralNetworksExecution_setLoopTimeout(run->execution, 200000);
  (void)ANeuralNetworksExecution_setMeasureTiming(run->execution, how & 128);
  if (how & 64) {
    (void)ANeuralNetworksExecution_setTimeout(run->execution, 1000000);
  }
  set_inputs(run, bytes);
  set_outputs(run, bytes);
  const int code = compute(run, how & 15);
  query(run);
  ANeuralNetworksExecution_free(run->execution);
  for (uint32_t i = 0; i < MOST_OPERANDS; i++) {
    free(run->inputs[i]);
    free(run->outputs[i]);
    run->inputs[i] = run->outputs[i] = NULL;
  }
  return code;
}

static void make_memories(struct run *run) {
  const int fd = memfd_create("fuzz", 0);
  if (fd >= 0 && ftruncate(fd, FILE_BYTES) == 0) {
    (void)ANeuralNetworksMemory_createFromFd(FILE_BYTES, PROT_READ | PROT_WRITE, fd, 0,
                                             &run->memory);
  }
  (void)close(fd);
  ANeuralNetworksMemoryDesc *desc = NULL;
  (void)ANeuralNetworksMemoryDesc_create(&desc);
  (void)ANeuralNetworksMemoryDesc_addOutputRole(desc, run->compilation, 0, 1.0f);
  (void)ANeuralNetworksMemoryDesc_addInputRole(desc, run->compilation, 0, 1.0f);
  (void)ANeuralNetworksMemoryDesc_finish(desc);
  (void)ANeuralNetworksMemory_createFromDesc(desc, &run->kept);
  ANeuralNetworksMemoryDesc_free(desc);
}

/* Compiles a finished model for one of the devices, or any, and runs it a few times. */
static void use(const struct fuzzed *model, struct bytes *bytes) {
  struct run run = {.model = model};
  uint32_t n_devices = 0;
  ANeuralNetworksDevice *device = NULL;
  const uint32_t how = take(bytes);
  (void)ANeuralNetworks_getDeviceCount(&n_devices);
  if (n_devices == 0 || ANeuralNetworks_getDevice(how % n_devices, &device) != 0) {
    abort();
  }
  const ANeuralNetworksDevice *list[] = {device};
  bool supported[MOST_OPERANDS];
  if (ANeuralNetworksModel_getSupportedOperationsForDevices(model->model, list, 1, supported) !=
      0) {
    abort();
  }
  if (how & 64) {
    (void)ANeuralNetworksCompilation_create(model->model, &run.compilation);
  } else {
    (void)ANeuralNetworksCompilation_createForDevices(model->model, list, 1, &run.compilation);
  }
  (void)ANeuralNetworksCompilation_setPreference(run.compilation, (int32_t)pick(bytes, 4));
  if (ANeuralNetworksCompilation_finish(run.compilation) == ANEURALNETWORKS_NO_ERROR) {
    make_memories(&run);
    (void)ANeuralNetworksBurst_create(run.compilation, &run.burst);
    for (uint32_t n = 1 + pick(bytes, 3); n > 0; n--) {
      if (execute(&run, bytes) == ANEURALNETWORKS_OUTPUT_INSUFFICIENT_SIZE) {
        (void)execute(&run, bytes); /* with the room that the first one needed */
      }
    }
    if (run.kept && run.memory) {
      (void)ANeuralNetworksMemory_copy(run.kept, run.memory);
    }
    ANeuralNetworksBurst_free(run.burst);
    ANeuralNetworksMemory_free(run.memory);
    ANeuralNetworksMemory_free(run.kept);
  }
  ANeuralNetworksCompilation_free(run.compilation);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static uint8_t pool[MOST_BYTES]; /* values that models refer to */
  static struct fuzzed models[MOST_MODELS];
  struct bytes bytes = {data, data + size};
  uint32_t n = 0;
  /* Finished models come first, so that later ones can refer to them. */
  for (uint32_t wanted = 1 + pick(&bytes, MOST_MODELS); wanted > 0; wanted--) {
    build(&models[n], &bytes, models, n, pool);
    if (models[n].finished) {
      n++;
    } else {
      ANeuralNetworksModel_free(models[n].model);
    }
  }
  if (n > 0) {
    use(&models[n - 1], &bytes);
  }
  while (n > 0) {
    ANeuralNetworksModel_free(models[--n].model);
  }
  return 0;
}
