"""The list of Android's symbols, and objects that need what is not on it."""

import shutil
import subprocess
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from nnapi_prof.device_agent import SOURCE_DIR
from nnapi_prof.toolchain import ANDROID_ABIS, cache_dir, cross_compiler, python_tool
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

# What each of them needs, where that is refused (on "all" ABIs or those of "32" bits), by what
# header and in which body of a function.
PLANTED = {
    "sysconf": ("all", "unistd.h", "return sysconf(_SC_PAGESIZE);"),
    "aligned_alloc": ("all", "stdlib.h", "return aligned_alloc(64, 64) != 0;"),
    "sigaction": (
        "all", "signal.h", "struct sigaction a = {0}; return sigaction(SIGTERM, &a, 0);"
    ),
    "pthread_mutexattr_init": (
        "all", "pthread.h", "pthread_mutexattr_t a; return pthread_mutexattr_init(&a);"
    ),
    "getrandom": ("all", "sys/random.h", "char c; return getrandom(&c, 1, 0);"),
    "getaddrinfo": ("all", "netdb.h", 'struct addrinfo *a; return getaddrinfo("", 0, 0, &a);'),
    "crypt": (
        "all", "stddef.h", 'char *crypt(const char *, const char *); return crypt("", "") != 0;'
    ),
    "__emutls_get_address": (
        "all", "stddef.h", "static _Thread_local volatile int value = 1; return value++;"
    ),
    "pthread_rwlock_init": (
        "32", "pthread.h", "pthread_rwlock_t l; return pthread_rwlock_init(&l, 0);"
    ),
    "fseeko": ("32", "stdio.h", "return fseeko(stdin, 0, 0);"),
}  # fmt: skip


@pytest.fixture(
    scope="module", params=again_but(ANDROID_ABIS, "arm64-v8a", why="another processor")
)
def planted(request, tmp_path_factory, session_environment):
    """(ABI, folder): objects that need what they must not, compiled, and a sane executable."""
    abi = request.param
    folder = tmp_path_factory.mktemp(f"planted-{abi}")
    (folder / "good.c").write_text(GOOD)
    for name, (_, header, body) in PLANTED.items():
        (folder / f"{name}.c").write_text(f"#include <{header}>\nint main(void) {{ {body} }}\n")
    code, words = configure(folder, SOURCE_DIR / "android", abi, "good", *PLANTED)
    assert code == 0, words
    return abi, folder


def run(*command: object) -> tuple[int, str]:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def configure(folder: Path, android: Path, abi: str, *names: str) -> tuple[int, str]:
    """A project of programs, by the shims and the list of a folder in place of android/."""
    project = PROJECT.replace("@ANDROID@", str(android)).replace("@NAMES@", " ".join(names))
    (folder / "CMakeLists.txt").write_text(project)
    return run(
        *(python_tool("cmake", "CMAKE_BIN_DIR"), "-S", folder, "-B", folder / "b", "-G", "Ninja"),
        f"-DCMAKE_MAKE_PROGRAM={python_tool('ninja', 'BIN_DIR')}",
        *cross_compiler(abi, "android", cache_dir()).configure_options,
    )


def build(folder: Path, target: str) -> tuple[int, str]:
    return run(python_tool("ninja", "BIN_DIR"), "-C", folder / "b", target)


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
    refused = PLANTED[name][0] in ("all", android_elf.BITS[abi])
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
    ninja = python_tool("ninja", "BIN_DIR")
    _, words = run(ninja, "-C", folder / "b", "-t", "commands", "__emutls_get_address")
    command = next(line for line in words.splitlines() if line.endswith("address.c")).split()
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
    android = tmp_path / "android"
    shutil.copytree(SOURCE_DIR / "android", android)
    listed = (android / "symbols.txt").read_text()
    for text, reason in (
        (
            f"{listed}getrandom libc 28 all same\n",
            "android/symbols.txt: getrandom is of API level 28",
        ),
        ("getrandom libc soon all same\n", "not a line of the list: getrandom libc soon"),
    ):
        (android / "symbols.txt").write_text(text)
        code, words = configure(tmp_path, android, "arm64-v8a")
        assert code != 0 and reason in " ".join(words.split())
