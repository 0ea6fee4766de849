"""The step ``run``: a bundle on a device, its outputs beside eager PyTorch's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from nnapi_prof.api.listener import SILENT, Listener, Progress
from nnapi_prof.api.steps import reached
from nnapi_prof.bundle.bundle import Bundle
from nnapi_prof.bundle.storage import read_bundle
from nnapi_prof.costs.conditions import Precision
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.device.protocol.results import describe, device_fingerprint
from nnapi_prof.errors import MismatchError, SerializationError, UsageError, option
from nnapi_prof.execution.report import RunReport
from nnapi_prof.graph.plan import AUTO, Plan

if TYPE_CHECKING:
    from torch import Tensor

    from nnapi_prof.graph.program import Program


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How a bundle is run; the default is that of ``nnapi-prof run``."""

    runs: int = 30
    """Recorded runs of each plan."""
    baselines: bool = True
    """Times the baselines, too."""
    tolerance: float | None = None
    """Largest difference of an output, relative to its largest value; None: 1e-4, in less than
    float32 2e-2."""
    cpus: str | None = None
    """Cores to keep to; None: those that the bundle was planned for."""
    repeats: int = 3
    """Times that all plans run in new processes, each for its share of the runs."""
    warmup_ms: int = 200
    """Of each process of a plan, at most."""
    budget_ms: int = 10_000
    """A plan that takes longer stops early, after at least two runs a round."""
    cooldown_s: float = 60.0
    """Waits at most this long for a phone that is too hot."""
    memory_mb: int | None = None
    """Limits the process of each plan."""
    seed: int | None = None
    """Of random inputs; None: the model's bundled inputs, else always the same."""


def run_file(
    bundle: Path,
    *,
    device: str | None = None,
    inputs: Sequence[str] = (),
    settings: RunSettings | None = None,
    listener: Listener = SILENT,
) -> RunReport:
    """``nnapi-prof run``: runs a bundle. :func:`keep_result` keeps what it returns in the bundle.

    ``inputs`` are sizes for those that the bundle leaves open. Outputs that differ too much are in
    the report (:func:`mismatch`).

    Raises NnapiProfError: of the bundle, the model, the device, and AgentError where the plan does
    not run.
    """
    loaded = read_bundle(bundle)  # before torch is: a wrong path should be told at once

    model = bundle / loaded.model_file
    if not model.exists():
        raise SerializationError(
            f"{bundle}: the bundle is damaged ({model.name} is missing): make it again with "
            "`nnapi-prof partition`"
        )
    with reached(device, listener) as client:
        check_device(loaded.plan, loaded.device, client, str(bundle))  # as a wrong device should
        if device_fingerprint(client.info()) != loaded.fingerprint:
            listener.note(f"{bundle} was made for {loaded.device}, and this is another device")
        return _run_loaded(loaded, model, client, inputs, settings, listener)


def check_device(plan: Plan, made_for: str, client: AgentClient, name: str) -> None:
    """Raises UsageError where the device lacks an accelerator that a plan made for another one
    runs on. ``name`` is the plan's for people."""
    info = client.info()
    there = [each.name for each in info.nnapi.accelerators]
    needed = dict.fromkeys(s.target.accelerator or "" for s in plan.segments)
    missing = [each for each in needed if each not in (*there, AUTO, "")]
    if missing:
        raise UsageError(
            f"{name} was made for {made_for}, and runs on its {' and '.join(missing)}:"
            f" {describe(info)} has {', '.join(there) or 'no accelerators'}; choose the right"
            f" device with {option('device')}, or make a bundle for this one with `nnapi-prof"
            " profile` and `nnapi-prof partition`"
        )


def _run_loaded(
    loaded: Bundle,
    model: Path,
    client: AgentClient,
    inputs: Sequence[str],
    settings: RunSettings | None,
    listener: Listener,
) -> RunReport:
    with listener.working(f"reading {model.name}"):
        from nnapi_prof.api.loading import read_model
        from nnapi_prof.api.planning import at_sizes
        from nnapi_prof.frontend import reference

        if inputs:
            loaded, program = at_sizes(loaded, model, inputs)
        else:
            program = read_model(model, loaded.inputs)
            listener.notes(*program.notes)
    with listener.working("running eager PyTorch"):
        examples, wanted = expected(program, reference(model), settings)
    return run_on(loaded, program, examples, wanted, client, settings, listener)


def expected(
    program: Program,
    eager: Callable[..., tuple[Tensor, ...]],
    settings: RunSettings | None = None,
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """The inputs to run with, and the outputs that eager PyTorch gives for them."""
    from nnapi_prof.execution.host import choose_inputs

    inputs = choose_inputs(program, (settings or RunSettings()).seed)
    return inputs, eager(*(value.clone() for value in program.as_given(inputs)))


def run_on(
    bundle: Bundle,
    program: Program,
    inputs: Sequence[Tensor],
    wanted: Sequence[Tensor],
    client: AgentClient,
    settings: RunSettings | None = None,
    listener: Listener = SILENT,
) -> RunReport:
    """:func:`run_file` where all is open already: runs a bundle under the conditions it was planned
    for, and compares its outputs with ``wanted``. Raises AgentError where the plan does not run."""
    from nnapi_prof.execution.compare import HALF_TOLERANCE, TOLERANCE
    from nnapi_prof.execution.run import run_bundle
    from nnapi_prof.execution.timing import RunOptions

    settings = settings or RunSettings()
    conditions = replace(bundle.conditions, cpus=settings.cpus or bundle.conditions.cpus)
    exact = conditions.precision is Precision.FLOAT32
    usual = TOLERANCE if exact else HALF_TOLERANCE
    options = RunOptions(
        runs=settings.runs,
        repeats=settings.repeats,
        warmup_ms=settings.warmup_ms,
        budget_ms=settings.budget_ms,
        cooldown_s=settings.cooldown_s,
        conditions=conditions,
        memory_mb=settings.memory_mb,
        baselines=settings.baselines,
        tolerance=usual if settings.tolerance is None else settings.tolerance,
    )

    def heard(plan: str, done: int, total: int) -> None:
        listener.progress(Progress("running", done, total, plan))

    listener.progress(Progress("running", 0, len(bundle.plans) if settings.baselines else 1, ""))
    return run_bundle(bundle, program, inputs, wanted, client, options, heard)


def keep_result(bundle: Path, report: RunReport) -> Path:
    """Writes a run's report into its bundle, which keeps earlier ones, too; the file."""
    from nnapi_prof.execution.report import keep

    return keep(bundle, report)


def mismatch(report: RunReport) -> MismatchError | None:
    """The output that is off by more than is allowed, the worst; None where all agree."""
    wrong = [check for check in report.checks if not check.ok]
    if not wrong:
        return None
    worst = max(wrong, key=lambda check: check.relative)
    return MismatchError(
        f"output {worst.name} differs from eager PyTorch by {worst.relative:.2e} of its"
        f" largest value, {worst.tolerance:.0e} is allowed: give a larger"
        f" {option('tolerance')} if that is accurate enough"
    )
