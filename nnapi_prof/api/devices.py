"""The devices within reach, and opening one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from nnapi_prof.api import notebook
from nnapi_prof.api.events import SILENT, Listener
from nnapi_prof.api.options import device_name
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.device.find import ListedDevice, list_devices, open_device
from nnapi_prof.errors import UsageError
from nnapi_prof.qnn.chips import CHIPS, PREFIX, compiler_available, is_qnn

if TYPE_CHECKING:
    import pandas as pd

ESTIMATED = "estimated"
"""How a chip is reached: not at all."""


class Devices(tuple[ListedDevice, ...]):
    """Devices; ``serial`` of each is what ``device=`` takes."""

    __slots__ = ()

    def frame(self) -> pd.DataFrame:
        """One row for each: ``serial``, ``kind`` (adb server, usb, local, simulated,
        estimated), ``state``
        (``device`` where it can be used), ``description``."""
        import pandas as pd

        columns = ["serial", "kind", "state", "description"]
        rows = [[getattr(device, name) for name in columns] for device in self]
        return pd.DataFrame(rows, columns=columns)

    def _repr_html_(self) -> str:
        rows = [[each.serial, each.kind, each.state, each.description] for each in self]
        return notebook.table(
            "Devices within reach", ["device", "reached by", "state", "description"], rows
        )


def devices() -> Devices:
    """The devices within reach, as ``nnapi-prof devices`` lists them: phones on a running adb
    server and on USB, this machine, simulated phones. A phone on the network is reached as
    ``HOST:PORT``."""
    return Devices([*list_devices(), *list_chips()])


def list_chips() -> list[ListedDevice]:
    """Snapdragons whose NPU Qualcomm's simulator stands in for; none without the extra ``qnn``."""
    if not compiler_available():
        return []
    return [
        ListedDevice(f"{PREFIX}{chip.name}", ESTIMATED, "device", f"NPU of the {chip.marketing}")
        for chip in CHIPS.values()
    ]


@contextmanager
def open_client(
    device: str | AgentClient | None, listener: Listener = SILENT
) -> Iterator[AgentClient]:
    """Opens what ``--device`` names for the time of a block; ``listener`` hears what takes time,
    and which device it is where nobody named one. A device that is open already stays so.

    Raises what :func:`nnapi_prof.device.find.open_device` raises.
    """
    if isinstance(device, AgentClient):
        yield device
        return
    device_name(device)
    if is_qnn(device):
        raise UsageError(
            f"{device} runs nothing, it is estimated by Qualcomm's simulator: that is for"
            " profile, partition, go and estimate"
        )
    with open_device(device, listener.busy) as opened:
        if opened.note:
            listener.note(opened.note)
        yield opened.client
