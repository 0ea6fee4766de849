/* Walks over a bundle's sections: only for the files that read sections. */
#ifndef NP_BUNDLE_SECTIONS_H
#define NP_BUNDLE_SECTIONS_H

#include "bundle.h"
#include "container.h"
#include "cursor.h"

/* Opens a list and reads its count; each item takes at least `least` words. An absent section is an
 * empty list. NP_BAD_REQUEST, naming the section. */
enum np_status np_bundle_list(const struct np_container *container, const char *tag, uint32_t least,
                              struct np_cursor *cursor, uint32_t *n, struct np_message *why);

/* Opens a section and reads the version that it begins with; cursor->words is NULL if there is no
 * such section. NP_BAD_REQUEST if the version is unknown, or the length is not a multiple of
 * words. */
enum np_status np_bundle_section(const struct np_container *container, const char *tag,
                                 struct np_cursor *cursor, struct np_message *why);

/* Reads the number of items that follow, each of at least `least` words. */
enum np_status np_bundle_count(struct np_cursor *cursor, const char *tag, uint32_t least,
                               uint32_t *n, struct np_message *why);

/* Checks that the list ends where its section does. */
enum np_status np_bundle_list_end(const struct np_cursor *cursor, const char *tag,
                                  struct np_message *why);

/* Reads STRS as C strings, which the caller frees, even after a failure. */
enum np_status np_bundle_read_strings(const struct np_container *container, uint32_t *n_strings,
                                      char ***strings, struct np_message *why);

/* Returns the string with an index; NULL for an index that names none. */
const char *np_bundle_string(const struct np_bundle *bundle, uint32_t index);

/* Read PLAN, and INPT and OUTP. Everything they refer to must have been read. */
enum np_status np_bundle_read_plans(const struct np_container *container, struct np_bundle *bundle,
                                    struct np_message *why);
enum np_status np_bundle_read_ends(const struct np_container *container, struct np_bundle *bundle,
                                   struct np_message *why);

/* Reads OVLP, if present; the plans must have been read. */
enum np_status np_bundle_read_overlaps(const struct np_container *container,
                                       struct np_bundle *bundle, struct np_message *why);

/* Reads MIXT, if present; the plans must have been read. */
enum np_status np_bundle_read_mixture(const struct np_container *container,
                                      struct np_bundle *bundle, struct np_message *why);

/* Reads PHON, if present; the plans must have been read. */
enum np_status np_bundle_read_phones(const struct np_container *container, struct np_bundle *bundle,
                                     struct np_message *why);

/* Reads COND, if present. */
enum np_status np_bundle_read_conditions(const struct np_container *container,
                                         struct np_bundle *bundle, struct np_message *why);

/* Reads UNIT, if present; the plans must have been read. */
enum np_status np_bundle_read_units(const struct np_container *container, struct np_bundle *bundle,
                                    struct np_message *why);

/* Checks that each plan writes all outputs and no input, and each tensor once, before it is
 * read. */
enum np_status np_bundle_check_flow(const struct np_bundle *bundle, struct np_message *why);

#endif
