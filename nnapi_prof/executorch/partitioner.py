"""ExecuTorch's partitioner: what our plan has on NNAPI goes to our delegate."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from nnapi_prof.errors import UsageError
from nnapi_prof.executorch.aot import CompileSpec, DelegationSpec, Partitioner, PartitionResult
from nnapi_prof.executorch.backend import NnapiBackend, is_call
from nnapi_prof.executorch.calls import DelegatedCall
from nnapi_prof.executorch.placement import LEVEL, bundle_for, placed_module
from nnapi_prof.frontend.torch_logging import quiet_torch
from nnapi_prof.graph.plan import Engine

if TYPE_CHECKING:
    from nnapi_prof.api.costs import Costs
    from nnapi_prof.api.plan import Planned


Priority = Literal["low", "medium", "high"]
"""NNAPI's PriorityCode, in words."""


class NnapiPartitioner(Partitioner):  # type: ignore[misc]
    """For ``to_edge_transform_and_lower(program, partitioner=[NnapiPartitioner(costs), ...])``.

    ``source`` says what runs where: :class:`~nnapi_prof.Costs` of the program's model, measured
    (``nnapi_prof.profile``) or estimated (``nnapi_prof.estimate``, the static model), of which a
    plan is made, or a plan of it (``nnapi_prof.partition``, ``read_plan``). ``options`` are
    :func:`nnapi_prof.partition`'s; ``level`` is the phone's feature level, where costs are
    estimated; ``priority`` is NNAPI's for its segments, ``low``, ``medium`` or ``high``. The
    program is rewritten before it is decomposed, so this partitioner stands first; those that
    follow get what the plan leaves to the CPU. ``plan`` has the plan afterwards.
    """

    def __init__(
        self,
        source: Costs | Planned,
        *,
        level: int = LEVEL,
        priority: Priority | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        if priority not in (None, *get_args(Priority)):
            raise UsageError(f"priority {priority!r}: {', '.join(get_args(Priority))} exist")
        self._level = level
        self._specs = [CompileSpec("priority", priority.encode())] if priority else []
        self._source = source
        self._options = options
        self.plan: Planned | None = None
        self.calls: tuple[DelegatedCall, ...] = ()
        """Held here: backends find them as long as this lives."""

    @classmethod
    def of_calls(
        cls, plan: Planned, calls: tuple[DelegatedCall, ...], priority: Priority | None = None
    ) -> NnapiPartitioner:
        """For a program that has these calls already."""
        partitioner = cls(plan, priority=priority)
        partitioner.plan, partitioner.calls = plan, calls
        return partitioner

    def transform_for_pre_decomposition(self, exported_program: ExportedProgram) -> ExportedProgram:
        """The program with the plan's delegated calls. Raises NnapiProfError where there can be
        no plan, or it is of another program."""
        if self.calls:
            return exported_program
        from nnapi_prof.api.model import load
        from nnapi_prof.api.plan import Planned, partition

        model = load(exported_program)
        source = self._source
        planned = (
            source if isinstance(source, Planned) else partition(model, source, **self._options)
        )
        self.plan = planned
        if not any(s.target.engine is Engine.NNAPI for s in planned.plan.segments):
            return exported_program
        module, self.calls = placed_module(model.program, bundle_for(planned, self._level))
        return _in_form_of(exported_program, module)

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Tags each delegated call, and what reads its outputs' tuple."""
        specs = {}
        for number, node in enumerate(filter(is_call, exported_program.graph.nodes)):
            tag = f"nnapi_{number}"
            specs[tag] = DelegationSpec(NnapiBackend.__name__, self._specs)
            for each in (node, *(u for u in node.users if u.target is operator.getitem)):
                each.meta["delegation_tag"] = tag
        return PartitionResult(tagged_exported_program=exported_program, partition_tags=specs)


def _in_form_of(program: ExportedProgram, module: torch.nn.Module) -> ExportedProgram:
    """A module of flat tensors, exported with the arguments and results of a program."""
    form = program.call_spec.out_spec

    class Wrapper(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            leaves = pytree.tree_leaves((args, kwargs))
            outputs = self.inner(*(leaf for leaf in leaves if isinstance(leaf, torch.Tensor)))
            return pytree.tree_unflatten(outputs, form)

    args, kwargs = program.example_inputs
    with quiet_torch():
        return torch.export.export(Wrapper(), args, kwargs, strict=False)
