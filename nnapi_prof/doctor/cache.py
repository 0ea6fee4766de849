"""What is built: where it goes, XNNPACK, and the agents of each ABI."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from nnapi_prof.device import shipped, xnnpack
from nnapi_prof.device.build import find_agent, sources_key
from nnapi_prof.doctor.findings import Family, Finding
from nnapi_prof.doctor.registry import Host, host_checks
from nnapi_prof.errors import BuildError
from nnapi_prof.toolchain import ANDROID_ABIS, cache_dir, host_abi

CACHE = Family("Cache")
AGENTS = Family("Agents")

FULL_BYTES = 50_000_000
"""An agent and its build need some 20 MB."""
SCANT_BYTES = 500_000_000
"""XNNPACK with its sources needs some 200 MB, for each ABI less."""
_PROBE_BYTES = 1 << 16
_ELSEWHERE = "export NNAPI_PROF_CACHE_DIR=/path/to/a/folder/with/room"


@host_checks(CACHE.name)
def folder(_: Host) -> Iterator[Finding]:
    """Writable, and with room: by writing there, for quotas do not show in what is free."""
    path = cache_dir()
    there = _existing(path)
    try:
        with tempfile.TemporaryFile(dir=there) as probe:
            probe.write(bytes(_PROBE_BYTES))
            probe.flush()
        free = shutil.disk_usage(there).free
    except OSError as error:
        yield CACHE.problem(
            "cache", f"{path} cannot be written to: {error.strerror or error}", _ELSEWHERE
        )
        return
    words = f"{path} is writable, {free / 1e9:.1f} GB free"
    if free < FULL_BYTES:
        yield CACHE.problem(
            "cache", f"{path} has {free / 1e6:.1f} MB free: no agent can be built", _ELSEWHERE
        )
    elif free < SCANT_BYTES:
        yield CACHE.warning(
            "cache", f"{path} has {free / 1e6:.0f} MB free: too little for XNNPACK", _ELSEWHERE
        )
    else:
        yield CACHE.ok("cache", words)


@host_checks(CACHE.name)
def xnnpack_prefix(_: Host) -> Iterator[Finding]:
    again = "python -m nnapi_prof.device.xnnpack"
    try:
        found = xnnpack.state()
    except BuildError as error:
        words = str(error).partition(": ")[0]
        yield CACHE.problem("XNNPACK", words, f"unset NNAPI_PROF_XNNPACK, then {again} builds one")
        return
    if found.prefix is not None:
        yield CACHE.ok("XNNPACK", f"built for this host: {found.prefix}")
    elif found.left_out:
        yield CACHE.warning(
            "XNNPACK",
            "left out by NNAPI_PROF_XNNPACK=: the CPU engine is slow, its numbers are not a "
            "phone's",
            "unset NNAPI_PROF_XNNPACK",
        )
    elif found.failed is not None:
        why = found.failed.partition("\n")[0]
        yield CACHE.warning("XNNPACK", f"could not be built: {why}", again)
    else:
        yield CACHE.ok(
            "XNNPACK", "not built yet: the first use of the device local does it (1 to 3 minutes)"
        )


@host_checks(AGENTS.name)
def agents(_: Host) -> Iterator[Finding]:
    """Of each device that an agent exists for: there, and of these very sources."""
    yield from _agent("this host", host_abi(), "linux")
    for abi in ANDROID_ABIS:
        yield from _agent(f"android-{abi}", abi, "android")


@host_checks(AGENTS.name)
def brought_along(_: Host) -> Iterator[Finding]:
    """Agents of a wheel are of no use where the sources beside them were changed."""
    sources = shipped.AGENTS_DIR / "sources"
    if sources.is_file() and sources.read_text().strip() != sources_key():
        yield AGENTS.warning(
            "wheel",
            f"the agents in {shipped.AGENTS_DIR} were built of other sources and are not used",
            "python -m nnapi_prof.device.shipped --clean",
        )


def _agent(name: str, abi: str, os_name: str) -> Iterator[Finding]:
    try:
        agent = find_agent(abi, os_name)
    except BuildError as error:
        yield AGENTS.problem(name, str(error), "see Compilers and Cache above")
        return
    if agent is not None:
        size = agent.stat().st_size / 1e6
        yield AGENTS.ok(name, f"built of these sources, {size:.1f} MB: {agent}")
        return
    state = "built of other sources" if _has_older(abi, os_name) else "not built yet"
    build = f"nnapi-prof agent build --abi {abi if os_name == 'android' else 'host'}"
    yield AGENTS.ok(name, f"{state}: its first use builds it, which takes minutes (now: `{build}`)")


def _has_older(abi: str, os_name: str) -> bool:
    """Whether the cache has an agent for such a device at all."""
    pattern = f"{os_name}-{abi}-*/agent" if os_name == "android" else "[0-9a-f]*/agent"
    return any((cache_dir() / "agents").glob(pattern))


def _existing(path: Path) -> Path:
    """The folder itself, or the nearest one above it that is there."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path
