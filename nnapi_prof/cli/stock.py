"""Modules for stock PyTorch as files, for ``nnapi-prof convert``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nnapi_prof.cli.options import load_model, writing
from nnapi_prof.cli.output import as_json, say, stderr, stdout
from nnapi_prof.cli.tables import boxed
from nnapi_prof.errors import InputSpecError, NnapiProfError, UnsupportedOp

if TYPE_CHECKING:
    import torch
    from rich.console import Console

    from nnapi_prof.bundle.bundle import Bundle
    from nnapi_prof.bundle.parts import Parts
    from nnapi_prof.cli.written import Written
    from nnapi_prof.convert.dynamic_shapes import Template
    from nnapi_prof.convert.region import Region
    from nnapi_prof.frontend.structure import Structure
    from nnapi_prof.graph.plan import Preference
    from nnapi_prof.graph.program import Program


def write_stock(
    written: Written,
    path: Path,
    program: Program,
    found: Region | Template,
    preference: Preference,
    relaxed: bool,
    structure: Structure,
) -> None:
    """Writes a model that NNAPI runs whole."""
    from nnapi_prof.bundle.flexible import flexible_stock_module
    from nnapi_prof.bundle.torchscript import stock_module
    from nnapi_prof.convert.dynamic_shapes import Template
    from nnapi_prof.execution.host import constant_outputs

    rest = (constant_outputs(program), preference, relaxed, structure)
    if isinstance(found, Template):
        region = found.region
        module = flexible_stock_module(program.units, found, *rest)
    else:
        region = found
        module = stock_module(program.units, region, *rest)
    _save(module, path)
    written.files.append((path, "stock"))
    say(f"{len(region.operations)} NNAPI operations in {path}")


def find_parts(
    program: Program, level: int, preference: Preference, least: int, float16: bool
) -> Parts:
    """What NNAPI can run of a model, and the rest. Raises NnapiProfError where it is nothing."""
    from nnapi_prof.bundle.parts import largest_parts

    parts = largest_parts(program, level, preference, least)
    if not parts.regions:
        _show_refusals(program, parts.cpu_reasons)
        raise NnapiProfError(
            "NNAPI can run nothing of the model in stock PyTorch: see the table, which says why of"
            " each operation"
        )
    return parts.in_float16() if float16 else parts


def write_parts(
    written: Written,
    path: Path,
    program: Program,
    parts: Parts,
    relaxed: bool,
    structure: Structure,
) -> None:
    """Writes a model that runs in parts, and says what stays on the CPU."""
    from nnapi_prof.bundle.mixed import mixed_module
    from nnapi_prof.execution.host import constant_outputs

    show_kept(program, parts.cpu_reasons)
    show_in_floats(written, program, parts.regions)
    _save(mixed_module(program, parts, constant_outputs(program), relaxed, structure), path)
    on_nnapi = [(p.units, len(p.region.operations)) for p in parts.parts if p.region is not None]
    written.grow(program, on_nnapi)
    n_operations = sum(count for _, count in on_nnapi)
    n_cpu = sum(len(part.units) for part in parts.parts if part.region is None)
    written.files.append((path, "stock"))
    written.regions += [len(region.operations) for region in parts.regions]
    written.cpu_units += n_cpu
    written.keep(program, parts.cpu_reasons)
    say(
        f"{n_operations} NNAPI operations in {_counted(len(parts.regions), 'part')} and"
        f" {_counted(n_cpu, 'unit')} on the CPU in {path}"
    )


def write_plan(written: Written, path: Path, bundle: Bundle, relaxed: bool) -> None:
    """Writes the plan of a bundle that stock PyTorch can follow."""
    from nnapi_prof.bundle.parts import planned_parts
    from nnapi_prof.frontend.loader import model_structure

    model = written.source / bundle.model_file
    program = load_model(model, bundle.inputs)
    known = [(unit.nodes, unit.inputs, unit.outputs) for unit in bundle.graph.units]
    if known != [(unit.nodes, unit.inputs, unit.outputs) for unit in program.units.units]:
        raise InputSpecError(
            f"{written.source} was made by another version, which cut the model otherwise: make it "
            "again with `nnapi-prof partition`"
        )
    plan, parts = planned_parts(program, bundle)
    if plan is not bundle.plan:
        written.note(
            f"stock PyTorch cannot name the accelerators of the plan {bundle.plan.name};"
            f" {plan.name} is the fastest of the bundle's plans that names none"
        )
    write_parts(
        written,
        path,
        program,
        parts,
        relaxed,
        model_structure(model, program.as_given(program.example_inputs)),
    )


def refusal_of_whole(
    program: Program, level: int, refusal: UnsupportedOp, formats: Sequence[str], is_open: bool
) -> NnapiProfError:
    """The refusal of a model that NNAPI cannot run whole; what stays behind is shown."""
    from nnapi_prof.convert.lower import why_not

    every = range(len(program.units.units))
    kept = {u: reason for u in every if (reason := why_not(program, u, level)) is not None}
    _show_refusals(program, kept)
    others = [name for name in formats if name != "stock"]
    if others:
        hint = (
            f"--format {others[0]} is for models that NNAPI can run whole: cut the model by"
            " `nnapi-prof partition` and convert the bundle"
        )
    elif is_open:
        hint = "sizes left open need the model whole on NNAPI: state them instead of ?"
    else:
        hint = "without --whole the rest stays on the CPU"
    return NnapiProfError(f"{refusal}; {hint}")


def _show_refusals(program: Program, kept: Mapping[int, str]) -> None:
    """:func:`show_kept` of a model that is not converted: under --json on standard error."""
    show_kept(program, kept, stderr() if as_json() else None)


def show_kept(program: Program, kept: Mapping[int, str], console: Console | None = None) -> None:
    """A table of the units that stay on the CPU, those of one reason in one row."""
    _show_reasons("Stays on the CPU", program, kept, console)


def show_in_floats(written: Written, program: Program, regions: Sequence[Region]) -> None:
    """A table of the quantised units that NNAPI computes in float32, and the rules that say so."""
    from nnapi_prof.convert.region import units_in_floats

    found = units_in_floats(program.units, regions)
    written.compute_in_floats(program, found)
    if found:
        _show_reasons("Computed in float32 on NNAPI, not as quant8", program, found)


def _show_reasons(
    title: str, program: Program, reasons: Mapping[int, str], console: Console | None = None
) -> None:
    rows: dict[tuple[str, str], list[int]] = {}
    for u, reason in sorted(reasons.items()):
        words = program.units.units[u].label.split()
        operation = " ".join(words[:2]) if words[0] == "quantised" else words[0]
        _, _, rest = reason.partition(": ")  # without the node's name
        said = rest if " cannot run on NNAPI: " in rest else reason
        rows.setdefault((operation, said), []).append(u)
    table = boxed(title, ["operation"], ["units"], "first", "why")
    for (operation, reason), units in rows.items():
        first = program.units.units[units[0]].label
        table.add_row(operation, str(len(units)), first, reason)
    (console or stdout()).print(table)


def _counted(n: int, word: str) -> str:
    return f"{n} {word}" if n == 1 else f"{n} {word}s"


def _save(module: torch.jit.ScriptModule, path: Path) -> None:
    import io

    import torch

    from nnapi_prof.frontend.torch_logging import quiet_torch

    content = io.BytesIO()
    with quiet_torch():
        torch.jit.save(module, content)
    with writing(path):
        path.write_bytes(content.getvalue())
