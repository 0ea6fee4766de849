"""ExecuTorch's files on the command line: ``convert --to executorch``, and ``run model.pte``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from nnapi_prof.cli.output import (
    as_json,
    boxed,
    line,
    ms,
    print_document,
    say,
    stdout,
)
from nnapi_prof.cli.progress import listening
from nnapi_prof.errors import MismatchError, UsageError

if TYPE_CHECKING:
    from nnapi_prof.executorch.runner import FileRun

ENDING = ".pte"


def write_pte(bundle: Path, path: Path, whole: bool) -> tuple[Path, list[int]]:
    """Writes a bundle's plan as a ``.pte``, and says which back ends run what; the file, and the
    NNAPI operations of each of its models."""
    from nnapi_prof.executorch.version import require

    require()
    from nnapi_prof.cli.options import writing
    from nnapi_prof.executorch.pte import lower

    lowered = lower(bundle, whole=whole)
    path = path if path.suffix else path.with_name(f"{path.name}{ENDING}")
    with writing(path):
        lowered.save(path)
    backends = ", ".join(f"{n} of {name}" for name, n in lowered.backends().items())
    say(f"{path}: {path.stat().st_size / 1e6:.2f} MB, calls: {backends or 'none, kernels alone'}")
    return path, [len(region.operations) for call in lowered.calls for region in call.regions]


_OPTIONS = ("device_spec", "against", "runs", "seed", "tolerance", "bundle")
"""Of ``nnapi-prof run``, those that a ``.pte`` takes."""


def run_command(context: click.Context, path: Path) -> None:
    """``nnapi-prof run`` of a ``.pte``: shows its times and outputs on this host."""
    for name in context.params:
        stated = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if stated and name not in _OPTIONS:
            option = {"stated": "input"}.get(name, name).replace("_", "-")
            raise UsageError(f"--{option} is for bundles: leave it out for {path}")
    device, against, runs, seed, tolerance = (context.params[name] for name in _OPTIONS[:5])
    from nnapi_prof.executorch.version import require

    require()
    from nnapi_prof.executorch.runner import run_file

    with listening() as listener:
        run = run_file(
            path,
            device or "local",
            against=against,
            runs=runs,
            seed=seed,
            tolerance=tolerance,
            progress=listener.busy,
        )
    if as_json():
        from nnapi_prof.documents.executorch import of_file_run

        print_document(of_file_run(run))
    else:
        _show(run)
    if not run.agrees:
        worst = max(run.checks, key=lambda check: check.relative / check.tolerance)
        raise MismatchError(
            f"output {worst.name} of {path} differs from eager PyTorch by {worst.relative:.1e} of"
            f" its largest value, {worst.tolerance:.0e} is allowed"
        )


def _show(run: FileRun) -> None:
    console = stdout()
    line(console, f"{run.path.name} on {run.device}: {run.n_bytes / 1e6:.2f} MB")
    table = boxed("Parts, latency in ms on this host", ["part"], ["median"])
    for part in run.parts:
        table.add_row(part.name, ms(part.median_ns))
    table.add_row("all", ms(run.median_ns))
    console.print(table)
    line(console, f"loaded in {ms(run.load_ns)} ms, first run {ms(run.first_ns)} ms")
    for check in run.checks:
        verdict = "agrees with" if check.ok else "DIFFERS from"
        line(
            console,
            f"output {check.name} {list(check.shape)} {verdict} eager PyTorch:"
            f" {check.relative:.1e} of its largest value ({check.tolerance:.0e} allowed)",
        )
    if not run.checks:
        line(console, "outputs are not compared: --against MODEL names what it was made of")
    for note in run.notes:
        line(console, f"note: {note}")
