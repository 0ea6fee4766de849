"""By what names a bundle for several phones knows the one that it runs on.

The most telling first: its build (``ro.build.fingerprint``), its SoC (``ro.soc.model``, before
Android 12 ``ro.board.platform``), its accelerators with their feature levels. The library for apps
makes the same names on the phone (device_agent/library/phones.c).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

OTHERS = ""
"""The name of every phone that has no other in a bundle."""


@dataclass(frozen=True, slots=True)
class PhoneTraits:
    """The properties of a phone that the rule of a bundle for several phones reads."""

    keys: tuple[str, ...] = ()
    """Its names, the most telling first."""
    accelerators: frozenset[str] = frozenset()
    """Names of its NNAPI devices: a plan that names another does not fit."""


def phone_of(properties: Mapping[str, str], accelerators: Iterable[tuple[str, int]]) -> PhoneTraits:
    """The phone with these ``ro.*`` properties and NNAPI devices, each its name and its feature
    level as it reports it."""
    ordered = sorted(accelerators, key=lambda each: each[0].encode())
    soc = properties.get("ro.soc.model") or properties.get("ro.board.platform")
    build = properties.get("ro.build.fingerprint")
    keys = [f"build:{build}"] if build else []
    keys += [f"soc:{soc}"] if soc else []
    if ordered:
        keys.append("nnapi:" + ",".join(f"{name}/{level}" for name, level in ordered))
    return PhoneTraits(tuple(keys), frozenset(name for name, _ in ordered))
