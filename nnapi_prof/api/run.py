"""Running a plan on a device, beside eager PyTorch."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from nnapi_prof.api.bundles import at_sizes, names_of
from nnapi_prof.api.model import Model, load_program
from nnapi_prof.api.options import SILENT, Listener, Progress, open_client, to_log
from nnapi_prof.api.plan import ModelPlan
from nnapi_prof.api.result import Result
from nnapi_prof.bundle.bundle import Bundle
from nnapi_prof.bundle.storage import read_bundle
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.device.protocol.description import describe, device_fingerprint
from nnapi_prof.device.protocol.results import AgentInfo
from nnapi_prof.errors import (
    InputSpecError,
    SerializationError,
    UsageError,
    for_caller,
    option_name,
)
from nnapi_prof.execution.options import RunOptions
from nnapi_prof.execution.profile.unit_graph_cache import UnitGraphCache
from nnapi_prof.execution.report import RunReport
from nnapi_prof.graph.plan import AUTO, Plan

if TYPE_CHECKING:
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
    """Runs a plan on a device, as ``nnapi-prof run`` does, and compares its outputs.

    ``plan`` is a :class:`nnapi_prof.ModelPlan` or the folder of one. ``device`` is that of
    :func:`nnapi_prof.profile`; None the one that the plan was made on. ``inputs`` are tensors of
    the shapes that it was made for; None the model's bundled ones, else random ones, of ``seed``.
    ``runs`` of each plan are recorded, of the ``baselines``, too. ``frames`` are run besides, many
    at once, in each way that the plan was made with (:meth:`Result.frames`); of a plan that was not
    made for frames at once with its own lanes, and with each baseline's. Latencies contain copies
    from and to an app's buffers, with the ``boundary`` ``"model"`` they do not. ``tolerance`` is
    the largest difference of an output relative to its largest value; None 1e-4, in less than
    float32 2e-2.
    ``cpus``, ``cooldown_s`` and ``memory_mb`` are those of :func:`nnapi_prof.profile`. ``sizes``
    are shapes for inputs whose sizes the plan leaves open, as ``"1x3x256x256"``. A ``listener``
    hears notes, too, in place of ``progress``.

    Outputs that differ are told in the result (``Result.agrees``), not raised.
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
        if planned.model.mixed is not None:  # what is compared is the same arithmetic
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
    """A plan's folder, read before its model is: what is wrong with the path is said at once."""
    bundle = read_bundle(folder)
    model = folder / bundle.model_file
    if not model.exists():
        raise SerializationError(
            f"{folder}: the bundle is damaged ({model.name} is missing)",
            "make it again with `nnapi-prof partition`",
        )
    return bundle


def _with_model(bundle: Bundle, path: Path, sizes: Sequence[str], listener: Listener) -> ModelPlan:
    """A bundle's plan with its model, for ``sizes`` where some are stated."""
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
    """The inputs, and eager PyTorch's outputs for them."""
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
            f" device with {option_name('device')}, or make a bundle for this one with `nnapi-prof"
            " profile` and `nnapi-prof partition`"
        )


def check_levels(bundle: Bundle, info: AgentInfo, name: str) -> None:
    """Raises UsageError where a model of a bundle has an operation of a later feature level than
    the accelerator of that name has on a device. ``name`` is the plan's for people."""
    levels = {each.name: each.feature_level for each in info.nnapi.accelerators}
    for segment in (segment for plan in bundle.plans for segment in plan.segments):
        own = levels.get(segment.target.accelerator or "")
        if own is None:
            continue
        needed = bundle.region(segment.units, segment.target).level
        if needed > max(own, bundle.levels[segment.target.base.key]):
            raise UsageError(
                f"{name} was made for {bundle.device}, and has an operation of feature level"
                f" {needed} on {segment.target.accelerator}: {describe(info)} has level {own}"
                " there; make a bundle for this one with `nnapi-prof profile` and"
                " `nnapi-prof partition`"
            )


def eager_reference(
    program: Program,
    eager: Callable[..., tuple[Tensor, ...]],
    options: RunOptions | None = None,
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """The inputs to run with, and the outputs that eager PyTorch gives for them; where the model
    draws random numbers, for those that parts on the host draw."""
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
    """:func:`run` where all is open already: runs a bundle under the conditions it was planned
    for, and compares its outputs with ``references``. Of a bundle with units in 8 bits these are
    of the quantised model in eager PyTorch, and ``floats`` those of the float one. Raises
    AgentError where the plan does not run."""
    from nnapi_prof.execution.run import run_bundle

    options = (options or RunOptions()).under(bundle.conditions)
    heard = listener.counting("running", len(bundle.plans) if options.baselines else 1)
    return run_bundle(bundle, program, inputs, references, client, options, heard, floats)
