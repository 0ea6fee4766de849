"""A device within reach, and what it says of itself in one go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nnapi_prof.device.results import AgentInfo
from nnapi_prof.device.transport import Transport

_FACTS_SCRIPT = (
    'p() { echo "$1=$(getprop $2 2>/dev/null)"; }; '
    "p sdk ro.build.version.sdk; p release ro.build.version.release; "
    "p maker ro.product.manufacturer; p model ro.product.model; "
    'echo "page=$(getconf PAGE_SIZE 2>/dev/null || getconf PAGESIZE 2>/dev/null)"; '
    'echo "selinux=$(getenforce 2>/dev/null)"'
)


@dataclass(frozen=True, slots=True)
class Phone:
    """An open device. ``os`` is ``android`` or ``linux``, ``abi`` in Android's words."""

    transport: Transport
    abi: str
    os: str
    facts: Mapping[str, str]
    """``sdk``, ``release``, ``maker``, ``model``, ``page``, ``selinux``; empty where not told."""
    remote_dir: str
    """The agent's folder there."""
    info: AgentInfo | None = None
    """What the agent says, where it could be had without building it."""
    host_only: bool = False
    """``local`` or a simulated phone: there is no phone's system to look at."""

    @property
    def serial(self) -> str:
        return self.transport.serial

    @property
    def sdk(self) -> int | None:
        """Android's API level."""
        text = self.facts.get("sdk", "")
        return int(text) if text.isdigit() else None

    def ask(self, script: str, *arguments: str) -> tuple[int, str]:
        """A shell script's exit code and output; the arguments are $0, $1, ...

        Raises DeviceOffline.
        """
        result = self.transport.shell(["sh", "-c", script, *arguments])
        return result.exit_code, result.output


def read_facts(transport: Transport) -> dict[str, str]:
    """Raises DeviceOffline."""
    output = transport.shell(["sh", "-c", _FACTS_SCRIPT]).output
    pairs = (line.strip().split("=", 1) for line in output.splitlines() if "=" in line)
    return {name: value.strip() for name, value in pairs}
