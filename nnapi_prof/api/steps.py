"""What every step begins with: a device that answers.

The steps themselves are one module each (``steps_profile``, ``steps_partition``, ``steps_run``,
``steps_report``), so that none imports what only another needs. Each takes plain values and a
:class:`~nnapi_prof.api.listener.Listener`, returns data, and prints nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nnapi_prof.api.arguments import device_name
from nnapi_prof.api.listener import SILENT, Listener
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.device.find import open_device


@contextmanager
def reached(device: str | None, listener: Listener = SILENT) -> Iterator[AgentClient]:
    """Opens what ``--device`` names for the time of a block; ``listener`` hears what takes time,
    and which device it is where nobody named one.

    Raises what :func:`nnapi_prof.device.find.open_device` raises.
    """
    device_name(device)
    with open_device(device, listener.busy) as opened:
        if opened.note:
            listener.note(opened.note)
        yield opened.client
