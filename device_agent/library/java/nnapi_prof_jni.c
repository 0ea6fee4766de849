/* The functions of dev.nnapiprof.NnapiModel for an open model: the runtime library for Java and
 * Kotlin.
 *
 * Texts are passed as UTF-8 bytes, since JNI's own strings use another encoding. NnapiModel is the
 * only caller: it lets in one thread at a time, and passes no handle after close. */
#include "nnapi_prof_jni.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

jbyteArray nnp_jni_bytes(JNIEnv *env, const char *text) {
  jsize n = (jsize)strlen(text);
  jbyteArray bytes = (*env)->NewByteArray(env, n);
  if (bytes != NULL) {
    (*env)->SetByteArrayRegion(env, bytes, 0, n, (const jbyte *)text);
  }
  return bytes;
}

void nnp_jni_fail(JNIEnv *env, const nnp_error *error) {
  jclass type = (*env)->FindClass(env, "dev/nnapiprof/NnapiModel$Failure");
  if (type == NULL) {
    return;
  }
  jmethodID constructor = (*env)->GetMethodID(env, type, "<init>", "([BIII)V");
  jbyteArray message = constructor == NULL ? NULL : nnp_jni_bytes(env, error->message);
  if (message == NULL) {
    return;
  }
  jobject failure = (*env)->NewObject(env, type, constructor, message, (jint)error->status,
                                      (jint)error->segment, (jint)error->nnapi_code);
  if (failure != NULL) {
    (*env)->Throw(env, failure);
  }
}

METHOD(jint, nativeTensors)(JNIEnv *env, jclass type, jlong self, jboolean of_outputs) {
  (void)env, (void)type;
  const nnp_bundle *bundle = of(self)->bundle;
  return (jint)(of_outputs ? nnp_bundle_n_outputs(bundle) : nnp_bundle_n_inputs(bundle));
}

/* Returns the tensor with an index; NULL with an exception pending if there is none. */
static const nnp_tensor *tensor_of(JNIEnv *env, jlong self, jboolean of_outputs, jint index) {
  const nnp_bundle *bundle = of(self)->bundle;
  const nnp_tensor *tensor = index < 0    ? NULL
                             : of_outputs ? nnp_bundle_output(bundle, (uint32_t)index)
                                          : nnp_bundle_input(bundle, (uint32_t)index);
  if (tensor == NULL) {
    nnp_error error = {NNP_BAD_ARGUMENT, -1, 0, ""};
    snprintf(error.message, sizeof error.message, "the model has no %s %d",
             of_outputs ? "output" : "input", (int)index);
    nnp_jni_fail(env, &error);
  }
  return tensor;
}

METHOD(jbyteArray, nativeName)
(JNIEnv *env, jclass type, jlong self, jboolean of_outputs, jint index) {
  (void)type;
  const nnp_tensor *tensor = tensor_of(env, self, of_outputs, index);
  return tensor == NULL ? NULL : nnp_jni_bytes(env, tensor->name);
}

METHOD(jfloat, nativeScale)
(JNIEnv *env, jclass type, jlong self, jboolean of_outputs, jint index) {
  (void)type;
  const nnp_tensor *tensor = tensor_of(env, self, of_outputs, index);
  return tensor == NULL ? 0 : tensor->scale;
}

/* Returns type, zero point, rank, then dims and dim order. */
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
    memcpy(&address, &output, sizeof address); /* Java has no read-only buffer here */
  } else {
    address = nnp_model_input(of(self)->model, (uint32_t)index);
  }
  return (*env)->NewDirectByteBuffer(env, address, (jlong)tensor->n_bytes);
}

METHOD(void, nativeRun)(JNIEnv *env, jclass type, jlong self) {
  (void)type;
  nnp_error error;
  if (nnp_model_run(of(self)->model, NULL, NULL, &error) != NNP_OK) {
    nnp_jni_fail(env, &error);
  }
}

METHOD(void, nativeCheck)(JNIEnv *env, jclass type, jlong self) {
  (void)type;
  nnp_error error;
  if (nnp_bundle_check(of(self)->bundle, &error) != NNP_OK) {
    nnp_jni_fail(env, &error);
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
    nnp_jni_fail(env, &(nnp_error){NNP_BAD_ARGUMENT, -1, 0, "the model has no such segment"});
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
  return nnp_jni_bytes(env, line);
}

/* ---- Placement of segments ---- */

METHOD(jobjectArray, nativeUnits)(JNIEnv *env, jclass type, jlong self) {
  (void)type;
  const nnp_model *model = of(self)->model;
  const uint32_t n = nnp_model_describe(model, NULL, 0);
  nnp_unit *units = calloc((size_t)n + 1, sizeof *units);
  jclass unit_type = units == NULL ? NULL : (*env)->FindClass(env, "dev/nnapiprof/NnapiUnit");
  jmethodID constructor =
      unit_type == NULL ? NULL : (*env)->GetMethodID(env, unit_type, "<init>", "([BI[BD[B)V");
  jobjectArray array =
      constructor == NULL ? NULL : (*env)->NewObjectArray(env, (jsize)n, unit_type, NULL);
  if (array == NULL) {
    if (!(*env)->ExceptionCheck(env)) {
      nnp_jni_fail(env, &(nnp_error){NNP_NO_MEMORY, -1, 0, "there is no memory for a description"});
    }
    free(units);
    return NULL;
  }
  (void)nnp_model_describe(model, units, n);
  for (uint32_t i = 0; i < n && !(*env)->ExceptionCheck(env); i++) {
    const nnp_unit *unit = &units[i];
    jbyteArray name = nnp_jni_bytes(env, unit->name);
    jbyteArray device = nnp_jni_bytes(env, unit->accelerator ? unit->accelerator : unit->engine);
    jbyteArray why = unit->fell_back ? nnp_jni_bytes(env, unit->why) : NULL;
    jobject object = (*env)->ExceptionCheck(env)
                         ? NULL
                         : (*env)->NewObject(env, unit_type, constructor, name, (jint)unit->segment,
                                             device, unit->share, why);
    if (object != NULL) {
      (*env)->SetObjectArrayElement(env, array, (jsize)i, object);
    }
    (*env)->DeleteLocalRef(env, name);
    (*env)->DeleteLocalRef(env, device);
    (*env)->DeleteLocalRef(env, why);
    (*env)->DeleteLocalRef(env, object);
  }
  free(units);
  return array;
}

METHOD(jbyteArray, nativeLine)(JNIEnv *env, jclass type, jlong self) {
  (void)type;
  const size_t n = nnp_model_describe_line(of(self)->model, NULL, 0);
  char *line = malloc(n + 1);
  if (line == NULL) {
    nnp_jni_fail(env, &(nnp_error){NNP_NO_MEMORY, -1, 0, "there is no memory for a line"});
    return NULL;
  }
  (void)nnp_model_describe_line(of(self)->model, line, n + 1);
  jbyteArray bytes = nnp_jni_bytes(env, line);
  free(line);
  return bytes;
}
