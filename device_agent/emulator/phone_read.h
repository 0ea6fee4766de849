/* Readers of the parts of a phone's description; all return 1, or 0 with field->why set. */
#ifndef NP_PHONE_READ_H
#define NP_PHONE_READ_H

#include "field.h"
#include "phone.h"

/* Rules for constants, by unit. */
extern const struct np_constant_rule np_rule_rate;         /* GMAC/s are MAC/ns */
extern const struct np_constant_rule np_rule_bandwidth;    /* GB/s are bytes/ns */
extern const struct np_constant_rule np_rule_microseconds; /* scale 1e3 */
extern const struct np_constant_rule np_rule_milliseconds; /* scale 1e6 */
extern const struct np_constant_rule np_rule_factor;
extern const struct np_constant_rule np_rule_fraction;
extern const struct np_constant_rule np_rule_degrees;

/* Reads member `name` as a constant times `scale`. */
int np_read_scaled(const struct np_field *field, const char *name,
                   const struct np_constant_rule *rule, double scale, double *number);

/* Reads an optional member in the same way; *number does not change if it is missing. */
int np_read_optional(const struct np_field *field, const char *name,
                     const struct np_constant_rule *rule, double scale, double *number);

/* Copies the text of member `name` to *kept, which belongs to the phone. */
int np_read_text(const struct np_field *field, const char *name, char **kept);

/* Reads member `name`, the name of an NNAPI operation, as its code. */
int np_read_code(const struct np_field *field, const char *name, int32_t *code);

/* Reads an object of constants by kind of data, with "default". */
int np_read_by_data(const struct np_field *parent, const char *name,
                    const struct np_constant_rule *rule, struct np_by_data *numbers);

/* Reads "peak", "bandwidth", "operation_overhead", "heat" and "efficiency" of the CPU or an
 * accelerator. */
int np_read_unit(const struct np_field *parent, struct np_unit_model *unit);

/* Returns the index of the kind of data called name[length], -1 for none. */
int np_data_named(const char *name, size_t length);

/* Reads an accelerator with all its members. */
int np_read_accelerator(const struct np_field *field, struct np_phone *phone,
                        struct np_accelerator *a);

/* Reads member "operations" of an accelerator. */
int np_read_operations(const struct np_field *parent, struct np_accelerator *a);

/* Reads optional member "fusion" of an accelerator. */
int np_read_fusion(const struct np_field *parent, struct np_accelerator *a);

/* Reads optional member "faults" of an accelerator. */
int np_read_faults(const struct np_field *parent, struct np_phone *phone,
                   const struct np_accelerator *a);

/* Reads optional member "service" of an accelerator. */
int np_read_service(const struct np_field *parent, struct np_accelerator *a);
/* Reads optional member "errors" of an accelerator. */
int np_read_errors(const struct np_field *parent, struct np_accelerator *a);

/* Reads optional member "thermal" of a phone. */
int np_read_thermal(const struct np_field *root, struct np_phone *phone);

/* Reads optional member "governor" of the CPU. */
int np_read_governor(const struct np_field *cpu, struct np_phone *phone);

/* Ends what np_phone_keep_body began. */
void np_phone_forget_body(struct np_phone *phone);

#endif
