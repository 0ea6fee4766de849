/* The device agent. PROTOCOL.md documents its input and its answers. */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "child.h"
#include "clean.h"
#include "info.h"
#include "nnapi_prof_runtime.h"
#include "request.h"
#include "result.h"
#include "run.h"

#define MAX_DAYS 100000

enum exit_code { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_BLOBS_MISSING = 3 };

struct arguments {
  const char *command;
  const char *request;
  const char *store;
  const char *work;
  const char *library;
  const char *days_text;
  const char *max_bytes_text;
  int64_t days; /* -1: not given */
  int64_t max_bytes;
};

/* Returns where to store an option's value, NULL if there is no such option. */
static const char **option_of(struct arguments *arguments, const char *name) {
  const struct {
    const char *name;
    const char **value;
  } options[] = {
      {"--store", &arguments->store},
      {"--work", &arguments->work},
      {"--nnapi-library", &arguments->library},
      {"--older-than-days", &arguments->days_text},
      {"--max-bytes", &arguments->max_bytes_text},
  };
  for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
    if (strcmp(name, options[i].name) == 0) {
      return options[i].value;
    }
  }
  return NULL;
}

/* Reads a whole number from 0 to the limit; -1 for no text, -2 for any other. */
static int64_t whole_number(const char *text, int64_t limit) {
  if (!text) {
    return -1;
  }
  char *end = NULL;
  errno = 0;
  const long long value = strtoll(text, &end, 10);
  return end == text || *end != 0 || errno != 0 || value < 0 || value > limit ? -2 : value;
}

static int usage(const char *problem, const char *what) {
  (void)fprintf(stderr,
                "agent: %s%s\n"
                "usage: agent info [--nnapi-library PATH]\n"
                "       agent run REQUEST --store DIR --work DIR [--nnapi-library PATH]\n"
                "       agent clean --store DIR --work DIR [--older-than-days N] [--max-bytes N]\n"
                "       agent trial (which the runtime library starts)\n"
                "       agent version\n",
                problem, what);
  return EXIT_USAGE;
}

/* Checks that the command has the required arguments and no others. EXIT_DONE, or EXIT_USAGE. */
static int check(struct arguments *arguments) {
  const int is_run = strcmp(arguments->command, "run") == 0;
  const int is_info = strcmp(arguments->command, "info") == 0;
  const int is_clean = strcmp(arguments->command, "clean") == 0;
  if (!is_run && !is_info && !is_clean && strcmp(arguments->command, "version") != 0 &&
      strcmp(arguments->command, "trial") != 0) {
    return usage("unknown command ", arguments->command);
  }
  if (is_run && (!arguments->request || !arguments->store || !arguments->work)) {
    return usage("run needs a request, --store and --work", "");
  }
  if (is_clean && (!arguments->store || !arguments->work)) {
    return usage("clean needs --store and --work", "");
  }
  if (!is_run && arguments->request) {
    return usage("a request belongs to run, not to ", arguments->command);
  }
  if (!is_run && !is_clean && (arguments->store || arguments->work)) {
    return usage("--store and --work belong to run and clean, not to ", arguments->command);
  }
  if (!is_run && !is_info && arguments->library) {
    return usage("--nnapi-library belongs to run and info, not to ", arguments->command);
  }
  if (!is_clean && (arguments->days_text || arguments->max_bytes_text)) {
    return usage("--older-than-days and --max-bytes belong to clean, not to ", arguments->command);
  }
  arguments->days = whole_number(arguments->days_text, MAX_DAYS);
  arguments->max_bytes = whole_number(arguments->max_bytes_text, INT64_MAX);
  if (arguments->days == -2) {
    return usage("--older-than-days is no number of days: ", arguments->days_text);
  }
  if (arguments->max_bytes == -2) {
    return usage("--max-bytes is no number of bytes: ", arguments->max_bytes_text);
  }
  return EXIT_DONE;
}

/* Reads the arguments. EXIT_DONE, or EXIT_USAGE after printing the problem. */
static int parse(int argc, char **argv, struct arguments *arguments) {
  memset(arguments, 0, sizeof *arguments);
  if (argc < 2) {
    return usage("what is to be done?", "");
  }
  arguments->command = argv[1];
  for (int i = 2; i < argc; i++) {
    const char **option = option_of(arguments, argv[i]);
    if (option) {
      if (i + 1 == argc) {
        return usage("a value is missing after ", argv[i]);
      }
      *option = argv[++i];
    } else if (argv[i][0] == '-') {
      return usage("unknown option ", argv[i]);
    } else if (arguments->request) {
      return usage("one request at a time, not also ", argv[i]);
    } else {
      arguments->request = argv[i];
    }
  }
  return check(arguments);
}

static int carry_out(const struct arguments *arguments) {
  struct np_answers answers = np_answers_to(1);
  struct np_message why = {""};
  const char *sysfs = getenv("NNAPI_PROF_SYSFS");
  enum np_status status;
  if (strcmp(arguments->command, "info") == 0) {
    status = np_info_command(arguments->library, sysfs, &answers, &why);
  } else if (strcmp(arguments->command, "clean") == 0) {
    status = np_clean_command(arguments->store, arguments->work, arguments->days,
                              arguments->max_bytes, &answers, &why);
  } else {
    status = np_run_command(arguments->request, arguments->store, arguments->work,
                            arguments->library, sysfs, &answers, &why);
  }
  if (status != NP_OK && status != NP_MISSING) {
    /* If the reader of standard output is gone, only standard error is left. */
    if (np_answer_error(&answers, why.text) != NP_OK) {
      (void)fprintf(stderr, "agent: %s\n", why.text);
    }
  }
  np_answers_free(&answers);
  return status == NP_OK ? EXIT_DONE : status == NP_MISSING ? EXIT_BLOBS_MISSING : EXIT_FAILED;
}

/* Returns whether standard output is /dev/null, open also for reading: bionic opens closed files
 * like that before main (from Android 11 on). A shell opens it for writing only. */
static int stands_for_closed(void) {
  struct stat output, null;
  return (fcntl(STDOUT_FILENO, F_GETFL) & O_ACCMODE) == O_RDWR &&
         fstat(STDOUT_FILENO, &output) == 0 && lstat("/dev/null", &null) == 0 &&
         output.st_dev == null.st_dev && output.st_ino == null.st_ino;
}

/* Opens standard input, output and error if they are closed, so that no other file gets their
 * numbers and a library's prints. Returns whether standard output was open. */
static int open_standard_files(void) {
  const int had_output = fcntl(STDOUT_FILENO, F_GETFD) != -1 && !stands_for_closed();
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
    if (fcntl(fd, F_GETFD) == -1) {
      (void)open("/dev/null", O_RDWR); /* gets the lowest free number: fd */
    }
  }
  return had_output;
}

int main(int argc, char **argv) {
  (void)umask(077); /* adbd's is 000, and apps may read what the shell writes */
  if (!open_standard_files()) {
    (void)fprintf(stderr, "agent: standard output is closed, so nobody would read the answers\n");
    return EXIT_FAILED;
  }
  struct arguments arguments;
  const int bad = parse(argc, argv, &arguments);
  if (bad) {
    return bad;
  }
  if (strcmp(arguments.command, "version") == 0) {
    (void)printf("nnapi-prof agent %s, protocol %u\n", NP_AGENT_VERSION, NP_PROTOCOL_VERSION);
    return fflush(stdout) != 0 || ferror(stdout) ? EXIT_FAILED : EXIT_DONE;
  }
  if (strcmp(arguments.command, "trial") == 0) {
    static const int files[3] = {NP_CHILD_FIRST_FILE, NP_CHILD_FIRST_FILE + 1,
                                 NP_CHILD_FIRST_FILE + 2};
    nnp_error error;
    if (nnp_trial_serve(files, &error) != NNP_OK) {
      (void)fprintf(stderr, "agent: %s\n", error.message);
      return EXIT_FAILED;
    }
    return EXIT_DONE;
  }
  /* If the reader is gone, writes fail, instead of killing the agent and leaving a child behind. */
  (void)signal(SIGPIPE, SIG_IGN);
  (void)signal(SIGCHLD, SIG_DFL); /* if the parent ignores it, waiting does not work */
  return carry_out(&arguments);
}
