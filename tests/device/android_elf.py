"""What an Android device asks of an executable, read from ELF files and archives."""

import contextlib
import io
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from nnapi_prof.device_agent import SOURCE_DIR

BITS = {"arm64-v8a": "64", "x86_64": "64", "armeabi-v7a": "32"}
_LINE = re.compile(
    r"(\w+) +(libc|libm|libdl|-) +(\d+|-) +(all|64|32) +(same|data|shim|bionic|never)(?: +(.+))?"
)


@contextlib.contextmanager
def builds_for_phones(config: pytest.Config) -> Iterator[None]:
    """Builds for Android without XNNPACK, which takes a minute of a core, but for
    ``--everything``."""
    with pytest.MonkeyPatch.context() as patch:
        if not config.getoption("--everything"):
            patch.setenv("NNAPI_PROF_XNNPACK", "")
        yield


@dataclass(frozen=True)
class Symbol:
    """One line of android/symbols.txt."""

    name: str
    library: str
    since: int | None
    abis: str
    how: str
    why: str


def symbols(path: Path = SOURCE_DIR / "android" / "symbols.txt") -> list[Symbol]:
    """The whole list, each line checked for its form."""
    items = []
    for line in path.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        assert match is not None, line
        name, library, since, abis, how, why = match.groups()
        level = None if since == "-" else int(since)
        items.append(Symbol(name, library, level, abis, how, why or ""))
    return items


def listed(abi: str) -> dict[str, list[Symbol]]:
    """By name, the lines that hold for an ABI."""
    by_name: dict[str, list[Symbol]] = {}
    for symbol in symbols():
        if symbol.abis in ("all", BITS[abi]):
            by_name.setdefault(symbol.name, []).append(symbol)
    return by_name


def read(path: Path) -> ELFFile:
    """An object or executable."""
    return ELFFile(io.BytesIO(path.read_bytes()))


def members(archive: Path) -> Iterator[tuple[str, ELFFile]]:
    """The objects of a static library (GNU's format), by name."""
    data = archive.read_bytes()
    assert data[:8] == b"!<arch>\n", archive
    at, long_names = 8, b""
    while at + 60 <= len(data):
        name = data[at : at + 16].decode().rstrip()
        size = int(data[at + 48 : at + 58])
        content = data[at + 60 : at + 60 + size]
        at += 60 + size + size % 2
        if name == "//":
            long_names = content
        elif name not in ("/", "/SYM64/"):
            if name.startswith("/"):
                start = int(name[1:])
                name = long_names[start : long_names.index(b"/\n", start)].decode()
            yield name.rstrip("/"), ELFFile(io.BytesIO(content))


def wanted(elf: ELFFile) -> set[str]:
    """Symbols that an object or executable needs from elsewhere."""
    return {name for name, undefined, _ in _symbols(elf) if undefined}


def defined(elf: ELFFile) -> set[str]:
    """Symbols that others can use."""
    return {name for name, undefined, local in _symbols(elf) if not undefined and not local}


def imported(elf: ELFFile) -> set[str]:
    """Symbols that the dynamic linker has to find elsewhere."""
    return {name for name, undefined, _ in _symbols(elf, ".dynsym") if undefined}


def exported(elf: ELFFile) -> set[str]:
    """Symbols that the dynamic linker can find here."""
    return {name for name, undefined, local in _symbols(elf, ".dynsym") if not (undefined or local)}


def _symbols(elf: ELFFile, section: str = ".symtab") -> Iterator[tuple[str, bool, bool]]:
    """Name, whether it is undefined, whether it is local. By hand: there are 100,000 of them."""
    table = elf.get_section_by_name(section) or elf.get_section_by_name(".dynsym")
    if table is None:
        return
    names = elf.get_section(table["sh_link"]).data()
    form = struct.Struct("<IBBHQQ" if elf.elfclass == 64 else "<IIIBBH")
    for entry in form.iter_unpack(table.data()):
        info, place = (entry[1], entry[3]) if elf.elfclass == 64 else (entry[3], entry[5])
        if entry[0]:
            name = names[entry[0] : names.index(b"\0", entry[0])].decode()
            yield name, place == 0, info >> 4 == 0


def flaws(objects: dict[str, ELFFile], abi: str) -> list[str]:
    """What is wrong with objects that shall be linked together: a line for each."""
    symbols = listed(abi)
    here = set().union(*map(defined, objects.values()))
    items = []
    for name, elf in objects.items():
        for symbol in sorted(wanted(elf) - here):
            lines = [line for line in symbols.get(symbol, []) if line.how != "bionic"]
            if not lines:
                items.append(f"{name}: {symbol} is not on the list")
            elif lines[0].how == "never":
                items.append(f"{name}: {symbol}: {lines[0].why}")
    return items
