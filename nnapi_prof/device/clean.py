"""Deletes nnapi-prof's files on a device: blobs, work folders, agents.

Everything lies in one folder (see :mod:`nnapi_prof.device.install`); only names of ours in there
are touched.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from nnapi_prof.device.agent import AgentClient
from nnapi_prof.device.protocol.lines import parse_line
from nnapi_prof.device.protocol.results import Cleaned, ErrorLine
from nnapi_prof.device.transport import Transport, refusal
from nnapi_prof.errors import AgentError

# $0 the folder, then more conditions of find. A line for each agent, and for each draft of one that
# a host did not finish: kilobytes and path.
_AGENTS_SCRIPT = (
    '[ -d "$0" ] || exit 0; '
    'find "$0" -mindepth 2 -maxdepth 2 -name "agent*" "$@" -exec du -sk {} \\; '
    "2>/dev/null; true"
)
# $0 the folder. Kilobytes of all of it, where it is there.
_SIZE_SCRIPT = '[ -d "$0" ] || exit 0; du -sk "$0" 2>/dev/null; true'
_AGENT_LINE = re.compile(r"\s*(\d+)\s+(.*)/([0-9a-f]{16})/agent(?:\.[0-9a-f]{8})?")


@dataclass(frozen=True, slots=True)
class Removed:
    """The files that were deleted, and the size of what is left."""

    n_agents: int
    n_files: int
    n_bytes: int
    kept_bytes: int


def clean(client: AgentClient, older_than_days: int | None = None) -> Removed:
    """Removes other versions' agents, blobs and work folders.

    With ``older_than_days`` what was not used for so long, else all but what lies in a work folder
    that is younger than a day, and the agent itself. Raises AgentError.
    """
    transport = client.transport
    installed = client.installed
    age = () if older_than_days is None else ("-mtime", f"+{older_than_days}")
    n_agents, agent_bytes = _remove_agents(transport, client.folder, age, keep=installed.path)
    limit = () if older_than_days is None else ("--older-than-days", str(older_than_days))
    folders = ("--store", installed.store, "--work", installed.work)
    result = transport.shell([installed.path, "clean", *folders, *limit])
    events = [parse_line(line) for line in result.output.splitlines()]
    for event in events:
        if isinstance(event, Cleaned):
            return Removed(n_agents, event.files, event.n_bytes + agent_bytes, event.kept_bytes)
    words = "; ".join(event.message for event in events if isinstance(event, ErrorLine))
    raise AgentError(
        f"{client.serial}: the agent does not clean (exit code {result.exit_code}): "
        f"{words or result.output.strip()[-300:]}",
        serial=client.serial,
    )


def clean_all(client: AgentClient) -> Removed:
    """Removes the agents, every blob and every work folder; nothing is put there for it."""
    transport = client.transport
    folder = client.folder
    before = _folder_size(transport, folder)
    n_agents, _ = _remove_agents(transport, folder, (), keep=None)
    result = transport.shell(["rm", "-rf", f"{folder}/store", f"{folder}/work"])
    if result.exit_code != 0:
        raise refusal(result.output, "remove", folder, client.serial)
    transport.shell(["sh", "-c", 'rmdir "$0" 2>/dev/null; true', folder])
    left = _folder_size(transport, folder)
    return Removed(n_agents, 0, before - left, left)


def _remove_agents(
    transport: Transport, folder: str, conditions: tuple[str, ...], keep: str | None
) -> tuple[int, int]:
    """Removes agents' folders but that of the one at ``keep``; how many, and their bytes."""
    listed = transport.shell(["sh", "-c", _AGENTS_SCRIPT, folder, *conditions])
    matches = [_AGENT_LINE.fullmatch(line.rstrip()) for line in listed.output.splitlines()]
    gone: dict[str, int] = {}
    for match in matches:
        if match is None or match[2] != folder or f"{folder}/{match[3]}/agent" == keep:
            continue
        path = f"{folder}/{match[3]}"
        gone[path] = gone.get(path, 0) + (int(match[1]) << 10)
    if gone:
        result = transport.shell(["rm", "-rf", *gone])
        if result.exit_code != 0:
            raise refusal(result.output, "remove", folder, transport.serial)
    return len(gone), sum(gone.values())


def _folder_size(transport: Transport, folder: str) -> int:
    words = transport.shell(["sh", "-c", _SIZE_SCRIPT, folder]).output.split()
    return int(words[0]) << 10 if words and words[0].isdigit() else 0
