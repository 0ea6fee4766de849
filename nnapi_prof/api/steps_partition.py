"""The step ``partition``: from a cost table to a bundle on disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nnapi_prof.api.found import Found
from nnapi_prof.api.listener import SILENT, Listener, Progress
from nnapi_prof.api.loading import read_model
from nnapi_prof.api.planning import make_bundle
from nnapi_prof.api.steps import reached
from nnapi_prof.api.wishes import Wishes
from nnapi_prof.bundle.bundle import Bundle
from nnapi_prof.bundle.storage import write_bundle
from nnapi_prof.costs import absolute
from nnapi_prof.costs.conditions import Conditions
from nnapi_prof.costs.store import CostStore
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.errors import UsageError
from nnapi_prof.execution.timing import RunOptions, choose_measured
from nnapi_prof.frontend.inputs import parse_input_specs
from nnapi_prof.graph.program import Program

VERIFYING = "running plan and baselines whole"
"""The phase in which plans run end to end before one is chosen."""
KEPT = "the plan keeps to what was asked: no baseline that runs faster replaces it"


@dataclass(frozen=True)
class Partitioned:
    """A bundle, and what planning found beside its plans."""

    bundle: Bundle
    found: Found


def partition_file(
    model: Path,
    inputs: Sequence[str] = (),
    *,
    output: Path,
    device: str | None = None,
    costs: str | None = None,
    conditions: Conditions | None = None,
    wishes: Wishes | None = None,
    estimate: bool = False,
    verify: bool = True,
    cooldown_s: float = 60.0,
    memory_mb: int | None = None,
    listener: Listener = SILENT,
) -> Partitioned:
    """``nnapi-prof partition``: plans a model for a device, and writes the bundle to ``output``.

    ``verify`` runs plan and baselines whole first, unless ``wishes`` constrain the plan. Waits
    ``cooldown_s`` seconds at most for a hot phone; ``memory_mb`` limits each plan's process. Ctrl-C
    while it searches for the plan keeps the best one until then.

    Raises NnapiProfError: CostError where the table lacks costs, UsageError where ``output`` cannot
    be written, and what reading the model and reaching the device raise.
    """
    conditions = conditions or Conditions()
    with listener.working(f"reading {model.name}"):
        program = read_model(model, inputs)
    listener.notes(*program.notes)
    options = RunOptions(cooldown_s=cooldown_s, conditions=conditions, memory_mb=memory_mb)
    with CostStore(costs) as store, reached(device, listener) as client:
        with listener.working("planning"):
            bundle, found = make_bundle(
                program, model, client, store, conditions, wishes, estimate, listener
            )
        listener.notes(*(note for note in bundle.notes if note not in program.notes))
        bundle = replace(with_open_sizes(bundle, inputs), costs=absolute(store.location))
        if verify:
            bundle = verified(bundle, program, client, options, wishes, listener)
    save_bundle(output, bundle, model)
    return Partitioned(bundle, found)


def with_open_sizes(bundle: Bundle, inputs: Sequence[str]) -> Bundle:
    """The bundle, in which sizes that the stated inputs leave open stay so."""
    if not inputs:
        return bundle
    return replace(bundle, inputs=tuple(map(str, parse_input_specs(inputs))))


def verified(
    bundle: Bundle,
    program: Program,
    client: AgentClient,
    options: RunOptions,
    wishes: Wishes | None = None,
    listener: Listener = SILENT,
) -> Bundle:
    """The bundle with the plan that is fastest end to end (:mod:`nnapi_prof.execution.timing`); the
    same one where ``wishes`` constrain its plan."""
    if wishes is not None and wishes.constrain:
        listener.busy(KEPT)
        return bundle

    def heard(plan: str, done: int, total: int) -> None:
        listener.progress(Progress(VERIFYING, done, total, plan))

    listener.progress(Progress(VERIFYING, 0, len(bundle.plans), ""))
    return choose_measured(bundle, program, client, options, heard)


def save_bundle(path: Path, bundle: Bundle, model: Path) -> None:
    """Writes a bundle and its model. Raises UsageError where ``path`` cannot be written."""
    try:
        write_bundle(path, bundle, model)
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror or error}: name another --output"
        ) from error
