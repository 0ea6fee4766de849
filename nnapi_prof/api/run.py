"""Runs a plan on a device, measures its latency, and compares its outputs with eager PyTorch's."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from nnapi_prof.api import SILENT, Listener, Progress, open_client, to_log
from nnapi_prof.api.model import Model
from nnapi_prof.api.plan import ModelPlan
from nnapi_prof.bundle import Bundle
from nnapi_prof.bundle.storage import read_bundle
from nnapi_prof.costs import Conditions
from nnapi_prof.device import device_fingerprint, device_name
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.device.protocol import AgentInfo
from nnapi_prof.errors import (
    InputSpecError,
    MismatchError,
    SerializationError,
    for_caller,
    option_name,
)
from nnapi_prof.execution import RunOptions
from nnapi_prof.execution.build import at_sizes, check_device, check_levels, names_of
from nnapi_prof.execution.profile.unit_graph_cache import UnitGraphCache, load_program
from nnapi_prof.execution.report import RunReport
from nnapi_prof.reports import notebook
from nnapi_prof.reports.data import ReportData
from nnapi_prof.reports.words import plan_cells

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    from nnapi_prof.graph.program import Program

USUAL = RunOptions()


def run(
    plan: ModelPlan | str | os.PathLike[str],
    device: str | AgentClient | None = None,
    *,
    inputs: Sequence[Tensor] | None = None,
    runs: int = USUAL.runs,
    frames: int = USUAL.frames,
    baselines: bool = USUAL.baselines,
    boundary: str = USUAL.boundary,
    tolerance: float | None = None,
    cpus: str | None = None,
    cooldown_s: float | None = None,
    memory_mb: int | None = None,
    seed: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    sizes: Sequence[str] = (),
    listener: Listener | None = None,
) -> Result:
    """Runs a plan on a device, like ``nnapi-prof run``, and compares its outputs.

    ``plan`` is a :class:`nnapi_prof.ModelPlan` or its folder. ``device`` is that of
    :func:`nnapi_prof.profile`; None for the one that the plan was made on. ``inputs`` are tensors
    of the plan's shapes; None for the model's bundled ones, else random ones from ``seed``.
    ``runs`` is how many runs are recorded for the plan and, with ``baselines``, for each baseline.
    ``frames`` is how many frames also run, many at once, in each way that the plan was made with
    (:meth:`Result.frames`); a plan that was not made for frames at once runs them with its own
    lanes, and with each baseline's. Latencies contain copies from and to an app's buffers, unless
    the ``boundary`` is ``"model"``. ``tolerance`` is the largest allowed difference of an output
    relative to its largest value (None: 1e-4, below float32 2e-2). ``cpus``, ``cooldown_s`` and
    ``memory_mb`` are those of :func:`nnapi_prof.profile`. ``sizes`` are shapes for inputs whose
    sizes the plan leaves open, as ``"1x3x256x256"``. A ``listener`` also hears notes, and replaces
    ``progress``.

    The result reports outputs that differ (``Result.agrees``); they raise no error.
    Raises AgentError where the plan does not run, DeviceError where the device fails, UsageError.
    """
    options = RunOptions(
        runs=runs,
        frames=frames,
        baselines=baselines,
        boundary=boundary,
        tolerance=tolerance,
        cpus=cpus,
        cooldown_s=cooldown_s,
        memory_mb=memory_mb,
        seed=seed,
    )
    listener = listener or to_log(progress)
    ready: ModelPlan | Bundle
    if isinstance(plan, ModelPlan):
        plan.refuse_estimate()
        ready = plan
        name, device = "the plan", device or plan.device_spec
    else:
        ready, name = _stored(Path(plan)), str(plan)
    with open_client(device, listener) as client:
        info = client.info()
        title = for_caller(name, "the plan")
        ready = _for_phone(ready, info, title, listener)
        check_device(ready.plan, ready.device, client, title)  # before the model is read
        if isinstance(ready, Bundle):
            if device_fingerprint(info) != ready.fingerprint:
                listener.note(f"{name} was made for {ready.device}, and this is another device")
            planned = _with_model(ready, Path(name) / ready.model_file, sizes, listener)
        elif sizes:
            planned = _with_model(ready.bundle, ready.model.path, sizes, listener)
        else:
            planned = ready
        with listener.working("running eager PyTorch"):
            program = planned.model.program
            if inputs is None:
                examples, references = eager_reference(program, planned.model.eager, options)
            else:
                examples, references = _checked(planned, inputs)
        floats = None
        if planned.model.mixed is not None:  # the references are in the same arithmetic
            floats, references = references, program.module(*examples)
        bundle = planned.bundle_for(info)
        check_levels(bundle, info, title)
        report = run_bundle_on(
            bundle, program, examples, references, client, options, listener, floats
        )
    return Result(replace(planned, converted=bundle), report)


def _for_phone(
    ready: ModelPlan | Bundle, info: AgentInfo, title: str, listener: Listener
) -> ModelPlan | Bundle:
    """Picks this phone's plan from a bundle for several phones, and notes the choice."""
    bundle = ready if isinstance(ready, Bundle) else ready.converted
    if bundle is None or bundle.plan_set is None:
        return ready
    phone = names_of(info)
    own = bundle.for_phone(phone)
    if own is not bundle:
        key = bundle.plan_set.for_phone(phone)[1]
        words = _NAMES.get(key.partition(":")[0], "it has no name that the bundle knows")
        listener.note(f"{title}: this phone's plan is {own.plan.name} ({words})")
    if isinstance(ready, Bundle):
        return own
    return replace(ready, plans=own.plans, device=own.device, converted=own)


_NAMES = {
    "build": "by its build",
    "soc": "by its SoC",
    "nnapi": "by its accelerators and their feature levels",
}


def _stored(folder: Path) -> Bundle:
    """Reads a plan's folder, without its model, so that errors in the path appear at once."""
    bundle = read_bundle(folder)
    model = folder / bundle.model_file
    if not model.exists():
        raise SerializationError(
            f"{folder}: the bundle is damaged ({model.name} is missing)",
            "make it again with `nnapi-prof partition`",
        )
    return bundle


def _with_model(bundle: Bundle, path: Path, sizes: Sequence[str], listener: Listener) -> ModelPlan:
    """Reads the model of a bundle, for ``sizes`` if any, and returns the plan with it."""
    with listener.working(f"reading {path.name}"):
        if sizes:
            bundle, program = at_sizes(bundle, path, sizes)
        else:
            program = load_program(path, bundle.inputs, mixed=bundle.mixed)
            listener.notes(*program.notes)
    unit_cache = replace(UnitGraphCache.of(program), name=bundle.model)
    return ModelPlan(
        model=Model(path, tuple(sizes) or bundle.inputs, unit_cache, mixed=bundle.mixed),
        plans=bundle.plans,
        device=bundle.device,
        conditions=bundle.conditions,
        converted=bundle,
    )


def _checked(
    planned: ModelPlan, inputs: Sequence[Tensor]
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Checks the inputs, and returns them with eager PyTorch's outputs."""
    examples = planned.model.program.example_inputs
    fit = len(inputs) == len(examples) and all(
        tensors.shape == example.shape and tensors.dtype == example.dtype
        for tensors, example in zip(inputs, examples, strict=True)
    )
    if not fit:
        planned_inputs = ", ".join(f"{list(example.shape)} {example.dtype}" for example in examples)
        these_inputs = (
            ", ".join(f"{list(tensors.shape)} {tensors.dtype}" for tensors in inputs) or "none"
        )
        raise InputSpecError(
            f"the plan was made for the inputs {planned_inputs}; given were {these_inputs}"
        )
    tensors = tuple(inputs)
    return tensors, planned.model.eager(*(value.clone() for value in tensors))


def eager_reference(
    program: Program,
    eager: Callable[..., tuple[Tensor, ...]],
    options: RunOptions | None = None,
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Returns the inputs to run with, and eager PyTorch's outputs for them; a model that draws
    random numbers gets the same numbers as its parts on the host."""
    from nnapi_prof.execution.judgement import choose_inputs

    inputs = choose_inputs(program, (options or RunOptions()).seed)
    if program.draws:
        import torch

        with torch.inference_mode():
            return inputs, tuple(program.module(*inputs))
    return inputs, eager(*(value.clone() for value in program.as_given(inputs)))


def run_bundle_on(
    bundle: Bundle,
    program: Program,
    inputs: Sequence[Tensor],
    references: Sequence[Tensor],
    client: AgentClient,
    options: RunOptions | None = None,
    listener: Listener = SILENT,
    floats: Sequence[Tensor] | None = None,
) -> RunReport:
    """Runs a bundle on an open device, under the conditions it was planned for, and compares its
    outputs with ``references``. For a bundle with units in 8 bits these are outputs of the
    quantised model in eager PyTorch, and ``floats`` those of the float model. Raises AgentError
    where the plan does not run."""
    from nnapi_prof.execution.run import run_bundle

    options = (options or RunOptions()).under(bundle.conditions)
    heard = listener.counting("running", len(bundle.plans) if options.baselines else 1)
    return run_bundle(bundle, program, inputs, references, client, options, heard, floats)


@dataclass(frozen=True)
class Result:
    """Result of a run: latencies of the plan and its baselines, and comparisons of all outputs."""

    planned: ModelPlan
    """The plan, with its regions converted for the device it ran on."""
    run: RunReport = field(repr=False)
    """All measurements, in ns."""

    @property
    def simulated(self) -> bool:
        """Whether it ran on a simulated phone, so that its latencies are computed, not measured."""
        return self.run.simulated

    @property
    def device(self) -> str:
        """The name of its device, for people."""
        return self.run.device

    @property
    def conditions(self) -> Conditions:
        """The conditions for which it was planned."""
        return self.planned.conditions

    @property
    def latency_ms(self) -> float:
        """The median measured latency of the plan, end to end, in ms; NaN where all of it runs on
        the host, whose time is not measured."""
        median = self.run.runs[0].median_ns
        return float("nan") if median is None else median / 1e6

    @property
    def predicted_ms(self) -> float:
        """The predicted latency, in ms."""
        return self.run.runs[0].predicted_ns / 1e6

    @property
    def error(self) -> float:
        """The relative error of the prediction: (predicted - measured) / measured."""
        return (self.predicted_ms - self.latency_ms) / self.latency_ms

    @property
    def agrees(self) -> bool:
        """Whether every output agrees with eager PyTorch's within the tolerance."""
        return mismatch(self.run) is None

    def raise_for_mismatch(self) -> None:
        """Raises MismatchError, naming the worst output, unless all agree."""
        wrong = mismatch(self.run)
        if wrong is not None:
            raise wrong

    def frame(self) -> pd.DataFrame:
        """Returns one row for the plan and each baseline: ``plan``, ``predicted_ms``,
        ``measured_ms`` (median), ``p10_ms``, ``p90_ms`` and ``p95_ms`` (percentiles), ``first_ms``
        (the cold run), ``error`` (relative, of the prediction), ``against_plan`` (measured, as a
        multiple of the plan's), ``runs``, ``failure``."""
        import numpy as np
        import pandas as pd

        rows = []
        for run in self.run.runs:
            samples = np.array(run.total_ns, dtype=np.float64) / 1e6
            low, middle, high, p95 = (
                np.percentile(samples, [10, 50, 90, 95]) if len(samples) else (float("nan"),) * 4
            )
            predicted = run.predicted_ns / 1e6
            rows.append(
                {
                    "plan": run.plan.name,
                    "predicted_ms": predicted,
                    "measured_ms": middle,
                    "p10_ms": low,
                    "p90_ms": high,
                    "p95_ms": p95,
                    "first_ms": float("nan") if run.first_ns is None else run.first_ns / 1e6,
                    "error": (predicted - middle) / middle,
                    "against_plan": middle / self.latency_ms,
                    "runs": len(samples),
                    "failure": run.error or "",
                }
            )
        return pd.DataFrame(rows)

    def frames(self) -> pd.DataFrame:
        """Returns one row for each way of running many frames at once: ``way``, ``plans`` (how
        many), ``predicted_per_second`` and ``frames_per_second`` (NaN where unknown), ``error``
        (relative, of the prediction), ``against_plan`` (as a multiple of the first row's),
        ``latency_ms`` (median) and ``latency_95_ms`` of a frame, ``frames``, ``same`` (how many
        equal, bit by bit, the output of their plan alone), ``failure``. Empty without ``frames`` in
        :func:`nnapi_prof.run`; ``run.frames`` has each frame's times, and the spans of each
        lane."""
        from nnapi_prof.reports.frames import rate_frame

        return rate_frame(self.run.frames)

    def segments(self) -> pd.DataFrame:
        """Returns one row for each segment of each plan that ran, predicted and measured
        (median)."""
        from nnapi_prof.reports.frames import segment_frame

        return segment_frame(self.run.runs)

    def outputs(self) -> pd.DataFrame:
        """Returns one row for each output: ``output``, ``shape``, ``max_abs`` (largest difference),
        ``relative`` (to its largest value), ``tolerance`` (largest allowed ``relative``),
        ``agrees``, ``evidence`` (kind of its content: anything but ``values`` leaves little to
        compare)."""
        import pandas as pd

        return pd.DataFrame(
            [
                {
                    "output": check.name,
                    "shape": check.shape,
                    "max_abs": check.max_abs,
                    "relative": check.relative,
                    "tolerance": check.tolerance,
                    "agrees": check.ok,
                    "evidence": check.evidence.value,
                }
                for check in self.run.checks
            ]
        )

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the plan like :meth:`ModelPlan.save`, with this run for ``nnapi-prof report``, and
        returns the folder. Raises UsageError where it cannot be written."""
        folder = self.planned.save(path)
        keep_result(folder, self.run)
        return folder

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        costs: str | os.PathLike[str] | None = None,
    ) -> Path:
        """Writes a report; returns its path.

        The suffix decides the format: ``.html`` (one self-contained file), ``.md``, ``.trace.json``
        (for ui.perfetto.dev). ``costs`` is the cost table, used where the plan was read from a
        folder.

        Raises UsageError where it cannot be written or nothing was measured, CostError where the
        table lacks the model.
        """
        from nnapi_prof.reports.bundle_data import write

        return write(Path(path), self.report_data(costs=costs))

    def headline(self, *, costs: str | os.PathLike[str] | None = None) -> str:
        """Returns the first sentences of a report: the plan, its latency, and its gain over the
        fastest rule that needs no partitioner. ``costs`` and errors are those of
        :meth:`report`."""
        from nnapi_prof.reports.frames import baseline_frame
        from nnapi_prof.reports.headline import headline

        data = self.report_data(costs=costs)
        return headline(data, baseline_frame(data.plans, data.run, data.permutes)).sentence

    def report_data(self, *, costs: str | os.PathLike[str] | None = None) -> ReportData:
        """Returns the data of a report, for custom reports."""
        return self.planned.report_data(self.run, costs=costs)

    def __repr__(self) -> str:
        kind = notebook.kind_of(self.simulated)
        agrees = "outputs agree" if self.agrees else "outputs DIFFER"
        if self.agrees and not any(check.tells for check in self.run.checks):
            agrees = "outputs agree, with little to compare"
        return (
            f"Result({self.run.model!r} on {device_name(self.device)!r},"
            f" {self.latency_ms:.3f} {kind}, predicted {self.predicted_ms:.3f}, {agrees})"
        )

    def _repr_html_(self) -> str:
        measured = notebook.kind_of(self.run.simulated)
        predicted = notebook.kind_of(self.planned.simulated, self.planned.estimated)
        plans = [cells[:-1] for cells in plan_cells(self.run)]
        from nnapi_prof.execution.compare import verdict

        checks = [
            [
                check.name,
                "x".join(map(str, check.shape)),
                *check.texts(),
                verdict(check),
            ]
            for check in self.run.checks
        ]
        heads = ["plan", f"predicted, {predicted}", f"measured, {measured}", "95 % within", "error"]
        return (
            notebook.table(
                f"{self.run.model} on {self.device}: plan and baselines",
                [*heads, "against the plan"],
                plans,
                numbers=(1, 2, 3, 4, 5),
            )
            + notebook.table(
                "Outputs beside eager PyTorch's, relative to the largest value",
                ["output", "shape", "difference", "allowed", "verdict"],
                checks,
                numbers=(2, 3),
            )
            + notebook.notes(self.run.notes)
        )


def keep_result(bundle: Path, report: RunReport) -> Path:
    """Writes a run's report into its bundle, which keeps earlier ones, and returns the file."""
    from nnapi_prof.execution.report import keep

    return keep(bundle, report)


def mismatch(report: RunReport) -> MismatchError | None:
    """Returns an error for the worst output beyond its tolerance; None where all agree."""
    wrong = [check for check in report.checks if not check.ok]
    if not wrong:
        return None
    worst = max(wrong, key=lambda check: check.relative)
    if worst.tolerance == 0:
        return MismatchError(
            f"output {worst.name} differs from eager PyTorch by up to {worst.max_abs:.4g}; integers"
            " must be equal",
            f"`nnapi-prof bisect` finds the operation, {option_name('tolerance')}"
            " allows them as much of the largest",
        )
    difference, allowed = worst.texts(2)
    return MismatchError(
        f"output {worst.name} differs from eager PyTorch by {difference} of its largest value,"
        f" {allowed} is allowed",
        "`nnapi-prof bisect` finds the operation"
        f" at fault; give a larger {option_name('tolerance')} if that is accurate enough",
    )
