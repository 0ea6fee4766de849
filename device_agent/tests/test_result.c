/* JSON Lines: escaping, nulls, and the layout of a result. */
#define _POSIX_C_SOURCE 200809L

#include <unistd.h>

#include "np_test.h"
#include "request.h"
#include "result.h"

/* The output of an answer, read from a pipe and terminated. */
struct caught {
  int ends[2];
  char text[4096];
};

static struct np_answers catch_answers(struct caught *caught) {
  caught->ends[0] = caught->ends[1] = -1;
  CHECK(pipe(caught->ends) == 0);
  return np_answers_to(caught->ends[1]);
}

static const char *release(struct caught *caught, struct np_answers *answers) {
  (void)close(caught->ends[1]);
  const ssize_t n = read(caught->ends[0], caught->text, sizeof caught->text - 1);
  caught->text[n > 0 ? n : 0] = 0;
  (void)close(caught->ends[0]);
  np_answers_free(answers);
  return caught->text;
}

static void check_text(const char *message, const char *wanted) {
  struct caught caught;
  struct np_answers answers = catch_answers(&caught);
  CHECK(np_answer_error(&answers, message) == NP_OK);
  CHECK(strcmp(release(&caught, &answers), wanted) == 0);
}

static void check_result(void) {
  const uint64_t samples[2] = {11, 12};
  const uint64_t hardware[2] = {5, 6};
  const uint64_t driver[2] = {7, NP_NO_DURATION};
  const uint64_t alone[2] = {21, 22};
  const struct np_engine_facts facts[2] = {{.memory = NP_SHM_FILE},
                                           {.has_kernels = 1, .n_xnnpack = 3, .n_portable = 4}};
  const struct np_segment_result segments[3] = {
      {1, 3, samples, hardware, driver, NULL, NULL, &facts[0]},
      {1, 4, samples, hardware, driver, alone, hardware, &facts[1]},
      {0, 0, samples, hardware, driver, NULL, NULL, &facts[1]},
  };
  const struct np_round rounds[2] = {
      {.runs = 1, {1, 2, 0}, {3, 4, 1}, .throttled = 1, .repeats = NP_NONE},
      {.runs = 1, {-1, -1, -1}, {5, -1, -1}, .throttled = -1, .repeats = 0},
  };
  const struct np_kept_output kept = {.tensor = 4, .n_bytes = 8, .sha256 = {0xab}};
  const struct np_result result = {.action = 9,
                                   .attempts = 2,
                                   .driver = "back",
                                   .verdict = NP_CRASHED,
                                   .stage = NP_STAGE_COMPILE,
                                   .message = "m",
                                   .words = "w",
                                   .has_code = 1,
                                   .code = 5,
                                   .signal = "SIGSEGV",
                                   .simulated = 1,
                                   .n_segments = 3,
                                   .segments = segments,
                                   .n_runs = 2,
                                   .n_durations = 2,
                                   .total_ns = samples,
                                   .copies_ns = hardware,
                                   .warmth = {.runs = 12, .stable = 1},
                                   .n_rounds = 2,
                                   .rounds = rounds,
                                   .cpu_mask = 0x30,
                                   .rss_peak_kb = 100,
                                   .before = {-1, 3, -1},
                                   .after = {2, -1, -1},
                                   .n_kept = 1,
                                   .kept = &kept};
  struct caught caught;
  struct np_answers answers = catch_answers(&caught);
  CHECK(np_answer_result(&answers, &result) == NP_OK);
  const char *line = release(&caught, &answers);
  CHECK_TEXT(line, "{\"type\":\"result\",\"action\":9,\"status\":\"crashed\",\"attempts\":2,"
                   "\"driver\":\"back\",\"stage\":\"compile\","
                   "\"message\":\"m\",\"words\":\"w\",\"code\":5,\"signal\":\"SIGSEGV\",\"clock\":"
                   "\"simulated\"");
  CHECK_TEXT(line, "{\"compile_ns\":3,\"samples_ns\":[11,12],\"hardware_ns\":[5,6],"
                   "\"driver_ns\":[],\"kernels\":null,\"memory\":\"file\"}");
  CHECK_TEXT(line, "\"driver_ns\":[],\"alone_ns\":[21,22],\"cpu_ns\":[5,6],\"kernels\":{");
  CHECK_TEXT(line, "\"kernels\":{\"xnnpack\":3,\"portable\":4},\"memory\":\"pointers\"},"
                   "{\"compile_ns\":null,");
  CHECK_TEXT(line, "\"kernels\":null,\"memory\":\"pointers\"}],\"total_ns\":[11,12],"
                   "\"copies_ns\":[5,6],");
  CHECK_TEXT(line, "\"first_ns\":null,\"warmup_runs\":12,\"warm\":true,\"rounds\":["
                   "{\"runs\":1,\"cpu_khz\":[1,3],\"thermal_mc\":[2,4],\"throttled\":true,"
                   "\"moved\":false,\"cpus\":null,\"repeats\":null},"
                   "{\"runs\":1,\"cpu_khz\":[null,5],\"thermal_mc\":[null,null],"
                   "\"throttled\":null,\"moved\":false,\"cpus\":null,\"repeats\":0}],"
                   "\"cpu_mask\":\"0x30\",\"rss_peak_kb\":100,"
                   "\"cpu_khz\":[null,2],\"thermal_mc\":[3,null]");
  CHECK_TEXT(line, "{\"tensor\":4,\"file\":\"9-4.bin\",\"n_bytes\":8,\"sha256\":\"ab00");
  CHECK(line[strlen(line) - 1] == '\n');
}

int main(void) {
  check_text("plain", "{\"type\":\"error\",\"message\":\"plain\"}\n");
  check_text("a\"b\\c\n\t\x01", "{\"type\":\"error\",\"message\":"
                                "\"a\\\"b\\\\c\\u000a\\u0009\\u0001\"}\n");
  check_text("\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80",
             "{\"type\":\"error\",\"message\":\"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\"}\n");
  /* A lone continuation, an overlong slash, a surrogate, a cut sequence. */
  check_text("\x80", "{\"type\":\"error\",\"message\":\"\xef\xbf\xbd\"}\n");
  check_text("\xc0\xaf", "{\"type\":\"error\",\"message\":\"\xef\xbf\xbd\xef\xbf\xbd\"}\n");
  check_text("\xed\xa0\x80",
             "{\"type\":\"error\",\"message\":\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"}\n");
  check_text("\xe2\x82", "{\"type\":\"error\",\"message\":\"\xef\xbf\xbd\xef\xbf\xbd\"}\n");
  check_result();

  struct np_answers closed = np_answers_to(-1);
  CHECK(np_answer_start(&closed, 1) == NP_IO);
  np_answers_free(&closed);
  return np_test_exit();
}
