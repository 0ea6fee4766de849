"""A model's whole ``.pte``, by our plan."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from nnapi_prof.errors import NnapiProfError, UsageError
from nnapi_prof.executorch.aot import (
    ExecutorchProgramManager,
    XnnpackPartitioner,
    portable_lib,
    silence,
    to_edge_transform_and_lower,
)
from nnapi_prof.executorch.partitioner import NnapiPartitioner, Priority
from nnapi_prof.executorch.placement import (
    LEVEL,
    DelegatedCall,
    bundle_for,
    check_sizes,
    placed_module,
    plain_module,
)
from nnapi_prof.executorch.region_times import error_line
from nnapi_prof.frontend.loader import ModelKind, model_kind, read_exported
from nnapi_prof.graph.plan import Engine

if TYPE_CHECKING:
    from nnapi_prof.api.costs import Costs
    from nnapi_prof.api.model import Model
    from nnapi_prof.api.plan import ModelPlan


@dataclass(frozen=True)
class Lowered:
    """A program for ExecuTorch, and the plan that it follows."""

    plan: ModelPlan
    calls: tuple[DelegatedCall, ...] = field(repr=False)
    """What NNAPI's delegate runs, in order."""
    manager: ExecutorchProgramManager = field(repr=False)
    """ExecuTorch's own."""

    @property
    def buffer(self) -> bytes:
        """The bytes of the file."""
        return bytes(self.manager.buffer)

    def backends(self) -> dict[str, int]:
        """Name of each back end -> calls of it in ``forward``."""
        counts: dict[str, int] = {}
        program = self.manager.exported_program()
        for name in program.graph_module._modules:
            backend = getattr(getattr(program.graph_module, name), "backend_id", None)
            if backend is not None:
                counts[backend] = counts.get(backend, 0) + 1
        return counts

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the ``.pte``."""
        file = Path(path)
        with file.open("wb") as stream:
            self.manager.write_to_file(stream)
        return file


def lower(
    model: Model | ModelPlan | str | os.PathLike[str],
    costs: Costs | None = None,
    *,
    whole: bool = False,
    level: int = LEVEL,
    priority: Priority | None = None,
    **options: Any,
) -> Lowered:
    """A model for ExecuTorch: NNAPI's segments of its plan go to our delegate, the CPU's to
    XNNPACK's, what neither runs to ExecuTorch's portable kernels.

    ``model`` is a plan (of :func:`nnapi_prof.partition`, or a bundle's folder), or a model, of
    which ``costs`` make one with ``options`` as :func:`nnapi_prof.partition` takes them; where they
    are estimated, ``level`` is the phone's feature level. With ``whole`` the plan is one delegated
    call, its segments on the CPU run by our own engine, and the file has all plans of a mixture.
    ``priority`` is NNAPI's for its segments. A plan that has nothing on NNAPI gives what ExecuTorch
    gives with XNNPACK alone.

    Raises NnapiProfError where there is no such plan, UsageError where ExecuTorch cannot have it or
    lacks a kernel of it.
    """
    planned = _planned(model, costs, options)
    program = planned.model.program
    on_nnapi = any(s.target.engine is Engine.NNAPI for s in planned.plan.segments)
    calls: tuple[DelegatedCall, ...] = ()
    if on_nnapi or whole:
        check_sizes(planned.model)
    with silence():
        if on_nnapi or whole:
            module, calls = placed_module(program, bundle_for(planned, level), whole)
            exported = torch.export.export(module, program.example_inputs, strict=False)
        elif planned.model.mixed is None and model_kind(planned.model.path) is ModelKind.EXPORTED:
            exported = read_exported(planned.model.path)
        else:
            module = plain_module(program)
            exported = torch.export.export(module, program.example_inputs, strict=False)
        try:
            manager = to_pte(exported, planned, calls, priority)
        except NnapiProfError:
            raise
        except Exception as error:  # ExecuTorch's passes and verifiers raise what they like
            raise UsageError(
                f"ExecuTorch cannot lower {planned.plan.name} of {planned.model.name}:"
                f" {error_line(error)}; take another way into the app"
            ) from error
    missing = missing_kernels(manager)
    if missing:
        raise UsageError(
            f"ExecuTorch has no kernel of {', '.join(missing)}, which {planned.plan.name} of"
            f" {planned.model.name} leaves to it: it would not load the file; pin that unit to an"
            " accelerator (`nnapi-prof partition --pin`), or take another way into the app"
        )
    return Lowered(planned, calls, manager)


def missing_kernels(manager: ExecutorchProgramManager) -> list[str]:
    """Operators of a program, outside of delegates, that ExecuTorch has not on this host: its
    portable and quantised kernels are those of every phone."""
    registered = set(portable_lib._get_operator_names())
    names = (
        f"{operator.name}.{operator.overload}" if operator.overload else operator.name
        for plan in manager.executorch_program.execution_plan
        for operator in plan.operators
    )
    return [name for name in dict.fromkeys(names) if name not in registered]


def to_pte(
    exported: torch.export.ExportedProgram,
    planned: ModelPlan,
    calls: tuple[DelegatedCall, ...],
    priority: Priority | None = None,
) -> ExecutorchProgramManager:
    """A program with these delegated calls, XNNPACK's delegate for the rest."""
    ours = [NnapiPartitioner.of_calls(planned, calls, priority)] if calls else []
    edge = to_edge_transform_and_lower(exported, partitioner=[*ours, XnnpackPartitioner()])
    return edge.to_executorch()


def _planned(
    model: Model | ModelPlan | str | os.PathLike[str], costs: Costs | None, options: dict[str, Any]
) -> ModelPlan:
    from nnapi_prof.api.model import as_model
    from nnapi_prof.api.plan import ModelPlan, read_plan
    from nnapi_prof.api.planning import partition

    if isinstance(model, ModelPlan):
        return model
    if costs is not None:
        return partition(as_model(model), costs, **options)
    if isinstance(model, str | os.PathLike) and (Path(model) / "manifest.json").is_file():
        return read_plan(model)
    raise UsageError(
        "costs or a plan are missing",
        "give costs (profile() measures, estimate() needs no phone),"
        " or a plan instead of the model",
    )
