"""The agents for Android as the device's linker sees them, and the objects they are made of."""

import itertools
import re
import struct

import pytest
from elftools.elf.elffile import ELFFile

from nnapi_prof.device import xnnpack
from nnapi_prof.device.build import DF_1_PIE, build_agent, clear_pie_mark
from nnapi_prof.toolchain import ANDROID_ABIS, cache_dir, cross_compiler
from tests.device import android_elf
from tests.parts import again_but

PAGE = 16384
MACHINES = {"arm64-v8a": "EM_AARCH64", "armeabi-v7a": "EM_ARM", "x86_64": "EM_X86_64"}
PF_X, PF_W = 1, 2


@pytest.fixture(
    scope="module", params=again_but(ANDROID_ABIS, "arm64-v8a", why="another processor")
)
def built(request, session_environment):
    with android_elf.builds_for_phones(request.config):
        yield request.param, build_agent(request.param, "android")


@pytest.fixture(scope="module")
def agent(built):
    return built[0], android_elf.read(built[1])


def dynamic(elf: ELFFile) -> dict[str, list[int | str]]:
    items: dict[str, list[int | str]] = {}
    for tag in elf.get_section_by_name(".dynamic").iter_tags():
        value = tag.needed if tag.entry.d_tag == "DT_NEEDED" else tag.entry.d_val
        items.setdefault(tag.entry.d_tag, []).append(value)
    return items


def test_an_executable_of_the_abi(agent):
    abi, elf = agent
    assert elf["e_machine"] == MACHINES[abi]
    assert elf["e_type"] == "ET_DYN"  # position-independent: Android runs no others
    interpreter = next(s for s in elf.iter_segments() if s["p_type"] == "PT_INTERP")
    linker = "linker" if abi == "armeabi-v7a" else "linker64"
    assert interpreter.get_interp_name() == f"/system/bin/{linker}"


def test_segments_suit_pages_of_16_kb(agent):
    _, elf = agent
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


def test_nothing_that_bionic_refuses(agent):
    _, elf = agent
    segments = {s["p_type"]: s for s in elf.iter_segments()}
    assert "PT_TLS" not in segments
    assert segments["PT_GNU_STACK"]["p_flags"] & PF_X == 0
    tags = dynamic(elf)
    assert "DT_TEXTREL" not in tags and "DT_RPATH" not in tags and "DT_RUNPATH" not in tags
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


def test_every_symbol_is_the_librarys_that_the_list_says(agent):
    abi, elf = agent
    symbols = android_elf.listed(abi)
    needed = set(dynamic(elf)["DT_NEEDED"])
    for name in android_elf.wanted(elf):
        line = next(s for s in symbols[name] if s.how in ("same", "data", "bionic"))
        assert f"{line.library}.so" in needed, line
    exported = android_elf.defined(elf)
    assert exported == set(), "nothing of ours takes a library's calls"


def test_stripped_and_small(built):
    _, path = built
    elf = android_elf.read(path)
    assert elf.get_section_by_name(".symtab") is None
    assert not [s.name for s in elf.iter_sections() if s.name.startswith(".debug")]
    assert path.stat().st_size < 5 << 18, "1.25 MB, unwind tables included"


def test_the_note_names_api_27(agent):
    _, elf = agent
    section = elf.get_section_by_name(".note.android.ident").data()
    name_bytes, content_bytes, kind = struct.unpack_from("<3I", section)
    assert (name_bytes, content_bytes, kind) == (8, 132, 1)
    assert section[12:20] == b"Android\0"
    assert struct.unpack_from("<I", section, 20)[0] == 27


@pytest.mark.again("another processor, with XNNPACK built for it")
def test_arm_passes_floating_point_in_integer_registers():
    elf = android_elf.read(build_agent("armeabi-v7a", "android"))
    (vendor,) = elf.get_section_by_name(".ARM.attributes").iter_subsections()
    parts = itertools.chain.from_iterable(p.iter_attributes() for p in vendor.iter_subsubsections())
    result = {attribute.tag: attribute.value for attribute in parts}
    assert "TAG_ABI_VFP_ARGS" not in result
    assert result["TAG_ADVANCED_SIMD_ARCH"] >= 1
    assert elf["e_flags"] & 0x400 == 0, "the flag of the other calling convention"


@pytest.fixture(scope="module")
def objects(built):
    """Every object that the agent is linked from, ours and XNNPACK's."""
    abi, path = built
    archives = list(path.parent.glob("*.a"))
    assert len(archives) == 3
    compiler = cross_compiler(abi, "android", cache_dir())
    prefix = xnnpack.for_device(cache_dir(), compiler, f"android-{abi}")
    if prefix is not None:
        archives += (prefix / "lib").glob("*.a")
    items = {}
    for archive in archives:
        for at, (name, elf) in enumerate(android_elf.members(archive)):
            items[f"{archive.name}({name}, {at})"] = elf  # names are not unique
    assert len(items) > 100
    return abi, items


def test_no_object_needs_what_is_not_on_the_list(objects):
    abi, result = objects
    ours = {name: elf for name, elf in result.items() if "shims" not in name}
    assert android_elf.flaws(ours, abi) == []
    lines = itertools.chain.from_iterable(android_elf.listed(abi).values())
    shims = {symbol.name for symbol in lines if symbol.how == "shim"}
    compiled = [android_elf.defined(elf) for name, elf in result.items() if "shims" in name]
    assert shims - set().union(*compiled) == set()


def test_no_object_has_thread_local_variables_or_starts_by_itself(objects):
    _, result = objects
    for name, elf in result.items():
        for section in elf.iter_sections():
            assert not section["sh_flags"] & 0x400, f"{name}: {section.name}"
            assert not re.match(r"\.(init_array|ctors|preinit_array)", section.name), name


def test_the_mark_of_a_pie_goes_and_nothing_else(built, tmp_path):
    """Put back into an agent, for lld's own output is not kept."""
    _, path = built
    clean = path.read_bytes()
    marked = tmp_path / "agent"
    elf = android_elf.read(path)
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


def test_what_is_no_executable_has_no_mark(tmp_path):
    path = tmp_path / "agent"
    path.write_bytes(b"#!/bin/sh\n")
    with pytest.raises(ValueError, match="is not a little-endian ELF file"):
        clear_pie_mark(path)


def test_a_build_is_kept(built):
    abi, path = built
    heard: list[str] = []
    assert build_agent(abi, "android", progress=heard.append) == path
    assert heard == []
