"""``nnapi-prof convert``: Convert a whole model for stock PyTorch's NNAPI runtime, to JSON or to
C++."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
from click.core import ParameterSource

from nnapi_prof.cli.command import Command
from nnapi_prof.cli.executorch import (
    OR_PARTITIONERS,
    choose_pte,
    partitioner_options,
    refuse_measuring,
)
from nnapi_prof.cli.options import (
    HELP,
    MODEL,
    PREFERENCES,
    common_options,
    input_option,
    writing,
)
from nnapi_prof.cli.output import LOGGER, as_json, boxed, print_document, say, stderr, stdout
from nnapi_prof.cli.progress import listening, working
from nnapi_prof.errors import InputSpecError, KeepsState, NnapiProfError, UnsupportedOp, UsageError
from nnapi_prof.nnapi.codes import FeatureLevel

if TYPE_CHECKING:
    import torch
    from rich.console import Console

    from nnapi_prof.bundle.bundle import Bundle
    from nnapi_prof.bundle.parts import Parts
    from nnapi_prof.bundle.precision import MixedPrecision
    from nnapi_prof.convert.dynamic_shapes import Template
    from nnapi_prof.convert.dynamic_shapes.template import OpenSize
    from nnapi_prof.convert.export.json import Description
    from nnapi_prof.convert.region import Region
    from nnapi_prof.documents.schema import Document
    from nnapi_prof.execution.report import OutputCheck
    from nnapi_prof.executorch.choice import Choice as ExecutorchChoice
    from nnapi_prof.frontend.structure import Structure
    from nnapi_prof.graph.plan import Preference
    from nnapi_prof.graph.program import Program


class Level(click.ParamType[int]):
    """A feature level as devices report it: an API level up to 31, then 1000006, 1000007, ...

    Android moved NNAPI into an updatable module after API 31, so that later levels are not tied
    to an API level: a device says which it has (``nnapi-prof devices`` shows it).
    """

    name = "level"

    def convert(
        self, value: str | int, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        try:
            return int(FeatureLevel(int(value)))
        except ValueError:
            self.fail(f"{value} is none of {', '.join(map(str, known_levels()))}", param, ctx)


def known_levels() -> list[int]:
    """Every feature level, the oldest first."""
    return [int(level) for level in FeatureLevel]


@click.command(
    "convert",
    cls=Command,
    context_settings=HELP,
    examples=[
        "nnapi-prof convert --input 1x3x224x224 model.pt",
        "nnapi-prof convert --format json --format cpp -o out/net model.pt",
        "nnapi-prof convert --format runtime model.nnprof",
        "nnapi-prof convert --to executorch -o model.pte model.nnprof",
        "nnapi-prof convert --to executorch --partitioners nnapi,xnnpack model.pt2",
    ],
)
@common_options
@input_option
@click.option(
    "--level",
    type=Level(),
    metavar="27..31|1000006..1000008",
    default=30,
    show_default=True,
    help="NNAPI feature level of the phones it must run on: their API level, or what their NNAPI"
    " reports beyond 31.",
)
@click.option(
    "--preference",
    type=click.Choice(PREFERENCES),
    default="sustained",
    show_default=True,
    help="NNAPI PreferenceCode.",
)
@click.option(
    "--relaxed",
    is_flag=True,
    help="Let NNAPI compute float32 as float16; says what that may cost in accuracy.",
)
@click.option(
    "--float16",
    is_flag=True,
    help="Weights and computation in float16 (API 29), inputs and outputs in float32; says how far"
    " the outputs move.",
)
@click.option(
    "--whole",
    is_flag=True,
    help="Refuse a model that NNAPI cannot run whole, instead of leaving the rest to the CPU. With"
    " --to executorch, of a bundle: one delegated call runs all segments.",
)
@click.option(
    "--min-region",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="NNAPI operations that a part must have to leave the CPU.",
)
@click.option(
    "--format",
    "--to",
    "formats",
    type=click.Choice(["stock", "json", "cpp", "runtime", "executorch"]),
    multiple=True,
    default=("stock",),
    show_default=True,
    help="What to write; repeat it for several.",
)
@partitioner_options
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="File to write; several are named after it, with endings of their own. Default: beside the"
    " model, MODEL.nnapi.pt for stock PyTorch.",
)
@MODEL
@click.pass_context
def command(
    context: click.Context,
    inputs: tuple[str, ...],
    level: int,
    preference: str,
    relaxed: bool,
    float16: bool,
    whole: bool,
    min_region: int,
    formats: tuple[str, ...],
    partitioners: str | None,
    device_spec: str | None,
    threads: int,
    seconds: float,
    seed: int | None,
    as_planned: bool,
    output: Path | None,
    model: Path,
) -> None:
    """Convert MODEL for stock PyTorch, to JSON or to C++.

    stock: TorchScript for PyTorch's own NNAPI runtime, with nothing of ours in it. It takes
    MODEL's inputs and returns its outputs, nested in tuples, lists and dicts as MODEL's are. What
    NNAPI cannot say at this level stays on the CPU, as TorchScript in the same file; a table says
    what does and why.

    json: a description of the NNAPI model for other programs; its schema is
    nnapi_prof/convert/data/region.schema.json.

    cpp: a class, header and source, that builds and compiles the NNAPI model once and executes it
    many times. Like json, it keeps weights in a file beside it.

    json and cpp are for models that NNAPI can run whole; `nnapi-prof partition` cuts others. The
    bundle that it writes may stand for MODEL: then each region that its plan gives to NNAPI becomes
    a description or a class of its own, and stock follows the plan. Stock PyTorch cannot name an
    accelerator: of the bundle's plans it follows the fastest that names none.

    runtime: of a bundle only, one file for apps that embed libnnapi_prof_runtime: its plans, models
    and weights (device_agent/library/README.md).

    executorch: of a bundle, a .pte: segments on NNAPI go to the delegate of this project, the
    rest to XNNPACK's and to portable kernels (docs/executorch.md). It is timed against XNNPACK
    alone, the best accelerator alone and list order, and the fastest of them becomes the file,
    unless --as-planned is there. Of a model with --partitioners: each of these is measured on each
    part of it, and the fastest plan becomes the file.

    Sizes may be left open for stock where NNAPI can run the model whole: --input "1x3x?x?". The
    module takes them from its inputs whenever these change, and compiles then.
    """
    if partitioners is not None:
        choose_pte(context, partitioners, model, output)
        return
    is_bundle = (model / "manifest.json").is_file()
    refuse_measuring(context, is_bundle and "executorch" in formats)
    written = OutputFiles(model)
    with working("converting"):
        if is_bundle:
            _convert_bundle(context, written, output, formats)
        elif of_bundles := {"runtime", "executorch"} & set(formats):
            raise UsageError(
                f"--format {min(of_bundles)} is for bundles: `nnapi-prof partition` makes one of"
                f" {model}{OR_PARTITIONERS if 'executorch' in of_bundles else ''}"
            )
        else:
            chosen = _ConvertOptions(
                level, preference, relaxed, float16, whole, min_region, formats
            )
            _convert_model(written, inputs, output, chosen)
    if as_json():
        print_document(written.document(formats))


class _ConvertOptions(NamedTuple):
    """What the options ask of a model's conversion."""

    level: int
    preference: str
    relaxed: bool
    float16: bool
    whole: bool
    min_region: int
    formats: tuple[str, ...]


def _convert_model(
    written: OutputFiles, inputs: Sequence[str], output: Path | None, options: _ConvertOptions
) -> None:
    """Writes a model in every format that is asked for; one that keeps state, or takes numbers, as
    one of tensors alone."""
    from nnapi_prof.api.model import is_named, load

    output = output or written.source.with_suffix(".nnapi.pt")
    if not any(map(is_named, inputs)):
        try:
            _convert_tensors(written, written.source, inputs, output, options)
            return
        except KeepsState as kept:
            LOGGER.debug("%s", kept)
    with listening() as listener:
        model = load(written.source, inputs, listener=listener)
    _convert_tensors(written, model.path, model.inputs, output, options)


def _convert_tensors(
    written: OutputFiles,
    model: Path,
    inputs: Sequence[str],
    path: Path,
    options: _ConvertOptions,
) -> None:
    """Writes a model that takes tensors."""
    from nnapi_prof.bundle.torchscript import why_not_said, why_uncarried
    from nnapi_prof.convert.dynamic_shapes import flexible_region
    from nnapi_prof.convert.export.json import Description
    from nnapi_prof.convert.float16 import to_float16
    from nnapi_prof.convert.lower import convert_region
    from nnapi_prof.frontend.flexible import FlexibleModel
    from nnapi_prof.frontend.inputs import parse_input_specs
    from nnapi_prof.frontend.loader import model_structure
    from nnapi_prof.graph.plan import Preference

    level, preference, relaxed, float16, whole, min_region, formats = options
    specs = parse_input_specs(inputs)
    is_open = any(spec.open_dims for spec in specs)
    if is_open and float16:
        raise UsageError("--float16 is for fixed sizes: state them instead of ?")
    if is_open and set(formats) != {"stock"}:
        raise UsageError("--format json and cpp are for fixed sizes: state them instead of ?")
    whole_needed = whole or is_open or set(formats) != {"stock"}
    program = load_program(model, [str(spec.closed) for spec in specs], keep=not whole_needed)
    chosen = next(p for p in Preference if p.short == preference)
    base = base_path(path)
    if len(formats) > 1:
        path = base.with_name(f"{base.name}.nnapi.pt")
    region, every = None, tuple(range(len(program.units.units)))
    only_stock = set(formats) == {"stock"}
    try:
        region = convert_region(program, every, level, for_stock=only_stock)
    except UnsupportedOp as refusal:
        if whole_needed:
            raise refusal_of_whole(program, level, refusal, formats, is_open) from refusal
    if region is None or ("stock" in formats and why_uncarried(region) and not whole_needed):
        parts = find_parts(program, level, chosen, min_region, float16)
        if relaxed or float16:
            written.note(
                "what float16 costs in accuracy is measured where NNAPI runs the whole model"
            )
        structure = model_structure(model, program.as_given(program.example_inputs))
        write_parts(written, path, program, parts, relaxed, structure)
        return
    if relaxed or float16:
        _say_precision(written, program, region, float16)
    region = to_float16(region) if float16 else region
    template = None
    if is_open:
        template = flexible_region(FlexibleModel(model, specs), level)
        _say_sizes(written, template)
    written.regions.append(len((template.region if template else region).operations))
    if not only_stock:
        written.grow(program, [(every, len(region.operations))])
    if "stock" in formats:
        structure = model_structure(model, program.as_given(program.example_inputs))
        stock = region
        if why_not_said(region) is not None:
            stock = convert_region(program, every, level, for_stock=True)
            stock = to_float16(stock) if float16 else stock
        written.grow(program, [(every, len(stock.operations))])
        show_in_floats(written, program, [stock])
        write_stock(written, path, program, template or stock, chosen, relaxed, structure)
    if not only_stock:
        if "stock" not in formats:
            show_in_floats(written, program, [region])
        _say_what_is_beside(written, program, region)
        described = Description(region, chosen, relaxed)
        write_region(written, base, described, formats)


def _say_precision(written: OutputFiles, program: Program, region: Region, float16: bool) -> None:
    """How far float16 moves the outputs; only ``float16`` itself must be possible."""
    from nnapi_prof.execution.host import float16_checks

    try:
        checks = float16_checks(program, region)
    except NnapiProfError as error:
        if float16:
            raise
        written.note(f"what relaxed precision may cost is not measured: {error}")
        return
    written.checks = tuple(checks)
    worst = max(check.relative for check in checks)
    asked = "float16" if float16 else "a driver that computes relaxed float32 all in float16"
    written.note(
        f"{asked} moves the outputs by {worst:.1e} of their largest value (measured on the"
        " emulator with the example inputs, against float32 in eager PyTorch)"
    )


def _say_sizes(written: OutputFiles, template: Template) -> None:
    written.opens = tuple(template.opens)
    for size in template.opens:
        steps = f" in steps of {size.step}" if size.step > 1 else ""
        equal = "".join(f", equal to dimension {dim} of input {i}" for i, dim in size.equal)
        written.note(
            f"dimension {size.dim} of input {size.input} may be {size.least} to"
            f" {size.most}{steps}{equal}"
        )


def _say_what_is_beside(written: OutputFiles, program: Program, region: Region) -> None:
    """A region has only what is computed: a model may have more outputs and inputs."""
    for kind, names, own_names in (
        ("outputs", program.units.outputs, region.outputs),
        ("inputs", program.units.inputs, region.inputs),
    ):
        beside = [name for name in dict.fromkeys(names) if name not in own_names]
        if beside:
            written.note(
                f"{kind} of the model that NNAPI has nothing to do with (constants, inputs as"
                f" they are or that nothing reads) are not there: {', '.join(beside)}"
            )


def _convert_bundle(
    context: click.Context, written: OutputFiles, output: Path | None, formats: tuple[str, ...]
) -> None:
    """Writes what a bundle's plan gives to NNAPI, and the whole plan for stock PyTorch."""
    from nnapi_prof.bundle.storage import read_bundle

    refused = ["inputs", "level", "preference", "float16", "min_region"]
    if "executorch" not in formats:
        refused.append("whole")
    if "stock" not in formats:
        refused.append("relaxed")
    for name in refused:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = name.removesuffix("s").replace("_", "-")
            raise UsageError(f"--{option} is for models: a bundle has its own, leave it out")
    bundle = read_bundle(written.source)
    base = base_path(output or written.source)
    if "stock" in formats:
        path = output if output and len(formats) == 1 else base.with_name(f"{base.name}.nnapi.pt")
        write_plan(written, path, bundle, context.params["relaxed"])
    if "runtime" in formats:
        path = output if output and len(formats) == 1 else base
        write_runtime(written, path, bundle)
    if "executorch" in formats:
        from nnapi_prof.cli.executorch import write_pte

        path = output if output and len(formats) == 1 else base
        pte = write_pte(context, written.source, path)
        written.files.append((pte.path, "executorch"))
        written.regions += pte.operations
        written.choice = pte.choice
        if pte.note:
            written.note(pte.note)
    regions = list(bundle_regions(bundle))
    if not {"stock", "executorch"} & set(formats):
        written.regions = [len(described.region.operations) for _, described in regions]
    if not {"json", "cpp"} & set(formats):
        return
    if not regions:
        raise UsageError(f"the plan of {written.source} gives NNAPI nothing to run")
    for number, described in regions:
        write_region(written, base.with_name(f"{base.name}_{number}"), described, formats)


# Regions as files: JSON descriptions and C++ classes, for ``nnapi-prof convert``.


_ENDINGS = (".nnapi.pt", ".pt", ".pt2", ".json", ".h", ".cpp", ".weights", ".nnprof", ".pte")


def base_path(path: Path) -> Path:
    """``out/net`` for ``out/net.nnapi.pt``, ``out/net.json`` and ``out/net``: files are named
    after it. Letters that an #include could not say become underscores."""
    name = next((path.name.removesuffix(e) for e in _ENDINGS if path.name.endswith(e)), path.name)
    return path.with_name(re.sub(r"[^\w.-]", "_", name, flags=re.ASCII) or "model")


def write_region(
    written: OutputFiles, base: Path, described: Description, formats: Sequence[str]
) -> None:
    """Writes a region as ``base``.json, as ``base``.h and .cpp, or both, and its weights to
    ``base``.weights; says which files there are."""
    from nnapi_prof.convert.export.cpp import to_cpp
    from nnapi_prof.convert.export.json import to_json

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
    path: Path, inputs: Sequence[str], keep: bool = False, mixed: MixedPrecision | None = None
) -> Program:
    """A model's program; says its notes. ``keep``, ``mixed`` and errors are those of
    :func:`nnapi_prof.api.model.read_model`."""
    with listening() as listener:
        with listener.working(f"reading {path.name}"):
            from nnapi_prof.api.model import read_model

            program = read_model(path, inputs, keep, mixed)
        listener.notes(*program.notes)
    return program


def bundle_regions(bundle: Bundle) -> Iterator[tuple[int, Description]]:
    """The segments of a bundle's plan that NNAPI runs: the number of each and what it is."""
    from nnapi_prof.convert.export.json import Description
    from nnapi_prof.costs.conditions import Precision
    from nnapi_prof.graph.plan import AUTO, Engine

    for number, segment in enumerate(bundle.plan.segments):
        target = segment.target
        if target.engine is not Engine.NNAPI or target.preference is None:
            continue
        yield (
            number,
            Description(
                bundle.region(segment.units, target),
                target.preference,
                device=None if target.accelerator == AUTO else target.accelerator,
                relaxed=bundle.conditions.precision_of(target) is Precision.RELAXED,
            ),
        )


# Bundles as one file for apps, for ``nnapi-prof convert``.


ENDING = ".nnprt"


def write_runtime(written: OutputFiles, path: Path, bundle: Bundle) -> None:
    """Writes a bundle for ``libnnapi_prof_runtime`` to ``path``, or to ``path``.nnprt where it has
    no ending; says what an app will find there."""
    from nnapi_prof.bundle.runtime import needs_host, runtime_bundle, runtime_plans

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
        written.note(f"left out, for they need PyTorch: {', '.join(left_out)}")


# Modules for stock PyTorch as files, for ``nnapi-prof convert``.


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
    from nnapi_prof.bundle.flexible import flexible_stock_module
    from nnapi_prof.bundle.torchscript import stock_module
    from nnapi_prof.convert.dynamic_shapes import Template
    from nnapi_prof.graph.eager import constant_outputs

    rest = (constant_outputs(program), preference, relaxed, structure)
    if isinstance(source, Template):
        region = source.region
        module = flexible_stock_module(program.units, source, *rest)
    else:
        region = source
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
    written: OutputFiles,
    path: Path,
    program: Program,
    parts: Parts,
    relaxed: bool,
    structure: Structure,
) -> None:
    """Writes a model that runs in parts, and says what stays on the CPU."""
    from nnapi_prof.bundle.mixed import mixed_module
    from nnapi_prof.graph.eager import constant_outputs

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


def write_plan(written: OutputFiles, path: Path, bundle: Bundle, relaxed: bool) -> None:
    """Writes the plan of a bundle that stock PyTorch can follow."""
    from nnapi_prof.bundle.parts import planned_parts
    from nnapi_prof.frontend.loader import model_structure

    model = written.source / bundle.model_file
    program = load_program(model, bundle.inputs, mixed=bundle.mixed)
    planned_units = [(unit.nodes, unit.inputs, unit.outputs) for unit in bundle.graph.units]
    if planned_units != [(unit.nodes, unit.inputs, unit.outputs) for unit in program.units.units]:
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


def _show_refusals(program: Program, cpu_reasons: Mapping[int, str]) -> None:
    """:func:`show_kept` of a model that is not converted: under --json on standard error."""
    show_kept(program, cpu_reasons, stderr() if as_json() else None)


def show_kept(
    program: Program, cpu_reasons: Mapping[int, str], console: Console | None = None
) -> None:
    """A table of the units that stay on the CPU, if any, those of one reason in one row."""
    if cpu_reasons:
        _show_reasons("Stays on the CPU", program, cpu_reasons, console)


def show_in_floats(written: OutputFiles, program: Program, regions: Sequence[Region]) -> None:
    """A table of the quantised units that NNAPI computes in float32, and the rules that say so."""
    from nnapi_prof.convert.region import units_in_floats

    rules = units_in_floats(program.units, regions)
    written.compute_in_floats(program, rules)
    if rules:
        _show_reasons("Computed in float32 on NNAPI, not as quant8", program, rules)


def _show_reasons(
    title: str, program: Program, reasons: Mapping[int, str], console: Console | None = None
) -> None:
    rows: dict[tuple[str, str], list[int]] = {}
    for u, reason in sorted(reasons.items()):
        words = program.units.units[u].label.split()
        operation = " ".join(words[:2]) if words[0] == "quantised" else words[0]
        _, _, rest = reason.partition(": ")  # without the node's name
        sentence = rest if " cannot run on NNAPI: " in rest else reason
        rows.setdefault((operation, sentence), []).append(u)
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


# What ``nnapi-prof convert`` wrote: said as it goes, and kept for ``--json``.


@dataclass
class OutputFiles:
    """The files of one conversion, and what is to be known of them."""

    source: Path
    files: list[tuple[Path, str]] = field(default_factory=list)
    """Each with its format."""
    regions: list[int] = field(default_factory=list)
    """NNAPI operations of each model in them."""
    cpu_units: int = 0
    """Units that stay on the CPU."""
    cpu_reasons: list[tuple[str, str, str]] = field(default_factory=list)
    """Of units that NNAPI cannot run: name, label, and why."""
    in_floats: list[tuple[str, str, str]] = field(default_factory=list)
    """Of quantised units that NNAPI computes in float32: name, label, and why."""
    checks: tuple[OutputCheck, ...] = ()
    """What less precision costs, where that was asked for and is known."""
    opens: tuple[OpenSize, ...] = ()
    notes: list[str] = field(default_factory=list)
    choice: ExecutorchChoice | None = None
    """What a file for ExecuTorch was chosen among."""

    def note(self, text: str) -> None:
        """What the user should know."""
        self.notes.append(text)
        say(f"note: {text}")

    def grow(self, program: Program, converted: Sequence[tuple[Sequence[int], int]]) -> None:
        """Regions, by units and NNAPI operations; said where they grew a lot."""
        from nnapi_prof.convert.region import growth_note

        note = growth_note(program.units, converted)
        if note is not None and note not in self.notes:
            self.note(note)

    def keep(self, program: Program, cpu_reasons: Mapping[int, str]) -> None:
        """Units on the CPU, by index, and why."""
        self.cpu_reasons += _named(program, cpu_reasons)

    def compute_in_floats(self, program: Program, rules: Mapping[int, str]) -> None:
        """Quantised units in float32, by index, and why."""
        self.in_floats += _named(program, rules)

    def document(self, formats: Sequence[str]) -> Document:
        from nnapi_prof.documents.tool import of_conversion

        return of_conversion(
            self.source,
            formats,
            self.files,
            self.regions,
            self.cpu_units,
            self.cpu_reasons,
            self.in_floats,
            self.checks,
            self.opens,
            self.notes,
            self.choice,
        )


def _named(program: Program, reasons: Mapping[int, str]) -> list[tuple[str, str, str]]:
    units = program.units.units
    return [(units[u].name, units[u].label, reasons[u]) for u in sorted(reasons)]
