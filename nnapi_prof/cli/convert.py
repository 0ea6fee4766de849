"""``nnapi-prof convert``."""

from __future__ import annotations

from pathlib import Path

import click

from nnapi_prof.cli.options import MODEL, PREFERENCES, input_option, load_model, say, writing


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
@click.option("--relaxed", is_flag=True, help="Let NNAPI compute float32 as float16.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="TorchScript file to write. Default: MODEL.nnapi.pt beside the model.",
)
@MODEL
def command(
    inputs: tuple[str, ...],
    level: int,
    preference: str,
    relaxed: bool,
    output: Path | None,
    model: Path,
) -> None:
    """Convert the whole of MODEL for stock PyTorch's NNAPI runtime.

    The result is TorchScript that holds one torch.classes._nnapi.Compilation and nothing of ours.
    It takes MODEL's inputs and returns its outputs, flattened to a tuple where there are several.
    A model with an operation that NNAPI cannot say at this level is refused: see which by
    `nnapi-prof partition`, which keeps such operations on the CPU.
    """
    import io

    import torch

    from nnapi_prof.bundle.torchscript import stock_module
    from nnapi_prof.convert.lower import convert_region
    from nnapi_prof.frontend.quiet import quiet_torch
    from nnapi_prof.graph.plan import Preference
    from nnapi_prof.run.host import constant_outputs

    program = load_model(model, inputs)
    region = convert_region(program, tuple(range(len(program.units.units))), level)
    chosen = next(p for p in Preference if p.short == preference)
    module = stock_module(program.units, region, constant_outputs(program), chosen, relaxed)
    path = output or model.with_suffix(".nnapi.pt")
    content = io.BytesIO()
    with quiet_torch():
        torch.jit.save(module, content)
    with writing(path):
        path.write_bytes(content.getvalue())
    say(f"{len(region.operations)} NNAPI operations in {path}")
