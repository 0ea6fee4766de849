/* What dev.nnapiprof.NnapiModel calls: the runtime library for Java and Kotlin.
 *
 * Texts travel as bytes of UTF-8, for JNI's own strings are another encoding. NnapiModel is the
 * only caller: it lets in one thread at a time, and no handle after close. */
#define _POSIX_C_SOURCE 200809L /* posix_memalign */
#include "nnapi_prof_runtime.h"

#include <jni.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 64u
#define METHOD(type, name) JNIEXPORT type JNICALL Java_dev_nnapiprof_NnapiModel_##name

typedef struct handle {
  nnp_bundle *bundle;
  nnp_model *model;
  void *content; /* of a bundle that came as bytes, else NULL */
} handle;

static handle *of(jlong value) { return (handle *)(uintptr_t)value; }

static jbyteArray bytes_of(JNIEnv *env, const char *text) {
  jsize n = (jsize)strlen(text);
  jbyteArray bytes = (*env)->NewByteArray(env, n);
  if (bytes != NULL) {
    (*env)->SetByteArrayRegion(env, bytes, 0, n, (const jbyte *)text);
  }
  return bytes;
}

/* Leaves an exception pending. */
static void fail(JNIEnv *env, const nnp_error *error) {
  jclass type = (*env)->FindClass(env, "dev/nnapiprof/NnapiModel$Failure");
  if (type == NULL) {
    return;
  }
  jmethodID constructor = (*env)->GetMethodID(env, type, "<init>", "([BIII)V");
  jbyteArray message = constructor == NULL ? NULL : bytes_of(env, error->message);
  if (message == NULL) {
    return;
  }
  jobject failure = (*env)->NewObject(env, type, constructor, message, (jint)error->status,
                                      (jint)error->segment, (jint)error->nnapi_code);
  if (failure != NULL) {
    (*env)->Throw(env, failure);
  }
}

/* A text from Java, which ends in a zero; NULL with an exception where there is no memory. */
static char *text_of(JNIEnv *env, jbyteArray bytes) {
  jsize n = (*env)->GetArrayLength(env, bytes);
  char *text = malloc((size_t)n + 1);
  if (text == NULL) {
    fail(env, &(nnp_error){NNP_NO_MEMORY, -1, 0, "there is no memory for a path"});
    return NULL;
  }
  (*env)->GetByteArrayRegion(env, bytes, 0, n, (jbyte *)text);
  text[n] = '\0';
  return text;
}

static void close_all(handle *self) {
  nnp_model_free(self->model);
  nnp_bundle_close(self->bundle);
  free(self->content);
  free(self);
}

static nnp_status open_bundle(JNIEnv *env, handle *self, const char *path, jbyteArray content,
                              jint size, nnp_error *error) {
  if (path != NULL) {
    return nnp_bundle_open(path, &self->bundle, error);
  }
  size_t room = ((size_t)size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  if (posix_memalign(&self->content, ALIGNMENT, room == 0 ? ALIGNMENT : room) != 0) {
    self->content = NULL;
    *error = (nnp_error){NNP_NO_MEMORY, -1, 0, ""};
    snprintf(error->message, sizeof error->message, "there is no memory for a bundle of %d bytes",
             (int)size);
    return NNP_NO_MEMORY;
  }
  (*env)->GetByteArrayRegion(env, content, 0, size, self->content);
  return nnp_bundle_open_memory(self->content, (size_t)size, &self->bundle, error);
}

METHOD(jlong, nativeOpen)
(JNIEnv *env, jclass type, jbyteArray path, jbyteArray content, jint size, jint plan, jint threads,
 jboolean cpu_fallback, jbyteArray nnapi_library) {
  (void)type;
  nnp_error error = {NNP_NO_MEMORY, -1, 0, "there is no memory for a model"};
  handle *self = calloc(1, sizeof *self);
  if (self == NULL) {
    fail(env, &error);
    return 0;
  }
  char *path_text = path == NULL ? NULL : text_of(env, path);
  char *library = nnapi_library == NULL ? NULL : text_of(env, nnapi_library);
  jboolean is_complete = !(*env)->ExceptionCheck(env);
  if (is_complete && open_bundle(env, self, path_text, content, size, &error) == NNP_OK) {
    nnp_options options = nnp_options_default();
    if (plan >= 0) {
      options.plan = (uint32_t)plan;
    }
    options.threads = threads < 0 ? 0 : (uint32_t)threads;
    options.nnapi_library = library;
    if (!cpu_fallback) {
      options.flags &= ~(uint32_t)NNP_CPU_FALLBACK;
    }
    nnp_model_compile(self->bundle, &options, &self->model, &error);
  }
  free(path_text);
  free(library);
  if (self->model != NULL) {
    return (jlong)(uintptr_t)self;
  }
  if (is_complete) {
    fail(env, &error);
  }
  close_all(self);
  return 0;
}

METHOD(void, nativeClose)(JNIEnv *env, jclass type, jlong self) {
  (void)env, (void)type;
  close_all(of(self));
}

METHOD(jint, nativeTensors)(JNIEnv *env, jclass type, jlong self, jboolean of_outputs) {
  (void)env, (void)type;
  const nnp_bundle *bundle = of(self)->bundle;
  return (jint)(of_outputs ? nnp_bundle_n_outputs(bundle) : nnp_bundle_n_inputs(bundle));
}

/* NULL with an exception where there is none of this index. */
static const nnp_tensor *tensor_of(JNIEnv *env, jlong self, jboolean of_outputs, jint index) {
  const nnp_bundle *bundle = of(self)->bundle;
  const nnp_tensor *tensor = index < 0    ? NULL
                             : of_outputs ? nnp_bundle_output(bundle, (uint32_t)index)
                                          : nnp_bundle_input(bundle, (uint32_t)index);
  if (tensor == NULL) {
    nnp_error error = {NNP_BAD_ARGUMENT, -1, 0, ""};
    snprintf(error.message, sizeof error.message, "the model has no %s %d",
             of_outputs ? "output" : "input", (int)index);
    fail(env, &error);
  }
  return tensor;
}

METHOD(jbyteArray, nativeName)
(JNIEnv *env, jclass type, jlong self, jboolean of_outputs, jint index) {
  (void)type;
  const nnp_tensor *tensor = tensor_of(env, self, of_outputs, index);
  return tensor == NULL ? NULL : bytes_of(env, tensor->name);
}

METHOD(jfloat, nativeScale)
(JNIEnv *env, jclass type, jlong self, jboolean of_outputs, jint index) {
  (void)type;
  const nnp_tensor *tensor = tensor_of(env, self, of_outputs, index);
  return tensor == NULL ? 0 : tensor->scale;
}

/* Type, zero point, rank, then dims and dim order. */
METHOD(jintArray, nativeFacts)
(JNIEnv *env, jclass type, jlong self, jboolean of_outputs, jint index) {
  (void)type;
  const nnp_tensor *tensor = tensor_of(env, self, of_outputs, index);
  if (tensor == NULL) {
    return NULL;
  }
  jint facts[3 + 2 * NNP_MAX_RANK] = {tensor->type, tensor->zero_point, (jint)tensor->rank};
  for (uint32_t i = 0; i < tensor->rank; i++) {
    facts[3 + i] = (jint)tensor->dims[i];
    facts[3 + tensor->rank + i] = (jint)tensor->dim_order[i];
  }
  jsize n = (jsize)(3 + 2 * tensor->rank);
  jintArray array = (*env)->NewIntArray(env, n);
  if (array != NULL) {
    (*env)->SetIntArrayRegion(env, array, 0, n, facts);
  }
  return array;
}

METHOD(jobject, nativeBuffer)
(JNIEnv *env, jclass type, jlong self, jboolean of_outputs, jint index) {
  (void)type;
  const nnp_tensor *tensor = tensor_of(env, self, of_outputs, index);
  if (tensor == NULL) {
    return NULL;
  }
  void *address;
  if (of_outputs) {
    const void *output = nnp_model_output(of(self)->model, (uint32_t)index);
    memcpy(&address, &output, sizeof address); /* Java knows no buffer that is only read */
  } else {
    address = nnp_model_input(of(self)->model, (uint32_t)index);
  }
  return (*env)->NewDirectByteBuffer(env, address, (jlong)tensor->n_bytes);
}

METHOD(void, nativeRun)(JNIEnv *env, jclass type, jlong self) {
  (void)type;
  nnp_error error;
  if (nnp_model_run(of(self)->model, NULL, NULL, &error) != NNP_OK) {
    fail(env, &error);
  }
}

METHOD(jlong, nativeLastNs)(JNIEnv *env, jclass type, jlong self) {
  (void)env, (void)type;
  uint64_t ns = nnp_model_last_ns(of(self)->model);
  return ns == NNP_UNKNOWN_NS ? -1 : (jlong)ns;
}

METHOD(jint, nativeSegments)(JNIEnv *env, jclass type, jlong self) {
  (void)env, (void)type;
  return (jint)nnp_model_n_segments(of(self)->model);
}

METHOD(jbyteArray, nativeSegment)(JNIEnv *env, jclass type, jlong self, jint index) {
  (void)type;
  nnp_segment segment;
  if (index < 0 || nnp_model_segment(of(self)->model, (uint32_t)index, &segment) != NNP_OK) {
    fail(env, &(nnp_error){NNP_BAD_ARGUMENT, -1, 0, "the model has no such segment"});
    return NULL;
  }
  char line[1024];
  int n = snprintf(line, sizeof line, "%s%s%s, compiled in %.1f ms", segment.engine,
                   segment.accelerator == NULL ? "" : " ",
                   segment.accelerator == NULL ? "" : segment.accelerator,
                   (double)segment.compile_ns / 1e6);
  if (segment.fell_back && n > 0 && (size_t)n < sizeof line) {
    snprintf(line + n, sizeof line - (size_t)n, "; on the CPU because %s", segment.why);
  }
  return bytes_of(env, line);
}
