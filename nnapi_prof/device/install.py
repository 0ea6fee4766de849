"""Install the agent on a device: find its platform, push the agent, verify it.

On the device, under /data/local/tmp/nnapi-prof (or $NNAPI_PROF_REMOTE_DIR):

    HASH/agent   the agent, in a folder named by the hash of its bytes
    store/       blobs by their SHA-256, kept between runs
    work/        a folder for each client, deleted when it closes
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import uuid
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from nnapi_prof.device.build import agent_binary
from nnapi_prof.device.transport import Transport, refusal
from nnapi_prof.errors import AgentError, DeviceError, UsageError
from nnapi_prof.progress import Notify

LOGGER = logging.getLogger(__name__)
DEFAULT_REMOTE_DIR = "/data/local/tmp/nnapi-prof"
"""The folder that adb's shell user may write to and execute from on every Android."""

_HASH_LENGTH = 16
_STALE_DAYS = 1

# `uname -m` -> Android's ABI. getprop comes first: a 64-bit kernel may run a 32-bit Android.
_MACHINES = {
    "x86_64": "x86_64",
    "amd64": "x86_64",
    "i686": "x86",
    "aarch64": "arm64-v8a",
    "armv8l": "armeabi-v7a",
    "armv7l": "armeabi-v7a",
}

_PLATFORM_SCRIPT = (
    'echo "abi=$(getprop ro.product.cpu.abi 2>/dev/null)"; echo "machine=$(uname -m)"; '
    "for f in linker64 linker; do [ -e /system/bin/$f ] && echo os=android; done; true"
)
# $0 the agent. Old Android versions have no sha256sum: the size must do there.
_VERIFY_SCRIPT = 'sha256sum "$0" 2>/dev/null || wc -c <"$0" || exit 9; "$0" version'
# $0 the work folder, $1 the agent's. Left over from hosts that were killed.
_STALE_SCRIPT = (
    f'find "$0" -mindepth 1 -maxdepth 1 -mtime +{_STALE_DAYS} -exec rm -rf {{}} + 2>/dev/null; '
    f'find "$1" -name "agent.*" -mtime +{_STALE_DAYS} -exec rm -f {{}} + 2>/dev/null; true'
)
# $0 the draft, $1 the agent. mv would move the draft into a folder of that name.
_PLACE_SCRIPT = 'if [ -d "$1" ]; then rm -rf "$1"; fi; chmod 700 "$0" && mv -f "$0" "$1"'
# $0 the common folder, the others in it. adbd's umask is 000, and apps may read what the shell
# writes: models are private, also those that older versions left here. Old Android versions have no
# find: a private folder protects its content.
_FOLDERS_SCRIPT = (
    'umask 077; mkdir -p "$@" && chmod 700 "$0" "$@" || exit 1; '
    'find "$0" -type d -exec chmod 700 {} + 2>/dev/null; '
    'find "$0" -type f ! -perm 700 -exec chmod go= {} + 2>/dev/null; true'
)


@dataclass(frozen=True, slots=True)
class InstalledAgent:
    """The location of the agent and its folders on a device."""

    path: str
    store: str
    work: str
    nnapi_library: str | None = None
    """Library that the agent uses instead of libneuralnetworks.so."""


def remote_dir() -> str:
    """Returns the agent's folder on devices.

    Raises UsageError where $NNAPI_PROF_REMOTE_DIR cannot be a folder of our own: its ``store`` and
    ``work`` are emptied.
    """
    named = os.environ.get("NNAPI_PROF_REMOTE_DIR")
    if not named:
        return DEFAULT_REMOTE_DIR
    parts = PurePosixPath(named).parts
    if len(parts) < 3 or not named.startswith("/") or ".." in parts:
        raise UsageError(
            f"NNAPI_PROF_REMOTE_DIR is {named!r}",
            "name a folder of the device for nnapi-prof "
            f"alone, from the root, such as {DEFAULT_REMOTE_DIR}",
        )
    return named.rstrip("/")


def device_platform(transport: Transport) -> tuple[str, str]:
    """Returns the ABI by Android's name, and ``android`` or ``linux``.

    A device with bionic's dynamic linker is Android: the agent's executable needs that linker.
    """
    result = transport.shell(["sh", "-c", _PLATFORM_SCRIPT])
    facts = dict(line.strip().split("=", 1) for line in result.output.splitlines() if "=" in line)
    machine = facts.get("machine", "")
    abi = facts.get("abi") or _MACHINES.get(machine, machine)
    if not abi:
        raise AgentError(
            f"{transport.serial}: the device does not tell its ABI: {result.output.strip()!r}",
            serial=transport.serial,
        )
    return abi, facts.get("os", "linux")


def install_agent(
    transport: Transport, base: str | None = None, progress: Notify | None = None
) -> InstalledAgent:
    """Makes sure that the device has this version's agent and that it runs there.

    ``base`` replaces :func:`remote_dir`. Raises BuildError where no agent can be built for the
    device, DeviceStorageError where it cannot be stored, AgentError where it does not run.
    """
    folder = base or remote_dir()
    binary = agent_binary(*device_platform(transport), progress)
    digest = hashlib.sha256(binary.read_bytes()).hexdigest()
    installed = InstalledAgent(
        f"{folder}/{digest[:_HASH_LENGTH]}/agent", f"{folder}/store", f"{folder}/work"
    )
    LOGGER.debug("the agent for %s is %s", transport.serial, binary)
    if _flaw(transport, installed.path, digest, binary) is None:
        _make_folders(transport, installed)
        transport.shell(
            ["sh", "-c", _STALE_SCRIPT, installed.work, str(PurePosixPath(installed.path).parent)]
        )
        return installed

    if progress is not None:
        progress(f"pushing the agent to {transport.serial}")
    _make_folders(transport, installed)
    # A draft and a rename: another host may be starting the same agent right now.
    draft = f"{installed.path}.{uuid.uuid4().hex[:8]}"
    try:
        transport.push(binary, draft, 0o700)
        place = ["sh", "-c", _PLACE_SCRIPT, draft, installed.path]
        _must(transport, place, installed.path, "place")
    except DeviceError:
        # Half an agent would fill a full disk; a device that is gone keeps it.
        with contextlib.suppress(DeviceError):
            transport.shell(["rm", "-f", draft])
        raise
    flaw = _flaw(transport, installed.path, digest, binary)
    if flaw is not None:
        refused = "Permission denied" in flaw
        advice = (
            "name a folder that allows execution in NNAPI_PROF_REMOTE_DIR"
            if refused
            else "remove it with `nnapi-prof agent clean --all` and run again"
        )
        raise AgentError(
            f"{transport.serial}: the agent was pushed to {installed.path} and does not run "
            f"there ({flaw})",
            advice,
            serial=transport.serial,
        )
    return installed


def _make_folders(transport: Transport, installed: InstalledAgent) -> None:
    folders = [str(PurePosixPath(installed.path).parent), installed.store, installed.work]
    base = str(PurePosixPath(installed.store).parent)
    _must(transport, ["sh", "-c", _FOLDERS_SCRIPT, base, *folders], installed.store, "make")


def _flaw(transport: Transport, path: str, digest: str, binary: Path) -> str | None:
    """Returns the flaw of the agent at ``path``, None where it is ours and runs."""
    result = transport.shell(["sh", "-c", _VERIFY_SCRIPT, path])
    words = result.output.split()
    if result.exit_code == 9 or not words:
        return "it is not there"
    if words[0] != digest and words[0] != str(binary.stat().st_size):
        return f"it has other bytes ({words[0][:_HASH_LENGTH]})"
    if result.exit_code != 0:
        # A shell says its own name, the line and the path first.
        last = result.output.strip().splitlines()[-1].rpartition(": ")[2]
        return f"`agent version` ended with {result.exit_code}: {last[-200:]}"
    return None


def _must(transport: Transport, argv: list[str], path: str, what: str) -> None:
    result = transport.shell(argv)
    if result.exit_code != 0:
        raise refusal(result.output, what, path, transport.serial)
