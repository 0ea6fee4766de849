"""``nnapi-prof convert``: Convert a whole model for stock PyTorch's NNAPI runtime, to JSON or to
C++."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from nnapi_prof.cli import options as opt
from nnapi_prof.cli.chips import write_for_chip
from nnapi_prof.cli.command import define, file_formats, option_group
from nnapi_prof.cli.convert_files import (
    OutputFiles,
    base_path,
    bundle_regions,
    find_parts,
    load_program,
    refusal_of_whole,
    show_in_floats,
    write_parts,
    write_plan,
    write_region,
    write_runtime,
    write_stock,
)
from nnapi_prof.cli.options import calibration_options
from nnapi_prof.cli.output import LOGGER, as_json, print_document
from nnapi_prof.cli.progress import listening, working
from nnapi_prof.errors import KeepsState, NnapiProfError, UnsupportedOp, UsageError
from nnapi_prof.nnapi.codes import FeatureLevel

if TYPE_CHECKING:
    from nnapi_prof.convert.dynamic_shapes import Template
    from nnapi_prof.convert.region import Region
    from nnapi_prof.graph.program import Program


class Level(click.ParamType[int]):
    """A feature level as devices report it: an API level up to 31, then 1000006, 1000007, ...

    Android moved NNAPI into an updatable module after API 31, so that later levels do not follow
    from an API level; a device reports its own (``nnapi-prof devices`` shows it).
    """

    name = "level"

    def convert(
        self, value: str | int, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        try:
            return int(FeatureLevel(int(value)))
        except ValueError:
            self.fail(f"{value} is not one of {', '.join(map(str, known_levels()))}", param, ctx)


def known_levels() -> list[int]:
    """Returns all feature levels, the oldest first."""
    return [int(level) for level in FeatureLevel]


@define(
    "convert",
    examples=[
        "nnapi-prof convert --input 1x3x224x224 model.pt",
        "nnapi-prof convert --format json --format cpp -o out/net model.pt",
        "nnapi-prof convert --format runtime model.nnprof",
        "nnapi-prof convert --to executorch -o model.pte model.nnprof",
        "nnapi-prof convert --to executorch --partitioners nnapi,xnnpack model.pt2",
        "nnapi-prof convert --to qnn --device qnn:SM8650 model.pt2",
    ],
)
@opt.inputs
@click.option(
    "--level",
    type=Level(),
    metavar="27..31|1000006..1000008",
    default=30,
    show_default=True,
    help="NNAPI feature level of the phones: their API level, or the level that their NNAPI"
    " reports above 31.",
)
@click.option(
    "--preference",
    type=click.Choice(opt.PREFERENCES),
    default="sustained",
    show_default=True,
    help="NNAPI PreferenceCode.",
)
@click.option(
    "--relaxed",
    is_flag=True,
    help="Let NNAPI compute float32 as float16, and print the possible loss of accuracy.",
)
@click.option(
    "--float16",
    is_flag=True,
    help="Use float16 for weights and computation (API 29), float32 for inputs and outputs, and"
    " print how far the outputs move.",
)
@click.option(
    "--whole",
    is_flag=True,
    help="Refuse a model that NNAPI cannot run whole, instead of leaving the rest to the CPU."
    " With --to executorch and a bundle: run all segments in one delegated call.",
)
@click.option(
    "--min-region",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Smallest number of NNAPI operations of a part that leaves the CPU.",
)
@click.option(
    "--format",
    "--to",
    "formats",
    type=click.Choice(["stock", "json", "cpp", "runtime", *file_formats(), "qnn"]),
    multiple=True,
    default=("stock",),
    show_default=True,
    help="Format to write; repeatable.",
)
@opt.costs
@opt.device
@option_group(*(each.convert_options for each in file_formats().values()))
@calibration_options
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="File to write; several files share its name, with different extensions. Default:"
    " beside the model, MODEL.nnapi.pt for stock PyTorch.",
)
@opt.model
@click.pass_context
def command(
    context: click.Context,
    /,
    inputs: tuple[str, ...],
    level: int,
    preference: str,
    relaxed: bool,
    float16: bool,
    whole: bool,
    min_region: int,
    formats: tuple[str, ...],
    costs: str | None,
    device_spec: str | None,
    calibration: str | None,
    samples: int | None,
    output: Path | None,
    model: Path,
    **_of_formats: Any,
) -> None:
    """Convert MODEL for stock PyTorch, to JSON or to C++.

    stock: TorchScript for PyTorch's own NNAPI runtime, without any of nnapi-prof's code. It takes
    MODEL's inputs and returns its outputs, nested in tuples, lists and dicts as in MODEL.
    Operations that NNAPI cannot express at this level stay on the CPU, as TorchScript in the same
    file; a table lists them with reasons.

    json: a description of the NNAPI model for other programs; its schema is
    nnapi_prof/convert/data/region.schema.json.

    cpp: a class, header and source, that builds and compiles the NNAPI model once and executes it
    many times. Like json, it stores weights in a file beside it.

    json and cpp need models that NNAPI can run whole; `nnapi-prof partition` cuts others. MODEL
    may be the bundle that it writes: then each NNAPI region of its plan becomes a separate
    description or class, and stock follows the plan. Stock PyTorch cannot name an accelerator; if
    the plan names one, it follows the fastest of the bundle's plans that names none. If the cost
    table (--costs) has measurements with --mode pointers, it plans anew by these.

    runtime: from a bundle only, one file for apps that embed libnnapi_prof_runtime: its plans,
    models and weights (device_agent/library/README.md).

    executorch: from a bundle, a .pte. NNAPI segments use this project's delegate, the rest
    XNNPACK's and portable kernels (docs/executorch.md). It is timed against XNNPACK only, the best
    accelerator only and list order, and the fastest is written, unless --as-planned is given. From
    a model with --partitioners: each partitioner is measured on each part, and the fastest plan is
    written.

    qnn: with --device qnn:CHIP, an ONNX file with the NPU's parts compiled for that chip by
    Qualcomm's compiler, for ONNX Runtime in an app (docs/snapdragon.md). qnn:CHIP/int8 takes its
    ranges from --calibration.

    Sizes may be open for stock if NNAPI can run the model whole: --input "1x3x?x?". The module
    takes them from its inputs, and compiles again when they change.
    """
    is_bundle = opt.names_bundle(model)
    if costs is not None and not (is_bundle and "stock" in formats):
        raise UsageError("--costs is for bundles and stock PyTorch", "leave it out")
    if "qnn" in formats:
        write_for_chip(context, device_spec, inputs, model, output, (calibration, samples))
        return
    if calibration or samples:
        raise click.UsageError("--calibration and --samples are for --to qnn")
    for each in file_formats().values():
        if each.convert(context, model, output):
            return
    written = OutputFiles(model)
    with working("converting"):
        if is_bundle:
            _convert_bundle(context, written, output, formats)
        elif "runtime" in formats:
            raise UsageError(
                "--format runtime is for bundles", f"`nnapi-prof partition` makes one of {model}"
            )
        else:
            chosen = _ConvertOptions(
                level, preference, relaxed, float16, whole, min_region, formats
            )
            _convert_model(written, inputs, output, chosen)
    if as_json():
        from nnapi_prof.documents.conversion import of_conversion

        print_document(of_conversion(written, formats))


class _ConvertOptions(NamedTuple):
    """The conversion that the command's options request."""

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
    """Writes a model in every requested format; a model with state, or with numbers as inputs, is
    first rewritten to have only tensors."""
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
    """Writes a model whose inputs are all tensors."""
    from nnapi_prof.bundle.torchscript import why_not_said, why_uncarried
    from nnapi_prof.convert.dynamic_shapes import FlexibleModel, flexible_region
    from nnapi_prof.convert.export_json import RegionDescription
    from nnapi_prof.convert.lower import convert_region
    from nnapi_prof.convert.region import to_float16
    from nnapi_prof.frontend.inputs import parse_input_specs
    from nnapi_prof.frontend.loader import model_structure
    from nnapi_prof.graph.plan import Preference

    level, preference, relaxed, float16, whole, min_region, formats = options
    specs = parse_input_specs(inputs)
    is_open = any(spec.open_dims for spec in specs)
    if is_open and float16:
        raise UsageError("--float16 is for fixed sizes", "state them instead of ?")
    if is_open and set(formats) != {"stock"}:
        raise UsageError("--format json and cpp are for fixed sizes", "state them instead of ?")
    whole_needed = whole or is_open or set(formats) != {"stock"}
    program = load_program(model, [str(spec.closed) for spec in specs], keep=not whole_needed)
    chosen = next(p for p in Preference if p.short == preference)
    base = base_path(path, formats)
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
        described = RegionDescription(region, chosen, relaxed)
        write_region(written, base, described, formats)


def _say_precision(written: OutputFiles, program: Program, region: Region, float16: bool) -> None:
    """Notes how far float16 moves the outputs. Only with ``float16`` does a failure raise."""
    from nnapi_prof.execution.half_errors import float16_checks

    try:
        checks = float16_checks(program, region)
    except NnapiProfError as error:
        if float16:
            raise
        written.note(f"what relaxed precision may cost is not measured: {error}")
        return
    written.precision = checks
    worst = max(check.relative for check in checks)
    asked = "float16" if float16 else "a driver that computes relaxed float32 all in float16"
    written.note(
        f"{asked} moves the outputs by {worst:.1e} of their largest value (measured on the"
        " emulator with the example inputs, against float32 in eager PyTorch)"
    )


def _say_sizes(written: OutputFiles, template: Template) -> None:
    written.open_sizes = template.opens
    for size in template.opens:
        steps = f" in steps of {size.step}" if size.step > 1 else ""
        equal = "".join(f", equal to dimension {dim} of input {i}" for i, dim in size.equal)
        written.note(
            f"dimension {size.dim} of input {size.input} may be {size.least} to"
            f" {size.most}{steps}{equal}"
        )


def _say_what_is_beside(written: OutputFiles, program: Program, region: Region) -> None:
    """Notes the model's inputs and outputs that its region lacks because it does not compute
    them."""
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
    """Writes a bundle's NNAPI regions, and the whole plan for stock PyTorch."""
    from nnapi_prof.bundle.storage import read_bundle

    refused = ["inputs", "level", "preference", "float16", "min_region"]
    added = [each for name, each in file_formats().items() if name in formats]
    if not added:
        refused.append("whole")
    if "stock" not in formats:
        refused.append("relaxed")
    for name in refused:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = name.removesuffix("s").replace("_", "-")
            raise UsageError(f"--{option} is for models: a bundle has its own, leave it out")
    bundle = read_bundle(written.source)
    base = base_path(output or written.source, formats)
    if "stock" in formats:
        path = output if output and len(formats) == 1 else base.with_name(f"{base.name}.nnapi.pt")
        write_plan(written, path, bundle, context.params["relaxed"], context.params["costs"])
    if "runtime" in formats:
        path = output if output and len(formats) == 1 else base
        write_runtime(written, path, bundle)
    for each in added:
        each.write_plan(context, written, output if output and len(formats) == 1 else base)
    regions = list(bundle_regions(bundle))
    if "stock" not in formats and not added:
        written.regions = [len(described.region.operations) for _, described in regions]
    if not {"json", "cpp"} & set(formats):
        return
    if not regions:
        raise UsageError(f"the plan of {written.source} gives NNAPI nothing to run")
    for number, described in regions:
        write_region(written, base.with_name(f"{base.name}_{number}"), described, formats)
