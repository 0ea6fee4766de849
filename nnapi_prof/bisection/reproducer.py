"""Write the smallest case that shows a fault, as a folder that does not need this tool.

::

    README.md            the fault, and the commands that show it
    region.pt2           the units in PyTorch, if torch.export accepts them
    input_0.bin ...      the region's inputs, in the device's memory layout
    expected_0.bin ...   the expected outputs
    region.h region.cpp region.weights   the NNAPI model (:mod:`nnapi_prof.convert.export_cpp`)
    main.cpp             runs it on the accelerator, compares, and exits with 1 on a difference
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import fx

from nnapi_prof.bisection import FaultKind
from nnapi_prof.bisection.deviation import (
    BUDGETS,
    CHANNEL_ELEMENTS,
    CHANNEL_STEPS,
    FAR_SHARE,
    MEAN_STEPS,
    MOST_STEPS,
    OTHER_SHARE,
    OTHER_SHARE_ALONE,
    SYSTEMATIC,
    SYSTEMATIC_SHARE,
)
from nnapi_prof.bisection.diagnosis import MANY_RUNS, Culprit
from nnapi_prof.convert.export_cpp import DATA, class_name, to_cpp
from nnapi_prof.convert.export_json import RegionDescription, lay_out
from nnapi_prof.convert.region import Region
from nnapi_prof.costs import Conditions, Mode, Precision
from nnapi_prof.graph import DimOrder, TensorType
from nnapi_prof.graph.plan import AUTO, Preference
from nnapi_prof.graph.program import Program, to_memory

STEM = "region"

_C_TYPES = {
    "float32": "float",
    "int32": "std::int32_t",
    "bool": "std::uint8_t",
    "uint8": "std::uint8_t",
    "int8": "std::int8_t",
}


def write_reproducer(
    folder: Path,
    program: Program,
    culprit: Culprit,
    region: Region,
    values: Mapping[str, torch.Tensor],
    conditions: Conditions,
    budget: float | None,
    command: str,
) -> list[Path]:
    """Write a reproducer of a culprit on an NNAPI target and return its files.

    ``values`` are the references of the sample that shows the fault, ``budget`` is that of
    :func:`.deviation.deviation`, ``command`` shows the fault with this tool. Raises
    SerializationError if the region has unknown sizes, OSError if the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []

    def write(name: str, data: bytes | str) -> None:
        path = folder / name
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        written.append(path)

    for side, names in (("input", region.inputs), ("expected", region.outputs)):
        for number, name in enumerate(names):
            write(f"{side}_{number}.bin", to_memory(values[name], program.units.values[name]))
    weights = lay_out(region.buffers)
    if region.buffers:
        weights.write(folder / f"{STEM}.weights")
        written.append(folder / f"{STEM}.weights")
    target = culprit.target
    described = RegionDescription(
        region,
        target.preference or Preference.FAST_SINGLE_ANSWER,
        conditions.precision_of(target) is Precision.RELAXED,
        None if target.accelerator == AUTO else target.accelerator,
    )
    code = to_cpp(described, STEM, weights)
    write(f"{STEM}.h", code.header)
    write(f"{STEM}.cpp", code.source)
    allowed = BUDGETS[conditions.precision_of(target)] if budget is None else budget
    allowed *= math.sqrt(len(culprit.units))
    judged = (
        budget is None
        and len(culprit.units) == 1
        and conditions.precision_of(target) is not Precision.FLOAT32
    )
    write("main.cpp", _main(region, culprit, budget, allowed, systematic=judged))
    if _save_program(program, culprit, values, folder / f"{STEM}.pt2"):
        written.append(folder / f"{STEM}.pt2")
    write("README.md", _readme(culprit, region, command, allowed, systematic=judged))
    return written


def _save_program(
    program: Program, culprit: Culprit, values: Mapping[str, torch.Tensor], path: Path
) -> bool:
    """Save the units as an ExportedProgram; return whether that was possible."""
    module, inputs = extract(program, culprit.units)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            examples = tuple(values[name].clone() for name in inputs)
            torch.export.save(torch.export.export(module, examples), path)
    except Exception as error:  # torch.export raises exceptions of any type
        warnings.warn(f"no {path.name}: torch.export refuses these units: {error}", stacklevel=2)
        return False
    return True


def extract(program: Program, units: tuple[int, ...]) -> tuple[fx.GraphModule, tuple[str, ...]]:
    """Return units as a separate module, and the names of the values that it takes."""
    entering, leaving = program.units.boundary(units)
    inside = {name for unit in units for name in program.units.units[unit].nodes}
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    root: dict[str, Any] = {}
    for name in entering:
        copies[program.nodes[name]] = graph.placeholder(name)
    for node in program.module.graph.nodes:
        if node.name not in inside:
            continue
        for argument in node.all_input_nodes:
            if argument.op == "get_attr" and argument not in copies:
                name = str(argument.target).replace(".", "_")
                root[name] = program.module.get_buffer(str(argument.target))
                copies[argument] = graph.get_attr(name)
        copies[node] = graph.node_copy(node, lambda each: copies[each])
    graph.output(tuple(copies[program.nodes[name]] for name in leaving))
    holder = torch.nn.Module()
    for name, value in root.items():
        holder.register_buffer(name, value)
    return fx.GraphModule(holder, graph), entering


def _main(
    region: Region, culprit: Culprit, budget: float | None, allowed: float, *, systematic: bool
) -> str:
    """Return the C++ program that runs the region the way it failed and compares the outputs."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    def tensors(names: tuple[str, ...], types: tuple[TensorType, ...]) -> list[dict[str, object]]:
        return [
            {
                "name": name,
                "element": _C_TYPES[type_.device_dtype],
                "count": math.prod(type_.memory_shape),
                "zero": 0 if type_.quant is None else type_.quant.zero_point,
                "rule": _rule(type_, budget),
                **_channels(type_),
            }
            for name, type_ in zip(names, types, strict=True)
        ]

    way = culprit.way
    if way.delegate:  # this program has no delegate: use another way that shows the fault
        way = next((w.way for w in culprit.ways if w.differs and not w.way.delegate), way)
    environment = Environment(
        loader=FileSystemLoader(DATA),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    return environment.get_template("reproducer.cpp.j2").render(
        stem=STEM,
        name=class_name(STEM),
        weights=bool(region.buffers),
        burst=way.mode is Mode.BURST,
        pointers=way.pointers,
        # An error that grows with each execution may need many of them.
        executions=MANY_RUNS if culprit.kind is FaultKind.STATE else way.runs,
        race=culprit.kind is FaultKind.RACE,
        tolerance=f"{allowed:.9g}",
        mean_steps=MEAN_STEPS,
        far_share=FAR_SHARE,
        most_steps=MOST_STEPS if len(culprit.units) == 1 else None,
        channel_steps=CHANNEL_STEPS,
        channel_elements=CHANNEL_ELEMENTS,
        systematic=SYSTEMATIC if systematic else None,
        systematic_share=SYSTEMATIC_SHARE,
        other_share=OTHER_SHARE_ALONE if len(culprit.units) == 1 else OTHER_SHARE,
        inputs=tensors(region.inputs, region.input_types),
        outputs=tensors(region.outputs, region.output_types),
    )


def _rule(type_: TensorType, budget: float | None) -> str:
    """Return the C++ rule that judges a tensor like :func:`.deviation.deviation`."""
    if type_.dtype.startswith("float") or (type_.quant is not None and budget is not None):
        return "float"
    return "integer" if type_.quant is None else "quantized"


def _channels(type_: TensorType) -> dict[str, int]:
    """Return the number of channels in a tensor's memory, and their stride in elements."""
    if len(type_.shape) < 3:
        return {"channels": 1, "inner": 1}
    inner = 1 if type_.dim_order is DimOrder.CHANNELS_LAST else math.prod(type_.shape[2:])
    return {"channels": type_.shape[1], "inner": inner}


def _readme(
    culprit: Culprit, region: Region, command: str, allowed: float, *, systematic: bool
) -> str:
    operations = ", ".join(region.operations)
    only = "; ".join(way.name for way in culprit.only_in)
    common = (
        f", and {SYSTEMATIC:.2g} of a factor or an offset that elements have in common"
        if systematic
        else ""
    )
    lines = [
        f"# {culprit.label} on {culprit.target.key}",
        "",
        f"The driver (version {culprit.driver_version or 'unknown'}) computes something else than "
        f"PyTorch: its output {culprit.worst.value} is off by {culprit.worst.relative:.3g} of its "
        f"largest value. {allowed:.3g} is allowed{common}. The likely kind of fault: "
        f"{culprit.kind.value}.",
        "",
        f"NNAPI operations: {operations}. Feature level {region.level}.",
        *([f"It shows only in these ways: {only}.", ""] if only else [""]),
        "With NNAPI alone, on the phone (the NDK's clang++) or a host with an NNAPI library:",
        "",
        "```sh",
        f"clang++ -std=c++14 main.cpp {STEM}.cpp -ldl -o reproduce",
        "./reproduce    # in this folder; exit code 1: outputs differ, 2: it does not run",
        "```",
        "",
        "With nnapi-prof:",
        "",
        "```sh",
        command,
        "```",
        "",
        "`input_*.bin` and `expected_*.bin` hold the tensors as they are in the device's memory.",
        "",
    ]
    return "\n".join(lines)
