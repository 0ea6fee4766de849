/* SHA-256 against the examples of FIPS 180 and NIST's CAVP; CRC-32 against its check value. */
#include "crc32.h"
#include "np_test.h"
#include "sha256.h"

static void check_sha256(const void *bytes, size_t n, const char *wanted) {
  uint8_t digest[NP_SHA256_BYTES];
  char hex[2 * NP_SHA256_BYTES + 1];
  np_sha256(bytes, n, digest);
  np_sha256_hex(digest, hex);
  CHECK_TEXT(hex, wanted);
}

int main(void) {
  check_sha256("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  check_sha256("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  const char *two_blocks = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
  check_sha256(two_blocks, strlen(two_blocks),
               "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  char *million = malloc(1000000);
  if (CHECK(million != NULL)) {
    memset(million, 'a', 1000000);
    check_sha256(million, 1000000,
                 "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  }
  free(million);

  /* The processor's own instructions agree with the portable code. */
  np_sha256_blocks *native = np_sha256_native();
  if (native) {
    uint8_t blocks[64 * 9];
    uint32_t ours[8], theirs[8];
    uint64_t seed_of_blocks = 7;
    for (size_t i = 0; i < sizeof blocks; i++) {
      blocks[i] = (uint8_t)np_test_random(&seed_of_blocks);
    }
    for (size_t i = 0; i < 8; i++) {
      ours[i] = theirs[i] = (uint32_t)np_test_random(&seed_of_blocks);
    }
    native(ours, blocks, 9);
    np_sha256_portable(theirs, blocks, 9);
    CHECK(memcmp(ours, theirs, sizeof ours) == 0);
  }

  /* In pieces, at every length around the ends of blocks. */
  uint8_t bytes[200], whole[NP_SHA256_BYTES], pieces[NP_SHA256_BYTES];
  uint64_t seed = 5;
  for (size_t i = 0; i < sizeof bytes; i++) {
    bytes[i] = (uint8_t)np_test_random(&seed);
  }
  for (size_t n = 0; n <= sizeof bytes; n++) {
    struct np_sha256 hash;
    np_sha256(bytes, n, whole);
    np_sha256_begin(&hash);
    for (size_t at = 0; at < n;) {
      const size_t piece = np_test_between(&seed, 0, (uint32_t)(n - at));
      np_sha256_add(&hash, bytes + at, piece);
      at += piece;
    }
    np_sha256_end(&hash, pieces);
    CHECK(memcmp(whole, pieces, sizeof whole) == 0);
  }

  CHECK(np_crc32(0, "", 0) == 0);
  CHECK(np_crc32(0, "123456789", 9) == 0xcbf43926u);
  CHECK(np_crc32(np_crc32(0, "1234", 4), "56789", 5) == 0xcbf43926u);
  return np_test_exit();
}
