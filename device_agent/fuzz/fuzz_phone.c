/* libFuzzer over the emulator's descriptions of phones: JSON parser, fields, rules. */
#include <stdlib.h>

#include "../emulator/phone.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct np_phone *phone = NULL;
  struct np_message why = {""};
  const enum np_status status = np_phone_parse((const char *)data, size, &phone, &why);
  if ((status == NP_OK) != (phone != NULL) || (status != NP_OK && why.text[0] == 0))
    abort(); /* a refusal without its sentence */
  np_phone_free(phone);
  return 0;
}
