/* Declarations that the files of the Java library share: for java/ only. */
#ifndef NP_JNI_H
#define NP_JNI_H

#include <jni.h>
#include <stddef.h>

#include "nnapi_prof_runtime.h"

#define METHOD(type, name) JNIEXPORT type JNICALL Java_dev_nnapiprof_NnapiModel_##name

/* A bundle's bytes, read from a stream. */
typedef struct content {
  unsigned char *bytes;
  size_t n, room;
} content;

typedef struct handle {
  nnp_bundle *bundle;
  nnp_model *model;
  content *content; /* NULL: the bundle is a file */
  JavaVM *vm;
  jobject log; /* receives events of the model, through a method of `type`; NULL: none */
  jclass type; /* the class NnapiModel */
} handle;

/* Converts the value that Java keeps into its handle. */
static inline handle *of(jlong value) { return (handle *)(uintptr_t)value; }

/* Makes a Java array of a text's UTF-8 bytes; NULL with an exception pending if memory is short. */
jbyteArray nnp_jni_bytes(JNIEnv *env, const char *text);

/* Throws an exception for an error; it is pending on return. */
void nnp_jni_fail(JNIEnv *env, const nnp_error *error);

#endif
