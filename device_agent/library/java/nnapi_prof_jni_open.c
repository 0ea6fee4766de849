/* The functions of dev.nnapiprof.NnapiModel that open, close and try models. */
#include "nnapi_prof_jni.h"

#include <stdint.h>
#include <stdlib.h>

/* Copies a text from Java and terminates it; NULL with an exception pending if memory is short. */
static char *text_of(JNIEnv *env, jbyteArray bytes) {
  jsize n = (*env)->GetArrayLength(env, bytes);
  char *text = malloc((size_t)n + 1);
  if (text == NULL) {
    nnp_jni_fail(env, &(nnp_error){NNP_NO_MEMORY, -1, 0, "there is no memory for a path"});
    return NULL;
  }
  (*env)->GetByteArrayRegion(env, bytes, 0, n, (jbyte *)text);
  text[n] = '\0';
  return text;
}

static void discard(content *self) {
  if (self != NULL) {
    free(self->bytes);
    free(self);
  }
}

static void close_all(JNIEnv *env, handle *self) {
  nnp_model_free(self->model);
  nnp_bundle_close(self->bundle);
  discard(self->content);
  if (self->log != NULL) {
    (*env)->DeleteGlobalRef(env, self->log);
    (*env)->DeleteGlobalRef(env, self->type);
  }
  free(self);
}

/* ---- Opening ---- */

METHOD(jlong, nativeCollect)
(JNIEnv *env, jclass type, jlong value, jbyteArray chunk, jint size) {
  (void)type;
  content *self = value != 0 ? (content *)(uintptr_t)value : calloc(1, sizeof *self);
  const size_t wanted = self == NULL ? 0 : self->n + (size_t)size;
  if (self != NULL && wanted > self->room) {
    const size_t room = wanted + wanted / 2;
    unsigned char *bytes = realloc(self->bytes, room);
    if (bytes != NULL) {
      self->bytes = bytes;
      self->room = room;
    }
  }
  if (self == NULL || wanted > self->room) {
    discard(self);
    nnp_jni_fail(env, &(nnp_error){NNP_NO_MEMORY, -1, 0, "there is no memory for a bundle"});
    return 0;
  }
  (*env)->GetByteArrayRegion(env, chunk, 0, size, (jbyte *)(self->bytes + self->n));
  self->n = wanted;
  return (jlong)(uintptr_t)self;
}

METHOD(void, nativeDiscard)(JNIEnv *env, jclass type, jlong value) {
  (void)env, (void)type;
  discard((content *)(uintptr_t)value);
}

/* Passes an event to Java's log, on the thread that calls the library. */
static void tell(void *context, const nnp_event *event) {
  const handle *self = context;
  JNIEnv *env = NULL;
  if ((*self->vm)->GetEnv(self->vm, (void **)&env, JNI_VERSION_1_6) != JNI_OK) {
    return;
  }
  jmethodID method =
      (*env)->GetStaticMethodID(env, self->type, "tell", "(Ldev/nnapiprof/NnapiModel$Log;[B)V");
  jbyteArray message = method == NULL ? NULL : nnp_jni_bytes(env, event->message);
  if (message != NULL) {
    (*env)->CallStaticVoidMethod(env, self->type, method, self->log, message);
  }
  if ((*env)->ExceptionCheck(env)) { /* a failure of the log must not affect the model */
    (*env)->ExceptionDescribe(env);
    (*env)->ExceptionClear(env);
  }
}

typedef struct starter {
  JNIEnv *env;
  jobject object;
} starter;

/* Asks Java for a process for a trial. */
static int start_trial(void *context, const int files[3]) {
  const starter *self = context;
  JNIEnv *env = self->env;
  const jint numbers[3] = {files[0], files[1], files[2]};
  jclass type = (*env)->GetObjectClass(env, self->object);
  jmethodID method = (*env)->GetMethodID(env, type, "start", "([I)Z");
  jintArray array = method == NULL ? NULL : (*env)->NewIntArray(env, 3);
  jboolean is_started = JNI_FALSE;
  if (array != NULL) {
    (*env)->SetIntArrayRegion(env, array, 0, 3, numbers);
    is_started = (*env)->CallBooleanMethod(env, self->object, method, array);
  }
  if ((*env)->ExceptionCheck(env)) { /* there is no trial then */
    (*env)->ExceptionDescribe(env);
    (*env)->ExceptionClear(env);
    return 1;
  }
  return is_started ? 0 : 1;
}

METHOD(void, nativeServe)(JNIEnv *env, jclass type, jintArray files) {
  (void)type;
  jint numbers[3] = {-1, -1, -1};
  nnp_error error;
  (*env)->GetIntArrayRegion(env, files, 0, 3, numbers);
  if (!(*env)->ExceptionCheck(env) &&
      nnp_trial_serve((const int[3]){numbers[0], numbers[1], numbers[2]}, &error) != NNP_OK) {
    nnp_jni_fail(env, &error);
  }
}

enum { LIBRARY, FOLDER, CACHE_FOLDER, HELPER, N_TEXTS };
enum { PLAN, FLAGS, THREADS, CPU_MASK, COMPILE_LIMIT, RUN_LIMIT, PRIORITY, N_NUMBERS };

static nnp_options options_of(JNIEnv *env, jlongArray array, char *const *texts) {
  nnp_options options = nnp_options_default();
  jlong numbers[N_NUMBERS];
  (*env)->GetLongArrayRegion(env, array, 0, N_NUMBERS, numbers);
  if (numbers[PLAN] >= 0) {
    options.plan = (uint32_t)numbers[PLAN];
  }
  options.flags = (uint32_t)numbers[FLAGS];
  options.threads = numbers[THREADS] < 0 ? 0 : (uint32_t)numbers[THREADS];
  options.cpu_mask = (uint64_t)numbers[CPU_MASK];
  options.compile_limit_ns = numbers[COMPILE_LIMIT] < 0 ? 0 : (uint64_t)numbers[COMPILE_LIMIT];
  options.run_limit_ns = numbers[RUN_LIMIT] < 0 ? 0 : (uint64_t)numbers[RUN_LIMIT];
  options.priority = (int32_t)numbers[PRIORITY];
  options.nnapi_library = texts[LIBRARY];
  options.folder = texts[FOLDER];
  options.cache_folder = texts[CACHE_FOLDER];
  options.trial_helper = texts[HELPER];
  return options;
}

static nnp_status open_bundle(JNIEnv *env, handle *self, const char *path, jlongArray part,
                              nnp_error *error) {
  if (path != NULL) {
    return nnp_bundle_open(path, &self->bundle, error);
  }
  if (part != NULL) { /* a descriptor, an offset, a length */
    jlong numbers[3];
    (*env)->GetLongArrayRegion(env, part, 0, 3, numbers);
    return nnp_bundle_open_fd((int)numbers[0], (uint64_t)numbers[1], (uint64_t)numbers[2],
                              &self->bundle, error);
  }
  const size_t n = self->content == NULL ? 0 : self->content->n;
  return nnp_bundle_open_memory(n == 0 ? (const void *)"" : self->content->bytes, n, &self->bundle,
                                error);
}

METHOD(jlong, nativeOpen)
(JNIEnv *env, jclass type, jbyteArray path, jlong bytes, jlongArray part, jobjectArray texts,
 jlongArray numbers, jobject log, jobject trial_starter) {
  nnp_error error = {NNP_NO_MEMORY, -1, 0, "there is no memory for a model"};
  handle *self = calloc(1, sizeof *self);
  if (self == NULL) {
    discard((content *)(uintptr_t)bytes);
    nnp_jni_fail(env, &error);
    return 0;
  }
  self->content = (content *)(uintptr_t)bytes;
  char *path_text = path == NULL ? NULL : text_of(env, path);
  char *copies[N_TEXTS] = {NULL};
  for (jsize i = 0; i < N_TEXTS; i++) {
    jbyteArray text = (*env)->GetObjectArrayElement(env, texts, i);
    copies[i] = text == NULL ? NULL : text_of(env, text);
  }
  starter trial = {env, trial_starter};
  jboolean is_complete = !(*env)->ExceptionCheck(env);
  if (is_complete && open_bundle(env, self, path_text, part, &error) == NNP_OK) {
    nnp_options options = options_of(env, numbers, copies);
    if (log != NULL && (*env)->GetJavaVM(env, &self->vm) == JNI_OK) {
      self->log = (*env)->NewGlobalRef(env, log);
      self->type = (*env)->NewGlobalRef(env, type);
      options.log = tell;
      options.log_context = self;
    }
    if (trial_starter != NULL) {
      options.trial_start = start_trial;
      options.trial_context = &trial;
    }
    nnp_model_compile(self->bundle, &options, &self->model, &error);
  }
  free(path_text);
  for (size_t i = 0; i < N_TEXTS; i++) {
    free(copies[i]);
  }
  if (self->model != NULL) {
    return (jlong)(uintptr_t)self;
  }
  if (is_complete) {
    nnp_jni_fail(env, &error);
  }
  close_all(env, self);
  return 0;
}

METHOD(void, nativeClose)(JNIEnv *env, jclass type, jlong self) {
  (void)type;
  close_all(env, of(self));
}
