"""The files of ``nnapi-prof convert``: printed when they are written, and kept for ``--json``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nnapi_prof.cli.output import as_json, boxed, say, stderr, stdout, writing
from nnapi_prof.cli.progress import listening
from nnapi_prof.documents.conversion import ConversionFiles, UnitReason
from nnapi_prof.errors import (
    InputSpecError,
    NnapiProfError,
    NotMeasured,
    Refusal,
    UnsupportedOp,
)
from nnapi_prof.reports.words import count

if TYPE_CHECKING:
    import torch
    from rich.console import Console

    from nnapi_prof.bundle import Bundle, MixedPrecision
    from nnapi_prof.bundle.parts import Parts
    from nnapi_prof.convert.dynamic_shapes import Template
    from nnapi_prof.convert.export_json import RegionDescription
    from nnapi_prof.convert.region import Region
    from nnapi_prof.frontend.structure import Structure
    from nnapi_prof.graph.plan import Preference
    from nnapi_prof.graph.program import Program


class OutputFiles(ConversionFiles):
    """The files of one conversion, and facts about them, which are also printed at once."""

    def note(self, text: str) -> None:
        """Adds a note for the user."""
        self.notes.append(text)
        say(f"note: {text}")

    def notes_on(self, structure: Structure) -> None:
        """Adds notes where outputs or inputs are nested differently from the model's."""
        for text in structure.notes:
            self.note(text)

    def grow(self, program: Program, converted: Sequence[tuple[Sequence[int], int]]) -> None:
        """Adds a note where regions, each given by its units and its number of NNAPI operations,
        grew a lot."""
        from nnapi_prof.convert.region import growth_note

        note = growth_note(program.units, converted)
        if note is not None and note not in self.notes:
            self.note(note)

    def keep(self, program: Program, cpu_reasons: Mapping[int, Refusal]) -> None:
        """Adds units on the CPU, by index, with their reasons."""
        self.kept += _unit_reasons(program, cpu_reasons)

    def compute_in_floats(self, program: Program, rules: Mapping[int, Refusal]) -> None:
        """Adds quantised units in float32, by index, with their reasons."""
        self.in_floats += _unit_reasons(program, rules)


def _unit_reasons(program: Program, reasons: Mapping[int, Refusal]) -> list[UnitReason]:
    units = program.units.units
    return [UnitReason(units[u].name, units[u].label, str(reasons[u])) for u in sorted(reasons)]


# ---- regions: JSON descriptions and C++ classes --------------------------------------------------


_ENDINGS = (".nnapi.pt", ".pt", ".pt2", ".json", ".h", ".cpp", ".weights", ".nnprof", ".pte")


def base_path(path: Path, formats: Sequence[str]) -> Path:
    """Returns the common stem of output files: ``out/net`` for ``out/net.nnapi.pt``,
    ``out/net.json`` and ``out/net``. For C++, characters unfit for an #include become
    underscores."""
    name = next((path.name.removesuffix(e) for e in _ENDINGS if path.name.endswith(e)), path.name)
    if "cpp" in formats:
        name = re.sub(r"[^\w.-]", "_", name, flags=re.ASCII)
    return path.with_name(name or "model")


def write_region(
    written: OutputFiles, base: Path, described: RegionDescription, formats: Sequence[str]
) -> None:
    """Writes a region as ``base``.json, as ``base``.h and .cpp, or both, and its weights to
    ``base``.weights; prints the names of the files."""
    from nnapi_prof.convert.export_cpp import to_cpp
    from nnapi_prof.convert.export_json import to_json

    weights_file = base.with_name(f"{base.name}.weights")
    text, weights = to_json(described, weights_file.name)
    files: dict[Path, str] = {}
    if "json" in formats:
        files[base.with_name(f"{base.name}.json")] = text
    if "cpp" in formats:
        code = to_cpp(described, base.name, weights)
        files[base.with_name(code.header_file)] = code.header
        files[base.with_name(f"{base.name}.cpp")] = code.source
    for path, content in files.items():
        with writing(path):
            path.write_text(content)
    if described.region.buffers:
        with writing(weights_file):
            weights.write(weights_file)
    written.files += [(path, "json" if path.suffix == ".json" else "cpp") for path in files]
    if described.region.buffers:
        written.files.append((weights_file, "weights"))
    names = [*map(str, files), *([str(weights_file)] if described.region.buffers else [])]
    say(f"{len(described.region.operations)} NNAPI operations in {', '.join(names)}")


def load_program(
    path: Path, inputs: Sequence[str], keep: bool = True, mixed: MixedPrecision | None = None
) -> Program:
    """Loads a model's program and prints its notes. ``keep``, ``mixed`` and errors are those of
    :func:`nnapi_prof.execution.profile.unit_graph_cache.load_program`."""
    with listening() as listener:
        with listener.working(f"reading {path.name}"):
            from nnapi_prof.execution.profile.unit_graph_cache import load_program

            program = load_program(path, inputs, keep, mixed)
        listener.notes(*program.notes)
    return program


def bundle_regions(bundle: Bundle) -> Iterator[tuple[int, RegionDescription]]:
    """Yields the NNAPI segments of a bundle's plan: the number and the description of each."""
    from nnapi_prof.convert.export_json import RegionDescription
    from nnapi_prof.costs import Precision
    from nnapi_prof.graph.plan import AUTO, Engine

    for number, segment in enumerate(bundle.plan.segments):
        target = segment.target
        if target.engine is not Engine.NNAPI or target.preference is None:
            continue
        yield (
            number,
            RegionDescription(
                bundle.region(segment.units, target),
                target.preference,
                device=None if target.accelerator == AUTO else target.accelerator,
                relaxed=bundle.conditions.precision_of(target) is Precision.RELAXED,
            ),
        )


# ---- bundles as one file for apps ----------------------------------------------------------------


ENDING = ".nnprt"


def write_runtime(written: OutputFiles, path: Path, bundle: Bundle) -> None:
    """Writes a bundle for ``libnnapi_prof_runtime`` to ``path``, or to ``path``.nnprt if that has
    no suffix, and prints its content."""
    from nnapi_prof.bundle.deployment import needs_host, runtime_bundle, runtime_plans

    content = runtime_bundle(bundle)
    plans = runtime_plans(bundle)
    path = path if path.suffix else path.with_name(f"{path.name}{ENDING}")
    with writing(path):
        path.write_bytes(content)
    written.files.append((path, "runtime"))
    segments = ", ".join(segment.target.key for segment in plans[0].segments)
    say(f"{path}: {len(content) / 1e6:.2f} MB, plan {plans[0].name} ({segments})")
    if len(plans) > 1:
        say(f"other plans in it: {', '.join(plan.name for plan in plans[1:])}")
    left_out = [plan.name for plan in bundle.plans if needs_host(plan)]
    if left_out:
        written.note(f"left out, because they need PyTorch: {', '.join(left_out)}")


# ---- modules for stock PyTorch -------------------------------------------------------------------


def write_stock(
    written: OutputFiles,
    path: Path,
    program: Program,
    source: Region | Template,
    preference: Preference,
    relaxed: bool,
    structure: Structure,
) -> None:
    """Writes a model that NNAPI runs whole."""
    from nnapi_prof.api.convert import module_of
    from nnapi_prof.convert.dynamic_shapes import Template

    region = source.region if isinstance(source, Template) else source
    written.notes_on(structure)
    _save(module_of(program, source, preference, relaxed, structure), path)
    written.files.append((path, "stock"))
    say(f"{len(region.operations)} NNAPI operations in {path}")


def find_parts(
    program: Program, level: int, preference: Preference, least: int, float16: bool
) -> Parts:
    """Divides a model into parts that NNAPI can run and others. Raises NnapiProfError where NNAPI
    can run nothing."""
    from nnapi_prof.bundle.parts import largest_parts

    parts = largest_parts(program, level, preference, least)
    if not parts.regions:
        _show_refusals(program, parts.cpu_reasons)
        raise NnapiProfError(
            "NNAPI can run nothing of the model in stock PyTorch",
            "see the table, which says why of each operation; the model's own file runs in stock"
            " PyTorch, and `nnapi-prof go` tells what each part takes on the CPU",
        )
    return parts.in_float16() if float16 else parts


def write_parts(
    written: OutputFiles,
    path: Path,
    program: Program,
    parts: Parts,
    relaxed: bool,
    structure: Structure,
) -> None:
    """Writes a model that runs in parts, and prints the units that stay on the CPU."""
    from nnapi_prof.api.convert import module_of
    from nnapi_prof.graph.plan import Preference

    show_kept(program, parts.cpu_reasons)
    show_in_floats(written, program, parts.regions)
    written.notes_on(structure)
    _save(module_of(program, parts, Preference.SUSTAINED_SPEED, relaxed, structure), path)
    on_nnapi = [(p.units, len(p.region.operations)) for p in parts.parts if p.region is not None]
    written.grow(program, on_nnapi)
    n_operations = sum(count for _, count in on_nnapi)
    n_cpu = sum(len(part.units) for part in parts.parts if part.region is None)
    written.files.append((path, "stock"))
    written.regions += [len(region.operations) for region in parts.regions]
    written.cpu_units += n_cpu
    written.keep(program, parts.cpu_reasons)
    say(
        f"{n_operations} NNAPI operations in {count(len(parts.regions), 'part')} and"
        f" {count(n_cpu, 'unit')} on the CPU in {path}"
    )


def write_plan(
    written: OutputFiles, path: Path, bundle: Bundle, relaxed: bool, costs: str | None
) -> None:
    """Writes the plan of a bundle that stock PyTorch can follow; where the cost table has rows for
    tensors passed by address, the plan is made again from these."""
    from nnapi_prof.api.convert import with_addresses
    from nnapi_prof.api.model import Model
    from nnapi_prof.bundle.deployment import float32_cpu
    from nnapi_prof.bundle.parts import planned_parts
    from nnapi_prof.execution.profile.unit_graph_cache import UnitGraphCache
    from nnapi_prof.frontend.loader import model_structure

    model = written.source / bundle.model_file
    program = load_program(model, bundle.inputs, mixed=bundle.mixed)
    planned_units = [(unit.nodes, unit.inputs, unit.outputs) for unit in bundle.graph.units]
    if planned_units != [(unit.nodes, unit.inputs, unit.outputs) for unit in program.units.units]:
        raise InputSpecError(
            f"{written.source} was made by another version, which cut the model otherwise",
            "make it again with `nnapi-prof partition`",
        )
    loaded = Model(model, bundle.inputs, UnitGraphCache.of(program))
    try:
        addressed = with_addresses(bundle, loaded, costs)
    except NotMeasured as missing:
        written.note(
            "the plan was measured with tensors in shared memory, and stock PyTorch passes"
            " addresses: `nnapi-prof go --mode pointers` measures them, and then this command plans"
            f" by that ({missing.problem})"
        )
    else:
        if addressed is not bundle:
            written.note(
                "planned anew by costs of tensors at addresses, as stock PyTorch passes them"
            )
        bundle = addressed
    plan, parts = planned_parts(program, bundle)
    if plan is not bundle.plan:
        written.note(
            f"stock PyTorch cannot name the accelerators of the plan {bundle.plan.name};"
            f" {plan.name} is the fastest of the bundle's plans that names none"
        )
    if note := float32_cpu(bundle, plan, "stock PyTorch"):
        written.note(note)
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
    """Returns the error for a model that NNAPI cannot run whole, after a table of the refused
    units."""
    from nnapi_prof.convert.lower import why_not

    every = range(len(program.units.units))
    cpu_reasons = {u: reason for u in every if (reason := why_not(program, u, level)) is not None}
    _show_refusals(program, cpu_reasons)
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


def _show_refusals(program: Program, cpu_reasons: Mapping[int, Refusal]) -> None:
    """Prints :func:`show_kept` for a model that is not converted, with --json on standard error."""
    show_kept(program, cpu_reasons, stderr() if as_json() else None)


def show_kept(
    program: Program, cpu_reasons: Mapping[int, Refusal], console: Console | None = None
) -> None:
    """Prints a table of the units that stay on the CPU, if any, with one row for each reason."""
    if cpu_reasons:
        _show_reasons("Stays on the CPU", program, cpu_reasons, console)


def show_in_floats(written: OutputFiles, program: Program, regions: Sequence[Region]) -> None:
    """Prints a table of the quantised units that NNAPI computes in float32, and the rules."""
    from nnapi_prof.convert.region import units_in_floats

    sentences = units_in_floats(program.units, regions)
    rules = {unit: Refusal(sentence) for unit, sentence in sentences.items()}
    written.compute_in_floats(program, rules)
    if rules:
        _show_reasons("Computed in float32 on NNAPI, not as quant8", program, rules)


def _show_reasons(
    title: str, program: Program, reasons: Mapping[int, Refusal], console: Console | None = None
) -> None:
    rows: dict[tuple[str, str], list[int]] = {}
    for u, reason in sorted(reasons.items()):
        rows.setdefault((program.units.units[u].full_operation, reason.sentence), []).append(u)
    table = boxed(title, ["operation"], ["units"], "first", "why")
    for (operation, sentence), units in rows.items():
        first = program.units.units[units[0]].label
        table.add_row(operation, str(len(units)), first, sentence)
    (console or stdout()).print(table)


def _save(module: torch.jit.ScriptModule, path: Path) -> None:
    import io

    import torch

    from nnapi_prof.frontend.torch_logging import quiet_torch

    content = io.BytesIO()
    with quiet_torch():
        torch.jit.save(module, content)
    with writing(path):
        path.write_bytes(content.getvalue())
