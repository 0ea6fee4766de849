"""The folder of a plan that was estimated for a Snapdragon; no device runs it.

manifest.json         the plan, the costs behind it and their origin, with its own SHA-256
model.pt | model.pt2  the original
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nnapi_prof.advice import Advice
from nnapi_prof.api.costs import Costs
from nnapi_prof.api.model import Model, load
from nnapi_prof.bundle.storage import (
    CHIP_FORMAT,
    check_model,
    file_checksum,
    kept_advice,
    read_manifest,
    replace_folder,
    write_manifest,
)
from nnapi_prof.costs import Conditions
from nnapi_prof.errors import SerializationError, escape_untrusted
from nnapi_prof.execution.build import input_specs
from nnapi_prof.graph.plan import Plan
from nnapi_prof.qnn.calibration import ChipOrigin
from nnapi_prof.qnn.costs import ChipCosts

VERSION = 1
"""Version of the manifest."""


@dataclass(frozen=True)
class ChipPlan:
    """The content of the folder of an estimated plan."""

    model: Model
    plans: tuple[Plan, ...]
    """The plan, then its baselines."""
    costs: Costs
    advice: tuple[Advice, ...] = ()


def write_chip_bundle(folder: Path, model: Model, plans: Sequence[Plan], costs: Costs) -> None:
    """Writes a plan made from a chip's costs, and replaces a bundle in the same place.

    Raises UsageError where something else is in that place.
    """
    priced, origin = _chip_costs(costs)
    model_file = f"model{model.path.suffix}"

    def write(target: Path) -> None:
        target.mkdir(parents=True)
        shutil.copyfile(model.path, target / model_file)
        manifest = {
            "format": CHIP_FORMAT,
            "version": VERSION,
            "estimated": True,
            "model": model.name,
            "model_file": model_file,
            "model_sha256": file_checksum(target / model_file),
            "inputs": list(input_specs(model.program)),
            "device": costs.device,
            "plans": [json.loads(plan.to_json()) for plan in plans],
            "costs": priced.to_json(),
            "origin": origin.to_json(),
            "notes": list(costs.notes),
        }
        write_manifest(target, manifest)

    replace_folder(folder, write)


def read_chip_bundle(folder: Path) -> ChipPlan:
    """Reads the folder that :func:`write_chip_bundle` wrote. Raises SerializationError where it is
    damaged."""
    try:
        data = read_manifest(folder / "manifest.json", CHIP_FORMAT, VERSION)
        check_model(folder, data)
        model = load(folder / data["model_file"], data["inputs"])
        model = replace(model, unit_cache=replace(model.unit_cache, name=data["model"]))
        plans = tuple(Plan.from_json(json.dumps(plan)) for plan in data["plans"])
        costs = Costs(
            model=model,
            device=data["device"],
            conditions=Conditions(),
            priced=ChipCosts.from_json(model.graph, data["costs"]),
            estimated=True,
            origin=ChipOrigin.from_json(data["origin"]),
            notes=tuple(data["notes"]),
        )
        placed = {unit for segment in plans[0].segments for unit in segment.units}
        if placed != set(range(len(model.graph.units))):
            raise SerializationError("the plan is not of the model beside it")
        return ChipPlan(model, plans, costs, kept_advice(folder))
    except (KeyError, TypeError, ValueError, IndexError, SerializationError, OSError) as error:
        raise SerializationError(
            f"{folder}: the bundle is damaged ({escape_untrusted(str(error), 300)})",
            "make it again with `nnapi-prof partition`",
        ) from error


def _chip_costs(costs: Costs) -> tuple[ChipCosts, ChipOrigin]:
    assert isinstance(costs.priced, ChipCosts)
    assert costs.origin is not None
    return costs.priced, costs.origin
