"""The rooms of the house and what is handed from one to the next: the picture of ARCHITECTURE.

Each type is looked up where it is said to be, so that a picture of a module that moved cannot be
drawn.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass

from drawing import Drawing

LEFT, MIDDLE, WIDTH, HEIGHT, STEP = 20, 400, 300, 52, 88


@dataclass(frozen=True)
class Room:
    """A package, what happens in it, and the type that leaves it for the next room."""

    package: str
    task: str
    more: str
    leaves: str = ""
    """``module:Class``; empty for the last room."""
    kind: str = "box"


ROOMS = (
    Room(
        "frontend",
        "reads .pt and .pt2, checks them,",
        "makes one fx graph of ATen operators",
        "torch.export:ExportedProgram",
    ),
    Room(
        "passes",
        "canonicalize, decompose, quantize, layout;",
        "then groups nodes into units",
        "nnapi_prof.graph.program:Program",
    ),
    Room(
        "convert",
        "lowers a set of units to one NNAPI model;",
        "constants go into one pool",
        "nnapi_prof.convert.region:Region",
    ),
    Room(
        "execution",
        "which units and regions to time, on what;",
        "asks the device, reads its answers",
        "nnapi_prof.costs.measurement:Measurement",
    ),
    Room(
        "costs",
        "store: every sample; model: what a region",
        "costs; estimate: the same without a phone",
        "nnapi_prof.costs.table:CostTable",
        "cost",
    ),
    Room(
        "partition",
        "the fastest plan under these costs, with a",
        "proof; baselines; causes",
        "nnapi_prof.graph.plan:Plan",
        "npu",
    ),
    Room(
        "bundle",
        "plan, regions, constants and the fit, on disk;",
        "stock PyTorch, C library",
        "nnapi_prof.bundle:Bundle",
    ),
    Room(
        "execution",
        "runs the bundle and compares it with eager",
        "PyTorch",
        "nnapi_prof.execution.report:RunReport",
    ),
    Room("reports", "tables, figures, one HTML page, traces", "and comparisons"),
)
"""From the top down, as a model goes through them."""


def class_name(place: str) -> str:
    """The class of ``module:Class``, which must be there."""
    module, name = place.split(":")
    return str(getattr(importlib.import_module(module), name).__name__)


def rooms() -> Drawing:
    """Data from room to room, from a model file down to a report."""
    handed = [class_name(room.leaves) for room in ROOMS if room.leaves]
    drawing = Drawing(
        *(720, 40 + STEP * len(ROOMS)),
        "Data through the rooms",
        "From the top down, each package and the type it hands to the next: "
        + "; ".join(
            f"{room.package} hands over {name}" for room, name in zip(ROOMS, handed, strict=False)
        )
        + "; reports ends it. Beside them: device and the C agent, which measure and run.",
    )
    drawing.words(LEFT, 20, "model.pt, model.pt2, a torch.nn.Module", "strong")
    for index, room in enumerate(ROOMS):
        y = 40 + STEP * index
        drawing.arrow(LEFT + 40, y - (14 if index else 16), LEFT + 40, y - 1)
        drawing.box(LEFT, y, WIDTH, HEIGHT, room.kind)
        drawing.words(
            LEFT + 10, y + 16, room.package, "on strong" if room.kind != "box" else "strong"
        )
        on = "on small" if room.kind != "box" else "small"
        drawing.words(LEFT + 10, y + 31, room.task, on)
        drawing.words(LEFT + 10, y + 45, room.more, on)
        if room.leaves:
            drawing.line(LEFT + 40, y + HEIGHT, LEFT + 40, y + STEP - 14)
            drawing.words(LEFT + 52, y + HEIGHT + 22, class_name(room.leaves), "strong")
    _device(drawing, "profile: requests out, JSON Lines in", 40 + STEP * 3)
    _device(drawing, "run: the bundle out, outputs and times in", 40 + STEP * 7)
    edge, measured, planned = LEFT + WIDTH, 40 + STEP * 3 + HEIGHT, 40 + STEP * 5
    drawing.path(
        f"M{edge} {planned + 20}C{edge + 50} {planned} {edge + 50} {measured} {edge} {measured - 8}"
    )
    drawing.words(edge + 46, planned - 60, "regions of the plan are measured whole,", "small")
    drawing.words(edge + 46, planned - 45, "and planned again, until the plan stands", "small")
    drawing.box(MIDDLE, 40, 300, 148, "gpu")
    for line, text in enumerate(
        (
            "api",
            "the pipeline: load, profile, partition, run,",
            "convert, report call these rooms in turn",
            "cli",
            "parses options, calls api, formats",
            "documents",
            "what --json prints, with its schemas",
        )
    ):
        title = text in ("api", "cli", "documents")
        drawing.words(MIDDLE + 10, 60 + 19 * line, text, "on strong" if title else "on small")
    drawing.box(MIDDLE, 216, 300, 64)
    drawing.words(MIDDLE + 10, 236, "graph, nnapi, errors", "strong")
    drawing.words(MIDDLE + 10, 252, "what all of them agree on: types, units, plans,", "small")
    drawing.words(MIDDLE + 10, 267, "signatures; NNAPI's facts; every exception", "small")
    return drawing


def _device(drawing: Drawing, text: str, y: float) -> None:
    drawing.arrow(LEFT + WIDTH, y + 18, MIDDLE - 1, y + 18)
    drawing.arrow(MIDDLE, y + 36, LEFT + WIDTH + 1, y + 36)
    drawing.box(MIDDLE, y, 300, HEIGHT, "cpu")
    drawing.words(MIDDLE + 10, y + 16, "device, and device_agent on the phone", "on strong")
    drawing.words(MIDDLE + 10, y + 34, text, "on small")
