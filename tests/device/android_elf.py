"""Requirements of an Android device on an executable, read from ELF files."""

import contextlib
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    """An executable or library."""
    return ELFFile(io.BytesIO(path.read_bytes()))


def imported(elf: ELFFile) -> set[str]:
    """Symbols that the dynamic linker has to find elsewhere."""
    return {s.name for s in _symbols(elf) if s["st_shndx"] == "SHN_UNDEF"}


def exported(elf: ELFFile) -> set[str]:
    """Symbols that the dynamic linker can find here."""
    return {s.name for s in _symbols(elf) if s["st_shndx"] != "SHN_UNDEF"}


def _symbols(elf: ELFFile) -> Iterator[Any]:
    for symbol in elf.get_section_by_name(".dynsym").iter_symbols():
        if symbol.name and symbol["st_info"]["bind"] != "STB_LOCAL":
            yield symbol
