"""``nnapi-prof convert``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from nnapi_prof.cli.options import MODEL, PREFERENCES, input_option, load_model, say, writing
from nnapi_prof.errors import NnapiProfError, UsageError

if TYPE_CHECKING:
    from nnapi_prof.convert.converted import ConvertedRegion
    from nnapi_prof.convert.sizes import Template
    from nnapi_prof.frontend.structure import Structure
    from nnapi_prof.graph.plan import Preference
    from nnapi_prof.graph.program import Program


@click.command("convert", context_settings={"help_option_names": ["-h", "--help"]})
@input_option
@click.option(
    "--level",
    type=click.IntRange(27, 30),
    default=30,
    show_default=True,
    help="API level of the phones it must run on.",
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
    "--format",
    "formats",
    type=click.Choice(["stock", "json", "cpp"]),
    multiple=True,
    default=("stock",),
    show_default=True,
    help="What to write; repeat it for several.",
)
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
    formats: tuple[str, ...],
    output: Path | None,
    model: Path,
) -> None:
    """Convert the whole of MODEL for stock PyTorch, to JSON or to C++.

    stock: TorchScript for PyTorch's own NNAPI runtime, with nothing of ours in it. It takes
    MODEL's inputs and returns its outputs, nested in tuples, lists and dicts as MODEL's are.

    json: a description of the NNAPI model for other programs; its schema is
    nnapi_prof/convert/data/region.schema.json.

    cpp: a class, header and source, that builds and compiles the NNAPI model once and executes it
    many times. Like json, it keeps weights in a file beside it.

    A model with an operation that NNAPI cannot say at this level is refused: see which by
    `nnapi-prof partition`, which keeps such operations on the CPU. The bundle that partition writes
    may stand for MODEL: then each region that its plan gives to NNAPI becomes a description or a
    class of its own.

    Sizes may be left open for stock: --input "1x3x?x?". The module takes them from its inputs
    whenever these change, and compiles then.
    """
    from nnapi_prof.cli.regions import base_path, write_region
    from nnapi_prof.convert.float16 import to_float16
    from nnapi_prof.convert.json import Description
    from nnapi_prof.convert.lower import convert_region
    from nnapi_prof.convert.sizes import flexible_region
    from nnapi_prof.frontend.flexible import FlexibleModel
    from nnapi_prof.frontend.inputs import parse_input_spec
    from nnapi_prof.frontend.structure import model_structure
    from nnapi_prof.graph.plan import Preference

    if (model / "manifest.json").is_file():
        _convert_bundle(context, model, output or model, formats)
        return
    specs = [parse_input_spec(text) for text in inputs]
    program = load_model(model, [str(spec.closed) for spec in specs])
    region = convert_region(program, tuple(range(len(program.units.units))), level)
    chosen = next(p for p in Preference if p.short == preference)
    if relaxed or float16:
        _say_precision(program, region, float16)
    region = to_float16(region) if float16 else region
    template = None
    if any(spec.open_dims for spec in specs):
        if float16:
            raise UsageError("--float16 is for fixed sizes: state them instead of ?")
        if set(formats) != {"stock"}:
            raise UsageError("--format json and cpp are for fixed sizes: state them instead of ?")
        template = flexible_region(FlexibleModel(model, specs), level)
        _say_sizes(template)
    if "stock" in formats:
        path = output or model.with_suffix(".nnapi.pt")
        if len(formats) > 1:
            base = base_path(path)
            path = base.with_name(f"{base.name}.nnapi.pt")
        structure = model_structure(model, program.example_inputs)
        _write_stock(path, program, template or region, chosen, relaxed, structure)
    if set(formats) != {"stock"}:
        _say_what_is_beside(program, region)
        write_region(base_path(output or model), Description(region, chosen, relaxed), formats)


def _write_stock(
    path: Path,
    program: Program,
    found: ConvertedRegion | Template,
    preference: Preference,
    relaxed: bool,
    structure: Structure,
) -> None:
    import io

    import torch

    from nnapi_prof.bundle.flexible import flexible_stock_module
    from nnapi_prof.bundle.torchscript import stock_module
    from nnapi_prof.convert.sizes import Template
    from nnapi_prof.frontend.quiet import quiet_torch
    from nnapi_prof.run.host import constant_outputs

    rest = (constant_outputs(program), preference, relaxed, structure)
    if isinstance(found, Template):
        region = found.region
        module = flexible_stock_module(program.units, found, *rest)
    else:
        region = found
        module = stock_module(program.units, region, *rest)
    content = io.BytesIO()
    with quiet_torch():
        torch.jit.save(module, content)
    with writing(path):
        path.write_bytes(content.getvalue())
    say(f"{len(region.operations)} NNAPI operations in {path}")


def _say_precision(program: Program, region: ConvertedRegion, float16: bool) -> None:
    """How far float16 moves the outputs; only ``float16`` itself must be possible."""
    from nnapi_prof.run.precision import float16_checks

    try:
        checks = float16_checks(program, region)
    except NnapiProfError as error:
        if float16:
            raise
        say(f"note: what relaxed precision may cost is not measured: {error}")
        return
    worst = max(check.relative for check in checks)
    asked = "float16" if float16 else "a driver that computes relaxed float32 all in float16"
    say(
        f"note: {asked} moves the outputs by {worst:.1e} of their largest value (measured on the"
        " emulator with the example inputs, against float32 in eager PyTorch)"
    )


def _say_sizes(template: Template) -> None:
    for known in template.opens:
        steps = f" in steps of {known.step}" if known.step > 1 else ""
        say(
            f"note: dimension {known.dim} of input {known.input} may be {known.least} to"
            f" {known.most}{steps}"
        )


def _say_what_is_beside(program: Program, region: ConvertedRegion) -> None:
    """A region has only what is computed: a model may have more outputs and inputs."""
    for kind, names, known in (
        ("outputs", program.units.outputs, region.outputs),
        ("inputs", program.units.inputs, region.inputs),
    ):
        beside = [name for name in dict.fromkeys(names) if name not in known]
        if beside:
            say(
                f"note: {kind} of the model that NNAPI has nothing to do with (constants, inputs as"
                f" they are or that nothing reads) are not there: {', '.join(beside)}"
            )


def _convert_bundle(
    context: click.Context, bundle_path: Path, output: Path, formats: tuple[str, ...]
) -> None:
    """Writes each NNAPI region of a bundle's plan."""
    from nnapi_prof.bundle.storage import read_bundle
    from nnapi_prof.cli.regions import base_path, bundle_regions, write_region

    if "stock" in formats:
        raise UsageError(
            f"{bundle_path} is a bundle: its regions become --format json or --format cpp"
        )
    for name in ("inputs", "level", "preference", "relaxed", "float16"):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise UsageError(f"--{name.removesuffix('s')} is for models: a bundle has its own")
    regions = list(bundle_regions(read_bundle(bundle_path)))
    if not regions:
        raise UsageError(f"the plan of {bundle_path} gives NNAPI nothing to run")
    base = base_path(output)
    for number, described in regions:
        write_region(base.with_name(f"{base.name}_{number}"), described, formats)
