"""The devices within reach."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnapi_prof.api import html
from nnapi_prof.device.find import ListedDevice, list_devices

if TYPE_CHECKING:
    import pandas as pd


class Devices(tuple[ListedDevice, ...]):
    """Devices; ``serial`` of each is what ``device=`` takes."""

    __slots__ = ()

    def frame(self) -> pd.DataFrame:
        """One row for each: ``serial``, ``kind`` (adb server, usb, local, simulated), ``state``
        (``device`` where it can be used), ``description``."""
        import pandas as pd

        columns = ["serial", "kind", "state", "description"]
        rows = [[getattr(device, name) for name in columns] for device in self]
        return pd.DataFrame(rows, columns=columns)

    def _repr_html_(self) -> str:
        rows = [[each.serial, each.kind, each.state, each.description] for each in self]
        return html.table(
            "Devices within reach", ["device", "reached by", "state", "description"], rows
        )


def devices() -> Devices:
    """The devices within reach, as ``nnapi-prof devices`` lists them: phones on a running adb
    server and on USB, this machine, simulated phones. A phone on the network is reached as
    ``HOST:PORT``."""
    return Devices(list_devices())
