"""The functions behind the command line and the Python interface; none of them prints.

This module has their common parts: checks of arguments, listeners for progress, open devices.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nnapi_prof.costs import Conditions, Precision
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.device.find import ListedDevice, list_devices, open_device
from nnapi_prof.errors import UsageError, for_caller
from nnapi_prof.execution.profile import Progress, ProgressCallback, tell_planning
from nnapi_prof.partition import Report
from nnapi_prof.qnn import CHIPS, PREFIX, compiler_available, is_qnn
from nnapi_prof.reports import notebook

if TYPE_CHECKING:
    import pandas as pd


def table_location(costs: str | os.PathLike[str] | None) -> str | None:
    """Returns the location of a cost table as text. Raises UsageError where it is neither a path
    nor a URL."""
    if costs is None or isinstance(costs, str | os.PathLike):
        return None if costs is None else str(costs)
    raise UsageError(
        f"costs is a {type(costs).__name__}: the path or URL of a cost table is required"
    )


def device_name(device: str | None) -> None:
    """Raises UsageError where a device's name is not text."""
    if device is not None and not isinstance(device, str):
        raise UsageError(
            f"device is {device!r}: a serial, HOST:PORT, 'local' or 'sim:NAME' is required"
        )


def precisions_of(
    words: Sequence[str | Precision] | None, conditions: Conditions
) -> tuple[Precision, ...] | None:
    """Returns the precisions that regions may compute in, float32 always first; None for None.
    Raises UsageError for an unknown one, or where the conditions set one for the whole model."""
    if words is None:
        return None
    if conditions.precision is not Precision.FLOAT32:
        raise UsageError(
            for_caller(
                "--relaxed and --float16 are for the whole model: name them in --precisions",
                "relaxed and float16 are for the whole model: name them in precisions",
            )
        )
    chosen = [Precision.FLOAT32]
    for word in [words] if isinstance(words, str) else words:
        try:
            chosen.append(Precision(word))
        except ValueError as error:
            names = ", ".join(precision.value for precision in Precision)
            raise UsageError(f"precision {word!r} is not one of {names}") from error
    return tuple(dict.fromkeys(chosen))


# Steps report to a listener; they never print.

PLANNING = "finding the best plan"
"""The phase in which the partitioner searches; it counts seconds of its time limit."""


def _ignore(_: object) -> None:
    """Does nothing: the default of callbacks."""


def _no_work(_: str) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass(frozen=True, slots=True)
class Listener:
    """Callbacks of a step; the defaults do nothing."""

    note: Callable[[str], None] = _ignore
    """Called with a note for the user, such as a guessed shape or the device that was chosen."""
    busy: Callable[[str], None] = _ignore
    """Called with a line on what comes next or takes a while: building the agent, pushing it."""
    progress: ProgressCallback = _ignore
    """Called with the progress of a phase whenever a part of it is done."""
    working: Callable[[str], AbstractContextManager[None]] = _no_work
    """Entered around work that may take seconds and has no parts to count, such as planning."""

    def notes(self, *texts: str) -> None:
        """Calls :attr:`note` with each text."""
        for text in texts:
            self.note(text)

    def counting(self, phase: str, total: int) -> Callable[[str, int, int], None]:
        """Reports the start of a phase of ``total`` parts. Returns the callback for its progress,
        which takes the current part's label, the number of finished parts, and of all."""
        self.progress(Progress(phase, 0, total, ""))
        return lambda label, done, of: self.progress(Progress(phase, done, of, label))

    def planning(self) -> Report:
        """Returns a callback for the partitioner's progress, in the phase :data:`PLANNING`."""
        return tell_planning(lambda *told: self.progress(Progress(*told)), PLANNING)


SILENT = Listener()
"""A listener that ignores everything."""

__all__ = ["SILENT", "Listener", "Progress", "ProgressCallback"]


LOGGER = logging.getLogger("nnapi_prof")


def to_log(progress: ProgressCallback | None) -> Listener:
    """Returns a listener that logs notes as INFO and passes progress to ``progress``, if any."""

    def tell(text: str) -> None:
        LOGGER.info("%s", text)

    if progress is None:
        return Listener(note=tell, busy=tell)
    return Listener(note=tell, busy=tell, progress=progress)


ESTIMATED = "estimated"
"""The kind of a chip in lists of devices: it is estimated, never reached."""


class Devices(tuple[ListedDevice, ...]):
    """Devices within reach; ``device=`` takes the ``serial`` of one."""

    __slots__ = ()

    def frame(self) -> pd.DataFrame:
        """Returns one row for each device: ``serial``, ``kind`` (adb server, usb, local, simulated,
        estimated), ``state`` (``device`` where it can be used), ``description``."""
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
    """Lists the devices within reach, as ``nnapi-prof devices`` does: phones on a running adb
    server and on USB, this machine, simulated phones. The name of a phone on the network is
    ``HOST:PORT``."""
    return Devices([*list_devices(), *list_chips()])


def list_chips() -> list[ListedDevice]:
    """Lists the Snapdragons whose NPU Qualcomm's simulator estimates; none without the extra
    ``qnn``."""
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
    """Opens the device that ``--device`` names for the time of a block; ``listener`` hears slow
    steps, and the chosen device where none was named. A device that is open already stays open.

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
