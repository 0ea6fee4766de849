"""All that NNAPI can say goes to one accelerator: what a partitioner does that asks no costs."""

from __future__ import annotations

import math

import numpy as np

from nnapi_prof.api.bundles import DescribedDevice, bundle_at
from nnapi_prof.api.model import Model
from nnapi_prof.bundle.bundle import Bundle
from nnapi_prof.convert.lower import why_not
from nnapi_prof.costs.conditions import Conditions
from nnapi_prof.executorch.placement import computes_nothing
from nnapi_prof.graph.plan import CPU, Plan, Segment, Target
from nnapi_prof.graph.program import Program
from nnapi_prof.partition import Problem
from nnapi_prof.partition.baselines import merge_by_target

NAME = "supported"
"""Of the plan."""


def supported_bundle(model: Model, target: Target, level: int) -> Bundle:
    """A bundle whose plan gives a target all units that can be said at a feature level, in regions
    as large as they can be, and the CPU the rest. Raises UnsupportedOp."""
    program = model.program
    plan = supported_plan(program, target, level)
    device = DescribedDevice({target.base.key: level, CPU.key: level}, "", "", False)
    file = f"model{model.path.suffix}"
    return bundle_at(program, file, device, (plan,), Conditions(), model.notes)


def supported_plan(program: Program, target: Target, level: int) -> Plan:
    """Plans all supported units on the target. Leaves changes of dim order next to the model's
    inputs and outputs to the caller."""
    graph = program.units
    n = len(graph.units)
    border = {*graph.inputs, *graph.outputs}
    on_cpu = [
        why_not(program, unit.index, level) is not None
        or (
            computes_nothing(program, unit) and not border.isdisjoint((*unit.inputs, *unit.outputs))
        )
        for unit in graph.units
    ]
    unit_ns = np.array([[0.0, math.inf if off else 0.0] for off in on_cpu]).reshape(n, 2)
    problem = Problem(
        labels=tuple(unit.label for unit in graph.units),
        predecessors=tuple(graph.predecessors(u) for u in range(n)),
        values=(),
        targets=(CPU, target),
        unit_ns=unit_ns,
        overhead_ns=np.zeros(2),
        in_ns_per_byte=np.zeros(2),
        out_ns_per_byte=np.zeros(2),
    )
    segments = tuple(
        Segment(units, problem.targets[k], 0.0, f"NNAPI can say it at level {level}")
        if k
        else Segment(units, CPU, 0.0, "NNAPI cannot say it, or it computes nothing")
        for units, k in merge_by_target(problem, [0 if off else 1 for off in on_cpu])
    )
    return Plan(NAME, segments, False)
