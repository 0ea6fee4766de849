"""The list of Android's symbols, and objects that need what is not on it."""

import subprocess
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from nnapi_prof.device_agent import SOURCE_DIR
from nnapi_prof.toolchain import (
    ANDROID_ABIS,
    cache_dir,
    cross_compiler,
    python_tool,
)
from tests.device import android_elf
from tests.parts import again_but

PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(planted LANGUAGES C)
set(CMAKE_C_STANDARD 11)
add_subdirectory(@ANDROID@ android)
link_libraries(np_android_shims)
foreach(name @NAMES@)
  add_executable(${name} ${name}.c)
  target_link_libraries(${name} PRIVATE np_android_start m dl)
endforeach()
"""

GOOD = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
static void last(void) { puts("last"); }
int main(int argc, char **argv) {
  struct timespec now;
  struct stat file;
  clock_gettime(CLOCK_MONOTONIC, &now);
  atexit(last);
  void *map = mmap(NULL, 1 << 14, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return stat(argv[0], &file) + errno + (int)pow(argc, 0.5) + (int)now.tv_sec + (map == NULL) +
         (dlopen("x", RTLD_NOW) == NULL) + (int)((long long)now.tv_sec / (argc + 1));
}
"""

# What each of them needs, and why that is refused. None in place of a reason: it is not refused.
PLANTED = {
    "sysconf": ("#include <unistd.h>\nlong planted(void) { return sysconf(_SC_PAGESIZE); }", "all"),
    "aligned_alloc": (
        "#include <stdlib.h>\nvoid *planted(void) { return aligned_alloc(64, 64); }",
        "all",
    ),
    "sigaction": (
        "#include <signal.h>\nint planted(void) { struct sigaction a = {0};\n"
        "return sigaction(SIGTERM, &a, 0); }",
        "all",
    ),
    "pthread_mutexattr_init": (
        "#include <pthread.h>\nint planted(void) { pthread_mutexattr_t a;\n"
        "return pthread_mutexattr_init(&a); }",
        "all",
    ),
    "getrandom": (
        "#include <sys/random.h>\nlong planted(void) { char c; return getrandom(&c, 1, 0); }",
        "all",
    ),
    "getaddrinfo": (
        "#include <netdb.h>\nint planted(void) { struct addrinfo *a;\n"
        'return getaddrinfo("", 0, 0, &a); }',
        "all",
    ),
    "crypt": ("char *crypt(const char *, const char *);\n"
              "char *planted(void) { return crypt(\"\", \"\"); }", "all"),
    "__emutls_get_address": (
        "_Thread_local int planted_value = 1;\nint *planted(void) { return &planted_value; }",
        "all",
    ),
    "pthread_rwlock_init": (
        "#include <pthread.h>\nint planted(void) { pthread_rwlock_t l;\n"
        "return pthread_rwlock_init(&l, 0); }",
        "32",
    ),
    "fseeko": ("#include <stdio.h>\nint planted(void) { return fseeko(stdin, 0, 0); }", "32"),
}  # fmt: skip


@pytest.fixture(
    scope="module", params=again_but(ANDROID_ABIS, "arm64-v8a", why="another processor")
)
def planted(request, tmp_path_factory, session_environment):
    """(ABI, folder): objects that need what they must not, compiled, and a sane executable."""
    abi = request.param
    folder = tmp_path_factory.mktemp(f"planted-{abi}")
    (folder / "good.c").write_text(GOOD)
    for name, (text, _) in PLANTED.items():
        call = "\nint main(void) { return planted() != 0; }\n"
        (folder / f"{name}.c").write_text(text + call)
    android = str(SOURCE_DIR / "android")
    project = PROJECT.replace("@ANDROID@", android).replace("@NAMES@", " ".join(["good", *PLANTED]))
    (folder / "CMakeLists.txt").write_text(project)
    run(
        *(python_tool("cmake", "CMAKE_BIN_DIR"), "-S", folder, "-B", folder / "b", "-G", "Ninja"),
        f"-DCMAKE_MAKE_PROGRAM={python_tool('ninja', 'BIN_DIR')}",
        *cross_compiler(abi, "android", cache_dir()).configure_options,
    )
    return abi, folder


def run(*command: object) -> None:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def build(folder: Path, target: str) -> tuple[int, str]:
    command = [python_tool("ninja", "BIN_DIR"), "-C", str(folder / "b"), target]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def compiled(folder: Path, name: str) -> ELFFile:
    return android_elf.read(folder / f"b/CMakeFiles/{name}.dir/{name}.c.o")


def test_a_sane_program_is_linked(planted):
    abi, folder = planted
    code, words = build(folder, "good")
    assert code == 0, words
    assert android_elf.flaws({"good.c": compiled(folder, "good")}, abi) == []


@pytest.mark.parametrize("name", PLANTED)
def test_what_must_not_be_needed_is_refused(planted, name):
    """By the linker, and by the check of objects that the agent's own pass."""
    abi, folder = planted
    refused = PLANTED[name][1] in ("all", android_elf.BITS[abi])
    code, words = build(folder, name)
    assert (code != 0) == refused, words
    result = android_elf.flaws({"planted.c": compiled(folder, name)}, abi)
    if refused:
        assert f"undefined symbol: {name}" in words
        assert len(result) == 1 and result[0].startswith(f"planted.c: {name}"), result
    else:
        assert result == []


def test_native_thread_local_variables_are_noticed(planted, tmp_path):
    """For Android clang makes calls of variables; -fno-emulated-tls has it make variables."""
    abi, folder = planted
    ninja = [python_tool("ninja", "BIN_DIR"), "-C", folder / "b", "-t", "commands"]
    done = subprocess.run([*ninja, "__emutls_get_address"], capture_output=True, text=True)
    command = next(line for line in done.stdout.splitlines() if line.endswith("address.c")).split()
    command[command.index("-o") + 1] = str(tmp_path / "tls.o")
    subprocess.run([*command, "-fno-emulated-tls"], check=True, cwd=folder / "b")
    result = android_elf.flaws({"tls.o": android_elf.read(tmp_path / "tls.o")}, abi)
    assert "tls.o: a thread-local variable" in result


def test_the_list_is_of_api_27_and_says_each_thing_once():
    seen = set()
    for symbol in android_elf.symbols():
        for abis in ("64", "32") if symbol.abis == "all" else (symbol.abis,):
            # What bionic has may stand beside what takes its place.
            key = (symbol.name, abis, symbol.how == "bionic")
            assert key not in seen, symbol
            seen.add(key)
        if symbol.how in ("same", "data", "bionic"):
            assert symbol.library != "-" and symbol.since is not None and symbol.since <= 27, symbol
        if symbol.how == "never":
            assert symbol.why, symbol


def test_a_line_of_another_form_stops_the_build(tmp_path):
    for path in (SOURCE_DIR / "android").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    with (tmp_path / "symbols.txt").open("a") as file:
        file.write("getrandom libc 28 all same\n")
    done = configure_list(tmp_path)
    assert "android/symbols.txt: getrandom is of API level 28" in " ".join(done.split())
    (tmp_path / "symbols.txt").write_text("getrandom libc soon all same\n")
    assert "not a line of the list: getrandom libc soon" in " ".join(
        configure_list(tmp_path).split()
    )


def configure_list(folder: Path) -> str:
    project = folder / "project"
    project.mkdir(exist_ok=True)
    (project / "CMakeLists.txt").write_text(
        PROJECT.replace("@ANDROID@", str(folder)).replace("@NAMES@", "")
    )
    done = subprocess.run(
        [
            *(python_tool("cmake", "CMAKE_BIN_DIR"), "-S", project, "-B", folder / "b"),
            *("-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={python_tool('ninja', 'BIN_DIR')}"),
            *cross_compiler("arm64-v8a", "android", cache_dir()).configure_options,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    return done.stdout + done.stderr
