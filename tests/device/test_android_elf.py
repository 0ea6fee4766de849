"""The agents for Android as the device's linker sees them, and the list of symbols that they may
need."""

import itertools
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from nnapi_prof.device.build import DF_1_PIE, build_agent, clear_pie_mark
from nnapi_prof.device_agent import SOURCE_DIR
from nnapi_prof.toolchain import ANDROID_ABIS, cache_dir, cross_compiler, python_tool
from tests.device import android_elf
from tests.parts import again_but

PAGE = 16384
MACHINES = {"arm64-v8a": "EM_AARCH64", "armeabi-v7a": "EM_ARM", "x86_64": "EM_X86_64"}
PF_X, PF_W = 1, 2
EACH_ABI = again_but(ANDROID_ABIS, "arm64-v8a", why="another processor")


@pytest.fixture(scope="module", params=EACH_ABI)
def built(request, session_environment):
    with android_elf.builds_for_phones(request.config):
        yield request.param, build_agent(request.param, "android")


@pytest.fixture(scope="module")
def elf(built):
    return android_elf.read(built[1])


def dynamic(elf):
    """The values of each tag."""
    items = {}
    for tag in elf.get_section_by_name(".dynamic").iter_tags():
        value = tag.needed if tag.entry.d_tag == "DT_NEEDED" else tag.entry.d_val
        items.setdefault(tag.entry.d_tag, []).append(value)
    return items


def test_an_executable_of_the_abi(built, elf):
    abi, _ = built
    assert elf["e_machine"] == MACHINES[abi]
    assert elf["e_type"] == "ET_DYN"  # position-independent: Android runs no others
    interpreter = next(s for s in elf.iter_segments() if s["p_type"] == "PT_INTERP")
    linker = "linker" if abi == "armeabi-v7a" else "linker64"
    assert interpreter.get_interp_name() == f"/system/bin/{linker}"


def test_segments_suit_pages_of_16_kb(elf):
    loaded = [s for s in elf.iter_segments() if s["p_type"] == "PT_LOAD"]
    assert len(loaded) >= 3
    for segment in loaded:
        assert segment["p_align"] == PAGE
        assert segment["p_vaddr"] % PAGE == segment["p_offset"] % PAGE
        assert segment["p_flags"] & (PF_X | PF_W) != PF_X | PF_W
    pages = [(s["p_vaddr"] // PAGE, (s["p_vaddr"] + s["p_memsz"] - 1) // PAGE) for s in loaded]
    assert all(one[1] < other[0] for one, other in itertools.pairwise(pages)), pages
    relro = next(s for s in elf.iter_segments() if s["p_type"] == "PT_GNU_RELRO")
    assert (relro["p_vaddr"] + relro["p_memsz"]) % PAGE == 0


def test_nothing_that_bionic_refuses(elf):
    segments = {s["p_type"]: s for s in elf.iter_segments()}
    assert "PT_TLS" not in segments
    assert segments["PT_GNU_STACK"]["p_flags"] & PF_X == 0
    tags = dynamic(elf)
    assert not {"DT_TEXTREL", "DT_RPATH", "DT_RUNPATH"} & set(tags)
    assert not {"DT_INIT", "DT_INIT_ARRAY", "DT_PREINIT_ARRAY"} & set(tags), "starts by itself"
    assert tags["DT_FLAGS"][0] & 8, "symbols are bound at the start"
    # NOW. API 27's linker warns of what it does not know, on standard error: of DF_1_PIE, too.
    assert tags["DT_FLAGS_1"] == [1]
    assert "DT_GNU_HASH" in tags
    assert set(tags["DT_NEEDED"]) <= {"libc.so", "libm.so", "libdl.so"}
    kinds = {
        relocation["r_info_type"]
        for section in elf.iter_sections()
        if section["sh_type"] in ("SHT_REL", "SHT_RELA")
        for relocation in section.iter_relocations()
    }
    # Relative, absolute, GOT, PLT: no copies of a library's variables, nothing thread-local.
    allowed = {"EM_AARCH64": {257, 1025, 1026, 1027}, "EM_ARM": {2, 21, 22, 23}}
    assert kinds <= allowed.get(elf["e_machine"], {1, 6, 7, 8})


def test_every_symbol_is_the_librarys_that_the_list_says(built, elf):
    abi, _ = built
    symbols = android_elf.listed(abi)
    needed = set(dynamic(elf)["DT_NEEDED"])
    for name in android_elf.imported(elf):
        line = next(s for s in symbols[name] if s.how in ("same", "data", "bionic"))
        assert f"{line.library}.so" in needed, line
    assert android_elf.exported(elf) == set(), "nothing of ours takes a library's calls"


def test_stripped_and_small(built, elf):
    assert elf.get_section_by_name(".symtab") is None
    assert not [s.name for s in elf.iter_sections() if s.name.startswith(".debug")]
    assert built[1].stat().st_size < 5 << 18, "1.25 MB, unwind tables included"


def test_the_note_names_api_27(elf):
    section = elf.get_section_by_name(".note.android.ident").data()
    name_bytes, content_bytes, kind = struct.unpack_from("<3I", section)
    assert (name_bytes, content_bytes, kind) == (8, 132, 1)
    assert section[12:24] == b"Android\0" + struct.pack("<I", 27)


@pytest.mark.again("another processor, with XNNPACK built for it")
def test_arm_passes_floating_point_in_integer_registers():
    elf = android_elf.read(build_agent("armeabi-v7a", "android"))
    (vendor,) = elf.get_section_by_name(".ARM.attributes").iter_subsections()
    parts = itertools.chain.from_iterable(p.iter_attributes() for p in vendor.iter_subsubsections())
    result = {attribute.tag: attribute.value for attribute in parts}
    assert "TAG_ABI_VFP_ARGS" not in result
    assert result["TAG_ADVANCED_SIMD_ARCH"] >= 1
    assert elf["e_flags"] & 0x400 == 0, "the flag of the other calling convention"


def test_the_mark_of_a_pie_goes_and_nothing_else(built, elf, tmp_path):
    """Put back into an agent, for lld's own output is not kept."""
    _, path = built
    clean = path.read_bytes()
    marked = tmp_path / "agent"
    place = elf.get_section_by_name(".dynamic")["sh_offset"]
    entry = struct.Struct("<QQ" if elf.elfclass == 64 else "<II")
    while entry.unpack_from(clean, place)[0] != 0x6FFFFFFB:
        place += entry.size
    data = bytearray(clean)
    entry.pack_into(data, place, 0x6FFFFFFB, 1 | DF_1_PIE)
    marked.write_bytes(data)
    assert clear_pie_mark(marked)
    assert marked.read_bytes() == clean
    assert not clear_pie_mark(marked)
    marked.write_bytes(b"#!/bin/sh\n")
    with pytest.raises(ValueError, match="is not a little-endian ELF file"):
        clear_pie_mark(marked)


def test_a_build_is_kept(built):
    abi, path = built
    assert build_agent(abi, "android", progress=pytest.fail) == path


# ---- programs that need what they must not -------------------------------------------------------

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


@pytest.fixture(scope="module", params=EACH_ABI)
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


def test_a_sane_program_is_linked(planted):
    code, words = build(planted[1], "good")
    assert code == 0, words


@pytest.mark.parametrize("name", PLANTED)
def test_what_must_not_be_needed_is_refused(planted, name):
    abi, folder = planted
    refused = PLANTED[name][0] in ("all", android_elf.BITS[abi])
    code, words = build(folder, name)
    assert (code != 0, f"undefined symbol: {name}" in words) == (refused, refused), words


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
    listed += "getrandom libc 28 all same\n"
    for text, reason in (
        (listed, "android/symbols.txt: getrandom is of API level 28"),
        ("getrandom libc soon all same\n", "not a line of the list: getrandom libc soon"),
    ):
        (android / "symbols.txt").write_text(text)
        code, words = configure(tmp_path, android, "arm64-v8a")
        assert code != 0 and reason in " ".join(words.split())
