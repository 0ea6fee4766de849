"""The ways of a bundle into an app, each with its command."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from nnapi_prof.bundle.bundle import Bundle
from nnapi_prof.bundle.runtime import runtime_bundle
from nnapi_prof.errors import UsageError
from nnapi_prof.graph.plan import AUTO, Engine, Plan, Precision, Segment


class AppRuntime(Enum):
    """A runtime that runs a bundle in an app."""

    AAR = "Android app (Java, Kotlin)"
    LIBRARY = "C library"
    EXECUTORCH = "ExecuTorch"
    CPP = "C++ classes for NNAPI"
    STOCK = "stock PyTorch"


@dataclass(frozen=True)
class DeployStep:
    """The command that puts a bundle into one runtime."""

    runtime: AppRuntime
    command: str
    refusal: str | None
    """Why the bundle cannot go there; None where it can."""


def deploy_steps(bundle: Bundle, folder: str | os.PathLike[str]) -> tuple[DeployStep, ...]:
    """Lists the next commands, one step for each runtime that can take the bundle in ``folder``
    into an app."""
    path = Path(folder)
    if path.name in ("", ".."):
        path = path.resolve()
    stem, named = path.with_suffix(""), _quoted(path)
    refusal = _refusal(runtime_bundle, bundle)
    on_nnapi = any(segment.target.engine is Engine.NNAPI for segment in bundle.plan.segments)
    return (
        DeployStep(AppRuntime.AAR, f"nnapi-prof ship --aar {named}", refusal),
        DeployStep(
            AppRuntime.LIBRARY,
            f"nnapi-prof convert --format runtime -o {_quoted(stem.with_suffix('.nnprt'))} {named}",
            refusal,
        ),
        DeployStep(
            AppRuntime.EXECUTORCH,
            f"nnapi-prof convert --to executorch -o {_quoted(stem.with_suffix('.pte'))} {named}",
            _executorch_refusal(bundle),
        ),
        DeployStep(
            AppRuntime.CPP,
            f"nnapi-prof convert --format cpp -o {_quoted(stem)} {named}",
            None if on_nnapi else "its plan gives NNAPI nothing to run",
        ),
        DeployStep(AppRuntime.STOCK, f"nnapi-prof convert {named}", _refusal(stock_plan, bundle)),
    )


def _executorch_refusal(bundle: Bundle) -> str | None:
    engines = {segment.target.engine for segment in bundle.plan.segments}
    if engines == {Engine.HOST}:
        return only_host(bundle.model)
    return open_sizes(bundle.model, bundle.inputs) if Engine.NNAPI in engines else None


def only_host(model: str) -> str:
    """Why a plan of which nothing runs on a device has no time to be chosen by."""
    return f"nothing of {model} runs on the device: every operation is left to eager PyTorch"


def open_sizes(model: str, inputs: Sequence[str]) -> str | None:
    """Why a plan of a model with these inputs is no ExecuTorch file: its calls have fixed sizes."""
    stated = [text for text in inputs if "?" in text]
    if not stated:
        return None
    return (
        f"{model} leaves sizes open ({', '.join(stated)}), and those of a delegated call are fixed:"
        " make the plan with each stated; for several sizes write a file of each"
    )


def stock_plan(bundle: Bundle) -> Plan:
    """The fastest of a bundle's plans that stock PyTorch can follow.

    It cannot name an accelerator, so that only plans for the CPU and ``auto`` come into question.
    Raises UsageError where all plans name others, and where NNAPI runs nothing of the fastest.
    """
    possible = [plan for plan in bundle.plans if all(map(_can_follow, plan.segments))]
    if not possible:
        raise UsageError(
            "every plan of the bundle names an accelerator, which stock PyTorch cannot",
            "convert the"
            " model instead, or make the bundle again where NNAPI's own choice (auto) was measured",
        )
    plan = min(possible, key=lambda p: p.predicted_ns)
    if not any(s.target.engine is Engine.NNAPI for s in plan.segments):
        raise UsageError(
            f"of the bundle's plans that name no accelerator, which stock PyTorch cannot, the"
            f" fastest is {plan.name}, and it gives NNAPI nothing to run",
            "use the model as it is, or convert it in spite of the plan",
        )
    return plan


def float32_cpu(bundle: Bundle, plan: Plan, by: str) -> str | None:
    """Describes that the CPU's parts of a plan in half precision are computed in float32 ``by``
    something that has no other; None where there are none."""
    precision = bundle.conditions.precision
    on_cpu = [s for s in plan.segments if s.target.engine is Engine.CPU]
    if precision not in (Precision.RELAXED, Precision.FLOAT16) or not on_cpu:
        return None
    return (
        f"{by} computes what the plan has on the CPU in float32; times under"
        f" --{precision.value} are of float16, where the phone's CPU has it"
    )


def _can_follow(segment: Segment) -> bool:
    target = segment.target
    return target.engine is not Engine.NNAPI or target.accelerator == AUTO


def _refusal(check: Callable[[Bundle], object], bundle: Bundle) -> str | None:
    """Why what makes something of a bundle refuses this one."""
    try:
        check(bundle)
    except UsageError as error:
        return str(error)
    return None


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))
