/* Walks over a bundle's sections: for the files that read sections only. */
#ifndef NP_BUNDLE_SECTIONS_H
#define NP_BUNDLE_SECTIONS_H

#include "bundle.h"
#include "container.h"
#include "cursor.h"

/* Opens a list: reads its count, each item of which takes at least `least` words. An absent section
 * is an empty list. NP_BAD_REQUEST with the section named. */
enum np_status np_bundle_list(const struct np_container *container, const char *tag, uint32_t least,
                              struct np_cursor *cursor, uint32_t *n, struct np_message *why);

/* Opens a section that begins with a version, and reads that; cursor->words is NULL where there is
 * no such section. NP_BAD_REQUEST where it is another version, or no whole words. */
enum np_status np_bundle_section(const struct np_container *container, const char *tag,
                                 struct np_cursor *cursor, struct np_message *why);

/* Reads how many items follow, each of at least `least` words. */
enum np_status np_bundle_count(struct np_cursor *cursor, const char *tag, uint32_t least,
                               uint32_t *n, struct np_message *why);

/* Whether the list ends where its section does. */
enum np_status np_bundle_list_end(const struct np_cursor *cursor, const char *tag,
                                  struct np_message *why);

/* Reads STRS as C strings, which are the caller's to free, also after a failure. */
enum np_status np_bundle_read_strings(const struct np_container *container, uint32_t *n_strings,
                                      char ***strings, struct np_message *why);

/* The text of a string index; NULL where there is none. */
const char *np_bundle_string(const struct np_bundle *bundle, uint32_t index);

/* Reads PLAN, INPT and OUTP; everything they refer to has been read. */
enum np_status np_bundle_read_plans(const struct np_container *container, struct np_bundle *bundle,
                                    struct np_message *why);
enum np_status np_bundle_read_ends(const struct np_container *container, struct np_bundle *bundle,
                                   struct np_message *why);

/* Reads OVLP, where there is one; the plans have been read. */
enum np_status np_bundle_read_overlaps(const struct np_container *container,
                                       struct np_bundle *bundle, struct np_message *why);

/* Reads MIXT, where there is one; the plans have been read. */
enum np_status np_bundle_read_mixture(const struct np_container *container,
                                      struct np_bundle *bundle, struct np_message *why);

/* Reads PHON, where there is one; the plans have been read. */
enum np_status np_bundle_read_phones(const struct np_container *container, struct np_bundle *bundle,
                                     struct np_message *why);

/* Reads COND, where there is one. */
enum np_status np_bundle_read_conditions(const struct np_container *container,
                                         struct np_bundle *bundle, struct np_message *why);

/* Reads UNIT, where there is one; the plans have been read. */
enum np_status np_bundle_read_units(const struct np_container *container, struct np_bundle *bundle,
                                    struct np_message *why);

/* Whether each plan writes the outputs and no input, and every tensor once, before it is read. */
enum np_status np_bundle_check_flow(const struct np_bundle *bundle, struct np_message *why);

#endif
