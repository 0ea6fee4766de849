"""Plans for stock PyTorch: NNAPI chooses the accelerator and is handed addresses."""

from __future__ import annotations

import os
from dataclasses import replace

from nnapi_prof.api.cost_tables import open_table, read_costs
from nnapi_prof.api.model import Model
from nnapi_prof.api.planning import partition
from nnapi_prof.api.report import naming_table
from nnapi_prof.bundle.bundle import Bundle
from nnapi_prof.costs import VARIABLE, default_location, is_there
from nnapi_prof.costs.conditions import Mode, Precision
from nnapi_prof.device.protocol.description import description_parts
from nnapi_prof.errors import NotMeasured
from nnapi_prof.graph.plan import AUTO, Engine


def with_addresses(bundle: Bundle, model: Model, costs: str | None = None) -> Bundle:
    """Return a bundle planned by costs of tensors at addresses, with the rows of its device in a
    cost table under its other conditions, and without targets that name an accelerator. The bundle
    itself if it is planned so, or NNAPI runs nothing of it.

    ``costs`` is :func:`.read_costs`'s. Raises NotMeasured where the table has no such rows (with
    ``costs`` None also where there is no table), CostError where it cannot be read, UsageError
    where ``costs`` names none, PartitionError where a unit runs nowhere under them.
    """
    on_nnapi = any(s.target.engine is Engine.NNAPI for plan in bundle.plans for s in plan.segments)
    asked = bundle.conditions
    if asked.mode is Mode.POINTERS or not on_nnapi or bundle.mixed is not None:
        return bundle
    device = description_parts(bundle.device)[0]
    with naming_table(bundle, costs):
        if costs is None and not os.environ.get(VARIABLE) and not is_there(default_location()):
            raise NotMeasured(f"there is no cost table {default_location()}")
        with open_table(costs, to_read=True) as store:
            if bundle.fingerprint not in store.fingerprints():
                raise NotMeasured(f"cost table {store.location} has nothing of {device}")
            measured = read_costs(
                model,
                store,
                bundle.fingerprint,
                threads=asked.threads,
                cpus=asked.cpus,
                mode=Mode.POINTERS.value,
                relaxed=asked.precision is Precision.RELAXED,
                float16=asked.precision is Precision.FLOAT16,
                sustained=asked.sustained_s,
            )
        model_costs = measured.measured
        assert model_costs is not None, "rows of one precision, without estimates"
        targets = tuple(t for t in model_costs.targets if t.accelerator in (None, AUTO))
        if not any(target.accelerator == AUTO for target in targets):
            raise NotMeasured(f"NNAPI's own choice ({AUTO}) was not measured with addresses")
    priced = replace(model_costs, targets=targets)
    planned = partition(model, replace(measured, priced=priced), verify=False)
    return replace(bundle, plans=planned.plans, conditions=measured.conditions)
