"""Plans for stock PyTorch: NNAPI chooses the accelerator and is handed addresses."""

from __future__ import annotations

from dataclasses import replace

from nnapi_prof.api.cost_tables import read_costs
from nnapi_prof.api.model import Model
from nnapi_prof.api.objectives import Latency
from nnapi_prof.api.planning import partition
from nnapi_prof.bundle.bundle import Bundle
from nnapi_prof.costs.conditions import Mode, Precision
from nnapi_prof.errors import CostError, PartitionError, UsageError
from nnapi_prof.graph.plan import AUTO, Engine


def with_addresses(bundle: Bundle, model: Model) -> Bundle | None:
    """Return a bundle planned by costs of tensors at addresses, with the cost table's rows of its
    device under its other conditions; the bundle itself if it is, or NNAPI runs nothing of it. None
    if these rows are not there."""
    on_nnapi = any(s.target.engine is Engine.NNAPI for plan in bundle.plans for s in plan.segments)
    if bundle.conditions.mode is Mode.POINTERS or not on_nnapi or bundle.mixed is not None:
        return bundle
    asked = bundle.conditions
    try:
        costs = read_costs(
            model,
            device=bundle.fingerprint,
            threads=asked.threads,
            cpus=asked.cpus,
            mode=Mode.POINTERS.value,
            relaxed=asked.precision is Precision.RELAXED,
            float16=asked.precision is Precision.FLOAT16,
            sustained=asked.sustained_s,
        )
        named = [t.key for t in costs.priced.targets if t.accelerator not in (None, AUTO)]
        if not any(target.accelerator == AUTO for target in costs.priced.targets):
            return None
        planned = partition(
            model, costs, Latency(forbid=[f"*={key}" for key in named]), verify=False
        )
    except (CostError, UsageError, PartitionError):
        return None
    return replace(bundle, plans=planned.plans, conditions=costs.conditions)
