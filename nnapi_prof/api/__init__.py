"""The steps of a model's way, for the command line and for Python: neither prints.

Here is what every function of the API does first and last: check arguments, pass on what a step
tells, and open devices.
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
    """Returns the location of a cost table as text. Raises UsageError where it is no path and no
    URL."""
    if costs is None or isinstance(costs, str | os.PathLike):
        return None if costs is None else str(costs)
    raise UsageError(
        f"costs is a {type(costs).__name__}: the path or URL of a cost table is wanted"
    )


def device_name(device: str | None) -> None:
    """Raises UsageError where a device is not named by text."""
    if device is not None and not isinstance(device, str):
        raise UsageError(
            f"device is {device!r}: a serial, HOST:PORT, 'local' or 'sim:NAME' is wanted"
        )


def precisions_of(
    words: Sequence[str | Precision] | None, conditions: Conditions
) -> tuple[Precision, ...] | None:
    """The precisions that regions may compute in, float32 always first; None where none are asked
    for. Raises UsageError where one is none, or the conditions say one for all."""
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


# Steps tell a listener what they do: they never print.

PLANNING = "finding the best plan"
"""The phase in which the partitioner searches: seconds of those it may take."""


def _ignore(_: object) -> None:
    """Whoever does not listen."""


def _no_work(_: str) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass(frozen=True, slots=True)
class Listener:
    """Callbacks; those that are not given hear nothing."""

    note: Callable[[str], None] = _ignore
    """Told what the user should know: a guessed shape, a device that was not named."""
    busy: Callable[[str], None] = _ignore
    """Told in a line what comes next or takes a while: building the agent, pushing it."""
    progress: ProgressCallback = _ignore
    """Told how far a phase is, whenever a part of it is done."""
    working: Callable[[str], AbstractContextManager[None]] = _no_work
    """Entered around what may take seconds and has no parts to count: reading a model, planning."""

    def notes(self, *texts: str) -> None:
        """Tells several notes."""
        for text in texts:
            self.note(text)

    def counting(self, phase: str, total: int) -> Callable[[str, int, int], None]:
        """Tells that a phase of so many parts begins; what is returned is called with what is at
        work, how many parts are done, and of how many."""
        self.progress(Progress(phase, 0, total, ""))
        return lambda label, done, of: self.progress(Progress(phase, done, of, label))

    def planning(self) -> Report:
        """Tells how far the partitioner is, in the phase :data:`PLANNING`."""
        return tell_planning(lambda *told: self.progress(Progress(*told)), PLANNING)


SILENT = Listener()
"""Hears nothing."""

__all__ = ["SILENT", "Listener", "Progress", "ProgressCallback"]


LOGGER = logging.getLogger("nnapi_prof")


def to_log(progress: ProgressCallback | None) -> Listener:
    """Notes go to the log as INFO, progress to ``progress`` where there is one."""

    def tell(text: str) -> None:
        LOGGER.info("%s", text)

    if progress is None:
        return Listener(note=tell, busy=tell)
    return Listener(note=tell, busy=tell, progress=progress)


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
