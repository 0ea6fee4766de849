"""The step ``profile``: from a model's file to what its units and regions cost on a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nnapi_prof.api.listener import SILENT, Listener
from nnapi_prof.api.steps import reached
from nnapi_prof.costs.store import CostStore
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.device.protocol.results import describe
from nnapi_prof.execution.profile.cached_units import CachedUnits, cached_units
from nnapi_prof.execution.profile.options import ProfileOptions, ProfileOutcome
from nnapi_prof.execution.profile.session import profile
from nnapi_prof.graph.unit import UnitGraph

if TYPE_CHECKING:
    from nnapi_prof.graph.program import Program  # which imports torch


@dataclass(frozen=True)
class Profiled:
    """What a profile measured, of what, and where it is kept."""

    model: str
    """Its name, for people."""
    units: UnitGraph
    device: str
    """For people: ``Pixel 6 (...)``."""
    location: str
    """The cost table: a file's path, or a URL without its password."""
    outcome: ProfileOutcome


def outline_of(model: Path, inputs: Sequence[str], listener: Listener = SILENT) -> CachedUnits:
    """A model's units, remembered or read from its file now; see
    :func:`nnapi_prof.execution.profile.cached_units.cached_units`."""

    def load() -> Program:
        with listener.working(f"reading {model.name}"):
            from nnapi_prof.api.loading import read_model

            return read_model(model, inputs)

    return cached_units(model, inputs, load)


def profile_file(
    model: Path,
    inputs: Sequence[str] = (),
    *,
    device: str | None = None,
    costs: str | None = None,
    options: ProfileOptions | None = None,
    listener: Listener = SILENT,
) -> Profiled:
    """``nnapi-prof profile``: measures a model's units and regions into the cost table.

    ``inputs``, ``device`` and ``costs`` are what ``--input``, ``--device`` and ``--costs`` take.
    Ctrl-C ends it with an outcome marked ``interrupted``; what was measured is in the table.

    Raises NnapiProfError: of the model, the device or the table.
    """
    known = outline_of(model, inputs, listener)
    listener.notes(*known.notes)  # of a model that is remembered, too
    with CostStore(costs) as store, reached(device, listener) as client:
        return profile_on(known, client, store, options, listener)


def profile_on(
    model: CachedUnits,
    client: AgentClient,
    store: CostStore,
    options: ProfileOptions | None = None,
    listener: Listener = SILENT,
) -> Profiled:
    """:func:`profile_file` where model, device and table are open already."""
    described = describe(client.info())
    listener.busy(f"{model.name} on {described}")
    outcome = profile(model, client, store, options, listener.progress)
    return Profiled(model.name, model.units, described, str(store.location), outcome)
