/* Bundles for several phones: their section, and the rule that recognises the phone at hand. */
#define _POSIX_C_SOURCE 200809L

#include "phones.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bundle_sections.h"
#include "nnapi.h"

#define NAME_WORDS 2u         /* name, plan */
#define MOST_ACCELERATORS 32u /* the agent's limit */
#define MOST_NAME 8192u       /* each accelerator has up to 127 bytes, and a level */

/* Reads PTHR, if present: as many numbers as there are names. */
static enum np_status read_threads(const struct np_container *container, struct np_bundle *bundle,
                                   struct np_message *why) {
  struct np_cursor cursor;
  NP_TRY(np_bundle_section(container, "PTHR", &cursor, why));
  if (!cursor.words) {
    return NP_OK;
  }
  uint32_t n;
  NP_TRY(np_bundle_count(&cursor, "PTHR", 1, &n, why));
  NP_REQUIRE(n == bundle->n_names && n == np_cursor_left(&cursor), NP_BAD_REQUEST, why,
             "PTHR: %u numbers for %u names", n, bundle->n_names);
  for (uint32_t i = 0; i < n; i++) {
    bundle->names[i].threads = np_take_u32(&cursor);
  }
  return NP_OK;
}

enum np_status np_bundle_read_phones(const struct np_container *container, struct np_bundle *bundle,
                                     struct np_message *why) {
  struct np_cursor cursor;
  NP_TRY(np_bundle_section(container, "PHON", &cursor, why));
  if (!cursor.words) {
    return NP_OK;
  }
  bundle->others = np_take_u32(&cursor);
  uint32_t n;
  NP_TRY(np_bundle_count(&cursor, "PHON", NAME_WORDS, &n, why));
  NP_REQUIRE(bundle->others < bundle->n_plans, NP_BAD_REQUEST, why,
             "PHON: all others run plan %u of %u", bundle->others, bundle->n_plans);
  bundle->names = calloc(n + (size_t)1, sizeof *bundle->names);
  NP_REQUIRE(bundle->names, NP_NO_MEMORY, why, "no memory for the bundle");
  bundle->is_for_phones = 1;
  bundle->n_names = n;
  for (uint32_t i = 0; i < n; i++) {
    struct np_bundle_name *name = &bundle->names[i];
    name->name = np_bundle_string(bundle, np_take_u32(&cursor));
    name->plan = np_take_u32(&cursor);
    NP_REQUIRE(name->name && name->plan < bundle->n_plans, NP_BAD_REQUEST, why,
               "PHON: item %u has no name, or is of plan %u of %u", i, name->plan, bundle->n_plans);
  }
  NP_TRY(np_bundle_list_end(&cursor, "PHON", why));
  return read_threads(container, bundle, why);
}

/* ---- Android's properties ---- */

typedef void property_callback(void *text, const char *name, const char *value, uint32_t serial);
typedef const void *property_find(const char *name);
typedef void property_read(const void *property, property_callback *callback, void *text);

/* Android's functions, from API 26 on; both NULL elsewhere. */
struct properties {
  property_find *find;
  property_read *read;
};

static struct properties open_properties(void *handle) {
  struct properties properties = {NULL, NULL};
  if (handle) {
    void *find = dlsym(handle, "__system_property_find");
    void *read = dlsym(handle, "__system_property_read_callback");
    if (find && read) {
      memcpy(&properties.find, &find, sizeof find);
      memcpy(&properties.read, &read, sizeof read);
    }
  }
  return properties;
}

static void copy_property(void *text, const char *name, const char *value, uint32_t serial) {
  (void)name;
  (void)serial;
  if (snprintf(text, NP_PROPERTY_BYTES, "%s", value) >= (int)NP_PROPERTY_BYTES) {
    *(char *)text = 0; /* half of it would be a wrong name */
  }
}

/* Reads a property, "" if it is unknown. */
static void read_property(const struct properties *properties, const char *name,
                          char text[NP_PROPERTY_BYTES]) {
  text[0] = 0;
  const void *property = properties->find ? properties->find(name) : NULL;
  if (property) {
    properties->read(property, copy_property, text);
  }
}

static void read_names(char build[NP_PROPERTY_BYTES], char soc[NP_PROPERTY_BYTES]) {
  void *self = dlopen(NULL, RTLD_NOW);
  const struct properties properties = open_properties(self);
  read_property(&properties, "ro.build.fingerprint", build);
  read_property(&properties, "ro.soc.model", soc);
  if (soc[0] == 0) {
    read_property(&properties, "ro.board.platform", soc);
  }
  if (self) {
    (void)dlclose(self);
  }
}

void np_phones_read_build(char build[NP_PROPERTY_BYTES]) {
  char soc[NP_PROPERTY_BYTES];
  read_names(build, soc);
}

/* ---- The rule ---- */

static int by_name(const void *one, const void *other) {
  return strcmp(((const struct np_accelerator *)one)->name,
                ((const struct np_accelerator *)other)->name);
}

/* Lists the accelerators sorted by name; returns how many there are, 0 if NNAPI cannot be asked. */
static uint32_t list_accelerators(const char *library, struct np_accelerator *accelerators) {
  struct np_nnapi *nnapi = NULL;
  struct np_message why = {""};
  uint32_t n = 0;
  if (np_nnapi_open(library, &nnapi, &why) != NP_OK) {
    return 0;
  }
  const enum np_status status =
      np_nnapi_accelerators(nnapi, accelerators, MOST_ACCELERATORS, &n, &why);
  np_nnapi_close(nnapi);
  n = status != NP_OK ? 0 : n < MOST_ACCELERATORS ? n : MOST_ACCELERATORS;
  qsort(accelerators, n, sizeof *accelerators, by_name);
  return n;
}

/* Makes the name "nnapi:NAME/LEVEL,NAME/LEVEL"; "" if there are no accelerators. */
static void name_accelerators(const struct np_accelerator *accelerators, uint32_t n,
                              char text[MOST_NAME]) {
  size_t length = 0;
  text[0] = 0;
  for (uint32_t i = 0; i < n; i++) {
    const int more =
        snprintf(text + length, MOST_NAME - length, "%s%s/%" PRId64, i == 0 ? "nnapi:" : ",",
                 accelerators[i].name, accelerators[i].feature_level);
    if (more < 0 || (size_t)more >= MOST_NAME - length) {
      text[0] = 0;
      return;
    }
    length += (size_t)more;
  }
}

static int has_accelerators(const struct np_bundle_plan *plan,
                            const struct np_accelerator *accelerators, uint32_t n) {
  for (uint32_t s = 0; s < plan->n_segments; s++) {
    const char *name = plan->segments[s].accelerator;
    int there = !name;
    for (uint32_t i = 0; i < n && !there; i++) {
      there = strcmp(name, accelerators[i].name) == 0;
    }
    if (!there) {
      return 0;
    }
  }
  return 1;
}

/* Finds the entry with this kind and name; NULL if there is none. */
static const struct np_bundle_name *find_name(const struct np_bundle *bundle, const char *kind,
                                              const char *name) {
  const size_t n = strlen(kind);
  for (uint32_t i = 0; name && name[0] != 0 && i < bundle->n_names; i++) {
    const char *key = bundle->names[i].name;
    if (strncmp(key, kind, n) == 0 && strcmp(key + n, name) == 0) {
      return &bundle->names[i];
    }
  }
  return NULL;
}

uint32_t np_phones_select(const struct np_bundle *bundle, const nnp_phone *phone,
                          const char *nnapi_library, uint32_t *threads) {
  uint32_t unasked = 0;
  uint32_t *const found = threads ? threads : &unasked;
  char build[NP_PROPERTY_BYTES] = "";
  char soc[NP_PROPERTY_BYTES] = "";
  char nnapi[MOST_NAME];
  struct np_accelerator accelerators[MOST_ACCELERATORS];
  const uint32_t n = list_accelerators(nnapi_library, accelerators);
  name_accelerators(accelerators, n, nnapi);
  if (!phone) {
    read_names(build, soc);
  }
  const struct np_bundle_name *names[] = {
      find_name(bundle, "build:", phone ? phone->build : build),
      find_name(bundle, "soc:", phone ? phone->soc : soc),
      find_name(bundle, "", nnapi),
  };
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (names[i] && has_accelerators(&bundle->plans[names[i]->plan], accelerators, n)) {
      *found = names[i]->threads;
      return names[i]->plan;
    }
  }
  *found = 0;
  return bundle->others;
}
