/* What the files of the Java library share: for java/ only. */
#ifndef NP_JNI_H
#define NP_JNI_H

#include <jni.h>
#include <stddef.h>

#include "nnapi_prof_runtime.h"

#define METHOD(type, name) JNIEXPORT type JNICALL Java_dev_nnapiprof_NnapiModel_##name

/* A bundle's bytes that came as a stream. */
typedef struct content {
  unsigned char *bytes;
  size_t n, room;
} content;

typedef struct handle {
  nnp_bundle *bundle;
  nnp_model *model;
  content *content; /* NULL: the bundle is a file's */
  JavaVM *vm;
  jobject log; /* NULL: none; else what calls of the model tell, by a method of ... */
  jclass type; /* ... NnapiModel */
} handle;

/* The value that Java keeps. */
static inline handle *of(jlong value) { return (handle *)(uintptr_t)value; }

/* A text for Java as bytes of UTF-8; NULL with an exception where there is no memory. */
jbyteArray nnp_jni_bytes(JNIEnv *env, const char *text);

/* Leaves an exception pending. */
void nnp_jni_fail(JNIEnv *env, const nnp_error *error);

#endif
